"""Hosts against equal ones elsewhere, and which of them are slow."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from math import sqrt
from statistics import NormalDist, median
from typing import Final, NamedTuple, TypeAlias

from metlmon.stats.totals import group_by

HostKey: TypeAlias = tuple[str | None, str | None, str | None, int | None]
"""Host, site, GPU model, and how many GPUs: hosts of several sites may have one name."""

SLOW_FACTOR: Final = 1.25
"""A place is slow for a GPU model and count if its median epoch exceeds this multiple of other
places' and the values in between do not overlap. Runs and hosts of one site differ by about 10 %;
25 % beyond that is worth an e-mail."""

SLOW_MIN_EPOCHS: Final = 3
"""Minimum epochs on both sides of a comparison: of two, one outlier decides."""

_QUANTILE: Final = NormalDist().inv_cdf(0.9)
"""For intervals of 80 %; of three epochs it is their range, which has 75 %."""


class EpochTime(NamedTuple):
    """The seconds of a completed epoch, when it began, and where which run trained it."""

    place: HostKey
    run: str | None
    start: datetime
    seconds: float

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds)


class HostComparison(NamedTuple):
    """A host and its peers: see :class:`metlmon.stats.usage.HostUsage`."""

    peer_epochs: int = 0
    peer_median: float | None = None
    relative_time: float | None = None
    slow: bool | None = None


def compare_hosts(times: Iterable[EpochTime]) -> dict[HostKey, HostComparison]:
    """Compare each host with its peers: other hosts with the same known GPU model and count.

    It is slow if its median exceeds theirs by :data:`SLOW_FACTOR`, and the intervals of both do
    not overlap. This must also be so against those peers that are at its site, those at the same
    time, and those that trained its runs, if there are enough: a slow site or a large run is not a
    slow host. Without enough peers at its site or at the same time it is not known: the site may
    be slow, or what an epoch does may have changed since.
    """
    found: dict[HostKey, HostComparison] = {}
    for machine, equal in group_by(times, lambda each: each.place[2:]).items():
        if None not in machine:
            equal.sort(key=lambda each: each.seconds)
            ranks: dict[HostKey, list[int]] = {}
            for rank, each in enumerate(equal):
                ranks.setdefault(each.place, []).append(rank)
            found |= {place: _compare(place, own, equal) for place, own in ranks.items()}
    return found


def _compare(place: HostKey, ranks: Sequence[int], equal: Sequence[EpochTime]) -> HostComparison:
    """The comparison of the host with these ranks among the sorted ``equal`` epochs."""

    def of_peers(index: int) -> float:
        for rank in ranks:
            index += rank <= index
        return equal[index].seconds

    number, own = len(equal) - len(ranks), [equal[rank].seconds for rank in ranks]
    if place[0] is None or min(number, len(own)) < SLOW_MIN_EPOCHS:
        return HostComparison(number)
    middle = (of_peers((number - 1) // 2) + of_peers(number // 2)) / 2
    slow: bool | None = _is_beyond(own, middle, of_peers(_upper_rank(number)))
    if slow:
        runs = {equal[rank].run for rank in ranks} - {None}
        others = [each for each in equal if each.place != place]
        at_site = [each.seconds for each in others if each.place[1] == place[1]]
        of_runs = [each.seconds for each in others if each.run in runs]
        trained = sorted((equal[rank] for rank in ranks), key=lambda each: each.start)
        starts = [each.start for each in trained]
        ends = list(accumulate((each.end for each in trained), max))
        at_once = [
            each.seconds
            for each in others
            if (before := bisect_left(starts, each.end)) and ends[before - 1] > each.start
        ]
        slow = all(
            _is_beyond(own, median(peers), peers[_upper_rank(len(peers))])
            for peers in (at_site, of_runs, at_once)
            if len(peers) >= SLOW_MIN_EPOCHS
        )
        slow = None if slow and min(len(at_site), len(at_once)) < SLOW_MIN_EPOCHS else slow
    return HostComparison(number, middle, median(own) / middle if middle else None, slow)


def _is_beyond(own: Sequence[float], middle: float, upper: float) -> bool:
    """Whether sorted times exceed peers with this median and upper end of its interval."""
    lower = own[len(own) - 1 - _upper_rank(len(own))]
    return median(own) > SLOW_FACTOR * middle and lower > upper


def _upper_rank(number: int) -> int:
    """The rank, from 0, of the sorted values at the upper end of the interval of their median.

    The number of values below the true median is binomial, whatever their distribution (H. A. David
    and H. N. Nagaraja, Order Statistics, 3rd ed., section 7.1); here by the normal approximation
    with a correction for continuity, which is exact to one rank. The lower end has the same rank
    from above.
    """
    return number - 1 - max(0, int((number - 1 - _QUANTILE * sqrt(number)) / 2))
