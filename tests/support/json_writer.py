"""Snapshots of an ensemble as the commands write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metlmon.cli.json_output.jobs import JOB, JOBS_OUTPUT
from metlmon.cli.json_output.objects import Stamp, ensemble_output
from metlmon.cli.json_output.status import RUN_OUTPUT, STATUS_OUTPUT
from metlmon.snapshot import types
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.ledger import Job


class JsonWriter:
    """Writes the snapshots of one ensemble; ``stamp`` adds a zone to times where one is known."""

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp

    def status(self, status: types.Status, **more: Any) -> dict[str, Any]:
        """The ensemble."""
        return STATUS_OUTPUT.write(status, self._stamp, **more)

    def run_view(self, view: types.RunView) -> dict[str, Any]:
        """A run with its epochs."""
        return RUN_OUTPUT.write(view.row, self._stamp, epochs=view.epochs, side_nodes=view.side)

    def job(self, job: Job) -> dict[str, Any]:
        """A job."""
        return JOB.write(job, self._stamp)

    def jobs(self, builder: SnapshotBuilder, rows: Iterable[Job]) -> dict[str, Any]:
        """The jobs."""
        return ensemble_output(JOBS_OUTPUT, builder, None, jobs=rows)
