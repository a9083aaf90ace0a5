"""The what-if table: a pool less, two slots more, a longer annex."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import inf
from typing import Final

from msgspec.structs import replace

from metlmon.errors import InputError
from metlmon.model.sites import normalize_name
from metlmon.placement.chains import solve_chains
from metlmon.placement.planner import PlanInput, planned_hours
from metlmon.placement.types import PlacementPlan, PoolSupply, WhatIf

MORE_SLOTS: Final = 2
MORE_HOURS: Final = 12.0
"""Changes that are tried: slots at a pool, hours of an annex."""

NOTABLE: Final = 0.02
"""Smaller changes of the end, as a share of it, are left out."""

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
    """The rows for a plan, made of ``values``, the largest changes first.

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
    changes = {
        row.question: abs((inf if row.hours is None else row.hours) - plan.hours) for row in rows
    }
    # Equal changes by their questions: sums over sets of pools differ in their last digits.
    return tuple(sorted(rows, key=lambda row: (-round(changes[row.question], 9), row.question)))


def _changes(values: PlanInput, plan: PlacementPlan) -> Iterator[WhatIf]:
    """All rows that may differ from the plan: pools that it does not use cannot change it."""
    used = {pool for run in plan.runs for pool in run.pools}
    supplies = values.supplies.usable
    names = values.names()
    for supply in supplies:
        name = names[supply.pool]
        if supply.pool in used:
            others = tuple(each for each in supplies if each is not supply)
            if others:
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
    # The pools of the present plan are open then, too.
    ends = [planned_hours(values, each, supplies) for each in (changed, plan)]
    hours = min((end for end in ends if end is not None), default=None)
    if hours is not None and not unplaced:
        return WhatIf(question=question, hours=hours, gpu_hours=changed.gpu_hours)
    epochs = "1 epoch has" if unplaced == 1 else f"{unplaced} epochs have"
    remark = f"{epochs} no place" if unplaced else NO_SLOT
    return WhatIf(question=question, hours=None, gpu_hours=None, remark=remark)


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
