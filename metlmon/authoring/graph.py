"""A DAG that is to be written: its nodes with their variables, and what comes before what.

Every shape and every sweep becomes one of these; the DAG file's text, the picture of it, and what
``--explain`` tells of a node are made of it alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum, StrEnum
from typing import Final

from metlmon.dagman import NodeKind
from metlmon.frozen import frozen


class NodeRole(StrEnum):
    """What a node does for the ensemble."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    SHARD = "shard"
    GATHER = "gather"
    PROVISION = "provision"
    SERVE = "serve"
    FINISH = "finish"
    PLAIN = "plain"


class Precedence(IntEnum):
    """Who gave a variable. The greatest that gives it is the one that counts."""

    ALL = 0
    REGION = 1
    RUN = 2
    NODE = 3


@frozen
class VariableValue:
    """A variable of a node (VARS), its value unquoted. ``where``: what gave it, in words
    (``ensemble.toml:7``, ``sweep.dag:3``, ``the shape: epochs count from 1``). ``over``: values of
    lower levels that this one hides, the nearest first. ``append``: it goes before what the submit
    file says, too."""

    name: str
    value: str
    level: Precedence
    where: str
    over: tuple[VariableValue, ...] = ()
    append: bool = False


@frozen
class GraphNode:
    """One node. ``submit``: the name of its submit file beside the DAG, or of the sub-DAG file of
    a SUBDAG node. ``epoch`` from 0, of TRAIN and EVALUATE (that of the training before it).
    ``pre``, ``post``, ``hold``: script command lines, ``defer`` (exit code, seconds) of the PRE
    script; ``options``: what else DAGMan is told of scripts (``DEBUG file ALL``), by PRE, POST and
    HOLD; ``skip``: exit code of the PRE script that ends the node well, without a job. ``retries``
    None: as all; ``unless``: the exit code after which there is none. ``where``: what asked for
    the node."""

    name: str
    submit: str
    kind: NodeKind = NodeKind.JOB
    role: NodeRole = NodeRole.PLAIN
    run: str | None = None
    epoch: int | None = None
    variables: tuple[VariableValue, ...] = ()
    pre: str | None = None
    defer: tuple[int, int] | None = None
    skip: int | None = None
    post: str | None = None
    hold: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    retries: int | None = None
    unless: int | None = None
    noop: bool = False
    where: str = ""


@frozen
class Graph:
    """``nodes`` in the order of the file; ``edges``: (parent, child) by names, in the order of the
    file. ``retries`` and ``unless`` of all nodes that say nothing else. ``lines``: further commands
    of the DAG file, as written. ``subdags``: graphs of the external sub-DAGs, by their files'
    names."""

    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    retries: int = 0
    lines: tuple[str, ...] = ()
    unless: int | None = None
    subdags: Mapping[str, Graph] = field(default_factory=dict)

    @property
    def trainings(self) -> int:
        """How many nodes train an epoch, sub-DAGs' included."""
        own = sum(each.role is NodeRole.TRAIN for each in self.nodes)
        return own + sum(graph.trainings for graph in self.subdags.values())

    def node(self, name: str) -> GraphNode | None:
        """The node of this name, sub-DAGs' included."""
        for each in self.nodes:
            if each.name == name:
                return each
        found = (graph.node(name) for graph in self.subdags.values())
        return next((each for each in found if each is not None), None)


NO_GRAPH: Final = Graph()
