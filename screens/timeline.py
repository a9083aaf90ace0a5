"""The Timeline screen: stalls, what ran when and where, and access to past states."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial, partialmethod
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace
from textual.app import ComposeResult

from metlmon.model.states import State
from metlmon.snapshot.records import Snapshot
from metlmon.stats.timeline import (
    CountStep,
    ExecutionGap,
    Lane,
    Timeline,
    TimelineSpan,
    Wait,
    job_states_at,
    timeline,
)
from metlmon.tables.epochs import name_in_run
from metlmon.tables.layout import (
    GAP,
    MARGIN,
    Column,
    TableColumn,
    dag_column,
    empty_text,
    have_same_names,
    searched,
)
from metlmon.tables.timeline_text import (
    DAYS,
    IDLE,
    TRANSFER,
    Cell,
    Sites,
    Stack,
    VisibleWindow,
    axis,
    cell_characters,
    chart,
    epoch_labels,
    full_window,
    lane_cells,
    legend,
    nice_step,
    site_symbols,
    snap_to_step,
    stacks,
    totals,
    waiting_symbols,
)
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, STATES, Symbol, clip, clip_middle
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    Line,
    TextStyle,
    crop,
    first_that_fits,
    fit,
    join,
    join_fitting,
    line,
    merge_spans,
    style_of,
    texture,
    width,
)
from screens.base.screens import ROOMY_LINES, ListScreen
from screens.widgets.line_widget import StaticLines, Table, TableRow

CURSOR: Final = TextStyle(formatting.Colour.YELLOW, formatting.Weight.BOLD)


# --- header ---------------------------------------------------------------------------------


def clock(time: datetime | None, this_year: int | None) -> str:
    """Format a time with its weekday, since stalls cluster at weekends."""
    if time is None:
        return formatting.UNKNOWN
    return f"{DAYS[time.weekday()]} {formatting.moment(time, this_year, seconds=True)}"


def headline(timeline: Timeline, room: int) -> Line:
    """Render the headline: the current stall, else the longest one or wait."""
    title = line(("Timeline", BOLD), "   ")
    if timeline.first is None:
        return title + line(("no event yet", DIM))
    if not timeline.steps:
        text = f"nothing has run yet, for {formatting.duration(timeline.seconds)}"
        return title + line((text, ALARM if timeline.waits else NOTE))
    # An interval of less than a second is not a stall.
    if (
        timeline.steps[-1].jobs == 0
        and timeline.waits
        and timeline.seconds - timeline.steps[-1].position >= 1
    ):
        return title + _stalled_now(timeline.steps[-1], timeline, room)
    if timeline.stalls:
        return title + _past_stalls(timeline.stalls, room, formatting.year_of(timeline.last))
    longest: Line = ()
    if timeline.waits:
        longest = _wait_text(timeline.waits[0]) + line((" so far", DIM))
    elif timeline.longest_wait is not None:
        longest = line(("longest wait: ", DIM)) + _wait_text(timeline.longest_wait)
    return title + join((line(("never idle", GOOD)), longest), line("   "))


def _stalled_now(last_step: CountStep, timeline: Timeline, room: int) -> Line:
    counts = dict.fromkeys((State.HELD, State.IDLE), 0)
    for wait in timeline.waits:
        counts[wait.span.state] = counts.get(wait.span.state, 0) + 1
    waiting = ", ".join(f"{n} {STATES[state].word}" for state, n in counts.items() if n)
    lasted = formatting.duration(timeline.seconds - last_step.position)
    parts = (
        line((f"idle {lasted}", ALARM)),
        line((f": {waiting}", NOTE)),
        line((", since ", DIM), clock(last_step.time, formatting.year_of(timeline.last))),
    )
    return join_fitting(parts, (), room - 11)


def _past_stalls(stalls: Sequence[ExecutionGap], room: int, this_year: int | None) -> Line:
    worst = max(stalls, key=lambda stall: stall.seconds)
    lasted = formatting.duration(worst.seconds)
    parts = [
        line((f"idle {lasted}", NOTE)),
        line(", ", formatting.period(worst.start, worst.end, this_year)),
    ]
    if len(stalls) > 1:
        total = formatting.duration(sum(stall.seconds for stall in stalls))
        times = formatting.number(len(stalls))
        parts.append(line((f" (longest of {times}, {total} in total)", DIM)))
    return join_fitting(parts, (), room - 11)


def _wait_text(wait: Wait) -> Line:
    lasted = formatting.duration(wait.span.seconds)
    name = clip_middle(wait.lane.run, 24) if wait.lane.key else "a job of no run"
    state = STATES[wait.span.state].word
    return line((name, BOLD), f" {state} for ", (lasted, NOTE))


# --- lanes and chart ------------------------------------------------------------------------


def lane_line(
    cells: Sequence[Cell], cursor: int | None, selected: bool, known_until: int | None
) -> Line:
    """Render a lane.

    ``cursor`` is the cell of the time cursor; it covers the lane only if the lane is ``selected``.
    Cells after ``known_until`` lie after the displayed moment and are dimmed.
    """
    spans: list[tuple[str, TextStyle]] = []
    for index, (character, sign) in enumerate(cells):
        style = DIM if sign is None else style_of(sign)
        if sign is not None and known_until is not None and index > known_until:
            is_waiting = sign in (IDLE, TRANSFER)
            character, style = ("╌", "·")[is_waiting], DIM
        if index == cursor and selected:
            character, style = "┃", CURSOR
        elif index == cursor and sign is None:
            character, style = "│", DIM
        spans.append((character, texture(style)))
    return merge_spans(spans)


_AXIS_LABEL: Final = re.compile(r"[^│ ]+(?: [^│ ]+)*")


def axis_line(axis: str, cursor: int | None) -> str:
    """Return the axis with the cursor mark.

    A label under the mark is omitted: ``10 Nov`` without a digit would be another day.
    """
    if cursor is None or not 0 <= cursor < len(axis):
        return axis
    for label in _AXIS_LABEL.finditer(axis):
        if label.start() <= cursor < label.end():
            axis = axis[: label.start()] + " " * len(label[0]) + axis[label.end() :]
    return axis[:cursor] + "▼" + axis[cursor + 1 :]


# --- the cursor -----------------------------------------------------------------------------


def cursor_moment(timeline: Timeline, seconds: float) -> Line:
    """Render the time of the cursor and the state of the ensemble then."""
    step = timeline.step_at(seconds)
    jobs, gpus = (0, 0) if step is None else (step.jobs, step.gpus)
    activity = "idle"
    if jobs:
        gpu_text = formatting.count(gpus, "GPU") if timeline.max_gpus else ""
        job_text = formatting.count(jobs, "job")
        activity = f"{gpu_text} in {job_text} running" if gpu_text else f"{job_text} running"
    counts = job_states_at(timeline, seconds)
    shown_states = (State.TRANSFERRING_INPUT, State.IDLE, State.HELD)
    parts = [
        line((clock(timeline.time_at(seconds), formatting.year_of(timeline.last)), BOLD)),
        line((activity, MOVING if jobs else NOTE)),
    ]
    for state in shown_states:
        if n := counts.get(state, 0):
            sign = STATES[state]
            parts.append(line((f"{sign.glyph} {n} {sign.word}", style_of(sign))))
    return join(parts, line("   "))


def lane_state_line(
    timeline: Timeline,
    lane: Lane,
    at: float,
    historical: bool,
    room: int,
    rescue: int | None = None,
) -> Line:
    """Render the state of the selected run at the time of the cursor."""
    this_year = formatting.year_of(timeline.last)
    name: Line = line((clip_middle(lane.run, 24), BOLD), "  ")
    spans = lane.spans_at(at)
    if not lane.spans and lane.state is State.COMPLETED:
        return name + line((formatting.done_without_job(rescue), DIM))
    if not spans:
        return name + line((_between(timeline, lane, at, historical), DIM))
    span = spans[0]
    state = name + _state_text(span, lane.run)
    lasted = line((" for ", DIM), formatting.duration(at - span.start_position))
    since = line((" since ", DIM), formatting.moment(span.start, this_year, seconds=True))
    total = line((" of ", DIM), formatting.duration(span.seconds))
    if span.end is None or historical:
        total = line(("" if historical else ", ongoing", DIM))
    outcome: Line = ()
    execution = span.execution
    if execution is not None and execution.end is not None and not historical:
        sign = OUTCOMES[execution.outcome]
        outcome = line((", then ", DIM), (sign.text(), style_of(sign)))
    more: Line = line((f"   +{len(spans) - 1} more", DIM)) if len(spans) > 1 else ()
    short = state + lasted + total
    full = state + since + lasted + total + outcome + more
    return first_that_fits((full, short + outcome + more, short + outcome, short, state), room)


def _node_text(span: TimelineSpan, run: str) -> str:
    """``epoch 5``, or ``eval_epoch6``: the number of a side node is not that of an epoch."""
    if span.epoch is None:
        return ""
    if not span.training and span.node is not None:
        return clip(name_in_run(run, span.node), 40)
    return f"epoch {formatting.epoch_number(span.epoch)}"


def _state_text(span: TimelineSpan, run: str) -> Line:
    sign = STATES[span.state]
    text = line((sign.text(), style_of(sign)))
    node = _node_text(span, run)
    text += line(f" {node}") if node else ()
    execution = span.execution
    if execution is not None:
        text += line((" at ", DIM), clip(execution.site, 24) if execution.site else "unknown site")
        text += line(" ", (formatting.gpus(execution.gpu, execution.gpus), DIM))
        text += line((f" try {execution.attempt}", DIM)) if execution.attempt > 1 else ()
    if span.hold_reason:
        text += line((f": {clip(span.hold_reason, 48)}", NOTE))
    return text


def _between(timeline: Timeline, lane: Lane, at: float, historical: bool) -> str:
    previous, following = lane.span_before(at), lane.span_after(at)
    if previous is None:
        if following is None or historical:
            return "not submitted yet" if lane.spans else "never submitted"
        wait = formatting.duration(following.start_position - at)
        return f"not submitted yet: that comes {wait} later"
    end = formatting.moment(previous.end, formatting.year_of(timeline.last), seconds=True)
    ended = f"no job queued since {end}" if previous.end else ""
    lasted = formatting.duration(at - previous.end_position)
    node = _node_text(previous, lane.run)
    last = f"; last: {node}" if node else ""
    if following is None and not historical and lane.state is State.COMPLETED and previous.end:
        state = "done" if lane.symbol is None else lane.symbol.word
        return f"{state} since {end}, for {lasted}{last}"
    if following is not None and not historical:
        gap = formatting.duration(following.start_position - previous.end_position)
        return f"{ended}, for {lasted} of {gap}{last}"
    return f"{ended}, for {lasted}{last}"


def _lane_names(lanes: Sequence[Lane]) -> dict[str, Line]:
    """Return the names of lanes by key, with their DAGs if runs have the same name."""
    names = {lane.key: line(clip_middle(lane.run, NAME_CELLS)) for lane in lanes}
    if not have_same_names(lanes):
        return names
    widest = max(map(width, names.values()))
    dag: Column[Lane] = dag_column(lambda lane: lane.dag, same_names=True)
    return {
        lane.key: fit(names[lane.key], widest + GAP, "left") + dag.draw(lane, DAG_CELLS)
        for lane in lanes
    }


def scale(window: VisibleWindow) -> Line:
    """Render the duration of a cell; a bar is the mean over its cell."""
    seconds = window.cell_seconds
    text = f"{seconds:.2g}s" if seconds < 10 else formatting.duration(seconds)
    return line((f"a cell is {text}, its bar the mean", DIM))


NAME_CELLS: Final = 16
"""Maximum width of a run's name; the lane needs the rest."""

DAG_CELLS: Final = 10
"""Maximum width of the name of a DAG, shown where runs have the same name."""

CHART_LINES: Final = 4
CHART_MOST: Final = 16
"""Minimum and maximum lines of the concurrency chart."""

NOTE_LINES: Final = 3
"""Lines below the chart: the rule, the moment of the cursor, and what the run was doing."""

AT_ONCE: Final = 5000
"""Maximum number of executions for which the chart is computed immediately, else in a thread."""

CLOSEST_SECONDS: Final = 0.25
"""Minimum seconds per cell; event timestamps have whole seconds."""


class _View(Struct, frozen=True):
    """The inputs of the drawing, which is redone only when they change."""

    timeline: Timeline
    window: VisibleWindow
    sites: bool
    gpus: bool


class TimelineScreen(ListScreen):
    """Runs as rows, time as the axis."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "timeline", "below")
    ORDERS = (
        ("DAG", None),
        ("name", lambda lane: (lane.run,)),
        ("latest change", lambda lane: (-(lane.changes[-1] if lane.changes else -1.0),)),
    )

    def __init__(self) -> None:
        super().__init__()
        self.by_site = False
        self.count_gpus: bool | None = None
        self.cursor_seconds: float | None = None
        self.zoom: tuple[float, float] | None = None
        self._view: _View | None = None
        self._lanes: dict[str, list[Cell]] = {}
        self._labels: dict[str, str] = {}
        self._names: dict[str, Line] = {}
        self._signs: dict[str | None, Symbol] = {}
        self._columns: list[Stack] | None = []
        self._waiting: frozenset[Symbol] = frozenset()

    def compose_body(self) -> ComposeResult:
        yield Table()
        yield StaticLines(id="chart", grows=False)

    # --- rendering --------------------------------------------------------------------------

    @property
    def present_timeline(self) -> Timeline | None:
        """The timeline up to now, even while the screens show the past."""
        return self.context.present_stats.value(timeline)

    def show(self, update: Snapshot) -> None:
        present = self.present_timeline
        if present is None or present.first is None:
            self._nothing(present, update)
            return
        moment = self.context.time_travel.moment
        if moment is not None:
            self.cursor_seconds = present.position_of(moment)
        displayed = present if moment is None else self.context.stats.value(timeline) or present
        filtered = self.filter_rows(present.drawn_lanes, _text)
        self._names = _lane_names(present.lanes)
        names = 2 + max((5, *map(width, self._names.values())))
        window = self._window(present, self.app.size.width - MARGIN - names - GAP - 1)
        self._draw(present, window)
        head = self._head(displayed)
        self.show_head(head)
        chart_height, roomy = self._share_room(len(head), len(filtered), moment is not None)
        cursor = max(0, min(window.cells - 1, window.cell(self._cursor(present))))
        known_until = None if moment is None else cursor
        time_axis = axis_line(axis(present, window), cursor)
        columns = [TableColumn("RUN", names), TableColumn(time_axis, window.cells)]
        rows = self._rows(filtered, displayed, names, cursor, known_until, roomy)
        empty = empty_text("", "No DAG here has runs.")
        if present.drawn_lanes:
            empty = empty_text("No run has this text.", "[esc] clears")
        self.table.show(columns, rows, empty)
        chart_lines: list[Line] = [()] * chart_height
        if self._columns is not None:
            chart_lines = chart(
                self._columns,
                height=chart_height,
                indent=MARGIN + names + GAP,
                unit="GPUs" if self._gpus(present) else "jobs",
                draw=lambda row: lane_line(row, cursor, False, known_until),
            )
        self.query_one("#chart", StaticLines).show(chart_lines)
        # The cursor is valid only once the table has its rows.
        self.show_note(self._note_lines(present, filtered, moment is not None))

    def _nothing(self, timeline: Timeline | None, update: Snapshot) -> None:
        self.query_one("#chart", StaticLines).show([])
        if timeline is None or not update.is_complete:
            text = empty_text("", "The times of all jobs are being added up.")
        else:
            hint = "Each run gets a lane here when its first job is submitted."
            text = empty_text("No job has an event yet.", hint)
        self.show_nothing("Timeline", text)

    def _head(self, displayed: Timeline) -> list[Line]:
        room = self.app.size.width - 2
        keys = legend(self._waiting, room, self._shown_sites)
        legend_lines = 3 if self.app.size.height >= ROOMY_LINES else 2 if self.by_site else 1
        blank: list[Line] = [()] if self.app.size.height >= ROOMY_LINES else []
        lines = [headline(displayed, room), totals(displayed)]
        return [*(line(" ") + text for text in (*lines, *keys[:legend_lines])), *blank]

    def _note_lines(
        self, timeline: Timeline, filtered: Sequence[Lane], historical: bool
    ) -> list[Line]:
        room = self.app.size.width - 2
        window = self._view.window if self._view is not None else full_window(timeline, 1)
        note = self.note_line(len(filtered), len(timeline.drawn_lanes), [scale(window)])
        cursor = self._cursor(timeline)
        selected = next((lane for lane in filtered if lane.key == self.table.cursor), None)
        doing: Line = ()
        if selected is not None:
            dags = {dag.file: dag.rescue for dag in self.context.snapshot.status.dags}
            rescue = dags.get(selected.dag)
            doing = lane_state_line(
                timeline, lane=selected, at=cursor, historical=historical, room=room, rescue=rescue
            )
        lines = [cursor_moment(timeline, cursor), doing]
        return [note, *(line(" ") + crop(text, room) for text in lines)]

    def _share_room(self, head: int, rows: int, banner: bool) -> tuple[int, bool]:
        """Return the lines of the chart, and whether each lane has a second line."""
        free = self.app.size.height - head - NOTE_LINES - 2 - banner - self.tab_lines
        roomy = 2 * rows + CHART_LINES <= free
        lane_lines = rows * (2 if roomy else 1)
        chart_lines = min(CHART_LINES, max(0, free - 4))
        lanes = max(3, min(lane_lines, free - chart_lines))
        if self.table.styles.height is None or self.table.styles.height.value != lanes + 1:
            self.table.styles.height = lanes + 1
        return max(0, min(CHART_MOST, free - lanes - (roomy and lanes + CHART_MOST < free))), roomy

    # --- drawing ----------------------------------------------------------------------------

    def _gpus(self, timeline: Timeline) -> bool:
        return timeline.max_gpus > 0 if self.count_gpus is None else self.count_gpus

    def _rows(
        self,
        filtered: Sequence[Lane],
        displayed: Timeline,
        names: int,
        cursor: int,
        known_until: int | None,
        roomy: bool,
    ) -> list[TableRow]:
        states = {lane.key: (lane.state, lane.symbol) for lane in displayed.lanes}
        rows = []
        for lane in filtered:
            state, sign = states.get(lane.key, (None, None))
            lane = replace(lane, state=state, symbol=sign)
            cells = partial(self._cells, lane, names, cursor, known_until)
            labels_line = (line((self._label(lane), DIM)) or line(" ")) if roomy else ()
            rows.append(TableRow(lane.key, cells, labels_line, MARGIN + names + GAP))
        return rows

    def _draw(self, timeline: Timeline, window: VisibleWindow) -> None:
        """Reset the drawing if its inputs changed; lanes are drawn when visible."""
        view, previous = _View(timeline, window, self.by_site, self._gpus(timeline)), self._view
        same_timeline = previous is not None and previous.timeline is timeline
        if same_timeline and view == previous:
            return
        self._view, self._lanes, self._labels = view, {}, {}
        if not same_timeline:
            self._signs = site_symbols(timeline.sites)
            self._waiting = waiting_symbols(timeline)
        work = partial(stacks, timeline, window, self._shown_sites, gpus=view.gpus)
        if len(timeline.executions) <= AT_ONCE:
            self._columns = work()
            return
        self._columns = None
        stack = partial(self._stack, view, work)
        # The default description would be the repr of all spans.
        self.run_worker(
            stack, thread=True, exclusive=True, group="chart", description="how many ran at a time"
        )

    def _stack(self, view: _View, work: Callable[[], list[Stack]]) -> None:
        """Compute the chart; runs in a thread."""
        try:
            columns = work()
        except Exception as error:
            self.call_later(self.context.show_error, "the chart failed", error)
        else:
            self.call_later(self._show_stacks, view, columns)

    def _show_stacks(self, view: _View, columns: list[Stack]) -> None:
        if self._view is view:
            self._columns = columns
            self._refresh_if_mounted()

    @property
    def _shown_sites(self) -> Sites | None:
        return self._signs if self.by_site else None

    def _label(self, lane: Lane) -> str:
        if lane.key not in self._labels and self._view is not None:
            self._labels[lane.key] = epoch_labels(lane, self._view.window)
        return self._labels.get(lane.key, "")

    def _cells(
        self, lane: Lane, names: int, cursor: int, known_until: int | None
    ) -> tuple[Line, Line]:
        if lane.key not in self._lanes and self._view is not None:
            lane_cell_list = lane_cells(lane, self._view.window, self._shown_sites)
            self._lanes[lane.key] = cell_characters(lane_cell_list, self._shown_sites)
        selected = lane.key == self.table.cursor
        bar = lane_line(
            self._lanes.get(lane.key, ()), cursor=cursor, selected=selected, known_until=known_until
        )
        sign = lane.symbol or (None if lane.state is None else STATES[lane.state])
        mark = ("  ", DIM) if sign is None else (f"{sign.glyph} ", style_of(sign))
        name = line(mark) + self._names.get(lane.key, ())
        return fit(name, names, "left"), bar

    # --- time cursor and window -------------------------------------------------------------

    def _cursor(self, timeline: Timeline) -> float:
        """Return the cursor in seconds since the start; None follows the end."""
        end, cursor = timeline.seconds, self.cursor_seconds
        return end if cursor is None else max(0.0, min(cursor, end))

    def _window(self, timeline: Timeline, cell_count: int) -> VisibleWindow:
        """Return the visible window: all, or the zoomed part around the cursor."""
        full = full_window(timeline, max(10, cell_count))
        if self.zoom is None or self.zoom[1] >= full.cell_seconds:
            self.zoom = None
            return full
        start, cell_seconds = self.zoom
        length, cursor = cell_seconds * full.cells, self._cursor(timeline)
        if not start <= cursor <= start + length:
            start = cursor - length / 2
        start = max(0.0, min(start, full.end - length))
        self.zoom = (start, cell_seconds)
        return VisibleWindow(start, cell_seconds, full.cells)

    def _go(self, seconds: float) -> None:
        """Move the cursor; in the past, all screens follow."""
        timeline = self.present_timeline
        if timeline is None or timeline.first is None:
            return
        self._message = ""
        seconds = max(0.0, min(seconds, timeline.seconds))
        self.cursor_seconds = None if seconds >= timeline.seconds else seconds
        travel = self.context.time_travel
        moment = timeline.time_at(seconds)
        if travel.active and self.cursor_seconds is None:
            travel.return_to_now()
        elif travel.active and moment is not None:
            travel.load(moment)
        self._refresh_if_mounted()

    def _by_cells(self, count: int) -> None:
        if (view := self._view) is None:
            return
        step = nice_step(view.window.cell_seconds)
        current = self._cursor(view.timeline)
        target = snap_to_step(view.timeline, current + count * view.window.cell_seconds, step)
        if (target - current) * count <= 0:
            target = current + (step if count > 0 else -step)
        self._go(target)

    def _by_tenths(self, count: int) -> None:
        tenth = self._view.window.cells // 10 if self._view is not None else 2
        self._by_cells(count * max(2, tenth))

    action_before = partialmethod(_by_cells, -1)
    action_after = partialmethod(_by_cells, 1)
    action_far_before = partialmethod(_by_tenths, -1)
    action_far_after = partialmethod(_by_tenths, 1)

    def _selected_lane(self) -> Lane | None:
        lanes = () if self.present_timeline is None else self.present_timeline.lanes
        return next((lane for lane in lanes if lane.key == self.table.cursor), None)

    def _to_change(self, direction: int) -> None:
        lane, timeline = self._selected_lane(), self.present_timeline
        if lane is None or timeline is None:
            return
        cursor = self._cursor(timeline)
        times = [time for time in lane.changes if (time - cursor) * direction > 1e-6]
        if times:
            self._go(times[0 if direction > 0 else -1])
        else:
            when = "after" if direction > 0 else "before"
            self.show_message(f"nothing happened to this run {when}")

    action_change_before = partialmethod(_to_change, -1)
    action_change_after = partialmethod(_to_change, 1)

    def action_stall(self) -> None:
        timeline = self.present_timeline
        if timeline is None:
            return
        worst = max(timeline.stalls, key=lambda stall: stall.seconds, default=None)
        if worst is None:
            self.show_message("there was always something running")
        else:
            self._go(worst.start_position)

    def _zoom(self, factor: float) -> None:
        if (view := self._view) is None:
            return
        window, cursor = view.window, self._cursor(view.timeline)
        cell_seconds = window.cell_seconds / factor
        if cell_seconds < CLOSEST_SECONDS and factor > 1:
            self.show_message("closer than this there is nothing to see")
            return
        # The cursor keeps its screen position.
        self.zoom = (cursor - (cursor - window.start) / factor, cell_seconds)
        self._refresh_if_mounted()

    action_zoom_in = partialmethod(_zoom, 2.0)
    action_zoom_out = partialmethod(_zoom, 0.5)

    def action_whole(self) -> None:
        self.zoom = None
        self._refresh_if_mounted()

    def _pan(self, direction: int) -> None:
        if (view := self._view) is None:
            return
        if self.zoom is None:
            self.show_message("all of it is in view: + zooms in")
            return
        timeline, window = view.timeline, view.window
        length = window.cell_seconds * window.cells
        start = max(0.0, min(window.start + direction * length / 2, timeline.seconds - length))
        shift = start - window.start
        self.zoom = (start, window.cell_seconds)
        self._go(self._cursor(timeline) + shift)

    action_pan_left = partialmethod(_pan, -1)
    action_pan_right = partialmethod(_pan, 1)

    # --- other actions ----------------------------------------------------------------------

    def action_view(self) -> None:
        self.by_site = not self.by_site
        self._refresh_if_mounted()

    def action_units(self) -> None:
        timeline = self.present_timeline
        if timeline is not None:
            self.count_gpus = not self._gpus(timeline)
            self._refresh_if_mounted()

    def action_travel(self) -> None:
        timeline, travel = self.present_timeline, self.context.time_travel
        if travel.active:
            travel.return_to_now()
        elif timeline is not None and self.cursor_seconds is not None:
            moment = timeline.time_at(self._cursor(timeline))
            if moment is not None:
                travel.load(moment)
        else:
            self.show_message("the cursor is at now: left goes back in time")

    def open_row(self, key: str) -> None:
        timeline = self.present_timeline
        lane = self._selected_lane()
        if timeline is None or lane is None:
            return
        spans = lane.spans_at(self._cursor(timeline))
        if spans:
            self.context.open_screen("job", *spans[0].job)
        elif key:
            self.context.open_screen("run", key)
        else:
            self.show_message("no job was in the queue then: there is nothing to open")


def _text(lane: Lane) -> str:
    state = STATES[lane.state].word if lane.state is not None else None
    sign = lane.symbol.word if lane.symbol is not None else None
    return searched(lane.run, lane.uuid, lane.dag, state, sign)
