"""Cache files: safe to delete, and validated before use.

The user's cache directory is ``$XDG_CACHE_HOME/metlmon``, else ``~/.cache/metlmon``. An invalid
entry or directory counts as none. If two processes write the same entry, the last one wins.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

DIRECTORY_NAME: Final = "metlmon"
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
