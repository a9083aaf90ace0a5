"""Recovers the headers of events in damaged stretches of a log.

A write cut short by a full disk or a file server leaves an event without its separator, and
the next event's header appears in its body: at the start of a line, or in the middle of
the cut one. A job can also write text that looks like a header (008, hold reasons,
notes). The rules that distinguish the two:

- At the start of a line, or after NULs, it is a header: HTCondor indents text from
  other sources.
- In mid-line it must be exactly what HTCondor writes for its number: ids at least three digits
  wide, the number's own first text up to the end of the line, and no line after it that belongs
  to the event around it.
- In an 008, 028 or 033, whose text is entirely the job's, mid-line text is never a header.
- In prose (a reason, a note) after a blank or a quotation mark it is a header when more lines
  follow; at the end of the block it is a quotation, reported by a warning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from metlmon.eventlog import warning_text
from metlmon.eventlog.events import EVENT_NAMES, LogWarning
from metlmon.eventlog.header import CANDIDATE, Calendar, Header

_FIRST_TEXTS: Final[Mapping[int, str]] = {
    0: r"Job submitted from host: [^\"']*",
    1: r"Job executing on host: [^\"']*",
    2: r"\(-?\d+\) .*",
    3: r"Job was checkpointed\.",
    4: r"Job was evicted\.( Code -?\d+ Subcode -?\d+)?",
    5: r"Job terminated\.",
    6: r"Image size of job updated: -?\d+",
    7: r"Shadow exception!",
    9: r"Job was aborted( by the user)?\.",
    10: r"Job was suspended\.",
    11: r"Job was unsuspended\.",
    12: r"Job was held\.",
    13: r"Job was released\.",
    14: r"Node -?\d+ executing on host: [^\"']*",
    15: r"Node -?\d+ terminated\.",
    16: r"POST Script terminated\.",
    21: r"(Error|Message) from .*:",
    22: r"Job disconnected, attempting to reconnect",
    23: r"Job reconnected to .*",
    24: r"Job reconnection failed",
    34: r"PRE script return value is PRE_SKIP value",
    35: r"Cluster submitted from host: [^\"']*",
    36: r"Cluster removed",
    40: r"(Entered queue to transfer|Started transferring|Finished transferring)"
    r" (input|output) files",
}
"""What HTCondor writes after the date, for the events that damage is likely to reach."""

_FIRST_TEXT: Final = {number: re.compile(text) for number, text in _FIRST_TEXTS.items()}

_LONGEST_FIRST_TEXT: Final = 2048
"""Bound of the first text of a mid-line header: addresses take a few hundred bytes."""

_OWN_TEXT: Final = frozenset({8, 28, 33})
"""Events whose text, header line included, is written by a job or a user."""

_MANY_LINES_OF_PROSE: Final = frozenset({0, 21, 35})
"""Events with several lines of foreign text: a line after a quotation proves nothing."""

_NO_PROSE: Final = frozenset({1, 3, 5, 6, 10, 14, 15, 16, 40})
"""Events whose bodies contain only text of HTCondor itself and closed strings."""

_BODY_OF_ITS_OWN: Final = frozenset({1, 3, 4, 5, 6, 10, 14, 15, 16, 36, 40})
"""Events whose bodies begin with a line that cannot be mistaken for prose."""

_STRICT_IDS: Final = re.compile(rb"[0-9]{3} \((?:[0-9]{3}|-[0-9]{2})[0-9]*\.(?:[0-9]{3}|-[0-9]{2})")
_ONLY_HTCONDOR: Final = re.compile(
    rb"\s*(?:\([01]\) |Usr [0-9]|-?[0-9]+ (?: ?-  ?(?:[A-Z]|\Z)| ?\Z)|Partitionable |\.)"
    rb"|\s*DAG Node: \Z"
    rb"|\t   \w[^:]*(?: :|\Z)|\t\t\Z"
)
"""The cut part of a line that only HTCondor can have written."""

_QUOTING: Final = b" \t\"'`([{<=:,;"
_TORN_SEPARATOR: Final = (b".", b"..", b"...")

_END_OF_A_HOLD: Final = re.compile(rb"\s*Code -?[0-9]+ Subcode ")
"""The line after a hold reason, which the reason's last line cannot be an event before."""

_STATUS: Final = re.compile(rb"\s*\([01]\) ")
_WITH_STATUS: Final = frozenset({4, 5, 15, 16})
"""Events whose bodies begin with an exit status."""


class EventFragment(Struct, frozen=True):
    """A header in a damaged block, its line in the file, and whether it is mid-line."""

    header: Header
    line: int
    mid_line: bool


def find_fragments(
    block: bytes, line: int, calendar: Calendar
) -> tuple[list[EventFragment], LogWarning | None]:
    """Find the headers in ``block``, the bytes between two separators.

    ``line`` is the line number of its first line. Also returns at most one warning, about
    text that may have been a header.
    """
    line_start = scanned = 0
    fragments: list[EventFragment] = []
    ambiguous: LogWarning | None = None
    for candidate in CANDIDATE.finditer(block):
        header = calendar.read(block, candidate.start())
        if header is None:
            continue
        newlines = block.count(b"\n", scanned, header.start)
        if newlines:
            line += newlines
            line_start = block.rindex(b"\n", scanned, header.start) + 1
        scanned = header.start
        if header.start == 0 or block[header.start - 1] in b"\n\0":
            fragments.append(EventFragment(header, line, mid_line=False))
            continue
        if not _is_whole(block, header):
            continue
        within = fragments[-1].header if fragments else None
        if within is None or _is_glued(block, header, within, line_start):
            fragments.append(EventFragment(header, line, mid_line=True))
        elif ambiguous is None:
            ambiguous = warning_text.ambiguous_header(within.event_label, header.event_label, line)
    return fragments, ambiguous


def event_end(
    block: bytes, fragment: EventFragment, next_fragment: EventFragment
) -> tuple[int, bool]:
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
    if header.number not in EVENT_NAMES or not _STRICT_IDS.match(block, header.start):
        return False
    line_end = block.find(b"\n", header.text_start, header.text_start + _LONGEST_FIRST_TEXT)
    if line_end < 0:
        line_end = len(block)
    text = block[header.text_start : min(line_end, header.text_start + _LONGEST_FIRST_TEXT)]
    first_text = _FIRST_TEXT.get(header.number)
    if first_text and not first_text.fullmatch(text.removesuffix(b"\r").decode("utf-8", "replace")):
        return False
    if header.number in _WITH_STATUS:
        return _STATUS.match(block, line_end + 1) is not None
    return _END_OF_A_HOLD.match(block, line_end + 1) is None


def _is_glued(block: bytes, header: Header, within: Header, line_start: int) -> bool:
    """Whether a whole mid-line header cuts off the event ``within``, not quoted by it."""
    if within.number in _OWN_TEXT:
        return False
    if line_start <= within.start or within.number in _NO_PROSE:
        return True
    if _ONLY_HTCONDOR.match(block, line_start, header.start):
        return True
    if block[header.start - 1] not in _QUOTING:
        return True
    line_end = block.find(b"\n", header.text_start)
    has_body = line_end >= 0 and bool(block[line_end + 1 : line_end + 3].strip(b"\r\n"))
    return has_body and (
        within.number not in _MANY_LINES_OF_PROSE or header.number in _BODY_OF_ITS_OWN
    )
