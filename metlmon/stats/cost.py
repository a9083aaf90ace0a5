"""What an ensemble that is not there yet would cost, by what epochs of another one did.

Of every epoch that was completed all executions count, the lost ones too: that is what it took
to have it. What was spent on epochs that never were completed is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median, quantiles
from typing import Final

from metlmon.ensemble.ledger import HOUR
from metlmon.ensemble.states import State
from metlmon.ensemble.wording import count, duration, number
from metlmon.frozen import frozen
from metlmon.stats.cycles import counted, cycles_of
from metlmon.stats.study import Basis

ENOUGH: Final = 3
"""Completed epochs from which something is said: of two nobody knows what is usual."""


@frozen
class Past:
    """What completed epochs of an ensemble took. ``epochs``: how many; ``hours``: GPU-hours of
    one, the mean, ``lower`` and ``upper`` the quartiles; ``lost``: the share of these hours in
    executions that ended badly (0–1); ``cycle``: seconds from the completion of the epoch before,
    the median; None where too few tell."""

    epochs: int
    hours: float
    lower: float
    upper: float
    lost: float
    cycle: float | None


@frozen
class Cost:
    """Of ``epochs`` epochs, ``chain`` of them one after the other: GPU-hours (``lower`` and
    ``upper``: if all were as the quartiles), and seconds of a run."""

    epochs: int
    hours: float
    lower: float
    upper: float
    seconds: float | None
    past: Past


def past(basis: Basis) -> Past | None:
    """What the epochs of this ensemble took; None while too few are completed."""
    spent: list[float] = []
    bad = 0.0
    cycles: list[float] = []
    for epochs in counted(basis.ledger).values():
        for epoch in epochs:
            # An epoch that is done by inference has no hours that could be known.
            if epoch.state is State.COMPLETED and not epoch.inferred and epoch.good > 0:
                spent.append((epoch.good + epoch.bad) / HOUR)
                bad += epoch.bad / HOUR
        cycles += [cycle.seconds for cycle in cycles_of(basis.ledger, epochs) if cycle.ended]
    if len(spent) < ENOUGH:
        return None
    lower, _, upper = quantiles(spent, n=4, method="inclusive")
    usual = median(cycles) if len(cycles) >= ENOUGH else None
    total = sum(spent)
    return Past(len(spent), total / len(spent), lower, upper, bad / total, usual)


def cost(known: Past | None, epochs: int, chain: int) -> Cost | None:
    """What so many epochs would cost, ``chain`` of them in each run; None where nothing is known,
    or there is nothing to train."""
    if known is None or epochs < 1:
        return None
    hours = (known.hours, known.lower, known.upper)
    mean, lower, upper = (epochs * each for each in hours)
    seconds = None if known.cycle is None else chain * known.cycle
    return Cost(epochs, mean, lower, upper, seconds, known)


def told(made: Cost, of: str, ascii: bool = False) -> Iterable[str]:
    """It in words, a sentence to a line: what it costs, and how that is known. ``of``: whose
    epochs these were."""
    dash = "-" if ascii else "–"
    spread = f"{_hours(made.lower, ascii)}{dash}{_hours(made.upper, ascii)}"
    yield f"about {_hours(made.hours, ascii)} GPU-hours ({spread})"
    if made.seconds is not None:
        yield f"a run takes about {duration(made.seconds, ascii)}, waiting included"
    known = made.past
    lost = f", {known.lost:.0%} of it lost" if known.lost >= 0.005 else ""
    yield (
        f"as {count(known.epochs, 'epoch', ascii=ascii)} of {of} took: "
        f"{known.hours:.3g} GPU-hours each{lost}"
    )


def _hours(hours: float, ascii: bool) -> str:
    return number(round(hours), ascii) if hours >= 10 else f"{hours:.2g}"
