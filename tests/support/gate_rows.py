"""Gated runs in short form: as in a snapshot, and as files beside a DAG."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from metlmon.jobfiles.gate_files import Stopped
from metlmon.model.run import GateStatus
from metlmon.model.states import State
from metlmon.pool.types import QueueJob, QueueSnapshot, SelectedRun
from metlmon.snapshot.records import Epoch, GpuHours, Job, Run, Snapshot
from tests.support.queue_rows import NINE, Logs, dag, dagman, job, row
from tests.support.records import blank

UUID = "aaaa1111-0000"
OTHER = "bbbb2222-0000"
NOTHING_ASKED = GateStatus()
STOPPED = Stopped("patience", 4, "val_loss has not improved for 2 epochs", NINE)

WORD = QueueSnapshot(
    schedd="ap.example.org", user="anna@example.org", queried_at=100.0, dagmans=(dagman(),)
)
"""A schedd that has the DAG's DAGMan, and no job."""


def latest(epoch: int, state: State = State.RUNNING, **more: object) -> Epoch:
    made = blank(
        Epoch,
        epoch=epoch,
        epoch_var=epoch + 1,
        node=f"run0-train_epoch{epoch}",
        cluster=7,
        proc=0,
        target="delta",
        state=state,
        since=NINE,
        attempts=1,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def run(gate: GateStatus | None = NOTHING_ASKED, **more: object) -> Run:
    """Ten epochs, of which two are done and the third runs."""
    made = blank(
        Run,
        key=UUID,
        run="run0",
        uuid=UUID,
        dag="ens.dag",
        epochs_total=10,
        epochs_done=2,
        state=State.RUNNING,
        latest=latest(2),
        hours=GpuHours(),
        gate=gate,
        retries_left=2,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def training(
    cluster: int = 7, node: str = "run0-train_epoch2", state: State = State.RUNNING
) -> Job:
    """The run's job in the queue, by the logs."""
    return replace(row(cluster, state, node=node), uuid=UUID, epoch=2)


def queued(cluster: int = 7, node: str = "run0-train_epoch2", **more: object) -> QueueJob:
    """The queue's record of it: pinned to delta by its requirements."""
    status = more.pop("status", 2)
    more = {"site": "delta", "by_site": True, **more}
    return job(cluster, status, node=node, **more)  # type: ignore[arg-type]


def selected(of: Run | None = None, *jobs: Job) -> SelectedRun:
    return SelectedRun(of or run(), jobs or (training(),))


class GatedLogs(Logs):
    """A feed on a snapshot with these runs."""

    def __init__(self, *rows: Job, runs: Iterable[Run], dagdir: Path) -> None:
        super().__init__(*rows, dags=[dag()], dagdir=dagdir)
        self.runs = tuple(runs)

    @property
    def latest(self) -> Snapshot | None:
        update = super().latest
        return replace(update, status=replace(update.status, runs=self.runs))


def rules(dagdir: Path, name: str = "ens", *uuids: str) -> None:
    """Write the file by which the gate knows its runs, and the DAG file beside it."""
    runs = {uuid: {"name": "run0", "metrics": "output"} for uuid in uuids or (UUID,)}
    result = {"schema": 1, "dag": name, "rules": {}, "runs": runs}
    (dagdir / f"{name}.gate.json").write_text(json.dumps(result))
    (dagdir / f"{name}.dag").write_text("JOB run0-train_epoch0 e.sub\n")


def asked(**more: object) -> GateStatus:
    return replace(NOTHING_ASKED, **more)  # type: ignore[arg-type]


def at(hour: int) -> datetime:
    return NINE.replace(hour=hour)
