"""What executions used of each resource, and what would fit, as text: sentences and columns.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

from metlmon.stats.requests import RequestAdvice, over_text
from metlmon.stats.resources import (
    RESOURCES,
    By,
    Ended,
    Resource,
    ResourceGroup,
    Resources,
    ResourceUse,
)
from metlmon.tables.layout import Column, Kind
from metlmon.text.formatting import UNKNOWN, clip, count, gpu_models, hours, number, plain, share
from metlmon.text.spans import BAD, BOLD, DIM, PLAIN, Line, crop, line

_DROPPED: Final = {"memory_mb": 0, "gpus": 1, "cpus": 2, "disk_kb": 3, "gpu_memory_mb": 5}
"""The order in which the columns of the resources are dropped."""


def range_text(resource: Resource, least: float | None, most: float | None) -> str:
    """What was requested or allocated: ``2``, ``1–2``, ``156 GB``, ``156–188 GB``."""
    low, high = resource.amount(least), resource.amount(most)
    unit = high.partition(" ")[2]
    return high if low == high else f"{low.removesuffix(f' {unit}')}–{high}"


def used_text(resource: Resource, use: ResourceUse, statistic: str) -> str:
    """What was used: ``0.91``, ``30.9 GB``; ``≤47.7 GB`` if that is an upper bound."""
    return resource.used(getattr(use, statistic), statistic in use.at_most)


def used_of_text(resource: Resource, use: ResourceUse, statistic: str) -> str:
    """``0.91 of 1``, ``30.9 of 156 GB``, ``– of 2``: of the request, or the allocated GPUs."""
    of = range_text(resource, use.requested_min, use.requested_max)
    if resource.name == "gpus":
        of = range_text(resource, use.allocated_min, use.allocated_max)
    return resource.used_of(used_text(resource, use, statistic), of)


NOTE: Final = (
    "GPUs and CPUs: median; memory and disk: 95th percentile; of what was requested (of GPUs: "
    "allocated). other: evicted, removed, held, running, or less than half as long as another "
    "execution of their epoch. ≤: rounded up by the schedd."
)


# --- sentences --------------------------------------------------------------------------------


def headline(resources: Resources, item: str) -> str:
    """What completed epochs used of what they requested, and for how many this is known."""
    group = resources.completed
    if group is None:
        return f"No {item} of usual length has completed: what one needs is not known."
    parts = []
    for name, resource in RESOURCES.items():
        use = getattr(group, name)
        statistic = "maximum" if resource.unit else "median"
        if use.measured and name != "gpu_memory_mb":
            most = "up to " if resource.unit and not use.at_most else ""
            parts.append(f"{resource.noun} {most}{used_of_text(resource, use, statistic)}")
    if group.gpus.allocated_max and not group.gpus.measured:
        parts.append("GPUs not measured")
    done = f"{number(group.measured)} of {count(group.executions, item)} of usual length measured"
    return f"{done}: {'; '.join(parts)}" if parts else done


def hours_line(groups: Sequence[ResourceGroup]) -> str:
    """The GPU-hours computed, out of those of executions whose GPU use was measured."""
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


def shown_resources(groups: Iterable[ResourceGroup]) -> list[Resource]:
    """The resources that any of the groups used or was allocated."""
    uses = [(name, getattr(group, name)) for group in groups for name in RESOURCES]
    known = {name for name, use in uses if use.measured or use.allocated_max}
    return [resource for name, resource in RESOURCES.items() if name in known]


def resource_columns(group: ResourceGroup) -> list[Column[Resource]]:
    """The columns of the resources of one group: used, requested and allocated."""

    def column(title: str, text: Callable[[Resource, ResourceUse], str]) -> Column[Resource]:
        def value(row: Resource) -> str:
            return text(row, getattr(group, row.name))

        name = title.lower()
        return Column(
            name, value, title=title, align="right", cell=lambda row, _: _cell(value(row))
        )

    return [
        Column("resource", attrgetter("noun")),
        column("MEASURED", lambda _, use: f"{use.measured} of {group.executions}"),
        *(
            column(title, partial(used_text, statistic=statistic))
            for title, statistic in (("MEDIAN", "median"), ("95 %", "p95"), ("MAXIMUM", "maximum"))
        ),
        column("REQUESTED", lambda row, use: range_text(row, use.requested_min, use.requested_max)),
        column("ALLOCATED", lambda row, use: range_text(row, use.allocated_min, use.allocated_max)),
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

    def used(resource: Resource, statistic: str) -> Column[ResourceGroup]:
        name, maximum = resource.name, statistic == "maximum"
        text = used_text if maximum else used_of_text
        suffix = {"p95": " 95 %", "maximum": " MAX", "median": ""}[statistic]
        return Column(
            f"{name}_{statistic}",
            attrgetter(f"{name}.{statistic}"),
            Kind.NUMBER,
            title=f"{resource.noun}{suffix}".upper(),
            drop=_DROPPED[name] + 6 * maximum,
            cell=lambda row, _: _cell(text(resource, getattr(row, name), statistic)),
        )

    def measured(row: ResourceGroup) -> str:
        return f"{number(row.measured)} of {number(row.executions)}"

    def computed(row: ResourceGroup, _: int | None) -> Line:
        done, of = row.computed_gpu_hours, hours(row.measured_gpu_hours)
        return _cell(UNKNOWN if done is None else f"{hours(done)} of {of}")

    columns: list[Column[Any]] = [
        Column(
            "name",
            lambda row: row.name or "",
            title=by.upper(),
            cell=name_cell,
            identifies=shown_name,
            minimum=8,
            comfortable=19,
            maximum=48,
        ),
        Column("measured", measured, doc="executions with a figure", align="right"),
    ]
    if any(group.measured_gpu_hours for group in groups):
        columns.append(
            Column(
                "computed",
                lambda row: row.computed_gpu_hours,
                Kind.HOURS,
                title="GPU-H COMPUTED",
                doc="GPU-hours times the share of the GPUs in use, of those measured",
                cell=computed,
                drop=4,
            )
        )
    for resource in shown_resources(groups):
        columns.append(used(resource, "p95" if resource.unit else "median"))
        columns += [used(resource, "maximum")] if resource.unit else []
    return columns


# --- what would fit ---------------------------------------------------------------------------

REQUESTS_NOTE: Final = (
    "95 %, MOST: of epochs of usual length, of CPUs and GPUs the averages. NOW, WOULD FIT: as in "
    "submit files. OVER: completed jobs that used more than would fit."
)
GAIN_NOTE: Final = (
    "MORE SLOTS: of the pool, that match all that would fit, but not what is requested now."
)


def request_columns(rows: Sequence[RequestAdvice], item: str) -> list[Column[RequestAdvice]]:
    """The columns of a row for each request."""

    def text(
        name: str, title: str, write: Callable[[RequestAdvice], str], **more: Any
    ) -> Column[RequestAdvice]:
        return Column(name, write, title=title, align="right", **more)

    def fit(row: RequestAdvice) -> str:
        if row.suggested is not None:
            return row.resource.submitted(row.suggested)
        return UNKNOWN if row.fitting is None else "as it is"

    found = [
        Column[RequestAdvice](
            "submit_file",
            lambda row: plain(row.submit or UNKNOWN, 40),
            title="SUBMIT FILE",
            minimum=8,
            maximum=40,
            comfortable=12,
            drop=1,
        ),
        Column("request", attrgetter("command")),
        text("requested", "NOW", lambda row: row.resource.submitted(row.requested)),
        text("used_95", "95 %", lambda row: row.resource.used(row.used_95, row.rounded), drop=3),
        text("used_most", "MOST", lambda row: row.resource.used(row.used_most, row.rounded)),
        Column("measured", attrgetter("measured"), Kind.COUNT, title=f"{item.upper()}S"),
        text("fits", "WOULD FIT", fit, style=lambda row: BOLD if row.suggested else PLAIN),
        text("over", "OVER", over_text, drop=2),
    ]
    if any(row.slots for row in rows):
        found.append(Column("gain", attrgetter("gain"), Kind.SHARE, title="MORE SLOTS", drop=4))
    return found
