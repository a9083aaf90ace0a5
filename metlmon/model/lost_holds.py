"""Holds whose event 012 is not in the log: a later 009 proves some of them.

A policy that removes jobs which were held for long says so in its reason: ``The system macro
SYSTEM_PERIODIC_REMOVE expression '(JobStatus == 5 && time() - EnteredCurrentStatus > 3600 * 24)'
evaluated to TRUE``. The job was held since then, at the latest. Source followed:
``UserPolicy::FiringReason`` in ``user_job_policy.cpp``; 5 is HELD in ``proc.h``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from math import prod
from typing import Final

from metlmon.eventlog import Aborted, Event, Held

REASON: Final = "not logged (inferred: removed after it was held for {held})"

MOST_CHARACTERS: Final = 2000
"""Of a reason that is looked at: policies are far shorter."""

LONGEST: Final = 10 * 365 * 86400
"""Seconds: no policy lets a job be held for longer than that."""

_POLICY: Final = re.compile(
    r"(?:SYSTEM_PERIODIC_REMOVE\w{0,100}|PeriodicRemove) expression '([^']*)' evaluated to TRUE"
)
_IS_HELD: Final = re.compile(r"jobstatus=(?:=|\?=)5|5=(?:=|\?=)jobstatus")
_FOR_LONGER: Final = re.compile(
    r"(?:time|currenttime|servertime)-enteredcurrentstatus>=?(\d+(?:\*\d+)*)"
)


def lost_holds(removals: Iterable[tuple[Event, datetime]]) -> Iterator[Event]:
    """A 012 for each 009 (with its local time) whose policy was that the job is held: at the
    moment since which it was, at the latest. Which of them are in the log as well, only the
    job's other events tell."""
    for event, when in removals:
        seconds = _held_for(event.detail.reason) if isinstance(event.detail, Aborted) else None
        if seconds is None:
            continue
        reason = REASON.format(held=timedelta(seconds=seconds))
        held = Held(reason, None, None, inferred=True)
        since = when.replace(microsecond=0) - timedelta(seconds=seconds)
        yield event._replace(
            number=12, time=since, text="Job was held (inferred).", body="", detail=held
        )


def with_holds(events: Sequence[Event], holds: Iterable[Event]) -> list[Event]:
    """``events`` of one log with each hold before the removal of its job, or at the end."""
    waiting = {hold[1:4]: hold for hold in holds}
    made: list[Event] = []
    for event in events:
        if event[0] == 9 and (hold := waiting.pop(event[1:4], None)) is not None:
            made.append(hold)
        made.append(event)
    return made + list(waiting.values())


def _held_for(reason: str | None) -> int | None:
    """For how many seconds at least a job was held that was removed for this reason; None where
    the policy may have been true for another reason."""
    found = _POLICY.search(reason[:MOST_CHARACTERS]) if reason else None
    if found is None:
        return None
    least: list[int] = []
    for each in _split(_bare("".join(found[1].split()).lower()), "||"):
        terms = [re.sub(r"[()]", "", term) for term in _split(_bare(each), "&&")]
        spans = [told for term in terms if (told := _FOR_LONGER.fullmatch(term))]
        if not spans or not any(_IS_HELD.fullmatch(term) for term in terms):
            return None
        least.append(max(prod(map(int, told[1].split("*"))) for told in spans))
    return min(least) if least and 0 < min(least) <= LONGEST else None


def _depths(text: str) -> list[int]:
    """In how many parentheses each character is, those themselves among them."""
    depths, depth = [], 0
    for each in text:
        depth += each == "("
        depths.append(depth)
        depth -= each == ")"
    return depths


def _bare(text: str) -> str:
    """Without parentheses around the whole."""
    while text.startswith("(") and text.endswith(")") and min(_depths(text)) > 0:
        text = text[1:-1]
    return text


def _split(text: str, operator: str) -> list[str]:
    """The operands of an operator outside of all parentheses."""
    depths, parts, start = _depths(text), list[str](), 0
    for found in re.finditer(re.escape(operator), text):
        if depths[found.start()] == 0:
            parts.append(text[start : found.start()])
            start = found.end()
    return [*parts, text[start:]]
