"""Sessions that have read all there is before a screen asks: no thread, no clock, no wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import cast

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Feed, Snapshot
from metlmon.live.session import Session
from tests.support.recordings import FIXTURES, read_all
from tests.support.sample_snapshots import FakeFeed
from tests.support.screen_view import Eager, Seen, opened

__all__ = ["FIXTURES", "Seen", "Still", "app", "opened", "session"]


class Still(Session):
    """A session whose one picture is there; its past is read in a thread as ever."""

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """There will be no other picture."""


def session(dagdir: Path, as_of: datetime | None = None) -> Still:
    """All of ``dagdir``, read."""
    reader = read_all(DagdirReader(dagdir, as_of=as_of))
    made = Still(reader)
    made.take()
    return made


def app(feed: Feed) -> Eager:
    return Eager(cast(FakeFeed, feed))
