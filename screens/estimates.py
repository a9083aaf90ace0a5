"""The Estimates screen: remaining time of runs and ensemble, and reliability."""

from __future__ import annotations

from typing import ClassVar

from metlmon.snapshot.records import Snapshot
from metlmon.snapshot.row_text import run_labels
from metlmon.stats.estimates import Forecast, RunForecast, make_forecast
from metlmon.tables import estimates as estimates_table
from metlmon.tables.estimates import SURENESS_STYLES, columns
from metlmon.tables.layout import empty_text, searched
from metlmon.text import formatting
from metlmon.text.formatting import clip_middle, plain
from metlmon.text.spans import (
    BOLD,
    DIM,
    GOOD,
    NOTE,
    Line,
    crop,
    first_that_fits,
    join,
    join_fitting,
    justify,
    line,
    width,
    wrap,
)
from screens.base.screens import ListScreen


class EstimatesScreen(ListScreen):
    """The remaining time of each run and of the ensemble."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "below")
    ORDERS = (("run", None), "left", "epochs", "each")
    DETAIL_LINES = 2

    def show(self, update: Snapshot) -> None:
        # Progress lines give the best estimate of the current epoch.
        self.context.stats.watch_job_files()
        forecast = self.context.stats.value(make_forecast)
        room = self.app.size.width
        self.show_head(head(forecast, room))
        hint = "Runs come from nodes that are called run-train_epochN."
        empty = empty_text("No run to estimate.", hint)
        if forecast is None or not update.is_complete:
            empty = empty_text("", "Estimates come as soon as the logs are read.")
        runs = () if forecast is None else forecast.runs
        self.fill(
            columns(runs, self.this_year),
            runs,
            lambda run: run.key,
            _text,
            empty=empty,
            details=lambda run: source_lines(run, room),
        )


def head(forecast: Forecast | None, room: int) -> list[Line]:
    """Render the completion time, and what the estimate is based on."""
    title = line(("Estimates", BOLD))
    if forecast is None:
        return [line(" ") + title + line("   ", ("reading the history of the runs", DIM)), ()]
    style = BOLD if forecast.remaining is not None else NOTE
    if forecast.completed_at is not None:
        style = GOOD
    remaining = line((estimates_table.remaining_text(forecast), style))
    rate = line((estimates_table.rate_text(forecast.rate, forecast.item), DIM))
    gap = line("   ")
    brief = line((estimates_table.remaining_text(forecast, brief=True), style))
    full = join((title, remaining), gap)
    first = first_that_fits((full, join((title, brief), gap)), room - 2)
    if width(full) + width(rate) + 3 <= room - 2:
        first = justify(full, rate, room - 2)
    lines = (first, _second_line(forecast, room - 2))
    return [*(line(" ") + crop(text, room - 2) for text in lines), ()]


def _second_line(forecast: Forecast, room: int) -> Line:
    done = estimates_table.epochs_text(forecast)
    if forecast.remaining is None:
        return line((done, DIM))
    slowest = run_labels(forecast.runs).get(forecast.slowest_run or "", "")
    sureness = forecast.remaining.quality
    if slots := estimates_table.slots_text(forecast):
        done = f"{done}, {slots}"
    parts = [
        line((done, DIM)),
        line((f"critical path: {clip_middle(slowest, 24)}", DIM)) if slowest else (),
        line((f"confidence: {sureness}", SURENESS_STYLES[sureness])),
        line(("if the DAG keeps running", DIM)),
        line(("80 % interval", DIM)),
    ]
    return join_fitting(parts, line((" · ", DIM)), room)


def source_lines(run: RunForecast | None, room: int) -> list[Line]:
    """Render the sources of the estimates of a run and its current epoch."""
    if run is None:
        return []
    parts = []
    if run.epoch_remaining is not None:
        number = formatting.epoch_text(run.epoch)
        which = f"epoch {number}" if number else "the epoch now"
        remaining = estimates_table.interval_text(run.epoch_remaining)
        parts.append(f"{which}: {remaining} more, from {run.epoch_remaining.source}.")
    if run.remaining is not None:
        left = formatting.count(run.epochs_left, "epoch")
        parts.append(f"{left} left: from {run.remaining.source}.")
    elif run.epochs_left:
        parts.append(f"{run.missing_reason}.")
    text = plain(f"{clip_middle(run.run, 24)}  {' '.join(parts)}", 600)
    return wrap(text, room - 2, DIM, 1, EstimatesScreen.DETAIL_LINES) if parts else []


def _text(run: RunForecast) -> str:
    end = formatting.moment(run.expected_end)
    return searched(run.run, run.key, run.dag, run.state.value, run.missing_reason, end)
