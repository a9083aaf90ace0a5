"""The graph of one DAG: scopes of names, edges, roots and leaves, cycles.

Source followed: ``ProcessDependencies``, ``ConnectSplices`` and
``RecordInitialAndTerminalNodes`` in DAGMan's ``parse.cpp`` and ``dag.cpp``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from msgspec import Struct, field

from metlmon.dagman.commands import SCOPE_SIGN
from metlmon.dagman.records import Node, NodeKind
from metlmon.dagman.submit_description import Description

#: Nodes outside the graph: they can have neither parents nor children.
#: A tuple, since it is searched by identity; a set would need the slow hash of an enum.
APART = (NodeKind.FINAL, NodeKind.PROVISIONER, NodeKind.SERVICE)

JOIN_NAME = "_condor_join_node"


def connect(parents: Iterable[Node], children: Sequence[Node], *, weak: bool = False) -> None:
    """Add an edge from every parent to every child."""
    for parent in parents:
        for child in children:
            parent.children = _add_name(parent.children, child.name)
            child.parents = _add_name(child.parents, parent.name)
            if weak:
                child.weak_parents = _add_name(child.weak_parents, parent.name)


def _add_name(names: Collection[str], name: str) -> Collection[str]:
    if isinstance(names, set):
        names.add(name)
        return names
    return {*names, name} if names else (name,)


def share_edges(nodes: Iterable[Node]) -> None:
    """Freeze the edges: nodes with the same neighbors share one collection of names.

    In a chain each name is the only child of one node and the only parent of another.
    """
    shared: dict[Collection[str], Collection[str]] = {(): ()}
    for node in nodes:
        for side in ("parents", "children"):
            names = tuple(sorted(getattr(node, side)))
            setattr(node, side, shared.setdefault(names, names))
        weak_parents = frozenset(node.weak_parents)
        node.weak_parents = shared.setdefault(weak_parents, weak_parents)


def roots(nodes: Iterable[Node]) -> list[Node]:
    """The nodes in the graph without parents."""
    return [node for node in nodes if not node.parents and node.kind not in APART]


def leaves(nodes: Iterable[Node]) -> list[Node]:
    """The nodes in the graph without children."""
    return [node for node in nodes if not node.children and node.kind not in APART]


def cycle(nodes: Mapping[str, Node]) -> list[str]:
    """The names along one cycle, first and last the same; empty without a cycle."""
    parents = {name: node.parents for name, node in nodes.items()}
    if len(topological_order(parents)) == len(parents):
        return []
    try:
        TopologicalSorter({name: sorted(node.parents) for name, node in nodes.items()}).prepare()
    except CycleError as error:
        names: list[str] = error.args[1]
        return names
    return []


def topological_order(parents: Mapping[str, Collection[str]]) -> list[str]:
    """The keys of ``parents``, parents first, without those of a cycle or after one."""
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


class Scope(Struct):
    """The names visible to the commands of one DAG or splice, as written there.

    ``directory`` is DAGMan's directory while it reads the files, ``dir`` the same as stored in
    the nodes (relative to DAGMan's working directory, "" for that), ``prefix`` the prefix of
    its nodes' names. ``lifted`` (all its nodes), ``roots`` and ``leaves`` are set when a splice
    is complete; PARENT and CHILD refer to them by its name, whatever edges are added later.
    ``flat``: an INCLUDE has moved the nodes of its splices into this scope and removed the
    splices, as DAGMan does after each file that it reads.
    """

    directory: Path
    prefix: str = ""
    dir: str = ""
    nodes: dict[str, Node] = field(default_factory=dict)
    splices: dict[str, Scope] = field(default_factory=dict)
    descriptions: dict[str, Description] = field(default_factory=dict)
    pins_in: dict[int, list[Node]] = field(default_factory=dict)
    pins_out: dict[int, list[Node]] = field(default_factory=dict)
    lifted: list[Node] = field(default_factory=list)
    roots: list[Node] = field(default_factory=list)
    leaves: list[Node] = field(default_factory=list)
    kinds: set[NodeKind] = field(default_factory=set)
    flat: bool = False

    def add(self, key: str, node: Node) -> None:
        self.nodes[key] = node
        self.kinds.add(node.kind)

    def has_name(self, key: str) -> bool:
        """Whether a node or a splice has this name."""
        return key in self.nodes or key in self.splices

    def find(self, name: str) -> Node | None:
        """Find a node of this scope, or one inside a splice by its name ``S+node``."""
        scope, rest = self, name
        while (node := scope.nodes.get(rest)) is None:
            head, sign, rest = rest.partition(SCOPE_SIGN)
            if not sign or (inner := scope.splices.get(head)) is None:
                return None
            scope = inner
        return node

    def all_nodes(self) -> Iterator[Node]:
        """Its own nodes, then those of its splices, in the order of DAGMan."""
        yield from self.nodes.values()
        for splice in self.splices.values():
            yield from splice.all_nodes()

    def complete(self) -> None:
        """Record all nodes, roots and leaves once all its files are read."""
        self.lifted = list(self.nodes.values())
        for splice in self.splices.values():
            self.lifted += splice.lifted
        self.roots = roots(self.lifted)
        self.leaves = leaves(self.lifted)
