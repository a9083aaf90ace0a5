"""File-system calls for paths of this machine and of others (:mod:`metlmon.remote.paths`).

They do what the functions of :mod:`os` and :mod:`os.path` with the same names do.
"""

from __future__ import annotations

import os
import stat as status_bits
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

from metlmon.remote.paths import Place, remote_path, split, there

if TYPE_CHECKING:
    from metlmon.remote.machine import Machine, RemoteEntry, RemoteFile

AnyPath: TypeAlias = str | os.PathLike[str]

SLOW_SECONDS: Final = 3.0
"""Seconds within which another machine, which may be far away, answers."""

Entry: TypeAlias = "os.DirEntry[str] | RemoteEntry"
"""A name in a directory."""

OpenFile: TypeAlias = "LocalFile | RemoteFile"
"""A file that is open for reading, with the same methods on any machine."""


def _machine(place: Place) -> Machine:
    from metlmon.remote.machine import MACHINES  # Most processes read no other machine.

    return MACHINES[place.host]


def stat(path: AnyPath) -> os.stat_result:
    place = split(path)
    return os.stat(path) if place is None else _machine(place).stat(place.path)


def lstat(path: AnyPath) -> os.stat_result:
    place = split(path)
    return os.lstat(path) if place is None else _machine(place).stat(place.path, follow=False)


def exists(path: AnyPath) -> bool:
    return _target_type(path) is not None


def file_type(path: AnyPath) -> int | None:
    """The type of a file or link (``S_IFMT`` of its mode); None if it does not exist."""
    place = split(path)
    try:
        if place is not None:
            return _machine(place).file_type(place.path)
        return status_bits.S_IFMT(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return None


def lexists(path: AnyPath) -> bool:
    return file_type(path) is not None


def isfile(path: AnyPath) -> bool:
    return _target_type(path) == status_bits.S_IFREG


def isdir(path: AnyPath) -> bool:
    return _target_type(path) == status_bits.S_IFDIR


def _target_type(path: AnyPath) -> int | None:
    """The type of a file, or of a link's target; None if it does not exist."""
    try:
        return status_bits.S_IFMT(stat(path).st_mode)
    except (OSError, ValueError):
        return None


def realpath(path: AnyPath) -> str:
    place = split(path)
    if place is None:
        return os.path.realpath(path)
    return remote_path(place.host, _machine(place).realpath(place.path))


def resolve(path: Path, strict: bool = False) -> Path:
    """Like :meth:`pathlib.Path.resolve`."""
    if split(path) is None:
        return path.resolve(strict)
    if strict:
        stat(path)
    return Path(realpath(path))


def listdir(path: AnyPath) -> list[str]:
    with scandir(path) as entries:
        return [entry.name for entry in entries]


@contextmanager
def scandir(path: AnyPath) -> Iterator[Iterator[Entry]]:
    place = split(path)
    if place is None:
        with os.scandir(path) as entries:
            yield entries
        return
    yield _machine(place).scandir(place.path)


_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@contextmanager
def open_file(path: AnyPath, *, follow: bool = True) -> Iterator[OpenFile]:
    """Open a file for reading; ``follow``: even if the path is a link. Raises OSError.

    On another machine only regular files are opened; on this one the caller must check that.
    """
    place = split(path)
    if place is not None:
        with _machine(place).open(place.path, follow) as remote_file:
            yield remote_file
        return
    descriptor = os.open(path, _FLAGS if follow else _FLAGS | os.O_NOFOLLOW)
    try:
        yield LocalFile(descriptor)
    finally:
        os.close(descriptor)


class LocalFile:
    """A file of this machine that is open for reading."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def status(self) -> os.stat_result:
        """Its present status."""
        return os.fstat(self._descriptor)

    def pread(self, length: int, start: int) -> bytes:
        """The bytes of a range, fewer at the end of the file."""
        data = os.pread(self._descriptor, length, start)
        # One call reads at most 2 GB, and less if a signal interrupts it.
        while 0 < len(data) < length:
            more = os.pread(self._descriptor, length - len(data), start + len(data))
            if not more:
                break
            data += more
        return data

    def stream(self) -> BinaryIO:
        """Its content, to be closed by the caller."""
        return open(os.dup(self._descriptor), "rb")

    def end_of_nuls(self, start: int, size: int) -> int:
        """The end of the run of NUL bytes that begins at ``start``, at most ``size``."""
        from metlmon.remote.agent import end_of_nuls

        return int(end_of_nuls(self._descriptor, start, size))


def user_number(path: AnyPath) -> int:
    """The number (uid) of the user on the path's machine."""
    place = split(path)
    return os.geteuid() if place is None else _machine(place).user_number


def read_ahead(
    directory: AnyPath, paths: Iterable[AnyPath], size: int, *, follow: bool = True
) -> None:
    """Read the last ``size`` bytes of files that will be read, if each would take a round trip.

    ``directory``: the files are below it; ``follow``: as for :func:`open_file`. On this machine,
    ``paths`` is not iterated.
    """
    place = split(directory)
    if place is not None:
        _machine(place).read_ahead([there(path) for path in paths], size, follow)


def answer_seconds(path: AnyPath) -> float:
    """Seconds that an answer about a file may take on the network alone."""
    return 0.0 if split(path) is None else SLOW_SECONDS


# --- clocks ------------------------------------------------------------------------------------


def now(path: AnyPath) -> float:
    """Seconds since 1970 by the clock of the path's machine."""
    place = split(path)
    return time.time() if place is None else _machine(place).now()


def local_time(path: AnyPath, moment: float) -> datetime:
    """The local time, naive, of the path's machine; ``moment``: seconds since 1970."""
    place = split(path)
    if place is None:
        return datetime.fromtimestamp(moment)
    offset = timedelta(seconds=_machine(place).utc_offset)
    return datetime.fromtimestamp(moment, UTC).replace(tzinfo=None) + offset
