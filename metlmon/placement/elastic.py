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
    ``losses``: nodes expected to be lost per second and node; each loss pauses the training.
    """

    run: str
    minimum: int
    maximum: int
    nodes: int
    throughput: tuple[float, ...]
    grow_seconds: float = GROW_SECONDS
    shrink_seconds: float = SHRINK_SECONDS
    losses: float = 0.0

    def values(self, most: int, horizon: float) -> list[float]:
        """The work within ``horizon`` seconds on 0, 1, … ``most`` nodes, less that of pauses.

        As in FreeTrain, a change costs the work that the present nodes would do meanwhile; besides,
        a training on more nodes is paused more often by losses, and waits for that of any node.
        """
        present = self.throughput[self.nodes] if self.nodes >= self.minimum else 0.0
        grow, shrink = self.grow_seconds * present, self.shrink_seconds * present
        paused = self.losses * self.shrink_seconds
        costs = [shrink] * self.nodes + [0.0] + [grow] * most
        return [
            horizon * rate * max(0.0, 1.0 - paused * nodes) - cost
            for nodes, (rate, cost) in enumerate(zip(self.throughput[: most + 1], costs))  # noqa: B905
        ]


def allocate_nodes(runs: Sequence[ElasticRun], nodes: int, horizon: float) -> tuple[int, ...]:
    """The numbers of nodes, at most ``nodes`` in all, that maximise the work within ``horizon``.

    Exact: a multiple-choice knapsack. Each run gets 0 nodes or a number within its bounds. Of
    equally good numbers a run gets the one nearest to its present number.
    """
    nodes = min(nodes, sum(run.maximum for run in runs))
    totals = [0.0] * (nodes + 1)
    levels: list[tuple[ElasticRun, list[float], list[float]]] = []
    for run in runs:
        values = run.values(min(run.maximum, nodes), horizon)
        levels.append((run, totals, values))
        totals = _best_totals(totals, values, run.minimum)
    allocation: list[int] = []
    left = nodes
    for run, before, values in reversed(levels):
        counts = (0, *range(run.minimum, min(len(values) - 1, left) + 1))
        best = max((before[left - n] + values[n], -abs(n - run.nodes), n) for n in counts)
        allocation.append(best[2])
        left -= best[2]
    return tuple(reversed(allocation))


def _best_totals(before: list[float], values: list[float], minimum: int) -> list[float]:
    """The best totals on 0, 1, … nodes with one more run, whose ``values`` are given."""
    # before[k - n] for n = minimum, minimum + 1, … is a slice of the reversed list.
    waiting, running = values[0], values[minimum:]
    backwards, end = before[::-1], len(before) - 1 + minimum
    return [
        max(total + waiting, max(map(add, running, backwards[end - count :]), default=_NEVER))
        for count, total in enumerate(before)
    ]
