"""Makes foreign text safe: without anything that a terminal would obey or not show.

Readers make the texts of their records visible; names of files stay unchanged, since the files
are opened, and are made :func:`plain` where they are shown.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from metlmon.remote.paths import as_typed

_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Me"})
"""Unicode categories that a terminal obeys, hides or draws with undefined width: controls, formats
(bidi overrides, zero-width, tags), surrogates, private use, unassigned, line ends, enclosing marks
(not used by any language)."""

_MAX_COMBINING_MARKS: Final = 2
"""Successive combining marks that languages need; more draw over other lines."""


def visible(text: str) -> str:
    """Foreign text on one line, without invisible characters.

    Characters that a terminal would obey or not show (escape sequences, control characters, bidi
    overrides, zero-width characters, stacked marks) are written as ``\\x1b`` or ``\\u202e``; white
    space of any kind becomes a blank.
    """
    return text if text.isascii() and text.isprintable() else "".join(_escape_invisible(text))


def plain(text: str, limit: int | None = None) -> str:
    """Foreign text as one visible, bounded line.

    Text that no reader has made visible passes through here before it is shown: names of files,
    messages of errors, answers of a pool. Like :func:`visible`, but runs of white space become
    single blanks, and paths on other machines are as users type them. The result has at most
    ``limit`` characters, the last of which is an ellipsis if it was cut.
    """
    if limit is not None:
        # Bounds the work for a line of megabytes; the factor leaves room for blanks that are
        # collapsed below.
        text = text[: 4 * limit + 64]
    text = as_typed(text)
    if text.isascii() and text.isprintable() and "  " not in text:
        shown = text.strip()
    else:
        shown = " ".join("".join(_escape_invisible(unicodedata.normalize("NFC", text))).split())
    return clip(shown, limit)


def clip(text: str, limit: int | None) -> str:
    """At most ``limit`` characters of ``text``, with an ellipsis at the end when cut."""
    if limit is None or len(text) <= limit:
        return text
    ellipsis = "…"
    return text[: max(0, limit - len(ellipsis))] + ellipsis[: max(0, limit)]


def _escape_invisible(text: str) -> list[str]:
    out: list[str] = []
    marks = _MAX_COMBINING_MARKS
    for character in text:
        category = unicodedata.category(character)
        if category[0] == "M":
            marks += 1
            selector = "\ufe00" <= character <= "\ufe0f" or character >= "\U000e0100"
            invisible = (
                selector
                or category == "Me"
                or marks > _MAX_COMBINING_MARKS
                or character in _INVISIBLE
            )
            out.append(_escaped(character) if invisible else character)
            continue
        marks = 0
        if character.isspace() and category != "Zl" and category != "Zp":
            out.append(" ")
        elif category in _UNSAFE_CATEGORIES or character in _INVISIBLE:
            out.append(_escaped(character))
            marks = _MAX_COMBINING_MARKS
        else:
            out.append(character)
    return out


_INVISIBLE: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U00016fe4"
)
"""Fillers, joiners and selectors that count as letters, marks or symbols, but are not visible
(Default_Ignorable_Code_Point of Unicode, and blank cells)."""


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
