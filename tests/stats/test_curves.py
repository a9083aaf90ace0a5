"""Curves: best and last, trend and divergence, bands over runs and cohorts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from metlmon.config.settings import MetricSettings, Settings
from metlmon.jobfiles.records import Point, Streamed, TrainingOutput
from metlmon.live.feed import JobFiles, StatsInput
from metlmon.model.states import State
from metlmon.snapshot.records import Epoch, Ledger, Run, Status
from metlmon.stats.curves import (
    Course,
    Curves,
    course_of,
    course_text,
    curves,
    curves_summary,
    goal_of,
    metric_names,
    trend_of,
)
from metlmon.text.formatting import metric_format
from tests.support.commands import Captured, run_command
from tests.support.records import blank, read_dagdir, stats_input

ROOT = Path(__file__).resolve().parents[2]
NAN = math.nan


def points(*values: float, start: int = 0) -> tuple[Point, ...]:
    return tuple(Point(start + n, value, 0, "x") for n, value in enumerate(values))


def run(name: str, label: str | None = None, latest: Epoch | None = None) -> Run:
    return blank(Run, key=name, run=name, label=label, state=State.RUNNING, latest=latest)


def basis(
    of: Mapping[str, Mapping[str, tuple[Point, ...]]],
    labels: Mapping[str, str] | None = None,
    settings: Settings | None = None,
) -> StatsInput:
    ledger = Ledger("/nowhere", None, False, tuple(run(n, (labels or {}).get(n)) for n in of))
    trainings = {
        name: TrainingOutput(name, metrics, {}, {}) for name, metrics in of.items() if metrics
    }
    return StatsInput(cast(Status, None), ledger, settings or Settings(), JobFiles(trainings))


def of_losses(**values: tuple[float, ...]) -> Curves:
    return curves(basis({name: {"val_loss": points(*each)} for name, each in values.items()}))


# --- one curve ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "course", "since"),
    [
        ((), Course.NONE, None),
        ((0.9,), Course.EARLY, None),
        ((0.9, 0.5, 0.4, 0.3), Course.IMPROVES, None),
        ((0.9, 0.5, 0.4, 0.41, 0.42), Course.IMPROVES, None),
        ((0.9, 0.5, 0.4, 0.41, 0.4, 0.42), Course.FLAT, 2),
        ((0.9, 0.5, 0.5, 0.5, 0.5), Course.FLAT, 1),
        ((0.9, 0.4, 0.3, 2428.0), Course.DIVERGED, 3),
        ((0.9, 0.4, 0.3, 2428.0, NAN), Course.DIVERGED, 3),
        ((0.9, 0.4, 0.3, 2428.0, 1000.0), Course.DIVERGED, 3),
        ((0.9, 0.4, 0.3, NAN, NAN), Course.NAN, 3),
        ((0.9, 0.4, 0.3, math.inf), Course.NAN, 3),
        ((NAN,), Course.NAN, 0),
        ((NAN, NAN), Course.NAN, 0),
        # A loss that recovers has not diverged.
        ((0.9, 0.4, 0.3, 2428.0, 0.29), Course.IMPROVES, None),
        ((0.9, 0.4, NAN, 0.3), Course.IMPROVES, None),
        ((NAN, 0.9, 0.4), Course.IMPROVES, None),
        # Worse than in the first epoch: once may be chance, twice in a row is not.
        ((1.2, 0.8, 1.25), Course.IMPROVES, None),
        ((1.2, 0.8, 1.1, 1.3), Course.DIVERGED, 2),
        ((1.2, 0.8, 0.9, 1.1), Course.IMPROVES, None),
        # Losses may be negative or 0.
        ((-1.0, -2.0, -3.0), Course.IMPROVES, None),
        ((-1.0, -2.0, -3.0, 50.0), Course.DIVERGED, 3),
        ((0.0, 0.0, 0.0), Course.IMPROVES, None),
    ],
)
def test_course_of_a_loss(values: tuple[float, ...], course: Course, since: int | None) -> None:
    assert course_of(points(*values), "min") == (course, since)


def test_course_of_a_maximised_metric_and_of_one_without_a_goal() -> None:
    assert course_of(points(0.1, 0.7, 0.9), "max") == (Course.IMPROVES, None)
    assert course_of(points(0.5, 0.9, 0.4, 0.2), "max") == (Course.DIVERGED, 2)
    assert course_of(points(0.1, 0.2), None) == (Course.NONE, None)
    assert course_of(points(0.1, NAN), None) == (Course.NAN, 1)


@pytest.mark.parametrize(("total", "epochs"), [(5, 3), (30, 3), (50, 5), (100, 10)])
def test_plateau_needs_three_epochs_or_a_tenth(total: int, epochs: int) -> None:
    before = points(0.9, 0.5, *[0.6] * (epochs - 1))
    assert course_of(before, "min", total) == (Course.IMPROVES, None)
    assert course_of(points(0.9, 0.5, *[0.6] * epochs), "min", total) == (Course.FLAT, 1)


@pytest.mark.parametrize(
    ("values", "total", "text"),
    [
        ((0.9, 0.5, 0.4), 9, "improves"),
        ((0.9, 0.5, 0.4, 0.5), 9, "best 1 epoch ago"),
        ((0.9, 0.5, 0.6, 0.6, 0.6), 9, "plateau since epoch 2"),
        ((0.9, 0.5, 0.4), 3, "best at 3 of 3"),
        ((0.9, 0.5, 0.4, 0.5), 4, "best at 3 of 4"),
        ((0.9, 0.5, 0.6, 0.6, 0.6), 5, "no gain for 3 epochs"),
        ((0.9, 0.5, 0.4, NAN, NAN), 5, "NaN since epoch 4"),
    ],
)
def test_text_of_a_course(values: tuple[float, ...], total: int, text: str) -> None:
    (curve,) = of_losses(run0=values).runs
    course, since = course_of(points(*values), "min", total)
    ended = len(values) == total
    curve = replace(curve, epochs_total=total, ended=ended, course=course, since_epoch=since)
    assert course_text(curve) == text


def test_run_with_epochs_left_has_not_ended() -> None:
    """Its epochs count from that of an earlier DAG, or its files are of an earlier training."""
    (curve,) = of_losses(run0=(0.9, 0.5, 0.4, 0.5)).runs
    assert course_text(replace(curve, epochs_total=3, ended=False)) == "best 1 epoch ago"
    assert course_text(replace(curve, epochs_total=3, ended=True)) == "best at 3 of 4"


def test_values_of_a_column_align_at_the_point() -> None:
    write = metric_format([0.32, 0.2308, None, NAN, 0.25])
    assert [write(each) for each in (0.32, 0.2308, 12.0)] == ["0.3200", "0.2308", "12.0000"]
    assert (write(NAN), write(2428.0)) == ("NaN", "2428     ")
    assert metric_format([273.0, 0.889], 3)(0.889) == "0.889"
    assert metric_format([])(1.0) == "1.000"
    assert metric_format([3e-9])(3e-9) == "3.00e-9"


def test_run_and_overview_have_one_number_format(capsys: Captured) -> None:
    demo = ROOT / "fixtures" / "demo"
    printed = run_command("run", capsys, "run4", demo)[1]
    assert re.findall(r" [+−][\d.]+", printed) == [" −0.423", " +0.404", " +1.436"]
    assert "✗ epoch 5: CUDA out of memory (exit 3, 3 of 3 tries used)" in printed
    printed = run_command("status", capsys, demo)[1]
    values = re.findall(r" (0\.3\d*) ", printed)
    assert values == ["0.3010"] * 2 + ["0.3200"] * 2 + ["0.3570"] * 2


def test_trend_is_the_change_per_epoch_over_three() -> None:
    assert trend_of(points(9.0, 4.0, 3.0, 2.5, 1.0)) == pytest.approx((1.0 - 4.0) / 3)
    assert trend_of(points(9.0, 4.0)) == -5.0
    assert trend_of(points(9.0)) is None
    # An epoch without a value still counts.
    gap = (Point(0, 8.0, 0, "x"), Point(4, 4.0, 0, "x"))
    assert trend_of(gap) == -1.0


def test_best_and_last_of_a_run() -> None:
    (curve,) = of_losses(run0=(0.9, 0.3, 0.3, NAN)).runs
    assert (curve.best.epoch, curve.best.value) == (1, 0.3)
    assert math.isnan(curve.last.value)
    assert curve.odd_epochs == (4,)
    assert course_text(curve) == "NaN since epoch 4"


def test_past_nan_is_reported() -> None:
    (curve,) = of_losses(run0=(0.9, NAN, 0.3)).runs
    assert course_text(curve) == "improves, NaN in epoch 2"


def test_goal_of_a_metric_follows_its_name() -> None:
    metrics = MetricSettings()
    goals = {name: goal_of(name, metrics) for name in
             ("val_loss", "test/pearson_total_score", "val_acc", "mse", "lr-AdamW")}  # fmt: skip
    assert goals == {"val_loss": "min", "test/pearson_total_score": "max", "val_acc": "max",
                     "mse": "min", "lr-AdamW": None}  # fmt: skip
    assert goal_of("score", MetricSettings(primary="score", goal="max")) == "max"


def test_primary_metric_comes_first() -> None:
    of = {"a": {name: points(1.0) for name in ("train_loss", "test_loss", "b", "val_loss")}}
    assert metric_names(basis(of)) == ("val_loss", "test_loss", "train_loss", "b")
    assert curves(basis(of)).metric == "val_loss"
    settings = Settings(metrics=MetricSettings(primary="b"))
    assert curves(basis(of, settings=settings)).metric == "b"
    assert curves(basis({"a": {"x": points(1.0)}})).metric == "x"


# --- all runs ---------------------------------------------------------------------------------


def test_band_has_the_values_of_each_epoch() -> None:
    band = of_losses(a=(1.0, 0.5), b=(2.0, 0.4), c=(3.0, 0.3), d=(4.0,), e=()).band
    assert band.runs == 4
    first, second = band.levels
    quartiles = (first.lower_quartile, first.median, first.upper_quartile)
    assert (first.n, first.minimum, *quartiles, first.maximum) == (4, 1.0, 1.75, 2.5, 3.25, 4.0)
    assert (second.n, second.median) == (3, 0.4)


def test_diverged_run_leaves_the_band() -> None:
    band = of_losses(a=(1.0, 0.5, 0.4), b=(1.0, 0.5, 900.0), c=(1.0, NAN, 0.4)).band
    assert [(level.n, level.excluded, level.maximum) for level in band.levels] == [
        (3, 0, 1.0), (2, 0, 0.5), (2, 1, 0.4)]  # fmt: skip


def test_each_cohort_has_a_band() -> None:
    of = {name: {"val_loss": points(value)} for name, value in
          (("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 9.0))}  # fmt: skip
    found = curves(basis(of, {"a": "mixed", "b": "mixed", "c": "control"}))
    assert [(band.label, band.runs, band.levels[0].median) for band in found.bands] == [
        ("mixed", 2, 1.5), ("control", 1, 3.0), (None, 1, 9.0)]  # fmt: skip
    assert curves(basis(of)).bands == ()


def test_answer_names_what_matters() -> None:
    result = curves_summary(of_losses(a=(0.9, 0.3), b=(0.9, 0.2), c=(0.9, 0.4, 99.0)), live=True)
    assert result.runs == "2 of 3 runs improve"
    assert result.best == "best 0.2 b epoch 2"
    assert result.diverged == "c diverged in epoch 3"
    assert not result.all_improve
    one = curves_summary(of_losses(a=(0.9,)), live=True)
    assert one.runs == "1 run with one epoch: too early to say"
    assert curves_summary(of_losses(a=(0.9, 0.1)), live=True).runs == "1 of 1 run improves"
    assert curves_summary(of_losses(a=(0.9, 0.1)), live=False).all_improve
    begun = curves_summary(of_losses(a=(0.9, 0.1), b=(0.9,)), live=True)
    assert begun.runs == "1 of 2 runs improve, 1 too early to say"
    assert begun.all_improve
    many = curves_summary(of_losses(**{f"r{n}": (0.9, 0.4, 99.0) for n in range(4)}), live=False)
    assert many.diverged == "4 runs diverged"
    twins = ROOT / "fixtures" / "shared-log"
    result = curves_summary(curves(stats_input(read_dagdir(twins), files_in=twins)), live=True)
    assert result.best == "best 0.376 run0 (a.dag) epoch 4"


def test_running_epoch_is_reported_with_its_run() -> None:
    latest = blank(Epoch, epoch=3, node="n", cluster=78, proc=0, state=State.RUNNING)
    streamed = Streamed(0.5, 5, 10, 1.0, 5.0, 3, 0.4)
    ledger = Ledger("/nowhere", None, True, (run("a", latest=latest), run("b")))
    files = JobFiles({}, {(78, 0): streamed})
    found = curves(StatsInput(cast(Status, None), ledger, Settings(), files))
    assert [(c.running_epoch, c.streamed) for c in found.runs] == [(3, streamed), (None, None)]


@pytest.mark.parametrize(("name", "lost"), [("trainer", {"run4": 3}), ("demo", {"run4": 2})])
def test_only_the_diverged_run_is_reported(name: str, lost: dict[str, int]) -> None:
    """fixtures/README.md: run4 diverges in its fourth epoch, or from its third on; node numbers
    start at 0."""
    path = ROOT / "fixtures" / name
    found = curves(stats_input(read_dagdir(path), files_in=path))
    assert {c.run: c.since_epoch for c in found.runs if c.diverged} == lost
    others = [c for c in found.runs if not c.diverged]
    assert {c.course for c in others} == {Course.IMPROVES}
    assert len(others) == 5
