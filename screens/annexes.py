"""The Annexes screen: the end of each annex, and which epochs fit before it."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import ClassVar, Final

from metlmon.placement.annexes import annex_history, report_annexes
from metlmon.placement.types import Annex, AnnexReport
from metlmon.pool.annex_ads import AnnexAnswer
from metlmon.snapshot.records import Snapshot
from metlmon.stats.usage import UsageFilter
from metlmon.tables import annexes as annexes_table
from metlmon.tables.layout import empty_text, searched
from metlmon.text.formatting import count
from metlmon.text.spans import BOLD, DIM, KEY, Line, crop, justify, line, width, wrap
from screens.base.screens import ListScreen, age_text, how_to, padded
from screens.job import copy

MAX_LINES: Final = 6
"""Maximum lines of warnings above the table."""

QUERY_SECONDS: Final = 15.0
"""Interval at which the pool is queried while somebody looks at the screen."""

ATTENDED_SECONDS: Final = 300.0
"""Time since the last key after which nobody is assumed to look."""

DETAIL_LINES: Final = 3
"""Lines below the table; fixed, so that its height does not depend on the cursor."""


class AnnexesScreen(ListScreen):
    """All annexes, and below them the command for another one."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "annexes", "below")
    ORDERS = (("urgency", None), "name", "until", "idle")

    _queried = 0.0

    def on_mount(self) -> None:
        super().on_mount()
        self._query()
        # An ensemble that has ended publishes no snapshots, but its annexes still expire.
        self.set_interval(1.0, self._tick)

    def _tick(self) -> None:
        """Count down; query again now and then while there are nodes and somebody looks."""
        now, answer = monotonic(), self._answer
        is_due = now - self._queried > QUERY_SECONDS
        is_attended = now - self.context.last_key_time < ATTENDED_SECONDS
        if is_due and is_attended and answer is not None and answer.ads:
            self._query()
        self._refresh_if_mounted()

    def _query(self) -> None:
        self._queried = monotonic()
        if self._may_ask and self.context.pool_actions is not None:
            self.context.pool_actions.query_annexes_soon()

    @property
    def _may_ask(self) -> bool:
        """Whether the present is shown."""
        return self.context.queue is not None

    @property
    def _answer(self) -> AnnexAnswer | None:
        pool = self.context.opened.pool
        return pool.annex_answer if pool is not None and self._may_ask else None

    def _report(self) -> AnnexReport | None:
        history, now = self.context.stats.value(annex_history), self.context.now()
        return None if history is None else report_annexes(history, self._answer, now)

    def show(self, update: Snapshot) -> None:
        self.context.stats.watch_job_files()
        report, room = self._report(), self.app.size.width
        if report is None:
            text = empty_text("", "Annexes appear as the logs are read.")
            self.show_nothing("Annexes", text)
            return
        if not report.annexes:
            text = how_to(annexes_table.WHAT_IT_IS, room)
            if report.command:
                text += [(), line("  ") + self._command_line(report, report.command, room)]
            self.show_nothing("Annexes", text)
            self.show_head(self._head(report, room))
            return
        self.show_head(self._head(report, room))
        self.fill(
            annexes_table.columns(report),
            report.annexes,
            lambda row: f"{row.name}/{row.request_id}/{row.site}",
            _text,
            noun="annex",
            details=lambda row: self._below(report, row, room),
        )

    def _head(self, report: AnnexReport, room: int) -> list[Line]:
        title = line(("Annexes", BOLD), "   ", annexes_table.title(report))
        lines = [line(" ") + each for each in annexes_table.warning_lines(report, room - 2)]
        if len(lines) > MAX_LINES:
            total = count(len(report.annex_warnings), "warning")
            lines = [*lines[: MAX_LINES - 1], line((f"   … {total}: metlmon annexes", DIM))]
        return [line(" ") + justify(title, self._asked(), room - 2), *lines, ()]

    def _asked(self) -> Line:
        """When the schedd was queried, or why it was not."""
        answer = self._answer
        if answer is None:
            return line(("from the logs alone", DIM))
        if answer.queried_at is None:
            return line(("asking the schedd…" if answer.is_pending else "no schedd answers", DIM))
        return line((f"asked {age_text(answer.queried_at, self.context.now())}", DIM))

    def _below(self, report: AnnexReport, row: Annex | None, room: int) -> list[Line]:
        text = " · ".join(annexes_table.details(row, self.this_year))
        lines = wrap(text, room - 2, DIM, 1, DETAIL_LINES)
        command = self._command(report, row)
        shown = self._command_line(report, command, room - 1) if command else ()
        return [*padded(lines, DETAIL_LINES), line(" ") + shown]

    @staticmethod
    def _command_line(report: AnnexReport, command: str, room: int) -> Line:
        copies = line("   ", ("Y", KEY), (" copies", DIM))
        return crop(annexes_table.command_line(report, command), room - width(copies)) + copies

    @staticmethod
    def _command(report: AnnexReport, row: Annex | None) -> str:
        """The command for an annex like the one under the cursor, or like the last one."""
        return row.command if row is not None and row.command else report.command

    def refusals(self) -> Mapping[str, str]:
        report = self._report()
        if report is not None and report.command:
            return {}
        reason = "no schedd answers, so the command of this access point is not known"
        return {"copy": reason}

    def action_copy(self) -> None:
        """Copy the command; it is never run."""
        report = self._report()
        if self.notify_refusal("copy") or report is None:
            return
        copy(self, self._command(report, self.row(self.table.cursor)))

    def action_ask(self) -> None:
        if self._may_ask:
            self._query()
            self.show_message("asking the schedd and the collectors…")
        else:
            refusal = self.context.time_travel.refusal()
            self.show_message(refusal or self.context.opened.no_pool)

    def open_row(self, key: str) -> None:
        """Open the executions at its site."""
        row = self.row(key)
        if row is not None and row.site:
            self.context.open_screen("executions", UsageFilter(site=(row.site,)))
        else:
            self.show_message("no job of this ensemble has run there yet")


def _text(row: Annex) -> str:
    word = annexes_table.state_symbol(row).word
    return searched(row.name, row.site, word, row.state.value, row.gpu, *row.warnings)
