"""Throughput of elastic trainings, learned from the rates that they happened to log."""

import math
import random
from itertools import pairwise

import pytest

from metlmon.placement.elastic_profile import EXPONENT, ThroughputSample, learn_throughput


def samples(
    run: str, counts: list[int], rate: float, exponent: float, sigma: float = 0.0
) -> list[ThroughputSample]:
    rng = random.Random(run)
    return [
        ThroughputSample(run=run, nodes=n, rate=rate * n**exponent * math.exp(rng.gauss(0, sigma)))
        for n in counts
    ]


def test_without_samples_all_trainings_scale_as_usual():
    profiles = learn_throughput([], ["run0", "run1"])
    assert profiles["run0"].curve(64) == profiles["run1"].curve(64)
    assert profiles["run0"].speedups(4)[4] == pytest.approx(4**EXPONENT)
    assert profiles["run0"].borrowed == "usual scaling"


def test_one_rate_tells_a_slow_training_from_a_fast_one():
    logged = samples("slow", [8], 100, 0.93) + samples("fast", [3], 700, 0.93)
    profiles = learn_throughput(logged, ["slow", "fast", "new"])
    assert profiles["fast"].figure(1).value == pytest.approx(700, rel=0.1)
    assert profiles["slow"].figure(1).value == pytest.approx(100, rel=0.15)
    # Of a new one the others are known: between them, and uncertain.
    new = profiles["new"].figure(1)
    assert new.low < 100 < new.value < 700 < new.high
    assert new.borrowed == "other runs"
    assert new.samples == 0


def test_rates_on_several_numbers_of_nodes_give_the_scaling():
    logged = samples("run0", [1, 2, 4, 8, 16, 32, 64] * 20, 3000, 0.80, sigma=0.05)
    profile = learn_throughput(logged, ["run0"])["run0"]
    assert profile.exponent == pytest.approx(0.80, abs=0.03)
    assert profile.figure(64).value == pytest.approx(3000 * 64**0.80, rel=0.1)
    assert profile.borrowed == ""


@pytest.mark.parametrize("exponent", [0.3, 0.9, 1.4])
def test_curves_are_monotone_and_concave(exponent: float):
    curve = learn_throughput(samples("run0", [1, 30, 64] * 9, 5, exponent), ["run0"])["run0"].curve(
        64
    )
    gains = [b - a for a, b in pairwise(curve)]
    assert all(gain >= 0 for gain in gains)
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(gains))


def test_intervals_hold_the_true_throughput_in_four_of_five_cases():
    rng, inside = random.Random(4), 0
    for case in range(400):
        rate, exponent = rng.lognormvariate(0, 1), rng.gauss(0.93, 0.05)
        misfit = {n: rng.gauss(0, 0.04) for n in (2, 3, 5, 16)}
        logged = [
            ThroughputSample(
                run=str(case),
                nodes=n,
                rate=rate * n**exponent * math.exp(misfit[n] + rng.gauss(0, 0.1)),
            )
            for n in (2, 3, 5)
        ]
        figure = learn_throughput(logged, [str(case)])[str(case)].figure(16)
        inside += figure.low <= rate * 16**exponent * math.exp(misfit[16]) <= figure.high
    assert 0.75 <= inside / 400 <= 0.87


def test_damaged_rates_are_no_samples():
    odd = [
        ThroughputSample(run="run0", nodes=n, rate=rate)
        for n, rate in ((0, 1.0), (2, 0.0), (2, math.inf), (2, math.nan), (2, -1.0))
    ]
    assert learn_throughput(odd, ["run0"])["run0"].samples == 0
