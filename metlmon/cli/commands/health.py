"""``metlmon health``: what is wrong, and what to do about it."""

from __future__ import annotations

import argparse

from metlmon.cli.exit_codes import Exit
from metlmon.cli.output import print_output
from metlmon.cli.reading import open_reader, read_health
from metlmon.health.headline import health_headline


def health(options: argparse.Namespace) -> int:
    """Print the health as text or as JSON. Returns the exit status."""
    reader = open_reader(options)
    result = read_health(reader)
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
