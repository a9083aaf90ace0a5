"""What the models learned, for the report: curves, the best runs, and the sweep as a grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from metlmon.report.document import (
    Block,
    CurveChart,
    CurveLine,
    ReportFigure,
    ReportTable,
    row_of,
)
from metlmon.stats.curves import Curves, MetricCurve, course_text, curves_summary
from metlmon.stats.sweep import Axis, Grid, Point
from metlmon.tables.curves import BEST_VALUE
from metlmon.tables.layout import Column, Kind
from metlmon.tables.sweep import axis_name, labels, value_text
from metlmon.text.formatting import clip, count, epoch_number, metric

BEST_RUNS: Final = 10
"""Maximum rows of the table of the best runs; ``metlmon curves`` lists all."""

COLOURS: Final = (0, 3, 2, 1, 5, 4, 6)
"""Colours of the best runs' curves; the others are grey."""

NAME_LIMIT: Final = 40


def learning(curves: Curves, grid: Grid) -> tuple[Block, ...]:
    """The figure and the tables of the primary metric; none if no run has a value of it."""
    known = [curve for curve in curves.curves_with_values if _finite(curve)]
    if not known:
        return ()
    # The best first; without a goal in the order of the runs.
    sign = {"max": -1.0, "min": 1.0, None: 0.0}[curves.goal]
    ranked = sorted(known, key=lambda each: sign * each.best.value if each.best else math.inf)
    blocks: list[Block] = [_figure(curves, ranked), _best_runs(curves, ranked, grid)]
    if grid.rows is not None and grid.goal is not None:
        blocks.append(_sweep_table(grid, grid.rows))
    return tuple(blocks)


def _finite(curve: MetricCurve) -> list[tuple[int, float]]:
    return [(epoch_number(p.epoch), p.value) for p in curve.points if math.isfinite(p.value)]


def _figure(curves: Curves, ranked: list[MetricCurve]) -> ReportFigure:
    lines = [
        CurveLine(
            clip(curve.run, NAME_LIMIT),
            tuple(_finite(curve)),
            COLOURS[place] if place < len(COLOURS) else None,
        )
        for place, curve in enumerate(ranked)
    ]
    # A diverged run does not flatten the others.
    drawn = [curve for curve in ranked if not curve.diverged] or ranked
    values = [value for curve in drawn for _, value in _finite(curve)]
    low, high = min(values), max(values)
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    summary = curves_summary(curves, live=False)
    parts = (summary.runs, summary.best, summary.diverged, summary.flat)
    return ReportFigure(
        "curves",
        f"{clip(curves.metric, NAME_LIMIT)} by epoch: one line for each run, the best ones in "
        "colour; diverged values are drawn at the edge.",
        CurveChart(tuple(reversed(lines)), low, high, clip(curves.metric, NAME_LIMIT)),
        "; ".join(part for part in parts if part) + ".",
    )


# --- tables -----------------------------------------------------------------------------------


def _best_runs(curves: Curves, ranked: list[MetricCurve], grid: Grid) -> ReportTable:
    better = {"max": "higher", "min": "lower"}.get(curves.goal or "", "")
    name = clip(curves.metric, NAME_LIMIT)

    def swept_value(variable: str) -> Callable[[MetricCurve], str | None]:
        def value(curve: MetricCurve) -> str | None:
            if curve.key not in grid.sweep.runs:
                return None
            (found,) = grid.sweep.values(curve.key, [variable])
            return None if found is None else value_text(found)

        return value

    columns: tuple[Column[MetricCurve], ...] = (
        Column("run", lambda curve: curve.run, title="Run"),
        *(
            Column(f"var_{name}", swept_value(name), title=clip(name, NAME_LIMIT), drop=4)
            for name in (variable.name for variable in grid.sweep.variables)
        ),
        replace(BEST_VALUE, title=f"Best {name}", drop=0),
        Column(
            "best_epoch",
            lambda c: epoch_number(c.best.epoch) if c.best else None,
            Kind.COUNT,
            title="at epoch",
            drop=2,
        ),
        Column("last", _last, Kind.NUMBER, title="Last", drop=1),
        Column("epochs", lambda c: len(c.points), Kind.COUNT, title="Epochs", drop=3),
        Column("course", course_text, title="Trend", drop=5),
    )
    rows = tuple(row_of(columns, curve) for curve in ranked[:BEST_RUNS])
    caption = "Best runs" if better else "Runs"
    more = len(ranked) - len(rows)
    comment = f"Of {name}, {better} is better" if better else f"{name} has no goal"
    if more > 0:
        comment += f"; {count(more, 'further run')} not listed"
    return ReportTable("best_runs", caption, columns, rows, comment=f"{comment}.")


def _last(curve: MetricCurve) -> float | None:
    last = curve.last
    return None if last is None or not math.isfinite(last.value) else last.value


def _sweep_table(grid: Grid, rows: Axis) -> ReportTable:
    columns = grid.columns
    row_labels = labels(rows)
    column_labels = {} if columns is None else labels(columns)
    heads = column_labels or {(): "best"}
    group = "" if columns is None else axis_name(columns)
    table_columns: list[Column[Any]] = [Column("point", row_labels.get, title=axis_name(rows))]
    for place, (column, heading) in enumerate(heads.items()):
        cell = partial(_cell_text, grid, column)
        table_columns.append(Column(f"column_{place}", cell, title=heading, group=group))
    name = clip(grid.metric, NAME_LIMIT)
    others = ", ".join(axis_name(each.axis) for each in grid.folded)
    folded = f" Each cell has the best over {others}." if others else ""
    return ReportTable(
        "sweep",
        f"Best {name} by {axis_name(rows)}{f' and {group}' if group else ''}",
        tuple(table_columns),
        tuple(row_of(table_columns, row) for row in row_labels),
        comment=f"★ marks the best of all.{folded}",
    )


def _cell_text(grid: Grid, column: Point, row: Point) -> str:
    cell = grid.cells.get((row, column))
    if cell is None:
        return ""
    best = cell.best
    if best is None or best.reached is None:
        return "–"
    star = "★ " if grid.best is not None and cell is grid.best else ""
    return f"{star}{metric(best.reached.value)} ({clip(best.entry.run, NAME_LIMIT)})"
