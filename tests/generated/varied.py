"""Ensembles of other sizes and with other troubles than the first round: to hold estimates
against what they were not made for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.generated.ensembles import (
    DECK,
    SHORT,
    Act,
    DagPlan,
    Job,
    Life,
    Lived,
    lived_through,
    moment,
)
from tests.generated.places import PLACES, Place

DAY: Final = 86400
WEEK: Final = 7 * DAY
BEGIN: Final = moment("2026-01-05 09:00:00")
TROUBLE: Final = tuple((act, count) for act, count in DECK if act not in SHORT)


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of ensemble. ``trouble``: how many things go wrong in an epoch on the average;
    ``places``: the first so many of them; ``removed``: days from the beginning to each removal
    of the DAG and those until it is submitted again; ``weeks``: how far one week's pace is from
    another's (sigma of a logarithm); ``acts``: what goes wrong, with weights; ``memory_every``:
    seconds between two memory updates of a job (None: few)."""

    name: str
    runs: int
    epochs: int
    trouble: float = 0.3
    places: int = len(PLACES)
    removed: tuple[tuple[float, float], ...] = ()
    weeks: float = 0.0
    acts: tuple[tuple[Act, int], ...] = TROUBLE
    memory_every: float | None = None


def varied(kind: Kind, seed: int) -> Lived:
    """One ensemble of this kind."""
    rng = Random(f"{kind.name} {seed}")
    runs = tuple((f"hetero{n}", f"{rng.getrandbits(32):08x}") for n in range(kind.runs))
    lives, start = [], float(BEGIN)
    for days, pause in kind.removed:
        end = start + days * DAY
        lives.append(Life(round(start), round(end)))
        start = end + pause * DAY
    plan = DagPlan("heterogeneous.dag", runs, (*lives, Life(round(start))), kind.epochs)
    served = [place for place in PLACES if place.shares[0]][: kind.places]
    shares = [place.shares[0] for place in served]
    keys = [(run, epoch) for run, _ in runs for epoch in range(kind.epochs)]
    final = dict(zip(keys, rng.choices(served, shares, k=len(keys)), strict=True))
    troubles: dict[tuple[str, int], list[tuple[Act, Place]]] = {}
    acts, counts = zip(*kind.acts, strict=True)
    for key in keys:
        while rng.random() < kind.trouble / (1 + kind.trouble):
            act = rng.choices(acts, counts)[0]
            troubles.setdefault(key, []).append((act, rng.choice(served)))
    lived = lived_through(seed, (plan,), final, troubles, rng, kind.memory_every)
    return _by_weeks(lived, kind.weeks, rng) if kind.weeks else lived


def _by_weeks(lived: Lived, sigma: float, rng: Random) -> Lived:
    """The same, where all goes faster in some weeks than in others."""
    last = max(job.last for job in lived.jobs)
    starts = [BEGIN]
    paces = [rng.lognormvariate(0, sigma) for _ in range((last - BEGIN) // WEEK + 2)]
    for pace in paces:
        starts.append(starts[-1] + round(WEEK * pace))

    def when(time: int) -> int:
        week, rest = divmod(time - BEGIN, WEEK)
        return starts[week] + round(rest * paces[week])

    def life(each: Life) -> Life:
        return Life(when(each.start), None if each.end is None else when(each.end))

    for job in lived.jobs:
        _move(job, when)
    dags = tuple(replace(d, lives=tuple(life(each) for each in d.lives)) for d in lived.dags)
    dagmans = tuple((cluster, dag, life(each)) for cluster, dag, each in lived.dagmans)
    return replace(lived, dags=dags, dagmans=dagmans)


def _move(job: Job, when: Callable[[int], int]) -> None:
    job.submitted = when(job.submitted)
    job.lines = [(when(time), text) for time, text in job.lines]
    job.holds = [(when(time), why) for time, why in job.holds]
    job.moved = [(when(time), sent, received) for time, sent, received in job.moved]
    job.memory = [(when(time), mb) for time, mb in job.memory]
    for each in (*job.executions, *job.transfers):
        each.start, each.end = when(each.start), when(each.end) if each.end else 0


KINDS: Final = (
    Kind("small", 3, 8),
    Kind("one run", 1, 25),
    Kind("many runs", 36, 12),
    Kind("long", 12, 30),
    Kind("one site", 8, 15, places=1),
    Kind("bad sites", 8, 12, trouble=2.5),
    Kind("evictions", 15, 15, trouble=1.2),
    Kind("removed", 6, 12, removed=((4, 3), (3, 6), (2, 1))),
    Kind("removed often", 12, 15, 0.8, removed=((2, 0.1), (3, 2), (5, 9), (2, 4))),
    Kind("weeks", 10, 20, weeks=0.5),
    Kind("weeks, removed", 6, 15, 0.8, removed=((5, 2), (4, 5)), weeks=0.5),
    Kind("small, weeks", 4, 12, 1.0, weeks=0.7),
)
"""Small and large ones, sites that lose most of what they run, evictions, a DAG that is removed
and submitted again, weeks of which some are twice as slow as others."""
