"""The current answers of the schedd and the collectors, for ``--queue`` and annexes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from msgspec import Struct

from metlmon.cli.output import waiting_line
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.job_events import JobId
from metlmon.model.queue import QueueJob, QueueSnapshot, utc_time
from metlmon.pool.queue_checks import STATUS_NAMES, QueueDiscrepancy, discrepancy_text
from metlmon.pool.types import PoolError
from metlmon.text.formatting import plain
from metlmon.text.record_json import Flat, Nullable

if TYPE_CHECKING:
    from metlmon.pool.annex_ads import AnnexAnswer
    from metlmon.pool.connection import PoolConnection
    from metlmon.pool.poller import QueuePoller
    from metlmon.stats.requests import Slots


class QueuedJob(NamedTuple):
    """A job in the queue; ``differs``: its state there, if the logs have another one."""

    cluster: int
    proc: int
    owner: Nullable[str]
    status: str | None
    priority: int
    position: int | None
    waiting: int
    matches: int
    rejection: str | None
    rejected_at: str | None
    differs: str | None


class QueueReport(Struct, frozen=True):
    """The queue, with times in UTC, and its current differences from the logs.

    ``missing``: jobs that are queued according to the logs, but not in the queue.
    """

    json_omits: ClassVar = frozenset({"discrepancies"})
    json_properties: ClassVar = ("jobs", "missing")

    snapshot: Flat[QueueSnapshot]
    discrepancies: tuple[QueueDiscrepancy, ...]

    @property
    def jobs(self) -> tuple[QueuedJob, ...]:
        differs = {each.job: each.queue_state for each in self.discrepancies}
        return tuple(
            QueuedJob(
                cluster=job.cluster,
                proc=job.proc,
                owner=job.owner,
                status=STATUS_NAMES.get(job.status),
                priority=job.priority,
                position=job.position,
                waiting=job.waiting,
                matches=job.matches,
                rejection=job.rejection,
                rejected_at=utc_time(job.rejected_at),
                differs=differs.get((job.cluster, job.proc)),
            )
            for job in self.snapshot.jobs
        )

    @property
    def missing(self) -> tuple[JobId, ...]:
        queued = {(job.cluster, job.proc) for job in self.snapshot.jobs}
        return tuple(sorted({each.job for each in self.discrepancies} - queued))

    def print(self) -> None:
        """Print it as text."""
        if self.snapshot.error is not None:
            print(f"queue: {plain(self.snapshot.error, 400)}")
            return
        counts = Counter(STATUS_NAMES.get(job.status, "unknown") for job in self.snapshot.jobs)
        states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        print(f"queue of {plain(self.snapshot.schedd or '', 60)}: {states or 'none of these jobs'}")
        for job in self.snapshot.jobs:
            print(f"  {_job_line(job)}")
        for each in self.discrepancies:
            print(f"  differs: {discrepancy_text([each])}")


def _job_line(job: QueueJob) -> str:
    parts = [f"{job.cluster}.{job.proc}", STATUS_NAMES.get(job.status, "unknown")]
    parts.append(f"priority {job.priority}")
    if job.position is not None:
        parts.append(f"place {job.position} of {job.waiting} idle")
    parts.append(f"matched {job.matches}×")
    if job.position is not None and job.rejection:
        parts.append(plain(job.rejection, 120))
    return "  ".join(parts)


def query_queue(reader: DagdirReader) -> QueueReport:
    """Query the schedd once. Raises InputError for a moment in the past."""
    if reader.as_of is not None:
        raise InputError("--queue shows the present state: leave out --as-of")
    if reader.host:
        raise InputError("--queue asks the schedd of this machine: leave it out, or run it there")
    with _connected(reader) as (queue, _), waiting_line("asking the schedd ..."):
        return QueueReport(queue.query(), queue.discrepancies)


def query_annexes(reader: DagdirReader, *, free_gpus: bool = False) -> AnnexAnswer:
    """Query the schedd and collectors once; ``free_gpus``: including free GPUs."""
    from metlmon.pool.annex_poller import AnnexPoller

    with (
        _connected(reader) as (queue, connection),
        waiting_line("asking schedd and collectors ..."),
    ):
        annexes = AnnexPoller(lambda: queue.snapshot, connection)
        try:
            queue.query()
            if free_gpus:
                annexes.query_gpus_soon()
            return annexes.query()
        finally:
            annexes.stop()


def query_slots() -> Slots:
    """The slots of the pool; none if its collector does not answer."""
    from metlmon.pool.connection import PoolConnection

    with closing(PoolConnection()) as connection, waiting_line("asking the collector ..."):
        try:
            return connection.slots()
        except PoolError:
            return ()


@contextmanager
def _connected(reader: DagdirReader) -> Iterator[tuple[QueuePoller, PoolConnection]]:
    """The poller of an ensemble's queue, and its connection."""
    from metlmon.live.session import Session
    from metlmon.pool.connection import PoolConnection
    from metlmon.pool.poller import QueuePoller

    session, connection = Session(reader), PoolConnection()
    session.take()
    try:
        yield QueuePoller(session, connection), connection
    finally:
        connection.close()
