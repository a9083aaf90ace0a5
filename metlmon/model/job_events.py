"""Records of the state model: a job with its events, and a node with its jobs."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime
from itertools import accumulate
from operator import itemgetter
from typing import Annotated, Final, NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.dagman import Node
from metlmon.eventlog import Event, Submit
from metlmon.model.event_store import (
    Identity,
    PlainData,
    StringTable,
    identity,
    identity_unredacted,
    is_damaged,
    pack,
    redact_and_truncate,
    redacted_event,
    unpack,
    unpack_event,
)
from metlmon.model.job import JobHistory, apply_event, fold, note_image_size
from metlmon.model.states import TERMINAL, State
from metlmon.redact import is_secret_name

NOOP_PROC: Final = 2147483647
"""Proc of the events that DAGMan writes for a NOOP node, which has no job; its own counter is
the subproc (``dagman_main.cpp``)."""

MAX_UNPACKED_JOBS: Final = 2000
"""Jobs with unpacked events (about 5 kB each): more than are active in most ensembles, and few
enough that packing half of them takes ten milliseconds."""

MAX_CACHED_HISTORIES: Final = 1000
"""Packed jobs whose histories stay cached after a look-up, about 2 kB each."""

NO_EVENTS: Final = pack({}, StringTable())

NO_LOGS: Final[frozenset[str]] = frozenset()

JobId: TypeAlias = Annotated[tuple[int, int], "job"]

JobKey: TypeAlias = tuple[int, int, int]
"""Cluster, proc and a third number, else 0: the subproc of a NOOP node, or the submission's
index where the schedd reused the job id
(:class:`metlmon.model.attribution.ReusedJobIds`)."""


class Stream(NamedTuple):
    """The log that an event was read from.

    User logs (``rank`` 0) sort before nodes.logs (1): they have all of a job's events, a
    nodes.log only some. What ``.dagman.out`` has of them (2) counts for jobs in no log.
    """

    rank: int
    file: str


class EventStore:
    """Storage shared by an ensemble's jobs: one string table, and limits on memory.

    ``checkpoint_codes``: as in :func:`metlmon.model.job.fold`. ``unpacked``: jobs whose events
    are not packed; ``indexed``: buffers with an index. Call :meth:`tidy` from time to time while
    adding events.
    """

    def __init__(self, checkpoint_codes: frozenset[int] = frozenset()) -> None:
        self.checkpoint_codes = checkpoint_codes
        self.strings = StringTable(redact=None)
        self.unpacked: dict[Job, None] = {}
        self.indexed: list[EventBuffer] = []
        self._cached: dict[Job, None] = {}
        self._log_sets: dict[frozenset[str], frozenset[str]] = {}

    def tidy(self) -> None:
        """Drop the indexes, and pack the jobs unpacked first when there are too many."""
        for events in self.indexed:
            events.drop_index()
        self.indexed.clear()
        if len(self.unpacked) > MAX_UNPACKED_JOBS:
            for job in list(self.unpacked)[: len(self.unpacked) - MAX_UNPACKED_JOBS // 2]:
                job.pack()

    def with_log(self, logs: frozenset[str], log: str) -> frozenset[str]:
        """``logs`` with ``log`` added: one shared set for all jobs in the same logs."""
        extended = logs | {log}
        return self._log_sets.setdefault(extended, extended)

    def note_cached_history(self, job: Job) -> None:
        """Note that a packed job has a cached history; drop the oldest of too many."""
        self._cached[job] = None
        if len(self._cached) > MAX_CACHED_HISTORIES:
            for other in list(self._cached)[: MAX_CACHED_HISTORIES // 2]:
                self._cached.pop(other, None)
                other.drop_history()


class Job:
    """One job and its events, whichever logs they were in.

    An event in two logs counts once: identity is its number, its time to the second and its
    first line (cluster and proc are those of the job). The result does not depend on the
    order in which logs are read. ``removed_with_dag``: removed because its whole DAG ended;
    ``aborted_by``: the cluster of that DAG's DAGMan, ``run_uuid``: the run, where the log names it.
    ``run_name``, ``run_epoch``: as in :class:`metlmon.eventlog.Submit`.

    Events that have not been used recently are packed with the string table of ``store``;
    callers see no difference.
    """

    __slots__ = (
        "_events",
        "_history",
        "_store",
        "_submission",
        "aborted_by",
        "batch_name",
        "cluster",
        "id",
        "key",
        "last_image_size",
        "logged_submit",
        "memory_max",
        "memory_updates",
        "newest_time",
        "node_name",
        "nodes_logs",
        "proc",
        "removed_with_dag",
        "run_epoch",
        "run_name",
        "run_uuid",
        "subproc",
        "user_logs",
    )

    def __init__(self, cluster: int, proc: int, subproc: int = 0, store: EventStore | None = None):
        self.cluster = cluster
        self.proc = proc
        self.subproc = subproc
        self.id: JobId = (cluster, proc)
        self.key: JobKey = (cluster, proc, subproc)
        """The job's key in the ensemble: one object, since many records contain it."""
        self.node_name: str | None = None
        self.batch_name: str | None = None
        self.aborted_by: int | None = None
        self.run_uuid: str | None = None
        self.run_name: str | None = None
        self.run_epoch: int | None = None
        self.removed_with_dag = False
        self.nodes_logs = NO_LOGS
        self.user_logs = NO_LOGS
        self.memory_max: int | None = None
        self.memory_updates = 0
        self.last_image_size: datetime | None = None
        self.newest_time: datetime | None = None
        self._store = store or EventStore()
        self._events: EventBuffer | bytes = NO_EVENTS
        self._history: JobHistory | None = None
        self._submission: tuple[datetime | None] | None = None
        self.logged_submit: datetime | None = None

    @property
    def noop(self) -> bool:
        """Whether these are the events of a NOOP node."""
        return self.proc == NOOP_PROC

    def note_memory(self, last: datetime, memory_mb: int | None, updates: int = 1) -> None:
        """Add ``updates`` 006 events, the latest at ``last``, of up to ``memory_mb`` MB.

        Nine in ten events of a real log are 006: only the largest value is stored.
        """
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
        if number in AD_ATTRIBUTE_EVENTS:
            event = without_environment(event)
        strings = self._store.strings
        events = self._events
        if isinstance(events, bytes):
            events = self._unpack(events)
        if is_latest:
            event = redacted_event(event, strings)
            events.append(stream, event, strings)
            if self._history is not None:
                codes = self._store.checkpoint_codes
                apply_event(self._history, event, codes, self.last_image_size)
        elif not events.add_if_new(stream, event, self._store):
            return False
        else:
            self._history = None
        self._submission = None
        if number == 0 and isinstance(detail, Submit):
            self._read_submit(detail)
            self.logged_submit = self.logged_submit or time
        return True

    def _read_submit(self, detail: Submit) -> None:
        self.node_name = self.node_name or detail.node
        if self.batch_name is None and detail.batch_name is not None:
            self.note_batch_name(detail.batch_name)
        if detail.run_uuid is not None:
            self.run_uuid = self._shared(detail.run_uuid)
        if detail.run_name is not None:
            self.run_name = self._shared(detail.run_name)
        self.run_epoch = self.run_epoch or detail.run_epoch

    def note_batch_name(self, name: str) -> None:
        """Note the ``JobBatchName``, without secrets."""
        self.batch_name = self._shared(name)

    def _shared(self, name: str) -> str:
        return self._store.strings.shared(redact_and_truncate(name))

    def events(self) -> list[Event]:
        """The events without 006, each once, in order.

        The order of one log is preserved (timestamps may step back); events that only another
        log has are inserted by time.
        """
        job, strings = (self.cluster, self.proc, self.subproc), self._store.strings
        merged: list[Event] = []
        for events in self._ordered_streams():
            merged = merge_by_time(
                merged,
                [
                    event if event.__class__ is Event else unpack_event(event, *job, strings)
                    for event in events
                    if event is not None
                ],
            )
        return merged

    def _ordered_streams(self) -> list[list[PlainData]]:
        """The plain events by log, in the logs' order."""
        parts = list(self._streams())
        if len(parts) > 1:
            parts.sort(key=itemgetter(0, 1))
        return [events for _, _, events in parts]

    def _streams(self) -> Iterable[tuple[int, str, list[PlainData]]]:
        events = self._events
        if isinstance(events, bytes):
            return unpack(events, self._store.strings)
        return [(rank, file, stored) for (rank, file), stored in events.streams.items()]

    def history(self) -> JobHistory:
        """The job's history, folded from its events and cached."""
        history = self._history
        if history is None:
            history = fold(self.events(), self._store.checkpoint_codes, self.last_image_size)
            self._history = history
            if self._events.__class__ is bytes:
                self._store.note_cached_history(self)
        return history

    @property
    def submitted(self) -> datetime | None:
        """Submission time from the history.

        Cached apart from it: every attribution of the job to a DAG reads it.
        """
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
        job, strings = (self.cluster, self.proc, self.subproc), self._store.strings
        return [
            (
                Stream(rank, file),
                [
                    event if event.__class__ is Event else unpack_event(event, *job, strings)
                    for event in events
                    if event is not None
                ],
            )
            for rank, file, events in self._streams()
        ]

    def drop_events(self) -> None:
        """Drop the events, those of ``.dagman.out``, since a log has the job."""
        self._events = EventBuffer({})
        self._store.unpacked[self] = None
        self._history = self._submission = self.newest_time = None

    def drop_history(self) -> None:
        """Drop the cached history; it is folded again from the events on demand."""
        self._history = None

    # --- packed -------------------------------------------------------------------------

    def pack(self) -> None:
        """Pack the events and drop the cached history."""
        if not isinstance(self._events, bytes):
            events = self._events
            self._events = events.packed or pack(events.streams, self._store.strings)
        self._history = None
        self._store.unpacked.pop(self, None)

    def _unpack(self, packed: bytes) -> EventBuffer:
        parts = unpack(packed, self._store.strings)
        buffer = self._events = EventBuffer(
            {Stream(rank, file): events for rank, file, events in parts}, packed
        )
        self._store.unpacked[self] = None
        return buffer


class EventBuffer:
    """The unpacked events of one job, by log; None replaces a removed event.

    Those that have been packed before are plain data: few of them are needed again. ``packed``:
    all of them packed; None once one has been added since.
    """

    __slots__ = ("_index", "packed", "streams")

    def __init__(self, streams: dict[Stream, list[PlainData]], packed: bytes | None = None) -> None:
        self.streams = streams
        self.packed = packed
        # Built on demand: most jobs are in one log, with few events in the same second.
        self._index: dict[Identity, tuple[Stream, int]] | None = None

    def append(self, stream: Stream, event: Event, strings: StringTable) -> None:
        """Append an event that is not in the buffer."""
        self.packed = None
        events = self.streams.get(stream)
        if events is None:
            events = self.streams[stream] = []
        if self._index is not None:
            self._index[identity(event, strings)] = (stream, len(events))
        events.append(event)

    def drop_index(self) -> None:
        """Drop the index, a third of the events' memory; it is built again on demand."""
        self._index = None

    def add_if_new(self, stream: Stream, event: Event, store: EventStore) -> bool:
        """Add an event, without its secrets; return False for a copy that adds nothing.

        Of two copies the undamaged one is stored, else that of the log with the lower rank,
        which has more of the job.
        """
        strings = store.strings
        if self._index is None:
            store.indexed.append(self)
            self._index = {
                identity(known, strings): (known_stream, index)
                for known_stream, events in self.streams.items()
                for index, known in enumerate(events)
                if known is not None
            }
        position = self._index.get(identity_unredacted(event))
        if position is not None:
            known_stream, index = position
            is_better = not event.damaged and is_damaged(self.streams[known_stream][index])
            if not is_better and (event.damaged or known_stream <= stream):
                return False
            self.packed = None
            if is_better and known_stream <= stream:
                self.streams[known_stream][index] = redacted_event(event, strings)
                return True
            self.streams[known_stream][index] = None
        self.append(stream, redacted_event(event, strings), strings)
        return True


def merge_by_time(events: list[Event], added: list[Event]) -> list[Event]:
    """Merge two event lists; the order of ``events`` is preserved.

    Each event of ``added`` follows the last one of ``events`` that is not later than it.
    """
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


AD_ATTRIBUTE_EVENTS: Final = frozenset({28, 33})
"""Events with attributes of the job's ClassAd (job ad information, attribute update)."""

_ENVIRONMENT: Final = re.compile(
    r"\b(?:job)?(env(?:ironment)?2?)\b(\s*=|\s+from\b|\s+to\b)(?:[^\n]|\n(?!\s*[\w.]+ = ))*",
    re.IGNORECASE,
)
"""Matches up to the next line with an attribute: a value may contain newlines."""


_ATTRIBUTE: Final = re.compile(r"\w+ job attribute (\S+)")


def without_environment(event: Event) -> Event:
    """Return an event without values of the environment, and of secret attributes.

    API keys and tokens are passed in the environment; what is not stored cannot be shown.
    """
    changed = _ATTRIBUTE.match(event.text)
    if changed is not None and is_secret_name(changed[1]):
        # Its values may contain newlines and unbalanced quotes.
        return replace(event, text=f"{changed[0]} (not shown)", body="")
    return replace(
        event,
        text=_ENVIRONMENT.sub(r"\1\2 (not shown)", event.text),
        body="" if event.number == 33 else _ENVIRONMENT.sub(r"\1\2 (not shown)", event.body),
    )


NodeKey: TypeAlias = tuple[str, str]

NO_DAG: Final = ""
"""The key of the jobs of no DAG, in place of a DAG's (:mod:`metlmon.model.job_groups`)."""


class PostResult(Struct, frozen=True):
    """Result of a POST script (016).

    ``cluster``: the submission it ran for, None when the submit failed. ``value``: return
    value, None for a signal.
    """

    time: datetime
    cluster: int | None
    ok: bool
    value: int | None = None


class NodeRecord(Struct):
    """A node of one DAG, identified by (DAG, node name), with its jobs and scripts.

    ``posts`` and ``skips`` are shared empty tuples for most nodes, which have no scripts.
    """

    key: NodeKey
    node: Node
    jobs: list[Job] = field(default_factory=list)
    posts: tuple[PostResult, ...] = ()
    skips: tuple[datetime, ...] = ()
