"""Parser of sweep files and of their template files: text to commands; and the files they name.

Comments, continuations, quotes and case are handled as by DAGMan, and its commands are read as
such. Placeholders are not filled in here.

Files beside the sweep file that are referred to by a bare name are copied: submit files and their
jobs' input files, scripts, spliced and external DAGs. Files named by a path, and those that another
DAG names, are left where they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from os.path import exists
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.description import source_copy_name
from metlmon.authoring.request import PlanError, SweepMode, SweepRequest, SweptVariable
from metlmon.authoring.runs import name_problem, variable_problem
from metlmon.authoring.sweeps.values import duplicate_variable, labelled_values
from metlmon.authoring.templates import plain_text
from metlmon.authoring.write_dag import assignments, input_files
from metlmon.dagman.commands import (
    ConfigCommand,
    DagCommand,
    IncludeCommand,
    NodeCommand,
    NodeModifier,
    ScriptKind,
    SpliceCommand,
    VarsCommand,
    VarsPlacement,
)
from metlmon.dagman.lexer import LogicalLines, SyntaxFault, Tokens, shown, without_secrets_of
from metlmon.dagman.parser import READERS
from metlmon.dagman.records import NodeKind
from metlmon.dagman.submit_description import is_environment
from metlmon.errors import nearest, prefix
from metlmon.live.file_access import linked_content, read_regular_file

BUILTIN_NAMES: Final = ("run", "index", "uuid")
"""Placeholders of every run: its name (group and padded index), index from 0, and uuid."""

_GROUP: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_SWEPT: Final = re.compile(r"(?P<names>.+?) from(?: (?P<mode>zip|product))?", re.IGNORECASE)
_VALUE_LINE: Final = re.compile(r"^[^A-Za-z]|,|^[^ \t]+$| to ", re.IGNORECASE)

_OWN_NAMES: Final = {*BUILTIN_NAMES, "epoch", "node", "run_uuid", "continue_from_checkpoint"}
"""Names that cannot be swept: the placeholders, and variables that differ between nodes."""

_KEYWORDS: Final = frozenset({*READERS, "GEN", "REGION"})

_GEN_USAGE: Final = (
    "write 'GEN SUBDAG group file.subdag a, b from' (or 'from zip', 'from product'), and the "
    "values of each variable on a line of its own below"
)
_REGION_USAGE: Final = "write 'REGION name { node node }', with blanks around the braces"


class SweepCommand(Struct, frozen=True):
    """A command of a sweep file.

    ``where``: file and line; ``text``: the whole command as written. ``keyword``: in upper case,
    with ``_``. ``command``: as DAGMan reads it; a plain DagCommand or NodeModifier if it is read
    once its placeholders are filled in. ``before``, ``after``: the text around the name of such a
    NodeModifier (``SCRIPT PRE`` and the script).
    """

    where: str
    text: str
    keyword: str
    command: DagCommand
    before: str = ""
    after: str = ""

    @property
    def is_global(self) -> bool:
        """Whether it is about the DAG as a whole."""
        return type(self.command) in (DagCommand, ConfigCommand, SpliceCommand)


class GenCommand(DagCommand, frozen=True):
    """``GEN SUBDAG``.

    ``labels``: by variable the label of each value; the value itself if it has none. Variables
    without any labels are left out.
    """

    sweep: SweepRequest
    template: str
    labels: Mapping[str, Mapping[str, str]]


class RegionCommand(DagCommand, frozen=True):
    """``REGION name { members }``."""

    name: str
    members: tuple[str, ...]


class InlineDescription(DagCommand, frozen=True):
    """SUBMIT-DESCRIPTION; the text of its command is all of its lines."""

    name: str


class _Parser:
    """Parses the text of the file ``name``."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._lines = LogicalLines(text.encode())

    def commands(self) -> Iterator[SweepCommand]:
        """The commands of the file. Raises PlanError with file and line."""
        after_gen = False
        while (line := self._lines.logical()) is not None:
            where, keyword = f"{self._name}:{line.number}", "command"
            tokens = Tokens(line.text)
            try:
                keyword = tokens.next().upper().replace("-", "_")
                if keyword not in _KEYWORDS:
                    raise PlanError(f"{where}: {_unknown_command(line.text, keyword, after_gen)}")
                command = SweepCommand(where, line.text, keyword, DagCommand(line.number))
                read = _PARSERS.get(keyword)
                yield command if read is None else read(self, command, tokens)
                after_gen = keyword == "GEN"
            except SyntaxFault as fault:
                message = without_secrets_of(line.text, str(fault))
                raise PlanError(f"{where}: {shown(keyword)}: {message}") from None

    # --- metlmon's commands -------------------------------------------------------------------

    def gen(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        where = read.where
        if tokens.next().upper() != "SUBDAG":
            raise PlanError(f"{where}: {_GEN_USAGE}")
        group, template = tokens.next(), tokens.file()
        names, mode = _swept_names(tokens.rest(), where)
        if not _GROUP.fullmatch(group):
            raise PlanError(
                f"{where}: {shown(group)!r} cannot be a group's name: use letters, digits, '.', "
                "'_' and '-', 64 at most"
            )
        variables: list[SweptVariable] = []
        labels: dict[str, dict[str, str]] = {}
        for name in names:
            line = self._lines.logical()
            if line is None or _is_command(line.text):
                raise PlanError(
                    f"{where}: GEN names {', '.join(names)}, but the values of {name} are missing "
                    "below; quote a value that looks like a comment or a command"
                )
            position = f"{self._name}:{line.number}"
            values = labelled_values(line.text, f"{position}: {name}")
            variables.append(SweptVariable(name, tuple(text for text, _ in values), position))
            given: dict[str, str | None] = {}
            for text, label in values:
                if given.setdefault(text, label) != label:
                    problem = f"{shown(text)} has two labels; give it one"
                    raise PlanError(f"{position}: {name}: {problem}")
            if any(given.values()) and f"{name}_label" not in names:
                labels[name] = {text: label or text for text, label in given.items()}
        sweep = SweepRequest(group, tuple(variables), mode, where)
        return replace(read, command=GenCommand(read.command.line, sweep, template, labels))

    def region(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        name, words = tokens.next(), tokens.rest().replace(",", " ").split()
        usage = f"{shown(name)}: {_REGION_USAGE}"
        while "}" not in words:
            line = self._lines.logical()
            if line is None:
                raise PlanError(f"{read.where}: {usage}")
            if _is_command(line.text):
                text = f"a command within the region {usage}"
                raise PlanError(f"{self._name}:{line.number}: {text}")
            words += line.text.replace(",", " ").split()
        first, *members, last = words if len(words) > 2 else ("", "")
        if not _GROUP.fullmatch(name) or (first, last) != ("{", "}") or "}" in members:
            raise PlanError(f"{read.where}: {usage}")
        region = RegionCommand(read.command.line, name, tuple(members))
        return replace(read, text=" ".join(region.members), command=region)

    # --- DAGMan's commands ---------------------------------------------------------------------

    def node(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        """JOB and the like; unlike DAGMan's, a file's name may begin with a placeholder."""
        where, keyword = read.where, read.keyword
        if keyword == "SUBDAG" and tokens.next().upper() != "EXTERNAL":
            raise SyntaxFault("Missing EXTERNAL keyword")
        name, submit = tokens.next(), tokens.file()
        options = set(map(str.upper, iter(tokens.next, "")))
        if not submit or submit == "{" or submit.startswith("@=") or "DIR" in options:
            raise PlanError(
                f"{where}: write '{keyword} name file', where the file is a submit file: here it "
                "takes no description, and no DIR (initialdir in the submit file does that)"
            )
        if unknown := options - {"NOOP", "DONE"}:
            raise SyntaxFault(f"Unexpected token '{shown(min(unknown))}'")
        command = NodeCommand(
            read.command.line,
            kind=NodeKind[keyword],
            name=name,
            submit=submit,
            inline=None,
            dir=None,
            noop="NOOP" in options,
            done="DONE" in options,
        )
        return replace(read, command=command)

    def submit_description(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        name, opening = tokens.next(), tokens.next()
        end = "}" if opening.startswith("{") else ""
        if opening.startswith("@=") and len(opening) > 2:
            end = f"@{opening[2:]}"
        if not name or not end:
            raise SyntaxFault("No inline description provided")
        body, suffix = self._lines.block(end)
        lines = [
            f"  {line.text}" for line in body if not _is_queue_one(line.text, read.where, name)
        ]
        text = "\n".join([tokens.text, *lines, end + suffix])
        return replace(read, text=text, command=InlineDescription(read.command.line, name))

    def vars(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        """VARS; DAGMan's reader would silently skip what is refused here."""
        name = tokens.next()
        if not name or "=" in name:
            raise PlanError(f"{read.where}: write 'VARS name key=value …', with a node's name")
        placement = tokens.take_keyword(VarsPlacement.__members__) or "PREPEND"
        pairs = tuple(iter(tokens.pair, None))
        for key, value in pairs:
            problem = variable_problem(key, value)
            if is_environment(key):
                problem = f"{key} in VARS: all who see the DAG would read it"
                problem += "; set it in the submit file"
            if problem:
                raise PlanError(f"{read.where}: {problem}")
        if not pairs:
            text = f"VARS {shown(name)} gives nothing; write key=value behind it"
            raise PlanError(f"{read.where}: {text}")
        command = VarsCommand(read.command.line, name, pairs, VarsPlacement[placement])
        return replace(read, command=command)

    def script(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        start = tokens.position
        self.whole(read, tokens)
        tokens.position = start
        while tokens.next().upper() not in ScriptKind.__members__:
            for _ in range(2):  # DEFER and DEBUG have two arguments each.
                tokens.next()
        return self.about_node(read, tokens)

    def about_node(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        before = read.text[: tokens.position].strip()
        command = NodeModifier(read.command.line, tokens.require_node())
        return replace(read, command=command, before=before, after=tokens.rest())

    def whole(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        """A command without placeholders, or with placeholders only in names."""
        command = READERS[read.keyword](read.command.line, tokens, self._lines)
        return replace(read, command=command)


_PARSERS: Final[dict[str, Callable[[_Parser, SweepCommand, Tokens], SweepCommand]]] = {
    "GEN": _Parser.gen,
    "REGION": _Parser.region,
    **dict.fromkeys(("JOB", "SUBDAG", "FINAL", "PROVISIONER", "SERVICE"), _Parser.node),
    "SUBMIT_DESCRIPTION": _Parser.submit_description,
    **dict.fromkeys(("PARENT", "WEAK", "SPLICE", "INCLUDE", "CONFIG"), _Parser.whole),
    "VARS": _Parser.vars,
    "SCRIPT": _Parser.script,
    **dict.fromkeys(
        ("RETRY", "PRE_SKIP", "ABORT_DAG_ON", "PRIORITY", "CATEGORY", "DONE", "TOLERANCE"),
        _Parser.about_node,
    ),
    "SAVE_POINT_FILE": _Parser.about_node,
}
"""All others are about the whole DAG."""


def _unknown_command(text: str, keyword: str, after_gen: bool) -> str:
    if after_gen and _VALUE_LINE.search(text):
        return (
            "a line of values more than GEN names variables; name another before 'from', or "
            "take the line out"
        )
    similar = nearest(keyword, _KEYWORDS)
    remedy = f"is {similar.replace('_', '-')} meant?" if similar else "take the line out"
    return f"{shown(Tokens(text).next())!r} is not a command of a DAG file; {remedy}"


def _swept_names(text: str, where: str) -> tuple[tuple[str, ...], SweepMode | None]:
    """The names and the mode in ``a, b from product``."""
    match = _SWEPT.fullmatch(" ".join(text.replace(",", " ").split()))
    if match is None:
        raise PlanError(f"{where}: {_GEN_USAGE}")
    names = tuple(match["names"].split())
    problems = (name_problem(name, _OWN_NAMES) for name in names)
    for problem in (*problems, duplicate_variable(names)):
        if problem:
            raise PlanError(f"{where}: {problem}")
    return names, SweepMode(match["mode"].lower()) if match["mode"] else None


def _is_queue_one(line: str, where: str, name: str) -> bool:
    """Whether the line is ``queue`` or ``queue 1``. Raises PlanError for another one."""
    words = line.lower().split()
    if words[0] != "queue" or words[1:2] == ["="]:
        return False
    if words[1:] in ([], ["1"]):
        return True  # Dropped, since HTCondor before 24.11 refuses it there.
    raise PlanError(
        f"{where}: {shown(line)!r} in the description {shown(name)}, which HTCondor before 24.11 "
        "refuses there; put the description into a file of its own"
    )


def _is_command(text: str) -> bool:
    """Whether a line is a command where values or names are expected."""
    keyword, _, rest = text.partition(" ")
    rest = rest.lstrip()
    is_keyword = keyword.upper().replace("-", "_") in _KEYWORDS
    return is_keyword and bool(rest) and not rest.startswith((",", "as ", "to "))


# --- the files that are read, and those that the DAG names ----------------------------------------


MAX_FILE_BYTES: Final = 16 << 20
"""Size limit of one file, larger than any DAG that may result."""

MAX_BYTES: Final = 4 * MAX_FILE_BYTES
"""Limit for all files together; larger ones are not copied or held in memory."""

MAX_COMMANDS: Final = 400_000
MAX_DEPTH: Final = 10
"""Maximum levels of nested INCLUDE."""

MAX_FILES: Final = 10_000


class SweepFiles:
    """The files read for one sweep, by the names that the sweep uses.

    Names are relative to the sweep's directory. ``is_copy``: the sweep may be the copy beside its
    DAG. ``contents``: of the files read so far.
    """

    def __init__(self, directory: Path, is_copy: bool) -> None:
        self.directory = directory
        self.contents: dict[str, bytes] = {}
        self._is_copy = is_copy
        self._commands_left = MAX_COMMANDS

    def commands(
        self, name: str, named_at: str = "", including: tuple[str, ...] = ()
    ) -> list[SweepCommand]:
        """All commands of a file, included files expanded in place. Raises PlanError."""
        path, copy = self.directory / name, self.directory / source_copy_name(name)
        if self._is_copy and not exists(path) and exists(copy):
            path = copy
        data = self.contents[name] = _read_source(path, name, named_at)
        commands: list[SweepCommand] = []
        for command in _Parser(name, _decode(data, name)).commands():
            self._commands_left -= 1
            if self._commands_left < 0:
                raise PlanError(f"{command.where}: more than {MAX_COMMANDS} lines; make two DAGs")
            if not isinstance(command.command, IncludeCommand):
                commands.append(command)
                continue
            included = command.command.file
            if included in (*including, name):
                raise PlanError(f"{command.where}: {shown(included)} leads back to itself")
            if len(including) >= MAX_DEPTH:
                raise PlanError(f"{command.where}: too many files within files; join some of them")
            commands += self.commands(included, command.where, (*including, name))
        return commands


def _read_source(path: Path, name: str, named_at: str) -> bytes:
    try:
        return read_regular_file(path, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        directory = path.parent if str(path.parent) != "." else "the current directory"
        raise PlanError(
            f"{prefix(named_at)}{shown(name)} in {directory} cannot be read: {reason}"
        ) from None


def _decode(data: bytes, name: str) -> str:
    """The text of a sweep file. Raises PlanError for anything but lines of UTF-8 text."""
    text = plain_text(data, name)
    *before, last = text.rstrip().split("\n")
    if last.endswith("\\") and not last.lstrip().startswith(("#", "//")):
        line = len(before) + 1
        raise PlanError(f"{name}:{line}: the last line is continued, but nothing follows")
    return text


class FileUse(Enum):
    """How a file is used."""

    SUBMIT = auto()
    SCRIPT = auto()
    INPUT = auto()
    OTHER = auto()


class Referenced(Struct, frozen=True):
    """A file that the DAG names: submit file, script, sub-DAG or configuration.

    ``where``: the position that names it. ``data`` None: it is not beside the sweep file (or is
    named by a path), so that it must exist where the DAG is submitted.
    """

    name: str
    where: str
    use: FileUse
    data: bytes | None = None
    executable: bool = False

    @property
    def is_input(self) -> bool:
        """Whether it is an input file of jobs, which an earlier job may create."""
        return self.use is FileUse.INPUT


def referenced_files(
    source: Path, commands: Sequence[SweepCommand], named: Iterable[Referenced]
) -> tuple[Referenced, ...]:
    """Each file once, in the order of reference; ``named``: of nodes. Never raises."""
    files: dict[str, Referenced] = {}
    bytes_left = MAX_BYTES
    pending = [*named]
    for command in commands:
        match command.command:
            case SpliceCommand(file=file) | ConfigCommand(file=file):
                pending.append(Referenced(file, command.where, FileUse.OTHER))
    for each in pending:
        name = each.name
        if name in files or name.startswith("/") or len(files) >= MAX_FILES:
            continue
        path = source.parent / name
        is_copied = "/" not in name and "$" not in name
        data = linked_content(path, min(bytes_left, MAX_FILE_BYTES)) if is_copied else None
        bytes_left -= len(data or b"")
        executable = each.use is FileUse.SCRIPT
        if data is not None and each.is_input:
            executable = os.access(path, os.X_OK)
        files[name] = replace(each, data=data, executable=executable)
        if data is not None and each.use is FileUse.SUBMIT:
            pending += _files_of_submit(name, data)  # Extended during the iteration.
    return tuple(files.values())


def read_submit_text(name: str, data: bytes | None, directory: Path) -> str | None:
    """The text of a submit file, from ``data`` or the directory; None if unreadable."""
    if data is None:
        data = linked_content(directory / name, MAX_FILE_BYTES)
    return None if data is None else data.decode("utf-8", "replace")


def _files_of_submit(name: str, data: bytes) -> Iterator[Referenced]:
    """The input files of jobs, relative to their initial directory."""
    statements = assignments(data.decode("utf-8", "replace"))
    lines: dict[str, int] = {}
    directory = ""
    for statement in statements:
        if statement.key in ("initialdir", "initial_dir", "iwd"):
            directory = statement.value
        for file in input_files([statement]):
            lines.setdefault(file, statement.line)
    if "$" in directory:
        return
    for file in input_files(statements):
        path = f"{directory.rstrip('/')}/{file}" if directory and not file.startswith("/") else file
        yield Referenced(path, f"{name}:{lines[file]}", FileUse.INPUT)
