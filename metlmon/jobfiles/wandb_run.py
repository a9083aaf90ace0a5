"""Parses the file ``run-<id>.wandb`` of a Weights & Biases run, as its library writes it offline.

The file is a log of records in LevelDB's format (``doc/log_format.md`` of LevelDB), with a header
of its own and with CRC-32 in place of the masked CRC-32C. Each record is a protobuf message
``Record`` (``wandb/proto/wandb_internal.proto``); only two of its kinds are read: a row of the
history, and the start of the run. Files of wandb 0.13 to 0.31 differ only in nested metrics: until
0.16 these are JSON objects, later each has a path.

A file that ends within a record is being written, or was cut off with its job: the record is
skipped. Neither wandb nor protobuf is needed.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from metlmon.jobfiles.records import number
from metlmon.jobfiles.training_files import (
    EPOCH,
    MAX_METRICS,
    NAME_CHARACTERS,
    EpochTable,
    MetricsTable,
    is_metric,
    shown_name,
    whole_epoch,
)

BLOCK_BYTES: Final = 32_768
"""Bytes of a block of the log; no fragment of a record extends over two of them."""

LARGEST_RECORD: Final = 16_000_000
"""Bytes of one record: a row of 256 metrics takes ten kilobytes."""

_TOO_LARGE: Final = f"has a record of more than {LARGEST_RECORD // 1_000_000} MB, which is not read"

LONGEST_NUMBER: Final = 60
"""Bytes of a number."""

_FILE_HEADER: Final = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
_FRAGMENT_HEADER: Final = struct.Struct("<IHB")
_DAMAGED, _FULL, _FIRST, _MIDDLE, _LAST = _KINDS = range(5)
"""Kinds of fragments; damaged ones are 0 here."""

_HISTORY, _RUN = 2, 17
"""Fields of ``Record``."""

_ITEM: Final = 1
_KEY, _NESTED_KEY, _VALUE_JSON = 1, 2, 16
"""Fields of ``HistoryRecord`` and of ``HistoryItem``."""

_VALUE_TAG: Final = b"\x82\x01"
"""The tag of the field of a value: number 16, length-delimited."""

_START_TIME: Final = 17
_SECONDS: Final = 1
"""Fields of ``RunRecord`` and of ``Timestamp``."""

_QUOTED: Final = frozenset({'"NaN"', '"Infinity"', '"-Infinity"'})

_OBJECT_TYPE: Final = "_type"
"""Key of an object that is not a metric: a histogram, an image, a table."""

Values = dict[str, bytes]
"""A row of the history: the JSON text of each value, by name."""


class WandbRun(Struct, frozen=True):
    """The metrics of one W&B run.

    ``table``: values by the ``epoch`` of their rows. ``newest``: the last value of each metric
    if no row has an epoch, else empty. ``started``: in seconds since 1970, None if unknown; it may
    be outside the calendar.
    """

    table: MetricsTable
    newest: dict[str, float]
    started: float | None = None


def read_wandb_run(blocks: Iterable[bytes]) -> WandbRun:
    """Read the metrics of a run from its file, in blocks of ``BLOCK_BYTES``.

    As in ``metrics.csv`` the last value of an epoch counts, and ``epoch`` counts from 0. Never
    raises: problems are in the table.
    """
    log = WandbLog(blocks)
    # Rows of one epoch are merged before their values are parsed: there are thousands of them.
    merged: dict[int | None, Values] = {}
    epochs: dict[bytes | None, int | None] = {None: None}
    for row in log.rows():
        text = row.get(EPOCH)
        if text not in epochs:
            epochs[text] = whole_epoch(_number(text or b""))
        merged.setdefault(epochs[text], {}).update(row)
    rows = {epoch: _metrics(values) for epoch, values in merged.items()}
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    if len(names) > MAX_METRICS:
        log.problems.append(f"has more than {MAX_METRICS} metrics: only those are read")
    read = frozenset(names[:MAX_METRICS])
    newest = {name: value for name, value in rows.pop(None, {}).items() if name in read}
    table = EpochTable()
    for epoch, metrics in rows.items():
        for name in filter(read.__contains__, metrics):
            table.add(name, epoch or 0, metrics[name])
    result = MetricsTable(table.values(), tuple(log.problems))
    return WandbRun(result, {} if rows else newest, log.started)


def _metrics(values: Values) -> dict[str, float]:
    """The metrics in a row; names that begin with ``_`` are the library's own."""
    numbers = numbers_of(values)
    return {name: numbers[name] for name in numbers if is_metric(name) and name[:1] != "_"}


# --- the log -----------------------------------------------------------------------------------


class WandbLog:
    """Reads the rows of a run's history from the blocks of its file.

    ``started``: when the run began, in seconds since 1970; ``problems``: sentences; both are
    complete after all rows.
    """

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self.started: float | None = None
        self.problems: list[str] = []
        self._blocks = blocks
        self._is_damaged = False

    def rows(self) -> Iterator[Values]:
        """Yield the values of each row."""
        for position, record in self._records():
            rows: list[Values] = []
            try:
                for field, message in _fields(record):
                    if field == _HISTORY and isinstance(message, bytes):
                        rows.append(_history_row(message))
                    elif field == _RUN and isinstance(message, bytes):
                        self.started = _start_time(message)
            except ValueError:
                self._add_damage(position)
            else:
                yield from rows

    def _records(self) -> Iterator[tuple[int, bytes]]:
        """Yield where each complete record begins, and its bytes."""
        begin, parts, size = 0, list[bytes](), 0
        for position, kind, data in self._fragments():
            is_first = kind in (_FULL, _FIRST)
            if kind not in _KINDS[1:] or is_first == bool(parts):
                self._add_damage(position)
                parts = []
            if is_first:
                begin, parts, size = position, [data], len(data)
            elif parts:
                size += len(data)
                parts += [data] if size <= LARGEST_RECORD else []
            if kind in (_FULL, _LAST) and parts:
                if size <= LARGEST_RECORD:
                    yield begin, b"".join(parts)
                elif _TOO_LARGE not in self.problems:
                    self.problems.append(_TOO_LARGE)
                parts = []

    def _fragments(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the position, kind and data of each fragment of a record.

        After a damaged one the rest of its block is skipped: the next start is unknown.
        """
        start = 0
        for block in self._blocks:
            at = 0
            if start == 0:
                at = len(_FILE_HEADER)
                if block[:at] != _FILE_HEADER[: len(block)]:
                    self.problems.append("is not in the format of a W&B run")
                    return
            while at + _FRAGMENT_HEADER.size <= len(block):
                checksum, length, kind = _FRAGMENT_HEADER.unpack_from(block, at)
                begin = at + _FRAGMENT_HEADER.size
                end = begin + length
                if len(block) < end <= BLOCK_BYTES:
                    return  # The fragment is incomplete.
                if end > BLOCK_BYTES or zlib.crc32(block[begin - 1 : end]) != checksum:
                    yield start + at, _DAMAGED, b""
                    break
                yield start + at, kind, block[begin:end]
                at = end
            if len(block) < BLOCK_BYTES:
                return
            start += len(block)

    def _add_damage(self, position: int) -> None:
        if not self._is_damaged:
            self._is_damaged = True
            self.problems.append(f"is damaged at byte {position:,}: some values are not read")


# --- messages ----------------------------------------------------------------------------------


def _history_row(message: bytes) -> Values:
    """The values in a ``HistoryRecord``. Raises ValueError for a message that is damaged."""
    return dict(
        _name_and_value(item)
        for field, item in _fields(message)
        if field == _ITEM and isinstance(item, bytes)
    )


def _name_and_value(item: bytes) -> tuple[str, bytes]:
    if len(item) < 128:
        # Lengths then have one byte, so the first match is the tag of the value.
        path, tag, value = item.partition(_VALUE_TAG)
        if tag:
            return _name(path), value[1:]
    fields = [(field, value) for field, value in _fields(item) if isinstance(value, bytes)]
    parts = [value for field, value in fields if field in (_KEY, _NESTED_KEY)]
    return _joined(parts), next((value for field, value in fields if field == _VALUE_JSON), b"")


@lru_cache(maxsize=4 * MAX_METRICS)
def _name(path: bytes) -> str:
    """The name of a metric, from the fields with its keys."""
    return _joined([value for _, value in _fields(path) if isinstance(value, bytes)])


def _joined(parts: list[bytes]) -> str:
    name = b".".join(parts)[: 4 * NAME_CHARACTERS].decode("utf-8", "replace")
    return shown_name(name, NAME_CHARACTERS)


def numbers_of(values: Values) -> dict[str, float]:
    """The numbers in a row, by name; the keys of nested ones are joined by dots."""
    numbers: dict[str, float] = {}
    for name, text in values.items():
        if text[:1] == b"{":
            numbers.update(_numbers_in(name, text))
        elif (value := _number(text)) is not None:
            numbers[name] = value
    objects = {name.removesuffix(_OBJECT_TYPE) for name in values if name.endswith(_OBJECT_TYPE)}
    return {name: numbers[name] for name in numbers if objects.isdisjoint(_parents(name))}


def _parents(name: str) -> list[str]:
    """The names of the objects that contain a value, each with the dot after it."""
    return [name[: dot + 1] for dot, character in enumerate(name) if character == "."]


def _number(text: bytes) -> float | None:
    """A number in JSON, or NaN and infinity as the library writes them."""
    if len(text) > LONGEST_NUMBER:
        return None
    word = text.decode("utf-8", "replace")
    return number(word.strip('"') if word in _QUOTED else word)


def _numbers_in(name: str, text: bytes) -> Iterator[tuple[str, float]]:
    """Yield the numbers in the JSON text of an object, with their names."""
    try:
        waiting: list[tuple[str, Any]] = [(name, json.loads(text))]
    except (ValueError, RecursionError):
        return
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            if _OBJECT_TYPE not in value:
                for key, inner in value.items():
                    waiting.append((shown_name(f"{name}.{key}", NAME_CHARACTERS), inner))
        elif isinstance(value, int | float):
            found = _number(json.dumps(value).encode())
            if found is not None:
                yield name, found


def _start_time(message: bytes) -> float | None:
    """The start of the run in a ``RunRecord``, to the second."""
    for field, time in _fields(message):
        if field == _START_TIME and isinstance(time, bytes):
            for part, seconds in _fields(time):
                if part == _SECONDS and isinstance(seconds, int):
                    return float(seconds)
    return None


def _fields(message: bytes) -> list[tuple[int, int | bytes]]:
    """The fields of a protobuf message: integers, and texts and messages as bytes.

    Raises ValueError for a message that is damaged. Source followed: "Encoding" of protobuf.
    """
    fields: list[tuple[int, int | bytes]] = []
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        wire_type = tag & 7
        if wire_type == 2:
            length, begin = _varint(message, at)
            at = begin + length
            if at > end:
                raise ValueError("a field is cut off")
            fields.append((tag >> 3, message[begin:at]))
        elif wire_type == 0:
            value, at = _varint(message, at)
            fields.append((tag >> 3, value))
        elif wire_type in (1, 5):
            at += 8 if wire_type == 1 else 4
        else:
            raise ValueError("a field of unknown type")
    return fields


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer at ``at``, and the position after it."""
    if at < len(message) and message[at] < 128:
        return message[at], at + 1
    value = 0
    for shift, byte in enumerate(message[at : at + 10]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, at + shift + 1
    raise ValueError("an integer is cut off")
