"""Job event logs: bytes in, events out.

Source followed: HTCondor manual, "Managing a Job > Job Event Log Codes", and
``read_user_log.cpp`` and ``condor_event.cpp`` of the public HTCondor source.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Final

from metlmon.eventlog import classad_log, fast_path, text_parser
from metlmon.eventlog.events import (
    EVENT_NAMES,
    Aborted,
    ClusterRemove,
    ClusterSubmit,
    ConnectionEvent,
    Detail,
    Event,
    Evicted,
    Execute,
    FastResult,
    FileTransfer,
    Generic,
    Held,
    ImageSize,
    ImageSizes,
    LogFormat,
    LogWarning,
    Parsed,
    Position,
    PostScript,
    PreSkip,
    Released,
    RemoteError,
    ShadowException,
    Submit,
    Terminated,
    Transfer,
    UsageRow,
)
from metlmon.eventlog.header import HEADER
from metlmon.eventlog.json_log import Json
from metlmon.eventlog.timestamps import first_year
from metlmon.eventlog.xml_log import Xml

__all__ = [
    "EVENT_NAMES",
    "Aborted",
    "ClusterRemove",
    "ClusterSubmit",
    "ConnectionEvent",
    "Detail",
    "Event",
    "Evicted",
    "Execute",
    "FastResult",
    "FileTransfer",
    "Generic",
    "Held",
    "ImageSize",
    "ImageSizes",
    "LogFormat",
    "LogWarning",
    "Parsed",
    "Position",
    "PostScript",
    "PreSkip",
    "Released",
    "RemoteError",
    "ShadowException",
    "Submit",
    "Terminated",
    "Transfer",
    "UsageRow",
    "first_year",
    "looks_like_event_log",
    "parse",
    "parse_fast",
    "sniff",
]

_BLANK: Final = b" \t\r\n\0"
_XML_EVENT: Final = re.compile(rb'<c>\s*<a n="')
_JSON_EVENT: Final = re.compile(rb'\{\s*"\w+"\s*:')
_JSON_NAMES: Final = re.compile(rb'"(?:EventTypeNumber|MyType)"\s*:')


def parse(
    data: bytes,
    at: Position = Position(),  # noqa: B008 - frozen, so one default serves every call
    *,
    limit: int | None = None,
    year_hint: int | None = None,
    final: bool = False,
) -> Parsed:
    """The complete events of ``data``, the bytes of a log from ``at.offset`` on.

    ``after.offset - at.offset`` bytes were consumed: pass the rest again, with more behind
    it and ``after`` as ``at``. However the bytes are divided among calls, the events and
    warnings are the same; a torn tail gives none.

    ``limit`` ends the call at the first separator behind that many events and warnings
    together; a damaged stretch between two separators can exceed it.

    ``year_hint`` is the year of the first event of a log that writes no years, by
    :func:`first_year` of the bytes read at first. It counts until ``at.year`` knows better;
    a stamp more than six months before the last begins a new year. Without any the year is
    2000.

    ``final`` says that no more bytes will come (a copy of a dead log): an event that is cut
    at the end is then given, ``damaged``, with a warning, and all bytes are consumed.
    """
    form = at.form or _form(data)
    if form is None:
        return Parsed((), (), at)
    at = replace(at, form=form, year=at.year if at.year is not None else year_hint)
    if form is LogFormat.TEXT:
        return text_parser.parse(data, at, limit, final)
    return classad_log.parse(data, at, limit, final, Xml() if form is LogFormat.XML else Json())


def parse_fast(
    data: bytes,
    at: Position = Position(),  # noqa: B008 - frozen, so one default serves every call
    *,
    year_hint: int | None = None,
    until: datetime | None = None,
) -> FastResult:
    """The complete events of ``data`` as :func:`parse` reads them, ten times as fast where most
    are 006: these are added up for each job.

    How the bytes are divided among calls changes nothing but how the sums are divided.

    ``until``: 006 that are later than this (naive) are not added up, but stand among the events,
    as may others beside them.
    """
    if at.form in (None, LogFormat.TEXT):
        # A log that writes years may hold a header without one, glued into an event.
        known = at if at.year is not None or year_hint is None else replace(at, year=year_hint)
        skimmed = fast_path.skim(data, known, until)
        if skimmed is not None:
            return skimmed
    parsed = parse(data, at, year_hint=year_hint)
    first = parsed.events[0].time if parsed.events else None
    return FastResult(parsed.events, (), parsed.warnings, parsed.after, first)


def _form(data: bytes) -> LogFormat | None:
    """The form that the first byte which is not blank stands for; None without one."""
    first = data.lstrip(_BLANK)[:1]
    if not first:
        return None
    return {b"<": LogFormat.XML, b"{": LogFormat.JSON}.get(first, LogFormat.TEXT)


def sniff(first: bytes) -> LogFormat | None:
    """The form of the log whose first bytes these are; None when no event begins there.

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


_OLDER_PART: Final = re.compile(r"(.+?)(?:\.old|[.-]\d{1,8})")


def current_name(name: str) -> str:
    """The name of the log that ``name`` is an older part of, as rotation names them
    (``x.log.old``, ``x.log.1``, ``x.log-20251101``); ``name`` itself for any other."""
    match = _OLDER_PART.fullmatch(name)
    return match[1] if match else name


def looks_like_event_log(first: bytes) -> bool:
    """Whether a file that begins with these bytes (a few KB) is a job event log."""
    return sniff(first) is not None
