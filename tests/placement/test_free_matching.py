"""What HTCondor's matching alone makes of pools: against a simulation, and by hand."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from random import Random
from statistics import mean

import pytest
from msgspec.structs import replace

from metlmon.placement.free_matching import first_wait, matched_end
from metlmon.placement.supplies import pool_supply
from metlmon.placement.types import PoolSupply, RunDemand
from metlmon.stats.pool_profiles import PoolProfile, ResourcePool
from tests.support.pool_figures import DELTA, EXPANSE, profile

BAD = profile(ResourcePool("bad", "A40"), 3.0, loss=0.5, lost_hours=0.3, slots=4)
POOLS = [profile(DELTA, 2.0, slots=5), profile(EXPANSE, 5.0, transfer=0.5, slots=5), BAD]
HALF = PoolSupply(pool=DELTA, hours=1.0, occupancy=1.0, gpu_hours=1.0, slots=2)


def runs(*epochs_left: int) -> list[RunDemand]:
    return [RunDemand(run=f"run{n}", epochs_left=left) for n, left in enumerate(epochs_left)]


@pytest.mark.parametrize("count", [6, 14, 40])
def test_the_end_is_that_of_a_simulation_of_any_free_slot(count: int) -> None:
    """The mean rate in the middle of long chains, where no end and no chance matters."""
    epochs_left = [60] * count
    supplies = [pool_supply(each, each.slots) for each in POOLS]
    end = matched_end(runs(*epochs_left), supplies, {})
    assert end is not None
    hours, gpu_hours = simulated(POOLS, epochs_left)
    assert end == pytest.approx((hours, gpu_hours), rel=0.04)


def simulated(profiles: Sequence[PoolProfile], epochs_left: Sequence[int]) -> tuple[float, float]:
    """When the mean run has done its epochs, and GPU-hours, if each job takes any free slot."""
    random, free, gpu_hours = Random(3), [each.slots for each in profiles], 0.0
    left = dict(enumerate(epochs_left))
    idle, events, ends = list(left), [(0.0, -1, -1, False)], []
    while events:
        now, run, number, is_done = heapq.heappop(events)
        if run >= 0:
            free[number] += 1
            left[run] -= is_done
            idle.append(run) if left[run] else ends.append(now)
        while idle and any(free):
            run = idle.pop(0)
            number = random.choices(range(len(free)), weights=free)[0]
            free[number] -= 1
            pool = profiles[number]
            is_done = random.random() >= pool.loss.value
            hours = pool.hours.value if is_done else pool.lost_hours
            gpu_hours += hours
            heapq.heappush(events, (now + pool.transfer.value + hours, run, number, is_done))
    return mean(ends), gpu_hours


def test_an_annex_that_ends_half_way_leaves_the_rest_to_others() -> None:
    """Two equal pools for ten epochs of eight runs: the rest takes twice as long."""
    spring = ResourcePool("anvil", DELTA.gpu, "spring")
    annex = replace(HALF, pool=spring)
    demands = runs(*[10] * 8)
    assert matched_end(demands, [annex, HALF], {}) == pytest.approx((20, 80))
    ending = replace(annex, hours_left=10.0)
    assert matched_end(demands, [ending, HALF], {}) == pytest.approx((10 + 20, 80))
    assert matched_end(demands, [ending], {}) is None


def test_a_run_goes_to_its_own_pools_alone() -> None:
    slow = replace(HALF, pool=EXPANSE, hours=4.0, occupancy=4.0, gpu_hours=4.0)
    demands = runs(10, 10)
    pools = {"run0": frozenset([DELTA]), "run1": frozenset([EXPANSE])}
    assert matched_end(demands, [HALF, slow], pools) == pytest.approx((40, 50))
    pools = {"run0": frozenset([DELTA]), "run1": frozenset([DELTA])}
    assert matched_end(demands, [HALF, slow], pools) == pytest.approx((10, 20))


def test_the_first_of_several_pools_is_waited_for() -> None:
    """Against the minima of exponential waits."""
    random = Random(5)
    minima = [min(random.expovariate(1 / 3), random.expovariate(1 / 6)) for _ in range(20_000)]
    assert first_wait([3.0, 6.0]) == pytest.approx(mean(minima), rel=0.03)
    assert first_wait([3.0, 0.0]) == 0
    waiting = replace(HALF, hours=5.0, wait=4.0)
    demands = runs(10)
    assert matched_end(demands, [waiting], {}) == pytest.approx((50, 10))
    other = replace(waiting, pool=EXPANSE)
    assert matched_end(demands, [waiting, other], {}) == pytest.approx((30, 10))
