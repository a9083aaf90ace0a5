"""The shades of the Okabe–Ito colours on dark, on light, and in sixteen colours.

The first two paint their own background, so that every contrast is known. The third, for
terminals of sixteen colours and for NO_COLOR, uses the terminal's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme

from metlmon.text.formatting import Colour, Weight
from screens.widgets.spans import TextStyle

DARK: Final = Theme(
    name="metlmon-dark",
    primary="#56b4e9",
    foreground="#d5d9e0",
    background="#14171c",
    surface="#1b1f26",
    panel="#272d37",
    dark=True,
)
LIGHT: Final = Theme(
    name="metlmon-light",
    primary="#0a5f92",
    foreground="#23262c",
    background="#fbfaf7",
    surface="#f1efe9",
    panel="#dde3ec",
    dark=False,
)
SIXTEEN: Final = Theme(
    name="metlmon-16",
    ansi=True,
    primary="ansi_cyan",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    dark=True,
    variables=dict(BUILTIN_THEMES["ansi-dark"].variables),
)

# Okabe and Ito's set, their dark ones lifted until each has a contrast of 4.5 on DARK's
# background, their light ones lowered until each has it on LIGHT's.
_ON_DARK: Final[Mapping[Colour, str]] = {
    Colour.GREY: "#858e9b",
    Colour.ORANGE: "#e69f00",
    Colour.SKY: "#56b4e9",
    Colour.GREEN: "#1fb58a",
    Colour.YELLOW: "#f0e442",
    Colour.BLUE: "#6f9ceb",
    Colour.VERMILLION: "#f0743e",
    Colour.PURPLE: "#d98bb6",
}
_ON_LIGHT: Final[Mapping[Colour, str]] = {
    Colour.GREY: "#666c76",
    Colour.ORANGE: "#8a5f00",
    Colour.SKY: "#0a6ba8",
    Colour.GREEN: "#00704f",
    Colour.YELLOW: "#6e6600",
    Colour.BLUE: "#2f4fb0",
    Colour.VERMILLION: "#b04300",
    Colour.PURPLE: "#98436f",
}
_OF_SIXTEEN: Final[Mapping[Colour, str]] = {
    Colour.ORANGE: "yellow",
    Colour.SKY: "cyan",
    Colour.GREEN: "green",
    Colour.YELLOW: "bright_yellow",
    Colour.BLUE: "bright_blue",
    Colour.VERMILLION: "red",
    Colour.PURPLE: "magenta",
}


@dataclass(frozen=True)
class Palette:
    """How ink looks in one theme. ``selected`` is the row under the cursor."""

    colours: Mapping[Colour, str]
    selection: str | None

    def style(self, how: TextStyle, selected: bool = False) -> Style:
        """The style of an ink, to be laid over a widget's own."""
        return _style(self, how, selected)

    def __hash__(self) -> int:
        return id(self)


@lru_cache(1024)
def _style(shades: Palette, how: TextStyle, selected: bool) -> Style:
    # None leaves what is below alone; False would switch it off.
    bold = True if how.weight is Weight.BOLD else None
    if shades.selection is None and selected and not how.texture:
        # In sixteen colours a coloured text on the terminal's inverted ground is a lottery.
        return Style(reverse=True, bold=bold)
    faint = how.colour is Colour.GREY and Colour.GREY not in shades.colours
    return Style(
        color=shades.colours.get(how.colour),
        bgcolor=shades.selection if selected else None,
        bold=bold,
        dim=True if faint else None,
    )


SHADES: Final[Mapping[str, Palette]] = {
    DARK.name: Palette(_ON_DARK, "#2b3342"),
    LIGHT.name: Palette(_ON_LIGHT, "#d9e2ee"),
    SIXTEEN.name: Palette(_OF_SIXTEEN, None),
}


def fitting_theme(colours: str | None, no_color: bool, colorfgbg: str | None) -> str:
    """The name of the theme for a terminal.

    ``colours`` is Rich's name of the colour system (``standard`` has sixteen), and
    ``colorfgbg`` the variable COLORFGBG, by which some terminals tell their ground: its
    last number is 7 or 15 on a light one.
    """
    if no_color or colours in (None, "standard"):
        return SIXTEEN.name
    ground = (colorfgbg or "").rpartition(";")[2]
    return LIGHT.name if ground in ("7", "15") else DARK.name
