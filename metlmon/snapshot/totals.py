"""The ledger entries of all jobs and their totals: the only module that sums them.

Entries are added when they appear and subtracted when they are replaced, so that an update
costs as much as has changed. All sums are of whole microseconds (times whole GPUs), so that
they do not drift, and do not depend on the order. All definitions are those of
``metlmon/README.md``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from metlmon.model.clock import Clock
from metlmon.model.job_events import JobId, JobKey
from metlmon.model.reasons import REQUEUED
from metlmon.model.states import Outcome, State
from metlmon.snapshot.expiries import ExpiryIndex
from metlmon.snapshot.ledger import ExecutionEntry, HourUnit, JobEntry, TransferEntry, hour_unit_of
from metlmon.snapshot.types import Count, GpuHours, TransferTotals

# Module constants, since Python 3.11 looks up each Enum member through a function.
_GOOD: Final = Outcome.GOOD
_IN_FLIGHT: Final = Outcome.IN_FLIGHT
_DISCONNECTED: Final = State.DISCONNECTED

SECOND: Final = 1_000_000
AN_HOUR: Final = 3600 * SECOND
"""In microseconds, the resolution of the logs."""

UNITS: Final = (HourUnit.GPU, HourUnit.CPU, HourUnit.WALL)

CLUSTERS_PER_BLOCK: Final = 256
"""Clusters whose entries are sorted together: a change re-sorts one block."""

TRANSFER_KINDS: Final = ("ok", "aborted", "unfinished", "output")
"""Kinds by which transfers are counted: input transfers by outcome, output transfers."""

LossCause: TypeAlias = tuple[str | None, int | None, int | None, bool]
"""Cause of a bad end, code, subcode, and whether the true end is unknown.

Losses due to a gap in the log are not mixed with known ones.
"""


class JobEntries(NamedTuple):
    """The ledger entries of one job."""

    job: JobEntry
    executions: tuple[ExecutionEntry, ...] = ()
    transfers: tuple[TransferEntry, ...] = ()


Micros: TypeAlias = tuple[int, int, int]
"""Microseconds of an execution, for each of UNITS."""


def micros_of(entry: ExecutionEntry) -> Micros:
    """The microseconds of an execution; 0 where its GPUs or CPUs are not known."""
    wall = round(entry.seconds * SECOND)
    gpu = round(entry.gpu_seconds * SECOND) if entry.gpu_seconds else 0
    return gpu, wall * (entry.cpus or 0), wall


class ExecutionTotals:
    """Numbers of executions, and their microseconds by outcome, for each of UNITS.

    ``executions``, ``good_executions``, ``bad_executions``: those that ended in the window of
    the entries, or are in flight; good are those that ended well or stored a checkpoint.
    ``completed``: epochs that they completed.
    """

    __slots__ = (
        *("bad", "bad_executions", "completed", "executions", "good", "good_executions"),
        "in_flight",
    )

    def __init__(self) -> None:
        self.executions = self.good_executions = self.bad_executions = self.completed = 0
        self.good = [0] * len(UNITS)
        self.bad = [0] * len(UNITS)
        self.in_flight = [0] * len(UNITS)

    def add(self, entry: ExecutionEntry, sign: int = 1, micros: Micros | None = None) -> None:
        """Add an execution, or with ``sign`` -1 subtract it.

        ``micros``: its :func:`micros_of`, where they are known.
        """
        gpu, cpu, wall = micros or micros_of(entry)
        ended, good = entry.outcome is not _IN_FLIGHT, entry.delivered
        sums = self.in_flight if not ended else self.bad
        if good:
            sums = self.good
            if entry.lost:
                lost = round(entry.lost * SECOND)
                lost_gpu, lost_cpu = lost * (entry.gpus or 0), lost * (entry.cpus or 0)
                self.bad[0] += sign * lost_gpu
                self.bad[1] += sign * lost_cpu
                self.bad[2] += sign * lost
                gpu, cpu, wall = gpu - lost_gpu, cpu - lost_cpu, wall - lost
        sums[0] += sign * gpu
        sums[1] += sign * cpu
        sums[2] += sign * wall
        if entry.counted:
            self.executions += sign
            self.good_executions += sign * good
            self.bad_executions += sign * (ended and not good)
            self.completed += sign * entry.final

    def hours(self, unit: HourUnit) -> GpuHours:
        """Hours of ``unit``."""
        index = UNITS.index(unit)
        good, bad, in_flight = self.good[index], self.bad[index], self.in_flight[index]
        return GpuHours(good / AN_HOUR, bad / AN_HOUR, in_flight / AN_HOUR, unit)

    def gpu_seconds(self) -> tuple[float, float, float]:
        """GPU-seconds: good, bad, in flight."""
        return self.good[0] / SECOND, self.bad[0] / SECOND, self.in_flight[0] / SECOND


class RunningMedian:
    """The median of a changing set of values."""

    def __init__(self) -> None:
        self._counts: Counter[float] = Counter()
        self._median: float | None = None

    def add(self, value: float, sign: int = 1) -> None:
        """Add a value, or with ``sign`` -1 remove it."""
        self._counts[value] += sign
        if not self._counts[value]:
            del self._counts[value]
        self._median = None

    def value(self) -> float | None:
        """The median; None without values."""
        if self._median is None and self._counts:
            values = sorted(self._counts.elements())
            half = len(values) // 2
            self._median = (values[half] + values[~half]) / 2
        return self._median


class SiteTotals(ExecutionTotals):
    """Totals of one site or GPU model.

    ``targets``: the targets of the executions there, and how many had each. ``seconds``: of its
    good executions.
    """

    __slots__ = ("seconds", "targets")

    def __init__(self) -> None:
        super().__init__()
        self.targets: Counter[str] = Counter()
        self.seconds = RunningMedian()

    def add(self, entry: ExecutionEntry, sign: int = 1, micros: Micros | None = None) -> None:
        super().add(entry, sign, micros)
        if entry.target:
            self.targets[entry.target] += sign
            if not self.targets[entry.target]:
                del self.targets[entry.target]
        if entry.outcome is _GOOD:
            self.seconds.add(entry.seconds, sign)


class LossTotals:
    """Losses by one cause: executions, GPU-microseconds, and executions of each job."""

    __slots__ = ("executions", "jobs", "last", "micros")

    def __init__(self) -> None:
        self.executions = self.micros = 0
        self.jobs: Counter[JobKey] = Counter()
        self.last: JobKey | None = None
        """The last of the jobs; None where it must be looked up again."""

    def add(self, key: JobKey, entry: ExecutionEntry, sign: int) -> None:
        """Add a bad execution of a job, or with ``sign`` -1 subtract it."""
        self.executions += sign
        self.micros += sign * round(entry.lost_gpu_seconds * SECOND)
        self.jobs[key] += sign
        if not self.jobs[key]:
            del self.jobs[key]
        self.last = key if self.last is not None and key >= self.last else None

    def last_job(self) -> JobKey:
        """The last of the jobs."""
        if self.last is None or self.last not in self.jobs:
            self.last = max(self.jobs)
        return self.last


class LedgerTotals:
    """The totals of all jobs.

    ``queued``: the jobs in the queue. ``open``: those with an execution, a transfer or a hold
    that has not ended. ``troubled``: those that had, or may have a problem. ``gaps``: those whose
    log lacks events.
    """

    def __init__(self) -> None:
        self.total = ExecutionTotals()
        self.runs: defaultdict[str, ExecutionTotals] = defaultdict(ExecutionTotals)
        self.sites: defaultdict[str | None, SiteTotals] = defaultdict(SiteTotals)
        self.gpus: defaultdict[str | None, SiteTotals] = defaultdict(SiteTotals)
        self.causes: defaultdict[LossCause, LossTotals] = defaultdict(LossTotals)
        self.queued: set[JobKey] = set()
        self.open: set[JobKey] = set()
        self.troubled: set[JobKey] = set()
        self.gaps: set[JobKey] = set()
        self._with_gpus = self._with_cpus = 0
        self._transfers = [0] * (2 * len(TRANSFER_KINDS))
        self._sent = self._received = 0

    def post(self, key: JobKey, old: JobEntries | None, new: JobEntries | None) -> None:
        """Replace the entries of a job; None: it has none."""
        if old is not None:
            self._add(key, old, -1)
        if new is not None:
            self._add(key, new, 1)
        for keys in (self.queued, self.open, self.troubled, self.gaps):
            keys.discard(key)
        if new is None:
            return
        if new.job.queued:
            self.queued.add(key)
        if _is_open(new):
            self.open.add(key)
        if _is_troubled(new):
            self.troubled.add(key)
        if new.job.gaps:
            self.gaps.add(key)

    @property
    def hour_unit(self) -> HourUnit:
        """The unit of the hours."""
        return hour_unit_of(self.total.executions, self._with_gpus, self._with_cpus)

    def transfers(self) -> TransferTotals:
        """All transfers, and all bytes."""
        numbers, micros = self._transfers[::2], self._transfers[1::2]
        ok, aborted, unfinished, output = map(Count, numbers, (value / SECOND for value in micros))
        return TransferTotals(ok, aborted, unfinished, output, self._sent, self._received)

    def _add(self, key: JobKey, entries: JobEntries, sign: int) -> None:
        job = entries.job
        self._sent += sign * (job.bytes_sent or 0)
        self._received += sign * (job.bytes_received or 0)
        for transfer in entries.transfers:
            self._add_transfer(transfer, sign)
        sums = [self.total] if job.run is None else [self.total, self.runs[job.run]]
        for entry in entries.executions:
            if entry.cause is not None:
                cause = loss_cause(entry)
                self.causes[cause].add(key, entry, sign)
                if not self.causes[cause].executions:
                    del self.causes[cause]
            if entry.at_access_point:
                # It runs at the access point, so its time is not charged to a site.
                continue
            self._with_gpus += sign * bool(entry.gpus)
            self._with_cpus += sign * (entry.cpus is not None)
            micros = micros_of(entry)
            for totals in sums:
                totals.add(entry, sign, micros)
            for by_name, name in ((self.sites, entry.site), (self.gpus, entry.gpu)):
                totals = by_name[name]
                totals.add(entry, sign, micros)
                if not totals.executions:
                    del by_name[name]

    def _add_transfer(self, transfer: TransferEntry, sign: int) -> None:
        kind = transfer.outcome
        if transfer.direction == "output":
            kind = "output" if transfer.start is not None and kind == "ok" else ""
        if kind in TRANSFER_KINDS:
            index = 2 * TRANSFER_KINDS.index(kind)
            self._transfers[index] += sign
            if transfer.seconds is not None and transfer.end is not None:
                self._transfers[index + 1] += sign * round(transfer.seconds * SECOND)


def loss_cause(entry: ExecutionEntry) -> LossCause:
    """The cause that a bad end is attributed to."""
    cause = entry.cause and entry.cause.removesuffix(REQUEUED)
    return cause, entry.code, entry.subcode, entry.uncertain


def rank_by_hours(
    totals: Mapping[str | None, SiteTotals], unit: HourUnit
) -> list[tuple[str | None, SiteTotals, GpuHours]]:
    """Name, totals and hours of each site or GPU model, largest first."""
    ranked = [(name, each, each.hours(unit)) for name, each in totals.items()]
    return sorted(ranked, key=lambda entry: (-entry[2].total, -entry[1].executions, entry[0] or ""))


def _is_open(entries: JobEntries) -> bool:
    for entry in entries.executions:
        if entry.end is None:
            return True
    for transfer in entries.transfers:
        if transfer.end is None and transfer.start is not None:
            return True
    return any(hold.end is None for hold in entries.job.holds)


def _is_troubled(entries: JobEntries) -> bool:
    if entries.job.holds or entries.job.state is _DISCONNECTED:
        return True
    for entry in entries.executions:
        if entry.cause is not None:
            return True
    for transfer in entries.transfers:
        if transfer.outcome == "unfinished":
            return True
        if transfer.end is None and transfer.direction == "input":
            return True
    return False


class Block(NamedTuple):
    """The entries of some clusters, sorted."""

    jobs: tuple[JobEntry, ...]
    executions: tuple[ExecutionEntry, ...]
    transfers: tuple[TransferEntry, ...]


class EntryStore:
    """The entries of all jobs, by job; every change is posted to ``totals``.

    ``annex_ends``: as ``ends`` of :class:`ExpiryIndex`.
    """

    def __init__(self, totals: LedgerTotals, annex_ends: dict[str, list[datetime]]) -> None:
        self._totals = totals
        self._entries: dict[int, dict[JobKey, JobEntries]] = {}
        self._blocks: dict[int, Block] = {}
        self.expiries = ExpiryIndex(annex_ends)

    def get(self, key: JobKey) -> JobEntries | None:
        """The entries of a job; None for a job of another directory's DAG."""
        return self._entries.get(key[0] // CLUSTERS_PER_BLOCK, {}).get(key)

    def put(self, key: JobKey, entries: JobEntries | None) -> None:
        """Replace the entries of a job; None: it has none."""
        number = key[0] // CLUSTERS_PER_BLOCK
        block = self._entries.setdefault(number, {})
        before = block.get(key)
        if entries is None:
            self.expiries.discard(key)
            block.pop(key, None)
        else:
            known = None if before is None else before.executions
            executions = self.expiries.add(key, entries.executions, known)
            if executions is not entries.executions:
                entries = entries._replace(executions=executions)
            block[key] = entries
        self._totals.post(key, before, entries)
        self._blocks.pop(number, None)

    def update_expiries(self, as_of: datetime | None) -> None:
        """Give evictions at the end of an annex that cause."""

        def executions() -> Iterator[ExecutionEntry]:
            return (entry for block in self.blocks() for entry in block.executions)

        for key in self.expiries.update(executions, as_of):
            entries = self.get(key)
            if entries is not None:
                self.put(key, entries)

    def blocks(self) -> list[Block]:
        """All entries, in order."""
        return [self._block(number) for number in sorted(self._entries)]

    def _block(self, number: int) -> Block:
        block = self._blocks.get(number)
        if block is None:
            by_job = self._entries[number]
            entries = [by_job[key] for key in sorted(by_job)]
            block = self._blocks[number] = Block(
                tuple([each.job for each in entries]),
                tuple(chain.from_iterable(each.executions for each in entries)),
                tuple(chain.from_iterable(each.transfers for each in entries)),
            )
        return block


# --- problems by cause ------------------------------------------------------------------

TRANSFER_LIMIT: Final = timedelta(minutes=30)
"""Length of an input transfer from which it counts as stalled.

Input transfers of tens of GB take minutes; one still in progress after this long has in every
real log ended in an eviction, not in an execution.
"""

DISCONNECT_LIMIT: Final = timedelta(minutes=10)
"""Length of a disconnect from which it counts as a problem.

24 of 26 real disconnects reconnected; the others failed within the lease of 40 minutes.
"""

ProblemCause: TypeAlias = tuple[str, str]
"""Kind of a problem, and its cause."""

STALLED_INPUT: Final[ProblemCause] = ("stalled", "input transfer stalled")
LOST_CONTACT: Final[ProblemCause] = ("stalled", "lost contact with the execute host")


class Occurrence(NamedTuple):
    """One occurrence of a problem.

    ``when``: None for what is no occurrence of its own: the cost of a hold's eviction, and a
    problem that the job has at this moment (``now``). ``micros``: the GPU-microseconds that it
    cost. ``counted``: False for a hold whose eviction is counted as the occurrence.
    """

    cause: ProblemCause
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
) -> dict[ProblemCause, ProblemTotals]:
    """All problems of these jobs up to ``as_of``."""
    totals: dict[ProblemCause, ProblemTotals] = {}
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
    micros = round(execution.lost_gpu_seconds * SECOND)
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
