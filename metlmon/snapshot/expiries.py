"""Finds the executions among the evicted ones that ended because their annex expired.

This is certain if the log has AnnexName and the end of that annex is known. Else it is inferred, by
a rule strict enough for any site: all jobs there, at least several, were evicted within seconds, as
by a startd that shuts down; none was evicted elsewhere; and none started there for a while.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Final, TypeAlias

from metlmon.model.job_events import JobId
from metlmon.model.reasons import ANNEX_EXPIRED, ANNEX_EXPIRED_INFERRED
from metlmon.model.states import Outcome
from metlmon.snapshot.records import Execution

# Module constants, since Python 3.11 looks up each Enum member through a function.
_EVICTED: Final = Outcome.EVICTED
_RECONNECT_FAILED: Final = Outcome.RECONNECT_FAILED

TOGETHER: Final = timedelta(seconds=30)
"""Evictions of one expiry come within this time: a fast shutdown takes 2 to 6 seconds."""

QUIET: Final = timedelta(minutes=10)
"""Nothing starts in an expired annex afterwards; jobs that a site evicts start again there."""

LATE: Final = timedelta(minutes=2)
"""Maximum time from the known end of an annex to an eviction."""

MIN_AT_SITE: Final = 3
MIN_IN_ANNEX: Final = 2
"""Minimum evictions at a site without AnnexName, and in an annex: fewer may be a coincidence."""

SHUTDOWN_CODES: Final = frozenset({1005, 1013})
"""Vacate codes of a startd that shuts down: JobShouldRequeue, StartdShutdown."""

Place: TypeAlias = tuple[str | None, str | None]
"""Site and annex."""

ExecutionId: TypeAlias = tuple[JobId, datetime]
"""A job, and the start of one of its executions."""


def execution_id(entry: Execution) -> ExecutionId:
    """The identity of an execution, which stays the same while its entry changes."""
    return entry.job, entry.start


def place_of(entry: Execution) -> Place:
    """The site of an execution, and its annex."""
    return entry.site, entry.annex


def may_be_expiry(entry: Execution) -> bool:
    """Whether an execution ended like those in an expiring annex."""
    if entry.outcome is not _EVICTED and entry.outcome is not _RECONNECT_FAILED:
        return False
    if entry.held_cause is not None or entry.uncertain or entry.at_access_point or not entry.lost:
        return False
    if entry.outcome is _RECONNECT_FAILED:
        return True
    return entry.code in SHUTDOWN_CODES if entry.code else not entry.reason


def find_expiries(
    evicted: Sequence[Execution],
    executions: Callable[[], Iterable[Execution]],
    ends: Mapping[str, Iterable[datetime]],
    as_of: datetime | None,
) -> dict[ExecutionId, str]:
    """The causes of executions that ended because their annex expired.

    ``evicted``: all executions for which :func:`may_be_expiry` is true; ``executions`` returns all.
    ``ends``: known ends of annexes in local time, by name in lower case.
    """
    found = dict.fromkeys(_infer_expiries(evicted, executions, as_of), ANNEX_EXPIRED_INFERRED)
    for entry in evicted if ends else ():
        own_ends = ends.get((entry.annex or "").casefold(), ())
        if any(-TOGETHER <= _end(entry) - end <= LATE for end in own_ends):
            found[execution_id(entry)] = ANNEX_EXPIRED
    return found


def _infer_expiries(
    evicted: Sequence[Execution],
    executions: Callable[[], Iterable[Execution]],
    as_of: datetime | None,
) -> Iterator[ExecutionId]:
    """The executions that probably ended because their annex expired."""
    by_place: defaultdict[Place, list[Execution]] = defaultdict(list)
    for entry in evicted:
        if (place := place_of(entry)) != (None, None):
            by_place[place].append(entry)
    groups: dict[Place, list[list[Execution]]] = {}
    for place, entries in by_place.items():
        minimum = MIN_AT_SITE if place[1] is None else MIN_IN_ANNEX
        if enough := [group for group in _groups(entries) if len(group) >= minimum]:
            groups[place] = enough
    if not groups:
        return
    ends = sorted(map(_end, evicted))
    there: dict[Place, list[Execution]] = {place: [] for place in groups}
    for entry in executions():
        if not entry.at_access_point and (at_place := there.get(place_of(entry))) is not None:
            at_place.append(entry)
    for place, of_place in groups.items():
        work = _PlaceActivity(there[place])
        for group in of_place:
            first, last = _end(group[0]), _end(group[-1])
            if place[1] is None:
                near = bisect_right(ends, last + TOGETHER) - bisect_left(ends, first - TOGETHER)
                undecided = as_of is None or as_of < last + QUIET
                if near > len(group) or undecided:
                    continue
            if not work.continues(first, last):
                yield from map(execution_id, group)


class _PlaceActivity:
    """The executions at one place, indexed by time."""

    def __init__(self, executions: Iterable[Execution]) -> None:
        spans = sorted((entry.start, entry.end or datetime.max) for entry in executions)
        self._starts = [start for start, _ in spans]
        self._latest_ends = list(accumulate((end for _, end in spans), max))

    def continues(self, first: datetime, last: datetime) -> bool:
        """Whether any survives the evictions from ``first`` to ``last``, or starts soon after."""
        later = bisect_right(self._starts, first)
        if later < len(self._starts) and self._starts[later] <= last + QUIET:
            return True
        return later > 0 and self._latest_ends[later - 1] > last


def _end(entry: Execution) -> datetime:
    return entry.end or entry.start


def _groups(entries: Iterable[Execution]) -> Iterator[list[Execution]]:
    """Yield groups of evictions in order of time, each within TOGETHER of the group's first."""
    group: list[Execution] = []
    for entry in sorted(entries, key=_end):
        if group and _end(entry) - _end(group[0]) > TOGETHER:
            yield group
            group = []
        group.append(entry)
    if group:
        yield group
