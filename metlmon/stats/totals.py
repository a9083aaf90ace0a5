"""GPU-seconds and executions, added up by whatever one asks for: the one place that adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from metlmon.frozen import frozen
from metlmon.snapshot.ledger import HOUR, ExecutionEntry
from metlmon.snapshot.types import GpuHours

K = TypeVar("K")
T = TypeVar("T")


@frozen
class UsageTotals:
    """``executions`` that ended in the window looked at (or are in flight), GPU-seconds by what
    they came to, and ``completed`` epochs: distinct ones whose successful execution is here.
    ``run_good``, ``run_bad``: GPU-seconds of the runs' own nodes alone, side nodes included."""

    executions: int = 0
    good_executions: int = 0
    bad_executions: int = 0
    completed: int = 0
    good: float = 0.0
    bad: float = 0.0
    in_flight: float = 0.0
    run_good: float = 0.0
    run_bad: float = 0.0

    @property
    def total(self) -> float:
        """All GPU-seconds."""
        return self.good + self.bad + self.in_flight

    @property
    def gpu_hours(self) -> GpuHours:
        return GpuHours(self.good / HOUR, self.bad / HOUR, self.in_flight / HOUR)

    @property
    def per_epoch(self) -> float | None:
        """GPU-seconds per epoch: what the runs spent on executions that have ended, bad ones too,
        for each epoch completed by an execution here. None where either is nothing."""
        spent = self.run_good + self.run_bad
        return spent / self.completed if self.completed and spent else None

    @property
    def lost_per_epoch(self) -> float | None:
        """The part of :attr:`per_epoch` that bad executions spent."""
        return None if self.per_epoch is None else self.run_bad / self.completed

    @property
    def success_rate(self) -> float | None:
        """Good ones of all executions that have ended, 0–1; None before the first."""
        ended = self.good_executions + self.bad_executions
        return self.good_executions / ended if ended else None


def tally(entries: Iterable[ExecutionEntry]) -> UsageTotals:
    """The sum of some executions."""
    executions = good_n = bad_n = completed = 0
    seconds = {"good": 0.0, "bad": 0.0, "in_flight": 0.0}
    of_runs = dict(seconds)
    for entry in entries:
        kind = entry.kind
        seconds[kind] += entry.gpu_seconds or 0.0
        if entry.run is not None:
            of_runs[kind] += entry.gpu_seconds or 0.0
        if entry.counted:
            executions += 1
            good_n += kind == "good"
            bad_n += kind == "bad"
            completed += entry.final
    return UsageTotals(
        executions,
        good_n,
        bad_n,
        completed,
        **seconds,
        run_good=of_runs["good"],
        run_bad=of_runs["bad"],
    )


def grouped(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The things by their key, each group in the order they came."""
    groups: dict[K, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


def tallied(
    entries: Iterable[ExecutionEntry], key: Callable[[ExecutionEntry], K]
) -> dict[K, UsageTotals]:
    """A sum for each value of ``key``, the most GPU-seconds first."""
    sums = {name: tally(group) for name, group in grouped(entries, key).items()}
    return dict(
        sorted(sums.items(), key=lambda item: (-item[1].total, -item[1].executions, str(item[0])))
    )
