"""Styled text as plain data, independent of terminal and theme; its ASCII form.

A :data:`Line` is a tuple of (text, style) spans. Rows and headers are pure functions that
return lines; only widgets convert them to Textual strips. No markup is parsed, so text written
by a job can never become a style.

All text is made with Unicode symbols. :func:`to_ascii` replaces them at the output edge (the
commands' standard output, the line widget of the screens), one column by one column, so that no
layout changes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from pathlib import PurePath
from typing import Final, Literal

from msgspec import Struct
from rich.cells import cell_len, set_cell_size

from metlmon.text.formatting import Colour, Symbol, Weight, plain


class TextStyle(Struct, frozen=True):
    """Colour and weight of a span; the theme decides the actual colour.

    ``texture``: the span is part of a bar, whose full cells would look empty in reverse video.
    """

    colour: Colour = Colour.PLAIN
    weight: Weight = Weight.NORMAL
    texture: bool = False


Span = tuple[str, TextStyle]
Line = tuple[Span, ...]
Align = Literal["left", "right"]

PLAIN: Final = TextStyle()
BOLD: Final = TextStyle(weight=Weight.BOLD)
DIM: Final = TextStyle(Colour.GREY, Weight.DIM)
GOOD: Final = TextStyle(Colour.GREEN)
BAD: Final = TextStyle(Colour.VERMILLION)
ALARM: Final = TextStyle(Colour.VERMILLION, Weight.BOLD)
NOTE: Final = TextStyle(Colour.ORANGE)
MOVING: Final = TextStyle(Colour.SKY)
KEY: Final = TextStyle(Colour.SKY, Weight.BOLD)


def style_of(symbol: Symbol) -> TextStyle:
    """The style of a state's symbol."""
    return TextStyle(symbol.colour, symbol.weight)


def line(*spans: Span | str) -> Line:
    """A line of spans; a bare string is plain. Empty spans are dropped."""
    styled: list[Span] = []
    for span in spans:
        if isinstance(span, str):
            if span:
                styled.append((span, PLAIN))
        elif span[0]:
            styled.append(span)
    return tuple(styled)


def merge_spans(spans: Iterable[Span]) -> Line:
    """A line in which adjacent spans of one style are merged."""
    return tuple(
        ("".join(text for text, _ in group), style)
        for style, group in groupby(spans, key=lambda span: span[1])
    )


def texture(style: TextStyle) -> TextStyle:
    """The same style for cells of a bar."""
    return TextStyle(style.colour, style.weight, True)


def symbol_span(symbol: Symbol) -> Line:
    """Glyph and word of a state in its style."""
    return ((symbol.text(), style_of(symbol)),)


def width(content: Line) -> int:
    """Width of a line in cells."""
    # Not sum(): resuming a generator for each of a screen's thousands of spans is slow.
    cells = 0
    for text, _ in content:
        cells += cell_len(text)
    return cells


def text(content: Line) -> str:
    """The text of a line, without styles."""
    return "".join(piece for piece, _ in content)


def join(parts: Iterable[Line], gap: Line) -> Line:
    """The non-empty parts, joined by a gap."""
    spans: list[Span] = []
    for part in parts:
        if part:
            if spans:
                spans.extend(gap)
            spans.extend(part)
    return tuple(spans)


def wrap_parts(parts: Iterable[Line], gap: Line, cells: int, indent: int = 0) -> list[Line]:
    """The non-empty parts wrapped to lines of ``cells`` cells, without breaking a part."""
    lines: list[Line] = []
    for part in filter(None, parts):
        extended = join((lines[-1], part), gap) if lines else part
        if lines and width(extended) <= cells:
            lines[-1] = extended
        else:
            lines.append(part)
    return [line(" " * indent) + each for each in lines]


_NUMBER: Final = re.compile(r"(?<![\w.,-])\d[\d.,]*$")
"""A number at the end of a text, unless it is part of a name."""


def crop(content: Line, cells: int) -> Line:
    """A line of at most ``cells`` cells, with an ellipsis at a cut, which never splits a number."""
    if width(content) <= cells:
        return content
    dots = "…"[: max(0, cells)]
    room = cells - len(dots)
    spans: list[Span] = []
    style = PLAIN
    for piece, style in content:
        length = cell_len(piece)
        if length > room:
            kept = set_cell_size(piece, room)
            if kept[-1:].isdecimal() and piece[len(kept) : len(kept) + 1].isdecimal():
                kept = _NUMBER.sub("", kept)
            spans.append((kept, style))
            break
        spans.append((piece, style))
        room -= length
    spans.append((dots, style))
    return tuple(span for span in spans if span[0])


def fit(content: Line, cells: int, align: Align) -> Line:
    """A line of exactly ``cells`` cells: cropped or padded with blanks."""
    content = crop(content, cells)
    blank: Line = line(" " * (cells - width(content)))
    return blank + content if align == "right" else content + blank


def justify(left: Line, right: Line, cells: int) -> Line:
    """``left`` and ``right`` at the two ends; the left one is cropped first."""
    right = crop(right, cells)
    room = cells - width(right)
    return fit(left, max(0, room - 2), "left") + line(" " * min(2, room)) + right


def first_that_fits(candidates: Iterable[Line], cells: int) -> Line:
    """The first line that fits into ``cells``, or else the last one."""
    candidate: Line = ()
    for candidate in candidates:
        if width(candidate) <= cells:
            break
    return candidate


def join_fitting(parts: Iterable[Line], gap: Line, cells: int) -> Line:
    """The first of the parts, and those after it that fit into ``cells``, joined by a gap."""
    shown: Line = ()
    for part in parts:
        longer = join((shown, part), gap)
        if not shown or width(longer) <= cells:
            shown = longer
    return shown


def crop_middle(content: str, cells: int) -> str:
    """A text of at most ``cells`` cells, cut in its middle.

    HTCondor's reasons begin with the place and end with the event.
    """
    if cell_len(content) <= cells:
        return content
    dots = "…"
    end = cells // 3
    if end <= len(dots):
        return set_cell_size(content, max(0, cells))
    start = set_cell_size(content, cells - end - len(dots)).rstrip(f" {dots}")
    content = content[-end:]
    while cell_len(content) > end:
        content = content[1:]
    return f"{start}{dots}{content.removeprefix(dots)}"


def file_name(path: str, cells: int | None) -> str:
    """The name of a DAG file without its directory.

    A name that is too long loses its suffix first, then its middle: names that begin alike
    often differ at their end. ``cells`` None: the widest that a column may be.
    """
    name, limit = plain(PurePath(path).name, 400), 80 if cells is None else cells
    if cell_len(name) > limit:
        name = name.removesuffix(".dag")
    return crop_middle(name, limit)


def limit_lines(lines: list[Line], limit: int, cells: int, indent: int = 1) -> list[Line]:
    """At most ``limit`` of these wrapped lines; if cut, the last one has the end of the text."""
    if len(lines) <= limit:
        return lines
    style = lines[limit - 1][-1][1]
    dots = "…"
    words = " ".join(text(content).strip() for content in lines[limit - 1 :]).split(" ")
    end = words.pop()
    while words and cell_len(f"{words[-1]} {end}") <= cells - indent - len(dots):
        end = f"{words.pop()} {end}"
    return [*lines[: limit - 1], crop(line(" " * indent, (dots + end, style)), cells)]


def wrap_line(content: Line, cells: int) -> list[Line]:
    """A line wrapped at blanks to at most ``cells`` cells; a longer word is broken."""
    rows: list[Line] = []
    while width(content) > cells:
        characters, used, end = text(content), 0, 0
        while used + cell_len(characters[end]) <= cells:
            used += cell_len(characters[end])
            end += 1
        blank = characters.rfind(" ", 1, end + 1)
        end = blank if blank > 0 and characters[:blank].strip() else max(end, 1)
        rows.append(_part(content, 0, end))
        content = _part(content, end + (characters[end] == " "), len(characters))
    return [*rows, content]


def _part(content: Line, start: int, end: int) -> Line:
    """The characters from ``start`` to ``end`` of a line."""
    spans: list[Span] = []
    for piece, style in content:
        spans.append((piece[max(0, start) : max(0, end)], style))
        start, end = start - len(piece), end - len(piece)
    return line(*spans)


def wrap(
    content: str,
    cells: int,
    style: TextStyle = PLAIN,
    indent: int = 0,
    limit: int | None = None,
    start: Line = (),
) -> list[Line]:
    """Plain text wrapped at blanks; a word is broken only if it exceeds the line.

    ``start`` is before the first line, and as many blanks before the others, so that a sign stands
    alone. ``limit``: the maximum number of lines; if cut, the last one has the end of the text.
    """
    margin, hanging = line(" " * indent), indent + width(start)
    rows = wrap_line(line((content.strip(" "), style)), max(8, cells - hanging))
    lines = [margin + start + rows[0], *(line(" " * hanging, *row) for row in rows[1:])]
    return lines if limit is None else limit_lines(lines, limit, cells, hanging)


# --- ASCII, for terminals and pipes that cannot show anything else ---------------------------

_SYMBOLS: Final = {
    # States and outcomes
    **{"·": ".", "◦": "i", "↗": "s", "▶": ">", "‖": "S", "≈": "~", "■": "H", "◔": "p", "◕": "P"},
    **{"✓": "+", "✗": "X", "⌫": "D", "↻": "r", "⊘": "F", "↩": "e", "†": "x", "◌": "z", "□": "T"},
    **{"◧": "U", "◇": "o", "●": "*", "◆": "*", "★": "*", "⇄": "*"},
    # Arrows and signs
    **{"→": ">", "←": "<", "↑": "^", "↓": "v", "▲": "!", "▼": "v", "►": ">", "◀": "<", "↪": ">"},
    **{"▸": "+", "▾": "-", "›": ">", "‹": "<", "»": ">", "≠": "!", "≥": ">", "≤": "<", "×": "x"},
    # Lines and bars
    **{"─": "-", "━": "=", "╸": ">", "│": "|", "┃": "|", "┤": "+", "└": "+", "╌": "~", "┄": "-"},
    **{"░": ".", "▒": ":", "▓": "%", "█": "#", "╳": "!", "▚": "x", "▞": "/", "▜": "]", "▙": "["},
    **{"▛": "(", "▟": ")", "▌": ">"},
    **{"▁": ".", "▂": ":", "▃": "-", "▄": "=", "▅": "+", "▆": "*", "▇": "#"},
    # Typography
    **{"…": "~", "–": "-", "—": "-", "−": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "µ": "u"},
    **{"\u202f": " ", "\xa0": " "},
}
"""An ASCII character of the same width for each symbol."""

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
