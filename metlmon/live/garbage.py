"""Garbage collection while a dagdir is read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection, and finally move all objects to the oldest generation.

    Reading a dagdir creates a million acyclic objects at once. For one-time work only: moving the
    objects resets the collector's counters.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()
