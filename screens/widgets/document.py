"""Lines to scroll through, in sections to jump between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from screens.actions import bindings_of
from screens.widgets.line_widget import LineWidget
from screens.widgets.spans import Line


class Document(LineWidget, can_focus=True):
    """Long text that may change while one reads it: it stays where it is. Told its end is in
    view (``follow``), it stays at the end as text grows."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("moving")

    class Scrolled(Message):
        """Another part of the text is in view."""

    def __init__(self, *, id: str | None = None, follow: bool = False) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Line] = ()
        self._sections: Sequence[int] = ()
        self._top = 0
        self._follow = follow

    @property
    def lines(self) -> Sequence[Line]:
        """The whole text."""
        return self._lines

    @property
    def top(self) -> int:
        """Number of the first line in view."""
        return self._top

    @property
    def below(self) -> int:
        """How many lines lie below what is in view."""
        return max(0, len(self._lines) - self._top - self.size.height)

    def show(self, lines: Sequence[Line], sections: Sequence[int] = ()) -> None:
        """Show these lines; ``sections`` are the numbers of those with a heading."""
        at_end = self._follow and self.below == 0
        self._lines, self._sections = lines, sections
        self._top = self._deepest if at_end else min(self._top, self._deepest)
        self.repaint()

    def on_resize(self) -> None:
        before = self._top
        self._top = self._deepest if self._follow else min(self._top, self._deepest)
        if self._top != before:
            self.repaint()
        self.post_message(self.Scrolled())

    @property
    def _deepest(self) -> int:
        return max(0, len(self._lines) - self.size.height)

    def line_at(self, y: int) -> tuple[Line, bool]:
        at = self._top + y
        return (self._lines[at] if at < len(self._lines) else ()), False

    def go_to(self, top: int) -> None:
        """Bring line ``top`` to the first line in view, as far as there is text."""
        self._follow = self._follow and top >= self._deepest
        self._top = max(0, min(top, self._deepest))
        self.repaint()
        self.post_message(self.Scrolled())

    def next_section(self) -> None:
        """To the next heading; behind the last one, to the start."""
        later = [at for at in self._sections if at > self._top]
        self.go_to(later[0] if later and self._top < self._deepest else 0)

    def action_up(self) -> None:
        self.go_to(self._top - 1)

    def action_down(self) -> None:
        self.go_to(self._top + 1)

    def action_page_up(self) -> None:
        self.go_to(self._top - max(1, self.size.height - 1))

    def action_page_down(self) -> None:
        self.go_to(self._top + max(1, self.size.height - 1))

    def action_first(self) -> None:
        self.go_to(0)

    def action_last(self) -> None:
        self.go_to(self._deepest)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.go_to(self._top + 3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.go_to(self._top - 3)
