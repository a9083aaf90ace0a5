"""``metlmon status``, ``metlmon run`` and ``metlmon watch``; and ``--exit-on``."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from msgspec.structs import replace

from metlmon.cli.exit_codes import Exit
from metlmon.cli.exit_conditions import exit_condition
from metlmon.cli.output import is_terminal, print_json, print_output, print_warnings
from metlmon.cli.reading import (
    check_only,
    input_with_trainings,
    new_reader,
    one_run,
    open_reader,
    read_health,
    select_runs,
)
from metlmon.errors import InputError
from metlmon.health.build import make_health
from metlmon.health.types import Health
from metlmon.live.dagdir_reader import DagdirReader

POLL_SECONDS: Final = 1.0
"""How often ``--exit-on`` looks again: as often as the dashboard does."""


def status(options: argparse.Namespace) -> int:
    """Print the status as a table or as JSON. Returns the exit status."""
    reader = open_reader(options)
    check_only(reader.snapshot_builder(), options.only)
    code = wait(reader, options) if options.exit_on else Exit.OK
    queue = None
    if options.queue:
        from metlmon.cli.session_setup import query_queue

        queue = query_queue(reader)
    builder = reader.snapshot_builder()
    shown = select_runs(builder.status(), options.only)
    stats = input_with_trainings(reader)
    health = make_health(stats)
    if options.json:
        from metlmon.cli.json_output.status import STATUS_OUTPUT, figures_json, runs_json

        more = figures_json(stats, health) | ({"queue": queue.json()} if queue else {})
        more["runs"] = runs_json(shown.runs, stats, builder.clock.with_offset)
        print_output(STATUS_OUTPUT, builder, shown, **more)
        return code
    from metlmon.cli.status_text import print_status
    from metlmon.stats.estimates import make_forecast

    print_status(replace(stats, status=shown), make_forecast(stats), health)
    if queue is not None:
        queue.print()
    return code


def wait(reader: DagdirReader, options: argparse.Namespace) -> Exit:
    """Wait until a condition of ``--exit-on`` is met, or ``--timeout`` is over."""
    met = exit_condition(options.exit_on)
    health = _CachedHealth(reader)
    deadline = time.monotonic() + options.timeout if options.timeout is not None else None
    while True:
        code = met(reader.snapshot_builder().status(), health.read)
        if code is not None:
            return code
        if deadline is not None and time.monotonic() >= deadline:
            print("metlmon: --timeout passed before --exit-on was met", file=sys.stderr)
            return Exit.TIMEOUT
        pause(POLL_SECONDS)
        reader.check()
        reader.read_all()


class _CachedHealth:
    """The health of a reader, until its logs or its DAGs change."""

    def __init__(self, reader: DagdirReader) -> None:
        self._reader = reader
        self._seen: object = None
        self._health: Health | None = None

    def read(self) -> Health:
        status = self._reader.snapshot_builder().status()
        seen = status.logs, status.dags, status.node_states
        if self._health is None or seen != self._seen:
            self._seen, self._health = seen, read_health(self._reader)
        return self._health


def run(options: argparse.Namespace) -> int:
    """Open the Run screen, or print the run as JSON or table. Returns the exit status."""
    from metlmon.cli.command_line import swap_run_and_directory

    swap_run_and_directory(options)
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    row = one_run(builder, options.run)
    view = builder.run_view(row.key)
    if view is None:
        raise InputError(f"{options.run}: no such run")
    if options.json:
        from metlmon.cli.json_output.status import RUN_OUTPUT, runs_json

        stamp = builder.clock.with_offset
        (figures,) = runs_json([row], input_with_trainings(reader), stamp)
        print_json(
            RUN_OUTPUT.write(row, stamp, **figures, epochs=view.epochs, side_nodes=view.side)
        )
        print_warnings(builder.notices())
        return Exit.OK
    if not is_terminal():
        from metlmon.cli.status_text import print_run

        print_run(view)
        return Exit.OK
    from metlmon.cli.session_setup import connect_pool, open_screens

    return open_screens(connect_pool(reader, options), options, row.key)


def watch(options: argparse.Namespace) -> int:
    """Open the dashboard; without terminal print the status. Returns the exit status."""
    if not is_terminal():
        options.json = options.queue = False
        return status(options)
    reader = new_reader(options)
    reader.open()
    check_only(reader.snapshot_builder(), options.only)
    exit_when = exit_condition(options.exit_on) if options.exit_on else None
    from metlmon.cli.session_setup import connect_pool, open_screens

    return open_screens(connect_pool(reader, options), options, exit_when=exit_when)


def pause(seconds: float) -> None:
    """Wait, outside of the modules whose calls the watchdog takes for reading."""
    time.sleep(seconds)
