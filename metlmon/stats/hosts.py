"""Comparison of hosts with equal ones elsewhere, and which of them are slow."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from math import sqrt
from statistics import NormalDist, median
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from metlmon.stats.totals import group_by

HostKey: TypeAlias = tuple[str | None, str | None, str | None, int | None]
"""Host, site, GPU model and GPU count: hosts of several sites may have the same name."""

SLOW_FACTOR: Final = 1.25
"""A place is slow for a GPU model and count if its median epoch exceeds this multiple of other
places' and the values in between do not overlap. Runs and hosts of one site differ by about 10 %;
25 % beyond that is worth an e-mail."""

SLOW_MIN_EPOCHS: Final = 3
"""Minimum epochs on both sides of a comparison: among two, one outlier decides."""

_QUANTILE: Final = NormalDist().inv_cdf(0.9)
"""For 80 % intervals; for three epochs this is their range, which covers 75 %."""


class EpochTime(NamedTuple):
    """The seconds of a completed epoch, when it began, and which run trained it where.

    ``relative``: relative to its site and its run (:func:`relative_times`).
    """

    place: HostKey
    key: str | None
    start: datetime
    seconds: float
    relative: float = 1.0

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds)


class HostComparison(Struct, frozen=True):
    """A host and its peers: other hosts with the same GPU model and count.

    ``relative_time``: its median epoch relative to ``peer_median``, that of the ``peer_epochs`` on
    these; ``relative_at_site``: relative to those at its site, without the differences between
    runs; ``slow``: see :func:`compare_hosts`. Comparisons that are not possible are None.
    """

    peer_epochs: int = 0
    peer_median: float | None = None
    relative_time: float | None = None
    relative_at_site: float | None = None
    slow: bool | None = None


def compare_hosts(times: Iterable[EpochTime]) -> dict[HostKey, HostComparison]:
    """Compare each host with its peers: other hosts with the same known GPU model and count.

    It is slow if its median relative time exceeds that of its peers at the site by
    :data:`SLOW_FACTOR` and the intervals of both do not overlap, and if the same holds against its
    peers at the same time, at all sites: what an epoch does may have changed since. Without
    enough peers of either kind this is unknown.
    """
    found: dict[HostKey, HostComparison] = {}
    compared = relative_times([each for each in times if None not in each.place[2:]])
    for equal in group_by(compared, lambda each: each.place[2:]).values():
        seconds = _Ranking(equal, lambda each: each.seconds)
        for at_site in group_by(equal, lambda each: each.place[1]).values():
            relative = _Ranking(at_site, lambda each: each.relative)
            for place, own in group_by(at_site, lambda each: each.place).items():
                number = seconds.others(place)
                if place[0] is None or min(number, len(own)) < SLOW_MIN_EPOCHS:
                    found[place] = HostComparison(number)
                    continue
                middle = seconds.median_of_others(place)
                ratio = median(each.seconds for each in own) / middle if middle else None
                found[place] = HostComparison(number, middle, ratio, *_slow(own, relative, equal))
    return found


def relative_times(times: Sequence[EpochTime]) -> Iterator[EpochTime]:
    """The epochs with relative times, by which slow sites and large runs are not slow hosts.

    They are relative to the median of the same GPUs at the site, then to that of the run if it has
    enough epochs on hosts other than its main one.
    """
    sites = {
        site: median(each.seconds for each in group) or 1.0
        for site, group in group_by(times, lambda each: each.place[1:]).items()
    }
    at_sites = [each._replace(relative=each.seconds / sites[each.place[1:]]) for each in times]
    for run, epochs in group_by(at_sites, lambda each: each.key).items():
        elsewhere = len(epochs) - max(Counter(each.place for each in epochs).values())
        enough = run is not None and elsewhere >= SLOW_MIN_EPOCHS
        pace = median(each.relative for each in epochs) or 1.0 if enough else 1.0
        yield from (each._replace(relative=each.relative / pace) for each in epochs)


class _Ranking:
    """Sorted values of epochs, from which those of one host can be excluded."""

    def __init__(self, times: Sequence[EpochTime], value: Callable[[EpochTime], float]) -> None:
        ordered = sorted(times, key=value)
        self._values = [value(each) for each in ordered]
        self._ranks: dict[HostKey, list[int]] = {}
        for rank, each in enumerate(ordered):
            self._ranks.setdefault(each.place, []).append(rank)

    def others(self, place: HostKey) -> int:
        """The number of values of other hosts."""
        return len(self._values) - len(self._ranks[place])

    def other(self, place: HostKey, index: int) -> float:
        """The value at this rank among those of other hosts."""
        for rank in self._ranks[place]:
            index += rank <= index
        return self._values[index]

    def median_of_others(self, place: HostKey) -> float:
        """The median of the values of other hosts, at least one of which must exist."""
        number = self.others(place)
        return (self.other(place, (number - 1) // 2) + self.other(place, number // 2)) / 2


def _slow(
    own: Sequence[EpochTime], at_site: _Ranking, equal: Sequence[EpochTime]
) -> tuple[float | None, bool | None]:
    """The median of a host relative to that of its peers at the site, and whether it is slow."""
    place, here = own[0].place, sorted(each.relative for each in own)
    number = at_site.others(place)
    if number < SLOW_MIN_EPOCHS:
        return None, None
    middle = at_site.median_of_others(place)
    slow: bool | None = _is_beyond(here, middle, at_site.other(place, _upper_rank(number)))
    if slow:
        trained = sorted(own, key=lambda each: each.start)
        starts = [each.start for each in trained]
        ends = list(accumulate((each.end for each in trained), max))
        at_once = sorted(
            each.relative
            for each in equal
            if each.place != place
            and (before := bisect_left(starts, each.end))
            and ends[before - 1] > each.start
        )
        enough = len(at_once) >= SLOW_MIN_EPOCHS
        upper = at_once[_upper_rank(len(at_once))] if enough else 0.0
        slow = _is_beyond(here, median(at_once), upper) if enough else None
    return median(here) / middle if middle else None, slow


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
