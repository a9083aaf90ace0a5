"""Attributes jobs and script results to nodes, and again after new evidence."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial

from metlmon.eventlog import Event, PostScript, PreSkip
from metlmon.model.attribution import LATEST, ONE_SECOND, attribute_job
from metlmon.model.dag import Dag
from metlmon.model.job_events import NOOP_PROC, Job, JobKey, NodeKey, NodeRecord, PostResult
from metlmon.model.model_state import ModelState, ScriptKey
from metlmon.model.node_states import effective_parents


class JobAttributor(ModelState):
    """Attributes jobs to nodes, and script results to the nodes of their jobs.

    New evidence (a file of DAGMan, another job's overlap) attributes the affected jobs again.
    """

    def _apply_script_result(self, dag_key: str | None, event: Event) -> set[NodeKey]:
        """Apply a 016 or 034 to its node, or store it until the node is known."""
        key = (dag_key, event.cluster, event.proc, event.number, event.time, event.detail)
        self._scripts[key] = event._replace(body="")
        return self._assign_script(key, event)

    def _assign_script(self, key: ScriptKey, event: Event) -> set[NodeKey]:
        detail = event.detail
        if not isinstance(detail, PostScript | PreSkip):
            return set()
        dag_key = key[0]
        record = self._find_node(dag_key, event, detail.node)
        if record is None:
            # With both DAG and node named, only another DAG file could resolve it.
            if dag_key is None or detail.node is None:
                self._unassigned_scripts[key] = event
            return set()
        if isinstance(detail, PostScript):
            _note_post(record, event, detail)
        elif event.time not in record.skips:
            record.skips = tuple(sorted((*record.skips, event.time)))
        return {record.key}

    def _assign_scripts(self) -> set[NodeKey]:
        """Try again to assign script results, after new evidence."""
        waiting, self._unassigned_scripts = self._unassigned_scripts, {}
        return {node for key, event in waiting.items() for node in self._assign_script(key, event)}

    def _find_node(self, dag_key: str | None, event: Event, node: str | None) -> NodeRecord | None:
        if dag_key is None:
            attribution = self.attributions.get(self._job_key_at(event))
            if attribution is not None and (attribution.foreign or attribution.candidates):
                return None
            dag_key = attribution.dag if attribution else None
            if dag_key is None and node is not None and len(self._dags_by_node.get(node, ())) == 1:
                dag_key = self._dags_by_node[node][0]
        if node is None and dag_key is not None:
            attribution = self.attributions.get(self._job_key_at(event))
            node = attribution.node if attribution else None
        if dag_key is None or node is None:
            return None
        return self.nodes.get((dag_key, node))

    def _job_key_at(self, event: Event) -> JobKey:
        return self.reused_ids.key_at((event.cluster, max(event.proc, 0), 0), event.time)

    def _reattribute(
        self, clusters: Iterable[int | None] = (), of_dag: str | None = None
    ) -> set[NodeKey]:
        """Attribute jobs again after new evidence; return the changed nodes.

        These are jobs with a provisional attribution, jobs of ``clusters``, which DAGMan's
        files name, and all candidates of ``of_dag``, whose DAGMan runs changed.
        """
        jobs = {*self._provisional, *self.unproven.pop_due(self.dags)}
        if of_dag is not None:
            jobs.update(self.unproven.jobs_of_dag(of_dag))
        for cluster in clusters:
            if cluster is not None:
                jobs.update(self._jobs_of_cluster(cluster))
        return self._attribute_all(jobs) | self._assign_scripts()

    def _attribute_all(self, jobs: Iterable[JobKey]) -> set[NodeKey]:
        """Attribute these jobs again; return the nodes that gained or lost one."""
        changed: set[NodeKey] = set()
        for key in jobs:
            previous = self.attributions.get(key)
            affected = self._attribute(key)
            if self.attributions[key] != previous:
                changed.update(affected)
        return changed

    def _index_submitting_dags(self) -> None:
        """Index the submitting DAG by cluster; of several the first one counts."""
        self._submitting_dags = {}
        for dag in self.dags.values():
            for cluster in dag.clusters():
                self._submitting_dags.setdefault(cluster, dag.key)

    def _note_submitting_dag(self, dag_key: str, clusters: Iterable[int | None]) -> None:
        dag = self.dags[dag_key]
        for cluster in clusters:
            if cluster is None or dag.node_of(cluster) is None:
                continue
            known = self._submitting_dags.setdefault(cluster, dag_key)
            if known != dag_key:
                both = (known, dag_key)
                self._submitting_dags[cluster] = next(key for key in self.dags if key in both)

    def _attribute(self, key: JobKey) -> list[NodeKey]:
        """Attribute a job again; return the nodes that gained, lost or have it."""
        job = self.jobs[key]
        previous = self.attributions.get(key)
        dag_keys = self._dags_by_node.get(job.node_name or "")
        if previous is None and dag_keys:
            # Share one string object for equal names.
            job.node_name = self.nodes[dag_keys[0], job.node_name or ""].node.name
        # Which submission of a reused id DAGMan's files mean is not known.
        reused = key[:2] in self.reused_ids
        submitting_dag = self._submitting_dags.get(key[0]) if not reused else None
        shared_logs = self.unproven.shared_logs
        attribution = attribute_job(
            job,
            self.dags,
            self._dags_by_node,
            submitting_dag=submitting_dag,
            shared_logs=shared_logs,
            reused=reused,
            overlaps=partial(self._overlaps, job),
        )
        recheck = self.unproven.update(job, attribution, self.dags)
        if attribution == previous:
            record = self._record_of(previous)
            return [record.key] if record is not None else []
        self.attributions[key] = attribution
        self.changed_jobs.add(key)
        if attribution.provisional:
            self._provisional.add(key)
        else:
            self._provisional.discard(key)
        old, new = self._record_of(previous), self._record_of(attribution)
        if old is not new:
            if old is not None:
                old.jobs.remove(job)
            if new is not None:
                new.jobs.append(job)
        if new is not None and attribution.proven:
            recheck += self._jobs_to_recheck([new.key])
        rechecked_nodes = self._attribute_all(recheck) if recheck else ()
        return [*(record.key for record in (old, new) if record is not None), *rechecked_nodes]

    def _overlaps(self, job: Job, dag: Dag) -> bool:
        """Was a proven job of this DAG in the queue together with ``job``?

        Only jobs of the same node and its parents count: DAGMan has one job of a node at a time,
        and none before those of the node's parents have left the queue.
        """
        name = job.node_name
        if name is None or job.first_submitted is None:
            return False
        submitted, ended = self._queue_span(job)
        if dag.processes and dag.processes[0].start and submitted < dag.processes[0].start:
            # A DAGMan run whose .dagman.out was removed: ends of its jobs may be lost, too.
            return False
        for other in self._proven_jobs(dag, name):
            begin, end = self._queue_span(other)
            if other.cluster != job.cluster and max(begin, submitted) < min(end, ended):
                return True
        return any(
            begin < submitted < end
            for parent in effective_parents(dag.workflow.nodes, name)
            for begin, end in map(self._queue_span, self._proven_jobs(dag, parent))
        )

    def _queue_span(self, job: Job) -> tuple[datetime, datetime]:
        """Times between which the job is known to have been in the queue.

        The second is its end, or the newest event in a log that would contain the end.
        """
        begin, end = job.queue_span()
        if end == datetime.max:
            known = (self.log_stats[log].last for log in job.user_logs if log in self.log_stats)
            end = max((last for last in known if last is not None), default=begin)
            end = min(end, LATEST) + ONE_SECOND
        return begin, end

    def _jobs_to_recheck(self, nodes: Iterable[NodeKey]) -> list[JobKey]:
        """Unproven jobs that proven jobs of these nodes may refute by an overlap."""
        jobs = []
        for dag, name in nodes:
            if self._proven_jobs(self.dags[dag], name):
                children = self.nodes[dag, name].node.children
                jobs += self.unproven.jobs_of_nodes(dag, (name, *children))
        return jobs

    def _proven_jobs(self, dag: Dag, node: str) -> list[Job]:
        """The node's jobs with a proven attribution to this DAG."""
        record = self.nodes.get((dag.key, node))
        jobs = record.jobs if record is not None else []
        return [job for job in jobs if self.attributions[job.key].proven]


def _note_post(record: NodeRecord, event: Event, detail: PostScript) -> None:
    value = detail.return_value if detail.normal is True else None
    cluster = event.cluster if event.cluster > 0 or event.proc == NOOP_PROC else None
    result = PostResult(event.time, cluster, value == 0, value)
    if result not in record.posts:
        record.posts = tuple(sorted((*record.posts, result), key=lambda post: post.time))
