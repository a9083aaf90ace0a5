"""Sanitised foreign text with all its blanks: nothing in it controls the terminal."""

from __future__ import annotations

import re
from typing import Final

from metlmon.text.formatting import plain

_BLANKS: Final = re.compile(r"( +)")
_OTHER_SPACE: Final = re.compile(r"[^\S ]")


def plain_with_blanks(text: str) -> str:
    """One line of text as :func:`plain` shows it, but with all its blanks.

    Tabs are expanded to multiples of eight cells; other white space is shown as ``\\x0d``.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _OTHER_SPACE.sub(_escape, text.expandtabs(8))
    pieces = _BLANKS.split(text)
    return "".join(piece if piece.startswith(" ") else plain(piece, None) for piece in pieces)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
