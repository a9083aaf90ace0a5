"""Where each variable of a node comes from, and what the node hangs together with."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from metlmon.authoring.graph import Graph, GraphNode, Level
from metlmon.frozen import frozen

LEVELS: Final = {
    Level.ALL: "all nodes",
    Level.REGION: "region",
    Level.RUN: "run",
    Level.NODE: "node",
}
"""Who gave a variable, in words; the later one hides the earlier."""


@frozen
class Explained:
    """A node, the file that it stands in, and the names of its neighbours in the file's order.
    Its variables tell of themselves where they come from."""

    node: GraphNode
    file: str
    parents: tuple[str, ...]
    children: tuple[str, ...]


def explain(graph: Graph, wanted: str, file: str) -> list[Explained]:
    """The nodes called ``wanted``, or that it fits as a pattern (``run0-*``), sub-DAGs' after
    those of ``file`` itself, the name of the graph's DAG file."""
    parents: dict[str, list[str]] = {}
    children: dict[str, list[str]] = {}
    for parent, child in graph.edges:
        parents.setdefault(child, []).append(parent)
        children.setdefault(parent, []).append(child)
    found = [
        Explained(node, file, tuple(parents.get(node.name, ())), tuple(children.get(node.name, ())))
        for node in graph.nodes
        if node.name == wanted or fnmatchcase(node.name, wanted)
    ]
    for name, inner in graph.subdags.items():
        found += explain(inner, wanted, name)
    return found


def names(graph: Graph) -> list[str]:
    """The names of all nodes, sub-DAGs' included, each once."""
    found = dict.fromkeys(node.name for node in graph.nodes)
    for inner in graph.subdags.values():
        found |= dict.fromkeys(names(inner))
    return list(found)
