"""Discrepancies between the queue's state of a job and the state in its log.

The shadow and the schedd write the log as events happen; the schedd, and for a running job the
shadow's updates, maintain the queue's ad. Both are never read at the same moment, so a
discrepancy is reported only if it is in query results half a minute apart, with no new event in
the log. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from metlmon.model.states import ACTIVE, TERMINAL, State
from metlmon.pool.types import QueueJob, QueueSnapshot
from metlmon.snapshot.types import JobRow

JobId = tuple[int, int]

IDLE, RUNNING, REMOVED, COMPLETED, HELD, TRANSFERRING, SUSPENDED = 1, 2, 3, 4, 5, 6, 7

STATUS_NAMES: Final = {
    IDLE: "idle",
    RUNNING: "running",
    REMOVED: "being removed",
    COMPLETED: "completed",
    HELD: "held",
    TRANSFERRING: "transferring output",
    SUSPENDED: "suspended",
}
"""Names of the ``JobStatus`` values. Manual: "Job ClassAd Attributes"."""

_BUSY: Final = frozenset({RUNNING, TRANSFERRING})

AGREES: Final[Mapping[State, frozenset[int]]] = {
    State.IDLE: frozenset({IDLE}),
    # Status 2 begins with the match and includes input transfer, start and lost connections;
    # 6 is set during output transfers, also those of checkpoints.
    State.TRANSFERRING_INPUT: _BUSY,
    State.STARTING: _BUSY,
    State.RUNNING: _BUSY,
    State.TRANSFERRING_OUTPUT: _BUSY,
    # A suspension reaches the ad with the shadow's next update, if at all.
    State.DISCONNECTED: _BUSY | {SUSPENDED},
    State.SUSPENDED: _BUSY | {SUSPENDED},
    State.HELD: frozenset({HELD}),
    # Ended jobs may stay in the queue for a moment, or due to LeaveJobInQueue.
    State.COMPLETED: frozenset({COMPLETED, REMOVED}),
    State.FAILED: frozenset({COMPLETED, REMOVED}),
    State.REMOVED: frozenset({REMOVED, COMPLETED}),
}
"""The ``JobStatus`` values that agree with each state in the log.

A job being removed (3) agrees with every state: its log records the removal only at the end.
"""

GONE: Final = 0
"""In place of a status: the queue does not have the job."""


class QueueDiscrepancy(Struct, frozen=True):
    """A job whose state in the queue differs from the state in its log.

    ``state`` None: no log has the job. ``first``: time of the query that showed the discrepancy
    first (seconds since the epoch).
    """

    job: JobId
    status: int
    state: State | None
    since: datetime | None
    first: float

    @property
    def queue_state(self) -> str:
        """The queue's state as text."""
        return (
            "not in the queue" if self.status == GONE else STATUS_NAMES.get(self.status, "unknown")
        )

    @property
    def text(self) -> str:
        """The warning's message."""
        name = f"{self.job[0]}.{self.job[1]}"
        if self.state is None:
            return f"{name} is {self.queue_state} in the queue; no log has it"
        state = str(self.state).replace("_", " ")
        if self.status == GONE:
            return f"{name} is {state} by its log, and not in the queue any more"
        return f"{name} is {state} by its log, {self.queue_state} in the queue"


def agree(state: State, status: int) -> bool:
    """Whether the state in the log and the queue's ``status`` agree."""
    if status == GONE:
        return state in TERMINAL or state not in ACTIVE
    return status == REMOVED or status in AGREES.get(state, frozenset())


def differences(
    snapshot: QueueSnapshot,
    rows: Mapping[JobId, JobRow],
    before: Mapping[JobId, QueueDiscrepancy],
) -> dict[JobId, QueueDiscrepancy]:
    """The discrepancies in this snapshot.

    ``rows``: the jobs queued according to the logs, and every job of the snapshot that a log has.
    A discrepancy equal to one in ``before``, with no new event in the log, keeps its ``first``
    time.
    """
    if snapshot.queried_at is None or snapshot.error is not None:
        return {}
    discrepancies = {}
    queue: dict[JobId, QueueJob] = {(job.cluster, job.proc): job for job in snapshot.jobs}
    for key in sorted({*queue, *rows} - set(snapshot.foreign_jobs)):
        job, row = queue.get(key), rows.get(key)
        status = job.status if job is not None else GONE
        state = row.state if row is not None else None
        if state is not None and agree(state, status):
            continue
        since = row.since if row is not None else None
        previous = before.get(key)
        unchanged = previous is not None and (previous.status, previous.state, previous.since) == (
            status,
            state,
            since,
        )
        first = previous.first if unchanged and previous is not None else snapshot.queried_at
        discrepancies[key] = QueueDiscrepancy(
            job=key, status=status, state=state, since=since, first=first
        )
    return discrepancies
