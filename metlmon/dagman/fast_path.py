"""Fast path for the usual lines of a DAG file: nearly all lines of large DAGs.

The meaning of a line is defined in :mod:`metlmon.dagman.command_parsers`. The pattern does not
match anything that would have another meaning there: quotes, backslashes, blocks, options,
keywords in another case.
"""

from __future__ import annotations

import re

from metlmon.dagman.command_parsers import RESERVED, is_stored
from metlmon.dagman.commands import (
    DagCommand,
    EdgeCommand,
    NodeCommand,
    Placement,
    RetryCommand,
    ScriptCommand,
    ScriptKind,
    VarsCommand,
)
from metlmon.dagman.lexer import LogicalLines, SyntaxFault
from metlmon.dagman.records import NodeKind

_USUAL = re.compile(
    r"""
    (?: JOB    [ \t]++ (?P<job>[^\s"'\\+]++)     [ \t]++ (?P<submit>[^\s"'\\{@][^\s"'\\]*+)
    |   VARS   [ \t]++ (?P<vars>[^\s"'\\]++)     (?:[ \t]++PREPEND)?
               (?P<pairs>(?:[ \t]++[^\s"'\\=]++="[^"\\\n]++")+)
    |   PARENT [ \t]++ (?P<parent>[^\s"'\\]++)   [ \t]++ CHILD [ \t]++ (?P<child>[^\s"'\\]++)
    |   RETRY  [ \t]++ (?P<retry>[^\s"'\\]++)    [ \t]++ (?P<times>[0-9]{1,9})
    |   SCRIPT [ \t]++ (?:DEFER [ \t]++ (?P<status>[0-9]{1,9}) [ \t]++
               (?P<seconds>[0-9]{1,9}) [ \t]++)?
               (?P<kind>PRE|POST|HOLD)           [ \t]++ (?P<scripted>[^\s"'\\]++)
               [ \t]++ (?P<command>[^\s\\][^\\\n]*+)(?<!\s)
    )\r?\n
    """,
    re.VERBOSE,
)
_PAIR = re.compile(r"""([^\s"'\\=]++)="([^"\\\n]++)\"""")


class FastLineParser:
    """Parses the usual lines of one file; values of many lines are stored once."""

    def __init__(self, lines: LogicalLines) -> None:
        self._lines = lines
        self._words: dict[str, str] = {}
        self._pairs: dict[tuple[str, str], tuple[str, str]] = {}
        self._defers: dict[tuple[int, int], tuple[int, int]] = {}
        self._keys: set[str] = set()

    def next(self) -> DagCommand | None:
        """Parse the next line; None, without consuming it, when it is not usual."""
        fields = self._lines.match(_USUAL)
        if fields is None:
            return None
        command = self._parse_command(fields, self._lines.number)
        if command is not None:
            self._lines.skip_match(fields)
        return command

    def _parse_command(self, fields: re.Match[str], line: int) -> DagCommand | None:
        match fields.lastindex:
            case 2:
                return self._parse_node(line, fields[1], fields[2])
            case 4:
                return self._parse_vars(line, fields[3], fields[4])
            case 6:
                return self._parse_edge(line, fields[5], fields[6])
            case 8:
                return RetryCommand(line, fields[7], int(fields[8]), None)
            case _:
                return self._parse_script(line, fields)

    def _intern(self, word: str) -> str:
        return self._words.setdefault(word, word)

    def _parse_node(self, line: int, name: str, submit: str) -> DagCommand | None:
        if name.upper() in RESERVED:
            return None
        name, submit = self._intern(name), self._intern(submit)
        return NodeCommand(
            line,
            kind=NodeKind.JOB,
            name=name,
            submit=submit,
            inline=None,
            dir=None,
            noop=False,
            done=False,
        )

    def _parse_script(self, line: int, fields: re.Match[str]) -> DagCommand:
        defer = (int(fields[9]), int(fields[10])) if fields[9] else None
        if defer is not None:
            defer = self._defers.setdefault(defer, defer)
        return ScriptCommand(line, fields[12], ScriptKind[fields[11]], fields[13], defer)

    def _parse_edge(self, line: int, parent: str, child: str) -> DagCommand | None:
        if parent.upper() == "CHILD" or child.upper() == "CHILD":
            return None
        return EdgeCommand(line, (self._intern(parent),), (self._intern(child),), False)

    def _parse_vars(self, line: int, node: str, text: str) -> DagCommand | None:
        pairs = _PAIR.findall(text)
        if not self._keys.issuperset([key for key, _ in pairs]) and not self._accept_keys(pairs):
            return None
        intern = self._pairs.setdefault
        shared = tuple([intern(pair, pair) for pair in pairs])
        return VarsCommand(line, self._intern(node), shared, Placement.PREPEND)

    def _accept_keys(self, pairs: list[tuple[str, str]]) -> bool:
        """Whether all these keys are valid and stored; if so, cache them."""
        try:
            accepted = all(is_stored(key) for key, _ in pairs)
        except SyntaxFault:
            return False
        if accepted:
            self._keys.update(key for key, _ in pairs)
        return accepted
