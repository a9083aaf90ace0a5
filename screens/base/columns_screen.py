"""Modal screens that return a result, and the choice of a list's columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, TypeVar

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from metlmon.tables.layout import TableColumn
from metlmon.text.spans import BOLD, DIM, KEY, Line, line
from screens.base.list_state import ListState
from screens.terminal.private import FaultTolerant
from screens.widgets.document import StaticLines
from screens.widgets.table import Table, TableRow

T = TypeVar("T")


class ResultModal(FaultTolerant, ModalScreen[T]):
    """A modal screen that returns its result once.

    A second key in the same batch must not dismiss the screen below.
    """

    def return_result(self, result: T) -> None:
        """Dismiss with this result, unless already dismissed."""
        if self.is_current:
            self.dismiss(result)


class ColumnsScreen(ResultModal[ListState | None]):
    """Choice of the columns that are shown, and of one to sort by.

    ``columns``: name and title of each. ``sortable``: rows can be sorted by them. Returns the new
    state of the list.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "show_or_hide", show=False),
        Binding("enter,s", "sort", show=False),
        Binding("escape,q,asterisk", "done", show=False),
        # A modal screen hides the application's bindings.
        Binding("ctrl+c", "app.interrupt", priority=True, show=False),
    ]

    def __init__(
        self, columns: Sequence[tuple[str, str]], state: ListState, sortable: bool = True
    ) -> None:
        super().__init__()
        self._sortable = sortable
        self._columns = columns
        self._state = msgspec.convert(msgspec.to_builtins(state), ListState)

    def compose(self) -> ComposeResult:
        with Vertical(id="palette"):
            yield StaticLines(id="head")
            yield Table()

    def on_mount(self) -> None:
        self.call_after_refresh(self._fill)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        keys = [("space", "shows or hides"), ("enter", "sorts by it"), ("esc", "closes")]
        if not self._sortable:
            del keys[1]
        hint = line(*(part for cap, text in keys for part in ((cap, KEY), (f" {text}   ", DIM))))
        self.query_one("#head", StaticLines).show([line(("Columns", BOLD)), hint])
        rows = [TableRow(name, partial(self._cells, name, title)) for name, title in self._columns]
        self.query_one(Table).show([TableColumn("SHOWN", 6), TableColumn("COLUMN", 40)], rows)

    def _cells(self, name: str, title: str) -> tuple[Line, Line]:
        shown = name == self._columns[0][0] or name not in self._state.hidden
        order = "   sorts the rows" if name == self._state.column else ""
        return line("[x]" if shown else "[ ]"), line(title or name, (order, DIM))

    def action_show_or_hide(self) -> None:
        name, hidden = self.query_one(Table).cursor, self._state.hidden
        if name is not None:
            self._state.hidden = (
                [*hidden, name]
                if name not in hidden
                else [other for other in hidden if other != name]
            )
            self._fill()

    def action_sort(self) -> None:
        if not self._sortable:
            self.action_done()
            return
        name = self.query_one(Table).cursor
        self._state.column = None if name == self._state.column else name
        self._state.reversed = False
        self.return_result(self._state)

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        event.stop()
        self.action_sort()

    def action_done(self) -> None:
        self.return_result(self._state)
