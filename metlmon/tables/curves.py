"""Metric curves as table rows: headline, columns, filter text.

Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from metlmon.config.settings import MetricSettings
from metlmon.jobfiles.records import Point, Streamed
from metlmon.stats.curves import (
    NAME_LIMIT,
    BandLevel,
    Course,
    Curves,
    Goal,
    MetricCurve,
    course_text,
    curve_symbol,
    curves_summary,
)
from metlmon.tables.layout import UNKNOWN_CELL, Column, Kind, dag_columns, name_column, searched
from metlmon.text import formatting
from metlmon.text.formatting import clip, plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    PLAIN,
    Line,
    TextStyle,
    first_that_fits,
    join,
    join_fitting,
    line,
    style_of,
    width,
)

# --- headline and progress ------------------------------------------------------------------


def headline(curves: Curves, live: bool, room: int) -> Line:
    """Render ``5 of 6 runs improve · run4 diverged in … · best 0.2308 run1 epoch 4``."""
    summary, dot = curves_summary(curves, live), line((" · ", DIM))
    runs = line((summary.runs, GOOD if summary.all_improve else BOLD))
    named, counted = line((summary.diverged, ALARM)), line((summary.diverged_short, ALARM))
    diverged = first_that_fits((named, counted), room - width(runs) - width(dot))
    parts = (runs, diverged, line(summary.best), line((summary.flat, NOTE)))
    return join_fitting(parts, dot, room)


def progress(streamed: Streamed) -> Line:
    """Render the last reported progress of a running job.

    Example: ``64 %   1.17 steps/s   13:30:01 left   loss 48``.
    """
    rate, remaining = streamed.steps_per_second, streamed.seconds_left
    parts = [line((percent(streamed), MOVING))]
    if streamed.step is not None and streamed.steps is None:
        parts.append(line((f"step {formatting.number(streamed.step)}", DIM)))
    if rate is not None and rate > 0:
        slow = f"{formatting.metric(1 / rate)} s/step"
        parts.append(line(slow if rate < 1 else f"{formatting.metric(rate)} steps/s"))
    if remaining is not None:
        parts.append(line(formatting.duration(remaining), (" left", DIM)))
    if streamed.loss is not None:
        parts.append(line(("loss ", DIM), formatting.metric(streamed.loss)))
    return join(parts, line("   "))


def percent(streamed: Streamed | None) -> str:
    """Return ``64 %`` of the running epoch, rounded down; "" if it is unknown."""
    if streamed is None or streamed.fraction is None:
        return ""
    return f"{math.floor(100 * streamed.fraction)} %"


# --- rows -----------------------------------------------------------------------------------


def value_cost(point: Point | None, curve: MetricCurve) -> float:
    """Return the value with the best first: negated if more is better, infinite if not finite."""
    if point is None or not math.isfinite(point.value):
        return math.inf
    return -point.value if curve.goal == "max" else point.value


_ALARMING: Final = (
    Course.NAN,
    Course.DIVERGED,
    Course.FLAT,
    Course.IMPROVES,
    Course.EARLY,
    Course.NONE,
)


def alarm_order(curve: MetricCurve) -> tuple[object, ...]:
    """Return the sort key by trend, diverged curves first."""
    return _ALARMING.index(curve.course), value_cost(curve.last, curve)


def filter_text(curve: MetricCurve) -> str:
    return searched(curve.run, curve.uuid, curve.dag, curve.label, curve_symbol(curve).word)


METRIC_CELLS: Final = 6
"""Width in cells of most values; columns start with it, so that they do not move."""

LAST: Final[Column[MetricCurve]] = Column(
    "last",
    lambda curve: curve.last.value if curve.last else None,
    Kind.NUMBER,
    doc="last value",
    drop=2,
    order=lambda curve: (value_cost(curve.last, curve),),
    minimum=METRIC_CELLS,
)

BEST_VALUE: Final[Column[MetricCurve]] = Column(
    "best",
    lambda curve: curve.best.value if curve.best else None,
    Kind.NUMBER,
    doc="best value",
    drop=3,
    order=lambda curve: (value_cost(curve.best, curve),),
    minimum=METRIC_CELLS,
)


def value_formats(curves: Iterable[MetricCurve]) -> tuple[Write, Write]:
    """One format for the last values of all curves, and one for their best values."""
    curves = list(curves)
    lasts = formatting.metric_format(curve.last.value for curve in curves if curve.last)
    bests = formatting.metric_format(curve.best.value for curve in curves if curve.best)
    return lasts, bests


def columns(curves: Sequence[MetricCurve]) -> list[Column[MetricCurve]]:
    """Return the columns; labels and progress only if there are any."""
    lasts, bests = value_formats(curves)
    trends = formatting.metric_format((curve.trend for curve in curves), 3)
    columns: list[Column[MetricCurve]] = [
        name_column(
            "run",
            lambda curve: clip(curve.run, 80),
            style=lambda curve: BOLD if curve.diverged else PLAIN,
            minimum=6,
            maximum=28,
        ),
        *dag_columns(curves, lambda curve: curve.dag),
        Column(
            "label", lambda curve: clip(curve.label or "", 40), style=DIM, comfortable=8, maximum=20
        ),
        Column(
            "epoch",
            lambda curve: _epoch(curve.last),
            Kind.COUNT,
            doc="the last one with a value",
            drop=3,
        ),
        replace(LAST, drop=0, cell=lambda curve, _: last_cell(curve, lasts)),
        replace(BEST_VALUE, drop=0, cell=lambda curve, _: value_cell(curve.best, write=bests)),
        Column(
            "at",
            lambda curve: _epoch(curve.best) or "",
            Kind.COUNT,
            title="IN EPOCH",
            doc="the epoch of the best value",
            drop=4,
            style=DIM,
        ),
        Column(
            "trend",
            lambda curve: None if curve.goal is None else curve.trend,
            Kind.NUMBER,
            title="CHANGE/EPOCH",
            doc="slope of the last values",
            drop=2,
            cell=lambda curve, _: change_cell(curve.trend, curve.goal, trends),
        ),
        Column(
            "course",
            curve_symbol,
            Kind.STATE,
            title="TREND",
            cell=_course,
            order=alarm_order,
            minimum=9,
        ),
        Column(
            "now",
            lambda curve: curve.streamed.fraction if curve.streamed else None,
            Kind.SHARE,
            doc="progress of the running epoch",
            align="left",
            drop=1,
            cell=_now,
            comfortable=5,
        ),
    ]
    absent = set() if any(curve.label for curve in curves) else {"label"}
    absent |= set() if any(curve.streamed for curve in curves) else {"now"}
    return [column for column in columns if column.name not in absent]


def band_columns() -> list[Column[BandLevel]]:
    return [
        Column("epoch", lambda level: formatting.epoch_number(level.epoch), Kind.COUNT),
        Column("runs", lambda level: level.n, Kind.COUNT),
        Column("min", lambda level: level.minimum, Kind.NUMBER),
        Column("lower", lambda level: level.lower_quartile, Kind.NUMBER, title="QUARTILE"),
        Column("median", lambda level: level.median, Kind.NUMBER),
        Column("upper", lambda level: level.upper_quartile, Kind.NUMBER, title="QUARTILE"),
        Column("max", lambda level: level.maximum, Kind.NUMBER),
    ]


def _epoch(point: Point | None) -> int | None:
    return None if point is None else formatting.epoch_number(point.epoch)


Write = Callable[[float], str]


def value_cell(
    point: Point | None, style: TextStyle = PLAIN, write: Write = formatting.metric
) -> Line:
    if point is None:
        return UNKNOWN_CELL
    not_finite = not math.isfinite(point.value)
    return line((write(point.value), ALARM if not_finite else style))


def last_cell(curve: MetricCurve, write: Write = formatting.metric) -> Line:
    """Render the last value; styled as bad if the curve diverged."""
    return value_cell(curve.last, BAD if curve.diverged else PLAIN, write)


def change_cell(change: float | None, goal: Goal | None, write: Write = formatting.metric) -> Line:
    """Render a change, styled as good or bad according to the goal."""
    if change is None or goal is None or not math.isfinite(change):
        return UNKNOWN_CELL
    good = change < 0 if goal == "min" else change > 0
    sign = "+" if change > 0 else "−" if change < 0 else ""
    return line((f"{sign}{write(abs(change))}", GOOD if good else BAD if change else DIM))


def _course(curve: MetricCurve, _: int | None) -> Line:
    sign = curve_symbol(curve)
    word, comma, odd = course_text(curve).partition(",")
    return line((f"{sign.glyph} {word}", style_of(sign)), (comma + odd, NOTE))


def _now(curve: MetricCurve, max_width: int | None) -> Line:
    if curve.streamed is None:
        return ()
    epoch = formatting.epoch_text(curve.running_epoch)
    long_form = line((f"epoch {epoch}  " if epoch else "", DIM)) + progress(curve.streamed)
    short_form = line((percent(curve.streamed), MOVING))
    return long_form if max_width is None else first_that_fits((long_form, short_form), max_width)


# --- empty state ------------------------------------------------------------------------------


def empty(metrics: MetricSettings, curves: Curves, dagdir: str) -> list[Line]:
    """Return which files are searched for metrics, and how to configure others."""
    example = curves.runs[0] if curves.runs else None
    dagdir = plain(dagdir, 60)
    uuid = clip(example.uuid or "", 40) if example is not None else ""
    name = clip(example.run, NAME_LIMIT) if example is not None else ""
    lines = [
        line("  ", "No training has written a metric here yet."),
        (),
        line("  ", ("Looked for, below ", DIM), dagdir, (":", DIM)),
    ]
    for pattern in metrics.files[:4]:
        place = plain(pattern, 60).replace("{uuid}", uuid or "{uuid}")
        place = place.replace("{run}", name or "{run}")
        lines.append(line("    ", f"{place}/version_<k>/metrics.csv"))
    lines.append(line("    ", "wandb/offline-run-*/*.wandb", (" in the same directories", DIM)))
    lines += [
        line("    ", plain(each.file, 60), (f" for {clip(each.name, 40)}", DIM))
        for each in metrics.patterns[:4]
    ]
    lines.append(line("    ", "*.out", (f" of the jobs, for a {clip(metrics.primary, 40)}", DIM)))
    return [
        *lines,
        (),
        line("  ", ("Where they are elsewhere, say so in its metlmon.toml:", DIM)),
        line("    ", '[metrics]  files = ["logs/{uuid}"]'),
        line("    ", '[[metric]] name = "loss"  file = "out"', ("  or a name pattern", DIM)),
        line("    ", "           pattern = 'loss is (?P<value>\\S+)'"),
    ]
