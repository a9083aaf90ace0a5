"""Parses the files of a training: pure functions from bytes or text to records."""
