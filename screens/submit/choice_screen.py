"""Modal list for a form field: single or multiple choice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from metlmon.tables.layout import TableColumn
from metlmon.text.formatting import plain
from metlmon.text.spans import BOLD, DIM, GOOD, KEY, Line, line
from screens.base.result_modal import ResultModal
from screens.widgets.lines import StaticLines
from screens.widgets.table import Table, TableRow


class ChoiceOption(Struct, frozen=True):
    """An option: the value for the field, and its description."""

    value: str
    description: str


class ChoiceScreen(ResultModal[tuple[str, ...] | None]):
    """Modal list; returns the chosen values, or None to leave the field as it is.

    With ``several`` the space bar marks, and enter accepts the marked values (the row under the
    cursor if nothing was marked or unmarked).
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", show=False),
        # A modal screen hides the application's bindings.
        Binding("ctrl+c", "app.interrupt", priority=True, show=False),
        Binding("enter", "take", show=False),
        Binding("space", "mark", show=False),
    ]

    def __init__(
        self,
        title: str,
        choices: Sequence[ChoiceOption],
        current: Sequence[str],
        several: bool = False,
    ) -> None:
        super().__init__()
        self._title, self._choices, self._several = title, choices, several
        values = {choice.value for choice in choices}
        self._marked = [value for value in current if value in values] if several else []
        self._other_values = [value for value in current if value not in values] if several else []
        self._current = current
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
        values = [plain(choice.value, 30) for choice in self._choices]
        value_width = max((len(value) for value in values), default=4) + 2 * self._several
        columns = [
            TableColumn("", value_width),
            TableColumn("", max(10, table.size.width - value_width - 4)),
        ]
        rows = [TableRow(choice.value, partial(self._cells, choice)) for choice in self._choices]
        first = not table.rows
        table.show(columns, rows)
        if first and self._current:
            table.select(self._current[0])
        keys = line(("space", KEY), (" mark   ", DIM)) if self._several else ()
        keys += line(("enter", KEY), (" take   ", DIM), ("esc", KEY), (" cancel", DIM))
        self.query_one("#keys-of-choice", StaticLines).show([keys])

    def _cells(self, choice: ChoiceOption) -> tuple[Line, Line]:
        value = line(plain(choice.value, 30))
        if self._several:
            tick = "✓ "
            value = line((tick if choice.value in self._marked else "  ", GOOD)) + value
        return value, line((plain(choice.description, 200), DIM))

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
        if not self._several:
            self.return_result(None if key is None else (key,))
        elif self._untouched and key is not None:
            self.return_result((key, *self._other_values))
        else:
            self.return_result((*self._marked, *self._other_values))

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        event.stop()
        self.action_take()

    def action_give_up(self) -> None:
        self.return_result(None)
