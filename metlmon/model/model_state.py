"""The data of the state model, and queries of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, TypeAlias

from msgspec import Struct, field

from metlmon.config.settings import Settings
from metlmon.eventlog import Detail, Event, ImageSizes
from metlmon.jobfiles.gate_files import RunGate
from metlmon.model.attribution import Attribution, ReusedJobIds, UnprovenJobs
from metlmon.model.clock import Clock
from metlmon.model.clock_evidence import QueueInterval, UtcOffsets
from metlmon.model.dag import Dag
from metlmon.model.dagman_runs import DagmanJob
from metlmon.model.job_events import EventStore, Job, JobId, JobKey, NodeKey, NodeRecord
from metlmon.model.node import NodeState, SubmissionResult
from metlmon.model.node_states import NodeStates, NodeStateTable
from metlmon.model.run import variable
from metlmon.model.states import DONE, DagState
from metlmon.model.unrecorded_nodes import UnrecordedNodes, unrecorded_evidence

ScriptKey: TypeAlias = tuple[str | None, int, int, int, datetime, Detail | None]
"""The DAG of the nodes.log and the event's identity: a log that is read again repeats it."""

END_TOLERANCE: Final = timedelta(seconds=1)
"""DAGMan submits nothing after its end; timestamps of two logs may differ by this."""


class ModelState:
    """The state of one dagdir: DAGs, nodes, jobs and their attributions.

    It reads no file and no clock: the as-of time is an argument of the snapshot. ``cut``: later
    events are ignored (``--as-of``).
    """

    def __init__(self, settings: Settings | None = None, cut: datetime | None = None) -> None:
        self.settings = settings or Settings()
        self.clock = Clock(self.settings.zone)
        self.cut = cut
        self.dags: dict[str, Dag] = {}
        self.jobs: dict[JobKey, Job] = {}
        self.nodes: dict[NodeKey, NodeRecord] = {}
        self.attributions: dict[JobKey, Attribution] = {}
        self.unproven = UnprovenJobs()
        self.event_store = EventStore(self.settings.checkpoint_codes)
        self.reused_ids = ReusedJobIds()
        """Submissions of job ids (cluster and proc) that the schedd used more than once."""
        self.log_stats: dict[str, LogStats] = {}
        self.notices: list[Notice] = []
        self.lasting_notices: list[Notice] = []
        self.newest: datetime | None = None
        self._newest_of_replaced: datetime | None = None
        """Time of the newest event in logs that have been replaced."""
        self._dags_by_node: dict[str, list[str]] = {}
        self._procs: dict[int, list[JobKey]] = {}
        self._submitting_dags: dict[int, str] = {}
        self._provisional: set[JobKey] = set()
        self._naming_dags: dict[str, list[str]] = {}
        """The DAGs that name each sub-DAG, if any sub-DAG is named by several."""
        self._factories: dict[int, str] = {}
        self._scripts: dict[ScriptKey, Event] = {}
        self._unassigned_scripts: dict[ScriptKey, Event] = {}
        self._dagman_jobs: dict[str, list[DagmanJob]] = {}
        self._dagman_intervals: dict[str, dict[int, QueueInterval]] = {}
        self._nodes_logs: dict[str, tuple[datetime, datetime]] = {}
        self._states = NodeStates(self.clock, cut)
        self.offsets = UtcOffsets(self.clock, self._offset_changed)
        self.changed_jobs: set[JobKey] = set()
        """Jobs whose events or attribution changed; the aggregates clear it."""
        self.all_changed = True
        """The aggregates must be rebuilt: the DAGs or the clock changed."""
        self.gates: dict[str, Mapping[str, RunGate]] = {}
        """Contents of the gate directories, by DAG and run uuid."""
        self.placements: Mapping[NodeKey, str] = {}
        """Sites of nodes that override the site in their VARS."""
        self.changed_targets: set[NodeKey] = set()
        """Nodes whose target changed; the aggregates clear it."""

    def note_proc(self, key: JobKey) -> None:
        """Index a new job by its cluster."""
        # Most clusters have only proc 0, which needs no index.
        if key[1:] != (0, 0):
            self._procs.setdefault(key[0], []).append(key)

    def _jobs_of_cluster(self, cluster: int) -> list[JobKey]:
        """The keys of the cluster's jobs."""
        first = (cluster, 0, 0)
        return [*([first] if first in self.jobs else ()), *self._procs.get(cluster, ())]

    def _submitting_dag(self, cluster: int) -> Dag | None:
        """The DAG that submitted a cluster, by its DAGMan's files."""
        return self.dags.get(self._submitting_dags.get(cluster, ""))

    def _offset_changed(self) -> None:
        """Resolve again: reports in seconds since 1970 have another local time now."""
        self._states.invalidate()
        self.all_changed = True

    def target(self, key: NodeKey | None) -> str | None:
        """The target site of a node: its override, else VAR ResourceName."""
        record = self.nodes.get(key) if key is not None else None
        if record is None:
            return None
        return self.placements.get(record.key) or variable(record.node, "ResourceName")

    def _record_of(self, attribution: Attribution | None) -> NodeRecord | None:
        if attribution is None or attribution.dag is None or attribution.node is None:
            return None
        return self.nodes.get((attribution.dag, attribution.node))

    def node_states(self, dag_key: str, live: bool = False) -> dict[str, NodeState]:
        """The states of all nodes of one DAG, by name; updated incrementally."""
        return self.node_state_table(dag_key, live).states

    def node_state_table(
        self, dag_key: str, live: bool = False, limit: int | None = None
    ) -> NodeStateTable:
        """The table of a DAG's node states; resolves at most ``limit`` changed nodes."""
        dag = self.dags[dag_key]
        evidence = unrecorded_evidence(dag, self.end_state(dag))
        return self._states.resolve(dag, self._is_alive(dag, live), limit, evidence)

    def unrecorded(self, dag_key: str) -> UnrecordedNodes | None:
        """The unrecorded nodes of a DAG, None if there are none.

        As of the last time that the states of its nodes were resolved.
        """
        table = self._states.newest_table(dag_key)
        return table.unrecorded if table is not None else None

    def submission_result(self, key: NodeKey) -> SubmissionResult | None:
        """The result of a node's submissions."""
        return self._states.submission_result(key)

    def _is_alive(self, dag: Dag, live: bool) -> bool:
        # A DAGMan that is being removed removes its jobs first: they are not retried.
        run = dag.current_run()
        if self.end_state(dag) is not None or (run is not None and run.removed):
            return False
        return dag.has_run() or live

    def end_state(self, dag: Dag) -> tuple[DagState, datetime | None] | None:
        """State and time of the newest DAGMan's end; None if it has not ended by the cut."""
        ended = dag.end_state(self.clock)
        if ended is not None and self.cut is not None and ended[1] and ended[1] > self.cut:
            return None
        return ended

    def was_active_after(self, dag_key: str, moment: datetime | None) -> bool:
        """Was a node submitted, or the node status file written, after this moment?

        Then a DAGMan that ended at that moment is not the newest one. Uses the node states
        resolved last.
        """
        table, status = self._states.newest_table(dag_key), self.dags[dag_key].status
        last = _latest(
            table.last_submitted if table is not None else None,
            status.local if status is not None else None,
        )
        return moment is not None and last is not None and last - moment > END_TOLERANCE

    def dag_state(self, dag_key: str) -> tuple[DagState, datetime | None]:
        """The DAG's state and the time of its end, if it has ended."""
        dag = self.dags[dag_key]
        ended = self.end_state(dag)
        if ended is not None and not self.was_active_after(dag_key, ended[1]):
            return ended
        if ended is None and dag.has_run():
            return dag.live_state(), None
        states = self.node_states(dag_key).values()
        if not any(self.nodes[(dag_key, name)].jobs for name in dag.workflow.nodes):
            # A rescue file shows that a DAGMan ran and ended; a new one may have started.
            return (DagState.UNKNOWN if dag.rescue_files_at_cut() else DagState.NOT_SUBMITTED), None
        if all(state.state in DONE for state in states):
            return DagState.DONE, None
        return DagState.UNKNOWN, None


def _latest(*times: datetime | None) -> datetime | None:
    return max((time for time in times if time is not None), default=None)


class LogRole(Enum):
    """Kind of a log: user job event log, nodes.log of a DAGMan, DAGMan's own job log."""

    USER = 0
    NODES = 1
    DAGMAN = 2


class Batch(Struct, frozen=True):
    """Events of one log, in its order.

    ``dag``: key of the DAG that a nodes.log or dagman.log belongs to, also of a DAG whose own
    file is missing. ``images``: totals of the 006 in this part of the log that are not in
    ``events``; ``first`` and ``last`` are then the times of the part's first and last event
    in the log's order, including 006. The totals ignore a cut and repeated hours: pass 006 in
    ``events`` when they reach beyond the ensemble's ``cut`` or its clock has a zone.
    """

    file: str
    role: LogRole
    events: Sequence[Event]
    dag: str | None = None
    images: Sequence[ImageSizes] = ()
    first: datetime | None = None
    last: datetime | None = None


class Changes(Struct, frozen=True):
    """Keys of the jobs, nodes and DAGs that changed."""

    jobs: frozenset[JobId] = frozenset()
    nodes: frozenset[NodeKey] = frozenset()
    dags: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.jobs or self.nodes or self.dags)

    def __or__(self, other: Changes) -> Changes:
        return Changes(self.jobs | other.jobs, self.nodes | other.nodes, self.dags | other.dags)


class LogStats(Struct):
    """Statistics of one log: size in bytes, complete events, first and last time.

    ``previous``: time of the event read last. ``notices``: number of notices by kind.
    """

    file: str
    role: LogRole
    bytes: int = 0
    events: int = 0
    first: datetime | None = None
    last: datetime | None = None
    previous: datetime | None = None
    notices: dict[str, int] = field(default_factory=dict)


class Notice(Struct, frozen=True):
    """A warning about the input, never about the jobs."""

    kind: str
    file: str | None
    line: int | None
    text: str
