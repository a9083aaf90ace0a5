"""The scope of one DAG or splice: its nodes, splices, pins and descriptions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from metlmon.dagman import graph
from metlmon.dagman.commands import SCOPE_SIGN
from metlmon.dagman.records import Node, NodeKind
from metlmon.dagman.submit_description import Description


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
        self.roots = graph.roots(self.lifted)
        self.leaves = graph.leaves(self.lifted)
