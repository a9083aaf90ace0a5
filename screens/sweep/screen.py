"""Grid: which point of a sweep is best, and how far it is."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.live.feed import Snapshot
from metlmon.stats import sweep_text
from metlmon.stats.sweep import choices
from metlmon.stats.sweep_grid import Grid, GridChoice, grid_of, next_fixed, next_pair, swapped
from screens.actions import bindings_of
from screens.base.screens import SnapshotScreen, rule
from screens.sweep import cells as sweep_cells
from screens.sweep.runs_screen import PointRunsScreen
from screens.widgets.footer import KeyFooter
from screens.widgets.lines import StaticLines
from screens.widgets.matrix import Matrix
from screens.widgets.spans import BOLD, DIM, Line, joined, line, wrapped

AROUND: Final = 4
"""Lines that are neither the matrix nor what is told of its cell: two above, the rule, the keys."""


class SweepScreen(SnapshotScreen):
    """The points of a sweep as rows and columns."""

    SCOPES: ClassVar[tuple[str, ...]] = ("grid", "below")
    HELPS: ClassVar[tuple[str, ...]] = ("grid", "sideways", "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("grid", "below")]
    AUTO_FOCUS: ClassVar[str | None] = "Matrix"

    def __init__(self) -> None:
        super().__init__()
        self.choice = GridChoice()
        self._placed = False

    def keys(self) -> KeyFooter:
        """Without the way to itself."""
        return KeyFooter((*self.SCOPES, "everywhere"), without=("grid",))

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Matrix()
        yield StaticLines(id="note")
        yield self.keys()

    @property
    def matrix(self) -> Matrix:
        return self.query_one(Matrix)

    # --- what is shown ----------------------------------------------------------------------

    def show(self, update: Snapshot | None) -> None:
        self.monitor.study.want_written()
        of = self.monitor.study.of(grid_of(self.choice))
        self.query_one(KeyFooter).leave_out(_in_vain(of))
        if of is None or not of.swept:
            self._nothing(of, update)
            return
        room, ascii = self.app.size.width, self.ascii
        head = [line(" ") + each for each in sweep_cells.head(of, room - 2, ascii)]
        self.query_one("#head", StaticLines).show([*head, ()])
        lines = self.app.size.height - AROUND - sweep_cells.DETAILS
        self.matrix.show(sweep_cells.layout(of, room, lines, ascii))
        if not self._placed and of.best is not None:
            # One comes to see the best.
            self._placed = True
            self.matrix.select(of.best.row, of.best.column)
        told = sweep_cells.details(of, self.matrix.cursor, room, ascii)
        self.query_one("#note", StaticLines).show([self._rule(of), *told])

    def _rule(self, of: Grid) -> Line:
        parts = self.remarks()
        if of.others:
            parts.append(line((f"{of.others} runs have another value", DIM)))
        if not of.written:
            dots = "..." if self.ascii else "…"
            parts.append(line((f"reading what the trainings wrote{dots}", DIM)))
        above, below, left, right = self.matrix.outside
        signs = ("^", "v", "<", ">") if self.ascii else ("↑", "↓", "←", "→")
        more = [
            line((f"{sign} {n}", DIM))
            for sign, n in zip(signs, (above, below, left, right), strict=True)
            if n
        ]
        if more:
            parts.append(joined(more, line("  ")) + line((" more", DIM)))
        return rule(parts, self.app.size.width, self.ascii)

    def _nothing(self, of: Grid | None, update: Snapshot | None) -> None:
        """Why there is no grid, and what would make one."""
        room = self.app.size.width
        reading = of is None or update is None or update.progress.fraction < 1
        first = "reading the DAG" if reading else "nothing is swept here"
        title = line(" ", ("Grid", BOLD), "   ", (first, DIM))
        self.query_one("#head", StaticLines).show([title])
        told: list[Line] = [line("  ", ("A sweep appears when its DAG file is read.", DIM))]
        if not reading:
            told = []
            for place, text in enumerate(sweep_text.no_sweep()):
                told += [()] * (place > 0) + wrapped(text, room - 2, BOLD if not place else DIM, 2)
        self.matrix.show(None, told)
        self.query_one("#note", StaticLines).show([rule(self.remarks(), room, self.ascii)])

    def on_matrix_moved(self, event: Matrix.Moved) -> None:
        event.stop()
        self._said = ""
        self._again()

    # --- what can be done ---------------------------------------------------------------------

    @property
    def _shown(self) -> Grid | None:
        of = self.monitor.study.of(grid_of(self.choice))
        return of if of is not None and of.swept else None

    def on_matrix_opened(self, event: Matrix.Opened) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        of, at = self._shown, self.matrix.cursor
        cell = of.cells.get(at) if of is not None and at is not None else None
        if of is None or cell is None:
            return
        if len(cell.runs) == 1:
            self.monitor.open_run(cell.runs[0].key)
        else:
            self.monitor.push_screen(PointRunsScreen(self.choice, (cell.row, cell.column)))

    def action_swap(self) -> None:
        of, at = self._shown, self.matrix.cursor
        if of is None:
            return
        if of.columns is None:
            self.say("one axis only: there is nothing to swap")
            return
        self.choice = swapped(of, self.choice)
        self._again()
        if at is not None:
            self.matrix.select(at[1], at[0])

    def action_pair(self) -> None:
        of = self._shown
        if of is None:
            return
        if len(choices(of.sweep)) < 2:
            self.say("there are no other variables to choose from")
            return
        self.choice, self._placed = next_pair(of, self.choice), False
        self._again()

    def action_fix(self) -> None:
        of = self._shown
        if of is None:
            return
        if not of.folded and not of.fixed:
            self.say("no variable is left over that could be held fixed")
            return
        self.choice = next_fixed(of, self.choice)
        self._again()

    def _step_metric(self, by: int) -> None:
        of = self._shown
        if of is None or not of.metrics:
            return
        at = of.metrics.index(of.metric) if of.metric in of.metrics else 0
        metric = of.metrics[(at + by) % len(of.metrics)]
        self.choice = GridChoice(self.choice.rows, self.choice.columns, self.choice.fixed, metric)
        self._again()

    def action_next_metric(self) -> None:
        self._step_metric(1)

    def action_previous_metric(self) -> None:
        self._step_metric(-1)


def _in_vain(of: Grid | None) -> set[str]:
    """Keys that would change nothing here, and the way to this screen."""
    names = {"grid"}
    if of is None or not of.swept:
        return names | {"open", "swap", "pair", "fix", "next_metric"}
    names |= {"swap"} if of.columns is None else set()
    names |= {"pair"} if len(choices(of.sweep)) < 2 else set()
    names |= {"fix"} if not of.folded and not of.fixed else set()
    return names | ({"next_metric"} if len(of.metrics) < 2 else set())
