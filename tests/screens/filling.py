"""A terminal emulator that fills what it erases with the ground it has: as xterm, VTE, tmux do."""

from __future__ import annotations

from typing import Any

import pyte


class Filling(pyte.Screen):
    """pyte fills only those cells of the screen that were written before."""

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        super().erase_in_display(how, *args, **kwargs)
        if how == 2:
            for y in range(self.lines):
                for x in range(self.columns):
                    self.buffer[y][x] = self.cursor.attrs
