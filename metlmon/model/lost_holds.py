"""Infers holds whose 012 is not in the log from a later 009.

A policy that removes jobs after a long hold has its expression in the reason: ``The system macro
SYSTEM_PERIODIC_REMOVE expression '(JobStatus == 5 && time() - EnteredCurrentStatus > 3600 * 24)'
evaluated to TRUE``. The job was held for at least that time. Source followed:
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

REASON_LIMIT: Final = 2000
"""Characters of a reason that are parsed: policies are far shorter."""

LONGEST_HOLD: Final = 10 * 365 * 86400
"""Seconds; no policy permits a longer hold."""

_POLICY: Final = re.compile(
    r"(?:SYSTEM_PERIODIC_REMOVE\w{0,100}|PeriodicRemove) expression '([^']*)' evaluated to TRUE"
)
_IS_HELD: Final = re.compile(r"jobstatus=(?:=|\?=)5|5=(?:=|\?=)jobstatus")
_FOR_LONGER: Final = re.compile(
    r"(?:time|currenttime|servertime)-enteredcurrentstatus>=?(\d+(?:\*\d+)*)"
)


def lost_holds(removals: Iterable[tuple[Event, datetime]]) -> Iterator[Event]:
    """Yield a 012, at the latest possible time, for each 009 that proves one.

    ``removals``: 009 events with their local times. The log may have the 012 as well; only the
    fold of the job's other events shows that.
    """
    for event, local_time in removals:
        seconds = _held_for(event.detail.reason) if isinstance(event.detail, Aborted) else None
        if seconds is None:
            continue
        reason = REASON.format(held=timedelta(seconds=seconds))
        held = Held(reason, None, None, inferred=True)
        since = local_time.replace(microsecond=0) - timedelta(seconds=seconds)
        yield event._replace(
            number=12, time=since, text="Job was held (inferred).", body="", detail=held
        )


def with_holds(events: Sequence[Event], holds: Iterable[Event]) -> list[Event]:
    """Insert each hold into ``events`` of one log, before the removal or at the end."""
    pending = {hold[1:4]: hold for hold in holds}
    merged: list[Event] = []
    for event in events:
        if event[0] == 9 and (hold := pending.pop(event[1:4], None)) is not None:
            merged.append(hold)
        merged.append(event)
    return merged + list(pending.values())


def _held_for(reason: str | None) -> int | None:
    """Minimum seconds of the hold of a job that was removed for this reason.

    None if the policy may have been true without a hold.
    """
    match = _POLICY.search(reason[:REASON_LIMIT]) if reason else None
    if match is None:
        return None
    minimums: list[int] = []
    for alternative in _split(_strip_parentheses("".join(match[1].split()).lower()), "||"):
        terms = [
            re.sub(r"[()]", "", term) for term in _split(_strip_parentheses(alternative), "&&")
        ]
        durations = [duration for term in terms if (duration := _FOR_LONGER.fullmatch(term))]
        if not durations or not any(_IS_HELD.fullmatch(term) for term in terms):
            return None
        minimums.append(max(prod(map(int, duration[1].split("*"))) for duration in durations))
    return min(minimums) if minimums and 0 < min(minimums) <= LONGEST_HOLD else None


def _depths(text: str) -> list[int]:
    """Nesting depth of each character, including the parentheses themselves."""
    depths, depth = [], 0
    for char in text:
        depth += char == "("
        depths.append(depth)
        depth -= char == ")"
    return depths


def _strip_parentheses(text: str) -> str:
    """Strip parentheses around the whole text."""
    while text.startswith("(") and text.endswith(")") and min(_depths(text)) > 0:
        text = text[1:-1]
    return text


def _split(text: str, operator: str) -> list[str]:
    """Split at an operator outside of all parentheses."""
    depths, parts, start = _depths(text), list[str](), 0
    for match in re.finditer(re.escape(operator), text):
        if depths[match.start()] == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]
