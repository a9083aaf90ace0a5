"""Text on standard output: styled lines and tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from metlmon.cli.output import terminal_width
from metlmon.tables.layout import Column, table_lines
from metlmon.text.formatting import Colour, Weight
from metlmon.text.spans import Line, TextStyle, line, wrap_line

T = TypeVar("T")

_CODES: Final[Mapping[Colour, str]] = {
    Colour.GREY: "90",
    Colour.ORANGE: "33",
    Colour.SKY: "96",
    Colour.GREEN: "32",
    Colour.YELLOW: "93",
    Colour.BLUE: "94",
    Colour.VERMILLION: "91",
    Colour.PURPLE: "35",
}
"""SGR parameters of the terminal's own sixteen colours, legible on any background."""


class TextOutput:
    """Standard output: lines as wide and as colourful as its terminal.

    A pipe has no width: for scripts nothing is cut, wrapped or coloured.
    """

    def __init__(self) -> None:
        terminal = sys.stdout.isatty()
        self.width = terminal_width() if terminal else None
        dumb = os.environ.get("TERM", "") in ("dumb", "unknown")
        self._coloured = terminal and not dumb and not os.environ.get("NO_COLOR")

    def print(self, *lines: Line | str) -> None:
        """Print each line, wrapped at blanks; an empty line without arguments."""
        for content in lines or ("",):
            spans = line(content) if isinstance(content, str) else content
            self.print_cropped(wrap_line(spans, self.width) if self.width else [spans])

    def print_cropped(self, lines: Sequence[Line]) -> None:
        """Print lines that were made for the width of the terminal."""
        for content in lines:
            text = "".join(self._styled(piece, style) for piece, style in content)
            sys.stdout.write((text if self._coloured else text.rstrip()) + "\n")

    def table(self, columns: Sequence[Column[T]], rows: Sequence[T], *heading: Line | str) -> None:
        """Print a heading, and a table with the columns that fit; nothing without rows."""
        if rows:
            if heading:
                self.print(*heading)
            self.print_cropped(table_lines(columns, rows, self.width))

    def _styled(self, text: str, style: TextStyle) -> str:
        codes = ["1"] * (style.weight is Weight.BOLD)
        codes += [_CODES[style.colour]] if style.colour in _CODES else []
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes and self._coloured else text
