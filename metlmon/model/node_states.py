"""The states of DAGs and of their nodes, updated incrementally.

:mod:`metlmon.model.node` resolves the state of one node; here it is adjusted in the light of its
ancestors and descendants. The cost of a change depends on the
nodes that it affects, not on the size of the DAG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, TypeAlias

from metlmon.dagman import Node, NodeKind, StatusFile
from metlmon.model.clock import Clock
from metlmon.model.dag import Dag
from metlmon.model.job_events import NO_DAG, NodeKey, NodeRecord
from metlmon.model.node import NodeState, NodeStateResolver, SubmissionResult, submission_result
from metlmon.model.states import ACTIVE, DONE, DagState, State
from metlmon.model.unrecorded_nodes import (
    UnrecordedEvidence,
    UnrecordedNodes,
    unrecorded_evidence,
)

END_TOLERANCE: Final = timedelta(seconds=1)
"""DAGMan submits nothing after its end; timestamps of two logs may differ by this."""

Inputs: TypeAlias = tuple[
    frozenset[str],
    datetime | None,
    datetime | None,
    bool,
    StatusFile | None,
    UnrecordedEvidence | None,
]
"""DONE nodes, :meth:`Dag.fresh_start`, :meth:`Dag.last_start`, whether ABORT-DAG-ON applied, the
node status file, and the evidence on unrecorded nodes."""


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

    def remove_table(self, dag_key: str) -> None:
        """Resolve a DAG again, without the nodes that it has lost."""
        self._newest_tables.pop(dag_key, None)
        for alive in (False, True):
            self._tables.pop((dag_key, alive), None)

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
        evidence = unrecorded_evidence(dag, ended) if dag_key != NO_DAG else None
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

    def aborting_node(self, dag_key: str) -> str | None:
        """The node whose value ended the DAG by its ABORT-DAG-ON; None without one.

        Uses the node states resolved last; DAGMan ends at once, so that without its output the
        value is enough. Source: ``Dag::CheckForDagAbort`` in ``dag.cpp``.
        """
        table, dag = self._newest_tables.get(dag_key), self._dags[dag_key]
        if table is None or not table.aborts or (dag.processes and not dag.aborted):
            return None
        return max(table.aborts, key=lambda name: (table.states[name].since or datetime.min, name))

    def was_active_after(self, dag_key: str, moment: datetime | None) -> bool:
        """Whether a node was submitted, or the node status file written, after this moment.

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


class NodeStateTable:
    """The states of one DAG's nodes, adjusted for their neighbours.

    A node that was submitted before one of its ancestors was submitted again is superseded.
    A node whose child was submitted after it must be done, even if its log lost the end
    (``inferred``). A join node is done with its parents. A waiting descendant of a node that
    failed for good is futile.

    ``pending``: names to resolve again. ``alive``: the DAGMan has not ended.
    """

    def __init__(self, dag: Dag, alive: bool) -> None:
        self.alive = alive
        self.inputs: Inputs | None = None
        self.nodes = dag.workflow.nodes
        self.pending: set[str] = set()
        self._dag = dag
        self._order: list[str] = []
        self._index: dict[str, int] = {}
        self._own: dict[str, NodeState] = {}
        self._ancestor_submitted: dict[str, datetime] = {}
        self._inferred: dict[str, NodeState] = {}
        self._joins = {name for name, node in self.nodes.items() if node.kind is NodeKind.JOIN}
        self.states: dict[str, NodeState] = {}
        self.unrecorded: UnrecordedNodes | None = None
        self.last_submitted: datetime | None = None
        """The newest submission of any node."""
        self.aborts: set[str] = set()
        """Nodes with the value of their ABORT-DAG-ON."""

    def set_inputs(self, inputs: Inputs) -> None:
        """Set the inputs that all nodes depend on."""
        self.inputs = inputs
        self.unrecorded = UnrecordedNodes(inputs[5], self.nodes) if inputs[5] is not None else None
        if self.unrecorded is not None:
            self.unrecorded.add_all(self.states)

    def resolve(self, resolve_own: Callable[[str], NodeState], limit: int | None = None) -> None:
        """Resolve at most ``limit`` touched nodes, and the nodes that they affect.

        ``resolve_own`` returns a node's own state, without regard to other nodes.
        """
        if not self._order:
            self._order = self._dag.facts.order
            self._index = {name: index for index, name in enumerate(self._order)}
        touched = set(islice(self.pending, limit))
        self.pending -= touched
        resubmitted: set[str] = set()
        for name in touched:
            old, new = self._own.get(name), resolve_own(name)
            self._own[name] = new
            self._note_submission(new.submitted)
            if old is None or old.submitted != new.submitted:
                resubmitted.add(name)
        affected = touched | self._update_ancestors(resubmitted)
        # After a resubmission all nodes are touched: earlier failures block nothing any more.
        changed = self._update_states(touched | self._infer_states(affected))
        if self.unrecorded is not None:
            changed |= self._update_states(self.unrecorded.update_verdict())
        for name in touched | changed:
            state = self.states.get(name)
            aborts = state is not None and state.aborts
            (self.aborts.add if aborts else self.aborts.discard)(name)

    def _note_submission(self, time: datetime | None) -> None:
        if time is not None and (self.last_submitted is None or time > self.last_submitted):
            self.last_submitted = time

    def _update_ancestors(self, resubmitted: Iterable[str]) -> set[str]:
        """Update the last ancestor submission of descendants; return the changed nodes."""
        nodes, changed = self.nodes, set[str]()

        def update(name: str) -> Iterable[str]:
            times = [
                time
                for parent in nodes[name].parents
                if parent in self._own
                for time in (self._ancestor_submitted.get(parent), self._own[parent].submitted)
                if time is not None
            ]
            latest = max(times, default=None)
            if latest == self._ancestor_submitted.get(name):
                return ()
            if latest is None:
                del self._ancestor_submitted[name]
            else:
                self._ancestor_submitted[name] = latest
            changed.add(name)
            return nodes[name].children

        children = {child for name in resubmitted for child in nodes[name].children}
        self._visit_in_order(children, update)
        return changed

    def _infer_states(self, affected: Iterable[str]) -> set[str]:
        """Infer states from ancestors and descendants; return the changed nodes."""
        nodes, states, changed = self.nodes, self._inferred, set[str]()
        done = self.inputs[0] if self.inputs is not None else frozenset()

        def infer(name: str) -> Iterable[str]:
            if name not in self._own:
                # Not resolved yet.
                return ()
            state = reset_superseded(
                self._own[name], self._ancestor_submitted.get(name), name in done
            )
            if name in self._index:
                state = infer_done(nodes[name], state, nodes, states)
            if state == states.get(name):
                return ()
            states[name] = state
            changed.add(name)
            return nodes[name].parents

        # Nodes of a cycle have no topological order: nothing is inferred for them.
        affected = set(affected)
        for name in affected - self._index.keys():
            infer(name)
            affected.update(nodes[name].parents)
        self._visit_in_order(affected, infer, backwards=True)
        return changed

    def _update_states(self, affected: set[str]) -> set[str]:
        """Update final states; return the changed nodes.

        Resolves joins, futile and unrecorded nodes. Without unrecorded nodes, only joins and
        descendants of failed nodes cost more than a check of their parents.
        """
        nodes, states, inferred = self.nodes, self.states, self._inferred
        old_states = {name: states.get(name) for name in affected}
        queue = set(affected) if self.unrecorded is not None else set[str]()
        for name in affected - (queue & self._index.keys()):
            states[name] = inferred[name]
        for name, old_state in old_states.items() if self.unrecorded is None else ():
            node = nodes[name]
            is_waiting = states[name].state is State.WAITING
            if name in self._joins or (
                is_waiting
                and any(self._blocks_descendants(states.get(parent)) for parent in node.parents)
            ):
                queue.add(name)
            if self._blocks_descendants(old_state) or self._blocks_descendants(states[name]):
                queue.update(node.children)
            elif self._joins:
                queue.update(self._joins.intersection(node.children))

        def update(name: str) -> Iterable[str]:
            if name not in inferred:
                return ()
            state = complete_join(nodes[name], inferred[name], states)
            record_changed = False
            if self.unrecorded is not None:
                state, record_changed = self.unrecorded.resolve(name, state, states)
            state = mark_futile(nodes[name], state, states, self._failed_for_good)
            if state == states.get(name) and not record_changed:
                return ()
            old_states.setdefault(name, states.get(name))
            states[name] = state
            return nodes[name].children

        self._visit_in_order(queue, update)
        return {name for name, old_state in old_states.items() if states[name] != old_state}

    def _failed_for_good(self, state: NodeState) -> bool:
        """Whether a node has failed for good in the current DAGMan run.

        A new run retries the nodes that failed in an earlier one.
        """
        run_start, aborted = self.inputs[2:4] if self.inputs is not None else (None, False)
        if run_start is not None and state.since is not None and state.since < run_start:
            return False
        return has_failed(state, aborted and self._dag.facts.has_final) and not state.can_retry

    def _blocks_descendants(self, state: NodeState | None) -> bool:
        """Whether a node in this state prevents its descendants from running."""
        return state is not None and (state.state is State.FUTILE or self._failed_for_good(state))

    def _visit_in_order(
        self, names: Iterable[str], step: Callable[[str], Iterable[str]], backwards: bool = False
    ) -> None:
        """Call ``step`` on ``names`` in the DAG's order, and on the names it returns.

        The returned names must come later in that order.
        """
        sign = -1 if backwards else 1
        queue = [sign * self._index[name] for name in names if name in self._index]
        heapify(queue)
        queued = set(queue)
        while queue:
            index = heappop(queue)
            for name in step(self._order[sign * index]):
                next_index = self._index.get(name)
                if next_index is not None and sign * next_index not in queued:
                    queued.add(sign * next_index)
                    heappush(queue, sign * next_index)


def reset_superseded(
    state: NodeState, ancestor_submitted: datetime | None, done: bool
) -> NodeState:
    """Reset a node that was submitted before an ancestor was submitted again.

    ``ancestor_submitted``: the last submission of any ancestor. ``done``: a file marks the
    node ``DONE``.
    """
    if (
        ancestor_submitted is None
        or state.submitted is None
        or ancestor_submitted <= state.submitted
        or done
    ):
        return state
    return state if state.state in ACTIVE else NodeState(State.WAITING, superseded=True)


def infer_done(
    node: Node, state: NodeState, nodes: Mapping[str, Node], states: Mapping[str, NodeState]
) -> NodeState:
    """Infer that a node is done because a child was submitted after it."""
    if state.state in DONE:
        return state
    for child in node.children:
        if node.name in nodes[child].weak_parents:
            continue
        if child not in states:
            # It is resolved later, and then its parents again.
            continue
        reached, time = _was_reached(states[child])
        if reached and (state.submitted is None or (time and time > state.submitted)):
            return NodeState(
                State.COMPLETED, time, state.job, inferred=True, submitted=state.submitted
            )
    return state


def _was_reached(child: NodeState) -> tuple[bool, datetime | None]:
    """Did DAGMan reach this node, and when? Then all its ancestors are done."""
    if child.superseded:
        return False, None
    if child.submitted is not None:
        return True, child.submitted
    return child.inferred or child.state in (State.PRE, State.SKIPPED), child.since


def has_failed(state: NodeState, aborted: bool = False) -> bool:
    """Whether the node has failed, as DAGMan counts.

    A node whose job a user removed has failed, one whose job was removed with its DAG has
    not, unless ``aborted``: ABORT-DAG-ON ended the DAG and its FINAL node runs, so that
    DAGMan keeps reading logs.
    """
    if state.state is State.REMOVED:
        return aborted or state.job is None or not state.job.removed_with_dag
    return state.state is State.FAILED


def mark_futile(
    node: Node,
    state: NodeState,
    states: Mapping[str, NodeState],
    has_failed_for_good: Callable[[NodeState], bool],
) -> NodeState:
    """Mark a waiting descendant of a node that failed for good as futile.

    A child over a weak edge is not futile: its parent only has to end. ``has_failed_for_good``:
    has a node failed for good? Source: ``Node::SetDescendantsToFutile`` in ``node.cpp``.
    """
    if state.state is not State.WAITING:
        return state
    first: tuple[datetime, str] | None = None
    for name in node.parents:
        parent = states.get(name)
        if parent is None:
            continue
        if parent.state is State.FUTILE:
            failed = parent.failed_ancestor or name
        elif name not in node.weak_parents and has_failed_for_good(parent):
            failed = name
        else:
            continue
        candidate = parent.since or datetime.min, failed
        first = candidate if first is None else min(first, candidate)
    if first is None:
        return state
    since = None if first[0] == datetime.min else first[0]
    return NodeState(State.FUTILE, since, superseded=state.superseded, failed_ancestor=first[1])


def effective_parents(nodes: Mapping[str, Node], name: str) -> list[str]:
    """The parents of a node in the DAG's order, with joins replaced by their parents."""
    parents: set[str] = set()
    pending = list(nodes[name].parents) if name in nodes else []
    joins: set[str] = set()
    while pending:
        parent = pending.pop()
        node = nodes.get(parent)
        if node is None or parent in joins:
            continue
        if node.kind is NodeKind.JOIN:
            joins.add(parent)
            pending += node.parents
        else:
            parents.add(parent)
    return sorted(parents, key=lambda parent: (nodes[parent].line, parent))


def complete_join(node: Node, state: NodeState, states: Mapping[str, NodeState]) -> NodeState:
    """Mark a waiting join node as done if all its parents are done."""
    if node.kind is not NodeKind.JOIN or state.state is not State.WAITING:
        return state
    parents = [states[parent].state for parent in node.parents if parent in states]
    done = bool(parents) and all(state in DONE for state in parents)
    return NodeState(State.COMPLETED) if done else state
