"""The runs of one point of a sweep, where it has several."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.ensemble import wording
from metlmon.ensemble.wording import STATES, plain
from metlmon.live.feed import Update
from metlmon.stats import gridwords
from metlmon.stats.curves import course_sign
from metlmon.stats.grid import CellRun, Choice, grid_of
from metlmon.stats.swept import Point
from screens.actions import bindings_of
from screens.columns import Spec, cells, columns, fitted
from screens.ink import BAD, BOLD, DIM, PLAIN, Line, ink, line
from screens.monitor import ListScreen
from screens.widgets.panel import Panel
from screens.widgets.table import Row, Table


class CellScreen(ListScreen):
    """The best first."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("list", "below")]
    ORDERS = (
        ("value", None),
        ("name", lambda run: (run.name,)),
        ("progress", lambda run: (run.done / max(1, run.total),)),
    )

    def __init__(self, choice: Choice, at: tuple[Point, Point]) -> None:
        super().__init__()
        self.choice, self.at = choice, at

    def compose(self) -> ComposeResult:
        yield Panel(id="head")
        yield Table()
        yield from self.foot()

    def show(self, update: Update | None) -> None:
        self.monitor.study.want_written()
        of = self.monitor.study.of(grid_of(self.choice))
        cell = of.cells.get(self.at) if of is not None else None
        room, ascii = self.app.size.width, self.ascii
        if of is None or cell is None:
            self.query_one("#head", Panel).show([line(" ", ("Grid", BOLD)), ()])
            self.table.show([], [], [line("  ", "No run has these values now.")])
            self.query_one("#note", Panel).show([self.note(0, 0)])
            return
        several = wording.count(len(cell.runs), "run", ascii=ascii)
        title = line(
            " ", ("Grid", BOLD), "   ", (gridwords.place(of, cell, ascii, whole=True), BOLD)
        )
        title += line((f"   {several}, {plain(of.metric, 40, ascii)}", DIM))
        self.query_one("#head", Panel).show([title, ()])
        kept = self.kept(cell.runs, lambda run: run.name.lower())
        specs = _specs(ascii)
        widths = fitted(specs, cell.runs, room)
        rows = [Row(run.key, partial(cells, specs, widths, run)) for run in kept]
        empty = [line("  ", "No run has this text."), line("  ", ("esc clears", DIM))]
        self.table.show(columns(specs, widths), rows, empty)
        self.query_one("#note", Panel).show([self.note(len(kept), len(cell.runs))])

    def open(self, key: str) -> None:
        self.monitor.open_run(key)


def _specs(ascii: bool) -> list[Spec[CellRun]]:
    def value(run: CellRun, _: int | None) -> Line:
        if run.value is None:
            return line((wording.unknown(ascii), DIM))
        return line((wording.metric(run.value.value, ascii), BAD if run.lost else PLAIN))

    def epoch(run: CellRun, _: int | None) -> Line:
        return line((str(run.value.epoch), DIM)) if run.value is not None else ()

    def course(run: CellRun, _: int | None) -> Line:
        sign = course_sign(run.course, run.last)
        return line((sign.text(ascii), ink(sign)))

    def state(run: CellRun, _: int | None) -> Line:
        sign = STATES[run.state]
        return line((sign.text(ascii), ink(sign)))

    return [
        Spec("run", "RUN", lambda run, _: line(plain(run.name, 40, ascii)), least=6),
        Spec("best", "BEST", value, "right", least=6),
        Spec("epoch", "IN EPOCH", epoch, "right", drop=1),
        Spec("done", "DONE", lambda run, _: line(f"{run.done}/{run.total}"), "right"),
        Spec("course", "HOW IT GOES", course),
        Spec("state", "STATE", state),
        Spec(
            "why",
            "STOPPED",
            lambda run, _: line((plain(run.stopped or "", 200, ascii), DIM)),
            drop=2,
        ),
    ]
