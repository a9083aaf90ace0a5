"""What jobs add up to, kept: each job's share is taken out and put in anew when it changes.

All sums are of whole microseconds (times whole GPUs), so that they do not drift, and do not
depend on the order in which jobs came. All definitions are those of ``domain.md``.
"""

from __future__ import annotations

import marshal
from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from metlmon.eventlog import Execute
from metlmon.model.clock import Clock
from metlmon.model.hour_unit import HourUnit, measure_of
from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.job_events import Job
from metlmon.model.settings import Settings
from metlmon.model.sites import BUILT_IN_SITES, site_of, site_of_address
from metlmon.model.states import ACTIVE, Outcome
from metlmon.snapshot.types import Count, GpuHours, TransferTotals

H = TypeVar("H", bound=Hashable)

SECOND: Final = 1_000_000
AN_HOUR: Final = 3600 * SECOND
"""In microseconds: so fine are the stamps."""

FEW: Final = 64
"""Up to so many new values are put among the sorted ones each for itself."""

JobKey: TypeAlias = tuple[int, int, int]

Cause: TypeAlias = tuple[str, int | None, int | None, bool]
"""The cause of a bad end, code, subcode, and whether the true end is not known: what a hole in
the log is to blame for is not mixed with what is known."""

KINDS: Final = ("ok", "aborted", "unfinished", "output")
"""What transfers are counted as."""

Place: TypeAlias = tuple[str | None, str | None]
"""Site and GPU model."""

MOST_PLACES: Final = 5000
"""Machines of which it is remembered where they are: more than a pool has at a time."""

PLAIN: Final = 2
"""The version of the format that writes the same for what is equal: later ones do not."""

_COUNTED: Final = {kind: number for number, kind in enumerate(KINDS[:3])}
_OUTPUT: Final = KINDS.index("output")

GOOD, BAD, IN_FLIGHT = range(3)


class NameTable:
    """Sites and GPU models, as the settings call them."""

    def __init__(self, settings: Settings) -> None:
        self._sites = (*settings.sites, *BUILT_IN_SITES)
        self._site_aliases = dict(settings.site_aliases)
        self._gpu_aliases = dict(settings.gpu_aliases)
        self._places: dict[Execute | None, Place] = {}

    def site(self, machine: Execute | None) -> str | None:
        """The site of an execution, by the name that the settings give it."""
        found = site_of(machine, self._sites)
        return self._site_aliases.get(found, found) if found is not None else None

    def site_of_address(self, address: str) -> str | None:
        """The site of a host that nothing ran on yet, as far as rules tell."""
        found = site_of_address(address, self._sites)
        return self._site_aliases.get(found, found) if found is not None else None

    def gpu(self, machine: Execute | None) -> str | None:
        """The GPU's model as logged, or as the settings call it."""
        found = machine.gpu if machine is not None else None
        return self._gpu_aliases.get(found, found) if found is not None else None

    def place(self, machine: Execute | None) -> Place:
        """Site and GPU model of an execution."""
        # Jobs that ran on one machine mostly have one object for it, and all are compared fast.
        place = self._places.get(machine)
        if place is None:
            if len(self._places) >= MOST_PLACES:
                self._places.clear()
            place = self._places[machine] = self.site(machine), self.gpu(machine)
        return place


@dataclass(slots=True)
class GpuSeconds:
    """Microseconds of executions that have ended, times their GPUs, times their CPUs as far as
    these are known, and by the clock."""

    good: int = 0
    bad: int = 0
    cpu_good: int = 0
    cpu_bad: int = 0
    wall_good: int = 0
    wall_bad: int = 0

    def kept(self) -> tuple[int, ...]:
        """As plain data."""
        return self.good, self.bad, self.cpu_good, self.cpu_bad, self.wall_good, self.wall_bad

    def hours(self, measure: HourUnit, in_flight: int = 0) -> GpuHours:
        """In hours of this measure, like ``in_flight``."""
        good, bad = {
            HourUnit.GPU: (self.good, self.bad),
            HourUnit.CPU: (self.cpu_good, self.cpu_bad),
            HourUnit.WALL: (self.wall_good, self.wall_bad),
        }[measure]
        return GpuHours(good / AN_HOUR, bad / AN_HOUR, in_flight / AN_HOUR, measure)


class RunningMedian:
    """The median of values that come and go."""

    __slots__ = ("_new", "_sorted")

    def __init__(self, kept: bytes = b"") -> None:
        self._sorted = array("d", kept)
        self._new: list[float] = []

    def kept(self) -> bytes:
        """As plain data. Somebody else may look meanwhile: nothing is put in order here."""
        return array("d", sorted([*self._sorted, *self._new])).tobytes()

    def add(self, value: float) -> None:
        self._new.append(value)

    def remove(self, value: float) -> None:
        self._settle()
        del self._sorted[bisect_left(self._sorted, value)]

    def value(self) -> float | None:
        """None of none."""
        self._settle()
        n = len(self._sorted)
        if not n:
            return None
        upper = self._sorted[n // 2]
        return upper if n % 2 else (self._sorted[n // 2 - 1] + upper) / 2

    def _settle(self) -> None:
        if len(self._new) > FEW:
            self._sorted = array("d", sorted([*self._sorted, *self._new]))
        else:
            for value in self._new:
                insort(self._sorted, value)
        self._new.clear()


@dataclass(slots=True)
class SiteTotals:
    """What a site or a GPU model served. ``targets``: where those wanted to go that ran there,
    and how many."""

    executions: int = 0
    completed: int = 0
    hours: GpuSeconds = field(default_factory=GpuSeconds)
    targets: Counter[str] = field(default_factory=Counter)
    seconds: RunningMedian = field(default_factory=RunningMedian)

    def kept(self) -> Any:
        """As plain data."""
        hours = self.hours.kept()
        return self.executions, self.completed, hours, dict(self.targets), self.seconds.kept()


def _served(kept: Any) -> SiteTotals:
    executions, completed, hours, targets, seconds = kept
    return SiteTotals(
        executions, completed, GpuSeconds(*hours), Counter(targets), RunningMedian(seconds)
    )


@dataclass(slots=True)
class LossTotals:
    """What one cause cost, and the jobs that it struck. ``last``: the last of them, None where
    that is to be found anew; ``example``: what was said of the last one, in brackets, None where
    that is."""

    executions: int = 0
    micros: int = 0
    jobs: Counter[JobKey] = field(default_factory=Counter)
    last: JobKey | None = None
    example: tuple[str | None] | None = None

    def last_job(self) -> JobKey:
        if self.last is None:
            self.last = max(self.jobs)
        return self.last


class Open(NamedTuple):
    """An execution in flight: what it comes to depends on as-of."""

    start: datetime
    gpus: int
    run: str | None
    site: str | None
    gpu: str | None
    dagman: bool
    cpus: int | None


class Owner(NamedTuple):
    """Whose a job is, as far as sums are made by it. ``dagman``: it is a sub-DAG's DAGMan,
    which runs at no site."""

    run: str | None
    target: str | None
    dagman: bool


NOBODYS: Final = Owner(None, None, False)


class _Numbers(Generic[H]):
    """Numbers for things, so that a share can be kept small."""

    def __init__(self) -> None:
        self.things: list[H] = []
        self._numbers: dict[H, int] = {}

    def of(self, thing: H) -> int:
        number = self._numbers.get(thing)
        if number is None:
            number = self._numbers[thing] = len(self.things)
            self.things.append(thing)
        return number

    def recall(self, things: Iterable[H]) -> None:
        """These are the things, in the order of their numbers."""
        self.things = list(things)
        self._numbers = {thing: number for number, thing in enumerate(self.things)}


_Ran: TypeAlias = tuple[int, int, int, int, int, int, int]
"""One execution: where (a number), kind, GPU-microseconds, microseconds, cause (a number), GPUs,
and CPUs (-1: not known)."""

_Share: TypeAlias = tuple[int, int, int, tuple[int, ...], tuple[_Ran, ...]]
"""What one job adds: owner (a number), bytes sent, received, transfers (kind and microseconds
by turns), executions."""

NO_CAUSE: Final = -1


class RunningTotals:
    """The sums over all jobs.

    ``queued``: the jobs that are in the queue; ``open``: executions in flight, by job; ``gaps``:
    what the log lacks, by job: line and sentence.
    """

    def __init__(self, names: NameTable, clock: Clock) -> None:
        self.total = GpuSeconds()
        self.executions = self.with_gpus = self.with_cpus = 0
        self.runs: dict[str, GpuSeconds] = {}
        self.sites: dict[str | None, SiteTotals] = {}
        self.gpus: dict[str | None, SiteTotals] = {}
        self.causes: dict[Cause, LossTotals] = {}
        self.queued: set[JobKey] = set()
        self.open: dict[JobKey, Open] = {}
        self.gaps: dict[JobKey, tuple[tuple[int, str], ...]] = {}
        self._names = names
        self._clock = clock
        self._transfers = [[0, 0] for _ in KINDS]
        self._sent = self._received = 0
        self._shares: dict[JobKey, bytes] = {}
        self._owners = _Numbers[Owner]()
        self._places = _Numbers[Place]()
        self._causes = _Numbers[Cause]()

    def take(self, key: JobKey, job: Job, owner: Owner) -> None:
        """Put in what the job comes to now, and take out what it came to before."""
        before = self._shares.get(key)
        life = job.life()
        share: _Share = (
            self._owners.of(owner),
            life.bytes_sent or 0,
            life.bytes_received or 0,
            tuple(self._moves(life.transfers)),
            tuple(map(self._ran, life.executions)),
        )
        packed = marshal.dumps(share, PLAIN)
        if packed != before:
            if before is not None:
                self._count(key, marshal.loads(before), -1)
            self._count(key, share, 1)
            self._shares[key] = packed
        self._note_present(key, life, owner)
        if life.gaps:
            self.gaps[key] = tuple((line, text) for line, _, text in life.gaps)
        else:
            self.gaps.pop(key, None)

    def drop(self, key: JobKey) -> None:
        """Take out what a job came to."""
        before = self._shares.pop(key, None)
        if before is not None:
            self._count(key, marshal.loads(before), -1)
        self.queued.discard(key)
        self.open.pop(key, None)
        self.gaps.pop(key, None)

    @property
    def measure(self) -> HourUnit:
        """What hours are told in."""
        return measure_of(self.executions, self.with_gpus, self.with_cpus)

    def complete(self, place: Place, by: int) -> None:
        """An epoch was completed there (1), or was not after all (-1)."""
        for all_served, name in zip((self.sites, self.gpus), place, strict=True):
            served = all_served.get(name)
            if served is None:
                served = all_served[name] = SiteTotals()
            served.completed += by
            if by < 0:
                _drop_empty(all_served, name)

    # --- kept ---------------------------------------------------------------------------

    def executions_of(self, key: JobKey) -> int | None:
        """How many executions a job had, None where that is not added up."""
        share = self._shares.get(key)
        return None if share is None else len(marshal.loads(share)[4])

    def share_of(self, key: JobKey) -> bytes | None:
        """What a job adds, as it lies here."""
        return self._shares.get(key)

    def kept(self) -> Any:
        """As plain data all but the shares (:meth:`share_of`)."""
        return {
            "numbers": [[*map(tuple, each.things)] for each in self._all_numbers()],
            "total": self.total.kept(),
            "measured": (self.executions, self.with_gpus, self.with_cpus),
            "runs": {key: hours.kept() for key, hours in self.runs.items()},
            "sites": [(name, served.kept()) for name, served in self.sites.items()],
            "gpus": [(name, served.kept()) for name, served in self.gpus.items()],
            "causes": [
                (cause, spent.executions, spent.micros, dict(spent.jobs))
                for cause, spent in self.causes.items()
            ],
            "queued": list(self.queued),
            "open": [(key, tuple(each)) for key, each in self.open.items()],
            "gaps": dict(self.gaps),
            "moved": (self._transfers, self._sent, self._received),
        }

    def recall(self, kept: Any) -> None:
        """What another, of the same settings, had :meth:`kept`; this one has nothing yet."""
        owners, places, causes = kept["numbers"]
        self._owners.recall(Owner(*each) for each in owners)
        self._places.recall(places)
        self._causes.recall(causes)
        self.total = GpuSeconds(*kept["total"])
        self.executions, self.with_gpus, self.with_cpus = kept["measured"]
        self.runs = {key: GpuSeconds(*hours) for key, hours in kept["runs"].items()}
        self.sites = {name: _served(served) for name, served in kept["sites"]}
        self.gpus = {name: _served(served) for name, served in kept["gpus"]}
        for cause, executions, micros, jobs in kept["causes"]:
            self.causes[cause] = LossTotals(executions, micros, Counter(jobs))
        self.queued = set(kept["queued"])
        self.open = {key: Open(*each) for key, each in kept["open"]}
        self.gaps = kept["gaps"]
        self._transfers, self._sent, self._received = kept["moved"]

    def recall_share(self, key: JobKey, share: bytes) -> None:
        """What another had as a job's (:meth:`share_of`)."""
        self._shares[key] = share

    def _all_numbers(self) -> tuple[_Numbers[Owner], _Numbers[Place], _Numbers[Cause]]:
        return self._owners, self._places, self._causes

    def transfers(self) -> TransferTotals:
        """All transfers, and all bytes."""
        ok, aborted, unfinished, output = (Count(n, us / SECOND) for n, us in self._transfers)
        return TransferTotals(ok, aborted, unfinished, output, self._sent, self._received)

    # --- one job ------------------------------------------------------------------------

    def _moves(self, spans: Iterable[TransferSpan]) -> Iterable[int]:
        for span in spans:
            if span.direction != "output":
                kind = _COUNTED.get(span.outcome)
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

    def _ran(self, e: Execution) -> _Ran:
        where = self._places.of(self._names.place(e.machine))
        gpus, cpus = e.gpus or 0, -1 if e.cpus is None else e.cpus
        if e.outcome is Outcome.IN_FLIGHT:
            return where, IN_FLIGHT, 0, 0, NO_CAUSE, gpus, cpus
        micros = self._micros(e.start, e.end)
        spent = micros * gpus
        if e.outcome is Outcome.GOOD:
            return where, GOOD, spent, micros, NO_CAUSE, gpus, cpus
        cause = self._causes.of(blamed(e))
        return where, BAD, spent, micros, cause, gpus, cpus

    def _note_present(self, key: JobKey, life: JobHistory, owner: Owner) -> None:
        if life.state in ACTIVE:
            self.queued.add(key)
        else:
            self.queued.discard(key)
        e = life.open
        if e is None:
            self.open.pop(key, None)
        else:
            site, gpu = self._names.place(e.machine)
            self.open[key] = Open(e.start, e.gpus or 0, owner.run, site, gpu, owner.dagman, e.cpus)

    # --- in and out ---------------------------------------------------------------------

    def _count(self, key: JobKey, share: _Share, by: int) -> None:
        number, sent, received, moves, ran = share
        owner = self._owners.things[number]
        self._sent += by * sent
        self._received += by * received
        for at in range(0, len(moves), 2):
            count = self._transfers[moves[at]]
            count[0] += by
            count[1] += by * moves[at + 1]
        sums = [self.total]
        if owner.run is not None:
            sums.append(self.runs.setdefault(owner.run, GpuSeconds()))
        for each in ran:
            where, kind, spent, _, cause, gpus, cpus = each
            if owner.dagman:
                for hours in sums:
                    # It runs at the access point: what it spent there is no cost of a site.
                    _add(hours, kind, by * spent)
            else:
                self.executions += by
                self.with_gpus += by * (gpus > 0)
                self.with_cpus += by * (cpus >= 0)
                for hours in sums:
                    _measure(hours, each, by)
                site, gpu = self._places.things[where]
                _serve(self.sites, site, owner.target, each, by)
                _serve(self.gpus, gpu, owner.target, each, by)
            if cause != NO_CAUSE:
                self._blame(self._causes.things[cause], key, spent, by)

    def _blame(self, cause: Cause, key: JobKey, micros: int, by: int) -> None:
        spent = self.causes.setdefault(cause, LossTotals())
        spent.executions += by
        spent.micros += by * micros
        spent.jobs[key] += by
        if not spent.jobs[key]:
            del spent.jobs[key]
            if spent.last == key:
                spent.last = spent.example = None
        elif spent.last is not None and key >= spent.last:
            spent.last, spent.example = key, None
        if not spent.executions:
            del self.causes[cause]


def blamed(e: Execution) -> Cause:
    """What a bad end is put down to."""
    return e.cause, e.code, e.subcode, e.uncertain


def _serve(
    all_served: dict[str | None, SiteTotals],
    name: str | None,
    target: str | None,
    ran: _Ran,
    by: int,
) -> None:
    kind, micros = ran[1], ran[3]
    served = all_served.get(name)
    if served is None:
        served = all_served[name] = SiteTotals()
    served.executions += by
    _measure(served.hours, ran, by)
    if target:
        served.targets[target] += by
        if not served.targets[target]:
            del served.targets[target]
    if kind == GOOD:
        (served.seconds.add if by > 0 else served.seconds.remove)(micros / SECOND)
    if by < 0:
        _drop_empty(all_served, name)


def _drop_empty(all_served: dict[str | None, SiteTotals], name: str | None) -> None:
    served = all_served[name]
    if not served.executions and not served.completed:
        del all_served[name]


def _measure(hours: GpuSeconds, ran: _Ran, by: int) -> None:
    """Add what an execution came to in every measure."""
    _, kind, spent, micros, _, _, cpus = ran
    _add(hours, kind, by * spent)
    if kind == GOOD:
        hours.wall_good += by * micros
        hours.cpu_good += by * micros * max(0, cpus)
    elif kind == BAD:
        hours.wall_bad += by * micros
        hours.cpu_bad += by * micros * max(0, cpus)


def _add(hours: GpuSeconds, kind: int, micros: int) -> None:
    if kind == GOOD:
        hours.good += micros
    elif kind == BAD:
        hours.bad += micros
