"""Why something cannot be done, in words that offers for jobs, DAGs and runs share. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from metlmon.model.states import DagState
from metlmon.pool.types import QueueJob, QueueSnapshot, RunTarget, Target
from metlmon.snapshot.types import DagRow, JobRow
from metlmon.text.formatting import plain

SOME_NAMES: Final = 3
"""Owners, or reasons, that a sentence names."""


def no_word(word: QueueSnapshot) -> str | None:
    """Why nothing can be asked of the schedd, None when it can."""
    if word.error is not None:
        return word.error
    if word.asking or word.asked is None:
        return "the schedd has not answered yet"
    return None


def not_yours(job: QueueJob | None, word: QueueSnapshot) -> str | None:
    """Whose job it is, where it is another's."""
    if job is None or not word.user or not job.owner or job.owner == user_name(word.user):
        return None
    return f"belongs to {plain(job.owner, 40)}, you are {plain(user_name(word.user), 40)}"


def user_name(user: str) -> str:
    """A user without the domain."""
    return user.partition("@")[0]


def not_here(word: QueueSnapshot, touched: Sequence[Target]) -> str | None:
    """The logs have them in the queue, and the schedd knows of none: then of none of ours at
    all. (Single jobs may have come since it was asked.)"""
    if word.jobs or word.dagmans or not touched:
        return None
    strangers = set(word.strangers)
    if any((each.cluster, each.proc) in strangers for each in touched):
        return (
            f"the schedd {plain(word.schedd or '', 60)} has jobs of these numbers that belong to "
            "another directory: the logs are a copy, or another machine's"
        )
    return (
        f"the schedd {plain(word.schedd or '', 60)} does not have these jobs: the logs are "
        "another machine's, or old"
    )


def not_running(dag: DagRow) -> str | None:
    """Why there is no DAGMan that would hear of anything."""
    if dag.state is DagState.RUNNING:
        return None
    if dag.state is DagState.HELD:
        return "DAGMan is held: release it first (release-dag)"
    if dag.state is DagState.RESTARTING:
        return "DAGMan does not run at the moment: it will be started again"
    if dag.state is DagState.UNKNOWN:
        return "no file here tells whether the DAG runs"
    return f"the DAG does not run: it is {str(dag.state).replace('-', ' ')}"


def counted(left_out: Sequence[tuple[Target | RunTarget, str]]) -> str:
    """``2 held already; 1 running: not held``: the most frequent reasons."""
    reasons = Counter(why for _, why in left_out)
    return "; ".join(f"{count} {why}" for why, count in reasons.most_common(SOME_NAMES))


def target(row: JobRow, file: str | None = None) -> Target:
    """The job as an order names it."""
    return Target(row.cluster, row.proc, row.dag, row.node, row.run, row.epoch, row.state, file)
