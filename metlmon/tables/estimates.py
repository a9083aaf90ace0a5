"""Forecasts: texts, and runs and past predictions as table rows. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from metlmon.stats.estimates import EpochDurations, Forecast, Interval, Rate, RunForecast
from metlmon.tables.layout import UNKNOWN_CELL, Column, Kind, dag_columns, name_column
from metlmon.text.formatting import (
    DAY,
    HOUR,
    MINUTE,
    UNKNOWN,
    at_least,
    clip_middle,
    count,
    duration,
    moment,
    number,
    plain,
    progress_bar,
    year_of,
)
from metlmon.text.spans import BAD, BOLD, DIM, GOOD, MOVING, NOTE, Line, TextStyle, line

if TYPE_CHECKING:
    from metlmon.stats.backtest import Prediction

UNITS: Final = ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"))


def _in_unit(seconds: float) -> tuple[str, str]:
    """Amount and unit; below two of the larger unit, with both units: 1d12h is more than 1 d."""
    for unit, name in UNITS:
        if seconds >= 1.95 * unit:
            return number(round(seconds / unit)), name
        if seconds >= unit:
            return duration(seconds), ""
    return number(max(0, round(seconds))), "s"


def approximate_text(seconds: float) -> str:
    """``6d``, ``1d12h``, ``50m``."""
    amount, unit = _in_unit(seconds)
    return f"{amount}{unit}"


def range_text(low: float, high: float) -> str:
    """``4–9d``, ``20h–3d``."""
    (first, unit), (second, other) = _in_unit(low), _in_unit(high)
    if (first, unit) == (second, other):
        return approximate_text(high)
    if unit == other and unit:
        return f"{first}–{approximate_text(high)}"
    return f"{approximate_text(low)}–{approximate_text(high)}"


def interval_text(value: Interval | None) -> str:
    """``6d (4–9d)``."""
    if value is None:
        return ""
    return _with_interval(approximate_text(value.median), range_text(value.low, value.high))


def _with_interval(middle: str, ends: str) -> str:
    """``6d (4–9d)``; only ``6d`` if both ends have the same text."""
    return middle if middle == ends else f"{middle} ({ends})"


def rate_text(value: Rate | None, item: str = "epoch") -> str:
    """``17 epochs/day``; for less than a day ``12 epochs in 5h``; "" without epochs."""
    if value is None or not value.epochs:
        return ""
    if value.seconds < DAY:
        return f"{count(value.epochs, item)} in {approximate_text(value.seconds)}"
    per_day = value.per_day
    per_day_text = f"{per_day:.1f}" if per_day < 9.95 else number(round(per_day))
    return f"{per_day_text} {item}s/day"


def durations_text(value: EpochDurations | None) -> str:
    """``6h (5–18h)``: the median and the quartiles of the epoch durations."""
    if value is None:
        return ""
    text = approximate_text(value.median)
    if value.lower_quartile is None or value.upper_quartile is None:
        return text
    return _with_interval(text, range_text(value.lower_quartile, value.upper_quartile))


def epochs_text(forecast: Forecast) -> str:
    """``14 of 30 epochs done, 16 skipped``; empty without epochs."""
    if not forecast.epochs_total:
        return ""
    skipped = forecast.epochs_skipped
    done = f"{at_least(number(forecast.epochs_done), forecast.epochs_unknown > 0)} of "
    done += f"{count(forecast.epochs_total, forecast.item)} done"
    return done + (f", {number(skipped)} skipped" if skipped else "")


def remaining_text(forecast: Forecast, brief: bool = False) -> str:
    """``ETA 23 Nov (20–28 Nov) · 9d left · excludes run4 (held)``, or why it is unknown."""
    year = year_of(forecast.as_of)
    if forecast.completed_at is not None:
        return f"done since {moment(forecast.completed_at, year)}"
    if forecast.remaining is None:
        why = plain(forecast.missing_reason or "")
        return f"ETA {why}" if why.startswith("unknown") else why
    end = end_text(forecast.as_of, forecast.remaining, forecast.expected_end)
    if not forecast.excluded:
        return end
    if len(forecast.excluded) > 1 or brief:
        return f"{end} · excludes {count(len(forecast.excluded), 'run')}"
    name, why = forecast.excluded[0]
    why = why.removeprefix("is ").removeprefix("was ")
    return f"{end} · excludes {clip_middle(name, 24)} ({why})"


def end_text(as_of: datetime | None, remaining: Interval, end: datetime | None = None) -> str:
    """``ETA 23 Nov (20–28 Nov) · 9d left``; ``end``: as in :func:`eta_text`."""
    left = f"{approximate_text(remaining.median)} left"
    return left if as_of is None else f"ETA {eta_text(as_of, remaining, end)} · {left}"


def slots_text(forecast: Forecast) -> str:
    """``4 epochs at a time``; "" if runs do not wait for each other."""
    slots = forecast.slots
    return "" if slots is None else f"{count(slots, forecast.item)} at a time"


def eta_text(as_of: datetime, remaining: Interval, end: datetime | None = None) -> str:
    """``23 Nov (20–28 Nov)``; within two days ``14 Nov 17:12 (16:40–18:05)``.

    ``end``: the expected one, before which the clock may be changed.
    """
    median = timedelta(seconds=round(remaining.median))
    try:
        middle = end or as_of + median
        low = middle - median + timedelta(seconds=round(remaining.low))
        high = middle - median + timedelta(seconds=round(remaining.high))
    except OverflowError:
        return UNKNOWN
    if remaining.median >= 2 * DAY:
        first, last = _date_text(low, as_of.year), _date_text(high, as_of.year)
        if (low.year, low.month) == (high.year, high.month):
            first = str(low.day)
        return f"{_date_text(middle, as_of.year)} ({first}–{last})"
    if low.date() == middle.date() == high.date():
        return f"{moment(middle, as_of.year)} ({low:%H:%M}–{high:%H:%M})"
    ends = f"{moment(low, as_of.year)}–{moment(high, as_of.year)}"
    return f"{moment(middle, as_of.year)} ({ends})"


def _date_text(when: datetime, this_year: int | None) -> str:
    """``23 Nov``; with the year if it is not the current one."""
    return f"{when.day} {when:%b}" + ("" if when.year == this_year else f" {when.year}")


def run_remaining_text(run: RunForecast, this_year: int | None = None) -> str:
    """``6 d (4–9 d)`` for a run, the date of its end, or why there is no estimate."""
    if not run.epochs_left:
        ended = "" if run.completed_at is None else f" {moment(run.completed_at, this_year)}"
        return f"{'stopped' if run.stopped else 'done'}{ended}"
    return interval_text(run.remaining) if run.remaining is not None else run.missing_reason or ""


def run_end_text(run: RunForecast, this_year: int | None) -> str:
    """``14 Nov 17:12``; beyond two days only ``23 Nov``, "" without an estimate."""
    if run.expected_end is None or run.remaining is None:
        return ""
    write = moment if run.remaining.median < 2 * DAY else _date_text
    return write(run.expected_end, this_year)


# --- tables -----------------------------------------------------------------------------------

BAR: Final = 8
"""Width of a run's progress bar."""

SURENESS_STYLES: Final = {"good": GOOD, "fair": TextStyle(), "rough": NOTE}

NAME_LIMIT: Final = 24


def backtest_columns() -> list[Column[Prediction]]:
    """The columns of estimates made in the past."""

    def percent(error: float) -> str:
        return f"{100 * error:+.0f} %"

    return [
        Column("way", lambda row: row.share, Kind.SHARE, align="left"),
        name_column("run", lambda row: clip_middle(row.run or "all", NAME_LIMIT)),
        Column(
            "estimate",
            lambda row: row.predicted,
            Kind.DURATION,
            align="left",
            cell=lambda row, _: line(
                f"{approximate_text(row.predicted)} ({range_text(row.low, row.high)})"
            ),
        ),
        Column(
            "truth", lambda row: row.actual, Kind.DURATION, align="left", write=approximate_text
        ),
        Column("error", lambda row: row.error, Kind.SHARE, write=percent),
        Column("inside", lambda row: "yes" if row.covered else "no"),
        Column(
            "naive",
            lambda row: row.naive_prediction,
            Kind.DURATION,
            title="PLAIN GUESS",
            align="left",
            drop=1,
            write=approximate_text,
        ),
        Column(
            "naive_error",
            lambda row: row.naive_error,
            Kind.SHARE,
            title="ITS ERROR",
            drop=2,
            write=percent,
        ),
    ]


def columns(runs: Sequence[RunForecast], this_year: int | None) -> list[Column[RunForecast]]:
    """The columns of forecasts of these runs."""

    def progress(run: RunForecast, _: int | None) -> Line:
        bar = progress_bar(run.epochs_done, run.epochs_total, BAR)
        done = str(run.epochs_done).rjust(len(str(run.epochs_total)))
        return line((bar, GOOD if not run.epochs_left else MOVING), f" {done}/{run.epochs_total}")

    def left(run: RunForecast, _: int | None) -> Line:
        if run.remaining is not None:
            middle, ends = run.remaining.median, (run.remaining.low, run.remaining.high)
            return line((approximate_text(middle), BOLD), f" ({range_text(*ends)})")
        stopped = (run.missing_reason or "").startswith("stopped")
        style = GOOD if not run.epochs_left else BAD if stopped else DIM
        return line((run_remaining_text(run, this_year), style))

    return [
        name_column("run", lambda run: clip_middle(run.run, 40), minimum=5, comfortable=12),
        *dag_columns(runs, lambda run: run.dag),
        Column(
            "progress",
            lambda run: run.epochs_done / max(1, run.epochs_total),
            Kind.SHARE,
            title="DONE",
            doc="epochs done, of all",
            align="left",
            drop=3,
            cell=progress,
        ),
        Column(
            "epochs",
            lambda run: run.epochs_left,
            Kind.COUNT,
            title="LEFT",
            doc="epochs left",
            drop=6,
        ),
        Column(
            "each",
            lambda run: run.durations.median if run.durations else None,
            Kind.DURATION,
            title="CYCLE TIME",
            doc="median of an epoch with its wait, and the quartiles",
            align="left",
            drop=4,
            cell=lambda run, _: line(durations_text(run.durations)) or UNKNOWN_CELL,
        ),
        Column(
            "of",
            lambda run: run.durations.epochs if run.durations else 0,
            Kind.COUNT,
            title="SAMPLES",
            doc="epochs from which the cycle time is known",
            drop=5,
            style=DIM,
        ),
        Column(
            "now",
            lambda run: run.epoch_remaining.median if run.epoch_remaining else None,
            Kind.DURATION,
            title="THIS EPOCH",
            doc="time left of the epoch that runs",
            align="left",
            drop=7,
            cell=lambda run, _: line(interval_text(run.epoch_remaining)) or UNKNOWN_CELL,
        ),
        Column(
            "left",
            lambda run: run.remaining.median if run.remaining else None,
            Kind.DURATION,
            title="REMAINING",
            doc="time left of the run, with the interval of 80 %",
            align="left",
            cell=left,
            minimum=10,
            comfortable=24,
            maximum=60,
        ),
        Column(
            "at",
            lambda run: run.expected_end,
            Kind.TIME,
            title="ETA",
            doc="when the run ends",
            drop=2,
            cell=lambda run, _: line(run_end_text(run, this_year)) or UNKNOWN_CELL,
        ),
    ]
