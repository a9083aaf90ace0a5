"""Watches directories for changes, with inotify where available.

On Linux inotify(7) reports writes of this machine, but not those of other clients of a network
file system; this is therefore only an early wake-up for a reader that polls.

watchfiles polls its own queue, which costs 0.3 % of a core when idle. A blocking read of inotify
costs nothing, so watchfiles is used on other systems only.
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
"""Minimum seconds between two wake-ups: at most fifty a second for a busy log."""

_READ: Final = 1 << 16


class DirectoryWatcher:
    """Reports changes in directories, in the thread that calls :meth:`run` (once)."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._stop_reader, self._stop_writer = os.pipe()

    def run(self, directories: Iterable[Path], notify: Callable[[], None]) -> None:
        """Call ``notify`` after each change directly in one of ``directories``.

        Returns after :meth:`end`, or if no means of watching is available.
        """
        try:
            with _inotify(directories) as descriptor:
                self._read_events(descriptor, notify)
        except (OSError, AttributeError):
            self._poll(directories, notify)
        finally:
            os.close(self._stop_reader)

    def stop(self) -> None:
        """Make :meth:`run` return, also if it is called later."""
        if not self._stopped.is_set():
            self._stopped.set()
            os.close(self._stop_writer)

    def _read_events(self, descriptor: int, notify: Callable[[], None]) -> None:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self._stop_reader, select.POLLIN)
        while not self._stopped.is_set():
            poll.poll()
            if self._stopped.is_set():
                break
            # Discard the events: only the fact of a change matters.
            with suppress(BlockingIOError):
                while os.read(descriptor, _READ):
                    pass
            notify()
            self._stopped.wait(_PAUSE)

    def _poll(self, folders: Iterable[Path], notify: Callable[[], None]) -> None:
        try:
            from watchfiles import watch

            for _ in watch(
                *folders,
                stop_event=self._stopped,
                recursive=False,
                debounce=50,
                step=20,
                rust_timeout=500,
                raise_interrupt=False,
            ):
                notify()
        except (ImportError, OSError, RuntimeError):
            return


@contextmanager
def _inotify(folders: Iterable[Path]) -> Iterator[int]:
    """Yield an inotify descriptor, readable after each change.

    Raises OSError if the kernel has none left, AttributeError on other systems than Linux.
    """
    import ctypes  # Takes 10 ms: import only when watching.

    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.inotify_init1(_NONBLOCK_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    try:
        for folder in folders:
            if library.inotify_add_watch(descriptor, os.fsencode(folder), _CHANGES) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", str(folder))
        yield descriptor
    finally:
        os.close(descriptor)
