"""The Sites screen: usage by site, GPU model, both, and cause of loss."""

from __future__ import annotations

from functools import partialmethod
from typing import ClassVar, Final

from metlmon.live.feed import Snapshot
from metlmon.stats.usage import Usage, site_usage
from metlmon.tables import usage as usage_table
from metlmon.tables.usage import VIEWS, Row
from metlmon.tables.usage_details import details
from metlmon.text.spans import BOLD, DIM, Line, line
from screens.base.list_screen import ListScreen
from screens.base.screens import padded
from screens.sites import header as sites_header
from screens.sites.executions_screen import ExecutionsScreen

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
    ORDERS = (
        ("GPU-hours", None),
        ("badput", lambda row: (-usage_table.lost_of(row), usage_table.name_of(row))),
        ("epochs or times", lambda row: (-usage_table.times_of(row), usage_table.name_of(row))),
        ("epoch time", lambda row: (-usage_table.median_of(row), usage_table.name_of(row))),
        ("name", lambda row: (usage_table.name_of(row),)),
    )

    def __init__(self) -> None:
        super().__init__()
        self.view = 0
        self._cursors: dict[int, str] = {}

    def show(self, update: Snapshot | None) -> None:
        usage = self.context.stats.value(site_usage)
        if usage is None:
            self.show_nothing("Sites", "", [line("  ", (self._loading_text(update), DIM))], "site")
            return
        self.show_head(self._head(usage))
        view = VIEWS[self.view]
        rows = view.rows(usage)

        def below(row: Row | None) -> list[Line]:
            shown = [] if row is None else details(row, usage, self.app.size.width - 1, self._lines)
            return padded(shown, self._lines)

        self.fill(
            usage_table.specs(self.view, rows, usage.measure),
            rows,
            usage_table.key_of,
            usage_table.filter_text,
            cursor=self._cursors.pop(self.view, None),
            empty=self._empty(),
            noun=view.noun,
            details=below,
        )

    @property
    def _roomy(self) -> bool:
        return self.app.size.height >= ROOMY_LINES

    @property
    def _lines(self) -> int:
        height = self.app.size.height
        return DETAILS_TALL if height >= TALL_LINES else max(1, min(DETAILS, height - FIRST_LINES))

    def _head(self, usage: Usage) -> list[Line]:
        room = self.app.size.width - 2
        title = line(" ", ("Sites", BOLD), "   ")
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

    def _empty(self) -> list[Line]:
        if self.view == usage_table.OF_CAUSES:
            return [
                line("  ", "No badput, no held job."),
                line("  ", ("What costs hours is grouped here by its cause.", DIM)),
            ]
        return [
            line("  ", "Nothing has run yet."),
            line("  ", ("A site appears with the first execution in the event log.", DIM)),
        ]

    def _step_view(self, step: int) -> None:
        if self.table.cursor is not None:
            self._cursors[self.view] = self.table.cursor
        self.view = (self.view + step) % len(VIEWS)
        self._refresh_if_mounted()

    action_view = partialmethod(_step_view, 1)
    action_previous_view = partialmethod(_step_view, -1)

    def open_row(self, key: str) -> None:
        usage = self.context.stats.value(site_usage)
        rows = () if usage is None else VIEWS[self.view].rows(usage)
        row = next((row for row in rows if usage_table.key_of(row) == key), None)
        if row is not None:
            choice = usage_table.filter_of(row, self.view)
            self.context.push_screen(ExecutionsScreen(choice))
