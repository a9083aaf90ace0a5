"""Running totals over jobs, in which the share of a changed job is replaced.

All sums are of whole microseconds (times whole GPUs), so that they do not drift, and do not
depend on the order of the jobs. All definitions are those of ``metlmon/README.md``.
"""

from __future__ import annotations

import marshal
from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from metlmon.eventlog import Execute
from metlmon.model.clock import Clock
from metlmon.model.hour_unit import HourUnit, hour_unit_of
from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.job_events import Job
from metlmon.model.settings import Settings
from metlmon.model.sites import BUILT_IN_SITES, site_of, site_of_address
from metlmon.model.states import ACTIVE, Outcome
from metlmon.snapshot.types import Count, GpuHours, TransferTotals

H = TypeVar("H", bound=Hashable)

SECOND: Final = 1_000_000
AN_HOUR: Final = 3600 * SECOND
"""In microseconds, the resolution of the logs."""

MAX_INSORT: Final = 64
"""Up to this number of new values are inserted one by one, not sorted in."""

JobKey: TypeAlias = tuple[int, int, int]

Cause: TypeAlias = tuple[str, int | None, int | None, bool]
"""Cause of a bad end, code, subcode, and whether the true end is unknown.

Losses due to a gap in the log are not mixed with known ones.
"""

TRANSFER_KINDS: Final = ("ok", "aborted", "unfinished", "output")
"""Kinds by which transfers are counted."""

SiteAndGpu: TypeAlias = tuple[str | None, str | None]
"""Site and GPU model."""

MAX_CACHED_MACHINES: Final = 5000
"""Machines whose site is cached: more than a pool has at a time."""

MARSHAL_VERSION: Final = 2
"""The ``marshal`` version that writes equal values equally; later ones do not."""

_INPUT_KINDS: Final = {kind: number for number, kind in enumerate(TRANSFER_KINDS[:3])}
_OUTPUT: Final = TRANSFER_KINDS.index("output")

GOOD, BAD, IN_FLIGHT = range(3)


class NameTable:
    """Names of sites and GPU models, with the aliases of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._sites = (*settings.sites, *BUILT_IN_SITES)
        self._site_aliases = dict(settings.site_aliases)
        self._gpu_aliases = dict(settings.gpu_aliases)
        self._by_machine: dict[Execute | None, SiteAndGpu] = {}

    def site(self, machine: Execute | None) -> str | None:
        """The site of an execution, with aliases of the settings applied."""
        name = site_of(machine, self._sites)
        return self._site_aliases.get(name, name) if name is not None else None

    def site_of_address(self, address: str) -> str | None:
        """The site of a host without executions, if a rule matches its address."""
        name = site_of_address(address, self._sites)
        return self._site_aliases.get(name, name) if name is not None else None

    def gpu(self, machine: Execute | None) -> str | None:
        """The GPU model as logged, or its alias in the settings."""
        name = machine.gpu if machine is not None else None
        return self._gpu_aliases.get(name, name) if name is not None else None

    def site_and_gpu(self, machine: Execute | None) -> SiteAndGpu:
        """Site and GPU model of an execution."""
        # Jobs on one machine mostly share one object for it, so that the look-up is fast.
        site_and_gpu = self._by_machine.get(machine)
        if site_and_gpu is None:
            if len(self._by_machine) >= MAX_CACHED_MACHINES:
                self._by_machine.clear()
            site_and_gpu = self._by_machine[machine] = self.site(machine), self.gpu(machine)
        return site_and_gpu


@dataclass(slots=True)
class GpuSeconds:
    """Microseconds of ended executions, times GPUs, times CPUs, and wall-clock.

    CPUs as far as they are known.
    """

    good: int = 0
    bad: int = 0
    cpu_good: int = 0
    cpu_bad: int = 0
    wall_good: int = 0
    wall_bad: int = 0

    def hours(self, measure: HourUnit, in_flight: int = 0) -> GpuHours:
        """In hours of the unit ``measure``; ``in_flight``: microseconds of the same."""
        good, bad = {
            HourUnit.GPU: (self.good, self.bad),
            HourUnit.CPU: (self.cpu_good, self.cpu_bad),
            HourUnit.WALL: (self.wall_good, self.wall_bad),
        }[measure]
        return GpuHours(good / AN_HOUR, bad / AN_HOUR, in_flight / AN_HOUR, measure)


class RunningMedian:
    """The median of a changing set of values."""

    __slots__ = ("_new", "_sorted")

    def __init__(self) -> None:
        self._sorted = array("d")
        self._new: list[float] = []

    def add(self, value: float) -> None:
        self._new.append(value)

    def remove(self, value: float) -> None:
        self._merge_new()
        del self._sorted[bisect_left(self._sorted, value)]

    def value(self) -> float | None:
        """The median; None without values."""
        self._merge_new()
        number = len(self._sorted)
        if not number:
            return None
        upper = self._sorted[number // 2]
        return upper if number % 2 else (self._sorted[number // 2 - 1] + upper) / 2

    def _merge_new(self) -> None:
        if len(self._new) > MAX_INSORT:
            self._sorted = array("d", sorted([*self._sorted, *self._new]))
        else:
            for value in self._new:
                insort(self._sorted, value)
        self._new.clear()


@dataclass(slots=True)
class SiteTotals:
    """Totals of one site or GPU model.

    ``targets``: the targets of the executions there, and how many had each.
    """

    executions: int = 0
    completed: int = 0
    hours: GpuSeconds = field(default_factory=GpuSeconds)
    targets: Counter[str] = field(default_factory=Counter)
    seconds: RunningMedian = field(default_factory=RunningMedian)


@dataclass(slots=True)
class LossTotals:
    """Losses due to one cause, and the jobs concerned.

    ``last``: the last of these jobs, None where it must be looked up again. ``example``: the reason
    of its execution in a tuple, None where it must be looked up again.
    """

    executions: int = 0
    micros: int = 0
    jobs: Counter[JobKey] = field(default_factory=Counter)
    last: JobKey | None = None
    example: tuple[str | None] | None = None

    def last_job(self) -> JobKey:
        if self.last is None:
            self.last = max(self.jobs)
        return self.last


class OpenExecution(NamedTuple):
    """An execution in flight, whose length depends on as-of."""

    start: datetime
    gpus: int
    run: str | None
    site: str | None
    gpu: str | None
    dagman: bool
    cpus: int | None


class Owner(NamedTuple):
    """The run and target of a job, as far as totals depend on them.

    ``dagman``: it is a sub-DAG's DAGMan, which runs at no site.
    """

    run: str | None
    target: str | None
    dagman: bool


NO_OWNER: Final = Owner(None, None, False)


class _Interner(Generic[H]):
    """Numbers for values, so that a stored share is small."""

    def __init__(self) -> None:
        self.items: list[H] = []
        self._numbers: dict[H, int] = {}

    def number(self, item: H) -> int:
        number = self._numbers.get(item)
        if number is None:
            number = self._numbers[item] = len(self.items)
            self.items.append(item)
        return number


_ExecutionShare: TypeAlias = tuple[int, int, int, int, int, int, int]
"""One execution: number of its place, kind, GPU-microseconds, microseconds, number of its cause,
GPUs, and CPUs (-1: not known)."""

_JobShare: TypeAlias = tuple[int, int, int, tuple[int, ...], tuple[_ExecutionShare, ...]]
"""One job: number of its owner, bytes sent, received, transfers (alternately kind and
microseconds), executions."""

NO_CAUSE: Final = -1


class RunningTotals:
    """The totals over all jobs.

    ``queued``: the jobs in the queue. ``open``: executions in flight, by job. ``gaps``: events that
    the log lacks, by job: line and sentence.
    """

    def __init__(self, names: NameTable, clock: Clock) -> None:
        self.total = GpuSeconds()
        self.executions = self.with_gpus = self.with_cpus = 0
        self.runs: dict[str, GpuSeconds] = {}
        self.sites: dict[str | None, SiteTotals] = {}
        self.gpus: dict[str | None, SiteTotals] = {}
        self.causes: dict[Cause, LossTotals] = {}
        self.queued: set[JobKey] = set()
        self.open: dict[JobKey, OpenExecution] = {}
        self.gaps: dict[JobKey, tuple[tuple[int, str], ...]] = {}
        self._names = names
        self._clock = clock
        self._transfers = [[0, 0] for _ in TRANSFER_KINDS]
        self._sent = self._received = 0
        self._shares: dict[JobKey, bytes] = {}
        self._owners = _Interner[Owner]()
        self._places = _Interner[SiteAndGpu]()
        self._causes = _Interner[Cause]()

    def add_job(self, key: JobKey, job: Job, owner: Owner) -> None:
        """Add the present share of a job in place of its previous one."""
        before = self._shares.get(key)
        history = job.history()
        share: _JobShare = (
            self._owners.number(owner),
            history.bytes_sent or 0,
            history.bytes_received or 0,
            tuple(self._transfer_share(history.transfers)),
            tuple(map(self._execution_share, history.executions)),
        )
        packed = marshal.dumps(share, MARSHAL_VERSION)
        if packed != before:
            if before is not None:
                self._count(key, marshal.loads(before), -1)
            self._count(key, share, 1)
            self._shares[key] = packed
        self._note_current(key, history, owner)
        if history.gaps:
            self.gaps[key] = tuple((line, text) for line, _, text in history.gaps)
        else:
            self.gaps.pop(key, None)

    def drop_job(self, key: JobKey) -> None:
        """Remove the share of a job."""
        before = self._shares.pop(key, None)
        if before is not None:
            self._count(key, marshal.loads(before), -1)
        self.queued.discard(key)
        self.open.pop(key, None)
        self.gaps.pop(key, None)

    @property
    def measure(self) -> HourUnit:
        """The unit of the hours."""
        return hour_unit_of(self.executions, self.with_gpus, self.with_cpus)

    def count_completion(self, site_and_gpu: SiteAndGpu, delta: int) -> None:
        """Add an epoch completed at a site and GPU model (1), or remove one (-1)."""
        for by_name, name in zip((self.sites, self.gpus), site_and_gpu, strict=True):
            site_totals = by_name.get(name)
            if site_totals is None:
                site_totals = by_name[name] = SiteTotals()
            site_totals.completed += delta
            if delta < 0:
                _drop_empty(by_name, name)

    def execution_count(self, key: JobKey) -> int | None:
        """Number of executions of a job, None where its share was not added."""
        share = self._shares.get(key)
        return None if share is None else len(marshal.loads(share)[4])

    def transfers(self) -> TransferTotals:
        """All transfers, and all bytes."""
        ok, aborted, unfinished, output = (Count(n, us / SECOND) for n, us in self._transfers)
        return TransferTotals(ok, aborted, unfinished, output, self._sent, self._received)

    # --- one job ------------------------------------------------------------------------

    def _transfer_share(self, spans: Iterable[TransferSpan]) -> Iterable[int]:
        for span in spans:
            if span.direction != "output":
                kind = _INPUT_KINDS.get(span.outcome)
            elif span.start is not None and span.outcome == "ok":
                kind = _OUTPUT
            else:
                continue
            if kind is not None:
                yield kind
                yield self._micros(span.start, span.end)

    def _micros(self, start: datetime | None, end: datetime | None) -> int:
        if start is None or end is None:
            return 0
        return round(self._clock.seconds(start, end) * SECOND)

    def _execution_share(self, execution: Execution) -> _ExecutionShare:
        place = self._places.number(self._names.site_and_gpu(execution.machine))
        gpus, cpus = execution.gpus or 0, -1 if execution.cpus is None else execution.cpus
        if execution.outcome is Outcome.IN_FLIGHT:
            return place, IN_FLIGHT, 0, 0, NO_CAUSE, gpus, cpus
        micros = self._micros(execution.start, execution.end)
        gpu_micros = micros * gpus
        if execution.outcome is Outcome.GOOD:
            return place, GOOD, gpu_micros, micros, NO_CAUSE, gpus, cpus
        cause = self._causes.number(cause_of_loss(execution))
        return place, BAD, gpu_micros, micros, cause, gpus, cpus

    def _note_current(self, key: JobKey, history: JobHistory, owner: Owner) -> None:
        if history.state in ACTIVE:
            self.queued.add(key)
        else:
            self.queued.discard(key)
        execution = history.open
        if execution is None:
            self.open.pop(key, None)
        else:
            site, gpu = self._names.site_and_gpu(execution.machine)
            self.open[key] = OpenExecution(
                execution.start,
                execution.gpus or 0,
                owner.run,
                site,
                gpu,
                owner.dagman,
                execution.cpus,
            )

    # --- adding and removing ------------------------------------------------------------

    def _count(self, key: JobKey, share: _JobShare, delta: int) -> None:
        number, sent, received, transfers, executions = share
        owner = self._owners.items[number]
        self._sent += delta * sent
        self._received += delta * received
        for index in range(0, len(transfers), 2):
            count = self._transfers[transfers[index]]
            count[0] += delta
            count[1] += delta * transfers[index + 1]
        gpu_seconds = [self.total]
        if owner.run is not None:
            gpu_seconds.append(self.runs.setdefault(owner.run, GpuSeconds()))
        for execution in executions:
            place, kind, gpu_micros, _, cause, gpus, cpus = execution
            if owner.dagman:
                for hours in gpu_seconds:
                    # It runs at the access point, so its time is not charged to a site.
                    _add_micros(hours, kind, delta * gpu_micros)
            else:
                self.executions += delta
                self.with_gpus += delta * (gpus > 0)
                self.with_cpus += delta * (cpus >= 0)
                for hours in gpu_seconds:
                    _add_hours(hours, execution, delta)
                site, gpu = self._places.items[place]
                _add_to_site(self.sites, site, owner.target, execution, delta)
                _add_to_site(self.gpus, gpu, owner.target, execution, delta)
            if cause != NO_CAUSE:
                self._add_loss(self._causes.items[cause], key, gpu_micros, delta)

    def _add_loss(self, cause: Cause, key: JobKey, micros: int, delta: int) -> None:
        losses = self.causes.setdefault(cause, LossTotals())
        losses.executions += delta
        losses.micros += delta * micros
        losses.jobs[key] += delta
        if not losses.jobs[key]:
            del losses.jobs[key]
            if losses.last == key:
                losses.last = losses.example = None
        elif losses.last is not None and key >= losses.last:
            losses.last, losses.example = key, None
        if not losses.executions:
            del self.causes[cause]


def cause_of_loss(execution: Execution) -> Cause:
    """The cause that a bad end is attributed to."""
    return execution.cause, execution.code, execution.subcode, execution.uncertain


def _add_to_site(
    by_name: dict[str | None, SiteTotals],
    name: str | None,
    target: str | None,
    execution: _ExecutionShare,
    delta: int,
) -> None:
    kind, micros = execution[1], execution[3]
    site_totals = by_name.get(name)
    if site_totals is None:
        site_totals = by_name[name] = SiteTotals()
    site_totals.executions += delta
    _add_hours(site_totals.hours, execution, delta)
    if target:
        site_totals.targets[target] += delta
        if not site_totals.targets[target]:
            del site_totals.targets[target]
    if kind == GOOD:
        (site_totals.seconds.add if delta > 0 else site_totals.seconds.remove)(micros / SECOND)
    if delta < 0:
        _drop_empty(by_name, name)


def _drop_empty(by_name: dict[str | None, SiteTotals], name: str | None) -> None:
    site_totals = by_name[name]
    if not site_totals.executions and not site_totals.completed:
        del by_name[name]


def _add_hours(hours: GpuSeconds, execution: _ExecutionShare, delta: int) -> None:
    """Add the time of an execution in every unit."""
    _, kind, gpu_micros, micros, _, _, cpus = execution
    _add_micros(hours, kind, delta * gpu_micros)
    if kind == GOOD:
        hours.wall_good += delta * micros
        hours.cpu_good += delta * micros * max(0, cpus)
    elif kind == BAD:
        hours.wall_bad += delta * micros
        hours.cpu_bad += delta * micros * max(0, cpus)


def _add_micros(hours: GpuSeconds, kind: int, micros: int) -> None:
    if kind == GOOD:
        hours.good += micros
    elif kind == BAD:
        hours.bad += micros
