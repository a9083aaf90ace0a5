"""The runs of one point of a sweep, if it has several."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.live.feed import Snapshot
from metlmon.stats import sweep_text
from metlmon.stats.curves import course_sign
from metlmon.stats.sweep import Point
from metlmon.stats.sweep_grid import CellRun, GridChoice, grid_of
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain
from screens.actions import bindings_of
from screens.base.column_layout import ColumnSpec, cells, columns, fit_columns
from screens.base.screens import ListScreen
from screens.widgets.lines import StaticLines
from screens.widgets.spans import BAD, BOLD, DIM, PLAIN, Line, line, style_of
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
        self.choice, self.at = choice, point

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield from self.foot()

    def show(self, update: Snapshot | None) -> None:
        self.monitor.study.want_written()
        grid = self.monitor.study.of(grid_of(self.choice))
        cell = grid.cells.get(self.at) if grid is not None else None
        room = self.app.size.width
        if grid is None or cell is None:
            self.query_one("#head", StaticLines).show([line(" ", ("Grid", BOLD)), ()])
            self.table.show([], [], [line("  ", "No run has these values now.")])
            self.query_one("#note", StaticLines).show([self.note(0, 0)])
            return
        run_count = formatting.count(len(cell.runs), "run")
        title = line(" ", ("Grid", BOLD), "   ", (sweep_text.place(grid, cell, whole=True), BOLD))
        title += line((f"   {run_count}, {plain(grid.metric, 40)}", DIM))
        self.query_one("#head", StaticLines).show([title, ()])
        filtered = self.kept(cell.runs, lambda run: run.name.lower())
        specs = _specs()
        widths = fit_columns(specs, cell.runs, room)
        rows = [TableRow(run.key, partial(cells, specs, widths, run)) for run in filtered]
        empty = [line("  ", "No run has this text."), line("  ", ("esc clears", DIM))]
        self.table.show(columns(specs, widths), rows, empty)
        self.query_one("#note", StaticLines).show([self.note(len(filtered), len(cell.runs))])

    def open(self, key: str) -> None:
        self.monitor.open_run(key)


def _specs() -> list[ColumnSpec[CellRun]]:
    def value(run: CellRun, _: int | None) -> Line:
        if run.value is None:
            return line((formatting.UNKNOWN, DIM))
        return line((formatting.metric(run.value.value), BAD if run.lost else PLAIN))

    def epoch(run: CellRun, _: int | None) -> Line:
        return line((str(run.value.epoch), DIM)) if run.value is not None else ()

    def course(run: CellRun, _: int | None) -> Line:
        sign = course_sign(run.course, run.last)
        return line((sign.text(), style_of(sign)))

    def state(run: CellRun, _: int | None) -> Line:
        sign = STATES[run.state]
        return line((sign.text(), style_of(sign)))

    return [
        ColumnSpec("run", "RUN", lambda run, _: line(plain(run.name, 40)), least=6),
        ColumnSpec("best", "BEST", value, "right", least=6),
        ColumnSpec("epoch", "IN EPOCH", epoch, "right", drop=1),
        ColumnSpec("done", "DONE", lambda run, _: line(f"{run.done}/{run.total}"), "right"),
        ColumnSpec("course", "HOW IT GOES", course),
        ColumnSpec("state", "STATE", state),
        ColumnSpec(
            "why",
            "STOPPED",
            lambda run, _: line((plain(run.stopped or "", 200), DIM)),
            drop=2,
        ),
    ]
