"""Totals of GPU-seconds and executions of any entries, and by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final, TypeVar

from msgspec import Struct

from metlmon.snapshot.records import HOUR, Execution, GpuHours, HourUnit
from metlmon.snapshot.totals import ExecutionTotals

TRANSFER_SECONDS: Final = 1800.0
"""Length of an input transfer from which it counts as stalled: those of tens of GB take minutes;
one still in progress after this long has in every real log ended in an eviction."""

K = TypeVar("K")
T = TypeVar("T")


class UsageTotals(Struct, frozen=True):
    """Totals of executions: counts, GPU-seconds by outcome, and completed epochs.

    ``measure``: the unit in place of GPU-seconds, of an ensemble without GPUs.
    ``executions``: those that ended in the window, or are in flight. ``completed_epochs``: distinct
    epochs whose successful execution is among them. ``run_good``, ``run_bad``: GPU-seconds of
    the runs' own nodes only, including side nodes.
    """

    json_omits: ClassVar = frozenset(
        {"goodput", "badput", "running", "run_good", "run_bad", "measure"}
    )
    json_properties: ClassVar = ("success_rate", "hours", "hours_per_epoch")

    executions: int = 0
    good_executions: int = 0
    bad_executions: int = 0
    completed_epochs: int = 0
    goodput: float = 0.0
    badput: float = 0.0
    running: float = 0.0
    run_good: float = 0.0
    run_bad: float = 0.0
    measure: HourUnit = HourUnit.GPU

    @property
    def total(self) -> float:
        """All GPU-seconds."""
        return self.goodput + self.badput + self.running

    @property
    def hours(self) -> GpuHours:
        goodput, badput, running = self.goodput / HOUR, self.badput / HOUR, self.running / HOUR
        return GpuHours(goodput, badput, running, self.measure)

    @property
    def per_epoch(self) -> float | None:
        """GPU-seconds per epoch: those of the runs' ended executions, bad ones included.

        Per epoch completed by one of these executions; None if either number is 0.
        """
        ended_seconds = self.run_good + self.run_bad
        return (
            ended_seconds / self.completed_epochs
            if self.completed_epochs and ended_seconds
            else None
        )

    @property
    def hours_per_epoch(self) -> float | None:
        """The same in hours."""
        return None if self.per_epoch is None else self.per_epoch / HOUR

    @property
    def lost_per_epoch(self) -> float | None:
        """The part of :attr:`per_epoch` from bad executions."""
        return None if self.per_epoch is None else self.run_bad / self.completed_epochs

    @property
    def success_rate(self) -> float | None:
        """The share of good executions among the ended ones, 0–1; None if none has ended."""
        ended = self.good_executions + self.bad_executions
        return self.good_executions / ended if ended else None


def sum_executions(entries: Iterable[Execution], measure: HourUnit = HourUnit.GPU) -> UsageTotals:
    """The totals of the executions, whose hours are in ``measure``."""
    totals, of_runs = ExecutionTotals(), ExecutionTotals()
    for entry in entries:
        totals.add(entry)
        if entry.run is not None:
            of_runs.add(entry)
    good, bad, in_flight = totals.gpu_seconds()
    run_good, run_bad, _ = of_runs.gpu_seconds()
    return UsageTotals(
        executions=totals.executions,
        good_executions=totals.good_executions,
        bad_executions=totals.bad_executions,
        completed_epochs=totals.completed,
        goodput=good,
        badput=bad,
        running=in_flight,
        run_good=run_good,
        run_bad=run_bad,
        measure=measure,
    )


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by key, in their original order."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile (the inclusive method)."""
    # Not at the top: it takes ten milliseconds, which most commands need not spend.
    from statistics import quantiles

    if len(values) == 1:
        return values[0], values[0], values[0]
    lower, middle, upper = quantiles(values, n=4, method="inclusive")
    return lower, middle, upper


def percentile(ordered: Sequence[float], share: float) -> float:
    """The quantile at ``share`` (0–1) of sorted values (the inclusive method)."""
    position = share * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)
