"""Reads HTCondor job event logs: bytes in, events out."""
