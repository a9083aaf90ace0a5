"""The last lines of a job's output files, read without trusting their names or their bytes.

The names come from a submit description that may have been copied from anywhere: only
regular files inside the dagdir are opened, whatever links lie on the way.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from metlmon.redact import redact_secrets

TAIL_BYTES: Final = 64 * 1024
"""Some hundred lines of a training's output; a read of milliseconds, also over NFS."""

LINE_CHARACTERS: Final = 4000
"""A line is cut behind so many characters: a progress bar without line ends can be megabytes."""

_SEQUENCES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
)
"""Terminal sequences (CSI, OSC, and the short ones): colours of a log mean nothing here."""


class NotRead(Exception):
    """A file that was not read; ``str()`` is a sentence that says why."""


def output_file(dagdir: Path, name: str) -> Path:
    """The file that a submit description names, where it may be read.

    ``name`` is as the description gives it, macros filled in. Returns a resolved path of a
    file inside ``dagdir``. Raises :class:`NotRead` when it lies elsewhere or is not there.
    """
    if "\0" in name or not name.strip():
        raise NotRead("its name is empty or has a NUL")
    if os.path.isabs(name):
        raise NotRead("it is outside this directory")
    try:
        base = dagdir.resolve()
        found = (base / name).resolve()
    except (OSError, RuntimeError) as problem:
        raise NotRead(f"its name leads nowhere ({type(problem).__name__})") from problem
    if not found.is_relative_to(base):
        raise NotRead("it is outside this directory")
    try:
        mode = found.lstat().st_mode
    except FileNotFoundError as problem:
        raise NotRead("there is no such file yet") from problem
    except OSError as problem:
        raise NotRead(f"it cannot be read: {problem.strerror}") from problem
    if not stat.S_ISREG(mode):
        raise NotRead("it is not a regular file")
    return found


def read_tail(path: Path, limit: int = TAIL_BYTES) -> list[str]:
    """The lines in the last ``limit`` bytes of a regular file, as a terminal would leave them:
    what a carriage return wrote over is gone, and so are escape sequences. Everything else
    is as the job wrote it, and still not to be trusted on a terminal.

    A line that began before those bytes is left out. Raises :class:`NotRead`.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as problem:
        raise NotRead(f"it cannot be read: {problem.strerror}") from problem
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise NotRead("it is not a regular file")
        start = max(0, facts.st_size - limit)
        # One byte more than the tail tells whether it begins at the start of a line.
        content = os.pread(handle, min(limit, facts.st_size) + (start > 0), max(0, start - 1))
    except OSError as problem:
        raise NotRead(f"it cannot be read: {problem.strerror}") from problem
    finally:
        os.close(handle)
    if start > 0:
        _, line_end, rest = content.partition(b"\n")
        content = rest if line_end else content[1:]
    text = content.decode("utf-8", "replace")
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [_as_left(each) for each in lines]


def _as_left(line: str) -> str:
    """What a terminal shows of a line when all its carriage returns are done."""
    pieces = _SEQUENCES.sub("", line).rstrip("\r").split("\r")
    shown = pieces.pop()
    while pieces and len(shown) < LINE_CHARACTERS:
        shown += pieces.pop()[len(shown) :]
    return redact_secrets(shown)[:LINE_CHARACTERS]
