"""Memory of a process that stays open for months: the garbage collector, and malloc."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Final

COLLECT: Final = (1_000, 10, 10)
"""Thresholds of the garbage collector, instead of 700 objects: a model has millions of acyclic
objects. With larger ones, garbage of the screens would stay for hours. Reading does without it."""

M_ARENA_MAX: Final = -8
"""The parameter of mallopt(3) for the number of arenas (glibc's ``malloc.h``)."""


def collect_garbage_less_often() -> None:
    """Set the thresholds of the garbage collector to :data:`COLLECT`."""
    gc.set_threshold(*COLLECT)


def share_one_arena() -> None:
    """Let all threads allocate from one arena, where the C library is glibc.

    By default each thread has an arena of its own, and what one thread allocates and another
    releases leaves gaps in both: 4 MB in a day of a growing log. Threads of Python hold one lock
    anyway.
    """
    # A dashboard works without it, too: where there is no ctypes, or another C library.
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # Commands do without it.

        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
