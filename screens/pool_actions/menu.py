"""Menu of pool actions on the selection, with reasons for refusals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final, Protocol

from textual.app import ComposeResult

from metlmon.live.feed import Snapshot
from metlmon.pool.types import DAG_ACTS, ActionPreview, PoolAction
from metlmon.tables.layout import Column, fit_columns, render_cells, table_columns
from metlmon.text.formatting import plain
from metlmon.text.spans import ALARM, BOLD, DIM, KEY, NOTE, Line, limit_lines, line, wrap
from screens.base.screens import SnapshotScreen, hidden_below, padded, rule
from screens.pool_actions.results import ResultsScreen
from screens.pool_actions.running_action import (
    IRREVERSIBLE,
    PoolActionKeys,
    Selection,
    action_of,
    capitalized,
    is_possible,
    name_of,
    refusal_text,
    target_text,
    undo_text,
    without_ruled_out,
)
from screens.widgets.document import StaticLines
from screens.widgets.footer import HIDDEN_IN_MODALS
from screens.widgets.table import Table, TableRow

DETAIL_LINES: Final = 4
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

    SCOPES: ClassVar[tuple[str, ...]] = ("menu", "acts", "below")
    OWN_ACTIONS = HIDDEN_IN_MODALS
    SHOWS_ENSEMBLE: ClassVar[bool] = False

    def __init__(self, origin: ActionOrigin, initial: ActionPreview | None = None) -> None:
        super().__init__()
        self._origin = origin
        self._initial_key = None if initial is None else _key(initial)
        self._previews: Sequence[ActionPreview] = ()

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield StaticLines(id="note")
        yield self.key_footer()

    def show(self, update: Snapshot | None) -> None:
        room, table = self.app.size.width, self.query_one(Table)
        selection = self._origin.selection().description
        self._previews = without_ruled_out(self._origin.previews())
        self.show_head([line(" ", ("Act on ", DIM), (plain(selection, 60), BOLD)), ()])
        columns = _columns(self._previews)
        widths = fit_columns(columns, self._previews, room)
        rows = [
            TableRow(_key(preview), partial(render_cells, columns, widths, preview))
            for preview in self._previews
        ]
        # Keep the cursor detail right below the table on tall screens too.
        table.styles.max_height = len(rows) + 2
        table.show(table_columns(columns, widths), rows)
        if self._initial_key is not None:
            table.select(self._initial_key)
            self._initial_key = None
        parts = [*self.messages(), *hidden_below(table.rows_below)]
        self.show_note([rule(parts, room), *padded(self._details(room - 2), DETAIL_LINES)])

    def _details(self, room: int) -> list[Line]:
        """Return what the action under the cursor does, or why it is not possible."""
        preview = self._under_cursor()
        if preview is None:
            return []
        if not is_possible(preview):
            lines = wrap(f"not now: {refusal_text(preview, 1000)}", room, NOTE, indent=1)
            return limit_lines(lines, DETAIL_LINES, room, 1)
        effect = wrap(capitalized(preview.effect), room, indent=1)
        undo = wrap(undo_text(preview), room, DIM, indent=1) if preview.undo else []
        return [*limit_lines(effect, 2, room, 1), *limit_lines(undo, 2, room, 1)]

    def _under_cursor(self) -> ActionPreview | None:
        key = self.query_one(Table).cursor
        return next((preview for preview in self._previews if _key(preview) == key), None)

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        event.stop()
        self._refresh_if_mounted()

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        event.stop()
        self.action_choose()

    # --- choosing -------------------------------------------------------------------------

    def action_choose(self) -> None:
        preview = self._under_cursor()
        if preview is not None and is_possible(preview):
            self._origin.open_confirmation(preview)

    def request_action(self, *acts: PoolAction) -> None:
        """Open the confirmation; with several DAGs, move to the next matching row."""
        matching = [preview for preview in self._previews if preview.act in acts]
        possible = [preview for preview in matching if is_possible(preview)]
        if len(matching) == 1 and possible:
            self._origin.open_confirmation(possible[0])
        elif matching:
            keys, table = [_key(preview) for preview in possible or matching], self.query_one(Table)
            index = keys.index(table.cursor) if table.cursor in keys else -1
            table.select(keys[(index + 1) % len(keys)])

    def action_acts(self) -> None:
        self.context.go_back()

    def action_answers(self) -> None:
        if self.context.running_action is not None:
            self.context.push_screen(ResultsScreen(self.context.running_action))


def _key(preview: ActionPreview) -> str:
    # Halt and resume of one DAG share a row; its state decides which applies.
    return f"{action_of(preview.act).name}\n{preview.subject}"


def _columns(previews: Sequence[ActionPreview]) -> list[Column[ActionPreview]]:
    """Columns of the menu. With several DAGs, a refusal names its DAG."""
    several_dags = len({each.subject for each in previews if each.act in DAG_ACTS}) > 1

    def key(preview: ActionPreview, _: int | None) -> Line:
        return line((action_of(preview.act).cap, KEY if is_possible(preview) else DIM))

    def name(preview: ActionPreview, _: int | None) -> Line:
        style = ALARM if preview.act in IRREVERSIBLE else BOLD
        return line((name_of(preview.act), style if is_possible(preview) else DIM))

    def targets(preview: ActionPreview, _: int | None) -> Line:
        if is_possible(preview):
            return line(target_text(preview))
        one_dag = several_dags and preview.act in DAG_ACTS
        prefix = f"{plain(preview.subject, 40)}: " if one_dag else ""
        return line((f"✗ {prefix}{refusal_text(preview, 200)}", DIM))

    return [
        Column("key", "KEY", key),
        Column("name", "ACT", name),
        Column("what", "TOUCHES", targets, minimum=20, comfortable=20),
    ]
