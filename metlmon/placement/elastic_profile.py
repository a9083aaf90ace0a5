"""Throughput of elastic trainings by number of nodes, from what they log while they run.

Nothing is interrupted to measure it: each epoch, and the batches per second of the running one, is
a sample on the number of nodes it happened to have. A training's throughput on n nodes is taken as
rate · n^exponent, a line in logarithms, fitted by Bayesian regression; the prior of a training is
what the other ones have in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from metlmon.stats.pool_profiles import ProfileFigure

EXPONENT: Final = 0.93
EXPONENT_SIGMA: Final = 0.05
"""Prior of the exponent: data-parallel training on up to 64 nodes is 1.02 to 1.2 times slower for
each fourfold of nodes than linear."""

MISFIT: Final = 0.04
"""Log-scale standard deviation of a throughput around its line: real curves have steps."""

NOISE: Final = 0.1
"""Log-scale standard deviation of one logged rate."""

NO_RATE_SIGMA: Final = 1.0
"""Log-scale standard deviation of rates between trainings while fewer than two are known."""

_Z80: Final = 1.2816
"""Of the normal distribution: the interval that holds 80 %."""


class ThroughputSample(Struct, frozen=True, kw_only=True):
    """The work per second that a training logged on ``nodes`` nodes, in any unit."""

    run: str
    nodes: int
    rate: float


class ThroughputProfile(Struct, frozen=True, kw_only=True):
    """The throughput of one training: the normal distribution of its line in logarithms.

    ``level``: log of the rate on one node; ``exponent``. ``variances``: of the level, of both
    (covariance), of the exponent. ``samples``: of this training; ``borrowed``: what else the
    figures come from, empty if nothing.
    """

    run: str
    level: float
    exponent: float
    variances: tuple[float, float, float]
    samples: int
    borrowed: str = ""

    def figure(self, nodes: int) -> ProfileFigure:
        """The work per second on ``nodes`` nodes (at least 1)."""
        x = math.log(nodes)
        of_level, of_both, of_exponent = self.variances
        sigma = math.sqrt(of_level + 2 * of_both * x + of_exponent * x * x + MISFIT**2)
        middle, factor = self.level + self.exponent * x, _Z80 * sigma
        low, high = math.exp(middle - factor), math.exp(middle + factor)
        return ProfileFigure(math.exp(middle), low, high, self.samples, borrowed=self.borrowed)

    def curve(self, maximum: int) -> tuple[float, ...]:
        """The expected work per second on 0, 1, … ``maximum`` nodes: monotone and concave."""
        # The mean of a log-normal rate, so that a training of which little is known gets a try.
        rate = math.exp(self.level + self.variances[0] / 2)
        exponent = min(1.0, max(0.0, self.exponent))
        return (0.0, *(rate * nodes**exponent for nodes in range(1, maximum + 1)))

    def speedups(self, maximum: int) -> tuple[float, ...]:
        """The speedup over one node on 0, 1, … ``maximum`` nodes."""
        exponent = min(1.0, max(0.0, self.exponent))
        return (0.0, *(nodes**exponent for nodes in range(1, maximum + 1)))


class _Line(Struct, frozen=True):
    """A line in logarithms with its variances, as in :class:`ThroughputProfile`."""

    level: float
    exponent: float
    variances: tuple[float, float, float]


def learn_throughput(
    samples: Iterable[ThroughputSample], runs: Sequence[str]
) -> Mapping[str, ThroughputProfile]:
    """The profiles of the trainings ``runs``, by run; without any sample the unit is arbitrary."""
    points: dict[str, dict[int, list[float]]] = {}
    for sample in samples:
        if sample.nodes > 0 and 0 < sample.rate < math.inf:
            rates = points.setdefault(sample.run, {}).setdefault(sample.nodes, [])
            rates.append(math.log(sample.rate))
    population = _population(points)
    profiles = {}
    for run in runs:
        own = points.get(run, {})
        line = _posterior(own, population)
        profiles[run] = ThroughputProfile(
            run=run,
            level=line.level,
            exponent=line.exponent,
            variances=line.variances,
            samples=sum(map(len, own.values())),
            borrowed=_borrowed(own, len(points.keys() - {run})),
        )
    return profiles


def _borrowed(own: Mapping[int, Sequence[float]], others: int) -> str:
    if len(own) > 2:
        return ""
    return "other runs" if others else "usual scaling"


def _population(points: Mapping[str, Mapping[int, Sequence[float]]]) -> _Line:
    """What trainings have in common: the prior of each one."""
    usual = _Line(0.0, EXPONENT, (NO_RATE_SIGMA**2, 0.0, EXPONENT_SIGMA**2))
    # The level of each is fitted with hardly any prior, the exponent with the usual one.
    loose = _Line(0.0, EXPONENT, (1e6, 0.0, EXPONENT_SIGMA**2))
    lines = [_posterior(each, loose) for each in points.values()]
    if not lines:
        return usual
    level = sum(line.level for line in lines) / len(lines)
    squares = sum((line.level - level) ** 2 for line in lines)
    # One training's worth of the usual spread, which the trainings known outweigh.
    spread = (squares + NO_RATE_SIGMA**2) / len(lines)
    # An exponent counts by what its samples added to the usual prior.
    added = [max(0.0, 1 / line.variances[2] - 1 / EXPONENT_SIGMA**2) for line in lines]
    weights = [w / (1 + w * EXPONENT_SIGMA**2) for w in added]
    strength = 1 / EXPONENT_SIGMA**2
    total = sum(w * line.exponent for w, line in zip(weights, lines, strict=True))
    exponent = (strength * EXPONENT + total) / (strength + sum(weights))
    return _Line(level, exponent, (max(spread, MISFIT**2), 0.0, EXPONENT_SIGMA**2))


def _posterior(points: Mapping[int, Sequence[float]], prior: _Line) -> _Line:
    """The line given the logs of rates by number of nodes: conjugate regression of two values."""
    # Precision matrix ((a, b), (b, c)) and the right side (u, v) of the normal equations.
    a, b, c = 1 / prior.variances[0], 0.0, 1 / prior.variances[2]
    u, v = a * prior.level, c * prior.exponent
    for nodes, rates in points.items():
        x, y = math.log(nodes), sum(rates) / len(rates)
        # Samples on the same number of nodes share the misfit of the line there.
        weight = 1 / (MISFIT**2 + NOISE**2 / len(rates))
        a, b, c = a + weight, b + weight * x, c + weight * x * x
        u, v = u + weight * y, v + weight * x * y
    determinant = a * c - b * b
    return _Line(
        (c * u - b * v) / determinant,
        (a * v - b * u) / determinant,
        (c / determinant, -b / determinant, a / determinant),
    )
