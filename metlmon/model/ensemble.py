"""The state model: a workflow and its events, come together.

One object with plain typed records. Batches of events and of DAGMan's words go in, sets of
changed keys come out; :mod:`metlmon.snapshot.builder` draws what it holds. It reads no file
and no clock: as-of is an argument of the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeAlias

from metlmon.dagman import DagmanMessage, JobstateLine
from metlmon.eventlog import (
    Aborted,
    ClusterSubmit,
    Detail,
    Event,
    ImageSize,
    ImageSizes,
    PostScript,
    PreSkip,
    Submit,
    Terminated,
)
from metlmon.frozen import frozen
from metlmon.jobfiles.gate_files import RunGate
from metlmon.model.attribution import NAMED_IN_AD, REMOVED_WITH, SWEEPS, Attribution, attribute_job
from metlmon.model.clock import Clock
from metlmon.model.clock_evidence import QueueInterval, note_dagman
from metlmon.model.dag import Dag
from metlmon.model.dagman_runs import DagmanJob, file_event
from metlmon.model.dump_jobs import dump_jobs, load_jobs
from metlmon.model.job_events import (
    NOOP_PROC,
    EventStore,
    Job,
    JobId,
    JobKey,
    NodeKey,
    NodeRecord,
    PostResult,
    Stream,
    merge_by_time,
)
from metlmon.model.lost_holds import lost_holds, with_holds
from metlmon.model.node import NodeState, SubmissionResult
from metlmon.model.node_neighbours import parents_of
from metlmon.model.node_states import NodeStates, NodeStateTable
from metlmon.model.reused_ids import (
    LATEST,
    ONE_SECOND,
    ReusedJobIds,
    find_resubmission,
    is_new_submission,
)
from metlmon.model.run import variable
from metlmon.model.settings import Settings
from metlmon.model.states import ALIVE, DONE, DagState
from metlmon.model.sub_dags import named_by, settle_tops
from metlmon.model.unproven_jobs import UnprovenJobs
from metlmon.model.unrecorded_nodes import UnrecordedNodes, grounds_of
from metlmon.model.utc_offsets import UtcOffsets
from metlmon.snapshot.aggregates import Aggregates
from metlmon.snapshot.types import Notice

NOTICES_PER_KIND = 50
"""Notices kept of one kind from one log: the first ones tell what is wrong; a log of noise
must not fill the memory with complaints."""


ScriptKey: TypeAlias = tuple[str | None, int, int, int, datetime, Detail | None]
"""The DAG whose nodes.log it stands in, and an event's identity: a log that is read again
tells of the same scripts."""


Place: TypeAlias = tuple[str | None, str | None, tuple[str, ...], bool, bool, bool]
"""A :class:`Attribution` as plain data."""


class LogRole(Enum):
    """What a log is: a user's job event log, a DAGMan's nodes.log, DAGMan's own job log."""

    USER = 0
    NODES = 1
    DAGMAN = 2


@frozen
class Batch:
    """Events of one log, in its order. ``dag`` is the key of the DAG that a nodes.log or a
    dagman.log belongs to — also of a DAG whose own file is not here. ``images``: 006 of this
    piece of the log that are not among ``events``; ``first`` and ``last`` are then the times of
    the piece's first and last event in the log's order, 006 among them. Images are added up
    without regard to a cut or to an hour that exists twice: where the ensemble has a ``cut``
    that they reach behind, or its clock a zone, 006 are to be given among ``events``."""

    file: str
    role: LogRole
    events: Sequence[Event]
    dag: str | None = None
    images: Sequence[ImageSizes] = ()
    first: datetime | None = None
    last: datetime | None = None


@frozen
class Changes:
    """What a batch changed."""

    jobs: frozenset[JobId] = frozenset()
    nodes: frozenset[NodeKey] = frozenset()
    dags: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.jobs or self.nodes or self.dags)

    def __or__(self, other: Changes) -> Changes:
        return Changes(self.jobs | other.jobs, self.nodes | other.nodes, self.dags | other.dags)


@dataclass(slots=True)
class LogStats:
    """Figures of one log: its size in bytes, its complete events, first and last time."""

    file: str
    role: LogRole
    bytes: int = 0
    events: int = 0
    first: datetime | None = None
    last: datetime | None = None
    previous: datetime | None = None
    notices: dict[str, int] = field(default_factory=dict)


class _Affected:
    """What a batch concerns: jobs of which it told anything, among them those that may belong
    elsewhere now and the submissions (cluster and local time), and nodes."""

    __slots__ = ("nodes", "placed", "submitted", "touched")

    def __init__(self) -> None:
        self.touched: set[JobKey] = set()
        self.placed: set[JobKey] = set()
        self.submitted: list[tuple[int, datetime]] = []
        self.nodes: set[NodeKey] = set()


def _latest(*times: datetime | None) -> datetime | None:
    return max((time for time in times if time is not None), default=None)


def _log_of(batch: Batch) -> tuple[str, Callable[[Job], frozenset[str]]]:
    """By what the batch's log is known, and where a job has it when it is in that log."""
    if batch.role is LogRole.NODES and batch.dag is not None:
        return batch.dag, attrgetter("nodes_logs")
    return batch.file, attrgetter("user_logs")


AFTER_THE_END: Final = timedelta(seconds=1)
"""DAGMan submits nothing behind its end; the stamps of two logs may differ by this."""

_OF_NODES: Final = frozenset({16, 34})
"""Events that are of a node, not of a job."""

_TELLING: Final = frozenset({0, 5, 9, 15, 28})
"""Events that may tell where their job belongs, or the access point's offset."""


class Ensemble:
    """Everything known of one dagdir.

    ``cut``: what happened later is not looked at (``--as-of``).
    """

    def __init__(self, settings: Settings | None = None, cut: datetime | None = None) -> None:
        self.settings = settings or Settings()
        self.clock = Clock(self.settings.zone)
        self.cut = cut
        self.dags: dict[str, Dag] = {}
        self.jobs: dict[JobKey, Job] = {}
        self.nodes: dict[NodeKey, NodeRecord] = {}
        self.members: dict[JobKey, Attribution] = {}
        self.unproven = UnprovenJobs()
        self.shelf = EventStore(self.settings.checkpoint_codes)
        self.lives = ReusedJobIds()
        """Of clusters and procs that more than one job had."""
        self.books: dict[str, LogStats] = {}
        self.notices: list[Notice] = []
        self.conditions: list[Notice] = []
        self.newest: datetime | None = None
        self._gone_by: datetime | None = None
        """Of the logs that began anew, the last moment they told of."""
        self._by_node: dict[str, list[str]] = {}
        self._procs: dict[int, list[JobKey]] = {}
        self._tellers: dict[int, str] = {}
        self._weighed: set[JobKey] = set()
        self._named_by: dict[str, list[str]] = {}
        """Which DAGs name each sub-DAG, where one is named by several."""
        self._factories: dict[int, str] = {}
        self._scripts: dict[ScriptKey, Event] = {}
        self._waiting: dict[ScriptKey, Event] = {}
        self._dagman_jobs: dict[str, list[DagmanJob]] = {}
        self._dagman_spans: dict[str, dict[int, QueueInterval]] = {}
        self._nodes_logs: dict[str, tuple[datetime, datetime]] = {}
        self._states = NodeStates(self.clock, cut)
        self.offsets = UtcOffsets(self.clock, self._offset_changed)
        self.stale_jobs: set[JobKey] = set()
        """Jobs whose events or place changed since whoever adds things up emptied this."""
        self.all_stale = True
        """Everything is to be added up anew: other DAGs, another clock."""
        self.gates: dict[str, Mapping[str, RunGate]] = {}
        """By DAG, then by run's uuid, what lies beside it of its gate."""
        self.placements: Mapping[NodeKey, str] = {}
        """The sites of nodes that go elsewhere than their VARS say."""
        self.summary = Aggregates(self)

    # --- the workflow -------------------------------------------------------------------

    def set_dags(self, dags: Iterable[Dag], placed: Iterable[Place] | None = None) -> Changes:
        """These are the DAGs now; what was known of their jobs is placed anew.

        A DAG file is away, or half written, for a moment when it is replaced: what the logs
        told of its nodes is kept until it is back. ``placed``: where each job belongs, in
        their order, where that is known.
        """
        self.dags = {dag.key: dag for dag in dags}
        self._by_node = {}
        self.nodes = {}
        for dag in self.dags.values():
            dag.clock, dag.cut = self.clock, self.cut
            dag.dagman_jobs = self._dagman_jobs.setdefault(dag.key, dag.dagman_jobs)
            dag.dagman_spans = self._dagman_spans.setdefault(dag.key, dag.dagman_spans)
            dag.dagmans_changed()
            dag.nodes_log = self._nodes_logs.get(dag.key)
            for name, node in dag.workflow.nodes.items():
                key = (dag.key, name)
                self._by_node.setdefault(name, []).append(dag.key)
                self.nodes[key] = NodeRecord(key, node)
        self._list_tellers()
        self.members = {}
        self.unproven = UnprovenJobs()
        self._weighed = set()
        self._states.begin(self.nodes)
        self.all_stale = True
        if placed is not None:
            self._place_again(placed)
        else:
            for job_key in self.jobs:
                self._place(job_key)
        self._waiting = dict(self._scripts)
        self._place_scripts()
        named = named_by(self.dags)
        self._named_by = named if any(len(by) > 1 for by in named.values()) else {}
        self._settle_tops()
        return Changes(dags=frozenset(self.dags))

    def _settle_tops(self) -> None:
        """New evidence came: sub-DAGs that several DAGs name may belong to another one."""
        if self._named_by and settle_tops(self.dags, self._named_by, self._submitter):
            # Runs are named after their DAG: they are to be found again.
            self.dags = dict(self.dags)
            self.all_stale = True

    def _submitter(self, cluster: int) -> str | None:
        """The DAG whose DAGMan submitted a cluster, by its output or by the job's place."""
        placed = self.members.get((cluster, 0, 0))
        return self._tellers.get(cluster) or (placed.dag if placed is not None else None)

    # --- events -------------------------------------------------------------------------

    def apply(self, batch: Batch) -> Changes:
        """Take a batch of events in; returns the keys of what may look different now."""
        book = self.books.setdefault(batch.file, LogStats(batch.file, batch.role))
        events = self._entered(batch, book)
        removals = [event for event in batch.events if event[0] == 9]
        if removals and batch.role is not LogRole.DAGMAN:
            events = self._with_lost_holds(events, removals)
        dags: set[str] = set()
        jobs = _Affected()
        if batch.role is not LogRole.DAGMAN:
            self._hear_jobs(batch, events, jobs)
            self._add_images(batch, jobs)
            self._note_nodes_log(batch.dag, book)
        elif batch.dag is not None and (events or batch.images):
            self._file_dagman_events(batch, events)
            dags.add(batch.dag)
        if batch.role is LogRole.DAGMAN and batch.dag in self.dags:
            self.offsets.read_files(self.dags[batch.dag])
        self.stale_jobs |= jobs.touched
        nodes = jobs.nodes
        for key in jobs.touched:
            if key in jobs.placed or key in self._weighed:
                nodes.update(self._place(key))
            else:
                placed = self.members[key]
                node = (placed.dag, placed.node)
                if node in self.nodes:
                    nodes.add(node)
        if dags:
            nodes |= self._weigh_again(of_dag=batch.dag)
        for cluster, time in jobs.submitted:
            self.offsets.read_submission(cluster, time, self._teller(cluster))
        nodes |= self._place_all([*self.unproven.due(self.dags), *self._contested(nodes)])
        self.shelf.tidy()
        dags |= {key[0] for key in nodes}
        dags &= self.dags.keys()
        self._states.touch(nodes)
        self._settle_tops()
        return Changes(
            frozenset([(c, p) for c, p, _ in jobs.touched]), frozenset(nodes), frozenset(dags)
        )

    def _with_lost_holds(
        self, events: Sequence[Event], removals: Iterable[Event]
    ) -> Sequence[Event]:
        """The events, and holds that removals prove, also those behind the cut."""
        timed = ((event, self.clock.naive(event.time)) for event in removals)
        holds = [h for h in lost_holds(timed) if self.cut is None or h.time <= self.cut]
        return with_holds(events, holds) if holds else events

    def kept(self) -> Iterator[Any]:
        """All that was learnt from job event logs up to this call, as records of plain data:
        see :mod:`metlmon.model.dump_jobs`."""
        return dump_jobs(self)

    def restore(self, records: Iterable[Any]) -> None:
        """Learn again what another ensemble :meth:`kept`, which had the same settings and no
        cut. To be called before anything else; raises whatever comes first when the records
        are none of those, and then this ensemble is spoilt."""
        load_jobs(self, records)

    def _entered(self, batch: Batch, book: LogStats) -> Sequence[Event]:
        """The batch's events, up to the cut, by the access point's local time; and the figures
        of their log."""
        unopened = book.first is None
        events = batch.events
        times = [event[4] for event in events]
        if self.clock.zone is not None or {time.tzinfo for time in times} - {None}:
            events = [self._stamped(event, book) for event in events]
            times = [event[4] for event in events]
        elif times:
            book.previous = self.clock.naive(times[-1])
        if batch.role is LogRole.DAGMAN and batch.dag is not None:
            for event in events:
                note_dagman(self._dagman_spans.setdefault(batch.dag, {}), event)
        if self.cut is not None:
            later = [event for event in events if event.time > self.cut]
            self.offsets.read_later(later, self._teller)
            events = [event for event in events if event.time <= self.cut]
            times = [event[4] for event in events]
        if events:
            # One that was cut is no event of the log's: what is left of it is told as a warning.
            book.events += len(events) - len([event for event in events if event[9]])
            book.first = book.first or times[0]
            self._reached(book, max(times))
        if batch.images:
            naive = self.clock.naive
            book.events += sum(image.updates for image in batch.images)
            if unopened and batch.first is not None:
                book.first = naive(batch.first)
            if batch.last is not None:
                book.previous = naive(batch.last)
            self._reached(book, max(naive(image.last) for image in batch.images))
        return events

    def _reached(self, book: LogStats, time: datetime) -> None:
        if book.last is None or time > book.last:
            book.last = time
        if self.newest is None or time > self.newest:
            self.newest = time

    def _stamped(self, event: Event, book: LogStats) -> Event:
        """The event with its time as the access point's local time."""
        time = self.clock.naive(event.time)
        if self.clock.zone is not None:
            time = self.clock.with_fold(time, book.previous)
        book.previous = time
        return event if time is event.time else event._replace(time=time)

    def _note_nodes_log(self, dag_key: str | None, book: LogStats) -> None:
        """From when to when a DAG's nodes.log tells of its jobs."""
        if book.role is LogRole.NODES and dag_key and book.first and book.last:
            self._nodes_logs[dag_key] = book.first, book.last
            if dag_key in self.dags:
                self.dags[dag_key].nodes_log = book.first, book.last

    def _add_images(self, batch: Batch, concerned: _Affected) -> None:
        jobs, naive = self.jobs, self.clock.naive
        log, in_log = _log_of(batch)
        shared = bool(self.lives)
        for cluster, proc, subproc, updates, _, last, memory_mb in batch.images:
            if proc < 0:
                continue
            key = (cluster, proc, subproc if proc == NOOP_PROC else 0)
            if shared:
                key = self.lives.at(key, naive(last))
            job = jobs.get(key)
            if job is None:
                job = self._new_job(key, concerned)
            if log not in in_log(job):
                self._found_in(batch, job, concerned)
            job.note_memory(naive(last), memory_mb, updates)
            concerned.touched.add(key)

    def _file_dagman_events(self, batch: Batch, events: Sequence[Event]) -> None:
        """Events of DAGMan's own job. That it was in the queue a 006 says, too, where its log
        has nothing older of it."""
        jobs = self._dagman_jobs.setdefault(batch.dag or "", [])
        known = {job.cluster for job in jobs}
        for image in batch.images:
            first = self.clock.naive(image.first)
            mine = (event.time for event in events if event.cluster == image.cluster)
            if image.cluster not in known and first < min(mine, default=datetime.max):
                sign = Event(6, image.cluster, image.proc, image.subproc, first, "", "", None, 0)
                events = merge_by_time(list(events), [sign])
        for event in events:
            file_event(jobs, event)
        if batch.dag in self.dags:
            self.dags[batch.dag].dagmans_changed()

    def _hear_jobs(self, batch: Batch, events: Sequence[Event], concerned: _Affected) -> None:
        stream, jobs, touched = Stream(batch.role.value, batch.file), self.jobs, concerned.touched
        lives, shared = self.lives, bool(self.lives)
        log, in_log = _log_of(batch)
        for event in events:
            number, cluster, proc, subproc, time, _, _, detail, _, _ = event
            if number in _OF_NODES and isinstance(detail, PostScript | PreSkip):
                concerned.nodes |= self._hear_script(batch.dag, event)
                continue
            if proc < 0:
                if isinstance(detail, ClusterSubmit) and detail.node:
                    self._factory(cluster, detail.node, concerned)
                continue
            key = (cluster, proc, subproc if proc == NOOP_PROC else 0)
            if shared:
                key = lives.at(key, time)
            job = jobs.get(key)
            if job is None:
                job = self._new_job(key, concerned)
            elif number == 0:
                if find_resubmission(job, event, lives):
                    job = self._divide(job, time, concerned)
                    key, shared = job.key, True
                elif apart := is_new_submission(job, event):
                    self._note_apart(batch.file, job, apart)
            if log not in in_log(job):
                self._found_in(batch, job, concerned)
            if number == 6:
                job.note_memory(time, detail.memory_mb if isinstance(detail, ImageSize) else None)
                touched.add(key)
            elif job.add(event, stream):
                touched.add(key)
                if number in _TELLING:
                    self._hear_of_job(key, job, event, concerned)

    def _hear_of_job(self, key: JobKey, job: Job, event: Event, concerned: _Affected) -> None:
        """What an event tells of more than its job's life."""
        detail = event.detail
        if isinstance(detail, Submit):
            concerned.placed.add(key)
            concerned.submitted.append((event.cluster, event.time))
        elif isinstance(detail, Terminated):
            self.offsets.read_end(event)
        elif isinstance(detail, Aborted) and detail.reason:
            named = REMOVED_WITH.search(detail.reason)
            if named:
                job.aborted_by = int(named.group(1))
            job.swept |= bool(named) or detail.reason.startswith(SWEEPS)
            concerned.placed.add(key)
        told = "\n".join(detail.notes) if isinstance(detail, Submit) else event.body
        if job.aborted_by is None and (named := NAMED_IN_AD.search(told)):
            job.aborted_by = int(named[1])
            concerned.placed.add(key)

    def _new_job(self, key: JobKey, concerned: _Affected) -> Job:
        job = self.jobs[key] = Job(*key, self.shelf)
        self.note_proc(key)
        job.node_name = self._factories.get(key[0])
        concerned.placed.add(key)
        return job

    def _note_apart(self, file: str, job: Job, apart: timedelta) -> None:
        """Two logs tell of one submission at two times; said of the first one alone."""
        if any(notice.kind == "log-zone" for notice in self.notices):
            return
        text = (
            f"its 000 of job {job.cluster}.{job.proc} is {apart} off another log's: one of them is "
            "in another time zone, or has no years; hours may be counted twice: put one away, or "
            "give --tz where one says UTC"
        )
        self.notices.append(Notice("log-zone", file, None, text))

    def _divide(self, known: Job, when: datetime, concerned: _Affected) -> Job:
        """Its cluster and proc were given to another job, at ``when``: tell their events apart,
        whichever log and submission was read first. Returns the other job."""
        before = [self.jobs.pop(key) for key in self.lives.keys(known.id)]
        for job in before:
            self._unplace(job, concerned)
        self.lives.add(before[0], when)
        keys = self.lives.keys(known.id)
        for key in keys:
            self.jobs[key] = Job(*key, self.shelf)
            concerned.touched.add(key)
            concerned.placed.add(key)
        self.note_proc(keys[-1])
        for job in before:
            self._hear_again(job, concerned)
        if known.cluster in self._factories:
            for key in keys:
                self.jobs[key].node_name = self.jobs[key].node_name or self._factories[key[0]]
        return self.jobs[self.lives.at(keys[0], when)]

    def _unplace(self, job: Job, concerned: _Affected) -> None:
        record = self._record(self.members.pop(job.key, None))
        if record is not None:
            record.jobs.remove(job)
            concerned.nodes.add(record.key)
        self._weighed.discard(job.key)
        self.unproven.note(job, None, self.dags)
        self.shelf.unpacked.pop(job, None)

    def _hear_again(self, before: Job, concerned: _Affected) -> None:
        """What was heard of one job is told to those that it was."""
        for stream, events in before.events_by_log():
            of_nodes_log = next((d for d in before.nodes_logs if stream.file.startswith(d)), None)
            for event in events:
                job = self.jobs[self.lives.at(before.key, event.time)]
                if stream.rank == LogRole.NODES.value and of_nodes_log is not None:
                    job.nodes_logs = self.shelf.with_log(job.nodes_logs, of_nodes_log)
                else:
                    job.user_logs = self.shelf.with_log(job.user_logs, stream.file)
                if job.add(event, stream) and event.number in _TELLING:
                    self._hear_of_job(job.key, job, event, concerned)
        if before.last_image is not None:
            job = self.jobs[self.lives.at(before.key, before.last_image)]
            job.note_memory(before.last_image, before.memory_max, before.memory_updates)

    def note_proc(self, key: JobKey) -> None:
        """A job is known now."""
        # Most clusters have one job, 0: those need no list.
        if key[1:] != (0, 0):
            self._procs.setdefault(key[0], []).append(key)

    def _of_cluster(self, cluster: int) -> list[JobKey]:
        """The keys of its jobs."""
        first = (cluster, 0, 0)
        return [*([first] if first in self.jobs else ()), *self._procs.get(cluster, ())]

    def _found_in(self, batch: Batch, job: Job, concerned: _Affected) -> None:
        """Note which log the job is in: it may tell more of where it belongs."""
        if batch.role is not LogRole.NODES or batch.dag is None:
            job.user_logs = self.shelf.with_log(job.user_logs, batch.file)
        else:
            job.nodes_logs = self.shelf.with_log(job.nodes_logs, batch.dag)
        concerned.touched.add(job.key)
        concerned.placed.add(job.key)

    def forget_log(self, file: str, dag_key: str | None) -> Changes:
        """A log begins anew: its figures do, and what a DAGMan's own job log told does. Jobs
        stay: DAGMan empties its nodes.log whenever it starts, and their life goes on."""
        book = self.books.get(file)
        if book is None:
            return Changes()
        self.books[file] = LogStats(file, book.role)
        self.notices = [notice for notice in self.notices if notice.file != file]
        if book.role is LogRole.NODES and dag_key is not None:
            self._nodes_logs.pop(dag_key, None)
            if dag_key in self.dags:
                self.dags[dag_key].nodes_log = None
        if book.role is not LogRole.DAGMAN:
            self._gone_by = _latest(self._gone_by, book.last)
        elif book.last is not None:
            # A log with wrong times may have been in its place.
            self.newest = _latest(self._gone_by, *(each.last for each in self.books.values()))
        if book.role is LogRole.DAGMAN and dag_key in self._dagman_jobs:
            self._dagman_jobs[dag_key].clear()
            self._dagman_spans.setdefault(dag_key, {}).clear()
            if dag_key in self.dags:
                self.dags[dag_key].dagmans_changed()
            self._states.touch(self._weigh_again(of_dag=dag_key))
            self._states.forget()
        return Changes(dags=frozenset(self.dags))

    def _factory(self, cluster: int, node: str, concerned: _Affected) -> None:
        """035 names the node of all jobs that its cluster has and will have."""
        self._factories[cluster] = node
        for key in self._of_cluster(cluster):
            job = self.jobs[key]
            if job.node_name is None:
                job.node_name = node
                concerned.touched.add(key)
                concerned.placed.add(key)

    def _hear_script(self, dag_key: str | None, event: Event) -> set[NodeKey]:
        """016 and 034: they are of a node, and wait where it is not known yet."""
        return self._place_script(self.note_script(dag_key, event), event)

    def note_script(self, dag_key: str | None, event: Event) -> ScriptKey:
        """A script's result is known now."""
        key = (dag_key, event.cluster, event.proc, event.number, event.time, event.detail)
        self._scripts[key] = event._replace(body="")
        return key

    def _place_script(self, key: ScriptKey, event: Event) -> set[NodeKey]:
        detail = event.detail
        if not isinstance(detail, PostScript | PreSkip):
            return set()
        dag_key = key[0]
        record = self._node_named(dag_key, event, detail.node)
        if record is None:
            # Where its DAG and node are told, nothing but another DAG file can help.
            if dag_key is None or detail.node is None:
                self._waiting[key] = event
            return set()
        if isinstance(detail, PostScript):
            _note_post(record, event, detail)
        elif event.time not in record.skips:
            record.skips = tuple(sorted((*record.skips, event.time)))
        return {record.key}

    def _place_scripts(self) -> set[NodeKey]:
        """New evidence came: ask again whose the waiting scripts' results are."""
        waiting, self._waiting = self._waiting, {}
        return {node for key, event in waiting.items() for node in self._place_script(key, event)}

    def _node_named(self, dag_key: str | None, event: Event, node: str | None) -> NodeRecord | None:
        if dag_key is None:
            placed = self.members.get(self._job_at(event))
            if placed is not None and (placed.foreign or placed.candidates):
                return None
            dag_key = placed.dag if placed else None
            if dag_key is None and node is not None and len(self._by_node.get(node, ())) == 1:
                dag_key = self._by_node[node][0]
        if node is None and dag_key is not None:
            placed = self.members.get(self._job_at(event))
            node = placed.node if placed else None
        if dag_key is None or node is None:
            return None
        return self.nodes.get((dag_key, node))

    def _job_at(self, event: Event) -> JobKey:
        return self.lives.at((event.cluster, max(event.proc, 0), 0), event.time)

    # --- DAGMan's words -----------------------------------------------------------------

    def hear(self, dag_key: str, said: Sequence[DagmanMessage]) -> Changes:
        """Lines of a ``.dagman.out``."""
        touched = self.dags[dag_key].hear(said)
        self._note_teller(dag_key, (line.cluster for line in said))
        self.offsets.read_files(self.dags[dag_key])
        return self._told_of(dag_key, touched, {line.cluster for line in said})

    def read_jobstate(self, dag_key: str, entries: Sequence[JobstateLine]) -> Changes:
        """Lines of a jobstate log."""
        dag = self.dags[dag_key]
        touched = dag.read_jobstate(entries)
        self._note_teller(dag_key, (entry.cluster for entry in entries))
        self.offsets.read_files(dag)
        self.offsets.read_jobstate(dag, entries, self._told_submitted)
        return self._told_of(dag_key, touched, {entry.cluster for entry in entries})

    def facts_changed(self, dag_key: str) -> Changes:
        """A rescue, node status, metrics or halt file of this DAG was read anew."""
        dag = self.dags[dag_key]
        self.offsets.read_files(dag)
        of_nodes = self._place_all(list(self.unproven.of_idle_nodes(dag)))
        self._states.touch(of_nodes)
        return self._told_of(dag_key) | Changes(nodes=frozenset(of_nodes))

    def words_forgotten(self, dag_key: str) -> Changes:
        """A growing file of this DAG's DAGMan began anew, and the DAG forgot what it had said
        (:meth:`Dag.forget_out`, :meth:`Dag.forget_jobstate`)."""
        self._states.forget(dag_key)
        self._list_tellers()
        return self._told_of(dag_key, (), {key[0] for key in self.jobs})

    def _teller(self, cluster: int) -> Dag | None:
        """The DAG whose DAGMan says that it submitted a cluster."""
        return self.dags.get(self._tellers.get(cluster, ""))

    def _told_submitted(self, cluster: int) -> datetime | None:
        job = self.jobs.get(self.lives.newest((cluster, 0)))
        return job.told_submitted if job is not None else None

    def _offset_changed(self) -> None:
        """Words that were told in seconds since 1970 have another local time now."""
        self._states.forget()
        self.all_stale = True

    def _told_of(
        self, dag_key: str, names: Iterable[str] = (), clusters: Iterable[int | None] = ()
    ) -> Changes:
        nodes = {(dag_key, name) for name in names if (dag_key, name) in self.nodes}
        nodes |= self._weigh_again(clusters)
        dags = {dag_key} | {key[0] for key in nodes}
        self._states.touch(nodes)
        self._settle_tops()
        return Changes(nodes=frozenset(nodes), dags=frozenset(dags))

    # --- gates --------------------------------------------------------------------------

    def set_gates(self, dag_key: str, runs: Mapping[str, RunGate]) -> Changes:
        """This is what lies there of a DAG's runs now, by uuid."""
        if self.gates.get(dag_key, {}) == runs:
            return Changes()
        self.gates[dag_key] = runs
        self.summary.note_gates()
        return Changes(dags=frozenset({dag_key}))

    def set_placements(self, sites: Mapping[NodeKey, str]) -> Changes:
        """These nodes go there now, whatever their VARS say; all others go by those."""
        before, self.placements = self.placements, sites
        nodes = {
            key
            for key in before.keys() | sites.keys()
            if before.get(key) != sites.get(key) and key in self.nodes
        }
        self.stale_jobs |= {job.key for key in nodes for job in self.nodes[key].jobs}
        self.summary.note_targets(nodes)
        return Changes(nodes=frozenset(nodes), dags=frozenset(key[0] for key in nodes))

    def target(self, key: NodeKey | None) -> str | None:
        """Where a node is to go: to the site that it was given, else by VAR ResourceName."""
        record = self.nodes.get(key) if key is not None else None
        if record is None:
            return None
        return self.placements.get(record.key) or variable(record.node, "ResourceName")

    # --- which DAG a job is of ----------------------------------------------------------

    def _weigh_again(
        self, clusters: Iterable[int | None] = (), of_dag: str | None = None
    ) -> set[NodeKey]:
        """New evidence came: jobs that were told apart by weighing are asked again, and those
        of ``clusters``, which DAGMan's own list of submissions names; where the lives of
        ``of_dag`` changed, all that may be its own."""
        asked = {*self._weighed, *self.unproven.due(self.dags)}
        if of_dag is not None:
            asked.update(self.unproven.of(of_dag))
        for cluster in clusters:
            if cluster is not None:
                asked.update(self._of_cluster(cluster))
        return self._place_all(asked) | self._place_scripts()

    def _place_all(self, asked: Iterable[JobKey]) -> set[NodeKey]:
        """Find the nodes of these jobs anew; returns the nodes that gained or lost one."""
        changed: set[NodeKey] = set()
        for key in asked:
            before = self.members.get(key)
            concerned = self._place(key)
            if self.members[key] != before:
                changed.update(concerned)
        return changed

    def _list_tellers(self) -> None:
        """Which DAG's DAGMan says that it submitted a cluster: the first one's that does."""
        self._tellers = {}
        for dag in self.dags.values():
            for cluster in dag.clusters():
                self._tellers.setdefault(cluster, dag.key)

    def _note_teller(self, dag_key: str, clusters: Iterable[int | None]) -> None:
        dag = self.dags[dag_key]
        for cluster in clusters:
            if cluster is None or dag.node_of(cluster) is None:
                continue
            before = self._tellers.setdefault(cluster, dag_key)
            if before != dag_key:
                both = (before, dag_key)
                self._tellers[cluster] = next(key for key in self.dags if key in both)

    def _place(self, key: JobKey) -> list[NodeKey]:
        """Find the job's node anew; returns the nodes that gained, lost or have it."""
        job = self.jobs[key]
        before = self.members.get(key)
        named = self._by_node.get(job.node_name or "")
        if before is None and named:
            # One object for all that have the name.
            job.node_name = self.nodes[named[0], job.node_name or ""].node.name
        # Which of the jobs that had it a DAGMan means, that names a cluster, is not known.
        reused = key[:2] in self.lives
        teller = self._tellers.get(key[0]) if not reused else None
        shared = self.unproven.shared_logs
        now = attribute_job(
            job, self.dags, self._by_node, teller, shared, reused, partial(self._overlaps, job)
        )
        others = self.unproven.note(job, now, self.dags)
        if now == before:
            record = self._record(before)
            return [record.key] if record is not None else []
        self.members[key] = now
        self.stale_jobs.add(key)
        if now.weighed:
            self._weighed.add(key)
        else:
            self._weighed.discard(key)
        old, new = self._record(before), self._record(now)
        if old is not new:
            if old is not None:
                old.jobs.remove(job)
            if new is not None:
                new.jobs.append(job)
        if new is not None and now.proven:
            others += self._contested([new.key])
        of_others = self._place_all(others) if others else ()
        return [*(record.key for record in (old, new) if record is not None), *of_others]

    def _overlaps(self, job: Job, dag: Dag) -> bool:
        """Is a job that this DAG is proven to have submitted, of the same node or of one before
        it, in the queue together with ``job``? DAGMan has one job of a node at a time, and none
        before those of its parents have left the queue."""
        name = job.node_name
        if name is None or job.told_submitted is None:
            return False
        submitted, ended = self._queue_span(job)
        if dag.processes and dag.processes[0].start and submitted < dag.processes[0].start:
            # A life whose ``.dagman.out`` was taken away: its jobs' ends may be lost.
            return False
        for other in self._proven(dag, name):
            begin, end = self._queue_span(other)
            if other.cluster != job.cluster and max(begin, submitted) < min(end, ended):
                return True
        return any(
            begin < submitted < end
            for parent in parents_of(dag.workflow.nodes, name)
            for begin, end in map(self._queue_span, self._proven(dag, parent))
        )

    def _queue_span(self, job: Job) -> tuple[datetime, datetime]:
        """When a job was submitted, and until when it is known to have been in the queue: its end,
        or the newest event in a log that would have it."""
        begin, end = job.queue_span()
        if end == datetime.max:
            known = (self.books[log].last for log in job.user_logs if log in self.books)
            end = max((last for last in known if last is not None), default=begin)
            end = min(end, LATEST) + ONE_SECOND
        return begin, end

    def _contested(self, nodes: Iterable[NodeKey]) -> list[JobKey]:
        """The jobs that are not these nodes' if they were in the queue together with one that is
        proven to be."""
        found = []
        for dag, name in nodes:
            if self._proven(self.dags[dag], name):
                children = self.nodes[dag, name].node.children
                found += self.unproven.of_nodes(dag, (name, *children))
        return found

    def _proven(self, dag: Dag, node: str) -> list[Job]:
        """The node's jobs that are proven to be this DAG's."""
        record = self.nodes.get((dag.key, node))
        jobs = record.jobs if record is not None else []
        return [job for job in jobs if self.members[job.key].proven]

    def _place_again(self, placed: Iterable[Place]) -> None:
        """Each job belongs where it did."""
        known: dict[Place, tuple[Attribution, NodeRecord | None]] = {}
        for (key, job), place in zip(self.jobs.items(), placed, strict=True):
            found = known.get(place)
            if found is None:
                member = Attribution(*place)
                record = self._record(member)
                if record is not None:
                    # One object for all that have the name.
                    member = Attribution(member.dag, record.node.name, *place[2:])
                found = known[place] = member, record
            member, record = found
            self.members[key] = member
            self.unproven.note(job, member, self.dags)
            if member.weighed:
                self._weighed.add(key)
            if record is not None:
                record.jobs.append(job)
                if job.node_name == record.node.name:
                    job.node_name = record.node.name

    def _record(self, placed: Attribution | None) -> NodeRecord | None:
        if placed is None or placed.dag is None or placed.node is None:
            return None
        return self.nodes.get((placed.dag, placed.node))

    # --- what it comes to ---------------------------------------------------------------

    def weighed_is(self, dag_key: str, alive: bool, weighed: NodeStateTable) -> bool:
        """Are these the states of a DAG's nodes now, for a DAGMan that is alive or not?"""
        return self._states.known(dag_key, alive) is weighed

    def recall_weighed(self, dag_key: str, alive: bool, weighed: NodeStateTable) -> None:
        """The states of a DAG's nodes were these, by what is known now."""
        self._states.recall(dag_key, alive, weighed)

    def reckon_anew(self) -> None:
        """Forget what jobs and nodes come to."""
        self._states.begin(self.nodes)
        self.summary = Aggregates(self)
        self.all_stale = True

    # --- answers ------------------------------------------------------------------------

    def node_states(self, dag_key: str, live: bool = False) -> dict[str, NodeState]:
        """The states of all nodes of one DAG, by name; the ensemble keeps them up to date."""
        return self.weighed(dag_key, live).states

    def weighed(self, dag_key: str, live: bool = False, most: int | None = None) -> NodeStateTable:
        """As :meth:`node_states`, and what of them is new; ``most`` nodes are judged anew."""
        dag = self.dags[dag_key]
        grounds = grounds_of(dag, self.ending(dag))
        return self._states.of(dag, self._alive(dag, live), most, grounds)

    def unrecorded(self, dag_key: str) -> UnrecordedNodes | None:
        """The nodes of a DAG without a record, as of the last time that the states of its nodes
        were asked for; None where there is a record of all."""
        weighed = self._states.newest(dag_key)
        return weighed.unrecorded if weighed is not None else None

    def made(self, key: NodeKey) -> SubmissionResult | None:
        """What the submissions of one node come to."""
        return self._states.made(key)

    def _alive(self, dag: Dag, live: bool) -> bool:
        # A DAGMan that was told to go removes its jobs first: they are not retried.
        life = dag.life()
        if self.ending(dag) is not None or (life is not None and life.removed):
            return False
        return dag.begun() or live

    def ending(self, dag: Dag) -> tuple[DagState, datetime | None] | None:
        """How its newest DAGMan ended, None when nothing up to the cut says so."""
        ended = dag.ending(self.clock)
        if ended is not None and self.cut is not None and ended[1] and ended[1] > self.cut:
            return None
        return ended

    def went_on(self, dag_key: str, when: datetime | None) -> bool:
        """Was a node submitted later than this, by the states that were judged last, or the node
        status file written? Then the end of a DAGMan at that moment is not that of the newest."""
        weighed, status = self._states.newest(dag_key), self.dags[dag_key].status
        last = _latest(
            weighed.last_submitted if weighed is not None else None,
            status.local if status is not None else None,
        )
        return when is not None and last is not None and last - when > AFTER_THE_END

    def dag_state(self, dag_key: str) -> tuple[DagState, datetime | None]:
        """The DAG's state and, where it has ended, when."""
        dag = self.dags[dag_key]
        ended = self.ending(dag)
        if ended is not None and not self.went_on(dag_key, ended[1]):
            return ended
        if ended is None and dag.begun():
            return dag.standing(), None
        states = self.node_states(dag_key).values()
        if not any(self.nodes[(dag_key, name)].jobs for name in dag.workflow.nodes):
            # DAGMan writes a rescue file when it ends, and is started again with it.
            return (DagState.UNKNOWN if dag.rescues() else DagState.NOT_SUBMITTED), None
        if all(state.state in DONE for state in states):
            return DagState.DONE, None
        return DagState.UNKNOWN, None

    def unfinished(self) -> bool:
        """True while something here may still be going on: a DAGMan that no file says has
        ended, or, where no DAGMan ended, jobs of no DAG that are in the queue."""
        tops = [dag for dag in self.dags.values() if dag.is_top]
        states = [self.dag_state(dag.key)[0] for dag in tops]
        if any(state in ALIVE or state is DagState.UNKNOWN for state in states):
            return True
        if any(state is not DagState.NOT_SUBMITTED for state in states):
            return False
        self.summary.add_up()
        return bool(self.summary.sums.queued)


def _note_post(record: NodeRecord, event: Event, detail: PostScript) -> None:
    value = detail.return_value if detail.normal is True else None
    cluster = event.cluster if event.cluster > 0 or event.proc == NOOP_PROC else None
    result = PostResult(event.time, cluster, value == 0, value)
    if result not in record.posts:
        record.posts = tuple(sorted((*record.posts, result), key=lambda post: post.time))
