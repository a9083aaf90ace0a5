"""One DAG or splice while it is read: its nodes, splices, pins and descriptions by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from metlmon.dagman import graph
from metlmon.dagman.commands import SCOPE_SIGN
from metlmon.dagman.records import Node, NodeKind
from metlmon.dagman.submit_description import Description


@dataclass(slots=True)
class Scope:
    """Names in it are as the commands of its own files write them.

    ``here`` is the directory DAGMan is in while it reads them, ``dir`` the same as its nodes
    carry it (relative to DAGMan's working directory, "" for that), ``prefix`` what stands
    before its nodes' names. ``lifted`` (all its nodes), ``roots`` and ``leaves`` are set when
    a splice is complete: they stay what PARENT and CHILD mean by its name, whatever edges are
    drawn to them later. ``flat``: an INCLUDE has made the nodes of its splices its own, and the
    splices themselves unknown, as DAGMan does after each file that it reads.
    """

    here: Path
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

    def taken(self, key: str) -> bool:
        """Whether a node or a splice has this name."""
        return key in self.nodes or key in self.splices

    def find(self, name: str) -> Node | None:
        """A node of this scope, or one inside a splice by its full name ``S+node``."""
        scope, rest = self, name
        while (node := scope.nodes.get(rest)) is None:
            head, sign, rest = rest.partition(SCOPE_SIGN)
            if not sign or (inner := scope.splices.get(head)) is None:
                return None
            scope = inner
        return node

    def all_nodes(self) -> Iterator[Node]:
        """Its own nodes, then its splices', in the order DAGMan lifts them."""
        yield from self.nodes.values()
        for splice in self.splices.values():
            yield from splice.all_nodes()

    def complete(self) -> None:
        """Records which nodes are first and last, once all its files are read."""
        self.lifted = list(self.nodes.values())
        for splice in self.splices.values():
            self.lifted += splice.lifted
        self.roots = graph.roots(self.lifted)
        self.leaves = graph.leaves(self.lifted)
