"""The graph of one DAG: edges, join nodes, roots and leaves, shape, cycles.

Source followed: ``ProcessDependencies``, ``ConnectSplices`` and
``RecordInitialAndTerminalNodes`` in DAGMan's ``parse.cpp`` and ``dag.cpp``; the statistics of
``condor_dag_checker``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from graphlib import CycleError, TopologicalSorter

from msgspec import Struct

from metlmon.dagman.records import NO_NAMES, Node, NodeKind

#: Nodes outside the graph: they can have neither parents nor children.
APART = frozenset({NodeKind.FINAL, NodeKind.PROVISIONER, NodeKind.SERVICE})

JOIN_NAME = "_condor_join_node"


class GraphShape(Struct, frozen=True):
    """The statistics that ``condor_dag_checker`` reports.

    ``nodes`` are JOBs; ``total`` counts all nodes, including sub-DAGs, join nodes and the
    nodes outside the graph. ``widths`` are the numbers of nodes by the depth at which a
    traversal from the roots first reaches them; empty, and ``height`` 0, when there is a cycle
    or no graph.
    """

    nodes: int
    total: int
    joins: int
    arcs: int
    widths: tuple[int, ...]

    @property
    def height(self) -> int:
        return len(self.widths)

    @property
    def width(self) -> int:
        return max(self.widths, default=0)


def connect(parents: Iterable[Node], children: Sequence[Node], *, weak: bool = False) -> None:
    """Add an edge from every parent to every child."""
    for parent in parents:
        for child in children:
            parent.children = _add_name(parent.children, child.name)
            child.parents = _add_name(child.parents, parent.name)
            if weak:
                child.weak_parents = _add_name(child.weak_parents, parent.name)


def _add_name(names: AbstractSet[str], name: str) -> AbstractSet[str]:
    if isinstance(names, set):
        names.add(name)
        return names
    return {*names, name} if names else frozenset((name,))


def share_edges(nodes: Iterable[Node]) -> None:
    """Freeze the edges: nodes with the same neighbors share one set of names.

    In a chain each name is the only child of one node and the only parent of another.
    """
    shared: dict[AbstractSet[str], AbstractSet[str]] = {NO_NAMES: NO_NAMES}
    for node in nodes:
        for side in ("parents", "children", "weak_parents"):
            names = getattr(node, side)
            if names:
                frozen_names = frozenset(names)
                setattr(node, side, shared.setdefault(frozen_names, frozen_names))


def roots(nodes: Iterable[Node]) -> list[Node]:
    """The nodes in the graph without parents."""
    return [node for node in nodes if not node.parents and node.kind not in APART]


def leaves(nodes: Iterable[Node]) -> list[Node]:
    """The nodes in the graph without children."""
    return [node for node in nodes if not node.children and node.kind not in APART]


def graph_shape(nodes: Mapping[str, Node]) -> GraphShape:
    """Compute the shape of a workflow's graph from ``Workflow.nodes``."""
    widths = [] if cycle(nodes) else _widths(nodes)
    kinds = [node.kind for node in nodes.values()]
    return GraphShape(
        nodes=kinds.count(NodeKind.JOB),
        total=len(kinds),
        joins=kinds.count(NodeKind.JOIN),
        arcs=sum(len(node.children) for node in nodes.values()),
        widths=tuple(widths),
    )


def _widths(nodes: Mapping[str, Node]) -> list[int]:
    """Traverse depth-first in the order of the nodes, like the official checker."""
    order = {name: index for index, name in enumerate(nodes)}
    widths: list[int] = []
    seen: set[str] = set()
    # An explicit stack, the next node last: long chains would exceed the recursion limit.
    stack = [(root.name, 0) for root in reversed(roots(nodes.values()))]
    while stack:
        name, depth = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        if depth == len(widths):
            widths.append(0)
        widths[depth] += 1
        children = sorted(nodes[name].children, key=order.__getitem__, reverse=True)
        stack += [(child, depth + 1) for child in children if child not in seen]
    return widths


def cycle(nodes: Mapping[str, Node]) -> list[str]:
    """The names along one cycle, first and last the same; empty when there is none."""
    try:
        TopologicalSorter({name: sorted(node.parents) for name, node in nodes.items()}).prepare()
    except CycleError as error:
        names: list[str] = error.args[1]
        return names
    return []
