"""Numbers as trainings write them."""

from __future__ import annotations

import math
import re
from typing import Final

NAN: Final = math.nan
"""One object for every NaN that is read: two records of the same file are then equal."""

NUMBER: Final = r"[-+]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,5})?"
"""A decimal number; every part is bounded, so that no text makes a search slow."""

VALUE: Final = rf"(?:{NUMBER}|[-+]?(?i:nan|inf(?:inity)?)\b)"
"""A number, or what Python, torch and numpy write where there is none."""

_WRAPPED: Final = re.compile(r"(?:tensor|(?:np|numpy)\.float\d{1,3})\(([^,()]{1,60})[^()]{0,60}\)")
"""``tensor(0.27, device='cuda:0')``, ``np.float64(0.27)``."""

_VALUE: Final = re.compile(VALUE)
_MICROSOFT: Final = re.compile(r"([-+]?)1\.#(INF|IND|QNAN|SNAN)\d{0,9}|[-+]?nan\(\w{0,9}\)", re.I)
"""How C libraries of old Windows write them, and glibc's ``-nan(ind)``."""


def number(text: str) -> float | None:
    """The number that a field or a match holds; None where it is none.

    NaN and the infinities are numbers here: what a diverged training wrote is told, not lost.
    """
    text = text.strip()
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is not None:
        text = wrapped.group(1).strip()
    odd = _MICROSOFT.fullmatch(text)
    if odd is not None:
        if (odd.group(2) or "").upper() == "INF":
            return -math.inf if odd.group(1) == "-" else math.inf
        return NAN
    if _VALUE.fullmatch(text) is None:
        return None
    value = float(text)
    return NAN if math.isnan(value) else value
