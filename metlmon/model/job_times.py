"""Looking up by time what happened to a job, which need not be in order of time in its log. A job
may be held, or tried, thousands of times: each look-up is a bisection."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import accumulate, pairwise

from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.states import State


def latest_by(times: Sequence[datetime]) -> Callable[[datetime], int | None]:
    """A function from a moment to the greatest index in ``times`` whose time is not after it, None
    where there is none."""
    order = sorted(range(len(times)), key=times.__getitem__)
    sorted_times = [times[index] for index in order]
    greatest = list(accumulate(order, max))

    def find(when: datetime) -> int | None:
        count = bisect_right(sorted_times, when)
        return greatest[count - 1] if count else None

    return find


def first_from(times: Sequence[datetime]) -> Callable[[datetime], int | None]:
    """A function from a moment to the smallest index in ``times`` whose time is not before it,
    None where there is none."""
    order = sorted(range(len(times)), key=times.__getitem__)
    sorted_times = [times[index] for index in order]
    smallest = list(accumulate(reversed(order), min))[::-1]

    def find(when: datetime) -> int | None:
        place = bisect_left(sorted_times, when)
        return smallest[place] if place < len(smallest) else None

    return find


class IdleTimes:
    """When a job was idle; the last time may have no end."""

    def __init__(self, life: JobHistory) -> None:
        states = life.states
        spans = [
            (start, end) for (start, state), (end, _) in pairwise(states) if state is State.IDLE
        ]
        idle_now = bool(states) and states[-1][1] is State.IDLE
        self._open = states[-1][0] if idle_now else None
        self._spans = sorted(spans)
        self._starts = [start for start, _ in self._spans]
        self._ends = list(accumulate((end for _, end in self._spans), max))

    def between(self, since: datetime, until: datetime) -> Iterable[tuple[datetime, datetime]]:
        """The parts of these times that lie between two moments."""
        if until <= since:
            return
        first, after = bisect_right(self._ends, since), bisect_left(self._starts, until)
        for start, end in self._spans[first:after]:
            if end > since:
                yield max(start, since), min(end, until)
        if self._open is not None and self._open < until:
            yield max(self._open, since), until


class StartTimes:
    """The executions of a job, by when they began."""

    def __init__(self, life: JobHistory) -> None:
        self._executions = life.executions
        starts = [e.start for e in life.executions]
        self._last, self._first = latest_by(starts), first_from(starts)
        self._lasting = next((i for i, e in enumerate(life.executions) if e.end is None), None)

    def last_to(self, moment: datetime | None) -> Execution | None:
        """The last in the log that began up to this moment; None as moment: the last of all."""
        if moment is None:
            return self._executions[-1] if self._executions else None
        at = self._last(moment)
        return None if at is None else self._executions[at]

    def first_after(self, moment: datetime) -> Execution | None:
        """The first in the log that began then or later, or that lasts still."""
        found = [at for at in (self._first(moment), self._lasting) if at is not None]
        return self._executions[min(found)] if found else None


class InputTransfers:
    """The input transfers of a job that succeeded."""

    def __init__(self, life: JobHistory) -> None:
        spans = [
            (span.start, place, span)
            for place, span in enumerate(life.transfers)
            if span.direction == "input" and span.outcome == "ok" and span.start is not None
        ]
        self._spans = sorted(spans, key=lambda each: each[:2])
        self._starts = [start for start, _, _ in self._spans]
        places = [place for _, place, _ in self._spans]
        self._in_order = places == sorted(places)

    def last(self, since: datetime | None, until: datetime) -> TransferSpan | None:
        """The last one in the log that began between two moments."""
        first = 0 if since is None else bisect_left(self._starts, since)
        after = bisect_right(self._starts, until)
        if first >= after:
            return None
        if self._in_order:
            return self._spans[after - 1][2]
        return max(self._spans[first:after], key=lambda each: each[1])[2]
