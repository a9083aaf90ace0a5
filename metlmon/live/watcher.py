"""Being told at once that something changed in a directory, where the kernel can tell.

Linux tells by inotify(7), of what this machine writes; what another client of a network file
system wrote nobody tells. So this only wakes early whoever looks anyway.

watchfiles looks at its queue so many times a second, which costs a third of a per cent of a core
for as long as nothing happens. A blocking read costs nothing, so that on Linux the kernel is
asked directly, and watchfiles elsewhere.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0x40 | 0x80, 0x100, 0x200
_CHANGES: Final = _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE
"""Source followed: ``sys/inotify.h``."""

_NONBLOCK_CLOEXEC: Final = os.O_NONBLOCK | os.O_CLOEXEC

_PAUSE: Final = 0.02
"""Seconds between two wake-ups: a log that is written a thousand times a second is looked at
fifty times."""

_READ: Final = 1 << 16


class DirectoryWatcher:
    """Tells of changes in directories until :meth:`end`, in whoever's thread calls :meth:`run`
    (once)."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._reader, self._writer = os.pipe()

    def run(self, folders: Iterable[Path], tell: Callable[[], None]) -> None:
        """Call ``tell`` after each change directly in one of ``folders``; returns at the end, or
        when nobody can tell."""
        try:
            with _inotify(folders) as told:
                self._follow(told, tell)
        except (OSError, AttributeError):
            self._poll(folders, tell)
        finally:
            os.close(self._reader)

    def end(self) -> None:
        """Let :meth:`run` return; at once, whenever it is called."""
        if not self._ended.is_set():
            self._ended.set()
            os.close(self._writer)

    def _follow(self, told: int, tell: Callable[[], None]) -> None:
        both = select.poll()
        both.register(told, select.POLLIN)
        both.register(self._reader, select.POLLIN)
        while not self._ended.is_set():
            both.poll()
            if self._ended.is_set():
                break
            # What changed is seen by looking; that something did is all that is asked.
            with suppress(BlockingIOError):
                while os.read(told, _READ):
                    pass
            tell()
            self._ended.wait(_PAUSE)

    def _poll(self, folders: Iterable[Path], tell: Callable[[], None]) -> None:
        try:
            from watchfiles import watch

            for _ in watch(
                *folders,
                stop_event=self._ended,
                recursive=False,
                debounce=50,
                step=20,
                rust_timeout=500,
                raise_interrupt=False,
            ):
                tell()
        except (ImportError, OSError, RuntimeError):
            return


@contextmanager
def _inotify(folders: Iterable[Path]) -> Iterator[int]:
    """A descriptor that can be read when something changed. Raises OSError where the kernel has
    no more of them, AttributeError where it is no Linux."""
    import ctypes  # Ten milliseconds: not before somebody watches.

    library = ctypes.CDLL(None, use_errno=True)
    told = library.inotify_init1(_NONBLOCK_CLOEXEC)
    if told < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    try:
        for folder in folders:
            if library.inotify_add_watch(told, os.fsencode(folder), _CHANGES) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", str(folder))
        yield told
    finally:
        os.close(told)
