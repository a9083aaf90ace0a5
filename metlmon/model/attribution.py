"""Attributes jobs to DAGs, even when several DAGs share logs and node names.

Event 000 carries only the node's name. Evidence is used in order of strength
(``metlmon/README.md``); what stays ambiguous is reported as such, never guessed. The DAGs that
share a log may be in another directory: a single candidate is checked, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from metlmon.eventlog import current_name
from metlmon.model.dag import WRITE_DELAY, Dag
from metlmon.model.dagman_runs import DagmanRun
from metlmon.model.job_events import NO_DAG, LoggedJob, NodeKey

DAGMAN_IN_REMOVAL: Final = re.compile(r"DAGManJobId\s*=[?=]+=?\s*(\d+)")
"""Matches the schedd's reason for removing a node job together with its DAGMan."""

DAGMAN_IN_AD: Final = re.compile(r"\bDAGManJobId\s*=\s*(\d+)", re.IGNORECASE)
"""Matches the DAGMan in a job's ClassAd (event 028) or in the notes of its 000."""

STATUS_WITHOUT_JOB: Final = frozenset({0, 7})
"""``NodeStatus`` of nodes that had no job in this DAGMan run: not ready, futile."""

REMOVAL_OF_ALL_JOBS: Final = ("DAG Removed: ", "DAG Abort: ")
"""Prefixes of DAGMan's reason when it removes all of its jobs and ends. Source:
``main_shutdown_rescue`` in ``dagman_main.cpp``."""


class Attribution(Struct, frozen=True):
    """The DAG and node that a job belongs to.

    ``dag`` and ``node``: None for a job of no DAG here. ``candidates``: keys of possible DAGs,
    if ambiguous. ``provisional``: provisional, by evidence that grows as DAGMan continues to write.
    ``proven``: a file of DAGMan, or the job, names the DAG's DAGMan as its submitter.
    ``foreign``: submitted by a DAG that is not in this directory. ``overlapping``: keys of DAGs
    that only an overlap with another job refutes, which a later end of that job can undo.
    ``group``: of a job of no DAG, its name in :class:`metlmon.model.job_groups.JobGroups`.
    """

    dag: str | None = None
    node: str | None = None
    candidates: tuple[str, ...] = ()
    provisional: bool = False
    proven: bool = False
    foreign: bool = False
    overlapping: tuple[str, ...] = ()
    group: str | None = None

    @property
    def node_key(self) -> NodeKey | None:
        """The key of its node, or of its place among the jobs of no DAG; None without one."""
        if self.group is not None:
            return NO_DAG, self.group
        return None if self.dag is None or self.node is None else (self.dag, self.node)

    @property
    def possible(self) -> tuple[str, ...]:
        """The possible DAGs here, if neither proven nor refuted by DAGMan's files."""
        if self.proven:
            return ()
        return ((self.dag,) if self.dag is not None else self.candidates) + self.overlapping


def attribute_job(
    job: LoggedJob,
    dags: Mapping[str, Dag],
    by_node: Mapping[str, Sequence[str]],
    submitting_dag: str | None = None,
    shared_logs: Collection[str] = (),
    reused: bool = False,
    overlaps: Callable[[Dag], bool] = lambda dag: False,
) -> Attribution:
    """Attribute ``job`` to a DAG and node.

    ``by_node``: keys of DAGs by node name. ``submitting_dag``: the DAG whose DAGMan reported
    the submission of the job's cluster. ``shared_logs``: logs with jobs of a DAG that is not in
    this directory. ``reused``: the schedd used the job id several times, so no list of ids
    refutes it. ``overlaps``: was a proven job of the DAG in the queue at the same time, which
    DAGMan would have waited for?
    """
    if submitting_dag is not None:
        return Attribution(submitting_dag, dags[submitting_dag].node_of(job.cluster), proven=True)
    name = job.node_name
    if job.nodes_logs:
        owners = sorted(job.nodes_logs & dags.keys())
        if len(owners) == 1:
            return Attribution(owners[0], name, proven=True)
    if name is None:
        return Attribution()
    candidates = _drop_if_in_other_nodes_log(job, [dags[key] for key in by_node.get(name, ())])
    provisional = len(candidates) > 1
    overlapping: tuple[str, ...] = ()
    if candidates:
        named = [dag for dag in candidates if _is_named(job, dag, dags)]
        if not named and not reused:
            candidates = [dag for dag in candidates if not _refutes(dag, job)]
            overlapping = tuple([dag.key for dag in candidates if overlaps(dag)])
            candidates = [dag for dag in candidates if dag.key not in overlapping]
        candidates = named or candidates
        if not candidates:
            return Attribution(
                None, name, provisional=provisional, foreign=True, overlapping=overlapping
            )
        for narrow in (_by_dagman_out, _by_batch_name, _by_lifetime, _by_log):
            if len(candidates) <= 1:
                break
            candidates = narrow(job, candidates)
        is_certain = named or reused or job.user_logs.isdisjoint(shared_logs)
        if len(candidates) == 1 and is_certain:
            return Attribution(candidates[0].key, name, (), provisional, bool(named))
    return Attribution(None, name, tuple(dag.key for dag in candidates), provisional)


# --- proof and refutation for one DAG ----------------------------------------------------


def _batch_cluster(job: LoggedJob) -> int | None:
    """The cluster in a default ``JobBatchName`` by DAGMan, "file+cluster"."""
    _, plus, cluster = (job.batch_name or "").rpartition("+")
    return int(cluster) if plus and cluster.isascii() and cluster.isdigit() else None


def _is_named(job: LoggedJob, dag: Dag, dags: Mapping[str, Dag]) -> bool:
    """Does the job name a DAGMan of this DAG? Sub-DAGs share the top-level batch name."""
    if job.aborted_by is not None:
        return dag.is_dagman(job.aborted_by)
    cluster = _batch_cluster(job)
    if cluster is None:
        return False
    return dag.is_dagman(cluster) or (dag.top in dags and dags[dag.top].is_dagman(cluster))


def _refutes(dag: Dag, job: LoggedJob) -> bool:
    """Whether the files of this DAG's DAGMan show that it did not submit the job.

    The absence of the job in a file counts only if the file covers the time around it.
    """
    submitted = job.first_submitted
    if submitted is None:
        return False
    nodes_log = dag.logs.nodes_log_span
    in_out, in_jobstate, in_nodes_log = (
        until is not None and submitted <= until for until in dag.coverage_ends()
    )
    return (
        (in_out and dag.out_is_complete_at(submitted))
        or _had_no_job(dag, job.node_name, submitted)
        or (in_jobstate and dag.jobstate_covers(submitted))
        or _names_other_dagman(dag, job, submitted)
        # The schedd also writes all events of a DAG's jobs to its nodes.log.
        or (in_nodes_log and nodes_log is not None and nodes_log[0] <= submitted)
        or _was_between_runs(dag, submitted)
        or _predates_dagman(dag, job, submitted)
    )


def _had_no_job(dag: Dag, node: str | None, submitted: datetime) -> bool:
    """Whether the node had no job yet, by a node status file of the submission's run."""
    status = dag.status
    if status is None or status.local is None or status.local - submitted < WRITE_DELAY:
        return False
    node_status = status.nodes.get(node) if node is not None else None
    if node_status is None or node_status.status not in STATUS_WITHOUT_JOB:
        return False
    run_start = dag.last_fresh_start()
    return run_start is not None and run_start <= submitted


def _names_other_dagman(dag: Dag, job: LoggedJob, submitted: datetime) -> bool:
    """Whether the job names another DAG's DAGMan, while this DAG's was in the queue.

    A DAG has only one DAGMan at a time.
    """
    named = job.aborted_by
    if named is None and dag.is_top:
        named = _batch_cluster(job)
    if named is None:
        return False
    for run in _accepted_runs(dag):
        if run.cluster is None or run.start is None or run.start > submitted:
            continue
        # A run without a known end may have a successor, but not one with a lower cluster.
        until = run.ended_by
        if until is None and named > run.cluster:
            until = dag.out_last_time
        if (until is None and named < run.cluster) or (until is not None and submitted <= until):
            return True
    return False


def _was_between_runs(dag: Dag, submitted: datetime) -> bool:
    """Whether the job was submitted between two DAGMan runs of this DAG."""
    starts = [run.start for run in _accepted_runs(dag) if run.start is not None]
    ends = [
        run.ended_by for run in _accepted_runs(dag) if run.start is None or run.start <= submitted
    ]
    return (
        min(starts, default=submitted) < submitted
        and any(start - submitted >= WRITE_DELAY for start in starts)
        and all(end is not None and submitted - end >= WRITE_DELAY for end in ends)
    )


def _predates_dagman(dag: Dag, job: LoggedJob, submitted: datetime) -> bool:
    """Whether the job is in outside logs only, and older than this DAG's first DAGMan.

    In the DAG's own directory it may be of a DAGMan run whose ``.dagman.out`` was removed.
    """
    first = dag.processes[0].start if dag.processes else None
    if first is None or submitted >= first:
        return False
    return bool(job.user_logs) and all(map(_is_outside, job.user_logs))


def _is_outside(log: str) -> bool:
    """Whether a log, named relative to the dagdir, is outside it."""
    path = PurePath(log)
    return path.is_absolute() or path.parts[:1] == ("..",)


def _accepted_runs(dag: Dag) -> list[DagmanRun]:
    """The DAGMan runs that acquired the lock file: only these submit jobs."""
    return [run for run in dag.dagman_runs() if not run.refused]


# --- choice among several DAGs -----------------------------------------------------------


def _drop_if_in_other_nodes_log(job: LoggedJob, candidates: list[Dag]) -> list[Dag]:
    """Drop all candidates if only nodes.logs of other DAGs have the job."""
    if job.nodes_logs and not job.nodes_logs & {dag.key for dag in candidates}:
        return []
    return candidates


def _by_dagman_out(job: LoggedJob, candidates: list[Dag]) -> list[Dag]:
    """Drop DAGs whose complete ``.dagman.out`` does not have this submission."""
    submitted = job.submitted
    if submitted is None:
        return candidates
    return [dag for dag in candidates if not dag.out_is_complete_at(submitted)] or candidates


def _by_batch_name(job: LoggedJob, candidates: list[Dag]) -> list[Dag]:
    """Select by ``JobBatchName``, by default "file+cluster" of the DAGMan."""
    if job.batch_name is None:
        return candidates
    cluster = _batch_cluster(job)
    if cluster is None:
        return candidates
    by_cluster = [dag for dag in candidates if dag.is_dagman(cluster)]
    if by_cluster:
        return by_cluster
    name = PurePath(job.batch_name.rpartition("+")[0]).name
    return [dag for dag in candidates if PurePath(dag.file).name == name] or candidates


def _by_lifetime(job: LoggedJob, candidates: list[Dag]) -> list[Dag]:
    """Select DAGs whose DAGMan was in the queue at the submission."""
    submitted = job.submitted
    if submitted is None:
        return candidates
    alive = [(dag, dag.dagman_in_queue_at(submitted)) for dag in candidates]
    if any(is_alive is None for _, is_alive in alive):
        return candidates
    return [dag for dag, is_alive in alive if is_alive] or candidates


def _by_log(job: LoggedJob, candidates: list[Dag]) -> list[Dag]:
    """Select DAGs whose submit description for the node names one of the job's logs."""
    logs = {PurePath(log).name for log in job.user_logs}
    logs |= set(map(current_name, logs))
    name = job.node_name
    if not logs or name is None:
        return candidates
    matching = []
    for dag in candidates:
        log = dag.workflow.nodes[name].log
        if log is not None and PurePath(log).name in logs:
            matching.append(dag)
    return matching or candidates
