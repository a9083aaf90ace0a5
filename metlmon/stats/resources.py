"""What executions used of each resource compared with requests and allocations, by group.

The figures are those of the usage tables with which executions end. Only executions that completed
an epoch of usual length show what an epoch needs: others form groups of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any, ClassVar, Final, Literal, NamedTuple

from msgspec import Struct

from metlmon.eventlog.events import ResourceUsage, least_amount
from metlmon.model.states import Outcome
from metlmon.snapshot.records import HOUR, Execution, HourUnit, Ledger, job_key
from metlmon.stats.totals import group_by, percentile
from metlmon.stats.windows import ALL, TimeWindow, clip_ledger
from metlmon.text.formatting import UNKNOWN, request_amount, size

By = Literal["run", "site", "gpu", "host", "request"]

KILOBYTES: Final = {"MB": 1024, "KB": 1, "": 0}
"""KB per unit of submit files; CPUs and GPUs have no unit."""


class Resource(NamedTuple):
    """A resource that jobs request and use.

    ``name``: the name of its figures in usage tables, which are in ``unit``. ``command``: the
    submit command that requests it; ``field``: that of the request of a new ensemble (``values``:
    of a template).
    """

    name: str
    noun: str
    unit: str
    command: str
    field: str

    def amount(self, value: float | None) -> str:
        """An amount: ``2``, ``0.9123``, ``31.7 GB``."""
        if value is None:
            return UNKNOWN
        return size(int(value * KILOBYTES[self.unit] * 1024), 1024) if self.unit else f"{value:.4g}"

    def used(self, value: float | None, is_most: bool = False) -> str:
        """What was used: ``0.91``, ``30.9 GB``; ``≤47.7 GB`` if that is an upper bound."""
        if value is None:
            return UNKNOWN
        return f"{'≤' * is_most}{self.amount(value) if self.unit else f'{value:.2f}'}"

    @staticmethod
    def used_of(used: str, of: str) -> str:
        """``0.91 of 1``, ``30.9 of 156 GB``: what was used of a request, in one unit."""
        unit = of.partition(" ")[2]
        return used if of == UNKNOWN else f"{used.removesuffix(f' {unit}')} of {of}"

    def submitted(self, value: float | None) -> str:
        """``35GB``, as in a submit file; for CPUs and GPUs a number."""
        if value is None:
            return UNKNOWN
        return request_amount(value * KILOBYTES[self.unit]) if self.unit else f"{value:g}"

    def least(self, amount: float) -> float:
        """The smallest amount that a logged figure may mean, since the schedd rounds some up.

        It rounds ResidentSetSize and DiskUsage. Below 50 MB or 50 KB, too many amounts look rounded
        by chance.
        """
        rounded = self.name in ("memory_mb", "disk_kb") and amount >= 50
        return least_amount(amount, KILOBYTES[self.unit]) if rounded else amount


RESOURCES: Final = {
    each.name: each
    for each in (
        Resource("memory_mb", "memory", "MB", "request_memory", "memory_mb"),
        Resource("disk_kb", "disk", "KB", "request_disk", "values.disk"),
        Resource("cpus", "CPUs", "", "request_cpus", "values.cpus"),
        Resource("gpus", "GPUs", "", "request_gpus", "gpus"),
        Resource("gpu_memory_mb", "GPU memory", "MB", "gpus_minimum_memory", "gpu_memory_mb"),
    )
}
"""The resources by name, in the order in which they are shown."""


def requested(usage: ResourceUsage) -> tuple[float | None, ...]:
    """What a job requested of each resource: jobs with equal requests have one shape."""
    return tuple(getattr(usage, f"{name}_requested", None) for name in RESOURCES)


class Ended(StrEnum):
    """How the executions of a group ended.

    ``COMPLETED``: they completed an epoch and trained it themselves (no hidden compute); for jobs
    that are not epochs, they succeeded. ``OTHER``: evicted, removed, held, running, or too short
    to have trained their epoch.
    """

    COMPLETED = "completed"
    FAILED = "failed"
    OTHER = "other"


class ResourceUse(Struct, frozen=True):
    """What executions used of one resource; None where nothing was measured.

    ``measured``: executions with a figure; ``median``, ``p95`` (95th percentile, linear between
    ranks) and ``maximum`` are those of their figures. ``at_most``: those of the three that are
    upper bounds, since the schedd rounded figures up. ``requested_*``, ``allocated_*``: the minimum
    and maximum in the tables.
    """

    measured: int = 0
    median: float | None = None
    p95: float | None = None
    maximum: float | None = None
    at_most: tuple[str, ...] = ()
    requested_min: float | None = None
    requested_max: float | None = None
    allocated_min: float | None = None
    allocated_max: float | None = None


class ResourceGroup(Struct, frozen=True):
    """What the executions of a run, site, GPU model, host or request used.

    ``key``: that of the group, ``name``: the same in readable form; None if unknown. ``measured``:
    executions with a figure of any resource. ``gpu_hours``: all hours; ``measured_gpu_hours``:
    those of executions whose GPU use was measured, and ``computed_gpu_hours``: the latter times the
    share of GPUs in use. ``gpus``: in use on average, ``gpu_memory_mb``: peak of the fullest
    device, ``memory_mb``: peak of the job so far, ``disk_kb``: of the execution. ``cpus``: cores in
    use, averaged over the execution.
    """

    key: str | None
    name: str | None
    ended: Ended
    executions: int
    measured: int
    gpu_hours: float
    measured_gpu_hours: float
    computed_gpu_hours: float | None
    gpus: ResourceUse
    gpu_memory_mb: ResourceUse
    cpus: ResourceUse
    memory_mb: ResourceUse
    disk_kb: ResourceUse


class Resources(Struct, frozen=True):
    """What was used in ``window``: in ``total``, and in groups ``by`` an attribute.

    Each value has up to three groups, one for each way to end; most GPU-hours first.
    """

    json_omits: ClassVar = frozenset({"as_of"})

    as_of: datetime | None
    window: TimeWindow
    by: By
    total: tuple[ResourceGroup, ...]
    groups: tuple[ResourceGroup, ...]

    @property
    def completed(self) -> ResourceGroup | None:
        """All executions that completed an epoch of usual length; None if there are none."""
        return next((each for each in self.total if each.ended is Ended.COMPLETED), None)


def resource_use(
    ledger: Ledger, by: By = "site", window: TimeWindow = ALL, unit: HourUnit = HourUnit.GPU
) -> Resources:
    """What executions used of what they requested, in groups; ``unit``: that of their order."""
    entries = [e for e in clip_ledger(ledger, window).executions if not e.at_access_point]
    usages = {job_key(job): job.usage for job in ledger.jobs}
    key_of: Callable[[Execution], str | None] = attrgetter("key" if by == "run" else by)
    if by == "request":
        key_of = lambda e: _request(e.usage or usages.get(job_key(e)))  # noqa: E731
    hidden = ledger.hidden_nodes
    # From the whole ledger: a clipped execution is not final outside its window.
    ends = {(e.job, e.start): ended_as(e, e.node_key in hidden) for e in ledger.executions}

    def groups(key: str | None, entries: Sequence[Execution]) -> Iterable[ResourceGroup]:
        by_end = group_by(entries, lambda entry: ends[entry.job, entry.start])
        name = entries[0].run if by == "run" and key is not None else key
        return (_group(key, name, end, by_end[end]) for end in Ended if end in by_end)

    keyed = group_by(entries, key_of)
    seconds = {key: sum(unit.seconds(e) or 0.0 for e in group) for key, group in keyed.items()}
    ordered = sorted(keyed, key=lambda key: (-seconds[key], key is None, key or ""))
    return Resources(
        as_of=ledger.as_of,
        window=window,
        by=by,
        total=tuple(groups(None, entries)),
        groups=tuple(group for key in ordered for group in groups(key, keyed[key])),
    )


def ended_as(entry: Execution, hidden: bool) -> Ended:
    """How an execution ended; ``hidden``: whether another one trained the epoch of its job."""
    trained = entry.final and not hidden
    succeeded = not entry.final and not entry.training and entry.outcome is Outcome.GOOD
    if trained or succeeded:
        return Ended.COMPLETED
    return Ended.FAILED if entry.outcome is Outcome.FAILED else Ended.OTHER


def _group(
    key: str | None, name: str | None, ended: Ended, entries: Sequence[Execution]
) -> ResourceGroup:
    # In a window, an execution is counted where it ended; its hours are those inside.
    tables = [e.usage for e in entries if e.counted and e.usage is not None]
    hours = [(e.gpu_seconds or 0.0) / HOUR for e in entries]
    known = [(h, s) for h, e in zip(hours, entries, strict=True) if (s := _share(e)) is not None]
    return ResourceGroup(
        key=key,
        name=name,
        ended=ended,
        executions=sum(e.counted for e in entries),
        measured=sum(
            any(getattr(table, each) is not None for each in RESOURCES) for table in tables
        ),
        gpu_hours=sum(hours),
        measured_gpu_hours=sum(h for h, _ in known),
        computed_gpu_hours=sum(h * share for h, share in known) if known else None,
        **{name: _use(tables, each) for name, each in RESOURCES.items()},
    )


def _share(entry: Execution) -> float | None:
    """The share of its GPUs that an execution used; None if not measured."""
    usage = entry.usage
    allocated = (usage.gpus_allocated if usage else None) or entry.gpus
    return usage.gpus / allocated if usage and usage.gpus is not None and allocated else None


STATISTICS: Final = {"median": 0.5, "p95": 0.95, "maximum": 1.0}


def amounts_of(tables: Iterable[ResourceUsage], column: str) -> list[float]:
    """The known amounts of a column of usage tables, in order."""
    amounts = (getattr(table, column, None) for table in tables)
    return sorted(amount for amount in amounts if amount is not None)


def _use(tables: Sequence[ResourceUsage], resource: Resource) -> ResourceUse:
    """The use of one resource, and what was requested and allocated of it."""

    used = amounts_of(tables, resource.name)
    figures: dict[str, Any] = {"measured": len(used)}
    for column in ("requested", "allocated"):
        if amounts := amounts_of(tables, f"{resource.name}_{column}"):
            figures |= {f"{column}_min": amounts[0], f"{column}_max": amounts[-1]}
    if used:
        figures |= {each: percentile(used, share) for each, share in STATISTICS.items()}
        least = sorted(map(resource.least, used))
        figures["at_most"] = tuple(
            each for each, share in STATISTICS.items() if percentile(least, share) < figures[each]
        )
    return ResourceUse(**figures)


def _request(usage: ResourceUsage | None) -> str | None:
    """``2 GPUs, 8 CPUs, 156 GB, 100 GB disk``; None if nothing is known."""
    if usage is None:
        return None
    parts = []
    for name, noun in (
        ("gpus", " GPUs"),
        ("cpus", " CPUs"),
        ("memory_mb", ""),
        ("disk_kb", " disk"),
    ):
        amount = getattr(usage, f"{name}_requested")
        if amount is not None:
            text = RESOURCES[name].amount(amount) + noun
            parts.append(text.removesuffix("s") if amount == 1 else text)
    return ", ".join(parts) or None
