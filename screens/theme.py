"""Themes: Okabe–Ito colours on dark and light backgrounds, and sixteen colours.

The dark and the light theme set their own background, so that every contrast is known. The
third, for terminals with sixteen colours and for NO_COLOR, uses the terminal's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct
from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme

from metlmon.text.formatting import Colour, Weight
from metlmon.text.spans import TextStyle

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

_COLOURS: Final[Mapping[Colour, tuple[str, str, str | None]]] = {
    Colour.GREY: ("#858e9b", "#666c76", None),
    Colour.ORANGE: ("#e69f00", "#8a5f00", "yellow"),
    Colour.SKY: ("#56b4e9", "#0a6ba8", "cyan"),
    Colour.GREEN: ("#1fb58a", "#00704f", "green"),
    Colour.YELLOW: ("#f0e442", "#6e6600", "bright_yellow"),
    Colour.BLUE: ("#6f9ceb", "#2f4fb0", "bright_blue"),
    Colour.VERMILLION: ("#f0743e", "#b04300", "red"),
    Colour.PURPLE: ("#d98bb6", "#98436f", "magenta"),
}
"""Each colour on DARK, on LIGHT, and in SIXTEEN, where grey is faint text instead.

They are Okabe and Ito's, lightened for DARK and darkened for LIGHT until each has a contrast of 4.5
to the background.
"""


class Palette(Struct, frozen=True):
    """Colours of a theme; ``selection_background``: the background of the cursor row."""

    colours: Mapping[Colour, str]
    selection_background: str | None


@lru_cache(1024)
def rich_style(theme: str, text_style: TextStyle, selected: bool) -> Style:
    """The Rich style of a text style in a theme, to be added to a widget's own."""
    palette = PALETTES[theme]
    # None keeps the underlying attribute; False would switch it off.
    bold = True if text_style.weight is Weight.BOLD else None
    if palette.selection_background is None and selected and not text_style.texture:
        # In sixteen colours, coloured text in reverse video may be unreadable.
        return Style(reverse=True, bold=bold)
    faint = text_style.colour is Colour.GREY and Colour.GREY not in palette.colours
    return Style(
        color=palette.colours.get(text_style.colour),
        bgcolor=palette.selection_background if selected else None,
        bold=bold,
        dim=True if faint else None,
    )


def _palette(place: int, selection_background: str | None) -> Palette:
    colours = {colour: row[place] for colour, row in _COLOURS.items()}
    known = {colour: value for colour, value in colours.items() if value is not None}
    return Palette(known, selection_background)


PALETTES: Final[Mapping[str, Palette]] = {
    DARK.name: _palette(0, "#2b3342"),
    LIGHT.name: _palette(1, "#d9e2ee"),
    SIXTEEN.name: _palette(2, None),
}


def fitting_theme(colours: str | None, no_color: bool, colorfgbg: str | None) -> str:
    """The name of the theme for a terminal.

    ``colours`` is Rich's name of the colour system (``standard`` has sixteen), and
    ``colorfgbg`` the variable COLORFGBG, with which some terminals report their background:
    its last number is 7 or 15 for a light one.
    """
    if no_color or colours in (None, "standard"):
        return SIXTEEN.name
    background = (colorfgbg or "").rpartition(";")[2]
    return LIGHT.name if background in ("7", "15") else DARK.name
