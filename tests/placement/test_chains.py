"""Plans for chains: against HiGHS by run, and the expected plans of small instances."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import highspy
import pytest
from msgspec.structs import replace

from metlmon.config.settings import AllocationSettings
from metlmon.placement import chains
from metlmon.placement.chains import EPSILON, solve_chains, whole_epochs
from metlmon.placement.types import PoolSupply, RunDemand, RunPlacement
from metlmon.stats.pool_profiles import ResourcePool
from tests.support.pool_figures import runs

DELTA, EXPANSE = ResourcePool("delta", "A100"), ResourcePool("expanse", "V100")
ANVIL = ResourcePool("anvil", "A100")
ANNEX = ResourcePool("anvil", "A100", "spring")


def supply(pool: ResourcePool, hours: float, slots: float, **values: float) -> PoolSupply:
    figures = {"occupancy": hours, "gpu_hours": hours} | values
    return PoolSupply(pool=pool, hours=hours, slots=slots, **figures)


def random_instance(
    random: Random, count: int = 20, pools: int = 8
) -> tuple[list[RunDemand], list[PoolSupply], list[AllocationSettings]]:
    demands = [
        replace(each, epochs_left=random.randint(8, 30), ready_in=random.uniform(0, 3))
        for each in runs(*[0] * count)
    ]
    supplies = []
    for number in range(pools):
        hours = random.uniform(1, 6)
        end = random.uniform(2, 40) if number and random.random() < 0.3 else None
        wait = random.uniform(0, 2)
        supplies.append(
            PoolSupply(
                pool=ResourcePool(f"site{number}", "A100"),
                hours=hours + wait,
                occupancy=hours,
                gpu_hours=hours * random.choice([1, 2]),
                slots=random.randint(1, 5),
                hours_left=end,
            )
        )
    balance = random.uniform(50, 300)
    return (
        demands,
        supplies,
        [AllocationSettings(name="x", balance=balance, sites=("site1", "site2"))],
    )


def highs_hours(
    demands: Sequence[RunDemand],
    supplies: Sequence[PoolSupply],
    allocations: Sequence[AllocationSettings],
) -> float:
    """T + EPSILON · GPU-hours of the program in the module's docstring, without classes."""
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    inf = highspy.kHighsInf
    model.addCol(1.0, 0.0, inf, 0, [], [])
    for demand in demands:
        for each in supplies:
            bound = inf
            if each.hours_left is not None:
                bound = whole_epochs(each.hours_left - demand.ready_in, each.hours)
            model.addCol(EPSILON * each.gpu_hours, 0.0, bound, 0, [], [])
    width = len(supplies)

    def add(low: float, high: float, coefficients: dict[int, float]) -> None:
        model.addRow(low, high, len(coefficients), list(coefficients), list(coefficients.values()))

    for r, demand in enumerate(demands):
        own = {1 + r * width + p: each for p, each in enumerate(supplies)}
        add(demand.epochs_left, demand.epochs_left, dict.fromkeys(own, 1.0))
        add(-inf, -demand.ready_in, {0: -1.0} | {c: each.hours for c, each in own.items()})
    for p, each in enumerate(supplies):
        column = {1 + r * width + p: each.occupancy for r in range(len(demands))}
        add(-inf, 0.0, {0: -each.slots} | column)
        if each.hours_left is not None:
            add(-inf, each.slots * each.hours_left, column)
    for allocation in allocations:
        charged = {
            1 + r * width + p: allocation.charge * each.gpu_hours
            for r in range(len(demands))
            for p, each in enumerate(supplies)
            if each.pool.site in allocation.sites
        }
        add(-inf, allocation.balance, charged)
    model.run()
    assert model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(model.getInfo().objective_function_value)


def test_single_run_classes_have_the_optimum_of_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "_by_epochs_left", lambda demands: [[each] for each in demands])
    for seed in range(3):
        instance = random_instance(Random(seed))
        plan = solve_chains(*instance)
        assert plan.hours + EPSILON * plan.gpu_hours == pytest.approx(
            highs_hours(*instance), rel=1e-6
        )


def test_classes_are_at_most_four_percent_early() -> None:
    ratios = []
    for seed in range(12):
        instance = random_instance(Random(seed), count=30, pools=14)
        plan = solve_chains(*instance)
        ratios.append(plan.hours / (highs_hours(*instance) - EPSILON * plan.gpu_hours))
    assert max(ratios) <= 1 + 1e-6
    assert min(ratios) >= 0.96
    assert sum(ratios) / len(ratios) >= 0.995


def test_constraints_hold_for_the_sum_over_runs() -> None:
    for seed in range(8):
        demands, supplies, allocations = random_instance(Random(seed))
        plan = solve_chains(demands, supplies, allocations)
        ends = {each.pool: each for each in supplies if each.hours_left is not None}
        for demand, run in zip(demands, plan.runs, strict=True):
            assert sum(run.epochs) <= demand.epochs_left + 1e-6
            assert ends or sum(run.epochs) == pytest.approx(demand.epochs_left)
            for pool in ends.keys() & run.pools:
                assert demand.ready_in + ends[pool].hours - ends[pool].wait <= ends[pool].hours_left
        for each in supplies:
            epochs = sum(epochs_at(run, each.pool) for run in plan.runs)
            until = min(plan.hours, plan.hours if each.hours_left is None else each.hours_left)
            assert epochs * each.occupancy <= each.slots * until + 1e-6
        charged = sum(
            epochs_at(run, each.pool) * each.gpu_hours
            for run in plan.runs
            for each in supplies
            if each.pool.site in allocations[0].sites
        )
        assert charged <= allocations[0].balance + 1e-6


def epochs_at(run: RunPlacement, pool: ResourcePool) -> float:
    return dict(zip(run.pools, run.epochs, strict=True)).get(pool, 0.0)


def test_waiting_runs_may_use_any_pool_that_keeps_the_end() -> None:
    """Six equal runs and six equal slots: the pool of a run is full, and any other is as good."""
    slow = ResourcePool("slow", "A40")
    pools = [supply(DELTA, 2.0, 3), supply(ANVIL, 2.0, 3), supply(slow, 9.0, 3)]
    plan = solve_chains(runs(*[10] * 6), pools)
    assert plan.hours == pytest.approx(20.0)
    for run in plan.runs:
        assert set(run.pools) == {DELTA, ANVIL}
        assert sum(run.epochs) == pytest.approx(10.0)
    assert plan.excluded == ((slow, "9h00m per epoch, slower than the pools used"),)


def test_slower_pool_is_open_if_it_delays_nothing() -> None:
    """The short runs fill expanse; anvil is slower, and early enough while the long run lasts."""
    pools = [supply(DELTA, 2.0, 1), supply(EXPANSE, 5.0, 1), supply(ANVIL, 6.0, 2)]
    plan = solve_chains(runs(20, 4, 4), pools)
    assert plan.hours == pytest.approx(40.0)
    short = plan.runs[1]
    assert dict(zip(short.pools, short.epochs, strict=True)) == pytest.approx(
        {EXPANSE: 4.0, ANVIL: 0.0}
    )


def test_immediate_start_may_beat_waiting_for_the_planned_pool() -> None:
    """Waits of 20 h: five more hours of training are less, thirty are not."""
    pools = [
        supply(DELTA, 25.0, 4, wait=20.0, occupancy=5.0),
        supply(EXPANSE, 30.0, 4, wait=20.0, occupancy=10.0),
        supply(ANVIL, 30.0, 4),
    ]
    (run,) = solve_chains(runs(8), pools).runs
    assert dict(zip(run.pools, run.epochs, strict=True)) == pytest.approx({DELTA: 8.0, EXPANSE: 0})
    assert run.reason == "delta: 1d01h per epoch"


def test_run_stays_in_the_pools_that_its_dag_allows() -> None:
    free, bound = runs(3, 3)
    bound = replace(bound, pools=frozenset([EXPANSE]))
    plan = solve_chains([free, bound], [supply(DELTA, 1.0, 4), supply(EXPANSE, 4.0, 4)])
    assert [run.pools for run in plan.runs] == [(DELTA,), (EXPANSE,)]
    assert plan.runs[1].reason == "expanse: 4h00m per epoch; its DAG allows no other"


def test_annex_gets_only_epochs_that_fit_before_its_end() -> None:
    annex = supply(ANNEX, 4.0, 10, hours_left=13.0)
    plan = solve_chains(runs(10, 10), [annex, supply(EXPANSE, 8.0, 10)])
    assert [epochs_at(run, ANNEX) for run in plan.runs] == pytest.approx([3.0, 3.0])
    assert plan.hours == pytest.approx(3 * 4 + 7 * 8)
    ending = replace(annex, hours_left=3.5)
    plan = solve_chains(runs(10), [ending, supply(EXPANSE, 8.0, 10)])
    assert plan.excluded == ((ANNEX, "ends in 3h30m, 4h00m per epoch"),)


def test_run_too_late_for_an_annex_goes_elsewhere() -> None:
    """Equal runs, only one of which can still finish an epoch before the end."""
    soon, late = runs(5, 5)
    soon, late = replace(soon, ready_in=0.5), replace(late, ready_in=3.5)
    plan = solve_chains(
        [soon, late], [supply(ANNEX, 4.0, 10, hours_left=5.0), supply(EXPANSE, 8.0, 9)]
    )
    assert [ANNEX in run.pools for run in plan.runs] == [True, False]
    assert plan.runs[1].pools == (EXPANSE,)


def test_epochs_beyond_all_annexes_and_balances_are_counted() -> None:
    plan = solve_chains(runs(10), [supply(ANNEX, 4.0, 1, hours_left=13.0)])
    assert plan.epochs_unplaced == pytest.approx(7.0)
    nowhere = solve_chains(runs(10), [supply(ANNEX, 4.0, 1, hours_left=1.0)])
    assert nowhere.runs[0].pools == ()
    assert nowhere.runs[0].reason == "no epoch of it fits into what the annexes and balances leave"
    pools = [supply(DELTA, 2.0, 1), supply(EXPANSE, 3.1, 2), supply(ANNEX, 1.7, 1, hours_left=13.0)]
    assert solve_chains(runs(3, 3), pools).epochs_unplaced == 0, "the solver's error does not count"


def test_plan_without_runs_or_pools_is_empty() -> None:
    assert solve_chains([], [supply(DELTA, 2.0, 1)]).hours == 0
    assert solve_chains(runs(0), [supply(DELTA, 2.0, 1)]).runs == ()
    plan = solve_chains(runs(3), [])
    assert plan.epochs_unplaced == 3
    assert plan.runs[0].reason == "no pool is left: all are excluded, or have no slot"
    assert solve_chains(runs(3), [supply(DELTA, 2.0, 0)]).excluded == (
        (DELTA, "no slot is known there"),
    )


def test_fewer_gpu_hours_decide_between_equal_ends() -> None:
    cheap, dear = supply(DELTA, 2.0, 5), supply(EXPANSE, 2.0, 4, gpu_hours=8.0)
    plan = solve_chains(runs(3, 3), [dear, cheap])
    assert plan.gpu_hours == pytest.approx(12.0)
    assert plan.excluded == ((EXPANSE, "8.0 GPU-h per epoch; the runs end as soon without it"),)


def test_equally_fast_pools_share_runs() -> None:
    """Four runs, four slots of about equal speed: no run waits while another slot is free."""
    supplies = [
        supply(ResourcePool(f"site{number}"), 4.0 + number / 1000, 1) for number in range(6)
    ]
    plan = solve_chains(runs(10, 10, 10, 10), supplies)
    assert {len(run.pools) for run in plan.runs} == {6}
