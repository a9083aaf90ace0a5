"""Definitions of a report's numbers; their text is in ``definitions.j2``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from statistics import median
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from metlmon.model.states import HourUnit, State
from metlmon.report.document import Footnote, hours, percent
from metlmon.report.usage import WHISKER, ReportUsage
from metlmon.snapshot.ledger import HOUR, SHORT_SUCCESS
from metlmon.stats.windows import Unit
from metlmon.text.formatting import count, duration, number


def definitions(keys: Iterable[str], usage: ReportUsage, digits: int) -> tuple[Footnote, ...]:
    """The footnotes with these keys; ``digits``: decimals of hours."""
    module = load_template("definitions.j2").make_module(_context(usage, digits))
    return tuple(
        Footnote(key, re.sub(r"[ \n]+", " ", str(getattr(module, f"note_{key}")())).strip())
        for key in keys
    )


def _context(usage: ReportUsage, digits: int) -> dict[str, Any]:
    """The numbers and functions of the template; ``hours`` formats seconds as hours."""
    spent = usage.total.totals
    epochs = [epoch for epoch in usage.clipped.epochs if epoch.counts]
    completed = [epoch for epoch in epochs if epoch.state is State.COMPLETED]
    executions = [e for e in usage.clipped.executions if not e.dagman]
    side = [e for e in executions if e.run is not None and not e.training]
    measure = next((e.measure for e in usage.clipped.executions), HourUnit.GPU)
    periods = {Unit.DAY: "day", Unit.WEEK: "week (from Monday)", Unit.MONTH: "month"}
    moved = sum(
        epoch.longest_seconds is not None
        and epoch.seconds is not None
        and (epoch.site, epoch.gpu) != (epoch.longest_site, epoch.longest_gpu)
        for epoch in completed
    )
    return {
        "usage": usage,
        "spent": spent,
        "settled": spent.good + spent.bad,
        "longest_executions": usage.total.longest,
        "inferred": sum(epoch.inferred for epoch in epochs),
        "skipped": any(run.epochs_skipped for run in usage.ledger.runs),
        "moved": moved,
        "short": f"{SHORT_SUCCESS:.0%}",
        "whisker": f"{WHISKER:g}",
        "jobs": len(usage.jobs),
        "ran": len({e.job for e in executions}),
        "clock_seconds": sum(e.seconds for e in executions),
        "final_seconds": sum(e.gpu_seconds or 0.0 for e in usage.clipped.executions if e.final),
        "side_executions": len(side),
        "side_counted": sum(e.counted for e in side),
        "side_seconds": sum(e.gpu_seconds or 0.0 for e in side),
        "measure": measure,
        "wall_measure": measure is HourUnit.WALL,
        "period_name": periods[usage.period],
        "clear_times": [e.seconds for e in epochs if e.seconds is not None and not e.hidden],
        "longest_times": [e.longest_seconds for e in completed if e.longest_seconds is not None],
        "count": count,
        "number": number,
        "duration": duration,
        "hours": lambda seconds: hours(seconds / HOUR, digits),
        "share": lambda part, whole: percent(part / whole if whole else None),
        "median": _median_text,
    }


def load_template(name: str, autoescape: bool = False, **filters: Any) -> Template:
    """The template ``name``; ``autoescape``: for HTML; ``filters``: functions by name."""
    environment = Environment(
        autoescape=autoescape, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters.update(filters)
    return environment.from_string((files(__package__) / name).read_text("utf-8"))


def _median_text(values: Sequence[float]) -> str:
    """The median of durations and their number: ``1h02 (n = 12)``."""
    middle = duration(median(values)) if values else "–"
    return f"{middle} (n = {number(len(values))})"
