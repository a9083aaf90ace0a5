"""The JSON of ``status``, ``run`` and ``health``, and the estimate and the metrics in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from metlmon.cli.json_output.jobs import QUEUE
from metlmon.cli.json_output.objects import (
    SCHEMA,
    JsonObject,
    Stamp,
    finite,
    job_ids,
    nonfinite,
)
from metlmon.health.types import Health, HealthEntry
from metlmon.jobfiles.records import Point
from metlmon.model.job_events import JobId
from metlmon.model.states import State
from metlmon.snapshot import types
from metlmon.stats.curves import MetricCurve
from metlmon.stats.estimates import Forecast
from metlmon.stats.lineage import CheckpointOrigin, origin_of
from metlmon.text.formatting import epoch_number, job_id

if TYPE_CHECKING:
    from metlmon.live.feed import StatsInput
    from metlmon.snapshot.builder import SnapshotBuilder
    from metlmon.stats.run_figures import RunFigures

# --- hours ------------------------------------------------------------------------------------


HOUR_FIELDS: Final = ("goodput", "badput", "running")
"""The parts of a sum of hours."""


def _gpu_hours(name: str, hours: types.GpuHours) -> float:
    return round(float(getattr(hours.of_gpus, name)), 6)


HOURS: Final = JsonObject(
    types.GpuHours,
    "Hours in the measure of the ensemble: GPU; CPU or wall where nothing had a GPU.",
    "measure goodput badput running total",
    name="Hours",
    main=False,
)
GPU_HOURS: Final = JsonObject(
    types.GpuHours,
    "GPU-hours that ended well or are in a stored checkpoint, otherwise, and of what runs.",
    computed={name: (float, partial(_gpu_hours, name)) for name in (*HOUR_FIELDS, "total")},
)
_SPLIT: Final = {
    name: (float, lambda row, name=name: _gpu_hours(name, row.gpu_hours)) for name in HOUR_FIELDS
}


def _job_text(job: JobId | None) -> str | None:
    return None if job is None else job_id(*job)


# --- metrics ------------------------------------------------------------------------------------

POINT: Final = JsonObject(
    Point,
    "A value of a metric at an epoch; where it is no number it is null, and odd says which "
    "(nan, inf, -inf). version: the k of the version_<k> that it comes from, null for other files.",
    "epoch version file",
    computed={
        "value": (float | None, lambda point: finite(point.value)),
        "odd": (str | None, lambda point: nonfinite(point.value)),
    },
)
SINCE: Final = (
    int | None,
    lambda curve: None if curve.since is None else epoch_number(curve.since),
)
"""The epoch since which a curve has its course."""

RUN_METRIC: Final = JsonObject(
    MetricCurve,
    "The primary metric of a run, as in metlmon curves --json; is_best: of several runs.",
    "goal last best trend course",
    name="RunMetric",
    computed={"since": SINCE},
    given={"metric": str, "is_best": bool},
    main=False,
)
RUN_FIGURES: Final = {
    "metric": (RUN_METRIC, None),
    "swept": dict[str, str | None],
    "wall_seconds": float | None,
}
"""The fields of a run that statistics add, and their kinds."""


def run_figures_json(row: types.RunRow, figures: RunFigures, stamp: Stamp) -> dict[str, Any]:
    """The values of these fields."""
    curve, wall = figures.by_run.get(row.key), figures.wall_seconds.get(row.key)
    given = {"metric": figures.curves.metric, "is_best": row.key == figures.best}
    return {
        "metric": None if curve is None else RUN_METRIC.write(curve, stamp, **given),
        "swept": {name: figures.swept_value(row.key, name) for name in figures.swept_names},
        "wall_seconds": None if wall is None else round(wall, 3),
    }


# --- runs -------------------------------------------------------------------------------------

LATEST: Final = JsonObject(
    types.Epoch,
    "The latest epoch of a run that was submitted.",
    "epoch epoch_var node cluster proc target site gpu gpus state since attempts hold_reason "
    "hold_code off_target overruled",
    name="Latest",
    main=False,
)
FAILED: Final = JsonObject(
    types.Epoch,
    "The epoch that a run failed at. part of it failed (pre, submit, post or job) for a reason of "
    "DAGMan's, where its job's events do not show it.",
    "epoch node state since part reason",
    name="FailedEpoch",
    main=False,
)
RUN: Final = JsonObject(
    types.RunRow,
    "A run; latest is null where nothing of it was submitted, dag where it is of jobs of no DAG. "
    "item: epoch or, of jobs without epochs, job. metric: null where no training wrote "
    "one. swept: variables of its nodes that differ between runs. wall_seconds: from its first "
    "submission to the end of its last job, null while one is queued. seconds: in its state."
    "",
    "run=name uuid epochs_total epochs_done epochs_inferred epochs_unknown epochs_skipped "
    "epochs_overruled state seconds latest gpu_hours hours=gpu_hours gate failed item",
    kinds={"hours": HOURS, "latest": (LATEST, None), "failed": (FAILED, None)},
    computed={"dag": (str | None, lambda run: run.dag or None)},
    optional=RUN_FIGURES,
)
CHECKPOINT: Final = JsonObject(
    CheckpointOrigin,
    "Where the checkpoint of an epoch comes from. source: recorded (by a sidecar or an event of "
    "the training, file) or inferred. execution: of the job, from 1; completed_by, "
    "completed_execution: what completed the epoch. sha256, parent_sha256: of it and of the "
    "checkpoint that it was trained from, that of parent_epoch; null where inferred. "
    "broken: why it does not continue the checkpoint of the epoch before.",
    "source site execution sha256=digest parent_sha256=parent parent_epoch file broken",
    name="Checkpoint",
    computed={
        "job": (str | None, lambda origin: _job_text(origin.job)),
        "completed_by": (str | None, lambda origin: _job_text(origin.credited)),
        "completed_execution": (int | None, lambda origin: origin.credited_execution),
    },
)
EPOCH: Final = JsonObject(
    types.Epoch,
    "An epoch, or another node of a run. job_state, job_return: what its job came to, whatever a "
    "POST script made of it.",
    "node epoch epoch_var state inferred since target site gpu gpus submitted attempts "
    "gpu_hours trained_on hold_reason hold_code job_state job_return overruled queue_wait "
    "transfer execution",
    computed={
        "dag": (str | None, lambda epoch: epoch.dag or None),
        "in_dag": (str | None, lambda epoch: epoch.in_dag or None),
        "jobs": (list[str], job_ids),
        "evaluations": (list[str], lambda epoch: [row.node for row in epoch.evaluations]),
    },
    given={"seconds": float | None},
    optional={"checkpoint": (CHECKPOINT, None)},
)
RUN_OUTPUT: Final = JsonObject(
    types.RunRow,
    "metlmon run --json: a run of status --json with its epochs.",
    name="RunOutput",
    given={"epochs": [EPOCH], "side_nodes": [EPOCH]},
    base=RUN,
    main=False,
)

# --- status -----------------------------------------------------------------------------------

DAG: Final = JsonObject(
    types.DagRow,
    "A top-level DAG. dagmans: DAGMans that ran it, null where the files cannot tell. submissions: "
    "when they were submitted. nodes_unknown: nodes whose state is in none of the files. crashes: "
    "how often DAGMan has crashed at the same place, one time after the other.",
    "file state dagmans nodes_total nodes_done nodes_failed nodes_unknown rescue submissions ended "
    "halted recoveries cluster submissions_refused=refused",
    computed={
        "hold_reason": (str | None, lambda dag: dag.hold and dag.hold.reason),
        "hold_code": (int | None, lambda dag: dag.hold and dag.hold.code),
        "crashes": (int, lambda dag: dag.crashes.number if dag.crashes else 0),
    },
)
SITE: Final = JsonObject(
    types.SiteRow,
    "A site, with its GPU-hours.",
    "site target executions completed_epochs seconds_median",
    computed=_SPLIT,
)
GPU: Final = JsonObject(
    types.GpuRow,
    "A GPU model, with its GPU-hours.",
    "gpu executions completed_epochs",
    computed=_SPLIT,
)
CAUSE: Final = JsonObject(
    types.CauseRow,
    "Lost GPU-hours by reason; end_unknown: the log lost the end of these executions.",
    "cause code subcode executions example end_unknown badput",
)
INPUT_TRANSFERS: Final = JsonObject(
    types.TransferTotals,
    "Input transfers by outcome.",
    "ok=input_ok aborted=input_aborted unfinished=input_unfinished",
    name="InputTransfers",
    main=False,
)
TRANSFERS: Final = JsonObject(
    types.TransferTotals,
    "Transfers of all jobs, and their bytes.",
    "output bytes_sent bytes_received",
    name="Transfers",
    computed={"input": (INPUT_TRANSFERS, lambda totals: totals)},
)
STATES: Final = JsonObject(
    None,
    "How many epochs, and nodes, are in each state.",
    name="States",
    given={"epochs": dict[str, int], "nodes": dict[str, int]},
)
STATUS_OUTPUT: Final = JsonObject(
    types.Status,
    "metlmon status --json; queue with --queue only. special_nodes: PROVISIONER, SERVICE and FINAL "
    "nodes, and nodes outside of runs. nodes_unlogged: nodes that ran, but have no execution in "
    "the logs: hours lack theirs.",
    "dagdir as_of live warnings dags runs special_nodes side_nodes nodes_unlogged gpu_hours "
    "hours=gpu_hours sites gpus causes transfers logs",
    name="StatusOutput",
    kinds={"hours": HOURS},
    computed={
        "schema": (int, lambda status: SCHEMA),
        "states": (
            STATES,
            lambda status: {
                "epochs": {str(state): status.epoch_states.get(state, 0) for state in State},
                "nodes": {str(state): status.node_states.get(state, 0) for state in State},
            },
        ),
    },
    optional={
        "estimate": Forecast,
        "health": list[HealthEntry],
        "queue": QUEUE,
    },
)


def runs_json(
    rows: Iterable[types.RunRow], stats: StatsInput, stamp: Stamp
) -> list[dict[str, Any]]:
    """Runs with their metrics and what else statistics add."""
    from metlmon.stats.run_figures import run_figures

    figures = run_figures(stats)
    return [RUN.write(row, stamp, **run_figures_json(row, figures, stamp)) for row in rows]


def epochs_json(
    rows: Iterable[types.Epoch], builder: SnapshotBuilder, origins: Mapping[int, CheckpointOrigin]
) -> list[dict[str, Any]]:
    """Epochs of one run with the seconds in their states, and the origins of their checkpoints."""
    return [
        EPOCH.write(
            row,
            builder.clock.with_offset,
            seconds=builder.seconds(row.since),
            checkpoint=origin_of(row, origins),
        )
        for row in rows
    ]


def figures_json(stats: StatsInput, health: Health) -> dict[str, Any]:
    """What ``status --json`` adds to the snapshot: the estimate, and the health."""
    from metlmon.stats.estimates import make_forecast

    return {"estimate": make_forecast(stats), "health": health.entries}
