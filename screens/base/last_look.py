"""When somebody looked at the ensemble, and what has changed since."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Final

from metlmon.config.user_state import read_state, state_path, write_state
from metlmon.health.last_seen import PURPOSE, EnsembleSummary, difference, summarize
from metlmon.snapshot.types import Status

ATTENDED_SECONDS: Final = 60.0
"""Time after a key for which somebody is taken to look."""

AWAY_SECONDS: Final = 900.0
"""Time without a key after which the next one is that of somebody who comes back."""

SHOWN_SECONDS: Final = 60.0
READ_SECONDS: Final = 2.0
"""The line is shown for a minute, or up to the next key, but not shorter than it takes to read."""


class LastLook:
    """Follows when somebody looks, and remembers what they saw between sessions.

    ``clock``: seconds; ``local_time``: this host's.
    """

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        local_time: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._clock, self._local_time = clock, local_time
        self._path: Path | None = None
        self._before: EnsembleSummary | None = None
        self._newest: tuple[Status, datetime] | None = None
        self._input_at = clock()
        self._returned = True
        self._text = ""
        self._shown_at = 0.0

    def load(self, dagdir: Path) -> None:
        """Read what was seen last of a dagdir; without this call nothing is remembered.

        Reads a file: not for the UI thread.
        """
        path = state_path(PURPOSE, dagdir)
        self._before = read_state(path, EnsembleSummary)
        self._path = path

    @property
    def has_ended(self) -> bool:
        """Does nobody look any more, and is what they saw not yet remembered?"""
        return self._newest is not None and self._clock() - self._input_at > ATTENDED_SECONDS

    def save(self) -> None:
        """Remember what was seen last, if that has not been done. Writes a file."""
        newest, self._newest = self._newest, None
        if newest is not None:
            self._before = summarize(*newest)
            write_state(self._path, self._before)

    def record_input(self) -> None:
        """Somebody has pressed a key."""
        now = self._clock()
        if now - self._input_at > AWAY_SECONDS:
            self.save()
            self._returned = True
        elif now - self._shown_at > READ_SECONDS:
            self._text = ""
        self._input_at = now

    def see(self, status: Status) -> None:
        """Some screen shows this; it is seen if somebody looks."""
        if self._clock() - self._input_at <= ATTENDED_SECONDS:
            self._newest = status, self._local_time()

    def show(self, status: Status) -> str:
        """What has changed since the last look, as one line; empty if that is not news.

        ``status``: that of a complete snapshot, which is shown now.
        """
        self.see(status)
        now = self._clock()
        if self._returned and (self._path is not None or self._before is not None):
            self._returned = False
            current = summarize(status, self._local_time())
            self._text, self._shown_at = difference(self._before, current) or "", now
        if now - self._shown_at > SHOWN_SECONDS:
            self._text = ""
        return self._text
