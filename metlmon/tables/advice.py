"""Tables and texts of plans: where the next epochs should go, and what would change the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final

from metlmon.placement.chains import name_list, pool_names
from metlmon.placement.types import PlacementPlan, RunPlacement, WhatIf
from metlmon.snapshot.records import HOUR
from metlmon.stats.pool_profiles import ResourcePool
from metlmon.tables.layout import Column, Kind
from metlmon.text.formatting import count, duration, hours, plain
from metlmon.text.spans import ALARM, BOLD, DIM, GOOD, PLAIN, Line, line

NAME_LIMIT: Final = 40
REASON_LIMIT: Final = 200
MOST_NAMES: Final = 8
"""Runs that one line names."""


def _where_text(
    pools: Sequence[ResourcePool], known: Set[ResourcePool], names: Mapping[ResourcePool, str]
) -> str:
    """The names of the pools, or, of more than three, those of the few others that are known."""
    others = sorted(names[pool] for pool in known - set(pools))
    if len(pools) > 3 and len(others) <= 2:
        return f"anywhere but {name_list(others)}" if others else "anywhere"
    return ", ".join(plain(names[pool], NAME_LIMIT) for pool in pools)


def plan_columns(
    plan: PlacementPlan, run_names: Mapping[str, str], pools: Iterable[ResourcePool] = ()
) -> list[Column[RunPlacement]]:
    """The columns of the runs of a plan; ``run_names``: by key; ``pools``: all that have a name."""
    known = {*pools, *(pool for run in plan.runs for pool in run.pools)}
    names = pool_names(known)

    def where(row: RunPlacement) -> str:
        return _where_text(row.pools, known, names)

    return [
        Column(
            "run",
            "RUN",
            lambda row: plain(run_names.get(row.run, row.run), NAME_LIMIT),
            minimum=6,
            maximum=30,
        ),
        Column("epochs", "EPOCHS", lambda row: round(sum(row.epochs)), Kind.COUNT),
        Column(
            "where",
            "NEXT EPOCHS GO TO",
            lambda row: where(row) or "nowhere",
            style=lambda row: PLAIN if where(row) else ALARM,
            minimum=12,
            comfortable=24,
            maximum=60,
        ),
        Column(
            "reason",
            "REASON",
            lambda row: plain(row.reason, REASON_LIMIT),
            drop=1,
            style=DIM,
            minimum=10,
            comfortable=24,
        ),
    ]


def what_if_columns(plan: PlacementPlan) -> list[Column[Any]]:
    """The columns of a what-if table; differences are to ``plan``."""

    def change(row: WhatIf, _: int | None) -> Line:
        if row.hours is None:
            return line((row.remark, ALARM))
        seconds = (row.hours - plan.hours) * HOUR
        if abs(seconds) < 1:
            return line(("no change", DIM))
        later = seconds > 0
        text = f"{duration(abs(seconds))} {'later' if later else 'sooner'}"
        return line((text, PLAIN if later else GOOD))

    return [
        Column("question", "WHAT IF", lambda row: plain(row.question, 60), minimum=12),
        Column(
            "change",
            "THE LAST RUN ENDS",
            lambda row: None if row.hours is None else (row.hours - plan.hours) * HOUR,
            Kind.DURATION,
            align="left",
            cell=change,
            minimum=9,
        ),
        Column(
            "end",
            "IN",
            lambda row: None if row.hours is None else row.hours * HOUR,
            Kind.DURATION,
        ),
        Column("gpu_hours", "GPU-H", lambda row: row.gpu_hours, Kind.HOURS, drop=1),
    ]


def hours_text(value: float | None) -> str | None:
    """``1d06h``; None where it is not known."""
    return None if value is None else duration(value * HOUR)


def plan_sentence(plan: PlacementPlan) -> Line:
    """``Plan: all runs end in 1d06h, 310 GPU-h; from logs alone``."""
    epochs = round(sum(sum(run.epochs) for run in plan.runs))
    unplaced = round(plan.epochs_unplaced)
    if not epochs and plan.runs:
        return line(("No plan yet: ", BOLD), "no epoch has completed yet.")
    if not epochs and plan.runs_excluded:
        reasons = ", ".join(_reasons(plan))
        return line(("No plan: ", BOLD), plain(reasons, REASON_LIMIT))
    if not epochs:
        return line(("Nothing to plan: ", BOLD), "no run has epochs left.")
    parts = [f"{count(epochs, 'epoch')} in {hours_text(plan.hours)}, {hours(plan.gpu_hours)} GPU-h"]
    if unplaced:
        parts.append(f"{count(unplaced, 'epoch')} more fit nowhere")
    if plan.inferred:
        parts.append("inferred from logs")
    return line(("Plan: ", BOLD), "; ".join(parts))


def remark_lines(plan: PlacementPlan) -> list[Line]:
    """The end without a plan, by the estimates; and what a user should check."""
    remarks = list(plan.remarks)
    if plan.estimate_hours is not None and plan.hours:
        end = hours_text(plan.estimate_hours)
        remarks.insert(0, f"As is, the last run ends in {end} (Estimates).")
    return [line((plain(remark, REASON_LIMIT), DIM)) for remark in remarks]


def excluded_lines(plan: PlacementPlan, pools: Iterable[ResourcePool] = ()) -> list[Line]:
    """A line for each pool that gets no epoch: why."""
    names = pool_names({*pools, *(pool for pool, _ in plan.excluded)})
    return [
        line((f"{plain(names[pool], NAME_LIMIT)}: ", BOLD), plain(why, REASON_LIMIT))
        for pool, why in plan.excluded
    ]


def runs_excluded_lines(plan: PlacementPlan, run_names: Mapping[str, str]) -> list[Line]:
    """``run4 does not continue: failed``: a line for each reason."""
    lines = []
    for reason, runs in _reasons(plan).items():
        names = [plain(run_names.get(run, run), NAME_LIMIT) for run in runs]
        shown = ", ".join(names[:MOST_NAMES])
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        lines.append(line((f"not planned: {shown}{more}: ", DIM), plain(reason, REASON_LIMIT)))
    return lines


def _reasons(plan: PlacementPlan) -> dict[str, list[str]]:
    """Runs that are not planned, by the reason."""
    reasons: dict[str, list[str]] = {}
    for run, why in plan.runs_excluded:
        reasons.setdefault(why.removeprefix("unknown: "), []).append(run)
    return reasons
