"""One run: what happened to this model, epoch by epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.jobfiles.records import Streamed
from metlmon.live.feed import Snapshot
from metlmon.model.job_events import JobId
from metlmon.model.states import TERMINAL, UNPLACED, State
from metlmon.pool.types import SelectedRun
from metlmon.snapshot.gate_text import gate_sign
from metlmon.snapshot.types import EpochRow, JobRow, RunRow, RunView, SideCounts
from metlmon.stats import estimate_text
from metlmon.stats.curves import streams
from metlmon.stats.estimates import outlook
from metlmon.stats.evaluations import EvaluationResult, evaluations
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain
from screens.actions import bindings_of
from screens.base.action_screen import ACTING, ActionScreen
from screens.base.column_layout import ColumnSpec, cells, columns, fit_columns
from screens.base.memo import Memo
from screens.base.screens import ListScreen
from screens.job import queue_text
from screens.overview import header as overview_header
from screens.overview import table as overview_table
from screens.overview.header import gpu_hours
from screens.overview.table import between, place
from screens.pool_actions.running_action import Selection
from screens.run import table as run_table
from screens.run.bar_chart import seconds_chart
from screens.widgets.footer import KeyFooter
from screens.widgets.lines import StaticLines
from screens.widgets.spans import (
    BOLD,
    DIM,
    GOOD,
    NOTE,
    Line,
    file_name,
    first_that_fits,
    joined,
    line,
    spread,
    symbol_span,
    width,
)
from screens.widgets.table import GAP, MARGIN, Rows, Table, TableRow

OF_EVALUATIONS: Final = frozenset({"evaluations", "evaluation"})
"""Actions that are for nothing in a run whose epochs nothing evaluates."""

ROOMY_LINES: Final = 30
"""From this height on, the chart is larger and blank lines set the parts apart."""


class RunScreen(ListScreen, ActionScreen):
    """The history of one run."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "run", *ACTING, "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("list", "run", *ACTING, "below")]
    ORDERS = (
        ("epoch", None),
        ("execution time", lambda row: (-(row.execution or 0.0),)),
        ("queue wait", lambda row: (-(row.queue_wait or 0.0),)),
        ("tries", lambda row: (-row.attempts,)),
        ("GPU-hours lost", lambda row: (-row.gpu_hours.bad,)),
    )

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self.chart = True
        self.evaluations = False
        self._placed = False
        self._view: Memo[RunView | None] = Memo()
        self._by_key: Memo[dict[str, EpochRow]] = Memo()
        self._headed: Memo[list[Line]] = Memo()
        self._kept: Memo[tuple[list[EpochRow], list[EpochRow]]] = Memo()
        self._fitted: Memo[tuple[list[ColumnSpec[EpochRow]], dict[str, int]]] = Memo()
        self._listed: Memo[Rows] = Memo()

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield from self.foot()

    def show(self, update: Snapshot | None) -> None:
        feed = self.monitor.feed
        view = self._view(lambda: feed.run_view(self.key), feed, update)
        head = self.query_one("#head", StaticLines)
        if view is None:
            head.show([line(" ", ("run", DIM))])
            self.table.show([], [], self._missing(update))
            self.query_one("#note", StaticLines).show([self.note(0, 0, noun="epoch")])
            return
        evaluated = any(epoch.evaluations for epoch in view.epochs)
        self.query_one(KeyFooter).leave_out(() if evaluated else OF_EVALUATIONS)
        size, told = self.app.size, self.monitor.study.of(outlook)
        of = view, told, self.chart, size.width, size.height
        head.show(self._headed(lambda: self._head(view), *of))
        epochs, side = self._kept(
            lambda: (
                self._with_evaluations(self.kept(view.epochs, run_table.seen_by_filter)),
                self.kept(view.unpaired, run_table.seen_by_filter),
            ),
            *(view, self.wanted, self.order, self.reversed, self.evaluations),
        )
        if self.table.marks:
            self.table.keep_marks(self._index(view).keys())
        self._fill(view, epochs, side)
        if not self._placed and view.row.latest is not None and view.epochs:
            self._placed = True
            at = [row for row in view.epochs if row.node == view.row.latest.node]
            if at:
                self.table.select(run_table.key_of(at[-1]))
        total = len(self._with_evaluations(view.epochs)) + len(view.unpaired)
        shown = len(epochs) + len(side)
        note = [self.note(shown, total, noun="node")]
        queue = self._queue(view)
        # Where there is room a line is kept free for it, so that the table keeps its height.
        roomy = self.app.size.height >= ROOMY_LINES and self.monitor.word is not None
        self.query_one("#note", StaticLines).show([*note, *([queue] if queue or roomy else [])])

    def _with_evaluations(self, epochs: Sequence[EpochRow]) -> list[EpochRow]:
        """The epochs, each with its evaluations as rows behind it where somebody wants that."""
        if not self.evaluations:
            return list(epochs)
        alone = ((replace(epoch, evaluations=()), epoch.evaluations) for epoch in epochs)
        return [row for epoch, behind in alone for row in (epoch, *behind)]

    def _index(self, view: RunView) -> dict[str, EpochRow]:
        return self._by_key(lambda: {run_table.key_of(row): row for row in _rows(view)}, view)

    def _queue(self, view: RunView) -> Line:
        """Of an idle epoch under the cursor: what the queue says of its job."""
        at = self._index(view).get(self.table.cursor or "")
        if at is None or at.state is not State.IDLE or not at.jobs:
            return ()
        job = self.monitor.feed.job_view(*at.jobs[-1])
        told = queue_text.in_short(job.queue if job else None, self.monitor.now(), self.ascii)
        name = "" if at.epoch is None else f"epoch {at.epoch}"
        return line(" ", (name, BOLD), "  ") + told if told else ()

    def _missing(self, update: Snapshot | None) -> list[Line]:
        if update is None or update.progress.fraction < 1:
            return [line("  ", ("The run appears as soon as its DAG has been read.", DIM))]
        return [
            line("  ", "This run is in no DAG of this directory any more."),
            line("  ", ("esc goes back to all runs.", DIM)),
        ]

    def _head(self, view: RunView) -> list[Line]:
        room, ascii = self.app.size.width, self.ascii
        roomy = self.app.size.height >= ROOMY_LINES
        lines = [
            line(" ") + self._title(view, room - 2),
            line(" ") + first_that_fits(self._progress(view), room - 2),
            *overview_table.under_gate(view.row, room, ascii),
            *self._rest(room - 2),
        ]
        if self.chart:
            height = run_table.CHART_LINES if roomy else run_table.CHART_LINES_NARROW
            drawn = seconds_chart(run_table.bars(view), room - 4, height, ascii)
            title = run_table.chart_title(view.epochs, ascii)
            chart = [title, *drawn] if drawn else []
            lines += [()] * (roomy and bool(drawn)) + [line(" ") + each for each in chart]
        return [*lines, ()] if roomy else lines

    def _rest(self, room: int) -> list[Line]:
        """What is left of the run and of its epoch under way, where there is something."""
        told = self.monitor.study.of(outlook)
        run = next((run for run in told.runs if run.run == self.key), None) if told else None
        if run is None or not run.left:
            return []
        ascii, span, epoch = self.ascii, run.span, run.epoch
        if span is None:
            left = formatting.count(run.left, "epoch", ascii=self.ascii)
            return [line(" ", ("to go  ", DIM), f"{left}, ", (run.why_not or "", NOTE))]
        rest = line(("to go  ", DIM), (estimate_text.about(span.middle, ascii), BOLD))
        rest += line(f" ({estimate_text.between(span.low, span.high, ascii)})")
        about = line((f", about {estimate_text.minute(run.at)}", DIM))
        sure = line((f"{estimate_text.sureness(span)}: from {span.source}", DIM))
        now: Line = ()
        if epoch is not None:
            now = line((f"in epoch {run.number}  ", DIM), estimate_text.span(epoch, ascii))
        gap = line("   ")
        candidates = (
            joined((rest + about, now, sure), gap),
            joined((rest + about, now), gap),
            joined((rest, now), gap),
            rest,
        )
        return [line(" ") + first_that_fits(candidates, room)]

    def _title(self, view: RunView, room: int) -> Line:
        ascii, row = self.ascii, view.row
        name, uuid = line((plain(row.run, 40, ascii), BOLD)), plain(row.uuid or "", 40, ascii)
        dag, gap = line((file_name(row.dag, 40, ascii), DIM)), line("   ")
        now = self._now(view)
        lefts = [joined((name, line((u, DIM)), now), gap) for u in (uuid, uuid[:8], "")]
        for left in lefts:
            if width(left) + width(dag) + 3 <= room:
                return spread(left, dag, room, ascii)
        return first_that_fits(lefts, room)

    def _now(self, view: RunView) -> Line:
        latest, ascii, row = view.row.latest, self.ascii, view.row
        gate = gate_sign(row)
        state = symbol_span(gate or STATES[row.state], ascii)
        over = row.state in TERMINAL
        if latest is None or row.state is not latest.state or row.epochs_done >= row.epochs_total:
            return state
        if latest.epoch is not None:
            state += line((" epoch ", DIM), str(latest.epoch))
        if latest.seconds is not None:
            lasted = formatting.duration(latest.seconds, ascii)
            state += line(", ", lasted, (" ago", DIM)) if over else line((" for ", DIM), lasted)
        if latest.site is not None or latest.target is not None:
            there = latest.site is not None and latest.state not in UNPLACED
            at = line((" at " if there else " ", DIM))
            whither = latest.site, latest.target, latest.off_target
            state += at + place(*whither, None, ascii, latest.state)
        if gate is None and between(row):
            state += line(", next waits")
        return state

    def _progress(self, view: RunView) -> list[Line]:
        row, ascii = view.row, self.ascii

        def told(bar: int, short: bool = False) -> Line:
            drawn = formatting.progress_bar(row.epochs_done, row.epochs_total, bar, ascii)
            full = sum(drawn.count(piece) for piece in ("━", "╸", "#"))
            between, unit = ("/", "") if short else (" of ", " epochs")
            done = formatting.at_least(str(row.epochs_done), row.epochs_unknown > 0, ascii)
            number = f"  {done}{between}{row.epochs_total}{unit}"
            return line((drawn[:full], GOOD), (drawn[full:], DIM), number)

        inferred = f"   {row.epochs_inferred} inferred" if row.epochs_inferred else ""
        skipped = f"   {row.epochs_skipped} skipped" if row.epochs_skipped else ""
        tries = sum(epoch.attempts for epoch in view.epochs)
        tried = f"   {formatting.count(tries, 'execution', ascii=ascii)}"
        hours = line("   ") + gpu_hours(
            row.gpu_hours, ascii, flying=False, least=view.nodes_unlogged > 0
        )
        failed = overview_header.failed_evaluations(_side_counts(view), ascii)
        extra = line((inferred + skipped, DIM)) + (line("   ") + failed if failed else ())
        long = told(20) + extra + line((tried, DIM)) + hours
        short = [told(cells, short=True) + hours for cells in (6, 0)]
        return [long, told(20) + extra + hours, told(12) + hours, *short]

    def _fill(self, view: RunView, epochs: list[EpochRow], side: list[EpochRow]) -> None:
        room, ascii = self.app.size.width, self.ascii
        self.monitor.study.want_written()
        told = self.monitor.study.of(streams)
        evaluated = self.monitor.study.of(evaluations)
        found = (evaluated or {}).get(self.key)
        marks = not self.evaluations
        specs, widths = self._fitted(
            lambda: _fit(view, told or {}, room, ascii, marks, found),
            *(view, told, room, marks, evaluated),
        )
        rows = self._listed(
            lambda: _listed(view.row, epochs, side, specs, widths, room, ascii), epochs, specs
        )
        empty = [line("  ", "No epoch has this in any column."), line("  ", ("esc clears", DIM))]
        self.table.show(columns(specs, widths), rows, empty)

    def selection(self) -> Selection:
        """The marked epochs, or the one under the cursor: all their jobs in the queue, or of
        an epoch that has none there those of its last submission."""
        view = self.monitor.feed.run_view(self.key)
        wanted = self.table.marks or {self.table.cursor}
        rows = [row for row in _rows(view) if run_table.key_of(row) in wanted]
        if view is None:
            return Selection("nothing")
        queued = self.monitor.feed.queued(self.key)
        run = (SelectedRun(view.row, queued),)
        if not rows:
            return Selection("nothing", (), self.dags_of([view.row.dag]), run)
        jobs: list[JobRow] = []
        for row in rows:
            its = [job for job in queued if (job.in_dag, job.node) == (row.in_dag, row.node)]
            last = [job for job in row.jobs if job[0] == row.jobs[-1][0]]
            jobs += its or self.job_rows(last)
        names = [f"epoch {row.epoch}" if row.epoch is not None else row.node for row in rows]
        words = f"{self.named(names, 'epoch')} of {plain(view.row.run, 40, self.ascii)}"
        return Selection(words, tuple(jobs), self.dags_of(row.dag for row in rows), run)

    def open(self, key: str) -> None:
        why = "was never submitted"
        for row in _rows(self.monitor.feed.run_view(self.key)):
            if run_table.key_of(row) == key and row.jobs:
                self.monitor.open_job(*row.jobs[-1])
                return
            if run_table.key_of(row) == key and row.state is State.COMPLETED:
                rescue = next((dag.rescue for dag in self.dags_of([row.dag])), None)
                why = f"is {formatting.done_without_job(rescue)}"
        self.say(f"this node {why}: it has no job to open")

    def action_evaluations(self) -> None:
        self.evaluations = not self.evaluations
        self._again()

    def action_evaluation(self) -> None:
        """Open the job of the evaluation of the epoch under the cursor: of several that which is
        in trouble."""
        view = self.monitor.feed.run_view(self.key)
        at = None if view is None else self._index(view).get(self.table.cursor or "")
        if at is None:
            return
        row = run_table.evaluation_to_open(at)
        if row is not None:
            self.open(run_table.key_of(row))
        else:
            self.say("no evaluation comes directly after this node")

    def action_chart(self) -> None:
        self.chart = not self.chart
        self._again()


def _fit(
    view: RunView,
    told: Mapping[JobId, Streamed],
    room: int,
    ascii: bool,
    marks: bool,
    found: EvaluationResult | None,
) -> tuple[list[ColumnSpec[EpochRow]], dict[str, int]]:
    specs = run_table.specs(view, ascii, told, marks, found)
    return specs, fit_columns(specs, [*view.epochs, *view.side], room)


def _listed(
    run: RunRow,
    epochs: Sequence[EpochRow],
    side: Sequence[EpochRow],
    specs: Sequence[ColumnSpec[EpochRow]],
    widths: Mapping[str, int],
    room: int,
    ascii: bool,
) -> Rows:
    """Epochs, then side nodes under a heading of their own."""
    indent = MARGIN + widths["epoch"] + GAP

    def made(row: EpochRow) -> TableRow:
        below = run_table.below(row, room - indent - 1, ascii, run)
        return TableRow(run_table.key_of(row), partial(cells, specs, widths, row), below, indent)

    title = line(("side nodes", DIM))
    between = (TableRow(None, lambda: ((),)), TableRow(None, lambda: (title,))) if side else ()
    keys = [run_table.key_of(row) for row in epochs], [run_table.key_of(row) for row in side]
    heights = [[1 + run_table.has_below(row, run) for row in rows] for rows in (epochs, side)]

    def at(number: int) -> TableRow:
        if number < len(epochs):
            return made(epochs[number])
        number -= len(epochs)
        return between[number] if number < len(between) else made(side[number - len(between)])

    blank = [None] * len(between)
    return Rows([*keys[0], *blank, *keys[1]], [*heights[0], *(1 for _ in blank), *heights[1]], at)


def _side_counts(view: RunView) -> SideCounts:
    """What the side nodes of a run came to."""
    states = Counter(row.state for row in view.side)
    passed = sum(row.overruled for row in view.side)
    failed = states[State.FAILED] + states[State.REMOVED]
    return SideCounts(len(view.side), states[State.COMPLETED], failed, passed)


def _rows(view: RunView | None) -> list[EpochRow]:
    """All nodes of a run: epochs, then side nodes."""
    return [] if view is None else [*view.epochs, *view.side]
