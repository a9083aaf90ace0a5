"""Typed records of the commands of a DAG file.

Source followed: HTCondor manual, "DAG input file reference".
"""

from __future__ import annotations

from enum import Enum

from metlmon.dagman.records import NodeKind
from metlmon.dagman.submit_description import Description
from metlmon.frozen import frozen

#: Means all of a DAG's own nodes; written in any case.
ALL_NODES = "ALL_NODES"

#: Joins the names of splices and nodes, so it is not allowed in a name.
SCOPE_SIGN = "+"


class ScriptKind(Enum):
    PRE = "pre"
    POST = "post"
    HOLD = "hold"


class Placement(Enum):
    """When VARS are set: before the submit description is read, or after (override)."""

    PREPEND = "prepend"
    APPEND = "append"


@frozen
class DagCommand:
    """A command of a DAG file.

    This class itself: one that only DAGMan uses (MAXJOBS, CONFIG, DOT, ENV, …).
    """

    line: int


@frozen
class NodeCommand(DagCommand):
    """JOB, FINAL, PROVISIONER, SERVICE, SUBDAG EXTERNAL; ``submit`` None if inline."""

    kind: NodeKind
    name: str
    submit: str | None
    inline: Description | None
    dir: str | None
    noop: bool
    done: bool


@frozen
class DescriptionCommand(DagCommand):
    name: str
    description: Description


@frozen
class SpliceCommand(DagCommand):
    name: str
    file: str
    dir: str | None


@frozen
class IncludeCommand(DagCommand):
    file: str


@frozen
class StatusFileCommand(DagCommand):
    file: str


@frozen
class JobstateCommand(DagCommand):
    file: str


@frozen
class RejectCommand(DagCommand):
    pass


@frozen
class EdgeCommand(DagCommand):
    """[WEAK] PARENT … CHILD …"""

    parents: tuple[str, ...]
    children: tuple[str, ...]
    weak: bool


@frozen
class NodeModifier(DagCommand):
    """A command about one node, or about ALL_NODES."""

    node: str


@frozen
class ScriptCommand(NodeModifier):
    kind: ScriptKind
    command: str
    defer: tuple[int, int] | None = None


@frozen
class RetryCommand(NodeModifier):
    retries: int
    unless_exit: int | None


@frozen
class AbortCommand(NodeModifier):
    on: int
    returns: int | None


@frozen
class VarsCommand(NodeModifier):
    pairs: tuple[tuple[str, str], ...]
    placement: Placement


@frozen
class PriorityCommand(NodeModifier):
    priority: int


@frozen
class PreSkipCommand(NodeModifier):
    code: int


@frozen
class CategoryCommand(NodeModifier):
    category: str


@frozen
class DoneCommand(NodeModifier):
    pass


@frozen
class ToleranceCommand(NodeModifier):
    """TOLERANCE; only the existence of the node is checked."""


@frozen
class SavePointCommand(NodeModifier):
    """SAVE_POINT_FILE; only the existence and the kind of the node are checked."""


@frozen
class PinCommand(NodeModifier):
    number: int
    out: bool


@frozen
class ConnectCommand(DagCommand):
    parent: str
    child: str
