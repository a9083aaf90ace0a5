"""The date of an event's header, in every form that HTCondor's options give it.

Source followed: ``ULogEvent::readHeader`` in ``condor_event.cpp``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

UNKNOWN_YEAR: Final = 2000
"""For a yearless log when nobody says the year. A leap year, so that 02/29 is a day."""

NEW_YEAR: Final = timedelta(days=183)
"""Yearless stamps that go backwards by more than half a year have passed a new year."""

LATE: Final = timedelta(days=1)
"""How late an event may be written: 12/31 behind 01/01 is the year before, not next winter."""

_LEAP_SEARCH: Final = 8
"""Two leap years are at most this many years apart."""

_YEARLESS_HEADER: Final = re.compile(
    rb"^[0-9]{3} \([-0-9.]{5,70}\) ([0-9]{2}/[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})", re.MULTILINE
)


def iso(stamp: str) -> datetime | None:
    """``YYYY-MM-DD HH:MM:SS[.frac][Z]``, blank or T: aware (UTC) with a Z, else naive.

    None when it is no date.
    """
    try:
        return datetime.fromisoformat(stamp)
    except ValueError:
        return None


def yearless(stamp: str, year: int | None, last: datetime | None) -> datetime | None:
    """``MM/DD HH:MM:SS[.frac][Z]`` in the year that the log has come to.

    ``year`` is that of the event before, or of the first event; ``last`` the event
    before's stamp.  None when it is no date in any year.
    """
    year = UNKNOWN_YEAR if year is None else year
    time = _in_year(stamp, year)
    if time is None or last is None:
        return time
    last = last.replace(tzinfo=time.tzinfo)
    if last - time > NEW_YEAR:
        return _in_year(stamp, year + 1) or time
    if time - last > NEW_YEAR:
        before = _in_year(stamp, year - 1)
        if before is not None and before <= last and last - before <= LATE:
            return before
    return time


def _in_year(stamp: str, year: int) -> datetime | None:
    """The stamp in ``year``; 02/29 in the nearest leap year not after it."""
    for candidate in range(year, year - _LEAP_SEARCH - 1, -1):
        time = iso(f"{candidate:04d}-{stamp[:2]}-{stamp[3:]}") if candidate > 0 else None
        if time is not None:
            return time
        if not stamp.startswith("02/29"):
            return None
    return None


def new_years(data: bytes) -> int:
    """How many new years lie between the first and the last yearless header of ``data``.

    A yearless log says when it ends (its file's mtime) and not when it begins: the year
    of its first event is the mtime's year minus this.  0 for a log with years.
    """
    year: int = UNKNOWN_YEAR
    last: datetime | None = None
    latest = year
    for found in _YEARLESS_HEADER.finditer(data):
        # Only the order counts, and a leap day must not pull a year that is not known.
        stamp = found[1].decode("ascii").replace("02/29", "02/28")
        time = yearless(stamp, year, last)
        if time is not None:
            year, last = time.year, time
            latest = max(latest, year)
    return latest - UNKNOWN_YEAR


def utc(stamp: str) -> datetime | None:
    """A time that ends in Z, as an aware datetime; None for anything else."""
    time = iso(stamp)
    return time.astimezone(UTC) if time is not None and time.tzinfo is not None else None
