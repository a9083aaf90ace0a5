"""The screen of one run: its history, epoch by epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from statistics import median
from typing import ClassVar, Final

from msgspec.structs import replace

from metlmon.jobfiles.error_lines import NO_ERRORS
from metlmon.model.states import TERMINAL, UNPLACED, State
from metlmon.pool.types import SelectedRun
from metlmon.snapshot.records import Epoch, Job, RunView, SideCounts, Snapshot
from metlmon.snapshot.row_text import gate_symbol
from metlmon.stats.curves import evaluations
from metlmon.stats.estimates import make_forecast
from metlmon.stats.lineage import lineage, origin_of
from metlmon.stats.run_figures import VARIES, parameters, run_figures
from metlmon.tables import epochs as epochs_table
from metlmon.tables import estimates as estimates_table
from metlmon.tables import runs as runs_table
from metlmon.tables.layout import GAP, MARGIN, empty_text
from metlmon.tables.runs import failed_evaluations, hold_reason, site_and_target
from metlmon.tables.timeline_text import EIGHTHS, filled_eighths
from metlmon.text import formatting
from metlmon.text.formatting import STATES, clip, clip_middle
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    PLAIN,
    Line,
    file_name,
    first_that_fits,
    join,
    join_fitting,
    justify,
    line,
    style_of,
    symbol_span,
    width,
    wrap,
)
from screens.base.plots import PlotScreen
from screens.base.screens import ROOMY_LINES, WIDE, ListScreen, beside, queue_lines_below
from screens.base.stats_worker import errors, streams
from screens.overview import gpu_hours, run_trouble
from screens.pool_actions import ACTION_SCOPES, ActionScreen, Selection

EVALUATION_ACTIONS: Final = frozenset({"view", "evaluation"})
"""Actions without effect in a run without evaluations."""


class RunScreen(ListScreen, ActionScreen, PlotScreen):
    """The history of one run."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "run", *ACTION_SCOPES, "below")
    ORDERS = (("epoch", None), "execution", "queued", "try", "lost")

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self.show_chart = True
        self.show_evaluations = False
        self._cursor_placed = False
        self._is_evaluated = True

    def show(self, snapshot: Snapshot) -> None:
        view, stats = self.context.feed.run_view(self.key), self.context.stats
        if view is None:
            gone = "This run is in no DAG of this directory any more."
            text = empty_text(gone, "[esc] goes back to all runs.")
            if not snapshot.is_complete:
                text = empty_text("", "The run appears as soon as its DAG has been read.")
            self.show_nothing("run", text)
            return
        self._is_evaluated = any(epoch.evaluations for epoch in view.epochs)
        self.show_head(self._header(view))
        stats.watch_job_files()
        known = stats.value(lineage)
        origins = known.origins.get(self.key, {}) if known is not None else {}
        written = stats.value(errors) or NO_ERRORS
        columns = epochs_table.columns(
            view,
            stats.value(streams) or {},
            not self.show_evaluations,
            (stats.value(evaluations) or {}).get(self.key),
            this_year=self.this_year,
            origins=origins,
            figures=stats.value(run_figures),
        )

        def second_line(row: Epoch) -> Line:
            room = self.app.size.width - self._indent() - 1
            origin = origin_of(row, origins)
            return epochs_table.detail_line(row, room, view.row, origin, written)

        all_rows = (*self._with_evaluations(view.epochs), *view.other_side_nodes)
        self.fill(
            columns,
            view.epochs,
            epochs_table.key_of,
            epochs_table.filter_text,
            all_rows=all_rows,
            fitted_to=[*view.epochs, *view.side],
            no_match=empty_text("No epoch has this in any column.", "[esc] clears"),
            cursor=self._first_cursor(view),
            noun=view.row.item if view.epochs == all_rows else "node",
            details=self._details,
            second_line=second_line,
            indent=self._indent,
            more_rows=view.other_side_nodes,
            more_title="side nodes",
            expand=self._with_evaluations,
        )

    def _indent(self) -> int:
        """Where second lines begin: after the epoch."""
        return MARGIN + self.widths["epoch"] + GAP

    def hidden_actions(self) -> Collection[str]:
        hidden = super().hidden_actions()
        return hidden if self._is_evaluated else EVALUATION_ACTIONS.union(hidden)

    def _first_cursor(self, view: RunView) -> str | None:
        """The latest epoch, when epochs exist for the first time."""
        if self._cursor_placed or view.row.latest is None or not view.epochs:
            return None
        self._cursor_placed = True
        latest_rows = [row for row in view.epochs if row.node == view.row.latest.node]
        return epochs_table.key_of(latest_rows[-1]) if latest_rows else None

    def _with_evaluations(self, epochs: Sequence[Epoch]) -> list[Epoch]:
        """The epochs, each followed by its evaluations as rows if these are shown."""
        if not self.show_evaluations:
            return list(epochs)
        pairs = ((replace(epoch, evaluations=()), epoch.evaluations) for epoch in epochs)
        return [row for epoch, evaluations in pairs for row in (epoch, *evaluations)]

    def _details(self, epoch: Epoch | None) -> list[Line]:
        """The full reason of a hold; for an idle job, the queue's information."""
        if epoch is not None and epoch.state is State.HELD and epoch.hold_reason:
            lines = wrap(hold_reason(epoch.hold_reason), self.app.size.width - 2, BAD, indent=1)
            # The epoch has one line of it already.
            return lines if len(lines) > 1 else []
        job = name = None
        if epoch is not None and epoch.state is State.IDLE and epoch.jobs:
            number = formatting.epoch_text(epoch.epoch)
            job, name = epoch.jobs[-1], f"epoch {number}" if number else epoch.node
        return queue_lines_below(self.context, job, name or "", self.app.size.height)

    def _header(self, view: RunView) -> list[Line]:
        room = self.app.size.width
        roomy = self.app.size.height >= ROOMY_LINES
        lines = [
            line(" ") + self._title_line(view, room - 2),
            line(" ") + first_that_fits(self._progress(view), room - 2),
            *run_trouble(self.health, self.key, room - 2, brief=not roomy),
            *runs_table.gate_details(view.row, room),
            *self._forecast(room - 2),
            *self._parameters(room - 2),
        ]
        if self.show_chart:
            chart = self._charts(view, room - 2, roomy)
            lines += [()] * (roomy and bool(chart)) + [line(" ") + content for content in chart]
        return [*lines, ()] if roomy else lines

    def _charts(self, view: RunView, room: int, roomy: bool) -> list[Line]:
        """The bars of execution times, and beside them the curve if there is room for both."""
        height = CHART_LINES if roomy else CHART_LINES_NARROW
        # The lines that the epochs and everything around them do not need.
        height += max(0, min(CHART_LINES, self.app.size.height - len(view.epochs) - 26))
        title = chart_title(view.epochs, view.row.item)
        figures = self.context.stats.value(run_figures)
        cells = max(room // 2, width(title) + 2)
        curve = None if figures is None or room + 2 < WIDE else figures.curves
        curve_lines = self.run_chart(curve, self.key, room - cells, height)
        cells = cells if curve_lines else room
        begun = [row for row in view.epochs if row.state is not State.WAITING or row.jobs]
        bars = seconds_chart(begun, cells - 2, height)
        return beside([title, *bars] if bars else [], curve_lines, cells)

    def _parameters(self, room: int) -> list[Line]:
        """The parameters of the run, as far as they fit; first those that differ between runs."""
        stats = self.context.stats
        values, figures = stats.value(parameters, self.key) or {}, stats.value(run_figures)
        swept = figures.swept_names if figures is not None else ()
        names = sorted(values, key=lambda name: name not in swept)
        parts = []
        for name in names:
            value, style = values[name], BOLD if name in swept else PLAIN
            # An argument usually passes the variable of its name.
            if value not in (VARIES, values.get(name.partition("--")[2])) and "$(" not in value:
                parts.append(line((f"{clip(name, 30)} ", DIM), (clip(value, 30), style)))
        return [line(" ") + join_fitting(parts, line("   "), room)] if parts else []

    def _forecast(self, room: int) -> list[Line]:
        forecast = self.context.stats.value(make_forecast)
        runs = forecast.runs if forecast else ()
        run = next((run for run in runs if run.key == self.key), None)
        if run is None or not run.epochs_left:
            return []
        span, epoch = run.remaining, run.epoch_remaining
        if span is None:
            left = formatting.count(run.epochs_left, forecast.item if forecast else "epoch")
            return [line(" ", ("remaining  ", DIM), f"{left}, ", (run.missing_reason or "", NOTE))]
        rest = line(("remaining  ", DIM), (estimates_table.approximate_text(span.median), BOLD))
        rest += line(f" ({estimates_table.range_text(span.low, span.high)})")
        end = line((f", ETA {estimates_table.run_end_text(run, self.this_year)}", DIM))
        basis = line((f"{span.quality}: from {span.source}", DIM))
        current_epoch: Line = ()
        if epoch is not None:
            number = formatting.epoch_text(run.epoch)
            current_epoch = line((f"epoch {number}  ", DIM), estimates_table.interval_text(epoch))
        parts = (rest + end, current_epoch, basis)
        return [line(" ") + join_fitting(parts, line("   "), room)]

    def _title_line(self, view: RunView, room: int) -> Line:
        row = view.row
        name, uuid = line((clip_middle(row.run, 40), BOLD)), clip(row.uuid or "", 40)
        dag, gap = line((file_name(row.dag, 40), DIM)), line("   ")
        state = self._current_state(view)
        candidates = [
            join((name, line((shown_uuid, DIM)), state), gap) for shown_uuid in (uuid, uuid[:8], "")
        ]
        for candidate in candidates:
            if width(candidate) + width(dag) + 3 <= room:
                return justify(candidate, dag, room)
        return first_that_fits(candidates, room)

    def _current_state(self, view: RunView) -> Line:
        latest, row = view.row.latest, view.row
        gate = gate_symbol(row)
        state = symbol_span(gate or STATES[row.state])
        if latest is None or row.state is not latest.state or row.epochs_done >= row.epochs_total:
            return state
        if latest.epoch is not None:
            state += line((" epoch ", DIM), str(formatting.epoch_number(latest.epoch)))
        if row.seconds is not None:
            duration = formatting.duration(row.seconds)
            lasted = line((" for ", DIM), duration)
            state += line(", ", duration, (" ago", DIM)) if row.state in TERMINAL else lasted
        if clock := self.removal_clock(latest.cluster, latest.proc):
            state += line((f", {clock}", ALARM))
        if latest.site is not None or latest.target is not None:
            on_site = latest.site is not None and latest.state not in UNPLACED
            preposition = line((" at " if on_site else " ", DIM))
            placement = latest.site, latest.target, latest.off_target
            state += preposition + site_and_target(*placement, None, latest.state)
        if gate is None and row.is_between_epochs:
            state += line(f", {formatting.BETWEEN}")
        return state

    def _progress(self, view: RunView) -> list[Line]:
        row = view.row

        def progress(bar: int, short: bool = False) -> Line:
            rendered = formatting.progress_bar(row.epochs_done, row.epochs_total, bar)
            filled = sum(rendered.count(piece) for piece in ("━", "╸", "#"))
            done = formatting.at_least(str(row.epochs_done), row.epochs_unknown > 0)
            items = f"{row.item}{'s' * (row.epochs_total != 1)}"
            long = f"{done} of {row.epochs_total} {items}"
            number = f"{done}/{row.epochs_total}" if short else long
            gap = "  " if rendered else ""
            return line((rendered[:filled], GOOD), (rendered[filled:], DIM), gap + number)

        inferred = f"   {row.epochs_inferred} inferred" if row.epochs_inferred else ""
        skipped = f"   {row.epochs_skipped} skipped" if row.epochs_skipped else ""
        execution_count = sum(epoch.attempts for epoch in view.epochs)
        executions = f"   {formatting.count(execution_count, 'execution')}"
        hours = line("   ") + gpu_hours(row.hours, least=row.lacks_hours)
        states = Counter(epoch.state for epoch in view.side)
        side = SideCounts(
            len(view.side),
            states[State.COMPLETED],
            states[State.FAILED] + states[State.REMOVED],
            sum(epoch.overruled for epoch in view.side),
        )
        failed = failed_evaluations(side)
        details = line((inferred + skipped, DIM)) + (line("   ") + failed if failed else ())
        long = progress(20) + details + line((executions, DIM)) + hours
        short = [progress(cells, short=True) + hours for cells in (6, 0)]
        return [long, progress(20) + details + hours, progress(12) + hours, *short]

    def selection(self) -> Selection:
        """The marked epochs, or the one under the cursor, with their queued jobs.

        An epoch without queued jobs has those of its last submission instead.
        """
        view, rows = self.context.feed.run_view(self.key), self.chosen_rows
        if view is None:
            return Selection("nothing")
        queued = self.context.feed.queued_jobs(self.key)
        run = (SelectedRun(view.row, queued),)
        if not rows:
            return Selection("nothing", (), self.dags_of([view.row.dag]), run)
        jobs: list[Job] = []
        for row in rows:
            jobs_of_row = [job for job in queued if job.node_key == row.node_key]
            last_jobs = [job for job in row.jobs if job[0] == row.jobs[-1][0]]
            jobs += jobs_of_row or self.job_rows(last_jobs)
        names = [
            f"epoch {formatting.epoch_number(row.epoch)}" if row.epoch is not None else row.node
            for row in rows
        ]
        text = f"{self.name_or_count(names, view.row.item)} of {clip_middle(view.row.run, 40)}"
        return Selection(text, tuple(jobs), self.dags_of(row.dag for row in rows), run)

    def open_row(self, key: str) -> None:
        row = self.row(key)
        if row is not None:
            self._open_node(row)

    def _open_node(self, row: Epoch) -> None:
        if row.jobs:
            self.context.open_screen("job", *row.jobs[-1])
            return
        reason = "was never submitted"
        if row.state is State.COMPLETED:
            rescue = next((dag.rescue for dag in self.dags_of([row.dag])), None)
            reason = f"is {formatting.done_without_job(rescue)}"
        self.show_no_job(f"this node {reason}: it has no job to open")

    def action_view(self) -> None:
        self.show_evaluations = not self.show_evaluations
        self._refresh_if_mounted()

    def action_evaluation(self) -> None:
        """Open the evaluation of the epoch under the cursor; among several, one in trouble."""
        view = self.context.feed.run_view(self.key)
        nodes = () if view is None else (*view.epochs, *view.side)
        cursor = self.table.cursor
        epoch = next((each for each in nodes if epochs_table.key_of(each) == cursor), None)
        if epoch is None:
            return
        row = epochs_table.evaluation_to_open(epoch)
        if row is not None:
            self._open_node(row)
        else:
            self.show_message("no evaluation comes directly after this node")

    def action_chart(self) -> None:
        self.show_chart = not self.show_chart
        self._refresh_if_mounted()


# --- the bar chart of execution times ----------------------------------------------------------

MAXIMUM_BAR_WIDTH: Final = 3
"""Maximum width of a bar in cells, so that few epochs do not fill the screen."""


def group_bars(rows: Sequence[Epoch], limit: int) -> list[Epoch]:
    """At most ``limit`` epochs: of groups of neighbours the one with the longest execution."""
    size = -(-len(rows) // max(1, limit))
    groups = (rows[i : i + size] for i in range(0, len(rows), size or 1))
    return [
        max(group, key=lambda row: -1.0 if row.execution is None else row.execution)
        for group in groups
    ]


def seconds_chart(rows: Sequence[Epoch], cells: int, height: int) -> list[Line]:
    """``height`` lines of bars with a scale of durations, and a line of labels below.

    A bar is the execution time of an epoch, if it is known.
    """
    top = max((row.execution or 0.0 for row in rows), default=0.0)
    scale = formatting.duration(top)
    axis = max(len(scale), 4) + 2
    rows = group_bars(rows, cells - axis)
    if not rows or top <= 0:
        return []
    bar_width = max(1, min(MAXIMUM_BAR_WIDTH, (cells - axis) // len(rows)))
    gap = 1 if bar_width > 1 else 0
    lines: list[Line] = []
    for level in reversed(range(height)):
        label = scale if level == height - 1 else "0" if level == 0 else ""
        spans = [(f"{label:>{axis - 2}} ", DIM), ("│", DIM)]
        for row in rows:
            block = EIGHTHS[filled_eighths(row.execution or 0.0, top, level, height)]
            style = style_of(STATES[row.state])
            spans.append((block * (bar_width - gap) + " " * gap, style))
        lines.append(line(*spans))
    return [*lines, line((" " * axis + _labels(rows, bar_width, cells - axis), DIM))]


def _labels(rows: Sequence[Epoch], bar_width: int, room: int) -> str:
    labels = ""
    for i, row in enumerate(rows):
        position, label = i * bar_width, _epoch_label(row)
        # Skip a label that would touch the previous one.
        if position >= len(labels) + (1 if labels else 0) and position + len(label) <= room:
            labels = labels.ljust(position) + label
    return labels


# --- execution times of epochs ---------------------------------------------------------------

CHART_LINES: Final = 5
CHART_LINES_NARROW: Final = 3
"""Lines of bars, without the heading above and the labels below."""


def _epoch_label(row: Epoch) -> str:
    return row.node if row.epoch is None else str(formatting.epoch_number(row.epoch))


def chart_title(rows: Sequence[Epoch], item: str = "epoch") -> Line:
    """``execution time by epoch   median 3:12:00   longest 11:02:47 (epoch 7)``."""
    known = [(row.execution, row) for row in rows if row.execution is not None]
    done = [seconds for seconds, row in known if row.state is State.COMPLETED]
    title = line((f"Execution time by {item}", DIM))
    if done:
        title += line(("   median ", DIM), formatting.duration(median(done)))
    if known:
        seconds, row = max(known, key=lambda pair: pair[0])
        longest = formatting.duration(seconds)
        which = f" ({item} {_epoch_label(row)})"
        title += line(("   longest ", DIM), (longest, MOVING), (which, DIM))
    return title
