"""``metlmon status``, ``metlmon run`` and ``metlmon watch``; and ``--exit-on``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from metlmon.cli.exit_codes import Exit
from metlmon.cli.exit_conditions import exit_condition
from metlmon.cli.output import is_terminal
from metlmon.cli.reading import (
    check_only,
    input_with_trainings,
    new_reader,
    one_run,
    open_reader,
    read_health,
    select_runs,
)
from metlmon.cli.several import (
    has_dagdirs_below,
    names_one,
    read_each,
    refuse_several,
    several_dagdirs,
)
from metlmon.errors import InputError
from metlmon.health.build import make_health
from metlmon.health.types import Health
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.remote import filesystem
from metlmon.remote.paths import is_remote
from metlmon.snapshot.row_text import format_run_list

if TYPE_CHECKING:
    from metlmon.cli.queue_report import QueueReport
    from metlmon.home.finder import FoundDagdir
    from metlmon.live.feed import StatsInput
    from metlmon.stats.lineage import CheckpointOrigin

POLL_SECONDS: Final = 1.0
"""How often ``--exit-on`` looks again: as often as the dashboard does."""


def status(options: argparse.Namespace) -> int:
    """Print the status as a table or as JSON. Returns the exit status."""
    found = several_dagdirs(options)
    if found is not None:
        return _status_of_each(found, options)
    reader = open_reader(options)
    check_only(reader.snapshot_builder(), options.only)
    code = wait(reader, options) if options.exit_on else Exit.OK
    queue = None
    if options.queue:
        from metlmon.cli.queue_report import query_queue

        queue = query_queue(reader)
    if options.notify:
        from metlmon.cli.notifications import notify_once

        notify_once(reader, options, at_once=bool(options.exit_on))
    if options.json:
        _print_json(reader, options.only, queue)
        return code
    shown = select_runs(reader.snapshot_builder().status(), options.only)
    stats = input_with_trainings(reader, **_queue_of(queue))
    health = make_health(stats)
    from metlmon.cli.status_text import print_status
    from metlmon.stats.estimates import make_forecast

    print_status(replace(stats, status=shown), make_forecast(stats), health)
    if queue is not None:
        queue.print()
    return code


def _print_json(
    reader: DagdirReader, only: str | None, queue: QueueReport | None, *, one_line: bool = False
) -> None:
    """Print the status as JSON, with the runs of ``--only``."""
    from metlmon.cli.status_output import print_status_json

    stats = input_with_trainings(reader, **_queue_of(queue))
    print_status_json(reader.snapshot_builder(), stats, only, queue, one_line=one_line)


def _queue_of(queue: QueueReport | None) -> dict[str, Any]:
    """The queue as a field of StatsInput."""
    return {} if queue is None else {"queue": queue.snapshot}


def _status_of_each(found: Sequence[FoundDagdir], options: argparse.Namespace) -> Exit:
    """The status of several ensembles: one line, or one JSON object in a line, each."""
    from metlmon.cli.text_output import TextOutput
    from metlmon.home.summary import HomeSummary, Phase, make_figures
    from metlmon.tables.home import columns, home_rows, totals_line

    refuse_several(options, "--only", "--exit-on", "--queue")
    summaries = []

    def take(reader: DagdirReader) -> None:
        if options.notify:
            from metlmon.cli.notifications import notify_once

            notify_once(reader, options)
        if options.json:
            _print_json(reader, None, None, one_line=True)
            return
        path, figures = str(reader.path_given), make_figures(reader)
        summaries.append(HomeSummary(path=path, phase=Phase.READ, figures=figures))

    code = read_each(found, options, take)
    rows, out = home_rows(summaries), TextOutput()
    if not rows:
        return code
    out.print(totals_line(rows), "")
    out.table(columns(rows, None), rows)
    return code


def wait(reader: DagdirReader, options: argparse.Namespace) -> Exit:
    """Wait until a condition of ``--exit-on`` is met, or ``--timeout`` is over."""
    met = exit_condition(options.exit_on)
    health = _CachedHealth(reader)
    deadline = time.monotonic() + options.timeout if options.timeout is not None else None
    while True:
        # While a connection is lost, what is missing decides nothing.
        lost = reader.error is not None and is_remote(reader.dagdir)
        code = None if lost else met(reader.snapshot_builder().status(), health.read)
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
    if filesystem.isdir(options.run):
        raise InputError(_no_run_given(options))
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    row = one_run(builder, options.run)
    view = builder.run_view(row.key)
    if view is None:
        raise InputError(f"{options.run}: no such run")
    if options.json:
        from metlmon.cli.status_output import print_run_json

        stats = input_with_trainings(reader)
        print_run_json(builder, stats, view, _origins(stats, row.key))
        return Exit.OK
    if not is_terminal():
        from metlmon.cli.status_text import print_run

        print_run(view, _origins(input_with_trainings(reader), row.key))
        return Exit.OK
    from metlmon.cli.session_setup import connect_pool, open_screens

    return open_screens(connect_pool(reader, options), options, row.key)


def _no_run_given(options: argparse.Namespace) -> str:
    """The sentence on a directory where ``metlmon run`` expects a run."""
    command = f"metlmon run RUN {options.run}"
    options.dir = options.run
    runs = open_reader(options).snapshot_builder().status().runs
    return f"{options.run}: is a directory; name a run in it: {command}; {format_run_list(runs)}"


def _origins(stats: StatsInput, run: str) -> Mapping[int, CheckpointOrigin]:
    """Which job made the checkpoint of each epoch of a run."""
    from metlmon.stats.lineage import lineage

    return lineage(stats).origins.get(run, {})


def watch(options: argparse.Namespace) -> int:
    """Open the dashboard; without terminal print the status. Returns the exit status."""
    if not is_terminal():
        if options.queue:
            options.dirs += _queue_dagdirs()
        options.json = options.queue = False
        return status(options)
    from metlmon.home.user_list import load_list

    listed = load_list() if options.alone else ()
    several, unusable = not names_one(options), getattr(options, "unusable", 0)
    if (
        options.queue
        or listed
        or (several and (options.alone or len(options.dirs) > 1 or unusable))
    ):
        return _open_home(options, listed)
    if several and has_dagdirs_below(options):
        return _open_home(options, listed)
    reader = new_reader(options)
    reader.open()
    check_only(reader.snapshot_builder(), options.only)
    exit_when = exit_condition(options.exit_on) if options.exit_on else None
    from metlmon.cli.session_setup import connect_pool, open_screens

    code = open_screens(connect_pool(reader, options), options, exit_when=exit_when)
    if exit_when is not None and code in (Exit.OK, Exit.FAILED, Exit.HELD):
        # The last event is why the dashboard has ended.
        from metlmon.cli.notifications import notify_once

        reader.read_all()
        notify_once(reader, options, at_once=True)
    return code


def _queue_dagdirs() -> tuple[str, ...]:
    """The directories of the user's DAGMan jobs. Raises InputError."""
    from metlmon.home.queue import user_dagdirs
    from metlmon.pool.connection import PoolConnection
    from metlmon.pool.types import PoolError

    connection = PoolConnection()
    try:
        found = user_dagdirs(connection)
    except PoolError as error:
        raise InputError(f"--queue: {error}") from None
    finally:
        connection.close()
    if not found:
        raise InputError("--queue: none of your DAGMan jobs is in the queue")
    return found


def _open_home(options: argparse.Namespace, listed: Iterable[str]) -> int:
    """Open the dashboard on Home, with these directories besides those in ``options``."""
    refuse_several(options, "--as-of", "--live", "--tz", "--only", "--exit-on")
    from metlmon.cli.session_setup import open_home
    from metlmon.home.feed import HomeFeed

    here = os.getcwd()
    given = [os.path.abspath(path) for path in options.dirs] or [here] * (not options.queue)
    paths = dict.fromkeys((*given, *listed))
    code = open_home(options, HomeFeed(paths, options.queue, here if options.alone else None))
    return code or (Exit.USAGE if getattr(options, "unusable", 0) else Exit.OK)


def pause(seconds: float) -> None:
    """Wait, outside of the modules whose calls the watchdog takes for reading."""
    time.sleep(seconds)
