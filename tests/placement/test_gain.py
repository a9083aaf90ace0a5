"""The gain of a plan against the estimated end: by hand, and by simulated epochs."""

from __future__ import annotations

from random import Random
from statistics import mean

import pytest
from msgspec.structs import replace

from metlmon.placement.planner import Openings, PoolSet, end_hours, gain_of_plan, pool_supply
from metlmon.placement.types import PlanGain, PoolSupply, RunDemand
from metlmon.stats.pool_profiles import ProfileFigure, ResourcePool
from tests.support.pool_figures import DELTA, EXPANSE, by_pool, profile, runs

HALF = PoolSupply(pool=DELTA, hours=1.0, occupancy=1.0, gpu_hours=1.0, slots=2)
FAST, SLOW = profile(DELTA, 2.0, wait=6.0), profile(EXPANSE, 5.0, wait=6.0)
SUPPLIES = [pool_supply(each, 99) for each in (FAST, SLOW)]


def everywhere(pools: PoolSet, demands: list[RunDemand]) -> Openings:
    return {each.key: {pools: each.epochs_left} for each in demands}


@pytest.mark.parametrize("adds_up", [True, False])
def test_chain_hours_agree_with_simulated_epochs(adds_up: bool) -> None:
    """It starts at the first offer, and again after a loss; against 20,000 simulated epochs."""
    bad = profile(ResourcePool("bad", "A40"), 3.0, wait=2.0, loss=0.5, lost_hours=0.3)
    pools, epochs, random, hours = [SLOW, bad], 20_000, Random(3), 0.0
    waits, lengths = [6.0, 2.0], {SLOW.pool: 5.0, bad.pool: 3.0}
    for _ in range(epochs):
        is_done = False
        while not is_done:
            drawn = [random.expovariate(1 / wait) for wait in waits]
            wait = min(drawn)
            pool = pools[drawn.index(wait)]
            is_done = random.random() >= pool.loss.value
            hours += lengths[pool.pool] if is_done else pool.lost_hours
            hours += wait if adds_up else waits[drawn.index(wait)]
    supplies = [pool_supply(each, 99) for each in pools]
    end = end_hours(runs(epochs), supplies, {}, {}, added=float(adds_up))
    assert end == pytest.approx(hours, rel=0.02)


def test_jobs_of_one_target_keep_their_waits() -> None:
    """Each start at a site with two pools waited for the first offer of both."""
    figures = [profile(DELTA, 2.0, wait=6.0), profile(ResourcePool("delta", "A40"), 2.0, wait=6.0)]
    supplies, offers = [pool_supply(each, 99) for each in figures], {DELTA: 0.75}
    offers[figures[1].pool] = 0.25
    for added in (0.0, 0.5, 1.0):
        assert end_hours(runs(10), supplies, {}, offers, added) == pytest.approx(80)


def test_pools_take_over_when_an_annex_ends() -> None:
    """Two equal pools for ten epochs of eight runs: the second half takes twice as long."""
    annex = replace(HALF, pool=ResourcePool("anvil", DELTA.gpu, "spring"))
    demands = runs(*[10] * 8)
    assert end_hours(demands, [annex, HALF], {}, {}) == pytest.approx(20)
    ending = replace(annex, hours_left=10.0)
    assert end_hours(demands, [ending, HALF], {}, {}) == pytest.approx(10 + 20)
    assert end_hours(demands, [ending], {}, {}) is None


def test_run_uses_only_its_pools_and_shares_their_slots() -> None:
    slow = replace(HALF, pool=EXPANSE, hours=4.0, occupancy=4.0, slots=99)
    delta, expanse = frozenset([DELTA]), frozenset([EXPANSE])
    openings = {"run0": {delta: 10}, "run1": {expanse: 10}}
    assert end_hours(runs(10, 10), [HALF, slow], openings, {}) == pytest.approx(40, rel=0.02)
    crowd = runs(*[10] * 8)
    assert end_hours(crowd, [HALF, slow], everywhere(delta, crowd), {}) == pytest.approx(40)


def gain(as_is: PoolSet, planned: PoolSet, error: float = 0.1) -> PlanGain:
    """The gain for four runs of 20 epochs, with an estimate of 100 hours."""
    demands = runs(*[20] * 4)
    profiles = [
        replace(each, hours_per_epoch=ProfileFigure(2.0, 2 / (1 + error), 2 * (1 + error), 20))
        for each in (FAST, SLOW)
    ]
    found = gain_of_plan(
        100.0,
        demands,
        SUPPLIES,
        everywhere(as_is, demands),
        everywhere(planned, demands),
        {},
        by_pool(profiles),
    )
    assert found is not None
    return found


def test_gain_is_a_share_of_the_estimate_with_an_interval() -> None:
    delta, expanse = frozenset([DELTA]), frozenset([EXPANSE])
    faster = gain(expanse, delta)
    assert faster.hours == pytest.approx(100 * 3 / 11)
    assert faster.share == pytest.approx(3 / 11)
    assert faster.low < faster.hours < faster.high
    assert faster.is_worth_it
    unsure = gain(expanse, delta, error=9.0)
    assert unsure.low < 0
    assert not unsure.is_worth_it
    same = gain(delta, delta, error=9.0)
    assert (same.hours, same.low, same.high) == (0, 0, 0)
    assert not same.is_worth_it


def test_interval_covers_whether_offers_add_up() -> None:
    """Anywhere instead of one site: at best half of the wait, at worst all of it."""
    other = ResourcePool("anvil", DELTA.gpu)
    supplies = [SUPPLIES[0], replace(SUPPLIES[0], pool=other)]
    demands = runs(20)
    both, one = frozenset([DELTA, other]), frozenset([DELTA])
    as_is, planned = everywhere(one, demands), everywhere(both, demands)
    found = gain_of_plan(100.0, demands, supplies, as_is, planned, {}, {})
    assert 0 <= found.low < 10
    assert 30 < found.high < 100 * 3 / 8
    assert found.hours == pytest.approx(100 * (6 - 6 * 0.5**0.5) / 8)
    assert mean([found.low, found.high]) == pytest.approx(found.hours, rel=0.3)


def test_plan_that_changes_nothing_gains_exactly_nothing() -> None:
    """Sums in the order of a set, which the hash seed determines, differed by some 1e-18 hours."""
    random, demands = Random(0), runs(10, 7)
    for _ in range(500):
        figures = [
            profile(ResourcePool(f"site{n}", "A40"), random.random(), wait=random.random())
            for n in random.sample(range(99), 12)
        ]
        supplies = [pool_supply(each, 2) for each in figures]
        pools = frozenset(each.pool for each in random.sample(figures, len(figures)))
        end = end_hours(demands, supplies, {}, {})
        assert end == end_hours(demands, supplies, everywhere(pools, demands), {})
