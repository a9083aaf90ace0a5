"""A lock on the model that gives the UI priority over the background reader."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class PriorityLock:
    """A lock whose foreground users (the UI) go before its background threads.

    Background threads hold it for some milliseconds at a time. A plain lock would be acquired
    again by the thread that has just released it, before another thread wakes up.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._count_lock = threading.Lock()
        self._foreground_count = 0
        self._no_foreground = threading.Event()
        self._no_foreground.set()
        self.exclusive = threading.RLock()
        """Held by threads that change the model, and by threads that need it unchanged across
        several background slices."""

    @property
    def foreground_waiting(self) -> bool:
        """Whether a foreground user is waiting."""
        return self._foreground_count > 0

    @contextmanager
    def foreground(self) -> Iterator[None]:
        """Acquire for the UI; waits for the current background slice only."""
        with self._count_lock:
            self._foreground_count += 1
            self._no_foreground.clear()
        self._lock.acquire()
        with self._count_lock:
            self._foreground_count -= 1
            if not self._foreground_count:
                self._no_foreground.set()
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def background(self) -> Iterator[None]:
        """Acquire for one background slice, some milliseconds long."""
        self._no_foreground.wait()
        with self._lock:
            yield
