"""``metlmon estimate``: when each run and the whole will be done, how surely."""

from __future__ import annotations

import argparse
from copy import copy
from datetime import datetime

from msgspec import UNSET, UnsetType

from metlmon.cli.exit_codes import Exit
from metlmon.cli.outputs import EnsembleOutput, print_record
from metlmon.cli.reading import open_reader, stats_input
from metlmon.cli.text_output import TextOutput
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import StatsInput
from metlmon.stats.backtest import Backtest, backtest
from metlmon.stats.estimates import Forecast, make_forecast
from metlmon.tables import estimates as estimates_table
from metlmon.tables.estimates import backtest_columns, columns
from metlmon.text.formatting import moment, year_of
from metlmon.text.spans import BOLD, DIM, line


class EstimateOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon estimate --json``; ``backtest`` instead of ``estimate`` with ``--backtest``."""

    estimate: Forecast | UnsetType = UNSET
    backtest: Backtest | UnsetType = UNSET


def estimate(options: argparse.Namespace) -> int:
    """``metlmon estimate``, ``metlmon estimate --backtest``."""
    reader = open_reader(options)
    if options.backtest:
        backtested = _backtest(reader, options)
        if options.json:
            print_record(EstimateOutput, reader.snapshot_builder(), backtest=backtested)
        else:
            _print_backtest(backtested)
        return Exit.OK
    forecast = make_forecast(stats_input(reader))
    if options.json:
        print_record(EstimateOutput, reader.snapshot_builder(), estimate=forecast)
    else:
        _print(forecast)
    return Exit.OK


def _backtest(reader: DagdirReader, options: argparse.Namespace) -> Backtest:
    def then(moment: datetime) -> StatsInput:
        earlier = copy(options)
        # As the logs have it, in their own time: no zone is to be taken off it again.
        earlier.as_of, earlier.live = moment.replace(tzinfo=None).isoformat(), None
        return stats_input(open_reader(earlier))

    return backtest(stats_input(reader), then)


# --- tables -------------------------------------------------------------------------------


def _print(forecast: Forecast) -> None:
    out = TextOutput()
    out.print(line((first_line(forecast), BOLD)))
    if not forecast.runs:
        return
    out.print()
    out.table(columns(year_of(forecast.as_of)), forecast.runs)
    if forecast.remaining is not None:
        out.print()
        out.print(
            line(
                (
                    "80 % interval, if the DAG keeps running: time in which it was removed and "
                    "not yet submitted again is neither in the history nor in the estimate. "
                    "Epochs/day: mean of the last week, with all interruptions.",
                    DIM,
                )
            )
        )


def first_line(forecast: Forecast) -> str:
    """``42 of 150 epochs done; ETA 20 Nov (18–23 Nov) · 6d left; 4.6 epochs/day``."""
    done = estimates_table.epochs_text(forecast)
    done += (
        f" by {moment(forecast.as_of)}" if forecast.as_of is not None and not forecast.live else ""
    )
    parts = [
        done,
        estimates_table.remaining_text(forecast),
        estimates_table.rate_text(forecast.rate, forecast.item),
        estimates_table.slots_text(forecast),
    ]
    return "; ".join(part for part in parts if part)


def _print_backtest(backtested: Backtest) -> None:
    out = TextOutput()
    if not backtested.predictions:
        why = (
            "fewer than two epochs were completed"
            if backtested.epochs < 2
            else "no run was active then"
        )
        out.print(f"Nothing to test: {why}.")
        return
    out.print(line((_verdict(backtested), BOLD)), "")
    out.table(backtest_columns(), backtested.predictions)
    out.print()
    out.print(
        line(
            (
                "Error: of the time that was left, + too late, - too early. Inside: the truth lay "
                "in the interval. The plain guess is a run's last cycle times the epochs that were "
                "left. Time in which a removed DAG waited to be submitted again, and what was lost "
                "with it, is not in the truth. "
                "Of what is not finished: until the last epoch that each run has completed.",
                DIM,
            )
        )
    )


def _verdict(backtested: Backtest) -> str:
    parts = []
    for name, summary in (("ensemble", backtested.ensemble), ("runs", backtested.runs)):
        error, naive = summary.error_median, summary.naive_error_median
        if error is None:
            continue
        beside = f", plain guess {100 * naive:.0f} %" if naive is not None else ""
        inside = f"{summary.inside} of {summary.trials} inside"
        parts.append(f"{name}: off by {100 * error:.0f} %{beside}, {inside}")
    return "; ".join(parts)
