"""Reasons of a plan, one sentence each: why a run may go to its pools, and why a pool is unused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from metlmon.placement.pool_names import name_list
from metlmon.placement.types import PoolShare, PoolSupply, RunDemand
from metlmon.snapshot.records import HOUR
from metlmon.stats.pool_profiles import ResourcePool
from metlmon.text.formatting import duration, hours

Lengths = Mapping[ResourcePool, tuple[int, int]]
"""Per pool, the fewest and the most epochs left of the runs with planned epochs there."""


def plan_reason(
    demand: RunDemand,
    own: Sequence[PoolShare],
    *,
    supplies: Sequence[PoolSupply],
    lengths: Lengths,
    names: Mapping[ResourcePool, str],
) -> str:
    """``delta and expanse: 2h06m and 2h24m per epoch; anvil is left to shorter runs``.

    ``own``: the pools where the run's next epochs may go.
    """
    planned = sorted(
        (share.supply for share in own if share.epochs), key=lambda supply: supply.hours
    )
    if not planned:
        return _no_pool(demand, supplies)
    times = [duration(supply.hours * HOUR) for supply in planned]
    # A longer list names not all pools, so their times do not correspond.
    per_epoch = name_list(times) if len(times) <= 3 else f"{times[0]} to {times[-1]}"
    remarks = [f"{name_list([names[each.pool] for each in planned])}: {per_epoch} per epoch"]
    if free := [names[share.supply.pool] for share in own if not share.epochs]:
        is_all = len(own) == sum(_is_open(demand, supply) for supply in supplies)
        others = "any other" if is_all else name_list(sorted(free))
        remarks.append(f"{others} would delay nothing")
    if demand.pools:
        remarks.append("its DAG allows no other" if len(demand.pools) == len(own) else "")
    remarks += _left_to_others(demand, own, lengths, names)
    return "; ".join(filter(None, remarks))


def _left_to_others(
    demand: RunDemand,
    own: Sequence[PoolShare],
    lengths: Lengths,
    names: Mapping[ResourcePool, str],
) -> Iterator[str]:
    """Pools not open to the run, whose planned epochs are of longer, or shorter, runs only."""
    mine = {share.supply.pool for share in own}
    others = {
        pool: limits
        for pool, limits in lengths.items()
        if pool not in mine and (not demand.pools or pool in demand.pools)
    }
    longer = [names[pool] for pool, (least, _) in others.items() if least > demand.epochs_left]
    shorter = [names[pool] for pool, (_, most) in others.items() if most < demand.epochs_left]
    for kind, found in (("longer", longer), ("shorter", shorter)):
        if found:
            verb = "is" if len(found) == 1 else "are"
            yield f"{name_list(sorted(found))} {verb} left to {kind} runs"


def _is_open(demand: RunDemand, supply: PoolSupply) -> bool:
    return supply.slots > 0 and (not demand.pools or supply.pool in demand.pools)


def _no_pool(demand: RunDemand, supplies: Sequence[PoolSupply]) -> str:
    if any(_is_open(demand, supply) for supply in supplies):
        return "no epoch of it fits into what the annexes and balances leave"
    if demand.pools:
        return "no pool that its DAG allows is known to have a slot"
    return "no pool is left: all are excluded, or have no slot"


def unused_reason(supply: PoolSupply, used: Sequence[PoolSupply]) -> str:
    """Why no run may go to a pool; ``used``: the pools where the plan does epochs."""
    per_epoch = f"{duration(supply.hours * HOUR)} per epoch"
    if supply.slots <= 0:
        return "no slot is known there"
    if supply.hours_left is not None and supply.hours_left < supply.hours:
        return f"ends in {duration(max(0.0, supply.hours_left) * HOUR)}, {per_epoch}"
    if used and supply.hours > max(each.hours for each in used):
        return f"{per_epoch}, slower than the pools used"
    if used and supply.gpu_hours > min(each.gpu_hours for each in used):
        return f"{hours(supply.gpu_hours)} GPU-h per epoch; the runs end as soon without it"
    return "the runs end as soon without it" if used else "no run may go there"
