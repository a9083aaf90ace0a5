"""The record of a job with its events."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate, islice
from operator import attrgetter
from sys import intern
from typing import Annotated, Final, NamedTuple, TypeAlias
from weakref import proxy

from msgspec import Struct, field

from metlmon.eventlog.events import (
    Event,
    Submit,
    redact_and_truncate,
    redact_event,
    redact_first_line,
)
from metlmon.eventlog.reader import current_name
from metlmon.model.job import JobHistory, apply_event, fold, note_image_size
from metlmon.model.states import TERMINAL, State

NOOP_PROC: Final = 2147483647
"""Proc of the events that DAGMan writes for a NOOP node, which has no job; its own counter is
the subproc (``dagman_main.cpp``)."""

MAX_RECENT_JOBS: Final = 1500
"""Ended jobs whose events are in memory as objects (about 5 kB each): more than the 1,261 epochs of
METL's experiment."""

OPEN_FACTOR: Final = 3
"""The limit for jobs that have not ended, whose events are needed again, is this times larger."""

SHARE_KEPT: Final = 7 / 8
"""The fraction of the limit that is kept when it is exceeded: compressing the rest takes some ten
milliseconds."""

BLOCK_JOBS: Final = 32
"""Ended jobs whose events are compressed together, since they are alike: each alone takes twice the
memory and the time. Open jobs, whose events are soon needed again, are compressed one by one."""

NO_LOGS: Final[frozenset[str]] = frozenset()

JobId: TypeAlias = Annotated[tuple[int, int], "job"]

JobKey: TypeAlias = tuple[int, int, int]
"""Cluster, proc and a third number, else 0: the subproc of a NOOP node, or the submission's
index where the schedd reused the job id
(:class:`metlmon.model.attribution.ReusedJobIds`)."""


class Stream(NamedTuple):
    """The log that an event was read from.

    User logs (``rank`` 0) sort before nodes.logs (1): they have all of a job's events, a
    nodes.log only some. Events in ``.dagman.out`` (2) count for jobs in no log.
    """

    rank: int
    file: str

    @property
    def order(self) -> tuple[int, str, bool, int, str]:
        """The place among a job's logs: rotated parts, ``.1`` last, precede their current log."""
        current = current_name(self.file)
        number = self.file.removeprefix(f"{current}.")
        age = int(number) if number.isdecimal() else 0
        return self.rank, current, self.file == current, -age, self.file


EventsByLog: TypeAlias = dict[Stream, list[Event | None]]


class RecentJobs:
    """The jobs whose events are in memory as objects; those of all others are compressed.

    A year of a troubled ensemble has a hundred thousand jobs, and each of their events is about
    ten objects. They are needed again when another log has events of the job, and when its history
    is requested. ``checkpoint_codes``: as in :func:`metlmon.model.job.fold`. Call :meth:`compress`
    from time to time while adding events.
    """

    def __init__(self, checkpoint_codes: frozenset[int] = frozenset()) -> None:
        self.checkpoint_codes = checkpoint_codes
        self._open: dict[LoggedJob, None] = {}
        self._ended: dict[LoggedJob, None] = {}
        self._log_sets: dict[frozenset[str], frozenset[str]] = {}
        self._last_block: tuple[bytes, list[EventsByLog]] = b"", []

    def add(self, job: LoggedJob) -> None:
        """Add a job, or record that it has ended."""
        if job.has_ended:
            self._open.pop(job, None)
            self._ended[job] = None
        else:
            self._open[job] = None

    def remove(self, job: LoggedJob) -> None:
        """Remove a job that is compressed or no longer in use."""
        self._open.pop(job, None)
        self._ended.pop(job, None)

    def surplus(self, factor: int = 1) -> list[LoggedJob]:
        """The jobs that were added first, if they exceed ``factor`` times the limit."""
        surplus: list[LoggedJob] = []
        for jobs, limit in ((self._ended, 1), (self._open, OPEN_FACTOR)):
            most = limit * MAX_RECENT_JOBS
            if len(jobs) > factor * most:
                surplus += islice(jobs, len(jobs) - int(SHARE_KEPT * most))
        return surplus

    def compress(self, jobs: Sequence[LoggedJob]) -> None:
        """Compress the events of jobs of the :meth:`surplus`."""
        import pickle  # Imported late: small ensembles compress nothing.

        changed = [job for job in jobs if not job.drop_objects()]
        ended = [job for job in changed if job.has_ended]
        blocks = [ended[first : first + BLOCK_JOBS] for first in range(0, len(ended), BLOCK_JOBS)]
        for together in (*blocks, *([job] for job in changed if not job.has_ended)):
            events = [dict(job.events_by_log()) for job in together]
            block = zlib.compress(pickle.dumps(events, pickle.HIGHEST_PROTOCOL))
            for place, job in enumerate(together):
                job.set_block(block, place)
        for job in jobs:
            self.remove(job)

    def events_in(self, block: bytes, place: int) -> EventsByLog:
        """The events at a place in a block; the last block is cached."""
        import pickle

        if self._last_block[0] is not block:
            self._last_block = block, pickle.loads(zlib.decompress(block))
        return self._last_block[1][place]

    def with_log(self, logs: frozenset[str], log: str) -> frozenset[str]:
        """``logs`` with ``log`` added: one shared set for all jobs in the same logs."""
        extended = logs | {log}
        return self._log_sets.setdefault(extended, extended)


class Factory(Struct):
    """A cluster whose jobs are materialized one after another, from its 035 to its 036.

    DAGMan waits for the 036 (``ProcessClusterRemoveEvent`` in ``dag.cpp``): until then jobs follow.
    """

    node: str | None = None
    has_ended: bool = False


Identity: TypeAlias = tuple[int, datetime, str]
"""Identity of an event among those of one job: number, time to the second, and first line."""


def _identity(event: Event) -> Identity:
    time = event.time
    return event.number, time.replace(microsecond=0) if time.microsecond else time, event.text


class JobEvents:
    """The events of one job, by log; None replaces a removed event.

    ``block``: the compressed block that they were read from; None after a change.
    """

    __slots__ = ("_index", "_logs", "block")

    def __init__(self, logs: EventsByLog | None = None, block: bytes | None = None) -> None:
        self._logs = logs if logs is not None else {}
        # Made on demand: most jobs are in one log, with few events in the same second.
        self._index: dict[Identity, tuple[Stream, int]] | None = None
        self.block = block

    @property
    def is_empty(self) -> bool:
        """Whether no event has been added."""
        return not self._logs

    def append(self, stream: Stream, event: Event) -> None:
        """Append an event that is not among them."""
        self.block = None
        events = self._logs.setdefault(stream, [])
        if self._index is not None:
            self._index[_identity(event)] = (stream, len(events))
        events.append(event)

    def add_if_new(self, stream: Stream, event: Event) -> bool:
        """Add an event, without its secrets; return False for a copy that adds nothing.

        Of two copies the undamaged one is kept, else that of the log with the lower rank, which
        has more events of the job. Most copies add nothing: only their first lines are searched
        for secrets.
        """
        if self._index is None:
            self._index = {
                _identity(known): (known_stream, index)
                for known_stream, events in self._logs.items()
                for index, known in enumerate(events)
                if known is not None
            }
        number, time, _ = _identity(event)
        position = self._index.get((number, time, redact_first_line(event)))
        if position is not None:
            known_stream, index = position
            events = self._logs[known_stream]
            known = events[index]
            is_better = not event.damaged and known is not None and known.damaged
            if not is_better and (event.damaged or known_stream <= stream):
                return False
            if is_better and known_stream <= stream:
                self.block = None
                events[index] = redact_event(event)
                return True
            events[index] = None
        self.append(stream, redact_event(event))
        return True

    def by_log(self) -> list[tuple[Stream, list[Event]]]:
        """The events by the log they were read from, in the logs' order."""
        logs = sorted(self._logs, key=attrgetter("order")) if len(self._logs) > 1 else self._logs
        return [(log, [each for each in self._logs[log] if each is not None]) for log in logs]

    def merged(self) -> list[Event]:
        """All events in order, as for :meth:`LoggedJob.events`."""
        # A copy may still follow, but seldom: the index takes as much memory as a job's records.
        self._index = None
        merged: list[Event] = []
        for _, events in self.by_log():
            merged = merge_by_time(merged, events)
        return merged


class LoggedJob(Struct, eq=False, gc=False):
    """One job and its events, whichever logs they were in.

    An event in two logs counts once: identity is its number, its time to the second and its
    first line (cluster and proc are those of the job). The result does not depend on the
    order in which logs are read. ``removed_with_dag``: removed because its whole DAG ended;
    ``aborted_by``: the cluster of that DAG's DAGMan; ``run_uuid``: the run, if the log names it;
    ``factory``: that of its cluster, None without late materialization.
    ``run_name``, ``run_epoch``: as in :class:`metlmon.eventlog.events.Submit`.

    Events of jobs that are no longer among the ``recent`` ones are compressed; callers see no
    difference.
    """

    key: JobKey
    """The job's key in the ensemble: one object, since many records contain it."""
    _recent: RecentJobs
    """A weak reference, since these refer to the job: no collector has to find the cycle."""
    node_name: str | None = None
    batch_name: str | None = None
    run_uuid: str | None = None
    run_name: str | None = None
    run_epoch: int | None = None
    aborted_by: int | None = None
    factory: Factory | None = None
    removed_with_dag: bool = False
    has_ended: bool = False
    """Whether its events have an end, 005 or 009."""
    nodes_logs: frozenset[str] = NO_LOGS
    user_logs: frozenset[str] = NO_LOGS
    memory_max: int | None = None
    memory_updates: int = 0
    last_image_size: datetime | None = None
    newest_time: datetime | None = None
    logged_submit: datetime | None = None
    _events: JobEvents | bytes = field(default_factory=JobEvents)
    """Its events, or the compressed block that contains them."""
    _place: int = 0
    _history: JobHistory | None = None
    _submission: tuple[datetime | None] | None = None

    def __post_init__(self) -> None:
        self._recent = proxy(self._recent)

    @property
    def cluster(self) -> int:
        return self.key[0]

    @property
    def proc(self) -> int:
        return self.key[1]

    @property
    def subproc(self) -> int:
        """The third number of the key."""
        return self.key[2]

    @property
    def id(self) -> JobId:
        """Cluster and proc."""
        return self.key[:2]

    @property
    def noop(self) -> bool:
        """Whether these are the events of a NOOP node."""
        return self.proc == NOOP_PROC

    def note_memory(self, last: datetime, memory_mb: int | None, updates: int = 1) -> None:
        """Add ``updates`` 006 events, the latest at ``last``, of up to ``memory_mb`` MB."""
        self.memory_updates += updates
        if self.newest_time is None or last > self.newest_time:
            self.newest_time = last
        if self.last_image_size is None or last > self.last_image_size:
            self.last_image_size = last
            self._note_in_history(last)
        if memory_mb is not None and (self.memory_max is None or memory_mb > self.memory_max):
            self.memory_max = memory_mb

    def _note_in_history(self, last: datetime) -> None:
        history = self._history
        if history is None:
            return
        # A later 006 changes when a disconnection ended, and whether a removal followed silence.
        if history.state in TERMINAL or any(
            state is State.DISCONNECTED for _, state in history.states
        ):
            self._history = None
        else:
            note_image_size(history, last)

    def add(self, event: Event, stream: Stream) -> bool:
        """Add an event; return False for a copy that adds nothing."""
        number, time, detail = event.number, event.time, event.detail
        # An event in a later second than all others cannot be a copy: no look-up is needed.
        newest = self.newest_time
        is_latest = newest is None or time > newest
        if is_latest:
            self.newest_time = time
            is_latest = not time.microsecond
        events = self._usable_events()
        if is_latest:
            event = redact_event(event)
            events.append(stream, event)
            if self._history is not None:
                codes = self._recent.checkpoint_codes
                apply_event(self._history, event, codes, self.last_image_size)
        elif not events.add_if_new(stream, event):
            return False
        else:
            self._history = None
        self._submission = None
        if number in (5, 9):
            self.has_ended = True
            self._recent.add(self)
        if number == 0 and isinstance(detail, Submit):
            self._read_submit(detail)
            self.logged_submit = self.logged_submit or time
        return True

    def _read_submit(self, detail: Submit) -> None:
        self.node_name = self.node_name or detail.node
        if self.batch_name is None and detail.batch_name is not None:
            self.note_batch_name(detail.batch_name)
        if detail.run_uuid is not None:
            self.run_uuid = intern(redact_and_truncate(detail.run_uuid))
        if detail.run_name is not None:
            self.run_name = intern(redact_and_truncate(detail.run_name))
        self.run_epoch = self.run_epoch or detail.run_epoch

    def note_batch_name(self, name: str) -> None:
        """Store the ``JobBatchName``, without secrets."""
        self.batch_name = intern(redact_and_truncate(name))

    def _usable_events(self) -> JobEvents:
        """The events as objects."""
        events = self._events
        if isinstance(events, bytes):
            events = JobEvents(self._recent.events_in(events, self._place), events)
            self._events = events
        elif not events.is_empty:
            return events
        self._recent.add(self)
        return events

    def events(self) -> list[Event]:
        """The events without 006, each once, in order.

        The order of one log is preserved (timestamps may step back); events that only another
        log has are inserted by time.
        """
        return self._usable_events().merged()

    def history(self) -> JobHistory:
        """The job's history, folded from its events and cached."""
        history = self._history
        if history is None:
            history = fold(self.events(), self._recent.checkpoint_codes, self.last_image_size)
            self._history = history
            # Decompressed events have new time objects: share one with the records.
            if history.submitted == self.logged_submit:
                self.logged_submit = history.submitted
            if history.last == self.newest_time:
                self.newest_time = history.last
            # Callers that need the histories of many jobs may not compress them themselves.
            if surplus := self._recent.surplus(2):
                self._recent.compress(surplus)
        return history

    @property
    def submitted(self) -> datetime | None:
        """Submission time from the history, cached apart from it."""
        if self._submission is None:
            self._submission = (self.history().submitted,)
        return self._submission[0]

    @property
    def first_submitted(self) -> datetime | None:
        """Time of the first 000 that was read, else the submission time from the history.

        For most jobs it is available without folding the history.
        """
        return self.logged_submit or self.submitted

    def queue_span(self) -> tuple[datetime, datetime]:
        """Times at which it was submitted and left the queue, as far as known."""
        history = self.history()
        ended = history.since if history.state in TERMINAL else None
        return history.submitted or datetime.min, ended or datetime.max

    def events_by_log(self) -> list[tuple[Stream, list[Event]]]:
        """The events without 006, by the log they were read from."""
        return self._usable_events().by_log()

    def drop_events(self) -> None:
        """Drop the events, which are those of ``.dagman.out``, since a log has the job."""
        self._events = JobEvents()
        self._history = self._submission = self.newest_time = None
        self.has_ended = False

    def drop_objects(self) -> bool:
        """Drop the history, which is folded again on demand, and events that are in a block.

        Return whether a block has the events.
        """
        self._history = None
        if isinstance(self._events, JobEvents) and self._events.block is not None:
            self._events = self._events.block
        return isinstance(self._events, bytes)

    def set_block(self, block: bytes, place: int) -> None:
        """Replace the events by their place in a block."""
        self._events, self._place = block, place


def merge_by_time(events: list[Event], added: list[Event]) -> list[Event]:
    """Merge two event lists; the order of ``events`` is preserved."""
    if not events or not added:
        return events or added
    # Earliest time from each event on: monotonic, although timestamps may step back.
    earliest = list(accumulate((event.time for event in reversed(events)), min))[::-1]
    positions = [(bisect_right(earliest, event.time), event.time) for event in added]
    merged: list[Event] = []
    used = 0
    for i in sorted(range(len(added)), key=positions.__getitem__):
        merged += events[used : positions[i][0]]
        merged.append(added[i])
        used = positions[i][0]
    return merged + events[used:]


NodeKey: TypeAlias = tuple[str, str]

NO_DAG: Final = ""
"""The key of the jobs of no DAG, in place of a DAG's (:mod:`metlmon.model.run`)."""
