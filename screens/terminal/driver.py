"""An application that writes what differs, and no more than the terminal takes.

Two things of Textual are replaced. Its updates are laid on a
:class:`~screens.terminal.screen_buffer.ScreenBuffer`, which knows what the terminal shows
already. And a
picture is written only when the one before has arrived: Textual's own queue holds thirty pictures,
over a slow line the screen is that far behind, and then the event loop waits for it. What is
written here is always the newest state.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from time import monotonic
from typing import IO, Any, Final

from rich.segment import Segment
from textual import events
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual._styles_cache import StylesCache
from textual.app import App
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.widgets import Input

from screens.base.fault_tolerant import FaultTolerant
from screens.terminal.input_decoder import InputDecoder
from screens.terminal.screen_buffer import ScreenBuffer

TORN_BYTES: Final = 256
"""A larger picture is bracketed, where the terminal knows how to show one all at once."""

ASKED_BYTES: Final = 2048
"""After so many bytes the terminal is asked whether it has them: what a program has written may
stand in the buffers of ssh for many seconds. At 20 kB/s this is a tenth of one."""

ASK: Final = "\x1b[6n"
"""Where is the cursor? Every terminal tells, as soon as it has come to the question."""

ANSWER_SECONDS: Final = 3.0
"""An answer that takes longer is not waited for: it was lost, or goes to another program."""

LEAVING_SECONDS: Final = 0.3
"""Nor at the end, by which an answer should have come: the shell would take it for typed."""

WIDEST: Final = 1000
HIGHEST: Final = 500
"""A terminal that says it is larger (a serial line after a mistake) is drawn on in part: each
cell takes some hundred bytes."""

USUAL: Final = (80, 24)
"""The size of a terminal that does not tell one, as serial consoles do not."""

LEAST: Final = (40, 8)
"""Columns and lines below which no screen has room for what it is for; the sentence that is shown
instead is short enough for half of that."""

READ_BYTES: Final = 4096
READ_MILLISECONDS: Final = 50
"""So long is waited for the rest of an escape sequence, at most."""

MOST_WAITING: Final = 500
"""While so many messages wait for the application nothing more is read: what was pasted by
mistake shall not fill the memory, and the terminal can wait."""


class TerminalWriter:
    """The terminal as Textual's writing thread sees it. Tells when all it was given is written,
    and, once, when there is no terminal any more: the thread that writes must not end, or
    everybody would wait for it."""

    def __init__(
        self, file: IO[str], written: Callable[[int], None], gone: Callable[[], None]
    ) -> None:
        self._file, self._tell, self._mourn = file, written, gone
        self._count = 0
        self._gone = False

    def write(self, text: str) -> None:
        self._try(lambda: self._file.write(text))
        self._count += 1

    def flush(self) -> None:
        self._try(self._file.flush)
        self._tell(self._count)

    def _try(self, do: Callable[[], object]) -> None:
        if self._gone:
            return
        try:
            do()
        except (OSError, ValueError):
            self._gone = True
            self._mourn()

    def fileno(self) -> int:
        return self._file.fileno()


class FlowControlledDriver(LinuxDriver):
    """Textual's driver, which can be asked whether the terminal has what it was given."""

    def __init__(self, app: App[Any], **how: Any) -> None:
        super().__init__(app, **how)
        self._file: Any = TerminalWriter(self._file, self._written, self._lost)
        self._handed = self._arrived = 0
        self._unasked = ASKED_BYTES
        self._asked: float | None = None
        self._answers = False
        self._answer = threading.Event()
        self._given_up = False
        # Signals come in the middle of anything.
        self._context = copy_context()
        self.waited_for = False

    @property
    def behind(self) -> bool:
        """Is something still on its way to the terminal?"""
        if self._arrived < self._handed:
            return True
        waits = self._answers and self._asked is not None
        return waits and monotonic() - (self._asked or 0.0) < ANSWER_SECONDS

    def write(self, data: str) -> None:
        if not self._given_up:
            self._handed += 1
            super().write(data)

    def draw(self, strokes: str) -> None:
        """Write a picture, and behind a large one the question whether it has arrived."""
        self._unasked += len(strokes)
        if self._unasked >= ASKED_BYTES:
            self._unasked = 0
            self._answer.clear()
            self._asked = monotonic()
            strokes += ASK
            self._loop.call_later(ANSWER_SECONDS, self._clear)
        self.write(strokes)

    def _written(self, count: int) -> None:
        """Called in the writing thread."""
        self._arrived = count
        self._clear()

    def process_message(self, message: Message) -> None:
        if not isinstance(message, events.CursorPosition):
            super().process_message(message)
            return
        self._asked, self._answers = None, True
        self._answer.set()
        self._clear()

    def _clear(self) -> None:
        """Called in any thread: it may be that nothing is on its way any more."""
        if self.waited_for and not self.behind and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._app.call_later, self._catch_up)

    def _catch_up(self) -> None:
        if isinstance(self._app, DiffRenderingApp):
            self._app.paint()

    def start_application_mode(self) -> None:
        if isinstance(self._app, DiffRenderingApp):
            self._app.glass.forget()
        before, self._given_up = self._writer_thread, False
        self._asked = None
        super().start_application_mode()  # type: ignore[no-untyped-call]
        # In the background a terminal cannot be had; the next SIGCONT may be in the foreground.
        self._given_up = self._writer_thread is before

    def stop_application_mode(self) -> None:
        if self._asked is not None and monotonic() - self._asked < 2 * LEAVING_SECONDS:
            self._answer.wait(LEAVING_SECONDS)
        self.write("\x1b[0m")
        super().stop_application_mode()

    def suspend_application_mode(self) -> None:
        super().suspend_application_mode()
        self._given_up = True

    # --- what comes -------------------------------------------------------------------------

    def run_input_thread(self) -> None:
        """Read what the terminal sends, until the end is asked for or the line is broken."""
        keyboard, line = InputDecoder(), select.poll()
        line.register(self.fileno, select.POLLIN)
        while not self.exit_event.is_set():
            if self._app.message_queue_size > MOST_WAITING:
                self.exit_event.wait(READ_MILLISECONDS / 1000)
                continue
            if line.poll(READ_MILLISECONDS):
                try:
                    data = os.read(self.fileno, READ_BYTES)
                except OSError:
                    data = b""
                if not data:
                    self._lost()
                    return
                for message in keyboard.feed(data):
                    self.process_message(message)
            for message in keyboard.tick():
                self.process_message(message)

    def _query_in_band_window_resize(self) -> None:
        """Sizes come by a signal, on every terminal; as text they may be anybody's."""

    def _get_terminal_size(self) -> tuple[int, int]:
        return terminal_size((self._file.fileno(), self.fileno))

    def _lost(self) -> None:
        """Called in any thread: there is no terminal any more."""
        if isinstance(self._app, DiffRenderingApp):
            self._app.terminal_lost()

    # --- stopped, and going on --------------------------------------------------------------

    def _soon(self, do: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(do, context=self._context)

    def _sigtstp_application(self, *_: object) -> None:
        # Not here: the signal may have come while the very queue is held that is written to.
        self._soon(self._pause)

    def _pause(self) -> None:
        if self._auto_restart and not self._given_up and somebody_resumes():
            self.suspend_application_mode()
            os.kill(os.getpid(), signal.SIGSTOP)

    def _sigcont_application(self, *_: object) -> None:
        self._soon(self._go_on)

    def _go_on(self) -> None:
        if not self._auto_restart or self.exit_event.is_set():
            return
        if not self._given_up:
            # SIGSTOP cannot be heard: what the shell made of the terminal is not known.
            self.suspend_application_mode()
        self.resume_application_mode()


def release_styles() -> None:
    """Textual keeps the rendered lines of the last 1,024 widgets, those of closed screens among
    them, in an ``lru_cache`` on a method; they take megabytes, and are never used again."""
    StylesCache.get_inner_outer.cache_clear()


def terminal_size(descriptors: tuple[int, ...]) -> tuple[int, int]:
    """Columns and lines, at least one each, as the first of these terminals says that says any;
    else as COLUMNS and LINES do."""
    for descriptor in descriptors:
        with suppress(OSError, ValueError):
            columns, lines = os.get_terminal_size(descriptor)
            if columns > 0 and lines > 0:
                return min(columns, WIDEST), min(lines, HIGHEST)
    return _named("COLUMNS", USUAL[0], WIDEST), _named("LINES", USUAL[1], HIGHEST)


def _named(variable: str, usual: int, most: int) -> int:
    said = os.environ.get(variable, "")
    return min(int(said), most) if said.isdecimal() and 0 < len(said) < 6 and int(said) else usual


def somebody_resumes() -> bool:
    """Is there a shell that would let us go on? Who is the first of its session (a window's own
    command) would be stopped for ever. POSIX: an orphaned process group."""
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


class DiffRenderingApp(FaultTolerant, App[int]):
    """The base of an application on a terminal that may be far away."""

    def __init__(self) -> None:
        super().__init__()
        # Rich believes COLUMNS and LINES, whatever they say.
        columns, lines = self.console.size
        if columns > WIDEST or lines > HIGHEST:
            self.console.size = min(columns, WIDEST), min(lines, HIGHEST)
        self._glass: ScreenBuffer | None = None

    @property
    def glass(self) -> ScreenBuffer:
        """What the terminal shows."""
        if self._glass is None:
            # As Textual's strips do, where the terminal's colours are not known.
            system = self.console._color_system
            self._glass = (
                ScreenBuffer(fills=fills()) if system is None else ScreenBuffer(system, fills())
            )
        return self._glass

    def terminal_lost(self) -> None:
        """Called in any thread: nothing can be written any more, or nothing comes."""

    def get_driver_class(self) -> type[Driver]:
        found = super().get_driver_class()
        return FlowControlledDriver if found is LinuxDriver else found

    def on_resize(self, event: events.Resize) -> None:
        # The terminal may have moved anything anywhere. Of another size Textual draws all anew.
        self.glass.forget()
        if tuple(event.size) == self.glass.size:
            self.paint()

    def action_redraw(self) -> None:
        """Write the whole screen again, whatever stands on it."""
        self.glass.forget()
        self.paint()

    def _display(self, screen: Any, renderable: Any) -> None:
        drawn = isinstance(renderable, LayoutUpdate | ChopsUpdate) and self._draws()
        if not drawn:
            super()._display(screen, renderable)
            return
        if self.too_small:
            self._tell_size()
            return
        if isinstance(renderable, LayoutUpdate):
            self.glass.shape(renderable.region.width, renderable.region.height)
            for y, strips in enumerate(renderable.strips):
                self.glass.lay(y, 0, (segment for strip in strips for segment in strip))
        else:
            for y in {y for y, _, _ in renderable.spans}:
                for x, strip in renderable.chops[y].items():
                    if strip is not None:
                        self.glass.lay(y, x, strip)
        self.paint()
        self.post_display_hook()

    @property
    def too_small(self) -> bool:
        """Is there no room for any screen?"""
        return self.size.width < LEAST[0] or self.size.height < LEAST[1]

    def _tell_size(self) -> None:
        """Instead of a screen that does not fit: the screen itself goes on, unseen."""
        columns, lines = self.size
        style = self.screen.rich_style
        told = [f"needs {LEAST[0]}x{LEAST[1]}", f"(is {columns}x{lines})"]
        self.glass.shape(columns, lines)
        for y in range(lines):
            text = told[y] if y < len(told) else ""
            self.glass.lay(y, 0, [Segment(text[:columns].ljust(columns), style)])
        self.paint()
        self.post_display_hook()

    def _draws(self) -> bool:
        """Is there a terminal, and is it ours? As Textual asks it."""
        idle = self._running and not self._closed and not self._batch_count
        return idle and not self.is_headless and self._driver is not None

    def paint(self) -> None:
        """Write what differs on the terminal, now or as soon as it has what was written."""
        if not self._draws() or self._driver is None:
            return
        driver = self._driver
        if isinstance(driver, FlowControlledDriver):
            driver.waited_for = True
            if driver.behind:
                return
            driver.waited_for = False
        strokes = self.glass.strokes()
        if not strokes:
            return
        if isinstance(self.focused, Input):
            # There an input method shows what is being composed.
            x, y = self.screen.outer_size.clamp_offset(self.cursor_position)
            strokes += self.glass.point(y, x)
        if self._sync_available and len(strokes) > TORN_BYTES:
            strokes = f"\x1b[?2026h{strokes}\x1b[?2026l"
        if isinstance(driver, FlowControlledDriver):
            driver.draw(strokes)
        else:
            driver.write(strokes)
        driver.flush()


def fills() -> bool:
    """Does this terminal fill what it erases with the background that is set? Asked of
    terminfo; of a terminal that is not known there it is not expected."""
    try:
        import curses
    except ImportError:
        return False
    try:
        curses.setupterm(None, 2)
        return curses.tigetflag("bce") > 0
    except (curses.error, OSError, ValueError):
        return False
