"""Who may look at the model, and who may change it: screens never wait for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class PriorityLock:
    """A lock with two doors: whoever asks for a view goes before the threads that work.

    Those take it for some milliseconds at a time, and let others in between. A plain lock is
    taken again by the thread that has just let go of it, before another wakes up.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._count = threading.Lock()
        self._asking = 0
        self._nobody = threading.Event()
        self._nobody.set()
        self.still = threading.RLock()
        """Held by who needs the model to stay as it is from one turn to the next, and by who
        changes it."""

    @property
    def asked(self) -> bool:
        """Does somebody wait for an answer?"""
        return self._asking > 0

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A screen asks: it waits for the turn that is under way, for no other."""
        with self._count:
            self._asking += 1
            self._nobody.clear()
        self._lock.acquire()
        with self._count:
            self._asking -= 1
            if not self._asking:
                self._nobody.set()
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def working(self) -> Iterator[None]:
        """A turn of work, some milliseconds long."""
        self._nobody.wait()
        with self._lock:
            yield
