"""Following one file that grows, is truncated in place, or is replaced.

``stat`` is the truth: size, inode, and a fingerprint of the first bytes, since a
``nodes.log`` that DAGMan emptied can regrow past the old offset between two looks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from typing import Final
from zlib import crc32

from metlmon.frozen import frozen
from metlmon.live.fs_timeout import FsTimeout, call_with_timeout

FINGERPRINT: Final = 256
"""Bytes at the beginning that tell one life of a file from another: the first event's ids
and time to the second stand within them."""

CHUNK: Final = 1 << 19
"""Bytes read at once: large enough that system calls cost nothing, small enough that one
read and its parsing stay within ten milliseconds."""

GREATEST_REST: Final = 64 << 20
"""Bytes of unconsumed rest that are kept waiting for an event's end. No event is near that
long; a file that never ends one is not read into memory without bound."""


SILENT: Final = "no answer from the file system"
"""Why a file cannot be read that nobody has heard of."""


@frozen
class FileCheck:
    """What one look at a file found. ``restarted``: it is not what was read of it any more, and
    the offset is 0 again. ``grew``: there is more to read. ``problem``: why it cannot be read,
    None when it can; ``gone``: since it is not there."""

    size: int
    restarted: bool
    grew: bool
    problem: str | None = None
    gone: bool = False


class Follower:
    """Where a reader stands in one file. Holds no file open between looks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.size = 0
        self.mtime = 0.0
        self._seen: tuple[int, ...] | None = None
        self._start: bytes | None = None
        self._data = (0, b"")
        self._end = b""
        self._sum = (0, 0)

    @property
    def behind(self) -> int:
        """Bytes that are there and not consumed."""
        return max(0, self.size - self.offset)

    @property
    def found(self) -> bool:
        """True once the file was there to be read."""
        return self._start is not None

    def resume(self, offset: int, inode: int, start: bytes) -> None:
        """Go on where another follower stood, in the file that :meth:`follows` that."""
        self.offset, self._start = offset, start
        self._seen = (inode,)

    def follows(self, inode: int, start: bytes) -> bool:
        """Is the file of this inode, which begins with ``start``, the one that is followed?"""
        if self._seen is None or self._start is None:
            return False
        return inode == self._seen[0] and start.startswith(self._start[: len(start)])

    def look(self) -> FileCheck:
        """Ask the file system how the file stands; reads at most its first bytes."""
        try:
            status = call_with_timeout(os.stat, self.path)
            if not stat.S_ISREG(status.st_mode):
                return FileCheck(self.size, False, False, "not a regular file")
            # The change of the inode tells of bytes that were put in place of others, too.
            signature = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            if signature == self._seen:
                return FileCheck(self.size, False, False)
            # A file of the kernel's has no size, and may wait for ever for something to read.
            there = status.st_size > 0
            start, end = (
                call_with_timeout(_both_ends, self.path, self.offset) if there else (b"", b"")
            )
            same = self._holds_the_same(status)
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            return FileCheck(self.size, False, False, error.strerror or str(error), gone)
        except FsTimeout:
            return FileCheck(self.size, False, False, SILENT)
        restarted = self._restarted(status, start, end) or not same
        if restarted:
            self.offset, self._end, self._sum = 0, b"", (0, 0)
        self._seen = signature
        self._start = start
        self.size, self.mtime = status.st_size, status.st_mtime
        return FileCheck(self.size, restarted, self.size > self.offset)

    def _restarted(self, status: os.stat_result, start: bytes, end: bytes) -> bool:
        if self._start is None:
            return False
        if status.st_size < self.offset:
            return True
        # A copy put in the file's place goes on where the old one was, if it is alike at the
        # beginning and where reading stands.
        return not start.startswith(self._start) or not end.endswith(self._end)

    def _holds_the_same(self, status: os.stat_result) -> bool:
        """Are the bytes that were read what they were, in another file of this name, or in one
        that was written without having grown?"""
        length, known = self._sum
        if self._seen is None or length != self.offset or not 0 < length <= status.st_size:
            return True
        if status.st_ino == self._seen[0] and status.st_size != self.size:
            return True
        return call_with_timeout(_sum_of, self.path, length) == known

    def consume(self, offset: int) -> None:
        """All before ``offset`` has been taken, from what was read last."""
        at, data = self._data
        taken = max(0, offset - at)
        self._end = (self._end + data[max(0, taken - FINGERPRINT) : taken])[-FINGERPRINT:]
        if self._sum[0] == self.offset == at:
            self._sum = (offset, crc32(memoryview(data)[:taken], self._sum[1]))
        self._data = (0, b"")
        self.offset = offset

    def read(self, at: int, limit: int = CHUNK) -> bytes:
        """Bytes from ``at``, at most ``limit`` of them. Raises OSError; then the next look
        tells of these bytes again, although the file will be as it was."""
        try:
            data = call_with_timeout(_part, self.path, at, limit)
        except FsTimeout:
            self._seen = None
            raise OSError(errno.ETIMEDOUT, SILENT) from None
        except OSError:
            self._seen = None
            raise
        self._data = (at, data)
        return data


def _both_ends(path: Path, offset: int) -> tuple[bytes, bytes]:
    """The file's first bytes, and those before ``offset``."""
    with open(path, "rb", buffering=0) as file:
        start = file.read(FINGERPRINT)
        file.seek(max(0, offset - FINGERPRINT))
        return start, file.read(min(FINGERPRINT, offset))


def _sum_of(path: Path, length: int) -> int:
    """A checksum of the file's first bytes, so many of them."""
    made = 0
    with open(path, "rb", buffering=0) as file:
        while length > 0 and (data := file.read(min(CHUNK, length))):
            made = crc32(data, made)
            length -= len(data)
    return made


def _part(path: Path, at: int, limit: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(at)
        return file.read(limit)


SETTLED: Final = 2.0
"""Seconds after which a directory's mtime can be trusted: two changes within one tick of a
file system's clock (up to two seconds on some) leave the same stamp."""


LARGE_FOLDER: Final = 256 << 10
"""Bytes that a directory itself takes, by its stat: some 5,000 names on most file systems."""

LARGE_FOLDER_SECONDS: Final = 10.0
"""100,000 names take a third of a second to list; with a new one each second that was half a
core."""


class DirectoryMtimes:
    """Tells whether names came or went in some directories since it was asked last, or may be
    known now: the ctime tells of permissions. Of large directories, which take long to list, it
    tells that at most once in ``LARGE_FOLDER_SECONDS``."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[int, int]] = {}
        self._due = False
        self._told = float("-inf")

    def changed(self, folders: Iterable[Path], now: float) -> bool:
        """``now`` in seconds since 1970, by the clock that stamps files."""
        seen: dict[Path, tuple[int, int]] = {}
        large = False
        for folder in folders:
            try:
                status = call_with_timeout(os.stat, folder)
                stamps = status.st_mtime_ns, status.st_ctime_ns
                large |= status.st_size >= LARGE_FOLDER
            except OSError:
                stamps = -1, -1
            except FsTimeout:
                stamps = self._seen.get(folder, (-1, -1))
            seen[folder] = stamps
            self._due |= abs(now - stamps[0] / 1e9) < SETTLED
        self._due |= seen != self._seen
        self._seen = seen
        if not self._due or (large and monotonic() - self._told < LARGE_FOLDER_SECONDS):
            return False
        self._due, self._told = False, monotonic()
        return True
