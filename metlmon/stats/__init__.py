"""What is computed from the ledger: places, time lines, curves, estimates, incidents, windows
of time; and pandas frames. Pure functions over immutable entries; pandas is imported by what
makes a frame, and by nothing else."""
