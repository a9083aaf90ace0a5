"""What an ensemble that is not there yet would cost, by what epochs of another one did.

Of every epoch that was completed all executions count, the lost ones too: that is what it took
to have it. What was spent on epochs that never were completed is not in it, and neither are
evaluations. So many epochs cost so many times the mean. How far their sum may be from that comes
from how far the runs' means are from each other, and epochs from their run's: of many runs it is
known better than of one epoch. GPU-hours are those of as many GPUs an epoch as it had then; what
more of them would make of it nobody knows, so it is said, and not reckoned with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import fmean, median, quantiles, stdev
from typing import Final

from metlmon.frozen import frozen
from metlmon.model.states import State
from metlmon.snapshot.ledger import HOUR, EpochEntry
from metlmon.stats.epoch_times import counted, epoch_durations
from metlmon.stats.estimates import HIGH
from metlmon.stats.quantiles import gamma, normal
from metlmon.stats.worker import StatsInput
from metlmon.text.formatting import count, duration, number

ENOUGH: Final = 3
"""Completed epochs from which something is said: of two nobody knows what is usual."""


APART: Final = 0.15
"""How far runs' means are from each other where one run alone tells, as a share of it: about as
those of a recorded round of 21 runs (0.13)."""


@frozen
class CostHistory:
    """What completed epochs of an ensemble took. ``epochs``: how many, of ``runs``; ``hours``:
    GPU-hours of one, the mean, ``lower`` and ``upper`` the quartiles; ``between``, ``within``: how
    far a run's mean is from that, and an epoch from its run's (one sigma, hours); ``lost``: the
    share of these hours in executions that ended badly (0–1); ``cycle``: seconds from the
    completion of the epoch before, the median; None where too few tell. ``gpus``: the least and the
    most GPUs that an epoch had, on all its machines; None where no log tells."""

    epochs: int
    runs: int
    hours: float
    lower: float
    upper: float
    between: float
    within: float
    lost: float
    cycle: float | None
    gpus: tuple[int, int] | None

    @staticmethod
    def of(
        spent: Sequence[Sequence[float]],
        bad: float = 0.0,
        cycle: float | None = None,
        gpus: tuple[int, int] | None = None,
    ) -> CostHistory:
        """``spent``: GPU-hours of each run's epochs, ``bad`` of these were lost."""
        every = [hours for run in spent for hours in run]
        lower, _, upper = quantiles(every, n=4, method="inclusive")
        means = [fmean(run) for run in spent]
        apart = [hours - mean for run, mean in zip(spent, means, strict=True) for hours in run]
        free = len(every) - len(spent)
        return CostHistory(
            len(every),
            len(spent),
            fmean(every),
            lower,
            upper,
            stdev(means) if len(means) > 1 else APART * means[0],
            sqrt(sum(each**2 for each in apart) / free) if free else 0.0,
            bad / sum(every),
            cycle,
            gpus,
        )


@frozen
class Cost:
    """Of ``epochs`` epochs: GPU-hours of all together (between ``lower`` and ``upper`` in four of
    five cases, if they are like those that were), and seconds of a run. ``gpus``: that each of them
    asks for, on all its machines, None: not known; ``evaluations``: are there any, which cost more?
    """

    epochs: int
    hours: float
    lower: float
    upper: float
    seconds: float | None
    past: CostHistory
    gpus: int | None
    evaluations: bool


def past(basis: StatsInput) -> CostHistory | None:
    """What the epochs of this ensemble took; None while too few are completed."""
    spent: list[list[float]] = []
    gpus: list[int] = []
    bad = 0.0
    cycles: list[float] = []
    for epochs in counted(basis.ledger).values():
        # An epoch that is done by inference has no hours that could be known.
        done = [e for e in epochs if e.state is State.COMPLETED and not e.inferred and e.good > 0]
        if done:
            spent.append([(epoch.good + epoch.bad) / HOUR for epoch in done])
        bad += sum(epoch.bad for epoch in done) / HOUR
        gpus += [each for epoch in done if (each := _gpus(epoch)) is not None]
        cycles += [cycle.seconds for cycle in epoch_durations(basis.ledger, epochs) if cycle.ended]
    if sum(map(len, spent)) < ENOUGH:
        return None
    usual = median(cycles) if len(cycles) >= ENOUGH else None
    return CostHistory.of(spent, bad, usual, (min(gpus), max(gpus)) if gpus else None)


def _gpus(epoch: EpochEntry) -> int | None:
    """GPUs of an epoch, on all the machines of its last job."""
    machines = sum(job[0] == epoch.jobs[-1][0] for job in epoch.jobs)
    return epoch.gpus * machines if epoch.gpus is not None else None


def cost(
    known: CostHistory | None,
    epochs: int,
    chain: int,
    gpus: int | None = None,
    evaluations: bool = False,
) -> Cost | None:
    """What so many epochs would cost, ``chain`` of them in each run; None where nothing is known,
    or there is nothing to train. ``gpus``, ``evaluations``: as in :class:`Cost`."""
    if known is None or epochs < 1:
        return None
    total = epochs * known.hours
    low, high = _spread(known, epochs, max(1.0, epochs / max(1, chain)))
    seconds = None if known.cycle is None else chain * known.cycle
    return Cost(epochs, total, low * total, high * total, seconds, known, gpus, evaluations)


def _spread(known: CostHistory, epochs: int, runs: float) -> tuple[float, float]:
    """Between which shares of the mean the sum of so many epochs of so many runs is, in four of
    five cases."""
    between = (known.between / known.hours) ** 2 * (1 / known.runs + 1 / runs)
    within = (known.within / known.hours) ** 2 * (1 / known.epochs + 1 / epochs)
    variance = between + within
    if variance <= 0:
        return 1.0, 1.0
    # Of few the spread itself is not well known: Student's distribution, by its first term.
    z = normal(HIGH)
    free = max(1, (known.runs if between > within else known.epochs) - 1)
    z += (z**3 + z) / (4 * free)
    return min(1.0, gamma(1 / variance, -z)), max(1.0, gamma(1 / variance, z))


def told(made: Cost, of: str, ascii: bool = False) -> Iterable[str]:
    """It in words, a sentence to a line: what it costs, and how that is known. ``of``: whose
    epochs these were."""
    dash = "-" if ascii else "–"
    spread = f"{_hours(made.lower, ascii)}{dash}{_hours(made.upper, ascii)}"
    more = ", evaluations not in it" if made.evaluations else ""
    yield f"about {_hours(made.hours, ascii)} GPU-hours ({spread}){more}"
    if made.seconds is not None:
        yield f"a run takes about {duration(made.seconds, ascii)}, waiting included"
    known = made.past
    lost = f", {known.lost:.0%} of it lost" if known.lost >= 0.005 else ""
    yield (
        f"as {count(known.epochs, 'epoch', ascii=ascii)} of {of} took: "
        f"{known.hours:.3g} GPU-hours each{_on(known, dash)}{lost}"
    )
    if known.gpus is not None and made.gpus is not None and known.gpus != (made.gpus, made.gpus):
        these = count(made.gpus, "GPU", ascii=ascii)
        yield f"these ask for {these} each: epochs that take as long cost in proportion"


def _on(known: CostHistory, dash: str) -> str:
    if known.gpus is None:
        return ""
    least, most = known.gpus
    return f" on {least}{f'{dash}{most}' if most > least else ''} GPU{'s' if most > 1 else ''}"


def _hours(hours: float, ascii: bool) -> str:
    return number(round(hours), ascii) if hours >= 10 else f"{hours:.2g}"
