"""Recorded ensembles whose runs were stopped, paused and continued, and one whose epochs take two
machines: every number equals that of a recount of the files' text (``recounted``)."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from metlmon.jobfiles.gate_files import read_request
from metlmon.pool import gate_requests
from metlmon.stats.backtest import backtest
from metlmon.stats.estimates import make_forecast
from tests.gate.independent_count import Recount
from tests.support.commands import Captured, json_output, text_output
from tests.support.event_logs import Log, Out, of_one_job
from tests.support.recordings import FIXTURES
from tests.support.run_histories import recorded
from tests.support.shared_readers import shared_readers

GATED, MACHINES = FIXTURES / "gated", FIXTURES / "machines"
FIRST, SECOND = "gated", "gated-2"
STANDS_STILL, AT_ONCE, WAITED, WENT_ON, DIVERGED = (f"run{n}" for n in range(5))


@pytest.fixture(scope="module", autouse=True)
def _shared_readers() -> Iterator[None]:
    with shared_readers():
        yield


def output_of(capsys: Captured, command: str, *words: str) -> dict[str, Any]:
    return json_output(command, capsys, *words, "--no-live")


@cache
def moments(dagdir: Path) -> tuple[datetime, ...]:
    """Every third time of an event, and the end."""
    found = sorted(set(Recount(dagdir).moments))
    return (*found[:-1:3], found[-1])


def cases() -> Iterator[tuple[Path, datetime | None]]:
    for dagdir in (GATED, MACHINES):
        yield dagdir, None
        for moment in moments(dagdir):
            yield dagdir, moment


CASES = list(cases())
THEN = pytest.mark.parametrize(
    ("dagdir", "then"), CASES, ids=[f"{d.name}-{t.time() if t else 'end'}" for d, t in CASES]
)


def at(then: datetime | None) -> tuple[str, ...]:
    return ("--as-of", then.isoformat()) if then is not None else ()


@THEN
def test_status_agrees_with_recount(dagdir: Path, then: datetime | None, capsys: Captured) -> None:
    counted = Recount(dagdir, then)
    status = output_of(capsys, "status", str(dagdir), *at(then))
    for kind, name in {"good": "goodput", "bad": "badput", "in_flight": "running"}.items():
        seconds = 3600 * status["hours"][name]
        assert seconds == pytest.approx(counted.gpu_seconds[kind], abs=0.01), kind
        for run in status["runs"]:
            of_run = counted.runs[run["uuid"]][kind]
            assert 3600 * run["hours"][name] == pytest.approx(of_run, abs=0.01), run["run"]
        for site in status["sites"]:
            of_site = counted.sites[site["site"]][kind]
            assert 3600 * site["hours"][name] == pytest.approx(of_site, abs=0.01), site["site"]
    executions = {site["site"]: site["executions"] for site in status["sites"]}
    assert executions == {site: sums["executions"] for site, sums in counted.sites.items()}
    lost = sum(cause["badput"] for cause in status["causes"])
    assert lost * 3600 == pytest.approx(counted.gpu_seconds["bad"], abs=0.01)
    check_epochs(counted, dagdir, then, status["runs"])
    if dagdir == GATED and then is not None and then < begin_of_second():
        check_stops(then, status["runs"])


def check_epochs(
    counted: Recount, dagdir: Path, then: datetime | None, runs: list[dict[str, Any]]
) -> None:
    done, skipped = set(counted.completed()), counted.skipped()
    for run in runs:
        own = counted.epochs_of(run["uuid"])
        assert run["epochs_total"] == len(own)
        assert run["epochs_done"] == len(own & done), run["run"]
        goes_on = dagdir == GATED and run["run"] in (AT_ONCE, WENT_ON)
        if not goes_on or (then is not None and then < begin_of_second()):
            assert run["epochs_skipped"] == len(own & skipped), run["run"]
    if dagdir == MACHINES:
        assert skipped == set()


def check_stops(then: datetime, runs: list[dict[str, Any]]) -> None:
    stops = {each["run"]: each for each in Recount(GATED).stops(FIRST)}
    for run in runs:
        result, stop = run["gate"]["stopped"], stops.get(run["run"])
        if stop is None or datetime.fromisoformat(stop["time"]) > then:
            assert result is None, run["run"]
        else:
            expected = {key: stop[key] for key in ("rule", "epoch", "reason", "time")}
            assert result == expected | {"epoch": stop["epoch"] + 1, "node": stop["node"]}


@cache
def begin_of_second() -> datetime:
    """When the DAG that continues the stopped runs was submitted."""
    text = (GATED / f"{SECOND}.dag.dagman.log").read_text()
    return datetime.fromisoformat(text[19:38])


@pytest.mark.parametrize("dag", [FIRST, SECOND])
def test_no_run_trains_after_its_stop(dag: str) -> None:
    counted = Recount(GATED)
    second = begin_of_second()
    for stop in counted.stops(dag):
        since = datetime.fromisoformat(stop["time"])
        until = second if dag == FIRST else datetime.max
        own = counted.epochs_of(stop["uuid"])
        ran = [r for job in counted.jobs.values() if job.node in own for r in job.ran]
        assert [r for r in ran if since <= r.start < until] == [], stop["run"]
        assert [r for r in ran if r.start < since < (r.end or until) < until] == [], stop["run"]


def test_cut_epoch_is_badput_by_the_user_who_removed_it(capsys: Captured) -> None:
    counted = Recount(GATED)
    cut = [job for job in counted.jobs.values() if job.over == "removed"]
    assert {job.node for job in cut} == {f"{AT_ONCE}-train_epoch1"}
    spent = sum(ran.spent(counted.now) for job in cut for ran in job.ran)
    status = output_of(capsys, "status", str(GATED))
    causes = {each["cause"]: each for each in status["causes"]}
    removed = causes["via metlmon (by a user)"]
    assert removed["executions"] == len(cut) == 2
    assert removed["badput"] * 3600 == pytest.approx(spent, abs=0.01)
    assert causes["evicted, no reason given"]["executions"] == 1, "what condor_vacate_job evicted"
    # The second DAG submitted the epoch again; there its node has ended, stopped by the gate.
    (entry,) = (each for each in status["health"] if each["kind"] == "removed-by-user")
    assert entry["steps"] == ["Nothing to do: submitted again since or its node has ended"]
    assert len(entry["jobs"]) == 2


def test_removal_explains_the_eviction_before_it() -> None:
    def evicted(**more: Any) -> Log:
        return Log().submit(1, "run0-train_epoch0").execute(1).evict(1, at="12:00:00", **more)

    def reasons(log: Log) -> list[str | None]:
        return [execution.reason for execution in of_one_job(log).job(1).executions]

    by_hand = "via condor_rm (by user ada)"
    assert reasons(evicted(code=None).remove(1, at="12:00:01")) == [by_hand]
    assert reasons(evicted().remove(1, at="12:00:01")) == [None], "its code says why"
    assert reasons(evicted(code=None).remove(1, at="13:00:00")) == [None], "long after it"
    again = evicted(code=None).execute(1, at="12:00:02").remove(1, at="12:00:04")
    assert reasons(again) == [None, by_hand]


def test_dagman_counts_skipped_nodes_as_done(capsys: Captured) -> None:
    dags = {dag["file"]: dag for dag in output_of(capsys, "status", str(GATED))["dags"]}
    for name in (FIRST, SECOND):
        totals = json.loads((GATED / f"{name}.dag.metrics").read_bytes())
        dag = dags[f"{name}.dag"]
        assert (dag["nodes_total"], dag["nodes_done"]) == (totals["jobs"], totals["jobs_succeeded"])
        assert (dag["state"], dag["nodes_failed"]) == ("done", totals["jobs_failed"]) == ("done", 0)


def test_estimates_exclude_stopped_runs() -> None:
    end = make_forecast(recorded(GATED))
    assert (end.remaining, end.missing_reason, end.excluded) == (None, None, ())
    counted = Recount(GATED)
    trained = [
        max(ran.end for ran in rans if ran.end is not None)
        for node, rans in counted.completed().items()
        if "train_epoch" in node
    ]
    assert end.completed_at == max(trained)
    for stop in counted.stops(FIRST):
        then = datetime.fromisoformat(stop["time"]) + timedelta(seconds=1)
        found = make_forecast(recorded(GATED, then))
        (run,) = (run for run in found.runs if run.key == stop["uuid"])
        assert (run.epochs_left, run.remaining, run.missing_reason) == (0, None, None), stop["run"]
        assert found.slowest_run != stop["uuid"]


def test_backtest_uses_trained_epochs_only() -> None:
    asked = backtest(recorded(GATED), lambda moment: recorded(GATED, moment))
    assert asked.predictions
    assert all(trial.actual >= 0 for trial in asked.predictions)


def test_hours_of_evaluations_count_once(capsys: Captured) -> None:
    counted = Recount(GATED)
    evaluations = [job for job in counted.jobs.values() if "eval_epoch" in job.node]
    assert {job.over for job in evaluations} == {"good", "failed"}
    report = output_of(capsys, "report", str(GATED))
    totals = report["totals"]
    trained = {n: rans for n, rans in counted.completed().items() if "train_epoch" in n}
    assert totals["epochs"] == len(trained)
    assert totals["gpu_hours"] * 3600 == pytest.approx(sum(counted.gpu_seconds.values()), abs=0.01)
    times = [(ran.end - ran.start).total_seconds() for (ran,) in trained.values() if ran.end]
    assert totals["epoch_seconds_median"] == median(times)
    spent = sum(ran.spent(counted.now) for job in evaluations for ran in job.ran) / 3600
    text = report["definitions"]["per_epoch"]
    assert f"Side nodes of runs (evaluations) are in it: {len(evaluations)} executions" in text
    assert f"{spent:.4f} GPU-hours" in text


def test_report_counts_skipped_epochs(capsys: Captured) -> None:
    report = output_of(capsys, "report", str(GATED))
    totals = report["totals"]
    assert (totals["runs"], totals["runs_completed"], totals["runs_stopped"]) == (5, 2, 3)
    assert (totals["epochs"], totals["epochs_skipped"]) == (14, 6)
    assert report["headline"].startswith("14 of 20 epochs of 5 runs completed, 6 skipped (3 runs")
    rows = {row["run"]: row["epochs_skipped"] for row in report["runs"]["rows"]}
    assert rows == {STANDS_STILL: 1, AT_ONCE: 3, WAITED: 0, WENT_ON: 0, DIVERGED: 2}
    assert report["runs"]["total"]["epochs_skipped"] == 6


def test_copy_has_the_same_status(tmp_path: Path, capsys: Captured) -> None:
    copy = tmp_path / "elsewhere" / "copied"
    shutil.copytree(GATED, copy, copy_function=shutil.copy)
    for path in copy.rglob("*"):
        os.utime(path, (2e9, 2e9))
    for words in ((), at(moments(GATED)[len(moments(GATED)) // 2])):
        here, there = (output_of(capsys, "status", str(path), *words) for path in (GATED, copy))
        assert {**there, "dagdir": here["dagdir"]} == here
    status = output_of(capsys, "status", str(copy))
    (gate,) = (run["gate"] for run in status["runs"] if run["run"] == AT_ONCE)
    asked = (copy / "gate" / SECOND / f"{_uuid(status, AT_ONCE)}.stop").read_text().splitlines()
    assert gate["stop_requested"] == asked[-1].removesuffix("Z")
    assert json_output("status", capsys, copy)["live"] is False


def test_request_without_a_time_precedes_its_answer(tmp_path: Path, capsys: Captured) -> None:
    copy = tmp_path / "copied"
    shutil.copytree(GATED, copy)
    uuid = _uuid(output_of(capsys, "status", str(copy)), AT_ONCE)
    stop = copy / "gate" / SECOND / f"{uuid}.stop"
    stop.write_text("enough\n")
    os.utime(stop, (2e9, 2e9))
    runs = output_of(capsys, "status", str(copy))["runs"]
    (gate,) = (run["gate"] for run in runs if run["run"] == AT_ONCE)
    assert gate["stop_requested"] == gate["stopped"]["time"]


def test_request_has_its_time() -> None:
    written = gate_requests.author_line() + gate_requests.time_line(1_795_317_901)
    assert read_request(written) == 1_795_317_901
    assert read_request(b"enough\n2026-11-22\n") is None


def _uuid(status: dict[str, Any], name: str) -> str:
    (found,) = (run["uuid"] for run in status["runs"] if run["run"] == name)
    return str(found)


RESCUE = """\
# Rescue DAG file, created after running
#   the gated.dag DAG file
# Created 11/22/2026 03:24:43 UTC
# Rescue DAG version: 2.0.1 (partial)
#
# Total number of Nodes: 30
# Nodes premarked DONE: 30
# Nodes that failed: 0
#   <ENDLIST>

"""


@pytest.fixture(name="resubmitted", params=["with its jobstate log", "without"])
def _resubmitted(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The recording, removed and submitted again: its rescue file marks skipped nodes as ``DONE``,
    and DAGMan has truncated nodes.log."""
    shutil.copytree(GATED, tmp_path / "gated")
    place = tmp_path / "gated"
    for name in ("metrics", "status", *(["jobstate.log"] * (request.param == "without"))):
        (place / f"gated.{'' if name == 'jobstate.log' else 'dag.'}{name}").unlink()
    out = (place / "gated.dag.dagman.out").read_text()
    head = out[: out.index("MultiLogFiles: truncating")].replace("nodes: 0", "nodes: 30")
    again = re.sub(r"(?m)^11/22/26 \S+", "11/22/26 03:30:00", head)
    (place / "gated.dag.dagman.out").write_text(out + again.rpartition("\n")[0] + "\n")
    nodes = re.findall(r"(?m)^JOB (\S+)", (place / "gated.dag").read_text())
    done = "".join(f"DONE {node}\n" for node in nodes)
    (place / "gated.dag.rescue001").write_text(RESCUE + done)
    (place / "gated.dag.nodes.log").write_text("")
    return place


def test_epoch_cut_by_stop_now_stays_skipped_on_resubmission(
    resubmitted: Path, capsys: Captured
) -> None:
    status = output_of(capsys, "status", str(resubmitted))
    assert status["epoch_states"]["skipped"] == 6
    (run,) = (each for each in status["runs"] if each["run"] == AT_ONCE)
    assert (run["epochs_done"], run["epochs_skipped"]) == (1, 3)
    kept = resubmitted / "output" / "training_logs" / run["uuid"] / "checkpoints"
    kept.mkdir()
    (kept / "last.ckpt").write_bytes(b"a checkpoint")
    # The restarted DAGMan has ended, too.
    with (resubmitted / "gated.dag.dagman.out").open("ab") as file:
        file.write(Out().exit(0, "2026-11-22 03:31:00").data)
    planned = text_output("continue", capsys, resubmitted / "gated.dag", AT_ONCE, "--dry-run")
    assert "epoch 1" in next(line for line in planned.splitlines() if AT_ONCE in line)
