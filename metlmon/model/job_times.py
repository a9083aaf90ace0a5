"""Look-ups by time in a job's history.

Its entries need not be in chronological order. A job may be held or started thousands of times:
each look-up is a bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import accumulate, pairwise

from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.states import State


def latest_by(times: Sequence[datetime]) -> Callable[[datetime], int | None]:
    """A function that finds the greatest index in ``times`` not after a moment."""
    order = sorted(range(len(times)), key=times.__getitem__)
    sorted_times = [times[index] for index in order]
    greatest = list(accumulate(order, max))

    def find(moment: datetime) -> int | None:
        count = bisect_right(sorted_times, moment)
        return greatest[count - 1] if count else None

    return find


def first_from(times: Sequence[datetime]) -> Callable[[datetime], int | None]:
    """A function that finds the smallest index in ``times`` not before a moment."""
    order = sorted(range(len(times)), key=times.__getitem__)
    sorted_times = [times[index] for index in order]
    smallest = list(accumulate(reversed(order), min))[::-1]

    def find(moment: datetime) -> int | None:
        index = bisect_left(sorted_times, moment)
        return smallest[index] if index < len(smallest) else None

    return find


class IdleTimes:
    """The idle intervals of a job; the last one may be open."""

    def __init__(self, history: JobHistory) -> None:
        states = history.states
        spans = [
            (start, end) for (start, state), (end, _) in pairwise(states) if state is State.IDLE
        ]
        idle_now = bool(states) and states[-1][1] is State.IDLE
        self._open = states[-1][0] if idle_now else None
        self._spans = sorted(spans)
        self._starts = [start for start, _ in self._spans]
        self._ends = list(accumulate((end for _, end in self._spans), max))

    def between(self, since: datetime, until: datetime) -> Iterable[tuple[datetime, datetime]]:
        """The parts of the idle intervals between two moments."""
        if until <= since:
            return
        first, after = bisect_right(self._ends, since), bisect_left(self._starts, until)
        for start, end in self._spans[first:after]:
            if end > since:
                yield max(start, since), min(end, until)
        if self._open is not None and self._open < until:
            yield max(self._open, since), until


class StartTimes:
    """The executions of a job, by start time."""

    def __init__(self, history: JobHistory) -> None:
        self._executions = history.executions
        starts = [e.start for e in history.executions]
        self._last, self._first = latest_by(starts), first_from(starts)
        self._first_open = next(
            (i for i, e in enumerate(history.executions) if e.end is None), None
        )

    def last_to(self, moment: datetime | None) -> Execution | None:
        """The last in the log that started by this moment; for None, the last of all."""
        if moment is None:
            return self._executions[-1] if self._executions else None
        index = self._last(moment)
        return None if index is None else self._executions[index]

    def first_after(self, moment: datetime) -> Execution | None:
        """The first in the log that started then or later, or that is still open."""
        indices = [index for index in (self._first(moment), self._first_open) if index is not None]
        return self._executions[min(indices)] if indices else None


class InputTransfers:
    """The successful input transfers of a job."""

    def __init__(self, history: JobHistory) -> None:
        spans = [
            (span.start, index, span)
            for index, span in enumerate(history.transfers)
            if span.direction == "input" and span.outcome == "ok" and span.start is not None
        ]
        self._spans = sorted(spans, key=lambda entry: entry[:2])
        self._starts = [start for start, _, _ in self._spans]
        indices = [index for _, index, _ in self._spans]
        self._in_order = indices == sorted(indices)

    def last(self, since: datetime | None, until: datetime) -> TransferSpan | None:
        """The last one in the log that started between two moments."""
        first = 0 if since is None else bisect_left(self._starts, since)
        after = bisect_right(self._starts, until)
        if first >= after:
            return None
        if self._in_order:
            return self._spans[after - 1][2]
        return max(self._spans[first:after], key=lambda entry: entry[1])[2]
