"""Adjusts a node's state in the light of its ancestors and descendants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from metlmon.dagman import Node, NodeKind
from metlmon.model.node import NodeState
from metlmon.model.states import ACTIVE, DONE, State


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
    """Has the node failed, as DAGMan counts?

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
