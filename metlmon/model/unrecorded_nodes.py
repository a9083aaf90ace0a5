"""Resolves unrecorded nodes, which no file mentions.

They were either done before the newest DAGMan run, or are still waiting. DAGMan starts with the
nodes that its rescue file marks ``DONE``, truncates its nodes.log, and submits the ready nodes
in every cycle. Without the rescue file, the nodes done earlier follow from the number of
pre-completed nodes in ``.dagman.out``, from nodes that were never submitted although ready, and
from an end with all nodes done. Manual: "DAGMan Workflows > The Rescue DAG"; source followed:
``Dag::SubmitReadyNodes`` in ``dag.cpp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from metlmon.dagman import DagMetrics, Node, NodeKind, rescue_number
from metlmon.model.node import NodeState
from metlmon.model.states import DONE, FAILED_JOB, DagState, State

if TYPE_CHECKING:
    from metlmon.model.dag import Dag
    from metlmon.model.dagman_runs import Process

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
