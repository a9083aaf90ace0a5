"""What a training writes, as records: metrics by epoch, its arguments, its progress line.

Pure: bytes or text come in, records go out. Nothing here knows a job, a run or a directory.
"""
