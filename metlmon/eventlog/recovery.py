"""Finding the headers again where a log is damaged.

A write that a full disk or a file server cut leaves an event without its separator, and
the next event's header stands in its body: at the beginning of a line, or in the middle of
the cut one.  But a job can write text that looks like a header, too (008, hold reasons,
notes), so the two must be told apart:

- At the beginning of a line, or behind NULs, a header is a header: HTCondor indents
  what others may write.
- In mid-line it must be all that HTCondor writes for its number: ids at least three wide, the
  number's own first text up to the end of the line, and then a line that its body may
  begin with. What quotes a header goes on behind it differently: a held job's reason with
  ``Code N Subcode N``, a path with a quotation mark.
- In an 008, 028 or 033, whose text is all the job's, mid-line text is never a header.
- In prose (a reason, a note) that ends the block it stays open: it is a header
  when it cuts a word, or when a body of its own follows; behind a blank or a
  quotation mark it is a quotation.  Then a warning says so.
- In the lines that only HTCondor writes (usage, bytes, first texts) it is a header; in a
  ClassAd line of a 001 or 000 it is one unless the line is closed as such a line is.
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
"""No first text that a header in mid-line may have is longer: addresses take a few hundred."""

_OWN_TEXT: Final = frozenset({8, 28, 33})
"""Events whose text, header line included, is what a job or a user wrote."""

_MANY_LINES_OF_PROSE: Final = frozenset({0, 21, 35})
"""Events with several lines of foreign text, so that a line behind a quotation proves nothing."""

_STRICT_IDS: Final = re.compile(rb"[0-9]{3} \((?:[0-9]{3}|-[0-9]{2})[0-9]*\.(?:[0-9]{3}|-[0-9]{2})")
_NO_PROSE: Final = frozenset({3, 5, 6, 10, 14, 15, 16, 40})
"""Events whose bodies hold nothing but what HTCondor itself says."""

_ONLY_HTCONDOR: Final = re.compile(
    rb"\s*(?:\([01]\) |Usr [0-9]|-?[0-9]+ (?: ?-  ?(?:[A-Z]|\Z)| ?\Z)|Partitionable |\.)"
    rb"|\s*DAG Node: \Z"
    rb"|\t   \w[^:]*(?: :|\Z)|\t\t\Z"
)
"""What the cut part of a line looks like that only HTCondor can have begun."""

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
"""What the first line of the body looks like, of the events that must have one."""

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
"""The same, of the events that may be without a body. Numbers in neither may have any."""

_BODY_OF_ITS_OWN: Final = frozenset({1, 3, 4, 5, 6, 10, 14, 15, 16, 36, 40})
"""Events whose bodies begin with a line that no prose is taken for."""

_NO_BODY: Final = frozenset({2, 8, 11, 29, 30, 31, 32, 33})


@frozen
class LogFragment:
    """A header in a damaged block, its line in the file, and whether it is in mid-line."""

    header: Header
    line: int
    mid_line: bool


@dataclass(slots=True)
class _Place:
    """Where the search has come to: the line, and where it begins in the block."""

    line: int
    line_start: int = 0
    seen: int = 0

    def move(self, block: bytes, to: int) -> None:
        newlines = block.count(b"\n", self.seen, to)
        if newlines:
            self.line += newlines
            self.line_start = block.rindex(b"\n", self.seen, to) + 1
        self.seen = to


def pieces(
    block: bytes, line: int, calendar: Calendar
) -> tuple[list[LogFragment], LogWarning | None]:
    """The headers in ``block``, the bytes between two separators, whose first line is ``line``.

    With them comes at most one warning, about text that may have been a header.
    """
    place = _Place(line)
    found: list[LogFragment] = []
    refused: LogWarning | None = None
    for candidate in CANDIDATE.finditer(block):
        header = calendar.read(block, candidate.start())
        if header is None:
            continue
        place.move(block, header.start)
        if header.start == 0 or block[header.start - 1] in b"\n\0":
            found.append(LogFragment(header, place.line, mid_line=False))
            continue
        if not _is_whole(block, header):
            continue
        within = found[-1].header if found else None
        if within is None or _is_glued(block, header, within, place.line_start):
            found.append(LogFragment(header, place.line, mid_line=True))
        elif refused is None:
            refused = warning_text.not_glued(within.said, header.said, place.line)
    return found, refused


def without_torn_separator(
    block: bytes, piece: LogFragment, follower: LogFragment
) -> tuple[int, bool]:
    """Where the event at ``piece`` ends, and whether it was cut.

    When the follower is glued to the separator itself, nothing of the event is missing.
    """
    end = follower.header.start
    line_start = block.rfind(b"\n", piece.header.start, end) + 1
    if follower.mid_line and line_start and block[line_start:end] in _TORN_SEPARATOR:
        return line_start, False
    return end, True


def _is_whole(block: bytes, header: Header) -> bool:
    """Whether a header in mid-line, and what follows it, is as HTCondor writes it."""
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
    """Whether a whole header in mid-line cuts the event ``within``, or is quoted by it."""
    if within.number in _OWN_TEXT:
        return False
    if line_start <= within.start or within.number in _NO_PROSE:
        return True
    if _ONLY_HTCONDOR.match(block, line_start, header.start):
        return True
    newline = block.find(b"\n", header.text_start)
    line_end = newline if newline >= 0 else len(block)
    if within.number == 1 or _RECORD.match(block, line_start, header.start):
        # A record or string that is whole is closed at the end of its line.
        return block[header.text_start : line_end].rstrip()[-1:] not in (b'"', b"]", b"}")
    if block[header.start - 1] not in _QUOTING:
        return True
    has_body = bool(block[line_end + 1 : line_end + 3].strip(b"\r\n"))
    return has_body and (
        within.number not in _MANY_LINES_OF_PROSE or header.number in _BODY_OF_ITS_OWN
    )
