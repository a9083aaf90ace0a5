"""What people type for sizes, seeds and sites: the same in a field and after an option."""

from __future__ import annotations

import re
from typing import Final

MOST_SEEDS: Final = 100_000
"""A range of seeds is written out: a slip of the finger must not fill the memory."""

_SIZE: Final = re.compile(r"([0-9]{1,15}) ?(?:([kmgt])i?b?)?", re.IGNORECASE)
_KB: Final = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3}
_RANGE: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


def megabytes(text: str) -> int | None:
    """``4096``, ``4096 MB``, ``4 GB`` or ``4g`` in MB (of 1024 kB, as HTCondor counts), rounded
    up; None when it is no size."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    amount, unit = int(found[1]), (found[2] or "m").lower()
    return -(-amount * _KB[unit] // 1024)


def seeds_in(text: str) -> tuple[int, ...]:
    """``7, 11, 13`` or ``1-4``. Raises ValueError with a sentence."""
    seeds: list[int] = []
    for word in filter(None, re.split(r"[,\s]+", text.strip())):
        if span := _RANGE.fullmatch(word):
            first, last = int(span[1]), int(span[2])
            if not 0 <= last - first < MOST_SEEDS:
                raise ValueError("a range goes from its smaller seed to its larger, as 1-4")
            seeds.extend(range(first, last + 1))
        elif re.fullmatch(r"-?[0-9]{1,18}", word):
            seeds.append(int(word))
        else:
            raise ValueError("whole numbers are needed, such as 7, 11, 13 or 1-4")
    return tuple(seeds)


def sites_in(text: str) -> tuple[str, ...]:
    """Names with commas between, each once."""
    names = (each.strip() for each in text.split(","))
    return tuple(dict.fromkeys(name for name in names if name))
