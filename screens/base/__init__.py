"""Base classes and helpers of all screens."""
