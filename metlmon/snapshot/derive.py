"""Derives the records of an ensemble, and adds up the sums over them.

:meth:`Derivation.update` builds the records of changed jobs and nodes, and keeps the others;
:meth:`Derivation.derive` resolves the runs and adds up everything. A snapshot
(:mod:`metlmon.snapshot.builder`) reads the results.

Below the derivation: the record of a job with its executions, transfers and holds; the rule by
which executions ended with their annex; the totals. All definitions are those of
``metlmon/README.md``.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import accumulate, chain, islice, pairwise
from math import inf
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from metlmon.dagman.records import Node, NodeKind
from metlmon.eventlog.events import resource_usage
from metlmon.model.attribution import Attribution
from metlmon.model.clock import Clock
from metlmon.model.dag import MAX_UNKNOWN_NODES
from metlmon.model.ensemble import Ensemble
from metlmon.model.job import (
    SAME_MOMENT,
    JobHistory,
    LoggedExecution,
    TransferSpan,
    with_inferred_ends,
)
from metlmon.model.job_events import (
    NO_DAG,
    JobKey,
    LoggedJob,
    NodeKey,
)
from metlmon.model.node import (
    NodeRecord,
    NodeState,
    NodeStateTable,
    SubmissionResult,
    has_failed,
    removed_at_dag_end,
    submission_result,
)
from metlmon.model.reasons import ANNEX_EXPIRED, ANNEX_EXPIRED_INFERRED, cause_of
from metlmon.model.run import (
    DagAbort,
    DagSubmission,
    RunNodes,
    Runs,
    RunState,
    is_epoch,
    resolve_run,
    variable,
)
from metlmon.model.sites import (
    NameTable,
    SiteAndGpu,
    alias_of,
    host_of,
    misses_target,
    normalize_name,
)
from metlmon.model.states import (
    ACTIVE,
    ALIVE,
    DONE,
    FAILED_JOB,
    TERMINAL,
    DagState,
    Outcome,
    State,
)
from metlmon.snapshot.records import (
    Epoch,
    Execution,
    ExecutionId,
    GpuHours,
    Hold,
    HourUnit,
    Job,
    JobNode,
    SideCounts,
    Transfer,
    hour_unit_of,
    job_key,
)

JOBS_PER_STEP: Final = 8
NODES_PER_STEP: Final = 200
"""Jobs and nodes between two checks of the clock: some milliseconds."""

SPECIAL_KINDS: Final = frozenset({NodeKind.PROVISIONER, NodeKind.SERVICE, NodeKind.FINAL})

KINDS_WITHOUT_JOB: Final = frozenset({NodeKind.JOIN, NodeKind.SUBDAG})
"""Kinds of nodes that run on no machine."""

LOCAL_UNIVERSES: Final = frozenset({"local", "12", "scheduler", "7"})
"""Universes of jobs that the schedd runs itself. Manual: "Choosing an HTCondor Universe"."""

SUBMITTED: Final = ACTIVE | {State.POST, State.FAILED, State.REMOVED, State.RETRYING}
"""States of a node that has had a job, unless its PRE script or submission failed."""

FAULTY: Final = FAILED_JOB | {State.HELD, State.FUTILE}

_SPECIAL_ORDER: Final = (
    NodeKind.PROVISIONER,
    NodeKind.SERVICE,
    NodeKind.JOB,
    NodeKind.SUBDAG,
    NodeKind.FINAL,
)
"""The order in which DAGMan runs special nodes."""

MAX_SPECIAL: Final = 30
"""Special nodes in a snapshot; the node tree has all of them."""

_BUILT_AGAIN: Final = frozenset({State.SUSPENDED, State.DISCONNECTED})

# Module constants, since Python 3.11 looks up each Enum member through a function.
_GOOD: Final = Outcome.GOOD
_IN_FLIGHT: Final = Outcome.IN_FLIGHT


class NodeCategory(NamedTuple):
    """Properties of a node that determine in which sums it counts.

    ``training``: it is an epoch, or a job in a directory without DAGs. ``in_run``: it is a part of
    a run. ``beside``: a job of no DAG in a directory with DAGs, which does not count as a node.
    """

    training: bool
    in_run: bool
    service: bool
    beside: bool


class Completion(NamedTuple):
    """A node was done by ``time``, as a submission of a later node or DAGMan's files prove.

    ``by_job``: its job has succeeded just before: it has no POST script, and the later node has
    waited for no other, or DAGMan has reported it.
    """

    time: datetime
    by_job: bool


class JobInputs(NamedTuple):
    """What the records of a node's jobs are built from, besides the histories of the jobs.

    ``is_final``: its successful execution completes an epoch. ``completion``: as in
    :meth:`Derivation._completion`.
    """

    jobs: tuple[LoggedJob, ...] = ()
    is_final: bool = False
    completion: Completion | None = None


class NodeMemo(Struct, gc=False):
    """A node, and what the records of its jobs were built from last.

    ``is_rebuilt``: they have been built again since the state of the node was set. ``submitted``:
    when the first of the jobs was submitted.
    """

    record: NodeRecord
    category: NodeCategory
    inputs: JobInputs = JobInputs()
    is_rebuilt: bool = False
    submitted: datetime | None = None


class DagNodeCounts(Struct):
    """Node counts of one DAG as DAGMan counts them: without SERVICE nodes."""

    total: int
    done: int = 0
    failed: int = 0
    unknown: int = 0


class NodeSums:
    """Sums over the nodes of all DAGs.

    ``node_states``: all nodes; ``other_states``: those that train nothing; ``side_states``: those
    of runs that train nothing. ``runless_states``: nodes of no run, except SERVICE nodes, by
    top-level DAG. ``counts``: by DAG.
    """

    def __init__(self) -> None:
        self.node_states: Counter[State] = Counter()
        self.other_states: Counter[State] = Counter()
        self.side_states: Counter[State] = Counter()
        self.runless_states: dict[str, Counter[State]] = {}
        self.counts: dict[str, DagNodeCounts] = {}

    def add(self, dag: str, top: str, category: NodeCategory, state: State, number: int) -> None:
        """Count nodes of a DAG, and of its top-level DAG, by their state."""
        if category.beside:
            return
        counts = self.counts[dag]
        self.node_states[state] += number
        if not category.training:
            self.other_states[state] += number
            if category.in_run:
                self.side_states[state] += number
        if not category.in_run and not category.service:
            self.runless_states.setdefault(top, Counter())[state] += number
        if state in DONE and not category.service:
            counts.done += number
        if state is State.UNKNOWN:
            counts.unknown += number


class Derivation:
    """Records and sums of an ensemble with unchanged DAGs.

    Like the ensemble itself, it is not thread-safe. When the DAGs or the clock change,
    :meth:`renewed` returns a new object: a snapshot that is still shown keeps using its own.
    ``jobs``, ``totals``, ``sums``, ``states`` and ``run_states`` are those of the last
    :meth:`derive`.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        # The ensemble replaces these when DAG files are read again.
        self.dags, self.nodes = ensemble.dags, ensemble.nodes
        self.sub_dags = ensemble.states.sub_dags
        """The key of the DAG that each SUBDAG node runs, if it is in this directory."""
        self.attributions = ensemble.attributions
        self.runs = Runs(ensemble.dags, ensemble.nodes, ensemble.settings)
        self.has_dags = self.dags.keys() != {NO_DAG}
        self.jobs: dict[JobKey, Job] = {}
        """The records by job, without those of another directory's DAG."""
        self.totals = Totals()
        self.sums = NodeSums()
        self.faulty: set[NodeKey] = set()
        """Nodes that are held, failed, removed, futile or lost."""
        self.overruled: set[NodeKey] = set()
        """Completed nodes whose job failed, but whose POST script succeeded."""
        self._unlogged: set[NodeKey] = set()
        """Nodes whose job ran, or was submitted, but has no execution in any log here: the log is
        missing, or begins later. No total includes them."""
        self._without_slot: set[NodeKey] = set()
        """Nodes with an execution that names neither GPUs nor cores, so that no GPU-hours include
        it."""
        self.run_states: dict[str, RunState] = {}
        self.epochs: dict[NodeKey, tuple[object, Epoch]] = {}
        """The epoch of each node in the last snapshot with it, and the inputs of the epoch."""
        self.epoch_states: Counter[State] = Counter()
        """States of the nodes that count for an epoch."""
        self.ambiguous: set[JobKey] = set()
        self.unknown_nodes: dict[str, set[str]] = {}
        """Node names of jobs that the file of their DAG does not have, by DAG; under the empty key,
        epochs of jobs of unknown DAGs that are in no DAG file."""
        self.aborts: dict[str, DagAbort] = {}
        """What ended each DAG; for a sub-DAG it may be what ended the DAG that contains it."""
        self._structure = ensemble.structure
        self._pending = dict.fromkeys(ensemble.jobs)
        self._jobs_of_no_dag = 0
        self._open: set[JobKey] = set()
        """Jobs with an execution, a transfer or a hold that has not ended."""
        self._evicted: dict[JobKey, list[Execution]] = {}
        """The executions of each job that may have ended with their annex, before that rule."""
        self._strays: dict[JobKey, None] = {}
        """Jobs of no node."""
        self._factory = RecordFactory(NameTable(ensemble.settings), ensemble.clock)
        self.run_names: dict[str, tuple[str, str | None]] = {}
        """The name of each run, by the node of its latest epoch, and its label."""
        self._run_inputs: dict[str, object] = {}
        """What each run was resolved from."""
        self._dag_order = {key: position for position, key in enumerate(self.dags)}
        self._tables: dict[str, NodeStateTable] = {}
        self._memos: dict[NodeKey, NodeMemo] = {}
        self.states: dict[NodeKey, NodeState] = {}
        """The states of the nodes when the records of their jobs were last checked."""
        for key, record in self.nodes.items():
            if key[0] != NO_DAG:
                self._add_memo(key, record)
        self._add_jobs_of_no_dag()
        self._placements = ensemble.placements
        self.targets = self._targets_by_dag()
        self.special_nodes = self._special_nodes()
        """PROVISIONER, SERVICE and FINAL nodes and, in ensembles with runs, nodes of no run."""

    def renewed(self) -> Derivation:
        """This object, or a new one if the DAGs or the clock of the ensemble have changed."""
        ensemble = self.ensemble
        is_current = self.dags is ensemble.dags and self._structure == ensemble.structure
        return self if is_current else Derivation(ensemble)

    # --- records of jobs and nodes --------------------------------------------------------

    def update_jobs(self, seconds: float | None = None) -> bool:
        """Build the records of changed jobs for about ``seconds``; False while some are left."""
        deadline = inf if seconds is None else time.monotonic() + seconds
        self._gather_changes()
        number = 0
        while self._pending:
            self._update_job(self._pending.popitem()[0])
            number += 1
            if number % JOBS_PER_STEP == 0 and time.monotonic() >= deadline:
                return False
        self._update_stale()
        return True

    def update_nodes(self, live: bool, seconds: float | None = None) -> bool:
        """Resolve changed nodes, after their jobs; as :meth:`update_jobs`."""
        deadline = inf if seconds is None else time.monotonic() + seconds
        limit = None if seconds is None else NODES_PER_STEP
        for key in self.dags:
            while (table := self.ensemble.states.table(key, live, limit)).pending:
                if time.monotonic() >= deadline:
                    return False
            self._tables[key] = table
        return True

    def update_ended(self, jobs: Iterable[LoggedJob]) -> None:
        """Build the records of those of the jobs that have changed and left the queue.

        Doing so before their events are compressed saves time.
        """
        self._gather_changes()
        for job in jobs:
            if job.key in self._pending and job.history().state in TERMINAL:
                self._pending.pop(job.key)
                self._update_job(job.key)

    def is_unfinished(self) -> bool:
        """Whether anything may still be running.

        That is a DAGMan without a reported end, or, if no DAG was ever submitted, a queued job.
        """
        tops = [dag for dag in self.ensemble.dags.values() if dag.is_top and dag.key != NO_DAG]
        states = [self.ensemble.dag_state(dag.key)[0] for dag in tops]
        if any(state in ALIVE or state is DagState.UNKNOWN for state in states):
            return True
        if any(state is not DagState.NOT_SUBMITTED for state in states):
            return False
        self.update_jobs()
        return any(job.queued for job in self.jobs.values())

    def _gather_changes(self) -> None:
        """Gather what has changed; jobs in order, since neighbours are compressed together."""
        self._apply_targets()
        self._add_jobs_of_no_dag()
        self._pending.update(dict.fromkeys(self.ensemble.take_changed_jobs()))

    def _update_stale(self) -> None:
        """Rebuild the records that were built before the site of a host was known."""
        while stale := self._factory.take_stale():
            self._update_all(stale)

    def _update_all(self, keys: Iterable[NodeKey | JobKey]) -> None:
        """Rebuild the records of these nodes and jobs."""
        for key in keys:
            if (memo := self._memos.get(key) if len(key) == 2 else None) is not None:
                self._update_node(memo)
            elif len(key) == 3:
                self._update_job(key)

    def _add_jobs_of_no_dag(self) -> None:
        parts = self.ensemble.groups.parts
        if NO_DAG not in self.dags:
            return
        for name, part in islice(parts.items(), self._jobs_of_no_dag, None):
            record = self.nodes[NO_DAG, name]
            self.runs.add_job(record.key, part)
            self._add_memo(record.key, record)
        self._jobs_of_no_dag = len(parts)

    def _add_memo(self, key: NodeKey, record: NodeRecord) -> None:
        part, beside = self.runs.parts.get(key), self.is_beside(key)
        category = NodeCategory(
            training=part is not None and part.training and not beside,
            in_run=part is not None,
            service=record.node.kind is NodeKind.SERVICE,
            beside=beside,
        )
        self._memos[key] = NodeMemo(record, category)

    def is_beside(self, key: NodeKey) -> bool:
        """Whether this is a job of no DAG in a directory with DAGs (not counted as a node)."""
        return key[0] == NO_DAG and self.has_dags

    def _apply_targets(self) -> None:
        """Apply new targets of nodes."""
        before, after = self._placements, self.ensemble.placements
        if after is before:
            return
        self._placements = after
        self.targets = self._targets_by_dag()
        for key in before.keys() | after.keys():
            if before.get(key) != after.get(key) and (memo := self._memos.get(key)) is not None:
                self._update_node(memo)

    def _targets_by_dag(self) -> dict[str, frozenset[str]]:
        """The normalized targets of each top-level DAG, by its key."""
        by_dag: dict[str, set[str]] = {}
        for key in self.nodes:
            target = self.target(key)
            if target:
                by_dag.setdefault(self.dags[key[0]].top, set()).add(normalize_name(target))
        return {dag: frozenset(names) for dag, names in by_dag.items()}

    def _update_job(self, key: JobKey) -> None:
        """Build the records of a job and of the other jobs of its node."""
        job = self.ensemble.jobs[key]
        node = self.node_of(job)
        memo = self._memos.get(node) if node is not None else None
        if memo is not None:
            self._update_node(memo)
            for of_node in memo.inputs.jobs:
                self._pending.pop(of_node.key, None)
        else:
            self._update_stray(job)

    def _update_stray(self, job: LoggedJob) -> None:
        """Build the records of a job of no node, or drop a job of another directory's DAG."""
        key, attribution = job.key, self.attributions.get(job.key)
        self._strays[key] = None
        if attribution is not None and attribution.foreign:
            self.jobs.pop(key, None)
            self._evicted.pop(key, None)
            self._open.discard(key)
        elif not job.noop:
            self._put(key, self._stray_record(job))

    def _stray_record(self, job: LoggedJob) -> Job:
        """The record of a job of no node."""
        histories = {job.key: (job, job.history())}
        ((_, record),) = self._factory.build(histories, NO_NODE, None, job.key)
        attribution = self.attributions.get(job.key)
        if attribution is None or not attribution.candidates:
            return record
        return replace(record, candidates=tuple(self.dags[k].file for k in attribution.candidates))

    def _update_node(self, memo: NodeMemo) -> None:
        """Build the records of a node's jobs: the numbers of their attempts are interdependent."""
        record, key = memo.record, memo.record.key
        inputs = memo.inputs = self._job_inputs(memo, self.states.get(key))
        result = submission_result(record)
        times = result.submit_times if result is not None else ()
        memo.submitted = min((time for time in times if time is not None), default=None)
        built = self._factory.build(
            histories={job.key: (job, job.history()) for job in inputs.jobs if not job.noop},
            owner=self._owner_of(memo),
            result=result if inputs.is_final else None,
            owner_key=key,
            is_service=memo.category.service,
            completion=inputs.completion,
        )
        for built_key, job in built:
            self._put(built_key, job)
        memo.is_rebuilt = True
        for of_node in inputs.jobs if self._strays else ():
            self._strays.pop(of_node.key, None)

    def _job_inputs(self, memo: NodeMemo, state: NodeState | None) -> JobInputs:
        """What the records of a node's jobs are built from while it is in this state."""
        record, result = memo.record, submission_result(memo.record)
        # Until its state is resolved, a good last job is assumed to complete it.
        completes = state is None or state.state is State.COMPLETED
        has_success = result is not None and result.success_job is not None
        is_final = memo.category.training and completes and has_success
        return JobInputs(record.jobs, is_final, self._completion(record, state))

    def _completion(self, record: NodeRecord, state: NodeState | None) -> Completion | None:
        """What proves this node done while its log may lack the end of its job; None: nothing does.

        That is the first submission of a later node, else what DAGMan reported before it ended.
        """
        if state is None or state.submitted is None or state.state is not State.COMPLETED:
            return None
        dag, table = record.key[0], self._tables[record.key[0]]
        if not state.inferred:
            is_open = state.job is not None and not state.job.has_ended
            # The log of a living DAG may lag behind its DAGMan's reports.
            if not is_open or state.since is None or table.inputs.alive:
                return None
            return Completion(state.since, record.node.post is None)
        if state.since is None:
            evidence = table.inputs.evidence
            ended = evidence.ended if evidence is not None else None
            return None if ended is None else Completion(ended, by_job=False)
        nodes = self.dags[dag].workflow.nodes
        later = [
            (time, len(nodes[child].parents) == 1)
            for child in record.node.children
            if (result := submission_result(self.nodes[dag, child])) is not None
            for time in result.submit_times
            if time is not None and time > state.submitted
        ]
        time, is_next = min(later, default=(state.since, False))
        return Completion(time, is_next and record.node.post is None)

    def _put(self, key: JobKey, job: Job) -> None:
        self.jobs[key] = job
        (self._open.add if job.is_open else self._open.discard)(key)
        if evicted := [each for each in job.executions if _may_be_expiry(each)]:
            self._evicted[key] = evicted
        else:
            self._evicted.pop(key, None)

    def _owner_of(self, memo: NodeMemo) -> JobNode:
        if memo.category.beside:
            return NO_NODE
        key, node = memo.record.key, memo.record.node
        run, part = self.runs.run_of(key), self.runs.parts.get(key)
        name, label = None, None
        if run is not None:
            if run.key not in self.run_names:
                self.run_names[run.key] = self._find_names(run)
            name, label = self.run_names[run.key]
        return JobNode(
            dag=self.dag_file(key[0]) or None,
            in_dag=key[0],
            node=key[1],
            key=run.key if run else None,
            run=name,
            uuid=run.uuid if run else None,
            label=label,
            epoch=part.epoch if part else None,
            training=memo.category.training,
            target=self.target(key),
            dagman=node.kind is NodeKind.SUBDAG,
            target_annex=node.submission.annex,
            lease=node.submission.lease,
            at_access_point=node.kind is NodeKind.SUBDAG
            or node.submission.universe in LOCAL_UNIVERSES,
        )

    # --- runs and sums ----------------------------------------------------------------------

    def derive(self, as_of: datetime | None) -> None:
        """Resolve the runs and add up everything, counting what has not ended up to ``as_of``."""
        if as_of != self._factory.as_of:
            self._count_up_to(as_of)
        self._sum_nodes()
        self._find_aborts()
        self._resolve_runs()
        self._update_stale()
        self._note_strays()
        self._set_expiries(as_of)
        self.totals = Totals(self.jobs.values())
        lacks_gpus = self._without_slot if self.totals.hour_unit is HourUnit.GPU else frozenset()
        self.unlogged = self._unlogged | lacks_gpus

    def _count_up_to(self, as_of: datetime | None) -> None:
        self._factory.as_of = as_of
        built_again: set[NodeKey | JobKey] = set()
        for key in list(self._open):
            job = self.jobs[key]
            if not _BUILT_AGAIN.isdisjoint(job.entered_states):
                built_again.add(self.node_of(self.ensemble.jobs[key]) or key)
            else:
                self.jobs[key] = self._factory.at_as_of(job)
        self._update_all(built_again)
        self._update_stale()

    def _sum_nodes(self) -> None:
        """Add up the states of all nodes, and rebuild outdated records of their jobs."""
        counted: Counter[tuple[str, NodeCategory, State]] = Counter()
        for key, memo in self._memos.items():
            node_state = memo.record.state
            if node_state is None:
                continue
            counted[key[0], memo.category, node_state.state] += 1
            is_same = self.states.get(key) is node_state
            if memo.is_rebuilt or not is_same or memo.inputs.jobs is not memo.record.jobs:
                self._set_state(memo, node_state)
        sums = self.sums = NodeSums()
        for dag_key, dag in self.dags.items():
            total = self._jobs_of_no_dag if dag_key == NO_DAG else dag.node_count
            sums.counts[dag_key] = DagNodeCounts(total)
        for (dag_key, category, state), number in counted.items():
            sums.add(dag_key, self.dags[dag_key].top, category, state, number)
        for key in self.faulty:
            node_state, counts = self.states[key], sums.counts[key[0]]
            if node_state.state in FAILED_JOB and not self._memos[key].category.service:
                counts.failed += has_failed(node_state, self.dags[key[0]])
            # The result of a lost node is known: DAGMan has not done it.
            counts.unknown -= node_state.is_lost and node_state.state is State.UNKNOWN

    def _set_state(self, memo: NodeMemo, node_state: NodeState) -> None:
        """Set the state of a node, and put it into the sets of nodes to which it belongs."""
        record, state, failure = memo.record, node_state.state, node_state.failure
        node, self.states[record.key] = record.node, node_state
        if memo.inputs != self._job_inputs(memo, node_state):
            self._update_node(memo)
        memo.is_rebuilt = False
        is_overruled = is_unlogged = False
        if state is State.COMPLETED:
            # A SERVICE node's job may have waited until its DAG ended.
            has_waited = memo.category.service and bool(record.jobs)
            may_have_run = _may_run(node) and not has_waited
            is_unlogged = may_have_run and not self.node_executions(record.key)
            is_overruled = node.post is not None and self._is_overruled(record, node_state)
        elif not record.jobs and failure is None and state in SUBMITTED:
            # A queued job has no execution yet; a job known from DAGMan only may have one.
            is_unlogged = _may_run(node)
        lacks_slot = any(job.lacks_hours for job in self.node_jobs(record.key))
        for nodes, is_one in (
            (self.faulty, state in FAULTY or node_state.is_lost),
            (self.overruled, is_overruled),
            (self._unlogged, is_unlogged),
            (self._without_slot, lacks_slot),
        ):
            (nodes.add if is_one else nodes.discard)(record.key)

    def _find_aborts(self) -> None:
        """Find the DAGs that ABORT-DAG-ON ended, and their sub-DAGs."""
        ensemble, aborts = self.ensemble, dict[str, DagAbort]()
        for key, dag in self.dags.items():
            name = ensemble.states.aborting_node(key)
            if name is not None:
                node, state = dag.workflow.nodes[name], ensemble.dag_state(key)[0]
                succeeded = node.abort_return == 0 and state is not DagState.FAILED
                since = self.states[key, name].since
                aborts[key] = DagAbort((key, name), node.abort_on, succeeded, since)
        pending = list(aborts)
        while pending:
            outer = pending.pop()
            for (dag_key, _), inner in self.sub_dags.items():
                if dag_key != outer or inner in aborts:
                    continue
                if ensemble.dag_state(inner)[0] not in (DagState.DONE, DagState.FAILED):
                    aborts[inner] = aborts[outer]
                    pending.append(inner)
        self.aborts = aborts

    def _submitted_dags(self) -> dict[str, DagSubmission]:
        """The submissions of the DAGs that share epochs with others.

        Once a later DAG is submitted, epochs that it has not reached yet count for it.
        """
        live = self.ensemble.states.live
        return {
            key: DagSubmission(starts[-1], live and self.dags[key].end_state() is None)
            for key in self.runs.shared_epochs
            if (starts := self.dags[key].run_starts())
        }

    def _resolve_runs(self) -> None:
        """Resolve the runs; each of their epochs counts once, however many DAGs contain it."""
        submitted, aborts = self._submitted_dags(), self.aborts
        alive = {key for key, table in self._tables.items() if table.inputs.alive}
        self.epoch_states = Counter()
        for run in self.runs.by_key.values():
            nodes = run.nodes()
            inputs = submitted, alive, aborts, [self.states[key] for key in nodes]
            if self._run_inputs.get(run.key) != inputs:
                self._run_inputs[run.key] = inputs
                self.run_states[run.key] = resolve_run(
                    run, self.states, self._dag_order, submitted, alive, aborts
                )
                names = self._find_names(run)
                if self.run_names.setdefault(run.key, names) != names:
                    self.run_names[run.key] = names
                    for key in nodes:
                        self._update_node(self._memos[key])
            if not self.is_beside(nodes[0]):
                self.epoch_states.update(self.run_states[run.key].states)

    def _note_strays(self) -> None:
        """Find the jobs of several DAGs, and names of nodes that are in no DAG file here."""
        self.ambiguous, self.unknown_nodes = set(), {}
        for key in self._strays:
            job, attribution = self.ensemble.jobs[key], self.attributions.get(key)
            if attribution is None or attribution.foreign:
                continue
            if attribution.candidates:
                if not job.noop:
                    self.ambiguous.add(key)
            else:
                self._note_unknown_node(job, attribution)

    def _note_unknown_node(self, job: LoggedJob, attribution: Attribution) -> None:
        """Record the node name of a job if it is in no DAG file here.

        Only if the DAG of the job is known, or the name is that of an epoch.
        """
        name = job.node_name
        if name is None or not (job.nodes_logs or job.user_logs):
            return
        if attribution.dag is None and not is_epoch(name, self.ensemble.settings):
            return
        begun = self.dags[attribution.dag].last_fresh_start() if attribution.dag else None
        if begun is not None and job.submitted is not None and job.submitted < begun:
            # Its DAG file was changed since, and submitted again.
            return
        names = self.unknown_nodes.setdefault(attribution.dag or "", set())
        if len(names) < MAX_UNKNOWN_NODES:
            names.add(name)

    def _set_expiries(self, as_of: datetime | None) -> None:
        """Set the causes of executions that may have ended because their annex expired."""
        evicted = list(chain.from_iterable(self._evicted.values()))
        expired = _find_expiries(evicted, self.jobs.values(), self.ensemble.annex_ends, as_of)
        for key, of_job in self._evicted.items():
            job = self.jobs[key]
            causes = {each.id: expired.get(each.id, each.cause) for each in of_job}
            if any(each.cause != causes.get(each.id, each.cause) for each in job.executions):
                self.jobs[key] = job.with_causes(causes)

    def _is_overruled(self, record: NodeRecord, state: NodeState) -> bool:
        """Whether the job of a completed node with a POST script failed."""
        result = submission_result(record) if state.job is not None else None
        return result is not None and result.state in FAILED_JOB

    def _special_nodes(self) -> list[NodeKey]:
        plain_kinds = (NodeKind.JOB, NodeKind.SUBDAG)
        keys = [key for key, record in self.nodes.items() if record.node.kind in SPECIAL_KINDS]
        if any(dag != NO_DAG for dag, _ in self.runs.parts):
            keys += [
                key
                for key, record in self.nodes.items()
                if key not in self.runs.parts and record.node.kind in plain_kinds
            ]
        # Cut before sorting, so that a FINAL node is kept rather than many plain ones.
        del keys[MAX_SPECIAL:]
        keys.sort(key=lambda key: _SPECIAL_ORDER.index(self.nodes[key].node.kind))
        return keys

    # --- look-ups -----------------------------------------------------------------------

    def target(self, key: NodeKey | None) -> str | None:
        """The target of a node: the one assigned to it while the DAG ran, else that of its VARS."""
        record = self.nodes.get(key) if key is not None else None
        if record is None:
            return None
        return self.ensemble.placements.get(record.key) or variable(record.node, "ResourceName")

    def off_target(self, key: NodeKey | None, site: str | None) -> bool:
        """Whether the job of a node ran at a site that its target excludes."""
        target = self.target(key)
        if key is None or not target:
            return False
        return misses_target(target, site, self.targets.get(self.dags[key[0]].top, frozenset()))

    def node_of(self, job: LoggedJob) -> NodeKey | None:
        """The node of a job; None if unknown."""
        attribution = self.attributions.get(job.key)
        return attribution.node_key if attribution is not None else None

    def dag_file(self, key: str) -> str:
        """The file of the top-level DAG of a DAG."""
        dag = self.dags[key]
        return self.dags[dag.top].file if dag.top in self.dags else dag.file

    def naming_node(self, run: RunNodes) -> NodeKey:
        """The node that gives a run its name and its DAG: that of its latest epoch.

        All nodes of the run are shown under that name, even if another DAG or splice names them
        differently.
        """
        run_state = self.run_states.get(run.key)
        if run_state is None:
            return run.nodes()[0]
        return run_state.latest or next(iter(run_state.epochs.values()), None) or run.nodes()[0]

    def record_of(self, job: LoggedJob) -> Job:
        """The record of a job, even if it does not count (that of a NOOP node)."""
        record = self.jobs.get(job.key)
        return self._stray_record(job) if record is None else record

    def node_jobs(self, key: NodeKey) -> list[Job]:
        """The jobs of a node."""
        keys = sorted([job.key for job in self._memos[key].inputs.jobs])
        return [record for job in keys if (record := self.jobs.get(job)) is not None]

    def first_submission(self, keys: Iterable[NodeKey]) -> datetime | None:
        """When the first job of these nodes was submitted."""
        times = [self._memos[key].submitted for key in keys]
        return min((time for time in times if time is not None), default=None)

    def node_executions(self, key: NodeKey) -> list[Execution]:
        """The executions of a node's jobs, by job."""
        return [each for job in self.node_jobs(key) for each in job.executions]

    def _find_names(self, run: RunNodes) -> tuple[str, str | None]:
        """The name of a run, by the node of its latest epoch, and its label."""
        name, labels = self.runs.parts[self.naming_node(run)].run, self.ensemble.settings.labels
        return name, next((rule.name for rule in labels if rule.matches(name, run.uuid)), None)

    def side_counts(self) -> SideCounts:
        """The side nodes of all runs, by what became of them."""
        states, parts = self.sums.side_states, self.runs.parts
        removed = states[State.REMOVED]
        for key in self.faulty if self.aborts else ():
            # Nodes removed when their DAG was ended on purpose have not failed.
            abort, state = self.aborts.get(key[0]), self.states[key]
            if abort is not None and abort.on_purpose and state.state is State.REMOVED:
                is_side = key in parts and not parts[key].training
                removed -= is_side and abort.ended(key, state)
        return SideCounts(
            total=states.total(),
            done=sum(states[state] for state in DONE),
            failed=states[State.FAILED] + removed,
            overruled=sum(key in parts and not parts[key].training for key in self.overruled),
            removed=removed,
        )

    def is_continued(self, dag_key: str) -> bool:
        """Whether later DAGs have all epochs that a top-level DAG left undone."""
        by_dag = self.runs.shared_epochs.items()
        shared = [runs for key, runs in by_dag if self._top(key) == dag_key]
        if not shared:
            return False
        for run_state in self.run_states.values():
            for key in run_state.epochs.values():
                if self._top(key[0]) == dag_key and self.states[key].state not in DONE:
                    return False
        epochs = (self.run_states[run].epochs.values() for run in set().union(*shared))
        return any(self._top(key[0]) != dag_key for keys in epochs for key in keys)

    def _top(self, dag_key: str) -> str:
        return self.dags[dag_key].top


def _may_run(node: Node) -> bool:
    """Whether a node has a job. Nodes that the DAG file marks DONE never run in this ensemble."""
    return node.kind not in KINDS_WITHOUT_JOB and not node.noop and not node.done


# --- the record of a job --------------------------------------------------------------

_share_recent: Final[Callable[[Any], Any]] = lru_cache(maxsize=4096)(lambda value: value)
"""Like :meth:`RecordFactory._share`, for values of which there may be many: durations, reasons."""

T = TypeVar("T")

Histories: TypeAlias = Mapping[JobKey, tuple[LoggedJob, JobHistory]]
"""The jobs of one node with their histories."""

NO_NODE: Final = JobNode()
"""Owner of a job that belongs to no node, or to an unknown one."""


class RecordFactory:
    """Builds the records of single jobs.

    ``as_of``: the time up to which everything that has not ended counts.
    """

    def __init__(self, names: NameTable, clock: Clock) -> None:
        self.as_of: datetime | None = None
        self._stale: set[NodeKey | JobKey] = set()
        self._names = names
        self._clock = clock
        self._has_attributes = False
        self._without_attributes: set[NodeKey | JobKey] = set()
        self._host_sites: dict[str, set[str]] = {}
        self._owners_by_host: dict[str, set[NodeKey | JobKey]] = {}
        self._shared: dict[Any, Any] = {}
        """Values of which there are few: names of hosts, causes, sequences of states."""

    def build(
        self,
        histories: Histories,
        owner: JobNode,
        result: SubmissionResult | None,
        owner_key: NodeKey | JobKey,
        is_service: bool = False,
        completion: Completion | None = None,
    ) -> Iterator[tuple[JobKey, Job]]:
        """The records of the jobs of a node, or of a job of no node.

        ``owner_key``: its key, by which :meth:`take_stale` returns it. ``result``: that of the
        node's submissions, if one of them completed it. ``is_service``: the job of a SERVICE node
        is over when its DAG is. ``completion``: that of a node which other events than its job's
        prove done.
        """
        histories = _with_inferred_ends(histories, owner, self.as_of, completion)
        attempts, of_owner = _attempts(histories), asdict(owner)
        for key in sorted(histories):
            job, history = histories[key]
            final = result.success_index if result and result.success_job == key else None
            places = [self._names.site_and_gpu(each.machine) for each in history.executions]
            fields = of_owner | {"job": job.id, "reuse": job.subproc}
            if owner.at_access_point or self._is_at_access_point(history, owner_key):
                fields["at_access_point"] = True
                places = [(None, None)] * len(places)
            if is_service and removed_at_dag_end(job) and history.executions:
                history = replace(history, executions=_ended_well(history))
                attempts = {**attempts, **_attempts({key: (job, history)})}
            starts = StartTimes(history.executions, places)
            executions = tuple(self._executions(history, fields, attempts, places, final))
            transfers = tuple(self._transfers(history, fields, starts, owner_key))
            yield key, self._job(job, history, fields, starts, executions, transfers)

    def take_stale(self) -> set[NodeKey | JobKey]:
        """Return nodes, and jobs of no node, whose records have become stale since the last call.

        These were built before facts about hosts were known that other jobs show.
        """
        stale, self._stale = self._stale, set()
        return stale

    def _is_at_access_point(self, history: JobHistory, owner_key: NodeKey | JobKey) -> bool:
        """Whether the schedd ran the job itself.

        The 001 of such a job has the schedd's own host, and no attributes. In old logs no 001 has
        attributes: if no other job here has any, these may be slots of a pool on one machine.
        Sources: ``LocalUserLog::logExecute``, ``Scheduler::WriteExecuteToUserLog``.
        """
        machines = [each.machine for each in history.executions if each.machine is not None]
        if not machines or any(machine.has_properties for machine in machines):
            if machines and not self._has_attributes:
                self._has_attributes = True
                self._stale.update(self._without_attributes)
            return False
        if all(machine.host == history.host for machine in machines):
            return True
        alias = alias_of(history.host or "")
        if alias is None or any(machine.alias != alias for machine in machines):
            return False
        self._without_attributes.add(owner_key)
        return self._has_attributes

    def at_as_of(self, job: Job) -> Job:
        """A job with everything that has not ended counted up to ``as_of``.

        Not for a job that was suspended or disconnected, which has to be built again.
        """
        return replace(
            job,
            holds=self._counted(job.holds),
            executions=self._counted(job.executions),
            transfers=self._counted(job.transfers),
        )

    def _counted(self, records: Sequence[Any]) -> tuple[Any, ...]:
        """Holds, executions or transfers, those without an end counted up to ``as_of``."""
        return tuple(
            each
            if each.end is not None or each.start is None
            else replace(each, seconds=self.seconds(each.start, None))
            for each in records
        )

    def seconds(self, start: datetime | None, end: datetime | None) -> float | None:
        """Seconds between two times; up to ``as_of`` if ``end`` is None."""
        if end is None:
            end = self.as_of
        if start is None or end is None:
            return None
        seconds: float = _share_recent(self._clock.seconds(start, end))
        return seconds

    def _share(self, value: T) -> T:
        """The equal value that other records have, if there is one, to save memory."""
        shared: T = self._shared.setdefault(value, value)
        return shared

    # --- executions ---------------------------------------------------------------------

    def _executions(
        self,
        history: JobHistory,
        fields: Mapping[str, Any],
        attempts: Mapping[int, int],
        places: Sequence[SiteAndGpu],
        final: int | None,
    ) -> Iterable[Execution]:
        if not history.executions:
            return
        sent = _shares([e.bytes_sent for e in history.executions], history.bytes_sent)
        received = _shares([e.bytes_received for e in history.executions], history.bytes_received)
        idle, inputs = IdleTimes(history), InputTransfers(history)
        previous: LoggedExecution | None = None
        carried = 0.0
        for index, execution in enumerate(history.executions):
            machine, gpus = execution.machine, execution.gpus
            device = machine.device if machine else None
            seconds = self.seconds(execution.start, execution.end) or 0.0
            since = previous.end if previous is not None and previous.end else history.submitted
            wait, transfer = self._wait_and_transfer(idle, inputs, since, execution.start)
            checkpoint, stored = execution.checkpoint, 0.0
            if checkpoint is not None:
                stored = seconds
                if checkpoint != execution.end:
                    stored = min(seconds, self.seconds(execution.start, checkpoint) or 0.0)
            bad = execution.outcome not in (_GOOD, _IN_FLIGHT) and (
                checkpoint is None or stored < seconds
            )
            held = execution.held_by if bad else None
            suspended = 0.0
            for span in execution.suspensions:
                suspended += self.seconds(*span) or 0.0
            site, gpu = places[index]
            # Interned: each slot name yields a new string for its host.
            host = host_of(machine) if machine else None
            if machine is not None and machine.alias and site:
                self._note_host_site(machine.alias, site)
            previous = execution
            yield Execution(
                **fields,
                attempt=attempts[id(execution)],
                site=site,
                host=self._share(host),
                annex=machine.annex if machine else None,
                gpu=gpu,
                gpus=gpus,
                device=self._share(device),
                start=execution.start,
                end=execution.end,
                seconds=seconds,
                suspended=suspended,
                checkpoint=checkpoint,
                stored=stored,
                carried=carried,
                outcome=execution.outcome,
                code=execution.code,
                subcode=execution.subcode,
                cause=self._share(execution.cause) if bad else None,
                reason=_share_recent(execution.reason),
                return_value=execution.return_value,
                signal=execution.signal,
                uncertain=execution.uncertain,
                wait=wait,
                transfer=transfer,
                bytes_sent=sent[index],
                bytes_received=received[index],
                final=index == final,
                cpus=execution.cpus,
                usage=_share_recent(execution.usage),
                held_cause=None if held is None else self._hold_cause(held.code, held.reason),
            )
            carried += stored

    def _wait_and_transfer(
        self,
        idle: IdleTimes,
        inputs: InputTransfers,
        since: datetime | None,
        until: datetime,
    ) -> tuple[float | None, float | None]:
        """Seconds idle before an execution, and seconds of its input transfer."""
        span = inputs.last(since, until)
        transfer = self.seconds(span.start, span.end) if span is not None else None
        if since is None:
            return None, transfer
        spans = idle.between(since, until)
        return sum([self.seconds(start, end) or 0.0 for start, end in spans], 0.0), transfer

    def _note_host_site(self, alias: str, site: str) -> None:
        """Store the site of a host; records that were built without it are stale."""
        sites = self._host_sites.setdefault(alias, set())
        if site not in sites:
            sites.add(site)
            self._stale.update(self._owners_by_host.get(alias, ()))

    # --- transfers ----------------------------------------------------------------------

    def _transfers(
        self,
        history: JobHistory,
        fields: Mapping[str, Any],
        starts: StartTimes,
        owner_key: NodeKey | JobKey,
    ) -> Iterable[Transfer]:
        for span in history.transfers:
            yield Transfer(
                job=fields["job"],
                key=fields["key"],
                epoch=fields["epoch"],
                direction=span.direction,
                start=span.start,
                end=span.end,
                seconds=None if span.start is None else self.seconds(span.start, span.end),
                outcome="in-flight" if span.outcome == "pending" else span.outcome,
                host=self._share(span.host),
                site=self._site_of(starts, span, owner_key),
                queue_seconds=span.queue_seconds,
                reuse=fields["reuse"],
            )

    def _site_of(
        self, starts: StartTimes, span: TransferSpan, owner_key: NodeKey | JobKey
    ) -> str | None:
        """The site of a transfer.

        For input it is the site of the execution that followed, for output that of the one before.
        Without such an execution, it is the site of the host in other executions.
        """
        place = None
        moment = span.end if span.start is None else span.start
        if span.direction == "output":
            place = starts.last_to(moment)
        elif span.outcome == "ok" and moment is not None:
            place = starts.first_after(moment)
            if place is None:
                return None
        if place is not None:
            return place[0]
        if not span.host:
            return None
        alias = alias_of(span.host) or ""
        self._owners_by_host.setdefault(alias, set()).add(owner_key)
        sites = self._host_sites.get(alias, set())
        if len(sites) == 1:
            return next(iter(sites))
        return None if sites else self._names.site_of_address(span.host)

    # --- the job ------------------------------------------------------------------------

    def _job(
        self,
        job: LoggedJob,
        history: JobHistory,
        fields: Mapping[str, Any],
        starts: StartTimes,
        executions: tuple[Execution, ...],
        transfers: tuple[Transfer, ...],
    ) -> Job:
        used = (each.usage for each in reversed(executions) if each.usage)
        usage = next(used, None) or resource_usage(history.usage)
        peaks = [job.memory_max, *(each.usage.memory_mb for each in executions if each.usage)]
        if usage is not None:
            peaks.append(usage.memory_mb)
        memory = max((peak for peak in peaks if peak is not None), default=None)
        entered = tuple([state for _, state in history.states])
        if history.state in TERMINAL:
            entered = self._share(entered)
        return Job(
            **fields,
            state=history.state or State.IDLE,
            since=history.since,
            submitted=history.submitted,
            ended=history.since if history.state in TERMINAL else None,
            node_name=job.node_name if fields["in_dag"] == NO_DAG else fields["node"],
            entered_states=entered,
            entered_at=tuple([time for time, _ in history.states]),
            executions=executions,
            transfers=transfers,
            holds=tuple(self._holds(history, starts)) if history.holds else (),
            bytes_sent=history.bytes_sent,
            bytes_received=history.bytes_received,
            bytes_at=_bytes_at(history),
            memory_mb=None if memory is None else int(memory),
            usage=usage,
            # A restarted schedd repeats the 001 of jobs that it runs itself.
            gaps=()
            if fields["at_access_point"]
            else tuple([(line, text) for line, _, text in history.gaps]),
            removal=self._share(history.removal),
        )

    def _holds(self, history: JobHistory, starts: StartTimes) -> Iterable[Hold]:
        # By index, not by time: the eviction that a hold causes has the same second.
        held_at = [i for i, (_, state) in enumerate(history.states) if state is State.HELD]
        ends = [history.states[i + 1][0] if i + 1 < len(history.states) else None for i in held_at]
        find_state = latest_by([history.states[i][0] for i in held_at])
        for when, held in history.holds:
            hold_index = find_state(when)
            end = None if hold_index is None else ends[hold_index]
            site, gpu = starts.last_to(when) or (None, None)
            code, reason = (held.code, held.reason) if held else (None, None)
            yield Hold(
                start=when,
                end=end,
                seconds=self.seconds(when, end) or 0.0,
                code=code,
                subcode=held.subcode if held else None,
                cause=self._hold_cause(code, reason),
                site=site,
                gpu=gpu,
                reason=_share_recent(reason),
            )

    def _hold_cause(self, code: int | None, reason: str | None) -> str:
        return self._share(cause_of(Outcome.HELD, code, reason, None, None))


def _with_inferred_ends(
    histories: Histories,
    owner: JobNode,
    as_of: datetime | None,
    completion: Completion | None,
) -> Histories:
    """The jobs of a node, with ends that the log lacks (:func:`with_inferred_ends`)."""
    find_successor = _successors(histories) if owner.in_dag and len(histories) > 1 else None
    inferred: dict[JobKey, tuple[LoggedJob, JobHistory]] = {}
    for key, (job, history) in histories.items():
        is_open = history.state in ACTIVE
        successor = find_successor(key, history.last) if find_successor and is_open else None
        outcome = Outcome.EVICTED
        if successor is None and is_open and completion is not None:
            if history.last is None or history.last <= completion.time:
                successor = completion.time
            # Of several submissions, which one did it is not known.
            if completion.by_job and len(set(map(_submission, histories))) == 1:
                outcome = Outcome.GOOD
        if successor is not None or any(each.disconnected for each in history.executions):
            ended = with_inferred_ends(history, as_of, owner.lease_seconds, successor, outcome)
            inferred[key] = job, ended
    return {**histories, **inferred} if inferred else histories


def _successors(histories: Histories) -> Callable[[JobKey, datetime | None], datetime | None]:
    """Return a function that finds when the next job of the node was submitted after a moment.

    Only jobs that have left the queue count: while a job is in the queue, the one before may be.
    """
    first: dict[tuple[int, int], datetime] = {}
    queued = {_submission(key) for key, (_, each) in histories.items() if each.state in ACTIVE}
    for key, (_, history) in histories.items():
        submission = _submission(key)
        if history.submitted is not None and submission not in queued:
            first[submission] = min(history.submitted, first.get(submission, history.submitted))
    submissions = sorted((time, submission) for submission, time in first.items())
    times = [time for time, _ in submissions]

    def find(key: JobKey, last: datetime | None) -> datetime | None:
        start = 0 if last is None else bisect_right(times, last)
        own = _submission(key)
        later = (time for time, each in submissions[start : start + 2] if each != own)
        return next(later, None)

    return find


def _submission(key: JobKey) -> tuple[int, int]:
    """The submission of a job: its cluster, whose number may be used again, without the proc."""
    return key[0], key[2]


def _ended_well(history: JobHistory) -> list[LoggedExecution]:
    """The executions of a SERVICE node whose DAG has ended: one that this ended counts as good."""
    *earlier, last = history.executions
    if last.end is None or history.since is None or history.since - last.end > SAME_MOMENT:
        return history.executions
    return [*earlier, replace(last, outcome=Outcome.GOOD, held_by=None, checkpoint=None)]


def _attempts(histories: Histories) -> dict[int, int]:
    """The attempt number of each execution (by ``id``) within its node, from 1.

    The procs of one submission are one attempt: their first executions have the same number.
    """
    if len(histories) == 1:
        ((_, history),) = histories.values()
        if len(history.executions) == 1:
            return {id(history.executions[0]): 1}
        order = sorted(history.executions, key=lambda execution: execution.start)
        return {id(execution): number for number, execution in enumerate(order, start=1)}
    by_submission: dict[tuple[int, int], list[Sequence[LoggedExecution]]] = {}
    for key, (_, history) in histories.items():
        if history.executions:
            by_submission.setdefault(_submission(key), []).append(history.executions)
    starts = sorted(
        (min(each[index].start for each in procs if index < len(each)), submission, index)
        for submission, procs in by_submission.items()
        for index in range(max(map(len, procs)))
    )
    return {
        id(executions[index]): number
        for number, (_, submission, index) in enumerate(starts, start=1)
        for executions in by_submission[submission]
        if index < len(executions)
    }


def _bytes_at(history: JobHistory) -> datetime | None:
    """When the bytes of a job were last reported: they are counted at that time."""
    if history.bytes_sent is None and history.bytes_received is None:
        return None
    ends = [
        execution.end
        for execution in history.executions
        if execution.end is not None and execution.bytes_sent is not None
    ]
    # Without an execution, an eviction reported them before the job ever ran. Its newest event
    # does not count, since it may be a memory update of a later attempt.
    return max(ends, default=None) or history.bytes_at or history.submitted


def _shares(own: list[int | None], total: int | None) -> list[int | None]:
    """The bytes of each execution: its own ``Run Bytes``.

    The last one also gets the rest of the job's total (a run that began under another shadow is in
    the total only). A single one has the same object as the total, which saves memory.
    """
    if own == [total]:
        return [total]
    remainder = 0 if total is None else total - sum(value or 0 for value in own)
    return [*own[:-1], (own[-1] or 0) + remainder] if remainder else own


# Look-ups by time in a job's history are bisections: a job may be held or started thousands of
# times, and its events need not be in chronological order.


def latest_by(times: Sequence[datetime]) -> Callable[[datetime], int | None]:
    """Return a function that finds the greatest index of a time not after a given moment."""
    order = sorted(range(len(times)), key=times.__getitem__)
    sorted_times, greatest = [times[index] for index in order], list(accumulate(order, max))

    def find(moment: datetime) -> int | None:
        count = bisect_right(sorted_times, moment)
        return greatest[count - 1] if count else None

    return find


class IdleTimes:
    """The idle intervals of a job; the last one may be open."""

    def __init__(self, history: JobHistory) -> None:
        states = history.states
        spans = [
            (start, end) for (start, state), (end, _) in pairwise(states) if state is State.IDLE
        ]
        spans.sort()
        self._spans = spans
        self._open = states[-1][0] if states and states[-1][1] is State.IDLE else None
        self._starts = [start for start, _ in spans]
        self._ends = list(accumulate([end for _, end in spans], max))

    def between(self, since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
        """The parts of the idle intervals between two moments."""
        if until <= since:
            return []
        first, after = bisect_right(self._ends, since), bisect_left(self._starts, until)
        parts = [
            (max(start, since), min(end, until))
            for start, end in self._spans[first:after]
            if end > since
        ]
        if self._open is not None and self._open < until:
            parts.append((max(self._open, since), until))
        return parts


class StartTimes:
    """The places of a job's executions, by start time."""

    def __init__(self, executions: Sequence[LoggedExecution], places: Sequence[SiteAndGpu]) -> None:
        self._places = places
        starts = [execution.start for execution in executions]
        self._last = latest_by(starts)
        order = sorted(range(len(starts)), key=starts.__getitem__)
        self._sorted = [starts[index] for index in order]
        self._smallest = list(accumulate(reversed(order), min))[::-1]
        self._first_open = next(
            (index for index, execution in enumerate(executions) if execution.end is None), None
        )

    def last_to(self, moment: datetime | None) -> SiteAndGpu | None:
        """The place of the last execution in the log that started by ``moment``; None: of all."""
        if moment is None:
            return self._places[-1] if self._places else None
        index = self._last(moment)
        return None if index is None else self._places[index]

    def first_after(self, moment: datetime) -> SiteAndGpu | None:
        """The place of the first execution in the log that started by then or later, or is open."""
        after = bisect_left(self._sorted, moment)
        indices = [*self._smallest[after : after + 1]]
        if self._first_open is not None:
            indices.append(self._first_open)
        return self._places[min(indices)] if indices else None


class InputTransfers:
    """The successful input transfers of a job."""

    def __init__(self, history: JobHistory) -> None:
        spans = [
            (span.start, index, span)
            for index, span in enumerate(history.transfers)
            if span.direction == "input" and span.outcome == "ok" and span.start is not None
        ]
        spans.sort(key=itemgetter(0, 1))
        self._spans = spans
        self._starts = [start for start, _, _ in spans]

    def last(self, since: datetime | None, until: datetime) -> TransferSpan | None:
        """The last transfer in the log that started between two moments."""
        first = 0 if since is None else bisect_left(self._starts, since)
        after = bisect_right(self._starts, until)
        found = self._spans[first:after]
        return max(found, key=itemgetter(1))[2] if found else None


# --- executions that ended with their annex -------------------------------------------

TOGETHER: Final = timedelta(seconds=30)
"""Evictions of one expiry come within this time: a fast shutdown takes 2 to 6 seconds."""

QUIET: Final = timedelta(minutes=10)
"""Nothing starts in an expired annex afterwards; jobs that a site evicts start again there."""

LATE: Final = timedelta(minutes=2)
"""Maximum time from the known end of an annex to an eviction."""

MIN_AT_SITE: Final = 3
MIN_IN_ANNEX: Final = 2
"""Minimum evictions at a site without AnnexName, and in an annex: fewer may be a coincidence."""

SHUTDOWN_CODES: Final = frozenset({1005, 1013})
"""Vacate codes of a startd that shuts down: JobShouldRequeue, StartdShutdown."""

Place: TypeAlias = tuple[str | None, str | None]
"""Site and annex."""


def _place_of(execution: Execution) -> Place:
    return execution.site, execution.annex


def _may_be_expiry(execution: Execution) -> bool:
    """Whether an execution ended like those in an expiring annex."""
    outcome, code = execution.outcome, execution.code
    if outcome is not Outcome.EVICTED and outcome is not Outcome.RECONNECT_FAILED:
        return False
    if execution.held_cause is not None or execution.uncertain or execution.at_access_point:
        return False
    if not execution.lost:
        return False
    if outcome is Outcome.RECONNECT_FAILED:
        return True
    return code in SHUTDOWN_CODES if code else not execution.reason


def _find_expiries(
    evicted: Sequence[Execution],
    jobs: Iterable[Job],
    ends: Mapping[str, Iterable[datetime]],
    as_of: datetime | None,
) -> dict[ExecutionId, str]:
    """The causes of executions that ended because their annex expired.

    This is certain if the log has AnnexName and the end of that annex is known. Else it is
    inferred, by a rule strict enough for any site: all jobs there, at least several, were evicted
    within seconds, as by a startd that shuts down; none was evicted elsewhere; and none started
    there for a while.

    ``evicted``: all executions of the jobs for which :func:`_may_be_expiry` is true. ``ends``:
    known ends of annexes in local time, by name in lower case.
    """
    found = dict.fromkeys(_infer_expiries(evicted, jobs, as_of), ANNEX_EXPIRED_INFERRED)
    for execution in evicted if ends else ():
        own_ends = ends.get((execution.annex or "").casefold(), ())
        if any(-TOGETHER <= _evicted_at(execution) - end <= LATE for end in own_ends):
            found[execution.id] = ANNEX_EXPIRED
    return found


def _infer_expiries(
    evicted: Sequence[Execution], jobs: Iterable[Job], as_of: datetime | None
) -> Iterator[ExecutionId]:
    """The executions that probably ended because their annex expired."""
    by_place: defaultdict[Place, list[Execution]] = defaultdict(list)
    for execution in evicted:
        if (place := _place_of(execution)) != (None, None):
            by_place[place].append(execution)
    groups: dict[Place, list[list[Execution]]] = {}
    for place, executions in by_place.items():
        minimum = MIN_AT_SITE if place[1] is None else MIN_IN_ANNEX
        if enough := [group for group in _evicted_together(executions) if len(group) >= minimum]:
            groups[place] = enough
    if not groups:
        return
    ends = sorted(map(_evicted_at, evicted))
    there: dict[Place, list[Execution]] = {place: [] for place in groups}
    for execution in chain.from_iterable(job.executions for job in jobs):
        place = _place_of(execution)
        if place in there and not execution.at_access_point:
            there[place].append(execution)
    for place, of_place in groups.items():
        work = _PlaceActivity(there[place])
        for group in of_place:
            first, last = _evicted_at(group[0]), _evicted_at(group[-1])
            if place[1] is None:
                near = bisect_right(ends, last + TOGETHER) - bisect_left(ends, first - TOGETHER)
                undecided = as_of is None or as_of < last + QUIET
                if near > len(group) or undecided:
                    continue
            if not work.continues(first, last):
                yield from (execution.id for execution in group)


class _PlaceActivity:
    """The executions at one place, indexed by time."""

    def __init__(self, executions: Iterable[Execution]) -> None:
        spans = sorted((execution.start, execution.end or datetime.max) for execution in executions)
        self._starts = [start for start, _ in spans]
        self._latest_ends = list(accumulate((end for _, end in spans), max))

    def continues(self, first: datetime, last: datetime) -> bool:
        """Whether any survives the evictions from ``first`` to ``last``, or starts soon after."""
        later = bisect_right(self._starts, first)
        if later < len(self._starts) and self._starts[later] <= last + QUIET:
            return True
        return later > 0 and self._latest_ends[later - 1] > last


def _evicted_at(execution: Execution) -> datetime:
    return execution.end or execution.start


def _evicted_together(executions: Iterable[Execution]) -> Iterator[list[Execution]]:
    """Yield groups of evictions in order of time, each within TOGETHER of the group's first."""
    group: list[Execution] = []
    for execution in sorted(executions, key=_evicted_at):
        if group and _evicted_at(execution) - _evicted_at(group[0]) > TOGETHER:
            yield group
            group = []
        group.append(execution)
    if group:
        yield group


# --- totals ---------------------------------------------------------------------------

# Sums are in whole microseconds (times whole GPUs), so that they do not depend on the order of the
# summands.

SECOND: Final = 1_000_000
AN_HOUR: Final = 3600 * SECOND
"""An hour in microseconds, the resolution of the logs."""


class ExecutionTotals:
    """Numbers of executions, and their time by outcome in microseconds of the hour ``unit``.

    ``executions``, ``good_executions``, ``bad_executions``: those that ended in the window of
    the executions, or are in flight; good are those that ended well or stored a checkpoint.
    ``completed``: epochs that they completed.
    """

    __slots__ = (
        "bad",
        "bad_executions",
        "completed",
        "executions",
        "good",
        "good_executions",
        "in_flight",
        "unit",
    )

    def __init__(self, unit: HourUnit, executions: Iterable[Execution] = ()) -> None:
        self.unit = unit
        self.executions = self.good_executions = self.bad_executions = self.completed = 0
        self.good = self.bad = self.in_flight = 0
        for execution in executions:
            self.add(execution)

    def add(self, execution: Execution) -> None:
        """Add an execution."""
        factor, outcome = self.unit.weight(execution) or 0, execution.outcome
        time = round(execution.seconds * SECOND) * factor
        if outcome is _IN_FLIGHT:
            self.in_flight += time
        elif outcome is _GOOD:
            self.good += time
        else:
            lost = round(execution.lost * SECOND) * factor
            self.good += time - lost
            self.bad += lost
        if execution.counted:
            self.executions += 1
            self.completed += execution.final
            if execution.delivered:
                self.good_executions += 1
            elif outcome is not _IN_FLIGHT:
                self.bad_executions += 1

    def merge(self, other: ExecutionTotals) -> None:
        """Add the totals of other executions, in the same unit."""
        for name in self.__slots__:
            if name != "unit":
                setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def hours(self) -> GpuHours:
        """The time in hours."""
        return GpuHours(
            self.good / AN_HOUR, self.bad / AN_HOUR, self.in_flight / AN_HOUR, self.unit
        )


class Totals:
    """The totals of jobs, in the hour unit of all of them.

    ``queued``: the jobs in the queue. ``gaps``: those whose log lacks events. Time at the access
    point is not charged.
    """

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self.queued: list[JobKey] = []
        self.gaps: list[JobKey] = []
        charged: list[Execution] = []
        # One pass that reads every record once: most of the time goes into fetching them.
        for job in jobs:
            if job.ended is None and job.queued:
                self.queued.append(job_key(job))
            if job.gaps:
                self.gaps.append(job_key(job))
            charged += [each for each in job.executions if not each.at_access_point]
        self.hour_unit = unit = hour_unit_of(charged)
        self.total = ExecutionTotals(unit)
        self.runs: defaultdict[str | None, ExecutionTotals]
        self.runs = defaultdict(lambda: ExecutionTotals(unit))
        for execution in charged:
            self.runs[execution.key].add(execution)
        for of_run in self.runs.values():
            self.total.merge(of_run)
        self.queued.sort()
        self.gaps.sort()
