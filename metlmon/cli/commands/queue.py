"""``--queue``: the queue's word beside the logs', once."""

from __future__ import annotations

from collections import Counter
from typing import TextIO

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.errors import InputError
from metlmon.live.session import Session
from metlmon.pool.connection import PoolConnection
from metlmon.pool.discrepancies import WORDS, QueueDiscrepancy
from metlmon.pool.poller import QueuePoller
from metlmon.pool.types import QueueJob, QueueSnapshot
from metlmon.text.formatting import plain


def ask(reader: DagdirReader) -> tuple[QueueSnapshot, tuple[QueueDiscrepancy, ...]]:
    """One answer of the schedd, and where it is not what the logs say at this moment. What it
    says counts towards being live. Raises InputError for a moment that is past."""
    if reader.as_of is not None:
        raise InputError("--queue tells how it is now: leave out --as-of")
    session, connection = Session(reader), PoolConnection()
    session.take()
    queue = QueuePoller(session, connection)
    try:
        return queue.ask(), queue.differing
    finally:
        connection.close()


def print_queue(
    word: QueueSnapshot, differing: tuple[QueueDiscrepancy, ...], stream: TextIO
) -> None:
    """The word as lines for people."""
    if word.error is not None:
        print(f"queue: {plain(word.error, 400)}", file=stream)
        return
    counts = Counter(WORDS.get(job.status, "unknown") for job in word.jobs)
    said = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    schedd = plain(word.schedd or "", 60)
    print(f"queue of {schedd}: {said or 'none of these jobs'}", file=stream)
    for job in word.jobs:
        print(f"  {_line(job)}", file=stream)
    for each in differing:
        print(f"  differs: {each.text}", file=stream)


def _line(job: QueueJob) -> str:
    parts = [f"{job.cluster}.{job.proc}", WORDS.get(job.status, "unknown")]
    parts.append(f"priority {job.priority}")
    if job.position is not None:
        parts.append(f"place {job.position} of {job.waiting} idle")
    parts.append(f"matched {job.matches}×")
    if job.position is not None and job.rejection:
        parts.append(plain(job.rejection, 120))
    return "  ".join(parts)
