"""``--queue``: the queue of the schedd beside the logs, once."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.session import Session
from metlmon.pool.connection import PoolConnection
from metlmon.pool.poller import QueuePoller
from metlmon.pool.queue_checks import STATUS_NAMES, QueueDiscrepancy
from metlmon.pool.types import QueueJob, QueueSnapshot
from metlmon.text.formatting import plain


class QueueReport(NamedTuple):
    """The queue, and where it is not what the logs say at this moment."""

    snapshot: QueueSnapshot
    discrepancies: tuple[QueueDiscrepancy, ...]

    def json(self) -> dict[str, Any]:
        """As a field of the JSON."""
        from metlmon.cli.json_output.jobs import queue_json

        return queue_json(self.snapshot, self.discrepancies)

    def print(self) -> None:
        """For people."""
        snapshot = self.snapshot
        if snapshot.error is not None:
            print(f"queue: {plain(snapshot.error, 400)}")
            return
        counts = Counter(STATUS_NAMES.get(job.status, "unknown") for job in snapshot.jobs)
        states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        schedd = plain(snapshot.schedd or "", 60)
        print(f"queue of {schedd}: {states or 'none of these jobs'}")
        for job in snapshot.jobs:
            print(f"  {_line(job)}")
        for each in self.discrepancies:
            print(f"  differs: {each.text}")


def query_queue(reader: DagdirReader) -> QueueReport:
    """One answer of the schedd. Raises InputError for a moment that is past."""
    if reader.as_of is not None:
        raise InputError("--queue tells how it is now: leave out --as-of")
    session, connection = Session(reader), PoolConnection()
    session.take()
    queue = QueuePoller(session, connection)
    try:
        return QueueReport(queue.query(), queue.discrepancies)
    finally:
        connection.close()


def _line(job: QueueJob) -> str:
    parts = [f"{job.cluster}.{job.proc}", STATUS_NAMES.get(job.status, "unknown")]
    parts.append(f"priority {job.priority}")
    if job.position is not None:
        parts.append(f"place {job.position} of {job.waiting} idle")
    parts.append(f"matched {job.matches}×")
    if job.position is not None and job.rejection:
        parts.append(plain(job.rejection, 120))
    return "  ".join(parts)
