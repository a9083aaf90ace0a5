"""What was received of files, so that no byte is received twice."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

LEAST_READ: Final = 1 << 16
"""Bytes that are fetched at once at least, where a file is read in order or backwards."""

SMALL_PIECES: Final = 64
"""Pieces of a file smaller than ``LEAST_READ`` that are joined."""

Span = tuple[int, int]


class Part(NamedTuple):
    """A part of a file to be read, or to be compared with what is known of it."""

    path: str
    start: int
    end: int
    is_known: bool

    @property
    def size(self) -> int:
        """Bytes that its answer has."""
        return 0 if self.is_known else self.end - self.start

    def query(self) -> list[Any]:
        """The query for it."""
        length = self.end - self.start
        if self.is_known:
            return ["digest", self.path, [[self.start, length]], True]
        return ["read", self.path, self.start, length, True]


class Store:
    """A private temporary file without a name, to which bytes are appended."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="metlmon-")  # noqa: SIM115
        self._size = 0

    def append(self, data: bytes) -> int:
        """Store bytes; returns where they are."""
        at, self._size = self._size, self._size + len(data)
        os.pwrite(self._file.fileno(), data, at)
        return at

    def read(self, length: int, at: int) -> bytes:
        """Stored bytes."""
        return os.pread(self._file.fileno(), length, at)


class Content:
    """What was received of one file.

    ``pieces``: where spans of it are in the store. ``valid``: those that the file has with
    ``signature``, its state when they were last compared.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.signature: tuple[int, ...] | None = None
        self.pieces: list[tuple[int, int, int]] = []
        self.valid: list[Span] = []
        self.growth: tuple[int, int] | None = None
        """Number of the standing query for its growth, and the bytes that the agent has sent."""
        self.block = LEAST_READ
        self.size = 0

    def prefix(self) -> int:
        """Bytes received from the beginning on without a gap."""
        return self.ends()[1] if self.pieces and self.pieces[0][0] == 0 else 0

    def ends(self) -> tuple[int, int, int]:
        """Where the bytes that were received end; how many are at the beginning, and before it."""
        spans = self.spans()
        if not spans:
            return 0, 0, 0
        head = spans[0][1] if spans[0][0] == 0 else 0
        return spans[-1][1], head, spans[-1][1] - spans[-1][0]

    def update(self, status: os.stat_result) -> None:
        """Note the newest status: spans must be compared again if it differs."""
        signature = _signature(status)
        self.size = status.st_size
        if signature != self.signature:
            self.signature, self.valid = signature, []

    def discard(self) -> None:
        self.pieces, self.valid, self.growth, self.block = [], [], None, LEAST_READ

    def add(self, start: int, data: bytes) -> None:
        """Store bytes of the file, in place of older ones."""
        if not data:
            return
        end = start + len(data)
        pieces = []
        for first, last, at in self.pieces:
            if first < start:
                pieces.append((first, min(last, start), at))
            if last > end:
                begin = max(first, end)
                pieces.append((begin, last, at + begin - first))
        pieces.append((start, end, self._store.append(data)))
        self.pieces = sorted(pieces)
        self.add_valid((start, end))
        self._join_small_pieces()

    def add_valid(self, *spans: Span) -> None:
        """Note that the file still has these spans."""
        self.valid = merged([*self.valid, *spans])

    def _join_small_pieces(self) -> None:
        """Join the pieces of a file that grows by a few events every second."""
        small = self.pieces[-SMALL_PIECES:]
        adjacent = all(first[1] == second[0] for first, second in pairwise(small))
        sizes = [last - first for first, last, _ in small]
        if len(small) == SMALL_PIECES and adjacent and max(sizes) < LEAST_READ:
            start, end = small[0][0], small[-1][1]
            at = self._store.append(self.read(start, end))
            self.pieces[-SMALL_PIECES:] = [(start, end, at)]

    def read(self, start: int, end: int) -> bytes:
        """Bytes that were received."""
        return b"".join(self.parts(start, end))

    def parts(self, start: int, end: int) -> Iterator[bytes]:
        """The same, piece by piece."""
        for first, last, at in self.pieces:
            low, high = max(first, start), min(last, end)
            if low < high:
                yield self._store.read(high - low, at + low - first)

    def spans(self) -> list[Span]:
        """What was received, without gaps."""
        return merged((first, last) for first, last, _ in self.pieces)

    def span_with(self, offset: int) -> Span | None:
        """The span around an offset."""
        return next((span for span in self.spans() if span[0] <= offset < span[1]), None)

    def valid_end(self, offset: int) -> int | None:
        """How far the file still has what was received, from an offset on; None: it may not."""
        return next((last for first, last in self.valid if first <= offset < last), None)

    def missing_parts(self, path: str, start: int, end: int) -> Iterator[Part]:
        """The parts of a range that must be read, or compared with what was received."""
        for first, last in self.spans():
            low, high = max(first, start), min(last, end)
            if low < high:
                if start < low:
                    yield Part(path, start, low, False)
                if not any(first <= low and high <= last for first, last in self.valid):
                    yield Part(path, low, high, True)
                start = high
        if start < end:
            yield Part(path, start, end, False)


def _signature(status: os.stat_result) -> tuple[int, ...]:
    return (*status[:7], status.st_mtime_ns, status.st_ctime_ns)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans without overlaps and without gaps of no byte, sorted."""
    merged: list[Span] = []
    for first, last in sorted(span for span in spans if span[0] < span[1]):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged
