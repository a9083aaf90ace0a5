"""Figures that statistics add to runs: metrics, swept variables, wall times; and their columns."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.cli.reading import input_with_trainings
from metlmon.config.settings import MetricSettings
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import JobFiles, StatsInput
from metlmon.stats.run_figures import RunFigures, run_figures
from metlmon.tables.layout import fit_columns
from metlmon.tables.runs import columns as columns_of
from metlmon.tables.runs import sparkline
from tests.support.commands import Captured, json_output, text_output
from tests.support.recordings import read_all
from tests.support.sample_snapshots import RUNS

ROOT = Path(__file__).resolve().parents[2]
TRAINER = ROOT / "fixtures" / "trainer"


def read(dagdir: Path, as_of: datetime | None = None) -> StatsInput:
    reader = read_all(DagdirReader(dagdir, as_of=as_of, live=True if as_of is not None else None))
    return input_with_trainings(reader)


@pytest.fixture(scope="module")
def trainer() -> StatsInput:
    return read(TRAINER)


def test_wall_time_is_first_submission_to_last_end(trainer: StatsInput) -> None:
    """From the lines of the log only."""
    times: dict[str, list[datetime]] = {}
    for line in (TRAINER / "metl.log").read_text().splitlines():
        if line[:3] in ("000", "005") and line[3:5] == " (":
            cluster, moment = line[5:].split(".")[0].lstrip("0"), line.split(") ")[1][:19]
            times.setdefault(cluster, []).append(datetime.fromisoformat(moment))
    seconds = run_figures(trainer).wall_seconds
    for row in trainer.status.runs:
        own = [job.job for job in trainer.ledger.jobs if job.key == row.key]
        moments = [moment for cluster, _ in own for moment in times[str(cluster)]]
        assert seconds[row.key] == (max(moments) - min(moments)).total_seconds()


def test_run_with_a_queued_job_has_no_wall_time() -> None:
    stats = read(ROOT / "fixtures" / "trainer", datetime(2026, 11, 21, 14, 21, 50))
    running = {job.key for job in stats.ledger.jobs if job.queued}
    assert running
    assert not running & run_figures(stats).wall_seconds.keys()


def test_run_between_epochs_has_not_ended(capsys: Captured) -> None:
    demo, moment = ROOT / "fixtures" / "demo", datetime(2026, 11, 21, 9, 44, 41)
    stats = read(demo, moment)
    (run,) = [run for run in stats.status.runs if run.is_between_epochs]
    assert (run.epochs_done, run.epochs_total) == (2, 6)
    assert run.key not in run_figures(stats).wall_seconds
    totals = json_output("report", capsys, demo, "--as-of", moment.isoformat())["totals"]
    assert (totals["runs"], totals["runs_completed"]) == (6, 0)


def shown(stats: StatsInput, figures: RunFigures | None, width: int) -> list[str]:
    rows = stats.status.runs
    columns = columns_of(rows, {}, figures, MetricSettings())
    return list(fit_columns(columns, rows, width))


def test_finished_ensemble_shows_its_results(trainer: StatsInput) -> None:
    figures = run_figures(trainer)
    assert shown(trainer, figures, 80) == [
        *("run", "vars.nan", "progress", "state", "last", "best", "curve", "wall", "hours")
    ]
    assert "since" not in shown(trainer, figures, 250)


def test_metric_columns_are_reserved_before_reading(trainer: StatsInput) -> None:
    """The first frame precedes reading the files, after which nothing moves."""
    moment = datetime(2026, 11, 21, 14, 21, 50)
    stats = read(TRAINER, moment)
    figures = run_figures(stats)
    fitted = []
    for known in (None, figures):
        columns = columns_of(stats.status.runs, {}, known, MetricSettings())
        # Swept variables are known from the DAG files.
        columns = [column for column in columns if not column.name.startswith("vars.")]
        fitted.append(fit_columns(columns, stats.status.runs, 80))
    assert fitted[0] == fitted[1]
    assert [*fitted[0]][:6] == ["run", "progress", "state", "last", "best", "curve"]


def test_columns_without_a_metric() -> None:
    stats = replace(read(TRAINER), job_files=JobFiles())
    figures = run_figures(stats)
    assert not {"last", "best", "curve"} & set(shown(stats, figures, 250))
    waiting = [row for row in RUNS if not row.epochs_done]
    assert not {"last", "best"} & {c.name for c in columns_of(waiting, {}, None, MetricSettings())}


@pytest.mark.parametrize(
    ("values", "cells", "expected"),
    [
        ((), 8, ""),
        ((3.0,), 8, "▄"),
        ((4.0, 2.0, 1.0, 1.0), 8, "▇▃▁▁"),
        ((1.0, math.nan, 2.0, math.inf), 8, "▁×▇×"),
        ((8.0, 6.0, 4.0, 2.0), 2, "▇▁"),
        ((1e308, -1e308), 8, "▇▁"),
        (tuple(map(float, range(300))), 7, "▁▂▃▄▅▆▇"),
    ],
)
def test_sparklines(values: tuple[float, ...], cells: int, expected: str) -> None:
    assert sparkline(values, cells) == expected


def test_status_has_the_same_columns(capsys: Captured) -> None:
    lines = text_output("status", capsys, TRAINER).splitlines()
    head = next(i for i, line in enumerate(lines) if " PROGRESS " in line)
    titles = lines[head].split()
    assert titles[:9] == [
        *("RUN", "UUID", "nan", "PROGRESS", "EPOCH", "STATE", "val_loss", "BEST", "5")
    ]
    assert lines[head + 2].startswith("★  run1")
    assert lines[head + 2].split("completed")[1].split()[:4] == ["0.2308", "0.2308", "▇▂▁▁▁", "↓"]
    assert "NaN  0.2759  ▁▁▁▇× ✗" in lines[head + 5]


def test_runs_in_json_have_their_metric(capsys: Captured) -> None:
    runs = {run["run"]: run for run in json_output("status", capsys, TRAINER)["runs"]}
    assert [name for name, run in runs.items() if run["metric"]["is_best"]] == ["run1"]
    lost = runs["run4"]["metric"]
    assert (lost["metric"], lost["goal"], lost["course"]) == ("val_loss", "min", "diverged")
    assert (lost["last"]["value"], lost["last"]["odd"]) == (None, "nan")
    assert lost["best"]["epoch"] == 3
    assert runs["run4"]["swept"] == {"nan": "4"}
    assert runs["run1"]["wall_seconds"] == 66.0
    assert json_output("run", capsys, "run4", TRAINER)["metric"] == lost
