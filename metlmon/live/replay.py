"""Replays a recorded dagdir as if it happened now.

Appends the recorded data again to a copy in an empty directory, at the original pace or faster.
The reader follows the copy as it follows any live dagdir.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from metlmon.errors import describe_error
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.session import Session
from metlmon.snapshot.records import Snapshot

TICK_SECONDS: Final = 0.05
"""Interval of writing due data, too short to be visible."""


class ReplayPiece(Struct, frozen=True, order=True):
    """Bytes appended to a file at one time (local time of the recording)."""

    time: datetime
    order: int
    file: str
    data: bytes


class Replay:
    """Writes the pieces of a recording into ``directory``, ``speed`` times as fast as it happened.

    Nothing else may use the directory. The replayed time is :meth:`now`.
    """

    def __init__(self, pieces: Sequence[ReplayPiece], directory: Path, speed: float) -> None:
        self.pieces = pieces
        self.speed = speed
        self._directory = directory
        self._stop = threading.Event()
        self._pieces_written = 0
        self.error: str | None = None
        """The error that stopped the replay before its end."""
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="metlmon-replay", daemon=True)
        self.begin = self.pieces[0].time
        self.end = self.pieces[-1].time

    def now(self) -> datetime:
        """Return the current time of the replay."""
        passed = (time.monotonic() - self._started) * self.speed
        return min(self.end, self.begin + timedelta(seconds=passed)).replace(microsecond=0)

    @property
    def ended(self) -> bool:
        """Whether everything has been written, or an error has stopped the replay."""
        return self.error is not None or self._pieces_written == len(self.pieces)

    def start(self) -> None:
        """Write the initial files, then start the thread."""
        self.write_until(self.begin)
        self._started = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def write_until(self, moment: datetime) -> bool:
        """Write all data due at ``moment``; return False if none is left."""
        while self._pieces_written < len(self.pieces):
            piece = self.pieces[self._pieces_written]
            if piece.time > moment:
                return True
            path = self._directory / piece.file
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "ab") as file:
                file.write(piece.data)
            self._pieces_written += 1
        return False

    def _run(self) -> None:
        more = True
        try:
            while more and not self._stop.wait(TICK_SECONDS):
                passed = (time.monotonic() - self._started) * self.speed
                more = self.write_until(self.begin + timedelta(seconds=passed))
        except Exception as error:
            self.error = describe_error("the replay stopped", error)


# --- the demo ----------------------------------------------------------------------------------

CHECK_SECONDS: Final = 0.2
PAUSE_SECONDS: Final = 15.0
"""How long the end is shown before the replay starts again."""


class LoopingFeed:
    """A :class:`metlmon.live.feed.Feed` of a replay that starts again some time after its end.

    ``replay`` writes into ``directory``; each further one into a new directory beside it.
    ``pause``: seconds at the end of each; None: stay at the end. All methods but ``start`` and
    ``stop`` are those of the current replay's session. ``rounds``: the number of replays so far.
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
        """Stop replaying and reading; return when the threads have ended."""
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
        self.replay = Replay(self.replay.pieces, directory, self.replay.speed)
        self._session = self._open(directory)
        previous.stop()
        self._session.start(self._notify)
