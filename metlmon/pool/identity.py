"""Is the queue's job the one that the logs tell of?

Logs may be a copy, or another machine's: then the schedd at hand may have a job of the same
number that is somebody else's. Pure but for ``realpath``.
"""

from __future__ import annotations

import os
from pathlib import Path

from metlmon.dagman import read_dagman_arguments
from metlmon.pool.records import QueueJob
from metlmon.pool.worker import SCHEDULER_UNIVERSE


def is_ours(job: QueueJob, dagdir: Path, node: str | None) -> bool:
    """Does the job belong to a DAG of ``dagdir``? Its node must be ``node`` (where that is
    known), and its directory, its log or its DAGMan's log of the nodes lie in the dagdir."""
    if node is not None and job.node != node:
        return False
    home = os.path.realpath(dagdir)
    return any(_lies_in(place, home, job) for place in (job.nodes_log, job.log, job.directory))


def is_dagman_of(job: QueueJob, dag_file: Path) -> bool:
    """Is the job a DAGMan that runs this DAG file (as its first one, which names the rest)?"""
    if job.universe != SCHEDULER_UNIVERSE or not job.arguments or not job.directory:
        return False
    files = read_dagman_arguments(job.arguments).dag_files
    return bool(files) and _real(files[0], job) == os.path.realpath(dag_file)


def belongs_elsewhere(job: QueueJob) -> str:
    """What to say of a job with our number that is not ours."""
    return f"the queue's job {job.cluster}.{job.proc} belongs to another directory"


def _lies_in(place: str | None, home: str, job: QueueJob) -> bool:
    path = _real(place, job) if place else None
    return path is not None and (path == home or path.startswith(home.rstrip("/") + "/"))


def _real(place: str, job: QueueJob) -> str | None:
    """``place`` as the job means it, its links followed; None for what is no path."""
    try:
        return os.path.realpath(os.path.join(job.directory or "/", place))
    except (OSError, ValueError):
        return None
