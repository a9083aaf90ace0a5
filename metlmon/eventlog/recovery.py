"""Recovers the headers of events in damaged stretches of a log.

A write cut short by a full disk or a file server leaves an event without its separator, and
the next event's header appears in its body: at the start of a line, or in the middle of
the cut one. A job can also write text that looks like a header (008, hold reasons,
notes). The rules that distinguish the two:

- At the start of a line, or after NULs, it is a header: HTCondor indents text from
  other sources.
- In mid-line it must be exactly what HTCondor writes for its number: ids at least three digits
  wide, the number's own first text up to the end of the line, and then a line that may
  begin its body. A quoted header is followed by something else: ``Code N Subcode N`` after
  a held job's reason, a quotation mark after a path.
- In an 008, 028 or 033, whose text is entirely the job's, mid-line text is never a header.
- In prose (a reason, a note) that ends the block the case is ambiguous: it is a header
  when it cuts a word, or when a body of its own follows; after a blank or a
  quotation mark it is a quotation, reported by a warning.
- In lines that only HTCondor writes (usage, bytes, first texts) it is a header; in a
  ClassAd line of a 001 or 000 it is one unless the line is closed as such lines are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from metlmon.eventlog import warning_text
from metlmon.eventlog.events import LogWarning
from metlmon.eventlog.header import CANDIDATE, KNOWN_NUMBERS, Calendar, Header, first_text_fits
from metlmon.frozen import frozen

_LONGEST_FIRST_TEXT: Final = 2048
"""Bound of the first text of a mid-line header: addresses take a few hundred bytes."""

_OWN_TEXT: Final = frozenset({8, 28, 33})
"""Events whose text, header line included, is written by a job or a user."""

_MANY_LINES_OF_PROSE: Final = frozenset({0, 21, 35})
"""Events with several lines of foreign text: a line after a quotation proves nothing."""

_STRICT_IDS: Final = re.compile(rb"[0-9]{3} \((?:[0-9]{3}|-[0-9]{2})[0-9]*\.(?:[0-9]{3}|-[0-9]{2})")
_NO_PROSE: Final = frozenset({3, 5, 6, 10, 14, 15, 16, 40})
"""Events whose bodies contain only text of HTCondor itself."""

_ONLY_HTCONDOR: Final = re.compile(
    rb"\s*(?:\([01]\) |Usr [0-9]|-?[0-9]+ (?: ?-  ?(?:[A-Z]|\Z)| ?\Z)|Partitionable |\.)"
    rb"|\s*DAG Node: \Z"
    rb"|\t   \w[^:]*(?: :|\Z)|\t\t\Z"
)
"""The cut part of a line that only HTCondor can have written."""

_RECORD: Final = re.compile(rb"\s*(?:\[|\w+ = [\[{\"])")
_QUOTING: Final = b" \t\"'`([{<=:,;"
_TORN_SEPARATOR: Final = (b".", b"..", b"...")

_ENDING: Final = rb"\s*\([01]\) "
_PROSE: Final = rb"\s+(?!Code -?[0-9]+ Subcode )\S"
_NOTE: Final = rb"    \S"
_MUST_FOLLOW: Final[Mapping[int, re.Pattern[bytes]]] = {
    3: re.compile(rb"\s*Usr [0-9]"),
    4: re.compile(_ENDING),
    5: re.compile(_ENDING),
    7: re.compile(rb"\s"),
    12: re.compile(_PROSE),
    15: re.compile(_ENDING),
    16: re.compile(_ENDING),
    21: re.compile(rb"\s"),
    22: re.compile(_NOTE),
    23: re.compile(_NOTE),
    24: re.compile(_NOTE),
    34: re.compile(_NOTE),
}
"""The first line of the body, for events that must have one."""

_MAY_FOLLOW: Final[Mapping[int, re.Pattern[bytes]]] = {
    0: re.compile(_NOTE),
    1: re.compile(rb"\s+(?:SlotName:|\w+ = )"),
    6: re.compile(rb"\s+[0-9]+  -  (?:MemoryUsage|ResidentSetSize|ProportionalSetSize) of job "),
    9: re.compile(_PROSE),
    10: re.compile(rb"\s+Number of processes"),
    13: re.compile(_PROSE),
    14: re.compile(rb"\s+SlotName:"),
    35: re.compile(_NOTE),
    36: re.compile(rb"\s+Materialized "),
    40: re.compile(rb"\s+(?:Transferring to host:|Seconds spent in queue:)"),
}
"""The same for events whose body is optional. Numbers in neither may have any body."""

_BODY_OF_ITS_OWN: Final = frozenset({1, 3, 4, 5, 6, 10, 14, 15, 16, 36, 40})
"""Events whose bodies begin with a line that cannot be mistaken for prose."""

_NO_BODY: Final = frozenset({2, 8, 11, 29, 30, 31, 32, 33})


@frozen
class LogFragment:
    """A header in a damaged block, its line in the file, and whether it is mid-line."""

    header: Header
    line: int
    mid_line: bool


@dataclass(slots=True)
class _ScanPosition:
    """The position of the search: the line number, and the line's offset in the block."""

    line: int
    line_start: int = 0
    scanned: int = 0

    def move(self, block: bytes, offset: int) -> None:
        newlines = block.count(b"\n", self.scanned, offset)
        if newlines:
            self.line += newlines
            self.line_start = block.rindex(b"\n", self.scanned, offset) + 1
        self.scanned = offset


def find_fragments(
    block: bytes, line: int, calendar: Calendar
) -> tuple[list[LogFragment], LogWarning | None]:
    """Find the headers in ``block``, the bytes between two separators.

    ``line`` is the line number of its first line. Also returns at most one warning, about
    text that may have been a header.
    """
    position = _ScanPosition(line)
    fragments: list[LogFragment] = []
    ambiguous: LogWarning | None = None
    for candidate in CANDIDATE.finditer(block):
        header = calendar.read(block, candidate.start())
        if header is None:
            continue
        position.move(block, header.start)
        if header.start == 0 or block[header.start - 1] in b"\n\0":
            fragments.append(LogFragment(header, position.line, mid_line=False))
            continue
        if not _is_whole(block, header):
            continue
        within = fragments[-1].header if fragments else None
        if within is None or _is_glued(block, header, within, position.line_start):
            fragments.append(LogFragment(header, position.line, mid_line=True))
        elif ambiguous is None:
            ambiguous = warning_text.ambiguous_header(
                within.event_label, header.event_label, position.line
            )
    return fragments, ambiguous


def event_end(block: bytes, fragment: LogFragment, next_fragment: LogFragment) -> tuple[int, bool]:
    """The end of the event at ``fragment``, and whether it was cut off.

    When the next fragment is glued to the separator itself, the event is complete.
    """
    end = next_fragment.header.start
    line_start = block.rfind(b"\n", fragment.header.start, end) + 1
    if next_fragment.mid_line and line_start and block[line_start:end] in _TORN_SEPARATOR:
        return line_start, False
    return end, True


def _is_whole(block: bytes, header: Header) -> bool:
    """Whether a mid-line header and the text after it are as HTCondor writes them."""
    if header.number not in KNOWN_NUMBERS or not _STRICT_IDS.match(block, header.start):
        return False
    line_end = block.find(b"\n", header.text_start, header.text_start + _LONGEST_FIRST_TEXT)
    if line_end < 0:
        line_end = len(block)
        if line_end - header.text_start > _LONGEST_FIRST_TEXT:
            return False
    text = block[header.text_start : line_end].removesuffix(b"\r").decode("utf-8", "replace")
    cut = CANDIDATE.search(text.encode()) is not None
    if not cut and not first_text_fits(header.number, text):
        return False
    return cut or _body_fits(
        block[line_end + 1 : line_end + 1 + _LONGEST_FIRST_TEXT], header.number
    )


def _body_fits(body: bytes, number: int) -> bool:
    if CANDIDATE.search(body.partition(b"\n")[0]):
        return True
    if number in _MUST_FOLLOW:
        return _MUST_FOLLOW[number].match(body) is not None
    if not body.strip():
        return True
    if number in _NO_BODY:
        return False
    return number not in _MAY_FOLLOW or _MAY_FOLLOW[number].match(body) is not None


def _is_glued(block: bytes, header: Header, within: Header, line_start: int) -> bool:
    """Whether a whole mid-line header cuts off the event ``within``, not quoted by it."""
    if within.number in _OWN_TEXT:
        return False
    if line_start <= within.start or within.number in _NO_PROSE:
        return True
    if _ONLY_HTCONDOR.match(block, line_start, header.start):
        return True
    newline = block.find(b"\n", header.text_start)
    line_end = newline if newline >= 0 else len(block)
    if within.number == 1 or _RECORD.match(block, line_start, header.start):
        # A complete record or string is closed at the end of its line.
        return block[header.text_start : line_end].rstrip()[-1:] not in (b'"', b"]", b"}")
    if block[header.start - 1] not in _QUOTING:
        return True
    has_body = bool(block[line_end + 1 : line_end + 3].strip(b"\r\n"))
    return has_body and (
        within.number not in _MANY_LINES_OF_PROSE or header.number in _BODY_OF_ITS_OWN
    )
