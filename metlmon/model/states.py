"""States of jobs, nodes, epochs, runs and DAGs, and outcomes of executions.

Their order is the order in which counts are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """State of a job, a node (an epoch is a node) or a run."""

    WAITING = "waiting"
    IDLE = "idle"
    TRANSFERRING_INPUT = "transferring_input"
    STARTING = "starting"
    RUNNING = "running"
    TRANSFERRING_OUTPUT = "transferring_output"
    SUSPENDED = "suspended"
    DISCONNECTED = "disconnected"
    HELD = "held"
    PRE = "pre"
    POST = "post"
    COMPLETED = "completed"
    SKIPPED = "skipped"
    FAILED = "failed"
    REMOVED = "removed"
    RETRYING = "retrying"
    FUTILE = "futile"
    UNKNOWN = "unknown"


TERMINAL: Final = frozenset({State.COMPLETED, State.FAILED, State.REMOVED})
"""Job states that no later event of the same job changes."""

DONE: Final = frozenset({State.COMPLETED, State.SKIPPED})
"""Node states that DAGMan counts as done."""

UNPLACED: Final = frozenset({State.IDLE, State.TRANSFERRING_INPUT, State.STARTING})
"""States of a queued job without a machine: the site of its last execution does not apply."""

ACTIVE: Final = frozenset(
    {
        State.IDLE,
        State.TRANSFERRING_INPUT,
        State.STARTING,
        State.RUNNING,
        State.TRANSFERRING_OUTPUT,
        State.SUSPENDED,
        State.DISCONNECTED,
        State.HELD,
    }
)
"""States of a job that is in the queue."""

CAN_RUN: Final = ACTIVE | {State.PRE, State.POST, State.RETRYING}
"""States of a node that can still run, whatever the state of its DAGMan, which waits for it."""

URGENCY: Final[Mapping[State, int]] = {
    state: rank
    for rank, state in enumerate(
        (
            State.HELD,
            State.FAILED,
            State.REMOVED,
            State.DISCONNECTED,
            State.SUSPENDED,
            State.RETRYING,
            State.RUNNING,
            State.TRANSFERRING_OUTPUT,
            State.POST,
            State.STARTING,
            State.TRANSFERRING_INPUT,
            State.PRE,
            State.IDLE,
            State.UNKNOWN,
            State.FUTILE,
            State.WAITING,
            State.SKIPPED,
            State.COMPLETED,
        )
    )
}
"""Rank of the states in lists: those that need attention, active, queued, waiting, done."""


class Outcome(StrEnum):
    """How an execution ended."""

    GOOD = "good"
    FAILED = "failed"
    EVICTED = "evicted"
    HELD = "held"
    REMOVED = "removed"
    SHADOW_EXCEPTION = "shadow-exception"
    RECONNECT_FAILED = "reconnect-failed"
    IN_FLIGHT = "in-flight"


EVICTIONS: Final = frozenset({Outcome.EVICTED, Outcome.SHADOW_EXCEPTION, Outcome.RECONNECT_FAILED})
"""Outcomes that executions may share because the place ended them."""


class DagState(StrEnum):
    """State of a DAG by its DAGMan's files.

    HELD: DAGMan's own job is on hold. RESTARTING: its schedd or DAGMan stopped, and it will be
    started again.
    """

    NOT_SUBMITTED = "not-submitted"
    RUNNING = "running"
    HELD = "held"
    RESTARTING = "restarting"
    DONE = "done"
    FAILED = "failed"
    REMOVED = "removed"
    UNKNOWN = "unknown"


ENDED: Final = frozenset({DagState.DONE, DagState.FAILED, DagState.REMOVED})
"""States of a DAG whose DAGMan has ended."""

LOST: Final = frozenset({DagState.FAILED, DagState.REMOVED})
"""States of a DAG whose DAGMan has ended without success."""

ALIVE: Final = frozenset({DagState.RUNNING, DagState.HELD, DagState.RESTARTING})
"""States of a DAG whose DAGMan job is in the queue."""


FAILED_JOB: Final = frozenset({State.FAILED, State.REMOVED})
"""States of a job for which its node fails, unless a POST script succeeds."""

OVER: Final = FAILED_JOB | {State.FUTILE}
"""States of a node that is not done, and that DAGMan will not run again."""

TROUBLE: Final = FAILED_JOB | {State.HELD}
"""States that need an action by a person."""
