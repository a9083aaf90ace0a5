"""Every command on the hostile dagdir: its output is visible, on bounded lines, without secrets."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from metlmon.redact import HIDDEN
from tests.hostile.corpus import fields_in, forbidden
from tests.hostile.dagdir import Dagdir
from tests.hostile.keyed_files import UUID
from tests.hostile.pseudo_terminal import Terminal, without_own
from tests.hostile.test_records import texts
from tests.support.command_server import Ran

EACH = ("t", "j", "x")
"""Fields of events are distinguished by the form of their log."""


def of_each(*names: str) -> set[str]:
    return {name + form for name in names for form in EACH}


RUNS = of_each("run", "site", "gpu")
WARNED = {"dagfile", "otherdag", "badcommand", "subfile", "logfile"}
ENDED = of_each("abort", "hold", "holdover", "reconnectfail", "shadow", "shadowlast")

COMMANDS: dict[str, set[str]] = {
    "status": RUNS | of_each("resource", "hold", "stopped") | {"dagfile", "otherdag"},
    "status --json": RUNS
    | ENDED
    | WARNED
    | of_each("uuid", "resource", "stopped")
    | {"dagdir", "noise", "target", "gatename", "gatelog", "final"},
    "jobs": RUNS | of_each("hold"),
    "jobs --json": RUNS | ENDED | of_each("slot", "transferhost") | WARNED,
    "sites": RUNS | of_each("reconnectfail", "shadow"),
    "usage": of_each("site"),
    "usage --by gpu --json": of_each("gpu") | WARNED,
    "timeline": of_each("run"),
    "changes --since 30000d": of_each("run", "abort"),
    "changes --since 30000d --json": of_each("run", "abort") | WARNED,
    "curves": of_each("run") | {"label"},
    "curves --json": of_each("run", "metric") | {"label"} | WARNED,
    "estimate": of_each("run"),
    "report": RUNS | {"dagdir", "dagfile", "label"},
    "report --html -": RUNS | {"holdt", "shadowt"} | {"dagdir", "dagfile", "label"},
    "report --md -": RUNS | {"holdt", "shadowt"} | {"dagdir", "dagfile", "label"},
    "config show --json": {"aliasfrom", "aliasto", "label", "sitehost", "sitename", "dagdir"},
    "nodes --ascii --state held": of_each("run", "site", "hold"),
    "nodes --json": RUNS | of_each("hold") | {"placement", "shard", "final"},
    "grid --json": of_each("run", "other", "swept", "metric", "stopped") | WARNED,
    "shards --json": {"dagfile", "shard"} | WARNED,
    "continue --dry-run": set(),
    "act send --to here --dry-run": set(),
    "check --json": {"dagfile"},
    "export --to openmetrics": of_each("run"),
    "export --to optuna --out -": of_each("run"),
}
"""Each command, and the fields that it shows: a scan of what shows nothing proves nothing."""

NEVER = {"environment"}
"""Fields that no command says anything of."""

LONGEST = 1100
"""Characters of a line for people: those of a pipe's table, and a little."""


def arguments(command: str, dagdir: Path) -> list[str]:
    words = [*command.split(), str(dagdir)]
    if words[0] == "config":
        words = [*words[:2], words[-1], *words[2:-1]]
    return [*words, "all", "--yes"] if words[0] == "act" else words


@pytest.mark.parametrize("command", COMMANDS)
def test_output_into_a_pipe_is_visible(
    command: str, hostile: Dagdir, metlmon: Callable[..., Ran]
) -> None:
    ran = metlmon(*arguments(command, hostile.path))
    assert b"Traceback" not in ran.stderr, ran.stderr[-2000:]
    out, err = ran.stdout.decode("utf-8"), ran.stderr.decode("utf-8")
    assert forbidden(out) == []
    assert forbidden(err) == []
    shown = fields_in(out) | fields_in(err)
    assert COMMANDS[command] <= shown
    assert not shown & NEVER
    lines = err.split("\n")
    if "--json" in command:
        assert ran.stdout.isascii()
        assert max(len(text) for _, text in texts(json.loads(out))) <= 8000
    elif not re.search("--html|--md|export", command):
        lines += out.split("\n")
    assert max(map(len, lines)) <= LONGEST
    if "--ascii" in command:
        assert ran.stdout.isascii()


OF_SOME = (
    "run 3f1c2d4e",
    "run RUN",
    "compare RUNS",
    "compare 3f1c2d4e RUN",
    "act release 87.0 --yes",
)


@pytest.mark.parametrize("command", OF_SOME)
def test_output_about_some_runs_is_visible(
    command: str, hostile: Dagdir, metlmon: Callable[..., Ran]
) -> None:
    runs = json.loads(metlmon("status", "--json", hostile.path).stdout)["runs"]
    uuids = [run["uuid"] for run in runs if "zq" in (run["uuid"] or "")][:3]
    given = {"RUN": uuids[:1], "RUNS": uuids}
    words = [word for each in command.split() for word in given.get(each, [each])]
    for more in ((), ("--json",)):
        ran = metlmon(*words, hostile.path, *more)
        out = ran.stdout.decode()
        assert "Traceback" not in ran.stderr.decode()
        assert forbidden(out + ran.stderr.decode()) == []
        assert "RUN" not in command or of_each("run", "swept") & fields_in(out)


def test_text_around_a_secret_is_kept(hostile: Dagdir, metlmon: Callable[..., Ran]) -> None:
    jobs = metlmon("jobs", "--json", hostile.path).stdout.decode()
    assert f"https://{HIDDEN}@example.org/data was read" in jobs
    assert re.search(rf"\d\dzq --token {re.escape(HIDDEN)} qz", jobs)
    assert f"--token {HIDDEN}" in metlmon("status", "--json", hostile.path).stdout.decode()


def test_only_numbers_of_a_wandb_run_are_printed(
    hostile: Dagdir, metlmon: Callable[..., Ran]
) -> None:
    shown = metlmon("curves", "--json", hostile.path).stdout.decode()
    (run,) = (run for run in json.loads(shown)["runs"] if run["uuid"] == UUID)
    assert [(point["epoch"], point["value"]) for point in run["points"]] == [(1, 0.5)]
    assert "remark" not in shown


ON_TERMINAL = ("status", "status --json", "timeline")


@pytest.mark.parametrize("command", ON_TERMINAL)
def test_output_to_a_terminal_is_visible(
    command: str, small: Dagdir, environment: dict[str, str]
) -> None:
    argv = [sys.executable, "-m", "metlmon", *arguments(command, small.path)]
    with Terminal(argv, (100, 40), environment) as terminal:
        terminal.end()
        text = without_own(terminal.bytes)
    assert forbidden(text) == []
    assert fields_in(text)
