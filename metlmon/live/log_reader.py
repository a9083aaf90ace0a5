"""Reads one event log into batches of events."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from metlmon.eventlog.events import LogWarning, Parsed, Position
from metlmon.eventlog.header import KnownDates, first_year
from metlmon.eventlog.reader import parse, parse_fast
from metlmon.eventlog.text_parser import nul_bytes_warning
from metlmon.live.discovery import LogFile
from metlmon.live.follower import CHUNK, GREATEST_REST, FileCheck, Follower
from metlmon.model.clock import Clock
from metlmon.model.model_state import Batch, LogRole
from metlmon.remote import filesystem
from metlmon.remote.paths import NoAnswer

YEARLESS_HEADER: Final = re.compile(rb"\d{3} \([-\d.]+\) \d\d/\d\d ")
"""An event header whose date has no year."""

UNWRITTEN_SECONDS: Final = 60.0
"""How long after a write zeros in a file may be data not yet visible: NFS clients hold back pages
for up to 30 s."""


LOGS_AT_ONCE: Final = 500
"""Logs without a job in the queue that one check tests for growth: a few milliseconds."""


class LogRotation:
    """Chooses the logs that a check of the directory tests for growth.

    Of up to ``LOGS_AT_ONCE`` logs all. Of more, those that were never read, DAGMan's own, and those
    of jobs in the queue; and in turn some of the others, whose jobs have all ended.
    """

    def __init__(self) -> None:
        self._next = 0

    def choose(
        self, readers: Sequence[LogReader], find_active: Callable[[], Container[str]]
    ) -> Sequence[LogReader]:
        """The logs to check now; ``find_active`` returns the names of those of queued jobs."""
        if len(readers) <= LOGS_AT_ONCE:
            return readers
        active = find_active()
        first = self._next if self._next < len(readers) else 0
        self._next = first + LOGS_AT_ONCE
        return [
            reader
            for index, reader in enumerate(readers)
            if first <= index < self._next
            or not reader.follower.was_readable
            or reader.log.role is not LogRole.USER
            or reader.log.name in active
        ]


class LogReader:
    """Reader of one event log: its follower, position and role."""

    def __init__(self, log: LogFile) -> None:
        self.log = log
        self.follower = Follower(log.path)
        self.position = Position()
        self.read_error: str | None = None
        self.missing = False
        self.at_end = False
        self.content_replaced = False
        """The content read before has been replaced: everything must be read again."""
        self._last_time: datetime | None = None
        self._has_hole = False
        self._year: int | None = None

    def check(self) -> FileCheck:
        """Check the state of the file."""
        check = self.follower.check()
        self.read_error, self.missing = check.problem, check.missing
        if check.restarted:
            self._last_time = self.position.last or self._last_time
            self.position, self._year = Position(), None
        if check.restarted or check.grew or self._has_hole:
            self.at_end = False
        return check

    @property
    def unread_bytes(self) -> int:
        """Bytes whose events have not been returned yet."""
        return 0 if self.at_end else self.follower.unread_bytes

    def awaits_year(self) -> bool:
        """Whether nothing of it was read yet, and its dates have no years."""
        if self._year is not None or self.position.offset:
            return False
        try:
            return YEARLESS_HEADER.match(self.follower.read(0, 200).lstrip()) is not None
        except OSError:
            return False

    def read(
        self, clock: Clock, until: datetime | None, known: KnownDates | None = None
    ) -> tuple[Batch, tuple[LogWarning, ...]]:
        """Return the next complete events, those of one chunk.

        ``until``: later events are not needed. ``known``: as in :func:`first_year`.
        """
        if self.content_replaced:
            self.at_end = True
            return self._empty_batch(), ()
        size = CHUNK
        while True:
            try:
                data = self.follower.read(self.follower.offset, size)
            except OSError as error:
                self.read_error, self.at_end = error.strerror or str(error), True
                return self._empty_batch(), ()
            data = self._without_hole(data)
            year = self._first_year(data, clock, known)
            at_end, endless = len(data) < size, size >= GREATEST_REST
            result = self._parse(data, year, clock, until)
            if result.after.offset > self.position.offset or (at_end and not _is_hole(data)):
                break
            if _is_hole(data):
                return self._read_hole(data, year)
            if endless:
                result = parse(data, self.position, year_hint=year, final=True)
                break
            # One event is longer than the chunk: read more to find its end.
            size *= 4
        self.at_end = at_end
        if self._starts_earlier(result, clock):
            self.content_replaced = self.at_end = True
            return self._empty_batch(), ()
        self.position = result.after
        self.follower.consume(result.after.offset)
        batch = Batch(
            file=self.log.name,
            role=self.log.role,
            events=result.events,
            dag=self.log.dag,
            images=result.images,
            first=result.first,
            last=result.after.last,
        )
        return batch, result.warnings

    def _read_hole(self, data: bytes, year: int | None) -> tuple[Batch, tuple[LogWarning, ...]]:
        """The rest of an event before a long run of NULs, which a sparse file may have."""
        rest = data.rstrip(b"\0")
        result = parse(rest, self.position, year_hint=year, final=True)
        start = self.position.offset
        try:
            count = self.follower.skip_nuls(start + len(rest))
        except (OSError, NoAnswer) as error:
            self.read_error, self.at_end = str(error), True
            return self._empty_batch(), ()
        self.position = replace(result.after, offset=self.follower.offset)
        self.at_end = not self.follower.unread_bytes
        batch = replace(
            self._empty_batch(), events=result.events, first=result.first, last=result.after.last
        )
        warnings = (*result.warnings, nul_bytes_warning(count, self.position.line))
        return batch, warnings

    def _empty_batch(self) -> Batch:
        return Batch(self.log.name, self.log.role, (), self.log.dag)

    def _without_hole(self, data: bytes) -> bytes:
        """Return the data before a hole that may still be filled.

        Another NFS client sees a file's new size before the bytes, and zeros in their place;
        zeros in an older file are damage, and remain.
        """
        hole = data.find(b"\0")
        age = filesystem.now(self.log.path) - self.follower.mtime
        self._has_hole = hole >= 0 and -UNWRITTEN_SECONDS < age < UNWRITTEN_SECONDS
        return data[:hole] if self._has_hole else data

    def _starts_earlier(self, result: Parsed, clock: Clock) -> bool:
        """Whether an emptied log continues with earlier events than it had.

        A log emptied by DAGMan or to save space continues later in time; otherwise it is
        another log, or repeats events already read.
        """
        first = result.first or next((event.time for event in result.events), None)
        if self._last_time is None or first is None or self.log.role is LogRole.DAGMAN:
            # DAGMan truncates its own job log on restart; its events are discarded then.
            return False
        last_time, self._last_time = self._last_time, None
        return clock.naive(first) < clock.naive(last_time)

    def _parse(self, data: bytes, year: int | None, clock: Clock, until: datetime | None) -> Parsed:
        result = parse_fast(data, self.position, year_hint=year, until=until)
        if not clock.zone_varies or not result.images:
            return result
        # A log may switch to UTC: only local times can be compared.
        times = [clock.naive(event.time) for event in result.events]
        for image in result.images:
            times += clock.naive(image.first), clock.naive(image.last)
        if clock.is_steady(min(times), max(times)):
            return result
        # In the hour that occurs twice, only the order of the events resolves their times.
        return parse(data, self.position, year_hint=year)

    def _first_year(self, data: bytes, clock: Clock, known: KnownDates | None) -> int | None:
        """Infer the year in a log without years, by other files, and its own age."""
        if (
            self._year is None
            and self.position.offset == 0
            and YEARLESS_HEADER.match(data.lstrip())
        ):
            mtime = self.follower.mtime
            written = clock.to_local(mtime) or filesystem.local_time(self.log.path, mtime)
            self._year = first_year(self._all_bytes(data), written, known)
        return self._year

    def _all_bytes(self, data: bytes) -> bytes:
        if len(data) >= self.follower.size:
            return data
        try:
            return self.follower.read(0, self.follower.size)
        except OSError:
            return data

    def unparsed_text(self) -> str:
        """Return the text after the last complete event."""
        try:
            return self.follower.read(self.follower.offset, 4096).decode("utf-8", "replace")
        except OSError:
            return ""


def _is_hole(data: bytes) -> bool:
    """Whether a piece ends in more NULs than any damage of a block leaves."""
    return len(data) >= CHUNK and data.endswith(bytes(CHUNK // 2))
