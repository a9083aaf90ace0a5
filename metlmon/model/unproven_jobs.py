"""Index of jobs without a proven DAG, and of logs shared with other directories.

A user log can contain jobs of two directories. Once DAGMan's files cover the time of a job's
submission, they prove or refute that it is ours. As soon as one job of a log is another
directory's, none of that log's jobs is attributed without proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from heapq import heappop, heappush

from metlmon.model.attribution import STATUS_WITHOUT_JOB, Attribution
from metlmon.model.dag import Dag
from metlmon.model.job_events import Job, JobKey


class UnprovenJobs:
    """Candidate jobs by DAG, and foreign jobs (of no DAG here) by log."""

    def __init__(self) -> None:
        self._jobs_by_dag: dict[str, dict[JobKey, Job]] = {}
        self._candidate_dag: dict[JobKey, str] = {}
        self._jobs_by_node: dict[tuple[str, str | None], set[JobKey]] = {}
        self._pending: dict[tuple[str, int], list[tuple[datetime, JobKey]]] = {}
        self._foreign_jobs: dict[str, set[JobKey]] = {}
        self._foreign_logs: dict[JobKey, frozenset[str]] = {}

    @property
    def shared_logs(self) -> AbstractSet[str]:
        """Logs with jobs of a DAG that is not in this directory."""
        return self._foreign_jobs.keys()

    @property
    def foreign(self) -> AbstractSet[JobKey]:
        """The jobs of DAGs that are not in this directory."""
        return self._foreign_logs.keys()

    def foreign_by_log(self) -> dict[str, int]:
        """Number of foreign jobs by log."""
        return {log: len(jobs) for log, jobs in self._foreign_jobs.items()}

    def update(
        self, job: Job, attribution: Attribution | None, dags: Mapping[str, Dag]
    ) -> list[JobKey]:
        """Update the index with a job's attribution (None: the job was removed).

        Returns the jobs to attribute again because a log became shared, or is no longer.
        """
        self._update_candidate(job, attribution, dags)
        key = job.key
        logs = job.user_logs if attribution is not None and attribution.foreign else frozenset()
        previous = self._foreign_logs.get(key, frozenset())
        if logs == previous and (key in self._foreign_logs) is (
            attribution is not None and attribution.foreign
        ):
            return []
        changed_logs = set()
        for log in previous - logs:
            self._foreign_jobs[log].discard(key)
            if not self._foreign_jobs[log]:
                del self._foreign_jobs[log]
                changed_logs.add(log)
        for log in logs - previous:
            if log not in self._foreign_jobs:
                self._foreign_jobs[log] = set()
                changed_logs.add(log)
            self._foreign_jobs[log].add(key)
        if attribution is not None and attribution.foreign:
            self._foreign_logs[key] = logs
        else:
            del self._foreign_logs[key]
        if not changed_logs:
            return []
        return [
            other_key
            for jobs in self._jobs_by_dag.values()
            for other_key, other_job in jobs.items()
            if not other_job.user_logs.isdisjoint(changed_logs)
        ]

    def _update_candidate(
        self, job: Job, attribution: Attribution | None, dags: Mapping[str, Dag]
    ) -> None:
        candidate = attribution.candidate if attribution is not None else None
        previous = self._candidate_dag.get(job.key)
        if candidate == previous:
            return
        if previous is not None:
            del self._jobs_by_dag[previous][job.key], self._candidate_dag[job.key]
            self._jobs_by_node[previous, job.node_name].discard(job.key)
        if candidate is None:
            return
        self._candidate_dag[job.key] = candidate
        self._jobs_by_dag.setdefault(candidate, {})[job.key] = job
        self._jobs_by_node.setdefault((candidate, job.node_name), set()).add(job.key)
        submitted = job.first_submitted
        if submitted is None:
            return
        for file, until in enumerate(dags[candidate].coverage_ends()):
            if until is None or until < submitted:
                heappush(self._pending.setdefault((candidate, file), []), (submitted, job.key))

    def pop_due(self, dags: Mapping[str, Dag]) -> list[JobKey]:
        """Remove and return the jobs whose submission a file of DAGMan covers now.

        A job is returned once for each file.
        """
        due = []
        for (dag, file), pending in self._pending.items():
            until = dags[dag].coverage_ends()[file] if pending else None
            while pending and until is not None and pending[0][0] <= until:
                due.append(heappop(pending)[1])
        return [key for key in due if key in self._candidate_dag]

    def jobs_of_dag(self, dag: str) -> list[JobKey]:
        """The candidate jobs of this DAG."""
        return list(self._jobs_by_dag.get(dag, ()))

    def jobs_of_nodes(self, dag: str, nodes: Iterable[str]) -> list[JobKey]:
        """The candidate jobs of this DAG for these nodes."""
        return [key for node in nodes for key in self._jobs_by_node.get((dag, node), ())]

    def jobs_of_idle_nodes(self, dag: Dag) -> Iterable[JobKey]:
        """The candidate jobs for nodes without a job by the DAG's node status file."""
        nodes = dag.status.nodes if dag.status is not None else {}
        for key, job in self._jobs_by_dag.get(dag.key, {}).items():
            node = nodes.get(job.node_name or "")
            if node is not None and node.status in STATUS_WITHOUT_JOB:
                yield key
