"""Hosts against equal ones elsewhere, and which of them are slow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from math import sqrt
from statistics import NormalDist, median
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from metlmon.stats.totals import group_by

HostKey: TypeAlias = tuple[str | None, str | None, str | None, int | None]
"""Site, host, GPU model, and how many GPUs: hosts of several sites may have one name."""

SLOW_FACTOR: Final = 1.25
"""A place is slow for a GPU model and count if its median epoch exceeds this multiple of other
places' and the values in between do not overlap. Runs and hosts of one site differ by about 10 %;
25 % beyond that is worth an e-mail."""

SLOW_MIN_EPOCHS: Final = 3
"""Minimum epochs on both sides of a comparison: of two, one outlier decides."""

LEVEL: Final = 0.8
"""Confidence of the interval of a median; three epochs have 75 %."""

MOST_EXACT: Final = 500
"""Maximum values for exact ranks; beyond it the normal approximation is at most one rank off."""


class EpochTime(NamedTuple):
    """The seconds of a completed epoch, when it began, and where which run trained it."""

    place: HostKey
    run: str | None
    start: datetime
    seconds: float

    @property
    def end(self) -> datetime:
        """When it was completed."""
        return self.start + timedelta(seconds=self.seconds)


class HostComparison(Struct, frozen=True):
    """A host's median epoch relative to that of its peers, ``peer_median`` seconds.

    Peers: the ``peer_epochs`` epochs of other hosts with the same GPU model and count. ``slow``:
    see :func:`compare_hosts`; None, as the relative time, without enough epochs on either side.
    """

    peer_epochs: int = 0
    peer_median: float | None = None
    relative_time: float | None = None
    slow: bool | None = None


def compare_hosts(times: Iterable[EpochTime]) -> dict[HostKey, HostComparison]:
    """Compare each host with a known GPU model with its peers.

    It is slow if its median exceeds theirs by :data:`SLOW_FACTOR`, and the intervals of both do
    not overlap. This must also be so against those peers that are at its site, and those that
    trained its runs, if there are enough: a slow site or a large run is not a slow host. Without
    enough peers at the same time it is not known: what an epoch does may have changed since.
    """
    found: dict[HostKey, HostComparison] = {}
    for equal in group_by(times, lambda each: each.place[2:]).values():
        machine = equal[0].place[2:]
        if None in machine:
            continue
        equal.sort(key=lambda each: each.seconds)
        by_host: dict[HostKey, list[int]] = {}
        for rank, each in enumerate(equal):
            by_host.setdefault(each.place, []).append(rank)
        for place, ranks in by_host.items():
            found[place] = _compare(place, ranks, equal)
    return found


def _compare(place: HostKey, ranks: Sequence[int], equal: Sequence[EpochTime]) -> HostComparison:
    """The comparison of the host with these ranks among the sorted ``equal`` epochs."""
    number = len(equal) - len(ranks)
    own = [equal[rank].seconds for rank in ranks]
    if place[1] is None or min(number, len(own)) < SLOW_MIN_EPOCHS:
        return HostComparison(number)
    middle = [_skipping(ranks, half, equal) for half in ((number - 1) // 2, number // 2)]
    elsewhere = sum(middle) / 2
    if elsewhere <= 0:
        return HostComparison(number)
    upper = _skipping(ranks, median_ranks(number)[1], equal)
    is_slow: bool | None = _is_beyond(own, elsewhere, upper)
    if is_slow:
        runs = {equal[rank].run for rank in ranks} - {None}
        others = [each for each in equal if each.place != place]
        at_site = [each.seconds for each in others if each.place[0] == place[0]]
        of_runs = [each.seconds for each in others if each.run in runs]
        at_same_time = _seconds_during([equal[rank] for rank in ranks], others)
        is_slow = all(
            _is_beyond(own, median(peers), peers[median_ranks(len(peers))[1]])
            for peers in (at_site, of_runs, at_same_time)
            if len(peers) >= SLOW_MIN_EPOCHS
        )
        if is_slow and len(at_same_time) < SLOW_MIN_EPOCHS:
            is_slow = None
    return HostComparison(number, elsewhere, median(own) / elsewhere, is_slow)


def _seconds_during(own: Iterable[EpochTime], others: Iterable[EpochTime]) -> list[float]:
    """The seconds of those of the others that overlap one of its own, in their order."""
    spans: list[tuple[datetime, datetime]] = []
    for each in sorted(own, key=lambda each: each.start):
        if spans and each.start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], each.end)
        else:
            spans.append((each.start, each.end))
    starts = [start for start, _ in spans]

    def overlaps(each: EpochTime) -> bool:
        index = bisect_left(starts, each.end) - 1
        return index >= 0 and spans[index][1] > each.start

    return [each.seconds for each in others if overlaps(each)]


def _skipping(ranks: Iterable[int], index: int, equal: Sequence[EpochTime]) -> float:
    """The seconds at ``index`` of ``equal`` without those at ``ranks``, which ascend."""
    for rank in ranks:
        if rank > index:
            break
        index += 1
    return equal[index].seconds


def _is_beyond(own: Sequence[float], middle: float, upper: float) -> bool:
    """Whether sorted times exceed peers with this median and upper end of its interval."""
    return median(own) > SLOW_FACTOR * middle and own[median_ranks(len(own))[0]] > upper


@lru_cache(maxsize=4096)
def median_ranks(number: int) -> tuple[int, int]:
    """The ranks, from 0, of the sorted values between which the true median lies.

    With at least the probability :data:`LEVEL`, whatever the distribution, if the values suffice
    for it: the number of values below the median is binomial (H. A. David and H. N. Nagaraja,
    Order Statistics, 3rd ed., section 7.1).
    """
    if number > MOST_EXACT:
        low = int((number - NormalDist().inv_cdf((1 + LEVEL) / 2) * sqrt(number)) / 2)
        return low, number - 1 - low
    rank, term = 0, 0.5**number
    below = term
    while rank + 1 < number / 2:
        term *= (number - rank) / (rank + 1)
        below += term
        if 2 * below > 1 - LEVEL:
            break
        rank += 1
    return rank, number - 1 - rank
