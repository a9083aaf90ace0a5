"""``export --to mlflow``: the content of a real server afterwards agrees with the logs."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Final

import pytest

from metlmon.cli import Exit
from metlmon.tracking.mlflow_client import TrackingClient
from metlmon.tracking.mlflow_export import MlflowExporter
from tests.conftest import Shared
from tests.support.commands import Captured, json_output, run_command
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log, Out
from tests.support.faulty_tracker import Answer, FaultyTracker
from tests.support.recordings import FIXTURES
from tests.support.tracked_ensembles import (
    RunState,
    dag_text,
    expected_points,
    metrics_csv,
    node,
    server_state,
    small_ensemble,
    stored_points,
    tracked_by,
    uuid,
)
from tests.support.tracking_server import StoredRun, TrackingServer

pytestmark = pytest.mark.xdist_group("tracking")

ENSEMBLES: Final = {"trainer": FIXTURES / "trainer", "pool-ensemble": "examples/pool-ensemble"}


def export(
    tracker: FaultyTracker, capsys: Captured, dagdir: Path, experiment: str, *more: str
) -> tuple[int, str, str]:
    """Exit status and both outputs of an export through the proxy, which counts the calls."""
    tracker.calls.clear()
    options = ("--tracking-uri", tracker.url, "--experiment", experiment, *more)
    return run_command("export --to mlflow", capsys, dagdir, *options)


def wrote(result: tuple[int, str, str]) -> str:
    """The first line of a successful export."""
    code, out, err = result
    assert code == Exit.OK, err
    return out.splitlines()[0].rpartition(": ")[2]


def by_name(server: TrackingServer, experiment: str) -> dict[str, StoredRun]:
    return {run.name: run for run in server.runs(experiment)}


class Small:
    """A small ensemble, and its exports to an experiment of its own."""

    def __init__(
        self, dagdir: Dagdir, tracker: FaultyTracker, server: TrackingServer, capsys: Captured
    ) -> None:
        self.dagdir, self.tracker, self.server, self.capsys = dagdir, tracker, server, capsys
        self.experiment = dagdir.path.parent.name

    def export(self, *more: str) -> tuple[int, str, str]:
        return export(self.tracker, self.capsys, self.dagdir.path, self.experiment, *more)

    def written(self, *more: str) -> str:
        return wrote(self.export(*more))

    @property
    def runs(self) -> dict[str, StoredRun]:
        return by_name(self.server, self.experiment)

    @property
    def state(self) -> dict[str, RunState]:
        return server_state(self.server, self.experiment)


@pytest.fixture(name="small")
def _small(
    tmp_path: Path, tracker: FaultyTracker, tracking_server: TrackingServer, capsys: Captured
) -> Small:
    return Small(small_ensemble(tmp_path / "ensemble"), tracker, tracking_server, capsys)


# --- equal to the tables ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENSEMBLES)
def test_points_agree_with_the_tables(
    name: str,
    tracker: FaultyTracker,
    tracking_server: TrackingServer,
    shared: Shared,
    capsys: Captured,
    tmp_path: Path,
) -> None:
    place = ENSEMBLES[name]
    dagdir = place if isinstance(place, Path) else shared(place)
    expected = expected_points(dagdir, tmp_path / "tables", capsys)
    assert export(tracker, capsys, dagdir, name)[0] == Exit.OK

    runs = tracking_server.runs(name)
    keys = {run.id: run.tags.get("metlmon.key", "").partition("/")[2] or None for run in runs}
    assert {key for key in keys.values() if expected[key]} == expected.keys()
    for run in runs:
        points, wanted = stored_points(run), expected[keys[run.id]]
        assert points.keys() == wanted.keys(), run.name
        for key, (value, time) in wanted.items():
            assert points[key][0] == pytest.approx(value, rel=1e-12, nan_ok=True), (run.name, key)
            assert time in (None, points[key][1]), (run.name, key)
    check_runs(runs, dagdir, tmp_path / "tables", capsys)

    again = wrote(export(tracker, capsys, dagdir, name))
    assert (again, tracker.writes) == ("up to date", [])


def check_runs(runs: list[StoredRun], dagdir: Path, tables: Path, capsys: Captured) -> None:
    """Compare states, hours, epochs and parents with ``status --json`` and ``runs.csv``."""
    status = json_output("status", capsys, dagdir)
    [parent] = [run for run in runs if run.parent is None]
    children = {run.tags["metlmon.key"].partition("/")[2]: run for run in runs if run.parent}
    with open(tables / "runs.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["began"]]
    assert children.keys() == {row["uuid"] or row["key"] for row in rows}
    for row in rows:
        child = children[row["uuid"] or row["key"]]
        assert child.parent == parent.id
        assert child.name == row["run"]
        assert child.tags["metlmon.epochs_done"] == row["epochs_done"]
        for column in ("gpu_hours_goodput", "gpu_hours_badput"):
            assert float(child.tags[f"metlmon.{column}"]) == pytest.approx(float(row[column]), 1e-5)
        ends = {"completed": "FINISHED", "failed": "FAILED", "futile": "FAILED"}
        assert child.status == ends[row["state"]]
        assert child.end is not None
        assert child.start <= child.end <= (parent.end or 0)
    hours = status["hours"]
    for kind in ("goodput", "badput"):
        points = parent.metrics[f"metlmon/gpu_hours_{kind}"]
        assert points[-1].value == pytest.approx(hours[kind], abs=1e-6)
    failed = any(run.status == "FAILED" for run in children.values())
    assert parent.status == ("FAILED" if failed else "FINISHED")


def test_params_tags_and_report_are_exported(small: Small) -> None:
    first = small.written()
    assert first.startswith("3 new runs, 50 points, ")
    assert first.endswith(", the report")

    runs = small.runs
    parent, run0, run1 = (runs[name] for name in ("ensemble", "run0", "run1"))
    assert (run0.params, run1.params) == ({"lr": "1.0"}, {"lr": "0.1"})
    assert run0.tags["metlmon.steps_by_site"] == "Expanse-GPU 0-1"
    assert run0.tags["metlmon.uuid"] == uuid("run0")
    assert "| 2 | 1 | Expanse-GPU | NVIDIA L40S ×2 | 2 |" in run0.tags["mlflow.note.content"]
    # A diverged run: NaN is stored as such.
    values = [point.value for point in run1.metrics["val_loss"]]
    assert (values[0], math.isnan(values[1])) == (0.5, True)
    # An epoch that was evicted and retried: one point, with its lost hours.
    [bad] = [p.value for p in run0.metrics["metlmon/gpu_hours_badput"] if p.step == 1]
    [tries] = [p.value for p in run0.metrics["metlmon/attempts"] if p.step == 1]
    assert (bad, tries) == (pytest.approx(2 / 60), 2)
    [report] = small.server.artifacts.glob(f"*/{parent.id}/artifacts/report.html")
    assert b"run0" in report.read_bytes()


def test_dry_run_agrees_with_the_export(small: Small) -> None:
    code, out, _ = small.export("--dry-run")
    assert (code, small.tracker.writes, small.server.runs(small.experiment)) == (Exit.OK, [], [])
    lines = out.splitlines()
    assert lines[0].startswith(
        f"would write to {small.tracker.url}, experiment {small.experiment}: "
    )
    assert lines[1:4] == [
        "  create ensemble: FINISHED, 10 points",
        "  create run0: FINISHED, 20 points",
        "  create run1: FINISHED, 20 points",
    ]
    assert small.written() == lines[0].rpartition(": ")[2]
    assert small.written("--dry-run") == "up to date"

    changed = metrics_csv([(0, 0.5), (1, 0.125)])
    small.dagdir.write(f"training_logs/{uuid('run0')}/version_0/metrics.csv", changed)
    _, out, _ = small.export("--dry-run")
    assert "  update run0: FINISHED, 1 point" in out.splitlines()


def test_long_and_odd_texts_are_accepted(small: Small) -> None:
    """More params than a call may have, a long value, and names with any characters."""
    more = {f"p{number}": str(number) for number in range(250)}
    more |= {"long": "x" * 9000, "odd+name": "é \U0001f600 'quoted'"}
    lines = [
        f'VARS {node("run0", epoch)} {name}="{value}"\n'
        for epoch in range(2)
        for name, value in more.items()
    ]
    small.dagdir.write("run.dag", dag_text() + "".join(lines))
    names = ["val loss (%)", "val loss [%]", "../up", "a//b", "c:d", "größe", "metlmon/seconds"]
    text = f"epoch,step,{','.join(names)}\n0,1,1,2,3,4,5,6,7\n"
    small.dagdir.write(f"training_logs/{uuid('run0')}/version_0/metrics.csv", text)
    assert small.written().startswith("3 new runs, ")
    run = small.runs["run0"]
    assert {name: run.params[name] for name in more if name[0] == "p"} == {
        name: value for name, value in more.items() if name[0] == "p"
    }
    assert len(run.params["long"]) == 6000
    assert run.params["odd_name"] == "é \U0001f600 'quoted'"
    own = {name for name in run.metrics if not name.startswith(("metlmon/", "system/"))}
    assert own >= {"val loss ___", "_up", "a/b", "c_d", "größe"}
    # Names stay distinct, and a column of the frame keeps its own.
    (same,) = own - {"val loss ___", "_up", "a/b", "c_d", "größe"}
    assert same.startswith("val loss ____")
    (other,) = [name for name in run.metrics if name.startswith("metlmon/seconds_")]
    assert [point.value for point in run.metrics[other]] == [7.0]
    assert 7.0 not in [point.value for point in run.metrics["metlmon/seconds"]]
    assert small.written() == "up to date"


def test_paged_answers_are_read(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    small.export()
    before = small.state
    parent = small.runs["ensemble"]
    # Without it the histories are read.
    tag = {"run_id": parent.id, "key": "metlmon.points"}
    small.server.call("runs/delete-tag", tag)
    for name in ("MAX_RUNS", "MAX_POINTS"):
        monkeypatch.setattr(f"metlmon.tracking.mlflow_export.{name}", 1)
    result = small.written()
    assert result == "1 changed run, 1 param or tag"
    paths = [call.path.partition("?")[0].rpartition("/")[2] for call in small.tracker.calls]
    assert paths.count("search") >= 3
    assert paths.count("get-history") >= 10
    assert small.state == before


def test_outdated_tag_is_deleted(small: Small) -> None:
    log = Log().submit(101, node("run0", 0)).hold(101, 13, "the disk is full")
    small.dagdir.write("metl.log", log.data)
    small.dagdir.write("run.dag.dagman.out", Out().start().data)
    small.export()
    tags = small.runs["run0"].tags
    assert (tags["metlmon.hold_code"], tags["metlmon.hold_reason"]) == ("13", "the disk is full")
    small.dagdir.write("metl.log", log.release(101).execute(101).data)
    small.export()
    export(small.tracker, small.capsys, small.dagdir.path, "passing at once")
    at_once = server_state(small.server, "passing at once")["run0"].tags
    assert small.state["run0"].tags == at_once
    assert "metlmon.hold_reason" not in at_once


# --- changes by others on the server ------------------------------------------------------------


def test_values_of_others_are_kept(small: Small) -> None:
    small.export()
    run = small.runs["run0"]
    call = small.server.call
    call("runs/update", {"run_id": run.id, "run_name": "the good one"})
    call("runs/set-tag", {"run_id": run.id, "key": "mlflow.note.content", "value": "look here"})
    call("runs/set-tag", {"run_id": run.id, "key": "paper", "value": "figure 2"})
    point = {"key": "accuracy", "value": 0.9, "timestamp": 1, "step": 0}
    call("runs/log-metric", {"run_id": run.id, **point})

    assert small.written() == "up to date"
    run = small.runs["the good one"]
    assert (run.tags["mlflow.note.content"], run.tags["paper"]) == ("look here", "figure 2")
    assert [point.value for point in run.metrics["accuracy"]] == [0.9]


def test_only_an_empty_duplicate_is_deleted(small: Small) -> None:
    small.export()
    runs = small.runs
    key, ensemble = (runs["run0"].tags[f"metlmon.{name}"] for name in ("key", "ensemble"))
    query = {"filter": f"name = '{small.experiment}'", "max_results": 1}
    (found,) = small.server.call("experiments/search", query)["experiments"]

    def create(name: str, **tags: str) -> str:
        pairs = {"metlmon.ensemble": ensemble, **tags}
        body = {
            "experiment_id": found["experiment_id"],
            "run_name": name,
            "start_time": 1,
            "tags": [{"key": key, "value": value} for key, value in pairs.items()],
        }
        return str(small.server.call("runs/create", body)["run"]["info"]["run_id"])

    # As left by a create that was carried out after its time limit.
    create("late", **{"metlmon.key": key})
    # Runs of other people that refer to the ensemble, and a copy.
    create("mine")
    create("mine, too")
    create("a copy", **{"metlmon.key": key, "paper": "figure 2"})
    code, _, err = small.export()
    assert code == Exit.OK
    names = {run.name for run in small.server.runs(small.experiment)}
    assert names == {"ensemble", "run0", "run1", "mine", "mine, too", "a copy"}
    assert err.count("has a second run with the tag metlmon.key") == 1
    assert [call.path.rpartition("/")[2] for call in small.tracker.writes].count("delete") == 1


def test_changed_param_is_refused_in_one_sentence(small: Small) -> None:
    small.export()
    text = dag_text().replace('lr="1.0"', 'lr="7.0"')
    small.dagdir.write("run.dag", text)
    small.dagdir.write(
        f"training_logs/{uuid('run1')}/version_0/metrics.csv", metrics_csv([(0, 0.4)])
    )
    code, _, err = small.export()
    assert code == Exit.REFUSED
    assert err.splitlines() == [
        f"metlmon: run run0: the param lr is '1.0' on {small.tracker.url} and '7.0' here; MLflow "
        "refuses to change a param (all else was exported): delete that run there, and export again"
    ]
    runs = small.runs
    assert runs["run0"].params == {"lr": "1.0"}
    assert [p.value for p in runs["run1"].metrics["val_loss"] if p.step == 0] == [0.5, 0.4]
    # The remedy.
    small.server.call("runs/delete", {"run_id": runs["run0"].id})
    assert small.export()[0] == Exit.OK
    assert small.runs["run0"].params == {"lr": "7.0"}


def test_run_refused_by_the_server_is_skipped(small: Small) -> None:
    refused = Answer(400, b'{"error_code": "INVALID_PARAMETER_VALUE", "message": "too long"}')
    small.tracker.at(8, refused)
    code, _, err = small.export()
    assert code == Exit.REFUSED
    assert err.splitlines() == [
        f"metlmon: run run0: {small.tracker.url} was asked to write metrics, params and tags: "
        "INVALID_PARAMETER_VALUE: too long; check the tracking URI, and see the server's log"
    ]
    assert small.runs["run1"].status == "FINISHED"


def test_existing_run_becomes_the_parent(
    tracker: FaultyTracker, tracking_server: TrackingServer, capsys: Captured, tmp_path: Path
) -> None:
    """As the project backend exports into the run of ``mlflow run``."""
    experiment = tracking_server.call("experiments/create", {"name": "given"})["experiment_id"]
    body = {"experiment_id": experiment, "run_name": "mine", "start_time": 1000}
    given = tracking_server.call("runs/create", body)["run"]["info"]["run_id"]
    ensemble = tracked_by(small_ensemble(tmp_path / "ensemble").reader())
    exporter = MlflowExporter(TrackingClient(tracker.url), "unused", parent_id=given)
    assert exporter.export(ensemble).points == 50

    runs = by_name(tracking_server, "given")
    parents = {name: run.parent for name, run in runs.items()}
    assert parents == {"mine": None, "run0": given, "run1": given}
    assert (runs["mine"].status, runs["mine"].start) == ("FINISHED", 1000)
    # From now on it is found by its tag.
    assert wrote(export(tracker, capsys, tmp_path / "ensemble", "given", "--tz", "UTC")) != ""
    assert len(tracking_server.runs("given")) == 3
