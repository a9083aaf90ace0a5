"""Reads the node status file: DAGMan's status of every node, at most a minute old.

Source followed: ``Dag::DumpNodeStatus`` in ``dag.cpp`` (fixed formats, one attribute per
line, strings quoted as by the ClassAd unparser); HTCondor manual, "Capturing the Status of
Nodes in a File".
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from metlmon.dagman.records import Problem, StatusFile, StatusNode
from metlmon.redact import redact_secrets

_STRING: Final = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_LINE: Final = re.compile(
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
    incomplete: it then contains the complete nodes, and a problem is reported. Never raises.
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
                nodes[name] = node
    if not closed or not any(ad.strings.get("Type") == "StatusEnd" for ad in ads):
        problem("torn-file", lines, "the file is not complete: nodes behind this line are missing")
    return _status_file(path, head, nodes), problems


def _status_file(path: Path, head: _Ad, nodes: dict[str, StatusNode]) -> StatusFile:
    return StatusFile(
        path=path,
        dag_files=tuple(head.items),
        epoch=head.numbers.get("Timestamp"),
        local=_parse_ctime(head.comment),
        dag_status=head.numbers.get("DagStatus"),
        totals={k: v for k, v in head.numbers.items() if k not in _NOT_TOTALS},
        nodes=nodes,
    )


def _parse_node(ad: _Ad) -> StatusNode | None:
    status = ad.numbers.get("NodeStatus")
    if status is None or status not in _KNOWN_STATUS:
        return None
    return StatusNode(
        status=status,
        details=redact_secrets(ad.strings.get("StatusDetails", "")),
        retry_count=ad.numbers.get("RetryCount", 0),
        procs_queued=ad.numbers.get("JobProcsQueued", 0),
        procs_held=ad.numbers.get("JobProcsHeld", 0),
    )


def _parse_ads(text: str) -> tuple[list[_Ad], bool, int]:
    """The complete ads, whether the last one is closed, and the number of lines."""
    ads: list[_Ad] = []
    ad: _Ad | None = None
    line, counted = 1, 0
    for match in _LINE.finditer(text):
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
            ad.strings[name] = _unquote(string)
        else:
            ad.items += map(_unquote, filter(None, _ITEM.findall(rest or match["items"] or "")))
    return ads, ad is None, text.count("\n") + 1


def _unquote(string: str) -> str:
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
