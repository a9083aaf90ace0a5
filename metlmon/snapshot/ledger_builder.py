"""Builds the ledger from the state model.

This is the only place where ledger entries are created.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from metlmon.eventlog import UsageRow
from metlmon.eventlog.usage_table import UsageTable
from metlmon.frozen import frozen
from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.job_events import Job, JobId, NodeKey
from metlmon.model.job_times import IdleTimes, InputTransfers, StartTimes, latest_by
from metlmon.model.node import NodeState, NodeSubmission, node_submissions
from metlmon.model.node_reports import NodeReportKind
from metlmon.model.reasons import cause_of
from metlmon.model.run import Run
from metlmon.model.sites import alias_of, host_of
from metlmon.model.states import TERMINAL, Outcome, State
from metlmon.snapshot.gate_text import PAUSED, STOPPED, ends_before, gate_symbol
from metlmon.snapshot.ledger import (
    EpochEntry,
    ExecutionEntry,
    HoldEntry,
    JobEntry,
    Ledger,
    RunEntry,
    StateChanges,
    TransferEntry,
)

if TYPE_CHECKING:
    from metlmon.snapshot.builder import SnapshotBuilder


NODES_PER_CHECK: Final = 8
"""Nodes whose entries are built between two checks of the clock: a millisecond."""

CLUSTERS_PER_BLOCK: Final = 256
"""Clusters whose entries are sorted together: a change re-sorts one block."""

MAX_SHARED_SECONDS: Final = 4096.0
"""Durations up to an hour or so are interned.

Transfers and waits are mostly shorter, and logged in whole seconds.
"""

BYTE_EVENTS: Final = frozenset({4, 5})
"""Evicted and terminated: the events that report the bytes transferred."""

JobKey = tuple[int, int, int]


@frozen
class _JobOwner:
    """The node and run of a job: shared by all entries of the job."""

    dag: str | None = None
    in_dag: str | None = None
    node: str | None = None
    run: str | None = None
    run_name: str | None = None
    uuid: str | None = None
    label: str | None = None
    epoch: int | None = None
    training: bool = False
    target: str | None = None
    dagman: bool = False


NO_OWNER: Final = _JobOwner()
"""Owner of a job that belongs to no node, or to an unknown one."""


JobEntries: TypeAlias = tuple[JobEntry | ExecutionEntry | TransferEntry, ...]
"""The entries of one job."""

JobEntriesKey: TypeAlias = tuple[int, ...]
"""Cluster and proc (the tuple in the entries), and the subproc if there is one."""


class _Block(NamedTuple):
    """The entries of some clusters, sorted."""

    jobs: tuple[JobEntry, ...]
    executions: tuple[ExecutionEntry, ...]
    transfers: tuple[TransferEntry, ...]


class LedgerBuilder:
    """Builds the ledger entries of an ensemble, and caches them.

    The entries of a node's jobs are built together. They are built again when the node has
    changed, and as long as it has an execution, a transfer or a hold in progress.

    ``nodes`` and ``strays`` (jobs of no node): those whose entries are out of date.
    """

    def __init__(self, builder: SnapshotBuilder) -> None:
        self.nodes: set[NodeKey] = {key for key, record in builder.nodes.items() if record.jobs}
        self.nodes.update(builder.runs.parts)
        self.strays: set[JobKey] = {
            _job_key(job)
            for job in builder.real_jobs()
            if builder.node_of(job) not in builder.nodes
        }
        self._entries: dict[int, dict[JobEntriesKey, JobEntries]] = {}
        self._blocks: dict[int, _Block] = {}
        self._epochs: dict[NodeKey, EpochEntry] = {}
        self._run_epochs: dict[str, tuple[EpochEntry, ...]] = {}
        self._first_submissions: dict[str, datetime | None] = {}
        self._counted_nodes: dict[str, dict[int, NodeKey]] = {}
        self._run_names: dict[str, tuple[str, str | None]] = {}
        self._owners: dict[NodeKey, _JobOwner] = {}
        self._updated_for: SnapshotBuilder | None = None
        self._unfinished: set[NodeKey | JobKey] = set()
        self._host_sites: dict[str, set[str]] = {}
        self._texts: dict[str | None, str | None] = {}
        self._numbers: dict[int | None, int | None] = {}
        self._seconds: dict[float | None, float | None] = {}
        self._state_tuples: dict[tuple[State, ...], tuple[State, ...]] = {}
        self._host_users: dict[str, set[NodeKey | JobKey]] = {}
        self._builder = builder
        self._current: NodeKey | JobKey = ("", "")

    def update(self, builder: SnapshotBuilder, deadline: float | None = None) -> bool:
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

    def _begin_update(self, builder: SnapshotBuilder) -> None:
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

    def _mark_changed(self, key: NodeKey | JobKey) -> None:
        if len(key) == 2:
            self.nodes.add(key)
        else:
            self.strays.add(key)

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
            measure=builder.totals.measure,
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

    def _executions(
        self,
        job_id: JobId,
        history: JobHistory,
        owner: _JobOwner,
        attempts: Mapping[int, int],
        final: Execution | None,
    ) -> Iterable[ExecutionEntry]:
        shares, idle, inputs = _shared_bytes(history), IdleTimes(history), InputTransfers(history)
        for index, execution in enumerate(history.executions):
            previous = history.executions[index - 1] if index else None
            wait, transfer = self._wait_and_transfer(history, idle, inputs, execution, previous)
            number, is_final = attempts[id(execution)], execution is final
            yield self._execution(
                job_id,
                owner,
                execution,
                attempt=number,
                wait=wait,
                transfer=transfer,
                moved_bytes=shares[index],
                final=is_final,
            )

    def _execution(
        self,
        job: JobId,
        owner: _JobOwner,
        execution: Execution,
        attempt: int,
        wait: float | None,
        transfer: float | None,
        moved_bytes: tuple[int | None, int | None],
        final: bool,
    ) -> ExecutionEntry:
        builder, machine = self._builder, execution.machine
        seconds = builder.seconds(execution.start, execution.end) or 0.0
        gpus = execution.gpus
        gpu_seconds = None if gpus is None else seconds if gpus == 1 else seconds * gpus
        bad = execution.outcome not in (Outcome.GOOD, Outcome.IN_FLIGHT)
        site = builder.site(machine)
        # Interned: the host name is a new string in every slot name.
        host = host_of(machine) if machine else None
        bytes_sent, bytes_received = moved_bytes
        if machine is not None and machine.alias and site:
            self._note_host_site(machine.alias, site)
        return ExecutionEntry(
            job=job,
            attempt=attempt,
            dag=owner.dag,
            in_dag=owner.in_dag,
            node=owner.node,
            run=owner.run,
            run_name=owner.run_name,
            uuid=owner.uuid,
            label=owner.label,
            epoch=owner.epoch,
            training=owner.training,
            target=owner.target,
            site=site,
            host=self._texts.setdefault(host, host),
            gpu=builder.gpu(machine),
            gpus=gpus,
            start=execution.start,
            end=execution.end,
            seconds=seconds,
            suspended=sum(
                builder.seconds(start, end) or 0.0 for start, end in execution.suspensions
            ),
            gpu_seconds=gpu_seconds,
            outcome=execution.outcome,
            code=execution.code,
            subcode=execution.subcode,
            cause=execution.cause if bad else None,
            reason=execution.reason,
            return_value=execution.return_value,
            signal=execution.signal,
            uncertain=execution.uncertain,
            wait=self._shared(wait),
            transfer=self._shared(transfer),
            bytes_sent=bytes_sent,
            bytes_received=bytes_received,
            final=final,
            dagman=owner.dagman,
            cpus=execution.cpus,
        )

    def _wait_and_transfer(
        self,
        history: JobHistory,
        idle: IdleTimes,
        inputs: InputTransfers,
        execution: Execution,
        previous: Execution | None,
    ) -> tuple[float | None, float | None]:
        """Seconds idle before an execution, and seconds of its input transfer."""
        builder = self._builder
        since = previous.end if previous is not None and previous.end else history.submitted
        span = inputs.last(since, execution.start)
        transfer_seconds = builder.seconds(span.start, span.end) if span is not None else None
        if since is None:
            return None, transfer_seconds
        wait_seconds = 0.0
        for start, end in idle.between(since, execution.start):
            wait_seconds += builder.seconds(start, end) or 0.0
        return wait_seconds, transfer_seconds

    # --- jobs and transfers -------------------------------------------------------------

    def _note_host_site(self, alias: str, site: str) -> None:
        """Store the site of a host.

        Entries that were built without knowing it are marked as out of date.
        """
        sites = self._host_sites.setdefault(alias, set())
        if site not in sites:
            sites.add(site)
            for key in self._host_users.get(alias, ()):
                self._mark_changed(key)

    def _transfers(
        self, job_id: JobId, history: JobHistory, owner: _JobOwner
    ) -> Iterable[TransferEntry]:
        machines = StartTimes(history)
        for span in history.transfers:
            seconds = None
            if span.start is not None:
                seconds = self._shared(self._builder.seconds(span.start, span.end))
            yield TransferEntry(
                job=job_id,
                run=owner.run,
                epoch=owner.epoch,
                direction=span.direction,
                start=span.start,
                end=span.end,
                seconds=seconds,
                outcome="in-flight" if span.outcome == "pending" else span.outcome,
                host=self._texts.setdefault(span.host, span.host),
                site=self._site_of(machines, span),
                queue_seconds=span.queue_seconds,
            )

    def _site_of(self, machines: StartTimes, span: TransferSpan) -> str | None:
        """The site of a transfer.

        For input it is the site of the execution that followed, for output that of the one before;
        without one, the site of the host in other executions.
        """
        if span.direction == "output":
            source = machines.last_to(span.start)
            return self._builder.site(source.machine) if source else self._host_site(span)
        if span.outcome == "ok" and span.start is not None:
            destination = machines.first_after(span.start)
            return self._builder.site(destination.machine) if destination else None
        return self._host_site(span)

    def _host_site(self, span: TransferSpan) -> str | None:
        if not span.host:
            return None
        alias = alias_of(span.host) or ""
        self._host_users.setdefault(alias, set()).add(self._current)
        sites = self._host_sites.get(alias, set())
        if len(sites) == 1:
            return next(iter(sites))
        return None if sites else self._builder.site_of_address(span.host)

    def _shared(self, seconds: float | None) -> float | None:
        if seconds is None or seconds > MAX_SHARED_SECONDS:
            return seconds
        return self._seconds.setdefault(seconds, seconds)

    def _state_changes(self, history: JobHistory) -> StateChanges:
        states = tuple([state for _, state in history.states])
        times = tuple([when for when, _ in history.states])
        return StateChanges(self._state_tuples.setdefault(states, states), times)

    def _job(
        self,
        job: Job,
        job_id: JobId,
        history: JobHistory,
        owner: _JobOwner,
        executions: Sequence[ExecutionEntry],
    ) -> JobEntry:
        usage = _memory(history.usage)
        peaks = [
            value for value in (job.memory_max, usage.usage if usage else None) if value is not None
        ]
        ended = history.since if history.state in TERMINAL else None
        request = int(usage.request) if usage is not None and usage.request is not None else None
        sent, received = history.bytes_sent, history.bytes_received
        if len(executions) == 1 and (executions[0].bytes_sent, executions[0].bytes_received) == (
            sent,
            received,
        ):
            # Share the same objects.
            sent, received = executions[0].bytes_sent, executions[0].bytes_received
        return JobEntry(
            job=job_id,
            dag=owner.dag,
            in_dag=owner.in_dag,
            node=owner.node,
            run=owner.run,
            run_name=owner.run_name,
            uuid=owner.uuid,
            label=owner.label,
            epoch=owner.epoch,
            training=owner.training,
            target=owner.target,
            state=history.state or State.IDLE,
            submitted=history.submitted,
            ended=ended,
            states=self._state_changes(history),
            holds=tuple(self._holds(history)),
            bytes_sent=sent,
            bytes_received=received,
            bytes_at=_bytes_at(job),
            memory_mb=int(max(peaks)) if peaks else None,
            request_memory_mb=self._numbers.setdefault(request, request),
            dagman=owner.dagman,
        )

    def _holds(self, history: JobHistory) -> Iterable[HoldEntry]:
        # By index, not by time: the eviction that a hold causes has the same second.
        held_at = [i for i, (_, state) in enumerate(history.states) if state is State.HELD]
        ends = [history.states[i + 1][0] if i + 1 < len(history.states) else None for i in held_at]
        find_state = latest_by([history.states[i][0] for i in held_at])
        find_execution = latest_by([execution.start for execution in history.executions])
        for when, held in history.holds:
            hold_index, execution_index = find_state(when), find_execution(when)
            end = None if hold_index is None else ends[hold_index]
            machine = (
                None if execution_index is None else history.executions[execution_index].machine
            )
            code = held.code if held else None
            yield HoldEntry(
                start=when,
                end=end,
                seconds=self._builder.seconds(when, end) or 0.0,
                code=code,
                subcode=held.subcode if held else None,
                cause=cause_of(Outcome.HELD, code, held.reason if held else None, None, None),
                site=self._builder.site(machine),
                gpu=self._builder.gpu(machine),
            )

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


def _job_key(job: Job) -> JobKey:
    return job.cluster, job.proc, job.subproc


def _memory(usage: Sequence[UsageRow]) -> UsageRow | None:
    if isinstance(usage, UsageTable):
        return usage.named("Memory")
    return next((row for row in usage if row.name == "Memory"), None)


def _gpu_seconds(executions: Iterable[ExecutionEntry]) -> tuple[float, float, float]:
    """GPU-seconds: good, bad, in flight."""
    sums = {"good": 0.0, "bad": 0.0, "in_flight": 0.0}
    for entry in executions:
        sums[entry.kind] += entry.gpu_seconds or 0.0
    return sums["good"], sums["bad"], sums["in_flight"]


def _bytes_at(job: Job) -> datetime | None:
    """When the bytes of a job were last reported: they are counted at that time."""
    history = job.history()
    if history.bytes_sent is None and history.bytes_received is None:
        return None
    ends = [
        execution.end
        for execution in history.executions
        if execution.end is not None and execution.bytes_sent is not None
    ]
    if not ends:
        # Reported by an eviction before it ever ran. Its newest event does not count: it may
        # be a memory update of a later attempt.
        ends = [event.time for event in job.events() if event.number in BYTE_EVENTS]
    return max(ends, default=None) or history.submitted


def _shared_bytes(history: JobHistory) -> list[tuple[int | None, int | None]]:
    """Bytes sent and received by each execution: its own ``Run Bytes``.

    The last one gets what the job's total has beyond them (a run that began under another shadow is
    in the total only).
    """
    sent = _shares([execution.bytes_sent for execution in history.executions], history.bytes_sent)
    received = _shares(
        [execution.bytes_received for execution in history.executions], history.bytes_received
    )
    return list(zip(sent, received, strict=True))


def _shares(own: list[int | None], total: int | None) -> list[int | None]:
    if total is None or not own:
        return own
    remainder = total - sum(value or 0 for value in own)
    if remainder:
        own = [*own[:-1], (own[-1] or 0) + remainder]
    return own
