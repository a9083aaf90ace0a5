"""The files of one machine as its agent reports them: statuses, names and contents.

A *look* is one exchange in which the agent answers all standing queries again: the status of each
file that was asked for, the names in directories, and the new bytes of the files that have grown.
Between two looks the answers are cached; a query begins a look if the last one is half a second
old. Received contents are stored in a private temporary file without a name; if a file has changed
since, a digest shows whether they are still valid, so that no byte is sent twice.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO, Final, NamedTuple

from metlmon.remote.agent import (
    ENDS,
    MAX_NAMES,
    MAX_READ,
    decode,
    digest,
    encode,
    signature_of,
    to_bytes,
)
from metlmon.remote.connection import Channel, Connection
from metlmon.remote.paths import (
    HOSTS,
    Disconnected,
    UnusableMachine,
    remote_path,
    split_argument,
)

# --- answers of an agent as values of Python: all of it is foreign ------------------------------
# Invalid answers raise ValueError, TypeError, KeyError or AttributeError.


class RemoteEntry(NamedTuple):
    """A name in a directory, with the methods of :class:`os.DirEntry` that are used."""

    name: str
    kind: str
    number: int

    def is_symlink(self) -> bool:
        """Whether it is a link, even a broken one."""
        return self.kind.isupper() or self.kind == "l"

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file, or a link to one."""
        return self.kind == "f" or (follow_symlinks and self.kind == "F")

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory, or a link to one."""
        return self.kind == "d" or (follow_symlinks and self.kind == "D")

    def inode(self) -> int:
        """Its inode number."""
        return self.number


class Failure(NamedTuple):
    """The answer of a query that failed."""

    errno: int

    def error(self, path: str) -> OSError:
        """The error of the query, about this path."""
        is_listing = self.errno == errno.EFBIG
        text = f"it has more than {MAX_NAMES:,} names" if is_listing else os.strerror(self.errno)
        return OSError(self.errno, text, path)


LAST_MOMENT: Final = 253_402_300_799
"""The last second of the year 9999, since 1970: no date is later."""


def failure_of(answer: Any) -> Failure | None:
    """The failure in an answer; None if the query succeeded."""
    if not isinstance(answer, dict) or "errno" not in answer:
        return None
    number = int(answer["errno"])
    if number not in errno.errorcode:
        raise ValueError("no error of the operating system")
    # Callers take EPIPE for a closed pipe of this process: report a broken disk instead.
    return Failure(errno.EIO if number == errno.EPIPE else number)


def path_of(answer: Any) -> str:
    """An absolute path, normalized."""
    if not isinstance(answer, str) or not answer.startswith("/") or not is_name(answer):
        raise ValueError("no absolute path")
    return posixpath.normpath(f"/{answer}").replace("//", "/")


def is_name(text: str) -> bool:
    """Whether files can have this name: it has no NUL, and can be encoded."""
    to_bytes(text)
    return "\0" not in text


def stat_result(numbers: Sequence[int]) -> os.stat_result:
    """The result of ``stat`` from its first ten numbers, the times in nanoseconds."""
    *first, accessed, modified, changed = map(int, numbers)
    limit = LAST_MOMENT * 10**9
    times = {
        name: max(-limit // 5, min(ns, limit))
        for name, ns in (("st_atime", accessed), ("st_mtime", modified), ("st_ctime", changed))
    }
    if len(first) != 7 or min(first) < 0:
        raise ValueError("no status")
    return os.stat_result(
        (*first, *(ns // 10**9 for ns in times.values())),
        {
            **{name: ns / 1e9 for name, ns in times.items()},
            **{f"{name}_ns": ns for name, ns in times.items()},
        },
    )


def names_of(entries: Any) -> dict[str, tuple[str, int]]:
    """The names in a directory; none leads to another directory."""
    names = {str(name): (str(kind), int(number)) for name, (kind, number) in entries.items()}
    if any("/" in name or not is_name(name) or name in ("", ".", "..") for name in names):
        raise ValueError("no name of a file")
    return names


def length_of(answer: Any, data: bytes) -> int:
    """The number of bytes that belong to an answer."""
    length = int(answer["bytes"])
    if not 0 <= length <= len(data):
        raise ValueError("fewer bytes than announced")
    return length


# --- received contents of files -----------------------------------------------------------------

BLOCK: Final = 1 << 13
"""Bytes of the blocks in which files are read and stored."""

MIN_READ: Final = 1 << 16
"""Minimum bytes that are fetched at once when a file is read backwards."""


class Part(NamedTuple):
    """A part of a file to be read, whose first ``known`` bytes were received before."""

    path: str
    start: int
    known: int
    end: int

    @property
    def size(self) -> int:
        """Maximum bytes of its answer."""
        return self.end - self.start - self.known


class Store:
    """A private temporary file without a name, which holds blocks."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="metlmon-")  # noqa: SIM115
        self._blocks = 0

    def add_block(self) -> int:
        """The number of a new block."""
        self._blocks += 1
        return self._blocks - 1

    def write(self, block: int, offset: int, data: bytes | memoryview) -> None:
        """Write bytes of a block."""
        os.pwrite(self._file.fileno(), data, block * BLOCK + offset)

    def read(self, block: int, offset: int, length: int) -> bytes:
        """The bytes of a part of a block."""
        return os.pread(self._file.fileno(), length, block * BLOCK + offset)


class Content:
    """The received bytes of one file, by the numbers of its blocks.

    ``known``: how many bytes were received of each block, from its beginning on. ``valid``: the
    blocks that the file had in the state ``signature``, in which they were last compared.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stored: dict[int, int] = {}
        self.signature: tuple[int, ...] | None = None
        self.known: dict[int, int] = {}
        self.valid: set[int] = set()
        self.growth: tuple[int, int] | None = None
        """Number of the standing query for its growth, and the bytes that the agent has sent."""
        self.size = 0

    @property
    def received(self) -> int:
        """The number of received bytes."""
        return sum(self.known.values())

    def update(self, status: os.stat_result) -> None:
        """Store the newest status: blocks must be compared again if it differs."""
        signature, size = signature_of(status), status.st_size
        if size < self.size:
            # Drop the bytes after its new end.
            known = self.known.items()
            self.known = {b: min(n, size - b * BLOCK) for b, n in known if b * BLOCK < size}
        self.size = size
        if signature != self.signature:
            self.signature, self.valid = signature, set()

    def discard(self) -> None:
        self.known, self.growth = {}, None
        self.valid.clear()

    def add(self, start: int, data: bytes) -> None:
        """Store the bytes of the file after the known ones."""
        rest = memoryview(data)
        while rest:
            block, offset = divmod(start, BLOCK)
            piece = rest[: BLOCK - offset]
            if block not in self._stored:
                self._stored[block] = self._store.add_block()
            self._store.write(self._stored[block], offset, piece)
            self.known[block] = offset + len(piece)
            self.valid.add(block)
            start, rest = start + len(piece), rest[len(piece) :]

    def add_valid(self, start: int, end: int) -> None:
        """Record that the file still has these bytes."""
        self.valid.update(
            block
            for block in range(start // BLOCK, -(-end // BLOCK))
            if start <= block * BLOCK and self._known_end(block) <= end
        )

    def _known_end(self, block: int) -> int:
        return block * BLOCK + self.known.get(block, 0)

    def read(self, start: int, end: int) -> bytes:
        """The received bytes of a range."""
        return b"".join(self.parts(start, end))

    def parts(self, start: int, end: int) -> Iterator[bytes]:
        """The same, block by block; blocks that were never received are skipped."""
        while start < end:
            block, offset = divmod(start, BLOCK)
            length = min(BLOCK - offset, end - start)
            if block in self._stored:
                yield self._store.read(self._stored[block], offset, length)
            start += length

    def valid_end(self, start: int, end: int) -> int:
        """The end of the valid received bytes from ``start`` on, at most ``end``."""
        while start < end:
            block = start // BLOCK
            known_end = self._known_end(block)
            if block not in self.valid or known_end <= start:
                break
            start = min(end, known_end)
        return start

    def range_around(self, start: int, end: int) -> tuple[int, int]:
        """The range to fetch when this one is wanted, with what is likely to be wanted next."""
        first, stop = start // BLOCK, -(-end // BLOCK)
        if self._known_end(first) > start:
            # Comparing sends no byte, and more of a file that is read in order will be wanted.
            limit = first + (COMPARED_BYTES if end - start >= MIN_READ else 0) // BLOCK
            while stop in self.known and stop < limit:
                stop += 1
        elif first - 1 in self.known:
            # It is read in order: fetch as much as was read before.
            before = first
            while before - 1 in self.known and first - before < MOST_READ // BLOCK:
                before -= 1
            stop = max(stop, 2 * first - before)
        else:
            # It is read backwards, like pages of an output.
            while first and first - 1 not in self.known and stop - first < MIN_READ // BLOCK:
                first -= 1
        return first * BLOCK, stop * BLOCK

    def missing_parts(self, path: str, start: int, end: int) -> list[Part]:
        """The parts of a range that must be read, or compared with the received bytes."""
        parts: list[Part] = []
        for block in range(start // BLOCK, -(-min(end, self.size) // BLOCK)):
            low, high = block * BLOCK, min((block + 1) * BLOCK, self.size)
            known = self.known.get(block, 0)
            if block in self.valid and low + known == high:
                continue
            before = parts[-1] if parts else None
            if before and before.end == low and not (known and before.size):
                parts[-1] = Part(path, before.start, before.known + known, high)
            else:
                parts.append(Part(path, low, known, high))
        return parts


# --- the machine --------------------------------------------------------------------------------

MAX_GREETINGS: Final = 3
"""Exchanges after which an agent must have answered: it may be restarted in between."""

MAX_RESPONSES: Final = 1000
"""Maximum number of responses, of 4 MB each, for one answer."""

DAY: Final = 86400
"""Seconds: no time zone is further from UTC."""

SEARCHED_BYTES: Final = 256 << 20
"""Bytes that one query for the end of NULs covers: a file server may send 10 MB a second."""

LOOK_SECONDS: Final = 0.5
"""Age of the answers after which the next query begins a look."""

QUERIED_TOGETHER: Final = 100
"""Number of directories that are queried together."""

MAX_SEARCHED: Final = 5000
"""Maximum number of directories in one directory that may be queried together."""

FILE_TYPES: Final = {"f": stat.S_IFREG, "d": stat.S_IFDIR, "l": stat.S_IFLNK}
"""File types by the kinds in a listing; links to a file or directory are capitals."""

UNUSED_SECONDS: Final = 60.0
"""Time after which an unused standing query is forgotten."""

MAX_QUERIES: Final = 2000
"""Queries in one exchange."""

COMPARED_BYTES: Final = 32 << 20
"""Bytes of a file read in order that are compared at once with the received bytes."""

MOST_READ: Final = 4 << 20
"""Maximum bytes that are fetched at once of a file that is read in order."""


class ForeignAnswer(Disconnected):
    """An answer is not from metlmon's agent, so that the file system's state is unknown."""


class Machine:
    """The files of one machine; thread-safe. Its methods raise OSError like those of ``os``.

    They raise Disconnected while disconnected. ``channel`` exchanges messages with the agent.
    ``file_bytes``: the number of received bytes of files. ``utc_offset``: seconds that the
    machine's local time is ahead of UTC.
    """

    def __init__(self, channel: Channel) -> None:
        self.host = channel.host
        self.channel = channel
        self.file_bytes = 0
        self.user_number = -1
        self._lock = threading.RLock()
        self._agent = ""
        self._numbers: dict[tuple[str, str], int] = {}
        self._queries: dict[int, tuple[str, str]] = {}
        self._answers: dict[tuple[str, str], Any] = {}
        self._used: dict[tuple[str, str], float] = {}
        self._unlisted: dict[str, None] = {}
        """Directories that listings have named, and that have not been listed themselves."""
        self._contents: dict[str, Content] = {}
        self._store = Store()
        self._next = self._looks = self._requests = 0
        self._looked_at = time.monotonic()
        self._skew = 0.0
        self._lost: Disconnected | None = None
        self.utc_offset = 0
        self._registered: set[int] = set()
        """Numbers of the standing queries that the agent has."""

    # --- the clock ------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since 1970 by the machine's clock."""
        return time.time() + self._skew

    # --- names and statuses ---------------------------------------------------------------

    def look(self) -> None:
        """Send all standing queries again, in one exchange."""
        with self._lock:
            self._looked_at = time.monotonic()
            limit = self._looked_at - UNUSED_SECONDS
            unused = [key for key, at in self._used.items() if at < limit]
            forgotten = [self._forget(key) for key in unused if key in self._numbers]
            forgotten += self._follow_growth()
            self._looks += 1
            self._exchange({"again": self._looks, "forget": forgotten})

    def stat(self, path: str, follow: bool = True) -> os.stat_result:
        """Like :func:`os.stat`; ``follow``: that of the target of a link."""
        with self._lock:
            self._refresh()
            if self._is_missing(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            status: os.stat_result = self._ask("stat" if follow else "lstat", path)
            return status

    def file_type(self, path: str) -> int:
        """The type of a file or link; without a query if the directory was listed."""
        directory, name = posixpath.split(path)
        with self._lock:
            self._refresh()
            kind, _ = (self._names(directory) or {}).get(name, ("o", 0))
        known = stat.S_IFLNK if kind.isupper() else FILE_TYPES.get(kind)
        return stat.S_IFMT(self.stat(path, follow=False).st_mode) if known is None else known

    def scandir(self, path: str) -> Iterator[RemoteEntry]:
        """The entries of a directory, as from :func:`os.scandir`."""
        # A look replaces the names, and never changes them in place.
        with self._lock:
            self._refresh()
            names = self._names(path)
            if names is None:
                names = self._ask("list", path)
        return (RemoteEntry(name, kind, number) for name, (kind, number) in names.items())

    def realpath(self, path: str) -> str:
        """Like :func:`os.path.realpath`."""
        directory, name = posixpath.split(path)
        with self._lock:
            self._refresh()
            kind, _ = (self._names(directory) or {}).get(name, ("", 0))
            if kind in ("f", "d") and directory != path:
                return posixpath.join(self.realpath(directory), name)
        return str(self._ask("real", path))

    def ask_together(self, queries: Iterable[tuple[str, str]]) -> None:
        """Send the queries ``stat``, ``lstat``, ``list`` and ``real`` of paths in few exchanges.

        ``few``: like ``list``, but only for a directory with few names. Errors are raised by the
        methods that ask for single answers.
        """
        with self._lock:
            new = [key for key in dict.fromkeys(queries) if key not in self._answers]
            for start in range(0, len(new), MAX_QUERIES):
                self._exchange({}, new[start : start + MAX_QUERIES])

    def read_ahead(self, paths: Sequence[str], size: int, follow: bool) -> None:
        """Read the status and the last bytes of files, as ``open`` would, in few exchanges."""
        kind = "stat" if follow else "lstat"
        with self._lock:
            self._refresh()
            self.ask_together((kind, path) for path in paths if not self._is_missing(path))
            wanted: list[Part] = []
            for path in paths:
                status = self._answers.get((kind, path))
                if isinstance(status, os.stat_result) and stat.S_ISREG(status.st_mode):
                    content = self._content(path)
                    content.update(status)
                    start = max(0, status.st_size - size)
                    wanted += content.missing_parts(path, start, status.st_size)
            self._fetch(wanted)

    def _fetch(self, wanted: list[Part]) -> Failure | None:
        """Read parts of files; return the first failure, if any."""
        failed = None
        while wanted:
            count = size = 0
            while count < len(wanted) and (not size or size + wanted[count].size <= MAX_READ):
                size += wanted[count].size
                count += 1
            queries: list[list[Any]] = []
            for part in wanted[:count]:
                known_end = part.start + part.known
                own = digest(self._contents[part.path].parts(part.start, known_end))
                queries.append(["read", part.path, part.start, part.known, own, part.end])
            answers, data = self._exchange({"once": queries})
            changed = set[str]()
            for part, answer in zip(wanted, answers, strict=False):
                with self.parsing():
                    failure = failure_of(answer)
                    length = 0 if failure is not None else length_of(answer, data)
                    if failure is None and part.path not in changed:
                        self._take_part(part, answer, data[:length])
                        changed.update(() if answer["same"] else (part.path,))
                failed = failed or failure
                data = data[length:]
            wanted = wanted[count:]
        return failed

    def _take_part(self, part: Part, answer: Any, data: bytes) -> None:
        """Store a part of a file, unless the file no longer has the known bytes before it."""
        content = self._contents[part.path]
        self._update(part.path, content, answer["status"])
        if not answer["same"]:
            content.discard()
            return
        end = part.start + part.known
        content.add_valid(part.start, end)
        self._add(content, end, data)

    def _content(self, path: str) -> Content:
        if path not in self._contents:
            self._contents[path] = Content(self._store)
        return self._contents[path]

    def expand(self, path: str) -> str:
        """The absolute path of a path that a user typed, relative to the home directory there."""
        answer = self.ask_once("path", "expand", path)
        with self.parsing():
            return path_of(answer)

    def _refresh(self) -> None:
        """Begin a look if the last one is too old. Raises Disconnected."""
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            self.look()
        elif self._lost is not None:
            # Old answers must not be taken for new ones until the next attempt.
            raise type(self._lost)(str(self._lost), self._lost.since)

    def _names(self, directory: str) -> dict[str, tuple[str, int]] | None:
        """The names in a directory, with their kinds and numbers; None if it was not listed.

        A directory that a listing has named is listed now.
        """
        self.ask_together(self._next_directories(directory))
        for key in (("list", directory), ("few", directory)):
            names = self._answers.get(key)
            if isinstance(names, dict):
                self._used[key] = time.monotonic()
                return names
        return None

    def _is_missing(self, path: str) -> bool:
        """Whether the directory of a file was listed, and lacks its name."""
        directory, name = posixpath.split(path)
        names = self._names(directory)
        return names is not None and name not in ("", ".", "..") and name not in names

    def _ask(self, kind: str, path: str) -> Any:
        """The answer to a standing query, which is sent now if it is new. Raises OSError."""
        if "\0" in path:
            raise ValueError("embedded null byte")
        with self._lock:
            self._refresh()
            key = kind, path
            if key not in self._answers:
                self.ask_together((*self._next_directories(path), key))
            self._used[key] = time.monotonic()
            answer = self._answers[key]
        if isinstance(answer, Failure):
            raise answer.error(path)
        return answer

    def _next_directories(self, path: str) -> Iterator[tuple[str, str]]:
        """Queries for a directory that a listing has named, and for others of the same depth.

        A search below a directory needs one after the other.
        """
        if path not in self._unlisted:
            return
        parent, depth = posixpath.dirname(path), path.count("/")
        others = [each for each in self._unlisted if each.count("/") == depth]
        others.sort(key=lambda each: (each != path, posixpath.dirname(each) != parent))
        for directory in others[:QUERIED_TOGETHER]:
            del self._unlisted[directory]
            yield from (("stat", directory), ("few", directory))

    def _forget(self, key: tuple[str, str]) -> int:
        kind, path = key
        if kind == "few" and isinstance(self._answers.get(key), dict):
            self._unlisted[path] = None
        self._answers.pop(key, None)
        self._used.pop(key, None)
        number = self._numbers.pop(key)
        del self._queries[number]
        return number

    # --- contents -------------------------------------------------------------------------

    @contextmanager
    def open(self, path: str, follow: bool = True) -> Iterator[RemoteFile]:
        """Open a regular file for reading; ``follow``: even if the path is a link."""
        status = self.stat(path, follow)
        if not stat.S_ISREG(status.st_mode):
            number = errno.ELOOP if stat.S_ISLNK(status.st_mode) else errno.EINVAL
            raise OSError(number, os.strerror(number), path)
        with self._lock:
            self._content(path).update(status)
        yield RemoteFile(self, path, status)

    def read(self, path: str, start: int, length: int) -> bytes:
        """The bytes of a range, fewer at the end of the file."""
        with self._lock:
            content = self._contents[path]
            end = min(start + length, content.size)
            data = bytearray()
            while start < end:
                piece = self._read_some(path, content, start, end)
                if not piece:
                    break
                data += piece
                start += len(piece)
            return bytes(data)

    def _read_some(self, path: str, content: Content, start: int, end: int) -> bytes:
        """Bytes from ``start`` on, fetched if they are missing or may have changed."""
        # Try again if the file does not have the received bytes any more.
        for _ in range(2):
            if content.valid_end(start, end) > start:
                break
            failure = self._fetch(content.missing_parts(path, *content.range_around(start, end)))
            if failure is not None:
                raise failure.error(path)
        return content.read(start, content.valid_end(start, end))

    def _update(self, path: str, content: Content, status: Any) -> None:
        """Store the status that came with an answer, which may be newer than that of the look."""
        result = stat_result(status)
        content.update(result)
        for kind in ("stat", "lstat"):
            known = self._answers.get((kind, path))
            if isinstance(known, os.stat_result) and not stat.S_ISLNK(known.st_mode):
                self._answers[kind, path] = result

    def _add(self, content: Content, start: int, data: bytes) -> None:
        self.file_bytes += len(data)
        content.add(start, data)

    def _follow_growth(self) -> list[int]:
        """Replace standing queries for the growth of files; return those to be forgotten.

        For each file that was read whole, the agent sends new bytes with the next look.
        """
        forgotten = []
        for number, (kind, path) in list(self._queries.items()):
            if kind == "growth":
                content = self._contents[path]
                is_used = ("stat", path) in self._answers
                if not is_used or content.growth != (number, content.received):
                    forgotten.append(number)
                    del self._queries[number]
                    content.growth = None
        for path, content in self._contents.items():
            # Followers query the status by stat; outputs, of which only the ends are read, do not.
            if content.growth is None and ("stat", path) in self._answers:
                received = content.received
                if received and received == content.size:
                    self._next += 1
                    self._queries[self._next] = "growth", path
                    content.growth = self._next, received
        return forgotten

    # --- exchanges ------------------------------------------------------------------------

    def _exchange(
        self, request: dict[str, Any], new: Iterable[tuple[str, str]] = ()
    ) -> tuple[list[Any], bytes]:
        """Exchange one message; return the answers to ``once``, and their binary data."""
        with self._lock:
            for key in new:
                if key in self._numbers:
                    continue
                self._next += 1
                self._numbers[key] = self._next
                self._queries[self._next] = key
                self._used[key] = time.monotonic()
            greetings, later, once = 0, list[int](), None
            unanswered = set[int]()
            for _ in range(MAX_RESPONSES):
                fresh = [number for number in self._queries if number not in self._registered]
                unanswered.update(n for n in fresh if self._queries[n][0] != "growth")
                self._requests += 1
                message = {
                    "number": self._requests,
                    "agent": self._agent,
                    "standing": [[number, self._query(number)] for number in fresh],
                    "later": later,
                    **(request if once is None else {}),
                }
                response, data = self._send(message)
                with self.parsing():
                    if response["number"] != self._requests:
                        raise ValueError("the answer of another request")
                    # The first response of a new agent is its greeting.
                    if "hello" in response:
                        greetings += 1
                        if greetings == MAX_GREETINGS:
                            raise ValueError("one agent after another")
                        self._begin(response["hello"])
                        later = []
                        continue
                    self._registered.update(fresh)
                    self._registered.difference_update(request.get("forget", ()))
                    self.utc_offset = int(response["offset"])
                    if abs(self.utc_offset) > DAY:
                        raise ValueError("no time zone")
                    if response["count"] != len(response["standing"]):
                        raise ValueError("a query has no answer")
                    for number, answer in response["standing"]:
                        data = self._take(number, answer, data)
                        unanswered.discard(number)
                    if once is None:
                        once, once_data = list(response["once"]), data
                    later = list(response["later"])
                    if not self._queries.keys() >= set(later):
                        raise ValueError("an answer to no query")
                    if later:
                        continue
                    if unanswered or len(once) != len(request.get("once", ())):
                        raise ValueError("a query has no answer")
                    return once, once_data
            with self.parsing():
                raise ValueError("an answer without end")

    def _send(self, message: dict[str, Any]) -> tuple[Any, bytes]:
        """Send a request; return its response. Raises Disconnected."""
        try:
            with self.parsing():
                response = decode(self.channel.exchange(encode(0, message)))
        except Disconnected as lost:
            self._lost = lost.with_traceback(None)
            raise
        self._lost = None
        return response

    def ask_once(self, field: str, kind: str, path: str, *arguments: Any) -> Any:
        """A field of the answer to a query that is not standing. Raises OSError."""
        (answer,), _ = self._exchange({"once": [[kind, path, *arguments]]})
        with self.parsing():
            failure = failure_of(answer)
            value = answer[field] if failure is None else None
        if failure is not None:
            raise failure.error(path)
        return value

    @contextmanager
    def parsing(self) -> Iterator[None]:
        """Context in which an answer, whose fields may be anything, is parsed.

        An invalid answer ends the connection: the agent will not send it again, so that a new agent
        has to be asked for everything.
        """
        try:
            yield
        except (
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
            IndexError,
            OverflowError,
            MemoryError,
        ) as error:
            sentence = f"{self.host}: its answer is not from metlmon's agent; trying again"
            self._lost = ForeignAnswer(sentence, time.time())
            self._agent = ""
            self.channel.drop()
            raise self._lost from error

    def _begin(self, hello: dict[str, Any]) -> None:
        """Start with a new agent, which has no standing queries yet."""
        self._agent = str(hello["agent"])
        self._skew = float(hello["time"]) - time.time()
        if not abs(self._skew) < LAST_MOMENT / 5:
            raise ValueError("no time")
        self.user_number = int(hello["user"])
        self._registered = set()
        for content in self._contents.values():
            if content.growth is not None:
                content.growth = content.growth[0], content.received

    def _query(self, number: int) -> list[Any]:
        kind, path = self._queries[number]
        if kind != "growth":
            return [kind, path]
        content = self._contents[path]
        length = content.received
        ends = content.read(0, min(ENDS, length)), content.read(max(0, length - ENDS), length)
        return [kind, path, length, digest(ends)]

    def _take(self, number: int, answer: Any, data: bytes) -> bytes:
        """Store the changed answer to a standing query; return the data after its own."""
        kind, path = key = self._queries[number]
        if kind == "growth":
            return self._take_growth(number, path, answer, data)
        failure = failure_of(answer)
        if failure is not None:
            self._answers[key] = failure
        elif kind in ("list", "few") and "names" in answer:
            self._answers[key] = names_of(answer["names"])
            self._add_unlisted(path, self._answers[key])
        elif kind in ("list", "few"):
            gone = set(answer["gone"])
            names = {name: value for name, value in self._answers[key].items() if name not in gone}
            new = names_of(answer["new"])
            names |= new
            if len(names) > MAX_NAMES:
                raise ValueError("more names than are sent")
            self._answers[key] = names
            self._add_unlisted(path, new)
        elif kind == "real":
            self._answers[key] = path_of(answer)
        else:
            self._answers[key] = stat_result(answer)
        return data

    def _add_unlisted(self, directory: str, names: Mapping[str, tuple[str, int]]) -> None:
        """Record the directories that a listing has named; hidden ones are not searched."""
        named = (name for name, (kind, _) in names.items() if kind == "d" and name[0] != ".")
        for name in islice(named, MAX_SEARCHED):
            path = posixpath.join(directory, name)
            if not self._numbers.keys() & {("list", path), ("few", path)}:
                self._unlisted[path] = None

    def _take_growth(self, number: int, path: str, answer: Any, data: bytes) -> bytes:
        content = self._contents[path]
        self._update(path, content, answer["status"])
        if not answer["same"]:
            content.growth = None
            return data
        at, length = int(answer["at"]), length_of(answer, data)
        if content.growth == (number, at):
            content.add_valid(0, min(ENDS, at))
            content.add_valid(max(0, at - ENDS), at)
            self._add(content, at, data[:length])
            content.growth = number, at + length
        return data[length:]


class RemoteFile:
    """An open file: its status, and its content."""

    def __init__(self, machine: Machine, path: str, status: os.stat_result) -> None:
        self.status = status
        self._machine, self._path = machine, path

    def pread(self, length: int, start: int) -> bytes:
        """Like :func:`os.pread`."""
        return self._machine.read(self._path, start, length)

    def stream(self) -> BinaryIO:
        """Its whole content."""
        return BytesIO(self.pread(self.status.st_size, 0))

    def end_of_nuls(self, start: int, size: int) -> int:
        """The end of the run of NUL bytes that begins at ``start``, at most ``size``."""
        end = start
        while end < size:
            limit = min(size, end + SEARCHED_BYTES)
            answer = self._machine.ask_once("end", "nuls", self._path, end, limit)
            with self._machine.parsing():
                before, end = end, int(answer)
                if not before <= end <= size:
                    raise ValueError("an end before the start")
            if end < limit:
                break
        return end


MACHINES: Final[dict[str, Machine]] = {}
"""The machines of this process, by host."""


def add_machine(channel: Channel) -> Machine:
    """Make the files of a machine readable in this process."""
    machine = MACHINES[channel.host] = Machine(channel)
    HOSTS.add(channel.host)
    return machine


def connect_to(word: str, *, ask: bool = True) -> str:
    """The path of a word like ``HOST:DIR``; connect to the machine if necessary.

    ``ask``: ssh may prompt on the terminal. Raises UnusableMachine.
    """
    machine = log_in(word, ask=ask)
    host, directory = _host_and_directory(word)
    try:
        path = machine.expand(directory)
        machine.ask_together([("stat", path), ("list", path), ("real", path)])
    except (OSError, Disconnected) as error:
        raise UnusableMachine(str(error)) from None
    return remote_path(host, path)


def log_in(word: str, *, ask: bool = True) -> Machine:
    """The machine of a word like ``HOST:DIR``, connected as by :func:`connect_to`."""
    host, _ = _host_and_directory(word)
    return MACHINES.get(host) or add_machine(Connection(host, ask=ask))


def connect_later(word: str) -> str:
    """Like :func:`connect_to` for an absolute directory, without waiting: the connection is made in
    the background, where ssh must not prompt."""
    host, directory = _host_and_directory(word)
    if host not in MACHINES:
        add_machine(Connection(host, ask=False, wait=False))
    return remote_path(host, posixpath.normpath(directory))


def _host_and_directory(word: str) -> tuple[str, str]:
    argument = split_argument(word)
    if argument is None:
        raise UnusableMachine(f"{word}: not a directory of another machine (HOST:DIR)")
    if os.path.lexists(f"/{argument[0]}:"):
        raise UnusableMachine(f"/{argument[0]}:: a file of this name is in the way of {word}")
    return argument
