"""Base application that survives errors, and always restores the terminal."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import Any, Final

from textual.worker import WorkerFailed

from metlmon.errors import TRACEBACK, describe_error, format_traceback
from screens.base.screens import SnapshotScreen
from screens.terminal.driver import DiffRenderingApp

ERROR_LIMIT: Final = 30
ERROR_LIMIT_SECONDS: Final = 10.0
"""More than ``ERROR_LIMIT`` errors within ``ERROR_LIMIT_SECONDS`` end the application with a
message: the screen is useless then. A screen that fails at each snapshot has five a second."""

SAME_ERROR_SECONDS: Final = 0.2
"""Errors within this time count as one: all lines of a table may fail at once."""

ERROR_CODE: Final = 70
"""The exit status after a fatal error; documented with the commands."""

EXIT_TIMEOUT_SECONDS: Final = 3.0
"""Time for a clean end after a signal; then the terminal is restored by force."""

HANGUP_CHECK_MILLISECONDS: Final = 5000
"""Interval at which the hang-up thread checks whether it may end; a hang-up wakes it at once."""

_EXIT_SIGNALS: Final = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGXCPU,
)
"""Signals that end an unprepared process; SIGXCPU is a limit of a batch system or a shell."""

_TEXTUAL_SIGNALS: Final = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
"""Textual handles these, and never restores their handlers."""

_RESTORE_SEQUENCE: Final = (
    b"\x1b[0m\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""What the driver writes at exit: style, paste mode, wrap, mouse, keys, screen, cursor."""


class FaultTolerantApp(DiffRenderingApp):
    """Shows unexpected errors in a banner, and ends with a message after too many.

    ``banners`` are the errors that the screens show, one after the other until a key is pressed;
    ``exit_messages`` are written to standard error after the end. ``exit_started`` is set once the
    application exits. ``pending_task`` names a task that exiting waits for; empty: none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.banners: list[str] = []
        self.exit_messages: list[str] = []
        self.pending_task = ""
        self.exit_started = threading.Event()
        self._failed_at: list[float] = []
        self._event_loop: asyncio.AbstractEventLoop | None = None

    def on_mount(self) -> None:
        self._event_loop = asyncio.get_running_loop()

    def _handle_exception(self, error: Exception) -> None:
        """Show an unexpected exception and continue, while Textual would exit."""
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
        self.add_banner(describe_error(context, error))
        screen = self.screen
        if isinstance(screen, SnapshotScreen) and screen.is_attached:
            self.call_next(screen.show_banner)

    def add_banner(self, text: str) -> None:
        """Add a text to the banner, after those that no key has closed yet."""
        if text not in self.banners:
            self.banners.append(text)

    def _exit_with_error(self, error: BaseException) -> None:
        # No local variables and no raw text of a log: the terminal would interpret it.
        self.exit_messages = [f"metlmon: {describe_error('ended by an error', error)}"]
        if os.environ.get(TRACEBACK):
            self.exit_messages += format_traceback(error)
        self._return_code = ERROR_CODE
        # Needed even if ``exit`` is no longer handled.
        self._close_messages_no_wait()

    def _fatal_error(self) -> None:
        """End with the message of the exception that is being handled."""
        self._exit_with_error(sys.exc_info()[1] or RuntimeError("for no known reason"))

    def panic(self, *renderables: Any) -> None:
        """End with a message; Textual's own method prints tracebacks."""
        self._fatal_error()

    def record_error(self, error: Exception) -> None:
        """Let a test's pilot raise an error even if the application survived it."""
        if self.is_headless and self._exception is None:
            self._exception = error
            self._exception_event.set()

    @property
    def is_exiting(self) -> bool:
        """Whether ``exit`` has been called."""
        return self._exit

    def terminal_lost(self) -> None:
        self.exit_threadsafe(128 + signal.SIGHUP)

    def exit(self, *args: Any, **kwargs: Any) -> None:
        """Exit; running threads have some seconds to end."""
        self.exit_started.set()
        super().exit(*args, **kwargs)

    def exit_threadsafe(self, code: int) -> None:
        """Exit with this code; safe in a signal handler.

        In a handler the event loop sleeps and would not notice a posted message.
        """
        if self._event_loop is not None and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self.exit, code, code)


# --- exit on signals -------------------------------------------------------------------------


@contextmanager
def terminal_guard(app: FaultTolerantApp) -> Iterator[None]:
    """Exit cleanly on signals, and restore the terminal in any case.

    ``_EXIT_SIGNALS`` exit as ``q`` does. If that takes too long (the terminal
    is gone or no longer reads, a thread waits for a file), or at a second signal, the terminal
    modes are restored by force and the process ends.
    """
    modes = _terminal_modes()
    done = threading.Event()
    received: list[int] = []

    def handle_signal(number: int, frame: FrameType | None) -> None:
        if received:
            _restore_and_exit(128 + number, modes, _signal_message(received[0]))
        received.append(number)
        app.exit_threadsafe(128 + number)
        threading.Thread(
            target=_exit_after_timeout,
            args=(done, 128 + number, modes),
            name="metlmon-exit",
            daemon=True,
        ).start()

    def handle_hangup() -> None:
        app.exit_threadsafe(128 + signal.SIGHUP)
        _exit_after_timeout(done, 128 + signal.SIGHUP, modes)

    handlers = {number: signal.getsignal(number) for number in (*_EXIT_SIGNALS, *_TEXTUAL_SIGNALS)}
    for number in _EXIT_SIGNALS:
        # Ignored by nohup: keep ignoring it.
        if handlers[number] is not signal.SIG_IGN:
            signal.signal(number, handle_signal)
    for target, args in ((_poll_hangup, (done, handle_hangup)), (_ensure_exit, (app, done, modes))):
        threading.Thread(target=target, args=args, name="metlmon-terminal", daemon=True).start()
    try:
        yield
    finally:
        done.set()
        app.exit_started.set()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            write_stderr(_signal_message(received[0]))


def write_stderr(message: str) -> None:
    """Write to standard error, if there is one."""
    with suppress(OSError, ValueError):
        os.write(2, f"{message}\n".encode("ascii", "backslashreplace"))


def _terminal_modes() -> list[Any] | None:
    try:
        return termios.tcgetattr(sys.__stdin__.fileno()) if sys.__stdin__ else None
    except (termios.error, OSError, ValueError):
        return None


def _poll_hangup(done: threading.Event, on_hangup: Callable[[], None]) -> None:
    """Detect that the terminal has gone, by polling.

    SIGHUP is not always sent (it may not be the controlling terminal); Textual would then read
    nothing in a busy loop.
    """
    poller = select.poll()
    try:
        poller.register(0, 0)
    except (OSError, ValueError):
        return
    while not done.is_set():
        events = [event for _, event in poller.poll(HANGUP_CHECK_MILLISECONDS)]
        if any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for event in events):
            on_hangup()
            return


def _ensure_exit(app: FaultTolerantApp, done: threading.Event, modes: list[Any] | None) -> None:
    """Make sure that exiting, once begun, ends.

    A pending task is waited for: leaving it half done and unreported would be worse.
    """
    app.exit_started.wait()
    if done.wait(EXIT_TIMEOUT_SECONDS):
        return
    if app.pending_task:
        write_stderr(
            f"metlmon: waiting for the schedd: {app.pending_task} is under way (^C: do not wait)"
        )
        while app.pending_task:
            if done.wait(0.1):
                return
    _exit_after_timeout(done, app.return_code or 0, modes)


def _exit_after_timeout(done: threading.Event, code: int, modes: list[Any] | None) -> None:
    if not done.wait(EXIT_TIMEOUT_SECONDS):
        _restore_and_exit(code, modes, _signal_message(code - 128) if code > 128 else "")


def _signal_message(number: int) -> str:
    return f"metlmon: ended by {signal.Signals(number).name}"


def _restore_and_exit(code: int, modes: list[Any] | None, message: str = "") -> None:
    try:
        os.set_blocking(2, False)
        os.write(2, _RESTORE_SEQUENCE + f"{message}\r\n".encode() * bool(message))
        if modes is not None:
            termios.tcsetattr(0, termios.TCSANOW, modes)
    except (OSError, termios.error):
        pass  # The terminal is gone: there is nothing to restore.
    os._exit(code)
