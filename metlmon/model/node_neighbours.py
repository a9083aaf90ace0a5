"""What the nodes around a node say of its state: those before it, and those after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from metlmon.dagman import Node, NodeKind
from metlmon.model.node import NodeState
from metlmon.model.states import ACTIVE, DONE, State


def made_void(mine: NodeState, ancestor: datetime | None, done: bool) -> NodeState:
    """A node that was submitted before one of its ancestors was submitted again is superseded:
    what it did was made void. ``ancestor``: when any node before it was last submitted;
    ``done``: a file marks it ``DONE``."""
    if ancestor is None or mine.submitted is None or ancestor <= mine.submitted or done:
        return mine
    return mine if mine.state in ACTIVE else NodeState(State.WAITING, superseded=True)


def inferred_done(
    node: Node, mine: NodeState, nodes: Mapping[str, Node], states: Mapping[str, NodeState]
) -> NodeState:
    """A node whose child was submitted after it must be done, whatever its own log lost."""
    if mine.state in DONE:
        return mine
    for child in node.children:
        if node.name in nodes[child].weak_parents:
            continue
        if child not in states:
            # It is judged later, and its parents again with it.
            continue
        begun, when = _begun(states[child])
        if begun and (mine.submitted is None or (when and when > mine.submitted)):
            return NodeState(
                State.COMPLETED, when, mine.job, inferred=True, submitted=mine.submitted
            )
    return mine


def _begun(child: NodeState) -> tuple[bool, datetime | None]:
    """Did DAGMan ever get to this node, and when? Then all before it is done."""
    if child.superseded:
        return False, None
    if child.submitted is not None:
        return True, child.submitted
    return child.inferred or child.state in (State.PRE, State.SKIPPED), child.since


def has_failed(state: NodeState, aborted: bool = False) -> bool:
    """As DAGMan counts: a node whose job somebody removed has failed, one whose job left
    together with its DAG has not. ``aborted``: ABORT-DAG-ON ended the DAG and its FINAL node runs,
    for which DAGMan reads on: then that one has failed, too."""
    if state.state is State.REMOVED:
        return aborted or state.job is None or not state.job.swept
    return state.state is State.FAILED


def futile(
    node: Node,
    mine: NodeState,
    states: Mapping[str, NodeState],
    blocks: Callable[[NodeState], bool],
) -> NodeState:
    """A waiting node behind one that failed for good, or behind a futile one, is futile. The
    children of a failed node that a weak edge leads to are not: it only has to be over. ``blocks``:
    has a node failed for good? Source: ``Node::SetDescendantsToFutile`` in ``node.cpp``."""
    if mine.state is not State.WAITING:
        return mine
    found: tuple[datetime, str] | None = None
    for name in node.parents:
        before = states.get(name)
        if before is None:
            continue
        if before.state is State.FUTILE:
            behind = before.behind or name
        elif name not in node.weak_parents and blocks(before):
            behind = name
        else:
            continue
        each = before.since or datetime.min, behind
        found = each if found is None else min(found, each)
    if found is None:
        return mine
    since = None if found[0] == datetime.min else found[0]
    return NodeState(State.FUTILE, since, superseded=mine.superseded, behind=found[1])


def parents_of(nodes: Mapping[str, Node], name: str) -> list[str]:
    """The nodes directly before one, in the DAG's order: of a join node for it, those before
    that one."""
    found: set[str] = set()
    ahead = list(nodes[name].parents) if name in nodes else []
    joins: set[str] = set()
    while ahead:
        parent = ahead.pop()
        known = nodes.get(parent)
        if known is None or parent in joins:
            continue
        if known.kind is NodeKind.JOIN:
            joins.add(parent)
            ahead += known.parents
        else:
            found.add(parent)
    return sorted(found, key=lambda each: (nodes[each].line, each))


def finished_join(node: Node, mine: NodeState, states: Mapping[str, NodeState]) -> NodeState:
    """A join node is done with its parents."""
    if node.kind is not NodeKind.JOIN or mine.state is not State.WAITING:
        return mine
    parents = [states[parent].state for parent in node.parents if parent in states]
    done = bool(parents) and all(state in DONE for state in parents)
    return NodeState(State.COMPLETED) if done else mine
