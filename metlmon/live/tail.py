"""Reads the last lines of a job's output files, as untrusted input.

Their names come from a submit description that may have been copied from anywhere: only
regular files inside the dagdir are opened, after resolving all links.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from metlmon.redact import redact_secrets

TAIL_BYTES: Final = 64 * 1024
"""Some hundred lines of a training's output; read within milliseconds, also over NFS."""

LINE_CHARACTERS: Final = 4000
"""Maximum length of a line: a progress bar without line ends can be megabytes."""

_SEQUENCES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
)
"""Terminal escape sequences: CSI, OSC, and two-character ones."""


class UnreadableFile(Exception):
    """A file was not read; ``str()`` is the reason."""


def output_file(dagdir: Path, name: str) -> Path:
    """Return the resolved path of an output file inside ``dagdir``.

    ``name``: as in the submit description, with macros expanded. Raises :class:`NotRead` if the
    file is elsewhere, missing, or not a regular file.
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
    those bytes is omitted. Raises :class:`NotRead`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableFile(f"it cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFile("it is not a regular file")
        start = max(0, status.st_size - limit)
        # One more byte, to see whether the tail begins at the start of a line.
        content = os.pread(descriptor, min(limit, status.st_size) + (start > 0), max(0, start - 1))
    except OSError as error:
        raise UnreadableFile(f"it cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if start > 0:
        _, line_end, rest = content.partition(b"\n")
        content = rest if line_end else content[1:]
    text = content.decode("utf-8", "replace")
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [_as_displayed(line) for line in lines]


def _as_displayed(line: str) -> str:
    """Return a line as a terminal displays it after all its carriage returns."""
    pieces = _SEQUENCES.sub("", line).rstrip("\r").split("\r")
    displayed = pieces.pop()
    while pieces and len(displayed) < LINE_CHARACTERS:
        displayed += pieces.pop()[len(displayed) :]
    return redact_secrets(displayed)[:LINE_CHARACTERS]
