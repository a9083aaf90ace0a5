"""Parses the text form of event logs: headers, bodies, separators, and damage.

Source followed: ``ReadUserLog::readEventNormal`` in ``read_user_log.cpp``. An event is
complete when its separator is. Every decision depends only on the bytes between two
separators, not on how the bytes were divided among calls.

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
from typing import Final

from msgspec import Struct

from metlmon.eventlog.events import (
    EVENT_TYPES,
    Event,
    ImageSize,
    LogWarning,
    Parsed,
    Position,
    read_detail,
)
from metlmon.eventlog.header import BEGINNING, CANDIDATE, HEADER, Calendar, Header
from metlmon.redact import plain, redact_secrets

_SEPARATOR: Final = re.compile(rb"\n\.\.\.\r?\n")
_EMPTY: Final = re.compile(rb"\.\.\.\r?\n")
_LAST_SEPARATOR: Final = re.compile(rb"(?:\A|\n)\.\.\.\r?\Z")

_IMAGE_SIZE: Final = re.compile(
    HEADER.pattern.replace(rb"([0-9]{3})", rb"006", 1)
    + rb"(Image size of job updated: [0-9]{1,18})\n"
    rb"(\t([0-9]{1,18})  -  MemoryUsage of job \(MB\)\n"
    rb"\t[0-9]{1,18}  -  ResidentSetSize of job \(KB\))\n\.\.\.\n"
)
"""A whole 006 event in its usual form, nine in ten events of a training's log: one pattern
halves the time. Anything that differs by one byte is parsed like other events."""

_LINES_OF_IMAGE_SIZE: Final = 4


def parse(data: bytes, position: Position, limit: int | None, final: bool) -> Parsed:
    """See :func:`metlmon.eventlog.reader.parse`."""
    log = _TextLog(data, position)
    while limit is None or len(log.events) + len(log.warnings) < limit:
        if not (log.read_image_size() or log.read_block()):
            if final:
                log.read_tail()
            break
    return log.result()


class _TextLog:
    """The state of one parsing call over the bytes of one log."""

    def __init__(self, data: bytes, position: Position) -> None:
        self.events: list[Event] = []
        self.warnings: list[LogWarning] = []
        self._data = data
        self._start = position
        self._offset = 0
        self._line = position.line
        self._calendar = Calendar(position.year, position.last)

    def result(self) -> Parsed:
        after = Position(
            offset=self._start.offset + self._offset,
            line=self._line,
            form=self._start.form,
            year=self._calendar.year,
            last=self._calendar.last,
        )
        return Parsed(tuple(self.events), tuple(self.warnings), after)

    def read_image_size(self) -> bool:
        """Read one 006 event of the usual form with its separator, if it comes next."""
        match = _IMAGE_SIZE.match(self._data, self._offset)
        if match is None:
            return False
        cluster, proc, subproc, iso, yearless, text, body, memory = match.groups()
        time = self._calendar.time(iso, yearless)
        if time is None:
            return False
        self._calendar.advance(iso or yearless, time)
        self.events.append(
            Event(
                number=6,
                cluster=int(cluster),
                proc=int(proc),
                subproc=int(subproc),
                time=time,
                text=text.decode("ascii"),
                body=body.decode("ascii"),
                detail=ImageSize(int(memory)),
                line=self._line,
            )
        )
        self._line += _LINES_OF_IMAGE_SIZE
        self._offset = match.end()
        return True

    def read_block(self) -> bool:
        """Read up to and including the next separator, if any."""
        data, start = self._data, self._offset
        if empty := _EMPTY.match(data, start):
            self._read_block(start, empty.end())
        elif separator := _SEPARATOR.search(data, start):
            self._read_block(separator.start() + 1, separator.end())
        else:
            return False
        return True

    def _read_block(self, end: int, after: int) -> None:
        """Read the bytes up to ``end``, the start of a separator that ends at ``after``."""
        data, start = self._data, self._offset
        header = self._calendar.read(data, start)
        if (
            header is not None
            and CANDIDATE.search(data, header.text_start, end) is None
            and data.find(b"\0", start, end) < 0
        ):
            self._add_event(data, header, header.text_start, end, self._line, damaged=False)
        else:
            self._read_damaged(data[start:end], cut=False)
        self._line += data.count(b"\n", start, after)
        self._offset = after

    def read_tail(self) -> None:
        """Read what follows the last separator of a log that will not grow."""
        rest = self._data[self._offset :]
        if separator := _LAST_SEPARATOR.search(rest):
            self._read_block(self._offset + rest.index(b"...", separator.start()), len(self._data))
            return
        self._read_damaged(rest, cut=True)
        self._line += rest.count(b"\n")
        self._offset = len(self._data)

    def _read_damaged(self, block: bytes, cut: bool) -> None:
        """Read a block that is not exactly one event; ``cut``: no separator ends it."""
        if nuls := block.count(b"\0"):
            before = block.count(b"\n", 0, block.index(b"\0"))
            self.warnings.append(nul_bytes_warning(nuls, self._line + before))
        fragments, ambiguous = find_fragments(block, self._line, self._calendar)
        self._warn_about_junk(block[: fragments[0].header.start if fragments else len(block)])
        for index, fragment in enumerate(fragments):
            next_fragment = fragments[index + 1] if index + 1 < len(fragments) else None
            self._read_fragment(block, fragment, next_fragment, cut)
        if ambiguous is not None:
            self.warnings.append(ambiguous)

    def _read_fragment(
        self, block: bytes, fragment: EventFragment, next_fragment: EventFragment | None, cut: bool
    ) -> None:
        header = fragment.header
        end = next_fragment.header.start if next_fragment else len(block)
        if next_fragment is not None:
            end, damaged = event_end(block, fragment, next_fragment)
        else:
            damaged = cut
        damaged = damaged or block.find(b"\0", header.start, end) >= 0
        self._add_event(block, header, header.text_start, end, fragment.line, damaged)
        if next_fragment is not None and next_fragment.mid_line:
            follows = next_fragment.header.event_label
            text = f"{header.event_label} was cut here; {follows} follows on the same line"
            self.warnings.append(LogWarning("glued-header", next_fragment.line, text))
        elif next_fragment is not None:
            self.warnings.append(
                unterminated_warning(
                    header.event_label, next_fragment.line, next_fragment.header.event_label
                )
            )
        elif cut:
            self.warnings.append(unterminated_warning(header.event_label, fragment.line, None))

    def _warn_about_junk(self, junk: bytes) -> None:
        """Warn about bytes where a header should be."""
        content = junk.replace(b"\0", b"").strip()
        if not content:
            return
        warning = bad_header_warning if BEGINNING.match(content) else garbage_warning
        blank = len(junk) - len(junk.lstrip(b"\0 \t\r\n"))
        self.warnings.append(warning(content, self._line + junk.count(b"\n", 0, blank)))

    def _add_event(
        self, data: bytes, header: Header, start: int, end: int, line: int, damaged: bool
    ) -> None:
        raw = data[start:end]
        try:
            decoded = raw.decode()
        except UnicodeDecodeError:
            decoded = raw.decode("utf-8", "replace")
            self.warnings.append(bad_utf8_warning(header.event_label, line))
        if "\0" in decoded:
            decoded = decoded.replace("\0", "")
        if "\r" in decoded:
            decoded = decoded.replace("\r\n", "\n").removesuffix("\r")
        is_cut = damaged and not decoded.endswith("\n")
        text, newline, body = decoded.partition("\n")
        body = body.removesuffix("\n")
        lines = text, body
        if is_cut:
            # Digits may be missing from a code in the line in which it was cut.
            lines = (text, _without_last_code(body)) if newline else (_without_last_code(text), "")
        self._calendar.advance(header.stamp, header.time)
        self.events.append(
            Event(
                number=header.number,
                cluster=header.cluster,
                proc=header.proc,
                subproc=header.subproc,
                time=header.time,
                text=text,
                body=body,
                detail=read_detail(header.number, *lines),
                line=line,
                damaged=damaged,
            )
        )


_CODE: Final = re.compile(r"\bCode \d")


def _without_last_code(text: str) -> str:
    """A text without a code in its last line."""
    code = _CODE.search(text, text.rfind("\n") + 1)
    return text if code is None else text[: code.start()].rstrip()


# --- headers in damaged stretches ------------------------------------------------------------

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
"""The start of a cut line that only HTCondor can have written."""

_QUOTING: Final = b" \t\"'`([{<=:,;"
_TORN_SEPARATOR: Final = (b".", b"..", b"...")

_END_OF_A_HOLD: Final = re.compile(rb"\s*Code -?[0-9]+ Subcode ")
"""The line after a hold reason: a mid-line header right before it is part of the reason."""

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
    """Find the headers in ``block``, and at most one warning. ``line``: that of its start."""
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
            text = f"is quoted in the text of {within.event_label}, or was glued to it"
            text = f"{header.event_label} {text}; not taken as an event"
            ambiguous = LogWarning("glued-header", line, text)
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
    if header.number not in EVENT_TYPES or not _STRICT_IDS.match(block, header.start):
        return False
    line_end = block.find(b"\n", header.text_start, header.text_start + _LONGEST_FIRST_TEXT)
    if line_end < 0:
        line_end = len(block)
    text = block[header.text_start : min(line_end, header.text_start + _LONGEST_FIRST_TEXT)]
    kind = EVENT_TYPES[header.number]
    if kind.pattern is not None:
        first_text = kind.pattern or re.escape(str(kind.line))
        if not re.fullmatch(first_text, text.removesuffix(b"\r").decode("utf-8", "replace")):
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


# --- warnings about damage; quoted text is bounded and sanitized -----------------------------

MAX_EXCERPT: Final = 80
"""Characters of a log that a warning quotes: enough to locate them with grep."""


def excerpt(data: bytes) -> str:
    """The start of ``data`` on one line, without control characters or secrets."""
    text = redact_secrets(data[: 16 * MAX_EXCERPT].decode("utf-8", "replace"))
    return plain(text, MAX_EXCERPT)


def garbage_warning(data: bytes, line: int) -> LogWarning:
    """Warn about bytes that belong to no event."""
    return LogWarning("garbage", line, f"no event begins here, skipped: {excerpt(data)}")


def bad_header_warning(data: bytes, line: int) -> LogWarning:
    """Warn about a line that begins like a header but cannot be read as one."""
    return LogWarning("bad-header", line, f"unreadable event header, skipped: {excerpt(data)}")


def unterminated_warning(cut: str, line: int, next_header: str | None) -> LogWarning:
    """Warn about an event cut off by the next header or the end of a dead log."""
    reason = (
        f"{next_header} begins before its end" if next_header else "the log ends before its end"
    )
    return LogWarning("unterminated-event", line, f"{cut} was cut: {reason}")


def nul_bytes_warning(count: int, line: int) -> LogWarning:
    """Warn about a run of NUL bytes, as file servers leave them."""
    noun = "byte" if count == 1 else "bytes"
    return LogWarning("nul-bytes", line, f"{count} NUL {noun}; events may be lost here")


def bad_utf8_warning(event: str, line: int) -> LogWarning:
    """Warn about bytes that are not UTF-8; they are read as U+FFFD."""
    return LogWarning("bad-utf8", line, f"{event} holds bytes that are not UTF-8")
