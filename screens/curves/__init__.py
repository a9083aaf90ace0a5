"""Metrics by epoch."""
