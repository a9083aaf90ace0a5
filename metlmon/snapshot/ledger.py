"""The ledger: every run, epoch, job, execution and transfer of one moment, as flat entries.

What is added up anywhere (sites, GPU models, causes, windows of time, frames, reports,
estimates) is added up from these entries, so that no two sums can disagree. All definitions
are those of ``domain.md``. Times are naive datetimes in the access point's local time (aware
where the log said UTC), durations seconds, bytes bytes; None is "not known".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Final, overload

from metlmon.frozen import frozen
from metlmon.model.hour_unit import HourUnit
from metlmon.model.job_events import JobId, NodeKey
from metlmon.model.states import Outcome, State
from metlmon.snapshot.types import FailedEpoch, Latest

HOUR: Final = 3600.0

SHORT_SUCCESS: Final = 0.5
"""An epoch whose successful execution is shorter than this share of its longest one was
trained elsewhere than where it succeeded ("hidden compute")."""


# By name here: Python 3.11 looks a member of an Enum up by a function each time.
_GOOD: Final = Outcome.GOOD
_IN_FLIGHT: Final = Outcome.IN_FLIGHT


@frozen
class ExecutionEntry:
    """One execution of a job.

    ``attempt``: its number among the tries of its node, from 1; the procs of one submission
    are tried together. ``dag``: the file of the
    top-level DAG; ``in_dag``: the DAG that holds the node, which may be a sub-DAG of it (two of
    these may use the same names: ``key`` alone tells nodes apart). ``run`` is the run's key,
    ``run_name`` its name; both None for a job of no run; ``training``: its node is an epoch.
    ``wait``: seconds the job was idle before it (transfer taken off); ``transfer``: seconds of
    the input transfer before it; None without one. ``gpu_seconds``: seconds × GPUs, None when
    the number of GPUs is not known (counted as 0 in every sum). ``bytes_*``: of the job's bytes
    those of this execution; over a job's executions they add up to the job's. ``final``: it is
    the execution that completed its epoch. ``dagman``: the job is a sub-DAG's DAGMan, which runs
    at no site. ``cause``: the folded reason of a bad end, None for a good one. ``counted``: in
    a window of time an execution may only reach into, its seconds are those inside and it is
    counted in the window that it ended in (in flight: the last one).
    """

    job: JobId
    attempt: int
    dag: str | None
    in_dag: str | None
    node: str | None
    run: str | None
    run_name: str | None
    uuid: str | None
    label: str | None
    epoch: int | None
    training: bool
    target: str | None
    site: str | None
    host: str | None
    gpu: str | None
    gpus: int | None
    start: datetime
    end: datetime | None
    seconds: float
    suspended: float
    gpu_seconds: float | None
    outcome: Outcome
    code: int | None
    subcode: int | None
    cause: str | None
    reason: str | None
    return_value: int | None
    signal: int | None
    uncertain: bool
    wait: float | None
    transfer: float | None
    bytes_sent: int | None
    bytes_received: int | None
    final: bool
    dagman: bool
    counted: bool = True
    cpus: int | None = None
    measure: HourUnit = HourUnit.GPU

    @property
    def key(self) -> NodeKey | None:
        """What its node is found by; None for a job of no node."""
        return _key(self.in_dag, self.node)

    @property
    def weight(self) -> int | None:
        """What seconds are multiplied by to GPU-seconds, or to those of another measure."""
        return self.measure.weight(self.gpus, self.cpus)

    @property
    def kind(self) -> str:
        """``good``, ``bad`` or ``in_flight``."""
        if self.outcome is _GOOD:
            return "good"
        return "in_flight" if self.outcome is _IN_FLIGHT else "bad"


@frozen
class TransferEntry:
    """One transfer of a job. ``direction``: input, output; ``outcome``: ok, aborted,
    unfinished, in-flight. ``end`` None: in flight. ``seconds`` up to as-of; None when its start
    was not logged. ``site``: of the execution that it was for, or else what ``host`` is known
    as from other executions; None when nothing tells. ``counted``: as for executions."""

    job: JobId
    run: str | None
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


@frozen
class HoldEntry:
    """One hold. ``end``: when the job was released or removed, None while it is held.
    ``site``: where it ran last before."""

    start: datetime
    end: datetime | None
    seconds: float
    code: int | None
    subcode: int | None
    cause: str
    site: str | None
    gpu: str | None


Entering = tuple[datetime, State]
"""A state, and when it was entered."""


class LazyConcat(Sequence[Entering]):
    """The states that a job entered, as a tuple of pairs has them, in a third of its memory:
    thousands of jobs went the same way (``kinds``), each at ``times`` of its own."""

    __slots__ = ("_kinds", "_times")

    def __init__(self, kinds: tuple[State, ...], times: tuple[datetime, ...]) -> None:
        self._kinds, self._times = kinds, times

    def __len__(self) -> int:
        return len(self._times)

    @overload
    def __getitem__(self, at: int) -> Entering: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Entering, ...]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return tuple(self)[at]
        return self._times[at], self._kinds[at]

    def __iter__(self) -> Iterator[Entering]:
        return zip(self._times, self._kinds, strict=True)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LazyConcat):
            return self._times == other._times and self._kinds == other._kinds
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@frozen
class JobEntry:
    """One job. ``dag``, ``in_dag``, ``key``: as for executions. ``states``: every state it entered,
    and when; the last one lasts (to as-of, unless it is terminal). ``ended``: when it left the
    queue."""

    job: JobId
    dag: str | None
    in_dag: str | None
    node: str | None
    run: str | None
    run_name: str | None
    uuid: str | None
    label: str | None
    epoch: int | None
    training: bool
    target: str | None
    state: State
    submitted: datetime | None
    ended: datetime | None
    states: Sequence[Entering]
    holds: tuple[HoldEntry, ...]
    bytes_sent: int | None
    bytes_received: int | None
    bytes_at: datetime | None
    memory_mb: int | None
    request_memory_mb: int | None
    dagman: bool

    @property
    def key(self) -> NodeKey | None:
        """What its node is found by; None for a job of no node."""
        return _key(self.in_dag, self.node)


def _key(in_dag: str | None, node: str | None) -> NodeKey | None:
    return None if in_dag is None or node is None else (in_dag, node)


@frozen
class EpochEntry:
    """One training node of a run.

    ``dag``, ``in_dag``, ``key``: as for executions. ``counts``: it is the node that counts for its
    epoch (another DAG may have it too); only of these a run's epochs are counted. ``site``,
    ``gpu``, ``gpus``, ``seconds``: of the execution that completed it; ``longest_site``,
    ``longest_gpu``, ``longest_seconds``: of its longest one. ``completed``: when it was completed,
    None where neither an event nor DAGMan's log says when (inferred, marked DONE).
    GPU-seconds are of all its executions.
    """

    run: str
    run_name: str
    uuid: str | None
    label: str | None
    dag: str
    in_dag: str
    node: str
    epoch: int | None
    epoch_var: int | None
    counts: bool
    state: State
    inferred: bool
    target: str | None
    first_submitted: datetime | None
    completed: datetime | None
    attempts: int
    jobs: tuple[JobId, ...]
    site: str | None
    gpu: str | None
    gpus: int | None
    seconds: float | None
    longest_site: str | None
    longest_gpu: str | None
    longest_seconds: float | None
    good: float
    bad: float
    in_flight: float

    @property
    def key(self) -> NodeKey:
        """What its node is found by."""
        return self.in_dag, self.node

    @property
    def hidden(self) -> bool:
        """Its successful execution is less than half its longest one: it was trained by
        another execution than by the one that is booked as its success."""
        if self.seconds is None or not self.longest_seconds:
            return False
        return self.seconds < SHORT_SUCCESS * self.longest_seconds


@frozen
class RunEntry:
    """One run. ``label``: its cohort (``metlmon.toml``), None without one. GPU-seconds are of
    all its nodes, side nodes too. ``began``: its first submission. ``ends_before``: the first epoch
    that it will not train, where its gate ended it or is to; ``paused``: its gate keeps the next
    epoch waiting; ``stopped``: its gate has ended it; ``failed``: where it failed."""

    run: str
    run_name: str
    uuid: str | None
    label: str | None
    dag: str
    state: State
    epochs_total: int
    epochs_done: int
    epochs_inferred: int
    epochs_skipped: int
    latest: Latest | None
    began: datetime | None
    good: float
    bad: float
    in_flight: float
    ends_before: int | None = None
    paused: bool = False
    stopped: bool = False
    failed: FailedEpoch | None = None


def measured(ledger: Ledger) -> Ledger:
    """The ledger with the executions in the measure of the ensemble: GPU-seconds are seconds of
    CPUs, or by the clock, where no execution has a GPU."""
    if ledger.measure is HourUnit.GPU:
        return ledger
    executions = (replace(entry, measure=ledger.measure) for entry in ledger.executions)
    return replace(
        ledger,
        executions=tuple(
            replace(e, gpu_seconds=None if e.weight is None else e.seconds * e.weight)
            for e in executions
        ),
    )


def plain_seconds(start: datetime, end: datetime) -> float:
    """Seconds between two stamps as they stand, never negative."""
    return max(0.0, (end - start).total_seconds())


@frozen
class Ledger:
    """All entries of the ensemble at ``as_of``.

    ``between`` gives the seconds between two stamps with the zone's two odd hours taken into
    account; it is additive. Jobs, executions and transfers of sub-DAGs' DAGMans are in it
    (``dagman``), those of DAGs' own DAGMans are not. ``nodes_unlogged``: nodes that ran, or were
    submitted, and have no execution in it. ``measure``: what the ensemble is measured in; entries
    are in GPU-seconds all the same, until they are :func:`measured`. Executions are in order of
    their job, then of their start.
    """

    dagdir: str
    as_of: datetime | None
    live: bool
    runs: tuple[RunEntry, ...] = ()
    epochs: tuple[EpochEntry, ...] = ()
    jobs: tuple[JobEntry, ...] = ()
    executions: tuple[ExecutionEntry, ...] = ()
    transfers: tuple[TransferEntry, ...] = ()
    between: Callable[[datetime, datetime], float] = field(default=plain_seconds, compare=False)
    nodes_unlogged: int = 0
    measure: HourUnit = HourUnit.GPU

    @property
    def first(self) -> datetime | None:
        """The first moment that anything here tells of."""
        times = [entry.submitted for entry in self.jobs if entry.submitted is not None]
        times += [entry.states[0][0] for entry in self.jobs if entry.states]
        return min(times, default=None)
