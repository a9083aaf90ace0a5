"""Texts of previews, and reasons for refusing an action on jobs, DAGs or runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from metlmon.model.states import DagState
from metlmon.pool.types import PoolAction, QueueJob, QueueSnapshot, RunTarget, Target
from metlmon.snapshot.types import DagRow, JobRow
from metlmon.text.formatting import plain

MAX_NAMES: Final = 3
"""Most owners, or reasons, that a message lists."""

NO_GATE: Final = "needs metlmon's gate (this DAG was not written by metlmon)"
NO_RETRY: Final = (
    "DAGMan has no retry left for its node, which would fail, and with it all that comes after"
)

EFFECTS: Final = {
    PoolAction.HOLD: (
        "they stop and stay in the queue, held; an execution loses what it did since its last "
        "checkpoint",
        "release lets them run again",
    ),
    PoolAction.RELEASE: ("they wait for a machine again", "hold"),
    PoolAction.REMOVE: (
        "they leave the queue; DAGMan retries a node if it has retries left, else the node fails, "
        "and what comes after it never runs",
        "cannot be undone; the run continues by a retry of DAGMan, or resubmission",
    ),
    PoolAction.VACATE: (
        "their executions end, and they wait for a machine again; what was done since the last "
        "checkpoint is lost",
        "cannot be undone; they start again by themselves",
    ),
    PoolAction.PRIORITY: (
        "among your idle jobs those of higher priority go first; jobs that run are not touched",
        "give them their old priority",
    ),
    PoolAction.RETARGET: (
        "they wait for a machine of that site alone; sets MetlSite",
        "retarget them to where they were to go",
    ),
    PoolAction.HALT: ("running jobs continue, no new ones are submitted", "resume"),
    PoolAction.RESUME: ("DAGMan submits jobs again", "halt"),
    PoolAction.RELEASE_DAG: (
        "DAGMan starts again and continues where it stopped",
        "condor_hold of DAGMan's job",
    ),
    PoolAction.REMOVE_DAG: (
        "its jobs leave the queue, DAGMan writes a rescue file and ends",
        "resubmit continues from the rescue file; running epochs begin again",
    ),
    PoolAction.RESUBMIT: (
        "DAGMan starts again; nodes that are done are not run again",
        "remove the DAG",
    ),
    PoolAction.STOP: (
        "the current epoch ends; those after it are left out, for good; other runs continue",
        "resume-run, until an epoch is left out; then metlmon continue, from the checkpoint",
    ),
    PoolAction.STOP_NOW: (
        "the epoch under way is cut off, what it did since its last checkpoint is lost; it and "
        "those after it are left out, for good; other runs continue",
        "cannot be undone; metlmon continue resumes from the last checkpoint",
    ),
    PoolAction.PAUSE: (
        "the current epoch ends; the next one waits at its gate; other runs continue",
        "resume-run",
    ),
    PoolAction.RESUME_RUN: (
        "the next epoch starts as soon as its gate looks again",
        "stop, or pause",
    ),
    PoolAction.SEND: (
        "the epochs from the next one on go there; the one in the queue stays where it is",
        "send where the DAG says",
    ),
}
"""The effect of each action, of several jobs where it is on jobs, and how to undo it."""


def missing_queue_reason(snapshot: QueueSnapshot) -> str | None:
    """Why there is no queue data to act on, or None if there is."""
    if snapshot.error is not None:
        return snapshot.error
    if snapshot.is_pending or snapshot.queried_at is None:
        return "the schedd has not answered yet"
    return None


def owner_mismatch(job: QueueJob | None, snapshot: QueueSnapshot) -> str | None:
    """That the job belongs to another user, or None."""
    if job is None or not snapshot.user or not job.owner or job.owner == user_name(snapshot.user):
        return None
    return f"belongs to {plain(job.owner, 40)}, you are {plain(user_name(snapshot.user), 40)}"


def user_name(user: str) -> str:
    """A user without the domain."""
    return user.partition("@")[0]


def jobs_missing(snapshot: QueueSnapshot, targets: Sequence[Target]) -> str | None:
    """Why none of the targets can be in this queue, or None.

    The logs have them queued, but the schedd has no job of ours at all. (Single missing jobs may
    have been submitted after the query.)
    """
    if snapshot.jobs or snapshot.dagmans or not targets:
        return None
    strangers = set(snapshot.foreign_jobs)
    schedd = plain(snapshot.schedd or "", 60)
    if any((target.cluster, target.proc) in strangers for target in targets):
        return (
            f"the schedd {schedd} has jobs of these numbers that belong to "
            "another directory: the logs are a copy, or another machine's"
        )
    return f"the schedd {schedd} does not have these jobs: the logs are another machine's, or old"


def dagman_not_running(dag: DagRow) -> str | None:
    """Why the DAG has no running DAGMan that could react."""
    if dag.state is DagState.RUNNING:
        return None
    if dag.state is DagState.HELD:
        return "DAGMan is held: release it first (release-dag)"
    if dag.state is DagState.RESTARTING:
        return "DAGMan does not run at the moment: it will be started again"
    if dag.state is DagState.UNKNOWN:
        return "no file here shows whether the DAG runs"
    return f"the DAG does not run: it is {str(dag.state).replace('-', ' ')}"


def count_reasons(left_out: Sequence[tuple[Target | RunTarget, str]]) -> str:
    """The most frequent reasons with counts: ``2 held already; 1 running: not held``."""
    reasons = Counter(reason for _, reason in left_out)
    return "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(MAX_NAMES))


def target(row: JobRow, file: str | None = None) -> Target:
    """The job as a target of a request."""
    return Target(
        cluster=row.cluster,
        proc=row.proc,
        dag=row.dag,
        node=row.node,
        run=row.run,
        epoch=row.epoch,
        state=row.state,
        file=file,
    )
