"""A session that reads a dagdir once, as it was at a given time."""

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
    """A session on a reader with an ``as_of``.

    Its thread ends when everything up to that time is read; nothing is polled.
    """

    FAILURE_TEXT = "reading what was then failed"

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Start the reader thread.

        Only the last snapshot is complete; those before it show the progress of reading.
        """
        self._thread = threading.Thread(
            target=self._run, args=(notify,), name="metlmon-past", daemon=True
        )
        self._thread.start()

    def progress_lines(self) -> Mapping[JobId, Streamed]:
        """Return nothing: a progress line has no time, and the newest one is of today."""
        return {}

    def _run(self, notify: Callable[[Snapshot], None]) -> None:
        try:
            with calls_through(self._files):
                self._read(notify)
        except Exception as error:  # As in Session: show it and continue.
            self._publish_failure(notify, error)

    def _read(self, notify: Callable[[Snapshot], None]) -> None:
        published_at, more = time.monotonic(), True
        while more and not self._stop.is_set():
            with self._lock.exclusive, self._lock.background():
                more = self._reader.step(TURN_SECONDS).more
            pause = max(LOADING_PICTURE_SECONDS, SHARE_MOVING * self._snapshot_seconds)
            if not more or time.monotonic() - published_at >= pause:
                self._publish(notify)
                published_at = time.monotonic()
