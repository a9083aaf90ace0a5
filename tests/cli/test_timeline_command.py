"""``metlmon timeline``: one JSON object that agrees with ``jobs``, and a picture for people."""

from __future__ import annotations

import pytest

from tests.support.commands import Captured, json_output, text_output
from tests.support.recordings import FIXTURES

TRAINER = FIXTURES / "trainer"


def printed(capsys: Captured, *arguments: str) -> list[str]:
    return text_output("timeline", capsys, *arguments).splitlines()


def test_it_fits_the_terminal(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = printed(capsys, str(TRAINER), "--ascii")
        lanes = [line for line in lines if line.startswith("run")]
        assert len(lanes) == 6
        assert all(len(line) <= columns for line in lanes)
        assert max(map(len, lanes)) > columns - 12
        assert all(line.isascii() for line in lines)
    assert "idle 5 times, 8s in total" in "\n".join(lines)


def test_before_anything_there_is_no_time_to_show(capsys: Captured) -> None:
    lines = printed(capsys, str(TRAINER), "--as-of", "2020-01-01")
    assert lines == ["No job has an event yet: there is no time to show."]
    value = json_output("timeline", capsys, TRAINER, "--as-of", "2020-01-01")
    assert value["first"] is None
    assert value["steps"] == []
