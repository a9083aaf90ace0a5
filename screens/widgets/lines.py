"""A few lines that are told anew with every picture: headers, counts, notes."""

from __future__ import annotations

from collections.abc import Sequence

from screens.widgets.line_widget import LineWidget
from screens.widgets.spans import Line


class StaticLines(LineWidget):
    """Lines from the top; its height is set by the screen, or grows with ``show``."""

    def __init__(self, *, id: str | None = None, grows: bool = True) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Line] = ()
        self._grows = grows

    @property
    def lines(self) -> Sequence[Line]:
        """What is shown."""
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Show these lines instead."""
        higher = self._grows and len(lines) != len(self._lines)
        self._lines = lines
        if higher:
            self.styles.height = len(lines)
            self.paint_afresh()
        else:
            self.repaint()

    def line_at(self, y: int) -> tuple[Line, bool]:
        return (self._lines[y] if y < len(self._lines) else ()), False
