"""How long things last, when some of them have not ended yet: Kaplan and Meier's estimate.

What lasts until now counts as "at least so long": it lengthens what is expected and can never
shorten it. E. L. Kaplan and P. Meier, J. Am. Stat. Assoc. 53 (1958), weighted as in the
product-limit estimate of any textbook since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import log, sqrt
from operator import attrgetter
from typing import Final

from metlmon.frozen import frozen

ALIKE: Final = 0.1
"""Spread of things that seem to last equally long, as a share of it: two or three of them say
little of how far the next one may be off."""


@frozen
class Lifetime:
    """Something lasted for so many seconds; not ``ended``: it lasts still, or was broken off."""

    seconds: float
    ended: bool = True
    weight: float = 1.0


_SECONDS: Final = attrgetter("seconds")
_ENDED: Final = attrgetter("ended")


@frozen
class KaplanMeier:
    """The share that lasts longer than a time: ``left`` of them behind each of ``times``.

    Beyond ``last``, the longest time seen, the share that is left dies away at a rate of one
    per ``spread``, which is that of the times that have ended (or per what has passed since, if
    that is longer: what has lasted for long beyond all others may last for long again).
    ``events``: samples that have ended.
    """

    times: tuple[float, ...]
    left: tuple[float, ...]
    last: float
    mean: float
    spread: float
    events: int

    @staticmethod
    def of(samples: Iterable[Lifetime]) -> KaplanMeier | None:
        """The curve of some samples; None when none of them has ended."""
        # The shortest first, and of those that are as long the ones that have ended.
        ordered = sorted(samples, key=_ENDED, reverse=True)
        ordered.sort(key=_SECONDS)
        ended = [sample for sample in ordered if sample.ended]
        if not ended:
            return None
        times: list[float] = []
        left: list[float] = []
        at_risk, share = sum([sample.weight for sample in ordered]), 1.0
        first = 0.0
        for sample in ordered:
            weight = sample.weight
            if sample.ended and at_risk > 0:
                stays = 1 - weight / at_risk
                after = share * stays if stays > 0 else 0.0
                after = after if after > 1e-12 else 0.0
                first += (share - after) * sample.seconds
                share = after
                times.append(sample.seconds)
                left.append(share)
            at_risk -= weight
        last = ordered[-1].seconds
        spread = _spread(ended)
        mean = first + share * (last + spread)
        return KaplanMeier(tuple(times), tuple(left), last, mean, spread, len(ended))

    def lasting(self, age: float) -> float:
        """The share that lasts longer than ``age``, 0–1."""
        at = bisect_right(self.times, age)
        return self.left[at - 1] if at else 1.0

    def remaining(self, share: float, age: float = 0.0) -> float:
        """Seconds beyond ``age`` within which this ``share`` (0–1, not 1) of those that have
        come so far will have ended."""
        wanted = self.lasting(age) * (1 - share)
        low, high = bisect_right(self.times, age), len(self.left)
        while low < high:
            middle = (low + high) // 2
            if self.left[middle] <= wanted:
                high = middle
            else:
                low = middle + 1
        if low < len(self.left) and wanted > 0:
            return self.times[low] - age
        beyond = max(self.last, age)
        there = max(self.lasting(beyond), 0.0)
        rate = max(self.spread, age - self.last)
        over = log(there / wanted) if there > 0 and wanted > 0 else -log(1 - share)
        return beyond - age + rate * max(0.0, over)


def _spread(ended: Sequence[Lifetime]) -> float:
    """One sigma of the times that have ended, at least :data:`ALIKE`."""
    weight = sum([sample.weight for sample in ended])
    mean = sum([sample.weight * sample.seconds for sample in ended]) / weight
    square = sum([sample.weight * (sample.seconds - mean) ** 2 for sample in ended]) / weight
    return max(sqrt(square), ALIKE * mean)
