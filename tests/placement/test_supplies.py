"""The supply of a pool: retries after losses, slots, and annexes by name or by site."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest
from msgspec.structs import replace

from metlmon.placement.planner import find_supplies, pool_supply
from metlmon.placement.types import Annex, AnnexState, PoolSupply
from metlmon.snapshot.records import Ledger
from metlmon.stats.pool_profiles import PoolProfile, ResourcePool
from tests.support.pool_figures import A100, DELTA, EXPANSE, by_pool, profile
from tests.support.run_histories import NOON

NOW = Ledger("/ens", NOON, True)
SPRING = Annex(
    name="spring",
    site="delta",
    state=AnnexState.UP,
    gpu=A100,
    alive_until=NOON + timedelta(hours=9),
)


def test_epoch_is_repeated_until_completed() -> None:
    """The expected hours, against 20,000 simulated epochs."""
    figures = profile(DELTA, 4.0, wait=0.5, transfer=0.25, loss=0.4, lost_hours=1.5, gpus=2.0)
    random, hours, occupancy, gpu_hours = Random(1), 0.0, 0.0, 0.0
    epochs = 20_000
    for _ in range(epochs):
        is_done = False
        while not is_done:
            is_done = random.random() >= 0.4
            training = 4.0 if is_done else 1.5
            hours += 0.5 + 0.25 + training
            occupancy += 0.25 + training
            gpu_hours += 2 * training
    supply = pool_supply(figures, 4)
    assert supply.hours == pytest.approx(hours / epochs, rel=0.02)
    assert supply.occupancy == pytest.approx(occupancy / epochs, rel=0.02)
    assert supply.gpu_hours == pytest.approx(gpu_hours / epochs, rel=0.02)


def one(profiles: PoolProfile, *annexes: Annex) -> PoolSupply:
    (supply,) = find_supplies(by_pool([profiles]), NOW, annexes).usable
    return supply


def test_slots_are_those_of_the_collector_or_the_maximum_seen() -> None:
    profiles = by_pool([profile(DELTA, 2.0, slots=3), profile(EXPANSE, 2.0, slots=5)])
    supplies = find_supplies(profiles, NOW, slots={DELTA: 40})
    assert [each.slots for each in supplies.usable] == [40, 5]
    assert not supplies.inferred
    assert find_supplies(profiles, NOW).inferred


def test_pool_ends_with_its_annex() -> None:
    pool = ResourcePool("delta", A100, "spring")
    supply = one(profile(pool, 2.0, gpus=2.0), replace(SPRING, gpus=9))
    assert supply.hours_left == pytest.approx(9)
    assert supply.slots == 4


def test_pool_without_annex_name_ends_with_its_sites_annex() -> None:
    assert one(profile(DELTA, 2.0), SPRING).hours_left == pytest.approx(9)
    other = find_supplies(by_pool([profile(EXPANSE, 2.0)]), NOW, [SPRING])
    assert [each.hours_left for each in other.usable] == [None, pytest.approx(9)]


def test_later_end_of_two_annexes_of_one_name_counts() -> None:
    later = replace(SPRING, alive_until=NOON + timedelta(hours=20))
    assert one(profile(DELTA, 2.0), SPRING, later).hours_left == pytest.approx(20)
    gone = replace(later, state=AnnexState.GONE)
    assert one(profile(DELTA, 2.0), SPRING, gone).hours_left == pytest.approx(9)


def test_gone_or_never_seen_annex_gets_no_epoch() -> None:
    gone = replace(SPRING, state=AnnexState.GONE)
    never_seen = Annex(name="mistyped", site="", state=AnnexState.NEVER_SEEN, inferred=True)
    profiles = by_pool([profile(DELTA, 2.0)])
    assert [supply.pool for supply in find_supplies(profiles, NOW, [never_seen]).usable] == [DELTA]
    supplies = find_supplies(profiles, NOW, [gone])
    assert supplies.usable == ()
    assert supplies.excluded == ((DELTA, "annex spring is gone"),)


def test_unused_annex_has_the_profile_of_its_gpu_model() -> None:
    profiles = by_pool([profile(DELTA, 2.0), profile(EXPANSE, 7.0)])
    annex = Annex(name="new", site="anvil", state=AnnexState.UP, gpu=A100, gpus=16)
    supply = find_supplies(profiles, NOW, [annex]).usable[-1]
    assert supply.pool == ResourcePool("anvil", A100, "new")
    assert (supply.hours, supply.slots) == (2.0, 16)
    requested = find_supplies(profiles, NOW, [replace(annex, state=AnnexState.REQUESTED)])
    assert requested.excluded == ((supply.pool, "the annex is requested"),)
    nothing_known = find_supplies({}, NOW, [annex])
    assert nothing_known.usable == ()


def test_unused_pool_has_the_profile_of_its_gpu_model() -> None:
    profiles = by_pool([profile(DELTA, 2.0), profile(EXPANSE, 7.0)])
    new = ResourcePool("anvil", EXPANSE.gpu)
    supply = find_supplies(profiles, NOW, slots={new: 6}).usable[-1]
    assert (supply.pool, supply.hours, supply.slots) == (new, 7.0, 6)


def test_slots_without_an_annex_name_are_not_the_annexs() -> None:
    profiles = by_pool([profile(EXPANSE, 7.0), profile(ResourcePool("anvil", A100), 2.0)])
    supplies = find_supplies(profiles, NOW, [replace(SPRING, gpus=16)], {DELTA: 6})
    offers = {each.pool: (each.slots, each.hours_left) for each in supplies.usable}
    assert offers[DELTA] == (6, None)
    assert offers[ResourcePool("delta", A100, "spring")] == (16, pytest.approx(9))


def test_doubtful_pool_gets_one_epoch_at_a_time() -> None:
    doubtful = replace(profile(EXPANSE, 2.0), epochs=0, doubtful=True, probe_at=NOON)
    supplies = find_supplies(by_pool([profile(DELTA, 3.0), doubtful]), NOW)
    assert [supply.pool for supply in supplies.usable] == [DELTA]
    assert supplies.probes == {EXPANSE}
    ((pool, why),) = supplies.excluded
    assert (pool, why) == (
        EXPANSE,
        "it has lost all 20 executions that ended there; one epoch at a time tries it",
    )


def test_excluded_pool_is_tried_again_later() -> None:
    hole = profile(EXPANSE, 2.0, loss=0.9, excluded="none of 9 epochs completed")
    soon = replace(hole, probe_at=NOON + timedelta(minutes=1))
    due = replace(hole, probe_at=NOON)
    for each, probes in ((hole, set()), (soon, set()), (due, {EXPANSE})):
        supplies = find_supplies(by_pool([each]), NOW)
        assert supplies.usable == ()
        assert supplies.excluded == ((EXPANSE, "none of 9 epochs completed"),)
        assert [supply.pool for supply in supplies.avoided] == [EXPANSE]
        assert supplies.probes == probes
