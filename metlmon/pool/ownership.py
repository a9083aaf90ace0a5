"""Is the queue's job the one that the logs tell of?

Logs may be a copy, forged, or another machine's: then the schedd at hand may have a job of the
same number that is somebody else's. Pure but for ``realpath``.
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
"""DAGs below DAGs: so many levels are followed."""


class Ownership:
    """Which jobs of the queue belong to the ensemble of ``dagdir``, with these ``dags`` and event
    ``logs`` (names in the dagdir). ``find`` gives the ad of a cluster's job 0, None when the queue
    does not have it; what it raises is passed on."""

    def __init__(
        self,
        dagdir: Path,
        dags: Iterable[DagRow],
        logs: Iterable[str],
        find: Callable[[int], QueueJob | None],
    ) -> None:
        rows = list(dags)
        self._find = find
        self._real: dict[str, str | None] = {}
        self._files = {dag.cluster: dagdir / dag.file for dag in rows if dag.cluster is not None}
        self._logs = {self._path(str(dagdir / log)) for log in logs} - {None}
        self._nodes_logs = {self._path(f"{dagdir / dag.file}.nodes.log") for dag in rows} - {None}
        self._dagmans: dict[int, bool] = {}

    def includes(self, job: QueueJob, node: str | None) -> bool:
        """Is the job ours? Its node must be ``node``, where that is known, and it must write a log
        that was read, or be submitted by a DAGMan that runs a DAG file here."""
        if node is not None and job.node != node:
            return False
        return self._writes_our_log(job) or self._is_dagman(job.dagman)

    def _writes_our_log(self, job: QueueJob) -> bool:
        """Jobs of several directories may share a log: their DAGMan's log of the nodes, where it
        keeps one, must be that of a DAG here."""
        if job.nodes_log:
            nodes_log = self._meant(job, job.nodes_log)
            if nodes_log in self._logs:
                return True
            if nodes_log not in self._nodes_logs:
                return False
        return bool(job.log) and self._meant(job, job.log or "") in self._logs

    def _is_dagman(self, cluster: int | None, depth: int = DEEPEST) -> bool:
        """Does this DAGMan run a DAG file here, or was it submitted by one that does?"""
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

    def _meant(self, job: QueueJob, place: str) -> str | None:
        """``place`` as the job means it."""
        return self._path(os.path.join(job.directory or "/", place))

    def _path(self, path: str) -> str | None:
        if path not in self._real:
            self._real[path] = _real(path)
        return self._real[path]


def is_dagman_of(job: QueueJob, dag_file: Path) -> bool:
    """Is the job a DAGMan that runs this DAG file, under this name and in this directory, as its
    first one (which names its log and its halt file)? Where the file itself is a link, the DAGMan
    of the file behind it is another's."""
    if job.universe != SCHEDULER_UNIVERSE or not job.arguments or not job.directory or not job.log:
        return False
    files = read_dagman_arguments(job.arguments).dag_files
    return (
        bool(files)
        and _place(job, files[0]) == _entry(str(dag_file))
        and _place(job, job.log) == _entry(f"{dag_file}.dagman.log")
    )


def runs_file(job: QueueJob, dag_file: Path) -> bool:
    """Does the job run the DAG file, under whatever name, as one of its files?"""
    if job.universe != SCHEDULER_UNIVERSE or not job.arguments or not job.directory:
        return False
    real = _real(str(dag_file))
    files = read_dagman_arguments(job.arguments).dag_files
    return any(real == _real(os.path.join(job.directory, file)) for file in files)


def belongs_elsewhere(job: QueueJob) -> str:
    """What to say of a job with our number that is not ours."""
    return f"the queue's job {job.cluster}.{job.proc} belongs to another directory"


def _place(job: QueueJob, path: str) -> str | None:
    return _entry(os.path.join(job.directory or "/", path))


def _entry(path: str) -> str | None:
    """The directory with its links followed, and the name as it is; None for what is no path."""
    folder, name = os.path.split(path)
    real = _real(folder)
    return None if real is None else os.path.join(real, name)


def _real(path: str) -> str | None:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return None
