"""Every private name of Textual and Rich that is used here, each with its reason.

Other modules use the public names of the classes and functions here, so that a new version of
Textual needs a look at this module alone (``pyproject.toml`` bounds the version).
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from rich.cells import cached_cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

# What the compositor gives to App._display: all lines, or the parts that changed.
from textual._compositor import ChopsUpdate, LayoutUpdate

# Its cache of rendered lines is an lru_cache on a method, which nothing public clears.
from textual._styles_cache import StylesCache

# The decoder of key sequences; Textual's input thread around it ends at invalid input.
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.app import App
from textual.driver import Driver

# The packets that textual-serve sends to an application, as Textual's own web driver reads them.
from textual.drivers._byte_stream import ByteStream
from textual.drivers.linux_driver import LinuxDriver
from textual.drivers.web_driver import WebDriver
from textual.events import Key
from textual.filter import Monochrome, NoColor
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.timer import Timer

__all__ = [
    "BRACKETED_PASTE_END",
    "BRACKETED_PASTE_START",
    "ByteStream",
    "ChopsUpdate",
    "DriverHooks",
    "FaultTolerant",
    "HookedApp",
    "HookedDriver",
    "HookedWebDriver",
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
    """Clear caches of Textual and Rich that hold closed screens, and past texts.

    Rendered lines, and the widths of 4,096 texts: times change with each snapshot.
    """
    StylesCache.get_inner_outer.cache_clear()
    cached_cell_len.cache_clear()


def color_system(console: Console) -> ColorSystem | None:
    """The colour system of a console; ``Console.color_system`` is only its name."""
    return console._color_system


def style_attributes(style: Style) -> int:
    """The bits of the attributes that are on; publicly they are eight properties."""
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


class HookedApp(FaultTolerant, App[int]):
    """Textual's application with public hooks for what it does in private methods."""

    # --- errors: Textual prints a traceback with local variables, and exits -------------------

    def _handle_exception(self, error: Exception) -> None:
        self.handle_exception(error)

    def handle_exception(self, error: Exception) -> None:
        """Handle an exception that nothing has caught."""
        super()._handle_exception(error)

    async def _on_key(self, event: Key) -> None:
        # Textual calls the handlers of all base classes unless the default is prevented.
        event.prevent_default()
        if not await self._check_bindings(event.key):
            self.handle_unbound_key(event.key)

    def handle_unbound_key(self, key: str) -> None:
        """Handle a key without an action on the current screen."""

    def _fatal_error(self) -> None:
        self.handle_fatal_error()

    def handle_fatal_error(self) -> None:
        """Handle the exception that is being raised by ending the application."""
        super()._fatal_error()

    def close_with_code(self, code: int) -> None:
        """End the message loop; also where ``exit`` is not handled any more."""
        self._return_code = code
        self._close_messages_no_wait()

    def record_error(self, error: Exception) -> None:
        """Let a test's pilot raise an error, even if it is survived."""
        if self.is_headless and self._exception is None:
            self._exception = error
            self._exception_event.set()

    @property
    def is_exiting(self) -> bool:
        """Has ``exit`` been called?"""
        return self._exit

    def set_timer(self, *args: Any, **kwargs: Any) -> Timer:
        """Call a function once, later, also where the process is preempted for the whole delay.

        Textual's timers skip calls that are late. A timer of one call then never calls: after
        that of a change of size, which has 8 ms, no later size would be used.
        """
        timer = super().set_timer(*args, **kwargs)
        timer._skip = False
        return timer

    # --- painting -----------------------------------------------------------------------------

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        is_update = isinstance(renderable, LayoutUpdate | ChopsUpdate)
        if is_update and self.can_paint:
            self.display_update(renderable)
        else:
            super()._display(screen, renderable)

    def display_update(self, update: LayoutUpdate | ChopsUpdate) -> None:
        """Write an update of the compositor to the terminal; called if ``can_paint``."""
        raise NotImplementedError

    @property
    def can_paint(self) -> bool:
        """May output be written? The same conditions as in Textual."""
        is_idle = self._running and not self._closed and not self._batch_count
        return is_idle and not self.is_headless and self._driver is not None

    @property
    def driver(self) -> Driver | None:
        """The driver of the terminal, once there is one."""
        return self._driver

    @property
    def supports_synchronised_output(self) -> bool:
        """Does the terminal show a frame at once if it is marked as one?"""
        return self._sync_available

    def remove_colours(self) -> None:
        """Show no colours: Textual's own filter for NO_COLOR produces greys."""
        others = [each for each in self._filters if not isinstance(each, Monochrome | NoColor)]
        self._filters = [*others, NoColor()]


class DriverHooks(Driver):
    """Public hooks for private attributes of any driver of Textual."""

    @property
    def application(self) -> App[Any]:
        """The application that this driver serves."""
        return self._app

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the application."""
        return self._loop

    @property
    def sends_mouse(self) -> bool:
        """Is the mouse turned on?"""
        return self._mouse


class HookedDriver(DriverHooks, LinuxDriver):
    """Textual's driver with public hooks for its private methods and attributes."""

    @property
    def output_file(self) -> Any:
        """The file that the writer thread writes to."""
        return self._file

    @output_file.setter
    def output_file(self, file: Any) -> None:
        self._file = file

    @property
    def writer_thread(self) -> object:
        """The thread that writes the output; a new one after each resume."""
        return self._writer_thread

    @property
    def restarts_after_stop(self) -> bool:
        """Is the application mode entered again after SIGCONT? Not if it is inline."""
        return self._auto_restart

    def _get_terminal_size(self) -> tuple[int, int]:
        return self.terminal_size()

    def terminal_size(self) -> tuple[int, int]:
        """Columns and lines of the terminal."""
        return super()._get_terminal_size()

    def _query_in_band_window_resize(self) -> None:
        """Do nothing: every terminal reports its size by SIGWINCH; text could be forged."""

    def _sigtstp_application(self, *_: object) -> None:
        self.on_stop_signal()

    def on_stop_signal(self) -> None:
        """Handle SIGTSTP."""

    def _sigcont_application(self, *_: object) -> None:
        self.on_continue_signal()

    def on_continue_signal(self) -> None:
        """Handle SIGCONT."""


class HookedWebDriver(DriverHooks, WebDriver):
    """Textual's driver for a browser with public hooks for its private methods and attributes."""

    def __init__(self, app: App[Any], **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        self._write = self.write_bytes  # type: ignore[assignment]
        self._write_lock = threading.Lock()

    def write_bytes(self, data: bytes) -> None:
        """Write a whole packet; called in any thread, where ``os.write`` may write a part."""
        with self._write_lock:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self.fileno, rest) :]

    def initial_size(self) -> tuple[int, int] | None:
        """Columns and lines of the browser's window, as its page reported them."""
        return self._size

    def start_input_thread(self) -> None:
        """Run :meth:`run_input_thread` in its thread."""
        self._key_thread.start()

    def request_synchronised_output(self) -> None:
        """Ask the terminal whether it shows a frame at once."""
        self._request_terminal_sync_mode_support()

    def handle_meta(self, kind: str, payload: bytes) -> None:
        """Handle a packet that is no input: a new size, a part of a file that is to be sent."""
        self._on_meta(kind, payload)
