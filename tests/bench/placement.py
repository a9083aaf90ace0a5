"""How close to the best makespan do chains of epochs come, by where their epochs may go?

    python tests/bench/placement.py                 # the table: all settings, seeds 0 to 29
    python tests/bench/placement.py --develop       # the same on seeds 1000 to 1029
    python tests/bench/placement.py --settings main annex --policies untargeted greedy-set

Each seed generates 14 pools and 30 runs. A run is a chain: one job at a time, the next epoch is
submitted when one is done. A policy says which pools a job may go to, and HTCondor does the rest.
What is assumed of it:

* Idle jobs are matched in the order in which they became idle (one user, equal priorities), each
  to one of the free slots of its pools, all equally likely: the negotiator prefers the highest
  ranks, and takes of equal ones the first in its list, an order that says nothing of the site
  (Matchmaker::matchmakingAlgorithm). Jobs state no rank.
* A match takes no time (a negotiation cycle is a minute, an epoch some hours), and a slot is free
  when its job ends: claims are not kept for the next epoch. Slots serve these runs alone.
* An epoch takes the mean hours of its pool times its own noise, and starts again after a loss.
* Jobs leave a slot by their end, an eviction, or the end of an annex. What waits may be sent
  elsewhere at any time, what runs stays.

Pools, noise and losses of a seed are equal for all policies, so that differences are paired.
The bound is a linear program: epochs are divisible, the means are known, and no slot idles
for want of the right job. The settings below were chosen and committed before the rolling plan
was first simulated. One change came after it had been seen on seeds 1000 to 1029: a job is matched
before plans are made again, which is later for them than before. The plan's policy was improved on
these seeds, and seeds 0 to 29 of the table were simulated once, at the end.

Policies: *pinned at random* names one pool per epoch, as the experiment did; *greedy pinned* the
pool where it is expected to end first, by true hours and our own jobs there; *greedy set* all
pools of at most a number of hours, true ones too, with the limit that was best for the setting in
hindsight; the *rolling plan* is the product's, with the profiles that it learns from what the logs
have shown so far, or with true ones.
"""

from __future__ import annotations

import argparse
import heapq
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from math import exp, inf, sqrt
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Final

from msgspec import Struct

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from metlmon.placement.planner import PlanInput, plan_of
from metlmon.placement.supplies import find_supplies
from metlmon.placement.types import Annex, AnnexState, RunDemand
from metlmon.snapshot.records import Ledger
from metlmon.stats.pool_profiles import (
    Observation,
    PoolProfile,
    ProfileFigure,
    ResourcePool,
    learn_profiles,
)

Profiles = Mapping[ResourcePool, PoolProfile]

RUNS: Final = 30
POOLS: Final = 14
EPOCHS: Final = 30
EPOCH_HOURS: Final = 4.0
NOISE: Final = 0.1
"""Standard deviation of the logarithm of an epoch's noise; its mean is 1."""

GPU_MODELS: Final = ("A100", "A40", "H100", "L40S")
"""They say nothing of the hours here: the spread is between sites."""

SEEDS: Final = range(30)
DEVELOPMENT_SEEDS: Final = range(1000, 1030)
START: Final = datetime(2026, 1, 1)
THRESHOLDS: Final = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 2.0)
"""Limits of the greedy set, in mean hours of all slots."""

PLAN_HOURS: Final = 1.0
"""Plans are made at most that often: a quarter of an epoch, so that the bench ends in minutes."""

T_95: Final = 2.045
"""Student's t for a two-sided interval of 95 % from 30 seeds."""


class Setting(Struct, frozen=True, kw_only=True):
    """Pools to generate.

    ``spread``: standard deviation of the logarithm of the pools' hours per epoch. ``slots``,
    ``epochs``: least and most, of a pool and of a run. ``losses``: the highest probability that
    an execution is lost, at a point of it that is equally likely. ``dead``: pools that lose all.
    ``annex_hours``: one pool is an annex of ``annex_slots`` slots, which ends then.
    """

    name: str
    spread: float = 0.25
    slots: tuple[int, int] = (1, 5)
    epochs: tuple[int, int] = (EPOCHS, EPOCHS)
    losses: float = 0.0
    dead: int = 0
    annex_hours: float | None = None
    annex_slots: int = 10


SETTINGS: Final = (
    Setting(name="main"),
    Setting(name="spread 0", spread=0.0),
    Setting(name="spread 0.5", spread=0.5),
    Setting(name="scarce slots", slots=(1, 2)),
    Setting(name="a slot per run", slots=(1, 3)),
    Setting(name="plentiful slots", slots=(4, 8)),
    Setting(name="unequal runs", epochs=(10, 50)),
    Setting(name="losses", losses=0.4),
    Setting(name="dead pool", dead=1),
    Setting(name="annex", annex_hours=60.0),
)


class SimulatedPool(Struct, frozen=True, kw_only=True):
    """The truth of a pool. ``ends``: the hour at which its slots go."""

    pool: ResourcePool
    hours: float
    slots: int
    loss: float = 0.0
    ends: float | None = None

    @property
    def hours_with_losses(self) -> float:
        """Hours per epoch that completes, with its lost executions: half an epoch each."""
        return inf if self.loss == 1 else self.hours * (1 + self.loss / (1 - self.loss) / 2)


def generated_pools(setting: Setting, seed: int) -> list[SimulatedPool]:
    random = Random(f"pools of {seed}")
    dead = set(random.sample(range(POOLS), setting.dead))
    pools = []
    for number in range(POOLS):
        hours = EPOCH_HOURS * exp(setting.spread * random.gauss(0, 1))
        slots, loss = random.randint(*setting.slots), setting.losses * random.random()
        is_annex = setting.annex_hours is not None and number == 0
        pool = ResourcePool(f"site{number}", random.choice(GPU_MODELS), "annex" * is_annex)
        pools.append(
            SimulatedPool(
                pool=pool,
                hours=hours,
                slots=setting.annex_slots if is_annex else slots,
                loss=1.0 if number in dead else loss,
                ends=setting.annex_hours if is_annex else None,
            )
        )
    return pools


def generated_epochs(setting: Setting, seed: int) -> list[int]:
    random = Random(f"epochs of {seed}")
    return [random.randint(*setting.epochs) for _ in range(RUNS)]


def fluid_bound(pools: Sequence[SimulatedPool], epochs: Sequence[int]) -> float:
    """No schedule of divisible epochs that takes the mean hours ends before it (by HiGHS)."""
    import highspy

    usable = [pool for pool in pools if pool.hours_with_losses < inf]
    model = highspy.Highs()
    model.silent()
    makespan = model.addVariable(lb=0, obj=1)
    hours = [[model.addVariable(lb=0) for _ in usable] for _ in epochs]
    for left, of_run in zip(epochs, hours, strict=True):
        done = (x * (1 / pool.hours_with_losses) for x, pool in zip(of_run, usable, strict=True))
        model.addConstr(sum(done) == left)
        model.addConstr(sum(of_run) <= makespan)
    for pool, at_pool in zip(usable, zip(*hours, strict=True), strict=True):
        model.addConstr(sum(at_pool) <= pool.slots * makespan)
        if pool.ends is not None:
            model.addConstr(sum(at_pool) <= pool.slots * pool.ends)
    model.run()
    assert model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(model.getObjectiveValue())


# --- the simulator ----------------------------------------------------------------------------


class SimulatedRun(Struct):
    """A chain of epochs, and its one job.

    ``allowed``: indices of pools, by the policy. ``pool``: where it runs, None while idle.
    ``since``: the hour of the start, while idle that of the submission. ``waited``: before the
    start.
    """

    name: str
    epochs_left: int
    allowed: Collection[int] = ()
    pool: int | None = None
    since: float = 0.0
    waited: float = 0.0
    tries: int = 0


class Policy:
    """Where jobs may go; this one is "untargeted": to any pool."""

    def submit(self, simulation: Simulation, run: SimulatedRun) -> Collection[int]:
        """The pools of a run's next job, or of one that was lost or has no pool any more."""
        return simulation.up()

    def plan(self, simulation: Simulation) -> None:
        """Called after each event; may change where idle jobs may go.

        A job is submitted by DAGMan as soon as its run's epoch ends, and matched before this: where
        it may go was decided earlier.
        """


class Simulation:
    """Runs on pools under a policy, from one event to the next. ``now``: hours since the start."""

    def __init__(
        self,
        pools: Sequence[SimulatedPool],
        epochs: Sequence[int],
        policy: Policy,
        seed: int,
        noise: float = NOISE,
    ) -> None:
        self.pools, self.policy, self.seed = pools, policy, seed
        self.runs = [SimulatedRun(f"run{n}", left) for n, left in enumerate(epochs)]
        self.free = [pool.slots for pool in pools]
        self.now = 0.0
        self.observations: list[Observation] = []
        random = Random(f"noise of {seed}")
        self.noise = {
            run.name: [exp(noise * random.gauss(0, 1) - noise**2 / 2) for _ in range(left + 1)]
            for run, left in zip(self.runs, epochs, strict=True)
        }
        self._matches = Random(f"matches of {seed}")
        self._numbers = count()
        self._events: list[tuple[float, int, SimulatedRun | None, bool]] = []
        self.idle: list[SimulatedRun] = []

    def up(self) -> Sequence[int]:
        """The pools that have not ended."""
        return [n for n, pool in enumerate(self.pools) if pool.ends is None or self.now < pool.ends]

    def makespan(self) -> float:
        """Simulate all runs to their ends; returns the hours."""
        for pool in self.pools:
            if pool.ends is not None:
                heapq.heappush(self._events, (pool.ends, next(self._numbers), None, False))
        self.policy.plan(self)
        for run in self.runs:
            self._submit(run)
        while any(run.epochs_left for run in self.runs):
            self._match()
            self.policy.plan(self)
            self._match()
            self.now, _, run, finished = heapq.heappop(self._events)
            if run is None:
                self._end_annexes()
            else:
                self._end(run, finished)
        return self.now

    def _submit(self, run: SimulatedRun) -> None:
        run.pool, run.since = None, self.now
        run.allowed = self.policy.submit(self, run)
        self.idle.append(run)

    def _match(self) -> None:
        waiting = []
        for run in self.idle:
            slots = [n for n in run.allowed for _ in range(self.free[n])]
            if slots:
                self._start(run, self._matches.choice(slots))
            else:
                waiting.append(run)
        self.idle = waiting

    def _start(self, run: SimulatedRun, number: int) -> None:
        self.free[number] -= 1
        pool = self.pools[number]
        run.waited, run.pool, run.since = self.now - run.since, number, self.now
        run.tries += 1
        chance = Random(f"{self.seed} {run.name} {run.epochs_left} {run.tries} {number}")
        is_lost = chance.random() < pool.loss
        hours = pool.hours * self.noise[run.name][run.epochs_left]
        hours *= chance.random() if is_lost else 1.0
        ends = self.now + hours
        if pool.ends is not None and ends > pool.ends:
            ends, is_lost = pool.ends, True
        heapq.heappush(self._events, (ends, next(self._numbers), run, not is_lost))

    def _end(self, run: SimulatedRun, finished: bool) -> None:
        assert run.pool is not None
        pool = self.pools[run.pool]
        if pool.ends is None or self.now < pool.ends:
            self.free[run.pool] += 1
        self.observations.append(self._observed(run, finished))
        if finished:
            run.epochs_left -= 1
            run.tries = 0
        run.pool = None
        if run.epochs_left:
            self._submit(run)

    def _end_annexes(self) -> None:
        """No slot of a pool that has ended is free; jobs that could only go there go elsewhere."""
        for number, pool in enumerate(self.pools):
            if pool.ends is not None and self.now >= pool.ends:
                self.free[number] = 0
        up = set(self.up())
        for run in self.idle:
            if up.isdisjoint(run.allowed):
                run.allowed = self.policy.submit(self, run)

    def _observed(self, run: SimulatedRun, finished: bool | None) -> Observation:
        assert run.pool is not None
        return Observation(
            pool=self.pools[run.pool].pool,
            run=run.name,
            seen=self.time,
            hours=self.now - run.since,
            wait=run.waited,
            transfer=0.0,
            finished=finished,
            evicted=finished is False,
        )

    @property
    def time(self) -> datetime:
        return START + timedelta(hours=self.now)

    def observed(self) -> Iterator[Observation]:
        """What logs show: all executions so far, and the waits of jobs that name one pool."""
        yield from self.observations
        yield from (self._observed(run, None) for run in self.runs if run.pool is not None)
        for run in self.idle:
            if len(run.allowed) == 1:
                pool = self.pools[next(iter(run.allowed))].pool
                wait = self.now - run.since
                yield Observation(pool=pool, run=run.name, seen=self.time, wait=wait, started=False)


# --- the policies -----------------------------------------------------------------------------


class PinnedAtRandom(Policy):
    """One pool per job, each equally likely."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"pins of {seed}")

    def submit(self, simulation: Simulation, run: SimulatedRun) -> Collection[int]:
        return (self.random.choice(simulation.up()),)


class GreedyPinned(Policy):
    """One pool per job: where it ends first if all of our jobs there take as long."""

    def submit(self, simulation: Simulation, run: SimulatedRun) -> Collection[int]:
        ours = [0] * len(simulation.pools)
        for other in simulation.runs:
            if other.pool is not None:
                ours[other.pool] += 1
        for other in simulation.idle:
            if other is not run:
                for number in other.allowed:
                    ours[number] += 1

        def hours(number: int) -> float:
            pool = simulation.pools[number]
            waits = max(0, ours[number] + 1 - pool.slots) / pool.slots
            return pool.hours_with_losses * (1 + waits)

        return (min(simulation.up(), key=hours),)


class GreedySet(Policy):
    """All pools of at most ``threshold`` times the mean hours of the slots; at least the best."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def submit(self, simulation: Simulation, run: SimulatedRun) -> Collection[int]:
        up = [n for n in simulation.up() if simulation.pools[n].hours_with_losses < inf]
        hours = {n: simulation.pools[n].hours_with_losses for n in up}
        slots = {n: simulation.pools[n].slots for n in up}
        average = sum(hours[n] * slots[n] for n in up) / sum(slots.values())
        limit = max(self.threshold * average, min(hours.values()))
        return [n for n in up if hours[n] <= limit]


class RollingPlan(Policy):
    """The product's plan, made again after an event if the last one is ``PLAN_HOURS`` old.

    ``profiles`` returns what is known of the pools. Their slots are known, as from a collector,
    and the end of an annex.
    """

    def __init__(self, profiles: Callable[[Simulation], Profiles]) -> None:
        self.profiles = profiles
        self.planned: float | None = None
        self.sets: dict[str, Collection[int]] = {}

    def submit(self, simulation: Simulation, run: SimulatedRun) -> Collection[int]:
        up = set(simulation.up())
        return [number for number in self.sets.get(run.name, ()) if number in up] or up

    def plan(self, simulation: Simulation) -> None:
        if self.planned is not None and simulation.now < self.planned + PLAN_HOURS:
            return
        self.planned = simulation.now
        numbers = {pool.pool: number for number, pool in enumerate(simulation.pools)}
        plan = plan_of(self._plan_input(simulation))
        self.sets = {run.run: [numbers[pool] for pool in run.pools] for run in plan.runs}
        for run in simulation.idle:
            run.allowed = self.submit(simulation, run)

    def _plan_input(self, simulation: Simulation) -> PlanInput:
        profiles = self.profiles(simulation)
        pools = [simulation.pools[number] for number in simulation.up()]
        return PlanInput(
            as_of=simulation.time,
            demands=tuple(
                _demand(simulation, run, profiles) for run in simulation.runs if run.epochs_left
            ),
            supplies=find_supplies(
                profiles,
                Ledger("", simulation.time, True),
                [_annex(simulation.now, pool) for pool in simulation.pools if pool.pool.annex],
                {pool.pool: pool.slots for pool in pools},
            ),
            allocations=(),
            runs_excluded=(),
        )


def learned_profiles(simulation: Simulation) -> Profiles:
    return learn_profiles(simulation.observed(), simulation.time)


def true_profiles(simulation: Simulation) -> Profiles:
    return {pool.pool: _true_profile(pool) for pool in simulation.pools}


def _true_profile(pool: SimulatedPool) -> PoolProfile:
    zero = ProfileFigure(0.0, 0.0, 0.0, 100)
    return PoolProfile(
        pool=pool.pool,
        hours=ProfileFigure(pool.hours, pool.hours, pool.hours, 100),
        wait=zero,
        transfer=zero,
        loss=ProfileFigure(pool.loss, pool.loss, pool.loss, 100),
        lost_hours=pool.hours / 2,
        gpus=1.0,
        starts=100,
        epochs=0 if pool.loss == 1 else 100,
        running=0,
        slots=pool.slots,
        excluded="every execution is lost" if pool.loss == 1 else "",
    )


def _demand(simulation: Simulation, run: SimulatedRun, profiles: Profiles) -> RunDemand:
    if run.pool is None:
        return RunDemand(run=run.name, epochs_left=run.epochs_left)
    profile = profiles[simulation.pools[run.pool].pool]
    expected = profile.hours.value if profile.hours is not None else EPOCH_HOURS
    remaining = max(0.0, run.since + expected - simulation.now)
    return RunDemand(run=run.name, epochs_left=run.epochs_left - 1, ready_in=remaining)


def _annex(now: float, pool: SimulatedPool) -> Annex:
    assert pool.ends is not None
    return Annex(
        name=pool.pool.annex,
        site=pool.pool.site,
        state=AnnexState.UP if now < pool.ends else AnnexState.GONE,
        gpu=pool.pool.gpu,
        gpus=pool.slots,
        alive_until=START + timedelta(hours=pool.ends),
    )


TUNED: Final = "greedy set, tuned"
POLICIES: Final[Mapping[str, Callable[[int], Policy]]] = {
    "pinned at random": PinnedAtRandom,
    "untargeted": lambda seed: Policy(),
    "greedy pinned": lambda seed: GreedyPinned(),
    **{f"greedy set {each}": lambda seed, each=each: GreedySet(each) for each in THRESHOLDS},
    "rolling plan, learned": lambda seed: RollingPlan(learned_profiles),
    "rolling plan, true": lambda seed: RollingPlan(true_profiles),
}


# --- the table --------------------------------------------------------------------------------


class Row(Struct, frozen=True):
    """Makespans over the bound, and what they save of untargeted ones, of all seeds."""

    policy: str
    ratios: tuple[float, ...]
    savings: tuple[float, ...]

    def cells(self) -> tuple[str, ...]:
        saved, half = 100 * mean(self.savings), 100 * half_interval(self.savings)
        return (
            self.policy,
            f"{mean(self.ratios):.3f}",
            f"{max(self.ratios):.3f}",
            f"{saved:+.1f} %",
            f"{saved - half:+.1f} to {saved + half:+.1f}",
            str(sum(saving < 0 for saving in self.savings)),
        )


def half_interval(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean."""
    return T_95 * stdev(values) / sqrt(len(values)) if len(values) > 1 else inf


def makespans(setting: Setting, seeds: Sequence[int], name: str) -> list[float]:
    """The makespan of each seed, over its bound."""
    result = []
    for seed in seeds:
        pools, epochs = generated_pools(setting, seed), generated_epochs(setting, seed)
        hours = Simulation(pools, epochs, POLICIES[name](seed), seed).makespan()
        result.append(hours / fluid_bound(pools, epochs))
    return result


def rows_of(setting: Setting, seeds: Sequence[int], names: Sequence[str]) -> Iterator[Row]:
    """The rows of a setting; of the greedy sets the one that is best in the mean."""
    untargeted = makespans(setting, seeds, "untargeted")
    sets: list[Row] = []
    for name in names:
        print(f"{setting.name}: {name}", file=sys.stderr)
        ratios = untargeted if name == "untargeted" else makespans(setting, seeds, name)
        savings = tuple(1 - mine / other for mine, other in zip(ratios, untargeted, strict=True))
        row = Row(name, tuple(ratios), savings)
        if name.startswith("greedy set "):
            sets.append(row)
        else:
            yield row
    if sets:
        best = min(sets, key=lambda row: mean(row.ratios))
        yield Row(f"{TUNED} ({best.policy.split()[-1]})", best.ratios, best.savings)


def main() -> int:
    parser = argparse.ArgumentParser(description="Makespans of chains of epochs, by placement.")
    parser.add_argument("--settings", nargs="+", metavar="NAME", help="all without it")
    parser.add_argument("--policies", nargs="+", metavar="NAME", help="all without it")
    parser.add_argument("--develop", action="store_true", help="the seeds of development")
    given = parser.parse_args()
    seeds = DEVELOPMENT_SEEDS if given.develop else SEEDS
    names = [name for name in POLICIES if not given.policies or name in given.policies]
    heads = ("", "OVER BOUND", "WORST", "SAVES", "95 %", "SEEDS LOST")
    widths = (26, 10, 7, 9, 16, 10)
    for setting in SETTINGS:
        if given.settings and setting.name not in given.settings:
            continue
        print(f"\n{setting.name}\n")
        for cells in (heads, *(row.cells() for row in rows_of(setting, seeds, names))):
            first, *rest = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            print(cells[0].ljust(len(first)) + " ".join(rest), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
