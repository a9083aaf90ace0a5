"""The Health screen: everything that is or was wrong, ranked by what it blocks."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Final, cast

from textual.app import ComposeResult
from textual.containers import Container

from metlmon.health.build import make_health
from metlmon.health.types import CALM, KINDS, Health, HealthEntry
from metlmon.model.reasons import code_text
from metlmon.snapshot.records import Job, Snapshot
from metlmon.stats.usage import UsageFilter
from metlmon.tables import health as health_table
from metlmon.tables import runs as runs_table
from metlmon.tables.health import headline_line, since_text
from metlmon.tables.jobs import columns as job_columns
from metlmon.tables.jobs import filter_text as job_text
from metlmon.tables.layout import empty_text
from metlmon.text import formatting
from metlmon.text.formatting import count, plain
from metlmon.text.spans import BAD, BOLD, DIM, GOOD, NOTE, Line, first_that_fits, join, line, wrap
from screens.base.screens import ListScreen, heading
from screens.overview import act_keys, with_open_key
from screens.pool_actions import ACTION_SCOPES, MAX_JOBS, ActionScreen, Selection, select
from screens.widgets.line_widget import EDGE, SelectionPane, StaticLines, Table

REASON_LIMIT: Final = 20_000
"""Maximum characters of a reason: one may contain a whole error log."""


def entry_lines(
    health: Health, entry: HealthEntry, as_of: datetime | None, this_year: int | None, room: int
) -> list[Line]:
    """An entry in full: what, whom, since when, why as logged, and what to do."""
    glyph, style = health_table.mark(entry)
    text = plain(entry.text, REASON_LIMIT)
    text = f"{plain(entry.heading, REASON_LIMIT)}: {text}" if entry.heading else text
    lines = wrap(text, room, style, start=line((f"{glyph} ", style)))
    evidence = wrap(plain(entry.evidence or "", REASON_LIMIT), room, BAD if entry.open else NOTE)
    # The line of a file with the reason is short, unlike the reason of a hold that HTCondor logs.
    lines += evidence if entry.error_file else []
    names = health_table.run_names(health, entry)
    if names:
        lines += wrap(f"{count(len(names), 'run')}: {' '.join(names)}", room)
    facts = [fact for fact in _facts(health, entry, as_of, this_year) if fact]
    lines += wrap("   ".join(facts), room, DIM)
    lines += health_table.step_lines(with_open_key(entry.steps), act_keys(entry), room + 1, 0)
    if entry.code is not None:
        lines += wrap(f"code {code_text(entry.code, entry.subcode, entry.reason)}", room, DIM)
    lines += [] if entry.error_file else evidence
    if entry.policy:
        lines += wrap(f"policy: {plain(entry.policy, REASON_LIMIT)}", room, DIM)
    return lines


def _facts(
    health: Health, entry: HealthEntry, as_of: datetime | None, this_year: int | None
) -> list[str]:
    period = since_text(entry, as_of)
    if not entry.open and entry.since is not None:
        period = formatting.moment(entry.since, this_year)
        if entry.until is not None and entry.until != entry.since:
            period = formatting.period(entry.since, entry.until, this_year)
    return [
        period,
        count(len(entry.jobs), "job") if entry.jobs else "",
        f"{count(entry.epochs_blocked, health.item)} left" if entry.epochs_blocked else "",
        f"{formatting.hours(entry.gpu_hours)} {health.hour_unit} badput" if entry.gpu_hours else "",
        f"at {plain(entry.site, 40)}" if entry.site else "",
    ]


NOTHING_WRONG: Final = empty_text(
    line((f"{CALM[:1].upper()}{CALM[1:]}.", GOOD)),
    "Holds, removals, failures, black holes, stalled transfers,",
    "divergence and gaps in the logs would be listed here.",
)


BESIDE: Final = 150
"""Width from which the entry under the cursor is beside the list, else below it."""

FRAME_LINES: Final = 5
"""Lines around list and entry: two of the head, the divider, the note line and the keys."""

LIST_LINES: Final = 6
"""Minimum lines of the list."""

SITE_KINDS: Final = frozenset(
    {"annex-expired", "black-hole", "evictions", "transfer-stalled", "unmatched", "wrong-site"}
)
"""Kinds whose row opens the executions of the site."""

FILE_KINDS: Final = frozenset(
    {"log-damage", "log-gap", "log-silent", "rescue-missing", "dag-file-changed"}
)
"""Kinds whose row opens the Sources screen."""


class HealthScreen(ListScreen, ActionScreen):
    """All entries, the open ones first; the one under the cursor in full."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "health", *ACTION_SCOPES, "below")
    ORDERS = (("what it blocks", None), "hours", "since", "runs", "what")

    def __init__(self) -> None:
        super().__init__()
        self._health: Health | None = None
        self._shown_key: str | None = None
        self._lines_below = 0
        self._first_key: str | None = None
        self._is_placed = False

    def compose_body(self) -> ComposeResult:
        with Container(id="body"):
            yield Table()
            yield StaticLines(id="divider")
            yield SelectionPane(id="entry")

    @property
    def _beside(self) -> bool:
        return self.app.size.width >= BESIDE

    @property
    def table_width(self) -> int:
        room = self.app.size.width
        return room * 3 // 5 if self._beside else room

    def show(self, update: Snapshot) -> None:
        # Divergence and changed arguments are in files that the jobs write.
        self.context.stats.watch_job_files()
        self._health = self.offered(self.context.stats.value(make_health))
        health = self._health or Health()
        self.show_head(self._head())
        ranked = not self.state.order and self.state.column is None
        # In other orders all entries are in one list.
        opened, closed = list(health.entries), list[HealthEntry]()
        if ranked:
            opened = health_table.in_groups(health.open_entries)
            closed = health_table.in_groups(health.closed_entries)
        reading = self._health is None or not update.is_complete
        self.fill(
            health_table.columns(health, self.this_year, indented=ranked),
            opened,
            lambda entry: entry.key,
            lambda entry: health_table.filter_text(health, entry),
            all_rows=[*opened, *closed],
            empty=empty_text("", "Entries appear as the logs are read.")
            if reading
            else NOTHING_WRONG,
            cursor=self._first_cursor(opened, reading=reading),
            noun="cause",
            details=self._show_entry,
            more_rows=closed,
            more_title=f"closed ({len(closed)})",
            heading=(lambda entry: self._heading(health, entry)) if ranked else lambda _: None,
        )
        self._lay_out()
        if self.query_one(SelectionPane).lines_below != self._lines_below:
            # The note line was made before the text of the entry.
            self.call_later(self._refresh_if_mounted)

    def refresh_selection(self) -> None:
        """Refresh the pane, too: the room that the list leaves to it has changed."""
        self._refresh_if_mounted()

    def _first_cursor(self, opened: list[HealthEntry], *, reading: bool) -> str | None:
        """The first entry, until everything is read or the user has moved the cursor."""
        if self._is_placed or self.table.cursor not in (None, self._first_key):
            return None
        self._is_placed = not reading
        self._first_key = opened[0].key if opened else None
        return self._first_key

    def _lay_out(self) -> None:
        """Place the entry beside the list if there is enough room for both, else below it.

        Below, it has as many lines as its text, at most half of all or those that the list leaves.
        """
        beside, pane = self._beside, self.query_one(SelectionPane)
        size, room = self.table_width, self.app.size
        lines = room.height - FRAME_LINES - self.tab_lines
        pane.has_edge = beside
        self.query_one("#body").styles.layout = "horizontal" if beside else "vertical"
        self.query_one(Table).styles.width = size
        self.query_one("#divider").display = not beside
        pane.styles.width = room.width - size if beside else size
        of_list = len(self.table.rows) + 1
        below = max(min(len(pane.lines), lines // 2), lines - of_list)
        most = lines - (min(LIST_LINES, of_list) if self.table.rows else LIST_LINES)
        pane.styles.height = "1fr" if beside else max(2, min(below, most))

    def _heading(self, health: Health, entry: HealthEntry) -> str | None:
        if entry.heading is None:
            return None
        group = [e for e in health.entries if (e.heading, e.open) == (entry.heading, entry.open)]
        mark = health_table.mark(entry)[0]
        extent = health_table.concerned(group)
        text = plain(entry.heading, health_table.TEXT_LIMIT)
        return f"{mark} {text}" + (f" · {extent}" if extent else "")

    def _head(self) -> list[Line]:
        title = line(" ", ("Health", BOLD), "  ")
        if self._health is None:
            return [title + line(("reading the logs", DIM)), ()]
        heads = [title + headline_line(self._health, brief=brief) for brief in (False, True)]
        closed = len(self._health.closed_entries)
        more = line((f"{closed} closed", DIM)) if closed else ()
        candidates = [*(join((head, more), line("   ")) for head in heads), *heads]
        return [first_that_fits(candidates, self.app.size.width - 1), ()]

    def _show_entry(self, entry: HealthEntry | None) -> list[Line]:
        """Show the entry under the cursor in the pane; return no lines below the note line."""
        pane, room = self.query_one(SelectionPane), self.app.size.width
        kind = "" if entry is None else KINDS[entry.kind].title
        self.query_one("#divider", StaticLines).show([heading(kind, room) if kind else ()])
        key = None if entry is None else entry.key
        if entry is None or key != self._shown_key:
            self._shown_key = key
            pane.show(())
        if entry is None:
            return []
        as_of, beside = self.context.snapshot.status.as_of, self._beside
        cells = room - self.table_width - EDGE - 1 if beside else room - 2
        health, year = self._health or Health(), self.this_year
        texts = entry_lines(health, entry, as_of, year, cells)
        if beside:
            texts = [line((kind, DIM)), *texts]
        pane.show(texts if beside else [line(" ") + text for text in texts])
        return []

    def messages(self) -> list[Line]:
        """Say that the text of the entry continues below its pane."""
        pane = self.query_one(SelectionPane)
        more = self._lines_below = pane.lines_below
        lines = [line((f"[tab] {count(more, 'more line')}", DIM))] if more else []
        return [*super().messages(), *lines]

    # --- keys -----------------------------------------------------------------------------

    def action_section(self) -> None:
        pane, table = self.query_one(SelectionPane), self.query_one(Table)
        self.set_focus(table if pane.has_focus else pane)
        self._refresh_if_mounted()

    def action_back(self) -> None:
        if self.query_one(SelectionPane).has_focus:
            self.action_section()
        else:
            super().action_back()

    def open_row(self, key: str) -> None:
        """Open what the entry concerns: its site, its one run or job, or a list of these."""
        entry, context = self.row(key), self.context
        if entry is None:
            return
        if entry.kind in SITE_KINDS and entry.site is not None:
            context.open_screen("executions", UsageFilter((entry.site,)))
        elif entry.kind in SITE_KINDS:
            context.open_screen("sites")
        elif entry.kind in FILE_KINDS:
            context.open_screen("inputs")
        elif len(entry.jobs) > 1 or len(entry.runs) > 1:
            context.push_screen(EntryScreen(entry.key))
        elif entry.jobs and (entry.error_file or not (entry.open and entry.runs)):
            context.open_screen("job", *entry.jobs[0])
        elif entry.runs:
            context.open_screen("run", entry.runs[0])
        else:
            context.open_screen("nodes")

    def action_owner(self) -> None:
        entry = self.row(self.table.cursor)
        if entry is not None and len(entry.runs) == 1:
            self.context.open_screen("run", entry.runs[0])
        elif entry is not None:
            self.show_message(_about_runs(entry))

    def advised(self) -> HealthEntry | None:
        """The entry under the cursor."""
        return cast("HealthEntry | None", self.row(self.table.cursor))

    def selection(self) -> Selection:
        chosen = self.chosen_rows
        name = plain(chosen[0].text, 40) if len(chosen) == 1 else f"{len(chosen)} entries"
        return select(self, name, chosen)


def _about_runs(entry: HealthEntry) -> str:
    """Why none is opened for an entry that does not concern one run."""
    if entry.kind not in SITE_KINDS | FILE_KINDS and (entry.jobs or entry.runs):
        return f"[enter] lists its {'jobs' if entry.jobs else 'runs'}"
    return f"it concerns {count(len(entry.runs), 'run') if entry.runs else 'no run'}"


class EntryScreen(ListScreen, ActionScreen):
    """The jobs of one entry, latest first, or its runs if it has no job."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "entry", *ACTION_SCOPES, "below")
    ORDERS = (("latest first", None),)

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key

    def _entry(self) -> HealthEntry | None:
        health = self.context.stats.value(make_health)
        entries = () if health is None else health.entries
        return next((entry for entry in entries if entry.key == self.key), None)

    def show(self, update: Snapshot) -> None:
        entry = self._entry()
        if entry is None:
            back = empty_text("", "[esc] goes back to the others")
            self.show_nothing("Health", back, "this entry is gone")
            return
        mark, style = health_table.mark(entry)
        text = f"{entry.heading}: {entry.text}" if entry.heading else entry.text
        room = self.app.size.width - 2
        head = wrap(plain(text, REASON_LIMIT), room, style, 1, start=line((f"{mark} ", style)))
        self.show_head([*head, ()])
        if not entry.jobs:
            runs = [row for row in update.status.runs if row.key in entry.runs]
            self.fill(
                runs_table.columns(runs),
                runs,
                lambda row: row.key,
                runs_table.filter_text,
                noun="run",
            )
            return
        jobs = self.job_rows(sorted(entry.jobs, reverse=True)[:MAX_JOBS])
        cut = len(entry.jobs) > MAX_JOBS
        self.fill(
            job_columns(jobs, self.this_year, update.status.hours.measure),
            jobs,
            lambda job: f"{job.cluster}.{job.proc}",
            job_text,
            empty=empty_text("No log here has these jobs."),
            noun="job",
            extra=[line((f"the latest {MAX_JOBS} jobs", DIM))] if cut else [],
        )

    def selection(self) -> Selection:
        entry = self._entry()
        if entry is None:
            return Selection("nothing")
        if not entry.jobs:
            return select(self, self.name_or_count(list(entry.runs), "run"), [entry])
        jobs = tuple(sorted(self.chosen_rows, key=lambda job: entry.jobs.index(job.job)))
        words = self.name_or_count([f"job {job.cluster}.{job.proc}" for job in jobs], "job")
        return Selection(words, jobs, self.dags_of(job.dag for job in jobs))

    def open_row(self, key: str) -> None:
        row = self.row(key)
        if isinstance(row, Job):
            self.context.open_screen("job", *row.job)
        elif row is not None:
            self.context.open_screen("run", key)

    def action_owner(self) -> None:
        row = self.row(self.table.cursor)
        if isinstance(row, Job):
            self.context.open_run_of(row)
        elif row is not None:
            self.context.open_screen("run", row.key)
