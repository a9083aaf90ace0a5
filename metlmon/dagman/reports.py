"""Reads what DAGMan and condor_submit_dag write beside ``.dagman.out``, each into a record.

Rescue files and save files: the nodes that are done when DAGMan starts. The node status file: the
status of every node, at most a minute old. The jobstate log: one appended line per event of a node.
The metrics file: the counts of one run, written when it ends. ``<dag>.condor.sub``: DAGMan's
command line. Sources followed: ``Dag::Rescue``, ``Dag::WriteRescue``, ``Dag::WriteNodeToRescue``
and ``Dag::DumpNodeStatus`` in ``dag.cpp``, ``JobstateLog`` in ``jobstate_log.cpp``,
``DagmanMetrics::WriteMetricsFile`` in ``dagman_metrics.cpp``, and those named below; HTCondor
manual, "DAGMan Workflows".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from sys import intern
from typing import Final

from msgspec import Struct

from metlmon.dagman.commands import DoneCommand, NodeCommand
from metlmon.dagman.parser import read_commands
from metlmon.dagman.records import (
    DagMetrics,
    JobstateLine,
    NodeKind,
    Problem,
    Rescue,
    StatusFile,
    StatusNode,
)
from metlmon.redact import harmless, visible
from metlmon.text.record_json import json_object

# --- rescue files and save files -------------------------------------------------------------

_RESCUE_NUMBER: Final = re.compile(r"\.rescue([0-9]{3,6})\Z")
_RESCUE_CREATED: Final = re.compile(
    r"#\s*Created (\d{1,2})/(\d{1,2})/(\d{4}) (\d{1,2}):(\d{2}):(\d{2}) UTC", re.IGNORECASE
)
_RESCUE_FAILED: Final = re.compile(
    r"#\s*Nodes that failed:.*\n#((?:(?!<ENDLIST>).)*)", re.IGNORECASE
)
"""The names are in the comment below."""

_CAN_BE_DONE: Final = frozenset({NodeKind.JOB, NodeKind.SUBDAG, NodeKind.PROVISIONER})
"""Kinds of nodes whose command may end in DONE: DAGMan rejects it for the others."""


def rescue_number(name: str, dag_name: str) -> int | None:
    """The number in the name of a rescue file of this DAG; None for other files.

    ``dag_name`` is the name of the DAG file, the first of several on one command line: their
    rescue file is named ``x.dag_multi.rescue001``. Source followed:
    ``DagmanUtils::RescueDagName``.
    """
    for stem in (dag_name, f"{dag_name}_multi"):
        if name.startswith(f"{stem}.rescue"):
            match = _RESCUE_NUMBER.fullmatch(name, len(stem))
            return int(match.group(1)) if match else None
    return None


def newest_rescue(names: Iterable[str], dag_name: str) -> str | None:
    """The rescue file that DAGMan would use: of these ``names`` the one with the highest number."""
    numbered = [(number, name) for name in names if (number := rescue_number(name, dag_name))]
    return max(numbered)[1] if numbered else None


def read_rescue(path: Path, data: bytes) -> tuple[Rescue, list[Problem]]:
    """Read a rescue file, partial (DAGMan's default) or full, or a save file.

    Returns its contents and the problems: lines that do not belong in a rescue file, and a
    last line without newline, which is ignored (half a name can be another node's name).
    ``number`` is 0 for a name without a number (save files). Never raises.
    """
    end = data.rfind(b"\n") + 1
    done: set[str] = set()
    invalid: list[int] = []
    for source in read_commands(data[:end], path.name):
        match source.command:
            case DoneCommand(node=name):
                done.add(_unquote_name(name))
            case NodeCommand(kind=kind, name=name, done=True) if kind in _CAN_BE_DONE:
                done.add(_unquote_name(name))
            case None:
                invalid.append(source.line)
            case _:
                pass  # A full rescue file repeats the DAG file.
    problems = _invalid_lines("rescue-line", "rescue file", str(path), invalid)
    if data[end:].strip():
        text = "the last line has no end and is not used: the file is being written, or was cut"
        line = data.count(b"\n") + 1
        problems.insert(0, Problem("torn-file", str(path), line, text, error=False))
    comments = "\n".join(re.findall(r"^[ \t]*(#.*)", data[:end].decode("utf-8", "replace"), re.M))
    number, failed = _RESCUE_NUMBER.search(path.name), _RESCUE_FAILED.search(comments)
    names = failed[1].split(",") if failed else ()
    rescue = Rescue(
        path=path,
        number=int(number[1]) if number else 0,
        created=_created(comments),
        done=frozenset(done),
        failed=frozenset(visible(name.strip()) for name in names if name.strip()),
    )
    return rescue, problems


def _invalid_lines(kind: str, noun: str, file: str, lines: list[int]) -> list[Problem]:
    """One problem for all lines that do not belong in a file."""
    if not lines:
        return []
    more = f", nor are {len(lines) - 1} more lines" if len(lines) > 1 else ""
    return [Problem(kind, file, lines[0], f"no line of a {noun}{more}; passed over", error=False)]


def _unquote_name(name: str) -> str:
    """Remove the quotes that the DAG grammar allows around a node's name."""
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
        return name[1:-1]
    return name


def _created(comments: str) -> datetime | None:
    if (match := _RESCUE_CREATED.search(comments)) is None:
        return None
    month, day, year, hour, minute, second = map(int, match.groups())
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


# --- the node status file --------------------------------------------------------------------

_STRING: Final = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_STATUS_LINE: Final = re.compile(
    rf"""^[ \t]*(?:
        (?P<open>\[) | (?P<close>\]) |
        (?P<name>[A-Za-z_]\w*)[ \t]*=[ \t]*
            (?: (?P<number>-?\d{{1,18}}) | (?P<string>{_STRING}) | \{{ )
            (?P<rest>.*) |
        (?={_STRING}) (?P<items>.*)
    )""",
    re.VERBOSE | re.MULTILINE,
)
_ITEM: Final = re.compile(rf'({_STRING})|"(?s:.*)')
"""Matches an unclosed string with all that follows too: otherwise each quotation mark in it would
be tried as a start."""
_ESCAPE: Final = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_CTIME: Final = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d{2}):(\d{2}):(\d{2}) (\d{4})"
)
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
        start=1,
    )
}
"""``ctime`` writes these names in any locale; ``strptime`` depends on the locale."""

_KNOWN_STATUS: Final = range(8)
"""NodeStatus 0 not ready … 7 futile."""

_NOT_TOTALS: Final = frozenset({"Timestamp", "DagStatus"})


class _Ad(Struct):
    """One ``[ … ]``: numbers, strings, items of lists, the comment of ``Timestamp``."""

    line: int
    numbers: dict[str, int] = {}
    strings: dict[str, str] = {}
    items: list[str] = []
    comment: str = ""


def read_node_status(path: Path, data: bytes) -> tuple[StatusFile | None, list[Problem]]:
    """Read a node status file.

    Returns its contents, None for any other file (before HTCondor 8.1.6 it had another
    form), and the problems. DAGMan replaces the file by renaming, so only a copy can be
    incomplete: it then contains the complete nodes, and a problem is reported. Its formats are
    fixed: one attribute per line, strings quoted as by the ClassAd unparser. Never raises.
    """
    ads, closed, lines = _parse_ads(data.decode("utf-8", "replace"))
    problems: list[Problem] = []

    def problem(kind: str, line: int | None, text: str) -> None:
        problems.append(Problem(kind, str(path), line, text, error=False))

    head = next((ad for ad in ads if ad.strings.get("Type") == "DagStatus"), None)
    if head is None:
        problem("node-status", None, 'no [ Type = "DagStatus" … ]: not a node status file')
        return None, problems
    nodes: dict[str, StatusNode] = {}
    for ad in ads:
        if ad.strings.get("Type") == "NodeStatus":
            name, node = ad.strings.get("Node"), _parse_node(ad)
            if name is None or node is None:
                problem("node-status", ad.line, "a node without its name or status; passed over")
            else:
                nodes[visible(name)] = node
    if not closed or not any(ad.strings.get("Type") == "StatusEnd" for ad in ads):
        problem("torn-file", lines, "the file is not complete: nodes behind this line are missing")
    status = StatusFile(
        path=path,
        dag_files=tuple(head.items),
        epoch=head.numbers.get("Timestamp"),
        local=_parse_ctime(head.comment),
        dag_status=head.numbers.get("DagStatus"),
        totals={k: v for k, v in head.numbers.items() if k not in _NOT_TOTALS},
        nodes=nodes,
    )
    return status, problems


def _parse_node(ad: _Ad) -> StatusNode | None:
    status = ad.numbers.get("NodeStatus")
    if status is None or status not in _KNOWN_STATUS:
        return None
    return StatusNode(
        status=status,
        details=harmless(ad.strings.get("StatusDetails", "")),
        retry_count=ad.numbers.get("RetryCount", 0),
        procs_queued=ad.numbers.get("JobProcsQueued", 0),
    )


def _parse_ads(text: str) -> tuple[list[_Ad], bool, int]:
    """The complete ads, whether the last one is closed, and the number of lines."""
    ads: list[_Ad] = []
    ad: _Ad | None = None
    line, counted = 1, 0
    for match in _STATUS_LINE.finditer(text):
        name, number, string, rest = match.group("name", "number", "string", "rest")
        if match["open"]:
            line, counted = line + text.count("\n", counted, match.start()), match.start()
            ad = _Ad(line)
        elif ad is None:
            continue
        elif match["close"]:
            if "Type" in ad.strings:
                ads.append(ad)
            ad = None
        elif number is not None:
            ad.numbers[name] = int(number)
            ad.comment = rest if name == "Timestamp" else ad.comment
        elif string is not None:
            ad.strings[name] = _unquote_string(string)
        else:
            ad.items += map(
                _unquote_string, filter(None, _ITEM.findall(rest or match["items"] or ""))
            )
    return ads, ad is None, text.count("\n") + 1


def _unquote_string(string: str) -> str:
    inner = string[1:-1]
    return _ESCAPE.sub(_unescape, inner) if "\\" in inner else inner


def _unescape(match: re.Match[str]) -> str:
    escaped = match.group(1)
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPED.get(escaped, escaped)


def _parse_ctime(comment: str) -> datetime | None:
    """The access point's local time from ``; /* "Sat Nov 21 00:17:41 2026" */``."""
    match = _CTIME.search(comment)
    if match is None or match.group(1) not in _MONTHS:
        return None
    day, hour, minute, second, year = map(int, match.groups()[1:])
    try:
        return datetime(year, _MONTHS[match.group(1)], day, hour, minute, second)
    except ValueError:
        return None


# --- the jobstate log ------------------------------------------------------------------------

_JOBSTATE_LINE: Final = re.compile(
    rb"(?P<epoch>\d{1,15}) (?:"
    rb"INTERNAL \*\*\* (?P<internal>[A-Z_]{1,64})(?: (?P<argument>\S+))? \*\*\*"
    rb"|(?P<node>\S+) (?P<event>[A-Z][A-Z0-9_]{0,63}) (?P<job>\S+)"
    rb"(?: \S+)?(?: \S+)? -?\d{1,12}"
    rb")\s*"
)
_JOB: Final = re.compile(rb"(-?\d{1,12})\.-?\d{1,12}")
_JOBSTATE_VALUE: Final = re.compile(rb"-?\d{1,12}")

LONGEST_LINE: Final = 64 * 1024
"""Bytes: DAGMan stores 1023 of a node's name, so longer lines are not its own; a file without
line ends is then not read again from its start on each update."""


def read_jobstate(
    data: bytes, final: bool = False, *, file: str = "jobstate log", line: int = 1
) -> tuple[list[JobstateLine], list[Problem], int]:
    """Read the complete lines of ``data``.

    Returns the lines' records, at most one problem (the first invalid line and the number of
    others), and the number of bytes used; the rest must be passed again with the bytes that
    follow. ``final``: nothing follows, so a last line without newline counts. ``file`` and
    ``line`` (1-based, of the first byte) are used in the problem. Never raises.

    A recovery continues the log without repeating lines; a rescue continues the sequence numbers.
    """
    used = len(data) if final else data.rfind(b"\n") + 1
    if len(data) - used > LONGEST_LINE:
        used = len(data)
    records: list[JobstateLine] = []
    invalid: list[int] = []
    for number, text in enumerate(data[:used].split(b"\n"), start=line):
        record = _parse_record(text) if len(text) <= LONGEST_LINE else None
        if record is not None:
            records.append(record)
        elif text.strip():
            invalid.append(number)
    return records, _invalid_lines("jobstate-line", "jobstate log", file, invalid), used


def _parse_record(line: bytes) -> JobstateLine | None:
    match = _JOBSTATE_LINE.fullmatch(line)
    if match is None:
        return None
    epoch, internal, argument, node, event, job = match.groups()
    if internal:
        job = argument
    ids = _JOB.fullmatch(job) if job else None
    value = _JOBSTATE_VALUE.fullmatch(job) if job and not ids else None
    return JobstateLine(
        epoch=int(epoch),
        node=None if internal else visible(node.decode("utf-8", "replace")),
        event=intern((internal or event).decode("ascii")),
        cluster=int(ids[1]) if ids else None,
        value=int(job) if value else None,
    )


# --- the metrics file ------------------------------------------------------------------------

_LATEST: Final = 253402300799.0
"""The end of the year 9999 in seconds since 1970, the limit of ``datetime``."""


def read_metrics(path: Path, data: bytes) -> tuple[DagMetrics | None, list[Problem]]:
    """Read a ``.metrics`` file of either version.

    Returns the metrics, None when it is another file or incomplete, and the problems. Version 1
    writes "jobs" for nodes; version 2 (``metrics_version``) counts jobs beside them. Never raises.
    """
    values = json_object(data)
    if values is None:
        text = "no JSON object: not a metrics file, or one being written"
        return None, [Problem("metrics", str(path), None, text, error=False)]
    noun = "jobs" if (_integer(values.get("metrics_version")) or 1) == 1 else "nodes"

    def nodes(result: str) -> int | None:
        own = _integer(values.get(f"{noun}_{result}"))
        return None if own is None else own + (_integer(values.get(f"dag_{noun}_{result}")) or 0)

    dagman_id = values.get("dagman_id")
    metrics = DagMetrics(
        path=path,
        start=_seconds(values.get("start_time")),
        end=_seconds(values.get("end_time")),
        exitcode=_integer(values.get("exitcode")),
        dag_status=_integer(values.get("DagStatus", values.get("dag_status"))),
        rescue_number=_integer(values.get("rescue_dag_number")),
        total_nodes=_integer(values.get(f"total_{noun}")),
        succeeded=nodes("succeeded"),
        failed=nodes("failed"),
        # The cluster; before 8.4 it followed the schedd's address and a semicolon.
        dagman_id=dagman_id.rpartition(";")[2] or None if isinstance(dagman_id, str) else None,
    )
    return metrics, []


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LATEST else None


# --- DAGMan's command line, from its own submit file -----------------------------------------

_ARGUMENTS: Final = re.compile(r"^[ \t]*arguments[ \t]*=[ \t]*(\S.*)$", re.I | re.M)
_CONFIGURED: Final = re.compile(rb"_CONDOR_DAGMAN_(?!LOG\b)")
"""The prefix of DAGMan's configuration variables in its ``environment``, except that of its log,
``_CONDOR_DAGMAN_LOG``. Their values are not read."""

_WORD: Final = re.compile(r"(?:[^\s']|'[^']*(?:''[^']*)*(?:'|\Z))+")
_QUOTED: Final = re.compile(r"'([^']*(?:''[^']*)*)(?:'|\Z)")


class CondorSub(Struct, frozen=True):
    """DAGMan's command line.

    The DAG files in their order (several make one workflow whose nodes are named ``0.A``,
    ``1.A``), whether each is read in its own directory (``-UseDagDir``), and ``rescue_from``,
    the number after ``-DoRescueFrom``. ``words``: the whole command line. ``configured``:
    DAGMan has a configuration file of its own.
    """

    dag_files: tuple[str, ...]
    use_dag_dir: bool
    rescue_from: int | None = None
    words: tuple[str, ...] = ()
    configured: bool = False


def read_condor_sub(data: bytes) -> CondorSub:
    """Read a ``.condor.sub`` file; other files have no DAG files. Never raises.

    Nothing but its ``arguments`` is read: its ``environment`` can hold secrets. Sources followed:
    ``DagmanUtils::writeSubmitFile`` in ``dagman_utils.cpp`` (which writes them), ``main_init`` in
    ``dagman_main.cpp`` (which reads them), and ``ArgList::AppendArgsV2Quoted`` in
    ``condor_arglist.cpp`` for the quoting.
    """
    arguments = _ARGUMENTS.findall(data.decode("utf-8", "replace"))
    words = split_arguments(arguments[-1].rstrip(" \t\r")) if arguments else []
    return _parse_words(words, _CONFIGURED.search(data) is not None)


def read_dagman_arguments(arguments: str) -> CondorSub:
    """Read ``Arguments`` of the ad of DAGMan's job (new syntax). Never raises."""
    return _parse_words([_unquote_word(word) for word in _WORD.findall(arguments)])


def _parse_words(words: list[str], configured: bool = False) -> CondorSub:
    flags = [word.lower() for word in words]
    values = list(zip(flags, words[1:], strict=False))
    rescue = [value for flag, value in values if flag == "-dorescuefrom"]
    number = int(rescue[-1]) if rescue and re.fullmatch(r"\d{1,9}", rescue[-1]) else 0
    return CondorSub(
        dag_files=tuple(value for flag, value in values if flag == "-dag"),
        use_dag_dir="-usedagdir" in flags,
        rescue_from=number or None,
        words=tuple(words),
        configured=configured,
    )


def split_arguments(arguments: str) -> list[str]:
    """Split the arguments: the new syntax in double quotes, else the old one (blanks)."""
    if not arguments.startswith('"'):
        return arguments.replace('\\"', '"').split()
    inner = arguments[1:].removesuffix('"').replace('""', '"')
    return [_unquote_word(word) for word in _WORD.findall(inner)]


def _unquote_word(word: str) -> str:
    """Remove the quotes of ``'a b'``; a doubled single quote inside means one."""
    return _QUOTED.sub(lambda quoted: quoted.group(1).replace("''", "'"), word)
