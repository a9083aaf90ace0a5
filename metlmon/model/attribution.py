"""Attributes jobs to DAGs, even when several DAGs share logs and node names.

Event 000 carries only the node's name. Evidence is used in order of strength
(``metlmon/README.md``); what stays ambiguous is reported as such, never guessed. The DAGs that
share a log may be in another directory: a single candidate is checked, too.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import takewhile
from operator import eq
from pathlib import PurePath
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from metlmon.eventlog.events import Detail, Event, PostScript, PreSkip, Submit
from metlmon.eventlog.reader import current_name
from metlmon.model.dag import WRITE_DELAY, Dag
from metlmon.model.job_events import NO_DAG, NOOP_PROC, JobId, JobKey, LoggedJob, NodeKey
from metlmon.model.model_state import LogStats
from metlmon.model.node import NodeRecord, PostResult, effective_parents
from metlmon.model.run import JobGroups

DAGMAN_IN_REMOVAL: Final = re.compile(r"DAGManJobId\s*=[?=]+=?\s*(\d+)")
"""Matches the schedd's reason for removing a node job together with its DAGMan."""

DAGMAN_IN_AD: Final = re.compile(r"\bDAGManJobId\s*=\s*(\d+)", re.IGNORECASE)
"""Matches the DAGMan in a job's ClassAd (event 028) or in the notes of its 000."""

STATUS_WITHOUT_JOB: Final = frozenset({0, 7})
"""``NodeStatus`` of nodes that had no job in this DAGMan run: not ready, futile."""

REMOVAL_OF_ALL_JOBS: Final = ("DAG Removed: ", "DAG Abort: ")
"""Prefixes of DAGMan's reason when it removes all of its jobs and ends. Source:
``main_shutdown_rescue`` in ``dagman_main.cpp``."""


class Attribution(Struct, frozen=True, gc=False):
    """The DAG and node that a job belongs to.

    ``dag`` and ``node``: None for a job of no DAG here. ``candidates``: keys of possible DAGs,
    if ambiguous. ``provisional``: based on evidence that may change as DAGMan continues to write.
    ``proven``: a file of DAGMan, or the job, names the DAG's DAGMan as its submitter.
    ``foreign``: submitted by a DAG that is not in this directory. ``overlapping``: keys of DAGs
    that only an overlap with another job refutes, until the end of that job is read.
    ``group``: for a job of no DAG, its name in :class:`metlmon.model.run.JobGroups`.
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


# --- proof and refutation for one DAG ----------------------------------------------------


def _batch_cluster(job: LoggedJob) -> int | None:
    """The cluster in a default ``JobBatchName`` by DAGMan, "file+cluster"."""
    _, plus, cluster = (job.batch_name or "").rpartition("+")
    return int(cluster) if plus and cluster.isascii() and cluster.isdigit() else None


def _is_named(job: LoggedJob, dag: Dag, dags: Mapping[str, Dag]) -> bool:
    """Whether the job names a DAGMan of this DAG; sub-DAGs share the top-level batch name."""
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
    """Whether a node status file written after the submission shows no job of the node."""
    status = dag.status
    if status is None or status.local is None or status.local - submitted < WRITE_DELAY:
        return False
    node_status = status.nodes.get(node) if node is not None else None
    if node_status is None or node_status.status not in STATUS_WITHOUT_JOB:
        return False
    run_start = dag.last_fresh_start()
    return run_start is not None and run_start <= submitted


def _names_other_dagman(dag: Dag, job: LoggedJob, submitted: datetime) -> bool:
    """Whether the job names another DAG's DAGMan, while this DAG's was in the queue."""
    named = job.aborted_by
    if named is None and dag.is_top:
        named = _batch_cluster(job)
    if named is None:
        return False
    for run in dag.accepted_runs():
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
    starts = [run.start for run in dag.accepted_runs() if run.start is not None]
    ends = [
        run.ended_by for run in dag.accepted_runs() if run.start is None or run.start <= submitted
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
    logs = [PurePath(log) for log in job.user_logs]
    return bool(logs) and all(log.is_absolute() or log.parts[:1] == ("..",) for log in logs)


# --- choice among several DAGs -----------------------------------------------------------


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
    """Select DAGs whose submit description for the node names one of the job's logs.

    Of equal names, those whose last folders are equal, too: a copy has other folders above them.
    """
    names = {*job.user_logs, *map(current_name, job.user_logs)}
    logs = [PurePath(log).parts[::-1] for log in names]
    name = job.node_name
    if not logs or name is None:
        return candidates
    by_length: defaultdict[int, list[Dag]] = defaultdict(list)
    for dag in candidates:
        log = dag.workflow.nodes[name].log
        parts = dag.workflow.path_of(log).parts[::-1] if log is not None else ()
        by_length[max(sum(takewhile(bool, map(eq, parts, each))) for each in logs)].append(dag)
    return by_length[max(by_length)]


def _by_mark(job: LoggedJob, candidates: list[Dag]) -> list[Dag]:
    """Drop DAGs whose file marks the node DONE: they never submit it."""
    name = job.node_name or ""
    return [dag for dag in candidates if not dag.workflow.nodes[name].done] or candidates


# --- all jobs, and again after new evidence ---------------------------------------------------

ONE_SECOND: Final = timedelta(seconds=1)
"""Maximum difference of one event in two logs, if one has fractions of seconds."""

LATEST: Final = datetime.max - ONE_SECOND

ONE_DAY: Final = timedelta(days=1)
"""The difference between the time zones of two logs is less than this, in practice."""

ONE_HOUR: Final = timedelta(hours=1)
"""Two submissions of one node with the same id in less time are unlikely: rather, a log was
assembled incorrectly."""

QUARTER_HOUR: Final = timedelta(minutes=15)
"""Time zones differ by multiples of this."""

ScriptKey: TypeAlias = tuple[str | None, int, int, int, datetime, Detail | None]
"""The DAG of the nodes.log, and the event's identity, since a log that is read again repeats it."""


class ReusedJobIds(dict[JobId, list[datetime]]):
    """Submission times of the job ids that the schedd used more than once.

    After a reinstallation the schedd counts from 1 again. A new submission is recognised by a
    second 000 that names another node, or whose time differs from the first by more than a day or
    by an odd amount. The same 000 is often read twice (from the job's own log and ``nodes.log``,
    or from a log appended to itself), and then has the same second; in a log of another time zone
    it differs by quarter hours, and in one without years possibly by years. Only the two 000 are
    compared, not their logs, so that the order of reading does not matter. Events belong to the
    last submission before them.
    """

    def key_at(self, key: JobKey, time: datetime) -> JobKey:
        """The key of the job with this id that an event at ``time`` belongs to.

        The third number counts the submissions, from 0.
        """
        times = self.get(key[:2])
        if times is None:
            return key
        # Adding a second to LATEST or a later time would overflow.
        until = time + ONE_SECOND if time < LATEST else time
        return (*key[:2], max(0, bisect_right(times, until) - 1))

    def newest(self, job: JobId) -> JobKey:
        """The key of the job that was submitted last."""
        return (*job, len(self.get(job, (job,))) - 1)

    def job_keys(self, job: JobId) -> list[JobKey]:
        """The keys of all jobs with this id, in the order of submission."""
        return [(*job, number) for number in range(len(self.get(job, (job,))))]

    def add(self, job: LoggedJob, time: datetime) -> None:
        """Add another submission of the job's id."""
        first = job.first_submitted or datetime.min
        insort(self.setdefault(job.id, [first]), time)

    def times(self, job: LoggedJob) -> list[datetime]:
        """The known submission times of the job's id."""
        first = job.first_submitted
        return self.get(job.id) or ([first] if first is not None else [])


def find_resubmission(job: LoggedJob, event: Event, reused_ids: ReusedJobIds) -> bool:
    """Whether this 000 belongs to another job than the known ones with the same id."""
    detail, time = event.detail, event.time
    known_time = job.first_submitted
    if known_time is not None and abs(time - known_time) <= ONE_SECOND:
        return False
    if not isinstance(detail, Submit) or job.noop:
        return False
    if known_time is None:
        return job.newest_time is not None and time - job.newest_time > ONE_DAY
    if detail.node and job.node_name and detail.node != job.node_name:
        return True
    return not any(_may_be_same(time, other) for other in reused_ids.times(job))


def submit_time_difference(job: LoggedJob, event: Event) -> timedelta | None:
    """The difference of this 000 from that of the same job, if suspiciously large."""
    known = job.first_submitted
    difference = abs(event.time - known) if known is not None and not job.noop else timedelta()
    return difference if difference > ONE_HOUR - QUARTER_HOUR else None


def _may_be_same(time: datetime, known: datetime) -> bool:
    """Whether two 000 of one node with these times may be of one submission."""
    difference = abs(time - known)
    if difference > ONE_DAY:
        # Years of a log without them are guessed from the file's modification time.
        return time.timetuple()[1:6] == known.timetuple()[1:6]
    return difference < ONE_HOUR or (difference + ONE_SECOND) % QUARTER_HOUR <= 2 * ONE_SECOND


class UnprovenJobs:
    """Index of jobs without a proven DAG, and of logs shared with other directories.

    A user log can contain jobs of two directories. Once DAGMan's files cover the time of a job's
    submission, they prove or refute that it is ours. As soon as one job of a log is another
    directory's, none of that log's jobs is attributed without proof.
    """

    def __init__(self, dags: Mapping[str, Dag], log_stats: Mapping[str, LogStats]) -> None:
        self._dags, self._log_stats = dags, log_stats
        self.jobs_by_dag: dict[str, dict[JobKey, LoggedJob]] = {}
        self._possible_dags: dict[JobKey, tuple[str, ...]] = {}
        self._jobs_by_node: dict[tuple[str, str | None], set[JobKey]] = {}
        self._pending: dict[tuple[str, int], list[tuple[datetime, JobKey]]] = {}
        self._pending_by_log: dict[str, list[tuple[datetime, JobKey]]] = {}
        self.foreign_by_log: Counter[str] = Counter()
        """Number of jobs of DAGs that are not in this directory, by log."""
        self._foreign_logs: dict[JobKey, frozenset[str]] = {}

    @property
    def foreign(self) -> AbstractSet[JobKey]:
        """The jobs of DAGs that are not in this directory."""
        return self._foreign_logs.keys()

    def update(self, job: LoggedJob, attribution: Attribution | None) -> list[JobKey]:
        """Update the index (None: the job was removed); return the jobs to attribute again."""
        self._update_possible(job, attribution)
        previous = self._foreign_logs.pop(job.key, frozenset())
        logs: frozenset[str] = frozenset()
        if attribution is not None and attribution.foreign:
            logs = self._foreign_logs[job.key] = job.user_logs
        if logs == previous:
            return []
        shared_before = set(self.foreign_by_log)
        self.foreign_by_log.update(logs - previous)
        self.foreign_by_log.subtract(previous - logs)
        self.foreign_by_log = +self.foreign_by_log
        changed_logs = shared_before ^ self.foreign_by_log.keys()
        if not changed_logs:
            return []
        return [
            key
            for jobs in self.jobs_by_dag.values()
            for key, other in jobs.items()
            if not other.user_logs.isdisjoint(changed_logs)
        ]

    def _update_possible(self, job: LoggedJob, attribution: Attribution | None) -> None:
        possible = attribution.possible if attribution is not None else ()
        previous = self._possible_dags.get(job.key, ())
        if possible == previous:
            return
        for dag in previous:
            if dag not in possible:
                del self.jobs_by_dag[dag][job.key]
                self._jobs_by_node[dag, job.node_name].discard(job.key)
        if not possible:
            del self._possible_dags[job.key]
            return
        self._possible_dags[job.key] = possible
        submitted = job.first_submitted
        for dag in possible:
            if dag in previous:
                continue
            self.jobs_by_dag.setdefault(dag, {})[job.key] = job
            self._jobs_by_node.setdefault((dag, job.node_name), set()).add(job.key)
            for file, until in enumerate(self._dags[dag].coverage_ends()):
                if submitted is not None and (until is None or until < submitted):
                    heappush(self._pending.setdefault((dag, file), []), (submitted, job.key))

    def add_pending(self, job: LoggedJob, logs: Iterable[str], time: datetime) -> None:
        """Make the job due once one of these logs has an event at this time or later."""
        for log in logs:
            pending = self._pending_by_log.setdefault(log, [])
            index = bisect_left(pending, (time, job.key))
            if pending[index : index + 1] != [(time, job.key)]:
                pending.insert(index, (time, job.key))

    def pop_due(self) -> list[JobKey]:
        """Remove and return the jobs for which a file of DAGMan or a log is now evidence.

        A file is evidence when it covers the submission. A job is returned once for each file.
        """
        due = []
        for (dag, file), pending in self._pending.items():
            until = self._dags[dag].coverage_ends()[file] if pending else None
            while pending and until is not None and pending[0][0] <= until:
                due.append(heappop(pending)[1])
        for log, waiting in self._pending_by_log.items():
            last = self._log_stats[log].last if waiting and log in self._log_stats else None
            if last is not None:
                count = bisect_left(waiting, (min(last, LATEST) + ONE_SECOND,))
                due += [key for _, key in waiting[:count]]
                del waiting[:count]
        return [key for key in due if key in self._possible_dags]

    def jobs_of_nodes(self, dag: str, nodes: Iterable[str]) -> list[JobKey]:
        """The jobs that may belong to these nodes."""
        return [key for node in nodes for key in self._jobs_by_node.get((dag, node), ())]

    def jobs_of_idle_nodes(self, dag: Dag) -> Iterable[JobKey]:
        """The possible jobs of nodes without a job by the DAG's node status file."""
        nodes = dag.status.nodes if dag.status is not None else {}
        for key, job in self.jobs_by_dag.get(dag.key, {}).items():
            node = nodes.get(job.node_name or "")
            if node is not None and node.status in STATUS_WITHOUT_JOB:
                yield key


class JobAttributor:
    """Attributes jobs to nodes, and script results to the nodes of their jobs.

    New evidence (a file of DAGMan, another job's overlap) attributes the affected jobs again.
    ``jobs`` and ``log_stats`` are those of the ensemble. Jobs of no DAG go into ``groups``; in a
    directory with DAGs these are only the jobs that no DAG submitted. ``changed_jobs``: those whose
    events or attribution changed since the records of jobs were made.
    """

    def __init__(
        self, jobs: dict[JobKey, LoggedJob], log_stats: Mapping[str, LogStats], groups: JobGroups
    ) -> None:
        self.changed_jobs: set[JobKey] = set()
        self.reused_ids = ReusedJobIds()
        """Submissions of job ids (cluster and proc) that the schedd used more than once."""
        self._jobs = jobs
        self._log_stats = log_stats
        self._procs: dict[int, list[JobKey]] = {}
        self._scripts: dict[ScriptKey, Event] = {}
        self.set_dags({}, {}, groups)

    def set_dags(
        self, dags: Mapping[str, Dag], nodes: dict[NodeKey, NodeRecord], groups: JobGroups
    ) -> None:
        """Set the DAGs and their nodes, and attribute all jobs again."""
        self._dags, self._nodes, self._groups = dags, nodes, groups
        self.attributions: dict[JobKey, Attribution] = {}
        self.unproven = UnprovenJobs(self._dags, self._log_stats)
        self._provisional: set[JobKey] = set()
        self._possible: dict[JobKey, set[NodeKey]] = {}
        """The nodes to which each ambiguous job may belong."""
        for key in self._jobs:
            self._attribute(key)
        self._unassigned_scripts = dict(self._scripts)
        self._assign_scripts()

    def add_job(self, key: JobKey) -> None:
        """Index a new job by its cluster."""
        # Most clusters have only proc 0, which needs no index.
        if key[1:] != (0, 0):
            self._procs.setdefault(key[0], []).append(key)

    def jobs_of_cluster(self, cluster: int) -> list[JobKey]:
        """The keys of the cluster's jobs."""
        first = (cluster, 0, 0)
        return [*([first] if first in self._jobs else ()), *self._procs.get(cluster, ())]

    def submitting_dag(self, cluster: int) -> Dag | None:
        """The (first) DAG that submitted a cluster, according to its DAGMan's files."""
        return next((dag for dag in self._dags.values() if dag.node_of(cluster) is not None), None)

    def submitting_dag_key(self, cluster: int) -> str | None:
        """The DAG that submitted a cluster, by DAGMan's files or by the job's attribution."""
        if (dag := self.submitting_dag(cluster)) is not None:
            return dag.key
        attribution = self.attributions.get((cluster, 0, 0))
        return attribution.dag if attribution is not None else None

    def attribute_changed(
        self, changed: Iterable[JobKey], with_evidence: AbstractSet[JobKey]
    ) -> set[NodeKey]:
        """Attribute changed jobs; return the nodes that gained, lost or have one."""
        self.changed_jobs.update(changed)
        nodes: set[NodeKey] = set()
        grouped = False
        # Sorted, since the nodes of jobs of no DAG are made, named and listed in this order.
        for key in sorted(changed):
            if key in with_evidence or key in self._provisional:
                nodes.update(self._attribute(key))
                grouped |= self.attributions[key].group is not None
            elif (record := self._record_of(self.attributions[key])) is not None:
                nodes.add(record.key)
        if grouped and self._unassigned_scripts:
            nodes |= self._assign_scripts()
        return nodes

    def recheck(self, nodes: Iterable[NodeKey]) -> set[NodeKey]:
        """Attribute jobs for which these nodes' jobs, or DAGMan's files, are new evidence."""
        return self.attribute_all([*self.unproven.pop_due(), *self._jobs_to_recheck(nodes)])

    def remove_job(self, job: LoggedJob) -> NodeKey | None:
        """Remove the attribution of a job; return its node, if it had one."""
        record = self._record_of(self.attributions.pop(job.key, None))
        self._set_possible(job.key, None)
        if record is not None:
            self._drop_job(record, job)
        self._provisional.discard(job.key)
        self.unproven.update(job, None)
        return record.key if record is not None else None

    def apply_script_result(self, dag_key: str | None, event: Event) -> set[NodeKey]:
        """Apply a 016 or 034 to its node, or store it until the node is known."""
        key = (dag_key, event.cluster, event.proc, event.number, event.time, event.detail)
        self._scripts[key] = replace(event, body="")
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
        key = self.reused_ids.key_at((event.cluster, max(event.proc, 0), 0), event.time)
        attribution = self.attributions.get(key)
        if attribution is not None and attribution.group is not None:
            return self._record_of(attribution)
        if dag_key is None:
            if attribution is not None and (attribution.foreign or attribution.candidates):
                return None
            dag_key = attribution.dag if attribution else None
            if dag_key is None and len(dags := self._dags_with(node)) == 1:
                dag_key = dags[0].key
        if node is None and dag_key is not None:
            node = attribution.node if attribution else None
        if dag_key is None or node is None:
            return None
        return self._nodes.get((dag_key, node))

    def reattribute(
        self, clusters: Iterable[int | None] = (), of_dag: str | None = None
    ) -> set[NodeKey]:
        """Attribute jobs again after evidence on clusters or a DAG; return the changed nodes."""
        jobs = {*self._provisional, *self.unproven.pop_due()}
        if of_dag is not None:
            jobs.update(self.unproven.jobs_by_dag.get(of_dag, ()))
        for cluster in clusters:
            if cluster is not None:
                jobs.update(self.jobs_of_cluster(cluster))
        return self.attribute_all(sorted(jobs)) | self._assign_scripts()

    def attribute_all(self, jobs: Iterable[JobKey]) -> set[NodeKey]:
        """Attribute these jobs again; return the nodes that gained or lost one."""
        changed: set[NodeKey] = set()
        for key in jobs:
            previous = self.attributions.get(key)
            affected = self._attribute(key)
            if self.attributions[key] != previous:
                changed.update(affected)
        return changed

    def _dags_with(self, node: str | None) -> list[Dag]:
        """The DAGs that have a node of this name."""
        dags = self._dags.values()
        return [dag for dag in dags if node in dag.workflow.nodes and dag.key != NO_DAG]

    def _attribute(self, key: JobKey) -> list[NodeKey]:
        """Attribute a job again; return the nodes that gained, lost or have it."""
        job = self._jobs[key]
        previous = self.attributions.get(key)
        with_node = self._dags_with(job.node_name)
        if previous is None and with_node:
            # Share one string object for equal names.
            job.node_name = with_node[0].workflow.nodes[job.node_name or ""].name
        attribution = self._find_attribution(job, with_node)
        recheck = self.unproven.update(job, attribution)
        if self._is_of_no_dag(job, attribution):
            name = self._groups.place(job)
            attribution = replace(attribution, group=name)
            if (NO_DAG, name) not in self._nodes:
                node = self._groups.dag.workflow.nodes[name]
                self._nodes[NO_DAG, name] = NodeRecord((NO_DAG, name), node)
        old, new = self._record_of(previous), self._record_of(attribution)
        possible = self._set_possible(key, attribution)
        if attribution != previous:
            self.attributions[key] = attribution
            self.changed_jobs.add(key)
            if attribution.provisional:
                self._provisional.add(key)
            else:
                self._provisional.discard(key)
            if old is not new:
                if old is not None:
                    self._drop_job(old, job)
                if new is not None:
                    new.jobs = (*new.jobs, job)
            if old is not None and previous is not None and previous.proven:
                recheck += self._jobs_to_recheck([old.key])
            if new is not None and attribution.proven:
                recheck += self._jobs_to_recheck([new.key])
        rechecked_nodes = self.attribute_all(recheck) if recheck else ()
        own = {record.key for record in (old, new) if record is not None}
        return [*own, *possible, *rechecked_nodes]

    def _find_attribution(self, job: LoggedJob, with_node: Sequence[Dag]) -> Attribution:
        """The DAG and node of a job; ``with_node``: the DAGs that have a node of its name."""
        # DAGMan's files do not say which submission of a reused id they mean.
        reused = job.id in self.reused_ids
        submitting_dag = self.submitting_dag(job.cluster) if not reused else None
        if submitting_dag is not None:
            node = submitting_dag.node_of(job.cluster)
            return Attribution(submitting_dag.key, node, proven=True)
        name = job.node_name
        if job.nodes_logs:
            owners = sorted(job.nodes_logs & self._dags.keys())
            if len(owners) == 1:
                return Attribution(owners[0], name, proven=True)
        if name is None:
            return Attribution()
        # Not if only nodes.logs of other DAGs have the job.
        is_elsewhere = job.nodes_logs and job.nodes_logs.isdisjoint(dag.key for dag in with_node)
        candidates = [] if is_elsewhere else list(with_node)
        if not candidates:
            return Attribution(None, name)
        provisional = len(candidates) > 1
        overlapping: tuple[str, ...] = ()
        named = [dag for dag in candidates if _is_named(job, dag, self._dags)]
        if not named and not reused:
            candidates = [dag for dag in candidates if not _refutes(dag, job)]
            overlapping = tuple([dag.key for dag in candidates if self._overlaps(job, dag)])
            candidates = [dag for dag in candidates if dag.key not in overlapping]
        candidates = named or candidates
        if not candidates:
            return Attribution(
                None, name, provisional=provisional, foreign=True, overlapping=overlapping
            )
        for narrow in (_by_dagman_out, _by_batch_name, _by_lifetime, _by_log, _by_mark):
            if len(candidates) <= 1:
                break
            candidates = narrow(job, candidates)
        # A log that another directory's DAG writes, too, proves nothing.
        is_certain = named or reused or job.user_logs.isdisjoint(self.unproven.foreign_by_log)
        if len(candidates) == 1 and is_certain:
            return Attribution(candidates[0].key, name, (), provisional, bool(named))
        return Attribution(None, name, tuple(dag.key for dag in candidates), provisional)

    def _set_possible(self, key: JobKey, attribution: Attribution | None) -> list[NodeKey]:
        """Record a job with the nodes that it may belong to; return those with a change.

        None are recorded if any candidate DAG has run, by its files: that one is the likeliest.
        """
        before, after = self._possible.pop(key, set()), set[NodeKey]()
        if attribution is not None and attribution.node is not None:
            candidates = attribution.candidates
            if not any(self._dags[dag].has_run() for dag in candidates):
                after = {(dag, attribution.node) for dag in candidates}
        for node in before - after:
            if node in self._nodes:
                self._nodes[node].possible -= {key}
        for node in after - before:
            self._nodes[node].possible |= {key}
        if after:
            self._possible[key] = after
        return [*(before ^ after)]

    def _is_of_no_dag(self, job: LoggedJob, attribution: Attribution) -> bool:
        """Whether this is a job of no DAG, or one in a directory with logs only.

        In a directory with DAGs, a job that names a node is of a DAG whose file is missing.
        """
        if job.noop or attribution.dag is not None or attribution.candidates or attribution.foreign:
            return False
        return job.node_name is None or self._dags.keys() == {NO_DAG}

    def _drop_job(self, record: NodeRecord, job: LoggedJob) -> None:
        record.jobs = tuple(each for each in record.jobs if each is not job)
        if record.key[0] == NO_DAG and not record.jobs:
            self._groups.emptied.add(record.key[1])

    def _overlaps(self, job: LoggedJob, dag: Dag) -> bool:
        """Whether a proven job of this DAG was in the queue together with ``job``.

        Only jobs of the same node and its parents count: DAGMan has one job of a node at a time,
        and none before those of the node's parents have left the queue.
        """
        name = job.node_name
        if name is None or job.first_submitted is None:
            return False
        jobs = self._proven_jobs(dag, name)
        parents = effective_parents(dag.workflow.nodes, name)
        jobs_of_parents = [other for parent in parents for other in self._proven_jobs(dag, parent)]
        if not jobs and not jobs_of_parents:
            return False
        submitted, ended = self._queue_span(job)
        if dag.processes and dag.processes[0].start and submitted < dag.processes[0].start:
            # The .dagman.out of its DAGMan run was removed: ends of jobs may be lost, too.
            return False
        for other in jobs:
            begin, end = self._queue_span(other)
            if other.cluster == job.cluster:
                continue
            both_since = max(begin, submitted)
            if both_since < min(end, ended):
                return True
            self._await_log(job, job, ended, both_since)
            self._await_log(job, other, end, both_since)
        for other in jobs_of_parents:
            begin, end = self._queue_span(other)
            if begin < submitted < end:
                return True
            self._await_log(job, other, end, submitted)
        return False

    def _await_log(self, job: LoggedJob, other: LoggedJob, end: datetime, time: datetime) -> None:
        """Attribute ``job`` again once a log shows that ``other`` had not ended by ``time``."""
        if end <= time and other.queue_span()[1] == datetime.max:
            self.unproven.add_pending(job, other.user_logs, time)

    def _queue_span(self, job: LoggedJob) -> tuple[datetime, datetime]:
        """Times between which the job is known to have been in the queue.

        The second is its end, or the newest event in a log that would contain the end.
        """
        begin, end = job.queue_span()
        if end == datetime.max:
            known = (self._log_stats[log].last for log in job.user_logs if log in self._log_stats)
            end = max((last for last in known if last is not None), default=begin)
            end = min(end, LATEST) + ONE_SECOND
        return begin, end

    def _jobs_to_recheck(self, nodes: Iterable[NodeKey]) -> list[JobKey]:
        """Unproven jobs that proven jobs of these nodes may refute by an overlap, or did."""
        to_recheck = []
        for dag, name in nodes:
            jobs = self.unproven.jobs_of_nodes(dag, (name, *self._nodes[dag, name].node.children))
            if any(self.attributions[key].overlapping for key in jobs) or (
                jobs and self._proven_jobs(self._dags[dag], name)
            ):
                to_recheck += jobs
        return to_recheck

    def _proven_jobs(self, dag: Dag, node: str) -> list[LoggedJob]:
        """The node's jobs with a proven attribution to this DAG."""
        record = self._nodes.get((dag.key, node))
        jobs = record.jobs if record is not None else ()
        return [job for job in jobs if self.attributions[job.key].proven]

    def _record_of(self, attribution: Attribution | None) -> NodeRecord | None:
        key = attribution.node_key if attribution is not None else None
        return self._nodes.get(key) if key is not None else None


def _note_post(record: NodeRecord, event: Event, detail: PostScript) -> None:
    value = detail.return_value if detail.normal is True else None
    cluster = event.cluster if event.cluster > 0 or event.proc == NOOP_PROC else None
    result = PostResult(event.time, cluster, value == 0, value)
    after = bisect_right(record.posts, event.time, key=lambda post: post.time)
    same = bisect_left(record.posts, event.time, hi=after, key=lambda post: post.time)
    if result not in record.posts[same:after]:
        record.posts = (*record.posts[:after], result, *record.posts[after:])
