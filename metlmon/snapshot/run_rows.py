"""Rows of runs and of their epochs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from metlmon.model.job import Execution, JobHistory
from metlmon.model.job_events import NodeKey
from metlmon.model.node import last_good_execution, node_submissions, submitted_jobs
from metlmon.model.node_states import effective_parents
from metlmon.model.run import Run
from metlmon.model.states import ACTIVE, HourUnit, State
from metlmon.snapshot.job_rows import _machine
from metlmon.snapshot.node_rows import NodeRows, _hold_reason, _job_result
from metlmon.snapshot.totals import SECOND, HourTotals, InFlight
from metlmon.snapshot.types import EpochRow, FailedEpoch, GpuHours, Latest, RunRow, RunView


class RunRows(NodeRows):
    """Builds the rows of runs and of their epochs."""

    def in_flight(self) -> InFlight:
        """Totals of the executions that have not ended."""
        return self.totals.in_flight(self.as_of)

    def final_execution(self, key: NodeKey) -> Execution | None:
        """The execution that completed the node.

        That is the last good execution of its last good job.
        """
        return last_good_execution(node_submissions(self.nodes[key]))

    def run_row(self, run: Run, in_flight: Mapping[str, int]) -> RunRow:
        """The row of a run.

        The row is rebuilt where nodes of the run have changed; else only its times are updated.
        """
        row = self._rows.get(run.key)
        if row is None:
            row = self._rows[run.key] = self._new_run_row(run)
        latest = row.latest
        if latest is not None and latest.since is not None:
            latest = replace(latest, seconds=self.seconds(latest.since, None))
        failed = row.failed
        if failed is not None and failed.since is not None:
            failed = replace(failed, seconds=self.seconds(failed.since, None))
        hours = self._run_hours(run, in_flight)
        gate = self.gate_status(run)
        now = (latest, hours, gate, failed)
        if now == (row.latest, row.gpu_hours, row.gate, row.failed):
            return row
        row = replace(row, latest=latest, gpu_hours=hours, gate=gate, failed=failed)
        self._rows[run.key] = row
        return row

    def _new_run_row(self, run: Run) -> RunRow:
        run_state = self.run_states[run.key]
        latest = self.latest_epoch(run_state.latest) if run_state.latest else None
        home_node = self.naming_node(run)
        return RunRow(
            key=run.key,
            run=run.names[home_node],
            uuid=run.uuid,
            dag=self.dag_file(home_node[0]),
            epochs_total=len(run_state.epochs),
            epochs_done=run_state.done,
            epochs_inferred=run_state.inferred,
            epochs_skipped=run_state.skipped,
            state=run_state.state,
            latest=latest,
            gpu_hours=GpuHours(measure=self.totals.hour_unit),
            epochs_unknown=run_state.states.get(State.UNKNOWN, 0),
            failed=self._failed_epoch(run_state.failed) if run_state.failed else None,
            epochs_overruled=sum(
                map(self.aggregates.overruled.__contains__, run_state.epochs.values())
            ),
        )

    def _failed_epoch(self, key: NodeKey) -> FailedEpoch:
        state = self.states[key]
        return FailedEpoch(
            epoch=self.runs.parts[key].epoch,
            node=key[1],
            state=state.state,
            since=state.since,
            seconds=self.seconds(state.since, None) if state.since else None,
            part=state.failure.part if state.failure else None,
            reason=state.failure.text if state.failure else None,
        )

    def latest_epoch(self, key: NodeKey) -> Latest:
        """The latest epoch of a run, by its node."""
        state = self.states[key]
        part = self.runs.parts[key]
        history = self.history(state.job) if state.job else None
        machine = _machine(history)
        site = self.site(machine)
        target = self.target(key)
        held = state.state is State.HELD and history is not None and history.hold is not None
        hold = history.hold if held and history is not None else None
        return Latest(
            epoch=part.epoch,
            epoch_var=part.epoch_var,
            node=key[1],
            cluster=state.job.cluster if state.job else self.dags[key[0]].last_cluster(key[1]),
            proc=state.job.proc if state.job else None,
            target=target,
            site=site,
            gpu=self.gpu(machine),
            gpus=history.executions[-1].gpus if history and history.executions else None,
            state=state.state,
            since=state.since,
            seconds=self.seconds(state.since, None) if state.since else None,
            attempt=self._attempts(key),
            hold_reason=hold.reason if hold else None,
            hold_code=hold.code if hold else None,
            off_target=self.off_target(key, site),
            retries_left=self._retries_left(key),
            overruled=key in self.aggregates.overruled,
        )

    def find_runs(self, wanted: str) -> list[RunRow]:
        """Runs whose uuid begins with ``wanted``, or whose name is ``wanted``.

        Names match in any case, but one in the same case wins. An exact uuid or name excludes runs
        that match by prefix only.
        """
        in_flight = self.in_flight().runs
        rows = [self.run_row(run, in_flight) for run in self.runs.by_key.values()]
        exact = [row for row in rows if wanted in (row.uuid, row.key)]
        if exact:
            return exact
        named = [row for row in rows if row.run.lower() == wanted.lower()]
        if named:
            return [row for row in named if row.run == wanted] or named
        return [
            row for row in rows if wanted and (row.uuid or "").lower().startswith(wanted.lower())
        ]

    def _run_hours(self, run: Run, in_flight: Mapping[str, int]) -> GpuHours:
        hours = self.totals.runs.get(run.key) or HourTotals()
        return hours.hours(self.totals.hour_unit, in_flight.get(run.key, 0))

    def run_seconds(self, run: Run, in_flight: Mapping[str, int]) -> tuple[float, float, float]:
        """GPU-seconds of a run: good, bad, in flight."""
        hours = self.totals.runs.get(run.key) or HourTotals()
        on_gpus = in_flight.get(run.key, 0) if self.totals.hour_unit is HourUnit.GPU else 0
        return hours.good[0] / SECOND, hours.bad[0] / SECOND, on_gpus / SECOND

    def _node_hours(self, key: NodeKey) -> GpuHours:
        return self.totals.job_hours((job.key for job in self.nodes[key].jobs), self.as_of)

    def run_view(self, key: str) -> RunView | None:
        """One run with its epochs; None when there is no such run."""
        run = self.runs.by_key.get(key)
        if run is None:
            return None
        run_state = self.run_states[key]
        counted = set(run_state.epochs.values())
        others = [node for nodes in run.epochs.values() for node in nodes if node not in counted]
        others = [node for node in others if self.nodes[node].jobs]
        listed = sorted(
            [*run_state.epochs.values(), *others],
            key=lambda node: (
                self.runs.parts[node].epoch or 0,
                self.states[node].submitted is None,
            ),
        )
        side = {node: self.epoch_row(node) for node in run.side_nodes}
        side_rows: dict[NodeKey, list[EpochRow]] = {}
        for node, row in side.items():
            epoch = self._epoch_before(node, run)
            if epoch is not None:
                side_rows.setdefault(epoch, []).append(row)
        return RunView(
            self.run_row(run, self.in_flight().runs),
            tuple(self.epoch_row(node, tuple(side_rows.get(node, ()))) for node in listed),
            tuple(side.values()),
        )

    def _epoch_before(self, key: NodeKey, run: Run) -> NodeKey | None:
        """The epoch of the run that is a parent of a side node, the last of several.

        Only the edges count, since the numbers in the names differ (the evaluation of train_epoch0
        is eval_epoch1).
        """
        dag, parts, of_node = key[0], self.runs.parts, self.runs.by_node
        nodes = self.dags[dag].workflow.nodes
        parents = [(dag, name) for name in effective_parents(nodes, key[1])]
        epochs = [k for k in parents if of_node.get(k) is run and parts[k].training]
        return max(epochs, key=lambda k: parts[k].epoch or 0, default=None)

    def epoch_row(self, key: NodeKey, evaluations: tuple[EpochRow, ...] = ()) -> EpochRow:
        """The row of one node of a run."""
        state, part = self.states[key], self.runs.parts[key]
        record = self.nodes[key]
        history = self.history(state.job) if state.job else None
        wait, transfer, execution = self._phases(history)
        target, site, gpu, gpus, off_target = self._placement(key, history)
        hold_reason, hold_code = _hold_reason(state.state, history)
        success_seconds, longest_seconds = self.success_seconds(key)
        job_state, job_return = _job_result(state.job, history)
        return EpochRow(
            node=key[1],
            dag=self.dag_file(key[0]),
            in_dag=key[0],
            epoch=part.epoch,
            epoch_var=part.epoch_var,
            state=state.state,
            inferred=state.inferred,
            since=state.since,
            seconds=self.seconds(state.since, None) if state.since else None,
            jobs=submitted_jobs(record),
            target=target,
            site=site,
            gpu=gpu,
            gpus=gpus,
            off_target=off_target,
            submitted=history.submitted if history else None,
            queue_wait=wait,
            transfer=transfer,
            execution=execution,
            attempts=self._attempts(key),
            gpu_hours=self._node_hours(key),
            trained_on=self.trained_on(key),
            hold_reason=hold_reason,
            hold_code=hold_code,
            success_seconds=success_seconds,
            longest_seconds=longest_seconds,
            job_state=job_state,
            job_return=job_return,
            evaluations=evaluations,
        )

    def _phases(
        self, history: JobHistory | None
    ) -> tuple[float | None, float | None, float | None]:
        """Seconds of the last attempt: queue wait, input transfer, execution."""
        if history is None or history.submitted is None:
            return None, None, None
        last = history.executions[-1] if history.executions else None
        previous = history.executions[-2] if len(history.executions) > 1 else None
        waited_from = previous.end if previous and previous.end else history.submitted
        if last is None or (history.state in ACTIVE and history.open is None):
            ended = last.end if last else None
            queue_end = ended or history.submitted
            spans = [
                span
                for span in history.transfers
                if span.start is not None and span.start >= queue_end
            ]
            transfer_start = spans[-1].start if spans else None
            transfer = self.seconds(spans[-1].start, spans[-1].end) if spans else None
            return self.seconds(queue_end, transfer_start), transfer, None
        spans = [
            span
            for span in history.transfers
            if span.direction == "input"
            and span.outcome == "ok"
            and span.start is not None
            and waited_from <= span.start <= last.start
        ]
        queue_end = spans[-1].start if spans and spans[-1].start else last.start
        transfer = self.seconds(spans[-1].start, spans[-1].end) if spans else None
        return (
            self.seconds(waited_from, queue_end),
            transfer,
            self.seconds(last.start, last.end),
        )

    def trained_on(self, key: NodeKey) -> str | None:
        """The site of a node's longest execution, where another one succeeded.

        None where the execution that trained is the one that succeeded. See "hidden compute".
        """
        final = self.final_execution(key)
        if final is None or self.states[key].state is not State.COMPLETED:
            return None
        longest = self.longest_execution(key)
        if longest is None or longest is final:
            return None
        return self.site(longest.machine)

    def longest_execution(self, key: NodeKey) -> Execution | None:
        """The node's longest execution, the first of several of equal length."""
        jobs = sorted(self.nodes[key].jobs, key=lambda job: (job.cluster, job.proc, job.subproc))
        executions = [execution for job in jobs for execution in self.history(job).executions]
        return max(
            executions,
            key=lambda execution: self.seconds(execution.start, execution.end) or 0.0,
            default=None,
        )

    def success_seconds(self, key: NodeKey) -> tuple[float | None, float | None]:
        """Seconds of the execution that completed a node, and of its longest one.

        (None, None) where the node is not completed.
        """
        final = self.final_execution(key)
        longest = self.longest_execution(key)
        if final is None or longest is None or self.states[key].state is not State.COMPLETED:
            return None, None
        return self.seconds(final.start, final.end), self.seconds(longest.start, longest.end)
