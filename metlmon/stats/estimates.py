"""Estimated remaining time of epochs, runs and the ensemble, with intervals.

The median comes from the ensemble's own history (:mod:`metlmon.stats.epoch_times`): the epochs
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
neither in the history nor predicted (:mod:`metlmon.stats.epoch_times`). Epochs per day are no
estimate but a count, downtime included.

Where runs do not wait for each other, an additional epoch in progress, of any age, never makes a
run's estimate earlier. For an
interrupted one this holds for the survival curve (:mod:`metlmon.stats.simulation`), not strictly
for estimates, since older cycles lose weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from math import exp
from statistics import median
from typing import ClassVar, Final, NamedTuple
from zlib import crc32

from msgspec import Struct

from metlmon.jobfiles.records import Streamed
from metlmon.live.feed import StatsInput
from metlmon.model.states import ACTIVE, DONE, DagState, State
from metlmon.snapshot.records import Epoch, Execution, Run
from metlmon.stats.epoch_times import (
    Cycle,
    Downtime,
    DowntimeFunction,
    DurationModel,
    ExecutionDurations,
    counted_epochs,
    epoch_durations,
    time_after_as_of,
)
from metlmon.stats.simulation import TRIALS, UNIFORM, Z_SCORES, gamma_quantile
from metlmon.stats.slots import QueuedRun, SlotUse, simulate_queue
from metlmon.stats.totals import quartiles

LOW: Final = 0.1
HIGH: Final = 0.9
"""Quantiles that bound the reported 80 % interval."""

STREAM_LOG_SIGMA: Final = 0.1
"""Log-scale standard deviation of a progress line's remaining time: rates vary within an epoch,
and validation follows it."""

RATE_SECONDS: Final = 7 * 86400.0
"""Window of the epoch rate, at most since the start: one week, so that it has a weekend."""

NO_DAG_FILE: Final = "no DAG file: later epochs are not known"
NO_ORDER: Final = "no ETA for jobs of no DAG"
"""Reasons why there is no estimate for a run that a log alone shows."""

NOT_SUBMITTED: Final = ((2**62, 0),)
"""In place of a job: after all that are submitted."""

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
    """Median and quartiles of a run's cycles in seconds; None of fewer than three."""

    median: float
    lower_quartile: float | None
    upper_quartile: float | None
    epochs: int


class RunForecast(
    Struct,
    frozen=True,
    rename={
        "run": "key",
        "run_name": "run",
        "done": "epochs_done",
        "total": "epochs_total",
        "epoch_number": "epoch",
        "durations": "seconds_per_epoch",
        "expected_end": "at",
        "completed_at": "ended",
        "missing_reason": "why_not",
    },
):
    """The forecast for one run.

    Exactly one of ``remaining`` (the remaining time), ``completed_at`` (the time of completion) and
    ``missing_reason`` (the reason why there is no estimate) is set. ``epoch_remaining``: the
    remaining time of the current epoch, ``epoch_number``: its number. ``expected_end``: the date
    at the span's median.
    ``stopped``: its gate ended it before its last epoch.
    """

    run: str
    run_name: str
    state: State
    done: int
    total: int
    epochs_left: int
    epoch_number: int | None
    durations: EpochDurations | None
    remaining: Interval | None
    epoch_remaining: Interval | None
    expected_end: datetime | None
    completed_at: datetime | None
    missing_reason: str | None
    stopped: bool = False


class Rate(Struct, frozen=True):
    """The number of epochs completed within the last ``seconds``."""

    json_properties: ClassVar = ("per_day",)

    epochs: int
    seconds: float

    @property
    def per_day(self) -> float:
        return self.epochs * 86400.0 / self.seconds


class LeftOut(NamedTuple):
    """A run that is left out, and why."""

    run: str
    why: str


class Forecast(
    Struct,
    frozen=True,
    rename={
        "done": "epochs_done",
        "total": "epochs_total",
        "skipped": "epochs_skipped",
        "expected_end": "at",
        "completed_at": "ended",
        "missing_reason": "why_not",
        "slowest_run": "slowest",
        "excluded": "without",
    },
):
    """The forecast for the ensemble, which is done when its slowest run is.

    Attributes as for a run. ``excluded``: the runs excluded from the span, as (name, "is held"
    or similar). ``slowest_run``: key of the run with the latest median. ``skipped``: skipped epochs
    among ``total``. ``item``: what runs consist of. ``slots``: epochs that run at a time, where
    runs wait for each other; None if they do not.
    """

    json_omits: ClassVar = frozenset({"as_of", "live"})

    as_of: datetime | None
    live: bool
    done: int
    total: int
    rate: Rate | None
    remaining: Interval | None
    expected_end: datetime | None
    completed_at: datetime | None
    missing_reason: str | None
    excluded: tuple[LeftOut, ...]
    slowest_run: str | None
    runs: tuple[RunForecast, ...]
    skipped: int = 0
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
            if run.ends_before is not None:
                self.epochs[run.key] = list(_before_gate_end(self.epochs[run.key], run.ends_before))
        self.queued_runs = {
            job.run
            for job in self.ledger.jobs
            if job.run is not None and job.training and job.state in ACTIVE
        }
        self.executions = ExecutionDurations(self.ledger)
        downtime = Downtime(self.ledger, stats_input.status.dags)
        self.whole_cycles = self._cycles(downtime.seconds_between)
        times = [c.seconds for each in self.whole_cycles.values() for c in each if c.ended]
        self.median_cycle = median(times) if times else None
        self.stop_reasons = {run.key: self._stop_reason(run) for run in self.ledger.runs}
        self.slot_use = SlotUse(self.ledger, self._ready_epochs())
        self.cycles = self._cycles(
            lambda run, start, end: (
                downtime.seconds_between(run, start, end)
                + self.slot_use.seconds_waited(run, start, end)
            )
        )
        for key, reason in self.stop_reasons.items():
            if reason is not None:
                # A stopped run's open cycle says nothing about the durations of the others.
                self.cycles[key] = [cycle for cycle in self.cycles[key] if cycle.ended]
        interrupted = [
            cycle for run in self.ledger.runs for cycle in downtime.interrupted_cycles(run.key)
        ]
        self.model = DurationModel([*chain.from_iterable(self.cycles.values()), *interrupted])

    def _cycles(self, pause_between: DowntimeFunction) -> dict[str, list[Cycle]]:
        return {
            run.key: epoch_durations(self.ledger, self.epochs[run.key], pause_between)
            for run in self.ledger.runs
        }

    def _ready_epochs(self) -> dict[str, Epoch]:
        """The next epochs of runs that continue and do not execute, if they may start now."""
        executing = {entry.run for entry in self.executions.in_flight.values()}
        ready: dict[str, Epoch] = {}
        for run in self.ledger.runs:
            is_ready = run.key not in executing and self.stop_reasons[run.key] is None
            if is_ready and self._epochs_left(run):
                ready.update((run.key, epoch) for epoch in self._unfinished(run)[:1])
        # DAGMan may not have submitted runs that are ready (-maxjobs), or they depend on others.
        if unsubmitted := {epoch.key for epoch in ready.values() if epoch.first_submitted is None}:
            children = {
                (node.key[0], child)
                for node in self.stats_input.load_description().nodes.all
                for child in node.node.children
            }
            unsubmitted &= children
        return {run: epoch for run, epoch in ready.items() if epoch.key not in unsubmitted}

    def _unfinished(self, run: Run) -> list[Epoch]:
        return [epoch for epoch in self.epochs[run.key] if epoch.state not in DONE]

    # --- the ensemble ---------------------------------------------------------------------

    def make_forecast(self) -> Forecast:
        ledger = self.ledger
        simulated = {run.key: self._simulate(run) for run in ledger.runs}
        self._add_waits_for_slots(simulated)
        runs = tuple(self._run(run, simulated[run.key]) for run in ledger.runs)
        trials = {key: each.trials for key, each in simulated.items() if each.trials}
        excluded = tuple(LeftOut(r.run_name, _exclusion_text(r)) for r in runs if r.missing_reason)
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
            done=sum(run.done for run in runs),
            total=sum(run.total for run in runs),
            rate=None if complete else self._rate(),
            remaining=span,
            expected_end=self._date(span),
            completed_at=max(ends, default=None) if complete else None,
            missing_reason=self._missing_reason(runs) if span is None and not complete else None,
            excluded=excluded if span is not None else (),
            slowest_run=slowest,
            runs=runs,
            skipped=sum(run.epochs_skipped for run in ledger.runs),
            item=ledger.item,
            slots=sum(self.slot_use.slots.values()) or None if span is not None else None,
        )

    def _missing_reason(self, runs: Sequence[RunForecast]) -> str:
        reasons = [run.missing_reason for run in runs if run.missing_reason is not None]
        if not reasons:
            return "there is no run"
        if self._unknown_reason() in reasons:
            return self._unknown_reason()
        stopped = [
            run for run in runs if run.missing_reason is not None and run.state in _EXCLUSION_TEXTS
        ]
        paused = [run for run in runs if run.missing_reason == _PAUSED_REASON]
        if not stopped and paused:
            subject = paused[0].run_name if len(paused) == 1 else f"{len(paused)} runs"
            return f"paused: {subject}"
        if not stopped:
            return reasons[0]
        if len(stopped) == 1:
            return f"stopped: {stopped[0].run_name} {_EXCLUSION_TEXTS[stopped[0].state]}"
        counts = [sum(run.state is state for run in stopped) for state in _EXCLUSION_TEXTS]
        labels = zip(counts, ("held", "failed", "removed"), strict=True)
        summary = ", ".join(f"{n} runs {label}" for n, label in labels if n)
        every = "all " if len(stopped) == len(runs) else ""
        return f"stopped: {every}{summary}"

    def _unknown_reason(self) -> str:
        """The reason why no cycle has ended."""
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
        if run.ends_before is None:
            return left
        return min(left, sum(epoch.state not in DONE for epoch in self.epochs[run.key]))

    def _stop_reason(self, run: Run) -> str | None:
        """The reason why a run does not continue; None if it does."""
        if run.state is State.HELD:
            return "stopped: held"
        dag = self.dags.get(run.dag, DagState.UNKNOWN)
        if run.state is State.FAILED:
            return "stopped: failed"
        if run.state is State.REMOVED:
            return "stopped: removed"
        if not run.dag and run.epochs_done < run.epochs_total:
            return NO_ORDER if run.item == "job" else NO_DAG_FILE
        if run.paused:
            return _PAUSED_REASON
        if any(epoch.state is State.UNKNOWN for epoch in self.epochs[run.key]):
            return "unknown: which epochs are done"
        if dag is DagState.RUNNING:
            return None
        if dag is DagState.NOT_SUBMITTED:
            return "its DAG is not submitted"
        if dag is not DagState.UNKNOWN:
            return f"stopped: {_DAG_STATE_TEXTS[dag]}"
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
            source = f"{_epochs(len(own_seconds))} of its own"
            source += f", {others} of other runs" if others else ""
            span = Interval.from_trials(trials, self.model.ended_count, source)
        reason = self.stop_reasons[run.key] or (
            self._unknown_reason() if not self.model.ended_count else None
        )
        epoch = None
        if current is not None:
            epoch = Interval.from_trials(current.trials, current.samples, current.source)
        return RunForecast(
            run=run.key,
            run_name=run.name,
            state=run.state,
            done=run.epochs_done,
            total=run.epochs_total,
            epochs_left=left,
            epoch_number=current.epoch.epoch if current is not None else None,
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
                run=run.key,
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
        queue.sort(key=lambda each: simulated[each.run].epochs[0].jobs[-1:] or NOT_SUBMITTED)
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
        entries = [self.executions.in_flight.get(job) for job in epoch.jobs]
        running = [entry for entry in entries if entry is not None]
        if not running:
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
        entry = running[-1]
        another_cycle = self.model.expected_seconds(run.key, epoch.target)
        loss_risk = self.executions.loss_probability(entry.seconds)
        streamed = self.stats_input.streams.get(entry.job)
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
            trials = [
                curve.conditional_quantile(UNIFORM[i], entry.trained) for i in permutations.first
            ]
            source, samples = f"{curve.events} executions on {label}", curve.events
            if label in ("its run", "all"):
                source = f"{curve.events} executions of {label}"
        lost_trials = [i for i in range(TRIALS) if UNIFORM[permutations.lost[i]] < loss_risk]
        for i in lost_trials:
            # A lost execution costs at least another cycle.
            trials[i] += another_cycle
        return _CurrentEpoch(
            epoch=epoch, trials=trials, source=source, samples=samples, executing=True
        )


def _before_gate_end(epochs: Iterable[Epoch], ends_before: int) -> Iterator[Epoch]:
    """The epochs that are done or before ``ends_before``, where the gate ends."""
    for epoch in epochs:
        if epoch.state in DONE or epoch.epoch is None or epoch.epoch < ends_before:
            yield epoch


class _SimulatedRun(Struct):
    """The remaining seconds of a run in each trial, and its epochs.

    ``factors``: of each trial, that all runs share. ``epochs``: unfinished ones, and ``seconds``
    that each of them takes without waits for slots.
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


NO_EPOCH: Final = "unknown: no epoch has ended yet"

_EXCLUSION_TEXTS: Final = {
    State.HELD: "is held",
    State.FAILED: "failed",
    State.REMOVED: "was removed",
}
"""Texts for runs that are excluded from the ensemble's estimate."""

_PAUSED_REASON: Final = "paused at its gate"

_DAG_STATE_TEXTS: Final = {
    DagState.HELD: "DAGMan is held",
    DagState.RESTARTING: "DAGMan is not running",
    DagState.DONE: "its DAG is done",
    DagState.FAILED: "its DAG failed",
    DagState.REMOVED: "its DAG was removed",
}


def _exclusion_text(run: RunForecast) -> str:
    if run.missing_reason == _PAUSED_REASON:
        return "is paused"
    return _EXCLUSION_TEXTS.get(run.state, "has no job queued")


def _streamed_seconds(streamed: Streamed | None, entry: Execution) -> float | None:
    """The remaining seconds according to the epoch's own progress line."""
    if streamed is None:
        return None
    if streamed.remaining is not None and 0 <= streamed.remaining < 1e9:
        return max(1.0, streamed.remaining)
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


def _epochs(n: int) -> str:
    return "1 epoch" if n == 1 else f"{n} epochs"
