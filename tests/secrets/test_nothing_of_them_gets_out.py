"""No key of a dagdir reaches what is printed, written, kept or raised."""

from __future__ import annotations

import io
import json
import os
import traceback
import zipfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest

from metlmon.cli.main import main
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.redact import HIDDEN
from tests.generated import sweeps
from tests.secrets.secret_dagdir import NODES, Planted, plant
from tests.support.canned_tracker import canned_tracker


@pytest.fixture(name="planted")
def _planted(tmp_path: Path) -> Planted:
    return plant(tmp_path / "ensemble")


@pytest.fixture(name="home", autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, a cache and a working directory of this test alone."""
    home = tmp_path / "home"
    for name, variable in (
        *((".config", "XDG_CONFIG_HOME"), (".cache", "XDG_CACHE_HOME")),
        *((".local/share", "XDG_DATA_HOME"), (".local/state", "XDG_STATE_HOME")),
    ):
        (home / name).mkdir(parents=True)
        monkeypatch.setenv(variable, str(home / name))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(home))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return home


def printed(*arguments: str) -> str:
    """What a command prints on standard output."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        main([*arguments])
    return out.getvalue()


def output_of(*arguments: str) -> str:
    """All that a command says, on both streams."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), suppress(SystemExit):
        main([*arguments])
    return out.getvalue() + err.getvalue()


def written_below(*folders: Path) -> bytes:
    """The bytes of all files, and their names; what is packed also unpacked."""
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            found.append(os.fsencode(path.name))
            if path.is_file():
                found.append(path.read_bytes())
                if zipfile.is_zipfile(path):
                    with zipfile.ZipFile(path) as packed:
                        found += [packed.read(name) for name in packed.namelist()]
    return b"\n".join(found)


COMMANDS = [
    ("status",),
    ("status", "--json"),
    ("jobs",),
    ("jobs", "--json"),
    ("sites",),
    ("sites", "--json"),
    ("timeline",),
    ("timeline", "--json"),
    ("curves",),
    ("curves", "--json"),
    ("estimate",),
    ("estimate", "--json"),
    ("estimate", "--backtest"),
    ("nodes",),
    ("nodes", "--json"),
    ("grid",),
    ("grid", "--json"),
    ("shards",),
    ("shards", "--json"),
    ("continue", "--dry-run"),
    ("continue", "--dry-run", "--json"),
    ("report",),
    ("report", "--json"),
    ("report", "--html", "-"),
    ("report", "--md", "-"),
    ("config", "show"),
    ("config", "validate"),
    ("check",),
    ("check", "--json"),
    ("export", "--to", "openmetrics"),
    ("export", "--to", "optuna", "--out", "-"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_says_one(command: tuple[str, ...], planted: Planted) -> None:
    shown = output_of(*command[:1], str(planted.path), *command[1:])
    if command[0] == "config":
        shown = output_of(*command, str(planted.path))
    assert shown
    assert planted.left_in(shown.encode()) == []


def test_of_a_wandb_run_only_the_numbers_are_said(planted: Planted) -> None:
    shown = printed("curves", str(planted.path), "--json")
    (run,) = json.loads(shown)["runs"]
    assert [(point["epoch"], point["value"]) for point in run["points"]] == [(1, 0.5)]
    assert "remark" not in shown


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_nor_does_a_comparison(more: tuple[str, ...], planted: Planted) -> None:
    shown = output_of("compare", "3f1c2d4e", "79", str(planted.path), *more)
    assert "run_name" in shown or "epochs" in shown
    assert planted.left_in(shown.encode()) == []


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_nor_does_a_run_or_an_action(more: tuple[str, ...], planted: Planted) -> None:
    shown = output_of("run", "3f1c2d4e", str(planted.path), *more)
    assert "train_epoch" in shown or "epoch" in shown
    shown += output_of("act", "release", str(planted.path), "77.0", "--yes", *more)
    assert planted.left_in(shown.encode()) == []


def test_what_stands_around_them_is_reported(planted: Planted) -> None:
    job = next(
        each
        for each in json.loads(printed("jobs", str(planted.path), "--json"))["jobs"]
        if each["cluster"] == 77
    )
    output = json.dumps(job)
    assert f"https://{HIDDEN}@example.org/data was read" in output
    assert f"cannot run train.sh --token {HIDDEN} any more" in output
    status = output_of("status", str(planted.path), "--json")
    assert f"has --token {HIDDEN} in it" in status
    assert f"cannot go on with token={HIDDEN} in there" in status


@pytest.mark.parametrize("target", ["openmetrics", "optuna"])
def test_no_exporter_of_a_sweep_writes_one(target: str, tmp_path: Path) -> None:
    """Each key is swept: half of the runs have one, the others another."""
    dagdir = tmp_path / "sweep"
    sweeps.write(dagdir, rates=("1e-4", "0.1"), widths=("64", "32"))
    keys = [f"ghp_{letter}q7Xz2LmP9vRk4TbN8sWd3HyJ5cFg6AeQ" for letter in "ab"]
    dag = (dagdir / "sweep.dag").read_text()
    for number in range(4):
        key = keys[number % 2]
        more = f'api_token="{key}" note="password: {key}" plain="{key}"'
        dag = dag.replace(f'run="run{number:02}"', f'run="run{number:02}" {more}')
    (dagdir / "sweep.dag").write_text(dag)
    with (dagdir / "metl.log").open("a") as log:
        log.write(
            "012 (501.000.000) 2026-05-05 09:00:00 Job was held.\n"
            f"\tcurl --token {keys[0]} failed\n\tCode 0 Subcode 0\n...\n"
        )
    shown = output_of("export", str(dagdir), "--to", target, "--out", "-")
    assert "run03" in shown
    assert not [key for key in keys if key in shown]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_no_table_holds_one(form: str, planted: Planted, tmp_path: Path) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / "tables"
    shown = output_of("export", str(planted.path), "--to", form, "--out", str(out))
    written = written_below(out)
    if form == "parquet":
        import pandas

        tables = [pandas.read_parquet(path).to_csv() for path in out.glob("*.parquet")]
        written += "\n".join(tables).encode()
    assert b"cannot run train.sh" in written
    assert b"password: (hidden)" in written
    assert planted.left_in(shown.encode() + written) == []


def test_nothing_is_written_with_one(planted: Planted, tmp_path: Path, home: Path) -> None:
    html, md = tmp_path / "here" / "r.html", tmp_path / "here" / "r.md"
    output_of("report", str(planted.path), "--html", str(html), "--md", str(md))
    for command in COMMANDS[:8]:
        output_of(*command[:1], str(planted.path), *command[1:])
    assert b"3f1c2d4e" in html.read_bytes()
    assert planted.left_in(written_below(tmp_path / "here", home)) == []


def test_a_tracking_server_gets_none(planted: Planted) -> None:
    with canned_tracker() as tracker:
        command = ("export", str(planted.path), "--to", "mlflow", "--tracking-uri", tracker.url)
        shown = output_of(*command) + output_of(*command, "--follow")
        sent = b"\n".join(call.path.encode() + call.body for call in tracker.calls)
    assert "2 new runs" in shown
    assert b"3f1c2d4e" in sent
    assert b"metlmon.gpu_hours_badput" in sent
    assert planted.left_in(shown.encode() + sent) == []


# --- faults -----------------------------------------------------------------------------------


def test_a_model_that_is_spoilt_raises_none(planted: Planted) -> None:
    """Whatever breaks in a model that was read: its texts are in no traceback, not even as the
    locals of a frame, nor in what another process would be given."""
    reader = DagdirReader(planted.path)
    reader.open()
    reader.read_all()
    picture = reader.snapshot_builder()
    views = [picture.status(), picture.job_view(77, 0), picture.problems(), picture.runs]
    try:
        raise RuntimeError(views)
    except RuntimeError as error:
        result = traceback.TracebackException.from_exception(error, capture_locals=True)
        shown = "".join(result.format())
    assert NODES[0] in shown
    assert planted.left_in(shown.encode()) == []


def test_a_dag_file_that_is_refused_quotes_none(planted: Planted) -> None:
    for line in (
        "JOB run1 --token {refused-1}",
        "VARS X --token {refused-2}",
        "RETRY {first} 3 ghp_{refused-8}q7Xz2LmP9vRk4TbN8sWd3HyJ",
        "RETRY {first} 3 --token " + "{refused-9}" * 9,
        "RETRY {first} token={refused-3}",
        "SCRIPT {refused-4}=password PRE",
        "JOB {first} {{\nenvironment = OMP={refused-5}",
        "JOB A a.sub ghp_{refused-6}q7Xz2LmP9vRk4TbN8sWd3HyJ",
        "ENV SOMETHING OMP={refused-7}",
    ):
        planted.write("run.dag", line + "\n")
        shown = output_of("status", str(planted.path)) + output_of("check", str(planted.path))
        assert shown
        assert planted.left_in(shown.encode()) == []


def test_settings_that_are_wrong_quote_none(planted: Planted) -> None:
    for text in (
        '[metrics]\nprimary = 3\nnonsense = "password={toml-1}"\n',
        'labels = "token={toml-2}"\n',
        '[metrics]\npatterns = ["(?P<value>token={toml-3}("]\n',
        'read_only = "token={toml-4}"\n',
        'token = "{toml-5}"\n',
        "password={toml-6}\n",
    ):
        planted.write("metlmon.toml", text)
        shown = output_of("status", str(planted.path))
        for what in ("show", "validate"):
            shown += output_of("config", what, str(planted.path)) + output_of(
                "config", what, str(planted.path), "--json"
            )
        assert "metlmon.toml" in shown
        assert planted.left_in(shown.encode()) == []


def test_settings_that_are_right_are_shown_without_them(planted: Planted) -> None:
    planted.write(
        "metlmon.toml",
        '[site_aliases]\n"token={toml-7}" = "password={toml-8}"\n'
        '[[label]]\nname = "https://me:{toml-9}@example.org"\nruns = ["api_key={toml-10}"]\n',
    )
    for form in ((), ("--json",)):
        shown = output_of("config", "show", str(planted.path), *form)
        assert "(hidden)" in shown
        assert planted.left_in(shown.encode()) == []


def test_arguments_that_are_wrong_quote_none(planted: Planted) -> None:
    key = planted.key("typed")
    for arguments in (
        ("status", f"/nowhere/token={key}"),
        ("status", str(planted.path), f"--token={key}"),
        ("submit", "--set", f"wandb_key {key}"),
        ("submit", "x", "--set", f"wandb_key={key}", "--dry-run"),
    ):
        shown = output_of(*arguments)
        assert shown
        assert planted.left_in(shown.encode()) == []


TEMPLATE = """\
# template: One that is given a key
# parameter: wandb_key = none | the key
# parameter: colour = red | its colour
# parameter: api_token = 1 | a small one
# allowed: api_token 1..9
executable = /bin/true
arguments = --token {wandb_key} --epochs $(epoch) --colour {colour}
environment = "WANDB_API_KEY={wandb_key} OMP=sesame"
log = {name}.log
queue
"""


def test_what_would_be_submitted_is_shown_without_them(planted: Planted, tmp_path: Path) -> None:
    template = tmp_path / "key.sub"
    template.write_text(TEMPLATE)
    key = planted.key("typed")
    asked = ("submit", str(tmp_path / "new"), "--template", str(template), "--dry-run")
    for more in ((), ("--json",)):
        shown = output_of(*asked, "--set", f"wandb_key={key}", *more)
        assert "--colour red" in shown
        assert "looks like a secret" in shown
        assert "sesame" not in shown
        assert planted.left_in(shown.encode()) == []
        wrong = output_of(*asked, "--set", f"api_token={planted.key('wrong')}", *more)
        assert f"api_token is '{HIDDEN}'" in wrong
        assert planted.left_in(wrong.encode()) == []


def test_nor_does_what_would_be_written_show_them(planted: Planted, tmp_path: Path) -> None:
    template = tmp_path / "key.sub"
    template.write_text(TEMPLATE)
    key = planted.key("typed")
    asked = ("new", str(tmp_path / "made"), "--template", str(template), "--runs", "2")
    for more in (
        *(("--dry-run",), ("--dry-run", "--json"), ("--picture",), ("--explain",)),
        *(("--explain", "run0-train_epoch0"), ("--explain", "--json")),
    ):
        shown = output_of(*asked, "--set", f"wandb_key={key}", "--var", f"api_token={key}x1", *more)
        assert "run0" in shown
        assert planted.left_in(shown.encode()) == []
