"""File-system calls with a time-out, so that a hung file server blocks no caller.

A call that hangs in the kernel (hard NFS mount, broken FUSE mount) cannot be cancelled. A session
therefore makes its calls in another thread and waits briefly for each. While one hangs, all others
are refused; when it returns, the session is notified, and its result is used for the next identical
call. A thread without an executor (:func:`calls_through`) makes its calls itself, as one-shot
commands do.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

PATIENCE: Final = 0.5
"""Time-out of one call. A disk takes milliseconds, a loaded file server tenths of a second;
a screen may be blocked for this long."""

LATE_RESULT_SECONDS: Final = 60.0
"""How long the result of a call that timed out is used for the next identical call."""

Statuses = dict[Path, os.stat_result | OSError]

_state = threading.local()


class FsTimeout(Exception):
    """A file-system call timed out.

    ``path``: the file of the call; ``since``: when it started, in seconds since 1970. Not an
    OSError, because the state of the file is unknown.
    """

    def __init__(self, path: Path, since: float) -> None:
        super().__init__(f"no answer from the file system since {clock_time(since)}")
        self.path = path
        self.since = since


def clock_time(moment: float) -> str:
    """Format a time of today in the local time zone of the terminal's machine."""
    return time.strftime("%H:%M:%S", time.localtime(moment))


def call_with_timeout(call: Callable[..., T], path: Path, *arguments: Any) -> T:
    """Return ``call(path, *arguments)``, a file-system call.

    Raises what the call raises, and :class:`FsTimeout` if the thread has an executor and the
    call times out.
    """
    executor: FsExecutor | None = getattr(_state, "executor", None)
    try:
        return call(path, *arguments) if executor is None else executor.call(call, path, *arguments)
    except ValueError as error:
        # A DAG file can contain a name with a NUL or a lone surrogate; no file can have it.
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from error


def stat_all(paths: Iterable[Path]) -> Statuses:
    """Return the status of each path, or the error. Raises FsTimeout."""
    executor: FsExecutor | None = getattr(_state, "executor", None)
    return _statuses(paths) if executor is None else executor.stat_all(tuple(paths))


def _statuses(paths: Iterable[Path], progressed: Callable[[Path], object] = id) -> Statuses:
    statuses: Statuses = {}
    for path in paths:
        progressed(path)
        try:
            statuses[path] = os.stat(path)
        except OSError as error:
            # Its traceback would keep every frame of the call alive.
            statuses[path] = error.with_traceback(None)
        except ValueError:
            statuses[path] = OSError(errno.EINVAL, "no file can have this name", str(path))
    return statuses


@contextmanager
def calls_through(executor: FsExecutor) -> Iterator[None]:
    """Make this thread's file-system calls through ``executor`` within the context."""
    before = getattr(_state, "executor", None)
    _state.executor = executor
    try:
        yield
    finally:
        _state.executor = before


class _Call:
    """One call, made in another thread."""

    def __init__(self, call: Callable[..., Any], path: Path, *arguments: Any) -> None:
        self.key = (call, path, *arguments)
        self.finished = threading.Event()
        self.progressed(path)
        self._value: Any = None
        self._error: Exception | None = None

    def progressed(self, path: Path) -> None:
        """Note that the call begins with the next file."""
        self.path, self.since, self.progress_at = path, time.time(), time.monotonic()

    def make(self) -> None:
        """Make the call, without a time limit."""
        try:
            self._value = self._make()
        except Exception as error:
            self._error = error.with_traceback(None)

    def _make(self) -> Any:
        call, *arguments = self.key
        return call(*arguments)

    def result(self) -> Any:
        """Return what the call returned, or raise what it raised."""
        if self._error is not None:
            # A copy, since a raised error refers to the caller's frames, and those to this call.
            raise copy(self._error)
        return self._value


class _StatusCall(_Call):
    """A call for the status of several files."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        super().__init__(os.stat, paths[0], paths)
        self._paths = paths

    def _make(self) -> Statuses:
        return _statuses(self._paths, self.progressed)


class FsExecutor:
    """Makes the file-system calls of one session, one at a time, for any of its threads.

    ``on_late_result`` is called in another thread when a call that timed out has finished.
    """

    def __init__(self, on_late_result: Callable[[], None]) -> None:
        self._on_late_result = on_late_result
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._inbox: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._hung: _Call | None = None
        self._late: _Call | None = None
        self._prefetched: Statuses = {}
        self._checked: set[Path] = set()
        self._closed = threading.Event()

    def call(self, call: Callable[..., T], path: Path, *arguments: Any) -> T:
        """Implement :func:`call_with_timeout`."""
        if call is os.stat:
            self._checked.add(path)
            status = self._prefetched.get(path)
            if isinstance(status, OSError):
                raise copy(status)
            if status is not None:
                return cast(T, status)
        return cast(T, self._run(_Call(call, path, *arguments)))

    def stat_all(self, paths: tuple[Path, ...]) -> Statuses:
        """Implement :func:`stat_all` in one call: handing one over costs more than making it."""
        if not paths:
            return {}
        return cast(Statuses, self._run(_StatusCall(paths)))

    @contextmanager
    def prefetched(self) -> Iterator[None]:
        """Context of one check, which begins with ``stat`` of the files of the previous check."""
        paths, self._checked = tuple(sorted(self._checked)), set()
        # Without their statuses the check itself reports what does not respond.
        with suppress(FsTimeout):
            self._prefetched = self.stat_all(paths)
        try:
            yield
        finally:
            self._prefetched = {}

    @property
    def has_hung_call(self) -> bool:
        """Whether a call is pending that has timed out."""
        return self._hung is not None

    def close(self) -> None:
        """Stop waiting for calls, and end the thread."""
        self._closed.set()
        self._inbox.put(None)

    def _run(self, call: _Call) -> Any:
        """Make a call in the other thread. Raises FsTimeout, and what the call raises."""
        with self._turn:
            with self._lock:
                if self._hung is not None:
                    raise FsTimeout(self._hung.path, self._hung.since)
                late = self._late
                if late is not None and late.key == call.key:
                    self._late = None
                    if time.monotonic() - late.progress_at < LATE_RESULT_SECONDS:
                        return late.result()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run_calls, name="metlmon-files", daemon=True
                )
                self._thread.start()
            self._inbox.put(call)
            while not call.finished.wait(min(PATIENCE / 4, 0.1)):
                is_late = time.monotonic() - call.progress_at >= PATIENCE
                if is_late or self._closed.is_set():
                    with self._lock:
                        if not call.finished.is_set():
                            self._hung = call
                            raise FsTimeout(call.path, call.since)
            return call.result()

    def _run_calls(self) -> None:
        while call := self._inbox.get():
            call.make()
            with self._lock:
                call.finished.set()
                was_hung = self._hung is call
                if was_hung:
                    call.progressed(call.path)
                    self._hung, self._late = None, call
            if was_hung:
                self._on_late_result()
