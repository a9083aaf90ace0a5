"""Median, quartiles, and the quantiles of the normal and the gamma distribution.

All but the gamma quantiles equal those of :mod:`statistics` to the last digit. Importing that
module would cost every command five milliseconds (it imports decimal, fractions and random).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log, sqrt
from typing import Final

CENTRAL_RANGE: Final = 0.425
"""Distance from 0.5 up to which the first of the two rational functions below applies."""

# M. J. Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", Applied
# Statistics 37 (1988), as in CPython's ``statistics.py``: coefficients of the highest power first.
_CENTRE_NUMERATOR: Final = (
    *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4),
    *(4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3),
    *(1.3314166789178437745e2, 3.3871328727963666080e0),
)
_CENTRE_DENOMINATOR: Final = (
    *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4),
    *(2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2),
    *(4.2313330701600911252e1, 1.0),
)
_TAIL_NUMERATOR: Final = (
    *(7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1),
    *(1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0),
    *(4.63033784615654529590e0, 1.42343711074968357734e0),
)
_TAIL_DENOMINATOR: Final = (
    *(1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2),
    *(1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0),
    *(2.05319162663775882187e0, 1.0),
)


def median(values: Iterable[float]) -> float:
    """The median of at least one value."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def quarters(values: Iterable[float]) -> tuple[float, float, float]:
    """The quartiles of at least two values (the inclusive method)."""
    ordered = sorted(values)
    lower, middle, upper = (
        _between(ordered, *divmod(i * (len(ordered) - 1), 4)) for i in (1, 2, 3)
    )
    return lower, middle, upper


def _between(ordered: Sequence[float], index: int, fourths: int) -> float:
    if not fourths:
        return (ordered[index] * 4) / 4
    return (ordered[index] * (4 - fourths) + ordered[index + 1] * fourths) / 4


def normal(share: float) -> float:
    """The standard normal quantile of ``share`` (0–1, at least 1e-10 away from both)."""
    q = share - 0.5
    if abs(q) <= CENTRAL_RANGE:
        r = 0.180625 - q * q
        return _polynomial(_CENTRE_NUMERATOR, r) * q / _polynomial(_CENTRE_DENOMINATOR, r)
    r = sqrt(-log(share if q <= 0 else 1.0 - share)) - 1.6
    x = _polynomial(_TAIL_NUMERATOR, r) / _polynomial(_TAIL_DENOMINATOR, r)
    return -x if q < 0 else x


def gamma(shape: float, z: float) -> float:
    """The quantile of a gamma distribution with mean 1, at the standard score ``z``.

    Wilson and Hilferty's cube approximation for the given ``shape``.
    """
    if shape <= 0:
        return 1.0
    return max(0.0, 1 - 1 / (9 * shape) + z / (3 * sqrt(shape))) ** 3


def _polynomial(coefficients: Sequence[float], r: float) -> float:
    value = 0.0
    for coefficient in coefficients:
        value = value * r + coefficient
    return value
