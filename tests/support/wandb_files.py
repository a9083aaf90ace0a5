"""Files of W&B runs, written without the library: its log of records, and the records."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

BLOCK: Final = 32768

HEADER: Final = b":W&B\xe1\xbe\0"


def log_file(records: Iterable[bytes]) -> bytes:
    """A file with these records."""
    out = bytearray(HEADER)
    for record in records:
        begin = True
        while True:
            room = BLOCK - len(out) % BLOCK - 7
            if room < 0:
                out += bytes(room + 7)
                continue
            piece, record = record[:room], record[room:]
            kind = (1 if begin else 4) if not record else (2 if begin else 3)
            checksum = zlib.crc32(bytes([kind]) + piece)
            out += struct.pack("<IHB", checksum, len(piece), kind) + piece
            begin = False
            if not record:
                break
    return bytes(out)


def log_records(data: bytes) -> Iterator[bytes]:
    """The complete records in an undamaged file."""
    assert data[:7] == HEADER
    at, parts = 7, b""
    while True:
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
        if at + 7 > len(data):
            return
        checksum, length, kind = struct.unpack_from("<IHB", data, at)
        piece = data[at + 7 : at + 7 + length]
        if len(piece) < length:
            return
        assert zlib.crc32(bytes([kind]) + piece) == checksum
        parts += piece
        if kind in (1, 4):
            yield parts
            parts = b""
        at += 7 + length


def history_record(values: Mapping[str, Any]) -> bytes:
    """A row of the history; dots in its names separate the keys of nested metrics."""
    items = b""
    for name, value in values.items():
        keys = b"".join(_text(2, key.encode()) for key in name.split("."))
        items += _text(1, keys + _text(16, json.dumps(value).encode()))
    return _text(2, items)


def run_record(started: int, config: Mapping[str, Any] | None = None) -> bytes:
    """The start of a run, in seconds since 1970."""
    updates = b"".join(
        _text(1, _text(1, name.encode()) + _text(16, json.dumps(value).encode()))
        for name, value in (config or {}).items()
    )
    return _text(17, _text(4, updates) + _text(17, _varint(1 << 3) + _varint(started)))


def _text(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
