"""Reading a text log fast: events without the usual 006, and those added up for each job.

Nine in ten events of a training's log are 006, each like the one before.  One pattern divides
a piece of the log at them; what stands between is read event by event, in the forms that
HTCondor writes today.  Whatever differs (a yearless date, a cut event, NULs, line ends of
another system) sends the whole piece the way of :func:`metlmon.eventlog.parse`, so that both
ways tell the same of the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Final

from metlmon.eventlog import text_parser as careful
from metlmon.eventlog import timestamps
from metlmon.eventlog.bodies import detail
from metlmon.eventlog.events import Event, FastResult, ImageSizes, LogFormat, LogWarning, Position
from metlmon.eventlog.header import CANDIDATE

_END: Final = b"\n...\n"

_STAMP: Final = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}"
_HEADER: Final = re.compile(
    rb"([0-9]{3}) \(([-0-9.]++)\) (" + _STAMP + rb"(?:\.[0-9]{1,9}+)?Z?+)(?: |(?=\n))"
)
_IDS: Final = re.compile(rb"(-?[0-9]{1,18})\.(-?[0-9]{1,18})\.(-?[0-9]{1,18})")

_FIRST_STAMP: Final = re.compile(
    rb"[0-9]{3} \([-0-9.]++\) [0-9]{4}-[0-9]{2}-[0-9]{2}([ T])[0-9]{2}:[0-9]{2}:[0-9]{2}"
    rb"(?:\.([0-9]{1,9}+))?(Z?+)"
)
"""Groups: what of the form of its stamps a log is free to choose."""

_HOUR: Final = itemgetter(slice(0, 13))
"""Of a stamp all but minutes, seconds and what follows."""

_BEFORE_A_DATE: Final = b") "
_DIGITS: Final = frozenset(b"0123456789")

_LINES_OF_006: Final = 4

_NUMBERS: Final = {b"%03d" % number: number for number in range(1000)}

_event: Final = tuple.__new__
"""An event from its fields: in half the time that its own constructor takes."""

Job = tuple[int, int, int]


class _NotFastPath(Exception):
    """Something that is to be read with all care."""


def skim(data: bytes, at: Position, until: datetime | None) -> FastResult | None:
    """See :func:`metlmon.eventlog.parse_fast`. None: these bytes are to be read with all care."""
    first = _FIRST_STAMP.match(data)
    end = data.rfind(_END) + len(_END)
    if first is None or end < len(_END) or b"\r" in data:
        return None
    usual = _usual_006(first[1], len(first[2] or b""), first[3])
    # Text between two usual 006, and of each its ids, stamp and memory, by turns.
    pieces = usual.split(data[:end] if end < len(data) else data)
    try:
        return _FastParser(pieces, at, until).skimmed(at.offset + end)
    except _NotFastPath:
        return None


@lru_cache(maxsize=32)
def _usual_006(between: bytes, digits: int, zone: bytes) -> re.Pattern[bytes]:
    """A whole 006 of a log with such stamps: between date and time, of a second, behind them.
    All are of one length, and the later one is the greater one."""
    fraction = rb"\.[0-9]{%d}" % digits if digits else b""
    return re.compile(
        rb"006 \(([0-9.]++)\) ([0-9]{4}-[0-9]{2}-[0-9]{2}"
        + between
        + rb"[0-9]{2}:[0-5][0-9]:[0-5][0-9]"
        + fraction
        + zone
        + rb") Image size of job updated: [0-9]{1,18}+\n"
        rb"\t([0-9]{1,18}+)  -  MemoryUsage of job \(MB\)\n"
        rb"\t[0-9]{1,18}+  -  ResidentSetSize of job \(KB\)\n\.\.\.\n"
    )


class _ImageSizeSum:
    """The 006 of one job so far: how many, their earliest and latest stamp, the largest
    memory as written and as a number."""

    __slots__ = ("first", "last", "memory", "size", "updates")

    def __init__(self, stamp: bytes, memory: bytes) -> None:
        self.updates = 1
        self.first = self.last = stamp
        self.memory = memory
        self.size = int(memory)


class _FastParser:
    """One call's way through the pieces of one log."""

    def __init__(self, pieces: Sequence[bytes], at: Position, until: datetime | None) -> None:
        self._others = pieces[::4]
        self._ids = pieces[1::4]
        self._stamps = pieces[2::4]
        self._memory = pieces[3::4]
        self._at = at
        self._until = until
        self._line = at.line
        self._times: dict[bytes, datetime] = {}
        self._jobs: dict[bytes, Job] = {}
        self._events: list[Event] = []
        self._warnings: list[LogWarning] = []
        self._first: datetime | None = None
        self._last = at.last
        self._passed = 0

    def skimmed(self, offset: int) -> FastResult:
        passed = 0
        for before, other in enumerate(self._others):
            if other:
                self._line += _LINES_OF_006 * (before - passed)
                passed = before
                self._piece(other, before)
        self._line += _LINES_OF_006 * (len(self._ids) - passed)
        images = self._added_up()
        events, told = self._events, self._stamps
        if images:
            self._check_submissions(images)
        first = self._first
        if first is None and told:
            first = self._time(told[0])
        last = self._last if self._others[-1] or not told else self._time(told[-1])
        year = self._at.year if last is None else last.year
        after = Position(offset, self._line, LogFormat.TEXT, year, last)
        return FastResult(tuple(events), images, tuple(self._warnings), after, first)

    def _piece(self, blocks: bytes, before: int) -> None:
        """Read whole events that stand behind so many usual 006."""
        if not blocks.endswith(_END):
            raise _NotFastPath
        line, events = self._line, len(self._events)
        if before > self._passed:
            self._last, self._passed = self._time(self._stamps[before - 1]), before
        try:
            self._read(blocks)
        except _NotFastPath:
            # One cut event; what is around it is as usual.
            del self._events[events:]
            year = self._at.year if self._last is None else self._last.year
            at = Position(0, line, LogFormat.TEXT, year, self._last)
            parsed = careful.parse(blocks, at, None, False)
            if parsed.after.offset != len(blocks):
                raise
            self._events += parsed.events
            self._warnings += parsed.warnings
            self._line = parsed.after.line
        if len(self._events) > events:
            self._last = self._events[-1].time
            if not before:
                self._first = self._events[0].time

    def _time(self, stamp: bytes) -> datetime:
        time = self._times.get(stamp)
        if time is None:
            read = timestamps.iso(stamp.decode("ascii"))
            if read is None:
                raise _NotFastPath
            time = self._times[stamp] = read
        return time

    def _job(self, ids: bytes) -> Job:
        job = self._jobs.get(ids)
        if job is None:
            found = _IDS.fullmatch(ids)
            if found is None:
                raise _NotFastPath
            job = self._jobs[ids] = int(found[1]), int(found[2]), int(found[3])
        return job

    # --- 006 ----------------------------------------------------------------------------

    def _added_up(self) -> tuple[ImageSizes, ...]:
        told: dict[bytes, _ImageSizeSum] = {}
        known = told.get
        for ids, stamp, memory in zip(self._ids, self._stamps, self._memory, strict=True):
            job = known(ids)
            if job is None:
                told[ids] = _ImageSizeSum(stamp, memory)
                continue
            job.updates += 1
            if stamp > job.last:
                job.last = stamp
            elif stamp < job.first:
                job.first = stamp
            if memory != job.memory and (size := int(memory)) > job.size:
                job.memory, job.size = memory, size
        if told:
            self._check_stamps(
                min(j.first for j in told.values()), max(j.last for j in told.values())
            )
        return tuple(
            ImageSizes(
                *self._job(ids), job.updates, self._time(job.first), self._time(job.last), job.size
            )
            for ids, job in told.items()
        )

    def _check_stamps(self, first: bytes, last: bytes) -> None:
        """Are all stamps from ``first`` to ``last`` dates? Minutes and seconds are: by the
        pattern."""
        if self._until is not None:
            latest = self._time(last)
            if latest.tzinfo is not None or latest > self._until:
                raise _NotFastPath
        if _HOUR(first) != _HOUR(last):
            for hour in set(map(_HOUR, self._stamps)):
                self._time(hour + b":00:00")

    def _check_submissions(self, images: Sequence[ImageSizes]) -> None:
        """No 006 is older than its job's 000, or the number was given out again: then each is to
        be told with its time."""
        submitted = {
            event[1:4]: event[4].replace(tzinfo=None) for event in self._events if event[0] == 0
        }
        for job in images if submitted else ():
            at = submitted.get(job[:3])
            if at is not None and job.first.replace(tzinfo=None) < at:
                raise _NotFastPath

    # --- all others ---------------------------------------------------------------------

    def _read(self, blocks: bytes) -> None:
        """Read whole events that stand one behind the other. All in one loop: each call of a
        function would be a tenth of the time that an event takes."""
        if b"\0" in blocks:
            raise _NotFastPath
        jobs, times, append = self._jobs, self._times, self._events.append
        line, start, size = self._line, 0, len(blocks)
        while start < size:
            found = _HEADER.match(blocks, start)
            if found is None:
                raise _NotFastPath
            number, ids, stamp = found.groups()
            begins = found.end()
            end = blocks.index(_END, begins)
            if blocks.find(_BEFORE_A_DATE, begins, end) >= 0 and _may_hold_a_header(
                blocks, begins, end
            ):
                raise _NotFastPath
            try:
                said = blocks[begins:end].decode()
            except UnicodeDecodeError:
                raise _NotFastPath from None
            text, _, body = said.partition("\n")
            kind = _NUMBERS[number]
            job = jobs.get(ids) or self._job(ids)
            time = times.get(stamp) or self._time(stamp)
            said_more = detail(kind, text, body)
            append(_event(Event, (kind, *job, time, text, body, said_more, line, False)))
            after = end + len(_END)
            line += blocks.count(b"\n", start, after)
            start = after
        self._line = line


def _may_hold_a_header(blocks: bytes, start: int, end: int) -> bool:
    """Might a header be glued into this text? In each, a digit stands behind ``) ``: looking
    for that takes a tenth of the time of looking for how a header begins."""
    at = blocks.find(_BEFORE_A_DATE, start, end)
    while at >= 0:
        if blocks[at + 2] in _DIGITS:
            return CANDIDATE.search(blocks, start, end) is not None
        at = blocks.find(_BEFORE_A_DATE, at + 2, end)
    return False
