"""Nodes and runs while they are made: what has been said of them so far."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from metlmon.authoring.graph import Given, Role
from metlmon.authoring.records import PlanError
from metlmon.authoring.sweeps.commands import Say
from metlmon.authoring.sweeps.placeholders import has_places
from metlmon.authoring.sweeps.template import Template
from metlmon.dagman import NodeKind
from metlmon.dagman.commands import SCOPE_SIGN
from metlmon.dagman.dagtext import Lines, SyntaxFault, Tokens, integer, shown
from metlmon.dagman.readers import READERS, RESERVED

LONGEST_NAME: Final = 200
"""Characters of a node's name: files are named after nodes, and file names end at 255."""

_NAME: Final = re.compile(r"[^\s\"'\\+/(){}$#,]++")
_FILE: Final = re.compile(r"[^\s\"'\\]++")


@dataclass(slots=True)
class Making:
    """One node. ``name`` and all else may hold the mark of a uuid that is not known yet."""

    name: str
    kind: NodeKind
    where: str
    submit: str = ""
    declared: bool = False
    noop: bool = False
    done: bool = False
    run: RunMaking | None = None
    key: str = ""
    role: Role = Role.PLAIN
    epoch: int | None = None
    given: list[Given] = field(default_factory=list)
    appended: list[str] = field(default_factory=list)
    pre: str | None = None
    pre_where: str = ""
    defer: tuple[int, int] | None = None
    skip: int | None = None
    post: str | None = None
    retries: int | None = None


@dataclass(slots=True)
class RunMaking:
    """One run: ``index`` among all runs of the file. ``nodes`` by their names in the template."""

    name: str
    index: int
    template: Template
    point: Mapping[str, str]
    filling: dict[str, str]
    nodes: dict[str, Making] = field(default_factory=dict)
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


def rendered(command: Say, name: str, rest: str) -> str:
    """The command as DAGMan reads it. Raises PlanError where it would refuse the line."""
    behind = f" {rest}" if rest else ""
    check_line(f"{command.head} {name}{behind}", command.where)
    return f"{command.head} {name}{behind}"


def check_line(line: str, where: str) -> None:
    """Raises PlanError where DAGMan would refuse a command."""
    tokens = Tokens(line)
    try:
        keyword = tokens.next().upper().replace("-", "_")
        READERS[keyword](0, tokens, Lines(b""))
    except SyntaxFault as fault:
        raise PlanError(f"{where}: {keyword.replace('_', '-')}: {fault}") from None


def say_of(node: Making, command: Say, rest: str) -> str | None:
    """Takes in what a command says of a node; what a graph has no word for is given back, as a
    line of the DAG file."""
    line = rendered(command, node.name, rest)
    words = rest.split()
    if command.keyword == "RETRY" and len(words) == 1:
        node.retries = integer(words[0])
        return None
    if command.keyword == "PRE_SKIP":
        node.skip = integer(words[0])
        return None
    if command.keyword == "SCRIPT":
        head = command.head.upper().split()
        if head[1:] == ["POST"]:
            node.post = rest
            return None
        if head[1:] == ["PRE"]:
            node.pre, node.pre_where, node.defer = rest, command.where, None
            return None
        if head[1:2] == ["DEFER"] and head[4:] == ["PRE"]:
            code, seconds = integer(head[2]), integer(head[3])
            if code is not None and seconds is not None:
                node.pre, node.pre_where, node.defer = rest, command.where, (code, seconds)
                return None
    return line
