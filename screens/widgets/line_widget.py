"""Widgets that consist of lines and repaint only changed ones.

The base class, texts, and the table.
:mod:`screens.terminal.screen_buffer` then determines the cells that differ.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partialmethod
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from metlmon.tables.layout import GAP, MARGIN, TableColumn
from metlmon.text.formatting import Colour, Weight
from metlmon.text.spans import DIM, MOVING, Line, TextStyle, crop, fit, join, line, to_ascii
from screens.actions import bindings_of
from screens.terminal.private import FaultTolerant, report_exception
from screens.theme import PALETTES, Palette, rich_style

if TYPE_CHECKING:
    from screens.app import MetlmonApp

LineState = tuple[Any, ...]
"""A line, whether it is selected (or which of its spans are), and what else its look depends on."""


class LineWidget(FaultTolerant, Widget):
    """Base class of all widgets.

    Subclasses implement :meth:`line_at`, and call :meth:`refresh_changed` after a change.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._painted: dict[int, LineState] = {}
        self._base_style: tuple[str, Style] | None = None

    @property
    def context(self) -> MetlmonApp:
        return cast("MetlmonApp", self.app)

    @property
    def palette(self) -> Palette:
        return PALETTES[self.app.theme]

    @property
    def base_style(self) -> Style:
        """The widget's own style, cached: the stylesheet lookup is slower than rendering."""
        theme = self.app.theme
        if self._base_style is None or self._base_style[0] != theme:
            self._base_style = (theme, self.rich_style)
        return self._base_style[1]

    def notify_style_update(self) -> None:
        self._base_style = None
        super().notify_style_update()

    def line_at(self, y: int) -> LineState:
        """Line ``y`` of the widget, which is repainted when it changes."""
        raise NotImplementedError

    def render_state(self, y: int, state: LineState) -> Strip:
        """Line ``y`` in the theme's colours, exactly as wide as the widget."""
        content, selected = state[0], state[1]
        width, base, theme = self.size.width, self.base_style, self.app.theme
        shown = to_ascii if self.context.options.ascii else str
        segments = [
            Segment(
                shown(text),
                base + rich_style(theme, style, selected is True or (selected and i in selected)),
            )
            for i, (text, style) in enumerate(crop(content, width))
        ]
        padding = base
        if selected is True:
            background = self.palette.selection_background
            padding += Style(bgcolor=background) if background else Style(reverse=True)
        return Strip(segments).adjust_cell_length(width, padding)

    def render_line(self, y: int) -> Strip:
        try:
            state = self.line_at(y)
            strip = self.render_state(y, state)
        except Exception as error:
            # Skip a line that fails to render instead of crashing.
            report_exception(self.app, error)
            return Strip.blank(self.size.width, self.base_style)
        self._painted[y] = state
        return strip

    def refresh_changed(self) -> None:
        """Repaint only the lines that have changed."""
        # Textual paints new lines by itself.
        width, height = self.size
        painted = [(y, state) for y, state in self._painted.items() if y < height]
        changed = [y for y, state in painted if state != self.line_at(y)]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def reset_painted(self) -> None:
        """Forget the painted lines, after lines were added or removed."""
        self._painted.clear()


class MovingWidget(LineWidget, can_focus=True):
    """Base class of widgets whose cursor or view moves by lines and pages.

    Subclasses implement :meth:`move_by`, which stops at the ends, and :attr:`page_size`.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("moving")
    WHEEL_LINES: ClassVar[int] = 3

    @property
    def page_size(self) -> int:
        """Number of lines that a page key moves by."""
        return max(1, self.size.height - 1)

    def move_by(self, lines: int) -> None:
        """Move down by this number of lines; up if negative."""
        raise NotImplementedError

    def _move(self, lines: int) -> None:
        self.move_by(lines)

    def _move_pages(self, pages: int) -> None:
        self.move_by(pages * self.page_size)

    action_up = partialmethod(_move, -1)
    action_down = partialmethod(_move, 1)
    action_page_up = partialmethod(_move_pages, -1)
    action_page_down = partialmethod(_move_pages, 1)
    action_first = partialmethod(_move, -sys.maxsize)
    action_last = partialmethod(_move, sys.maxsize)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.move_by(self.WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.move_by(-self.WHEEL_LINES)

    def on_focus(self) -> None:
        self.refresh_changed()

    def on_blur(self) -> None:
        self.refresh_changed()


# --- texts: fixed lines, a scrollable text, and one beside another widget -------------------

EDGE: Final = 2
"""Width in cells of the vertical line at the left of a side pane, with a blank."""


class StaticLines(LineWidget):
    """A fixed block of lines; its height follows its content, or is set by the screen."""

    def __init__(self, *, id: str | None = None, grows: bool = True) -> None:
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self._grows = grows

    def show(self, lines: Sequence[Line]) -> None:
        height_changed = self._grows and len(lines) != len(self.lines)
        self.lines = lines
        if height_changed:
            self.styles.height = len(lines)
            self.reset_painted()
        else:
            self.refresh_changed()

    def line_at(self, y: int) -> tuple[Line, bool]:
        return (self.lines[y] if y < len(self.lines) else ()), False


class Document(MovingWidget):
    """Long text that keeps its scroll position when it changes.

    With ``follow`` it stays at the end while text is appended, as long as the end is in view.
    ``lines`` are those of the text, ``top_line`` the index of the first one in view.
    """

    class Scrolled(Message):
        """The text was scrolled or resized."""

    def __init__(self, *, id: str | None = None, follow: bool = False) -> None:
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self._sections: Sequence[int] = ()
        self.top_line = 0
        self._follow = follow
        self._at_end = True

    @property
    def lines_below(self) -> int:
        """Number of lines below the view."""
        return max(0, len(self.lines) - self.top_line - self.size.height)

    def show(self, lines: Sequence[Line], sections: Sequence[int] = ()) -> None:
        """Show these lines; ``sections`` are the indices of the headings."""
        at_end = self._follow and self.lines_below == 0
        self.lines, self._sections = lines, sections
        self.top_line = self._last_top if at_end else min(self.top_line, self._last_top)
        self.refresh_changed()

    def on_resize(self) -> None:
        previous_top = self.top_line
        follows = self._follow and self._at_end
        self.top_line = self._last_top if follows else min(self.top_line, self._last_top)
        if self.top_line != previous_top:
            self.refresh_changed()
        self.post_message(self.Scrolled())

    @property
    def _last_top(self) -> int:
        return max(0, len(self.lines) - self.size.height)

    def line_at(self, y: int) -> tuple[Line, bool]:
        index = self.top_line + y
        return (self.lines[index] if index < len(self.lines) else ()), False

    def scroll_to_line(self, top: int) -> None:
        """Scroll line ``top`` to the top of the view, as far as the text allows."""
        self._at_end = top >= self._last_top
        self.top_line = max(0, min(top, self._last_top))
        self.refresh_changed()
        self.post_message(self.Scrolled())

    def next_section(self) -> None:
        """Scroll to the next heading, or from the last one to the start."""
        next_sections = [section for section in self._sections if section > self.top_line]
        self.scroll_to_line(
            next_sections[0] if next_sections and self.top_line < self._last_top else 0
        )

    def move_by(self, lines: int) -> None:
        self.scroll_to_line(self.top_line + lines)


class SelectionPane(Document):
    """A pane on the row under the cursor; a line at its left is highlighted with the focus.

    ``has_edge``: it has that line, as beside a list.
    """

    has_edge = True

    def line_at(self, y: int) -> tuple[Line, bool]:
        content, selected = super().line_at(y)
        edge = line(("│", MOVING if self.has_focus else DIM), " ") if self.has_edge else ()
        return edge + content, selected


class SidePane(SelectionPane):
    """A selection pane with sections, and a key for the next one."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("preview")]

    def action_next(self) -> None:
        self.next_section()


# --- a table whose rows, cursor and marks are identified by key -----------------------

HEADING: Final = TextStyle(Colour.GREY)
CURSOR: Final = TextStyle(Colour.SKY)
MARKED: Final = TextStyle(Colour.ORANGE, Weight.BOLD)


class TableRow(Struct, frozen=True):
    """A row of the table.

    ``key`` None: a heading between rows, which the cursor skips. ``cells`` is called only when
    the row is in view. ``detail`` is a second line, rendered from column ``detail_indent``.
    ``sign`` occupies the cell before it, unless the row is marked.
    """

    key: str | None
    cells: Callable[[], Sequence[Line]]
    detail: Line = ()
    detail_indent: int = 0
    sign: Line = ()

    @classmethod
    def heading(cls, title: str) -> TableRow:
        """A title between rows."""
        return cls(None, lambda: (line((title, DIM)),))

    @property
    def height(self) -> int:
        return 2 if self.detail else 1


class Table(MovingWidget):
    """A table with a fixed heading; posts ``RowSelected``, ``RowHighlighted``, …

    Textual's own DataTable repaints itself completely for one cell (19 KB at 120x40) and takes
    seconds to open ten thousand rows. This one renders the lines in view only.

    ``columns``: those that fit; ``rows``: all, in order; ``cursor``: the key of the row under it.
    :meth:`show` and :meth:`select` set them.
    """

    class RowSelected(Message):
        """A row was double-clicked."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class HeadingSelected(Message):
        """The heading of a column was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class RowHighlighted(Message):
        """The cursor ``moved`` to another row (None: none), or the table was resized."""

        def __init__(self, key: str | None, *, moved: bool = True) -> None:
            super().__init__()
            self.key = key
            self.moved = moved

    def __init__(self) -> None:
        super().__init__()
        self.columns: Sequence[TableColumn] = ()
        self.rows: Sequence[TableRow] = ()
        self._ends: list[int] = []
        self._index_by_key: dict[str, int] = {}
        self._selectable: list[int] = []
        self._rendered: dict[tuple[int, bool, bool], Line] = {}
        self._empty: Sequence[Line] = ()
        self.cursor: str | None = None
        self._marks: set[str] = set()
        self._top = 0
        self._sized = False

    # --- what is shown --------------------------------------------------------------------

    @property
    def keys(self) -> Sequence[str]:
        """The keys of all rows that have one, in order."""
        return list(self._index_by_key)

    @property
    def marks(self) -> frozenset[str]:
        """Keys of the marked rows, including rows that are filtered out."""
        return frozenset(self._marks)

    @property
    def hidden_marks(self) -> int:
        """Number of marked rows that are filtered out."""
        return len(self._marks - self._index_by_key.keys())

    @property
    def rows_above(self) -> int:
        """Number of rows above the view."""
        return bisect_right(self._ends, self._top)

    @property
    def rows_below(self) -> int:
        """Number of rows below the view."""
        return len(self.rows) - bisect_right(self._ends, self._top + self._view_height)

    def show(
        self, columns: Sequence[TableColumn], rows: Sequence[TableRow], empty: Sequence[Line] = ()
    ) -> None:
        """Show these rows, or the lines ``empty`` if there are none."""
        offset = self._offset_of(self.cursor)
        index = self._index_by_key.get(self.cursor or "", 0)
        self.columns, self._empty = columns, empty
        self.rows = rows
        self._rendered.clear()
        self._ends = list(accumulate(row.height for row in rows))
        self._index_by_key = {row.key: i for i, row in enumerate(rows) if row.key is not None}
        self._selectable = list(self._index_by_key.values())
        previous_key = self.cursor
        if self.cursor not in self._index_by_key:
            self.cursor = self._nearest(index)
        if offset is not None and self.cursor is not None:
            self._top = self._first_line(self._index_by_key[self.cursor]) - offset
        self._keep_in_view()
        self.refresh_changed()
        if self.cursor != previous_key:
            self.post_message(self.RowHighlighted(self.cursor))

    def _nearest(self, index: int) -> str | None:
        rows = self.rows
        neighbours = (*rows[index:], *reversed(rows[:index]))
        return next((row.key for row in neighbours if row.key is not None), None)

    def select(self, key: str) -> None:
        """Move the cursor to this row, if it exists."""
        if key not in self._index_by_key or key == self.cursor:
            return
        self.cursor = key
        self._keep_in_view()
        self.refresh_changed()
        self.post_message(self.RowHighlighted(key))

    # --- marks: by key, so that they survive refresh, order and filter ---------------------

    def toggle_mark(self) -> None:
        """Mark or unmark the row under the cursor, and move to the next."""
        if self.cursor is not None:
            self._marks ^= {self.cursor}
            self.refresh_changed()
            self.move_by(1)

    def toggle_all(self, unmarked: Iterable[str] = ()) -> None:
        """Mark all shown rows except ``unmarked``; if all of them are marked, unmark them."""
        shown = self._index_by_key.keys() - set(unmarked)
        self._marks = self._marks - shown if shown <= self._marks else self._marks | shown
        self.refresh_changed()

    def clear_marks(self) -> None:
        self._marks.clear()
        self.refresh_changed()

    def keep_marks(self, existing: Container[str]) -> None:
        """Drop the marks of rows that no longer exist."""
        self._marks = {key for key in self._marks if key in existing}

    # --- positions ------------------------------------------------------------------------

    @property
    def page_size(self) -> int:
        return max(1, self._view_height - 1)

    @property
    def _view_height(self) -> int:
        """Lines available for rows: all except the heading."""
        return max(1, self.size.height - 1)

    def _first_line(self, index: int) -> int:
        return self._ends[index - 1] if index else 0

    def _offset_of(self, key: str | None) -> int | None:
        index = self._index_by_key.get(key or "")
        return None if index is None else self._first_line(index) - self._top

    def _keep_in_view(self) -> None:
        total = self._ends[-1] if self._ends else 0
        if self.cursor is not None:
            index = self._index_by_key[self.cursor]
            self._top = max(self._top, self._ends[index] - self._view_height)
            # With the first row, the headings above it come into view.
            is_first = index == self._selectable[0]
            self._top = min(self._top, 0 if is_first else self._first_line(index))
        self._top = max(0, min(self._top, total - self._view_height))

    def on_resize(self) -> None:
        previous_top, self._top = self._top, self._top if self._sized else 0
        self._sized = self._view_height > 1
        self._keep_in_view()
        if self._top != previous_top:
            self.refresh_changed()
        # The number of rows outside the view has changed with the size.
        self.post_message(self.RowHighlighted(self.cursor, moved=False))

    # --- drawing --------------------------------------------------------------------------

    def line_at(self, y: int) -> tuple[Line, bool]:
        if y == 0:
            return self._heading, False
        if not self.rows:
            # A blank line, then the text for an empty table.
            return (self._empty[y - 2] if 2 <= y < len(self._empty) + 2 else ()), False
        row_line = self._top + y - 1
        index = bisect_right(self._ends, row_line)
        if index >= len(self.rows):
            return (), False
        row = self.rows[index]
        selected = row.key is not None and row.key == self.cursor
        if row_line > self._first_line(index):
            return line(
                self._cursor_sign(selected), " " * (row.detail_indent - 1)
            ) + row.detail, selected
        if row.key is None:
            return line(" " * MARGIN) + row.cells()[0], False
        marked = row.key in self._marks
        cache_key = index, selected, marked
        if cache_key not in self._rendered:
            sign = line(("◆", MARKED)) if marked else row.sign or line((" ", MARKED))
            pairs = zip(row.cells(), self.columns, strict=True)
            cells = (fit(cell, column.width, column.align) for cell, column in pairs)
            start = line(self._cursor_sign(selected)) + sign
            self._rendered[cache_key] = start + join(cells, line(" " * GAP))
        return self._rendered[cache_key], selected

    @property
    def _heading(self) -> Line:
        """The titles; the column by which the rows are sorted has a mark in the gap after it."""
        content, gap = line(" " * MARGIN), 0
        for column in self.columns:
            title = crop(line((column.title, HEADING)), column.width) + line((column.mark, CURSOR))
            cells = column.width + len(column.mark)
            content += line(" " * gap) + fit(title, cells, column.align)
            gap = GAP - len(column.mark)
        return content

    def _cursor_sign(self, selected: bool) -> tuple[str, TextStyle]:
        return ("▌" if selected else " ", CURSOR)

    # --- moving ---------------------------------------------------------------------------

    def move_by(self, lines: int) -> None:
        if self.cursor is None:
            return
        position = bisect_left(self._selectable, self._index_by_key[self.cursor]) + lines
        index = self._selectable[max(0, min(position, len(self._selectable) - 1))]
        self.select(self.rows[index].key or "")

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            ends = accumulate((column.width + GAP for column in self.columns), initial=MARGIN)
            place = bisect_right(list(ends), event.x) - 1
            if 0 <= place < len(self.columns) and self.columns[place].name:
                self.post_message(self.HeadingSelected(self.columns[place].name))
            return
        index = bisect_right(self._ends, self._top + event.y - 1)
        key = self.rows[index].key if index < len(self.rows) else None
        if key is None:
            return
        self.select(key)
        if event.chain > 1:
            self.post_message(self.RowSelected(key))
