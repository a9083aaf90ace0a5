"""How far off the estimates would have been: the ensemble as it was, and what came then.

At the moments when 25, 50 and 75 % of the epochs that it has completed by now were completed,
the estimates are made from what was known then, and compared with what happened. Of an
ensemble that is not finished the moment is foretold at which each run reached the last epoch
that it did complete. Estimates assume that the DAG goes on running; that somebody removes it and
submits it again days later is not foretold: such time is taken off what happened, too
(:mod:`metlmon.stats.downtime`). Beside it stands the plain guess: a run's last cycle, times the
epochs that were left, held against the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from math import ceil
from statistics import median
from typing import Final

from metlmon.frozen import frozen
from metlmon.model.states import DONE
from metlmon.snapshot.ledger import Ledger
from metlmon.stats.downtime import Downtime
from metlmon.stats.epoch_times import (
    DowntimeFunction,
    counted,
    elapsed,
    epoch_durations,
    naive_time,
)
from metlmon.stats.estimates import Forecast, expected
from metlmon.stats.worker import StatsInput

SHARES: Final = (0.25, 0.5, 0.75)


@frozen
class Trial:
    """One prediction, seconds from ``at``. ``run`` None: the ensemble (those of its runs that
    went on then). ``paused``: seconds in which nobody was trying, not in ``truth``. ``naive``
    None: there was no cycle to go by."""

    share: float
    at: datetime
    run: str | None
    run_name: str | None
    low: float
    predicted: float
    high: float
    truth: float
    naive: float | None
    paused: float = 0.0

    @property
    def error(self) -> float:
        """Signed, as a share of the truth: 0.5 is half as much again too late."""
        return (self.predicted - self.truth) / self.truth

    @property
    def naive_error(self) -> float | None:
        return None if self.naive is None else (self.naive - self.truth) / self.truth

    @property
    def inside(self) -> bool:
        """Whether the truth lay in the interval."""
        return self.low <= self.truth <= self.high


@frozen
class Backtest:
    """``epochs`` were completed. ``trials`` of the ensemble and of its runs, in order of time.
    ``unsaid``: shares of the way at which no date was given."""

    epochs: int
    trials: tuple[Trial, ...]
    unsaid: tuple[float, ...]

    def of_ensemble(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.run is None]

    def of_runs(self, share: float | None = None) -> list[Trial]:
        """The single runs' (at one share of the way)."""
        trials = [trial for trial in self.trials if trial.run is not None]
        return [t for t in trials if share is None or t.share == share]


def usual_error(trials: Iterable[Trial]) -> float | None:
    """The middle of how far off they are, whichever way, as a share of the truth."""
    return median(errors) if (errors := [abs(trial.error) for trial in trials]) else None


def usual_naive_error(trials: Iterable[Trial]) -> float | None:
    """The same of the plain guess."""
    errors = [abs(t.naive_error) for t in trials if t.naive_error is not None]
    return median(errors) if errors else None


def backtest(final: StatsInput, then: Callable[[datetime], StatsInput]) -> Backtest:
    """Replay: ``then`` gives the ensemble as it was at a moment."""
    reached = _reached(final.ledger)
    moments = sorted((time for times in reached.values() for time in times), key=naive_time)
    goals = {run: len(times) for run, times in reached.items()}
    paused = Downtime(final.ledger, final.status.dags).within
    trials: list[Trial] = []
    unsaid: list[float] = []
    for share in SHARES if len(moments) > 1 else ():
        at = moments[ceil(share * len(moments)) - 1]
        outlook = expected(basis := then(at), goals)
        made = _trials(share, at, outlook, basis.ledger, reached, paused)
        trials += made
        if not made:
            unsaid.append(share)
    return Backtest(len(moments), tuple(trials), tuple(unsaid))


def _trials(
    share: float,
    at: datetime,
    outlook: Forecast,
    ledger: Ledger,
    reached: dict[str, list[datetime]],
    paused: DowntimeFunction,
) -> list[Trial]:
    made: list[Trial] = []
    guesses = naive(ledger)
    for run in outlook.runs:
        if not reached.get(run.run):
            continue
        end = reached[run.run][-1]
        off = paused(run.run, at, end)
        truth = elapsed(ledger, at, end) - off
        if run.span is None or truth <= 0:
            continue
        guess = guesses.get(run.run)
        plain = guess(run.left) if guess is not None else None
        span = run.span
        made.append(
            Trial(
                share,
                at,
                run.run,
                run.run_name,
                span.low,
                span.middle,
                span.high,
                truth,
                plain,
                off,
            )
        )
    if outlook.span is None or not made:
        return made
    plains = [trial.naive for trial in made if trial.naive is not None]
    last = max(made, key=lambda trial: trial.truth)
    whole = Trial(
        share,
        at,
        None,
        None,
        outlook.span.low,
        outlook.span.middle,
        outlook.span.high,
        last.truth,
        max(plains, default=None),
        last.paused,
    )
    return [whole, *made]


def naive(ledger: Ledger) -> dict[str, Callable[[int], float]]:
    """For each run, how long so many epochs take by its last cycle alone, what has passed of
    the one under way taken off. A run without one is measured by the newest of the others."""
    cycles = {run: epoch_durations(ledger, epochs) for run, epochs in counted(ledger).items()}
    ended = [cycle for each in cycles.values() for cycle in each if cycle.ended]
    newest = max(ended, key=lambda cycle: naive_time(cycle.at), default=None)
    guesses: dict[str, Callable[[int], float]] = {}
    for run, each in cycles.items():
        own = [cycle for cycle in each if cycle.ended]
        last = own[-1] if own else newest
        if last is not None:
            passed = sum(cycle.seconds for cycle in each if not cycle.ended)
            guesses[run] = _guess(last.seconds, passed)
    return guesses


def _guess(cycle: float, passed: float) -> Callable[[int], float]:
    return lambda left: max(0.0, cycle * left - passed)


def _reached(ledger: Ledger) -> dict[str, list[datetime]]:
    """When each run's completed epochs were completed, in order of time."""
    reached: dict[str, list[datetime]] = {}
    for run, epochs in counted(ledger).items():
        times = [e.completed for e in epochs if e.state in DONE and e.completed is not None]
        reached[run] = sorted(times, key=naive_time)
    return reached
