"""The agent: answers queries about files on standard input, on the far side of ``ssh``.

Its text is sent there and run by any Python, 3.6 or newer, with only the standard library. It only
reads: no query writes, and only regular files are opened. It ends with its input. The near side
imports it for :func:`encode` and :func:`decode`.

A frame is a length (4 bytes), a channel (1 byte) and data compressed by zlib: the length of a JSON
text, the text, and binary data to which the text refers by length. Names of files are strings in
UTF-8 with surrogate escapes, so any name passes, and no shell sees one.

A request has ``number`` (repeated in the response), ``agent`` (the agent that the sender takes this
to be), ``forget`` (numbers of standing queries), ``again`` (answer the standing queries again),
``standing`` (numbers with new standing queries), ``later`` (see below) and ``once`` (queries
answered once). For standing queries only changed answers are sent, and for a listing only the
added and removed names. Answers too large for one response come in several: ``later`` of a response
lists the standing queries whose answer, or the rest of it, must be requested by ``later``.
"""

import contextlib
import errno
import hashlib
import json
import os
import stat
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

MAX_FRAME = 64 << 20
"""Bytes of a frame, compressed or not."""

MAX_READ = 8 << 20
"""Bytes that one query reads."""

GROWTH_BYTES = 1 << 20
"""New bytes of a followed file that are sent together with its status."""

RESPONSE_GROWTH_BYTES = 8 << 20
"""The same for all followed files in one response."""

DUE_ALWAYS = 1000
DUE_IN_TURN = 1000
"""Standing queries that each look answers: the first ones, and in turn some of the others."""

ENDS = 1 << 16
"""Bytes at both ends of the sent part of a followed file that show whether it is unchanged."""

SETTLED = 2.0
"""Seconds after which the times of a directory are final: some file systems' clocks tick slowly."""

RESPONSE_BYTES = 4 << 20
"""Bytes of standing answers in one response; further answers follow in the next one."""

MAX_NAMES = 1000000
"""Names in one directory; one with more is not listed."""

FEW_NAMES = 1000
"""The same for a directory that is listed before it is needed."""

HEADER = struct.Struct(">IB")
LENGTH = struct.Struct(">I")


# --- frames ------------------------------------------------------------------------------------


def encode(channel: int, message: Any, data: "Iterable[bytes]" = ()) -> bytes:
    """Encode a message that JSON can represent, and binary data, as a frame."""
    text = json.dumps(message, separators=(",", ":")).encode("ascii")
    content = zlib.compress(LENGTH.pack(len(text)) + text + b"".join(data), 6)
    return HEADER.pack(len(content), channel) + content


def decode(content: bytes) -> "tuple[Any, bytes]":
    """Decode a frame without its header to message and binary data. Raises ValueError."""
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(content, MAX_FRAME)
        (length,) = LENGTH.unpack_from(plain)
    except (zlib.error, struct.error) as error:
        raise ValueError(str(error)) from None
    if not unpacker.eof:
        raise ValueError("a frame is cut off, or too large")
    end = LENGTH.size + length
    try:
        return json.loads(plain[LENGTH.size : end].decode("ascii")), plain[end:]
    except RecursionError as error:
        raise ValueError(str(error)) from None


def digest(pieces: "Iterable[bytes]") -> str:
    """The digest of concatenated byte strings, as hexadecimal digits."""
    state = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        state.update(piece)
    return state.hexdigest()


# --- file system -------------------------------------------------------------------------------


def to_bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def to_text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def failure(error: Exception) -> "dict[str, int]":
    """The answer for an error."""
    number = error.errno if isinstance(error, OSError) else None
    return {"errno": number or errno.EINVAL}


def status_of(status: os.stat_result) -> "list[int]":
    """The first ten numbers, the times in nanoseconds."""
    return [*status[:7], status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns]


def signature_of(status: os.stat_result) -> "tuple[int, ...]":
    """The parts of a status that change with content or permissions; not the access time."""
    return (*status[:7], status.st_mtime_ns, status.st_ctime_ns)


@contextlib.contextmanager
def open_regular(path: bytes) -> "Iterator[int]":
    """The descriptor of a regular file; nothing else is opened. Raises OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        yield descriptor
    finally:
        os.close(descriptor)


def read_at(descriptor: int, start: int, length: int) -> bytes:
    """The bytes of a range, fewer at the end of the file."""
    return b"".join(parts(descriptor, start, length))


def parts(descriptor: int, start: int, length: int) -> "Iterator[bytes]":
    """The same in parts that need little memory."""
    while length > 0:
        part = os.pread(descriptor, min(length, 1 << 20), start)
        if not part:
            return
        yield part
        start += len(part)
        length -= len(part)


def kind_of(entry: "os.DirEntry[bytes]") -> str:
    """One letter: file, directory, link to either (capital), other link, or other."""
    try:
        is_link = entry.is_symlink()
        letter = "f" if entry.is_file() else "d" if entry.is_dir() else "l" if is_link else "o"
    except OSError:
        return "l"
    return letter.upper() if is_link else letter


class Listing:
    """A standing query for the names in a directory.

    ``most``: maximum number of names. ``entries``: those that were sent. ``is_partial``: more are
    to be sent in the next answers.
    """

    def __init__(self, path: bytes, most: int) -> None:
        self.path = path
        self.most = most
        self.signature: tuple[int, ...] | None = None
        self.listed_at = 0.0
        self.entries: dict[str, list[Any]] | None = None
        self.error: int | None = None
        self.is_partial = False

    def answer(self, data: "list[bytes]") -> Any:
        """The names, their changes, or None if unchanged; ``data`` is for other queries."""
        was_partial, self.is_partial = self.is_partial, False
        try:
            status = os.stat(self.path)
            signature = signature_of(status)
            settled = abs(self.listed_at - status.st_mtime) > SETTLED and not was_partial
            if signature == self.signature and settled and self.error is None:
                return None
            self.signature, self.listed_at = signature, time.time()
            entries: dict[str, list[Any]] = {}
            with os.scandir(self.path) as scanned:
                for entry in scanned:
                    entries[to_text(entry.name)] = [kind_of(entry), entry.inode()]
                    if len(entries) > self.most:
                        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        except OSError as error:
            known, self.error, self.entries = self.error, error.errno, None
            return None if known == error.errno else failure(error)
        self.error = None
        before = self.entries or {}
        sent = {name: before[name] for name in before if name in entries}
        new: dict[str, list[Any]] = {}
        size = 0
        for name, value in entries.items():
            if sent.get(name) != value:
                self.is_partial = size >= RESPONSE_BYTES
                if self.is_partial:
                    break
                new[name] = value
                size += len(name)
        gone = [name for name in before if name not in entries]
        is_first = self.entries is None
        sent.update(new)
        self.entries = sent
        if is_first:
            return {"names": new}
        return {"new": new, "gone": gone} if new or gone else None


class Answer:
    """A standing query for a status (``stat``, ``lstat``) or a resolved path (``real``)."""

    is_partial = False

    def __init__(self, kind: str, path: bytes) -> None:
        self.kind = kind
        self.path = path
        self.last: Any = None

    def answer(self, data: "list[bytes]") -> Any:
        """The value if it has changed, else None; ``data`` is for other queries."""
        key: Any
        value: Any
        try:
            if self.kind == "real":
                key = value = to_text(os.path.realpath(self.path))
            else:
                status = os.lstat(self.path) if self.kind == "lstat" else os.stat(self.path)
                key, value = signature_of(status), status_of(status)
        except (OSError, ValueError) as error:
            value = failure(error)
            key = value["errno"]
        if key == self.last:
            return None
        self.last = key
        return value


class Growth:
    """A standing query for the bytes of a file after ``length``.

    The near side has those before. ``ends``: the digest of the first and the last ``ENDS`` of
    these, which shows whether it is still the same file.
    """

    is_partial = False

    def __init__(self, path: bytes, length: int, ends: str) -> None:
        self.path = path
        self.length = length
        self.ends = ends
        self.signature: tuple[int, ...] | None = None

    def answer(self, data: "list[bytes]") -> Any:
        """The status of a file that has changed; its new bytes go into ``data``."""
        try:
            if signature_of(os.stat(self.path)) == self.signature:
                return None
            with open_regular(self.path) as descriptor:
                return self.read_new(descriptor, data)
        except (OSError, ValueError):
            # The query for its status reports this.
            self.signature = None
            return None

    def read_new(self, descriptor: int, data: "list[bytes]") -> "dict[str, Any]":
        """The answer about an open file that has changed."""
        status = os.fstat(descriptor)
        self.signature = signature_of(status)
        answer: dict[str, Any] = {"status": status_of(status)}
        if status.st_size < self.length or self.read_ends(descriptor) != self.ends:
            answer["same"] = False
            return answer
        room = min(GROWTH_BYTES, RESPONSE_GROWTH_BYTES - sum(map(len, data)))
        new = read_at(descriptor, self.length, min(room, status.st_size - self.length))
        answer.update(same=True, at=self.length, bytes=len(new))
        data.append(new)
        self.length += len(new)
        self.ends = self.read_ends(descriptor)
        return answer

    def read_ends(self, descriptor: int) -> str:
        """The digest of both ends."""
        size = min(ENDS, self.length)
        last = read_at(descriptor, self.length - size, size)
        return digest((read_at(descriptor, 0, size), last))


def read_once(
    data: "list[bytes]", path: bytes, start: int, known: int, known_digest: str, end: int
) -> Any:
    """The bytes of a range after the first ``known`` ones, with the file's status.

    The near side has those, with ``known_digest``: nothing is read if the file has others.
    """
    with open_regular(path) as descriptor:
        status = os.fstat(descriptor)
        same = not known or digest(parts(descriptor, start, known)) == known_digest
        # A file of the kernel has size 0, and reading it may block.
        wanted = min(end, status.st_size) - (start + known) if same else 0
        piece = read_at(descriptor, start + known, min(wanted, MAX_READ))
    data.append(piece)
    return {"status": status_of(status), "same": same, "bytes": len(piece)}


def end_of_nuls(descriptor: int, start: int, size: int) -> int:
    """The end of the run of NUL bytes that begins at ``start``, at most ``size``.

    Holes of a sparse file are skipped if its file system reports them.
    """
    zeros = bytes(1 << 20)
    while start < size:
        try:
            start = min(size, os.lseek(descriptor, start, os.SEEK_DATA))
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size
        part = os.pread(descriptor, min(len(zeros), size - start), start)
        if part != zeros[: len(part)]:
            return start + len(part) - len(part.lstrip(b"\0"))
        if not part:
            return start
        start += len(part)
    return start


def nuls_once(data: "list[bytes]", path: bytes, start: int, size: int) -> Any:
    """The end of a run of NUL bytes in a file."""
    with open_regular(path) as descriptor:
        return {"end": end_of_nuls(descriptor, start, size)}


def expand_once(data: "list[bytes]", path: bytes) -> Any:
    """The absolute path of a path that a user typed, relative to the home directory."""
    home = os.path.expanduser(b"~")
    absolute = os.path.normpath(os.path.join(home, os.path.expanduser(path or b"~")))
    return {"path": to_text(absolute)}


ONCE: "dict[str, Callable[..., Any]]" = {
    "read": read_once,
    "nuls": nuls_once,
    "expand": expand_once,
}


def standing_query(kind: str, name: str, *arguments: Any) -> "Listing | Answer | Growth":
    """The query of a request."""
    path = to_bytes(name)
    if kind in ("list", "few"):
        return Listing(path, MAX_NAMES if kind == "list" else FEW_NAMES)
    return Growth(path, *arguments) if kind == "growth" else Answer(kind, path)


def answer_once(data: "list[bytes]", kind: str, path: str, *arguments: Any) -> Any:
    """The answer of a query that is not standing, with its bytes in ``data``."""
    before = len(data)
    try:
        return ONCE[kind](data, to_bytes(path), *arguments)
    except (OSError, ValueError) as error:
        del data[before:]
        return failure(error)


# --- the process -------------------------------------------------------------------------------


def serve(source: "IO[bytes]", target: "IO[bytes]", name: str) -> None:
    """Answer requests until the input ends; ``name``: a word that no other agent has."""
    queries: dict[int, dict[int, Any]] = {}
    while True:
        header = source.read(HEADER.size)
        if len(header) < HEADER.size:
            return
        length, channel = HEADER.unpack(header)
        request, _ = decode(source.read(length))
        standing = queries.setdefault(channel, {})
        data: list[bytes] = []
        if request["agent"] != name:
            standing.clear()
            response = {"hello": hello(name)}
        else:
            response = answer_request(request, standing, data)
        response["number"] = request["number"]
        target.write(encode(channel, response, data))
        target.flush()


def answer_request(request: Any, standing: "dict[int, Any]", data: "list[bytes]") -> Any:
    """The response to a request; ``standing``: the standing queries of its channel.

    Its ``count`` is the number of standing answers: a missing one would look like no change.
    """
    for number in request.get("forget", ()):
        standing.pop(number, None)
    due = dict(in_turn(standing, request["again"])) if "again" in request else {}
    for number, query in request.get("standing", ()):
        due[number] = standing[number] = standing_query(*query)
    due.update((number, standing[number]) for number in request.get("later", ()))
    answers, later, size = [], [], 0
    for number, query in due.items():
        if size >= RESPONSE_BYTES:
            later.append(number)
            continue
        answer = query.answer(data)
        if answer is not None:
            answers.append([number, answer])
            size += len(json.dumps(answer))
        if query.is_partial:
            later.append(number)
    once = [answer_once(data, *query) for query in request.get("once", ())]
    return {
        "count": len(answers),
        "standing": answers,
        "later": later,
        "once": once,
        "offset": utc_offset(),
    }


def in_turn(standing: "dict[int, Any]", look: int) -> "list[tuple[int, Any]]":
    """The standing queries that are due at a look with this number."""
    queries = list(standing.items())
    others = queries[DUE_ALWAYS:]
    first = look * DUE_IN_TURN % (len(others) + DUE_IN_TURN) if len(others) > DUE_IN_TURN else 0
    return queries[:DUE_ALWAYS] + others[first : first + DUE_IN_TURN]


def hello(name: str) -> Any:
    """The facts about this machine that the near side needs."""
    return {"agent": name, "time": time.time(), "offset": utc_offset(), "user": os.geteuid()}


def utc_offset() -> int:
    """Seconds that local time is ahead of UTC here and now."""
    return time.localtime().tm_gmtoff


def main(marker: bytes) -> None:
    """Serve standard input; ``marker``: a line that follows any output of the login shell."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    target.write(marker)
    target.flush()
    serve(source, target, to_text(marker.strip()))
