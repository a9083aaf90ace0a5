"""What people type: no command, misspelt words, RUN and DIR in any order, relative times."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from metlmon.cli.exit_codes import Exit
from metlmon.cli.main import main
from metlmon.errors import InputError
from metlmon.text.time_arguments import parse_time_argument
from tests.support.commands import Captured, json_output
from tests.support.recordings import FIXTURES

RESCUE = FIXTURES / "rescue"
NOW = datetime(2025, 11, 14, 8, 14)


def refusal(capsys: Captured, *words: str) -> list[str]:
    """The lines on standard error of a command line that argparse refuses."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == Exit.USAGE
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["statsu"], "did you mean status?"),
        (["status", "--jsn"], "did you mean --json?"),
        (["act", "relase", "."], "did you mean release?"),
        (["new", "--shape", "chian"], "did you mean chain?"),
        (["xyzzy"], "'xyzzy' is no command, file or directory"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_closest_one(
    words: list[str], meant: str, capsys: Captured
) -> None:
    error, usage = refusal(capsys, *words)
    assert error.startswith("metlmon")
    assert error.endswith(meant)
    assert usage.startswith("usage: metlmon")


def test_run_takes_the_run_and_the_directory_in_any_order(capsys: Captured) -> None:
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
def test_times_count_back_from_as_of(text: str, meant: datetime) -> None:
    assert parse_time_argument("--since", text, None, lambda: NOW) == meant


@pytest.mark.parametrize("text", ["7x", "999999w", "31 Feb", "4 Nix", "d", ""])
def test_other_words_are_no_time(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a time; write it as 2025-11-14, .* 7d"):
        parse_time_argument("--since", text, None, lambda: NOW)
