"""The unit of hours: an ensemble without GPUs has CPU-hours or wall hours."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.report.build import build_report
from metlmon.report.to_html import render_html
from metlmon.report.to_markdown import render_markdown
from metlmon.snapshot.records import HourUnit, hour_unit_of
from metlmon.stats.totals import break_down, sum_executions
from metlmon.stats.usage import UsageFilter, usage_in_window
from metlmon.stats.windows import TimeWindow
from metlmon.tables import runs as runs_table
from metlmon.tables import usage as usage_table
from metlmon.tables.usage import execution_columns
from metlmon.text import formatting, spans
from screens.overview import gpu_hours
from tests.support.commands import Captured, json_output, text_output
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log, moment, of_one_job
from tests.support.records import stats_input


def log_of(*cpus: int | None, gpus: int = 0) -> Log:
    """One job with an hour's execution for each number: all but the last are evicted."""
    log = Log().submit(77, NODE, at="00:00:00")
    for at, number in enumerate(cpus):
        log.execute(77, gpus=gpus, at=f"{2 * at + 1:02d}:00:00")
        if number is not None:
            log.events[-1] = log.events[-1].replace(b"\tMemory", b"\tCpus = %d\n\tMemory" % number)
        if at < len(cpus) - 1:
            log.evict(77, at=f"{2 * at + 2:02d}:00:00")
    return log.terminate(77, at=f"{2 * len(cpus):02d}:00:00")


def test_unit_of_hours() -> None:
    lost, good = of_one_job(log_of(4, 8)).builder().ledger().executions
    assert hour_unit_of(()) is hour_unit_of((lost, replace(good, gpus=1))) is HourUnit.GPU
    assert hour_unit_of((lost, good)) is HourUnit.CPU
    half = replace(lost, checkpoint=lost.start, stored=lost.seconds / 2)
    assert sum_executions((half,), HourUnit.CPU).hours.badput == 2


@pytest.mark.parametrize(
    ("cpus", "measure", "good", "bad"),
    [
        ((4, 8), HourUnit.CPU, 8, 4),
        ((4, None), HourUnit.WALL, 1, 1),
        ((None,), HourUnit.WALL, 1, 0),
    ],
)
def test_hours_of_an_ensemble_without_gpus(
    cpus: tuple[int | None, ...], measure: HourUnit, good: float, bad: float
) -> None:
    found = of_one_job(log_of(*cpus)).builder()
    status, breakdown = found.status(), break_down(found.ledger())
    for hours in (status.hours, status.runs[0].hours, breakdown.sites[0].hours):
        assert hours.measure is measure
        assert (hours.goodput, hours.badput, hours.running) == (good, bad, 0)
    assert sum(cause.badput for cause in breakdown.causes) == bad
    (below,) = runs_table.cursor_detail(status.runs[0], {"run"}, 80)
    assert f"badput {formatting.hours(bad)} {measure.short}" in spans.text(below)
    view = found.run_view(status.runs[0].key)
    assert view.epochs[0].hours == status.hours
    assert spans.text(gpu_hours(status.hours)).startswith(measure.hours)
    ledger = found.ledger()
    in_gpus = usage_in_window(replace(ledger, measure=HourUnit.GPU))
    assert in_gpus.total.totals.hours.total == 0
    places = usage_in_window(ledger)
    assert places.total.totals.hours.total == good + bad
    assert places.total.totals.hours_per_epoch == good + bad
    legend = usage_table.legend(places.total.totals)
    assert spans.text(legend).startswith(measure.hours)
    made = build_report(stats_input(found), None)
    assert f"with {good + bad:.{made.hours_digits}f} {measure.hours}" in made.prose(made.headline)
    assert not any("GPU-hours" in page for page in (render_html(made), render_markdown(made)))
    made_in_gpus = build_report(stats_input(found), None, measure=HourUnit.GPU)
    assert made_in_gpus.headline.count("with 0 GPU-hours") == 1


def test_window_has_its_part_of_an_execution() -> None:
    ledger = of_one_job(log_of(4)).builder().ledger()
    half = TimeWindow(moment("01:30:00"), None)
    assert usage_in_window(ledger, half).total.totals.hours.total == 2


def test_in_flight_hours_by_cpus() -> None:
    log = log_of(4, 8)
    log.events.pop()
    hours = of_one_job(log).builder(as_of="03:30:00").status().hours
    assert (hours.measure, hours.badput, hours.running) == (HourUnit.CPU, 4, 4)


def test_later_gpus_change_the_unit() -> None:
    """The first execution had none, the second has two."""
    log = log_of(4)
    assert of_one_job(log).builder().status().hours.measure is HourUnit.CPU
    log.submit(78, NODE, at="05:00:00").execute(78, gpus=2, at="06:00:00")
    log.terminate(78, at="07:00:00")
    hours = of_one_job(log).builder().status().hours
    assert (hours.measure, hours.goodput, hours.badput) == (HourUnit.GPU, 2, 0)


def test_json_keeps_gpu_hours_beside_the_others(capsys: Captured, tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", log_of(4, 8).data)
    spent = {"measure": "CPU", "goodput": 8, "badput": 4, "running": 0, "total": 12}
    status = json_output("status", capsys, dagdir.path)
    for each in (status, status["runs"][0]):
        assert each["hours"] == spent
    assert json_output("sites", capsys, dagdir.path)["total"]["hours"] == spent
    assert json_output("report", capsys, dagdir.path)["totals"]["gpu_hours"] == 0
    for command in ("status", "sites", "report", "jobs"):
        text = text_output(command, capsys, dagdir.path)
        assert "CPU-" in text
        assert "gpu-h" not in text.lower()


def test_bars_and_executions_name_the_unit() -> None:
    places = usage_in_window(of_one_job(log_of(4)).builder().ledger())
    for view in usage_table.VIEWS:
        heads = [spec.title for spec in view.columns_of(view.rows(places), places)]
        assert "GPU-HOURS" not in heads
        assert ("CPU-HOURS" in heads) == (view in (usage_table.SITES, usage_table.GPUS))
    heads = [column.title for column in execution_columns(places, UsageFilter())]
    assert "CPU-h" in heads
    assert "GPU-h" not in heads
