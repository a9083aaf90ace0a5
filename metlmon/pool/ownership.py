"""Checks whether a job in the queue is the one in the logs.

The logs may be a copy, forged, or from another machine; the local schedd may then have a
different job with the same id. Pure except for ``realpath``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from metlmon.dagman import read_dagman_arguments
from metlmon.pool.types import QueueJob
from metlmon.pool.worker import SCHEDULER_UNIVERSE
from metlmon.snapshot.types import DagRow

DEEPEST: Final = 10
"""Maximum depth of nested DAGs."""


class Ownership:
    """Which jobs in the queue belong to the ensemble of ``dagdir``.

    ``dags`` and ``logs``: its DAGs and event logs (names in the dagdir). ``find`` returns the ad
    of a cluster's job 0, or None if the queue does not have it; its exceptions propagate.
    """

    def __init__(
        self,
        dagdir: Path,
        dags: Iterable[DagRow],
        logs: Iterable[str],
        find: Callable[[int], QueueJob | None],
    ) -> None:
        rows = list(dags)
        self._find = find
        self._real_paths: dict[str, str | None] = {}
        self._files = {dag.cluster: dagdir / dag.file for dag in rows if dag.cluster is not None}
        self._logs = {self._real_path(str(dagdir / log)) for log in logs} - {None}
        self._nodes_logs = {self._real_path(f"{dagdir / dag.file}.nodes.log") for dag in rows} - {
            None
        }
        self._dagmans: dict[int, bool] = {}

    def includes(self, job: QueueJob, node: str | None) -> bool:
        """Whether the job is ours.

        Its node must be ``node``, if that is known; and it must write a log that was read, or be
        submitted by a DAGMan that runs a DAG file here.
        """
        if node is not None and job.node != node:
            return False
        return self._writes_our_log(job) or self._is_dagman(job.dagman)

    def _writes_our_log(self, job: QueueJob) -> bool:
        """Whether the job writes one of our logs.

        Jobs of several directories may share a log; if the job has a DAGMan nodes log, that must
        be the nodes log of a DAG here.
        """
        if job.nodes_log:
            nodes_log = self._job_path(job, job.nodes_log)
            if nodes_log in self._logs:
                return True
            if nodes_log not in self._nodes_logs:
                return False
        return bool(job.log) and self._job_path(job, job.log or "") in self._logs

    def _is_dagman(self, cluster: int | None, depth: int = DEEPEST) -> bool:
        """Whether this DAGMan runs a DAG file here, or one of its ancestors does."""
        if cluster is None or not depth:
            return False
        if cluster not in self._dagmans:
            self._dagmans[cluster] = False
            job = self._find(cluster)
            self._dagmans[cluster] = job is not None and (
                (cluster in self._files and is_dagman_of(job, self._files[cluster]))
                or (job.universe == SCHEDULER_UNIVERSE and self._is_dagman(job.dagman, depth - 1))
            )
        return self._dagmans[cluster]

    def _job_path(self, job: QueueJob, path: str) -> str | None:
        """The real path of ``path``, resolved against the job's directory."""
        return self._real_path(os.path.join(job.directory or "/", path))

    def _real_path(self, path: str) -> str | None:
        if path not in self._real_paths:
            self._real_paths[path] = _real_path(path)
        return self._real_paths[path]


def is_dagman_of(job: QueueJob, dag_file: Path) -> bool:
    """Whether the job is a DAGMan that runs this DAG file as its primary one.

    Name and directory must match, since the primary DAG file names the log and the halt file. If
    ``dag_file`` is a symbolic link, a DAGMan of the link's target does not match.
    """
    if job.universe != SCHEDULER_UNIVERSE or not job.arguments or not job.directory or not job.log:
        return False
    files = read_dagman_arguments(job.arguments).dag_files
    return (
        bool(files)
        and _job_entry(job, files[0]) == _entry(str(dag_file))
        and _job_entry(job, job.log) == _entry(f"{dag_file}.dagman.log")
    )


def runs_file(job: QueueJob, dag_file: Path) -> bool:
    """Whether the job runs the DAG file, under any name, as any of its DAG files."""
    if job.universe != SCHEDULER_UNIVERSE or not job.arguments or not job.directory:
        return False
    real_dag_file = _real_path(str(dag_file))
    files = read_dagman_arguments(job.arguments).dag_files
    return any(real_dag_file == _real_path(os.path.join(job.directory, file)) for file in files)


def belongs_elsewhere(job: QueueJob) -> str:
    """The message about a job with one of our ids that is not ours."""
    return f"the queue's job {job.cluster}.{job.proc} belongs to another directory"


def _job_entry(job: QueueJob, path: str) -> str | None:
    return _entry(os.path.join(job.directory or "/", path))


def _entry(path: str) -> str | None:
    """The path with its directory's links resolved; None if it is no valid path."""
    directory, name = os.path.split(path)
    real = _real_path(directory)
    return None if real is None else os.path.join(real, name)


def _real_path(path: str) -> str | None:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return None
