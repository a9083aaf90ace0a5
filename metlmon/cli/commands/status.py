"""``metlmon status``, ``health``, ``run`` and ``watch``; and ``--exit-on``."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from metlmon.cli import Exit
from metlmon.cli.commands.jobs import NodeOutput, node_output
from metlmon.cli.exit_conditions import exit_condition
from metlmon.cli.output import EnsembleOutput, is_terminal, print_message, print_record
from metlmon.cli.queue_report import QueueReport, query_queue
from metlmon.cli.reading import (
    check_only,
    has_dagdirs_below,
    input_with_trainings,
    names_one,
    new_reader,
    one_run,
    open_reader,
    read_each,
    read_health,
    refuse_several,
    select_runs,
    several_dagdirs,
)
from metlmon.config.loader import load_settings
from metlmon.errors import InputError
from metlmon.health.build import make_health
from metlmon.health.types import Health, HealthEntry, HealthSource
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import StatsInput
from metlmon.model.queue import QueueSnapshot
from metlmon.remote import filesystem
from metlmon.snapshot.records import Epoch, Run, Status
from metlmon.snapshot.row_text import format_run_list
from metlmon.stats.curves import EpochValue, values_by_epoch
from metlmon.stats.estimates import Forecast, make_forecast
from metlmon.stats.lineage import CheckpointOrigin, lineage, origin_of
from metlmon.stats.run_figures import RunMetric, run_figures
from metlmon.stats.sweep import Value
from metlmon.stats.totals import Breakdown, break_down
from metlmon.text.record_json import Flat

if TYPE_CHECKING:
    from metlmon.home.finder import FoundDagdir

POLL_SECONDS: Final = 1.0
"""Interval at which ``--exit-on`` checks, as often as the dashboard does."""


# --- status ---------------------------------------------------------------------------------


class RunWithFigures(Struct, frozen=True):
    """A run, and what statistics add.

    ``swept``: variables of its nodes that differ between runs. ``wall_seconds``: from its first
    submission to the end of its last job, null until it has ended.
    """

    row: Flat[Run]
    metric: RunMetric | None
    swept: Mapping[str, Value]
    wall_seconds: float | None


class StatusOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon status --json``; ``queue`` only with --queue."""

    status: Flat[Status]
    breakdown: Flat[Breakdown]
    runs: tuple[RunWithFigures, ...]
    special_nodes: tuple[NodeOutput, ...]
    estimate: Forecast
    health: tuple[HealthEntry, ...]
    queue: QueueReport | UnsetType = UNSET


def status(options: argparse.Namespace) -> int:
    """Print the status as a table or as JSON. Returns the exit status."""
    found = several_dagdirs(options)
    if found is not None:
        return _status_of_each(found, options)
    reader = open_reader(options)
    check_only(reader.snapshot_builder(), options.only)
    code = wait(reader, options) if options.exit_on else Exit.OK
    queue = query_queue(reader) if options.queue else None
    if options.notify:
        from metlmon.cli.commands.notify import notify_once

        notify_once(reader, options, at_once=bool(options.exit_on))
    if options.json:
        _print_json(reader, options.only, queue)
        return code
    from metlmon.cli.status_text import print_status

    stats = _stats(reader, queue)
    shown = replace(stats, status=select_runs(stats.status, options.only))
    print_status(shown, make_forecast(stats), make_health(stats))
    if queue is not None:
        queue.print()
    return code


def _stats(reader: DagdirReader, queue: QueueReport | None) -> StatsInput:
    return input_with_trainings(reader, queue=queue.snapshot if queue else QueueSnapshot())


def _print_json(
    reader: DagdirReader, only: str | None, queue: QueueReport | None, *, one_line: bool = False
) -> None:
    """Print the status as JSON, with the runs of ``--only``."""
    stats = _stats(reader, queue)
    shown, errors = select_runs(stats.status, only), stats.job_files.errors
    print_record(
        StatusOutput,
        reader.snapshot_builder(),
        one_line=one_line,
        status=shown,
        breakdown=break_down(stats.ledger),
        runs=with_figures(shown.runs, stats),
        special_nodes=tuple(node_output(each, errors) for each in shown.special_nodes),
        estimate=make_forecast(stats),
        health=make_health(stats).entries,
        queue=queue or UNSET,
    )


def with_figures(rows: Iterable[Run], stats: StatsInput) -> tuple[RunWithFigures, ...]:
    """Runs with their metrics and what else statistics add."""
    figures = run_figures(stats)
    return tuple(
        RunWithFigures(
            row=row,
            metric=figures.metric(row.key),
            swept={name: figures.swept_value(row.key, name) for name in figures.swept_names},
            wall_seconds=figures.wall_seconds.get(row.key),
        )
        for row in rows
    )


def _status_of_each(found: Sequence[FoundDagdir], options: argparse.Namespace) -> Exit:
    """The status of several ensembles: one line, or one JSON object on one line, for each."""
    from metlmon.cli.text_output import TextOutput
    from metlmon.home.summary import HomeSummary, Phase, make_figures
    from metlmon.tables.home import columns, home_rows, totals_line

    refuse_several(options, "--only", "--exit-on", "--queue")
    summaries = []

    def take(reader: DagdirReader) -> None:
        if options.notify:
            from metlmon.cli.commands.notify import notify_once

            notify_once(reader, options)
        if options.json:
            _print_json(reader, None, None, one_line=True)
            return
        path, figures = str(reader.path_given), make_figures(reader)
        summaries.append(HomeSummary(path=path, phase=Phase.READ, figures=figures))

    code = read_each(found, options, take)
    rows, out = home_rows(summaries), TextOutput()
    out.table(columns(rows, None, datetime.now()), rows, totals_line(rows), "")
    return code


# --- waiting ----------------------------------------------------------------------------------


def wait(reader: DagdirReader, options: argparse.Namespace) -> Exit:
    """Wait until a condition of ``--exit-on`` is met, or ``--timeout`` has passed."""
    met = exit_condition(options.exit_on)
    health: HealthSource = partial(read_health, reader)
    deadline = time.monotonic() + options.timeout if options.timeout is not None else None
    for changed in follow(reader, POLL_SECONDS):
        if changed:
            health = cache(partial(read_health, reader))
        # While a connection is lost, missing entries decide nothing.
        code = None if reader.lacks_answers else met(reader.snapshot_builder().status(), health)
        if code is not None:
            return code
        if deadline is not None and time.monotonic() >= deadline:
            break
    print_message("--timeout passed before --exit-on was met")
    return Exit.TIMEOUT


def follow(reader: DagdirReader, seconds: float) -> Iterator[bool]:
    """Yield now and every ``seconds``, endlessly, whether the files have anything new."""
    seen: object = None
    while True:
        status = reader.snapshot_builder().status()
        now = status.logs, status.dags, status.node_states
        yield now != seen
        seen = now
        pause(seconds)
        reader.check()
        reader.read_all()


def pause(seconds: float) -> None:
    """Wait, in a module whose calls the watchdog does not take for reading."""
    time.sleep(seconds)


# --- health -----------------------------------------------------------------------------------


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
    return read_each(found, options, lambda reader: _print(reader, options.json, several=True))


def _print(reader: DagdirReader, as_json: bool, several: bool = False) -> None:
    """Print one health; of several ensembles as a JSON object on one line, or below the path."""
    result = read_health(reader)
    builder = reader.snapshot_builder()
    if as_json:
        headline = result.headline.line
        print_record(HealthOutput, builder, one_line=several, headline=headline, result=result)
        return
    from metlmon.cli.text_output import TextOutput
    from metlmon.tables.health import health_lines
    from metlmon.text.formatting import plain
    from metlmon.text.spans import BOLD, line

    out = TextOutput()
    if several:
        out.print("", line((plain(reader.path_given, 400), BOLD)))
    out.print(*health_lines(result, builder.as_of, out.width))


# --- run --------------------------------------------------------------------------------------


class EpochOutput(Struct, frozen=True):
    """An epoch, or another node of a run, and the origin of its checkpoint.

    ``seconds``: how long it has been in its state; ``evaluations``: the side nodes after it;
    ``metric``: the value of the primary metric, and its change per epoch since the previous one.
    """

    row: Flat[Epoch]
    seconds: float | None
    evaluations: tuple[str, ...]
    checkpoint: CheckpointOrigin | None
    metric: EpochValue | None


class RunOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon run --json``: a run of ``status --json`` with its epochs."""

    run: Flat[RunWithFigures]
    epochs: tuple[EpochOutput, ...]
    side_nodes: tuple[EpochOutput, ...]


def run(options: argparse.Namespace) -> int:
    """Open the Run screen, or print the run as JSON or table. Returns the exit status."""
    if filesystem.exists(options.run) and not filesystem.exists(options.dir):
        # DIR was given first.
        options.run, options.dir = options.dir, options.run
    if filesystem.isdir(options.run):
        raise InputError(_no_run_given(options))
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    row = one_run(builder, options.run)
    view = builder.run_view(row.key)
    if view is None:
        raise InputError(f"{options.run}: no such run")
    if not options.json and is_terminal():
        from metlmon.cli.session_setup import connect_pool, open_screens

        return open_screens(connect_pool(reader, options), options, row.key)
    stats = input_with_trainings(reader)
    origins = lineage(stats).origins.get(row.key, {})
    if not options.json:
        from metlmon.cli.status_text import print_run

        print_run(stats, view, origins)
        return Exit.OK
    values = values_by_epoch(run_figures(stats).by_run.get(row.key), view.epochs)

    def outputs(rows: Iterable[Epoch]) -> tuple[EpochOutput, ...]:
        return tuple(
            EpochOutput(
                row=row,
                seconds=builder.seconds(row.since),
                evaluations=tuple(each.node for each in row.evaluations),
                checkpoint=origin_of(row, origins),
                metric=values.get(row.node_key),
            )
            for row in rows
        )

    (figures,) = with_figures([view.row], stats)
    epochs, side_nodes = outputs(view.epochs), outputs(view.side)
    print_record(RunOutput, builder, run=figures, epochs=epochs, side_nodes=side_nodes)
    return Exit.OK


def _no_run_given(options: argparse.Namespace) -> str:
    """The error for a directory where ``metlmon run`` expects a run."""
    command = f"metlmon run RUN {options.run}"
    options.dir = options.run
    runs = open_reader(options).snapshot_builder().status().runs
    return f"{options.run}: is a directory; name a run in it: {command}; {format_run_list(runs)}"


# --- watch ------------------------------------------------------------------------------------


def watch(options: argparse.Namespace) -> int:
    """Open the dashboard; without a terminal, print the status. Returns the exit status."""
    if not is_terminal():
        if options.queue:
            options.dirs += _queue_dagdirs()
        options.json = options.queue = False
        return status(options)
    from metlmon.home.places import load_list

    listed = load_list() if options.alone else ()
    several = not names_one(options)
    at_home = options.queue or listed or (several and (options.alone or len(options.dirs) > 1))
    if at_home or (several and (options.unusable or has_dagdirs_below(options))):
        return _open_home(options, listed)
    reader = new_reader(options)
    reader.open()
    check_only(reader.snapshot_builder(), options.only)
    exit_when = exit_condition(options.exit_on) if options.exit_on else None
    from metlmon.cli.session_setup import connect_pool, open_screens

    code = open_screens(connect_pool(reader, options), options, exit_when=exit_when)
    if exit_when is not None and code in (Exit.OK, Exit.FAILED, Exit.HELD):
        # The last event is why the dashboard has ended.
        from metlmon.cli.commands.notify import notify_once

        reader.read_all()
        notify_once(reader, options, at_once=True)
    return code


def _queue_dagdirs() -> tuple[str, ...]:
    """The directories of the user's DAGMan jobs. Raises InputError."""
    from metlmon.home.places import user_dagdirs
    from metlmon.pool.connection import PoolConnection
    from metlmon.pool.types import PoolError

    try:
        with closing(PoolConnection()) as connection:
            found = user_dagdirs(connection)
    except PoolError as error:
        raise InputError(f"--queue: {error}") from None
    if not found:
        raise InputError("--queue: none of your DAGMan jobs is in the queue")
    return found


def _open_home(options: argparse.Namespace, listed: Iterable[str]) -> int:
    """Open the dashboard on Home, with these directories besides those in ``options``."""
    refuse_several(options, "--as-of", "--live", "--tz", "--only", "--exit-on")
    from metlmon.cli.session_setup import open_screens
    from metlmon.home.feed import HomeFeed
    from metlmon.live.feed import NullFeed
    from metlmon.pool.client import FeedAndPool

    here = os.getcwd()
    given = [os.path.abspath(path) for path in options.dirs] or [here] * (not options.queue)
    paths = dict.fromkeys((*given, *listed))
    home = HomeFeed(paths, options.queue, here if options.alone else None)
    feed = NullFeed(Path(here), load_settings(Path(here)))
    read_only = bool(options.read_only) or feed.settings.read_only
    nothing_opened = FeedAndPool(feed, None, "open an ensemble first", read_only=read_only)
    code = open_screens(nothing_opened, options, home=home)
    return code or (Exit.USAGE if options.unusable else Exit.OK)
