"""A report of an ensemble without GPUs: its hours are named as what they are."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from metlmon.model.hour_unit import HourUnit
from metlmon.report.document import Report, ReportRow


def in_measure(made: Report, measure: HourUnit) -> Report:
    """The report with every heading and sentence that says GPU-hours saying the hours of this
    measure. Cells of tables, which quote the logs, stay as they are."""
    return made if measure is HourUnit.GPU else _renamed(made, measure.hours)


def _renamed(part: Any, hours: str) -> Any:
    if isinstance(part, ReportRow):
        return part
    if is_dataclass(part) and not isinstance(part, type):
        new = {each.name: _renamed(getattr(part, each.name), hours) for each in fields(part)}
        return replace(part, **new)
    if type(part) is tuple:
        return tuple(_renamed(each, hours) for each in part)
    # Not an enumeration's member, which is a text, too.
    return part.replace(HourUnit.GPU.hours, hours) if type(part) is str else part
