"""The overview: one row per run."""
