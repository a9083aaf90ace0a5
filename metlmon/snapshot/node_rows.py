"""Rows of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metlmon.model.job import JobHistory
from metlmon.model.job_events import Job, NodeKey
from metlmon.model.node import (
    NodeState,
    SubmissionResult,
    retries_left,
    submission_result,
    submitted_jobs,
)
from metlmon.model.node_states import effective_parents
from metlmon.model.run import GateStatus, Run, gate_status
from metlmon.model.states import ALIVE, DONE, State
from metlmon.snapshot.job_rows import JobRows, _machine
from metlmon.snapshot.types import NodeRow

if TYPE_CHECKING:
    from metlmon.snapshot.node_tree import DagNodes
from typing import Final

MAX_WAITS_FOR: Final = 8
"""Unfinished parents that are listed by name: more do not fit on a line."""


class NodeRows(JobRows):
    """Builds the rows of nodes of any kind."""

    def submission_result(self, key: NodeKey) -> SubmissionResult | None:
        """The combined result of the submissions of a node."""
        if self.nodes is self.ensemble.nodes:
            return self.ensemble.submission_result(key)
        return submission_result(self.nodes[key])

    def gate_status(self, run: Run) -> GateStatus | None:
        """The gate status of a run; None where it has no gate.

        Of several DAGs the running one counts, else the one that has the run's last epoch.
        """
        gated = [dag for dag in run.gated_dags if dag in self.dags]
        if not gated:
            return None
        running = [dag for dag in gated if self._is_running(dag)]
        # Not the latest submitted epoch: a run stopped before it trained has none in its DAG.
        epochs = self.run_states[run.key].epochs
        last = epochs[max(epochs)][0] if epochs else None
        dag = running[-1] if running else last if last in gated else gated[-1]
        reports = self.ensemble.gates.get(dag, {}).get(run.uuid or "")
        return gate_status(reports, self.clock, self.ensemble.cut, bool(running))

    def _is_running(self, dag: str) -> bool:
        if dag not in self._running:
            known = dag in self.ensemble.dags
            self._running[dag] = known and self.ensemble.dag_state(dag)[0] in ALIVE
        return self._running[dag]

    def _attempts(self, key: NodeKey) -> int:
        """Attempts of a node: the procs of one submission are one attempt."""
        by_submission: dict[tuple[int, int], int] = {}
        for job in self.nodes[key].jobs:
            submission = job.cluster, job.subproc
            by_submission[submission] = max(by_submission.get(submission, 0), self._executions(job))
        return sum(by_submission.values())

    def _submissions(self, key: NodeKey) -> int:
        """Submissions of a node, by its jobs in the logs, else by DAGMan."""
        jobs = self.nodes[key].jobs
        if jobs:
            return len({job.cluster for job in jobs})
        return self.dags[key[0]].submission_count(key[1], self.clock)

    def _executions(self, job: Job) -> int:
        executions = self.totals.executions_of(job.key)
        return len(self.history(job).executions) if executions is None else len(executions)

    def dag_nodes(self) -> tuple[DagNodes, ...]:
        """All DAGs with the states of their nodes, as input of a node tree."""
        from metlmon.snapshot.node_tree import DagNodes

        by_path = {dag.workflow.path: dag for dag in self.dags.values()}
        states: dict[str, dict[str, NodeState]] = {key: {} for key in self.dags}
        for (key, name), state in self.states.items():
            states[key][name] = state
        overruled: dict[str, set[str]] = {}
        for key, name in self.aggregates.overruled:
            overruled.setdefault(key, set()).add(name)
        tree_nodes = []
        for key, dag in self.dags.items():
            subdags = {}
            for name, node in dag.workflow.nodes.items():
                subdag = None if node.subdag is None else dag.workflow.subdags[node.subdag]
                dag_here = by_path.get(subdag.path) if subdag is not None else None
                if dag_here is not None and dag_here.top == dag.top:
                    subdags[name] = dag_here.key
            dag_overruled = frozenset(overruled.get(key, ()))
            tree_nodes.append(
                DagNodes(
                    key=key,
                    file=dag.file,
                    nodes=dag.workflow.nodes,
                    states=states[key],
                    subdags=subdags,
                    overruled=dag_overruled,
                )
            )
        return tuple(tree_nodes)

    def node_row(self, key: NodeKey) -> NodeRow | None:
        """The row of a node of any kind; None where there is no such node."""
        record, state = self.nodes.get(key), self.states.get(key)
        if record is None or state is None:
            return None
        node, states, dag = record.node, self.states, key[0]
        history = self.history(state.job) if state.job else None
        target, site, gpu, gpus, off_target = self._placement(key, history)
        hold_reason, hold_code = _hold_reason(state.state, history)
        job_state, job_return = _job_result(state.job, history)
        waits_for: list[str] = []
        if state.state is State.WAITING:
            nodes = self.dags[dag].workflow.nodes
            waits_for = [
                name
                for name in effective_parents(nodes, key[1])
                if (dag, name) not in states or states[dag, name].state not in DONE
            ]
        run = self.runs.by_node.get(key)
        retries_left = self._retries_left(key) if node.retries else None
        skipped = run is not None and state.state is State.SKIPPED
        stopped_by = self._stopped_by(run) if run is not None and skipped else None
        return NodeRow(
            dag_key=dag,
            dag=self.dag_file(dag),
            node=key[1],
            kind=node.kind.value,
            state=state.state,
            inferred=state.inferred,
            since=state.since,
            seconds=self.seconds(state.since, None) if state.since else None,
            jobs=submitted_jobs(record),
            job_state=job_state,
            job_return=job_return,
            target=target,
            site=site,
            gpu=gpu,
            gpus=gpus,
            off_target=off_target,
            attempts=self._attempts(key),
            retries=node.retries,
            retries_left=retries_left,
            parents=len(node.parents),
            unfinished_parents=len(waits_for),
            waits_for=tuple(waits_for[:MAX_WAITS_FOR]),
            children=len(node.children),
            run=run.key if run is not None else None,
            submit=node.submit,
            hold_reason=hold_reason,
            hold_code=hold_code,
            stopped_by=stopped_by,
            reason=state.failure.text if state.failure else None,
            failed_ancestor=state.failed_ancestor,
            submissions=self._submissions(key),
        )

    def _retries_left(self, key: NodeKey) -> int:
        """Retries that DAGMan has left for a node; 0 where it let the node fail."""
        state = self.states[key]
        if state.state is State.FAILED and not state.can_retry:
            return 0
        return retries_left(self.dags[key[0]], self.nodes[key], self.submission_result(key))

    def _stopped_by(self, run: Run) -> str | None:
        """The rule by which a run's gate stopped it; None where it did not."""
        gate = self.gate_status(run)
        return gate.stopped.rule if gate is not None and gate.stopped is not None else None

    def _placement(
        self, key: NodeKey, history: JobHistory | None
    ) -> tuple[str | None, str | None, str | None, int | None, bool]:
        """Target, site, GPU model, number of GPUs, and whether the site is off target."""
        machine = _machine(history)
        target, site = self.target(key), self.site(machine)
        gpus = history.executions[-1].gpus if history and history.executions else None
        return target, site, self.gpu(machine), gpus, self.off_target(key, site)


def _job_result(job: Job | None, history: JobHistory | None) -> tuple[State | None, int | None]:
    """The state of a node's job, and the return value of its last execution."""
    if job is None or history is None or job.noop:
        return None, None
    return history.state, history.executions[-1].return_value if history.executions else None


def _hold_reason(state: State, history: JobHistory | None) -> tuple[str | None, int | None]:
    """The reason and code of the hold of a held node."""
    if state is not State.HELD or history is None or history.hold is None:
        return None, None
    return history.hold.reason, history.hold.code
