"""The state model of one dagdir: combines the workflow with its events.

Batches of events and of DAGMan messages go in; :mod:`metlmon.snapshot.builder` builds snapshots
of the model. It reads no file and no clock: the as-of time is an argument of the snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.dagman.records import DagmanMessage, JobstateLine
from metlmon.eventlog.events import (
    Aborted,
    ClusterRemove,
    ClusterSubmit,
    Detail,
    Event,
    Held,
    ImageSize,
    PostScript,
    PreSkip,
    Submit,
    Terminated,
    without_environment,
)
from metlmon.jobfiles.gate_files import RunGate
from metlmon.model.attribution import (
    DAGMAN_IN_AD,
    DAGMAN_IN_REMOVAL,
    REMOVAL_OF_ALL_JOBS,
    Attribution,
    JobAttributor,
    UnprovenJobs,
    find_resubmission,
    submit_time_difference,
)
from metlmon.model.clock import Clock, UtcOffsets, note_dagman_event
from metlmon.model.dag import Dag, DagLogs, named_by, set_top_dags
from metlmon.model.dagman_runs import add_dagman_event
from metlmon.model.job_events import (
    NO_DAG,
    NOOP_PROC,
    Factory,
    JobKey,
    LoggedJob,
    NodeKey,
    RecentJobs,
    Stream,
    merge_by_time,
)
from metlmon.model.model_state import Batch, LogRole, LogStats, Notice
from metlmon.model.node import DagStates, NodeRecord, NodeState
from metlmon.model.reasons import lost_holds, with_holds
from metlmon.model.run import JobGroups, read_group
from metlmon.model.states import TERMINAL, DagState

NOTICES_PER_KIND = 50
"""Notices stored of one kind per log: the first ones show the problem, and a corrupt log must
not fill the memory."""


MAX_ENDS: Final = 50
"""Ends that are stored per name of an annex."""


class _Affected(Struct):
    """Jobs and nodes affected by a batch.

    ``touched``: jobs with any change; ``to_attribute``: those whose attribution may change;
    ``submitted``: submissions (cluster and local time).
    """

    touched: set[JobKey] = field(default_factory=set)
    to_attribute: set[JobKey] = field(default_factory=set)
    submitted: list[tuple[int, datetime]] = field(default_factory=list)
    nodes: set[NodeKey] = field(default_factory=set)


def _log_identity(batch: Batch) -> tuple[str, Callable[[LoggedJob], frozenset[str]]]:
    """The log's name in a job's set of logs, and the getter of that set."""
    if batch.role is LogRole.NODES and batch.dag is not None:
        return batch.dag, attrgetter("nodes_logs")
    return batch.file, attrgetter("user_logs")


_NODE_EVENTS: Final = frozenset({16, 34})
"""Events of a node, not of a job."""

_ATTRIBUTION_EVENTS: Final = frozenset({0, 5, 9, 15, 28})
"""Events that are evidence for the job's attribution or the access point's UTC offset."""


class Ensemble:
    """The state model of one dagdir: DAGs, nodes, jobs and their attributions.

    It reads no file and no clock: the as-of time is an argument of the snapshot. ``cut``: later
    events are ignored (``--as-of``).
    """

    def __init__(self, settings: Settings | None = None, cut: datetime | None = None) -> None:
        self.settings = settings or Settings()
        self.clock = Clock(self.settings.zone)
        self.cut = cut
        self.dags: dict[str, Dag] = {}
        self.jobs: dict[JobKey, LoggedJob] = {}
        self.nodes: dict[NodeKey, NodeRecord] = {}
        self.groups = JobGroups(self.settings)
        """The jobs of no DAG; if any exist, ``dags`` has them under ``NO_DAG``."""
        self.recent_jobs = RecentJobs(self.settings.checkpoint_codes)
        self.log_stats: dict[str, LogStats] = {}
        self.notices: list[Notice] = []
        self.lasting_notices: list[Notice] = []
        self.newest: datetime | None = None
        self.states = DagStates()
        self.offsets = UtcOffsets(self.clock, self._offset_changed)
        self.structure = 0
        """Incremented when records must be rebuilt, since the DAGs or the clock changed."""
        self.gates: dict[str, Mapping[str, RunGate]] = {}
        """Contents of the gate directories, by DAG and run uuid."""
        self.placements: Mapping[NodeKey, str] = {}
        """Sites of nodes that override the site in their VARS."""
        self.annex_ends: dict[str, list[datetime]] = {}
        """Known ends of annexes in local time, by name in lower case; collectors forget them."""
        self._newest_of_replaced: datetime | None = None
        """Time of the newest event in logs that have been replaced."""
        self._attributor = JobAttributor(self.jobs, self.log_stats, self.groups)
        self.reused_ids = self._attributor.reused_ids
        self._naming_dags: dict[str, list[str]] = {}
        """The DAGs that name each sub-DAG, if any sub-DAG is named by several."""
        self._factories: dict[int, Factory] = {}
        self._dag_logs: defaultdict[str, DagLogs] = defaultdict(DagLogs)
        self._reported_jobs: defaultdict[str, set[JobKey]] = defaultdict(set)
        """The jobs of each DAG that are in the queue by ``.dagman.out`` alone."""
        self.set_dags(())

    @property
    def attributions(self) -> dict[JobKey, Attribution]:
        """The DAG and node of each job."""
        return self._attributor.attributions

    @property
    def unproven(self) -> UnprovenJobs:
        """The jobs without a proven DAG."""
        return self._attributor.unproven

    def take_changed_jobs(self) -> list[JobKey]:
        """The jobs whose events or attribution have changed since the last call, in order."""
        changed = sorted(self._attributor.changed_jobs)
        self._attributor.changed_jobs.clear()
        return changed

    @property
    def newest_line(self) -> datetime | None:
        """The newest time in a log, or in the ``.dagman.out`` of a DAGMan that has not ended."""
        runs = ((dag, dag.current_run()) for dag in self.dags.values())
        lines = [dag.out_last_time for dag, run in runs if run is not None and not run.ended]
        local = self.newest is not None and not self.clock.utc_only
        return _latest(self.newest, *lines) if local else self.newest

    def dag_state(self, dag_key: str) -> tuple[DagState, datetime | None]:
        """The DAG's state and the time of its end, if it has ended."""
        return self.states.dag_state(dag_key)

    def node_states(self, dag_key: str, live: bool = False) -> dict[str, NodeState]:
        """The states of all nodes of one DAG, by name."""
        return self.states.table(dag_key, live).states

    def _offset_changed(self) -> None:
        """Invalidate all states: reports in seconds since 1970 have another local time now."""
        self.states.invalidate()
        self.structure += 1

    # --- the workflow -------------------------------------------------------------------

    def set_dags(self, dags: Iterable[Dag]) -> None:
        """Replace the DAGs and attribute all jobs again.

        A DAG file may be missing or incomplete for a moment while it is replaced: events of
        its nodes are stored until it is back.
        """
        self.dags = {dag.key: dag for dag in dags if dag.key != NO_DAG}
        self.nodes = {}
        self.groups = JobGroups(self.settings)
        for dag in (*self.dags.values(), self.groups.dag):
            dag.clock, dag.cut = self.clock, self.cut
            dag.logs = self._dag_logs[dag.key]
            dag.reset_runs()
            for name, node in dag.workflow.nodes.items():
                key = dag.key, name
                self.nodes[key] = NodeRecord(key, node)
        with_groups = {**self.dags, NO_DAG: self.groups.dag}
        self.states.set_dags(with_groups, self.nodes)
        self._attributor.set_dags(with_groups, self.nodes, self.groups)
        self.structure += 1
        self._naming_dags = named_by(self.dags)
        self._mark_changed(set())

    def _mark_changed(self, nodes: set[NodeKey]) -> None:
        """Mark these nodes to be resolved again, and update the groups and sub-DAGs."""
        for name in self.groups.remove_emptied(self.nodes):
            nodes.discard((NO_DAG, name))
            self.states.invalidate(NO_DAG)
            self.structure += 1
        if self.groups.parts and NO_DAG not in self.dags:
            self.dags = {**self.dags, NO_DAG: self.groups.dag}
        self.states.mark_changed(nodes)
        if self._naming_dags and set_top_dags(
            self.dags, self._naming_dags, self._attributor.submitting_dag_key
        ):
            # Runs are named after DAGs: find them again.
            self.states.invalidate()
            self.structure += 1

    # --- events -------------------------------------------------------------------------

    def apply(self, batch: Batch) -> bool:
        """Apply a batch of events; return whether anything may have changed."""
        stats = self.log_stats.setdefault(batch.file, LogStats(batch.file, batch.role))
        events = self._localize(batch, stats)
        affected, is_of_dagman = _Affected(), False
        if batch.role is not LogRole.DAGMAN:
            removals = [event for event in batch.events if event.number == 9]
            if removals:
                # Removals after the cut prove holds before it, too.
                proven = lost_holds((event, self.clock.naive(event.time)) for event in removals)
                holds = [hold for hold in proven if self.cut is None or hold.time <= self.cut]
                events = with_holds(events, holds)
            self._apply_job_events(batch, events, affected)
            self._add_images(batch, affected)
            if stats.role is LogRole.NODES and batch.dag and stats.first and stats.last:
                self._dag_logs[batch.dag].nodes_log_span = stats.first, stats.last
        elif batch.dag is not None:
            if events or batch.images:
                self._apply_dagman_events(batch.dag, batch, events)
                is_of_dagman = batch.dag in self.dags
            if batch.dag in self.dags:
                self.offsets.observe(self.dags[batch.dag].clock_observations())
        nodes = affected.nodes
        nodes |= self._attributor.attribute_changed(affected.touched, affected.to_attribute)
        if is_of_dagman:
            nodes |= self._attributor.reattribute(of_dag=batch.dag)
        for cluster, time in affected.submitted:
            self.offsets.read_submission(time, self._submit_epoch(cluster))
        nodes |= self._attributor.recheck(nodes)
        self._mark_changed(nodes)
        return bool(affected.touched or nodes or is_of_dagman)

    def _localize(self, batch: Batch, stats: LogStats) -> Sequence[Event]:
        """The batch's events up to the cut, in local time; updates the log's statistics."""
        is_first_batch = stats.first is None
        events = batch.events
        times = [event.time for event in events]
        in_local_time = {time.tzinfo for time in times} <= {None}
        if times and not (in_local_time and self.clock.is_steady(min(times), max(times))):
            events = [self._with_local_time(event, stats) for event in events]
            times = [event.time for event in events]
        elif times:
            stats.previous = self.clock.naive(times[-1])
        if batch.role is LogRole.DAGMAN and batch.dag is not None:
            for event in events:
                note_dagman_event(self._dag_logs[batch.dag].intervals, event)
        if self.cut is not None:
            later = [event for event in events if event.time > self.cut]
            self.offsets.read_later(later, self._submit_epoch)
            if batch.first is not None and (first := self.clock.naive(batch.first)) > self.cut:
                self.offsets.note_later(first)
            events = [event for event in events if event.time <= self.cut]
            times = [event.time for event in events]
        if events:
            # A damaged event is not counted: it is reported as a warning.
            stats.events += len(events) - len([event for event in events if event.damaged])
            stats.first = stats.first or times[0]
            self._note_newest(stats, max(times))
        if batch.images:
            naive = self.clock.naive
            stats.events += sum(image.updates for image in batch.images)
            if is_first_batch and batch.first is not None:
                first = naive(batch.first)
                if self.cut is not None and first > self.cut:
                    first = min(naive(image.first) for image in batch.images)
                stats.first = first
            if batch.last is not None:
                stats.previous = naive(batch.last)
            self._note_newest(stats, max(naive(image.last) for image in batch.images))
        return events

    def _note_newest(self, stats: LogStats, time: datetime) -> None:
        if stats.last is None or time > stats.last:
            stats.last = time
        if self.newest is None or time > self.newest:
            self.newest = time

    def _with_local_time(self, event: Event, stats: LogStats) -> Event:
        """The event with its time in the access point's local time."""
        time = self.clock.naive(event.time)
        if self.clock.zone is not None:
            time = self.clock.with_fold(time, stats.previous)
        stats.previous = time
        return event if time is event.time else replace(event, time=time)

    def _add_images(self, batch: Batch, affected: _Affected) -> None:
        jobs, naive = self.jobs, self.clock.naive
        log, in_log = _log_identity(batch)
        has_reused_ids = bool(self.reused_ids)
        for image in batch.images:
            proc, last = image.proc, naive(image.last)
            if proc < 0:
                continue
            key = (image.cluster, proc, image.subproc if proc == NOOP_PROC else 0)
            if has_reused_ids:
                key = self.reused_ids.key_at(key, last)
            job = jobs.get(key)
            if job is None:
                job = self._new_job(key, affected)
            if log not in in_log(job):
                self._add_log(batch, job, affected)
            job.note_memory(last, image.memory_mb, image.updates)
            affected.touched.add(key)

    def _apply_dagman_events(self, dag_key: str, batch: Batch, events: Sequence[Event]) -> None:
        """Apply events of DAGMan's own job.

        If its log has no older event, a 006 shows that the job was in the queue.
        """
        jobs = self._dag_logs[dag_key].jobs
        known = {job.cluster for job in jobs}
        for image in batch.images:
            first = self.clock.naive(image.first)
            own_times = (event.time for event in events if event.cluster == image.cluster)
            if image.cluster not in known and first < min(own_times, default=datetime.max):
                event_006 = Event(
                    6, image.cluster, image.proc, image.subproc, first, "", "", None, 0
                )
                events = merge_by_time(list(events), [event_006])
        for event in events:
            add_dagman_event(jobs, event)
        if dag_key in self.dags:
            self.dags[dag_key].reset_runs()

    def _apply_job_events(self, batch: Batch, events: Sequence[Event], affected: _Affected) -> None:
        stream, jobs, touched = Stream(batch.role.value, batch.file), self.jobs, affected.touched
        reused_ids, has_reused_ids = self.reused_ids, bool(self.reused_ids)
        log, in_log = _log_identity(batch)
        for event in events:
            number, time, detail, cluster, proc = (
                event.number,
                event.time,
                event.detail,
                event.cluster,
                event.proc,
            )
            if number in _NODE_EVENTS and isinstance(detail, PostScript | PreSkip):
                if event.damaged:
                    # DAGMan does not read a cut event: it still waits for the script's.
                    continue
                affected.nodes |= self._attributor.apply_script_result(batch.dag, event)
                continue
            if proc < 0:
                if isinstance(detail, ClusterSubmit | ClusterRemove):
                    self._apply_cluster_event(cluster, detail, affected)
                continue
            key = (cluster, proc, event.subproc if proc == NOOP_PROC else 0)
            if has_reused_ids:
                key = reused_ids.key_at(key, time)
            job = jobs.get(key)
            if job is None:
                job = self._new_job(key, affected)
            elif not job.user_logs and not job.nodes_logs:
                job.drop_events()
            elif number == 0:
                if find_resubmission(job, event, reused_ids):
                    job = self._split_job(job, time, affected)
                    key, has_reused_ids = job.key, True
                elif difference := submit_time_difference(job, event):
                    self._note_time_difference(batch.file, job, difference)
            if log not in in_log(job):
                self._add_log(batch, job, affected)
            if number == 6:
                job.note_memory(time, detail.memory_mb if isinstance(detail, ImageSize) else None)
                touched.add(key)
            elif job.add(event, stream):
                touched.add(key)
                if number in _ATTRIBUTION_EVENTS:
                    self._apply_attribution_event(key, job, event, affected)

    def _apply_attribution_event(
        self, key: JobKey, job: LoggedJob, event: Event, affected: _Affected
    ) -> None:
        """Apply evidence for the job's attribution, and for the UTC offset."""
        detail = event.detail
        if isinstance(detail, Submit):
            affected.to_attribute.add(key)
            affected.submitted.append((event.cluster, event.time))
        elif isinstance(detail, Terminated):
            self.offsets.read_end(event)
        elif isinstance(detail, Aborted) and detail.reason:
            match = DAGMAN_IN_REMOVAL.search(detail.reason)
            if match:
                job.aborted_by = int(match.group(1))
            job.removed_with_dag |= bool(match) or detail.reason.startswith(REMOVAL_OF_ALL_JOBS)
            affected.to_attribute.add(key)
        if isinstance(detail, Terminated):
            return  # Its body, the longest of all, has no attributes.
        notes = detail.notes if isinstance(detail, Submit) else None
        ad_text = without_environment(event).body if notes is None else "\n".join(notes)
        if job.aborted_by is None and (match := DAGMAN_IN_AD.search(ad_text)):
            job.aborted_by = int(match[1])
            affected.to_attribute.add(key)
        if read_group(job, ad_text):
            affected.to_attribute.add(key)

    def _new_job(self, key: JobKey, affected: _Affected) -> LoggedJob:
        job = LoggedJob(key, self.recent_jobs)
        self.jobs[key] = job
        self._attributor.add_job(key)
        if factory := self._factories.get(key[0]):
            job.factory, job.node_name = factory, factory.node
        affected.to_attribute.add(key)
        return job

    def _note_time_difference(self, file: str, job: LoggedJob, difference: timedelta) -> None:
        """Warn, once, that two logs have different times for the same submission."""
        if any(notice.kind == "log-zone" for notice in self.notices):
            return
        text = (
            f"its 000 of job {job.cluster}.{job.proc} is {difference} off another log's: "
            "one of them is in another time zone, or has no years; hours may be counted twice: "
            "put one away, or give --tz where one says UTC"
        )
        self.notices.append(Notice("log-zone", file, None, text))

    def _split_job(self, known: LoggedJob, time: datetime, affected: _Affected) -> LoggedJob:
        """Split the events of a reused job id at ``time``; return the later job."""
        merged_jobs = [self.jobs.pop(key) for key in self.reused_ids.job_keys(known.id)]
        for job in merged_jobs:
            if (node := self._attributor.remove_job(job)) is not None:
                affected.nodes.add(node)
            self.recent_jobs.remove(job)
        self.reused_ids.add(merged_jobs[0], time)
        keys = self.reused_ids.job_keys(known.id)
        for key in keys:
            self.jobs[key] = LoggedJob(key, self.recent_jobs)
            affected.touched.add(key)
            affected.to_attribute.add(key)
        self._attributor.add_job(keys[-1])
        for job in merged_jobs:
            self._redistribute_events(job, affected)
        if factory := self._factories.get(known.cluster):
            for key in keys:
                self.jobs[key].node_name = self.jobs[key].node_name or factory.node
        return self.jobs[self.reused_ids.key_at(keys[0], time)]

    def _redistribute_events(self, merged_job: LoggedJob, affected: _Affected) -> None:
        """Add the events of a job to the jobs that it was split into."""
        for stream, events in merged_job.events_by_log():
            nodes_log_dag = next(
                (dag_key for dag_key in merged_job.nodes_logs if stream.file.startswith(dag_key)),
                None,
            )
            for event in events:
                job = self.jobs[self.reused_ids.key_at(merged_job.key, event.time)]
                if stream.rank == LogRole.NODES.value and nodes_log_dag is not None:
                    job.nodes_logs = self.recent_jobs.with_log(job.nodes_logs, nodes_log_dag)
                else:
                    job.user_logs = self.recent_jobs.with_log(job.user_logs, stream.file)
                if job.add(event, stream) and event.number in _ATTRIBUTION_EVENTS:
                    self._apply_attribution_event(job.key, job, event, affected)
        if merged_job.last_image_size is not None:
            job = self.jobs[self.reused_ids.key_at(merged_job.key, merged_job.last_image_size)]
            job.note_memory(
                merged_job.last_image_size, merged_job.memory_max, merged_job.memory_updates
            )

    def _add_log(self, batch: Batch, job: LoggedJob, affected: _Affected) -> None:
        """Record that the job is in the batch's log, which is evidence for its attribution."""
        if batch.role is not LogRole.NODES or batch.dag is None:
            job.user_logs = self.recent_jobs.with_log(job.user_logs, batch.file)
        else:
            job.nodes_logs = self.recent_jobs.with_log(job.nodes_logs, batch.dag)
        affected.touched.add(job.key)
        affected.to_attribute.add(job.key)

    def reset_log(self, file: str, dag_key: str | None) -> None:
        """Reset the statistics of a replaced log, and the events of DAGMan's own job.

        Jobs stay: DAGMan truncates its nodes.log whenever it starts, while jobs continue.
        """
        stats = self.log_stats.get(file)
        if stats is None:
            return
        self.log_stats[file] = LogStats(file, stats.role)
        self.notices = [notice for notice in self.notices if notice.file != file]
        if stats.role is LogRole.NODES and dag_key is not None:
            self._dag_logs[dag_key].nodes_log_span = None
        if stats.role is not LogRole.DAGMAN:
            self._newest_of_replaced = _latest(self._newest_of_replaced, stats.last)
        elif stats.last is not None:
            # The replaced log may have had wrong times.
            lasts = (log.last for log in self.log_stats.values())
            self.newest = _latest(self._newest_of_replaced, *lasts)
        if stats.role is LogRole.DAGMAN and dag_key is not None:
            self._dag_logs[dag_key].jobs.clear()
            self._dag_logs[dag_key].intervals.clear()
            if dag_key in self.dags:
                self.dags[dag_key].reset_runs()
            self._mark_changed(self._attributor.reattribute(of_dag=dag_key))
            self.states.invalidate()

    def _apply_cluster_event(
        self, cluster: int, detail: ClusterSubmit | ClusterRemove, affected: _Affected
    ) -> None:
        """Apply a 035, which names the node of all jobs of its cluster, or the 036 that ends it."""
        factory = self._factories.setdefault(cluster, Factory())
        if isinstance(detail, ClusterRemove):
            factory.has_ended = True
        else:
            factory.node = factory.node or detail.node
        for key in self._attributor.jobs_of_cluster(cluster):
            job = self.jobs[key]
            job.factory = factory
            affected.touched.add(key)
            if job.node_name is None and factory.node is not None:
                job.node_name = factory.node
                affected.to_attribute.add(key)

    # --- DAGMan's files -----------------------------------------------------------------

    def apply_dagman_messages(self, dag_key: str, messages: Sequence[DagmanMessage]) -> None:
        """Apply messages of a ``.dagman.out``."""
        names = self.dags[dag_key].apply_messages(messages)
        self.offsets.observe(self.dags[dag_key].clock_observations())
        self._update_nodes(dag_key, names, {line.cluster for line in messages})

    def submission_date(self, cluster: int) -> datetime | None:
        """When a cluster (DAGMan's own, or a job's) was submitted by DAGMan's files, to a day."""
        times = (dag.submission_date(cluster) for dag in self.dags.values())
        return next((time for time in times if time is not None), None)

    def dagman_spans(self) -> Iterator[tuple[datetime, datetime]]:
        """First and last times of the DAGMan runs, to a day."""
        for dag in self.dags.values():
            yield from dag.spans()

    def has_job(self, cluster: int) -> bool:
        """Whether events have shown a job of this cluster."""
        return bool(self._attributor.jobs_of_cluster(cluster))

    def apply_reported_events(self, dag_key: str, messages: Iterable[DagmanMessage]) -> None:
        """Apply events in a ``.dagman.out`` of jobs that are in no log here, and DAGMan's ends."""
        stream, affected = Stream(OUT_RANK, f"{dag_key}.dagman.out"), _Affected()
        open_jobs, has_end = self._reported_jobs[dag_key], False
        for line in messages:
            time, cluster, proc = line.time, line.cluster or 0, line.proc or 0
            if line.event is None:
                has_end = True
                continue
            if time is None or cluster <= 0 or (self.cut is not None and time > self.cut):
                continue
            job = self.jobs.get((cluster, proc, 0))
            if job is None:
                job = self._new_job((cluster, proc, 0), affected)
                job.node_name = job.node_name or line.node
            elif job.user_logs or job.nodes_logs:
                continue
            if job.add(reported_event(line, time), stream):
                affected.touched.add(job.key)
                self.newest = _latest(self.newest, time)
                is_open = job.history().state not in TERMINAL
                (open_jobs.add if is_open else open_jobs.discard)(job.key)
        if has_end:
            # Not before all events: a later process of this DAGMan repeats what was missed.
            self._remove_reported_jobs(dag_key, stream, affected)
        nodes = self._attributor.attribute_changed(affected.touched, affected.to_attribute)
        self._mark_changed(nodes | self._attributor.recheck(nodes))

    def _remove_reported_jobs(self, dag_key: str, stream: Stream, affected: _Affected) -> None:
        """Mark as removed the open jobs of DAGMans that have ended, which remove their jobs."""
        runs = [run for run in self.dags[dag_key].accepted_runs() if run.ended]
        for key in list(self._reported_jobs[dag_key]):
            job = self.jobs[key]
            submitted = job.submitted or datetime.max
            ends = (run.end for run in runs if run.start is None or run.start <= submitted)
            end = min((end for end in ends if end and submitted <= end), default=None)
            if job.user_logs or job.nodes_logs:
                self._reported_jobs[dag_key].discard(key)
            elif end is not None:
                job.add(Event(9, *key[:2], 0, end, "", "", Aborted(None), 0), stream)
                job.removed_with_dag = True
                affected.touched.add(key)
                self._reported_jobs[dag_key].discard(key)

    def apply_jobstate(self, dag_key: str, entries: Sequence[JobstateLine]) -> None:
        """Apply lines of a jobstate log."""
        dag = self.dags[dag_key]
        names = dag.apply_jobstate(entries)
        self.offsets.observe(dag.clock_observations())
        clusters = (entry.cluster for entry in entries if entry.event == "SUBMIT")
        epochs = {c: dag.submit_epochs[c] for c in clusters if c in dag.submit_epochs}
        self.offsets.read_jobstate(epochs, self._logged_submit_time)
        self._update_nodes(dag_key, names, {entry.cluster for entry in entries})

    def dag_facts_changed(self, dag_key: str) -> None:
        """Apply a changed rescue, node status, metrics or halt file of this DAG."""
        dag = self.dags[dag_key]
        self.offsets.observe(dag.clock_observations())
        idle_jobs = list(self.unproven.jobs_of_idle_nodes(dag))
        self._mark_changed(self._attributor.attribute_all(idle_jobs))
        self._update_nodes(dag_key)

    def reset_dagman_messages(self, dag_key: str) -> None:
        """Update the model after a growing file of this DAG's DAGMan was replaced."""
        self.states.invalidate(dag_key)
        self._update_nodes(dag_key, (), {key[0] for key in self.jobs})

    def _submit_epoch(self, cluster: int) -> float | None:
        """The submission time of a cluster in the jobstate log of its DAG."""
        dag = self._attributor.submitting_dag(cluster)
        return dag.submit_epochs.get(cluster) if dag is not None else None

    def _logged_submit_time(self, cluster: int) -> datetime | None:
        job = self.jobs.get(self.reused_ids.newest((cluster, 0)))
        return job.first_submitted if job is not None else None

    def _update_nodes(
        self, dag_key: str, names: Iterable[str] = (), clusters: Iterable[int | None] = ()
    ) -> None:
        """Update the nodes that DAGMan's files name, and the jobs of the clusters."""
        nodes = {(dag_key, name) for name in names if (dag_key, name) in self.nodes}
        nodes |= self._attributor.reattribute(clusters)
        self._mark_changed(nodes)

    # --- gates --------------------------------------------------------------------------

    def set_gates(self, dag_key: str, runs: Mapping[str, RunGate]) -> bool:
        """Set the gate files of a DAG's runs, by run uuid; return whether they changed."""
        changed = self.gates.get(dag_key, {}) != runs
        if changed:
            self.gates[dag_key] = runs
        return changed

    def set_placements(self, sites: Mapping[NodeKey, str]) -> bool:
        """Set the sites that override the VARS of nodes; return whether any changed."""
        if sites == self.placements:
            return False
        self.placements = sites
        return True

    # --- annexes ------------------------------------------------------------------------

    def add_annex_ends(self, ends: Mapping[str, Iterable[float]]) -> bool:
        """Add known ends of annexes, in seconds since 1970; return whether any is new."""
        changed, zone = False, self.settings.zone
        for name, times in ends.items():
            known = self.annex_ends.get(name, ())
            local = {datetime.fromtimestamp(int(time), zone).replace(tzinfo=None) for time in times}
            if not local.issubset(known):
                self.annex_ends[name] = sorted(local.union(known))[-MAX_ENDS:]
                changed = True
        return changed


OUT_RANK: Final = 2
"""The rank of ``.dagman.out`` among the logs of a job."""


def reported_event(line: DagmanMessage, time: datetime) -> Event:
    """The event of a job, as far as ``.dagman.out`` has it."""
    detail: Detail | None = None
    value = line.value
    match line.event:
        case 5 if value is not None:
            detail = Terminated(
                normal=value >= 0,
                return_value=value if value >= 0 else None,
                signal=-value if value < 0 else None,
                run_bytes_sent=None,
                run_bytes_received=None,
                total_bytes_sent=None,
                total_bytes_received=None,
                ended_utc=None,
                usage=(),
            )
        case 9:
            detail = Aborted(None)
        case 12:
            detail = Held(line.text, None, None)
    # The line with the reason of a hold follows the one with the event, and replaces it.
    damaged = line.event == 12 and line.text is None
    number, cluster, proc = line.event or 0, line.cluster or 0, line.proc or 0
    return Event(number, cluster, proc, 0, time, "", "", detail, 0, damaged)


def _latest(*times: datetime | None) -> datetime | None:
    return max((time for time in times if time is not None), default=None)
