"""Places that lose what they take: the loss rate as a Beta posterior, and black holes.

A black hole takes executions and finishes none. Whether a place is one follows from Bayes' rule for
two hypotheses: it loses all, or it loses as many as others do and its losses are bad luck.
Health and placement use the same rule.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, lgamma, log, log1p
from typing import Final

MIN_LOSSES: Final = 5
"""Minimum losses in a row of a black hole: fewer may be bad luck, whatever happens elsewhere."""

SITE_PRIOR: Final = 0.01
"""Prior probability that a site is a black hole."""

HOST_PRIOR: Final = 1e-4
"""The same for a host: a site has many, and jobs meet each of them only a few times."""

MIN_PROBABILITY: Final = 0.9
"""Posterior probability from which a place is called a black hole."""

FRACTION_STEPS: Final = 200
BISECTIONS: Final = 24
TINY: Final = 1e-300


def expected_loss(good: int, lost: int) -> float | None:
    """The share of executions that other places lose; None if these have finished none.

    Without a loss it is estimated as if there were half of one.
    """
    return max(lost, 0.5) / (good + lost) if good else None


def is_black_hole(lost: int, loss_elsewhere: float | None, prior: float = SITE_PRIOR) -> bool:
    """Whether a place that lost its last ``lost`` executions is a black hole.

    ``loss_elsewhere``: see :func:`expected_loss`; None if nothing can be compared. ``prior``: the
    probability that a place loses all, before these executions.
    """
    if loss_elsewhere is None or lost < MIN_LOSSES:
        return False
    luck = exp(lost * log(loss_elsewhere))
    return prior / (prior + (1 - prior) * luck) >= MIN_PROBABILITY


@lru_cache(maxsize=4096)
def beta_quantile(share: float, a: float, b: float) -> float:
    """The quantile at ``share`` (0–1) of the Beta distribution with parameters ``a`` and ``b``."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if beta_cdf(middle, a, b) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2 if low else 0.0


def beta_cdf(x: float, a: float, b: float) -> float:
    """The distribution function of Beta(``a``, ``b``), the regularized incomplete beta function.

    By its continued fraction (W. H. Press et al., Numerical Recipes, section 6.4).
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, FRACTION_STEPS):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + factor * d)
            c = _not_zero(1 + factor / c)
            value *= d * c
        if abs(d * c - 1) < 1e-9:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY
