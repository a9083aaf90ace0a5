"""What something costs this thread, for tests of how cost grows with what is read."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def effort(work: Callable[[], object]) -> float:
    """Seconds of CPU. Cycles are not looked for meanwhile: in a process in which thousands of
    tests have left their objects behind, that takes longer than the work."""
    looking = gc.isenabled()
    gc.disable()
    try:
        begun = time.thread_time()
        work()
        return time.thread_time() - begun
    finally:
        if looking:
            gc.enable()
