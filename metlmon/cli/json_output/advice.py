"""The JSON of ``advise``."""

from __future__ import annotations

from typing import Any, Final

from metlmon.cli.json_output.jobs import ENSEMBLE
from metlmon.cli.json_output.objects import JsonObject
from metlmon.cli.json_output.usage import PROFILE
from metlmon.placement.application import Application, SiteChange
from metlmon.placement.elastic_advice import ElasticAdvice
from metlmon.placement.submit_lines import SubmitLine
from metlmon.placement.types import PlacementPlan, RunPlacement, WhatIf
from metlmon.pool.types import ActionResult
from metlmon.stats.pool_profiles import ResourcePool
from metlmon.text.site_lists import site_list

POOL: Final = JsonObject(
    ResourcePool,
    "A site with one GPU model, and the annex of its slots; null: unknown, none.",
    computed={
        "site": (str | None, lambda pool: pool.site or None),
        "gpu": (str | None, lambda pool: pool.gpu or None),
        "annex": (str | None, lambda pool: pool.annex or None),
    },
)


def _pools(placement: RunPlacement) -> list[dict[str, Any]]:
    return [
        {**POOL.write(pool), "epochs": round(epochs, 6)}
        for pool, epochs in zip(placement.pools, placement.epochs, strict=True)
    ]


PLANNED_POOL: Final = JsonObject(
    None,
    "A pool where the next epochs of a run may go; epochs: how many the plan does there.",
    name="PlannedPool",
    base=POOL,
    given={"epochs": float},
)
PLACEMENT: Final = JsonObject(
    RunPlacement,
    "Where the next epochs of a run (its key) may go. sites: as a request names them.",
    "run reason",
    computed={
        "sites": (list[str], lambda each: sorted({pool.site for pool in each.pools if pool.site})),
        "pools": ([PLANNED_POOL], _pools),
    },
)
EXCLUDED_POOL: Final = JsonObject(
    None, "A pool that gets no epoch, and why.", name="ExcludedPool", base=POOL, given={"why": str}
)
PLAN: Final = JsonObject(
    PlacementPlan,
    "The plan. hours: until the last run is done; inferred: from logs alone. epochs_unplaced: "
    "those that annexes and balances leave no room for. estimate_hours: without a plan, "
    "by the estimates. remarks: what to check.",
    "runs inferred remarks hours gpu_hours epochs_unplaced estimate_hours",
    name="Plan",
    computed={
        "excluded": (
            [EXCLUDED_POOL],
            lambda plan: [{**POOL.write(pool), "why": why} for pool, why in plan.excluded],
        ),
        "runs_excluded": (
            list[str],
            lambda plan: [f"{run}: {why}" for run, why in plan.runs_excluded],
        ),
    },
)
ELASTIC: Final = JsonObject(
    ElasticAdvice,
    "How many workers an elastic run should have. gain: throughput beside the present one.",
    "*",
    computed={"annex": (str | None, lambda advice: advice.annex or None)},
)
CHANGE: Final = JsonObject(
    SiteChange,
    "Where the next epochs of a run, or a job, may go; before null: as the DAG says.",
    "run uuid dag reason",
    computed={
        "job": (str | None, lambda change: change.job or None),
        "before": (
            list[str] | None,
            lambda change: None if change.before is None else list(site_list(change.before)),
        ),
        "sites": (list[str], lambda change: list(site_list(change.after))),
    },
)
APPLICATION: Final = JsonObject(
    Application,
    "What applying the plan changes. unchanged: runs and jobs that go there already.",
    "way changes unchanged refused",
    computed={"left_out": (list[str], lambda each: [f"{n}: {why}" for n, why in each.left_out])},
)
ADVISE_ANSWER: Final = JsonObject(
    ActionResult,
    "What came of a change, or of taking it back.",
    "subject reply=code text",
    name="AdviseAnswer",
    main=False,
)
ADVISE_OUTPUT: Final = JsonObject(
    None,
    "metlmon advise --json. why: the reason of a new plan (--every); application, answers: with "
    "--apply and --undo.",
    name="AdviseOutput",
    given={
        **ENSEMBLE,
        **{"plan": PLAN, "what_if": list[WhatIf], "elastic": [ELASTIC], "profiles": [PROFILE]},
        "submit_lines": list[SubmitLine],
    },
    optional={"why": str, "application": APPLICATION, "answers": [ADVISE_ANSWER]},
)
UNDO_OUTPUT: Final = JsonObject(
    None,
    "metlmon advise --undo --json. command: that was taken back, null if there was none.",
    name="AdviseUndoOutput",
    given={
        **ENSEMBLE,
        "command": str | None,
        "changes": [CHANGE],
        "answers": [ADVISE_ANSWER],
    },
)
