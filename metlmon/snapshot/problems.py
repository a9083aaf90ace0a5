"""Problems of jobs by cause: occurrences, and what they cost.

Definitions are those of ``metlmon/README.md``. What depends on as-of (a transfer in progress, a
lost contact) is evaluated on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from metlmon.model.clock import Clock
from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.job_events import Job, JobId, JobKey
from metlmon.model.reasons import cause_of
from metlmon.model.states import Outcome, State
from metlmon.snapshot.totals import AN_HOUR, SECOND

TRANSFER_LIMIT: Final = timedelta(minutes=30)
"""Length of an input transfer from which it counts as stalled.

Input transfers of tens of GB take minutes; one still in progress after this long has in every
real log ended in an eviction, not in an execution.
"""

DISCONNECT_LIMIT: Final = timedelta(minutes=10)
"""Length of a disconnect from which it counts as a problem.

24 of 26 real disconnects reconnected; the others failed within the lease of 40 minutes.
"""

Cause: TypeAlias = tuple[str, str]
"""Kind of a problem, and its cause."""

STALLED_INPUT: Final[Cause] = ("stalled", "input transfer stalled")
LOST_CONTACT: Final[Cause] = ("stalled", "lost contact with the execute host")


class OccurrenceKind(IntEnum):
    """Kind of an occurrence.

    A problem occurred; a hold, whose eviction counts as the occurrence; the cost of a hold's
    eviction; the job has the problem now.
    """

    OCCURRED = 0
    HOLD = 1
    COST = 2
    NOW = 3


class Occurrence(NamedTuple):
    """One occurrence of a problem.

    ``micros``: the GPU-microseconds that it cost.
    """

    cause: Cause
    kind: OccurrenceKind
    when: datetime | None = None
    micros: int = 0
    code: int | None = None
    subcode: int | None = None
    reason: str | None = None


class ProblemTotals(Struct):
    """Totals of one cause over jobs.

    ``jobs``: the last occurrence of each job; ``latest``: these jobs, latest first; ``runs``: the
    keys of their runs.
    """

    now: set[JobId] = field(default_factory=set)
    times: int = 0
    micros: int = 0
    jobs: dict[JobId, datetime] = field(default_factory=dict)
    latest: tuple[JobId, ...] = ()
    runs: dict[str, None] = field(default_factory=dict)
    code: int | None = None
    subcode: int | None = None
    example: str | None = None

    @property
    def lost_hours(self) -> float:
        """GPU-hours."""
        return self.micros / AN_HOUR

    def add(self, job: JobId, occurrence: Occurrence) -> None:
        match occurrence.kind:
            case OccurrenceKind.COST:
                self.micros += occurrence.micros
                return
            case OccurrenceKind.NOW:
                self.now.add(job)
                return
            case OccurrenceKind.OCCURRED:
                self.times += 1
                self.micros += occurrence.micros
                when = occurrence.when or datetime.min
                self.jobs[job] = max(self.jobs.get(job, datetime.min), when)
                self.example = occurrence.reason or self.example
        if occurrence.cause[0] != "stalled":
            self.code, self.subcode = occurrence.code, occurrence.subcode


class ProblemIndex:
    """All problems of the jobs of an ensemble."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._occurrences: dict[JobKey, Sequence[Occurrence]] = {}
        self._runs: dict[JobKey, str] = {}
        self._by_cause: dict[Cause, dict[JobKey, None]] = {}
        self._totals: dict[Cause, ProblemTotals] = {}
        self._in_progress: dict[JobKey, Job] = {}
        self._causes: dict[Cause, Cause] = {}

    def add_job(self, key: JobKey, job: Job, run: str | None) -> None:
        """Replace the occurrences of a job; ``run``: the key of its run."""
        history = job.history()
        occurrences = tuple(self._occurrences_of(job, history))
        previous = self._occurrences.get(key, ())
        if occurrences != previous or (occurrences and run != self._runs.get(key)):
            for cause in {occurrence[0] for occurrence in previous}:
                del self._by_cause[cause][key]
                self._totals.pop(cause, None)
            for cause in {occurrence.cause for occurrence in occurrences}:
                self._by_cause.setdefault(cause, {})[key] = None
                self._totals.pop(cause, None)
            self._occurrences[key] = occurrences
            if not occurrences:
                del self._occurrences[key]
        in_progress = history.state is State.DISCONNECTED or any(
            map(_is_open_input, history.transfers)
        )
        if in_progress:
            self._in_progress[key] = job
        else:
            self._in_progress.pop(key, None)
        if run is not None and (occurrences or in_progress):
            self._runs[key] = run
        else:
            self._runs.pop(key, None)

    def drop_job(self, key: JobKey) -> None:
        """Remove the occurrences of a job."""
        for cause in {occurrence[0] for occurrence in self._occurrences.pop(key, ())}:
            del self._by_cause[cause][key]
            self._totals.pop(cause, None)
        self._in_progress.pop(key, None)
        self._runs.pop(key, None)

    def by_cause(self, as_of: datetime | None) -> Mapping[Cause, ProblemTotals]:
        """All problems up to ``as_of``."""
        current: dict[Cause, dict[JobKey, list[Occurrence]]] = {}
        for key, job in self._in_progress.items():
            for occurrence in self._current(job, job.history(), as_of):
                current.setdefault(occurrence.cause, {}).setdefault(key, []).append(occurrence)
        totals: dict[Cause, ProblemTotals] = {}
        for cause in {**self._by_cause, **current}:
            if cause in current:
                totals[cause] = self._total(cause, current[cause])
            elif self._by_cause[cause]:
                if cause not in self._totals:
                    self._totals[cause] = self._total(cause, {})
                totals[cause] = self._totals[cause]
        return totals

    def _total(self, cause: Cause, current: Mapping[JobKey, Iterable[Occurrence]]) -> ProblemTotals:
        totals = ProblemTotals()
        for key in sorted({*self._by_cause.get(cause, ()), *current}):
            job = (key[0], key[1])
            for occurrence in map(
                Occurrence._make, (*self._occurrences.get(key, ()), *current.get(key, ()))
            ):
                if occurrence.cause == cause:
                    totals.add(job, occurrence)
            run = self._runs.get(key)
            if run is not None and job in totals.jobs:
                totals.runs[run] = None
        last_times = totals.jobs
        totals.latest = tuple(sorted(last_times, key=last_times.__getitem__, reverse=True))
        return totals

    # --- one job ------------------------------------------------------------------------

    def _occurrences_of(self, job: Job, history: JobHistory) -> Iterable[Occurrence]:
        for execution in history.executions:
            if execution.outcome not in (Outcome.GOOD, Outcome.IN_FLIGHT):
                yield self._bad_end(execution)
        yield from self._holds(history)
        for span in history.transfers:
            if span.end is not None and self._is_stalled(span, span.end):
                yield Occurrence(STALLED_INPUT, OccurrenceKind.OCCURRED, span.end)

    def _bad_end(self, execution: Execution) -> Occurrence:
        micros = round(
            self._clock.seconds(execution.start, execution.end or execution.start) * SECOND
        ) * (execution.gpus or 0)
        if execution.held_by is not None:
            # The hold caused the eviction, so the cost is the hold's.
            held = execution.held_by
            return Occurrence(self._held(held.code, held.reason), OccurrenceKind.COST, None, micros)
        cause = self._interned((str(execution.outcome), execution.cause))
        return Occurrence(
            cause=cause,
            kind=OccurrenceKind.OCCURRED,
            when=execution.end,
            micros=micros,
            code=execution.code,
            subcode=execution.subcode,
            reason=execution.reason,
        )

    def _holds(self, history: JobHistory) -> Iterable[Occurrence]:
        ends = {
            execution.end for execution in history.executions if execution.outcome is Outcome.HELD
        }
        for when, held in history.holds:
            reason, code = (held.reason, held.code) if held else (None, None)
            kind = OccurrenceKind.HOLD if when in ends else OccurrenceKind.OCCURRED
            subcode = held.subcode if held else None
            yield Occurrence(
                cause=self._held(code, reason),
                kind=kind,
                when=when,
                micros=0,
                code=code,
                subcode=subcode,
                reason=reason,
            )
        if history.state is State.HELD and history.hold is not None:
            yield Occurrence(self._held(history.hold.code, history.hold.reason), OccurrenceKind.NOW)

    def _is_stalled(self, span: TransferSpan, end: datetime) -> bool:
        if span.direction != "input" or span.outcome not in ("unfinished", "in-flight"):
            return False
        return span.start is not None and self._lasted(span.start, end, TRANSFER_LIMIT)

    def _lasted(self, start: datetime, end: datetime, limit: timedelta) -> bool:
        return self._clock.seconds(start, end) >= limit.total_seconds()

    def _current(
        self, job: Job, history: JobHistory, as_of: datetime | None
    ) -> Iterable[Occurrence]:
        """Occurrences in progress at ``as_of``."""
        if as_of is None:
            return
        for span in history.transfers:
            if span.end is None and self._is_stalled(span, as_of):
                yield Occurrence(STALLED_INPUT, OccurrenceKind.OCCURRED, as_of)
                if history.state is State.TRANSFERRING_INPUT:
                    yield Occurrence(STALLED_INPUT, OccurrenceKind.NOW)
        lost = history.since if history.state is State.DISCONNECTED else None
        if lost is not None and self._lasted(lost, as_of, DISCONNECT_LIMIT):
            yield Occurrence(LOST_CONTACT, OccurrenceKind.OCCURRED, lost)
            yield Occurrence(LOST_CONTACT, OccurrenceKind.NOW)

    def _held(self, code: int | None, reason: str | None) -> Cause:
        return self._interned((str(Outcome.HELD), cause_of(Outcome.HELD, code, reason, None, None)))

    def _interned(self, cause: Cause) -> Cause:
        """The same object for all occurrences of a cause."""
        return self._causes.setdefault(cause, cause)


def _is_open_input(span: TransferSpan) -> bool:
    return span.end is None and span.direction == "input"
