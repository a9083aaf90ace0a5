"""``export --to openmetrics``: samples read by Prometheus' parsers agree with ``--json``."""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import parser as classic_parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from metlmon.cli import Exit
from metlmon.model.reasons import code_text
from metlmon.model.states import State
from metlmon.text.formatting import plain
from metlmon.tracking.openmetrics import FAMILIES
from tests.conftest import Shared
from tests.support.commands import Captured, json_output, run_command, text_output, usage_error
from tests.support.dagdir_builder import DAG, NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.recordings import FIXTURES
from tests.support.shared_readers import shared_readers

ENSEMBLES: Final = {
    "trainer": FIXTURES / "trainer",
    "first-round": FIXTURES / "first-round",
    "gated": FIXTURES / "gated",
    "held": FIXTURES / "holds",
    "pool-ensemble": "examples/pool-ensemble",
}
ZONE: Final = ("--tz", "America/Chicago")
LABELS: Final = {"run", "site", "gpu", "state", "cause"}

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(autouse=True, scope="module")
def _read_once() -> Iterator[None]:
    """Each recording is read once, in one zone."""
    with shared_readers(lambda path: path.name != "ensemble"):
        yield


@pytest.fixture(name="dagdir", params=ENSEMBLES)
def _dagdir(request: pytest.FixtureRequest, shared: Shared) -> Path:
    place = ENSEMBLES[request.param]
    return place if isinstance(place, Path) else shared(place)


def exported(capsys: Captured, dagdir: Path) -> str:
    code, out, _ = run_command("export --to openmetrics", capsys, dagdir, *ZONE)
    assert code == Exit.OK
    return out


def values(families: Iterable[Any]) -> Values:
    """Samples by name and labels; each occurs once."""
    found: Values = {}
    for family in families:
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            assert sample.timestamp is None
            found[key] = sample.value
    return found


def parsed(text: str) -> Values:
    """By the strict parser of OpenMetrics."""
    return values(openmetrics_parser.text_string_to_metric_families(text))


class Expected:
    """The samples expected from the JSON of other commands."""

    def __init__(self) -> None:
        self.values: Values = defaultdict(float)

    def add(self, name: str, value: float | None, **labels: str | None) -> None:
        if value is not None:
            named = {label: text for label, text in labels.items() if text}
            self.values[f"metlmon_{name}", tuple(sorted(named.items()))] += value

    def add_hours(self, scope: str, hours: Mapping[str, Any], **labels: str) -> None:
        unit = hours.get("measure", "GPU").lower()
        for state in ("goodput", "badput"):
            seconds = hours[state] * 3600
            self.add(f"{scope}{unit}_seconds_total", seconds, **labels, state=state)
        self.add(f"{scope}running_{unit}_seconds", hours["running"] * 3600, **labels)

    def add_time(self, name: str, text: str | None, **labels: str) -> None:
        if text is not None:
            self.add(name, datetime.fromisoformat(text).timestamp(), **labels)


def expected_samples(status: dict[str, Any], jobs: list[dict[str, Any]]) -> Values:
    expected = Expected()
    add = expected.add
    add("live", status["live"])
    add("read_errors", 0)
    for warning in status["warnings"]:
        add("warnings", 1, cause=warning["kind"])
    last = max((log["last"] for log in status["logs"] if log["last"]), default=None)
    expected.add_time("snapshot_timestamp_seconds", status["as_of"])
    expected.add_time("last_event_timestamp_seconds", last)
    moments = [datetime.fromisoformat(text).timestamp() for text in (status["as_of"], last)]
    add("last_event_age_seconds", moments[0] - moments[1])
    opened = [entry for entry in status["health"] if entry["open"]]
    for severity in ("stopped", "blocked", "costly", "note"):
        add("problems", sum(e["severity"] == severity for e in opened), state=severity)
    for entry in opened:
        add("problem_kinds", 1, state=entry["severity"], cause=entry["kind"])
    for name in ("epochs", "nodes"):
        for state in State:
            add(name, status[f"{name[:-1]}_states"].get(state, 0), state=state)
    run_states = Counter(run["state"] for run in status["runs"])
    for state in State:
        add("runs", run_states[state], state=state)
    for state, number in Counter(job["state"] for job in jobs).items():
        add("jobs", number, state=state)
    for state, number in Counter(dag["state"] for dag in status["dags"]).items():
        add("dags", number, state=state)
    add("epochs_planned", status["estimate"]["epochs_total"])
    add("epochs_done", status["estimate"]["epochs_done"])
    for dag in status["dags"]:
        add("dag_nodes_planned", dag["nodes_total"])
        add("dag_nodes_done", dag["nodes_done"])
        add("dag_nodes_failed", dag["nodes_failed"])
    expected.add_hours("", status["hours"])
    for row in status["causes"]:
        own = re.match("exited with|killed by|annex expired|.*no reason given", row["cause"])
        coded = "other" if row["code"] is None else code_text(row["code"], reason=row["example"])
        cause = row["cause"] if own else coded
        add("badput_executions", row["executions"], cause=cause)
        add("badput_gpu_seconds", row["badput"] * 3600, cause=cause)
    for outcome in ("ok", "aborted", "unfinished"):
        count = status["transfers"][f"input_{outcome}"]
        add("input_transfers", count["n"], state=outcome)
        add("input_transfer_seconds", count["seconds"], state=outcome)
    add("output_transfers", status["transfers"]["output"]["n"])
    add("output_transfer_seconds", status["transfers"]["output"]["seconds"])
    add("transfer_bytes_total", status["transfers"]["bytes_sent"], state="sent")
    add("transfer_bytes_total", status["transfers"]["bytes_received"], state="received")
    estimate = status["estimate"]
    if estimate["remaining"] is not None:
        add("remaining_seconds", estimate["remaining"]["median"])
        add("remaining_low_seconds", estimate["remaining"]["low"])
        add("remaining_high_seconds", estimate["remaining"]["high"])
    expected.add_time("expected_end_timestamp_seconds", estimate["expected_end"])
    expected.add_time("completed_timestamp_seconds", estimate["completed_at"])
    for row in status["runs"]:
        run, latest = row["run"], row["latest"] or {}
        places = {"site": latest.get("site"), "gpu": latest.get("gpu")}
        add("run_state", 1, run=run, state=row["state"], **places)
        add("run_state_seconds", row["seconds"], run=run)
        add("run_latest_epoch", latest.get("epoch"), run=run)
        add("run_epochs_planned", row["epochs_total"], run=run)
        add("run_epochs_done", row["epochs_done"], run=run)
        expected.add_hours("run_", row["hours"], run=run)
        add("run_duration_seconds", row["wall_seconds"], run=run)
        metric = row["metric"] or {"best": None, "last": None}
        if metric["best"] is not None:
            add("run_metric_best", metric["best"]["value"], run=run)
            add("run_metric_best_epoch", metric["best"]["epoch"], run=run)
        if metric["last"] is not None:
            value, odd = metric["last"]["value"], metric["last"]["odd"]
            add("run_metric_last", float(odd) if value is None else value, run=run)
    for row in estimate["runs"]:
        if row["remaining"] is not None:
            add("run_remaining_seconds", row["remaining"]["median"], run=row["run"])
        expected.add_time("run_expected_end_timestamp_seconds", row["expected_end"], run=row["run"])
        expected.add_time("run_completed_timestamp_seconds", row["completed_at"], run=row["run"])
    for scope, rows, label in (("site", status["sites"], "site"), ("model", status["gpus"], "gpu")):
        for row in rows:
            place = {label: row[label] or "unknown"}
            expected.add_hours(f"{scope}_", row["hours"], **place)
            add(f"{scope}_executions_total", row["executions"], **place)
            add(f"{scope}_epochs_done", row["completed_epochs"], **place)
            add(f"{scope}_epoch_median_seconds", row.get("epoch_seconds_median"), **place)
    return dict(expected.values)


def test_values_agree_with_status_json_in_both_formats(dagdir: Path, capsys: Captured) -> None:
    status = json_output("status", capsys, dagdir, *ZONE)
    jobs = json_output("jobs", capsys, dagdir, *ZONE)["jobs"]
    health = json_output("health", capsys, dagdir, *ZONE)
    text = exported(capsys, dagdir)
    found = parsed(text)
    expected = expected_samples(status, jobs)
    expected["metlmon_stopped_runs", ()] = health["runs_stopped"]
    # States without members: JSON has no field of them.
    for key in [key for key in found if key[0] in ("metlmon_jobs", "metlmon_dags")]:
        expected.setdefault(key, 0)
    # Hours in JSON are rounded to 0.004 s.
    differ = {
        key: (found.get(key), expected.get(key))
        for key in found.keys() | expected.keys()
        if found.get(key) != pytest.approx(expected.get(key), abs=0.03, rel=1e-9, nan_ok=True)
    }
    assert not differ
    assert status["causes"] or dagdir.name in ("holds",)
    # Read by the textfile collector and an older Prometheus.
    classic = values(classic_parser.text_string_to_metric_families(text))
    assert classic == pytest.approx(found, nan_ok=True)
    for family in openmetrics_parser.text_string_to_metric_families(text):
        declared = FAMILIES[family.name.removeprefix("metlmon_")]
        assert (family.type, family.unit) == (declared.type, declared.unit)
        assert declared.unit or not family.name.endswith(("_seconds", "_bytes"))


def test_labels_have_no_cluster_or_host(dagdir: Path, capsys: Captured) -> None:
    labels = {pair for _, pairs in parsed(exported(capsys, dagdir)) for pair in pairs}
    assert {name for name, _ in labels} <= LABELS
    texts = {text for _, text in labels}
    jobs = json_output("jobs", capsys, dagdir, *ZONE)["jobs"]
    hosts = {e["host"] for job in jobs for e in (*job["executions"], *job["transfers"])} - {None}
    for log in json_output("status", capsys, dagdir, *ZONE)["logs"]:
        data = (dagdir / log["file"]).read_text(errors="replace")
        hosts |= set(re.findall(r"\bslot\w*@[^\s:,\"]+", data))
        hosts |= set(re.findall(r"alias=([\w.-]+)", data))
    assert hosts
    names = {part for host in hosts for part in (host, host.partition(".")[0]) if len(part) > 3}
    assert not [(name, text) for name in names for text in texts if name in text]
    clusters = {str(job["cluster"]) for job in jobs}
    words = {word for text in texts for word in re.findall(r"\d+", text) if len(word) > 2}
    # Codes of holds and evictions are not clusters, whatever their number.
    codes = {text.partition(" ")[0] for name, text in labels if name == "cause"}
    assert not clusters & (words - codes)
    assert not clusters & texts


# --- foreign text -------------------------------------------------------------------------------

HOSTILE: Final = "a{x='1'},=#EOF"


def test_hostile_names_are_one_label(capsys: Captured, tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "ensemble", DAG.replace("run0", HOSTILE))
    site = r"x\"y\\n{z=2}" + "\x1b[31m\u202e"
    log = Log().submit(77, NODE.replace("run0", HOSTILE)).execute(77, site=site)
    dagdir.write("metl.log", log.data)
    text = exported(capsys, dagdir.path)
    assert all(line.isprintable() for line in text.splitlines())
    found = parsed(text)
    (labels,) = [dict(labels) for name, labels in found if name == "metlmon_run_state"]
    row = json_output("status", capsys, dagdir.path, *ZONE)["runs"][0]
    assert (labels["run"], labels["state"]) == (row["run"], "running")
    assert labels["run"] == HOSTILE
    assert labels["site"] == plain(row["latest"]["site"])
    assert '"' in labels["site"]
    assert values(classic_parser.text_string_to_metric_families(text)) == found


def test_run_without_a_name_has_no_series(capsys: Captured, tmp_path: Path) -> None:
    """Such runs are clusters, and there may be thousands of them."""
    dagdir = Dagdir(tmp_path / "ensemble", "")
    log = Log()
    log.batch_name = "named"
    for job in range(1230, 1240):
        log.submit(job).execute(job, site="Delta").terminate(job, 0)
    log.submit(1240, "another").execute(1240, site="Delta").terminate(1240, 0)
    dagdir.write("a.log", log.data)
    names = [run["run"] for run in json_output("status", capsys, dagdir.path, *ZONE)["runs"]]
    assert sorted(names) == [*map(str, range(1230, 1240)), "named"]
    found = parsed(exported(capsys, dagdir.path))
    runs = {dict(labels)["run"] for _, labels in found if "run" in dict(labels)}
    assert runs == {"named"}
    assert found["metlmon_runs", (("state", "completed"),)] == 11
    assert found["metlmon_site_executions_total", (("site", "Delta"),)] == 11


def test_ensemble_without_gpus_has_its_own_unit(capsys: Captured, tmp_path: Path) -> None:
    log = Log().submit(77, NODE, at="00:00:00").execute(77, gpus=None, at="01:00:00")
    log.evict(77, at="02:00:00").execute(77, gpus=None, at="03:00:00").terminate(77, at="05:00:00")
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", log.data)
    hours = json_output("status", capsys, dagdir.path, *ZONE)["hours"]
    found = parsed(exported(capsys, dagdir.path))
    assert hours["measure"] == "wall"
    assert not [name for name, _ in found if "gpu_seconds" in name]
    for state, seconds in (("goodput", 7200), ("badput", 3600)):
        stored = found["metlmon_wall_seconds_total", (("state", state),)]
        assert stored == hours[state] * 3600 == seconds
    assert found["metlmon_running_wall_seconds", ()] == 0
    sites = {v for (name, _), v in found.items() if name == "metlmon_site_wall_seconds_total"}
    assert sites == {7200, 3600}


# --- the file -----------------------------------------------------------------------------------


def test_file_is_replaced_atomically(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "x.prom"
    drafts: list[Path] = []
    replace = os.replace

    def watched(source: str | Path, to: str | Path) -> None:
        if Path(to) == target:
            drafts.append(Path(source))
            assert Path(source).read_text().endswith("# EOF\n")
        replace(source, to)

    monkeypatch.setattr(os, "replace", watched)
    for dagdir in (FIXTURES / "demo", FIXTURES / "rescue"):
        run_command("export --to openmetrics", capsys, dagdir, "--out", target, *ZONE)
        assert target.read_text() == exported(capsys, dagdir)
    # The collector reads files named *.prom.
    assert [draft.suffix == ".prom" for draft in drafts] == [False, False]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--listen", "0", "--out", "x"), "--listen: leave out"),
        (("--listen", "0", "--as-of", "yesterday"), "--listen shows how it is now"),
        (("--listen", "70000"), "--listen 70000"),
        (("--only", "runs"), "--only: goes with --to csv"),
        (("--to", "csv", "--listen", "0"), "--to openmetrics"),
    ],
)
def test_conflicting_options_are_refused(
    capsys: Captured, options: tuple[str, ...], reason: str
) -> None:
    assert reason in usage_error("export --to openmetrics", capsys, FIXTURES / "demo", *options)


# --- the dashboard ------------------------------------------------------------------------------


def test_dashboard_queries_name_exported_metrics(capsys: Captured) -> None:
    dashboard = json.loads(text_output("export --to openmetrics --dashboard", capsys))
    queries = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    queries += [dashboard["templating"]["list"][1]["definition"]]
    named = {name for query in queries for name in re.findall(r"metlmon_\w+", query)}
    assert named <= {family.sample_name for family in FAMILIES.values()}
    assert len(named) > 20
    for query in queries:
        assert set(re.findall(r'(\w+)(?:=|!=|=~|!~)"', query)) <= LABELS | {"instance"}
        assert query.count("(") == query.count(")")
        for words in re.findall(r"\bby \(([^)]*)\)", query):
            assert {word.strip() for word in words.split(",")} <= LABELS
    # Values counted by state must name existing states.
    states = {
        s for q in queries for m in re.findall(r'state!?=~?"([^"]*)"', q) for s in m.split("|")
    }
    assert states <= {"stopped", "blocked", "costly", "held", "running", "goodput", "badput"} | {
        "completed",
        "failed",
        "removed",
    }


def test_dashboard_replaces_no_file(capsys: Captured, tmp_path: Path) -> None:
    target = tmp_path / "dashboard.json"
    command = "export --to openmetrics --dashboard"
    assert run_command(command, capsys, "--out", target)[0] == Exit.OK
    assert "--force" in usage_error(command, capsys, "--out", target)
    assert run_command(command, capsys, "--out", target, "--force")[0] == Exit.OK
