"""The command palette: finds an action of the screen below by its name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from metlmon.tables.layout import TableColumn
from metlmon.text.formatting import plain
from metlmon.text.spans import DIM, KEY, Line, line
from screens.actions import Action, actions_of, own_key_cap
from screens.base.result_modal import ResultModal
from screens.base.screens import Prompt
from screens.widgets.table import Table, TableRow


class PaletteScreen(ResultModal[str | None]):
    """Modal search of actions; returns the chosen action's name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+p", "give_up", priority=True, show=False),
        # A modal screen hides the application's bindings.
        Binding("ctrl+c", "app.interrupt", priority=True, show=False),
        # No priority: the input must see keys of one batch in order.
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("enter", "choose", show=False),
    ]

    def __init__(
        self, scopes: tuple[str, ...], refusals: Mapping[str, str], read_only: bool
    ) -> None:
        super().__init__()
        actions = actions_of((*scopes, "everywhere"), read_only)
        self._actions = [action for action in actions if action.name != "palette"]
        self._refusals = refusals

    def compose(self) -> ComposeResult:
        with Vertical(id="palette"):
            yield Prompt(id="wanted", hint="what do you want to do?")
            yield Table()

    def on_mount(self) -> None:
        self.query_one(Prompt).focus()
        self.call_after_refresh(self._fill)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill)

    @on(Input.Changed)
    def _fill(self) -> None:
        table = self.query_one(Table)
        words = self.query_one(Prompt).value.lower().split()
        matches = [a for a in self._actions if all(word in _text(a) for word in words)]
        room = table.size.width - 18
        columns = [TableColumn("KEY", 8), TableColumn("ACTION", max(10, room))]
        rows = [
            TableRow(f"{a.scope}.{a.name}", partial(_cells, a, self._refusals.get(a.name)))
            for a in matches
        ]
        table.show(columns, rows, [line("  ", ("no action has these words", DIM))])

    def action_move(self, delta: int) -> None:
        table = self.query_one(Table)
        if delta < 0:
            table.action_up()
        else:
            table.action_down()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_choose()

    def action_choose(self) -> None:
        key = self.query_one(Table).cursor
        self.return_result(None if key is None else key.partition(".")[2])

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        event.stop()
        self.return_result(event.key.partition(".")[2])

    def action_give_up(self) -> None:
        self.return_result(None)


def _text(action: Action) -> str:
    return f"{action.label} {action.help} {action.name}".lower()


def _cells(action: Action, refused: str | None) -> tuple[Line, Line]:
    if refused is None:
        return line((own_key_cap(action), KEY)), line(action.help)
    text = f"✗ {action.label}: {plain(refused, 200)}"
    return line((own_key_cap(action), DIM)), line((text, DIM))
