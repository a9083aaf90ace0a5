"""The text form of a job event log: headers, bodies, and separators ``...``.

Source followed: ``ReadUserLog::readEventNormal`` in ``read_user_log.cpp``.  An event is
complete when its separator is.  All decisions are taken within the bytes between two
separators, so that they do not depend on how the bytes came in.
"""

from __future__ import annotations

import re
from typing import Final

from metlmon.eventlog import recovery, warning_text
from metlmon.eventlog.bodies import detail
from metlmon.eventlog.events import Event, ImageSize, LogWarning, Parsed, Position
from metlmon.eventlog.header import BEGINNING, CANDIDATE, HEADER, Calendar, Header
from metlmon.eventlog.recovery import LogFragment

_SEPARATOR: Final = re.compile(rb"\n\.\.\.\r?\n")
_EMPTY: Final = re.compile(rb"\.\.\.\r?\n")
_LAST_SEPARATOR: Final = re.compile(rb"(?:\A|\n)\.\.\.\r?\Z")

_IMAGE_SIZE: Final = re.compile(
    HEADER.pattern.replace(rb"([0-9]{3})", rb"006", 1)
    + rb"(Image size of job updated: ([0-9]{1,18}))\n"
    rb"(\t([0-9]{1,18})  -  MemoryUsage of job \(MB\)\n"
    rb"\t([0-9]{1,18})  -  ResidentSetSize of job \(KB\))\n\.\.\.\n"
)
"""A whole 006 as nine in ten events of a training's log are: read by one pattern, in half
the time. Whatever differs in one byte goes the way of all events."""

_LINES_OF_IMAGE_SIZE: Final = 4


def parse(data: bytes, at: Position, limit: int | None, final: bool) -> Parsed:
    """See :func:`metlmon.eventlog.parse`."""
    log = _TextLog(data, at)
    while limit is None or len(log.events) + len(log.warnings) < limit:
        if not (log.image_size() or log.block()):
            if final:
                log.tail()
            break
    return log.parsed()


class _TextLog:
    """One call's progress through the bytes of one log."""

    def __init__(self, data: bytes, at: Position) -> None:
        self.events: list[Event] = []
        self.warnings: list[LogWarning] = []
        self._data = data
        self._at = at
        self._offset = 0
        self._line = at.line
        self._calendar = Calendar(at.year, at.last)

    def parsed(self) -> Parsed:
        after = Position(
            self._at.offset + self._offset,
            self._line,
            self._at.form,
            self._calendar.year,
            self._calendar.last,
        )
        return Parsed(tuple(self.events), tuple(self.warnings), after)

    def image_size(self) -> bool:
        """Read one usual 006 and its separator, if that is what comes next."""
        found = _IMAGE_SIZE.match(self._data, self._offset)
        if found is None:
            return False
        cluster, proc, subproc, iso, yearless, text, image, body, memory, rss = found.groups()
        time = self._calendar.time(iso, yearless)
        if time is None:
            return False
        self._calendar.passed(iso or yearless, time)
        self.events.append(
            Event(
                6,
                int(cluster),
                int(proc),
                int(subproc),
                time,
                text.decode("ascii"),
                body.decode("ascii"),
                ImageSize(int(image), int(memory), int(rss)),
                self._line,
            )
        )
        self._line += _LINES_OF_IMAGE_SIZE
        self._offset = found.end()
        return True

    def block(self) -> bool:
        """Read up to the next separator and over it, if there is one."""
        data, start = self._data, self._offset
        if empty := _EMPTY.match(data, start):
            self._block(start, empty.end())
        elif separator := _SEPARATOR.search(data, start):
            self._block(separator.start() + 1, separator.end())
        else:
            return False
        return True

    def _block(self, end: int, after: int) -> None:
        """Read the bytes up to ``end``, where a separator begins that ends at ``after``."""
        data, start = self._data, self._offset
        header = self._calendar.read(data, start)
        if (
            header is not None
            and CANDIDATE.search(data, header.text_start, end) is None
            and data.find(b"\0", start, end) < 0
        ):
            self._event(data, header, header.text_start, end, self._line, damaged=False)
        else:
            self._damage(data[start:end], cut=False)
        self._line += data.count(b"\n", start, after)
        self._offset = after

    def tail(self) -> None:
        """Read what stands behind the last separator of a log that will not grow."""
        rest = self._data[self._offset :]
        if separator := _LAST_SEPARATOR.search(rest):
            self._block(self._offset + rest.index(b"...", separator.start()), len(self._data))
            return
        self._damage(rest, cut=True)
        self._line += rest.count(b"\n")
        self._offset = len(self._data)

    def _damage(self, block: bytes, cut: bool) -> None:
        """Read a block that is not just one event; ``cut`` when no separator ends it."""
        if nuls := block.count(b"\0"):
            before = block.count(b"\n", 0, block.index(b"\0"))
            self.warnings.append(warning_text.nul_bytes(nuls, self._line + before))
        pieces, refused = recovery.pieces(block, self._line, self._calendar)
        self._junk(block[: pieces[0].header.start if pieces else len(block)])
        for number, piece in enumerate(pieces):
            follower = pieces[number + 1] if number + 1 < len(pieces) else None
            self._piece(block, piece, follower, cut)
        if refused is not None:
            self.warnings.append(refused)

    def _piece(
        self, block: bytes, piece: LogFragment, follower: LogFragment | None, cut: bool
    ) -> None:
        header = piece.header
        end = follower.header.start if follower else len(block)
        if follower is not None:
            end, damaged = recovery.without_torn_separator(block, piece, follower)
        else:
            damaged = cut
        damaged = damaged or block.find(b"\0", header.start, end) >= 0
        self._event(block, header, header.text_start, end, piece.line, damaged)
        if follower is not None and follower.mid_line:
            self.warnings.append(
                warning_text.glued(header.said, follower.header.said, follower.line)
            )
        elif follower is not None:
            self.warnings.append(
                warning_text.unterminated(header.said, follower.line, follower.header.said)
            )
        elif cut:
            self.warnings.append(warning_text.unterminated(header.said, piece.line, None))

    def _junk(self, junk: bytes) -> None:
        """Say what stands where a header should be."""
        seen = junk.replace(b"\0", b"").strip()
        if not seen:
            return
        said = warning_text.bad_header if BEGINNING.match(seen) else warning_text.garbage
        blank = len(junk) - len(junk.lstrip(b"\0 \t\r\n"))
        self.warnings.append(said(seen, self._line + junk.count(b"\n", 0, blank)))

    def _event(
        self, data: bytes, header: Header, start: int, end: int, line: int, damaged: bool
    ) -> None:
        raw = data[start:end]
        try:
            said = raw.decode()
        except UnicodeDecodeError:
            said = raw.decode("utf-8", "replace")
            self.warnings.append(warning_text.bad_utf8(header.said, line))
        if "\0" in said:
            said = said.replace("\0", "")
        if "\r" in said:
            said = said.replace("\r\n", "\n").removesuffix("\r")
        text, _, body = said.partition("\n")
        body = body.removesuffix("\n")
        self._calendar.passed(header.stamp, header.time)
        self.events.append(
            Event(
                header.number,
                header.cluster,
                header.proc,
                header.subproc,
                header.time,
                text,
                body,
                detail(header.number, text, body),
                line,
                damaged,
            )
        )
