"""Reads event logs of any form: the entry points of this package.

Source followed: HTCondor manual, "Managing a Job > Job Event Log Codes", and
``read_user_log.cpp`` and ``condor_event.cpp`` of the public HTCondor source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from metlmon.eventlog import classad_log, text_parser
from metlmon.eventlog.events import (
    Event,
    ImageSizes,
    LogFormat,
    LogWarning,
    Parsed,
    Position,
    read_detail,
)
from metlmon.eventlog.header import CANDIDATE, HEADER

_BLANK: Final = b" \t\r\n\0"
_XML_EVENT: Final = re.compile(rb'<c>\s*<a n="')
_JSON_EVENT: Final = re.compile(rb'\{\s*"\w+"\s*:')
_JSON_NAMES: Final = re.compile(rb'"(?:EventTypeNumber|MyType)"\s*:')


def parse(
    data: bytes,
    position: Position = Position(),  # noqa: B008 - frozen, so one default serves every call
    *,
    limit: int | None = None,
    year_hint: int | None = None,
    final: bool = False,
) -> Parsed:
    """Parse the complete events in a piece of a log.

    ``data`` contains the bytes of the log from ``position.offset`` on.

    ``after.offset - position.offset`` bytes are consumed: pass the rest again, followed by more
    bytes and with ``after`` as ``position``. The events and warnings do not depend on how the bytes
    are divided among calls; an incomplete tail produces none.

    ``limit`` ends the call at the first separator after that many events and warnings
    together; a damaged stretch between two separators can exceed it.

    ``year_hint`` is the year of the first event of a log that writes no years, from
    :func:`metlmon.eventlog.header.first_year` of the first bytes read.
    ``position.year``, once set, takes precedence; a timestamp more than six months before the
    last begins a new year. Without either the year is 2000.

    ``final`` means that no more bytes will come (a copy of a dead log): all bytes are consumed,
    and an event cut off at the end is reported by a warning. In the text form, which can be read
    in part, it is also returned as ``damaged``.
    """
    form = position.form or _form(data)
    if form is None:
        return Parsed((), (), position)
    position = replace(
        position, form=form, year=position.year if position.year is not None else year_hint
    )
    if form is LogFormat.TEXT:
        return text_parser.parse(data, position, limit, final)
    return classad_log.parse(data, position, limit, final)


def parse_fast(
    data: bytes,
    position: Position = Position(),  # noqa: B008 - frozen, so one default serves every call
    *,
    year_hint: int | None = None,
    until: datetime | None = None,
) -> Parsed:
    """Parse like :func:`parse`, but sum up the 006 events of each job.

    Ten times as fast if most events are 006. How the bytes are divided among calls changes
    only how the sums are divided.

    ``until``: 006 events later than this (naive) are left out of the sums; if a log is in UTC, all
    006 events may be returned among ``events``.
    """
    if position.form in (None, LogFormat.TEXT):
        # A log with years may contain a yearless header, glued into an event.
        start = (
            position
            if position.year is not None or year_hint is None
            else replace(position, year=year_hint)
        )
        result = _parse_fast(data, start, until)
        if result is not None:
            return result
    parsed = parse(data, position, year_hint=year_hint)
    first = parsed.events[0].time if parsed.events else None
    return replace(parsed, first=first)


def _form(data: bytes) -> LogFormat | None:
    """The form indicated by the first non-blank byte; None without one."""
    first = data.lstrip(_BLANK)[:1]
    if not first:
        return None
    return {b"<": LogFormat.XML, b"{": LogFormat.JSON}.get(first, LogFormat.TEXT)


def sniff(first: bytes) -> LogFormat | None:
    """Detect the form of a log from its first KB; None when no event begins there."""
    start = first.lstrip(b" \t\r\n")
    if HEADER.match(start):
        return LogFormat.TEXT
    if start.startswith(b"<?xml") or _XML_EVENT.match(start):
        return LogFormat.XML
    if _JSON_EVENT.match(start) and _JSON_NAMES.search(start):
        return LogFormat.JSON
    return None


_ROTATED_NAME: Final = re.compile(r"(.+?)(?:\.old|[.-]\d{1,8})")


def current_name(name: str) -> str:
    """The name of the current log of which ``name`` is a rotated part.

    Rotation writes ``x.log.old``, ``x.log.1``, ``x.log-20251101``. Any other name is returned
    unchanged.
    """
    match = _ROTATED_NAME.fullmatch(name)
    return match[1] if match else name


def looks_like_event_log(first: bytes) -> bool:
    """Whether a file that begins with these bytes (a few KB) is a job event log."""
    return sniff(first) is not None


# --- the fast path ----------------------------------------------------------------------

_SEPARATOR: Final = "\n...\n"
_END: Final = _SEPARATOR.encode()

_HEADER: Final = re.compile(
    r"([0-9]{3}) \(([-0-9.]++)\) ([0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(?:\.[0-9]{1,9}+)?Z?+)(?: |(?=\n)|\Z)"
)
_IDS: Final = re.compile(r"(-?[0-9]{1,18})\.(-?[0-9]{1,18})\.(-?[0-9]{1,18})")

_FIRST_STAMP: Final = re.compile(
    rb"[0-9]{3} \([-0-9.]++\) [0-9]{4}-[0-9]{2}-[0-9]{2}([ T])[0-9]{2}:[0-9]{2}:[0-9]{2}"
    rb"(?:\.([0-9]{1,9}+))?(Z?+)"
)
"""Groups: the configurable parts of a log's timestamp format."""

_HOUR: Final = itemgetter(slice(0, 13))
"""A timestamp up to its hour, without minutes, seconds and what follows."""

_DIGIT_AFTER_IDS: Final = re.compile(r"\) [0-9]")
"""In every header; found in a tenth of the time of :data:`_CANDIDATE`."""

_CANDIDATE: Final = re.compile(CANDIDATE.pattern.decode())

_LINES_OF_006: Final = 4

Job = tuple[int, int, int]


class _NotFastPath(Exception):
    """The bytes are not in the usual form; the full parser must read them."""


def _parse_fast(data: bytes, position: Position, until: datetime | None) -> Parsed | None:
    """Implement :func:`parse_fast` for text logs; None: use the full parser.

    Nine in ten events of a training's log are 006, each like the previous one. One pattern splits
    a piece of the log at them; the text in between is parsed event by event, in the forms that
    current HTCondor writes. Anything else (a yearless date, a cut-off event, NULs, line ends of
    another system) sends the whole piece to :func:`parse`, so that both paths produce the same
    from the same bytes.
    """
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


def _stamp_like(stamp: bytes, time: datetime) -> bytes:
    """The timestamp of ``time`` in the format of ``stamp``."""
    if stamp.endswith(b"Z"):
        # An aware time: only the caller can convert it to local time.
        raise _NotFastPath
    text = time.isoformat(stamp[10:11].decode(), "microseconds") + "000"
    return text.encode()[: len(stamp)]


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
        self._times: dict[str, datetime] = {}
        self._jobs: dict[str, Job] = {}
        self._events: list[Event] = []
        self._warnings: list[LogWarning] = []
        self._first: datetime | None = None
        self._last = position.last
        self._passed = 0

    def result(self, offset: int) -> Parsed:
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
            first = self._parse_time(stamps[0].decode())
        last = (
            self._last if self._others[-1] or not stamps else self._parse_time(stamps[-1].decode())
        )
        year = self._start.year if last is None else last.year
        after = Position(offset, self._line, LogFormat.TEXT, year, last)
        return Parsed(tuple(events), tuple(self._warnings), after, images, first)

    def _read_piece(self, blocks: bytes, before: int) -> None:
        """Read the whole events that follow ``before`` usual 006 events."""
        if not blocks.endswith(_END):
            raise _NotFastPath
        line, events = self._line, len(self._events)
        if before > self._passed:
            self._last, self._passed = self._parse_time(self._stamps[before - 1].decode()), before
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

    def _parse_time(self, stamp: str) -> datetime:
        time = self._times.get(stamp)
        if time is None:
            try:
                time = self._times[stamp] = datetime.fromisoformat(stamp)
            except ValueError:
                raise _NotFastPath from None
        return time

    def _parse_job(self, ids: str) -> Job:
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
        reports: Iterable[tuple[bytes, bytes, bytes]] = zip(
            self._ids, self._stamps, self._memory, strict=True
        )
        if self._until is not None and self._stamps:
            limit = _stamp_like(self._stamps[0], self._until)
            reports = (report for report in reports if report[1] <= limit)
        for ids, stamp, memory in reports:
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
                *self._parse_job(ids.decode()),
                job.updates,
                self._parse_time(job.first.decode()),
                self._parse_time(job.last.decode()),
                job.size,
            )
            for ids, job in sums.items()
        )

    def _check_stamps(self, first: bytes, last: bytes) -> None:
        """Check that all timestamps from ``first`` to ``last`` are valid dates."""
        if _HOUR(first) != _HOUR(last):
            for hour in set(map(_HOUR, self._stamps)):
                self._parse_time(hour.decode() + ":00:00")

    def _check_submissions(self, images: Sequence[ImageSizes]) -> None:
        """Check that no 006 event is older than its job's 000.

        Otherwise the job id was reused, and each 006 event is needed with its own time.
        """
        submitted = {
            event.ids: event.time.replace(tzinfo=None)
            for event in self._events
            if event.number == 0
        }
        for job in images if submitted else ():
            time = submitted.get((job.cluster, job.proc, job.subproc))
            if time is not None and job.first.replace(tzinfo=None) < time:
                raise _NotFastPath

    # --- all others ---------------------------------------------------------------------

    def _read_events(self, blocks: bytes) -> None:
        """Read a sequence of whole events.

        All in one loop: each function call would cost a tenth of an event's time.
        """
        try:
            texts = blocks.decode().split(_SEPARATOR)
        except UnicodeDecodeError:
            raise _NotFastPath from None
        jobs, times, append = self._jobs, self._times, self._events.append
        line = self._line
        if texts.pop():
            # A separator without an event: its bytes are not part of any block.
            raise _NotFastPath
        for block in texts:
            match = _HEADER.match(block)
            if match is None or "\0" in block:
                raise _NotFastPath
            number, ids, stamp = match.groups()
            start = match.end()
            if _DIGIT_AFTER_IDS.search(block, start) and _CANDIDATE.search(block, start):
                raise _NotFastPath
            text, _, body = block[start:].partition("\n")
            kind = int(number)
            cluster, proc, subproc = jobs.get(ids) or self._parse_job(ids)
            time = times.get(stamp) or self._parse_time(stamp)
            fields = read_detail(kind, text, body)
            append(Event(kind, cluster, proc, subproc, time, text, body, fields, line))
            line += block.count("\n") + 2
        self._line = line
