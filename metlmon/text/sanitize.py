"""ASCII text for terminals and pipes that show nothing else.

All text is made with Unicode symbols. :func:`to_ascii` replaces them at the output edge (the
commands' standard output, the line widget of the screens), one column by one column, so that no
layout changes.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from rich.cells import cell_len

_SYMBOLS: Final = {
    # States and outcomes
    **{"·": ".", "◦": "i", "↗": "s", "▶": ">", "‖": "S", "≈": "~", "■": "H", "◔": "p", "◕": "P"},
    **{"✓": "+", "✗": "X", "⌫": "D", "↻": "r", "⊘": "F", "↩": "e", "†": "x", "◌": "z", "□": "T"},
    **{"◧": "U", "◇": "o", "●": "*", "◆": "*", "★": "*", "⇄": "*"},
    # Arrows and signs
    **{"→": ">", "←": "<", "↑": "^", "↓": "v", "▲": "!", "▼": "v", "►": ">", "◀": "<", "↪": ">"},
    **{"▸": "+", "▾": "-", "›": ">", "‹": "<", "»": ">", "▌": ">", "≠": "!", "≥": ">", "×": "x"},
    # Lines and bars
    **{"─": "-", "━": "=", "╸": ">", "│": "|", "┃": "|", "┤": "+", "└": "+", "╌": "~", "┄": "-"},
    **{"░": ".", "▒": ":", "▓": "%", "█": "#", "╳": "!", "▚": "x", "▞": "/", "▜": "]", "▙": "["},
    **{"▛": "(", "▟": ")"},
    **{"▁": ".", "▂": ":", "▃": "-", "▄": "=", "▅": "+", "▆": "*", "▇": "#"},
    # Typography
    **{"…": "~", "–": "-", "—": "-", "−": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "µ": "u"},
    **{"\u202f": " ", "\xa0": " "},
}
"""The ASCII character of each symbol, of the same width."""

_AT_LEAST: Final = re.compile("≥(<?[0-9](?:[0-9.,:\u202f]*[0-9])?)")
_GROUPED: Final = re.compile("(?<=[0-9])\u202f(?=[0-9])")


def to_ascii(text: str) -> str:
    """``text`` in characters below 0x80, as wide as before.

    ``≥4`` becomes ``4+``, digits are grouped by commas, and a foreign letter without an ASCII
    base is written as ``?``.
    """
    if text.isascii():
        return text
    text = _GROUPED.sub(",", _AT_LEAST.sub(r"\1+", text))
    return "".join(char if char.isascii() else _ascii_character(char) for char in text)


@lru_cache(1024)
def _ascii_character(character: str) -> str:
    if character in _SYMBOLS:
        return _SYMBOLS[character]
    width = cell_len(character)
    base = "".join(c for c in unicodedata.normalize("NFKD", character) if c.isascii())
    return base if len(base) == width and base.isprintable() else "?" * width
