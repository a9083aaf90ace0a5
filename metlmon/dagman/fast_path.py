"""Usual lines of a DAG file, read by one pattern: in large DAGs there are hardly any others.

What a line means is said in :mod:`metlmon.dagman.command_parsers`. The pattern leaves to it all
that would mean something else there: quotes, backslashes, blocks, options, keywords in another
case.
"""

from __future__ import annotations

import re

from metlmon.dagman.command_parsers import RESERVED, counts
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
    """Reads the usual ones of one file. What stands in many lines is kept once."""

    def __init__(self, lines: LogicalLines) -> None:
        self._lines = lines
        self._words: dict[str, str] = {}
        self._pairs: dict[tuple[str, str], tuple[str, str]] = {}
        self._defers: dict[tuple[int, int], tuple[int, int]] = {}
        self._keys: set[str] = set()

    def next(self) -> DagCommand | None:
        """The command of the next line; None, and the line still to be read, when it is no
        usual one."""
        found = self._lines.usual(_USUAL)
        if found is None:
            return None
        command = self._command(found, self._lines.number)
        if command is not None:
            self._lines.pass_over(found)
        return command

    def _command(self, found: re.Match[str], line: int) -> DagCommand | None:
        match found.lastindex:
            case 2:
                return self._node(line, found[1], found[2])
            case 4:
                return self._vars(line, found[3], found[4])
            case 6:
                return self._edge(line, found[5], found[6])
            case 8:
                return RetryCommand(line, found[7], int(found[8]), None)
            case _:
                return self._script(line, found)

    def _word(self, word: str) -> str:
        return self._words.setdefault(word, word)

    def _node(self, line: int, name: str, submit: str) -> DagCommand | None:
        if name.upper() in RESERVED:
            return None
        name, submit = self._word(name), self._word(submit)
        return NodeCommand(line, NodeKind.JOB, name, submit, None, None, False, False)

    def _script(self, line: int, found: re.Match[str]) -> DagCommand:
        defer = (int(found[9]), int(found[10])) if found[9] else None
        if defer is not None:
            defer = self._defers.setdefault(defer, defer)
        return ScriptCommand(line, found[12], ScriptKind[found[11]], found[13], defer)

    def _edge(self, line: int, parent: str, child: str) -> DagCommand | None:
        if parent.upper() == "CHILD" or child.upper() == "CHILD":
            return None
        return EdgeCommand(line, (self._word(parent),), (self._word(child),), False)

    def _vars(self, line: int, node: str, text: str) -> DagCommand | None:
        pairs = _PAIR.findall(text)
        if not self._keys.issuperset([key for key, _ in pairs]) and not self._know(pairs):
            return None
        once = self._pairs.setdefault
        shared = tuple([once(pair, pair) for pair in pairs])
        return VarsCommand(line, self._word(node), shared, Placement.PREPEND)

    def _know(self, pairs: list[tuple[str, str]]) -> bool:
        """Are all these keys such as are kept? They are remembered then."""
        try:
            kept = all(counts(key) for key, _ in pairs)
        except SyntaxFault:
            return False
        if kept:
            self._keys.update(key for key, _ in pairs)
        return kept
