"""The error that estimates would have had on recorded ensembles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path

import pytest

from metlmon.live.feed import StatsInput
from metlmon.stats.backtest import Backtest, BacktestSummary, Prediction, backtest, predict_naively
from metlmon.stats.estimates import counted_epochs
from tests.conftest import Shared
from tests.generated.varied import EVICTIONS, REMOVED, varied
from tests.generated.write import write
from tests.support.recordings import FIXTURES
from tests.support.run_histories import NOON, Past, basis, recorded

HOUR = 3600.0
RECORDINGS = ("trainer", "demo", "rescue", "holds", "scripts", "shared-log", "gated")
HELD_OUT = 2
"""No constant was chosen on what is generated with this seed."""


@cache
def replayed(directory: Path) -> Backtest:
    def then(moment: datetime) -> StatsInput:
        return recorded(directory, moment)

    return backtest(recorded(directory), then)


def test_errors_are_relative_to_the_time_left() -> None:
    trial = Prediction(0.5, NOON, None, None, 50.0, 90.0, 130.0, 60.0, 30.0)
    assert trial.error == 0.5
    assert trial.naive_error == -0.5
    assert trial.covered
    assert not Prediction(0.5, NOON, None, None, 70.0, 90.0, 130.0, 60.0, None).covered


def test_naive_estimate_is_the_last_cycle() -> None:
    made = basis({"run0": Past((5 * HOUR, 2 * HOUR), HOUR), "new": Past((), 0.5 * HOUR)})
    guesses = predict_naively(made.ledger)
    assert guesses["run0"](3) == 5 * HOUR
    # A run without a cycle uses the newest one of all.
    assert guesses["new"](1) == 1.5 * HOUR


def test_backtest_needs_enough_epochs() -> None:
    tested = backtest(basis({"run0": Past((HOUR,))}), lambda _: basis({"run0": Past()}))
    assert (tested.epochs, tested.predictions) == (1, ())
    assert BacktestSummary.of(tested.predictions).error_median is None


def of_all(tests: Iterable[Backtest]) -> tuple[list[Prediction], list[Prediction]]:
    """The trials of ensembles, and those of runs."""
    whole: list[Prediction] = []
    runs: list[Prediction] = []
    for tested in tests:
        whole += [each for each in tested.predictions if each.key is None]
        runs += [each for each in tested.predictions if each.key is not None]
    return whole, runs


def holds_in_about_four_of_five(trials: Sequence[Prediction]) -> None:
    """And whose usual error is smaller than that of the naive estimate."""
    summary = BacktestSummary.of(trials)
    error, plain = summary.error_median, summary.naive_error_median
    assert error is not None
    assert plain is not None
    assert error < 0.75 * plain
    inside = sum(trial.covered for trial in trials) / len(trials)
    assert 0.68 <= inside <= 0.92


@pytest.fixture(name="generated", scope="module")
def _generated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("generated")
    for kind in (EVICTIONS, REMOVED):
        write(varied(kind, HELD_OUT), base / kind.name)
    return {path.name: path for path in base.iterdir()}


def test_estimate_is_better_than_the_last_value(generated: dict[str, Path]) -> None:
    recordings = (FIXTURES / name for name in RECORDINGS)
    whole, runs = of_all(replayed(path) for path in (*recordings, *generated.values()))
    assert len(whole) == 3 * 9
    holds_in_about_four_of_five(whole)
    holds_in_about_four_of_five(runs)


def test_ensemble_removed_five_times(shared: Shared) -> None:
    tested = replayed(shared("examples/metl-aws"))
    whole, runs = of_all([tested])
    summary = BacktestSummary.of(whole)
    error, plain = summary.error_median, summary.naive_error_median
    assert error is not None
    assert plain is not None
    assert error < plain
    assert sum(trial.covered for trial in runs) >= 0.6 * len(runs)
    # Of the week left at half time, the DAG did not run, or ran in vain, for a day.
    assert any(trial.downtime > 20 * HOUR for trial in whole)


def test_pauses_are_not_part_of_the_truth(generated: dict[str, Path]) -> None:
    tested = replayed(generated["removed"])
    final = recorded(generated["removed"]).ledger
    ends = {run: max(e.completed for e in epochs if e.completed is not None)
            for run, epochs in counted_epochs(final).items()}  # fmt: skip
    for trial in (each for each in tested.predictions if each.key is not None):
        assert trial.key is not None
        wall = (ends[trial.key] - trial.moment).total_seconds()
        assert trial.actual + trial.downtime == wall
    # After a quarter of the time the DAG was absent for one more day.
    assert max(trial.downtime for trial in tested.predictions) > 24 * HOUR


@pytest.mark.parametrize("name", RECORDINGS)
def test_prefix_is_independent_of_later_events(name: str) -> None:
    tested = replayed(FIXTURES / name)
    assert tested.predictions
    for trial in tested.predictions:
        assert trial.actual > 0
        assert 0 <= trial.low <= trial.predicted <= trial.high
