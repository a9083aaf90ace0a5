"""The runs of one point of a sweep, if it has several."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.live.feed import Snapshot
from metlmon.stats.curves import course_symbol
from metlmon.stats.sweep import Point
from metlmon.stats.sweep_grid import CellRun, GridChoice, grid_stat
from metlmon.tables import sweep_text
from metlmon.tables.layout import Column, fit_columns, render_cells, table_columns
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain
from metlmon.text.spans import BAD, BOLD, DIM, PLAIN, Line, line, style_of
from screens.actions import bindings_of
from screens.base.screens import ListScreen
from screens.widgets.lines import StaticLines
from screens.widgets.table import Table, TableRow


class PointRunsScreen(ListScreen):
    """The runs of a sweep point, the best first."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("list", "below")]
    ORDERS = (
        ("value", None),
        ("name", lambda run: (run.name,)),
        ("progress", lambda run: (run.done / max(1, run.total),)),
    )

    def __init__(self, choice: GridChoice, point: tuple[Point, Point]) -> None:
        super().__init__()
        self.choice, self.point = choice, point

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield from self.compose_foot()

    def show(self, update: Snapshot | None) -> None:
        self.context.stats.watch_job_files()
        grid = self.context.stats.value(grid_stat(self.choice))
        cell = grid.cells.get(self.point) if grid is not None else None
        room = self.app.size.width
        if grid is None or cell is None:
            self.query_one("#head", StaticLines).show([line(" ", ("Grid", BOLD)), ()])
            self.table.show([], [], [line("  ", "No run has these values now.")])
            self.query_one("#note", StaticLines).show([self.note_line(0, 0)])
            return
        run_count = formatting.count(len(cell.runs), "run")
        title = line(
            " ", ("Grid", BOLD), "   ", (sweep_text.cell_point_text(grid, cell, full=True), BOLD)
        )
        title += line((f"   {run_count}, {plain(grid.metric, 40)}", DIM))
        self.query_one("#head", StaticLines).show([title, ()])
        filtered = self.filter_rows(cell.runs, lambda run: run.name.lower())
        specs = _specs()
        widths = fit_columns(specs, cell.runs, room)
        rows = [TableRow(run.key, partial(render_cells, specs, widths, run)) for run in filtered]
        empty = [line("  ", "No run has this text."), line("  ", ("esc clears", DIM))]
        self.table.show(table_columns(specs, widths), rows, empty)
        self.query_one("#note", StaticLines).show([self.note_line(len(filtered), len(cell.runs))])

    def open_row(self, key: str) -> None:
        self.context.open_run(key)


def _specs() -> list[Column[CellRun]]:
    def value(run: CellRun, _: int | None) -> Line:
        if run.value is None:
            return line((formatting.UNKNOWN, DIM))
        return line((formatting.metric(run.value.value), BAD if run.diverged else PLAIN))

    def epoch(run: CellRun, _: int | None) -> Line:
        return line((str(run.value.epoch), DIM)) if run.value is not None else ()

    def course(run: CellRun, _: int | None) -> Line:
        sign = course_symbol(run.course, run.last)
        return line((sign.text(), style_of(sign)))

    def state(run: CellRun, _: int | None) -> Line:
        sign = STATES[run.state]
        return line((sign.text(), style_of(sign)))

    return [
        Column("run", "RUN", lambda run, _: line(plain(run.name, 40)), minimum=6),
        Column("best", "BEST", value, "right", minimum=6),
        Column("epoch", "IN EPOCH", epoch, "right", drop=1),
        Column("done", "DONE", lambda run, _: line(f"{run.done}/{run.total}"), "right"),
        Column("course", "HOW IT GOES", course),
        Column("state", "STATE", state),
        Column(
            "why",
            "STOPPED",
            lambda run, _: line((plain(run.stopped or "", 200), DIM)),
            drop=2,
        ),
    ]
