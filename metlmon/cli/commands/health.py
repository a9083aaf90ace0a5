"""``metlmon health``: what is wrong, and what to do about it."""

from __future__ import annotations

import argparse

from metlmon.cli.exit_codes import Exit
from metlmon.cli.outputs import EnsembleOutput, print_record
from metlmon.cli.reading import open_reader, read_health
from metlmon.cli.several import read_each, several_dagdirs
from metlmon.health.headline import health_headline
from metlmon.health.types import Health
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.remote.paths import as_typed
from metlmon.text.record_json import Flat


class HealthOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon health --json``: what is wrong; ``headline``: the first line of it."""

    headline: str
    result: Flat[Health]


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
        headline = health_headline(result).line
        print_record(HealthOutput, builder, one_line=several, headline=headline, result=result)
        return
    from metlmon.cli.text_output import TextOutput
    from metlmon.tables.health import health_lines
    from metlmon.text.formatting import plain
    from metlmon.text.spans import BOLD, line

    out = TextOutput()
    if several:
        out.print("", line((plain(as_typed(reader.path_given), 400), BOLD)))
    out.print(*health_lines(result, builder.as_of, out.width))
