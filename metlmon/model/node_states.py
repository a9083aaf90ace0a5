"""The states of DAGs and of their nodes.

:mod:`metlmon.model.node` resolves a node's own state, which is kept until its jobs or DAGMan's
reports on it change; here it is adjusted in the light of its ancestors and descendants, from
nothing for all nodes that edges connect.

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
from itertools import islice, pairwise
from pathlib import PurePath
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from metlmon.dagman.records import DagMetrics, Node, NodeKind, StatusFile
from metlmon.dagman.reports import rescue_number
from metlmon.model.clock import Clock
from metlmon.model.dag import Component, Dag
from metlmon.model.dagman_runs import Process
from metlmon.model.job_events import NO_DAG, NodeKey, NodeRecord
from metlmon.model.node import NodeState, NodeStateResolver, SubmissionResult, submission_result
from metlmon.model.states import ACTIVE, DONE, FAILED_JOB, DagState, State

# Module constants, since Python 3.11 looks up each Enum member through a function.
_WAITING: Final = State.WAITING
_FUTILE: Final = State.FUTILE
_FAILED: Final = State.FAILED
_REMOVED: Final = State.REMOVED

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
        self._tables: dict[str, NodeStateTable] = {}

    def set_dags(self, dags: Mapping[str, Dag], nodes: Mapping[NodeKey, NodeRecord]) -> None:
        """Set the DAGs and their nodes, and drop all states."""
        self._dags, self._nodes = dags, nodes
        self._results = {}
        self._tables = {}

    def mark_changed(self, nodes: Iterable[NodeKey]) -> None:
        """Mark nodes whose reports or jobs may have changed."""
        for key in nodes:
            self._results.pop(key, None)
            if (table := self._tables.get(key[0])) is not None:
                table.pending.add(key[1])

    def invalidate(self, dag_key: str | None = None) -> None:
        """Resolve all nodes of one DAG, or of all DAGs, again.

        Needed after a change of the clock or of DAGMan's files, and where a DAG has lost nodes.
        """
        for key, table in self._tables.items():
            if dag_key is None or key == dag_key:
                table.inputs = None

    def table(self, dag_key: str, live: bool = False, limit: int | None = None) -> NodeStateTable:
        """The states of a DAG's nodes; resolves at most ``limit`` changed nodes."""
        dag = self._dags[dag_key]
        ended = self.end_state(dag)
        table = self._tables.get(dag_key)
        if table is None:
            table = self._tables[dag_key] = NodeStateTable(dag)
        table.live = live
        inputs = Inputs(
            alive=self._is_alive(dag, ended is not None, live),
            done=dag.done_nodes(),
            fresh_start=dag.fresh_start(),
            last_fresh_start=dag.last_fresh_start(),
            aborted=dag.aborted,
            evidence=unrecorded_evidence(dag, ended) if dag_key != NO_DAG else None,
        )
        # A changed status file is a new object: comparing identities is enough.
        if table.inputs != inputs or table.status is not dag.status:
            table.set_inputs(inputs, dag.status)
        if table.pending:
            resolver = NodeStateResolver(dag, self._clock, inputs.alive, self._cut)

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

    def unrecorded(self, dag_key: str) -> UnrecordedCounts | None:
        """The unrecorded nodes of a DAG, None if there are none; as resolved last."""
        table = self._tables.get(dag_key)
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
        table, dag = self._tables.get(dag_key), self._dags[dag_key]
        if table is None or not table.aborts or (dag.processes and not dag.aborted):
            return None
        return max(table.aborts, key=lambda name: (table.states[name].since or datetime.min, name))

    def was_active_after(self, dag_key: str, moment: datetime | None) -> bool:
        """Whether a node was submitted, or the node status file written, after this moment.

        Then a DAGMan that ended at that moment is not the newest one. Uses the node states
        resolved last.
        """
        table, status = self._tables.get(dag_key), self._dags[dag_key].status
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
        table = self._tables.get(dag_key)
        states = self.table(dag_key, table is not None and table.live).states.values()
        if not any(self._nodes[(dag_key, name)].jobs for name in dag.workflow.nodes):
            # A rescue file shows that a DAGMan ran and ended; a new one may have started.
            return (DagState.UNKNOWN if dag.rescue_files_at_cut() else DagState.NOT_SUBMITTED), None
        if all(state.state in DONE for state in states):
            return DagState.DONE, None
        return DagState.UNKNOWN, None


class Inputs(NamedTuple):
    """What the states of all nodes of a DAG depend on, besides their own jobs and reports.

    ``alive``: its DAGMan has not ended. ``done``: the nodes that a file marks ``DONE``.
    ``fresh_start``, ``last_fresh_start``, ``aborted``: as in :class:`Dag`. ``evidence``: on
    unrecorded nodes.
    """

    alive: bool
    done: frozenset[str]
    fresh_start: datetime | None
    last_fresh_start: datetime | None
    aborted: bool
    evidence: UnrecordedEvidence | None


class NodeStateTable:
    """The states of one DAG's nodes.

    Each node's own state is kept until it is ``pending``. The ``states`` follow from these: a node
    that was submitted before one of its ancestors was submitted again is superseded; one whose
    child was submitted after it must be done, even if its log lost the end (``inferred``); a join
    node is done with its parents; a waiting descendant of a node that failed for good is futile.
    Nodes of a cycle have their own states.

    ``last_submitted``: the newest submission of any node. ``live``: as in the last call of
    :meth:`DagStates.table`.
    """

    def __init__(self, dag: Dag) -> None:
        self.inputs: Inputs | None = None
        self.status: StatusFile | None = None
        self.live = False
        self.pending: set[str] = set()
        self.states: dict[str, NodeState] = {}
        self.last_submitted: datetime | None = None
        self._dag = dag
        self._nodes = dag.workflow.nodes
        # Nodes of no DAG do not affect each other, and become more.
        self._component_of = {} if dag.key == NO_DAG else dag.facts.component_of
        self._own: dict[str, NodeState] = {}
        self._outdated: dict[int, Component] = {}
        self._verdict = _WAITING
        self._unrecorded: dict[int, UnrecordedNodes] = {}

    @property
    def alive(self) -> bool:
        """Whether its DAGMan has not ended."""
        return self.inputs is not None and self.inputs.alive

    @property
    def aborts(self) -> list[str]:
        """The nodes with the value of their ABORT-DAG-ON."""
        names = self._dag.facts.aborting if self._dag.key != NO_DAG else ()
        return [name for name in names if name in self.states and self.states[name].aborts]

    @property
    def unrecorded(self) -> UnrecordedCounts | None:
        """The unrecorded nodes, None if the files cover all nodes."""
        if self.inputs is None or self.inputs.evidence is None:
            return None
        counts = (astuple(each.counts) for each in self._unrecorded.values())
        return UnrecordedCounts(*map(sum, zip(*counts, strict=True)))

    def set_inputs(self, inputs: Inputs, status: StatusFile | None) -> None:
        """Set the inputs that all nodes depend on: all are pending."""
        self.inputs, self.status = inputs, status
        self.pending = set(self._nodes)
        self.last_submitted = None
        self._own = {}
        self._verdict = _WAITING
        self._unrecorded = {}

    def resolve(self, resolve_own: Callable[[str], NodeState], limit: int | None = None) -> None:
        """Resolve at most ``limit`` pending nodes, and with the last of them the ``states``."""
        resolved = list(islice(self.pending, limit))
        self.pending.difference_update(resolved)
        for name in resolved:
            state = resolve_own(name)
            if state == self._own.get(name):
                continue
            self._own[name] = state
            if state.submitted is not None:
                self.last_submitted = max(self.last_submitted or datetime.min, state.submitted)
            component = self._component_of.get(name)
            if component is None:
                self.states[name] = state
            else:
                self._outdated[id(component)] = component
        if self.pending or not self._outdated:
            return
        self._resolve_components(self._outdated.values())
        self._outdated = {}
        unrecorded, evidence = self.unrecorded, self.inputs and self.inputs.evidence
        if unrecorded is not None and evidence is not None:
            verdict = evidence.verdict(unrecorded)
            if verdict is not self._verdict:
                self._verdict = verdict
                self._resolve_components(self._dag.facts.components)

    def _resolve_components(self, components: Iterable[Component]) -> None:
        assert self.inputs is not None
        evidence = self.inputs.evidence
        for component in components:
            unrecorded = None
            if evidence is not None:
                unrecorded = UnrecordedNodes(evidence, self._nodes, self._verdict)
                self._unrecorded[id(component)] = unrecorded
            inferred = self._inferred_states(component)
            self.states.update(self._final_states(component.order, inferred, unrecorded))

    def _inferred_states(self, component: Component) -> dict[str, NodeState]:
        """The own states, superseded by ancestors and inferred from descendants."""
        nodes, own, order = self._nodes, self._own, component.order
        states = {name: own[name] for name in component.members}
        done = self.inputs.done if self.inputs is not None else frozenset[str]()
        newest: dict[str, datetime] = {}
        for name in order:
            state, latest = own[name], None
            for parent in nodes[name].parents:
                time = newest.get(parent)
                if time is not None and (latest is None or time > latest):
                    latest = time
            submitted = state.submitted
            if latest is None:
                latest = submitted
            elif submitted is not None and submitted < latest:
                states[name] = superseded_state(state, name in done)
            else:
                latest = submitted or latest
            if latest is not None:
                newest[name] = latest
        for name in reversed(order):
            if states[name].state not in DONE:
                states[name] = infer_done(nodes[name], states[name], nodes, states)
        return states

    def _final_states(
        self,
        order: Iterable[str],
        inferred: Mapping[str, NodeState],
        unrecorded: UnrecordedNodes | None,
    ) -> dict[str, NodeState]:
        """With the joins that are complete, unrecorded nodes and futile ones."""
        nodes, states = self._nodes, dict(inferred)
        for name in order:
            node, state = nodes[name], states[name]
            if node.kind is NodeKind.JOIN:
                state = complete_join(node, state, states)
            if unrecorded is not None:
                state = unrecorded.resolve(name, state, states)
            if state.state is _WAITING:
                state = mark_futile(node, state, states, self._failed_for_good)
            states[name] = state
        return states

    def _failed_for_good(self, state: NodeState) -> bool:
        """Whether a node has failed for good in the current DAGMan run.

        A new run retries the nodes that failed in an earlier one.
        """
        assert self.inputs is not None
        run_start, aborted = self.inputs.last_fresh_start, self.inputs.aborted
        if run_start is not None and state.since is not None and state.since < run_start:
            return False
        return has_failed(state, aborted and self._dag.facts.has_final) and not state.can_retry


def superseded_state(state: NodeState, done: bool) -> NodeState:
    """The state of a node that was submitted before an ancestor was submitted again."""
    return state if done or state.state in ACTIVE else NodeState(State.WAITING, superseded=True)


def infer_done(
    node: Node, state: NodeState, nodes: Mapping[str, Node], states: Mapping[str, NodeState]
) -> NodeState:
    """Infer that a node is done because a child was submitted after it."""
    for child in node.children:
        if node.name in nodes[child].weak_parents:
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
    first: tuple[datetime, str] | None = None
    for name in node.parents:
        parent = states.get(name)
        if parent is None:
            continue
        if parent.state is _FUTILE:
            failed = parent.failed_ancestor or name
        elif parent.state is not _FAILED and parent.state is not _REMOVED:
            continue
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
    if state.state is not State.WAITING:
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

    def verdict(self, counts: UnrecordedCounts) -> State:
        """The common state of the unrecorded nodes."""
        if self.pre_completed is not None:
            missing = self.pre_completed - counts.done_before_run
            if missing <= 0:
                return State.WAITING
            return State.COMPLETED if missing == counts.unrecorded else State.UNKNOWN
        if self.has_ended and not (self.recorded or counts.submitted):
            return State.UNKNOWN
        if self.rescue_missing or counts.lost:
            return State.COMPLETED if self.unthrottled else State.UNKNOWN
        return State.WAITING


class UnrecordedCounts(Struct):
    """Numbers of nodes of a DAG, or of a component of it.

    ``unrecorded``: in no file. ``inferred``, ``unknown``: without a log, and assumed done, or
    unknown. ``lost``: without a record although they must be done, because descendants were
    submitted. ``submitted``: with a job in a log. ``done_before_run``: known to be done when the
    newest run started.
    """

    unrecorded: int = 0
    inferred: int = 0
    unknown: int = 0
    lost: int = 0
    submitted: int = 0
    done_before_run: int = 0


class UnrecordedNodes:
    """The unrecorded nodes of a component, found while its states are resolved in order.

    All parents of an unrecorded node were done when the newest DAGMan run started, or are
    unrecorded, too: descendants of a node that this run submitted are waiting or recorded.
    All unrecorded nodes of a DAG share one ``verdict``.
    """

    def __init__(
        self, evidence: UnrecordedEvidence, nodes: Mapping[str, Node], verdict: State
    ) -> None:
        self.counts = UnrecordedCounts()
        self._evidence = evidence
        self._nodes = nodes
        self._verdict = verdict
        self._names: set[str] = set()

    def resolve(self, name: str, state: NodeState, states: Mapping[str, NodeState]) -> NodeState:
        """Resolve a node with the recorded ``state``; those of its parents are final."""
        node, counts = self._nodes[name], self.counts
        state = self._resolve(node, state, states)
        if state.submitted is not None:
            counts.submitted += 1
        elif state.job is None:
            counts.inferred += state.inferred
            counts.unknown += state.state is State.UNKNOWN
        if name in self._names:
            counts.unrecorded += 1
        elif node.kind is not NodeKind.SERVICE:
            was_done = state.state in DONE and not self._is_of_current_run(state)
            counts.done_before_run += was_done
        return state

    def _resolve(self, node: Node, state: NodeState, states: Mapping[str, NodeState]) -> NodeState:
        evidence, verdict = self._evidence, self._verdict
        is_unsubmitted = state.job is None and state.submitted is None
        # Only these nodes have a job in a log if submitted: no NOOP, no sub-DAG, no join.
        may_be_lost = is_unsubmitted and node.kind is NodeKind.JOB and not node.noop
        self.counts.lost += state.inferred and may_be_lost
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
        if not is_unrecorded or not all(
            self._may_predate_run(parent, states[parent]) for parent in parents
        ):
            return state
        self._names.add(node.name)
        if verdict is State.WAITING:
            return state
        # A PRE script may have prevented its submission.
        is_unsure = node.pre is not None and evidence.pre_completed is None
        is_unsure = is_unsure or any(states[parent].state is State.UNKNOWN for parent in parents)
        if is_unsure or verdict is State.UNKNOWN:
            return NodeState(State.UNKNOWN)
        return NodeState(State.COMPLETED, inferred=True)

    def _done_at_end(self, node: Node, state: NodeState) -> bool:
        """Whether a node is done because DAGMan ended with all nodes done."""
        ended = self._evidence.ended
        if state.state in DONE or node.kind not in ORDERED_KINDS:
            return False
        return state.submitted is None or ended is None or state.submitted <= ended

    def _may_predate_run(self, name: str, state: NodeState) -> bool:
        """Whether the node may have been done when the newest DAGMan run started."""
        return name in self._names or (state.state in DONE and not self._is_of_current_run(state))

    def _is_of_current_run(self, state: NodeState) -> bool:
        """Whether the node was submitted by the newest DAGMan run."""
        started = self._evidence.started
        return state.submitted is not None and (started is None or state.submitted >= started)


# --- evidence in DAGMan's files -----------------------------------------------------------------


def unrecorded_evidence(
    dag: Dag, ending: tuple[DagState, datetime | None] | None
) -> UnrecordedEvidence | None:
    """Evidence on the unrecorded nodes of ``dag``; None if its files cover all nodes."""
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
