"""Problems of jobs by cause: occurrences, and what they cost.

They are found in ledger entries; definitions are those of ``metlmon/README.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from metlmon.model.clock import Clock
from metlmon.model.job_events import JobId
from metlmon.model.states import Outcome, State
from metlmon.snapshot.ledger import ExecutionEntry, JobEntry, TransferEntry
from metlmon.snapshot.totals import AN_HOUR, SECOND, JobEntries

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


class Occurrence(NamedTuple):
    """One occurrence of a problem.

    ``when``: None for what is no occurrence of its own: the cost of a hold's eviction, and a
    problem that the job has at this moment (``now``). ``micros``: the GPU-microseconds that it
    cost. ``counted``: False for a hold whose eviction is counted as the occurrence.
    """

    cause: Cause
    when: datetime | None = None
    micros: int = 0
    code: int | None = None
    subcode: int | None = None
    reason: str | None = None
    now: bool = False
    counted: bool = True


class ProblemTotals:
    """Totals of one cause over jobs.

    ``now``: jobs that have the problem. ``times``: number of occurrences. ``jobs``: the last
    occurrence of each job. ``runs``: the keys of their runs, in order.
    """

    def __init__(self) -> None:
        self.now: set[JobId] = set()
        self.times = self.micros = 0
        self.jobs: dict[JobId, datetime] = {}
        self.runs: dict[str, None] = {}
        self.code: int | None = None
        self.subcode: int | None = None
        self.example: str | None = None

    @property
    def lost_hours(self) -> float:
        """GPU-hours."""
        return self.micros / AN_HOUR

    @property
    def latest(self) -> tuple[JobId, ...]:
        """The jobs, those of the latest occurrences first."""
        return tuple(sorted(self.jobs, key=self.jobs.__getitem__, reverse=True))

    def add(self, job: JobEntry, occurrence: Occurrence) -> None:
        self.micros += occurrence.micros
        if occurrence.now:
            self.now.add(job.job)
        if occurrence.when is None:
            return
        if occurrence.cause[0] != "stalled":
            self.code, self.subcode = occurrence.code, occurrence.subcode
        if occurrence.counted:
            self.times += 1
            last = self.jobs.get(job.job, datetime.min)
            self.jobs[job.job] = max(last, occurrence.when)
            self.example = occurrence.reason or self.example
            if job.run is not None:
                self.runs[job.run] = None


def problems_by_cause(
    jobs: Iterable[JobEntries], as_of: datetime | None, clock: Clock
) -> dict[Cause, ProblemTotals]:
    """All problems of these jobs up to ``as_of``."""
    totals: dict[Cause, ProblemTotals] = {}
    for entries in jobs:
        for occurrence in _occurrences(entries, as_of, clock):
            totals.setdefault(occurrence.cause, ProblemTotals()).add(entries.job, occurrence)
    return totals


def _occurrences(entries: JobEntries, as_of: datetime | None, clock: Clock) -> Iterator[Occurrence]:
    job = entries.job
    for execution in entries.executions:
        if execution.kind == "bad":
            yield _bad_end(execution)
    yield from _holds(job, entries.executions)
    for transfer in filter(_is_stalled, entries.transfers):
        now = transfer.end is None and job.state is State.TRANSFERRING_INPUT
        yield Occurrence(STALLED_INPUT, transfer.end or as_of, now=now)
    if job.state is State.DISCONNECTED and as_of is not None:
        since = job.states[-1][0]
        if clock.seconds(since, as_of) >= DISCONNECT_LIMIT.total_seconds():
            yield Occurrence(LOST_CONTACT, since, now=True)


def _bad_end(execution: ExecutionEntry) -> Occurrence:
    micros = round((execution.gpu_seconds or 0.0) * SECOND)
    if execution.held_cause is not None:
        # The hold caused the eviction, so the cost is the hold's.
        return Occurrence((str(Outcome.HELD), execution.held_cause), micros=micros)
    return Occurrence(
        cause=(str(execution.outcome), execution.cause or ""),
        when=execution.end,
        micros=micros,
        code=execution.code,
        subcode=execution.subcode,
        reason=execution.reason,
    )


def _holds(job: JobEntry, executions: Iterable[ExecutionEntry]) -> Iterator[Occurrence]:
    ends = {execution.end for execution in executions if execution.outcome is Outcome.HELD}
    for number, hold in enumerate(job.holds, start=1):
        yield Occurrence(
            cause=(str(Outcome.HELD), hold.cause),
            when=hold.start,
            code=hold.code,
            subcode=hold.subcode,
            reason=hold.reason,
            now=number == len(job.holds) and job.state is State.HELD,
            counted=hold.start not in ends,
        )


def _is_stalled(transfer: TransferEntry) -> bool:
    if transfer.direction != "input" or transfer.seconds is None:
        return False
    has_failed = transfer.end is None or transfer.outcome == "unfinished"
    return has_failed and transfer.seconds >= TRANSFER_LIMIT.total_seconds()
