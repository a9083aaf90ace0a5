"""Reports a file system that does not answer, and lets ctrl-c end the command all the same.

A call on a hard NFS mount does not return while its server is gone, and Python raises
KeyboardInterrupt only in the main thread, which is blocked in that call. A second thread watches
the main thread, and ends the process if need be.
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

CHECK_SECONDS: Final = 0.25

REPORT_AFTER: Final = 3.0
"""Seconds in one call before it is reported; shorter ones are merely slow."""

WORK_SECONDS: Final = 0.01
"""CPU seconds within one call that prove progress: a blocked call takes none."""

INTERRUPT_CHECKS: Final = 2
"""Checks at which an interrupt is pending before the process ends."""

READERS: Final = ("/metlmon/live/", "/metlmon/cli/reading.py")
"""Where the calls are that read a dagdir."""

MAX_DEPTH: Final = 12
"""Calls of the standard library below one of ours, at most."""

_stopped = threading.Event()
"""Ends the current watchdog; each command has its own."""


def start_watchdog(directory: str) -> None:
    """Watch the reading of ``directory`` until :func:`stop_watchdog`."""
    global _stopped
    stop_watchdog()
    _stopped = threading.Event()
    # Tests call commands from other threads.
    if threading.current_thread() is threading.main_thread():
        args = (threading.get_ident(), plain(directory, 200), _stopped)
        threading.Thread(target=_watch, args=args, name="metlmon-look", daemon=True).start()


def stop_watchdog() -> None:
    """Stop watching: the command has ended, or opens screens, which do not block."""
    _stopped.set()


def _watch(main: int, directory: str, stopped: threading.Event) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    call: tuple[int, int] | None = None
    cpu, blocked, reported, interrupts = 0.0, 0.0, False, 0
    while not stopped.wait(CHECK_SECONDS):
        current, current_cpu = _where(sys._current_frames().get(main)), _cpu_seconds(main)
        # Counted in checks without CPU time, not by the clock: on a busy machine both threads
        # wait for a processor.
        if current is None or current != call or current_cpu - cpu > WORK_SECONDS:
            call, cpu, blocked, reported = current, current_cpu, 0.0, False
        else:
            blocked += CHECK_SECONDS
        if not reported and blocked >= REPORT_AFTER:
            reported = True
            since = time.strftime("%H:%M:%S", time.localtime(time.time() - blocked))
            _print(f"no answer from the file system since {since}: {directory} (^C: do not wait)")
        interrupts = interrupts + 1 if signal.SIGINT in signal.sigpending() else 0
        if interrupts >= INTERRUPT_CHECKS:
            _print(f"ended while the file system did not answer: {directory}")
            os._exit(Exit.INTERRUPTED)


def _cpu_seconds(thread: int) -> float:
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except OSError:
        return 0.0


def _where(frame: FrameType | None) -> tuple[int, int] | None:
    """Identifies the main thread's call if it reads a dagdir; None if it does something else."""
    innermost = frame
    for _ in range(MAX_DEPTH):
        if frame is None or innermost is None:
            return None
        file = frame.f_code.co_filename
        if any(reader in file for reader in READERS):
            return id(innermost), innermost.f_lasti
        if "/metlmon/" in file:
            return None
        frame = frame.f_back
    return None


def _print(text: str) -> None:
    # Standard error may be closed.
    with suppress(OSError):
        os.write(2, f"metlmon: {text}\n".encode("ascii", "backslashreplace"))
