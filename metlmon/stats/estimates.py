"""Estimated remaining time of epochs, runs and the ensemble, with intervals.

A *cycle* is the time from the completion of the previous epoch (for a run's first epoch: from its
submission) to the completion of an epoch. It includes queue waits, transfers, lost executions and
holds, but not the downtime of the DAG (:class:`Downtime`). The cycle in progress and
interrupted ones are censored.

The median comes from the ensemble's own history: the epochs
left times the duration of a cycle of the run, plus the remaining time of the current epoch given
its age. The interval comes from Monte Carlo trials with common random numbers: the same history
gives the same result, and a second more changes it by a second. In each trial all runs share one
factor (sites and queues are slow for all runs at once) and have a random part of their own. The
interval should hold in four of five cases; ``metlmon estimate --backtest`` measures it.

Short histories fall back to larger groups: an execution from its site, GPU model and GPU count to
any site, any count, its run, all; the mean cycle of a run or target is shrunk towards the overall
mean, depending on the number of cycles.

Runs that share slots wait for each other (:mod:`metlmon.stats.slots`): these waits are in no cycle,
and come from a queue that is simulated with the epochs left.

Estimates assume that the DAG keeps running: downtime between a removal and the next submission is
neither in the history nor predicted. Epochs per day are a count that includes downtime.

Where runs do not wait for each other, an additional epoch in progress, of any age, never makes a
run's estimate earlier. For an interrupted one this holds for the survival curve
(:mod:`metlmon.stats.simulation`), not strictly for estimates, since older cycles lose weight.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain, islice, pairwise
from math import exp, inf, log, sqrt
from operator import itemgetter
from statistics import median
from typing import ClassVar, Final, NamedTuple, TypeAlias, TypeVar
from zlib import crc32

from msgspec import Struct

from metlmon.jobfiles.records import Streamed
from metlmon.live.feed import StatsInput
from metlmon.model.job_events import NodeKey
from metlmon.model.states import ACTIVE, DONE, DagState, Outcome, State
from metlmon.snapshot.records import DagRow, Epoch, Execution, Job, Ledger, Run, job_key
from metlmon.stats.causes import USER_VACATE_CODES
from metlmon.stats.simulation import (
    TRIALS,
    UNIFORM,
    Z_SCORES,
    KaplanMeier,
    Lifetime,
    gamma_quantile,
)
from metlmon.stats.slots import QueuedRun, RunIntervals, SlotUse, simulate_queue
from metlmon.stats.totals import group_by, quartiles
from metlmon.text.record_json import Nullable

# --- cycles ------------------------------------------------------------------------------------


C = TypeVar("C", float, datetime)

HALF_LIFE: Final = 3.0
"""Half-life of a cycle's weight in rounds (a round: one epoch of every run), since queues and
sites change within weeks. Chosen on generated ensembles, where weeks differ; values from 2 to 6
hardly differ."""

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

    key: str
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
            runs.setdefault(epoch.key, []).append(epoch)
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


def epoch_durations(
    ledger: Ledger, epochs: Sequence[Epoch], pauses: RunIntervals | None = None
) -> list[Cycle]:
    """The cycles of one run, including the one in progress, without its pauses."""
    now = ledger.as_of
    if now is None:
        return []
    cycles: list[Cycle] = []
    previous: datetime | None = None
    for epoch in epochs:
        first, is_done = epoch.first_submitted, epoch.state in DONE
        start, end = previous or first, epoch.completed if is_done else now
        if start is not None and end is not None and epoch.state is not State.SKIPPED:
            if is_done and first is not None and start > end:
                start = first
            seconds = ledger.seconds_between(start, end)
            if pauses is not None:
                seconds = max(0.0, seconds - pauses.seconds_between(epoch.key, start, end))
            if seconds > 0 or not is_done:
                cycles.append(
                    Cycle(
                        key=epoch.key,
                        target=epoch.target,
                        seconds=seconds,
                        ended=is_done,
                        end=end,
                    )
                )
        if not is_done:
            break
        previous = epoch.completed
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
        self.round_size = max(1, len({cycle.key for cycle in ended}))
        self._weights: Mapping[int, float] = {
            id(cycle): 0.5 ** ((len(finished) - 1 - i) / self.round_size / HALF_LIFE)
            for i, cycle in enumerate(finished)
        }
        self._ended_cycles = ended
        self._cap = OUTLIER_FACTOR * _weighted_median(
            [(c.seconds, self._weights[id(c)]) for c in ended]
        )
        self._cap = self._cap or inf
        ended_curve = KaplanMeier.fit(self._samples(ended))
        self.ended_curve = ended_curve
        self.ended_mean, self._ended_sigma = (
            (ended_curve.mean, ended_curve.sigma) if ended_curve is not None else (0.0, 0.0)
        )
        self.curve = KaplanMeier.fit(self._samples(self.cycles))
        self._mean = self.curve.mean if self.curve is not None else 0.0
        self._run_means = {
            run: self._shrunk_mean(own, self._mean)
            for run, own in group_by(self.cycles, lambda cycle: cycle.key).items()
        }
        at_targets = group_by((c for c in self.cycles if c.ended), lambda cycle: cycle.target)
        self._target_factors: dict[str | None, float] = {
            target: self._shrunk_mean(own, self.ended_mean) / self.ended_mean
            for target, own in at_targets.items()
            if target is not None and self.ended_mean
        }

    def _samples(self, cycles: Iterable[Cycle]) -> list[Lifetime]:
        weights = self._weights
        return [Lifetime(self._capped(c), c.ended, weights.get(id(c), 1.0)) for c in cycles]

    def _capped(self, cycle: Cycle) -> float:
        return min(cycle.seconds, self._cap)

    def expected_seconds(self, run: str, target: str | None) -> float:
        """The expected duration of a cycle of this run at this target, in seconds.

        The mean of the run times that of the target relative to the overall mean.
        """
        return self._run_means.get(run, self._mean) * self._target_factors.get(target, 1.0)

    def _shrunk_mean(self, cycles: Sequence[Cycle], prior_mean: float) -> float:
        """The mean of the cycles, shrunk towards a prior; the fewer cycles, the closer.

        A cycle in progress counts once it exceeds that mean.
        """
        total, weight = PRIOR_WEIGHT * prior_mean, PRIOR_WEIGHT
        for cycle in cycles:
            if cycle.ended:
                total += self._weights[id(cycle)] * self._capped(cycle)
                weight += self._weights[id(cycle)]
        for cycle in cycles:
            if cycle.in_progress and self._capped(cycle) > total / weight:
                total, weight = total + self._capped(cycle), weight + 1
        return total / weight

    def mean_log_sigma(self, epochs: int) -> float:
        """The log-scale standard deviation of the mean of the next ``epochs`` epochs.

        It combines the uncertainty of the past and of the future mean. Consecutive rounds are
        correlated.
        """
        rounds = -(-self.ended_count // self.round_size)
        return self._round_log_sigma * sqrt(
            CORRELATED_ROUNDS * (1 / max(1, rounds) + 1 / max(1, epochs))
        )

    @cached_property
    def _round_log_sigma(self) -> float:
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

    @property
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

GROUPINGS: Final[Mapping[str, Callable[[Execution], GroupKey]]] = {
    "this site and GPU": lambda entry: (entry.site, entry.gpu, entry.gpus),
    "this GPU": lambda entry: (entry.gpu, entry.gpus),
    "this GPU model": lambda entry: (entry.gpu,),
    ITS_RUN: lambda entry: (entry.key,),
    ALL: lambda entry: (),
}
"""Groupings of similar executions, the most specific first."""


class ExecutionDurations:
    """Durations of single training executions, grouped by where they ran."""

    def __init__(self, ledger: Ledger) -> None:
        hidden, entries = ledger.hidden_nodes, ledger.trainings
        self.in_flight: dict[NodeKey | None, Execution] = {}
        """The newest one of each node."""
        self._samples: list[tuple[Execution, Lifetime]] = []
        self._groups: dict[str, dict[GroupKey, list[tuple[Execution, Lifetime]]]] = {}
        self._curves: dict[tuple[str, GroupKey], KaplanMeier | None] = {}
        self._good: list[float] = []
        self._lost: list[float] = []
        weights = _recency_weights(ledger, entries)
        in_flight, removed = Outcome.IN_FLIGHT, Outcome.REMOVED
        for entry, weight in zip(entries, weights, strict=True):
            if entry.outcome is in_flight:
                self.in_flight[entry.node_key] = entry
            elif entry.outcome is not removed and entry.code not in USER_VACATE_CODES:
                # Executions ended by a user say nothing about reliability.
                if entry.final:
                    self._good.append(entry.seconds)
                elif entry.checkpoint is None:
                    self._lost.append(entry.seconds)
            if entry.node_key not in hidden and (entry.final or entry.checkpoint is None):
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
                self._groups[label] = group_by(self._samples, lambda each: group(each[0]))  # noqa: B023
            if (label, key) not in self._curves:
                samples = self._groups[label].get(key, ())
                self._curves[label, key] = KaplanMeier.fit(lifetime for _, lifetime in samples)
            curve = self._curves[label, key]
            if curve is not None and (curve.events >= MIN_ENDED or label == ALL):
                return curve, label
        return None, ""

    def loss_probability(self, age: float) -> float:
        """The probability that an execution of this age is lost; 0.1 without samples."""
        good = len(self._good) - bisect_right(self._good, age)
        lost = len(self._lost) - bisect_right(self._lost, age)
        return (lost + 0.2) / (good + lost + 2.0)


def _recency_weights(ledger: Ledger, entries: Sequence[Execution]) -> list[float]:
    """The weight of each execution, decreasing with age."""
    now = ledger.as_of
    weights = [1.0] * len(entries)
    if now is None:
        return weights
    runs = max(1, len({entry.key for entry in entries if entry.final}))
    ends = [entry.end or now for entry in entries]
    newest_first = sorted(range(len(entries)), key=lambda i: ends[i], reverse=True)
    for rank, i in enumerate(newest_first):
        weights[i] = float(0.5 ** (rank / runs / EXECUTION_HALF_LIFE))
    return weights


# --- downtime ---------------------------------------------------------------------------------

DowntimeInterval = tuple[datetime, datetime]


class Downtime(RunIntervals):
    """The downtime intervals of all runs of a ledger.

    Downtime does not count as epoch duration. A run is down while its DAG has no job in the queue
    between two DAGMan runs, and from the failure or removal of one of its own jobs until a later
    DAGMan run submits the next. The work of a job that was removed with its DAG is lost and has to
    be repeated: that time counts as downtime, too, and additionally as an interrupted (censored)
    epoch. Held, idle and transferring jobs are in the queue: neither a hold of
    the whole ensemble nor days without a match are downtime. A DAG that is started again from
    scratch, or another DAG, repeats epochs that were done: all time before that is downtime of
    theirs.

    The starts of DAGMan runs come from DAGMan's files. Without these, one is inferred after a
    simultaneous removal of all jobs, and after the queue was empty for longer than :data:`LATENCY`.
    """

    def __init__(self, ledger: Ledger, dags: Iterable[DagRow]) -> None:
        super().__init__(ledger)
        submissions = {dag.file: dag.submissions for dag in dags}
        jobs = sorted((job for job in ledger.jobs if job.submitted is not None), key=_submitted)
        self._jobs = group_by(jobs, lambda job: job.dag)
        self._dagman_starts = {
            dag: list(submissions.get(dag or "", ())) or _infer_dagman_starts(dag_jobs)
            for dag, dag_jobs in self._jobs.items()
        }
        self._dag_intervals: dict[frozenset[str | None], list[DowntimeInterval]] = {}
        self._lost_work: dict[str, list[tuple[DowntimeInterval, Job]]] = {}
        self._done = {epoch.node_key for epoch in ledger.epochs if epoch.state in DONE}
        for run, run_jobs in group_by(jobs, lambda job: job.key).items():
            if run is not None:
                self._add(run, run_jobs)

    def interrupted_cycles(self, run: str) -> list[Cycle]:
        """The epochs of the run that were interrupted by a removal of its DAG."""
        return [
            Cycle(
                key=run,
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
            and (left := job.ended) is not None
            and _has_dagman_start(dagman_starts, job.submitted, next_job.submitted or left)
        ]
        lost = [interval for interval, _ in self._lost_work[run]]
        lost += self._repeated([job for job in jobs if job.training], dagman_starts)
        self.intervals[run] = merge_intervals([*self._dag_intervals[dags], *own, *lost])

    def _repeated(
        self, jobs: Sequence[Job], dagman_starts: Sequence[datetime]
    ) -> Iterator[DowntimeInterval]:
        """Times from an epoch's first job to the one with which a later DAGMan trains it again."""
        first: dict[int, datetime] = {}
        last: dict[int, Job] = {}
        for job in jobs:
            number, submitted = job.epoch or 0, _submitted(job)
            done = last.get(number)
            if done is not None and done.state is State.COMPLETED:
                # An epoch that another one followed was done; else its POST script may have failed.
                is_again = max(last) > number and _has_dagman_start(
                    dagman_starts, _submitted(done), submitted
                )
                is_of_other_dag = done.node_key != job.node_key and done.node_key in self._done
                if is_again or is_of_other_dag:
                    yield first[number], submitted
                    first, last = {}, {}
            first.setdefault(number, submitted)
            last[number] = job


def _infer_dagman_starts(jobs: Sequence[Job]) -> list[datetime]:
    """Infer the starts of DAGMan runs from a DAG's jobs in order of submission."""
    dagman_starts = [
        end for (start, end), _ in _gaps(jobs) if (end - start).total_seconds() > LATENCY
    ]
    removed = [
        (left, job)
        for job in jobs
        if job.state is State.REMOVED and (left := job.ended) is not None
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
            heappush(end_times, (job.ended or datetime.max))
        submitted_count = new_count
        while end_times and end_times[0] <= first:
            heappop(end_times)
        group_count = sum(
            _submitted(job) <= first - REMOVAL_SPREAD and (job.ended or datetime.max) > first
            for job in group
        )
        if len(end_times) > group_count:
            continue
        keys = set(map(job_key, group))
        later = (job for job in islice(jobs, new_count, None) if job_key(job) not in keys)
        next_job = next(later, None)
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
        if job.ended is None:
            break
        if last is None or job.ended > last[0]:
            last = job.ended, job
    return gaps


def _has_dagman_start(dagman_starts: Sequence[datetime], start: datetime, end: datetime) -> bool:
    """Whether a DAGMan run starts after ``start`` and not after ``end``."""
    index = bisect_right(dagman_starts, start)
    return index < len(dagman_starts) and dagman_starts[index] <= end


def _submitted(job: Job) -> datetime:
    assert job.submitted is not None
    return job.submitted


def merge_intervals(intervals: Iterable[tuple[C, C]]) -> list[tuple[C, C]]:
    """Merge overlapping intervals: no second counts twice; the result is sorted."""
    merged: list[tuple[C, C]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


# --- forecasts ---------------------------------------------------------------------------------


LOW: Final = 0.1
HIGH: Final = 0.9
"""Quantiles that bound the reported 80 % interval."""

STREAM_LOG_SIGMA: Final = 0.1
"""Log-scale standard deviation of a progress line's remaining time: rates vary within an epoch,
and validation follows it."""

RATE_SECONDS: Final = 7 * 86400.0
"""Window of the epoch rate, at most since the start: one week, so that it has a weekend."""

NO_DAG_FILE: Final = "no DAG file: later epochs are not known"
NO_ORDER: Final = "no ETA for jobs without a DAG"
"""Reasons why a run known only from a log has no estimate."""

NOT_SUBMITTED: Final = ((2**62, 0),)
"""Sort key in place of a job: after all submitted ones."""

RECENT_CYCLES: Final = 2.0
"""Without DAGMan files, a run with no job in the queue for this many cycles is inactive."""


GOOD_RATIO: Final = 2.0
ROUGH_RATIO: Final = 5.0
"""Upper to lower end of the interval: a good estimate is below 2, a rough one above 5."""

QUALITY_SAMPLES: Final = 5
"""Minimum samples of an estimate that is not rough."""


class Interval(Struct, frozen=True):
    """The median and the 80 % interval of a remaining time, in seconds from as-of.

    ``samples``: the number of durations it was computed from; ``source``: their description.
    """

    json_properties: ClassVar = ("quality",)

    low: float
    median: float
    high: float
    samples: int
    source: str

    @property
    def quality(self) -> str:
        """``good``, ``fair`` or ``rough``, by width and number of samples."""
        if self.samples < QUALITY_SAMPLES or self.high > ROUGH_RATIO * max(1.0, self.low):
            return "rough"
        return "good" if self.high < GOOD_RATIO * max(1.0, self.low) else "fair"

    @staticmethod
    def from_trials(trials: Iterable[float], samples: int, source: str) -> Interval:
        """The interval of the remaining times of all trials."""
        ordered = sorted(max(0.0, seconds) for seconds in trials)
        low, middle, high = (
            ordered[min(TRIALS - 1, int(share * TRIALS))] for share in (LOW, 0.5, HIGH)
        )
        return Interval(low, middle, high, samples, source)


class EpochDurations(Struct, frozen=True):
    """Median and quartiles of a run's cycles in seconds; no quartiles for fewer than three."""

    median: float
    lower_quartile: float | None
    upper_quartile: float | None
    epochs: int


class RunForecast(Struct, frozen=True):
    """The forecast for one run.

    Exactly one of ``remaining`` (the remaining time), ``completed_at`` (the time of completion) and
    ``missing_reason`` (the reason why there is no estimate) is set. ``epoch_remaining``: the
    remaining time of the current epoch, ``epoch``: its number. ``expected_end``: the date at the
    median of ``remaining``. ``stopped``: its gate ended it before its last epoch.
    """

    key: str
    run: str
    state: State
    epochs_done: int
    epochs_total: int
    epochs_left: int
    epoch: int | None
    durations: EpochDurations | None
    remaining: Interval | None
    epoch_remaining: Interval | None
    expected_end: datetime | None
    completed_at: datetime | None
    missing_reason: str | None
    stopped: bool = False
    dag: Nullable[str] = ""


class Rate(Struct, frozen=True):
    """The number of epochs completed within the last ``seconds``."""

    json_properties: ClassVar = ("per_day",)

    epochs: int
    seconds: float

    @property
    def per_day(self) -> float:
        return self.epochs * 86400.0 / self.seconds


class LeftOut(NamedTuple):
    """An excluded run, and the reason."""

    run: str
    why: str


class Forecast(Struct, frozen=True):
    """The forecast for the ensemble, which is done when its slowest run is.

    Attributes as for a run. ``excluded``: the runs excluded from the span, as (name, "is held" or
    similar). ``slowest_run``: key of the run with the latest median. ``epochs_skipped``: skipped
    epochs among ``epochs_total``; ``epochs_unknown``: those that may be done. ``item``: what runs
    consist of. ``slots``: epochs that run at a time, where runs wait for each other; None if they
    do not.
    """

    json_omits: ClassVar = frozenset({"as_of", "live"})

    as_of: datetime | None
    live: bool
    epochs_done: int
    epochs_total: int
    rate: Rate | None
    remaining: Interval | None
    expected_end: datetime | None
    completed_at: datetime | None
    missing_reason: str | None
    excluded: tuple[LeftOut, ...]
    slowest_run: str | None
    runs: tuple[RunForecast, ...]
    epochs_skipped: int = 0
    epochs_unknown: int = 0
    item: str = "epoch"
    slots: int | None = None


def make_forecast(stats_input: StatsInput, goals: Mapping[str, int] | None = None) -> Forecast:
    """The forecast for the ensemble as of the snapshot.

    ``goals``: numbers of epochs at which runs count as done. A backtest sets them to the epochs
    that an unfinished ensemble has completed.
    """
    return _Estimator(stats_input, goals).make_forecast()


class _Estimator:
    """Computes a forecast from the ledger, the duration model and the job files.

    ``cycles``: by run, without waits for slots of other runs; ``whole_cycles``: with them.
    """

    def __init__(self, stats_input: StatsInput, goals: Mapping[str, int] | None) -> None:
        self.stats_input, self.ledger = stats_input, stats_input.ledger
        self.goals = goals
        self.dags = {dag.file: dag.state for dag in stats_input.status.dags}
        self.epochs = counted_epochs(self.ledger)
        for run in self.ledger.runs:
            own = self.epochs[run.key]
            self.epochs[run.key] = [e for e in own if e.state in DONE or run.will_train(e)]
        self.queued_runs = {
            job.key
            for job in self.ledger.jobs
            if job.key is not None and job.training and job.state in ACTIVE
        }
        self.executions = ExecutionDurations(self.ledger)
        downtime = Downtime(self.ledger, stats_input.status.dags)
        self.whole_cycles = self._cycles(downtime)
        times = [c.seconds for each in self.whole_cycles.values() for c in each if c.ended]
        self.median_cycle = median(times) if times else None
        self.stop_reasons = {run.key: self._stop_reason(run) for run in self.ledger.runs}
        self.slot_use = SlotUse(self.ledger, self._ready_epochs())
        # A run that is down may also wait for a slot: that time counts once.
        pauses = RunIntervals(self.ledger)
        for run in self.ledger.runs:
            both = downtime.intervals[run.key] + self.slot_use.intervals[run.key]
            pauses.intervals[run.key] = merge_intervals(both)
        self.cycles = self._cycles(pauses)
        for key, reason in self.stop_reasons.items():
            if reason is not None:
                # A stopped run's open cycle says nothing about the durations of the others.
                self.cycles[key] = [cycle for cycle in self.cycles[key] if cycle.ended]
        interrupted = [
            cycle for run in self.ledger.runs for cycle in downtime.interrupted_cycles(run.key)
        ]
        self.model = DurationModel([*chain.from_iterable(self.cycles.values()), *interrupted])

    def _cycles(self, pauses: RunIntervals) -> dict[str, list[Cycle]]:
        return {
            run.key: epoch_durations(self.ledger, self.epochs[run.key], pauses)
            for run in self.ledger.runs
        }

    def _ready_epochs(self) -> dict[str, Epoch]:
        """The next epochs of runs that continue and do not execute, if they may start now."""
        executing = {entry.key for entry in self.executions.in_flight.values()}
        ready: dict[str, Epoch] = {}
        for run in self.ledger.runs:
            is_ready = run.key not in executing and self.stop_reasons[run.key] is None
            if is_ready and self._epochs_left(run):
                ready.update((run.key, epoch) for epoch in self._unfinished(run)[:1])
        # DAGMan may not have submitted runs that are ready (-maxjobs), or they depend on others.
        if unsubmitted := {
            epoch.node_key for epoch in ready.values() if epoch.first_submitted is None
        }:
            children = {
                (node.node_key[0], child)
                for node in self.stats_input.load_description().nodes.all
                for child in node.node.children
            }
            unsubmitted &= children
        return {run: epoch for run, epoch in ready.items() if epoch.node_key not in unsubmitted}

    def _unfinished(self, run: Run) -> list[Epoch]:
        return [epoch for epoch in self.epochs[run.key] if epoch.state not in DONE]

    # --- the ensemble ---------------------------------------------------------------------

    def make_forecast(self) -> Forecast:
        ledger = self.ledger
        simulated = {run.key: self._simulate(run) for run in ledger.runs}
        self._add_waits_for_slots(simulated)
        runs = tuple(self._run(run, simulated[run.key]) for run in ledger.runs)
        trials = {key: each.trials for key, each in simulated.items() if each.trials}
        excluded = tuple(
            LeftOut(
                run.run,
                "is paused"
                if run.missing_reason == _PAUSED_REASON
                else _EXCLUSION_TEXTS.get(run.state, "has no job queued"),
            )
            for run in runs
            if run.missing_reason
        )
        span, slowest = None, None
        if trials:
            latest = [max(column) for column in zip(*trials.values(), strict=True)]
            ended = self.model.ended_count
            span = Interval.from_trials(latest, ended, f"{ended} epochs of all runs")
            middles = {key: sorted(total)[TRIALS // 2] for key, total in trials.items()}
            slowest = max(middles, key=lambda key: middles[key])
        ends = [run.completed_at for run in runs if run.completed_at is not None]
        complete = bool(runs) and span is None and not excluded
        return Forecast(
            as_of=ledger.as_of,
            live=ledger.live,
            epochs_done=sum(run.epochs_done for run in runs),
            epochs_total=sum(run.epochs_total for run in runs),
            rate=None if complete else self._rate(),
            remaining=span,
            expected_end=self._date(span),
            completed_at=max(ends, default=None) if complete else None,
            missing_reason=self._missing_reason(runs) if span is None and not complete else None,
            excluded=excluded if span is not None else (),
            slowest_run=slowest,
            runs=runs,
            epochs_skipped=sum(run.epochs_skipped for run in ledger.runs),
            epochs_unknown=sum(run.epochs_unknown for run in ledger.runs),
            item=ledger.item,
            slots=sum(self.slot_use.slots.values()) or None if span is not None else None,
        )

    def _missing_reason(self, runs: Sequence[RunForecast]) -> str:
        reasons = [run.missing_reason for run in runs if run.missing_reason is not None]
        if not reasons:
            return "no training run, so no estimate"
        if self._unknown_reason() in reasons:
            return self._unknown_reason()
        stopped = [
            run for run in runs if run.missing_reason is not None and run.state in _EXCLUSION_TEXTS
        ]
        paused = [run for run in runs if run.missing_reason == _PAUSED_REASON]
        if not stopped and paused:
            subject = paused[0].run if len(paused) == 1 else f"{len(paused)} runs"
            return f"paused: {subject}"
        if not stopped:
            return reasons[0]
        if len(stopped) == 1:
            return f"stopped: {stopped[0].run} {_EXCLUSION_TEXTS[stopped[0].state]}"
        counts = [sum(run.state is state for run in stopped) for state in _EXCLUSION_TEXTS]
        kinds = [(n, str(state)) for n, state in zip(counts, _EXCLUSION_TEXTS, strict=True) if n]
        every = "all " if len(stopped) == len(runs) else ""
        total = f"stopped: {every}{len(stopped)} runs"
        if len(kinds) == 1:
            return f"{total} {kinds[0][1]}"
        return f"{total}: {', '.join(f'{n} {label}' for n, label in kinds)}"

    def _unknown_reason(self) -> str:
        done = any(run.epochs_done for run in self.ledger.runs)
        return "unknown: no log has the time of an epoch" if done else NO_EPOCH

    def _rate(self) -> Rate | None:
        ledger, now = self.ledger, self.ledger.as_of
        starts = [run.began for run in ledger.runs if run.began is not None]
        if now is None or not starts:
            return None
        window = min(RATE_SECONDS, max(ledger.seconds_between(start, now) for start in starts))
        since = now - timedelta(seconds=window)
        ends = [c.end for cycles in self.cycles.values() for c in cycles if c.ended]
        # DAGMan's files can be ahead of the log that as-of comes from.
        recent = sum(since <= end <= now for end in ends)
        return Rate(recent, window) if window > 0 else None

    def _date(self, span: Interval | None) -> datetime | None:
        return None if span is None else time_after_as_of(self.ledger, span.median)

    # --- one run --------------------------------------------------------------------------

    def _epochs_left(self, run: Run) -> int:
        goal = run.epochs_total
        if self.goals is not None:
            goal = min(goal, self.goals.get(run.key, 0))
        left = max(0, goal - run.epochs_done - run.epochs_skipped)
        return left if run.ends_before is None else min(left, len(self._unfinished(run)))

    def _stop_reason(self, run: Run) -> str | None:
        """The reason why a run does not continue; None if it does."""
        if run.state in _EXCLUSION_TEXTS:
            return f"stopped: {run.state}"
        dag = self.dags.get(run.dag, DagState.UNKNOWN)
        if not run.dag and run.epochs_done < run.epochs_total:
            return NO_ORDER if run.item == "job" else NO_DAG_FILE
        if run.paused:
            return _PAUSED_REASON
        if any(epoch.state is State.UNKNOWN for epoch in self.epochs[run.key]):
            return "unknown: the logs do not say which epochs are done"
        if dag is not DagState.UNKNOWN:
            return DAG_STOP_REASONS.get(dag)
        if run.key in self.queued_runs or self._is_recent(run):
            return None
        return "no job queued"

    def _is_recent(self, run: Run) -> bool:
        """Whether the run was active within the last :data:`RECENT_CYCLES` cycles."""
        latest, now = run.latest, self.ledger.as_of
        if latest is None or latest.since is None or now is None or self.median_cycle is None:
            return False
        return self.ledger.seconds_between(latest.since, now) <= RECENT_CYCLES * self.median_cycle

    def _run(self, run: Run, simulated: _SimulatedRun) -> RunForecast:
        trials, current = simulated.trials, simulated.current
        left = self._epochs_left(run)
        ends = [e.completed for e in self.epochs[run.key] if e.completed is not None]
        own_seconds = [cycle.seconds for cycle in self.whole_cycles[run.key] if cycle.ended]
        span = None
        if trials:
            others = self.model.ended_count - len(own_seconds)
            source = f"{len(own_seconds)} epoch{'s' * (len(own_seconds) != 1)} of its own"
            source += f", {others} of other runs" if others else ""
            span = Interval.from_trials(trials, self.model.ended_count, source)
        reason = self.stop_reasons[run.key] or (
            self._unknown_reason() if not self.model.ended_count else None
        )
        epoch = None
        if current is not None:
            epoch = Interval.from_trials(current.trials, current.samples, current.source)
        return RunForecast(
            key=run.key,
            run=run.run,
            dag=run.dag,
            state=run.state,
            epochs_done=run.epochs_done,
            epochs_total=run.epochs_total,
            epochs_left=left,
            epoch=current.epoch.epoch if current is not None else None,
            durations=_summary(own_seconds),
            remaining=span,
            epoch_remaining=epoch,
            expected_end=self._date(span),
            completed_at=max(ends, default=None) if not left else None,
            missing_reason=reason if left and span is None else None,
            stopped=run.stopped,
        )

    def _simulate(self, run: Run) -> _SimulatedRun:
        """The run's remaining seconds in each trial, without waits for slots of other runs.

        No trials if the run is done or cannot be estimated.
        """
        left = self._epochs_left(run)
        if not left or self.stop_reasons[run.key] is not None:
            return _SimulatedRun()
        unfinished = self._unfinished(run)[:left]
        permutations = _CommonRandomNumbers(run.key)
        current = self._current_epoch(run, unfinished[0], permutations) if unfinished else None
        model = self.model
        if model.curve is None:
            return _SimulatedRun(current=current)
        # Epochs after an abandoned one never run, but are counted as left.
        later = [model.expected_seconds(run.key, epoch.target) for epoch in unfinished[1:]]
        total = sum(later)
        shape = (
            1 / (model.relative_sigma**2 * sum(seconds**2 for seconds in later) / total**2)
            if total
            else 0
        )
        log_sigma = model.mean_log_sigma(left)
        factors = [exp(log_sigma * z) for z in Z_SCORES]
        if current is not None and current.executing:
            first = current.trials
            rest = list(first)
        else:
            first = self._rest_of_cycle(run, unfinished, permutations)
            rest = [seconds * factor for seconds, factor in zip(first, factors, strict=True)]
        if total:
            for i, factor in enumerate(factors):
                rest[i] += total * factor * gamma_quantile(shape, Z_SCORES[permutations.own[i]])
        return _SimulatedRun(
            trials=rest,
            current=current,
            factors=factors,
            epochs=unfinished,
            seconds=[median(first), *later],
        )

    def _add_waits_for_slots(self, simulated: Mapping[str, _SimulatedRun]) -> None:
        """Add to the trials what runs will wait for slots that other runs have."""
        use = self.slot_use
        if not use.slots:
            return
        queue = [
            QueuedRun(
                key=run.key,
                executing=each.current is not None and each.current.executing,
                done=run.epochs_done,
                seconds=each.seconds,
                groups=[
                    None if not i and run.key in use.disconnected else use.group(epoch.target)
                    for i, epoch in enumerate(each.epochs)
                ],
            )
            for run in self.ledger.runs
            if (each := simulated[run.key]).epochs and each.trials
        ]
        queue.sort(key=lambda each: simulated[each.key].epochs[0].jobs[-1:] or NOT_SUBMITTED)
        for key, waited in simulate_queue(queue, use).items():
            each = simulated[key]
            for i, factor in enumerate(each.factors):
                each.trials[i] += waited * factor

    def _rest_of_cycle(
        self, run: Run, unfinished: Sequence[Epoch], permutations: _CommonRandomNumbers
    ) -> list[float]:
        """The rest of the current cycle in each trial, if its epoch is not executing.

        Conditional on the age of the cycle, and never less than the training itself takes.
        """
        curve = self.model.ended_curve
        if curve is None or not unfinished:
            return [0.0] * TRIALS
        age = next((c.seconds for c in self.cycles[run.key] if not c.ended), 0.0)
        ratio = self.model.expected_seconds(run.key, unfinished[0].target) / self.model.ended_mean
        training, _ = self.executions.curve(None, run.key)
        floor = training.conditional_quantile(LOW) if training is not None else 0.0
        return [
            max(floor, ratio * curve.conditional_quantile(UNIFORM[i], age))
            for i in permutations.first
        ]

    def _current_epoch(
        self, run: Run, epoch: Epoch, permutations: _CommonRandomNumbers
    ) -> _CurrentEpoch | None:
        """The run's first unfinished epoch; None if there is no estimate of it."""
        entry = self.executions.in_flight.get(epoch.node_key)
        if entry is None:
            trials = self._rest_of_cycle(run, [epoch], permutations)
            if self.model.curve is None or run.latest is None or not epoch.jobs:
                return None
            return _CurrentEpoch(
                epoch=epoch,
                trials=trials,
                source=f"{self.model.ended_count} epochs of all runs",
                samples=self.model.ended_count,
                executing=False,
            )
        another_cycle = self.model.expected_seconds(run.key, epoch.target)
        loss_risk = self.executions.loss_probability(entry.seconds)
        streamed = self.stats_input.job_files.streams.get(entry.job)
        seconds_left = _streamed_seconds(streamed, entry)
        if seconds_left is not None:
            trials = [
                seconds_left * exp(STREAM_LOG_SIGMA * Z_SCORES[i]) for i in permutations.first
            ]
            source, samples = "its progress line", 1
        else:
            curve, label = self.executions.curve(entry, run.key)
            if curve is None:
                return None
            # One or two executions do not show how much their durations differ.
            sigma = PRIOR_LOG_SIGMA if curve.events < MIN_ENDED else 0.0
            trials = [
                curve.conditional_quantile(UNIFORM[i], entry.trained) * exp(sigma * Z_SCORES[own])
                for i, own in zip(permutations.first, permutations.own, strict=True)
            ]
            source, samples = f"{curve.events} executions on {label}", curve.events
            if label in (ITS_RUN, ALL):
                source = f"{curve.events} executions of {label}"
        lost_trials = [i for i in range(TRIALS) if UNIFORM[permutations.lost[i]] < loss_risk]
        for i in lost_trials:
            # A lost execution costs at least another cycle.
            trials[i] += another_cycle
        return _CurrentEpoch(
            epoch=epoch, trials=trials, source=source, samples=samples, executing=True
        )


class _SimulatedRun(Struct):
    """The remaining seconds of a run in each trial, and its epochs.

    ``factors``: the factor of each trial, which all runs share. ``epochs``: the unfinished ones;
    ``seconds``: how long each takes without waits for slots.
    """

    trials: list[float] = []
    current: _CurrentEpoch | None = None
    factors: Sequence[float] = ()
    epochs: Sequence[Epoch] = ()
    seconds: Sequence[float] = ()


class _CurrentEpoch(Struct, frozen=True):
    """The first unfinished epoch of a run, and the rest of it in each trial.

    ``executing``: whether a job executes it now; otherwise the trials include its queue wait.
    """

    epoch: Epoch
    trials: list[float]
    source: str
    samples: int
    executing: bool


class _CommonRandomNumbers:
    """Three independent permutations of the trials, derived from the key of a run.

    They do not depend on other runs and stay the same between evaluations.
    """

    def __init__(self, key: str) -> None:
        seed = crc32(key.encode("utf-8", "surrogatepass"))
        self.own = self._order(seed)
        self.first = self._order(seed // 1009 + 17)
        self.lost = self._order(seed // 65537 + 71)

    @staticmethod
    def _order(seed: int) -> list[int]:
        step, start = 2 + seed % (TRIALS - 3), seed // TRIALS % TRIALS
        return [(start + step * i) % TRIALS for i in range(TRIALS)]


NO_EPOCH: Final = "unknown: no epoch is done yet"

_EXCLUSION_TEXTS: Final = {
    State.HELD: "is held",
    State.FAILED: "failed",
    State.REMOVED: "was removed",
    State.FUTILE: "cannot run",
}
"""Texts for runs that are excluded from the ensemble's estimate."""

_PAUSED_REASON: Final = "paused at its gate"

DAG_STOP_REASONS: Final = {
    DagState.NOT_SUBMITTED: "its DAG is not submitted",
    DagState.HELD: "stopped: DAGMan is held",
    DagState.RESTARTING: "stopped: DAGMan is not running",
    DagState.DONE: "stopped: its DAG is done",
    DagState.FAILED: "stopped: its DAG failed",
    DagState.REMOVED: "stopped: its DAG was removed",
}
"""Why a DAG does not continue, by its state."""


def _streamed_seconds(streamed: Streamed | None, entry: Execution) -> float | None:
    """The remaining seconds according to the epoch's own progress line."""
    if streamed is None:
        return None
    if streamed.seconds_left is not None and 0 <= streamed.seconds_left < 1e9:
        return max(1.0, streamed.seconds_left)
    fraction = streamed.fraction
    if fraction is not None and 0.02 <= fraction <= 1 and entry.trained > 0:
        return max(1.0, entry.trained * (1 - fraction) / fraction)
    return None


def _summary(seconds: Sequence[float]) -> EpochDurations | None:
    if not seconds:
        return None
    if len(seconds) < 3:
        return EpochDurations(median(seconds), None, None, len(seconds))
    lower, middle, upper = quartiles(seconds)
    return EpochDurations(middle, lower, upper, len(seconds))
