"""Mutable drafts of nodes and runs, and the commands that change them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from metlmon.authoring.graph import NodeRole, VariableValue
from metlmon.authoring.request import PlanError
from metlmon.authoring.sweeps.commands import SweepNodeCommand
from metlmon.authoring.sweeps.placeholders import has_placeholders
from metlmon.authoring.sweeps.template import RunTemplate
from metlmon.dagman import NodeKind
from metlmon.dagman.commands import SCOPE_SIGN
from metlmon.dagman.lexer import LogicalLines, SyntaxFault, Tokens, integer, shown
from metlmon.dagman.parser import READERS, RESERVED
from metlmon.frozen import frozen

JOB_ONLY_COMMANDS: Final = frozenset(
    {"RETRY", "PRIORITY", "CATEGORY", "SAVE_POINT_FILE", "TOLERANCE"}
)
"""Commands that apply to JOB and SUBDAG nodes only."""

LONGEST_NAME: Final = 200
"""Node names become parts of file names, which are limited to 255 characters."""

_NAME: Final = re.compile(r"[^\s\"'\\+/(){}$#,]++")
_FILE: Final = re.compile(r"[^\s\"'\\]++")


@frozen
class NodeScript:
    """A script of a node: its command line and its options.

    ``defer``: (exit code, seconds); ``debug``: (file, stream).
    """

    command: str
    where: str
    defer: tuple[int, int] | None = None
    debug: tuple[str, str] | None = None

    def options(self, *, deferred: bool) -> str:
        """The options as DAG text; ``deferred``: including DEFER.

        DAGMan before 25.5 accepts them in this order only.
        """
        defer = "DEFER {} {}".format(*self.defer) if deferred and self.defer is not None else ""
        debug = "DEBUG {} {}".format(*self.debug) if self.debug is not None else ""
        return f"{defer} {debug}".strip()


@dataclass(slots=True)
class NodeDraft:
    """A node under construction.

    ``name`` and other texts may contain the mark of a uuid that is not yet known. ``scripts``: by
    PRE, POST and HOLD. ``key``: the name in the template.
    """

    name: str
    kind: NodeKind
    where: str
    submit: str = ""
    declared: bool = False
    noop: bool = False
    done: bool = False
    run: RunDraft | None = None
    key: str = ""
    role: NodeRole = NodeRole.PLAIN
    epoch: int | None = None
    variables: list[VariableValue] = field(default_factory=list)
    scripts: dict[str, NodeScript] = field(default_factory=dict)
    skip: int | None = None
    retries: int | None = None
    unless: int | None = None


@dataclass(slots=True)
class RunDraft:
    """A run under construction.

    ``index``: its number among all runs of the file. ``nodes``: by their names in the template.
    """

    name: str
    index: int
    template: RunTemplate
    point: Mapping[str, str]
    filling: dict[str, str]
    nodes: dict[str, NodeDraft] = field(default_factory=dict)
    edges: dict[tuple[str, str], str] = field(default_factory=dict)
    lines: dict[str, None] = field(default_factory=dict)
    seed: int = 0

    @property
    def mark(self) -> str:
        """The mark that stands for the run's uuid."""
        return self.filling["uuid"]

    def end_nodes(self, *, last: bool) -> list[str]:
        """The names of its last nodes, or of its first ones."""
        keys = self.template.lasts if last else self.template.firsts
        return [self.nodes[key].name for key in keys]


def check_name(name: str, where: str) -> None:
    """Raises PlanError if DAGMan, or a file named after the node, cannot use the name."""
    if has_placeholders(name):
        raise PlanError(
            f"{where}: {shown(name)}: {{run}} and the like stand in a template only; write the "
            "name of a group, a run or a node"
        )
    unmarked = name.replace("\x01", "").replace("\x02", "")
    if not _NAME.fullmatch(unmarked) or not unmarked.isprintable() or name.upper() in RESERVED:
        reason = " ('+' joins the names of splices)" if SCOPE_SIGN in name else ""
        raise PlanError(
            f"{where}: {shown(unmarked)!r} cannot be a node's name{reason}; use letters, digits, "
            "'-', '_' and '.'"
        )
    if len(name) > LONGEST_NAME:
        raise PlanError(
            f"{where}: a node's name of {len(name)} characters; use {LONGEST_NAME} at most"
        )


def check_file(name: str, where: str) -> None:
    """Raises PlanError if a JOB command cannot name the file."""
    unmarked = name.replace("\x01", "").replace("\x02", "")
    if (
        not _FILE.fullmatch(unmarked)
        or not unmarked.isprintable()
        or unmarked.startswith(("{", "@="))
    ):
        raise PlanError(
            f"{where}: {shown(unmarked)!r} cannot be the name of a file in a DAG; use one without "
            "blanks and quotes"
        )


def render(command: SweepNodeCommand, name: str) -> str:
    """The command as DAG text. Raises PlanError if DAGMan would refuse it."""
    suffix = f" {command.rest}" if command.rest else ""
    check_line(f"{command.head} {name}{suffix}", command.where)
    return f"{command.head} {name}{suffix}"


def check_line(line: str, where: str) -> None:
    """Raises PlanError if DAGMan would refuse the command."""
    tokens = Tokens(line)
    try:
        keyword = tokens.next().upper().replace("-", "_")
        READERS[keyword](0, tokens, LogicalLines(b""))
    except SyntaxFault as fault:
        raise PlanError(f"{where}: {keyword.replace('_', '-')}: {fault}") from None


def affected_nodes(nodes: Iterable[NodeDraft], command: SweepNodeCommand) -> Iterator[NodeDraft]:
    """The nodes to which a command about ALL_NODES applies.

    DAGMan before 25.5 refuses a DAG whose command does not apply to a SERVICE node; later
    versions skip the node.
    """
    for node in nodes:
        is_job = node.kind in (NodeKind.JOB, NodeKind.SUBDAG)
        if is_job or (node.kind is not NodeKind.FINAL and command.keyword not in JOB_ONLY_COMMANDS):
            yield node


def apply_command(node: NodeDraft, command: SweepNodeCommand) -> str | None:
    """Apply a command to a node; one without a field there is returned as DAG text."""
    line = render(command, node.name)
    words = command.rest.split()
    match command.keyword:
        case "RETRY":
            node.retries, node.unless = parse_retry(words)
        case "PRE_SKIP":
            node.skip = integer(words[0])
        case "SCRIPT":
            kind, script = _script(command)
            node.scripts[kind] = script
        case _:
            return line
    return None


def parse_retry(words: Sequence[str]) -> tuple[int, int | None]:
    """The count and the exit code in a valid ``3`` or ``3 UNLESS-EXIT 2``."""
    return integer(words[0]) or 0, integer(words[2]) if len(words) > 2 else None


def _script(command: SweepNodeCommand) -> tuple[str, NodeScript]:
    """The kind of script (PRE, POST or HOLD), and the script.

    Options precede the kind, in any order.
    """
    *options, kind = command.head.split()[1:]
    words = iter(options)
    options_by_name = {
        word.upper(): (first, second)
        for word, first, second in zip(words, words, words, strict=True)
    }
    defer, debug = options_by_name.get("DEFER"), options_by_name.get("DEBUG")
    deferred = (integer(defer[0]) or 0, integer(defer[1]) or 0) if defer is not None else None
    return kind.upper(), NodeScript(command.rest, command.where, deferred, debug)
