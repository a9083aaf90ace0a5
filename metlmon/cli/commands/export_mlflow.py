"""``export --to mlflow``: the ensemble and its runs on an MLflow tracking server."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from metlmon.cli.exit_codes import Exit
from metlmon.cli.mlflow_follower import MlflowFollower, report_bytes, warnings
from metlmon.cli.output import print_warnings, progress_line
from metlmon.cli.reading import input_with_trainings, open_reader
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.text.formatting import count, plain
from metlmon.tracking.mlflow_client import TrackingClient, TrackingError
from metlmon.tracking.mlflow_export import ExportResult, MlflowExporter
from metlmon.tracking.mlflow_runs import TrackedEnsemble, tracked_ensemble
from metlmon.tracking.mlflow_settings import experiment_name, tracking_server


def export_mlflow(options: argparse.Namespace) -> int:
    """``metlmon export --to mlflow``. Exit status 6: the server refused something, or failed."""
    if options.follow and (options.dry_run or options.as_of is not None):
        other = "--dry-run" if options.dry_run else "--as-of"
        raise InputError(f"--follow writes what happens from now on: leave out {other}")
    reader = open_reader(options)
    settings, line = reader.ensemble.settings.tracking, progress_line(sys.stderr)

    def show(done: int, total: int) -> None:
        line(f"writing run {done + 1} of {total}" if done < total else None)

    try:
        server = tracking_server(options.tracking_uri, os.environ, settings)
        exporter = MlflowExporter(
            server,
            experiment_name(options.experiment, os.environ, settings),
            dry_run=options.dry_run,
            progress=(lambda done, total: None) if options.follow else show,
        )
        if options.follow:
            return _follow(reader, server, exporter)
        return _export(reader, server, exporter, options)
    except TrackingError as error:
        print(f"metlmon: {error}", file=sys.stderr)
        return Exit.REFUSED


# --- once -----------------------------------------------------------------------------------


def _export(
    reader: DagdirReader,
    server: TrackingClient,
    exporter: MlflowExporter,
    options: argparse.Namespace,
) -> int:
    builder = reader.snapshot_builder()
    ensemble = tracked_ensemble(builder, input_with_trainings(reader))
    print_warnings(builder.notices())
    if ensemble is None:
        print("nothing to export: no job has been submitted yet")
        return Exit.OK
    result = exporter.export(ensemble, report_bytes(reader))
    _print_result(ensemble, result, server, dry_run=options.dry_run)
    return Exit.REFUSED if result.problems else Exit.OK


def _print_result(
    ensemble: TrackedEnsemble, result: ExportResult, server: TrackingClient, *, dry_run: bool
) -> None:
    place = f"{server.uri}, experiment {plain(result.experiment, 80)}"
    if not result.changed:
        print(f"{place}: up to date")
    else:
        print(f"{'would write' if dry_run else 'wrote'} to {place}: {result.summary}")
    if dry_run:
        for run in (ensemble.parent, *ensemble.children):
            if run.key in result.created | result.updated:
                what = "create" if run.key in result.created else "update"
                points = count(result.points_by_run[run.key], "point")
                print(f"  {what} {run.name}: {run.status}, {points}")
    if ensemble.untimed:
        print(f"{count(ensemble.untimed, 'run')} without a submission in the logs: not exported")
    print(f"{count(server.calls, 'call')}, {server.writes} of them writing")
    if result.url is not None:
        print(result.url)
    for text in warnings(ensemble, result, server):
        print(f"metlmon: {text}", file=sys.stderr)


# --- following ------------------------------------------------------------------------------


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends ``--follow`` as ^C does."""


def _follow(reader: DagdirReader, server: TrackingClient, exporter: MlflowExporter) -> int:
    """Export until the ensemble is over, or until ^C or SIGTERM. Returns the exit status."""
    print_warnings(reader.snapshot_builder().notices())
    follower = MlflowFollower(reader, server, exporter)
    place = f"{server.uri}, experiment {plain(exporter.experiment, 80)}"
    export = f"exporting {plain(reader.path_given)} to {place}"
    print(f"metlmon: {export} (^C ends it)", file=sys.stderr, flush=True)
    with _sigterm_as_exception():
        try:
            return follower.run()
        except KeyboardInterrupt as interrupt:
            follower.flush()
            if isinstance(interrupt, Terminated):
                return 128 + signal.SIGTERM
            raise


@contextmanager
def _sigterm_as_exception() -> Iterator[None]:
    """SIGTERM raises :class:`Terminated`; only the main thread can have it so."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
