"""Typed records of the commands of a DAG file.

Source followed: HTCondor manual, "DAG input file reference".
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from metlmon.dagman.records import NodeKind
from metlmon.dagman.submit_description import Description

#: Means all of a DAG's own nodes; written in any case.
ALL_NODES = "ALL_NODES"

#: Joins the names of splices and nodes, so it is not allowed in a name.
SCOPE_SIGN = "+"


class ScriptKind(Enum):
    """When DAGMan runs a script: before the job, after it, or when it is held."""

    PRE = "pre"
    POST = "post"
    HOLD = "hold"


class VarsPlacement(Enum):
    """When VARS are set: before the submit description is read, or after (override)."""

    PREPEND = "prepend"
    APPEND = "append"


class DagCommand(Struct, frozen=True):
    """A command of a DAG file.

    This class itself: one that only DAGMan uses (MAXJOBS, CONFIG, DOT, ENV, …).
    """

    line: int


class NodeCommand(DagCommand, frozen=True):
    """JOB, FINAL, PROVISIONER, SERVICE, SUBDAG EXTERNAL; ``submit`` None if inline."""

    kind: NodeKind
    name: str
    submit: str | None
    inline: Description | None
    dir: str | None
    noop: bool
    done: bool


class DescriptionCommand(DagCommand, frozen=True):
    """SUBMIT-DESCRIPTION: a named inline submit description."""

    name: str
    description: Description


class SpliceCommand(DagCommand, frozen=True):
    """SPLICE name file [DIR dir]."""

    name: str
    file: str
    dir: str | None


class IncludeCommand(DagCommand, frozen=True):
    """INCLUDE file."""

    file: str


class StatusFileCommand(DagCommand, frozen=True):
    """NODE_STATUS_FILE; the update interval is ignored."""

    file: str


class JobstateCommand(DagCommand, frozen=True):
    """JOBSTATE_LOG file."""

    file: str


class RejectCommand(DagCommand, frozen=True):
    """REJECT: DAGMan rejects the DAG."""


class EdgeCommand(DagCommand, frozen=True):
    """[WEAK] PARENT and CHILD: edges from all parents to all children."""

    parents: tuple[str, ...]
    children: tuple[str, ...]
    weak: bool


class NodeModifier(DagCommand, frozen=True):
    """A command about one node, or about ALL_NODES."""

    node: str


class ScriptCommand(NodeModifier, frozen=True):
    """SCRIPT; ``defer`` is (exit status, seconds)."""

    kind: ScriptKind
    command: str
    defer: tuple[int, int] | None = None


class RetryCommand(NodeModifier, frozen=True):
    """RETRY node retries [UNLESS-EXIT code]."""

    retries: int
    unless_exit: int | None


class AbortCommand(NodeModifier, frozen=True):
    """ABORT-DAG-ON node status [RETURN code]."""

    on: int
    returns: int | None


class VarsCommand(NodeModifier, frozen=True):
    """VARS; ``pairs`` are the names and values in file order, without environments."""

    pairs: tuple[tuple[str, str], ...]
    placement: VarsPlacement


class PriorityCommand(NodeModifier, frozen=True):
    """PRIORITY node priority."""

    priority: int


class PreSkipCommand(NodeModifier, frozen=True):
    """PRE_SKIP: the exit code of the PRE script that skips the node."""

    code: int


class CategoryCommand(NodeModifier, frozen=True):
    """CATEGORY node category."""

    category: str


class DoneCommand(NodeModifier, frozen=True):
    """DONE node."""


class ToleranceCommand(NodeModifier, frozen=True):
    """TOLERANCE; only the existence of the node is checked."""


class SavePointCommand(NodeModifier, frozen=True):
    """SAVE_POINT_FILE; only the existence and the kind of the node are checked."""


class PinCommand(NodeModifier, frozen=True):
    """PIN_IN or PIN_OUT (``out``)."""

    number: int
    out: bool


class ConnectCommand(DagCommand, frozen=True):
    """CONNECT: edges from the PIN_OUT nodes of one splice to the PIN_IN nodes."""

    parent: str
    child: str
