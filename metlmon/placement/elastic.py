"""How many nodes each elastic training gets: an exact dynamic program.

An elastic training (torch elastic, ``--nnodes min:max``) runs on any number of nodes between its
bounds, or waits. To change the number interrupts it for some seconds. Nodes are interchangeable, so
each training either only gains or only loses nodes, and the mixed-integer program of FreeTrain and
MalleTrain (Ma et al., ICPE '24) is a multiple-choice knapsack over the numbers of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Final

from msgspec import Struct

GROW_SECONDS: Final = 18.0
SHRINK_SECONDS: Final = 12.0
"""Pause of a training that gains or loses nodes: 17–19 s and 11–13 s in the authors' data."""

_NEVER: Final = float("-inf")


class ElasticRun(Struct, frozen=True, kw_only=True):
    """A training on ``minimum`` to ``maximum`` nodes, now on ``nodes`` (0: it waits).

    ``throughput``: work per second on 0, 1, … nodes, at least up to ``maximum``; in any unit that
    all trainings share. ``grow_seconds``, ``shrink_seconds``: the pause of a change.
    """

    run: str
    minimum: int
    maximum: int
    nodes: int
    throughput: tuple[float, ...]
    grow_seconds: float = GROW_SECONDS
    shrink_seconds: float = SHRINK_SECONDS

    def value(self, nodes: int, horizon: float) -> float:
        """The work within ``horizon`` seconds on this number of nodes, less that of the pause.

        As in FreeTrain, the pause costs the work that the present nodes would do meanwhile.
        """
        present = self.throughput[self.nodes] if self.nodes >= self.minimum else 0.0
        pause = 0.0
        if nodes != self.nodes:
            pause = self.grow_seconds if nodes > self.nodes else self.shrink_seconds
        return horizon * self.throughput[nodes] - pause * present


def allocate_nodes(runs: Sequence[ElasticRun], nodes: int, horizon: float) -> tuple[int, ...]:
    """The numbers of nodes, at most ``nodes`` in all, that maximise the work within ``horizon``.

    Exact: a multiple-choice knapsack. Each run gets 0 nodes or a number within its bounds. Of
    equally good numbers a run gets the one nearest to its present number.
    """
    before = [0.0] * (nodes + 1)
    levels: list[tuple[list[float], list[float], int]] = []
    for run in runs:
        top = min(run.maximum, nodes)
        values = [run.value(count, horizon) for count in range(run.minimum, top + 1)]
        waiting = run.value(0, horizon)
        levels.append((before, values, run.minimum))
        before = _best_totals(before, values, run.minimum, waiting)
    allocation: list[int] = []
    left = nodes
    for run, (totals, values, minimum) in zip(reversed(runs), reversed(levels), strict=True):
        options = [
            (totals[left - count] + value, -abs(count - run.nodes), count)
            for count, value in enumerate(values[: max(0, left - minimum + 1)], minimum)
        ]
        options.append((totals[left] + run.value(0, horizon), -run.nodes, 0))
        count = max(options)[2]
        allocation.append(count)
        left -= count
    return tuple(reversed(allocation))


def _best_totals(
    before: list[float], values: list[float], minimum: int, waiting: float
) -> list[float]:
    """The best total for 0, 1, … nodes with one more run; ``values``: of it, from ``minimum``."""
    # before[k - n] for n = minimum, minimum + 1, … is a slice of the reversed list.
    backwards = before[::-1]
    end = len(before) - 1 + minimum
    return [
        max(
            total + waiting,
            max(map(add, values, backwards[end - count :]), default=_NEVER),
        )
        for count, total in enumerate(before)
    ]
