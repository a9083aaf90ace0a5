"""Parses an event's header text and body lines into its typed detail.

Source followed: the ``formatBody`` and ``readEvent`` pairs of ``condor_event.cpp``, which
are lenient: a missing line (old logs, damaged events) leaves its field None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from metlmon.eventlog import classad, timestamps, usage_table
from metlmon.eventlog.events import (
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
    Transfer,
)

Lines = Sequence[str]

_COUNT: Final = r"\t([0-9]{1,18})  -  "
_TABLE_AND_TERMINATION: Final = (
    rf"(\t{usage_table.TITLE} [^\n]*(?:\n\t   (?=[^\s:=])[^\n:=]++:[^\n]*+)++)?"
    r"(?:\n?\tJob terminated of its own accord at ([-0-9]{10}T[0-9:.]{8,16}Z)\b[^\n]*)?"
)
_USUAL_TERMINATION: Final = re.compile(
    r"\t\(1\) Normal termination \(return value (-?[0-9]{1,18})\)\n"
    r"(?:\t\tUsr [^\n]*\n){4}"
    rf"{_COUNT}Run Bytes Sent By Job\n"
    rf"{_COUNT}Run Bytes Received By Job\n"
    rf"{_COUNT}Total Bytes Sent By Job\n"
    rf"{_COUNT}Total Bytes Received By Job(?:\n|\Z)"
    rf"{_TABLE_AND_TERMINATION}"
)
"""A whole 005 body in its usual form: one pattern takes a tenth of the time. Other forms are
read line by line."""

_USUAL_EVICTION: Final = re.compile(
    r"\t\(([01])\) (?:CPU times|Job was (?:not )?checkpointed\.)\n"
    r"(?:\t\tUsr [^\n]*\n){2}"
    rf"{_COUNT}Run Bytes Sent By Job\n"
    rf"{_COUNT}Run Bytes Received By Job(?:\n|\Z)"
    r"(?:\tReason: ([^\n]+)(?:\n|\Z))?"
    rf"{_TABLE_AND_TERMINATION}"
)
"""The same for 004."""

_CODE: Final = re.compile(r"\s*Code (-?[0-9]{1,18}) Subcode (-?[0-9]{1,18})\s*")
_CODE_IN_TEXT: Final = re.compile(r"\bCode (-?[0-9]{1,18}) Subcode (-?[0-9]{1,18})")
_COUNTED: Final = re.compile(r"^\s*(-?[0-9]{1,30})  ?-  ?(.*\S)\s*$")
_RETURNED: Final = re.compile(r"^\s*\((1)\) Normal termination \(return value (-?[0-9]{1,18})\)")
_SIGNALLED: Final = re.compile(r"^\s*\((0)\) Abnormal termination \(signal (-?[0-9]{1,18})\)")
_CORE: Final = re.compile(r"^\s*\(1\) Corefile in: (.*\S)")
_FLAG: Final = re.compile(r"^\s*\(([01])\) (.*\S)")
_TERMINATED_AT: Final = re.compile(r"^\s*Job terminated .*\bat ([-0-9]{10}T[0-9:.]{8,16}Z)\b")
_DAG_NODE: Final = re.compile(r"^\s*DAG Node: (\S+)")
_NODE_ALONE: Final = re.compile(r" {4}DAG Node: (\S+)")
_ALIAS: Final = re.compile(r"[?&]alias=([^&>\s]+)")
_SLOT: Final = "SlotName:"
_INTEGERS: Final = frozenset({"gpus", "cpus", "memory"})
_STRINGS: Final = frozenset({"glidein_resourcename", "gpus_devicename"})
_VOLATILE: Final = ("\tCondorScratchDir = ", "\tDisk = ")
"""Attributes that differ at each start of a job and are not used."""

_USUAL_GPU: Final = re.compile(
    r'; DeviceName = "([^"]*)"; .*; GlobalMemoryMb = ([0-9]{1,18})(?:; [^"]*|) \]'
)
"""A GPU's record in HTCondor's usual order: its strings before its memory."""

_LONGEST_USUAL_GPU: Final = 2000
"""Characters, five times what HTCondor writes: the pattern scans a record once per name."""

_Gpu = tuple[str | None, int | None]
"""DeviceName and GlobalMemoryMb."""

_WARNING: Final = re.compile(
    r"WARNING: (?:Committed job submission into the queue with the following warning\(s\): ?)?"
)
_IMAGE_SIZE: Final = re.compile(r"Image size of job updated: (-?[0-9]{1,18})")
_STRUCTURED: Final = re.compile(
    rf"\s*(?:\([01]\) |Usr \d|-?\d+  ?-  ?\D|{usage_table.TITLE}|Job terminated .* at )"
)
_MATERIALIZED: Final = re.compile(r"\s*Materialized -?[0-9]+ jobs from -?[0-9]+ items\.\s*(\w*)")
_REMOTE_ERROR: Final = re.compile(r"(Error|Message) from (.*)")
TRANSFERS: Final[Mapping[str, Transfer]] = {
    "Entered queue to transfer input files": Transfer.INPUT_QUEUED,
    "Started transferring input files": Transfer.INPUT_STARTED,
    "Finished transferring input files": Transfer.INPUT_FINISHED,
    "Entered queue to transfer output files": Transfer.OUTPUT_QUEUED,
    "Started transferring output files": Transfer.OUTPUT_STARTED,
    "Finished transferring output files": Transfer.OUTPUT_FINISHED,
}


def _text_after(text: str, prefix: str) -> str:
    return text.partition(prefix)[2].strip()


def join_prose(lines: Iterable[str]) -> str | None:
    """Join lines of free text; None when there is none."""
    return "\n".join(line.strip() for line in lines).strip() or None


def _parse_counts(lines: Lines) -> dict[str, int]:
    """The exact numbers of ``N  -  Label`` lines, by label."""
    matches = (_COUNTED.match(line) for line in lines)
    return {match[2]: int(match[1]) for match in matches if match}


def _parse_termination(lines: Lines) -> tuple[bool | None, int | None, int | None]:
    """(normal, return value, signal) from the first line that reports it."""
    for line in lines:
        if match := _RETURNED.match(line):
            return True, int(match[2]), None
        if match := _SIGNALLED.match(line):
            return False, None, int(match[2])
    return None, None, None


def _first_match(pattern: re.Pattern[str], lines: Lines) -> str | None:
    return next((match[1] for line in lines if (match := pattern.match(line))), None)


def parse_notes(lines: Lines) -> tuple[str | None, str | None, list[str], list[str]]:
    """(node, batch name, user notes, warnings) of 000 and 035.

    A structured note takes precedence over a ``DAG Node:`` line.
    """
    structured: dict[str, str] = {}
    node: str | None = None
    notes: list[str] = []
    warnings: list[str] = []
    for line in (line.strip() for line in lines):
        if line.startswith("[") and line.endswith("]") and not structured:
            structured = classad.strings_in(line)
        elif (match := _DAG_NODE.match(line)) and node is None:
            node = match[1]
        elif match := _WARNING.match(line):
            warnings.append(line[match.end() :])
        elif line:
            notes.append(line)
    return structured.get("dagnodename") or node, structured.get("jobbatchname"), notes, warnings


def _parse_submit(text: str, lines: Lines) -> Submit:
    if len(lines) == 1 and (only := _NODE_ALONE.fullmatch(lines[0])):
        return Submit(_text_after(text, "from host:"), only[1], None, (), ())
    node, batch_name, notes, warnings = parse_notes(lines)
    return Submit(_text_after(text, "from host:"), node, batch_name, tuple(notes), tuple(warnings))


def _parse_execute(text: str, lines: Lines) -> Execute:
    host, alias = parse_host(_text_after(text, "on host:"))
    has_any = False
    strings: dict[str, str | None] = {}
    integers: dict[str, int | None] = {}
    gpus: list[_Gpu] = []
    for line in lines:
        if line.startswith(_VOLATILE):
            has_any = True
            continue
        is_short = len(line) <= _REPEATED_LENGTH
        attribute = _cached_machine_attribute(line) if is_short else _parse_machine_attribute(line)
        if attribute is None:
            continue
        has_any = True
        name, value = attribute
        if name is None:
            continue
        if isinstance(value, tuple):
            gpus.append(value)
        elif name in _INTEGERS:
            integers[name] = value  # type: ignore[assignment]
        else:
            strings[name] = value  # type: ignore[assignment]
    models = {model for model, _ in gpus if model}
    if not models and (only := strings.get("gpus_devicename")):
        models = {only}
    return Execute(
        host=host,
        alias=alias,
        slot=strings.get(_SLOT),
        site=strings.get("glidein_resourcename"),
        gpus=integers.get("gpus"),
        gpu=" + ".join(sorted(models)) or None,
        gpu_memory_mb=min((size for _, size in gpus if size is not None), default=None),
        cpus=integers.get("cpus"),
        memory_mb=integers.get("memory"),
        has_properties=has_any,
    )


def parse_host(host: str) -> tuple[str, str | None]:
    """An execute host's address, and the alias in it."""
    return _cached_host(host) if len(host) <= _REPEATED_LENGTH else _read_host(host)


def _read_host(host: str) -> tuple[str, str | None]:
    alias = _ALIAS.search(host)
    return host, alias[1] if alias else None


_cached_host = lru_cache(maxsize=1024)(_read_host)


def _parse_gpu(record: str) -> _Gpu:
    usual = None
    if len(record) <= _LONGEST_USUAL_GPU and "\\" not in record:
        usual = _USUAL_GPU.search(record)
    if usual is not None:
        return usual[1], int(usual[2])
    return (
        classad.strings_in(record).get("devicename"),
        classad.integers_in(record).get("globalmemorymb"),
    )


def _parse_machine_attribute(line: str) -> tuple[str | None, str | int | _Gpu | None] | None:
    """(attribute in lower case, value) of a line of a machine's ad, slot or GPU.

    The attribute is None when it is not used; the result is None for any other line. Cached,
    since a machine logs the same lines each time.
    """
    stripped = line.strip()
    if stripped.startswith("SlotName:"):
        slot = stripped.removeprefix("SlotName:").strip()
        return (_SLOT, slot) if slot else None
    attribute = classad.attribute(stripped)
    if attribute is None:
        return None
    name, value = attribute[0].lower(), attribute[1]
    if name.startswith("gpus_") and value.startswith("["):
        return name, _parse_gpu(value)
    if name in _INTEGERS:
        return name, classad.integer(value)
    return (name, classad.string(value)) if name in _STRINGS else (None, None)


_cached_machine_attribute = lru_cache(maxsize=4096)(_parse_machine_attribute)


def _parse_evicted(text: str, lines: Lines) -> Evicted:
    code = _CODE_IN_TEXT.search(text)
    flag = next((match for line in lines if (match := _FLAG.match(line))), None)
    counts = _parse_counts(lines)
    requeued = flag is not None and "requeued" in flag[2]
    _, return_value, signal = _parse_termination(lines)
    return Evicted(
        code=int(code[1]) if code else None,
        subcode=int(code[2]) if code else None,
        reason=_eviction_reason(lines, requeued),
        requeued=requeued,
        checkpointed=flag is not None and flag[1] == "1",
        return_value=return_value,
        signal=signal,
        bytes_sent=counts.get("Run Bytes Sent By Job"),
        bytes_received=counts.get("Run Bytes Received By Job"),
        usage=usage_table.table(lines),
    )


def _parse_usual_eviction(text: str, body: str) -> Evicted | None:
    match = _USUAL_EVICTION.fullmatch(body)
    if match is None:
        return None
    code = _CODE_IN_TEXT.search(text)
    flag, sent, received, reason, table, _ = match.groups()
    return Evicted(
        code=int(code[1]) if code else None,
        subcode=int(code[2]) if code else None,
        reason=reason.strip() or None if reason else None,
        requeued=False,
        checkpointed=flag == "1",
        return_value=None,
        signal=None,
        bytes_sent=int(sent),
        bytes_received=int(received),
        usage=usage_table.Usage(table) if table else (),
    )


def _eviction_reason(lines: Lines, requeued: bool) -> str | None:
    """The text after ``Reason:``.

    The requeue form writes it without that label, after the exit status.
    """
    for number, line in enumerate(lines):
        bare = requeued and not _STRUCTURED.match(line) and bool(line.strip())
        if bare or line.strip().startswith("Reason:"):
            return join_prose(
                [line.strip().removeprefix("Reason:"), *_lines_before_table(lines[number + 1 :])]
            )
    return None


def _lines_before_table(lines: Lines) -> list[str]:
    prose: list[str] = []
    for line in lines:
        if _STRUCTURED.match(line):
            break
        prose.append(line)
    return prose


def _parse_usual_termination(text: str, body: str) -> Terminated | None:
    match = _USUAL_TERMINATION.fullmatch(body)
    if match is None:
        return None
    value, run_sent, run_received, sent, received, table, ended = match.groups()
    return Terminated(
        normal=True,
        return_value=int(value),
        signal=None,
        core_file=None,
        run_bytes_sent=int(run_sent),
        run_bytes_received=int(run_received),
        total_bytes_sent=int(sent),
        total_bytes_received=int(received),
        ended_utc=timestamps.utc(ended) if ended else None,
        usage=usage_table.Usage(table) if table else (),
    )


def _parse_terminated(text: str, lines: Lines) -> Terminated:
    normal, return_value, signal = _parse_termination(lines)
    counts = {label.rpartition(" ")[0]: count for label, count in _parse_counts(lines).items()}
    ended = _first_match(_TERMINATED_AT, lines)
    return Terminated(
        normal=normal,
        return_value=return_value,
        signal=signal,
        core_file=_first_match(_CORE, lines),
        run_bytes_sent=counts.get("Run Bytes Sent By"),
        run_bytes_received=counts.get("Run Bytes Received By"),
        total_bytes_sent=counts.get("Total Bytes Sent By"),
        total_bytes_received=counts.get("Total Bytes Received By"),
        ended_utc=timestamps.utc(ended) if ended else None,
        usage=usage_table.table(lines),
    )


def _parse_image_size(text: str, lines: Lines) -> ImageSize:
    size = _IMAGE_SIZE.match(text)
    counts = _parse_counts(lines)
    return ImageSize(
        image_kb=int(size[1]) if size else None,
        memory_mb=counts.get("MemoryUsage of job (MB)"),
        rss_kb=counts.get("ResidentSetSize of job (KB)"),
    )


def _parse_shadow_exception(text: str, lines: Lines) -> ShadowException:
    counts = _parse_counts(lines)
    return ShadowException(
        reason=join_prose(_lines_before_table(lines)) or "",
        bytes_sent=counts.get("Run Bytes Sent By Job"),
        bytes_received=counts.get("Run Bytes Received By Job"),
    )


def _parse_generic(text: str, lines: Lines) -> Generic:
    return Generic("\n".join([text, *lines]).rstrip())


def _parse_aborted(text: str, lines: Lines) -> Aborted:
    return Aborted(join_prose(lines))


def _parse_reason_and_code(lines: Lines) -> tuple[str | None, int | None, int | None]:
    """(prose, code, subcode); the last code line counts, since reasons may quote one."""
    for number in range(len(lines) - 1, -1, -1):
        if match := _CODE.fullmatch(lines[number]):
            return join_prose(lines[:number]), int(match[1]), int(match[2])
    return join_prose(lines), None, None


def _parse_held(text: str, lines: Lines) -> Held:
    reason, code, subcode = _parse_reason_and_code(lines)
    return Held(None if reason == "Reason unspecified" else reason, code, subcode)


def _parse_released(text: str, lines: Lines) -> Released:
    return Released(join_prose(lines))


def _parse_post_script(text: str, lines: Lines) -> PostScript:
    normal, return_value, signal = _parse_termination(lines)
    return PostScript(_first_match(_DAG_NODE, lines), normal, return_value, signal)


def _parse_remote_error(text: str, lines: Lines) -> RemoteError:
    message, code, subcode = _parse_reason_and_code(lines)
    source = _REMOTE_ERROR.fullmatch(text)
    return RemoteError(
        warning=source is not None and source[1] == "Message",
        source=source[2].rstrip().removesuffix(":") if source else text,
        message=message or "",
        code=code,
        subcode=subcode,
    )


def _parse_disconnected(text: str, lines: Lines) -> ConnectionEvent:
    return _parse_connection(lines, "reconnect to ")


def _parse_reconnected(text: str, lines: Lines) -> ConnectionEvent:
    return ConnectionEvent(None, _text_after(text, "reconnected to") or None)


def _parse_connection(lines: Lines, before_host: str) -> ConnectionEvent:
    """022 and 024: the reason's lines, then one that names the host."""
    reason: list[str] = []
    for line in lines:
        stripped = line.strip()
        if stripped.startswith(("Trying to reconnect to", "Can not reconnect to")):
            host = _text_after(stripped, before_host).removesuffix(", rescheduling job")
            return ConnectionEvent(join_prose(reason), host.partition(" <")[0] or None)
        reason.append(line)
    return ConnectionEvent(join_prose(reason), None)


def _parse_pre_skip(text: str, lines: Lines) -> PreSkip:
    return PreSkip(_first_match(_DAG_NODE, lines))


def _parse_cluster_submit(text: str, lines: Lines) -> ClusterSubmit:
    return ClusterSubmit(_text_after(text, "from host:"), parse_notes(lines)[0])


def _parse_cluster_remove(text: str, lines: Lines) -> ClusterRemove:
    completion = _first_match(_MATERIALIZED, lines)
    others = [line for line in lines if not _MATERIALIZED.match(line)]
    return ClusterRemove(completion == "Complete" if completion else None, join_prose(others))


def _parse_file_transfer(text: str, lines: Lines) -> FileTransfer:
    seconds: int | None = None
    host: str | None = None
    for line in (line.strip() for line in lines):
        if line.startswith("Seconds spent in queue:"):
            seconds = classad.integer(line.partition(":")[2])
        elif line.startswith("Transferring to host:"):
            host = line.partition(":")[2].strip() or None
    return FileTransfer(TRANSFERS.get(text.strip()), seconds, host)


_PARSERS: Final[Mapping[int, Callable[[str, Lines], Detail]]] = {
    0: _parse_submit,
    1: _parse_execute,
    4: _parse_evicted,
    5: _parse_terminated,
    6: _parse_image_size,
    7: _parse_shadow_exception,
    8: _parse_generic,
    9: _parse_aborted,
    12: _parse_held,
    13: _parse_released,
    15: _parse_terminated,
    16: _parse_post_script,
    21: _parse_remote_error,
    22: _parse_disconnected,
    23: _parse_reconnected,
    24: _parse_disconnected,
    34: _parse_pre_skip,
    35: _parse_cluster_submit,
    36: _parse_cluster_remove,
    40: _parse_file_transfer,
}


_USUAL: Final[Mapping[int, Callable[[str, str], Detail | None]]] = {
    4: _parse_usual_eviction,
    5: _parse_usual_termination,
}

_REPEATED: Final = frozenset({9, 12, 13, 40})
"""Events whose text repeats for many jobs or hosts: each text is parsed and stored once."""

_REPEATED_LENGTH: Final = 1000
"""Characters of an event or line up to which it is cached: longer texts rarely repeat, and a few
thousand of a megabyte would exhaust the memory."""


def detail(number: int, text: str, body: str) -> Detail | None:
    """The typed detail of event ``number``; None for the types that have none.

    ``text`` is the header line after the date, ``body`` the lines below it.
    """
    if number in _REPEATED and len(body) + len(text) <= _REPEATED_LENGTH:
        return _cached_detail(number, text, body)
    parse_usual = _USUAL.get(number)
    usual = parse_usual(text, body) if parse_usual else None
    return usual if usual is not None else _parse_detail(number, text, body)


def _parse_detail(number: int, text: str, body: str) -> Detail | None:
    parser = _PARSERS.get(number)
    return parser(text, body.split("\n") if body else ()) if parser else None


_cached_detail = lru_cache(maxsize=4096)(_parse_detail)
