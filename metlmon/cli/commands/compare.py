"""``metlmon compare``: runs side by side, as a table or as JSON."""

from __future__ import annotations

import argparse
import os

from msgspec import Struct

from metlmon.cli.commands.curves import check_metric
from metlmon.cli.exit_codes import Exit
from metlmon.cli.outputs import EnsembleOutput, print_record
from metlmon.cli.reading import input_with_trainings, one_run, open_reader
from metlmon.cli.status_output import RunWithFigures, with_figures
from metlmon.cli.text_output import TextOutput
from metlmon.errors import InputError
from metlmon.health.build import make_health
from metlmon.health.types import Health, HealthEntry
from metlmon.live.feed import StatsInput
from metlmon.stats.comparison import ComparedRun, Comparison, compare_runs
from metlmon.stats.estimates import Forecast, RunForecast, make_forecast
from metlmon.tables.comparison import (
    FEWEST,
    comparison_lines,
    headline,
    open_entries,
    run_name,
)
from metlmon.tables.health import entry_lines
from metlmon.text.record_json import Flat
from metlmon.text.spans import BOLD, line


class ComparedRunOutput(Struct, frozen=True):
    """A run of ``status --json``, where its epochs were completed, and its estimate."""

    run: Flat[RunWithFigures]
    compared: Flat[ComparedRun]
    estimate: RunForecast | None


class CompareOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon compare --json``."""

    comparison: Flat[Comparison]
    runs: tuple[ComparedRunOutput, ...]
    health: tuple[HealthEntry, ...]


def compare(options: argparse.Namespace) -> int:
    """``metlmon compare``. Raises InputError for fewer than two runs."""
    names = take_directory(options)
    if len(names) < FEWEST:
        raise InputError("give two or more runs: metlmon compare RUN RUN [DIR]")
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    keys = list(dict.fromkeys(one_run(builder, name).key for name in names))
    if len(keys) < FEWEST:
        raise InputError(f"{' and '.join(names)} are the same run: give two or more")
    basis = input_with_trainings(reader)
    check_metric(options.metric, basis)
    result = compare_runs(basis, keys, options.metric)
    forecast, health = make_forecast(basis), make_health(basis)
    if options.json:
        forecasts = {each.run: each for each in forecast.runs}
        figures = with_figures([run.row for run in result.runs], basis)
        print_record(
            CompareOutput,
            builder,
            comparison=result,
            runs=tuple(
                ComparedRunOutput(run, compared, forecasts.get(run.row.key))
                for run, compared in zip(figures, result.runs, strict=True)
            ),
            health=tuple(open_entries(health, result.runs)),
        )
    else:
        print_comparison(result, forecast, health, basis)
    return Exit.OK


def take_directory(options: argparse.Namespace) -> list[str]:
    """The names of runs; DIR, given first or last, goes into ``options.dir``.

    A directory without a DAG file is none: those of the outputs are called like their runs.
    """
    names = list(options.runs)
    for place in (-1, 0):
        if _is_dagdir(names[place]):
            options.dir = names.pop(place)
            break
    return names


def _is_dagdir(word: str) -> bool:
    # A path that cannot be looked at is one, too: reading it says why.
    if os.sep in word or os.path.isfile(word):
        return True
    return _has_dag(word) or (os.path.isdir(word) and not _has_dag("."))


def _has_dag(directory: str) -> bool:
    try:
        with os.scandir(directory) as entries:
            return any(entry.name.endswith(".dag") for entry in entries)
    except OSError:
        return False


def print_comparison(
    result: Comparison, forecast: Forecast, health: Health, basis: StatsInput
) -> None:
    """The best run, the runs side by side, and what is wrong with them."""
    out = TextOutput()
    if best := headline(result):
        out.print(line((best, BOLD)))
    names = [run_name(run) for run in result.runs]
    table = comparison_lines(result, forecast, health, out.width, names=names)
    out.print("")
    out.print_cropped(table.lines)
    if table.shown < len(result.runs):
        out.print("", f"{len(result.runs) - table.shown} more runs do not fit: see --json")
    for entry in open_entries(health, result.runs):
        out.print("", *entry_lines(entry, health, basis.status.as_of, out.width, indent=0))
