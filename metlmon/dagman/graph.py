"""The graph of one DAG: edges, join nodes, roots and leaves, cycles.

Source followed: ``ProcessDependencies``, ``ConnectSplices`` and
``RecordInitialAndTerminalNodes`` in DAGMan's ``parse.cpp`` and ``dag.cpp``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from graphlib import CycleError, TopologicalSorter

from metlmon.dagman.records import NO_NAMES, Node, NodeKind

#: Nodes outside the graph: they can have neither parents nor children.
APART = frozenset({NodeKind.FINAL, NodeKind.PROVISIONER, NodeKind.SERVICE})

JOIN_NAME = "_condor_join_node"


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


def cycle(nodes: Mapping[str, Node]) -> list[str]:
    """The names along one cycle, first and last the same; empty when there is none."""
    try:
        TopologicalSorter({name: sorted(node.parents) for name, node in nodes.items()}).prepare()
    except CycleError as error:
        names: list[str] = error.args[1]
        return names
    return []


def topological_order(parents: Mapping[str, Collection[str]]) -> list[str]:
    """The keys of ``parents``, parents before children, without those of a cycle or after one."""
    missing = {name: len(names) for name, names in parents.items()}
    children: dict[str, list[str]] = {}
    for name, names in parents.items():
        for parent in names:
            children.setdefault(parent, []).append(name)
    order = [name for name, count in missing.items() if not count]
    for name in order:
        for child in children.get(name, ()):
            missing[child] -= 1
            if not missing[child]:
                order.append(child)
    return order
