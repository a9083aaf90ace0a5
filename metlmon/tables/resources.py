"""What executions used of each resource as text: sentences and columns. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from metlmon.stats.resources import UNITS, By, Ended, ResourceGroup, Resources, ResourceUse
from metlmon.tables.layout import Column, Kind
from metlmon.text.formatting import UNKNOWN, clip, count, gpu_models, hours, number, share, size
from metlmon.text.spans import BAD, DIM, PLAIN, Line, crop, line

NAMES: Final = dict(zip(UNITS, ("GPUs", "GPU memory", "CPUs", "memory", "disk"), strict=True))
"""The names of the resources, by the fields of a group."""

_DROPPED: Final = {"gpus": 1, "gpu_memory_mb": 5, "cpus": 2, "memory_mb": 0, "disk_kb": 3}
"""In which order the columns of the resources are dropped."""


def amount_text(name: str, value: float | None) -> str:
    """An amount of a resource: ``2``, ``0.91``, ``31.7 GB``."""
    if value is None:
        return UNKNOWN
    return size(int(value * UNITS[name]), 1024) if UNITS[name] else f"{value:.4g}"


def used_text(name: str, use: ResourceUse, statistic: str) -> str:
    """What was used: ``0.91``, ``30.9 GB``; ``≤47.7 GB`` where that is an upper bound."""
    value = getattr(use, statistic)
    text = amount_text(name, value) if UNITS[name] or value is None else f"{value:.2f}"
    return f"≤{text}" if statistic in use.at_most else text


def range_text(name: str, least: float | None, most: float | None) -> str:
    """What was requested or allocated: ``2``, ``1–2``, ``156 GB``, ``156–188 GB``."""
    low, high = amount_text(name, least), amount_text(name, most)
    unit = high.partition(" ")[2]
    return high if low == high else f"{low.removesuffix(f' {unit}')}–{high}"


def used_of_text(name: str, use: ResourceUse, statistic: str) -> str:
    """``0.91 of 1``, ``30.9 of 156 GB``, ``– of 2``: of what was requested; GPUs: allocated."""
    of = range_text(name, use.requested_min, use.requested_max)
    if name == "gpus":
        of = range_text(name, use.allocated_min, use.allocated_max)
    used = used_text(name, use, statistic)
    if of == UNKNOWN:
        return used
    unit = of.partition(" ")[2]
    return f"{used.removesuffix(f' {unit}')} of {of}"


NOTE: Final = (
    "GPUs and CPUs: median; memory and disk: 95th percentile; of what was requested (of GPUs: "
    "allocated). other: evicted, removed, held, running, or less than half as long as another "
    "execution of their epoch. ≤: rounded up by the schedd."
)


# --- sentences --------------------------------------------------------------------------------


def headline(resources: Resources, item: str) -> str:
    """What completed epochs used, of what they requested, and of how many that is known."""
    group = resources.completed
    if group is None:
        return f"No {item} of usual length has completed: what one needs is not known."
    parts = []
    for name in ("memory_mb", "cpus", "disk_kb", "gpus"):
        use = getattr(group, name)
        statistic = "maximum" if UNITS[name] else "median"
        if use.measured:
            most = "up to " if UNITS[name] and not use.at_most else ""
            parts.append(f"{NAMES[name]} {most}{used_of_text(name, use, statistic)}")
    if group.gpus.allocated_max and not group.gpus.measured:
        parts.append("GPUs not measured")
    done = f"{number(group.measured)} of {count(group.executions, item)} of usual length measured"
    return f"{done}: {'; '.join(parts)}" if parts else done


def hours_line(groups: Sequence[ResourceGroup]) -> str:
    """The GPU-hours computed, of those of executions whose use of GPUs was measured."""
    total = sum(group.gpu_hours for group in groups)
    measured = sum(group.measured_gpu_hours for group in groups)
    computed = sum(group.computed_gpu_hours or 0.0 for group in groups)
    if not measured:
        return f"GPU-hours computed: {UNKNOWN} (0 of {hours(total)} measured)" if total else ""
    parts = f"{hours(computed)} of {hours(measured)} measured ({share(computed, measured)})"
    return f"GPU-hours computed: {parts}; {hours(total)} in all"


# --- columns ----------------------------------------------------------------------------------


def _cell(text: str) -> Line:
    return line((text, DIM if text.startswith(UNKNOWN) else PLAIN))


def shown_resources(groups: Iterable[ResourceGroup]) -> list[str]:
    """The resources that any of the groups used or was allocated."""
    uses = [(name, getattr(group, name)) for group in groups for name in UNITS]
    known = {name for name, use in uses if use.measured or use.allocated_max}
    return [name for name in UNITS if name in known]


def resource_columns(group: ResourceGroup) -> list[Column[str]]:
    """The columns of the resources of one group: used, requested and allocated."""

    def column(name: str, title: str, text: Callable[[str, ResourceUse], str]) -> Column[str]:
        def value(row: str) -> str:
            return text(row, getattr(group, row))

        return Column(name, title, value, align="right", cell=lambda row, _: _cell(value(row)))

    return [
        Column("resource", "RESOURCE", NAMES.__getitem__),
        column("measured", "MEASURED", lambda _, use: f"{use.measured} of {group.executions}"),
        column("median", "MEDIAN", lambda name, use: used_text(name, use, "median")),
        column("p95", "95 %", lambda name, use: used_text(name, use, "p95")),
        column("maximum", "MAXIMUM", lambda name, use: used_text(name, use, "maximum")),
        column(
            "requested",
            "REQUESTED",
            lambda name, use: range_text(name, use.requested_min, use.requested_max),
        ),
        column(
            "allocated",
            "ALLOCATED",
            lambda name, use: range_text(name, use.allocated_min, use.allocated_max),
        ),
    ]


def group_columns(by: By, groups: Sequence[ResourceGroup]) -> list[Column[Any]]:
    """The columns of groups: how many were measured, and what they used of each resource."""

    model_names = gpu_models(group.name for group in groups) if by == "gpu" else {}

    def shown_name(row: ResourceGroup) -> str:
        return model_names.get(row.name) or clip(row.name or "unknown", 40)

    def name_cell(row: ResourceGroup, width: int | None) -> Line:
        style = BAD if row.ended is Ended.FAILED else DIM
        ended = "" if row.ended is Ended.COMPLETED else f" {row.ended}"
        shown = line((shown_name(row), DIM if row.name is None else PLAIN))
        return (shown if width is None else crop(shown, width - len(ended))) + line((ended, style))

    def used(name: str, statistic: str) -> Column[ResourceGroup]:
        maximum = statistic == "maximum"
        text = used_text if maximum else used_of_text
        suffix = {"p95": " 95 %", "maximum": " MAX", "median": ""}[statistic]
        return Column(
            f"{name}_{statistic}",
            f"{NAMES[name]}{suffix}".upper(),
            lambda row: getattr(getattr(row, name), statistic),
            Kind.NUMBER,
            drop=_DROPPED[name] + 6 * maximum,
            cell=lambda row, _: _cell(text(name, getattr(row, name), statistic)),
        )

    def measured(row: ResourceGroup) -> str:
        return f"{number(row.measured)} of {number(row.executions)}"

    def computed(row: ResourceGroup, _: int | None) -> Line:
        done = row.computed_gpu_hours
        return _cell(
            UNKNOWN if done is None else f"{hours(done)} of {hours(row.measured_gpu_hours)}"
        )

    columns: list[Column[Any]] = [
        Column(
            "name",
            by.upper(),
            lambda row: row.name or "",
            cell=name_cell,
            identifies=shown_name,
            minimum=8,
            comfortable=19,
            maximum=48,
        ),
        Column("measured", "MEASURED", measured, doc="executions with a figure", align="right"),
    ]
    if any(group.measured_gpu_hours for group in groups):
        columns.append(
            Column(
                "computed",
                "GPU-H COMPUTED",
                lambda row: row.computed_gpu_hours,
                Kind.HOURS,
                doc="GPU-hours times the share of the GPUs in use, of those measured",
                cell=computed,
                drop=4,
            )
        )
    for name in shown_resources(groups):
        columns.append(used(name, "p95" if UNITS[name] else "median"))
        columns += [used(name, "maximum")] if UNITS[name] else []
    return columns
