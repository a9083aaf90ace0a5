"""``metlmon usage`` as a script and as a person meet it."""

from __future__ import annotations

import sys

import pytest

from tests.support.commands import Captured, json_output, text_output
from tests.support.recordings import FIXTURES

DEMO = str(FIXTURES / "demo")
BY = ("run", "site", "gpu", "host", "request")


@pytest.mark.parametrize("by", BY)
def test_the_groups_of_the_text_are_those_of_json(capsys: Captured, by: str) -> None:
    read = json_output("usage", capsys, DEMO, "--by", by)
    out = text_output("usage", capsys, DEMO, "--by", by)
    assert read["by"] == by
    (completed,) = (group for group in read["total"] if group["ended"] == "completed")
    assert f"{completed['measured']} of {completed['executions']} epochs" in out
    assert "GPUs not measured" in out
    for group in read["groups"]:
        assert f"{group['measured']} of {group['executions']}  " in out
    assert sum(group["executions"] for group in read["groups"]) == sum(
        group["executions"] for group in read["total"]
    )


@pytest.mark.parametrize("by", BY)
def test_it_fits_80_columns(capsys: Captured, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = text_output("usage", capsys, DEMO, "--by", by).split("\n")
    assert max(map(len, lines)) <= 80
    assert any("MEMORY 95 %" in line for line in lines)
