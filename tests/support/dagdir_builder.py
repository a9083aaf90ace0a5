"""Dagdirs written by a test, and a reader's view of them."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from metlmon.config.settings import Settings
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import State
from metlmon.snapshot.records import Job, Status
from tests.support.event_logs import Log
from tests.support.recordings import read_all

NODE = "run0-train_epoch0"

DAG = f"""\
SUBMIT-DESCRIPTION train {{
    executable = train.sh
    log = metl.log
}}
JOB {NODE} train
VARS {NODE} run_uuid="aaaa1111-0000" epoch="1"
JOB run0-train_epoch1 train
VARS run0-train_epoch1 run_uuid="aaaa1111-0000" epoch="2"
PARENT {NODE} CHILD run0-train_epoch1
"""


class Dagdir:
    """A growing directory, written without metlmon's code."""

    def __init__(self, path: Path, dag: str = DAG) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        if dag:
            self.write("run.dag", dag)

    def write(self, name: str, content: str | bytes) -> Path:
        """Rewrite a file in place: the inode stays."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def append(self, name: str, content: bytes) -> None:
        with open(self.path / name, "ab") as file:
            file.write(content)

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file by rename: another inode."""
        beside = self.path / f".{name}.new"
        beside.write_bytes(content)
        os.replace(beside, self.path / name)

    def reader(
        self,
        as_of: datetime | None = None,
        live: bool | None = None,
        now: str | None = None,
        settings: Settings | None = None,
    ) -> DagdirReader:
        """A reader that has read everything; ``now`` is the access point's time."""
        clock = None if now is None else lambda: datetime.fromisoformat(now)
        return read_all(DagdirReader(self.path, settings, as_of=as_of, live=live, local_now=clock))


def again(reader: DagdirReader) -> Status:
    """Check the files, read on, and return the snapshot."""
    reader.check()
    reader.read_all()
    return reader.snapshot_builder().status()


def jobs(reader: DagdirReader) -> dict[int, Job]:
    return {job.cluster: job for job in reader.snapshot_builder().job_rows()}


def states(reader: DagdirReader) -> dict[int, State]:
    return {cluster: job.state for cluster, job in jobs(reader).items()}


def log_of(*clusters: int, node: str = NODE) -> bytes:
    log = Log()
    for cluster in clusters:
        log.submit(cluster, node)
    return log.data
