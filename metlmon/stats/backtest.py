"""Backtest of the estimates: past predictions against the actual times.

The estimates are computed as of the times at which 25, 50 and 75 % of the epochs completed so far
were completed. For an unfinished ensemble they predict when each run reached its last completed
epoch. Estimates assume that the DAG keeps running, so that downtime is subtracted from the actual
times, too (:mod:`metlmon.stats.estimates`). The baseline is the naive prediction: a run's last
cycle times the epochs left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from math import ceil
from statistics import median
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.live.feed import StatsInput
from metlmon.model.states import DONE
from metlmon.snapshot.records import Ledger
from metlmon.stats.estimates import (
    Downtime,
    Forecast,
    counted_epochs,
    epoch_durations,
    make_forecast,
)

SHARES: Final = (0.25, 0.5, 0.75)


class Prediction(Struct, frozen=True):
    """One prediction, in seconds from ``moment``.

    ``key``, ``run`` None: the ensemble (its active runs). ``downtime``: seconds of downtime, not
    included in ``actual``. ``naive_prediction``: the naive prediction, None if there was no cycle.
    """

    json_properties: ClassVar = (
        "covered",
        "error",
        "naive_error",
        "error_seconds",
    )

    share: float
    moment: datetime
    key: str | None
    run: str | None
    low: float
    predicted: float
    high: float
    actual: float
    naive_prediction: float | None
    downtime: float = 0.0

    @property
    def error(self) -> float:
        """The signed relative error: 0.5 is 50 % too late."""
        return (self.predicted - self.actual) / self.actual

    @property
    def naive_error(self) -> float | None:
        naive = self.naive_prediction
        return None if naive is None else (naive - self.actual) / self.actual

    @property
    def error_seconds(self) -> float:
        return self.predicted - self.actual

    @property
    def covered(self) -> bool:
        """Whether the actual time was in the interval."""
        return self.low <= self.actual <= self.high


class BacktestSummary(Struct, frozen=True):
    """The number of trials, of intervals that held, and the medians of the absolute errors."""

    trials: int
    inside: int
    error_median: float | None
    naive_error_median: float | None

    @staticmethod
    def of(trials: Sequence[Prediction]) -> BacktestSummary:
        errors = [abs(trial.error) for trial in trials]
        naive_errors = [abs(t.naive_error) for t in trials if t.naive_error is not None]
        return BacktestSummary(
            trials=len(trials),
            inside=sum(trial.covered for trial in trials),
            error_median=median(errors) if errors else None,
            naive_error_median=median(naive_errors) if naive_errors else None,
        )


class Backtest(Struct, frozen=True):
    """The result of a backtest over ``epochs`` completed epochs.

    ``predictions``: of the ensemble and of its runs, in order of time. ``skipped_shares``: the
    shares at which there was no prediction.
    """

    json_properties: ClassVar = (
        "ensemble",
        "runs",
    )

    epochs: int
    predictions: tuple[Prediction, ...]
    skipped_shares: tuple[float, ...]

    @property
    def ensemble(self) -> BacktestSummary:
        """The predictions for the whole ensemble."""
        return BacktestSummary.of([each for each in self.predictions if each.key is None])

    @property
    def runs(self) -> BacktestSummary:
        """The predictions for single runs."""
        return BacktestSummary.of([each for each in self.predictions if each.key is not None])


def backtest(final: StatsInput, input_at: Callable[[datetime], StatsInput]) -> Backtest:
    """Run the backtest; ``input_at`` returns the input as of a time."""
    completions = _completion_times(final.ledger)
    moments = sorted(time for times in completions.values() for time in times)
    goals = {run: len(times) for run, times in completions.items()}
    pauses = Downtime(final.ledger, final.status.dags)
    trials: list[Prediction] = []
    skipped: list[float] = []
    for share in SHARES if len(moments) > 1 else ():
        moment = moments[ceil(share * len(moments)) - 1]
        outlook = make_forecast(stats_input := input_at(moment), goals)
        predictions = _predictions(
            share=share,
            moment=moment,
            outlook=outlook,
            ledger=stats_input.ledger,
            completions=completions,
            pauses=pauses,
        )
        trials += predictions
        if not predictions:
            skipped.append(share)
    return Backtest(epochs=len(moments), predictions=tuple(trials), skipped_shares=tuple(skipped))


def _predictions(
    share: float,
    moment: datetime,
    outlook: Forecast,
    ledger: Ledger,
    completions: dict[str, list[datetime]],
    pauses: Downtime,
) -> list[Prediction]:
    """The predictions for the ensemble and its runs; for the ensemble only if a run has one."""
    trials: list[Prediction] = []
    naive_predictions = predict_naively(ledger)
    for run in outlook.runs:
        if run.remaining is None or not completions.get(run.key):
            continue
        end = completions[run.key][-1]
        downtime = pauses.seconds_between(run.key, moment, end)
        actual = ledger.seconds_between(moment, end) - downtime
        predict = naive_predictions.get(run.key)
        if actual > 0:
            trials.append(
                Prediction(
                    share=share,
                    moment=moment,
                    key=run.key,
                    run=run.run,
                    low=run.remaining.low,
                    predicted=run.remaining.median,
                    high=run.remaining.high,
                    actual=actual,
                    naive_prediction=predict(run.epochs_left) if predict is not None else None,
                    downtime=downtime,
                )
            )
    if outlook.remaining is None or not trials:
        return trials
    naive = [trial.naive_prediction for trial in trials if trial.naive_prediction is not None]
    ensemble = replace(
        max(trials, key=lambda trial: trial.actual),
        key=None,
        run=None,
        low=outlook.remaining.low,
        predicted=outlook.remaining.median,
        high=outlook.remaining.high,
        naive_prediction=max(naive, default=None),
    )
    return [ensemble, *trials]


def predict_naively(ledger: Ledger) -> dict[str, Callable[[int], float]]:
    """For each run, a function from a number of epochs to the naive prediction."""
    cycles = {
        run: epoch_durations(ledger, epochs) for run, epochs in counted_epochs(ledger).items()
    }
    ended = [cycle for run_cycles in cycles.values() for cycle in run_cycles if cycle.ended]
    newest = max(ended, key=lambda cycle: cycle.end, default=None)
    naive_predictions: dict[str, Callable[[int], float]] = {}
    for run, run_cycles in cycles.items():
        last = next((cycle for cycle in reversed(run_cycles) if cycle.ended), newest)
        if last is not None:
            elapsed_seconds = sum(cycle.seconds for cycle in run_cycles if not cycle.ended)
            naive_predictions[run] = partial(_naive_prediction, last.seconds, elapsed_seconds)
    return naive_predictions


def _naive_prediction(cycle: float, elapsed_seconds: float, left: int) -> float:
    return max(0.0, cycle * left - elapsed_seconds)


def _completion_times(ledger: Ledger) -> dict[str, list[datetime]]:
    """The sorted completion times of each run's epochs."""
    completions: dict[str, list[datetime]] = {}
    for run, epochs in counted_epochs(ledger).items():
        times = [e.completed for e in epochs if e.state in DONE and e.completed is not None]
        completions[run] = sorted(times)
    return completions
