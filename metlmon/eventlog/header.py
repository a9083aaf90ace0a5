"""Parses text-form event headers: ``NNN (C.P.S) DATE[.frac][Z] first text``.

Source followed: ``ULogEvent::readHeader`` and ``formatHeader`` in ``condor_event.cpp``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from metlmon.eventlog import timestamps

_IDS: Final = rb"(-?[0-9]{1,18})\.(-?[0-9]{1,18})\.(-?[0-9]{1,18})"
_TIME: Final = rb"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z?"
_DATE: Final = rb"(?:([0-9]{4}-[0-9]{2}-[0-9]{2}[ T]" + _TIME + rb")|([0-9]{2}/[0-9]{2} " + _TIME
_PATTERN: Final = rb"([0-9]{3}) \(" + _IDS + rb"\) " + _DATE + rb"))(?: |(?=\r?\n))"

HEADER: Final = re.compile(_PATTERN)
"""Groups: number, cluster, proc, subproc, ISO date or None, yearless date or None. The first
text is not part of the pattern, so that a thousand candidates on one long line do not read that
line a thousand times."""

CANDIDATE: Final = re.compile(rb"[0-9]{3} \((?=-?[0-9])")
"""A possible start of a header: cheap to search for, confirmed by :data:`HEADER`."""

BEGINNING: Final = re.compile(rb"[0-9]{3} \(")
"""The start of a line that resembles a header, readable or not."""

_FIRST_TEXTS: Final[Mapping[int, str]] = {
    0: r"Job submitted from host: .*",
    1: r"Job executing on host: .*",
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
    14: r"Node -?\d+ executing on host: .*",
    15: r"Node -?\d+ terminated\.",
    16: r"POST Script terminated\.",
    21: r"(Error|Message) from .*:",
    22: r"Job disconnected, attempting to reconnect",
    23: r"Job reconnected to .*",
    24: r"Job reconnection failed",
    34: r"PRE script return value is PRE_SKIP value",
    35: r"Cluster submitted from host: .*",
    36: r"Cluster removed",
    40: r"(Entered queue to transfer|Started transferring|Finished transferring)"
    r" (input|output) files",
}
_FIRST_TEXT: Final = {number: re.compile(text) for number, text in _FIRST_TEXTS.items()}

KNOWN_NUMBERS: Final = frozenset({*range(48), *range(100, 112)})
"""The event numbers that HTCondor 25 writes."""


class Header(NamedTuple):
    """A parsed header; a tuple, created in a third of the time of a dataclass.

    ``start`` is the offset of the header and ``text_start`` that of its text, in the bytes
    it was read from; ``stamp`` is its date as written.
    """

    number: int
    cluster: int
    proc: int
    subproc: int
    stamp: bytes
    time: datetime
    start: int
    text_start: int

    @property
    def event_label(self) -> str:
        """The name of the event in warnings."""
        return f"event {self.number:03d} of job {self.cluster}.{self.proc}"


class Calendar:
    """Resolves the years of the timestamps of one log, in log order.

    A repeated timestamp is not parsed again: many events are of one second.
    """

    __slots__ = ("_stamp", "last", "year")

    def __init__(self, year: int | None, last: datetime | None) -> None:
        self.year = year
        self.last = last
        self._stamp: bytes | None = None

    def read(self, data: bytes, start: int) -> Header | None:
        """Parse the header at ``start``; None when there is none."""
        match = HEADER.match(data, start)
        if match is None:
            return None
        number, cluster, proc, subproc, iso, yearless = match.groups()
        time = self.time(iso, yearless)
        if time is None:
            return None
        return Header(
            number=int(number),
            cluster=int(cluster),
            proc=int(proc),
            subproc=int(subproc),
            stamp=iso or yearless,
            time=time,
            start=start,
            text_start=match.end(),
        )

    def time(self, iso: bytes | None, yearless: bytes) -> datetime | None:
        """The time of a header's date; None when it is not a valid date."""
        if self._stamp is not None and self._stamp == (iso or yearless):
            return self.last
        if iso is not None:
            return timestamps.iso(iso.decode("ascii"))
        return timestamps.yearless(yearless.decode("ascii"), self.year, self.last)

    def advance(self, stamp: bytes, time: datetime) -> None:
        """Record the date of an accepted event, as written and as parsed."""
        self._stamp = stamp
        self.year, self.last = time.year, time


def first_text_fits(number: int, text: str) -> bool:
    """Whether ``text`` is what HTCondor writes after the date of event ``number``."""
    pattern = _FIRST_TEXT.get(number)
    return pattern is None or pattern.fullmatch(text) is not None
