"""Jobs of which it is not proven that a DAG here submitted them, and logs that are shared with a
DAG of another directory.

A user's log can be written by the jobs of two directories. What DAGMan's files tell of later
moments decides on a job of which they told nothing yet; as soon as one job of a log is found to be
another directory's, none of that log's jobs is taken for ours without proof.
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
    """By DAG the jobs that may be its own, and by log the jobs that are of no DAG here."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[JobKey, Job]] = {}
        self._candidate: dict[JobKey, str] = {}
        self._of_node: dict[tuple[str, str | None], set[JobKey]] = {}
        self._waiting: dict[tuple[str, int], list[tuple[datetime, JobKey]]] = {}
        self._foreign: dict[str, set[JobKey]] = {}
        self._logs: dict[JobKey, frozenset[str]] = {}

    @property
    def shared_logs(self) -> AbstractSet[str]:
        """Logs that hold jobs of a DAG which is not in this directory."""
        return self._foreign.keys()

    @property
    def foreign(self) -> AbstractSet[JobKey]:
        """The jobs of DAGs which are not in this directory."""
        return self._logs.keys()

    def foreign_by_log(self) -> dict[str, int]:
        """How many of them each log holds."""
        return {log: len(jobs) for log, jobs in self._foreign.items()}

    def note(self, job: Job, placed: Attribution | None, dags: Mapping[str, Dag]) -> list[JobKey]:
        """Take in where a job belongs now (None: it is gone). Returns the jobs whose place may be
        another one because a log has become shared, or no longer is."""
        self._note_candidate(job, placed, dags)
        key = job.key
        logs = job.user_logs if placed is not None and placed.foreign else frozenset()
        before = self._logs.get(key, frozenset())
        if logs == before and (key in self._logs) is (placed is not None and placed.foreign):
            return []
        changed = set()
        for log in before - logs:
            self._foreign[log].discard(key)
            if not self._foreign[log]:
                del self._foreign[log]
                changed.add(log)
        for log in logs - before:
            if log not in self._foreign:
                self._foreign[log] = set()
                changed.add(log)
            self._foreign[log].add(key)
        if placed is not None and placed.foreign:
            self._logs[key] = logs
        else:
            del self._logs[key]
        if not changed:
            return []
        return [
            other
            for jobs in self._jobs.values()
            for other, each in jobs.items()
            if not each.user_logs.isdisjoint(changed)
        ]

    def _note_candidate(
        self, job: Job, placed: Attribution | None, dags: Mapping[str, Dag]
    ) -> None:
        candidate = placed.candidate if placed is not None else None
        before = self._candidate.get(job.key)
        if candidate == before:
            return
        if before is not None:
            del self._jobs[before][job.key], self._candidate[job.key]
            self._of_node[before, job.node_name].discard(job.key)
        if candidate is None:
            return
        self._candidate[job.key] = candidate
        self._jobs.setdefault(candidate, {})[job.key] = job
        self._of_node.setdefault((candidate, job.node_name), set()).add(job.key)
        submitted = job.told_submitted
        if submitted is None:
            return
        for file, until in enumerate(dags[candidate].covered_until()):
            if until is None or until < submitted:
                heappush(self._waiting.setdefault((candidate, file), []), (submitted, job.key))

    def due(self, dags: Mapping[str, Dag]) -> list[JobKey]:
        """The jobs up to whose submission one of DAGMan's files has come only now: each is given
        once for each file."""
        found = []
        for (dag, file), waiting in self._waiting.items():
            until = dags[dag].covered_until()[file] if waiting else None
            while waiting and until is not None and waiting[0][0] <= until:
                found.append(heappop(waiting)[1])
        return [key for key in found if key in self._candidate]

    def of(self, dag: str) -> list[JobKey]:
        """The jobs that may be this DAG's."""
        return list(self._jobs.get(dag, ()))

    def of_nodes(self, dag: str, nodes: Iterable[str]) -> list[JobKey]:
        """The jobs of these nodes that may be this DAG's."""
        return [key for node in nodes for key in self._of_node.get((dag, node), ())]

    def of_idle_nodes(self, dag: Dag) -> Iterable[JobKey]:
        """Those of nodes that the DAG's node status file says had no job yet."""
        nodes = dag.status.nodes if dag.status is not None else {}
        for key, job in self._jobs.get(dag.key, {}).items():
            node = nodes.get(job.node_name or "")
            if node is not None and node.status in STATUS_WITHOUT_JOB:
                yield key
