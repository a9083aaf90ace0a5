"""An application's terminal output, and the emulated terminal that shows it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyte
from rich.color import ColorSystem

from screens.app import AppOptions
from screens.terminal.screen_buffer import ScreenBuffer
from tests.support.sample_snapshots import FakeFeed, update
from tests.support.screen_view import EagerApp, RunningApp
from tests.support.terminal import FillingScreen


class PaintingApp(EagerApp):
    """Paints as for a real terminal."""

    PAINTS = True

    @property
    def is_headless(self) -> bool:
        return False


class Terminal(RunningApp):
    """An application under a pilot, its bytes, and an emulator that they are fed to."""

    def __init__(self, app: EagerApp, feed: FakeFeed, pilot: object, size: tuple[int, int]) -> None:
        super().__init__(app, feed, pilot)  # type: ignore[arg-type]
        self.written: list[str] = []
        self.screen = FillingScreen(*size)
        self.stream = pyte.Stream(self.screen)

    def write(self, text: str) -> None:
        self.written.append(text)
        self.stream.feed(text)

    def taken(self) -> int:
        """Bytes written since the last call."""
        text, self.written = "".join(self.written), []
        return len(text.encode())

    def differing(self) -> list[tuple[int, int]]:
        """Cells in which the terminal differs from the application: text, background, bold,
        reverse; the foreground where there is text."""
        found = []
        for y, strip in enumerate(self.app.screen._compositor.render_strips()):
            x = 0
            for text, style, _ in strip:
                for character in text:
                    at = self.screen.buffer[y][x]
                    back = hexed(style and style.bgcolor)
                    marks = bool(style and style.reverse), bool(style and style.underline)
                    same = (character, back, *marks) == (at.data, at.bg, at.reverse, at.underscore)
                    if character != " ":
                        same &= (hexed(style and style.color), bool(style and style.bold)) == (
                            at.fg,
                            at.bold,
                        )
                    if not same:
                        found.append((y, x))
                    x += 1
        return found


def hexed(colour: object) -> str:
    return colour.get_truecolor().hex[1:] if colour else "default"  # type: ignore[attr-defined]


@asynccontextmanager
async def terminal(
    feed: FakeFeed | None = None, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[Terminal]:
    """The application on such a terminal, after its first paint."""
    feed = feed or FakeFeed(update())
    app = PaintingApp(feed, AppOptions())
    async with app.run_test(size=size) as pilot:
        made = Terminal(app, feed, pilot, size)
        app._driver.write = made.write  # type: ignore[method-assign]
        # With all colours, whatever terminal the tests run in.
        app._screen_buffer = ScreenBuffer(ColorSystem.TRUECOLOR)
        app.screen_buffer.resize(*size)
        app.screen.refresh()
        await made.settle()
        yield made
