"""Parses event logs of ClassAds: one ad per event, in XML or JSON.

Source followed: ``ReadUserLog::readEventClassad`` in ``read_user_log.cpp`` and
``ULogEvent::initFromClassAd``, ``toClassAd`` and ``formatBody`` in ``condor_event.cpp``;
``classad::ClassAdXMLUnParser`` and ``classad::ClassAdJsonUnParser`` for the notation. An ad begins
at the start of a line; the line that closes it begins with the closing bracket, or with the opening
one when the ad is one line. An ad that is cut off is skipped with a warning. Every decision depends
only on the bytes up to the end of a closing line, not on how the bytes were divided among calls.

The same event in two logs must compare equal whatever their forms, so its first text is that of the
text form. The body is empty if the detail contains all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from metlmon.eventlog import header, text_parser
from metlmon.eventlog.events import (
    EVENT_TYPES,
    Ad,
    Attributes,
    Detail,
    Event,
    LogFormat,
    LogWarning,
    Parsed,
    Position,
    Value,
    integer,
    literal,
    printable,
    type_of,
)
from metlmon.text.record_json import json_object

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Characters that HTCondor writes in XML logs although XML forbids them."""


class _Notation(NamedTuple):
    """One way to write ads.

    ``start`` matches the opening bracket of an ad at the start of a line or after NULs, ``end`` the
    line that closes an ad, ``frame`` the text that is allowed between two ads. ``read`` returns the
    attributes of a whole ad, None for anything else.
    """

    start: re.Pattern[bytes]
    end: re.Pattern[bytes]
    frame: re.Pattern[bytes]
    read: Callable[[str], Ad | None]


def parse(data: bytes, position: Position, limit: int | None, final: bool) -> Parsed:
    """See :func:`metlmon.eventlog.reader.parse`."""
    log = _ClassAdLog(data, position, _XML if position.form is LogFormat.XML else _JSON)
    while limit is None or len(log.events) + len(log.warnings) < limit:
        if not log.read_block():
            if final:
                log.read_tail()
            break
    return log.result()


class _ClassAdLog:
    """The state of one parsing call over the bytes of one log."""

    def __init__(self, data: bytes, position: Position, notation: _Notation) -> None:
        self.events: list[Event] = []
        self.warnings: list[LogWarning] = []
        self._data = data
        self._start = position
        self._offset = 0
        self._line = position.line
        self._last = position.last
        self._notation = notation

    def result(self) -> Parsed:
        year = self._last.year if self._last is not None else self._start.year
        offset = self._start.offset + self._offset
        after = Position(offset, self._line, self._start.form, year, self._last)
        return Parsed(tuple(self.events), tuple(self.warnings), after)

    def read_block(self) -> bool:
        """Read up to and including the next line that closes an ad, if any."""
        end = self._notation.end.search(self._data, self._offset)
        if end is None:
            return False
        self._read_ads(end.end(), closed=True)
        return True

    def read_tail(self) -> None:
        """Read what follows the last whole ad of a log that will not grow."""
        self._read_ads(len(self._data), closed=False)

    def _read_ads(self, stop: int, *, closed: bool) -> None:
        """Read the ads before ``stop``; only the last one can be whole."""
        data = self._data
        starts = [
            match.start() for match in self._notation.start.finditer(data, self._offset, stop)
        ]
        bounds = [*starts, stop]
        self._warn_about_junk(bounds[0])
        for start, end in pairwise(bounds):
            raw = data[start:end]
            if end < stop:
                self.warnings.append(
                    text_parser.unterminated_warning(_CUT, self._line, "the next event")
                )
            elif not self._read_whole(raw):
                self.warnings.append(
                    text_parser.bad_header_warning(raw, self._line)
                    if closed
                    else text_parser.unterminated_warning(_CUT, self._line, None)
                )
            self._advance(end)

    def _read_whole(self, raw: bytes) -> bool:
        ad = self._notation.read(raw.decode("utf-8", "replace").replace("\0", ""))
        if ad is None:
            return False
        self._add_event(raw, ad)
        return True

    def _advance(self, offset: int) -> None:
        self._line += self._data.count(b"\n", self._offset, offset)
        self._offset = offset

    def _warn_about_junk(self, end: int) -> None:
        junk = self._data[self._offset : end]
        if nuls := junk.count(b"\0"):
            self.warnings.append(text_parser.nul_bytes_warning(nuls, self._line))
        content = self._notation.frame.sub(b"", junk).replace(b"\0", b"").strip()
        if content:
            blank = len(junk) - len(junk.lstrip(b"\0 \t\r\n"))
            line = self._line + junk.count(b"\n", 0, blank)
            self.warnings.append(text_parser.garbage_warning(content, line))
        self._advance(end)

    def _add_event(self, raw: bytes, ad: Ad) -> None:
        """Add the event that ``ad`` describes; warn when required attributes are missing.

        HTCondor omits an id that is -1.
        """
        number = integer(ad.get("EventTypeNumber"))
        cluster, proc, subproc = (
            integer(ad.get(name, -1)) for name in ("Cluster", "Proc", "Subproc")
        )
        time = _time(ad)
        if number is None or cluster is None or proc is None or time is None:
            self.warnings.append(text_parser.bad_header_warning(raw, self._line))
            return
        text, body, detail = event_parts(number, ad)
        nuls = raw.count(b"\0")
        event = Event(
            number=number,
            cluster=cluster,
            proc=proc,
            subproc=subproc or 0,
            time=time,
            text=text,
            body=body,
            detail=detail,
            line=self._line,
            damaged=nuls > 0,
        )
        self._last = time
        self.events.append(event)
        if nuls:
            self.warnings.append(text_parser.nul_bytes_warning(nuls, event.line))
        try:
            raw.decode()
        except UnicodeDecodeError:
            label = f"event {number:03d} of job {cluster}.{proc}"
            self.warnings.append(text_parser.bad_utf8_warning(label, event.line))


_CUT: Final = "an event that cannot be read"


def _time(ad: Ad) -> datetime | None:
    stamp = ad.get("EventTime")
    return header.parse_iso(stamp) if isinstance(stamp, str) else None


def _read_xml(text: str) -> Ad | None:
    from xml.etree import ElementTree  # only few logs are XML

    try:
        ad = _xml_value(ElementTree.fromstring(_CONTROL.sub("", text)))
    except (ElementTree.ParseError, RecursionError):
        return None
    return ad if isinstance(ad, dict) else None


def _xml_value(element: Element) -> Value:
    """The value of an element; an expression as JSON logs write it."""
    text = element.text or ""
    try:
        match element.tag:
            case "c":
                return {item.get("n", ""): _xml_value(item[0]) for item in element if len(item)}
            case "l":
                return [_xml_value(item) for item in element]
            case "b":
                return element.get("v") == "t"
            case "i":
                return int(text)
            case "r":
                return float(text)
            case "e":
                return f"/Expr({text})/"
            case "s" | "at" | "rt":
                return text
            case _:
                return None
    except ValueError:
        return None


_JSON: Final = _Notation(
    start=re.compile(rb"(?<![^\n\0])\{"),
    end=re.compile(rb"^(?:\0*\{[^\n]*)?\}[ \t]*\r?\n", re.MULTILINE),
    frame=re.compile(rb"[\[\],]"),
    read=json_object,
)
_XML: Final = _Notation(
    start=re.compile(rb"(?<![^\n\0])<c>"),
    end=re.compile(rb"^(?:\0*<c>[^\n]*)?</c>[ \t]*\r?\n", re.MULTILINE),
    frame=re.compile(rb"<\?xml[^<>]*>|<!DOCTYPE[^<>]*>|</?(?:classads|eventlog)>"),
    read=_read_xml,
)


# --- from an ad to the event's text, body and detail -----------------------------------------

_COMMON: Final = frozenset(
    {"Cluster", "Proc", "Subproc", "EventTime", "EventTypeNumber", "MyType", "EventHead"}
)
_AD_INFORMATION: Final = 28


def event_parts(number: int, ad: Ad) -> tuple[str, str, Detail | None]:
    """The (text, body, detail) of event ``number``."""
    attributes = Attributes(ad)
    kind = type_of(number)
    detail = kind.read_ad(attributes) if kind.read_ad is not None else None
    text, _, more = kind.first_line(attributes).partition("\n")
    if detail is None:
        # The lines of an event type of a newer HTCondor, or the reason of a known one.
        more = (attributes["EventPayloadLines"] or attributes["Reason"]).rstrip("\n") or more
    is_new = number not in EVENT_TYPES and "EventPayloadLines" not in ad
    if number == _AD_INFORMATION or is_new or not (text or more):
        hidden = () if number == _AD_INFORMATION else _COMMON
        names = (name for name in sorted(ad, key=str.lower) if name not in hidden)
        more = "\n".join(f"{printable(name)} = {literal(ad[name])}" for name in names)
    return text, more, detail
