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

    ``since``: seconds since 1970, if the file was readable before; ``missing``: it does not exist.
    """

    name: str
    reason: str
    since: float | None
    missing: bool = False

    @property
    def is_reportable(self) -> bool:
        """Whether it is more than a slow file server."""
        overdue = self.since is not None and abs(time.time() - self.since) >= SPEAK_AFTER
        return self.reason != SILENT or overdue

    def message(self, subject: str) -> str:
        """Format the error; ``subject``: the file's name or kind."""
        if self.since is None:
            return f"{subject} cannot be read: {self.reason}"
        since = f"since {clock_time(self.since)}"
        if self.reason == SILENT:
            return f"{subject}: {self.reason} {since}{duration_suffix(self.since)}"
        if self.missing:
            return f"{subject} is gone {since}; what it told before stays"
        return f"{subject} cannot be read {since}: {self.reason}"


def duration_suffix(since: float) -> str:
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

    def update(
        self, name: str, follower: Follower, reason: str | None, missing: bool = False
    ) -> None:
        """Set the reason why a file is unreadable; None if it is readable."""
        known = self._errors.get(name)
        if reason is None:
            self._errors.pop(name, None)
        elif known is None or (known.reason, known.missing) != (reason, missing):
            since = known.since if known is not None else self._now()
            self._errors[name] = FileError(
                name, reason, since if follower.was_readable else None, missing
            )

    def reportable(self) -> list[FileError]:
        return [error for error in self._errors.values() if error.is_reportable]
