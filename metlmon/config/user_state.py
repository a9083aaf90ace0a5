"""What metlmon remembers for its user: private files, never in a dagdir.

State about a dagdir is in ``$XDG_STATE_HOME/metlmon`` (else ``~/.local/state/metlmon``), in one
folder per purpose, in a file named after the dagdir's real path. A damaged file counts as missing.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

MAX_STATE_BYTES: Final = 16 << 20
"""Size of a file beyond which it is neither read nor written."""

MAX_FILES: Final = 500
"""Maximum number of files for one purpose; those written longest ago are removed first."""

SUFFIX: Final = ".json"


def user_directory(variable: str, default: str) -> Path | None:
    """metlmon's directory in that of an XDG variable, else in ``default`` of the user's home.

    A relative path is ignored, as the XDG base directory specification demands; so is a relative
    home directory, which could be in a dagdir. None without a home directory.
    """
    base = os.environ.get(variable, "")
    try:
        home = Path(base) if os.path.isabs(base) else Path.home() / default
    except (RuntimeError, ValueError):
        return None
    return home / "metlmon" if home.is_absolute() else None


def state_directory() -> Path | None:
    """The directory of the user's state, existing or not; None without a home directory."""
    return user_directory("XDG_STATE_HOME", ".local/state")


def state_path(purpose: str, dagdir: Path) -> Path | None:
    """The file of a dagdir for a purpose; None without a home, or inside the dagdir."""
    directory = state_directory()
    if directory is None:
        return None
    try:
        real = os.path.realpath(dagdir)
        if Path(os.path.realpath(directory)).is_relative_to(real):
            return None
    except OSError:
        return None  # The current directory is gone, so relative paths cannot be resolved.
    import hashlib  # Imported here: the first frame of the dashboard does not wait for it.

    name = hashlib.sha256(os.fsencode(real)).hexdigest()[:32]
    return directory / purpose / f"{name}{SUFFIX}"


def read_state(path: Path | None, kind: type[T]) -> T | None:
    """The content of a file; None unless it is one that only the user can have written."""
    if path is None:
        return None
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            is_private = status.st_uid == os.geteuid() and not status.st_mode & 0o022
            if not (stat.S_ISREG(status.st_mode) and is_private):
                return None
            return msgspec.json.decode(file.read(MAX_STATE_BYTES), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def write_state(path: Path | None, value: Any) -> bool:
    """Replace the content of a file; return whether that succeeded. Else the old one stays."""
    if path is None or len(content := msgspec.json.encode(value)) > MAX_STATE_BYTES:
        return False
    draft = path.with_name(f".{os.getpid()}.{os.urandom(4).hex()}{SUFFIX}")
    try:
        _make_directory(path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            with open(os.open(draft, flags, 0o600), "wb") as file:
                file.write(content)
            os.replace(draft, path)
        finally:
            # After success the draft does not exist any more.
            with suppress(OSError):
                os.unlink(draft)
        _remove_oldest(path.parent)
    except OSError:
        return False
    return True


@contextmanager
def state_lock(path: Path) -> Iterator[bool]:
    """Hold the lock of a file; yield False if another process holds it. Ends with the process.

    If a lock cannot be created, as in a read-only home, it counts as held. All files share 256
    locks, which are never removed, since they might be in use.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        _make_directory(path.parent)
        descriptor = os.open(path.with_name(f"lock-{path.name[:2]}"), flags, 0o600)
    except OSError:
        yield True
        return
    is_held = True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        is_held = False
    except OSError:
        pass  # A file system without locks.
    try:
        yield is_held
    finally:
        os.close(descriptor)


def _make_directory(directory: Path) -> None:
    """Create a directory for the user only. Raises OSError."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)


def _remove_oldest(directory: Path) -> None:
    with os.scandir(directory) as entries:
        files = [entry for entry in entries if entry.name.endswith(SUFFIX)]
    if len(files) <= MAX_FILES:
        return
    files.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
    for entry in files[:-MAX_FILES]:
        os.unlink(entry.path)
