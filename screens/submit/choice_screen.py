"""Modal list for a form field: single or multiple choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from metlmon.tables.layout import TableColumn
from metlmon.text.formatting import plain
from metlmon.text.spans import BOLD, DIM, GOOD, KEY, Line, line
from screens.base.screens import ResultModal
from screens.widgets.document import StaticLines
from screens.widgets.table import Table, TableRow


class ChoiceScreen(ResultModal[tuple[str, ...] | None]):
    """Modal list; returns the chosen values, or None to leave the field as it is.

    ``choices`` are the values with their descriptions. With ``several`` the space bar marks, and
    enter accepts the marked values (the row under the cursor if nothing was marked or unmarked).
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", show=False),
        # A modal screen hides the application's bindings.
        Binding("ctrl+c", "app.interrupt", priority=True, show=False),
        Binding("enter", "take", show=False),
        Binding("space", "mark", show=False),
    ]

    def __init__(
        self, title: str, choices: Mapping[str, str], current: Sequence[str], several: bool = False
    ) -> None:
        super().__init__()
        self._title, self._choices, self._several = title, choices, several
        self._current = current
        self._marked = [value for value in current if several and value in choices]
        self._others = [value for value in current if several and value not in choices]
        self._untouched = not self._marked

    def compose(self) -> ComposeResult:
        with Vertical(id="choice"):
            yield StaticLines(id="title")
            yield Table()
            yield StaticLines(id="keys-of-choice")

    def on_mount(self) -> None:
        self.query_one(Table).focus()
        self.call_after_refresh(self._fill)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        table = self.query_one(Table)
        self.query_one("#title", StaticLines).show([line((self._title, BOLD))])
        width = max((len(plain(value, 30)) for value in self._choices), default=4)
        width += 2 * self._several
        columns = [
            TableColumn("", width),
            TableColumn("", max(10, table.size.width - width - 4)),
        ]
        rows = [TableRow(value, partial(self._cells, value)) for value in self._choices]
        first = not table.rows
        table.show(columns, rows)
        if first and self._current:
            table.select(self._current[0])
        keys = line(("space", KEY), (" mark   ", DIM)) if self._several else ()
        keys += line(("enter", KEY), (" take   ", DIM), ("esc", KEY), (" cancel", DIM))
        self.query_one("#keys-of-choice", StaticLines).show([keys])

    def _cells(self, value: str) -> tuple[Line, Line]:
        tick = ("✓ " if value in self._marked else "  ") if self._several else ""
        description = line((plain(self._choices[value], 200), DIM))
        return line((tick, GOOD), plain(value, 30)), description

    def action_mark(self) -> None:
        key = self.query_one(Table).cursor
        if not self._several or key is None:
            return
        self._untouched = False
        if key in self._marked:
            self._marked.remove(key)
        else:
            self._marked.append(key)
        self._fill()

    def action_take(self) -> None:
        key = self.query_one(Table).cursor
        if key is not None and (not self._several or self._untouched):
            self.return_result((key, *self._others))
        else:
            self.return_result((*self._marked, *self._others) if self._several else None)

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        event.stop()
        self.action_take()

    def action_give_up(self) -> None:
        self.return_result(None)
