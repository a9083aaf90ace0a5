"""States of jobs, nodes, epochs, runs and DAGs, and outcomes of executions.

Their order is the order in which counts are shown.
"""

from __future__ import annotations

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

ALIVE: Final = frozenset({DagState.RUNNING, DagState.HELD, DagState.RESTARTING})
"""States of a DAG whose DAGMan job is in the queue."""


FAILED_JOB: Final = frozenset({State.FAILED, State.REMOVED})
"""States of a job for which its node fails, unless a POST script succeeds."""


class HourUnit(StrEnum):
    """Unit of the time of executions: GPU-hours, or a substitute.

    The GPU-hours of an ensemble without GPUs would be 0, whatever it cost: its unit is CPU-hours,
    by the ``Cpus`` in the 001 of each execution, or wall-clock hours if not every 001 has them.
    """

    GPU = "GPU"
    CPU = "CPU"
    WALL = "wall"

    @property
    def hours(self) -> str:
        """``GPU-hours``, ``CPU-hours``, ``wall-hours``."""
        return f"{self.value}-hours"

    @property
    def short(self) -> str:
        """``GPU-h``, for column headings."""
        return f"{self.value}-h"

    def weight(self, gpus: int | None, cpus: int | None) -> int | None:
        """Factor for the time of one execution; None if unknown."""
        if self is HourUnit.GPU:
            return gpus
        return cpus if self is HourUnit.CPU else 1


def hour_unit_of(executions: int, with_gpus: int, with_cpus: int) -> HourUnit:
    """The unit for a set of executions.

    ``with_gpus``: number of executions with a GPU. ``with_cpus``: number of executions with a
    known number of CPUs.
    """
    if with_gpus or not executions:
        return HourUnit.GPU
    return HourUnit.CPU if with_cpus == executions else HourUnit.WALL
