"""``metlmon curves``, ``grid`` and ``compare``: what the trainings reach, and how they differ."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from metlmon.cli.commands.status import RunWithFigures, with_figures
from metlmon.cli.output import EnsembleOutput, print_warnings, show
from metlmon.cli.reading import check_metric, input_with_trainings, one_run, open_reader
from metlmon.cli.status_text import NAME_LIMIT, UNLIMITED
from metlmon.cli.text_output import TextOutput
from metlmon.config.settings import MetricSettings
from metlmon.errors import InputError
from metlmon.health.build import make_health
from metlmon.health.types import Health, HealthEntry
from metlmon.live.discovery import dag_file_paths
from metlmon.live.feed import StatsInput
from metlmon.model.model_state import Notice
from metlmon.stats.curves import Curves
from metlmon.stats.curves import curves as curves_in
from metlmon.stats.estimates import Forecast, RunForecast, make_forecast
from metlmon.stats.run_figures import ComparedRun, Comparison, compare_runs
from metlmon.stats.sweep import (
    Grid,
    GridCell,
    GridChoice,
    Point,
    SweepVariables,
    Value,
    find_sweep,
    without_fixed_axes,
)
from metlmon.stats.sweep import grid as grid_in
from metlmon.tables import curves as curves_table
from metlmon.tables import sweep as sweep_table
from metlmon.tables.comparison import MIN_RUNS, comparison_lines, headline, open_entries, run_name
from metlmon.tables.health import entry_lines
from metlmon.tables.layout import Column
from metlmon.text.formatting import UNKNOWN, plain
from metlmon.text.record_json import Flat
from metlmon.text.spans import BOLD, PLAIN, TextStyle, line, to_ascii

GOALS: Final = {"min": ", lower is better", "max": ", higher is better", None: ""}


# --- curves ---------------------------------------------------------------------------------


class CurvesOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon curves --json``; ``looked_in``: patterns of the directories with metrics."""

    curves: Flat[Curves]
    looked_in: tuple[str, ...]


def curves(options: argparse.Namespace) -> int:
    """``metlmon curves``. Raises InputError for a metric that no run has."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    metrics, basis = reader.ensemble.settings.metrics, input_with_trainings(reader)
    check_metric(options.metric, basis)
    result = curves_in(basis, options.metric)
    print_text = partial(print_curves, result, builder.live, metrics, options.dir)
    code = show(options, CurvesOutput, builder, print_text, curves=result, looked_in=metrics.files)
    print_warnings(Notice("metrics", None, None, problem) for problem in result.problems)
    return code


def print_curves(result: Curves, live: bool, metrics: MetricSettings, dagdir: str) -> None:
    """The headline, a row per run, and the band by epoch."""
    out = TextOutput()
    if not result.curves_with_values:
        out.print(*curves_table.empty(metrics, result, dagdir))
        return
    out.print(curves_table.headline(result, live, UNLIMITED))
    out.print(f"{plain(result.metric, 80)}{GOALS[result.goal]}")
    out.table(curves_table.columns(result.runs), result.runs, "")
    for band in (result.band, *result.bands):
        name = "all runs" if band is result.band else plain(band.label or "no label", NAME_LIMIT)
        out.table(curves_table.band_columns(), band.levels, "", line((name, BOLD)))


# --- grid -----------------------------------------------------------------------------------


class GridOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon grid --json``: ``rows`` is null without a sweep, ``columns`` in a list."""

    grid: Flat[Grid]


def grid(options: argparse.Namespace) -> int:
    """``metlmon grid``; the exit status. Raises InputError for an unknown name."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    basis = input_with_trainings(reader)
    check_metric(options.metric, basis)
    sweep_grid = grid_in(basis, _choice(find_sweep(basis.load_description().nodes), options))
    return show(options, GridOutput, builder, partial(print_grid, sweep_grid), grid=sweep_grid)


def _choice(sweep: SweepVariables, options: argparse.Namespace) -> GridChoice:
    rows = _names(sweep, "--rows", options.rows)
    columns = _names(sweep, "--columns", options.columns)
    fixed = tuple(_fixed(sweep, item) for item in options.where)
    if bool(rows) is not bool(columns):
        given = rows or columns
        free = without_fixed_axes(sweep, (name for name, _ in fixed))
        rest = [axis.names for axis in free.axes if not set(axis.names) & set(given)]
        other = rest[0] if rest else ()
        rows, columns = (rows, other) if rows or not rest else (other, columns)
        rows, columns = (rows, columns) if rows else (columns, rows)
    if set(rows) & set(columns):
        raise InputError("--rows and --columns: a variable can be one of them only")
    if fixed and not rows and not without_fixed_axes(sweep, (name for name, _ in fixed)).axes:
        raise InputError("--where: nothing that is swept is left for the rows; leave one out")
    for name, _ in fixed:
        if name in (*rows, *columns):
            raise InputError(f"--where {plain(name, 80)}: it is shown as rows or columns already")
    return GridChoice(rows, columns, fixed, options.metric)


def _names(sweep: SweepVariables, option: str, given: str | None) -> tuple[str, ...]:
    if given is None:
        return ()
    return tuple(_name(sweep, option, item.strip()) for item in given.split(",") if item.strip())


def _name(sweep: SweepVariables, option: str, given: str) -> str:
    name = sweep.find_name(given)
    if name is None:
        there = ", ".join(plain(item.name, 40) for item in sweep.variables)
        there = f"there are: {there}" if there else "nothing is swept here"
        raise InputError(f"{option} {plain(given, 80)}: no variable that is swept; {there}")
    return name


def _fixed(sweep: SweepVariables, given: str) -> tuple[str, Value]:
    before, equals, wanted = given.partition("=")
    if not equals:
        raise InputError(f"--where {plain(given, 80)}: write NAME=VALUE")
    name = _name(sweep, "--where", before.strip())
    values = next(item.values for item in sweep.variables if item.name == name)
    if wanted not in values and None in values and wanted in (UNKNOWN, to_ascii(UNKNOWN)):
        # A missing value is given as it is shown.
        return name, None
    if wanted not in values:
        there = ", ".join(sweep_table.value_text(item) for item in values[:20])
        raise InputError(f"--where {plain(given, 80)}: no run has that value; there are: {there}")
    return name, wanted


def print_grid(grid_data: Grid) -> None:
    """The headline, then the grid: the best value and the progress of each cell."""
    out = TextOutput()
    if grid_data.rows is None:
        out.print(*sweep_table.no_sweep_lines())
        return
    out.print(sweep_table.headline(grid_data, UNLIMITED, full=True))
    notes = [
        f"{plain(grid_data.metric, 60)}{GOALS[grid_data.goal]}",
        *sweep_table.folding_texts(grid_data),
    ]
    out.print("; ".join(notes))
    if grid_data.columns is None:
        cells = list(grid_data.cells.values())
        out.table(sweep_table.point_columns(grid_data.rows), cells, "")
        return
    head = f"{sweep_table.axis_name(grid_data.rows)} / {sweep_table.axis_name(grid_data.columns)}"
    rows, heads = sweep_table.labels(grid_data.rows), sweep_table.labels(grid_data.columns)
    for across in _blocks(grid_data, head, rows, heads, room=out.width):
        columns: list[Column[Point]] = [Column("row", rows.__getitem__, title=head)]
        columns += [_across(grid_data, heads[item], item) for item in across]
        out.table(columns, grid_data.rows.points, "")


def _blocks(
    grid_data: Grid,
    head: str,
    rows: Mapping[Point, str],
    heads: Mapping[Point, str],
    room: int | None,
) -> Iterator[Sequence[Point]]:
    """The columns in groups that fit the width, in cells, of the terminal."""
    from rich.cells import cell_len

    first = max(cell_len(text) for text in (head, *rows.values()))
    block: list[Point] = []
    used = first
    for point, name in heads.items():
        texts = (_cell_text(grid_data.cells.get((row, point))) for row in rows)
        cells = 2 + max(cell_len(text) for text in (name, *texts))
        if block and room is not None and used + cells > room:
            yield block
            block, used = [], first
        block.append(point)
        used += cells
    yield block


def _across(grid_data: Grid, title: str, column: Point) -> Column[Point]:
    """The cells of one column of the grid; the best one is bold."""

    def style(row: Point) -> TextStyle:
        cell = grid_data.cells.get((row, column))
        return BOLD if cell is not None and cell.rank == 1 else PLAIN

    return Column(
        str(column),
        lambda row: _cell_text(grid_data.cells.get((row, column))),
        title=title,
        align="right",
        style=style,
    )


def _cell_text(cell: GridCell | None) -> str:
    if cell is None:
        return ""
    best = sweep_table.BEST if cell.rank == 1 else ""
    sign = sweep_table.cell_symbol(cell).glyph
    return (
        f"{best}{sweep_table.cell_value_text(cell)} {cell.epochs_done}/{cell.epochs_total} {sign}"
    )


# --- compare --------------------------------------------------------------------------------


class ComparedRunOutput(Struct, frozen=True):
    """A run of ``status --json``, where its epochs were completed, and its estimate."""

    run: Flat[RunWithFigures]
    compared: Flat[ComparedRun]
    estimate: RunForecast | None


class CompareOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon compare --json``."""

    comparison: Flat[Comparison]
    runs: tuple[ComparedRunOutput, ...]
    health: tuple[HealthEntry, ...]


def compare(options: argparse.Namespace) -> int:
    """``metlmon compare``. Raises InputError for fewer than two runs."""
    names = take_directory(options)
    if len(names) < MIN_RUNS:
        raise InputError("give two or more runs: metlmon compare RUN RUN [DIR]")
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    keys = list(dict.fromkeys(one_run(builder, name).key for name in names))
    if len(keys) < MIN_RUNS:
        raise InputError(f"{' and '.join(names)} are the same run: give two or more")
    basis = input_with_trainings(reader)
    check_metric(options.metric, basis)
    result = compare_runs(basis, keys, options.metric)
    forecast, health = make_forecast(basis), make_health(basis)
    forecasts = {each.key: each for each in forecast.runs}
    figures = with_figures([run.row for run in result.runs], basis)
    return show(
        options,
        CompareOutput,
        builder,
        partial(print_comparison, result, forecast, health, basis),
        comparison=result,
        runs=tuple(
            ComparedRunOutput(run, compared, forecasts.get(run.row.key))
            for run, compared in zip(figures, result.runs, strict=True)
        ),
        health=tuple(open_entries(health, result.runs)),
    )


def take_directory(options: argparse.Namespace) -> list[str]:
    """The names of runs; moves DIR, given first or last, to ``options.dir``.

    A directory without a DAG file is not DIR: those of the outputs are named like their runs.
    """
    names = list(options.runs)
    for place in (-1, 0):
        if _is_dagdir(names[place]):
            options.dir = names.pop(place)
            break
    return names


def _is_dagdir(word: str) -> bool:
    # So is a path that cannot be examined: reading it says why.
    if os.sep in word or os.path.isfile(word):
        return True
    has_dag = bool(dag_file_paths(Path(word)))
    return has_dag or (os.path.isdir(word) and not dag_file_paths(Path()))


def print_comparison(
    result: Comparison, forecast: Forecast, health: Health, basis: StatsInput
) -> None:
    """The best run, the runs side by side, and what is wrong with them."""
    out = TextOutput()
    if best := headline(result):
        out.print(line((best, BOLD)))
    names = [run_name(run) for run in result.runs]
    lines, shown = comparison_lines(result, forecast, health, out.width, names=names)
    out.print("")
    out.print_cropped(lines)
    if shown < len(result.runs):
        out.print("", f"{len(result.runs) - shown} more runs do not fit: see --json")
    for entry in open_entries(health, result.runs):
        out.print("", *entry_lines(entry, health, basis.status.as_of, out.width, indent=0))
