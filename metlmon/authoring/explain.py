"""Explains a node: where its variables come from, and its neighbours."""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase
from itertools import product
from typing import Final

from msgspec import Struct

from metlmon.authoring.graph import Graph, GraphNode, Precedence
from metlmon.dagman.commands import ALL_NODES, EdgeCommand, NodeModifier
from metlmon.dagman.parser import parse_dag

LEVELS: Final = {
    Precedence.ALL: "all nodes",
    Precedence.REGION: "region",
    Precedence.RUN: "run",
    Precedence.NODE: "node",
}
"""Text for each precedence; a later one hides the earlier."""


class NodeExplanation(Struct, frozen=True):
    """A node with its DAG file and its neighbours (nodes and splices).

    The neighbours are in the order of the file. ``weak``: parents whose failure does not stop the
    node. ``retries`` and ``unless``: in effect for it. ``commands``: further commands of the file
    about it. Its variables contain their own sources.
    """

    node: GraphNode
    file: str
    parents: tuple[str, ...]
    children: tuple[str, ...]
    weak: tuple[str, ...] = ()
    retries: int = 0
    unless: int | None = None
    commands: tuple[str, ...] = ()


NameSets = defaultdict[str, dict[str, None]]


def explain(graph: Graph, pattern: str, file: str) -> list[NodeExplanation]:
    """The nodes that match ``pattern`` (a name or a glob such as ``run0-*``).

    ``file``: name of the graph's DAG file; its nodes come before those of sub-DAGs.
    """
    text = "\n".join(graph.lines)
    lines = text.split("\n")
    parents: NameSets = defaultdict(dict)
    children: NameSets = defaultdict(dict)
    weak: NameSets = defaultdict(dict)
    # Edges to splices and weak edges are among the lines.
    modifiers: dict[str, list[str]] = defaultdict(list)
    for parent, child in graph.edges:
        parents[child][parent] = children[parent][child] = None
    for command in parse_dag(text.encode("utf-8", "replace"), "").commands:
        if isinstance(command, EdgeCommand):
            for parent, child in product(command.parents, command.children):
                parents[child][parent] = children[parent][child] = None
                if command.weak:
                    weak[child][parent] = None
        elif isinstance(command, NodeModifier):
            name = ALL_NODES if command.node.upper() == ALL_NODES else command.node
            modifiers[name].append(lines[command.line - 1])
    explanations = [
        NodeExplanation(
            node=node,
            file=file,
            parents=tuple(parents[node.name]),
            children=tuple(children[node.name]),
            weak=tuple(weak[node.name]),
            retries=graph.retries if node.retries is None else node.retries,
            unless=graph.unless_exit if node.retries is None else node.unless_exit,
            commands=(*modifiers[node.name], *modifiers[ALL_NODES]),
        )
        for node in graph.nodes
        if node.name == pattern or fnmatchcase(node.name, pattern)
    ]
    for name, inner in graph.subdags.items():
        explanations += explain(inner, pattern, name)
    return explanations


def node_names(graph: Graph) -> list[str]:
    """The names of all nodes, including those of sub-DAGs, without duplicates."""
    result = dict.fromkeys(node.name for node in graph.nodes)
    for inner in graph.subdags.values():
        result |= dict.fromkeys(node_names(inner))
    return list(result)
