"""What a template lets its parameters be.

``# allowed: rate 0..1`` is a number between two (either may be missing), ``# allowed: epoch
whole 0..`` a whole one, ``# allowed: backend python numpy torch`` one of some words. A job that
would only find out on an execute node has waited for hours to fail.
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
    """Values that a parameter may have: one of ``words``, or, without them, a number from
    ``low`` to ``high`` (``whole``: without a fraction)."""

    words: tuple[str, ...] = ()
    whole: bool = False
    low: float = -math.inf
    high: float = math.inf

    def misfit(self, value: str) -> str | None:
        """What a value must be instead, in words; None when it may stay."""
        if self.words:
            return None if value in self.words else f"one of {', '.join(self.words)}"
        wanted = f"a {'whole ' if self.whole else ''}number{self._between()}"
        try:
            number = float(value)
        except ValueError:
            return wanted
        fits = self.low <= number <= self.high and math.isfinite(number)
        if self.whole and not _WHOLE.fullmatch(value.strip()):
            fits = False
        return None if fits else wanted

    def _between(self) -> str:
        if math.isinf(self.low) and math.isinf(self.high):
            return ""
        if math.isinf(self.high):
            return f" from {self.low:g} on"
        if math.isinf(self.low):
            return f" up to {self.high:g}"
        return f" from {self.low:g} to {self.high:g}"


def read_allowed(text: str) -> Constraint | None:
    """What stands behind a parameter's name in ``# allowed:``; None when it says nothing."""
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
