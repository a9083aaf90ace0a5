"""Shards of a bag."""
