"""Lines of coloured text as plain data, before any terminal is thought of.

A :data:`Line` is a tuple of (text, ink) pairs; rows and headers are pure functions that
return lines, and only the widgets turn them into what Textual paints.  No markup is ever
parsed, so what a job wrote can never become a style.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Final, Literal

from rich.cells import cell_len, set_cell_size

from metlmon.frozen import frozen
from metlmon.text.formatting import Colour, Symbol, Weight, plain


@frozen
class TextStyle:
    """Colour and weight of a piece of text; the theme decides the shade. ``texture``: cells of a
    bar, whose full cells would look empty if the selected row were shown in reverse."""

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


def style_of(sign: Symbol) -> TextStyle:
    """The ink of a state's sign."""
    return TextStyle(sign.colour, sign.weight)


def line(*spans: Span | str) -> Line:
    """A line of spans; a bare string is plain. Empty spans are left out."""
    made = ((s, PLAIN) if isinstance(s, str) else s for s in spans)
    return tuple(span for span in made if span[0])


def texture(of: TextStyle) -> TextStyle:
    """The same ink for cells of a bar."""
    return TextStyle(of.colour, of.weight, True)


def symbol_span(sign: Symbol, ascii: bool) -> Line:
    """Mark and word of a state in its ink."""
    return ((sign.text(ascii), style_of(sign)),)


def reach(text: str) -> int:
    """Cells that a text takes."""
    return len(text) if text.isascii() and text.isprintable() else cell_len(text)


def width(of: Line) -> int:
    """Cells that a line takes."""
    return sum([reach(text) for text, _ in of])


def text(of: Line) -> str:
    """A line without its ink."""
    return "".join(piece for piece, _ in of)


def joined(parts: Iterable[Line], gap: Line) -> Line:
    """The parts that are not empty, with a gap between each two."""
    out: list[Span] = []
    for part in parts:
        if part:
            if out:
                out.extend(gap)
            out.extend(part)
    return tuple(out)


def packed(parts: Iterable[Line], gap: Line, cells: int) -> list[Line]:
    """The parts in as many lines as they need, none of them broken."""
    lines: list[Line] = []
    for part in parts:
        longer = joined((lines[-1], part), gap) if lines else part
        if lines and width(longer) <= cells:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def crop(of: Line, cells: int, ascii: bool) -> Line:
    """A line of at most ``cells`` cells, an ellipsis at its end where it was cut."""
    if width(of) <= cells:
        return of
    dots = ("..." if ascii else "…")[: max(0, cells)]
    room = cells - len(dots)
    out: list[Span] = []
    style = PLAIN
    for piece, style in of:
        taken = reach(piece)
        if taken > room:
            out.append((set_cell_size(piece, room), style))
            break
        out.append((piece, style))
        room -= taken
    out.append((dots, style))
    return tuple(span for span in out if span[0])


def fit(of: Line, cells: int, align: Align, ascii: bool) -> Line:
    """A line of exactly ``cells`` cells: cropped or padded with blanks."""
    of = crop(of, cells, ascii)
    blank: Line = line(" " * (cells - width(of)))
    return blank + of if align == "right" else of + blank


def spread(left: Line, right: Line, cells: int, ascii: bool) -> Line:
    """``left`` and ``right`` at the two ends; the left one gives way."""
    right = crop(right, cells, ascii)
    room = cells - width(right)
    return fit(left, max(0, room - 2), "left", ascii) + line(" " * min(2, room)) + right


def first_that_fits(candidates: Iterable[Line], cells: int) -> Line:
    """The first line that takes no more than ``cells``; the last one if none does."""
    chosen: Line = ()
    for chosen in candidates:
        if width(chosen) <= cells:
            break
    return chosen


def both_ends(of: str, cells: int, ascii: bool) -> str:
    """A text of at most so many cells, cut in its middle: what HTCondor gives as a reason
    begins with where it happened, and ends with what happened."""
    if cell_len(of) <= cells:
        return of
    dots = "..." if ascii else "…"
    end = cells // 3
    if end <= len(dots):
        return set_cell_size(of, max(0, cells))
    start = set_cell_size(of, cells - end - len(dots)).rstrip(" ")
    of = of[-end:]
    while cell_len(of) > end:
        of = of[1:]
    return f"{start}{dots}{of}"


def file_name(path: str, cells: int | None, ascii: bool) -> str:
    """The name of a DAG file without its directory. Where it is too long its suffix goes first,
    then its middle: names that begin alike often differ at their end. ``cells`` None: as wide as
    a column may be."""
    name, most = plain(PurePath(path).name, 400, ascii), 80 if cells is None else cells
    if cell_len(name) > most:
        name = name.removesuffix(".dag")
    return both_ends(name, most, ascii)


def bounded(lines: list[Line], most: int, cells: int, indent: int, ascii: bool) -> list[Line]:
    """At most so many of some wrapped lines. If there were more, the last one has the end of
    the text: HTCondor's reasons begin with where and end with what."""
    if len(lines) <= most:
        return lines
    how = lines[most - 1][-1][1]
    dots = "..." if ascii else "…"
    words = " ".join(text(each).strip() for each in lines[most - 1 :]).split(" ")
    end = words.pop()
    while words and cell_len(f"{words[-1]} {end}") <= cells - indent - len(dots):
        end = f"{words.pop()} {end}"
    return [*lines[: most - 1], crop(line(" " * indent, (dots + end, how)), cells, ascii)]


def wrapped(of: str, cells: int, how: TextStyle = PLAIN, indent: int = 0) -> list[Line]:
    """Plain text broken into lines at blanks (inside a word only where it is longer)."""
    room = max(8, cells - indent)
    lines: list[Line] = []
    now = ""
    for word in of.split(" "):
        while cell_len(word) > room:
            if now:
                lines.append(line(" " * indent, (now, how)))
                now = ""
            head = set_cell_size(word, room).rstrip(" ")
            lines.append(line(" " * indent, (head, how)))
            word = word[len(head) :]
        longer = f"{now} {word}" if now else word
        if cell_len(longer) > room:
            lines.append(line(" " * indent, (now, how)))
            now = word
        else:
            now = longer
    if now or not lines:
        lines.append(line(" " * indent, (now, how)))
    return lines
