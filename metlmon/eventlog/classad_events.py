"""Converts an event logged as attributes (XML, JSON) into the text form.

Source followed: the ``formatBody`` methods of ``condor_event.cpp``. The same event in two
logs must compare equal whatever their forms, so its first text must be identical, and its
body is parsed by the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from metlmon.eventlog import usage_table

Value = object
Ad = Mapping[str, Value]
"""Attributes of an event: int, float, bool, str, :class:`Expression`, nested ads, lists."""


class Expression(str):
    """A ClassAd expression other than a literal, as written."""

    __slots__ = ()


def integer(value: Value) -> int | None:
    """A number as an integer; None for anything else. Bytes are logged as reals."""
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, int) else None


def string(value: Value) -> str:
    """A string attribute, other values as literals; "" for None."""
    return value if isinstance(value, str) else "" if value is None else literal(value)


def literal(value: Value) -> str:
    """A value as ClassAd source on one line."""
    if isinstance(value, Expression):
        return str(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "[ " + "; ".join(f"{name} = {literal(item)}" for name, item in value.items()) + " ]"
    if isinstance(value, list):
        return "{ " + ",".join(literal(item) for item in value) + " }"
    return "undefined" if value is None else str(value)


def text_form(number: int, ad: Ad) -> tuple[str, str]:
    """(text, body) of event ``number`` as in the text form."""
    writer = _WRITERS.get(number, _write_unknown_type)
    text, *lines = "\n".join(writer(ad)).split("\n")
    return text, "\n".join(lines)


def _write_all_attributes(ad: Ad) -> Iterator[str]:
    for name in sorted(ad, key=str.lower):
        yield f"{name} = {literal(ad[name])}"


def _write_unknown_type(ad: Ad) -> Iterator[str]:
    """An event type of a newer HTCondor, which is logged as head and payload."""
    yield string(ad.get("EventHead"))
    payload = ad.get("EventPayloadLines")
    if isinstance(payload, str):
        yield payload.rstrip("\n")
    else:
        common = {"Cluster", "Proc", "Subproc", "EventTime", "EventTypeNumber", "MyType"}
        yield from _write_all_attributes(
            {name: ad[name] for name in ad if name not in common | {"EventHead"}}
        )


def _text_writer(text: str) -> Callable[[Ad], Iterator[str]]:
    def write(ad: Ad) -> Iterator[str]:
        yield string(ad.get("EventHead")) or text

    return write


def _reason_writer(
    text: str, attribute: str = "Reason", indent: str = "\t"
) -> Callable[[Ad], Iterator[str]]:
    def write(ad: Ad) -> Iterator[str]:
        yield text
        if reason := string(ad.get(attribute)):
            yield indent + reason

    return write


def _submit_writer(text: str) -> Callable[[Ad], Iterator[str]]:
    def write(ad: Ad) -> Iterator[str]:
        yield f"{text} submitted from host: {string(ad.get('SubmitHost'))}"
        structured = ad.get("StructuredNotes")
        if log_notes := string(ad.get("LogNotes")):
            yield f"    {log_notes}"
        elif isinstance(structured, Mapping):
            yield f"    {literal(structured)}"
        if notes := string(ad.get("UserNotes")):
            yield f"    {notes}"
        if warnings := string(ad.get("Warnings")):
            yield (
                "    WARNING: Committed job submission into the queue with the following"
                f" warning(s): {warnings.removeprefix('WARNING: ')}"
            )

    return write


def _write_execute(ad: Ad) -> Iterator[str]:
    yield f"Job executing on host: {string(ad.get('ExecuteHost'))}"
    if slot := string(ad.get("SlotName")):
        yield f"\tSlotName: {slot}"
    properties = ad.get("ExecuteProps")
    if isinstance(properties, Mapping):
        yield from (f"\t{line}" for line in _write_all_attributes(properties))


def _write_executable_error(ad: Ad) -> Iterator[str]:
    kind = integer(ad.get("ExecuteErrorType"))
    texts = {0: "Job file not executable.", 1: "Job not properly linked for Condor."}
    number = -1 if kind is None else kind
    yield f"({number}) {texts.get(number, '[Bad error number.]')}"


def _write_rusage(ad: Ad, indent: str, *scopes: str) -> Iterator[str]:
    for scope in scopes:
        for host in ("Remote", "Local"):
            if usage := string(ad.get(f"{scope}{host}Usage")):
                yield f"{indent}{usage}  -  {scope} {host} Usage"


def _write_bytes(ad: Ad, label: str, prefix: str, owner: str) -> Iterator[str]:
    for attribute, direction in (("SentBytes", "Sent"), ("ReceivedBytes", "Received")):
        if (count := integer(ad.get(prefix + attribute))) is not None:
            yield f"\t{count}  -  {label} Bytes {direction} By {owner}"


def _write_termination(ad: Ad) -> Iterator[str]:
    if ad.get("TerminatedNormally"):
        yield f"\t(1) Normal termination (return value {integer(ad.get('ReturnValue'))})"
        return
    yield f"\t(0) Abnormal termination (signal {integer(ad.get('TerminatedBySignal'))})"


def _write_core(ad: Ad) -> Iterator[str]:
    if not ad.get("TerminatedNormally"):
        core = string(ad.get("CoreFile"))
        yield f"\t(1) Corefile in: {core}" if core else "\t(0) No core file"


def _write_checkpointed(ad: Ad) -> Iterator[str]:
    yield "Job was checkpointed."
    yield from _write_rusage(ad, "\t", "Run")
    if (count := integer(ad.get("SentBytes"))) is not None:
        yield f"\t{count}  -  Run Bytes Sent By Job For Checkpoint"


def _write_evicted(ad: Ad) -> Iterator[str]:
    code, subcode = integer(ad.get("ReasonCode")), integer(ad.get("ReasonSubCode")) or 0
    yield "Job was evicted." + (f" Code {code} Subcode {subcode}" if code is not None else "")
    requeued, reason = bool(ad.get("TerminatedAndRequeued")), string(ad.get("Reason"))
    if requeued:
        yield "\t(0) Job terminated and was requeued"
    else:
        yield "\t(1) Job was checkpointed." if ad.get("Checkpointed") else "\t(0) CPU times"
    yield from _write_rusage(ad, "\t\t", "Run")
    yield from _write_bytes(ad, "Run", "", "Job")
    if requeued:
        yield from _write_termination(ad)
        yield from _write_core(ad)
    if reason:
        yield f"\t{reason}" if requeued else f"\tReason: {reason}"
    yield from _write_table(ad)


def _termination_writer(text: str, owner: str) -> Callable[[Ad], Iterator[str]]:
    def write(ad: Ad) -> Iterator[str]:
        yield text.format(integer(ad.get("Node")))
        yield from _write_termination(ad)
        yield from _write_core(ad)
        yield from _write_rusage(ad, "\t\t", "Run", "Total")
        yield from _write_bytes(ad, "Run", "", owner)
        yield from _write_bytes(ad, "Total", "Total", owner)
        yield from _write_table(ad)

    return write


_UNITS: Final = {
    "Disk": " (KB)",
    "Memory": " (MB)",
    "GPUsMemory": " (MB)",
    "TimeExecute": " (s)",
    "TimeSlotBusy": " (s)",
}


def _write_table(ad: Ad) -> Iterator[str]:
    """The usage table: a row per ``RequestX``, ``XUsage``, ``X`` and ``AssignedX``."""
    requested = {name.removeprefix("Request") for name in ad if name.startswith("Request")}
    used = {name.removesuffix("Usage") for name in ad if name.endswith("Usage")}
    names = sorted(requested | {name for name in used if not name.endswith(("Local", "Remote"))})
    if not names:
        return
    rows = [
        [
            name + _UNITS.get(name, ""),
            *(_cell(ad.get(attribute)) for attribute in (f"{name}Usage", f"Request{name}", name)),
            string(ad.get(f"Assigned{name}")),
        ]
        for name in names
    ]
    widths = [
        max(minimum, *(len(row[column]) for row in rows))
        for column, minimum in ((1, 8), (2, 8), (3, 9))
    ]

    def line(label: str, cells: list[str], assigned: str) -> str:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        return f"\t{label.ljust(23)} : {' '.join(padded)} {assigned}"

    yield line(usage_table.TITLE, ["Usage", "Request", "Allocated"], "Assigned")
    for name, *cells, assigned in rows:
        yield line(f"   {name}", cells, f'"{assigned}"' if assigned else "")


def _cell(value: Value) -> str:
    return "" if value is None or isinstance(value, str) else literal(value)


def _write_image_size(ad: Ad) -> Iterator[str]:
    yield f"Image size of job updated: {integer(ad.get('Size'))}"
    for name, unit in (
        ("MemoryUsage", "MB"),
        ("ResidentSetSize", "KB"),
        ("ProportionalSetSize", "KB"),
    ):
        if (size := integer(ad.get(name))) is not None:
            yield f"\t{size}  -  {name} of job ({unit})"


def _write_shadow_exception(ad: Ad) -> Iterator[str]:
    yield "Shadow exception!"
    yield f"\t{string(ad.get('Message'))}"
    yield from _write_bytes(ad, "Run", "", "Job")


def _write_generic(ad: Ad) -> Iterator[str]:
    yield string(ad.get("Info"))


def _write_suspended(ad: Ad) -> Iterator[str]:
    yield "Job was suspended."
    yield f"\tNumber of processes actually suspended: {integer(ad.get('NumberOfPIDs'))}"


def _write_held(ad: Ad) -> Iterator[str]:
    yield "Job was held."
    yield "\t" + (string(ad.get("HoldReason")) or "Reason unspecified")
    code = integer(ad.get("HoldReasonCode")) or 0
    yield f"\tCode {code} Subcode {integer(ad.get('HoldReasonSubCode')) or 0}"


def _write_node_execute(ad: Ad) -> Iterator[str]:
    yield f"Node {integer(ad.get('Node'))} executing on host: {string(ad.get('ExecuteHost'))}"
    if slot := string(ad.get("SlotName")):
        yield f"\tSlotName: {slot}"


def _write_post_script(ad: Ad) -> Iterator[str]:
    yield "POST Script terminated."
    yield from _write_termination(ad)
    if node := string(ad.get("DAGNodeName")):
        yield f"    DAG Node: {node}"


def _write_remote_error(ad: Ad) -> Iterator[str]:
    kind = "Error" if ad.get("CriticalError", True) else "Message"
    yield f"{kind} from {string(ad.get('Daemon'))} on {string(ad.get('ExecuteHost'))}:"
    for line in string(ad.get("ErrorMsg")).split("\n"):
        yield f"\t{line}"
    if code := integer(ad.get("HoldReasonCode")):
        yield f"\tCode {code} Subcode {integer(ad.get('HoldReasonSubCode')) or 0}"


def _write_disconnected(ad: Ad) -> Iterator[str]:
    yield "Job disconnected, attempting to reconnect"
    yield f"    {string(ad.get('DisconnectReason'))}"
    name, address = string(ad.get("StartdName")), string(ad.get("StartdAddr"))
    yield f"    Trying to reconnect to {name} {address}"


def _write_reconnected(ad: Ad) -> Iterator[str]:
    yield f"Job reconnected to {string(ad.get('StartdName'))}"
    yield f"    startd address: {string(ad.get('StartdAddr'))}"
    yield f"    starter address: {string(ad.get('StarterAddr'))}"


def _write_reconnect_failed(ad: Ad) -> Iterator[str]:
    yield "Job reconnection failed"
    yield f"    {string(ad.get('Reason'))}"
    yield f"    Can not reconnect to {string(ad.get('StartdName'))}, rescheduling job"


def _grid_writer(text: str) -> Callable[[Ad], Iterator[str]]:
    def write(ad: Ad) -> Iterator[str]:
        yield text
        for name in ("GridResource", "GridJobId"):
            if value := string(ad.get(name)):
                yield f"    {name}: {value}"

    return write


def _write_ad_information(ad: Ad) -> Iterator[str]:
    yield "Job ad information event triggered."
    yield from _write_all_attributes(ad)


def _write_attribute_update(ad: Ad) -> Iterator[str]:
    name, value = string(ad.get("Attribute")), string(ad.get("Value"))
    if old_value := string(ad.get("OldValue")):
        yield f"Changing job attribute {name} from {old_value} to {value}"
    else:
        yield f"Setting job attribute {name} to {value}"


def _write_cluster_remove(ad: Ad) -> Iterator[str]:
    yield "Cluster removed"
    jobs, items = integer(ad.get("NextProcId")) or 0, integer(ad.get("NextRow")) or 0
    completion = integer(ad.get("Completion")) or 0
    status = {0: "Incomplete", 1: "Complete", 2: "Paused"}.get(completion, f"Error {completion}")
    yield f"\tMaterialized {jobs} jobs from {items} items.\t{status}"
    if notes := string(ad.get("Notes")):
        yield f"\t{notes}"


def _write_factory_paused(ad: Ad) -> Iterator[str]:
    yield from _reason_writer("Job Materialization Paused")(ad)
    for name in ("PauseCode", "HoldCode"):
        if (code := integer(ad.get(name))) is not None:
            yield f"\t{name} {code}"


_TRANSFERS: Final = {
    1: "Entered queue to transfer input files",
    2: "Started transferring input files",
    3: "Finished transferring input files",
    4: "Entered queue to transfer output files",
    5: "Started transferring output files",
    6: "Finished transferring output files",
}


def _write_file_transfer(ad: Ad) -> Iterator[str]:
    yield _TRANSFERS.get(integer(ad.get("Type")) or 0, "")
    if (seconds := integer(ad.get("QueueingDelay"))) is not None:
        yield f"\tSeconds spent in queue: {seconds}"
    if host := string(ad.get("Host")):
        yield f"\tTransferring to host: {host}"


def _label_writer(labels: Mapping[str, str]) -> Callable[[Ad], Iterator[str]]:
    """041 to 045: an empty first text, then ``Label: value`` lines."""

    def write(ad: Ad) -> Iterator[str]:
        yield ""
        for name, label in labels.items():
            if name in ad:
                yield f"\t{label}: {string(ad[name])}"

    return write


_COMMON_FILES: Final = {
    "TransferQueued": "Entered queue to transfer common files",
    "TransferStarted": "Started transferring common files",
    "TransferFinished": "Finished transferring common files",
    "WaitStarted": "Started waiting for previous job to transfer common files",
    "WaitFinished": "Finished waitiing for previous job to transfer common files",
}
"""The misspelling of the last text is HTCondor's own."""


def _write_common_files(ad: Ad) -> Iterator[str]:
    kind = string(ad.get("Type"))
    yield f"Common files event: {kind}"
    if kind in _COMMON_FILES:
        yield f"\t{_COMMON_FILES[kind]}"


_CHECKSUM: Final = {"Checksum": "Checksum Value", "ChecksumType": "Checksum Type"}

_WRITERS: Final[Mapping[int, Callable[[Ad], Iterator[str]]]] = {
    0: _submit_writer("Job"),
    1: _write_execute,
    2: _write_executable_error,
    3: _write_checkpointed,
    4: _write_evicted,
    5: _termination_writer("Job terminated.", "Job"),
    6: _write_image_size,
    7: _write_shadow_exception,
    8: _write_generic,
    9: _reason_writer("Job was aborted."),
    10: _write_suspended,
    11: _text_writer("Job was unsuspended."),
    12: _write_held,
    13: _reason_writer("Job was released."),
    14: _write_node_execute,
    15: _termination_writer("Node {} terminated.", "Node"),
    16: _write_post_script,
    21: _write_remote_error,
    22: _write_disconnected,
    23: _write_reconnected,
    24: _write_reconnect_failed,
    25: _grid_writer("Grid Resource Back Up"),
    26: _grid_writer("Detected Down Grid Resource"),
    27: _grid_writer("Job submitted to grid resource"),
    28: _write_ad_information,
    29: _text_writer("The job's remote status is unknown"),
    30: _text_writer("The job's remote status is known again"),
    31: _text_writer("Job is performing stage-in of input files"),
    32: _text_writer("Job is performing stage-out of output files"),
    33: _write_attribute_update,
    34: _reason_writer("PRE script return value is PRE_SKIP value", "SkipEventLogNotes", "    "),
    35: _submit_writer("Cluster"),
    36: _write_cluster_remove,
    37: _write_factory_paused,
    38: _reason_writer("Job Materialization Resumed"),
    40: _write_file_transfer,
    41: _label_writer(
        {
            "ReservedSpace": "Bytes reserved",
            "ExpirationTime": "Reservation Expiration",
            "UUID": "Reservation UUID",
            "Tag": "Tag",
        }
    ),
    42: _label_writer({"UUID": "Reservation UUID"}),
    43: _label_writer({"Size": "Bytes", **_CHECKSUM, "UUID": "UUID"}),
    44: _label_writer({**_CHECKSUM, "Tag": "Tag"}),
    45: _label_writer({"Size": "Bytes", **_CHECKSUM, "Tag": "Tag"}),
    46: _reason_writer("Dataflow job was skipped."),
    47: _write_common_files,
}
