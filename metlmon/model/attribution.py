"""Which DAG a job belongs to, when several DAGs share a log and even their node names.

Event 000 carries only the node's name. Evidence is asked strongest first (``domain.md``);
what stays ambiguous is said, never guessed. The DAGs that share a log need not all be in this
directory: a single candidate is questioned, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Final

from metlmon.eventlog import current_name
from metlmon.frozen import frozen
from metlmon.model.dag import SETTLED, Dag
from metlmon.model.dagman_runs import DagmanRun
from metlmon.model.job_events import Job

REMOVED_WITH: Final = re.compile(r"DAGManJobId\s*=[?=]+=?\s*(\d+)")
"""The schedd's reason for removing a node job together with its DAGMan names that DAGMan."""

NAMED_IN_AD: Final = re.compile(r"\bDAGManJobId\s*=\s*(\d+)", re.IGNORECASE)
"""A job's ClassAd (event 028) or the notes of its submit description name its DAGMan."""

NEVER_SUBMITTED: Final = frozenset({0, 7})
"""``NodeStatus`` of nodes that had no job in this life: not ready, futile."""

SWEEPS: Final = ("DAG Removed: ", "DAG Abort: ")
"""How DAGMan's own reason begins when it removes all of its jobs and ends. Source:
``main_shutdown_rescue`` in ``dagman_main.cpp``."""


@frozen
class Attribution:
    """``dag`` and ``node`` None: in no DAG here. ``candidates``: keys of the DAGs it may
    belong to when that cannot be told. ``weighed``: told, or not, by evidence that grows as
    DAGMan goes on writing. ``proven``: a file of DAGMan's, or the job itself, names the DAG's
    DAGMan as the one that submitted it. ``foreign``: a DAG that is not in this directory
    submitted it."""

    dag: str | None = None
    node: str | None = None
    candidates: tuple[str, ...] = ()
    weighed: bool = False
    proven: bool = False
    foreign: bool = False

    @property
    def candidate(self) -> str | None:
        """The only DAG here that it may belong to, where nothing proves or refutes that."""
        if self.proven or self.weighed:
            return None
        return self.dag or (self.candidates[0] if len(self.candidates) == 1 else None)


def attribute_job(
    job: Job,
    dags: Mapping[str, Dag],
    by_node: Mapping[str, Sequence[str]],
    teller: str | None = None,
    shared_logs: Collection[str] = (),
    reused: bool = False,
    overlaps: Callable[[Dag], bool] = lambda dag: False,
) -> Attribution:
    """Where ``job`` belongs. ``by_node`` maps node names to the keys of DAGs that have one;
    ``teller`` is the DAG whose DAGMan says that it submitted the job's cluster;
    ``shared_logs``: logs that hold jobs of a DAG which is not in this directory; ``reused``: the
    schedd gave its number to several jobs, so that no list of numbers refutes it; ``overlaps``:
    was a job that is proven to be this DAG's in the queue then, which DAGMan waits for before it
    submits this one?"""
    if teller is not None:
        return Attribution(teller, dags[teller].node_of(job.cluster), proven=True)
    name = job.node_name
    if job.nodes_logs:
        owners = sorted(job.nodes_logs & dags.keys())
        if len(owners) == 1:
            return Attribution(owners[0], name, proven=True)
    if name is None:
        return Attribution()
    candidates = _told_elsewhere(job, [dags[key] for key in by_node.get(name, ())])
    weighed = len(candidates) > 1
    if candidates:
        named = [dag for dag in candidates if _is_named(job, dag, dags)]
        if not named and not reused:
            candidates = [d for d in candidates if not (_did_not_submit(d, job) or overlaps(d))]
        candidates = named or candidates
        if not candidates:
            return Attribution(None, name, (), weighed, foreign=True)
        for narrow in (_by_silence, _by_batch_name, _by_dagman, _by_lifetime, _by_log):
            if len(candidates) <= 1:
                break
            candidates = narrow(job, candidates)
        certain = named or reused or job.user_logs.isdisjoint(shared_logs)
        if len(candidates) == 1 and certain:
            return Attribution(candidates[0].key, name, (), weighed, bool(named))
    return Attribution(None, name, tuple(dag.key for dag in candidates), weighed)


# --- did this DAG's DAGMan submit it? ----------------------------------------------------


def _batch_cluster(job: Job) -> int | None:
    """The cluster in a ``JobBatchName`` of DAGMan's making, "file+cluster"."""
    _, plus, cluster = (job.batch_name or "").rpartition("+")
    return int(cluster) if plus and cluster.isascii() and cluster.isdigit() else None


def _is_named(job: Job, dag: Dag, dags: Mapping[str, Dag]) -> bool:
    """Does the job name a DAGMan of this DAG? DAGs below another one have its batch name."""
    if job.aborted_by is not None:
        return dag.is_dagman(job.aborted_by)
    cluster = _batch_cluster(job)
    if cluster is None:
        return False
    return dag.is_dagman(cluster) or (dag.top in dags and dags[dag.top].is_dagman(cluster))


def _did_not_submit(dag: Dag, job: Job) -> bool:
    """Do the files of this DAG's DAGMan show that it did not submit the job?

    What they do not tell counts only where they tell of the time before and after.
    """
    submitted = job.told_submitted
    if submitted is None:
        return False
    by_out, by_jobstate, by_nodes_log = (
        until is not None and submitted <= until for until in dag.covered_until()
    )
    return (
        (by_out and dag.out_is_complete_at(submitted))
        or _was_not_ready(dag, job.node_name, submitted)
        or (by_jobstate and dag.jobstate_covers(submitted))
        or _names_another(dag, job, submitted)
        # The schedd writes each event of a DAG's jobs into its nodes.log as well.
        or (by_nodes_log and dag.nodes_log is not None and dag.nodes_log[0] <= submitted)
        or _was_not_in_queue(dag, submitted)
        or _came_before_dagman(dag, job, submitted)
    )


def _was_not_ready(dag: Dag, node: str | None, submitted: datetime) -> bool:
    """The node status file of the life in which it was submitted says that the node had no job
    yet."""
    status = dag.status
    written = status.local if status is not None else None
    begun = dag.last_start()
    known = status.nodes.get(node) if status is not None and node is not None else None
    return (
        known is not None
        and known.status in NEVER_SUBMITTED
        and begun is not None
        and begun <= submitted
        and written is not None
        and written - submitted >= SETTLED
    )


def _names_another(dag: Dag, job: Job, submitted: datetime) -> bool:
    """The job names a DAGMan that is none of this DAG's, while this DAG's was in the queue: a
    DAG has one at a time."""
    named = job.aborted_by
    if named is None and dag.is_top:
        named = _batch_cluster(job)
    if named is None:
        return False
    for life in _lives(dag):
        if life.cluster is None or life.start is None or life.start > submitted:
            continue
        # One whose end is not told may have been followed by another: not by an older one.
        until = life.over
        if until is None and named > life.cluster:
            until = dag.out_until
        if (until is None and named < life.cluster) or (until is not None and submitted <= until):
            return True
    return False


def _was_not_in_queue(dag: Dag, submitted: datetime) -> bool:
    """It was submitted between two DAGMans of this DAG."""
    starts = [life.start for life in _lives(dag) if life.start is not None]
    ends = [life.over for life in _lives(dag) if life.start is None or life.start <= submitted]
    return (
        min(starts, default=submitted) < submitted
        and any(start - submitted >= SETTLED for start in starts)
        and all(end is not None and submitted - end >= SETTLED for end in ends)
    )


def _came_before_dagman(dag: Dag, job: Job, submitted: datetime) -> bool:
    """It is in a log of another directory, from before this DAG's first DAGMan. In a log of the
    DAG's own directory such a job may be of a life whose ``.dagman.out`` was taken away."""
    first = dag.processes[0].start if dag.processes else None
    outside = bool(job.user_logs) and all(map(_is_outside, job.user_logs))
    return outside and first is not None and submitted < first


def _is_outside(log: str) -> bool:
    """Does a log, named as seen from the dagdir, lie outside it?"""
    path = PurePath(log)
    return path.is_absolute() or path.parts[:1] == ("..",)


def _lives(dag: Dag) -> list[DagmanRun]:
    """Those that got hold of the lock file: only they submit jobs."""
    return [life for life in dag.lives() if not life.refused]


# --- which of several --------------------------------------------------------------------


def _told_elsewhere(job: Job, candidates: list[Dag]) -> list[Dag]:
    """A nodes.log of a DAG whose file is not here has this job: it is none of ours."""
    if job.nodes_logs and not job.nodes_logs & {dag.key for dag in candidates}:
        return []
    return candidates


def _by_silence(job: Job, candidates: list[Dag]) -> list[Dag]:
    """A DAG whose ``.dagman.out`` tells of every submission then, and not of this one, did
    not make it."""
    submitted = job.submitted
    if submitted is None:
        return candidates
    return [d for d in candidates if not d.out_is_complete_at(submitted)] or candidates


def _by_batch_name(job: Job, candidates: list[Dag]) -> list[Dag]:
    """``JobBatchName`` is "file+cluster" of the DAGMan unless the user chose another."""
    if job.batch_name is None:
        return candidates
    cluster = _batch_cluster(job)
    if cluster is None:
        return candidates
    by_cluster = [d for d in candidates if d.is_dagman(cluster)]
    if by_cluster:
        return by_cluster
    name = PurePath(job.batch_name.rpartition("+")[0]).name
    return [d for d in candidates if PurePath(d.file).name == name] or candidates


def _by_dagman(job: Job, candidates: list[Dag]) -> list[Dag]:
    if job.aborted_by is None:
        return candidates
    mine = [d for d in candidates if d.is_dagman(job.aborted_by)]
    return mine or candidates


def _by_lifetime(job: Job, candidates: list[Dag]) -> list[Dag]:
    """Submitted while just one of the DAGs was alive."""
    submitted = job.submitted
    if submitted is None:
        return candidates
    alive = [(dag, dag.dagman_in_queue_at(submitted)) for dag in candidates]
    if any(answer is None for _, answer in alive):
        return candidates
    return [dag for dag, answer in alive if answer] or candidates


def _by_log(job: Job, candidates: list[Dag]) -> list[Dag]:
    """A node's submit description names the log its jobs write."""
    logs = {PurePath(log).name for log in job.user_logs}
    logs |= set(map(current_name, logs))
    name = job.node_name
    if not logs or name is None:
        return candidates
    fitting = []
    for dag in candidates:
        log = dag.workflow.nodes[name].log
        if log is not None and PurePath(log).name in logs:
            fitting.append(dag)
    return fitting or candidates
