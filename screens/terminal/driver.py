"""Base application and drivers with differential rendering and flow control.

Three parts of Textual are replaced. Its updates go through a
:class:`~screens.terminal.screen_buffer.ScreenBuffer`, which writes only what differs from what
the terminal shows. And a frame is written only after the previous one has arrived: Textual's
queue holds thirty frames, so that on a slow line the screen lags by as many, and then the event
loop blocks. Here the newest state is written, and frames in between are skipped. Every terminal,
including one in a browser, replies to a cursor position request once it reaches it.

And its input is decoded by :class:`InputDecoder`, which survives any bytes.
"""

from __future__ import annotations

import os
import re
import select
import signal
import threading
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from time import monotonic
from typing import IO, Any, Final

from rich.color import ColorSystem
from rich.segment import Segment
from textual import events, messages
from textual.app import App
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.drivers.web_driver import WebDriver
from textual.filter import Monochrome, NoColor
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input

from screens.terminal.private import (
    BRACKETED_PASTE_END,
    BRACKETED_PASTE_START,
    ByteStream,
    ChopsUpdate,
    FaultTolerant,
    LayoutUpdate,
    XTermParser,
    color_system,
)
from screens.terminal.screen_buffer import ScreenBuffer

SYNCHRONISED_BYTES: Final = 256
"""Larger frames use synchronised output, if the terminal supports it."""

EXIT_REPLY_SECONDS: Final = 0.3
"""Timeout for the reply at exit, when the shell would read a late one as typed text."""

DEFAULT_SIZE: Final = (80, 24)
"""The size of a terminal that reports none, such as a serial console."""

MINIMUM_SIZE: Final = (40, 8)
"""Columns and lines below which no screen is usable; the message shown instead fits into half of
that."""

REPORT_BYTES: Final = 2048
"""Bytes between cursor position requests, which show what has arrived: output may stay in the
buffers of ssh for many seconds. At 20 kB/s this is a tenth of a second."""

REPORT_CURSOR: Final = "\x1b[6n"
"""Device status report, cursor position: every terminal replies once it reaches it."""

REPLY_SECONDS: Final = 3.0
"""Timeout for the reply, which may be lost or read by another program."""

MAXIMUM_WIDTH: Final = 1000
MAXIMUM_HEIGHT: Final = 500
"""Largest size used, each cell takes some hundred bytes: a serial line may report nonsense."""

READ_BYTES: Final = 4096
READ_MILLISECONDS: Final = 50
"""Timeout for an incomplete escape sequence."""

QUEUE_LIMIT: Final = 500
"""Queued messages from which input is no longer read: an accidental paste must not fill the
memory, and the terminal can wait."""

STARTED: Final = b"__GANGLION__\n"
"""The string that textual-serve waits for: packets follow."""

SCREEN_SEQUENCES: Final = ("\x1b[?1049h", "\x1b[?25l", "\x1b[?2004h", "\x1b[?7l")
"""The alternative screen without cursor and line wrap; pastes are marked as such."""

MOUSE_SEQUENCES: Final = ("\x1b[?1000h", "\x1b[?1003h", "\x1b[?1015h", "\x1b[?1006h")

STDIN: Final = 0


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


class FlowControl(Driver):
    """Mixin for drivers: ``write_frame``, and whether the terminal has shown what was written.

    ``paint_pending`` is set while the application waits to paint until then.
    """

    exit_event: threading.Event

    def __init__(self, app: App[Any], **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        self.paint_pending = False
        self._unreported_bytes = REPORT_BYTES
        self._requested_at: float | None = None
        self._terminal_replies = False
        self._reply = threading.Event()
        self._decoder = InputDecoder()

    @property
    def application(self) -> DiffRenderingApp:
        assert isinstance(self._app, DiffRenderingApp)
        return self._app

    @property
    def has_pending_output(self) -> bool:
        """Whether some output has not yet arrived at the terminal."""
        reply_pending = self._terminal_replies and self._requested_at is not None
        return reply_pending and monotonic() - (self._requested_at or 0.0) < REPLY_SECONDS

    def write_frame(self, output: str) -> None:
        """Write a frame, and after enough bytes a cursor position request."""
        self._unreported_bytes += len(output)
        if self._unreported_bytes >= REPORT_BYTES:
            self._unreported_bytes = 0
            self._reply.clear()
            self._requested_at = monotonic()
            output += REPORT_CURSOR
            self._loop.call_later(REPLY_SECONDS, self._paint_if_clear)
        self.write(output)

    def write_apart(self, text: str) -> bool:
        """Write text between frames; return False if that is not possible. Any thread."""
        if self._loop.is_closed():
            return False
        self._loop.call_soon_threadsafe(self.write, text)
        return True

    def read_input(self, descriptor: int, take: Callable[[bytes], object]) -> None:
        """Pass all input to ``take``, and decode it, until exit or the end of the input."""
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while not self.exit_event.is_set():
            if self.application.message_queue_size > QUEUE_LIMIT:
                self.exit_event.wait(READ_MILLISECONDS / 1000)
                continue
            if poller.poll(READ_MILLISECONDS):
                try:
                    data = os.read(descriptor, READ_BYTES)
                except OSError:
                    data = b""
                if not data:
                    self.application.terminal_lost()
                    return
                take(data)
            for message in self._decoder.tick():
                self.process_message(message)

    def decode(self, data: bytes) -> None:
        """Handle the messages that these bytes of a terminal complete."""
        for message in self._decoder.feed(data):
            self.process_message(message)

    def process_message(self, message: Message) -> None:
        if not isinstance(message, events.CursorPosition):
            super().process_message(message)
            return
        self._requested_at, self._terminal_replies = None, True
        self._reply.set()
        self._paint_if_clear()

    def _paint_if_clear(self) -> None:
        """Paint if all output may have arrived; called in any thread."""
        if self.paint_pending and not self.has_pending_output and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.application.call_later, self.application.paint)


class FlowControlledDriver(FlowControl, LinuxDriver):
    """Textual's driver, extended by flow control and a robust input decoder."""

    def __init__(self, app: App[Any], **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        writer = TerminalWriter(self._file, self._written, self.application.terminal_lost)
        self._file: Any = writer
        self._writes_queued = self._writes_done = 0
        self._suspended = False
        # Signal handlers run in an arbitrary context.
        self._context = copy_context()

    @property
    def has_pending_output(self) -> bool:
        """Whether some output has not yet arrived at the terminal."""
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
        previous_thread, self._suspended = self._writer_thread, False
        self._requested_at = None
        super().start_application_mode()  # type: ignore[no-untyped-call]
        # Textual reads the size in the handler: one read before may be sent after the last one.
        signal.signal(signal.SIGWINCH, lambda *_: self._call_soon(self._send_size))
        # A background process cannot get the terminal; the next SIGCONT may be in foreground.
        self._suspended = self._writer_thread is previous_thread

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
        self.read_input(self.fileno, self.decode)

    def _get_terminal_size(self) -> tuple[int, int]:
        return terminal_size((self._file.fileno(), self.fileno))

    def _send_size(self) -> None:
        self.process_message(_resized(*self._get_terminal_size()))

    def _query_in_band_window_resize(self) -> None:
        """Do nothing: every terminal reports its size by SIGWINCH; text could be forged."""

    # --- suspend and resume -----------------------------------------------------------------

    def _call_soon(self, callback: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, context=self._context)

    def _sigtstp_application(self, *_: object) -> None:
        # Deferred: the signal may interrupt code that holds the lock of the output queue.
        self._call_soon(self._suspend)

    def _suspend(self) -> None:
        if self._auto_restart and not self._suspended and can_be_resumed():
            self.suspend_application_mode()
            os.kill(os.getpid(), signal.SIGSTOP)

    def _sigcont_application(self, *_: object) -> None:
        self._call_soon(self._resume)

    def _resume(self) -> None:
        if not self._auto_restart or self.exit_event.is_set():
            return
        if not self._suspended:
            # SIGSTOP cannot be handled: the terminal modes set by the shell are unknown.
            self.suspend_application_mode()
        self.resume_application_mode()


class FlowControlledWebDriver(FlowControl, WebDriver):
    """Textual's driver for a browser, extended by flow control and a robust input decoder.

    Input and output are packets on pipes (see Textual's web driver), not a terminal. It handles no
    signals: the application does. It ends when the server does.
    """

    def __init__(self, app: App[Any], **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        self._write = self._write_packet  # type: ignore[assignment]
        self._write_lock = threading.Lock()

    def _write_packet(self, data: bytes) -> None:
        """Write a whole packet; called in any thread, as ``os.write`` may write only a part."""
        try:
            with self._write_lock:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self.fileno, rest) :]
        except OSError:
            self.application.terminal_lost()

    def start_application_mode(self) -> None:
        self._write_packet(STARTED)
        # Written separately: the page shows "starting" until it receives more than 10 bytes.
        for sequence in (*SCREEN_SEQUENCES, *(MOUSE_SEQUENCES if self._mouse else ())):
            self.write(sequence)
        self.process_message(_resized(*(self._size or DEFAULT_SIZE)))
        self._request_terminal_sync_mode_support()
        self._key_thread.start()

    def run_input_thread(self) -> None:
        """Read the server's packets until exit, or until the server has gone."""
        packets = ByteStream()

        def take(data: bytes) -> None:
            for kind, payload in packets.feed(data):
                if kind == "D":
                    # One key is one packet: several of them in one read are not a paste.
                    self.decode(payload)
                else:
                    self._on_meta(kind, payload)

        self.read_input(STDIN, take)

    def on_meta(self, packet_type: str, payload: dict[str, Any]) -> None:
        if packet_type == "resize":
            with suppress(KeyError, TypeError, ValueError):
                self.process_message(_resized(payload["width"], payload["height"]))
        else:
            super().on_meta(packet_type, payload)


def _resized(width: float, height: float) -> events.Resize:
    columns = max(1, min(int(width), MAXIMUM_WIDTH))
    size = Size(columns, max(1, min(int(height), MAXIMUM_HEIGHT)))
    return events.Resize(size, size)


def terminal_size(descriptors: tuple[int, ...]) -> tuple[int, int]:
    """Columns and lines of the first descriptor with a size, else of the environment."""
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
    """Whether there is a shell that can resume this process after a stop.

    A session leader (a terminal window's own command) would be stopped forever. POSIX: an orphaned
    process group.
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


class DiffRenderingApp(FaultTolerant, App[int]):
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
        """Write text that leaves the screen unchanged; return False if not possible. Any thread."""
        driver = self._driver
        return isinstance(driver, FlowControl) and driver.write_apart(text)

    def set_timer(self, *args: Any, **kwargs: Any) -> Timer:
        """Call a function once, later, even if the process is preempted for the whole delay.

        Textual's timers skip late calls, so that a timer for a single call may never make it. If
        that happened to the 8 ms timer of a resize, no later size would be used.
        """
        timer = super().set_timer(*args, **kwargs)
        timer._skip = False
        return timer

    def terminal_lost(self) -> None:
        """Handle the loss of the terminal; called in any thread."""
        raise NotImplementedError

    async def _on_key(self, event: events.Key) -> None:
        # Textual calls the handlers of all base classes unless the default is prevented.
        event.prevent_default()
        if not await self._check_bindings(event.key):
            self.handle_unbound_key(event.key)

    def handle_unbound_key(self, key: str) -> None:
        """Handle a key without an action on the current screen."""

    def remove_colours(self) -> None:
        """Show no colours: Textual's own filter for NO_COLOR produces greys."""
        others = [each for each in self._filters if not isinstance(each, Monochrome | NoColor)]
        self._filters = [*others, NoColor()]

    def action_redraw(self) -> None:
        """Write the whole screen again, whatever the terminal shows."""
        self.screen_buffer.invalidate()
        self.paint()

    # --- painting -----------------------------------------------------------------------------

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        is_update = isinstance(renderable, LayoutUpdate | ChopsUpdate)
        if is_update and self.can_paint:
            self._display_update(renderable)
        else:
            super()._display(screen, renderable)

    @property
    def can_paint(self) -> bool:
        """Whether output may be written: on the same conditions as in Textual."""
        is_idle = self._running and not self._closed and not self._batch_count
        return is_idle and not self.is_headless and self._driver is not None

    def _display_update(self, update: LayoutUpdate | ChopsUpdate) -> None:
        if self.size.width < MINIMUM_SIZE[0] or self.size.height < MINIMUM_SIZE[1]:
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
        driver = self._driver
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
        if self._sync_available and len(output) > SYNCHRONISED_BYTES:
            output = f"\x1b[?2026h{output}\x1b[?2026l"
        if isinstance(driver, FlowControl):
            driver.write_frame(output)
        else:
            driver.write(output)
        driver.flush()


def erases_with_background() -> bool:
    """Whether the terminal fills erased cells with the background (terminfo's ``bce``)."""
    try:
        import curses
    except ImportError:
        return False
    try:
        curses.setupterm(None, 2)
        return curses.tigetflag("bce") > 0
    except (curses.error, OSError, ValueError):
        return False


# --- the decoder of input -------------------------------------------------------------

TYPED_LIMIT: Final = 512
"""More characters than this at once are not typed: they are a paste, and none is a key."""

PASTE_LIMIT: Final = 4096
"""Maximum length of a paste in characters; the longest field holds less."""

SEQUENCE_LIMIT: Final = 32
"""Maximum length of a key's escape sequence; longer text directly after it is cut off."""

PASTE_SECONDS: Final = 1.0
"""Time without input after which a paste without an end marker is over."""

TAIL_SECONDS: Final = 0.5
"""Time after such a text during which input still belongs to it: its end arrives in smaller
parts, and no key is pressed that soon."""

EDITING_KEYS: Final = "\t\r\x7f\x03"
"""Tab, enter, backspace and ctrl-c, which remain keys at either end of several characters: on
a slow line, typed keys arrive together."""

SEQUENCE_SECONDS: Final = 0.5
"""Timeout for the rest of a sequence that arrives in parts."""

_BEFORE_ESCAPE: Final = re.compile(r"(?=\x1b)")

_SEQUENCE_START: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*(?:[@-~]|$)|O(?:[ -~]|$)|[^\[O]|$)", re.DOTALL
)
"""The escape sequence of one key, or the beginning of one."""

_WHOLE_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|[^\[O])", re.DOTALL)


class InputDecoder:
    """Decodes the bytes of a terminal into messages; never raises, whatever the bytes.

    Textual's own input thread ends at the first byte that is not UTF-8 and at a key number that is
    not a character, and never leaves a bracketed paste whose end was lost. A briefly interrupted
    line, a terminal with another encoding or an accidental paste of a file is enough for that.
    """

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._parser = XTermParser()
        self._tail = ""
        self._partial = ""
        self._paste: str | None = None
        self._input_at = 0.0
        self._unmarked_paste_at = float("-inf")

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages completed by these bytes."""
        self._input_at = monotonic()
        for piece in _BEFORE_ESCAPE.split(self._decode(data)):
            if piece:
                yield from self._decode_piece(piece)

    def tick(self) -> Iterator[Message]:
        """The messages completed by a timeout; to be called several times a second.

        For example, an escape character without a sequence is the escape key.
        """
        if self._paste is not None and monotonic() - self._input_at > PASTE_SECONDS:
            yield from self._end_paste("")
        if monotonic() - self._input_at > SEQUENCE_SECONDS:
            self._partial = ""
        yield from self._parse(None)

    def _decode_piece(self, piece: str) -> Iterator[Message]:
        """Decode text that has an escape character at its start only."""
        recent = self._tail + piece
        self._tail = recent[-(len(BRACKETED_PASTE_START) - 1) :]
        if self._paste is not None:
            _, end, after = recent.partition(BRACKETED_PASTE_END)
            self._paste = (self._paste + piece)[: PASTE_LIMIT + len(BRACKETED_PASTE_END)]
            if end:
                yield from self._end_paste(after)
            return
        _, start, after = recent.partition(BRACKETED_PASTE_START)
        if start:
            # Textual's parser would decode sequences inside a paste as keys: pass it an empty
            # paste.
            visible = piece[: len(piece) - len(after)] + BRACKETED_PASTE_END
            for message in self._parse(visible):
                if not isinstance(message, events.Paste):
                    yield message
            self._paste = after[:PASTE_LIMIT]
        elif self._is_unmarked_paste(piece):
            yield from self._parse(piece[:SEQUENCE_LIMIT] if piece.startswith("\x1b") else "")
            yield events.Paste(piece[:PASTE_LIMIT].replace("\x00", ""))
        else:
            yield from self._decode_key(piece)

    def _decode_key(self, piece: str) -> Iterator[Message]:
        """Decode a key's sequence, or the rest of one, and the characters after it."""
        begin = "" if piece.startswith("\x1b") else self._partial
        match = _SEQUENCE_START.match(begin + piece)
        end = match.end() - len(begin) if match else 0
        sequence = match[0] if match else ""
        self._partial = "" if _WHOLE_SEQUENCE.fullmatch(sequence) or end < len(piece) else sequence
        yield from self._parse(piece[:end])
        yield from self._decode_characters(piece[end:])

    def _decode_characters(self, text: str) -> Iterator[Message]:
        """Decode characters; several different ones at once are a paste."""
        inner = text.strip(EDITING_KEYS)
        if len(set(inner)) <= 1:
            yield from self._parse(text)
            return
        first, _, last = text.partition(inner)
        yield from self._parse(first)
        yield events.Paste(inner[:PASTE_LIMIT].replace("\x00", ""))
        yield from self._parse(last)

    def _is_unmarked_paste(self, piece: str) -> bool:
        """Whether it belongs to a paste that the terminal did not mark as one."""
        if len(piece) > TYPED_LIMIT:
            self._unmarked_paste_at = self._input_at
        elif piece.startswith("\x1b"):
            return False
        return self._input_at - self._unmarked_paste_at < TAIL_SECONDS

    def _end_paste(self, after: str) -> Iterator[Message]:
        text, self._paste, self._tail = self._paste or "", None, ""
        text = text.partition(BRACKETED_PASTE_END)[0][:PASTE_LIMIT]
        yield events.Paste(text.replace("\x00", ""))
        if after:
            yield from self._decode_piece(after)

    def _parse(self, text: str | None) -> Iterator[Message]:
        if text == "":
            return
        try:
            for message in self._parser.tick() if text is None else self._parser.feed(text):
                # Sizes are reported by SIGWINCH; those sent as text could be forged.
                if not isinstance(message, events.Resize | messages.InBandWindowResize):
                    yield message
        except Exception:
            # An invalid sequence: start again at the next escape character.
            self._parser = XTermParser()
