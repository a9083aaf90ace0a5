"""The graph of a DAG that is to be written: nodes, variables and edges.

Every shape and every sweep is converted to a :class:`Graph`; the DAG file, the ASCII drawing and
the output of ``--explain`` are derived from it alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import product
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.dagman.commands import ALL_NODES, EdgeCommand, NodeModifier, ScriptKind
from metlmon.dagman.parser import parse_dag
from metlmon.dagman.records import NodeKind, Script
from metlmon.text.record_json import Flat

ALWAYS_SUCCEEDS: Final = "/bin/true"
"""POST script of a node whose failure is ignored."""

MAX_NODES: Final = 100_000
"""A DAG file of 30 MB, and more nodes than DAGMan starts in a day."""


class NodeRole(StrEnum):
    """The purpose of a node in the ensemble."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    SHARD = "shard"
    GATHER = "gather"
    PROVISION = "provision"
    SERVE = "serve"
    FINISH = "finish"
    PLAIN = "plain"


TRAINING_ROLES: Final = frozenset({NodeRole.TRAIN, NodeRole.EVALUATE})
"""Roles of the nodes of runs, which may have a gate; it gets the role as an argument."""


class Precedence(StrEnum):
    """The source of a variable; the last one wins."""

    ALL = "all"
    REGION = "region"
    RUN = "run"
    NODE = "node"


class SetValue(Struct, frozen=True):
    """A value that something sets for a variable of a node (VARS), unquoted.

    ``where``: what set it (``ensemble.toml:7``, ``sweep.dag:3``, ``the shape: epochs count from
    1``). ``append``: takes precedence over the submit file, too (VARS with APPEND).
    """

    name: str
    value: str
    level: Precedence
    where: str
    append: bool = False


class VariableValue(SetValue, frozen=True):
    """A variable of a node, with the value that takes precedence.

    ``hides``: values of lower precedence that it hides, nearest first.
    """

    hides: tuple[SetValue, ...] = ()


class ScriptOptions(NamedTuple):
    """Further options of a script (``DEBUG file ALL``): PRE, POST or HOLD."""

    script: str
    options: str


def script_options(kind: ScriptKind, script: Script) -> tuple[ScriptOptions, ...]:
    """The options of a script, if it has any; DEFER of PRE is a field of the node."""
    others = replace(script, defer=None) if kind is ScriptKind.PRE else script
    return (ScriptOptions(kind.name, others.options),) if others.options else ()


class GraphNode(Struct, frozen=True):
    """A node of the graph.

    - ``submit``: name of its submit file beside the DAG, or of the sub-DAG file of a SUBDAG node.
    - ``epoch``: from 0, for TRAIN and EVALUATE nodes (that of the preceding training).
    - ``pre``, ``post``, ``hold``: command lines of scripts.
    - ``defer``: (exit code, seconds) of the PRE script.
    - ``skip_code``: exit code of the PRE script that ends the node successfully, without a job.
    - ``retries``: None: the default of the graph; ``unless_exit``: the exit code that prevents
      retries.
    - ``where``: what requested the node.
    """

    name: str
    submit: str
    kind: NodeKind = NodeKind.JOB
    role: NodeRole = NodeRole.PLAIN
    run: str | None = None
    epoch: int | None = None
    variables: tuple[VariableValue, ...] = ()
    pre: str | None = None
    defer: tuple[int, int] | None = None
    skip_code: int | None = None
    post: str | None = None
    hold: str | None = None
    options: tuple[ScriptOptions, ...] = ()
    retries: int | None = None
    unless_exit: int | None = None
    noop: bool = False
    where: str = ""


class Graph(Struct, frozen=True):
    """The nodes and edges of a DAG file, each in the order of the file.

    ``edges``: (parent, child) by name. ``retries`` and ``unless_exit``: defaults for all nodes.
    ``lines``: further commands of the DAG file, verbatim. ``subdags``: graphs of the external
    sub-DAGs, by file name.
    """

    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    retries: int = 0
    lines: tuple[str, ...] = ()
    unless_exit: int | None = None
    subdags: Mapping[str, Graph] = field(default_factory=dict)

    @property
    def trainings(self) -> int:
        """Number of nodes that train an epoch, including those of sub-DAGs."""
        return sum(node.role is NodeRole.TRAIN for node in self.all_nodes)

    @property
    def all_nodes(self) -> Iterator[GraphNode]:
        """The nodes, including those of the sub-DAGs, which have no sub-DAGs of their own."""
        return (node for part in (self, *self.subdags.values()) for node in part.nodes)


# --- explanations of nodes --------------------------------------------------------------------


class NodeExplanation(Struct, frozen=True):
    """A node with its DAG file and its neighbours (nodes and splices).

    The neighbours are in the order of the file. ``weak_parents``: those whose failure does not stop
    the node. ``retries`` and ``unless_exit``: in effect for it. ``commands``: further commands of
    the file about it. Its variables contain their own sources.
    """

    node: Flat[GraphNode]
    file: str
    parents: tuple[str, ...]
    children: tuple[str, ...]
    weak_parents: tuple[str, ...] = ()
    retries: int = 0
    unless_exit: int | None = None
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
            weak_parents=tuple(weak[node.name]),
            retries=graph.retries if node.retries is None else node.retries,
            unless_exit=graph.unless_exit if node.retries is None else node.unless_exit,
            commands=(*modifiers[node.name], *modifiers[ALL_NODES]),
        )
        for node in graph.nodes
        if node.name == pattern or fnmatchcase(node.name, pattern)
    ]
    for name, inner in graph.subdags.items():
        explanations += explain(inner, pattern, name)
    return explanations
