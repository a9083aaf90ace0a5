"""Records of plain data in a file, each behind its length and its checksum.

In pieces, so that a large file is read and written some milliseconds at a time, beside
threads that have to answer meanwhile.
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
    """The records in ``file``, which has ``size`` bytes. Raises Spoilt, OSError."""
    if file.read(len(MAGIC)) != MAGIC:
        raise CacheMiss("not a file of records")
    left, before = size - len(MAGIC), MAGIC
    while True:
        head = file.read(_HEAD)
        length, checksum = int.from_bytes(head[:8], "little"), head[8:]
        left -= _HEAD + length
        if len(head) < _HEAD or left < 0:
            raise CacheMiss("it is cut off")
        payload = file.read(length)
        if _checksum(payload, before) != checksum:
            raise CacheMiss("a checksum is wrong")
        before = checksum
        if payload == _END:
            break
        yield _loaded(payload)
    if left:
        raise CacheMiss("something stands behind its end")


def write_records(file: BinaryIO, records: Iterable[object], most: int) -> None:
    """Write ``records``, in ``most`` bytes at most. Raises Spoilt, OSError."""
    file.write(MAGIC)
    written, before = len(MAGIC), MAGIC
    for payload in chain((pickle.dumps(record, protocol=5) for record in records), (_END,)):
        written += _HEAD + len(payload)
        if written > most:
            raise CacheMiss("too large")
        before = _checksum(payload, before)
        file.write(len(payload).to_bytes(8, "little") + before)
        file.write(payload)


def _checksum(payload: bytes, before: bytes) -> bytes:
    """Of a record behind another: none can be left out, moved, or be of another file."""
    return blake2b(payload, digest_size=_DIGEST, key=before).digest()


_PLAIN: Final = {"datetime": datetime, "timedelta": timedelta, "timezone": timezone}


class _PlainData(pickle.Unpickler):
    """Numbers, texts, bytes, moments, and what holds them: nothing that can do anything."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "datetime" and name in _PLAIN:
            return _PLAIN[name]
        raise CacheMiss(f"{module}.{name} is no plain data")


def _loaded(payload: bytes) -> Any:
    try:
        return _PlainData(io.BytesIO(payload)).load()
    except Exception as error:
        # What is no pickle raises whatever comes first.
        raise CacheMiss(str(error)) from error
