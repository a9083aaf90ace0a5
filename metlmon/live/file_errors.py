"""Files that cannot be read: which, why, and since when, in one sentence each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from metlmon.frozen import frozen
from metlmon.live.follower import SILENT, Follower
from metlmon.live.fs_timeout import SPEAK_AFTER, clock_time

A_MINUTE: Final = 60.0


@frozen
class FileError:
    """A file that cannot be read. ``since``, in seconds since 1970, where it could be before;
    ``gone``: it is not there any more."""

    name: str
    why: str
    since: float | None
    gone: bool = False

    @property
    def told(self) -> bool:
        """Is it more than a file server that is slow?"""
        long = self.since is not None and abs(time.time() - self.since) >= SPEAK_AFTER
        return self.why != SILENT or long

    def sentence(self, subject: str) -> str:
        """``subject``: the file's name, or what it is."""
        if self.since is None:
            return f"{subject} cannot be read: {self.why}"
        since = f"since {clock_time(self.since)}"
        if self.why == SILENT:
            return f"{subject}: {self.why} {since}{lasting(self.since)}"
        if self.gone:
            return f"{subject} is gone {since}; what it told before stays"
        return f"{subject} cannot be read {since}: {self.why}"


def lasting(since: float) -> str:
    """How long that is, once it is a minute."""
    minutes = int(abs(time.time() - since) // A_MINUTE)
    if minutes < 1:
        return ""
    return f" ({minutes} min)" if minutes < 120 else f" ({minutes // 60} h)"


class FileErrors:
    """The faults of some files, by their names."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._known: dict[str, FileError] = {}

    def take(self, name: str, follower: Follower, why: str | None, gone: bool = False) -> None:
        """This is why it cannot be read now; None when it can."""
        known = self._known.get(name)
        if why is None:
            self._known.pop(name, None)
        elif known is None or (known.why, known.gone) != (why, gone):
            since = known.since if known is not None else self._now()
            self._known[name] = FileError(name, why, since if follower.found else None, gone)

    def all(self) -> list[FileError]:
        return [fault for fault in self._known.values() if fault.told]
