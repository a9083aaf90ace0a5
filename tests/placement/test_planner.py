"""Plans of ensembles: demand as in the estimates, balances, pins, probes; and the what-if table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from metlmon.config.settings import AllocationSettings, Settings
from metlmon.dagman.records import Node, NodeKind
from metlmon.live.feed import StatsInput
from metlmon.model.states import State
from metlmon.placement.chains import solve_chains
from metlmon.placement.planner import (
    PlanInput,
    PlanState,
    balance_left,
    find_supplies,
    must_replan,
    plan_input,
    plan_of,
    plan_state,
    what_if_table,
)
from metlmon.placement.types import Annex, AnnexState, PlacementPlan, RunPlacement
from metlmon.pool.annex_ads import FreeGpus
from metlmon.snapshot.records import DagDescription, DescribedNode, Ledger, Nodes
from metlmon.stats.estimates import Interval, make_forecast
from metlmon.stats.pool_profiles import PoolProfile, ResourcePool
from metlmon.tables.advice import excluded_lines, plan_columns, plan_lines, plan_rows, what_if_title
from metlmon.tables.estimates import approximate_text
from metlmon.tables.layout import render_table
from metlmon.text.spans import text
from tests.conftest import Shared
from tests.support.pool_figures import DELTA, EXPANSE, by_pool, profile, runs
from tests.support.run_histories import A40, NOON, Past, basis, lost, recorded, with_executions

NOW = Ledger("/ens", NOON, True)


def values_of(
    profiles: list[PoolProfile], epochs_left: list[int], hours_left: float | None = None
) -> PlanInput:
    supplies = find_supplies(by_pool(profiles), NOW)
    if hours_left is not None:
        first, *others = supplies.usable
        supplies = replace(supplies, usable=(replace(first, hours_left=hours_left), *others))
    return PlanInput(
        as_of=NOON,
        demands=tuple(runs(*epochs_left)),
        supplies=supplies,
        allocations=(),
        runs_excluded=(),
    )


# --- demand ------------------------------------------------------------------------------------


def test_epochs_left_exclude_the_running_one() -> None:
    ensemble = basis(
        {
            "running": Past([7200.0] * 4, age=3600.0, total=10),
            "idle": Past([7200.0] * 6, age=600.0, total=10, running=False),
            "last": Past([7200.0] * 9, age=3600.0, total=10),
            "done": Past([7200.0] * 10, total=10),
        }
    )
    forecast = {run.key: run for run in make_forecast(ensemble).runs}
    demands = {each.key: each for each in plan_input(ensemble).demands}
    assert {run: each.epochs_left for run, each in demands.items()} == {
        "running": forecast["running"].epochs_left - 1,
        "idle": forecast["idle"].epochs_left,
        "last": 0,
    }
    assert demands["idle"].ready_in == 0
    left = forecast["running"].epoch_remaining
    assert demands["running"].ready_in == pytest.approx(left.median / 3600)
    plan = plan_of(plan_input(ensemble))
    assert [run.key for run in plan.runs] == ["running", "idle"]
    assert plan.hours >= demands["last"].ready_in


def test_ended_runs_are_excluded_with_the_reason() -> None:
    ensemble = basis({"runs": Past([7200.0] * 4), "held": Past([7200.0] * 2, state=State.HELD)})
    plan = plan_of(plan_input(ensemble))
    assert [run.key for run in plan.runs] == ["runs"]
    assert plan.runs_excluded == (("held", "stopped: held"),)


def test_plan_without_epochs_is_empty() -> None:
    plan = plan_of(plan_input(basis({"run0": Past([])})))
    assert [(run.key, run.pools) for run in plan.runs] == [("run0", ())]
    assert plan.runs_excluded == ()
    assert what_if_table(plan_input(basis({"run0": Past([])})), plan) == ()
    assert "no epoch has completed" in str(plan_lines(plan))
    nothing = plan_of(plan_input(StatsInput(basis({}).status, Ledger("/ens", None, False))))
    assert (nothing.as_of, nothing.runs, nothing.hours) == (None, (), 0.0)


def placed(pools: Sequence[ResourcePool], reason: str = "", *runs: str) -> list[RunPlacement]:
    """Runs with two epochs left in each of these pools."""
    shared = {"pools": tuple(pools), "epochs": (2.0,) * len(pools), "reason": reason}
    return [RunPlacement(key=each, run=each, **shared) for each in runs or ("run0",)]


def plan_with(placements: Iterable[RunPlacement]) -> PlacementPlan:
    return PlacementPlan(as_of=NOON, hours=1.0, gpu_hours=1.0, runs=tuple(placements))


@pytest.mark.parametrize(
    ("count", "text"), [(2, "s0, s1"), (4, "anywhere but s4 and s5"), (5, "anywhere but s5")]
)
def test_many_pools_are_named_by_the_excluded_ones(count: int, text: str) -> None:
    pools = [ResourcePool(f"s{number}") for number in range(6)]
    plan = plan_with(placed(pools[:count]))
    where = next(each for each in plan_columns(plan, pools) if each.name == "where")
    assert where.value(plan.runs) == text
    where = next(each for each in plan_columns(plan) if each.name == "where")
    assert where.value(plan.runs) == ("s0, s1" if count == 2 else "anywhere")


def test_runs_with_the_same_pools_are_one_row() -> None:
    pools, names = (DELTA, EXPANSE), [letter * 20 for letter in "abcd"]
    others = placed(pools[::-1], "x", names[1]) + placed(pools[:1], "y", names[2])
    plan = plan_with(placed(pools, "x", names[0], names[3]) + others)
    columns = {each.name: each.value for each in plan_columns(plan)}
    rows = [[columns[name](row) for name in ("run", "epochs", "reason")] for row in plan_rows(plan)]
    assert rows == [["3 runs", 12, "x"], [names[2], 2, "y"]]


def test_names_of_runs_have_room_before_a_reason() -> None:
    names = [f"run{number}" for number in range(6)]
    plan = plan_with(placed((DELTA, EXPANSE), "both: 13h41m and 1d20h for an epoch", *names))
    rows = [text(each) for each in render_table(plan_columns(plan), plan_rows(plan), 80)]
    assert ", ".join(names) in rows[1]


def test_run_pinned_to_a_gpu_model_stays_there() -> None:
    variables = {"run0": {"GpuModel": "nvidia a40"}, "run1": {"GpuModel": "NVIDIA H100"}}
    ensemble = basis({name: Past([7200.0] * 3) for name in ("run0", "run1", "run2")})
    nodes = Nodes(
        tuple(
            DescribedNode(
                node_key=("ens.dag", f"{run}-train_epoch0"),
                dag="ens.dag",
                node=Node(f"{run}-train_epoch0", NodeKind.JOB, "ens.dag", 1, vars=values),
                key=run,
                run=run,
                uuid=None,
                training=True,
            )
            for run, values in variables.items()
        )
    )
    ensemble = replace(ensemble, load_description=lambda: DagDescription(nodes))
    plan = plan_of(plan_input(ensemble))
    pools = {run.key: [pool.gpu for pool in run.pools] for run in plan.runs}
    assert pools == {"run0": ["NVIDIA A40"], "run1": [], "run2": ["NVIDIA A40"]}
    assert plan.runs[1].reason == "no pool that its DAG allows is known to have a slot"


# --- supply and balances -----------------------------------------------------------------------


def test_balance_is_reduced_by_later_usage() -> None:
    """Four epochs of two hours and one running for an hour: only hours of the last five count."""
    ensemble = basis({"run0": Past([7200.0] * 4, age=3660.0, wait=0.0)})
    since = NOON - timedelta(hours=5)
    award = AllocationSettings("award", 100.0, ("delta", "other"), 2.0, since)
    by_hand = sum(
        (entry.gpus or 0)
        * max(0.0, ((entry.end or NOON) - max(entry.start, since)).total_seconds())
        for entry in ensemble.ledger.executions
    )
    assert by_hand == pytest.approx(5 * 3600)
    left = balance_left(award, ensemble.ledger)
    assert left.balance == pytest.approx(100 - 2 * 5)
    assert balance_left(replace(award, as_of=None), ensemble.ledger).balance == 100
    assert balance_left(replace(award, sites=("other",)), ensemble.ledger).balance == 100
    assert balance_left(replace(award, balance=3.0), ensemble.ledger).balance == 0


def test_settings_limit_the_plan() -> None:
    ensemble = basis({"run0": Past([7200.0] * 4)})
    free = plan_of(plan_input(ensemble))
    settings = Settings(advisor=(AllocationSettings("award", 2.0, ("delta",)),))
    limited = plan_of(plan_input(replace(ensemble, settings=settings)))
    assert free.epochs_unplaced == 0
    assert limited.epochs_unplaced > 3
    assert free.remarks == limited.remarks == ()


def test_plan_names_allocations_to_check() -> None:
    ensemble = basis({"run0": Past([7200.0] * 4)})
    settings = Settings(
        advisor=(
            AllocationSettings("award", 50.0, ("delta", "dleta")),
            AllocationSettings("old", 0.0, ("delta",)),
        )
    )
    assert plan_of(plan_input(replace(ensemble, settings=settings))).remarks == (
        "allocation award: nothing has run at dleta",
        "allocation old: its balance is used up",
    )


def test_pool_on_trial_is_open_to_the_shortest_run() -> None:
    hole = replace(profile(EXPANSE, 2.0, excluded="its last 9 executions were lost"), probe_at=NOON)
    values = values_of([profile(DELTA, 2.0), hole], [9, 3, 5])
    plan = plan_of(values)
    assert plan.excluded == ((EXPANSE, "its last 9 executions were lost"),)
    assert [EXPANSE in run.pools for run in plan.runs] == [False, True, False]
    assert plan.runs[1].reason.endswith("; one epoch may try expanse again")
    assert sum(plan.runs[1].epochs) == pytest.approx(3)


# --- what if -----------------------------------------------------------------------------------


def test_what_if_rows_are_plans_of_changed_supplies() -> None:
    anvil = ResourcePool("anvil", DELTA.gpu, "spring")
    profiles = [profile(anvil, 2.0, slots=2), profile(DELTA, 3.0, slots=2), profile(EXPANSE, 6.0)]
    values = values_of(profiles, [12] * 6, hours_left=10.0)
    plan = plan_of(values)
    rows = {row.question: row for row in what_if_table(values, plan)}
    usable = values.supplies.usable
    without = solve_chains(values.demands, usable[:1] + usable[2:])
    assert rows["without delta"].gpu_hours == pytest.approx(without.gpu_hours)
    end = plan.hours
    assert rows["without delta"].hours > end > rows["2 more slots at delta"].hours
    assert rows["anvil (annex spring) 12 h longer"].hours < end
    changes = [abs(row.hours - end) for row in rows.values() if row.hours is not None]
    assert changes == sorted(changes, reverse=True)


def test_impossible_change_is_reported() -> None:
    values = values_of([profile(DELTA, 2.0, slots=9), profile(EXPANSE, 2.0, slots=9)], [5, 5])
    assert what_if_table(values, plan_of(values)) == ()
    values = values_of([profile(DELTA, 2.0), profile(EXPANSE, 1.0)], [5, 5], hours_left=9.0)
    rows = {row.question: row for row in what_if_table(values, plan_of(values))}
    assert rows["without expanse"].hours is None
    assert "no place" in rows["without expanse"].remark
    assert what_if_table(values_of([], []), plan_of(values_of([], []))) == ()


def test_plan_with_one_pool_ends_with_the_estimate() -> None:
    estimate = Interval(6 * 3600, 9.5 * 3600, 12 * 3600, 9, "")
    values = replace(values_of([profile(DELTA, 2.0, slots=2)], [5, 5]), estimate=estimate)
    plan = plan_of(values)
    assert plan.hours == pytest.approx(9.5)
    assert plan.gain.hours == 0
    lines = [text(each) for each in plan_lines(plan)]
    assert lines[0].endswith("10h left")
    assert lines[1].startswith("Nothing to gain")
    assert "plan" not in what_if_title(plan), "changes relate to the estimate"


def test_gain_is_what_the_pools_save() -> None:
    estimate = Interval(60 * 3600, 80 * 3600, 99 * 3600, 9, "")
    values = values_of([profile(DELTA, 2.0, slots=9), profile(EXPANSE, 8.0, slots=9)], [9, 9])
    slow = {each.key: {frozenset([EXPANSE]): each.epochs_left} for each in values.demands}
    plan = plan_of(replace(values, estimate=estimate, as_is=slow))
    assert plan.hours == pytest.approx(20, rel=0.02)
    assert plan.gain.hours + plan.hours == pytest.approx(80)
    assert "gains 3d" in text(plan_lines(plan)[1]) or "gains 2d" in text(plan_lines(plan)[1])
    assert approximate_text(plan.hours * 3600) in what_if_title(plan), "what changes relate to"


def test_avoided_pool_has_its_own_gain_and_action() -> None:
    estimate = Interval(60 * 3600, 80 * 3600, 99 * 3600, 9, "")
    bad = replace(profile(EXPANSE, 9.0, slots=9), excluded="it has lost all 9 executions")
    good = profile(DELTA, 2.0, slots=9)
    values = replace(values_of([good, bad], [9, 9]), estimate=estimate)
    anywhere = {frozenset([DELTA, EXPANSE]): 9}
    plan = plan_of(replace(values, as_is=dict.fromkeys(("run0", "run1"), anywhere)))
    (avoided,) = plan.avoided
    assert avoided.pool == EXPANSE
    assert avoided.gain.hours == pytest.approx(plan.gain.hours), "the plan does no more"
    (avoid,) = map(text, excluded_lines(plan, [DELTA, EXPANSE]))
    assert "that alone gains" in avoid
    assert avoid.endswith(f"[metlmon act exclude-site {EXPANSE.site}]")
    other = replace(EXPANSE, gpu="NVIDIA A100")
    (avoid,) = map(text, excluded_lines(plan, [DELTA, EXPANSE, other]))
    assert "exclude-site" not in avoid, "another pool of the site works"


def test_advice_and_estimate_agree(shared: Shared) -> None:
    directory = shared("cases/forecast-of-runs-in-turn/dagdir")
    stats = recorded(directory, datetime(2026, 11, 28, 14, 57))
    estimate = make_forecast(stats).remaining
    assert estimate is not None
    plan = plan_of(plan_input(stats))
    assert plan.estimate == estimate
    assert plan.hours + plan.gain.hours == pytest.approx(estimate.median / 3600)
    # Both sites are in use already, so the gain is small.
    assert plan.gain.share < 0.15


def test_failures_of_broken_runs_do_not_count_for_a_pool(shared: Shared) -> None:
    values = plan_input(recorded(shared("cases/advise-blames-pool")))
    (supply,) = [each for each in values.supplies.usable if each.pool.site == "UTC-Epyc"]
    profile = values.supplies.profiles[supply.pool]
    assert not profile.wait_hours.borrowed
    assert profile.wait_hours.value < 2.5
    assert profile.loss.value < 0.25
    assert 12 <= supply.hours <= 14


# --- free GPUs ---------------------------------------------------------------------------------


def free(site: str, count: int, gpu: str = A40, at: datetime = NOON) -> FreeGpus:
    return FreeGpus(site, gpu, count, at.timestamp())


def slots_of(ensemble: StatsInput, *free_gpus: FreeGpus) -> dict[ResourcePool, float]:
    supplies = plan_input(ensemble, free_gpus=free_gpus).supplies
    assert supplies.inferred is not bool(free_gpus)
    return {supply.pool: supply.slots for supply in supplies.usable}


def test_slots_are_running_and_free_or_the_maximum_seen() -> None:
    two = basis({name: Past([7200.0] * 4, age=3600.0) for name in ("run0", "run1")})
    delta = ResourcePool("delta", A40)
    assert slots_of(two) == {delta: 2}
    assert slots_of(two, free("delta", 3)) == {delta: 5}
    assert slots_of(two, free("delta", 0)) == {delta: 2}
    idle = basis({name: Past([7200.0] * 4, running=False) for name in ("run0", "run1")})
    assert slots_of(idle, free("delta", 1)) == {delta: 2}


@pytest.mark.parametrize(("seconds", "slots"), [(400, 8), (270, 6), (100, 8)])
def test_slots_taken_since_the_answer_count_once(seconds: int, slots: int) -> None:
    """Both runs ended an epoch 300 s ago, and started the next one 240 s ago."""
    two = basis({name: Past([7200.0] * 4, age=300.0) for name in ("run0", "run1")})
    answer = free("delta", 6, at=NOON - timedelta(seconds=seconds))
    assert slots_of(two, answer) == {ResourcePool("delta", A40): slots}


def test_unused_site_has_the_hours_of_its_gpu_model() -> None:
    ensemble = basis({"run0": Past([7200.0] * 4, age=60.0)})
    anvil, other = ResourcePool("anvil", A40), free("expanse", 9, "Tesla V100")
    assert plan_input(ensemble, free_gpus=[other]) == plan_input(ensemble), "of an unused model"
    values = plan_input(ensemble, free_gpus=[free("anvil", 6), other])
    first, new = values.supplies.usable
    assert (new.pool, new.slots, new.hours) == (anvil, 6, first.hours)
    assert values.supplies.profiles[anvil].slots == 6
    (run,) = plan_of(values).runs
    assert anvil in run.pools


def test_aliases_apply_to_names_of_the_collector() -> None:
    ensemble = basis({"run0": Past([7200.0] * 4, age=60.0)})
    aliases = Settings(site_aliases=(("Delta-GPU", "delta"),), gpu_aliases=(("A40-48", A40),))
    named = replace(ensemble, settings=aliases)
    assert slots_of(named, free("Delta-GPU", 3, "A40-48")) == {ResourcePool("delta", A40): 4}


# --- reasons for a new plan -------------------------------------------------------------------


BEFORE = PlanState(
    as_of=NOON,
    epochs=10,
    lost=2,
    holds=1,
    dags=frozenset(["a.dag"]),
    annexes=(("spring", "delta", AnnexState.UP),),
    allocations=(AllocationSettings("award", 100.0, ("delta",)),),
)


def annexes(*rows: tuple[str, AnnexState]) -> tuple[tuple[str, str, AnnexState], ...]:
    return tuple((name, "delta", state) for name, state in rows)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"as_of": NOON + timedelta(hours=11, minutes=59)}, None),
        ({"as_of": NOON + timedelta(hours=12)}, "the plan is 12h00m old"),
        ({"epochs": 11}, "1 epoch ended"),
        ({"epochs": 13, "as_of": NOON + timedelta(days=2)}, "3 epochs ended"),
        ({"lost": 4}, "2 executions did not complete"),
        ({"holds": 2}, "1 hold"),
        ({"dags": frozenset(["a.dag", "b.dag"])}, "b.dag was added"),
        ({"dags": frozenset()}, None),
        ({"allocations": ()}, "a balance changed"),
        ({"annexes": ()}, "annex spring is gone"),
        ({"annexes": annexes(("spring", AnnexState.GONE))}, "annex spring is gone"),
        ({"annexes": annexes(("spring", AnnexState.EXPIRING))}, "annex spring is about to expire"),
        (
            {"annexes": annexes(("spring", AnnexState.UP), ("two", AnnexState.UP))},
            "annex two is up",
        ),
        ({"annexes": annexes(("spring", AnnexState.UP), ("two", AnnexState.PENDING))}, None),
    ],
)
def test_changes_that_need_a_new_plan(changes: dict[str, object], reason: str | None) -> None:
    assert must_replan(BEFORE, replace(BEFORE, **changes)) == reason


def test_plan_state_agrees_with_the_ledger() -> None:
    before = basis({"run0": Past([7200.0] * 3), "run1": Past([7200.0] * 2)})
    annex = Annex(name="spring", site="delta", state=AnnexState.UP)
    state = plan_state(before, [annex])
    assert (state.epochs, state.lost, state.holds) == (5, 0, 0)
    assert state.annexes == (("spring", "delta", AnnexState.UP),)
    assert must_replan(None, state) == "the first plan"
    assert must_replan(state, plan_state(before, [annex])) is None
    after = with_executions(before, lost("run0", datetime(2026, 3, 2, 11)))
    assert must_replan(state, plan_state(after, [annex])) == "1 execution did not complete"
