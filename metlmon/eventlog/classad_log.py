"""Event logs whose events are attribute lists: what XML and JSON logs have in common.

Source followed: ``ReadUserLog::readEventClassad`` in ``read_user_log.cpp`` and
``ULogEvent::initFromClassAd`` in ``condor_event.cpp``.  There are no separators: an event is
complete when its list is closed and its line is ended.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from metlmon.eventlog import timestamps, warning_text
from metlmon.eventlog.bodies import detail
from metlmon.eventlog.classad_events import Ad, integer, wording
from metlmon.eventlog.events import Event, LogWarning, Parsed, Position
from metlmon.frozen import frozen


@frozen
class TextSpan:
    """Where one attribute list stands: [``start``, ``end``), and ``after`` its newline.

    ``whole`` is False when it is cut by the next one, which begins at ``end``: on the same
    line if ``glued``.
    """

    start: int
    end: int
    after: int
    whole: bool = True
    glued: bool = False


class Syntax(Protocol):
    """How one form writes attribute lists."""

    def find(self, data: bytes, start: int) -> TextSpan | None:
        """The next list at or behind ``start``; None when it is not all there yet."""

    def begins(self, data: bytes) -> int | None:
        """Where a list that is not closed begins; None when none does."""

    def read(self, data: bytes) -> Ad | None:
        """The attributes of one whole list; None when it is damaged."""

    def salvage(self, data: bytes) -> Ad:
        """What can be read of a damaged list."""

    def hidden(self, data: bytes) -> int | None:
        """Where a whole list stands within a damaged one, glued to it; None without one."""

    def frame(self, junk: bytes) -> bytes:
        """``junk`` between two lists without what may stand there."""


def parse(data: bytes, at: Position, limit: int | None, final: bool, syntax: Syntax) -> Parsed:
    """See :func:`metlmon.eventlog.parse`."""
    log = _ClassAdLog(data, at, syntax)
    while limit is None or len(log.events) + len(log.warnings) < limit:
        span = syntax.find(data, log.offset)
        if span is None:
            if final:
                log.tail()
            break
        log.list(span)
    return log.parsed()


class _ClassAdLog:
    """One call's progress through the bytes of one log."""

    def __init__(self, data: bytes, at: Position, syntax: Syntax) -> None:
        self.events: list[Event] = []
        self.warnings: list[LogWarning] = []
        self.offset = 0
        self._data = data
        self._at = at
        self._line = at.line
        self._last = at.last
        self._syntax = syntax

    def parsed(self) -> Parsed:
        year = self._last.year if self._last is not None else self._at.year
        after = Position(self._at.offset + self.offset, self._line, self._at.form, year, self._last)
        return Parsed(tuple(self.events), tuple(self.warnings), after)

    def list(self, span: TextSpan) -> None:
        """Read one list and what stands before it."""
        self._junk(span.start)
        raw = self._data[span.start : span.end]
        ad = self._syntax.read(raw) if span.whole else None
        hidden = self._syntax.hidden(raw) if ad is None else None
        if ad is not None:
            self._event(raw, ad, damaged=False)
        elif hidden is not None:
            self._cut(raw[:hidden], glued=True)
            self._pass(span.start + hidden)
            whole = raw[hidden:]
            self._event(whole, self._syntax.read(whole) or {}, damaged=False)
        elif span.whole:
            self._event(raw, self._syntax.salvage(raw), damaged=True)
            self.warnings.append(warning_text.bad_header(raw, self._line))
        else:
            self._cut(raw, span.glued)
        self._pass(span.after)

    def tail(self) -> None:
        """Read what stands behind the last whole list of a log that will not grow."""
        rest = self._data[self.offset :]
        begins = self._syntax.begins(rest)
        self._junk(self.offset + (len(rest) if begins is None else begins))
        if begins is not None:
            raw = rest[begins:]
            ad = self._syntax.read(raw)
            event = self._event(raw, ad or self._syntax.salvage(raw), damaged=ad is None)
            if event is not None and event.damaged:
                self.warnings.append(warning_text.unterminated(_said(event), self._line, None))
        self._pass(len(self._data))

    def _cut(self, raw: bytes, glued: bool) -> None:
        """Read a list that the next one cuts."""
        event = self._event(raw, self._syntax.salvage(raw), damaged=True)
        cut = _said(event) if event is not None else "an event that cannot be read"
        line = self._line + raw.count(b"\n")
        if glued:
            self.warnings.append(warning_text.glued(cut, "the next event", line))
        else:
            self.warnings.append(warning_text.unterminated(cut, line, "the next event"))

    def _pass(self, to: int) -> None:
        self._line += self._data.count(b"\n", self.offset, to)
        self.offset = to

    def _junk(self, end: int) -> None:
        junk = self._data[self.offset : end]
        if nuls := junk.count(b"\0"):
            self.warnings.append(warning_text.nul_bytes(nuls, self._line))
        seen = self._syntax.frame(junk).replace(b"\0", b"").strip()
        if seen:
            blank = len(junk) - len(junk.lstrip(b"\0 \t\r\n"))
            line = self._line + junk.count(b"\n", 0, blank)
            self.warnings.append(warning_text.garbage(seen, line))
        self._pass(end)

    def _event(self, raw: bytes, ad: Ad, damaged: bool) -> Event | None:
        """Take the event that ``ad`` tells of; a warning when it does not say enough.

        HTCondor leaves out an id that is -1; in a damaged event it may as well be lost.
        """
        absent = None if damaged else -1
        number = integer(ad.get("EventTypeNumber"))
        cluster, proc, subproc = (
            integer(ad.get(name, absent)) for name in ("Cluster", "Proc", "Subproc")
        )
        time = _time(ad)
        if number is None or cluster is None or proc is None or time is None:
            if not damaged:
                self.warnings.append(warning_text.bad_header(raw, self._line))
            return None
        text, body = wording(number, ad)
        damaged = damaged or b"\0" in raw
        event = Event(
            number,
            cluster,
            proc,
            subproc or 0,
            time,
            text,
            body,
            detail(number, text, body),
            self._line,
            damaged,
        )
        self._last = time
        self.events.append(event)
        self._bytes(raw, event)
        return event

    def _bytes(self, raw: bytes, event: Event) -> None:
        """Say what is wrong with the bytes of an event that was taken."""
        if nuls := raw.count(b"\0"):
            self.warnings.append(warning_text.nul_bytes(nuls, event.line))
        try:
            raw.decode()
        except UnicodeDecodeError:
            self.warnings.append(warning_text.bad_utf8(_said(event), event.line))


def _said(event: Event) -> str:
    return f"event {event.number:03d} of job {event.cluster}.{event.proc}"


def _time(ad: Ad) -> datetime | None:
    stamp = ad.get("EventTime")
    return timestamps.iso(stamp) if isinstance(stamp, str) else None
