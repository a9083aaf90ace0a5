"""The end if each epoch goes to any free slot of its run's pools, as HTCondor matches jobs.

The honest competitor of a plan is "untargeted": all pools open to all runs. Both are estimated
alike here, without the order in which a plan does its epochs. Of several pools that a job waits
for the first with a slot gets it: rates of offers add up, as at a stop that several bus lines
serve (H. Spiess and M. Florian, Transportation Research B 23, 1989).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, inf
from typing import Final

from metlmon.placement.types import PoolSupply, RunDemand
from metlmon.stats.pool_profiles import ResourcePool

DONE: Final = 1e-9
"""Share of the epochs below which none is left."""

Pools = Mapping[str, frozenset[ResourcePool]]
"""The pools open to a run; a run that is not in it may go anywhere."""


def matched_end(
    demands: Sequence[RunDemand], supplies: Sequence[PoolSupply], pools: Pools
) -> tuple[float, float] | None:
    """Hours until the last run is done, and GPU-hours; None: all annexes end before.

    Between two ends of annexes all runs progress at one rate. Where none of its pools is left, a
    run may go anywhere.
    """
    ends = {
        supply: inf if supply.hours_left is None else supply.hours_left
        for supply in supplies
        if supply.slots > 0
    }
    left, now, gpu_hours = 1.0, 0.0, 0.0
    for end in sorted({end for end in ends.values() if end > 0}):
        present = [supply for supply in ends if ends[supply] >= end]
        hours, all_gpu_hours = _with_all_left(demands, present, pools)
        part = min(left, (end - now) / hours)
        left, now, gpu_hours = left - part, now + part * hours, gpu_hours + part * all_gpu_hours
        if left <= DONE:
            return now, gpu_hours
    return None


def _with_all_left(
    demands: Sequence[RunDemand], supplies: Sequence[PoolSupply], pools: Pools
) -> tuple[float, float]:
    """Hours and GPU-hours for all epochs, if all of these pools stay.

    At least those of the longest chain, and those in which the slots complete all epochs.
    """
    completions = [
        starts * (1 - supply.loss)
        for starts, supply in zip(_starts(len(demands), supplies), supplies, strict=True)
    ]
    per_set: dict[frozenset[ResourcePool], tuple[float, float]] = {}
    everywhere = list(zip(supplies, completions, strict=True))
    chain = gpu_hours = 0.0
    used: set[PoolSupply] = set()
    for demand in demands:
        own = pools.get(demand.run, frozenset())
        if own not in per_set:
            rates = [(supply, rate) for supply, rate in everywhere if supply.pool in own]
            per_set[own] = _of_one_epoch(rates or everywhere)
            used.update(supply for supply, _ in rates or everywhere)
        hours, gpu_hours_each = per_set[own]
        chain = max(chain, demand.ready_in + demand.epochs_left * hours)
        gpu_hours += demand.epochs_left * gpu_hours_each
    epochs = sum(demand.epochs_left for demand in demands)
    most_per_hour = sum(supply.slots / supply.occupancy for supply in used)
    return max(chain, epochs / most_per_hour), gpu_hours


def _of_one_epoch(rates: Sequence[tuple[PoolSupply, float]]) -> tuple[float, float]:
    """Hours and GPU-hours of an epoch that completes at each pool at these rates."""
    total = sum(rate for _, rate in rates)
    wait = first_wait(supply.wait for supply, _ in rates)
    hours = sum(
        rate * (wait / (1 - supply.loss) + _started_hours(supply)) for supply, rate in rates
    )
    return hours / total, sum(rate * supply.gpu_hours for supply, rate in rates) / total


def first_wait(waits: Iterable[float]) -> float:
    """The mean wait for the first of several pools, by their mean waits, in hours."""
    offers = [1 / wait if wait > 0 else inf for wait in waits]
    return 1 / sum(offers)


def _started_hours(supply: PoolSupply) -> float:
    """The hours of an epoch without its waits, of which each repeat has one."""
    return supply.hours - supply.wait / (1 - supply.loss)


def _starts(runs: int, supplies: Sequence[PoolSupply]) -> list[float]:
    """Executions per hour that start at each pool, in proportion to its free slots.

    A lost one is repeated anywhere. The proportion is such that all runs are always under way; if
    there are more runs than slots, no slot is free.
    """
    wait = first_wait(supply.wait for supply in supplies)
    attempts = [
        (
            supply.slots,
            wait + _started_hours(supply) * (1 - supply.loss),
            supply.occupancy * (1 - supply.loss),
        )
        for supply in supplies
    ]

    def at(rate: float) -> list[float]:
        return [rate * slots / (1 + rate * occupancy) for slots, _, occupancy in attempts]

    low, high = -20.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        rates = zip(at(exp(middle)), attempts, strict=True)
        under_way = sum(starts * hours for starts, (_, hours, _) in rates)
        low, high = (middle, high) if under_way < runs else (low, middle)
    return at(exp(low))
