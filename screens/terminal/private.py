"""Private names of Textual and Rich that are imported, each with its reason.

Private methods are overridden in this package and in ``app.py`` only: a new
version of Textual needs a look at these (``pyproject.toml`` bounds the version).
"""

from __future__ import annotations

from typing import Any

from rich.cells import cached_cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

# What the compositor passes to App._display: all lines, or the parts that changed.
from textual._compositor import ChopsUpdate, LayoutUpdate

# Its cache of rendered lines is an lru_cache on a method, which nothing public clears.
from textual._styles_cache import StylesCache

# The decoder of key sequences; Textual's input thread around it ends at invalid input.
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.app import App

# The packets that textual-serve sends to an application, as Textual's own web driver reads them.
from textual.drivers._byte_stream import ByteStream
from textual.message import Message
from textual.message_pump import MessagePump

__all__ = [
    "BRACKETED_PASTE_END",
    "BRACKETED_PASTE_START",
    "ByteStream",
    "ChopsUpdate",
    "FaultTolerant",
    "LayoutUpdate",
    "XTermParser",
    "color_system",
    "release_caches",
    "report_exception",
    "style_attributes",
]


def report_exception(app: App[Any], error: Exception) -> None:
    """Handle an exception as one that a handler of the application raised."""
    app._handle_exception(error)


def release_caches() -> None:
    """Clear caches of Textual and Rich, which keep closed screens and old texts alive.

    They contain rendered lines, and the widths of 4,096 texts: times change with each snapshot.
    """
    StylesCache.get_inner_outer.cache_clear()
    cached_cell_len.cache_clear()


def color_system(console: Console) -> ColorSystem | None:
    """The colour system of a console; ``Console.color_system`` is only its name."""
    return console._color_system


def style_attributes(style: Style) -> int:
    """The bits of the attributes that are on; the public API has eight properties instead."""
    return style._attributes & style._set_attributes


class FaultTolerant(MessagePump):
    """Mixin for the application, screens and widgets: survives handler exceptions.

    Textual ends the application, and the message loop of the widget, with the first exception
    in any handler. A monitor has to survive the night: here the error is shown and the next
    message is handled. There is no public hook around the handlers of a message.
    """

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            report_exception(self.app, error)
