"""``metlmon estimate``, ``curves``, ``timeline`` and ``usage`` as scripts and people meet them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from metlmon.cli import Exit
from metlmon.cli.main import main
from tests.support.commands import Captured, json_output, text_output
from tests.support.event_logs import DAY, Log
from tests.support.recordings import FIXTURES

DEMO = str(FIXTURES / "demo")
TRAINER = FIXTURES / "trainer"
MIDDLE = "2026-11-21T09:45:00"


def test_first_line_is_the_answer(capsys: Captured) -> None:
    lines = text_output("estimate", capsys, DEMO, "--as-of", MIDDLE).splitlines()
    assert lines[0].startswith("16 of 36 epochs done by 21 Nov 2026 09:45; ")
    assert "ETA 21 Nov 09:4" in lines[0]
    assert lines[0].endswith("16 epochs in 41s")
    *runs, blank, assumption = lines[3:]
    assert [line.split()[0] for line in runs] == [f"run{n}" for n in range(6)]
    assert blank == ""
    assert "if the DAG keeps running" in assumption


def test_estimate_agrees_with_status(capsys: Captured) -> None:
    dagdir = str(FIXTURES / "health" / "diverged")
    estimate = json_output("estimate", capsys, dagdir)["estimate"]
    assert estimate == json_output("status", capsys, dagdir)["estimate"]
    sources = [run["epoch_remaining"]["source"] for run in estimate["runs"]]
    assert "its progress line" in sources
    for command in (["estimate", dagdir], ["status", dagdir], ["status", DEMO, dagdir]):
        assert "46s left" in text_output("", capsys, *command)


def test_backtest_as_table_and_json(capsys: Captured) -> None:
    result = text_output("estimate", capsys, DEMO, "--backtest")
    assert result.startswith("ensemble: off by ")
    shares = [line.split()[0] for line in result.splitlines() if " all " in line]
    assert shares == ["25", "50", "75"]
    tested = json_output("estimate", capsys, DEMO, "--backtest")["backtest"]
    assert tested["epochs"] == 34
    assert tested["ensemble"]["trials"] == 3
    for trial in tested["predictions"]:
        error = (trial["predicted"] - trial["actual"]) / trial["actual"]
        assert trial["error"] == pytest.approx(error, abs=1e-3)
        assert trial["error_seconds"] == pytest.approx(trial["predicted"] - trial["actual"])
        assert trial["covered"] == (trial["low"] <= trial["actual"] <= trial["high"])


def test_backtest_without_data(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "one.dag").write_text("JOB run0-train_epoch0 train.sub\n")
    assert "Nothing to test" in text_output("estimate", capsys, str(tmp_path), "--backtest")
    assert "0 of 1 epoch done" in text_output("estimate", capsys, str(tmp_path))


# --- curves -----------------------------------------------------------------------------------


def test_curves_as_text(capsys: Captured) -> None:
    result = text_output("curves", capsys, TRAINER, "--ascii")
    assert result.isascii()
    lines = result.splitlines()
    assert lines[0] == (
        "5 of 6 runs were improving . run4 diverged in epoch 4 . best 0.2308 run1 epoch 5"
    )
    assert "run4      5     NaN  0.2759" in result
    assert "X diverged in epoch 4" in result


def test_unknown_metric_is_refused(capsys: Captured) -> None:
    assert main(["curves", str(TRAINER), "--metric", "val_los"]) == Exit.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--metric val_los: no run has it; there are: val_loss, val_loss_best," in captured.err


def test_as_of_limits_the_epochs_of_curves(capsys: Captured) -> None:
    """Only epochs that were completed by then."""
    moment = "2026-11-21T14:22:00"
    done = json_output("status", capsys, TRAINER, "--as-of", moment)
    output = json_output("curves", capsys, TRAINER, "--as-of", moment)
    epochs = {run["run"]: run["epochs_done"] for run in done["runs"]}
    assert {run["run"]: len(run["points"]) for run in output["runs"]} == epochs
    assert 0 < sum(epochs.values()) < 30


# --- timeline ---------------------------------------------------------------------------------


def printed_timeline(capsys: Captured, *arguments: str) -> list[str]:
    return text_output("timeline", capsys, *arguments).splitlines()


def test_timeline_fits_the_terminal(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = printed_timeline(capsys, str(TRAINER), "--ascii")
        lanes = [line for line in lines if line.startswith("run")]
        assert len(lanes) == 6
        assert all(len(line) <= columns for line in lanes)
        assert max(map(len, lanes)) > columns - 12
        assert all(line.isascii() for line in lines)
    assert "idle 5 times, 8s in total" in "\n".join(lines)
    stalls = json_output("timeline", capsys, TRAINER)["stalls"]
    assert [each["seconds"] for each in stalls if not each["ongoing"]] == [2, 2, 1, 2, 1]


def test_timeline_of_a_period_ends_with_it(capsys: Captured, tmp_path: Path) -> None:
    log = Log().submit(7, at="08:00:00").execute(7, at="09:00:00").evict(7, at="10:00:00")
    log.execute(7, at="12:00:00").terminate(7, at="13:00:00")
    (tmp_path / "a.log").write_bytes(log.data)
    directory, since, until = str(tmp_path), f"{DAY}T09:30", f"{DAY}T11:00"
    value = json_output("timeline", capsys, directory, "--since", since, "--until", until)
    [stall] = value["stalls"]
    assert (value["job_seconds"], value["seconds"], value["live"]) == (1800, 5400, False)
    assert (stall["seconds"], stall["ongoing"]) == (3600, False)
    lines = printed_timeline(capsys, directory, "--since", f"{DAY}T10:30")
    assert lines[2].split(maxsplit=1) == ["1h30m", "4 May 10:30 → 12:00"]
    lines = printed_timeline(capsys, directory, "--until", f"{DAY}T07:00")
    assert lines[0].startswith("No job was in the queue: until ")


def test_timeline_before_the_first_event_is_empty(capsys: Captured) -> None:
    lines = printed_timeline(capsys, str(TRAINER), "--as-of", "2020-01-01")
    assert lines == ["No job has an event yet: the timeline is empty."]
    value = json_output("timeline", capsys, TRAINER, "--as-of", "2020-01-01")
    assert value["first"] is None
    assert value["steps"] == []


# --- usage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["run", "site", "gpu", "host", "request"])
def test_groups_agree_with_json_and_fit_80_columns(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
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
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = text_output("usage", capsys, DEMO, "--by", by).split("\n")
    assert max(map(len, lines)) <= 80
    assert any("MEMORY 95 %" in line for line in lines)
