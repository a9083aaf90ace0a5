"""A widget of lines that repaints only the cells that differ.

Bytes to the terminal are latency over ssh: a clock that ticks in one column of one row must
cost that column of that row, not the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from screens.ink import Line, crop
from screens.shades import SHADES, Shades

if TYPE_CHECKING:
    from screens.app import MetlmonApp


class Canvas(Widget):
    """Base of everything drawn here. Subclasses say what line ``y`` is, and call
    :meth:`repaint` when what they show has changed."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._painted: dict[int, Strip] = {}

    @property
    def monitor(self) -> MetlmonApp:
        """The application, typed."""
        return cast("MetlmonApp", self.app)

    @property
    def ascii(self) -> bool:
        """Only characters below 0x80 may be drawn."""
        return self.monitor.options.ascii

    @property
    def shades(self) -> Shades:
        return SHADES[self.app.theme]

    def line_at(self, y: int) -> tuple[Line, bool]:
        """What stands in line ``y`` of the widget, and whether it is selected."""
        raise NotImplementedError

    def strip_at(self, y: int) -> Strip:
        """Line ``y`` in the theme's shades, exactly as wide as the widget."""
        content, selected = self.line_at(y)
        content = crop(content, self.size.width, self.ascii)
        shades, base = self.shades, self.rich_style
        segments = [Segment(piece, base + shades.style(how, selected)) for piece, how in content]
        rest = base + Style(bgcolor=shades.selection) if selected and shades.selection else base
        if selected and shades.selection is None:
            rest = base + Style(reverse=True)
        return Strip(segments).adjust_cell_length(self.size.width, rest)

    def render_line(self, y: int) -> Strip:
        strip = self.strip_at(y)
        self._painted[y] = strip
        # Compared in small pieces, painted in large ones: each piece costs its own styles.
        return strip.simplify()

    def repaint(self) -> None:
        """Paint again what differs from what was painted last, and nothing else."""
        regions = []
        for y in range(self.size.height):
            before = self._painted.get(y)
            # What was never painted is going to be: it is new, and Textual knows that.
            if before is None:
                continue
            change = changed_cells(before, self.strip_at(y))
            if change is not None:
                start, end = change
                regions.append(Region(start, y, end - start, 1))
        if regions:
            self.refresh(*regions)


def changed_cells(before: Strip, now: Strip) -> tuple[int, int] | None:
    """First and last-plus-one cell in which two strips of one width differ, or None."""
    if before == now:
        return None
    if before.cell_length != now.cell_length:
        return 0, max(before.cell_length, now.cell_length)
    ours, theirs = list(before), list(now)
    start = 0
    while ours and theirs and ours[0] == theirs[0]:
        start += ours[0].cell_length
        del ours[0], theirs[0]
    end = now.cell_length
    while ours and theirs and ours[-1] == theirs[-1]:
        end -= ours[-1].cell_length
        del ours[-1], theirs[-1]
    return start, end
