"""Screen buffer and differential renderer, as in curses.

Textual rewrites every repainted line from end to end, each segment with its full style and a
reset: 110 KB to open a screen of 200×50, most of it unchanged. The buffer stores what the
terminal shows, cell by cell, and writes only the cells that differ, with the style changes
they need. The control sequences are those of ECMA-48 that every terminal in use supports.
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

from screens.terminal.private import style_attributes

BOLD, DIM, ITALIC, UNDERLINE, REVERSE, STRIKE = (1 << bit for bit in (0, 1, 2, 3, 6, 8))
"""Attribute bits of a style, as Rich numbers them."""

_ON: Final = {BOLD: "1", DIM: "2", ITALIC: "3", UNDERLINE: "4", REVERSE: "7", STRIKE: "9"}
_OFF: Final = {BOLD: "22", DIM: "22", ITALIC: "23", UNDERLINE: "24", REVERSE: "27", STRIKE: "29"}

VISIBLE_ON_BLANKS: Final = UNDERLINE | REVERSE | STRIKE
"""Attributes that are visible on blanks."""

MOVE_BYTES: Final = 5
"""Bytes of a cursor movement within a line: shorter unchanged text is rewritten instead."""

ERASE_MINIMUM: Final = 12
"""Number of blanks from which erasing and moving the cursor is shorter than writing them."""

ERASE_END_MINIMUM: Final = 4
"""Number of blanks from which the end of a line is erased."""

SCROLL_BYTES: Final = 120
"""Bytes of output from which scrolling is considered: its sequence has 20 to 30 bytes."""

LINE_BYTES: Final = 20
"""Bytes of a changed line besides its cells: cursor movements and styles, roughly."""

CACHED_SEGMENTS: Final = 4096
"""Size of the cache of segments' cells: most segments of a changed line are unchanged."""


class CellStyle(NamedTuple):
    """The style of a cell: attribute bits, and the SGR codes of its colours.

    ``fore`` is empty for a blank without visible attributes: its foreground does not matter.
    """

    attributes: int
    fore: str
    back: str


Cell = tuple[str, CellStyle]
"""A character (with combining ones) and its style. A wide one is followed by an empty cell."""

Line = list[Cell]

Position = tuple[int, int]
"""Line and column of the cursor."""


class StyledRun(NamedTuple):
    """Output with one style from column ``x`` on; ``text`` fills ``width`` cells.

    ``keeps_cursor``: it does not move the cursor.
    """

    x: int
    style: CellStyle
    text: str
    width: int
    keeps_cursor: bool


class ScreenBuffer:
    """The cells of a terminal: the wanted ones, and those it shows.

    ``fills``: the terminal fills erased cells with the current background (terminfo's
    ``bce``); on others, blanks are written instead.
    """

    def __init__(self, system: ColorSystem = ColorSystem.TRUECOLOR, fills: bool = True) -> None:
        self._system = system
        self._fills = fills
        self._cell_styles: dict[Style | None, tuple[CellStyle, CellStyle]] = {}
        self._shared_styles: dict[CellStyle, CellStyle] = {}
        self._segment_cells: dict[tuple[str, Style | None], Line] = {}
        self._wanted: list[Line] = []
        self._shown: list[Line | None] = []
        self._changed_lines: set[int] = set()
        self._width = 0
        self._style: CellStyle | None = None
        self._cursor: Position | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, in columns and lines."""
        return self._width, len(self._wanted)

    def invalidate(self) -> None:
        """Forget what the terminal shows: it was resized, or another program wrote to it."""
        self._shown = [None] * len(self._wanted)
        self._changed_lines = set(range(len(self._wanted)))
        self._style = self._cursor = None

    def resize(self, width: int, height: int) -> None:
        """Set the size in cells, and forget what the terminal shows if it changed."""
        if (width, height) == self.size:
            return
        self._width = width
        blank = (" ", CellStyle(0, "", "49"))
        self._wanted = [[blank] * width for _ in range(height)]
        self.invalidate()

    def write(self, y: int, x: int, segments: Iterable[Segment]) -> None:
        """Set the wanted cells of line ``y`` from column ``x`` on."""
        if not 0 <= y < len(self._wanted):
            return
        cells = self._cells(segments)[: self._width - x]
        line = self._wanted[y]
        if line[x : x + len(cells)] != cells:
            line[x : x + len(cells)] = cells
            self._changed_lines.add(y)

    def diff(self) -> str:
        """The output that updates the terminal; it is then assumed to be up to date."""
        output: list[str] = []
        if self._fills and self._wanted and not any(self._shown):
            self._clear_screen(output)
        different = [y for y in sorted(self._changed_lines) if self._shown[y] != self._wanted[y]]
        self._changed_lines.clear()
        output.append(self._shortest_update(different))
        return "".join(output)

    def cursor_sequence(self, y: int, x: int) -> str:
        """The output that moves the terminal's visible cursor."""
        output: list[str] = []
        self._move_cursor(y, x, output)
        return "".join(output)

    # --- cells ------------------------------------------------------------------------------

    def _cells(self, segments: Iterable[Segment]) -> Line:
        line: Line = []
        for text, style, control in segments:
            if control:
                continue
            cells = self._segment_cells.get((text, style))
            if cells is None:
                cells = self._split_segment(text, style)
                if len(self._segment_cells) >= CACHED_SEGMENTS:
                    self._segment_cells.clear()
                self._segment_cells[text, style] = cells
            line += cells
        return line

    def _split_segment(self, text: str, rich_style: Style | None) -> Line:
        style, blank_style = self._cell_styles.get(rich_style) or self._convert_style(rich_style)
        if text.isascii() and text.isprintable():
            return [
                (character, style) if character != " " else (character, blank_style)
                for character in text
            ]
        line: Line = []
        for character in text:
            columns = cell_len(character)
            if columns:
                line.append((character, style) if character != " " else (character, blank_style))
                line += [("", style)] * (columns - 1)
            elif line and not character.isascii():
                line[-1] = (line[-1][0] + character, line[-1][1])
        return line

    def _convert_style(self, style: Style | None) -> tuple[CellStyle, CellStyle]:
        """The cell styles of a Rich style: of characters, and of blanks (no foreground)."""
        attributes, fore, back = 0, "39", "49"
        if style is not None:
            attributes = style_attributes(style) & sum(_ON)
            if style.color is not None:
                fore = ";".join(style.color.downgrade(self._system).get_ansi_codes())
            if style.bgcolor is not None:
                back = ";".join(style.bgcolor.downgrade(self._system).get_ansi_codes(False))
        cell_style = CellStyle(attributes, fore, back)
        blank_style = cell_style if attributes & VISIBLE_ON_BLANKS else CellStyle(0, "", back)
        # One object per cell style: lines are compared often.
        cell_style, blank_style = (
            self._shared_styles.setdefault(new, new) for new in (cell_style, blank_style)
        )
        self._cell_styles[style] = cell_style, blank_style
        return cell_style, blank_style

    # --- lines ------------------------------------------------------------------------------

    def _shortest_update(self, different: list[int]) -> str:
        """The output that updates these lines, scrolling a region first if it is shorter."""
        before = self._shown.copy(), self._style, self._cursor
        written = self._write_lines(different)
        if len(written) < SCROLL_BYTES:
            return written
        region = self._moved_region(different, before[0])
        if region is None:
            return written
        after = self._shown, self._style, self._cursor
        self._shown, self._style, self._cursor = before
        scroll, rest = self._scroll(region, different)
        scrolled = scroll + (
            self._shortest_update(rest) if len(rest) < len(different) else self._write_lines(rest)
        )
        if len(scrolled.encode()) < len(written.encode()):
            return scrolled
        self._shown, self._style, self._cursor = after
        return written

    def _write_lines(self, different: list[int]) -> str:
        """Write the differences of these lines, grouped by style.

        A cursor movement costs a third of a style change.
        """
        output: list[str] = []
        runs: list[tuple[int, StyledRun]] = []
        for y in different:
            shown, wanted = self._shown[y], self._wanted[y]
            if shown is None or _has_wide(wanted) or _has_wide(shown):
                # Overwriting half of a wide character leaves its other half undefined.
                shown = self._erase_line(y, output)
            runs += [(y, run) for run in _share_styles(list(self._runs(shown, wanted)))]
        while runs:
            deferred = []
            for y, run in runs:
                if self._style is None or sgr_transition(self._style, run.style):
                    deferred.append((y, run))
                    continue
                self._move_cursor(y, run.x, output)
                output.append(run.text)
                if not run.keeps_cursor:
                    end = run.x + run.width
                    self._cursor = (y, end) if end < self._width else None
            if deferred:
                self._set_style(self._next_style(deferred), output)
            runs = deferred
        for y in different:
            self._shown[y] = self._wanted[y].copy()
        return "".join(output)

    def _next_style(self, runs: list[tuple[int, StyledRun]]) -> CellStyle:
        """The style to write next: the one that takes the fewest bytes to change to."""
        styles = dict.fromkeys(run.style for _, run in runs)
        return min(styles, key=lambda style: len(sgr_transition(self._style, style)))

    def _erase_line(self, y: int, output: list[str]) -> Line | None:
        """Erase a line that ends in blanks; returns its cells, None if it was not erased."""
        wanted = self._wanted[y]
        begin = self._width - ERASE_END_MINIMUM
        if begin < 0 or not self._erasable_blanks(begin, self._width, wanted):
            return None
        self._set_style(wanted[-1][1], output)
        self._move_cursor(y, 0, output)
        output.append("\x1b[K")
        return [wanted[-1]] * self._width

    def _runs(self, shown: Line | None, wanted: Line) -> Iterator[StyledRun]:
        """The runs to be written in a line, from left to right."""
        x, end = 0, self._width
        if shown is not None:
            while x < end and wanted[x] == shown[x]:
                x += 1
            while x < end and wanted[end - 1] == shown[end - 1]:
                end -= 1
        while x < end:
            if shown is not None and wanted[x] == shown[x]:
                x += 1
                continue
            blanks = self._erasable_blanks(x, end if shown is not None else self._width, wanted)
            if x + blanks == self._width and blanks:
                yield StyledRun(x, wanted[x][1], "\x1b[K", blanks, True)
                return
            if blanks:
                yield StyledRun(x, wanted[x][1], f"\x1b[{blanks}X", blanks, True)
                x += blanks
                continue
            run = self._text_run(x, end, shown, wanted)
            yield run
            x += run.width

    def _text_run(self, x: int, end: int, shown: Line | None, wanted: Line) -> StyledRun:
        """The longest run from here that can be written with one style."""
        stop, style, text = x, wanted[x][1], ""
        while stop < end:
            following = stop
            # Unchanged cells are rewritten if that is shorter than moving the cursor.
            while shown is not None and following < end and wanted[following] == shown[following]:
                following += 1
            if following - stop > MOVE_BYTES:
                break
            cells = wanted[stop : max(following, stop + 1)]
            for _, cell_style in cells:
                if (
                    not style.fore
                    and cell_style.back == style.back
                    and not cell_style.attributes & VISIBLE_ON_BLANKS
                ):
                    style = cell_style
            if any(sgr_transition(style, cell_style) for _, cell_style in cells):
                break
            if stop > x and self._erasable_blanks(stop, end, wanted):
                break
            if following > stop and (
                not _is_single_width(cells) or sgr_transition(style, wanted[following][1])
            ):
                break
            text += "".join(character for character, _ in cells)
            stop += len(cells)
        return StyledRun(x, style, text, stop - x, False)

    def _erasable_blanks(self, x: int, end: int, wanted: Line) -> int:
        """How many blanks from here to erase instead of writing them; 0 for none."""
        if not self._fills or wanted[x][0] != " " or wanted[x][1].attributes:
            return 0
        count, first = 1, wanted[x]
        while x + count < self._width and wanted[x + count] == first:
            count += 1
        if x + count == self._width:
            # Some of them may already be blank: erasing them again is free.
            return count if count >= ERASE_END_MINIMUM else 0
        return count if count >= ERASE_MINIMUM and x + count <= end else 0

    def _move_cursor(self, y: int, x: int, output: list[str]) -> None:
        output.append(_movement(self._cursor, y, x))
        self._cursor = (y, x)

    def _set_style(self, style: CellStyle, output: list[str]) -> None:
        parameters = sgr_transition(self._style, style)
        if parameters:
            output.append(f"\x1b[{parameters}m")
        self._style = style_after(self._style, style)

    # --- clearing and scrolling -------------------------------------------------------------

    def _clear_screen(self, output: list[str]) -> None:
        """Erase the screen, with the background in which most lines end."""
        (text, style), _ = Counter(line[-1] for line in self._wanted).most_common(1)[0]
        if text != " " or style.attributes:
            return
        self._set_style(style, output)
        output.append("\x1b[2J")
        self._cursor = None
        self._shown = [[(text, style)] * self._width for _ in self._wanted]

    def _moved_region(
        self, different: list[int], shown: list[Line | None]
    ) -> tuple[int, int, int] | None:
        """A region in which many lines have moved: first line, last plus one, distance."""
        best, most_saved = None, 0
        for distance in self._likely_distances(different, shown):
            top, bottom, saved = self._best_region(distance, shown)
            if saved > most_saved:
                best, most_saved = (top, bottom, distance), saved
        return best

    def _scroll(self, region: tuple[int, int, int], different: list[int]) -> tuple[str, list[int]]:
        """Scroll a region; returns the output, and the lines that still differ."""
        top, bottom, distance = region
        sequence = f"\x1b[{distance}M" if distance > 0 else f"\x1b[{-distance}L"
        self._cursor = None
        # The background of uncovered cells is unknown.
        lines = self._shown[top:bottom]
        uncovered: list[Line | None] = [None] * abs(distance)
        self._shown[top:bottom] = (
            lines[distance:] + uncovered if distance > 0 else uncovered + lines[:distance]
        )
        changed = {y for y in range(top, bottom) if self._shown[y] != self._wanted[y]}
        rest = sorted(changed | {y for y in different if not top <= y < bottom})
        return f"\x1b[{top + 1};{bottom}r\x1b[{top + 1}H{sequence}\x1b[r", rest

    def _likely_distances(self, different: list[int], shown: list[Line | None]) -> list[int]:
        """The most frequent distances by which lines have moved."""
        shown_at = {
            "".join(character for character, _ in line): y
            for y in different
            if (line := shown[y]) is not None
        }
        votes: Counter[int] = Counter()
        for y in different:
            previous = shown_at.get("".join(character for character, _ in self._wanted[y]))
            if previous is not None and previous != y:
                votes[previous - y] += 1
        return [distance for distance, _ in votes.most_common(2)]

    def _best_region(self, distance: int, shown: list[Line | None]) -> tuple[int, int, int]:
        """The best region to scroll by ``distance`` lines, and the cells it makes correct."""
        height, best, start, gain = len(self._wanted), (0, 0, 0), 0, 0
        uncovered = abs(distance) * self._width
        for y in range(max(0, -distance), min(height, height - distance)):
            if gain <= 0:
                start, gain = y, 0
            gain += self._line_cost(y, shown[y]) - self._line_cost(y, shown[y + distance])
            if gain - uncovered > best[2]:
                best = (start + min(0, distance), y + 1 + max(0, distance), gain - uncovered)
        return best

    def _line_cost(self, y: int, shown: Line | None) -> int:
        """The approximate bytes that turn a shown line into wanted line ``y``."""
        wanted = self._wanted[y]
        if shown is None:
            return self._width
        return 0 if shown == wanted else LINE_BYTES + sum(map(ne, shown, wanted))


def _share_styles(runs: list[StyledRun]) -> list[StyledRun]:
    """Give blanks the style of text beside them, so that both are written together."""
    for index, run in enumerate(runs):
        if run.style.fore:
            continue
        for other in (*reversed(runs[:index]), *runs[index + 1 :]):
            if other.style.fore and not sgr_transition(other.style, run.style):
                runs[index] = run._replace(style=other.style)
                break
    return runs


def _is_single_width(cells: Sequence[Cell]) -> bool:
    """Whether each of these occupies one cell on any terminal."""
    return all(character.isascii() for character, _ in cells)


def _has_wide(line: Line) -> bool:
    return any(not character for character, _ in line)


def _movement(start: Position | None, y: int, x: int) -> str:
    """The shortest sequence that moves the cursor to line ``y`` and column ``x``."""
    if start == (y, x):
        return ""
    sequences = [f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H"]
    if start is not None and start[0] in (y, y - 1):
        down = "\x1b[B" if start[0] < y else ""
        sequences += [down + across for across in _moves_across(start[1], x)]
    return min(sequences, key=len)


@lru_cache(maxsize=4096)
def _moves_across(start: int, x: int) -> tuple[str, ...]:
    """The sequences that move the cursor within a line, to column ``x``."""
    if start == x:
        return ("",)
    absolute = f"\x1b[{x + 1 if x else ''}G"
    distance, direction = abs(x - start), "C" if x > start else "D"
    return absolute, f"\x1b[{distance if distance > 1 else ''}{direction}"


@lru_cache(maxsize=4096)
def sgr_transition(current: CellStyle | None, target: CellStyle) -> str:
    """The SGR parameters that change the style; ``current`` None: unknown."""
    all_codes = [_ON[bit] for bit in _ON if target.attributes & bit]
    all_codes += [code for code in (target.fore, target.back) if code not in ("", "39", "49")]
    reset_sequence = ";".join(["0", *all_codes])
    if current is None:
        return reset_sequence
    visible = sum(_ON) if target.fore else VISIBLE_ON_BLANKS
    codes: list[str] = []
    removed = current.attributes & ~target.attributes & visible
    added = target.attributes & ~current.attributes
    codes += sorted({_OFF[bit] for bit in _ON if removed & bit})
    if removed & (BOLD | DIM):
        # One code resets both.
        added |= target.attributes & (BOLD | DIM)
    codes += [_ON[bit] for bit in _ON if added & bit]
    if target.fore and target.fore != current.fore:
        codes.append(target.fore)
    if target.back != current.back:
        codes.append(target.back)
    change = ";".join(codes)
    return change if len(change) <= len(reset_sequence) else reset_sequence


@lru_cache(maxsize=4096)
def style_after(current: CellStyle | None, target: CellStyle) -> CellStyle:
    """The style after :func:`sgr_transition`: a blank may keep invisible attributes."""
    if target.fore or current is None:
        return target if target.fore else CellStyle(target.attributes, "39", target.back)
    parameters = sgr_transition(current, target)
    if parameters.startswith("0"):
        return CellStyle(target.attributes, "39", target.back)
    return CellStyle(
        (current.attributes & ~VISIBLE_ON_BLANKS) | target.attributes, current.fore, target.back
    )
