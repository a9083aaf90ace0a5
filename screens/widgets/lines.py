"""Lines replaced with every snapshot: headers, counts, notes."""

from __future__ import annotations

from collections.abc import Sequence

from metlmon.text.spans import Line
from screens.widgets.line_widget import LineWidget


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
