"""The runs of one point of a sweep, if it has several."""

from __future__ import annotations

from typing import ClassVar

from metlmon.live.feed import Snapshot
from metlmon.stats.sweep import GridChoice, Point, grid_stat
from metlmon.tables import sweep as sweep_table
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import BOLD, DIM, line
from screens.base.list_screen import ListScreen


class PointRunsScreen(ListScreen):
    """The runs of a sweep point, the best first."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "below")
    ORDERS = sweep_table.RUN_ORDERS

    def __init__(self, choice: GridChoice, point: tuple[Point, Point]) -> None:
        super().__init__()
        self.choice, self.point = choice, point

    def show(self, update: Snapshot | None) -> None:
        self.context.stats.watch_job_files()
        grid = self.context.stats.value(grid_stat(self.choice))
        cell = grid.cells.get(self.point) if grid is not None else None
        if grid is None or cell is None:
            self.show_nothing("Grid", "", [line("  ", "No run has these values now.")])
            return
        point = sweep_table.cell_point_text(grid, cell, full=True)
        runs = f"   {formatting.count(len(cell.runs), 'run')}, {plain(grid.metric, 40)}"
        self.show_head([line(" ", ("Grid", BOLD), "   ", (point, BOLD), (runs, DIM)), ()])
        self.fill(
            sweep_table.run_columns(),
            cell.runs,
            lambda run: run.key,
            lambda run: run.name.lower(),
        )

    def open_row(self, key: str) -> None:
        self.context.open_run(key)
