"""Typed, immutable records of the events in an HTCondor job event log.

Source followed: HTCondor manual, "Managing a Job > Job Event Log Codes", and
``condor_event.cpp`` of the public HTCondor source; ``UsageLineParser`` there for usage tables.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.redact import redact_secrets
from metlmon.text.visible import visible


class UsageRow(Struct, frozen=True):
    """One row of the "Partitionable Resources" table. A blank cell is None.

    ``name`` is the resource without its unit ("Memory"), ``unit`` the text in
    parentheses ("MB", "KB", "s", "Average") or "".
    """

    name: str
    unit: str
    usage: float | None
    request: float | None
    allocated: float | None
    assigned: str | None


Usage = str | tuple[UsageRow, ...]
"""A usage table: as logged, beginning with its title line, or its rows. Most are never read:
:func:`usage_rows` parses one."""


class Submit(Struct, frozen=True):
    """000. ``node`` is the DAG node's name; a structured note wins over ``DAG Node:``.

    ``run_uuid``, ``run_name``, ``run_epoch`` (from 1): RunUuid, RunName and RunEpoch of the
    structured note, which ``submit_event_notes_attrs`` asks for (HTCondor 25.11 and later).
    """

    host: str
    node: str | None
    batch_name: str | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    run_uuid: str | None = None
    run_name: str | None = None
    run_epoch: int | None = None


class GpuDevice(Struct, frozen=True, gc=False):
    """What a 001 says of the first GPU: compute capability, CUDA version of its driver, clock."""

    capability: float | None = None
    driver: float | None = None
    clock_mhz: float | None = None


class Execute(Struct, frozen=True, cache_hash=True):
    """001. ``gpus`` is ``GPUs = N`` of this event, None without such a line.

    ``gpu`` is the DeviceName; several different names are sorted and joined by " + ".
    ``has_properties`` is False for old logs, whose 001 has no ClassAd lines at all.
    ``host`` is the sinful string; ``alias`` its ``alias=`` parameter;
    ``slot`` the SlotName; ``site`` GLIDEIN_ResourceName or an attribute like it;
    ``annex`` AnnexName.
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
    annex: str | None = None
    device: GpuDevice | None = None


class Evicted(Struct, frozen=True):
    """004. ``requeued``: the job terminated and was requeued (not terminal).

    ``cpu_seconds``: user and system time of this execution ("Run Remote Usage").
    """

    code: int | None
    subcode: int | None
    reason: str | None
    requeued: bool
    checkpointed: bool
    return_value: int | None
    signal: int | None
    bytes_sent: int | None
    bytes_received: int | None
    usage: Usage
    cpu_seconds: int | None = None


class Terminated(Struct, frozen=True):
    """005 and 015. Bytes: ``run_*`` this run, ``total_*`` all runs of the job.

    ``cpu_seconds``: as of :class:`Evicted`.

    ``ended_utc`` is the "Job terminated of its own accord at …Z" time, if present
    (aware, UTC): with the event's local time it gives the access point's UTC offset.
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
    usage: Usage
    cpu_seconds: int | None = None


class ImageSize(Struct, frozen=True):
    """006. Sizes as logged: image and RSS in KB, memory in MB."""

    image_kb: int | None
    memory_mb: int | None
    rss_kb: int | None


class ShadowException(Struct, frozen=True):
    """007."""

    reason: str
    bytes_sent: int | None
    bytes_received: int | None


class Generic(Struct, frozen=True):
    """008: free text; a job can write a line with ``condor_chirp ulog``."""

    text: str


class Aborted(Struct, frozen=True):
    """009."""

    reason: str | None


class Held(Struct, frozen=True, cache_hash=True):
    """012. ``inferred``: not in any log but implied by a later event."""

    reason: str | None
    code: int | None
    subcode: int | None
    inferred: bool = False


class Released(Struct, frozen=True, cache_hash=True):
    """013."""

    reason: str | None


class PostScript(Struct, frozen=True):
    """016: the POST script's result, and the node it belongs to."""

    node: str | None
    normal: bool | None
    return_value: int | None
    signal: int | None


class RemoteError(Struct, frozen=True):
    """021. ``warning``: "Message from", else an error; ``source``: "starter on slot…"."""

    warning: bool
    source: str
    message: str
    code: int | None
    subcode: int | None


class ConnectionEvent(Struct, frozen=True):
    """022, 023, 024: disconnected, reconnected, reconnect failed."""

    reason: str | None
    host: str | None


class PreSkip(Struct, frozen=True):
    """034: the PRE script's exit code ended the node without a job."""

    node: str | None


class ClusterSubmit(Struct, frozen=True):
    """035: a factory cluster was submitted."""

    host: str
    node: str | None


class ClusterRemove(Struct, frozen=True):
    """036. ``complete``: the factory had materialized all its jobs."""

    complete: bool | None
    reason: str | None


class Transfer(Enum):
    """The six phases of a file transfer that 040 reports."""

    INPUT_QUEUED = "input-queued"
    INPUT_STARTED = "input-started"
    INPUT_FINISHED = "input-finished"
    OUTPUT_QUEUED = "output-queued"
    OUTPUT_STARTED = "output-started"
    OUTPUT_FINISHED = "output-finished"


class FileTransfer(Struct, frozen=True, cache_hash=True):
    """040. ``kind`` is None for a text that no known HTCondor writes."""

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


class Event(Struct, frozen=True, gc=False):
    """One event.

    ``time`` is naive (the access point's local time) unless the log writes UTC (then
    aware). ``text`` is the rest of the header line after the date; for XML and JSON
    logs it is the equivalent in the text form, so that the same event is recognized
    in two logs of different forms. ``body`` contains the raw lines below the header,
    joined by newlines, without the separator; in XML and JSON logs it is empty for types with
    a detail. ``line`` is the 1-based line of the header in its file. ``damaged``: the event was
    cut off before its separator; it contains what could be read, and a warning gives the line.
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
    def ids(self) -> tuple[int, int, int]:
        """Cluster, proc and subproc."""
        return self.cluster, self.proc, self.subproc


class ImageSizes(Struct, frozen=True):
    """The sum of one job's 006 events in one piece of a log.

    Nine in ten events of a training's log are 006; only this sum is stored of them.
    ``updates``: their number. ``first`` and ``last``: the earliest and the latest of their
    times. ``memory_mb``: the largest MemoryUsage, None when none reports one.
    """

    cluster: int
    proc: int
    subproc: int
    updates: int
    first: datetime
    last: datetime
    memory_mb: int | None


class LogWarning(Struct, frozen=True):
    """A problem in a log; no data is lost silently.

    ``kind`` is one of: glued-header, unterminated-event, garbage, nul-bytes, bad-utf8,
    bad-header.
    """

    kind: str
    line: int
    text: str


class LogFormat(Enum):
    """The forms of event logs that HTCondor can be configured to write."""

    TEXT = "text"
    XML = "xml"
    JSON = "json"


class Position(Struct, frozen=True):
    """A reader's position in one log: all that is needed to parse the next bytes.

    ``offset`` in bytes and ``line`` (1-based, of the byte at ``offset``) follow the
    last complete event. ``form`` is None until detected from the first bytes. ``year``
    and ``last`` carry the year through yearless timestamps.
    """

    offset: int = 0
    line: int = 1
    form: LogFormat | None = None
    year: int | None = None
    last: datetime | None = None


class Parsed(Struct, frozen=True):
    """The result of one call of :func:`metlmon.eventlog.reader.parse` or ``parse_fast``.

    ``after.offset`` minus the initial offset is the number of bytes consumed; the rest
    must be passed again. ``parse_fast`` alone sums up 006 events in ``images``, except those that
    are damaged or not in HTCondor's usual form. ``first``: the time of the first event in log
    order, 006 included (that of the last one is ``after.last``); ``parse_fast`` alone sets it.
    """

    events: tuple[Event, ...]
    warnings: tuple[LogWarning, ...]
    after: Position
    images: tuple[ImageSizes, ...] = ()
    first: datetime | None = None


# --- the table "Partitionable Resources" of events 004, 005 and 015 --------------------------

USAGE_TITLE: Final = "Partitionable Resources"
_USAGE_TABLE: Final = re.compile(
    rf"^[^\S\n]*+{USAGE_TITLE}.*(?:\n[^\S\n]*+(?=[^:=\n])[^:=\n]*+:.*)+", re.MULTILINE
)
"""The title line, and lines with a label before a colon."""
_WORD: Final = re.compile(r"\S+")


def find_usage_table(body: str) -> Usage:
    """The table in an event's body; () without one."""
    match = _USAGE_TABLE.search(body)
    return match[0] if match else ()


def usage_rows(usage: Usage) -> tuple[UsageRow, ...]:
    """The rows of a table, visible and without secrets; rows are not cached.

    A cell lies between the right edges of the title line's words, counted from the colon. Cells
    may be blank, so white space does not determine the column of a number.
    """
    if not isinstance(usage, str):
        return tuple(
            replace(row, name=_redact(row.name), assigned=row.assigned and _redact(row.assigned))
            for row in usage
        )
    title, *lines = usage.split("\n")
    columns = dict(_columns(title))
    return tuple(_parse_row(line, columns) for line in lines)


@lru_cache(maxsize=1000)
def _columns(title: str) -> tuple[tuple[str, slice], ...]:
    """The cells of each column, counted from the colon."""
    columns: list[tuple[str, slice]] = []
    edge = 0
    for word in _WORD.finditer(title.partition(":")[2]):
        if word[0] == "Assigned":
            columns.append((word[0], slice(edge, None)))
            break
        columns.append((word[0], slice(edge, word.end())))
        edge = word.end()
    return tuple(columns)


class ResourceUsage(Struct, frozen=True, gc=False):
    """What an execution used of each resource, and what its job requested and was allocated.

    None where the table has no number. ``cpus``: cores in use, CPU time by the time of the
    execution; the row "Cpus", which has the last sample (``Claim::updateUsage``), only where an
    event has no CPU time. ``memory_mb``: peak of the job so far; ``disk_kb``, ``gpu_memory_mb``
    (of the fullest device): of the execution. ``gpus``: GPUs in use on average; None where the
    machine has no monitor, 0 if it measured none. See HTCondor's ``setEventUsageAd``.
    """

    cpus: float | None = None
    cpus_requested: float | None = None
    cpus_allocated: float | None = None
    memory_mb: float | None = None
    memory_mb_requested: float | None = None
    memory_mb_allocated: float | None = None
    disk_kb: float | None = None
    disk_kb_requested: float | None = None
    disk_kb_allocated: float | None = None
    gpus: float | None = None
    gpus_requested: float | None = None
    gpus_allocated: float | None = None
    gpu_memory_mb: float | None = None


_FIELDS: Final = {"Usage": "", "Request": "_requested", "Allocated": "_allocated"}
_LABELS: Final = {
    # As in text logs and, without a unit, as in the ads of XML and JSON logs.
    "cpus": "cpus",
    "disk (kb)": "disk_kb",
    "gpus": "gpus",
    "gpus (average)": "average",
    "gpusaverage": "average",
    "gpusmemory": "gpu_memory_mb",
    "gpusmemory (mb)": "gpu_memory_mb",
    "memory (mb)": "memory_mb",
    "timeexecute (s)": "seconds",
}


CLOCK_CHANGE: Final = 3600
"""By how many seconds the time between two events may be too short: the clock was set back."""


def resource_usage(
    usage: Usage, cpu_seconds: int | None = None, elapsed: float = 0.0
) -> ResourceUsage | None:
    """The figures of a table; None without one. Those that no machine has are not known.

    ``cpu_seconds``: the execution's, from the same event; ``elapsed``: its seconds by the log. The
    row "TimeExecute" is without the transfer of output. It may be that of an earlier execution, up
    to a checkpoint, or since 1970, if another shadow saw the start
    (``RemoteResource::recordActivationExitExecutionTime``); and older versions have none.
    """
    figures: dict[str, float | None] = {}
    if isinstance(usage, str):
        title, *lines = usage.split("\n")
        columns = [(_FIELDS[name], part) for name, part in _columns(title) if name in _FIELDS]
        for text in lines:
            label, _, cells = text.partition(":")
            name = _LABELS.get(label.strip().lower())
            if name is not None:
                figures |= {f"{name}{end}": _known(cells[part].strip()) for end, part in columns}
    else:
        for row in usage:
            name = _LABELS.get(f"{row.name} ({row.unit})".removesuffix(" ()").lower())
            if name is not None:
                amounts = zip(
                    _FIELDS.values(), (row.usage, row.request, row.allocated), strict=True
                )
                figures |= {f"{name}{end}": _known(str(amount)) for end, amount in amounts}
    if not figures:
        return None
    average = figures.get("average")
    if average is not None:
        # Where a machine reports both, that of the row "GPUs" is the peak.
        figures["gpus"] = average
    seconds = figures.get("seconds")
    if seconds is None or not elapsed / 2 <= seconds <= elapsed + CLOCK_CHANGE:
        seconds = elapsed
    if cpu_seconds and seconds > 0:
        figures["cpus"] = cpu_seconds / seconds
    return ResourceUsage(**{name: figures.get(name) for name in ResourceUsage.__struct_fields__})


def least_amount(amount: float, kilobytes: int = 1024) -> float:
    """The least that a logged peak, in units of so many KB, may stand for.

    A schedd may have rounded it up (``SCHEDD_ROUND_ATTR_ResidentSetSize = 25%``): between 50 and
    500 million KB to the next 25 million, between 5 and 50 million to the next 2.5 million, and so
    on (``SetAttribute`` in ``qmgmt.cpp``).
    """
    most, least = amount * kilobytes, (amount - 1) * kilobytes
    step, below = (10.0 ** int(math.log10(max(kb, 1) / 5) + 1) / 4 for kb in (most, least))
    rounded = most // step * step
    return (rounded - below) / kilobytes if 0 < least < rounded else amount


@lru_cache(maxsize=10_000)
def _known(cell: str) -> float | None:
    """The number in a cell; cached, as requests are the same in most tables."""
    value = _parse_number(cell)
    return value if value is not None and 0 <= value <= 1e15 else None


def _parse_row(line: str, columns: dict[str, slice]) -> UsageRow:
    label, _, cells = line.partition(":")
    values = {column: cells[part].strip() for column, part in columns.items()}
    name, unit = _split_label(_redact(label.strip()))
    return UsageRow(
        name=name,
        unit=unit,
        usage=_parse_number(values.get("Usage", "")),
        request=_parse_number(values.get("Request", "")),
        allocated=_parse_number(values.get("Allocated", "")),
        assigned=_redact(values.get("Assigned", "").strip('"')) or None,
    )


@lru_cache(maxsize=1000)
def _redact(text: str) -> str:
    """A label or devices: the same in most tables of a pool."""
    return visible(redact_secrets(text))


def _parse_number(cell: str) -> float | None:
    try:
        return float(cell) if cell else None
    except ValueError:
        return None


def _split_label(label: str) -> tuple[str, str]:
    """Split a label into the resource and the unit in parentheses after it.

    Not by a pattern: a hostile label may be long and consist of parentheses or blanks.
    """
    if label.endswith(")"):
        inner = label[:-1]
        opening = inner.find("(", inner.rfind(")") + 1)
        if opening >= 0:
            return label[:opening].rstrip(), inner[opening + 1 :]
    return label, ""
