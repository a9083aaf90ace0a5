"""Reads event logs of any form: the entry points of this package.

Source followed: HTCondor manual, "Managing a Job > Job Event Log Codes", and
``read_user_log.cpp`` and ``condor_event.cpp`` of the public HTCondor source.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from metlmon.eventlog import classad_log, fast_path, text_parser
from metlmon.eventlog.events import FastResult, LogFormat, Parsed, Position
from metlmon.eventlog.header import HEADER

_BLANK: Final = b" \t\r\n\0"
_XML_EVENT: Final = re.compile(rb'<c>\s*<a n="')
_JSON_EVENT: Final = re.compile(rb'\{\s*"\w+"\s*:')
_JSON_NAMES: Final = re.compile(rb'"(?:EventTypeNumber|MyType)"\s*:')


def parse(
    data: bytes,
    position: Position = Position(),  # noqa: B008 - frozen, so one default serves every call
    *,
    limit: int | None = None,
    year_hint: int | None = None,
    final: bool = False,
) -> Parsed:
    """Parse the complete events in a piece of a log.

    ``data`` contains the bytes of the log from ``position.offset`` on.

    ``after.offset - position.offset`` bytes are consumed: pass the rest again, followed by more
    bytes and with ``after`` as ``position``. The events and warnings do not depend on how the bytes
    are divided among calls; an incomplete tail produces none.

    ``limit`` ends the call at the first separator after that many events and warnings
    together; a damaged stretch between two separators can exceed it.

    ``year_hint`` is the year of the first event of a log that writes no years, from
    :func:`first_year` of the first bytes read. ``position.year``, once set, takes precedence;
    a timestamp more than six months before the last begins a new year. Without either the
    year is 2000.

    ``final`` means that no more bytes will come (a copy of a dead log): all bytes are consumed,
    and an event cut off at the end is reported by a warning. In the text form, which can be read
    in part, it is also returned as ``damaged``.
    """
    form = position.form or _form(data)
    if form is None:
        return Parsed((), (), position)
    position = replace(
        position, form=form, year=position.year if position.year is not None else year_hint
    )
    if form is LogFormat.TEXT:
        return text_parser.parse(data, position, limit, final)
    return classad_log.parse(data, position, limit, final)


def parse_fast(
    data: bytes,
    position: Position = Position(),  # noqa: B008 - frozen, so one default serves every call
    *,
    year_hint: int | None = None,
    until: datetime | None = None,
) -> FastResult:
    """Parse like :func:`parse`, but sum up the 006 events of each job.

    Ten times as fast where most events are 006. How the bytes are divided among calls changes
    only how the sums are divided.

    ``until``: 006 events later than this (naive) are not summed up but returned among
    ``events``, possibly with other 006 events.
    """
    if position.form in (None, LogFormat.TEXT):
        # A log with years may contain a yearless header, glued into an event.
        start = (
            position
            if position.year is not None or year_hint is None
            else replace(position, year=year_hint)
        )
        result = fast_path.parse_fast(data, start, until)
        if result is not None:
            return result
    parsed = parse(data, position, year_hint=year_hint)
    first = parsed.events[0].time if parsed.events else None
    return FastResult(parsed.events, (), parsed.warnings, parsed.after, first)


def _form(data: bytes) -> LogFormat | None:
    """The form indicated by the first non-blank byte; None without one."""
    first = data.lstrip(_BLANK)[:1]
    if not first:
        return None
    return {b"<": LogFormat.XML, b"{": LogFormat.JSON}.get(first, LogFormat.TEXT)


def sniff(first: bytes) -> LogFormat | None:
    """Detect the form of a log from its first bytes; None when no event begins there.

    A few KB are enough.
    """
    start = first.lstrip(b" \t\r\n")
    if HEADER.match(start):
        return LogFormat.TEXT
    if start.startswith(b"<?xml") or _XML_EVENT.match(start):
        return LogFormat.XML
    if _JSON_EVENT.match(start) and _JSON_NAMES.search(start):
        return LogFormat.JSON
    return None


_ROTATED_NAME: Final = re.compile(r"(.+?)(?:\.old|[.-]\d{1,8})")


def current_name(name: str) -> str:
    """The name of the current log of which ``name`` is a rotated part.

    Rotation writes ``x.log.old``, ``x.log.1``, ``x.log-20251101``. Any other name is returned
    unchanged.
    """
    match = _ROTATED_NAME.fullmatch(name)
    return match[1] if match else name


def looks_like_event_log(first: bytes) -> bool:
    """Whether a file that begins with these bytes (a few KB) is a job event log."""
    return sniff(first) is not None
