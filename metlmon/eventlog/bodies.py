"""Parses an event's header text and body into its typed detail.

Source followed: the ``formatBody`` and ``readEvent`` pairs of ``condor_event.cpp``, which
are lenient: a missing line (old logs, damaged events) leaves its field None. ClassAd literals
are as in "ClassAd Mechanism > Literals" of the HTCondor manual; an expression is read as None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from metlmon.eventlog import header
from metlmon.eventlog.events import (
    USAGE_TITLE,
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
    UsageTable,
    usage_table,
)


def _line(pattern: str) -> re.Pattern[str]:
    """The pattern of a line's start, after its indentation."""
    return re.compile(rf"^[^\S\n]*+(?:{pattern})", re.MULTILINE)


_INTEGER: Final = r"-?[0-9]{1,18}"
_STRUCTURED_LINE: Final = rf"\([01]\) |Usr \d|-?\d+  ?-  ?\D|{USAGE_TITLE}|Job terminated .* at "

_CODE: Final = _line(rf"Code ({_INTEGER}) Subcode ({_INTEGER})[^\S\n]*$")
_CODE_IN_TEXT: Final = re.compile(rf"\bCode ({_INTEGER}) Subcode ({_INTEGER})")
_COUNT: Final = _line(r"(-?[0-9]{1,30})  ?-  ?(.*\S)")
_TERMINATION: Final = _line(
    rf"\(1\) Normal termination \(return value ({_INTEGER})\)"
    rf"|\(0\) Abnormal termination \(signal ({_INTEGER})\)"
)
_CORE: Final = _line(r"\(1\) Corefile in: (.*\S)")
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
_WARNING: Final = re.compile(
    r"WARNING: (?:Committed job submission into the queue with the following warning\(s\): ?)?"
)
_IMAGE_SIZE: Final = re.compile(rf"Image size of job updated: ({_INTEGER})")
_REMOTE_ERROR: Final = re.compile(r"(Error|Message) from (.*)")
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
    rf'\b([A-Za-z_]\w*)\s*=\s*(?:"((?:[^"\\]|\\.)*)("|\\?\Z)|({_INTEGER})\s*[;\]])'
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


def _record(text: str) -> dict[str, str | int]:
    """The strings and integers of a one-line record ``[ … ]``, by name in lower case."""
    return {
        name.lower(): int(number) if number else _unescape(value)
        for name, value, closing, number in _PAIR.findall(text)
        if number or closing == '"'
    }


# --- common parts of bodies -----------------------------------------------------------------


def _text_after(text: str, prefix: str) -> str:
    return text.partition(prefix)[2].strip()


def prose(text: str) -> str | None:
    """Free text without indentation; None when there is none."""
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


class SubmitNotes(NamedTuple):
    """The notes in the body of 000 or 035; ``run_…`` as in :class:`Submit`."""

    node: str | None
    batch_name: str | None
    notes: list[str]
    warnings: list[str]
    run_uuid: str | None = None
    run_name: str | None = None
    run_epoch: int | None = None


def parse_notes(body: str) -> SubmitNotes:
    """Parse the body of 000 or 035.

    A structured note takes precedence over a ``DAG Node:`` line.
    """
    structured: dict[str, str | int] = {}
    node: str | None = None
    notes: list[str] = []
    warnings: list[str] = []
    for line in (line.strip() for line in body.split("\n")):
        if line.startswith("[") and line.endswith("]") and not structured:
            structured = _record(line)
        elif (match := _DAG_NODE.match(line)) and node is None:
            node = match[1]
        elif match := _WARNING.match(line):
            warnings.append(line[match.end() :])
        elif line:
            notes.append(line)
    if not structured:
        return SubmitNotes(node, None, notes, warnings)

    def text(name: str) -> str | None:
        value = structured.get(name)
        return value if isinstance(value, str) else None

    return SubmitNotes(
        text("dagnodename") or node,
        text("jobbatchname"),
        notes,
        warnings,
        run_uuid=text("runuuid") or None,
        run_name=text("runname") or None,
        run_epoch=run_epoch(structured.get("runepoch")),
    )


def run_epoch(value: object) -> int | None:
    """The value of RunEpoch if it is an epoch's number, from 1."""
    return value if isinstance(value, int) and 1 <= value <= MAX_RUN_EPOCH else None


# --- one parser for each event type ---------------------------------------------------------


_NODE_ALONE: Final = re.compile(r" {4}DAG Node: (\S+)")
"""The body of nearly every 000 in DAGMan's own log."""


def _submit(text: str, body: str) -> Submit:
    if only := _NODE_ALONE.fullmatch(body):
        return Submit(_text_after(text, "from host:"), only[1], None, (), ())
    parsed = parse_notes(body)
    return Submit(
        _text_after(text, "from host:"),
        parsed.node,
        parsed.batch_name,
        tuple(parsed.notes),
        tuple(parsed.warnings),
        parsed.run_uuid,
        parsed.run_name,
        parsed.run_epoch,
    )


def _cluster_submit(text: str, body: str) -> ClusterSubmit:
    return ClusterSubmit(_text_after(text, "from host:"), parse_notes(body).node)


_ALIAS: Final = re.compile(r"[?&]alias=([^&>\s]+)")
_SLOT: Final = "slotname:"
_INTEGERS: Final = frozenset({"gpus", "cpus", "memory"})
_STRINGS: Final = frozenset({"annexname", "gpus_devicename"})

_SITE_NAME: Final = re.compile(
    r"(?P<evaluated>match_(?:exp_)?|machineattr)?(?:job_?)?"
    r"(?:glidein_(?P<kind>resourcename|cmssite|site)|(?<=job_)(?:cms)?site)0?",
    re.IGNORECASE,
)
"""Attributes with the site of a slot, as a startd or a job has them.

OSG's, CMS' and Fermilab's access points copy the startd's into the job (``JOBGLIDEIN_ResourceName
= "$$(…)"``); at a match the schedd writes the value to ``MATCH_EXP_…``.
"""
_SITE_KINDS: Final = ("resourcename", "cmssite", "site")
"""The most exact one first: a site may have several resources."""

_NO_SITE: Final = frozenset({"", "unknown", "undefined", "none", "error", "local job"})
"""Values where the startd has no such attribute, by the expressions of these access points."""

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
    host, alias = parse_host(_text_after(text, "on host:"))
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
        alias=alias,
        slot=machine.get(_SLOT),
        site=site_of_attributes(machine.items()),
        gpus=machine.get("gpus"),
        gpu=" + ".join(sorted(models)) or None,
        gpu_memory_mb=min(sizes, default=None),
        cpus=machine.get("cpus"),
        memory_mb=machine.get("memory"),
        has_properties=has_properties,
        annex=machine.get("annexname") or None,
    )


def site_of_attributes(attributes: Iterable[tuple[str, object]]) -> str | None:
    """The site by the names and values of a slot's or a job's attributes; None without one.

    A resource name comes before a site, and at the same rank what the schedd evaluated before
    what the job's ad may have as an expression.
    """
    found = []
    for name, value in attributes:
        match = _SITE_NAME.fullmatch(name)
        if match is None or not isinstance(value, str) or "$$(" in value:
            continue
        if value.strip().casefold() not in _NO_SITE:
            rank = _SITE_KINDS.index((match["kind"] or "site").lower())
            found.append((rank, match["evaluated"] is None, value))
    return min(found)[2] if found else None


def site_in_ad(body: str) -> str | None:
    """The site by the attributes in the body of a 028; None without one."""
    return site_of_attributes((match[1], match[2]) for match in _STRING_ATTRIBUTE.finditer(body))


def parse_host(host: str) -> tuple[str, str | None]:
    """An execute host's address, and the alias in it."""
    return _cached_host(host) if len(host) <= _REPEATED_LENGTH else _read_host(host)


def _read_host(host: str) -> tuple[str, str | None]:
    alias = _ALIAS.search(host)
    return host, alias[1] if alias else None


_cached_host = lru_cache(maxsize=1024)(_read_host)


_USUAL_GPU: Final = re.compile(
    r'; DeviceName = "([^"\\]*)"; [^\\]*; GlobalMemoryMb = ([0-9]{1,18})(?:; [^"\\]*|) \]'
)
"""A GPU's record in HTCondor's usual order: its strings before its memory."""

_LONGEST_USUAL_GPU: Final = 2000
"""Characters, five times what HTCondor writes: the pattern scans a record once per name."""


def _gpu(record: str) -> dict[str, str | int]:
    usual = _USUAL_GPU.search(record) if len(record) <= _LONGEST_USUAL_GPU else None
    if usual is None:
        return _record(record)
    return {"devicename": usual[1], "globalmemorymb": int(usual[2])}


def _machine_attribute(line: str) -> tuple[str, str | int | dict[str, str | int] | None] | None:
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
        return name, _gpu(value)
    if name in _INTEGERS:
        return name, _integer(value)
    known = name in _STRINGS or _SITE_NAME.fullmatch(name)
    return name, _string(value) if known else None


_cached_machine_attribute = lru_cache(maxsize=4096)(_machine_attribute)


def _evicted(text: str, body: str) -> Evicted:
    code = _CODE_IN_TEXT.search(text)
    flag = _FLAG.search(body)
    requeued = flag is not None and "requeued" in flag[2]
    # The requeue form writes the reason without its label, after the exit status.
    reason = (_UNSTRUCTURED if requeued else _REASON).search(body)
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
        usage=usage_table(body),
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
        core_file=_first(_CORE, body),
        run_bytes_sent=counts.get("Run Bytes Sent By"),
        run_bytes_received=counts.get("Run Bytes Received By"),
        total_bytes_sent=counts.get("Total Bytes Sent By"),
        total_bytes_received=counts.get("Total Bytes Received By"),
        ended_utc=header.parse_utc(ended) if ended else None,
        usage=usage_table(body),
    )


def _image_size(text: str, body: str) -> ImageSize:
    size = _IMAGE_SIZE.match(text)
    counts = _counts(body)
    return ImageSize(
        image_kb=int(size[1]) if size else None,
        memory_mb=counts.get("MemoryUsage of job (MB)"),
        rss_kb=counts.get("ResidentSetSize of job (KB)"),
    )


def _shadow_exception(text: str, body: str) -> ShadowException:
    counts = _counts(body)
    return ShadowException(
        reason=_before_structured(body) or "",
        bytes_sent=counts.get("Run Bytes Sent By Job"),
        bytes_received=counts.get("Run Bytes Received By Job"),
    )


def _generic(text: str, body: str) -> Generic:
    return Generic(f"{text}\n{body}".rstrip())


def _aborted(text: str, body: str) -> Aborted:
    return Aborted(prose(body))


def _held(text: str, body: str) -> Held:
    reason, code, subcode = _reason_and_code(body)
    return Held(None if reason == "Reason unspecified" else reason, code, subcode)


def _released(text: str, body: str) -> Released:
    return Released(prose(body))


def _post_script(text: str, body: str) -> PostScript:
    normal, return_value, signal = _termination(body)
    return PostScript(_first(_DAG_NODE, body), normal, return_value, signal)


def _remote_error(text: str, body: str) -> RemoteError:
    message, code, subcode = _reason_and_code(body)
    source = _REMOTE_ERROR.fullmatch(text)
    return RemoteError(
        warning=source is not None and source[1] == "Message",
        source=source[2].rstrip().removesuffix(":") if source else text,
        message=message or "",
        code=code,
        subcode=subcode,
    )


def _disconnected(text: str, body: str) -> ConnectionEvent:
    """022 and 024: the reason's lines, then one that names the host."""
    match = _RECONNECTION.search(body)
    if match is None:
        return ConnectionEvent(prose(body), None)
    host = match[1].strip().removesuffix(", rescheduling job").partition(" <")[0]
    return ConnectionEvent(prose(body[: match.start()]), host or None)


def _reconnected(text: str, body: str) -> ConnectionEvent:
    return ConnectionEvent(None, _text_after(text, "reconnected to") or None)


def _pre_skip(text: str, body: str) -> PreSkip:
    return PreSkip(_first(_DAG_NODE, body))


def _cluster_remove(text: str, body: str) -> ClusterRemove:
    completion = _first(_MATERIALIZED, body)
    complete = completion == "Complete" if completion else None
    return ClusterRemove(complete, prose(_MATERIALIZED.sub("", body)))


def _file_transfer(text: str, body: str) -> FileTransfer:
    seconds, host = _first(_QUEUED, body), _first(_HOST, body)
    return FileTransfer(
        TRANSFERS.get(text.strip()),
        int(seconds) if seconds else None,
        (host.strip() or None) if host else None,
    )


# --- the usual form of the longest bodies: one pattern takes a quarter of the time ---------

_USUAL_COUNT: Final = r"\t([0-9]{1,18})  -  "
_USUAL_END: Final = (
    rf"(\t{USAGE_TITLE} [^\n]*(?:\n\t   (?=[^\s:=])[^\n:=]++:[^\n]*+)++)?"
    r"(?:\n?\tJob terminated of its own accord at ([-0-9]{10}T[0-9:.]{8,16}Z)\b[^\n]*)?"
)
_USUAL_TERMINATION: Final = re.compile(
    r"\t\(1\) Normal termination \(return value (-?[0-9]{1,18})\)\n"
    r"(?:\t\tUsr [^\n]*\n){4}"
    rf"{_USUAL_COUNT}Run Bytes Sent By Job\n"
    rf"{_USUAL_COUNT}Run Bytes Received By Job\n"
    rf"{_USUAL_COUNT}Total Bytes Sent By Job\n"
    rf"{_USUAL_COUNT}Total Bytes Received By Job(?:\n|\Z)"
    rf"{_USUAL_END}"
)
_USUAL_EVICTION: Final = re.compile(
    r"\t\(([01])\) (?:CPU times|Job was (?:not )?checkpointed\.)\n"
    r"(?:\t\tUsr [^\n]*\n){2}"
    rf"{_USUAL_COUNT}Run Bytes Sent By Job\n"
    rf"{_USUAL_COUNT}Run Bytes Received By Job(?:\n|\Z)"
    r"(?:\tReason: ([^\n]+)(?:\n|\Z))?"
    rf"{_USUAL_END}"
)


def _usual_termination(text: str, body: str) -> Terminated:
    match = _USUAL_TERMINATION.fullmatch(body)
    if match is None:
        return _terminated(text, body)
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
        ended_utc=header.parse_utc(ended) if ended else None,
        usage=UsageTable(table) if table else (),
    )


def _usual_eviction(text: str, body: str) -> Evicted:
    match = _USUAL_EVICTION.fullmatch(body)
    if match is None:
        return _evicted(text, body)
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
        usage=UsageTable(table) if table else (),
    )


_PARSERS: Final[Mapping[int, Callable[[str, str], Detail]]] = {
    0: _submit,
    1: _execute,
    4: _usual_eviction,
    5: _usual_termination,
    6: _image_size,
    7: _shadow_exception,
    8: _generic,
    9: _aborted,
    12: _held,
    13: _released,
    15: _terminated,
    16: _post_script,
    21: _remote_error,
    22: _disconnected,
    23: _reconnected,
    24: _disconnected,
    34: _pre_skip,
    35: _cluster_submit,
    36: _cluster_remove,
    40: _file_transfer,
}

_REPEATED: Final = frozenset({9, 12, 13, 40})
"""Events whose text repeats for many jobs or hosts: each text is parsed and stored once."""


def detail(number: int, text: str, body: str) -> Detail | None:
    """The typed detail of event ``number``; None for the types that have none.

    ``text`` is the header line after the date, ``body`` the lines below it.
    """
    if number in _REPEATED and len(body) + len(text) <= _REPEATED_LENGTH:
        return _cached_detail(number, text, body)
    return _detail(number, text, body)


def _detail(number: int, text: str, body: str) -> Detail | None:
    parser = _PARSERS.get(number)
    return parser(text, body) if parser else None


_cached_detail = lru_cache(maxsize=4096)(_detail)
