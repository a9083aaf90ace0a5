"""Which values of a metric are good ones, by its name."""

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
"""In the name of a metric: its largest value is the best one."""

LESS_IS_BETTER: Final = ("loss", "error")
"""In the name of a metric: its smallest value is the best one, whatever else it is called by."""


def more_is_better(metric: str) -> bool:
    """Is the largest value of the metric with this name the best one?"""
    name = metric.lower()
    if any(word in name for word in LESS_IS_BETTER):
        return False
    return any(word in name for word in MORE_IS_BETTER)
