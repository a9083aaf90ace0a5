"""The credentials of a tracking server are sent to it only, in one header."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from metlmon.cli import Exit
from metlmon.cli.arguments import COMMANDS
from metlmon.cli.main import main
from metlmon.tracking.mlflow_export import MlflowExporter
from tests.support.faulty_tracker import (
    Answer,
    Call,
    FaultyTracker,
    SlowAnswer,
    canned_tracker,
    take_everything,
)
from tests.support.tracked_ensembles import small_ensemble

ROOT: Final = Path(__file__).resolve().parents[2]

TOKEN: Final = "opensesame-not-a-shape-7"
"""Like no issuer's: nothing but its being the token shows that it is one."""

PASSWORD: Final = "open sesame"
BASIC: Final = b64encode(f"ada:{PASSWORD}".encode()).decode()
SECRETS: Final = (TOKEN, PASSWORD, BASIC, "open%20sesame")


class Way(NamedTuple):
    """A way to give credentials: variables, lines of ``[tracking]``, and the resulting header."""

    variables: Mapping[str, str]
    settings: str
    header: str


BEARER: Final = f"Bearer {TOKEN}"
WAYS: Final = {
    "token": Way({"MLFLOW_TRACKING_TOKEN": TOKEN}, "", BEARER),
    "password": Way(
        {"MLFLOW_TRACKING_USERNAME": "ada", "MLFLOW_TRACKING_PASSWORD": PASSWORD},
        "",
        f"Basic {BASIC}",
    ),
    "address": Way({"MLFLOW_TRACKING_URI": "http://ada:open%20sesame@"}, "", f"Basic {BASIC}"),
    "settings token": Way({}, f'token = "{TOKEN}"\n', BEARER),
    "settings password": Way({}, f'username = "ada"\npassword = "{PASSWORD}"\n', f"Basic {BASIC}"),
}


@pytest.fixture(name="tracker")
def _tracker() -> Iterator[FaultyTracker]:
    with canned_tracker() as tracker:
        yield tracker


@pytest.fixture(name="home", autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, a cache and a working directory for this test only."""
    home = tmp_path / "home"
    for name in ("CONFIG", "CACHE", "DATA", "STATE"):
        (home / name).mkdir(parents=True)
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("METLMON_TRACEBACK", "1")
    for variable in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(home)
    return home


@pytest.fixture(name="way", params=WAYS)
def _way(
    request: pytest.FixtureRequest,
    tracker: FaultyTracker,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Way:
    way = WAYS[request.param]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracker.url)
    for name, value in way.variables.items():
        address = tracker.url.removeprefix("http://") if name.endswith("URI") else ""
        monkeypatch.setenv(name, value + address)
    if way.settings:
        settings = home / "CONFIG" / "metlmon" / "metlmon.toml"
        settings.parent.mkdir()
        settings.write_text(f'[tracking]\nuri = "{tracker.url}"\n{way.settings}')
    return way


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Path:
    return small_ensemble(tmp_path / "ensemble").path


def run(*arguments: object) -> tuple[int, str]:
    shown = io.StringIO()
    code = 0
    with redirect_stdout(shown), redirect_stderr(shown), suppress(SystemExit):
        code = main([str(argument) for argument in arguments])
    return code, shown.getvalue()


def export(dagdir: Path, *more: object) -> tuple[int, str]:
    return run("export", dagdir, "--to", "mlflow", *more)


def secrets_in(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def check_nothing_is_left(home: Path, dagdir: Path) -> None:
    """Check that no file below has one, except the settings written by hand."""
    for folder in (home, dagdir):
        for path in folder.rglob("*"):
            assert not secrets_in(path.name)
            if path.is_file() and path.parent.parent.name != "CONFIG":
                assert not secrets_in(path.read_bytes().decode("latin-1")), path


def test_credentials_are_in_one_header_and_no_output(
    way: Way, tracker: FaultyTracker, dagdir: Path, home: Path
) -> None:
    for more in ((), ("--follow",), ("--dry-run",)):
        tracker.calls.clear()
        code, shown = export(dagdir, *more)
        assert (code, secrets_in(shown)) == (Exit.OK, []), shown
        assert len(tracker.calls) >= 2
        for call in tracker.calls:
            headers = dict(call.headers)
            assert headers.pop("Authorization") == way.header
            content = call.body.decode("latin-1")
            assert not secrets_in(f"{call.method} {call.path} {headers} {content}")
    check_nothing_is_left(home, dagdir)


def echo(call: Call, code: int = 401) -> Answer:
    """A refusal that repeats the whole request."""
    text = f"no: {call.headers} {call.headers.get('Authorization')}"
    return Answer(code, json.dumps({"error_code": text, "message": text}).encode())


@pytest.mark.parametrize("code", [401, 500])
def test_server_that_repeats_the_credentials(
    code: int,
    way: Way,
    tracker: FaultyTracker,
    dagdir: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("metlmon.tracking.mlflow_export.time.sleep", lambda seconds: None)
    for first in (0, 5):
        tracker.reset()
        tracker.fault = lambda c: echo(c, code) if c.number >= first else take_everything(c)  # noqa: B023
        status, shown = export(dagdir)
        assert status == Exit.REFUSED
        assert shown.count("\n") == 1
        # MLflow keeps only the number of a transient failure.
        assert ("(hidden)" in shown) == (code != 500)
        assert not secrets_in(shown)
    check_nothing_is_left(home, dagdir)


def test_server_with_credentials_in_runs(way: Way, tracker: FaultyTracker, dagdir: Path) -> None:
    """Ids, artifacts, params and tags of a server that repeats the header."""

    def answer(call: Call) -> Answer:
        word = call.headers["Authorization"]
        info = {"run_id": word, "artifact_uri": f"mlflow-artifacts:/{word}", "status": "RUNNING"}
        tags = [{"key": "metlmon.key", "value": key} for key in ("", word)]
        params = [{"key": "lr", "value": word}]
        data = {"tags": tags, "params": params}
        runs = [{"info": info, "data": data}, {"info": info, "data": {**data, "metrics": []}}]
        body: Any = {"experiment": {"experiment_id": word}, "run": runs[0], "runs": runs}
        return Answer(200, json.dumps(body).encode())

    tracker.fault = answer
    _, shown = export(dagdir)
    assert "has a second run" in shown
    assert "the param lr is" in shown
    assert not secrets_in(shown)


@pytest.mark.parametrize("code", [301, 308])
def test_other_servers_never_receive_the_credentials(
    code: int, way: Way, tracker: FaultyTracker, dagdir: Path
) -> None:
    with canned_tracker() as other:
        target = f"http://ada:{TOKEN}@127.0.0.1:{other.port}/?key={TOKEN}"
        tracker.always(Answer(code, headers=(("Location", target),)))
        status, shown = export(dagdir)
        assert (status, secrets_in(shown), other.calls) == (Exit.REFUSED, [], [])
        assert f"error code {code}" in shown


def test_internal_errors_have_no_credentials(
    way: Way, dagdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: MlflowExporter, *_: object) -> None:
        raise RuntimeError(f"{vars(self)} {vars(self._server)}")

    monkeypatch.setattr(MlflowExporter, "_export_once", fail)
    for more in ((), ("--follow",)):
        status, shown = export(dagdir, *more)
        assert status == Exit.BROKEN
        assert "Traceback" in shown
        assert not secrets_in(shown)


def test_settings_are_shown_without_credentials(way: Way, dagdir: Path) -> None:
    for command in (("config", "show"), ("config", "validate"), ("config", "path")):
        for form in ((), ("--json",)):
            _, shown = run(*command, dagdir, *form)
            assert shown
            assert not secrets_in(shown)


def test_errors_of_settings_quote_no_credentials(home: Path, dagdir: Path) -> None:
    settings = home / "CONFIG" / "metlmon" / "metlmon.toml"
    settings.parent.mkdir()
    for line in (
        f'uri = "http://ada:{TOKEN}@x"',
        f'tokn = "{TOKEN}"',
        f'token = ["{TOKEN}"]',
        f'token = "{TOKEN}é"',
        f'password = "{TOKEN}',
    ):
        settings.write_text(f"[tracking]\n{line}\n")
        for command in (("status",), ("config", "show"), ("config", "validate")):
            _, shown = run(*command, dagdir)
            assert not secrets_in(shown), line
        assert "metlmon.toml" in shown


def test_no_option_takes_credentials() -> None:
    """Every user of a machine sees all command lines."""
    names = [argument.name for argument in COMMANDS["export"].arguments]
    assert "--tracking-uri" in names
    assert not [name for name in names if "token" in name or "password" in name]


def test_process_list_has_no_credentials(way: Way, tracker: FaultyTracker, dagdir: Path) -> None:
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("no /proc")
    slow = SlowAnswer()
    tracker.always(slow)
    words = [sys.executable, "-m", "metlmon", "export", str(dagdir), "--to", "mlflow"]
    process = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert slow.begun.wait(60)
        lines = [path.read_bytes() for path in Path(f"/proc/{process.pid}").glob("task/*/comm")]
        lines.append(Path(f"/proc/{process.pid}/cmdline").read_bytes())
        assert b"metlmon" in lines[-1]
        assert not secrets_in(b" ".join(lines).decode("latin-1"))
    finally:
        process.kill()
        out, _ = process.communicate()
    assert not secrets_in(out)
