"""Real ensembles: facts known by other means than metlmon's readers."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from metlmon.model.states import DagState, State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import Status
from metlmon.stats.totals import Breakdown, break_down
from tests.conftest import SHARED, Shared
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir


@cache
def builder_of(dagdir: Path) -> SnapshotBuilder:
    return read_dagdir(dagdir)


# --- five runs on a cloud, seen in the middle of their training -----------------------------


@pytest.fixture(name="aws")
def _aws(shared: Shared) -> Status:
    return builder_of(shared("examples/metl-aws")).status()


@pytest.fixture(name="spent")
def _spent(shared: Shared) -> Breakdown:
    return break_down(builder_of(shared("examples/metl-aws")).ledger())


def test_epochs_on_aws(aws: Status) -> None:
    assert sum(aws.node_states.values()) == sum(aws.epoch_states.values()) == 150
    there = {state: n for state, n in aws.epoch_states.items() if n}
    assert there == {State.COMPLETED: 42, State.RUNNING: 5, State.WAITING: 103}
    (dag,) = aws.dags
    assert (dag.nodes_total, dag.nodes_done, dag.nodes_failed) == (150, 42, 0)


def test_gpu_hours_on_aws(aws: Status, spent: Breakdown) -> None:
    hours = aws.hours
    assert round(hours.total, 2) == 1011.31
    parts = [round(each, 2) for each in (hours.goodput, hours.badput, hours.running)]
    assert parts == [564.77, 401.01, 45.53]
    assert [site.site for site in spent.sites] == ["aws"]
    assert [gpu.gpu for gpu in spent.gpus] == ["NVIDIA L40S"]
    assert spent.sites[0].hours == spent.gpus[0].hours == hours
    assert sum(run.hours.total for run in aws.runs) == pytest.approx(hours.total)
    assert sum(cause.badput for cause in spent.causes) == pytest.approx(hours.badput)


def test_transfers_on_aws(spent: Breakdown) -> None:
    moved = spent.transfers
    assert (moved.input_ok.n, moved.input_ok.seconds) == (93, 27_611)
    assert (moved.input_aborted.n, moved.input_aborted.seconds) == (9, 1_784)
    assert (moved.input_unfinished.n, moved.input_unfinished.seconds) == (3, 44_941)
    assert moved.bytes_sent == 131_493_599_880
    assert moved.bytes_received == 2_302_770_316_569


def test_log_damage_on_aws_is_reported(aws: Status, shared: Shared) -> None:
    """Two places: a header glued to a cut line, and the events lost in the same gap."""
    lines = shared("examples/metl-aws/metl.log").read_bytes().split(b"\n")
    glued = next(i for i, line in enumerate(lines, 1) if b"Run Local Usa013 (" in line)
    result = [(n.kind, n.file, n.line) for n in aws.warnings]
    assert ("glued-header", "metl.log", glued) in result
    assert {kind for kind, _, _ in result} == {"glued-header", "log-gap"}
    assert all(n.file and n.line and n.text for n in aws.warnings)


# --- recorded pools, against what DAGMan itself wrote ---------------------------------------


def recorded() -> list[tuple[Path, str]]:
    found = [(SHARED / "examples/pool-ensemble", "ens")]
    for metrics in sorted(FIXTURES.glob("*/*.dag.metrics")):
        stem = metrics.name.removesuffix(".dag.metrics")
        if stem in ("ens", "a", "b"):
            found.append((metrics.parent, stem))
    return found


def here(dagdir: Path) -> Path:
    if not dagdir.exists():
        pytest.skip("the real recording is not beside this checkout")
    return dagdir


DAGS = pytest.mark.parametrize(
    ("dagdir", "stem"),
    recorded(),
    ids=lambda value: value if isinstance(value, str) else value.name,
)

NODE_STATUS = {"5": {State.COMPLETED, State.SKIPPED}, "6": {State.FAILED, State.REMOVED}}
"""NodeStatus of the status file that DAGMan leaves behind, and our words for it."""


@DAGS
def test_nodes_equal_the_node_status_file(dagdir: Path, stem: str) -> None:
    file = "nodes.dag.status" if stem == "ens" else f"{stem}.status"
    text = (here(dagdir) / file).read_text()
    result = dict(re.findall(r'Node = "([^"]+)";\s*NodeStatus = (\d)', text))
    assert result
    builder = builder_of(dagdir)
    for node, status in result.items():
        state = builder.states[(f"{stem}.dag", node)].state
        expected = NODE_STATUS.get(status, set(State) - {State.COMPLETED, State.SKIPPED})
        assert state in expected, (node, status, state)


@DAGS
def test_totals_equal_the_metrics(dagdir: Path, stem: str) -> None:
    metrics = json.loads((here(dagdir) / f"{stem}.dag.metrics").read_text())
    dag = next(d for d in builder_of(dagdir).status().dags if d.file == f"{stem}.dag")
    # Version 1 calls nodes jobs.
    kind = "nodes" if "nodes" in metrics else "jobs"
    assert dag.nodes_done == metrics[f"{kind}_succeeded"]
    assert dag.nodes_failed == metrics[f"{kind}_failed"]
    assert dag.nodes_total == metrics[f"total_{kind}"]
    assert dag.state is (DagState.DONE if metrics["exitcode"] == 0 else DagState.FAILED)


NOOP = ".2147483647"
"""The proc of what DAGMan calls the job of a NOOP node."""


def jobstate(dagdir: Path, stem: str) -> list[list[str]]:
    """The words of each line; a jobstate log belongs to one DAG."""
    text = (here(dagdir) / f"{stem}.jobstate.log").read_text()
    return [line.split() for line in text.splitlines()]


@DAGS
def test_submissions_equal_the_jobstate_log(dagdir: Path, stem: str) -> None:
    """Also where two DAGs with the same node names share a log."""
    submitted: dict[str, set[str]] = defaultdict(set)
    for words in jobstate(dagdir, stem):
        if words[2] == "SUBMIT" and not words[3].endswith(NOOP):
            submitted[words[1]].add(words[3])
    ours: dict[str, set[str]] = defaultdict(set)
    for job in builder_of(dagdir).ledger().jobs:
        if job.node_key is not None and job.in_dag == f"{stem}.dag":
            ours[job.node_key[1]].add("{}.{}".format(*job.job))
    assert ours == submitted


@DAGS
def test_executions_equal_the_jobstate_log(dagdir: Path, stem: str) -> None:
    executed = Counter(w[3] for w in jobstate(dagdir, stem) if w[2] == "EXECUTE")
    entries = builder_of(dagdir).ledger().executions
    ours = Counter("{}.{}".format(*e.job) for e in entries if e.in_dag == f"{stem}.dag")
    assert ours == executed


def table() -> list[tuple[str, int, int, int, int]]:
    """The results of HTCondor's own log reader for the recordings: directory, jobs, executions,
    GPU-seconds good and bad."""
    readme = FIXTURES / "README.md"
    row = re.compile(r"^\| `([\w-]+)` .*\| (\d+), (\d+) \| (\d+) / (\d+) \|$", re.MULTILINE)
    found = row.findall(readme.read_text()) if readme.exists() else []
    return [(name, *map(int, numbers)) for name, *numbers in found]


@pytest.mark.parametrize(("name", "jobs", "executions", "good", "bad"), table())
def test_gpu_seconds_equal_those_of_the_official_reader(
    name: str, jobs: int, executions: int, good: int, bad: int
) -> None:
    builder = builder_of(FIXTURES / name)
    # The recording's figures are of metl.log; a sub-DAG's DAGMan is a job of another log.
    ledger = builder.ledger()
    counts = [sum(not entry.dagman for entry in each) for each in (ledger.jobs, ledger.executions)]
    assert counts == [jobs, executions]
    hours = builder.status().hours
    assert (round(hours.goodput * 3600), round(hours.badput * 3600)) == (good, bad)
