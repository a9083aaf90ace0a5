"""``status`` of several ensembles, or of all below a directory; when Home opens."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from metlmon.cli import Exit, reading
from metlmon.cli.commands import status as status_command
from metlmon.cli.main import main
from metlmon.home.places import save_list
from tests.support.commands import Captured, json_output, run_command
from tests.support.dagdir_builder import Dagdir, log_of
from tests.support.recordings import FIXTURES

HOLDS, RESCUE = FIXTURES / "holds", FIXTURES / "rescue"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_each_ensemble_has_a_line(capsys: Captured) -> None:
    code, out, err = run_command("status", capsys, HOLDS, RESCUE)
    assert (code, err) == (Exit.OK, "")
    lines = out.splitlines()
    assert lines[0] == "2 ensembles"
    assert lines[2].split()[:4] == ["ENSEMBLE", "STATE", "HEALTH", "BADPUT"] or lines[2]
    assert [text.split()[0] for text in lines[3:]] == ["holds", "rescue"]
    assert "24/24" in lines[3]
    _, out, _ = run_command("health", capsys, FIXTURES / "demo", RESCUE)
    first, second = out.index(str(FIXTURES / "demo")), out.index(str(RESCUE))
    assert out[first:second].count("run4")


@pytest.mark.parametrize("command", ["status", "health"])
def test_json_is_one_object_per_line(capsys: Captured, command: str) -> None:
    code, out, _ = run_command(command, capsys, HOLDS, RESCUE, "--json")
    assert code == Exit.OK
    each = [json.loads(text) for text in out.splitlines()]
    assert each == [json_output(command, capsys, path) for path in (HOLDS, RESCUE)]


def test_unreadable_ensemble_is_reported_beside_the_others(
    tmp_path: Path, capsys: Captured
) -> None:
    code, out, err = run_command("status", capsys, tmp_path / "gone", HOLDS)
    assert code == Exit.USAGE
    assert "1 ensemble" in out
    assert f"{tmp_path / 'gone'}: No such file or directory; give the directory of a DAG" in err


@pytest.mark.parametrize("words", [["--only", "run0"], ["--exit-on", "all"], ["--queue"]])
def test_options_for_one_ensemble_are_refused_for_several(
    words: list[str], capsys: Captured
) -> None:
    code, _, err = run_command("status", capsys, HOLDS, RESCUE, *words)
    assert code == Exit.USAGE
    assert f"{words[0]} is for one ensemble" in err


# --- Home or one dashboard ------------------------------------------------------------------


class Opening(Exception):
    """What would open on a terminal."""


@pytest.fixture(name="terminal")
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def home(options: object, listed: object) -> int:
        raise Opening("home", options.dirs, list(listed))  # type: ignore[attr-defined,call-overload]

    def one(options: object) -> None:
        raise Opening("one", options.dir)  # type: ignore[attr-defined]

    def crash(error: Exception) -> int:
        raise error

    monkeypatch.setattr("metlmon.cli.output.is_terminal", lambda: True)
    monkeypatch.setattr(status_command, "is_terminal", lambda: True)
    monkeypatch.setattr(status_command, "_open_home", home)
    monkeypatch.setattr(status_command, "new_reader", one)
    monkeypatch.setattr("metlmon.cli.main._report_crash", crash)


def opened(*words: object) -> tuple[object, ...]:
    with pytest.raises(Opening) as what:
        main([str(word) for word in words])
    return what.value.args


@pytest.mark.usefixtures("terminal")
def test_dagdir_opens_its_dashboard_and_others_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened(HOLDS) == ("one", str(HOLDS))
    assert opened("watch", HOLDS / "ens.dag") == ("one", str(HOLDS / "ens.dag"))
    assert opened(HOLDS, RESCUE) == ("home", [str(HOLDS), str(RESCUE)], [])
    assert opened("watch", FIXTURES) == ("home", [str(FIXTURES)], [])
    assert opened("--queue") == ("home", [], [])
    assert opened("--ascii", HOLDS) == ("one", str(HOLDS))
    monkeypatch.chdir(HOLDS)
    assert opened() == opened("watch") == ("one", ".")
    save_list([str(RESCUE)])
    assert opened() == ("home", [], [str(RESCUE)])
    assert opened("watch") == ("one", ".")
    save_list([])
    monkeypatch.chdir(tmp_path)
    assert opened() == ("home", [], [])


@pytest.mark.parametrize(
    ("step", "said", "complete"), [(0.0, 0, True), (4.0, 1, True), (40.0, 0, False)]
)
def test_long_search_is_reported_and_limited(
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    step: float,
    said: int,
    complete: bool,
) -> None:
    for name in ("a", "b"):
        Dagdir(tmp_path / name).write("metl.log", log_of(77))
    monkeypatch.setattr(reading, "monotonic", count(0.0, step).__next__)

    code, out, err = run_command("status", capsys, tmp_path)

    assert err.count("searching below") == said
    assert ("only the first directories" in err) is not complete
    assert code == (Exit.OK if complete else Exit.USAGE)
    assert complete is ("2 ensembles" in out)
