"""Which DAG a job belongs to, when several DAGs share a log and even their node names.

Event 000 carries only the node's name. Evidence is asked strongest first (``domain.md``);
what stays ambiguous is said, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

from metlmon.ensemble.dag import Dag
from metlmon.ensemble.record import Job
from metlmon.frozen import frozen

REMOVED_WITH: Final = re.compile(r"DAGManJobId\s*=[?=]+=?\s*(\d+)")
"""The schedd's reason for removing a node job together with its DAGMan names that DAGMan."""

SWEEPS: Final = ("DAG Removed: ", "DAG Abort: ")
"""How DAGMan's own reason begins when it removes all of its jobs and ends. Source:
``main_shutdown_rescue`` in ``dagman_main.cpp``."""


@frozen
class Membership:
    """``dag`` and ``node`` None: in no DAG here. ``candidates``: keys of the DAGs it may
    belong to when that cannot be told. ``weighed``: told, or not, by evidence that grows as
    DAGMan goes on writing."""

    dag: str | None = None
    node: str | None = None
    candidates: tuple[str, ...] = ()
    weighed: bool = False


def membership(
    job: Job,
    dags: Mapping[str, Dag],
    by_node: Mapping[str, Sequence[str]],
    teller: str | None = None,
) -> Membership:
    """Where ``job`` belongs. ``by_node`` maps node names to the keys of DAGs that have one;
    ``teller`` is the DAG whose DAGMan says that it submitted the job's cluster."""
    if teller is not None:
        return Membership(teller, dags[teller].node_of(job.cluster))
    name = job.node_name
    if job.nodes_logs:
        owners = sorted(job.nodes_logs & dags.keys())
        if len(owners) == 1:
            return Membership(owners[0], name)
    if name is None:
        return Membership()
    candidates = _told_elsewhere(job, [dags[key] for key in by_node.get(name, ())])
    weighed = len(candidates) > 1
    for narrow in (_by_silence, _by_batch_name, _by_dagman, _by_lifetime, _by_log):
        if len(candidates) <= 1:
            break
        candidates = narrow(job, candidates)
    if len(candidates) == 1:
        return Membership(candidates[0].key, name, (), weighed)
    return Membership(None, name, tuple(dag.key for dag in candidates), weighed)


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
    return [d for d in candidates if not d.submits_all_it_says(submitted)] or candidates


def _by_batch_name(job: Job, candidates: list[Dag]) -> list[Dag]:
    """``JobBatchName`` is "file+cluster" of the DAGMan unless the user chose another."""
    if job.batch_name is None:
        return candidates
    name, plus, cluster = job.batch_name.rpartition("+")
    if not plus or not cluster.isdigit():
        return candidates
    by_cluster = [d for d in candidates if any(t.cluster == int(cluster) for t in d.tenures)]
    if by_cluster:
        return by_cluster
    return [d for d in candidates if PurePath(d.file).name == PurePath(name).name] or candidates


def _by_dagman(job: Job, candidates: list[Dag]) -> list[Dag]:
    if job.aborted_by is None:
        return candidates
    mine = [d for d in candidates if any(t.cluster == job.aborted_by for t in d.tenures)]
    return mine or candidates


def _by_lifetime(job: Job, candidates: list[Dag]) -> list[Dag]:
    """Submitted while just one of the DAGs was alive."""
    submitted = job.submitted
    if submitted is None:
        return candidates
    alive = [(dag, dag.alive_at(submitted)) for dag in candidates]
    if any(answer is None for _, answer in alive):
        return candidates
    return [dag for dag, answer in alive if answer] or candidates


def _by_log(job: Job, candidates: list[Dag]) -> list[Dag]:
    """A node's submit description names the log its jobs write."""
    logs = {PurePath(log).name for log in job.user_logs}
    name = job.node_name
    if not logs or name is None:
        return candidates
    fitting = []
    for dag in candidates:
        log = dag.workflow.nodes[name].log
        if log is not None and PurePath(log).name in logs:
            fitting.append(dag)
    return fitting or candidates
