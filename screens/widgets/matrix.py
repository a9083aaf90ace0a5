"""A matrix with fixed headings, whose cursor moves from cell to cell.

Rows and columns are identified by key, so that the cursor stays on its cell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import Any, ClassVar, Final

from msgspec import Struct
from textual import events
from textual.binding import BindingType
from textual.message import Message

from metlmon.text.spans import MOVING, Line, fit, line
from screens.actions import bindings_of
from screens.widgets.line_widget import LineState, MovingWidget

Key = tuple[Any, ...]

CURSOR: Final = MOVING

GAP: Final = 1
"""Width between two columns: each cell begins with the cursor or a blank."""


class MatrixLayout(Struct, frozen=True):
    """The content of a matrix.

    ``corner`` and ``heading``: the lines of the corner and of a column's heading; ``row_heading``:
    a row's heading, ``row_heading_width`` wide; ``cell``: a cell's lines, ``cell_width`` wide,
    ``cell_height`` high.
    """

    rows: Sequence[Key]
    columns: Sequence[Key]
    corner: Sequence[Line]
    heading: Callable[[Key], Sequence[Line]]
    row_heading: Callable[[Key], Line]
    cell: Callable[[Key, Key], Sequence[Line]]
    row_heading_width: int
    cell_width: int
    cell_height: int = 1


NO_CONTENT: Final = MatrixLayout(
    rows=(),
    columns=(),
    corner=(),
    heading=lambda column: (),
    row_heading=lambda row: (),
    cell=lambda row, column: (),
    row_heading_width=0,
    cell_width=1,
)


class Matrix(MovingWidget):
    """A matrix of cells; posts ``Matrix.CellSelected`` and ``Matrix.CellHighlighted``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("sideways")
    WHEEL_LINES = 1

    class CellSelected(Message):
        """A cell was double-clicked."""

    class CellHighlighted(Message):
        """The cursor ``moved`` to another cell, or the view was resized."""

        def __init__(self, *, moved: bool = True) -> None:
            super().__init__()
            self.moved = moved

    def __init__(self) -> None:
        super().__init__()
        self._layout = NO_CONTENT
        self._empty: Sequence[Line] = ()
        self._cell: tuple[Key, Key] | None = None
        self._top = self._left = 0

    # --- what is shown --------------------------------------------------------------------

    @property
    def cursor(self) -> tuple[Key, Key] | None:
        """Row and column of the cell under the cursor."""
        return None if self._layout is NO_CONTENT else self._cell

    @property
    def hidden_counts(self) -> tuple[int, int, int, int]:
        """Number of rows above and below the view, and of columns left and right of it."""
        layout = self._layout
        if layout is NO_CONTENT:
            return 0, 0, 0, 0
        below = len(layout.rows) - self._top - self._rows_in_view
        right = len(layout.columns) - self._left - self._columns_in_view
        return self._top, max(0, below), self._left, max(0, right)

    def show(self, layout: MatrixLayout | None, empty: Sequence[Line] = ()) -> None:
        """Show this layout, or the lines ``empty`` if there is none."""
        previous, self._layout, self._empty = self._layout, layout or NO_CONTENT, empty
        if layout is not None:
            row, column = self._cell or (None, None)
            row = _key_or_neighbour(row, previous.rows, layout.rows)
            column = _key_or_neighbour(column, previous.columns, layout.columns)
            self._cell = None if row is None or column is None else (row, column)
        self._keep_in_view()
        self.refresh_changed()

    def select(self, row: Key, column: Key) -> None:
        """Move the cursor to this cell, if it exists."""
        if row not in self._layout.rows or column not in self._layout.columns:
            return
        moved, self._cell = (row, column) != self._cell, (row, column)
        self._keep_in_view()
        self.refresh_changed()
        if moved:
            self.post_message(self.CellHighlighted())

    # --- positions ------------------------------------------------------------------------

    @property
    def _rows_in_view(self) -> int:
        layout = self._layout
        return max(1, (self.size.height - len(layout.corner)) // layout.cell_height)

    @property
    def _columns_in_view(self) -> int:
        layout = self._layout
        return max(1, (self.size.width - layout.row_heading_width) // (layout.cell_width + GAP))

    def _indices(self, cursor: tuple[Key, Key]) -> tuple[int, int]:
        row, column = cursor
        return list(self._layout.rows).index(row), list(self._layout.columns).index(column)

    def _keep_in_view(self) -> None:
        if self.cursor is None:
            return
        row, column = self._indices(self.cursor)
        rows, columns = len(self._layout.rows), len(self._layout.columns)
        self._top = _first_in_view(self._top, row, self._rows_in_view, rows)
        self._left = _first_in_view(self._left, column, self._columns_in_view, columns)

    def on_resize(self) -> None:
        self._keep_in_view()
        self.post_message(self.CellHighlighted(moved=False))

    # --- drawing --------------------------------------------------------------------------

    def line_at(self, y: int) -> LineState:
        """A line, and the spans of the cursor's cell in it."""
        layout = self._layout
        if layout is NO_CONTENT:
            # A blank line, then the text for an empty matrix.
            return (self._empty[y - 1] if 1 <= y <= len(self._empty) else ()), ()
        columns = layout.columns[self._left : self._left + self._columns_in_view]
        if y < len(layout.corner):
            content = fit(layout.corner[y], layout.row_heading_width, "left")
            for column in columns:
                heads = layout.heading(column)
                head = heads[y] if y < len(heads) else ()
                content += line(" " * GAP) + fit(head, layout.cell_width, "right")
            return content, ()
        row_in_view, line_in_row = divmod(y - len(layout.corner), layout.cell_height)
        if self._top + row_in_view >= len(layout.rows) or row_in_view >= self._rows_in_view:
            return (), ()
        row = layout.rows[self._top + row_in_view]
        heading = () if line_in_row else layout.row_heading(row)
        content = fit(heading, layout.row_heading_width, "left")
        cursor_spans: tuple[int, ...] = ()
        for column in columns:
            under_cursor = (row, column) == self._cell
            cell = fit(layout.cell(row, column)[line_in_row], layout.cell_width, "left")
            content += line(("▌" if under_cursor and not line_in_row else " ", CURSOR))
            if under_cursor:
                cursor_spans = tuple(range(len(content) - 1, len(content) + len(cell)))
            content += cell
        return content, cursor_spans

    # --- moving ---------------------------------------------------------------------------

    def _move_cursor(self, down: int, right: int) -> None:
        if self.cursor is None:
            return
        rows, columns = self._layout.rows, self._layout.columns
        row, column = self._indices(self.cursor)
        self.select(
            rows[max(0, min(row + down, len(rows) - 1))],
            columns[max(0, min(column + right, len(columns) - 1))],
        )

    @property
    def page_size(self) -> int:
        return self._rows_in_view

    def move_by(self, lines: int) -> None:
        self._move_cursor(lines, 0)

    action_left = partialmethod(_move_cursor, 0, -1)
    action_right = partialmethod(_move_cursor, 0, 1)
    action_far_left = partialmethod(_move_cursor, 0, -sys.maxsize)
    action_far_right = partialmethod(_move_cursor, 0, sys.maxsize)

    def on_click(self, event: events.Click) -> None:
        layout = self._layout
        if event.y < len(layout.corner) or event.x < layout.row_heading_width:
            return
        row = self._top + (event.y - len(layout.corner)) // layout.cell_height
        column = self._left + (event.x - layout.row_heading_width) // (layout.cell_width + GAP)
        if row < len(layout.rows) and column < len(layout.columns):
            self.select(layout.rows[row], layout.columns[column])
            if event.chain > 1:
                self.post_message(self.CellSelected())


def _key_or_neighbour(
    key: Key | None, previous: Sequence[Key], current: Sequence[Key]
) -> Key | None:
    """The key if it still exists, or the one now at its index."""
    if key in current or not current:
        return key if current else None
    index = list(previous).index(key) if key is not None and key in previous else 0
    return current[min(index, len(current) - 1)]


def _first_in_view(first: int, index: int, view: int, count: int) -> int:
    """The first index in view, so that ``index`` is in view and no room is empty."""
    first = min(max(first, index - view + 1), index)
    return max(0, min(first, count - view))
