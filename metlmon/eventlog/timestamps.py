"""The date of an event's header, in every form that HTCondor's options give it.

Source followed: ``ULogEvent::readHeader`` in ``condor_event.cpp``.
"""

from __future__ import annotations

import re
from calendar import isleap
from datetime import UTC, datetime, timedelta
from typing import Final

UNKNOWN_YEAR: Final = 2000
"""For a yearless log when nobody says the year. A leap year, so that 02/29 is a day."""

NEW_YEAR: Final = timedelta(days=183)
"""Yearless stamps that go backwards by more than half a year have passed a new year."""

LATE: Final = timedelta(days=1)
"""How late an event may be written: 12/31 behind 01/01 is the year before, not next winter."""

AHEAD: Final = timedelta(days=1)
"""How much younger than its file an event may seem: two clocks, in two time zones."""

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


def first_year(data: bytes, written: datetime) -> int | None:
    """The year of the first header of a log that writes no years; None for any other log.

    ``data`` is the log from its beginning, ``written`` (naive, local) when the file was
    written last: the year is the latest in which no event is younger than the file, and in
    which a 02/29 is a day. A copy may be years younger than what was copied.
    """
    relative, last, latest = UNKNOWN_YEAR, None, None
    leap_days = set[int]()
    for found in _YEARLESS_HEADER.finditer(data):
        # Only the order counts, and a leap day must not pull a year that is not known.
        stamp = found[1].decode("ascii")
        time = yearless(stamp.replace("02/29", "02/28"), relative, last)
        if time is None:
            continue
        relative, last = time.year, time
        latest = max(latest or time, time)
        if stamp.startswith("02/29"):
            leap_days.add(time.year)
    if latest is None:
        return None
    limit = written + AHEAD if written.year < datetime.max.year else written
    younger = latest.replace(year=limit.year) > limit
    first = UNKNOWN_YEAR + limit.year - latest.year - younger
    for year in range(first, first - _LEAP_SEARCH, -1):
        if all(isleap(year + leap - UNKNOWN_YEAR) for leap in leap_days):
            return year
    return first


def utc(stamp: str) -> datetime | None:
    """A time that ends in Z, as an aware datetime; None for anything else."""
    time = iso(stamp)
    return time.astimezone(UTC) if time is not None and time.tzinfo is not None else None
