"""Parses the text form of event logs: headers, bodies, and separators ``...``.

Source followed: ``ReadUserLog::readEventNormal`` in ``read_user_log.cpp``. An event is
complete when its separator is. Every decision depends only on the bytes between two
separators, not on how the bytes were divided among calls.
"""

from __future__ import annotations

import re
from typing import Final

from metlmon.eventlog import recovery, warning_text
from metlmon.eventlog.bodies import detail
from metlmon.eventlog.events import Event, ImageSize, LogWarning, Parsed, Position
from metlmon.eventlog.header import BEGINNING, CANDIDATE, HEADER, Calendar, Header
from metlmon.eventlog.recovery import EventFragment

_SEPARATOR: Final = re.compile(rb"\n\.\.\.\r?\n")
_EMPTY: Final = re.compile(rb"\.\.\.\r?\n")
_LAST_SEPARATOR: Final = re.compile(rb"(?:\A|\n)\.\.\.\r?\Z")

_IMAGE_SIZE: Final = re.compile(
    HEADER.pattern.replace(rb"([0-9]{3})", rb"006", 1)
    + rb"(Image size of job updated: ([0-9]{1,18}))\n"
    rb"(\t([0-9]{1,18})  -  MemoryUsage of job \(MB\)\n"
    rb"\t([0-9]{1,18})  -  ResidentSetSize of job \(KB\))\n\.\.\.\n"
)
"""A whole 006 event in its usual form, nine in ten events of a training's log: one pattern
halves the time. Anything that differs by one byte is parsed like other events."""

_LINES_OF_IMAGE_SIZE: Final = 4


def parse(data: bytes, position: Position, limit: int | None, final: bool) -> Parsed:
    """See :func:`metlmon.eventlog.parse`."""
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
        cluster, proc, subproc, iso, yearless, text, image, body, memory, rss = match.groups()
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
                detail=ImageSize(int(image), int(memory), int(rss)),
                line=self._line,
            )
        )
        self._line += _LINES_OF_IMAGE_SIZE
        self._offset = match.end()
        return True

    def read_block(self) -> bool:
        """Read up to and including the next separator, if there is one."""
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
            self.warnings.append(warning_text.nul_bytes(nuls, self._line + before))
        fragments, ambiguous = recovery.find_fragments(block, self._line, self._calendar)
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
            end, damaged = recovery.event_end(block, fragment, next_fragment)
        else:
            damaged = cut
        damaged = damaged or block.find(b"\0", header.start, end) >= 0
        self._add_event(block, header, header.text_start, end, fragment.line, damaged)
        if next_fragment is not None and next_fragment.mid_line:
            self.warnings.append(
                warning_text.glued(
                    header.event_label, next_fragment.header.event_label, next_fragment.line
                )
            )
        elif next_fragment is not None:
            self.warnings.append(
                warning_text.unterminated(
                    header.event_label, next_fragment.line, next_fragment.header.event_label
                )
            )
        elif cut:
            self.warnings.append(warning_text.unterminated(header.event_label, fragment.line, None))

    def _warn_about_junk(self, junk: bytes) -> None:
        """Warn about bytes where a header should be."""
        content = junk.replace(b"\0", b"").strip()
        if not content:
            return
        warning = warning_text.bad_header if BEGINNING.match(content) else warning_text.garbage
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
            self.warnings.append(warning_text.bad_utf8(header.event_label, line))
        if "\0" in decoded:
            decoded = decoded.replace("\0", "")
        if "\r" in decoded:
            decoded = decoded.replace("\r\n", "\n").removesuffix("\r")
        text, _, body = decoded.partition("\n")
        body = body.removesuffix("\n")
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
                detail=detail(header.number, text, body),
                line=line,
                damaged=damaged,
            )
        )
