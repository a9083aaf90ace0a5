"""Converts the ClassAd of an event into its text, body and detail.

For XML and JSON logs.

Source followed: the ``toClassAd`` and ``formatBody`` methods of ``condor_event.cpp``. The same
event in two logs must compare equal whatever their forms, so its first text is that of the text
form. The body is empty where the detail contains all of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from metlmon.eventlog import bodies
from metlmon.eventlog.events import (
    EVENT_NAMES,
    Aborted,
    ClusterRemove,
    ClusterSubmit,
    ConnectionEvent,
    Detail,
    Evicted,
    Execute,
    FileTransfer,
    Generic,
    Held,
    ImageSize,
    PostScript,
    PreSkip,
    Released,
    RemoteError,
    ShadowException,
    Submit,
    Terminated,
    UsageRow,
)

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
    if number == _AD_INFORMATION or (number not in EVENT_NAMES and "EventPayloadLines" not in ad):
        hidden = () if number == _AD_INFORMATION else _COMMON
        names = (name for name in sorted(ad, key=str.lower) if name not in hidden)
        more = "\n".join(f"{_printable(name)} = {_literal(ad[name])}" for name in names)
    elif detail is None:
        # The lines of an event type of a newer HTCondor, or the reason of a known one.
        more = (attributes["EventPayloadLines"] or attributes["Reason"]).rstrip("\n") or more
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


def _notes(ad: _Attributes) -> tuple[str | None, str | None, tuple[str, ...]]:
    """(node, batch name, user notes) of 000 and 035."""
    node, _, notes, _ = bodies.parse_notes(f"{ad['LogNotes']}\n{ad['UserNotes']}")
    structured = ad.nested("StructuredNotes")
    return structured["DAGNodeName"] or node, structured["JobBatchName"] or None, tuple(notes)


def _submit(ad: _Attributes) -> Submit:
    node, batch_name, notes = _notes(ad)
    warning = ad["Warnings"].removeprefix("WARNING: ").strip()
    return Submit(ad["SubmitHost"], node, batch_name, notes, (warning,) if warning else ())


def _execute(ad: _Attributes) -> Execute:
    machine = ad.nested("ExecuteProps")
    gpus = [machine.nested(name) for name in machine.ad if name.startswith("GPUs_")]
    models = {gpu["DeviceName"] for gpu in gpus} - {""} or {machine["GPUs_DeviceName"]} - {""}
    sizes = [gpu.integer("GlobalMemoryMb") for gpu in gpus]
    host, alias = bodies.parse_host(ad["ExecuteHost"])
    return Execute(
        host=host,
        alias=alias,
        slot=ad["SlotName"] or None,
        site=machine["GLIDEIN_ResourceName"] or None,
        gpus=machine.integer("GPUs"),
        gpu=" + ".join(sorted(models)) or None,
        gpu_memory_mb=min((size for size in sizes if size is not None), default=None),
        cpus=machine.integer("Cpus"),
        memory_mb=machine.integer("Memory"),
        has_properties=bool(machine.ad or ad["SlotName"]),
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
    35: lambda ad: ClusterSubmit(ad["SubmitHost"], _notes(ad)[0]),
    36: lambda ad: ClusterRemove(ad.integer("Completion") == 1, ad.prose("Notes")),
    40: _file_transfer,
}
