"""One what-if question in words: ``without delta``, ``2 slots more at delta``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from metlmon.errors import InputError
from metlmon.model.sites import normalize_name
from metlmon.placement.planner import PlanInput
from metlmon.placement.pool_names import pool_names
from metlmon.placement.types import PoolSupply, WhatIf
from metlmon.placement.what_if import what_if_row

_WITHOUT: Final = re.compile(r"without (?:annex )?(?P<pool>.+)", re.IGNORECASE)
_SLOTS: Final = re.compile(
    r"(?P<number>\d{1,4}) (?:slots? more|more slots?) at (?P<pool>.+)", re.IGNORECASE
)
_LONGER: Final = re.compile(
    r"(?:annex )?(?P<pool>.+?) (?P<number>\d{1,4}) ?(?P<unit>h|d)(?:ours?|ays?)? longer",
    re.IGNORECASE,
)

FORMS: Final = "'without SITE', '2 slots more at SITE' and 'annex NAME 12h longer'"


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
    names = pool_names(values.supplies.profiles)
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
