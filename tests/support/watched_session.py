"""A session on a dagdir, and its published snapshots."""

from __future__ import annotations

import threading
from collections.abc import Callable

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.session import Session
from metlmon.snapshot.records import Snapshot
from tests.support.patience import PATIENCE


class WatchedSession:
    """A session, and the newest of its snapshots."""

    def __init__(self, reader: DagdirReader) -> None:
        self.reader = reader
        self.session = Session(reader)
        self.latest: Snapshot | None = None
        self._news = threading.Condition()

    def begin(self) -> None:
        self.reader.open()
        self.session.start(self.take)

    def take(self, update: Snapshot) -> None:
        with self._news:
            self.latest = update
            self._news.notify_all()

    def until(self, wanted: Callable[[Snapshot], bool]) -> Snapshot:
        """The first later snapshot for which this is true."""
        with self._news:
            there = self._news.wait_for(
                lambda: self.latest is not None and wanted(self.latest), PATIENCE
            )
        assert self.latest is not None
        assert there, (self.latest.error, self.latest.status.warnings)
        return self.latest
