"""The overview screen: all runs of the ensemble, or its nodes if it has no runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.timer import Timer

from metlmon.health.types import Health
from metlmon.live.feed import NullFeed, Snapshot
from metlmon.model.states import State
from metlmon.pool.types import ActionPreview, SelectedRun
from metlmon.snapshot.records import Job, Run, Status
from metlmon.snapshot.row_text import counted_states, matches_run, paused_epochs
from metlmon.stats.estimates import make_forecast
from metlmon.stats.run_figures import RunFigures, run_figures
from metlmon.tables import epochs as epochs_table
from metlmon.tables import health as health_table
from metlmon.tables import runs as runs_table
from metlmon.tables.layout import GAP, MARGIN, empty_text
from metlmon.tables.runs import best_mark
from metlmon.text import formatting
from metlmon.text.spans import BOLD, DIM, KEY, NOTE, Line, crop, join, line, width, wrap_parts
from screens.base.plots import PlotScreen
from screens.base.screens import (
    ROOMY_LINES,
    WIDE,
    TreeScreen,
    beside,
    compare_marked,
    queue_lines_below,
)
from screens.base.stats_worker import streams
from screens.overview import header as overview_header
from screens.pool_actions import (
    ACTION_SCOPES,
    ActionScreen,
    Selection,
    is_possible,
    jobs_of_runs,
    select,
)
from screens.widgets.line_widget import EDGE, SelectionPane, StaticLines

TREE_ACTIONS: Final = frozenset({"fold", "unfold", "fold_all", "unfold_all"})
RUN_ACTIONS: Final = TREE_ACTIONS | {
    "open",
    "filter",
    "sort",
    "columns",
    "faults",
    "acts",
    "mark",
    "compare",
}
"""Actions without effect if no ensemble is shown."""

MAX_LINES: Final = 5
"""Lines of the header without room for blank lines."""

BELOW_HEADER: Final = 6
"""Lines that the header leaves free on a low terminal: column titles, three runs, rule, keys."""


MIN_PANE: Final = 6
MAX_PANE: Final = 16
"""Lines of the pane below the list, which shows the run under the cursor."""

CURSOR_REST_SECONDS: Final = 0.1
"""Time that the cursor rests on a run before the pane shows it: drawing a curve takes 20 ms."""

MAX_JOBS: Final = 4
"""Maximum jobs whose states the pane shows, the newest ones."""


class OverviewScreen(TreeScreen, ActionScreen, PlotScreen):
    """All runs, one row each; if there is room, the one under the cursor in a pane below."""

    HAS_HEADER: ClassVar[bool] = True
    SCOPES: ClassVar[tuple[str, ...]] = ("list", "overview", "tree", *ACTION_SCOPES, "comparing")
    ORDERS = runs_table.ORDERS

    def __init__(self) -> None:
        super().__init__()
        self._selected: Run | None = None
        self._in_pane: str | None = None
        self._rest: Timer | None = None

    def compose_prompts(self) -> ComposeResult:
        pane = SelectionPane(id="run")
        pane.display = False
        yield pane
        yield from super().compose_prompts()

    def show(self, snapshot: Snapshot) -> None:
        self.show_head(self._header(snapshot))
        status = snapshot.status
        has_nodes_only = not status.runs and any(dag.nodes_total for dag in status.dags)
        if has_nodes_only and self._show_nodes(snapshot):
            self.query_one(SelectionPane).display = False
            return
        self.node_list = None
        self.context.stats.watch_job_files()
        figures = self.context.stats.value(run_figures)
        progress = self.context.stats.value(streams) or {}
        health, width = self.health, self.app.size.width
        rows = shown = self._select_runs(status.runs)
        if self.faults_only:
            faulty = health_table.faulty_runs(health)
            shown = [row for row in rows if row.key in faulty]
        columns = runs_table.columns(rows, progress, figures, self.context.feed.settings.metrics)
        clocks = health_table.removal_clocks(health, status.as_of)
        self.fill(
            health_table.with_removal_clocks(columns, clocks),
            shown,
            lambda row: row.key,
            runs_table.filter_text,
            all_rows=rows,
            steady=(self.context.feed, snapshot.is_complete, width),
            empty=self._empty_text(rows, snapshot),
            no_match=self._empty_text(rows, snapshot),
            cursor=self._run_in_trouble(health),
            details=lambda row: self._details(row, figures),
            sign=lambda row: best_mark(row, figures),
            second_line=lambda row: runs_table.detail_line(row, width, self._indent()),
            indent=self._indent,
        )

    def _run_in_trouble(self, health: Health | None) -> str | None:
        """The run named on the first line, on which the cursor is until a key is pressed."""
        if self.context.last_key_time or health is None or health.worst is None:
            return None
        return next(iter(health.worst.runs), None)

    def _indent(self) -> int:
        """Where second lines begin: below the state."""
        before = takewhile(lambda name: name != "state", self.widths)
        cells = [self.widths[name] + GAP for name in before]
        return MARGIN + (sum(cells) if "state" in self.widths else 0)

    def _details(self, row: Run | None, figures: RunFigures | None) -> list[Line]:
        """The lines under the rule, unless the pane has them: more on the run, and what to do."""
        self._selected = row
        if self._lay_out():
            self._show_when_at_rest()
            return []
        width = self.app.size.width
        if row is not None:
            trouble = overview_header.run_trouble(self.health, row.key, width - 2)
            lines = self._facts(row, figures, explained=bool(trouble))
            # Below a list that fills the screen it would move the rows.
            if len(lines) + len(trouble) < self._lines_below_rows():
                return [*lines, *trouble]
        return self._facts(row, figures)

    def _facts(
        self, row: Run | None, figures: RunFigures | None, *, explained: bool = False
    ) -> list[Line]:
        """What the columns lack, and for an idle job the queue.

        ``explained``: what is wrong with the run is shown beside it.
        """
        width = self.app.size.width
        detail = runs_table.cursor_detail(
            row, set(self.widths), width, figures, explained=explained
        )
        lines = detail if width < runs_table.REASON_CELLS or any(detail) else []
        latest = None if row is None else row.latest
        job = None
        if latest is not None and latest.state is State.IDLE:
            job = latest.cluster or 0, latest.proc or 0
        name = "" if row is None else formatting.plain(row.run, 24)
        return lines + queue_lines_below(self.context, job, name, self.app.size.height)

    # --- the pane: the run under the cursor ---------------------------------------------------

    def _lay_out(self) -> bool:
        """Give the pane the lines that rows do not need; return False if these are too few."""
        pane, size = self.query_one(SelectionPane), self.app.size
        heads = len(self.query_one("#head", StaticLines).lines) + (self._banner is not None)
        rows = sum(row.height for row in self.table.rows)
        # Titles, rule and keys; and a blank line, in which the filter is typed.
        free = size.height - heads - rows - 4 - self.tab_lines
        is_shown = self._selected is not None and size.width >= WIDE and free >= MIN_PANE
        if is_shown:
            pane.styles.height = min(free, MAX_PANE)
        elif pane.has_focus:
            self.set_focus(self.table)
        pane.display = is_shown
        return is_shown

    def _show_when_at_rest(self) -> None:
        """Show the run in the pane; a different one only after the cursor rests."""
        if self._rest is not None:
            self._rest.stop()
            self._rest = None
        moved = self._selected is not None and self._in_pane != self._selected.key
        if moved and self._in_pane in self.table.keys:
            self._rest = self.set_timer(CURSOR_REST_SECONDS, self._fill_pane)
        else:
            self._fill_pane()

    def _fill_pane(self) -> None:
        """Show its curve over those of all; beside it its state, trouble, and last changes."""
        self._rest = None
        row, pane = self._selected, self.query_one(SelectionPane)
        if row is None or not pane.display:
            return
        stats, room = self.context.stats, self.app.size.width - EDGE - 1
        figures = stats.value(run_figures)
        height = min(MAX_PANE, int(pane.styles.height.value) if pane.styles.height else 0)
        left = room * 3 // 5
        curves = None if figures is None else figures.curves
        chart = self.run_chart(curves, row.key, left - 1, height - 2)
        cells = room - left if chart else room
        best = runs_table.best_text(row, figures)
        title = line((formatting.clip(row.run, 40), BOLD), "  ") + runs_table.state_text(row)
        texts = [
            *wrap_parts((title, best), line("  "), cells),
            *overview_header.run_trouble(self.health, row.key, cells),
            *(crop(each, cells) for each in self._facts(row, figures) if each),
        ]
        view = self.context.feed.run_view(row.key)
        rows = () if view is None else (*view.epochs, *view.side)
        newest = sorted({job for each in rows for job in each.jobs})[-MAX_JOBS:]
        changes = epochs_table.last_changes(
            self.job_rows(newest), max(2, height - len(texts)), self.this_year
        )
        texts = [crop(each, cells) for each in (*texts, *changes)]
        pane.show(beside(chart, texts, left) if chart else texts)
        if row.key != self._in_pane:
            pane.scroll_to_line(0)
        self._in_pane = row.key

    def action_section(self) -> None:
        pane = self.query_one(SelectionPane)
        if not pane.display:
            self.show_message("the run does not fit below the list; [enter] opens it")
        else:
            self.set_focus(self.table if pane.has_focus else pane)

    def action_back(self) -> None:
        if self.query_one(SelectionPane).has_focus:
            self.set_focus(self.table)
        else:
            super().action_back()

    def _lines_below_rows(self) -> int:
        """The number of lines below the last row, including the note line and the details."""
        lines = self.table.size.height + self.query_one("#note").size.height
        return lines - 1 - sum(row.height for row in self.table.rows)

    def _show_nodes(self, snapshot: Snapshot) -> bool:
        """Show the nodes if there are no runs; return False if there are no nodes either."""
        from screens.nodes import NodeList

        nodes = self.node_list or NodeList()
        nodes.update(self.context.feed, snapshot)
        if not nodes.tree.total:
            return False
        nodes.show(self, snapshot)
        return True

    def _header(self, snapshot: Snapshot) -> list[Line]:
        """All lines if there is room, else the most important five, in the same order."""
        room, roomy = self.app.size.width, self.app.size.height >= ROOMY_LINES
        head_of = partial(
            overview_header.header,
            snapshot,
            str(self.context.feed.dagdir),
            room,
            read_only=self.context.options.read_only,
            several=overview_header.SEVERAL_DAGS if roomy else 0,
        )
        head = head_of()
        if not (snapshot.status.dags or snapshot.status.runs):
            return head
        status, room = snapshot.status, room - 2
        whole = snapshot.is_complete
        health = self.health
        trouble = overview_header.health_lines(health, status, room, roomy=roomy)
        trouble = [line(" ") + content for content in trouble]
        # A partly read log has no forecast.
        forecast = self.context.stats.value(make_forecast) if whole else None
        special = overview_header.special_nodes(status.special_nodes, room)
        hours = overview_header.hours_and_forecast(
            status.hours,
            overview_header.forecast_candidates(forecast),
            room,
            least=status.nodes_unlogged > 0,
        )
        if roomy:
            lines = [*self._state_lines(status, room), special, *hours]
            rest = (line(" ") + content for content in lines if content)
            return [*trouble, *([()] if trouble else []), *head, (), *rest, ()]
        others = overview_header.other_nodes(status)
        quiet = overview_header.standstill_warning(status)
        ranked = [
            *((0 if health and health.worst else 6, content) for content in trouble),
            *((0, content) for content in head),
            (2, line(" ") + overview_header.progress_line(status, room)),
            *((rank, line(" ") + hours_line) for rank, hours_line in enumerate(hours, 3)),
            *((1, line(" ") + content) for content in (quiet,) if content),
            *((5, line(" ") + content) for content in (others, special) if content),
        ]
        most = min(MAX_LINES, self.app.size.height - BELOW_HEADER - self.tab_lines)
        kept = sorted(range(len(ranked)), key=lambda index: ranked[index][0])[:most]
        lines = [ranked[index][1] for index in sorted(kept)]
        if forecast is not None and forecast.remaining and line(" ") + hours[-1] not in lines:
            # Trouble replaced the line with the forecast.
            ends = overview_header.end_candidates(forecast)
            with_end = dict(zip(head, head_of(endings=ends), strict=True))
            lines = [with_end.get(each, each) for each in lines]
        return lines

    def _state_lines(self, status: Status, available: int) -> list[Line]:
        """The epochs as a bar and by state, with other active nodes if there is room."""
        counted = counted_states(status)
        total = overview_header.total_text(status)
        bar = overview_header.state_bar(counted, available - len(total) - 2)
        counts = overview_header.state_counts(counted, available, paused_epochs(status))
        others = overview_header.other_nodes(status) or overview_header.standstill_warning(status)
        both = join((counts, others), line("     "))
        fits = width(both) <= available
        return [bar + line("  ", (total, DIM)), *([both] if fits else [counts, others])]

    def _select_runs(self, rows: Sequence[Run]) -> list[Run]:
        only = self.context.options.run_filter
        if not only:
            return list(rows)
        return [row for row in rows if matches_run(row, only)]

    def _empty_text(self, rows: list[Run], snapshot: Snapshot) -> list[Line]:
        if isinstance(self.context.feed, NullFeed):
            return runs_table.no_dagdir_text()
        if not snapshot.opened:
            return empty_text("", "looking for DAG files and logs")
        if not rows and not snapshot.is_complete:
            bar = overview_header.reading_progress(snapshot.progress, 24)
            return empty_text(bar, "runs appear as they are read")
        wanted = formatting.plain(self.filter_text, 30)
        return runs_table.empty(self.faults_only, wanted, bool(rows), bool(snapshot.status.dags))

    def messages(self) -> list[Line]:
        context = self.context
        news = "" if self._in_past else context.absence.news(context.snapshot, context.stats)
        # The key comes first: the end of a long line is cut.
        messages = [line(("[9]", KEY), (f" {news}", NOTE))] if news else []
        return [*messages, *super().messages()]

    def footer_labels(self) -> Mapping[str, str]:
        close = "quit" if self.context.options.home is None else "home"
        return {**super().footer_labels(), "close": close}

    def hidden_actions(self) -> Collection[str]:
        snapshot, hidden = self.context.snapshot, TREE_ACTIONS
        if self.node_list is not None:
            hidden = frozenset({"sort"})
        elif snapshot.opened and not (snapshot.status.dags or snapshot.status.runs):
            hidden = RUN_ACTIONS
        pane = () if self.query_one(SelectionPane).display else ("section",)
        return hidden.union(pane, super().hidden_actions())

    def action_compare(self) -> None:
        if self.node_list is None:
            compare_marked(self)
        else:
            self.show_message("these are nodes: only runs can be compared")

    def open_row(self, key: str) -> None:
        if self.node_list is None:
            self.context.open_screen("run", key)
        else:
            self.node_list.open(self, key)

    def action_sort(self) -> None:
        if self.node_list is None:
            super().action_sort()
        else:
            self.show_message(
                "[6] shows the nodes on a screen of their own, where they can be sorted"
            )

    def refusals(self) -> Mapping[str, str]:
        pool = self.context.options.submission_pool is not None
        new = {} if pool else {"new": self.context.options.no_pool_reason}
        folds = dict.fromkeys(TREE_ACTIONS, "these are runs; [6] shows the nodes")
        return {**super().refusals(), **new, **(folds if self.node_list is None else {})}

    def selection(self) -> Selection:
        """The marked runs, or the one under the cursor, with their queued jobs.

        A run without queued jobs has its latest job instead. Without any run: all DAGs.
        """
        runs = self.chosen_rows if self.node_list is None else []
        if not runs:
            return Selection("nothing", (), self.context.snapshot.status.dags)
        jobs: list[Job] = []
        by_run = jobs_of_runs(runs, self.context.feed.queued_jobs())
        for key, queued in by_run.items():
            jobs += queued or self._latest_job(self.row(key))
        text = self.name_or_count([row.run for row in runs], "run")
        selected_runs = tuple(SelectedRun(row, tuple(by_run[row.key])) for row in runs)
        return Selection(text, tuple(jobs), self.dags_of(row.dag for row in runs), selected_runs)

    def previews(self) -> list[ActionPreview]:
        """The previews, with the act whose key is in the header on the rows that it is advised for.

        Unless rows are marked, or the act is possible on the one under the cursor.
        """
        previews, worst = super().previews(), self.health.worst if self.health else None
        if worst is None or worst.act is None or self.table.marks:
            return previews
        if any(each.act == worst.act and is_possible(each) for each in previews):
            return previews
        advised = self.previews_of(select(self, worst.text, [worst]))
        advised = [each for each in advised if each.act == worst.act and is_possible(each)]
        others = [each for each in previews if each.act != worst.act]
        return [*advised, *others] if advised else previews

    def _latest_job(self, row: Run) -> tuple[Job, ...]:
        latest = row.latest
        if latest is None or latest.cluster is None:
            return ()
        return self.job_rows([(latest.cluster, latest.proc or 0)])
