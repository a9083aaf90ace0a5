"""One job's life, folded from its events.

The fold is a pure function of the job's events in log order (``domain.md``, "Job state,
from events"; HTCondor manual, "Job Event Log Codes"). It knows no clock: what is still open
stays open, and whoever looks decides as of when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, TypeAlias

from metlmon.eventlog import (
    Aborted,
    ConnectionEvent,
    Event,
    Evicted,
    Execute,
    FileTransfer,
    Held,
    ShadowException,
    Submit,
    Terminated,
    Transfer,
    UsageRow,
)
from metlmon.model.reasons import cause_of
from metlmon.model.states import TERMINAL, Outcome, State

Codes: TypeAlias = frozenset[int]

_cause_of: Final = lru_cache(maxsize=4096)(cause_of)

LATE_TRANSFER = timedelta(minutes=5)
"""An input transfer that is logged after its own 001 follows within seconds. One that begins
later than this belongs to a new attempt: the end of the execution before it was lost."""

SILENT_END = timedelta(hours=1)
"""A job that is removed while it runs is evicted in the same second (004, then 009). Where
only a 009 follows an hour of silence, the execution's true end was lost from the log."""

SAME_MOMENT = timedelta(seconds=10)
"""An eviction and the hold or the removal that caused it are logged within this time of each
other."""


# By name here: Python 3.11 looks a member of an Enum up by a function each time, and a job's life
# asks for dozens.
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
_EVICTED: Final = Outcome.EVICTED
_IN_FLIGHT: Final = Outcome.IN_FLIGHT
_INPUT_QUEUED: Final = Transfer.INPUT_QUEUED
_INPUT_STARTED: Final = Transfer.INPUT_STARTED
_INPUT_FINISHED: Final = Transfer.INPUT_FINISHED
_OUTPUT_STARTED: Final = Transfer.OUTPUT_STARTED
_OUTPUT_FINISHED: Final = Transfer.OUTPUT_FINISHED


@dataclass(slots=True)
class Execution:
    """From a 001 to the first later event that ends it. ``end`` None: in flight.
    ``held_by``: the hold that the eviction which ended it was for. ``bytes_*``: the
    ``Run Bytes`` of the event that ended it."""

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
    held_by: Held | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None
    suspensions: list[tuple[datetime, datetime | None]] = field(default_factory=list)

    @property
    def gpus(self) -> int | None:
        """GPUs of this execution's own 001; 0 when it lists resources and no GPU; None for old
        logs, whose 001 lists nothing: no other source can say it while the job still runs."""
        if self.machine is not None and self.machine.has_properties:
            return self.machine.gpus or 0
        return None

    @property
    def cpus(self) -> int | None:
        """CPUs of this execution's own 001; None where it does not say."""
        return self.machine.cpus if self.machine is not None else None

    @property
    def cause(self) -> str:
        """Why it ended, its changing parts folded; of one that did not end well."""
        return _cause_of(self.outcome, self.code, self.reason, self.return_value, self.signal)


@dataclass(slots=True)
class TransferSpan:
    """One transfer. ``outcome``: ok, aborted (input finished, nothing executed), unfinished
    (never finished), in-flight; an input that has finished is ``pending`` until a 001
    proves it or anything else disproves it. ``late``: its 001 was logged before its end
    (two processes write them), which is still to come."""

    direction: str
    start: datetime | None
    end: datetime | None = None
    outcome: str = "in-flight"
    host: str | None = None
    queue_seconds: int | None = None
    late: bool = False


@dataclass(slots=True)
class JobHistory:
    """All that a job's events say. ``state`` None: no event told one yet. ``states``: every
    state it entered, and when. ``open``: the execution in flight, if there is one."""

    state: State | None = None
    since: datetime | None = None
    submitted: datetime | None = None
    executions: list[Execution] = field(default_factory=list)
    transfers: list[TransferSpan] = field(default_factory=list)
    hold: Held | None = None
    holds: list[tuple[datetime, Held | None]] = field(default_factory=list)
    return_value: int | None = None
    signal: int | None = None
    run_bytes_sent: int | None = None
    run_bytes_received: int | None = None
    total_bytes_sent: int | None = None
    total_bytes_received: int | None = None
    usage: Sequence[UsageRow] = ()
    contradictions: int = 0
    gaps: list[tuple[int, datetime, str]] = field(default_factory=list)
    last: datetime | None = None
    states: list[tuple[datetime, State]] = field(default_factory=list)
    open: Execution | None = None

    @property
    def bytes_sent(self) -> int | None:
        """The larger of 005's total and the sum of the runs (a total can be short after a
        shadow restart, and so can a run)."""
        return _larger(self.run_bytes_sent, self.total_bytes_sent)

    @property
    def bytes_received(self) -> int | None:
        return _larger(self.run_bytes_received, self.total_bytes_received)


def _larger(a: int | None, b: int | None) -> int | None:
    known = [n for n in (a, b) if n is not None]
    return max(known) if known else None


def _plus(a: int | None, b: int | None) -> int | None:
    return a if b is None else (a or 0) + b


def fold(
    events: Iterable[Event],
    checkpoint_codes: Codes = frozenset(),
    last_image: datetime | None = None,
) -> JobHistory:
    """Fold ``events`` of one job, in log order, into its life.

    ``checkpoint_codes`` are return values that mean "checkpointed, run me again": an
    execution that ends with one is good. 006 events are left out; ``last_image`` is the time
    of the newest, which like any event is a sign of life.
    """
    life = JobHistory()
    for event in events:
        number, when = event[0], event[4]
        if last_image is not None and when >= last_image:
            _note_image(life, last_image)
        if number == 12 and last_image is not None and when < last_image and _inferred(event):
            continue
        if life.state in TERMINAL:
            _after_the_end(life, event)
        else:
            if life.state is _DISCONNECTED and number != 22:
                _enter(life, _RUNNING, when)
            tell = _TELLS.get(number)
            if tell is not None:
                tell(life, event, checkpoint_codes)
        if life.last is None or when > life.last:
            life.last = when
    if last_image is not None:
        _note_image(life, last_image)
    return life


def _inferred(event: Event) -> bool:
    return isinstance(event.detail, Held) and event.detail.inferred


def _note_image(life: JobHistory, when: datetime) -> None:
    if life.last is None or when > life.last:
        life.last = when
        if life.state is _DISCONNECTED:
            _enter(life, _RUNNING, when)


def _after_the_end(life: JobHistory, event: Event) -> None:
    if event.number in _CONTRADICTING:
        life.contradictions += 1
    if event.number == 5 and isinstance(event.detail, Terminated):
        _note_usage(life, event.detail.usage)


def _enter(life: JobHistory, state: State, when: datetime) -> None:
    if life.state is not state:
        life.state, life.since = state, when
        life.states.append((when, state))


def _submitted(life: JobHistory, event: Event, _: Codes) -> None:
    if life.submitted is None and isinstance(event.detail, Submit | None):
        life.submitted = event.time
    if life.state is None:
        _enter(life, _IDLE, event.time)


def _executing(life: JobHistory, event: Event, _: Codes) -> None:
    before = life.open
    if before is not None:
        _lost_end(life, before, event)
    pending = life.transfers[-1] if life.transfers else None
    if pending is not None and pending.direction == "input":
        if pending.outcome == "pending":
            pending.outcome = "ok"
        elif pending.outcome == "in-flight":
            pending.outcome, pending.end, pending.late = "ok", event.time, True
    machine = event.detail if isinstance(event.detail, Execute) else None
    life.open = Execution(event.time, machine)
    life.executions.append(life.open)
    life.hold = None
    if before is not None:
        # What ran before is over, and so is its time in this state.
        life.state = None
    _enter(life, _RUNNING, event.time)


def _lost_end(life: JobHistory, execution: Execution, event: Event) -> None:
    """``event`` proves that ``execution`` is over although nothing says when it ended."""
    _close(life, execution, event.time, _EVICTED)
    execution.uncertain = True
    life.gaps.append(
        (event.line, event.time, "a new attempt begins although the one before never ended")
    )


def _close(life: JobHistory, execution: Execution, when: datetime, outcome: Outcome) -> None:
    life.open = None
    execution.end, execution.outcome = when, outcome
    if execution.suspensions and execution.suspensions[-1][1] is None:
        execution.suspensions[-1] = (execution.suspensions[-1][0], when)


def _settle_transfers(life: JobHistory, when: datetime) -> None:
    """The attempt is over: nothing that was being transferred will be executed."""
    for span in reversed(life.transfers):
        if span.outcome == "pending":
            span.outcome = "aborted"
        elif span.outcome == "in-flight":
            span.outcome, span.end = "unfinished", when
        else:
            return


def _note_usage(life: JobHistory, usage: Sequence[UsageRow]) -> None:
    if usage:
        life.usage = usage


def _evicted(life: JobHistory, event: Event, checkpoint_codes: Codes) -> None:
    detail = event.detail if isinstance(event.detail, Evicted) else None
    execution = life.open
    if execution is not None:
        _close(life, execution, event.time, _EVICTED)
        if detail is not None:
            execution.code, execution.subcode = detail.code, detail.subcode
            execution.reason = detail.reason
            execution.return_value, execution.signal = detail.return_value, detail.signal
            execution.bytes_sent = detail.bytes_sent
            execution.bytes_received = detail.bytes_received
            if detail.requeued and detail.return_value in checkpoint_codes:
                execution.outcome = Outcome.GOOD
    _settle_transfers(life, event.time)
    if detail is not None:
        life.run_bytes_sent = _plus(life.run_bytes_sent, detail.bytes_sent)
        life.run_bytes_received = _plus(life.run_bytes_received, detail.bytes_received)
        _note_usage(life, detail.usage)
    if life.state is not _HELD:
        _enter(life, _IDLE, event.time)


def _terminated(life: JobHistory, event: Event, checkpoint_codes: Codes) -> None:
    detail = event.detail if isinstance(event.detail, Terminated) else None
    returned = detail.return_value if detail is not None and detail.normal is True else None
    good = returned == 0
    execution = life.open
    if execution is not None:
        well = good or returned in checkpoint_codes
        _close(life, execution, event.time, Outcome.GOOD if well else Outcome.FAILED)
        if detail is not None:
            execution.return_value, execution.signal = detail.return_value, detail.signal
            execution.bytes_sent = detail.run_bytes_sent
            execution.bytes_received = detail.run_bytes_received
    _settle_transfers(life, event.time)
    if detail is not None:
        life.return_value, life.signal = detail.return_value, detail.signal
        life.run_bytes_sent = _plus(life.run_bytes_sent, detail.run_bytes_sent)
        life.run_bytes_received = _plus(life.run_bytes_received, detail.run_bytes_received)
        life.total_bytes_sent = detail.total_bytes_sent
        life.total_bytes_received = detail.total_bytes_received
        _note_usage(life, detail.usage)
    _enter(life, _COMPLETED if good else _FAILED, event.time)


def _lost(life: JobHistory, event: Event, _: Codes) -> None:
    """007 and 024: the access point lost the execution, and the job is to run again."""
    execution = life.open
    if execution is not None:
        outcome = Outcome.SHADOW_EXCEPTION if event.number == 7 else Outcome.RECONNECT_FAILED
        _close(life, execution, event.time, outcome)
        if isinstance(event.detail, ShadowException | ConnectionEvent):
            execution.reason = event.detail.reason
    _settle_transfers(life, event.time)
    if life.state is not _HELD:
        _enter(life, _IDLE, event.time)


def _disconnected(life: JobHistory, event: Event, _: Codes) -> None:
    # Also without an execution: its 001 may be lost, or older than this log.
    if life.state is not _HELD:
        _enter(life, _DISCONNECTED, event.time)


def _reconnected(life: JobHistory, event: Event, _: Codes) -> None:
    if life.state is not _HELD:
        _enter(life, _RUNNING, event.time)


def _removed(life: JobHistory, event: Event, _: Codes) -> None:
    execution = life.open
    if execution is not None:
        if life.last is not None and event.time - life.last > SILENT_END:
            execution.uncertain = True
            life.gaps.append(
                (
                    event.line,
                    event.time,
                    "removed while running, and nothing was logged of the job before it "
                    f"since {life.last:%Y-%m-%d %H:%M:%S}: its true end is unknown",
                )
            )
        _close(life, execution, event.time, Outcome.REMOVED)
        if isinstance(event.detail, Aborted):
            execution.reason = event.detail.reason
    elif isinstance(event.detail, Aborted) and life.executions and life.state is _IDLE:
        _explain_by_removal(life.executions[-1], event.time, event.detail.reason)
    _settle_transfers(life, event.time)
    _enter(life, _REMOVED, event.time)


def _explain_by_removal(execution: Execution, when: datetime, reason: str | None) -> None:
    """Before 24.3 the eviction that a removal causes says nothing; the removal says why."""
    if not _just_evicted(execution, when) or execution.reason:
        return
    if execution.code is None and execution.return_value is None and execution.signal is None:
        execution.reason = reason


def _suspended(life: JobHistory, event: Event, _: Codes) -> None:
    execution = life.open
    if execution is not None:
        execution.suspensions.append((event.time, None))
    if life.state is not _HELD:
        _enter(life, _SUSPENDED, event.time)


def _unsuspended(life: JobHistory, event: Event, _: Codes) -> None:
    execution = life.open
    if execution is not None and execution.suspensions and execution.suspensions[-1][1] is None:
        execution.suspensions[-1] = (execution.suspensions[-1][0], event.time)
    if life.state is not _HELD:
        _enter(life, _RUNNING, event.time)


def _held(life: JobHistory, event: Event, _: Codes) -> None:
    detail = event.detail if isinstance(event.detail, Held) else None
    execution = life.open
    if detail is not None and detail.inferred:
        if life.state is _HELD or (life.last is not None and event.time < life.last):
            # Its own 012 is in the log, or what followed on it.
            return
        if execution is not None:
            execution.uncertain = True
            text = "its hold is not in the log; a policy that removed it says that it was held"
            life.gaps.append((event.line, event.time, text))
    if execution is not None:
        _close(life, execution, event.time, Outcome.HELD)
        if detail is not None:
            execution.code, execution.subcode = detail.code, detail.subcode
            execution.reason = detail.reason
    elif detail is not None and life.executions:
        _explain_eviction(life.executions[-1], event.time, detail)
    _settle_transfers(life, event.time)
    life.hold = detail
    life.holds.append((event.time, detail))
    _enter(life, _HELD, event.time)


def _explain_eviction(execution: Execution, when: datetime, hold: Held) -> None:
    """The eviction that a hold causes often says nothing; the hold says why."""
    if not _just_evicted(execution, when):
        return
    execution.held_by = hold
    if not execution.reason:
        execution.reason = hold.reason
        if execution.code is None:
            execution.code, execution.subcode = hold.code, hold.subcode


def _just_evicted(execution: Execution, when: datetime) -> bool:
    if execution.end is None or execution.outcome is not _EVICTED:
        return False
    return timedelta(0) <= when - execution.end <= SAME_MOMENT


def _released(life: JobHistory, event: Event, _: Codes) -> None:
    if life.state is _HELD:
        life.hold = None
        _enter(life, _IDLE, event.time)


def _transfer(life: JobHistory, event: Event, _: Codes) -> None:
    detail = event.detail
    if not isinstance(detail, FileTransfer):
        return
    kind = detail.kind
    if kind is _INPUT_STARTED:
        _input_started(life, event, detail)
    elif kind is _INPUT_FINISHED:
        _input_finished(life, event, detail)
    elif kind is _OUTPUT_STARTED:
        _output_started(life, event, detail)
    elif kind is _OUTPUT_FINISHED:
        _output_finished(life, event, detail)
    elif kind is _INPUT_QUEUED and life.open is None and life.state is not _HELD:
        _enter(life, _TRANSFERRING_INPUT, event.time)


def _input_finished(life: JobHistory, event: Event, detail: FileTransfer) -> None:
    _finished(life, event, "input", detail)
    if life.open is not None:
        _enter(life, _RUNNING, event.time)
    elif life.state is not _HELD:
        _enter(life, _STARTING, event.time)


def _output_started(life: JobHistory, event: Event, detail: FileTransfer) -> None:
    life.transfers.append(TransferSpan("output", event.time, None, "in-flight", detail.host))
    if life.open is not None:
        _enter(life, _TRANSFERRING_OUTPUT, event.time)


def _output_finished(life: JobHistory, event: Event, detail: FileTransfer) -> None:
    _finished(life, event, "output", detail)
    if life.state is _TRANSFERRING_OUTPUT:
        _enter(life, _RUNNING, event.time)


def _input_started(life: JobHistory, event: Event, detail: FileTransfer) -> None:
    execution = life.open
    if execution is not None and event.time - execution.start > LATE_TRANSFER:
        _lost_end(life, execution, event)
    _settle_transfers(life, event.time)
    life.transfers.append(
        TransferSpan("input", event.time, None, "in-flight", detail.host, detail.queue_seconds)
    )
    if life.state is not _HELD:
        _enter(life, _TRANSFERRING_INPUT, event.time)


def _finished(life: JobHistory, event: Event, direction: str, detail: FileTransfer) -> None:
    span = life.transfers[-1] if life.transfers else None
    if span is not None and span.direction == direction and span.late:
        span.end, span.late = event.time, False
        return
    if span is None or span.direction != direction or span.outcome != "in-flight":
        span = TransferSpan(direction, None)
        life.transfers.append(span)
    span.end = event.time
    span.host = span.host or detail.host
    if direction == "input" and life.open is None:
        span.outcome = "pending"
    else:
        span.outcome = "ok"


_CONTRADICTING: Final = frozenset({0, 1, 4, 5, 7, 9, 12, 13, 24})
"""Events that a job which has ended does not have."""

_TELLS: Final[dict[int, Callable[[JobHistory, Event, Codes], None]]] = {
    0: _submitted,
    1: _executing,
    4: _evicted,
    5: _terminated,
    7: _lost,
    9: _removed,
    10: _suspended,
    11: _unsuspended,
    12: _held,
    13: _released,
    22: _disconnected,
    23: _reconnected,
    24: _lost,
    40: _transfer,
}
