"""The JSON of ``health``, and of the health in ``status``."""

from __future__ import annotations

from typing import Final

from metlmon.cli.json_output.objects import SCHEMA, JsonObject, job_ids
from metlmon.health.types import HealthEntry
from metlmon.snapshot import types

HEALTH_ENTRY: Final = JsonObject(
    HealthEntry,
    "One trouble, the worst first. open: it is so at as-of. runs: keys of runs; nodes: their "
    "number. epochs_blocked: epochs that will not be trained unless somebody acts. reason: as "
    "logged. act: the action that metlmon act offers. policy: the expression that held or removed "
    "the jobs, removal_at: when it will. gpu_hours: badput. heading: what several entries have in "
    "common.",
    "key kind severity open dag runs nodes epochs_blocked since until code subcode code_name "
    "policy removal_at reason advice act site heading text gpu_hours",
    name="HealthEntry",
    computed={"jobs": (list[str], job_ids)},
)
HEALTH_OUTPUT: Final = JsonObject(
    types.Status,
    "metlmon health --json: what is wrong, the worst first. headline: the first line of it. "
    "runs_stopped: runs that go on no further unless somebody acts; epochs_left: their epochs.",
    "dagdir as_of live warnings",
    name="HealthOutput",
    computed={"schema": (int, lambda status: SCHEMA)},
    given={
        "headline": str,
        "runs_total": int,
        "runs_stopped": int,
        "epochs_left": int,
        "jobs_queued": int,
        "health": [HEALTH_ENTRY],
    },
    main=False,
)
