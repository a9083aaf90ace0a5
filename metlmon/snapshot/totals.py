"""The totals of all jobs: the only module that sums them.

All sums are of whole microseconds (times whole GPUs), so that they do not depend on the order. All
definitions are those of ``metlmon/README.md``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from metlmon.model.job_events import JobKey
from metlmon.model.reasons import REQUEUED
from metlmon.model.states import Outcome
from metlmon.snapshot.records import (
    Count,
    Execution,
    GpuHours,
    HourUnit,
    Job,
    Transfer,
    TransferTotals,
    hour_unit_of,
)

# Module constants, since Python 3.11 looks up each Enum member through a function.
_GOOD: Final = Outcome.GOOD
_IN_FLIGHT: Final = Outcome.IN_FLIGHT

SECOND: Final = 1_000_000
AN_HOUR: Final = 3600 * SECOND
"""In microseconds, the resolution of the logs."""

UNITS: Final = (HourUnit.GPU, HourUnit.CPU, HourUnit.WALL)

LossCause: TypeAlias = tuple[str | None, int | None, int | None, bool]
"""Cause of a bad end, code, subcode, and whether the true end is unknown. Losses due to a gap in
the log are not mixed with known ones."""


class ExecutionTotals:
    """Numbers of executions, and their microseconds by outcome, for each of UNITS.

    ``executions``, ``good_executions``, ``bad_executions``: those that ended in the window of
    the entries, or are in flight; good are those that ended well or stored a checkpoint.
    ``completed``: epochs that they completed. Microseconds are whole, so that sums do not depend
    on their order; they are 0 where the GPUs or CPUs are not known.
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

    def add(self, entry: Execution) -> None:
        """Add an execution."""
        seconds, outcome = entry.seconds, entry.outcome
        wall = round(seconds * SECOND)
        gpu = round(entry.gpu_seconds * SECOND) if entry.gpu_seconds else 0
        cpu = wall * (entry.cpus or 0)
        good = ended = True
        if outcome is _GOOD:
            sums = self.good
        elif outcome is _IN_FLIGHT:
            sums, good, ended = self.in_flight, False, False
        elif entry.checkpoint is None:
            sums, good = self.bad, False
        else:
            sums = self.good
            lost = round(entry.lost * SECOND)
            lost_gpu, lost_cpu = lost * (entry.gpus or 0), lost * (entry.cpus or 0)
            self.bad[0] += lost_gpu
            self.bad[1] += lost_cpu
            self.bad[2] += lost
            gpu, cpu, wall = gpu - lost_gpu, cpu - lost_cpu, wall - lost
        sums[0] += gpu
        sums[1] += cpu
        sums[2] += wall
        if entry.counted:
            self.executions += 1
            self.good_executions += good
            self.bad_executions += ended and not good
            self.completed += entry.final

    def merge(self, other: ExecutionTotals) -> None:
        """Add the totals of other executions."""
        self.executions += other.executions
        self.good_executions += other.good_executions
        self.bad_executions += other.bad_executions
        self.completed += other.completed
        for index in range(len(UNITS)):
            self.good[index] += other.good[index]
            self.bad[index] += other.bad[index]
            self.in_flight[index] += other.in_flight[index]

    def hours(self, unit: HourUnit) -> GpuHours:
        """Hours of ``unit``."""
        index = UNITS.index(unit)
        good, bad, in_flight = self.good[index], self.bad[index], self.in_flight[index]
        return GpuHours(good / AN_HOUR, bad / AN_HOUR, in_flight / AN_HOUR, unit)

    def gpu_seconds(self) -> tuple[float, float, float]:
        """GPU-seconds: good, bad, in flight."""
        return self.good[0] / SECOND, self.bad[0] / SECOND, self.in_flight[0] / SECOND


class SiteTotals(ExecutionTotals):
    """Totals of one site.

    ``targets``: the targets of the executions there. ``seconds``: of its good executions.
    """

    __slots__ = ("seconds", "targets")

    def __init__(self) -> None:
        super().__init__()
        self.targets: frozenset[str] = frozenset()
        self.seconds: list[float] = []

    def merge(self, other: ExecutionTotals) -> None:
        super().merge(other)
        if isinstance(other, SiteTotals):
            self.targets |= other.targets
            self.seconds += other.seconds

    @property
    def median_seconds(self) -> float | None:
        """The median of its good executions' seconds; None without any."""
        values = sorted(self.seconds)
        half = len(values) // 2
        return (values[half] + values[~half]) / 2 if values else None


class LossTotals:
    """Losses by one cause: executions, what they lost, and the reason that the last job logged.

    ``micros``: microseconds in each of ``UNITS``. ``last``: that job.
    """

    __slots__ = ("example", "executions", "last", "micros")

    def __init__(self) -> None:
        self.executions = 0
        self.micros = [0] * len(UNITS)
        self.last: JobKey = (-1, 0, 0)
        self.example: str | None = None

    def add(self, key: JobKey, entry: Execution) -> None:
        """Add a bad execution; those of the last job come last."""
        self.executions += 1
        if not entry.at_access_point:
            lost = round(entry.lost * SECOND)
            for index, unit in enumerate(UNITS):
                self.micros[index] += lost * (unit.weight(entry.gpus, entry.cpus) or 0)
        self.last, self.example = key, entry.reason

    def hours(self, unit: HourUnit) -> float:
        """Hours of ``unit`` that were lost."""
        return self.micros[UNITS.index(unit)] / AN_HOUR

    def merge(self, other: LossTotals) -> None:
        """Add the losses of other jobs."""
        self.executions += other.executions
        for index in range(len(UNITS)):
            self.micros[index] += other.micros[index]
        if other.last > self.last:
            self.last, self.example = other.last, other.example


class Totals:
    """The totals of jobs, from their entries in order.

    ``queued``: the jobs in the queue. ``gaps``: those whose log lacks events.
    """

    def __init__(self, jobs: Sequence[tuple[JobKey, Job]] = ()) -> None:
        self.total = ExecutionTotals()
        self.runs: defaultdict[str, ExecutionTotals] = defaultdict(ExecutionTotals)
        self.sites: defaultdict[str | None, SiteTotals] = defaultdict(SiteTotals)
        self.gpus: defaultdict[str | None, ExecutionTotals] = defaultdict(ExecutionTotals)
        self.causes: defaultdict[LossCause, LossTotals] = defaultdict(LossTotals)
        self.queued: list[JobKey] = []
        self.gaps: list[JobKey] = []
        self._with_gpus = self._with_cpus = self._sent = self._received = 0
        self._transfers: Counter[str] = Counter()
        self._transfer_micros: Counter[str] = Counter()
        groups: dict[tuple[str | None, ...], SiteTotals] = {}
        # One pass, in which every record is read once: most of the time goes into fetching them.
        for key, job in jobs:
            self._sent += job.bytes_sent or 0
            self._received += job.bytes_received or 0
            if job.ended is None and job.queued:
                self.queued.append(key)
            if job.gaps:
                self.gaps.append(key)
            for transfer in job.transfers:
                self._add_transfer(transfer)
            for entry in job.executions:
                self._add_execution(key, entry, groups)
        for (run, site, gpu, _), group in groups.items():
            self.total.merge(group)
            self.sites[site].merge(group)
            self.gpus[gpu].merge(group)
            if run is not None:
                self.runs[run].merge(group)

    def merge(self, other: Totals) -> None:
        """Add the totals of other jobs."""
        self.total.merge(other.total)
        for run, of_run in other.runs.items():
            self.runs[run].merge(of_run)
        for site, of_site in other.sites.items():
            self.sites[site].merge(of_site)
        for gpu, of_gpu in other.gpus.items():
            self.gpus[gpu].merge(of_gpu)
        for cause, losses in other.causes.items():
            self.causes[cause].merge(losses)
        self._transfers.update(other._transfers)
        self._transfer_micros.update(other._transfer_micros)
        self.queued += other.queued
        self.gaps += other.gaps
        self._sent += other._sent
        self._received += other._received
        self._with_gpus += other._with_gpus
        self._with_cpus += other._with_cpus

    def _add_execution(
        self, key: JobKey, entry: Execution, groups: dict[tuple[str | None, ...], SiteTotals]
    ) -> None:
        """Add an execution, to the group of those with its run, site, GPU model and target."""
        if entry.cause is not None:
            self.causes[loss_cause(entry)].add(key, entry)
        if entry.at_access_point:
            # Its time is not charged to a site.
            return
        name = entry.run, entry.site, entry.gpu, entry.target
        group = groups.get(name)
        if group is None:
            group = groups[name] = SiteTotals()
            if entry.target:
                group.targets = frozenset({entry.target})
        group.add(entry)
        if entry.outcome is _GOOD:
            group.seconds.append(entry.seconds)
        self._with_gpus += bool(entry.gpus)
        self._with_cpus += entry.cpus is not None

    def _add_transfer(self, transfer: Transfer) -> None:
        kind = transfer.outcome
        if transfer.direction == "output":
            if kind != "ok" or transfer.start is None:
                return
            kind = "output"
        seconds = transfer.seconds if transfer.end is not None else None
        self._transfers[kind] += 1
        self._transfer_micros[kind] += 0 if seconds is None else round(seconds * SECOND)

    @property
    def transfers(self) -> TransferTotals:
        """All transfers, and all bytes."""

        def count(kind: str) -> Count:
            return Count(self._transfers[kind], self._transfer_micros[kind] / SECOND)

        return TransferTotals(
            input_ok=count("ok"),
            input_aborted=count("aborted"),
            input_unfinished=count("unfinished"),
            output=count("output"),
            bytes_sent=self._sent,
            bytes_received=self._received,
        )

    @property
    def hour_unit(self) -> HourUnit:
        """The unit of the hours."""
        return hour_unit_of(self.total.executions, self._with_gpus, self._with_cpus)


def loss_cause(entry: Execution) -> LossCause:
    """The cause that a bad end is attributed to."""
    cause = entry.cause and entry.cause.removesuffix(REQUEUED)
    return cause, entry.code, entry.subcode, entry.uncertain


T = TypeVar("T", bound=ExecutionTotals)


def rank_by_hours(
    totals: Mapping[str | None, T], unit: HourUnit
) -> list[tuple[str | None, T, GpuHours]]:
    """Name, totals and hours of each site or GPU model, largest first."""
    ranked = [(name, each, each.hours(unit)) for name, each in totals.items()]
    return sorted(ranked, key=lambda entry: (-entry[2].total, -entry[1].executions, entry[0] or ""))
