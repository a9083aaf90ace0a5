"""A wheel works without the checkout: demo, status, the dashboard."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.terminal import PseudoTerminal

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and nothing of the checkout. Required packages come from the
    environment of the tests, without the network."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home)
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python"]
    words = ["install", "--quiet", "--no-compile", "--no-deps", "--no-index", wheel]
    subprocess.run([*pip, *words], check=True)
    site = next(home.glob("lib/python*/site-packages"))
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def command(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(installed)}
    return subprocess.run(
        [installed / "bin" / "metlmon", *arguments],
        cwd=installed,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def test_wheel_has_the_recording_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "metlmon/story.zip" in names
    assert "metlmon/tracking/grafana_dashboard.json" in names
    assert "screens/metlmon.tcss" in names
    assert not [name for name in names if name.startswith(("tests/", "fixtures/"))]


def test_wheel_has_the_files_written_beside_a_dag(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    trainer = CHECKOUT / "metlmon" / "trainer"
    there = [path for path in trainer.rglob("*") if path.suffix in (".py", ".sh", ".sub")]
    assert {"gate.py", "train.py", "provision.sh", "multinode.sub"} <= {p.name for p in there}
    for path in there:
        assert held[path.relative_to(CHECKOUT).as_posix()] == path.read_bytes()


def test_installed_program_runs(installed: Path) -> None:
    where = subprocess.run(
        [installed / "bin" / "python", "-c", "import metlmon, screens; print(metlmon.__file__)"],
        cwd=installed,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(installed))


SHAPES = {"chain": ("--evaluate",), "multi-node": ("--machines", "2")}


@pytest.mark.parametrize("shape", SHAPES)
def test_installed_program_writes_a_dag(shape: str, installed: Path) -> None:
    asked = ("new", f"made-{shape}", "--shape", shape, *SHAPES[shape])
    done = command(installed, *asked)
    assert done.returncode == 0, done.stderr
    made = installed / f"made-{shape}"
    checked = command(installed, "check", str(made))
    assert checked.returncode == 0, checked.stdout
    if shape == "chain":
        gate = made / "gate.py"
        assert gate.read_bytes() == (CHECKOUT / "metlmon/trainer/gate.py").read_bytes()
        assert os.access(gate, os.X_OK)
    if shape == "multi-node":
        assert (made / "provision.sh").is_file()


def terminal(installed: Path, *arguments: str) -> PseudoTerminal:
    """The installed program on a terminal."""
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "HOME": str(installed),
    }
    argv = [str(installed / "bin" / "metlmon"), *arguments]
    return PseudoTerminal(argv, (80, 24), environment, cwd=installed)


def test_installed_watch_opens_and_leaves_the_terminal(installed: Path) -> None:
    with terminal(installed, "watch", str(CHECKOUT / "fixtures" / "rescue")) as screen:
        screen.until(lambda: "run3" in screen.text and "4/4" in screen.text, "no run is shown")
        screen.wait_for("16 of 16 done")
        screen.type("Q")
        assert screen.end() == 0


def test_installed_demo_plays_on_a_terminal(installed: Path) -> None:
    with terminal(installed, "demo", "--speed", "500000") as screen:
        screen.until(lambda: "running" in screen.text and "run0" in screen.text, "it does not run")
        screen.wait_for("40/40")
        screen.type("Q")
        assert screen.end() == 0
