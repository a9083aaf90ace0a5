"""A document beside another widget, separated by a vertical line."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.binding import BindingType

from metlmon.text.spans import DIM, MOVING, Line, line
from screens.actions import bindings_of
from screens.widgets.document import Document

EDGE: Final = 2
"""Width in cells of the line and a blank."""


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
