"""The ledger's postings and the totals that are summed from them.

A posting is what one job adds to the totals: its executions, transfers and bytes. When a job
changes, its posting replaces the previous one, so that an update costs as much as has changed.
All sums are of whole microseconds (times whole GPUs), so that they do not drift, and do not
depend on the order of the jobs. All definitions are those of ``metlmon/README.md``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from metlmon.model.clock import Clock
from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.job_events import Job, JobKey
from metlmon.model.sites import NameTable, SiteAndGpu
from metlmon.model.states import ACTIVE, HourUnit, Outcome, hour_unit_of
from metlmon.snapshot.types import Count, GpuHours, TransferTotals

SECOND: Final = 1_000_000
AN_HOUR: Final = 3600 * SECOND
"""In microseconds, the resolution of the logs."""

Cause: TypeAlias = tuple[str, int | None, int | None, bool]
"""Cause of a bad end, code, subcode, and whether the true end is unknown.

Losses due to a gap in the log are not mixed with known ones.
"""

TRANSFER_KINDS: Final = ("ok", "aborted", "unfinished", "output")
"""Kinds by which transfers are counted: input transfers by outcome, output transfers."""


UNITS: Final = (HourUnit.GPU, HourUnit.CPU, HourUnit.WALL)


class Owner(NamedTuple):
    """The run and target of a job, as far as totals depend on them.

    ``dagman``: it is a sub-DAG's DAGMan, which runs at the access point, at no site.
    """

    run: str | None
    target: str | None
    dagman: bool


NO_OWNER: Final = Owner(None, None, False)


class ExecutionPosting(NamedTuple):
    """One execution.

    ``start``: only while it is in flight; ``micros`` is 0 then. ``cause``: of a bad end.
    """

    place: SiteAndGpu
    micros: int
    gpus: int
    cpus: int | None
    cause: Cause | None
    start: datetime | None

    @property
    def good(self) -> bool:
        """Has it ended well?"""
        return self.start is None and self.cause is None


class JobPosting(NamedTuple):
    """One job; ``transfers``: number and microseconds of those of each kind."""

    owner: Owner
    bytes_sent: int
    bytes_received: int
    transfers: tuple[int, ...]
    executions: tuple[ExecutionPosting, ...]


class HourTotals:
    """Microseconds of ended executions, good and bad, times the factor of each of UNITS."""

    __slots__ = ("bad", "good")

    def __init__(self) -> None:
        self.good = [0] * len(UNITS)
        self.bad = [0] * len(UNITS)

    def add(self, execution: ExecutionPosting, sign: int = 1) -> None:
        """Add an execution, or with ``sign`` -1 subtract it."""
        sums = self.good if execution.cause is None else self.bad
        micros = sign * execution.micros
        sums[0] += micros * execution.gpus
        sums[1] += micros * (execution.cpus or 0)
        sums[2] += micros

    def hours(self, unit: HourUnit, in_flight: int = 0) -> GpuHours:
        """In hours of ``unit``; ``in_flight``: microseconds of the same."""
        index = UNITS.index(unit)
        good, bad = self.good[index], self.bad[index]
        return GpuHours(good / AN_HOUR, bad / AN_HOUR, in_flight / AN_HOUR, unit)


class RunningMedian:
    """The median of a changing set of values."""

    def __init__(self) -> None:
        self._counts: Counter[float] = Counter()
        self._median: float | None = None
        self._changed = False

    def add(self, value: float, sign: int = 1) -> None:
        """Add a value, or with ``sign`` -1 remove it."""
        self._counts[value] += sign
        self._changed = True

    def value(self) -> float | None:
        """The median; None without values."""
        if self._changed:
            self._counts = +self._counts
            self._median, self._changed = self._middle(), False
        return self._median

    def _middle(self) -> float | None:
        number = self._counts.total()
        below, lower = 0, None
        for value in sorted(self._counts):
            below += self._counts[value]
            if lower is None and 2 * below >= number:
                lower = value
            if lower is not None and 2 * below > number:
                return value if lower == value else (lower + value) / 2
        return None


class SiteTotals(Struct):
    """Totals of one site or GPU model.

    ``targets``: the targets of the executions there, and how many had each. ``seconds``: of its
    good executions.
    """

    executions: int = 0
    completed: int = 0
    hours: HourTotals = field(default_factory=HourTotals)
    targets: Counter[str] = field(default_factory=Counter)
    seconds: RunningMedian = field(default_factory=RunningMedian)

    def add(self, execution: ExecutionPosting, target: str | None, sign: int) -> None:
        """Add an execution of a job with this target, or with ``sign`` -1 subtract it."""
        self.executions += sign
        self.hours.add(execution, sign)
        if target:
            self.targets[target] += sign
            if not self.targets[target]:
                del self.targets[target]
        if execution.good:
            self.seconds.add(execution.micros / SECOND, sign)


class LossTotals(Struct):
    """Losses due to one cause, and the jobs concerned.

    ``last``: the last of these jobs, None where it must be looked up again. ``example``: the reason
    of its execution in a tuple, None where it must be looked up again.
    """

    executions: int = 0
    micros: int = 0
    jobs: Counter[JobKey] = field(default_factory=Counter)
    last: JobKey | None = None
    example: tuple[str | None] | None = None

    def add(self, key: JobKey, execution: ExecutionPosting, sign: int) -> None:
        """Add a bad execution of a job, or with ``sign`` -1 subtract it."""
        self.executions += sign
        self.micros += sign * execution.micros * execution.gpus
        self.jobs[key] += sign
        if not self.jobs[key]:
            del self.jobs[key]
            if self.last == key:
                self.last = self.example = None
        elif self.last is not None and key >= self.last:
            self.last, self.example = key, None

    def last_job(self) -> JobKey:
        """The last of the jobs."""
        if self.last is None:
            self.last = max(self.jobs)
        return self.last


class InFlight(Struct):
    """Microseconds of the executions in flight, times the factor of the hour unit."""

    total: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    sites: Counter[str | None] = field(default_factory=Counter)
    gpus: Counter[str | None] = field(default_factory=Counter)


class LedgerTotals:
    """The totals of all jobs.

    ``queued``: the jobs in the queue. ``open``: those with an execution in flight. ``gaps``:
    events that the log lacks, by job: line and sentence.
    """

    def __init__(self, names: NameTable, clock: Clock) -> None:
        self.total = HourTotals()
        self.executions = self.with_gpus = self.with_cpus = 0
        self.runs: defaultdict[str, HourTotals] = defaultdict(HourTotals)
        self.sites: defaultdict[str | None, SiteTotals] = defaultdict(SiteTotals)
        self.gpus: defaultdict[str | None, SiteTotals] = defaultdict(SiteTotals)
        self.causes: defaultdict[Cause, LossTotals] = defaultdict(LossTotals)
        self.queued: set[JobKey] = set()
        self.open: set[JobKey] = set()
        self.gaps: dict[JobKey, tuple[tuple[int, str], ...]] = {}
        self._names = names
        self._clock = clock
        self._transfers = [0] * (2 * len(TRANSFER_KINDS))
        self._sent = self._received = 0
        self._postings: dict[JobKey, JobPosting] = {}
        self._causes: dict[Cause, Cause] = {}

    def post(self, key: JobKey, job: Job, owner: Owner) -> None:
        """Replace the posting of a job."""
        history = job.history()
        posting, previous = self._posting(history, owner), self._postings.get(key)
        if posting != previous:
            if previous is not None:
                self._add(key, previous, -1)
            self._add(key, posting, 1)
            self._postings[key] = posting
        _set_member(self.queued, key, history.state in ACTIVE)
        _set_member(self.open, key, history.open is not None)
        if history.gaps:
            self.gaps[key] = tuple((line, text) for line, _, text in history.gaps)
        else:
            self.gaps.pop(key, None)

    def drop(self, key: JobKey) -> None:
        """Remove the posting of a job."""
        previous = self._postings.pop(key, None)
        if previous is not None:
            self._add(key, previous, -1)
        self.queued.discard(key)
        self.open.discard(key)
        self.gaps.pop(key, None)

    def count_completion(self, place: SiteAndGpu, sign: int) -> None:
        """Add an epoch completed at a site and GPU model (1), or remove one (-1)."""
        for by_name, name in zip((self.sites, self.gpus), place, strict=True):
            by_name[name].completed += sign
            _drop_empty(by_name, name)

    # --- sums ---------------------------------------------------------------------------

    @property
    def hour_unit(self) -> HourUnit:
        """The unit of the hours."""
        return hour_unit_of(self.executions, self.with_gpus, self.with_cpus)

    def executions_of(self, key: JobKey) -> tuple[ExecutionPosting, ...] | None:
        """The executions of a job; None where it has no posting."""
        posting = self._postings.get(key)
        return None if posting is None else posting.executions

    def transfers(self) -> TransferTotals:
        """All transfers, and all bytes."""
        numbers, micros = self._transfers[::2], self._transfers[1::2]
        ok, aborted, unfinished, output = map(Count, numbers, (value / SECOND for value in micros))
        return TransferTotals(ok, aborted, unfinished, output, self._sent, self._received)

    def in_flight(self, as_of: datetime | None) -> InFlight:
        """The executions in flight, up to ``as_of``."""
        totals = InFlight()
        for key in self.open if as_of is not None else ():
            owner, _, _, _, executions = self._postings[key]
            if owner.dagman:
                continue
            for execution in executions:
                micros = self.micros_in_flight(execution, as_of)
                site, gpu = execution.place
                totals.total += micros
                totals.sites[site] += micros
                totals.gpus[gpu] += micros
                if owner.run is not None:
                    totals.runs[owner.run] += micros
        return totals

    def micros_in_flight(self, execution: ExecutionPosting, as_of: datetime | None) -> int:
        """Microseconds up to ``as_of``, times the factor of the unit; 0 if it has ended."""
        if execution.start is None or as_of is None:
            return 0
        weight = self.hour_unit.weight(execution.gpus, execution.cpus) or 0
        return round(self._clock.seconds(execution.start, as_of) * SECOND) * weight

    def job_hours(self, keys: Iterable[JobKey], as_of: datetime | None) -> GpuHours:
        """The hours of some jobs; those of sub-DAGs' DAGMans are not counted."""
        totals, in_flight = HourTotals(), 0
        for key in keys:
            posting = self._postings.get(key)
            if posting is None or posting.owner.dagman:
                continue
            for execution in posting.executions:
                totals.add(execution)
                in_flight += self.micros_in_flight(execution, as_of)
        return totals.hours(self.hour_unit, in_flight)

    # --- postings -----------------------------------------------------------------------

    def _posting(self, history: JobHistory, owner: Owner) -> JobPosting:
        return JobPosting(
            owner,
            history.bytes_sent or 0,
            history.bytes_received or 0,
            self._transfer_sums(history.transfers),
            tuple([self._execution(execution) for execution in history.executions]),
        )

    def _transfer_sums(self, spans: Iterable[TransferSpan]) -> tuple[int, ...]:
        sums = [0] * len(self._transfers)
        for span in spans:
            kind = _kind(span)
            if kind is not None:
                index = 2 * TRANSFER_KINDS.index(kind)
                sums[index] += 1
                sums[index + 1] += self._micros(span)
        return tuple(sums)

    def _micros(self, span: TransferSpan | Execution) -> int:
        if span.start is None or span.end is None:
            return 0
        return round(self._clock.seconds(span.start, span.end) * SECOND)

    def _execution(self, execution: Execution) -> ExecutionPosting:
        outcome, cause = execution.outcome, None
        in_flight = outcome is Outcome.IN_FLIGHT
        if not in_flight and outcome is not Outcome.GOOD:
            cause = cause_of_loss(execution)
            cause = self._causes.setdefault(cause, cause)
        return ExecutionPosting(
            place=self._names.site_and_gpu(execution.machine),
            micros=0 if in_flight else self._micros(execution),
            gpus=execution.gpus or 0,
            cpus=execution.cpus,
            cause=cause,
            start=execution.start if in_flight else None,
        )

    def _add(self, key: JobKey, posting: JobPosting, sign: int) -> None:
        owner, sent, received, transfers, executions = posting
        self._sent += sign * sent
        self._received += sign * received
        for index, value in enumerate(transfers):
            self._transfers[index] += sign * value
        hours = [self.total]
        if owner.run is not None:
            hours.append(self.runs[owner.run])
        for execution in executions:
            if execution.cause is not None:
                losses = self.causes[execution.cause]
                losses.add(key, execution, sign)
                if not losses.executions:
                    del self.causes[execution.cause]
            if owner.dagman:
                # It runs at the access point, so its time is not charged to a site.
                continue
            self.executions += sign
            self.with_gpus += sign * (execution.gpus > 0)
            self.with_cpus += sign * (execution.cpus is not None)
            for totals in hours:
                totals.add(execution, sign)
            for by_name, name in zip((self.sites, self.gpus), execution.place, strict=True):
                by_name[name].add(execution, owner.target, sign)
                _drop_empty(by_name, name)


def cause_of_loss(execution: Execution) -> Cause:
    """The cause that a bad end is attributed to."""
    return execution.cause, execution.code, execution.subcode, execution.uncertain


def _kind(span: TransferSpan) -> str | None:
    """The kind by which a transfer is counted; None while it is in flight."""
    if span.direction == "output":
        return "output" if span.start is not None and span.outcome == "ok" else None
    return span.outcome if span.outcome in TRANSFER_KINDS else None


def _drop_empty(by_name: dict[str | None, SiteTotals], name: str | None) -> None:
    totals = by_name[name]
    if not totals.executions and not totals.completed:
        del by_name[name]


def _set_member(keys: set[JobKey], key: JobKey, present: bool) -> None:
    (keys.add if present else keys.discard)(key)
