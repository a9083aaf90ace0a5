"""Nodes and runs while they are made: what has been said of them so far."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from metlmon.authoring.graph import NodeRole, VariableValue
from metlmon.authoring.request import PlanError
from metlmon.authoring.sweeps.commands import SweepNodeCommand
from metlmon.authoring.sweeps.placeholders import has_places
from metlmon.authoring.sweeps.template import RunTemplate
from metlmon.dagman import NodeKind
from metlmon.dagman.command_parsers import READERS, RESERVED
from metlmon.dagman.commands import SCOPE_SIGN
from metlmon.dagman.lexer import LogicalLines, SyntaxFault, Tokens, integer, shown
from metlmon.frozen import frozen

OF_ORDINARY: Final = frozenset({"RETRY", "PRIORITY", "CATEGORY", "SAVE_POINT_FILE", "TOLERANCE"})
"""Commands that are about JOB and SUBDAG nodes only."""

LONGEST_NAME: Final = 200
"""Characters of a node's name: files are named after nodes, and file names end at 255."""

_NAME: Final = re.compile(r"[^\s\"'\\+/(){}$#,]++")
_FILE: Final = re.compile(r"[^\s\"'\\]++")


@frozen
class NodeScript:
    """A script of a node: its command line, and how DAGMan calls it. ``defer``: (exit code,
    seconds); ``debug``: (file, stream)."""

    command: str
    where: str
    defer: tuple[int, int] | None = None
    debug: tuple[str, str] | None = None

    def options(self, *, deferred: bool) -> str:
        """As they stand in the DAG file; ``deferred``: with DEFER. DAGMan before 25.5 takes them
        in this order only."""
        defer = "DEFER {} {}".format(*self.defer) if deferred and self.defer is not None else ""
        debug = "DEBUG {} {}".format(*self.debug) if self.debug is not None else ""
        return f"{defer} {debug}".strip()


@dataclass(slots=True)
class NodeDraft:
    """One node. ``name`` and all else may hold the mark of a uuid that is not known yet.
    ``scripts``: by PRE, POST and HOLD."""

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
    given: list[VariableValue] = field(default_factory=list)
    scripts: dict[str, NodeScript] = field(default_factory=dict)
    skip: int | None = None
    retries: int | None = None
    unless: int | None = None


@dataclass(slots=True)
class RunDraft:
    """One run: ``index`` among all runs of the file. ``nodes`` by their names in the template."""

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
        return self.filling["uuid"]

    def ends(self, *, last: bool) -> list[str]:
        """Names of its last nodes, or of its first ones."""
        keys = self.template.lasts if last else self.template.firsts
        return [self.nodes[key].name for key in keys]


def check_name(name: str, where: str) -> None:
    """Raises PlanError where DAGMan, or a file named after the node, could not have the name."""
    if has_places(name):
        raise PlanError(
            f"{where}: {shown(name)}: {{run}} and the like stand in a template only; write the "
            "name of a group, a run or a node"
        )
    bare = name.replace("\x01", "").replace("\x02", "")
    if not _NAME.fullmatch(bare) or not bare.isprintable() or name.upper() in RESERVED:
        sign = " ('+' joins the names of splices)" if SCOPE_SIGN in name else ""
        raise PlanError(
            f"{where}: {shown(bare)!r} cannot be a node's name{sign}; use letters, digits, '-', "
            "'_' and '.'"
        )
    if len(name) > LONGEST_NAME:
        raise PlanError(
            f"{where}: a node's name of {len(name)} characters; use {LONGEST_NAME} at most"
        )


def check_file(name: str, where: str) -> None:
    """Raises PlanError where a JOB line could not name the file."""
    bare = name.replace("\x01", "").replace("\x02", "")
    if not _FILE.fullmatch(bare) or not bare.isprintable() or bare.startswith(("{", "@=")):
        raise PlanError(
            f"{where}: {shown(bare)!r} cannot be the name of a file in a DAG; use one without "
            "blanks and quotes"
        )


def rendered(command: SweepNodeCommand, name: str) -> str:
    """The command as DAGMan reads it. Raises PlanError where it would refuse the line."""
    behind = f" {command.rest}" if command.rest else ""
    check_line(f"{command.head} {name}{behind}", command.where)
    return f"{command.head} {name}{behind}"


def check_line(line: str, where: str) -> None:
    """Raises PlanError where DAGMan would refuse a command."""
    tokens = Tokens(line)
    try:
        keyword = tokens.next().upper().replace("-", "_")
        READERS[keyword](0, tokens, LogicalLines(b""))
    except SyntaxFault as fault:
        raise PlanError(f"{where}: {keyword.replace('_', '-')}: {fault}") from None


def of_all(nodes: Iterable[NodeDraft], command: SweepNodeCommand) -> Iterator[NodeDraft]:
    """Those of ``nodes`` that ALL_NODES means in a command. DAGMan before 25.5 refuses a DAG that
    says of a SERVICE node what it cannot have, later ones pass it over."""
    for node in nodes:
        ordinary = node.kind in (NodeKind.JOB, NodeKind.SUBDAG)
        if ordinary or (node.kind is not NodeKind.FINAL and command.keyword not in OF_ORDINARY):
            yield node


def say_of(node: NodeDraft, command: SweepNodeCommand) -> str | None:
    """Takes in what a command says of a node; what a graph has no word for is given back, as a
    line of the DAG file."""
    line = rendered(command, node.name)
    words = command.rest.split()
    match command.keyword:
        case "RETRY":
            node.retries, node.unless = times(words)
        case "PRE_SKIP":
            node.skip = integer(words[0])
        case "SCRIPT":
            kind, script = _script(command)
            node.scripts[kind] = script
        case _:
            return line
    return None


def times(words: Sequence[str]) -> tuple[int, int | None]:
    """``3`` or ``3 UNLESS-EXIT 2``, which can be read: how often, and unless it exits with what."""
    return integer(words[0]) or 0, integer(words[2]) if len(words) > 2 else None


def _script(command: SweepNodeCommand) -> tuple[str, NodeScript]:
    """PRE, POST or HOLD, and the script: its options stand before the word, in any order."""
    *options, kind = command.head.split()[1:]
    words = iter(options)
    said = {
        word.upper(): (first, second)
        for word, first, second in zip(words, words, words, strict=True)
    }
    defer, debug = said.get("DEFER"), said.get("DEBUG")
    deferred = (integer(defer[0]) or 0, integer(defer[1]) or 0) if defer is not None else None
    return kind.upper(), NodeScript(command.rest, command.where, deferred, debug)
