"""A real MLflow tracking server on the loopback interface, and its content.

One server serves all tests of a process, each with an experiment of its own. The content is read
from the server's database, without metlmon's code.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pytest

from tests.support.ssh_server import free_port

REQUIRED: Final = "METLMON_POOL_REQUIRED"
"""Where this is set (in the project's own checks) having no server is a failure."""

NEEDS_MLFLOW: Final = pytest.mark.skipif(
    find_spec("mlflow") is None, reason="mlflow-skinny, of the extra mlflow, is not installed"
)
"""Not ``importorskip``: each process collects all tests, and MLflow takes two seconds to import."""

START_SECONDS: Final = 90.0
"""What a busy machine may take; an idle one takes four seconds."""

_ENVIRONMENT: Final = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}


class NoTrackingServer(Exception):
    """MLflow is not installed; ``str()`` is the reason."""


class Point(NamedTuple):
    """A value of a metric. ``time``: milliseconds since 1970."""

    step: int
    value: float
    time: int


class StoredRun(NamedTuple):
    """A run on the server. Times are in milliseconds since 1970."""

    id: str
    name: str
    status: str
    start: int
    end: int | None
    params: dict[str, str]
    tags: dict[str, str]
    metrics: dict[str, list[Point]]

    @property
    def parent(self) -> str | None:
        return self.tags.get("mlflow.parentRunId")


class TrackingServer:
    """``mlflow server`` with its database and artifacts in a directory. Use it with ``with``.

    Raises NoTrackingServer where MLflow is not installed, RuntimeError if it does not start.
    """

    def __init__(self, directory: Path) -> None:
        if find_spec("mlflow") is None:
            raise NoTrackingServer("no MLflow here (mlflow-skinny, with what its server needs)")
        self.directory = directory
        self.artifacts = directory / "artifacts"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._database = directory / "mlflow.db"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [
            *(sys.executable, "-m", "mlflow", "server", "--workers", "1"),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--backend-store-uri", f"sqlite:///{self._database}"),
            *("--artifacts-destination", str(self.artifacts)),
        ]
        with (self.directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={**os.environ, **_ENVIRONMENT, "HOME": str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait_until_healthy()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            # Its workers are in the same process group.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        # In pytest's base directory the databases of all sessions would pile up.
        shutil.rmtree(self.directory, ignore_errors=True)

    def _wait_until_healthy(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5):
                return
            time.sleep(0.05)
        log = (self.directory / "server.log").read_text("utf-8", "replace")
        self.__exit__()
        raise RuntimeError(f"mlflow server did not start:\n{log}")

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a POST below ``/api/2.0/mlflow/``, as from another program."""
        request = urllib.request.Request(
            f"{self.url}/api/2.0/mlflow/{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            result: dict[str, Any] = json.load(answer)
            return result

    def runs(self, experiment: str) -> list[StoredRun]:
        """All runs of an experiment that are not deleted, by name."""
        query = (
            "SELECT run_uuid, runs.name, status, start_time, end_time FROM runs JOIN experiments "
            "USING (experiment_id) WHERE experiments.name = ? AND runs.lifecycle_stage = 'active'"
        )
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as database:
            rows = database.execute(query, (experiment,)).fetchall()
            runs = {row[0]: StoredRun(*row, {}, {}, {}) for row in rows}
            if rows:
                _add_values(database, runs)
        return sorted(runs.values(), key=lambda run: (run.name, run.id))


@contextmanager
def started_server(directory: Path) -> Iterator[TrackingServer]:
    """A server for tests, which are skipped without MLflow; in the project's checks they fail."""
    try:
        server = TrackingServer(directory)
    except NoTrackingServer as reason:
        if os.environ.get(REQUIRED):
            pytest.fail(f"a tracking server is required here: {reason}", pytrace=False)
        pytest.skip(str(reason))
    with server:
        yield server


def _add_values(database: sqlite3.Connection, runs: dict[str, StoredRun]) -> None:
    chosen = f"WHERE run_uuid IN ({','.join('?' * len(runs))})"
    ids = list(runs)
    for run, key, value in database.execute(
        f"SELECT run_uuid, key, value FROM params {chosen}", ids
    ):
        runs[run].params[key] = value
    for run, key, value in database.execute(f"SELECT run_uuid, key, value FROM tags {chosen}", ids):
        runs[run].tags[key] = value
    query = f"SELECT run_uuid, key, step, value, timestamp, is_nan FROM metrics {chosen}"
    for run, key, step, value, stamp, is_nan in database.execute(query, ids):
        point = Point(step, math.nan if is_nan else _with_infinity(value), stamp)
        runs[run].metrics.setdefault(key, []).append(point)
    for each in runs.values():
        for points in each.metrics.values():
            points.sort(key=lambda point: (point.step, point.time))


def _with_infinity(value: float) -> float:
    """The value as sent: the server stores the largest number of SQL for infinity."""
    return math.copysign(math.inf, value) if abs(value) > 1.7e308 else value
