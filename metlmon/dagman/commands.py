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
    """When DAGMan runs a script: before the job, after it, or when it is held."""

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
    """SUBMIT-DESCRIPTION: a named inline submit description."""

    name: str
    description: Description


@frozen
class SpliceCommand(DagCommand):
    """SPLICE name file [DIR dir]."""

    name: str
    file: str
    dir: str | None


@frozen
class IncludeCommand(DagCommand):
    """INCLUDE file."""

    file: str


@frozen
class StatusFileCommand(DagCommand):
    """NODE_STATUS_FILE; the update interval is ignored."""

    file: str


@frozen
class JobstateCommand(DagCommand):
    """JOBSTATE_LOG file."""

    file: str


@frozen
class RejectCommand(DagCommand):
    """REJECT: DAGMan rejects the DAG."""


@frozen
class EdgeCommand(DagCommand):
    """[WEAK] PARENT and CHILD: edges from all parents to all children."""

    parents: tuple[str, ...]
    children: tuple[str, ...]
    weak: bool


@frozen
class NodeModifier(DagCommand):
    """A command about one node, or about ALL_NODES."""

    node: str


@frozen
class ScriptCommand(NodeModifier):
    """SCRIPT; ``defer`` is (exit status, seconds)."""

    kind: ScriptKind
    command: str
    defer: tuple[int, int] | None = None


@frozen
class RetryCommand(NodeModifier):
    """RETRY node retries [UNLESS-EXIT code]."""

    retries: int
    unless_exit: int | None


@frozen
class AbortCommand(NodeModifier):
    """ABORT-DAG-ON node status [RETURN code]."""

    on: int
    returns: int | None


@frozen
class VarsCommand(NodeModifier):
    """VARS; ``pairs`` are the names and values in file order, without environments."""

    pairs: tuple[tuple[str, str], ...]
    placement: Placement


@frozen
class PriorityCommand(NodeModifier):
    """PRIORITY node priority."""

    priority: int


@frozen
class PreSkipCommand(NodeModifier):
    """PRE_SKIP: the exit code of the PRE script that skips the node."""

    code: int


@frozen
class CategoryCommand(NodeModifier):
    """CATEGORY node category."""

    category: str


@frozen
class DoneCommand(NodeModifier):
    """DONE node."""


@frozen
class ToleranceCommand(NodeModifier):
    """TOLERANCE; only the existence of the node is checked."""


@frozen
class SavePointCommand(NodeModifier):
    """SAVE_POINT_FILE; only the existence and the kind of the node are checked."""


@frozen
class PinCommand(NodeModifier):
    """PIN_IN or PIN_OUT (``out``)."""

    number: int
    out: bool


@frozen
class ConnectCommand(DagCommand):
    """CONNECT: edges from the PIN_OUT nodes of one splice to the PIN_IN nodes."""

    parent: str
    child: str
