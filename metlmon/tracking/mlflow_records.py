"""What an MLflow server answers, as records; fields as in MLflow's "REST API".

Fields that metlmon does not use are left out, and ignored where a server has them.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct, field

LARGEST: Final = 1.7976931348623157e308


class NoContent(Struct):
    """An answer of which nothing is used."""


class KeyValue(Struct):
    """A param or a tag."""

    key: str
    value: str = ""


class Metric(Struct):
    """One value of a metric; ``timestamp``: milliseconds since 1970."""

    key: str
    value: float
    timestamp: int = 0
    step: int = 0


class RunInfo(Struct):
    """``end_time``: milliseconds since 1970; None or 0 before the first end."""

    run_id: str
    experiment_id: str = ""
    status: str = ""
    end_time: int | None = None
    artifact_uri: str = ""


class RunData(Struct):
    """``metrics``: of each the value with the greatest step, then the latest time."""

    metrics: list[Metric] = field(default_factory=list)
    params: list[KeyValue] = field(default_factory=list)
    tags: list[KeyValue] = field(default_factory=list)


class Run(Struct):
    """A run as the server has it."""

    info: RunInfo
    data: RunData = field(default_factory=RunData)

    @property
    def id(self) -> str:
        return self.info.run_id

    @property
    def params(self) -> dict[str, str]:
        return {param.key: param.value for param in self.data.params}

    @property
    def tags(self) -> dict[str, str]:
        return {tag.key: tag.value for tag in self.data.tags}

    @property
    def latest_steps(self) -> dict[str, int]:
        """The greatest step of each metric."""
        return {metric.key: metric.step for metric in self.data.metrics}


class RunAnswer(Struct):
    """Of ``runs/create`` and ``runs/get``."""

    run: Run


class RunsAnswer(Struct):
    """Of ``runs/search``."""

    runs: list[Run] = field(default_factory=list)
    next_page_token: str = ""


class HistoryAnswer(Struct):
    """Of ``metrics/get-history``."""

    metrics: list[Metric] = field(default_factory=list)
    next_page_token: str = ""


class Experiment(Struct):
    """An experiment; ``lifecycle_stage``: active or deleted."""

    experiment_id: str
    lifecycle_stage: str = ""


class ExperimentAnswer(Struct):
    """Of ``experiments/get-by-name``."""

    experiment: Experiment


def stored_value(value: float) -> float | None:
    """A value as an SQL store returns it: infinities as the largest number; None for NaN."""
    if math.isnan(value):
        return None
    return max(-LARGEST, min(LARGEST, value))
