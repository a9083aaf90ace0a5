"""The commands for scripts: exit codes, one sentence for bad input, one JSON object on standard
output, and no control sequence."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.cli import Exit, arguments, output
from metlmon.cli.exit_conditions import exit_condition
from metlmon.cli.main import EPILOG, main
from metlmon.live.feed import unread
from metlmon.model.states import DagState, State
from metlmon.snapshot.records import Status
from metlmon.text.spans import text
from screens.overview import header
from tests.support.commands import Captured, json_output, run_command, text_output, usage_error
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log, Out

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    """One run of two epochs: the first failed once and then succeeded, the second is held."""
    dagdir = Dagdir(tmp_path / "ensemble")
    log = Log().submit(77, NODE, at="10:00:00").execute(77, gpus=2).terminate(77, 1)
    log.submit(78, NODE).transfer(78, "started input").transfer(78, "finished input")
    log.execute(78, gpus=2).terminate(78, 0, run=(5, 6), total=(5, 6), at="12:00:00")
    log.submit(79, "run0-train_epoch1").execute(79, gpus=1).hold(79, 34, "memory exceeded")
    dagdir.write("metl.log", log.data)
    return dagdir


spoken = partial(run_command, "")


# --- bad input ------------------------------------------------------------------------------


a_sentence = partial(usage_error, "")


COMMANDS = pytest.mark.parametrize(
    "command", [["status"], ["jobs", "--json"], ["watch"]], ids=" ".join
)


@COMMANDS
@pytest.mark.parametrize(
    ("name", "sentence"), [("nowhere", "nowhere: no such directory"), ("", "no DAG file here")]
)
def test_directory_without_an_ensemble_is_refused(
    capsys: Captured, tmp_path: Path, command: list[str], name: str, sentence: str
) -> None:
    assert sentence in a_sentence(capsys, *command, str(tmp_path / name))


@COMMANDS
def test_error_of_a_dag_has_its_line(capsys: Captured, tmp_path: Path, command: list[str]) -> None:
    lines = ["JOB A t.sub"] + ["# a comment"] * 5 + ["PARENT A CHILD nobody"]
    (tmp_path / "x.dag").write_text("\n".join(lines) + "\n")
    result = a_sentence(capsys, *command, str(tmp_path))
    assert "x.dag:7" in result
    assert "nobody" in result


@pytest.mark.parametrize("given", [".", "..", "run.dag"])
def test_directory_is_shown_by_its_name(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """In text for people; the JSON has the path as it was given."""
    dagdir = Dagdir(tmp_path / "ensemble")
    (dagdir.path / "below").mkdir()
    monkeypatch.chdir(dagdir.path / "below" if given == ".." else dagdir.path)
    name = "run.dag" if given == "run.dag" else "ensemble"
    first = text_output("report", capsys, given).splitlines()[0]
    assert first.endswith(name)
    assert json_output("status", capsys, given)["dagdir"] == str(Path(given))
    shown = str(Path(given).parent if given == "run.dag" else Path(given))
    assert "ensemble" in text(header(unread(Path(shown)), shown, 80)[0])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--as-of", "noon"], "--as-of 'noon' is not a time"),
        (["--as-of", "2026-05-04T10:00:00Z"], "names a zone"),
        (["--as-of", "0001-01-01T00:00:00Z", "--tz", "America/Chicago"], "outside the calendar"),
        (["--tz", "Mars/Olympus"], "'Mars/Olympus' is not a time zone"),
        (["--exit-on", "sunshine"], "--exit-on 'sunshine': there are all, done, failed, held, st"),
        (["--exit-on", ","], "there are all, done, failed, held, stalled"),
    ],
)
def test_invalid_arguments_are_refused(
    capsys: Captured, dagdir: Dagdir, words: list[str], sentence: str
) -> None:
    assert sentence in a_sentence(capsys, "status", str(dagdir.path), *words)


# --- choosing a run -------------------------------------------------------------------------


@pytest.fixture(name="two_runs")
def _two_runs(tmp_path: Path) -> Path:
    text = "".join(
        f'JOB {run}-train_epoch0 t.sub\nVARS {run}-train_epoch0 run_uuid="{uuid}"\n'
        for run, uuid in (("run0", "aaaa1111"), ("run1", "aabb2222"))
    )
    return Dagdir(tmp_path / "ensemble", text).path


def test_prefix_of_the_uuid_selects_a_run(capsys: Captured, two_runs: Path) -> None:
    for prefix, uuid in (("aab", "aabb2222"), ("RUN0", "aaaa1111")):
        assert json_output("run", capsys, prefix, two_runs)["uuid"] == uuid


def test_key_of_a_run_is_not_a_remote_directory(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The key of a run without a uuid looks like HOST:DIR."""
    dagdir = Dagdir(tmp_path / "ensemble", dag=f"JOB {NODE} a.sub\n")
    dagdir.write("metl.log", Log().submit(77, NODE).execute(77).data)
    (run,) = json_output("status", capsys, str(dagdir.path))["runs"]
    assert ":" in run["key"]
    assert json_output("run", capsys, run["key"], dagdir.path)["key"] == run["key"]
    monkeypatch.chdir(dagdir.path)
    assert json_output("run", capsys, run["key"])["key"] == run["key"]
    (dagdir.path / "run.dag").unlink()  # Now its job is one of no DAG.
    (run,) = json_output("status", capsys, ".")["runs"]
    assert json_output("run", capsys, run["key"])["key"] == run["key"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["aa"], ["2 matches", "aaaa1111", "aabb2222"]),
        (["zz"], ["no such run", "aaaa1111"]),
        ([], ["metlmon run RUN ", "aaaa1111"]),
    ],
    ids=["ambiguous", "unknown", "a directory alone"],
)
def test_unknown_run_lists_the_candidates(
    capsys: Captured, two_runs: Path, words: list[str], said: list[str]
) -> None:
    result = a_sentence(capsys, "run", *words, str(two_runs))
    assert all(each in result for each in said)
    assert "no DAG file" not in result


@pytest.mark.parametrize(
    ("only", "listed"),
    [
        ("run0", ["run0"]),
        ("aab", ["run1"]),
        ("run0,aabb", ["run0", "run1"]),
        ("run*", ["run0", "run1"]),
    ],
)
def test_only_lists_these_runs(
    capsys: Captured, two_runs: Path, only: str, listed: list[str]
) -> None:
    status = json_output("status", capsys, str(two_runs), "--only", only)
    assert [run["run"] for run in status["runs"]] == listed
    assert sum(status["epoch_states"].values()) == 2, "totals stay the whole ensemble's"


@pytest.mark.parametrize(
    ("command", "only"), [("status", "nobody"), ("jobs", ","), ("watch", "b*")]
)
def test_only_without_a_match_names_the_runs(
    capsys: Captured, two_runs: Path, command: str, only: str
) -> None:
    result = a_sentence(capsys, command, str(two_runs), "--only", only)
    assert f"--only {only}: no such run; there are run0 (aaaa1111), run1 (aabb2222)" in result


# --- the JSON contract ----------------------------------------------------------------------


def test_unknown_values_are_null(capsys: Captured, tmp_path: Path) -> None:
    bare = Dagdir(tmp_path / "bare", "JOB run0-train_epoch0 t.sub\n")
    status = json_output("status", capsys, str(bare.path))
    assert status["as_of"] is None
    assert status["runs"][0]["uuid"] is status["runs"][0]["latest"] is None
    assert status["dags"][0]["dagmans"] is status["dags"][0]["rescue"] is None
    hours = {"goodput": 0, "badput": 0, "running": 0, "total": 0}
    assert status["hours"] == {**hours, "measure": "GPU"}


CHICAGO = ("--tz", "America/Chicago")


@pytest.mark.parametrize(
    ("words", "as_of", "state"),
    [
        ((), "2026-05-04T12:03:00", "held"),
        (CHICAGO, "2026-05-04T12:03:00-05:00", "held"),
        (("--as-of", "2026-05-04T10:01:30"), "2026-05-04T10:01:30", "running"),
        (("--as-of", "2026-05-04T15:01:30Z", *CHICAGO), "2026-05-04T10:01:30-05:00", "running"),
    ],
)
def test_as_of_limits_events_and_has_the_known_zone(
    capsys: Captured, dagdir: Dagdir, words: tuple[str, ...], as_of: str, state: str
) -> None:
    status = json_output("status", capsys, str(dagdir.path), *words)
    assert (status["as_of"], status["runs"][0]["state"]) == (as_of, state)


def test_as_of_before_the_first_event_is_reported(capsys: Captured, dagdir: Dagdir) -> None:
    early = (str(dagdir.path), "--as-of", "2026-05-04T09:00:00")
    result = (
        "nothing had been logged by 2026-05-04 09:00:00: the first event is of 2026-05-04 10:00"
    )
    _, out, _ = spoken(capsys, "status", *early, "--json")
    outcome = [each for each in json.loads(out)["warnings"] if result in each["text"]]
    assert [each["kind"] for each in outcome] == ["before-first-event"]
    _, out, _ = spoken(capsys, "status", *early)
    assert "snapshot 4 May 2026 09:00, before anything was logged" in out
    assert result in " ".join(out.split())
    for command in ("jobs", "nodes", "timeline", "sites", "usage", "run"):
        words = ("run0", *early) if command == "run" else early
        assert result in spoken(capsys, command, *words)[2], command
    _, out, _ = spoken(capsys, "status", str(dagdir.path), "--as-of", "2026-05-04T10:00:00")
    assert "before anything" not in out
    assert result not in out


# --- waiting --------------------------------------------------------------------------------


TWO_RUNS = "".join(
    f"JOB run{run}-train_epoch{epoch} t.sub\n" for run in (0, 1) for epoch in (0, 1)
) + "".join(f"PARENT run{r}-train_epoch0 CHILD run{r}-train_epoch1\n" for r in (0, 1))


LIVES = Out().start("09:00:00")


@pytest.mark.parametrize(
    ("ended", "out", "code"),
    [
        ({"run0-train_epoch0": 1, "run1-train_epoch0": None}, LIVES, Exit.FAILED),
        ({"run0-train_epoch0": 1, "run1-train_epoch0": None}, None, Exit.FAILED),
        (
            {"run0-train_epoch0": 1, "run1-train_epoch0": 0, "run1-train_epoch1": 0},
            LIVES,
            Exit.FAILED,
        ),
        ({"run0-train_epoch0": 1, "run1-train_epoch0": 0}, LIVES, Exit.TIMEOUT),
    ],
    ids=["its DAGMan lives", "no file of DAGMan's", "the other one is done", "one goes on"],
)
def test_exit_on_all_ends_when_no_run_can_continue(
    capsys: Captured, tmp_path: Path, ended: dict[str, int | None], out: Out | None, code: Exit
) -> None:
    """``ended``: the return values of nodes, None: removed; DAGMan still waits for another."""
    dagdir = Dagdir(tmp_path / "ensemble", f"{TWO_RUNS}JOB summary t.sub\n")
    log = Log()
    for job, (node, value) in enumerate(ended.items(), start=77):
        log.submit(job, node).execute(job)
        log.remove(job) if value is None else log.terminate(job, value)
    dagdir.write("metl.log", log.submit(90, "summary").execute(90).data)
    if out is not None:
        dagdir.write("run.dag.dagman.out", out.data)
    asked = ("status", str(dagdir.path), "--exit-on", "all", "--timeout", "0")
    assert spoken(capsys, *asked)[0] == code


def test_exit_on_all_with_stopped_runs() -> None:
    """``gated``: three runs were stopped, two are done."""
    reader = Dagdir(ROOT / "fixtures/gated", "").reader()
    status, condition = reader.snapshot_builder().status(), exit_condition("all")

    def met(status: Status) -> Exit | None:
        return condition(status, lambda: None)

    assert met(status) is Exit.OK
    stopped = tuple(run for run in status.runs if run.gate and run.gate.stopped)
    assert len(stopped) == 3
    assert met(replace(status, runs=stopped)) is Exit.FAILED
    # The gate has stopped it, but DAGMan has not reached the nodes behind it yet.
    before = tuple(replace(run, epochs_skipped=0) for run in stopped)
    alive = tuple(replace(dag, state=DagState.RUNNING) for dag in status.dags)
    assert met(replace(status, dags=alive, runs=before)) is Exit.FAILED
    training = (*before[1:], replace(before[0], state=State.RUNNING))
    assert met(replace(status, dags=alive, runs=training)) is None


def test_exit_on_held_or_timeout(capsys: Captured, dagdir: Dagdir) -> None:
    path = str(dagdir.path)
    code, out, _ = spoken(capsys, "status", path, "--exit-on", "done,held", "--json")
    assert code == Exit.HELD == 4
    assert json.loads(out)["epoch_states"]["held"] == 1
    code, out, err = spoken(capsys, "status", path, "--exit-on", "done", "--timeout", "0")
    assert code == Exit.TIMEOUT == 5
    assert "run0" in out
    assert "--timeout" in err


def test_exit_on_waits_for_its_condition(
    capsys: Captured, dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    from metlmon.cli.commands import status

    looks: list[float] = []

    def meanwhile(seconds: float) -> None:
        looks.append(seconds)
        assert len(looks) < 5
        if len(looks) == 2:
            log = Log().release(79, at="13:00:00").execute(79).terminate(79, 0)
            dagdir.append("metl.log", log.data)

    monkeypatch.setattr(status.time, "sleep", meanwhile)
    assert spoken(capsys, "status", str(dagdir.path), "--exit-on", "all")[0] == Exit.OK
    assert len(looks) == 2


def test_exit_codes_agree_with_the_help() -> None:
    result = {int(code) for code in re.findall(r"^ *(\d+)  ", EPILOG, re.MULTILINE)}
    assert result == {int(code) for code in Exit}
    assert max(map(len, EPILOG.splitlines())) < 80, "not wrapped by a small terminal"


@pytest.mark.parametrize("name", arguments.COMMANDS)
def test_help_of_each_command_describes_it(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    text_of_help = capsys.readouterr().out
    usage, description, *_ = text_of_help.split("\n\n")
    assert usage.startswith(f"usage: metlmon {name}")
    assert description.endswith("."), "a sentence, before the arguments"
    assert max(map(len, text_of_help.splitlines())) <= 80
    assert name != "export" or "\nwith --to mlflow:\n  --tracking-uri" in text_of_help


# --- tables for people ----------------------------------------------------------------------


def test_output_without_utf8_is_ascii(dagdir: Dagdir) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "metlmon", "status", str(dagdir.path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_dumb_terminal_opens_no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    for term, shows in (("dumb", False), ("", False), ("xterm-256color", True)):
        monkeypatch.setenv("TERM", term)
        assert output.is_terminal() is shows


def test_version_is_printed(capsys: Captured) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    code, out, _ = spoken(capsys, "--version")
    assert (code, out) == (0, f"metlmon {project['version']}\n")


# --- completion and help --------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_names_every_command(capsys: Captured, shell: str, tmp_path: Path) -> None:
    code, out, _ = spoken(capsys, "completion", shell)
    assert code == 0
    assert all(re.search(rf"\b{name}\b", out) for name in arguments.COMMANDS)
    checker = shutil.which(shell)
    if checker is None:
        pytest.skip(f"no {shell} here to check its syntax")
    script = tmp_path / "completion"
    script.write_text(out)
    subprocess.run([checker, "-n", str(script)], check=True, timeout=30)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["metlmon", "st"], {"status"}),
        (["metlmon", "status", "--js"], {"--json"}),
        (["metlmon", "completion", "z"], {"zsh"}),
        (["metlmon", "config", "v"], {"validate"}),
    ],
)
def test_bash_completes(capsys: Captured, words: list[str], expected: set[str]) -> None:
    _, out, _ = spoken(capsys, "completion", "bash")
    ask = f"{out}\nCOMP_WORDS=({' '.join(words)})\nCOMP_CWORD={len(words) - 1}\n_shtab_metlmon\n"
    ask += 'printf "%s\\n" "${COMPREPLY[@]}"\n'
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, timeout=30)
    assert set(done.stdout.split()) == expected
