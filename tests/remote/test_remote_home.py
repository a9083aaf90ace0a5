"""Ensembles of other machines on Home."""

from __future__ import annotations

import argparse
import json
import shutil
import threading
from pathlib import Path

import pytest

from metlmon.cli.command_line import connect
from metlmon.config.user_state import state_directory
from metlmon.home.feed import HomeFeed
from metlmon.home.places import load_list, save_list
from metlmon.home.summary import HomeSummary, Phase
from metlmon.remote.machine import MACHINES, connect_to
from metlmon.remote.paths import as_typed
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.patience import PATIENCE
from tests.support.ssh_server import Line, SshServer

pytestmark = pytest.mark.xdist_group("ssh")


@pytest.fixture(name="experiments")
def _experiments(tmp_path: Path) -> Path:
    """A directory with two ensembles below it, one of them with outputs."""
    folder = tmp_path / "experiments"
    for name in ("2026/first", "2026/second"):
        (folder / name).mkdir(parents=True)
        dagdir = Dagdir(folder / name)
        dagdir.write("metl.log", Log().submit(77, NODE).execute(77, 1).data)
        (folder / name / "output" / "checkpoints").mkdir(parents=True)
    return folder


class Home:
    """A feed of Home whose process reads files through this process's connections."""

    def __init__(self, *paths: str) -> None:
        self.feed = HomeFeed(paths)
        self._changed = threading.Event()
        self.feed.start(self._changed.set)

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.stop()

    def until(self, *states: tuple[str, Phase]) -> dict[str, HomeSummary]:
        """The lines by path, once they are in these phases."""
        while True:
            lines = {as_typed(each.path): each for each in self.feed.summaries}
            if {(path, each.phase) for path, each in lines.items()} == set(states):
                return lines
            assert self._changed.wait(PATIENCE), lines
            self._changed.clear()


def test_each_machine_has_one_connection(
    access_point: str, ssh_server: SshServer, experiments: Path
) -> None:
    other = ssh_server.add_host("other-access-point")
    paths = [connect_to(f"{host}:{experiments}") for host in (access_point, other)]
    here = experiments.parent / "here"
    shutil.copytree(experiments / "2026" / "first", here)
    names = [
        f"{host}:{experiments}/2026/{name}"
        for host in (access_point, other)
        for name in ("first", "second")
    ]

    with Home(*paths, str(here)) as home:
        lines = home.until(*((name, Phase.READ) for name in (*names, str(here))))

    assert {each.figures.live for each in lines.values() if each.figures is not None} == {False}
    for host in (access_point, other):
        assert MACHINES[host].channel.connections == 1


def test_unreachable_machine_has_a_line_on_home(
    access_point: str, experiments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metlmon.cli.command_line.is_terminal", lambda: True)
    words = [f"{access_point}:{experiments}/2026/first", "nosuchhost.invalid:/x"]
    options = argparse.Namespace(command="watch", dirs=[*words, "nosuchhost.invalid:x"])

    connect(options)

    # Without a connection a relative directory is unknown.
    assert [as_typed(path) for path in options.dirs] == words
    with Home(*options.dirs) as home:
        lines = home.until((words[0], Phase.READ), (words[1], Phase.UNREADABLE))
    error = lines[words[1]].error
    assert error is not None
    assert "no connection yet" in error


def test_lines_stay_during_a_lost_connection(
    access_point: str, ssh_server: SshServer, experiments: Path
) -> None:
    with Line(ssh_server.port) as line:
        host = ssh_server.add_host("home-line", port=line.port)
        path = connect_to(f"{host}:{experiments}")
        names = [f"{host}:{experiments}/2026/{name}" for name in ("first", "second")]
        with Home(path) as home:
            home.until(*((name, Phase.READ) for name in names))
            line.cut()
            home.feed.look_again(f"{path}/2026/first")

            lines = home.until((names[0], Phase.UNREADABLE), (names[1], Phase.READ))

            error = lines[names[0]].error
            assert error.startswith(f"{host}: connection lost since ")
            line.mend()
            home.until(*((name, Phase.READ) for name in names))


def test_list_has_directories_as_typed(
    access_point: str, experiments: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    directory = state_directory()
    assert directory is not None
    path = connect_to(f"{access_point}:{experiments}")
    assert save_list(["/local", path])
    content = json.loads((directory / "home.json").read_text())
    assert content["directories"] == ["/local", f"{access_point}:{experiments}"]

    assert load_list() == ("/local", path)


def test_listed_machines_are_connected_in_the_background(
    access_point: str,
    ssh_server: SshServer,
    experiments: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Line(ssh_server.port) as line:
        host = ssh_server.add_host("listed", port=line.port)
        line.cut()
        assert save_list([f"{host}:{experiments}"])

        (path,) = load_list()

        with Home(path) as home:
            home.until((f"{host}:{experiments}", Phase.UNREADABLE))
            line.mend()
            home.until(
                *((f"{host}:{experiments}/2026/{name}", Phase.READ) for name in ("first", "second"))
            )
