"""Statistics computed from the ledger, as pure functions over immutable entries.

Usage, timelines, learning curves, estimates, incidents, time windows, and pandas frames. Only the
frame modules import pandas.
"""
