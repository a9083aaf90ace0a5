"""A widget of lines that repaints only those that differ.

Which of their cells differ, and what of that is written, is left to
:mod:`screens.terminal.screen_buffer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from screens.base.fault_tolerant import FaultTolerant
from screens.theme import SHADES, Palette
from screens.widgets.spans import Line, crop

if TYPE_CHECKING:
    from screens.app import MetlmonApp


Told = tuple[Any, ...]
"""A line, whether it is selected, and what else the painting of it depends on."""


class LineWidget(FaultTolerant, Widget):
    """Base of everything drawn here. Subclasses say what line ``y`` is, and call
    :meth:`repaint` when what they show has changed."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._painted: dict[int, Told] = {}
        self._next: dict[int, Told] = {}
        self._sized_for = Size(0, 0)
        self._ground: tuple[str, Style] | None = None

    @property
    def monitor(self) -> MetlmonApp:
        """The application, typed."""
        return cast("MetlmonApp", self.app)

    @property
    def ascii(self) -> bool:
        """Only characters below 0x80 may be drawn."""
        return self.monitor.options.ascii

    @property
    def shades(self) -> Palette:
        return SHADES[self.app.theme]

    @property
    def base(self) -> Style:
        """The widget's own style. Asking the stylesheet for every line would take longer than
        to draw it."""
        theme = self.app.theme
        if self._ground is None or self._ground[0] != theme:
            self._ground = (theme, self.rich_style)
        return self._ground[1]

    def notify_style_update(self) -> None:
        self._ground = None
        super().notify_style_update()

    def line_at(self, y: int) -> tuple[Line, bool]:
        """What stands in line ``y`` of the widget, and whether it is selected."""
        raise NotImplementedError

    def told_at(self, y: int) -> Told:
        """All that the painting of line ``y`` depends on, the line first: it is painted again
        when this is another."""
        return self.line_at(y)

    def strip_of(self, y: int, told: Told) -> Strip:
        """Line ``y`` in the theme's shades, exactly as wide as the widget."""
        content, selected = told[0], told[1]
        width, shades, base = self.size.width, self.shades, self.base
        content = crop(content, width, self.ascii)
        segments = [Segment(piece, base + shades.style(how, selected)) for piece, how in content]
        rest = base + Style(bgcolor=shades.selection) if selected and shades.selection else base
        if selected and shades.selection is None:
            rest = base + Style(reverse=True)
        return Strip(segments).adjust_cell_length(width, rest)

    def render_line(self, y: int) -> Strip:
        if self._sized_for != self.size:
            self._next.clear()
        try:
            told = self._next.pop(y, None) or self.told_at(y)
            strip = self.strip_of(y, told)
        except Exception as error:
            # A line that cannot be drawn is one line less, not one program less.
            self.app._handle_exception(error)
            return Strip.blank(self.size.width, self.base)
        self._painted[y] = told
        return strip

    def repaint(self) -> None:
        """Paint again the lines that differ from what was painted last, and nothing else."""
        self._next, self._sized_for = {}, self.size
        for y in range(self.size.height):
            before = self._painted.get(y)
            # What was never painted is going to be: it is new, and Textual knows that.
            if before is not None and before != (now := self.told_at(y)):
                self._next[y] = now
        if self._next:
            width = self.size.width
            self.refresh(*(Region(0, y, width, 1) for y in self._next))

    def paint_afresh(self) -> None:
        """What was painted is to be forgotten: lines have come or gone."""
        self._painted.clear()
        self._next.clear()
