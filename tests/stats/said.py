"""What a source of numbers says: the words that all collectors of the agreement test share."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from metlmon.stats.frames import TEXT_LIMIT
from metlmon.text.formatting import plain

KINDS: Final = ("good", "bad", "in_flight")

TO_THE_HOUR = 0.5e-6 * 3600
"""GPU-hours are printed to six decimals: so many seconds may be lost."""

TO_THE_MILLISECOND = 0.5e-3

What = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """``what`` begins with the family of numbers that it is of; ``off``: by how much the value
    may be off, for what was rounded when it was printed."""

    what: What
    value: object
    off: float = 0.0


def model(name: Any) -> Any:
    """A GPU's model without its maker, as reports name it."""
    return name if name is pd.NA or name is None else re.sub(r"^(NVIDIA |Tesla )+", "", name)


def named(value: Any) -> object:
    """A name or a code as all sources have it: one harmless line, None for "not known"."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        return plain(value, TEXT_LIMIT)
    return str(value) if isinstance(value, pd.Timestamp) else value
