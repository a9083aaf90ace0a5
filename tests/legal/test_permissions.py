"""A read-only dagdir of another user, with unreadable files: watching works, and no command or
screen writes there."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.command_server import ROOT, run_program
from tests.support.file_trace import Watched
from tests.support.terminal import PseudoTerminal, terminal_environment

FIXTURE = ROOT / "fixtures" / "rescue"

NOBODY = 65534

COMMANDS = (
    ["status", "{dir}"],
    ["status", "--json", "{dir}"],
    ["watch", "{dir}"],
    ["run", "run0", "{dir}"],
    ["jobs", "{dir}"],
    ["jobs", "--json", "{dir}"],
    ["sites", "{dir}"],
    ["timeline", "{dir}"],
    ["changes", "{dir}"],
    ["curves", "{dir}"],
    ["estimate", "{dir}"],
    ["report", "{dir}"],
    ["report", "{dir}", "--html", "report.html", "--md", "report.md"],
    ["export", "{dir}"],
    ["config", "show", "{dir}"],
    ["config", "validate", "{dir}"],
    ["check", "{dir}"],
    ["status", "--as-of", "2026-11-21T09:40:00", "{dir}"],
)


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Iterator[Path]:
    """A directory that others can enter, unlike pytest's own."""
    place = Path("/var/tmp") / f"metlmon-test-{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o755)
    place.chmod(0o755)
    (place / "work").mkdir()
    (place / "work").chmod(0o777)
    yield place
    for folder, _, _ in os.walk(place):
        os.chmod(folder, 0o700)
    shutil.rmtree(place)


@pytest.fixture(name="dagdir")
def _dagdir(place: Path) -> Path:
    return Path(shutil.copytree(FIXTURE, place / "ensemble"))


def ran(
    place: Path, commands: Sequence[list[str]], user: int | None = None, **environment: str
) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each command, run by ``user``."""
    env = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(place / "work"),
        "XDG_CACHE_HOME": str(place / "work" / "cache"),
        "LC_ALL": "C.UTF-8",
        **environment,
    }
    received = []
    for command in commands:
        words = [word.format(dir=place / "ensemble") for word in command]
        done = run_program(words, place / "work", env, user)
        received.append((done.returncode, done.stdout.decode(), done.stderr.decode()))
    return received


def need_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root acts for other users")


def test_no_command_writes_into_the_dagdir(place: Path, dagdir: Path) -> None:
    with Watched(dagdir):
        result = ran(place, COMMANDS)
    failed = [(c[0], err) for c, (code, _, err) in zip(COMMANDS, result, strict=True) if code]
    assert not [each for each in failed if each[0] != "check"], "check may find something"
    assert (place / "work/ensemble-export/runs.csv").exists()
    assert (place / "work/report.html").exists()


def test_default_export_is_not_into_the_dagdir(place: Path, dagdir: Path) -> None:
    """``./NAME-export`` would be in the dagdir if that is the current directory."""
    os.rmdir(place / "work")
    (place / "work").symlink_to(dagdir)
    with Watched(dagdir):
        ((code, _, err),) = ran(place, [["export", "."]], HOME="/", XDG_CACHE_HOME=str(dagdir))
    assert code == 2
    assert "where metlmon writes nothing" in err


def test_cache_in_the_dagdir_is_not_used(place: Path, dagdir: Path) -> None:
    with Watched(dagdir):
        result = ran(place, COMMANDS[:3], XDG_CACHE_HOME=str(dagdir), HOME=str(dagdir))
    assert [code for code, _, _ in result] == [0, 0, 0]


def test_read_only_dagdir_of_another_user(place: Path, dagdir: Path) -> None:
    """As nobody, without a home: the same output as for its owner."""
    need_root()
    for folder, _, files in os.walk(dagdir):
        for name in files:
            os.chmod(os.path.join(folder, name), 0o444)
        os.chmod(folder, 0o555)
    mine = ran(place, COMMANDS[:9])
    shutil.rmtree(place / "work/cache", ignore_errors=True)
    with Watched(dagdir):
        theirs = ran(place, COMMANDS[:9], NOBODY, HOME="/nonexistent", XDG_CACHE_HOME="")
    assert theirs == mine


def test_unreadable_dag_file_is_reported(place: Path, dagdir: Path) -> None:
    need_root()
    (dagdir / "ens.dag").chmod(0)
    ((code, _, err),) = ran(place, [["status", "{dir}"]], NOBODY)
    assert code == 2
    assert "ens.dag" in err
    assert "cannot be read; see who may read it" in err
    assert "Traceback" not in err


CLOSED = (
    *("metl.log", "ens.dag.nodes.log", "ens.dag.dagman.log", "ens.dag.dagman.out"),
    *("ens.dag.metrics", "ens.dag.rescue001", "ens.jobstate.log", "nodes.dag.status"),
    "metlmon.toml",
)


def test_unreadable_files_are_reported(place: Path, dagdir: Path) -> None:
    """A notice names each of them; the runs are still shown."""
    need_root()
    for name in (*CLOSED, "ens.dag.condor.sub"):
        (dagdir / name).touch()
        (dagdir / name).chmod(0)
    ((code, out, _),) = ran(place, [["status", "--json", "{dir}"]], NOBODY)
    assert code == 0
    output = json.loads(out)
    assert len(output["runs"]) == 4
    for name in CLOSED:
        result = [each for each in output["warnings"] if name in str(each["file"])]
        assert any("cannot be read" in each["text"] for each in result), (name, output["warnings"])


KEYS = (
    *("j", "k", "\r", "j", "\r", "l", "e", "\x1b", "\x1b", "\x1b"),
    *("1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "\x1b"),
    *("?", "\x1b", "/", "run", "\r", "\x1b", "s", "t", "c", "w", "g", "i", "\x1b", "f", "\x1b"),
    *("m", "n", "p", "o", "\t", " ", "a", "\x1b", "\x1b", "z", "r", "d", "\x1b", "u", "y", "\x1b"),
)


def test_no_key_writes_into_the_dagdir(place: Path, dagdir: Path) -> None:
    cache = str(place / "work/cache")
    environment = terminal_environment(
        HOME=str(place / "work"), XDG_CACHE_HOME=cache, PYTHONPATH=str(ROOT)
    )
    argv = [sys.executable, "-m", "metlmon", "watch", str(dagdir)]
    with (
        Watched(dagdir),
        PseudoTerminal(argv, (100, 30), environment, cwd=place / "work") as screen,
    ):
        screen.wait_for("run0")
        for key in KEYS:
            screen.type(key)
            screen.rest(0.06)

        def ends() -> bool:
            # On a busy machine an escape and the next key may be taken for one.
            for key in ("\x1b", "Q"):
                screen.type(key)
                screen.rest(0.5)
            return screen.child.poll() is not None

        screen.until(ends, "it does not end")
        assert screen.end() == 0
    assert b"Traceback" not in screen.bytes
