"""Sessions that have read everything before a screen opens: no thread, no clock, no wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import cast

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Feed
from metlmon.live.session import Session
from metlmon.snapshot.records import Snapshot
from tests.support.recordings import FIXTURES, read_all
from tests.support.sample_snapshots import FakeFeed
from tests.support.screen_view import EagerApp, RunningApp, opened

__all__ = ["FIXTURES", "RunningApp", "StaticSession", "app", "opened", "session"]


class StaticSession(Session):
    """A session with one snapshot; its past is read in a thread as usual."""

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Do nothing: it has no other snapshot."""


def session(dagdir: Path, as_of: datetime | None = None) -> StaticSession:
    """A session that has read all of ``dagdir``."""
    reader = read_all(DagdirReader(dagdir, as_of=as_of))
    made = StaticSession(reader)
    made.take()
    return made


def app(feed: Feed) -> EagerApp:
    return EagerApp(cast(FakeFeed, feed))
