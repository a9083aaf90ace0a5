"""A feed whose ensemble is replayed over and over, for the demo."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Snapshot
from metlmon.live.replay import Replay
from metlmon.live.session import Session

CHECK_SECONDS: Final = 0.2
PAUSE_SECONDS: Final = 15.0
"""How long the end stays before the replay starts again."""


class LoopingFeed:
    """A :class:`metlmon.live.feed.Feed` of a replay that starts again some time after its end.

    ``replay`` writes into ``directory``; each further one into a new directory beside it.
    ``pause``: seconds at the end of each; None: it stays there. All but ``start`` and ``stop``
    is that of the current replay's session. ``rounds``: the replays so far.
    """

    def __init__(self, replay: Replay, directory: Path, pause: float | None) -> None:
        self.replay = replay
        self._directory = directory
        self._pause = pause
        self.rounds = 1
        self._stopped = threading.Event()
        self._notify: Callable[[Snapshot], None] = lambda snapshot: None
        self._thread = threading.Thread(target=self._repeat, name="metlmon-demo", daemon=True)
        self._session = self._open(directory)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Start the session and, unless the end is to stay, the thread that starts over."""
        self._notify = notify
        self._session.start(notify)
        if self._pause is not None:
            self._thread.start()

    def stop(self) -> None:
        """Stop replaying and reading; returns when the threads have ended."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._session.stop()
        self.replay.stop()

    def _open(self, directory: Path) -> Session:
        directory.mkdir()
        self.replay.start()
        reader = DagdirReader(directory, local_now=self.replay.now)
        reader.open()
        return Session(reader)

    def _repeat(self) -> None:
        while not self._stopped.wait(CHECK_SECONDS):
            if self.replay.ended and not self._stopped.wait(self._pause):
                self._begin_again()

    def _begin_again(self) -> None:
        self.rounds += 1
        directory = self._directory.with_name(f"{self._directory.name}-{self.rounds}")
        previous = self._session
        self.replay = self.replay.again(directory)
        self._session = self._open(directory)
        previous.stop()
        self._session.start(self._notify)
