"""All that is advised for an ensemble: the plan, what would change its end, elastic trainings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from metlmon.live.feed import StatsInput
from metlmon.placement.elastic_advice import ElasticAdvice, elastic_advice
from metlmon.placement.planner import PlanInput, plan_input, plan_of
from metlmon.placement.replanning import PlanState, plan_state
from metlmon.placement.types import Annex, PlacementPlan
from metlmon.pool.annex_types import FreeGpus
from metlmon.stats.pool_profiles import PoolProfile


class Advice(Struct, frozen=True, kw_only=True):
    """A plan with what it was made of; ``run_names``: by key."""

    values: PlanInput
    plan: PlacementPlan
    elastic: tuple[ElasticAdvice, ...]
    state: PlanState
    run_names: dict[str, str]

    @property
    def profiles(self) -> list[PoolProfile]:
        """The profiles of all pools, those with the most epochs first."""
        profiles = self.values.supplies.profiles.values()
        return sorted(profiles, key=lambda each: (bool(each.excluded), -each.epochs, each.pool))


def make_advice(
    stats_input: StatsInput,
    annexes: Sequence[Annex] = (),
    free_gpus: Iterable[FreeGpus] = (),
) -> Advice:
    """The advice for an ensemble as of its ledger. Reads DAG files: not for the UI thread."""
    values = plan_input(stats_input, annexes, free_gpus)
    return Advice(
        values=values,
        plan=plan_of(values),
        elastic=elastic_advice(stats_input, annexes),
        state=plan_state(stats_input, annexes),
        run_names={run.key: run.name for run in stats_input.status.runs},
    )
