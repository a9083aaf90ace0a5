"""The Sites screen: usage by site, GPU model, both, and cause of loss."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.live.feed import Snapshot
from metlmon.stats.usage import Usage, site_usage
from metlmon.tables import usage as usage_table
from metlmon.tables.layout import fit_columns, render_cells, table_columns
from metlmon.tables.usage import VIEWS, Row
from metlmon.tables.usage_details import details
from metlmon.text.spans import BOLD, DIM, Line, line
from screens.actions import bindings_of
from screens.base.screens import ListScreen
from screens.sites import header as sites_header
from screens.sites.executions_screen import ExecutionsScreen
from screens.widgets.footer import KeyFooter
from screens.widgets.lines import StaticLines
from screens.widgets.table import Table
from screens.widgets.table import TableRow as TableRow

ROOMY_LINES: Final = 30
"""Minimum height for blank lines between the parts."""

TALL_LINES: Final = 40
"""Minimum height for one line per cause."""

DETAILS, DETAILS_TALL = 6, 12
"""Lines below the table; fixed, so that the table keeps its height."""

FIRST_LINES: Final = 12
"""Lines of the header and the first rows, which take precedence over the details."""


class SitesScreen(ListScreen):
    """Usage in four views, switched by a key."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "sites", "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("list", "sites", "below")]
    ORDERS = (
        ("GPU-hours", None),
        ("GPU-hours lost", lambda row: (-usage_table.lost_of(row), usage_table.name_of(row))),
        ("epochs or times", lambda row: (-usage_table.times_of(row), usage_table.name_of(row))),
        ("epoch time", lambda row: (-usage_table.median_of(row), usage_table.name_of(row))),
        ("name", lambda row: (usage_table.name_of(row),)),
    )

    def __init__(self) -> None:
        super().__init__()
        self.view = 0
        self._cursors: dict[int, str] = {}

    def key_footer(self) -> KeyFooter:
        """Return the footer, without the key of this screen."""
        return KeyFooter((*self.SCOPES, "everywhere"), hidden=("sites",))

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield from self.compose_foot()

    def show(self, update: Snapshot | None) -> None:
        usage = self.context.stats.value(site_usage)
        room = self.app.size.width
        self.query_one("#head", StaticLines).show(self._head(usage))
        if usage is None:
            self.table.show([], [], [line("  ", (self._loading_text(update), DIM))])
            self.query_one("#note", StaticLines).show(
                [self.note_line(0, 0, noun="site"), *self._padded_details([])]
            )
            return
        view = VIEWS[self.view]
        rows = view.rows(usage)
        filtered = self.filter_rows(rows, usage_table.filter_text)
        specs = usage_table.specs(self.view, rows, usage.measure)
        widths = fit_columns(specs, rows, room)
        table_rows = [
            TableRow(usage_table.key_of(row), partial(render_cells, specs, widths, row))
            for row in filtered
        ]
        self.table.show(table_columns(specs, widths), table_rows, self._empty(rows))
        stored_cursor = self._cursors.pop(self.view, None)
        if stored_cursor is not None:
            self.table.select(stored_cursor)
        note = self.note_line(len(filtered), len(rows), noun=view.noun)
        selected = next((r for r in filtered if usage_table.key_of(r) == self.table.cursor), None)
        shown = [] if selected is None else details(selected, usage, room - 1, self._lines)
        self.query_one("#note", StaticLines).show([note, *self._padded_details(shown)])

    @property
    def _roomy(self) -> bool:
        return self.app.size.height >= ROOMY_LINES

    @property
    def _lines(self) -> int:
        height = self.app.size.height
        return DETAILS_TALL if height >= TALL_LINES else max(1, min(DETAILS, height - FIRST_LINES))

    def _padded_details(self, lines: Sequence[Line]) -> list[Line]:
        return [*lines, *[()] * (self._lines - len(lines))]

    def _head(self, usage: Usage | None) -> list[Line]:
        room = self.app.size.width - 2
        title = line(" ", ("Sites", BOLD), "   ")
        if usage is None:
            return [title, ()]
        incomplete, measure = usage.nodes_unlogged > 0, usage.measure
        legend = usage_table.legend(
            usage.total.totals, incomplete and room < 100, incomplete, measure
        )
        blank = [()] if self._roomy else []
        hidden = sites_header.hidden_note(usage, room)
        return [
            title + sites_header.answer(usage, room - 8),
            line(" ") + legend,
            *([line(" ") + hidden] if hidden else []),
            *blank,
            line(" ") + usage_table.tabs(self.view, [len(v.rows(usage)) for v in VIEWS]),
            *blank,
        ]

    def _loading_text(self, update: Snapshot | None) -> str:
        if update is None or update.progress.fraction < 1:
            return "Sites appear as the logs are read."
        return "Adding up all executions…"

    def _empty(self, rows: Sequence[Row]) -> list[Line]:
        if rows:
            noun = VIEWS[self.view].noun
            return [line("  ", f"No {noun} has this text."), line("  ", ("esc clears", DIM))]
        if self.view == usage_table.OF_CAUSES:
            return [
                line("  ", "No execution was lost, no job was held."),
                line("  ", ("What costs hours is grouped here by its cause.", DIM)),
            ]
        return [
            line("  ", "Nothing has run yet."),
            line("  ", ("A site appears with the first execution that the event log tells.", DIM)),
        ]

    def _go_to(self, view: int) -> None:
        if self.table.cursor is not None:
            self._cursors[self.view] = self.table.cursor
        self.view = view % len(VIEWS)
        self._refresh_if_mounted()

    def action_next_view(self) -> None:
        self._go_to(self.view + 1)

    def action_previous_view(self) -> None:
        self._go_to(self.view - 1)

    def open_row(self, key: str) -> None:
        usage = self.context.stats.value(site_usage)
        rows = () if usage is None else VIEWS[self.view].rows(usage)
        row = next((row for row in rows if usage_table.key_of(row) == key), None)
        if row is not None:
            choice = usage_table.filter_of(row, self.view)
            self.context.push_screen(ExecutionsScreen(choice))
