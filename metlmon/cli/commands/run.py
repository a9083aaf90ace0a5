"""``metlmon run``: one run, epoch by epoch."""

from __future__ import annotations

import argparse

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output import JsonWriter
from metlmon.cli.output import is_terminal, print_json
from metlmon.cli.reading import one_run, open_reader
from metlmon.cli.warnings import print_warnings
from metlmon.live.errors import InputError


def run(options: argparse.Namespace) -> int:
    """Open the Run screen, or print the run as JSON or a table. Returns the exit status."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    row = one_run(builder, options.run)
    view = builder.run_view(row.key)
    if view is None:
        raise InputError(f"{options.run}: no such run")
    if options.json:
        print_json(JsonWriter(builder.clock.with_offset).run_view(view))
        print_warnings(builder.notices())
        return Exit.OK
    if not is_terminal():
        from metlmon.cli.status_text import print_run

        print_run(view)
        return Exit.OK
    from metlmon.cli.session_setup import connect_pool, open_screens

    return open_screens(connect_pool(reader, options), options, row.key)
