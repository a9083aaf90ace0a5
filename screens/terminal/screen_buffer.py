"""What the terminal shows, and the fewest bytes that make it show something else.

Textual writes every line that it painted again from end to end, each piece with all of its
style and a reset behind it: 110 KB to open a screen of 200×50, of which most stood there
already. Here what stands on the terminal is kept, cell by cell, and only what differs is
written, with the changes of style that are needed. It is what curses does; the sequences are
those of ECMA-48 that every terminal in use knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import ne
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

BOLD, DIM, ITALIC, UNDERLINE, REVERSE, STRIKE = (1 << bit for bit in (0, 1, 2, 3, 6, 8))
"""Bits of a style's marks, as Rich numbers them."""

_ON: Final = {BOLD: "1", DIM: "2", ITALIC: "3", UNDERLINE: "4", REVERSE: "7", STRIKE: "9"}
_OFF: Final = {BOLD: "22", DIM: "22", ITALIC: "23", UNDERLINE: "24", REVERSE: "27", STRIKE: "29"}

SEEN_ON_BLANKS: Final = UNDERLINE | REVERSE | STRIKE
"""Marks that are seen where nothing is written."""

JUMP: Final = 5
"""Bytes of going to another column: what costs no more than that is written again instead."""

ERASED: Final = 12
"""So many blanks are cheaper erased, and the cursor moved behind them."""

SCROLLED: Final = 4
"""From so many lines on that moved up or down, the terminal is told to move them."""


SCROLL_BYTES: Final = 25
"""Bytes of telling it; a cell that stands right afterwards saves at least one."""


KNOWN: Final = 4096
"""Pieces of text whose cells are kept: most of a line that changed is what it was before."""


class CellStyle(NamedTuple):
    """How a cell is drawn: marks, and the codes of its colours. ``fore`` is empty where none
    is seen."""

    marks: int
    fore: str
    back: str


Cell = tuple[str, CellStyle]
"""A character (with what combines with it) and its pen. Behind a wide one stands an empty one."""

Line = list[Cell]


class CellRun(NamedTuple):
    """Something to be written with one pen from column ``x`` on: ``text``, which fills so many
    ``cells``. ``stays``: the cursor is not moved by it."""

    x: int
    pen: CellStyle
    text: str
    cells: int
    stays: bool


class ScreenBuffer:
    """The cells of a terminal: as they are to be, and as they were written.

    ``fills``: a terminal that fills what it erases with the pen's background (terminfo's
    ``bce``); others get blanks.
    """

    def __init__(self, system: ColorSystem = ColorSystem.TRUECOLOR, fills: bool = True) -> None:
        self._system = system
        self._fills = fills
        self._pens: dict[Style | None, tuple[CellStyle, CellStyle]] = {}
        self._alike: dict[CellStyle, CellStyle] = {}
        self._known: dict[tuple[str, Style | None], Line] = {}
        self._wanted: list[Line] = []
        self._shown: list[Line | None] = []
        self._touched: set[int] = set()
        self._width = 0
        self._pen: CellStyle | None = None
        self._at: tuple[int, int] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        return self._width, len(self._wanted)

    def forget(self) -> None:
        """What the terminal shows is not known any more: it was resized, or used by others."""
        self._shown = [None] * len(self._wanted)
        self._touched = set(range(len(self._wanted)))
        self._pen = self._at = None

    def shape(self, width: int, height: int) -> None:
        """From now on it has this size, in cells."""
        if (width, height) == self.size:
            return
        self._width = width
        blank = (" ", CellStyle(0, "", "49"))
        self._wanted = [[blank] * width for _ in range(height)]
        self.forget()

    def lay(self, y: int, x: int, segments: Iterable[Segment]) -> None:
        """From cell ``x`` of line ``y`` on, this is to be shown."""
        if not 0 <= y < len(self._wanted):
            return
        cells = self._cells(segments)[: self._width - x]
        line = self._wanted[y]
        if line[x : x + len(cells)] != cells:
            line[x : x + len(cells)] = cells
            self._touched.add(y)

    def strokes(self) -> str:
        """What makes the terminal show what is wanted; it is taken to show that from now on."""
        out: list[str] = []
        if self._fills and self._wanted and not any(self._shown):
            self._clear(out)
        different = [y for y in sorted(self._touched) if self._shown[y] != self._wanted[y]]
        self._touched.clear()
        while len(different) > SCROLLED:
            count = len(different)
            different = self._scroll(different, out)
            if len(different) >= count:
                break
        for y in different:
            self._line(y, self._shown[y], self._wanted[y], out)
            self._shown[y] = self._wanted[y].copy()
        return "".join(out)

    def point(self, y: int, x: int) -> str:
        """What moves the terminal's cursor there, where it is seen."""
        out: list[str] = []
        self._go(y, x, out)
        return "".join(out)

    # --- cells ------------------------------------------------------------------------------

    def _cells(self, segments: Iterable[Segment]) -> Line:
        out: Line = []
        for text, style, control in segments:
            if control:
                continue
            cells = self._known.get((text, style))
            if cells is None:
                cells = self._cells_of(text, style)
                if len(self._known) >= KNOWN:
                    self._known.clear()
                self._known[text, style] = cells
            out += cells
        return out

    def _cells_of(self, text: str, style: Style | None) -> Line:
        pen, blank = self._pens.get(style) or self._learn(style)
        if text.isascii() and text.isprintable():
            return [(c, pen) if c != " " else (c, blank) for c in text]
        out: Line = []
        for c in text:
            wide = cell_len(c)
            if wide:
                out.append((c, pen) if c != " " else (c, blank))
                out += [("", pen)] * (wide - 1)
            elif out and not c.isascii():
                out[-1] = (out[-1][0] + c, out[-1][1])
        return out

    def _learn(self, style: Style | None) -> tuple[CellStyle, CellStyle]:
        """The pens of a style: for characters, and for blanks, which have no foreground."""
        marks, fore, back = 0, "39", "49"
        if style is not None:
            marks = style._attributes & style._set_attributes & sum(_ON)
            if style.color is not None:
                fore = ";".join(style.color.downgrade(self._system).get_ansi_codes())
            if style.bgcolor is not None:
                back = ";".join(style.bgcolor.downgrade(self._system).get_ansi_codes(False))
        pen = CellStyle(marks, fore, back)
        blank = pen if marks & SEEN_ON_BLANKS else CellStyle(0, "", back)
        # One object for each pen: lines are compared often.
        pen, blank = (self._alike.setdefault(each, each) for each in (pen, blank))
        self._pens[style] = pen, blank
        return pen, blank

    # --- strokes ----------------------------------------------------------------------------

    def _line(self, y: int, shown: Line | None, wanted: Line, out: list[str]) -> None:
        """Write what differs in a line, one pen after the other: to go to another column costs
        a third of taking another pen."""
        if shown is not None and (_has_wide(wanted) or _has_wide(shown)):
            # Who overwrites half of a wide character cannot know what stands beside it.
            shown = None
        pieces = list(self._pieces(shown, wanted))
        while pieces:
            others = []
            for piece in pieces:
                if self._pen is None or turn(self._pen, piece.pen):
                    others.append(piece)
                    continue
                self._go(y, piece.x, out)
                out.append(piece.text)
                if not piece.stays:
                    behind = piece.x + piece.cells
                    self._at = (y, behind) if behind < self._width else None
            if others:
                self._take(others[0].pen, out)
            pieces = others

    def _pieces(self, shown: Line | None, wanted: Line) -> Iterator[CellRun]:
        """What is to be written in a line, from left to right."""
        x, end = 0, self._width
        if shown is not None:
            while wanted[x] == shown[x]:
                x += 1
            while wanted[end - 1] == shown[end - 1]:
                end -= 1
        while x < end:
            if shown is not None and wanted[x] == shown[x]:
                x += 1
                continue
            blanks = self._erasable(x, end if shown is not None else self._width, wanted)
            if x + blanks == self._width and blanks:
                yield CellRun(x, wanted[x][1], "\x1b[K", blanks, True)
                return
            if blanks:
                yield CellRun(x, wanted[x][1], f"\x1b[{blanks}X", blanks, True)
                x += blanks
                continue
            piece = self._text(x, end, shown, wanted)
            yield piece
            x += piece.cells

    def _text(self, x: int, end: int, shown: Line | None, wanted: Line) -> CellRun:
        """What can be written from here on with one pen."""
        at, pen, text = x, wanted[x][1], ""
        while at < end:
            now = at
            # What stands there already is written again where that is cheaper than to jump.
            while shown is not None and now < end and wanted[now] == shown[now]:
                now += 1
            if now - at > JUMP:
                break
            taken = wanted[at : max(now, at + 1)]
            for _, each in taken:
                if not pen.fore and each.back == pen.back and not each.marks & SEEN_ON_BLANKS:
                    pen = each
            if any(turn(pen, each) for _, each in taken):
                break
            if at > x and self._erasable(at, end, wanted):
                break
            if now > at and (not _plain(taken) or turn(pen, wanted[now][1])):
                break
            text += "".join(character for character, _ in taken)
            at += len(taken)
        return CellRun(x, pen, text, at - x, False)

    def _erasable(self, x: int, end: int, wanted: Line) -> int:
        """How many blanks from here on are best erased: 0 for none."""
        if not self._fills or wanted[x][0] != " " or wanted[x][1].marks:
            return 0
        count, first = 1, wanted[x]
        while x + count < self._width and wanted[x + count] == first:
            count += 1
        if x + count == self._width:
            # Some of them may stand there already: erasing them once more is free.
            return count if count >= SCROLLED else 0
        return count if count >= ERASED and x + count <= end else 0

    def _go(self, y: int, x: int, out: list[str]) -> None:
        if self._at == (y, x):
            return
        if self._at is not None and self._at[0] == y:
            out.append(f"\x1b[{x + 1}G")
        elif self._at == (y - 1, x + 1):
            # A clock's digit below another's.
            out.append("\x1b[B\x1b[D")
        else:
            out.append(f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H")
        self._at = (y, x)

    def _take(self, pen: CellStyle, out: list[str]) -> None:
        codes = turn(self._pen, pen)
        if codes:
            out.append(f"\x1b[{codes}m")
        self._pen = taken(self._pen, pen)

    # --- many lines at once -----------------------------------------------------------------

    def _clear(self, out: list[str]) -> None:
        """Erase everything, in the ground that most lines end in."""
        (text, pen), _ = Counter(line[-1] for line in self._wanted).most_common(1)[0]
        if text != " " or pen.marks:
            return
        self._take(pen, out)
        out.append("\x1b[2J")
        self._at = None
        self._shown = [[(text, pen)] * self._width for _ in self._wanted]

    def _scroll(self, different: list[int], out: list[str]) -> list[int]:
        """Where many lines stand some lines above or below where they stood, move them there.
        Returns which lines still differ."""
        best, most = (0, 0, 0), SCROLL_BYTES
        for by in self._moves(different):
            top, bottom, saved = self._saved(by)
            if saved > most:
                best, most = (top, bottom, by), saved
        top, bottom, by = best
        if not by:
            return different
        how = f"\x1b[{by}M" if by > 0 else f"\x1b[{-by}L"
        out.append(f"\x1b[{top + 1};{bottom}r\x1b[{top + 1}H{how}\x1b[r")
        self._at = None
        # What is uncovered has some ground or other.
        block = self._shown[top:bottom]
        bare: list[Line | None] = [None] * abs(by)
        self._shown[top:bottom] = block[by:] + bare if by > 0 else bare + block[:by]
        changed = {y for y in range(top, bottom) if self._shown[y] != self._wanted[y]}
        return sorted(changed | {y for y in different if not top <= y < bottom})

    def _moves(self, different: list[int]) -> list[int]:
        """By how many lines most of those that stand elsewhere have moved: likely ones."""
        stood = {"".join(text for text, _ in line): y for y, line in enumerate(self._shown) if line}
        votes: Counter[int] = Counter()
        for y in different:
            was = stood.get("".join(text for text, _ in self._wanted[y]))
            if was is not None and was != y:
                votes[was - y] += 1
        return [by for by, count in votes.most_common(2) if count > 1]

    def _saved(self, by: int) -> tuple[int, int, int]:
        """First line and last-plus-one of the terminal's that are best moved by so many, and
        how many cells then stand right that did not before."""
        height, best, start, run = len(self._wanted), (0, 0, 0), 0, 0
        uncovered = abs(by) * self._width
        for y in range(max(0, -by), min(height, height - by)):
            if run <= 0:
                start, run = y, 0
            run += self._wrong(y, y) - self._wrong(y, y + by)
            if run - uncovered > best[2]:
                best = (start + min(0, by), y + 1 + max(0, by), run - uncovered)
        return best

    def _wrong(self, y: int, at: int) -> int:
        """Cells in which what is wanted in line ``y`` differs from what stands in ``at``."""
        shown, wanted = self._shown[at], self._wanted[y]
        if shown is None:
            return self._width
        return 0 if shown == wanted else sum(map(ne, shown, wanted))


def _plain(cells: Sequence[Cell]) -> bool:
    """Are these sure to take a cell each on any terminal?"""
    return all(text.isascii() for text, _ in cells)


def _has_wide(line: Line) -> bool:
    return any(not text for text, _ in line)


@lru_cache(maxsize=4096)
def turn(now: CellStyle | None, to: CellStyle) -> str:
    """The codes between ``CSI`` and ``m`` that make one pen of the other; empty when there is
    nothing to change. ``now`` None: not known."""
    whole = [_ON[bit] for bit in _ON if to.marks & bit]
    whole += [code for code in (to.fore, to.back) if code not in ("", "39", "49")]
    afresh = ";".join(["0", *whole])
    if now is None:
        return afresh
    care = sum(_ON) if to.fore else SEEN_ON_BLANKS
    codes: list[str] = []
    gone = now.marks & ~to.marks & care
    stay = to.marks & ~now.marks
    codes += sorted({_OFF[bit] for bit in _ON if gone & bit})
    if gone & (BOLD | DIM):
        # One code ends both.
        stay |= to.marks & (BOLD | DIM)
    codes += [_ON[bit] for bit in _ON if stay & bit]
    if to.fore and to.fore != now.fore:
        codes.append(to.fore)
    if to.back != now.back:
        codes.append(to.back)
    step = ";".join(codes)
    return step if len(step) <= len(afresh) else afresh


@lru_cache(maxsize=4096)
def taken(now: CellStyle | None, to: CellStyle) -> CellStyle:
    """The pen after :func:`turn`: what a blank does not care for may be left as it was."""
    if to.fore or now is None:
        return to if to.fore else CellStyle(to.marks, "39", to.back)
    codes = turn(now, to)
    if codes.startswith("0"):
        return CellStyle(to.marks, "39", to.back)
    return CellStyle((now.marks & ~SEEN_ON_BLANKS) | to.marks, now.fore, to.back)
