"""Flow control: a frame is written only after the previous one has arrived.

Every terminal replies to a cursor position request once it has come to it, the one in a browser
as well.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any, Final

from textual import events
from textual.app import App
from textual.message import Message

from screens.terminal.private import DriverHooks, HookedApp

REPORT_BYTES: Final = 2048
"""Bytes between cursor position requests, which show what has arrived: output may stay in the
buffers of ssh for many seconds. At 20 kB/s this is a tenth of a second."""

REPORT_CURSOR: Final = "\x1b[6n"
"""Device status report, cursor position: every terminal replies once it has come to it."""

REPLY_SECONDS: Final = 3.0
"""Time-out for the reply, which may be lost or read by another program."""

MAXIMUM_WIDTH: Final = 1000
MAXIMUM_HEIGHT: Final = 500
"""Largest size used, each cell takes some hundred bytes: a serial line may report nonsense."""

READ_BYTES: Final = 4096
READ_MILLISECONDS: Final = 50
"""Time-out for an incomplete escape sequence."""

QUEUE_LIMIT: Final = 500
"""Queued messages from which input is no longer read: an accidental paste must not fill the
memory, and the terminal can wait."""


class PaintingApp(HookedApp):
    """What a driver calls of the application that it serves."""

    def paint(self) -> None:
        """Write the differences, now or as soon as the previous output has arrived."""
        raise NotImplementedError

    def terminal_lost(self) -> None:
        """Handle the loss of the terminal; called in any thread."""


class FlowControl(DriverHooks):
    """Mixin for drivers: ``write_frame``, and whether the terminal has shown what was written.

    ``paint_pending`` is set where the application waits to paint until then.
    """

    def __init__(self, app: App[Any], **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        self.paint_pending = False
        self._unreported_bytes = REPORT_BYTES
        self._requested_at: float | None = None
        self._terminal_replies = False
        self._reply = threading.Event()

    @property
    def application(self) -> PaintingApp:
        """The application that this driver serves."""
        application = super().application
        assert isinstance(application, PaintingApp)
        return application

    @property
    def has_pending_output(self) -> bool:
        """Has some output not yet arrived at the terminal?"""
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
            self.event_loop.call_later(REPLY_SECONDS, self._paint_if_clear)
        self.write(output)

    def write_apart(self, text: str) -> bool:
        """Write what is no part of a frame, between two of them; False if that is not possible.

        Called in any thread.
        """
        if self.event_loop.is_closed():
            return False
        self.event_loop.call_soon_threadsafe(self.write, text)
        return True

    def process_message(self, message: Message) -> None:
        if not isinstance(message, events.CursorPosition):
            super().process_message(message)
            return
        self._requested_at, self._terminal_replies = None, True
        self._reply.set()
        self._paint_if_clear()

    def _paint_if_clear(self) -> None:
        """Paint if all output may have arrived; called in any thread."""
        if self.paint_pending and not self.has_pending_output and not self.event_loop.is_closed():
            self.event_loop.call_soon_threadsafe(
                self.application.call_later, self.application.paint
            )
