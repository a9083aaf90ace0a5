"""Writes of a partial repaint, cropped on both sides.

Textual's compositor is told which cells changed, but writes each line from the left edge of
the widget on (its ``ChopsUpdate`` crops only the right side): 700 bytes for a duration near
the end of a row, every second, of every row. This one writes the cells that changed.
"""

from __future__ import annotations

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor


class TightUpdate(ChopsUpdate):
    """The same update, from the first changed cell of each line to the last."""

    def render_segments(self, console: Console) -> str:
        out: list[str] = []
        for y, start, end in self.spans:
            for right, (left, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                first, last = max(start, left), min(end, right)
                if strip is None or first >= last:
                    continue
                cells = strip.crop(first - left, last - left)
                out.append(Control.move_to(first, y).segment.text)
                out.append(cells.render(console))
        return "".join(out)


class TightCompositor(Compositor):
    """A compositor whose partial updates are tight."""

    def render_partial_update(self) -> ChopsUpdate | None:
        update = super().render_partial_update()
        if update is None:
            return None
        return TightUpdate(update.chops, update.spans, update.chop_ends)
