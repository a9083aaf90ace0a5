"""What a plan gains: the end of the estimates, and by how much the plan's pools change it.

There is one end, that of the estimates (:mod:`metlmon.stats.estimates`). The profiles of the pools
say only how many hours an epoch takes at one set of pools relative to another: where the DAG sends
it, and where the plan does. Each pool offers starts at a rate, by the starts and waits of the jobs
that could go there; of several pools a job gets the first offer. Logs of jobs that name one site do
not say whether offers of several sites add up for one job, or are shared: the wait for a set is
between the two, and the interval of the gain has both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp, inf, log
from random import Random
from typing import Final, TypeAlias

from msgspec.structs import replace

from metlmon.placement.types import PlacementPlan, PlanGain, PoolSupply, RunDemand
from metlmon.stats.pool_profiles import Z_80, PoolProfile, ProfileFigure, ResourcePool

PoolSet: TypeAlias = frozenset[ResourcePool]
"""Pools that are open to an epoch; empty: all."""

Openings: TypeAlias = Mapping[str, Mapping[PoolSet, int]]
"""By run: how many of its epochs left may go to which pools. A run without any goes anywhere."""

MINUTE: Final = 1 / 60
"""Hours that a job waits at least, for a negotiation cycle."""

TRIALS: Final = 60
"""Trials of the interval of a gain."""

HALF_SHARED: Final = 0.5
"""How far offers of several pools add up, from 0 (they are shared) to 1: unknown, so half."""

DONE: Final = 1e-9
"""Share of the epochs below which none is left."""


def planned_openings(plan: PlacementPlan, demands: Iterable[RunDemand]) -> Openings:
    """Where the plan lets the epochs of each run go."""
    pools = {run.run: frozenset(run.pools) for run in plan.runs}
    return {each.run: {pools.get(each.run, frozenset()): each.epochs_left} for each in demands}


def end_hours(
    demands: Sequence[RunDemand],
    supplies: Sequence[PoolSupply],
    openings: Openings,
    offers: Mapping[ResourcePool, float],
    added: float = HALF_SHARED,
) -> float | None:
    """Hours until the last run is done; None: all annexes end before.

    ``offers``: of the starts of jobs that are sent to a pool, those that go there. Between two
    ends of annexes all runs progress at one rate. Where none of its pools is left, a run may go
    anywhere.
    """
    ends = {
        supply: inf if supply.hours_left is None else supply.hours_left
        for supply in supplies
        if supply.slots > 0
    }
    left, now = 1.0, 0.0
    for end in sorted({end for end in ends.values() if end > 0}):
        present = {supply.pool: supply for supply in ends if ends[supply] >= end}
        hours = _hours_of_all(demands, present, openings, offers, added)
        part = min(left, (end - now) / hours) if hours else left
        left, now = left - part, now + part * hours
        if left <= DONE:
            return now
    return None


def _hours_of_all(
    demands: Sequence[RunDemand],
    supplies: Mapping[ResourcePool, PoolSupply],
    openings: Openings,
    offers: Mapping[ResourcePool, float],
    added: float,
) -> float:
    """Hours for all epochs, if these pools stay.

    At least those of the longest chain, and those in which the slots of a set of pools complete the
    epochs that may go nowhere else.
    """
    anywhere, chain = frozenset(supplies), 0.0
    to_do: Counter[PoolSet] = Counter()
    per_set: dict[PoolSet, tuple[PoolSet, float]] = {}
    for demand in demands:
        hours = demand.ready_in
        for pools, epochs in openings.get(demand.run, {anywhere: demand.epochs_left}).items():
            if pools not in per_set:
                there = (pools & anywhere) or anywhere
                per_set[pools] = there, _epoch_hours([supplies[p] for p in there], offers, added)
            there, each = per_set[pools]
            hours += epochs * each
            to_do[there] += epochs
        chain = max(chain, hours)
    busy = (
        sum(epochs for within, epochs in to_do.items() if within <= pools)
        / sum(supplies[pool].slots / supplies[pool].occupancy for pool in pools)
        for pools in to_do
    )
    return max(chain, *busy) if to_do else chain


def _epoch_hours(
    supplies: Sequence[PoolSupply], offers: Mapping[ResourcePool, float], added: float
) -> float:
    """Hours of an epoch that goes where it is first offered a start, again after each loss."""
    rates = [offers.get(each.pool, 1.0) / max(MINUTE, each.wait) for each in supplies]
    total = sum(rates)
    shares = [rate / total for rate in rates]
    pairs = list(zip(shares, supplies, strict=True))
    wait = sum(share * max(MINUTE, each.wait) for share, each in pairs)
    if len(supplies) > 1:
        wait *= (1 / total / wait) ** added
    attempt = sum(share * each.occupancy * (1 - each.loss) for share, each in pairs)
    return (wait + attempt) / sum(share * (1 - each.loss) for share, each in pairs)


def gain_of_plan(
    estimate: float,
    demands: Sequence[RunDemand],
    supplies: Sequence[PoolSupply],
    as_is: Openings,
    planned: Openings,
    offers: Mapping[ResourcePool, float],
    profiles: Mapping[ResourcePool, PoolProfile],
) -> PlanGain | None:
    """The hours by which a plan ends sooner than ``estimate``; None where epochs have no place.

    Its interval has the errors of the pools' hours and waits, and how far offers add up.
    """

    def gain(supplies: Sequence[PoolSupply], added: float) -> float | None:
        before = end_hours(demands, supplies, as_is, offers, added)
        after = end_hours(demands, supplies, planned, offers, added)
        return None if not before or after is None else estimate * (1 - after / before)

    middle = gain(supplies, HALF_SHARED)
    if middle is None:
        return None
    random, trials = Random(0), []
    for trial in range(TRIALS):
        drawn = [_drawn(each, profiles.get(each.pool), random) for each in supplies]
        value = gain(drawn, (trial + 0.5) / TRIALS)
        trials.append(middle if value is None else value)
    trials.sort()
    low, high = trials[TRIALS // 10], trials[-1 - TRIALS // 10]
    return PlanGain(hours=middle, low=low, high=high, share=middle / estimate if estimate else 0.0)


def _drawn(supply: PoolSupply, profile: PoolProfile | None, random: Random) -> PoolSupply:
    """The supply with hours and a wait within their errors."""
    figures = (profile.hours, profile.wait) if profile is not None else ()
    hours, wait = (exp(_log_sigma(each) * random.gauss(0, 1)) for each in figures or (None, None))
    idle = supply.wait / (1 - supply.loss)
    return replace(
        supply,
        hours=supply.hours + idle * (wait - 1) + supply.occupancy * (hours - 1),
        occupancy=supply.occupancy * hours,
        wait=supply.wait * wait,
    )


def _log_sigma(figure: ProfileFigure | None) -> float:
    if figure is None or figure.low <= 0 or figure.high <= 0:
        return 0.0
    return log(figure.high / figure.low) / (2 * Z_80)
