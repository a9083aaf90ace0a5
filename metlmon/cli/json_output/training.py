"""The JSON of ``estimate``, ``curves``, ``grid`` and ``shards``."""

from __future__ import annotations

from typing import Any, Final

from metlmon.cli.json_output.jobs import ENSEMBLE
from metlmon.cli.json_output.objects import JsonObject
from metlmon.stats.sweep import (
    Axis,
    CellRun,
    Grid,
    GridCell,
    SweepProgress,
    sweep_progress,
)
from metlmon.text.formatting import epoch_number

# --- grid -------------------------------------------------------------------------------------

FOLDED: Final = JsonObject(
    None,
    "Variables that are neither rows nor columns; most of their values are in one cell.",
    name="Folded",
    given={"names": list[str], "most": int},
)
POINTS: Final = JsonObject(
    SweepProgress,
    "Points by progress; stopped are among done, paused among waiting.",
    "total=points done=finished stopped moving=active idle waiting paused "
    "need_a_person=needs_action",
    name="Points",
)
BEST: Final = JsonObject(
    None,
    "A cell by its values, and the best value of its runs.",
    name="Best",
    given={
        "at": dict[str, str | None],
        "value": float | None,
        "epoch": int | None,
        "run": str | None,
        "key": str | None,
    },
)
CELL_RUN: Final = JsonObject(
    CellRun,
    "A run in a cell; course as in metlmon curves. stopped: why its gate ended it.",
    "run=entry.run_name key=entry.run state course=curve.course epochs_done=entry.epochs_done "
    "epochs_skipped=entry.epochs_skipped epochs_total=entry.epochs_total stopped paused",
    computed={
        "value": (float | None, lambda run: run.value and run.value.value),
        "epoch": (int | None, lambda run: run.value and run.value.epoch),
    },
)
CELL: Final = JsonObject(
    GridCell,
    "A cell; rank: the place of its best value, from 1. state: that of its runs which needs a "
    "person first.",
    "rank state epochs_done=done epochs_total=total over=is_finished course=diverged_course runs",
    name="Cell",
    base=BEST,
)
GRID_OUTPUT: Final = JsonObject(
    Grid,
    "metlmon grid --json; rows is null without a sweep, columns in a list.",
    "metric goal metrics variables=sweep.variables rows columns runs_elsewhere=excluded_runs",
    name="GridOutput",
    computed={
        "folded": (
            [FOLDED],
            lambda grid: [
                {"names": list(each.axis.names), "most": each.max_values} for each in grid.folded
            ],
        ),
        "fixed": (dict[str, str | None], lambda grid: dict(grid.fixed)),
        "points": (POINTS, sweep_progress),
        "epochs_done": (int, lambda grid: sweep_progress(grid).done),
        "epochs_total": (int, lambda grid: sweep_progress(grid).total),
        "best": ((BEST, None), lambda grid: _best(grid, grid.best)),
        "row_best": ([(BEST, None)], lambda grid: _best_of(grid, grid.rows, grid.row_best)),
        "column_best": (
            [(BEST, None)],
            lambda grid: _best_of(grid, grid.columns, grid.column_best),
        ),
        "cells": (
            [CELL],
            lambda grid: [CELL.write(cell, **_cell(grid, cell)) for cell in grid.cells.values()],
        ),
    },
    given=ENSEMBLE,
)


def _best_of(grid: Grid, axis: Axis | None, best: Any) -> list[dict[str, Any] | None]:
    points = axis.points if axis is not None else ()
    return [_best(grid, best.get(point)) for point in points]


def _best(grid: Grid, cell: GridCell | None) -> dict[str, Any] | None:
    return None if cell is None else _cell(grid, cell)


def _cell(grid: Grid, cell: GridCell) -> dict[str, Any]:
    """A cell by its values, with the best one of its runs."""
    best = cell.best
    value = best.value if best is not None else None
    axes = ((grid.rows, cell.row), (grid.columns, cell.column))
    return {
        "at": {
            name: each
            for axis, point in axes
            if axis is not None
            for name, each in zip(axis.names, point, strict=True)
        },
        "value": value and value.value,
        "epoch": value and epoch_number(value.epoch),
        "run": best and best.entry.run_name,
        "key": best and best.entry.run,
    }
