"""The job state machine: folds one job's events into its history.

The fold is a pure function of the job's events in log order (``metlmon/README.md``, "Job state,
from events"; HTCondor manual, "Job Event Log Codes"). It uses no clock: an interval without
an end stays open, and the caller chooses the time up to which it counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.eventlog.events import (
    Aborted,
    ConnectionEvent,
    Event,
    Evicted,
    Execute,
    FileTransfer,
    Held,
    RemoteError,
    ResourceUsage,
    ShadowException,
    Submit,
    Terminated,
    Transfer,
    Usage,
    resource_usage,
    site_in_ad,
)
from metlmon.model.reasons import CODES_WITHOUT_CAUSE, FIRST_VACATE_CODE, REQUEUED, cause_of
from metlmon.model.states import ACTIVE, TERMINAL, Outcome, State

Codes: TypeAlias = frozenset[int]

_cause_of: Final = lru_cache(maxsize=4096)(cause_of)

LATE_TRANSFER = timedelta(minutes=5)
"""The input transfer of an execution, or the release of the hold before it, may be logged after its
001, but within seconds. Later than this they prove that the execution is over and its end was lost.
A 005 follows the upload of the job's output within seconds, too."""

SILENT_END = timedelta(hours=1)
"""A running job that is removed is evicted in the same second (004, then 009). Where only a
009 follows an hour without events, the execution's true end was lost from the log."""

END_NOT_LOGGED: Final = re.compile(r"nable to log ULOG_JOB_TERMINATED event")
"""In the reason of a 007. Source: ``BaseShadow::logTerminateEvent`` in ``baseshadow.cpp``."""

AD_DELAY: Final = timedelta(seconds=2)
"""Maximum time between an event and the 028 that it triggers."""

_TRIGGER: Final = re.compile(r"^TriggerEventTypeNumber = (\d{1,3})\s*$", re.MULTILINE)

SAME_MOMENT = timedelta(seconds=10)
"""Maximum time between an eviction and the hold or removal that caused it, as logged."""

END_OF_TRANSFER = timedelta(seconds=2)
"""Maximum time between the end of an output transfer and the event that shows its result: the
error of one that failed, or the end of the execution that it belongs to. Measured: at most 1 s."""

SUCCESSFUL_CHECKPOINT = 1025
"""The job stored a checkpoint, and its claim could not be used again. Source:
``SuccessfulCheckpoint`` in ``condor_holdcodes.h``, set in ``vanilla_proc.cpp``."""

BYTE_EVENTS: Final = frozenset({4, 5, 7})
"""Events that can report ``Run Bytes``."""

FAILED_OUTPUT = 12
FAILED_CHECKPOINT = 36
"""``TransferOutputError`` and ``FailedToCheckpoint`` in ``condor_holdcodes.h``."""


# Module constants, because Python 3.11 calls a function for each access to an Enum member and
# the fold needs dozens per job.
_IDLE: Final = State.IDLE
_TRANSFERRING_INPUT: Final = State.TRANSFERRING_INPUT
_STARTING: Final = State.STARTING
_RUNNING: Final = State.RUNNING
_TRANSFERRING_OUTPUT: Final = State.TRANSFERRING_OUTPUT
_SUSPENDED: Final = State.SUSPENDED
_DISCONNECTED: Final = State.DISCONNECTED
_HELD: Final = State.HELD
_COMPLETED: Final = State.COMPLETED
_FAILED: Final = State.FAILED
_REMOVED: Final = State.REMOVED
_GOOD: Final = Outcome.GOOD
_EVICTED: Final = Outcome.EVICTED
_IN_FLIGHT: Final = Outcome.IN_FLIGHT
_INPUT_QUEUED: Final = Transfer.INPUT_QUEUED
_INPUT_STARTED: Final = Transfer.INPUT_STARTED
_INPUT_FINISHED: Final = Transfer.INPUT_FINISHED
_OUTPUT_STARTED: Final = Transfer.OUTPUT_STARTED
_OUTPUT_FINISHED: Final = Transfer.OUTPUT_FINISHED


class LoggedExecution(Struct):
    """One execution: from a 001 to the first later event that ends it.

    ``end``: None while in flight. ``held_by``: the hold that caused the eviction at its end.
    ``requeued``: it ended by itself, and the job's on_exit_remove put the job back into the queue.
    ``bytes_*``: ``Run Bytes`` of the event that ended it, ``usage``: its table.
    ``checkpoint``: when its last checkpoint was stored, at its end at the latest; None without one,
    or if it completed its job. ``disconnected``: since when the connection to it has been lost.
    """

    start: datetime
    machine: Execute | None
    end: datetime | None = None
    outcome: Outcome = _IN_FLIGHT
    code: int | None = None
    subcode: int | None = None
    reason: str | None = None
    return_value: int | None = None
    signal: int | None = None
    uncertain: bool = False
    requeued: bool = False
    held_by: Held | None = None
    checkpoint: datetime | None = None
    disconnected: datetime | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None
    usage: ResourceUsage | None = None
    suspensions: list[tuple[datetime, datetime | None]] = field(default_factory=list)

    @property
    def gpus(self) -> int | None:
        """GPUs listed in this execution's 001.

        0 when it lists resources but no GPU; None for old logs, whose 001 lists no resources: no
        other event has them while the job runs.
        """
        if self.machine is not None and self.machine.has_properties:
            return self.machine.gpus or 0
        return None

    @property
    def cpus(self) -> int | None:
        """CPUs listed in this execution's 001; None when not listed."""
        return self.machine.cpus if self.machine is not None else None

    @property
    def cause(self) -> str:
        """Why an unsuccessful execution ended, with variable parts of the reason removed."""
        cause = _cause_of(self.outcome, self.code, self.reason, self.return_value, self.signal)
        return f"{cause}{REQUEUED}" if self.requeued else cause


class TransferSpan(Struct):
    """One file transfer.

    ``outcome``: ok, aborted (input finished, nothing executed), unfinished (never finished),
    failed (output, by an error that was logged), in-flight; a finished input transfer is
    ``pending`` until a 001 confirms it or another event refutes it. ``late``: the 001, or the error
    of an output transfer, was logged before its end, which is still to come (two processes write
    these events).
    """

    direction: str
    start: datetime | None
    end: datetime | None = None
    outcome: str = "in-flight"
    host: str | None = None
    queue_seconds: int | None = None
    late: bool = False


class JobHistory(Struct):
    """The result of folding a job's events.

    ``state``: None before the first event that determines one. ``since``: when it was entered; for
    a running job, when its execution began. ``states``: the states entered, with times.
    ``implied_hold``: the last hold that an eviction implies by its code. ``open``: the execution in
    flight, if any. ``lost_end``: the newest execution, if its end could not be
    logged. ``removal``: the reason of its removal. ``host``: the address of its schedd. ``usage``:
    the newest logged table; ``usage_execution``: the number of its execution, from 1.
    ``early_site``: time and site of an execution whose 001 has not been read yet. ``first``: the
    time of the first event; ``bytes_at``: the latest time of an event that can report bytes.
    """

    state: State | None = None
    since: datetime | None = None
    submitted: datetime | None = None
    host: str | None = None
    executions: list[LoggedExecution] = field(default_factory=list)
    transfers: list[TransferSpan] = field(default_factory=list)
    hold: Held | None = None
    implied_hold: Held | None = None
    holds: list[tuple[datetime, Held | None]] = field(default_factory=list)
    return_value: int | None = None
    signal: int | None = None
    run_bytes_sent: int | None = None
    run_bytes_received: int | None = None
    total_bytes_sent: int | None = None
    total_bytes_received: int | None = None
    usage: Usage = ()
    usage_execution: int = 0
    gaps: list[tuple[int, datetime, str]] = field(default_factory=list)
    last: datetime | None = None
    states: list[tuple[datetime, State]] = field(default_factory=list)
    open: LoggedExecution | None = None
    lost_end: LoggedExecution | None = None
    removal: str | None = None
    early_site: tuple[datetime, str] | None = None
    first: datetime | None = None
    bytes_at: datetime | None = None

    @property
    def bytes_sent(self) -> int | None:
        """The larger of 005's total and the sum of the runs.

        Either can be too small after a shadow restart.
        """
        return _max_known(self.run_bytes_sent, self.total_bytes_sent)

    @property
    def bytes_received(self) -> int | None:
        """Like ``bytes_sent``."""
        return _max_known(self.run_bytes_received, self.total_bytes_received)


def _max_known(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)


def _sum_known(a: int | None, b: int | None) -> int | None:
    return a if b is None else (a or 0) + b


def fold(
    events: Iterable[Event],
    checkpoint_codes: Codes = frozenset(),
    last_image: datetime | None = None,
) -> JobHistory:
    """Fold ``events`` of one job, in log order, into its history.

    ``checkpoint_codes``: return values that mean "checkpointed, to be run again"; an execution
    that ends with one is good. ``events`` excludes 006; ``last_image``: the time of the newest 006,
    which like any event shows that the job is connected.
    """
    history = JobHistory()
    for event in events:
        apply_event(history, event, checkpoint_codes, last_image)
    if last_image is not None:
        note_image_size(history, last_image)
    return history


def apply_event(
    history: JobHistory, event: Event, checkpoint_codes: Codes, last_image: datetime | None
) -> None:
    """Apply the next event in log order to ``history``; arguments as for :func:`fold`."""
    number, time = event.number, event.time
    if history.first is None:
        history.first = time
    if number in BYTE_EVENTS and (history.bytes_at is None or time > history.bytes_at):
        history.bytes_at = time
    if last_image is not None:
        if time >= last_image:
            note_image_size(history, last_image)
        elif isinstance(event.detail, Held) and event.detail.inferred:
            return
    if number == 28:
        # It may be that of a 022, after which the job is not connected.
        _apply_ad_information(history, event)
    elif history.state in TERMINAL:
        _apply_after_end(history, event)
    else:
        if history.state is _DISCONNECTED and number != 22:
            _enter(history, _RUNNING, time)
        handler = _HANDLERS.get(number)
        if handler is not None:
            handler(history, event, checkpoint_codes)
    if history.last is None or time > history.last:
        history.last = time


def note_image_size(history: JobHistory, time: datetime) -> None:
    """Record the newest 006: like any event it shows that the job is connected."""
    if history.last is None or time > history.last:
        history.last = time
        _note_connection(history)
        if history.state is _DISCONNECTED:
            _enter(history, _RUNNING, time)


def _note_connection(history: JobHistory) -> None:
    """Record that the machine of the open execution has been reached."""
    if history.open is not None:
        history.open.disconnected = None


def _apply_after_end(history: JobHistory, event: Event) -> None:
    if isinstance(event.detail, ShadowException) and END_NOT_LOGGED.search(event.detail.reason):
        if history.executions:
            _lose_end(history, history.executions[-1], event.time)
        _enter(history, _IDLE, event.time)
        return
    if event.number == 5 and isinstance(event.detail, Terminated):
        last = history.executions[-1] if history.executions else None
        _store_usage(history, event.detail, last)


def _apply_ad_information(history: JobHistory, event: Event) -> None:
    """Take the site of an execution from the job's attributes if its 001 has none.

    A 028 has the time of the event that triggers it, and belongs to the open execution or to the
    one that ended at that time. If triggered by a 001, it can be read before that, from another
    log. At any other time the attributes are those of a machine that the job has left.
    """
    site = site_in_ad(event.body)
    if site is None:
        return
    trigger = _TRIGGER.search(event.body)
    last = history.executions[-1] if history.executions else None
    if trigger is not None and int(trigger[1]) == 1:
        if last is None or abs(event.time - last.start) > AD_DELAY:
            history.early_site = event.time, site
            return
    elif history.open is None:
        ended = last.end if last is not None else None
        if ended is None or not timedelta() <= event.time - ended <= AD_DELAY:
            return
    if last is not None:
        _set_site(last, site)


def _set_site(execution: LoggedExecution, site: str) -> None:
    if execution.machine is not None and execution.machine.site is None:
        execution.machine = replace(execution.machine, site=site)


def _enter(history: JobHistory, state: State, time: datetime) -> None:
    """Enter a state; a job that runs again in its open execution has run since that began."""
    if history.state is not state:
        running = history.open if state is _RUNNING else None
        history.state, history.since = state, running.start if running is not None else time
        history.states.append((time, state))


def _apply_submit(history: JobHistory, event: Event, _: Codes) -> None:
    if history.submitted is None and isinstance(event.detail, Submit | None):
        history.submitted = event.time
        history.host = event.detail.host if event.detail is not None else None
    if history.state is None:
        _enter(history, _IDLE, event.time)


def _apply_execute(history: JobHistory, event: Event, _: Codes) -> None:
    previous = history.open
    if previous is not None:
        _close_without_end_event(history, previous, event)
    pending = history.transfers[-1] if history.transfers else None
    if pending is not None and pending.direction == "input":
        if pending.outcome == "pending":
            pending.outcome = "ok"
        elif pending.outcome == "in-flight":
            pending.outcome, pending.end, pending.late = "ok", event.time, True
    machine = event.detail if isinstance(event.detail, Execute) else None
    if event.damaged and machine is not None and machine.gpus is None:
        # Cut before the line with its GPUs, whose number is unknown.
        machine = replace(machine, cpus=None, has_properties=False)
    history.open = LoggedExecution(event.time, machine)
    history.executions.append(history.open)
    if history.early_site is not None and abs(event.time - history.early_site[0]) <= AD_DELAY:
        _set_site(history.open, history.early_site[1])
    history.hold = history.lost_end = history.early_site = None
    if previous is not None:
        # The previous execution is over: make _enter record RUNNING a second time.
        history.state = None
    _enter(history, _RUNNING, event.time)


def _close_without_end_event(
    history: JobHistory,
    execution: LoggedExecution,
    event: Event,
    text: str = "a new attempt begins although the one before never ended",
) -> None:
    """Close an execution without a logged end at ``event``, which proves it over."""
    _close(history, execution, event.time, _EVICTED)
    execution.uncertain = True
    history.gaps.append((event.line, event.time, text))


def _close(
    history: JobHistory, execution: LoggedExecution, time: datetime, outcome: Outcome
) -> None:
    history.open = None
    execution.end, execution.outcome = time, outcome
    execution.checkpoint = None
    if outcome is not _GOOD:
        execution.checkpoint = _last_checkpoint(history, execution, time)
    if _is_suspended(execution):
        execution.suspensions[-1] = (execution.suspensions[-1][0], time)


def _last_checkpoint(
    history: JobHistory, execution: LoggedExecution, time: datetime
) -> datetime | None:
    """When an execution that ends at ``time`` stored its last checkpoint.

    An output transfer after which the execution continued, if only to the next transfer, is the
    upload of a checkpoint. The last one before a 005 is the job's output. The last one, at the
    moment of any other end, belongs to that end (``when_to_transfer_output = ON_EXIT_OR_EVICT``):
    no checkpoint for HTCondor (``notifySuccessfulEvictionCheckpoint`` in ``vanilla_proc.cpp``).
    """
    # A job that failed has no output with ``when_to_transfer_output = ON_SUCCESS``.
    limit = LATE_TRANSFER if execution.outcome is Outcome.FAILED else END_OF_TRANSFER
    has_continued = False
    for span in reversed(history.transfers):
        # The one that the end interrupts has no end of its own yet.
        ended = span.end or time
        if span.direction != "output" or ended < execution.start:
            return None
        if span.outcome == "ok" and (has_continued or time - ended > limit):
            return ended
        # Without its start it may be the end of the one before.
        limit, has_continued = END_OF_TRANSFER, span.start is not None
    return None


def _stored_at_end(history: JobHistory, evicted: Evicted, time: datetime) -> bool:
    """Whether an execution was evicted at ``time`` upon storing a checkpoint."""
    last = history.transfers[-1] if history.transfers else None
    if evicted.code == SUCCESSFUL_CHECKPOINT:
        if last is None or last.direction != "output" or last.outcome != "failed":
            return True
        # The upload of this checkpoint, or of an earlier one, after which the job went on.
        return last.end is not None and time - last.end > SAME_MOMENT
    return evicted.checkpointed


def _close_transfers(history: JobHistory, time: datetime, has_run: bool = False) -> None:
    """Settle the open transfers of an attempt that ended at ``time``.

    ``has_run``: it was executed, also if its 001 is lost.
    """
    for span in reversed(history.transfers):
        if span.outcome == "pending":
            span.outcome = "ok" if has_run else "aborted"
        elif span.outcome == "in-flight":
            span.outcome, span.end = "unfinished", time
        elif span.direction == "input":
            return


def _add_run_bytes(
    history: JobHistory, execution: LoggedExecution | None, sent: int | None, received: int | None
) -> None:
    """Add the ``Run Bytes`` of an event; ``execution``: as in :func:`_store_usage`."""
    if execution is not None:
        execution.bytes_sent, execution.bytes_received = sent, received
    history.run_bytes_sent = _sum_known(history.run_bytes_sent, sent)
    history.run_bytes_received = _sum_known(history.run_bytes_received, received)


def _store_usage(
    history: JobHistory, detail: Evicted | Terminated, execution: LoggedExecution | None = None
) -> None:
    """Store a usage table, with its figures in ``execution``, None if the job was not started."""
    if detail.usage:
        history.usage, history.usage_execution = detail.usage, 0
        if execution is not None:
            elapsed = (execution.end or execution.start) - execution.start
            # The figures, not the text, which takes some hundred bytes.
            found = resource_usage(detail.usage, detail.cpu_seconds, elapsed.total_seconds())
            execution.usage = _without_earlier_gpus(history, execution, found)
            history.usage_execution = len(history.executions)


def _without_earlier_gpus(
    history: JobHistory, execution: LoggedExecution, usage: ResourceUsage | None
) -> ResourceUsage | None:
    """The figures, without figures of GPUs that stem from an earlier execution.

    A machine without a monitor leaves them in the job's ad as a machine with a monitor set them.
    """
    if usage is None or usage.gpus is None:
        return usage
    earlier = [each.usage for each in history.executions if each is not execution]
    if (usage.gpus, usage.gpu_memory_mb) in [(u.gpus, u.gpu_memory_mb) for u in earlier if u]:
        return replace(usage, gpus=None, gpu_memory_mb=None)
    return usage


def _apply_evicted(history: JobHistory, event: Event, checkpoint_codes: Codes) -> None:
    detail = event.detail if isinstance(event.detail, Evicted) else None
    execution = history.open
    if execution is not None:
        outcome = _EVICTED
        if detail is not None and detail.requeued:
            is_checkpoint = detail.return_value in checkpoint_codes
            outcome = _GOOD if is_checkpoint else Outcome.FAILED
        if detail is not None:
            _fail_by_code(history, detail.code, event.time)
        _close(history, execution, event.time, outcome)
        if detail is not None:
            execution.code, execution.subcode = detail.code, detail.subcode
            execution.reason = detail.reason
            execution.return_value, execution.signal = detail.return_value, detail.signal
            # Requeues by the job itself (max_retries, retry_until) are not evictions.
            execution.requeued = outcome is Outcome.FAILED
            if outcome is _GOOD or _stored_at_end(history, detail, event.time):
                execution.checkpoint = event.time
    _close_transfers(history, event.time)
    if detail is not None:
        _add_run_bytes(history, execution, detail.bytes_sent, detail.bytes_received)
        _store_usage(history, detail, execution)
    if history.state is not _HELD:
        _enter(history, _IDLE, event.time)
        if detail is not None and _is_of_hold(detail.code):
            # The 012 follows in the same second, unless it is lost.
            history.hold = history.implied_hold = Held(detail.reason, detail.code, detail.subcode)
            history.holds.append((event.time, history.hold))
            _enter(history, _HELD, event.time)


def _drop_implied_hold(history: JobHistory) -> None:
    """Drop the hold that an eviction implies: an event about it follows."""
    if history.hold is not None and history.hold is history.implied_hold:
        history.holds.pop()
        history.states.pop()
        (history.since, history.state), history.hold = history.states[-1], None


def _lose_end(history: JobHistory, execution: LoggedExecution, time: datetime) -> None:
    """Close an execution whose end could not be logged: the job is in the queue again.

    The execution counts as lost unless the shadow logs its end later, before the job runs again.
    """
    # As of another 005, its last transfer is the job's output.
    _close(history, execution, execution.end or time, Outcome.FAILED)
    execution.outcome = Outcome.SHADOW_EXCEPTION
    execution.reason = "UserLog Unable to log ULOG_JOB_TERMINATED event"
    history.lost_end = execution


def _apply_terminated(history: JobHistory, event: Event, checkpoint_codes: Codes) -> None:
    if event.damaged:
        # HTCondor does not read a cut event; its writer fails, and the job stays queued.
        if history.open is not None:
            _lose_end(history, history.open, event.time)
        _close_transfers(history, event.time)
        if history.state is not _HELD:
            _enter(history, _IDLE, event.time)
        return
    detail = event.detail if isinstance(event.detail, Terminated) else None
    return_value = detail.return_value if detail is not None and detail.normal is True else None
    good = return_value == 0
    execution, ended = history.open, event.time
    if execution is None and history.lost_end is not None:
        # The end of the same execution, logged at last.
        execution, ended = history.lost_end, history.lost_end.end or event.time
        execution.reason = None
    if execution is not None:
        successful = good or return_value in checkpoint_codes
        _close(history, execution, ended, _GOOD if successful else Outcome.FAILED)
        if detail is not None:
            execution.return_value, execution.signal = detail.return_value, detail.signal
    _close_transfers(history, event.time, has_run=True)
    if detail is not None:
        history.return_value, history.signal = detail.return_value, detail.signal
        _add_run_bytes(history, execution, detail.run_bytes_sent, detail.run_bytes_received)
        history.total_bytes_sent = detail.total_bytes_sent
        history.total_bytes_received = detail.total_bytes_received
        _store_usage(history, detail, execution)
    _enter(history, _COMPLETED if good else _FAILED, event.time)


def _apply_execution_lost(history: JobHistory, event: Event, _: Codes) -> None:
    """Apply 007 or 024: the access point lost the execution; the job will run again."""
    execution = history.open
    if execution is not None:
        outcome = Outcome.SHADOW_EXCEPTION if event.number == 7 else Outcome.RECONNECT_FAILED
        _close(history, execution, event.time, outcome)
        if isinstance(event.detail, ShadowException | ConnectionEvent):
            execution.reason = event.detail.reason
    if isinstance(event.detail, ShadowException):
        _add_run_bytes(history, execution, event.detail.bytes_sent, event.detail.bytes_received)
    _close_transfers(history, event.time)
    if history.state is not _HELD:
        _enter(history, _IDLE, event.time)


def _apply_disconnected(history: JobHistory, event: Event, _: Codes) -> None:
    # A transfer that ends as the connection breaks has failed with it.
    if history.transfers and history.transfers[-1].end is not None:
        _fail_output_transfer(history, event.time)
    if history.open is not None:
        history.open.disconnected = history.open.disconnected or event.time
    # Applies without an execution, too: the 001 may be lost or older than this log.
    if history.state is not _HELD:
        _enter(history, _DISCONNECTED, event.time)


def _apply_reconnected(history: JobHistory, event: Event, _: Codes) -> None:
    _note_connection(history)
    if history.state is not _HELD:
        _enter(history, _RUNNING, event.time)


def _apply_aborted(history: JobHistory, event: Event, _: Codes) -> None:
    execution = history.open
    if execution is not None:
        if history.last is not None and event.time - history.last > SILENT_END:
            execution.uncertain = True
            history.gaps.append(
                (
                    event.line,
                    event.time,
                    "removed while running, and nothing was logged of the job before it "
                    f"since {history.last.day} {history.last:%b %Y %H:%M}: its true end is unknown",
                )
            )
        _close(history, execution, event.time, Outcome.REMOVED)
        if isinstance(event.detail, Aborted):
            execution.reason = event.detail.reason
    elif isinstance(event.detail, Aborted) and history.executions and history.state is _IDLE:
        _copy_removal_reason(history.executions[-1], event.time, event.detail.reason)
    if isinstance(event.detail, Aborted):
        history.removal = event.detail.reason
    _close_transfers(history, event.time)
    _enter(history, _REMOVED, event.time)


def _copy_removal_reason(execution: LoggedExecution, time: datetime, reason: str | None) -> None:
    """Copy the removal's reason: before HTCondor 24.3 the eviction it causes has none."""
    if not _just_evicted(execution, time) or execution.reason:
        return
    if execution.code is None and execution.return_value is None and execution.signal is None:
        execution.reason = reason


def _apply_suspended(history: JobHistory, event: Event, _: Codes) -> None:
    execution = history.open
    if execution is not None and not _is_suspended(execution):
        execution.suspensions.append((event.time, None))
    if history.state is not _HELD:
        _enter(history, _SUSPENDED, event.time)


def _apply_unsuspended(history: JobHistory, event: Event, _: Codes) -> None:
    execution = history.open
    if execution is not None and _is_suspended(execution):
        execution.suspensions[-1] = (execution.suspensions[-1][0], event.time)
    if history.state is not _HELD:
        _enter(history, _RUNNING, event.time)


def _is_suspended(execution: LoggedExecution) -> bool:
    return bool(execution.suspensions) and execution.suspensions[-1][1] is None


def _apply_held(history: JobHistory, event: Event, _: Codes) -> None:
    detail = event.detail if isinstance(event.detail, Held) else None
    execution = history.open
    _drop_implied_hold(history)
    if detail is not None and detail.inferred:
        if history.state is _HELD or (history.last is not None and event.time < history.last):
            # The log has the 012 itself, or an event that followed it.
            return
        event, detail = _by_eviction(history, event, detail)
        if execution is not None:
            execution.uncertain = True
            text = "its hold is not in the log; a policy that removed it says that it was held"
            history.gaps.append((event.line, event.time, text))
    if execution is not None:
        if detail is not None:
            _fail_by_code(history, detail.code, event.time)
        _close(history, execution, event.time, Outcome.HELD)
        if detail is not None:
            execution.code, execution.subcode = detail.code, detail.subcode
            execution.reason = detail.reason
    elif detail is not None and history.executions:
        _copy_hold_reason(history.executions[-1], event.time, detail)
    _close_transfers(history, event.time)
    history.hold = detail
    history.holds.append((event.time, detail))
    if history.state is _HELD:
        # Another hold, after a lost 013 or for a new reason: make _enter record HELD again.
        history.state = None
    _enter(history, _HELD, event.time)


def _by_eviction(history: JobHistory, event: Event, hold: Held) -> tuple[Event, Held]:
    """The inferred hold with the time and the code of the eviction before it, if that shows them.

    The first line of a 004 has the code of the hold that caused it, even if the rest was cut.
    """
    last = history.executions[-1] if history.executions else None
    if last is None or last.outcome is not _EVICTED or not _is_of_hold(last.code):
        return event, hold
    reason = last.reason or (hold.reason if last.code in CODES_WITHOUT_CAUSE else None)
    return replace(event, time=last.end), replace(
        hold, reason=reason, code=last.code, subcode=last.subcode
    )


def _is_of_hold(code: int | None) -> bool:
    """Whether the code of an eviction is that of a hold."""
    return code is not None and 0 < code < FIRST_VACATE_CODE


def _copy_hold_reason(execution: LoggedExecution, time: datetime, hold: Held) -> None:
    """Copy the hold's reason: the eviction that it causes often has none."""
    if not _just_evicted(execution, time):
        return
    execution.held_by = hold
    if not execution.reason or execution.reason == hold.reason:
        execution.reason = hold.reason
        if execution.code is None:
            execution.code, execution.subcode = hold.code, hold.subcode


def _just_evicted(execution: LoggedExecution, time: datetime) -> bool:
    if execution.end is None or execution.outcome is not _EVICTED:
        return False
    return timedelta(0) <= time - execution.end <= SAME_MOMENT


def _apply_released(history: JobHistory, event: Event, codes: Codes) -> None:
    held = history.hold
    if held is not None and held is history.implied_hold:
        _apply_held(history, replace(event, time=history.since, detail=held), codes)
        text = "its hold is not in the log; its release and its eviction say that it was held"
        history.gaps.append((event.line, event.time, text))
    if history.open is not None and event.time - history.open.start > LATE_TRANSFER:
        text = "its release says that it was held, although its execution never ended"
        _close_without_end_event(history, history.open, event, text)
        _close_transfers(history, event.time)
        _enter(history, _IDLE, event.time)
    if history.state is _HELD:
        history.hold = None
        _enter(history, _IDLE, event.time)


def _apply_transfer(history: JobHistory, event: Event, _: Codes) -> None:
    detail = event.detail
    if not isinstance(detail, FileTransfer):
        return
    kind = detail.kind
    if kind is _INPUT_STARTED:
        _start_input_transfer(history, event, detail)
    elif kind is _INPUT_FINISHED:
        _end_input_transfer(history, event, detail)
    elif kind is _OUTPUT_STARTED:
        _start_output_transfer(history, event, detail)
    elif kind is _OUTPUT_FINISHED:
        _end_output_transfer(history, event, detail)
    elif kind is _INPUT_QUEUED and history.open is None and history.state is not _HELD:
        _enter(history, _TRANSFERRING_INPUT, event.time)


def _apply_error(history: JobHistory, event: Event, _: Codes) -> None:
    """Apply a 021: at the end of an output transfer it means that the transfer failed."""
    detail = event.detail
    if not isinstance(detail, RemoteError) or detail.warning:
        return
    if detail.code != SUCCESSFUL_CHECKPOINT:
        _fail_output_transfer(history, event.time)


def _fail_output_transfer(
    history: JobHistory, time: datetime, within: timedelta = END_OF_TRANSFER
) -> None:
    """Mark the last output transfer as failed, unless it ended long before ``time``."""
    span = history.transfers[-1] if history.transfers else None
    if span is None or span.direction != "output" or history.open is None:
        return
    if span.end is None or time - span.end <= within:
        span.late = span.end is None
        span.outcome, span.end = "failed", span.end or time


def _fail_by_code(history: JobHistory, code: int | None, time: datetime) -> None:
    """Mark the last output transfer as failed if the code of an end at ``time`` says so.

    One whose end is not logged is unfinished, unless it was the upload of a checkpoint.
    """
    has_ended = bool(history.transfers) and history.transfers[-1].end is not None
    if code == FAILED_CHECKPOINT or (code == FAILED_OUTPUT and has_ended):
        _fail_output_transfer(history, time, SAME_MOMENT)


def _end_input_transfer(history: JobHistory, event: Event, detail: FileTransfer) -> None:
    _end_transfer(history, event, "input", detail)
    if history.open is not None:
        _enter(history, _RUNNING, event.time)
    elif history.state is not _HELD:
        _enter(history, _STARTING, event.time)


def _start_output_transfer(history: JobHistory, event: Event, detail: FileTransfer) -> None:
    _note_connection(history)
    if history.transfers and history.transfers[-1].outcome == "in-flight":
        # Its end is lost.
        history.transfers[-1].outcome, history.transfers[-1].end = "unfinished", event.time
    history.transfers.append(TransferSpan("output", event.time, host=detail.host))
    if history.open is not None:
        _enter(history, _TRANSFERRING_OUTPUT, event.time)


def _end_output_transfer(history: JobHistory, event: Event, detail: FileTransfer) -> None:
    _end_transfer(history, event, "output", detail)
    if history.state is _TRANSFERRING_OUTPUT:
        _enter(history, _RUNNING, event.time)


def _start_input_transfer(history: JobHistory, event: Event, detail: FileTransfer) -> None:
    execution = history.open
    if execution is not None and event.time - execution.start > LATE_TRANSFER:
        _close_without_end_event(history, execution, event)
    _close_transfers(history, event.time)
    history.transfers.append(
        TransferSpan("input", event.time, host=detail.host, queue_seconds=detail.queue_seconds)
    )
    if history.state is not _HELD:
        _enter(history, _TRANSFERRING_INPUT, event.time)


def _end_transfer(history: JobHistory, event: Event, direction: str, detail: FileTransfer) -> None:
    span = history.transfers[-1] if history.transfers else None
    if span is not None and span.direction == direction and span.late:
        span.end, span.late = event.time, False
        return
    if span is None or span.direction != direction or span.outcome != "in-flight":
        span = TransferSpan(direction, None)
        history.transfers.append(span)
    span.end = event.time
    span.host = span.host or detail.host
    if direction == "input" and history.open is None:
        span.outcome = "pending"
    else:
        span.outcome = "ok"


def with_inferred_ends(
    history: JobHistory,
    as_of: datetime | None,
    lease: float,
    successor: datetime | None,
    outcome: Outcome = _EVICTED,
) -> JobHistory:
    """``history`` with ends that were not logged, or logged too late.

    An execution that was not reached again ended when its ``lease``, in seconds, did: its machine
    killed it then (manual, "Job ClassAd Attributes", JobLeaseDuration). ``successor``: when a job
    was submitted that was not while this one was in the queue, if no event of this one is younger:
    it had left the queue before, with ``outcome``. That end is lost with a part of the log, or with
    the queue of the access point.
    """
    executions = [_within_lease(history, each, as_of, lease) for each in history.executions]
    if successor is None or history.state not in ACTIVE:
        return replace(history, executions=executions)
    if history.open is not None and executions[-1].end is None:
        executions[-1] = _ended(history, executions[-1], successor, outcome)
        executions[-1].uncertain = True
    ended = replace(
        history,
        executions=executions,
        transfers=[replace(span) for span in history.transfers],
        open=None,
        states=list(history.states),
    )
    _close_transfers(ended, successor)
    _enter(ended, State.UNKNOWN, successor)
    return ended


def _within_lease(
    history: JobHistory, execution: LoggedExecution, as_of: datetime | None, lease: float
) -> LoggedExecution:
    if execution.disconnected is None or execution.outcome in (_GOOD, Outcome.FAILED):
        return execution
    limit = execution.disconnected + timedelta(seconds=lease)
    last = execution.end or as_of
    if last is None or last <= limit:
        return execution
    is_logged = execution.end is not None and not execution.uncertain
    outcome = execution.outcome if is_logged else Outcome.RECONNECT_FAILED
    killed = _ended(history, execution, limit, outcome)
    killed.uncertain = False
    return killed


def _ended(
    history: JobHistory, execution: LoggedExecution, time: datetime, outcome: Outcome
) -> LoggedExecution:
    """A copy of ``execution`` that ended at ``time``; later transfers are of later executions."""
    ended = replace(execution, suspensions=list(execution.suspensions))
    transfers = [span for span in history.transfers if (span.start or span.end or time) <= time]
    _close(replace(history, transfers=transfers), ended, time, outcome)
    return ended


_HANDLERS: Final[dict[int, Callable[[JobHistory, Event, Codes], None]]] = {
    0: _apply_submit,
    1: _apply_execute,
    4: _apply_evicted,
    5: _apply_terminated,
    7: _apply_execution_lost,
    9: _apply_aborted,
    10: _apply_suspended,
    11: _apply_unsuspended,
    12: _apply_held,
    13: _apply_released,
    21: _apply_error,
    22: _apply_disconnected,
    23: _apply_reconnected,
    24: _apply_execution_lost,
    40: _apply_transfer,
}
