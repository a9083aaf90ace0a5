"""Builds the record of a job, with its executions, transfers and holds.

Look-ups by time in a job's history are bisections: a job may be held or started thousands of
times, and its entries need not be in chronological order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any, Final, TypeAlias

from msgspec.structs import asdict, replace

from metlmon.eventlog.events import GpuDevice, resource_usage
from metlmon.model.clock import Clock
from metlmon.model.job import (
    SAME_MOMENT,
    JobHistory,
    LoggedExecution,
    TransferSpan,
    with_inferred_ends,
)
from metlmon.model.job_events import NO_DAG, JobKey, LoggedJob, NodeKey
from metlmon.model.node import removed_at_dag_end
from metlmon.model.reasons import cause_of
from metlmon.model.sites import NameTable, SiteAndGpu, alias_of, host_of
from metlmon.model.states import ACTIVE, TERMINAL, Outcome, State
from metlmon.snapshot.records import (
    Execution,
    Hold,
    Job,
    JobNode,
    Transfer,
)

# Module constants, since Python 3.11 looks up each Enum member through a function.
_IDLE: Final = State.IDLE
_GOOD_OR_OPEN: Final = (Outcome.GOOD, Outcome.IN_FLIGHT)

Histories: TypeAlias = Mapping[JobKey, tuple[LoggedJob, JobHistory]]
"""The jobs of one node with their histories."""

NO_NODE: Final = JobNode()
"""Owner of a job that belongs to no node, or to an unknown one."""


class EntryFactory:
    """Builds the entries of single jobs.

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
        self._host_users: dict[str, set[NodeKey | JobKey]] = {}
        self._texts: dict[str | None, str | None] = {}
        self._devices: dict[GpuDevice | None, GpuDevice | None] = {}
        self._sequences: dict[tuple[State, ...], tuple[State, ...]] = {}
        """Sequences of states of jobs that have ended, shared by many jobs."""

    def build(
        self,
        histories: Histories,
        owner: JobNode,
        success: tuple[JobKey, int] | None,
        user: NodeKey | JobKey,
        is_service: bool = False,
    ) -> Iterator[tuple[JobKey, Job]]:
        """The records of the jobs of a node, or of a job of no node (``user``).

        ``success``: the job and index of the execution that completed the node. ``is_service``:
        the job of a SERVICE node is over when its DAG is.
        """
        histories = _with_inferred_ends(histories, owner, self.as_of)
        attempts, of_owner = _attempts(histories), asdict(owner)
        for key in sorted(histories):
            job, history = histories[key]
            final = success[1] if success is not None and success[0] == key else None
            places = [self._names.site_and_gpu(each.machine) for each in history.executions]
            fields = of_owner
            if owner.at_access_point or self._is_at_access_point(history, user):
                fields = of_owner | {"at_access_point": True}
                places = [(None, None)] * len(places)
            if is_service and removed_at_dag_end(job) and history.executions:
                history = replace(history, executions=_ended_well(history))
                attempts = {**attempts, **_attempts({key: (job, history)})}
            starts = StartTimes(history.executions, places)
            executions = tuple(self._executions(job, history, fields, attempts, places, final))
            transfers = tuple(self._transfers(job, history, fields, starts, user))
            yield key, self._job(job, history, fields, starts, executions, transfers)

    def take_stale(self) -> set[NodeKey | JobKey]:
        """Return nodes, and jobs of no node, whose entries have become stale since the last call.

        These were built before facts about hosts were known that other jobs show.
        """
        stale, self._stale = self._stale, set()
        return stale

    def _is_at_access_point(self, history: JobHistory, user: NodeKey | JobKey) -> bool:
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
        self._without_attributes.add(user)
        return self._has_attributes

    def at_as_of(self, job: Job) -> Job:
        """A job with everything that has not ended counted up to ``as_of``.

        Not for a job that was suspended or disconnected, which has to be built again.
        """
        holds = [
            hold
            if hold.end is not None
            else replace(hold, seconds=self.seconds(hold.start, None) or 0.0)
            for hold in job.holds
        ]
        executions = [
            entry if entry.end is not None else self._execution_at_as_of(entry)
            for entry in job.executions
        ]
        transfers = [
            entry
            if entry.end is not None or entry.start is None
            else replace(entry, seconds=self.seconds(entry.start, None))
            for entry in job.transfers
        ]
        return replace(
            job,
            holds=tuple(holds),
            executions=tuple(executions),
            transfers=tuple(transfers),
        )

    def _execution_at_as_of(self, entry: Execution) -> Execution:
        return replace(entry, seconds=self.seconds(entry.start, None) or 0.0)

    def seconds(self, start: datetime | None, end: datetime | None) -> float | None:
        """Seconds between two times; up to ``as_of`` if ``end`` is None."""
        if end is None:
            end = self.as_of
        return None if start is None or end is None else self._clock.seconds(start, end)

    # --- executions ---------------------------------------------------------------------

    def _executions(
        self,
        job: LoggedJob,
        history: JobHistory,
        owner: Mapping[str, Any],
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
            bad = execution.outcome not in _GOOD_OR_OPEN and (
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
                **owner,
                job=job.id,
                attempt=attempts[id(execution)],
                site=site,
                host=self._texts.setdefault(host, host),
                annex=machine.annex if machine else None,
                gpu=gpu,
                gpus=gpus,
                device=self._devices.setdefault(device, device),
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
                cause=execution.cause if bad else None,
                reason=execution.reason,
                return_value=execution.return_value,
                signal=execution.signal,
                uncertain=execution.uncertain,
                wait=wait,
                transfer=transfer,
                bytes_sent=sent[index],
                bytes_received=received[index],
                final=index == final,
                cpus=execution.cpus,
                usage=execution.usage,
                held_cause=None if held is None else _hold_cause(held.code, held.reason),
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
        """Store the site of a host; entries that were built without it are stale."""
        sites = self._host_sites.setdefault(alias, set())
        if site not in sites:
            sites.add(site)
            self._stale.update(self._host_users.get(alias, ()))

    # --- transfers ----------------------------------------------------------------------

    def _transfers(
        self,
        job: LoggedJob,
        history: JobHistory,
        owner: Mapping[str, Any],
        starts: StartTimes,
        user: NodeKey | JobKey,
    ) -> Iterable[Transfer]:
        for span in history.transfers:
            yield Transfer(
                job=job.id,
                key=owner["key"],
                epoch=owner["epoch"],
                direction=span.direction,
                start=span.start,
                end=span.end,
                seconds=None if span.start is None else self.seconds(span.start, span.end),
                outcome="in-flight" if span.outcome == "pending" else span.outcome,
                host=self._texts.setdefault(span.host, span.host),
                site=self._site_of(starts, span, user),
                queue_seconds=span.queue_seconds,
            )

    def _site_of(
        self, starts: StartTimes, span: TransferSpan, user: NodeKey | JobKey
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
        self._host_users.setdefault(alias, set()).add(user)
        sites = self._host_sites.get(alias, set())
        if len(sites) == 1:
            return next(iter(sites))
        return None if sites else self._names.site_of_address(span.host)

    # --- the job ------------------------------------------------------------------------

    def _job(
        self,
        job: LoggedJob,
        history: JobHistory,
        owner: Mapping[str, Any],
        starts: StartTimes,
        executions: tuple[Execution, ...],
        transfers: tuple[Transfer, ...],
    ) -> Job:
        used = (each.usage for each in reversed(executions) if each.usage)
        usage = next(used, None) or resource_usage(history.usage)
        peaks = [job.memory_max, *(each.usage.memory_mb for each in executions if each.usage)]
        memory = max((peak for peak in peaks if peak is not None), default=None)
        entered = tuple([state for _, state in history.states])
        if history.state in TERMINAL:
            entered = self._sequences.setdefault(entered, entered)
        return Job(
            **owner,
            job=job.id,
            state=history.state or State.IDLE,
            since=history.since,
            submitted=history.submitted,
            ended=history.since if history.state in TERMINAL else None,
            node_name=job.node_name if owner["in_dag"] == NO_DAG else owner["node"],
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
            if owner["at_access_point"]
            else tuple([(line, text) for line, _, text in history.gaps]),
            removal=self._texts.setdefault(history.removal, history.removal),
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
                cause=_hold_cause(code, reason),
                site=site,
                gpu=gpu,
                reason=reason,
            )


def _with_inferred_ends(histories: Histories, owner: JobNode, as_of: datetime | None) -> Histories:
    """The jobs of a node, with ends that the log lacks (:func:`with_inferred_ends`)."""
    find_successor = _successors(histories) if owner.in_dag and len(histories) > 1 else None
    inferred: dict[JobKey, tuple[LoggedJob, JobHistory]] = {}
    for key, (job, history) in histories.items():
        is_open = find_successor is not None and history.state in ACTIVE
        successor = find_successor(key, history.last) if find_successor and is_open else None
        if successor is not None or any(each.disconnected for each in history.executions):
            inferred[key] = job, with_inferred_ends(history, as_of, owner.lease_seconds, successor)
    return {**histories, **inferred} if inferred else histories


def _successors(histories: Histories) -> Callable[[JobKey, datetime | None], datetime | None]:
    """Return a function that finds when the next job of the node was submitted after a moment.

    Only jobs that have left the queue count: while a job is in the queue, the one before may be.
    """
    first: dict[int, datetime] = {}
    queued = {key[0] for key, (_, history) in histories.items() if history.state in ACTIVE}
    for (cluster, _, _), (_, history) in histories.items():
        if history.submitted is not None and cluster not in queued:
            first[cluster] = min(history.submitted, first.get(cluster, history.submitted))
    submissions = sorted((time, cluster) for cluster, time in first.items())
    times = [time for time, _ in submissions]

    def find(key: JobKey, last: datetime | None) -> datetime | None:
        start = 0 if last is None else bisect_right(times, last)
        later = (time for time, cluster in submissions[start : start + 2] if cluster != key[0])
        return next(later, None)

    return find


def _ended_well(history: JobHistory) -> list[LoggedExecution]:
    """The executions of a SERVICE node whose DAG has ended: one that this ended counts as good."""
    *earlier, last = history.executions
    if last.end is None or history.since is None or history.since - last.end > SAME_MOMENT:
        return history.executions
    return [*earlier, replace(last, outcome=Outcome.GOOD, held_by=None, checkpoint=None)]


def _hold_cause(code: int | None, reason: str | None) -> str:
    return cause_of(Outcome.HELD, code, reason, None, None)


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
    for (cluster, _, subproc), (_, history) in histories.items():
        if history.executions:
            by_submission.setdefault((cluster, subproc), []).append(history.executions)
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


# --- look-ups by time -------------------------------------------------------------------


def latest_by(times: Sequence[datetime]) -> Callable[[datetime], int | None]:
    """Return a function that finds the greatest index of a time not after a given moment."""
    sorted_times = sorted(times)
    if sorted_times == times:
        greatest: Sequence[int] = range(len(times))
    else:
        order = sorted(range(len(times)), key=times.__getitem__)
        greatest = list(accumulate(order, max))

    def find(moment: datetime) -> int | None:
        count = bisect_right(sorted_times, moment)
        return greatest[count - 1] if count else None

    return find


class IdleTimes:
    """The idle intervals of a job; the last one may be open."""

    def __init__(self, history: JobHistory) -> None:
        states = history.states
        spans = [(start, end) for (start, state), (end, _) in pairwise(states) if state is _IDLE]
        spans.sort()
        self._spans = spans
        self._open = states[-1][0] if states and states[-1][1] is _IDLE else None
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
        self._sorted = sorted(starts)
        if self._sorted == starts:
            self._smallest: Sequence[int] = range(len(starts))
        else:
            order = sorted(range(len(starts)), key=starts.__getitem__)
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
        if len(spans) > 1:
            spans.sort(key=itemgetter(0, 1))
        self._spans = spans
        self._starts = [start for start, _, _ in spans]

    def last(self, since: datetime | None, until: datetime) -> TransferSpan | None:
        """The last transfer in the log that started between two moments."""
        first = 0 if since is None else bisect_left(self._starts, since)
        after = bisect_right(self._starts, until)
        found = self._spans[first:after]
        return max(found, key=itemgetter(1))[2] if found else None
