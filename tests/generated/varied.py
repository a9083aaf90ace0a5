"""Ensembles of other sizes and troubles than the first round, to test estimates on ensembles for
which they were not made."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from tests.generated import ensembles
from tests.generated.places import PLACES, Place

DAY: Final = 86400
BEGIN: Final = ensembles.moment("2026-01-05 09:00:00")
TROUBLE: Final = tuple((act, count) for act, count in ensembles.DECK if act not in ensembles.SHORT)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of ensemble. ``trouble``: the mean number of troubles in an epoch; ``removed``: days
    from the beginning to each removal of the DAG and those until its resubmission; ``acts``:
    troubles, with weights; ``memory_every``: seconds between two memory updates of a job (None:
    few)."""

    name: str
    runs: int
    epochs: int
    trouble: float = 0.3
    removed: tuple[tuple[float, float], ...] = ()
    acts: tuple[tuple[ensembles.Act, int], ...] = TROUBLE
    memory_every: float | None = None


def varied(kind: Kind, seed: int) -> ensembles.Ensemble:
    """One ensemble of this kind."""
    rng = Random(f"{kind.name} {seed}")
    runs = tuple((f"hetero{n}", f"{rng.getrandbits(32):08x}") for n in range(kind.runs))
    lives, start = [], float(BEGIN)
    for days, pause in kind.removed:
        end = start + days * DAY
        lives.append(ensembles.Life(round(start), round(end)))
        start = end + pause * DAY
    plan = ensembles.DagPlan(
        "heterogeneous.dag", runs, (*lives, ensembles.Life(round(start))), kind.epochs
    )
    served = [place for place in PLACES if place.shares[0]]
    shares = [place.shares[0] for place in served]
    keys = [(run, epoch) for run, _ in runs for epoch in range(kind.epochs)]
    final = dict(zip(keys, rng.choices(served, shares, k=len(keys)), strict=True))
    troubles: dict[tuple[str, int], list[tuple[ensembles.Act, Place]]] = {}
    acts, counts = zip(*kind.acts, strict=True)
    for key in keys:
        while rng.random() < kind.trouble / (1 + kind.trouble):
            act = rng.choices(acts, counts)[0]
            troubles.setdefault(key, []).append((act, rng.choice(served)))
    return ensembles.lived_through(seed, (plan,), final, troubles, rng, kind.memory_every)


EVICTIONS: Final = Kind("evictions", 15, 15, trouble=1.2)
REMOVED: Final = Kind("removed", 6, 12, removed=((4, 3), (3, 6), (2, 1)))
"""Most executions are evicted; the DAG is removed, and submitted again."""
