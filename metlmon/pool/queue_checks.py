"""Checks before an action: who owns a job, and how queue and logs differ.

The logs may be a copy, forged, or from another machine; the local schedd may then have a
different job with the same id.

The shadow and the schedd write the log as events happen; the schedd, and for a running job the
shadow's updates, maintain the queue's ad. The two are never read at the same moment, so a
discrepancy is reported only if it persists in query results half a minute apart, without a new
event in the log. Pure except for ``realpath``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from metlmon.dagman.reports import read_dagman_arguments
from metlmon.model.states import ACTIVE, TERMINAL, State
from metlmon.pool.protocol import SCHEDULER_UNIVERSE
from metlmon.pool.types import HELD, QueueJob, QueueSnapshot, Target
from metlmon.snapshot.records import DagRow, Job
from metlmon.text.formatting import job_id, listed

DEEPEST: Final = 10
"""Maximum depth of nested DAGs."""


class Ownership:
    """Determines which jobs in the queue belong to the ensemble of ``dagdir``.

    Only the ad of a job, and those of its DAGMans, prove that: the files of a directory may be a
    copy, forged, or lead elsewhere (a link, ``SUBDAG EXTERNAL`` or ``log`` of another directory).
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
        self._find = find
        self._real_paths: dict[str, str | None] = {}
        self._dagdir = self._real_path(str(dagdir))
        rows = [dag for dag in dags if self._is_here(dagdir, dag.file)]
        self._files = {dag.cluster: dagdir / dag.file for dag in rows if dag.cluster is not None}
        self._logs = {self._real_path(str(dagdir / log)) for log in logs} - {None}
        self._nodes_logs = {_entry(f"{dagdir / dag.file}.nodes.log") for dag in rows} - {None}
        self._dagmans: dict[int, bool] = {}

    def includes(self, job: QueueJob, node: str | None) -> bool:
        """Whether the job is ours.

        Its node must be ``node``, if that is known. It must be submitted by a DAGMan that runs a
        DAG file here, or write a log that was read and work in this directory.
        """
        if node is not None and job.node != node:
            return False
        return self._is_dagman(job.dagman) or self._works_here(job)

    def _works_here(self, job: QueueJob) -> bool:
        """Whether the job writes one of our logs, and its own ad names this directory.

        The ad of a node job must name the nodes.log of a DAG here, or another one in this
        directory. The ad of any other job must name this directory as its own or its log's. As
        directories below may be other dagdirs, they count only for jobs without a DAGMan.
        """
        if self._dagdir is None:
            return False
        if job.nodes_log:
            nodes_log = _job_entry(job, job.nodes_log)
            if nodes_log in self._nodes_logs:
                return True
            read = self._real_path(nodes_log or "") in self._logs
            return read and os.path.dirname(nodes_log or "") == self._dagdir
        log = _job_entry(job, job.log or "")
        if not job.log or log is None or self._real_path(log) not in self._logs:
            return False
        places = [self._real_path(job.directory or "/"), os.path.dirname(log)]
        if self._dagdir in places:
            return True
        return job.dagman is None and any(map(self._is_below, places))

    def _is_here(self, dagdir: Path, file: str) -> bool:
        """Whether a file is in the dagdir or below it, without a link on the way."""
        name = os.path.join(self._dagdir or "", os.path.normpath(file))
        return _entry(str(dagdir / file)) == name and self._is_below(name)

    def _is_below(self, path: str | None) -> bool:
        return (
            path is not None
            and self._dagdir is not None
            and path.startswith(os.path.join(self._dagdir, ""))
        )

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

    def _real_path(self, path: str) -> str | None:
        if path not in self._real_paths:
            self._real_paths[path] = _real_path(path)
        return self._real_paths[path]


def is_dagman_of(job: QueueJob, dag_file: Path) -> bool:
    """Whether the job is a DAGMan that runs this DAG file as its primary one.

    Name and directory must match, since the primary DAG file names the log and the halt file. If
    ``dag_file`` is a symbolic link, a DAGMan of the link's target does not match.
    """
    files = _dag_files(job)
    if not files or not job.log:
        return False
    return _job_entry(job, files[0]) == _entry(str(dag_file)) and _job_entry(
        job, job.log
    ) == _entry(f"{dag_file}.dagman.log")


def runs_file(job: QueueJob, dag_file: Path) -> bool:
    """Whether the job runs the DAG file, under any name, as any of its DAG files."""
    directory, real_dag_file = job.directory or "", _real_path(str(dag_file))
    paths = [os.path.join(directory, file) for file in _dag_files(job)]
    return any(real_dag_file == _real_path(path) for path in paths)


def dagman_directory(job: QueueJob) -> str | None:
    """The absolute directory of the primary DAG file of a DAGMan job; None without one."""
    paths = [os.path.join(job.directory or "", file) for file in _dag_files(job)]
    return os.path.dirname(os.path.normpath(paths[0])) if paths else None


def _dag_files(job: QueueJob) -> tuple[str, ...]:
    """The DAG files in the arguments of a DAGMan job; empty for other jobs."""
    if job.universe != SCHEDULER_UNIVERSE or not job.arguments or not job.directory:
        return ()
    return read_dagman_arguments(job.arguments).dag_files


def belongs_elsewhere(job: QueueJob) -> str:
    """The message about a job that is not ours although it has one of our ids."""
    return f"the queue's job {job.cluster}.{job.proc} belongs to another directory"


def _job_entry(job: QueueJob, path: str) -> str | None:
    """The path, resolved against the job's directory; a link at its end is not followed."""
    return _entry(os.path.join(job.directory or "/", path))


def _entry(path: str) -> str | None:
    """The path with its directory's links resolved; None if it is not a valid path."""
    directory, name = os.path.split(path)
    real = _real_path(directory)
    return None if real is None else os.path.join(real, name)


def _real_path(path: str) -> str | None:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return None


# --- states that differ ----------------------------------------------------------------------

JobId = tuple[int, int]

IDLE, RUNNING, REMOVED, COMPLETED, TRANSFERRING, SUSPENDED = 1, 2, 3, 4, 6, 7

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
    # 6 is set during output transfers, including those of checkpoints.
    State.TRANSFERRING_INPUT: _BUSY,
    State.STARTING: _BUSY,
    State.RUNNING: _BUSY,
    State.TRANSFERRING_OUTPUT: _BUSY,
    # A suspension reaches the ad with the shadow's next update, if at all.
    State.DISCONNECTED: _BUSY | {SUSPENDED},
    State.SUSPENDED: _BUSY | {SUSPENDED},
    State.HELD: frozenset({HELD}),
    # Ended jobs may stay in the queue for a moment, or because of LeaveJobInQueue.
    State.COMPLETED: frozenset({COMPLETED, REMOVED}),
    State.FAILED: frozenset({COMPLETED, REMOVED}),
    State.REMOVED: frozenset({REMOVED, COMPLETED}),
}
"""The ``JobStatus`` values that agree with each state in the log. A job being removed (3) agrees
with every state: its log records the removal only at the end."""

IDS_NAMED: Final = 3
"""Number of jobs that a warning names; it counts the others."""

GONE: Final = 0
"""Replaces the status of a job that is not in the queue."""


class QueueDiscrepancy(Struct, frozen=True):
    """A job whose state in the queue differs from the state in its log.

    ``state`` None: no log has the job. ``first``: time of the first query that showed the
    discrepancy (seconds since the epoch).
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


def discrepancy_text(group: Sequence[QueueDiscrepancy]) -> str:
    """The warning about jobs with the same discrepancy: ``running by the log, held in …: 1.0``."""
    first = group[0]
    state = "in no log"
    if first.state is not None:
        state = f"{str(first.state).replace('_', ' ')} by the log"
    queue_state = first.queue_state if first.status == GONE else f"{first.queue_state} in the queue"
    jobs = listed([job_id(*item.job) for item in group], IDS_NAMED)
    return f"{state}, {queue_state}: {jobs}"


def agree(state: State, status: int) -> bool:
    """Whether the state in the log and the queue's ``status`` agree."""
    if status == GONE:
        return state in TERMINAL or state not in ACTIVE
    return status == REMOVED or status in AGREES.get(state, frozenset())


def differences(
    snapshot: QueueSnapshot,
    rows: Mapping[JobId, Job],
    before: Mapping[JobId, QueueDiscrepancy],
) -> dict[JobId, QueueDiscrepancy]:
    """The discrepancies in this snapshot.

    ``rows``: the jobs queued according to the logs, and every job of the snapshot that a log has.
    A discrepancy equal to one in ``before``, without a new event in the log, keeps its ``first``
    time.
    """
    if snapshot.queried_at is None or snapshot.error is not None:
        return {}
    discrepancies = {}
    for key in sorted({*snapshot.by_id, *rows} - set(snapshot.foreign_jobs)):
        job, row = snapshot.by_id.get(key), rows.get(key)
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


def user_name(user: str) -> str:
    """A user without the domain."""
    return user.partition("@")[0]


def target(row: Job) -> Target:
    """The job as a target of a request."""
    return Target(
        cluster=row.cluster,
        proc=row.proc,
        dag=row.dag,
        node=row.node_name,
        run=row.run,
        epoch=row.epoch,
        state=row.state,
    )
