"""The queue's state of a job beside the logs': where do they differ, and lastingly?

The log is written by the shadow and the schedd as things happen, the queue's ad by the schedd
and, for a running job, by the shadow's updates: they are never looked at in the same moment,
so only what differs in answers half a minute apart, with nothing new in the log, is told.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from metlmon.frozen import frozen
from metlmon.model.states import ACTIVE, TERMINAL, State
from metlmon.pool.types import QueueJob, QueueSnapshot
from metlmon.snapshot.types import JobRow

JobId = tuple[int, int]

IDLE, RUNNING, REMOVED, COMPLETED, HELD, TRANSFERRING, SUSPENDED = 1, 2, 3, 4, 5, 6, 7

WORDS: Final = {
    IDLE: "idle",
    RUNNING: "running",
    REMOVED: "being removed",
    COMPLETED: "completed",
    HELD: "held",
    TRANSFERRING: "transferring output",
    SUSPENDED: "suspended",
}
"""``JobStatus`` in words. Manual: "Job ClassAd Attributes"."""

_BUSY: Final = frozenset({RUNNING, TRANSFERRING})

AGREES: Final[Mapping[State, frozenset[int]]] = {
    State.IDLE: frozenset({IDLE}),
    # A job is status 2 from its match on: its input transfer, its start, a lost connection to
    # its machine; and 6 comes and goes with output transfers, a checkpoint's too.
    State.TRANSFERRING_INPUT: _BUSY,
    State.STARTING: _BUSY,
    State.RUNNING: _BUSY,
    State.TRANSFERRING_OUTPUT: _BUSY,
    # Suspension at the machine reaches the ad with the shadow's next update, if at all.
    State.DISCONNECTED: _BUSY | {SUSPENDED},
    State.SUSPENDED: _BUSY | {SUSPENDED},
    State.HELD: frozenset({HELD}),
    # Ended: gone from the queue, or kept there by its own wish (LeaveJobInQueue), or not yet
    # taken out.
    State.COMPLETED: frozenset({COMPLETED, REMOVED}),
    State.FAILED: frozenset({COMPLETED, REMOVED}),
    State.REMOVED: frozenset({REMOVED, COMPLETED}),
}
"""By the logs' state: the queue's that say the same. Besides, a job that is being removed (3)
agrees with every state: its log says so only when it has ended."""

GONE: Final = 0
"""In place of a status: the queue does not have the job."""


@frozen
class QueueDiscrepancy:
    """A job of which the queue says something else than the logs. ``state`` None: no log tells
    of it. ``first``: when the queue said so first (seconds since the epoch)."""

    job: JobId
    status: int
    state: State | None
    since: datetime | None
    first: float

    @property
    def queue_says(self) -> str:
        """The queue's state, in words."""
        return "not in the queue" if self.status == GONE else WORDS.get(self.status, "unknown")

    @property
    def text(self) -> str:
        """The warning's sentence."""
        name = f"{self.job[0]}.{self.job[1]}"
        if self.state is None:
            return f"{name} is {self.queue_says} in the queue; no log tells of it"
        said = str(self.state).replace("_", " ")
        if self.status == GONE:
            return f"{name} is {said} by its log, and not in the queue any more"
        return f"{name} is {said} by its log, {self.queue_says} in the queue"


def agree(state: State, status: int) -> bool:
    """Do the logs' ``state`` and the queue's ``status`` say the same?"""
    if status == GONE:
        return state in TERMINAL or state not in ACTIVE
    return status == REMOVED or status in AGREES.get(state, frozenset())


def differences(
    word: QueueSnapshot,
    rows: Mapping[JobId, JobRow],
    before: Mapping[JobId, QueueDiscrepancy],
) -> dict[JobId, QueueDiscrepancy]:
    """What differs in this answer. ``rows``: the logs' jobs that are in the queue by the logs,
    and all that the word has, as far as a log tells of them. One that differed the same way in
    the answer ``before``, its log unchanged, keeps the time when it was first seen."""
    if word.asked is None or word.error is not None:
        return {}
    found = {}
    queue: dict[JobId, QueueJob] = {(job.cluster, job.proc): job for job in word.jobs}
    for key in sorted({*queue, *rows} - set(word.strangers)):
        job, row = queue.get(key), rows.get(key)
        status = job.status if job is not None else GONE
        state = row.state if row is not None else None
        if state is not None and agree(state, status):
            continue
        since = row.since if row is not None else None
        known = before.get(key)
        same = known is not None and (known.status, known.state, known.since) == (
            status,
            state,
            since,
        )
        first = known.first if same and known is not None else word.asked
        found[key] = QueueDiscrepancy(key, status, state, since, first)
    return found


def lasting(
    found: Mapping[JobId, QueueDiscrepancy], asked: float, seconds: float
) -> tuple[QueueDiscrepancy, ...]:
    """Those that have been so for ``seconds``."""
    return tuple(each for each in found.values() if asked - each.first >= seconds)
