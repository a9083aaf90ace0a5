"""Trouble by its cause, kept: what struck which job, and what it cost.

Definitions are those of ``domain.md``. What depends on as-of (a transfer that goes on, a lost
contact) is looked at when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

from metlmon.model.clock import Clock
from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.job_events import Job, JobId
from metlmon.model.reasons import cause_of
from metlmon.model.states import Outcome, State
from metlmon.snapshot.running_totals import AN_HOUR, SECOND, JobKey

STALLED_TRANSFER: Final = timedelta(minutes=30)
"""Input transfers of tens of GB take minutes; one that is still going after this long has
in every real log ended in an eviction, not in an execution."""

STALLED_DISCONNECT: Final = timedelta(minutes=10)
"""24 of 26 real disconnects reconnected; the others failed within the lease of 40 minutes.
After this long it is worth a look."""

Cause: TypeAlias = tuple[str, str]
"""Kind of trouble, and its cause."""

STUCK: Final[Cause] = ("stalled", "input transfer stalled")
OUT_OF_TOUCH: Final[Cause] = ("stalled", "lost contact with the execute host")


class OccurrenceKind(IntEnum):
    """What is said of a job: trouble struck; a hold, which is struck by the end it made; what
    a hold's eviction cost; a job is in trouble now."""

    STRUCK = 0
    HOLD = 1
    COST = 2
    NOW = 3


class Occurrence(NamedTuple):
    """``micros``: GPU-microseconds that it cost."""

    cause: Cause
    mark: OccurrenceKind
    when: datetime | None = None
    micros: int = 0
    code: int | None = None
    subcode: int | None = None
    reason: str | None = None


@dataclass(slots=True)
class ProblemTotals:
    """One cause, added up over jobs. ``jobs``: when it struck each last; ``latest``: those, the
    latest first; ``runs``: the keys of their runs."""

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
    def lost(self) -> float:
        """GPU-hours."""
        return self.micros / AN_HOUR

    def add(self, job: JobId, strike: Occurrence) -> None:
        match strike.mark:
            case OccurrenceKind.COST:
                self.micros += strike.micros
                return
            case OccurrenceKind.NOW:
                self.now.add(job)
                return
            case OccurrenceKind.STRUCK:
                self.times += 1
                self.micros += strike.micros
                when = strike.when or datetime.min
                self.jobs[job] = max(self.jobs.get(job, datetime.min), when)
                self.example = strike.reason or self.example
        if strike.cause[0] != "stalled":
            self.code, self.subcode = strike.code, strike.subcode


class ProblemIndex:
    """All trouble of an ensemble."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of_job: dict[JobKey, Sequence[Occurrence]] = {}
        self._runs: dict[JobKey, str] = {}
        self._by_cause: dict[Cause, dict[JobKey, None]] = {}
        self._drawn: dict[Cause, ProblemTotals] = {}
        self._moving: dict[JobKey, Job] = {}
        self._causes: dict[Cause, Cause] = {}

    def take(self, key: JobKey, job: Job, run: str | None) -> None:
        """Put in what is to be said of the job now, in place of what was; ``run``: its run's
        key."""
        life = job.life()
        strikes = tuple(self._of(job, life))
        before = self._of_job.get(key, ())
        if strikes != before or (strikes and run != self._runs.get(key)):
            for cause in {each[0] for each in before}:
                del self._by_cause[cause][key]
                self._drawn.pop(cause, None)
            for cause in {each.cause for each in strikes}:
                self._by_cause.setdefault(cause, {})[key] = None
                self._drawn.pop(cause, None)
            self._of_job[key] = strikes
            if not strikes:
                del self._of_job[key]
        moving = life.state is State.DISCONNECTED or any(map(_goes_on, life.transfers))
        if moving:
            self._moving[key] = job
        else:
            self._moving.pop(key, None)
        if run is not None and (strikes or moving):
            self._runs[key] = run
        else:
            self._runs.pop(key, None)

    def drop(self, key: JobKey) -> None:
        """Nothing is to be said of the job any more."""
        for cause in {each[0] for each in self._of_job.pop(key, ())}:
            del self._by_cause[cause][key]
            self._drawn.pop(cause, None)
        self._moving.pop(key, None)
        self._runs.pop(key, None)

    def of_job(self, key: JobKey) -> tuple[Any, str | None]:
        """What is said of a job, as plain data, and its run."""
        strikes = [(each[0], int(each[1]), *each[2:]) for each in self._of_job.get(key, ())]
        return strikes, self._runs.get(key)

    def kept(self) -> Any:
        """As plain data what :meth:`of_job` does not tell."""
        return list(self._moving)

    def recall_job(self, key: JobKey, strikes: Any, run: str | None) -> None:
        """What another had said of a job (:meth:`of_job`)."""
        if run is not None:
            self._runs[key] = run
        if strikes:
            # They are made Strikes when they are looked at.
            said: Any = tuple([(self._one(each[0]), *each[1:]) for each in strikes])
            self._of_job[key] = said
            for cause in {each[0] for each in said}:
                self._by_cause.setdefault(cause, {})[key] = None

    def recall(self, kept: Any, jobs: Mapping[JobKey, Job]) -> None:
        """What another had :meth:`kept`."""
        self._moving = {key: jobs[key] for key in kept}

    def by_cause(self, as_of: datetime | None) -> Mapping[Cause, ProblemTotals]:
        """All trouble up to ``as_of``."""
        moving: dict[Cause, dict[JobKey, list[Occurrence]]] = {}
        for key, job in self._moving.items():
            for strike in self._present(job, job.life(), as_of):
                moving.setdefault(strike.cause, {}).setdefault(key, []).append(strike)
        found: dict[Cause, ProblemTotals] = {}
        for cause in {**self._by_cause, **moving}:
            if cause in moving:
                found[cause] = self._draw(cause, moving[cause])
            elif self._by_cause[cause]:
                if cause not in self._drawn:
                    self._drawn[cause] = self._draw(cause, {})
                found[cause] = self._drawn[cause]
        return found

    def _draw(self, cause: Cause, moving: Mapping[JobKey, Iterable[Occurrence]]) -> ProblemTotals:
        trouble = ProblemTotals()
        for key in sorted({*self._by_cause.get(cause, ()), *moving}):
            job = (key[0], key[1])
            for strike in map(Occurrence._make, (*self._of_job.get(key, ()), *moving.get(key, ()))):
                if strike.cause == cause:
                    trouble.add(job, strike)
            run = self._runs.get(key)
            if run is not None and job in trouble.jobs:
                trouble.runs[run] = None
        struck = trouble.jobs
        trouble.latest = tuple(sorted(struck, key=struck.__getitem__, reverse=True))
        return trouble

    # --- one job ------------------------------------------------------------------------

    def _of(self, job: Job, life: JobHistory) -> Iterable[Occurrence]:
        for execution in life.executions:
            if execution.outcome not in (Outcome.GOOD, Outcome.IN_FLIGHT):
                yield self._bad_end(execution)
        yield from self._holds(life)
        for span in life.transfers:
            if span.end is not None and self._stuck(span, span.end):
                yield Occurrence(STUCK, OccurrenceKind.STRUCK, span.end)

    def _bad_end(self, e: Execution) -> Occurrence:
        micros = round(self._clock.seconds(e.start, e.end or e.start) * SECOND) * (e.gpus or 0)
        if e.held_by is not None:
            # The eviction was the hold's doing: what it cost is the hold's.
            held = e.held_by
            return Occurrence(self._held(held.code, held.reason), OccurrenceKind.COST, None, micros)
        cause = self._one((str(e.outcome), e.cause))
        return Occurrence(cause, OccurrenceKind.STRUCK, e.end, micros, e.code, e.subcode, e.reason)

    def _holds(self, life: JobHistory) -> Iterable[Occurrence]:
        ends = {e.end for e in life.executions if e.outcome is Outcome.HELD}
        for when, held in life.holds:
            reason, code = (held.reason, held.code) if held else (None, None)
            mark = OccurrenceKind.HOLD if when in ends else OccurrenceKind.STRUCK
            subcode = held.subcode if held else None
            yield Occurrence(self._held(code, reason), mark, when, 0, code, subcode, reason)
        if life.state is State.HELD and life.hold is not None:
            yield Occurrence(self._held(life.hold.code, life.hold.reason), OccurrenceKind.NOW)

    def _stuck(self, span: TransferSpan, end: datetime) -> bool:
        if span.direction != "input" or span.outcome not in ("unfinished", "in-flight"):
            return False
        return span.start is not None and self._longer(span.start, end, STALLED_TRANSFER)

    def _longer(self, start: datetime, end: datetime, than: timedelta) -> bool:
        return self._clock.seconds(start, end) >= than.total_seconds()

    def _present(self, job: Job, life: JobHistory, as_of: datetime | None) -> Iterable[Occurrence]:
        """What lasts still."""
        if as_of is None:
            return
        for span in life.transfers:
            if span.end is None and self._stuck(span, as_of):
                yield Occurrence(STUCK, OccurrenceKind.STRUCK, as_of)
                if life.state is State.TRANSFERRING_INPUT:
                    yield Occurrence(STUCK, OccurrenceKind.NOW)
        lost = life.since if life.state is State.DISCONNECTED else None
        if lost is not None and self._longer(lost, as_of, STALLED_DISCONNECT):
            yield Occurrence(OUT_OF_TOUCH, OccurrenceKind.STRUCK, lost)
            yield Occurrence(OUT_OF_TOUCH, OccurrenceKind.NOW)

    def _held(self, code: int | None, reason: str | None) -> Cause:
        return self._one((str(Outcome.HELD), cause_of(Outcome.HELD, code, reason, None, None)))

    def _one(self, cause: Cause) -> Cause:
        """One object for all that were struck by it."""
        return self._causes.setdefault(cause, cause)


def _goes_on(span: TransferSpan) -> bool:
    return span.end is None and span.direction == "input"
