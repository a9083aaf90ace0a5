"""Reads and writes records of plain data, each with its length and checksum.

One record takes milliseconds, so that other threads can run in between.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from hashlib import blake2b
from itertools import chain
from typing import Any, BinaryIO, Final

from metlmon.live.cache import CacheMiss

MAGIC: Final = b"metlmon kept 1\n"
_END: Final = b"end"
_DIGEST: Final = 16
_HEAD: Final = 8 + _DIGEST


def read_records(file: BinaryIO, size: int) -> Iterator[Any]:
    """Yield the records of ``file``, of ``size`` bytes. Raises CacheMiss, OSError."""
    if file.read(len(MAGIC)) != MAGIC:
        raise CacheMiss("not a file of records")
    remaining, previous = size - len(MAGIC), MAGIC
    while True:
        head = file.read(_HEAD)
        length, checksum = int.from_bytes(head[:8], "little"), head[8:]
        remaining -= _HEAD + length
        if len(head) < _HEAD or remaining < 0:
            raise CacheMiss("it is cut off")
        payload = file.read(length)
        if _checksum(payload, previous) != checksum:
            raise CacheMiss("a checksum is wrong")
        previous = checksum
        if payload == _END:
            break
        yield _load(payload)
    if remaining:
        raise CacheMiss("something stands behind its end")


def write_records(file: BinaryIO, records: Iterable[object], max_bytes: int) -> None:
    """Write ``records``, at most ``max_bytes``. Raises CacheMiss, OSError."""
    file.write(MAGIC)
    written, previous = len(MAGIC), MAGIC
    for payload in chain((pickle.dumps(record, protocol=5) for record in records), (_END,)):
        written += _HEAD + len(payload)
        if written > max_bytes:
            raise CacheMiss("too large")
        previous = _checksum(payload, previous)
        file.write(len(payload).to_bytes(8, "little") + previous)
        file.write(payload)


def _checksum(payload: bytes, previous: bytes) -> bytes:
    """Chain the checksum to the previous one, to detect missing or moved records."""
    return blake2b(payload, digest_size=_DIGEST, key=previous).digest()


_ALLOWED_CLASSES: Final = {"datetime": datetime, "timedelta": timedelta, "timezone": timezone}


class _PlainData(pickle.Unpickler):
    """Loads numbers, strings, bytes, times and containers only: no code can run."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "datetime" and name in _ALLOWED_CLASSES:
            return _ALLOWED_CLASSES[name]
        raise CacheMiss(f"{module}.{name} is no plain data")


def _load(payload: bytes) -> Any:
    try:
        return _PlainData(io.BytesIO(payload)).load()
    except Exception as error:
        # Invalid pickle data can raise any exception.
        raise CacheMiss(str(error)) from error
