"""Follows files that grow, are truncated or replaced, and reads logs into batches of events.

Relies on ``stat`` (size, inode, times) and on a fingerprint of the first bytes, since a
``nodes.log`` truncated by DAGMan can grow past the old offset between two checks.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Final
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from metlmon.eventlog.events import LogWarning, Parsed, Position
from metlmon.eventlog.header import KnownDates, first_year
from metlmon.eventlog.reader import parse, parse_fast
from metlmon.eventlog.text_parser import nul_bytes_warning
from metlmon.live.discovery import LogFile
from metlmon.live.file_access import call_with_timeout, clock_time
from metlmon.model.clock import Clock
from metlmon.model.model_state import Batch, LogRole
from metlmon.remote import filesystem
from metlmon.remote.paths import NoAnswer
from metlmon.text.formatting import MINUTE, age

FINGERPRINT: Final = 256
"""Leading bytes that identify a file's content: they hold the first event's ids and time."""

CHUNK: Final = 1 << 19
"""Bytes per read: large enough that system calls cost nothing, small enough that reading and
parsing take less than ten milliseconds."""

MAX_EVENT_BYTES: Final = 64 << 20
"""Maximum number of bytes read in search of an event's end. No event is nearly as long; the limit
bounds the memory for a file without any event's end."""


NO_REPLY: Final = "no answer from the file system"
"""The reason of a file error when a file-system call times out."""


class FileCheck(Struct, frozen=True):
    """The result of one check of a file.

    ``restarted``: its content has been replaced, and the offset is 0 again. ``grew``: more can be
    read. ``problem``: why it cannot be read, None if it can; ``missing``: it does not exist.
    """

    size: int
    restarted: bool
    grew: bool
    problem: str | None = None
    missing: bool = False


class Follower:
    """The read position in one file, which is not held open between checks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.size = 0
        self.mtime = 0.0
        self.is_answered = True
        """Whether the file system has answered the last call."""
        self._signature: tuple[int, ...] | None = None
        self._first_bytes: bytes | None = None
        self._chunk = (0, b"")
        self._last_bytes = b""
        self._checksum = (0, 0)

    @property
    def unread_bytes(self) -> int:
        """Bytes not yet consumed."""
        return max(0, self.size - self.offset)

    @property
    def was_readable(self) -> bool:
        """Whether the file has ever been readable."""
        return self._first_bytes is not None

    def check(self) -> FileCheck:
        """Check the file's state with ``stat``; read it only if that has changed."""
        self.is_answered = True
        try:
            status = call_with_timeout(filesystem.stat, self.path)
            if not stat.S_ISREG(status.st_mode):
                return FileCheck(self.size, False, False, "not a regular file")
            # The ctime also shows bytes overwritten in place.
            signature = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            if signature == self._signature:
                return FileCheck(self.size, False, False)
            # A kernel file (/proc) has size 0, and reading it may block for ever.
            nonempty = status.st_size > 0
            start, last_bytes = (
                call_with_timeout(_both_ends, self.path, self.offset) if nonempty else (b"", b"")
            )
            unchanged = self._content_unchanged(status)
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            return FileCheck(self.size, False, False, error.strerror or str(error), gone)
        except NoAnswer:
            self.is_answered = False
            return FileCheck(self.size, False, False, NO_REPLY)
        restarted = self._restarted(status, start, last_bytes) or not unchanged
        if restarted:
            self.offset, self._last_bytes, self._checksum = 0, b"", (0, 0)
        self._signature = signature
        self._first_bytes = start
        self.size, self.mtime = status.st_size, status.st_mtime
        return FileCheck(self.size, restarted, self.size > self.offset)

    def _restarted(self, status: os.stat_result, start: bytes, last_bytes: bytes) -> bool:
        if self._first_bytes is None:
            return False
        if status.st_size < self.offset:
            return True
        # A copy that replaced the file continues it if the bytes at the beginning and before
        # the offset are the same.
        return not start.startswith(self._first_bytes) or not last_bytes.endswith(self._last_bytes)

    def _content_unchanged(self, status: os.stat_result) -> bool:
        """Whether the consumed bytes are the same in a replaced or rewritten file.

        They are read again only if the inode differs, or if the file was written without growing.
        """
        length, known = self._checksum
        if self._signature is None or length != self.offset or not 0 < length <= status.st_size:
            return True
        if status.st_ino == self._signature[0] and status.st_size != self.size:
            return True
        return call_with_timeout(_sum_of, self.path, length) == known

    def consume(self, offset: int) -> None:
        """Mark the bytes before ``offset`` as consumed, from the last :meth:`read`."""
        at, data = self._chunk
        consumed = max(0, offset - at)
        self._last_bytes = (self._last_bytes + data[max(0, consumed - FINGERPRINT) : consumed])[
            -FINGERPRINT:
        ]
        if self._checksum[0] == self.offset == at:
            self._checksum = (offset, crc32(memoryview(data)[:consumed], self._checksum[1]))
        self._chunk = (0, b"")
        self.offset = offset

    def skip_nuls(self, start: int) -> int:
        """Consume NUL bytes from ``start`` on; return their number. Raises OSError, NoAnswer."""
        end = call_with_timeout(_end_of_nuls, self.path, start, self.size)
        self.consume(start)
        # The bytes before the offset are unknown now.
        self.offset, self._last_bytes = end, b""
        return end - start

    def read(self, at: int, limit: int = CHUNK) -> bytes:
        """Return at most ``limit`` bytes from ``at``.

        Raises OSError; the next check then reports these bytes again, even in an unchanged file.
        """
        try:
            data = call_with_timeout(_part, self.path, at, limit)
        except NoAnswer:
            self._signature, self.is_answered = None, False
            raise OSError(errno.ETIMEDOUT, NO_REPLY) from None
        except OSError:
            self._signature = None
            raise
        self._chunk = (at, data)
        return data


def _both_ends(path: Path, offset: int) -> tuple[bytes, bytes]:
    """Return the file's first bytes, and those before ``offset``."""
    with filesystem.open_file(path) as file:
        start = file.pread(FINGERPRINT, 0)
        length = min(FINGERPRINT, offset)
        return start, file.pread(length, offset - length)


def _end_of_nuls(path: Path, start: int, size: int) -> int:
    with filesystem.open_file(path) as file:
        return file.end_of_nuls(start, size)


def _sum_of(path: Path, length: int) -> int:
    """Return the CRC-32 of the file's first ``length`` bytes."""
    checksum = start = 0
    with filesystem.open_file(path) as file:
        while start < length and (data := file.pread(min(CHUNK, length - start), start)):
            checksum = crc32(data, checksum)
            start += len(data)
    return checksum


def _part(path: Path, at: int, limit: int) -> bytes:
    with filesystem.open_file(path) as file:
        return file.pread(limit, at)


SETTLED: Final = 2.0
"""Seconds after which a directory's mtime is final: two changes within one tick of the file
system's clock (up to two seconds) have the same time."""


LARGE_FOLDER: Final = 256 << 10
"""Size of a directory in its ``stat``: some 5,000 names on most file systems."""

LARGE_FOLDER_SECONDS: Final = 10.0
"""Minimum interval of listing a large directory: 100,000 names take a third of a second."""


class DirectoryMtimes:
    """Detects added, removed or newly readable names in some directories.

    Compares mtime and ctime (permissions). Changes of large directories, which take long to
    list, are reported at most once in ``LARGE_FOLDER_SECONDS``.
    """

    def __init__(self) -> None:
        self._times: dict[Path, tuple[int, int]] = {}
        self._pending = False
        self._reported_at = float("-inf")

    def changed(self, directories: Iterable[Path], now: float) -> bool:
        """Whether anything changed since the last True; ``now``: seconds since 1970."""
        times: dict[Path, tuple[int, int]] = {}
        large = False
        for folder in directories:
            try:
                status = call_with_timeout(filesystem.stat, folder)
                file_times = status.st_mtime_ns, status.st_ctime_ns
                large |= status.st_size >= LARGE_FOLDER
            except OSError:
                file_times = -1, -1
            except NoAnswer:
                file_times = self._times.get(folder, (-1, -1))
            times[folder] = file_times
            self._pending |= abs(now - file_times[0] / 1e9) < SETTLED
        self._pending |= times != self._times
        self._times = times
        if not self._pending or (large and monotonic() - self._reported_at < LARGE_FOLDER_SECONDS):
            return False
        self._pending, self._reported_at = False, monotonic()
        return True


# --- files that cannot be read ---------------------------------------------------------------

REPORT_AFTER: Final = 3.0
"""Seconds after which a pending call is reported; shorter delays are normal under load."""


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
        overdue = self.since is not None and abs(time.time() - self.since) >= REPORT_AFTER
        return self.reason != NO_REPLY or overdue

    def message(self, subject: str) -> str:
        """Format the error; ``subject``: the file's name or kind."""
        if self.since is None:
            return f"{subject} cannot be read: {self.reason}"
        since = f"since {clock_time(self.since)}"
        if self.reason == NO_REPLY:
            return f"{subject}: {self.reason} {since}{duration_suffix(self.since)}"
        if self.missing:
            return f"{subject} is gone {since}; what was read before stays"
        return f"{subject} cannot be read {since}: {self.reason}"


def duration_suffix(since: float) -> str:
    """Format the time since ``since``; empty below one minute."""
    seconds = abs(time.time() - since)
    return f" ({age(seconds)})" if seconds >= MINUTE else ""


class FileErrors:
    """The errors of some files, by name."""

    def __init__(self) -> None:
        self._errors: dict[str, FileError] = {}

    def update(
        self, name: str, follower: Follower, reason: str | None, missing: bool = False
    ) -> None:
        """Set the reason why a file is unreadable; None if it is readable."""
        known = self._errors.get(name)
        if reason is None:
            self._errors.pop(name, None)
        elif known is None or (known.reason, known.missing) != (reason, missing):
            since = known.since if known is not None else time.time()
            self._errors[name] = FileError(
                name, reason, since if follower.was_readable else None, missing
            )

    def reportable(self) -> list[FileError]:
        return [error for error in self._errors.values() if error.is_reportable]


# --- event logs -------------------------------------------------------------------------------


YEARLESS_HEADER: Final = re.compile(rb"\d{3} \([-\d.]+\) \d\d/\d\d ")
"""An event header whose date has no year."""

UNWRITTEN_SECONDS: Final = 60.0
"""Seconds after a write for which zeros in a file may be data that is not visible yet: NFS clients
hold back pages for up to 30 s."""


class LogReader:
    """Reader of one event log: its follower, position and role.

    ``now``: the clock of the log's machine, in seconds since 1970.
    """

    def __init__(self, log: LogFile, now: Callable[[], float]) -> None:
        self.log = log
        self._now = now
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
        """Whether nothing of it has been read yet, and its dates have no years."""
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
            at_end, endless = len(data) < size, size >= MAX_EVENT_BYTES
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
        """Read the rest of an event before a long run of NULs, as in a sparse file."""
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

        Another NFS client sees a file's new size before the bytes, with zeros in their place;
        zeros in an older file are damage, and stay.
        """
        hole = data.find(b"\0")
        age = self._now() - self.follower.mtime
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
        """Infer the year of a log without years from other files and its own age."""
        if (
            self._year is None
            and self.position.offset == 0
            and YEARLESS_HEADER.match(data.lstrip())
        ):
            written = clock.local_or_machine_time(self.follower.mtime) or datetime.max
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
    """Whether a piece ends in more NULs than the damage of a block leaves."""
    return len(data) >= CHUNK and data.endswith(bytes(CHUNK // 2))
