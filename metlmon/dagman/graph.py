"""The graph of one DAG: edges as DAGMan draws them, join nodes, splices' ends, shape, cycles.

Source followed: ``ProcessDependencies``, ``ConnectSplices`` and
``RecordInitialAndTerminalNodes`` in DAGMan's ``parse.cpp`` and ``dag.cpp``; the figures of
``condor_dag_checker``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from metlmon.dagman.records import NO_NAMES, Node, NodeKind
from metlmon.frozen import frozen

#: Nodes outside the graph: they can have neither parents nor children.
APART = frozenset({NodeKind.FINAL, NodeKind.PROVISIONER, NodeKind.SERVICE})

JOIN_NAME = "_condor_join_node"


@frozen
class GraphShape:
    """The figures ``condor_dag_checker`` gives. ``nodes`` are JOBs; ``total`` counts all,
    sub-DAGs, join nodes and the nodes outside the graph included. ``widths`` are the numbers
    of nodes by the depth at which a walk down from the roots first meets them; empty, and
    ``height`` 0, when there is a cycle or no graph."""

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
    """Every parent before every child."""
    for parent in parents:
        for child in children:
            parent.children = _with(parent.children, child.name)
            child.parents = _with(child.parents, parent.name)
            if weak:
                child.weak_parents = _with(child.weak_parents, parent.name)


def _with(names: AbstractSet[str], name: str) -> AbstractSet[str]:
    if isinstance(names, set):
        names.add(name)
        return names
    return {*names, name} if names else frozenset((name,))


def settle(nodes: Iterable[Node]) -> None:
    """No more edges will be drawn: nodes with the same neighbours have them together. In a chain
    each name is the only child of one node and the only parent of another."""
    known: dict[AbstractSet[str], AbstractSet[str]] = {NO_NAMES: NO_NAMES}
    for node in nodes:
        for side in ("parents", "children", "weak_parents"):
            names = getattr(node, side)
            if names:
                same = frozenset(names)
                setattr(node, side, known.setdefault(same, same))


def roots(nodes: Iterable[Node]) -> list[Node]:
    """The nodes in the graph that wait for nothing."""
    return [node for node in nodes if not node.parents and node.kind not in APART]


def leaves(nodes: Iterable[Node]) -> list[Node]:
    """The nodes in the graph that nothing waits for."""
    return [node for node in nodes if not node.children and node.kind not in APART]


def graph_shape(nodes: Mapping[str, Node]) -> GraphShape:
    """The shape of a workflow's graph: pass ``Workflow.nodes``."""
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
    """Depth-first in the order of the nodes, as the official checker walks."""
    order = {name: index for index, name in enumerate(nodes)}
    widths: list[int] = []
    seen: set[str] = set()
    # A list of nodes still to visit, the next one last: recursion would end at long chains.
    ahead = [(root.name, 0) for root in reversed(roots(nodes.values()))]
    while ahead:
        name, depth = ahead.pop()
        if name in seen:
            continue
        seen.add(name)
        if depth == len(widths):
            widths.append(0)
        widths[depth] += 1
        children = sorted(nodes[name].children, key=order.__getitem__, reverse=True)
        ahead += [(child, depth + 1) for child in children if child not in seen]
    return widths


def cycle(nodes: Mapping[str, Node]) -> list[str]:
    """The names along one cycle, first and last the same; empty when there is none."""
    waiting = {name: len(node.parents) for name, node in nodes.items()}
    ready = [name for name, count in waiting.items() if count == 0]
    while ready:
        name = ready.pop()
        del waiting[name]
        for child in nodes[name].children:
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    if not waiting:
        return []
    return _walk_back(nodes, waiting)


def _walk_back(nodes: Mapping[str, Node], stuck: Mapping[str, int]) -> list[str]:
    """Every stuck node has a stuck parent: going up from one must meet itself."""
    name = next(iter(stuck))
    path: list[str] = []
    place: dict[str, int] = {}
    while name not in place:
        place[name] = len(path)
        path.append(name)
        name = next(parent for parent in sorted(nodes[name].parents) if parent in stuck)
    return [name, *reversed(path[place[name] :])]
