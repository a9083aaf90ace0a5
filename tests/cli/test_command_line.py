"""Command lines: misspelt words, RUN and DIR in any order, relative times; and the guide."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from metlmon.cli import Exit
from metlmon.cli.arguments import COMMANDS, GROUPS
from metlmon.cli.commands.help import GUIDE, sections
from metlmon.cli.main import main
from metlmon.errors import InputError
from metlmon.tables import runs
from metlmon.text.time_arguments import parse_time_argument
from tests.support.commands import Captured, json_output, text_output
from tests.support.recordings import FIXTURES

RESCUE = FIXTURES / "rescue"
NOW = datetime(2025, 11, 14, 8, 14)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["statsu"], "did you mean status?"),
        (["status", "--jsn"], "did you mean --json?"),
        (["watch", "--json"], "--json; it is an option of status, run, jobs and others"),
        (["act", "relase", "."], "did you mean release?"),
        (["new", "--shape", "chian"], "did you mean chain?"),
        (["xyzzy"], "'xyzzy' is not a command, file or directory"),
    ],
)
def test_misspelt_word_suggests_the_closest_one(
    words: list[str], meant: str, capsys: Captured
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == Exit.USAGE
    error, usage = capsys.readouterr().err.splitlines()
    assert error.startswith("metlmon")
    assert error.endswith(meant)
    assert usage.startswith("usage: metlmon")


def test_run_and_directory_may_be_in_any_order(capsys: Captured) -> None:
    run = json_output("status", capsys, RESCUE)["runs"][0]["uuid"]
    assert json_output("run", capsys, run, RESCUE) == json_output("run", capsys, RESCUE, run)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("7d", NOW - timedelta(days=7)),
        ("1d06h", NOW - timedelta(hours=30)),
        ("90m ago", NOW - timedelta(minutes=90)),
        ("yesterday", NOW - timedelta(days=1)),
        ("today", datetime(2025, 11, 14)),
        ("now", NOW),
        ("4 Nov 08:14", datetime(2025, 11, 4, 8, 14)),
        ("20 Nov", datetime(2024, 11, 20)),
        ("4 Nov 2023 01:02:03", datetime(2023, 11, 4, 1, 2, 3)),
        ("2025-11-04", datetime(2025, 11, 4)),
    ],
)
def test_relative_times_count_back_from_as_of(text: str, meant: datetime) -> None:
    assert parse_time_argument("--since", text, None, lambda: NOW) == meant


@pytest.mark.parametrize("text", ["7x", "999999w", "31 Feb", "4 Nix", "d", ""])
def test_other_words_are_not_times(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a time; write it as 2025-11-14, .* 7d"):
        parse_time_argument("--since", text, None, lambda: NOW)


# --- ``metlmon help``: the sections of the guide ----------------------------------------------


ROOT = Path(__file__).resolve().parents[2]


def test_sections_are_found_by_prefix(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = text_output("help", capsys)
    for title in sections(GUIDE.read_text()):
        assert f"  {title.lower()}\n" in printed
    printed = text_output("help", capsys, "set")
    assert printed.startswith("Settings\n")
    assert "checkpoint_codes" in printed
    assert "## " not in printed
    assert main(["help", "weather"]) == 2
    assert "'weather'; there are daily work, screens, keys" in capsys.readouterr().err
    monkeypatch.setattr("metlmon.cli.commands.help.is_terminal", lambda: True)
    printed = text_output("help", capsys, "screens")
    assert "|" not in printed
    assert max(map(len, printed.splitlines())) <= 100


def test_columns_of_the_overview_are_explained(capsys: Captured) -> None:
    printed = text_output("help", capsys, "columns")
    for column in runs.columns([], every=True):
        assert column.doc
        assert re.search(rf"^{re.escape(column.title)}  .*{re.escape(column.doc)}$", printed, re.M)


def test_commands_in_readme_and_guide_exist() -> None:
    text = (ROOT / "README.md").read_text() + GUIDE.read_text()
    named = set(re.findall(r"^metlmon ([a-z]+)\b", text, re.MULTILINE))
    assert named
    assert named <= COMMANDS.keys()
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
