"""Kaplan–Meier survival curve of weighted, right-censored durations.

A duration that is still in progress is censored: it can lengthen an estimate, never shorten it.
E. L. Kaplan and P. Meier, J. Am. Stat. Assoc. 53 (1958); the weighted product-limit estimate.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import log, sqrt
from operator import attrgetter
from typing import Final

from msgspec import Struct

MIN_RELATIVE_SIGMA: Final = 0.1
"""Minimum standard deviation relative to the mean: two or three equal samples prove little."""


class Lifetime(Struct, frozen=True):
    """A duration in seconds; censored (in progress or interrupted) unless ``ended``."""

    seconds: float
    ended: bool = True
    weight: float = 1.0


_SECONDS: Final = attrgetter("seconds")
_ENDED: Final = attrgetter("ended")


class KaplanMeier(Struct, frozen=True):
    """A survival curve: ``survivals`` is the share that survives each of ``times``.

    Beyond ``longest``, the longest duration, survival decays exponentially with the time constant
    ``sigma``, the standard deviation of the ended durations (or the time since ``longest``, if
    longer: a duration far beyond all others may last as long again). ``events``: the number of
    ended durations.
    """

    times: tuple[float, ...]
    survivals: tuple[float, ...]
    longest: float
    mean: float
    sigma: float
    events: int

    @staticmethod
    def fit(samples: Iterable[Lifetime]) -> KaplanMeier | None:
        """Fit a curve to the samples; None if all of them are censored."""
        # In ascending order; among equal durations the ended ones come first.
        ordered = sorted(samples, key=_ENDED, reverse=True)
        ordered.sort(key=_SECONDS)
        ended = [sample for sample in ordered if sample.ended]
        if not ended:
            return None
        times: list[float] = []
        survivals: list[float] = []
        at_risk, survival = sum([sample.weight for sample in ordered]), 1.0
        observed_mean = 0.0
        for sample in ordered:
            weight = sample.weight
            if sample.ended and at_risk > 0:
                conditional_survival = 1 - weight / at_risk
                next_survival = survival * conditional_survival if conditional_survival > 0 else 0.0
                next_survival = next_survival if next_survival > 1e-12 else 0.0
                observed_mean += (survival - next_survival) * sample.seconds
                survival = next_survival
                times.append(sample.seconds)
                survivals.append(survival)
            at_risk -= weight
        longest = ordered[-1].seconds
        sigma = _sigma(ended)
        mean = observed_mean + survival * (longest + sigma)
        return KaplanMeier(
            times=tuple(times),
            survivals=tuple(survivals),
            longest=longest,
            mean=mean,
            sigma=sigma,
            events=len(ended),
        )

    def survival(self, age: float) -> float:
        """The survival at ``age``: the share that lasts longer, 0–1."""
        index = bisect_right(self.times, age)
        return self.survivals[index - 1] if index else 1.0

    def conditional_quantile(self, share: float, age: float = 0.0) -> float:
        """The quantile at ``share`` (0–1, not 1) of the seconds left at ``age``."""
        target_survival = self.survival(age) * (1 - share)
        low, high = bisect_right(self.times, age), len(self.survivals)
        while low < high:
            middle = (low + high) // 2
            if self.survivals[middle] <= target_survival:
                high = middle
            else:
                low = middle + 1
        if low < len(self.survivals) and target_survival > 0:
            return self.times[low] - age
        tail_start = max(self.longest, age)
        tail_survival = max(self.survival(tail_start), 0.0)
        time_constant = max(self.sigma, age - self.longest)
        multiples = (
            log(tail_survival / target_survival)
            if tail_survival > 0 and target_survival > 0
            else -log(1 - share)
        )
        return tail_start - age + time_constant * max(0.0, multiples)


def _sigma(ended: Sequence[Lifetime]) -> float:
    """The standard deviation of the ended durations, with a lower limit."""
    weight = sum([sample.weight for sample in ended])
    mean = sum([sample.weight * sample.seconds for sample in ended]) / weight
    variance = sum([sample.weight * (sample.seconds - mean) ** 2 for sample in ended]) / weight
    return max(sqrt(variance), MIN_RELATIVE_SIGMA * mean)
