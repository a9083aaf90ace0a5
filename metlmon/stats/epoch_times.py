"""Epoch durations between completions, a model of future ones, and downtime.

A cycle is the time from the completion of the previous epoch (for a run's first epoch: from its
submission) to the completion of an epoch. It includes queue waits, transfers, lost executions and
holds, but not the downtime of the DAG (:class:`Downtime`). The cycle in progress and
interrupted ones are censored.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from heapq import heappop, heappush
from itertools import islice, pairwise
from math import log, sqrt
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from metlmon.model.job_events import JobId
from metlmon.model.states import DONE, TERMINAL, Outcome, State
from metlmon.snapshot.records import DagRow, Epoch, Execution, Job, Ledger
from metlmon.stats.causes import USER_VACATE_CODES
from metlmon.stats.simulation import KaplanMeier, Lifetime
from metlmon.stats.totals import group_by

C = TypeVar("C", float, datetime)

HALF_LIFE: Final = 3.0
"""Half-life of a cycle's weight in rounds (a round: one epoch of every run), since queues and
sites change within weeks. Chosen on generated ensembles, where weeks differ; values from 2 to 6
hardly differ (``tests/bench/backtest.py``)."""

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

LATENCY: Final = 600.0
"""Seconds between two jobs of one DAGMan run, at most; a PRE or POST script takes minutes."""

REMOVAL_SPREAD: Final = timedelta(minutes=2)
"""Time within which all jobs of a removed DAG leave the queue. The first jobs of the next DAGMan
run may be submitted that long before the last one has left."""

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


def counted_epochs(ledger: Ledger) -> dict[str, list[Epoch]]:
    """The epochs of each run that count, in order."""
    runs: dict[str, list[Epoch]] = {run.key: [] for run in ledger.runs}
    for epoch in ledger.epochs:
        if epoch.counts:
            runs.setdefault(epoch.run, []).append(epoch)
    for epochs in runs.values():
        epochs.sort(key=lambda epoch: (epoch.epoch is None, epoch.epoch or 0))
    return runs


def time_after_as_of(ledger: Ledger, seconds: float) -> datetime | None:
    """The local time ``seconds`` after as-of; None if out of range."""
    now = ledger.as_of
    if now is None:
        return None
    try:
        guess = now + timedelta(seconds=round(seconds))
        # Correct for a change of the UTC offset in between.
        return guess + timedelta(seconds=round(seconds) - ledger.seconds_between(now, guess))
    except OverflowError:
        return None


DowntimeFunction = Callable[[str, datetime, datetime], float]
"""Returns the seconds of a run's downtime between two times."""


def epoch_durations(
    ledger: Ledger, epochs: Sequence[Epoch], downtime_between: DowntimeFunction | None = None
) -> list[Cycle]:
    """The cycles of one run, including the one in progress, without its downtime."""
    now = ledger.as_of
    if now is None:
        return []

    cycles: list[Cycle] = []

    def add_cycle(number: int, epoch: Epoch, start: datetime, end: datetime) -> None:
        seconds = ledger.seconds_between(start, end)
        if downtime_between is not None:
            seconds = max(0.0, seconds - downtime_between(epoch.run, start, end))
        ended = epoch.state in DONE
        if seconds > 0 or not ended:
            cycles.append(
                Cycle(
                    run=epoch.run,
                    epoch=number,
                    target=epoch.target,
                    seconds=seconds,
                    ended=ended,
                    end=end,
                )
            )

    previous: datetime | None = None
    for number, epoch in enumerate(epochs):
        first = epoch.first_submitted
        started = previous or first
        if epoch.state not in DONE:
            if started is not None:
                add_cycle(number, epoch, started, now)
            break
        previous = epoch.completed
        if started is None or epoch.completed is None or epoch.state is State.SKIPPED:
            continue
        if first is not None and started > epoch.completed:
            started = first
        add_cycle(number, epoch, started, epoch.completed)
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
            (c for c in self.cycles if not c.in_progress), key=lambda cycle: cycle.end
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
        self._by_run = group_by(self.cycles, lambda cycle: cycle.run)
        self._by_target = group_by(self.cycles, lambda cycle: cycle.target)

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


ITS_RUN: Final = "its run"
ALL: Final = "all"

GroupKey: TypeAlias = tuple[object, ...]
_Groups: TypeAlias = dict[GroupKey, list[tuple[Execution, Lifetime]]]

GROUPINGS: Final[Mapping[str, Callable[[Execution], GroupKey]]] = {
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
        self.in_flight: dict[JobId, Execution] = {}
        self._samples: list[tuple[Execution, Lifetime]] = []
        self._groups: dict[str, dict[tuple[object, ...], list[tuple[Execution, Lifetime]]]] = {}
        self._curves: dict[tuple[str, GroupKey], KaplanMeier | None] = {}
        self._good: list[float] = []
        self._lost: list[float] = []
        entries = [e for e in ledger.executions if e.training and not e.at_access_point]
        weights = _recency_weights(ledger, entries)
        in_flight, removed = Outcome.IN_FLIGHT, Outcome.REMOVED
        for entry, weight in zip(entries, weights, strict=True):
            if entry.outcome is in_flight:
                self.in_flight[entry.job] = entry
            elif entry.outcome is not removed and entry.code not in USER_VACATE_CODES:
                # Executions ended by a user say nothing about reliability.
                if entry.final:
                    self._good.append(entry.seconds)
                elif entry.checkpoint is None:
                    self._lost.append(entry.seconds)
            if entry.job not in hidden and (entry.final or entry.checkpoint is None):
                # What was stored is in the training of the execution that went on from it.
                self._samples.append((entry, Lifetime(entry.trained, entry.final, weight)))
        self._good.sort()
        self._lost.sort()

    def curve(self, entry: Execution | None, run: str) -> tuple[KaplanMeier | None, str]:
        """The curve of the most similar executions, and the label of their grouping.

        Falls back from site, GPU model and GPU count to any site, any count, the run, and all.
        """
        for label, group in GROUPINGS.items():
            if entry is not None:
                key = group(entry)
            elif label in (ITS_RUN, ALL):
                key = (run,) if label == ITS_RUN else ()
            else:
                continue
            if label not in self._groups:
                self._groups[label] = self._group_samples(group)
            if (label, key) not in self._curves:
                samples = self._groups[label].get(key, ())
                self._curves[label, key] = KaplanMeier.fit(lifetime for _, lifetime in samples)
            curve = self._curves[label, key]
            if curve is not None and (curve.events >= MIN_ENDED or label == ALL):
                return curve, label
        return None, ""

    def _group_samples(self, key: Callable[[Execution], GroupKey]) -> _Groups:
        return group_by(self._samples, lambda sample: key(sample[0]))

    def loss_probability(self, age: float) -> float:
        """The probability that an execution of this age is lost; 0.1 without samples."""
        good = len(self._good) - bisect_right(self._good, age)
        lost = len(self._lost) - bisect_right(self._lost, age)
        return (lost + 0.2) / (good + lost + 2.0)


def _recency_weights(ledger: Ledger, entries: Sequence[Execution]) -> list[float]:
    """The weight of each execution, decreasing with age."""
    now = ledger.as_of
    if now is None:
        return [1.0] * len(entries)
    runs = max(1, len({entry.run for entry in entries if entry.final}))
    ends = [entry.end or now for entry in entries]
    weights = [1.0] * len(entries)
    newest_first = sorted(range(len(entries)), key=lambda i: ends[i], reverse=True)
    for rank, i in enumerate(newest_first):
        weights[i] = float(0.5 ** (rank / runs / EXECUTION_HALF_LIFE))
    return weights


# --- downtime ---------------------------------------------------------------------------------

DowntimeInterval = tuple[datetime, datetime]


class Downtime:
    """The downtime intervals of all runs of a ledger.

    Downtime does not count as epoch duration. A run is down while its DAG has no job in the queue
    between two DAGMan runs, and from the failure or removal of one of its own jobs until a later
    DAGMan run submits the next. The work of a job that was removed with its DAG is lost and has to
    be repeated: that time counts as downtime, too, and additionally as an interrupted (censored)
    epoch. Held, idle and transferring jobs are in the queue: a hold of the whole ensemble is no
    downtime, and neither is a pool without matches for days.

    The starts of DAGMan runs come from DAGMan's files. Without these, one is inferred after a
    simultaneous removal of all jobs, and after the queue was empty for longer than :data:`LATENCY`.
    """

    def __init__(self, ledger: Ledger, dags: Iterable[DagRow]) -> None:
        self._ledger = ledger
        submissions = {dag.file: dag.submissions for dag in dags}
        jobs = sorted((job for job in ledger.jobs if job.submitted is not None), key=_submitted)
        self._jobs = group_by(jobs, lambda job: job.dag)
        self._dagman_starts = {
            dag: list(submissions.get(dag or "", ())) or _infer_dagman_starts(dag_jobs)
            for dag, dag_jobs in self._jobs.items()
        }
        self._dag_intervals: dict[frozenset[str | None], list[DowntimeInterval]] = {}
        self._run_intervals: dict[str, list[DowntimeInterval]] = {}
        self._lost_work: dict[str, list[tuple[DowntimeInterval, Job]]] = {}
        for run, run_jobs in group_by(jobs, lambda job: job.run).items():
            if run is not None:
                self._add(run, run_jobs)

    def seconds_between(self, run: str, start: datetime, end: datetime) -> float:
        """Seconds of the run's downtime between two times."""
        intervals = self._run_intervals.get(run)
        if not intervals:
            return 0.0
        # The intervals do not overlap, so that their ends are sorted, too.
        first = bisect_right(intervals, start, key=itemgetter(1))
        last = bisect_left(intervals, end, first, key=itemgetter(0))
        return sum(
            self._ledger.seconds_between(max(down, start), min(up, end))
            for down, up in intervals[first:last]
        )

    def interrupted_cycles(self, run: str) -> list[Cycle]:
        """The epochs of the run that were interrupted by a removal of its DAG."""
        return [
            Cycle(
                run=run,
                epoch=job.epoch or 0,
                target=job.target,
                seconds=self._ledger.seconds_between(*lost),
                ended=False,
                end=lost[1],
                interrupted=True,
            )
            for lost, job in self._lost_work.get(run, ())
            if job.training
        ]

    def _add(self, run: str, jobs: Sequence[Job]) -> None:
        dags = frozenset(job.dag for job in jobs)
        dagman_starts = sorted(start for dag in dags for start in self._dagman_starts[dag])
        if dags not in self._dag_intervals:
            dag_jobs = [job for dag in dags for job in self._jobs[dag]]
            dag_jobs.sort(key=_submitted)
            self._dag_intervals[dags] = [
                gap for gap, _ in _gaps(dag_jobs) if _has_dagman_start(dagman_starts, *gap)
            ]
        own = [
            gap
            for gap, last_job in _gaps(jobs)
            if last_job.state is not State.COMPLETED and _has_dagman_start(dagman_starts, *gap)
        ]
        self._lost_work[run] = [
            ((job.submitted, left), job)
            for job, next_job in pairwise(jobs)
            if job.state is State.REMOVED
            and job.submitted is not None
            and (left := _queue_exit(job)) is not None
            and _has_dagman_start(dagman_starts, job.submitted, next_job.submitted or left)
        ]
        lost = [interval for interval, _ in self._lost_work[run]]
        self._run_intervals[run] = merge_intervals([*self._dag_intervals[dags], *own, *lost])


def _infer_dagman_starts(jobs: Sequence[Job]) -> list[datetime]:
    """Infer the starts of DAGMan runs from a DAG's jobs in order of submission."""
    dagman_starts = [
        end for (start, end), _ in _gaps(jobs) if (end - start).total_seconds() > LATENCY
    ]
    removed = [
        (left, job)
        for job in jobs
        if job.state is State.REMOVED and (left := _queue_exit(job)) is not None
    ]
    removed.sort(key=itemgetter(0))
    # End times of the jobs submitted so far; the times compared with them are ascending.
    end_times: list[datetime] = []
    submitted_count = index = 0
    while index < len(removed):
        first = removed[index][0]
        next_index = bisect_right(removed, first + REMOVAL_SPREAD, index, key=itemgetter(0))
        group = [job for _, job in removed[index:next_index]]
        index = next_index
        new_count = bisect_right(jobs, first - REMOVAL_SPREAD, submitted_count, key=_submitted)
        for job in jobs[submitted_count:new_count]:
            heappush(end_times, (_queue_exit(job) or datetime.max))
        submitted_count = new_count
        while end_times and end_times[0] <= first:
            heappop(end_times)
        group_count = sum(
            _submitted(job) <= first - REMOVAL_SPREAD and (_queue_exit(job) or datetime.max) > first
            for job in group
        )
        if len(end_times) > group_count:
            continue
        ids = {job.job for job in group}
        next_job = next((job for job in islice(jobs, new_count, None) if job.job not in ids), None)
        if next_job is not None:
            dagman_starts.append(_submitted(next_job))
    return sorted(dagman_starts)


def _gaps(jobs: Sequence[Job]) -> list[tuple[DowntimeInterval, Job]]:
    """Intervals without a job in the queue, each with the last job before it."""
    gaps: list[tuple[DowntimeInterval, Job]] = []
    last: tuple[datetime, Job] | None = None
    for job in jobs:
        start = _submitted(job)
        if last is not None and last[0] < start:
            gaps.append(((last[0], start), last[1]))
        left = _queue_exit(job)
        if left is None:
            break
        if last is None or left > last[0]:
            last = left, job
    return gaps


def _has_dagman_start(dagman_starts: Sequence[datetime], start: datetime, end: datetime) -> bool:
    """Whether a DAGMan run starts after ``start`` and not after ``end``."""
    index = bisect_right(dagman_starts, start)
    return index < len(dagman_starts) and dagman_starts[index] <= end


def _submitted(job: Job) -> datetime:
    assert job.submitted is not None
    return job.submitted


def _queue_exit(job: Job) -> datetime | None:
    """When the job left the queue; None if it is in the queue."""
    if job.ended is None and job.state in TERMINAL and job.states:
        return job.states[-1][0]
    return job.ended


def merge_intervals(intervals: Iterable[tuple[C, C]]) -> list[tuple[C, C]]:
    """Merge overlapping intervals: no second counts twice; the result is sorted."""
    merged: list[tuple[C, C]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
