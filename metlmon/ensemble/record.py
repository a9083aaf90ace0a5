"""The records the state model keeps: a job with its events, a node with its jobs."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Final, TypeAlias

from metlmon.dagman import Node
from metlmon.ensemble.job import JobLife, fold
from metlmon.ensemble.states import State
from metlmon.eventlog import Event, Generic, Submit
from metlmon.frozen import frozen

BODY_LIMIT: Final = 500
"""Characters kept of the body of an event that has no typed detail: enough to read what it
is about; months of them must fit in memory."""

NOOP_PROC: Final = 2147483647
"""DAGMan writes events of a NOOP node under this proc, with a number of its own as subproc
(``dagman_main.cpp``): they are no job's."""

JobId: TypeAlias = tuple[int, int]

Identity: TypeAlias = tuple[int, datetime, str]
"""What makes an event of one job this event: see :class:`Job`."""


@dataclass(frozen=True, slots=True, order=True)
class Stream:
    """Where an event was read. User logs come before nodes.logs (``rank`` 0 and 1): they
    have all of a job's events, a nodes.log only some."""

    rank: int
    file: str


class Job:
    """One job and its events, whichever logs they were in.

    An event in two logs counts once: identity is its number, its time to the second and
    its first line (cluster and proc are the job's own). What a job's events come to does
    not depend on which log was read first. ``checkpoint_codes`` are as in
    :func:`metlmon.ensemble.job.fold`. ``swept``: it was removed because its whole DAG ended;
    ``aborted_by``: the cluster of that DAG's DAGMan, where the log names it.
    """

    __slots__ = (
        "_life",
        "_order",
        "_streams",
        "aborted_by",
        "batch_name",
        "checkpoint_codes",
        "cluster",
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

    def __init__(
        self,
        cluster: int,
        proc: int,
        subproc: int = 0,
        checkpoint_codes: frozenset[int] = frozenset(),
    ) -> None:
        self.checkpoint_codes = checkpoint_codes
        self.cluster = cluster
        self.proc = proc
        self.subproc = subproc
        self.node_name: str | None = None
        self.batch_name: str | None = None
        self.aborted_by: int | None = None
        self.swept = False
        self.nodes_logs: set[str] = set()
        self.user_logs: set[str] = set()
        self.memory_max: int | None = None
        self.memory_updates = 0
        self.last_image: datetime | None = None
        self.newest_sign: datetime | None = None
        self._streams: dict[Stream, dict[Identity, Event]] = {}
        self._order: list[Event] | None = None
        self._life: JobLife | None = None

    @property
    def id(self) -> JobId:
        return (self.cluster, self.proc)

    @property
    def noop(self) -> bool:
        return self.proc == NOOP_PROC

    def sign(self, when: datetime) -> None:
        """Any event at all is a sign of life."""
        if self.newest_sign is None or when > self.newest_sign:
            self.newest_sign = when

    def note_memory(self, last: datetime, memory_mb: int | None, updates: int = 1) -> None:
        """006: nine in ten events of a real log; only their largest value (MB) is kept.
        ``last``: the time of the latest of these ``updates``."""
        self.memory_updates += updates
        self.sign(last)
        if self.last_image is None or last > self.last_image:
            self.last_image = last
            # Only where the fold looks at it: a sign of life after a silence.
            life = self._life
            if life is not None and any(state is State.DISCONNECTED for _, state in life.states):
                self._life = None
        if memory_mb is not None:
            self.memory_max = max(self.memory_max or 0, memory_mb)

    def add(self, event: Event, stream: Stream) -> bool:
        """Take one event in; False when it is known already."""
        self.sign(event.time)
        if event.number in TELLS_ATTRIBUTES:
            event = _without_environment(event)
        identity = (event.number, event.time.replace(microsecond=0), event.text)
        known = next((s for s, events in self._streams.items() if identity in events), None)
        if known is not None and not self._supersedes(identity, event, known, stream):
            return False
        self._streams.setdefault(stream, {})[identity] = _slim(event)
        self._order = self._life = None
        if isinstance(event.detail, Submit):
            self.node_name = self.node_name or event.detail.node
            self.batch_name = self.batch_name or event.detail.batch_name
        return True

    def _supersedes(self, identity: Identity, event: Event, known: Stream, stream: Stream) -> bool:
        """Of two copies of an event the whole one is kept, else the one in the log that has
        more of the job; the other copy is taken out."""
        events = self._streams[known]
        if events[identity].damaged and not event.damaged:
            if known <= stream:
                events[identity] = _slim(event)
                self._order = self._life = None
                return False
        elif event.damaged or known <= stream:
            return False
        del events[identity]
        return True

    def events(self) -> list[Event]:
        """Its events but 006, each once, in the order they happened.

        The order of one log is the truth of that log (stamps may step back); what only
        another log has is put in by its time.
        """
        if self._order is None:
            streams = sorted(s for s in self._streams if self._streams[s])
            merged = list(self._streams[streams[0]].values()) if streams else []
            for stream in streams[1:]:
                merged = woven(merged, list(self._streams[stream].values()))
            self._order = merged
        return self._order

    def life(self) -> JobLife:
        """What its events come to."""
        if self._life is None:
            self._life = fold(self.events(), self.checkpoint_codes, self.last_image)
        return self._life


def woven(events: list[Event], more: list[Event]) -> list[Event]:
    """``events`` in their order, and each of ``more`` behind the last of them that is not
    later than it."""
    if not more:
        return events
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

_ENVIRONMENT: Final = re.compile(r"\b(env(?:ironment)?)\b(\s*=|\s+from\b|\s+to\b).*", re.IGNORECASE)


def _without_environment(event: Event) -> Event:
    """The event without values of the job's environment: keys and tokens are passed that way,
    and what is not kept cannot be shown."""
    return event._replace(
        text=_ENVIRONMENT.sub(r"\1\2 (not shown)", event.text),
        body=_ENVIRONMENT.sub(r"\1\2 (not shown)", event.body),
    )


def _slim(event: Event) -> Event:
    """The event without what its typed detail has said already."""
    if event.detail is not None and not isinstance(event.detail, Generic):
        body = ""
    else:
        body = event.body[:BODY_LIMIT]
    if body == event.body:
        return event
    return Event(
        event.number,
        event.cluster,
        event.proc,
        event.subproc,
        event.time,
        event.text,
        body,
        event.detail,
        event.line,
        event.damaged,
    )


NodeKey: TypeAlias = tuple[str, str]


@frozen
class PostResult:
    """016: how the POST script ended, and for which submission (None: its submit failed)."""

    time: datetime
    cluster: int | None
    ok: bool


@dataclass(slots=True)
class NodeRecord:
    """A node of one DAG and what the logs say of it. Identity is (DAG, node name)."""

    key: NodeKey
    node: Node
    jobs: list[Job] = field(default_factory=list)
    posts: list[PostResult] = field(default_factory=list)
    skips: list[datetime] = field(default_factory=list)
