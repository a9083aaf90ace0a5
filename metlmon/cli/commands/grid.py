"""``metlmon grid``: a sweep's points as rows and columns, as a table or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence

from metlmon.cli.commands.curves import check_metric
from metlmon.cli.exit_codes import Exit
from metlmon.cli.outputs import EnsembleOutput, print_record
from metlmon.cli.reading import input_with_trainings, open_reader
from metlmon.cli.text_output import TextOutput
from metlmon.errors import InputError
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
from metlmon.tables import sweep as sweep_table
from metlmon.tables.layout import Column
from metlmon.text.formatting import UNKNOWN, plain
from metlmon.text.record_json import Flat
from metlmon.text.spans import BOLD, PLAIN, TextStyle, line, to_ascii


class GridOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon grid --json``: rows is null without a sweep, columns in a list."""

    grid: Flat[Grid]


def grid(options: argparse.Namespace) -> int:
    """``metlmon grid``. Returns the exit status.

    Raises InputError for a metric that no run has, for a variable that is not swept, and for a
    value that it does not have.
    """
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    basis = input_with_trainings(reader)
    check_metric(options.metric, basis)
    sweep_grid = grid_in(basis, _choice(find_sweep(basis.load_description().nodes), options))
    if options.json:
        print_record(GridOutput, builder, grid=sweep_grid)
    else:
        print_grid(sweep_grid)
    return Exit.OK


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
        # As a missing one is shown.
        return name, None
    if wanted not in values:
        there = ", ".join(sweep_table.value_text(item) for item in values[:20])
        raise InputError(f"--where {plain(given, 80)}: no run has that value; there are: {there}")
    return name, wanted


# --- tables -----------------------------------------------------------------------------------


def print_grid(grid_data: Grid) -> None:
    """The headline, then the grid: the best value and the progress of each cell."""
    out = TextOutput()
    if grid_data.rows is None:
        out.print(*sweep_table.no_sweep_lines())
        return
    headline = sweep_table.sweep_headline(grid_data, full=True)
    dot = " · "
    best = f"{headline.best} ({headline.run})" if headline.best else ""
    parts = (best, headline.points, headline.active, headline.needs_action, headline.epochs)
    out.print(line((dot.join(part for part in parts if part), BOLD)))
    goal = {"min": ", lower is better", "max": ", higher is better", None: ""}[grid_data.goal]
    notes = [f"{plain(grid_data.metric, 60)}{goal}", *sweep_table.folding_texts(grid_data)]
    out.print("; ".join(notes))
    if grid_data.columns is None:
        out.print()
        out.table(sweep_table.point_columns(grid_data.rows), list(grid_data.cells.values()))
        return
    head = f"{sweep_table.axis_name(grid_data.rows)} / {sweep_table.axis_name(grid_data.columns)}"
    rows, heads = sweep_table.labels(grid_data.rows), sweep_table.labels(grid_data.columns)
    for across in _blocks(grid_data, head, rows, heads, room=out.width):
        out.print()
        columns: list[Column[Point]] = [Column("row", head, rows.__getitem__)]
        columns += [_across(grid_data, heads[item], item) for item in across]
        out.table(columns, grid_data.rows.points)


def _blocks(
    grid_data: Grid,
    head: str,
    rows: Mapping[Point, str],
    heads: Mapping[Point, str],
    room: int | None,
) -> Iterator[Sequence[Point]]:
    """The columns, as many of them at a time as there is room for.

    Room is counted in cells of the terminal, of which a character may need two.
    """
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
        title,
        lambda row: _cell_text(grid_data.cells.get((row, column))),
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
