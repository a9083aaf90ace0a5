"""What makes a plan be made again, and what does not."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from metlmon.config.settings import AllocationSettings
from metlmon.placement.replanning import PlanState, must_replan, plan_state
from metlmon.placement.types import Annex, AnnexState
from tests.support.run_histories import NOON, Past, basis, lost, with_executions

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
def test_reasons_for_a_new_plan(changes: dict[str, object], reason: str | None) -> None:
    assert must_replan(BEFORE, replace(BEFORE, **changes)) == reason


def test_the_first_plan_has_a_reason() -> None:
    assert must_replan(None, BEFORE) == "the first plan"


def test_the_state_counts_what_the_ledger_has() -> None:
    before = basis({"run0": Past([7200.0] * 3), "run1": Past([7200.0] * 2)})
    annex = Annex(name="spring", site="delta", state=AnnexState.UP)
    state = plan_state(before, [annex])
    assert (state.epochs, state.lost, state.holds) == (5, 0, 0)
    assert state.annexes == (("spring", "delta", AnnexState.UP),)
    assert must_replan(state, plan_state(before, [annex])) is None
    after = with_executions(before, lost("run0", datetime(2026, 3, 2, 11)))
    assert must_replan(state, plan_state(after, [annex])) == "1 execution did not complete"
