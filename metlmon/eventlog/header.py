"""Parses text-form event headers, and their dates.

A header is ``NNN (C.P.S) DATE[.frac][Z] first text``.

Source followed: ``ULogEvent::readHeader`` and ``formatHeader`` in ``condor_event.cpp``.
"""

from __future__ import annotations

import re
from calendar import isleap
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

_IDS: Final = rb"(-?[0-9]{1,18})\.(-?[0-9]{1,18})\.(-?[0-9]{1,18})"
_TIME: Final = rb"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z?"
_DATE: Final = rb"(?:([0-9]{4}-[0-9]{2}-[0-9]{2}[ T]" + _TIME + rb")|([0-9]{2}/[0-9]{2} " + _TIME
_PATTERN: Final = rb"([0-9]{3}) \(" + _IDS + rb"\) " + _DATE + rb"))(?: |(?=\r?\n))"

HEADER: Final = re.compile(_PATTERN)
"""Groups: number, cluster, proc, subproc, ISO date or None, yearless date or None. The first
text is not part of the pattern, so that a thousand candidates on one long line do not read that
line a thousand times."""

CANDIDATE: Final = re.compile(rb"[0-9]{3} \((?=-?[0-9])")
"""A possible start of a header: cheap to search for, confirmed by :data:`HEADER`."""

BEGINNING: Final = re.compile(rb"[0-9]{3} \(")
"""The start of a line that resembles a header, readable or not."""


class Header(NamedTuple):
    """A parsed header; a tuple, created in a third of the time of a dataclass.

    ``start`` is the offset of the header and ``text_start`` that of its text, in the bytes
    it was read from; ``stamp`` is its date as written.
    """

    number: int
    cluster: int
    proc: int
    subproc: int
    stamp: bytes
    time: datetime
    start: int
    text_start: int

    @property
    def event_label(self) -> str:
        """The name of the event in warnings."""
        return f"event {self.number:03d} of job {self.cluster}.{self.proc}"


class Calendar:
    """Resolves the years of the timestamps of one log, in log order.

    A repeated timestamp is not parsed again: many events are of one second.
    """

    __slots__ = ("_stamp", "last", "year")

    def __init__(self, year: int | None, last: datetime | None) -> None:
        self.year = year
        self.last = last
        self._stamp: bytes | None = None

    def read(self, data: bytes, start: int) -> Header | None:
        """Parse the header at ``start``; None without one."""
        match = HEADER.match(data, start)
        if match is None:
            return None
        number, cluster, proc, subproc, iso, yearless = match.groups()
        time = self.time(iso, yearless)
        if time is None:
            return None
        return Header(
            number=int(number),
            cluster=int(cluster),
            proc=int(proc),
            subproc=int(subproc),
            stamp=iso or yearless,
            time=time,
            start=start,
            text_start=match.end(),
        )

    def time(self, iso: bytes | None, yearless: bytes) -> datetime | None:
        """The time of a header's date; None when it is not a valid date."""
        if self._stamp is not None and self._stamp == (iso or yearless):
            return self.last
        if iso is not None:
            return parse_iso(iso.decode("ascii"))
        return parse_yearless(yearless.decode("ascii"), self.year, self.last)

    def advance(self, stamp: bytes, time: datetime) -> None:
        """Record the date of an accepted event, as written and as parsed."""
        self._stamp = stamp
        self.year, self.last = time.year, time


# --- dates ----------------------------------------------------------------------------------

_UNKNOWN_YEAR: Final = 2000
"""The year of a yearless log without a hint. A leap year, so that 02/29 is valid."""

_NEW_YEAR: Final = timedelta(days=183)
"""Yearless timestamps that go back by more than this (half a year) begin a new year."""

_LATE: Final = timedelta(days=1)
"""How late an event may be written: 12/31 after 01/01 is in the year before, not next winter."""

_AHEAD: Final = timedelta(days=1)
"""How much younger than its file an event may seem: two clocks in two time zones."""

_ONE_DAY: Final = timedelta(days=1)
_YEARS: Final = range(1970, 9000)

_LEAP_SEARCH: Final = 8
"""Two leap years are at most this many years apart."""

_DATED_HEADER: Final = re.compile(
    rb"^([0-9]{3}) \((-?[0-9]{1,12})\.[-0-9.]{3,60}\) "
    rb"(?:([0-9]{2}/[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})"
    rb"|([0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}))",
    re.MULTILINE,
)


def parse_iso(stamp: str) -> datetime | None:
    """Parse ``YYYY-MM-DD HH:MM:SS[.frac][Z]``; aware (UTC) with a Z. None if invalid."""
    try:
        return datetime.fromisoformat(stamp)
    except ValueError:
        return None


def parse_yearless(stamp: str, year: int | None, last: datetime | None) -> datetime | None:
    """Parse ``MM/DD HH:MM:SS[.frac][Z]``, with the year inferred from the log's order.

    ``year`` is that of the previous event, or of the first event; ``last`` is the previous
    event's time. None when it is not a valid date in any year.
    """
    year = _UNKNOWN_YEAR if year is None else year
    time = _in_year(stamp, year)
    if time is None or last is None:
        return time
    last = last.replace(tzinfo=time.tzinfo)
    if last - time > _NEW_YEAR:
        return _in_year(stamp, year + 1) or time
    if time - last > _NEW_YEAR:
        previous = _in_year(stamp, year - 1)
        if previous is not None and previous <= last and last - previous <= _LATE:
            return previous
    return time


def _in_year(stamp: str, year: int) -> datetime | None:
    """The timestamp in ``year``; 02/29 in the nearest leap year not after it."""
    for candidate in range(year, year - _LEAP_SEARCH - 1, -1):
        time = parse_iso(f"{candidate:04d}-{stamp[:2]}-{stamp[3:]}") if candidate > 0 else None
        if time is not None:
            return time
        if not stamp.startswith("02/29"):
            return None
    return None


class KnownDates(Protocol):
    """Dates with years that other files have, each true to a day."""

    def submission_date(self, cluster: int) -> datetime | None:
        """When a cluster was submitted."""

    def dagman_spans(self) -> Iterable[tuple[datetime, datetime]]:
        """Times between which a DAGMan submitted jobs and waited for them."""


def first_year(data: bytes, written: datetime, known: KnownDates | None = None) -> int | None:
    """The year of the first header of a log that begins without years; else None.

    ``data`` is the log from its beginning. The year follows from the first submission whose
    cluster ``known`` has, else from the only span of ``known`` that the first event can be in. Else
    from ``written`` (naive, local), the file's modification time: the result is the latest year in
    which no event is younger than the file and every 02/29 exists. A copy may be years younger
    than the original. If a newer HTCondor continued the log with years, no event before the
    first full date is younger than that.
    """
    relative, last, latest = _UNKNOWN_YEAR, None, None
    spanned: int | None = None
    leap_days = set[int]()
    for match in _DATED_HEADER.finditer(data):
        if match[4] is not None:
            if (dated := parse_iso(match[4].decode("ascii"))) is None:
                continue
            written = dated
            break
        # Only the order matters here, and a leap day must not shift an unknown year.
        stamp = match[3].decode("ascii")
        time = parse_yearless(stamp.replace("02/29", "02/28"), relative, last)
        if time is None:
            continue
        if known is not None and last is None and (year := _year_in(known.dagman_spans(), time)):
            spanned = year
        if known is not None and match[1] == b"000":
            year = _year_near(known.submission_date(int(match[2])), time)
            if year is not None:
                return year - (time.year - _UNKNOWN_YEAR)
        relative, last = time.year, time
        latest = max(latest or time, time)
        if stamp.startswith("02/29"):
            leap_days.add(time.year)
    if latest is None:
        return None
    if spanned is not None:
        return spanned
    limit = written + _AHEAD if written.year < datetime.max.year else written
    younger = latest.replace(year=limit.year) > limit
    first = _UNKNOWN_YEAR + limit.year - latest.year - younger
    for year in range(first, first - _LEAP_SEARCH, -1):
        if all(isleap(year + leap - _UNKNOWN_YEAR) for leap in leap_days):
            return year
    return first


def _year_near(known: datetime | None, time: datetime) -> int | None:
    """The year that brings ``time`` to within a day of the known time."""
    if known is None or known.year not in _YEARS:
        return None
    years = known.year, known.year - 1, known.year + 1
    return next((y for y in years if abs(time.replace(year=y) - known) <= _ONE_DAY), None)


def _year_in(spans: Iterable[tuple[datetime, datetime]], time: datetime) -> int | None:
    """The only year that brings ``time`` into one of the spans."""
    years = {
        year
        for start, end in spans
        if start.year in _YEARS and end.year in _YEARS
        for year in range(start.year, end.year + 1)
        if start - _ONE_DAY <= time.replace(year=year) <= end + _ONE_DAY
    }
    return next(iter(years)) if len(years) == 1 else None


def parse_utc(stamp: str) -> datetime | None:
    """Parse a time that ends in Z as an aware datetime; None for anything else."""
    time = parse_iso(stamp)
    return time.astimezone(UTC) if time is not None and time.tzinfo is not None else None
