"""Reasons for refusing an action, shared by job, DAG and run actions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from metlmon.model.states import DagState
from metlmon.pool.types import QueueJob, QueueSnapshot, RunTarget, Target
from metlmon.snapshot.types import DagRow, JobRow
from metlmon.text.formatting import plain

MAX_NAMES: Final = 3
"""Most owners, or reasons, that a message lists."""


def no_word(snapshot: QueueSnapshot) -> str | None:
    """Why there is no queue data to act on, or None if there is."""
    if snapshot.error is not None:
        return snapshot.error
    if snapshot.asking or snapshot.asked is None:
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
    strangers = set(snapshot.strangers)
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
