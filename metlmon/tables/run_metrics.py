"""Columns of runs with what statistics add: swept variables, metric, wall time.

Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

from metlmon.config.settings import MetricSettings
from metlmon.snapshot.types import RunRow
from metlmon.stats.curves import Course, MetricCurve, course_text, curve_symbol
from metlmon.stats.run_figures import RunFigures
from metlmon.tables.curves import alarm_order, last_cell, value_cell, value_cost
from metlmon.tables.layout import UNKNOWN_CELL, Column, Kind
from metlmon.tables.sweep import BEST, short_values
from metlmon.text import formatting
from metlmon.text.formatting import Colour, Weight, plain
from metlmon.text.spans import BAD, DIM, PLAIN, Align, Line, TextStyle, line, style_of

SPARK_CELLS: Final = 8
SPARK_STEPS: Final = "▁▂▃▄▅▆▇"
NOT_FINITE: Final = "×"
"""Marks NaN and infinity in a sparkline."""

BEST_STYLE: Final = TextStyle(Colour.GREEN, Weight.BOLD)

MOST_VARIABLES: Final = 6
"""Swept variables with a column of their own."""

NAME_CELLS: Final = 14
VALUE_CELLS: Final = 12

METRIC_CELLS: Final = 6
"""Cells of most values; columns have them from the start, so that they do not move."""


def has_metrics(figures: RunFigures | None, rows: Sequence[RunRow]) -> bool:
    """Do the runs have values of the metric?

    Before the files of the trainings are read, those with a completed epoch may have some.
    """
    if figures is None or not figures.curves.files_read:
        return any(row.epochs_done for row in rows)
    return bool(figures.by_run)


def best_mark(row: RunRow, figures: RunFigures | None) -> Line:
    """``★`` for the run with the best value."""
    return line((BEST, BEST_STYLE)) if figures is not None and row.key == figures.best else ()


def best_columns(figures: RunFigures) -> list[Column[RunRow]]:
    """The column of that sign in a text, which has no margin; none without a best run."""
    if figures.best is None:
        return []
    best = figures.best
    return [Column("star", "", lambda row: BEST if row.key == best else "", style=BEST_STYLE)]


def variable_columns(figures: RunFigures | None) -> list[Column[RunRow]]:
    """A column for each swept variable, the most distinctive first; the last is dropped first."""
    if figures is None:
        return []
    columns: list[Column[RunRow]] = []
    for place, name in enumerate(figures.swept_names[:MOST_VARIABLES]):
        texts = short_values({figures.swept_value(run, name) for run in figures.sweep.runs})

        def value(row: RunRow, name: str = name) -> str | float | None:
            text = figures.swept_value(row.key, name)
            return text if text is None or not _is_number(text) else float(text)

        def cell(
            row: RunRow, _: int | None, name: str = name, texts: dict[str | None, str] = texts
        ) -> Line:
            return line(texts.get(figures.swept_value(row.key, name), formatting.UNKNOWN))

        title = plain(name, NAME_CELLS)
        align: Align = "right" if all(map(_is_number, texts.values())) else "left"
        columns.append(
            Column(
                *(f"vars.{name}", title, value),
                doc="value of a variable (VARS) in which the runs differ",
                align=align,
                drop=5 - (MOST_VARIABLES - place) / MOST_VARIABLES,
                cell=cell,
                maximum=VALUE_CELLS,
            )
        )
    return columns


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == formatting.UNKNOWN
    return True


def metric_columns(
    rows: Sequence[RunRow], figures: RunFigures | None, metrics: MetricSettings
) -> list[Column[RunRow]]:
    """Last and best value, and a sparkline of all."""
    is_read = figures is not None and figures.curves.files_read
    curves = figures.by_run if figures is not None else {}
    metric = figures.curves.metric if figures is not None and is_read else metrics.primary
    most_epochs = max((row.epochs_total for row in rows), default=0)
    cells = min(SPARK_CELLS, most_epochs)
    of_jobs = any(row.item == "job" for row in rows)

    def column(
        name: str,
        title: str,
        value: Callable[[MetricCurve], str | float | None],
        cell: Callable[[MetricCurve], Line],
        key: Callable[[MetricCurve], object],
        doc: str,
        drop: int,
    ) -> Column[RunRow]:
        """A column whose rows without a curve have no value, and are the last ones sorted."""

        def value_of(row: RunRow) -> str | float | None:
            curve = curves.get(row.key)
            return value(curve) if curve is not None else None if is_read else ""

        def draw(row: RunRow, _: int | None) -> Line:
            curve = curves.get(row.key)
            return cell(curve) if curve is not None else UNKNOWN_CELL if is_read else ()

        def order(row: RunRow) -> tuple[object, ...]:
            curve = curves.get(row.key)
            return (1, 0) if curve is None else (0, key(curve))

        is_curve = name == "curve"
        return Column(
            *(name, title, value_of, Kind.TEXT if is_curve else Kind.NUMBER),
            doc=doc,
            drop=drop,
            cell=draw,
            order=order,
            minimum=cells + 2 if is_curve else METRIC_CELLS,
        )

    def best(curve: MetricCurve) -> Line:
        is_best = figures is not None and curve.run == figures.best
        return value_cell(curve.best, BEST_STYLE if is_best else PLAIN) or UNKNOWN_CELL

    return [
        column(
            *("last", plain(metric, NAME_CELLS), lambda curve: curve.last and curve.last.value),
            cell=lambda curve: last_cell(curve) or UNKNOWN_CELL,
            key=lambda curve: value_cost(curve.last, curve),
            doc="last value of the metric",
            drop=2,
        ),
        column(
            *("best", "BEST", lambda curve: curve.best and curve.best.value),
            cell=best,
            key=lambda curve: value_cost(curve.best, curve),
            doc="best value of the metric; ★: the best of all runs",
            drop=3,
        ),
        column(
            *(
                "curve",
                "TREND" if of_jobs or not rows else f"{formatting.number(most_epochs)} EPOCHS",
            ),
            lambda curve: curve_symbol(curve).word,
            cell=partial(curve_cell, cells=cells),
            key=alarm_order,
            doc="values of the metric by epoch, and the sign of the trend",
            drop=4,
        ),
    ]


def curve_cell(curve: MetricCurve, cells: int) -> Line:
    """A sparkline of all values in at most ``cells`` cells, and the sign of the trend."""
    spark = sparkline([point.value for point in curve.points], cells)
    style = BAD if curve.diverged else PLAIN
    return line((spark, style), " " * (cells - len(spark) + 1)) + trend_sign(curve)


def trend_sign(curve: MetricCurve) -> Line:
    """``↓`` or ``↑`` where it improves, else the sign of a plateau or divergence."""
    symbol = curve_symbol(curve)
    if curve.course is Course.IMPROVES:
        return line(("↑" if (curve.trend or 0.0) > 0 else "↓", style_of(symbol)))
    shown = curve.diverged or curve.course is Course.FLAT
    return line((symbol.glyph, style_of(symbol))) if shown else ()


def sparkline(values: Sequence[float], cells: int) -> str:
    """The values from the least to the greatest, in at most ``cells`` characters.

    More values are averaged, as many for each character; NaN and infinity have a sign.
    """
    steps = min(cells, len(values))
    cuts = [step * len(values) // steps for step in range(steps + 1)] if steps else []
    parts = ([v for v in values[a:b] if math.isfinite(v)] for a, b in pairwise(cuts))
    # Divided first: the sum or the difference of two values may be infinite.
    means = [sum(v / len(part) / 2 for v in part) if part else None for part in parts]
    known = [mean for mean in means if mean is not None]
    low, span = (min(known), max(known) - min(known)) if known else (0.0, 0.0)
    top = len(SPARK_STEPS) - 1
    return "".join(
        NOT_FINITE
        if mean is None
        else SPARK_STEPS[round(top * ((mean - low) / span if span else 0.5))]
        for mean in means
    )


def best_text(row: RunRow, figures: RunFigures | None) -> Line:
    """``best 0.2308 in epoch 5, improves``: what the columns do not say of a metric."""
    curve = figures.by_run.get(row.key) if figures is not None else None
    if curve is None or curve.best is None:
        return ()
    epoch = formatting.epoch_number(curve.best.epoch)
    best = (f"best {formatting.metric(curve.best.value)} in epoch {epoch}", DIM)
    return line(best, (f", {course_text(curve)}", DIM))
