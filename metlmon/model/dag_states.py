"""The states of DAGs and of their nodes, resolved on request and cached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from metlmon.model.clock import Clock
from metlmon.model.dag import Dag
from metlmon.model.job_events import NodeKey, NodeRecord
from metlmon.model.node import NodeState, NodeStateResolver, SubmissionResult, submission_result
from metlmon.model.node_states import Inputs, NodeStateTable
from metlmon.model.states import DONE, DagState
from metlmon.model.unrecorded_nodes import UnrecordedNodes, unrecorded_evidence

END_TOLERANCE: Final = timedelta(seconds=1)
"""DAGMan submits nothing after its end; timestamps of two logs may differ by this."""


class DagStates:
    """The states of some DAGs and of their nodes; events after ``cut`` are ignored."""

    def __init__(self, clock: Clock, cut: datetime | None = None) -> None:
        self._clock = clock
        self._cut = cut
        self._dags: Mapping[str, Dag] = {}
        self._nodes: Mapping[NodeKey, NodeRecord] = {}
        self._results: dict[NodeKey, SubmissionResult | None] = {}
        self._tables: dict[tuple[str, bool], NodeStateTable] = {}
        self._newest_tables: dict[str, NodeStateTable] = {}

    def set_dags(self, dags: Mapping[str, Dag], nodes: Mapping[NodeKey, NodeRecord]) -> None:
        """Set the DAGs and their nodes, and drop all tables."""
        self._dags, self._nodes = dags, nodes
        self._results = {}
        self._tables = {}
        self._newest_tables = {}

    def mark_changed(self, nodes: Iterable[NodeKey]) -> None:
        """Mark nodes whose reports or jobs may have changed."""
        for key in nodes:
            self._results.pop(key, None)
            for alive in (False, True):
                table = self._tables.get((key[0], alive))
                if table is not None:
                    table.pending.add(key[1])

    def invalidate(self, dag_key: str | None = None) -> None:
        """Resolve all nodes of one DAG, or of all DAGs, again.

        Needed after a change of the clock or of DAGMan's files.
        """
        for (key, _), table in self._tables.items():
            if dag_key is None or key == dag_key:
                table.inputs = None

    def table(self, dag_key: str, live: bool = False, limit: int | None = None) -> NodeStateTable:
        """The table of a DAG's node states; resolves at most ``limit`` changed nodes.

        ``live``: an ensemble is running here, so that a DAG without any sign of DAGMan may be
        alive.
        """
        dag = self._dags[dag_key]
        ended = self.end_state(dag)
        alive = self._is_alive(dag, ended is not None, live)
        table = self._tables.get((dag_key, alive))
        if table is None:
            table = self._tables[dag_key, alive] = NodeStateTable(dag, alive)
        self._newest_tables[dag_key] = table
        run_facts = dag.fresh_start(), dag.last_fresh_start(), dag.aborted
        evidence = unrecorded_evidence(dag, ended)
        inputs = (dag.done_nodes(), *run_facts, dag.status, evidence)
        if table.inputs is None or not _same(table.inputs, inputs):
            table.set_inputs(inputs)
            table.pending.update(dag.workflow.nodes)
        if table.pending:
            resolver = NodeStateResolver(dag, self._clock, alive, self._cut)

            def resolve(name: str) -> NodeState:
                key = (dag_key, name)
                return resolver.resolve(self._nodes[key], self.submission_result(key))

            table.resolve(resolve, limit)
        return table

    def _is_alive(self, dag: Dag, ended: bool, live: bool) -> bool:
        # A DAGMan that is being removed removes its jobs first: they are not retried.
        run = dag.current_run()
        if ended or (run is not None and run.removed):
            return False
        return dag.has_run() or live

    def submission_result(self, key: NodeKey) -> SubmissionResult | None:
        """The result of a node's submissions."""
        if key not in self._results:
            self._results[key] = submission_result(self._nodes[key])
        return self._results[key]

    def unrecorded(self, dag_key: str) -> UnrecordedNodes | None:
        """The unrecorded nodes of a DAG, None if there are none.

        As of the last time that the states of its nodes were resolved.
        """
        table = self._newest_tables.get(dag_key)
        return table.unrecorded if table is not None else None

    def end_state(self, dag: Dag) -> tuple[DagState, datetime | None] | None:
        """State and time of the newest DAGMan's end; None if it has not ended by the cut."""
        ended = dag.end_state(self._clock)
        if ended is not None and self._cut is not None and ended[1] and ended[1] > self._cut:
            return None
        return ended

    def was_active_after(self, dag_key: str, moment: datetime | None) -> bool:
        """Was a node submitted, or the node status file written, after this moment?

        Then a DAGMan that ended at that moment is not the newest one. Uses the node states
        resolved last.
        """
        table, status = self._newest_tables.get(dag_key), self._dags[dag_key].status
        signs = (
            table.last_submitted if table is not None else None,
            status.local if status is not None else None,
        )
        return moment is not None and any(
            sign is not None and sign - moment > END_TOLERANCE for sign in signs
        )

    def dag_state(self, dag_key: str) -> tuple[DagState, datetime | None]:
        """The DAG's state and the time of its end, if it has ended."""
        dag = self._dags[dag_key]
        ended = self.end_state(dag)
        if ended is not None and not self.was_active_after(dag_key, ended[1]):
            return ended
        if ended is None and dag.has_run():
            return dag.live_state(), None
        states = self.table(dag_key).states.values()
        if not any(self._nodes[(dag_key, name)].jobs for name in dag.workflow.nodes):
            # A rescue file shows that a DAGMan ran and ended; a new one may have started.
            return (DagState.UNKNOWN if dag.rescue_files_at_cut() else DagState.NOT_SUBMITTED), None
        if all(state.state in DONE for state in states):
            return DagState.DONE, None
        return DagState.UNKNOWN, None


def _same(old: Inputs, new: Inputs) -> bool:
    # A changed status file is a new object: comparing identities is enough.
    return old[4] is new[4] and old[:4] == new[:4] and old[5] == new[5]
