"""One DAG file: bytes → typed commands, in file order, and what is wrong with it.

Source followed: HTCondor manual, "DAG input file reference", and ``dag_parser.cpp`` /
``dag_commands.cpp`` (the parser in use since 25.5). Knows no other file: splices, includes
and sub-DAGs are only named here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from metlmon.dagman.command_parsers import READERS
from metlmon.dagman.commands import DagCommand
from metlmon.dagman.fast_path import FastLineParser
from metlmon.dagman.lexer import Line, LogicalLines, SyntaxFault, Tokens, shown, without_secrets_of
from metlmon.dagman.records import Problem
from metlmon.frozen import frozen

#: Kinds of problems that make the official parser refuse the text of a file.
REFUSED_BY_PARSER = frozenset({"syntax", "unknown-command"})

MOST_PROBLEMS = 1000
"""More than anybody reads, and less than a large file of another kind would make of its lines."""


@frozen
class DagFile:
    """What one file says. ``commands`` are those that could be read, in file order."""

    name: str
    commands: tuple[DagCommand, ...]
    problems: tuple[Problem, ...]


def official_verdict(problems: Iterable[Problem]) -> bool:
    """Whether HTCondor's parser would take the text that has these problems.

    It refuses an unknown command too, where this reader goes on and uses the rest. What only
    shows when DAGMan runs (cycles, unknown nodes, missing files) is not part of the verdict.
    """
    return not any(problem.kind in REFUSED_BY_PARSER for problem in problems)


def parse_dag(data: bytes, name: str) -> DagFile:
    """The commands of one DAG file; ``name`` is for the problems. Never raises."""
    lines = LogicalLines(data)
    commands: list[DagCommand] = []
    problems: list[Problem] = []
    usual = FastLineParser(lines)
    untold = 0
    while True:
        while (command := usual.next()) is not None:
            commands.append(command)
        if (line := lines.logical()) is None:
            break
        tokens = Tokens(line.text)
        keyword = ""
        try:
            keyword = tokens.next().upper().replace("-", "_")
            read = READERS.get(keyword)
            if read is not None:
                commands.append(read(line.number, tokens, lines))
                continue
            problem = _unknown(name, line, keyword)
        except SyntaxFault as fault:
            text = without_secrets_of(line.text, str(fault))
            text = f"Failed to parse {shown(keyword) or 'command'}: {text}"
            problem = Problem("syntax", name, line.last or line.number, text, error=True)
        if len(problems) < MOST_PROBLEMS:
            problems.append(problem)
        else:
            untold += 1
    if not commands:
        # This may be any file at all, which another file names: nothing of it is quoted.
        problems = [replace(p, text=_NO_COMMAND) if p.kind == _UNKNOWN else p for p in problems]
    if untold:
        text = f"{untold} more lines behind this one are no commands either"
        last = problems[-1]
        problems.append(Problem(_UNKNOWN, name, last.line, text, error=False))
    return DagFile(name, tuple(commands), tuple(problems))


_UNKNOWN: Final = "unknown-command"
_NO_COMMAND: Final = "this is not a DAG command; the line is skipped"
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_=./-]{0,39}")


def _unknown(name: str, line: Line, keyword: str) -> Problem:
    word = shown(Tokens(line.text).next() if keyword else line.text)
    # An INCLUDE may name any file at all: what is no word of a DAG file is not told.
    text = f"'{word}'{_NO_COMMAND[4:]}" if _WORD.fullmatch(word) else _NO_COMMAND
    return Problem(_UNKNOWN, name, line.last or line.number, text, error=False)
