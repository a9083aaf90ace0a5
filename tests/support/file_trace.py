"""File operations in a directory as seen by the kernel, and its state before and after."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from pathlib import Path
from types import TracebackType

import pytest

CHANGES = {
    0x2: "modified",
    0x4: "attributes changed",
    0x8: "closed after writing",
    0x40: "moved away",
    0x80: "moved here",
    0x100: "created",
    0x200: "deleted",
    0x400: "deleted itself",
    0x800: "moved itself",
}
"""``inotify(7)``: everything but that files are looked at."""

_HEAD = struct.Struct("iIII")


class Watched:
    """A directory and all below it, traced within the context. ``seen``: the operations on each
    file, by any process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.seen: list[tuple[str, str]] = []

    def __enter__(self) -> Watched:
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            self._handle = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError:
            pytest.skip("this system has no inotify")
        self._folders = {}
        for folder, _, _ in os.walk(self.directory):
            watch = libc.inotify_add_watch(self._handle, os.fsencode(folder), sum(CHANGES))
            assert watch >= 0, os.strerror(ctypes.get_errno())
            self._folders[watch] = folder
        self._before = standing(self.directory)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        data = b""
        while True:
            try:
                data += os.read(self._handle, 1 << 16)
            except BlockingIOError:
                break
        os.close(self._handle)
        while data:
            watch, mask, _, length = _HEAD.unpack_from(data)
            name = data[_HEAD.size : _HEAD.size + length].rstrip(b"\0").decode()
            data = data[_HEAD.size + length :]
            what = [text for bit, text in CHANGES.items() if mask & bit]
            self.seen += [(f"{self._folders.get(watch, '')}/{name}", each) for each in what]
        if error is None:
            assert self.seen == []
            assert standing(self.directory) == self._before


def standing(directory: Path) -> dict[str, tuple[int, ...]]:
    """The state of every file: kind, mode, inode, size, mtime, ctime, owner, but not atime."""
    found = {}
    for folder, folders, files in os.walk(directory):
        for name in [".", *folders, *files]:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            found[path] = (
                stat.S_IFMT(status.st_mode),
                stat.S_IMODE(status.st_mode),
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_uid,
            )
    return found
