"""``export --to optuna``: a sweep as an Optuna study in a journal file."""

from __future__ import annotations

import argparse
from pathlib import Path

from metlmon.cli.commands.curves import check_metric
from metlmon.cli.commands.export import directory_stem
from metlmon.cli.exit_codes import Exit
from metlmon.cli.output import print_warnings
from metlmon.cli.output_file import check_outside, check_replaceable, write_output
from metlmon.cli.reading import input_with_trainings, open_reader
from metlmon.errors import InputError
from metlmon.stats.sweep import GridChoice, grid
from metlmon.tables.sweep import no_sweep_lines
from metlmon.text.formatting import plain
from metlmon.tracking.optuna_journal import study_lines


def export_optuna(options: argparse.Namespace) -> int:
    """``metlmon export --to optuna``. Returns the exit status.

    Raises InputError where nothing is swept, and for a metric without a direction.
    """
    stem = directory_stem(Path(options.dir))
    name = f"{stem}.journal" if options.out is None else options.out
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    check_outside(name, reader.dagdir, "export")
    check_replaceable(name, force=options.force, marks=())
    stats = input_with_trainings(reader)
    check_metric(options.metric, stats)
    sweep = grid(stats, GridChoice(metric=options.metric))
    if not sweep.has_sweep:
        raise InputError(f"--to optuna: {no_sweep_lines()[0]}")
    if sweep.goal is None:
        raise InputError(
            f"--to optuna: no direction of {plain(sweep.metric, 80)} is better; name another "
            "metric with --metric"
        )
    text = "".join(study_lines(sweep, stats, stem, builder.clock.with_offset))
    write_output(name, text, force=options.force, marks=())
    print_warnings(builder.notices())
    return Exit.OK
