"""Parses the files of a training: metrics by epoch, arguments, progress line.

Pure functions from bytes or text to records, independent of jobs, runs and directories.
"""
