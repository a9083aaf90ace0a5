"""Writes what is known about an ensemble to trackers: MLflow, OpenMetrics, Optuna."""
