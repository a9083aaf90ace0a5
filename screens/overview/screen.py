"""The overview: is it moving, and what needs a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.jobfiles.records import Streamed
from metlmon.live.feed import Snapshot
from metlmon.live.null_feed import NullFeed
from metlmon.model.job_events import JobId
from metlmon.model.run_filter import run_named
from metlmon.model.states import State
from metlmon.pool.types import SelectedRun
from metlmon.snapshot.gate_text import paused_epochs
from metlmon.snapshot.node_text import counted_states
from metlmon.snapshot.types import JobRow, RunRow, Status
from metlmon.stats.curves import streams
from metlmon.stats.headline import headline
from metlmon.text import formatting
from screens.actions import bindings_of
from screens.base.action_screen import ACTING, ActionScreen, jobs_of_runs
from screens.base.column_layout import ColumnSpec, cells, columns, fit_columns
from screens.base.memo import Memo
from screens.base.screens import ListScreen
from screens.job import queue_text
from screens.overview import header as overview_header
from screens.overview import table as overview_table
from screens.pool_actions.running_action import Selection
from screens.widgets.footer import KeyFooter
from screens.widgets.lines import StaticLines
from screens.widgets.spans import BOLD, DIM, NOTE, Line, joined, line, width
from screens.widgets.table import GAP, MARGIN, Rows, Table, TableColumn, TableRow

if TYPE_CHECKING:
    from screens.nodes.table import NodeList

ROOMY_LINES = 30
"""From this height on, blank lines set the parts of the header apart."""


OF_RUNS: Final = frozenset({"open", "filter", "sort", "faults", "acts", "mark"})
OF_FIGURES: Final = frozenset({"timeline", "sites", "curves", "estimates", "incidents"})
"""Actions that are for nothing where there is no ensemble."""


OF_TREE: Final = frozenset({"fold", "unfold", "fold_all", "unfold_all"})
OF_EPOCHS: Final = frozenset({"curves", "estimates", "sort"})
"""Actions that are for nothing where no node trains."""

BELOW_HEAD: Final = 6
"""Lines that the head leaves free on a low terminal: for three runs, what names their columns,
the rule and the keys. Runs are what the screen is for."""


def _has_nodes_only(update: Snapshot) -> bool:
    """Are there nodes, and no run among them, as far as the DAG files tell?"""
    return not update.status.runs and any(dag.nodes_total for dag in update.status.dags)


Fitted = tuple[list[ColumnSpec[RunRow]], dict[str, int], list[TableColumn], int]
"""Columns, their cells by name, those that have room, and where a row's second line begins."""


def _fit(rows: Sequence[RunRow], told: Mapping[JobId, Streamed], room: int, ascii: bool) -> Fitted:
    specs = overview_table.specs(rows, ascii, told)
    widths = fit_columns(specs, rows, room)
    indent = MARGIN
    for name, wide in widths.items():
        if name == "state":
            break
        indent += wide + GAP
    return specs, widths, columns(specs, widths), indent


class OverviewScreen(ListScreen, ActionScreen):
    """All runs, one row each."""

    HAS_HEAD: ClassVar[bool] = True
    SCOPES: ClassVar[tuple[str, ...]] = ("list", "overview", "tree", *ACTING)
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("list", "overview", "tree", *ACTING)]
    ORDERS: ClassVar[Sequence[tuple[str, Callable[[Any], tuple[Any, ...]] | None]]] = (
        overview_table.ORDERS
    )

    def __init__(self) -> None:
        super().__init__()
        self.faults_only = False
        self._interest: Memo[list[RunRow]] = Memo()
        self._kept: Memo[list[RunRow]] = Memo()
        self._fitted: Memo[Fitted] = Memo()
        self._listed: Memo[Rows] = Memo()
        self._lasting: Memo[list[tuple[object, ...]]] = Memo()
        self._same: list[tuple[object, ...]] = []
        self._forest: NodeList | None = None
        """What is shown where there are nodes and no runs."""

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield from self.foot()

    def show(self, update: Snapshot | None) -> None:
        self.query_one("#head", StaticLines).show(self._head(update))
        runs = () if update is None else update.status.runs
        if update is not None and _has_nodes_only(update) and self._show_nodes(update):
            return
        self._forest = None
        rows = self._interest(lambda: self._of_interest(runs), runs)
        kept = self._kept(
            lambda: self._that_pass(rows),
            *(rows, self.faults_only, self.wanted, self.order, self.reversed),
        )
        nothing = update is not None and not update.status.dags
        self.query_one(KeyFooter).leave_out(OF_RUNS | OF_FIGURES | OF_TREE if nothing else OF_TREE)
        if self.table.marks:
            self.table.keep_marks({row.key for row in rows})
        shown = self._rows(kept, rows, update)
        place = self.table.place_of(self.table.cursor)
        at = None if place is None else kept[place]
        under = overview_table.under_the_table(at, shown, self.app.size.width, self.ascii)
        queue = self._queue(at)
        faults = [line(("faults only", NOTE))] if self.faults_only else []
        note = self.note(len(kept), len(rows), faults)
        narrow = self.app.size.width < overview_table.REASON_CELLS
        # Where there is room a line is kept free for it, so that the table keeps its height.
        roomy = self.app.size.height >= ROOMY_LINES and self.monitor.word is not None
        queued = [queue] if queue or roomy else []
        told = under if narrow or any(under) else []
        self.query_one("#note", StaticLines).show([note, *told, *queued])

    def _show_nodes(self, update: Snapshot) -> bool:
        """A DAG that trains nothing: its nodes, as their own screen shows them; False where there
        are none."""
        from screens.nodes.table import NodeList, fill

        forest = self._forest or NodeList()
        forest.look(self.monitor.feed, update)
        if not forest.tree.total:
            return False
        self._forest = forest
        self.query_one(KeyFooter).leave_out(OF_EPOCHS)
        fill(self, forest, self.faults_only, update)
        return True

    def _that_pass(self, rows: Sequence[RunRow]) -> list[RunRow]:
        """The rows that are shown, in order."""
        if self.faults_only:
            rows = [row for row in rows if row.state in overview_table.FAULTS]
        return self.kept(rows, overview_table.seen_by_filter)

    def _queue(self, row: RunRow | None) -> Line:
        """Of an idle run under the cursor: what the queue says of its job."""
        latest = None if row is None else row.latest
        if row is None or latest is None or latest.state is not State.IDLE:
            return ()
        view = self.monitor.feed.job_view(latest.cluster or 0, latest.proc or 0)
        told = queue_text.in_short(view.queue if view else None, self.monitor.now(), self.ascii)
        return (
            line(" ", (formatting.plain(row.run, 24, self.ascii), BOLD), "  ") + told
            if told
            else ()
        )

    def _head(self, update: Snapshot | None) -> list[Line]:
        room, ascii = self.app.size.width, self.ascii
        dagdir, read_only = str(self.monitor.feed.dagdir), self.monitor.options.read_only
        lines = overview_header.header(update, dagdir, room, ascii, read_only)
        if update is None or not update.status.dags:
            return lines
        status, roomy = update.status, [()] if self.app.size.height >= ROOMY_LINES else []
        counted = counted_states(status)
        noun = "epoch" if counted is status.epoch_states else "node"
        total = formatting.count(sum(counted.values()), noun, ascii=ascii)
        bar = overview_header.bar(counted, room - len(total) - 4, ascii)
        inset = line(" ")
        # Half a log foretells nothing.
        figures = self.monitor.study.of(headline) if update.progress.fraction == 1 else None
        trouble = overview_header.incident(figures, room - 2, ascii)
        special = overview_header.special(status.special_nodes, room - 2, ascii)
        head: list[Line] = [
            *lines,
            *roomy,
            inset + bar + line("  ", (total, DIM)),
            *self._counts(status, room - 2),
            *([inset + special] if special else []),
            *(
                inset + told
                for told in overview_header.hours_and_prospects(
                    status.gpu_hours, figures, room - 2, ascii, status.nodes_unlogged > 0
                )
            ),
            *([inset + trouble] if trouble else []),
            *roomy,
        ]
        return head[: self.app.size.height - BELOW_HEAD]

    def _counts(self, status: Status, room: int) -> list[Line]:
        """Epochs by state, and what other nodes are at: on one line where there is room."""
        counted = counted_states(status)
        paused = paused_epochs(status)
        counts = overview_header.counts(counted, room, self.ascii, paused)
        others = (
            overview_header.others(status, self.ascii) if counted is status.epoch_states else ()
        )
        others = others or overview_header.standstill(status)
        both = joined((counts, others), line("     "))
        told = [both] if width(both) <= room else [counts, others]
        return [line(" ") + each for each in told]

    def _of_interest(self, rows: Sequence[RunRow]) -> list[RunRow]:
        only = self.monitor.options.only
        if not only:
            return list(rows)
        return [row for row in rows if run_named(row, only)]

    def _rows(
        self, kept: list[RunRow], all_rows: list[RunRow], update: Snapshot | None
    ) -> set[str]:
        """Fill the table; returns the names of the columns that have room. They are fitted
        to all rows, so that a filter moves no column."""
        room, ascii = self.app.size.width, self.ascii
        self.monitor.study.want_written()
        told = self.monitor.study.of(streams)
        lasting = self._lasting(lambda: [overview_table.lasting(row) for row in all_rows], all_rows)
        # One object for as long as only time goes by.
        self._same = lasting = self._same if self._same == lasting else lasting
        specs, widths, heads, indent = self._fitted(
            lambda: _fit(all_rows, told or {}, room, ascii), lasting, told, room
        )

        def made(at: int) -> TableRow:
            below = overview_table.below(kept[at], room, indent, ascii)
            return TableRow(kept[at].key, partial(cells, specs, widths, kept[at]), below, indent)

        def listed() -> Rows:
            heights = [1 + overview_table.has_below(row, room) for row in kept]
            return Rows([row.key for row in kept], heights, made)

        rows = self._listed(listed, kept, specs)
        self.table.show(heads, rows, self._empty(all_rows, update))
        return set(widths)

    def _empty(self, rows: list[RunRow], update: Snapshot | None) -> list[Line]:
        if isinstance(self.monitor.feed, NullFeed):
            return overview_table.nothing_open()
        if update is None or (not rows and update.progress.fraction < 1):
            if update is None:
                return [line("  ", ("looking for DAG files and logs", DIM))]
            bar = overview_header.reading(update.progress, 24, self.ascii)
            return [line("  ") + bar, line("  ", ("runs appear as they are read", DIM))]
        wanted = formatting.plain(self.wanted, 30, self.ascii)
        return overview_table.empty(self.faults_only, wanted, bool(rows), bool(update.status.dags))

    def action_faults(self) -> None:
        self.faults_only = not self.faults_only
        self._again()

    def open(self, key: str) -> None:
        if self._forest is None:
            self.monitor.open_run(key)
            return
        from screens.nodes.table import open_row

        why = open_row(self, self._forest, key)
        if why:
            self.say(why)

    def action_sort(self) -> None:
        if self._forest is None:
            super().action_sort()
        else:
            self.say("d shows the nodes on a screen of their own, where they can be sorted")

    def action_unfold(self) -> None:
        self._fold(True)

    def action_fold(self) -> None:
        self._fold(False)

    def _fold(self, is_open: bool) -> None:
        if self._forest is not None:
            from screens.nodes.table import fold_here

            fold_here(self, self._forest, is_open)

    def action_unfold_all(self) -> None:
        self._fold_all(True)

    def action_fold_all(self) -> None:
        self._fold_all(False)

    def _fold_all(self, is_open: bool) -> None:
        if self._forest is not None:
            self._forest.fold_all(is_open)
            self._again()

    def action_new(self) -> None:
        self.monitor.action_new()

    def refusals(self) -> Mapping[str, str]:
        there = self.monitor.options.pool is not None
        new = {} if there else {"new": self.monitor.options.no_desk}
        folds = dict.fromkeys(OF_TREE, "these are runs; d shows the nodes")
        return {**super().refusals(), **new, **(folds if self._forest is None else {})}

    def selection(self) -> Selection:
        """The marked runs, or the one under the cursor: their jobs in the queue, or of a run
        that has none there its latest one. With no run at all, every DAG."""
        update = self.monitor.picture
        rows = [] if update is None else self._of_interest(update.status.runs)
        wanted = self.table.marks or {self.table.cursor}
        runs = [row for row in rows if row.key in wanted]
        if not runs:
            return Selection("nothing", (), () if update is None else update.status.dags)
        jobs: list[JobRow] = []
        by_run = jobs_of_runs(runs, self.monitor.feed.queued())
        for key, queued in by_run.items():
            jobs += queued or self._last_job(next(row for row in runs if row.key == key))
        words = self.named([row.run for row in runs], "run")
        chosen = tuple(SelectedRun(row, tuple(by_run[row.key])) for row in runs)
        return Selection(words, tuple(jobs), self.dags_of(row.dag for row in runs), chosen)

    def _last_job(self, row: RunRow) -> tuple[JobRow, ...]:
        latest = row.latest
        if latest is None or latest.cluster is None:
            return ()
        return self.job_rows([(latest.cluster, latest.proc or 0)])
