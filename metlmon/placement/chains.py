"""The plan for chains: the number of epochs of each run at each pool, by a linear program.

Each epoch of a run needs the one before it. In hours, with x epochs of class c at pool p::

    minimize T + EPSILON * sum(gpu_hours[p] * x[c, p])
    sum over p of x[c, p]             = epochs left of the class
    sum over p of hours[p] * x[c, p] <= runs * T - sum of ready_in      each class
    sum over c of occupancy[p] * x   <= slots[p] * T                    each pool
    sum over c of occupancy[p] * x   <= slots[p] * hours_left[p]        each annex
    x[c, p]                          <= whole epochs before its end     each class and annex
    sum of charge * gpu_hours * x    <= balance                         each allocation

Runs that may go to the same pools are grouped by epochs left into classes; those with the most
epochs left are a class of their own, since their chains determine T. A class is planned by the mean
of its runs, so that T is never later than without classes. If annexes and balances are too small
for all epochs, as many as possible are placed: this is the first objective.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import floor
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.config.settings import AllocationSettings
from metlmon.placement.simplex import LinearRow, minimize
from metlmon.placement.types import (
    ExcludedPool,
    PlacementPlan,
    PoolShare,
    PoolSupply,
    RunDemand,
    RunPlacement,
)
from metlmon.snapshot.records import HOUR
from metlmon.stats.pool_profiles import ResourcePool
from metlmon.text.formatting import duration, gpu_short, hours, plain

EPSILON: Final = 1e-5
"""Hours that a GPU-hour is worth, which decides between plans that end at the same time."""

SHORTER_CLASSES: Final = 5
"""Classes of runs with fewer epochs left than the longest: T is 0.4 % too early on average."""

FEW: Final = 1e-6
"""Fewer epochs of a class at a pool are rounding errors."""

FULL: Final = 1 - 1e-8
"""Share of a pool's slots that can be used: if a run's chain needs exactly all of them, the slots
are scarce, and no other run may go there."""

ROOM: Final = 2.0
"""Free slots of a pool, while an epoch of each run is running, above which runs do not wait."""

NO_DELAY: Final = 1e-2
"""Share of an epoch's hours: an epoch that delays the end by less may go there."""


class RunClass(Struct, frozen=True):
    """Runs that are planned together, with their ``epochs`` left in total, and their pools."""

    demands: tuple[RunDemand, ...]
    supplies: tuple[PoolSupply, ...]

    @property
    def epochs(self) -> int:
        return sum(demand.epochs_left for demand in self.demands)

    @property
    def ready_in(self) -> float:
        """The hours until the next epochs are ready, summed over the runs."""
        return sum(demand.ready_in for demand in self.demands)


def solve_chains(
    demands: Sequence[RunDemand],
    supplies: Sequence[PoolSupply],
    allocations: Sequence[AllocationSettings] = (),
    names: Mapping[ResourcePool, str] | None = None,
) -> PlacementPlan:
    """The plan that ends first, and among such plans the one with the fewest GPU-hours.

    A run whose last epoch is running only delays the end. ``names``: those of pools in the reasons,
    by default as short as these pools allow.
    """
    busy_for = max((demand.ready_in for demand in demands), default=0.0)
    demands = [demand for demand in demands if demand.epochs_left > 0]
    usable = [supply for supply in supplies if supply.slots > 0]
    classes = _classes(demands, usable)
    hours, shares = _Program(classes, usable, allocations).solve()
    end, names = max(hours, busy_for), names or pool_names(supply.pool for supply in supplies)
    free_slots = {supply.pool: supply.slots for supply in supplies}
    for run_class, own in zip(classes, shares, strict=True):
        planned = sum(share.epochs for share in own)
        for share in own:
            if share.epochs:
                under_way = len(run_class.demands) * share.epochs / planned
                free_slots[share.supply.pool] -= under_way
    placements: dict[str, list[PoolShare]] = {}
    for run_class, own in zip(classes, shares, strict=True):
        for demand in run_class.demands:
            part = demand.epochs_left / run_class.epochs
            placements[demand.key] = sorted(
                (
                    replace(share, epochs=share.epochs * part)
                    for share in _open_shares(demand, own, end, free_slots)
                ),
                key=lambda share: (not share.epochs, share.supply.hours),
            )
    allowed = {share.supply.pool for own in placements.values() for share in own}
    used = [share for own in shares for share in own if share.epochs]
    return PlacementPlan(
        as_of=None,
        hours=end,
        gpu_hours=sum(share.supply.gpu_hours * share.epochs for share in used),
        runs=tuple(
            RunPlacement(
                key=demand.key,
                run=demand.run,
                pools=tuple(share.supply.pool for share in placements[demand.key]),
                epochs=tuple(share.epochs for share in placements[demand.key]),
                reason=plan_reason(demand, placements[demand.key], supplies, names),
            )
            for demand in demands
        ),
        excluded=tuple(
            ExcludedPool(supply.pool, unused_reason(supply, [share.supply for share in used]))
            for supply in supplies
            if demands and supply.pool not in allowed
        ),
        epochs_unplaced=_unplaced(demands, used),
    )


def _unplaced(demands: Sequence[RunDemand], used: Sequence[PoolShare]) -> float:
    """Epochs left of the demands without a share, without the error of the solver."""
    left = sum(demand.epochs_left for demand in demands)
    return max(0.0, round(left - sum(share.epochs for share in used), 6))


def _classes(demands: Sequence[RunDemand], supplies: Sequence[PoolSupply]) -> list[RunClass]:
    """The runs by the pools open to them, then by epochs left."""
    groups: dict[tuple[int, ...], list[RunDemand]] = defaultdict(list)
    for demand in demands:
        allowed = tuple(
            index
            for index, supply in enumerate(supplies)
            if not demand.pools or supply.pool in demand.pools
        )
        groups[allowed].append(demand)
    classes = []
    for allowed, group in groups.items():
        pools = tuple(supplies[index] for index in allowed)
        classes += [RunClass(tuple(members), pools) for members in _by_epochs_left(group)]
    return classes


def _by_epochs_left(demands: Sequence[RunDemand]) -> list[list[RunDemand]]:
    """The runs with the most epochs left, and the others in classes of about equal size."""
    most = max(demand.epochs_left for demand in demands)
    longest = [demand for demand in demands if demand.epochs_left == most]
    shorter = sorted(demand.epochs_left for demand in demands if demand.epochs_left < most)
    classes: dict[int, list[RunDemand]] = defaultdict(list)
    for demand in demands:
        if demand.epochs_left < most:
            # Runs with equally many epochs left are in one class, so that their plans are equal.
            rank = bisect_left(shorter, demand.epochs_left)
            classes[rank * SHORTER_CLASSES // len(shorter)].append(demand)
    return [longest, *classes.values()]


class _Program:
    """The linear program. Its first column is the hours saved, relative to the end ``latest``.

    With that in place of T all limits are positive, so that no epoch placed is a feasible start.
    """

    def __init__(
        self,
        classes: Sequence[RunClass],
        supplies: Sequence[PoolSupply],
        allocations: Sequence[AllocationSettings],
    ) -> None:
        self.classes = classes
        slowest = max((max(s.hours, s.occupancy / s.slots) for s in supplies), default=0.0)
        self.latest = slowest * sum(each.epochs for each in classes) + max(
            (demand.ready_in for each in classes for demand in each.demands), default=0.0
        )
        self.cells = [(c, supply) for c, each in enumerate(classes) for supply in each.supplies]
        self.rows = [LinearRow({0: 1.0}, self.latest)]
        self.chain_rows: list[int] = []
        for c, run_class in enumerate(classes):
            self._add_class(c, run_class)
        for supply in supplies:
            self._add_pool(supply)
        for allocation in allocations:
            self._add_allocation(allocation)

    def solve(self) -> tuple[float, list[list[PoolShare]]]:
        """The hours until the end, and the shares of each class."""
        epochs = [0.0, *(-1.0 for _ in self.cells)]
        end = [-1.0, *(EPSILON * supply.gpu_hours for _, supply in self.cells)]
        optimum = minimize([epochs, end], self.rows, len(self.cells) + 1)
        shares: list[list[PoolShare]] = [[] for _ in self.classes]
        columns = zip(self.cells, optimum.values[1:], optimum.reduced_costs[1:], strict=True)
        for (c, supply), value, delay in columns:
            per_hour = optimum.duals[self.chain_rows[c]]
            shares[c].append(
                PoolShare(
                    supply=supply,
                    epochs=value if value > FEW else 0.0,
                    delay=delay - per_hour * supply.wait,
                    delay_per_hour=per_hour,
                )
            )
        return self.latest - optimum.values[0], shares

    def _add_class(self, c: int, run_class: RunClass) -> None:
        columns = {i: s for i, (cell, s) in enumerate(self.cells, start=1) if cell == c}
        runs = len(run_class.demands)
        self.rows.append(LinearRow(dict.fromkeys(columns, 1.0), run_class.epochs))
        chain = {0: float(runs)} | {column: supply.hours for column, supply in columns.items()}
        self.chain_rows.append(len(self.rows))
        self.rows.append(LinearRow(chain, runs * self.latest - run_class.ready_in))
        for column, supply in columns.items():
            if supply.hours_left is not None:
                whole = sum(
                    whole_epochs(supply.hours_left - demand.ready_in, supply.hours)
                    for demand in run_class.demands
                )
                self.rows.append(LinearRow({column: 1.0}, whole))

    def _add_pool(self, supply: PoolSupply) -> None:
        occupancy = {
            column: supply.occupancy
            for column, (_, each) in enumerate(self.cells, start=1)
            if each is supply
        }
        slots = FULL * supply.slots
        self.rows.append(LinearRow({0: slots} | occupancy, slots * self.latest))
        if supply.hours_left is not None:
            self.rows.append(LinearRow(occupancy, supply.slots * max(0.0, supply.hours_left)))

    def _add_allocation(self, allocation: AllocationSettings) -> None:
        charges = {
            column: allocation.charge * supply.gpu_hours
            for column, (_, supply) in enumerate(self.cells, start=1)
            if supply.pool.site in allocation.sites
        }
        self.rows.append(LinearRow(charges, max(0.0, allocation.balance)))


def whole_epochs(hours_left: float, hours: float) -> int:
    """The number of epochs of ``hours`` each that fit one after the other."""
    return max(0, floor(hours_left / hours + 1e-9)) if hours > 0 else 0


def _open_shares(
    demand: RunDemand,
    shares: Sequence[PoolShare],
    end: float,
    free_slots: Mapping[ResourcePool, float],
) -> list[PoolShare]:
    """The pools where the next epoch of a run may go: those where the plan has epochs of it and, if
    it may have to wait there, others where an immediate start delays nothing.

    The end does not change if the epoch takes no slot that another run needs (``delay``), and the
    later epochs, at the pools of the plan, end in time; or if it delays the end no more than the
    mean wait for a slot would, were the plan's pools full. No epoch goes to an annex that ends
    before it.
    """
    planned = [share for share in shares if share.epochs]
    if not planned:
        return []
    fitting = [share for share in shares if _fits(demand, share.supply)]
    if all(share not in fitting for share in planned):
        return sorted(fitting, key=lambda share: share.delay)[:1]
    if any(free_slots[share.supply.pool] >= ROOM and not share.supply.wait for share in planned):
        return [share for share in fitting if share.epochs]
    mean = sum(share.epochs * share.supply.hours for share in planned) / sum(
        share.epochs for share in planned
    )
    latest_end = end - (demand.epochs_left - 1) * mean
    # The mean time between two releases of any slot of the planned pools.
    slot_wait = 1 / sum(share.supply.slots / max(share.supply.occupancy, FEW) for share in planned)

    def is_open(share: PoolShare) -> bool:
        if share.epochs:
            return True
        hours = share.supply.hours - share.supply.wait
        if share.delay <= NO_DELAY * share.supply.hours and demand.ready_in + hours <= latest_end:
            return True
        return hours <= mean + slot_wait and share.delay <= share.delay_per_hour * slot_wait

    return [share for share in fitting if is_open(share)]


def _fits(demand: RunDemand, supply: PoolSupply) -> bool:
    """Whether the next epoch of a run ends before the annex if it starts at once."""
    hours = demand.ready_in + supply.hours - supply.wait
    return supply.hours_left is None or hours <= supply.hours_left


# --- names and reasons -------------------------------------------------------------------------


def pool_names(pools: Iterable[ResourcePool]) -> Mapping[ResourcePool, str]:
    """``delta``; ``delta A40 ×2`` if several of the pools are at delta; ``delta (annex)``.

    Several GPU models of one site without an annex are distinguished by the model.
    """
    pools = set(pools)
    shared = Counter((pool.site, pool.annex) for pool in pools)
    names = {}
    for pool in pools:
        gpu = f" {gpu_short(pool.model or None)}" if shared[pool.site, pool.annex] > 1 else ""
        annex = f" (annex {pool.annex})" if pool.annex else ""
        names[pool] = plain(f"{pool.site or 'unknown site'}{gpu}{annex}")
    return names


def name_list(names: Sequence[str], most: int = 3) -> str:
    """``a, b and c``; ``a, b and 4 others`` beyond ``most`` names."""
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} others"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def plan_reason(
    demand: RunDemand,
    own: Sequence[PoolShare],
    supplies: Sequence[PoolSupply],
    names: Mapping[ResourcePool, str],
) -> str:
    """``delta and expanse: 2h06m and 2h24m per epoch``, for the pools with planned epochs."""
    planned = sorted(
        (share.supply for share in own if share.epochs), key=lambda supply: supply.hours
    )
    if not planned:
        return _no_pool(demand, supplies)
    times = [duration(supply.hours * HOUR) for supply in planned]
    # A longer list does not name all pools, so that their times would not correspond.
    per_epoch = name_list(times) if len(times) <= 3 else f"{times[0]} to {times[-1]}"
    reason = f"{name_list([names[each.pool] for each in planned])}: {per_epoch} per epoch"
    is_bound = demand.pools and len(demand.pools) == len(own)
    return f"{reason}; its DAG allows no other" if is_bound else reason


def _no_pool(demand: RunDemand, supplies: Sequence[PoolSupply]) -> str:
    allowed = [supply for supply in supplies if not demand.pools or supply.pool in demand.pools]
    if any(supply.slots > 0 for supply in allowed):
        return "no epoch of it fits into what the annexes and balances leave"
    if demand.pools:
        return "no pool that its DAG allows is known to have a slot"
    return "no pool is left: all are excluded, or have no slot"


def unused_reason(supply: PoolSupply, used: Sequence[PoolSupply]) -> str:
    """Why no run may go to a pool; ``used``: the pools with planned epochs."""
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
