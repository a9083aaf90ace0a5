"""Base application that survives errors, and exits with a message where it cannot."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from time import monotonic
from typing import Any, Final

from textual.worker import WorkerFailed

from metlmon.error_text import TRACEBACK, describe_error, format_traceback
from screens.base.screens import SnapshotScreen
from screens.terminal.driver import DiffRenderingApp

ERROR_LIMIT: Final = 30
ERROR_LIMIT_SECONDS: Final = 10.0
"""More than ``ERROR_LIMIT`` errors within ``ERROR_LIMIT_SECONDS`` end the application with a
message: the screen shows nothing useful. A screen that fails at each snapshot has five a second."""

SAME_ERROR_SECONDS: Final = 0.2
"""Errors within this time count as one: all lines of a table may fail at once."""

ERROR_CODE: Final = 70
"""The exit status after a fatal error; documented with the commands."""


class FaultTolerantApp(DiffRenderingApp):
    """Shows unexpected errors in a banner, and ends with a message after too many.

    ``error_banner`` is the error shown on every screen, ``exit_messages`` what is written to
    standard error after the end. ``exit_started`` is set once the application exits.
    ``pending_task`` names a task that exiting waits for; empty: none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.error_banner = ""
        self.exit_messages: list[str] = []
        self.pending_task = ""
        self.exit_started = threading.Event()
        self._failed_at: list[float] = []
        self._event_loop: asyncio.AbstractEventLoop | None = None

    def on_mount(self) -> None:
        self._event_loop = asyncio.get_running_loop()

    def handle_exception(self, error: Exception) -> None:
        """Show an unexpected exception and continue, where Textual would exit."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        self.record_error(error)
        if self.is_exiting:
            # Screens are being closed: a queued key finds its widgets gone.
            return
        now = monotonic()
        if not self._failed_at or now - self._failed_at[-1] > SAME_ERROR_SECONDS:
            recent = (
                failed_at for failed_at in self._failed_at if now - failed_at < ERROR_LIMIT_SECONDS
            )
            self._failed_at = [*recent, now]
        can_continue = self.is_running and len(self.screen_stack) > 1
        if not can_continue or len(self._failed_at) > ERROR_LIMIT:
            self._exit_with_error(cause)
            return
        self.show_error("something failed", cause)

    def show_error(self, context: str, error: BaseException) -> None:
        """Show an error in the banner of the current screen, until a key is pressed."""
        self.error_banner = describe_error(context, error)
        screen = self.screen
        if isinstance(screen, SnapshotScreen) and screen.is_attached:
            self.call_next(screen.show_banner)

    def _exit_with_error(self, error: BaseException) -> None:
        # No local variables and no raw text of a log: the terminal would interpret it.
        self.exit_messages = [f"metlmon: {describe_error('ended by an error', error)}"]
        if os.environ.get(TRACEBACK):
            self.exit_messages += format_traceback(error)
        self.close_with_code(ERROR_CODE)

    def handle_fatal_error(self) -> None:
        """End with the message of the exception that is being raised."""
        self._exit_with_error(sys.exc_info()[1] or RuntimeError("for no known reason"))

    def panic(self, *renderables: Any) -> None:
        """End with a message; Textual's own method prints tracebacks."""
        self.handle_fatal_error()

    def terminal_lost(self) -> None:
        self.exit_threadsafe(128 + signal.SIGHUP)

    def exit(self, *args: Any, **kwargs: Any) -> None:
        """Exit; threads that still run have some seconds to end."""
        self.exit_started.set()
        super().exit(*args, **kwargs)

    def exit_threadsafe(self, code: int) -> None:
        """Exit with this code; safe in a signal handler.

        There the event loop sleeps and does not notice a posted message.
        """
        if self._event_loop is not None and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self.exit, code, code)
