"""The input and output of the state model: batches and notices."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum

from msgspec import Struct, field

from metlmon.eventlog.events import Event, ImageSizes


class LogRole(Enum):
    """Kind of a log: user job event log, nodes.log of a DAGMan, DAGMan's own job log."""

    USER = 0
    NODES = 1
    DAGMAN = 2


class Batch(Struct, frozen=True):
    """Events of one log, in its order.

    ``dag``: key of the DAG that a nodes.log or dagman.log belongs to, even if its DAG file is
    missing. ``images``: totals of the 006 in this part of the log that are not in
    ``events``; ``first`` and ``last`` are then the times of the part's first and last event
    in the log's order, including 006. The totals must not include any 006 after the ensemble's
    ``cut``, and ignore repeated hours: pass 006 in ``events`` if its clock has a zone.
    """

    file: str
    role: LogRole
    events: Sequence[Event]
    dag: str | None = None
    images: Sequence[ImageSizes] = ()
    first: datetime | None = None
    last: datetime | None = None


class LogStats(Struct):
    """Statistics of one log: size in bytes, complete events, first and last time.

    ``previous``: time of the event read last. ``notices``: number of notices by kind.
    """

    file: str
    role: LogRole
    bytes: int = 0
    events: int = 0
    first: datetime | None = None
    last: datetime | None = None
    previous: datetime | None = None
    notices: dict[str, int] = field(default_factory=dict)


class Notice(Struct, frozen=True):
    """A warning about the input, never about the jobs.

    ``count``: the number of warnings of this kind that it stands for; it describes the first.
    """

    kind: str
    file: str | None
    line: int | None
    text: str
    count: int = 1
