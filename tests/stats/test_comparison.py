"""Runs side by side: their parameters, results, sites and costs."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.cli.main import main
from metlmon.cli.reading import input_with_trainings
from metlmon.health.build import make_health
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import StatsInput
from metlmon.stats.estimates import make_forecast
from metlmon.stats.run_figures import VARIES, compare_runs
from metlmon.tables.comparison import comparison_lines, headline, run_name
from metlmon.text.spans import Line, text, width
from tests.support.commands import Captured, json_output, text_output
from tests.support.recordings import FIXTURES, read_all

GATED, TRAINER = FIXTURES / "gated", FIXTURES / "trainer"


def read(dagdir: Path) -> StatsInput:
    reader = read_all(DagdirReader(dagdir))
    return input_with_trainings(reader)


@pytest.fixture(scope="module")
def gated() -> StatsInput:
    return read(GATED)


def keys(stats: StatsInput, *names: str) -> list[str]:
    return [row.key for name in names for row in stats.status.runs if row.run == name]


def table(stats: StatsInput, cells: int | None, *names: str) -> tuple[list[Line], int]:
    result = compare_runs(stats, keys(stats, *names))
    forecast, health = make_forecast(stats), make_health(stats)
    heads = [run_name(run) for run in result.runs]
    return comparison_lines(result, forecast, health, cells, names=heads)


def values(stats: StatsInput, label: str, *names: str) -> list[str]:
    lines = [text(each) for each in table(stats, None, *names)[0]]
    [found] = [each for each in lines if re.match(rf" *{re.escape(label)}  ", each)]
    return re.split(r"  +", found.strip())[1:]


def test_two_runs_have_a_column_of_differences(gated: StatsInput) -> None:
    for label, convert in (("best", float), ("best in epoch", int)):
        first, second, difference = values(gated, label, "run0", "run1")
        expected = convert(second) - convert(first)
        assert float(difference.replace("−", "-")) == pytest.approx(expected, abs=1e-3)
    assert len(values(gated, "best", "run0", "run1", "run4")) == 3


def test_arguments_are_compared_and_varying_ones_marked() -> None:
    stats = read(TRAINER)
    result = compare_runs(stats, keys(stats, "run0", "run1", "run4"))
    differing = dict(result.differing)
    assert differing["--diverge_at"] == ("0", "0", "4")
    assert differing["--fail_rate"] == ("0.0", VARIES, VARIES)
    files = list((TRAINER / "output/training_logs" / keys(stats, "run1")[0]).glob("*/args.txt"))
    rates = {file.read_text().split("--fail_rate")[1].split()[0] for file in files}
    assert len(rates) > 1


def test_epochs_by_site_and_gpu_add_up(gated: StatsInput) -> None:
    result = compare_runs(gated, [row.key for row in gated.status.runs])
    assert len(result.runs) == 5
    for run in result.runs:
        for places in (run.sites, run.gpus):
            assert sum(epochs for _, epochs in places) == run.row.epochs_done


def test_gpus_of_one_short_name_are_told_apart(gated: StatsInput) -> None:
    result = compare_runs(gated, keys(gated, "run0"))
    models = ("NVIDIA A100-SXM4-40GB", 2), ("NVIDIA A100-PCIE-40GB", 1)
    result = replace(result, runs=(replace(result.runs[0], gpus=models),))
    names, forecast = list(map(run_name, result.runs)), make_forecast(gated)
    lines, _ = comparison_lines(result, forecast, make_health(gated), None, names=names)
    found = [text(each).split() for each in lines if text(each).startswith("  on ")]
    assert found == [["on", "A100-40", "SXM4", "2"], ["on", "A100-40", "PCIE", "1"]]


def test_best_is_that_of_the_compared_runs(gated: StatsInput) -> None:
    assert headline(compare_runs(gated, keys(gated, "run0", "run1"))) == (
        "run0 is best: val_loss 0.4187 in epoch 2"
    )
    assert headline(compare_runs(gated, keys(gated, "run0", "run1", "run2"))).startswith("run2 ")
    assert headline(compare_runs(gated, keys(gated, "run0"))) == ""


def test_each_compared_value_has_a_line(gated: StatsInput) -> None:
    runs = "run0", "run2", "run1"
    assert values(gated, "val_loss", *runs) == ["975", "0.3073", "0.9276"]
    assert values(gated, "best in epoch", *runs) == ["2", "4", "1"]
    assert values(gated, "trend", *runs) == ["✗ diverged", "✓ improves", "◦ one value"]
    assert values(gated, "epochs", *runs) == ["3/4", "4/4", "1/4"]
    assert values(gated, "state", *runs) == ["□ stopped", "✓ completed", "□ stopped"]
    assert values(gated, "health", *runs) == ["✓ ok", "✓ ok", "✓ ok"]
    assert values(gated, "remaining", *runs) == ["stopped", "done", "stopped"]
    assert values(gated, "badput share", *runs) == ["0 %", "11 %", "89 %"]


def test_health_is_given_for_each_run() -> None:
    stats = read(FIXTURES / "demo")
    assert values(stats, "health", "run0", "run4")[0] == "✓ ok"
    assert values(stats, "health", "run0", "run4")[1].startswith("✗ ")


@pytest.mark.parametrize("cells", [40, 60, 77, 117])
def test_runs_that_do_not_fit_are_left_out(gated: StatsInput, cells: int) -> None:
    lines, shown = table(gated, cells, "run0", "run1", "run2", "run3", "run4")
    assert all(width(line) <= cells for line in lines)
    names = text(lines[0]).replace("★", "").split()
    assert names == ["run0", "run1", "run2", "run3", "run4"][:shown]
    assert shown == {40: 2, 60: 3, 77: 4, 117: 5}[cells]


@pytest.mark.parametrize("first", [False, True])
def test_directory_may_be_first_or_last(capsys: Captured, *, first: bool) -> None:
    runs = ["run0", "run4"]
    dagdir = str(FIXTURES / "demo")
    words = [dagdir, *runs] if first else [*runs, dagdir]
    out = text_output("compare", capsys, *words)
    assert out.startswith("run0 is best: val_loss 0.264 in epoch 6\n")
    assert "random_seed" in out
    assert "3 of 3 tries used" in out


def test_output_directory_named_like_a_run_is_not_a_dagdir(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (*GATED.glob("*.dag"), *GATED.glob("*.log")):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    uuids = [row.uuid or "" for row in read(tmp_path).status.runs[:2]]
    for uuid in uuids:
        os.mkdir(uuid)
    printed = json_output("compare", capsys, *uuids)
    assert [run["uuid"] for run in printed["runs"]] == uuids


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["run0"], "give two or more runs: metlmon compare RUN RUN [DIR]"),
        (["run0", "run0"], "run0 and run0 are the same run: give two or more"),
        (["run0", "run9"], "run9: no such run; "),
        (["run0", "run1", "--metric", "no"], "--metric no: no run has it; there are: val_loss"),
    ],
)
def test_invalid_selections_are_refused(capsys: Captured, words: list[str], error: str) -> None:
    assert main(["compare", str(GATED), *words]) == 2
    assert error in capsys.readouterr().err


def test_json_has_all_values(capsys: Captured) -> None:
    printed = json_output("compare", capsys, "run2", "run4", GATED)
    assert (printed["metric"], printed["goal"], printed["equal"]) == ("val_loss", "min", 2)
    assert printed["differing"] == [
        {"name": "random_seed", "values": ["3", "5"]},
        {"name": "diverge_at", "values": [None, "1"]},
    ]
    best, lost = printed["runs"]
    assert (best["best"], lost["best"]) == (True, False)
    assert best["sites"] == [{"name": "Expanse-GPU", "epochs": 4}]
    files = (GATED / "output/training_logs" / best["uuid"]).glob("version_*/metrics.csv")
    rows = [row for file in sorted(files) for row in csv.DictReader(file.open())]
    last = max((row for row in rows if row.get("val_loss")), key=lambda row: int(row["epoch"]))
    assert best["metric"]["last"]["value"] == pytest.approx(float(last["val_loss"]))
    assert lost["estimate"]["epochs_left"] == 0
    assert printed["health"] == []
