"""Errors as text: unusable input, and unexpected exceptions.

Messages are one sentence and safe to show: an error may quote a log, which is foreign text.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final

REMEDIES: Final = {
    errno.EACCES: "ask its owner for access, or give another path",
    errno.EPERM: "ask its owner for access, or give another path",
    errno.EROFS: "give a path that can be written to",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "links lead in a circle; give the path that they should lead to",
    errno.ENOTDIR: "a part of the path is a file; give a path through directories",
}
"""Errors caused by the given path, not by a fault of the program."""

_LONG: Final = re.compile(r"(\S{200})\S{100,}")


def shorten_words(sentence: str) -> str:
    """Shorten words of hundreds of characters, so that a path cannot hide the reason."""
    return _LONG.sub(r"\1…", sentence)


def prefix(where: str) -> str:
    """The prefix of a message about ``where`` (file and line); "" if that is unknown."""
    return f"{where}: " if where else ""


MAX_COMPARED: Final = 20_000
LONGEST_COMPARED: Final = 100
"""Names, and characters of a name, that are compared for a suggestion."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar of the known names; None if none is similar enough."""
    from difflib import get_close_matches  # Imported late: rarely needed.

    candidates = list(islice(known, MAX_COMPARED))
    similar = get_close_matches(name[:LONGEST_COMPARED], candidates, n=1, cutoff=cutoff)
    return next(iter(similar), None)


class InputError(Exception):
    """The input is unusable.

    ``str()`` is one sentence with the file, the line if any, and what to do. Secrets are redacted.
    """

    def __init__(self, sentence: str) -> None:
        # Imported late: most commands never need its patterns.
        from metlmon.redact import redact_secrets

        super().__init__(shorten_words(redact_secrets(sentence)))


def unusable_path(error: OSError) -> InputError | None:
    """The InputError for an unusable path, with its remedy; None for other errors."""
    remedy = REMEDIES.get(error.errno or 0)
    if remedy is None or not isinstance(error.filename, str | bytes):
        return None
    return InputError(f"{os.fsdecode(error.filename)}: {error.strerror}; {remedy}")


# --- unexpected exceptions -------------------------------------------------------------------

MAX_LENGTH: Final = 300
"""Characters of a sentence: what happened and where, without a quoted file."""

TRACEBACK: Final = "METLMON_TRACEBACK"
"""Environment variable that turns on tracebacks, for a report to the authors."""

REPORT: Final = "please report this"


def describe_error(action: str, error: BaseException) -> str:
    """``action`` ("drawing failed"), then the error, and where it was raised."""
    try:
        message = str(error)
    except Exception:  # A broken __str__.
        message = ""
    text = f"{action}: {type(error).__name__}"
    if isinstance(error, MemoryError):
        text = f"{action}: there is no memory left"
    elif message:
        text += f": {message}"
    text = _safe_text(text, MAX_LENGTH - len(REPORT) - 40)
    location = _location(error)
    return f"{text} ({location}); {REPORT}" if location else f"{text}; {REPORT}"


def sentence_of(error: BaseException, action: str, *expected: type[BaseException]) -> str:
    """The message of an ``expected`` error; for any other, what failed and where."""
    return str(error) if isinstance(error, expected) else describe_error(action, error)


def format_traceback(error: BaseException) -> list[str]:
    """The traceback as lines that are safe to print, without values of variables."""
    import traceback  # Takes 2 ms; rarely needed.

    lines: list[str] = []
    for part in traceback.format_exception(error):
        lines += [_safe_text(line, 400) for line in part.rstrip("\n").split("\n")]
    return lines


def _safe_text(text: str, max_length: int) -> str:
    # Imported late: few commands need them, and those that read a log have them already.
    from metlmon.redact import redact_secrets
    from metlmon.text.formatting import plain

    return plain(redact_secrets(text), max_length)


def _location(error: BaseException) -> str:
    """``file.py:12``: the innermost line outside of Textual, if any."""
    lines = list(_lines(error.__traceback__))
    relevant_lines = [line for line in lines if "textual" not in line[0].parts]
    for path, number in reversed(relevant_lines or lines):
        return f"{path.name}:{number}"
    return ""


def _lines(trace: TracebackType | None) -> Iterator[tuple[Path, int]]:
    """Yield the file and line of each call, the outermost first."""
    while trace is not None:
        yield Path(trace.tb_frame.f_code.co_filename), trace.tb_lineno
        trace = trace.tb_next
