"""How long the rest of a bag takes, played out many times with dice that fall the same each time.

As many machines as of late, each taking the next shard when it is free. How long a shard lasts
comes from those that were (:mod:`metlmon.stats.kaplan_meier`), where one that lasts still, or was
broken off, counts as "at least so long". Four things are not known, and differ from trial to
trial: how many machines there will be, how long a shard takes on the average, which tries are
broken off, and how many shards take far longer than the others (a slow machine, a disk that is
full). The last one rules the end of a bag, where all wait for one, and it shows late: that none was
seen among forty says little of the next forty. So there is a share of slow ones before any was
seen, which fades with what is seen (:data:`UNSEEN`).

The constants were chosen on generated bags (``tests/generated/bags.py``). On others of 6, 15 and 40
machines the interval held in 81 of 100 cases (293 of 360): in 89 when three tenths of the time were
over, in 82 at six tenths, in 72 at nine tenths. What was missed came earlier, mostly.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from math import exp, sqrt
from random import Random
from typing import Final

from metlmon.frozen import frozen
from metlmon.stats.estimates import TRIALS
from metlmon.stats.kaplan_meier import KaplanMeier
from metlmon.stats.quantiles import gamma, normal

PLAYED: Final = 200
"""Shards that are played out one by one, the last ones; those before them go by their mean, whose
luck averages out."""

AGES: Final = 50
"""Ages are told apart by so small a part of what a shard takes: finer is no surer, and of
hundreds that run each would be asked for by itself."""

UNSEEN: Final = 1.0
"""So many slow shards count as seen before any was (Laplace's rule of succession)."""

HEAVY: Final = 2.0
"""Of slow ones nobody has seen yet, the share that lasts longer than x times the least slow one is
x to the power of minus so much (Pareto's law): half of them 1.4 times, one in ten 3.2 times."""

LONGEST: Final = 10.0
"""Times the least slow one: what is longer is stuck, and no estimate waits for it."""

MOST_SLOW: Final = 0.9
"""A larger share of all is not slow, but as usual."""

UNLIKE: Final = 0.5
"""How far slow ones to come may be from a few that were seen (one sigma, as a logarithm)."""

_U: Final = tuple((i + 0.5) / TRIALS for i in range(TRIALS))
_Z: Final = tuple(normal(u) for u in _U)


@frozen
class RemainingShards:
    """What is left of a bag. ``running``: how far those under way are, seconds; ``queued``: how far
    the others have come before, 0 mostly; ``at_once`` work at a time, which changes by ``swing``
    (one sigma, as a logarithm); ``broken`` tries were broken off, and cost ``lost`` seconds."""

    running: Sequence[float]
    queued: Sequence[float]
    at_once: float
    swing: float
    broken: int = 0
    lost: float = 0.0


class _ShardDurationModel:
    """How long a shard lasts. One is slow from ``slow`` seconds on; ``share`` is the share of these
    by what was seen, ``seen`` how many that makes."""

    def __init__(self, curve: KaplanMeier, slow: float) -> None:
        self.curve, self.slow = curve, max(slow, 1.0)
        self.share = self.lasting(self.slow)
        self.seen = self.share * curve.events
        self._ordinary: dict[float, list[float]] = {}

    def lasting(self, age: float) -> float:
        """The share that lasts longer than ``age``, 0–1, beyond all that was seen, too."""
        beyond, spread = max(0.0, age - self.curve.last), max(1.0, self.curve.spread)
        return self.curve.lasting(age) * exp(-beyond / spread)

    def slow_share(self, z: float) -> float:
        """Of all shards as it may be, 0–1: ``z`` sigmas from the middle."""
        count = self.seen + UNSEEN
        return min(MOST_SLOW, gamma(count, z) * count / (self.curve.events + UNSEEN))

    def is_slow(self, share: float, age: float) -> float:
        """How likely one of this age is a slow one, where ``share`` of all are."""
        if age >= self.slow or self.share >= 1:
            return 1.0
        others = max(0.0, self.lasting(age) - self.share) / (1 - self.share)
        all_of_it = share + (1 - share) * others
        return share / all_of_it if all_of_it > 0 else 1.0

    def ordinary(self, u: float, age: float) -> float:
        """Seconds beyond ``age`` of one that is not slow."""
        if age not in self._ordinary:
            left = self.lasting(age)
            part = (left - self.share) / left if left > self.share else 0.0
            self._ordinary[age] = [self.curve.remaining(part * each, age) for each in _U]
        return self._ordinary[age][int(u * TRIALS)]

    def slowly(self, u: float, which: float, age: float) -> float:
        """Seconds beyond ``age`` of a slow one: as those that were seen, or as Pareto's law has
        those that nobody has. ``which`` (0–1) tells which of the two."""
        base = max(self.slow, age)
        if which * (self.seen + UNSEEN) < self.seen:
            return base - age + self.curve.remaining(u, base)
        times: float = min(LONGEST, (1 - u) ** (-1 / HEAVY))
        return base * times - age

    def mean(self, share: float) -> float:
        """Seconds of one, on the average, where ``share`` of all are slow."""
        ordinary = sum(self.ordinary(u, 0.0) for u in _U) / TRIALS
        slow = sum(self.slowly(u, _U[i * 47 % TRIALS], 0.0) for i, u in enumerate(_U)) / TRIALS
        return (1 - share) * ordinary + share * slow


class _Trial:
    """One time that the rest is played out, the ``i``-th."""

    def __init__(self, lasting: _ShardDurationModel, rest: RemainingShards, i: int) -> None:
        curve = lasting.curve
        self.lasting, self.rest = lasting, rest
        self.share = lasting.slow_share(_Z[(i * 34 + 5) % TRIALS])
        # How well so many samples tell the mean, as a logarithm.
        unsure = curve.spread / (curve.mean * sqrt(curve.events)) if curve.mean > 0 else 0.0
        self.longer = exp(unsure * _Z[(i * 89 + 13) % TRIALS])
        self.slower = exp(UNLIKE / sqrt(1 + lasting.seen) * _Z[(i * 55 + 101) % TRIALS])
        self.fewer = exp(rest.swing * _Z[i])
        self.risk = (rest.broken + UNSEEN) / (rest.broken + curve.events + 2 * UNSEEN)
        self.cost = rest.lost / rest.broken if rest.broken else curve.mean / 2
        # Of their own, so that one more that runs changes nothing of those that wait.
        self.running, self.queued = Random(2 * i), Random(2 * i + 1)

    def seconds(self, ages: Sequence[float], before: int) -> float:
        """Until the last shard is done. ``ages``: how far those under way are; ``before``: so many
        of those that wait go by their mean."""
        rest, waiting = self.rest, self.rest.queued[before:]
        slots = max(1, min(round(rest.at_once), len(waiting) + len(ages)))
        busy = sorted(self._one(age, self.running) for age in ages)[-slots:]
        busy += [0.0] * (slots - len(busy))
        heapify(busy)
        taken = 0.0
        for age in waiting:
            taken = busy[0]
            heapreplace(busy, taken + self._one(age, self.queued))
        bulk = 0.0
        if before:
            mean = self.lasting.mean(self.share) * self.longer + self.risk * self.cost
            bulk = before * mean / rest.at_once
        # When the last one is taken more machines make nothing faster.
        return (bulk + taken) * self.fewer + max(busy) - taken

    def _one(self, age: float, dice: Random) -> float:
        """Seconds that a machine is at one of this age, its tries that are broken off included."""
        u, which, kind, luck, cost = (dice.random() for _ in range(5))
        if kind < self.lasting.is_slow(self.share, age):
            took = self.lasting.slowly(u, which, age) * self.slower
        else:
            took = self.lasting.ordinary(u, age) * self.longer
        return took + (2 * cost * self.cost if luck < self.risk else 0.0)


def simulate_makespan(curve: KaplanMeier, slow: float, rest: RemainingShards) -> list[float]:
    """Seconds until the last shard is done, in each trial. ``slow``: so many seconds takes a shard
    that is far slower than the others."""
    lasting = _ShardDurationModel(curve, slow)
    step = max(1.0, curve.mean / AGES)
    ages = [step * round(age / step) for age in rest.running]
    before = max(0, len(rest.queued) - PLAYED)
    return [_Trial(lasting, rest, i).seconds(ages, before) for i in range(TRIALS)]
