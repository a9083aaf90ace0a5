"""What statistics add to the rows of runs: metrics, swept variables, wall times.

Metrics are those of :mod:`metlmon.stats.curves`, swept variables of :mod:`metlmon.stats.sweep`. The
wall time of a run is the time from its first submission to the end of its last job.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from metlmon.jobfiles.records import Point
from metlmon.live.feed import StatsInput
from metlmon.snapshot.records import Ledger
from metlmon.stats.curves import Course, Curves, Goal, MetricCurve, curves
from metlmon.stats.sweep import SweepVariables, Value, find_sweep

MOST_NODES: Final = 50_000
"""Nodes up to which swept variables are searched for without a request: it takes 0.2 s."""

NO_SWEEP: Final = SweepVariables()


class RunMetric(NamedTuple):
    """The primary metric of a run, as in its curve; ``is_best``: of several runs."""

    metric: str
    goal: Goal | None
    best: Point | None
    last: Point | None
    trend: float | None
    course: Course
    since_epoch: int | None
    is_best: bool


class RunFigures(Struct, frozen=True, dict=True):
    """The curves of the primary metric, swept variables, and wall times by run key.

    ``wall_seconds``: of runs that have ended. ``sweep``: empty where nothing is swept.
    """

    curves: Curves
    sweep: SweepVariables
    wall_seconds: Mapping[str, float]

    @cached_property
    def by_run(self) -> Mapping[str, MetricCurve]:
        """The curves with values, by run key."""
        return {curve.run: curve for curve in self.curves.curves_with_values}

    @cached_property
    def best(self) -> str | None:
        """Key of the run with the best value, where several runs have one."""
        known = [curve for curve in self.curves.curves if curve.best is not None]
        best = self.curves.best
        return best.run if best is not None and len(known) > 1 else None

    @cached_property
    def swept_names(self) -> tuple[str, ...]:
        """The swept variables, the most distinctive axes first."""
        return tuple(name for axis in self.sweep.axes for name in axis.names)

    def metric(self, run: str) -> RunMetric | None:
        """The primary metric of a run; None where no training wrote one."""
        curve = self.by_run.get(run)
        if curve is None:
            return None
        return RunMetric(
            metric=self.curves.metric,
            goal=curve.goal,
            best=curve.best,
            last=curve.last,
            trend=curve.trend,
            course=curve.course,
            since_epoch=curve.since,
            is_best=run == self.best,
        )

    def swept_value(self, run: str, name: str) -> Value:
        """The value of a swept variable; None where it is not set for the run."""
        return self.sweep.values(run, (name,))[0] if run in self.sweep.runs else None


def run_figures(stats_input: StatsInput) -> RunFigures:
    """The figures of all runs."""
    # Progress lines change every few seconds: rows take them from elsewhere.
    metric_curves = curves(replace(stats_input, streams={}))
    nodes = sum(stats_input.status.node_states.values())
    sweep = find_sweep(stats_input.load_description().nodes) if nodes <= MOST_NODES else NO_SWEEP
    return RunFigures(metric_curves, sweep, wall_seconds(stats_input.ledger))


def wall_seconds(ledger: Ledger) -> dict[str, float]:
    """The wall times of the runs of which no job is queued, by run key, in seconds."""
    ends: dict[str, list[datetime | None]] = {}
    for job in ledger.jobs:
        if job.run is not None and not job.dagman:
            ends.setdefault(job.run, []).append(None if job.queued else job.ended)
    result = {}
    for run in ledger.runs:
        known = [end for end in ends.get(run.key, ()) if end is not None]
        if run.began is not None and known and len(known) == len(ends[run.key]):
            result[run.key] = ledger.seconds_between(run.began, max(known))
    return result
