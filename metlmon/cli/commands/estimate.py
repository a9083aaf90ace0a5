"""``metlmon estimate``: when each run and the whole will be done, and how sure that is."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output import JsonWriter, head, outlook_json
from metlmon.cli.output import print_json
from metlmon.cli.reading import open_reader
from metlmon.cli.warnings import print_warnings
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.stats import estimate_text
from metlmon.stats.backtest import Backtest, Trial, backtest, usual_error, usual_naive_error
from metlmon.stats.estimates import Forecast, RunForecast, outlook
from metlmon.stats.worker import StatsInput
from metlmon.text.formatting import UNKNOWN, plain, share

if TYPE_CHECKING:
    from metlmon.cli.tables import TextColumn

NAME_LIMIT: Final = 24


def estimate(options: argparse.Namespace) -> int:
    """``metlmon estimate``, ``metlmon estimate --backtest``."""
    reader = open_reader(options)
    if options.backtest:
        tested = _backtest(reader, options)
        if options.json:
            print_json(head(reader.painter()) | {"backtest": _backtest_json(reader, tested)})
        else:
            _print_backtest(tested)
        return Exit.OK
    basis = _basis(reader)
    told = outlook(basis)
    if options.json:
        writer = JsonWriter(reader.painter().clock.stated)
        print_json(head(reader.painter()) | {"estimate": outlook_json(writer, told)})
        print_warnings(basis.status.warnings)
    else:
        _print(told)
    return Exit.OK


def _basis(reader: DagdirReader) -> StatsInput:
    painter = reader.painter()
    return StatsInput(painter.status(), painter.ledger(), reader.ensemble.settings)


def _backtest(reader: DagdirReader, options: argparse.Namespace) -> Backtest:
    def then(moment: datetime) -> StatsInput:
        earlier = copy(options)
        # As the logs have it, in their own time: no zone is to be taken off it again.
        earlier.as_of, earlier.live = moment.replace(tzinfo=None).isoformat(), None
        return _basis(open_reader(earlier))

    return backtest(_basis(reader), then)


# --- tables -------------------------------------------------------------------------------


def _print(told: Forecast) -> None:
    from rich.text import Text

    from metlmon.cli.tables import TextColumn, console, print_table

    out = console()
    out.print(Text(first_line(told), style="bold"))
    if not told.runs:
        return
    out.print()
    columns: Sequence[TextColumn] = (
        TextColumn("RUN", shrinks=8),
        TextColumn("DONE", right=True),
        TextColumn("PER EPOCH", drop=2),
        TextColumn("OF", right=True, drop=1),
        TextColumn("TO GO", shrinks=14),
        TextColumn("ABOUT", drop=3),
        TextColumn("SURE", drop=4),
        TextColumn("EPOCH NOW", drop=5),
    )
    print_table(out, columns, [_cells(run) for run in told.runs])
    if told.span is not None:
        out.print()
        out.print(
            Text(
                "Four in five end within the interval, if the DAG goes on running: time in which "
                "it was removed and waited to be submitted again is neither in the history nor "
                "foretold. Epochs a day are those of the last week, whatever came between them.",
                style="dim",
            )
        )


def first_line(told: Forecast) -> str:
    """``42 of 150 epochs done; done in 6 d (4–9 d), about 2025-11-20 08:00; 4.6 epochs/day``."""
    done = estimate_text.epochs(told)
    done += (
        f" by {estimate_text.minute(told.as_of)}"
        if told.as_of is not None and not told.live
        else ""
    )
    at = f", about {estimate_text.minute(told.at)}" if told.at is not None else ""
    parts = [done, estimate_text.done_in(told) + at, estimate_text.rate(told.rate)]
    return "; ".join(part for part in parts if part)


def _cells(run: RunForecast) -> list[str | Any]:
    dash = UNKNOWN
    return [
        plain(run.run_name, NAME_LIMIT),
        f"{run.done}/{run.total}",
        estimate_text.pace(run.pace) or dash,
        str(run.pace.epochs) if run.pace else "0",
        estimate_text.run_left(run),
        estimate_text.minute(run.at) or dash,
        estimate_text.sureness(run.span) if run.span else dash,
        estimate_text.span(run.epoch) or dash,
    ]


def _print_backtest(tested: Backtest) -> None:
    from rich.text import Text

    from metlmon.cli.tables import TextColumn, console, print_table

    out = console()
    if not tested.trials:
        why = "fewer than two epochs were completed" if tested.epochs < 2 else "no run went on then"
        out.print(Text(f"Nothing to test: {why}."))
        return
    out.print(Text(_verdict(tested), style="bold"))
    out.print()
    columns = (
        TextColumn("WAY"),
        TextColumn("RUN", shrinks=8),
        TextColumn("ESTIMATE"),
        TextColumn("TRUTH"),
        TextColumn("ERROR", right=True),
        TextColumn("INSIDE"),
        TextColumn("PLAIN GUESS", drop=2),
        TextColumn("ITS ERROR", right=True, drop=1),
    )
    print_table(out, columns, [_trial(trial) for trial in tested.trials])
    out.print()
    out.print(
        Text(
            "Error: of the time that was left, + too late, - too early. Inside: the truth lay in "
            "the interval. The plain guess is a run's last cycle times the epochs that were left. "
            "Time in which a removed DAG waited to be submitted again, and what was lost with it, "
            "is not in the truth. "
            "Of what is not finished: until the last epoch that each run has completed.",
            style="dim",
        )
    )


def _verdict(tested: Backtest) -> str:
    whole, runs = tested.of_ensemble(), tested.of_runs()
    parts = []
    for name, trials in (("ensemble", whole), ("runs", runs)):
        error, naive = usual_error(trials), usual_naive_error(trials)
        if error is None:
            continue
        beside = f", plain guess {100 * naive:.0f} %" if naive is not None else ""
        inside = sum(trial.inside for trial in trials)
        parts.append(
            f"{name}: off by {100 * error:.0f} %{beside}, {inside} of {len(trials)} inside"
        )
    return "; ".join(parts)


def _trial(trial: Trial) -> list[str | Any]:
    name = "all" if trial.run_name is None else plain(trial.run_name, NAME_LIMIT)
    told = estimate_text.about(trial.predicted)
    interval = estimate_text.between(trial.low, trial.high)
    naive = trial.naive_error
    return [
        share(trial.share, 1.0),
        name,
        f"{told} ({interval})",
        estimate_text.about(trial.truth),
        f"{100 * trial.error:+.0f} %",
        "yes" if trial.inside else "no",
        estimate_text.about(trial.naive) if trial.naive is not None else UNKNOWN,
        f"{100 * naive:+.0f} %" if naive is not None else UNKNOWN,
    ]


# --- JSON ---------------------------------------------------------------------------------


def _backtest_json(reader: DagdirReader, tested: Backtest) -> dict[str, Any]:
    writer = JsonWriter(reader.painter().clock.stated)
    return {
        "epochs": tested.epochs,
        "unsaid": list(tested.unsaid),
        "ensemble": _summary(tested.of_ensemble()),
        "runs": _summary(tested.of_runs()),
        "trials": [
            {
                "share": trial.share,
                "at": writer.time(trial.at),
                "key": trial.run,
                "run": trial.run_name,
                "low": round(trial.low, 3),
                "predicted": round(trial.predicted, 3),
                "high": round(trial.high, 3),
                "truth": round(trial.truth, 3),
                "paused": round(trial.paused, 3),
                "error": round(trial.error, 6),
                "error_seconds": round(trial.predicted - trial.truth, 3),
                "inside": trial.inside,
                "naive": None if trial.naive is None else round(trial.naive, 3),
                "naive_error": None if trial.naive_error is None else round(trial.naive_error, 6),
            }
            for trial in tested.trials
        ],
    }


def _summary(trials: Sequence[Trial]) -> dict[str, Any]:
    return {
        "trials": len(trials),
        "inside": sum(trial.inside for trial in trials),
        "error_median": usual_error(trials),
        "naive_error_median": usual_naive_error(trials),
    }
