"""Parses the dates of event headers, in all forms that HTCondor can write.

Source followed: ``ULogEvent::readHeader`` in ``condor_event.cpp``.
"""

from __future__ import annotations

import re
from calendar import isleap
from datetime import UTC, datetime, timedelta
from typing import Final

UNKNOWN_YEAR: Final = 2000
"""The year of a yearless log without a hint. A leap year, so that 02/29 is valid."""

NEW_YEAR: Final = timedelta(days=183)
"""Yearless timestamps that go back by more than this (half a year) begin a new year."""

LATE: Final = timedelta(days=1)
"""How late an event may be written: 12/31 after 01/01 is the year before, not next winter."""

AHEAD: Final = timedelta(days=1)
"""How much younger than its file an event may seem: two clocks in two time zones."""

_LEAP_SEARCH: Final = 8
"""Two leap years are at most this many years apart."""

_YEARLESS_HEADER: Final = re.compile(
    rb"^[0-9]{3} \([-0-9.]{5,70}\) ([0-9]{2}/[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})", re.MULTILINE
)


def iso(stamp: str) -> datetime | None:
    """Parse ``YYYY-MM-DD HH:MM:SS[.frac][Z]``, separated by a blank or T.

    The result is aware (UTC) with a Z, else naive; None when it is not a valid date.
    """
    try:
        return datetime.fromisoformat(stamp)
    except ValueError:
        return None


def yearless(stamp: str, year: int | None, last: datetime | None) -> datetime | None:
    """Parse ``MM/DD HH:MM:SS[.frac][Z]``, with the year inferred from the log's order.

    ``year`` is that of the previous event, or of the first event; ``last`` is the previous
    event's time. None when it is not a valid date in any year.
    """
    year = UNKNOWN_YEAR if year is None else year
    time = _in_year(stamp, year)
    if time is None or last is None:
        return time
    last = last.replace(tzinfo=time.tzinfo)
    if last - time > NEW_YEAR:
        return _in_year(stamp, year + 1) or time
    if time - last > NEW_YEAR:
        previous = _in_year(stamp, year - 1)
        if previous is not None and previous <= last and last - previous <= LATE:
            return previous
    return time


def _in_year(stamp: str, year: int) -> datetime | None:
    """The timestamp in ``year``; 02/29 in the nearest leap year not after it."""
    for candidate in range(year, year - _LEAP_SEARCH - 1, -1):
        time = iso(f"{candidate:04d}-{stamp[:2]}-{stamp[3:]}") if candidate > 0 else None
        if time is not None:
            return time
        if not stamp.startswith("02/29"):
            return None
    return None


def first_year(data: bytes, written: datetime) -> int | None:
    """The year of the first header of a log that writes no years; else None.

    ``data`` is the log from its beginning, ``written`` (naive, local) the file's modification
    time: the result is the latest year in which no event is younger than the file and
    every 02/29 exists. A copy may be years younger than the original.
    """
    relative, last, latest = UNKNOWN_YEAR, None, None
    leap_days = set[int]()
    for match in _YEARLESS_HEADER.finditer(data):
        # Only the order matters here, and a leap day must not shift an unknown year.
        stamp = match[1].decode("ascii")
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
    """Parse a time that ends in Z as an aware datetime; None for anything else."""
    time = iso(stamp)
    return time.astimezone(UTC) if time is not None and time.tzinfo is not None else None
