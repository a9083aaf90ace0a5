"""Renames GPU-hours in the report of an ensemble without GPUs."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from metlmon.model.states import HourUnit
from metlmon.report.document import Report, ReportRow


def with_hour_unit(report: Report, measure: HourUnit) -> Report:
    """Replace GPU-hours by the unit ``measure`` in all headings and sentences.

    Table cells, which quote the logs, stay unchanged.
    """
    return report if measure is HourUnit.GPU else _with_unit(report, measure.hours)


def _with_unit(part: Any, hours: str) -> Any:
    if isinstance(part, ReportRow):
        return part
    if isinstance(part, Struct):
        new = {name: _with_unit(getattr(part, name), hours) for name in part.__struct_fields__}
        return replace(part, **new)
    if type(part) is tuple:
        return tuple(_with_unit(item, hours) for item in part)
    # type(), since enumeration members are strings, too.
    return part.replace(HourUnit.GPU.hours, hours) if type(part) is str else part
