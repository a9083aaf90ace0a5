"""Epoch durations from completion to completion, and a model of future ones.

A cycle is the time from the completion of the previous epoch (for a run's first epoch: from its
submission) to the completion of an epoch. It includes queue waits, transfers, lost executions and
holds, but not the downtime of the DAG (:mod:`metlmon.stats.downtime`). The cycle in progress and
interrupted ones are censored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from math import log, sqrt
from typing import Final, TypeVar

from msgspec import Struct

from metlmon.model.job_events import JobId
from metlmon.model.states import DONE, Outcome, State
from metlmon.snapshot.ledger import EpochEntry, ExecutionEntry, Ledger
from metlmon.stats.simulation import KaplanMeier, Lifetime

K = TypeVar("K")

HALF_LIFE: Final = 3.0
"""Half-life of a cycle's weight in rounds (a round: one epoch of every run), since queues and
sites change within weeks. Chosen on generated ensembles, where weeks differ; values from 2 to 6
hardly differ (``tests/bench/backtest.py``)."""

USER_VACATE_CODES: Final = frozenset({1004, 1023})
"""Vacate codes of user actions: vacated, removed (``condor_holdcodes.h``)."""

EXECUTION_HALF_LIFE: Final = 2.0
"""As :data:`HALF_LIFE`, for single executions, whose duration depends on code and data."""

PRIOR_WEIGHT: Final = 10.0
"""Weight of the overall mean as a prior: this many own samples count as much."""

MIN_ENDED: Final = 3
"""Minimum ended executions of a group for a curve of its own."""

OUTLIER_FACTOR: Final = 3.0
"""Cycles are capped at this multiple of the weighted median, so that an outage of days is not
multiplied by the epochs left. With 2, estimates are too early where waits vary much; with 5, too
late after an outage."""

PRIOR_LOG_SIGMA: Final = 0.6
"""Prior log-scale standard deviation of a round's mean (a factor of 1.8). Chosen by backtest."""

PRIOR_ROUNDS: Final = 8.0
"""Weight of that prior, in rounds."""


CORRELATED_ROUNDS: Final = 2.5
"""Number of consecutive, correlated rounds that count as one independent round. Chosen by
backtest: with it the intervals hold in four of five cases."""


class Cycle(Struct, frozen=True):
    """The duration of one epoch; unless ``ended`` it is censored.

    A censored cycle is in progress (``in_progress``) or was interrupted (``interrupted``).
    ``end``: the time of completion or interruption.
    """

    run: str
    epoch: int
    target: str | None
    seconds: float
    ended: bool
    end: datetime
    interrupted: bool = False

    @property
    def in_progress(self) -> bool:
        return not self.ended and not self.interrupted


def counted_epochs(ledger: Ledger) -> dict[str, list[EpochEntry]]:
    """The epochs of each run that count, in order."""
    runs: dict[str, list[EpochEntry]] = {run.run: [] for run in ledger.runs}
    for epoch in ledger.epochs:
        if epoch.counts:
            runs.setdefault(epoch.run, []).append(epoch)
    for epochs in runs.values():
        epochs.sort(key=lambda epoch: (epoch.epoch is None, epoch.epoch or 0))
    return runs


def elapsed(ledger: Ledger, start: datetime, end: datetime) -> float:
    """Seconds between two times, never negative; 0 if only one has a time zone."""
    if (start.tzinfo is None) != (end.tzinfo is None):
        return 0.0
    return max(0.0, ledger.seconds_between(start, end))


def naive_time(when: datetime) -> datetime:
    """The time without its zone: a sort key for mixed naive and aware times."""
    return when if when.tzinfo is None else when.replace(tzinfo=None)


def time_after_as_of(ledger: Ledger, seconds: float) -> datetime | None:
    """The local time ``seconds`` after as-of; None if out of range."""
    now = ledger.as_of
    if now is None:
        return None
    try:
        guess = now + timedelta(seconds=round(seconds))
        # Correct for a change of the UTC offset in between.
        return guess + timedelta(seconds=round(seconds) - elapsed(ledger, now, guess))
    except OverflowError:
        return None


DowntimeFunction = Callable[[str, datetime, datetime], float]
"""Returns the seconds of a run's downtime between two times."""


def epoch_durations(
    ledger: Ledger, epochs: Sequence[EpochEntry], downtime_between: DowntimeFunction | None = None
) -> list[Cycle]:
    """The cycles of one run, including the one in progress, without its downtime."""
    now = ledger.as_of
    if now is None:
        return []

    def duration(epoch: EpochEntry, start: datetime, end: datetime) -> float:
        downtime = 0.0 if downtime_between is None else downtime_between(epoch.run, start, end)
        return max(0.0, elapsed(ledger, start, end) - downtime)

    cycles: list[Cycle] = []
    previous: datetime | None = None
    for number, epoch in enumerate(epochs):
        first = epoch.first_submitted
        if epoch.state not in DONE:
            started = previous or first
            if started is not None:
                age = duration(epoch, started, now)
                cycles.append(
                    Cycle(
                        run=epoch.run,
                        epoch=number,
                        target=epoch.target,
                        seconds=age,
                        ended=False,
                        end=now,
                    )
                )
            break
        started, previous = previous or first, epoch.completed
        if started is None or epoch.completed is None or epoch.state is State.SKIPPED:
            continue
        if first is not None and naive_time(started) > naive_time(epoch.completed):
            started = first
        took = duration(epoch, started, epoch.completed)
        if took > 0:
            cycles.append(
                Cycle(
                    run=epoch.run,
                    epoch=number,
                    target=epoch.target,
                    seconds=took,
                    ended=True,
                    end=epoch.completed,
                )
            )
    return cycles


class DurationModel:
    """Predicts epoch durations from the cycles of an ensemble.

    ``curve`` is fitted to all cycles, ``ended_curve`` to the ended ones, and ``ended_mean`` is
    its mean in seconds. Ratios refer to ``ended_mean``, so that a long cycle in progress does
    not count twice.
    """

    def __init__(self, cycles: Iterable[Cycle]) -> None:
        self.cycles = list(cycles)
        finished = sorted(
            (c for c in self.cycles if not c.in_progress), key=lambda cycle: naive_time(cycle.end)
        )
        ended = [cycle for cycle in finished if cycle.ended]
        self.ended_count = len(ended)
        self.round_size = max(1, len({cycle.run for cycle in ended}))
        self._weights: Mapping[int, float] = {
            id(cycle): 0.5 ** ((len(finished) - 1 - i) / self.round_size / HALF_LIFE)
            for i, cycle in enumerate(finished)
        }
        self._ended_cycles = ended
        self._cap = OUTLIER_FACTOR * _weighted_median(
            [(c.seconds, self._weights[id(c)]) for c in ended]
        )
        ended_curve = KaplanMeier.fit(self._samples(ended))
        self.ended_curve = ended_curve
        self.ended_mean, self._ended_sigma = (
            (ended_curve.mean, ended_curve.sigma) if ended_curve is not None else (0.0, 0.0)
        )
        self.curve = KaplanMeier.fit(self._samples(self.cycles))
        self._run_means: dict[str, float] = {}
        self._target_factors: dict[str | None, float] = {}
        self._by_run = _grouped(self.cycles, lambda cycle: cycle.run)
        self._by_target = _grouped(self.cycles, lambda cycle: cycle.target)

    def _samples(self, cycles: Iterable[Cycle]) -> list[Lifetime]:
        cap, weights = self._cap or float("inf"), self._weights
        return [
            Lifetime(c.seconds if c.seconds < cap else cap, c.ended, weights.get(id(c), 1.0))
            for c in cycles
        ]

    def _capped(self, cycle: Cycle) -> float:
        return min(cycle.seconds, self._cap) if self._cap else cycle.seconds

    @property
    def mean(self) -> float:
        """The expected duration of a cycle in seconds."""
        return self.curve.mean if self.curve is not None else 0.0

    def expected_seconds(self, run: str, target: str | None) -> float:
        """The expected duration of a cycle of this run at this target, in seconds."""
        return self._run_mean(run) * self._target_factor(target)

    def _run_mean(self, run: str) -> float:
        if run not in self._run_means:
            self._run_means[run] = self._shrunk_mean(self._by_run.get(run, ()), self.mean)
        return self._run_means[run]

    def _target_factor(self, target: str | None) -> float:
        """The target's mean relative to the overall mean, from ended cycles only."""
        if target is None or not self.ended_mean:
            return 1.0
        if target not in self._target_factors:
            at_target = [cycle for cycle in self._by_target.get(target, ()) if cycle.ended]
            self._target_factors[target] = (
                self._shrunk_mean(at_target, self.ended_mean) / self.ended_mean
            )
        return self._target_factors[target]

    def _shrunk_mean(self, cycles: Iterable[Cycle], prior_mean: float) -> float:
        """The mean of the cycles, shrunk towards a prior; the fewer cycles, the closer.

        A cycle in progress counts once it exceeds that mean.
        """
        total, weight = PRIOR_WEIGHT * prior_mean, PRIOR_WEIGHT
        cycles = list(cycles)
        for cycle in cycles:
            if cycle.ended:
                total += self._weights[id(cycle)] * self._capped(cycle)
                weight += self._weights[id(cycle)]
        for cycle in cycles:
            if cycle.in_progress and self._capped(cycle) > total / weight:
                total, weight = total + self._capped(cycle), weight + 1
        return total / weight

    @cached_property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return -(-self.ended_count // self.round_size)

    def mean_log_sigma(self, epochs: int) -> float:
        """The log-scale standard deviation of the mean of the next ``epochs`` epochs.

        It combines the uncertainty of the past and of the future mean. Consecutive rounds are
        correlated.
        """
        return self.round_log_sigma * sqrt(
            CORRELATED_ROUNDS * (1 / max(1, self.rounds) + 1 / max(1, epochs))
        )

    @cached_property
    def round_log_sigma(self) -> float:
        """The log-scale standard deviation of the means of single rounds."""
        means = [
            sum(self._capped(cycle) for cycle in cycles) / len(cycles)
            for cycles in (
                self._ended_cycles[i : i + self.round_size]
                for i in range(0, self.ended_count, self.round_size)
            )
        ]
        if not means:
            return PRIOR_LOG_SIGMA
        mean_log = sum(log(mean) for mean in means) / len(means)
        squares = sum((log(mean) - mean_log) ** 2 for mean in means)
        return float(
            ((PRIOR_ROUNDS * PRIOR_LOG_SIGMA**2 + squares) / (PRIOR_ROUNDS + len(means))) ** 0.5
        )

    @cached_property
    def relative_sigma(self) -> float:
        """The standard deviation of one cycle relative to the mean."""
        return min(3.0, self._ended_sigma / self.ended_mean) if self.ended_mean else 1.0


def _weighted_median(weighted: Iterable[tuple[float, float]]) -> float:
    """The median of (value, weight) pairs; 0 if there are none."""
    ordered = sorted(weighted)
    half, cumulative = sum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        cumulative += weight
        if cumulative >= half:
            return value
    return 0.0


def _grouped(cycles: Iterable[Cycle], key: Callable[[Cycle], K]) -> dict[K, list[Cycle]]:
    groups: dict[K, list[Cycle]] = {}
    for cycle in cycles:
        groups.setdefault(key(cycle), []).append(cycle)
    return groups


ITS_RUN: Final = "its run"
ALL: Final = "all"

GROUPINGS: Final[Mapping[str, Callable[[ExecutionEntry], tuple[object, ...]]]] = {
    "this site and GPU": lambda entry: (entry.site, entry.gpu, entry.gpus),
    "this GPU": lambda entry: (entry.gpu, entry.gpus),
    "this GPU model": lambda entry: (entry.gpu,),
    ITS_RUN: lambda entry: (entry.run,),
    ALL: lambda entry: (),
}
"""Groupings of similar executions, the most specific first."""


class ExecutionDurations:
    """Durations of single training executions, grouped by where they ran."""

    def __init__(self, ledger: Ledger) -> None:
        hidden = {job for epoch in ledger.epochs if epoch.hidden for job in epoch.jobs}
        self.in_flight: dict[JobId, ExecutionEntry] = {}
        self._samples: list[tuple[ExecutionEntry, Lifetime]] = []
        self._groups: dict[str, dict[tuple[object, ...], list[Lifetime]]] = {}
        self._curves: dict[tuple[str, tuple[object, ...]], KaplanMeier | None] = {}
        self._good: list[float] = []
        self._lost: list[float] = []
        entries = [e for e in ledger.executions if e.training and not e.dagman]
        weights = _recency_weights(ledger, entries)
        in_flight, removed = Outcome.IN_FLIGHT, Outcome.REMOVED
        for entry, weight in zip(entries, weights, strict=True):
            if entry.outcome is in_flight:
                self.in_flight[entry.job] = entry
            elif entry.outcome is not removed and entry.code not in USER_VACATE_CODES:
                # Executions ended by a user say nothing about reliability.
                (self._good if entry.final else self._lost).append(entry.seconds)
            if entry.job not in hidden:
                self._samples.append((entry, Lifetime(entry.seconds, entry.final, weight)))
        self._good.sort()
        self._lost.sort()

    def curve(self, entry: ExecutionEntry | None, run: str) -> tuple[KaplanMeier | None, str]:
        """The curve of the most similar executions, and the label of their grouping.

        Falls back from site, GPU model and GPU count to any site, any count, the run, and all.
        """
        for label, group in GROUPINGS.items():
            if entry is not None:
                key = group(entry)
            elif label == ITS_RUN:
                key = (run,)
            elif label == ALL:
                key = ()
            else:
                continue
            if (label, key) not in self._curves:
                self._curves[label, key] = KaplanMeier.fit(
                    self._samples_by_group(label).get(key, ())
                )
            curve = self._curves[label, key]
            if curve is not None and (curve.events >= MIN_ENDED or label == ALL):
                return curve, label
        return None, ""

    def _samples_by_group(self, label: str) -> Mapping[tuple[object, ...], Sequence[Lifetime]]:
        """The samples of one grouping, built on first use."""
        groups = self._groups.get(label)
        if groups is None:
            groups, group = {}, GROUPINGS[label]
            for entry, sample in self._samples:
                groups.setdefault(group(entry), []).append(sample)
            self._groups[label] = groups
        return groups

    def loss_probability(self, age: float) -> float:
        """The probability that an execution of this age is lost; 0.1 without samples."""
        good = len(self._good) - bisect_right(self._good, age)
        lost = len(self._lost) - bisect_right(self._lost, age)
        return (lost + 0.2) / (good + lost + 2.0)


def _recency_weights(ledger: Ledger, entries: Sequence[ExecutionEntry]) -> list[float]:
    """The weight of each execution, decreasing with age."""
    now = ledger.as_of
    if now is None:
        return [1.0] * len(entries)
    runs = max(1, len({entry.run for entry in entries if entry.final}))
    ends = [naive_time(entry.end or now) for entry in entries]
    weights = [1.0] * len(entries)
    newest_first = sorted(range(len(entries)), key=lambda i: ends[i], reverse=True)
    for rank, i in enumerate(newest_first):
        weights[i] = float(0.5 ** (rank / runs / EXECUTION_HALF_LIFE))
    return weights
