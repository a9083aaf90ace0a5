"""Where the files of a name pattern are, below the dagdir and nowhere else.

A pattern comes from the settings, what is filled into it from a DAG file that may have been
copied from anywhere: a name that would lead out of its folder matches nothing, links are
followed only as long as they stay inside the dagdir, and every folder is listed once.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Mapping
from fnmatch import fnmatchcase
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Final

from metlmon.live.tail import NotRead

MOST_ENTRIES: Final = 100_000
"""Names that are looked at in one folder: a dagdir with ten thousand jobs has a third of it."""

MOST_PLACES: Final = 1000
"""Places that one pattern may match for one run."""


class SafeGlob:
    """Finds what patterns name. Folders are listed once: make a new one for each look."""

    def __init__(self, dagdir: Path) -> None:
        try:
            self.base = dagdir.resolve()
        except (OSError, RuntimeError):
            self.base = dagdir
        self._listed: dict[Path, dict[str, bool]] = {}

    def matching(self, pattern: str, filled: Mapping[str, str | None]) -> list[Path]:
        """Resolved paths below the dagdir that ``pattern`` matches, in order of their names.
        ``{name}`` in it stands for a value of ``filled``; one without a value, or with a value
        that is no plain file name, matches nothing."""
        found, parts = [self.base], Path(pattern).parts
        for place, part in enumerate(parts, start=1):
            wanted = _filled(part, filled)
            if wanted is None:
                return []
            last = place == len(parts)
            found = [path for folder in found for path in self._in(folder, wanted, last)]
            found = found[:MOST_PLACES]
        return found if parts else []

    def folder(self, path: Path) -> Mapping[str, bool]:
        """The names in a folder, sorted, and of each whether it is a folder itself; none where
        it cannot be read. Links are there only where they stay inside the dagdir."""
        if path not in self._listed:
            try:
                with os.scandir(path) as entries:
                    some = [
                        (each.name, each.is_dir())
                        for each in islice(entries, MOST_ENTRIES)
                        if not each.is_symlink() or self.inside(path / each.name) is not None
                    ]
            except OSError:
                some = []
            self._listed[path] = dict(sorted(some))
        return self._listed[path]

    def below(self, path: str) -> str:
        """The name of a file below the dagdir, as one would say it there."""
        return path.removeprefix(f"{self.base}/")

    def inside(self, path: Path) -> Path | None:
        """The path with its links followed, where that is below the dagdir. Of a name in a
        resolved folder it takes one look whether it is a link at all."""
        try:
            is_link = stat.S_ISLNK(os.lstat(path).st_mode)
            found = path.resolve(strict=True) if is_link else path
        except (OSError, RuntimeError, ValueError):
            return None
        return found if found.is_relative_to(self.base) and found != self.base else None

    def _in(self, folder: Path, wanted: str, last: bool) -> list[Path]:
        names = [wanted]
        if glob.has_magic(wanted):
            # As in a shell: a hidden name only where one is asked for.
            names = [
                name
                for name, is_folder in self.folder(folder).items()
                if (last or is_folder)
                and fnmatchcase(name, wanted)
                and (wanted[0] == "." or name[0] != ".")
            ]
        there = (self.inside(folder / name) for name in names)
        return [path for path in there if path is not None]


def _filled(part: str, filled: Mapping[str, str | None]) -> str | None:
    if part in ("..", "/") or "\0" in part:
        return None
    for name, value in filled.items():
        if f"{{{name}}}" not in part:
            continue
        if not value or value in (".", "..") or "/" in value or "\0" in value:
            return None
        part = part.replace(f"{{{name}}}", glob.escape(value))
    return part


Seen = tuple[int, int, int]
"""By what a file is known to be unchanged: inode, size, nanoseconds of its mtime."""


def seen(path: str) -> Seen | None:
    """How a regular file stands now; None where there is none."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def opened(path: str, most: int) -> TextIOWrapper:
    """A regular file for reading as text, with its line ends as they are; raises NotRead for
    anything else, for one that cannot be read, and for one of more than ``most`` bytes."""
    handle = _handle(path)
    if os.fstat(handle).st_size > most:
        os.close(handle)
        raise NotRead(f"it is larger than {most // 1_000_000} MB")
    return open(handle, encoding="utf-8", errors="replace", newline="")


def content_of(path: str, most: int) -> bytes:
    """All of a regular file. Raises NotRead for anything else, for one that cannot be read, and
    for one of more than ``most`` bytes."""
    handle = _handle(path)
    with open(handle, "rb") as file:
        try:
            # A file of the kernel's has no size, and may wait for ever for something to read.
            size = os.fstat(handle).st_size
            content = file.read(min(most, size) + 1) if size else b""
        except OSError as problem:
            raise NotRead(f"it cannot be read: {problem.strerror}") from problem
    if len(content) > most:
        raise NotRead(f"it is larger than {most:,} bytes")
    return content


def end_of(path: str, most: int) -> str:
    """The last ``most`` bytes of a regular file, as text. Raises NotRead."""
    handle = _handle(path)
    try:
        size = os.fstat(handle).st_size
        content = os.pread(handle, min(most, size), max(0, size - most))
    except OSError as problem:
        raise NotRead(f"it cannot be read: {problem.strerror}") from problem
    finally:
        os.close(handle)
    return content.decode("utf-8", "replace")


def _handle(path: str) -> int:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except OSError as problem:
        raise NotRead(f"it cannot be read: {problem.strerror}") from problem
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotRead("it is not a regular file")
    return handle
