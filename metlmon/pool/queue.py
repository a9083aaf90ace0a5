"""The queue's word: a thread that asks the schedd now and then, and a feed that shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from metlmon.ensemble.views import JobRow, JobView, ProblemGroup, RunView
from metlmon.live.feed import Feed, Update
from metlmon.pool.connection import Connection
from metlmon.pool.records import QueueWord

QUERY_SECONDS: Final = 30.0


class Queue:
    """Asks the schedd for the jobs of ``feed``'s ensemble, in a thread of its own."""

    def __init__(
        self, feed: Feed, connection: Connection, now: Callable[[], float] = time.time
    ) -> None: ...

    @property
    def word(self) -> QueueWord: ...

    def start(self, told: Callable[[], None]) -> None: ...

    def soon(self) -> None:
        """Ask again at once: something was done to the jobs."""

    def ask(self) -> QueueWord:
        """Ask now, in the calling thread; waits."""
        raise NotImplementedError

    def stop(self) -> None: ...


class WithQueue:
    """A :class:`Feed`: the session's pictures, with what the queue adds."""

    def __init__(self, feed: Feed, queue: Queue) -> None: ...

    @property
    def dagdir(self) -> Path: ...

    @property
    def latest(self) -> Update | None: ...

    def start(self, notify: Callable[[Update], None]) -> None: ...

    def stop(self) -> None: ...

    def run_view(self, key: str) -> RunView | None: ...

    def job_view(self, cluster: int, proc: int) -> JobView | None: ...

    def problems(self) -> tuple[ProblemGroup, ...]: ...

    def queued(self, run: str | None = None) -> tuple[JobRow, ...]: ...
