"""Files that the DAG of a sweep names: they lie beside the sweep file, and must beside the DAG.

What lies there under a bare name goes along: submit files with what their jobs take along, scripts,
DAGs that are spliced in or external, with what these name. A path may lead anywhere.
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
from metlmon.authoring.sweeps.parser import LARGEST
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

MOST_BYTES: Final = 4 * LARGEST
"""Of all files together: what is larger belongs where it lies, and is not held in memory."""

MOST_FILES: Final = 10_000

_FOLDERS: Final = frozenset({"initialdir", "initial_dir", "iwd"})


class FileUse(Enum):
    """What a file is to whoever names it."""

    SUBMIT = auto()
    SCRIPT = auto()
    DAG = auto()
    INPUT = auto()
    OTHER = auto()


@frozen
class NamedFile:
    """A file with the place that names it."""

    name: str
    where: str
    use: FileUse


def files_named(
    source: Path, commands: Sequence[SweepCommand], named: Iterable[NamedFile]
) -> tuple[Referenced, ...]:
    """Each file once, in the order in which they are named; ``named`` by nodes. Never raises."""
    found: dict[str, Referenced] = {}
    left = MOST_BYTES
    waiting = [*named, *(each for command in commands for each in _of_command(command))]
    for each in waiting:
        if each.name in found or each.name.startswith("/") or len(found) >= MOST_FILES:
            continue
        data, runs = _data(source.parent, each.name, left)
        left -= len(data or b"")
        executable = each.use is FileUse.SCRIPT or (each.use is FileUse.INPUT and runs)
        found[each.name] = Referenced(
            each.name, each.where, data, executable, each.use is FileUse.INPUT
        )
        if data is not None:
            # It grows while it is gone through: files within files.
            waiting += _within(each, data)
    return tuple(found.values())


def missing(
    request: Request, files: Iterable[Referenced], written: Collection[str]
) -> Iterator[str]:
    """What is to be said of files that do not go along and are not there. ``written``: names of
    what comes along anyway."""
    assert request.source is not None
    for file in files:
        if file.data is not None or file.name in written or exists(request.directory / file.name):
            continue
        said = f"{file.where}: {file.name} lies neither beside the sweep file nor in "
        if exists(request.source.parent / file.name):
            why = f"it is a path, a directory, or larger than {LARGEST >> 20} MB"
            said = f"{file.where}: {file.name} is not copied, since {why}, and is not in "
        brought = ", unless an earlier job brings it" if file.taken else ""
        yield f"{said}{request.directory}; put it there before submitting{brought}"


def text_of(name: str, data: bytes | None, directory: Path) -> str | None:
    """What a submit file says that goes along (``data``), or lies in the DAG's directory; None
    where it cannot be had."""
    if data is None:
        try:
            with (directory / name).open("rb") as file:
                data = file.read(LARGEST)
        except (OSError, ValueError):
            return None
    return data.decode("utf-8", "replace")


def _of_command(command: SweepCommand) -> Iterator[NamedFile]:
    """The file of SPLICE name file, or of CONFIG file."""
    if not isinstance(command, Splice | GlobalCommand):
        return
    words = list(iter(Tokens(command.text).file, ""))
    if isinstance(command, Splice):
        yield NamedFile(words[2], command.where, FileUse.OTHER if len(words) > 3 else FileUse.DAG)
    elif command.keyword == "CONFIG":
        yield NamedFile(words[1], command.where, FileUse.OTHER)


def _within(named: NamedFile, data: bytes) -> Iterator[NamedFile]:
    """What a file itself names."""
    if named.use is FileUse.DAG:
        yield from _of_dag(named.name, data)
    elif named.use is FileUse.SUBMIT:
        yield from _of_submit(named.name, assignments(data.decode("utf-8", "replace")))


def _of_dag(name: str, data: bytes) -> Iterator[NamedFile]:
    commands = parse_dag(data, name).commands
    described = {each.name for each in commands if isinstance(each, DescriptionCommand)}
    for each in commands:
        where = f"{name}:{each.line}"
        match each:
            case NodeCommand(submit=str(file), dir=None, noop=False):
                if file not in described:
                    yield NamedFile(file, where, use_of(each.kind))
            case ScriptCommand(command=line):
                yield NamedFile(line.split(None, 1)[0], where, FileUse.SCRIPT)
            case SpliceCommand(file=file, dir=None) | IncludeCommand(file=file):
                yield NamedFile(file, where, FileUse.DAG)


def use_of(kind: NodeKind) -> FileUse:
    """What the file of a node is."""
    return FileUse.DAG if kind is NodeKind.SUBDAG else FileUse.SUBMIT


def _of_submit(name: str, said: list[Assignment]) -> Iterator[NamedFile]:
    """What jobs take along: from the directory that they say, if they say one."""
    lines = {file: each.line for each in reversed(said) for file in input_files([each])}
    folder = next((each.value for each in reversed(said) if each.key in _FOLDERS), "")
    if "$" in folder:
        return
    for file in input_files(said):
        path = f"{folder.rstrip('/')}/{file}" if folder and not file.startswith("/") else file
        yield NamedFile(path, f"{name}:{lines[file]}", FileUse.INPUT)


def _data(folder: Path, name: str, most: int) -> tuple[bytes | None, bool]:
    """What lies there under a bare name, if it is no larger than that, and whether it can be run;
    a path may lead anywhere, and is left alone."""
    if "/" in name or "$" in name:
        return None, False
    path = folder / name
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > min(most, LARGEST):
            return None, False
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError):
        return None, False
    runs = bool(status.st_mode & stat.S_IXUSR)
    return (data if len(data) <= LARGEST else None), runs
