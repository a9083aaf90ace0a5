"""Runs side by side as lines: a column for each run, a line for each thing compared.

Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from metlmon.health.types import Health, HealthEntry
from metlmon.jobfiles.records import Point
from metlmon.snapshot.row_text import gate_symbol
from metlmon.stats.curves import Goal, curve_symbol
from metlmon.stats.estimates import Forecast, RunForecast
from metlmon.stats.run_figures import ComparedRun, Comparison
from metlmon.tables.curves import change_cell, last_cell, value_cell
from metlmon.tables.estimates import run_remaining_text
from metlmon.tables.health import SEVERITIES
from metlmon.tables.layout import (
    MARGIN,
    UNKNOWN_CELL,
    Column,
    count_cell,
    fit_columns,
    table_lines,
)
from metlmon.tables.runs import epochs_text, hours_cell
from metlmon.tables.sweep import BEST, BEST_STYLE, short_values
from metlmon.text import formatting
from metlmon.text.formatting import STATES, clip, clip_middle, count
from metlmon.text.spans import BAD, BOLD, DIM, GOOD, PLAIN, Line, TextStyle, line, symbol_span, text

RUN_CELLS: Final = 11
MAX_CELLS: Final = 28
"""Minimum and maximum width of a run's column in cells."""

NAME_CELLS: Final = 22
MAX_PLACES: Final = 6
"""Maximum number of sites, and of GPU models, with a line of their own."""


class CompareRow(NamedTuple):
    """What is compared, a cell for each run; for two runs also the second minus the first."""

    name: str
    cells: Sequence[Line]
    difference: Line = ()


MIN_RUNS: Final = 2
"""Minimum number of runs to compare."""


def comparison_lines(
    comparison: Comparison,
    forecast: Forecast | None,
    health: Health | None,
    cells: int | None,
    *,
    names: Sequence[Line],
) -> tuple[list[Line], int]:
    """The runs side by side in ``cells`` cells (None: unlimited), below their ``names``.

    ``forecast`` and ``health`` are None while unknown. The second value: how many runs fit.
    """
    runs = comparison.runs
    rows = [CompareRow("", names, line(("difference", DIM)))]
    blank = CompareRow("", [()] * len(runs))
    for group in (
        _parameter_rows(comparison),
        _metric_rows(comparison),
        _progress_rows(runs, forecast, health),
        _hours_rows(runs),
        _place_rows(runs),
    ):
        group_rows = list(group)
        rows += [*group_rows, blank] if group_rows else []

    def column(
        name: str, drop: int, cell_of: Callable[[CompareRow], Line], **more: Any
    ) -> Column[CompareRow]:
        return Column(
            name,
            lambda row: text(cell_of(row)),
            title="",
            align="right",
            drop=drop,
            cell=lambda row, _: cell_of(row),
            **more,
        )

    columns = [Column[CompareRow]("what", itemgetter(0), title="", style=DIM, maximum=NAME_CELLS)]
    bounds = {"minimum": RUN_CELLS, "comfortable": RUN_CELLS, "maximum": MAX_CELLS}

    def run_column(index: int) -> Column[CompareRow]:
        drop = 0 if index < MIN_RUNS else index
        return column(str(index), drop, lambda row: row.cells[index], **bounds)

    columns += map(run_column, range(len(runs)))
    if len(runs) == MIN_RUNS:
        columns.append(column("difference", MIN_RUNS, lambda row: row.difference))
    shown = len(runs)
    if cells is not None:
        fitting = fit_columns(columns, rows, cells + MARGIN + 1)
        shown = len(fitting.keys() - {"what", "difference"})
    return table_lines(columns, rows[:-1], cells)[1:], shown


def _difference(values: Sequence[float | None], write: Callable[[Any], str]) -> Line:
    """The second of two known values minus the first; empty otherwise."""
    known = [value for value in values if value is not None]
    if len(values) != MIN_RUNS or len(known) < MIN_RUNS:
        return ()
    change = known[1] - known[0]
    amount = write(abs(change))
    sign = "" if not change or amount.startswith("<") else "+" if change > 0 else "−"
    return line((f"{sign}{amount}", PLAIN if change else DIM))


def _metric_difference(points: Sequence[Point | None], goal: Goal | None) -> Line:
    known = [point.value for point in points if point is not None]
    return change_cell(known[1] - known[0], goal) if len(points) == len(known) == MIN_RUNS else ()


def run_name(run: ComparedRun, style: TextStyle = BOLD, sign: str = "") -> Line:
    """The name above a column; the best run has a star."""
    star = line((f"{BEST} ", BEST_STYLE)) if run.best else ()
    name = clip_middle(run.row.run, MAX_CELLS)
    return star + line((f"{sign} " if sign else "", style), (name, style))


def headline(comparison: Comparison) -> str:
    """``run1 is best: val_loss 0.2308 in epoch 5``; "" unless two runs have a value."""
    best = next((run for run in comparison.runs if run.best), None)
    if best is None or best.curve.best is None:
        return ""
    value, epoch = best.curve.best.value, formatting.epoch_number(best.curve.best.epoch)
    name, metric = clip_middle(best.row.run, 40), clip(comparison.metric, 40)
    return f"{name} is best: {metric} {formatting.metric(value)} in epoch {epoch}"


# --- groups of rows ---------------------------------------------------------------------------


def _parameter_rows(comparison: Comparison) -> Iterator[CompareRow]:
    """The parameters that differ, and the number of the others."""
    for name, values in comparison.differing:
        texts = short_values(values)
        yield CompareRow(clip(name, NAME_CELLS), [line(texts[value]) for value in values])
    if comparison.equal:
        yield CompareRow(count(comparison.equal, "equal parameter"), [()] * len(comparison.runs))


def _metric_rows(comparison: Comparison) -> Iterator[CompareRow]:
    if not any(run.curve.points for run in comparison.runs):
        return

    def best(run: ComparedRun) -> Line:
        return value_cell(run.curve.best, BEST_STYLE if run.best else PLAIN)

    runs = comparison.runs
    curves, goal = [run.curve for run in runs], runs[0].curve.goal
    yield CompareRow(
        clip(comparison.metric, NAME_CELLS),
        list(map(last_cell, curves)),
        _metric_difference([curve.last for curve in curves], goal),
    )
    bests = [curve.best for curve in curves]
    yield CompareRow("best", list(map(best, runs)), _metric_difference(bests, goal))
    numbers = [None if each is None else each.epoch for each in bests]
    texts = [UNKNOWN_CELL if n is None else line(formatting.epoch_text(n)) for n in numbers]
    yield CompareRow("best in epoch", texts, _difference(numbers, formatting.number))
    yield CompareRow("trend", [symbol_span(curve_symbol(curve)) for curve in curves])


def _progress_rows(
    runs: Sequence[ComparedRun], forecast: Forecast | None, health: Health | None
) -> Iterator[CompareRow]:
    done = _difference([run.row.epochs_done for run in runs], formatting.number)
    yield CompareRow("epochs", [line(epochs_text(run.row)) for run in runs], done)
    states = [gate_symbol(run.row) or STATES[run.row.state] for run in runs]
    yield CompareRow("state", list(map(symbol_span, states)))
    if health is not None:
        yield CompareRow("health", [_worst(run, health) for run in runs])
    if forecast is not None:
        forecasts = {each.key: each for each in forecast.runs}
        texts = [_remaining(forecasts.get(run.row.key)) for run in runs]
        yield CompareRow("remaining", list(map(line, texts)))
    wall = [run.wall_seconds for run in runs]
    if any(seconds is not None for seconds in wall):
        texts = list(map(formatting.duration, wall))
        longer = _difference(wall, formatting.duration)
        yield CompareRow("wall time", list(map(line, texts)), longer)


def _remaining(forecast: RunForecast | None) -> str:
    if forecast is None:
        return formatting.UNKNOWN
    if not forecast.epochs_left:
        return "stopped" if forecast.stopped else "done"
    return run_remaining_text(forecast)


def _worst(run: ComparedRun, health: Health) -> Line:
    """The severity and the kind of a run's first open entry, and the number of the others."""
    entries = open_entries(health, [run])
    if not entries:
        return line(("✓ ok", GOOD))
    symbol, more = SEVERITIES[entries[0].severity], len(entries) - 1
    text = f"{symbol.glyph} {entries[0].kind}"
    return line((text, TextStyle(symbol.colour, symbol.weight)), (f" +{more}" if more else "", DIM))


def open_entries(health: Health, runs: Sequence[ComparedRun]) -> list[HealthEntry]:
    """The open entries that concern any of the runs."""
    keys = {run.row.key for run in runs}
    latest = [run.row.latest for run in runs]
    # Health knows runs outside of any DAG by their jobs.
    jobs = {(each.cluster, each.proc or 0) for each in latest if each and each.cluster is not None}
    return [
        entry
        for entry in health.open_entries
        if keys.intersection(entry.runs) or (not entry.runs and jobs.intersection(entry.jobs))
    ]


def _hours_rows(runs: Sequence[ComparedRun]) -> Iterator[CompareRow]:
    unit = runs[0].row.hours.measure.short if runs else ""
    hours = [run.row.hours for run in runs]
    for name, values, style in (
        ("goodput", [each.goodput for each in hours], PLAIN),
        ("badput", [each.badput for each in hours], BAD),
    ):
        of_runs = zip(runs, values, strict=True)
        cells = [hours_cell(value, style, run.row.lacks_hours) for run, value in of_runs]
        yield CompareRow(f"{name} {unit}", cells, _difference(values, formatting.hours))
    shares = [formatting.share(each.badput, each.goodput + each.badput) for each in hours]
    lost = [line((share, BAD if share != "0 %" else DIM)) for share in shares]
    yield CompareRow("badput share", lost)
    if any(each.running for each in hours):
        yield CompareRow(f"running {unit}", [hours_cell(each.running) for each in hours])


def _place_rows(runs: Sequence[ComparedRun]) -> Iterator[CompareRow]:
    models = formatting.gpu_models(model for run in runs for model, _ in run.gpus)
    for word, places in (
        ("at", [Counter(dict(run.sites)) for run in runs]),
        ("on", [Counter(dict(run.gpus)) for run in runs]),
    ):
        ordered = [place for place, _ in sum(places, Counter()).most_common()]
        if ordered and word == "at":
            yield CompareRow("completed epochs", [()] * len(runs))
        for place in ordered[:MAX_PLACES]:
            name = models[place] if word == "on" else clip(place or "unknown", 40)
            counts = [each[place] for each in places]
            more = _difference(counts, formatting.number)
            yield CompareRow(f"  {word} {name}", list(map(count_cell, counts)), more)
        rest = ordered[MAX_PLACES:]
        if rest:
            label = f"  {word} {len(rest)} others"
            counts = [sum(each[place] for place in rest) for each in places]
            yield CompareRow(label, list(map(count_cell, counts)))
