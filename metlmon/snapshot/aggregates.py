"""Incremental aggregates of an ensemble: runs, node states and totals.

A snapshot (:mod:`metlmon.snapshot.builder`) is built from them. An update costs as much as has
changed since the last one.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from metlmon.dagman import NodeKind
from metlmon.model.attribution import Attribution
from metlmon.model.dag import Dag
from metlmon.model.dag_reports import MAX_UNKNOWN_NODES
from metlmon.model.ensemble import Ensemble
from metlmon.model.job_events import JobKey, NodeKey, NodeRecord
from metlmon.model.node import NodeFailure, NodeState
from metlmon.model.node_states import NodeStateTable, has_failed
from metlmon.model.run import DagSubmission, Run, Runs, RunState, is_epoch, resolve_run
from metlmon.model.sites import NameTable, SiteAndGpu
from metlmon.model.states import ACTIVE, ALIVE, DONE, FAILED_JOB, DagState, State
from metlmon.snapshot.problems import ProblemIndex
from metlmon.snapshot.totals import NO_OWNER, LedgerTotals, Owner
from metlmon.snapshot.types import RunRow

JOBS_PER_CHECK: Final = 32
"""Jobs added between two checks of the clock: a millisecond."""

SPECIAL_KINDS: Final = frozenset({NodeKind.PROVISIONER, NodeKind.SERVICE, NodeKind.FINAL})

KINDS_WITHOUT_JOB: Final = frozenset({NodeKind.JOIN, NodeKind.SUBDAG})
"""Kinds of nodes that run on no machine."""

SUBMITTED: Final = ACTIVE | {State.POST, State.FAILED, State.REMOVED, State.RETRYING}
"""States of a node that had a job, unless its PRE script or submission failed."""

_SPECIAL_ORDER: Final = {
    kind: position
    for position, kind in enumerate(
        (
            NodeKind.PROVISIONER,
            NodeKind.SERVICE,
            NodeKind.JOB,
            NodeKind.SUBDAG,
            NodeKind.FINAL,
        )
    )
}
"""The order in which DAGMan runs them."""

MOST_SPECIAL: Final = 30
"""Special nodes in a snapshot; the node tree has all of them."""

NODES_PER_CHECK: Final = 200
"""Nodes resolved between two checks of the clock: some milliseconds."""


class StaleEntries(Protocol):
    """The nodes, and the jobs of no node, whose ledger entries are out of date."""

    nodes: set[NodeKey]
    strays: set[JobKey]


class DagNodeCounts:
    """Node counts of one DAG, as DAGMan counts: without SERVICE nodes."""

    __slots__ = ("done", "failed", "total", "unknown")

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self.unknown = 0


class Aggregates:
    """Runs, node states and totals of one ensemble.

    It is not thread-safe, like the ensemble itself.

    ``runs``, ``states``, ``run_states``, ``rows`` and ``totals`` are replaced, not cleared, when
    the DAGs change: a snapshot that is still shown goes on using its own. ``rows`` caches the rows
    of runs that have not changed.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.names = NameTable(ensemble.settings)
        self.ledger_builder: StaleEntries | None = None
        self._dags: Mapping[str, Dag] | None = None
        self._reset_nodes()
        self._reset_jobs()

    def _reset_nodes(self) -> None:
        ensemble = self.ensemble
        self._dags = ensemble.dags
        self.runs = Runs(ensemble.dags, ensemble.settings)
        self.states: dict[NodeKey, NodeState] = {}
        self.run_states: dict[str, RunState] = {}
        self._submitted: dict[str, DagSubmission] = {}
        self.rows: dict[str, RunRow] = {}
        self.node_states: Counter[State] = Counter()
        self.epoch_states: Counter[State] = Counter()
        """States of the nodes that count for an epoch."""
        self.other_states: Counter[State] = Counter()
        """Nodes that train nothing."""
        self.counts = {key: DagNodeCounts(dag.node_count) for key, dag in ensemble.dags.items()}
        self.targets = self._targets_by_dag()
        self._dag_order = {key: position for position, key in enumerate(ensemble.dags)}
        self._failed: set[NodeKey] = set()
        self.overruled: set[NodeKey] = set()
        """Completed nodes whose job failed, but whose POST script succeeded."""
        self.failed_without_job: dict[NodeKey, NodeFailure] = {}
        """Failed or retrying nodes whose reason is not in any job's events."""
        self.unlogged: set[NodeKey] = set()
        """Nodes whose job ran, or was submitted, but has no execution in any log here: the log
        is missing, or begins later. No total includes them."""
        self._side_states: Counter[State] = Counter()
        self._special = self._special_nodes()
        self._completion_sites: dict[NodeKey, SiteAndGpu] = {}
        self._node_tables: dict[str, NodeStateTable] = {}
        self._alive: set[str] = set()
        self._changed_runs: set[str] = set()
        self._owners: dict[NodeKey, Owner] = {}
        self.ledger_builder = None

    def _reset_jobs(self) -> None:
        self.ledger_builder = None
        self.totals = LedgerTotals(self.names, self.ensemble.clock)
        self.problems = ProblemIndex(self.ensemble.clock)
        self.ambiguous: set[JobKey] = set()
        self.unknown_nodes: dict[str, set[str]] = {}
        """By DAG, node names in its nodes.log that are not in its file; under the empty key, epochs
        in a user log that are in no DAG file."""
        self.ensemble.changed_jobs = set(self.ensemble.jobs)
        self.ensemble.all_changed = False
        for site_and_gpu in self._completion_sites.values():
            self.totals.count_completion(site_and_gpu, 1)

    def _targets_by_dag(self) -> Mapping[str, frozenset[str]]:
        """The targets of each top-level DAG, by its key, normalized."""
        ensemble = self.ensemble
        by_dag: dict[str, set[str]] = {}
        for key in ensemble.nodes:
            target = ensemble.target(key)
            if target:
                by_dag.setdefault(ensemble.dags[key[0]].top, set()).add(target)
        return {dag: frozenset(map(normalize_name, names)) for dag, names in by_dag.items()}

    def _apply_targets(self) -> None:
        """Apply new targets of nodes, whose jobs are added again."""
        changed, self.ensemble.changed_targets = self.ensemble.changed_targets, set()
        nodes = [key for key in changed if key in self.ensemble.nodes]
        if not nodes:
            return
        self.targets = self._targets_by_dag()
        for key in nodes:
            self._owners.pop(key, None)
            run = self.runs.by_node.get(key)
            if run is not None and run.key in self.run_states:
                self._changed_runs.add(run.key)
        if self.ledger_builder is not None:
            self.ledger_builder.nodes.update(nodes)

    def _set_node_table(self, dag: str, table: NodeStateTable) -> None:
        self._node_tables[dag] = table
        (self._alive.add if table.alive else self._alive.discard)(dag)

    # --- jobs ---------------------------------------------------------------------------

    def post_jobs(self, seconds: float | None = None) -> bool:
        """Add up the changed jobs, for about ``seconds``; False while some are left."""
        ensemble = self.ensemble
        if ensemble.dags is not self._dags:
            self._reset_nodes()
            ensemble.all_changed = True
        if ensemble.all_changed:
            self._reset_jobs()
        self._apply_targets()
        deadline = None if seconds is None else time.monotonic() + seconds
        stale = ensemble.changed_jobs
        while stale:
            for _ in range(min(JOBS_PER_CHECK, len(stale))):
                self._update_node(stale)
                if not stale:
                    return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return True

    def _update_node(self, stale: set[JobKey]) -> None:
        """Update one of the stale jobs, and the other stale jobs of its node.

        They are handled together because the node's result depends on all of them.
        """
        key = stale.pop()
        attribution = self.ensemble.attributions.get(key)
        record = None
        if attribution is not None and attribution.dag is not None and attribution.node is not None:
            record = self.ensemble.nodes.get((attribution.dag, attribution.node))
        if record is None:
            self._note_unknown_node(key, attribution)
            if attribution is not None and attribution.foreign:
                self._drop_job(key)
            else:
                self._update_job(key, NO_OWNER)
            if self.ledger_builder is not None:
                self.ledger_builder.strays.add(key)
            return
        owner = self._owner(record)
        self._update_job(key, owner)
        for job in record.jobs:
            other_key = (job.cluster, job.proc, job.subproc)
            if other_key in stale:
                stale.discard(other_key)
                self._update_job(other_key, owner)
        self.ensemble.submission_result(record.key)

    def _note_unknown_node(self, key: JobKey, attribution: Attribution | None) -> None:
        """Store the node name of a job that is in no DAG file here.

        Only where its nodes.log shows its DAG, or where the name is that of an epoch.
        """
        name = self.ensemble.jobs[key].node_name if key in self.ensemble.jobs else None
        if attribution is None or name is None or attribution.foreign or attribution.candidates:
            return
        if attribution.dag is None and not is_epoch(name, self.ensemble.settings):
            return
        names = self.unknown_nodes.setdefault(attribution.dag or "", set())
        if len(names) < MAX_UNKNOWN_NODES:
            names.add(name)

    def _update_job(self, key: JobKey, owner: Owner) -> None:
        job = self.ensemble.jobs.get(key)
        if job is None or job.noop:
            return
        attribution = self.ensemble.attributions.get(key)
        if attribution is not None and attribution.candidates:
            self.ambiguous.add(key)
        else:
            self.ambiguous.discard(key)
        self.totals.post(key, job, owner)
        self.problems.add_job(key, job, owner.run)

    def _drop_job(self, key: JobKey) -> None:
        """Remove a job of another directory's DAG."""
        self.ambiguous.discard(key)
        self.totals.drop(key)
        self.problems.drop_job(key)

    def _owner(self, record: NodeRecord) -> Owner:
        owner = self._owners.get(record.key)
        if owner is None:
            run = self.runs.by_node.get(record.key)
            owner = self._owners[record.key] = Owner(
                run.key if run is not None else None,
                self.ensemble.target(record.key),
                record.node.kind is NodeKind.SUBDAG,
            )
        return owner

    def is_unfinished(self) -> bool:
        """True while anything may still be running.

        This is a DAGMan whose end no file reports or, if no DAG was ever submitted, jobs of
        no DAG that are in the queue.
        """
        ensemble = self.ensemble
        tops = [dag for dag in ensemble.dags.values() if dag.is_top]
        states = [ensemble.dag_state(dag.key)[0] for dag in tops]
        if any(state in ALIVE or state is DagState.UNKNOWN for state in states):
            return True
        if any(state is not DagState.NOT_SUBMITTED for state in states):
            return False
        self.post_jobs()
        return bool(self.totals.queued)

    # --- nodes --------------------------------------------------------------------------

    def update_nodes(self, live: bool, seconds: float | None = None) -> bool:
        """Update the node states and the runs, for about ``seconds``.

        Returns False while some are left. ``live`` is as in :class:`SnapshotBuilder`.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        limit = None if seconds is None else NODES_PER_CHECK
        for key in self.ensemble.dags:
            while self._apply_node_table(key, self.ensemble.node_state_table(key, live, limit)):
                if deadline is not None and time.monotonic() >= deadline:
                    return False
        self._update_submitted(live)
        while self._changed_runs:
            self._update_run(self.runs.by_key[self._changed_runs.pop()])
            if deadline is not None and self._changed_runs and time.monotonic() >= deadline:
                return False
        return True

    def _update_submitted(self, live: bool) -> None:
        """Update which of the DAGs with the same epochs were submitted, and run.

        The epochs that a later DAG has not reached yet count for it from then on.
        """
        for key, runs in self.runs.shared_epochs.items():
            dag = self.ensemble.dags[key]
            starts = dag.run_starts(self.ensemble.clock)
            if not starts:
                self._submitted.pop(key, None)
                continue
            submitted = DagSubmission(starts[-1], live and self.ensemble.end_state(dag) is None)
            if self._submitted.get(key) != submitted:
                self._submitted[key] = submitted
                self._changed_runs.update(runs)

    def _update_run(self, run: Run) -> None:
        """Update the state of a run.

        Each of its epochs counts once, however many DAGs contain it.
        """
        before = self.run_states.get(run.key)
        if before is not None:
            self.epoch_states.subtract(before.states)
        context = self.states, self._dag_order, self._submitted, self._alive
        after = self.run_states[run.key] = resolve_run(run, *context)
        self.epoch_states.update(after.states)
        self.rows.pop(run.key, None)

    def _apply_node_table(self, dag: str, table: NodeStateTable) -> bool:
        """Apply the changes of a node table; returns whether nodes are left to resolve."""
        if self._node_tables.get(dag) is not table:
            self._set_node_table(dag, table)
            table.changed.update(table.states)
        changed = [(dag, name) for name in table.changed]
        table.changed.clear()
        for key in changed:
            self._count_node(key, table.states[key[1]])
            run = self.runs.by_node.get(key)
            if run is not None:
                self._changed_runs.add(run.key)
        if self.ledger_builder is not None:
            self.ledger_builder.nodes.update(changed)
        return bool(table.pending)

    def _count_node(self, key: NodeKey, state: NodeState) -> None:
        """Count a node's new state in place of its old one."""
        before = self.states.get(key)
        self.states[key] = state
        part = self.runs.parts.get(key)
        training = part is not None and part.training
        if part is not None and not training:
            self._side_states[state.state] += 1
            if before is not None:
                self._side_states[before.state] -= 1
        self._note_overruled(key, state)
        self._note_failure_without_job(key, state)
        self._note_unlogged(key, state)
        if before is None or before.state is not state.state:
            self._count_state(key, state.state, training, 1)
            if before is not None:
                self._count_state(key, before.state, training, -1)
        self._note_failure(key, state)
        if training:
            self._count_completion(key, state)

    def _count_state(self, key: NodeKey, state: State, training: bool, delta: int) -> None:
        self.node_states[state] += delta
        if not training:
            self.other_states[state] += delta
        if state in DONE and not self._is_service(key):
            self.counts[key[0]].done += delta
        if state is State.UNKNOWN:
            self.counts[key[0]].unknown += delta

    def _is_service(self, key: NodeKey) -> bool:
        return self.ensemble.nodes[key].node.kind is NodeKind.SERVICE

    def _note_failure(self, key: NodeKey, state: NodeState) -> None:
        dag = self.ensemble.dags[key[0]]
        failed = has_failed(state, dag.aborted and dag.has_final) and not self._is_service(key)
        if failed is not (key in self._failed):
            self.counts[key[0]].failed += 1 if failed else -1
            (self._failed.add if failed else self._failed.discard)(key)

    def _note_failure_without_job(self, key: NodeKey, state: NodeState) -> None:
        if state.failure is not None:
            self.failed_without_job[key] = state.failure
        else:
            self.failed_without_job.pop(key, None)

    def _note_unlogged(self, key: NodeKey, state: NodeState) -> None:
        record = self.ensemble.nodes[key]
        # A queued job has no execution yet; a job known from DAGMan only may have one.
        without_log = not record.jobs and state.failure is None and state.state in SUBMITTED
        ran = state.state is State.COMPLETED or without_log
        # Nodes that the DAG file marks DONE never run in this ensemble.
        has_own_job = (
            record.node.kind not in KINDS_WITHOUT_JOB
            and not record.node.noop
            and not record.node.done
        )
        if ran and has_own_job and not any(job.history().executions for job in record.jobs):
            self.unlogged.add(key)
        else:
            self.unlogged.discard(key)

    def _note_overruled(self, key: NodeKey, state: NodeState) -> None:
        completed_by_post = state.state is State.COMPLETED and state.job is not None
        if completed_by_post and self.ensemble.nodes[key].node.post is not None:
            result = self.ensemble.submission_result(key)
            if result is not None and result.state in FAILED_JOB:
                self.overruled.add(key)
                return
        self.overruled.discard(key)

    def special_nodes(self) -> Iterable[NodeKey]:
        """PROVISIONER, SERVICE and FINAL nodes, and with runs the nodes outside them."""
        return self._special

    def _special_nodes(self) -> list[NodeKey]:
        nodes, of_node = self.ensemble.nodes, self.runs.by_node
        keys = [key for key, record in nodes.items() if record.node.kind in SPECIAL_KINDS]
        if self.runs.by_key:
            plain_kinds = (NodeKind.JOB, NodeKind.SUBDAG)
            keys += [
                key
                for key, record in nodes.items()
                if key not in of_node and record.node.kind in plain_kinds
            ]
        # Cut before sorting, so that a FINAL node is kept rather than many plain ones.
        del keys[MOST_SPECIAL:]
        keys.sort(key=lambda key: _SPECIAL_ORDER[nodes[key].node.kind])
        return keys

    def side_counts(self) -> tuple[int, int, int, int, int]:
        """Counts of side nodes: total, done, failed, overruled, removed."""
        states, parts = self._side_states, self.runs.parts
        if not states:
            return 0, 0, 0, 0, 0
        removed = states[State.REMOVED]
        failed = states[State.FAILED] + removed
        overruled = sum(key in parts and not parts[key].training for key in self.overruled)
        return (
            sum(states.values()),
            sum(states[state] for state in DONE),
            failed,
            overruled,
            removed,
        )

    def _count_completion(self, key: NodeKey, state: NodeState) -> None:
        if key in self._completion_sites:
            self.totals.count_completion(self._completion_sites.pop(key), -1)
        result = self.ensemble.submission_result(key) if state.state is State.COMPLETED else None
        if result is not None and result.success_machine:
            site_and_gpu = self._completion_sites[key] = self.names.site_and_gpu(
                result.success_machine[0]
            )
            self.totals.count_completion(site_and_gpu, 1)


def normalize_name(name: str) -> str:
    """The name of a site or target without case and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
