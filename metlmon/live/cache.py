"""The user's cache directory: files that may be lost, and are never believed unseen.

``$XDG_CACHE_HOME/metlmon``, else ``~/.cache/metlmon``. Whatever is wrong with an entry, or with
the directory, is no entry: nobody is told, and the logs are read instead. Two programs may write
one entry at the same time: the last one wins.
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

NAME: Final = "metlmon"
ENDING: Final = ".kept"
UNFINISHED: Final = ".new"

GREATEST_ENTRY: Final = 256 << 20
"""Bytes of one entry: what a log of several gigabytes comes to."""

GREATEST_CACHE: Final = 512 << 20
MOST_ENTRIES: Final = 100
"""Beyond these the entries that were used longest ago go."""

LEFT_FREE: Final = 1 << 30
"""Bytes that stay free on the disk: a cache is the last that may fill it."""

ABANDONED_SECONDS: Final = 3600.0
"""An unfinished file that was not written to for this long is nobody's any more."""


STARTED: Final = time.time()
"""When this code was loaded, or a little later: files of it that are younger are not of it."""


class CacheMiss(Exception):
    """An entry is not what it should be, or cannot be made."""


def cache_directory() -> Path | None:
    """Where the cache lies, whether it is there or not; None where there is no place for one."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # By the specification a relative path is to be ignored.
        home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    except (RuntimeError, ValueError):
        return None
    return home / NAME if home.is_absolute() else None


def user_cache() -> Cache | None:
    """The user's own, None where there is no place for one."""
    directory = cache_directory()
    return Cache(directory) if directory is not None else None


@frozen
class CacheKey:
    """What an entry is of. ``key``: the dagdir, the one DAG file that was asked for, and the
    settings that decide what is learnt from a log; all others are asked when a picture is
    drawn. ``name``: the file's, in which people recognise their dagdir."""

    name: str
    key: tuple[str, ...]


def entry_of(dagdir: Path, only: str | None, settings: Settings, kind: str = "logs") -> CacheKey:
    """``only``: the one DAG file that was asked for; ``kind``: what is kept of them."""
    key: tuple[str, ...] = (kind, os.path.realpath(dagdir), only or "")
    if kind == "logs":
        codes = ",".join(map(str, sorted(settings.checkpoint_codes)))
        key = (*key, str(settings.zone or ""), codes)
    else:
        # Workflows have paths as the dagdir was given.
        key = (*key, str(dagdir))
    known = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(key[1]).name)[:40]
    told = "\0".join(key).encode("utf-8", "surrogateescape")
    # No digest: the key stands in the file as well, and hashlib takes 3 ms to load.
    return CacheKey(f"{known}-{kind}-{crc32(told):08x}{adler32(told):08x}", key)


class Cache:
    """Entries by name in one directory, which is made when the first is written."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def lies_in(self, dagdir: Path) -> bool:
        """A dagdir is never written to."""
        try:
            return Path(os.path.realpath(self.directory)).is_relative_to(os.path.realpath(dagdir))
        except OSError:
            # The current directory is gone: nobody knows where its names lead.
            return True

    def has(self, name: str) -> bool:
        """Is it worth while to open this entry?"""
        return os.path.exists(self._path(name))

    def records(self, name: str) -> Iterator[Any]:
        """The records of an entry, in their order. Raises Spoilt or OSError as soon as
        anything is wrong: what was read before that is not to be believed either."""
        # With pickle and hashlib this takes 5 ms, which small dagdirs need not pay.
        from metlmon.live.cache_records import read_records

        with self._opened(name) as file:
            yield from read_records(file, os.fstat(file.fileno()).st_size)
            # By this the entries that were used longest ago are known.
            with suppress(OSError):
                os.utime(file.fileno())

    def write(self, name: str, records: Iterable[object]) -> bool:
        """Put an entry in the place of the one of this name. False when that cannot be done
        or it would be too large: then the old one stays."""
        from metlmon.live.cache_records import write_records

        try:
            self._make_directory()
            space = os.statvfs(self.directory)
            most = min(GREATEST_ENTRY, space.f_bavail * space.f_frsize - LEFT_FREE)
            beside = self.directory / f".{name}.{os.getpid()}.{os.urandom(4).hex()}{UNFINISHED}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(beside, flags, 0o600)
            os.fchmod(handle, 0o600)
        except OSError:
            return False
        try:
            with open(handle, "wb") as file:
                write_records(file, records, most)
            os.replace(beside, self._path(name))
        except (OSError, CacheMiss):
            return False
        finally:
            # Gone when all went well.
            with suppress(OSError):
                os.unlink(beside)
        self._tidy()
        return True

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}{ENDING}"

    def _opened(self, name: str) -> BinaryIO:
        """An entry's file, if it is one that only its owner can have written."""
        if not _own(os.stat(self.directory)):
            raise CacheMiss("others may write into its directory")
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self._path(name), flags)
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and _own(status) and status.st_size <= GREATEST_ENTRY:
            return open(handle, "rb")
        os.close(handle)
        raise CacheMiss("not a file of the user's own")

    def _make_directory(self) -> None:
        """For the user alone. Raises OSError."""
        missing = [each for each in (self.directory, *self.directory.parents) if not each.exists()]
        for each in reversed(missing):
            with suppress(FileExistsError):
                each.mkdir(mode=0o700)
                # Whatever the user's mask takes away.
                each.chmod(0o700)
        status = os.stat(self.directory)
        if status.st_uid != os.geteuid():
            raise PermissionError("somebody else's directory")
        if status.st_mode & 0o777 != 0o700:
            os.chmod(self.directory, 0o700)

    def _tidy(self) -> None:
        """Keep within bounds; what is not of the cache's making is left alone."""
        with suppress(OSError):
            total = 0
            for number, (_, size, path) in enumerate(self._newest_first(), start=1):
                total += size
                if total > GREATEST_CACHE or number > MOST_ENTRIES:
                    os.unlink(path)

    def _newest_first(self) -> list[tuple[int, int, str]]:
        """When each entry was used last, its size and path; what nobody finished is removed."""
        entries = []
        abandoned = time.time() - ABANDONED_SECONDS
        with os.scandir(self.directory) as found:
            for each in found:
                status = each.stat(follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    continue
                if each.name.endswith(ENDING):
                    entries.append((status.st_mtime_ns, status.st_size, each.path))
                elif each.name.endswith(UNFINISHED) and status.st_mtime < abandoned:
                    os.unlink(each.path)
        return sorted(entries, reverse=True)


def _own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022
