"""Errors of unreadable files: name, reason and time, formatted as one sentence."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from metlmon.frozen import frozen
from metlmon.live.follower import SILENT, Follower
from metlmon.live.fs_timeout import SPEAK_AFTER, clock_time

MINUTE_SECONDS: Final = 60.0


@frozen
class FileError:
    """An unreadable file.

    ``since``: seconds since 1970, if the file was readable before; ``gone``: it does not exist.
    """

    name: str
    why: str
    since: float | None
    gone: bool = False

    @property
    def is_reportable(self) -> bool:
        """Whether it is more than a slow file server."""
        overdue = self.since is not None and abs(time.time() - self.since) >= SPEAK_AFTER
        return self.why != SILENT or overdue

    def sentence(self, subject: str) -> str:
        """Format the error; ``subject``: the file's name or kind."""
        if self.since is None:
            return f"{subject} cannot be read: {self.why}"
        since = f"since {clock_time(self.since)}"
        if self.why == SILENT:
            return f"{subject}: {self.why} {since}{lasting(self.since)}"
        if self.gone:
            return f"{subject} is gone {since}; what it told before stays"
        return f"{subject} cannot be read {since}: {self.why}"


def lasting(since: float) -> str:
    """Format the time since ``since``; empty below one minute."""
    minutes = int(abs(time.time() - since) // MINUTE_SECONDS)
    if minutes < 1:
        return ""
    return f" ({minutes} min)" if minutes < 120 else f" ({minutes // 60} h)"


class FileErrors:
    """The errors of some files, by name."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._errors: dict[str, FileError] = {}

    def take(self, name: str, follower: Follower, why: str | None, gone: bool = False) -> None:
        """Set the reason why a file is unreadable; None if it is readable."""
        known = self._errors.get(name)
        if why is None:
            self._errors.pop(name, None)
        elif known is None or (known.why, known.gone) != (why, gone):
            since = known.since if known is not None else self._now()
            self._errors[name] = FileError(name, why, since if follower.found else None, gone)

    def all(self) -> list[FileError]:
        return [error for error in self._errors.values() if error.is_reportable]
