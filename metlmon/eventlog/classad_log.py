"""Parses event logs of ClassAds: one ad per event, in XML or JSON.

Source followed: ``ReadUserLog::readEventClassad`` in ``read_user_log.cpp`` and
``ULogEvent::initFromClassAd``, ``toClassAd`` and ``formatBody`` in ``condor_event.cpp``;
``classad::ClassAdXMLUnParser`` and ``classad::ClassAdJsonUnParser`` for the notation. An ad begins
at the start of a line; the line that closes it begins with the closing bracket, or with the opening
one when the ad is one line. An ad that is cut off is skipped with a warning. Every decision depends
only on the bytes up to the end of a closing line, not on how the bytes were divided among calls.

The same event in two logs must compare equal whatever their forms, so its first text is that of the
text form. The body is empty where the detail contains all of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from metlmon.eventlog import bodies, header, text_parser
from metlmon.eventlog.events import (
    EVENT_NAMES,
    Aborted,
    ClusterRemove,
    ClusterSubmit,
    ConnectionEvent,
    Detail,
    Event,
    Evicted,
    Execute,
    FileTransfer,
    Generic,
    Held,
    ImageSize,
    LogFormat,
    LogWarning,
    Parsed,
    Position,
    PostScript,
    PreSkip,
    Released,
    RemoteError,
    ShadowException,
    Submit,
    Terminated,
    UsageRow,
)

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Characters that HTCondor writes in XML logs although XML forbids them."""


class _Notation(NamedTuple):
    """One way to write ads.

    ``start`` matches the opening bracket of an ad at the start of a line or after NULs, ``end`` the
    line that closes an ad, ``frame`` the text that is allowed between two ads. ``read`` returns the
    attributes of a whole ad, None for anything else.
    """

    start: re.Pattern[bytes]
    end: re.Pattern[bytes]
    frame: re.Pattern[bytes]
    read: Callable[[str], Ad | None]


def parse(data: bytes, position: Position, limit: int | None, final: bool) -> Parsed:
    """See :func:`metlmon.eventlog.parse`."""
    log = _ClassAdLog(data, position, _XML if position.form is LogFormat.XML else _JSON)
    while limit is None or len(log.events) + len(log.warnings) < limit:
        if not log.read_block():
            if final:
                log.read_tail()
            break
    return log.result()


class _ClassAdLog:
    """The state of one parsing call over the bytes of one log."""

    def __init__(self, data: bytes, position: Position, notation: _Notation) -> None:
        self.events: list[Event] = []
        self.warnings: list[LogWarning] = []
        self._data = data
        self._start = position
        self._offset = 0
        self._line = position.line
        self._last = position.last
        self._notation = notation

    def result(self) -> Parsed:
        year = self._last.year if self._last is not None else self._start.year
        offset = self._start.offset + self._offset
        after = Position(offset, self._line, self._start.form, year, self._last)
        return Parsed(tuple(self.events), tuple(self.warnings), after)

    def read_block(self) -> bool:
        """Read up to and including the next line that closes an ad, if there is one."""
        end = self._notation.end.search(self._data, self._offset)
        if end is None:
            return False
        self._read_ads(end.end(), closed=True)
        return True

    def read_tail(self) -> None:
        """Read what follows the last whole ad of a log that will not grow."""
        self._read_ads(len(self._data), closed=False)

    def _read_ads(self, stop: int, *, closed: bool) -> None:
        """Read the ads before ``stop``; only the last one can be whole."""
        data = self._data
        starts = [
            match.start() for match in self._notation.start.finditer(data, self._offset, stop)
        ]
        bounds = [*starts, stop]
        self._warn_about_junk(bounds[0])
        for start, end in pairwise(bounds):
            raw = data[start:end]
            if end < stop:
                self.warnings.append(
                    text_parser.unterminated_warning(_CUT, self._line, "the next event")
                )
            elif not self._read_whole(raw):
                self.warnings.append(
                    text_parser.bad_header_warning(raw, self._line)
                    if closed
                    else text_parser.unterminated_warning(_CUT, self._line, None)
                )
            self._advance(end)

    def _read_whole(self, raw: bytes) -> bool:
        ad = self._notation.read(raw.decode("utf-8", "replace").replace("\0", ""))
        if ad is None:
            return False
        self._add_event(raw, ad)
        return True

    def _advance(self, offset: int) -> None:
        self._line += self._data.count(b"\n", self._offset, offset)
        self._offset = offset

    def _warn_about_junk(self, end: int) -> None:
        junk = self._data[self._offset : end]
        if nuls := junk.count(b"\0"):
            self.warnings.append(text_parser.nul_bytes_warning(nuls, self._line))
        content = self._notation.frame.sub(b"", junk).replace(b"\0", b"").strip()
        if content:
            blank = len(junk) - len(junk.lstrip(b"\0 \t\r\n"))
            line = self._line + junk.count(b"\n", 0, blank)
            self.warnings.append(text_parser.garbage_warning(content, line))
        self._advance(end)

    def _add_event(self, raw: bytes, ad: Ad) -> None:
        """Add the event that ``ad`` describes; warn when required attributes are missing.

        HTCondor omits an id that is -1.
        """
        number = integer(ad.get("EventTypeNumber"))
        cluster, proc, subproc = (
            integer(ad.get(name, -1)) for name in ("Cluster", "Proc", "Subproc")
        )
        time = _time(ad)
        if number is None or cluster is None or proc is None or time is None:
            self.warnings.append(text_parser.bad_header_warning(raw, self._line))
            return
        text, body, detail = event_parts(number, ad)
        nuls = raw.count(b"\0")
        event = Event(
            number=number,
            cluster=cluster,
            proc=proc,
            subproc=subproc or 0,
            time=time,
            text=text,
            body=body,
            detail=detail,
            line=self._line,
            damaged=nuls > 0,
        )
        self._last = time
        self.events.append(event)
        if nuls:
            self.warnings.append(text_parser.nul_bytes_warning(nuls, event.line))
        try:
            raw.decode()
        except UnicodeDecodeError:
            label = f"event {number:03d} of job {cluster}.{proc}"
            self.warnings.append(text_parser.bad_utf8_warning(label, event.line))


_CUT: Final = "an event that cannot be read"


def _time(ad: Ad) -> datetime | None:
    stamp = ad.get("EventTime")
    return header.parse_iso(stamp) if isinstance(stamp, str) else None


def _read_json(text: str) -> Ad | None:
    try:
        ad = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return ad if isinstance(ad, dict) else None


def _read_xml(text: str) -> Ad | None:
    from xml.etree import ElementTree  # only few logs are XML

    try:
        ad = _xml_value(ElementTree.fromstring(_CONTROL.sub("", text)))
    except (ElementTree.ParseError, RecursionError):
        return None
    return ad if isinstance(ad, dict) else None


def _xml_value(element: Element) -> Value:
    """The value of an element; an expression as JSON logs write it."""
    text = element.text or ""
    try:
        match element.tag:
            case "c":
                return {item.get("n", ""): _xml_value(item[0]) for item in element if len(item)}
            case "l":
                return [_xml_value(item) for item in element]
            case "b":
                return element.get("v") == "t"
            case "i":
                return int(text)
            case "r":
                return float(text)
            case "e":
                return f"/Expr({text})/"
            case "s" | "at" | "rt":
                return text
            case _:
                return None
    except ValueError:
        return None


_JSON: Final = _Notation(
    start=re.compile(rb"(?<![^\n\0])\{"),
    end=re.compile(rb"^(?:\0*\{[^\n]*)?\}[ \t]*\r?\n", re.MULTILINE),
    frame=re.compile(rb"[\[\],]"),
    read=_read_json,
)
_XML: Final = _Notation(
    start=re.compile(rb"(?<![^\n\0])<c>"),
    end=re.compile(rb"^(?:\0*<c>[^\n]*)?</c>[ \t]*\r?\n", re.MULTILINE),
    frame=re.compile(rb"<\?xml[^<>]*>|<!DOCTYPE[^<>]*>|</?(?:classads|eventlog)>"),
    read=_read_xml,
)


# --- from an ad to the event's text, body and detail -----------------------------------------

Value = object
Ad = Mapping[str, Value]
"""Attributes of an event: int, float, bool, str, nested ads and lists; an expression other than
a literal is the string ``/Expr(…)/``."""

_EXPRESSION: Final = re.compile(r"/Expr\((.*)\)/", re.DOTALL)
_MAX_DEPTH: Final = 20
"""Levels of nested ads that are formatted: an event has two."""
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
"""Lone surrogates: valid in JSON, but not encodable in a file."""
_COMMON: Final = frozenset(
    {"Cluster", "Proc", "Subproc", "EventTime", "EventTypeNumber", "MyType", "EventHead"}
)


def integer(value: Value) -> int | None:
    """A number as an integer; None for anything else. Bytes are logged as reals."""
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _printable(text: str) -> str:
    if text.isascii() and "\0" not in text:
        return text
    return _SURROGATE.sub("\ufffd", text).replace("\0", "")


def _literal(value: Value, depth: int = _MAX_DEPTH) -> str:
    """A value as ClassAd source on one line."""
    if isinstance(value, str):
        if expression := _EXPRESSION.fullmatch(value):
            return _printable(expression[1])
        escaped = _printable(value).replace("\\", "\\\\").replace('"', '\\"')
        return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or depth == 0:
        return "undefined"
    if isinstance(value, Mapping):
        pairs = (f"{_printable(key)} = {_literal(item, depth - 1)}" for key, item in value.items())
        return f"[ {'; '.join(pairs)} ]"
    if isinstance(value, list):
        return "{ " + ",".join(_literal(item, depth - 1) for item in value) + " }"
    return str(value)


class _Attributes:
    """Typed access to the attributes of an ad.

    ``self[name]`` is the value as a string, "" when absent.
    """

    def __init__(self, ad: Ad) -> None:
        self.ad = ad

    def __getitem__(self, name: str) -> str:
        value = self.ad.get(name)
        if value is None:
            return ""
        return _printable(value) if isinstance(value, str) else _literal(value)

    def integer(self, name: str) -> int | None:
        return integer(self.ad.get(name))

    def code(self, name: str) -> int:
        """A code, 0 when absent."""
        return integer(self.ad.get(name)) or 0

    def flag(self, name: str) -> bool:
        return bool(self.ad.get(name))

    def prose(self, name: str) -> str | None:
        """Free text as it is read from the text form; None when there is none."""
        return bodies.prose(self[name])

    def nested(self, name: str) -> _Attributes:
        value = self.ad.get(name)
        return _Attributes(value if isinstance(value, Mapping) else {})

    def real(self, name: str) -> float | None:
        value = self.ad.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None


def event_parts(number: int, ad: Ad) -> tuple[str, str, Detail | None]:
    """The (text, body, detail) of event ``number``."""
    attributes = _Attributes(ad)
    parser = _DETAILS.get(number)
    detail = parser(attributes) if parser else None
    text, _, more = _first_text(number, attributes).partition("\n")
    if detail is None:
        # The lines of an event type of a newer HTCondor, or the reason of a known one.
        more = (attributes["EventPayloadLines"] or attributes["Reason"]).rstrip("\n") or more
    is_new = number not in EVENT_NAMES and "EventPayloadLines" not in ad
    if number == _AD_INFORMATION or is_new or not (text or more):
        hidden = () if number == _AD_INFORMATION else _COMMON
        names = (name for name in sorted(ad, key=str.lower) if name not in hidden)
        more = "\n".join(f"{_printable(name)} = {_literal(ad[name])}" for name in names)
    return text, more, detail


def _first_text(number: int, ad: _Attributes) -> str:
    """The text after the date in the text form."""
    match number:
        case 2:
            error = ad.integer("ExecuteErrorType")
            return _EXECUTABLE_ERRORS.get(error, "(-1) [Bad error number.]")
        case 4:
            code = ad.integer("ReasonCode")
            codes = "" if code is None else f" Code {code} Subcode {ad.code('ReasonSubCode')}"
            return f"Job was evicted.{codes}"
        case 21:
            kind = "Error" if ad.ad.get("CriticalError", True) else "Message"
            return f"{kind} from {ad['Daemon']} on {ad['ExecuteHost']}:"
        case 33 if ad["OldValue"]:
            return "Changing job attribute {Attribute} from {OldValue} to {Value}".format_map(ad)
        case 40:
            return _TRANSFERS.get(ad.integer("Type"), "")
        case _:
            return _TEXTS.get(number, "{EventHead}").format_map(ad)


_AD_INFORMATION: Final = 28
_EXECUTABLE_ERRORS: Final[Mapping[int | None, str]] = {
    0: "(0) Job file not executable.",
    1: "(1) Job not properly linked for Condor.",
}
_TRANSFERS: Final[Mapping[int | None, str]] = dict(enumerate(bodies.TRANSFERS, start=1))

_TEXTS: Final[Mapping[int, str]] = {
    0: "Job submitted from host: {SubmitHost}",
    1: "Job executing on host: {ExecuteHost}",
    3: "Job was checkpointed.",
    5: "Job terminated.",
    6: "Image size of job updated: {Size}",
    7: "Shadow exception!",
    8: "{Info}",
    9: "Job was aborted.",
    10: "Job was suspended.",
    11: "Job was unsuspended.",
    12: "Job was held.",
    13: "Job was released.",
    14: "Node {Node} executing on host: {ExecuteHost}",
    15: "Node {Node} terminated.",
    16: "POST Script terminated.",
    22: "Job disconnected, attempting to reconnect",
    23: "Job reconnected to {StartdName}",
    24: "Job reconnection failed",
    25: "Grid Resource Back Up",
    26: "Detected Down Grid Resource",
    27: "Job submitted to grid resource",
    28: "Job ad information event triggered.",
    29: "The job's remote status is unknown",
    30: "The job's remote status is known again",
    31: "Job is performing stage-in of input files",
    32: "Job is performing stage-out of output files",
    33: "Setting job attribute {Attribute} to {Value}",
    34: "PRE script return value is PRE_SKIP value",
    35: "Cluster submitted from host: {SubmitHost}",
    36: "Cluster removed",
    37: "Job Materialization Paused",
    38: "Job Materialization Resumed",
    **dict.fromkeys(range(41, 46), ""),
    46: "Dataflow job was skipped.",
    47: "Common files event: {Type}",
}


def _node_and_notes(ad: _Attributes) -> tuple[str | None, tuple[str, ...]]:
    """(node, user notes) of 000 and 035."""
    parsed = bodies.parse_notes(f"{ad['LogNotes']}\n{ad['UserNotes']}")
    return ad.nested("StructuredNotes")["DAGNodeName"] or parsed.node, tuple(parsed.notes)


def _submit(ad: _Attributes) -> Submit:
    node, notes = _node_and_notes(ad)
    structured = ad.nested("StructuredNotes")
    warning = ad["Warnings"].removeprefix("WARNING: ").strip()
    return Submit(
        ad["SubmitHost"],
        node,
        structured["JobBatchName"] or None,
        notes,
        (warning,) if warning else (),
        run_uuid=structured["RunUuid"] or None,
        run_name=structured["RunName"] or None,
        run_epoch=bodies.run_epoch(structured.integer("RunEpoch")),
    )


def _execute(ad: _Attributes) -> Execute:
    machine = ad.nested("ExecuteProps")
    gpus = [machine.nested(name) for name in machine.ad if name.startswith("GPUs_")]
    models = {gpu["DeviceName"] for gpu in gpus} - {""} or {machine["GPUs_DeviceName"]} - {""}
    sizes = [gpu.integer("GlobalMemoryMb") for gpu in gpus]
    host, alias = bodies.parse_host(ad["ExecuteHost"])
    return Execute(
        *(host, alias),
        slot=ad["SlotName"] or None,
        site=bodies.site_of_attributes(machine.ad.items()),
        gpus=machine.integer("GPUs"),
        gpu=" + ".join(sorted(models)) or None,
        gpu_memory_mb=min((size for size in sizes if size is not None), default=None),
        cpus=machine.integer("Cpus"),
        memory_mb=machine.integer("Memory"),
        has_properties=bool(machine.ad or ad["SlotName"]),
        annex=machine["AnnexName"] or None,
    )


def _termination(ad: _Attributes) -> tuple[bool | None, int | None, int | None]:
    """(normal, return value, signal); all None where the ad does not contain them."""
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


def _usage(ad: _Attributes) -> tuple[UsageRow, ...]:
    """A row per resource ``X`` of ``RequestX``, ``XUsage``, ``X`` and ``AssignedX``."""
    requested = {name.removeprefix("Request") for name in ad.ad if name.startswith("Request")}
    used = {name.removesuffix("Usage") for name in ad.ad if name.endswith("Usage")}
    names = requested | {name for name in used if not name.endswith(("Local", "Remote"))}
    return tuple(
        UsageRow(
            name=name,
            unit=_UNITS.get(name, ""),
            usage=ad.real(f"{name}Usage"),
            request=ad.real(f"Request{name}"),
            allocated=ad.real(name),
            assigned=ad[f"Assigned{name}"].strip('"') or None,
        )
        for name in sorted(names)
    )


def _evicted(ad: _Attributes) -> Evicted:
    code, requeued = ad.integer("ReasonCode"), ad.flag("TerminatedAndRequeued")
    _, return_value, signal = _termination(ad) if requeued else (None, None, None)
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
    )


def _terminated(ad: _Attributes) -> Terminated:
    normal, return_value, signal = _termination(ad)
    return Terminated(
        normal=normal,
        return_value=return_value,
        signal=signal,
        core_file=None if ad.flag("TerminatedNormally") else ad["CoreFile"] or None,
        run_bytes_sent=ad.integer("SentBytes"),
        run_bytes_received=ad.integer("ReceivedBytes"),
        total_bytes_sent=ad.integer("TotalSentBytes"),
        total_bytes_received=ad.integer("TotalReceivedBytes"),
        ended_utc=None,
        usage=_usage(ad),
    )


def _image_size(ad: _Attributes) -> ImageSize:
    return ImageSize(ad.integer("Size"), ad.integer("MemoryUsage"), ad.integer("ResidentSetSize"))


def _shadow_exception(ad: _Attributes) -> ShadowException:
    return ShadowException(
        ad.prose("Message") or "", ad.integer("SentBytes"), ad.integer("ReceivedBytes")
    )


def _held(ad: _Attributes) -> Held:
    reason = ad.prose("HoldReason")
    codes = ad.code("HoldReasonCode"), ad.code("HoldReasonSubCode")
    return Held(None if reason == "Reason unspecified" else reason, *codes)


def _remote_error(ad: _Attributes) -> RemoteError:
    code = ad.code("HoldReasonCode") or None
    return RemoteError(
        warning=not ad.ad.get("CriticalError", True),
        source=f"{ad['Daemon']} on {ad['ExecuteHost']}",
        message=ad.prose("ErrorMsg") or "",
        code=code,
        subcode=ad.code("HoldReasonSubCode") if code else None,
    )


def _connection(ad: _Attributes) -> ConnectionEvent:
    reason = ad.prose("DisconnectReason") or ad.prose("Reason")
    return ConnectionEvent(reason, ad["StartdName"] or None)


def _file_transfer(ad: _Attributes) -> FileTransfer:
    text = _TRANSFERS.get(ad.integer("Type"))
    kind = None if text is None else bodies.TRANSFERS[text]
    return FileTransfer(kind, ad.integer("QueueingDelay"), ad["Host"] or None)


_DETAILS: Final[Mapping[int, Callable[[_Attributes], Detail]]] = {
    0: _submit,
    1: _execute,
    4: _evicted,
    5: _terminated,
    6: _image_size,
    7: _shadow_exception,
    8: lambda ad: Generic(ad["Info"].rstrip()),
    9: lambda ad: Aborted(ad.prose("Reason")),
    12: _held,
    13: lambda ad: Released(ad.prose("Reason")),
    15: _terminated,
    16: lambda ad: PostScript(ad["DAGNodeName"] or None, *_termination(ad)),
    21: _remote_error,
    22: _connection,
    23: _connection,
    24: _connection,
    34: lambda ad: PreSkip(bodies.parse_notes(ad["SkipEventLogNotes"])[0]),
    35: lambda ad: ClusterSubmit(ad["SubmitHost"], _node_and_notes(ad)[0]),
    36: lambda ad: ClusterRemove(ad.integer("Completion") == 1, ad.prose("Notes")),
    40: _file_transfer,
}
