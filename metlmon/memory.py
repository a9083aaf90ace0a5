"""The garbage collector and the memory allocator, set up for what this program allocates."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

COLLECT: Final = (1_000, 10, 10)
"""Thresholds of the garbage collector, instead of 700 objects: a model has millions of acyclic
objects. With larger ones, garbage of the screens would stay for hours. Reading does without it."""

M_ARENA_MAX: Final = -8
"""The parameter of mallopt(3) for the number of arenas (glibc's ``malloc.h``)."""


def set_thresholds() -> None:
    """Let the garbage collector run at the thresholds of :data:`COLLECT`."""
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
    """Exempt what exists now, most of it modules and classes, from garbage collection."""
    gc.freeze()


def share_one_arena() -> None:
    """Let all threads allocate from one arena, where the C library is glibc.

    By default each thread has an arena of its own, and what one thread allocates and another
    releases leaves gaps in both: 4 MB in a day of a growing log. Threads of Python hold one lock
    anyway.
    """
    # A dashboard works without it, too: where ctypes is missing, or the C library is another.
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # Commands do without it.

        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
