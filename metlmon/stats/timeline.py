"""When what ran where: a lane of spans for each run, and how many ran at a time.

Everything here is seconds since the timeline's first moment, zone-aware by the ledger's own
``between``: the hour that an autumn night has twice is an hour long. The stamps as logged
stand beside them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from math import inf
from typing import Final

from metlmon.frozen import frozen
from metlmon.model.job_events import JobId
from metlmon.model.job_times import latest_by
from metlmon.model.states import ACTIVE, TERMINAL, State
from metlmon.snapshot.gate_text import PAUSED, STOPPED
from metlmon.snapshot.ledger import ExecutionEntry, JobEntry, Ledger, plain_seconds
from metlmon.stats.worker import StatsInput
from metlmon.text.formatting import Symbol

NO_RUN: Final = ""
"""Key of the lane of jobs that belong to no run."""

WAITING: Final = frozenset({State.IDLE, State.HELD})
"""States in which a job gets nowhere until somebody gives it a machine or releases it."""


@frozen
class TimelineSpan:
    """A job's time in one state. ``start``, ``end`` as logged (``end`` None: it lasts),
    ``at``, ``until``: seconds since the timeline's first moment. ``execution``: the one that
    the job was in then. ``why``: of a hold its folded reason."""

    at: float
    until: float
    start: datetime
    end: datetime | None
    state: State
    job: JobId
    epoch: int | None
    node: str | None
    training: bool
    execution: ExecutionEntry | None = None
    why: str | None = None

    @property
    def seconds(self) -> float:
        return self.until - self.at


@frozen
class Lane:
    """One run's spans in order of their start (two jobs of a run can overlap). ``key``
    :data:`NO_RUN`: those of jobs of no run. ``changes``: every moment at which something
    begins or ends, in order. ``ends``: the latest end of all spans up to each. ``sign``: what
    tells more than ``state`` does: its gate stopped it, or keeps it waiting."""

    key: str
    name: str
    uuid: str | None
    dag: str
    state: State | None
    spans: tuple[TimelineSpan, ...]
    changes: tuple[float, ...]
    ends: tuple[float, ...]
    sign: Symbol | None = None

    def between(self, low: float, high: float) -> Sequence[TimelineSpan]:
        """The spans that reach into ``low`` … ``high``, and perhaps some before them."""
        first = bisect_left(self.ends, low)
        last = bisect_left(self.spans, high, key=_at)
        return self.spans[first:last]

    def then(self, at: float) -> tuple[TimelineSpan, ...]:
        """What its jobs were at, at this moment; the training first, executions first."""
        begun = bisect_right(self.spans, at, key=_at)
        found = [
            span
            for span in self.spans[bisect_left(self.ends, at) : begun]
            if at < span.until or span.end is None
        ]
        return tuple(sorted(found, key=lambda s: (not s.training, s.execution is None, -s.at)))

    def before(self, at: float) -> TimelineSpan | None:
        """What ended last, before this moment."""
        begun = self.spans[: bisect_right(self.spans, at, key=_at)]
        return max(begun, key=lambda span: span.until, default=None)

    def after(self, at: float) -> TimelineSpan | None:
        """What begins next, after this moment."""
        first = bisect_right(self.spans, at, key=_at)
        return self.spans[first] if first < len(self.spans) else None


def _at(span: TimelineSpan) -> float:
    return span.at


@frozen
class CountStep:
    """From ``at`` (``time``) to the next step, the last one to the end of the timeline, so many
    executions ran, on so many GPUs.
    ``jobs_by`` and ``gpus_by`` are the same by site."""

    at: float
    time: datetime
    jobs: int
    gpus: int
    jobs_by: Mapping[str | None, int]
    gpus_by: Mapping[str | None, int]


@frozen
class Ran:
    """An execution and when it was, in seconds since the first moment."""

    at: float
    until: float
    entry: ExecutionEntry


@frozen
class Stall:
    """A stretch in which nothing ran. ``lasts``: up to the end of the timeline."""

    at: float
    until: float
    start: datetime
    end: datetime
    lasts: bool

    @property
    def seconds(self) -> float:
        return self.until - self.at


@frozen
class Wait:
    """A span in which a job waited, and whose."""

    lane: Lane
    span: TimelineSpan


@frozen
class Timeline:
    """All of it, at one moment.

    ``first`` is the first submission; ``last`` as-of while something is in the queue or the
    ensemble is live, else the moment when the last job ended; ``length`` the seconds between.
    ``sites``: by seconds executed, most first. ``steps``: from the first execution on.
    ``max_*`` are of the steps, ``job_seconds`` and ``gpu_seconds`` the sums of all executions
    (one whose GPUs are not known counts as 0 of them), so that the mean over ``length`` is
    their quotient. ``waits``: what waits at the end, longest first.
    """

    first: datetime | None
    last: datetime | None
    live: bool
    length: float
    lanes: tuple[Lane, ...]
    sites: tuple[str | None, ...]
    ran: tuple[Ran, ...]
    steps: tuple[CountStep, ...]
    stalls: tuple[Stall, ...]
    waits: tuple[Wait, ...]
    longest_wait: Wait | None
    max_jobs: int
    max_gpus: int
    job_seconds: float
    gpu_seconds: float
    between: Callable[[datetime, datetime], float] = field(default=plain_seconds, compare=False)

    def seconds(self, when: datetime) -> float:
        """Seconds since the first moment, negative before it."""
        if self.first is None:
            return 0.0
        return (
            self.between(self.first, when)
            if when >= self.first
            else -self.between(when, self.first)
        )

    def moment(self, at: float) -> datetime | None:
        """The local time that many seconds after the first moment; None of nothing, or where
        no calendar reaches."""
        if self.first is None:
            return None
        try:
            guess = self.first + timedelta(seconds=at)
            # As the stamps stand it may be off by what the clocks were turned in between.
            return guess + timedelta(seconds=at - self.seconds(guess))
        except OverflowError:
            return None

    def step(self, at: float) -> CountStep | None:
        """How many ran at this moment; None before the first execution."""
        found = bisect_right(self.steps, at, key=lambda step: step.at)
        return self.steps[found - 1] if found else None


NOTHING: Final = Timeline(None, None, False, 0.0, (), (), (), (), (), (), None, 0, 0, 0.0, 0.0)


def timeline(basis: StatsInput) -> Timeline:
    """The figure; see :class:`Timeline`."""
    return drawn_up(basis.ledger)


def drawn_up(ledger: Ledger) -> Timeline:
    """The timeline of a ledger. Jobs of sub-DAGs' DAGMans are not in it."""
    first = ledger.first
    if first is None:
        return NOTHING
    jobs = [job for job in ledger.jobs if not job.dagman]
    executions = [entry for entry in ledger.executions if not entry.dagman]
    last = _last(ledger, jobs)
    place = _Placed(ledger, first, last)
    lanes = _lanes(ledger, jobs, executions, place)
    length = place.at(last)
    steps = concurrency(executions, place.at)
    stalls = _stalls(steps, length, last)
    waiting = [Wait(lane, span) for lane in lanes for span in lane.spans if span.state in WAITING]
    waits = sorted((w for w in waiting if w.span.end is None), key=lambda w: -w.span.seconds)
    return Timeline(
        first,
        last,
        ledger.live,
        length,
        lanes,
        _sites(executions),
        tuple(Ran(place.at(e.start), place.at(e.end or last), e) for e in executions),
        steps,
        stalls,
        tuple(waits),
        max(waiting, key=lambda wait: wait.span.seconds, default=None),
        max((step.jobs for step in steps), default=0),
        max((step.gpus for step in steps), default=0),
        sum(entry.seconds for entry in executions),
        sum(entry.gpu_seconds or 0.0 for entry in executions),
        ledger.between,
    )


def _last(ledger: Ledger, jobs: Iterable[JobEntry]) -> datetime:
    ends = [job.states[-1][0] for job in jobs if job.states]
    over = all(job.state in TERMINAL for job in jobs)
    newest = max(ends, default=ledger.as_of)
    if ledger.as_of is None or (over and not ledger.live):
        assert newest is not None
        return newest
    return ledger.as_of if newest is None else max(newest, ledger.as_of)


class _Placed:
    """Stamps → seconds since the first moment; many things begin when another ends."""

    def __init__(self, ledger: Ledger, first: datetime, last: datetime) -> None:
        self._between = ledger.between
        self._first = first
        self._known: dict[tuple[datetime, int], float] = {}
        self.last = last

    def at(self, when: datetime) -> float:
        key = (when, when.fold)
        if key not in self._known:
            self._known[key] = self._between(self._first, when)
        return self._known[key]


# --- lanes ----------------------------------------------------------------------------------


def _lanes(
    ledger: Ledger, jobs: Iterable[JobEntry], executions: Iterable[ExecutionEntry], place: _Placed
) -> tuple[Lane, ...]:
    ran: dict[JobId, list[ExecutionEntry]] = {}
    for entry in executions:
        ran.setdefault(entry.job, []).append(entry)
    by_run: dict[str, list[TimelineSpan]] = {run.run: [] for run in ledger.runs}
    for job in jobs:
        spans = by_run.setdefault(job.run or NO_RUN, [])
        spans += _spans(job, ran.get(job.job, ()), place)
    lanes = [
        replace(
            _lane(run.run, run.run_name, run.uuid, run.dag, run.state, by_run[run.run]),
            sign=STOPPED if run.stopped else PAUSED if run.paused else None,
        )
        for run in ledger.runs
    ]
    known = {run.run for run in ledger.runs}
    stray = [span for key, spans in by_run.items() if key not in known for span in spans]
    if stray:
        lanes.append(_lane(NO_RUN, "no run", None, "", None, stray))
    return tuple(lanes)


def _lane(
    key: str,
    name: str,
    uuid: str | None,
    dag: str,
    state: State | None,
    spans: Iterable[TimelineSpan],
) -> Lane:
    made = tuple(sorted(spans, key=lambda span: (span.at, span.until)))
    changes = sorted({edge for span in made for edge in (span.at, span.until)})
    ends = tuple(accumulate((span.until for span in made), max))
    return Lane(key, name, uuid, dag, state, made, tuple(changes), ends)


def _spans(
    job: JobEntry, executions: Sequence[ExecutionEntry], place: _Placed
) -> Iterable[TimelineSpan]:
    """The states of a job that took time. One stamped before the one ahead of it does not
    turn time back."""
    entered = list(job.states)
    if not entered:
        return
    lasting = entered[-1][1] not in TERMINAL
    running = _Running(executions, place)
    find_hold = latest_by([hold.start for hold in job.holds])
    entered.append((place.last, State.COMPLETED))
    since = entered[0]
    for at, (when, state) in enumerate(entered[1:], start=1):
        open_end = at == len(entered) - 1
        if open_end and not lasting:
            return
        begin, end = place.at(since[0]), place.at(when)
        if end <= begin and not open_end:
            # It took no time; what came after it began at the later of the two.
            since = (max(since[0], when, key=place.at), state)
            continue
        yield TimelineSpan(
            begin,
            max(begin, end),
            since[0],
            None if open_end else when,
            since[1],
            job.job,
            job.epoch,
            job.node,
            job.training,
            running.at(begin),
            _why(job, find_hold(since[0])) if since[1] is State.HELD else None,
        )
        since = (when, state)


def _why(job: JobEntry, hold: int | None) -> str | None:
    return None if hold is None else job.holds[hold].cause


class _Running:
    """Which execution of a job ran at a moment, for moments that only grow."""

    def __init__(self, executions: Sequence[ExecutionEntry], place: _Placed) -> None:
        begun = [(place.at(entry.start), index) for index, entry in enumerate(executions)]
        self._coming = sorted(begun, reverse=True)
        self._begun: list[tuple[int, float]] = []
        self._executions, self._place = executions, place

    def at(self, moment: float) -> ExecutionEntry | None:
        """The first in the log of those that run at ``moment``."""
        while self._coming and self._coming[-1][0] <= moment:
            index = self._coming.pop()[1]
            end = self._executions[index].end
            heappush(self._begun, (index, inf if end is None else self._place.at(end)))
        while self._begun and self._begun[0][1] <= moment:
            heappop(self._begun)
        return self._executions[self._begun[0][0]] if self._begun else None


# --- how many at a time ---------------------------------------------------------------------


def concurrency(
    executions: Iterable[ExecutionEntry], at: Callable[[datetime], float]
) -> tuple[CountStep, ...]:
    """How many executions ran, and on how many GPUs, as steps. Those in flight run on. The
    integral over time is the sum of the executions' seconds."""
    moves: list[tuple[float, datetime, int, int, str | None]] = []
    for entry in executions:
        gpus = entry.gpus or 0
        if entry.end is None or at(entry.end) > at(entry.start):
            moves.append((at(entry.start), entry.start, 1, gpus, entry.site))
        if entry.end is not None and at(entry.end) > at(entry.start):
            moves.append((at(entry.end), entry.end, -1, -gpus, entry.site))
    moves.sort(key=lambda move: move[0])
    jobs: dict[str | None, int] = {}
    gpus_by: dict[str | None, int] = {}
    steps: list[CountStep] = []
    for place, when, more, gpus, site in moves:
        jobs = {**jobs, site: jobs.get(site, 0) + more}
        gpus_by = {**gpus_by, site: gpus_by.get(site, 0) + gpus}
        step = CountStep(place, when, sum(jobs.values()), sum(gpus_by.values()), jobs, gpus_by)
        if steps and steps[-1].at == place:
            steps[-1] = step
        else:
            steps.append(step)
    return tuple(steps)


def _stalls(steps: Sequence[CountStep], length: float, last: datetime) -> tuple[Stall, ...]:
    """When nothing ran, between the first execution and the end."""
    found = [
        Stall(step.at, after.at, step.time, after.time, False)
        for step, after in pairwise(steps)
        if step.jobs == 0
    ]
    if steps and steps[-1].jobs == 0 and steps[-1].at < length:
        found.append(Stall(steps[-1].at, length, steps[-1].time, last, True))
    return tuple(found)


def _sites(executions: Iterable[ExecutionEntry]) -> tuple[str | None, ...]:
    seconds: dict[str | None, float] = {}
    for entry in executions:
        seconds[entry.site] = seconds.get(entry.site, 0.0) + entry.seconds
    return tuple(sorted(seconds, key=lambda site: (-seconds[site], site or "")))


def in_queue(made: Timeline, at: float) -> Mapping[State, int]:
    """How many jobs were in each state at this moment."""
    counts: dict[State, int] = {}
    for lane in made.lanes:
        for span in lane.then(at):
            if span.state in ACTIVE:
                counts[span.state] = counts.get(span.state, 0) + 1
    return counts
