"""Medians, quarters and the quantiles of two distributions. Medians, quarters and the normal
distribution's quantiles are the same to the last digit as those of :mod:`statistics`, whose import
takes every command five milliseconds (decimal numbers, fractions, random ones)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log, sqrt
from typing import Final

CENTRE: Final = 0.425
"""So far from one half the first of the two fractions below goes."""

# M. J. Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", Applied
# Statistics 37 (1988), as in CPython's ``statistics.py``: coefficients of the highest power first.
_CENTRE_ABOVE: Final = (
    *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4),
    *(4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3),
    *(1.3314166789178437745e2, 3.3871328727963666080e0),
)
_CENTRE_BELOW: Final = (
    *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4),
    *(2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2),
    *(4.2313330701600911252e1, 1.0),
)
_SIDES_ABOVE: Final = (
    *(7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1),
    *(1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0),
    *(4.63033784615654529590e0, 1.42343711074968357734e0),
)
_SIDES_BELOW: Final = (
    *(1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2),
    *(1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0),
    *(2.05319162663775882187e0, 1.0),
)


def median(values: Iterable[float]) -> float:
    """The middle one, or the mean of the two in the middle; of at least one value."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def quarters(values: Iterable[float]) -> tuple[float, float, float]:
    """The three points that part the values in four, the least and the largest of them being the
    ends; of at least two values."""
    ordered = sorted(values)
    lower, middle, upper = (
        _between(ordered, *divmod(i * (len(ordered) - 1), 4)) for i in (1, 2, 3)
    )
    return lower, middle, upper


def _between(ordered: Sequence[float], at: int, quarters_on: int) -> float:
    if not quarters_on:
        return (ordered[at] * 4) / 4
    return (ordered[at] * (4 - quarters_on) + ordered[at + 1] * quarters_on) / 4


def normal(share: float) -> float:
    """So many sigmas from the mean this share (0–1, nearer to neither than 1e-10) lies below."""
    q = share - 0.5
    if abs(q) <= CENTRE:
        r = 0.180625 - q * q
        return _polynomial(_CENTRE_ABOVE, r) * q / _polynomial(_CENTRE_BELOW, r)
    r = sqrt(-log(share if q <= 0 else 1.0 - share)) - 1.6
    x = _polynomial(_SIDES_ABOVE, r) / _polynomial(_SIDES_BELOW, r)
    return -x if q < 0 else x


def gamma(shape: float, z: float) -> float:
    """A sum of positive things, as a share of its mean, ``z`` sigmas from its middle: Wilson
    and Hilferty's cube for the gamma distribution of this ``shape``."""
    if shape <= 0:
        return 1.0
    return max(0.0, 1 - 1 / (9 * shape) + z / (3 * sqrt(shape))) ** 3


def _polynomial(coefficients: Sequence[float], r: float) -> float:
    value = 0.0
    for each in coefficients:
        value = value * r + each
    return value
