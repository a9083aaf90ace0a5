"""The Timeline screen: stalls, and navigation to past states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, partialmethod
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace
from textual.app import ComposeResult

from metlmon.live.feed import Snapshot
from metlmon.stats.timeline import Lane, Timeline, timeline
from metlmon.tables.layout import GAP, MARGIN, TableColumn
from metlmon.tables.timeline_text import (
    SIGNS,
    Cell,
    CellKind,
    SignOf,
    Stack,
    VisibleWindow,
    axis,
    cell_characters,
    epoch_labels,
    full_window,
    lane_cells,
    nice_step,
    non_execution_kinds,
    outcome_symbol,
    site_symbol,
    site_symbols,
    snap_to_step,
    stacks,
)
from metlmon.text.formatting import STATES, Symbol, clip
from metlmon.text.spans import DIM, Line, crop, fit, line, style_of, width
from screens.base.screens import ListScreen
from screens.base.stats_worker import Memo
from screens.timeline import lines as timeline_lines
from screens.widgets.line_widget import StaticLines
from screens.widgets.table import LazyRows, Table, TableRow

ROOMY_LINES: Final = 30
"""Minimum height for blank lines between the parts."""

NAME_CELLS: Final = 16
"""Maximum width of a run's name; the lane needs the rest."""

CHART_LINES: Final = 4
CHART_MOST: Final = 16
"""Lines of the concurrency chart, at least and at most."""

NOTE_LINES: Final = 3
"""Lines below the chart: the rule, the moment of the cursor, and what the run was doing."""

AT_ONCE: Final = 5000
"""Up to this number of executions, the chart is computed at once, else in a thread."""

CLOSEST_SECONDS: Final = 0.25
"""Minimum seconds per cell; event timestamps have whole seconds."""

OUTCOMES: Final = (SIGNS[CellKind.GOOD], SIGNS[CellKind.FLYING], SIGNS[CellKind.LOST])


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
        ("name", lambda lane: (lane.name,)),
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
        self._row_memo: Memo[LazyRows] = Memo()
        self._name_width: Memo[int] = Memo()
        self._signs: dict[str | None, Symbol] = {}
        self._columns: list[Stack] | None = []
        self._kinds: frozenset[CellKind] = frozenset()

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield StaticLines(id="chart", grows=False)
        yield from self.compose_foot()

    # --- rendering --------------------------------------------------------------------------

    @property
    def present_timeline(self) -> Timeline | None:
        """The timeline up to now, even while the screens show the past."""
        return self.context.present_stats.value(timeline)

    def show(self, update: Snapshot | None) -> None:
        present = self.present_timeline
        if present is None or present.first is None:
            self._nothing(present, update)
            return
        moment = self.context.time_travel.moment
        if moment is not None:
            self.cursor_seconds = present.position_of(moment)
        displayed = present if moment is None else self.context.stats.value(timeline) or present
        filtered = self.filter_rows(present.lanes, _text)
        names = self._name_width(partial(self._name_cells, present), present)
        window = self._window(present, self.app.size.width - MARGIN - names - GAP - 1)
        self._draw(present, window)
        head = self._head(displayed)
        self.show_head(head)
        chart, roomy = self._share_room(len(head), len(filtered), moment is not None)
        cursor = max(0, min(window.cells - 1, window.cell(self._cursor(present))))
        known_until = None if moment is None else cursor
        time_axis = timeline_lines.axis_line(axis(present, window), cursor)
        columns = [TableColumn("RUN", names), TableColumn(time_axis, window.cells)]
        rows = self._row_memo(
            partial(self._rows, filtered, displayed, names, cursor, known_until, roomy),
            *(self._view, displayed, names, cursor, known_until, roomy),
            *(self.filter_text, self.sort_index, self.sort_reversed),
        )
        self.table.show(columns, rows, self._empty(present))
        chart_lines: list[Line] = [()] * chart
        if self._columns is not None:
            chart_lines = timeline_lines.chart(
                self._columns,
                height=chart,
                indent=MARGIN + names + GAP,
                unit="GPUs" if self._gpus(present) else "jobs",
                cursor=cursor,
                known_until=known_until,
            )
        self.query_one("#chart", StaticLines).show(chart_lines)
        # The cursor is valid only once the table has its rows.
        self.show_note(self._note_lines(present, filtered, moment is not None))

    def _nothing(self, timeline: Timeline | None, update: Snapshot | None) -> None:
        self.query_one("#chart", StaticLines).show([])
        reading = timeline is None or update is None or not update.is_complete
        if reading:
            text = [line("  ", ("The times of all jobs are being added up.", DIM))]
            self.show_nothing("Timeline", "", text)
        else:
            text = [
                line("  ", "No job has an event yet."),
                line("  ", ("Each run gets a lane here when its first job is submitted.", DIM)),
            ]
            self.show_nothing("Timeline", "nothing has happened yet", text)

    def _head(self, displayed: Timeline) -> list[Line]:
        room = self.app.size.width - 2
        signs = list(self._signs.values()) if self.by_site else list(OUTCOMES)
        legend = timeline_lines.legend(signs, self._kinds, room, self.by_site)
        legend_lines = 3 if self.app.size.height >= ROOMY_LINES else 2 if self.by_site else 1
        blank: list[Line] = [()] if self.app.size.height >= ROOMY_LINES else []
        lines = [
            timeline_lines.headline(displayed, room),
            timeline_lines.totals(displayed),
        ]
        return [*(line(" ") + text for text in (*lines, *legend[:legend_lines])), *blank]

    def _note_lines(
        self, timeline: Timeline, filtered: Sequence[Lane], historical: bool
    ) -> list[Line]:
        room = self.app.size.width - 2
        window = self._view.window if self._view is not None else full_window(timeline, 1)
        note = self.note_line(len(filtered), len(timeline.lanes), [timeline_lines.scale(window)])
        cursor = self._cursor(timeline)
        selected = next((lane for lane in filtered if lane.key == self.table.cursor), None)
        doing: Line = ()
        if selected is not None:
            status = self.context.snapshot.status if self.context.snapshot else None
            dags = {dag.file: dag.rescue for dag in (status.dags if status else ())}
            rescue = dags.get(selected.dag)
            doing = timeline_lines.lane_state_line(
                timeline, lane=selected, at=cursor, historical=historical, room=room, rescue=rescue
            )
        lines = [timeline_lines.cursor_moment(timeline, cursor), doing]
        return [note, *(line(" ") + crop(text, room) for text in lines)]

    def _empty(self, timeline: Timeline) -> list[Line]:
        if timeline.lanes:
            return [line("  ", "No run has this text."), line("  ", ("[esc] clears", DIM))]
        return [line("  ", ("No DAG here has runs.", DIM))]

    def _name_cells(self, timeline: Timeline) -> int:
        names = (width(line(clip(lane.name, NAME_CELLS))) for lane in timeline.lanes)
        return 2 + max((*names, 5), default=5)

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
    ) -> LazyRows:
        states = {lane.key: lane for lane in displayed.lanes}

        def table_row(index: int) -> TableRow:
            displayed_lane = states.get(filtered[index].key)
            state = None if displayed_lane is None else displayed_lane.state
            sign = None if displayed_lane is None else displayed_lane.symbol
            lane = replace(filtered[index], state=state, symbol=sign)
            cells = partial(self._cells, lane, names, cursor, known_until)
            labels_line = (line((self._label(lane), DIM)) or line(" ")) if roomy else ()
            return TableRow(lane.key, cells, labels_line, MARGIN + names + GAP)

        return LazyRows(
            [lane.key for lane in filtered], [2 if roomy else 1] * len(filtered), table_row
        )

    def _draw(self, timeline: Timeline, window: VisibleWindow) -> None:
        """Reset the drawing if its inputs changed; lanes are drawn when visible."""
        view, previous = _View(timeline, window, self.by_site, self._gpus(timeline)), self._view
        same_timeline = previous is not None and previous.timeline is timeline
        if same_timeline and view == previous:
            return
        self._view, self._lanes, self._labels = view, {}, {}
        if not same_timeline:
            self._signs = site_symbols(timeline.sites)
            self._kinds = non_execution_kinds(timeline)
        order = list(self._signs.values()) if self.by_site else list(OUTCOMES)
        work = partial(stacks, timeline, window, self._sign_of, order, view.gpus)
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
            return
        self.call_later(self._show_stacks, view, columns)

    def _show_stacks(self, view: _View, columns: list[Stack]) -> None:
        if self._view is view:
            self._columns = columns
            self._refresh_if_mounted()

    @property
    def _sign_of(self) -> SignOf:
        return site_symbol(self._signs) if self.by_site else outcome_symbol

    def _label(self, lane: Lane) -> str:
        if lane.key not in self._labels and self._view is not None:
            self._labels[lane.key] = epoch_labels(lane, self._view.window)
        return self._labels.get(lane.key, "")

    def _cells(
        self, lane: Lane, names: int, cursor: int, known_until: int | None
    ) -> tuple[Line, Line]:
        if lane.key not in self._lanes and self._view is not None:
            lane_cell_list = lane_cells(lane, self._view.window, self._sign_of)
            signs = self._signs.values() if self.by_site else ()
            self._lanes[lane.key] = cell_characters(lane_cell_list, signs)
        selected = lane.key == self.table.cursor
        bar = timeline_lines.lane_line(
            self._lanes.get(lane.key, ()), cursor=cursor, selected=selected, known_until=known_until
        )
        sign = lane.symbol or (None if lane.state is None else STATES[lane.state])
        mark = ("  ", DIM) if sign is None else (f"{sign.glyph} ", style_of(sign))
        name = line(mark, clip(lane.name, NAME_CELLS))
        return fit(name, names, "left"), bar

    # --- time cursor and window -------------------------------------------------------------

    def _cursor(self, timeline: Timeline) -> float:
        """Return the cursor in seconds since the start; None follows the end."""
        return (
            timeline.length
            if self.cursor_seconds is None
            else max(0.0, min(self.cursor_seconds, timeline.length))
        )

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
        seconds = max(0.0, min(seconds, timeline.length))
        self.cursor_seconds = None if seconds >= timeline.length else seconds
        travel = self.context.time_travel
        moment = timeline.time_at(seconds)
        if travel.active and self.cursor_seconds is None:
            travel.return_to_now()
        elif travel.active and moment is not None:
            travel.load(moment)
        self._refresh_if_mounted()

    def _by_cells(self, count: int) -> None:
        timeline, view = self.present_timeline, self._view
        if timeline is None or view is None:
            return
        step = nice_step(view.window.cell_seconds)
        current = self._cursor(timeline)
        target = snap_to_step(timeline, current + count * view.window.cell_seconds, step)
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
            self.show_message(
                f"nothing happened to this run {'after' if direction > 0 else 'before'}"
            )

    action_change_before = partialmethod(_to_change, -1)
    action_change_after = partialmethod(_to_change, 1)

    def action_stall(self) -> None:
        timeline = self.present_timeline
        if timeline is None:
            return
        worst = max(timeline.gaps, key=lambda stall: stall.seconds, default=None)
        if worst is None:
            self.show_message("there was always something running")
        else:
            self._go(worst.start_position)

    def _zoom(self, factor: float) -> None:
        timeline, view = self.present_timeline, self._view
        if timeline is None or view is None:
            return
        window, cursor = view.window, self._cursor(timeline)
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
        timeline, view = self.present_timeline, self._view
        if timeline is None or view is None:
            return
        if self.zoom is None:
            self.show_message("all of it is in view: + zooms in")
            return
        window = view.window
        length = window.cell_seconds * window.cells
        start = max(0.0, min(window.start + direction * length / 2, timeline.length - length))
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
    parts = [
        lane.name,
        lane.uuid or "",
        lane.dag,
        "" if lane.state is None else STATES[lane.state].word,
        "" if lane.symbol is None else lane.symbol.word,
    ]
    return "\n".join(parts).lower()
