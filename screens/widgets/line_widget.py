"""Widgets that consist of lines and repaint only changed ones: base class, texts.

:mod:`screens.terminal.screen_buffer` then determines the cells that differ.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partialmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from metlmon.text.spans import DIM, MOVING, Line, crop, line, to_ascii
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
        """The application."""
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
        """Show these lines instead."""
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
    """A pane on the row under the cursor; a line at its left is highlighted with the focus."""

    def line_at(self, y: int) -> tuple[Line, bool]:
        content, selected = super().line_at(y)
        edge = "│"
        return line((edge, MOVING if self.has_focus else DIM), " ") + content, selected


class SidePane(SelectionPane):
    """A selection pane with sections, and a key for the next one."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("preview")]

    def action_next(self) -> None:
        self.next_section()
