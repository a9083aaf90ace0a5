"""Typed records of the commands of a DAG file, and their effect on nodes.

Source followed: HTCondor manual, "DAG input file reference", and the ``Process…`` functions of
DAGMan's ``parse.cpp``.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from metlmon.dagman.records import Node, NodeKind, Script
from metlmon.dagman.submit_description import Description

#: Means all of a DAG's own nodes; written in any case.
ALL_NODES = "ALL_NODES"

#: Joins the names of splices and nodes, so it is not allowed in a name.
SCOPE_SIGN = "+"


class ScriptKind(Enum):
    """When DAGMan runs a script: before the job, after it, or when it is held.

    The values are the fields of a node.
    """

    PRE = "pre"
    POST = "post"
    HOLD = "hold"


class VarsPlacement(Enum):
    """When VARS are set: before the submit description is read, or after (override)."""

    PREPEND = "prepend"
    APPEND = "append"


class DagCommand(Struct, frozen=True):
    """A command of a DAG file.

    This class itself: one that only DAGMan uses (DOT, ENV, SET_JOB_ATTR, …).
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


class MaxJobsCommand(DagCommand, frozen=True):
    """MAXJOBS category limit."""

    category: str
    limit: int


class ConfigCommand(DagCommand, frozen=True):
    """CONFIG file."""

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
    """SCRIPT, for one node or all."""

    kind: ScriptKind
    script: Script


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


# --- effect on a node ------------------------------------------------------------

#: The kinds of nodes to which the commands of ``_FOR_ORDINARY`` apply.
_ORDINARY = frozenset({NodeKind.JOB, NodeKind.SUBDAG, NodeKind.JOIN})
_FOR_ORDINARY = {
    RetryCommand: "RETRY",
    PriorityCommand: "PRIORITY",
    CategoryCommand: "CATEGORY",
    SavePointCommand: "SAVE_POINT_FILE",
    DoneCommand: "DONE",
}


def applies(command: NodeModifier, node: Node) -> bool:
    """Whether DAGMan allows this command for a node of this kind."""
    if type(command) in _FOR_ORDINARY:
        return node.kind in _ORDINARY
    if isinstance(command, AbortCommand):
        return node.kind is not NodeKind.FINAL
    return True


def keyword(command: NodeModifier) -> str:
    """The keyword of a command that does not apply to every kind of node."""
    return _FOR_ORDINARY.get(type(command), "ABORT-DAG-ON")


def apply(command: NodeModifier, node: Node) -> None:
    """Apply the command to ``node``; the last of several wins."""
    match command:
        case ScriptCommand(kind=kind, script=script):
            setattr(node, kind.value, script)
        case RetryCommand(retries=retries, unless_exit=code):
            node.retries, node.unless_exit = retries, code
        case AbortCommand(on=status, returns=code):
            node.abort_on, node.abort_return = status, code
        case VarsCommand(pairs=pairs):
            _set_vars(node, pairs)
        case PriorityCommand(priority=priority):
            node.priority = priority
        case PreSkipCommand(code=code):
            node.pre_skip = code
        case CategoryCommand(category=category):
            node.category = category
        case DoneCommand():
            node.done = True
        case _:
            pass


def attribute_name(key: str) -> str | None:
    """The job attribute that a VARS name sets (``+x``, ``My.x``), None for a macro."""
    if key[0] == "+":
        return key[1:]
    if key[0] in "mM" and key.lower().startswith("my."):
        return key[len("my.") :]
    return None


def _set_vars(node: Node, pairs: tuple[tuple[str, str], ...]) -> None:
    attributes: dict[str, str] = {}
    for key, value in pairs:
        if (name := attribute_name(key)) is not None:
            attributes[name] = value
        else:
            # Removed first to keep the order of writing: macros are case-insensitive in
            # HTCondor, and the last one written wins.
            node.vars.pop(key, None)
            node.vars[key] = value
    if attributes:
        if node.attributes and isinstance(node.attributes, dict):
            node.attributes.update(attributes)  # created here, not shared with other nodes
        else:
            node.attributes = attributes
