"""Nodes of which no file here tells anything: done before the newest DAGMan began, or to come.

DAGMan starts with the nodes that its rescue file marks ``DONE``, empties its nodes.log, and
submits in every cycle what is ready. Where the rescue file is not here, what was done then
follows from the number of pre-completed nodes in ``.dagman.out``, from nodes that were never
submitted though nothing held them back, and from an end with all nodes done. Manual: "DAGMan
Workflows > The Rescue DAG"; source followed: ``Dag::SubmitReadyNodes`` in ``dag.cpp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from metlmon.dagman import DagMetrics, Node, NodeKind, rescue_number
from metlmon.frozen import frozen
from metlmon.model.node import NodeState
from metlmon.model.states import DONE, DagState, State

if TYPE_CHECKING:
    from metlmon.model.dag import Dag
    from metlmon.model.dagman_runs import Process

CYCLE: Final = timedelta(seconds=5)
"""Between two cycles of DAGMan: the default of ``DAGMAN_USER_LOG_SCAN_INTERVAL``."""

SUBMISSION: Final = timedelta(seconds=1)
"""One submission takes less."""

PLAIN: Final = (NodeKind.JOB, NodeKind.SUBDAG, NodeKind.JOIN)
"""Nodes that DAGMan comes to in the order of the graph."""

FAILED: Final = (State.FAILED, State.REMOVED)

THROTTLES: Final = ("-maxidle", "-maxjobs")
"""Options of condor_submit_dag that keep ready nodes from being submitted."""


@frozen
class Grounds:
    """What decides on the nodes of one DAG that nothing is recorded of.

    ``done``: DAGMan ended, at ``ended``, with all nodes done. ``started``: when the newest life
    began that started from its DONE nodes, ``pre_completed`` of them. ``rescue_missing``: the
    rescue file that it used is not here. ``recorded``: a file here names what it submitted;
    ``unthrottled``: it submitted whatever was ready. ``over``: its files prove that it ran, and
    none that it still does.
    """

    done: bool = False
    ended: datetime | None = None
    started: datetime | None = None
    pre_completed: int | None = None
    rescue_missing: bool = False
    recorded: bool = True
    unthrottled: bool = False
    over: bool = False

    def verdict(self, before: int, unrecorded: int, lost: int, recorded: bool) -> State:
        """The state of nodes without a record, of which there are ``unrecorded``. ``before``:
        nodes known to have been done when the newest life began; ``lost``: nodes that must be
        done, because others were submitted after them, and of which there is no record either;
        ``recorded``: any job of the DAG is in any log."""
        if self.pre_completed is not None:
            missing = self.pre_completed - before
            if missing <= 0:
                return State.WAITING
            return State.COMPLETED if missing == unrecorded else State.UNKNOWN
        if self.over and not (self.recorded or recorded):
            return State.UNKNOWN
        if self.rescue_missing or lost:
            return State.COMPLETED if self.unthrottled else State.UNKNOWN
        return State.WAITING


@dataclass(slots=True)
class NodeCounts:
    """What decides on the nodes of one DAG without a record: how many nodes were ``submitted``,
    and were done ``before`` the newest life of DAGMan; the ``verdict``. Of the nodes that no log
    has so many are ``taken`` for done, or ``unknown``."""

    submitted: int = 0
    before: int = 0
    taken: int = 0
    unknown: int = 0
    verdict: State = State.WAITING


class UnrecordedNodes:
    """The nodes of one DAG without a record, kept up to date as its states are judged.

    A node without a record comes after nodes that were done when the newest life of DAGMan
    began, or that are without a record as well: whatever comes after a node which that life
    submitted is still to come, or recorded. All of them share one verdict.
    """

    def __init__(self, grounds: Grounds, nodes: Mapping[str, Node]) -> None:
        self.grounds = grounds
        self.tally = NodeCounts()
        self._nodes = nodes
        self._names: set[str] = set()
        self._lost: set[str] = set()

    @property
    def began_in_mid_chain(self) -> bool:
        """Were nodes submitted although of those before them nothing is recorded?"""
        return bool(self._lost)

    def kept(self) -> tuple[Any, ...]:
        """As plain data."""
        *counts, verdict = astuple(self.tally)
        tally = (*counts, verdict.value)
        return astuple(self.grounds), list(self._names), list(self._lost), tally

    @classmethod
    def recall(cls, kept: tuple[Any, ...], nodes: Mapping[str, Node]) -> UnrecordedNodes:
        """What another one had :meth:`kept`."""
        grounds, names, lost, tally = kept
        made = cls(Grounds(*grounds), nodes)
        made._names, made._lost = set(names), set(lost)
        made.tally = NodeCounts(*tally[:-1])
        made.tally.verdict = State(tally[-1])
        return made

    def begin(self, states: Mapping[str, NodeState]) -> None:
        """All nodes that have been judged are to be judged anew, and stand like this until then."""
        for name, state in states.items():
            self._count(name, state, 1)

    def judge(
        self, name: str, mine: NodeState, states: Mapping[str, NodeState]
    ) -> tuple[NodeState, bool]:
        """The state of a node, which is ``mine`` by what is recorded, and whether it is, or was
        until now, without a record. ``states``: of all nodes as they were judged last."""
        before, known = states.get(name), name in self._names
        if before is not None:
            self._count(name, before, -1)
        mine = self._judged(name, mine, states)
        self._count(name, mine, 1)
        return mine, known is not (name in self._names)

    def decide(self) -> set[str]:
        """Decide on the nodes without a record; returns those to be judged again for it."""
        tally = self.tally
        verdict = self.grounds.verdict(
            tally.before, len(self._names), len(self._lost), tally.submitted > 0
        )
        if verdict is tally.verdict:
            return set()
        tally.verdict = verdict
        return set(self._names)

    def _judged(self, name: str, mine: NodeState, states: Mapping[str, NodeState]) -> NodeState:
        node, grounds, verdict = self._nodes[name], self.grounds, self.tally.verdict
        nothing = mine.job is None and mine.submitted is None
        # Its job is in a log if it was ever submitted: no NOOP, no sub-DAG, no join.
        lost = mine.inferred and nothing and node.kind is NodeKind.JOB and not node.noop
        _put(self._lost, name, lost)
        if grounds.done and self._is_over(node, mine):
            return NodeState(
                State.COMPLETED, None, mine.job, inferred=True, submitted=mine.submitted
            )
        if node.post is not None and mine.state in FAILED and not grounds.recorded:
            # Its POST script has the last word, and only DAGMan's files have that.
            return NodeState(State.UNKNOWN, mine.since, mine.job, submitted=mine.submitted)
        parents = [each for each in node.parents - node.weak_parents if each in states]
        plain = mine.state is State.WAITING and not mine.superseded and node.kind in PLAIN
        without = plain and nothing and mine.since is None
        without = without and all(self._may_be_before(each, states[each]) for each in parents)
        _put(self._names, name, without)
        if not without or verdict is State.WAITING:
            return mine
        # A PRE script may have kept it from being submitted.
        unsure = node.pre is not None and grounds.pre_completed is None
        unsure = unsure or any(states[each].state is State.UNKNOWN for each in parents)
        if unsure or verdict is State.UNKNOWN:
            return NodeState(State.UNKNOWN)
        return NodeState(State.COMPLETED, inferred=True)

    def _is_over(self, node: Node, mine: NodeState) -> bool:
        """Is a node done because DAGMan ended with all nodes done?"""
        ended = self.grounds.ended
        if mine.state in DONE or node.kind not in PLAIN:
            return False
        return mine.submitted is None or ended is None or mine.submitted <= ended

    def _may_be_before(self, name: str, state: NodeState) -> bool:
        """May the node have been done when the newest life of DAGMan began?"""
        return name in self._names or (state.state in DONE and not self._begun(state))

    def _begun(self, state: NodeState) -> bool:
        """Was the node submitted by the newest life of DAGMan?"""
        started = self.grounds.started
        return state.submitted is not None and (started is None or state.submitted >= started)

    def _count(self, name: str, state: NodeState, by: int) -> None:
        """Count a node that is in this state, or is not any more."""
        tally = self.tally
        tally.submitted += by if state.submitted is not None else 0
        if name not in self._names and self._nodes[name].kind is not NodeKind.SERVICE:
            tally.before += by if state.state in DONE and not self._begun(state) else 0
        if state.job is None and state.submitted is None:
            tally.taken += by if state.inferred else 0
            tally.unknown += by if state.state is State.UNKNOWN else 0


def _put(names: set[str], name: str, there: bool) -> None:
    (names.add if there else names.discard)(name)


# --- what DAGMan's files say of the whole -------------------------------------------------------


def grounds_of(dag: Dag, ending: tuple[DagState, datetime | None] | None) -> Grounds | None:
    """What decides on the nodes of ``dag`` without a record; None where its files tell of all.
    ``ending`` is as of :meth:`Dag.ending`."""
    logged = dag.nodes_log
    process = process_from_done(dag)
    pre_completed = process.pre_completed if process is not None else None
    missing = missing_rescue(dag) is not None
    over = ending is not None or bool(dag.rescues()) or dag.metrics is not None
    done = ending is not None and ended_with_all_done(dag, ending[0])
    told = bool(dag.processes) or bool(dag.jobstate_started) or dag.status is not None
    if pre_completed is not None and not missing and not done:
        known = {len(dag._done_with(None))}
        known.update(len(dag._done_with(rescue)) for rescue in dag.rescues().values())
        if pre_completed in known:
            return None
    return Grounds(
        done,
        ending[1] if ending is not None else None,
        process.start if process is not None else None,
        pre_completed,
        missing,
        told or logged is not None,
        logged is not None and _submitted_all_ready(dag, logged),
        over,
    )


def process_from_done(dag: Dag) -> Process | None:
    """The newest process that began from its DONE nodes and says how many there were."""
    for process in reversed(dag.processes):
        if not process.recovery and not process.refused and process.pre_completed is not None:
            return process
    return None


def metrics_in_force(dag: Dag) -> DagMetrics | None:
    """The metrics, where they are of the newest life of DAGMan, and it has ended."""
    life = dag.life()
    if life is None and dag.lives():
        return None
    return dag.metrics if dag.wrote_metrics(life, dag.clock) else None


def missing_rescue(dag: Dag) -> str | None:
    """The name of the rescue file that the newest life of DAGMan used, where it is not here."""
    rescues = dag.rescue_files
    process = process_from_done(dag)
    if process is not None:
        name = PurePath(process.rescue).name if process.rescue else None
        number = rescue_number(name, PurePath(dag.file).name) if name else None
        return name if number is not None and number not in rescues else None
    metrics = metrics_in_force(dag)
    number = metrics.rescue_number if metrics is not None else None
    if not number and dag.command_line is not None:
        number = dag.command_line.rescue_from
    if not number or number in rescues:
        return None
    return f"{PurePath(dag.file).name}.rescue{number:03d}"


def ended_with_all_done(dag: Dag, state: DagState) -> bool:
    """Did DAGMan end with all nodes of this DAG file done? Its exit status is that of the FINAL
    node where there is one, and can be chosen by ABORT-DAG-ON."""
    metrics = metrics_in_force(dag)
    if metrics is not None and metrics.total_nodes is not None:
        if not is_total(dag, metrics.total_nodes):
            return False
        return metrics.succeeded == metrics.total_nodes and not metrics.failed
    told = told_totals(dag)
    if state is not DagState.DONE or any(not is_total(dag, total) for _, total in told):
        return False
    nodes = dag.workflow.nodes.values()
    return not any(node.kind is NodeKind.FINAL or node.abort_return == 0 for node in nodes)


def told_totals(dag: Dag) -> list[tuple[str, int]]:
    """How many nodes the DAG had, by each of DAGMan's files of its newest life that says so:
    the file's name, and the number."""
    told: list[tuple[str, int | None]] = []
    if dag.processes:
        told.append((f"{dag.file}.dagman.out", dag.processes[-1].total))
    metrics = metrics_in_force(dag)
    if metrics is not None:
        told.append((metrics.path.name, metrics.total_nodes))
    if dag.status is not None:
        told.append((dag.status.path.name, dag.status.totals.get("NodesTotal")))
    return [(name, total) for name, total in told if total]


def is_total(dag: Dag, total: int) -> bool:
    """Is this the number of nodes of the DAG file? SERVICE nodes may be counted or not."""
    return dag.counted <= total <= len(dag.workflow.nodes)


def counts_of(dag: Dag, total: int, done: int, failed: int, unknown: int) -> tuple[int, int, int]:
    """Nodes of a DAG, those done and those failed. Where the state of some is ``unknown``, these
    are DAGMan's own numbers, if its metrics are here."""
    metrics = metrics_in_force(dag) if unknown else None
    if metrics is None or metrics.total_nodes is None or metrics.succeeded is None:
        return total, done, failed
    return metrics.total_nodes, metrics.succeeded, metrics.failed or 0


def end_in_utc(dag: Dag) -> datetime | None:
    """When its newest DAGMan ended (aware), where its files say so in seconds since 1970."""
    metrics = metrics_in_force(dag)
    epoch = metrics.end if metrics is not None else None
    if epoch is None and (finished := dag.jobstate_end()) is not None:
        epoch = finished[0]
    return datetime.fromtimestamp(epoch, UTC) if epoch is not None else None


def _submitted_all_ready(dag: Dag, logged: tuple[datetime, datetime]) -> bool:
    """Did the DAGMan that wrote the nodes.log submit whatever was ready, and long enough to have
    done so? Not known without its command line."""
    nodes = dag.workflow.nodes.values()
    if dag.command_line is None or dag.command_line.configured:
        return False
    jobs = 0
    roots = 0
    for node in nodes:
        if node.category is not None or node.queue_count is None:
            return False
        jobs += node.queue_count
        roots += not node.parents
    words = [word.lower() for word in dag.command_line.words]
    for option, value in pairwise(words):
        if option in THROTTLES and (not value.isdecimal() or 0 < int(value) < jobs):
            return False
    return logged[1] - logged[0] >= CYCLE + roots * SUBMISSION
