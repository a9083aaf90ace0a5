"""``metlmon timeline``: one JSON object that agrees with ``jobs``, and a picture for people."""

from __future__ import annotations

from functools import partial

import pytest

from tests.conftest import Shared
from tests.support.commands import Captured, json_output, text_output
from tests.support.recordings import FIXTURES

TRAINER = FIXTURES / "trainer"

output_of = partial(json_output, "")


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


def test_it_says_what_stalled(capsys: Captured, shared: Shared) -> None:
    text = "\n".join(printed(capsys, str(shared("examples/metl-aws")), "--ascii"))
    assert "idle 12 times, 3d13h in total; longest:" in text
    assert "2d16h  7 Nov 16:02 > 10 Nov 08:14" in text
    assert "GPUs at a time 10 max, 4.44 mean" in text


def test_before_anything_there_is_no_time_to_show(capsys: Captured) -> None:
    lines = printed(capsys, str(TRAINER), "--as-of", "2020-01-01")
    assert lines == ["No job has an event yet: there is no time to show."]
    value = output_of(capsys, "timeline", str(TRAINER), "--as-of", "2020-01-01")
    assert value["first"] is None
    assert value["steps"] == []
