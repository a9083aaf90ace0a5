"""Statistics computed from the ledger, as pure functions over immutable entries.

Usage, timelines, learning curves, estimates, incidents, and time windows.
"""
