"""The records: what is known about jobs, nodes, runs and DAGs.

Statistics, health, tables, JSON, frames, the report and the screens read these; all totals are
summed from them, so that no two disagree. All definitions are those of ``metlmon/README.md``.
Every field is plain data. Times are naive datetimes in the access point's local time, durations
are in seconds, and None means unknown. A snapshot never changes; the next one replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.dagman import records as dagman
from metlmon.eventlog.events import GpuDevice, ResourceUsage
from metlmon.eventlog.events import UsageRow as UsageRow
from metlmon.model.dagman_runs import CrashLoop, DagmanHold
from metlmon.model.job_events import JobId, JobKey, NodeKey
from metlmon.model.model_state import Notice
from metlmon.model.node import NodeFailure
from metlmon.model.queue import QueueJob
from metlmon.model.run import DagAbort, GateStatus
from metlmon.model.states import ACTIVE, DONE, FAILED_JOB, OVER, DagState, Outcome, State
from metlmon.text.record_json import Nullable

HOUR: Final = 3600.0

DEFAULT_LEASE: Final = 2400
"""Seconds of JobLeaseDuration if the submit description does not set it."""

SHORT_SUCCESS: Final = 0.5
"""Share of the longest execution's time; a shorter success did not train the epoch, which was then
trained elsewhere than where it succeeded ("hidden compute")."""


# Module constants, since Python 3.11 looks up each Enum member through a function.
_GOOD: Final = Outcome.GOOD
_IN_FLIGHT: Final = Outcome.IN_FLIGHT


class HourUnit(StrEnum):
    """Unit of the time of executions: GPU-hours, or a substitute.

    The GPU-hours of an ensemble without GPUs would be 0, whatever it cost: its unit is CPU-hours,
    by the ``Cpus`` in the 001 of each execution, or wall-clock hours if not every 001 has them.
    """

    GPU = "GPU"
    CPU = "CPU"
    WALL = "wall"

    @property
    def hours(self) -> str:
        """``GPU-hours``, ``CPU-hours``, ``wall-hours``."""
        return f"{self.value}-hours"

    @property
    def short(self) -> str:
        """``GPU-h``, for column headings."""
        return f"{self.value}-h"

    def weight(self, execution: Execution) -> int | None:
        """Factor for the time of an execution; None if unknown, which counts as 0 in every sum."""
        if self is _GPU:
            return execution.gpus
        return execution.cpus if self is HourUnit.CPU else 1

    def seconds(self, execution: Execution) -> float | None:
        """The time of an execution in seconds of this unit; None if unknown."""
        weight = self.weight(execution)
        return None if weight is None else execution.seconds * weight

    def lost_seconds(self, execution: Execution) -> float:
        """The lost time of an execution in seconds of this unit; 0 if unknown."""
        return execution.lost * (self.weight(execution) or 0)


_GPU: Final = HourUnit.GPU
"""A module constant, like those above."""


class GpuHours(Struct, frozen=True):
    """GPU-hours of executions: goodput, badput, in flight.

    ``measure``: their unit; for an ensemble without GPUs it is CPU-hours or wall-clock hours.
    """

    json_properties: ClassVar = ("total",)

    goodput: float = 0.0
    badput: float = 0.0
    running: float = 0.0
    measure: HourUnit = HourUnit.GPU

    @property
    def total(self) -> float:
        return self.goodput + self.badput + self.running

    @property
    def ended(self) -> float:
        """The hours of executions that have ended."""
        return self.goodput + self.badput

    @property
    def of_gpus(self) -> GpuHours:
        """The hours of GPUs alone: 0 in an ensemble with another measure."""
        return self if self.measure is HourUnit.GPU else GpuHours()


class JobNode(Struct, frozen=True, gc=False, kw_only=True):
    """The node and run of a job, as the job and its executions have them.

    ``dag``: the file of the top-level DAG; ``in_dag``: the DAG that contains the node, which may
    be a sub-DAG of it (two of these may use the same names: only ``node_key`` identifies a node).
    ``key``: that of the run, ``run``: its name; both None for a job of no run. ``training``: its
    node is an epoch. ``dagman``: the job is a sub-DAG's DAGMan. ``at_access_point``: it occupies no
    slot, being a DAGMan or a job of the local or scheduler universe; it has no site, and no sum of
    hours includes it. ``target_annex``: the only annex in which it may run; ``lease``: the seconds
    for which it runs on without its access point; None if its submit description names none.
    """

    dag: str | None = None
    in_dag: Nullable[str | None] = None
    node: str | None = None
    key: str | None = None
    run: str | None = None
    uuid: str | None = None
    label: str | None = None
    epoch: int | None = None
    training: bool = False
    target: str | None = None
    dagman: bool = False
    target_annex: str | None = None
    lease: int | None = None
    at_access_point: bool = False

    @property
    def node_key(self) -> NodeKey | None:
        """The key of its node; None for a job of no node."""
        return None if self.in_dag is None or self.node is None else (self.in_dag, self.node)

    @property
    def lease_seconds(self) -> int:
        """For how many seconds it runs on without its access point."""
        return self.lease or DEFAULT_LEASE


ExecutionId: TypeAlias = tuple[JobId, datetime]
"""A job, and the start of one of its executions."""


class Execution(JobNode, frozen=True, gc=False, kw_only=True):
    """One execution of a job.

    ``attempt``: its number among the attempts of its node, from 1; the procs of one submission are
    one attempt. ``wait``: seconds the job was idle before it, without the transfer; ``transfer``:
    seconds of the input transfer before it; None without one. ``bytes_*``: its share of the job's
    bytes, which adds up to the job's over all executions. ``final``: it completed its epoch.
    ``cause``: the folded reason of a bad end, None for a good one; ``held_cause``: that of the hold
    that ended it. ``usage``: by the event that ended it. ``uncertain``: its end was not logged, and
    is taken from the event that proves it was over. ``checkpoint``: if it did not end well, when
    its last checkpoint was stored; ``stored``: its seconds up to then; the rest was lost.
    ``carried``: the seconds stored by earlier executions of the job, from which it continued.
    ``reuse``: how often the schedd had used the id of its job before.
    ``counted``: an execution may be partly outside of a time window; its seconds are those inside,
    and it is counted in the window in which it ended (in flight: the last one).
    """

    json_omits: ClassVar = frozenset(
        {*JobNode.__struct_fields__, "reuse", "counted", "device"} - {"epoch", "node"}
    )
    json_properties: ClassVar = (
        "lost",
        "gpu_hours",
    )

    job: JobId
    start: datetime
    end: datetime | None
    seconds: float
    outcome: Outcome
    attempt: int = 1
    site: str | None = None
    host: str | None = None
    annex: str | None = None
    gpu: str | None = None
    gpus: int | None = None
    device: GpuDevice | None = None
    cpus: int | None = None
    usage: ResourceUsage | None = None
    suspended: float = 0.0
    checkpoint: datetime | None = None
    stored: float = 0.0
    carried: float = 0.0
    code: int | None = None
    subcode: int | None = None
    cause: str | None = None
    held_cause: str | None = None
    reason: str | None = None
    return_value: int | None = None
    signal: int | None = None
    uncertain: bool = False
    wait: float | None = None
    transfer: float | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None
    final: bool = False
    reuse: int = 0
    counted: bool = True

    @property
    def id(self) -> ExecutionId:
        """Its identity, which stays the same while its record changes."""
        return self.job, self.start

    @property
    def gpu_seconds(self) -> float | None:
        """Seconds × GPUs; None if their number is unknown (counted as 0 in every sum)."""
        return None if self.gpus is None else self.seconds * self.gpus

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours; None if its number of GPUs is unknown."""
        return None if self.gpu_seconds is None else self.gpu_seconds / HOUR

    @property
    def kind(self) -> str:
        """``goodput``, ``badput`` or ``running``; goodput if a checkpoint holds all of it."""
        if self.outcome is _IN_FLIGHT:
            return "running"
        if self.outcome is _GOOD or (self.checkpoint is not None and not self.lost):
            return "goodput"
        return "badput"

    @property
    def lost(self) -> float:
        """Its seconds since its last stored checkpoint, or all; 0 if good or in flight."""
        if self.outcome is _GOOD or self.outcome is _IN_FLIGHT:
            return 0.0
        return self.seconds - self.stored

    @property
    def delivered(self) -> bool:
        """Whether it ended well, or its work was stored at least in part."""
        return self.outcome is _GOOD or self.checkpoint is not None

    @property
    def trained(self) -> float:
        """The seconds of training at its end: those that it continued from, and its own.

        With a stored checkpoint, its own seconds up to that: the next execution continues there.
        """
        return self.carried + (self.seconds if self.checkpoint is None else self.stored)


def hour_unit_of(executions: Sequence[Execution]) -> HourUnit:
    """The unit for a set of executions."""
    if not executions or any(each.gpus for each in executions):
        return HourUnit.GPU
    return HourUnit.CPU if all(each.cpus is not None for each in executions) else HourUnit.WALL


class Transfer(Struct, frozen=True, gc=False):
    """One transfer of a job.

    ``direction``: input, output; ``outcome``: ok, aborted, unfinished, failed (output alone),
    in-flight. ``end`` None: in flight. ``seconds``: up to as-of; None when its start was not
    logged. ``site``: that of its execution, else the site of ``host`` in other executions; None
    when neither is known. ``counted``, ``reuse``: as in :class:`Execution`.
    """

    json_omits: ClassVar = frozenset({"key", "epoch", "counted", "reuse"})

    job: JobId
    key: str | None
    epoch: int | None
    direction: str
    start: datetime | None
    end: datetime | None
    seconds: float | None
    outcome: str
    host: str | None
    site: str | None
    queue_seconds: int | None
    counted: bool = True
    reuse: int = 0


class Hold(Struct, frozen=True, gc=False):
    """One hold.

    ``end``: when the job was released or removed, None while it is held. ``site``: where it last
    ran before. ``reason``: as logged; ``cause`` is folded from it.
    """

    start: datetime
    end: datetime | None = None
    seconds: float = 0.0
    code: int | None = None
    subcode: int | None = None
    cause: str = ""
    site: str | None = None
    gpu: str | None = None
    reason: str | None = None


class Job(JobNode, frozen=True, gc=False, kw_only=True):
    """One job, with its executions and transfers in order.

    ``entered_states``: every state it entered, ``entered_at``: when; the last one lasts (to as-of,
    unless it is terminal). ``since``: when it entered the last one; for a running job, when its
    execution began. ``ended``: when it left the queue. ``node_name``: the name of its node; for a
    job of no DAG the one in its log. ``bytes_at``: when its bytes were last reported. ``usage``:
    the newest table, even if its attempt was not started. ``gaps``: line and sentence for each
    event that its log lacks. ``removal``: the reason of its removal, as logged. ``candidates``: for
    a job of no node, the files of the DAGs to which it may belong. ``reuse``: as in
    :class:`Execution`.
    """

    json_omits: ClassVar = frozenset(
        {"node_name", "entered_states", "entered_at", "gaps", "usage", "reuse"}
    )
    json_properties: ClassVar = (
        "cluster",
        "proc",
        "site",
        "gpu",
        "gpus",
        "hold_reason",
        "hold_code",
        "hold_subcode",
        "request_memory_mb",
        "gpu_use",
    )

    job: JobId
    state: State
    entered_states: tuple[State, ...] = ()
    entered_at: tuple[datetime, ...] = ()
    since: datetime | None = None
    submitted: datetime | None = None
    ended: datetime | None = None
    node_name: str | None = None
    executions: tuple[Execution, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    holds: tuple[Hold, ...] = ()
    bytes_sent: int | None = None
    bytes_received: int | None = None
    bytes_at: datetime | None = None
    memory_mb: int | None = None
    usage: ResourceUsage | None = None
    gaps: tuple[tuple[int, str], ...] = ()
    removal: str | None = None
    candidates: tuple[str, ...] = ()
    reuse: int = 0

    @property
    def cluster(self) -> int:
        return self.job[0]

    @property
    def proc(self) -> int:
        return self.job[1]

    @property
    def queued(self) -> bool:
        """Whether it is in the queue by its log."""
        return bool(self.entered_states) and self.state in ACTIVE

    @property
    def states(self) -> tuple[tuple[datetime, State], ...]:
        """Every state it entered, with the time."""
        return tuple(zip(self.entered_at, self.entered_states, strict=True))

    @property
    def last_execution(self) -> Execution | None:
        """Its last execution; None if it never ran."""
        return self.executions[-1] if self.executions else None

    @property
    def site(self) -> str | None:
        """The site where it ran last."""
        return self.executions[-1].site if self.executions else None

    @property
    def gpu(self) -> str | None:
        """The GPU model of its last execution."""
        return self.executions[-1].gpu if self.executions else None

    @property
    def gpus(self) -> int | None:
        """The number of GPUs of its last execution."""
        return self.executions[-1].gpus if self.executions else None

    @property
    def lacks_hours(self) -> bool:
        """Whether the slot of an execution is unknown: no GPU-hours include it."""
        return any(
            each.gpus is None and each.cpus is None and not each.at_access_point
            for each in self.executions
        )

    @property
    def request_memory_mb(self) -> int | None:
        """The requested memory in MB, by its newest usage table."""
        request = self.usage.memory_mb_requested if self.usage else None
        return None if request is None else int(request)

    @property
    def gpu_use(self) -> float | None:
        """How many GPUs it used on average in its last execution."""
        return self.last_usage.gpus if self.last_usage else None

    @property
    def last_usage(self) -> ResourceUsage | None:
        """The usage of its last execution; None if that has no table, or not yet."""
        last = self.last_execution
        return self.usage if last is None else last.usage

    @property
    def hold(self) -> Hold | None:
        """The current hold; None if it is not held."""
        return self.holds[-1] if self.state is State.HELD and self.holds else None

    @property
    def hold_reason(self) -> str | None:
        return self.hold.reason if self.hold else None

    @property
    def hold_code(self) -> int | None:
        return self.hold.code if self.hold else None

    @property
    def hold_subcode(self) -> int | None:
        return self.hold.subcode if self.hold else None

    @property
    def is_open(self) -> bool:
        """Whether an execution, a transfer or a hold has not ended."""
        return (
            any(each.end is None for each in self.executions)
            or any(each.end is None and each.start is not None for each in self.transfers)
            or any(each.end is None for each in self.holds)
        )

    def with_states(self, states: Sequence[tuple[datetime, State]]) -> Job:
        """A copy with other states, and the times at which it entered them."""
        return replace(
            self,
            entered_states=tuple([state for _, state in states]),
            entered_at=tuple([time for time, _ in states]),
        )

    def with_causes(self, causes: Mapping[ExecutionId, str | None]) -> Job:
        """A copy with other causes of some executions."""
        executions = [
            replace(each, cause=causes.get(each.id, each.cause)) for each in self.executions
        ]
        return replace(self, executions=tuple(executions))


def job_key(record: Job | Execution | Transfer) -> JobKey:
    """The key of a job, also by one of its executions or transfers: its id may be used again."""
    return *record.job, record.reuse


def submission_key(record: Job | Execution) -> tuple[int, int]:
    """The key of a job's submission: its cluster, whose number may be used again."""
    return record.job[0], record.reuse


class NodeFault(Struct, frozen=True, kw_only=True):
    """One node that is held, failed, removed, futile, or unknown since DAGMan lost its job's end.

    ``dag``: the file of its top-level DAG. ``counts``: as in :class:`Epoch`; True for other nodes.
    ``job``: the job that determines the state. ``tries``: those of DAGMan since the DAG was
    submitted last; ``retries``: its RETRY count; ``unless_exit``: the value of UNLESS-EXIT that
    ended it. ``part`` and ``reason``: those of its failure;
    ``error``: what was wrong with its submit description; ``script``: the command line of its
    script that failed. ``failed_ancestor``: the key of the failed node that makes it futile.
    ``subdag``: the key of the sub-DAG that a SUBDAG node runs.
    """

    node_key: NodeKey
    dag: str
    state: State
    key: str | None = None
    epoch: int | None = None
    training: bool = False
    counts: bool = True
    since: datetime | None = None
    job: JobKey | None = None
    tries: int = 0
    retries: int = 0
    unless_exit: int | None = None
    part: str | None = None
    reason: str | None = None
    error: str | None = None
    script: str | None = None
    failed_ancestor: NodeKey | None = None
    subdag: str | None = None


class Node(Struct, frozen=True, kw_only=True):
    """What is known about any node.

    ``dag`` is the top-level DAG's file; ``in_dag`` (the DAG that contains it) and ``node`` identify
    it. ``key`` and ``run``: key and name of its run; None for a node of no run. ``jobs`` are
    (cluster, proc) in order of submission; ``job``: the one that determines its state, None for a
    NOOP node. ``attempts``: executions; those of the procs of one submission count as one.
    """

    json_omits: ClassVar[frozenset[str]] = frozenset({"job"})
    json_properties: ClassVar[tuple[str, ...]] = (
        "job_state",
        "job_return",
        "site",
        "gpu",
        "gpus",
        "gpu_use",
        "hold_reason",
        "hold_code",
        "overruled",
    )

    dag: Nullable[str]
    in_dag: Nullable[str]
    node: str
    key: str | None
    run: str | None
    state: State
    inferred: bool = False
    since: datetime | None = None
    target: str | None = None
    off_target: bool = False
    jobs: tuple[JobId, ...] = ()
    job: Job | None = None
    attempts: int = 0

    @property
    def node_key(self) -> NodeKey:
        """The key of the node."""
        return self.in_dag, self.node

    @property
    def submitted(self) -> datetime | None:
        """When its job was submitted."""
        return self.job.submitted if self.job else None

    @property
    def job_state(self) -> State | None:
        """The state of its job, whatever a POST script made of the result."""
        return self.job.state if self.job and self.job.entered_states else None

    @property
    def job_return(self) -> int | None:
        """The return value of its job's last execution."""
        last = self.job.last_execution if self.job else None
        return last.return_value if last else None

    @property
    def site(self) -> str | None:
        """The site where its job ran last; likewise ``gpu`` and ``gpus``."""
        return self.job.site if self.job else None

    @property
    def gpu(self) -> str | None:
        return self.job.gpu if self.job else None

    @property
    def gpus(self) -> int | None:
        return self.job.gpus if self.job else None

    @property
    def gpu_use(self) -> float | None:
        """How many GPUs its job used on average in its last execution."""
        return self.job.gpu_use if self.job else None

    @property
    def hold(self) -> Hold | None:
        """The current hold; None if it is not held."""
        return self.job.hold if self.job and self.state is State.HELD else None

    @property
    def hold_reason(self) -> str | None:
        return self.hold.reason if self.hold else None

    @property
    def hold_code(self) -> int | None:
        return self.hold.code if self.hold else None

    @property
    def overruled(self) -> bool:
        """Whether the job failed, but the POST script succeeded."""
        return self.state is State.COMPLETED and self.job_state in FAILED_JOB


class Epoch(Node, frozen=True, kw_only=True):
    """One node of a run: an epoch or, if it does not train, a side node.

    ``counts``: it is the node that counts for its epoch (another DAG may have it too); a
    run's epochs are counted by these only. ``failure``: why it failed, by DAGMan's reports alone.

    ``first_submitted``: when its first job was submitted. ``cluster``, ``proc``: the id of the job
    that determines its state (only the cluster if the job is in no log here). ``completed``: None
    if neither an event nor DAGMan's log has the time (inferred, marked DONE).

    ``success``: of all executions, the one that completed the node; ``longest``: the longest one.
    ``hours``: those of all. ``queue_wait``: seconds from the submission of the last job, or the end
    of its execution before, to its last execution, holds included, without the transfer;
    ``transfer``: seconds of input transfer before that; ``execution``: seconds of that execution.

    ``evaluations``: in a :class:`RunView`, the side nodes that are its children in the DAG.
    """

    json_omits: ClassVar[frozenset[str]] = Node.json_omits | {
        "failure",
        "success",
        "longest",
        "evaluations",
    }
    json_properties: ClassVar[tuple[str, ...]] = (
        *Node.json_properties,
        "submitted",
        "part",
        "reason",
        "success_seconds",
        "longest_site",
        "longest_gpu",
        "longest_seconds",
        "trained_on",
    )

    key: str
    run: str
    uuid: str | None = None
    label: str | None = None
    epoch: int | None
    epoch_var: int | None = None
    training: bool = True
    counts: bool = True
    failure: NodeFailure | None = None
    first_submitted: datetime | None = None
    cluster: int | None = None
    proc: int | None = None
    completed: datetime | None = None
    success: Execution | None = None
    longest: Execution | None = None
    hours: GpuHours = GpuHours()
    queue_wait: float | None = None
    transfer: float | None = None
    execution: float | None = None
    evaluations: tuple[Epoch, ...] = ()

    @property
    def lacks_hours(self) -> bool:
        """Whether GPU-hours of its job are unknown."""
        return self.hours.measure is _GPU and self.job is not None and self.job.lacks_hours

    @property
    def part(self) -> str | None:
        """The part of it that failed (pre, submit, post, job), if no event of a job shows it."""
        return self.failure.part if self.failure else None

    @property
    def reason(self) -> str | None:
        """DAGMan's reason for that failure."""
        return self.failure.text if self.failure else None

    @property
    def success_seconds(self) -> float | None:
        """Seconds of training of the execution that completed it."""
        return self.success.trained if self.success else None

    @property
    def longest_site(self) -> str | None:
        return self.longest.site if self.longest else None

    @property
    def longest_gpu(self) -> str | None:
        return self.longest.gpu if self.longest else None

    @property
    def longest_seconds(self) -> float | None:
        """Seconds of training of its longest execution."""
        return self.longest.trained if self.longest else None

    @property
    def hidden(self) -> bool:
        """Whether another execution than the successful one trained it ("hidden compute").

        A longer lost execution alone proves nothing: the next one starts over, and may be faster.
        A success in less than half of its time must have continued from its results.
        """
        if self.success is None or self.longest is None or not self.longest.trained:
            return False
        is_beside = submission_key(self.longest) == submission_key(self.success)
        if is_beside and self.longest.job != self.success.job:
            # Procs of one submission run beside each other.
            return False
        return self.success.trained < SHORT_SUCCESS * self.longest.trained

    @property
    def trained_on(self) -> str | None:
        """With hidden compute, the site of the longest execution."""
        return self.longest_site if self.hidden else None


class Run(Struct, frozen=True):
    """One run.

    ``key`` is stable over refreshes (the uuid, or DAG and run name). ``dag`` is empty for jobs of
    no DAG; ``item``: what is counted as its epochs, "job" if the jobs of the run have no epochs and
    no order. ``label``: its cohort (``metlmon.toml``), None without one. ``began``: its first
    submission. ``hours``: those of all its nodes, including side nodes. ``gate``: None without a
    gate. ``abort``: the ABORT-DAG-ON that ended it. ``failed``: the epoch at which a failed or
    removed run failed, which may differ from ``latest``, the latest one submitted.
    ``epochs_unknown``: epochs whose state is in none of the files here, so that more than
    ``epochs_done`` may be done. ``epochs_overruled``: of the done ones, those whose failed job a
    POST script overruled. ``seconds``: how long the failed, else the latest epoch has been in its
    state. ``retries_left``: those that DAGMan has left for that epoch. ``nodes_unlogged``: number
    of its nodes whose hours are missing, as in :class:`Status`; ``epochs_unlogged``: of the unknown
    epochs, those without an execution in the logs, whose hours may be missing.
    """

    json_omits: ClassVar = frozenset({"abort", "epochs_unlogged"})
    json_properties: ClassVar = ("ends_before", "paused", "stopped")

    key: str
    run: str
    uuid: str | None
    dag: Nullable[str]
    epochs_total: int
    epochs_done: int
    epochs_inferred: int
    epochs_skipped: int
    state: State
    latest: Epoch | None
    hours: GpuHours
    gate: GateStatus | None = None
    failed: Epoch | None = None
    epochs_unknown: int = 0
    epochs_overruled: int = 0
    item: str = "epoch"
    label: str | None = None
    began: datetime | None = None
    abort: DagAbort | None = None
    seconds: float | None = None
    retries_left: int | None = None
    nodes_unlogged: int = 0
    epochs_unlogged: int = 0

    @property
    def lacks_hours(self) -> bool:
        """Whether its hours are lower bounds: the logs lack some, or may."""
        return self.nodes_unlogged + self.epochs_unlogged > 0

    @property
    def shown_epoch(self) -> Epoch | None:
        """The latest epoch; None if the run failed at another one."""
        elsewhere = self.failed is not None and (
            self.latest is None or self.latest.node != self.failed.node
        )
        return None if elsewhere else self.latest

    @property
    def next_epoch(self) -> int | None:
        """The number of the epoch after the latest one; None if that has no number."""
        if self.latest is None:
            return 0
        return None if self.latest.epoch is None else self.latest.epoch + 1

    @property
    def stopped(self) -> bool:
        """Whether its gate, or ABORT-DAG-ON, has stopped it.

        An epoch in progress continues, whatever was requested.
        """
        return self._between_epochs and self.gate is not None and self.gate.stopped is not None

    @property
    def paused(self) -> bool:
        """Whether its gate holds back the next epoch."""
        waits = self._between_epochs and self.gate is not None and self.gate.paused is not None
        return waits and not self.stopped

    @property
    def epochs_left(self) -> int:
        """The number of its epochs that are neither done nor skipped."""
        return self.epochs_total - self.epochs_done - self.epochs_skipped

    @property
    def is_complete(self) -> bool:
        """Whether all its epochs are done, so that requests to its gate have no effect any more."""
        return 0 < self.epochs_total <= self.epochs_done

    @property
    def has_open_request(self) -> bool:
        """Whether its gate has not acted on a request yet, and it is neither stopped nor paused."""
        gate = self.gate
        if gate is None or gate.stopped is not None or self.is_complete or self.paused:
            return False
        requests = (gate.stop_requested, gate.pause_requested, gate.target)
        return any(request is not None for request in requests)

    @property
    def is_between_epochs(self) -> bool:
        """Whether its latest epoch is done, and the next one not submitted yet."""
        return self.state in DONE and self.epochs_left > 0

    @property
    def has_ended(self) -> bool:
        """Whether none of its epochs is running or still to be run."""
        return (self.state in DONE or self.state in OVER) and not self.is_between_epochs

    @property
    def _between_epochs(self) -> bool:
        return self.state not in ACTIVE and self.state not in (State.FAILED, State.REMOVED)

    @property
    def ends_before(self) -> int | None:
        """The first epoch that it will not train, if its gate stopped it or will stop it.

        None if it trains all of them.
        """
        if self.gate is None:
            return None
        if self.gate.stopped is not None:
            return self.gate.stopped.epoch
        return self.next_epoch if self.gate.stop_requested is not None else None

    def will_train(self, epoch: Epoch) -> bool:
        """Whether its gate has not stopped it before this epoch, and will not."""
        end = self.ends_before
        return end is None or epoch.epoch is None or epoch.epoch < end


class DagRow(Struct, frozen=True):
    """One top-level DAG.

    ``dagmans``: number of DAGMan runs, that is clusters of its own job (None: unknown).
    ``rescue``: number of the rescue file in force. ``halted``: a halt file exists.
    ``recoveries``: processes that continued after the one before was interrupted (the schedd or
    DAGMan was restarted). ``cluster``: DAGMan's own job, the one alive, else the one that ended
    last. ``refused``: submissions that ended at once because another DAGMan was running, not
    counted in ``dagmans``. ``hold``: the hold of DAGMan's own job, while it lasts.
    ``nodes_unknown``: nodes whose state is in none of the files here. ``removal``: why DAGMan's own
    job was removed. ``abort``: the ABORT-DAG-ON that ended it. ``exited``: clusters of DAGMan's own
    job that ended by themselves. ``crashes``: DAGMan crashes again and again at the same place.
    ``other_states``: its nodes of no run, without SERVICE nodes, by state. ``continued``: later
    DAGs have all epochs of its runs that it left undone. ``interrupted``: DAGMan was removed while
    it was on hold, and has written no rescue file.
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
    interrupted: bool = False

    @property
    def is_lower_bound(self) -> bool:
        """Whether ``nodes_done`` is a lower bound: unknown nodes may be done as well.

        If DAGMan's own counts are used, these include the unknown nodes.
        """
        known = self.nodes_done + self.nodes_failed
        return 0 < self.nodes_unknown <= self.nodes_total - known

    @property
    def submitted(self) -> int:
        """Number of submissions, without refused ones."""
        return self.dagmans or len(self.submissions)


class DagmanLife(Struct, frozen=True):
    """One DAGMan of a top-level DAG, from its start to its end.

    ``state``: the one in which it left the DAG, None while it runs. ``rescue``: the rescue file
    with which it began, ``wrote``: the one that it wrote. ``restarts``: when further processes of
    it were started. ``refused``: it ended at once because another DAGMan was running.
    ``holds``: those of its own job, and when each was released.
    """

    dag: str
    cluster: int | None
    start: datetime | None
    end: datetime | None = None
    state: DagState | None = None
    rescue: str | None = None
    wrote: str | None = None
    restarts: tuple[datetime, ...] = ()
    refused: bool = False
    holds: tuple[tuple[DagmanHold, datetime | None], ...] = ()


class LogRow(Struct, frozen=True):
    """One event log: bytes read, its events, times of the first and the last."""

    file: str
    bytes: int
    events: int
    first: datetime | None
    last: datetime | None


INACTIVE: Final = frozenset({State.COMPLETED, State.WAITING, State.SKIPPED})
"""States of a node that has ended, or has not begun."""


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


class Status(Struct, frozen=True):
    """The whole ensemble at ``as_of``.

    ``epoch_states``: each epoch of a run once, however many DAGs contain it. ``node_states``: all
    nodes of all DAGs. ``other_states``: those of them that train nothing. ``special_nodes``:
    PROVISIONER, SERVICE and FINAL nodes and, in ensembles with runs, nodes of no run.
    ``nodes_unlogged``: nodes that ran, or were submitted, but have no execution in any log here, or
    one without the GPUs of its slot (DAGMan's own log), so that their GPU-hours are missing.
    ``jobs_queued``: jobs in the queue, without DAGMan's own and, beside DAGs, those of none;
    ``jobs_running``: those that run.
    """

    json_omits: ClassVar = frozenset({"dagdir"})
    json_properties: ClassVar = ("item",)

    dagdir: str
    as_of: datetime | None
    live: bool
    warnings: tuple[Notice, ...]
    dags: tuple[DagRow, ...]
    runs: tuple[Run, ...]
    epoch_states: Mapping[State, int]
    node_states: Mapping[State, int]
    hours: GpuHours
    logs: tuple[LogRow, ...]
    special_nodes: tuple[NodeRow, ...] = ()
    side_nodes: SideCounts = SideCounts()
    other_states: Mapping[State, int] = field(default_factory=dict)
    nodes_unlogged: int = 0
    jobs_queued: int = 0
    jobs_running: int = 0

    @property
    def counted_states(self) -> Mapping[State, int]:
        """The states of the epochs; without epochs those of the nodes, as DAGMan counts them.

        SERVICE nodes, which are listed by name, are not included.
        """
        if any(self.epoch_states.values()):
            return self.epoch_states
        services = Counter(row.state for row in self.special_nodes if row.kind == "service")
        return {state: number - services[state] for state, number in self.node_states.items()}

    @property
    def active_other_nodes(self) -> Mapping[State, int]:
        """The number of active or failed nodes beside those counted, the epochs, by state."""
        if self.counted_states is not self.epoch_states:
            return {}
        named = Counter(row.state for row in self.special_nodes)
        side = self.side_nodes
        named.update({State.FAILED: side.failed - side.removed, State.REMOVED: side.removed})
        counts = {
            state: self.other_states.get(state, 0) - named[state]
            for state in State
            if state not in INACTIVE
        }
        return {state: number for state, number in counts.items() if number > 0}

    @property
    def paused_epochs(self) -> int:
        """The number of epochs whose PRE script is a gate that holds them back."""
        return min(self.epoch_states.get(State.PRE, 0), sum(row.paused for row in self.runs))

    @property
    def item(self) -> str:
        """What ``epoch_states`` counts: "job" if jobs of no DAG have no epochs."""
        jobs = not self.dags and any(run.item == "job" for run in self.runs)
        return "job" if jobs else "epoch"

    @property
    def lacks_hours(self) -> bool:
        """Whether its hours are lower bounds, as those of a run may be."""
        return self.nodes_unlogged > 0 or any(run.lacks_hours for run in self.runs)


class RunView(Struct, frozen=True):
    """One run with its epochs in order, and all its side nodes."""

    row: Run
    epochs: tuple[Epoch, ...]
    side: tuple[Epoch, ...]

    @property
    def other_side_nodes(self) -> tuple[Epoch, ...]:
        """The side nodes that belong to no epoch."""
        paired = {row.node_key for epoch in self.epochs for row in epoch.evaluations}
        return tuple(row for row in self.side if row.node_key not in paired)


class NodeRow(Node, frozen=True, kw_only=True):
    """One node of a DAG, of any kind, with its place in the graph.

    ``kind`` is job, subdag, final, provisioner, service or join. ``seconds``: those in its state.
    ``retries``: the node's RETRY count; ``retries_left``: None without RETRY. ``parents``: number
    of parents, ``unfinished_parents`` of which are not done; ``waits_for`` names the first of
    these. ``stopped_by``: the rule by which the gate of its run skipped it. ``reason``: DAGMan's
    reason for a failure that the job's events do not show; for a futile node, the end of the DAG on
    purpose; for a SERVICE node that waits, the end of the DAG. ``failed_ancestor``: for a futile
    node, the failed ancestor. ``submissions``: by the logs or, if none has a job of it, by DAGMan's
    files.
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
        """Number of executions; of submissions if no log has a job of it."""
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

    ``seconds``: those since it entered its state. ``off_target``: its target excludes the site
    where it ran last. ``output`` and ``error`` are the file names of the submit description, with
    macros expanded (relative to the dagdir); None if unknown. ``memory_updates``: number of 006
    events (they are not among ``events``). ``usage_execution``: the number of the execution to
    which ``usage`` belongs, from 1. ``queue``: the job in the queue at ``queried_at`` (seconds
    since 1970); None if unknown.
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


class Progress(Struct, frozen=True):
    """Progress of the initial reading: bytes read, bytes in total."""

    done: int
    total: int

    @property
    def fraction(self) -> float:
        return 1.0 if self.total <= 0 else min(1.0, self.done / self.total)


class Snapshot(Struct, frozen=True):
    """One snapshot of the ensemble.

    ``progress``: that of the initial reading; ``error``: one sentence if the dagdir has become
    unreadable (the last snapshot stays) or the schedd does not respond. ``opened``: False only
    before the first one.
    """

    status: Status
    progress: Progress
    error: str | None = None
    opened: bool = True

    @property
    def is_complete(self) -> bool:
        """Whether all files have been read once."""
        return self.progress.fraction >= 1


# --- nodes of the DAG files, for statistics that depend on these alone -------------------


class DescribedNode(Struct, frozen=True):
    """One node.

    ``dag``: the file of its top-level DAG. ``key``: that of its run, None for a node of no run;
    ``run``: the run's name in this node's name. ``training``: it is an epoch.
    """

    node_key: NodeKey
    dag: str
    node: dagman.Node
    key: str | None
    run: str | None
    uuid: str | None
    training: bool


class Nodes(Struct, frozen=True, eq=False):
    """All nodes, in the order of their DAGs.

    The object stays the same until a DAG file changes, so that results can be cached by it.
    """

    all: tuple[DescribedNode, ...] = ()


class DagDescription(Struct, frozen=True):
    """The nodes, and the states of those of no run at the time of the snapshot.

    ``completed``: times of completion, after POST scripts, if known.
    """

    nodes: Nodes = Nodes()
    states: Mapping[NodeKey, State] = field(default_factory=dict)
    completed: Mapping[NodeKey, datetime] = field(default_factory=dict)


def plain_seconds(start: datetime, end: datetime) -> float:
    """Seconds between two times as logged, never negative."""
    return max(0.0, (end - start).total_seconds())


class Ledger(Struct, frozen=True):
    """All records of the ensemble at ``as_of``, as statistics read them.

    ``seconds_between`` returns the seconds between two times, with the two changes of daylight
    saving time taken into account; it is additive. Jobs, executions and transfers of sub-DAGs'
    DAGMans are included (``dagman``), those of top-level DAGs' DAGMans are not. ``nodes_unlogged``:
    as in :class:`Status`. ``measure``: the hour unit of the ensemble, in which statistics count
    hours. Executions are ordered by job, then by start. ``faults``: as in :class:`NodeFault`,
    without nodes that an end on purpose left so. ``aborts``: the ABORT-DAG-ON that ended a DAG, by
    its key. ``restarts``: when the access point was restarted, by the logs of DAGMan. ``dagmans``:
    the DAGMans of the top-level DAGs. ``item``: what runs consist of, "job" for jobs without
    epochs. ``jobs_beside``: of each run of jobs of no DAG in a directory with DAGs, which ``runs``
    does not include, its jobs by its key.
    """

    dagdir: str
    as_of: datetime | None
    live: bool
    runs: tuple[Run, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    jobs: tuple[Job, ...] = ()
    executions: tuple[Execution, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    seconds_between: Callable[[datetime, datetime], float] = plain_seconds
    nodes_unlogged: int = 0
    measure: HourUnit = HourUnit.GPU
    faults: tuple[NodeFault, ...] = ()
    aborts: Mapping[str, DagAbort] = MappingProxyType({})
    restarts: tuple[datetime, ...] = ()
    dagmans: tuple[DagmanLife, ...] = ()
    item: str = "epoch"
    jobs_beside: Mapping[str, tuple[Job, ...]] = MappingProxyType({})

    @property
    def trainings(self) -> list[Execution]:
        """The executions of epochs, in slots of a pool."""
        return [e for e in self.executions if e.training and not e.at_access_point]

    @property
    def hidden_nodes(self) -> set[NodeKey]:
        """The nodes of the epochs with hidden compute."""
        return {epoch.node_key for epoch in self.epochs if epoch.hidden}

    @property
    def first_time(self) -> datetime | None:
        """The first time in the ledger."""
        times = [job.submitted for job in self.jobs if job.submitted is not None]
        times += [job.entered_at[0] for job in self.jobs if job.entered_at]
        return min(times, default=None)
