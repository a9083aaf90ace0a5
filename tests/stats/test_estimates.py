"""Estimates: their properties, and their inputs computed independently."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.jobfiles.records import Streamed
from metlmon.live.feed import JobFiles, StatsInput
from metlmon.model.clock import Clock
from metlmon.model.states import DagState, State
from metlmon.snapshot.records import Ledger
from metlmon.stats.estimates import Forecast, Interval, Rate, make_forecast
from metlmon.stats.simulation import KaplanMeier, Lifetime
from metlmon.tables import estimates as estimates_table
from metlmon.text.spans import to_ascii
from tests.support.run_histories import NOON, Past, basis, status

HOUR, DAY = 3600.0, 86400.0

LENGTHS = st.floats(min_value=600, max_value=3 * DAY)
PASTS = st.builds(
    Past,
    cycles=st.lists(LENGTHS, max_size=10).map(tuple),
    age=st.floats(min_value=0, max_value=3 * DAY),
    running=st.booleans(),
    target=st.sampled_from([None, "delta", "expanse"]),
)
ENSEMBLES = st.dictionaries(
    st.sampled_from(["run0", "run1", "run2", "run3"]), PASTS, min_size=1, max_size=4
)


def output_of(report_of: Forecast) -> Interval:
    assert report_of.remaining is not None, report_of.missing_reason
    return report_of.remaining


# --- durations ---------------------------------------------------------------------------------


def test_mean_without_censored_samples() -> None:
    curve = KaplanMeier.fit([Lifetime(10), Lifetime(20), Lifetime(60)])
    assert curve.mean == pytest.approx(30)
    assert [curve.survival(t) for t in (0, 10, 30, 60)] == pytest.approx([1, 2 / 3, 1 / 3, 0])


def test_kaplan_and_meier_by_hand() -> None:
    # At 20 one of the three left ends; the one censored at 15 was at risk before.
    curve = KaplanMeier.fit(
        [Lifetime(10), Lifetime(15, ended=False), Lifetime(20), Lifetime(30), Lifetime(40)]
    )
    assert curve is not None
    after = [4 / 5, 4 / 5 * 2 / 3, 4 / 5 * 1 / 3, 0]
    assert curve.survivals == pytest.approx(after)
    assert curve.conditional_quantile(0.5, 15) == 15


def test_longest_censored_sample_lasts_on() -> None:
    curve = KaplanMeier.fit([Lifetime(100), Lifetime(110), Lifetime(90)])
    assert 0 < curve.conditional_quantile(0.5, 150) < curve.conditional_quantile(0.5, 1000)


def test_no_mean_without_an_end() -> None:
    assert KaplanMeier.fit([Lifetime(5, ended=False)]) is None
    assert KaplanMeier.fit([]) is None


# --- the ensemble ------------------------------------------------------------------------------


@given(ENSEMBLES, st.sampled_from(list(DagState)), st.booleans())
@settings(max_examples=25, deadline=None)
def test_estimates_are_never_negative(runs: dict[str, Past], dag: DagState, live: bool) -> None:
    result = make_forecast(basis(runs, dag, live))
    for each in (result, *result.runs):
        answers = [each.remaining, each.completed_at, each.missing_reason]
        assert sum(answer is not None for answer in answers) == 1
    for span in (
        result.remaining,
        *(run.remaining for run in result.runs),
        *(run.epoch_remaining for run in result.runs),
    ):
        assert span is None or 0 <= span.low <= span.median <= span.high
    assert estimates_table.remaining_text(result)


def test_equal_epochs_are_multiplied() -> None:
    result = make_forecast(basis({"run0": Past((6 * HOUR,) * 20, 3 * HOUR, total=25, wait=0)}))
    # Half an epoch and four whole ones.
    assert output_of(result).median == pytest.approx(27 * HOUR, rel=0.1)
    assert output_of(result).low < 27 * HOUR < output_of(result).high


def test_more_epochs_narrow_the_interval() -> None:
    def width(epochs: int) -> float:
        span = output_of(
            make_forecast(basis({"run0": Past((6 * HOUR,) * epochs, total=epochs + 10)}))
        )
        return (span.high - span.low) / span.median

    widths = [width(n) for n in (2, 5, 10, 20, 40)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.7 * widths[0]


@given(ENSEMBLES, st.floats(min_value=0, max_value=10 * DAY))
@settings(max_examples=15, deadline=None)
def test_running_epoch_never_shortens_the_estimate(runs: dict[str, Past], age: float) -> None:
    runs = {name: replace(past, total=12) for name, past in runs.items()}
    runs["run0"] = Past((6 * HOUR, 7 * HOUR), 0.0, total=12)
    without = make_forecast(basis(runs))
    further = make_forecast(basis({**runs, "late": Past((), age, running=False, total=12)}))
    # A waiting run takes no slot; whether runs wait is inferred from all of them.
    assume(without.slots is None and further.slots is None)
    before = {run.key: run.remaining for run in without.runs}
    for run in further.runs:
        earlier = before.get(run.key)
        if run.remaining is not None and earlier is not None:
            assert run.remaining.low >= earlier.low * 0.999
            assert run.remaining.median >= earlier.median * 0.999
            assert run.remaining.high >= earlier.high * 0.999
    assert output_of(further).high >= output_of(without).high * 0.999


def test_outage_of_days_is_not_extrapolated() -> None:
    calm = make_forecast(basis({"run0": Past((6 * HOUR,) * 8, total=18)}))
    hurt = make_forecast(basis({"run0": Past((*(6 * HOUR,) * 7, 20 * DAY), total=18)}))
    assert output_of(calm).median < output_of(hurt).median < 2.5 * output_of(calm).median


def test_ensemble_ends_with_its_slowest_run() -> None:
    runs = {"fast": Past((HOUR,) * 8), "slow": Past((9 * HOUR,) * 4)}
    result = make_forecast(basis(runs))
    spans = {run.key: run.remaining for run in result.runs}
    assert result.slowest_run == "slow"
    assert output_of(result).median >= spans["slow"].median


def test_estimated_end_after_a_clock_change() -> None:
    ensemble = basis({"run0": Past(cycles=[DAY] * 3)})
    # On 8 March 2026 clocks in Chicago go forward by an hour.
    clock = Clock(ZoneInfo("America/Chicago"))
    ledger = replace(ensemble.ledger, seconds_between=clock.seconds)
    forecast = make_forecast(replace(ensemble, ledger=ledger))
    remaining = timedelta(seconds=round(output_of(forecast).median))
    assert remaining > timedelta(days=6)
    assert forecast.expected_end == NOON + remaining + timedelta(hours=1)
    assert forecast.runs[0].expected_end == forecast.expected_end
    a_day, end = Interval(DAY, DAY, DAY, 1, ""), NOON + timedelta(hours=25)
    text = estimates_table.remaining_text(replace(forecast, remaining=a_day, expected_end=end))
    assert text.startswith(f"ETA {end.day} Mar 13:00 (13:00–13:00)")


def test_slower_target_has_a_later_end() -> None:
    runs = {
        "here": Past((4 * HOUR,) * 6, running=False, target="delta"),
        "there": Past((12 * HOUR,) * 6, running=False, target="expanse"),
        "soon": Past((8 * HOUR,) * 6, running=False, target="expanse"),
        "late": Past((8 * HOUR,) * 6, running=False, target="delta"),
    }
    middles = {
        run.key: run.remaining.median for run in make_forecast(basis(runs)).runs if run.remaining
    }
    assert middles["soon"] > middles["late"]


def test_one_epoch_gives_a_wide_interval() -> None:
    """Its last epoch runs, and one has ended: how much epochs vary is unknown."""
    span = output_of(make_forecast(basis({"run0": Past((HOUR,), 600.0, total=2)})))
    assert span.high > 2 * span.low
    many = output_of(make_forecast(basis({"run0": Past((HOUR,) * 5, 600.0, total=6)})))
    assert many.high < 1.5 * many.low


# --- no estimate ------------------------------------------------------------------------------


def test_no_estimate_before_the_first_epoch() -> None:
    result = make_forecast(basis({"run0": Past((), HOUR)}))
    assert result.missing_reason == "unknown: no epoch is done yet"
    assert result.runs[0].missing_reason == result.missing_reason


def test_held_run_is_left_out() -> None:
    runs = {"run1": Past((HOUR,) * 3), "run4": Past((HOUR,) * 3, state=State.HELD)}
    result = make_forecast(basis(runs))
    assert result.excluded == (("run4", "is held"),)
    assert estimates_table.remaining_text(result).endswith(" · excludes run4 (held)")
    assert result.runs[1].missing_reason == "stopped: held"


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ((State.FAILED, State.FAILED), "stopped: all 2 runs failed"),
        ((State.REMOVED, State.FUTILE), "stopped: all 2 runs: 1 removed, 1 futile"),
    ],
)
def test_stopped_runs_are_counted_by_reason(states: tuple[State, ...], why: str) -> None:
    runs = {f"run{n}": Past((HOUR,) * 3, state=state) for n, state in enumerate(states)}
    assert make_forecast(basis(runs)).missing_reason == why


@pytest.mark.parametrize(
    ("dag", "why"),
    [
        (DagState.NOT_SUBMITTED, "its DAG is not submitted"),
        (DagState.REMOVED, "stopped: its DAG was removed"),
        (DagState.FAILED, "stopped: its DAG failed"),
    ],
)
def test_run_without_a_running_dag_is_left_out(dag: DagState, why: str) -> None:
    result = make_forecast(basis({"run0": Past((HOUR,) * 3)}, dag))
    assert result.missing_reason == why
    assert result.remaining is None


def test_finished_ensemble_has_its_end() -> None:
    result = make_forecast(
        basis({"run0": Past((HOUR,) * 4, total=4), "run1": Past((HOUR,), total=1)})
    )
    assert result.completed_at == NOON
    assert estimates_table.remaining_text(result) == "done since 2 Mar 12:00"
    assert result.rate is None


def test_ensemble_without_runs() -> None:
    ledger = Ledger("/ens", None, False)
    result = make_forecast(StatsInput(status(ledger), ledger))
    assert result.remaining is result.completed_at is None
    assert result.missing_reason == "no training run, so no estimate"


# --- the running epoch -------------------------------------------------------------------------


def of_epoch(report_of: Forecast) -> Interval:
    span = report_of.runs[0].epoch_remaining
    assert span is not None
    return span


def test_elapsed_time_is_subtracted() -> None:
    young = of_epoch(make_forecast(basis({"run0": Past((6 * HOUR,) * 9, HOUR, wait=0)})))
    old = of_epoch(make_forecast(basis({"run0": Past((6 * HOUR,) * 9, 5 * HOUR, wait=0)})))
    assert young.median == pytest.approx(5 * HOUR, rel=0.02)
    assert old.median == pytest.approx(HOUR, rel=0.02)
    assert old.source == "9 executions on this site and GPU"


def test_progress_line_overrides_the_mean() -> None:
    made = basis({"run0": Past((6 * HOUR,) * 9, HOUR)})
    job = next(entry.job for entry in made.ledger.executions if entry.end is None)
    streamed = Streamed(0.5, 50, 100, 1.0, 1800.0, 9, None)
    result = of_epoch(make_forecast(replace(made, job_files=JobFiles({}, {job: streamed}))))
    assert result.median == pytest.approx(1800, rel=0.15)
    assert result.source == "its progress line"
    silent = JobFiles({}, {job: replace(streamed, seconds_left=None)})
    half = of_epoch(make_forecast(replace(made, job_files=silent)))
    assert half.median == pytest.approx(HOUR - 60, rel=0.15)


def test_unknown_machine_uses_the_mean_of_all() -> None:
    made = basis({"run0": Past((6 * HOUR,) * 9, HOUR)})
    moved = [
        replace(entry, site="anvil", gpu="NVIDIA H100") if entry.end is None else entry
        for entry in made.ledger.executions
    ]
    ledger = replace(made.ledger, executions=tuple(moved))
    assert of_epoch(make_forecast(replace(made, ledger=ledger))).source == "9 executions of its run"


# --- rate, words -------------------------------------------------------------------------------


def test_epochs_per_day_are_those_of_the_last_week() -> None:
    result = make_forecast(basis({"run0": Past((*(2 * HOUR,) * 40, *(DAY,) * 7), total=60)}))
    assert result.rate == Rate(8, 7 * DAY) or result.rate == Rate(7, 7 * DAY)


def test_rate_excludes_later_epochs() -> None:
    # DAGMan's files can be ahead of a cut log: here by half of the story.
    now = basis({"run0": Past(cycles=(DAY,) * 8)})
    then = NOON - timedelta(days=4)
    ahead = replace(now, ledger=replace(now.ledger, as_of=then))
    result = make_forecast(ahead)
    assert result.rate.epochs in (4, 5)


def test_texts_of_times() -> None:
    assert estimates_table.range_text(4 * DAY, 9 * DAY) == "4–9d"
    assert to_ascii(estimates_table.range_text(20 * HOUR, 3 * DAY)) == "20h-3d"
    assert estimates_table.approximate_text(36 * HOUR) == "1d12h"
    assert estimates_table.rate_text(Rate(34, 2 * DAY)) == "17 epochs/day"
    assert estimates_table.rate_text(Rate(12, 5 * HOUR)) == "12 epochs in 5h"
    assert Interval(1, 2, 9, 40, "").quality == "rough"
    assert Interval(5, 6, 8, 40, "").quality == "good"


@given(st.floats(min_value=0, max_value=1e9), st.floats(min_value=0, max_value=1e9))
def test_ascii_texts_are_ascii(low: float, more: float) -> None:
    assert to_ascii(estimates_table.range_text(low, low + more)).isascii()


def test_estimate_of_a_copy_is_as_of_its_end() -> None:
    result = make_forecast(basis({"run0": Past((6 * HOUR,) * 9, HOUR)}, live=False))
    assert result.expected_end == NOON + timedelta(seconds=round(output_of(result).median))
    assert estimates_table.remaining_text(result).endswith(" left")
