"""Decisions of recorded ensembles, replayed: what would the advice have saved, and cost?

    python tests/bench/decisions.py                # the fixtures, and the examples beside them
    python tests/bench/decisions.py DIR [DIR …]    # and these dagdirs

For each execution of an epoch: the advice at the moment when its job became idle, from the
events up to then alone (the log is read as of that moment)? Two kinds of advice are counted. Black
holes: the pools that the profiles of that moment exclude. The plan: also the pools that were known,
but are not among those of its run. *Avoided* are GPU-hours of executions there that the place lost.
The *cost* are epochs that did complete there, and would have had to be done elsewhere: their
GPU-hours, and what the profiles of that moment expect of the pools planned in their place. An
execution at a pool that no earlier one had seen is no decision against advice.

That a run might have found no slot elsewhere, or waited longer, no log can tell.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from metlmon.placement.planner import PlanInput, plan_input, plan_of  # noqa: E402
from metlmon.placement.supplies import pool_supply  # noqa: E402
from metlmon.placement.types import PlacementPlan  # noqa: E402
from metlmon.snapshot.ledger import ExecutionEntry  # noqa: E402
from metlmon.stats.causes import is_of_place  # noqa: E402
from metlmon.stats.pool_profiles import ResourcePool  # noqa: E402
from tests.support.records import read_dagdir, stats_input  # noqa: E402

ROOT: Final = HERE.parents[1]
RECORDINGS: Final = (
    ROOT.parent / "shared" / "examples" / "metl-aws",
    ROOT / "fixtures" / "first-round",
    ROOT / "fixtures" / "health" / "black-hole",
    *(ROOT / "fixtures" / name for name in ("demo", "rescue", "holds", "trainer", "gated")),
    ROOT.parent / "shared" / "examples" / "pool-ensemble",
)


class AdviceAtMoment(Struct, frozen=True):
    """The advice at one moment: what the plan depended on, and the plan."""

    values: PlanInput
    plan: PlacementPlan

    def excludes(self, pool: ResourcePool) -> bool:
        """Whether the profiles call the pool a black hole that is not to be tried now."""
        profile = self.values.supplies.profiles.get(pool)
        return (
            profile is not None
            and bool(profile.excluded)
            and pool not in self.values.supplies.probes
        )

    def avoids(self, pool: ResourcePool, run: str) -> bool:
        """Whether the pool was known, and not among those where the run should go."""
        planned = self.pools_of(run)
        return bool(planned) and pool in self.values.supplies.profiles and pool not in planned

    def pools_of(self, run: str) -> Sequence[ResourcePool]:
        return next((each.pools for each in self.plan.runs if each.run == run), ())

    def gpu_hours_elsewhere(self, pool: ResourcePool, run: str) -> float | None:
        """GPU-hours that an epoch of the run takes in the mean of the pools planned instead."""
        profiles = self.values.supplies.profiles
        others = [
            pool_supply(profiles[other], 1).gpu_hours
            for other in self.pools_of(run) or profiles
            if other != pool
            and other in profiles
            and profiles[other].hours is not None
            and not profiles[other].excluded
        ]
        return sum(others) / len(others) if others else None


class ReplayedDecision(Struct, frozen=True):
    """One execution, the moment when its job became idle, and the advice of that moment."""

    entry: ExecutionEntry
    moment: datetime
    pool: ResourcePool
    advice: AdviceAtMoment


class AdviceOutcome(Struct):
    """Executions that went against one kind of advice."""

    executions: int = 0
    lost: int = 0
    avoided: float = 0.0
    epochs: int = 0
    cost: float = 0.0
    elsewhere: float = 0.0

    def add(self, decision: ReplayedDecision) -> None:
        entry, gpu_hours = decision.entry, decision.entry.gpu_hours or 0.0
        self.executions += 1
        if entry.final:
            expected = decision.advice.gpu_hours_elsewhere(decision.pool, entry.run or "")
            self.epochs += 1
            self.cost += gpu_hours
            self.elsewhere += gpu_hours if expected is None else expected
        elif is_of_place(entry):
            self.lost += 1
            self.avoided += gpu_hours


def decisions(directory: Path) -> Iterator[ReplayedDecision]:
    """The executions of the trainings of a dagdir, each with the advice of its moment."""

    @cache
    def advice_at(moment: datetime) -> AdviceAtMoment:
        # A reader and what it has read refer to each other: hundreds of them fill the memory.
        gc.collect()
        values = plan_input(stats_input(read_dagdir(directory, as_of=moment, live=True)))
        return AdviceAtMoment(values, plan_of(values))

    for entry in read_dagdir(directory).ledger().executions:
        if entry.training and not entry.dagman and entry.end is not None:
            idle = timedelta(seconds=(entry.wait or 0.0) + (entry.transfer or 0.0))
            moment = (entry.start - idle).replace(microsecond=0)
            pool = ResourcePool(entry.site or "", entry.gpu or "", entry.annex or "")
            yield ReplayedDecision(entry, moment, pool, advice_at(moment))


KINDS: Final[dict[str, Callable[[ReplayedDecision], bool]]] = {
    "black holes": lambda each: each.advice.excludes(each.pool),
    "plan": lambda each: (
        each.advice.excludes(each.pool) or each.advice.avoids(each.pool, each.entry.run or "")
    ),
}


def outcomes(replayed: Iterable[ReplayedDecision]) -> dict[str, AdviceOutcome]:
    """What each kind of advice would have avoided, and cost."""
    found = {kind: AdviceOutcome() for kind in KINDS}
    for decision in replayed:
        for kind, is_against in KINDS.items():
            if is_against(decision):
                found[kind].add(decision)
    return found


def print_table(directories: Iterable[Path]) -> None:
    print(
        f"{'ensemble':<14} {'advice':<12} {'executions':>11} {'lost':>5} {'avoided':>15} "
        f"{'epochs':>7} {'GPU-h there':>12} {'elsewhere':>10}"
    )
    for directory in directories:
        if not directory.is_dir():
            print(f"{directory.name:<14} not here")
            continue
        replayed = list(decisions(directory))
        entries = [each.entry for each in replayed]
        lost = sum(each.gpu_hours or 0.0 for each in entries if is_of_place(each))
        for kind, outcome in outcomes(replayed).items():
            print(
                f"{directory.name:<14} {kind:<12} {outcome.executions:>4} of {len(entries):>3} "
                f"{outcome.lost:>5} {outcome.avoided:>7.3g}/{lost:<7.3g} {outcome.epochs:>7} "
                f"{outcome.cost:>12.3g} {outcome.elsewhere:>10.3g}",
                flush=True,
            )
    print("avoided: GPU-hours lost there, of all that places lost")


if __name__ == "__main__":
    print_table((*RECORDINGS, *map(Path, sys.argv[1:])))
