"""Base application and driver with differential rendering and flow control.

Two parts of Textual are replaced. Its updates go through a
:class:`~screens.terminal.screen_buffer.ScreenBuffer`, which writes only what differs from what
the terminal shows. And a frame is written only after the previous one has arrived: Textual's
queue holds thirty frames, so on a slow line the screen lags by as many, and then the event loop
blocks. Here the newest state is written, and frames in between are skipped.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from time import monotonic
from typing import IO, Any, Final

from rich.color import ColorSystem
from rich.segment import Segment
from textual import events
from textual.app import App
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.drivers.web_driver import WebDriver
from textual.widgets import Input

from screens.terminal.flow_control import (
    MAXIMUM_HEIGHT,
    MAXIMUM_WIDTH,
    QUEUE_LIMIT,
    READ_BYTES,
    READ_MILLISECONDS,
    FlowControl,
    PaintingApp,
)
from screens.terminal.input_decoder import InputDecoder
from screens.terminal.private import ChopsUpdate, HookedDriver, LayoutUpdate, color_system
from screens.terminal.screen_buffer import ScreenBuffer
from screens.terminal.web_driver import FlowControlledWebDriver

SYNCHRONISED_BYTES: Final = 256
"""Larger frames use synchronised output, where the terminal supports it."""

EXIT_REPLY_SECONDS: Final = 0.3
"""Time-out for the reply at exit, where the shell would read a late one as typed text."""

DEFAULT_SIZE: Final = (80, 24)
"""The size of a terminal that reports none, such as a serial console."""

MINIMUM_SIZE: Final = (40, 8)
"""Columns and lines below which no screen is usable; the message shown instead is short enough
for half of that."""


class TerminalWriter:
    """The output file of Textual's writer thread.

    Calls ``written`` with the number of writes after each flush, and ``gone`` once when the
    terminal has gone. It raises nothing: if the writer thread ended, all others would block.
    """

    def __init__(
        self, file: IO[str], on_written: Callable[[int], None], on_gone: Callable[[], None]
    ) -> None:
        self._file, self._on_written, self._on_gone = file, on_written, on_gone
        self._count = 0
        self._gone = False

    def write(self, text: str) -> None:
        self._call(lambda: self._file.write(text))
        self._count += 1

    def flush(self) -> None:
        self._call(self._file.flush)
        self._on_written(self._count)

    def _call(self, function: Callable[[], object]) -> None:
        if self._gone:
            return
        try:
            function()
        except (OSError, ValueError):
            self._gone = True
            self._on_gone()

    def fileno(self) -> int:
        return self._file.fileno()


class FlowControlledDriver(FlowControl, HookedDriver):
    """Textual's driver, extended by flow control and a robust input decoder."""

    def __init__(self, app: App[Any], **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        self.output_file = TerminalWriter(
            self.output_file, self._written, self.application.terminal_lost
        )
        self._writes_queued = self._writes_done = 0
        self._suspended = False
        # Signal handlers run in an arbitrary context.
        self._context = copy_context()

    @property
    def application(self) -> DiffRenderingApp:
        """The application that this driver serves."""
        application = super().application
        assert isinstance(application, DiffRenderingApp)
        return application

    @property
    def has_pending_output(self) -> bool:
        """Has some output not yet arrived at the terminal?"""
        return self._writes_done < self._writes_queued or super().has_pending_output

    def write(self, data: str) -> None:
        if not self._suspended:
            self._writes_queued += 1
            super().write(data)

    def write_apart(self, text: str) -> bool:
        return not self._suspended and super().write_apart(text)

    def _written(self, count: int) -> None:
        """Record finished writes; called in the writer thread."""
        self._writes_done = count
        self._paint_if_clear()

    def start_application_mode(self) -> None:
        self.application.screen_buffer.invalidate()
        previous_thread, self._suspended = self.writer_thread, False
        self._requested_at = None
        super().start_application_mode()  # type: ignore[no-untyped-call]
        # A background process cannot get the terminal; the next SIGCONT may be in foreground.
        self._suspended = self.writer_thread is previous_thread

    def stop_application_mode(self) -> None:
        if (
            self._requested_at is not None
            and monotonic() - self._requested_at < 2 * EXIT_REPLY_SECONDS
        ):
            self._reply.wait(EXIT_REPLY_SECONDS)
        self.write("\x1b[0m")
        super().stop_application_mode()

    def suspend_application_mode(self) -> None:
        super().suspend_application_mode()
        self._suspended = True

    # --- input ------------------------------------------------------------------------------

    def run_input_thread(self) -> None:
        """Read the terminal's input until exit, or until the terminal has gone."""
        decoder, poller = InputDecoder(), select.poll()
        poller.register(self.fileno, select.POLLIN)
        while not self.exit_event.is_set():
            if self.application.message_queue_size > QUEUE_LIMIT:
                self.exit_event.wait(READ_MILLISECONDS / 1000)
                continue
            if poller.poll(READ_MILLISECONDS):
                try:
                    data = os.read(self.fileno, READ_BYTES)
                except OSError:
                    data = b""
                if not data:
                    self.application.terminal_lost()
                    return
                for message in decoder.feed(data):
                    self.process_message(message)
            for message in decoder.tick():
                self.process_message(message)

    def terminal_size(self) -> tuple[int, int]:
        return terminal_size((self.output_file.fileno(), self.fileno))

    # --- suspend and resume -----------------------------------------------------------------

    def _call_soon(self, callback: Callable[[], None]) -> None:
        if not self.event_loop.is_closed():
            self.event_loop.call_soon_threadsafe(callback, context=self._context)

    def on_stop_signal(self) -> None:
        # Deferred: the signal may interrupt code that holds the lock of the output queue.
        self._call_soon(self._suspend)

    def _suspend(self) -> None:
        if self.restarts_after_stop and not self._suspended and can_be_resumed():
            self.suspend_application_mode()
            os.kill(os.getpid(), signal.SIGSTOP)

    def on_continue_signal(self) -> None:
        self._call_soon(self._resume)

    def _resume(self) -> None:
        if not self.restarts_after_stop or self.exit_event.is_set():
            return
        if not self._suspended:
            # SIGSTOP cannot be handled: the terminal modes set by the shell are unknown.
            self.suspend_application_mode()
        self.resume_application_mode()


def terminal_size(descriptors: tuple[int, ...]) -> tuple[int, int]:
    """Columns and lines (at least 1) of the first descriptor that reports a size.

    If none does: COLUMNS and LINES, or else the default.
    """
    for descriptor in descriptors:
        with suppress(OSError, ValueError):
            columns, lines = os.get_terminal_size(descriptor)
            if columns > 0 and lines > 0:
                return min(columns, MAXIMUM_WIDTH), min(lines, MAXIMUM_HEIGHT)
    columns = _size_variable("COLUMNS", DEFAULT_SIZE[0])
    lines = _size_variable("LINES", DEFAULT_SIZE[1])
    return min(columns, MAXIMUM_WIDTH), min(lines, MAXIMUM_HEIGHT)


def _size_variable(variable: str, default: int) -> int:
    value = os.environ.get(variable, "")
    return int(value) or default if value.isdecimal() and len(value) < 6 else default


def can_be_resumed() -> bool:
    """Is there a shell that can resume this process after a stop?

    A session leader (a terminal window's own command) would be stopped for ever. POSIX: an
    orphaned process group.
    """
    try:
        session, group, pid = os.getsid(0), os.getpgrp(), os.getppid()
        while pid > 1 and os.getsid(pid) == session:
            if os.getpgid(pid) != group:
                return True
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            pid = int(fields[1])
    except (OSError, ValueError, IndexError):
        pass
    return False


class DiffRenderingApp(PaintingApp):
    """Base application with differential rendering, for slow remote terminals."""

    def __init__(self) -> None:
        super().__init__()
        # Rich takes COLUMNS and LINES without a limit.
        columns, lines = self.console.size
        if columns > MAXIMUM_WIDTH or lines > MAXIMUM_HEIGHT:
            self.console.size = min(columns, MAXIMUM_WIDTH), min(lines, MAXIMUM_HEIGHT)
        self._screen_buffer: ScreenBuffer | None = None

    @property
    def screen_buffer(self) -> ScreenBuffer:
        """The screen buffer, created with the colour system of the console."""
        if self._screen_buffer is None:
            # Without a known colour system use the default, as Textual's strips do.
            system = color_system(self.console) or ColorSystem.TRUECOLOR
            self._screen_buffer = ScreenBuffer(system, erases_with_background())
        return self._screen_buffer

    def get_driver_class(self) -> type[Driver]:
        driver_class = super().get_driver_class()
        if driver_class is WebDriver:
            return FlowControlledWebDriver
        return FlowControlledDriver if driver_class is LinuxDriver else driver_class

    def on_resize(self, event: events.Resize) -> None:
        # The terminal may have moved any line. Textual repaints all if the size differs.
        self.screen_buffer.invalidate()
        if tuple(event.size) == self.screen_buffer.size:
            self.paint()

    def write_apart(self, text: str) -> bool:
        """Write what leaves the screen as it is; False if that is not possible now.

        Called in any thread.
        """
        driver = self.driver
        return isinstance(driver, FlowControl) and driver.write_apart(text)

    def action_redraw(self) -> None:
        """Write the whole screen again, whatever the terminal shows."""
        self.screen_buffer.invalidate()
        self.paint()

    def display_update(self, update: LayoutUpdate | ChopsUpdate) -> None:
        if self.too_small:
            self._show_required_size()
            return
        if isinstance(update, LayoutUpdate):
            self.screen_buffer.resize(update.region.width, update.region.height)
            for y, strips in enumerate(update.strips):
                self.screen_buffer.write(y, 0, (segment for strip in strips for segment in strip))
        else:
            for y in {y for y, _, _ in update.spans}:
                for x, strip in update.chops[y].items():
                    if strip is not None:
                        self.screen_buffer.write(y, x, strip)
        self.paint()
        self.post_display_hook()

    @property
    def too_small(self) -> bool:
        """Is the terminal smaller than any screen needs?"""
        return self.size.width < MINIMUM_SIZE[0] or self.size.height < MINIMUM_SIZE[1]

    def _show_required_size(self) -> None:
        """Show the required size instead of the screen, which keeps running unseen."""
        columns, lines = self.size
        style = self.screen.rich_style
        message = [f"needs {MINIMUM_SIZE[0]}x{MINIMUM_SIZE[1]}", f"(is {columns}x{lines})"]
        self.screen_buffer.resize(columns, lines)
        for y in range(lines):
            text = message[y] if y < len(message) else ""
            self.screen_buffer.write(y, 0, [Segment(text[:columns].ljust(columns), style)])
        self.paint()
        self.post_display_hook()

    def paint(self) -> None:
        """Write the differences, now or as soon as the previous output has arrived."""
        driver = self.driver
        if not self.can_paint or driver is None:
            return
        if isinstance(driver, FlowControl):
            driver.paint_pending = True
            if driver.has_pending_output:
                return
            driver.paint_pending = False
        output = self.screen_buffer.diff()
        if not output:
            return
        if isinstance(self.focused, Input):
            # An input method shows its composition at the cursor.
            x, y = self.screen.outer_size.clamp_offset(self.cursor_position)
            output += self.screen_buffer.cursor_sequence(y, x)
        if self.supports_synchronised_output and len(output) > SYNCHRONISED_BYTES:
            output = f"\x1b[?2026h{output}\x1b[?2026l"
        if isinstance(driver, FlowControl):
            driver.write_frame(output)
        else:
            driver.write(output)
        driver.flush()


def erases_with_background() -> bool:
    """Does the terminal fill erased cells with the background (terminfo's ``bce``)?

    False for a terminal that terminfo does not know.
    """
    try:
        import curses
    except ImportError:
        return False
    try:
        curses.setupterm(None, 2)
        return curses.tigetflag("bce") > 0
    except (curses.error, OSError, ValueError):
        return False
