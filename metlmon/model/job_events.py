"""The records the state model keeps: a job with its events, a node with its jobs."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from metlmon.dagman import Node
from metlmon.eventlog import Event, Submit
from metlmon.frozen import frozen
from metlmon.model.event_store import (
    Identity,
    Plain,
    StringTable,
    damaged,
    identity,
    kept,
    pack,
    pack_event,
    unpack,
    unpack_event,
    unpack_told,
    whole_seconds,
)
from metlmon.model.job import JobHistory, fold
from metlmon.model.states import TERMINAL, State
from metlmon.redact import is_secret_name

NOOP_PROC: Final = 2147483647
"""DAGMan writes events of a NOOP node under this proc, with a number of its own as subproc
(``dagman_main.cpp``): they are no job's."""

MOST_LOOSE: Final = 2000
"""Jobs whose events lie unpacked, some five kilobytes each: more than are busy in most
ensembles, and few enough that packing half of them is done in ten milliseconds."""

MOST_FOLDED: Final = 1000
"""Packed jobs whose lives are kept when somebody asked for them, some two kilobytes each."""

NOTHING: Final = pack({}, StringTable())

NO_LOGS: Final[frozenset[str]] = frozenset()

JobId: TypeAlias = tuple[int, int]

JobKey: TypeAlias = tuple[int, int, int]
"""Cluster, proc and, of what is no job's, subproc."""


class Stream(NamedTuple):
    """Where an event was read. User logs come before nodes.logs (``rank`` 0 and 1): they
    have all of a job's events, a nodes.log only some."""

    rank: int
    file: str


class EventStore:
    """What the jobs of one ensemble share: the texts of their packed events, and the bounds on
    how many of them lie unpacked.

    ``checkpoint_codes`` are as in :func:`metlmon.model.job.fold`. ``loose``: jobs whose
    events are not packed; who adds events to them tells them to :meth:`tidy` in between.
    """

    def __init__(self, checkpoint_codes: frozenset[int] = frozenset()) -> None:
        self.checkpoint_codes = checkpoint_codes
        self.words = StringTable()
        self.loose: dict[Job, None] = {}
        self._folded: dict[Job, None] = {}
        self._logs: dict[frozenset[str], frozenset[str]] = {}

    def tidy(self) -> None:
        """Pack the jobs that were unpacked longest ago, where they have become many."""
        if len(self.loose) > MOST_LOOSE:
            for job in list(self.loose)[: len(self.loose) - MOST_LOOSE // 2]:
                job.pack()

    def one_more(self, logs: frozenset[str], log: str) -> frozenset[str]:
        """``logs`` and ``log``: one object for all jobs that are in the same."""
        more = logs | {log}
        return self._logs.setdefault(more, more)

    def note_folded(self, job: Job) -> None:
        """A packed job was asked for its life, and has it now; others forget theirs."""
        self._folded[job] = None
        if len(self._folded) > MOST_FOLDED:
            for other in list(self._folded)[: MOST_FOLDED // 2]:
                self._folded.pop(other, None)
                other.forget_life()


class Job:
    """One job and its events, whichever logs they were in.

    An event in two logs counts once: identity is its number, its time to the second and
    its first line (cluster and proc are the job's own). What a job's events come to does
    not depend on which log was read first. ``swept``: it was removed because its whole DAG
    ended; ``aborted_by``: the cluster of that DAG's DAGMan, where the log names it.

    Its events lie packed on the ``shelf`` when nobody has needed them for long; nobody else
    sees a difference.
    """

    __slots__ = (
        "_events",
        "_life",
        "_shelf",
        "_submission",
        "aborted_by",
        "batch_name",
        "cluster",
        "first_told",
        "last_image",
        "memory_max",
        "memory_updates",
        "newest_sign",
        "node_name",
        "nodes_logs",
        "proc",
        "subproc",
        "swept",
        "user_logs",
    )

    def __init__(self, cluster: int, proc: int, subproc: int = 0, shelf: EventStore | None = None):
        self.cluster = cluster
        self.proc = proc
        self.subproc = subproc
        self.node_name: str | None = None
        self.batch_name: str | None = None
        self.aborted_by: int | None = None
        self.swept = False
        self.nodes_logs = NO_LOGS
        self.user_logs = NO_LOGS
        self.memory_max: int | None = None
        self.memory_updates = 0
        self.last_image: datetime | None = None
        self.newest_sign: datetime | None = None
        self._shelf = shelf or EventStore()
        self._events: EventBuffer | bytes = NOTHING
        self._life: JobHistory | None = None
        self._submission: tuple[datetime | None] | None = None
        self.first_told: datetime | None = None

    @property
    def id(self) -> JobId:
        return (self.cluster, self.proc)

    @property
    def key(self) -> JobKey:
        return (self.cluster, self.proc, self.subproc)

    @property
    def noop(self) -> bool:
        return self.proc == NOOP_PROC

    def note_memory(self, last: datetime, memory_mb: int | None, updates: int = 1) -> None:
        """006: nine in ten events of a real log; only their largest value (MB) is kept.
        ``last``: the time of the latest of these ``updates``."""
        self.memory_updates += updates
        if self.newest_sign is None or last > self.newest_sign:
            self.newest_sign = last
        if self.last_image is None or last > self.last_image:
            self.last_image = last
            # Only where the fold looks at it: a sign of life after a silence.
            life = self._life
            if life is not None and any(state is State.DISCONNECTED for _, state in life.states):
                self._life = None
        if memory_mb is not None and (self.memory_max is None or memory_mb > self.memory_max):
            self.memory_max = memory_mb

    def add(self, event: Event, stream: Stream) -> bool:
        """Take one event in; False when it is known already, and tells nothing new."""
        number, when, detail = event[0], event[4], event[7]
        # Any event at all is a sign of life, and one in a later second than all others is new.
        newest = self.newest_sign
        new = newest is None or when > newest
        if new:
            self.newest_sign = when
            new = not when.microsecond
        if number in TELLS_ATTRIBUTES:
            event = _without_environment(event)
        words = self._shelf.words
        events = self._events
        if isinstance(events, bytes):
            events = self._unpack(events)
        if new:
            events.append(stream, pack_event(event, words), words)
        elif not events.take(stream, event, words):
            return False
        self._life = self._submission = None
        if number == 0 and isinstance(detail, Submit):
            self._submitted(detail)
            self.first_told = self.first_told or when
        return True

    def _submitted(self, detail: Submit) -> None:
        self.node_name = self.node_name or detail.node
        if self.batch_name is None and detail.batch_name is not None:
            self.batch_name = self._shelf.words.shared(kept(detail.batch_name))

    def events(self) -> list[Event]:
        """Its events but 006, each once, in the order they happened.

        The order of one log is the truth of that log (stamps may step back); what only
        another log has is put in by its time.
        """
        job, words = (self.cluster, self.proc, self.subproc), self._shelf.words
        merged: list[Event] = []
        for events in self._in_order():
            merged = merge_by_time(
                merged, [unpack_event(plain, *job, words) for plain in events if plain]
            )
        return merged

    def _lived(self) -> list[Event]:
        """As :meth:`events`, with no more of each than its life is made of."""
        words = self._shelf.words
        merged: list[Event] = []
        for events in self._in_order():
            merged = merge_by_time(merged, [unpack_told(plain, words) for plain in events if plain])
        return merged

    def _in_order(self) -> list[list[Plain]]:
        """Its plain events by log, in the logs' order."""
        parts = list(self._parts())
        if len(parts) > 1:
            parts.sort(key=itemgetter(0, 1))
        return [events for _, _, events in parts]

    def _parts(self) -> Iterable[tuple[int, str, list[Plain]]]:
        events = self._events
        if isinstance(events, bytes):
            return unpack(events, self._shelf.words)
        return [(rank, file, some) for (rank, file), some in events.streams.items()]

    def life(self) -> JobHistory:
        """What its events come to."""
        life = self._life
        if life is None:
            life = fold(self._lived(), self._shelf.checkpoint_codes, self.last_image)
            self._life = life
            if self._events.__class__ is bytes:
                self._shelf.note_folded(self)
        return life

    @property
    def submitted(self) -> datetime | None:
        """As its life has it: kept, for it is asked for each time that DAGMan says something
        which may tell where the job belongs."""
        if self._submission is None:
            self._submission = (self.life().submitted,)
        return self._submission[0]

    @property
    def told_submitted(self) -> datetime | None:
        """When the first 000 that was read says that it was submitted: at hand for most jobs,
        whose life need not be folded for it."""
        return self.first_told or self.submitted

    def queue_span(self) -> tuple[datetime, datetime]:
        """When it was submitted and when it left the queue, as far as is known."""
        life = self.life()
        ended = life.since if life.state in TERMINAL else None
        return life.submitted or datetime.min, ended or datetime.max

    def told(self) -> list[tuple[Stream, list[Event]]]:
        """Its events but 006, by the logs they were read in, in the logs' order."""
        job, words = (self.cluster, self.proc, self.subproc), self._shelf.words
        return [
            (Stream(rank, file), [unpack_event(each, *job, words) for each in plain if each])
            for rank, file, plain in self._parts()
        ]

    def forget_life(self) -> None:
        """It can be had from the events again."""
        self._life = None

    # --- packed -------------------------------------------------------------------------

    def pack(self) -> None:
        """Pack its events, and forget its life."""
        self._events = self.packed()
        self._life = None
        self._shelf.loose.pop(self, None)

    def packed(self) -> bytes:
        """Its events, packed with the words of its shelf."""
        events = self._events
        return events if isinstance(events, bytes) else pack(events.streams, self._shelf.words)

    def unpack_later(self, packed: bytes) -> None:
        """Its events are those that another job of the same cluster and proc had
        :meth:`packed`, with the words that the shelf has."""
        self._events = packed

    def _unpack(self, packed: bytes) -> EventBuffer:
        parts = unpack(packed, self._shelf.words)
        loose = self._events = EventBuffer(
            {Stream(rank, file): events for rank, file, events in parts}
        )
        self._shelf.loose[self] = None
        return loose


class EventBuffer:
    """The plain events of one job by the logs they were read in, while they are not packed.
    None is in place of one that was taken out."""

    __slots__ = ("_index", "streams")

    def __init__(self, streams: dict[Stream, list[Plain]]) -> None:
        self.streams = streams
        # Made when it is asked for: most jobs are in one log, and few of their events are in
        # one second.
        self._index: dict[Identity, tuple[Stream, int]] | None = None

    def append(self, stream: Stream, plain: Plain, words: StringTable) -> None:
        """Add one that is not among them."""
        events = self.streams.get(stream)
        if events is None:
            events = self.streams[stream] = []
        if self._index is not None:
            self._index[identity(plain, words)] = (stream, len(events))
        events.append(plain)

    def take(self, stream: Stream, event: Event, words: StringTable) -> bool:
        """Add one that may be among them; False when it is, and tells nothing new. Of two copies
        the whole one is kept, else the one in the log that has more of the job."""
        if self._index is None:
            self._index = {
                identity(known, words): (other, at)
                for other, events in self.streams.items()
                for at, known in enumerate(events)
                if known
            }
        found = self._index.get((event.number, whole_seconds(event.time), kept(event.text)))
        if found is not None:
            other, at = found
            if not event.damaged and damaged(self.streams[other][at]):
                if other <= stream:
                    self.streams[other][at] = pack_event(event, words)
                    return True
            elif event.damaged or other <= stream:
                return False
            self.streams[other][at] = None
        self.append(stream, pack_event(event, words), words)
        return True


def merge_by_time(events: list[Event], more: list[Event]) -> list[Event]:
    """``events`` in their order, and each of ``more`` behind the last of them that is not
    later than it."""
    if not events or not more:
        return events or more
    # The earliest time from each event on: stamps may step back, this never does.
    earliest = list(accumulate((event.time for event in reversed(events)), min))[::-1]
    places = [(bisect_right(earliest, event.time), event.time) for event in more]
    woven: list[Event] = []
    done = 0
    for i in sorted(range(len(more)), key=places.__getitem__):
        woven += events[done : places[i][0]]
        woven.append(more[i])
        done = places[i][0]
    return woven + events[done:]


TELLS_ATTRIBUTES: Final = frozenset({28, 33})
"""Events that tell attributes of the job's ClassAd (job ad information, attribute update)."""

_ENVIRONMENT: Final = re.compile(
    r"\b(?:job)?(env(?:ironment)?2?)\b(\s*=|\s+from\b|\s+to\b)(?:[^\n]|\n(?!\s*[\w.]+ = ))*",
    re.IGNORECASE,
)
"""To the next line that tells an attribute: a value may have line ends."""


_ATTRIBUTE: Final = re.compile(r"\w+ job attribute (\S+)")


def _without_environment(event: Event) -> Event:
    """The event without values of the job's environment: keys and tokens are passed that way,
    and what is not kept cannot be shown. Nor values of an attribute that is named like one."""
    changed = _ATTRIBUTE.match(event.text)
    if changed is not None and is_secret_name(changed[1]):
        # Its values may have line ends, and quotes as they like.
        return event._replace(text=f"{changed[0]} (not shown)", body="")
    return event._replace(
        text=_ENVIRONMENT.sub(r"\1\2 (not shown)", event.text),
        body="" if event.number == 33 else _ENVIRONMENT.sub(r"\1\2 (not shown)", event.body),
    )


NodeKey: TypeAlias = tuple[str, str]


@frozen
class PostResult:
    """016: how the POST script ended, and for which submission (None: its submit failed).
    ``value``: its return value; None for a signal."""

    time: datetime
    cluster: int | None
    ok: bool
    value: int | None = None


@dataclass(slots=True)
class NodeRecord:
    """A node of one DAG and what the logs say of it. Identity is (DAG, node name). Most nodes
    have no script, and no memory of their own for what theirs said."""

    key: NodeKey
    node: Node
    jobs: list[Job] = field(default_factory=list)
    posts: tuple[PostResult, ...] = ()
    skips: tuple[datetime, ...] = ()
