"""Tables and texts of plans: where the next epochs should go, and what would change the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from metlmon.placement.chains import name_list, pool_names
from metlmon.placement.types import NOTABLE, PlacementPlan, PlanGain, RunPlacement, WhatIf
from metlmon.snapshot.records import HOUR
from metlmon.stats.estimates import LeftOut
from metlmon.stats.pool_profiles import ResourcePool
from metlmon.stats.totals import group_by
from metlmon.tables.estimates import approximate_text, end_text, range_text
from metlmon.tables.layout import Column, Kind
from metlmon.text.formatting import clip_middle, count, listed, plain
from metlmon.text.spans import ALARM, BOLD, DIM, GOOD, PLAIN, Line, line, text, width

NAME_LIMIT: Final = 40
REASON_LIMIT: Final = 200
MAX_NAMES: Final = 8
"""Maximum number of runs named in one line."""


PlanRow = Sequence[RunPlacement]
"""Runs whose next epochs may go to the same pools."""


def plan_rows(plan: PlacementPlan) -> list[PlanRow]:
    """The runs of a plan by their pools, the most runs first."""
    groups = group_by(plan.runs, lambda run: frozenset(run.pools))
    return sorted(groups.values(), key=lambda runs: -len(runs))


def plan_columns(plan: PlacementPlan, pools: Iterable[ResourcePool] = ()) -> list[Column[PlanRow]]:
    """The columns of a plan; ``pools``: all pools to distinguish names from."""
    known = {*pools, *(pool for run in plan.runs for pool in run.pools)}
    names = pool_names(known)

    def runs(row: PlanRow, cells: int | None = None) -> Line:
        """Their names, or their number where these do not fit."""
        listed_names = line(", ".join(clip_middle(plain(each.run), NAME_LIMIT) for each in row))
        fits = width(listed_names) <= (NAME_LIMIT if cells is None else cells)
        return listed_names if fits or len(row) == 1 else line(count(len(row), "run"))

    def where(row: PlanRow) -> str:
        pools = row[0].pools
        others = sorted(names[pool] for pool in known - set(pools))
        # Of many pools, those that are left out say more.
        if len(pools) > 3 and len(others) <= 2:
            return f"anywhere but {name_list(others)}" if others else "anywhere"
        return ", ".join(plain(names[pool], NAME_LIMIT) for pool in pools)

    def reason(row: PlanRow) -> str:
        """The common reason of these runs, if they have one."""
        reasons = {run.reason for run in row}
        return plain(reasons.pop(), REASON_LIMIT) if len(reasons) == 1 else ""

    columns: list[Column[PlanRow]] = [
        Column(
            "run",
            lambda row: text(runs(row)),
            cell=runs,
            minimum=7,
            maximum=NAME_LIMIT,
        ),
        Column("epochs", lambda row: round(sum(sum(run.epochs) for run in row)), Kind.COUNT),
        Column(
            "where",
            lambda row: where(row) or "nowhere",
            title="NEXT EPOCHS GO TO",
            style=lambda row: PLAIN if where(row) else ALARM,
            minimum=12,
            comfortable=40,
            maximum=60,
        ),
        Column("reason", reason, drop=1, style=DIM, minimum=10, comfortable=24),
    ]
    return columns if any(map(reason, plan_rows(plan))) else columns[:-1]


def what_if_title(plan: PlacementPlan) -> str:
    """``What would change the end``; of a plan, when it is, as differences are relative to that."""
    title, gain = "What would change the end", plan.gain
    if gain is None or abs(gain.share) < NOTABLE:
        return title
    end = approximate_text(plan.hours * HOUR)
    return f"{title} of {'this' if gain.is_worth_it else 'such a'} plan, in {end}"


def what_if_columns(plan: PlacementPlan) -> list[Column[Any]]:
    """The columns of a what-if table; differences are relative to ``plan``."""

    def change(row: WhatIf, _: int | None) -> Line:
        if row.hours is None:
            return line((row.remark, ALARM))
        seconds = (row.hours - plan.hours) * HOUR
        if abs(seconds) < 1:
            return line(("no change", DIM))
        later = seconds > 0
        text = f"{approximate_text(abs(seconds))} {'later' if later else 'sooner'}"
        return line((text, PLAIN if later else GOOD))

    return [
        Column("question", lambda row: plain(row.question, 60), title="WHAT IF", minimum=12),
        Column(
            "change",
            lambda row: None if row.hours is None else (row.hours - plan.hours) * HOUR,
            Kind.DURATION,
            title="THE LAST RUN ENDS",
            align="left",
            cell=change,
            minimum=9,
        ),
        Column(
            "end",
            lambda row: None if row.hours is None else row.hours * HOUR,
            Kind.DURATION,
            title="IN",
            write=approximate_text,
        ),
        Column("gpu_hours", lambda row: row.gpu_hours, Kind.HOURS, title="GPU-H", drop=1),
    ]


def plan_lines(plan: PlacementPlan) -> list[Line]:
    """The estimated end, what the plan gains, and what a user should check."""
    end = [line((end_text(plan.as_of, plan.estimate), BOLD))] if plan.estimate is not None else []
    remarks = [line((plain(remark, REASON_LIMIT), DIM)) for remark in plan.remarks]
    return [*end, _gain_sentence(plan), *remarks]


def _gain_sentence(plan: PlacementPlan) -> Line:
    """``This plan gains 12d of 47d (26 %; 80 % interval: 3–22d).``"""
    epochs, unplaced = round(sum(sum(run.epochs) for run in plan.runs)), plan.epochs_unplaced
    if not epochs and plan.runs:
        return line(("No plan yet: ", BOLD), "no epoch has completed yet.")
    if not epochs and plan.runs_excluded:
        reasons = plain(", ".join(_reasons(plan)), REASON_LIMIT)
        return line(("No plan: ", BOLD), f"no run with epochs left can continue ({reasons}).")
    if not epochs:
        return line(("Nothing to plan: ", BOLD), "no run has epochs left.")
    if round(unplaced):
        return line((f"{count(round(unplaced), 'epoch')} fit at no site", ALARM), ".")
    gain = plan.gain
    if gain is None:
        return line("What the plan gains is not known.")
    if gain.share < NOTABLE:
        return line(("Nothing to gain: ", BOLD), "no other pools end sooner than those of the DAG.")
    figures = _gain_text(gain)
    if gain.is_worth_it:
        return line("This plan gains ", (figures, GOOD), ".")
    return line(f"A plan gains {figures}: ", ("below its error, not worth it", BOLD), ".")


def _gain_text(gain: PlanGain) -> str:
    """``6h of 43d (1 %; 80 % interval: −8h to 20h)``."""
    left = signed_text(gain.hours / gain.share)
    ends = f"{signed_text(gain.low)} to {signed_text(gain.high)}"
    if gain.low >= 0:
        ends = range_text(gain.low * HOUR, gain.high * HOUR)
    share = f"{100 * gain.share:.0f} %; 80 % interval: {ends}"
    return f"{signed_text(gain.hours)} of {left} ({share})"


def signed_text(hours: float) -> str:
    """``6h``, ``−8h``."""
    return f"{'−' if hours < 0 else ''}{approximate_text(abs(hours) * HOUR)}"


def shows_plan(plan: PlacementPlan) -> bool:
    """Whether to show where epochs should go: only if that is worth it."""
    has_place = any(round(sum(run.epochs)) for run in plan.runs)
    return has_place and (plan.gain is None or plan.gain.is_worth_it)


def sites_to_exclude(plan: PlacementPlan, pools: Iterable[ResourcePool] = ()) -> list[str]:
    """The sites all of whose pools are avoided, if avoiding one of these alone is worth it.

    The act excludes whole sites. ``pools``: all known ones.
    """
    excluded = {each.pool for each in plan.excluded}
    kept = {pool.site for pool in pools if pool not in excluded}
    found = (each.pool.site for each in plan.avoided if each.gain.is_worth_it)
    return [site for site in dict.fromkeys(found) if site and site not in kept]


def excluded_lines(
    plan: PlacementPlan, pools: Iterable[ResourcePool] = (), key: str | None = None
) -> list[Line]:
    """A line for each pool that gets no epoch: why, what that alone gains, and the act.

    ``key``: the key that opens the act on a screen; without it the command is named.
    """
    pools = tuple(pools)
    names, lines = pool_names({*pools, *(each.pool for each in plan.excluded)}), []
    offered, gains = sites_to_exclude(plan, pools), dict(plan.avoided)
    for pool, why in plan.excluded:
        text, gain = plain(why, REASON_LIMIT), gains.get(pool)
        if gain is not None and abs(gain.share) >= NOTABLE:
            text += f"; that alone gains {_gain_text(gain)}"
        act = f" [{key or f'metlmon act exclude-site {plain(pool.site, NAME_LIMIT)}'}]"
        name = (f"{plain(names[pool], NAME_LIMIT)}: ", BOLD)
        lines.append(line(name, text, (act if pool.site in offered else "", DIM)))
    return lines


def runs_excluded_lines(plan: PlacementPlan) -> list[Line]:
    """``run4 does not continue: failed``: a line for each reason."""
    lines = []
    for reason, runs in _reasons(plan).items():
        names = listed([clip_middle(plain(each.run), NAME_LIMIT) for each in runs], MAX_NAMES)
        lines.append(line((f"not planned: {names}: ", DIM), plain(reason, REASON_LIMIT)))
    return lines


def _reasons(plan: PlacementPlan) -> dict[str, list[LeftOut]]:
    """Runs that are not planned, by reason."""
    return group_by(plan.runs_excluded, lambda each: each.why.removeprefix("unknown: "))
