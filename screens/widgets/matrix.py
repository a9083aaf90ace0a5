"""Cells in rows and columns under headings that stay; the cursor goes from cell to cell, by key,
so that it stays on its thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.strip import Strip

from metlmon.frozen import frozen
from screens.actions import bindings_of
from screens.widgets.line_widget import LineWidget, Told
from screens.widgets.spans import MOVING, Line, crop, fit, line

Key = tuple[Any, ...]

CURSOR: Final = MOVING

GAP: Final = 1
"""Cells between two columns: each cell begins with the cursor's sign or a blank."""


@frozen
class Layout:
    """What a matrix shows. ``corner`` and ``heads`` of a column: so many lines; ``left``: a row's
    heading, ``left_cells`` wide; ``cell``: the lines of one, ``cells`` wide and ``lines`` high."""

    rows: Sequence[Key]
    columns: Sequence[Key]
    corner: Sequence[Line]
    heads: Callable[[Key], Sequence[Line]]
    left: Callable[[Key], Line]
    cell: Callable[[Key, Key], Sequence[Line]]
    left_cells: int
    cells: int
    lines: int = 1


class Matrix(LineWidget, can_focus=True):
    """``Matrix.Opened`` and ``Matrix.Moved`` tell what is done with the cells."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("moving", "sideways")

    class Opened(Message):
        """A cell was clicked twice."""

    class Moved(Message):
        """The cursor went to another cell, or other cells are in view."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._layout: Layout | None = None
        self._empty: Sequence[Line] = ()
        self._row: Key | None = None
        self._column: Key | None = None
        self._top = self._left = 0

    # --- what is shown --------------------------------------------------------------------

    @property
    def cursor(self) -> tuple[Key, Key] | None:
        """Row and column of the cell under the cursor."""
        if self._layout is None or self._row is None or self._column is None:
            return None
        return self._row, self._column

    @property
    def outside(self) -> tuple[int, int, int, int]:
        """How many rows lie above and below what is in view, and columns left and right."""
        of = self._layout
        if of is None:
            return 0, 0, 0, 0
        below = len(of.rows) - self._top - self._rows_in_view
        right = len(of.columns) - self._left - self._columns_in_view
        return self._top, max(0, below), self._left, max(0, right)

    def show(self, layout: Layout | None, empty: Sequence[Line] = ()) -> None:
        """Show these cells; ``empty`` stands in their place when there are none. The cursor stays
        on its row and its column; where one is gone, it goes to what is now at its place."""
        before = self._layout
        self._layout, self._empty = layout, empty
        if layout is not None:
            rows = before.rows if before is not None else ()
            columns = before.columns if before is not None else ()
            self._row = _kept(self._row, rows, layout.rows)
            self._column = _kept(self._column, columns, layout.columns)
        self._keep_in_view()
        self.repaint()

    def select(self, row: Key, column: Key) -> None:
        """Put the cursor on this cell, if it is there."""
        of = self._layout
        if of is None or row not in of.rows or column not in of.columns:
            return
        moved = (row, column) != (self._row, self._column)
        self._row, self._column = row, column
        self._keep_in_view()
        self.repaint()
        if moved:
            self.post_message(self.Moved())

    # --- where things are -----------------------------------------------------------------

    @property
    def _above(self) -> int:
        """Lines of headings."""
        return len(self._layout.corner) if self._layout is not None else 0

    @property
    def _rows_in_view(self) -> int:
        of = self._layout
        return max(1, (self.size.height - self._above) // of.lines) if of is not None else 1

    @property
    def _columns_in_view(self) -> int:
        of = self._layout
        return (
            max(1, (self.size.width - of.left_cells) // (of.cells + GAP)) if of is not None else 1
        )

    def _keep_in_view(self) -> None:
        of = self._layout
        if of is None or self._row is None or self._column is None:
            return
        self._top = _scrolled(
            self._top, list(of.rows).index(self._row), self._rows_in_view, len(of.rows)
        )
        self._left = _scrolled(
            self._left, list(of.columns).index(self._column), self._columns_in_view, len(of.columns)
        )

    def on_resize(self) -> None:
        self._keep_in_view()
        self.post_message(self.Moved())

    # --- drawing --------------------------------------------------------------------------

    def line_at(self, y: int) -> tuple[Line, bool]:
        return self.told_at(y)[0], False

    def told_at(self, y: int) -> Told:
        """The line, never selected as a whole; then which of its pieces are the cursor's cell."""
        of = self._layout
        if of is None:
            # A blank line, then what would fill the matrix.
            return (self._empty[y - 1] if 1 <= y <= len(self._empty) else ()), False, ()
        shown = of.columns[self._left : self._left + self._columns_in_view]
        if y < self._above:
            out = fit(of.corner[y], of.left_cells, "left", self.ascii)
            for column in shown:
                heads = of.heads(column)
                head = heads[y] if y < len(heads) else ()
                out += line(" " * GAP) + fit(head, of.cells, "right", self.ascii)
            return out, False, ()
        at, part = divmod(y - self._above, of.lines)
        if self._top + at >= len(of.rows) or at >= self._rows_in_view:
            return (), False, ()
        row = of.rows[self._top + at]
        out = fit(of.left(row) if not part else (), of.left_cells, "left", self.ascii)
        chosen: tuple[int, ...] = ()
        for column in shown:
            here = row == self._row and column == self._column
            content = fit(of.cell(row, column)[part], of.cells, "left", self.ascii)
            out += line((self._sign(here and not part), CURSOR))
            if here:
                chosen = tuple(range(len(out) - 1, len(out) + len(content)))
            out += content
        return out, False, chosen

    def _sign(self, here: bool) -> str:
        return (">" if self.ascii else "▌") if here else " "

    def strip_of(self, y: int, told: Told) -> Strip:
        content, _, chosen = told
        width, shades, base = self.size.width, self.shades, self.base
        pieces = crop(content, width, self.ascii)
        segments = [
            Segment(piece, base + shades.style(how, place in chosen))
            for place, (piece, how) in enumerate(pieces)
        ]
        return Strip(segments).adjust_cell_length(width, base + Style())

    # --- moving ---------------------------------------------------------------------------

    def _go(self, down: int, right: int) -> None:
        of = self._layout
        if of is None or self._row is None or self._column is None:
            return
        row = list(of.rows).index(self._row) + down
        column = list(of.columns).index(self._column) + right
        self.select(
            of.rows[max(0, min(row, len(of.rows) - 1))],
            of.columns[max(0, min(column, len(of.columns) - 1))],
        )

    def action_up(self) -> None:
        self._go(-1, 0)

    def action_down(self) -> None:
        self._go(1, 0)

    def action_left(self) -> None:
        self._go(0, -1)

    def action_right(self) -> None:
        self._go(0, 1)

    def action_page_up(self) -> None:
        self._go(-self._rows_in_view, 0)

    def action_page_down(self) -> None:
        self._go(self._rows_in_view, 0)

    def action_first(self) -> None:
        of = self._layout
        self._go(-len(of.rows) if of is not None else 0, 0)

    def action_last(self) -> None:
        of = self._layout
        self._go(len(of.rows) if of is not None else 0, 0)

    def action_far_left(self) -> None:
        of = self._layout
        self._go(0, -len(of.columns) if of is not None else 0)

    def action_far_right(self) -> None:
        of = self._layout
        self._go(0, len(of.columns) if of is not None else 0)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._go(1, 0)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._go(-1, 0)

    def on_click(self, event: events.Click) -> None:
        of = self._layout
        if of is None or event.y < self._above or event.x < of.left_cells:
            return
        row = self._top + (event.y - self._above) // of.lines
        column = self._left + (event.x - of.left_cells) // (of.cells + GAP)
        if row < len(of.rows) and column < len(of.columns):
            self.select(of.rows[row], of.columns[column])
            if event.chain > 1:
                self.post_message(self.Opened())


def _kept(key: Key | None, before: Sequence[Key], now: Sequence[Key]) -> Key | None:
    """The key if it is still there, or what is now at its place."""
    if key in now or not now:
        return key if now else None
    at = list(before).index(key) if key is not None and key in before else 0
    return now[min(at, len(now) - 1)]


def _scrolled(first: int, at: int, view: int, there: int) -> int:
    """The first that is shown so that ``at`` is in view, and no room is left empty."""
    first = min(max(first, at - view + 1), at)
    return max(0, min(first, there - view))
