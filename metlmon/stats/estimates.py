"""When will it be done: the running epochs, the runs, the ensemble, and how sure that is.

What is expected comes from the ensemble's own history (:mod:`metlmon.stats.epoch_times`): a run's
epochs that are left times what a cycle of it takes, and for the epoch under way what is left of
it, given how long it has lasted already. How sure it is comes from playing the rest out many
times, with numbers that are the same each time: the same history gives the same answer, and a
second more changes it by a second. In each trial all runs share how good or bad the times are
(sites and queues are slow for all at once), and differ by their own luck. The interval is the
one that should hold in four of five cases; ``metlmon estimate --backtest`` tells whether it does.

Where history is short one falls back: for an execution from its site, GPU model and number of
GPUs to any site, any number, its run, all; for a cycle its run's own and its target's are mixed
with all others', by how many there are.

All of it assumes that the DAG goes on running: time in which it was removed and waited for somebody
to submit it again is neither in the history nor foretold (:mod:`metlmon.stats.downtime`). Epochs a
day are not an estimate: that many were completed, whatever came between them.

One more epoch that lasts still, of whatever age, makes no run's estimate come earlier. For one
that was broken off this holds of the share that lasts (:mod:`metlmon.stats.kaplan_meier`), not
strictly of estimates: what happened before it fades a little more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import exp
from typing import Final
from zlib import crc32

from metlmon.frozen import frozen
from metlmon.jobfiles.records import Streamed
from metlmon.model.states import ACTIVE, DONE, DagState, State
from metlmon.snapshot.ledger import EpochEntry, ExecutionEntry, RunEntry
from metlmon.stats.downtime import Downtime
from metlmon.stats.epoch_times import (
    DurationModel,
    Executions,
    counted,
    elapsed,
    epoch_durations,
    later,
)
from metlmon.stats.quantiles import gamma, median, normal, quarters
from metlmon.stats.worker import StatsInput

TRIALS: Final = 211
"""So often the rest is played out: enough for the tenth and ninetieth of a hundred. A prime
number, so that each run can go through the same chances in an order of its own."""

LOW: Final = 0.1
HIGH: Final = 0.9
"""The interval that is told holds in four of five cases."""

STREAM_SWING: Final = 0.1
"""How far a progress line's own remaining time is off (one sigma, as a logarithm): rates vary
within an epoch, and validation follows it."""

RATE_SECONDS: Final = 7 * 86400.0
"""Epochs a day are counted over the last week (or since the beginning, if that is later): a
weekend is in it."""

RECENT: Final = 2.0
"""Where no file of DAGMan tells, a run that has had nothing in the queue for so many cycles'
time is not going on."""

_Z: Final = tuple(normal((i + 0.5) / TRIALS) for i in range(TRIALS))
_U: Final = tuple((i + 0.5) / TRIALS for i in range(TRIALS))


@frozen
class Interval:
    """So many seconds from as-of: the middle of what may be, and the interval that holds in
    four of five cases. ``samples``: what it was made from; ``source``: in words."""

    low: float
    middle: float
    high: float
    samples: int
    source: str


@frozen
class EpochDurations:
    """What the epochs of a run took from completion to completion, seconds: the middle one,
    and the quarter points beside it (None of fewer than three)."""

    median: float
    lower: float | None
    upper: float | None
    epochs: int


@frozen
class RunForecast:
    """One run. Exactly one of ``span`` (when it will be done), ``ended`` (when it was) and
    ``why_not`` (a few words: why nothing can be said) is there. ``epoch``: of the epoch that
    runs now; ``number``: which that is. ``at``: the date of the span's middle. ``stopped``: its
    gate ended it before its last epoch."""

    run: str
    run_name: str
    state: State
    done: int
    total: int
    left: int
    number: int | None
    pace: EpochDurations | None
    span: Interval | None
    epoch: Interval | None
    at: datetime | None
    ended: datetime | None
    why_not: str | None
    stopped: bool = False


@frozen
class Rate:
    """``epochs`` were completed within the last ``seconds``."""

    epochs: int
    seconds: float

    @property
    def per_day(self) -> float:
        return self.epochs * 86400.0 / self.seconds


@frozen
class Forecast:
    """The ensemble: done when its slowest run is. As for a run; ``without``: the runs that are
    left out of the span, (name, "is held" or the like). ``slowest``: key of the run whose
    middle is last. ``skipped``: epochs of ``total`` that were left out."""

    as_of: datetime | None
    live: bool
    done: int
    total: int
    rate: Rate | None
    span: Interval | None
    at: datetime | None
    ended: datetime | None
    why_not: str | None
    without: tuple[tuple[str, str], ...]
    slowest: str | None
    runs: tuple[RunForecast, ...]
    skipped: int = 0


def outlook(basis: StatsInput) -> Forecast:
    """When everything will be done, as of the picture's moment."""
    return expected(basis)


def expected(basis: StatsInput, goals: Mapping[str, int] | None = None) -> Forecast:
    """As :func:`outlook`. ``goals``: runs are done when so many of their epochs are (a backtest
    asks for the moment that an unfinished ensemble did reach)."""
    return _Estimator(basis, goals).outlook()


class _Estimator:
    def __init__(self, basis: StatsInput, goals: Mapping[str, int] | None) -> None:
        self.basis, self.ledger = basis, basis.ledger
        self.goals = goals
        self.dags = {dag.file: dag.state for dag in basis.status.dags}
        self.epochs = counted(self.ledger)
        for run in self.ledger.runs:
            if run.ends_before is not None:
                self.epochs[run.run] = list(_to_be_trained(self.epochs[run.run], run.ends_before))
        self.queued = {
            job.run
            for job in self.ledger.jobs
            if job.run is not None and job.training and job.state in ACTIVE
        }
        pauses = Downtime(self.ledger, basis.status.dags)
        self.cycles = {
            run.run: epoch_durations(self.ledger, self.epochs[run.run], pauses.within)
            for run in self.ledger.runs
        }
        times = [c.seconds for cycles in self.cycles.values() for c in cycles if c.ended]
        self.usual = median(times) if times else None
        self.stops = {run.run: self._stop(run) for run in self.ledger.runs}
        for key, why in self.stops.items():
            if why is not None:
                # What nobody goes on with says nothing of how long the others take.
                self.cycles[key] = [cycle for cycle in self.cycles[key] if cycle.ended]
        cycles = [cycle for cycles in self.cycles.values() for cycle in cycles]
        broken = [cycle for run in self.ledger.runs for cycle in pauses.broken(run.run)]
        self.history = DurationModel([*cycles, *broken])
        self.executions = Executions(self.ledger)

    # --- the whole ------------------------------------------------------------------------

    def outlook(self) -> Forecast:
        ledger = self.ledger
        played = {run.run: self._played(run) for run in ledger.runs}
        runs = tuple(self._run(run, played[run.run]) for run in ledger.runs)
        trials = {key: total for key, (total, _) in played.items() if total}
        left_out = tuple((r.run_name, _which(r)) for r in runs if r.why_not)
        span, slowest = None, None
        if trials:
            latest = [max(column) for column in zip(*trials.values(), strict=True)]
            span = self._span(latest, f"{self.history.ended} epochs of all runs")
            middles = {key: sorted(total)[TRIALS // 2] for key, total in trials.items()}
            slowest = max(middles, key=lambda key: middles[key])
        ends = [run.ended for run in runs if run.ended is not None]
        over = bool(runs) and span is None and not left_out
        return Forecast(
            ledger.as_of,
            ledger.live,
            sum(run.done for run in runs),
            sum(run.total for run in runs),
            None if over else self._rate(),
            span,
            self._at(span),
            _latest(ends) if over else None,
            self._why_none(runs) if span is None and not over else None,
            left_out if span is not None else (),
            slowest,
            runs,
            sum(run.epochs_skipped for run in ledger.runs),
        )

    def _why_none(self, runs: Sequence[RunForecast]) -> str:
        reasons = [run.why_not for run in runs if run.why_not is not None]
        if not reasons:
            return "there is no run"
        if self._unknown() in reasons:
            return self._unknown()
        stopped = [run for run in runs if run.why_not is not None and run.state in _WHICH]
        paused = [run for run in runs if run.why_not == _PAUSED]
        if not stopped and paused:
            who = f"{paused[0].run_name} is" if len(paused) == 1 else f"{len(paused)} runs are"
            return f"no end in sight: {who} paused"
        if not stopped:
            return reasons[0]
        if len(stopped) == 1:
            return f"no end in sight: {stopped[0].run_name} {_WHICH[stopped[0].state]}"
        counts = [sum(run.state is state for run in stopped) for state in _WHICH]
        words = zip(counts, ("held", "failed", "removed"), strict=True)
        told = ", ".join(f"{n} {word}" for n, word in words if n)
        return f"no end in sight: no run goes on ({told})"

    def _unknown(self) -> str:
        """Why there is no cycle to go by."""
        done = any(run.epochs_done for run in self.ledger.runs)
        return "unknown: no log tells what an epoch took" if done else NO_EPOCH

    def _rate(self) -> Rate | None:
        ledger, now = self.ledger, self.ledger.as_of
        begun = [run.began for run in ledger.runs if run.began is not None]
        if now is None or not begun:
            return None
        window = min(RATE_SECONDS, max(elapsed(ledger, each, now) for each in begun))
        since = later(now) - timedelta(seconds=window)
        ends = [c.at for cycles in self.cycles.values() for c in cycles if c.ended]
        # DAGMan's own files can be ahead of the log that says what time it is.
        recent = sum(since <= later(end) <= later(now) for end in ends)
        return Rate(recent, window) if window > 0 else None

    def _span(self, trials: Sequence[float], source: str, samples: int | None = None) -> Interval:
        ordered = sorted(max(0.0, each) for each in trials)
        low, middle, high = (
            ordered[min(TRIALS - 1, int(share * TRIALS))] for share in (LOW, 0.5, HIGH)
        )
        return Interval(
            low, middle, high, self.history.ended if samples is None else samples, source
        )

    def _at(self, span: Interval | None) -> datetime | None:
        if span is None or self.ledger.as_of is None:
            return None
        try:
            return self.ledger.as_of + timedelta(seconds=round(span.middle))
        except OverflowError:
            return None

    # --- one run --------------------------------------------------------------------------

    def _left(self, run: RunEntry) -> int:
        goal = run.epochs_total
        if self.goals is not None:
            goal = min(goal, self.goals.get(run.run, 0))
        left = max(0, goal - run.epochs_done - run.epochs_skipped)
        if run.ends_before is None:
            return left
        return min(left, sum(epoch.state not in DONE for epoch in self.epochs[run.run]))

    def _stop(self, run: RunEntry) -> str | None:
        """Why a run does not go on; None while it does."""
        if run.state is State.HELD:
            return "not while it is held"
        dag = self.dags.get(run.dag, DagState.UNKNOWN)
        if run.state is State.FAILED:
            return "not after it failed"
        if run.state is State.REMOVED:
            return "not after it was removed"
        if run.paused:
            return _PAUSED
        if any(epoch.state is State.UNKNOWN for epoch in self.epochs[run.run]):
            return "not while it is not known which epochs are done"
        if dag is DagState.RUNNING:
            return None
        if dag is DagState.NOT_SUBMITTED:
            return "not before its DAG is submitted"
        if dag is not DagState.UNKNOWN:
            return f"not while {_DAG_WORDS[dag]}"
        if run.run in self.queued or self._lately(run):
            return None
        return "nothing of it is in the queue"

    def _lately(self, run: RunEntry) -> bool:
        """Whether it has done something not long ago."""
        latest, now = run.latest, self.ledger.as_of
        if latest is None or latest.since is None or now is None or self.usual is None:
            return False
        return elapsed(self.ledger, latest.since, now) <= RECENT * self.usual

    def _run(self, run: RunEntry, played: tuple[list[float], _CurrentState | None]) -> RunForecast:
        trials, now = played
        left = self._left(run)
        ended = _latest(e.completed for e in self.epochs[run.run] if e.completed is not None)
        own = [cycle.seconds for cycle in self.cycles[run.run] if cycle.ended]
        span = None
        if trials:
            others = self.history.ended - len(own)
            source = f"{_epochs(len(own))} of its own"
            source += f", {others} of other runs" if others else ""
            span = self._span(trials, source)
        why = self.stops[run.run] or (self._unknown() if not self.history.ended else None)
        return RunForecast(
            run.run,
            run.run_name,
            run.state,
            run.epochs_done,
            run.epochs_total,
            left,
            now.epoch.epoch if now is not None else None,
            _pace(own),
            span,
            self._span(now.trials, now.source, now.samples) if now is not None else None,
            self._at(span),
            ended if not left else None,
            why if left and span is None else None,
            run.stopped,
        )

    def _played(self, run: RunEntry) -> tuple[list[float], _CurrentState | None]:
        """What is left of the run in each trial (nothing: it cannot be said, or is over), and
        of its epoch that is under way."""
        left = self._left(run)
        if not left or self.stops[run.run] is not None:
            return [], None
        waiting = [epoch for epoch in self.epochs[run.run] if epoch.state not in DONE]
        luck = _CommonRandomNumbers(run.run)
        now = self._now(run, waiting[0], luck) if waiting else None
        history = self.history
        if history.curve is None:
            return [], now
        # When one epoch of a run is given up its later ones never come, but they are counted.
        after = [history.expected(run.run, epoch.target) for epoch in waiting[1:left]]
        total = sum(after)
        shape = 1 / (history.within**2 * sum(each**2 for each in after) / total**2) if total else 0
        swing = history.swing_over(left)
        first = now.trials if now is not None and now.runs else self._first(run, waiting, luck)
        trials = []
        for i in range(TRIALS):
            common = exp(swing * _Z[i])
            begun = first[i] if now is not None and now.runs else first[i] * common
            rest = total * common * gamma(shape, _Z[luck.own[i]]) if total else 0.0
            trials.append(begun + rest)
        return trials, now

    def _first(
        self, run: RunEntry, waiting: Sequence[EpochEntry], luck: _CommonRandomNumbers
    ) -> list[float]:
        """What is left of the cycle under way when its epoch does not run now: by how long it
        has taken already, and never less than the training itself takes."""
        curve = self.history.past
        if curve is None or not waiting:
            return [0.0] * TRIALS
        age = next((c.seconds for c in self.cycles[run.run] if not c.ended), 0.0)
        ratio = self.history.expected(run.run, waiting[0].target) / self.history.usual
        training, _ = self.executions.curve(None, run.run)
        floor = training.remaining(LOW) if training is not None else 0.0
        return [max(floor, ratio * curve.remaining(_U[i], age)) for i in luck.first]

    def _now(
        self, run: RunEntry, epoch: EpochEntry, luck: _CommonRandomNumbers
    ) -> _CurrentState | None:
        """The epoch that is executed now, if one is."""
        entries = [self.executions.under_way.get(job) for job in epoch.jobs]
        running = [entry for entry in entries if entry is not None]
        if not running:
            trials = self._first(run, [epoch], luck)
            if self.history.curve is None or run.latest is None or not epoch.jobs:
                return None
            return _CurrentState(
                epoch, trials, f"{self.history.ended} epochs of all runs", None, False
            )
        entry = running[-1]
        again = self.history.expected(run.run, epoch.target)
        risk = self.executions.risk(entry.seconds)
        streamed = self.basis.streams.get(entry.job)
        told = _told(streamed, entry)
        if told is not None:
            trials = [told * exp(STREAM_SWING * _Z[i]) for i in luck.first]
            source, samples = "its progress line", 1
        else:
            curve, like = self.executions.curve(entry, run.run)
            if curve is None:
                return None
            trials = [curve.remaining(_U[i], entry.seconds) for i in luck.first]
            source, samples = f"{curve.events} executions on {like}", curve.events
            if like in ("its run", "all"):
                source = f"{curve.events} executions of {like}"
        lost = [i for i in range(TRIALS) if _U[luck.lost[i]] < risk]
        for i in lost:
            # What comes then is a cycle of its own, at least.
            trials[i] += again
        return _CurrentState(epoch, trials, source, samples, True)


def _to_be_trained(epochs: Iterable[EpochEntry], ends_before: int) -> Iterator[EpochEntry]:
    """Without those that a gate will leave out."""
    for epoch in epochs:
        if epoch.state in DONE or epoch.epoch is None or epoch.epoch < ends_before:
            yield epoch


@frozen
class _CurrentState:
    epoch: EpochEntry
    trials: list[float]
    source: str
    samples: int | None
    runs: bool


class _CommonRandomNumbers:
    """In which order a run goes through the chances, in three respects that do not depend on
    each other, nor on another run's: by its key, so that they stay."""

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

_WHICH: Final = {
    State.HELD: "is held",
    State.FAILED: "failed",
    State.REMOVED: "was removed",
}
"""What is said of a run that is left out."""

_PAUSED: Final = "not while it is paused"

_DAG_WORDS: Final = {
    DagState.HELD: "DAGMan is held",
    DagState.RESTARTING: "DAGMan is not running",
    DagState.DONE: "its DAG is done",
    DagState.FAILED: "its DAG is failed",
    DagState.REMOVED: "its DAG is removed",
}


def _which(run: RunForecast) -> str:
    if run.why_not == _PAUSED:
        return "is paused"
    return _WHICH.get(run.state, "does not go on")


def _told(streamed: Streamed | None, entry: ExecutionEntry) -> float | None:
    """Seconds that the running epoch's own progress line leaves."""
    if streamed is None:
        return None
    if streamed.remaining is not None and 0 <= streamed.remaining < 1e9:
        return max(1.0, streamed.remaining)
    fraction = streamed.fraction
    if fraction is not None and 0.02 <= fraction <= 1 and entry.seconds > 0:
        return max(1.0, entry.seconds * (1 - fraction) / fraction)
    return None


def _pace(seconds: Sequence[float]) -> EpochDurations | None:
    if not seconds:
        return None
    if len(seconds) < 3:
        return EpochDurations(median(seconds), None, None, len(seconds))
    lower, middle, upper = quarters(seconds)
    return EpochDurations(middle, lower, upper, len(seconds))


def _latest(times: Iterable[datetime]) -> datetime | None:
    return max(times, key=later, default=None)


def _epochs(n: int) -> str:
    return "1 epoch" if n == 1 else f"{n} epochs"
