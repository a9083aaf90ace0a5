"""Timeline: when did it stall, and the way into the past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.frozen import frozen
from metlmon.live.feed import Snapshot
from metlmon.stats.timeline import Lane, Timeline, timeline
from metlmon.stats.timeline_text import (
    SIGNS,
    Cell,
    CellKind,
    SignOf,
    Stack,
    VisibleWindow,
    axis,
    by_outcome,
    by_site,
    epoch_labels,
    kinds_beside,
    lane_cells,
    lettered,
    nice_step,
    site_signs,
    snapped,
    stacks,
    whole,
)
from metlmon.text.formatting import STATES, Symbol, plain
from screens.actions import bindings_of
from screens.base.memo import Memo
from screens.base.screens import ListScreen
from screens.timeline import lines as timeline_lines
from screens.widgets.footer import KeyFooter
from screens.widgets.lines import StaticLines
from screens.widgets.spans import BOLD, DIM, Line, crop, fit, line, style_of, width
from screens.widgets.table import GAP, MARGIN, Rows, Table, TableColumn, TableRow

ROOMY_LINES: Final = 30
"""From this height on, blank lines set the parts apart."""

NAME_CELLS: Final = 16
"""A run's name is cut here: the lane is what the screen is for."""

CHART_LINES: Final = 4
CHART_MOST: Final = 16
"""Of the chart of how many ran at a time: where there is little room, and where there is much."""

AT_ONCE: Final = 5000
"""Executions that are stacked at once; of more the chart comes a moment later, from a thread."""

CLOSEST: Final = 0.25
"""Seconds of a cell beyond which zooming in shows nothing more: stamps are whole seconds."""

OUTCOMES: Final = (SIGNS[CellKind.GOOD], SIGNS[CellKind.FLYING], SIGNS[CellKind.LOST])


@frozen
class _View:
    """What is drawn: made anew only when it differs."""

    made: Timeline
    window: VisibleWindow
    sites: bool
    gpus: bool


class TimelineScreen(ListScreen):
    """Runs as rows, time as the axis."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "timeline", "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("list", "timeline", "below")]
    ORDERS = (
        ("DAG", None),
        ("name", lambda lane: (lane.name,)),
        ("latest change", lambda lane: (-(lane.changes[-1] if lane.changes else -1.0),)),
    )

    def __init__(self) -> None:
        super().__init__()
        self.sites = False
        self.gpus: bool | None = None
        self.at: float | None = None
        self.zoom: tuple[float, float] | None = None
        self._view: _View | None = None
        self._lanes: dict[str, list[Cell]] = {}
        self._labels: dict[str, str] = {}
        self._listed: Memo[Rows] = Memo()
        self._named: Memo[int] = Memo()
        self._signs: dict[str | None, Symbol] = {}
        self._columns: list[Stack] | None = []
        self._kinds: frozenset[CellKind] = frozenset()

    def keys(self) -> KeyFooter:
        """Without the way to itself."""
        return KeyFooter((*self.SCOPES, "everywhere"), without=("timeline",))

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield StaticLines(id="chart", grows=False)
        yield from self.foot()

    # --- what is shown ----------------------------------------------------------------------

    @property
    def made(self) -> Timeline | None:
        """The whole story: it goes on to now also where the screens show the past, so that
        one can go forward again."""
        return self.monitor.present_study.of(timeline)

    def show(self, update: Snapshot | None) -> None:
        made = self.made
        if made is None or made.first is None:
            self._nothing(made, update)
            return
        moment = self.monitor.travel.moment
        if moment is not None:
            self.at = made.seconds(moment)
        then = made if moment is None else self.monitor.study.of(timeline) or made
        kept = self.kept(made.lanes, _text)
        names = self._named(partial(self._name_cells, made), made)
        window = self._window(made, self.app.size.width - MARGIN - names - GAP - 1)
        self._draw(made, window)
        head = self._head(then)
        note = self._note_lines(made, kept, moment is not None)
        self.query_one("#head", StaticLines).show(head)
        chart, roomy = self._share_room(len(head), len(note), len(kept), moment is not None)
        cursor = max(0, min(window.cells - 1, window.cell(self._cursor(made))))
        known = None if moment is None else cursor
        columns = [
            TableColumn("RUN", names),
            TableColumn(
                timeline_lines.axis_line(axis(made, window, self.ascii), cursor, self.ascii),
                window.cells,
            ),
        ]
        rows = self._listed(
            partial(self._rows, kept, then, names, cursor, known, roomy),
            *(self._view, then, names, cursor, known, roomy),
            *(self.wanted, self.order, self.reversed),
        )
        self.table.show(columns, rows, self._empty(made))
        unit = "GPUs" if self._gpus(made) else "jobs"
        indent = MARGIN + names + GAP
        drawn: list[Line] = [()] * chart
        if self._columns is not None:
            drawn = timeline_lines.chart(
                self._columns, chart, indent, unit, cursor, known, self.ascii
            )
        self.query_one("#chart", StaticLines).show(drawn)
        # What is under the cursor is known when the table has its rows.
        self.query_one("#note", StaticLines).show(self._note_lines(made, kept, moment is not None))

    def _nothing(self, made: Timeline | None, update: Snapshot | None) -> None:
        self.query_one("#chart", StaticLines).show([])
        waits = made is None or update is None or update.progress.fraction < 1
        first = ("", DIM) if waits else ("nothing has happened yet", DIM)
        self.query_one("#head", StaticLines).show([line(" ", ("Timeline", BOLD), "   ", first), ()])
        if waits:
            told = [line("  ", ("The times of all jobs are being added up.", DIM))]
        else:
            told = [
                line("  ", "No job has an event yet."),
                line("  ", ("Each run gets a lane here when its first job is submitted.", DIM)),
            ]
        self.table.show([], [], told)
        self.query_one("#note", StaticLines).show([self.note(0, 0)])

    def _head(self, then: Timeline) -> list[Line]:
        room, ascii = self.app.size.width - 2, self.ascii
        signs = list(self._signs.values()) if self.sites else list(OUTCOMES)
        keys = timeline_lines.legend(signs, self._kinds, room, ascii, self.sites)
        most = 3 if self.app.size.height >= ROOMY_LINES else 2 if self.sites else 1
        blank: list[Line] = [()] if self.app.size.height >= ROOMY_LINES else []
        lines = [timeline_lines.answer(then, room, ascii), timeline_lines.totals(then, ascii)]
        return [*(line(" ") + each for each in (*lines, *keys[:most])), *blank]

    def _note_lines(self, made: Timeline, kept: Sequence[Lane], then: bool) -> list[Line]:
        ascii, room = self.ascii, self.app.size.width - 2
        window = self._view.window if self._view is not None else whole(made, 1)
        note = self.note(len(kept), len(made.lanes), [timeline_lines.scale(window, ascii)])
        at = self._cursor(made)
        under = next((lane for lane in kept if lane.key == self.table.cursor), None)
        doing: Line = ()
        if under is not None:
            status = self.monitor.picture.status if self.monitor.picture else None
            dags = {dag.file: dag.rescue for dag in (status.dags if status else ())}
            rescue = dags.get(under.dag)
            doing = timeline_lines.doing(made, under, at, then, room, ascii, rescue)
        lines = [timeline_lines.around(made, at, ascii), doing]
        return [note, *(line(" ") + crop(each, room, ascii) for each in lines)]

    def _empty(self, made: Timeline) -> list[Line]:
        if made.lanes:
            return [line("  ", "No run has this text."), line("  ", ("esc clears", DIM))]
        return [line("  ", ("No DAG here has runs.", DIM))]

    def _name_cells(self, made: Timeline) -> int:
        names = (width(line(plain(lane.name, NAME_CELLS, self.ascii))) for lane in made.lanes)
        return 2 + max((*names, 5), default=5)

    def _share_room(self, head: int, note: int, rows: int, banner: bool) -> tuple[int, bool]:
        """Lines for the chart, and whether each lane has a second line."""
        left = self.app.size.height - head - note - 2 - banner
        roomy = 2 * rows + CHART_LINES <= left
        wanted = rows * (2 if roomy else 1)
        least = min(CHART_LINES, max(0, left - 4))
        lanes = max(3, min(wanted, left - least))
        if self.table.styles.height is None or self.table.styles.height.value != lanes + 1:
            self.table.styles.height = lanes + 1
        return max(0, min(CHART_MOST, left - lanes - (roomy and lanes + CHART_MOST < left))), roomy

    # --- drawing ----------------------------------------------------------------------------

    def _gpus(self, made: Timeline) -> bool:
        return made.max_gpus > 0 if self.gpus is None else self.gpus

    def _rows(
        self,
        kept: Sequence[Lane],
        then: Timeline,
        names: int,
        cursor: int,
        known: int | None,
        roomy: bool,
    ) -> Rows:
        states = {lane.key: lane for lane in then.lanes}

        def made(at: int) -> TableRow:
            known_then = states.get(kept[at].key)
            state = None if known_then is None else known_then.state
            sign = None if known_then is None else known_then.sign
            lane = replace(kept[at], state=state, sign=sign)
            cells = partial(self._cells, lane, names, cursor, known)
            below = (line((self._label(lane), DIM)) or line(" ")) if roomy else ()
            return TableRow(lane.key, cells, below, MARGIN + names + GAP)

        return Rows([lane.key for lane in kept], [2 if roomy else 1] * len(kept), made)

    def _draw(self, made: Timeline, window: VisibleWindow) -> None:
        """Forget what was drawn for something else; lanes are drawn when they are in view."""
        view, before = _View(made, window, self.sites, self._gpus(made)), self._view
        known = before is not None and before.made is made
        if known and view == before:
            return
        self._view, self._lanes, self._labels = view, {}, {}
        if not known:
            self._signs = site_signs(made.sites)
            self._kinds = kinds_beside(made)
        order = list(self._signs.values()) if self.sites else list(OUTCOMES)
        work = partial(stacks, made, window, self._sign_of, order, view.gpus)
        if len(made.ran) <= AT_ONCE:
            self._columns = work()
            return
        self._columns = None
        stack = partial(self._stack, view, work)
        # Without a description the worker makes one: the repr of all spans there are.
        self.run_worker(
            stack, thread=True, exclusive=True, group="chart", description="how many ran at a time"
        )

    def _stack(self, view: _View, work: Callable[[], list[Stack]]) -> None:
        """Called in a thread."""
        try:
            made = work()
        except Exception as error:
            self.monitor.call_later(self.monitor.tell_mishap, "the chart failed", error)
            return
        self.call_later(self._stacked, view, made)

    def _stacked(self, view: _View, columns: list[Stack]) -> None:
        if self._view is view:
            self._columns = columns
            self._again()

    @property
    def _sign_of(self) -> SignOf:
        return by_site(self._signs) if self.sites else by_outcome

    def _label(self, lane: Lane) -> str:
        if lane.key not in self._labels and self._view is not None:
            self._labels[lane.key] = epoch_labels(lane, self._view.window)
        return self._labels.get(lane.key, "")

    def _cells(self, lane: Lane, names: int, cursor: int, known: int | None) -> tuple[Line, Line]:
        if lane.key not in self._lanes and self._view is not None:
            drawn = lane_cells(lane, self._view.window, self._sign_of)
            signs = self._signs.values() if self.sites else ()
            self._lanes[lane.key] = lettered(drawn, self.ascii, signs)
        selected = lane.key == self.table.cursor
        bar = timeline_lines.lane_line(
            self._lanes.get(lane.key, ()), cursor, selected, known, self.ascii
        )
        sign = lane.sign or (None if lane.state is None else STATES[lane.state])
        mark = ("  ", DIM) if sign is None else (f"{sign.mark(self.ascii)} ", style_of(sign))
        name = line(mark, plain(lane.name, NAME_CELLS, self.ascii))
        return fit(name, names, "left", self.ascii), bar

    # --- where the cursor is ----------------------------------------------------------------

    def _cursor(self, made: Timeline) -> float:
        """Seconds since the first moment; at the end it goes along with it."""
        return made.length if self.at is None else max(0.0, min(self.at, made.length))

    def _window(self, made: Timeline, cells: int) -> VisibleWindow:
        """What is in view: everything, or what was zoomed to, the cursor in it."""
        full = whole(made, max(10, cells))
        if self.zoom is None or self.zoom[1] >= full.each:
            self.zoom = None
            return full
        start, each = self.zoom
        length, at = each * full.cells, self._cursor(made)
        if not start <= at <= start + length:
            start = at - length / 2
        start = max(0.0, min(start, full.end - length))
        self.zoom = (start, each)
        return VisibleWindow(start, each, full.cells)

    def _go(self, at: float) -> None:
        """The cursor to this moment; in the past, all screens with it."""
        made = self.made
        if made is None or made.first is None:
            return
        self._said = ""
        at = max(0.0, min(at, made.length))
        self.at = None if at >= made.length else at
        travel = self.monitor.travel
        moment = made.moment(at)
        if travel.away and self.at is None:
            travel.come_back()
        elif travel.away and moment is not None:
            travel.go(moment)
        self._again()

    def _by_cells(self, cells: int) -> None:
        made, view = self.made, self._view
        if made is None or view is None:
            return
        step = nice_step(view.window.each)
        here = self._cursor(made)
        there = snapped(made, here + cells * view.window.each, step)
        if (there - here) * cells <= 0:
            there = here + (step if cells > 0 else -step)
        self._go(there)

    def action_before(self) -> None:
        self._by_cells(-1)

    def action_after(self) -> None:
        self._by_cells(1)

    def _tenth(self) -> int:
        return max(2, self._view.window.cells // 10) if self._view is not None else 2

    def action_far_before(self) -> None:
        self._by_cells(-self._tenth())

    def action_far_after(self) -> None:
        self._by_cells(self._tenth())

    def _under(self) -> Lane | None:
        lanes = () if self.made is None else self.made.lanes
        return next((lane for lane in lanes if lane.key == self.table.cursor), None)

    def action_change_before(self) -> None:
        lane, made = self._under(), self.made
        if lane is not None and made is not None:
            earlier = [at for at in lane.changes if at < self._cursor(made) - 1e-6]
            if earlier:
                self._go(earlier[-1])
            else:
                self.say("nothing happened to this run before")

    def action_change_after(self) -> None:
        lane, made = self._under(), self.made
        if lane is not None and made is not None:
            later = [at for at in lane.changes if at > self._cursor(made) + 1e-6]
            if later:
                self._go(later[0])
            else:
                self.say("nothing happened to this run after")

    def action_stall(self) -> None:
        made = self.made
        if made is None:
            return
        worst = max(made.stalls, key=lambda stall: stall.seconds, default=None)
        if worst is None:
            self.say("there was always something running")
        else:
            self._go(worst.at)

    def _zoom(self, factor: float) -> None:
        made, view = self.made, self._view
        if made is None or view is None:
            return
        window, at = view.window, self._cursor(made)
        each = window.each / factor
        if each < CLOSEST and factor > 1:
            self.say("closer than this there is nothing to see")
            return
        # The cursor keeps its place on the screen.
        self.zoom = (at - (at - window.start) / factor, each)
        self._again()

    def action_zoom_in(self) -> None:
        self._zoom(2.0)

    def action_zoom_out(self) -> None:
        self._zoom(0.5)

    def action_whole(self) -> None:
        self.zoom = None
        self._again()

    def _pan(self, by: int) -> None:
        made, view = self.made, self._view
        if made is None or view is None:
            return
        if self.zoom is None:
            self.say("all of it is in view: + zooms in")
            return
        window = view.window
        length = window.each * window.cells
        start = max(0.0, min(window.start + by * length / 2, made.length - length))
        moved = start - window.start
        self.zoom = (start, window.each)
        self._go(self._cursor(made) + moved)

    def action_pan_left(self) -> None:
        self._pan(-1)

    def action_pan_right(self) -> None:
        self._pan(1)

    # --- what else --------------------------------------------------------------------------

    def action_by(self) -> None:
        self.sites = not self.sites
        self._again()

    def action_units(self) -> None:
        made = self.made
        if made is not None:
            self.gpus = not self._gpus(made)
            self._again()

    def action_view(self) -> None:
        made, travel = self.made, self.monitor.travel
        if travel.away:
            travel.come_back()
        elif made is not None and self.at is not None:
            moment = made.moment(self._cursor(made))
            if moment is not None:
                travel.go(moment)
        else:
            self.say("the cursor is at now: left goes back in time")

    def open(self, key: str) -> None:
        made = self.made
        lane = self._under()
        if made is None or lane is None:
            return
        spans = lane.then(self._cursor(made))
        if spans:
            self.monitor.open_job(*spans[0].job)
        elif key:
            self.monitor.open_run(key)
        else:
            self.say("no job was in the queue then: there is nothing to open")


def _text(lane: Lane) -> str:
    parts = [
        lane.name,
        lane.uuid or "",
        lane.dag,
        "" if lane.state is None else STATES[lane.state].word,
        "" if lane.sign is None else lane.sign.word,
    ]
    return "\n".join(parts).lower()
