"""The bytes written make any terminal show the picture, and are few."""

from __future__ import annotations

from collections.abc import Sequence

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

from screens.terminal.screen_buffer import ScreenBuffer
from tests.support.terminal import FillingScreen

GROUND = Style(color="#dddddd", bgcolor="#101010")
STYLES = (
    GROUND,
    GROUND + Style(color="#e69f00"),
    GROUND + Style(color="#e69f00", bold=True),
    GROUND + Style(bold=True),
    GROUND + Style(bgcolor="#303030"),
    GROUND + Style(reverse=True),
    GROUND + Style(underline=True, bold=True),
    Style(color="red"),
    Style(),
)
WIDTH, HEIGHT = 24, 9

Piece = tuple[str, int]
Picture = Sequence[Sequence[Piece]]

pieces = st.tuples(
    st.sampled_from(["a", "bc", " ", "run7", "▶ x", "日本", " " * 9, "━━"]), st.integers(0, 8)
)
lines = st.lists(pieces, max_size=7)
pictures = st.lists(lines, min_size=HEIGHT, max_size=HEIGHT)


def segments(line: Sequence[Piece]) -> list[Segment]:
    """The line, cut and padded to the width of the terminal."""
    from textual.strip import Strip

    strip = Strip([Segment(text, STYLES[style]) for text, style in line])
    return list(strip.adjust_cell_length(WIDTH, GROUND))


class EmulatedTerminal:
    """A terminal that fills erased cells with the pen's background, or one that does not."""

    def __init__(self, erases: bool) -> None:
        self.buffer = ScreenBuffer(ColorSystem.TRUECOLOR, erases)
        self.screen = FillingScreen(WIDTH, HEIGHT) if erases else pyte.Screen(WIDTH, HEIGHT)
        self.stream = pyte.Stream(self.screen)
        self.buffer.resize(WIDTH, HEIGHT)

    def show(self, picture: Picture) -> int:
        """Feed it these bytes."""
        for y, line in enumerate(picture):
            self.buffer.write(y, 0, segments(line))
        output = self.buffer.diff()
        self.stream.feed(output)
        return len(output.encode())

    def differing(self, picture: Picture) -> list[tuple[int, int, object, object]]:
        found = []
        for y, line in enumerate(picture):
            x = 0
            for text, style, _ in segments(line):
                assert style is not None
                for character in text:
                    shown = self.screen.buffer[y][x]
                    if not alike(character, style, shown):
                        found.append((y, x, (character, style), shown))
                    x += 2 if character in "日本" else 1
        return found


def alike(character: str, style: Style, shown: pyte.screens.Char) -> bool:
    fore = style.color.get_truecolor().hex[1:] if style.color else "default"
    back = style.bgcolor.get_truecolor().hex[1:] if style.bgcolor else "default"
    if style.color is not None and style.color.name == "red":
        fore = "red"
    marks = bool(style.reverse), bool(style.underline)
    ground = character == shown.data and (back, *marks) == (
        shown.bg,
        shown.reverse,
        shown.underscore,
    )
    if character == " " and not any(marks):
        return ground
    return ground and (fore, bool(style.bold)) == (shown.fg, shown.bold)


@pytest.mark.parametrize("erases", [True, False])
@given(shown=st.lists(pictures, min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_terminal_shows_the_picture(erases: bool, shown: list[Picture]) -> None:
    terminal = EmulatedTerminal(erases)
    for picture in shown:
        terminal.show(picture)
        assert not terminal.differing(picture)


@pytest.mark.parametrize("erases", [True, False])
@given(
    picture=st.lists(lines, min_size=3 * HEIGHT, max_size=3 * HEIGHT),
    tops=st.lists(st.integers(0, 2 * HEIGHT), min_size=2, max_size=8),
    head=st.integers(0, 3),
)
@settings(max_examples=25, deadline=None)
def test_scrolled_text_is_shown(erases: bool, picture: Picture, tops: list[int], head: int) -> None:
    terminal = EmulatedTerminal(erases)
    for top in tops:
        part = [*picture[:head], *picture[top + head : top + HEIGHT]]
        terminal.show(part)
        assert not terminal.differing(part)


@given(shown=st.lists(pictures, min_size=2, max_size=3))
@settings(max_examples=20, deadline=None)
def test_forgotten_lines_are_rewritten(shown: list[Picture]) -> None:
    terminal = EmulatedTerminal(erases=True)
    for picture in shown:
        terminal.screen.reset()
        terminal.stream.feed("someone else's words \x1b[7;3H\x1b[41mhere")
        terminal.buffer.invalidate()
        terminal.show(picture)
        assert not terminal.differing(picture)


def test_only_a_changed_digit_and_its_position_are_written() -> None:
    terminal = EmulatedTerminal(erases=True)
    picture = [[("3:41:10", 0)]] * HEIGHT
    terminal.show(picture)
    assert terminal.show(picture) == 0
    ticked = [*picture[:3], [("3:41:11", 0)], [("3:41:11", 0)], *picture[5:]]
    assert terminal.show(ticked) == len("\x1b[4;7H1") + len("\x1b[5;7H1")


def test_moved_lines_are_scrolled_by_the_terminal() -> None:
    terminal = EmulatedTerminal(erases=True)
    picture = [[(f"{n * 7919 % 9973:05}" * 4, 0)] for n in range(2 * HEIGHT)]
    terminal.show(picture[:HEIGHT])
    assert terminal.show(picture[1 : HEIGHT + 1]) < 80
    assert not terminal.differing(picture[1 : HEIGHT + 1])
