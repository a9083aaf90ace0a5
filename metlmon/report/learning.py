"""What the models learned, for the report: curves, the best runs, and the sweep as a grid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from metlmon.report.document import (
    Block,
    CurveChart,
    CurveLine,
    Raw,
    ReportColumn,
    ReportFigure,
    ReportRow,
    ReportTable,
    Section,
    ValueKind,
)
from metlmon.stats.curves import Curves, MetricCurve, course_text, curves_summary
from metlmon.stats.sweep import Grid, GridCell
from metlmon.tables.sweep import axis_name, labels, value_text
from metlmon.text.formatting import count, epoch_number, metric, plain

BEST_RUNS: Final = 10
"""Rows of the table of the best runs; ``metlmon curves`` lists all."""

COLOURS: Final = (0, 3, 2, 1, 5, 4, 6)
"""Colours of the best runs' curves; the others are grey."""

NAME_LIMIT: Final = 40


def learning_section(curves: Curves, grid: Grid | None) -> Section | None:
    """The section about the primary metric; None where no run has a value of it."""
    known = [curve for curve in curves.curves_with_values if _finite(curve)]
    if not known:
        return None
    ranked = rank_curves(known, curves)
    blocks: list[Block] = [_figure(curves, ranked), _best_runs(curves, ranked, grid)]
    if grid is not None and grid.rows is not None and grid.goal is not None:
        blocks.append(_sweep_table(grid))
    return Section("Learning", tuple(blocks))


def rank_curves(known: Iterable[MetricCurve], curves: Curves) -> list[MetricCurve]:
    """Curves by their best value, the best first; without a goal in the order of the runs."""
    sign = {"max": -1.0, "min": 1.0, None: 0.0}[curves.goal]
    return sorted(known, key=lambda curve: sign * curve.best.value if curve.best else math.inf)


def _finite(curve: MetricCurve) -> list[tuple[int, float]]:
    return [(epoch_number(p.epoch), p.value) for p in curve.points if math.isfinite(p.value)]


def _figure(curves: Curves, ranked: list[MetricCurve]) -> ReportFigure:
    lines = [
        CurveLine(
            plain(curve.run_name, NAME_LIMIT),
            tuple(_finite(curve)),
            COLOURS[place] if place < len(COLOURS) else None,
        )
        for place, curve in enumerate(ranked)
    ]
    low, high = value_range(ranked)
    summary = curves_summary(curves, live=False)
    parts = (summary.runs, summary.best, summary.diverged, summary.flat)
    return ReportFigure(
        "curves",
        f"{plain(curves.metric, NAME_LIMIT)} by epoch: one line for each run, the best ones in "
        "colour; diverged values are drawn at the edge.",
        CurveChart(tuple(reversed(lines)), low, high, plain(curves.metric, NAME_LIMIT)),
        "; ".join(part for part in parts if part) + ".",
    )


def value_range(ranked: Iterable[MetricCurve]) -> tuple[float, float]:
    """The lowest and highest value to draw: a diverged run must not flatten the others."""
    curves = list(ranked)
    drawn = [curve for curve in curves if not curve.diverged] or curves
    values = [value for curve in drawn for _, value in _finite(curve)]
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


# --- tables -----------------------------------------------------------------------------------


def _best_runs(curves: Curves, ranked: list[MetricCurve], grid: Grid | None) -> ReportTable:
    better = {"max": "higher", "min": "lower"}.get(curves.goal or "", "")
    name = plain(curves.metric, NAME_LIMIT)
    swept = [] if grid is None else [variable.name for variable in grid.sweep.variables]
    columns = (
        ReportColumn("run", "Run", "run"),
        *(ReportColumn(f"var_{name}", plain(name, NAME_LIMIT), name, drop=4) for name in swept),
        ReportColumn("best", f"Best {name}", "best", ValueKind.METRIC),
        ReportColumn("best_epoch", "at epoch", "best_epoch", ValueKind.COUNT, drop=2),
        ReportColumn("last", "Last", "last", ValueKind.METRIC, drop=1),
        ReportColumn("epochs", "Epochs", "epochs", ValueKind.COUNT, drop=3),
        ReportColumn("course", "Trend", "course", drop=5),
    )
    rows = []
    for curve in ranked[:BEST_RUNS]:
        point: tuple[Raw, ...] = ()
        if grid is not None and swept:
            known = curve.run in grid.sweep.runs
            values = grid.sweep.values(curve.run, swept) if known else (None,) * len(swept)
            point = tuple(None if value is None else value_text(value) for value in values)
        best, last = curve.best, curve.last
        cells: tuple[Raw, ...] = (
            curve.run_name,
            *point,
            None if best is None else best.value,
            None if best is None else epoch_number(best.epoch),
            None if last is None or not math.isfinite(last.value) else last.value,
            len(curve.points),
            course_text(curve),
        )
        rows.append(ReportRow(cells))
    caption = "Best runs" if better else "Runs"
    more = len(ranked) - len(rows)
    comment = f"Of {name}, {better} is better" if better else f"{name} has no goal"
    if more > 0:
        comment += f"; {count(more, 'further run')} not listed"
    return ReportTable("best_runs", caption, columns, tuple(rows), comment=f"{comment}.")


def _sweep_table(grid: Grid) -> ReportTable:
    rows, columns = grid.rows, grid.columns
    assert rows is not None
    row_labels = labels(rows)
    column_labels = {} if columns is None else labels(columns)
    heads = column_labels or {(): "best"}
    group = None if columns is None else axis_name(columns)
    table_columns = (
        ReportColumn("point", axis_name(rows), "point"),
        *(
            ReportColumn(f"column_{place}", heading, heading, group=group)
            for place, heading in enumerate(heads.values())
        ),
    )
    lines = [
        ReportRow((text, *(_cell_text(grid, grid.cells.get((row, column))) for column in heads)))
        for row, text in row_labels.items()
    ]
    name = plain(grid.metric, NAME_LIMIT)
    return ReportTable(
        "sweep",
        f"Best {name} by {axis_name(rows)}{f' and {group}' if group else ''}",
        table_columns,
        tuple(lines),
        comment=f"★ marks the best of all. {_skipped_text(grid)}".strip(),
    )


def _skipped_text(grid: Grid) -> str:
    if not grid.folded:
        return ""
    names = ", ".join(axis_name(folded.axis) for folded in grid.folded)
    return f"Each cell has the best over {names}."


def _cell_text(grid: Grid, cell: GridCell | None) -> Raw:
    if cell is None:
        return ""
    best = cell.best
    if best is None or best.value is None:
        return "–"
    star = "★ " if grid.best is not None and cell is grid.best else ""
    return f"{star}{metric(best.value.value)} ({plain(best.entry.run_name, NAME_LIMIT)})"
