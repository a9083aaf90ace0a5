"""Submit descriptions as written: their statements, with files and lines.

:mod:`metlmon.dagman` parses the same lines for their meaning, and drops positions and environments.
Source: HTCondor manual, "condor_submit" ("Submit description file commands", "Macros").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from metlmon.dagman.lexer import Line
from metlmon.dagman.submit_description import Description, parse_description

MOST_INCLUDES: Final = 100
"""Limit of files that one description includes, which ends recursive includes."""

_ASSIGNMENT: Final = re.compile(r"([+\w.-]+)[ \t]*=(.*)", re.DOTALL)
_TAGGED: Final = re.compile(r"([+\w.-]+)[ \t]*@=(\S+)$")
_DIRECTIVE: Final = re.compile(r"(if|elif|else|endif|queue)\b(.*)", re.DOTALL | re.IGNORECASE)
_INCLUDE: Final = re.compile(r"include(?:[ \t]+(\w+))?[ \t]*:(.*)", re.IGNORECASE | re.DOTALL)
_OTHER: Final = re.compile(r"(?:use|error|warning)\b.*:|use[ \t]", re.IGNORECASE)

COMMON_COMMANDS: Final = frozenset(
    {
        *("executable", "universe", "queue", "requirements", "transfer_input_files"),
        *("request_cpus", "request_memory", "request_disk", "request_gpus"),
    }
)
"""Commands found in nearly every submit description, and hardly elsewhere."""

Include = Callable[[str], tuple[str, Sequence[Line]] | None]
"""Returns the name and the lines of the file in ``include : name``."""


class Statement(Struct, frozen=True):
    """``key = value`` with its file and line; the key is in lower case.

    A directive (``if``, ``queue``) has its keyword as the key, and ``directive`` set.
    """

    file: str
    line: int
    key: str
    value: str
    directive: bool = False


class SubmitText(Struct, eq=False):
    """One submit description as written.

    ``stray``: lines that are neither assignment nor directive. ``inline``: it is part of the DAG
    file. ``unresolved``: it includes an unreadable file, which may contain missing commands.
    ``descriptions``: those of its files with one of :data:`COMMON_COMMANDS`; any other file may
    be named by mistake or malice, and is not quoted.
    """

    file: str
    line: int
    inline: bool
    description: Description
    statements: list[Statement] = []
    stray: list[Statement] = []
    unresolved: bool = False
    descriptions: set[str] = set()

    def last(self, *keys: str) -> Statement | None:
        """The last assignment of one of these keys."""
        for statement in reversed(self.statements):
            if statement.key in keys and not statement.directive:
                return statement
        return None


def file_lines(data: bytes) -> list[Line]:
    """All lines of a submit file."""
    lines = data.decode("utf-8", "replace").split("\n")
    return [Line(number, raw) for number, raw in enumerate(lines, start=1)]


def submit_text(
    file: str, lines: Sequence[Line], *, inline: bool = False, include: Include | None = None
) -> SubmitText:
    """One description with the positions of its statements. Never raises."""

    def included(name: str) -> list[str] | None:
        content = include(name) if include is not None else None
        return None if content is None else [line.text for line in content[1]]

    description = parse_description([line.text for line in lines], included)
    first = lines[0].number if lines else 1
    text = SubmitText(file, first, inline, description)
    _scan(text, lines, include)
    return text


def _scan(text: SubmitText, lines: Sequence[Line], include: Include | None) -> None:
    """Add the statements of the description, and of the files that it includes."""
    open_files = [(text.file, _logical_lines(lines))]
    includes_left, open_ifs = MOST_INCLUDES, 0
    while open_files:
        file, source = open_files[-1]
        if (line := next(source, None)) is None:
            open_files.pop()
        elif tagged := _TAGGED.match(line.text):
            value = "\n".join(_until(source, f"@{tagged[2]}"))
            _add(text, Statement(file, line.number, _key(tagged[1]), value))
        elif assignment := _ASSIGNMENT.match(line.text):
            value = assignment[2].strip()
            _add(text, Statement(file, line.number, _key(assignment[1]), value))
        elif directive := _DIRECTIVE.match(line.text):
            keyword, value = directive[1].lower(), directive[2].strip()
            _add(text, Statement(file, line.number, keyword, value, directive=True))
            open_ifs += (keyword == "if") - (keyword == "endif")
            if keyword == "queue" and value.endswith("("):
                _until(source, ")")
            if keyword == "queue" and open_ifs <= 0:
                return
        elif included := _INCLUDE.match(line.text):
            # "include command" would run a program.
            is_file = (included[1] or "ifexist").lower() == "ifexist"
            content = include(included[2].strip()) if is_file and include is not None else None
            if content is None or not includes_left:
                text.unresolved = True
            else:
                includes_left -= 1
                open_files.append((content[0], _logical_lines(content[1])))
        elif not _OTHER.match(line.text):
            text.stray.append(Statement(file, line.number, "", line.text))


def _add(text: SubmitText, statement: Statement) -> None:
    text.statements.append(statement)
    if statement.key in COMMON_COMMANDS:
        text.descriptions.add(statement.file)


def _key(name: str) -> str:
    """The key in lower case, with ``+`` as the prefix ``my.``."""
    return f"my.{name[1:]}".lower() if name.startswith("+") else name.lower()


def _logical_lines(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines without comments, continuations joined, numbered by their first."""
    parts: list[str] = []
    first = 0
    for line in lines:
        text = line.text.strip()
        if not text or text.startswith("#"):
            continue
        first = first if parts else line.number
        parts.append(text.removesuffix("\\"))
        if not text.endswith("\\"):
            yield Line(first, "".join(parts))
            parts = []
    if parts:
        yield Line(first, "".join(parts))


def _until(source: Iterable[Line], end: str) -> list[str]:
    """The lines up to ``end``, which is consumed."""
    block = []
    for line in source:
        if line.text.strip() == end:
            break
        block.append(line.text)
    return block
