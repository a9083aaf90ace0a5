"""The nodes of the DAG files, for statistics that depend on these files only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct, field

from metlmon.dagman import Node
from metlmon.model.job_events import NodeKey
from metlmon.model.states import State
from metlmon.snapshot.builder import SnapshotBuilder


class DescribedNode(Struct, frozen=True):
    """One node.

    ``dag``: the file of its top-level DAG. ``run``: the key of its run, None for a node of no run;
    ``run_name``: the run's name in this node's name. ``training``: it is an epoch.
    """

    key: NodeKey
    dag: str
    node: Node
    run: str | None
    run_name: str | None
    uuid: str | None
    training: bool


class Nodes:
    """All nodes, in the order of their DAGs.

    The object is the same as long as the DAG files are, so that results can be cached by it.
    """

    def __init__(self, every: tuple[DescribedNode, ...] = ()) -> None:
        self.all = every


NO_NODES: Final = Nodes()


class DagDescription(Struct, frozen=True):
    """The nodes, and the states of those of no run at the time of the snapshot.

    ``completed``: times of completion, after POST scripts, as far as they are known.
    """

    nodes: Nodes = NO_NODES
    states: Mapping[NodeKey, State] = field(default_factory=dict)
    completed: Mapping[NodeKey, datetime] = field(default_factory=dict)


def describe_dags(builder: SnapshotBuilder, previous: Nodes | None = None) -> DagDescription:
    """The description of the DAGs of a snapshot.

    ``previous``: the nodes of the last description, if the DAG files have not changed since.
    """
    nodes = previous or Nodes(tuple(_describe_node(builder, key) for key in builder.nodes))
    states = {node.key: builder.states[node.key] for node in nodes.all if node.run is None}
    completed = {
        key: node.since
        for key, node in states.items()
        if node.state is State.COMPLETED and node.since is not None
    }
    return DagDescription(nodes, {key: node.state for key, node in states.items()}, completed)


def _describe_node(builder: SnapshotBuilder, key: NodeKey) -> DescribedNode:
    run, part = builder.runs.by_node.get(key), builder.runs.parts.get(key)
    return DescribedNode(
        key=key,
        dag=builder.aggregates.dag_file(key[0]),
        node=builder.nodes[key].node,
        run=run.key if run is not None else None,
        run_name=part.run if part is not None else None,
        uuid=run.uuid if run is not None else None,
        training=part is not None and part.training,
    )
