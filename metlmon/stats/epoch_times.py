"""What each epoch of a run took from completion to completion, and what is to be expected of
the next ones.

A cycle is the time from the completion of the epoch before (of a run's first one: from its
submission) to an epoch's own: queue waits, transfers, lost executions and holds are in it as they
happened; what a run paused because its DAG did not run is not (:mod:`metlmon.stats.downtime`). The
cycle under way counts as "at least so long", and so does one that was broken off.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from math import log, sqrt
from typing import Final, TypeVar

from metlmon.frozen import frozen
from metlmon.model.job_events import JobId
from metlmon.model.states import DONE, Outcome, State
from metlmon.snapshot.ledger import EpochEntry, ExecutionEntry, Ledger
from metlmon.stats.kaplan_meier import KaplanMeier, Lifetime

K = TypeVar("K")

HALF_LIFE: Final = 3.0
"""Rounds (a round: an epoch of every run) after which what happened counts half: queues, sites
and what is trained change within weeks. Chosen on generated ensembles, where weeks differ;
between 2 and 6 it hardly matters (``tests/bench/backtest.py``)."""

BY_A_PERSON: Final = frozenset({1004, 1023})
"""Vacate codes of what a person did: vacated, removed (``condor_holdcodes.h``)."""

FRESH: Final = 2.0
"""As :data:`HALF_LIFE`, for one execution: code and data change, and with them what it takes."""

BELIEF: Final = 10.0
"""So many samples of one's own count as much as all others do together."""

ENOUGH: Final = 3
"""Ended executions that a group needs to speak for itself."""

OUTLIER: Final = 3.0
"""A cycle counts for no more than so many times the middle one (of those of late): an outage of
days comes once, and must not be multiplied by the epochs that are left. With 2 estimates come
too early where waits differ much, with 5 too late after an outage."""

SWING: Final = 0.6
"""How far one round's mean is from all rounds' mean, as a logarithm, where nothing is known of
it yet: almost twice as long, or half. Chosen by the backtest."""

SWING_BELIEF: Final = 8.0
"""So many rounds are needed to know better than :data:`SWING`."""


ALIKE_ROUNDS: Final = 2.5
"""So many rounds in a row count as one where it is told how sure it is. Chosen by the backtest:
the intervals hold in four of five cases with it."""


@frozen
class Cycle:
    """What one epoch took; not ``ended``: it ``lasts`` still, or was broken off. ``at``: when it
    was completed or broken off."""

    run: str
    epoch: int
    target: str | None
    seconds: float
    ended: bool
    at: datetime
    broken: bool = False

    @property
    def lasts(self) -> bool:
        return not self.ended and not self.broken


def counted(ledger: Ledger) -> dict[str, list[EpochEntry]]:
    """The epochs that count, by run, in order."""
    runs: dict[str, list[EpochEntry]] = {run.run: [] for run in ledger.runs}
    for epoch in ledger.epochs:
        if epoch.counts:
            runs.setdefault(epoch.run, []).append(epoch)
    for epochs in runs.values():
        epochs.sort(key=lambda epoch: (epoch.epoch is None, epoch.epoch or 0))
    return runs


def elapsed(ledger: Ledger, start: datetime, end: datetime) -> float:
    """Seconds from one stamp to another, never negative; 0 where only one of them has a zone."""
    if (start.tzinfo is None) != (end.tzinfo is None):
        return 0.0
    return max(0.0, ledger.between(start, end))


def later(when: datetime) -> datetime:
    """A key to put moments in order, whether or not they have a zone."""
    return when if when.tzinfo is None else when.replace(tzinfo=None)


def after(ledger: Ledger, seconds: float) -> datetime | None:
    """The local time so many seconds after as-of; None where no calendar reaches."""
    now = ledger.as_of
    if now is None:
        return None
    try:
        guess = now + timedelta(seconds=round(seconds))
        # As the stamps stand it may be off by what the clocks are turned in between.
        return guess + timedelta(seconds=round(seconds) - elapsed(ledger, now, guess))
    except OverflowError:
        return None


Paused = Callable[[str, datetime, datetime], float]
"""Seconds between two moments in which nobody was trying to go on with a run."""


def epoch_durations(
    ledger: Ledger, epochs: Sequence[EpochEntry], paused: Paused | None = None
) -> list[Cycle]:
    """The cycles of one run, the one under way too, without what it ``paused``."""
    now = ledger.as_of
    if now is None:
        return []

    def lasted(epoch: EpochEntry, start: datetime, end: datetime) -> float:
        off = 0.0 if paused is None else paused(epoch.run, start, end)
        return max(0.0, elapsed(ledger, start, end) - off)

    made: list[Cycle] = []
    before: datetime | None = None
    for number, epoch in enumerate(epochs):
        first = epoch.first_submitted
        if epoch.state not in DONE:
            begun = before or first
            if begun is not None:
                age = lasted(epoch, begun, now)
                made.append(Cycle(epoch.run, number, epoch.target, age, False, now))
            break
        begun, before = before or first, epoch.completed
        if begun is None or epoch.completed is None or epoch.state is State.SKIPPED:
            continue
        if first is not None and later(begun) > later(epoch.completed):
            begun = first
        took = lasted(epoch, begun, epoch.completed)
        if took > 0:
            made.append(Cycle(epoch.run, number, epoch.target, took, True, epoch.completed))
    return made


class DurationModel:
    """What the cycles of an ensemble say of those to come. ``curve`` is of all of them, ``past``
    of those that have ended and ``usual``, seconds, its mean: what is measured by them does not
    look short because another lasts long, and does not count twice that it does."""

    def __init__(self, cycles: Iterable[Cycle]) -> None:
        self.cycles = list(cycles)
        over = sorted((c for c in self.cycles if not c.lasts), key=lambda cycle: later(cycle.at))
        ended = [cycle for cycle in over if cycle.ended]
        self.ended = len(ended)
        self.round = max(1, len({cycle.run for cycle in ended}))
        self._weights: Mapping[int, float] = {
            id(cycle): 0.5 ** ((len(over) - 1 - i) / self.round / HALF_LIFE)
            for i, cycle in enumerate(over)
        }
        self._in_order = ended
        self._cap = OUTLIER * _middle([(c.seconds, self._weights[id(c)]) for c in ended])
        self.past = KaplanMeier.of(self._samples(ended))
        past = self.past
        self.usual, self._spread = (past.mean, past.spread) if past is not None else (0.0, 0.0)
        self.curve = KaplanMeier.of(self._samples(self.cycles))
        self._own: dict[str, float] = {}
        self._factors: dict[str | None, float] = {}
        self._by_run = _grouped(self.cycles, lambda cycle: cycle.run)
        self._by_target = _grouped(self.cycles, lambda cycle: cycle.target)

    def _samples(self, cycles: Iterable[Cycle]) -> list[Lifetime]:
        most, weights = self._cap or float("inf"), self._weights
        return [
            Lifetime(c.seconds if c.seconds < most else most, c.ended, weights.get(id(c), 1.0))
            for c in cycles
        ]

    def _capped(self, cycle: Cycle) -> float:
        return min(cycle.seconds, self._cap) if self._cap else cycle.seconds

    @property
    def mean(self) -> float:
        """Seconds that a cycle takes on the average."""
        return self.curve.mean if self.curve is not None else 0.0

    def expected(self, run: str, target: str | None) -> float:
        """Seconds that a cycle of this run takes on the average, where it wants to go there."""
        return self._of_run(run) * self._factor(target)

    def _of_run(self, run: str) -> float:
        if run not in self._own:
            self._own[run] = self._leaning(self._by_run.get(run, ()), self.mean)
        return self._own[run]

    def _factor(self, target: str | None) -> float:
        """How many times as long as on the average it takes there, by cycles that have ended:
        one that lasts long on the average must not make the others look short."""
        if target is None or not self.usual:
            return 1.0
        if target not in self._factors:
            there = [cycle for cycle in self._by_target.get(target, ()) if cycle.ended]
            self._factors[target] = self._leaning(there, self.usual) / self.usual
        return self._factors[target]

    def _leaning(self, cycles: Iterable[Cycle], towards: float) -> float:
        """Their mean, leaning towards what is known otherwise the fewer they are. One under
        way has its say as soon as it takes longer than that."""
        total, weight = BELIEF * towards, BELIEF
        cycles = list(cycles)
        for cycle in cycles:
            if cycle.ended:
                total += self._weights[id(cycle)] * self._capped(cycle)
                weight += self._weights[id(cycle)]
        for cycle in cycles:
            if cycle.lasts and self._capped(cycle) > total / weight:
                total, weight = total + self._capped(cycle), weight + 1
        return total / weight

    @cached_property
    def rounds(self) -> int:
        """How many rounds of epochs it has seen."""
        return -(-self.ended // self.round)

    def swing_over(self, epochs: int) -> float:
        """How far the mean of so many epochs to come is off: for what is not known of the times
        that were, and for those to come. Times last: two rounds in a row tell little more than
        one."""
        return self.swing * sqrt(ALIKE_ROUNDS * (1 / max(1, self.rounds) + 1 / max(1, epochs)))

    @cached_property
    def swing(self) -> float:
        """How far one round's mean is from the mean of all, as a logarithm (one sigma)."""
        means = [
            sum(self._capped(cycle) for cycle in part) / len(part)
            for part in (
                self._in_order[i : i + self.round] for i in range(0, self.ended, self.round)
            )
        ]
        if not means:
            return SWING
        middle = sum(log(mean) for mean in means) / len(means)
        seen = sum((log(mean) - middle) ** 2 for mean in means)
        return float(((SWING_BELIEF * SWING**2 + seen) / (SWING_BELIEF + len(means))) ** 0.5)

    @cached_property
    def within(self) -> float:
        """How far one cycle is from its mean, as a share of it (one sigma)."""
        return min(3.0, self._spread / self.usual) if self.usual else 1.0


def _middle(weighed: Iterable[tuple[float, float]]) -> float:
    """The median of values by their weights; 0 of none."""
    ordered = sorted(weighed)
    half, passed = sum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    return 0.0


def _grouped(cycles: Iterable[Cycle], key: Callable[[Cycle], K]) -> dict[K, list[Cycle]]:
    groups: dict[K, list[Cycle]] = {}
    for cycle in cycles:
        groups.setdefault(key(cycle), []).append(cycle)
    return groups


ITS_RUN: Final = "its run"
ALL: Final = "all"

LIKE: Final[Mapping[str, Callable[[ExecutionEntry], tuple[object, ...]]]] = {
    "this site and GPU": lambda entry: (entry.site, entry.gpu, entry.gpus),
    "this GPU": lambda entry: (entry.gpu, entry.gpus),
    "this GPU model": lambda entry: (entry.gpu,),
    ITS_RUN: lambda entry: (entry.run,),
    ALL: lambda entry: (),
}
"""What executions are alike in, those that are most alike first."""


class Executions:
    """How long one execution of a training takes, by where it runs."""

    def __init__(self, ledger: Ledger) -> None:
        hidden = {job for epoch in ledger.epochs if epoch.hidden for job in epoch.jobs}
        self.under_way: dict[JobId, ExecutionEntry] = {}
        self._samples: list[tuple[ExecutionEntry, Lifetime]] = []
        self._groups: dict[str, dict[tuple[object, ...], list[Lifetime]]] = {}
        self._curves: dict[tuple[str, tuple[object, ...]], KaplanMeier | None] = {}
        self._good: list[float] = []
        self._lost: list[float] = []
        entries = [e for e in ledger.executions if e.training and not e.dagman]
        weights = _fading(ledger, entries)
        in_flight, removed = Outcome.IN_FLIGHT, Outcome.REMOVED
        for entry, weight in zip(entries, weights, strict=True):
            if entry.outcome is in_flight:
                self.under_way[entry.job] = entry
            elif entry.outcome is not removed and entry.code not in BY_A_PERSON:
                # What a person took away says nothing of how reliable it is there.
                (self._good if entry.final else self._lost).append(entry.seconds)
            if entry.job not in hidden:
                self._samples.append((entry, Lifetime(entry.seconds, entry.final, weight)))
        self._good.sort()
        self._lost.sort()

    def curve(self, entry: ExecutionEntry | None, run: str) -> tuple[KaplanMeier | None, str]:
        """The curve of those that are most like it, and what they are: its site, GPU model and
        number of GPUs; any site; any number; its run; all."""
        for words, group in LIKE.items():
            if entry is not None:
                key = group(entry)
            elif words == ITS_RUN:
                key = (run,)
            elif words == ALL:
                key = ()
            else:
                continue
            if (words, key) not in self._curves:
                self._curves[words, key] = KaplanMeier.of(self._like(words).get(key, ()))
            curve = self._curves[words, key]
            if curve is not None and (curve.events >= ENOUGH or words == ALL):
                return curve, words
        return None, ""

    def _like(self, words: str) -> Mapping[tuple[object, ...], Sequence[Lifetime]]:
        """The groups of one kind: made when one of them is asked for."""
        groups = self._groups.get(words)
        if groups is None:
            groups, group = {}, LIKE[words]
            for entry, sample in self._samples:
                groups.setdefault(group(entry), []).append(sample)
            self._groups[words] = groups
        return groups

    def risk(self, age: float) -> float:
        """The share of executions of this age that are lost before they are good; where few
        are known, nearer to one in ten."""
        good = len(self._good) - bisect_right(self._good, age)
        lost = len(self._lost) - bisect_right(self._lost, age)
        return (lost + 0.2) / (good + lost + 2.0)


def _fading(ledger: Ledger, entries: Sequence[ExecutionEntry]) -> list[float]:
    """What each execution counts: the older, the less."""
    now = ledger.as_of
    if now is None:
        return [1.0] * len(entries)
    runs = max(1, len({entry.run for entry in entries if entry.final}))
    ends = [later(entry.end or now) for entry in entries]
    weights = [1.0] * len(entries)
    newest_first = sorted(range(len(entries)), key=lambda i: ends[i], reverse=True)
    for rank, i in enumerate(newest_first):
        weights[i] = float(0.5 ** (rank / runs / FRESH))
    return weights
