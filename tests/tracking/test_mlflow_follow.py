"""``export --to mlflow --follow``: a server is kept up to date, whatever it does.

A story is what happens in the pauses of the follower, when all earlier events have been exported:
no test waits for the clock.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from metlmon.cli import Exit
from metlmon.cli.commands import export_mlflow
from metlmon.cli.commands.export_mlflow import MlflowFollower
from metlmon.cli.main import main
from metlmon.config.loader import load_settings
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.tracking.mlflow_client import TrackingClient, TrackingError
from metlmon.tracking.mlflow_export import MlflowExporter
from tests.support.commands import Captured, usage_error
from tests.support.faulty_tracker import BROKEN, REFUSED, FaultyTracker
from tests.support.recordings import FIXTURES, read_all
from tests.support.tracked_ensembles import server_state, small_ensemble
from tests.support.tracking_server import TrackingServer

pytestmark = pytest.mark.xdist_group("tracking")

ROOT: Final = Path(__file__).resolve().parents[2]
LOG: Final = "metl.log"
OUT: Final = "run.dag.dagman.out"
_AT_ONCE: Final = {"UPDATE_SECONDS": 0.0, "UPDATE_SHARE": 0.0, "FIRST_PAUSE_SECONDS": 0.005}

Step = Callable[[], object]


class Story:
    """A growing small ensemble, a follower of it, and events in its pauses."""

    def __init__(self, path: Path, tracker: FaultyTracker, experiment: str) -> None:
        self.dagdir = small_ensemble(path)
        log = (path / LOG).read_bytes()
        self.events = [part + b"...\n" for part in log.split(b"...\n")[:-1]]
        self.end = (path / OUT).read_bytes()
        self.dagdir.write(LOG, b"")
        self.dagdir.write(OUT, self.end.splitlines(keepends=True)[0])
        self.tracker = tracker
        self.experiment = experiment
        self.follower: Any = None

    def grow(self, events: int) -> None:
        """Log the next events."""
        self.dagdir.append(LOG, b"".join(self.events[:events]))
        del self.events[:events]

    def finish(self) -> None:
        """Log all events, including the end of DAGMan."""
        self.grow(len(self.events))
        self.dagdir.write(OUT, self.end)

    def fails_again(self) -> Step:
        """A step that ends when two more calls have failed."""
        before: list[int] = []

        def step() -> bool:
            before.append(len(self.tracker.calls))
            return before[-1] >= before[0] + 2

        return step

    def interrupt(self) -> None:
        raise KeyboardInterrupt

    def run(self, monkeypatch: pytest.MonkeyPatch, *steps: Step) -> int:
        """Follow, with a step in each pause; a step that returns False is repeated."""
        left = list(steps)

        def pause(seconds: float) -> None:
            if left and left[0]() is not False:
                left.pop(0)
            else:
                threading.Event().wait(0.005)

        monkeypatch.setattr(export_mlflow.time, "sleep", pause)
        settings = load_settings(self.dagdir.path)
        reader = read_all(DagdirReader(self.dagdir.path, settings, live=True))
        server = TrackingClient(self.tracker.url)
        exporter = MlflowExporter(server, self.experiment)
        self.follower = MlflowFollower(reader, server, exporter)
        for name, seconds in _AT_ONCE.items():
            monkeypatch.setattr(export_mlflow, name, seconds)
        code = int(self.follower.run())
        assert left == []
        return code


@pytest.fixture(name="story")
def _story(tmp_path: Path, tracker: FaultyTracker, request: pytest.FixtureRequest) -> Story:
    return Story(tmp_path / "ensemble", tracker, request.node.name)


def points(server: TrackingServer, story: Story) -> dict[str, int]:
    """The number of points of each run on the server."""
    state = server_state(server, story.experiment)
    return {name: len(run.points) for name, run in state.items()}


def check_final(story: Story, server: TrackingServer, capsys: Captured) -> None:
    """Check that the stepwise result equals that of one export."""
    at_once = f"{story.experiment} at once"
    command = ["export", str(story.dagdir.path), "--to", "mlflow", "--experiment", at_once]
    assert main([*command, "--tracking-uri", server.url]) == Exit.OK
    followed, exported = (server_state(server, name) for name in (story.experiment, at_once))
    for run in followed:
        # The report has the time of its creation.
        assert bool(followed[run].report) == bool(exported[run].report)
        changing = {"tags": {}, "report": ""}
        assert followed[run]._replace(**changing) == exported[run]._replace(**changing)
        same = exported[run].tags.keys() - {"metlmon.report_sha256"}
        assert {n: followed[run].tags[n] for n in same} == {n: exported[run].tags[n] for n in same}
    capsys.readouterr()


def test_ensemble_is_followed_to_its_end(
    story: Story, tracking_server: TrackingServer, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, int]] = []

    def look() -> None:
        seen.append(points(tracking_server, story))

    code = story.run(
        monkeypatch,
        *(lambda: story.grow(1), look),
        *(lambda: story.grow(3), look),
        *(lambda: story.grow(5), look),
        story.finish,
    )
    assert code == Exit.OK
    assert seen == [
        {"ensemble": 0, "run0": 0},
        {"ensemble": 2, "run0": 10},
        {"ensemble": 4, "run0": 10, "run1": 10},
    ]
    out, err = capsys.readouterr()
    first, *lines = out.splitlines()
    assert first.startswith(f"{story.tracker.url}/#/experiments/")
    summaries = [line.partition(" ")[2] for line in lines]
    assert summaries[0].startswith("2 new runs, ")
    assert summaries[-1].endswith("; ensemble FINISHED; run0 FINISHED; run1 FINISHED")
    assert err == ""
    check_final(story, tracking_server, capsys)


def test_outage_is_two_lines(
    story: Story, tracking_server: TrackingServer, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.grow(4)
    code = story.run(
        monkeypatch,
        lambda: story.tracker.always(BROKEN),
        lambda: story.grow(2),
        story.fails_again(),
        # An expired token does not end it, either.
        lambda: story.tracker.always(REFUSED),
        story.fails_again(),
        lambda: story.grow(3),
        lambda: story.tracker.reset(),
        story.finish,
    )
    assert code == Exit.OK
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"metlmon: {story.tracker.url} was asked to ")
    assert "500 error" in first
    assert first.endswith("; it is tried again until it works")
    assert second == "metlmon: the tracking server works again"
    check_final(story, tracking_server, capsys)


def test_interrupt_exports_the_last_state(
    story: Story, tracking_server: TrackingServer, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow_unnoticed() -> None:
        monkeypatch.setattr(export_mlflow, "UPDATE_SECONDS", 3600.0)
        story.grow(5)

    story.grow(4)
    with pytest.raises(KeyboardInterrupt):
        story.run(monkeypatch, grow_unnoticed, story.interrupt)
    assert points(tracking_server, story) == {"ensemble": 2, "run0": 10}
    story.follower.flush()
    assert points(tracking_server, story) == {"ensemble": 4, "run0": 10, "run1": 10}
    assert capsys.readouterr().err == ""


def test_interrupt_during_an_outage_is_reported(
    story: Story, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.grow(4)
    fail = lambda: story.tracker.always(BROKEN)  # noqa: E731
    more = lambda: story.grow(5)  # noqa: E731
    with pytest.raises(KeyboardInterrupt):
        story.run(monkeypatch, fail, more, story.interrupt)
    story.follower.flush()
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == (
        "metlmon: ended before everything was written: export again, which completes it"
    )


def test_refused_first_export_ends_the_follower(
    story: Story, tracker: FaultyTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker.always(REFUSED)
    story.grow(4)
    with pytest.raises(TrackingError, match="who are you"):
        story.run(monkeypatch)


# --- the command --------------------------------------------------------------------------------


def start(dagdir: Path, url: str, experiment: str, *more: str) -> subprocess.Popen[str]:
    """``--follow`` in a process of its own, of a live ensemble."""
    words = ["export", str(dagdir), "--to", "mlflow", "--follow", "--live", *more]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": url, "MLFLOW_EXPERIMENT_NAME": experiment}
    return subprocess.Popen(
        [sys.executable, "-m", "metlmon", *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_signals_end_the_command(
    number: signal.Signals, code: int, story: Story, tracking_server: TrackingServer
) -> None:
    story.grow(4)
    process = start(story.dagdir.path, tracking_server.url, story.experiment)
    try:
        assert process.stdout.readline().startswith(tracking_server.url)
        assert "2 new runs, 12 points" in process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code
    assert err.splitlines() == [
        f"metlmon: exporting {story.dagdir.path} to {tracking_server.url}, experiment "
        f"{story.experiment} (^C ends it)"
    ]
    assert "Traceback" not in out


@pytest.mark.parametrize("other", ["--dry-run", "--as-of=yesterday"])
def test_follower_exports_later_events(other: str, capsys: Captured) -> None:
    command = ("--follow", "--tracking-uri", "http://127.0.0.1:9", other)
    error = usage_error("export --to mlflow", capsys, FIXTURES / "demo", *command)
    assert error.endswith(f"from now on: leave out {other.partition('=')[0]}\n")
    assert "--follow: goes with --to mlflow" in usage_error(
        "export", capsys, FIXTURES / "demo", "--follow"
    )
