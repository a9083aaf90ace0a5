"""The Nodes screen: the nodes of all DAGs as a tree, most urgent first."""

from __future__ import annotations

from functools import partialmethod
from typing import ClassVar

from metlmon.live.feed import Snapshot
from metlmon.text import formatting
from metlmon.text.spans import BOLD, Line, line, width
from screens.base.action_screen import ACTION_SCOPES, ActionScreen
from screens.base.list_screen import ListScreen
from screens.nodes import table as nodes_table
from screens.nodes.table import NodeList
from screens.overview import header as overview_header
from screens.pool_actions.running_action import Selection


class NodesScreen(ListScreen, ActionScreen):
    """All nodes of all DAGs, including nodes that belong to no run."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "tree", "nodes", *ACTION_SCOPES, "below")
    ORDERS = tuple((name, None) for name, _ in nodes_table.ORDERS)

    def __init__(self) -> None:
        super().__init__()
        self.faults_only = False
        self._node_list = NodeList()

    def show(self, update: Snapshot | None) -> None:
        nodes_table.fill(
            self, self._node_list, self.faults_only, update, self.sort_index, self._head(update)
        )

    def _head(self, update: Snapshot | None) -> list[Line]:
        room = self.app.size.width
        title = line(("Nodes", BOLD))
        if update is None:
            return [line(" ") + title, ()]
        title += line(f"  {formatting.number(self._node_list.tree.total)}     ")
        counts = overview_header.state_counts(update.status.node_states, room - width(title) - 2)
        return [line(" ") + title + counts, ()]

    # --- keys -----------------------------------------------------------------------------

    def action_faults(self) -> None:
        self.faults_only = not self.faults_only
        self._refresh_if_mounted()

    def _fold(self, is_open: bool) -> None:
        nodes_table.fold_at_cursor(self, self._node_list, is_open)

    def _fold_all(self, is_open: bool) -> None:
        self._node_list.fold_all(is_open)
        self._refresh_if_mounted()

    action_unfold = partialmethod(_fold, True)
    action_fold = partialmethod(_fold, False)
    action_unfold_all = partialmethod(_fold_all, True)
    action_fold_all = partialmethod(_fold_all, False)

    def open_row(self, key: str) -> None:
        reason = nodes_table.open_row(self, self._node_list, key)
        if reason:
            self.show_message(reason)

    def selection(self) -> Selection:
        """Select the jobs of the last submission of the marked or current nodes."""
        keys = self.table.marks or {self.table.cursor}
        rows = (self._node_list.row_with_key(key) for key in keys)
        details = (self._node_list.detail(self.context.feed, row) for row in rows)
        nodes = [node for node in details if node is not None]
        if not nodes:
            snapshot = self.context.snapshot
            return Selection("nothing", (), () if snapshot is None else snapshot.status.dags)
        names = self.name_or_count([node.node for node in nodes], "node")
        last_jobs = [job for node in nodes for job in node.jobs if job[0] == node.jobs[-1][0]]
        jobs = self.job_rows(last_jobs)
        return Selection(names, jobs, self.dags_of(node.dag for node in nodes))
