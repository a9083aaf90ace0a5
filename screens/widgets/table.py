"""A table whose rows and cursor go by key, so that the cursor stays on its thing.

Textual's own DataTable repaints all of itself for one cell (19 KB at 120x40) and takes
seconds to open ten thousand rows; this one paints the lines in view, and of those the cells
that changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import accumulate
from typing import ClassVar, Final, overload

from textual import events
from textual.binding import BindingType
from textual.message import Message

from metlmon.frozen import frozen
from metlmon.text.formatting import Colour, Weight
from screens.actions import bindings_of
from screens.widgets.line_widget import LineWidget
from screens.widgets.spans import Align, Line, TextStyle, fit, line

GAP: Final = 2
"""Cells between two columns."""

MARGIN: Final = 2
"""Cells before the first column: the cursor's sign, and that of a marked row."""

HEADING: Final = TextStyle(Colour.GREY)
CURSOR: Final = TextStyle(Colour.SKY)
MARKED: Final = TextStyle(Colour.ORANGE, Weight.BOLD)


@frozen
class TableColumn:
    """A column as it is drawn: heading, cells wide, side that its values stick to."""

    title: str
    cells: int
    align: Align = "left"


@frozen
class TableRow:
    """One thing in the table. ``key`` None: a heading among the rows, where no cursor goes.
    ``cells`` is asked only when the row is in view: of ten thousand runs forty are.
    ``below`` is a second line, drawn from cell ``below_at`` on."""

    key: str | None
    cells: Callable[[], Sequence[Line]]
    below: Line = ()
    below_at: int = 0

    @property
    def height(self) -> int:
        return 2 if self.below else 1


class Rows(Sequence[TableRow]):
    """Rows of which only their keys and heights are known; the others are made when they are
    in view, by their number."""

    def __init__(
        self, keys: Sequence[str | None], heights: Sequence[int], make: Callable[[int], TableRow]
    ) -> None:
        self.keys, self.heights = keys, heights
        self._make = make
        self._made: dict[int, TableRow] = {}

    @classmethod
    def of(cls, rows: Sequence[TableRow]) -> Rows:
        """Rows that are there already."""
        if isinstance(rows, Rows):
            return rows
        keys, heights = [row.key for row in rows], [row.height for row in rows]
        return cls(keys, heights, rows.__getitem__)

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, at: int) -> TableRow: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[TableRow]: ...
    def __getitem__(self, at: int | slice) -> TableRow | Sequence[TableRow]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if at not in self._made:
            self._made[at] = self._make(at)
        return self._made[at]

    def __iter__(self) -> Iterator[TableRow]:
        return map(self.__getitem__, range(len(self)))


class Table(LineWidget, can_focus=True):
    """Rows under a heading that stays; ``Table.Opened`` and ``Table.Moved`` tell what is
    done with them."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("moving")

    class Opened(Message):
        """A row was clicked twice, or entered with the mouse."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class Moved(Message):
        """The cursor went to another row (None: there is none)."""

        def __init__(self, key: str | None) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._columns: Sequence[TableColumn] = ()
        self._rows = Rows((), (), lambda at: TableRow(None, tuple))
        self._ends: list[int] = []
        self._place: dict[str, int] = {}
        self._keyed: list[str] = []
        self._rank: dict[str, int] = {}
        self._drawn: dict[tuple[int, bool, bool], Line] = {}
        self._empty: Sequence[Line] = ()
        self._key: str | None = None
        self._marks: set[str] = set()
        self._top = 0
        self._sized = False

    # --- what is shown --------------------------------------------------------------------

    @property
    def rows(self) -> Sequence[TableRow]:
        """All rows, in order."""
        return self._rows

    @property
    def columns(self) -> Sequence[TableColumn]:
        """The columns that have room."""
        return self._columns

    @property
    def cursor(self) -> str | None:
        """Key of the row under the cursor."""
        return self._key

    @property
    def marks(self) -> frozenset[str]:
        """Keys of the marked rows, also of those that are not shown now."""
        return frozenset(self._marks)

    @property
    def hidden_marks(self) -> int:
        """How many of the marked rows are not shown now."""
        return len(self._marks - self._place.keys())

    @property
    def above(self) -> int:
        """How many rows lie above what is in view."""
        return bisect_right(self._ends, self._top)

    @property
    def below(self) -> int:
        """How many rows lie below what is in view."""
        return len(self._rows) - bisect_right(self._ends, self._top + self._view)

    def show(
        self, columns: Sequence[TableColumn], rows: Sequence[TableRow], empty: Sequence[Line] = ()
    ) -> None:
        """Show these rows; ``empty`` stands in their place when there are none.

        The cursor stays on its key, and its line where it is as far as possible. If its row
        is gone, it goes to the row that is now at its place.
        """
        offset = self._offset_of(self._key)
        index = self._place.get(self._key or "", 0)
        if columns != self._columns:
            self._drawn.clear()
        self._columns, self._empty = columns, empty
        if rows is not self._rows:
            self._take(Rows.of(rows))
        before = self._key
        if self._key not in self._place:
            self._key = self._nearest(index)
        if offset is not None and self._key is not None:
            self._top = self._start(self._place[self._key]) - offset
        self._keep_in_view()
        self.repaint()
        if self._key != before:
            self.post_message(self.Moved(self._key))

    def _take(self, rows: Rows) -> None:
        self._rows = rows
        self._drawn.clear()
        self._ends = list(accumulate(rows.heights))
        self._place = {key: i for i, key in enumerate(rows.keys) if key is not None}
        self._keyed = list(self._place)
        self._rank = {key: i for i, key in enumerate(self._keyed)}

    def place_of(self, key: str | None) -> int | None:
        """The number of the row with this key, if it is there."""
        return self._place.get(key or "")

    def _nearest(self, index: int) -> str | None:
        keys = self._rows.keys
        for candidates in (range(index, len(keys)), reversed(range(min(index, len(keys))))):
            for at in candidates:
                if keys[at] is not None:
                    return keys[at]
        return None

    def select(self, key: str) -> None:
        """Put the cursor on this row, if it is there."""
        if key not in self._place or key == self._key:
            return
        self._key = key
        self._keep_in_view()
        self.repaint()
        self.post_message(self.Moved(key))

    # --- marks: by key, so that they outlive refresh, order and filter ---------------------

    def toggle_mark(self) -> None:
        """Mark the row under the cursor, or unmark it, and go to the next."""
        if self._key is not None:
            self._marks ^= {self._key}
            self.repaint()
            self._move(1)

    def toggle_all(self) -> None:
        """Mark all rows shown; if all of them are marked, none."""
        shown = self._place.keys()
        self._marks = self._marks - shown if shown <= self._marks else self._marks | shown
        self.repaint()

    def clear_marks(self) -> None:
        """Unmark every row."""
        self._marks.clear()
        self.repaint()

    def keep_marks(self, there: Container[str]) -> None:
        """Forget the marks of what is not there any more."""
        self._marks = {key for key in self._marks if key in there}

    # --- where things are -----------------------------------------------------------------

    @property
    def _view(self) -> int:
        """Lines for rows: all but the heading."""
        return max(1, self.size.height - 1)

    def _start(self, index: int) -> int:
        return self._ends[index - 1] if index else 0

    def _offset_of(self, key: str | None) -> int | None:
        index = self._place.get(key or "")
        return None if index is None else self._start(index) - self._top

    def _keep_in_view(self) -> None:
        total = self._ends[-1] if self._ends else 0
        if self._key is not None:
            index = self._place[self._key]
            self._top = max(self._top, self._ends[index] - self._view)
            # The first row takes the headings above it along.
            self._top = min(self._top, 0 if self._key == self._keyed[0] else self._start(index))
        self._top = max(0, min(self._top, total - self._view))

    def on_resize(self) -> None:
        before, self._top = self._top, self._top if self._sized else 0
        self._sized = self._view > 1
        self._keep_in_view()
        if self._top != before:
            self.repaint()
        # How many rows lie outside has changed with the size.
        self.post_message(self.Moved(self._key))

    # --- drawing --------------------------------------------------------------------------

    def line_at(self, y: int) -> tuple[Line, bool]:
        if y == 0:
            titles = [line((column.title, HEADING)) for column in self._columns]
            return self._composed(titles, False), False
        if not self._rows:
            # A blank line, then what would fill the table.
            return (self._empty[y - 2] if 2 <= y < len(self._empty) + 2 else ()), False
        at = self._top + y - 1
        index = bisect_right(self._ends, at)
        if index >= len(self._rows):
            return (), False
        row = self._rows[index]
        selected = row.key is not None and row.key == self._key
        if at > self._start(index):
            return line(self._sign(selected), " " * (row.below_at - 1)) + row.below, selected
        if row.key is None:
            return line(" " * MARGIN) + row.cells()[0], False
        drawn = index, selected, row.key in self._marks
        if drawn not in self._drawn:
            self._drawn[drawn] = self._composed(row.cells(), *drawn[1:])
        return self._drawn[drawn], selected

    def _sign(self, selected: bool) -> tuple[str, TextStyle]:
        return ((">" if self.ascii else "▌") if selected else " ", CURSOR)

    def _composed(self, cells: Sequence[Line], selected: bool, marked: bool = False) -> Line:
        mark = ("*" if self.ascii else "◆") if marked else " "
        out: Line = line(self._sign(selected), (mark, MARKED))
        for i, (cell, column) in enumerate(zip(cells, self._columns, strict=True)):
            gap = line(" " * GAP) if i else ()
            out += gap + fit(cell, column.cells, column.align, self.ascii)
        return out

    # --- moving ---------------------------------------------------------------------------

    def _move(self, by: int) -> None:
        if self._key is not None and self._keyed:
            at = self._rank[self._key] + by
            self.select(self._keyed[max(0, min(at, len(self._keyed) - 1))])

    def action_up(self) -> None:
        self._move(-1)

    def action_down(self) -> None:
        self._move(1)

    def action_page_up(self) -> None:
        self._move(-max(1, self._view - 1))

    def action_page_down(self) -> None:
        self._move(max(1, self._view - 1))

    def action_first(self) -> None:
        self._move(-len(self._rows))

    def action_last(self) -> None:
        self._move(len(self._rows))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._move(-3)

    def on_click(self, event: events.Click) -> None:
        index = bisect_right(self._ends, self._top + event.y - 1)
        key = self._rows[index].key if event.y > 0 and index < len(self._rows) else None
        if key is None:
            return
        self.select(key)
        if event.chain > 1:
            self.post_message(self.Opened(key))
