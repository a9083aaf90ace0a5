"""Rows and details of jobs, nodes, epochs and runs at one moment."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from metlmon.eventlog import Held, RemoteError
from metlmon.jobfiles.gate_files import ABORT_RULE, Stopped
from metlmon.model.job_events import NO_DAG, Job, JobId, NodeKey
from metlmon.model.node import retries_left
from metlmon.model.node_states import effective_parents
from metlmon.model.run import GateStatus, Run, gate_status
from metlmon.model.states import ALIVE, DONE, State
from metlmon.snapshot.aggregates import Aggregates
from metlmon.snapshot.ledger import ExecutionEntry, HoldEntry, is_hidden
from metlmon.snapshot.totals import ExecutionTotals, JobEntries
from metlmon.snapshot.types import (
    EpochRow,
    EventLine,
    FailedEpoch,
    GpuHours,
    JobRow,
    JobView,
    Latest,
    NodeRow,
    RunRow,
    RunView,
)

MAX_WAITS_FOR: Final = 8
"""Unfinished parents that are listed by name: more do not fit on a line."""

_CLUSTER: Final = re.compile(r"\$\((?:cluster|clusterid)\)", re.IGNORECASE)
_PROCESS: Final = re.compile(r"\$\((?:process|procid)\)", re.IGNORECASE)


class SnapshotRows:
    """Builds the rows of an ensemble at ``as_of``."""

    def __init__(self, aggregates: Aggregates, as_of: datetime | None) -> None:
        self.ensemble = aggregates.ensemble
        self.as_of = as_of
        self.clock = self.ensemble.clock
        self._aggregates = aggregates
        self._running: dict[str, bool] = {}

    @property
    def aggregates(self) -> Aggregates:
        """The aggregates, with what has not ended counted up to ``as_of``."""
        self._aggregates.set_as_of(self.as_of)
        return self._aggregates

    def seconds(self, start: datetime | None, end: datetime | None = None) -> float | None:
        """Seconds between two times; up to ``as_of`` where ``end`` is None."""
        end = end or self.as_of
        if start is None or end is None:
            return None
        return self.clock.seconds(start, end)

    # --- jobs ---------------------------------------------------------------------------

    def real_jobs(self) -> list[Job]:
        """All jobs except those of another directory's DAGs, by cluster and proc."""
        ensemble = self.ensemble
        foreign = ensemble.unproven.foreign
        jobs = (job for key, job in ensemble.jobs.items() if not job.noop and key not in foreign)
        return sorted(jobs, key=lambda job: (job.cluster, job.proc))

    def job(self, cluster: int, proc: int) -> Job | None:
        """The job with this id that was submitted last; None if there is none."""
        ensemble = self.ensemble
        job = ensemble.jobs.get(ensemble.reused_ids.newest((cluster, proc)))
        return None if job is None or job.key in ensemble.unproven.foreign else job

    def job_row(self, job: Job) -> JobRow:
        """The row of one job."""
        aggregates = self.aggregates
        entry, executions, transfers = aggregates.job_entries(job)
        attribution = aggregates.attributions.get(job.key)
        candidates = attribution.candidates if attribution else ()
        since = entry.since
        hold = _current_hold(entry.state, aggregates.job_entries(job))
        return JobRow(
            **self._placement(entry.key, entry.state, aggregates.job_entries(job)),
            dag=entry.dag,
            in_dag=entry.in_dag or None,
            node=job.node_name if entry.in_dag == NO_DAG else entry.node,
            run=entry.run_name,
            uuid=entry.uuid,
            epoch=entry.epoch,
            cluster=job.cluster,
            proc=job.proc,
            state=entry.state,
            since=since,
            seconds=self.seconds(since),
            submitted=entry.submitted,
            executions=executions,
            transfers=transfers,
            bytes_sent=entry.bytes_sent,
            bytes_received=entry.bytes_received,
            memory_mb=entry.memory_mb,
            request_memory_mb=entry.request_memory_mb,
            hold_subcode=hold.subcode if hold else None,
            ambiguous=tuple(aggregates.dags[key].file for key in candidates),
        )

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        """The details of one job; None when there is no such job."""
        job = self.job(cluster, proc)
        if job is None:
            return None
        key = self._aggregates.node_of(job)
        record = self._aggregates.nodes.get(key) if key else None
        history = job.history()
        return JobView(
            row=self.job_row(job),
            events=self.event_lines(job),
            memory_updates=job.memory_updates,
            usage=history.usage,
            usage_execution=history.usage_execution,
            output=self._file_of(job, "out"),
            error=self._file_of(job, "err"),
            siblings=self._submitted_jobs(key) if key and record else (job.id,),
            states=tuple(history.states),
        )

    def event_lines(self, job: Job) -> tuple[EventLine, ...]:
        """The events of a job as lines of text.

        Left out are its 006 events, and inferred holds that turned out to be needless.
        """
        holds = job.history().holds
        return tuple(
            EventLine(
                time=event.time,
                number=event.number,
                name=event.name,
                text=_event_text(event.text, event.detail, event.body),
                damaged=event.damaged,
            )
            for event in job.events()
            if not (isinstance(event.detail, Held) and event.detail.inferred)
            or (event.time, event.detail) in holds
        )

    def output_file(self, cluster: int, proc: int) -> str | None:
        """The output file of a job, from its submit description; None where not known."""
        job = self.job(cluster, proc)
        return self._file_of(job, "out") if job is not None else None

    def _file_of(self, job: Job, suffix: str) -> str | None:
        """The output file of a job ("out"), or its error file ("err"), where known.

        Without a submit description, which the DAG file names, its number is in the file's name.
        """
        key = self._aggregates.node_of(job)
        if key is None or key[0] == NO_DAG:
            return self.ensemble.groups.outputs.name_of(job.id, suffix)
        record = self._aggregates.nodes.get(key)
        if record is None:
            return None
        node = record.node
        return _expand_macros(node.output if suffix == "out" else node.error, job)

    def _placement(
        self, key: NodeKey | None, state: State, entries: JobEntries | None
    ) -> dict[str, Any]:
        """The fields of a :class:`Placement`, for a node in this state with this job."""
        last, hold = _last_execution(entries), _current_hold(state, entries)
        site = last.site if last else None
        return {
            "target": self._aggregates.target(key),
            "site": site,
            "gpu": last.gpu if last else None,
            "gpus": last.gpus if last else None,
            "off_target": self._aggregates.off_target(key, site),
            "hold_reason": hold.reason if hold else None,
            "hold_code": hold.code if hold else None,
        }

    # --- nodes --------------------------------------------------------------------------

    def node_row(self, key: NodeKey) -> NodeRow | None:
        """The row of a node of any kind; None where there is no such node."""
        aggregates = self.aggregates
        record, state = aggregates.nodes.get(key), aggregates.states.get(key)
        if record is None or state is None:
            return None
        node, states, dag = record.node, aggregates.states, key[0]
        entries = self._node_job(key)
        job_state, job_return = self._job_result(key)
        waits_for: list[str] = []
        if state.state is State.WAITING:
            waits_for = [
                name
                for name in effective_parents(aggregates.dags[dag].workflow.nodes, key[1])
                if (dag, name) not in states or states[dag, name].state not in DONE
            ]
        run = aggregates.runs.by_node.get(key)
        skipped = run is not None and state.state is State.SKIPPED
        gate = self.gate_status(run) if run is not None and skipped else None
        clusters = {job.cluster for job in record.jobs}
        return NodeRow(
            **self._placement(key, state.state, entries),
            dag_key=dag,
            dag=aggregates.dag_file(dag),
            node=key[1],
            kind=node.kind.value,
            state=state.state,
            inferred=state.inferred,
            since=state.since,
            seconds=self.seconds(state.since),
            jobs=self._submitted_jobs(key),
            job_state=job_state,
            job_return=job_return,
            attempts=self._attempts(key),
            retries=node.retries,
            retries_left=self._retries_left(key) if node.retries else None,
            parents=len(node.parents),
            unfinished_parents=len(waits_for),
            waits_for=tuple(waits_for[:MAX_WAITS_FOR]),
            children=len(node.children),
            run=run.key if run is not None else None,
            submit=node.submit,
            stopped_by=gate.stopped.rule if gate is not None and gate.stopped else None,
            reason=state.failure.text if state.failure else None,
            failed_ancestor=state.failed_ancestor,
            submissions=len(clusters) or aggregates.dags[dag].submission_count(key[1]),
        )

    def _node_job(self, key: NodeKey) -> JobEntries | None:
        """The entries of the job that determines a node's state."""
        job = self._aggregates.states[key].job
        return self.aggregates.job_entries(job) if job is not None else None

    def _job_result(self, key: NodeKey) -> tuple[State | None, int | None]:
        """The state of a node's job, and the return value of its last execution."""
        job, entries = self._aggregates.states[key].job, self._node_job(key)
        if job is None or job.noop or entries is None:
            return None, None
        last = _last_execution(entries)
        state = entries.job.state if entries.job.states else None
        return state, last.return_value if last else None

    def _submitted_jobs(self, key: NodeKey) -> tuple[JobId, ...]:
        result = self._aggregates.submission_result(key)
        return result.jobs if result is not None else ()

    def _attempts(self, key: NodeKey) -> int:
        """Attempts of a node: the procs of one submission are one attempt."""
        executions = self.aggregates.node_executions(key)
        return max((execution.attempt for execution in executions), default=0)

    def _retries_left(self, key: NodeKey) -> int:
        """Retries that DAGMan has left for a node; 0 where it let the node fail."""
        aggregates = self._aggregates
        state = aggregates.states[key]
        if state.state is State.FAILED and not state.can_retry:
            return 0
        result = aggregates.submission_result(key)
        return retries_left(aggregates.dags[key[0]], aggregates.nodes[key], result)

    # --- runs ---------------------------------------------------------------------------

    def run_row(self, run: Run) -> RunRow:
        """The row of a run.

        The row is rebuilt where nodes of the run have changed; else only its times are updated.
        """
        aggregates = self.aggregates
        row = aggregates.rows.get(run.key) or self._new_run_row(run)
        latest, failed = row.latest, row.failed
        if latest is not None and latest.since is not None:
            latest = replace(latest, seconds=self.seconds(latest.since))
        if failed is not None and failed.since is not None:
            failed = replace(failed, seconds=self.seconds(failed.since))
        totals, beside = ExecutionTotals(), aggregates.is_beside(run.nodes()[0])
        # The totals of the runs are those of the DAGs alone.
        for key in run.nodes() if beside else ():
            for execution in aggregates.node_executions(key):
                totals.add(execution)
        totals = totals if beside else aggregates.totals.runs[run.key]
        hours = totals.hours(aggregates.totals.hour_unit)
        gate = self.gate_status(run)
        if (latest, hours, gate, failed) != (row.latest, row.gpu_hours, row.gate, row.failed):
            row = replace(row, latest=latest, gpu_hours=hours, gate=gate, failed=failed)
        aggregates.rows[run.key] = row
        return row

    def _new_run_row(self, run: Run) -> RunRow:
        aggregates = self._aggregates
        run_state, home_node = aggregates.run_states[run.key], aggregates.naming_node(run)
        return RunRow(
            key=run.key,
            run=run.names[home_node],
            uuid=run.uuid,
            dag=aggregates.dag_file(home_node[0]),
            item=run.item,
            epochs_total=len(run_state.epochs),
            epochs_done=run_state.done,
            epochs_inferred=run_state.inferred,
            epochs_skipped=run_state.skipped,
            state=run_state.state,
            latest=self._latest_epoch(run_state.latest) if run_state.latest else None,
            gpu_hours=GpuHours(measure=aggregates.totals.hour_unit),
            epochs_unknown=run_state.states.get(State.UNKNOWN, 0),
            failed=self._failed_epoch(run_state.failed) if run_state.failed else None,
            epochs_overruled=sum(key in aggregates.overruled for key in run_state.epochs.values()),
        )

    def _failed_epoch(self, key: NodeKey) -> FailedEpoch:
        state = self._aggregates.states[key]
        return FailedEpoch(
            epoch=self._aggregates.runs.parts[key].epoch,
            node=key[1],
            state=state.state,
            since=state.since,
            seconds=self.seconds(state.since),
            part=state.failure.part if state.failure else None,
            reason=state.failure.text if state.failure else None,
        )

    def _latest_epoch(self, key: NodeKey) -> Latest:
        """The latest epoch of a run, by its node."""
        aggregates = self._aggregates
        state, part = aggregates.states[key], aggregates.runs.parts[key]
        entries = self._node_job(key)
        job, dag = state.job, aggregates.dags[key[0]]
        return Latest(
            **self._placement(key, state.state, entries),
            epoch=part.epoch,
            epoch_var=part.epoch_var,
            node=key[1],
            cluster=job.cluster if job else dag.last_cluster(key[1]),
            proc=job.proc if job else None,
            state=state.state,
            since=state.since,
            seconds=self.seconds(state.since),
            attempt=self._attempts(key),
            retries_left=self._retries_left(key),
            overruled=key in aggregates.overruled,
        )

    def find_runs(self, wanted: str) -> list[RunRow]:
        """Runs whose uuid begins with ``wanted``, or whose name is ``wanted``.

        Names match in any case, but one in the same case wins. An exact uuid or name excludes runs
        that match by prefix only.
        """
        rows = [self.run_row(run) for run in self._aggregates.runs.by_key.values()]
        exact = [row for row in rows if wanted in (row.uuid, row.key)]
        named = [row for row in rows if row.run.lower() == wanted.lower()]
        if exact or named:
            return exact or [row for row in named if row.run == wanted] or named
        return [
            row for row in rows if wanted and (row.uuid or "").lower().startswith(wanted.lower())
        ]

    def run_view(self, key: str) -> RunView | None:
        """One run with its epochs; None when there is no such run."""
        aggregates = self.aggregates
        run = aggregates.runs.by_key.get(key)
        if run is None:
            return None
        counted = dict.fromkeys(aggregates.run_states[key].epochs.values())
        others = [node for nodes in run.epochs.values() for node in nodes if node not in counted]
        listed = sorted(
            [*counted, *(node for node in others if aggregates.nodes[node].jobs)],
            key=lambda node: (
                aggregates.runs.parts[node].epoch or 0,
                aggregates.states[node].submitted is None,
            ),
        )
        side = {node: self.epoch_row(node) for node in run.side_nodes}
        side_rows: dict[NodeKey | None, list[EpochRow]] = {}
        for node, row in side.items():
            side_rows.setdefault(self._epoch_before(node, run), []).append(row)
        return RunView(
            self.run_row(run),
            tuple(self.epoch_row(node, tuple(side_rows.get(node, ()))) for node in listed),
            tuple(side.values()),
        )

    def _epoch_before(self, key: NodeKey, run: Run) -> NodeKey | None:
        """The epoch of the run that is a parent of a side node, the last of several.

        Only the edges count, since the numbers in the names differ (the evaluation of train_epoch0
        is eval_epoch1).
        """
        dag, runs = key[0], self._aggregates.runs
        nodes = self._aggregates.dags[dag].workflow.nodes
        parents = [(dag, name) for name in effective_parents(nodes, key[1])]
        epochs = [k for k in parents if runs.by_node.get(k) is run and runs.parts[k].training]
        return max(epochs, key=lambda k: runs.parts[k].epoch or 0, default=None)

    def epoch_row(self, key: NodeKey, evaluations: tuple[EpochRow, ...] = ()) -> EpochRow:
        """The row of one node of a run."""
        aggregates = self.aggregates
        state, part = aggregates.states[key], aggregates.runs.parts[key]
        entries = self._node_job(key)
        wait, transfer, execution = self._phases(entries)
        job_state, job_return = self._job_result(key)
        success = self._success(key)
        executions, totals = self.aggregates.node_executions(key), ExecutionTotals()
        for each in executions:
            if not each.at_access_point:
                totals.add(each)
        # The first of several of equal length.
        longest = max(executions, key=lambda each: each.trained, default=None)
        seconds = success.trained if success else None
        trained = longest if longest and is_hidden(seconds, longest.trained) else None
        return EpochRow(
            **self._placement(key, state.state, entries),
            node=key[1],
            dag=aggregates.dag_file(key[0]),
            in_dag=key[0],
            epoch=part.epoch,
            epoch_var=part.epoch_var,
            state=state.state,
            inferred=state.inferred,
            since=state.since,
            seconds=self.seconds(state.since),
            jobs=self._submitted_jobs(key),
            submitted=entries.job.submitted if entries else None,
            queue_wait=wait,
            transfer=transfer,
            execution=execution,
            attempts=self._attempts(key),
            gpu_hours=totals.hours(aggregates.totals.hour_unit),
            trained_on=trained.site if trained is not None else None,
            success_seconds=seconds,
            longest_seconds=longest.trained if success and longest else None,
            job_state=job_state,
            job_return=job_return,
            evaluations=evaluations,
        )

    def _success(self, key: NodeKey) -> ExecutionEntry | None:
        """The execution that completed a node; None where the node is not completed."""
        result = self._aggregates.submission_result(key)
        is_completed = self._aggregates.states[key].state is State.COMPLETED
        if not is_completed or result is None or result.success is None:
            return None
        job, index = result.success
        entries = self.aggregates.entries.get(job)
        return entries.executions[index] if entries is not None else None

    def _phases(
        self, entries: JobEntries | None
    ) -> tuple[float | None, float | None, float | None]:
        """Seconds of the last attempt: queue wait, input transfer, execution."""
        if entries is None or entries.job.submitted is None:
            return None, None, None
        job, executions, transfers = entries
        last = executions[-1] if executions else None
        started = [(span.start, span) for span in transfers if span.start is not None]
        queue_start: datetime = entries.job.submitted
        if last is None or (job.queued and last.end is not None):
            queue_start = (last.end if last else None) or queue_start
            spans = [(start, span) for start, span in started if start >= queue_start]
            queue_end, execution = spans[-1][0] if spans else None, None
        else:
            previous = executions[-2] if len(executions) > 1 else None
            queue_start = (previous.end if previous else None) or queue_start
            spans = [
                (start, span)
                for start, span in started
                if (span.direction, span.outcome) == ("input", "ok")
                and queue_start <= start <= last.start
            ]
            queue_end = spans[-1][0] if spans else last.start
            execution = self.seconds(last.start, last.end)
        transfer = self.seconds(spans[-1][0], spans[-1][1].end) if spans else None
        return self.seconds(queue_start, queue_end), transfer, execution

    def gate_status(self, run: Run) -> GateStatus | None:
        """The gate status of a run; None where it has no gate, and nothing stopped it.

        Of several DAGs the running one counts, else the one that has the run's last epoch.
        """
        state = self._aggregates.run_states[run.key]
        if (abort := state.abort) is not None:
            stopped = Stopped(ABORT_RULE, state.ends_before, abort.text, abort.since, abort.node[1])
            return GateStatus(stopped=stopped)
        gated = [dag for dag in run.gated_dags if dag in self._aggregates.dags]
        if not gated:
            return None
        ensemble = self.ensemble
        running = [dag for dag in gated if self._is_running(dag)]
        # Not the latest submitted epoch: a run stopped before it trained has none in its DAG.
        epochs = self._aggregates.run_states[run.key].epochs
        last = epochs[max(epochs)][0] if epochs else None
        dag = running[-1] if running else last if last in gated else gated[-1]
        reports = ensemble.gates.get(dag, {}).get(run.uuid or "")
        return gate_status(reports, self.clock, ensemble.cut, bool(running))

    def _is_running(self, dag: str) -> bool:
        if dag not in self._running:
            ensemble = self.ensemble
            self._running[dag] = dag in ensemble.dags and ensemble.dag_state(dag)[0] in ALIVE
        return self._running[dag]


def _last_execution(entries: JobEntries | None) -> ExecutionEntry | None:
    return entries.executions[-1] if entries is not None and entries.executions else None


def _current_hold(state: State, entries: JobEntries | None) -> HoldEntry | None:
    """The hold of a job that is held, and whose node or which itself is in this state."""
    if state is not State.HELD or entries is None or not entries.job.holds:
        return None
    return entries.job.holds[-1] if entries.job.state is State.HELD else None


def _event_text(text: str, detail: object, body: str) -> str:
    """An event's header text, followed by the reason in its body."""
    reason: str | None
    match detail:
        case None:
            reason = body.strip()
        case RemoteError():
            reason = detail.message
        case _:
            reason = getattr(detail, "reason", None)
    return f"{text} {reason}".strip() if reason else text


def _expand_macros(name: str | None, job: Job) -> str | None:
    """A file name with the ``$(Cluster)`` and ``$(Process)`` macros expanded."""
    if name is None:
        return None
    return _PROCESS.sub(str(job.proc), _CLUSTER.sub(str(job.cluster), name))
