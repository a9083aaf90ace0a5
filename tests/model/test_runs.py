"""Runs: the nodes that train one model, over one DAG or several.

See ``metlmon/README.md``, "Words".
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from metlmon.config.settings import Settings
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.row_text import running_text
from metlmon.text.record_json import json_of
from tests.support.dagdir_builder import again
from tests.support.event_logs import Log, Out, moment, read_ensemble
from tests.support.recordings import read_all
from tests.support.records import read_dagdir

UUID = "1d38faf9-6c93-4a61-8d0c-aaaaaaaaaaaa"


def chain(run: str, uuid: str | None, epochs: range, target: str = "Expanse-GPU") -> str:
    """A run as the experiment's generator writes it: epochs from 0 in the name, from 1 in VAR
    ``epoch``, each followed by an evaluation."""
    text = ""
    for n in epochs:
        text += f"JOB {run}-train_epoch{n} train.sub\nJOB {run}-eval_epoch{n} eval.sub\n"
        for node in (f"{run}-train_epoch{n}", f"{run}-eval_epoch{n}"):
            text += f'VARS {node} epoch="{n + 1}" ResourceName="{target}"\n'
            text += f'VARS {node} run_uuid="{uuid}"\n' if uuid else ""
        text += f"PARENT {run}-train_epoch{n} CHILD {run}-eval_epoch{n}\n"
        if n > epochs.start:
            text += f"PARENT {run}-train_epoch{n - 1} CHILD {run}-train_epoch{n}\n"
    return text


def write(path: Path, log: Log, **dags: str) -> None:
    """Write DAG files, the submit file of their nodes and its log."""
    for name, text in dags.items():
        (path / f"{name}.dag").write_text(text)
    (path / "train.sub").write_text("executable = train.sh\nlog = metl.log\nqueue\n")
    (path / "metl.log").write_bytes(log.data)


def trained(log: Log, cluster: int, node: str, at: str = "") -> Log:
    return log.submit(cluster, node, at=at).execute(cluster, gpus=1).terminate(cluster)


def test_queued_jobs_of_a_run_exclude_other_sub_dags(tmp_path: Path) -> None:
    """Both sub-DAGs have a node of this name: removing one run must not remove the other."""
    log = Log()
    for run in range(2):
        (tmp_path / f"r{run}.dag").write_text("JOB train_epoch0 train.sub\n")
        out = Out().start("10:00:00").submitted("train_epoch0", 100 + run)
        (tmp_path / f"r{run}.dag.dagman.out").write_bytes(out.data)
        log.submit(100 + run, "train_epoch0")
    write(tmp_path, log, top="SUBDAG EXTERNAL run0 r0.dag\nSUBDAG EXTERNAL run1 r1.dag\n")
    builder = read_dagdir(tmp_path)
    queued = {run.key: builder.queued_jobs(run.key) for run in builder.status().runs}
    assert [[(row.cluster, row.in_dag) for row in rows] for rows in queued.values()] == [
        [(100, "r0.dag")],
        [(101, "r1.dag")],
    ]


def test_sub_dag_whose_node_is_marked_done_has_no_epochs_left(tmp_path: Path) -> None:
    dags = {f"r{run}": chain(f"r{run}", None, range(2)) for run in range(2)}
    top = "SUBDAG EXTERNAL A middle.dag DONE\nSUBDAG EXTERNAL B r1.dag\n"
    log = Log().submit(20, "r1-train_epoch0").execute(20, gpus=1)
    write(tmp_path, log, top=top, middle="SUBDAG EXTERNAL C r0.dag\n", **dags)
    runs = read_dagdir(tmp_path).status().runs
    assert [(run.epochs_done, run.epochs_inferred, run.state) for run in runs] == [
        (2, 2, State.COMPLETED),
        (0, 0, State.RUNNING),
    ]
    # What has run there all the same has its own state.
    trained(log, 10, "r0-train_epoch0").submit(11, "r0-train_epoch1")
    (tmp_path / "metl.log").write_bytes(log.data)
    assert read_dagdir(tmp_path).status().runs[0].epochs_done == 1


def test_nodes_of_a_sub_dag_behind_a_failed_node_are_futile(tmp_path: Path) -> None:
    top = "JOB first train.sub\nSUBDAG EXTERNAL A middle.dag\nPARENT first CHILD A\n"
    dags = {"middle": "SUBDAG EXTERNAL B r0.dag\n", "r0": chain("r0", None, range(2))}
    write(tmp_path, Log().submit(10, "first").execute(10).terminate(10, 1), top=top, **dags)
    (tmp_path / "top.dag.dagman.out").write_bytes(Out().start("09:00:00").data)
    status = (builder := read_dagdir(tmp_path)).status()
    assert (status.node_states[State.FAILED], status.node_states[State.FUTILE]) == (1, 6)
    assert builder.node_row(("r0.dag", "r0-train_epoch1")).failed_ancestor == "first"
    assert [run.state for run in status.runs] == [State.FUTILE]


@pytest.mark.parametrize(
    ("nodes", "inner", "state"),
    [
        pytest.param("A", "", State.COMPLETED, id="inferred"),
        pytest.param("AB", "", State.COMPLETED, id="both nodes"),
        pytest.param("A", "ABORT-DAG-ON r0-train_epoch0 3 RETURN 0\n", State.UNKNOWN, id="abort"),
        pytest.param("A", "FINAL end train.sub\n", State.UNKNOWN, id="FINAL node decides"),
    ],
)
def test_sub_dag_before_a_node_that_was_submitted(
    nodes: str, inner: str, state: State, tmp_path: Path
) -> None:
    """Its own jobs are in no log here, nor is any file of its DAGMan."""
    top = "".join(f"SUBDAG EXTERNAL {node} inner.dag\n" for node in nodes)
    top += f"JOB last train.sub\nPARENT {' '.join(nodes)} CHILD last\n"
    write(tmp_path, Log(), top=top, inner=chain("r0", None, range(2)) + inner)
    reader = read_all(DagdirReader(tmp_path, Settings(), live=True))
    reader.snapshot_builder().status()
    (tmp_path / "metl.log").write_bytes(Log().submit(20, "last").data)
    again(reader)
    for builder in (reader.snapshot_builder(), read_dagdir(tmp_path)):
        for number in range(2):
            node = "inner.dag", f"r0-train_epoch{number}"
            assert builder.derivation.states[node].state is state


def test_sub_dag_of_two_nodes_was_submitted(tmp_path: Path) -> None:
    """By which of them is unknown without files of DAGMan."""
    top = "".join(f"SUBDAG EXTERNAL {n} inner.dag\n" for n in "AB")
    write(tmp_path, trained(Log(), 10, "r-train_epoch0"), top=top, inner=chain("r", None, range(1)))
    builder = read_dagdir(tmp_path)
    assert builder.status().dags[0].state == "unknown"
    assert [builder.derivation.states["top.dag", n].state for n in "AB"] == ["unknown"] * 2


def test_sub_dag_that_a_user_submitted_is_a_dag_of_its_own(tmp_path: Path) -> None:
    """The DAG that names it was not submitted: the node before it is not done."""
    top = "JOB first train.sub\nSUBDAG EXTERNAL A inner.dag\nPARENT first CHILD A\n"
    write(tmp_path, trained(Log(), 10, "r-train_epoch0"), top=top, inner=chain("r", None, range(1)))
    for node, states in (("", ["not-submitted", "running"]), ("A", ["unknown"])):
        (tmp_path / "inner.dag.dagman.log").write_bytes(Log().submit(9, node).execute(9).data)
        assert [dag.state for dag in read_dagdir(tmp_path).status().dags] == states


def test_last_of_several_procs_completes_an_epoch() -> None:
    log = Log()
    for proc in range(3):
        log.submit((77, proc), "run0-train_epoch0", at="09:00:00")
    for proc, end in enumerate(("11:00:00", "13:00:00", "12:00:00")):
        log.execute((77, proc), gpus=1, at="10:00:00").terminate((77, proc), at=end)
    ledger = read_ensemble(chain("run0", UUID, range(1)), log).builder().ledger()
    (epoch,) = ledger.epochs
    assert (epoch.completed, epoch.success_seconds) == (moment("13:00:00"), 3 * 3600)
    assert [entry.job for entry in ledger.executions if entry.final] == [(77, 1)]


def test_procs_of_one_submission_are_not_hidden_compute() -> None:
    """The last one may start late, and be short."""
    log = Log()
    for proc in range(2):
        log.submit((77, proc), "run0-train_epoch0", at="09:00:00")
    log.execute((77, 0), gpus=1, at="10:00:00").terminate((77, 0), at="13:00:00")
    log.execute((77, 1), gpus=1, at="13:00:00").terminate((77, 1), at="13:20:00")
    (epoch,) = read_ensemble(chain("run0", UUID, range(1)), log).builder().ledger().epochs
    assert (epoch.success_seconds, epoch.longest_seconds) == (1200, 3 * 3600)
    assert not epoch.hidden


def test_queued_jobs_are_counted_by_job(tmp_path: Path) -> None:
    """A node may have several, and that of a sub-DAG trains nothing."""
    (tmp_path / "top.dag").write_text("SUBDAG EXTERNAL A inner.dag\n")
    (tmp_path / "inner.dag").write_text(chain("run0", None, range(2)))
    (tmp_path / "train.sub").write_text("executable = train.sh\nlog = metl.log\nqueue 3\n")
    log = Log().submit(9, "A").execute(9, gpus=None)
    for proc in range(3):
        log.submit((10, proc), "run0-train_epoch0")
    log.execute((10, 0), gpus=1).execute((10, 1), gpus=1)
    (tmp_path / "metl.log").write_bytes(log.data)
    builder = read_dagdir(tmp_path, live=True)
    status = builder.status()
    assert (status.jobs_queued, status.jobs_running) == (3, 2)
    assert running_text(status, status.dags[0]) == "▶ 2 jobs running"


def test_sub_dags_without_files_of_dagman(tmp_path: Path) -> None:
    """The state of SUBDAG nodes follows from their nodes, also while the log grows."""
    dags = {f"r{run}": chain(f"r{run}", None, range(2)) for run in range(2)}
    top = "SUBDAG EXTERNAL A r0.dag\nSUBDAG EXTERNAL B r1.dag\nJOB last train.sub\n"
    log = Log()
    write(tmp_path, log, top=f"{top}PARENT A B CHILD last\n", **dags)
    reader = DagdirReader(tmp_path, Settings(), live=True)
    reader.open()

    def found() -> list[str]:
        (tmp_path / "metl.log").write_bytes(log.data)
        again(reader)
        builders = reader.snapshot_builder(), read_dagdir(tmp_path, live=True)
        both = [[builder.status().dags[0].state.value, *of_nodes(builder)] for builder in builders]
        assert both[0] == both[1]
        return both[0]

    def of_nodes(builder: SnapshotBuilder) -> list[str]:
        return [
            builder.derivation.states["top.dag", name].state.value for name in ("A", "B", "last")
        ]

    assert found() == ["not-submitted", "waiting", "waiting", "waiting"]
    for cluster, node in enumerate(("train_epoch0", "eval_epoch0", "train_epoch1"), start=10):
        trained(log, cluster, f"r0-{node}")
    assert found() == ["unknown", "unknown", "waiting", "waiting"], "or between two nodes"
    log.submit(20, "r1-train_epoch0")
    trained(log, 13, "r0-eval_epoch1")
    assert found() == ["unknown", "completed", "running", "waiting"]
    log.execute(20, gpus=1).terminate(20)
    for cluster, node in enumerate(("eval_epoch0", "train_epoch1", "eval_epoch1"), start=21):
        trained(log, cluster, f"r1-{node}")
    assert found() == ["unknown", "completed", "completed", "waiting"]
    trained(log, 30, "last")
    assert found() == ["done", "completed", "completed", "completed"]


def test_sub_dag_and_its_node_prove_each_other_by_nothing(tmp_path: Path) -> None:
    """``lost`` is done because ``outer`` is, which only the submission of ``last`` proves."""
    log = trained(Log(), 10, "train_epoch0", at="10:00:00")
    write(
        tmp_path,
        log.submit(30, "last", at="12:00:00"),
        top="SUBDAG EXTERNAL outer middle.dag\nJOB last train.sub\nPARENT outer CHILD last\n",
        middle="JOB lost train.sub\nSUBDAG EXTERNAL inner r0.dag\n",
        r0="JOB train_epoch0 train.sub\n",
    )
    reader = read_all(DagdirReader(tmp_path, Settings(), live=False))
    for _ in range(2):
        state = reader.snapshot_builder().derivation.states["top.dag", "outer"]
        assert (state.state, state.inferred) == (State.COMPLETED, True)
        assert state.since == moment("12:00:00")
        # Any event in a node of it.
        (tmp_path / "metl.log").write_bytes(log.image(10, 9).raw(28, 10, "Job ad").data)
        again(reader)


@pytest.mark.parametrize(
    ("names", "variable", "epochs"),
    [
        pytest.param(range(1, 4), 0, [1, 2, 3], id="from 1"),
        pytest.param(range(1, 4), None, [1, 2, 3], id="from 1, without the VAR"),
        pytest.param(range(6, 9), 0, [6, 7, 8], id="from 1, continued"),
        pytest.param(range(3), 1, [1, 2, 3], id="METL's"),
        pytest.param(range(3), 0, [1, 2, 3], id="from 0, the VAR too"),
        pytest.param(range(1, 4), 1, [2, 3, 4], id="METL's, continued"),
        pytest.param(range(6, 9), None, [7, 8, 9], id="continued, without the VAR"),
    ],
)
def test_epochs_count_from_1_whatever_their_names(
    names: range, variable: int | None, epochs: list[int]
) -> None:
    """``variable``: VAR ``epoch`` less the number in the name."""
    dag = ""
    for number in names:
        dag += f"JOB run3-train_epoch{number} a.sub\n"
        if variable is not None:
            dag += f'VARS run3-train_epoch{number} epoch="{number + variable}"\n'
    log = trained(Log(), 77, f"run3-train_epoch{names[0]}")
    view = read_ensemble(dag, log).builder().run_view("run.dag:run3")
    assert [json_of(epoch)["epoch"] for epoch in view.epochs] == epochs


def test_side_nodes_are_not_epochs() -> None:
    log = trained(Log(), 77, "run3-train_epoch0").submit(78, "run3-eval_epoch0")
    result = read_ensemble(chain("run3", UUID, range(2)), log)
    run = result.run("run3")
    assert (run.epochs_total, run.epochs_done) == (2, 1)
    assert run.latest.node == "run3-train_epoch0"
    view = result.builder().run_view(run.key)
    assert [row.node for row in view.epochs] == ["run3-train_epoch0", "run3-train_epoch1"]
    assert [row.node for row in view.side] == ["run3-eval_epoch0", "run3-eval_epoch1"]
    status = result.builder().status()
    assert sum(status.epoch_states.values()) == 2
    assert sum(status.node_states.values()) == 4


def test_epochs_are_ordered_by_number() -> None:
    result = read_ensemble(chain("run0", UUID, range(12)), Log().submit(77, "run0-train_epoch10"))
    view = result.builder().run_view(UUID)
    assert [row.epoch for row in view.epochs] == list(range(12))
    run = result.run("run0")
    assert run.latest.epoch == 10


def test_run_without_a_uuid_is_known_by_name_and_dag() -> None:
    dags = {"a.dag": chain("run0", None, range(2)), "b.dag": chain("run0", None, range(2))}
    status = read_ensemble(dags).builder().status()
    assert [(run.run, run.uuid, run.dag) for run in status.runs] == [
        ("run0", None, "a.dag"),
        ("run0", None, "b.dag"),
    ]
    assert len({run.key for run in status.runs}) == 2


def test_run_continued_by_a_second_dag() -> None:
    dags = {
        "first.dag": chain("run0", UUID, range(3)),
        "second.dag": chain("again0", UUID, range(3, 6), target="Delta-GPU"),
    }
    log = Log()
    for n in range(3):
        trained(log, 70 + n, f"run0-train_epoch{n}")
    log.submit(80, "again0-train_epoch3").execute(80, gpus=2)
    result = read_ensemble(dags, log)
    (run,) = result.builder().status().runs
    assert (run.epochs_total, run.epochs_done, run.dag) == (6, 3, "second.dag")
    assert (run.latest.epoch, run.latest.target, run.latest.gpus) == (3, "Delta-GPU", 2)
    assert run.state is State.RUNNING


def test_epochs_in_two_dags_count_once() -> None:
    continued = chain("run0", UUID, range(3)).replace(
        "JOB run0-train_epoch0 train.sub", "JOB run0-train_epoch0 train.sub DONE"
    )
    dags = {"first.dag": chain("run0", UUID, range(3)), "second.dag": continued}
    log = trained(Log(), 70, "run0-train_epoch0", at="08:00:00")
    log.submit(80, "run0-train_epoch1", at="12:00:00").execute(80)
    out = {
        "first.dag": Out().start("07:00:00").submitted("run0-train_epoch0", 70),
        "second.dag": Out().start("11:00:00", done=1).submitted("run0-train_epoch1", 80),
    }
    result = read_ensemble(dags, log, out=out)
    (run,) = result.builder().status().runs
    assert (run.epochs_total, run.epochs_done, run.dag) == (3, 1, "second.dag")
    assert (run.latest.epoch, run.latest.cluster) == (1, 80)
    view = result.builder().run_view(UUID)
    # Epochs of the first DAG stay in the run's history, with their hours.
    assert {(row.epoch, row.dag, row.jobs) for row in view.epochs if row.jobs} == {
        (0, "first.dag", ((70, 0),)),
        (1, "second.dag", ((80, 0),)),
    }
    # The DAG that trained an epoch has it, not the one that marks it DONE.
    assert [(row.epoch, row.dag) for row in view.epochs if row.counts] == [
        (0, "first.dag"), (1, "second.dag"), (2, "second.dag"),
    ]  # fmt: skip
    assert len(view.epochs) == 3
    assert view.epochs[0].completed is not None


def test_names_of_nodes_are_a_setting() -> None:
    dag = "JOB fold3_step07 t.sub\nJOB fold3_step08 t.sub\nPARENT fold3_step07 CHILD fold3_step08\n"
    assert read_ensemble(dag).builder().status().runs == ()
    settings = Settings(train_node=re.compile(r"^(?P<run>fold\d+)_step(?P<epoch>\d+)$"))
    (run,) = read_ensemble(dag, settings=settings).builder().status().runs
    assert (run.run, run.epochs_total) == ("fold3", 2)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("aaaa", ["run0"]),
        ("AAAA1", ["run0"]),
        ("a", ["run0", "run1"]),
        ("run1", ["run1"]),
        ("RUN1", ["run1"]),
        ("run", []),
        ("", []),
        ("aaaa1111-0000", ["run0"]),
    ],
)
def test_run_is_found_by_part_of_its_uuid_or_name(wanted: str, found: list[str]) -> None:
    dag = chain("run0", "aaaa1111-0000", range(1)) + chain("run1", "abbb2222-0000", range(1))
    assert [run.run for run in read_ensemble(dag).builder().find_runs(wanted)] == found


def test_phases_of_an_epoch() -> None:
    log = Log().submit(77, "run0-train_epoch0", at="10:00:00")
    log.transfer(77, "started input", at="10:20:00").transfer(77, "finished input", at="10:25:00")
    log.execute(77, at="10:25:00").terminate(77, at="12:25:00")
    view = read_ensemble(chain("run0", UUID, range(1)), log).builder().run_view(UUID)
    (row,) = view.epochs
    assert (row.queue_wait, row.transfer, row.execution) == (1200, 300, 7200)


def test_wait_of_a_job_ends_with_its_removal() -> None:
    log = Log().submit(77, "run0-train_epoch0", at="10:00:00").remove(77, at="10:10:00")
    view = read_ensemble(chain("run0", UUID, range(1)), log).builder("20:00:00").run_view(UUID)
    assert view.epochs[0].queue_wait == 600
