"""Ensembles whose runs take turns on few slots, as the event log of a real pool has them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from random import Random
from typing import Final

from tests.generated import ensembles, events
from tests.generated.places import PLACES, Place

BEGIN: Final = ensembles.moment("2026-02-02 09:00:00")
SITES: Final = tuple({place.target: place for place in PLACES if place.target != "ospool"}.values())
ORDERS: Final = ("submission", "furthest first", "furthest last")


@dataclass(frozen=True, slots=True)
class SlotLimited:
    """``slots``: of each site; ``order``: in which jobs start, by their ``priority``;
    ``minutes``: of an epoch; ``spread``: sigma of its logarithm, ``of_runs``: of a run's mean;
    ``lost``: share of executions that fail or are evicted; ``gap``: mean seconds until a free
    slot takes a job; ``max_jobs``: DAGMan's -maxjobs, 0 without; ``any_site``: each job may run
    at each site."""

    runs: int
    epochs: int
    slots: tuple[int, ...]
    order: str = "furthest first"
    minutes: float = 30.0
    spread: float = 0.1
    of_runs: float = 0.0
    lost: float = 0.05
    gap: float = 10.0
    max_jobs: int = 0
    any_site: bool = False


@dataclass(slots=True)
class _Run:
    name: str
    pace: float
    epoch: int = 0


def slot_limited(kind: SlotLimited, seed: int) -> ensembles.Ensemble:
    """One ensemble of this kind, simulated event by event."""
    rng = Random(f"{kind} {seed}")
    sites = [replace(place, most_gpus=1) for place in SITES[: len(kind.slots)]]
    names = [(f"hetero{n}", f"{rng.getrandbits(32):08x}") for n in range(kind.runs)]
    plan = ensembles.DagPlan(
        "heterogeneous.dag", tuple(names), (ensembles.Life(BEGIN),), kind.epochs
    )
    targets = {
        f"{name}-train_epoch{epoch}": ("any" if kind.any_site else rng.choice(sites).target)
        for name, _ in names
        for epoch in range(kind.epochs)
    }
    runs = [_Run(name, rng.lognormvariate(0, kind.of_runs)) for name, _ in names]
    jobs: list[ensembles.Job] = []
    free = list(kind.slots)
    ready = [*runs]
    queued: list[tuple[ensembles.Job, _Run]] = []
    changes: list[tuple[int, int, int, tuple[ensembles.Job, _Run] | None]] = []
    now, number = BEGIN + 5, 0

    def submit() -> None:
        while ready and not (kind.max_jobs and in_queue() >= kind.max_jobs):
            run = ready.pop(0)
            job = ensembles.Job(0, run.name, run.epoch, now)
            jobs.append(job)
            ensembles.JobLog(job, rng, None)
            queued.append((job, run))

    def in_queue() -> int:
        return len(queued) + sum(change[3] is not None for change in changes)

    def rank(each: tuple[ensembles.Job, _Run]) -> tuple[int, int, str]:
        job, run = each
        sign = (0, -1, 1)[ORDERS.index(kind.order)]
        # Clusters are numbered in this order (:func:`number_clusters`).
        return sign * run.epoch, job.submitted, job.node

    def match() -> None:
        for job, run in sorted(queued, key=rank):
            for site, place in enumerate(sites):
                if free[site] and targets[job.node] in ("any", place.target):
                    free[site] -= 1
                    queued.remove((job, run))
                    end = execute(job, run, place)
                    push(end, site, (job, run))
                    break

    def push(when: int, site: int, ended: tuple[ensembles.Job, _Run] | None) -> None:
        nonlocal number
        number += 1
        heappush(changes, (when, number, site, ended))

    def execute(job: ensembles.Job, run: _Run, place: Place) -> int:
        """Write its events; return the end."""
        telling = _at(job, now, rng)
        slot = telling.slot = ensembles.choose_slot(place, rng)
        telling.say(lambda head: events.executing(head, slot))
        job.executions.append(ensembles.Execution(slot, telling.now))
        seconds = 60 * kind.minutes * run.pace * rng.lognormvariate(0, kind.spread)
        if rng.random() >= kind.lost:
            telling.passes(seconds)
            telling.terminates(0)
        elif rng.random() < 0.5:
            telling.passes(seconds * rng.random())
            telling.terminates(1)
        else:
            telling.passes(seconds * rng.random())
            telling.is_evicted(1005, 0, "Unspecified job interruption")
        return telling.now

    submit()
    match()
    while changes:
        now, _, site, ended = heappop(changes)
        if ended is None:
            free[site] += 1
        else:
            # The slot is free for the next job when it has been cleaned and matched.
            push(now + 1 + round(rng.expovariate(1 / kind.gap)), site, None)
            job, run = ended
            if not job.completed and job.executions[-1].return_value is None:
                queued.append(ended)
            else:
                run.epoch += job.completed
                if run.epoch < kind.epochs:
                    ready.append(run)
        now += 1
        submit()
        match()
    jobs.sort(key=lambda job: (job.submitted, job.node))
    seeds = {name: rng.randint(100000, 999999) for name, _ in names}
    return ensembles.Ensemble(
        (plan,), tuple(jobs), ensembles.number_clusters((plan,), jobs), targets, seeds
    )


def _at(job: ensembles.Job, now: int, rng: Random) -> ensembles.JobLog:
    """The events of the job from ``now`` on."""
    telling = ensembles.JobLog.__new__(ensembles.JobLog)
    telling.job, telling.rng, telling.now = job, rng, max(now, job.last)
    telling.memory_every, telling.slot = None, None
    return telling
