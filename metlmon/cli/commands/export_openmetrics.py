"""``export --to openmetrics``: metrics as a file or over HTTP, and the Grafana dashboard."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from metlmon.cli import Exit
from metlmon.cli.output import STDOUT, OutputFile, print_message, print_warnings
from metlmon.cli.reading import (
    feed_stats,
    input_with_trainings,
    new_reader,
    open_reader,
    stop_watchdog,
)
from metlmon.errors import InputError, describe_error
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.session import Session
from metlmon.model.clock import Clock
from metlmon.tracking.metrics_server import MetricsServer
from metlmon.tracking.openmetrics import FIRST_LINE, ensemble_samples

DASHBOARD: Final = "grafana_dashboard.json"

UPDATE_SECONDS: Final = 5.0
"""Minimum interval between updates: Prometheus asks every 15 to 60 s."""

UPDATE_SHARE: Final = 20.0
"""The same as a multiple of the cost of an update: it takes at most a twentieth of a core."""


def export_openmetrics(options: argparse.Namespace) -> int:
    """``metlmon export --to openmetrics``. Returns the exit status."""
    if options.listen is not None and (options.dashboard or options.out is not None):
        raise InputError("--listen: leave out --out and --dashboard, or --listen")
    if options.listen is not None:
        return _serve(options)
    name = STDOUT if options.out is None else options.out
    if options.dashboard:
        import metlmon.tracking

        file = OutputFile(name, options.force)
        file.check_replaceable()
        path = Path(metlmon.tracking.__file__).with_name(DASHBOARD)
        file.write(path.read_text(encoding="utf-8"))
        return Exit.OK
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    file = OutputFile(name, options.force, (FIRST_LINE,))
    file.check(reader.dagdir)
    stats = input_with_trainings(reader)
    samples = ensemble_samples(stats, epoch_time=epoch_time(builder.clock, stats.status.live))
    file.write(samples.text())
    print_warnings(builder.notices())
    return Exit.OK


def epoch_time(clock: Clock, live: bool) -> Callable[[datetime], float | None]:
    """Converts times of the logs to seconds since 1970; None if their zone is unknown.

    The times of a live ensemble are those of this machine, unless its files prove otherwise.
    """

    def convert(stamp: datetime) -> float | None:
        seconds = clock.to_epoch(clock.with_offset(stamp))
        return stamp.timestamp() if seconds is None and live else seconds

    return convert


def _serve(options: argparse.Namespace) -> int:
    if options.as_of is not None:
        raise InputError("--listen shows how it is now: leave out --as-of")
    reader = new_reader(options)
    reader.open()
    metrics = LiveMetrics(reader, options.listen)
    stop_watchdog()
    metrics.start()
    address = f"http://127.0.0.1:{metrics.server.port}/metrics"
    print_message(f"{options.dir}: {address} (^C ends it)")
    try:
        threading.Event().wait()
    finally:
        metrics.stop()
    return Exit.OK


class LiveMetrics:
    """Follows a dagdir and answers scrapes with its newest metrics.

    ``reader``: an open one. Raises InputError if the port is taken.
    """

    def __init__(self, reader: DagdirReader, port: int) -> None:
        self.server = MetricsServer(port)
        self._clock = reader.ensemble.clock
        self._session = Session(reader)
        self._session.set_unattended(True)
        self._changed = threading.Event()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start reading and answering, each in a separate thread."""
        self.server.start()
        self._session.start(lambda snapshot: self._changed.set())
        # A separate thread: reading the files of trainings may hang, scrapes do not.
        threading.Thread(target=self._run, name="metlmon-update", daemon=True).start()

    def stop(self) -> None:
        """Stop reading and answering."""
        self._stopped.set()
        self._changed.set()
        self.server.stop()
        self._session.stop()

    def _run(self) -> None:
        seconds = 0.0
        while not self._stopped.wait(seconds):
            self._changed.wait()
            self._changed.clear()
            started = time.thread_time()
            updated = self._update()
            cost = time.thread_time() - started
            seconds = max(UPDATE_SECONDS, UPDATE_SHARE * cost) if updated else 0.0

    def _update(self) -> bool:
        """Compute the samples of the newest snapshot; return whether everything has been read."""
        snapshot = self._session.latest
        if snapshot is None or (snapshot.progress.fraction < 1 and snapshot.error is None):
            done = 0.0 if snapshot is None else snapshot.progress.fraction
            self.server.reason = f"reading: {done:.0%}"
            return False
        try:
            stats = feed_stats(self._session, snapshot)
            convert = epoch_time(self._clock, stats.status.live)
            self.server.samples = ensemble_samples(stats, epoch_time=convert, error=snapshot.error)
        except Exception as error:  # Old values would hide it.
            self.server.reason = describe_error("the metrics could not be computed", error)
            self.server.samples = None
        return True
