"""Exports interrupted at any call are completed by the next one.

The process is killed before or after the server has the call, answers are lost, and the server
refuses, fails, is slow or vanishes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from metlmon.cli import Exit
from metlmon.cli.main import main
from metlmon.tracking import mlflow_export
from metlmon.tracking.mlflow_client import TrackingClient, TrackingError
from metlmon.tracking.mlflow_export import MlflowExporter
from metlmon.tracking.mlflow_runs import TrackedEnsemble
from tests.support.commands import Captured, run_command
from tests.support.faulty_tracker import (
    BROKEN,
    BUSY,
    CUT,
    FORBIDDEN,
    LOST,
    NO_JSON,
    REFUSED,
    TRUNCATED,
    Answer,
    Call,
    Fault,
    FaultyTracker,
    Kill,
    SlowAnswer,
    canned_tracker,
    take_everything,
)
from tests.support.tracked_ensembles import RunState, server_state, small_ensemble, tracked_by
from tests.support.tracking_server import TrackingServer

pytestmark = pytest.mark.xdist_group("tracking")

KILLS: Final = 20
SEED: Final = 19
"""Of the calls at which exports are killed."""


class CleanExport(NamedTuple):
    """An uninterrupted export of the ensemble: its number of calls, and its result."""

    dagdir: Path
    calls: int
    state: dict[str, RunState]


def arguments(undisturbed_or_path: Path, tracker: FaultyTracker, experiment: str) -> list[str]:
    """The command line of an export through the proxy."""
    options = ["--to", "mlflow", "--tracking-uri", tracker.url, "--experiment", experiment]
    return ["export", str(undisturbed_or_path), *options]


@pytest.fixture(name="undisturbed", scope="module")
def _undisturbed(
    tracking_server: TrackingServer, tmp_path_factory: pytest.TempPathFactory
) -> CleanExport:
    dagdir = small_ensemble(tmp_path_factory.mktemp("interrupted") / "ensemble").path
    with FaultyTracker(tracking_server.url) as tracker:
        assert main(arguments(dagdir, tracker, "undisturbed")) == Exit.OK
        return CleanExport(dagdir, len(tracker.calls), server_state(tracking_server, "undisturbed"))


@pytest.fixture(name="pauses", autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, without waiting."""
    pauses: list[float] = []
    monkeypatch.setattr(mlflow_export.time, "sleep", pauses.append)
    return pauses


def check_mended(
    tracker: FaultyTracker,
    server: TrackingServer,
    undisturbed: CleanExport,
    experiment: str,
    capsys: Captured,
) -> None:
    """Check that another export gives the state of one without faults."""
    tracker.reset()
    command = arguments(undisturbed.dagdir, tracker, experiment)
    code, _, err = run_command("", capsys, *command)
    assert (code, err) == (Exit.OK, "")
    assert server_state(server, experiment) == undisturbed.state


# --- killed -----------------------------------------------------------------------------------


def run_export(command: list[str], environment: dict[str, str]) -> None:
    """The command in a process of its own."""
    os.environ.update(environment)
    os.environ.pop("MLFLOW_TRACKING_TOKEN", None)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    sys.exit(main(command))


@pytest.fixture(name="start_export", scope="module")
def _start_export() -> Iterator[Callable[[list[str]], ForkServerProcess]]:
    """Start exports, each a fork of one process that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "tests.support.export_preload"])
    started: list[ForkServerProcess] = []

    def start(command: list[str]) -> ForkServerProcess:
        environment = {name: os.environ[name] for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
        process = context.Process(target=run_export, args=(command, environment), daemon=True)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


def test_killed_export_is_completed_by_the_next_one(
    tracker: FaultyTracker,
    tracking_server: TrackingServer,
    undisturbed: CleanExport,
    start_export: Callable[[list[str]], ForkServerProcess],
    capsys: Captured,
) -> None:
    points = [(number, passes_on) for number in range(undisturbed.calls) for passes_on in (0, 1)]
    for number, passes_on in random.Random(SEED).sample(points, KILLS):
        experiment = f"killed {'after' if passes_on else 'before'} call {number}"
        process: list[ForkServerProcess] = []
        tracker.reset()
        tracker.at(number, Kill(lambda: process[0].pid or 0, bool(passes_on)))  # noqa: B023
        process.append(start_export(arguments(undisturbed.dagdir, tracker, experiment)))
        process[0].join(60)
        assert process[0].exitcode == -9, experiment
        assert len(tracker.calls) == number + 1
        check_mended(tracker, tracking_server, undisturbed, experiment, capsys)


def test_lost_answer_changes_nothing(
    tracker: FaultyTracker,
    tracking_server: TrackingServer,
    undisturbed: CleanExport,
    capsys: Captured,
    pauses: list[float],
) -> None:
    """The server has the call, which the client does not know: it checks before it writes again."""
    for number in range(0, undisturbed.calls, 6):
        tracker.reset()
        tracker.at(number, LOST)
        experiment = f"lost {number}"
        command = arguments(undisturbed.dagdir, tracker, experiment)
        assert run_command("", capsys, *command)[0] == Exit.OK
        assert server_state(tracking_server, experiment) == undisturbed.state
    assert pauses == [1.0] * ((undisturbed.calls + 5) // 6)


# --- a server that fails ------------------------------------------------------------------------

FAULTS: Final[dict[str, tuple[Fault | None, str]]] = {
    "401": (REFUSED, "UNAUTHENTICATED: who are you?; set MLFLOW_TRACKING_TOKEN"),
    "403": (FORBIDDEN, "PERMISSION_DENIED: not allowed to edit; set MLFLOW_TRACKING_TOKEN"),
    "500": (BROKEN, "500 error responses; check that it runs and that the tracking URI is right"),
    "429": (BUSY, "429 error responses; check that it runs"),
    "no JSON": (NO_JSON, "Log in"),
    "truncated": (TRUNCATED, "; check that it runs and that the tracking URI is right"),
    "cut": (CUT, "RemoteDisconnected"),
    "slow": (None, "did not answer within 0.5 s when asked to"),
}


@pytest.mark.parametrize(("fault", "first"), [*((fault, 9) for fault in FAULTS), ("401", 0)])
def test_failing_server_is_one_sentence(
    fault: str,
    first: int,
    tracker: FaultyTracker,
    tracking_server: TrackingServer,
    undisturbed: CleanExport,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From call ``first`` on; the next export completes partial writes."""
    experiment = f"fails {fault} {first}"
    answer, sentence = FAULTS[fault]
    slow = SlowAnswer()
    answer = answer or slow
    tracker.fault = lambda call: answer if call.number >= first else None
    with monkeypatch.context() as patched:
        if fault == "slow":
            patched.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "0.5")
        command = arguments(undisturbed.dagdir, tracker, experiment)
        code, out, err = run_command("", capsys, *command)
    assert (code, out) == (Exit.REFUSED, "")
    [line] = err.splitlines()
    assert line.startswith(f"metlmon: {tracker.url} ")
    assert sentence in line
    slow.over()
    check_mended(tracker, tracking_server, undisturbed, experiment, capsys)


def test_transient_failure_is_retried(
    tracker: FaultyTracker,
    tracking_server: TrackingServer,
    undisturbed: CleanExport,
    capsys: Captured,
    pauses: list[float],
) -> None:
    tracker.fault = lambda call: BROKEN if call.number in (5, 12) else None
    command = arguments(undisturbed.dagdir, tracker, "for a moment")
    code, out, err = run_command("", capsys, *command)
    assert (code, err, pauses) == (Exit.OK, "", [1.0, 2.0])
    assert server_state(tracking_server, "for a moment") == undisturbed.state
    # The output counts the writes of both attempts.
    assert ": 3 new runs, 50 points, " in out


@pytest.fixture(name="ensemble")
def _ensemble(tmp_path: Path) -> TrackedEnsemble:
    return tracked_by(small_ensemble(tmp_path / "ensemble").reader())


def test_progress_line_ends_before_an_error(ensemble: TrackedEnsemble) -> None:
    shown: list[tuple[int, int]] = []
    with canned_tracker() as tracker:
        tracker.fault = lambda call: take_everything(call) if call.number < 7 else REFUSED
        exporter = MlflowExporter(TrackingClient(tracker.url), "x")
        exporter.progress = lambda *numbers: shown.append(numbers)
        with pytest.raises(TrackingError, match="who are you"):
            exporter.export(ensemble)
    assert shown == [(0, 3), (1, 3), (1, 1)]


@pytest.mark.parametrize("endpoint", ["runs/search", "metrics/get-history"])
def test_server_that_repeats_a_page_is_stopped(ensemble: TrackedEnsemble, endpoint: str) -> None:
    point = {"key": ensemble.parent.points[-1].key, "step": 9999, "value": 1, "timestamp": 1}
    run = {"info": {"run_id": "1", "experiment_id": "1"}, "data": {"metrics": [point]}}

    def repeat(call: Call) -> Answer:
        if endpoint in call.path:
            return Answer(200, b'{"next_page_token": "again"}')
        if "runs/create" in call.path:
            return Answer(200, json.dumps({"run": run}).encode())
        return take_everything(call)

    with canned_tracker() as tracker:
        tracker.fault = repeat
        exporter = MlflowExporter(TrackingClient(tracker.url), "x")
        with pytest.raises(TrackingError, match="answered with the same page again"):
            exporter.export(ensemble)
