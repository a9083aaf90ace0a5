"""Menu of pool actions on the selection, with reasons for refusals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Protocol

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.live.feed import Snapshot
from metlmon.pool.types import DAG_ACTS, ActionPreview, PoolAction
from metlmon.tables.layout import Column, fit_columns, render_cells, table_columns
from metlmon.text.formatting import plain
from metlmon.text.spans import ALARM, BOLD, DIM, KEY, NOTE, Line, limit_lines, line, wrap
from screens.actions import bindings_of
from screens.base.screens import SnapshotScreen, rule
from screens.pool_actions.results import ResultsScreen
from screens.pool_actions.running_action import (
    IRREVERSIBLE,
    PoolActionKeys,
    Selection,
    action_of,
    capitalized,
    is_possible,
    name_of,
    target_text,
    undo_text,
    without_ruled_out,
)
from screens.widgets.footer import HIDDEN_IN_MODALS, KeyFooter
from screens.widgets.lines import StaticLines
from screens.widgets.table import Table, TableRow

DETAIL_LINES = 4
"""Always as many under the table, so that it keeps its height while the cursor moves."""


class ActionOrigin(Protocol):
    """The screen whose selection the actions of a menu are for."""

    def selection(self) -> Selection:
        """The selected rows."""

    def previews(self) -> list[ActionPreview]:
        """Previews of all pool actions on the selection."""

    def open_confirmation(self, preview: ActionPreview) -> None:
        """Open the confirmation of an action."""


class MenuScreen(PoolActionKeys, SnapshotScreen):
    """Pool actions on the selection of the screen below; rebuilt with every snapshot."""

    SCOPES: ClassVar[tuple[str, ...]] = ("menu", "below")
    SHOWS_ENSEMBLE: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("menu", "acting", "below")]

    def __init__(self, origin: ActionOrigin, initial: ActionPreview | None = None) -> None:
        super().__init__()
        self._origin = origin
        self._initial_key = None if initial is None else _key(initial)
        self._previews: Sequence[ActionPreview] = ()

    def key_footer(self) -> KeyFooter:
        return KeyFooter((*self.SCOPES, "everywhere"), HIDDEN_IN_MODALS)

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield StaticLines(id="note")
        yield self.key_footer()

    def show(self, update: Snapshot | None) -> None:
        room, table = self.app.size.width, self.query_one(Table)
        selection = self._origin.selection().description
        self._previews = without_ruled_out(self._origin.previews())
        head = line(" ", ("Act on ", DIM), (plain(selection, 60), BOLD))
        self.query_one("#head", StaticLines).show([head, ()])
        several = len({offer.subject for offer in self._previews if offer.act in DAG_ACTS}) > 1
        specs = _specs(several)
        widths = fit_columns(specs, self._previews, room)
        rows = [
            TableRow(_key(preview), partial(render_cells, specs, widths, preview))
            for preview in self._previews
        ]
        # Keep the cursor detail right below the table on tall screens too.
        table.styles.max_height = len(rows) + 2
        table.show(table_columns(specs, widths), rows)
        if self._initial_key is not None:
            table.select(self._initial_key)
            self._initial_key = None
        self.query_one("#note", StaticLines).show(self._note(room))

    def _note(self, room: int) -> list[Line]:
        """Return the rule and the detail of the action under the cursor."""
        parts = self.messages()
        hidden = self.query_one(Table).rows_below
        if hidden:
            parts.append(line((f"↓ {hidden} more", DIM)))
        details = self._offer_lines(room - 2)[:DETAIL_LINES]
        return [rule(parts, room), *details, *[()] * (DETAIL_LINES - len(details))]

    def _offer_lines(self, room: int) -> list[Line]:
        offer = self._under_cursor()
        if offer is None:
            return []
        if not is_possible(offer):
            lines = wrap(f"not now: {_why(offer, 1000)}", room, NOTE, indent=1)
            return limit_lines(lines, DETAIL_LINES, room, 1)
        effect = wrap(capitalized(offer.effect), room, indent=1)
        undo = wrap(undo_text(offer), room, DIM, indent=1) if offer.undo else []
        return [*limit_lines(effect, 2, room, 1), *limit_lines(undo, 2, room, 1)]

    def _under_cursor(self) -> ActionPreview | None:
        key = self.query_one(Table).cursor
        return next((offer for offer in self._previews if _key(offer) == key), None)

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        event.stop()
        self._refresh_if_mounted()

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        event.stop()
        self.action_choose()

    # --- choosing -------------------------------------------------------------------------

    def action_choose(self) -> None:
        offer = self._under_cursor()
        if offer is not None and is_possible(offer):
            self._origin.open_confirmation(offer)

    def request_action(self, *acts: PoolAction) -> None:
        """Open the confirmation; with several DAGs, move to the next matching row."""
        matching = [offer for offer in self._previews if offer.act in acts]
        allowed = [offer for offer in matching if is_possible(offer)]
        if len(matching) == 1 and allowed:
            self._origin.open_confirmation(allowed[0])
        elif matching:
            keys, table = [_key(offer) for offer in allowed or matching], self.query_one(Table)
            index = keys.index(table.cursor) if table.cursor in keys else -1
            table.select(keys[(index + 1) % len(keys)])

    def action_acts(self) -> None:
        self.context.go_back()

    def action_answers(self) -> None:
        if self.context.running_action is not None:
            self.context.push_screen(ResultsScreen(self.context.running_action))


def _key(offer: ActionPreview) -> str:
    # Halt and resume of one DAG share a row; its state decides which applies.
    return f"{action_of(offer.act).name}\n{offer.subject}"


def _why(offer: ActionPreview, limit: int) -> str:
    return plain(offer.refused or "nothing is selected", limit)


def _specs(several_dags: bool) -> list[Column[ActionPreview]]:
    def key(offer: ActionPreview, _: int | None) -> Line:
        return line((action_of(offer.act).key_cap, KEY if is_possible(offer) else DIM))

    def name(offer: ActionPreview, _: int | None) -> Line:
        style = (ALARM if offer.act in IRREVERSIBLE else BOLD) if is_possible(offer) else DIM
        return line((name_of(offer.act), style))

    def what(offer: ActionPreview, _: int | None) -> Line:
        if is_possible(offer):
            return line(target_text(offer))
        one_dag = several_dags and offer.act in DAG_ACTS
        prefix = f"{plain(offer.subject, 40)}: " if one_dag else ""
        cross = "✗"
        return line((f"{cross} {prefix}{_why(offer, 200)}", DIM))

    return [
        Column("key", "KEY", key),
        Column("name", "ACT", name),
        Column("what", "TOUCHES", what, minimum=20, comfortable=20),
    ]
