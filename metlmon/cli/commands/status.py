"""``metlmon status``, ``metlmon run`` and ``metlmon watch``."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.exit_on import exit_condition, pause
from metlmon.cli.output import is_terminal, print_json, print_output, print_warnings
from metlmon.cli.reading import (
    check_only,
    new_reader,
    one_run,
    open_reader,
    query_queue,
    select_runs,
    stats_input,
)
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.errors import InputError

POLL_SECONDS: Final = 1.0
"""How often ``--exit-on`` looks again: as often as the dashboard does."""


def status(options: argparse.Namespace) -> int:
    """Print the status as a table or as JSON. Returns the exit status."""
    reader = open_reader(options)
    check_only(reader.snapshot_builder(), options.only)
    code = wait(reader, options) if options.exit_on else Exit.OK
    queue = query_queue(reader, options)
    builder = reader.snapshot_builder()
    shown = select_runs(builder.status(), options.only)
    stats = stats_input(reader)
    if options.json:
        from metlmon.cli.json_output.status import STATUS_OUTPUT, figures_json

        more = figures_json(stats) | ({"queue": queue.json()} if queue else {})
        print_output(STATUS_OUTPUT, builder, shown, **more)
        return code
    from metlmon.cli.status_text import print_status
    from metlmon.stats.incidents import headline

    print_status(shown, headline(stats))
    if queue is not None:
        queue.print()
    return code


def wait(reader: DagdirReader, options: argparse.Namespace) -> Exit:
    """Wait until one of the conditions of ``--exit-on`` is met, or ``--timeout`` is over."""
    met = exit_condition(options.exit_on)
    deadline = time.monotonic() + options.timeout if options.timeout is not None else None
    while True:
        code = met(reader.snapshot_builder().status())
        if code is not None:
            return code
        if deadline is not None and time.monotonic() >= deadline:
            print("metlmon: --timeout passed before --exit-on was met", file=sys.stderr)
            return Exit.TIMEOUT
        pause(POLL_SECONDS)
        reader.check()
        reader.read_all()


def run(options: argparse.Namespace) -> int:
    """Open the Run screen, or print the run as JSON or a table. Returns the exit status."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    row = one_run(builder, options.run)
    view = builder.run_view(row.key)
    if view is None:
        raise InputError(f"{options.run}: no such run")
    if options.json:
        from metlmon.cli.json_output.status import RUN_OUTPUT

        stamp = builder.clock.with_offset
        print_json(RUN_OUTPUT.write(row, stamp, epochs=view.epochs, side_nodes=view.side))
        print_warnings(builder.notices())
        return Exit.OK
    if not is_terminal():
        from metlmon.cli.status_text import print_run

        print_run(view)
        return Exit.OK
    from metlmon.cli.session_setup import connect_pool, open_screens

    return open_screens(connect_pool(reader, options), options, row.key)


def watch(options: argparse.Namespace) -> int:
    """Open the dashboard; without a terminal print the status. Returns the exit status."""
    if not is_terminal():
        options.json = False
        return status(options)
    reader = new_reader(options)
    reader.open()
    check_only(reader.snapshot_builder(), options.only)
    from metlmon.cli.session_setup import connect_pool, open_screens

    return open_screens(connect_pool(reader, options), options)
