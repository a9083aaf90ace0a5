"""``metlmon curves`` as a script meets it."""

from __future__ import annotations

from functools import partial

from metlmon.cli.exit_codes import Exit
from metlmon.cli.main import main
from tests.support.commands import Captured, json_output, text_output
from tests.support.recordings import FIXTURES

TRAINER = FIXTURES / "trainer"


as_json = partial(json_output, "curves")
printed = partial(text_output, "curves")


def test_the_recorded_ensemble_as_json(capsys: Captured) -> None:
    output = as_json(capsys, str(TRAINER))
    assert (output["schema"], output["metric"], output["goal"]) == (1, "val_loss", "min")
    runs = {each["run"]: each for each in output["runs"]}
    assert list(runs) == [f"run{n}" for n in range(6)]
    last = runs["run4"]["last"]
    assert (last["epoch"], last["value"], last["odd"], last["version"]) == (5, None, "nan", 11)
    assert (runs["run4"]["course"], runs["run4"]["since_epoch"], runs["run4"]["odd_epochs"]) == (
        "diverged", 4, [5])  # fmt: skip
    assert runs["run1"]["best"]["value"] == 0.23083655800909886
    assert runs["run1"]["best"]["odd"] is None
    assert [level["n"] for level in output["band"]["levels"]] == [6, 6, 6, 5, 5]
    assert output["bands"] == []
    assert output["problems"] == []


def test_the_recorded_ensemble_for_people(capsys: Captured) -> None:
    result = printed(capsys, str(TRAINER), "--ascii")
    assert result.isascii()
    lines = result.splitlines()
    assert lines[0] == (
        "5 of 6 runs were improving . run4 diverged in epoch 4 . best 0.2308 run1 epoch 5"
    )
    assert "run4      5     NaN  0.2759" in result
    assert "X diverged in epoch 4" in result


def test_another_metric(capsys: Captured) -> None:
    name = "test/pearson_total_score"
    output = as_json(capsys, str(TRAINER), "--metric", name)
    assert (output["metric"], output["goal"]) == (name, "max")
    run = output["runs"][0]
    assert [point["epoch"] for point in run["points"]] == [1, 2, 3, 4, 5]
    assert run["best"] == run["last"]


def test_a_metric_that_there_is_not(capsys: Captured) -> None:
    assert main(["curves", str(TRAINER), "--metric", "val_los"]) == Exit.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--metric val_los: no run has it; there are: val_loss, val_loss_best," in captured.err


def test_as_it_was(capsys: Captured) -> None:
    """Of a moment only the epochs that were completed by then."""
    moment = "2026-11-21T14:22:00"
    done = json_output("status", capsys, str(TRAINER), "--as-of", moment)
    output = as_json(capsys, str(TRAINER), "--as-of", moment)
    epochs = {run["run"]: run["epochs_done"] for run in done["runs"]}
    assert {run["run"]: len(run["points"]) for run in output["runs"]} == epochs
    assert 0 < sum(epochs.values()) < 30
