"""File-system calls with a time-out, so that a hung file server blocks no caller.

A call that hangs in the kernel (hard NFS mount, broken FUSE mount) cannot be cancelled. A session
therefore makes its calls in separate threads, waits briefly for each, and abandons the thread
together with the call if it times out. A late result is stored for the next identical call. A
thread without an executor (:func:`calls_through`) makes its calls itself, as one-shot commands do.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

PATIENCE: Final = 0.5
"""Time-out of one call. A disk takes milliseconds, a loaded file server tenths of a second;
a screen may be blocked for this long."""

SPEAK_AFTER: Final = 3.0
"""Seconds after which a pending call is reported; shorter delays are normal under load."""

MOST_IN_FOLDER: Final = 2
"""Pending calls in one directory, from which on further calls there are rejected: its files are
most likely on the same file server."""

MAX_ABANDONED: Final = 16
"""Maximum number of abandoned threads."""

LATE_RESULT_SECONDS: Final = 60.0
"""How long the result of an abandoned call is stored for the next identical call."""

_state = threading.local()


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


def call_all(call: Callable[[Path], T], paths: Sequence[Path]) -> list[Callable[[], T]]:
    """Call with each path; return one function per path that gives the result.

    Each raises as :func:`call_with_timeout` does.
    """
    executor: FsExecutor | None = getattr(_state, "executor", None)
    if executor is None:
        return [partial(call, path) for path in paths]
    return executor.call_all(call, paths)


@contextmanager
def calls_through(executor: FsExecutor) -> Iterator[None]:
    """Make this thread's file-system calls through ``executor`` within the context."""
    before = getattr(_state, "executor", None)
    _state.executor = executor
    try:
        yield
    finally:
        _state.executor = before


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


class _PendingCall:
    """One call and its result. ``rejection``: an error to raise instead."""

    def __init__(self, call: Callable[..., Any], path: Path, *arguments: Any) -> None:
        self.key = (call, path, *arguments)
        self.path = path
        self.since = 0.0
        self.finished_at: float | None = None
        self.rejection: FsTimeout | None = None
        self._value: Any = None
        self._error: Exception | None = None

    def make(self) -> None:
        """Make the call, without a time limit."""
        call, *arguments = self.key
        self.since = time.time()
        try:
            self._value = call(*arguments)
        except Exception as error:
            # Its traceback would keep every frame of the call alive.
            self._error = error.with_traceback(None)
        self.finished_at = time.monotonic()

    def result(self) -> Any:
        """Return what the call returned; raise what it raised, or :class:`FsTimeout`."""
        if self.rejection is not None:
            raise self.rejection
        if self._error is not None:
            # A copy, since a raised error refers to the caller's frames, and those to this call.
            raise copy(self._error)
        return self._value


class _Batch:
    """Calls that one thread makes in order, until it is abandoned at one of them."""

    def __init__(self, calls: list[_PendingCall]) -> None:
        self.calls = calls
        self.done = 0
        self.finished = threading.Event()
        self._abandoned = False
        self._lock = threading.Lock()

    def run(self) -> bool:
        """Make the calls; return False if the thread was abandoned meanwhile."""
        for each in self.calls:
            each.make()
            with self._lock:
                self.done += 1
                if self._abandoned:
                    return False
        self.finished.set()
        return True

    def abandon(self) -> _PendingCall | None:
        """Abandon the thread at its current call; None if all calls have just finished."""
        with self._lock:
            if self.done == len(self.calls):
                return None
            self._abandoned = True
            return self.calls[self.done]


class _CheckedFiles:
    """Results of ``stat`` that are reused during one check of many files."""

    def __init__(self, paths: set[Path]) -> None:
        self.results = {path: _PendingCall(os.stat, path) for path in sorted(paths)}
        self.paths: set[Path] = set()


class FsExecutor:
    """Makes the file-system calls of one session, for any of its threads.

    ``on_late_result`` is called in another thread when an abandoned call has finished.
    """

    def __init__(self, on_late_result: Callable[[], None]) -> None:
        self._on_late_result = on_late_result
        self._lock = threading.Lock()
        self._abandoned: dict[tuple[Any, ...], _PendingCall] = {}
        self._idle: list[SimpleQueue[_Batch | None]] = []
        self._state = threading.local()
        self._closed = threading.Event()

    def call(self, call: Callable[..., T], path: Path, *arguments: Any) -> T:
        """Implement :func:`call_with_timeout`."""
        checked: _CheckedFiles | None = getattr(self._state, "checked", None)
        if checked is not None and call is os.stat:
            checked.paths.add(path)
            if path in checked.results:
                return cast(T, checked.results[path].result())
        pending_call = self._take_late_result((call, path, *arguments))
        if pending_call is None:
            pending_call = _PendingCall(call, path, *arguments)
            self._run_calls([pending_call])
        return cast(T, pending_call.result())

    def call_all(self, call: Callable[[Path], T], paths: Sequence[Path]) -> list[Callable[[], T]]:
        """Implement :func:`call_all`."""
        calls = [self._take_late_result((call, path)) or _PendingCall(call, path) for path in paths]
        self._run_calls([each for each in calls if each.finished_at is None])
        return [each.result for each in calls]

    @contextmanager
    def prefetched(self) -> Iterator[None]:
        """Context of one check of many files.

        One thread first calls ``stat`` for all files of the previous check, because handing over
        a call takes longer than making it.
        """
        checked = _CheckedFiles(getattr(self._state, "before", set()))
        for path in checked.results:
            checked.results[path] = self._take_late_result((os.stat, path)) or checked.results[path]
        self._run_calls([each for each in checked.results.values() if each.finished_at is None])
        self._state.checked = checked
        try:
            yield
        finally:
            self._state.checked = None
            self._state.before = checked.paths

    def hung_calls(self) -> list[FsTimeout]:
        """Return the calls pending for at least SPEAK_AFTER, the oldest first."""
        now = time.time()
        pending = (each for each in self._pending_calls() if abs(now - each.since) >= SPEAK_AFTER)
        return [FsTimeout(each.path, each.since) for each in pending]

    @property
    def has_hung_calls(self) -> bool:
        """Whether any call is pending."""
        return bool(self._pending_calls())

    def close(self) -> None:
        """Stop waiting for calls, and end the idle threads."""
        self._closed.set()
        with self._lock:
            while self._idle:
                self._idle.pop().put(None)

    # --- calls --------------------------------------------------------------------------

    def _take_late_result(self, key: tuple[Any, ...]) -> _PendingCall | None:
        """Remove and return an abandoned call that has finished since."""
        with self._lock:
            pending_call = self._abandoned.get(key)
            if pending_call is None or pending_call.finished_at is None:
                return None
            pending_call.rejection = None
            return self._abandoned.pop(key)

    def _run_calls(self, calls: list[_PendingCall]) -> None:
        """Give each call a result, or a rejection if it times out or is likely to."""
        while calls := [each for each in calls if self._is_accepted(each)]:
            batch, inbox = _Batch(calls), self._idle_thread_inbox()
            inbox.put(batch)
            abandoned = self._await_batch(batch)
            with self._lock:
                if abandoned is None:
                    self._release(inbox)
                    return
                abandoned.rejection = FsTimeout(abandoned.path, abandoned.since)
                self._abandoned[abandoned.key] = abandoned
            calls = calls[calls.index(abandoned) + 1 :]

    def _is_accepted(self, pending_call: _PendingCall) -> bool:
        path, pending = pending_call.path, self._pending_calls()
        same_path = [each for each in pending if each.path == path]
        near = {path, path.parent}
        nearby = [each for each in pending if each.path in near or each.path.parent in near]
        if same_path or len(nearby) >= MOST_IN_FOLDER or len(pending) >= MAX_ABANDONED:
            pending_call.rejection = FsTimeout(path, (same_path or nearby or pending)[0].since)
        return pending_call.rejection is None

    def _await_batch(self, batch: _Batch) -> _PendingCall | None:
        """Wait for the batch; return the call at which it was abandoned, if any."""
        done, since = 0, time.monotonic()
        while not batch.finished.wait(min(PATIENCE / 4, 0.1)):
            if batch.done != done:
                done, since = batch.done, time.monotonic()
            elif self._closed.is_set() or time.monotonic() - since >= PATIENCE:
                return batch.abandon()
        return None

    def _release(self, inbox: SimpleQueue[_Batch | None]) -> None:
        if self._closed.is_set():
            inbox.put(None)
        else:
            self._idle.append(inbox)

    def _idle_thread_inbox(self) -> SimpleQueue[_Batch | None]:
        """Return the inbox of an idle thread, started if there is none."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        inbox: SimpleQueue[_Batch | None] = SimpleQueue()
        threading.Thread(
            target=self._run_batches, args=(inbox,), name="metlmon-files", daemon=True
        ).start()
        return inbox

    def _run_batches(self, inbox: SimpleQueue[_Batch | None]) -> None:
        while batch := inbox.get():
            if not batch.run():
                self._on_late_result()
                return

    def _pending_calls(self) -> list[_PendingCall]:
        """Return the pending calls, the oldest first; drop unused late results."""
        if not self._abandoned:
            return []
        now = time.monotonic()
        with self._lock:
            for key, each in list(self._abandoned.items()):
                if each.finished_at is not None and now - each.finished_at > LATE_RESULT_SECONDS:
                    del self._abandoned[key]
            pending = [each for each in self._abandoned.values() if each.finished_at is None]
        return sorted(pending, key=lambda each: each.since)
