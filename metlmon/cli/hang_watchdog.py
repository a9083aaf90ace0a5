"""A command whose file system does not answer says so, and ends at ctrl-c all the same.

The call from which the kernel does not come back (a hard NFS mount whose server is gone) is made
in the main thread, where alone Python raises KeyboardInterrupt: it would come when the server
does. A thread looks on, and ends the process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Final

from metlmon.cli.exit_codes import Exit
from metlmon.text.formatting import plain

LOOK_SECONDS: Final = 0.25

SPEAK_AFTER: Final = 3.0
"""Seconds in one and the same call: before that, somebody is slow."""

AT_WORK: Final = 0.01
"""Seconds of a processor within one call that are work: a call without answer takes none."""

LET_GO_AFTER: Final = 2
"""Looks at which a ctrl-c waits for the main thread: one in a long call of its own hears it."""

READERS: Final = ("/metlmon/live/", "/metlmon/cli/reading.py")
"""Where the calls are that ask the file system of a dagdir."""

DEEP: Final = 12
"""Calls of Python's own below one of ours, at most."""

_over = threading.Event()
"""Of the command that is watched now; each has its own, or the thread of the one before goes on."""


def start_watchdog(directory: str) -> None:
    """Begin to see to it that reading ``directory`` gets on, until :func:`stop_watchdog`."""
    global _over
    stop_watchdog()
    _over = threading.Event()
    main = threading.main_thread().ident
    # Screens are drawn where there may be no thread for it, and tests call commands from others.
    if main is not None and threading.current_thread() is threading.main_thread():
        args = (main, plain(directory, 200), _over)
        threading.Thread(target=_look, args=args, name="metlmon-look", daemon=True).start()


def stop_watchdog() -> None:
    """The command has ended, or screens are drawn: they have ways of their own."""
    _over.set()


def _look(main: int, directory: str, over: threading.Event) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    at: tuple[int, int] | None = None
    spent, silent, told, waits = 0.0, 0.0, False, 0
    while not over.wait(LOOK_SECONDS):
        now, used = _where(sys._current_frames().get(main)), _used(main)
        # By looks, not by the clock, and not while it works: on a busy machine both threads wait
        # for a processor, which is no file system.
        if now is None or now != at or used - spent > AT_WORK:
            at, spent, silent, told = now, used, 0.0, False
        else:
            silent += LOOK_SECONDS
        if not told and silent >= SPEAK_AFTER:
            told = True
            clock = time.strftime("%H:%M:%S", time.localtime(time.time() - silent))
            _tell(f"no answer from the file system since {clock}: {directory} (^C: do not wait)")
        # What has come for all threads, and the main thread did not take.
        waits = waits + 1 if signal.SIGINT in signal.sigpending() else 0
        if waits >= LET_GO_AFTER:
            _tell(f"ended while the file system did not answer: {directory}")
            os._exit(Exit.INTERRUPTED)


def _used(thread: int) -> float:
    """Seconds of a processor that a thread has had."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except OSError:
        return 0.0


def _where(frame: FrameType | None) -> tuple[int, int] | None:
    """In which call of which function the main thread reads; None where it does something else."""
    inner = frame
    for _ in range(DEEP):
        if frame is None:
            return None
        file = frame.f_code.co_filename
        if any(each in file for each in READERS):
            return (id(inner), inner.f_lasti) if inner is not None else None
        if "/metlmon/" in file:
            return None
        frame = frame.f_back
    return None


def _tell(what: str) -> None:
    # There may be nobody to tell.
    with suppress(OSError):
        os.write(2, f"metlmon: {what}\n".encode("ascii", "backslashreplace"))
