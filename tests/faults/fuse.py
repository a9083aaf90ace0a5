"""A file system that stalls on request: a directory, passed on through /dev/fuse.

It implements the kernel's protocol (``linux/fuse.h``, version 7.31) as far as reading needs it, in
a thread of the test. Attributes are never cached: every access reaches it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.support.patience import PATIENCE

LOOKUP, FORGET, GETATTR, READLINK = 1, 2, 3, 5
OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = (
    14, 15, 17, 18, 25, 26, 27, 28, 29,
)  # fmt: skip
INTERRUPT, BATCH_FORGET = 36, 42

_NAMES: Final = {LOOKUP: "stat", GETATTR: "stat", OPEN: "open", READ: "read", READDIR: "list"}
_DIRECT: Final = 1
"""FOPEN_DIRECT_IO: every read is asked of the server."""

_DETACH: Final = 2

_LISTENS: Final = 0.02
"""Seconds between two looks whether it shall be deaf."""


class Fuse:
    """``below`` passed on at ``at``, read-only. ``stall(name, *ops)``: from now on these (stat,
    open, read, list) of this file, or of ``"*"``, are not answered until :meth:`go_on`.
    ``fail(name, op, number)``: they end in this error. ``deafen()``: requests are not even read (as
    with a file server that is gone): the caller can still be killed."""

    def __init__(self, below: Path, at: Path) -> None:
        self.at = at
        at.mkdir(exist_ok=True)
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self._library = ctypes.CDLL(None, use_errno=True)
        result = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if self._library.mount(b"metlmon-test", os.fsencode(at), b"fuse", 0, result):
            os.close(self._device)
            pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
        self._paths: dict[int, Path] = {1: below}
        self._numbers: dict[Path, int] = {below: 1}
        self._stalled: set[tuple[str, str]] = set()
        self._errors: dict[tuple[str, str], int] = {}
        self._waiting: list[bytes] = []
        self._lock = threading.Lock()
        self._deaf = threading.Event()
        self._ignores = threading.Event()
        self._mounted = threading.Event()
        self._over = threading.Event()
        self.held = threading.Event()
        """Somebody waits for an answer."""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        # Until the kernel's first request is answered, callers cannot be interrupted.
        assert self._mounted.wait(PATIENCE)

    def stall(self, name: str, *ops: str) -> None:
        with self._lock:
            self._stalled |= {(name, op) for op in ops}

    def deafen(self) -> None:
        self._ignores.clear()
        self._deaf.set()
        # It may be about to read a request.
        assert self._ignores.wait(PATIENCE)

    def fail(self, name: str, op: str, number: int) -> None:
        with self._lock:
            self._errors[(name, op)] = number

    def go_on(self) -> None:
        """Answer everything, including requests received meanwhile."""
        with self._lock:
            self._stalled.clear()
            self._errors.clear()
            waiting, self._waiting = self._waiting, []
            self.held.clear()
        self._deaf.clear()
        for request in waiting:
            self._answer(request)

    def end(self) -> None:
        self.go_on()
        self._library.umount2(os.fsencode(self.at), _DETACH)
        self._over.set()
        self._thread.join()
        os.close(self._device)

    def _serve(self) -> None:
        calls = select.poll()
        calls.register(self._device, select.POLLIN)
        while not self._over.is_set():
            try:
                if self._deaf.is_set():
                    self._ignores.set()
                    time.sleep(_LISTENS)
                    continue
                if not calls.poll(_LISTENS * 1000) or self._deaf.is_set():
                    continue
                request = os.read(self._device, 1 << 20)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            if not request:
                return
            self._take(request)

    def _take(self, request: bytes) -> None:
        _, op, unique, node = struct.unpack_from("<IIQQ", request)
        if op in _NAMES:
            path = self._paths.get(node, Path("?"))
            if op == LOOKUP:
                path = path / os.fsdecode(request[40:].split(b"\0")[0])
            with self._lock:
                for name in (path.name, "*"):
                    if (name, _NAMES[op]) in self._stalled:
                        self._waiting.append(request)
                        self.held.set()
                        return
                    number = self._errors.get((name, _NAMES[op]))
                    if number is not None:
                        self._reply(unique, b"", number)
                        return
        self._answer(request)

    def _answer(self, request: bytes) -> None:
        _, op, unique, node = struct.unpack_from("<IIQQ", request)
        if op in (FORGET, BATCH_FORGET, INTERRUPT):
            return
        try:
            self._reply(unique, self._done(op, node, request[40:]))
        except OSError as error:
            self._reply(unique, b"", error.errno or errno.EIO)
        if op == INIT:
            self._mounted.set()

    def _reply(self, unique: int, content: bytes, number: int = 0) -> None:
        head = struct.pack("<IiQ", 16 + len(content), -number, unique)
        with suppress(OSError):  # The caller may have gone.
            os.write(self._device, head + content)

    def _done(self, op: int, node: int, body: bytes) -> bytes:
        if op == INIT:
            return struct.pack("<IIIIHHIIHHIIIIII", 7, 31, 1 << 17, 0, 12, 8, 1 << 17, 1, 0, 0,
                               0, 0, 0, 0, 0, 0)  # fmt: skip
        path = self._paths[node]
        if op == LOOKUP:
            inner = path / os.fsdecode(body.split(b"\0")[0])
            status = os.lstat(inner)
            number = self._numbers.setdefault(inner, len(self._numbers) + 1)
            self._paths[number] = inner
            return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + _attributes(status)
        if op == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + _attributes(os.lstat(path))
        if op == READLINK:
            return os.fsencode(os.readlink(path))
        if op in (OPEN, OPENDIR):
            if op == OPEN:
                os.close(os.open(path, os.O_RDONLY))
            return struct.pack("<QII", 0, _DIRECT if op == OPEN else 0, 0)
        if op == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            with open(path, "rb") as file:
                file.seek(offset)
                return file.read(size)
        if op == READDIR:
            return _entries(path, *struct.unpack_from("<QI", body, 8))
        if op == STATFS:
            return struct.pack("<QQQQQIIII", 0, 0, 0, 0, 0, 4096, 255, 4096, 0) + bytes(24)
        if op in (RELEASE, RELEASEDIR, FLUSH):
            return b""
        raise OSError(errno.ENOSYS, "not here")


def _attributes(status: os.stat_result) -> bytes:
    times = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    return struct.pack(
        "<QQQQQQIIIIIIIIII",
        status.st_ino, status.st_size, (status.st_size + 511) // 512,
        *(each // 10**9 for each in times), *(each % 10**9 for each in times),
        status.st_mode, status.st_nlink, status.st_uid, status.st_gid, 0, 4096, 0,
    )  # fmt: skip


def _entries(path: Path, offset: int, size: int) -> bytes:
    made = b""
    for at, name in enumerate(sorted(os.listdir(path))[offset:], start=offset + 1):
        result, raw = os.lstat(path / name), os.fsencode(name)
        entry = struct.pack("<QQII", result.st_ino, at, len(raw), stat.S_IFMT(result.st_mode) >> 12)
        entry += raw + bytes(-len(raw) % 8)
        if len(made) + len(entry) > size:
            break
        made += entry
    return made
