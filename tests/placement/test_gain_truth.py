"""The predicted gain of a plan against the true gain of following it in the world of the log.

Each world has two sites, one of which takes two or four times as long for an epoch. Its epochs run
where they are first offered a start; then a plan is made, and both futures are simulated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from random import Random
from statistics import mean
from typing import Final, NamedTuple

from metlmon.placement.planner import plan_input, plan_of
from metlmon.placement.types import PlacementPlan
from tests.support.event_logs import Event, Log, log_of_events, read_ensemble
from tests.support.records import stats_input

BEGIN: Final = datetime(2026, 3, 2, 12, 0, 0)
SITES: Final = ("fast", "slow")
EPOCHS, RUNS, FUTURES = 40, 6, 100
PLANNED_AT: Final = 72.0
"""Hours after the begin: a third of the epochs is done."""


class World(NamedTuple):
    """``slow``: hours of an epoch at the slow site, of three at the fast one.

    ``wait``: mean hours until a site offers a start; ``shared``: to jobs of one site as early as to
    those of both.
    """

    seed: int
    slow: float
    wait: float
    shared: bool

    def epoch(self, sites: Collection[str], random: Random) -> tuple[float, str, float]:
        """Hours of waiting, the site, and hours of an epoch that may go to ``sites``."""
        offering = len(SITES) if self.shared else len(sites)
        wait = random.expovariate(offering / self.wait)
        site = random.choice(sorted(sites))
        hours = self.slow if site == "slow" else 3.0
        return wait, site, hours * random.lognormvariate(0, 0.08)


class Run(NamedTuple):
    """The hour at which a run can continue after the plan, and its remaining epochs."""

    ready: float
    left: int


def at_hour(hour: float) -> datetime:
    return (BEGIN + timedelta(hours=hour)).replace(microsecond=0)


def lived(world: World) -> tuple[Log, list[Run]]:
    """The log of the world up to the plan, and the rest of its runs."""
    random = Random(world.seed)
    events: list[Event] = []
    runs: list[Run] = []
    for number in range(RUNS):
        now, epoch = 0.0, 0
        while now < PLANNED_AT:
            wait, site, hours = world.epoch(SITES, random)
            job, node = 1000 * (number + 1) + epoch, f"run{number}-train_epoch{epoch}"
            start = partial(Log.execute, job=job, site=site, gpu=f"NVIDIA {site}")
            events.append((at_hour(now), partial(Log.submit, job=job, node=node)))
            events.append((at_hour(now + wait), start))
            events.append((at_hour(now + wait + hours), partial(Log.terminate, job=job)))
            now, epoch = now + wait + hours, epoch + 1
        runs.append(Run(now, EPOCHS - epoch))
    return log_of_events(event for event in events if event[0] <= at_hour(PLANNED_AT)), runs


def mean_end(
    world: World, runs: Sequence[Run], sites: Sequence[Collection[str]], random: Random
) -> float:
    """Mean hours from the plan to the end of the last run, if each may use its ``sites``."""

    def end(run: Run, own: Collection[str]) -> float:
        epochs = (world.epoch(own, random) for _ in range(run.left))
        return run.ready + sum(wait + hours for wait, _, hours in epochs)

    return mean(max(map(end, runs, sites)) for _ in range(FUTURES)) - PLANNED_AT


def planned(world: World) -> tuple[PlacementPlan, float, float]:
    """The plan, and the true hours until the end without and with it."""
    log, runs = lived(world)
    dag = ["SUBMIT-DESCRIPTION t {", " log = metl.log", "}"]
    for number in range(RUNS):
        names = [f"run{number}-train_epoch{epoch}" for epoch in range(EPOCHS)]
        dag += [f"JOB {name} t" for name in names]
        dag += [f"PARENT {a} CHILD {b}" for a, b in pairwise(names)]
    ensemble = read_ensemble({"/ens/ens.dag": "\n".join(dag) + "\n"}, log)
    plan = plan_of(plan_input(stats_input(ensemble.builder(str(at_hour(PLANNED_AT))))))
    sites = [{pool.site for pool in run.pools} or set(SITES) for run in plan.runs]
    before = mean_end(world, runs, [set(SITES)] * RUNS, Random(world.seed))
    return plan, before, mean_end(world, runs, sites, Random(world.seed))


def test_interval_of_the_gain_covers_the_true_gain() -> None:
    worlds = [
        World(seed, slow, wait, shared)
        for seed in (0, 2)
        for slow, wait in ((6.0, 0.5), (6.0, 2.0), (12.0, 0.5), (12.0, 4.0))
        for shared in (False, True)
    ]
    inside, plans = 0, 0
    for world in worlds:
        plan, before, after = planned(world)
        gain = plan.gain
        plans += gain.is_worth_it
        assert after < before or not gain.is_worth_it, world
        inside += gain.low - 1 <= before - after <= gain.high + 1
    assert inside >= 0.8 * len(worlds)
    assert plans, "some are worth it"
