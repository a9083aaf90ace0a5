"""Builds the ledger entries of one job: itself, its executions, transfers and holds.

Look-ups by time in a job's history are bisections: a job may be held or started thousands of
times, and its entries need not be in chronological order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from metlmon.eventlog import UsageRow
from metlmon.eventlog.usage_table import UsageTable
from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.job_events import Job, JobId, NodeKey
from metlmon.model.reasons import cause_of
from metlmon.model.sites import alias_of, host_of
from metlmon.model.states import TERMINAL, Outcome, State
from metlmon.snapshot.ledger import (
    EpochEntry,
    ExecutionEntry,
    HoldEntry,
    JobEntry,
    StateChanges,
    TransferEntry,
)
from metlmon.snapshot.run_rows import RunRows

MAX_SHARED_SECONDS: Final = 4096.0
"""Durations up to an hour or so are interned.

Transfers and waits are mostly shorter, and logged in whole seconds.
"""

BYTE_EVENTS: Final = frozenset({4, 5})
"""Evicted and terminated: the events that report the bytes transferred."""

JobKey = tuple[int, int, int]

JobEntries: TypeAlias = tuple[JobEntry | ExecutionEntry | TransferEntry, ...]
"""The entries of one job."""

JobEntriesKey: TypeAlias = tuple[int, ...]
"""Cluster and proc (the tuple in the entries), and the subproc if there is one."""


class JobEntryBuilder:
    """Builds the entries of single jobs, and interns their values."""

    def __init__(self, builder: RunRows) -> None:
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
        self._updated_for: RunRows | None = None
        self._unfinished: set[NodeKey | JobKey] = set()
        self._host_sites: dict[str, set[str]] = {}
        self._texts: dict[str | None, str | None] = {}
        self._numbers: dict[int | None, int | None] = {}
        self._seconds: dict[float | None, float | None] = {}
        self._state_tuples: dict[tuple[State, ...], tuple[State, ...]] = {}
        self._host_users: dict[str, set[NodeKey | JobKey]] = {}
        self._builder = builder
        self._current: NodeKey | JobKey = ("", "")

    def _mark_changed(self, key: NodeKey | JobKey) -> None:
        if len(key) == 2:
            self.nodes.add(key)
        else:
            self.strays.add(key)

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


class _JobOwner(Struct, frozen=True):
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


class _Block(NamedTuple):
    """The entries of some clusters, sorted."""

    jobs: tuple[JobEntry, ...]
    executions: tuple[ExecutionEntry, ...]
    transfers: tuple[TransferEntry, ...]


def _job_key(job: Job) -> JobKey:
    return job.cluster, job.proc, job.subproc


def _memory(usage: Sequence[UsageRow]) -> UsageRow | None:
    if isinstance(usage, UsageTable):
        return usage.named("Memory")
    return next((row for row in usage if row.name == "Memory"), None)


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


def latest_by(times: Sequence[datetime]) -> Callable[[datetime], int | None]:
    """A function that finds the greatest index in ``times`` not after a moment."""
    order = sorted(range(len(times)), key=times.__getitem__)
    sorted_times = [times[index] for index in order]
    greatest = list(accumulate(order, max))

    def find(moment: datetime) -> int | None:
        count = bisect_right(sorted_times, moment)
        return greatest[count - 1] if count else None

    return find


def first_from(times: Sequence[datetime]) -> Callable[[datetime], int | None]:
    """A function that finds the smallest index in ``times`` not before a moment."""
    order = sorted(range(len(times)), key=times.__getitem__)
    sorted_times = [times[index] for index in order]
    smallest = list(accumulate(reversed(order), min))[::-1]

    def find(moment: datetime) -> int | None:
        index = bisect_left(sorted_times, moment)
        return smallest[index] if index < len(smallest) else None

    return find


class IdleTimes:
    """The idle intervals of a job; the last one may be open."""

    def __init__(self, history: JobHistory) -> None:
        states = history.states
        spans = [
            (start, end) for (start, state), (end, _) in pairwise(states) if state is State.IDLE
        ]
        idle_now = bool(states) and states[-1][1] is State.IDLE
        self._open = states[-1][0] if idle_now else None
        self._spans = sorted(spans)
        self._starts = [start for start, _ in self._spans]
        self._ends = list(accumulate((end for _, end in self._spans), max))

    def between(self, since: datetime, until: datetime) -> Iterable[tuple[datetime, datetime]]:
        """The parts of the idle intervals between two moments."""
        if until <= since:
            return
        first, after = bisect_right(self._ends, since), bisect_left(self._starts, until)
        for start, end in self._spans[first:after]:
            if end > since:
                yield max(start, since), min(end, until)
        if self._open is not None and self._open < until:
            yield max(self._open, since), until


class StartTimes:
    """The executions of a job, by start time."""

    def __init__(self, history: JobHistory) -> None:
        self._executions = history.executions
        starts = [e.start for e in history.executions]
        self._last, self._first = latest_by(starts), first_from(starts)
        self._first_open = next(
            (i for i, e in enumerate(history.executions) if e.end is None), None
        )

    def last_to(self, moment: datetime | None) -> Execution | None:
        """The last in the log that started by this moment; for None, the last of all."""
        if moment is None:
            return self._executions[-1] if self._executions else None
        index = self._last(moment)
        return None if index is None else self._executions[index]

    def first_after(self, moment: datetime) -> Execution | None:
        """The first in the log that started then or later, or that is still open."""
        indices = [index for index in (self._first(moment), self._first_open) if index is not None]
        return self._executions[min(indices)] if indices else None


class InputTransfers:
    """The successful input transfers of a job."""

    def __init__(self, history: JobHistory) -> None:
        spans = [
            (span.start, index, span)
            for index, span in enumerate(history.transfers)
            if span.direction == "input" and span.outcome == "ok" and span.start is not None
        ]
        self._spans = sorted(spans, key=lambda entry: entry[:2])
        self._starts = [start for start, _, _ in self._spans]
        indices = [index for _, index, _ in self._spans]
        self._in_order = indices == sorted(indices)

    def last(self, since: datetime | None, until: datetime) -> TransferSpan | None:
        """The last one in the log that started between two moments."""
        first = 0 if since is None else bisect_left(self._starts, since)
        after = bisect_right(self._starts, until)
        if first >= after:
            return None
        if self._in_order:
            return self._spans[after - 1][2]
        return max(self._spans[first:after], key=lambda entry: entry[1])[2]
