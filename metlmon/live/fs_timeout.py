"""Asking the file system with patience: a file server that does not answer holds nobody up.

A call from which the kernel does not come back (a hard NFS mount, a broken FUSE mount) cannot be
ended by the program that made it. So a session has its calls made in a thread of their own, waits
a moment for each, and leaves thread and call behind where no answer comes. When it does come it
is there for who asks the same again. A thread in which nobody asked for patience
(:func:`calls_through`) makes its calls itself, as a command does that is run once.
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
"""Seconds until an answer is not waited for any more: a disk answers in milliseconds, a loaded
file server in tenths of a second, and a screen may have to wait for as long."""

SPEAK_AFTER: Final = 3.0
"""Seconds without an answer that are told of: before that, somebody is slow."""

MOST_IN_FOLDER: Final = 2
"""Calls in one folder that are left without answer: then no other of its files is asked for until
one of them comes back. They are on the same file server, most likely."""

MOST_LEFT: Final = 16
"""Threads that are left behind at most."""

STALE: Final = 60.0
"""Seconds for which an answer that came late is kept for who asks again."""

_here = threading.local()


def call_with_timeout(call: Callable[..., T], path: Path, *more: Any) -> T:
    """``call(path, *more)``, which asks the file system something. Raises what that raises, and
    :class:`FsTimeout` where the thread is patient, but not for ever."""
    asker: FsExecutor | None = getattr(_here, "asker", None)
    try:
        return call(path, *more) if asker is None else asker.ask(call, path, *more)
    except ValueError as error:
        # A NUL, or half a character: a DAG file can name such a file, and none is called so.
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from error


def call_all(call: Callable[[Path], T], paths: Sequence[Path]) -> list[Callable[[], T]]:
    """The same of many files: what answers for each, as :func:`call_with_timeout` does."""
    asker: FsExecutor | None = getattr(_here, "asker", None)
    if asker is None:
        return [partial(call, path) for path in paths]
    return asker.ask_all(call, paths)


@contextmanager
def calls_through(asker: FsExecutor) -> Iterator[None]:
    """What this thread asks meanwhile, ``asker`` asks for it."""
    before = getattr(_here, "asker", None)
    _here.asker = asker
    try:
        yield
    finally:
        _here.asker = before


class FsTimeout(Exception):
    """The file system has not answered. ``path``: of what it was asked; ``since``: in seconds
    since 1970. No OSError: that a file is not known is not that it is not there."""

    def __init__(self, path: Path, since: float) -> None:
        super().__init__(f"no answer from the file system since {clock_time(since)}")
        self.path = path
        self.since = since


def clock_time(moment: float) -> str:
    """A moment of today as who looks at the screen has it on the wall."""
    return time.strftime("%H:%M:%S", time.localtime(moment))


class _PendingCall:
    """One call, and its answer when it is there. ``refused``: why it is not waited for."""

    def __init__(self, call: Callable[..., Any], path: Path, *more: Any) -> None:
        self.key = (call, path, *more)
        self.path = path
        self.since = 0.0
        self.came: float | None = None
        self.refused: FsTimeout | None = None
        self._value: Any = None
        self._error: Exception | None = None

    def put(self) -> None:
        """Make the call, for as long as it takes."""
        call, *about = self.key
        self.since = time.time()
        try:
            self._value = call(*about)
        except Exception as error:
            # Its traceback would hold every frame of the call for as long as this is held.
            self._error = error.with_traceback(None)
        self.came = time.monotonic()

    def answer(self) -> Any:
        """What the call returned; raises what it raised, or NoAnswer."""
        if self.refused is not None:
            raise self.refused
        if self._error is not None:
            # A copy: the one that is raised gets the frames of whoever asks, and those may hold
            # this question.
            raise copy(self._error)
        return self._value


class _Batch:
    """Questions that one thread asks in turn, until it is left behind with one of them."""

    def __init__(self, questions: list[_PendingCall]) -> None:
        self.questions = questions
        self.done = 0
        self.over = threading.Event()
        self._left = False
        self._lock = threading.Lock()

    def run(self) -> bool:
        """False when it was left behind."""
        for each in self.questions:
            each.put()
            with self._lock:
                self.done += 1
                if self._left:
                    return False
        self.over.set()
        return True

    def leave(self) -> _PendingCall | None:
        """The question that it is left behind with; None when it is just done with all."""
        with self._lock:
            if self.done == len(self.questions):
                return None
            self._left = True
            return self.questions[self.done]


class _Look:
    """How files stand during one look at many of them."""

    def __init__(self, paths: set[Path]) -> None:
        self.answers = {path: _PendingCall(os.stat, path) for path in sorted(paths)}
        self.asked: set[Path] = set()


class FsExecutor:
    """Makes the calls of one session, whose threads may all ask. ``heard`` is called, in some
    other thread, when an answer has come that was not waited for any more."""

    def __init__(self, heard: Callable[[], None]) -> None:
        self._heard = heard
        self._lock = threading.Lock()
        self._left: dict[tuple[Any, ...], _PendingCall] = {}
        self._idle: list[SimpleQueue[_Batch | None]] = []
        self._here = threading.local()
        self._closed = threading.Event()

    def ask(self, call: Callable[..., T], path: Path, *more: Any) -> T:
        """As :func:`call_with_timeout`."""
        look: _Look | None = getattr(self._here, "look", None)
        if look is not None and call is os.stat:
            look.asked.add(path)
            if path in look.answers:
                return cast(T, look.answers[path].answer())
        question = self._late((call, path, *more))
        if question is None:
            question = _PendingCall(call, path, *more)
            self._have_asked([question])
        return cast(T, question.answer())

    def ask_all(self, call: Callable[[Path], T], paths: Sequence[Path]) -> list[Callable[[], T]]:
        """As :func:`call_all`."""
        questions = [self._late((call, path)) or _PendingCall(call, path) for path in paths]
        self._have_asked([each for each in questions if each.came is None])
        return [each.answer for each in questions]

    @contextmanager
    def looking(self) -> Iterator[None]:
        """A look at many files. How those stand that were asked for in the look before is asked
        first, by one thread for all of them: to hand over a call takes longer than to make it."""
        look = _Look(getattr(self._here, "before", set()))
        for path in look.answers:
            look.answers[path] = self._late((os.stat, path)) or look.answers[path]
        self._have_asked([each for each in look.answers.values() if each.came is None])
        self._here.look = look
        try:
            yield
        finally:
            self._here.look = None
            self._here.before = look.asked

    def silent(self) -> list[FsTimeout]:
        """What has been without answer for so long that it is to be told, the oldest first."""
        now = time.time()
        waiting = (each for each in self._waiting() if abs(now - each.since) >= SPEAK_AFTER)
        return [FsTimeout(each.path, each.since) for each in waiting]

    @property
    def stuck(self) -> bool:
        """Is there a call without answer?"""
        return bool(self._waiting())

    def close(self) -> None:
        """Whoever waits for an answer waits no longer, and the threads end."""
        self._closed.set()
        with self._lock:
            while self._idle:
                self._idle.pop().put(None)

    # --- asking -------------------------------------------------------------------------

    def _late(self, key: tuple[Any, ...]) -> _PendingCall | None:
        """An answer that has come since."""
        with self._lock:
            late = self._left.get(key)
            if late is None or late.came is None:
                return None
            late.refused = None
            return self._left.pop(key)

    def _have_asked(self, questions: list[_PendingCall]) -> None:
        """Give each its answer, or its refusal: where none comes, or none is to be expected."""
        while questions := [each for each in questions if self._may_be_asked(each)]:
            batch, inbox = _Batch(questions), self._inbox()
            inbox.put(batch)
            left = self._awaited(batch)
            with self._lock:
                if left is None:
                    self._rest(inbox)
                    return
                left.refused = FsTimeout(left.path, left.since)
                self._left[left.key] = left
            questions = questions[questions.index(left) + 1 :]

    def _may_be_asked(self, question: _PendingCall) -> bool:
        path, waiting = question.path, self._waiting()
        own = [each for each in waiting if each.path == path]
        near = {path, path.parent}
        beside = [each for each in waiting if each.path in near or each.path.parent in near]
        if own or len(beside) >= MOST_IN_FOLDER or len(waiting) >= MOST_LEFT:
            question.refused = FsTimeout(path, (own or beside or waiting)[0].since)
        return question.refused is None

    def _awaited(self, batch: _Batch) -> _PendingCall | None:
        """Wait for all answers; the question with which it is left behind."""
        done, since = 0, time.monotonic()
        while not batch.over.wait(min(PATIENCE / 4, 0.1)):
            if batch.done != done:
                done, since = batch.done, time.monotonic()
            elif self._closed.is_set() or time.monotonic() - since >= PATIENCE:
                return batch.leave()
        return None

    def _rest(self, inbox: SimpleQueue[_Batch | None]) -> None:
        if self._closed.is_set():
            inbox.put(None)
        else:
            self._idle.append(inbox)

    def _inbox(self) -> SimpleQueue[_Batch | None]:
        """Of a thread that has nothing to do."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        inbox: SimpleQueue[_Batch | None] = SimpleQueue()
        threading.Thread(
            target=self._work, args=(inbox,), name="metlmon-files", daemon=True
        ).start()
        return inbox

    def _work(self, inbox: SimpleQueue[_Batch | None]) -> None:
        while batch := inbox.get():
            if not batch.run():
                self._heard()
                return

    def _waiting(self) -> list[_PendingCall]:
        """The questions without answer, the oldest first; answers that nobody wanted go."""
        if not self._left:
            return []
        now = time.monotonic()
        with self._lock:
            for key, each in list(self._left.items()):
                if each.came is not None and now - each.came > STALE:
                    del self._left[key]
            waiting = [each for each in self._left.values() if each.came is None]
        return sorted(waiting, key=lambda each: each.since)
