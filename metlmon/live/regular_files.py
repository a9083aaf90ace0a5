"""Reads regular files only, as untrusted input: no pipe, device or kernel file.

Names of job output come from a submit description that may have been copied from anywhere: only
files inside the dagdir are opened, after resolving all links.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from metlmon.live.fs_timeout import call_with_timeout
from metlmon.redact import redact_secrets

MAX_DAG_FILE_BYTES: Final = 256 << 20
"""Bytes, ten times those of 100,000 nodes with their VARS."""

TAIL_BYTES: Final = 64 * 1024
"""Some hundred lines of a training's output; read within milliseconds, also over NFS."""

LINE_CHARACTERS: Final = 4000
"""Maximum length of a line: a progress bar without line ends can be megabytes."""

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_SEQUENCES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
)
"""Terminal escape sequences: CSI, OSC, and two-character ones."""

FileState = tuple[int, int, int]
"""Identifies an unchanged file: inode, size and mtime in nanoseconds."""


class UnreadableFile(Exception):
    """A file was not read; ``str()`` is the reason."""


# --- files that a DAG names: links are followed ---------------------------------------------


def read_regular_file(path: Path, largest: int = MAX_DAG_FILE_BYTES) -> bytes:
    """Read a regular file of at most ``largest`` bytes. Raises OSError for anything else."""
    return call_with_timeout(_content, path, largest)


def _content(path: Path, largest: int) -> bytes:
    with open_regular(path) as (descriptor, size):
        if size > largest:
            raise OSError(errno.EFBIG, "too large for a DAG or submit file", str(path))
        return _read(descriptor, size)


@contextmanager
def open_regular(path: Path) -> Iterator[tuple[int, int]]:
    """Open a regular file: its descriptor and size.

    Raises OSError for anything else without opening it, which may block for ever or rewind a tape.
    """
    not_regular = OSError(errno.EINVAL, "not a regular file", str(path))
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise not_regular
    descriptor = os.open(path, _FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise not_regular
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def _read(descriptor: int, size: int) -> bytes:
    """Read ``size`` bytes; none of a kernel file, which has size 0 and may block for ever."""
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(size) if size else b""


# --- files that jobs write: no link is followed ----------------------------------------------


def file_state(path: str) -> FileState | None:
    """Return the current state of a regular file; None if there is none."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def open_text(path: str, limit: int) -> TextIOWrapper:
    """Open a regular file as text, without translating line ends.

    Raises UnreadableFile for anything else, and if it is larger than ``limit`` bytes.
    """
    with _opened(path) as (descriptor, size):
        if size > limit:
            raise UnreadableFile(f"it is larger than {limit // 1_000_000} MB")
        return open(os.dup(descriptor), encoding="utf-8", errors="replace", newline="")


def read_file(path: str, limit: int) -> bytes:
    """Read a whole regular file.

    Raises UnreadableFile for anything else, and if it is larger than ``limit`` bytes.
    """
    with _opened(path) as (descriptor, size):
        if size > limit:
            raise UnreadableFile(f"it is larger than {limit:,} bytes")
        return _read(descriptor, size)


def read_file_end(path: str, limit: int) -> str:
    """Read the last ``limit`` bytes of a regular file as text. Raises UnreadableFile."""
    with _opened(path) as (descriptor, size):
        return os.pread(descriptor, min(limit, size), max(0, size - limit)).decode(
            "utf-8", "replace"
        )


@contextmanager
def _opened(path: str | Path) -> Iterator[tuple[int, int]]:
    """Open a regular file: its descriptor and size. Raises UnreadableFile, also for a link."""
    try:
        descriptor = os.open(path, _FLAGS | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableFile("it is not a regular file")
            yield descriptor, status.st_size
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UnreadableFile(f"it cannot be read: {error.strerror}") from error


def output_file(dagdir: Path, name: str) -> Path:
    """Return the resolved path of an output file inside ``dagdir``.

    ``name``: as in the submit description, with macros expanded. Raises :class:`UnreadableFile`
    if the file is elsewhere, missing, or not a regular file.
    """
    if "\0" in name or not name.strip():
        raise UnreadableFile("its name is empty or has a NUL")
    if os.path.isabs(name):
        raise UnreadableFile("it is outside this directory")
    try:
        base = dagdir.resolve()
        path = (base / name).resolve()
    except (OSError, RuntimeError) as error:
        raise UnreadableFile(f"its name leads nowhere ({type(error).__name__})") from error
    if not path.is_relative_to(base):
        raise UnreadableFile("it is outside this directory")
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError as error:
        raise UnreadableFile("there is no such file yet") from error
    except OSError as error:
        raise UnreadableFile(f"it cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise UnreadableFile("it is not a regular file")
    return path


def read_tail(path: Path, limit: int = TAIL_BYTES) -> list[str]:
    """Return the lines in the last ``limit`` bytes of a regular file, as displayed.

    Text overwritten after a carriage return and escape sequences are removed; other control
    characters remain, so the lines are not yet safe for a terminal. A line that begins before
    those bytes is omitted. Raises :class:`UnreadableFile`.
    """
    with _opened(path) as (descriptor, size):
        start = max(0, size - limit)
        # One more byte, to see whether the tail begins at the start of a line.
        content = os.pread(descriptor, min(limit, size) + (start > 0), max(0, start - 1))
    if start > 0:
        _, line_end, rest = content.partition(b"\n")
        content = rest if line_end else content[1:]
    lines = content.decode("utf-8", "replace").removesuffix("\n").split("\n")
    return [_as_displayed(line) for line in lines] if content else []


def _as_displayed(line: str) -> str:
    """Return a line as a terminal displays it after all its carriage returns."""
    pieces = _SEQUENCES.sub("", line).rstrip("\r").split("\r")
    displayed = pieces.pop()
    while pieces and len(displayed) < LINE_CHARACTERS:
        displayed += pieces.pop()[len(displayed) :]
    return redact_secrets(displayed)[:LINE_CHARACTERS]
