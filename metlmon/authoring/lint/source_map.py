"""DAG and submit files as written: commands and statements with line numbers.

:mod:`metlmon.dagman` parses the same bytes for their meaning, and drops positions and
environments. This module uses its lexer and parsers again to record where each command is.
Source: HTCondor manual, "condor_submit" ("Submit description file commands", "Macros").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct, field

from metlmon.dagman.commands import DagCommand
from metlmon.dagman.lexer import Line, LogicalLines, SyntaxFault, Tokens, shown
from metlmon.dagman.parser import READERS
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

Include = Callable[[str], tuple[str, list[Line]] | None]
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


class SubmitText(Struct):
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
    statements: list[Statement] = field(default_factory=list)
    stray: list[Statement] = field(default_factory=list)
    unresolved: bool = False
    descriptions: set[str] = field(default_factory=set)

    def last(self, *keys: str) -> Statement | None:
        """The last assignment of one of these keys."""
        matches = (
            statement
            for statement in reversed(self.statements)
            if statement.key in keys and not statement.directive
        )
        return next(matches, None)

    def sets(self, *keys: str) -> bool:
        """Whether one of these keys is set."""
        return self.last(*keys) is not None


class SourceCommand(Struct, frozen=True):
    """One DAG command as written.

    ``file``: its name in findings. ``keyword``: in upper case with ``_``; ``rest``: the text after
    it; ``command``: None if it cannot be parsed; ``block``: the lines of its inline description.
    """

    file: str
    line: int
    keyword: str
    rest: str
    command: DagCommand | None
    block: tuple[Line, ...] = ()


class _RecordingLines(LogicalLines):
    """Logical lines that record the inline description read last, with line numbers."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.recorded: list[Line] = []

    def block(self, end: str) -> tuple[list[str], str]:
        self.recorded = []
        while (line := self.physical()) is not None:
            if line.text == end or line.text.startswith(end + " "):
                return [recorded.text for recorded in self.recorded], line.text[len(end) :]
            self.recorded.append(line)
        raise SyntaxFault(f"Missing inline description closing token: {shown(end)}")


def source_commands(file: str, data: bytes) -> Iterator[SourceCommand]:
    """The commands of one DAG file, in order.

    Reads the same lines as :func:`metlmon.dagman.parser.parse_dag`.
    """
    lines = _RecordingLines(data)
    while (line := lines.logical()) is not None:
        tokens, command, keyword = Tokens(line.text), None, ""
        lines.recorded = []
        try:
            keyword = tokens.next().upper().replace("-", "_")
            rest_start = tokens.position
            if (parse := READERS.get(keyword)) is not None:
                command = parse(line.number, tokens, lines)
        except SyntaxFault:
            rest_start = len(keyword)
        yield SourceCommand(
            file=file,
            line=line.number,
            keyword=keyword,
            rest=line.text[rest_start:].strip(),
            command=command,
            block=tuple(lines.recorded),
        )


def unfinished_line(data: bytes) -> int | None:
    """The first line of a command cut off by the end of the file, or None."""
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
    """One description with the positions of its statements. Never raises."""

    def included(name: str) -> list[str] | None:
        file_content = include(name) if include is not None else None
        return None if file_content is None else [line.text for line in file_content[1]]

    text = SubmitText(
        file=file,
        line=lines[0].number if lines else 1,
        inline=inline,
        description=parse_description([line.text for line in lines], included),
    )
    _Scan(text, include).run(file, lines)
    return text


class _Scan:
    """Scans the lines of a description, and of the files that it includes."""

    def __init__(self, text: SubmitText, include: Include | None) -> None:
        self._text = text
        self._include = include
        self._includes_left = MOST_INCLUDES
        self._finished = False
        self._open_ifs = 0

    def run(self, file: str, lines: Sequence[Line]) -> None:
        source = _logical(lines)
        for line in source:
            if self._finished:
                return
            self._read_line(file, line, source)

    def _read_line(self, file: str, line: Line, source: Iterator[Line]) -> None:
        add = self._add
        if tagged := _TAGGED.match(line.text):
            value = "\n".join(_until(source, f"@{tagged[2]}"))
            add(Statement(file, line.number, _key(tagged[1]), value))
        elif (directive := _DIRECTIVE.match(line.text)) and not _ASSIGNMENT.match(line.text):
            keyword, value = directive[1].lower(), directive[2].strip()
            add(Statement(file, line.number, keyword, value, directive=True))
            self._open_ifs += (keyword == "if") - (keyword == "endif")
            if keyword == "queue":
                if value.endswith("("):
                    _until(source, ")")
                self._finished = self._open_ifs <= 0
        elif assignment := _ASSIGNMENT.match(line.text):
            add(Statement(file, line.number, _key(assignment[1]), assignment[2].strip()))
        elif included := _INCLUDE.match(line.text):
            self._include_file(included)
        elif not _OTHER.match(line.text):
            self._text.stray.append(Statement(file, line.number, "", line.text))

    def _add(self, statement: Statement) -> None:
        self._text.statements.append(statement)
        if statement.key in COMMON_COMMANDS:
            self._text.descriptions.add(statement.file)

    def _include_file(self, match: re.Match[str]) -> None:
        """Read an included file, except for ``include command``, which would run one."""
        is_command = (match[1] or "").lower() not in ("", "ifexist")
        content = None if is_command or self._include is None else self._include(match[2].strip())
        if content is None or self._includes_left <= 0:
            self._text.unresolved = True
            return
        self._includes_left -= 1
        self.run(*content)


def _key(name: str) -> str:
    """The key in lower case, with ``+`` as the prefix ``my.``."""
    return f"my.{name[1:]}".lower() if name.startswith("+") else name.lower()


def _logical(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines without comments, with continuations joined.

    A joined line has the number of its first part.
    """
    parts: list[str] = []
    first = 0
    for line in lines:
        text = line.text.strip()
        if not text or text.startswith("#"):
            continue
        first = first if parts else line.number
        if text.endswith("\\"):
            parts.append(text[:-1])
            continue
        yield Line(first, "".join([*parts, text]))
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
