"""DAG and submit files as they are written: every command with its line, every description with
the lines that set something.

:mod:`metlmon.dagman` reads them for what they mean, and drops places and environments. Here the
same lexer and readers go over the same bytes once more, to know where what was said.
Source followed: HTCondor manual, "condor_submit" ("Submit description file commands", "Macros").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from metlmon.dagman.command_parsers import READERS
from metlmon.dagman.commands import DagCommand
from metlmon.dagman.lexer import Line, LogicalLines, SyntaxFault, Tokens, shown
from metlmon.dagman.submit_description import Description, parse_description
from metlmon.frozen import frozen

MOST_INCLUDES: Final = 100
"""Files that one description includes: files that include themselves come to an end."""

_ASSIGNMENT: Final = re.compile(r"([+\w.-]+)[ \t]*=(.*)", re.DOTALL)
_TAGGED: Final = re.compile(r"([+\w.-]+)[ \t]*@=(\S+)$")
_DIRECTIVE: Final = re.compile(r"(if|elif|else|endif|queue)\b(.*)", re.DOTALL | re.IGNORECASE)
_INCLUDE: Final = re.compile(r"include(?:[ \t]+(\w+))?[ \t]*:(.*)", re.IGNORECASE | re.DOTALL)
_OTHER: Final = re.compile(r"(?:use|error|warning)\b.*:|use[ \t]", re.IGNORECASE)

USUAL: Final = frozenset(
    {
        *("executable", "universe", "queue", "requirements", "transfer_input_files"),
        *("request_cpus", "request_memory", "request_disk", "request_gpus"),
    }
)
"""Commands one of which nearly every submit description has, and hardly any other file."""

Include = Callable[[str], tuple[str, list[Line]] | None]
"""Gives the name and the lines of the file that ``include : name`` means."""


@frozen
class Statement:
    """``key = value``, ``key`` in lower case, in this line of this file. A directive (``if``,
    ``queue``) has its own word as the key, and ``directive`` set."""

    file: str
    line: int
    key: str
    value: str
    directive: bool = False


@dataclass(slots=True)
class SubmitText:
    """One description. ``stray``: lines that are neither assignment nor directive. ``inline``:
    it stands in the DAG file. ``unresolved``: it includes what could not be read, so that what
    it does not say may be said there. ``descriptions``: those of its files that have a command
    of :data:`USUAL`; any other may have been named by mistake or malice, and is not quoted."""

    file: str
    line: int
    inline: bool
    description: Description
    statements: list[Statement] = field(default_factory=list)
    stray: list[Statement] = field(default_factory=list)
    unresolved: bool = False
    descriptions: set[str] = field(default_factory=set)

    def last(self, *keys: str) -> Statement | None:
        """The last assignment of one of these."""
        found = (s for s in reversed(self.statements) if s.key in keys and not s.directive)
        return next(found, None)

    def says(self, *keys: str) -> bool:
        """Whether one of these is set, somewhere."""
        return self.last(*keys) is not None


@frozen
class SourceMap:
    """One command as written: ``keyword`` in upper case with ``_``, ``rest`` what stands behind
    it. ``command`` None where it could not be read."""

    line: int
    keyword: str
    rest: str
    command: DagCommand | None
    block: tuple[Line, ...] = ()


class _Recorded(LogicalLines):
    """Lines that keep the inline description read last, with its line numbers."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.recorded: list[Line] = []

    def block(self, end: str) -> tuple[list[str], str]:
        self.recorded = []
        while (line := self.physical()) is not None:
            if line.text == end or line.text.startswith(end + " "):
                return [each.text for each in self.recorded], line.text[len(end) :]
            self.recorded.append(line)
        raise SyntaxFault(f"Missing inline description closing token: {shown(end)}")


def spoken(data: bytes) -> Iterator[SourceMap]:
    """The commands of one DAG file, in its order; the same lines as
    :func:`metlmon.dagman.parser.parse_dag` reads."""
    lines = _Recorded(data)
    while (line := lines.logical()) is not None:
        tokens, command, keyword = Tokens(line.text), None, ""
        lines.recorded = []
        try:
            keyword = tokens.next().upper().replace("-", "_")
            behind = tokens.position
            if (read := READERS.get(keyword)) is not None:
                command = read(line.number, tokens, lines)
        except SyntaxFault:
            behind = len(keyword)
        yield SourceMap(
            line.number, keyword, line.text[behind:].strip(), command, tuple(lines.recorded)
        )


def ends_unfinished(data: bytes) -> int | None:
    """The line that a command begins in which the end of the file cuts off; None without one."""
    lines = LogicalLines(data)
    start: int | None = None
    while (line := lines.physical()) is not None:
        continued = line.text.endswith("\\")
        start = (start or line.number) if continued else None
    return start


def file_lines(data: bytes) -> list[Line]:
    """All lines of a submit file."""
    text = data.decode("utf-8", "replace")
    return [Line(number, raw) for number, raw in enumerate(text.split("\n"), start=1)]


def submit_text(
    file: str, lines: Sequence[Line], *, inline: bool, include: Include | None = None
) -> SubmitText:
    """One description with the places of its statements. Never raises."""

    def included(name: str) -> list[str] | None:
        found = include(name) if include is not None else None
        return None if found is None else [line.text for line in found[1]]

    text = SubmitText(
        file=file,
        line=lines[0].number if lines else 1,
        inline=inline,
        description=parse_description([line.text for line in lines], included),
    )
    _Scan(text, include).run(file, lines)
    return text


class _Scan:
    def __init__(self, text: SubmitText, include: Include | None) -> None:
        self._text = text
        self._include = include
        self._left = MOST_INCLUDES
        self._over = False
        self._open = 0

    def run(self, file: str, lines: Sequence[Line]) -> None:
        source = _logical(lines)
        for line in source:
            if self._over:
                return
            self._take(file, line, source)

    def _take(self, file: str, line: Line, source: Iterator[Line]) -> None:
        keep = self._keep
        if tagged := _TAGGED.match(line.text):
            value = "\n".join(_until(source, f"@{tagged[2]}"))
            keep(Statement(file, line.number, _key(tagged[1]), value))
        elif (directive := _DIRECTIVE.match(line.text)) and not _ASSIGNMENT.match(line.text):
            word, value = directive[1].lower(), directive[2].strip()
            keep(Statement(file, line.number, word, value, directive=True))
            self._open += (word == "if") - (word == "endif")
            if word == "queue":
                if value.endswith("("):
                    _until(source, ")")
                self._over = self._open <= 0
        elif assignment := _ASSIGNMENT.match(line.text):
            keep(Statement(file, line.number, _key(assignment[1]), assignment[2].strip()))
        elif included := _INCLUDE.match(line.text):
            self._included(included)
        elif not _OTHER.match(line.text):
            self._text.stray.append(Statement(file, line.number, "", line.text))

    def _keep(self, statement: Statement) -> None:
        self._text.statements.append(statement)
        if statement.key in USUAL:
            self._text.descriptions.add(statement.file)

    def _included(self, found: re.Match[str]) -> None:
        """``include command : …`` would run something: it is not read."""
        runs = (found[1] or "").lower() not in ("", "ifexist")
        inner = None if runs or self._include is None else self._include(found[2].strip())
        if inner is None or self._left <= 0:
            self._text.unresolved = True
            return
        self._left -= 1
        self.run(*inner)


def _key(written: str) -> str:
    return f"my.{written[1:]}".lower() if written.startswith("+") else written.lower()


def _logical(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines without comments, continued ones joined, with the number of the first."""
    held: list[str] = []
    first = 0
    for line in lines:
        text = line.text.strip()
        if not text or text.startswith("#"):
            continue
        first = first if held else line.number
        if text.endswith("\\"):
            held.append(text[:-1])
            continue
        yield Line(first, "".join([*held, text]))
        held = []
    if held:
        yield Line(first, "".join(held))


def _until(source: Iterable[Line], end: str) -> list[str]:
    found = []
    for line in source:
        if line.text.strip() == end:
            break
        found.append(line.text)
    return found
