"""The sweep grid: the best point, and the progress of the sweep."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partialmethod
from typing import ClassVar, Final

from textual.app import ComposeResult

from metlmon.live.feed import Snapshot
from metlmon.stats.sweep import (
    Grid,
    GridChoice,
    Point,
    choices,
    grid_stat,
    next_fixed,
    next_pair,
    swap_axes,
)
from metlmon.tables import sweep as sweep_table
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import BOLD, DIM, Line, join, line
from screens.base.list_screen import ListScreen
from screens.base.screens import SnapshotScreen, how_to, rule
from screens.sweep import cells as sweep_cells
from screens.widgets.document import StaticLines
from screens.widgets.footer import KeyFooter
from screens.widgets.matrix import Matrix


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
            lambda run: run.entry.run,
            lambda run: run.entry.run_name.lower(),
        )

    def open_row(self, key: str) -> None:
        self.context.open_run(key)


FRAME_LINES: Final = 4
"""Lines outside matrix and details: two of the header, the rule, the footer."""


GRID_ACTIONS: Final = ("open", "swap", "view", "fix", "next_metric")
"""Actions without effect where nothing is swept."""


class SweepScreen(SnapshotScreen):
    """The points of a sweep as rows and columns."""

    SCOPES: ClassVar[tuple[str, ...]] = ("grid", "below")
    HELP_SCOPES: ClassVar[tuple[str, ...]] = ("grid", "sideways", "below")
    AUTO_FOCUS: ClassVar[str | None] = "Matrix"

    def __init__(self) -> None:
        super().__init__()
        self.choice = GridChoice()
        self._placed = False
        self._next_cursor: tuple[Point, Point] | None = None

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Matrix()
        yield StaticLines(id="note")
        yield self.key_footer()

    @property
    def matrix(self) -> Matrix:
        return self.query_one(Matrix)

    # --- rendering --------------------------------------------------------------------------

    def show(self, update: Snapshot | None) -> None:
        self.context.stats.watch_job_files()
        grid = self.context.stats.value(grid_stat(self.choice))
        self.query_one(KeyFooter).hide_actions(self.refusals().keys())
        if grid is None or not grid.has_sweep:
            self._nothing(grid, update)
            return
        room = self.app.size.width
        head = [line(" ") + text for text in sweep_cells.head(grid, room - 2)]
        self.show_head([*head, ()])
        lines = self.app.size.height - FRAME_LINES - sweep_cells.DETAILS - self.tab_lines
        self.matrix.show(sweep_cells.layout(grid, room, lines))
        if not self._placed and grid.best is not None:
            # Start at the best point.
            self._placed = True
            self.matrix.select(grid.best.row, grid.best.column)
        if self._next_cursor is not None and self._next_cursor in grid.cells:
            self.matrix.select(*self._next_cursor)
            self._next_cursor = None
        details = sweep_cells.details(grid, self.matrix.cursor, room)
        self.show_note([self._rule(grid), *details])

    def _rule(self, grid: Grid) -> Line:
        parts = self.messages()
        if grid.excluded_runs:
            parts.append(line((f"{grid.excluded_runs} runs have another value", DIM)))
        if not grid.files_read:
            dots = "…"
            parts.append(line((f"reading what the trainings wrote{dots}", DIM)))
        above, below, left, right = self.matrix.hidden_counts
        signs = ("↑", "↓", "←", "→")
        more = [
            line((f"{sign} {n}", DIM))
            for sign, n in zip(signs, (above, below, left, right), strict=True)
            if n
        ]
        if more:
            parts.append(join(more, line("  ")) + line((" more", DIM)))
        return rule(parts, self.app.size.width)

    def _nothing(self, grid: Grid | None, update: Snapshot | None) -> None:
        """Show why there is no grid, and how a sweep is made."""
        room = self.app.size.width
        reading = grid is None or update is None or update.progress.fraction < 1
        first = "reading the DAG" if reading else "nothing is swept here"
        self.show_head([line(" ", ("Grid", BOLD), "   ", (first, DIM))])
        waiting = [line("  ", ("A sweep appears when its DAG file is read.", DIM))]
        self.matrix.show(None, waiting if reading else how_to(sweep_table.no_sweep_lines(), room))
        self.show_note([rule(self.messages(), room)])

    def on_matrix_cell_highlighted(self, event: Matrix.CellHighlighted) -> None:
        event.stop()
        self._message = ""
        self._refresh_if_mounted()

    # --- actions ------------------------------------------------------------------------------

    @property
    def _shown(self) -> Grid | None:
        grid = self.context.stats.value(grid_stat(self.choice))
        return grid if grid is not None and grid.has_sweep else None

    def on_matrix_cell_selected(self, event: Matrix.CellSelected) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        grid, cursor = self._shown, self.matrix.cursor
        cell = grid.cells.get(cursor) if grid is not None and cursor is not None else None
        if grid is None or cell is None:
            return
        if len(cell.runs) == 1:
            self.context.open_run(cell.runs[0].entry.run)
        else:
            self.context.push_screen(PointRunsScreen(self.choice, (cell.row, cell.column)))

    def refusals(self) -> Mapping[str, str]:
        grid = self._shown
        if grid is None:
            return dict.fromkeys(GRID_ACTIONS, "nothing is swept here")
        reasons: dict[str, str] = {}
        if grid.columns is None:
            reasons["swap"] = "one axis only: there is nothing to swap"
        if len(choices(grid.sweep)) < 2:
            reasons["view"] = "there are no other variables to choose from"
        if not grid.folded and not grid.fixed:
            reasons["fix"] = "no variable is left over that could be held fixed"
        if len(grid.metrics) < 2:
            reasons["next_metric"] = "there is one metric only"
        return reasons

    def action_swap(self) -> None:
        grid, cursor = self._shown, self.matrix.cursor
        if grid is not None and not self.notify_refusal("swap"):
            self.choice = swap_axes(grid, self.choice)
            self._next_cursor = (cursor[1], cursor[0]) if cursor is not None else None
            self._refresh_if_mounted()

    def action_view(self) -> None:
        grid = self._shown
        if grid is not None and not self.notify_refusal("view"):
            self.choice, self._placed = next_pair(grid, self.choice), False
            self._refresh_if_mounted()

    def action_fix(self) -> None:
        grid = self._shown
        if grid is not None and not self.notify_refusal("fix"):
            self.choice = next_fixed(grid, self.choice)
            self._refresh_if_mounted()

    def _step_metric(self, delta: int) -> None:
        grid = self._shown
        if grid is None or not grid.metrics:
            return
        index = grid.metrics.index(grid.metric) if grid.metric in grid.metrics else 0
        metric = grid.metrics[(index + delta) % len(grid.metrics)]
        self.choice = GridChoice(self.choice.rows, self.choice.columns, self.choice.fixed, metric)
        self._refresh_if_mounted()

    action_next_metric = partialmethod(_step_metric, 1)
    action_previous_metric = partialmethod(_step_metric, -1)
