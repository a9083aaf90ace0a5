"""Immutable snapshot types: what screens, tables and JSON show.

Every field is plain data. Times are naive datetimes in the access point's local time, durations
seconds, bytes bytes; None is "not known".
A snapshot never changes; the next one replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final

from msgspec import Struct, field

from metlmon import dagman
from metlmon.eventlog import UsageRow as UsageRow
from metlmon.model.dagman_runs import CrashLoop, DagmanHold
from metlmon.model.job_events import NodeKey
from metlmon.model.model_state import Notice
from metlmon.model.queue import QueueJob
from metlmon.model.run import DagAbort
from metlmon.model.states import DagState, State
from metlmon.snapshot.ledger import Epoch as Epoch
from metlmon.snapshot.ledger import GpuHours as GpuHours
from metlmon.snapshot.ledger import Job, Node
from metlmon.snapshot.ledger import RunRow as RunRow


class DagRow(Struct, frozen=True):
    """One top-level DAG.

    ``dagmans``: DAGMan runs, that is clusters of its own job (None: the files here do not show it).
    ``rescue``: number of the rescue file in force. ``halted``: a halt file exists.
    ``recoveries``: processes that continued after the one before was interrupted (the schedd or
    DAGMan was restarted). ``cluster``: DAGMan's own job, the one alive, else the one that ended
    last. ``refused``: submissions that ended at once because another DAGMan was running, not
    counted in ``dagmans``. ``hold``: the hold of DAGMan's own job, while it lasts.
    ``nodes_unknown``: nodes whose state is in none of the files here. ``removal``: why DAGMan's own
    job was removed. ``abort``: what ended it, by ABORT-DAG-ON. ``exited``: clusters of DAGMan's own
    job that ended by themselves. ``crashes``: DAGMan ends again and again at the same place.
    ``other_states``: its nodes of no run, without SERVICE nodes. ``continued``: later DAGs have all
    epochs of its runs that it left undone.
    """

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
    hold: DagmanHold | None = None
    nodes_unknown: int = 0
    removal: str | None = None
    abort: DagAbort | None = None
    exited: frozenset[int] = frozenset()
    crashes: CrashLoop | None = None
    other_states: Mapping[State, int] = {}
    continued: bool = False

    @property
    def is_lower_bound(self) -> bool:
        """Whether ``nodes_done`` is a lower bound: unknown nodes may be done as well.

        Where DAGMan's own counts are used the unknown nodes are among those counted.
        """
        known = self.nodes_done + self.nodes_failed
        return 0 < self.nodes_unknown <= self.nodes_total - known

    @property
    def submitted(self) -> int:
        """Number of submissions, without refused ones."""
        return self.dagmans or len(self.submissions)


class SiteRow(Struct, frozen=True, rename={"gpu_hours": "hours"}):
    site: str | None
    target: tuple[str, ...]
    executions: int
    completed_epochs: int
    gpu_hours: GpuHours
    seconds_median: float | None


class GpuRow(Struct, frozen=True, rename={"gpu_hours": "hours"}):
    gpu: str | None
    executions: int
    completed_epochs: int
    gpu_hours: GpuHours


class CauseRow(Struct, frozen=True):
    """Bad GPU-hours by cause, which is the reason with its variable parts folded.

    ``end_unknown``: the log lost the true end of these executions; it is taken from the event that
    proves they were over.
    """

    cause: str
    code: int | None
    subcode: int | None
    executions: int
    badput: float
    example: str | None
    end_unknown: bool = False


class Count(Struct, frozen=True):
    """A number of things, and the sum of their seconds."""

    n: int = 0
    seconds: float = 0.0


class TransferTotals(Struct, frozen=True):
    """Input transfers by outcome, output transfers, and bytes of all jobs."""

    input_ok: Count
    input_aborted: Count
    input_unfinished: Count
    output: Count
    bytes_sent: int
    bytes_received: int


class LogRow(Struct, frozen=True):
    """One event log: bytes read, its events, times of the first and the last."""

    file: str
    bytes: int
    events: int
    first: datetime | None
    last: datetime | None


class SideCounts(Struct, frozen=True):
    """Nodes of runs that train nothing: all, done, failed, overruled, removed.

    ``overruled``: completed although their job failed; they are counted in ``done``. ``removed``
    ones are counted in ``failed``.
    """

    total: int = 0
    done: int = 0
    failed: int = 0
    overruled: int = 0
    removed: int = 0


class Status(Struct, frozen=True, rename={"gpu_hours": "hours"}):
    """The whole ensemble at ``as_of``.

    ``epoch_states``: each epoch of a run once, however many DAGs contain it. ``node_states``: all
    nodes of all DAGs. ``other_states``: those of them that train nothing. ``special_nodes``:
    PROVISIONER, SERVICE and FINAL nodes, and where there are runs the nodes outside them.
    ``nodes_unlogged``: nodes that ran, or were submitted, but have no execution in any log here, so
    that the GPU-hours lack theirs.
    """

    json_omits: ClassVar = frozenset({"dagdir"})
    json_properties: ClassVar = ("item",)

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

    @property
    def item(self) -> str:
        """What ``epoch_states`` counts: "job" where jobs of no DAG have no epochs."""
        jobs = not self.dags and any(run.item == "job" for run in self.runs)
        return "job" if jobs else "epoch"


class RunView(Struct, frozen=True):
    """One run with its epochs in order, and all its side nodes."""

    row: RunRow
    epochs: tuple[Epoch, ...]
    side: tuple[Epoch, ...]

    @property
    def other_side_nodes(self) -> tuple[Epoch, ...]:
        """The side nodes that belong to no epoch."""
        paired = {(row.in_dag, row.node) for epoch in self.epochs for row in epoch.evaluations}
        return tuple(row for row in self.side if (row.in_dag, row.node) not in paired)

    @property
    def nodes_unlogged(self) -> int:
        """Completed nodes without an execution in any log here."""
        rows = (*self.epochs, *self.side)
        return sum(row.state is State.COMPLETED and not row.attempts for row in rows)


class NodeRow(Node, frozen=True, kw_only=True):
    """One node of a DAG, of any kind, with its place in the graph.

    ``kind`` is job, subdag, final, provisioner, service or join. ``seconds``: in its state.
    ``retries``: the node's RETRY count, ``retries_left`` of it (None: it has none). ``parents``:
    number of parents, ``unfinished_parents`` of which are not done; ``waits_for`` names the first
    of these. ``stopped_by``: the rule by which the gate of its run skipped it. ``reason``: DAGMan's
    reason of a failure that the job's events do not show; of a futile node, the end on purpose
    before it. ``failed_ancestor``: of a futile node, the failed ancestor. ``submissions``: by its
    jobs' logs or, where none has a job of it, by DAGMan's.
    """

    kind: str
    seconds: float | None
    retries: int
    retries_left: int | None
    parents: int
    unfinished_parents: int
    waits_for: tuple[str, ...]
    children: int
    submit: str | None
    stopped_by: str | None = None
    reason: str | None = None
    failed_ancestor: str | None = None
    submissions: int = 0

    @property
    def tries(self) -> int:
        """Executions; where no log has a job of it, its submissions."""
        return self.attempts if self.jobs else self.submissions

    @property
    def overruled(self) -> bool:
        """Whether the job failed, but the POST script succeeded."""
        return not self.ended_with_dag and super().overruled

    @property
    def ended_with_dag(self) -> bool:
        """Whether it is a SERVICE node whose job was removed at the end of its DAG."""
        over = self.state is State.COMPLETED and self.job_state is State.REMOVED
        return over and self.kind == "service"


class EventLine(Struct, frozen=True):
    """One event of a job as a line of text."""

    time: datetime
    number: int
    name: str
    text: str
    damaged: bool = False


class JobView(Struct, frozen=True):
    """A job, with the details that only its screen shows.

    ``seconds``: since it entered its state. ``off_target``: its target excludes the site where it
    ran last.
    ``output`` and ``error`` are the file names of the submit description, with macros expanded
    (relative to the dagdir); None when unknown. ``memory_updates``: number of 006 events (they are
    not among ``events``). ``usage_execution``: the number of the execution that ``usage`` is of,
    from 1. ``queue``: the job in the queue at ``queried_at`` (seconds since the epoch); None
    where it is not known.
    """

    job: Job
    seconds: float | None
    off_target: bool
    events: tuple[EventLine, ...]
    memory_updates: int
    usage: Sequence[UsageRow]
    output: str | None
    error: str | None
    siblings: tuple[tuple[int, int], ...]
    usage_execution: int = 0
    queue: QueueJob | None = None
    queried_at: float | None = None


class ProblemGroup(Struct, frozen=True):
    """Problems of one cause.

    ``kind``: held, failed, evicted, stalled, removed, shadow-exception, reconnect-failed. ``now``:
    number of jobs that have the problem at this moment, ``times``: number of occurrences. ``runs``
    are run keys, ``jobs`` (cluster, proc), latest first. ``nodes``: names of nodes that failed
    without a job, in place of jobs.
    """

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


class Progress(Struct, frozen=True):
    """Progress of the first reading: bytes read, bytes in total."""

    done: int
    total: int

    @property
    def fraction(self) -> float:
        return 1.0 if self.total <= 0 else min(1.0, self.done / self.total)


# --- nodes of the DAG files, for statistics that depend on these alone -------------------


class DescribedNode(Struct, frozen=True):
    """One node.

    ``dag``: the file of its top-level DAG. ``run``: the key of its run, None for a node of no run;
    ``run_name``: the run's name in this node's name. ``training``: it is an epoch.
    """

    key: NodeKey
    dag: str
    node: dagman.Node
    run: str | None
    run_name: str | None
    uuid: str | None
    training: bool


class Nodes:
    """All nodes, in the order of their DAGs.

    The object is the same as long as the DAG files are, so that results can be cached by it.
    """

    def __init__(self, every: tuple[DescribedNode, ...] = ()) -> None:
        self.all = every


NO_NODES: Final = Nodes()


class DagDescription(Struct, frozen=True):
    """The nodes, and the states of those of no run at the time of the snapshot.

    ``completed``: times of completion, after POST scripts, as far as they are known.
    """

    nodes: Nodes = NO_NODES
    states: Mapping[NodeKey, State] = field(default_factory=dict)
    completed: Mapping[NodeKey, datetime] = field(default_factory=dict)
