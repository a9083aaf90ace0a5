"""The files that the DAG of a sweep refers to, and that are copied beside the DAG.

Files beside the sweep file that are referred to by a bare name are copied: submit files and their
jobs' input files, scripts, spliced and external DAGs, and what these refer to. Files named by a
path are left where they are.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum, auto
from os.path import exists
from pathlib import Path
from typing import Final

from metlmon.authoring.request import Request
from metlmon.authoring.submit_text import Assignment, assignments, input_files
from metlmon.authoring.sweeps.commands import GlobalCommand, Splice, SweepCommand
from metlmon.authoring.sweeps.parser import MAX_FILE_BYTES
from metlmon.authoring.sweeps.result import Referenced
from metlmon.dagman import NodeKind
from metlmon.dagman.commands import (
    DescriptionCommand,
    IncludeCommand,
    NodeCommand,
    ScriptCommand,
    SpliceCommand,
)
from metlmon.dagman.lexer import Tokens
from metlmon.dagman.parser import parse_dag
from metlmon.frozen import frozen

MOST_BYTES: Final = 4 * MAX_FILE_BYTES
"""Limit for all files together; larger ones are not copied or held in memory."""

MOST_FILES: Final = 10_000

_DIRECTORY_KEYS: Final = frozenset({"initialdir", "initial_dir", "iwd"})


class FileUse(Enum):
    """How a file is used."""

    SUBMIT = auto()
    SCRIPT = auto()
    DAG = auto()
    INPUT = auto()
    OTHER = auto()


@frozen
class NamedFile:
    """A file with the position that refers to it."""

    name: str
    where: str
    use: FileUse


def referenced_files(
    source: Path, commands: Sequence[SweepCommand], named: Iterable[NamedFile]
) -> tuple[Referenced, ...]:
    """Each file once, in the order of reference.

    ``named``: the files of nodes. Never raises.
    """
    files: dict[str, Referenced] = {}
    bytes_left = MOST_BYTES
    pending = [*named, *(file for command in commands for file in _files_of_command(command))]
    for file in pending:
        if file.name in files or file.name.startswith("/") or len(files) >= MOST_FILES:
            continue
        data, has_execute_bit = _read_bytes(source.parent, file.name, bytes_left)
        bytes_left -= len(data or b"")
        executable = file.use is FileUse.SCRIPT or (file.use is FileUse.INPUT and has_execute_bit)
        files[file.name] = Referenced(
            name=file.name,
            where=file.where,
            data=data,
            executable=executable,
            taken=file.use is FileUse.INPUT,
        )
        if data is not None:
            # Extended during the iteration: files may refer to further files.
            pending += _files_of_file(file, data)
    return tuple(files.values())


def missing(
    request: Request, files: Iterable[Referenced], written: Collection[str]
) -> Iterator[str]:
    """Messages about files that are neither copied nor present.

    ``written``: names of files that are written anyway.
    """
    assert request.source is not None
    for file in files:
        if file.data is not None or file.name in written or exists(request.directory / file.name):
            continue
        message = f"{file.where}: {file.name} lies neither beside the sweep file nor in "
        if exists(request.source.parent / file.name):
            reason = f"it is a path, a directory, or larger than {MAX_FILE_BYTES >> 20} MB"
            message = f"{file.where}: {file.name} is not copied, since {reason}, and is not in "
        suffix = ", unless an earlier job brings it" if file.taken else ""
        yield f"{message}{request.directory}; put it there before submitting{suffix}"


def read_submit_text(name: str, data: bytes | None, directory: Path) -> str | None:
    """The text of a submit file, or None if it cannot be read.

    ``data``: its content if it is copied; otherwise it is read from the DAG's directory.
    """
    if data is None:
        try:
            with (directory / name).open("rb") as file:
                data = file.read(MAX_FILE_BYTES)
        except (OSError, ValueError):
            return None
    return data.decode("utf-8", "replace")


def _files_of_command(command: SweepCommand) -> Iterator[NamedFile]:
    """The file in ``SPLICE name file`` or ``CONFIG file``."""
    if not isinstance(command, Splice | GlobalCommand):
        return
    words = list(iter(Tokens(command.text).file, ""))
    if isinstance(command, Splice):
        yield NamedFile(words[2], command.where, FileUse.OTHER if len(words) > 3 else FileUse.DAG)
    elif command.keyword == "CONFIG":
        yield NamedFile(words[1], command.where, FileUse.OTHER)


def _files_of_file(named: NamedFile, data: bytes) -> Iterator[NamedFile]:
    """The files that a file refers to."""
    if named.use is FileUse.DAG:
        yield from _files_of_dag(named.name, data)
    elif named.use is FileUse.SUBMIT:
        yield from _files_of_submit(named.name, assignments(data.decode("utf-8", "replace")))


def _files_of_dag(name: str, data: bytes) -> Iterator[NamedFile]:
    """The files that a DAG file refers to."""
    commands = parse_dag(data, name).commands
    descriptions = {command.name for command in commands if isinstance(command, DescriptionCommand)}
    for command in commands:
        where = f"{name}:{command.line}"
        match command:
            case NodeCommand(submit=str(file), dir=None, noop=False):
                if file not in descriptions:
                    yield NamedFile(file, where, file_use(command.kind))
            case ScriptCommand(command=line):
                yield NamedFile(line.split(None, 1)[0], where, FileUse.SCRIPT)
            case SpliceCommand(file=file, dir=None) | IncludeCommand(file=file):
                yield NamedFile(file, where, FileUse.DAG)


def file_use(kind: NodeKind) -> FileUse:
    """The use of a node's file."""
    return FileUse.DAG if kind is NodeKind.SUBDAG else FileUse.SUBMIT


def _files_of_submit(name: str, statements: list[Assignment]) -> Iterator[NamedFile]:
    """The input files of jobs, relative to their initial directory."""
    lines = {
        file: statement.line
        for statement in reversed(statements)
        for file in input_files([statement])
    }
    directory = next(
        (statement.value for statement in reversed(statements) if statement.key in _DIRECTORY_KEYS),
        "",
    )
    if "$" in directory:
        return
    for file in input_files(statements):
        path = f"{directory.rstrip('/')}/{file}" if directory and not file.startswith("/") else file
        yield NamedFile(path, f"{name}:{lines[file]}", FileUse.INPUT)


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
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError):
        return None, False
    has_execute_bit = bool(status.st_mode & stat.S_IXUSR)
    return (data if len(data) <= MAX_FILE_BYTES else None), has_execute_bit
