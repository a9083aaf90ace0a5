"""The overview screen: all runs of the ensemble, or its nodes if it has no runs.

Its header, below the screen, shows progress, DAGs, GPU-hours and incidents.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import product, takewhile
from pathlib import PurePath
from typing import ClassVar, Final

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.timer import Timer

from metlmon.health.advice import SEE_OUTPUT, own_steps
from metlmon.health.types import Health, HealthEntry, Severity, numbered
from metlmon.live.feed import NullFeed
from metlmon.model.states import FAILED_JOB, DagState, State
from metlmon.pool.types import ActionPreview, PoolAction, SelectedRun
from metlmon.snapshot import row_text
from metlmon.snapshot.records import (
    INACTIVE,
    DagRow,
    GpuHours,
    Job,
    NodeRow,
    Progress,
    Run,
    Snapshot,
    Status,
)
from metlmon.snapshot.row_text import KINDS, matches_run
from metlmon.stats.estimates import Forecast, make_forecast
from metlmon.stats.run_figures import RunFigures, run_figures
from metlmon.stats.totals import group_by
from metlmon.tables import epochs as epochs_table
from metlmon.tables import estimates as estimates_table
from metlmon.tables import health as health_table
from metlmon.tables import runs as runs_table
from metlmon.tables.layout import GAP, MARGIN, empty_text
from metlmon.tables.runs import (
    best_mark,
    other_nodes,
    progress_line,
    state_bar,
    state_counts,
    total_text,
)
from metlmon.text import formatting
from metlmon.text.formatting import DAG_STATES, STATES, dag_sign, directory_name, plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    GOOD,
    KEY,
    MOVING,
    NOTE,
    Line,
    TextStyle,
    crop,
    file_name,
    first_that_fits,
    fit,
    join,
    justify,
    line,
    style_of,
    symbol_span,
    width,
    wrap,
    wrap_line,
    wrap_parts,
)
from screens.actions import DIRECT
from screens.base.plots import PlotScreen
from screens.base.screens import (
    ROOMY_LINES,
    WIDE,
    beside,
    compare_marked,
    queue_lines_below,
)
from screens.base.stats_worker import streams
from screens.nodes import TreeScreen
from screens.pool_actions import (
    ACTION_SCOPES,
    Selection,
    action_of,
    is_possible,
    select,
)
from screens.widgets.line_widget import EDGE, SelectionPane, StaticLines

TREE_ACTIONS: Final = frozenset({"fold", "unfold", "fold_all", "unfold_all"})
RUN_ACTIONS: Final = TREE_ACTIONS | {"faults", "acts", "compare"}
"""Actions without effect if no ensemble is shown, beside those of an empty list."""

MAX_LINES: Final = 5
"""Lines of the header without room for blank lines."""

BELOW_HEADER: Final = 6
"""Lines that the header leaves free on a low terminal: column titles, three runs, rule, keys."""


MIN_PANE: Final = 6
MAX_PANE: Final = 24
"""Lines of the pane below the list, which shows the run under the cursor."""

CURSOR_REST_SECONDS: Final = 0.1
"""Time that the cursor rests on a run before the pane shows it: drawing a curve takes 20 ms."""

MAX_JOBS: Final = 4
"""Maximum jobs whose states the pane shows, the newest ones."""


class OverviewScreen(TreeScreen, PlotScreen):
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
        if has_nodes_only:
            self.update_tree(snapshot)
            if self.node_tree.total:
                self.show_nodes(snapshot)
                self.query_one(SelectionPane).display = False
                return
        self.shows_nodes = False
        self.context.stats.watch_job_files()
        figures = self.context.stats.value(run_figures)
        progress = self.context.stats.value(streams) or {}
        health, width = self.health, self.app.size.width
        only = self.context.options.run_filter
        rows = shown = [row for row in status.runs if not only or matches_run(row, only)]
        if self.faults_only:
            faulty = {run for entry in health_table.serious(health) for run in entry.runs}
            shown = [row for row in rows if row.key in faulty]
        metrics = self.context.feed.settings.metrics
        clocks = health_table.removal_clocks(health, status.as_of)
        # Until a key is pressed, the cursor is on the run named on the first line.
        worst = health.worst if health is not None and not self.context.last_key_time else None
        self.fill(
            runs_table.columns(rows, progress, figures, metrics, clocks),
            shown,
            lambda row: row.key,
            runs_table.filter_text,
            all_rows=rows,
            steady=(self.context.feed, snapshot.is_complete, width),
            empty=self._empty_text(rows, snapshot),
            no_match=self._empty_text(rows, snapshot),
            cursor=next(iter(worst.runs), None) if worst is not None else None,
            details=lambda row: self._details(row, figures),
            sign=lambda row: best_mark(row, figures),
            second_line=lambda row: runs_table.detail_line(row, width, self._indent()),
            indent=self._indent,
        )

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
            trouble = run_trouble(self.health, row.key, width - 2)
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
        latest, job = None if row is None else row.latest, None
        if latest is not None and latest.state is State.IDLE:
            job = latest.cluster or 0, latest.proc or 0
        name = "" if row is None else formatting.clip_middle(row.run, 24)
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
        key = None if self._selected is None else self._selected.key
        if self._rest is not None:
            # A snapshot is no move of the cursor.
            if self._rest.name == key:
                return
            self._rest.stop()
            self._rest = None
        if key is not None and self._in_pane != key and self._in_pane in self.table.keys:
            self._rest = self.set_timer(CURSOR_REST_SECONDS, self._fill_pane, name=key)
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
        title = line((formatting.clip_middle(row.run, 40), BOLD), "  ") + runs_table.state_text(row)
        texts = [
            *wrap_parts((title, best), line("  "), cells),
            *run_trouble(self.health, row.key, cells),
            # The best value is in the first line.
            *(part for each in self._facts(row, None) if each for part in wrap_line(each, cells)),
        ]
        view = self.context.feed.run_view(row.key)
        rows = () if view is None else (*view.epochs, *view.side)
        newest = sorted({job for each in rows for job in each.jobs})[-MAX_JOBS:]
        most = max(2, height - len(texts))
        changes = epochs_table.last_changes(self.job_rows(newest), most, self.this_year)
        texts = [crop(each, cells) for each in (*texts, *changes)]
        pane.show(beside(chart, texts, left) if chart else texts)
        if row.key != self._in_pane:
            pane.scroll_to_line(0)
        self._in_pane = row.key

    def action_section(self) -> None:
        pane = self.query_one(SelectionPane)
        if not pane.display:
            full = "the run does not fit below the list; [enter] opens it"
            self.show_message("no run is under the cursor" if self._selected is None else full)
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

    def _header(self, snapshot: Snapshot) -> list[Line]:
        """All lines if there is room, else the most important five, in the same order."""
        room, roomy = self.app.size.width, self.app.size.height >= ROOMY_LINES
        head_of = partial(
            header,
            snapshot,
            str(self.context.feed.dagdir),
            room,
            read_only=self.context.opened.read_only,
            several=SEVERAL_DAGS if roomy else 0,
        )
        head = head_of()
        if not (snapshot.status.dags or snapshot.status.runs):
            return head
        status, room = snapshot.status, room - 2
        whole = snapshot.is_complete
        health = self.health
        trouble = health_lines(health, status, room, roomy=roomy)
        trouble = [line(" ") + content for content in trouble]
        # A partly read log has no forecast.
        forecast = self.context.stats.value(make_forecast) if whole else None
        special = special_nodes(status.special_nodes, room)
        forecasts, least = forecast_candidates(forecast), status.lacks_hours
        hours = hours_and_forecast(status.hours, forecasts, room, least=least)
        if roomy:
            lines = [*self._state_lines(status, room), special, *hours]
            rest = (line(" ") + content for content in lines if content)
            return [*trouble, *([()] if trouble else []), *head, (), *rest, ()]
        others = other_nodes(status)
        quiet = standstill_warning(status)
        ranked = [
            *((0 if health and health.worst else 6, content) for content in trouble),
            *((0, content) for content in head),
            (2, line(" ") + progress_line(status, room)),
            *((rank, line(" ") + hours_line) for rank, hours_line in enumerate(hours, 3)),
            *((1, line(" ") + content) for content in (quiet,) if content),
            *((5, line(" ") + content) for content in (others, special) if content),
        ]
        most = min(MAX_LINES, self.app.size.height - BELOW_HEADER - self.tab_lines)
        kept = sorted(range(len(ranked)), key=lambda index: ranked[index][0])[:most]
        lines = [ranked[index][1] for index in sorted(kept)]
        if forecast is not None and forecast.remaining and line(" ") + hours[-1] not in lines:
            # Trouble replaced the line with the forecast.
            ends = end_candidates(forecast)
            with_end = dict(zip(head, head_of(endings=ends), strict=True))
            lines = [with_end.get(each, each) for each in lines]
        return lines

    def _state_lines(self, status: Status, available: int) -> list[Line]:
        """The epochs as a bar and by state, with other active nodes if there is room."""
        counted = status.counted_states
        total = total_text(status)
        bar = state_bar(counted, available - len(total) - 2)
        counts = state_counts(counted, available, status.paused_epochs)
        others = other_nodes(status) or standstill_warning(status)
        both = join((counts, others), line("     "))
        fits = width(both) <= available
        return [bar + line("  ", (total, DIM)), *([both] if fits else [counts, others])]

    def _empty_text(self, rows: list[Run], snapshot: Snapshot) -> list[Line]:
        if isinstance(self.context.feed, NullFeed):
            return runs_table.no_dagdir_text()
        if not snapshot.opened:
            return empty_text("", "looking for DAG files and logs")
        if not rows and not snapshot.is_complete:
            bar = reading_progress(snapshot.progress, 24)
            return empty_text(bar, "runs appear as they are read")
        wanted = formatting.plain(self.filter_text, 30)
        return runs_table.empty(self.faults_only, wanted, bool(rows), bool(snapshot.status.dags))

    def messages(self) -> list[Line]:
        context = self.context
        news = "" if self.shows_past else context.absence.news(context.snapshot, context.stats)
        # The key comes first: the end of a long line is cut.
        messages = [line(("[9]", KEY), (f" {news}", NOTE))] if news else []
        return [*messages, *super().messages()]

    def footer_labels(self) -> Mapping[str, str]:
        close = "quit" if self.context.options.home is None else "home"
        return {**super().footer_labels(), "close": close}

    def hidden_actions(self) -> Collection[str]:
        snapshot, hidden = self.context.snapshot, TREE_ACTIONS
        if self.shows_nodes:
            hidden = frozenset({"sort", "compare"})
        elif snapshot.opened and not (snapshot.status.dags or snapshot.status.runs):
            hidden = RUN_ACTIONS
        pane = () if self.query_one(SelectionPane).display else ("section",)
        return hidden.union(pane, super().hidden_actions())

    def action_compare(self) -> None:
        if self.shows_nodes:
            self.show_message("these are nodes: only runs can be compared")
        else:
            compare_marked(self)

    def open_row(self, key: str) -> None:
        if self.shows_nodes:
            self.open_node(key)
        else:
            super().open_row(key)

    def action_sort(self) -> None:
        if self.shows_nodes:
            where = "on a screen of their own, where they can be sorted"
            self.show_message(f"[6] shows the nodes {where}")
        else:
            super().action_sort()

    def refusals(self) -> Mapping[str, str]:
        pool = self.context.options.submission_pool is not None
        new = {} if pool else {"new": self.context.opened.no_pool}
        folds = dict.fromkeys(TREE_ACTIONS, "these are runs; [6] shows the nodes")
        return {**super().refusals(), **new, **({} if self.shows_nodes else folds)}

    def selection(self) -> Selection:
        """The marked runs, or the one under the cursor, with their queued jobs.

        A run without queued jobs has its latest job instead. Without any run: all DAGs. Of a DAG
        without runs: its nodes, as on the Nodes screen.
        """
        if self.shows_nodes:
            return self.selected_nodes()
        runs = self.chosen_rows
        if not runs:
            return Selection("nothing", (), self.context.snapshot.status.dags)
        jobs: list[Job] = []
        by_run = group_by(self.context.feed.queued_jobs(), lambda job: job.key)
        selected = tuple(SelectedRun(row, tuple(by_run.get(row.key, ()))) for row in runs)
        for run in selected:
            latest = run.row.latest
            jobs += run.jobs
            if not run.jobs and latest is not None and latest.cluster is not None:
                jobs += self.job_rows([(latest.cluster, latest.proc or 0)])
        text = self.name_or_count([row.run for row in runs], "run")
        return Selection(text, tuple(jobs), self.dags_of(row.dag for row in runs), selected)

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


# --- the header: pure functions -------------------------------------------------------

SEVERAL_DAGS: Final = 3
"""Maximum number of DAGs with a line each in the header; of more, states are counted."""


def header(
    snapshot: Snapshot,
    dagdir: str,
    columns: int,
    *,
    read_only: bool = False,
    several: int = SEVERAL_DAGS,
    endings: Sequence[Line] = (),
) -> list[Line]:
    """Directory, live state and age of the logs on the first line, DAGs below it.

    With more than ``several`` DAGs, states are counted. With 0, a single DAG is on the first line.
    ``endings``: the forecast in ever shorter forms, on the first line if there is room.
    """
    name = plain(directory_name(dagdir), 48)
    title = line(("metlmon", TextStyle(formatting.Colour.SKY, formatting.Weight.BOLD)), "  ")
    title += line(("read-only  " if read_only else "", NOTE), (name, BOLD))
    if not snapshot.opened:
        return [_with_margins(title, (), columns), line(" ", ("opening the directory", DIM))]
    status = snapshot.status
    gap, live, warnings = line("   "), _live_state(snapshot), line()
    if status.warnings:
        text = formatting.count(len(status.warnings), "warning")
        warnings = line((text, NOTE), (" [8]", KEY))
    rights = [join((live, _log_ages(snapshot, columns), warnings), gap)]
    if endings:
        # The end of the ensemble matters more than the age of the logs, or the number of warnings.
        rights = [join((live, warnings), gap), live]
    ends = [gap + ending for ending in endings]
    error = [line(" ", (plain(snapshot.error, 4 * columns), ALARM))] if snapshot.error else []
    if not several and len(status.dags) == 1:
        (dag,) = status.dags
        glyph = line((dag_sign(dag.state, dag.nodes_failed).glyph, style_of(DAG_STATES[dag.state])))
        starts = (title, line(("read-only  " if read_only else "", NOTE), (name, BOLD)))
        for right, end, start in [*product(rights, ends, starts), *product(rights, [()], starts)]:
            room = columns - 7 - width(right)
            left = start + gap + dag_state(dag, status, room - width(start) - width(end)) + end
            if width(left) <= room + 3:
                break
        else:
            left = starts[1] + gap + glyph
        return [_with_margins(left, right, columns), *error]
    for right, end in [*product(rights, ends), (rights[0], ())]:
        if width(title + end) <= columns - 6 - width(right):
            break
    return [
        _with_margins(title + end, right, columns),
        *error,
        *_dag_lines(status, columns, several),
    ]


def _with_margins(left: Line, right: Line, columns: int) -> Line:
    return line(" ") + justify(left, right, columns - 2) + line(" ")


def _live_state(snapshot: Snapshot) -> Line:
    status = snapshot.status
    if status.as_of is None and not snapshot.is_complete:
        return ()
    if status.as_of is None:
        return line((formatting.nothing_logged((dag.ended for dag in status.dags)), DIM))
    if status.live:
        return line(("● live", MOVING), " ", f"{status.as_of:%H:%M:%S}")
    return line(("snapshot ", DIM), formatting.moment(status.as_of))


def _log_ages(snapshot: Snapshot, columns: int) -> Line:
    if not snapshot.is_complete:
        return reading_progress(snapshot.progress, 12 if columns >= 100 else 0)
    status = snapshot.status
    if not status.live:
        return ()
    ages = [(formatting.seconds_ago(status.as_of, log.last), log.file) for log in status.logs]
    known = sorted((age, file) for age, file in ages if age is not None)
    if not known:
        return ()
    if columns >= 150 and len(known) <= 3:
        names = ((plain(PurePath(file).name, 24), formatting.age(age)) for age, file in known)
        return join((line((name, DIM), f" {age} ago") for name, age in names), line("  "))
    noun = "log" if len(known) == 1 else "logs"
    newest, oldest = formatting.age(known[0][0]), formatting.age(known[-1][0])
    if oldest != newest and columns >= 100:
        return line((f"{noun} ", DIM), f"{newest} to {oldest} ago")
    return line((f"{noun} ", DIM), f"{newest} ago")


def reading_progress(progress: Progress, bar: int) -> Line:
    """``reading 31 % of 40.2 MB``, after a bar of ``bar`` cells."""
    done = formatting.share(progress.done, progress.total)
    size = formatting.size(progress.total)
    rendered = formatting.progress_bar(progress.done, progress.total, bar)
    return line((rendered, MOVING), " " if bar else "", f"reading {done} of {size}")


def _dag_lines(status: Status, room: int, several: int) -> list[Line]:
    dags = status.dags
    if not dags:
        return [_logs_line(status)]
    if len(dags) <= max(1, several):
        names = [line(" ", file_name(dag.file, 44)) for dag in dags]
        longest = max(map(width, names))
        return [
            fit(name, longest + 2, "left") + dag_state(dag, status, room - longest - 3)
            for name, dag in zip(names, dags, strict=True)
        ]
    counts = {state: sum(dag.state is state for dag in dags) for state in DagState}
    signs = [(DAG_STATES[state], n) for state, n in counts.items() if n]
    states = join((line((f"{s.glyph} {n} {s.word}", style_of(s))) for s, n in signs), line("   "))
    nodes = sum(dag.nodes_done for dag in dags), sum(dag.nodes_total for dag in dags)
    done, all_nodes = (formatting.number(n) for n in nodes)
    incomplete = any(dag.is_lower_bound for dag in dags)
    total = f"   {formatting.at_least(done, incomplete)} of {all_nodes} nodes done"
    return [line(" ", f"{len(dags)} DAGs   ") + states + line((total, DIM))]


def _logs_line(status: Status) -> Line:
    """The event logs, which are read in place of a DAG."""
    logs = [log for log in status.logs if log.events]
    if not logs:
        return line(" ", ("no DAG file", DIM))
    name = plain(logs[0].file, 40) if len(logs) == 1 else formatting.count(len(logs), "event log")
    queued = status.jobs_queued
    rest = f"{formatting.count(queued, 'job')} in the queue" if queued else "no job in the queue"
    return line(" ", name, "   ", (rest, MOVING if queued else DIM), ("   no DAG file", DIM))


NO_DAGMAN_OUT: Final = "no .dagman.out here"


def dag_state(dag: DagRow, status: Status, room: int) -> Line:
    """State, failures and progress of a DAG; the least important are dropped first."""
    done, total = (formatting.number(n) for n in (dag.nodes_done, dag.nodes_total))
    done = formatting.at_least(done, dag.is_lower_bound)
    year = formatting.year_of(status.as_of)
    submitted, short_submitted = (
        line((row_text.submission_text(dag, year, last), DIM)) for last in (True, False)
    )
    state = symbol_span(dag_sign(dag.state, dag.nodes_failed))
    unknown: Line = ()
    if dag.state is DagState.UNKNOWN:
        # Known facts come first.
        running = row_text.running_text(status, dag)
        state, unknown = line((running, MOVING)), line((NO_DAGMAN_OUT, DIM))
    failed_text = row_text.failed_nodes_text(status, dag.nodes_failed)
    failed = line((failed_text, ALARM)) if dag.nodes_failed else ()
    progress, short_progress = (
        join((line((f"{done} of {total} {end}", DIM)), failed), line((", ", DIM)))
        for end in ("nodes done", "done")
    )
    parts = [
        state,
        line((plain((dag.hold.reason or "")[:200], 60), ALARM)) if dag.hold else (),
        line(("halted", NOTE)) if dag.halted else (),
        progress,
        submitted,
        line((f"{dag.refused} refused", NOTE)) if dag.refused else (),
        unknown and line((f"{NO_DAGMAN_OUT}, so DAGMan's state is unknown", DIM)),
    ]
    gap = line("   ")
    candidates = [join(parts, gap)]
    # Drop, in order: the time of the last submission, the refusals, the submissions, a reason, and
    # finally the failures, which the counts below repeat.
    for index, shorter in (
        (4, short_submitted),
        (6, unknown),
        (3, short_progress),
        (5, ()),
        (4, ()),
        (6, ()),
        (3, failed),
        (1, ()),
        (2, ()),
        (3, ()),
    ):
        parts[index] = shorter
        candidates.append(join(parts, gap))
    return first_that_fits(candidates, room)


def special_nodes(rows: Sequence[NodeRow], cells: int) -> Line:
    """``PROVISIONER provision ▶ running 0:12:00  ·  SERVICE monitor ▶ running``."""
    dot = line(("  ·  ", DIM))
    candidates = [join((_special(row, short) for row in rows), dot) for short in (False, True)]
    # Finished and waiting nodes are dropped first, from the end.
    droppable = sorted(rows, key=lambda row: row.state in INACTIVE)[::-1]
    for number in range(1, len(rows) + 1):
        left_out = droppable[:number]
        shown = (_special(row, True) for row in rows if row not in left_out)
        candidates.append(join((*shown, line((f"{number} more", DIM), (" [6]", KEY))), dot))
    return first_that_fits([*candidates, ()], cells)


def _special(row: NodeRow, short: bool) -> Line:
    symbol = STATES[row.state]
    kind = f"{row.kind.upper()} " if row.kind in KINDS else ""
    in_trouble = row.state in (State.HELD, State.FAILED, State.REMOVED)
    content = line((kind, DIM), (plain(row.node, 24), BOLD if in_trouble else TextStyle()), " ")
    content += line((symbol.glyph if short and not in_trouble else symbol.text(), style_of(symbol)))
    if row.overruled:
        content += line((" job failed", NOTE))
    if row.seconds is not None and row.state not in INACTIVE:
        content += line(" ", formatting.duration(row.seconds))
    return content


QUIET_SECONDS: Final = 600
"""DAGMan submits ready nodes within seconds; a PRE script or a throttle may take minutes."""


def standstill_warning(status: Status) -> Line:
    """A warning if a DAG runs and has nodes waiting, but nothing is queued or running."""
    ages = [formatting.seconds_ago(status.as_of, log.last) for log in status.logs]
    newest = min((age for age in ages if age is not None), default=0.0)
    running = any(dag.state is DagState.RUNNING for dag in status.dags)
    if not (status.live and running and newest > QUIET_SECONDS):
        return ()
    waiting = status.node_states.get(State.WAITING, 0)
    inactive = INACTIVE | {State.FAILED, State.REMOVED}
    if not waiting or any(
        count for state, count in status.node_states.items() if state not in inactive
    ):
        return ()
    return line(("nothing is queued or running", ALARM))


def gpu_hours(hours: GpuHours, least: bool = False) -> Line:
    """``GPU-hours  5 879 goodput  ·  3 902 badput (40 %)  ·  212 running``.

    The percentage refers to the hours of ended executions. The last part is shown only if something
    runs. ``least``: lower bounds, since the logs are incomplete.
    """
    dot = line(("  ·  ", DIM))
    lost = formatting.share(hours.badput, hours.goodput + hours.badput)
    (good, bad, in_flight), _ = formatting.hours_added((hours.goodput, hours.badput, hours.running))
    share = line((f" ({lost})", DIM)) if hours.badput > 0 else ()
    parts = [
        line((good, GOOD), " goodput"),
        line((bad, BAD if hours.badput > 0 else DIM), " badput") + share,
    ]
    if hours.running > 0:
        parts.append(line((in_flight, MOVING), " running"))
    start = line((f"{hours.measure.hours}  ", DIM), ("at least " if least else "", NOTE))
    return start + join(parts, dot)


def forecast_candidates(forecast: Forecast | None) -> Sequence[Line]:
    """``17 epochs/day   ETA 20 Nov (18–23 Nov) · 6d left``, and shorter forms of it."""
    if forecast is None or not forecast.epochs_total:
        return ()
    long, brief = (estimates_table.remaining_text(forecast, brief=short) for short in (False, True))
    style = BOLD if forecast.remaining is not None else NOTE
    if forecast.completed_at is not None:
        style = GOOD
    rate = line((estimates_table.rate_text(forecast.rate, forecast.item), DIM))
    shortest = estimates_table.remaining_text(replace(forecast, excluded=()))
    candidates = [join((rate, line((text, style))), line("   ")) for text in (long, brief)]
    return candidates + [line((text, style)) for text in (brief, shortest)]


def end_candidates(forecast: Forecast) -> Sequence[Line]:
    """``ETA 20 Nov (18–23 Nov) · 6d left``, and shorter forms of it."""
    texts = [estimates_table.remaining_text(replace(forecast, excluded=()))]
    if forecast.as_of is not None and forecast.remaining is not None:
        end = estimates_table.eta_text(forecast.as_of, forecast.remaining, forecast.expected_end)
        texts += [f"ETA {end}", f"ETA {end.partition(' (')[0]}"]
    return [line((text, BOLD)) for text in texts]


def hours_and_forecast(
    hours: GpuHours, forecasts: Sequence[Line], cells: int, *, least: bool = False
) -> list[Line]:
    """GPU-hours and one of the forecasts, on one line if there is room."""
    gap = line("     ")
    candidates = forecasts or ((),)
    hours_line = gpu_hours(hours, least=least)
    room = cells - width(hours_line) - width(gap)
    forecast = first_that_fits(candidates, room)
    if width(forecast) <= room:
        return [join((hours_line, forecast), gap)]
    return [hours_line, crop(first_that_fits(candidates, cells), cells)]


# --- health -----------------------------------------------------------------------------------

SUBCAUSES: Final = 4
"""Maximum entries of one heading, in a header that has room for them."""

DOT: Final = line((" · ", DIM))


def is_stopped(health: Health, status: Status) -> bool:
    """Whether nothing continues: each run that is not done is stopped."""
    if not health.runs_stopped or health.jobs_queued:
        return False
    stopped = {run for e in health.open_entries if e.severity is Severity.STOPPED for run in e.runs}
    return all(run.has_ended or run.key in stopped for run in status.runs)


def health_lines(health: Health | None, status: Status, room: int, *, roomy: bool) -> list[Line]:
    """The state of the ensemble in one line, or the worst entry, its extent and what to do."""
    if health is None:
        return []
    worst = health.worst
    hint = line(("[2]", KEY))
    if worst is None:
        right = hint if health.entries else ()
        calm = first_that_fits(_calm(health, status), room - width(right) - 2)
        return [justify(calm, right, room)]
    lines = []
    if is_stopped(health, status):
        headline = health.headline
        lines.append(line((f"✗ {headline.label}", ALARM), "   ", (headline.text, BOLD)))
    group = [e for e in health.open_entries if worst.heading and e.heading == worst.heading]
    others = len(health_table.serious(health)) - max(1, len(group))
    right = join((line((f"{others} more" if others else "", DIM)), hint), line(" "))
    first = _cause(health, worst, group, status.as_of, room - width(right) - 2)
    advice = advice_line(worst.steps, worst, open_key="[2]")
    one = first + line("   ") + advice
    if not group and width(one) + width(right) + 2 <= room:
        return [*lines, justify(one, right, room)]
    lines.append(justify(first, right, room))
    shared = health_table.group_steps(group) if group else ()
    if shared and roomy:
        lines.append(line("  ") + advice_line(shared, worst, room - 2, "[2]"))
    if group and roomy:
        shown = group[: SUBCAUSES + 1 if len(group) == SUBCAUSES + 1 else SUBCAUSES]
        lines += _subcauses(health, shown, room)
        more = len(group) - len(shown)
        return [*lines, *([line((f"    {more} more", DIM))] if more else [])]
    if group:
        hidden = line((f"{len(group) - 1} more" if len(group) > 1 else "", DIM))
        names = health_table.run_names(health, worst)
        text = f"    {plain(worst.text, health_table.TEXT_LIMIT)}   "
        subcause = line(text, (str(len(names)), BOLD), "   ", (" ".join(names), DIM))
        lines.append(justify(crop(subcause, room), hidden, room))
    return [*lines, line("  ") + advice_line(worst.steps, worst, room - 2, "[2]")]


def _calm(health: Health, status: Status) -> list[Line]:
    """The line that nothing is wrong, in ever shorter forms."""
    states = status.node_states
    texts, sites = ["nothing needs attention"], line()
    if not any(states.get(state) for state in (State.HELD, *FAILED_JOB)):
        headline = health.headline
        # The second form omits the hours of the cause, the third what the words imply.
        without_hours = headline.line.rpartition(" (")[0] or headline.text
        brief = without_hours.replace(" now", "", 1).replace("mostly ", "", 1)
        texts = [headline.line, without_hours, brief, headline.text]
        sites = line((" [3]", KEY)) if headline.cause and not health.doubtful else ()
    notes = len(health.open_entries)
    end = line((f"   {formatting.count(notes, 'note')}" if notes else "", DIM))
    forms = [(text, key) for text in texts for key in dict.fromkeys((sites, ()))]
    return [line(("✓ ", GOOD), (text, DIM)) + key + end for text, key in forms]


def _cause(
    health: Health,
    worst: HealthEntry,
    group: Sequence[HealthEntry],
    as_of: datetime | None,
    room: int,
) -> Line:
    """``■ wall-time limit reached (hold 47) · 3 runs``, after the name of a single run."""
    glyph, style = health_table.mark(worst)
    start = line((f"{glyph} ", style))
    text = plain(worst.heading if group and worst.heading else worst.text, health_table.TEXT_LIMIT)
    names = health_table.run_names(health, worst)
    if len(names) == 1 and len(group) < 2:
        start, extent = start + line((f"{names[0]}: ", style)), ""
    else:
        extent = health_table.concerned(group or [worst])
        # The text of an entry on one node names it.
        extent = "" if extent == "1 node" else extent
    clock = health_table.removal_clock(worst, as_of)
    rest = [part for part in (line((extent, BOLD)), line((clock, ALARM))) if width(part)]
    left = room - width(start) - sum(width(DOT) + width(part) for part in rest)
    return start + join((crop(line((text, style)), left), *rest), DOT)


def _subcauses(health: Health, group: Sequence[HealthEntry], room: int) -> list[Line]:
    """The entries of one heading: cause, number of runs, their names, and what to do."""
    texts = [plain(entry.text, health_table.TEXT_LIMIT) for entry in group]
    names = [" ".join(health_table.run_names(health, entry)) for entry in group]
    steps = [advice_line(own_steps(entry.steps), None, open_key="[2]") for entry in group]
    columns = [max(map(len, texts)), max(map(len, names))]
    if sum(columns) + max(map(width, steps)) + 16 > room:
        columns[1] = 0
    lines = []
    for entry, text, runs, own in zip(group, texts, names, steps, strict=True):
        start = line(f"    {text:<{columns[0]}}  ", (f"{len(entry.runs):>3}", BOLD), "   ")
        start += line((f"{runs:<{columns[1]}}   " if columns[1] else "", DIM))
        lines.append(crop(start + own, room))
    return lines


def advice_line(
    steps: Sequence[str],
    entry: HealthEntry | None,
    room: int | None = None,
    open_key: str = "[enter]",
) -> Line:
    """``→ 1. Free space  2. Release [R]``: what to do, and the key of the entry's act.

    ``open_key`` begins the way to the jobs of the entry, and so to their output.
    """
    keys = () if entry is None else act_keys(entry)
    style = TextStyle(KEY.colour)
    own = own_steps(steps)
    brief = [step.partition("; ")[0] for step in own]
    keyed = with_open_key(steps, open_key)
    short = with_open_key(steps, open_key, "See its output")
    texts = [map(plain, numbered(each)) for each in (keyed, short, own, brief)]
    candidates = [line((f"→ {'  '.join(text)}", style)) for text in texts]
    if room is None:
        return candidates[0] + keys
    if entry is not None:
        # The step before it names the DAG.
        brief_when = entry.act_when and entry.act_when.replace("the DAG", "it")
        ways = [act_keys(entry), act_keys(replace(entry, act_when=brief_when))]
        fitting = (text + way for text in candidates[:2] for way in ways)
        keys = act_keys(entry, brief=True)
        if (whole := next((each for each in fitting if width(each) <= room), None)) is not None:
            return whole
    if keys and len(own) < len(steps) and width(candidates[1] + keys) > room:
        # The act is a common step, which is omitted here.
        keys = line((", then", style)) + keys
    left = room - width(keys)
    return crop(first_that_fits(candidates, left), left) + keys


def with_open_key(steps: Sequence[str], key: str = "[enter]", see: str = SEE_OUTPUT) -> list[str]:
    """The steps, with the key that leads to the output of jobs where they are to be seen."""
    return [f"{see} {key}" if step == SEE_OUTPUT else step for step in steps]


def run_trouble(health: Health | None, run: str, room: int, *, brief: bool = False) -> list[Line]:
    """Why a run needs attention: the cause, its line of evidence, and what to do; else empty."""
    entry = next((e for e in health_table.serious(health) if run in e.runs), None)
    if entry is None:
        return []
    glyph, style = health_table.mark(entry)
    evidence = plain(entry.evidence or "", health_table.TEXT_LIMIT)
    text = plain(f"{entry.heading}: {entry.text}" if entry.heading else entry.text)
    if brief:
        cause = crop(line(" ", (f"{glyph} {text}", style)), room)
        return [cause, line("   ") + advice_line(entry.steps, entry, room - 3)]
    return [
        *wrap(text, room, style, indent=1, start=line((f"{glyph} ", style))),
        *(wrap(evidence, room, indent=3) if evidence else []),
        *health_table.step_lines(with_open_key(entry.steps), act_keys(entry), room + 1, 3),
    ]


def act_keys(entry: HealthEntry, *, brief: bool = False) -> Line:
    """`` [R]`` or `` [a][U]``: the keys of its act; empty if the screens do not offer it."""
    if entry.act is None or entry.act not in set(PoolAction):
        return ()
    action = action_of(PoolAction(entry.act))
    keys = f"[{action.cap}]" if action.name in DIRECT else f"[a][{action.cap}]"
    if brief and entry.act_when:
        return line((f" {keys}", DIM))
    return health_table.how_to_act(entry, keys)
