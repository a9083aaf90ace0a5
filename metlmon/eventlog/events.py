"""Event records: what one event of an HTCondor job event log says, typed.

Source followed: HTCondor manual, "Managing a Job > Job Event Log Codes", and
``condor_event.cpp`` of the public HTCondor source.  No record changes: an event is
what the log said once.  Those that a log has most of are tuples, made in a fifth of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

from metlmon.frozen import frozen

EVENT_NAMES: Final[dict[int, str]] = {
    0: "SUBMIT",
    1: "EXECUTE",
    2: "EXECUTABLE_ERROR",
    3: "CHECKPOINTED",
    4: "JOB_EVICTED",
    5: "JOB_TERMINATED",
    6: "IMAGE_SIZE",
    7: "SHADOW_EXCEPTION",
    8: "GENERIC",
    9: "JOB_ABORTED",
    10: "JOB_SUSPENDED",
    11: "JOB_UNSUSPENDED",
    12: "JOB_HELD",
    13: "JOB_RELEASED",
    14: "NODE_EXECUTE",
    15: "NODE_TERMINATED",
    16: "POST_SCRIPT_TERMINATED",
    17: "GLOBUS_SUBMIT",
    18: "GLOBUS_SUBMIT_FAILED",
    19: "GLOBUS_RESOURCE_UP",
    20: "GLOBUS_RESOURCE_DOWN",
    21: "REMOTE_ERROR",
    22: "JOB_DISCONNECTED",
    23: "JOB_RECONNECTED",
    24: "JOB_RECONNECT_FAILED",
    25: "GRID_RESOURCE_UP",
    26: "GRID_RESOURCE_DOWN",
    27: "GRID_SUBMIT",
    28: "JOB_AD_INFORMATION",
    29: "JOB_STATUS_UNKNOWN",
    30: "JOB_STATUS_KNOWN",
    31: "JOB_STAGE_IN",
    32: "JOB_STAGE_OUT",
    33: "ATTRIBUTE_UPDATE",
    34: "PRESKIP",
    35: "CLUSTER_SUBMIT",
    36: "CLUSTER_REMOVE",
    37: "FACTORY_PAUSED",
    38: "FACTORY_RESUMED",
    39: "NONE",
    40: "FILE_TRANSFER",
    41: "RESERVE_SPACE",
    42: "RELEASE_SPACE",
    43: "FILE_COMPLETE",
    44: "FILE_USED",
    45: "FILE_REMOVED",
    46: "DATAFLOW_JOB_SKIPPED",
    47: "COMMON_FILES",
}


@frozen
class UsageRow:
    """One row of the "Partitionable Resources" table. A blank cell is None.

    ``name`` is the resource without its unit ("Memory"), ``unit`` what stood in
    brackets ("MB", "KB", "s", "Average") or "".
    """

    name: str
    unit: str
    usage: float | None
    request: float | None
    allocated: float | None
    assigned: str | None


class Submit(NamedTuple):
    """000. ``node`` is the DAG node's name, structured note before ``DAG Node:`` line."""

    host: str
    node: str | None
    batch_name: str | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


class Execute(NamedTuple):
    """001. ``gpus`` is ``GPUs = N`` of this event: None when the event has no such line.

    ``gpu`` is the DeviceName; several different ones are joined by " + ", sorted.
    ``has_properties`` is False for old logs, whose 001 has no ClassAd lines at all.
    ``host`` is the sinful string; ``alias`` its ``alias=`` parameter;
    ``slot`` the SlotName; ``site`` GLIDEIN_ResourceName.
    """

    host: str
    alias: str | None
    slot: str | None
    site: str | None
    gpus: int | None
    gpu: str | None
    gpu_memory_mb: int | None
    cpus: int | None
    memory_mb: int | None
    has_properties: bool


class Evicted(NamedTuple):
    """004. ``requeued``: it terminated and was put back in the queue (not terminal)."""

    code: int | None
    subcode: int | None
    reason: str | None
    requeued: bool
    checkpointed: bool
    return_value: int | None
    signal: int | None
    bytes_sent: int | None
    bytes_received: int | None
    usage: Sequence[UsageRow]


class Terminated(NamedTuple):
    """005 and 015. Bytes: ``run_*`` this run, ``total_*`` all runs of the job.

    ``ended_utc`` is the "Job terminated of its own accord at …Z" time, if it is there
    (aware, UTC): with the event's own local stamp it tells the access point's offset.
    """

    normal: bool | None
    return_value: int | None
    signal: int | None
    core_file: str | None
    run_bytes_sent: int | None
    run_bytes_received: int | None
    total_bytes_sent: int | None
    total_bytes_received: int | None
    ended_utc: datetime | None
    usage: Sequence[UsageRow]


@frozen
class ImageSize:
    """006. Sizes as logged: image and RSS in KB, memory in MB."""

    image_kb: int | None
    memory_mb: int | None
    rss_kb: int | None


@frozen
class ShadowException:
    """007."""

    reason: str
    bytes_sent: int | None
    bytes_received: int | None


@frozen
class Generic:
    """008: free text; a job may publish a line with ``condor_chirp ulog``."""

    text: str


@frozen
class Aborted:
    """009."""

    reason: str | None


@frozen
class Held:
    """012. ``inferred``: it is in no log, and follows from a later event."""

    reason: str | None
    code: int | None
    subcode: int | None
    inferred: bool = False


@frozen
class Released:
    """013."""

    reason: str | None


@frozen
class PostScript:
    """016: the POST script's result, and the node it belongs to."""

    node: str | None
    normal: bool | None
    return_value: int | None
    signal: int | None


@frozen
class RemoteError:
    """021. ``warning`` for "Message from", else an error; ``source`` e.g. "starter on slot…"."""

    warning: bool
    source: str
    message: str
    code: int | None
    subcode: int | None


@frozen
class ConnectionEvent:
    """022, 023, 024: disconnected, reconnected, reconnect failed."""

    reason: str | None
    host: str | None


@frozen
class PreSkip:
    """034: the PRE script's exit code ended the node without a job."""

    node: str | None


@frozen
class ClusterSubmit:
    """035: a factory cluster was submitted."""

    host: str
    node: str | None


@frozen
class ClusterRemove:
    """036. ``complete`` when the factory had materialised all its jobs."""

    complete: bool | None
    reason: str | None


class Transfer(Enum):
    """The six texts of 040."""

    INPUT_QUEUED = "input-queued"
    INPUT_STARTED = "input-started"
    INPUT_FINISHED = "input-finished"
    OUTPUT_QUEUED = "output-queued"
    OUTPUT_STARTED = "output-started"
    OUTPUT_FINISHED = "output-finished"


@frozen
class FileTransfer:
    """040. ``kind`` None for a text that no known HTCondor writes."""

    kind: Transfer | None
    queue_seconds: int | None
    host: str | None


Detail = (
    Submit
    | Execute
    | Evicted
    | Terminated
    | ImageSize
    | ShadowException
    | Generic
    | Aborted
    | Held
    | Released
    | PostScript
    | RemoteError
    | ConnectionEvent
    | PreSkip
    | ClusterSubmit
    | ClusterRemove
    | FileTransfer
)


class Event(NamedTuple):
    """One event: a tuple, as one is made for every event, in a tenth of the time.

    ``time`` is naive (the access point's local time) unless the log says UTC (then
    aware). ``text`` is the rest of the header line behind the date; for XML and JSON
    logs it is what the text form would have said, so that one event in two logs is
    recognised whatever their forms. ``body`` are the lines below the header, raw,
    joined by newlines, without the separator. ``line`` is the 1-based line of the
    header in its file. ``damaged`` when the event was cut before its separator: what
    could be read of it stands here, and a warning says where.
    """

    number: int
    cluster: int
    proc: int
    subproc: int
    time: datetime
    text: str
    body: str
    detail: Detail | None
    line: int
    damaged: bool = False

    @property
    def name(self) -> str:
        """HTCondor's name of the event type without ULOG_, or ``EVENT_NNN``."""
        return EVENT_NAMES.get(self.number, f"EVENT_{self.number:03d}")


class ImageSizes(NamedTuple):
    """What the 006 events of one job, met in one piece of a log, come to: nine in ten events of
    a training's log are 006, and only this is kept of them.

    ``updates``: how many there were. ``first`` and ``last``: the earliest and the latest of
    their times. ``memory_mb``: the largest MemoryUsage, None where none says one.
    """

    cluster: int
    proc: int
    subproc: int
    updates: int
    first: datetime
    last: datetime
    memory_mb: int | None


@frozen
class LogWarning:
    """Something in a log that is not as it should be; nothing is silently lost.

    ``kind`` is one of: glued-header, unterminated-event, garbage, nul-bytes, bad-utf8,
    bad-header.
    """

    kind: str
    line: int
    text: str


class LogFormat(Enum):
    """The forms an administrator can choose for event logs."""

    TEXT = "text"
    XML = "xml"
    JSON = "json"


@frozen
class Position:
    """Where a reader stands in one log: all that parsing the next bytes needs.

    ``offset`` in bytes and ``line`` (1-based, of the byte at ``offset``) lie behind the
    last complete event. ``form`` is None until the first bytes told. ``year`` and
    ``last`` carry the year through yearless stamps.
    """

    offset: int = 0
    line: int = 1
    form: LogFormat | None = None
    year: int | None = None
    last: datetime | None = None


@frozen
class Parsed:
    """What one call of :func:`metlmon.eventlog.parse` found: ``after.offset`` minus the
    offset it started from bytes were consumed; the rest is to be passed again."""

    events: tuple[Event, ...]
    warnings: tuple[LogWarning, ...]
    after: Position


@frozen
class FastResult:
    """What one call of :func:`metlmon.eventlog.parse_fast` found: :class:`Parsed` with the 006
    events
    added up. ``first`` is the time of the first event in the log's order, 006 among them (the
    time of the last one is ``after.last``); 006 that are damaged, or not as HTCondor usually
    writes them, stand among ``events``."""

    events: tuple[Event, ...]
    images: tuple[ImageSizes, ...]
    warnings: tuple[LogWarning, ...]
    after: Position
    first: datetime | None = None
