"""``metlmon estimate`` and what ``status`` tells of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Captured, json_output, text_output
from tests.support.recordings import FIXTURES

DEMO = str(FIXTURES / "demo")
MIDDLE = "2026-11-21T09:45:00"


def test_the_first_line_is_the_answer(capsys: Captured) -> None:
    lines = text_output("estimate", capsys, DEMO, "--as-of", MIDDLE).splitlines()
    assert lines[0].startswith("16 of 36 epochs done by 21 Nov 2026 09:45; ")
    assert "ETA 21 Nov 09:4" in lines[0]
    assert lines[0].endswith("16 epochs in 41s")
    *runs, blank, assumption = lines[3:]
    assert [line.split()[0] for line in runs] == [f"run{n}" for n in range(6)]
    assert blank == ""
    assert "if the DAG keeps running" in assumption


def test_the_estimate_is_that_of_status_with_progress_lines_too(capsys: Captured) -> None:
    dagdir = str(FIXTURES / "health" / "diverged")
    estimate = json_output("estimate", capsys, dagdir)["estimate"]
    assert estimate == json_output("status", capsys, dagdir)["estimate"]
    sources = [run["epoch_remaining"]["source"] for run in estimate["runs"]]
    assert "its progress line" in sources
    for command in (["estimate", dagdir], ["status", dagdir], ["status", DEMO, dagdir]):
        assert "46s left" in text_output("", capsys, *command)


def test_the_backtest_as_table_and_json(capsys: Captured) -> None:
    result = text_output("estimate", capsys, DEMO, "--backtest")
    assert result.startswith("ensemble: off by ")
    assert [line.split()[0] for line in result.splitlines() if " all " in line] == [
        "25",
        "50",
        "75",
    ]
    tested = json_output("estimate", capsys, DEMO, "--backtest")["backtest"]
    assert tested["epochs"] == 34
    assert tested["ensemble"]["trials"] == 3
    for trial in tested["predictions"]:
        error = (trial["predicted"] - trial["actual"]) / trial["actual"]
        assert trial["error"] == pytest.approx(error, abs=1e-3)
        assert trial["error_seconds"] == pytest.approx(trial["predicted"] - trial["actual"])
        assert trial["covered"] == (trial["low"] <= trial["actual"] <= trial["high"])


def test_nothing_to_test(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "one.dag").write_text("JOB run0-train_epoch0 train.sub\n")
    assert "Nothing to test" in text_output("estimate", capsys, str(tmp_path), "--backtest")
    assert "0 of 1 epoch done" in text_output("estimate", capsys, str(tmp_path))
