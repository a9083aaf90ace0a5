"""Tunes the garbage collector and the memory allocator for this program."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

COLLECT: Final = (1_000, 10, 10)
"""Thresholds of the garbage collector, instead of 700 objects: a model has millions of acyclic
objects. With larger ones, garbage of the screens would stay for hours. Reading pauses it."""

M_ARENA_MAX: Final = -8
"""The parameter of mallopt(3) for the number of arenas (glibc's ``malloc.h``)."""


def set_thresholds() -> None:
    """Set the thresholds of the garbage collector to :data:`COLLECT`."""
    gc.set_threshold(*COLLECT)


@contextmanager
def gc_paused(once: bool = True) -> Iterator[None]:
    """Pause garbage collection where many acyclic objects are created: imports, reading a dagdir.

    ``once``: the work is not repeated; then all objects are moved to the oldest generation, which
    resets the collector's counters.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if once and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()


def keep_loaded_code() -> None:
    """Exempt all current objects, mostly modules and classes, from garbage collection."""
    gc.freeze()


def share_one_arena() -> None:
    """Let all threads allocate from one arena, where the C library is glibc.

    By default each thread has an arena of its own, and what one thread allocates and another
    releases leaves gaps in both: 4 MB in a day of a growing log. Python's threads share one lock
    anyway.
    """
    # The dashboard also works without ctypes, and with another C library.
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # Commands do without it.

        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
