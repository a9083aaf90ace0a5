"""Forecasts of runs as table rows. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from metlmon.stats.estimates import RunForecast
from metlmon.tables import estimate_text
from metlmon.tables.layout import Column, text_column
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import BAD, BOLD, DIM, GOOD, MOVING, NOTE, Line, TextStyle, line

if TYPE_CHECKING:
    from metlmon.stats.backtest import Prediction

BAR: Final = 8
"""Width of a run's progress bar."""

SURENESS_STYLES: Final = {"good": GOOD, "fair": TextStyle(), "rough": NOTE}


NAME_LIMIT: Final = 24


def backtest_columns() -> list[Column[Prediction]]:
    """The columns of estimates made in the past."""
    text = estimate_text.approximate_text

    def name(row: Prediction) -> str:
        return "all" if row.run_name is None else plain(row.run_name, NAME_LIMIT)

    def estimate(row: Prediction) -> str:
        return f"{text(row.predicted)} ({estimate_text.range_text(row.low, row.high)})"

    def naive(row: Prediction) -> str:
        return formatting.UNKNOWN if row.naive_prediction is None else text(row.naive_prediction)

    def percent(error: float | None) -> str:
        return formatting.UNKNOWN if error is None else f"{100 * error:+.0f} %"

    return [
        text_column("way", "WAY", lambda row: formatting.share(row.share, 1.0)),
        text_column("run", "RUN", name),
        text_column("estimate", "ESTIMATE", estimate),
        text_column("truth", "TRUTH", lambda row: text(row.actual)),
        text_column("error", "ERROR", lambda row: percent(row.error), "right"),
        text_column("inside", "INSIDE", lambda row: "yes" if row.covered else "no"),
        text_column("naive", "PLAIN GUESS", naive, drop=1),
        text_column("naive_error", "ITS ERROR", lambda row: percent(row.naive_error), "right", 2),
    ]


def columns(this_year: int | None) -> list[Column[RunForecast]]:
    dash = line((formatting.UNKNOWN, DIM))

    def progress(run: RunForecast, _: int | None) -> Line:
        bar = formatting.progress_bar(run.done, run.total, BAR)
        done = str(run.done).rjust(len(str(run.total)))
        return line((bar, GOOD if not run.epochs_left else MOVING), f" {done}/{run.total}")

    def left(run: RunForecast, _: int | None) -> Line:
        if run.remaining is None:
            style = (
                GOOD
                if not run.epochs_left
                else BAD
                if (run.missing_reason or "").startswith("stopped")
                else DIM
            )
            return line((estimate_text.run_remaining_text(run, this_year), style))
        text = estimate_text.approximate_text(run.remaining.median)
        return line(
            (text, BOLD), f" ({estimate_text.range_text(run.remaining.low, run.remaining.high)})"
        )

    def sure(run: RunForecast, _: int | None) -> Line:
        if run.remaining is None:
            return dash
        text = estimate_text.quality(run.remaining)
        return line((text, SURENESS_STYLES[text]))

    def epoch_time(run: RunForecast, _: int | None) -> Line:
        return line(estimate_text.durations_text(run.durations)) if run.durations else dash

    def epochs_used(run: RunForecast, _: int | None) -> Line:
        return line((str(run.durations.epochs) if run.durations else "0", DIM))

    def now(run: RunForecast, _: int | None) -> Line:
        return (
            line(estimate_text.interval_text(run.epoch_remaining)) if run.epoch_remaining else dash
        )

    def finish(run: RunForecast, _: int | None) -> Line:
        return (
            line(formatting.moment(run.expected_end, this_year))
            if run.expected_end is not None
            else dash
        )

    return [
        Column("run", "RUN", lambda r, _: line(plain(r.run_name, 40)), minimum=5, comfortable=12),
        Column("progress", "DONE", progress, drop=3),
        Column("epochs", "LEFT", lambda run, _: line(str(run.epochs_left)), "right", drop=6),
        Column("each", "CYCLE TIME", epoch_time, drop=4),
        Column("of", "SAMPLES", epochs_used, "right", drop=5),
        Column("now", "THIS EPOCH", now, drop=7),
        Column("left", "REMAINING", left, minimum=10, comfortable=24, maximum=60),
        Column("at", "ETA", finish, "right", drop=2),
        Column("sure", "CONFIDENCE", sure, drop=1),
    ]
