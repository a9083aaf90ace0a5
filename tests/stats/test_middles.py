"""What is computed without the statistics module is what that would say."""

from __future__ import annotations

import random
import statistics

import pytest

from metlmon.stats.quantiles import median, normal, quarters


@pytest.mark.parametrize("seed", range(20))
def test_medians_and_quarters(seed: int) -> None:
    dice = random.Random(seed)
    for n in (1, 2, 3, 4, 5, 17, 100):
        values = [dice.choice([dice.random() * 1e5, float(dice.randrange(9))]) for _ in range(n)]
        assert median(values) == statistics.median(values)
        if n > 1:
            assert list(quarters(values)) == statistics.quantiles(values, n=4, method="inclusive")


def test_the_normal_distribution() -> None:
    known = statistics.NormalDist()
    shares = [(i + 0.5) / 211 for i in range(211)] + [1e-9, 0.074, 0.075, 0.925, 0.926, 1 - 1e-9]
    for share in shares:
        assert normal(share) == pytest.approx(known.inv_cdf(share), rel=1e-13, abs=1e-15)
    assert normal(0.5) == 0
