"""Formatting of numbers, durations and text from logs."""
