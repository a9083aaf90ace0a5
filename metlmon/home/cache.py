"""The user's cache: files that are safe to delete, and validated before use.

It is ``$XDG_CACHE_HOME/metlmon``, else ``~/.cache/metlmon``. An invalid entry or directory counts
as none. If two processes write the same entry, the last one wins.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from metlmon.config.loader import cache_directory

ENTRY_SUFFIX: Final = ".stored"
UNFINISHED_SUFFIX: Final = ".new"

MAX_ENTRY_BYTES: Final = 256 << 20

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
    """The entries in one directory, which is created with the first of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

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
            self._remove_abandoned()
        except OSError:
            return False
        return True

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

    def _remove_abandoned(self) -> None:
        """Remove drafts that a killed process left. Raises OSError."""
        abandoned = time.time() - ABANDONED_SECONDS
        for draft in self.directory.glob(f".*{UNFINISHED_SUFFIX}"):
            with suppress(FileNotFoundError):
                if draft.lstat().st_mtime < abandoned:
                    draft.unlink()


def _checksum(content: bytes) -> bytes:
    return crc32(content).to_bytes(CHECKSUM_BYTES, "little")


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022
