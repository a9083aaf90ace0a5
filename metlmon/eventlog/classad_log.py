"""Parses logs of attribute lists: the common part of XML and JSON logs.

Source followed: ``ReadUserLog::readEventClassad`` in ``read_user_log.cpp`` and
``ULogEvent::initFromClassAd`` in ``condor_event.cpp``. There are no separators: an event is
complete when its list is closed and its line has ended.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from metlmon.eventlog import timestamps, warning_text
from metlmon.eventlog.bodies import detail
from metlmon.eventlog.classad_events import Ad, integer, text_form
from metlmon.eventlog.events import Event, LogWarning, Parsed, Position
from metlmon.frozen import frozen


@frozen
class TextSpan:
    """The span of one attribute list: [``start``, ``end``).

    ``after`` is the offset after its newline.
    ``whole`` is False when it is cut off by the next one, which begins at ``end``, on the
    same line if ``glued``.
    """

    start: int
    end: int
    after: int
    whole: bool = True
    glued: bool = False


class Syntax(Protocol):
    """The syntax of attribute lists in one log form."""

    def find(self, data: bytes, start: int) -> TextSpan | None:
        """The next list at or after ``start``; None while it is incomplete."""

    def find_start(self, data: bytes) -> int | None:
        """The start of a list that need not be closed; None without one."""

    def read(self, data: bytes) -> Ad | None:
        """Parse one whole list; None when it is damaged."""

    def salvage(self, data: bytes) -> Ad:
        """Parse as many attributes of a damaged list as possible."""

    def find_glued(self, data: bytes) -> int | None:
        """The start of a whole list glued into a damaged one; None without one."""

    def strip_frame(self, junk: bytes) -> bytes:
        """Remove the text that is allowed between two lists from ``junk``."""


def parse(
    data: bytes, position: Position, limit: int | None, final: bool, syntax: Syntax
) -> Parsed:
    """See :func:`metlmon.eventlog.parse`."""
    log = _ClassAdLog(data, position, syntax)
    while limit is None or len(log.events) + len(log.warnings) < limit:
        span = syntax.find(data, log.offset)
        if span is None:
            if final:
                log.read_tail()
            break
        log.read_list(span)
    return log.result()


class _ClassAdLog:
    """The state of one parsing call over the bytes of one log."""

    def __init__(self, data: bytes, position: Position, syntax: Syntax) -> None:
        self.events: list[Event] = []
        self.warnings: list[LogWarning] = []
        self.offset = 0
        self._data = data
        self._start = position
        self._line = position.line
        self._last = position.last
        self._syntax = syntax

    def result(self) -> Parsed:
        year = self._last.year if self._last is not None else self._start.year
        after = Position(
            self._start.offset + self.offset, self._line, self._start.form, year, self._last
        )
        return Parsed(tuple(self.events), tuple(self.warnings), after)

    def read_list(self, span: TextSpan) -> None:
        """Read one list and the bytes before it."""
        self._warn_about_junk(span.start)
        raw = self._data[span.start : span.end]
        ad = self._syntax.read(raw) if span.whole else None
        glued_start = self._syntax.find_glued(raw) if ad is None else None
        if ad is not None:
            self._add_event(raw, ad, damaged=False)
        elif glued_start is not None:
            self._read_cut(raw[:glued_start], glued=True)
            self._advance(span.start + glued_start)
            whole = raw[glued_start:]
            self._add_event(whole, self._syntax.read(whole) or {}, damaged=False)
        elif span.whole:
            self._add_event(raw, self._syntax.salvage(raw), damaged=True)
            self.warnings.append(warning_text.bad_header(raw, self._line))
        else:
            self._read_cut(raw, span.glued)
        self._advance(span.after)

    def read_tail(self) -> None:
        """Read what follows the last whole list of a log that will not grow."""
        rest = self._data[self.offset :]
        start = self._syntax.find_start(rest)
        self._warn_about_junk(self.offset + (len(rest) if start is None else start))
        if start is not None:
            raw = rest[start:]
            ad = self._syntax.read(raw)
            event = self._add_event(raw, ad or self._syntax.salvage(raw), damaged=ad is None)
            if event is not None and event.damaged:
                self.warnings.append(
                    warning_text.unterminated(_event_label(event), self._line, None)
                )
        self._advance(len(self._data))

    def _read_cut(self, raw: bytes, glued: bool) -> None:
        """Read a list that is cut off by the next one."""
        event = self._add_event(raw, self._syntax.salvage(raw), damaged=True)
        cut = _event_label(event) if event is not None else "an event that cannot be read"
        line = self._line + raw.count(b"\n")
        if glued:
            self.warnings.append(warning_text.glued(cut, "the next event", line))
        else:
            self.warnings.append(warning_text.unterminated(cut, line, "the next event"))

    def _advance(self, offset: int) -> None:
        self._line += self._data.count(b"\n", self.offset, offset)
        self.offset = offset

    def _warn_about_junk(self, end: int) -> None:
        junk = self._data[self.offset : end]
        if nuls := junk.count(b"\0"):
            self.warnings.append(warning_text.nul_bytes(nuls, self._line))
        content = self._syntax.strip_frame(junk).replace(b"\0", b"").strip()
        if content:
            blank = len(junk) - len(junk.lstrip(b"\0 \t\r\n"))
            line = self._line + junk.count(b"\n", 0, blank)
            self.warnings.append(warning_text.garbage(content, line))
        self._advance(end)

    def _add_event(self, raw: bytes, ad: Ad, damaged: bool) -> Event | None:
        """Add the event that ``ad`` describes; warn when required attributes are missing.

        HTCondor omits an id that is -1; in a damaged event it may have been lost instead.
        """
        default = None if damaged else -1
        number = integer(ad.get("EventTypeNumber"))
        cluster, proc, subproc = (
            integer(ad.get(name, default)) for name in ("Cluster", "Proc", "Subproc")
        )
        time = _time(ad)
        if number is None or cluster is None or proc is None or time is None:
            if not damaged:
                self.warnings.append(warning_text.bad_header(raw, self._line))
            return None
        text, body = text_form(number, ad)
        damaged = damaged or b"\0" in raw
        event = Event(
            number=number,
            cluster=cluster,
            proc=proc,
            subproc=subproc or 0,
            time=time,
            text=text,
            body=body,
            detail=detail(number, text, body),
            line=self._line,
            damaged=damaged,
        )
        self._last = time
        self.events.append(event)
        self._warn_about_bytes(raw, event)
        return event

    def _warn_about_bytes(self, raw: bytes, event: Event) -> None:
        """Warn about NULs and invalid UTF-8 in the bytes of an accepted event."""
        if nuls := raw.count(b"\0"):
            self.warnings.append(warning_text.nul_bytes(nuls, event.line))
        try:
            raw.decode()
        except UnicodeDecodeError:
            self.warnings.append(warning_text.bad_utf8(_event_label(event), event.line))


def _event_label(event: Event) -> str:
    return f"event {event.number:03d} of job {event.cluster}.{event.proc}"


def _time(ad: Ad) -> datetime | None:
    stamp = ad.get("EventTime")
    return timestamps.iso(stamp) if isinstance(stamp, str) else None
