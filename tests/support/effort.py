"""The CPU cost of code in this thread, for tests of growth."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def effort(work: Callable[[], object]) -> float:
    """Seconds of CPU, without garbage collection: in a process in which thousands of tests have
    left their objects, that would take longer than the work."""
    looking = gc.isenabled()
    gc.disable()
    try:
        begun = time.thread_time()
        work()
        return time.thread_time() - begun
    finally:
        if looking:
            gc.enable()
