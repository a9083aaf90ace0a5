"""Derives from a metric's name whether larger or smaller values are better."""

from __future__ import annotations

from typing import Final

MORE_IS_BETTER: Final = (
    "pearson",
    "spearman",
    "kendall",
    "corr",
    "r2",
    "acc",
    "auc",
    "f1",
    "precision",
    "recall",
)
"""Substrings of names of metrics whose largest value is the best."""

LESS_IS_BETTER: Final = ("loss", "error")
"""Substrings of names of metrics whose smallest value is the best; these take precedence."""


def more_is_better(metric: str) -> bool:
    """Whether the largest value of the metric with this name is the best."""
    name = metric.lower()
    if any(word in name for word in LESS_IS_BETTER):
        return False
    return any(word in name for word in MORE_IS_BETTER)
