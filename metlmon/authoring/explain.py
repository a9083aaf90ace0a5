"""Where each variable of a node comes from, and what the node hangs together with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from metlmon.authoring.graph import Graph, GraphNode, Precedence
from metlmon.dagman.commands import ALL_NODES, DagCommand, EdgeCommand, NodeModifier
from metlmon.dagman.parser import parse_dag
from metlmon.frozen import frozen

LEVELS: Final = {
    Precedence.ALL: "all nodes",
    Precedence.REGION: "region",
    Precedence.RUN: "run",
    Precedence.NODE: "node",
}
"""Who gave a variable, in words; the later one hides the earlier."""


@frozen
class NodeExplanation:
    """A node, the file that it stands in, and the names of its neighbours in the file's order: of
    nodes and splices; ``weak``: parents whose failure does not stop it. ``retries`` and ``unless``:
    what holds of it. ``says``: further commands of the file about it. Its variables tell of
    themselves where they come from."""

    node: GraphNode
    file: str
    parents: tuple[str, ...]
    children: tuple[str, ...]
    weak: tuple[str, ...] = ()
    retries: int = 0
    unless: int | None = None
    says: tuple[str, ...] = ()


def explain(graph: Graph, wanted: str, file: str) -> list[NodeExplanation]:
    """The nodes called ``wanted``, or that it fits as a pattern (``run0-*``), sub-DAGs' after
    those of ``file`` itself, the name of the graph's DAG file."""
    said = _said(graph.lines)
    parents, children, weak = _neighbours(graph, said)
    about = _about(said)
    found = [
        NodeExplanation(
            node=node,
            file=file,
            parents=tuple(parents.get(node.name, ())),
            children=tuple(children.get(node.name, ())),
            weak=tuple(weak.get(node.name, ())),
            retries=graph.retries if node.retries is None else node.retries,
            unless=graph.unless if node.retries is None else node.unless,
            says=(*about.get(node.name, ()), *about.get(ALL_NODES, ())),
        )
        for node in graph.nodes
        if node.name == wanted or fnmatchcase(node.name, wanted)
    ]
    for name, inner in graph.subdags.items():
        found += explain(inner, wanted, name)
    return found


Said = Sequence[tuple[str, DagCommand]]
Names = dict[str, dict[str, None]]


def _said(lines: Iterable[str]) -> Said:
    """Lines of a DAG file, each with what it says."""
    text = "\n".join(lines)
    written = text.split("\n")
    commands = parse_dag(text.encode("utf-8", "replace"), "").commands
    return [(written[each.line - 1], each) for each in commands]


def _neighbours(graph: Graph, said: Said) -> tuple[Names, Names, Names]:
    """Parents and children of each, and which parents are weak. Edges to splices, and weak ones,
    stand among the lines."""
    parents: Names = {}
    children: Names = {}
    weak: Names = {}
    for parent, child in graph.edges:
        parents.setdefault(child, {})[parent] = None
        children.setdefault(parent, {})[child] = None
    for edge in (each for _, each in said if isinstance(each, EdgeCommand)):
        for child in edge.children:
            parents.setdefault(child, {}).update(dict.fromkeys(edge.parents))
            if edge.weak:
                weak.setdefault(child, {}).update(dict.fromkeys(edge.parents))
        for parent in edge.parents:
            children.setdefault(parent, {}).update(dict.fromkeys(edge.children))
    return parents, children, weak


def _about(said: Said) -> Mapping[str, Sequence[str]]:
    """Lines about nodes, by the node that each is about."""
    found: dict[str, list[str]] = {}
    for line, command in said:
        if isinstance(command, NodeModifier):
            name = ALL_NODES if command.node.upper() == ALL_NODES else command.node
            found.setdefault(name, []).append(line)
    return found


def names(graph: Graph) -> list[str]:
    """The names of all nodes, sub-DAGs' included, each once."""
    found = dict.fromkeys(node.name for node in graph.nodes)
    for inner in graph.subdags.values():
        found |= dict.fromkeys(names(inner))
    return list(found)
