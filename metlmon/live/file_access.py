"""File access: with a time limit, to regular files only, and writing via drafts.

A call that hangs in the kernel (hard NFS mount, broken FUSE mount) cannot be cancelled. A session
therefore makes its calls in another thread and waits briefly for each. While one hangs, all others
are refused; when it returns, the session is notified, and its result is used for the next identical
call. A thread without an executor (:func:`calls_through`) makes its calls itself, as one-shot
commands do.

Files are untrusted input: no pipe, device or kernel file is read. Names of job output come from a
submit description that may have been copied from anywhere: only files inside the dagdir are opened,
after resolving all links.

A file is written as a draft beside it, which is then renamed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from io import TextIOWrapper
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar, cast
from zlib import crc32

from metlmon.errors import InputError, unusable_path
from metlmon.redact import redact_secrets
from metlmon.remote import filesystem
from metlmon.remote.filesystem import OpenFile
from metlmon.remote.paths import NoAnswer

T = TypeVar("T")

PATIENCE: Final = 0.5
"""Time-out of one call. A disk takes milliseconds, a loaded file server tenths of a second;
a screen may be blocked for this long."""

COMMAND_PATIENCE: Final = 10.0
"""The same for a command, which does not block a screen: a busy disk may take a second."""

LATE_RESULT_SECONDS: Final = 60.0
"""How long the result of a call that timed out is used for the next identical call."""

Statuses = dict[Path, os.stat_result | OSError]

_state = threading.local()


def clock_time(moment: float) -> str:
    """Format a time of today in the local time zone of the terminal's machine."""
    return time.strftime("%H:%M:%S", time.localtime(moment))


def call_with_timeout(call: Callable[..., T], path: Path, *arguments: Any) -> T:
    """Return ``call(path, *arguments)``, a file-system call.

    Raises what the call raises, and NoAnswer if the thread has an executor and the call times out.
    """
    executor: FsExecutor | None = getattr(_state, "executor", None)
    try:
        return call(path, *arguments) if executor is None else executor.call(call, path, *arguments)
    except ValueError as error:
        # A DAG file can contain a name with a NUL or a lone surrogate; no file can have it.
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from error


def stat_all(paths: Iterable[Path]) -> Statuses:
    """Return the status of each path, or the error. Raises NoAnswer."""
    executor: FsExecutor | None = getattr(_state, "executor", None)
    paths = tuple(paths)
    return _statuses(*paths) if executor is None else executor.stat_all(paths)


def _statuses(*paths: Path, progressed: Callable[[Path], object] = lambda path: None) -> Statuses:
    statuses: Statuses = {}
    for path in paths:
        progressed(path)
        try:
            statuses[path] = filesystem.stat(path)
        except OSError as error:
            # Its traceback would keep every frame of the call alive.
            statuses[path] = error.with_traceback(None)
        except ValueError:
            statuses[path] = OSError(errno.EINVAL, "no file can have this name", str(path))
    return statuses


@contextmanager
def calls_through(executor: FsExecutor | None) -> Iterator[None]:
    """Context in which this thread makes file-system calls through ``executor`` (None: itself)."""
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
        """Record that the call continues with the next file, ``path``."""
        self.path, self.since, self.progress_at = path, time.time(), time.monotonic()

    def make(self) -> None:
        """Make the call, without a time limit."""
        call, *arguments = self.key
        try:
            if call is _statuses:
                self._value = _statuses(*arguments, progressed=self.progressed)
            else:
                self._value = call(*arguments)
        except Exception as error:
            self._error = error.with_traceback(None)

    def no_answer(self) -> NoAnswer:
        """The error while the call has not returned."""
        sentence = f"no answer from the file system since {clock_time(self.since)}"
        return NoAnswer(sentence, self.since, self.path)

    def result(self) -> Any:
        """Return what the call returned, or raise what it raised."""
        if self._error is not None:
            # A copy, since a raised error refers to the caller's frames, and thus to this call.
            raise copy(self._error)
        return self._value


class FsExecutor:
    """Makes the file-system calls of a session, one at a time, for all its threads.

    ``on_late_result`` is called in another thread when a call that timed out has finished.
    ``patience``: time-out of one call, in seconds; longer if answers usually take longer.
    """

    def __init__(self, on_late_result: Callable[[], None], patience: float = PATIENCE) -> None:
        self._on_late_result = on_late_result
        self._patience = patience
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
        if call is filesystem.stat:
            self._checked.add(path)
            status = self._prefetched.get(path)
            if isinstance(status, OSError):
                raise copy(status)
            if status is not None:
                return cast(T, status)
        return cast(T, self._run(_Call(call, path, *arguments)))

    def stat_all(self, paths: tuple[Path, ...]) -> Statuses:
        """Implement :func:`stat_all` in one call: switching threads costs more than a ``stat``."""
        if not paths:
            return {}
        return cast(Statuses, self._run(_Call(_statuses, *paths)))

    @contextmanager
    def prefetched(self) -> Iterator[None]:
        """Context of one check; begins with ``stat`` of the files of the previous check."""
        paths, self._checked = tuple(sorted(self._checked)), set()
        # If this fails, the check itself reports what does not respond.
        with suppress(NoAnswer):
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
        """Make a call in the other thread. Raises NoAnswer, and whatever the call raises."""
        with self._turn:
            with self._lock:
                if self._hung is not None:
                    raise self._hung.no_answer()
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
            patience = max(self._patience, filesystem.answer_seconds(call.path))
            while not call.finished.wait(min(patience / 4, 0.1)):
                is_late = time.monotonic() - call.progress_at >= patience
                if is_late or self._closed.is_set():
                    with self._lock:
                        if not call.finished.is_set():
                            self._hung = call
                            raise call.no_answer()
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


# --- regular files ---------------------------------------------------------------------------

MAX_DAG_FILE_BYTES: Final = 256 << 20
"""Ten times the size of a DAG file of 100,000 nodes with their VARS."""

TAIL_BYTES: Final = 64 * 1024
"""Some hundred lines of a training's output; read within milliseconds, also over NFS."""

LINE_CHARACTERS: Final = 4000
"""Maximum length of a line: a progress bar without line ends can be megabytes."""

_SEQUENCES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
)
"""Terminal escape sequences: CSI, OSC, and two-character ones."""

FileState = tuple[int, int, int]
"""Identifies an unchanged file: inode, size and mtime in nanoseconds."""


NO_FILE_YET: Final = "there is no such file yet"


class UnreadableFile(Exception):
    """A file was not read; ``str()`` is the reason."""


# --- files that a DAG names: links are followed ---------------------------------------------


def read_regular_file(path: Path, largest: int = MAX_DAG_FILE_BYTES) -> bytes:
    """Read a regular file of at most ``largest`` bytes. Raises OSError otherwise."""
    return call_with_timeout(_content, path, largest)


def linked_content(path: Path, largest: int = MAX_DAG_FILE_BYTES) -> bytes | None:
    """As :func:`read_regular_file`, but None if the file cannot be read."""
    try:
        return read_regular_file(path, largest)
    except (OSError, ValueError):
        return None


def _content(path: Path, largest: int) -> bytes:
    with open_regular(path) as (file, size):
        if size > largest:
            raise OSError(errno.EFBIG, "too large for a DAG or submit file", str(path))
        return _read(file, size)


@contextmanager
def open_regular(path: Path) -> Iterator[tuple[OpenFile, int]]:
    """Open a regular file; yield it with its size.

    Raises OSError for anything else without opening it, which may block for ever or rewind a tape.
    """
    not_regular = OSError(errno.EINVAL, "not a regular file", str(path))
    if not stat.S_ISREG(filesystem.stat(path).st_mode):
        raise not_regular
    with filesystem.open_file(path) as file:
        status = file.status
        if not stat.S_ISREG(status.st_mode):
            raise not_regular
        yield file, status.st_size


def _read(file: OpenFile, size: int) -> bytes:
    """Read ``size`` bytes; none of a kernel file, which has size 0 and may block."""
    return file.pread(size, 0) if size else b""


# --- files that jobs write: no link is followed ----------------------------------------------


def file_state(path: str) -> FileState | None:
    """Return the current state of a regular file; None for anything else."""
    try:
        status = filesystem.lstat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def open_text(path: str, limit: int) -> TextIOWrapper:
    """Open a regular file as text, line ends untouched. Raises UnreadableFile."""
    with open_output(path) as (file, size):
        if size > limit:
            raise UnreadableFile(f"it is larger than {limit // 1_000_000} MB")
        return TextIOWrapper(file.stream(), encoding="utf-8", errors="replace", newline="")


def read_file(path: str, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes. Raises UnreadableFile."""
    with open_output(path) as (file, size):
        if size > limit:
            raise UnreadableFile(f"it is larger than {limit:,} bytes")
        return _read(file, size)


def content_of(path: Path, limit: int) -> bytes | None:
    """Like :func:`read_file`, but None if the file cannot be read."""
    try:
        return read_file(str(path), limit)
    except UnreadableFile:
        return None


def read_file_end(path: str, limit: int) -> str:
    """Read the last ``limit`` bytes of a regular file as text. Raises UnreadableFile."""
    with open_output(path) as (file, size):
        return file.pread(min(limit, size), max(0, size - limit)).decode("utf-8", "replace")


@contextmanager
def open_output(path: str | Path) -> Iterator[tuple[OpenFile, int]]:
    """Open a regular file; yield it with its size. Raises UnreadableFile, also for a link."""
    try:
        with filesystem.open_file(path, follow=False) as file:
            status = file.status
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableFile("it is not a regular file")
            yield file, status.st_size
    except OSError as error:
        raise UnreadableFile(f"it cannot be read: {error.strerror}") from error


def output_file(dagdir: Path, name: str) -> Path:
    """Return the resolved path of an output file inside ``dagdir``, or beside it.

    ``name``: as ``SnapshotBuilder.output_file`` returns it; it begins with ``../`` if the DAG was
    submitted from the directory above, where hidden files are refused. Raises
    :class:`UnreadableFile` if the file is elsewhere, missing, or not a regular file.
    """
    if "\0" in name or not name.strip():
        raise UnreadableFile("its name is empty or has a NUL")
    if os.path.isabs(name):
        raise UnreadableFile("it is outside this directory")
    try:
        base = filesystem.resolve(dagdir)
        path = filesystem.resolve(base / name)
    except (OSError, RuntimeError) as error:
        raise UnreadableFile(f"its name leads nowhere ({type(error).__name__})") from error
    if not path.is_relative_to(base):
        above = base.parent
        is_beside = name.startswith("../") and path.is_relative_to(above)
        if not is_beside or any(part.startswith(".") for part in path.relative_to(above).parts):
            raise UnreadableFile("it is outside this directory")
    try:
        mode = filesystem.lstat(path).st_mode
    except FileNotFoundError as error:
        raise UnreadableFile(NO_FILE_YET) from error
    except OSError as error:
        raise UnreadableFile(f"it cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise UnreadableFile("it is not a regular file")
    return path


def read_tail(path: Path, limit: int = TAIL_BYTES) -> list[str]:
    """Return the lines in the last ``limit`` bytes of a regular file, as displayed.

    Text overwritten after a carriage return and escape sequences are removed; other control
    characters remain, so the lines are not yet safe for a terminal. A line that begins before
    those bytes is omitted. Raises :class:`UnreadableFile`.
    """
    with open_output(path) as (file, size):
        start = max(0, size - limit)
        # One more byte, to see whether the tail begins at the start of a line.
        content = file.pread(min(limit, size) + (start > 0), max(0, start - 1))
    if start > 0:
        _, line_end, rest = content.partition(b"\n")
        content = rest if line_end else content[1:]
    lines = content.decode("utf-8", "replace").removesuffix("\n").split("\n")
    return [as_displayed(line) for line in lines] if content else []


def as_displayed(line: str, limit: int = LINE_CHARACTERS) -> str:
    """Return a line as a terminal displays it after all its carriage returns."""
    pieces = _SEQUENCES.sub("", line).rstrip("\r").split("\r")
    displayed = pieces.pop()
    while pieces and len(displayed) < limit:
        displayed += pieces.pop()[len(displayed) :]
    return redact_secrets(displayed)[:limit]


def sizes_and_ctimes(paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Return size and ctime (also changed by permissions) of files. Raises NoAnswer."""
    return {
        path: (-1, -1) if isinstance(status, OSError) else (status.st_size, status.st_ctime_ns)
        for path, status in stat_all(paths).items()
    }


def is_directory(path: Path) -> bool:
    """Whether this is a directory; assumed if the file system does not answer."""
    try:
        return call_with_timeout(filesystem.isdir, path)
    except NoAnswer:
        return True


# --- the dagdir ------------------------------------------------------------------------------


def check_dagdir(dagdir: Path) -> None:
    """Raise InputError unless ``dagdir`` is a directory that can be listed."""
    verb = "read"
    try:
        status = call_with_timeout(filesystem.stat, dagdir)
        if not stat.S_ISDIR(status.st_mode):
            raise InputError(f"{dagdir}: not a directory; give the directory its DAG file lies in")
        verb = "listed"
        empty = call_with_timeout(_is_empty, dagdir)
    except FileNotFoundError:
        raise InputError(f"{dagdir}: no such directory; give the directory of a DAG") from None
    except OSError as error:
        unusable = unusable_path(error)
        raise unusable or InputError(f"{dagdir}: cannot be {verb}: {error.strerror}") from None
    if empty and status.st_nlink == 0:
        # Removed, but still the current directory of a process.
        raise InputError(
            f"{dagdir}: this directory has been removed; go to where the DAG is now, start again"
        )


def _is_empty(directory: Path) -> bool:
    with filesystem.scandir(directory) as entries:
        return next(entries, None) is None


# --- drafts of files, and removal of stale ones ----------------------------------------------

STALE_DRAFT_SECONDS: Final = 3600.0
"""Age from which a draft belongs to a program that was killed, whatever machine it ran on."""

LONGEST_DRAFT_NAME: Final = 180
"""Characters of the file's name in the name of its draft; names may have 255."""


def draft_name(name: str) -> str:
    """A new draft name for the file ``name``, with a leading dot, that identifies the writer."""
    writer = f"{_machine()}-{os.getpid()}"
    return f".{name[:LONGEST_DRAFT_NAME]}.{writer}-{os.urandom(6).hex()}"


def _machine() -> str:
    """Identify the scope of process ids: a boot of a machine, and a container there.

    Random if the kernel does not tell, so that no process is mistaken for an ended one.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        return f"{crc32(boot + os.fsencode(os.readlink('/proc/self/ns/pid'))):08x}"
    except OSError:
        return os.urandom(4).hex()


def _has_ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # It is another user's.
        return False
    return False


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a draft of a file, empty at first, which then replaces it, or is deleted on an error.

    Readers never see half a file. The draft gets the permissions of the file that it replaces, or
    those of a new one. Raises OSError.
    """
    remove_stale_drafts(path.parent, [path.name])
    draft = path.with_name(draft_name(path.name))
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        yield draft
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.chmod(_mode(path))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _mode(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def remove_stale_drafts(directory: Path | int, names: Iterable[str]) -> None:
    """Delete the drafts of these files in ``directory`` whose process has ended.

    Drafts of a process that is not visible from here are deleted when they are over an hour old.
    ``directory``: a path, or an open descriptor. Errors on deletion are ignored.
    """
    prefixes = {name[:LONGEST_DRAFT_NAME] for name in names}
    limit, machine = time.time() - STALE_DRAFT_SECONDS, _machine()
    dir_fd = {"dir_fd": directory} if isinstance(directory, int) else {}
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            match = _DRAFT_NAME.fullmatch(entry.name)
            if match is None or match[1] not in prefixes:
                continue
            ended = match[2] == machine and _has_ended(int(match[3]))
            with suppress(OSError):
                if ended or entry.stat(follow_symlinks=False).st_mtime < limit:
                    os.unlink(entry.name if dir_fd else entry.path, **dir_fd)


_DRAFT_NAME: Final = re.compile(r"\.(.+)\.([0-9a-f]{8})-([1-9][0-9]{0,8})-[0-9a-f]{12}", re.DOTALL)
