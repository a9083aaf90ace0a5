"""Parses sizes, seeds and sites as typed in a form field or an option."""

from __future__ import annotations

import re
from typing import Final

MOST_SEEDS: Final = 100_000
"""Limit of an expanded range of seeds, so that a typing error cannot exhaust memory."""

_SIZE: Final = re.compile(r"([0-9]{1,15}) ?(?:([kmgt])i?b?)?", re.IGNORECASE)
_KB: Final = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3}
_RANGE: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


def megabytes(text: str) -> int | None:
    """``4096``, ``4096 MB``, ``4 GB`` or ``4g`` in MB, rounded up; None if invalid.

    A MB has 1024 kB, as in HTCondor.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    amount, unit = int(match[1]), (match[2] or "m").lower()
    return -(-amount * _KB[unit] // 1024)


def seeds_in(text: str) -> tuple[int, ...]:
    """Parse ``7, 11, 13`` or ``1-4``. Raises ValueError with a sentence."""
    seeds: list[int] = []
    for item in filter(None, re.split(r"[,\s]+", text.strip())):
        if match := _RANGE.fullmatch(item):
            first, last = int(match[1]), int(match[2])
            if not 0 <= last - first < MOST_SEEDS:
                raise ValueError("a range goes from its smaller seed to its larger, as 1-4")
            seeds.extend(range(first, last + 1))
        elif re.fullmatch(r"-?[0-9]{1,18}", item):
            seeds.append(int(item))
        else:
            raise ValueError("whole numbers are needed, such as 7, 11, 13 or 1-4")
    return tuple(seeds)


def sites_in(text: str) -> tuple[str, ...]:
    """Parse names separated by commas, without duplicates."""
    names = (name.strip() for name in text.split(","))
    return tuple(dict.fromkeys(name for name in names if name))
