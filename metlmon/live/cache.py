"""Caches the events of large logs: safe to delete, and validated before use.

An entry has the log's events up to an offset, as the model stores them, without secrets. Opening
a dagdir applies them again and reads the log from that offset. It is valid for one version of the
parser and one time zone, and while the log is unchanged up to the offset (:class:`FileMark`).

The user's cache directory is ``$XDG_CACHE_HOME/metlmon``, else ``~/.cache/metlmon``. An invalid
entry or directory counts as none. If two processes write the same entry, the last one wins.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path
from typing import Any, Final
from zlib import adler32, crc32

from msgspec import MsgspecError, Struct, msgpack
from msgspec.structs import replace

from metlmon.config.loader import cache_directory
from metlmon.eventlog import Event, ImageSizes, LogWarning, Position
from metlmon.live.discovery import LogFile
from metlmon.live.follower import FINGERPRINT, Follower
from metlmon.model.event_store import StringTable, pack_event, unpack_event
from metlmon.model.job_events import AD_ATTRIBUTE_EVENTS, without_environment
from metlmon.model.model_state import Batch
from metlmon.remote import filesystem

MIN_NEW_SHARE: Final = 0.02
"""Share of a log that must be new before its entry is written again."""

BODY_LIMIT: Final = 64 << 10
"""Characters cached of an event's body: it may name DAGMan's job behind other attributes."""

MAX_FULL_COMPARE: Final = 4 << 20
"""Bytes up to which a log is compared completely, in some milliseconds."""

SAMPLES: Final = 64
SAMPLE_BYTES: Final = 4096
"""Samples of a larger log, including both ends: a slow file system reads them in 0.1 s."""

CODE: Final = ("eventlog", "live", "model", "redact.py")
"""The packages and modules that determine the events of a log."""


class FileMark(Struct, frozen=True, array_like=True):
    """Identifies a log of which ``offset`` bytes have been read.

    Compared are the inode, the bytes up to the offset (of a large log, samples of them), and for a
    log that has not grown its size and mtime. A change in a log that has also grown, which
    preserves the inode and all samples, goes unnoticed: no program that writes logs makes one.
    """

    offset: int
    inode: int
    size: int
    mtime_ns: int
    digest: bytes

    def matches(self, now: FileMark) -> bool:
        """Whether the log with the mark ``now``, at the same offset, continues this one."""
        same = (now.offset, now.inode, now.digest) == (self.offset, self.inode, self.digest)
        return same and (
            now.size > self.size or (now.size, now.mtime_ns) == (self.size, self.mtime_ns)
        )


def mark_file(path: Path, offset: int) -> tuple[FileMark, bytes]:
    """The mark of a log of which ``offset`` bytes were read, and its first bytes.

    Raises CacheMiss if it is no regular file, or shorter; OSError.
    """
    with filesystem.open_file(path) as file:
        status = file.status
        if not stat.S_ISREG(status.st_mode) or status.st_size < offset:
            raise CacheMiss("not the log that was read")
        digest = file.digest(_compared_ranges(offset))
        start_bytes = file.pread(min(FINGERPRINT, offset), 0)
    mark = FileMark(
        offset=offset,
        inode=status.st_ino,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        digest=bytes.fromhex(digest),
    )
    return mark, start_bytes


def _compared_ranges(offset: int) -> list[tuple[int, int]]:
    if offset <= MAX_FULL_COMPARE:
        return [(0, offset)]
    last = offset - SAMPLE_BYTES
    return [(last * i // (SAMPLES - 1), SAMPLE_BYTES) for i in range(SAMPLES)]


@cache
def parser_version() -> str:
    """Return a digest of the code that determines the events of a log."""
    from hashlib import blake2b

    package = Path(__file__).parents[1]
    digest = blake2b(repr(sys.version_info[:2]).encode(), digest_size=16)
    for name in CODE:
        path = package / name
        for file in sorted(path.glob("*.py")) if path.is_dir() else (path,):
            digest.update(file.read_bytes())
    return digest.hexdigest()


# --- events as plain data -------------------------------------------------------------------


class LogFragment(Struct, frozen=True, array_like=True):
    """The events of one part of a log, ``length`` bytes long.

    ``content``: an encoded :class:`FragmentContent`, decoded when it is applied.
    """

    length: int
    content: bytes


class FragmentContent(Struct, frozen=True, array_like=True):
    """What a reader returned for one part of a log.

    ``events``: cluster, proc, subproc, whether the time is in UTC, and the result of
    :func:`metlmon.model.event_store.pack_event` with ``strings``.
    """

    strings: list[str]
    events: list[tuple[int, int, int, bool, Any]]
    images: tuple[ImageSizes, ...]
    warnings: tuple[LogWarning, ...]
    first: datetime | None
    last: datetime | None


class CachedLog(Struct, frozen=True, array_like=True):
    """One entry of the cache: the events of the log at ``path`` up to ``position``.

    ``zone``: the time zone set when it was read; ``year``: of the first event, in a log that
    writes none.
    """

    version: str
    path: bytes
    zone: str
    mark: FileMark
    position: Position
    year: int | None
    fragments: list[LogFragment]


_encode: Final = msgpack.Encoder().encode
_decode_content: Final = msgpack.Decoder(FragmentContent).decode
_decode_log: Final = msgpack.Decoder(CachedLog).decode


def pack_fragment(batch: Batch, warnings: Iterable[LogWarning], length: int) -> LogFragment:
    """Pack the events that a reader returned for ``length`` bytes of a log.

    Raises ValueError or OverflowError for a number or a text that msgpack cannot contain.
    """
    strings = StringTable()
    content = FragmentContent(
        strings=strings.by_number,
        events=[_plain_event(event, strings) for event in batch.events],
        images=tuple(batch.images),
        warnings=tuple(warnings),
        first=batch.first,
        last=batch.last,
    )
    return LogFragment(length, _encode(content))


def _plain_event(event: Event, strings: StringTable) -> tuple[int, int, int, bool, Any]:
    if event.number in AD_ATTRIBUTE_EVENTS:
        event = without_environment(event)
    in_utc = event.time.tzinfo is not None
    if in_utc:
        event = replace(event, time=event.time.astimezone(UTC).replace(tzinfo=None))
    plain = pack_event(event, strings, BODY_LIMIT)
    return event.cluster, event.proc, event.subproc, in_utc, plain


def unpack_fragment(fragment: LogFragment, log: LogFile) -> tuple[Batch, tuple[LogWarning, ...]]:
    """Return the events of a fragment of ``log``, and its warnings."""
    content = _decode_content(fragment.content)
    strings = StringTable(content.strings)
    events = []
    for cluster, proc, subproc, in_utc, plain in content.events:
        event = unpack_event(plain, cluster, proc, subproc, strings)
        events.append(replace(event, time=event.time.replace(tzinfo=UTC)) if in_utc else event)
    batch = Batch(
        file=log.name,
        role=log.role,
        events=events,
        dag=log.dag,
        images=content.images,
        first=content.first,
        last=content.last,
    )
    return batch, content.warnings


def entry_name(path: bytes) -> str:
    """Return the name of the entry of the log with the real path ``path``."""
    return f"{crc32(path):08x}{adler32(path):08x}"


def load_entry(cache: Cache, path: bytes) -> CachedLog:
    """Load the entry of the log at the real path ``path``. Raises CacheMiss, OSError."""
    try:
        entry = _decode_log(cache.read(entry_name(path)))
    except (MsgspecError, ValueError) as error:
        raise CacheMiss(str(error)) from error
    if (entry.version, entry.path) != (parser_version(), path):
        raise CacheMiss("of another version, or of another log")
    return entry


# --- one log ---------------------------------------------------------------------------------


class LogCache:
    """The cached events of one log: those to apply, and those to be written.

    Its methods never raise because of a broken cache.
    """

    def __init__(self, cache: Cache, path: Path, zone: tzinfo | None) -> None:
        self._cache = cache
        self._path = path
        self._key = os.fsencode(filesystem.realpath(path))
        self._zone = str(zone or "")
        self._unapplied: deque[LogFragment] = deque()
        self._new: list[LogFragment] = []
        self._cached_offset = self._end = 0
        self.unapplied_bytes = 0
        """Bytes of the log whose events :meth:`next_batch` has not returned yet."""

    def load(self) -> tuple[CachedLog, bytes] | None:
        """Load the entry if it is valid, with the first bytes of the log."""
        # An invalid entry counts as none.
        with suppress(CacheMiss, OSError):
            entry = load_entry(self._cache, self._key)
            mark, start_bytes = mark_file(self._path, entry.mark.offset)
            if entry.zone == self._zone and entry.mark.matches(mark):
                self._unapplied.extend(entry.fragments)
                self._cached_offset = self._end = self.unapplied_bytes = mark.offset
                return entry, start_bytes
        return None

    def next_batch(self, log: LogFile) -> tuple[Batch, tuple[LogWarning, ...]]:
        """Return the next cached events, and forget them.

        Raises CacheMiss, and removes the entry, if they are malformed.
        """
        fragment = self._unapplied.popleft()
        self.unapplied_bytes -= fragment.length
        try:
            return unpack_fragment(fragment, log)
        except Exception as error:
            # Invalid data can raise any exception.
            self._cache.remove(entry_name(self._key))
            raise CacheMiss(str(error)) from error

    def record(self, batch: Batch, warnings: Iterable[LogWarning], start: int, end: int) -> None:
        """Record the events of the bytes from ``start`` to ``end``, to be written later.

        Only what follows the cached and recorded events is recorded.
        """
        if start == self._end:
            # A number or text that msgpack cannot contain ends the recording.
            with suppress(ValueError, OverflowError):
                self._new.append(pack_fragment(batch, warnings, end - start))
                self._end = end

    def clear(self) -> None:
        """Forget all events: the log has been replaced."""
        self._unapplied.clear()
        self._new.clear()
        self._cached_offset = self._end = self.unapplied_bytes = 0

    def take_write(
        self, follower: Follower, position: Position, year: int | None
    ) -> CacheWrite | None:
        """Return the write of the recorded events, for any thread; None if it is not due."""
        new_bytes = self._end - self._cached_offset
        if self._end != position.offset or new_bytes <= MIN_NEW_SHARE * self._end:
            return None
        try:
            mark, start_bytes = mark_file(follower.path, self._end)
        except (CacheMiss, OSError):
            return None
        if not follower.follows(mark.inode, start_bytes):
            return None
        entry = CachedLog(
            version=parser_version(),
            path=self._key,
            zone=self._zone,
            mark=mark,
            position=position,
            year=year,
            fragments=self._new,
        )
        write = CacheWrite(self._cache, entry, self._cached_offset)
        self._new, self._cached_offset = [], self._end
        return write


class CacheWrite(Struct, frozen=True):
    """An entry to be written; ``entry``: the events after the first ``start`` bytes."""

    cache: Cache
    entry: CachedLog
    start: int

    def write(self) -> bool:
        """Write the entry; return False if that fails, which needs no report."""
        entry = self.entry
        try:
            if self.start:
                before = load_entry(self.cache, entry.path)
                if (before.mark.offset, before.mark.inode, before.zone) != (
                    self.start,
                    entry.mark.inode,
                    entry.zone,
                ):
                    return False
                entry = replace(entry, fragments=before.fragments + entry.fragments)
            return self.cache.write(entry_name(entry.path), _encode(entry))
        except (CacheMiss, OSError):
            return False


# --- files of the cache ----------------------------------------------------------------------

ENTRY_SUFFIX: Final = ".events"
UNFINISHED_SUFFIX: Final = ".new"

MIN_LOG_BYTES: Final = 5 << 20
"""Size of the smallest log that is cached: a smaller one is parsed in 0.2 s."""

MAX_ENTRY_BYTES: Final = 256 << 20
MAX_CACHE_BYTES: Final = 512 << 20
MAX_ENTRIES: Final = 100
"""Limits beyond which the least recently used entries are removed."""

MIN_FREE_BYTES: Final = 1 << 30
"""Bytes left free on the disk."""

ABANDONED_SECONDS: Final = 3600.0
"""Age after which an unfinished file is removed."""

CHECKSUM_BYTES: Final = 4


class CacheMiss(Exception):
    """An entry is absent or invalid."""


def user_cache() -> Cache | None:
    """Return the user's cache; None if there is no home."""
    directory = cache_directory()
    return Cache(directory) if directory is not None else None


class Cache:
    """The entries in one directory, which is created with the first of them.

    ``min_log_bytes``: size of the smallest log that is cached.
    """

    def __init__(self, directory: Path, min_log_bytes: int = MIN_LOG_BYTES) -> None:
        self.directory = directory
        self.min_log_bytes = min_log_bytes

    def lies_in(self, dagdir: Path) -> bool:
        """Whether the cache is inside the dagdir, which is never written to."""
        try:
            return Path(os.path.realpath(self.directory)).is_relative_to(os.path.realpath(dagdir))
        except OSError:
            # The current directory is gone, so relative paths cannot be resolved.
            return True

    def read(self, name: str) -> bytes:
        """Return the content of an entry that only its owner can have written.

        Raises CacheMiss, OSError.
        """
        if not _is_private(os.stat(self.directory)):
            raise CacheMiss("others may write into its directory")
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self._path(name), flags), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            is_usable = stat.S_ISREG(status.st_mode) and status.st_size <= MAX_ENTRY_BYTES
            if not (is_usable and _is_private(status)):
                raise CacheMiss("not a file of the user's own")
            data = file.read()
            # Marks the entry as recently used.
            with suppress(OSError):
                os.utime(file.fileno())
        content = data[CHECKSUM_BYTES:]
        if data[:CHECKSUM_BYTES] != _checksum(content):
            raise CacheMiss("its checksum is wrong")
        return content

    def write(self, name: str, content: bytes) -> bool:
        """Replace an entry; return whether that succeeded. If not, the old one stays."""
        try:
            self._make_directory()
            space = os.statvfs(self.directory)
            free_bytes = space.f_bavail * space.f_frsize - MIN_FREE_BYTES
            if len(content) + CHECKSUM_BYTES > min(MAX_ENTRY_BYTES, free_bytes):
                return False
            unique = f"{os.getpid()}.{os.urandom(4).hex()}"
            draft = self.directory / f".{name}.{unique}{UNFINISHED_SUFFIX}"
            try:
                self._write_draft(draft, content)
                os.replace(draft, self._path(name))
            finally:
                # After success it does not exist any more.
                with suppress(OSError):
                    os.unlink(draft)
            self._tidy()
        except OSError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove an entry, if it exists."""
        with suppress(OSError):
            os.unlink(self._path(name))

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}{ENTRY_SUFFIX}"

    def _write_draft(self, path: Path, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:
            # Regardless of the umask.
            os.fchmod(file.fileno(), 0o600)
            file.write(_checksum(content))
            file.write(content)

    def _make_directory(self) -> None:
        """Create the directory, for the user only. Raises OSError."""
        missing = [path for path in (self.directory, *self.directory.parents) if not path.exists()]
        for path in reversed(missing):
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
                # Regardless of the umask.
                path.chmod(0o700)
        status = os.stat(self.directory)
        if status.st_uid != os.geteuid():
            raise PermissionError("somebody else's directory")
        if status.st_mode & 0o777 != 0o700:
            os.chmod(self.directory, 0o700)

    def _tidy(self) -> None:
        """Enforce the limits; other files in the directory are left alone. Raises OSError."""
        entries, abandoned = [], time.time() - ABANDONED_SECONDS
        with os.scandir(self.directory) as directory_entries:
            for entry in directory_entries:
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    continue
                if entry.name.endswith(ENTRY_SUFFIX):
                    entries.append((status.st_mtime_ns, status.st_size, entry.path))
                elif entry.name.endswith(UNFINISHED_SUFFIX) and status.st_mtime < abandoned:
                    os.unlink(entry.path)
        total = 0
        for number, (_, size, path) in enumerate(sorted(entries, reverse=True), start=1):
            total += size
            if total > MAX_CACHE_BYTES or number > MAX_ENTRIES:
                os.unlink(path)


def _checksum(content: bytes) -> bytes:
    return crc32(content).to_bytes(CHECKSUM_BYTES, "little")


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022
