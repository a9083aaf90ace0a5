"""The events of an HTCondor job event log: their records, and their types in one table.

Each type has a name, a first line, and readers of its detail, from text and from a ClassAd.
Source followed: HTCondor manual, "Managing a Job > Job Event Log Codes"; the ``formatBody`` and
``readEvent`` pairs of ``condor_event.cpp`` of the public HTCondor source, which are lenient: a
missing line (old logs, damaged events) leaves its field None; ``initFromClassAd`` and
``toClassAd`` there for logs of ClassAds; ``UsageLineParser`` there for usage tables. ClassAd
literals are as in "ClassAd Mechanism > Literals" of the manual; an expression is read as None.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from functools import lru_cache
from operator import mul
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from metlmon.eventlog import header
from metlmon.redact import harmless, is_secret_name, redact_secrets, visible


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


class Detail(Struct, frozen=True):
    """The parsed contents of an event; one subclass per kind of contents."""


class Submit(Detail, frozen=True):
    """000. ``node`` is the DAG node's name; a structured note wins over ``DAG Node:``.

    ``run_uuid``, ``run_name``, ``run_epoch`` (from 1): RunUuid, RunName and RunEpoch of the
    structured note, which ``submit_event_notes_attrs`` asks for (HTCondor 25.11 and later).
    """

    host: str
    node: str | None
    batch_name: str | None
    notes: tuple[str, ...]
    run_uuid: str | None = None
    run_name: str | None = None
    run_epoch: int | None = None


class GpuDevice(Struct, frozen=True, gc=False):
    """The first GPU in a 001: compute capability, CUDA version of its driver, clock in MHz."""

    capability: float | None = None
    driver: float | None = None
    clock_mhz: float | None = None


class Execute(Detail, frozen=True, cache_hash=True):
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


class Evicted(Detail, frozen=True):
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


class Terminated(Detail, frozen=True):
    """005 and 015. Bytes: ``run_*`` this run, ``total_*`` all runs of the job.

    ``cpu_seconds``: as in :class:`Evicted`.

    ``ended_utc`` is the "Job terminated of its own accord at …Z" time, if present
    (aware, UTC): with the event's local time it gives the access point's UTC offset.
    """

    normal: bool | None
    return_value: int | None
    signal: int | None
    run_bytes_sent: int | None
    run_bytes_received: int | None
    total_bytes_sent: int | None
    total_bytes_received: int | None
    ended_utc: datetime | None
    usage: Usage
    cpu_seconds: int | None = None


class ImageSize(Detail, frozen=True):
    """006. Memory in MB, as logged."""

    memory_mb: int | None


class ShadowException(Detail, frozen=True):
    """007."""

    reason: str
    bytes_sent: int | None
    bytes_received: int | None


class Generic(Detail, frozen=True):
    """008: free text; a job can write a line with ``condor_chirp ulog``."""

    text: str


class Aborted(Detail, frozen=True):
    """009."""

    reason: str | None


class Held(Detail, frozen=True, cache_hash=True):
    """012. ``inferred``: not in any log but implied by a later event."""

    reason: str | None
    code: int | None
    subcode: int | None
    inferred: bool = False


class Released(Detail, frozen=True, cache_hash=True):
    """013."""

    reason: str | None


class PostScript(Detail, frozen=True):
    """016: the POST script's result, and the node it belongs to."""

    node: str | None
    normal: bool | None
    return_value: int | None
    signal: int | None


class RemoteError(Detail, frozen=True):
    """021. ``warning``: "Message from", else an error."""

    warning: bool
    message: str
    code: int | None


class ConnectionEvent(Detail, frozen=True):
    """022, 023, 024: disconnected, reconnected, reconnect failed."""

    reason: str | None
    host: str | None


class PreSkip(Detail, frozen=True):
    """034: the PRE script's exit code ended the node without a job."""

    node: str | None


class ClusterSubmit(Detail, frozen=True):
    """035: a factory cluster was submitted."""

    host: str
    node: str | None


class ClusterRemove(Detail, frozen=True):
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


class FileTransfer(Detail, frozen=True, cache_hash=True):
    """040. ``kind`` is None for a text that no known HTCondor writes."""

    kind: Transfer | None
    queue_seconds: int | None
    host: str | None


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

    Nine in ten events of a training's log are 006; only their sum is stored.
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
    rf"\n([^\S\n]*+{USAGE_TITLE}.*(?:\n[^\S\n]*+(?=[^:=\n])[^:=\n]*+:.*)+)"
)
"""The title line, and lines with a label before a colon."""
_WORD: Final = re.compile(r"\S+")


def find_usage_table(body: str) -> Usage:
    """The table in an event's body; () without one."""
    match = _USAGE_TABLE.search(body)
    return match[1] if match else ()


def usage_rows(usage: Usage) -> tuple[UsageRow, ...]:
    """The rows of a table, visible and without secrets; rows are not cached.

    A cell lies between the right edges of the title line's words, counted from the colon. Cells
    may be blank, so white space does not determine the column of a number. A number across an edge
    belongs to the cell in which it begins: rows that were edited or copied may be shifted.
    """
    if not isinstance(usage, str):
        return tuple(
            replace(
                row,
                name=_redact_label(row.name),
                assigned=row.assigned and _redact_label(row.assigned),
            )
            for row in usage
        )
    title, *lines = usage.split("\n")
    columns = _columns(title)
    return tuple(_parse_row(line, columns) for line in lines)


@lru_cache(maxsize=1000)
def _columns(title: str) -> tuple[tuple[str, int], ...]:
    """The columns with their right edges, counted from the colon; "Assigned" has none."""
    columns: list[tuple[str, int]] = []
    for word in _WORD.finditer(title.partition(":")[2]):
        if word[0] == "Assigned":
            columns.append((word[0], sys.maxsize))
            break
        columns.append((word[0], word.end()))
    return tuple(columns)


def _cells(row: str, columns: tuple[tuple[str, int], ...]) -> Iterator[tuple[str, str]]:
    """The name of each column with its cell; ``row``: the text after the colon."""
    start = 0
    for name, edge in columns:
        end = row.find(" ", max(start, edge))
        cell = row[start:] if end < 0 else row[start:end]
        yield name, cell.strip()
        start += len(cell)


class ResourceUsage(Struct, frozen=True, gc=False):
    """What an execution used of each resource, and what its job requested and was allocated.

    None if the table has no number. ``cpus``: cores in use, CPU time divided by the time of the
    execution; the row "Cpus", which has the last sample (``Claim::updateUsage``), only if an event
    has no CPU time. ``memory_mb``: peak of the job so far; ``disk_kb``, ``gpu_memory_mb`` (of the
    fullest device): peaks of the execution. ``gpus``: GPUs in use on average; None if the machine
    has no monitor, 0 if it measured none. See HTCondor's ``setEventUsageAd``.
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
    """The figures of a table; None without one. Implausible figures are None, too.

    ``cpu_seconds``: the execution's, from the same event; ``elapsed``: its seconds by the log. The
    row "TimeExecute" excludes the transfer of output. It may be that of an earlier execution, up
    to a checkpoint, or count from 1970 if another shadow saw the start
    (``RemoteResource::recordActivationExitExecutionTime``); older versions have none.
    """
    figures: dict[str, float | None] = {}
    if isinstance(usage, str):
        title, *lines = usage.split("\n")
        columns = _columns(title)
        for text in lines:
            label, _, cells = text.partition(":")
            name = _LABELS.get(label.strip().lower())
            if name is not None:
                for column, cell in _cells(cells, columns):
                    if column in _FIELDS:
                        figures[name + _FIELDS[column]] = _known(cell)
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
        # Where a machine reports both, the row "GPUs" has the peak.
        figures["gpus"] = average
    for end in ("_requested", "_allocated"):
        # If it is the only row of GPUs, it has these, too.
        if figures.get(f"gpus{end}") is None:
            figures[f"gpus{end}"] = figures.get(f"average{end}")
    seconds = figures.get("seconds")
    if seconds is None or not elapsed / 2 <= seconds <= elapsed + CLOCK_CHANGE:
        seconds = elapsed
    if cpu_seconds and seconds > 0:
        figures["cpus"] = cpu_seconds / seconds
    return ResourceUsage(*map(figures.get, ResourceUsage.__struct_fields__))


def least_amount(amount: float, kilobytes: int = 1024) -> float:
    """The least actual value of a logged peak, in units of ``kilobytes`` KB.

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


def _parse_row(line: str, columns: tuple[tuple[str, int], ...]) -> UsageRow:
    label, _, row = line.partition(":")
    values = dict(_cells(row, columns))
    name, unit = _split_label(_redact_label(label.strip()))
    return UsageRow(
        name=name,
        unit=unit,
        usage=_parse_number(values.get("Usage", "")),
        request=_parse_number(values.get("Request", "")),
        allocated=_parse_number(values.get("Allocated", "")),
        assigned=_redact_label(values.get("Assigned", "").strip('"')) or None,
    )


_redact_label: Final = lru_cache(maxsize=1000)(harmless)
"""Redacts a label or device names; cached, since most tables of a pool share them."""


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


# --- how details are read -----------------------------------------------------------------------


def _line(pattern: str) -> re.Pattern[str]:
    """The pattern of a line's start, after the newline before it and its indentation.

    ``re`` searches for a literal ten times as fast as for ``^``.
    """
    return re.compile(rf"\n[^\S\n]*+(?:{pattern})", re.MULTILINE)


_INTEGER: Final = r"-?[0-9]{1,18}"
_STRUCTURED_LINE: Final = rf"\([01]\) |Usr \d|-?\d+  ?-  ?\D|{USAGE_TITLE}|Job terminated .* at "

_CODE: Final = _line(rf"Code ({_INTEGER}) Subcode ({_INTEGER})[^\S\n]*$")
_CODE_IN_TEXT: Final = re.compile(rf"\bCode ({_INTEGER}) Subcode ({_INTEGER})")
_COUNT: Final = _line(r"(-?[0-9]{1,30})  ?-  ?(.*\S)")
_TERMINATION: Final = _line(
    rf"\(1\) Normal termination \(return value ({_INTEGER})\)"
    rf"|\(0\) Abnormal termination \(signal ({_INTEGER})\)"
)
_FLAG: Final = _line(r"\(([01])\) (.*\S)")
_TERMINATED_AT: Final = _line(r"Job terminated .*\bat ([-0-9]{10}T[0-9:.]{8,16}Z)\b")
_STRUCTURED: Final = _line(_STRUCTURED_LINE)
_UNSTRUCTURED: Final = re.compile(
    rf"^(?![^\S\n]*+(?:{_STRUCTURED_LINE}))[^\S\n]*+(?:Reason:)?(?=.*\S)", re.MULTILINE
)
_REASON: Final = _line("Reason:")
_DAG_NODE: Final = _line(r"DAG Node: (\S+)")
_RECONNECTION: Final = _line(r"(?:Trying to|Can not) reconnect to(.*)")
_MATERIALIZED: Final = _line(r"Materialized -?[0-9]+ jobs from -?[0-9]+ items\.[^\S\n]*(\w*).*")
_QUEUED: Final = _line(rf"Seconds spent in queue:[^\S\n]*({_INTEGER})[^\S\n]*$")
_HOST: Final = _line(r"Transferring to host:(.*)")
TRANSFERS: Final[Mapping[str, Transfer]] = {
    "Entered queue to transfer input files": Transfer.INPUT_QUEUED,
    "Started transferring input files": Transfer.INPUT_STARTED,
    "Finished transferring input files": Transfer.INPUT_FINISHED,
    "Entered queue to transfer output files": Transfer.OUTPUT_QUEUED,
    "Started transferring output files": Transfer.OUTPUT_STARTED,
    "Finished transferring output files": Transfer.OUTPUT_FINISHED,
}
"""The first texts of 040, in the order of HTCondor's own numbers from 1."""

# --- ClassAd literals -----------------------------------------------------------------------

_ATTRIBUTE: Final = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(\S.*)")
_WHOLE_INTEGER: Final = re.compile(_INTEGER)
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PAIR: Final = re.compile(
    rf'\b([A-Za-z_]\w*)\s*=\s*(?:"((?:[^"\\]|\\.)*)("|\\?\Z)|({_INTEGER}(?:\.\d{{1,12}})?)\s*[;\]])'
)
"""Matches an unclosed string too: else each quotation mark in it would be tried as a start."""
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final[Mapping[str, str]] = {"n": "\n", "t": "\t", "r": "\r"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)


def _string(expression: str) -> str | None:
    match = _STRING.fullmatch(expression.strip())
    return _unescape(match[1]) if match else None


def _integer(expression: str) -> int | None:
    return int(expression) if _WHOLE_INTEGER.fullmatch(expression.strip()) else None


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _record(text: str) -> dict[str, str | int | float]:
    """The strings and numbers of a one-line record ``[ … ]``, by name in lower case."""
    return {
        name.lower(): _number(number) if number else _unescape(value)
        for name, value, closing, number in _PAIR.findall(text)
        if number or closing == '"'
    }


# --- logs of ClassAds: the attributes of an event ----------------------------------------------

Value = object
Ad = Mapping[str, Value]
"""Attributes of an event: int, float, bool, str, nested ads and lists; an expression other than
a literal is the string ``/Expr(…)/``."""

_EXPRESSION: Final = re.compile(r"/Expr\((.*)\)/", re.DOTALL)
_MAX_DEPTH: Final = 20
"""Levels of nested ads that are formatted: an event has two."""
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
"""Lone surrogates: valid in JSON, but not encodable in a file."""


def integer(value: Value) -> int | None:
    """A number as an integer; None for anything else. Bytes are logged as reals."""
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def printable(text: str) -> str:
    if text.isascii() and "\0" not in text:
        return text
    return _SURROGATE.sub("\ufffd", text).replace("\0", "")


def literal(value: Value, depth: int = _MAX_DEPTH) -> str:
    """A value as ClassAd source on one line."""
    if isinstance(value, str):
        if expression := _EXPRESSION.fullmatch(value):
            return printable(expression[1])
        escaped = printable(value).replace("\\", "\\\\").replace('"', '\\"')
        return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or depth == 0:
        return "undefined"
    if isinstance(value, Mapping):
        pairs = (f"{printable(key)} = {literal(item, depth - 1)}" for key, item in value.items())
        return f"[ {'; '.join(pairs)} ]"
    if isinstance(value, list):
        return "{ " + ",".join(literal(item, depth - 1) for item in value) + " }"
    return str(value)


class Attributes:
    """Typed access to the attributes of an ad.

    ``self[name]`` is the value as a string, "" when absent.
    """

    def __init__(self, ad: Ad) -> None:
        self.ad = ad

    def __getitem__(self, name: str) -> str:
        value = self.ad.get(name)
        if value is None:
            return ""
        return printable(value) if isinstance(value, str) else literal(value)

    def integer(self, name: str) -> int | None:
        return integer(self.ad.get(name))

    def code(self, name: str) -> int:
        """A code, 0 when absent."""
        return integer(self.ad.get(name)) or 0

    def flag(self, name: str) -> bool:
        return bool(self.ad.get(name))

    def prose(self, name: str) -> str | None:
        """Free text as it is read from the text form; None if empty."""
        return prose(self[name])

    def nested(self, name: str) -> Attributes:
        value = self.ad.get(name)
        return Attributes(value if isinstance(value, Mapping) else {})

    def real(self, name: str) -> float | None:
        value = self.ad.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None


# --- common parts of bodies -----------------------------------------------------------------


def _text_after(text: str, prefix: str) -> str:
    return text.partition(prefix)[2].strip()


def prose(text: str) -> str | None:
    """Free text without indentation; None if empty."""
    return "\n".join(line.strip() for line in text.split("\n")).strip() or None


def _first(pattern: re.Pattern[str], body: str) -> str | None:
    match = pattern.search(body)
    return match[1] if match else None


def _counts(body: str) -> dict[str, int]:
    """The exact numbers of ``N  -  Label`` lines, by label."""
    return {label: int(count) for count, label in _COUNT.findall(body)}


def _termination(body: str) -> tuple[bool | None, int | None, int | None]:
    """(normal, return value, signal) from the first line that reports it."""
    match = _TERMINATION.search(body)
    if match is None:
        return None, None, None
    if match[1] is not None:
        return True, int(match[1]), None
    return False, None, int(match[2])


def _before_structured(body: str, start: int = 0) -> str | None:
    """The prose from ``start`` up to the next line that only HTCondor writes."""
    end = _STRUCTURED.search(body, start)
    return prose(body[start : end.start() if end else len(body)])


def _reason_and_code(body: str) -> tuple[str | None, int | None, int | None]:
    """(prose, code, subcode); the last code line counts, since reasons may quote one."""
    codes = list(_CODE.finditer(body))
    if not codes:
        return prose(body), None, None
    return prose(body[: codes[-1].start()]), int(codes[-1][1]), int(codes[-1][2])


MAX_RUN_EPOCH: Final = 999_999_999


def _submit_from_notes(host: str, body: str) -> Submit:
    """The submission that the notes in the body of a 000 or 035 describe.

    A structured note takes precedence over a ``DAG Node:`` line.
    """
    structured: Mapping[str, str | int | float] = {}
    node: str | None = None
    notes: list[str] = []
    for line in (line.strip() for line in body.split("\n")):
        if line.startswith("[") and line.endswith("]") and not structured:
            structured = _record(line)
        elif (match := _DAG_NODE.match(f"\n{line}")) and node is None:
            node = match[1]
        elif line and not line.startswith("WARNING: "):
            notes.append(line)

    def text(name: str) -> str | None:
        value = structured.get(name)
        return value if isinstance(value, str) else None

    return Submit(
        host=host,
        node=text("dagnodename") or node,
        batch_name=text("jobbatchname"),
        notes=tuple(notes),
        run_uuid=text("runuuid") or None,
        run_name=text("runname") or None,
        run_epoch=_run_epoch(structured.get("runepoch")),
    )


def _run_epoch(value: object) -> int | None:
    """The value of RunEpoch if it is an epoch's number, from 1."""
    return value if isinstance(value, int) and 1 <= value <= MAX_RUN_EPOCH else None


# --- one parser for each event type ---------------------------------------------------------


_NODE_ALONE: Final = re.compile(r"\n {4}DAG Node: (\S+)")
"""The body of nearly every 000 in DAGMan's own log."""


def _submit(text: str, body: str) -> Submit:
    host = _text_after(text, "from host:")
    if only := _NODE_ALONE.fullmatch(body):
        return Submit(host, only[1], None, ())
    return _submit_from_notes(host, body)


def _cluster_submit(submit: Submit) -> ClusterSubmit:
    return ClusterSubmit(submit.host, submit.node)


_ALIAS: Final = re.compile(r"[?&]alias=([^&>\s]+)")
_SLOT: Final = "slotname:"
_DEVICE: Final = "device:"
"""Names that no attribute has: of the slot, and of what a GPU's record says of its device."""
_INTEGERS: Final = frozenset({"gpus", "cpus", "memory"})
_STRINGS: Final = frozenset({"annexname", "gpus_devicename"})

_SITE_NAME: Final = re.compile(
    r"(?P<evaluated>match_(?:exp_)?|machineattr)?(?:job_?)?"
    r"(?:glidein_(?P<kind>resourcename|cmssite|site)|(?<=job_)(?:cms)?site)0?",
    re.IGNORECASE,
)
"""Attributes of a startd or a job that name the site of a slot. OSG's, CMS' and Fermilab's access
points copy the startd's into the job (``JOBGLIDEIN_ResourceName = "$$(…)"``); at a match the
schedd writes the value to ``MATCH_EXP_…``."""
_SITE_KINDS: Final = ("resourcename", "cmssite", "site")
"""The most specific one first: a site may have several resources."""

_NO_SITE: Final = frozenset({"", "unknown", "undefined", "none", "error", "local job"})
"""Values that the expressions of these access points have if the startd lacks the attribute."""

_STRING_ATTRIBUTE: Final = re.compile(
    r"""^[ \t]*(\w*site0?|\w*resourcename0?) = "([^"\\\n]{1,200})"[ \t]*$""",
    re.IGNORECASE | re.MULTILINE,
)
_VOLATILE: Final = ("\tCondorScratchDir = ", "\tDisk = ", "\tAvailableGPUs = {")
"""Attributes that differ at each start of a job and are not used."""

_SLOT_LINE: Final = "\tSlotName: "

_REPEATED_LENGTH: Final = 1000
"""Characters of an event or line up to which it is cached: longer texts rarely repeat, and a few
thousand of a megabyte would exhaust the memory."""


def _execute(text: str, body: str) -> Execute:
    host = _text_after(text, "on host:")
    machine: dict[str, Any] = {}
    gpus: list[dict[str, Any]] = []
    has_properties = False
    for line in body.split("\n"):
        if line.startswith(_VOLATILE):
            has_properties = True
            continue
        if line.startswith(_SLOT_LINE):
            # Not cached: there are too many of them.
            if slot := line[len(_SLOT_LINE) :].strip():
                machine[_SLOT], has_properties = slot, True
            continue
        is_short = len(line) <= _REPEATED_LENGTH
        attribute = _cached_machine_attribute(line) if is_short else _machine_attribute(line)
        if attribute is None:
            continue
        has_properties = True
        name, value = attribute
        if type(value) is dict:
            gpus.append(value)
        elif value is not None:
            machine[name] = value
    models = {gpu["devicename"] for gpu in gpus if isinstance(gpu.get("devicename"), str)} - {""}
    if not models and (only := machine.get("gpus_devicename")):
        models = {only}
    sizes = [size for gpu in gpus if isinstance(size := gpu.get("globalmemorymb"), int)]
    return Execute(
        host=host,
        alias=_first(_ALIAS, host),
        slot=machine.get(_SLOT),
        site=site_of_attributes(machine.items()),
        gpus=machine.get("gpus"),
        gpu=" + ".join(sorted(models)) or None,
        gpu_memory_mb=min(sizes, default=None),
        cpus=machine.get("cpus"),
        memory_mb=machine.get("memory"),
        has_properties=has_properties,
        annex=machine.get("annexname") or None,
        device=gpus[0][_DEVICE] if gpus else None,
    )


def _device(gpu: Attributes, spelled: Callable[[str], str] = str) -> GpuDevice | None:
    """The properties of one GPU; None if the attributes have none of them."""
    names = ("Capability", "DriverVersion", "ClockMhz")
    device = GpuDevice(*(gpu.real(spelled(name)) for name in names))
    return device if device != GpuDevice() else None


def site_of_attributes(attributes: Iterable[tuple[str, object]]) -> str | None:
    """The site that (name, value) pairs of a slot or a job name; None without one.

    A resource name takes precedence over a site; at the same rank, a value that the schedd
    evaluated takes precedence over one that the job's ad may have as an expression.
    """
    found = []
    for name, value in attributes:
        if not isinstance(value, str) or "$$(" in value:
            continue
        match = _SITE_NAME.fullmatch(name)
        if match is not None and value.strip().casefold() not in _NO_SITE:
            rank = _SITE_KINDS.index((match["kind"] or "site").lower())
            found.append((rank, match["evaluated"] is None, value))
    return min(found)[2] if found else None


def site_in_ad(body: str) -> str | None:
    """The site that attributes in the body of a 028 name; None without one."""
    return site_of_attributes((match[1], match[2]) for match in _STRING_ATTRIBUTE.finditer(body))


def _machine_attribute(line: str) -> tuple[str, str | int | dict[str, Any] | None] | None:
    """(name, value) of a line of a machine's ad, None for any other line.

    Names are in lower case. The value of an unused attribute is None. Cached, since a machine
    logs the same lines each time.
    """
    stripped = line.strip()
    if stripped.startswith("SlotName:"):
        slot = stripped.removeprefix("SlotName:").strip()
        return (_SLOT, slot) if slot else None
    attribute = _ATTRIBUTE.fullmatch(stripped)
    if attribute is None:
        return None
    name, value = attribute[1].lower(), attribute[2]
    if name.startswith("gpus_") and value.startswith("["):
        gpu: dict[str, Any] = {**_record(value)}
        gpu[_DEVICE] = _device(Attributes(gpu), str.lower)
        return name, gpu
    if name in _INTEGERS:
        return name, _integer(value)
    known = name in _STRINGS or _SITE_NAME.fullmatch(name)
    return name, _string(value) if known else None


_cached_machine_attribute = lru_cache(maxsize=4096)(_machine_attribute)


_CPU_TIME: Final = re.compile(
    r"Usr ([0-9]{1,9}) ([0-9]{2}):([0-9]{2}):([0-9]{2}), "
    r"Sys ([0-9]{1,9}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?=  -  Run Remote Usage|\Z)"
)


def _cpu_seconds(text: str) -> int | None:
    """User and system time of this execution, in an event's body or the value of its ad."""
    match = _CPU_TIME.search(text)
    if match is None:
        return None
    seconds: int = sum(map(mul, map(int, match.groups()), (86400, 3600, 60, 1) * 2))
    return seconds


def _evicted(text: str, body: str) -> Evicted:
    code = _CODE_IN_TEXT.search(text)
    flag = _FLAG.search(body)
    requeued = flag is not None and "requeued" in flag[2]
    # The requeue form, and HTCondor 23 in general, write the reason without its label.
    reason = _REASON.search(body) or _UNSTRUCTURED.search(body.partition(USAGE_TITLE)[0])
    counts = _counts(body)
    _, return_value, signal = _termination(body)
    return Evicted(
        code=int(code[1]) if code else None,
        subcode=int(code[2]) if code else None,
        reason=_before_structured(body, reason.end()) if reason else None,
        requeued=requeued,
        checkpointed=flag is not None and flag[1] == "1",
        return_value=return_value,
        signal=signal,
        bytes_sent=counts.get("Run Bytes Sent By Job"),
        bytes_received=counts.get("Run Bytes Received By Job"),
        usage=find_usage_table(body),
        cpu_seconds=_cpu_seconds(body),
    )


def _terminated(text: str, body: str) -> Terminated:
    normal, return_value, signal = _termination(body)
    # Without the owner, which is "Job" or "Node".
    counts = {label.rpartition(" ")[0]: count for label, count in _counts(body).items()}
    ended = _first(_TERMINATED_AT, body)
    return Terminated(
        normal=normal,
        return_value=return_value,
        signal=signal,
        run_bytes_sent=counts.get("Run Bytes Sent By"),
        run_bytes_received=counts.get("Run Bytes Received By"),
        total_bytes_sent=counts.get("Total Bytes Sent By"),
        total_bytes_received=counts.get("Total Bytes Received By"),
        ended_utc=header.parse_utc(ended) if ended else None,
        usage=find_usage_table(body),
        cpu_seconds=_cpu_seconds(body),
    )


def _shadow_exception(text: str, body: str) -> ShadowException:
    counts = _counts(body)
    return ShadowException(
        reason=_before_structured(body) or "",
        bytes_sent=counts.get("Run Bytes Sent By Job"),
        bytes_received=counts.get("Run Bytes Received By Job"),
    )


def _held(text: str, body: str) -> Held:
    reason, code, subcode = _reason_and_code(body)
    return Held(None if reason == "Reason unspecified" else reason, code, subcode)


def _remote_error(text: str, body: str) -> RemoteError:
    message, code, _ = _reason_and_code(body)
    return RemoteError(text.startswith("Message from "), message or "", code)


def _disconnected(text: str, body: str) -> ConnectionEvent:
    """022 and 024: the reason's lines, then one that names the host."""
    match = _RECONNECTION.search(body)
    if match is None:
        return ConnectionEvent(prose(body), None)
    host = match[1].strip().removesuffix(", rescheduling job").partition(" <")[0]
    return ConnectionEvent(prose(body[: match.start()]), host or None)


def _cluster_remove(text: str, body: str) -> ClusterRemove:
    completion = _first(_MATERIALIZED, body)
    complete = completion == "Complete" if completion else None
    return ClusterRemove(complete, prose(_MATERIALIZED.sub("\n", body)))


def _file_transfer(text: str, body: str) -> FileTransfer:
    seconds, host = _first(_QUEUED, body), _first(_HOST, body)
    return FileTransfer(
        TRANSFERS.get(text.strip()),
        int(seconds) if seconds else None,
        (host.strip() or None) if host else None,
    )


# --- the same from ads ------------------------------------------------------------------------


def _submit_ad(ad: Attributes) -> Submit:
    submit = _submit_from_notes(ad["SubmitHost"], f"{ad['LogNotes']}\n{ad['UserNotes']}")
    structured = ad.nested("StructuredNotes")
    return Submit(
        host=submit.host,
        node=structured["DAGNodeName"] or submit.node,
        batch_name=structured["JobBatchName"] or None,
        notes=submit.notes,
        run_uuid=structured["RunUuid"] or None,
        run_name=structured["RunName"] or None,
        run_epoch=_run_epoch(structured.integer("RunEpoch")),
    )


def _execute_ad(ad: Attributes) -> Execute:
    machine = ad.nested("ExecuteProps")
    # Not GPUs_DeviceName and the like, which some pools have beside the records.
    records = [value for name, value in machine.ad.items() if name.startswith("GPUs_")]
    gpus = [Attributes(each) for each in records if isinstance(each, Mapping)]
    models = {gpu["DeviceName"] for gpu in gpus} - {""} or {machine["GPUs_DeviceName"]} - {""}
    sizes = [gpu.integer("GlobalMemoryMb") for gpu in gpus]
    return Execute(
        ad["ExecuteHost"],
        alias=_first(_ALIAS, ad["ExecuteHost"]),
        slot=ad["SlotName"] or None,
        site=site_of_attributes(machine.ad.items()),
        gpus=machine.integer("GPUs"),
        gpu=" + ".join(sorted(models)) or None,
        gpu_memory_mb=min((size for size in sizes if size is not None), default=None),
        cpus=machine.integer("Cpus"),
        memory_mb=machine.integer("Memory"),
        has_properties=bool(machine.ad or ad["SlotName"]),
        annex=machine["AnnexName"] or None,
        device=_device(gpus[0]) if gpus else None,
    )


def _termination_ad(ad: Attributes) -> tuple[bool | None, int | None, int | None]:
    """(normal, return value, signal); all None if the ad does not contain them."""
    if ad.flag("TerminatedNormally"):
        value = ad.integer("ReturnValue")
        return None if value is None else True, value, None
    signal = ad.integer("TerminatedBySignal")
    return None if signal is None else False, None, signal


_UNITS: Final = {
    "Disk": "KB",
    "Memory": "MB",
    "GPUsMemory": "MB",
    "TimeExecute": "s",
    "TimeSlotBusy": "s",
}


def _usage(ad: Attributes) -> tuple[UsageRow, ...]:
    """A row per resource ``X`` of ``RequestX``, ``XUsage``, ``X`` and ``AssignedX``.

    Names are the same in any case: those of one resource are ``GPUs``, ``RequestGpus`` and
    ``GpusUsage`` (``setEventUsageAd``).
    """
    values = Attributes({name.lower(): value for name, value in ad.ad.items()})
    names = [name.removeprefix("Request") for name in ad.ad if name.startswith("Request")]
    used = (name.removesuffix("Usage") for name in ad.ad if name.endswith("Usage"))
    names += [name for name in used if not name.endswith(("Local", "Remote"))]
    resources = {name.lower(): name for name in sorted(names)}
    return tuple(
        UsageRow(
            name=name,
            unit=_UNITS.get(name, ""),
            usage=values.real(f"{key}usage"),
            request=values.real(f"request{key}"),
            allocated=values.real(key),
            assigned=values[f"assigned{key}"].strip('"') or None,
        )
        for key, name in sorted(resources.items())
    )


def _evicted_ad(ad: Attributes) -> Evicted:
    code, requeued = ad.integer("ReasonCode"), ad.flag("TerminatedAndRequeued")
    _, return_value, signal = _termination_ad(ad) if requeued else (None, None, None)
    return Evicted(
        code=code,
        subcode=None if code is None else ad.code("ReasonSubCode"),
        reason=ad.prose("Reason"),
        requeued=requeued,
        checkpointed=ad.flag("Checkpointed") and not requeued,
        return_value=return_value,
        signal=signal,
        bytes_sent=ad.integer("SentBytes"),
        bytes_received=ad.integer("ReceivedBytes"),
        usage=_usage(ad),
        cpu_seconds=_cpu_seconds(ad["RunRemoteUsage"]),
    )


def _terminated_ad(ad: Attributes) -> Terminated:
    normal, return_value, signal = _termination_ad(ad)
    return Terminated(
        normal=normal,
        return_value=return_value,
        signal=signal,
        run_bytes_sent=ad.integer("SentBytes"),
        run_bytes_received=ad.integer("ReceivedBytes"),
        total_bytes_sent=ad.integer("TotalSentBytes"),
        total_bytes_received=ad.integer("TotalReceivedBytes"),
        ended_utc=None,
        usage=_usage(ad),
        cpu_seconds=_cpu_seconds(ad["RunRemoteUsage"]),
    )


def _held_ad(ad: Attributes) -> Held:
    reason = ad.prose("HoldReason")
    codes = ad.code("HoldReasonCode"), ad.code("HoldReasonSubCode")
    return Held(None if reason == "Reason unspecified" else reason, *codes)


def _remote_error_ad(ad: Attributes) -> RemoteError:
    warning, code = not ad.ad.get("CriticalError", True), ad.code("HoldReasonCode") or None
    return RemoteError(warning, ad.prose("ErrorMsg") or "", code)


def _connection_ad(ad: Attributes) -> ConnectionEvent:
    reason = ad.prose("DisconnectReason") or ad.prose("Reason")
    return ConnectionEvent(reason, ad["StartdName"] or None)


# --- first lines that ads do not have in one attribute -----------------------------------------


def _executable_error_line(ad: Attributes) -> str:
    match ad.integer("ExecuteErrorType"):
        case 0:
            return "(0) Job file not executable."
        case 1:
            return "(1) Job not properly linked for Condor."
        case _:
            return "(-1) [Bad error number.]"


def _evicted_line(ad: Attributes) -> str:
    code = ad.integer("ReasonCode")
    codes = "" if code is None else f" Code {code} Subcode {ad.code('ReasonSubCode')}"
    return f"Job was evicted.{codes}"


def _remote_error_line(ad: Attributes) -> str:
    kind = "Error" if ad.ad.get("CriticalError", True) else "Message"
    return f"{kind} from {ad['Daemon']} on {ad['ExecuteHost']}:"


def _attribute_line(ad: Attributes) -> str:
    if ad["OldValue"]:
        return f"Changing job attribute {ad['Attribute']} from {ad['OldValue']} to {ad['Value']}"
    return f"Setting job attribute {ad['Attribute']} to {ad['Value']}"


def _file_transfer_line(ad: Attributes) -> str:
    number = ad.integer("Type")
    return dict(enumerate(TRANSFERS, start=1)).get(number, "") if number is not None else ""


# --- the table ---------------------------------------------------------------------------------


class EventType(NamedTuple):
    """One type of events.

    ``name``: HTCondor's without ULOG_. ``line``: the text after the date in the text form, as a
    function of an ad or as a format of its attributes. ``pattern``: what HTCondor writes there, in
    full: a header in mid-line is one only if its text matches (None: any text; ``EXACT``: that
    of ``line``). ``read`` returns the detail from this text and the lines below it, each after its
    newline; ``read_ad`` from the attributes of an ad. ``is_covered``: the detail and the first line
    have all that is shown of the body. ``repeats``: equal texts of many jobs or hosts are parsed
    and stored once.
    """

    name: str
    line: str | Callable[[Attributes], str] = "{EventHead}"
    pattern: str | None = None
    read: Callable[[str, str], Detail] | None = None
    read_ad: Callable[[Attributes], Detail] | None = None
    is_covered: bool = False
    repeats: bool = False

    def first_line(self, ad: Attributes) -> str:
        """The text after the date in the text form of an ad."""
        return self.line.format_map(ad) if isinstance(self.line, str) else self.line(ad)


EXACT: Final = ""

EVENT_TYPES: Final[Mapping[int, EventType]] = {
    0: EventType(
        "SUBMIT",
        "Job submitted from host: {SubmitHost}",
        r"Job submitted from host: [^\"']*",
        _submit,
        _submit_ad,
        is_covered=True,
    ),
    1: EventType(
        "EXECUTE",
        "Job executing on host: {ExecuteHost}",
        r"Job executing on host: [^\"']*",
        _execute,
        _execute_ad,
        is_covered=True,
    ),
    2: EventType("EXECUTABLE_ERROR", _executable_error_line, r"\(-?\d+\) .*"),
    3: EventType("CHECKPOINTED", "Job was checkpointed.", EXACT),
    4: EventType(
        "JOB_EVICTED",
        _evicted_line,
        r"Job was evicted\.( Code -?\d+ Subcode -?\d+)?",
        _evicted,
        _evicted_ad,
        is_covered=True,
    ),
    5: EventType(
        "JOB_TERMINATED", "Job terminated.", EXACT, _terminated, _terminated_ad, is_covered=True
    ),
    6: EventType(
        "IMAGE_SIZE",
        "Image size of job updated: {Size}",
        r"Image size of job updated: -?\d+",
        lambda text, body: ImageSize(_counts(body).get("MemoryUsage of job (MB)")),
        lambda ad: ImageSize(ad.integer("MemoryUsage")),
        is_covered=True,
    ),
    7: EventType(
        "SHADOW_EXCEPTION",
        "Shadow exception!",
        EXACT,
        _shadow_exception,
        lambda ad: ShadowException(
            ad.prose("Message") or "", ad.integer("SentBytes"), ad.integer("ReceivedBytes")
        ),
        is_covered=True,
    ),
    8: EventType(
        "GENERIC",
        "{Info}",
        None,
        lambda text, body: Generic(f"{text}{body}".rstrip()),
        lambda ad: Generic(ad["Info"].rstrip()),
    ),
    9: EventType(
        "JOB_ABORTED",
        "Job was aborted.",
        r"Job was aborted( by the user)?\.",
        lambda _, body: Aborted(prose(body)),
        lambda ad: Aborted(ad.prose("Reason")),
        is_covered=True,
        repeats=True,
    ),
    10: EventType("JOB_SUSPENDED", "Job was suspended.", EXACT),
    11: EventType("JOB_UNSUSPENDED", "Job was unsuspended.", EXACT),
    12: EventType(
        "JOB_HELD", "Job was held.", EXACT, _held, _held_ad, is_covered=True, repeats=True
    ),
    13: EventType(
        "JOB_RELEASED",
        "Job was released.",
        EXACT,
        lambda _, body: Released(prose(body)),
        lambda ad: Released(ad.prose("Reason")),
        is_covered=True,
        repeats=True,
    ),
    14: EventType(
        "NODE_EXECUTE",
        "Node {Node} executing on host: {ExecuteHost}",
        r"Node -?\d+ executing on host: [^\"']*",
    ),
    15: EventType(
        "NODE_TERMINATED",
        "Node {Node} terminated.",
        r"Node -?\d+ terminated\.",
        _terminated,
        _terminated_ad,
        is_covered=True,
    ),
    16: EventType(
        "POST_SCRIPT_TERMINATED",
        "POST Script terminated.",
        EXACT,
        lambda _, body: PostScript(_first(_DAG_NODE, body), *_termination(body)),
        lambda ad: PostScript(ad["DAGNodeName"] or None, *_termination_ad(ad)),
    ),
    17: EventType("GLOBUS_SUBMIT"),
    18: EventType("GLOBUS_SUBMIT_FAILED"),
    19: EventType("GLOBUS_RESOURCE_UP"),
    20: EventType("GLOBUS_RESOURCE_DOWN"),
    21: EventType(
        "REMOTE_ERROR",
        _remote_error_line,
        r"(Error|Message) from .*:",
        _remote_error,
        _remote_error_ad,
        is_covered=True,
    ),
    22: EventType(
        "JOB_DISCONNECTED",
        "Job disconnected, attempting to reconnect",
        EXACT,
        _disconnected,
        _connection_ad,
        is_covered=True,
    ),
    23: EventType(
        "JOB_RECONNECTED",
        "Job reconnected to {StartdName}",
        r"Job reconnected to .*",
        lambda text, _: ConnectionEvent(None, _text_after(text, "reconnected to") or None),
        _connection_ad,
        is_covered=True,
    ),
    24: EventType(
        "JOB_RECONNECT_FAILED",
        "Job reconnection failed",
        EXACT,
        _disconnected,
        _connection_ad,
        is_covered=True,
    ),
    25: EventType("GRID_RESOURCE_UP", "Grid Resource Back Up"),
    26: EventType("GRID_RESOURCE_DOWN", "Detected Down Grid Resource"),
    27: EventType("GRID_SUBMIT", "Job submitted to grid resource"),
    28: EventType("JOB_AD_INFORMATION", "Job ad information event triggered."),
    29: EventType("JOB_STATUS_UNKNOWN", "The job's remote status is unknown"),
    30: EventType("JOB_STATUS_KNOWN", "The job's remote status is known again"),
    31: EventType("JOB_STAGE_IN", "Job is performing stage-in of input files"),
    32: EventType("JOB_STAGE_OUT", "Job is performing stage-out of output files"),
    33: EventType("ATTRIBUTE_UPDATE", _attribute_line),
    34: EventType(
        "PRESKIP",
        "PRE script return value is PRE_SKIP value",
        EXACT,
        lambda _, body: PreSkip(_first(_DAG_NODE, body)),
        lambda ad: PreSkip(_submit_from_notes("", ad["SkipEventLogNotes"]).node),
    ),
    35: EventType(
        "CLUSTER_SUBMIT",
        "Cluster submitted from host: {SubmitHost}",
        r"Cluster submitted from host: [^\"']*",
        lambda text, body: _cluster_submit(_submit(text, body)),
        lambda ad: _cluster_submit(_submit_ad(ad)),
    ),
    36: EventType(
        "CLUSTER_REMOVE",
        "Cluster removed",
        EXACT,
        _cluster_remove,
        lambda ad: ClusterRemove(ad.integer("Completion") == 1, ad.prose("Notes")),
    ),
    37: EventType("FACTORY_PAUSED", "Job Materialization Paused"),
    38: EventType("FACTORY_RESUMED", "Job Materialization Resumed"),
    39: EventType("NONE"),
    40: EventType(
        "FILE_TRANSFER",
        _file_transfer_line,
        "|".join(TRANSFERS),
        _file_transfer,
        lambda ad: FileTransfer(
            TRANSFERS.get(_file_transfer_line(ad)), ad.integer("QueueingDelay"), ad["Host"] or None
        ),
        is_covered=True,
        repeats=True,
    ),
    41: EventType("RESERVE_SPACE", ""),
    42: EventType("RELEASE_SPACE", ""),
    43: EventType("FILE_COMPLETE", ""),
    44: EventType("FILE_USED", ""),
    45: EventType("FILE_REMOVED", ""),
    46: EventType("DATAFLOW_JOB_SKIPPED", "Dataflow job was skipped."),
    47: EventType("COMMON_FILES", "Common files event: {Type}"),
}

_UNKNOWN: Final = EventType("")


def type_of(number: int) -> EventType:
    """The event type with this number; one without a detail if the number is unknown."""
    return EVENT_TYPES.get(number, _UNKNOWN)


def event_name(number: int) -> str:
    """HTCondor's name of the event type without ULOG_, or ``EVENT_NNN``."""
    return type_of(number).name or f"EVENT_{number:03d}"


def read_detail(number: int, text: str, body: str) -> Detail | None:
    """The typed detail of an event; None for the types that have none."""
    kind = EVENT_TYPES.get(number)
    if kind is None or kind.read is None:
        return None
    body = f"\n{body}"  # Patterns of lines begin with the newline.
    if kind.repeats and len(body) + len(text) <= _REPEATED_LENGTH:
        return _read_repeated(kind.read, text, body)
    return kind.read(text, body)


@lru_cache(maxsize=4096)
def _read_repeated(read: Callable[[str, str], Detail], text: str, body: str) -> Detail:
    return read(text, body)


# --- what is kept and shown: visible texts of bounded length, without secrets ---------

TEXT_LIMIT: Final = 8000
"""Characters kept of any text of an event: a job can write a megabyte as its reason, and the
cost of processing grows with the length."""

BODY_LIMIT: Final = 500
"""Characters kept of a body that the typed detail does not cover: enough to be understood, and
few enough for months of events to fit in memory."""

SHORT: Final = 400
"""Maximum length of texts whose redaction is cached: an address with all its parameters. Longer
texts are reasons, few of which are equal."""

MAX_CACHED: Final = 5000
"""Cached texts and details of machines, transfers and holds: more than a pool has at a time."""

AD_ATTRIBUTE_EVENTS: Final = frozenset({28, 33})
"""Events with attributes of the job's ClassAd (job ad information, attribute update)."""

_TEXTS: Final = frozenset({"str", "str | None", "tuple[str, ...]"})

_TEXT_FIELDS: Final[dict[Any, tuple[str, ...]]] = {
    type_: tuple(
        name
        for name, annotation in type_.__annotations__.items()
        if getattr(annotation, "__forward_arg__", annotation) in _TEXTS
    )
    for type_ in Detail.__subclasses__()
}


_redact_short: Final = lru_cache(maxsize=MAX_CACHED)(harmless)


def redact_and_truncate(text: str) -> str:
    """Truncate a text of an event to the kept length; make it visible, and redact secrets."""
    if len(text) <= SHORT:
        return _redact_short(text)
    if len(text) <= TEXT_LIMIT:
        return harmless(text)
    # A secret truncated at the end is far beyond the kept part.
    return harmless(text[: 2 * TEXT_LIMIT])[:TEXT_LIMIT]


def redact_event(event: Event) -> Event:
    """The event, visible, without secrets, and without a body covered by the detail."""
    if event.number in AD_ATTRIBUTE_EVENTS:
        event = without_environment(event)
    body, detail, kind = event.body, event.detail, type_of(event.number)
    if event.text and detail is not None and kind.is_covered:
        body = ""
    elif body:
        # A secret truncated at the end is far beyond the kept part.
        lines = redact_secrets(body[: 8 * BODY_LIMIT])[:BODY_LIMIT].split("\n")
        body = "\n".join(map(visible, lines))
    if detail is not None:
        # There are few machines, kinds of transfers and reasons.
        repeats = kind.repeats or isinstance(detail, Execute)
        detail = _redact_repeated(detail) if repeats else _redact_detail(detail)
    return Event(
        event.number,
        event.cluster,
        event.proc,
        event.subproc,
        event.time,
        redact_and_truncate(event.text),
        body,
        detail,
        event.line,
        event.damaged,
    )


def redact_first_line(event: Event) -> str:
    """The first line of the event as :func:`redact_event` leaves it."""
    if event.number in AD_ATTRIBUTE_EVENTS:
        event = without_environment(event)
    return redact_and_truncate(event.text)


def _redact_detail(detail: Detail) -> Detail:
    changes: dict[str, Any] = {}
    for name in _TEXT_FIELDS[detail.__class__]:
        text = getattr(detail, name)
        if text:
            redacted = (
                redact_and_truncate(text)
                if isinstance(text, str)
                else tuple(map(redact_and_truncate, text))
            )
            if redacted != text:
                changes[name] = redacted
    return replace(detail, **changes) if changes else detail


_redact_repeated: Final = lru_cache(maxsize=MAX_CACHED)(_redact_detail)

_ENVIRONMENT: Final = re.compile(
    r"\b(?:job)?(env(?:ironment)?2?)\b(\s*=|\s+from\b|\s+to\b)(?:[^\n]|\n(?!\s*[\w.]+ = ))*",
    re.IGNORECASE,
)
"""Matches up to the next line with an attribute: a value may contain newlines."""

_JOB_ATTRIBUTE: Final = re.compile(r"\w+ job attribute (\S+)")


def without_environment(event: Event) -> Event:
    """Return an event without the values of the environment and of secret attributes.

    API keys and tokens are passed in the environment; what is not kept cannot be shown.
    """
    changed = _JOB_ATTRIBUTE.match(event.text)
    if changed is not None and is_secret_name(changed[1]):
        # Its values may contain newlines and unbalanced quotes.
        return replace(event, text=f"{changed[0]} (not shown)", body="")
    return replace(
        event,
        text=_ENVIRONMENT.sub(r"\1\2 (not shown)", event.text),
        body="" if event.number == 33 else _ENVIRONMENT.sub(r"\1\2 (not shown)", event.body),
    )
