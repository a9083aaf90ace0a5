"""Constraints on the values of template parameters.

``# allowed: rate 0..1`` is a range of numbers (either end may be missing), ``# allowed: epoch whole
0..`` one of whole numbers, ``# allowed: backend python numpy torch`` a choice of words. Checking
them here saves a job that would wait for hours only to fail on an execute node.
"""

from __future__ import annotations

import math
import re
from typing import Final

from metlmon.frozen import frozen

_RANGE: Final = re.compile(r"(whole\s+)?(-?[\d.]*\d)?\.\.(-?\d[\d.]*)?")
_WHOLE: Final = re.compile(r"[+-]?\d{1,18}")


@frozen
class Constraint:
    """The values that a parameter may have.

    One of ``words``; if empty, a number from ``low`` to ``high`` (``whole``: without a fraction).
    """

    words: tuple[str, ...] = ()
    whole: bool = False
    low: float = -math.inf
    high: float = math.inf

    def misfit(self, value: str) -> str | None:
        """What the value should be instead, as text; None if it is valid."""
        if self.words:
            return None if value in self.words else f"one of {', '.join(self.words)}"
        expected = f"a {'whole ' if self.whole else ''}number{self._range_text()}"
        try:
            number = float(value)
        except ValueError:
            return expected
        fits = self.low <= number <= self.high and math.isfinite(number)
        if self.whole and not _WHOLE.fullmatch(value.strip()):
            fits = False
        return None if fits else expected

    def _range_text(self) -> str:
        if math.isinf(self.low) and math.isinf(self.high):
            return ""
        if math.isinf(self.high):
            return f" from {self.low:g} on"
        if math.isinf(self.low):
            return f" up to {self.high:g}"
        return f" from {self.low:g} to {self.high:g}"


def read_allowed(text: str) -> Constraint | None:
    """Parse the text after the parameter's name in ``# allowed:``; None if invalid."""
    text = text.strip()
    if not text:
        return None
    match = _RANGE.fullmatch(text)
    if match is None:
        return Constraint(words=tuple(text.split()))
    try:
        low = float(match[2]) if match[2] else -math.inf
        high = float(match[3]) if match[3] else math.inf
    except ValueError:
        return None
    return Constraint(whole=match[1] is not None, low=low, high=high)
