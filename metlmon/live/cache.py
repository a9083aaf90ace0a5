"""Cache files: safe to delete, and validated before use.

The user's cache directory is ``$XDG_CACHE_HOME/metlmon``, else ``~/.cache/metlmon``. An invalid
entry or directory is silently ignored, and the logs are read instead. If two processes write the
same entry, the last one wins.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final
from zlib import adler32, crc32

from metlmon.frozen import frozen
from metlmon.model.settings import Settings

DIRECTORY_NAME: Final = "metlmon"
ENTRY_SUFFIX: Final = ".kept"
UNFINISHED_SUFFIX: Final = ".new"

GREATEST_ENTRY: Final = 256 << 20
"""Maximum size of one entry, that of a log of several gigabytes."""

GREATEST_CACHE: Final = 512 << 20
MOST_ENTRIES: Final = 100
"""Limits beyond which the least recently used entries are removed."""

LEFT_FREE: Final = 1 << 30
"""Bytes left free on the disk, which a cache must not fill."""

ABANDONED_SECONDS: Final = 3600.0
"""Age after which an unfinished file is removed."""


STARTED: Final = time.time()
"""Load time of this code, or slightly later: newer source files are not the loaded ones."""


class CacheMiss(Exception):
    """An entry is absent or invalid, or cannot be written."""


def cache_directory() -> Path | None:
    """Return the cache directory, existing or not; None if there is no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification requires that a relative path is ignored.
        home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    except (RuntimeError, ValueError):
        return None
    return home / DIRECTORY_NAME if home.is_absolute() else None


def user_cache() -> Cache | None:
    """Return the user's cache; None if there is no home."""
    directory = cache_directory()
    return Cache(directory) if directory is not None else None


@frozen
class CacheKey:
    """Identifies an entry.

    ``key``: the dagdir, the one DAG file wanted, and the settings used for reading logs; all
    others only affect snapshots. ``name``: the file name, which contains that of the dagdir.
    """

    name: str
    key: tuple[str, ...]


def entry_of(dagdir: Path, only: str | None, settings: Settings, kind: str = "logs") -> CacheKey:
    """Return the key of an entry.

    ``only``: the one DAG file wanted; ``kind``: of the cached data.
    """
    key: tuple[str, ...] = (kind, os.path.realpath(dagdir), only or "")
    if kind == "logs":
        codes = ",".join(map(str, sorted(settings.checkpoint_codes)))
        key = (*key, str(settings.zone or ""), codes)
    else:
        # Workflows contain paths that begin with the dagdir as given.
        key = (*key, str(dagdir))
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(key[1]).name)[:40]
    key_bytes = "\0".join(key).encode("utf-8", "surrogateescape")
    # No digest: the file contains the key too, and hashlib takes 3 ms to load.
    return CacheKey(f"{readable}-{kind}-{crc32(key_bytes):08x}{adler32(key_bytes):08x}", key)


class Cache:
    """Entries by name in one directory, created with the first entry."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def lies_in(self, dagdir: Path) -> bool:
        """Whether the cache is inside the dagdir, which is never written to."""
        try:
            return Path(os.path.realpath(self.directory)).is_relative_to(os.path.realpath(dagdir))
        except OSError:
            # The current directory is gone, so relative paths cannot be resolved.
            return True

    def has(self, name: str) -> bool:
        """Whether an entry exists."""
        return os.path.exists(self._path(name))

    def records(self, name: str) -> Iterator[Any]:
        """Yield the records of an entry in order.

        Raises CacheMiss or OSError if anything is wrong; records read before that are invalid too.
        """
        # With pickle and hashlib this takes 5 ms, which small dagdirs need not spend.
        from metlmon.live.cache_records import read_records

        with self._open_entry(name) as file:
            yield from read_records(file, os.fstat(file.fileno()).st_size)
            # Marks the entry as recently used.
            with suppress(OSError):
                os.utime(file.fileno())

    def write(self, name: str, records: Iterable[object]) -> bool:
        """Replace an entry; return whether that succeeded.

        If it fails, or the new entry would be too large, the old one stays.
        """
        from metlmon.live.cache_records import write_records

        try:
            self._make_directory()
            space = os.statvfs(self.directory)
            max_bytes = min(GREATEST_ENTRY, space.f_bavail * space.f_frsize - LEFT_FREE)
            draft = (
                self.directory / f".{name}.{os.getpid()}.{os.urandom(4).hex()}{UNFINISHED_SUFFIX}"
            )
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(draft, flags, 0o600)
            os.fchmod(descriptor, 0o600)
        except OSError:
            return False
        try:
            with open(descriptor, "wb") as file:
                write_records(file, records, max_bytes)
            os.replace(draft, self._path(name))
        except (OSError, CacheMiss):
            return False
        finally:
            # After success it does not exist any more.
            with suppress(OSError):
                os.unlink(draft)
        self._tidy()
        return True

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}{ENTRY_SUFFIX}"

    def _open_entry(self, name: str) -> BinaryIO:
        """Open an entry's file, if only its owner can have written it."""
        if not _is_private(os.stat(self.directory)):
            raise CacheMiss("others may write into its directory")
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path(name), flags)
        status = os.fstat(descriptor)
        if (
            stat.S_ISREG(status.st_mode)
            and _is_private(status)
            and status.st_size <= GREATEST_ENTRY
        ):
            return open(descriptor, "rb")
        os.close(descriptor)
        raise CacheMiss("not a file of the user's own")

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
        """Enforce the limits; other files in the directory are left alone."""
        with suppress(OSError):
            total = 0
            for number, (_, size, path) in enumerate(self._entries_newest_first(), start=1):
                total += size
                if total > GREATEST_CACHE or number > MOST_ENTRIES:
                    os.unlink(path)

    def _entries_newest_first(self) -> list[tuple[int, int, str]]:
        """Return last use, size and path of the entries; remove unfinished files."""
        entries = []
        abandoned = time.time() - ABANDONED_SECONDS
        with os.scandir(self.directory) as directory_entries:
            for entry in directory_entries:
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    continue
                if entry.name.endswith(ENTRY_SUFFIX):
                    entries.append((status.st_mtime_ns, status.st_size, entry.path))
                elif entry.name.endswith(UNFINISHED_SUFFIX) and status.st_mtime < abandoned:
                    os.unlink(entry.path)
        return sorted(entries, reverse=True)


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022
