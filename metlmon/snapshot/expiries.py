"""Executions that ended because their annex expired, found among the evictions.

Certain where the log has AnnexName and the end of that annex is known. Else inferred, by a rule
strict enough for any site: all jobs that ran there were evicted within seconds, several of them,
as by a startd that shuts down; none elsewhere; and nothing started there for a while.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import accumulate
from typing import Final, TypeAlias

from msgspec.structs import replace

from metlmon.model.job_events import JobId, JobKey
from metlmon.model.reasons import ANNEX_EXPIRED, ANNEX_EXPIRED_INFERRED, is_expiry
from metlmon.model.states import Outcome
from metlmon.snapshot.ledger import ExecutionEntry

# Module constants, since Python 3.11 looks up each Enum member through a function.
_EVICTED: Final = Outcome.EVICTED
_RECONNECT_FAILED: Final = Outcome.RECONNECT_FAILED

TOGETHER: Final = timedelta(seconds=30)
"""Evictions of one expiry come within this time: a fast shutdown takes 2 to 6 seconds."""

QUIET: Final = timedelta(minutes=10)
"""Nothing starts in an expired annex afterwards; jobs that a site evicts start again there."""

LATE: Final = timedelta(minutes=2)
"""Maximum time from the end of an annex, as it is known, to an eviction."""

MIN_AT_SITE: Final = 3
MIN_IN_ANNEX: Final = 2
"""Minimum evictions, of a site without AnnexName and of an annex: fewer may be a coincidence."""

MOST_ENDS: Final = 50
"""Ends of annexes of one name that are remembered."""

SHUTDOWN_CODES: Final = frozenset({1005, 1013})
"""Vacate codes of a startd that shuts down: JobShouldRequeue, StartdShutdown."""

Place: TypeAlias = tuple[str | None, str | None]
"""Site and annex."""

ExecutionId: TypeAlias = tuple[JobId, datetime]
"""A job, and the start of one of its executions."""

Executions: TypeAlias = tuple[ExecutionEntry, ...]
EvictionGroups: TypeAlias = Mapping[Place, Sequence[Sequence[ExecutionEntry]]]
"""By place: evictions within seconds, in order of time."""


def execution_id(entry: ExecutionEntry) -> ExecutionId:
    """What identifies an execution while its entry changes."""
    return entry.job, entry.start


def place_of(entry: ExecutionEntry) -> Place:
    """The annex of an execution, or else its site."""
    return entry.site, entry.annex


def may_be_expiry(entry: ExecutionEntry) -> bool:
    """Whether an execution ended as those in an annex that expires."""
    if entry.held_cause is not None or entry.uncertain or entry.at_access_point or not entry.lost:
        return False
    if entry.outcome is _RECONNECT_FAILED:
        return True
    if entry.outcome is not _EVICTED:
        return False
    return entry.code in SHUTDOWN_CODES if entry.code else not entry.reason


def eviction_groups(evicted: Iterable[ExecutionEntry]) -> EvictionGroups:
    """Evictions within seconds at one place, where there are enough for an expiry."""
    by_place: defaultdict[Place, list[ExecutionEntry]] = defaultdict(list)
    for entry in evicted:
        by_place[place_of(entry)].append(entry)
    groups = {}
    for place, entries in by_place.items():
        minimum = MIN_AT_SITE if place[1] is None else MIN_IN_ANNEX
        enough = [group for group in _groups(entries) if len(group) >= minimum]
        if enough and place != (None, None):
            groups[place] = enough
    return groups


def infer_expiries(
    groups: EvictionGroups,
    evicted: Iterable[ExecutionEntry],
    executions: Iterable[ExecutionEntry],
    as_of: datetime | None,
) -> Iterator[ExecutionId]:
    """The executions that probably ended because their annex expired.

    ``evicted``: all for which :func:`may_be_expiry`; ``groups``: of these; ``executions``: all.
    """
    ends = sorted(map(_end, evicted))
    there: dict[Place, list[ExecutionEntry]] = {place: [] for place in groups}
    for entry in executions:
        if not entry.at_access_point and (at_place := there.get(place_of(entry))) is not None:
            at_place.append(entry)
    for place, of_place in groups.items():
        work = _Work(there[place])
        for group in of_place:
            first, last = _end(group[0]), _end(group[-1])
            if place[1] is None:
                near = bisect_right(ends, last + TOGETHER) - bisect_left(ends, first - TOGETHER)
                undecided = as_of is None or as_of < last + QUIET
                if near > len(group) or undecided:
                    continue
            if not work.goes_on(first, last):
                yield from map(execution_id, group)


class _Work:
    """The executions at one place, for questions about many moments."""

    def __init__(self, executions: Iterable[ExecutionEntry]) -> None:
        spans = sorted((entry.start, entry.end or datetime.max) for entry in executions)
        self._starts = [start for start, _ in spans]
        self._latest_ends = list(accumulate((end for _, end in spans), max))

    def goes_on(self, first: datetime, last: datetime) -> bool:
        """Whether one survives the evictions from ``first`` to ``last``, or starts soon after."""
        later = bisect_right(self._starts, first)
        if later < len(self._starts) and self._starts[later] <= last + QUIET:
            return True
        return later > 0 and self._latest_ends[later - 1] > last


def _end(entry: ExecutionEntry) -> datetime:
    return entry.end or entry.start


def _is_at(entry: ExecutionEntry, ends: Iterable[datetime]) -> bool:
    """Did it end when its annex did?"""
    return any(-TOGETHER <= _end(entry) - end <= LATE for end in ends)


def _groups(entries: Iterable[ExecutionEntry]) -> Iterator[list[ExecutionEntry]]:
    """Evictions in order of time, those within TOGETHER of the first in one group."""
    group: list[ExecutionEntry] = []
    for entry in sorted(entries, key=_end):
        if group and _end(entry) - _end(group[0]) > TOGETHER:
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


class ExpiryIndex:
    """The evictions of an ensemble, and which of them are expiries; kept up with its entries.

    ``ends``: known ends of annexes in local time, by name in lower case; collectors forget them.
    """

    def __init__(self, ends: dict[str, list[datetime]]) -> None:
        self.ends = ends
        self._evicted: dict[JobKey, dict[ExecutionId, ExecutionEntry]] = {}
        self._found: dict[ExecutionId, str] = {}
        self._groups: EvictionGroups = {}
        self._outdated = False
        self._decided_at: datetime | None = None

    def add_ends(self, ends: Mapping[str, Iterable[float]], zone: tzinfo | None) -> bool:
        """Add known ends, seconds since the epoch; whether there are new ones."""
        changed = False
        for name, times in ends.items():
            known = self.ends.get(name, ())
            local = {datetime.fromtimestamp(int(time), zone).replace(tzinfo=None) for time in times}
            if not local.issubset(known):
                self.ends[name] = sorted(local.union(known))[-MOST_ENDS:]
                changed = self._outdated = True
        return changed

    def add(self, key: JobKey, executions: Executions, before: Executions | None) -> Executions:
        """The executions of a job, with the causes of expiries found so far.

        ``before``: those that it had.
        """
        known = self._evicted.get(key, {})
        evicted = {
            execution_id(e): known.get(execution_id(e), e) if is_expiry(e.cause) else e
            for e in executions
            if may_be_expiry(e)
        }
        if evicted.keys() != known.keys():
            self._outdated = True
        elif before is None or [e.end for e in before] != [e.end for e in executions]:
            self._outdated |= any(map(self._concerns_group, executions))
        if not evicted:
            self._evicted.pop(key, None)
            return executions
        self._evicted[key] = evicted
        return tuple(
            [
                replace(e, cause=self._found.get(name, evicted[name].cause))
                if (name := execution_id(e)) in evicted
                else e
                for e in executions
            ]
        )

    def _concerns_group(self, entry: ExecutionEntry) -> bool:
        """Whether an execution goes on after evictions at its place, or starts soon after them."""
        groups = self._groups.get(place_of(entry), ())
        at = bisect_left(groups, entry.start, key=lambda group: _end(group[-1]) + QUIET)
        return at < len(groups) and (entry.end is None or entry.end >= _end(groups[at][0]))

    def discard(self, key: JobKey) -> None:
        """Forget a job that has no entries any more."""
        self._outdated = True
        self._evicted.pop(key, None)

    def update(
        self, executions: Callable[[], Iterable[ExecutionEntry]], as_of: datetime | None
    ) -> list[JobKey]:
        """Look for expiries among all ``executions``; the jobs of those whose cause changes."""
        is_quiet = self._decided_at is not None and as_of is not None and as_of >= self._decided_at
        if not (self._outdated or is_quiet):
            return []
        self._outdated = False
        evicted = [entry for entries in self._evicted.values() for entry in entries.values()]
        newest = max(map(_end, evicted), default=None)
        undecided = newest is not None and (as_of is None or as_of < newest + QUIET)
        self._decided_at = newest + QUIET if newest is not None and undecided else None
        self._groups = eviction_groups(evicted)
        inferred = infer_expiries(self._groups, evicted, executions(), as_of)
        found = dict.fromkeys(inferred, ANNEX_EXPIRED_INFERRED)
        for entry in evicted if self.ends else ():
            if _is_at(entry, self.ends.get((entry.annex or "").casefold(), ())):
                found[execution_id(entry)] = ANNEX_EXPIRED
        before, self._found = self._found, found
        return [
            key
            for key, entries in self._evicted.items()
            if any(before.get(name) != found.get(name) for name in entries)
        ]
