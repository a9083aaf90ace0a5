"""The state model: a workflow and its events, come together.

One object with plain typed records. Batches of events and of DAGMan's words go in, sets of
changed keys come out; :mod:`metlmon.ensemble.picture` draws what it holds. It reads no file
and no clock: as-of is an argument of the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from metlmon.dagman import Jobstate, Said
from metlmon.ensemble.clock import Clock
from metlmon.ensemble.dag import Dag, Tenure, note_tenure
from metlmon.ensemble.membership import REMOVED_WITH, SWEEPS, Membership, membership
from metlmon.ensemble.node import NodeState
from metlmon.ensemble.nodestates import NodeStates, Weighed
from metlmon.ensemble.record import (
    NOOP_PROC,
    Job,
    JobId,
    NodeKey,
    NodeRecord,
    PostResult,
    Stream,
    woven,
)
from metlmon.ensemble.settings import Settings
from metlmon.ensemble.states import ACTIVE, DONE, DagState
from metlmon.ensemble.views import Notice
from metlmon.eventlog import (
    Aborted,
    ClusterSubmit,
    Event,
    ImageSize,
    ImageSizes,
    PostScript,
    PreSkip,
    Terminated,
)
from metlmon.frozen import frozen

TRANSFER_SHADOW_PROC = -1000
"""Procs at or below this are the schedd's transfer shadows (``077.-1000.000``), no jobs."""

NOTICES_PER_KIND = 50
"""Notices kept of one kind from one log: the first ones tell what is wrong; a log of noise
must not fill the memory with complaints."""


JobKey: TypeAlias = tuple[int, int, int]
"""Cluster, proc and, of what is no job's, subproc."""

ScriptKey: TypeAlias = tuple[str | None, int, int, int, datetime, str]
"""The DAG whose nodes.log it stands in, and an event's identity: a log that is read again
tells of the same scripts."""


class Role(Enum):
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
    role: Role
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
class LogBook:
    """Figures of one log: its size in bytes, its complete events, first and last time."""

    file: str
    role: Role
    bytes: int = 0
    events: int = 0
    first: datetime | None = None
    last: datetime | None = None
    previous: datetime | None = None
    notices: dict[str, int] = field(default_factory=dict)


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
        self.members: dict[JobKey, Membership] = {}
        self.books: dict[str, LogBook] = {}
        self.notices: list[Notice] = []
        self.conditions: list[Notice] = []
        self.newest: datetime | None = None
        self._by_node: dict[str, list[str]] = {}
        self._by_cluster: dict[int, list[JobKey]] = {}
        self._weighed: set[JobKey] = set()
        self._factories: dict[int, str] = {}
        self._scripts: dict[ScriptKey, Event] = {}
        self._waiting: dict[ScriptKey, Event] = {}
        self._tenures: dict[str, list[Tenure]] = {}
        self._states = NodeStates(self.clock, cut)
        self.stale_jobs: set[JobKey] = set()
        """Jobs whose events or place changed since whoever adds things up emptied this."""
        self.all_stale = True
        """Everything is to be added up anew: other DAGs, another clock."""

    # --- the workflow -------------------------------------------------------------------

    def set_dags(self, dags: Iterable[Dag]) -> Changes:
        """These are the DAGs now; what was known of their jobs is placed anew.

        A DAG file is away, or half written, for a moment when it is replaced: what the logs
        told of its nodes is kept until it is back.
        """
        self.dags = {dag.key: dag for dag in dags}
        self._by_node = {}
        self.nodes = {}
        for dag in self.dags.values():
            dag.clock, dag.cut = self.clock, self.cut
            dag.tenures = self._tenures.setdefault(dag.key, dag.tenures)
            for name, node in dag.workflow.nodes.items():
                key = (dag.key, name)
                self._by_node.setdefault(name, []).append(dag.key)
                self.nodes[key] = NodeRecord(key, node)
        self.members = {}
        self._weighed = set()
        self._states.begin(self.nodes)
        self.all_stale = True
        for job_key in self.jobs:
            self._place(job_key)
        self._waiting = dict(self._scripts)
        self._place_scripts()
        return Changes(dags=frozenset(self.dags))

    # --- events -------------------------------------------------------------------------

    def apply(self, batch: Batch) -> Changes:
        """Take a batch of events in; returns the keys of what may look different now."""
        book = self.books.setdefault(batch.file, LogBook(batch.file, batch.role))
        stream = Stream(batch.role.value, batch.file)
        unopened = book.first is None
        touched: set[JobKey] = set()
        nodes: set[NodeKey] = set()
        dags: set[str] = set()
        heard: list[Event] = []
        for raw in batch.events:
            event = self._stamped(raw, book)
            if self.cut is not None and event.time > self.cut:
                continue
            self._enter_book(book, event)
            if batch.role is Role.DAGMAN:
                heard.append(event)
            elif isinstance(event.detail, PostScript | PreSkip):
                nodes |= self._hear_script(batch.dag, event)
            elif event.proc > TRANSFER_SHADOW_PROC:
                self._job_event(batch, stream, event, touched)
        # No 006 tells where a job belongs, but one may be all that there is of it.
        placed = touched.copy()
        if batch.images:
            self._enter_images(batch, book, unopened)
        if batch.role is Role.DAGMAN:
            if batch.dag is not None and (heard or batch.images):
                self._hear_tenures(batch, heard)
                dags.add(batch.dag)
        else:
            self._add_images(batch, touched, placed)
        self.stale_jobs |= touched
        for job_key in touched:
            if job_key in placed:
                nodes |= self._place(job_key)
            else:
                record = self._record(self.members[job_key])
                nodes |= {record.key} if record is not None else set()
        if dags:
            nodes |= self._weigh_again()
        if placed:
            # The jobstate log may have been read before the job's own events.
            for dag in self.dags.values():
                self._learn_offset(dag)
        dags |= {key[0] for key in nodes}
        dags &= self.dags.keys()
        self._states.touch(nodes)
        return Changes(frozenset((c, p) for c, p, _ in touched), frozenset(nodes), frozenset(dags))

    def _enter_images(self, batch: Batch, book: LogBook, unopened: bool) -> None:
        naive = self.clock.naive
        last = max(naive(image.last) for image in batch.images)
        book.events += sum(image.updates for image in batch.images)
        if unopened and batch.first is not None:
            book.first = naive(batch.first)
        if batch.last is not None:
            book.previous = naive(batch.last)
        book.last = max(book.last or last, last)
        self.newest = max(self.newest or last, last)

    def _add_images(self, batch: Batch, touched: set[JobKey], placed: set[JobKey]) -> None:
        for image in batch.images:
            if image.proc < 0:
                continue
            key, job = self._job(image.cluster, image.proc, image.subproc)
            if self._found_in(batch, job) or key not in self.members:
                placed.add(key)
            job.note_memory(self.clock.naive(image.last), image.memory_mb, image.updates)
            touched.add(key)

    def _hear_tenures(self, batch: Batch, events: list[Event]) -> None:
        """Events of DAGMan's own job. That it was in the queue a 006 says, too, where its log
        has nothing older of it."""
        tenures = self._tenures.setdefault(batch.dag or "", [])
        known = {tenure.cluster for tenure in tenures}
        for image in batch.images:
            first = self.clock.naive(image.first)
            mine = (event.time for event in events if event.cluster == image.cluster)
            if image.cluster not in known and first < min(mine, default=datetime.max):
                sign = Event(6, image.cluster, image.proc, image.subproc, first, "", "", None, 0)
                events = woven(events, [sign])
        for event in events:
            note_tenure(tenures, event)

    def forget_log(self, file: str, dag_key: str | None) -> Changes:
        """A log begins anew: its figures do, and what a DAGMan's own job log told does. Jobs
        stay: DAGMan empties its nodes.log whenever it starts, and their life goes on."""
        book = self.books.get(file)
        if book is None:
            return Changes()
        self.books[file] = LogBook(file, book.role)
        self.notices = [notice for notice in self.notices if notice.file != file]
        if book.role is Role.DAGMAN and dag_key in self._tenures:
            self._tenures[dag_key].clear()
            self._states.touch(self._weigh_again())
            self._states.forget()
        return Changes(dags=frozenset(self.dags))

    def _stamped(self, event: Event, book: LogBook) -> Event:
        """The event with its time as the access point's local time."""
        time = self.clock.naive(event.time)
        if self.clock.zone is not None:
            time = self.clock.with_fold(time, book.previous)
        book.previous = time
        if time is event.time:
            return event
        return Event(
            event.number,
            event.cluster,
            event.proc,
            event.subproc,
            time,
            event.text,
            event.body,
            event.detail,
            event.line,
            event.damaged,
        )

    def _enter_book(self, book: LogBook, event: Event) -> None:
        # One that was cut is no event of the log's: what is left of it is told as a warning.
        book.events += not event.damaged
        if book.first is None:
            book.first = event.time
        if book.last is None or event.time > book.last:
            book.last = event.time
        if self.newest is None or event.time > self.newest:
            self.newest = event.time

    def _job_event(
        self,
        batch: Batch,
        stream: Stream,
        event: Event,
        touched: set[JobKey],
    ) -> None:
        if event.proc < 0:
            if isinstance(event.detail, ClusterSubmit) and event.detail.node:
                self._factory(event.cluster, event.detail.node, touched)
            return
        key, job = self._job(event.cluster, event.proc, event.subproc)
        if self._found_in(batch, job):
            touched.add(key)
        if event.number == 6:
            size = event.detail.memory_mb if isinstance(event.detail, ImageSize) else None
            job.note_memory(event.time, size)
            touched.add(key)
        elif job.add(event, stream):
            touched.add(key)
            if isinstance(event.detail, Terminated) and event.detail.ended_utc is not None:
                self._hear_end(event, event.detail.ended_utc)
            if isinstance(event.detail, Aborted) and event.detail.reason:
                named = REMOVED_WITH.search(event.detail.reason)
                if named:
                    job.aborted_by = int(named.group(1))
                job.swept |= bool(named) or event.detail.reason.startswith(SWEEPS)

    def _job(self, cluster: int, proc: int, subproc: int) -> tuple[JobKey, Job]:
        key = (cluster, proc, subproc if proc == NOOP_PROC else 0)
        job = self.jobs.get(key)
        if job is None:
            job = self.jobs[key] = Job(*key, self.settings.checkpoint_codes)
            self._by_cluster.setdefault(cluster, []).append(key)
            job.node_name = self._factories.get(cluster)
        return key, job

    def _found_in(self, batch: Batch, job: Job) -> bool:
        """Note which log the job is in; True where that may tell more of where it belongs."""
        if batch.role is Role.NODES and batch.dag is not None:
            if batch.dag in job.nodes_logs:
                return False
            job.nodes_logs.add(batch.dag)
            return True
        if batch.file in job.user_logs:
            return False
        job.user_logs.add(batch.file)
        return True

    def _hear_end(self, event: Event, ended: datetime) -> None:
        """Until 24.7 an event 005 says in UTC when its job ended."""
        if self.clock.zone is None and self.clock.hint(event.time, ended.timestamp()):
            self._states.forget()
            self.all_stale = True

    def _factory(self, cluster: int, node: str, touched: set[JobKey]) -> None:
        """035 names the node of all jobs that its cluster has and will have."""
        self._factories[cluster] = node
        for key in self._by_cluster.get(cluster, ()):
            job = self.jobs[key]
            if job.node_name is None:
                job.node_name = node
                touched.add(key)

    def _hear_script(self, dag_key: str | None, event: Event) -> set[NodeKey]:
        """016 and 034: they are of a node, and wait where it is not known yet."""
        key = (dag_key, event.cluster, event.proc, event.number, event.time, event.body)
        self._scripts[key] = event
        return self._place_script(key, event)

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
            record.skips.append(event.time)
            record.skips.sort()
        return {record.key}

    def _place_scripts(self) -> set[NodeKey]:
        """New evidence came: ask again whose the waiting scripts' results are."""
        waiting, self._waiting = self._waiting, {}
        return {node for key, event in waiting.items() for node in self._place_script(key, event)}

    def _node_named(self, dag_key: str | None, event: Event, node: str | None) -> NodeRecord | None:
        if dag_key is None:
            placed = self.members.get((event.cluster, max(event.proc, 0), 0))
            dag_key = placed.dag if placed else None
            if dag_key is None and node is not None and len(self._by_node.get(node, ())) == 1:
                dag_key = self._by_node[node][0]
        if node is None and dag_key is not None:
            placed = self.members.get((event.cluster, max(event.proc, 0), 0))
            node = placed.node if placed else None
        if dag_key is None or node is None:
            return None
        return self.nodes.get((dag_key, node))

    # --- DAGMan's words -----------------------------------------------------------------

    def hear(self, dag_key: str, said: Sequence[Said]) -> Changes:
        """Lines of a ``.dagman.out``."""
        if self.cut is not None:
            said = [line for line in said if line.time is None or line.time <= self.cut]
        touched = self.dags[dag_key].hear(said)
        self._learn_offset(self.dags[dag_key])
        return self._told_of(dag_key, touched, {line.cluster for line in said})

    def read_jobstate(self, dag_key: str, entries: Sequence[Jobstate]) -> Changes:
        """Lines of a jobstate log."""
        dag = self.dags[dag_key]
        touched = dag.read_jobstate(entries)
        self._learn_offset(dag)
        return self._told_of(dag_key, touched, {entry.cluster for entry in entries})

    def facts_changed(self, dag_key: str) -> Changes:
        """A rescue, node status, metrics or halt file of this DAG was read anew."""
        self._learn_offset(self.dags[dag_key])
        return self._told_of(dag_key)

    def words_forgotten(self, dag_key: str) -> Changes:
        """A growing file of this DAG's DAGMan began anew, and the DAG forgot what it had said
        (:meth:`Dag.forget_out`, :meth:`Dag.forget_jobstate`)."""
        self._states.forget(dag_key)
        return self._told_of(dag_key, (), self._by_cluster.keys())

    def _learn_offset(self, dag: Dag) -> None:
        """Moments that DAGMan's files state in local time and in UTC as well."""
        for local, epoch in dag.moments():
            self._observe(local, epoch)
        if self.clock.known:
            return
        for cluster, epoch in dag.submit_epochs.items():
            job = self.jobs.get((cluster, 0, 0))
            submitted = job.life().submitted if job else None
            if submitted is not None:
                self._observe(submitted, epoch)
                return

    def _observe(self, local: datetime, epoch: float) -> None:
        if self.clock.observe(local, epoch):
            # Words that were told in seconds since 1970 have another local time now.
            self._states.forget()
            self.all_stale = True

    def _told_of(
        self, dag_key: str, names: Iterable[str] = (), clusters: Iterable[int | None] = ()
    ) -> Changes:
        nodes = {(dag_key, name) for name in names if (dag_key, name) in self.nodes}
        nodes |= self._weigh_again(clusters)
        dags = {dag_key} | {key[0] for key in nodes}
        self._states.touch(nodes)
        return Changes(nodes=frozenset(nodes), dags=frozenset(dags))

    # --- which DAG a job is of ----------------------------------------------------------

    def _weigh_again(self, clusters: Iterable[int | None] = ()) -> set[NodeKey]:
        """New evidence came: jobs that were told apart by weighing are asked again, and those
        of ``clusters``, which DAGMan's own list of submissions names."""
        asked = set(self._weighed)
        for cluster in clusters:
            if cluster is not None:
                asked.update(self._by_cluster.get(cluster, ()))
        changed: set[NodeKey] = set()
        for key in asked:
            before = self.members.get(key)
            concerned = self._place(key)
            if self.members[key] != before:
                changed |= concerned
        return changed | self._place_scripts()

    def _place(self, key: JobKey) -> set[NodeKey]:
        """Find the job's node anew; returns the nodes that gained, lost or have it."""
        job = self.jobs[key]
        before = self.members.get(key)
        now = membership(job, self.dags, self._by_node)
        self.members[key] = now
        if now.weighed:
            self._weighed.add(key)
        else:
            self._weighed.discard(key)
        old, new = self._record(before), self._record(now)
        if now != before:
            self.stale_jobs.add(key)
        if old is not new:
            if old is not None:
                old.jobs.remove(job)
            if new is not None:
                new.jobs.append(job)
        return {record.key for record in (old, new) if record is not None}

    def _record(self, placed: Membership | None) -> NodeRecord | None:
        if placed is None or placed.dag is None or placed.node is None:
            return None
        return self.nodes.get((placed.dag, placed.node))

    # --- answers ------------------------------------------------------------------------

    def node_states(self, dag_key: str, live: bool = False) -> dict[str, NodeState]:
        """The states of all nodes of one DAG, by name; the ensemble keeps them up to date."""
        return self.weighed(dag_key, live).states

    def weighed(self, dag_key: str, live: bool = False) -> Weighed:
        """As :meth:`node_states`, and what of them is new."""
        dag = self.dags[dag_key]
        return self._states.of(dag, self._alive(dag, live))

    def _alive(self, dag: Dag, live: bool) -> bool:
        # A DAGMan that was told to go removes its jobs first: they are not retried.
        if self.ending(dag) is not None or (dag.lives and dag.lives[-1].removed):
            return False
        return dag.begun() or live

    def ending(self, dag: Dag) -> tuple[DagState, datetime | None] | None:
        """How its newest DAGMan ended, None when nothing up to the cut says so."""
        ended = dag.ending(self.clock)
        if ended is not None and self.cut is not None and ended[1] and ended[1] > self.cut:
            return None
        return ended

    def dag_state(self, dag_key: str) -> tuple[DagState, datetime | None]:
        """The DAG's state and, where it has ended, when."""
        dag = self.dags[dag_key]
        ended = self.ending(dag)
        if ended is not None:
            return ended
        if dag.begun():
            return DagState.RUNNING, None
        states = self.node_states(dag_key).values()
        if not any(self.nodes[(dag_key, name)].jobs for name in dag.workflow.nodes):
            return DagState.NOT_SUBMITTED, None
        if all(state.state in DONE for state in states):
            return DagState.DONE, None
        return DagState.UNKNOWN, None

    def unfinished(self) -> bool:
        """True while something here may still be going on: a DAGMan that no file says has
        ended, or, where no DAGMan ended, jobs of no DAG that are in the queue."""
        tops = [dag for dag in self.dags.values() if dag.is_top]
        states = [self.dag_state(dag.key)[0] for dag in tops]
        if any(state in (DagState.RUNNING, DagState.UNKNOWN) for state in states):
            return True
        if any(state is not DagState.NOT_SUBMITTED for state in states):
            return False
        return any(job.life().state in ACTIVE for job in self.jobs.values())


def _note_post(record: NodeRecord, event: Event, detail: PostScript) -> None:
    ok = detail.normal is True and detail.return_value == 0
    cluster = event.cluster if event.cluster > 0 or event.proc == NOOP_PROC else None
    result = PostResult(event.time, cluster, ok)
    if result not in record.posts:
        record.posts.append(result)
        record.posts.sort(key=lambda post: post.time)
