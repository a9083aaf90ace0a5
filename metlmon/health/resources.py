"""What epochs used of what they requested: idle GPUs, scarce memory, oversized requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from typing import Final, TypeAlias

from metlmon.eventlog.events import ResourceUsage, least_amount
from metlmon.health.advice import OUT_OF_RESOURCES
from metlmon.health.facts import HealthFacts
from metlmon.health.groups import make_entry, unique
from metlmon.health.losses import end_of
from metlmon.health.types import KINDS, HealthEntry, Severity
from metlmon.snapshot.records import HOUR, Execution, HourUnit
from metlmon.stats.resources import RESOURCES, requested
from metlmon.stats.totals import group_by
from metlmon.text.formatting import count, hours, number

GPU_IDLE: Final = 0.1
GPU_SECONDS: Final = HOUR
"""A GPU used less than a tenth does not train; an hour is longer than the start of a training."""

TIGHT: Final = 0.95
"""Share of the request."""

OVER_TIMES: Final = 4.0
OVER_EPOCHS: Final = 3
OVER_SECONDS: Final = 600.0
"""Peaks of shorter epochs may be missed: the starter measures every five minutes."""

_LEAST: Final = {"memory_mb": 1024.0, "disk_kb": 1024.0**2, "cpus": 1.0}
"""Amounts of resources below which a smaller request gains nothing."""

_STEPS: Final = {
    "gpu-idle": "See whether it waits for data (num_workers)",
    "memory-tight": "Raise request_memory before jobs are held",
    "over-requested": "Request less: more slots match it (metlmon usage --requests)",
}

_Group: TypeAlias = list[Execution]


def resource_entries(facts: HealthFacts) -> Iterator[HealthEntry]:
    """Entries on what epochs used, by the usage tables of executions that have ended."""
    trained = [each for each in facts.executions if each.training and each.end and each.usage]
    trained.sort(key=end_of)
    shapes = group_by(trained, _shape)
    large = {shape: text for shape, group in shapes.items() if (text := _over_text(group))}
    yield from _entries(facts, "gpu-idle", trained, _idle_gpus, _idle_text)
    yield from _entries(facts, "memory-tight", trained, _scarce_memory, _scarce_text)
    yield from _entries(
        facts,
        "over-requested",
        filter(_is_usual, trained),
        lambda execution: str(_shape(execution)) if _shape(execution) in large else "",
        lambda group: large[_shape(group[0])],
    )


def _entries(
    facts: HealthFacts,
    kind: str,
    executions: Iterable[Execution],
    find: Callable[[Execution], str | None],
    text: Callable[[_Group], str],
) -> Iterator[HealthEntry]:
    """An entry for each present cause, and one for causes that are over.

    ``find`` returns the cause in an execution, empty if it has none, None if that was not measured.
    A cause is open in a run with epochs left until a later execution of the run is without it.
    """
    found = [(each, cause) for each in executions if (cause := find(each)) is not None]
    latest = {execution.key: cause for execution, cause in found}
    left = {run.key for run in facts.runs.values() if run.epochs_left and not run.stopped}
    counts_gpus = facts.ledger.measure is HourUnit.GPU
    groups: dict[tuple[str, bool], _Group] = {}
    for execution, cause in found:
        if cause:
            is_open = execution.key in left and latest[execution.key] == cause
            groups.setdefault((cause, is_open), []).append(execution)
    for (cause, is_open), group in groups.items():
        is_idle = kind == "gpu-idle"
        several = is_idle and _gpus(group[0]) > 1
        epochs = count(len(unique(each.node_key or each.job for each in group)), facts.ledger.item)
        yield make_entry(
            kind=kind,
            text=f"{text(group)} in {epochs}",
            steps=("Use all of its GPUs, or request one",) * several + (_STEPS[kind],),
            is_open=is_open,
            entries=group,
            key=cause if is_open else f"{cause} past",
            severity=KINDS[kind].severity if is_open else Severity.NOTE,
            since=group[0].start,
            until=None if is_open else end_of(group[-1]),
            unused_gpu_hours=_unused_hours(group) if is_idle and counts_gpus else 0.0,
        )


def _table(execution: Execution) -> ResourceUsage:
    assert execution.usage is not None
    return execution.usage


def _gpus(execution: Execution) -> float:
    allocated = _table(execution).gpus_allocated
    return execution.gpus or 0 if allocated is None else allocated


def _idle_gpus(execution: Execution) -> str | None:
    """Which GPUs had nothing to do; the work of others on a shared GPU counts as use."""
    used, gpus = _table(execution).gpus, _gpus(execution)
    if used is None or not gpus or execution.seconds < GPU_SECONDS:
        return None
    idle = used < GPU_IDLE or (gpus > 1 and used <= gpus - 1 + GPU_IDLE)
    return f"of {gpus:g}" if idle else ""


def _idle_text(group: _Group) -> str:
    """``GPU idle: 0.97 to 0.98 of 2 used (37.0 GPU-h unused)``."""
    used = [_table(each).gpus or 0.0 for each in group]
    ends = " to ".join(dict.fromkeys(f"{each:.2f}" for each in (min(used), max(used))))
    gpus = _gpus(group[0])
    return f"GPU idle: {ends} of {gpus:g} used ({hours(_unused_hours(group))} GPU-h unused)"


def _unused_hours(group: _Group) -> float:
    """GPU-hours during which allocated GPUs were not in use."""
    return sum((_gpus(e) - (_table(e).gpus or 0.0)) * e.seconds / HOUR for e in group)


def _scarce_memory(execution: Execution) -> str | None:
    """The request that an epoch nearly exceeded; a job that exceeds its request is held."""
    usage = _table(execution)
    peak, request = usage.memory_mb, usage.memory_mb_requested
    if peak is None or not request:
        return None
    # By default, a job that requests no memory requests what it used.
    default = peak == request < (usage.memory_mb_allocated or 0)
    if default or peak < TIGHT * request or execution.code == OUT_OF_RESOURCES:
        return ""
    return f"{request:g}" if least_amount(peak) >= TIGHT * request else ""


def _scarce_text(group: _Group) -> str:
    """``memory tight: up to 15 800 of 16 000 MB used``."""
    peak = max(_table(each).memory_mb or 0.0 for each in group)
    upper = "up to " if len(group) > 1 else "at most " if least_amount(peak) < peak else ""
    request = _table(group[0]).memory_mb_requested or 0.0
    return f"memory tight: {upper}{number(round(peak))} of {number(round(request))} MB used"


def _shape(execution: Execution) -> tuple[float | None, ...]:
    return requested(_table(execution))


def _is_usual(execution: Execution) -> bool:
    return execution.final and execution.seconds >= OVER_SECONDS


def _over_text(group: _Group) -> str:
    """``over-requested: at most 22.0 of 156 GB memory used``, for one shape; empty if it fits.

    Failed and lost executions count for the maximum, too. CPUs are averages.
    """
    parts = []
    usual = [_is_usual(each) for each in group]
    for name, least in _LEAST.items():
        used = [getattr(each.usage, name) for each in group]
        request = getattr(group[0].usage, f"{name}_requested") or 0.0
        most = max((amount for amount in used if amount is not None), default=0.0)
        epochs = sum(amount is not None for amount in compress(used, usual))
        if epochs >= OVER_EPOCHS and request >= OVER_TIMES * max(most, least):
            resource = RESOURCES[name]
            text = resource.used_of(resource.used(most), resource.amount(request))
            parts.append(f"{text} {resource.noun}")
    return f"over-requested: at most {', '.join(parts)} used" if parts else ""
