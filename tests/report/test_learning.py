"""Learning in the report: curves, the best runs, and the sweep as a grid."""

from __future__ import annotations

import csv
import json
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from metlmon.cli.main import main
from metlmon.report.to_html import range_ticks
from tests.support.commands import Captured, run_command
from tests.support.replay_pieces import extract_story


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's ensemble: a sweep of 24 runs, one of which diverged."""
    return extract_story(tmp_path_factory.mktemp("story"))[0]


@pytest.fixture(scope="module")
def learned(story: Path) -> dict[str, Any]:
    """Its report, and its runs from ``status``."""
    with redirect_stdout(StringIO()) as printed:
        for command in ("report", "status"):
            assert main([command, str(story), "--json"]) == 0
    report, status = map(json.loads, printed.getvalue().splitlines())
    return {**report, "of_status": status["runs"]}


def written(dagdir: Path, uuid: str) -> list[float]:
    """The validation losses in the files of one run, by epoch."""
    values: dict[int, float] = {}
    for path in (dagdir / "output" / "training_logs" / uuid).glob("version_*/metrics.csv"):
        for row in csv.DictReader(path.read_text().splitlines()):
            if row["val_loss"]:
                values[int(row["epoch"])] = float(row["val_loss"])
    return [values[epoch] for epoch in sorted(values)]


def test_best_runs_are_those_of_the_files(story: Path, learned: dict[str, Any]) -> None:
    rows, runs = learned["best_runs"]["rows"], learned["of_status"]
    losses = {run["run"]: written(story, run["uuid"]) for run in runs}
    expected = sorted(losses, key=lambda run: min(losses[run]))[:10]
    assert [row["run"] for row in rows] == expected
    for row in rows:
        values = losses[row["run"]]
        assert (row["best"], row["last"]) == (min(values), values[-1])
        assert row["best_epoch"] == values.index(min(values)) + 1
        assert row["epochs"] == len(values)


def test_grid_has_the_best_value_of_each_point(story: Path, learned: dict[str, Any]) -> None:
    grid, runs = learned["sweep"], learned["of_status"]
    best = {run["run"]: min(written(story, run["uuid"])) for run in runs}
    cells = [text for row in grid["rows"] for key, text in row.items() if key != "point"]
    assert len(cells) == 24
    shown = dict(re.findall(r"([\d.]+) \((run\d+)\)", " ".join(cells)))
    assert {run: float(value) for value, run in shown.items()} == {
        run: pytest.approx(value, abs=5e-5) for run, value in best.items()
    }
    assert [text for text in cells if text.startswith("★")] == ["★ 0.2014 (run9)"]


def test_diverged_run_does_not_flatten_the_others(
    story: Path, tmp_path: Path, capsys: Captured
) -> None:
    target = tmp_path / "report.html"
    assert run_command("report", capsys, story, "--html", target)[0] == 0
    page = target.read_text()
    (drawing,) = re.findall(r'<svg[^>]*aria-labelledby="curves-t.*?</svg>', page, re.DOTALL)
    assert drawing.count("<path") == 24
    assert drawing.count('class="line"') == 7
    highest = max(float(value) for value in re.findall(r'text-anchor="end">([\d.]+)<', drawing))
    assert highest < 2, "run20 reached 5"


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.2, 1.1, [0.2, 0.4, 0.6, 0.8, 1.0]),
        (-3.0, 3.0, [-2.0, 0.0, 2.0]),
        (0.6, 1.4, [0.8, 1.0, 1.2]),
    ],
)
def test_ticks_need_not_begin_at_zero(low: float, high: float, ticks: list[float]) -> None:
    assert set(ticks) <= set(range_ticks(low, high)[1])
