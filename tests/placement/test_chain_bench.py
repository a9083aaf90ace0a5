"""The simulator of the chain bench: a case by hand, its bound, and that plans pay."""

from __future__ import annotations

import pytest

from metlmon.placement.chains import solve_chains
from metlmon.placement.types import PoolSupply, RunDemand
from metlmon.stats.pool_profiles import ResourcePool
from tests.bench.placement import (
    DEVELOPMENT_SEEDS,
    POLICIES,
    SETTINGS,
    SimulatedPool,
    Simulation,
    fluid_bound,
    generated_epochs,
    generated_pools,
)

pytest.importorskip("highspy")

MAIN = SETTINGS[0]
SEED = DEVELOPMENT_SEEDS[0]


def pool(site: str, hours: float, slots: int, ends: float | None = None) -> SimulatedPool:
    return SimulatedPool(pool=ResourcePool(site), hours=hours, slots=slots, ends=ends)


def test_the_bound_is_that_of_the_plan_and_of_arithmetic() -> None:
    """One slot each of 2 and 4 hours do 3 epochs in 4 hours; 2 runs x 3 epochs take 8."""
    assert fluid_bound([pool("a", 2.0, 1), pool("b", 4.0, 1)], [3, 3]) == pytest.approx(8.0)
    pools, epochs = generated_pools(MAIN, SEED), generated_epochs(MAIN, SEED)
    supplies = [
        PoolSupply(
            pool=each.pool,
            hours=each.hours,
            occupancy=each.hours,
            gpu_hours=each.hours,
            slots=each.slots,
        )
        for each in pools
    ]
    demands = [RunDemand(run=str(n), epochs_left=left) for n, left in enumerate(epochs)]
    plan = solve_chains(demands, supplies)
    assert fluid_bound(pools, epochs) == pytest.approx(plan.hours, rel=1e-5)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_no_policy_ends_before_the_bound(setting) -> None:  # type: ignore[no-untyped-def]
    pools, epochs = generated_pools(setting, SEED), generated_epochs(setting, SEED)
    bound = fluid_bound(pools, epochs)
    for name in ("pinned at random", "untargeted", "greedy pinned", "greedy set 1.0"):
        simulation = Simulation(pools, epochs, POLICIES[name](SEED), SEED, noise=0.0)
        # Losses are drawn: they may be fewer than expected.
        assert simulation.makespan() >= bound * (0.95 if setting.losses else 1 - 1e-9), name


def test_learned_plans_end_before_pins_and_untargeted_jobs() -> None:
    for seed in DEVELOPMENT_SEEDS[:1]:
        pools, epochs = generated_pools(MAIN, seed), generated_epochs(MAIN, seed)
        hours = {
            name: Simulation(pools, epochs, POLICIES[name](seed), seed).makespan()
            for name in ("pinned at random", "untargeted", "rolling plan, learned")
        }
        assert hours["rolling plan, learned"] <= 0.97 * hours["untargeted"]
        assert hours["rolling plan, learned"] <= 0.6 * hours["pinned at random"]
