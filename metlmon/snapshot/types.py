"""Immutable pictures of the ensemble: what screens, tables and JSON show.

Every field is plain data. Times are naive datetimes in the access point's local time
(aware where the log said UTC), durations seconds, bytes bytes; None is "not known".
A picture never changes once it is taken; the next one replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Final

from metlmon.eventlog import UsageRow as UsageRow
from metlmon.frozen import frozen
from metlmon.model.dagman_runs import Hold
from metlmon.model.hour_unit import HourUnit
from metlmon.model.states import DagState, Outcome, State

FAILED_JOB: Final = frozenset({State.FAILED, State.REMOVED})
"""What a job came to for which its node fails, unless a POST script says otherwise."""


@frozen
class GpuHours:
    """GPU-hours: ended well, ended in any other way, and not ended yet. Of an ensemble without
    GPUs they are hours of what ``measure`` says instead."""

    good: float = 0.0
    bad: float = 0.0
    in_flight: float = 0.0
    measure: HourUnit = HourUnit.GPU

    @property
    def total(self) -> float:
        return self.good + self.bad + self.in_flight


@frozen
class Notice:
    """A warning about the input, never about the jobs."""

    kind: str
    file: str | None
    line: int | None
    text: str


@frozen
class DagRow:
    """One top-level DAG. ``dagmans``: lives of DAGMan, clusters of its own job (None: its files
    cannot tell). ``rescue``: number of the rescue file in force. ``halted``: a halt file lies
    beside it. ``recoveries``: processes that went on where one before was broken off (the schedd
    or DAGMan was restarted). ``cluster``: DAGMan's own job, that which is alive, else the one
    that ended last. ``refused``: submissions that ended at once because another DAGMan ran, not
    among ``dagmans``. ``hold``: why DAGMan's own job is on hold, while it is. ``nodes_unknown``:
    nodes whose state no file here tells."""

    file: str
    state: DagState
    dagmans: int | None
    nodes_total: int
    nodes_done: int
    nodes_failed: int
    rescue: int | None
    submissions: tuple[datetime, ...]
    halted: bool = False
    ended: datetime | None = None
    recoveries: int = 0
    cluster: int | None = None
    refused: int = 0
    hold: Hold | None = None
    nodes_unknown: int = 0

    @property
    def at_least(self) -> bool:
        """Whether some of the nodes of unknown state may be done beside ``nodes_done``: where
        DAGMan's own counts are given they are among those."""
        known = self.nodes_done + self.nodes_failed
        return 0 < self.nodes_unknown <= self.nodes_total - known

    @property
    def submitted(self) -> int:
        """How often it was submitted, without refused submissions."""
        return self.dagmans or len(self.submissions)


@frozen
class Latest:
    """A run's latest epoch. ``attempt`` counts the node's executions; ``retries_left``: how often
    DAGMan would still try it again; ``overruled``: its job failed, and its POST script let the node
    pass."""

    epoch: int | None
    epoch_var: int | None
    node: str
    cluster: int | None
    proc: int | None
    target: str | None
    site: str | None
    gpu: str | None
    gpus: int | None
    state: State
    since: datetime | None
    seconds: float | None
    attempt: int
    hold_reason: str | None
    hold_code: int | None
    off_target: bool = False
    retries_left: int | None = None
    overruled: bool = False


@frozen
class Stopped:
    """The gate ended a run before its last epoch. ``rule``: file (somebody asked for it),
    patience, divergence or median; ``epoch``: the first that is not trained, as in its node's
    name; ``reason``: a sentence, as the gate wrote it; ``time``: naive, local to the access
    point."""

    rule: str
    epoch: int | None
    reason: str
    time: datetime | None


@frozen
class GateStatus:
    """What was asked of a run while its DAG runs, and what its gate made of it. ``stop_asked``,
    ``pause_asked``: the request lies there, since when; ``paused``: since when a node of it waits
    for that reason; ``target``: where its next epochs are to go instead of where the DAG file
    says, None: as the DAG file says."""

    stop_asked: datetime | None = None
    pause_asked: datetime | None = None
    paused: datetime | None = None
    target: str | None = None
    stopped: Stopped | None = None


@frozen
class FailedEpoch:
    """The epoch that a run failed at, or that was removed. ``what`` failed of it (pre, submit, post
    or job) and ``reason``, in DAGMan's words, where no job's events tell; None where they do."""

    epoch: int | None
    node: str
    state: State
    since: datetime | None
    seconds: float | None
    what: str | None
    reason: str | None


@frozen
class RunRow:
    """One run. ``key`` is stable over refreshes (the uuid, or DAG and run name). ``gate``: None
    where no gate stands before its nodes. ``failed``: of a run that failed or was removed, where;
    that need not be its latest epoch, which is one that was submitted. ``epochs_unknown``: epochs
    of whose state no file here tells, so that more than ``epochs_done`` may be done.
    ``epochs_overruled``: of those done, how many a POST script let pass although their job
    failed."""

    key: str
    run: str
    uuid: str | None
    dag: str
    epochs_total: int
    epochs_done: int
    epochs_inferred: int
    epochs_skipped: int
    state: State
    latest: Latest | None
    gpu_hours: GpuHours
    gate: GateStatus | None = None
    failed: FailedEpoch | None = None
    epochs_unknown: int = 0

    epochs_overruled: int = 0

    @property
    def shown(self) -> Latest | None:
        """The latest epoch, unless the run failed at another one."""
        elsewhere = self.failed is not None and (
            self.latest is None or self.latest.node != self.failed.node
        )
        return None if elsewhere else self.latest


@frozen
class SiteRow:
    site: str | None
    target: tuple[str, ...]
    executions: int
    completed_epochs: int
    gpu_hours: GpuHours
    seconds_median: float | None


@frozen
class GpuRow:
    gpu: str | None
    executions: int
    completed_epochs: int
    gpu_hours: GpuHours


@frozen
class CauseRow:
    """Bad GPU-hours by reason, its changing parts folded. ``end_unknown``: the log lost the
    true end of these executions; it is taken from the event that proves they were over."""

    cause: str
    code: int | None
    subcode: int | None
    executions: int
    bad: float
    example: str | None
    end_unknown: bool = False


@frozen
class Count:
    """So many of them, and their seconds together."""

    n: int = 0
    seconds: float = 0.0


@frozen
class TransferTotals:
    """Input transfers by outcome, output transfers, and bytes of all jobs."""

    input_ok: Count
    input_aborted: Count
    input_unfinished: Count
    output: Count
    bytes_sent: int
    bytes_received: int


@frozen
class LogRow:
    """One event log: its size in bytes as far as read, its events, first and last time."""

    file: str
    bytes: int
    events: int
    first: datetime | None
    last: datetime | None


@frozen
class SideCounts:
    """The nodes of runs that train nothing: all of them, how many are completed, failed, or
    completed although their job failed (``overruled``, which are among ``done``). ``removed``: so
    many of ``failed``."""

    total: int = 0
    done: int = 0
    failed: int = 0
    overruled: int = 0
    removed: int = 0


@frozen
class Status:
    """The whole ensemble at ``as_of``. ``epoch_states``: each epoch of a run once, in whatever
    DAGs it is; ``node_states``: all nodes of all DAGs; ``other_states``: those of them that train
    nothing. ``special_nodes``: PROVISIONER, SERVICE and FINAL nodes, and where there are runs the
    nodes of none. ``nodes_unlogged``: nodes that ran, or were submitted, and of which no log here
    has an execution, so that GPU-hours are without theirs.
    """

    dagdir: str
    as_of: datetime | None
    live: bool
    warnings: tuple[Notice, ...]
    dags: tuple[DagRow, ...]
    runs: tuple[RunRow, ...]
    epoch_states: Mapping[State, int]
    node_states: Mapping[State, int]
    gpu_hours: GpuHours
    sites: tuple[SiteRow, ...]
    gpus: tuple[GpuRow, ...]
    causes: tuple[CauseRow, ...]
    transfers: TransferTotals
    logs: tuple[LogRow, ...]
    special_nodes: tuple[NodeRow, ...] = ()
    side_nodes: SideCounts = SideCounts()
    other_states: Mapping[State, int] = field(default_factory=dict)
    nodes_unlogged: int = 0


@frozen
class ExecutionRow:
    """One execution of a job. ``uncertain``: its end was not logged, and is taken from the
    event that proves it was over."""

    start: datetime
    end: datetime | None
    seconds: float | None
    suspended: float
    outcome: Outcome
    code: int | None
    subcode: int | None
    reason: str | None
    return_value: int | None
    signal: int | None
    site: str | None
    host: str | None
    gpu: str | None
    gpus: int | None
    gpu_hours: float | None
    uncertain: bool = False


@frozen
class TransferRow:
    """``direction`` input or output; ``outcome`` ok, aborted, unfinished, in-flight."""

    direction: str
    start: datetime | None
    end: datetime | None
    seconds: float | None
    outcome: str
    host: str | None
    queue_seconds: int | None


@frozen
class JobRow:
    """One job. ``dag`` is the top-level DAG's file, ``in_dag`` the DAG that holds the node; these,
    ``node`` and ``run`` are None when it belongs to no DAG."""

    dag: str | None
    in_dag: str | None
    node: str | None
    run: str | None
    uuid: str | None
    epoch: int | None
    cluster: int
    proc: int
    state: State
    since: datetime | None
    seconds: float | None
    target: str | None
    site: str | None
    gpu: str | None
    gpus: int | None
    submitted: datetime | None
    executions: tuple[ExecutionRow, ...]
    transfers: tuple[TransferRow, ...]
    bytes_sent: int | None
    bytes_received: int | None
    memory_mb: int | None
    request_memory_mb: int | None
    hold_reason: str | None
    hold_code: int | None
    hold_subcode: int | None
    ambiguous: tuple[str, ...] = ()
    off_target: bool = False


@frozen
class EpochRow:
    """One node of a run in the run's history.

    ``dag`` is the top-level DAG's file; ``in_dag`` (the DAG that holds it) and ``node`` are what it
    is found by. ``success_seconds``, ``longest_seconds``: of a completed epoch, its successful
    execution's and its longest one's. ``queue_wait``: seconds from submission of the job that
    counts (the last one) to its last execution's start, its transfer taken off; ``transfer``:
    seconds of input transfer before that execution; ``execution``: seconds of that execution.
    ``trained_on`` is the site of the longest execution, where it is not the one that succeeded.
    ``jobs`` are (cluster, proc) in order of submission. ``job_state``, ``job_return``: what the job
    that stands for the node came to, and its return value: a POST script may have made another
    thing of the node. ``evaluations``: of an epoch, the side nodes that the DAG puts directly after
    it.
    """

    node: str
    dag: str
    in_dag: str
    epoch: int | None
    epoch_var: int | None
    state: State
    inferred: bool
    since: datetime | None
    seconds: float | None
    jobs: tuple[tuple[int, int], ...]
    target: str | None
    site: str | None
    gpu: str | None
    gpus: int | None
    off_target: bool
    submitted: datetime | None
    queue_wait: float | None
    transfer: float | None
    execution: float | None
    attempts: int
    gpu_hours: GpuHours
    trained_on: str | None
    hold_reason: str | None
    hold_code: int | None
    success_seconds: float | None = None
    longest_seconds: float | None = None
    job_state: State | None = None
    job_return: int | None = None
    evaluations: tuple[EpochRow, ...] = ()

    @property
    def overruled(self) -> bool:
        """Its job failed, and its POST script let the node pass all the same."""
        return self.state is State.COMPLETED and self.job_state in FAILED_JOB


@frozen
class RunView:
    """One run with its epochs in order, and all its side nodes."""

    row: RunRow
    epochs: tuple[EpochRow, ...]
    side: tuple[EpochRow, ...]

    @property
    def unpaired(self) -> tuple[EpochRow, ...]:
        """The side nodes that belong to no epoch."""
        paired = {(row.in_dag, row.node) for epoch in self.epochs for row in epoch.evaluations}
        return tuple(row for row in self.side if (row.in_dag, row.node) not in paired)

    @property
    def nodes_unlogged(self) -> int:
        """Completed nodes of which no log here has an execution."""
        rows = (*self.epochs, *self.side)
        return sum(row.state is State.COMPLETED and not row.attempts for row in rows)


@frozen
class NodeRow:
    """One node of a DAG, whatever it is for.

    ``dag_key`` and ``node`` are what it is found by; ``kind`` is job, subdag, final, provisioner,
    service or join. ``job_state``, ``job_return`` and ``jobs`` are as in :class:`EpochRow`.
    ``retries``: how often DAGMan tries it again, ``retries_left`` of these (None: it has none).
    ``parents``: how many nodes are before it, ``waits_for`` those of them that are not done (as
    many as are worth a sentence, ``waiting`` in all). ``run``: the key of its run.
    ``stopped_by``: the rule by which the gate of its run left it out. ``reason``: why it failed, in
    DAGMan's words, where no job's events tell. ``behind``: of a futile node, the one that failed.
    ``submissions``: how often it was submitted, by its jobs' logs or, where none has a job of it,
    by DAGMan's; ``attempts`` are executions.
    """

    dag_key: str
    dag: str
    node: str
    kind: str
    state: State
    inferred: bool
    since: datetime | None
    seconds: float | None
    jobs: tuple[tuple[int, int], ...]
    job_state: State | None
    job_return: int | None
    target: str | None
    site: str | None
    gpu: str | None
    gpus: int | None
    off_target: bool
    attempts: int
    retries: int
    retries_left: int | None
    parents: int
    waiting: int
    waits_for: tuple[str, ...]
    children: int
    run: str | None
    submit: str | None
    hold_reason: str | None
    hold_code: int | None
    stopped_by: str | None = None
    reason: str | None = None
    behind: str | None = None
    submissions: int = 0

    @property
    def tries(self) -> int:
        """Executions; where no log has a job of it, its submissions."""
        return self.attempts if self.jobs else self.submissions

    @property
    def overruled(self) -> bool:
        """Its job failed, and its POST script let the node pass all the same."""
        failed = self.job_state in FAILED_JOB and not self.ended_with_dag
        return self.state is State.COMPLETED and failed

    @property
    def ended_with_dag(self) -> bool:
        """A SERVICE node whose job was removed because its DAG was over, as it is to be."""
        over = self.state is State.COMPLETED and self.job_state is State.REMOVED
        return over and self.kind == "service"


@frozen
class EventLine:
    """One line of a job's history."""

    time: datetime
    number: int
    name: str
    text: str
    damaged: bool = False


@frozen
class QueueRow:
    """What the queue adds to a job's log. ``asked``: when (seconds since the epoch).
    ``position`` of ``waiting``: its place among this ensemble's idle jobs, from 1.
    ``matches``: how often a machine was found for it. ``rejection``: why the last one was
    not. ``differs``: the queue's state, in words, where it is lastingly not the log's."""

    asked: float
    priority: int
    matches: int
    position: int | None
    waiting: int
    rejection: str | None
    rejected_at: float | None
    differs: str | None = None


@frozen
class JobView:
    """The life of one job. ``output`` and ``error`` are names as the submit description
    gives them, its macros filled in (relative to the dagdir); None when unknown.
    ``states``: every state the job entered, and when.
    ``memory_updates``: how many 006 events there were (they are not among ``events``).
    ``queue``: what the schedd adds; None without one."""

    row: JobRow
    events: tuple[EventLine, ...]
    memory_updates: int
    usage: Sequence[UsageRow]
    output: str | None
    error: str | None
    siblings: tuple[tuple[int, int], ...]
    states: tuple[tuple[datetime, State], ...] = ()
    queue: QueueRow | None = None


@frozen
class ProblemGroup:
    """One cause of trouble. ``kind``: held, failed, evicted, stalled, removed,
    shadow-exception, reconnect-failed. ``now`` counts jobs that are in this trouble at this
    moment, ``times`` how often it struck. ``runs`` are run keys, ``jobs`` (cluster, proc),
    latest first. ``nodes``: names of nodes that failed without a job, in place of jobs."""

    key: str
    kind: str
    cause: str
    code: int | None
    subcode: int | None
    now: int
    times: int
    lost: float
    runs: tuple[str, ...]
    run_names: tuple[str, ...]
    jobs: tuple[tuple[int, int], ...]
    last: datetime | None
    example: str | None
    nodes: tuple[str, ...] = ()


@frozen
class Progress:
    """How far the first reading is: bytes read of bytes there, 0–1."""

    done: int
    total: int

    @property
    def fraction(self) -> float:
        return 1.0 if self.total <= 0 else min(1.0, self.done / self.total)
