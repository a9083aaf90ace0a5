"""Texts for unexpected exceptions, safe to show.

An error's message may quote a log, so it is foreign text.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

from metlmon.redact import redact_secrets
from metlmon.text.formatting import plain

MAX_LENGTH: Final = 300
"""Characters of a sentence: what happened and where, without a quoted file."""

TRACEBACK: Final = "METLMON_TRACEBACK"
"""Environment variable that turns on tracebacks, for a report to the authors."""

REPORT: Final = "please report this"


def describe_error(action: str, error: BaseException, max_length: int = MAX_LENGTH) -> str:
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
    text = plain(redact_secrets(text), max_length - len(REPORT) - 40)
    location = _location(error)
    return f"{text} ({location}); {REPORT}" if location else f"{text}; {REPORT}"


def format_traceback(error: BaseException) -> list[str]:
    """The traceback as lines that are safe to print, without values of variables."""
    lines: list[str] = []
    for part in traceback.format_exception(error):
        lines += [plain(redact_secrets(line), 400) for line in part.rstrip("\n").split("\n")]
    return lines


def _location(error: BaseException) -> str:
    """``file.py:12``: the innermost line outside of Textual, if there is one."""
    frames = list(traceback.extract_tb(error.__traceback__))
    relevant_frames = [frame for frame in frames if "textual" not in Path(frame.filename).parts]
    for frame in reversed(relevant_frames or frames):
        return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""
