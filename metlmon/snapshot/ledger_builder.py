"""Builds the ledger from the state model.

This is the only place where ledger entries are created.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from itertools import chain
from typing import Final, TypeAlias

from metlmon.model.dag_reports import NodeReportKind
from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.job_events import Job, NodeKey
from metlmon.model.node import NodeState, NodeSubmission, node_submissions
from metlmon.model.run import Run
from metlmon.model.states import Outcome, State
from metlmon.snapshot.gate_text import PAUSED, STOPPED, ends_before, gate_symbol
from metlmon.snapshot.job_entries import (
    NO_OWNER,
    JobEntries,
    JobEntriesKey,
    JobEntryBuilder,
    JobKey,
    _Block,
    _job_key,
    _JobOwner,
)
from metlmon.snapshot.ledger import (
    EpochEntry,
    ExecutionEntry,
    JobEntry,
    Ledger,
    RunEntry,
    TransferEntry,
)
from metlmon.snapshot.run_rows import RunRows

NODES_PER_CHECK: Final = 8
"""Nodes whose entries are built between two checks of the clock: a millisecond."""

CLUSTERS_PER_BLOCK: Final = 256
"""Clusters whose entries are sorted together: a change re-sorts one block."""


class LedgerBuilder(JobEntryBuilder):
    """Builds the ledger entries of an ensemble, and caches them.

    The entries of a node's jobs are built together. They are built again when the node has
    changed, and as long as it has an execution, a transfer or a hold in progress.

    ``nodes`` and ``strays`` (jobs of no node): those whose entries are out of date.
    """

    def update(self, builder: RunRows, deadline: float | None = None) -> bool:
        """Build the entries that are out of date, for this snapshot.

        Returns False when ``deadline`` (of ``time.monotonic``) came first.
        """
        if builder is not self._updated_for:
            self._begin_update(builder)
        while self.nodes or self.strays:
            for _ in range(NODES_PER_CHECK):
                if self.nodes:
                    self._build_node(self.nodes.pop())
                elif self.strays:
                    self._build_stray(self.strays.pop())
            if deadline is not None and time.monotonic() >= deadline:
                return not (self.nodes or self.strays)
        return True

    def _begin_update(self, builder: RunRows) -> None:
        """Mark entries as out of date whose as-of, names or counted nodes have changed."""
        self._builder = self._updated_for = builder
        for changed_key in self._unfinished:
            self._mark_changed(changed_key)
        self._unfinished = set()
        changed = {run.key: run for node in self.nodes if (run := builder.runs.by_node.get(node))}
        for run_key, run in changed.items():
            self._first_submissions.pop(run_key, None)
            names = self._names_of(run)
            if self._run_names.get(run_key, names) != names:
                self.nodes.update(run.nodes())
                for node in run.nodes():
                    self._owners.pop(node, None)
            self._run_names[run_key] = names
            counted = builder.run_states[run_key].epochs
            if self._counted_nodes.get(run_key, counted) != counted:
                self.nodes.update(run.nodes())
            self._counted_nodes[run_key] = counted

    def ledger(self) -> Ledger:
        """The ledger of the snapshot for which :meth:`update` was called."""
        builder = self._builder
        blocks = [self._block(number) for number in sorted(self._entries)]
        in_flight = builder.in_flight().runs
        return Ledger(
            dagdir=builder.dagdir,
            as_of=builder.as_of,
            live=builder.live,
            runs=tuple(self._run(run, in_flight) for run in builder.runs.by_key.values()),
            epochs=tuple(
                chain.from_iterable(map(self._epochs_of_run, builder.runs.by_key.values()))
            ),
            jobs=tuple(chain.from_iterable(block.jobs for block in blocks)),
            executions=tuple(chain.from_iterable(block.executions for block in blocks)),
            transfers=tuple(chain.from_iterable(block.transfers for block in blocks)),
            # A copy, since the reader still refines the offset from UTC.
            seconds_between=deepcopy(builder.clock).seconds,
            nodes_unlogged=len(builder.aggregates.unlogged),
            measure=builder.totals.hour_unit,
        )

    def _store(self, key: JobEntriesKey, entries: JobEntries) -> None:
        block = key[0] // CLUSTERS_PER_BLOCK
        self._entries.setdefault(block, {})[key] = entries
        self._blocks.pop(block, None)

    def _block(self, number: int) -> _Block:
        block = self._blocks.get(number)
        if block is None:
            by_job = self._entries[number]
            entries = list(chain.from_iterable(by_job[key] for key in sorted(by_job)))
            block = self._blocks[number] = _Block(
                tuple([entry for entry in entries if isinstance(entry, JobEntry)]),
                tuple([entry for entry in entries if isinstance(entry, ExecutionEntry)]),
                tuple([entry for entry in entries if isinstance(entry, TransferEntry)]),
            )
        return block

    def _epochs_of_run(self, run: Run) -> tuple[EpochEntry, ...]:
        epochs = self._run_epochs.get(run.key)
        if epochs is None:
            epochs = self._run_epochs[run.key] = tuple(
                self._epochs[key] for number in sorted(run.epochs) for key in run.epochs[number]
            )
        return epochs

    # --- owners -------------------------------------------------------------------------

    def _owner(self, key: NodeKey) -> _JobOwner:
        if key not in self._owners:
            self._owners[key] = self._owner_of(key)
        return self._owners[key]

    def _owner_of(self, key: NodeKey) -> _JobOwner:
        builder = self._builder
        run = builder.runs.by_node.get(key)
        part = builder.runs.parts.get(key)
        name, label = self._run_names[run.key] if run else (None, None)
        return _JobOwner(
            dag=builder.dag_file(key[0]),
            in_dag=key[0],
            node=key[1],
            run=run.key if run else None,
            run_name=name,
            uuid=run.uuid if run else None,
            label=label,
            epoch=part.epoch if part else None,
            training=part is not None and part.training,
            target=builder.target(key),
            dagman=builder.is_dagman(key),
        )

    def _names_of(self, run: Run) -> tuple[str, str | None]:
        """The name of a run, and its label."""
        name = run.names[self._builder.naming_node(run)]
        labels = self._builder.ensemble.settings.labels
        label = next(
            (label_rule.name for label_rule in labels if label_rule.matches(name, run.uuid)), None
        )
        return name, label

    # --- nodes, and jobs of no node ------------------------------------------------------

    def _build_node(self, key: NodeKey) -> None:
        builder, self._current = self._builder, key
        record = builder.nodes[key]
        submissions = node_submissions(record)
        histories = {_job_key(job): (job, job.history()) for job in record.jobs if not job.noop}
        state, part = builder.states[key].state, builder.runs.parts.get(key)
        training = part is not None and part.training
        final = _final(submissions, histories) if training and state is State.COMPLETED else None
        executions = self._build_jobs(histories, self._owner(key), final)
        run = builder.runs.by_node.get(key)
        if run is not None and part is not None and training and part.epoch is not None:
            self._epochs[key] = self._epoch(run, key, submissions, executions, final)
            self._run_epochs.pop(run.key, None)

    def _build_stray(self, key: JobKey) -> None:
        job = self._builder.ensemble.jobs[key]
        node = self._builder.node_of(job)
        if key in self._builder.ensemble.unproven.foreign:
            entries_key = key if key[2] else job.id
            if (
                self._entries.get(key[0] // CLUSTERS_PER_BLOCK, {}).pop(entries_key, None)
                is not None
            ):
                self._blocks.pop(key[0] // CLUSTERS_PER_BLOCK, None)
        elif node in self._builder.nodes:
            # Its node has become known.
            self.nodes.add(node)
        elif not job.noop:
            self._current = key
            self._build_jobs({key: (job, job.history())}, NO_OWNER, None)

    def _build_jobs(
        self, histories: _Histories, owner: _JobOwner, final: Execution | None
    ) -> list[ExecutionEntry]:
        """Build the entries of jobs that belong together.

        Returns the execution entries, in the order in which the jobs were submitted.
        """
        executions: list[ExecutionEntry] = []
        keys = sorted(histories)
        attempts = _attempts(histories)
        for key in keys:
            job, history = histories[key]
            job_id = job.id
            entries = list(self._executions(job_id, history, owner, attempts, final))
            transfers = self._transfers(job_id, history, owner)
            self._store(
                key if key[2] else job_id,
                (self._job(job, job_id, history, owner, entries), *entries, *transfers),
            )
            executions += entries
            if (
                history.state is State.HELD
                or history.open is not None
                or any(map(_is_open, history.transfers))
            ):
                self._unfinished.add(self._current)
        return executions

    # --- executions ---------------------------------------------------------------------

    # --- jobs and transfers -------------------------------------------------------------

    # --- epochs and runs ----------------------------------------------------------------

    def _epoch(
        self,
        run: Run,
        key: NodeKey,
        submissions: Sequence[NodeSubmission],
        executions: Sequence[ExecutionEntry],
        final: Execution | None,
    ) -> EpochEntry:
        builder = self._builder
        part, state = builder.runs.parts[key], builder.states[key]
        counts = key in builder.run_states[run.key].epochs.values()
        done = state.state is State.COMPLETED
        success = next((entry for entry in executions if entry.final), None)
        # The first of several of equal length.
        longest = max(executions, key=lambda entry: entry.seconds, default=None)
        jobs = [job.id for submission in submissions for job in submission.jobs if not job.noop]
        ids = {entry.job: entry.job for entry in executions}  # Share the same objects.
        submit_times = [
            submission.submitted for submission in submissions if submission.submitted is not None
        ]
        owner = self._owner(key)
        name, label = self._run_names[run.key]
        good, bad, in_flight = _gpu_seconds(executions)
        return EpochEntry(
            run=run.key,
            run_name=name,
            uuid=run.uuid,
            label=label,
            dag=builder.dag_file(key[0]),
            in_dag=key[0],
            node=key[1],
            epoch=part.epoch,
            epoch_var=part.epoch_var,
            counts=counts,
            state=state.state,
            inferred=state.inferred,
            target=owner.target,
            first_submitted=min(submit_times, default=None),
            completed=self._ended(key, state, final) if done else None,
            attempts=max((entry.attempt for entry in executions), default=0),
            jobs=tuple([ids.get(job_id, job_id) for job_id in jobs]),
            site=success.site if success else None,
            gpu=success.gpu if success else None,
            gpus=success.gpus if success else None,
            seconds=success.seconds if success else None,
            longest_site=longest.site if longest else None,
            longest_gpu=longest.gpu if longest else None,
            longest_seconds=longest.seconds if longest else None,
            good=good,
            bad=bad,
            in_flight=in_flight,
        )

    def _ended(self, key: NodeKey, state: NodeState, final: Execution | None) -> datetime | None:
        """When a completed node ended.

        None where only a rescue file, a node status file or the submission of a later node shows
        that it ended: these do not have the time.
        """
        if final is not None:
            return final.end
        if state.inferred or state.since is None:
            return None
        builder = self._builder
        times = [post.time for post in builder.nodes[key].posts if post.ok]
        if state.job is not None:
            history = state.job.history()
            times += [history.since] if history.state is State.COMPLETED and history.since else []
        for report in builder.dags[key[0]].node_reports.get(key[1], ()):
            if report.kind in (NodeReportKind.DONE, NodeReportKind.JOB_DONE):
                local = builder.clock.to_local(report.epoch) if report.epoch is not None else None
                times += [time for time in (report.time, local) if time is not None]
        return state.since if state.since in times else None

    def _run(self, run: Run, in_flight: Mapping[str, int]) -> RunEntry:
        builder = self._builder
        run_state, home_node = builder.run_states[run.key], builder.naming_node(run)
        name, label = self._run_names[run.key]
        row = builder.run_row(run, in_flight)
        good, bad, seconds_in_flight = builder.run_seconds(run, in_flight)
        if run.key not in self._first_submissions:
            self._first_submissions[run.key] = self._first_submission(run)
        return RunEntry(
            run=run.key,
            run_name=name,
            uuid=run.uuid,
            label=label,
            dag=builder.dag_file(home_node[0]),
            state=run_state.state,
            epochs_total=len(run_state.epochs),
            epochs_done=run_state.done,
            epochs_inferred=run_state.inferred,
            epochs_skipped=run_state.skipped,
            latest=row.latest,
            began=self._first_submissions[run.key],
            good=good,
            bad=bad,
            in_flight=seconds_in_flight,
            ends_before=ends_before(row),
            paused=gate_symbol(row) is PAUSED,
            stopped=gate_symbol(row) is STOPPED,
            failed=row.failed,
        )

    def _first_submission(self, run: Run) -> datetime | None:
        results = filter(None, map(self._builder.submission_result, run.nodes()))
        return min(
            (when for result in results for when in result.submit_times if when is not None),
            default=None,
        )


def _attempts(histories: _Histories) -> dict[int, int]:
    """The attempt number of each execution (by ``id``) within its node, from 1.

    The procs of one submission are one attempt: their first executions have the same number.
    """
    by_submission: dict[tuple[int, int], list[Sequence[Execution]]] = {}
    for (cluster, _, subproc), (_, history) in histories.items():
        if history.executions:
            by_submission.setdefault((cluster, subproc), []).append(history.executions)
    starts = sorted(
        (
            (
                min(
                    executions[index].start
                    for executions in proc_executions
                    if index < len(executions)
                ),
                submission,
                index,
            )
            for submission, proc_executions in by_submission.items()
            for index in range(max(map(len, proc_executions)))
        )
    )
    return {
        id(executions[index]): number
        for number, (_, submission, index) in enumerate(starts, start=1)
        for executions in by_submission[submission]
        if index < len(executions)
    }


_Histories: TypeAlias = Mapping[JobKey, tuple[Job, JobHistory]]


def _is_open(span: TransferSpan) -> bool:
    return span.start is not None and span.end is None


def _final(submissions: Sequence[NodeSubmission], histories: _Histories) -> Execution | None:
    """The execution that completed a node: the last good one of its last good job."""
    for submission in reversed(submissions):
        for job in submission.jobs:
            _, history = histories.get(_job_key(job), (job, None))
            for execution in reversed(history.executions if history is not None else ()):
                if execution.outcome is Outcome.GOOD:
                    return execution
    return None


def _gpu_seconds(executions: Iterable[ExecutionEntry]) -> tuple[float, float, float]:
    """GPU-seconds: good, bad, in flight."""
    sums = {"good": 0.0, "bad": 0.0, "in_flight": 0.0}
    for entry in executions:
        sums[entry.kind] += entry.gpu_seconds or 0.0
    return sums["good"], sums["bad"], sums["in_flight"]
