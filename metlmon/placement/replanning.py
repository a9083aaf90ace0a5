"""When a plan is to be made again: something happened that it depends on, or it is old."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from metlmon.config.settings import AllocationSettings
from metlmon.live.feed import StatsInput
from metlmon.model.states import Outcome
from metlmon.placement.types import ABSENT, Annex, AnnexState
from metlmon.snapshot.records import HOUR
from metlmon.text.formatting import count, duration, plain

MOST_HOURS: Final = 12.0
"""A plan of this age is made again, whatever happened."""


class PlanState(Struct, frozen=True, kw_only=True):
    """What a plan depends on, counted: a change of it is a reason for a new plan.

    ``lost``: executions that ended otherwise than well, holds apart; ``annexes``: (name, site,
    state), sorted.
    """

    as_of: datetime | None
    epochs: int
    lost: int
    holds: int
    dags: frozenset[str]
    annexes: tuple[tuple[str, str, AnnexState], ...] = ()
    allocations: tuple[AllocationSettings, ...] = ()


def plan_state(stats_input: StatsInput, annexes: Sequence[Annex] = ()) -> PlanState:
    """The state that a plan made now depends on."""
    ledger = stats_input.ledger
    ends = Counter(
        entry.outcome for entry in ledger.executions if entry.training and not entry.delivered
    )
    well = (Outcome.GOOD, Outcome.IN_FLIGHT, Outcome.HELD)
    return PlanState(
        as_of=ledger.as_of,
        epochs=sum(run.epochs_done for run in ledger.runs),
        lost=sum(number for outcome, number in ends.items() if outcome not in well),
        holds=sum(len(job.holds) for job in ledger.jobs if job.training),
        dags=frozenset(dag.file for dag in stats_input.status.dags),
        annexes=tuple(sorted((annex.name, annex.site, annex.state) for annex in annexes)),
        allocations=stats_input.settings.advisor,
    )


def must_replan(before: PlanState | None, after: PlanState) -> str | None:
    """Why a plan made at ``before`` is to be made again, None if it is not; pure."""
    if before is None:
        return "the first plan"
    return next(_reasons(before, after), None)


def _reasons(before: PlanState, after: PlanState) -> Iterator[str]:
    if added := sorted(after.dags - before.dags):
        yield f"{plain(added[0])} was added" if len(added) == 1 else f"{len(added)} DAGs were added"
    yield from _annex_reasons(before, after)
    if before.allocations != after.allocations:
        yield "a balance changed"
    if (holds := after.holds - before.holds) > 0:
        yield count(holds, "hold")
    if (lost := after.lost - before.lost) > 0:
        yield f"{count(lost, 'execution')} did not complete"
    if (epochs := after.epochs - before.epochs) > 0:
        yield f"{count(epochs, 'epoch')} ended"
    if before.as_of is not None and after.as_of is not None:
        age = (after.as_of - before.as_of).total_seconds()
        if age >= MOST_HOURS * HOUR:
            yield f"the plan is {duration(age)} old"


_NEWS: Final = {
    AnnexState.UP: "is up",
    AnnexState.EXPIRING: "is about to expire",
    AnnexState.GONE: "is gone",
}


def _annex_reasons(before: PlanState, after: PlanState) -> Iterator[str]:
    earlier = Counter(before.annexes)
    for name, _, state in (Counter(after.annexes) - earlier).elements():
        if state in _NEWS:
            yield f"annex {plain(name)} {_NEWS[state]}"
    remaining = {(name, site) for name, site, _ in after.annexes}
    for name, site, state in before.annexes:
        if (name, site) not in remaining and state not in ABSENT:
            yield f"annex {plain(name)} is gone"
