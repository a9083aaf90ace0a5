"""The files of a sweep: those that are read, and those copied beside the DAG.

Files beside the sweep file that are referred to by a bare name are copied: submit files and their
jobs' input files, scripts, spliced and external DAGs. Files named by a path, and those that another
DAG names, are left where they are.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from os.path import exists
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.description import source_copy_name
from metlmon.authoring.request import PlanError
from metlmon.authoring.sweeps.parser import SweepCommand, parse
from metlmon.authoring.templates import plain_text
from metlmon.authoring.write_dag import assignments, input_files
from metlmon.dagman.commands import ConfigCommand, IncludeCommand, SpliceCommand
from metlmon.dagman.lexer import shown
from metlmon.errors import prefix
from metlmon.live.file_access import read_regular_file

MAX_FILE_BYTES: Final = 16 << 20
"""Size limit of one file, larger than any DAG that may result."""

MAX_BYTES: Final = 4 * MAX_FILE_BYTES
"""Limit for all files together; larger ones are not copied or held in memory."""

MAX_COMMANDS: Final = 400_000
MAX_DEPTH: Final = 10
"""Maximum levels of nested INCLUDE."""

MAX_FILES: Final = 10_000

_DIRECTORY_KEYS: Final = frozenset({"initialdir", "initial_dir", "iwd"})


# --- sweep files and templates --------------------------------------------------------------------


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
        for command in parse(name, _decode(data, name)):
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


# --- files that the DAG names ---------------------------------------------------------------------


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
        data, has_execute_bit = _read_bytes(source.parent, name, bytes_left)
        bytes_left -= len(data or b"")
        executable = each.use is FileUse.SCRIPT or (each.is_input and has_execute_bit)
        files[name] = replace(each, data=data, executable=executable)
        if data is not None and each.use is FileUse.SUBMIT:
            pending += _files_of_submit(name, data)  # Extended during the iteration.
    return tuple(files.values())


def read_submit_text(name: str, data: bytes | None, directory: Path) -> str | None:
    """The text of a submit file, from ``data`` or the directory; None if unreadable."""
    if data is None:
        try:
            with (directory / name).open("rb") as file:
                data = file.read(MAX_FILE_BYTES)
        except (OSError, ValueError):
            return None
    return data.decode("utf-8", "replace")


def _files_of_submit(name: str, data: bytes) -> Iterator[Referenced]:
    """The input files of jobs, relative to their initial directory."""
    statements = assignments(data.decode("utf-8", "replace"))
    lines: dict[str, int] = {}
    directory = ""
    for statement in statements:
        if statement.key in _DIRECTORY_KEYS:
            directory = statement.value
        for file in input_files([statement]):
            lines.setdefault(file, statement.line)
    if "$" in directory:
        return
    for file in input_files(statements):
        path = f"{directory.rstrip('/')}/{file}" if directory and not file.startswith("/") else file
        yield Referenced(path, f"{name}:{lines[file]}", FileUse.INPUT)


def _read_bytes(directory: Path, name: str, limit: int) -> tuple[bytes | None, bool]:
    """The content of a file with a bare name, and whether it is executable.

    None for a path, which is not copied, and for a file larger than ``limit``.
    """
    if "/" in name or "$" in name:
        return None, False
    path = directory / name
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > min(limit, MAX_FILE_BYTES):
            return None, False
        return path.read_bytes(), bool(status.st_mode & stat.S_IXUSR)
    except (OSError, ValueError):
        return None, False
