"""The Nodes screen: the nodes of all DAGs as a tree, most urgent first."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import ClassVar, Final

from metlmon.health.build import make_health
from metlmon.jobfiles.error_lines import NO_ERRORS
from metlmon.live.discovery import natural_sort_key
from metlmon.live.feed import Feed, Snapshot
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
from metlmon.snapshot.records import NodeRow
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
from screens.base.screens import TreeScreen, padded, text_filter
from screens.base.stats_worker import errors
from screens.pool_actions import ACTION_SCOPES, ActionScreen, Selection

ORDERS: Final = (("what needs attention", urgency), ("DAG order", file_order))


class NodeList:
    """The node tree of a feed, with the state of folding."""

    def __init__(self) -> None:
        self.tree = NodeTree(())
        self.expanded: dict[str, bool] = {}
        self._positions: dict[str, tuple[object, TreePositions]] = {}
        self._dags: tuple[DagNodes, ...] = ()
        self._snapshot: Snapshot | None = None
        self._rows: list[TreeRow] = []
        self._details: dict[NodeKey, NodeRow | None] = {}

    def update(self, feed: Feed, update: Snapshot) -> None:
        """Update the tree from a snapshot."""
        if update is self._snapshot:
            return
        self._snapshot, self._details = update, {}
        dags = feed.nodes()
        if dags == self._dags:
            return
        positions = {}
        for dag in dags:
            cached = self._positions.get(dag.key)
            if cached is None or cached[0] is not dag.nodes:
                cached = self._positions[dag.key] = dag.nodes, tree_positions(dag.nodes)
            positions[dag.key] = cached[1]
        self._dags, self.tree = dags, NodeTree(dags, positions)

    def rows(
        self,
        filter_text: str,
        faulty: Container[NodeKey] | None,
        order: int,
        backwards: bool,
        room: int,
    ) -> list[TreeRow]:
        """Return the visible rows: the tree, or a flat list of the filtered nodes."""
        matches = text_filter(filter_text)
        if faulty is None and matches is None:
            self._rows = self.tree.rows(self.expanded, ORDERS[order][1], backwards, room)
            return self._rows

        def passes(dag: DagNodes, name: str) -> bool:
            if faulty is not None and (dag.key, name) not in faulty:
                return False
            return matches is None or matches(_text(dag, name, dag.state(name)))

        rows = self.tree.flat_rows(passes)
        self._rows = rows[::-1] if backwards else rows
        return self._rows

    def detail(self, feed: Feed, row: TreeRow | None) -> NodeRow | None:
        """Return the node of a row, from the cache or the feed."""
        return self._node(feed, None if row is None else row.node)

    def _node(self, feed: Feed, key: NodeKey | None) -> NodeRow | None:
        if key is None:
            return None
        if key not in self._details:
            self._details[key] = feed.node_row(key)
        return self._details[key]

    def item(self, feed: Feed, row: TreeRow) -> TreeItem:
        """Return a row with its node, or the worst one in it."""
        return row, self._node(feed, row.node), self._node(feed, row.worst)

    def row_with_key(self, key: str | None) -> TreeRow | None:
        """Return the row with this key."""
        return next((row for row in self._rows if row.key == key), None) if key else None

    def group_keys(self) -> set[str]:
        """Return the keys of the visible rows that stand for several nodes."""
        return {row.key for row in self._rows if row.node is None}

    def node_keys(self) -> Container[str]:
        """Return the keys of all nodes."""
        return {
            SCOPE.join((dag.key, name)) for dag in self.tree.dags.values() for name in dag.nodes
        }

    # --- on a screen -----------------------------------------------------------------------

    def show(self, screen: TreeScreen, update: Snapshot, order: int = 0) -> None:
        """Show the nodes in a screen's table, and below it details of the current one."""
        screen.node_list = self
        feed, faults, wanted = screen.context.feed, screen.faults_only, bool(screen.filter_text)
        health = screen.context.stats.value(make_health)
        faulty = {key for each in serious(health) for key in each.node_keys} if faults else None
        room = 0 if self.expanded else screen.table.page_size
        rows = self.rows(screen.filter_text, faulty, order, screen.state.reversed, room)
        several = (wanted or faults) and len(self.tree.dags) > 1
        text = empty(wanted, faults, not update.is_complete and not self.tree.total)
        screen.context.stats.watch_job_files()
        written = screen.context.stats.value(errors) or NO_ERRORS
        screen.fill(
            columns(written, of_dags=several),
            rows,
            lambda row: row.key,
            None,
            item=lambda row: self.item(feed, row),
            all_keys=self.node_keys() if screen.table.marks else None,
            total=self.tree.total if wanted or faults else None,
            fitted_to=rows[:: 1 + len(rows) // SAMPLE],
            empty=text,
            no_match=text,
            noun="node",
            details=lambda row: padded(
                cursor_detail(
                    None if row is None else self.item(feed, row), screen.app.size.width, written
                ),
                1 + REASON_LINES,
            ),
        )

    def open(self, screen: TreeScreen, key: str) -> None:
        """Open the latest job of a node, or fold or unfold a group."""
        row = self.row_with_key(key)
        node = self.detail(screen.context.feed, row)
        if row is not None and row.node is None:
            self.fold(key, not row.open)
            screen.refresh_view()
        elif node is None:
            screen.show_message("this node is in no DAG of this directory any more")
        elif not node.jobs:
            screen.show_no_job(no_job_text(node))
        else:
            screen.context.open_screen("job", *node.jobs[-1])

    def selection(self, screen: ActionScreen, keys: Iterable[str]) -> Selection:
        """Select the jobs of the last submission of the nodes with these keys of rows.

        Also of nodes whose rows are not shown now. Without any node: all DAGs.
        """
        ids = (key.partition(SCOPE) for key in sorted(keys, key=natural_sort_key))
        details = (self._node(screen.context.feed, (dag, name)) for dag, _, name in ids)
        nodes = [node for node in details if node is not None]
        if not nodes:
            return Selection("nothing", (), screen.context.snapshot.status.dags)
        names = screen.name_or_count([node.node for node in nodes], "node")
        last_jobs = [job for node in nodes for job in node.jobs if job[0] == node.jobs[-1][0]]
        jobs = screen.job_rows(last_jobs)
        return Selection(names, jobs, screen.dags_of(node.dag for node in nodes))

    # --- folding --------------------------------------------------------------------------

    def fold(self, key: str | None, is_open: bool) -> str | None:
        """Fold or unfold a row; return the parent's key if there is nothing to fold."""
        row = self.row_with_key(key)
        if row is None:
            return None
        if row.open is not None and row.open is not is_open:
            # The others stay as shown, whatever room there is.
            self.expanded |= {each.key: each.open for each in self._rows if each.open is not None}
            self.expanded[row.key] = is_open
            return None
        if is_open:
            return None
        index = self._rows.index(row)
        parents = (
            ancestor for ancestor in reversed(self._rows[:index]) if ancestor.depth < row.depth
        )
        return next((ancestor.key for ancestor in parents), None)

    def fold_all(self, is_open: bool) -> None:
        """Fold or unfold all rows."""
        self.expanded = fold_state(self.tree, is_open)


SAMPLE: Final = 50
"""Number of rows sampled for the column widths: each fetches its node."""


def _text(dag: DagNodes, name: str, state: State) -> str:
    node, state_record = dag.nodes[name], dag.states.get(name)
    job = state_record.job if state_record is not None else None
    shown = formatting.job_id(job.cluster, job.proc) if job is not None else None
    return searched(name, dag.file, STATES[state].word, node.kind.value, node.submit, shown)


class NodesScreen(TreeScreen, ActionScreen):
    """All nodes of all DAGs, including nodes that belong to no run."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "tree", "nodes", *ACTION_SCOPES, "below")
    ORDERS = tuple((name, None) for name, _ in ORDERS)

    def __init__(self) -> None:
        super().__init__()
        self._all_nodes = NodeList()

    def show(self, update: Snapshot) -> None:
        if update.opened:
            self._all_nodes.update(self.context.feed, update)
        self.show_head(self._head(update))
        self._all_nodes.show(self, update, self.state.order)

    def _head(self, update: Snapshot) -> list[Line]:
        room = self.app.size.width
        title = line(("Nodes", BOLD))
        if not update.opened:
            return [line(" ") + title, ()]
        title += line(f"  {formatting.number(self._all_nodes.tree.total)}     ")
        counts = state_counts(update.status.node_states, room - width(title) - 2)
        return [line(" ") + title + counts, ()]

    def open_row(self, key: str) -> None:
        self._all_nodes.open(self, key)

    def selection(self) -> Selection:
        return self._all_nodes.selection(self, self.chosen_keys)
