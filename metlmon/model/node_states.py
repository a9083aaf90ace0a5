"""The states of DAGs and of their nodes, updated incrementally.

:mod:`metlmon.model.node` resolves the state of one node; here it is adjusted in the light of its
ancestors and descendants. The cost of a change depends on the nodes that it affects, not on the
size of the DAG.

Unrecorded nodes, which no file mentions, were either done before the newest DAGMan run, or are
still waiting. DAGMan starts with the nodes that its rescue file marks ``DONE``, truncates its
nodes.log, and submits the ready nodes in every cycle. Without the rescue file, the nodes done
earlier follow from the number of pre-completed nodes in ``.dagman.out``, from nodes that were never
submitted although ready, and from an end with all nodes done. Manual: "DAGMan Workflows > The
Rescue DAG"; source followed: ``Dag::SubmitReadyNodes`` in ``dag.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from itertools import islice, pairwise
from pathlib import PurePath
from typing import Final, TypeAlias

from msgspec import Struct

from metlmon.dagman.records import DagMetrics, Node, NodeKind, StatusFile
from metlmon.dagman.reports import rescue_number
from metlmon.model.clock import Clock
from metlmon.model.dag import Dag
from metlmon.model.dagman_runs import Process
from metlmon.model.job_events import NO_DAG, NodeKey, NodeRecord
from metlmon.model.node import NodeState, NodeStateResolver, SubmissionResult, submission_result
from metlmon.model.states import ACTIVE, DONE, FAILED_JOB, DagState, State

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


# --- unrecorded nodes -----------------------------------------------------------------------------

CYCLE: Final = timedelta(seconds=5)
"""Time between two cycles of DAGMan: the default of ``DAGMAN_USER_LOG_SCAN_INTERVAL``."""

SUBMISSION: Final = timedelta(seconds=1)
"""Upper limit on the duration of one submission."""

ORDERED_KINDS: Final = (NodeKind.JOB, NodeKind.SUBDAG, NodeKind.JOIN)
"""Kinds of nodes that DAGMan runs in the order of the graph."""

THROTTLES: Final = ("-maxidle", "-maxjobs")
"""Options of condor_submit_dag that delay the submission of ready nodes."""


class UnrecordedEvidence(Struct, frozen=True):
    """Evidence on the unrecorded nodes of one DAG.

    ``done``: DAGMan ended, at ``ended``, with all nodes done. ``started``: start of the newest
    DAGMan run that started from its DONE nodes, ``pre_completed`` of them. ``rescue_missing``:
    the rescue file that it used is missing. ``recorded``: a file has its submissions.
    ``unthrottled``: it submitted all ready nodes. ``has_ended``: its files prove that it ran, and
    none that it is still running.
    """

    done: bool = False
    ended: datetime | None = None
    started: datetime | None = None
    pre_completed: int | None = None
    rescue_missing: bool = False
    recorded: bool = True
    unthrottled: bool = False
    has_ended: bool = False

    def verdict(self, before: int, unrecorded: int, lost: int, recorded: bool) -> State:
        """The common state of the ``unrecorded`` nodes.

        ``before``: number of nodes known to be done when the newest run started. ``lost``:
        number of nodes without a record that must be done, because descendants were
        submitted. ``recorded``: any job of the DAG is in any log.
        """
        if self.pre_completed is not None:
            missing = self.pre_completed - before
            if missing <= 0:
                return State.WAITING
            return State.COMPLETED if missing == unrecorded else State.UNKNOWN
        if self.has_ended and not (self.recorded or recorded):
            return State.UNKNOWN
        if self.rescue_missing or lost:
            return State.COMPLETED if self.unthrottled else State.UNKNOWN
        return State.WAITING


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


class UnrecordedNodes:
    """The unrecorded nodes of one DAG, updated while its states are resolved.

    All parents of an unrecorded node were done when the newest DAGMan run started, or are
    unrecorded, too: descendants of a node that this run submitted are waiting or recorded.
    All unrecorded nodes share one ``verdict``. ``inferred``, ``unknown``: numbers of nodes without
    a log that are assumed done, or unknown.
    """

    def __init__(self, evidence: UnrecordedEvidence, nodes: Mapping[str, Node]) -> None:
        self.evidence = evidence
        self.verdict = State.WAITING
        self.inferred = self.unknown = 0
        self._submitted = self._done_before_run = 0
        self._nodes = nodes
        self._names: set[str] = set()
        self._lost_records: set[str] = set()

    @property
    def has_lost_records(self) -> bool:
        """Whether nodes were submitted although their ancestors have no record."""
        return bool(self._lost_records)

    def add_all(self, states: Mapping[str, NodeState]) -> None:
        """Add all resolved nodes with their states, before they are resolved again."""
        for name, state in states.items():
            self._count(name, state, 1)

    def resolve(
        self, name: str, state: NodeState, states: Mapping[str, NodeState]
    ) -> tuple[NodeState, bool]:
        """Resolve a node with the recorded ``state``.

        Also returns whether the node became, or is no longer, unrecorded. ``states``: of all
        nodes as resolved last.
        """
        old, was_unrecorded = states.get(name), name in self._names
        if old is not None:
            self._count(name, old, -1)
        state = self._resolve(name, state, states)
        self._count(name, state, 1)
        return state, was_unrecorded is not (name in self._names)

    def update_verdict(self) -> set[str]:
        """Update the verdict; return the nodes to resolve again if it changed."""
        verdict = self.evidence.verdict(
            before=self._done_before_run,
            unrecorded=len(self._names),
            lost=len(self._lost_records),
            recorded=self._submitted > 0,
        )
        if verdict is self.verdict:
            return set()
        self.verdict = verdict
        return set(self._names)

    def _resolve(self, name: str, state: NodeState, states: Mapping[str, NodeState]) -> NodeState:
        node, evidence, verdict = self._nodes[name], self.evidence, self.verdict
        is_unsubmitted = state.job is None and state.submitted is None
        # Only these nodes have a job in a log if submitted: no NOOP, no sub-DAG, no join.
        is_lost = state.inferred and is_unsubmitted and node.kind is NodeKind.JOB and not node.noop
        _set_member(self._lost_records, name, is_lost)
        if evidence.done and self._done_at_end(node, state):
            return NodeState(
                State.COMPLETED, None, state.job, inferred=True, submitted=state.submitted
            )
        if node.post is not None and state.state in FAILED_JOB and not evidence.recorded:
            # The POST script decides, and only DAGMan's files have its result.
            return NodeState(State.UNKNOWN, state.since, state.job, submitted=state.submitted)
        parents = [parent for parent in node.parents - node.weak_parents if parent in states]
        is_plain = (
            state.state is State.WAITING and not state.superseded and node.kind in ORDERED_KINDS
        )
        is_unrecorded = is_plain and is_unsubmitted and state.since is None
        is_unrecorded = is_unrecorded and all(
            self._may_predate_run(parent, states[parent]) for parent in parents
        )
        _set_member(self._names, name, is_unrecorded)
        if not is_unrecorded or verdict is State.WAITING:
            return state
        # A PRE script may have prevented its submission.
        is_unsure = node.pre is not None and evidence.pre_completed is None
        is_unsure = is_unsure or any(states[parent].state is State.UNKNOWN for parent in parents)
        if is_unsure or verdict is State.UNKNOWN:
            return NodeState(State.UNKNOWN)
        return NodeState(State.COMPLETED, inferred=True)

    def _done_at_end(self, node: Node, state: NodeState) -> bool:
        """Whether a node is done because DAGMan ended with all nodes done."""
        ended = self.evidence.ended
        if state.state in DONE or node.kind not in ORDERED_KINDS:
            return False
        return state.submitted is None or ended is None or state.submitted <= ended

    def _may_predate_run(self, name: str, state: NodeState) -> bool:
        """Whether the node may have been done when the newest DAGMan run started."""
        return name in self._names or (state.state in DONE and not self._is_of_current_run(state))

    def _is_of_current_run(self, state: NodeState) -> bool:
        """Whether the node was submitted by the newest DAGMan run."""
        started = self.evidence.started
        return state.submitted is not None and (started is None or state.submitted >= started)

    def _count(self, name: str, state: NodeState, delta: int) -> None:
        """Add ``delta`` (1 or -1) nodes in this state to the counts."""
        if state.submitted is not None:
            self._submitted += delta
        elif state.job is None:
            self.inferred += delta * state.inferred
            self.unknown += delta * (state.state is State.UNKNOWN)
        if name not in self._names and self._nodes[name].kind is not NodeKind.SERVICE:
            was_done = state.state in DONE and not self._is_of_current_run(state)
            self._done_before_run += delta * was_done


def _set_member(names: set[str], name: str, present: bool) -> None:
    (names.add if present else names.discard)(name)


# --- evidence in DAGMan's files -----------------------------------------------------------------


def unrecorded_evidence(
    dag: Dag, ending: tuple[DagState, datetime | None] | None
) -> UnrecordedEvidence | None:
    """Evidence on the unrecorded nodes of ``dag``; None if its files cover all nodes.

    ``ending``: as returned by :meth:`Dag.ending`.
    """
    nodes_log = dag.logs.nodes_log_span
    process = last_fresh_process(dag)
    pre_completed = process.pre_completed if process is not None else None
    rescue_missing = missing_rescue(dag) is not None
    over = ending is not None or bool(dag.rescue_files_at_cut()) or dag.metrics is not None
    done = ending is not None and ended_with_all_done(dag, ending[0])
    has_reports = bool(dag.processes) or bool(dag.jobstate_started) or dag.status is not None
    if not rescue_missing and not done and pre_completed in dag.done_counts():
        return None
    return UnrecordedEvidence(
        done=done,
        ended=ending[1] if ending is not None else None,
        started=process.start if process is not None else None,
        pre_completed=pre_completed,
        rescue_missing=rescue_missing,
        recorded=has_reports or nodes_log is not None,
        unthrottled=nodes_log is not None and _submitted_all_ready(dag, nodes_log),
        has_ended=over,
    )


def last_fresh_process(dag: Dag) -> Process | None:
    """The newest process that started from its DONE nodes and reported their number."""
    for process in reversed(dag.processes):
        if not process.recovery and not process.refused and process.pre_completed is not None:
            return process
    return None


def current_metrics(dag: Dag) -> DagMetrics | None:
    """The metrics file, if it is of the newest DAGMan run, and that has ended."""
    run = dag.current_run()
    if run is None and dag.dagman_runs():
        return None
    return dag.metrics if dag.wrote_metrics(run, dag.clock) else None


def missing_rescue(dag: Dag) -> str | None:
    """The name of the rescue file that the newest DAGMan run used, if it is missing."""
    rescues = dag.rescue_files
    process = last_fresh_process(dag)
    if process is not None:
        name = PurePath(process.rescue).name if process.rescue else None
        number = rescue_number(name, PurePath(dag.file).name) if name else None
        return name if number is not None and number not in rescues else None
    metrics = current_metrics(dag)
    number = metrics.rescue_number if metrics is not None else None
    if not number and dag.condor_sub is not None:
        number = dag.condor_sub.rescue_from
    if not number or number in rescues:
        return None
    return f"{PurePath(dag.file).name}.rescue{number:03d}"


def ended_with_all_done(dag: Dag, state: DagState) -> bool:
    """Whether DAGMan ended with all nodes of this DAG file done.

    Its exit status alone does not show that: it can be that of a FINAL node, or be set by
    ABORT-DAG-ON.
    """
    metrics = current_metrics(dag)
    if metrics is not None and metrics.total_nodes is not None:
        if not matches_node_count(dag, metrics.total_nodes):
            return False
        return metrics.succeeded == metrics.total_nodes and not metrics.failed
    totals = reported_totals(dag)
    if state is not DagState.DONE or any(not matches_node_count(dag, total) for _, total in totals):
        return False
    nodes = dag.workflow.nodes.values()
    return not any(node.kind is NodeKind.FINAL or node.abort_return == 0 for node in nodes)


def reported_totals(dag: Dag) -> list[tuple[str, int]]:
    """File names of the newest DAGMan run with the reported number of nodes."""
    totals: list[tuple[str, int | None]] = []
    if dag.processes:
        totals.append((f"{dag.file}.dagman.out", dag.processes[-1].total))
    metrics = current_metrics(dag)
    if metrics is not None:
        totals.append((metrics.path.name, metrics.total_nodes))
    if dag.status is not None:
        totals.append((dag.status.path.name, dag.status.totals.get("NodesTotal")))
    return [(name, total) for name, total in totals if total]


def matches_node_count(dag: Dag, total: int) -> bool:
    """Whether this is the DAG file's number of nodes, with or without SERVICE nodes."""
    return dag.node_count <= total <= len(dag.workflow.nodes)


def effective_counts(
    dag: Dag, total: int, done: int, failed: int, unknown: int
) -> tuple[int, int, int]:
    """Numbers of all, done and failed nodes of a DAG.

    If the state of some is ``unknown``, DAGMan's own numbers from its metrics, if available.
    """
    metrics = current_metrics(dag) if unknown else None
    if metrics is None or metrics.total_nodes is None or metrics.succeeded is None:
        return total, done, failed
    return metrics.total_nodes, metrics.succeeded, metrics.failed or 0


def end_in_utc(dag: Dag) -> datetime | None:
    """End of the newest DAGMan run (aware), if a file has it in seconds since 1970."""
    metrics = current_metrics(dag)
    epoch = metrics.end if metrics is not None else None
    if epoch is None and (finished := dag.jobstate_end()) is not None:
        epoch = finished[0]
    return datetime.fromtimestamp(epoch, UTC) if epoch is not None else None


def _submitted_all_ready(dag: Dag, nodes_log: tuple[datetime, datetime]) -> bool:
    """Whether the DAGMan of the nodes.log submitted all ready nodes, and had time to.

    Unknown, and False, without its command line.
    """
    nodes = dag.workflow.nodes.values()
    if dag.condor_sub is None or dag.condor_sub.configured:
        return False
    jobs = 0
    roots = 0
    for node in nodes:
        if node.category is not None or node.queue_count is None:
            return False
        jobs += node.queue_count
        roots += not node.parents
    words = [word.lower() for word in dag.condor_sub.words]
    for option, value in pairwise(words):
        if option in THROTTLES and (not value.isdecimal() or 0 < int(value) < jobs):
            return False
    return nodes_log[1] - nodes_log[0] >= CYCLE + roots * SUBMISSION
