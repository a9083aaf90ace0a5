"""What the rules need to know of one snapshot, collected in one pass over jobs and executions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from metlmon.live.feed import StatsInput
from metlmon.model.job_events import NodeKey
from metlmon.model.queue import HELD, QueueJob
from metlmon.model.states import (
    ACTIVE,
    ALIVE,
    CAN_RUN,
    DONE,
    ENDED,
    FAILED_JOB,
    DagState,
    State,
)
from metlmon.snapshot.records import HOUR, Epoch, Execution, Job, NodeFault, Run, job_key

# Module constants: Python 3.11 looks up each Enum member through a function.
_HELD: Final = State.HELD
_REMOVED: Final = State.REMOVED
_FAILED: Final = State.FAILED
_IDLE: Final = State.IDLE
_NOT_HELD: Final = ACTIVE - {State.HELD}
_DISCONNECTED: Final = State.DISCONNECTED
_WAITING: Final = State.WAITING

_EXITED: Final = frozenset({State.COMPLETED, State.FAILED})

MOVING: Final = CAN_RUN - {State.HELD}
"""States of a node that proceeds without intervention."""


class HealthFacts:
    """One snapshot, sorted for the rules.

    ``held``: jobs on hold. ``held_before``: other jobs that have been on hold. ``removed`` and
    ``idle``: jobs in these states. ``bad``: executions that ended badly. ``faults``: nodes that are
    held, failed, removed or futile, by key; for a run with epochs in several DAGs only those that
    count.
    """

    def __init__(self, stats_input: StatsInput) -> None:
        self.stats_input = stats_input
        self.status, self.ledger = stats_input.status, stats_input.ledger
        ledger = self.ledger
        self.as_of = ledger.as_of
        self.dags = {dag.file: dag for dag in self.status.dags}
        self.runs: dict[str, Run] = {run.key: run for run in ledger.runs}
        self.has_runs = any(run.dag or not self.dags for run in ledger.runs)
        """Whether runs are trained here; jobs of no DAG beside DAGs are none."""
        self.faults: dict[NodeKey, NodeFault] = {f.node_key: f for f in ledger.faults if f.counts}
        self.queue = self.stats_input.queue.by_id
        self.held: list[Job] = []
        self.held_before: list[Job] = []
        self.removed: list[Job] = []
        self.strays_failed: list[Job] = []
        self.idle: list[Job] = []
        self.held_in_queue: list[tuple[Job, QueueJob]] = []
        """Jobs that are held in the queue, but not, or not yet, in their log."""
        self.disconnected: list[Job] = []
        self.jobs_queued = 0
        self._sort_jobs()
        self.exited = {cluster for dag in self.status.dags for cluster in dag.exited}
        """Clusters of DAGMan's own jobs, sub-DAGs included, that ended by themselves."""
        self.exited.update(job.job[0] for job in ledger.jobs if job.dagman and job.state in _EXITED)
        self.executions: list[Execution] = [e for e in ledger.executions if not e.at_access_point]
        self.bad: list[Execution] = [e for e in ledger.executions if e.cause is not None]
        self.lost = set(map(job_key, self.bad))
        """Jobs with an execution that ended badly."""
        self.uncertain: set[int] = set()
        """Lost executions (``id``) whose end is explained only by a gap in the log."""
        self.blocked = BlockedEpochs(self)

    def _sort_jobs(self) -> None:
        """Sort jobs by what the rules look at; most are completed and in none of these lists."""
        for job in self.ledger.jobs:
            state = job.state
            if state in ACTIVE and not job.dagman and job.states:
                self.jobs_queued += not self.is_over(job.dag)
            if state is _HELD:
                self.held.append(job)
            elif job.holds:
                self.held_before.append(job)
            if state is _REMOVED:
                self.removed.append(job)
            elif (
                state in _NOT_HELD and (queued := self.queue.get(job.job)) and queued.status == HELD
            ):
                self.held_in_queue.append((job, queued))
            elif state is _IDLE:
                self.idle.append(job)
            elif state is _DISCONNECTED and not job.dagman and not self.is_over(job.dag):
                self.disconnected.append(job)
            elif state is _FAILED and job.node is None:
                self.strays_failed.append(job)

    def is_over(self, dag: str | None) -> bool:
        """Whether jobs of a DAG are over without a logged end, because its DAGMan has ended."""
        row = self.dags.get(dag or "")
        return row is not None and row.state in ENDED and not self.ledger.live

    def seconds_between(self, start: datetime, end: datetime) -> float:
        return self.ledger.seconds_between(start, end)

    def hours(self, executions: Iterable[Execution]) -> float:
        """Hours lost by executions, in the ensemble's hour unit."""
        return sum(map(self.seconds_of, executions)) / HOUR

    def seconds_of(self, execution: Execution) -> float:
        return 0.0 if execution.at_access_point else self.ledger.measure.lost_seconds(execution)

    def is_alive(self, dag: str) -> bool:
        """Whether a DAGMan of this DAG is running, by its files; without these, by the logs."""
        row = self.dags.get(dag)
        if row is None or row.state is DagState.UNKNOWN:
            return self.ledger.live
        return row.state in ALIVE

    def goes_on(self, run: Run) -> bool:
        """Whether an epoch of a run is in progress, or will begin unless somebody acts.

        Between two epochs, the state of the run is that of the one that is done.
        """
        lasts = self.is_alive(run.dag) if run.is_between_epochs else not run.has_ended
        return lasts and not run.stopped

    def is_last_of_run(self, job: Job) -> bool:
        """Whether a job outside of any DAG is the last of its run, which no DAG will run again."""
        if self.dags:
            return False
        run = self.runs.get(job.key or "")
        return run is None or run.latest is None or run.latest.cluster in (None, job.job[0])

    def runs_again(self, fault: NodeFault) -> bool:
        """Whether DAGMan, submitted again after the node failed, will run the node again."""
        row = self.dags.get(fault.dag)
        if row is None or row.state not in ALIVE or not row.submissions or fault.since is None:
            return False
        return fault.since < row.submissions[-1]


class BlockedEpochs:
    """The epochs that will not be trained unless somebody acts; each is counted once.

    ``stopped``: keys of the runs that cannot continue. ``left``: the number of their epochs that
    are not done.
    """

    def __init__(self, facts: HealthFacts) -> None:
        self._facts = facts
        self._left: dict[str, dict[NodeKey, Epoch]] = {}
        for epoch in facts.ledger.epochs:
            is_left = epoch.counts and epoch.state not in DONE
            if is_left and facts.runs[epoch.key].will_train(epoch):
                self._left.setdefault(epoch.key, {})[epoch.node_key] = epoch
        self._behind: defaultdict[NodeKey, list[NodeFault]] = defaultdict(list)
        self._outer: dict[str, NodeKey] = {}
        for fault in facts.faults.values():
            if fault.failed_ancestor is not None:
                self._behind[fault.failed_ancestor].append(fault)
            elif fault.subdag is not None and fault.state in FAILED_JOB:
                self._outer[fault.subdag] = fault.node_key
        self.stopped = {run for run in self._left if self._is_stopped(facts.runs[run])}
        self.left = sum(len(self._left[run]) for run in self.stopped)
        self.any_left = bool(self._left) or not facts.has_runs
        """Whether any epoch is not done; True for DAGs without runs."""
        self.explained: set[NodeKey] = set()
        """Futile nodes that depend on a node with an entry."""

    def _is_stopped(self, run: Run) -> bool:
        if run.stopped or run.paused:
            return False
        stuck = False
        for epoch in self._left[run.key].values():
            state = epoch.state
            if state in MOVING and self._facts.is_over(epoch.dag):
                stuck = True
                continue
            if state in MOVING or state is _HELD:
                return False
            dag = self._facts.dags.get(epoch.dag)
            if state is _WAITING or state is State.UNKNOWN:
                if dag is not None and (dag.state in ENDED or dag.crashes is not None):
                    stuck = True
                elif dag is None or dag.state is not DagState.UNKNOWN:
                    return False
            else:
                fault = self._facts.faults.get(epoch.node_key)
                if fault is not None and self._facts.runs_again(fault):
                    return False
                stuck = True
        return stuck

    def take(self, fault: NodeFault) -> int:
        """Count the epochs that a fault blocks, except those counted before."""
        behind = list(self._behind.get(fault.node_key, ()))
        outer = self._outer.get(fault.node_key[0])
        while outer is not None:
            self.explained.add(outer)
            behind += self._behind.get(outer, ())
            outer = self._outer.get(outer[0])
        self.explained.update(each.node_key for each in behind)
        taken = sum(self._pop(each.key, each.node_key) for each in behind)
        taken += self._pop(fault.key, fault.node_key)
        if fault.key in self.stopped:
            return taken + self.take_run(fault.key)
        if fault.state in (_HELD, State.UNKNOWN) and fault.training and fault.key is not None:
            return taken + self._take_waiting(fault)
        return taken

    def _take_waiting(self, fault: NodeFault) -> int:
        """Count the epochs after a held one, unless another epoch of the run is moving."""
        left = self._left.get(fault.key or "", {})
        if any(epoch.state in MOVING for epoch in left.values()):
            return 0
        waiting = [
            key
            for key, epoch in left.items()
            if epoch.state is _WAITING and (epoch.epoch or 0) > (fault.epoch or 0)
        ]
        return sum(self._pop(fault.key, key) for key in waiting)

    def take_run(self, run: str) -> int:
        """Count all epochs of a run that are left."""
        return len(self._left.pop(run, ()))

    def take_dag(self, dag: str) -> tuple[list[str], int]:
        """The stopped runs that only the end of this DAG explains, and how many epochs are left."""
        runs = [
            run
            for run, epochs in self._left.items()
            if run in self.stopped and all(epoch.dag == dag for epoch in epochs.values())
        ]
        return runs, sum(self.take_run(run) for run in runs)

    def waiting_in(self, dag: str) -> int:
        """The number of epochs in a DAG that wait for its DAGMan."""
        return sum(
            epoch.dag == dag and epoch.state is _WAITING
            for epochs in self._left.values()
            for epoch in epochs.values()
        )

    def _pop(self, run: str | None, key: NodeKey) -> int:
        epochs = self._left.get(run or "")
        return int(epochs is not None and epochs.pop(key, None) is not None)
