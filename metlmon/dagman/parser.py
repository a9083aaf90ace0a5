"""Parses one DAG file into typed commands, in file order, and problems.

Source followed: HTCondor manual, "DAG input file reference", and ``dag_parser.cpp`` /
``dag_commands.cpp`` (the parser in use since 25.5). Reads no other file: splices, includes
and sub-DAGs are only named.
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

#: Kinds of problems for which the official parser rejects the text of a file.
REFUSED_BY_PARSER = frozenset({"syntax", "unknown-command"})

MOST_PROBLEMS = 1000
"""Bounds the problems of a large file that is not a DAG file."""


@frozen
class DagFile:
    """The contents of one file; ``commands`` are those that could be parsed, in order."""

    name: str
    commands: tuple[DagCommand, ...]
    problems: tuple[Problem, ...]


def official_verdict(problems: Iterable[Problem]) -> bool:
    """Whether HTCondor's parser would accept the text that has these problems.

    It also rejects an unknown command, which this parser skips. Problems that appear only
    when DAGMan runs (cycles, unknown nodes, missing files) do not count.
    """
    return not any(problem.kind in REFUSED_BY_PARSER for problem in problems)


def parse_dag(data: bytes, name: str) -> DagFile:
    """Parse one DAG file; ``name`` is its name in problems. Never raises."""
    lines = LogicalLines(data)
    commands: list[DagCommand] = []
    problems: list[Problem] = []
    fast_parser = FastLineParser(lines)
    omitted = 0
    while True:
        while (command := fast_parser.next()) is not None:
            commands.append(command)
        if (line := lines.logical()) is None:
            break
        tokens = Tokens(line.text)
        keyword = ""
        try:
            keyword = tokens.next().upper().replace("-", "_")
            reader = READERS.get(keyword)
            if reader is not None:
                commands.append(reader(line.number, tokens, lines))
                continue
            problem = _unknown(name, line, keyword)
        except SyntaxFault as fault:
            text = without_secrets_of(line.text, str(fault))
            text = f"Failed to parse {shown(keyword) or 'command'}: {text}"
            problem = Problem("syntax", name, line.last or line.number, text, error=True)
        if len(problems) < MOST_PROBLEMS:
            problems.append(problem)
        else:
            omitted += 1
    if not commands:
        # May be any file that another file names, so its text is not quoted.
        problems = [replace(p, text=_NO_COMMAND) if p.kind == _UNKNOWN else p for p in problems]
    if omitted:
        text = f"{omitted} more lines behind this one are no commands either"
        last = problems[-1]
        problems.append(Problem(_UNKNOWN, name, last.line, text, error=False))
    return DagFile(name, tuple(commands), tuple(problems))


_UNKNOWN: Final = "unknown-command"
_NO_COMMAND: Final = "this is not a DAG command; the line is skipped"
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_=./-]{0,39}")


def _unknown(name: str, line: Line, keyword: str) -> Problem:
    word = shown(Tokens(line.text).next() if keyword else line.text)
    # An INCLUDE may name any file: only text that could be a DAG keyword is quoted.
    text = f"'{word}'{_NO_COMMAND[4:]}" if _WORD.fullmatch(word) else _NO_COMMAND
    return Problem(_UNKNOWN, name, line.last or line.number, text, error=False)
