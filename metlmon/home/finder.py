"""Finds dagdirs below paths, one directory at a time.

Links to directories are followed after all real directories, so that a dagdir is listed under its
own path; each directory is visited once, so that loops of links end. Hidden directories are
skipped. A dagdir inside another is an ensemble of its own unless a DAG of the outer one refers to
a DAG file in it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from metlmon.dagman.records import Workflow
from metlmon.errors import InputError, unusable_path
from metlmon.live.discovery import dag_files, has_event_logs, read_workflows
from metlmon.live.file_access import (
    COMMAND_PATIENCE,
    PATIENCE,
    FsExecutor,
    call_with_timeout,
    calls_through,
    stat_all,
)
from metlmon.remote import filesystem
from metlmon.remote.paths import NoAnswer, host_of

MAX_DEPTH: Final = 5
"""Levels searched below a path: experiments are in folders by project, user or year."""

INNER_DEPTH: Final = 2
"""Levels searched below a dagdir: deeper ones are outputs, with a folder for each job."""

MAX_DIRECTORIES: Final = 5000
"""Maximum directories visited below one path: each job may have a folder for its output."""

NOTHING_HERE: Final = "no DAG file here or below"


class FoundDagdir(Struct, frozen=True):
    """A dagdir or DAG file that was found, or a directory that is unreadable because of ``error``.

    ``more``: there are more directories below this path than are searched. ``modified``: when a
    file was added to or removed from the directory, in seconds since 1970; 0 if unknown.
    ``interrupted``: a file system did not answer, so that what was found below this path before may
    still be there.
    """

    path: str
    error: str | None = None
    more: bool = False
    modified: float = 0.0
    interrupted: bool = False


_Identity: TypeAlias = tuple[str, int, int]
"""What all names of a directory have in common: machine, device and inode."""


class _Listing(Struct):
    """The contents of a directory: its identity, files, and directories (name, whether a link)."""

    identity: _Identity
    modified: float
    files: list[str]
    directories: list[tuple[str, bool]]


def find_dagdirs(paths: Iterable[str], *, wait: bool = False) -> Iterator[FoundDagdir | None]:
    """Yield the dagdirs below absolute ``paths``, and None for every other directory.

    A path that is a DAG file is yielded as it is; one that cannot be read, or has no dagdir below
    it, with its error. ``wait``: allow the time that a busy or remote machine may need.
    """
    seen: set[_Identity] = set()
    for path in paths:
        # One for each path: a file server that does not answer delays only the paths on it.
        patience = COMMAND_PATIENCE if wait else PATIENCE
        files = FsExecutor(lambda: None, patience)
        try:
            yield from _find_below(path, seen, files)
        finally:
            files.close()


def _find_below(root: str, seen: set[_Identity], files: FsExecutor) -> Iterator[FoundDagdir | None]:
    """As :func:`find_dagdirs`, below one path; ``seen``: directories visited before."""
    pending: deque[tuple[str, int, str | None]] = deque([(root, 0, None)])
    links: deque[tuple[str, int, str | None]] = deque()
    belongs: dict[str, frozenset[_Identity]] = {}
    found, visited = False, 0
    while pending or links:
        path, depth, outer = pending.popleft() if pending else links.popleft()
        visited += 1
        if visited > MAX_DIRECTORIES:
            yield FoundDagdir(root, more=True)
            return
        try:
            with calls_through(files):
                is_file = depth == 0 and call_with_timeout(filesystem.isfile, Path(path))
                listing = None if is_file else call_with_timeout(_list, Path(path))
        except NoAnswer as error:
            yield FoundDagdir(root, str(error), interrupted=True)
            return
        except OSError as error:
            # Below the path, a dangling link or a directory just removed is not an error.
            if depth == 0 or not isinstance(error, FileNotFoundError):
                found = True
                reason = str(unusable_path(error) or error.strerror or error)
                if isinstance(error, FileNotFoundError):
                    reason += "; give the directory of a DAG"
                yield FoundDagdir(path, reason.removeprefix(f"{path}: "))
            continue
        if listing is None:
            yield FoundDagdir(path)
            return
        if listing.identity in seen:
            found |= depth == 0
            continue
        seen.add(listing.identity)
        here = bool(dag_files(listing.files))
        if here and outer is not None:
            if outer not in belongs:
                with calls_through(files):
                    belongs[outer] = _referenced_directories(outer)
            here = listing.identity not in belongs[outer]
        found |= here
        yield FoundDagdir(path, modified=listing.modified) if here else None
        if here:
            depth = max(depth, MAX_DEPTH - INNER_DEPTH)
        if depth < MAX_DEPTH:
            for name, is_link in sorted(listing.directories):
                entry = os.path.join(path, name), depth + 1, path if here else outer
                (links if is_link else pending).append(entry)
    if not found:
        with calls_through(files):
            yield FoundDagdir(root, None if has_event_logs(Path(root)) else NOTHING_HERE)


def _identity(path: str | Path, status: os.stat_result) -> _Identity:
    return host_of(path), status.st_dev, status.st_ino


def _list(path: str | Path) -> _Listing:
    """List a directory. Raises OSError."""
    status = filesystem.stat(path)
    listing = _Listing(_identity(path, status), status.st_mtime, [], [])
    with filesystem.scandir(path) as entries:
        for entry in entries:
            try:
                if entry.is_file():
                    listing.files.append(entry.name)
                elif entry.is_dir() and not entry.name.startswith("."):
                    listing.directories.append((entry.name, entry.is_symlink()))
            except OSError:  # a circular link
                continue
    return listing


def _referenced_directories(dagdir: str) -> frozenset[_Identity]:
    """The directories of the DAG files to which the DAGs of ``dagdir`` refer."""
    directories: set[Path] = set()
    try:
        pending: list[Workflow | None] = list(read_workflows(Path(dagdir)))
        while pending:
            workflow = pending.pop()
            if workflow is not None:
                directories.update(file.parent for file in workflow.references)
                pending += workflow.subdags
        statuses = stat_all(directories)
    except (OSError, InputError, NoAnswer):
        return frozenset()
    return frozenset(
        _identity(path, status)
        for path, status in statuses.items()
        if not isinstance(status, OSError)
    )
