"""``metlmon health``: what is wrong, and what to do about it."""

from __future__ import annotations

import argparse

from metlmon.cli.exit_codes import Exit
from metlmon.cli.output import print_output
from metlmon.cli.reading import open_reader, read_health
from metlmon.cli.several import read_each, several_dagdirs
from metlmon.health.headline import health_headline
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.remote.paths import as_typed


def health(options: argparse.Namespace) -> int:
    """Print the health as text or as JSON. Returns the exit status."""
    found = several_dagdirs(options)
    if found is None:
        _print(open_reader(options), options.json)
        return Exit.OK

    def print_one(reader: DagdirReader) -> None:
        _print(reader, options.json, several=True)

    return read_each(found, options, print_one)


def _print(reader: DagdirReader, as_json: bool, several: bool = False) -> None:
    """Print one health; of several ensembles as one JSON object in a line, or below the path."""
    result = read_health(reader)
    builder = reader.snapshot_builder()
    if as_json:
        from metlmon.cli.json_output.status import HEALTH_OUTPUT

        print_output(
            HEALTH_OUTPUT,
            builder,
            builder.status(),
            one_line=several,
            headline=health_headline(result).line,
            runs_total=result.runs_total,
            runs_stopped=result.runs_stopped,
            epochs_left=result.epochs_left,
            jobs_queued=result.jobs_queued,
            health=result.entries,
        )
        return
    from metlmon.cli.text_output import TextOutput
    from metlmon.tables.health import health_lines
    from metlmon.text.formatting import plain
    from metlmon.text.spans import BOLD, line

    out = TextOutput()
    if several:
        out.print("", line((plain(as_typed(reader.path_given), 400), BOLD)))
    out.print(*health_lines(result, builder.as_of, out.width))
