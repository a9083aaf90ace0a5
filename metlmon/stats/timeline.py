"""Timeline of the ensemble: a lane of spans per run, and the concurrency.

Positions are seconds since the first submission, computed with the ledger's zone-aware
``between``: the repeated hour at the end of daylight saving time counts as an hour. The logged
times are stored beside them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from math import inf
from operator import itemgetter
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.live.feed import StatsInput
from metlmon.model.job_events import JobId
from metlmon.model.states import ACTIVE, TERMINAL, State
from metlmon.snapshot.derive import latest_by
from metlmon.snapshot.records import Execution, Job, Ledger, Run, job_key, plain_seconds
from metlmon.snapshot.row_text import PAUSED, STOPPED
from metlmon.stats.totals import group_by
from metlmon.stats.windows import ALL, TimeWindow, clip_ledger
from metlmon.text.formatting import Symbol
from metlmon.text.record_json import Nullable

Position = Callable[[datetime], float]
"""Converts a time to seconds since the start of the timeline."""

NO_RUN: Final = ""
"""Key of the lane of jobs that belong to no run."""

WAITING: Final = frozenset({State.IDLE, State.HELD})
"""States in which a job makes no progress until it is matched or released."""


class TimelineSpan(Struct, frozen=True):
    """The time that a job spent in one state.

    ``start``, ``end``: as logged (``end`` None: ongoing); ``start_position``, ``end_position``:
    seconds since the start of the timeline. ``execution``: the job's execution at that time.
    ``hold_reason``: the folded reason of a hold.
    """

    json_omits: ClassVar = frozenset(
        {"start_position", "end_position", "training", "execution", "hold_reason"}
    )
    json_properties: ClassVar = (
        "site",
        "seconds",
    )

    start_position: float
    end_position: float
    start: datetime
    end: datetime | None
    state: State
    job: JobId
    epoch: int | None
    node: str | None
    training: bool
    execution: Execution | None = None
    hold_reason: str | None = None

    @property
    def site(self) -> str | None:
        """Where the job ran at that time."""
        return self.execution.site if self.execution is not None else None

    @property
    def seconds(self) -> float:
        return self.end_position - self.start_position


class Lane(Struct, frozen=True):
    """The spans of one run in order of their start; two jobs of a run can overlap.

    ``key`` is :data:`NO_RUN` for jobs without a run. ``changes``: all starts and ends, in order.
    ``ends``: the running maximum of the spans' ends. ``symbol``: a symbol more specific than
    ``state``: the gate stopped the run, or pauses it.
    """

    json_omits: ClassVar = frozenset({"changes", "ends", "symbol"})

    key: Nullable[str]
    run: str
    uuid: str | None
    dag: Nullable[str]
    state: State | None
    spans: tuple[TimelineSpan, ...]
    changes: tuple[float, ...]
    ends: tuple[float, ...]
    symbol: Symbol | None = None

    def spans_between(self, low: float, high: float) -> Sequence[TimelineSpan]:
        """The spans that overlap ``low`` … ``high``, and possibly some earlier ones."""
        first = bisect_left(self.ends, low)
        last = bisect_left(self.spans, high, key=_start_position)
        return self.spans[first:last]

    def spans_at(self, at: float) -> tuple[TimelineSpan, ...]:
        """The spans at this position: trainings first, then executions."""
        started = bisect_right(self.spans, at, key=_start_position)
        spans = [
            span
            for span in self.spans[bisect_left(self.ends, at) : started]
            if at < span.end_position or span.end is None
        ]
        return tuple(
            sorted(spans, key=lambda s: (not s.training, s.execution is None, -s.start_position))
        )

    def span_before(self, at: float) -> TimelineSpan | None:
        """The last span that started before this position, by its end."""
        started = self.spans[: bisect_right(self.spans, at, key=_start_position)]
        return max(started, key=lambda span: span.end_position, default=None)

    def span_after(self, at: float) -> TimelineSpan | None:
        """The first span that starts after this position."""
        first = bisect_right(self.spans, at, key=_start_position)
        return self.spans[first] if first < len(self.spans) else None


def _start_position(span: TimelineSpan) -> float:
    return span.start_position


class CountStep(Struct, frozen=True):
    """The number of executions and their GPUs from ``position`` to the next step.

    The last step extends to the end of the timeline.
    """

    json_omits: ClassVar = frozenset({"position"})

    position: float
    time: datetime
    jobs: int
    gpus: int


class ExecutionGap(Struct, frozen=True):
    """An interval without executions. ``ongoing``: not over by as-of."""

    json_omits: ClassVar = frozenset({"start_position", "end_position"})
    json_properties: ClassVar = ("seconds",)

    start_position: float
    end_position: float
    start: datetime
    end: datetime
    ongoing: bool

    @property
    def seconds(self) -> float:
        return self.end_position - self.start_position


class Wait(Struct, frozen=True):
    """A span in which a job waited, with its lane."""

    lane: Lane
    span: TimelineSpan


class Timeline(Struct, frozen=True):
    """The timeline of an ensemble as of one time.

    ``first``: the first submission; ``last``: as-of while a job is in the queue or the ensemble
    is live, else the end of the last job; ``seconds``: the seconds between them. ``sites``: by
    descending execution time. ``steps``: from the first execution on. ``max_*``: the maxima of
    the steps. ``job_seconds``, ``gpu_seconds``: the sums over all executions (an unknown number
    of GPUs counts as 0), so that the mean concurrency is their quotient by ``seconds``.
    ``waits``: the waits at the end, longest first.
    """

    json_omits: ClassVar = frozenset(
        {"lanes", "sites", "executions", "waits", "longest_wait", "between"}
    )
    json_properties: ClassVar = (
        "mean_jobs",
        "mean_gpus",
    )

    first: datetime | None = None
    last: datetime | None = None
    seconds: float = 0.0
    lanes: tuple[Lane, ...] = ()
    sites: tuple[str | None, ...] = ()
    executions: tuple[Execution, ...] = ()
    steps: tuple[CountStep, ...] = ()
    stalls: tuple[ExecutionGap, ...] = ()
    waits: tuple[Wait, ...] = ()
    longest_wait: Wait | None = None
    max_jobs: int = 0
    max_gpus: int = 0
    job_seconds: float = 0.0
    gpu_seconds: float = 0.0
    between: Callable[[datetime, datetime], float] = plain_seconds

    @property
    def drawn_lanes(self) -> tuple[Lane, ...]:
        """The lanes, without that of the jobs of no run if none of these took time."""
        return tuple(lane for lane in self.lanes if lane.key != NO_RUN or lane.spans)

    @property
    def mean_jobs(self) -> float | None:
        """The mean number of concurrent jobs; None for an empty timeline."""
        return self.job_seconds / self.seconds if self.seconds else None

    @property
    def mean_gpus(self) -> float | None:
        """The mean number of GPUs in use; None for an empty timeline."""
        return self.gpu_seconds / self.seconds if self.seconds else None

    def position_of(self, when: datetime) -> float:
        """Seconds since the start of the timeline, negative before it."""
        if self.first is None:
            return 0.0
        return (
            self.between(self.first, when)
            if when >= self.first
            else -self.between(when, self.first)
        )

    def time_at(self, at: float) -> datetime | None:
        """The local time at a position; None if the timeline is empty or out of range."""
        if self.first is None:
            return None
        try:
            guess = self.first + timedelta(seconds=at)
            # Correct for a change of the UTC offset in between.
            return guess + timedelta(seconds=at - self.position_of(guess))
        except OverflowError:
            return None

    def step_at(self, at: float) -> CountStep | None:
        """The step at this position; None before the first execution."""
        index = bisect_right(self.steps, at, key=lambda step: step.position)
        return self.steps[index - 1] if index else None


def timeline(stats_input: StatsInput) -> Timeline:
    """The statistic of the timeline screen."""
    return build_timeline(stats_input.ledger)


def build_timeline(ledger: Ledger, window: TimeWindow = ALL) -> Timeline:
    """Build the timeline of a ledger, without the DAGMan jobs of sub-DAGs.

    ``window``: only this part of it, in which spans begin and end where the window does.
    Executions keep their own times; their seconds are those inside.
    """
    first = ledger.first_time
    if first is None:
        return Timeline()
    last = _end_time(ledger, [job for job in ledger.jobs if not job.dagman])
    began = min((e.start for e in ledger.executions if not e.at_access_point), default=last)
    first, last = max(first, window.since or first), min(last, window.until or last)
    if first >= last and not window.unbounded:
        return Timeline()
    ledger = clip_ledger(ledger, window)
    jobs = [job for job in ledger.jobs if not job.dagman]
    executions = [entry for entry in ledger.executions if not entry.at_access_point]
    # Times before the first one are at 0.
    axis = TimeAxis(ledger, [first])
    position: Position = axis.position
    length = position(last)
    if (until := window.until) is not None:
        jobs = [job.with_states([each for each in job.states if each[0] < until]) for job in jobs]
        position = lambda when: min(axis.position(when), length)  # noqa: E731
    lanes = _lanes(ledger, jobs, executions, last, position)
    steps = list(concurrency(executions, position))
    if until is not None:
        steps = [step for step in steps if step.position < length]
    if window.since is not None:
        steps = [replace(step, time=max(step.time, first)) for step in steps]
        if began < first and (not steps or steps[0].position > 0):
            steps.insert(0, CountStep(0.0, first, 0, 0))
    stalls = _stalls(steps, length, last, ongoing=last != window.until)
    waiting = [Wait(lane, span) for lane in lanes for span in lane.spans if span.state in WAITING]
    waits = sorted((w for w in waiting if w.span.end is None), key=lambda w: -w.span.seconds)
    return Timeline(
        first=first,
        last=last,
        seconds=length,
        lanes=lanes,
        sites=_sites(executions),
        executions=tuple(executions),
        steps=tuple(steps),
        stalls=stalls,
        waits=tuple(waits),
        longest_wait=max(waiting, key=lambda wait: wait.span.seconds, default=None),
        max_jobs=max((step.jobs for step in steps), default=0),
        max_gpus=max((step.gpus for step in steps), default=0),
        job_seconds=sum(entry.seconds for entry in executions),
        gpu_seconds=sum(entry.gpu_seconds or 0.0 for entry in executions),
        between=ledger.seconds_between,
    )


def _end_time(ledger: Ledger, jobs: Iterable[Job]) -> datetime:
    ends = [job.states[-1][0] for job in jobs if job.states]
    all_ended = all(job.state in TERMINAL for job in jobs)
    newest = max(ends, default=ledger.as_of)
    if ledger.as_of is None or (all_ended and not ledger.live):
        assert newest is not None
        return newest
    return ledger.as_of if newest is None else max(newest, ledger.as_of)


class TimeAxis:
    """Converts times to seconds since the first of some times, with a cache.

    By the ledger's zone-aware clock, so that the repeated hour at the end of daylight saving time
    counts as an hour. ``now``: the position of as-of.
    """

    def __init__(self, ledger: Ledger, times: Iterable[datetime]) -> None:
        self._ledger = ledger
        self._cache: dict[tuple[datetime, int], float] = {}
        self._first: datetime | None = None
        for when in times:
            if self._first is None or ledger.seconds_between(when, self._first) > 0:
                self._first = when
        self.now = 0.0 if ledger.as_of is None else self.position(ledger.as_of)

    def position(self, when: datetime) -> float:
        """Seconds since the first time."""
        key = (when, when.fold)
        if key not in self._cache:
            first = self._first
            self._cache[key] = 0.0 if first is None else self._ledger.seconds_between(first, when)
        return self._cache[key]


# --- lanes ----------------------------------------------------------------------------------


def _lanes(
    ledger: Ledger,
    jobs: Iterable[Job],
    executions: Sequence[Execution],
    last: datetime,
    position: Position,
) -> tuple[Lane, ...]:
    job_executions = group_by(executions, job_key)
    runs = {run.key: run for run in ledger.runs}
    spans = {
        key: [
            span
            for job in group
            for span in _spans(job, job_executions.get(job_key(job), ()), last, position)
        ]
        for key, group in group_by(jobs, lambda job: job.key if job.key in runs else NO_RUN).items()
    }
    lanes = [_lane(run.key, run, spans.get(run.key, ())) for run in ledger.runs]
    # A job that took no time has executions, but no span.
    if spans.get(NO_RUN) or any(entry.key not in runs for entry in executions):
        lanes.append(_lane(NO_RUN, None, spans.get(NO_RUN, ())))
    return tuple(lanes)


def _lane(key: str, run: Run | None, spans: Iterable[TimelineSpan]) -> Lane:
    """The lane of a run; None: of the jobs of no run."""
    ordered = tuple(sorted(spans, key=lambda span: (span.start_position, span.end_position)))
    symbol = None
    if run is not None:
        symbol = STOPPED if run.stopped else PAUSED if run.paused else None
    return Lane(
        key=key,
        run="no run" if run is None else run.run,
        uuid=None if run is None else run.uuid,
        dag="" if run is None else run.dag,
        state=None if run is None else run.state,
        spans=ordered,
        changes=tuple(sorted({p for s in ordered for p in (s.start_position, s.end_position)})),
        ends=tuple(accumulate((span.end_position for span in ordered), max)),
        symbol=symbol,
    )


def _spans(
    job: Job, executions: Sequence[Execution], last: datetime, position: Position
) -> Iterable[TimelineSpan]:
    """The spans of a job's states that took time; time never goes backwards."""
    entered = list(job.states)
    if not entered:
        return
    in_queue_at_end = entered[-1][1] not in TERMINAL
    starts = [position(entry.start) for entry in executions]
    ends = [inf if entry.end is None else position(entry.end) for entry in executions]
    # By position: where clocks go back, a later execution has an earlier local time.
    pending = sorted(range(len(starts)), key=starts.__getitem__, reverse=True)
    running: list[int] = []
    find_hold = latest_by([hold.start for hold in job.holds])
    entered.append((last, State.COMPLETED))
    since = entered[0]
    for index, (when, state) in enumerate(entered[1:], start=1):
        open_end = index == len(entered) - 1
        if open_end and not in_queue_at_end:
            return
        begin, end = position(since[0]), position(when)
        if end <= begin and not open_end:
            # The state took no time; the next one starts at the later of the two times.
            since = (max(since[0], when, key=position), state)
            continue
        hold = find_hold(since[0]) if since[1] is State.HELD else None
        while pending and starts[pending[-1]] <= begin:
            running.append(pending.pop())
        running = [index for index in running if ends[index] > begin]
        yield TimelineSpan(
            start_position=begin,
            end_position=max(begin, end),
            start=since[0],
            end=None if open_end else when,
            state=since[1],
            job=job.job,
            epoch=job.epoch,
            node=job.node,
            training=job.training,
            execution=executions[min(running)] if running else None,
            hold_reason=None if hold is None else job.holds[hold].cause,
        )
        since = (when, state)


# --- concurrency ----------------------------------------------------------------------------


def concurrency(executions: Iterable[Execution], at: Position) -> tuple[CountStep, ...]:
    """The number of concurrent executions and of their GPUs, as a step function.

    Executions in flight have no end. The integral over time is the sum of the executions'
    seconds.
    """
    changes: list[tuple[float, datetime, int, int]] = []
    for entry in executions:
        if entry.end is None or at(entry.end) > at(entry.start):
            changes.append((at(entry.start), entry.start, 1, entry.gpus or 0))
            if entry.end is not None:
                changes.append((at(entry.end), entry.end, -1, -(entry.gpus or 0)))
    steps: dict[float, CountStep] = {}
    jobs = gpus = 0
    for position, when, job_delta, gpu_delta in sorted(changes, key=itemgetter(0)):
        jobs, gpus = jobs + job_delta, gpus + gpu_delta
        # Of several changes at a position, the last one has the sums after it.
        steps[position] = CountStep(position, when, jobs, gpus)
    return tuple(steps.values())


def _stalls(
    steps: Sequence[CountStep], length: float, last: datetime, *, ongoing: bool
) -> tuple[ExecutionGap, ...]:
    """The intervals without executions, from the first execution to the end.

    ``ongoing``: whether one at the end is.
    """
    stalls = [
        ExecutionGap(step.position, after.position, step.time, after.time, False)
        for step, after in pairwise(steps)
        if step.jobs == 0
    ]
    if steps and steps[-1].jobs == 0 and steps[-1].position < length:
        stalls.append(ExecutionGap(steps[-1].position, length, steps[-1].time, last, ongoing))
    return tuple(stalls)


def _sites(executions: Iterable[Execution]) -> tuple[str | None, ...]:
    sites = group_by(executions, lambda entry: entry.site).items()
    seconds = {site: sum(entry.seconds for entry in entries) for site, entries in sites}
    return tuple(sorted(seconds, key=lambda site: (-seconds[site], site or "")))


def job_states_at(timeline: Timeline, at: float) -> Mapping[State, int]:
    """The number of jobs in each state at a position."""
    spans = (span for lane in timeline.lanes for span in lane.spans_at(at))
    return Counter(span.state for span in spans if span.state in ACTIVE)
