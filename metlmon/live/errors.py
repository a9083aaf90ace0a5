"""What makes a dagdir unusable, said in one sentence."""

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
"""Errors that are due to the path that was given, not to an error in the program."""

_LONG: Final = re.compile(r"(\S{200})\S{100,}")


def shortened(sentence: str) -> str:
    """``sentence`` with the beginning of each word of hundreds of characters: a path of
    thousands would push the reason out of it."""
    return _LONG.sub(r"\1…", sentence)


class InputError(Exception):
    """The input cannot be used. ``str()`` is one sentence that names the file, the line
    where there is one, and what to do; what looks like a secret is not quoted."""

    def __init__(self, sentence: str) -> None:
        # Not all commands that can fail need its patterns before they do.
        from metlmon.redact import redact_secrets

        super().__init__(shortened(redact_secrets(sentence)))


def unusable_path(error: OSError) -> InputError | None:
    """What names the path that cannot be used and what to do about it; None where ``error`` names
    no path, or is due to something else than the path."""
    remedy = REMEDIES.get(error.errno or 0)
    if remedy is None or not isinstance(error.filename, str | bytes):
        return None
    return InputError(f"{os.fsdecode(error.filename)}: {error.strerror}; {remedy}")
