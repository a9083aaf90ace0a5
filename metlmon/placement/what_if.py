"""The what-if table: a pool less, two slots more, a longer annex, and no plan at all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import exp, inf
from typing import Final

from msgspec.structs import replace

from metlmon.errors import InputError
from metlmon.model.sites import normalize_name
from metlmon.placement.chains import FEW, solve_chains
from metlmon.placement.planner import PlanInput
from metlmon.placement.types import PlacementPlan, PoolSupply, RunDemand, WhatIf

MORE_SLOTS: Final = 2
MORE_HOURS: Final = 12.0
"""Changes that are tried: slots at a pool, hours of an annex."""

NOTABLE: Final = 0.005
"""Smaller changes of the end, as a share of it, are left out."""

NO_SLOT: Final = "no slot is left before all epochs are done"

_WITHOUT: Final = re.compile(r"without (?:annex )?(?P<pool>.+)", re.IGNORECASE)
_SLOTS: Final = re.compile(
    r"(?P<number>\d{1,4}) (?:slots? more|more slots?) at (?P<pool>.+)", re.IGNORECASE
)
_LONGER: Final = re.compile(
    r"(?:annex )?(?P<pool>.+?) (?P<number>\d{1,4}) ?(?P<unit>h|d)(?:ours?|ays?)? longer",
    re.IGNORECASE,
)

FORMS: Final = "'without SITE', '2 slots more at SITE' and 'annex NAME 12h longer'"


def what_if_table(values: PlanInput, plan: PlacementPlan) -> tuple[WhatIf, ...]:
    """The rows for a plan, made of ``values``: without plan first, then the largest changes.

    ``hours`` and ``gpu_hours`` are those of the changed plan; None, with a remark, where epochs
    have no place then.
    """
    if not any(demand.epochs_left for demand in values.demands):
        return ()
    rows = [
        row
        for row in _changes(values, plan)
        if row.hours is None or abs(row.hours - plan.hours) >= NOTABLE * plan.hours
    ]
    rows.sort(key=lambda row: abs((inf if row.hours is None else row.hours) - plan.hours))
    return (untargeted(values), *reversed(rows))


def _changes(values: PlanInput, plan: PlacementPlan) -> Iterator[WhatIf]:
    """All rows that may differ from the plan: pools that it does not use cannot change it."""
    used = {pool for run in plan.runs for pool in run.pools}
    supplies = values.supplies.usable
    names = values.names()
    for supply in supplies:
        name = names[supply.pool]
        if supply.pool in used:
            others = tuple(each for each in supplies if each is not supply)
            yield what_if_row(f"without {name}", values, others)
            more = replace(supply, slots=supply.slots + MORE_SLOTS)
            yield what_if_row(f"{MORE_SLOTS} more slots at {name}", values, (*others, more))
        if supply.hours_left is not None:
            longer = replace(supply, hours_left=supply.hours_left + MORE_HOURS)
            others = tuple(each for each in supplies if each is not supply)
            yield what_if_row(f"{name} {MORE_HOURS:g} h longer", values, (*others, longer))


def what_if_row(question: str, values: PlanInput, supplies: Sequence[PoolSupply]) -> WhatIf:
    """The end of the plan, and its GPU-hours, with other supplies than those of ``values``."""
    plan = solve_chains(values.demands, supplies, values.allocations)
    unplaced = round(plan.epochs_unplaced)
    if not unplaced:
        return WhatIf(question=question, hours=plan.hours, gpu_hours=plan.gpu_hours)
    epochs = "1 epoch has" if unplaced == 1 else f"{unplaced} epochs have"
    return WhatIf(question=question, hours=None, gpu_hours=None, remark=f"{epochs} no place")


def answer_question(values: PlanInput, question: str) -> WhatIf:
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
    return what_if_row(text, values, others)


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


def untargeted(values: PlanInput) -> WhatIf:
    """The end if each epoch may go anywhere, and HTCondor matches any free slot.

    A lower bound, as the plan's end is. Between two ends of annexes all runs progress at one rate.
    """
    question = "untargeted: each epoch anywhere"
    ends = {
        each: inf if each.hours_left is None else each.hours_left
        for each in (*values.supplies.usable, *values.supplies.avoided)
        if each.slots > 0
    }
    demands = [demand for demand in values.demands if demand.epochs_left]
    left, now, gpu_hours = 1.0, 0.0, 0.0
    for end in sorted({end for end in ends.values() if end > 0}):
        hours, all_gpu_hours = _anywhere(demands, [each for each in ends if ends[each] >= end])
        part = min(left, (end - now) / hours)
        left, now, gpu_hours = left - part, now + part * hours, gpu_hours + part * all_gpu_hours
        if left <= FEW:
            return WhatIf(question=question, hours=now, gpu_hours=gpu_hours)
    return WhatIf(question=question, hours=None, gpu_hours=None, remark=NO_SLOT)


def _anywhere(demands: Sequence[RunDemand], supplies: Sequence[PoolSupply]) -> tuple[float, float]:
    """Hours and GPU-hours for all epochs, if all of these pools stay."""
    hours = gpu_hours = completed = 0.0
    for each, starts in zip(supplies, _starts(len(demands), supplies), strict=True):
        completions = starts * (1 - each.loss)
        completed += completions
        hours += completions * each.hours
        gpu_hours += completions * each.gpu_hours
    epochs = sum(demand.epochs_left for demand in demands)
    chain = max(demand.epochs_left * hours / completed + demand.ready_in for demand in demands)
    return max(chain, epochs / completed), epochs * gpu_hours / completed


def _starts(runs: int, supplies: Sequence[PoolSupply]) -> list[float]:
    """Executions per hour that start at each pool, in proportion to its free slots.

    A lost one is repeated anywhere. The proportion is such that all runs are always under way; if
    there are more runs than slots, no slot is free.
    """
    attempts = [
        (each.slots, each.hours * (1 - each.loss), each.occupancy * (1 - each.loss))
        for each in supplies
    ]

    def at(rate: float) -> list[float]:
        return [rate * slots / (1 + rate * occupancy) for slots, _, occupancy in attempts]

    low, high = -20.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        under_way = sum(
            starts * hours for starts, (_, hours, _) in zip(at(exp(middle)), attempts, strict=True)
        )
        low, high = (middle, high) if under_way < runs else (low, middle)
    return at(exp(low))
