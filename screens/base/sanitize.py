"""Foreign text as it stands: every blank kept, and nothing that a terminal would obey."""

from __future__ import annotations

import re
from typing import Final

from metlmon.text.formatting import plain

_BLANKS: Final = re.compile(r"( +)")
_OTHER_SPACE: Final = re.compile(r"[^\S ]")


def exact(text: str, ascii: bool = False) -> str:
    """One line of text, whose blanks mean something: as :func:`plain` shows it, but with all
    its blanks; a tab goes to the next eighth cell, other white space is told as ``\\x0d``."""
    if text.isascii() and text.isprintable():
        return text
    text = _OTHER_SPACE.sub(_told, text.expandtabs(8))
    pieces = _BLANKS.split(text)
    return "".join(each if each.startswith(" ") else plain(each, None, ascii) for each in pieces)


def _told(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
