"""Runs that take turns on few slots: their number, order, and the estimated end."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import pytest

from metlmon.live.feed import StatsInput
from metlmon.model.states import Outcome
from metlmon.snapshot.records import Ledger
from metlmon.stats.backtest import BacktestSummary, backtest
from metlmon.stats.estimates import Forecast, make_forecast
from metlmon.stats.estimates import _Estimator as Estimator
from metlmon.stats.slots import QueuedRun, SlotUse, StartOrder, simulate_queue
from tests.conftest import Shared
from tests.generated.slot_limited import SlotLimited, slot_limited
from tests.generated.write import write
from tests.support.event_logs import Event, Log, log_of_events, moment, read_ensemble
from tests.support.records import stats_input
from tests.support.run_histories import recorded

PLAIN = SlotLimited(runs=12, epochs=6, slots=(4,), lost=0.0, gap=3.0)


def written(kind: SlotLimited, seed: int, directory: Path) -> Path:
    write(slot_limited(kind, seed), directory)
    return directory


def use_of(ledger: Ledger) -> SlotUse:
    return SlotUse(ledger, {})


def after(directory: Path, epochs: int) -> StatsInput:
    """The ensemble when so many of its epochs were completed."""
    ends = sorted(
        each.end for each in recorded(directory).ledger.executions if each.final and each.end
    )
    return recorded(directory, ends[epochs - 1])


# --- the future -------------------------------------------------------------------------------


def by_hand(ledger: Ledger, slots: int) -> float:
    """Seconds of the epochs left if slots are used as before: from executions only."""
    assert ledger.as_of is not None
    begin = min(run.began for run in ledger.runs if run.began is not None)
    done = sum(each.final for each in ledger.executions)
    taken = slots * (ledger.as_of - begin).total_seconds()
    left = sum(run.epochs_total - run.epochs_done for run in ledger.runs)
    return left * taken / done / slots


def ensemble_end(forecast: Forecast) -> tuple[float, float, float]:
    assert forecast.remaining is not None, forecast.missing_reason
    return forecast.remaining.low, forecast.remaining.median, forecast.remaining.high


@pytest.mark.parametrize(("time", "done"), [("14:03:38", 4), ("14:30", 222), ("15:03", 472)])
def test_end_agrees_with_the_rate(shared: Shared, time: str, done: int) -> None:
    directory = shared("cases/forecast-of-runs-in-turn/dagdir")
    stats = recorded(directory, datetime.fromisoformat(f"2026-11-28 {time}"))
    forecast = make_forecast(stats)
    assert abs(forecast.epochs_done - done) <= 1
    low, middle, high = (
        stats.ledger.as_of + timedelta(seconds=seconds)
        for seconds in ensemble_end(forecast)
        if stats.ledger.as_of is not None
    )
    # 960 epochs at 7 to 8 a minute; and 15:39 to 16:08 by epochs left × mean hours ÷ slots.
    assert datetime(2026, 11, 28, 15, 25) < middle < datetime(2026, 11, 28, 16, 15)
    assert low < datetime(2026, 11, 28, 16, 0) or done > 400
    assert high > datetime(2026, 11, 28, 15, 50)
    if done > 10:
        assert ensemble_end(forecast)[1] == pytest.approx(by_hand(stats.ledger, 4), rel=0.15)


def test_runs_end_before_the_ensemble(shared: Shared) -> None:
    directory = shared("cases/forecast-of-runs-in-turn/dagdir")
    forecast = make_forecast(recorded(directory, datetime(2026, 11, 28, 14, 30)))
    last = max(run.remaining.median for run in forecast.runs if run.remaining is not None)
    assert ensemble_end(forecast)[1] == pytest.approx(last, rel=0.1)


def test_intervals_hold_when_runs_take_turns(tmp_path: Path) -> None:
    # Thirty ensembles of many sizes are in tests/bench/README.md.
    kind = SlotLimited(24, 31, (3, 2), "submission", 0.5, 0.05, of_runs=0.1, lost=0.0, gap=3)
    directory = written(kind, 17, tmp_path)
    replayed = backtest(recorded(directory), lambda moment: recorded(directory, moment))
    whole = [each for each in replayed.predictions if each.key is None]
    assert len(whole) == 3
    assert all(each.covered for each in whole)
    error = BacktestSummary.of(whole).error_median
    assert error is not None
    assert error < 0.1


def test_runs_throttled_by_dagman_are_counted(tmp_path: Path) -> None:
    # With -maxjobs most runs have no job yet.
    directory = written(replace(PLAIN, max_jobs=4), 1, tmp_path)
    for epochs in (8, 24, 48):
        stats = after(directory, epochs)
        forecast = make_forecast(stats)
        assert forecast.slots in (3, 4)
        assert ensemble_end(forecast)[1] == pytest.approx(by_hand(stats.ledger, 4), rel=0.3)


# --- slots ------------------------------------------------------------------------------------


def test_failed_run_waits_for_no_slot_until_its_dag_is_submitted_again() -> None:
    """Others had the slot in that time, which its cycle lacks once: two tries are left of it."""
    runs, epochs, hour = 4, 10, timedelta(hours=1)
    names = [[f"r{run}-train_epoch{epoch}" for epoch in range(epochs)] for run in range(runs)]
    dag = "".join(f"JOB {name} t.sub\n" for run in names for name in run)
    dag += "".join(f"PARENT {a} CHILD {b}\n" for run in names for a, b in pairwise(run))
    turns = [(run, epoch) for epoch in range(epochs) for run in range(runs) if run or epoch < 6]
    events, now, ready = (
        list[Event](),
        moment("00:01:00"),
        dict.fromkeys(range(runs), moment("00:01:00")),
    )
    for cluster, (run, epoch) in enumerate([*turns, (0, 5), (0, 6)], start=100):
        if cluster == 100 + len(turns):
            now = ready[0] = now + hour
        has_failed = (run, epoch) == (0, 5) and cluster < 100 + len(turns)
        events += [
            (ready[run], partial(Log.submit, job=cluster, node=names[run][epoch])),
            (now, partial(Log.execute, job=cluster)),
            (now + hour, partial(Log.terminate, job=cluster, code=int(has_failed))),
        ]
        now = ready[run] = now + hour + timedelta(seconds=5)
    builder = read_ensemble(dag, log_of_events(events)).builder(live=True)
    estimator = Estimator(stats_input(builder), None)
    assert estimator.slot_use.slots == {0: 1}
    seconds = [cycle.seconds for cycle in estimator.cycles["run.dag:r0"]]
    assert seconds[4] == pytest.approx(3600, abs=60)
    assert seconds[5] == pytest.approx(2 * 3600, abs=60)


@pytest.mark.parametrize(
    ("order", "slots"), [("submission", (2,)), ("furthest first", (3, 2)), ("furthest last", (5,))]
)
def test_slots_and_order_are_inferred(tmp_path: Path, order: str, slots: tuple[int, ...]) -> None:
    kind = replace(PLAIN, order=order, slots=slots, runs=16, epochs=8)
    use = use_of(after(written(kind, 3, tmp_path), 80).ledger)
    assert sorted(use.slots.values()) == sorted(slots)
    if order == "furthest first":
        assert set(use.orders.values()) == {StartOrder.FURTHEST}
    else:
        # The first submitted run has waited longest, with the fewest epochs done.
        assert StartOrder.FURTHEST not in use.orders.values()


def test_as_many_slots_as_runs_are_no_limit(tmp_path: Path) -> None:
    directory = written(replace(PLAIN, runs=4, epochs=20), 2, tmp_path)
    assert make_forecast(after(directory, 40)).slots is None


def test_targets_at_one_site_share_its_slots(tmp_path: Path) -> None:
    ledger = after(written(replace(PLAIN, slots=(2, 2), any_site=True), 4, tmp_path), 40).ledger
    use = use_of(ledger)
    assert list(use.slots.values()) == [4]
    assert use.group("any") is not None


# --- the simulated queue ----------------------------------------------------------------------


@cache
def limited_to(slots: int, order: StartOrder) -> SlotUse:
    use = SlotUse(Ledger("/ens", None, False), {})
    use.slots[0], use.orders[0] = slots, order
    return use


def queued(
    name: str, epochs: int, done: int = 0, executing: bool = False, group: int | None = 0
) -> QueuedRun:
    return QueuedRun(
        key=name, executing=executing, done=done, seconds=[100.0] * epochs, groups=[group] * epochs
    )


def test_furthest_run_first_completes_runs_in_turn_and_submission_order_alternates() -> None:
    runs = [queued("a", 3, executing=True), queued("b", 3), queued("c", 3)]
    waits = simulate_queue(runs, limited_to(1, StartOrder.FURTHEST))
    assert waits == {"a": 0.0, "b": 300.0, "c": 600.0}
    waits = simulate_queue(runs, limited_to(1, StartOrder.SUBMISSION))
    # The last epochs end after 700, 800 and 900 s, of which 300 s are its own.
    assert waits == {"a": 400.0, "b": 500.0, "c": 600.0}


def test_furthest_run_last_starts_the_run_behind() -> None:
    runs = [queued("ahead", 1, done=5), queued("behind", 2)]
    assert simulate_queue(runs, limited_to(1, StartOrder.NEAREST)) == {"ahead": 200.0, "behind": 0}
    # Targets without a limit do not wait.
    runs = [queued("a", 2, executing=True), queued("b", 2, group=None)]
    assert simulate_queue(runs, limited_to(1, StartOrder.SUBMISSION))["b"] == 0.0


def test_slots_are_never_idle_while_a_run_waits() -> None:
    runs = [queued(f"run{n}", 50, executing=n < 7) for n in range(100)]
    waits = simulate_queue(runs, limited_to(7, StartOrder.FURTHEST))
    assert max(waits.values()) + 5000 == pytest.approx(100 * 5000 / 7, rel=0.1)


def test_lost_executions_take_slots_too(tmp_path: Path) -> None:
    directory = written(replace(PLAIN, lost=0.3, epochs=12), 6, tmp_path)
    stats = after(directory, 70)
    assert any(each.outcome is Outcome.EVICTED for each in stats.ledger.executions)
    assert ensemble_end(make_forecast(stats))[1] == pytest.approx(by_hand(stats.ledger, 4), rel=0.2)
