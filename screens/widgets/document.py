"""Text on the screen: fixed lines, a scrollable text, and one beside another widget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.binding import BindingType
from textual.message import Message

from metlmon.text.spans import DIM, MOVING, Line, line
from screens.actions import bindings_of
from screens.widgets.line_widget import LineWidget, MovingWidget

EDGE: Final = 2
"""Width in cells of the vertical line at the left of a side pane, and a blank."""


class StaticLines(LineWidget):
    """A fixed block of lines; its height follows its content, or is set by the screen."""

    def __init__(self, *, id: str | None = None, grows: bool = True) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Line] = ()
        self._grows = grows

    @property
    def lines(self) -> Sequence[Line]:
        """The current lines."""
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Show these lines instead."""
        height_changed = self._grows and len(lines) != len(self._lines)
        self._lines = lines
        if height_changed:
            self.styles.height = len(lines)
            self.reset_painted()
        else:
            self.refresh_changed()

    def line_at(self, y: int) -> tuple[Line, bool]:
        return (self._lines[y] if y < len(self._lines) else ()), False


class Document(MovingWidget):
    """Long text that keeps its scroll position when it changes.

    With ``follow`` it stays at the end while text is appended, as long as the end is in view.
    """

    class Scrolled(Message):
        """The text was scrolled or resized."""

    def __init__(self, *, id: str | None = None, follow: bool = False) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Line] = ()
        self._sections: Sequence[int] = ()
        self._top = 0
        self._follow = follow

    @property
    def lines(self) -> Sequence[Line]:
        """All lines of the text."""
        return self._lines

    @property
    def top_line(self) -> int:
        """Index of the first line in view."""
        return self._top

    @property
    def lines_below(self) -> int:
        """Number of lines below the view."""
        return max(0, len(self._lines) - self._top - self.size.height)

    def show(self, lines: Sequence[Line], sections: Sequence[int] = ()) -> None:
        """Show these lines; ``sections`` are the indices of the headings."""
        at_end = self._follow and self.lines_below == 0
        self._lines, self._sections = lines, sections
        self._top = self._last_top if at_end else min(self._top, self._last_top)
        self.refresh_changed()

    def on_resize(self) -> None:
        previous_top = self._top
        self._top = self._last_top if self._follow else min(self._top, self._last_top)
        if self._top != previous_top:
            self.refresh_changed()
        self.post_message(self.Scrolled())

    @property
    def _last_top(self) -> int:
        return max(0, len(self._lines) - self.size.height)

    def line_at(self, y: int) -> tuple[Line, bool]:
        index = self._top + y
        return (self._lines[index] if index < len(self._lines) else ()), False

    def scroll_to_line(self, top: int) -> None:
        """Scroll line ``top_line`` to the top of the view, as far as there is text."""
        self._follow = self._follow and top >= self._last_top
        self._top = max(0, min(top, self._last_top))
        self.refresh_changed()
        self.post_message(self.Scrolled())

    def next_section(self) -> None:
        """Scroll to the next heading, or from the last one to the start."""
        next_sections = [section for section in self._sections if section > self._top]
        self.scroll_to_line(next_sections[0] if next_sections and self._top < self._last_top else 0)

    def move_by(self, lines: int) -> None:
        self.scroll_to_line(self._top + lines)


class SidePane(Document):
    """A document with a vertical line at its left, highlighted while it has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("preview")]

    def line_at(self, y: int) -> tuple[Line, bool]:
        content, selected = super().line_at(y)
        edge = "│"
        return line((edge, MOVING if self.has_focus else DIM), " ") + content, selected

    def action_next(self) -> None:
        self.next_section()

    def on_focus(self) -> None:
        self.refresh_changed()

    def on_blur(self) -> None:
        self.refresh_changed()
