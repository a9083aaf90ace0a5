"""The nodes as the DAG files describe them, for what follows from those files alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from metlmon.dagman import Node
from metlmon.frozen import frozen
from metlmon.model.job_events import NodeKey
from metlmon.model.states import State

if TYPE_CHECKING:
    from metlmon.snapshot.builder import SnapshotBuilder


@frozen
class DescribedNode:
    """One node. ``dag``: the file of its top-level DAG; ``run``: its run's key, None for a node
    of no run, ``run_name`` what this node's own name calls the run; ``training``: it is an
    epoch."""

    key: NodeKey
    dag: str
    node: Node
    run: str | None
    run_name: str | None
    uuid: str | None
    training: bool


class Nodes:
    """All nodes, in the order of their DAGs. The same object as long as the DAG files are the
    same, so that what follows from it can be remembered by it."""

    def __init__(self, every: tuple[DescribedNode, ...] = ()) -> None:
        self.every = every


NO_NODES: Final = Nodes()


@frozen
class DagDescription:
    """Of the nodes of no run, at the moment of the picture: ``states``; ``completed``: when those
    that are were, after their POST scripts, as far as that is known."""

    nodes: Nodes = NO_NODES
    states: Mapping[NodeKey, State] = field(default_factory=dict)
    completed: Mapping[NodeKey, datetime] = field(default_factory=dict)


def described(painter: SnapshotBuilder, before: Nodes | None = None) -> DagDescription:
    """The nodes of a picture; ``before``: as they were described last, if the DAG files have not
    changed since."""
    nodes = before or Nodes(tuple(_described(painter, key) for key in painter.nodes))
    judged = {each.key: painter.states[each.key] for each in nodes.every if each.run is None}
    completed = {
        key: node.since
        for key, node in judged.items()
        if node.state is State.COMPLETED and node.since is not None
    }
    return DagDescription(nodes, {key: node.state for key, node in judged.items()}, completed)


def _described(painter: SnapshotBuilder, key: NodeKey) -> DescribedNode:
    run, part = painter.runs.of_node.get(key), painter.runs.parts.get(key)
    return DescribedNode(
        key,
        painter.dag_file(key[0]),
        painter.nodes[key].node,
        run.key if run is not None else None,
        part.run if part is not None else None,
        run.uuid if run is not None else None,
        part is not None and part.training,
    )
