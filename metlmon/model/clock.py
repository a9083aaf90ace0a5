"""Time between stamps that carry no zone.

Stamps are the access point's local time. Two hours a year are an hour longer or shorter
than they look; a zone, or moments whose UTC time is known as well, put that right.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

QUARTER_HOUR: Final = 900
"""Offsets of time zones are multiples of this many seconds: an observation is rounded to it,
which takes out the seconds between two lines that state "the same" moment."""

HALF_HOUR: Final = 1800
SAME_MOMENT: Final = 60.0
"""Seconds within which two lines state "the same" moment. A job's end is logged within them, or
its output took long and the line is no hint; that it took just as long as zones differ, twice
in a row, is not to be feared."""

WEST, EAST = timedelta(hours=-12), timedelta(hours=14)
"""No zone on earth has an offset beyond these."""

A_MONTH: Final = timedelta(days=31)
"""Clocks that are changed twice within it may show the same offset at both its ends."""

LOOKS: Final = tuple(timedelta(hours=hours) for hours in range(0, 25, 6))
"""Into a day: no zone on earth changes its clocks twice within six hours."""

FOLD_STEP: Final = timedelta(minutes=30)
"""Stamps of one log that step back by more than this in an hour that exists twice are in
its second pass; smaller steps back are two writers' clocks."""


class Clock:
    """Differences and conversions of the access point's stamps.

    ``zone`` (``--tz`` or configuration) is believed first. Without it, moments told by
    :meth:`observe` give the offset that held near them. Without either, stamps are
    subtracted as they stand.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        self.zone = zone
        self._seen: list[tuple[datetime, int]] = []
        self._saw_utc = self._saw_local = False
        self._hinted: int | None = None
        self._steady: tuple[datetime, datetime] | None = None
        self._days: dict[int, timedelta | None] = {}

    @property
    def utc_only(self) -> bool:
        """True while every stamp seen said UTC."""
        return self._saw_utc and not self._saw_local

    @property
    def known(self) -> bool:
        """True when local time can be converted to UTC."""
        return self.zone is not None or bool(self._seen)

    def observe(self, local: datetime, epoch: float) -> bool:
        """A file states both: ``local`` (naive) was ``epoch`` seconds after 1970. Returns
        whether that tells a time otherwise than before."""
        offset = offset_between(local, epoch, QUARTER_HOUR, early=SAME_MOMENT)
        if offset is None:
            return False
        news = self._nearest(local) != offset
        if news or not self._bracketed(local):
            # A file that had a wrong time was put right: both cannot be true.
            self._seen = [seen for seen in self._seen if seen[0] != local]
            insort(self._seen, (local, offset))
            self._seen = _ends_of_spans(self._seen)
        return news

    def hint(self, local: datetime, epoch: float) -> bool:
        """An event at ``local`` says that its job ended at ``epoch``: in the same minute, but
        for the time its output took. Believed when two such hints in a row agree; returns
        what :meth:`observe` does."""
        offset = offset_between(local, epoch, HALF_HOUR)
        if offset is None:
            return False
        agrees, self._hinted = offset == self._hinted, offset
        return agrees and self.observe(local, local.replace(tzinfo=UTC).timestamp() - offset)

    def contradicted(self) -> tuple[datetime, timedelta] | None:
        """The last moment of which a file states another offset than the zone that was given
        has, and that offset; None where all agree."""
        if self.zone is None or not self._seen:
            return None
        local, seconds = self._seen[-1]
        stated = timedelta(seconds=seconds)
        has = {local.replace(tzinfo=self.zone, fold=fold).utcoffset() for fold in (0, 1)}
        return None if stated in has else (local, stated)

    def _bracketed(self, local: datetime) -> bool:
        return self._seen[0][0] <= local <= self._seen[-1][0]

    def _nearest(self, local: datetime) -> int | None:
        if not self._seen:
            return None
        i = bisect_left(self._seen, (local, 0))
        around = self._seen[max(0, i - 1) : i + 1]
        return min(around, key=lambda seen: abs(seen[0] - local))[1]

    def epoch(self, stamp: datetime) -> float | None:
        """Seconds since 1970 of a stamp, None when no zone is known."""
        moment = self._utc(stamp)
        return None if moment is None else moment.timestamp()

    def _utc(self, stamp: datetime) -> datetime | None:
        try:
            return self._as_utc(stamp)
        except OverflowError:
            # Year 1 or 9999, in a damaged log: no other zone has that moment.
            return None

    def _as_utc(self, stamp: datetime) -> datetime | None:
        if stamp.tzinfo is not None:
            return stamp.astimezone(UTC)
        if self.zone is not None:
            return stamp.replace(tzinfo=self.zone).astimezone(UTC)
        offset = self._nearest(stamp)
        return None if offset is None else stamp.replace(tzinfo=UTC) - timedelta(seconds=offset)

    def local(self, epoch: float) -> datetime | None:
        """The access point's local time of a moment, naive; None when no zone is known, and
        for a number that no calendar has."""
        try:
            return self._as_local(datetime.fromtimestamp(epoch, UTC))
        except (OverflowError, ValueError, OSError):
            return None

    def after(self, epoch: float, stamp: datetime) -> bool | None:
        """Is a moment later than a naive stamp? None where no zone is known and the two are so
        near that it depends on the zone."""
        local = self.local(epoch)
        if local is not None:
            return local > stamp
        try:
            moment = datetime.fromtimestamp(epoch, UTC).replace(tzinfo=None)
            return None if moment + WEST <= stamp < moment + EAST else moment > stamp
        except (OverflowError, ValueError, OSError):
            return None

    def _as_local(self, moment: datetime) -> datetime | None:
        if self.zone is not None:
            return moment.astimezone(self.zone).replace(tzinfo=None)
        if self.utc_only:
            return moment.replace(tzinfo=None)
        if not self._seen:
            return None
        offset = self._nearest(moment.replace(tzinfo=None))
        return moment.replace(tzinfo=None) + timedelta(seconds=offset or 0)

    def naive(self, stamp: datetime) -> datetime:
        """A stamp without its zone: in the zone that was given, else its digits as logged."""
        if stamp.tzinfo is None:
            self._saw_local = True
            return stamp
        self._saw_utc = True
        if self.zone is not None:
            with suppress(OverflowError):
                return stamp.astimezone(self.zone).replace(tzinfo=None)
        return stamp.replace(tzinfo=None)

    def stated(self, stamp: datetime) -> datetime:
        """A stamp for output: with its offset where a zone was given or logged."""
        if stamp.tzinfo is not None:
            return stamp
        if self.zone is not None:
            return stamp.replace(tzinfo=self.zone)
        return stamp.replace(tzinfo=UTC) if self.utc_only else stamp

    def seconds(self, start: datetime, end: datetime) -> float:
        """Seconds from ``start`` to ``end``, never negative: clocks of two writers differ."""
        # Not by seconds since 1970: those are floats that lose what sub-second stamps say.
        # One offset alone changes no difference.
        if (self.zone is not None or len(self._seen) > 1) and not self._alike(start, end):
            a, b = self._utc(start), self._utc(end)
            if a is not None and b is not None:
                return max(0.0, (b - a).total_seconds())
        return max(0.0, (end - start).total_seconds())

    def _alike(self, start: datetime, end: datetime) -> bool:
        """Does one offset hold at both stamps, for all that is easily told?"""
        if start.tzinfo is not None or end.tzinfo is not None:
            return False
        if self.zone is None:
            return len(self._seen) == 2 and self._seen[0][1] == self._seen[1][1]
        days, begun, ended = self._days, start.toordinal(), end.toordinal()
        if begun not in days:
            days[begun] = self._offset_of_day(start)
        if ended not in days:
            days[ended] = self._offset_of_day(end)
        return days[begun] is not None and days[begun] == days[ended]

    def _offset_of_day(self, stamp: datetime) -> timedelta | None:
        """The one offset of a whole day and the hours around it; None where it has several, or
        lies at an end of the calendar."""
        begun = stamp.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        try:
            at = [begun + hours for hours in LOOKS]
            offsets = {
                each.replace(tzinfo=self.zone, fold=fold).utcoffset()
                for each in at
                for fold in (0, 1)
            }
            for each in (at[0], at[-1]):
                each.replace(tzinfo=self.zone).astimezone(UTC)
        except OverflowError:
            return None
        return offsets.pop() if len(offsets) == 1 else None

    def ambiguous(self, stamp: datetime) -> bool:
        """True for the hour that exists twice."""
        if self.zone is None or stamp.tzinfo is not None:
            return False
        if self._steady is not None and self._steady[0] <= stamp <= self._steady[1]:
            return False
        first = stamp.replace(tzinfo=self.zone, fold=0).utcoffset()
        return first != stamp.replace(tzinfo=self.zone, fold=1).utcoffset()

    def steady(self, first: datetime, last: datetime) -> bool:
        """True when no clock was changed between these stamps, as far as the zone that was
        given tells: each is its own moment."""
        if self.zone is None:
            return True
        first, last = self.naive(first), self.naive(last)
        if last - first > A_MONTH or self.ambiguous(first) or self.ambiguous(last):
            return False
        begun, ended = first.replace(tzinfo=self.zone), last.replace(tzinfo=self.zone)
        if begun.utcoffset() != ended.utcoffset():
            return False
        self._steady = (first, last)
        return True

    def with_fold(self, stamp: datetime, before: datetime | None) -> datetime:
        """``stamp`` with its ``fold`` set when it lies in the second pass of the hour that
        exists twice; ``before`` is the stamp before it in the same log."""
        if before is None or not self.ambiguous(stamp):
            return stamp
        second = before - stamp > FOLD_STEP or (before.fold == 1 and self.ambiguous(before))
        return stamp.replace(fold=1) if second else stamp


def offset_between(local: datetime, epoch: float, step: int, early: float = 0.0) -> int | None:
    """The offset, a multiple of ``step`` seconds, by which ``local`` (naive) is the moment
    ``epoch`` or up to :data:`SAME_MOMENT` later; ``early``: or so many seconds earlier. None
    where no zone on earth has such an offset."""
    try:
        moment = datetime.fromtimestamp(epoch, UTC).replace(tzinfo=None)
    except (OverflowError, ValueError, OSError):
        return None
    seconds = (local.replace(tzinfo=None) - moment).total_seconds()
    offset = int((seconds + early) // step) * step
    possible = WEST.total_seconds() <= offset <= EAST.total_seconds()
    return offset if possible and seconds - offset <= SAME_MOMENT else None


def _ends_of_spans(seen: list[tuple[datetime, int]]) -> list[tuple[datetime, int]]:
    """Of neighbours with one offset the first and the last: those between tell nothing more,
    and a status file states a moment every minute for months."""
    last = len(seen) - 1
    return [
        seen[i]
        for i in range(len(seen))
        if i in (0, last) or not seen[i - 1][1] == seen[i][1] == seen[i + 1][1]
    ]
