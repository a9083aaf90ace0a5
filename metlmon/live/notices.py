"""Problems of the input: unreadable files, and warnings derived from the whole ensemble."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import islice
from typing import Final

from msgspec import Struct

from metlmon.live.follower import SILENT, Follower
from metlmon.live.fs_timeout import clock_time
from metlmon.model.attributor import ReusedJobIds
from metlmon.model.clock import Clock
from metlmon.model.ensemble import Ensemble
from metlmon.model.model_state import Notice

OF_A_MOMENT: Final = frozenset({"undated", "before-first-event"})
"""Kinds of notices that apply only to the time of ``--as-of``."""

SPEAK_AFTER: Final = 3.0
"""Seconds after which a pending call is reported; shorter delays are normal under load."""

MAX_FILES_NAMED: Final = 5
"""Number of files named in one warning."""


class FileError(Struct, frozen=True):
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
            return f"{subject} is gone {since}; what was read before stays"
        return f"{subject} cannot be read {since}: {self.reason}"


def duration_suffix(since: float) -> str:
    """Format the time since ``since``; empty below one minute."""
    minutes = int(abs(time.time() - since) // 60)
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


def zone_conflict(clock: Clock) -> list[Notice]:
    """Warn if DAGMan's files contradict the time zone of the settings."""
    contradiction = clock.contradiction()
    if contradiction is None:
        return []
    local, offset = contradiction
    sign, minutes = "-" if offset < timedelta() else "+", abs(offset) // timedelta(minutes=1)
    states = f"DAGMan's files state UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    text = f"the zone {clock.zone} does not fit: {states} on {local:%Y-%m-%d}; mend tz, or --tz"
    return [Notice("time-zone", None, None, text)]


def _undated_files(ensemble: Ensemble) -> Iterator[Notice]:
    """Yield one warning on all files not known to be before or after ``--as-of``."""
    names = [name for dag in ensemble.dags.values() for name in dag.undated_files()]
    if names:
        reason = "they state UTC, and no file has the logs' zone (give --tz, as America/Chicago)"
        if ensemble.clock.has_offset:
            reason = "they have no date"
        more = f" and {len(names) - MAX_FILES_NAMED} more" if len(names) > MAX_FILES_NAMED else ""
        text = (
            f"files are left out, for whether they were written by then is not known: {reason}: "
            f"{', '.join(names[:MAX_FILES_NAMED])}{more}"
        )
        yield Notice("undated", None, None, text)


def as_of_warnings(ensemble: Ensemble) -> Iterator[Notice]:
    """Yield the warnings that apply only to the time of ``--as-of``."""
    if ensemble.cut is None:
        return
    yield from _undated_files(ensemble)
    first = ensemble.offsets.first_later
    if ensemble.newest is None and first is not None:
        text = f"nothing had been logged by {ensemble.cut}: the first event is of {first}"
        yield Notice("before-first-event", None, None, text)


def reused_ids_warning(reused: ReusedJobIds) -> Notice:
    """Warn of job ids that another schedd has used again."""
    examples = ", ".join(f"{cluster}.{proc}" for cluster, proc in islice(reused, 3))
    more = ", …" if len(list(islice(reused, 4))) > 3 else ""
    text = (
        f"job ids were given out again by another schedd: {examples}{more}; "
        "each is a job of its own"
    )
    return Notice("ids-again", None, None, text)
