"""Usage for the report: every sum over GPU models, sites, causes, runs and time is the whole.

The counts are those of the ensemble's generator.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from typing import Any

import pytest

from metlmon.config.settings import Settings
from metlmon.report.document import tables_json
from metlmon.report.to_html import render_html
from metlmon.report.to_markdown import render_markdown
from metlmon.report.to_text import text_lines
from metlmon.report.usage import ReportUsage, make_box_plot
from metlmon.report.usage_tables import cause_table, resource_table
from metlmon.snapshot.records import HOUR
from metlmon.stats.usage import GroupUsage
from metlmon.stats.windows import ALL, TimeWindow
from metlmon.text.formatting import THIN
from tests.support.event_logs import USAGE, Log, of_one_job
from tests.support.sample_reports import FIXTURES, NODE, builder, report_of_log


def usage_of(name: str, window: TimeWindow = ALL) -> ReportUsage:
    return ReportUsage(builder(name).ledger(), window)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


# --- the first round, generated with its truth ------------------------------------------------


@cache
def truth() -> dict[str, Any]:
    path = FIXTURES / "first-round" / "truth.json"
    if not path.exists():
        pytest.skip("no fixtures/first-round: it is generated")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("by_gpu", lambda usage: usage.gpus),
        ("by_site", lambda usage: usage.sites),
        ("by_label", lambda usage: usage.labels),
    ],
)
def test_first_round_divided(name: str, of: Callable[[ReportUsage], Iterable[GroupUsage]]) -> None:
    usage = usage_of("first-round")
    result = {
        group.name: {
            "executions": group.totals.executions,
            "completed": group.totals.completed_epochs,
            "good": round(group.totals.hours.goodput * HOUR),
            "bad": round(group.totals.hours.badput * HOUR),
        }
        for group in of(usage)
        if group.totals.executions
    }
    wanted = {usage.gpu_names.get(key, key): row for key, row in truth()[name].items()}
    keys = next(iter(wanted.values())).keys()
    assert {g: {k: v for k, v in row.items() if k in keys} for g, row in result.items()} == wanted


def test_totals_of_the_first_round() -> None:
    wanted = truth()
    usage = usage_of("first-round")
    spent = usage.total.totals.hours
    seconds = {"good": round(spent.goodput * HOUR), "bad": round(spent.badput * HOUR)}
    assert seconds == wanted["gpu_seconds"]
    assert usage.total.longest.gpu_seconds == wanted["longest_gpu_seconds"]
    assert usage.hidden == len(wanted["hidden"])
    moved = usage.total.input
    assert {"sent": moved.sent, "received": moved.received} == wanted["bytes"]
    assert sorted(round(cause.badput * HOUR) for cause in usage.causes) == sorted(
        each["gpu_seconds"] for each in wanted["by_cause"].values()
    )
    transfers = {
        (move.direction, move.outcome): (move.count, move.seconds)
        for move in usage.transfer_groups
        if move.count
    }
    assert transfers == {
        (direction, outcome): (each["count"], each["seconds"])
        for direction, outcomes in wanted["transfers"].items()
        for outcome, each in outcomes.items()
    }


# --- sums -------------------------------------------------------------------------------------

ENSEMBLES = pytest.mark.parametrize(
    "name", "metl-aws pool-ensemble first-round trainer rescue holds shared-log gated".split()
)


def numbers(groups: Iterable[GroupUsage]) -> dict[str, float]:
    added: dict[str, float] = {}
    for group in groups:
        totals = group.totals
        for key, value in {
            "executions": totals.executions,
            "good executions": totals.good_executions,
            "bad executions": totals.bad_executions,
            "completed": totals.completed_epochs,
            "good": totals.hours.goodput * HOUR,
            "bad": totals.hours.badput * HOUR,
            "in flight": totals.hours.running * HOUR,
            "by longest": group.longest.epochs,
            "longest": group.longest.seconds,
            "longest in GPU-seconds": group.longest.gpu_seconds,
            "to jobs": group.input.received,
            "from jobs": group.input.sent,
        }.items():
            added[key] = round(added.get(key, 0) + value, 3)
    return added


def windows_of(name: str) -> list[TimeWindow]:
    ledger = builder(name).ledger()
    assert ledger.first_time is not None
    assert ledger.as_of is not None
    middle = ledger.first_time + (ledger.as_of - ledger.first_time) / 2
    return [ALL, TimeWindow(until=middle), TimeWindow(since=middle)]


@ENSEMBLES
def test_every_division_sums_to_the_whole(name: str) -> None:
    for window in windows_of(name):
        usage = usage_of(name, window)
        whole = numbers([usage.total])
        assert numbers(usage.sites) == whole
        # Bytes of jobs that never ran belong to no GPU.
        for part in (usage.gpus, usage.labels):
            assert (
                numbers(part).items() >= {k: v for k, v in whole.items() if "jobs" not in k}.items()
            )
        if not usage.undated:
            assert numbers(group for _, group in usage.periods) == whole
        spent = usage.total.totals
        hours = spent.hours
        assert sum(cause.badput for cause in usage.causes) == pytest.approx(hours.badput)
        assert sum(cause.executions for cause in usage.causes) == spent.bad_executions
        for cause in usage.causes:
            assert sum(each.badput for each in cause.reasons) == pytest.approx(cause.badput)
        assert usage.epochs_at.total() == spent.completed_epochs
        times = [each.trained for each in usage.ledger.executions if each.final]
        assert window is not ALL or usage.epoch_times == sorted(times)
        assert spent.completed_epochs + usage.unlocated - usage.repeated == usage.epochs
        if usage.series is not None:
            series = usage.series
            assert sum(series.epochs) == usage.epochs - usage.undated
            kinds = series.kinds.values()
            assert [sum(each) / HOUR for each in kinds] == pytest.approx(
                [hours.goodput, hours.badput, hours.running]
            )
            assert sum(map(sum, series.sites.values())) / HOUR == pytest.approx(hours.total)


def test_causes_count_executions_lost_after_a_checkpoint() -> None:
    usage = usage_of("checkpoints")
    table = cause_table(usage)
    assert table.total is not None
    assert table.total["executions"] == sum(row["executions"] for row in table.rows) == 3
    assert usage.total.totals.bad_executions == 1
    held = cause_table(usage_of("holds")).rows[1]
    assert (held["reason"], len(held["parts"])) == ("2 different", 2)
    # An older version, in which 13 is a failure to send.
    log = Log().submit(77).execute(77).hold(77, 13, "STARTER at 10.0.0.1 failed to send file(s)")
    table = cause_table(usage_of_log(log))
    assert table.columns[0].text(table.rows[0]["code"]) == "13/0 TransferOutputError"


# --- hidden compute and unknown epochs ----------------------------------------------------------


def usage_of_log(log: Log, settings: Settings | None = None) -> ReportUsage:
    return ReportUsage(of_one_job(log, settings=settings).builder().ledger())


def test_resource_usage_with_upper_bounds() -> None:
    log = Log().submit(77, NODE).execute(77, gpus=2, site="here")
    body = USAGE.format_map(defaultdict(int)).replace("40321", "48829")
    report = report_of_log(log.raw(5, 77, "Job terminated.", body))
    (row,) = tables_json(report)["resources"]["rows"]
    assert (row["ended"], row["executions"]) == ("completed", 1)
    assert "gpus_median" not in row, "it was not measured"
    assert (row["memory_mb_maximum"], row["memory_mb_requested_max"]) == (48829, 160000)
    assert row["at_most"] == ["memory_mb_median", "memory_mb_p95", "memory_mb_maximum"]
    for text in (render_html(report), render_markdown(report), "\n".join(text_lines(report, 300))):
        assert "≤47.7 GB" in text.replace(THIN, " ")
        assert "≤160" not in text
    assert resource_table(usage_of_log(Log().submit(77, NODE))) is None


def test_times_centuries_apart() -> None:
    log = Log().submit(77, NODE, at="0001-01-01 00:00:00")
    log.submit(78, NODE, at="2025-11-01 10:00:00")
    log.execute(78, at="2025-11-01 11:00:00").terminate(78, at="2025-11-01 12:00:00")
    usage = usage_of_log(log)
    assert (usage.series, usage.periods) == (None, ())
    assert usage.total.totals.hours.goodput == 1


def test_ensemble_of_one_second_has_a_day() -> None:
    log = Log().submit(77, NODE, at=(noon := "2025-11-01 12:00:00")).execute(77, at=noon)
    assert [total.totals.executions for _, total in usage_of_log(log).periods] == [1]


def test_window_that_ends_at_midnight() -> None:
    log = Log().submit(77, NODE, at="2025-11-01 10:00:00").execute(77, at="2025-11-01 12:00:00")
    log.terminate(77, at="2025-11-03 12:00:00")
    ledger = of_one_job(log).builder().ledger()
    usage = ReportUsage(ledger, TimeWindow(at("2025-11-01T18:00"), at("2025-11-03")))
    edges = (at("2025-11-01T18:00"), at("2025-11-02"), at("2025-11-03"))
    assert usage.series.edges == edges
    assert usage.series.kinds["goodput"] == (6 * HOUR, 24 * HOUR)


def test_quartiles_and_whiskers() -> None:
    found = make_box_plot([1, 2, 3, 4, 5, 100])
    assert found.n == 6
    assert (found.lower_quartile, found.median, found.upper_quartile) == (2.25, 3.5, 4.75)
    assert (found.lower_whisker, found.upper_whisker, found.outliers) == (1, 5, (100,))
    assert make_box_plot([]) is None
