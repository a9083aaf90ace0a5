"""The what-if table: a pool less, two slots more, a longer annex, and no plan at all.

The honest competitor of a plan is "untargeted": all pools open to all runs. Both are estimated
alike, without the order in which a plan does its epochs: each epoch goes to any free slot of its
run's pools, as HTCondor matches jobs. Of several pools that a job waits for the first with a slot
gets it: rates of offers add up, as at a stop that several bus lines serve (H. Spiess and
M. Florian, Transportation Research B 23, 1989).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import exp, inf
from typing import Final

from msgspec.structs import replace

from metlmon.errors import InputError
from metlmon.model.sites import normalize_name
from metlmon.placement.chains import solve_chains
from metlmon.placement.planner import PlanInput
from metlmon.placement.types import PlacementPlan, PoolSupply, RunDemand, WhatIf
from metlmon.stats.pool_profiles import ResourcePool

MORE_SLOTS: Final = 2
MORE_HOURS: Final = 12.0
"""Changes that are tried: slots at a pool, hours of an annex."""

NOTABLE: Final = 0.005
"""Smaller changes of the end, as a share of it, are left out."""

AS_IS: Final = "as is: where the DAG sends each epoch"

NO_SLOT: Final = "no slot is left before all epochs are done"

_WITHOUT: Final = re.compile(r"without (?:annex )?(?P<pool>.+)", re.IGNORECASE)
_SLOTS: Final = re.compile(
    r"(?P<number>\d{1,4}) (?:slots? more|more slots?) at (?P<pool>.+)", re.IGNORECASE
)
_LONGER: Final = re.compile(
    r"\A(?:annex )?(?P<pool>.+?) (?P<number>\d{1,4}) ?(?P<unit>h|d)(?:ours?|ays?)? longer",
    re.IGNORECASE,
)

FORMS: Final = "'without SITE', '2 slots more at SITE' and 'annex NAME 12h longer'"


def what_if_table(values: PlanInput, plan: PlacementPlan) -> tuple[WhatIf, ...]:
    """The rows for a plan, made of ``values``: as is and untargeted, then the largest changes.

    ``hours`` and ``gpu_hours`` are those of the changed plan; None, with a remark, where epochs
    have no place then. Without any place now there are no rows.
    """
    if not values.supplies.usable or not any(demand.epochs_left for demand in values.demands):
        return ()
    rows = [
        row
        for row in _changes(values, plan)
        if row.hours is None or abs(row.hours - plan.hours) >= NOTABLE * plan.hours
    ]
    rows.sort(key=lambda row: abs((inf if row.hours is None else row.hours) - plan.hours))
    as_is = WhatIf(question=AS_IS, hours=values.estimate_hours, gpu_hours=None)
    before = (as_is,) if values.estimate_hours is not None else ()
    return (*before, untargeted(values, plan), *reversed(rows))


def _changes(values: PlanInput, plan: PlacementPlan) -> Iterator[WhatIf]:
    """All rows that may differ from the plan: pools that it does not use cannot change it."""
    used = {pool for run in plan.runs for pool in run.pools}
    supplies = values.supplies.usable
    names = values.names()
    for supply in supplies:
        name = names[supply.pool]
        if supply.pool in used:
            others = tuple(each for each in supplies if each is not supply)
            yield what_if_row(f"without {name}", values, plan, others)
            more = replace(supply, slots=supply.slots + MORE_SLOTS)
            yield what_if_row(f"{MORE_SLOTS} more slots at {name}", values, plan, (*others, more))
        if supply.hours_left is not None:
            longer = replace(supply, hours_left=supply.hours_left + MORE_HOURS)
            others = tuple(each for each in supplies if each is not supply)
            yield what_if_row(f"{name} {MORE_HOURS:g} h longer", values, plan, (*others, longer))


def what_if_row(
    question: str, values: PlanInput, plan: PlacementPlan, supplies: Sequence[PoolSupply]
) -> WhatIf:
    """The end of the plan, and its GPU-hours, with other supplies than those of ``values``."""
    changed = solve_chains(values.demands, supplies, values.allocations)
    unplaced = round(changed.epochs_unplaced)
    if not unplaced:
        hours = changed.hours * plan.scale
        return WhatIf(question=question, hours=hours, gpu_hours=changed.gpu_hours)
    epochs = "1 epoch has" if unplaced == 1 else f"{unplaced} epochs have"
    return WhatIf(question=question, hours=None, gpu_hours=None, remark=f"{epochs} no place")


def answer_question(values: PlanInput, plan: PlacementPlan, question: str) -> WhatIf:
    """The end of the plan with the change that a question names. Raises InputError."""
    text = " ".join(question.split())
    for pattern in (_WITHOUT, _SLOTS, _LONGER):
        match = pattern.fullmatch(text)
        if match is not None:
            break
    else:
        raise InputError(f"--what-if {question!r}: the questions are {FORMS}")
    changed = _named(values, match["pool"])
    others = tuple(each for each in values.supplies.usable if each not in changed)
    if pattern is _SLOTS:
        more = int(match["number"])
        others += tuple(replace(each, slots=each.slots + more) for each in changed)
    elif pattern is _LONGER:
        hours = int(match["number"]) * (24 if match["unit"].lower() == "d" else 1)
        annexes = [each for each in changed if each.hours_left is not None]
        if not annexes:
            raise InputError(f"--what-if {question!r}: no end of it is known")
        others += tuple(
            each if each.hours_left is None else replace(each, hours_left=each.hours_left + hours)
            for each in changed
        )
    return what_if_row(text, values, plan, others)


def _named(values: PlanInput, name: str) -> Sequence[PoolSupply]:
    """The pools of a name: of a pool, a site or an annex."""
    supplies = values.supplies.usable
    names = values.names()
    wanted = normalize_name(name)
    found = [
        each
        for each in supplies
        if wanted in map(normalize_name, (names[each.pool], each.pool.site, each.pool.annex))
    ]
    if not found or not wanted:
        known = ", ".join(sorted(names[each.pool] for each in supplies)) or "none"
        raise InputError(f"--what-if: the plan has no pool {name}; it has {known}")
    return found


def untargeted(values: PlanInput, plan: PlacementPlan) -> WhatIf:
    """The end if each epoch may go anywhere: by how much it is later than where the plan allows it.

    Both are estimated by what HTCondor would match, so that a plan that allows nearly everything
    gains nearly nothing.
    """
    question = "untargeted: each epoch anywhere"
    supplies = values.supplies
    demands = [demand for demand in values.demands if demand.epochs_left]
    allowed = {run.run: frozenset(run.pools) for run in plan.runs}
    anywhere = matched_end(demands, (*supplies.usable, *supplies.avoided), {})
    planned = matched_end(demands, supplies.usable, allowed)
    if anywhere is None or planned is None:
        return WhatIf(question=question, hours=None, gpu_hours=None, remark=NO_SLOT)
    return WhatIf(
        question=question,
        hours=plan.hours + (anywhere[0] - planned[0]) * plan.scale,
        gpu_hours=plan.gpu_hours + anywhere[1] - planned[1],
    )


# --- free matching ----------------------------------------------------------------------------


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
