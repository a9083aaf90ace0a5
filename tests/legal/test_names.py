"""Names that DAGMan accepts and that a program may misread."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from metlmon.cli.reading import one_run
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import State
from metlmon.snapshot.row_text import matches_run
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log

RUNS = (
    "a.b.c",
    "a/b",
    "a\\b",
    "../../etc",
    "a$b",
    "$(x)",
    unicodedata.normalize("NFC", "é"),
    unicodedata.normalize("NFD", "é"),
    "x" * 285,
    "Run",
    "run",
    "JOB",
    "PARENTS",
    "run1",
    "run10",
    "[b]x[/b]",
    "%s",
    "{uuid}",
    "*",
    "[ab]",
    "--help",
    "日本",
)

DAG = "SUBMIT-DESCRIPTION t {\n executable = x\n log = metl.log\n}\n"


def dag(*nodes: str) -> str:
    return DAG + "".join(f"JOB {node} t\n" for node in nodes)


@pytest.fixture(name="named", scope="module")
def _named(tmp_path_factory: pytest.TempPathFactory) -> DagdirReader:
    """A run with each name of two epochs: one completed, one running."""
    dagdir = Dagdir(tmp_path_factory.mktemp("names") / "d", "")
    nodes = [f"{run}-train_epoch{epoch}" for run in RUNS for epoch in (0, 1)]
    dagdir.write("run.dag", dag(*nodes))
    log = Log()
    for cluster, node in enumerate(nodes, start=100):
        quoted = node.replace("\\", "\\\\").replace('"', '\\"')
        log.submit(cluster, quoted).execute(cluster)
        if node.endswith("0"):
            log.terminate(cluster, 0)
    dagdir.write("metl.log", log.data)
    return dagdir.reader(live=True, now="2026-05-05 10:00:00")


def test_each_name_is_a_separate_run(named: DagdirReader) -> None:
    rows = {row.run: row for row in named.snapshot_builder().status().runs}
    assert set(rows) == set(RUNS), "é in two forms and Run, run are not the same"
    assert {row.state for row in rows.values()} == {State.RUNNING}
    assert sum(named.snapshot_builder().status().epoch_states.values()) == 2 * len(RUNS)
    jobs = {job.cluster: job.run for job in named.snapshot_builder().job_rows()}
    assert jobs == {100 + i: RUNS[i // 2] for i in range(2 * len(RUNS))}


@pytest.mark.parametrize("run", RUNS)
def test_each_name_can_be_selected(named: DagdirReader, run: str) -> None:
    """An exact name precedes patterns and prefixes of other names."""
    builder = named.snapshot_builder()
    assert one_run(builder, run).run == run
    chosen = [row.run for row in builder.status().runs if matches_run(row, run)]
    assert run in chosen
    if not set(run) & set("*?["):
        assert chosen == [run], "run1 is not run10, Run is not run"


@pytest.mark.parametrize("name", ["ALL_NODES", "PARENT", "CHILD", "all_nodes"])
def test_names_that_dagman_refuses_are_reported(tmp_path: Path, name: str) -> None:
    dagdir = Dagdir(tmp_path / "d", f"JOB {name} t\n")
    with pytest.raises(InputError, match=f"'{name}' is a reserved word"):
        dagdir.reader()


@pytest.mark.parametrize("digits", ["9" * 10, "9" * 5000, "20260504101112", "²", "1_0"], ids=len)
def test_huge_numbers_are_not_epochs(tmp_path: Path, digits: str) -> None:
    """More digits than any epoch has, or than Python converts."""
    node = f"r-train_epoch{digits}"
    dagdir = Dagdir(tmp_path / "d", dag(node, "r-train_epoch0") + f'VARS {node} epoch="{digits}"\n')
    dagdir.write("metl.log", Log().submit(1, node).execute(1).terminate(1, 0).data)
    status = dagdir.reader().snapshot_builder().status()
    assert [(run.run, run.epochs_total) for run in status.runs] == [("r", 1)]
    assert status.node_states[State.COMPLETED] == 1


def test_dags_with_equal_names_are_kept_apart(tmp_path: Path) -> None:
    """Fifty DAGs in one directory, each with a run0 and a log of its own."""
    dagdir = Dagdir(tmp_path / "d", "")
    for number in range(50):
        text = dag("run0-train_epoch0", "run0-train_epoch1").replace("metl.log", f"m{number}.log")
        dagdir.write(f"d{number:02d}.dag", text)
        log = Log().submit(number + 1, "run0-train_epoch0").execute(number + 1)
        log.terminate(number + 1, 0 if number % 5 else 1)
        dagdir.write(f"d{number:02d}.dag.nodes.log", log.data)
        dagdir.write(f"m{number}.log", log.data)
    reader = dagdir.reader()
    status = reader.snapshot_builder().status()
    assert len(status.dags) == len(status.runs) == 50
    members = {key[0]: member.dag for key, member in reader.ensemble.attributions.items()}
    assert members == {number + 1: f"d{number:02d}.dag" for number in range(50)}
    # Counted by hand: ten of fifty failed; in the others the second epoch waits.
    assert status.epoch_states[State.FAILED] == 10
    assert status.epoch_states[State.COMPLETED] == 40
    assert status.epoch_states[State.WAITING] == 50
    with pytest.raises(InputError, match="run0 is ambiguous"):
        one_run(reader.snapshot_builder(), "run0")
