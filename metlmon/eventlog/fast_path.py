"""Fast path for text logs: sums up usual 006 events by job and parses the rest.

Nine in ten events of a training's log are 006, each like the previous one. One pattern splits
a piece of the log at them; the text in between is parsed event by event, in the forms that
current HTCondor writes. Anything else (a yearless date, a cut-off event, NULs, line ends of
another system) sends the whole piece to :func:`metlmon.eventlog.parse`, so that both
paths produce the same from the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Final

from metlmon.eventlog import text_parser
from metlmon.eventlog.bodies import detail
from metlmon.eventlog.events import Event, FastResult, ImageSizes, LogFormat, LogWarning, Position
from metlmon.eventlog.header import CANDIDATE, parse_iso

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
"""Groups: the configurable parts of a log's timestamp format."""

_HOUR: Final = itemgetter(slice(0, 13))
"""A timestamp up to its hour, without minutes, seconds and what follows."""

_BEFORE_DATE: Final = b") "
_DIGITS: Final = frozenset(b"0123456789")

_LINES_OF_006: Final = 4

_EVENT_NUMBERS: Final = {b"%03d" % number: number for number in range(1000)}

_event: Final = tuple.__new__
"""Creates an event from its fields in half the time of its own constructor."""

Job = tuple[int, int, int]


class _NotFastPath(Exception):
    """The bytes are not in the usual form; the full parser must read them."""


def parse_fast(data: bytes, position: Position, until: datetime | None) -> FastResult | None:
    """See :func:`metlmon.eventlog.parse_fast`; None: use the full parser."""
    first = _FIRST_STAMP.match(data)
    end = data.rfind(_END) + len(_END)
    if first is None or end < len(_END) or b"\r" in data:
        return None
    usual = _usual_006(first[1], len(first[2] or b""), first[3])
    # Alternates between the text before a usual 006 and its ids, timestamp and memory.
    pieces = usual.split(data[:end] if end < len(data) else data)
    try:
        return _FastParser(pieces, position, until).result(position.offset + end)
    except _NotFastPath:
        return None


@lru_cache(maxsize=32)
def _usual_006(between: bytes, digits: int, zone: bytes) -> re.Pattern[bytes]:
    """The pattern of a whole 006 event in a log with this timestamp format.

    ``between`` separates date and time, ``digits`` are those of the fraction. All timestamps
    have one length, so that they compare as bytes.
    """
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
    """The running sum of one job's 006 events.

    Their number, their earliest and latest timestamp, and the largest memory as written
    (``memory``) and as a number (``size``).
    """

    __slots__ = ("first", "last", "memory", "size", "updates")

    def __init__(self, stamp: bytes, memory: bytes) -> None:
        self.updates = 1
        self.first = self.last = stamp
        self.memory = memory
        self.size = int(memory)


class _FastParser:
    """The state of one parsing call over the pieces of one log."""

    def __init__(self, pieces: Sequence[bytes], position: Position, until: datetime | None) -> None:
        self._others = pieces[::4]
        self._ids = pieces[1::4]
        self._stamps = pieces[2::4]
        self._memory = pieces[3::4]
        self._start = position
        self._until = until
        self._line = position.line
        self._times: dict[bytes, datetime] = {}
        self._jobs: dict[bytes, Job] = {}
        self._events: list[Event] = []
        self._warnings: list[LogWarning] = []
        self._first: datetime | None = None
        self._last = position.last
        self._passed = 0

    def result(self, offset: int) -> FastResult:
        counted = 0
        for index, other in enumerate(self._others):
            if other:
                self._line += _LINES_OF_006 * (index - counted)
                counted = index
                self._read_piece(other, index)
        self._line += _LINES_OF_006 * (len(self._ids) - counted)
        images = self._sum_image_sizes()
        events, stamps = self._events, self._stamps
        if images:
            self._check_submissions(images)
        first = self._first
        if first is None and stamps:
            first = self._parse_time(stamps[0])
        last = self._last if self._others[-1] or not stamps else self._parse_time(stamps[-1])
        year = self._start.year if last is None else last.year
        after = Position(offset, self._line, LogFormat.TEXT, year, last)
        return FastResult(tuple(events), images, tuple(self._warnings), after, first)

    def _read_piece(self, blocks: bytes, before: int) -> None:
        """Read the whole events that follow ``before`` usual 006 events."""
        if not blocks.endswith(_END):
            raise _NotFastPath
        line, events = self._line, len(self._events)
        if before > self._passed:
            self._last, self._passed = self._parse_time(self._stamps[before - 1]), before
        try:
            self._read_events(blocks)
        except _NotFastPath:
            # One cut-off event; the events around it have the usual form.
            del self._events[events:]
            year = self._start.year if self._last is None else self._last.year
            position = Position(0, line, LogFormat.TEXT, year, self._last)
            parsed = text_parser.parse(blocks, position, None, False)
            if parsed.after.offset != len(blocks):
                raise
            self._events += parsed.events
            self._warnings += parsed.warnings
            self._line = parsed.after.line
        if len(self._events) > events:
            self._last = self._events[-1].time
            if not before:
                self._first = self._events[0].time

    def _parse_time(self, stamp: bytes) -> datetime:
        time = self._times.get(stamp)
        if time is None:
            parsed = parse_iso(stamp.decode("ascii"))
            if parsed is None:
                raise _NotFastPath
            time = self._times[stamp] = parsed
        return time

    def _parse_job(self, ids: bytes) -> Job:
        job = self._jobs.get(ids)
        if job is None:
            match = _IDS.fullmatch(ids)
            if match is None:
                raise _NotFastPath
            job = self._jobs[ids] = int(match[1]), int(match[2]), int(match[3])
        return job

    # --- 006 ----------------------------------------------------------------------------

    def _sum_image_sizes(self) -> tuple[ImageSizes, ...]:
        sums: dict[bytes, _ImageSizeSum] = {}
        get = sums.get
        for ids, stamp, memory in zip(self._ids, self._stamps, self._memory, strict=True):
            job = get(ids)
            if job is None:
                sums[ids] = _ImageSizeSum(stamp, memory)
                continue
            job.updates += 1
            if stamp > job.last:
                job.last = stamp
            elif stamp < job.first:
                job.first = stamp
            if memory != job.memory and (size := int(memory)) > job.size:
                job.memory, job.size = memory, size
        if sums:
            self._check_stamps(
                min(j.first for j in sums.values()), max(j.last for j in sums.values())
            )
        return tuple(
            ImageSizes(
                *self._parse_job(ids),
                job.updates,
                self._parse_time(job.first),
                self._parse_time(job.last),
                job.size,
            )
            for ids, job in sums.items()
        )

    def _check_stamps(self, first: bytes, last: bytes) -> None:
        """Check that all timestamps from ``first`` to ``last`` are valid dates.

        The pattern guarantees valid minutes and seconds.
        """
        if self._until is not None:
            latest = self._parse_time(last)
            if latest.tzinfo is not None or latest > self._until:
                raise _NotFastPath
        if _HOUR(first) != _HOUR(last):
            for hour in set(map(_HOUR, self._stamps)):
                self._parse_time(hour + b":00:00")

    def _check_submissions(self, images: Sequence[ImageSizes]) -> None:
        """Check that no 006 event is older than its job's 000.

        Otherwise the job id was reused, and each 006 event is needed with its own time.
        """
        submitted = {
            event[1:4]: event[4].replace(tzinfo=None) for event in self._events if event[0] == 0
        }
        for job in images if submitted else ():
            time = submitted.get(job[:3])
            if time is not None and job.first.replace(tzinfo=None) < time:
                raise _NotFastPath

    # --- all others ---------------------------------------------------------------------

    def _read_events(self, blocks: bytes) -> None:
        """Read a sequence of whole events.

        All in one loop: each function call would cost a tenth of an event's time.
        """
        if b"\0" in blocks:
            raise _NotFastPath
        jobs, times, append = self._jobs, self._times, self._events.append
        line, start, size = self._line, 0, len(blocks)
        while start < size:
            match = _HEADER.match(blocks, start)
            if match is None:
                raise _NotFastPath
            number, ids, stamp = match.groups()
            text_start = match.end()
            end = blocks.index(_END, text_start)
            if blocks.find(_BEFORE_DATE, text_start, end) >= 0 and _may_contain_header(
                blocks, text_start, end
            ):
                raise _NotFastPath
            try:
                decoded = blocks[text_start:end].decode()
            except UnicodeDecodeError:
                raise _NotFastPath from None
            text, _, body = decoded.partition("\n")
            kind = _EVENT_NUMBERS[number]
            job = jobs.get(ids) or self._parse_job(ids)
            time = times.get(stamp) or self._parse_time(stamp)
            fields = detail(kind, text, body)
            append(_event(Event, (kind, *job, time, text, body, fields, line, False)))
            after = end + len(_END)
            line += blocks.count(b"\n", start, after)
            start = after
        self._line = line


def _may_contain_header(blocks: bytes, start: int, end: int) -> bool:
    """Whether a header may be glued into this text.

    In every header a digit follows ``) ``: that search takes a tenth of the time of a search
    for the start of a header.
    """
    index = blocks.find(_BEFORE_DATE, start, end)
    while index >= 0:
        if blocks[index + 2] in _DIGITS:
            return CANDIDATE.search(blocks, start, end) is not None
        index = blocks.find(_BEFORE_DATE, index + 2, end)
    return False
