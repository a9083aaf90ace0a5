"""The commands of a DAG file, typed: what each line says, no more.

Source followed: HTCondor manual, "DAG input file reference".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from metlmon.dagman.records import NodeKind
from metlmon.dagman.submit import Description

#: Stands for all of a DAG's own nodes; written in any case.
ALL_NODES = "ALL_NODES"

#: Joins the names of splices and nodes, so a file must not use it in a name.
SCOPE_SIGN = "+"


class ScriptKind(Enum):
    PRE = "pre"
    POST = "post"
    HOLD = "hold"


class Placement(Enum):
    """Where VARS stand: before the submit description is read, or after (and so override it)."""

    PREPEND = "prepend"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class Command:
    """A command that only DAGMan itself cares for (MAXJOBS, CONFIG, DOT, ENV, …)."""

    line: int


@dataclass(frozen=True, slots=True)
class NodeCommand(Command):
    """JOB, FINAL, PROVISIONER, SERVICE, SUBDAG EXTERNAL. ``submit`` is None for a block."""

    kind: NodeKind
    name: str
    submit: str | None
    inline: Description | None
    dir: str | None
    noop: bool
    done: bool


@dataclass(frozen=True, slots=True)
class DescriptionCommand(Command):
    name: str
    description: Description


@dataclass(frozen=True, slots=True)
class SpliceCommand(Command):
    name: str
    file: str
    dir: str | None


@dataclass(frozen=True, slots=True)
class IncludeCommand(Command):
    file: str


@dataclass(frozen=True, slots=True)
class StatusFileCommand(Command):
    file: str


@dataclass(frozen=True, slots=True)
class JobstateCommand(Command):
    file: str


@dataclass(frozen=True, slots=True)
class RejectCommand(Command):
    pass


@dataclass(frozen=True, slots=True)
class EdgeCommand(Command):
    """[WEAK] PARENT … CHILD …"""

    parents: tuple[str, ...]
    children: tuple[str, ...]
    weak: bool


@dataclass(frozen=True, slots=True)
class NodeModifier(Command):
    """A command about one node, or about ALL_NODES."""

    node: str


@dataclass(frozen=True, slots=True)
class ScriptCommand(NodeModifier):
    kind: ScriptKind
    command: str


@dataclass(frozen=True, slots=True)
class RetryCommand(NodeModifier):
    retries: int
    unless_exit: int | None


@dataclass(frozen=True, slots=True)
class AbortCommand(NodeModifier):
    on: int
    returns: int | None


@dataclass(frozen=True, slots=True)
class VarsCommand(NodeModifier):
    pairs: tuple[tuple[str, str], ...]
    placement: Placement


@dataclass(frozen=True, slots=True)
class PriorityCommand(NodeModifier):
    priority: int


@dataclass(frozen=True, slots=True)
class PreSkipCommand(NodeModifier):
    code: int


@dataclass(frozen=True, slots=True)
class CategoryCommand(NodeModifier):
    category: str


@dataclass(frozen=True, slots=True)
class DoneCommand(NodeModifier):
    pass


@dataclass(frozen=True, slots=True)
class CheckedCommand(NodeModifier):
    """TOLERANCE and SAVE_POINT_FILE: only that the node exists matters here."""


@dataclass(frozen=True, slots=True)
class PinCommand(NodeModifier):
    number: int
    out: bool


@dataclass(frozen=True, slots=True)
class ConnectCommand(Command):
    parent: str
    child: str
