"""``metlmon health``: what is wrong, and what to do about it."""

from __future__ import annotations

import argparse

from metlmon.cli.exit_codes import Exit
from metlmon.cli.output import print_output
from metlmon.cli.reading import open_reader, stats_input
from metlmon.health.build import make_health
from metlmon.health.headline import health_headline
from metlmon.health.types import Health
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.job_files import TrainingFiles


def health(options: argparse.Namespace) -> int:
    """Print the health as text or as JSON. Returns the exit status."""
    reader = open_reader(options)
    result = health_of(reader)
    builder = reader.snapshot_builder()
    if options.json:
        from metlmon.cli.json_output.health import HEALTH_OUTPUT

        print_output(
            HEALTH_OUTPUT,
            builder,
            builder.status(),
            headline=health_headline(result).line,
            runs_total=result.runs_total,
            runs_stopped=result.runs_stopped,
            epochs_left=result.epochs_left,
            jobs_queued=result.jobs_queued,
            health=result.entries,
        )
        return Exit.OK
    from metlmon.cli.text_output import TextOutput
    from metlmon.tables.health_lines import health_lines

    out = TextOutput()
    out.print(*health_lines(result, builder.as_of, out.width))
    return Exit.OK


def health_of(reader: DagdirReader) -> Health:
    """The health of what was read, with what the trainings wrote."""
    builder = reader.snapshot_builder()
    files = TrainingFiles(reader.dagdir, builder.ensemble.settings)
    trainings = files.training_outputs(builder.ledger(), builder)
    return make_health(stats_input(reader, trainings=trainings, files_read=True))
