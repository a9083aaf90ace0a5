"""The error for unusable input, with a message of one sentence."""

from __future__ import annotations

import errno
import os
import re
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


class InputError(Exception):
    """The input is unusable.

    ``str()`` is one sentence with the file, the line if any, and what to do. Secrets are redacted.
    """

    def __init__(self, sentence: str) -> None:
        # Imported late: most commands never need its patterns.
        from metlmon.redact import redact_secrets

        super().__init__(shorten_words(redact_secrets(sentence)))


def unusable_path(error: OSError) -> InputError | None:
    """Return the InputError for an unusable path, with its remedy.

    None if ``error`` names no path, or is not caused by the path.
    """
    remedy = REMEDIES.get(error.errno or 0)
    if remedy is None or not isinstance(error.filename, str | bytes):
        return None
    return InputError(f"{os.fsdecode(error.filename)}: {error.strerror}; {remedy}")
