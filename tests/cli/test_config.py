"""``metlmon config``: the settings, their origins and errors."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from metlmon.cli import Exit
from metlmon.cli.main import main
from metlmon.config.loader import cache_directory, load_settings
from metlmon.config.settings import AllocationSettings
from metlmon.config.user_state import state_directory
from metlmon.errors import InputError
from metlmon.model.sites import BUILT_IN_SITES
from tests.support.commands import Captured, json_output, run_command
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log


@pytest.fixture(name="own")
def _own(tmp_path: Path, user: Path) -> Path:
    """The dagdir's settings file, which does not exist yet."""
    (tmp_path / "ensemble").mkdir()
    return tmp_path / "ensemble" / "metlmon.toml"


spoken = partial(run_command, "config")


def report_of(capsys: Captured, what: str, dagdir: Path) -> tuple[int, dict[str, Any]]:
    code, out, err = spoken(capsys, what, dagdir, "--json")
    assert err == ""
    return code, json.loads(out)


def test_all_settings_are_built_in_without_files(capsys: Captured, own: Path) -> None:
    code, result = report_of(capsys, "show", own.parent)
    assert code == Exit.OK
    assert {entry["origin"] for entry in result["settings"]} == {"built-in"}
    sites = [entry["value"] for entry in result["settings"] if entry["key"] == "site"]
    assert sites == [{"host": host, "name": name} for host, name in BUILT_IN_SITES]
    assert result["valid"] is True
    code, out, _ = spoken(capsys, "validate", own.parent)
    assert code == Exit.OK
    assert "nothing to validate" in out
    own.write_text("checkpoint_codes = [85]\n")
    assert spoken(capsys, "validate", own.parent)[:2] == (Exit.OK, f"{own}: no errors\n")


def test_show_has_file_and_line_of_each_setting(capsys: Captured, own: Path, user: Path) -> None:
    user.write_text('tz = "Europe/Berlin"\ncheckpoint_codes = [1]\nread_only = true\n')
    own.write_text('\ntz = "America/Chicago"\nread_only = false\n[gpu_aliases]\nA = "B"\n')
    code, result = report_of(capsys, "show", own.parent)
    assert code == Exit.OK
    from_files = {
        entry["key"]: (entry["value"], entry["origin"], entry["path"], entry["line"])
        for entry in result["settings"]
        if entry["origin"] != "built-in"
    }
    assert from_files == {
        "tz": ("America/Chicago", "dagdir", str(own), 2),
        "checkpoint_codes": ([1], "user", str(user), 2),
        "read_only": (True, "user", str(user), 3),
        "gpu_aliases": ({"logged": "A", "shown": "B"}, "dagdir", str(own), 5),
    }
    _, out, _ = spoken(capsys, "show", own.parent)
    (line,) = [line for line in out.splitlines() if line.startswith("tz ")]
    assert "America/Chicago" in line
    assert f"{own}:2" in line


def test_path_lists_the_files_read(
    capsys: Captured, own: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    own.write_text("tz = ")
    code, result = report_of(capsys, "path", own.parent)
    assert code == Exit.OK, "who mends a file asks where it is"
    assert result == {
        "schema": 1,
        "dagdir": str(own.parent),
        "files": [
            {"origin": "user", "path": str(user), "exists": False, "foreign": False},
            {"origin": "dagdir", "path": str(own), "exists": True, "foreign": False},
        ],
        "cache": "/somewhere/cache/metlmon",
    }
    _, out, _ = spoken(capsys, "path", own.parent)
    first, second, cache = out.splitlines()
    assert cache.startswith("/somewhere/cache/metlmon ")
    assert first.startswith(str(own))
    assert "is read" in first
    assert second.startswith(str(user))
    assert "is not there" in second


def test_validate_refuses_taken_keys_and_unknown_names(
    capsys: Captured, own: Path, user: Path
) -> None:
    command = '[[command]]\nkey = "{}"\nname = "its {}"\ncommand = ["condor_q", "{{job}}"]\n'
    named = '[keys]\nsorrt = "o"\nsort = "O"\n[columns]\noverveiw = ["job"]\nsweep = ["job"]\n'
    user.write_text(command.format("q", "queue") + command.format("^g", "requirements") + named)
    code, out, _ = spoken(capsys, "validate", own.parent)
    assert code == Exit.USAGE
    assert f"{user}: [[command]] its queue: q is the key of" in out
    assert f"{user}: [keys]: no action is called 'sorrt'; did you mean 'sort'? (line 10)" in out
    assert "[columns]: no screen is called 'overveiw'; did you mean 'overview'? (line 13)" in out
    assert "requirements" not in out
    assert "no command will run" not in out, "the dashboard leaves it out"
    code, result = report_of(capsys, "validate", own.parent)
    assert (code, result["valid"]) == (Exit.USAGE, False)
    error = result["errors"][0]
    assert (error["path"], error["line"], error["key"]) == (str(user), 1, "command")
    assert report_of(capsys, "show", own.parent)[0] == Exit.OK, "it stops no command"


def test_validate_reports_all_errors(capsys: Captured, own: Path, user: Path) -> None:
    user.write_text("read_onyl = true\n")
    own.write_text("tz = 5\n[metrics]\ngoal = 'least'\n")
    code, out, _ = spoken(capsys, "validate", own.parent)
    assert code == Exit.USAGE
    assert out.splitlines() == [
        f"{user}: no setting is called 'read_onyl'; did you mean 'read_only'? there are: advisor, "
        "checkpoint_codes, columns, command, gpu_aliases, keys, label, metric, metrics, notify, "
        "read_only, side_node, site, site_aliases, tracking, train_node, tz (line 1)",
        f"{own}: tz is a text in quotes of at most 1000 characters (line 1)",
        f'{own}: metrics.goal is "min" or "max" (line 3)',
        "3 errors: no command will run until corrected",
    ]
    code, result = report_of(capsys, "validate", own.parent)
    assert code == Exit.USAGE
    assert result["valid"] is False
    assert result["errors"][2] == {
        "path": str(own),
        "line": 3,
        "key": "metrics.goal",
        "message": 'metrics.goal is "min" or "max"',
    }


def test_show_reports_a_broken_file_on_standard_error(capsys: Captured, own: Path) -> None:
    own.write_text("tz = \n")
    code, out, err = spoken(capsys, "show", own.parent)
    assert code == Exit.USAGE
    assert "not valid TOML" in err
    assert "tz " in out


# --- effects of settings ------------------------------------------------------------------------


def test_rules_and_aliases_apply_to_figures(capsys: Captured, own: Path, user: Path) -> None:
    """Of a glidein, and of a host that only a rule of the user's names."""
    log = Log().submit(77, NODE).execute(77, site="SDSC-PRP-CE1", gpus=1).terminate(77, 1)
    log.submit(78, NODE).execute(78, site=None, slot="slot1@gpu7.hpc.example.edu", gpus=2)
    Dagdir(own.parent).write("metl.log", log.terminate(78, 0, at="13:00:00").data)

    def sites() -> list[set[str | None]]:
        words = ("status", "jobs", "run run0")
        status, jobs, run = (json_output(each, capsys, own.parent) for each in words)
        return [
            {row["site"] for row in status["sites"]},
            {e["site"] for job in jobs["jobs"] for e in job["executions"]},
            {epoch["site"] for epoch in run["epochs"] if epoch["site"]},
        ]

    assert sites()[0] == {"SDSC-PRP-CE1", "hpc.example.edu"}
    user.write_text('[[site]]\nhost = "*.hpc.example.edu"\nname = "campus"\n')
    own.write_text('[site_aliases]\n"SDSC-PRP-CE1" = "NRP"\ncampus = "Campus"\n')
    assert sites() == [{"NRP", "Campus"}, {"NRP", "Campus"}, {"Campus"}]


def test_notifications_are_shown_without_secrets(capsys: Captured, own: Path, user: Path) -> None:
    user.write_text(
        '[notify]\nwebhook = "https://hooks.example.org/services/T0/B0?key=hunter2"\n'
        'command = ["send", "--token", "hunter2abc", "-H", "Key: Bearer hunter2abc"]\n'
    )
    for words in (["show"], ["show", "--json"], ["validate"]):
        code, out, err = spoken(capsys, words[0], own.parent, *words[1:])
        assert code == Exit.OK
        assert "hunter2" not in out + err
        assert "services" not in out + err
    _, out, _ = spoken(capsys, "show", own.parent)
    assert "https://hooks.example.org/(hidden)" in out
    assert "services" not in repr(load_settings(own.parent))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('webhook = "http://example.org/hunter2"', "begins with https:// (http:// is for this"),
        ('webhook = "https://ada:hunter2@example.org/"', "has a user name in it"),
        ('webhook = "https:///hunter2"', "is not a valid URL"),
        ('webhook = "https://example.org/hunter2\\r\\nX: y"', "is not a valid URL"),
        ('command = ["./tell.sh"]', "is a list: a program in PATH or with an absolute path"),
        ('command = "notify-send"', "is a list of texts"),
        ('command = ["notify-send", "{title}"]', "METLMON_TITLE in its environment"),
        *(
            (f"command = {json.dumps([*words, more])}", "{text} cannot be an argument")
            for words in (["sh", "-c"], ["env", "-S"], ["my-own-script"])
            for more in ("{text}", "--text={text}", "echo {text}")
        ),
        ('terminal = ["osc8"]', "notify.terminal is a list of some of bell, osc9, osc777"),
        (
            'about = ["hold"]',
            "notify.about is a list of some of held, failed, done, stalled, diver",
        ),
        ("interval = true", "is a whole number of seconds"),
        ("comand = 1", "did you mean 'command'?"),
    ],
)
def test_errors_of_notifications_are_reported(
    capsys: Captured, own: Path, user: Path, setting: str, message: str
) -> None:
    user.write_text(f"[notify]\n{setting}\n")
    code, out, _ = spoken(capsys, "validate", own.parent)
    assert code == Exit.USAGE
    assert message in out
    assert "(line 2)" in out
    assert "hunter2" not in out


@pytest.mark.parametrize(
    ("key", "words", "message"),
    [
        ("c", ["less", "--x={run}"], "is an argument of its own"),
        *(("c", [*shell, "{run}"], "could run {run}") for shell in (["sh", "-c"], ["/bin/env"])),
        ("c", ["{run}"], "is a list: a program in PATH or with an absolute path"),
        ("^m", ["less"], "is a key"),
        ("enter", ["less"], "is a key"),
    ],
)
def test_own_commands_may_not_run_texts_of_others(
    capsys: Captured, own: Path, user: Path, key: str, words: list[str], message: str
) -> None:
    table = f'[[command]]\nname = "look"\nkey = "{key}"\ncommand = {json.dumps(words)}\n'
    user.write_text(table)
    code, out, _ = spoken(capsys, "validate", own.parent)
    assert (code, message in out) == (Exit.USAGE, True)


def test_own_commands_need_the_users_file(capsys: Captured, own: Path, user: Path) -> None:
    table = (
        '[[command]]\nname = "look"\nkey = "c"\ncommand = ["less", "--token=hunter2", "{run}"]\n'
    )
    user.write_text(table)
    assert [each.key for each in load_settings(own.parent).command] == ["c"]
    for words in ((), ("--json",)):
        assert "hunter2" not in spoken(capsys, "show", own.parent, *words)[1]
    user.unlink()
    own.write_text(table)
    _, out, _ = spoken(capsys, "validate", own.parent)
    assert "[command] belongs to your own metlmon.toml" in out


@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "HOME"])
@pytest.mark.parametrize("value", [".", "../dagdir/cfg"])
def test_relative_settings_directory_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """Otherwise a dagdir's file could be taken for the user's."""
    dagdir = tmp_path / "dagdir"
    folder = dagdir / value / ("metlmon" if variable.startswith("XDG") else ".config/metlmon")
    folder.mkdir(parents=True)
    (folder / "metlmon.toml").write_text('[notify]\ncommand = ["/usr/bin/touch", "x"]\n')
    monkeypatch.chdir(dagdir)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(variable, value)
    assert load_settings(dagdir).notify.command == ()
    assert main(["config", "path", "."]) == Exit.OK
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", value)
    home = None if variable == "HOME" else tmp_path / "home"
    assert state_directory() == (home and home / ".local/state/metlmon")
    assert cache_directory() == (home and home / ".cache/metlmon")


def test_allocations_are_merged_by_name(capsys: Captured, own: Path, user: Path) -> None:
    user.write_text(
        '[advisor."NSF 1"]\nbalance = 900\nsites = ["delta"]\n'
        "[advisor.award]\nbalance = 1.5\nsites = []\n"
    )
    own.write_text(
        '[advisor.award]\nbalance = 5000\ncharge = 2.5\nsites = ["delta", "expanse"]\n'
        "as_of = 2026-05-01\n"
    )
    assert load_settings(own.parent).advisor == (
        AllocationSettings("award", 5000.0, ("delta", "expanse"), 2.5, datetime(2026, 5, 1)),
        AllocationSettings("NSF 1", 900.0, ("delta",)),
    )
    _, out, _ = spoken(capsys, "show", own.parent)
    first, second = [line for line in out.splitlines() if line.startswith("[advisor]")]
    assert "award: 5000, as of 2026-05-01T00:00:00, 2.5 per GPU-hour at delta, expanse" in first
    assert f"{own}:1" in first
    assert "NSF 1: 900, 1 per GPU-hour at delta" in second
    assert f"{user}:1" in second


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("advisor = 5", 1, "each allocation is a table: [advisor.NAME]"),
        ("[advisor]\nbalance = 5000", 2, "each allocation is a table: [advisor.NAME]"),
        ("[advisor.a]\nbalance = 1", 1, 'then balance = 5000 and sites = ["delta"]'),
        ("[advisor.a]\nbalance = -1\nsites = []", 2, "advisor.a.balance is a number, 0 or more"),
        ("[advisor.a]\nbalance = inf\nsites = []", 2, "is a number, 0 or more"),
        ("[advisor.a]\nbalance = true\nsites = []", 2, "is a number, 0 or more"),
        ('[advisor.a]\nsites = "b"\nbalance = 1', 2, "advisor.a.sites is a list of texts"),
        ("[advisor.a]\nbalance=1\nsites=[]\nchrage = 2", 4, "did you mean 'charge'?"),
        ("[advisor.a]\nbalance=1\nsites=[]\nas_of = '2026'", 4, "is a date or a local time"),
        (
            "[advisor.a]\nbalance=1\nsites=[]\nas_of = 2026-05-01T00:00:00Z",
            4,
            "is a date or a local time: 2026-05-01",
        ),
    ],
)
def test_errors_of_allocations_are_reported(
    capsys: Captured, own: Path, text: str, line: int, message: str
) -> None:
    own.write_text(text)
    code, out, _ = spoken(capsys, "validate", own.parent)
    assert code == Exit.USAGE
    assert message in out
    assert f"(line {line})" in out
    with pytest.raises(InputError):
        load_settings(own.parent)
