"""``metlmon curves`` as a script meets it."""

from __future__ import annotations

from metlmon.cli.exit_codes import Exit
from metlmon.cli.main import main
from tests.support.commands import Captured, json_output, text_output
from tests.support.recordings import FIXTURES

TRAINER = FIXTURES / "trainer"


def test_the_recorded_ensemble_for_people(capsys: Captured) -> None:
    result = text_output("curves", capsys, TRAINER, "--ascii")
    assert result.isascii()
    lines = result.splitlines()
    assert lines[0] == (
        "5 of 6 runs were improving . run4 diverged in epoch 4 . best 0.2308 run1 epoch 5"
    )
    assert "run4      5     NaN  0.2759" in result
    assert "X diverged in epoch 4" in result


def test_a_metric_that_there_is_not(capsys: Captured) -> None:
    assert main(["curves", str(TRAINER), "--metric", "val_los"]) == Exit.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--metric val_los: no run has it; there are: val_loss, val_loss_best," in captured.err


def test_as_it_was(capsys: Captured) -> None:
    """Of a moment only the epochs that were completed by then."""
    moment = "2026-11-21T14:22:00"
    done = json_output("status", capsys, TRAINER, "--as-of", moment)
    output = json_output("curves", capsys, TRAINER, "--as-of", moment)
    epochs = {run["run"]: run["epochs_done"] for run in done["runs"]}
    assert {run["run"]: len(run["points"]) for run in output["runs"]} == epochs
    assert 0 < sum(epochs.values()) < 30
