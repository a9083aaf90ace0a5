"""Explains a node: where its variables come from, and its neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from metlmon.authoring.graph import Graph, GraphNode, Precedence
from metlmon.dagman.commands import ALL_NODES, DagCommand, EdgeCommand, NodeModifier
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


def explain(graph: Graph, pattern: str, file: str) -> list[NodeExplanation]:
    """The nodes that match ``pattern`` (a name or a glob such as ``run0-*``).

    ``file``: name of the graph's DAG file; its nodes come before those of sub-DAGs.
    """
    commands = _parse_lines(graph.lines)
    parents, children, weak = _neighbours(graph, commands)
    node_lines = _lines_by_node(commands)
    explanations = [
        NodeExplanation(
            node=node,
            file=file,
            parents=tuple(parents.get(node.name, ())),
            children=tuple(children.get(node.name, ())),
            weak=tuple(weak.get(node.name, ())),
            retries=graph.retries if node.retries is None else node.retries,
            unless=graph.unless_exit if node.retries is None else node.unless_exit,
            commands=(*node_lines.get(node.name, ()), *node_lines.get(ALL_NODES, ())),
        )
        for node in graph.nodes
        if node.name == pattern or fnmatchcase(node.name, pattern)
    ]
    for name, inner in graph.subdags.items():
        explanations += explain(inner, pattern, name)
    return explanations


CommandLines = Sequence[tuple[str, DagCommand]]
NameSets = dict[str, dict[str, None]]


def _parse_lines(lines: Iterable[str]) -> CommandLines:
    """Lines of a DAG file, each with its parsed command."""
    text = "\n".join(lines)
    all_lines = text.split("\n")
    commands = parse_dag(text.encode("utf-8", "replace"), "").commands
    return [(all_lines[command.line - 1], command) for command in commands]


def _neighbours(graph: Graph, commands: CommandLines) -> tuple[NameSets, NameSets, NameSets]:
    """Parents and children of each node, and which of the parents are weak.

    Edges to splices and weak edges are among the lines.
    """
    parents: NameSets = {}
    children: NameSets = {}
    weak: NameSets = {}
    for parent, child in graph.edges:
        parents.setdefault(child, {})[parent] = None
        children.setdefault(parent, {})[child] = None
    for edge in (command for _, command in commands if isinstance(command, EdgeCommand)):
        for child in edge.children:
            parents.setdefault(child, {}).update(dict.fromkeys(edge.parents))
            if edge.weak:
                weak.setdefault(child, {}).update(dict.fromkeys(edge.parents))
        for parent in edge.parents:
            children.setdefault(parent, {}).update(dict.fromkeys(edge.children))
    return parents, children, weak


def _lines_by_node(commands: CommandLines) -> Mapping[str, Sequence[str]]:
    """Lines that modify a node, by node."""
    result: dict[str, list[str]] = {}
    for line, command in commands:
        if isinstance(command, NodeModifier):
            name = ALL_NODES if command.node.upper() == ALL_NODES else command.node
            result.setdefault(name, []).append(line)
    return result


def node_names(graph: Graph) -> list[str]:
    """The names of all nodes, including those of sub-DAGs, without duplicates."""
    result = dict.fromkeys(node.name for node in graph.nodes)
    for inner in graph.subdags.values():
        result |= dict.fromkeys(node_names(inner))
    return list(result)
