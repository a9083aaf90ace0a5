"""``metlmon grid``: a sweep's points as rows and columns, as a table or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from metlmon.cli.commands.curves import check_metric, print_figures
from metlmon.cli.exit_codes import Exit
from metlmon.cli.reading import open_reader
from metlmon.cli.text_output import TextOutput
from metlmon.live.errors import InputError
from metlmon.live.job_files import TrainingFiles
from metlmon.snapshot.dag_description import describe_dags
from metlmon.stats.sweep import Axis, Point, SweepVariables, Value, find_sweep
from metlmon.stats.sweep_grid import (
    CellRun,
    Grid,
    GridCell,
    GridChoice,
    sweep_progress,
    without_fixed_axes,
)
from metlmon.stats.sweep_grid import grid as grid_in
from metlmon.stats.worker import StatsInput
from metlmon.tables import sweep_text
from metlmon.tables.layout import Heading, Row, text_columns
from metlmon.text.formatting import UNKNOWN, plain
from metlmon.text.sanitize import to_ascii
from metlmon.text.spans import BOLD, PLAIN, line


def grid(options: argparse.Namespace) -> int:
    """``metlmon grid``. Raises InputError for a metric that no run has, for a variable that is
    not swept, and for a value that it does not have."""
    reader = open_reader(options)
    painter = reader.snapshot_builder()
    ledger, settings = painter.ledger(), painter.ensemble.settings
    written = TrainingFiles(reader.dagdir, settings)
    told = describe_dags(painter)
    basis = StatsInput(
        painter.status(),
        ledger,
        settings,
        written.training_outputs(ledger, painter),
        files_read=True,
        load_description=lambda: told,
    )
    check_metric(options.metric, basis)
    found = grid_in(basis, _choice(find_sweep(told.nodes), options))
    if options.json:
        print_figures(painter, grid_json(found))
    else:
        print_grid(found)
    return Exit.OK


def _choice(sweep: SweepVariables, options: argparse.Namespace) -> GridChoice:
    rows = _names(sweep, "--rows", options.rows)
    columns = _names(sweep, "--columns", options.columns)
    fixed = tuple(_fixed(sweep, each) for each in options.where)
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
    return tuple(_name(sweep, option, each.strip()) for each in given.split(",") if each.strip())


def _name(sweep: SweepVariables, option: str, given: str) -> str:
    name = sweep.find_name(given)
    if name is None:
        there = ", ".join(plain(each.name, 40) for each in sweep.variables)
        there = f"there are: {there}" if there else "nothing is swept here"
        raise InputError(f"{option} {plain(given, 80)}: no variable that is swept; {there}")
    return name


def _fixed(sweep: SweepVariables, given: str) -> tuple[str, Value]:
    before, equals, wanted = given.partition("=")
    if not equals:
        raise InputError(f"--where {plain(given, 80)}: write NAME=VALUE")
    name = _name(sweep, "--where", before.strip())
    values = next(each.values for each in sweep.variables if each.name == name)
    if wanted not in values and None in values and wanted in (UNKNOWN, to_ascii(UNKNOWN)):
        # As a missing one is shown.
        return name, None
    if wanted not in values:
        there = ", ".join(sweep_text.value_text(each) for each in values[:20])
        raise InputError(f"--where {plain(given, 80)}: no run has that value; there are: {there}")
    return name, wanted


# --- JSON -------------------------------------------------------------------------------------


def grid_json(of: Grid) -> dict[str, Any]:
    """A sweep as JSON (schema 1).

    ``variables``: all that are swept. ``rows``, ``columns``: variables that go together, mostly
    one, and what there is of them in order; null without a sweep, or columns of a list.
    ``folded``: neither rows nor columns nor ``fixed``; ``most`` of their values are in one cell.
    A cell's ``rank`` is the place of its best value, from 1; ``state`` that of its runs which
    needs a person first; ``course`` of a run as in ``metlmon curves``. ``best`` and those of rows
    and columns name cells by their values. Of ``points``, ``stopped`` are among those that are
    done, ``paused`` among those that wait.
    """
    told = sweep_progress(of)
    return {
        "metric": of.metric,
        "goal": of.goal,
        "metrics": list(of.metrics),
        "variables": [
            {"name": each.name, "values": list(each.values)} for each in of.sweep.variables
        ],
        "rows": _axis(of.rows),
        "columns": _axis(of.columns),
        "folded": [{"names": list(each.axis.names), "most": each.max_values} for each in of.folded],
        "fixed": dict(of.fixed),
        "runs_elsewhere": of.excluded_runs,
        "points": {
            "total": told.points,
            "done": told.finished,
            "stopped": told.stopped,
            "moving": told.active,
            "idle": told.idle,
            "waiting": told.waiting,
            "paused": told.paused,
            "need_a_person": told.needs_action,
        },
        "epochs_done": told.done,
        "epochs_total": told.total,
        "best": _at(of, of.best),
        "row_best": [_at(of, of.row_best.get(p)) for p in (of.rows.points if of.rows else ())],
        "column_best": [
            _at(of, of.column_best.get(p)) for p in (of.columns.points if of.columns else ())
        ],
        "cells": [_cell(of, cell) for cell in of.cells.values()],
    }


def _axis(axis: Axis | None) -> dict[str, Any] | None:
    if axis is None:
        return None
    return {"names": list(axis.names), "points": [list(each) for each in axis.points]}


def _at(of: Grid, cell: GridCell | None) -> dict[str, Any] | None:
    if cell is None:
        return None
    best = cell.best
    reached = best.value if best is not None else None
    return {
        "at": _values(of, cell),
        "value": reached.value if reached is not None else None,
        "epoch": reached.epoch if reached is not None else None,
        "run": best.name if best is not None else None,
        "key": best.key if best is not None else None,
    }


def _values(of: Grid, cell: GridCell) -> dict[str, Value]:
    axes: tuple[tuple[Axis | None, Point], ...] = ((of.rows, cell.row), (of.columns, cell.column))
    return {
        name: value
        for axis, point in axes
        if axis is not None
        for name, value in zip(axis.names, point, strict=True)
    }


def _cell(of: Grid, cell: GridCell) -> dict[str, Any]:
    told = _at(of, cell) or {}
    return {
        **told,
        "rank": cell.rank,
        "state": str(cell.state),
        "epochs_done": cell.done,
        "epochs_total": cell.total,
        "over": cell.is_finished,
        "course": None if cell.diverged_course is None else str(cell.diverged_course),
        "runs": [_run(run) for run in cell.runs],
    }


def _run(run: CellRun) -> dict[str, Any]:
    return {
        "run": run.name,
        "key": run.key,
        "state": str(run.state),
        "value": run.value.value if run.value is not None else None,
        "epoch": run.value.epoch if run.value is not None else None,
        "course": str(run.course),
        "epochs_done": run.done,
        "epochs_skipped": run.skipped,
        "epochs_total": run.total,
        "stopped": run.stopped,
        "paused": run.paused,
    }


# --- tables -----------------------------------------------------------------------------------


def print_grid(of: Grid) -> None:
    """The answer, then the grid: in each cell the best value and how far it is."""
    out = TextOutput()
    if of.rows is None:
        out.print(*sweep_text.no_sweep_lines())
        return
    told = sweep_text.sweep_headline(of, full=True)
    dot = " · "
    best = f"{told.best} ({told.run})" if told.best else ""
    parts = (best, told.points, told.active, told.needs_action, told.epochs)
    out.print(line((dot.join(part for part in parts if part), BOLD)))
    goal = {"min": ", lower is better", "max": ", higher is better", None: ""}[of.goal]
    notes = [f"{plain(of.metric, 60)}{goal}", *sweep_text.folding_texts(of)]
    out.print("; ".join(notes))
    if of.columns is None:
        out.print()
        rows = sweep_text.labels(of.rows)
        columns = [Heading(sweep_text.axis_name(of.rows)), *_LISTED]
        out.table(text_columns(columns), [_listed(cell, rows) for cell in of.cells.values()])
        return
    head = f"{sweep_text.axis_name(of.rows)} / {sweep_text.axis_name(of.columns)}"
    rows, heads = sweep_text.labels(of.rows), sweep_text.labels(of.columns)
    for across in _blocks(of, head, rows, heads, out.width):
        out.print()
        columns = [Heading(head), *(Heading(heads[each], "right") for each in across)]
        lines = [[rows[row], *_row(of, row, across)] for row in of.rows.points]
        out.table(text_columns(columns), lines)


_LISTED: Final = (
    Heading("BEST", "right"),
    Heading("RANK", "right", drop=1),
    Heading("RUN"),
    Heading("EPOCH", "right", drop=2),
    Heading("DONE", "right"),
    Heading("STATE"),
)


def _listed(cell: GridCell, rows: Mapping[Point, str]) -> Row:
    best = cell.best
    reached = best.value if best is not None else None
    return [
        rows[cell.row],
        sweep_text.cell_value_text(cell),
        str(cell.rank) if cell.rank is not None else UNKNOWN,
        plain(cell.runs[0].name, sweep_text.NAME_LIMIT),
        str(reached.epoch) if reached is not None else UNKNOWN,
        f"{cell.done}/{cell.total}",
        sweep_text.cell_state_text(cell),
    ]


def _blocks(
    of: Grid, head: str, rows: Mapping[Point, str], heads: Mapping[Point, str], room: int | None
) -> Iterator[Sequence[Point]]:
    """The columns, as many of them at a time as have room: in cells of the terminal, of which a
    character may need two."""
    from rich.cells import cell_len

    first = max(cell_len(text) for text in (head, *rows.values()))
    block: list[Point] = []
    used = first
    for point, name in heads.items():
        told = (_told(of.cells.get((row, point))) for row in rows)
        cells = 2 + max(cell_len(text) for text in (name, *told))
        if block and room is not None and used + cells > room:
            yield block
            block, used = [], first
        block.append(point)
        used += cells
    yield block


def _row(of: Grid, row: Point, across: Sequence[Point]) -> Row:
    cells = [of.cells.get((row, column)) for column in across]
    return [
        line((_told(cell), BOLD if cell is not None and cell.rank == 1 else PLAIN))
        for cell in cells
    ]


def _told(cell: GridCell | None) -> str:
    if cell is None:
        return ""
    best = sweep_text.BEST if cell.rank == 1 else ""
    sign = sweep_text.cell_symbol(cell).glyph
    return f"{best}{sweep_text.cell_value_text(cell)} {cell.done}/{cell.total} {sign}"
