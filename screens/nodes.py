"""The Nodes screen: the nodes of all DAGs as a tree, most urgent first."""

from __future__ import annotations

from collections.abc import Container
from functools import partialmethod
from typing import ClassVar, Final

from metlmon.health.build import make_health
from metlmon.jobfiles.error_lines import NO_ERRORS
from metlmon.live.discovery import natural_sort_key
from metlmon.model.job_events import NodeKey
from metlmon.model.states import State
from metlmon.snapshot.node_tree import (
    SCOPE,
    DagNodes,
    NodeTree,
    TreePositions,
    TreeRow,
    file_order,
    fold_state,
    tree_positions,
    urgency,
)
from metlmon.snapshot.records import NodeRow, Snapshot
from metlmon.tables.health import serious
from metlmon.tables.layout import searched
from metlmon.tables.nodes import (
    REASON_LINES,
    TreeItem,
    columns,
    cursor_detail,
    empty,
    no_job_text,
)
from metlmon.tables.runs import state_counts
from metlmon.text import formatting
from metlmon.text.formatting import STATES
from metlmon.text.spans import BOLD, Line, line, width
from screens.base.screens import ListScreen, padded, text_filter
from screens.base.stats_worker import errors
from screens.pool_actions import ACTION_SCOPES, ActionScreen, Selection

ORDERS: Final = (("what needs attention", urgency), ("DAG order", file_order))


SAMPLE: Final = 50
"""Number of rows sampled for the column widths: each fetches its node."""


class TreeScreen(ListScreen, ActionScreen):
    """A list that may show the tree of nodes.

    ``shows_nodes``: its rows are those of ``node_tree``, the tree of the newest snapshot.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shows_nodes = False
        self.node_tree = NodeTree(())
        self._expanded: dict[str, bool] = {}
        self._positions: dict[str, tuple[object, TreePositions]] = {}
        self._dags: tuple[DagNodes, ...] = ()
        self._tree_of: Snapshot | None = None
        self._tree_rows: list[TreeRow] = []
        self._node_rows: dict[NodeKey, NodeRow | None] = {}

    def update_tree(self, update: Snapshot) -> None:
        """Make the tree of a snapshot, unless it is that of the one before."""
        if update is self._tree_of:
            return
        self._tree_of, self._node_rows = update, {}
        dags = self.context.feed.dag_nodes()
        if dags == self._dags:
            return
        positions = {}
        for dag in dags:
            cached = self._positions.get(dag.key)
            if cached is None or cached[0] is not dag.nodes:
                cached = self._positions[dag.key] = dag.nodes, tree_positions(dag.nodes)
            positions[dag.key] = cached[1]
        self._dags, self.node_tree = dags, NodeTree(dags, positions)

    def show_nodes(self, update: Snapshot, order: int = 0) -> None:
        """Show the nodes in the table, and below it details of the current one."""
        self.shows_nodes = True
        faults, wanted = self.faults_only, bool(self.filter_text)
        health = self.context.stats.value(make_health)
        faulty = {key for each in serious(health) for key in each.node_keys} if faults else None
        rows = self._tree_rows = self._visible_rows(faulty, order)
        several = (wanted or faults) and len(self.node_tree.dags) > 1
        text = empty(wanted, faults, not update.is_complete and not self.node_tree.total)
        self.context.stats.watch_job_files()
        written = self.context.stats.value(errors) or NO_ERRORS

        def details(row: TreeRow | None) -> list[Line]:
            item = None if row is None else self._item(row)
            return padded(cursor_detail(item, self.app.size.width, written), 1 + REASON_LINES)

        self.fill(
            columns(written, of_dags=several),
            rows,
            lambda row: row.key,
            None,
            item=self._item,
            all_keys=self._node_keys() if self.table.marks else None,
            total=self.node_tree.total if wanted or faults else None,
            fitted_to=rows[:: 1 + len(rows) // SAMPLE],
            empty=text,
            no_match=text,
            noun="node",
            details=details,
        )

    def _visible_rows(self, faulty: Container[NodeKey] | None, order: int) -> list[TreeRow]:
        """The rows of the tree, or a flat list of the filtered nodes."""
        matches, backwards = text_filter(self.filter_text), self.state.reversed
        if faulty is None and matches is None:
            room = 0 if self._expanded else self.table.page_size
            return self.node_tree.rows(self._expanded, ORDERS[order][1], backwards, room)

        def passes(dag: DagNodes, name: str) -> bool:
            if faulty is not None and (dag.key, name) not in faulty:
                return False
            return matches is None or matches(_text(dag, name, dag.state(name)))

        rows = self.node_tree.flat_rows(passes)
        return rows[::-1] if backwards else rows

    def _node(self, key: NodeKey | None) -> NodeRow | None:
        if key is None:
            return None
        if key not in self._node_rows:
            self._node_rows[key] = self.context.feed.node_row(key)
        return self._node_rows[key]

    def _item(self, row: TreeRow) -> TreeItem:
        """A row with its node, and the worst one in it."""
        return row, self._node(row.node), self._node(row.worst)

    def _tree_row(self, key: str | None) -> TreeRow | None:
        return next((row for row in self._tree_rows if row.key == key), None) if key else None

    def _group_keys(self) -> set[str]:
        """The keys of the visible rows that stand for several nodes."""
        return {row.key for row in self._tree_rows if row.node is None}

    def _node_keys(self) -> set[str]:
        return {
            SCOPE.join((dag.key, name))
            for dag in self.node_tree.dags.values()
            for name in dag.nodes
        }

    def open_node(self, key: str) -> None:
        """Open the latest job of a node, or fold or unfold a group."""
        row = self._tree_row(key)
        node = None if row is None else self._node(row.node)
        if row is not None and row.node is None:
            self._fold_row(row, not row.open)
            self.refresh_view()
        elif node is None:
            self.show_message("this node is in no DAG of this directory any more")
        elif not node.jobs:
            self.show_no_job(no_job_text(node))
        else:
            self.context.open_screen("job", *node.jobs[-1])

    def selected_nodes(self) -> Selection:
        """The jobs of the last submission of the chosen nodes, whose rows may be hidden now.

        Without any node: all DAGs.
        """
        ids = (key.partition(SCOPE) for key in sorted(self.chosen_keys, key=natural_sort_key))
        details = (self._node((dag, name)) for dag, _, name in ids)
        nodes = [node for node in details if node is not None]
        if not nodes:
            return Selection("nothing", (), self.context.snapshot.status.dags)
        names = self.name_or_count([node.node for node in nodes], "node")
        last_jobs = [job for node in nodes for job in node.jobs if job[0] == node.jobs[-1][0]]
        jobs = self.job_rows(last_jobs)
        return Selection(names, jobs, self.dags_of(node.dag for node in nodes))

    # --- keys -----------------------------------------------------------------------------

    def _fold(self, is_open: bool) -> None:
        """Fold or unfold the current row, or move to its parent."""
        if not self.shows_nodes:
            return
        row = self._tree_row(self.table.cursor)
        parent = None if row is None else self._fold_row(row, is_open)
        self.refresh_view()
        if parent is not None:
            self.table.select(parent)

    def _fold_row(self, row: TreeRow, is_open: bool) -> str | None:
        """Fold or unfold a row; return the parent's key if there is nothing to fold."""
        if row.open is not None and row.open is not is_open:
            # The others stay as shown, whatever room there is.
            shown = {each.key: each.open for each in self._tree_rows if each.open is not None}
            self._expanded |= {**shown, row.key: is_open}
            return None
        if is_open:
            return None
        above = self._tree_rows[: self._tree_rows.index(row)]
        return next((each.key for each in reversed(above) if each.depth < row.depth), None)

    def _fold_all(self, is_open: bool) -> None:
        if self.shows_nodes:
            self._expanded = fold_state(self.node_tree, is_open)
            self._refresh_if_mounted()

    def action_mark(self) -> None:
        if self.shows_nodes and self.table.cursor in self._group_keys():
            self.show_message("a mark is for one node: right unfolds this row")
        else:
            super().action_mark()

    def action_mark_all(self) -> None:
        self.table.toggle_all(self._group_keys() if self.shows_nodes else ())
        self._refresh_if_mounted()

    action_unfold = partialmethod(_fold, True)
    action_fold = partialmethod(_fold, False)
    action_unfold_all = partialmethod(_fold_all, True)
    action_fold_all = partialmethod(_fold_all, False)


def _text(dag: DagNodes, name: str, state: State) -> str:
    node, state_record = dag.nodes[name], dag.states.get(name)
    job = state_record.job if state_record is not None else None
    shown = formatting.job_id(job.cluster, job.proc) if job is not None else None
    return searched(name, dag.file, STATES[state].word, node.kind.value, node.submit, shown)


class NodesScreen(TreeScreen):
    """All nodes of all DAGs, including nodes that belong to no run."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "tree", "nodes", *ACTION_SCOPES, "below")
    ORDERS = tuple((name, None) for name, _ in ORDERS)

    def show(self, update: Snapshot) -> None:
        if update.opened:
            self.update_tree(update)
        self.show_head(self._head(update))
        self.show_nodes(update, self.state.order)

    def _head(self, update: Snapshot) -> list[Line]:
        room = self.app.size.width
        title = line(("Nodes", BOLD))
        if not update.opened:
            return [line(" ") + title, ()]
        title += line(f"  {formatting.number(self.node_tree.total)}     ")
        counts = state_counts(update.status.node_states, room - width(title) - 2)
        return [line(" ") + title + counts, ()]

    open_row = TreeScreen.open_node
    selection = TreeScreen.selected_nodes
