"""A dagdir as it was: read once up to a moment, and then left alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from metlmon.jobfiles.records import Streamed
from metlmon.live.feed import Snapshot
from metlmon.live.fs_timeout import calls_through
from metlmon.live.session import LOADING_PICTURE_SECONDS, SHARE_MOVING, TURN_SECONDS, Session
from metlmon.model.job_events import JobId


class HistoricalSession(Session):
    """A session over a reader with an ``as_of``. What was written up to then changes no more:
    when all is read its thread ends, and nothing is polled."""

    FAILED = "reading what was then failed"

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Read in a thread of its own. The last picture told is the whole one; those before
        it tell how far reading is."""
        self._thread = threading.Thread(
            target=self._run, args=(notify,), name="metlmon-past", daemon=True
        )
        self._thread.start()

    def streams(self) -> Mapping[JobId, Streamed]:
        """None: a progress line carries no time, and the newest one is not of then."""
        return {}

    def _run(self, notify: Callable[[Snapshot], None]) -> None:
        try:
            with calls_through(self._files):
                self._read(notify)
        except Exception as error:  # As in the present: the screen says it, and goes on.
            self._tell_failure(notify, error)

    def _read(self, notify: Callable[[Snapshot], None]) -> None:
        drawn, more = time.monotonic(), True
        while more and not self._stop.is_set():
            with self._turns.still, self._turns.working():
                more = self._reader.step(TURN_SECONDS).more
            pause = max(LOADING_PICTURE_SECONDS, SHARE_MOVING * self._cost)
            if not more or time.monotonic() - drawn >= pause:
                self._publish(notify)
                drawn = time.monotonic()
