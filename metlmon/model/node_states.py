"""The states of all nodes, kept: what changed is judged anew, and whom it concerns.

What a node's state is says :mod:`metlmon.model.node`; here it is remembered. A change of one
node costs what it changes around it, whatever the size of its DAG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, TypeAlias

from metlmon.dagman import NodeKind, StatusFile
from metlmon.model.clock import Clock
from metlmon.model.dag import Dag
from metlmon.model.job_events import NodeKey, NodeRecord
from metlmon.model.node import NodeState, NodeStateResolver, SubmissionResult, made_of
from metlmon.model.node_neighbours import (
    finished_join,
    futile,
    has_failed,
    inferred_done,
    made_void,
)
from metlmon.model.states import State
from metlmon.model.unrecorded_nodes import Grounds, UnrecordedNodes

Facts: TypeAlias = tuple[
    frozenset[str], datetime | None, datetime | None, bool, StatusFile | None, Grounds | None
]


Judged: TypeAlias = tuple[NodeState, NodeState, NodeState, datetime | None]
"""A node's own state, that in the light of the nodes around it, that with the joins', and when
any node before it was last submitted."""


class NodeStates:
    """The states of the nodes of some DAGs."""

    def __init__(self, clock: Clock, cut: datetime | None = None) -> None:
        self._clock = clock
        self._cut = cut
        self._nodes: Mapping[NodeKey, NodeRecord] = {}
        self._made: dict[NodeKey, SubmissionResult | None] = {}
        self._weighed: dict[tuple[str, bool], NodeStateTable] = {}
        self._newest: dict[str, NodeStateTable] = {}

    def begin(self, nodes: Mapping[NodeKey, NodeRecord]) -> None:
        """These are the nodes now."""
        self._nodes = nodes
        self._made = {}
        self._weighed = {}
        self._newest = {}

    def touch(self, nodes: Iterable[NodeKey]) -> None:
        """What is said of these nodes, or their jobs, may be otherwise now."""
        for key in nodes:
            self._made.pop(key, None)
            for alive in (False, True):
                weighed = self._weighed.get((key[0], alive))
                if weighed is not None:
                    weighed.touched.add(key[1])

    def forget(self, dag_key: str | None = None) -> None:
        """Everything is to be judged anew, of one DAG or of all: a clock, or the files of a
        DAGMan, tell otherwise than before."""
        for (key, _), weighed in self._weighed.items():
            if dag_key is None or key == dag_key:
                weighed.facts = None

    def known(self, dag_key: str, alive: bool) -> NodeStateTable | None:
        """The states as they were judged last, if they were."""
        return self._weighed.get((dag_key, alive))

    def newest(self, dag_key: str) -> NodeStateTable | None:
        """The states as they were judged last, for a DAGMan that has ended or not."""
        return self._newest.get(dag_key)

    def recall(self, dag_key: str, alive: bool, weighed: NodeStateTable) -> None:
        """These were the states, judged by what is known now as well."""
        self._weighed[dag_key, alive] = weighed

    def of(
        self, dag: Dag, alive: bool, most: int | None = None, grounds: Grounds | None = None
    ) -> NodeStateTable:
        """The states of a DAG's nodes. ``alive``: its DAGMan has not ended. ``most``: of those
        that were touched so many are judged, the rest stay ``touched``. ``grounds``: what
        decides on nodes without a record, None where there is a record of all."""
        weighed = self._weighed.get((dag.key, alive))
        if weighed is None:
            weighed = self._weighed[dag.key, alive] = NodeStateTable(dag, alive)
        self._newest[dag.key] = weighed
        begun = dag.fresh_start(), dag.last_start(), dag.aborted
        facts = (dag.done_nodes(), *begun, dag.status, grounds)
        if weighed.facts is None or not _same(weighed.facts, facts):
            weighed.take(facts)
            weighed.touched.update(dag.workflow.nodes)
        if weighed.touched:
            judge = NodeStateResolver(dag, self._clock, alive, self._cut)
            nodes, made, key = self._nodes, self.made, dag.key
            weighed.judge(lambda name: judge.resolve(nodes[key, name], made((key, name))), most)
        return weighed

    def made(self, key: NodeKey) -> SubmissionResult | None:
        """What a node's submissions come to."""
        if key not in self._made:
            self._made[key] = made_of(self._nodes[key])
        return self._made[key]


def _same(before: Facts, now: Facts) -> bool:
    # The status file is read anew as a whole: that it is another one is enough to know.
    return before[4] is now[4] and before[:4] == now[:4] and before[5] == now[5]


class NodeStateTable:
    """The states of one DAG's nodes, each seen in the light of its neighbours.

    A node that was submitted before one of its ancestors was submitted again is superseded:
    what it did was made void. A node whose child was submitted after it must be done,
    whatever its own log lost (``inferred``). A join node is done with its parents. A waiting
    node behind one that failed for good is futile.

    ``touched``: names of those to be judged anew. ``news``: names whose state, or what it was
    judged by, is another one since whoever looks at it emptied this. ``version`` grows with
    every change. ``alive``: the DAGMan has not ended.
    """

    def __init__(self, dag: Dag, alive: bool) -> None:
        self.alive = alive
        self.facts: Facts | None = None
        self.nodes = dag.workflow.nodes
        self.touched: set[str] = set()
        self.news: set[str] = set()
        self.version = 0
        self._dag = dag
        self._order: list[str] = []
        self._place: dict[str, int] = {}
        self._own: dict[str, NodeState] = {}
        self._ancestor: dict[str, datetime] = {}
        self._inferred: dict[str, NodeState] = {}
        self._joins = {name for name, node in self.nodes.items() if node.kind is NodeKind.JOIN}
        self.states: dict[str, NodeState] = {}
        self.unrecorded: UnrecordedNodes | None = None
        self.last_submitted: datetime | None = None
        """The newest submission of any node."""

    def take(self, facts: Facts) -> None:
        """These are the facts now, by which all nodes are to be judged."""
        self.facts = facts
        self.unrecorded = UnrecordedNodes(facts[5], self.nodes) if facts[5] is not None else None
        if self.unrecorded is not None:
            self.unrecorded.begin(self.states)

    def kept(self) -> Any:
        """As plain data what :meth:`judged` does not tell. What a status file said is not kept:
        all nodes are judged anew where there is one."""
        without = self.unrecorded.kept() if self.unrecorded is not None else None
        if self.facts is None or self.facts[4] is not None:
            return None, list(self.touched), without
        return (tuple(self.facts[0]), *self.facts[1:4]), list(self.touched), without

    def judged(self) -> list[Judged]:
        """What is known of each node, in the DAG's order of them."""
        inferred, states, after = self._inferred, self.states, self._ancestor.get
        return [(self._own[name], inferred[name], states[name], after(name)) for name in self.nodes]

    def recall(self, standing: Any, judged: Iterable[Judged]) -> None:
        """Take over what another one of this DAG had :meth:`kept`, and had :meth:`judged`."""
        facts, touched, without = standing
        grounds = None
        if without is not None:
            self.unrecorded = UnrecordedNodes.recall(without, self.nodes)
            grounds = self.unrecorded.grounds
        for name, (own, inferred, state, after) in zip(self.nodes, judged, strict=True):
            self._own[name], self._inferred[name] = own, inferred
            self._note_submission(own.submitted)
            self.states[name] = state
            if after is not None:
                self._ancestor[name] = after
        if facts is not None:
            done, *begun = facts
            self.facts = frozenset(done), *begun, None, grounds
        self.touched = set(touched)
        self.version = 1

    def judge(self, own: Callable[[str], NodeState], most: int | None = None) -> None:
        """Judge anew what was touched, ``most`` of it, and whom it concerns. ``own`` tells a
        node's state, its neighbours not asked."""
        if not self._order:
            self._order = self._dag.topological_order()
            self._place = {name: at for at, name in enumerate(self._order)}
        touched = set(islice(self.touched, most))
        self.touched -= touched
        moved: set[str] = set()
        for name in touched:
            before, now = self._own.get(name), own(name)
            self._own[name] = now
            self._note_submission(now.submitted)
            if before is None or before.submitted != now.submitted:
                moved.add(name)
        concerned = touched | self._new_ancestors(moved)
        # After a resubmission all are touched: what failed before it bars nothing any more.
        changed = self._spread(touched | self._infer(concerned))
        if self.unrecorded is not None:
            changed |= self._spread(self.unrecorded.decide())
        self.news |= touched | changed
        self.version += 1

    def _note_submission(self, when: datetime | None) -> None:
        if when is not None and (self.last_submitted is None or when > self.last_submitted):
            self.last_submitted = when

    def _new_ancestors(self, moved: Iterable[str]) -> set[str]:
        """Reckon anew when any node before those after ``moved`` was last submitted; returns
        for whom that is another time."""
        nodes, told = self.nodes, set[str]()

        def reckon(name: str) -> Iterable[str]:
            times = [
                when
                for parent in nodes[name].parents
                if parent in self._own
                for when in (self._ancestor.get(parent), self._own[parent].submitted)
                if when is not None
            ]
            latest = max(times, default=None)
            if latest == self._ancestor.get(name):
                return ()
            if latest is None:
                del self._ancestor[name]
            else:
                self._ancestor[name] = latest
            told.add(name)
            return nodes[name].children

        after = {child for name in moved for child in nodes[name].children}
        self._in_turn(after, reckon)
        return told

    def _infer(self, concerned: Iterable[str]) -> set[str]:
        """States in the light of the ancestors, and of the nodes after; returns whose is
        another one."""
        nodes, states, changed = self.nodes, self._inferred, set[str]()
        done = self.facts[0] if self.facts is not None else frozenset()

        def infer(name: str) -> Iterable[str]:
            if name not in self._own:
                # Its turn comes.
                return ()
            mine = made_void(self._own[name], self._ancestor.get(name), name in done)
            if name in self._place:
                mine = inferred_done(nodes[name], mine, nodes, states)
            if mine == states.get(name):
                return ()
            states[name] = mine
            changed.add(name)
            return nodes[name].parents

        # Nodes of a cycle have no place in the order: nothing is inferred for them.
        concerned = set(concerned)
        for name in concerned - self._place.keys():
            infer(name)
            concerned.update(nodes[name].parents)
        self._in_turn(concerned, infer, backwards=True)
        return changed

    def _spread(self, concerned: set[str]) -> set[str]:
        """The states with those of the joins, of nodes behind one that failed, and of those
        without a record; returns whose is another one. Where all are recorded, only joins and
        nodes that are, or were, behind a failed one cost more than a look at their parents."""
        nodes, states, inferred = self.nodes, self.states, self._inferred
        before = {name: states.get(name) for name in concerned}
        turns = set(concerned) if self.unrecorded is not None else set[str]()
        for name in concerned - (turns & self._place.keys()):
            states[name] = inferred[name]
        for name, was in before.items() if self.unrecorded is None else ():
            node = nodes[name]
            waits = states[name].state is State.WAITING
            if name in self._joins or (
                waits and any(self._bars(states.get(p)) for p in node.parents)
            ):
                turns.add(name)
            if self._bars(was) or self._bars(states[name]):
                turns.update(node.children)
            elif self._joins:
                turns.update(self._joins.intersection(node.children))

        def spread(name: str) -> Iterable[str]:
            if name not in inferred:
                return ()
            mine = finished_join(nodes[name], inferred[name], states)
            moved = False
            if self.unrecorded is not None:
                mine, moved = self.unrecorded.judge(name, mine, states)
            mine = futile(nodes[name], mine, states, self._blocks)
            if mine == states.get(name) and not moved:
                return ()
            before.setdefault(name, states.get(name))
            states[name] = mine
            return nodes[name].children

        self._in_turn(turns, spread)
        return {name for name, was in before.items() if states[name] != was}

    def _blocks(self, state: NodeState) -> bool:
        """Has a node failed for good, in this life of DAGMan? What an older one left failed, the
        new one tries again."""
        begun, aborted = self.facts[2:4] if self.facts is not None else (None, False)
        if begun is not None and state.since is not None and state.since < begun:
            return False
        return has_failed(state, aborted and self._dag.has_final) and not state.again

    def _bars(self, state: NodeState | None) -> bool:
        """Can what comes after a node in this state not run?"""
        return state is not None and (state.state is State.FUTILE or self._blocks(state))

    def _in_turn(
        self, names: Iterable[str], step: Callable[[str], Iterable[str]], backwards: bool = False
    ) -> None:
        """Take ``names`` in the DAG's order, and with them those that ``step`` names: they
        stand later in it."""
        sign = -1 if backwards else 1
        turns = [sign * self._place[name] for name in names if name in self._place]
        heapify(turns)
        waiting = set(turns)
        while turns:
            at = heappop(turns)
            for name in step(self._order[sign * at]):
                place = self._place.get(name)
                if place is not None and sign * place not in waiting:
                    waiting.add(sign * place)
                    heappush(turns, sign * place)
