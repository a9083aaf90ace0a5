"""What went wrong that nobody foresaw, in one sentence that is safe to show.

An error's text may quote what a log says, and a log may say anything: it is foreign text.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

from metlmon.redact import redact_secrets
from metlmon.text.formatting import plain

LONGEST: Final = 300
"""Characters of a sentence: what happened and where fit, a quoted file does not."""

TRACEBACK: Final = "METLMON_TRACEBACK"
"""With this in the environment an error's whole way is told: for a report to the authors."""

REPORT: Final = "please report this"


def describe_error(what: str, error: BaseException, longest: int = LONGEST) -> str:
    """``what`` (did not work: "drawing failed"), then the error, and where it was raised."""
    try:
        said = str(error)
    except Exception:  # An error that cannot say what it is.
        said = ""
    told = f"{what}: {type(error).__name__}"
    if isinstance(error, MemoryError):
        told = f"{what}: there is no memory left"
    elif said:
        told += f": {said}"
    told = plain(redact_secrets(told), longest - len(REPORT) - 40)
    where = _where(error)
    return f"{told} ({where}); {REPORT}" if where else f"{told}; {REPORT}"


def format_traceback(error: BaseException) -> list[str]:
    """The way to the error, a line each, safe to print; without the values of variables."""
    lines: list[str] = []
    for part in traceback.format_exception(error):
        lines += [plain(redact_secrets(line), 400) for line in part.rstrip("\n").split("\n")]
    return lines


def _where(error: BaseException) -> str:
    """``file.py:12``, of the last line of our own that was passed, if there is one."""
    steps = list(traceback.extract_tb(error.__traceback__))
    ours = [each for each in steps if "textual" not in Path(each.filename).parts]
    for step in reversed(ours or steps):
        return f"{Path(step.filename).name}:{step.lineno}"
    return ""
