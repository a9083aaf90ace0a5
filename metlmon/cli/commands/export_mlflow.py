"""``export --to mlflow``: the ensemble and its runs on an MLflow tracking server."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Final

from metlmon.cli import Exit
from metlmon.cli.commands.report import report_of
from metlmon.cli.output import print_message, print_warnings, waiting_line
from metlmon.cli.reading import input_with_trainings, open_reader, read_whole
from metlmon.config.loader import load_settings
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import ENDED
from metlmon.report.to_html import render_html
from metlmon.text.formatting import count, plain
from metlmon.tracking.mlflow_client import (
    TrackingClient,
    TrackingError,
    experiment_name,
    tracking_server,
)
from metlmon.tracking.mlflow_export import ExportResult, MlflowExporter
from metlmon.tracking.mlflow_runs import (
    ENDED_STATUSES,
    UNDER_WAY,
    TrackedEnsemble,
    tracked_ensemble,
)


def export_mlflow(options: argparse.Namespace) -> int:
    """``metlmon export --to mlflow``. Exit status 6: the server refused something, or failed."""
    if options.follow and (options.dry_run or options.as_of is not None):
        other = "--dry-run" if options.dry_run else "--as-of"
        raise InputError(f"--follow writes what happens from now on: leave out {other}")
    reader = open_reader(options)
    settings = reader.ensemble.settings.tracking
    try:
        server = tracking_server(options.tracking_uri, os.environ, settings)
        exporter = MlflowExporter(
            server,
            experiment_name(options.experiment, os.environ, settings),
            dry_run=options.dry_run,
        )
        if options.follow:
            return _follow(reader, server, exporter)
        with waiting_line() as show:
            exporter.progress = lambda done, total: show(
                f"writing run {done + 1} of {total}" if done < total else ""
            )
            return _export(reader, server, exporter, options)
    except TrackingError as error:
        print_message(str(error))
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
        print_message(text)


# --- following ------------------------------------------------------------------------------

POLL_SECONDS: Final = 1.0
"""Interval at which it checks the files, as often as the dashboard does."""

UPDATE_SECONDS: Final = 10.0
"""Minimum interval between writes: the pages of MLflow are reloaded every 30 s."""

UPDATE_SHARE: Final = 20.0
"""The same as a multiple of the cost of a write: it takes at most a twentieth of a core."""

RECHECK_SECONDS: Final = 60.0
"""Interval at which it checks files of trainings while the logs do not change."""

REPORT_SECONDS: Final = 600.0
"""Minimum interval between uploads of the report, which is some hundred kilobytes."""

FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""Shortest and longest pause between attempts while the server fails; each doubles the last."""

FLUSH_SECONDS: Final = 10.0
"""Time limit for writing the last state after ^C."""

MAX_STATUSES: Final = 6
"""Maximum new statuses of runs in one line of output."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends ``--follow`` as ^C does."""


def _follow(reader: DagdirReader, server: TrackingClient, exporter: MlflowExporter) -> int:
    """Export until the ensemble is over, or until ^C or SIGTERM. Returns the exit status."""
    print_warnings(reader.snapshot_builder().notices())
    follower = MlflowFollower(reader, server, exporter)
    place = f"{server.uri}, experiment {plain(exporter.experiment, 80)}"
    export = f"exporting {plain(reader.path_given)} to {place}"
    print_message(f"{export} (^C ends it)")
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
    """Make SIGTERM raise :class:`Terminated`; possible only in the main thread."""

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


class MlflowFollower:
    """Follows a dagdir, and keeps its runs up to date on a server.

    ``reader``: one that has read everything; it pauses while the server is asked, and continues
    afterwards. What is written goes to standard output, one line each time; outages to standard
    error.
    """

    def __init__(
        self, reader: DagdirReader, server: TrackingClient, exporter: MlflowExporter
    ) -> None:
        self._reader = reader
        self._server = server
        self._exporter = exporter
        self._ensemble: TrackedEnsemble | None = None
        self._seen: object = None
        self._updated_at = self._reported_at = -math.inf
        self._cost = 0.0
        self._pause = 0.0  # Before the next attempt, while the server fails.
        self._has_written = False
        self._is_resting = False
        self._shown_url: str | None = None
        self._warned: set[str] = set()
        self._refused = False

    def run(self) -> int:
        """Follow until the ensemble is over; return the exit status. Raises TrackingError."""
        while True:
            self._update()
            if self._is_over and not self._pause:
                return Exit.REFUSED if self._refused else Exit.OK
            self._is_resting = True
            time.sleep(POLL_SECONDS)
            self._is_resting = False
            self._reader.check()
            self._reader.read_all()
            if self._reader.error is not None:
                self._warn_once(self._reader.error)

    def flush(self) -> None:
        """Write the newest state after ^C ended :meth:`run`, within FLUSH_SECONDS."""
        is_written = False
        # If interrupted while reading, the model may be incomplete.
        if self._is_resting:
            self._server.deadline = time.monotonic() + FLUSH_SECONDS
            with suppress(TrackingError):
                is_written = self._write(with_report=True)
        if not is_written:
            print_message("ended before everything was written: export again, which completes it")

    @property
    def _is_over(self) -> bool:
        return self._ensemble is not None and self._ensemble.parent.status not in UNDER_WAY

    def _update(self) -> None:
        """Write the newest state, if it is time and there may be something new."""
        status = self._reader.snapshot_builder().status()
        seen = status.logs, status.dags, status.node_states
        interval = max(UPDATE_SECONDS, UPDATE_SHARE * self._cost)
        if self._pause:
            interval = self._pause
        elif seen == self._seen:
            interval = max(interval, RECHECK_SECONDS)
        now = time.monotonic()
        if now >= self._updated_at + interval:
            self._seen, self._updated_at = seen, now
            started = time.thread_time()
            self._write(with_report=now >= self._reported_at + REPORT_SECONDS)
            self._cost = time.thread_time() - started

    def _write(self, *, with_report: bool) -> bool:
        """Write the newest state; return whether the server has it. Raises TrackingError."""
        builder = self._reader.snapshot_builder()
        self._ensemble = tracked_ensemble(builder, input_with_trainings(self._reader))
        if self._ensemble is None:
            return True
        report = report_bytes(self._reader) if with_report or self._is_over else None
        self._is_resting = True
        try:
            result = self._exporter.export(self._ensemble, report, attempts=1)
        except TrackingError as error:
            if not self._has_written and not error.transient:
                raise
            if not self._pause:
                print_message(f"{error.event}; it is tried again until it works")
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS) or FIRST_PAUSE_SECONDS
            return False
        if self._pause:
            print_message("the tracking server works again")
        self._has_written, self._pause = True, 0.0
        if report is not None:
            self._reported_at = time.monotonic()
        self._show(self._ensemble, result)
        return True

    def _show(self, ensemble: TrackedEnsemble, result: ExportResult) -> None:
        """Print what was written, unless only tags were, which change with every event."""
        if result.url is not None and self._shown_url != result.url:
            self._shown_url = result.url
            print(result.url, flush=True)
        statuses = [f"{plain(name, 80)} {status}" for name, status in result.statuses.items()]
        if result.created or result.points or result.uploads or statuses:
            more = len(statuses) - MAX_STATUSES
            shown = statuses[:MAX_STATUSES] + ([f"and {more} more"] if more > 0 else [])
            changes = "; ".join([result.summary, *shown])
            print(f"{datetime.now():%H:%M:%S} {changes}", flush=True)
        self._refused = bool(result.problems)
        for text in warnings(ensemble, result, self._server):
            self._warn_once(text)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            print_message(text)


def report_bytes(reader: DagdirReader) -> bytes:
    """The report as HTML."""
    return render_html(report_of(reader)).encode()


def warnings(
    ensemble: TrackedEnsemble, result: ExportResult, server: TrackingClient
) -> Iterator[str]:
    """Sentences about what an export left out, what may be wrong, and what was refused."""
    yield from result.warnings
    if not ensemble.zone_known:
        yield (
            "the logs do not have the access point's time zone: this machine's is used; --tz "
            "names another one"
        )
    if server.sends_secrets_in_clear:
        yield f"{server.uri}: the credentials cross the network without encryption"
    yield from result.problems


# --- a process for one DAG ------------------------------------------------------------------
# ``mlflow run . -b metlmon`` starts it and returns immediately. It exports a DAG into one MLflow
# run until the DAG ends. The server and its credentials are those of the environment.

COMMAND: Final = ("-P", "-m", "metlmon.cli.commands.export_mlflow")
"""Arguments of Python, before the DAG file and the ID of the run."""

OUTPUT_FILE: Final = "mlflow-export.txt"
"""The file of its messages, beside the DAG."""


def export_until_end(dag: Path, run_id: str) -> int:
    """Export until the DAG ends; return the exit status. Raises InputError, TrackingError."""
    settings = load_settings(dag.parent)
    reader = read_whole(dag, settings)
    server = tracking_server(None, os.environ, settings.tracking)
    while reader.snapshot_builder().ledger().first_time is None:
        dags = reader.snapshot_builder().status().dags
        if dags and all(row.state in ENDED for row in dags):
            # The DAG ended before it submitted a job.
            status = ENDED_STATUSES[dags[0].state]
            server.set_status(run_id, status, round(1000 * time.time()))
            return Exit.OK
        time.sleep(POLL_SECONDS)
        reader.check()
        reader.read_all()
    exporter = MlflowExporter(server, "", parent_id=run_id)
    return MlflowFollower(reader, server, exporter).run()


def main() -> int:
    """Export as the arguments of the process say: the DAG file and the ID of the run."""
    dag, run_id = sys.argv[1:]
    try:
        return export_until_end(Path(dag), run_id)
    except (InputError, TrackingError) as error:
        print_message(str(error))
        return Exit.REFUSED


if __name__ == "__main__":
    sys.exit(main())
