"""``metlmon curves``: metrics by epoch, as a table or as JSON."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.outputs import EnsembleOutput, print_record
from metlmon.cli.reading import input_with_trainings, open_reader
from metlmon.cli.status_text import NAME_LIMIT
from metlmon.cli.text_output import TextOutput
from metlmon.config.settings import MetricSettings
from metlmon.errors import InputError
from metlmon.live.feed import StatsInput
from metlmon.stats.curves import Curves, curves_summary, metric_names
from metlmon.stats.curves import curves as curves_in
from metlmon.tables.curves import band_columns, columns
from metlmon.text.formatting import plain
from metlmon.text.record_json import Flat
from metlmon.text.spans import BOLD, line

PROBLEMS_SHOWN: Final = 20
"""Sentences about files, printed by the command; ``--json`` has them all."""


class CurvesOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon curves --json``; ``looked_in``: patterns of the directories with metrics."""

    curves: Flat[Curves]
    looked_in: tuple[str, ...]


def curves(options: argparse.Namespace) -> int:
    """``metlmon curves``. Raises InputError for a metric that no run has."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    metrics, basis = reader.ensemble.settings.metrics, input_with_trainings(reader)
    check_metric(options.metric, basis)
    result = curves_in(basis, options.metric)
    if options.json:
        print_record(CurvesOutput, builder, curves=result, looked_in=metrics.files)
    else:
        print_curves(result, builder.live, metrics)
    for problem in result.problems[:PROBLEMS_SHOWN]:
        print(f"metlmon: warning: {plain(problem, 400)}", file=sys.stderr)
    return Exit.OK


def check_metric(name: str | None, basis: StatsInput) -> None:
    """Raises InputError for a metric that no run has."""
    names = metric_names(basis)
    if name is not None and names and name not in names:
        some = ", ".join(plain(name, NAME_LIMIT) for name in names)
        raise InputError(f"--metric {plain(name, 80)}: no run has it; there are: {some}")


# --- tables -----------------------------------------------------------------------------------


def print_curves(result: Curves, live: bool, metrics: MetricSettings) -> None:
    """The headline, a row per run, and the band by epoch."""
    out = TextOutput()
    if not result.curves_with_values:
        out.print("No training has written a metric here yet.")
        places = ", ".join(
            plain(f"{pattern}/version_<k>/metrics.csv", 80) for pattern in metrics.files
        )
        metric = plain(result.metric, 40)
        out.print(f"Looked for {places}, wandb/offline-run-* beside it,")
        out.print(f"and {metric} in the jobs' output.")
        return
    summary = curves_summary(result, live)
    dot = " · "
    parts = [part for part in (summary.runs, summary.best, summary.diverged, summary.flat) if part]
    out.print(line((dot.join(parts), BOLD)))
    goal = {"min": ", lower is better", "max": ", higher is better", None: ""}[result.goal]
    out.print(f"{plain(result.metric, 80)}{goal}")
    out.print()
    out.table(columns(result.curves), result.curves)
    for band in (result.band, *result.bands):
        out.print()
        name = "all runs" if band is result.band else plain(band.label or "no label", NAME_LIMIT)
        out.print(line((name, BOLD)))
        out.table(band_columns(), band.levels)
