"""Ensembles for trackers, and the expected content of a tracking server.

The points are computed from files of ``metlmon export`` and ``metlmon curves``, without the
exporter's code.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from metlmon.cli.reading import input_with_trainings
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.tracking.mlflow_runs import TrackedEnsemble, tracked_ensemble
from tests.support.commands import Captured, json_output, run_command
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log, Out
from tests.support.tracking_server import StoredRun, TrackingServer

RUNS: Final = ("run0", "run1")
EPOCHS: Final = 2

COLUMNS: Final = ("gpu_hours_goodput", "gpu_hours_badput", "attempts", "gpus", "seconds")
"""Columns of ``epochs.csv`` that are metrics."""

SUMS: Final = ("wait_seconds", "transfer_seconds", "bytes_sent", "bytes_received")
"""Columns of ``executions.csv`` whose sums over an epoch are metrics."""


def node(run: str, epoch: int) -> str:
    return f"{run}-train_epoch{epoch}"


def uuid(run: str) -> str:
    return f"{run[-1] * 8}-0000"


def dag_text() -> str:
    """A DAG of the epochs of both runs, in chains; ``lr`` is swept."""
    text = "SUBMIT-DESCRIPTION train {\n    executable = train.sh\n    log = metl.log\n}\n"
    for run in RUNS:
        for epoch in range(EPOCHS):
            lr = 10.0 ** -int(run[-1])
            text += f"JOB {node(run, epoch)} train\n"
            text += f'VARS {node(run, epoch)} run_uuid="{uuid(run)}" epoch="{epoch + 1}" '
            text += f'lr="{lr}"\n'
        text += f"PARENT {node(run, 0)} CHILD {node(run, 1)}\n"
    return text


def metrics_csv(values: Iterable[tuple[int, float]]) -> str:
    """Lightning's file with the validation loss by epoch."""
    return "epoch,step,val_loss\n" + "".join(f"{e},{100 * e},{v}\n" for e, v in values)


def small_ensemble(path: Path) -> Dagdir:
    """Two finished runs of two epochs: one was evicted and continues, one diverges."""
    path.mkdir(parents=True, exist_ok=True)
    dagdir = Dagdir(path, dag_text())
    dagdir.write("metlmon.toml", 'tz = "America/Chicago"\n')
    log, out = Log(), Out().start()
    cluster = 100
    for epoch in range(EPOCHS):
        for run in RUNS:
            cluster += 1
            log.submit(cluster, node(run, epoch))
            if (run, epoch) == ("run0", 1):
                log.execute(cluster, gpus=2, site="Delta-GPU").evict(cluster)
            log.execute(cluster, gpus=2, site="Expanse-GPU").image(cluster, 40000 + cluster)
            log.terminate(cluster, run=(1000 + cluster, 2000), total=(1000 + cluster, 2000))
    dagdir.write("metl.log", log.data)
    dagdir.write("run.dag.dagman.out", out.exit(0, str(log.clock)).data)
    for run, last in (("run0", 0.25), ("run1", math.nan)):
        text = metrics_csv([(0, 0.5), (1, last)])
        dagdir.write(f"training_logs/{uuid(run)}/version_0/metrics.csv", text)
    return dagdir


# --- content of a server ----------------------------------------------------------------------


class RunState(NamedTuple):
    """A run of a server, comparable with that of another experiment. Times in milliseconds."""

    parent: str | None
    status: str
    start: int
    end: int | None
    params: dict[str, str]
    tags: dict[str, str]
    points: list[tuple[str, int, str, int]]
    report: str


def server_state(server: TrackingServer, experiment: str) -> dict[str, RunState]:
    """All runs of an experiment by name, which must be unique."""
    runs = server.runs(experiment)
    names = {run.id: run.name for run in runs}
    assert len(set(names.values())) == len(runs), sorted(names.values())
    return {run.name: _run_state(server, run, names) for run in runs}


def _run_state(server: TrackingServer, run: StoredRun, names: dict[str, str]) -> RunState:
    tags = {name: text for name, text in run.tags.items() if name != "mlflow.parentRunId"}
    points = [(key, *point) for key, points in run.metrics.items() for point in points]
    reports = list(server.artifacts.glob(f"*/{run.id}/artifacts/report.html"))
    return RunState(
        parent=names[run.parent] if run.parent is not None else None,
        status=run.status,
        start=run.start,
        end=run.end,
        params=run.params,
        tags=tags,
        points=sorted((key, step, repr(value), time) for key, step, value, time in points),
        report="".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in reports),
    )


# --- expected content -------------------------------------------------------------------------

Points = dict[tuple[str, int], tuple[float, int | None]]
"""Value and time, None if no column has it, by metric and step."""

Row = dict[str, str]


def expected_points(dagdir: Path, tables: Path, capsys: Captured) -> dict[str | None, Points]:
    """The points of a finished ensemble, by run; those of the parent under None."""
    command = ("--out", tables, "--to", "csv")
    assert run_command("export", capsys, dagdir, *command)[0] == 0
    rows = {name: _read(tables / f"{name}.csv") for name in ("epochs", "executions", "jobs")}
    points: dict[str | None, Points] = defaultdict(dict)
    for epoch in rows["epochs"]:
        if epoch["counts"] == "true" and int(epoch["attempts"]):
            time = _milliseconds(epoch["completed"])
            for key, value in _epoch_values(epoch, rows["executions"], rows["jobs"]):
                points[epoch["key"]][key, int(epoch["epoch"]) - 1] = value, time
    times = {
        (epoch["key"], int(epoch["epoch"]) - 1): _milliseconds(epoch["completed"])
        for epoch in rows["epochs"]
        if epoch["counts"] == "true"
    }
    for metric in json_output("curves", capsys, dagdir)["metrics"]:
        curves = json_output("curves", capsys, dagdir, "--metric", metric)
        for run in curves["runs"]:
            for point in run["points"]:
                value = point["value"] if point["odd"] is None else float(point["odd"])
                epoch = point["epoch"] - 1
                points[run["key"]][metric, epoch] = value, times.get((run["key"], epoch))
    points[None] = _usage(rows["executions"])
    return points


def _epoch_values(epoch: Row, executions: list[Row], jobs: list[Row]) -> Iterable[Any]:
    for column in COLUMNS:
        if epoch[column]:
            yield f"metlmon/{column}", float(epoch[column])
    same = lambda row: (row["in_dag"], row["node"]) == (epoch["in_dag"], epoch["node"])  # noqa: E731
    for column in SUMS:
        known = [float(row[column]) for row in executions if same(row) and row[column]]
        if known:
            yield f"metlmon/{column}", sum(known)
    memory = [float(row["memory_mb"]) for row in jobs if same(row) and row["memory_mb"]]
    if memory:
        yield "system/memory_mb", max(memory)


def _usage(executions: list[Row]) -> Points:
    """GPU-hours so far, after each execution in the order of their ends."""
    ended = [row for row in executions if row["end"]]
    ended.sort(
        key=lambda row: (
            *(_milliseconds(row["end"]), int(row["cluster"]), int(row["proc"])),
            _milliseconds(row["start"]),
        )
    )
    points: Points = {}
    totals = {"goodput": 0.0, "badput": 0.0}
    for step, row in enumerate(ended, 1):
        totals[row["kind"]] += float(row["gpu_hours"] or 0)
        for kind, total in totals.items():
            points[f"metlmon/gpu_hours_{kind}", step] = total, _milliseconds(row["end"])
    return points


def _read(path: Path) -> list[Row]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _milliseconds(text: str) -> int | None:
    """A time of a table; one without an offset is local, as for the exporter."""
    return round(1000 * datetime.fromisoformat(text).timestamp()) if text else None


def stored_points(run: StoredRun) -> Points:
    """The points of a run on the server; each metric has one at a step."""
    points: Points = {}
    for key, metric in run.metrics.items():
        for point in metric:
            assert (key, point.step) not in points, (run.name, key, point.step)
            points[key, point.step] = point.value, point.time
    return points


def tracked_by(reader: DagdirReader) -> TrackedEnsemble:
    """The runs that a tracker should have, once the logs have an event."""
    ensemble = tracked_ensemble(reader.snapshot_builder(), input_with_trainings(reader))
    assert ensemble is not None
    return ensemble
