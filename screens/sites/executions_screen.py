"""List of the executions behind a total of the Sites screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from metlmon.live.feed import Snapshot
from metlmon.stats.totals import sum_executions
from metlmon.stats.usage import Usage, UsageFilter, site_usage
from metlmon.tables import executions as executions_table
from metlmon.tables.executions import ListedExecution
from metlmon.tables.usage import HIDDEN, legend
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import (
    BOLD,
    DIM,
    NOTE,
    Line,
    first_that_fits,
    join,
    limit_lines,
    line,
    style_of,
    wrap,
)
from screens.base.list_screen import ListScreen
from screens.base.screens import padded

KINDS: Final = ("all", "goodput", "badput", "running", "marked")
"""Filters in the order of the key.

``marked`` are executions that completed an epoch which another execution may have trained.
"""

REASON_LINES: Final = 2
"""Lines below the table; fixed, so that the table keeps its height."""

REASON_LIMIT: Final = 2000

NO_MATCH: Final = (
    line("  ", "No execution here is like that."),
    line("  ", ("esc clears the filter, f shows the others", DIM)),
)


class ExecutionsScreen(ListScreen):
    """The executions selected by ``usage_filter``, with their total above them."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "executions", "below")
    ORDERS = executions_table.ORDERS

    def __init__(self, usage_filter: UsageFilter) -> None:
        super().__init__()
        self.usage_filter = usage_filter
        self.kind = 0

    def show(self, update: Snapshot | None) -> None:
        usage = self.context.stats.value(site_usage)
        executions = [] if usage is None else executions_table.executions(usage, self.usage_filter)
        rows = [row for row in executions if self._is_shown(row)]
        self.show_head(self._head(usage, executions, rows))
        self.fill(
            executions_table.columns(usage, self.usage_filter),
            rows,
            lambda row: row.key,
            executions_table.filter_text,
            all_rows=executions,
            empty=self._empty(usage),
            no_match=NO_MATCH,
            extra=[line((f"only {KINDS[self.kind]}", NOTE))] if self.kind else (),
            noun="execution",
            details=self._reason_lines,
        )

    def _is_shown(self, row: ListedExecution) -> bool:
        kind = KINDS[self.kind]
        return kind in ("all", row.kind) or (kind == "marked" and row.hidden is not None)

    def _head(
        self,
        usage: Usage | None,
        executions: Sequence[ListedExecution],
        rows: Sequence[ListedExecution],
    ) -> list[Line]:
        room = self.app.size.width - 2
        totals = sum_executions(row.entry for row in executions)
        number = formatting.number(totals.executions)
        selection = executions_table.filter_title(self.usage_filter, usage, room - 14 - len(number))
        subject = line(f"{number} ", selection)
        ended: Line = ()
        if self.usage_filter.cause is None:
            ended = line((f": {executions_table.outcome_counts(totals)}", DIM))
        title = line(("Executions", BOLD), "   ")
        title += first_that_fits((subject + ended, subject), room - 13) if usage is not None else ()
        epochs = line((f"{formatting.number(totals.completed)} completed an epoch", DIM))
        sums = legend(totals)
        return [
            line(" ") + title,
            line(" ") + first_that_fits((join((sums, epochs), line("   ")), sums), room),
            (),
        ]

    def _empty(self, usage: Usage | None) -> list[Line]:
        if usage is None:
            return [line("  ", ("Executions appear as the logs are read.", DIM))]
        texts = ("Nothing ran here.", "esc goes back")
        if self.usage_filter.cause is not None:
            texts = (
                "No execution ended by this: jobs were held before they ran.",
                "2 lists them among the problems",
            )
        return [line("  ", texts[0]), line("  ", (texts[1], DIM))]

    def _reason_lines(self, row: ListedExecution | None) -> list[Line]:
        room = self.app.size.width - 2
        lines: list[Line] = []
        if row is not None and row.hidden is not None:
            note = executions_table.longest_note(row.hidden)
            lines = wrap(note, room, style_of(HIDDEN), 1)
        elif row is not None and row.entry.kind == "bad":
            reason = plain(row.entry.reason or row.entry.cause or "", REASON_LIMIT)
            if row.entry.uncertain:
                reason = f"its end was not logged, so it took at most as long as this: {reason}"
            lines = wrap(reason, room, DIM, 1)
        return padded(limit_lines(lines, REASON_LINES, room, 1), REASON_LINES)

    def action_kind(self) -> None:
        self.kind = (self.kind + 1) % len(KINDS)
        self._refresh_if_mounted()

    def footer_labels(self) -> Mapping[str, str]:
        if self.kind and not self.filter_text:
            return {"back": "all kinds"}
        return super().footer_labels()

    def clear_filter_or_marks(self) -> bool:
        if self.filter_text or not self.kind:
            return super().clear_filter_or_marks()
        self.kind = 0
        self._refresh_if_mounted()
        return True

    @property
    def _job(self) -> tuple[int, int] | None:
        """The job of the execution under the cursor."""
        cluster, _, proc = (self.table.cursor or "").partition("/")[0].partition(".")
        return (int(cluster), int(proc)) if cluster else None

    def open_row(self, key: str) -> None:
        if self._job is not None:
            self.context.open_job(*self._job)

    def action_owner(self) -> None:
        view = self.context.feed.job_view(*self._job) if self._job is not None else None
        if view is not None:
            self.context.open_run_of(view.row)
