"""Runs, node states, entries and totals of an ensemble, updated incrementally.

A snapshot (:mod:`metlmon.snapshot.builder`) reads them. An update costs as much as has changed
since the last one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from metlmon.dagman import NodeKind
from metlmon.model.attribution import Attribution
from metlmon.model.dag import named_by
from metlmon.model.dag_reports import MAX_UNKNOWN_NODES
from metlmon.model.ensemble import Ensemble
from metlmon.model.job_events import NO_DAG, Job, JobKey, NodeKey, NodeRecord
from metlmon.model.node import NodeFailure, NodeState, SubmissionResult, submission_result
from metlmon.model.node_states import NodeStateTable, has_failed
from metlmon.model.run import (
    DagAbort,
    DagSubmission,
    Run,
    Runs,
    RunState,
    is_epoch,
    resolve_run,
    variable,
)
from metlmon.model.sites import NameTable, misses_target, normalize_name
from metlmon.model.states import ACTIVE, ALIVE, DONE, FAILED_JOB, DagState, State
from metlmon.snapshot.entries import NO_OWNER, EntryFactory
from metlmon.snapshot.ledger import EpochEntry, ExecutionEntry, JobOwner
from metlmon.snapshot.totals import EntryStore, JobEntries, LedgerTotals
from metlmon.snapshot.types import RunRow

K = TypeVar("K")

JOBS_PER_STEP: Final = 8
NODES_PER_STEP: Final = 200
"""Jobs posted and nodes resolved between two checks of the clock: some milliseconds."""

SPECIAL_KINDS: Final = frozenset({NodeKind.PROVISIONER, NodeKind.SERVICE, NodeKind.FINAL})

KINDS_WITHOUT_JOB: Final = frozenset({NodeKind.JOIN, NodeKind.SUBDAG})
"""Kinds of nodes that run on no machine."""

LOCAL_UNIVERSES: Final = frozenset({"local", "12", "scheduler", "7"})
"""Universes of jobs that the schedd runs itself. Manual: "Choosing an HTCondor Universe"."""

SUBMITTED: Final = ACTIVE | {State.POST, State.FAILED, State.REMOVED, State.RETRYING}
"""States of a node that had a job, unless its PRE script or submission failed."""

FAULTY: Final = FAILED_JOB | {State.HELD, State.FUTILE}

_SPECIAL_ORDER: Final = (
    NodeKind.PROVISIONER,
    NodeKind.SERVICE,
    NodeKind.JOB,
    NodeKind.SUBDAG,
    NodeKind.FINAL,
)
"""The order in which DAGMan runs them."""

MOST_SPECIAL: Final = 30
"""Special nodes in a snapshot; the node tree has all of them."""


class DagNodeCounts:
    """Node counts of one DAG, as DAGMan counts: without SERVICE nodes."""

    __slots__ = ("done", "failed", "total", "unknown")

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self.unknown = 0


class PostedNode(NamedTuple):
    """What the entries of a node were built from.

    ``success``: the execution that completes it. ``is_final``: its entry says so.
    """

    jobs: tuple[JobKey, ...]
    success: tuple[JobKey, int] | None
    is_final: bool


class RunEntries(NamedTuple):
    """The entries of a run's epochs, and the time of its first submission."""

    epochs: tuple[EpochEntry, ...]
    began: datetime | None


class Aggregates:
    """Runs, node states, entries and totals of an ensemble with unchanged DAGs.

    It is not thread-safe, like the ensemble itself. When the DAGs or the clock change,
    :meth:`renewed` returns a new object: a snapshot that is still shown goes on using its own.
    ``rows`` caches the rows of runs that have not changed.
    """

    def __init__(self, ensemble: Ensemble, ends: dict[str, list[datetime]] | None = None) -> None:
        self.ensemble = ensemble
        # DAG files that are read again make the ensemble replace these.
        self.dags, self.nodes = ensemble.dags, ensemble.nodes
        self.attributions = ensemble.attributions
        self.runs = Runs(ensemble.dags, ensemble.settings, ensemble.groups.parts)
        ensemble.groups.new.clear()
        self.has_dags = self.dags.keys() != {NO_DAG}
        self.states: dict[NodeKey, NodeState] = {}
        self.run_states: dict[str, RunState] = {}
        self.rows: dict[str, RunRow] = {}
        self.node_states: Counter[State] = Counter()
        self.epoch_states: Counter[State] = Counter()
        """States of the nodes that count for an epoch."""
        self.other_states: Counter[State] = Counter()
        """Nodes that train nothing."""
        self.runless_states: dict[str, Counter[State]] = {}
        """By top-level DAG the nodes of no run, without SERVICE nodes."""
        self.counts = {key: DagNodeCounts(dag.node_count) for key, dag in self.dags.items()}
        self.targets = self._targets_by_dag()
        self.overruled: set[NodeKey] = set()
        """Completed nodes whose job failed, but whose POST script succeeded."""
        self.failed_without_job: dict[NodeKey, NodeFailure] = {}
        """Failed or retrying nodes whose reason is not in any job's events."""
        self.unlogged: set[NodeKey] = set()
        """Nodes whose job ran, or was submitted, but has no execution in any log here: the log
        is missing, or begins later. No total includes them."""
        self.faulty: set[NodeKey] = set()
        """Nodes that are held, failed, removed or futile."""
        self.special_nodes = self._special_nodes()
        """PROVISIONER, SERVICE and FINAL nodes, and with runs the nodes outside them."""
        self.ambiguous: set[JobKey] = set()
        self.unknown_nodes: dict[str, set[str]] = {}
        """By DAG, node names in its nodes.log that are not in its file; under the empty key, epochs
        in a user log that are in no DAG file."""
        self.totals = LedgerTotals()
        self.entries = EntryStore(self.totals, ends or {})
        self.changed_runs: set[str] = set()
        """Keys of runs whose epochs have changed since their entries were built."""
        self.run_entries: dict[str, RunEntries] = {}
        self._names = NameTable(ensemble.settings)
        self._factory = EntryFactory(self._names, ensemble.clock)
        self._posted: dict[NodeKey, PostedNode] = {}
        self._owners: dict[NodeKey, JobOwner] = {}
        self._run_names: dict[str, tuple[str, str | None]] = {}
        self._failed: set[NodeKey] = set()
        self._side_states: Counter[State] = Counter()
        self._submitted: dict[str, DagSubmission] = {}
        self._dag_order = {key: position for position, key in enumerate(self.dags)}
        self._node_tables: dict[str, NodeStateTable] = {}
        self._alive: set[str] = set()
        self._unresolved_runs: set[str] = set()
        self.aborts: dict[str, DagAbort] = {}
        """By DAG what ended it, for sub-DAGs also what ended the DAG that contains them."""
        ensemble.changed_jobs.update(ensemble.jobs)
        ensemble.all_changed = False

    def renewed(self) -> Aggregates:
        """This object, or a new one if the DAGs or the clock of the ensemble have changed."""
        is_current = self.dags is self.ensemble.dags and not self.ensemble.all_changed
        return self if is_current else Aggregates(self.ensemble, self.entries.expiries.ends)

    def update(self, live: bool, seconds: float | None = None) -> bool:
        """Post changed jobs, and resolve changed nodes and runs, for about ``seconds``.

        ``live``: an ensemble is running here. Returns False while some are left.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        nodes = None if seconds is None else NODES_PER_STEP
        steps = chain(self._job_steps(), self._node_steps(live, nodes))
        return all(deadline is None or time.monotonic() < deadline for _ in steps)

    def post_jobs(self, seconds: float | None = None) -> bool:
        """Post the changed jobs alone, which needs no node's state."""
        deadline = None if seconds is None else time.monotonic() + seconds
        return all(deadline is None or time.monotonic() < deadline for _ in self._job_steps())

    def is_unfinished(self) -> bool:
        """True while anything may still be running.

        A DAGMan without a reported end; if no DAG was ever submitted, a job in the queue.
        """
        tops = [dag for dag in self.ensemble.dags.values() if dag.is_top and dag.key != NO_DAG]
        states = [self.ensemble.dag_state(dag.key)[0] for dag in tops]
        if any(state in ALIVE or state is DagState.UNKNOWN for state in states):
            return True
        if any(state is not DagState.NOT_SUBMITTED for state in states):
            return False
        self.post_jobs()
        return bool(self.totals.queued)

    # --- look-ups -----------------------------------------------------------------------

    def target(self, key: NodeKey | None) -> str | None:
        """The target of a node.

        The site assigned to it while the DAG ran, else the one in its VARS.
        """
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

    def node_of(self, job: Job) -> NodeKey | None:
        """The node of a job; None where it is not known."""
        attribution = self.attributions.get(job.key)
        return attribution.node_key if attribution is not None else None

    def dag_file(self, key: str) -> str:
        """The file of the top-level DAG of a DAG."""
        dag = self.dags[key]
        return self.dags[dag.top].file if dag.top in self.dags else dag.file

    def naming_node(self, run: Run) -> NodeKey:
        """The node that gives a run its name and its DAG: that of its latest epoch.

        All nodes of the run go by that name, also those that another DAG or splice names
        differently.
        """
        run_state = self.run_states.get(run.key)
        if run_state is None:
            return run.nodes()[0]
        return run_state.latest or next(iter(run_state.epochs.values()), None) or run.nodes()[0]

    def submission_result(self, key: NodeKey) -> SubmissionResult | None:
        """The combined result of the submissions of a node."""
        if self.nodes is self.ensemble.nodes:
            return self.ensemble.states.submission_result(key)
        return submission_result(self.nodes[key])

    def job_entries(self, job: Job) -> JobEntries:
        """The entries of a job, also of one that counts nowhere (of a NOOP node)."""
        entries = self.entries.get(job.key)
        if entries is None:
            histories = {job.key: (job, job.history())}
            ((_, entries),) = self._factory.build(histories, NO_OWNER, None, job.key)
        return entries

    def node_entries(self, key: NodeKey) -> list[JobEntries]:
        """The entries of a node's jobs, by job."""
        jobs = sorted(job.key for job in self.nodes[key].jobs)
        return [entries for job in jobs if (entries := self.entries.get(job)) is not None]

    def node_executions(self, key: NodeKey) -> list[ExecutionEntry]:
        """The executions of a node's jobs, by job."""
        return [each for entries in self.node_entries(key) for each in entries.executions]

    def run_names(self, run: Run) -> tuple[str, str | None]:
        """The name of a run, and its label."""
        name = run.names[self.naming_node(run)]
        labels = self.ensemble.settings.labels
        return name, next((rule.name for rule in labels if rule.matches(name, run.uuid)), None)

    def side_counts(self) -> tuple[int, int, int, int, int]:
        """Counts of side nodes: total, done, failed, overruled, removed."""
        states, parts = self._side_states, self.runs.parts
        removed = states[State.REMOVED]
        for key in self.faulty if self.aborts else ():
            # Those that an end on purpose removed have not failed.
            abort, state = self.aborts.get(key[0]), self.states[key]
            if abort is not None and abort.on_purpose and state.state is State.REMOVED:
                is_side = key in parts and not parts[key].training
                removed -= is_side and abort.ended(key, state)
        overruled = sum(key in parts and not parts[key].training for key in self.overruled)
        done = sum(states[state] for state in DONE)
        return states.total(), done, states[State.FAILED] + removed, overruled, removed

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

    # --- jobs ---------------------------------------------------------------------------

    def set_as_of(self, as_of: datetime | None) -> None:
        """Count what has not ended up to ``as_of``, and find the annexes that have expired."""
        if as_of != self._factory.as_of:
            self._count_up_to(as_of)
        self.entries.update_expiries(as_of)

    def _count_up_to(self, as_of: datetime | None) -> None:
        self._factory.as_of = as_of
        for key in list(self.totals.open):
            if (entries := self.entries.get(key)) is None:
                continue
            if any(state is State.SUSPENDED for _, state in entries.job.states):
                self._factory.stale.add(entries.job.key or key)
            else:
                self.entries.put(key, self._factory.at_as_of(entries))
            if entries.job.run is not None:
                self.changed_runs.add(entries.job.run)
        for _ in self._stale_steps():
            pass

    def _job_steps(self) -> Iterator[None]:
        """Post the changed jobs, step by step."""
        self._apply_targets()
        self._add_jobs_of_no_dag()
        changed, number = self.ensemble.changed_jobs, 0
        while changed:
            self._post_job(changed.pop(), changed)
            number += 1
            if number % JOBS_PER_STEP == 0:
                yield
        yield from self._stale_steps()

    def _stale_steps(self) -> Iterator[None]:
        stale = self._factory.stale
        while stale:
            key = stale.pop()
            if len(key) == 2:
                self._post_node(key)
            else:
                self._post_job(key, self.ensemble.changed_jobs)
            yield

    def _add_jobs_of_no_dag(self) -> None:
        groups = self.ensemble.groups
        for name in groups.new if NO_DAG in self.counts else ():
            self.runs.add_job(name, groups.parts[name])
            self.counts[NO_DAG].total += 1
        groups.new.clear()

    def is_beside(self, key: NodeKey) -> bool:
        """Is this a job of no DAG in a directory with DAGs? Then it counts as no node."""
        return key[0] == NO_DAG and self.has_dags

    def _apply_targets(self) -> None:
        """Apply new targets of nodes, whose jobs are posted again."""
        changed, self.ensemble.changed_targets = self.ensemble.changed_targets, set()
        nodes = [key for key in changed if key in self.nodes]
        if nodes:
            self.targets = self._targets_by_dag()
        for key in nodes:
            self._owners.pop(key, None)
            self._factory.stale.add(key)
            if (run := self.runs.by_node.get(key)) is not None and run.key in self.run_states:
                self._unresolved_runs.add(run.key)

    def _targets_by_dag(self) -> dict[str, frozenset[str]]:
        """The targets of each top-level DAG, by its key, normalized."""
        by_dag: dict[str, set[str]] = {}
        for key in self.nodes:
            target = self.target(key)
            if target:
                by_dag.setdefault(self.dags[key[0]].top, set()).add(normalize_name(target))
        return {dag: frozenset(names) for dag, names in by_dag.items()}

    def _post_job(self, key: JobKey, changed: set[JobKey]) -> None:
        """Post a job, with the other ``changed`` jobs of its node."""
        job = self.ensemble.jobs[key]
        node = self.node_of(job)
        if node is not None and node in self.nodes:
            self._post_node(node)
            changed.difference_update(self._posted[node].jobs)
        else:
            self._post_stray(job)

    def _note_unknown_node(self, job: Job, attribution: Attribution | None) -> None:
        """Store the node name of a job that is in no DAG file here.

        Only where its nodes.log shows its DAG, or where the name is that of an epoch.
        """
        name = job.node_name
        if attribution is None or name is None or attribution.foreign or attribution.candidates:
            return
        if attribution.dag is None and not is_epoch(name, self.ensemble.settings):
            return
        if not job.nodes_logs and not job.user_logs:
            return
        names = self.unknown_nodes.setdefault(attribution.dag or "", set())
        if len(names) < MAX_UNKNOWN_NODES:
            names.add(name)

    def _post_stray(self, job: Job) -> None:
        """Post a job of no node, or drop one of another directory's DAG."""
        key, attribution = job.key, self.attributions.get(job.key)
        self._note_unknown_node(job, attribution)
        if attribution is not None and attribution.foreign:
            self.ambiguous.discard(key)
            self.entries.put(key, None)
        elif not job.noop:
            _set_member(
                self.ambiguous, key, attribution is not None and bool(attribution.candidates)
            )
            histories = {key: (job, job.history())}
            for _, entries in self._factory.build(histories, NO_OWNER, None, key, self.entries.get):
                self.entries.put(key, entries)

    def _post_node(self, key: NodeKey) -> None:
        """Post a node's jobs together: the numbers of their attempts are interdependent."""
        record = self.nodes[key]
        for job in record.jobs:
            self.ambiguous.discard(job.key)
        result = self.submission_result(key)
        histories = {job.key: (job, job.history()) for job in record.jobs if not job.noop}
        success = result.success if result is not None else None
        state = self.states.get(key)
        # Until its state is resolved, a good last job is assumed to complete it.
        completes = state is None or state.state is State.COMPLETED
        is_final = self._trains(key) and success is not None and completes
        built = self._factory.build(
            histories=histories,
            owner=self._owner(key),
            success=success if is_final else None,
            user=key,
            previous=self.entries.get,
            is_service=record.node.kind is NodeKind.SERVICE,
        )
        for job_key, entries in built:
            self.entries.put(job_key, entries)
        self._posted[key] = PostedNode(_job_keys(record), success, is_final)
        self._mark_run(key)

    def _owner(self, key: NodeKey) -> JobOwner:
        owner = self._owners.get(key)
        if owner is None:
            owner = NO_OWNER if self.is_beside(key) else self._owner_of(self.nodes[key])
            self._owners[key] = owner
        return owner

    def _owner_of(self, record: NodeRecord) -> JobOwner:
        key = record.key
        run, part = self.runs.by_node.get(key), self.runs.parts.get(key)
        name, label = None, None
        if run is not None:
            if run.key not in self._run_names:
                self._run_names[run.key] = self.run_names(run)
            name, label = self._run_names[run.key]
        return JobOwner(
            dag=self.dag_file(key[0]) or None,
            in_dag=key[0],
            node=key[1],
            run=run.key if run else None,
            run_name=name,
            uuid=run.uuid if run else None,
            label=label,
            epoch=part.epoch if part else None,
            training=self._trains(key),
            target=self.target(key),
            dagman=record.node.kind is NodeKind.SUBDAG,
            target_annex=record.node.annex,
            lease=record.node.lease,
            at_access_point=record.node.kind is NodeKind.SUBDAG
            or record.node.universe in LOCAL_UNIVERSES,
        )

    def _mark_run(self, key: NodeKey) -> None:
        run = self.runs.by_node.get(key)
        if run is not None:
            self.changed_runs.add(run.key)

    # --- nodes and runs -----------------------------------------------------------------

    def _node_steps(self, live: bool, limit: int | None) -> Iterator[None]:
        """Resolve the changed nodes, at most ``limit`` in a step, and the changed runs."""
        for key in self.dags:
            while self._apply_node_table(key, self.ensemble.states.table(key, live, limit)):
                yield
        self._update_submitted(live)
        self._update_aborts()
        while self._unresolved_runs:
            self._update_run(self.runs.by_key[self._unresolved_runs.pop()])
            yield
        yield from self._stale_steps()

    def _update_aborts(self) -> None:
        """Update which DAGs were ended by ABORT-DAG-ON, with their sub-DAGs."""
        ensemble, aborts = self.ensemble, dict[str, DagAbort]()
        for key, dag in self.dags.items():
            name = ensemble.states.aborting_node(key)
            if name is not None:
                node, state = dag.workflow.nodes[name], ensemble.dag_state(key)[0]
                succeeded = node.abort_return == 0 and state is not DagState.FAILED
                since = self.states[key, name].since
                aborts[key] = DagAbort((key, name), node.abort_on, succeeded, since)
        named, pending = named_by(self.dags) if aborts else {}, list(aborts)
        while pending:
            outer = pending.pop()
            for inner, dags in named.items():
                state = ensemble.dag_state(inner)[0] if outer in dags else DagState.DONE
                if inner not in aborts and state not in (DagState.DONE, DagState.FAILED):
                    aborts[inner] = aborts[outer]
                    pending.append(inner)
        if aborts != self.aborts:
            changed = {key for key, _ in aborts.items() ^ self.aborts.items()}
            self._unresolved_runs.update(
                self.runs.by_node[key].key for key in self.runs.by_node if key[0] in changed
            )
            self.aborts = aborts

    def _update_submitted(self, live: bool) -> None:
        """Update which of the DAGs with the same epochs were submitted, and run.

        The epochs that a later DAG has not reached yet count for it from then on.
        """
        for key, runs in self.runs.shared_epochs.items():
            dag = self.dags[key]
            starts = dag.run_starts(self.ensemble.clock)
            if not starts:
                self._submitted.pop(key, None)
                continue
            submitted = DagSubmission(
                starts[-1], live and self.ensemble.states.end_state(dag) is None
            )
            if self._submitted.get(key) != submitted:
                self._submitted[key] = submitted
                self._unresolved_runs.update(runs)

    def _update_run(self, run: Run) -> None:
        """Update the state of a run.

        Each of its epochs counts once, however many DAGs contain it.
        """
        before, counts = self.run_states.get(run.key), not self.is_beside(run.nodes()[0])
        if before is not None and counts:
            self.epoch_states.subtract(before.states)
        context = self.states, self._dag_order, self._submitted, self._alive, self.aborts
        after = self.run_states[run.key] = resolve_run(run, *context)
        self.epoch_states.update(after.states if counts else ())
        self.rows.pop(run.key, None)
        self.changed_runs.add(run.key)
        names = self.run_names(run)
        if self._run_names.get(run.key, names) != names:
            for node in run.nodes():
                self._owners.pop(node, None)
                self._factory.stale.add(node)
        self._run_names[run.key] = names

    def _apply_node_table(self, dag: str, table: NodeStateTable) -> bool:
        """Apply the changes of a node table; returns whether nodes are left to resolve."""
        if self._node_tables.get(dag) is not table:
            self._node_tables[dag] = table
            (self._alive.add if table.alive else self._alive.discard)(dag)
            table.changed.update(table.states)
        for name in table.changed:
            key = (dag, name)
            self._apply_node_state(key, table.states[name])
            run = self.runs.by_node.get(key)
            if run is not None:
                self._unresolved_runs.add(run.key)
        table.changed.clear()
        return bool(table.pending)

    def _apply_node_state(self, key: NodeKey, state: NodeState) -> None:
        """Count a node's new state in place of its old one."""
        before, record = self.states.get(key), self.nodes[key]
        self.states[key] = state
        training = self._trains(key)
        if self._is_outdated(record, training and state.state is State.COMPLETED):
            self._post_node(key)
        if key in self.runs.parts and not training and not self.is_beside(key):
            self._side_states[state.state] += 1
            if before is not None:
                self._side_states[before.state] -= 1
        is_service = record.node.kind is NodeKind.SERVICE
        if before is None or before.state is not state.state:
            self._count_state(key, state.state, training, is_service, 1)
            if before is not None:
                self._count_state(key, before.state, training, is_service, -1)
        dag = self.dags[key[0]]
        failed = has_failed(state, dag.aborted and dag.facts.has_final) and not is_service
        self.counts[key[0]].failed += failed - (key in self._failed)
        _set_member(self._failed, key, failed)
        is_lost = state.failure is not None and state.failure.part == "lost"
        _set_member(self.faulty, key, state.state in FAULTY or is_lost)
        _set_member(self.overruled, key, self._is_overruled(record, state))
        _set_member(self.unlogged, key, self._is_unlogged(record, state))
        if state.failure is not None and not is_lost:
            self.failed_without_job[key] = state.failure
        else:
            self.failed_without_job.pop(key, None)

    def _trains(self, key: NodeKey) -> bool:
        """Is this node an epoch, or a job in a directory without DAGs?"""
        return key in self.runs.parts and self.runs.parts[key].training and not self.is_beside(key)

    def _is_outdated(self, record: NodeRecord, completed: bool) -> bool:
        """Are the entries of a node those of other jobs, or of another final state?"""
        posted = self._posted.get(record.key)
        if posted is None:
            return bool(record.jobs)
        has_other_end = posted.success is not None and posted.is_final is not completed
        return has_other_end or _job_keys(record) != posted.jobs

    def _count_state(
        self, key: NodeKey, state: State, training: bool, is_service: bool, delta: int
    ) -> None:
        if self.is_beside(key):
            return
        self.node_states[state] += delta
        if not training:
            self.other_states[state] += delta
        if key not in self.runs.parts and not is_service:
            self.runless_states.setdefault(self.dags[key[0]].top, Counter())[state] += delta
        if state in DONE and not is_service:
            self.counts[key[0]].done += delta
        if state is State.UNKNOWN:
            self.counts[key[0]].unknown += delta

    def _is_unlogged(self, record: NodeRecord, state: NodeState) -> bool:
        # A queued job has no execution yet; a job known from DAGMan only may have one.
        without_log = not record.jobs and state.failure is None and state.state in SUBMITTED
        node = record.node
        if not (state.state is State.COMPLETED or without_log):
            return False
        # Nodes that the DAG file marks DONE never run in this ensemble.
        if node.kind in KINDS_WITHOUT_JOB or node.noop or node.done:
            return False
        return not any(entries.executions for entries in self.node_entries(record.key))

    def _is_overruled(self, record: NodeRecord, state: NodeState) -> bool:
        completed_by_post = state.state is State.COMPLETED and state.job is not None
        if not completed_by_post or record.node.post is None:
            return False
        result = self.submission_result(record.key)
        return result is not None and result.state in FAILED_JOB

    def _special_nodes(self) -> list[NodeKey]:
        plain_kinds = (NodeKind.JOB, NodeKind.SUBDAG)
        keys = [key for key, record in self.nodes.items() if record.node.kind in SPECIAL_KINDS]
        if self.runs.by_key:
            keys += [
                key
                for key, record in self.nodes.items()
                if key not in self.runs.by_node and record.node.kind in plain_kinds
            ]
        # Cut before sorting, so that a FINAL node is kept rather than many plain ones.
        del keys[MOST_SPECIAL:]
        keys.sort(key=lambda key: _SPECIAL_ORDER.index(self.nodes[key].node.kind))
        return keys


def _job_keys(record: NodeRecord) -> tuple[JobKey, ...]:
    return tuple(sorted([job.key for job in record.jobs]))


def _set_member(keys: set[K], key: K, present: bool) -> None:
    (keys.add if present else keys.discard)(key)
