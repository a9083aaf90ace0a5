"""The node and DAG of a job, and one event in two logs (``metlmon/README.md``)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from metlmon.model.dag import Dag
from metlmon.model.ensemble import Ensemble
from metlmon.model.model_state import LogRole
from metlmon.model.states import DagState, State
from tests.support.dag_texts import load
from tests.support.event_logs import EnsembleReading, Log, Out, read_ensemble, read_logs

NODE = "run0-train_epoch0"
A_DAG = f'JOB {NODE} train.sub\nVARS {NODE} run_uuid="aaaa1111"\n'
B_DAG = f'JOB {NODE} train.sub\nVARS {NODE} run_uuid="bbbb2222"\n'
BOTH = {"a.dag": A_DAG, "b.dag": B_DAG}


def plain_log() -> Log:
    """A log of HTCondor before 24, with the node's name only."""
    log = Log()
    log.submit(77, NODE, at="10:00:00", older=True)
    return log


def dagman_log(dag: str, cluster: int, begin: str, end: str = "") -> Log:
    log = Log(f"{dag}.dagman.log", LogRole.DAGMAN, dag)
    log.submit(cluster, at=begin).execute(cluster, gpus=None, at=begin)
    return log.terminate(cluster, 1, at=end) if end else log


def belongs(report_of: EnsembleReading, cluster: int = 77) -> str | None:
    return report_of.job(cluster).dag


def test_job_without_evidence_is_ambiguous() -> None:
    result = read_ensemble(BOTH, plain_log())
    job = result.job(77)
    assert (job.dag, job.node, job.key) == (None, None, None)
    assert job.candidates == ("a.dag", "b.dag")
    (notice,) = result.builder().notices()
    assert notice.kind == "ambiguous-dag"
    assert "77.0" in notice.text
    assert "a.dag, b.dag" in notice.text
    # No guess: one of the two nodes was submitted, and which DAG ran is unknown.
    status = result.builder().status()
    assert (status.node_states[State.UNKNOWN], sum(status.node_states.values())) == (2, 2)
    assert {dag.state for dag in status.dags} == {DagState.UNKNOWN}


def test_hours_of_an_ambiguous_job_count() -> None:
    log = plain_log().execute(77, gpus=1, at="11:00:00").terminate(77, at="12:00:00")
    status = read_ensemble(BOTH, log).builder().status()
    assert status.hours.goodput == 1.0
    assert [run.hours.total for run in status.runs] == [0.0, 0.0]


def batch_log(name: str) -> Log:
    log = Log()
    log.batch_name = name
    return log.submit(77, NODE)


B_NODES_LOG = Log("b.dag.nodes.log", LogRole.NODES, "b.dag").submit(
    77, NODE, at="10:00:00", older=True
)
BOTH_ALIVE = [dagman_log("a.dag", 900, "08:00:00"), dagman_log("b.dag", 901, "08:00:00")]
BY_REMOVAL = "The job attribute OtherJobRemoveRequirements expression 'DAGManJobId =?= 901' is TRUE"
OWN_LOGS = {
    name: text.replace("train.sub", f"{{\n log = {name[0]}.log\n}}") for name, text in BOTH.items()
}
IN_FOLDERS = {name: text.replace(".log", "/metl.log") for name, text in OWN_LOGS.items()}


def silent(begin: str, end: str = "") -> dict[str, Out]:
    """A DAGMan of a.dag that reports another submission, not this one."""
    out = Out().start(at=f"{begin}:00").submitted(NODE, 70, at=f"{begin}:59")
    return {"a.dag": out.exit(0, at=f"{end}:00") if end else out}


OF_A = f"1777903200 {NODE} SUBMIT 77.0 - - 1\n".encode()


@pytest.mark.parametrize(
    ("dags", "logs", "files", "expected"),
    [
        (BOTH, [plain_log()], {"out": silent("09:00", "11:00")}, "b.dag"),
        # It has no information before its first DAGMan and after its last line.
        (BOTH, [plain_log()], {"out": silent("10:30", "11:00")}, None),
        (BOTH, [plain_log()], {"out": silent("09:00")}, None),
        (BOTH, [plain_log()], {"jobstate": OF_A}, "a.dag"),
        (BOTH, [plain_log(), B_NODES_LOG], {}, "b.dag"),
        # .dagman.out is stronger than a nodes.log.
        (
            BOTH,
            [plain_log(), B_NODES_LOG],
            {"out": {"a.dag": Out().start().submitted(NODE, 77)}},
            "a.dag",
        ),
        (
            BOTH,
            [
                plain_log(),
                dagman_log("a.dag", 900, "08:00:00", end="09:30:00"),
                dagman_log("b.dag", 901, "09:45:00"),
            ],
            {},
            "b.dag",
        ),
        (BOTH, [plain_log(), *BOTH_ALIVE], {}, None),
        (BOTH, [batch_log("a.dag+900"), *BOTH_ALIVE], {}, "a.dag"),
        (BOTH, [batch_log("the user's own words"), *BOTH_ALIVE], {}, None),
        (BOTH, [plain_log().remove(77, BY_REMOVAL), *BOTH_ALIVE], {}, "b.dag"),
        (OWN_LOGS, [Log("b.log").submit(77, NODE, older=True)], {}, "b.dag"),
        (IN_FOLDERS, [Log("b/metl.log").submit(77, NODE, older=True)], {}, "b.dag"),
        (IN_FOLDERS, [Log("a/metl.log.1").submit(77, NODE, older=True)], {}, "a.dag"),
        (IN_FOLDERS, [Log("c/metl.log").submit(77, NODE, older=True)], {}, None),
        (BOTH | {"b.dag": B_DAG.replace(".sub", ".sub DONE")}, [plain_log()], {}, "a.dag"),
        (BOTH | {"b.dag": B_DAG.replace("run0", "run7")}, [plain_log()], {}, "a.dag"),
    ],
)
def test_evidence_decides_the_dag_of_a_job(
    dags: dict[str, str], logs: list[Log], files: dict[str, Any], expected: str | None
) -> None:
    assert belongs(read_ensemble(dags, *logs, **files)) == expected


def test_nodes_log_of_a_missing_dag_takes_its_jobs() -> None:
    gone = Log("gone.dag.nodes.log", LogRole.NODES, "gone.dag").submit(77, NODE, at="10:00:00")
    result = read_ensemble(A_DAG, plain_log(), gone)
    assert belongs(result) is None
    assert result.node(NODE) is State.WAITING


def test_job_of_no_dag_is_listed() -> None:
    log = Log().submit(5).execute(5, gpus=1, at="11:00:00").terminate(5, at="12:00:00")
    result = read_ensemble(A_DAG, log.submit(6, "a_node_of_another_dag"))
    jobs = result.builder().job_rows()
    assert [(j.dag, j.node, j.key, j.candidates) for j in jobs] == [(None, None, None, ())] * 2
    assert result.builder().status().hours.goodput == 1.0
    assert not list(result.builder().notices())


def test_late_materialization_names_the_node_once() -> None:
    """035 has the node's name; the 000 of each proc need not."""
    log = Log()
    host = "Cluster submitted from host: <128.105.68.62:9618?alias=ap40>"
    log.raw(35, (77, -1), host, f'    [ DAGNodeName = "{NODE}" ]\n')
    log.submit((77, 0)).submit((77, 1))
    result = read_ensemble(A_DAG, log)
    assert {job.node for job in result.builder().job_rows()} == {NODE}
    assert len(result.builder().job_rows()) == 2


def test_epoch_lasts_until_its_cluster_is_removed() -> None:
    """DAGMan ends a node with late materialization at its 036: more jobs may follow."""
    log = Log()
    log.raw(35, (77, -1), "Cluster submitted from host: <h>", f'    [ DAGNodeName = "{NODE}" ]\n')
    log.submit((77, 0)).execute((77, 0)).terminate((77, 0))
    assert read_ensemble(A_DAG, log).node(NODE) is State.IDLE
    log.submit((77, 1)).execute((77, 1)).terminate((77, 1))
    assert read_ensemble(A_DAG, log).node(NODE) is State.IDLE
    log.raw(36, (77, -1), "Cluster removed", "\tMaterialized 2 jobs from 2 items.\tComplete\n")
    assert read_ensemble(A_DAG, log).node(NODE) is State.COMPLETED


def test_transfer_shadows_are_not_jobs() -> None:
    log = Log().submit(77, NODE).raw(40, (77, -1000), "Started transferring input files")
    result = read_ensemble(A_DAG, log)
    assert result.node(NODE) is State.IDLE
    assert len(result.builder().job_rows()) == 1


def test_skipped_node_of_a_later_dag() -> None:
    ensemble = Ensemble()
    ensemble.set_dags([Dag("a.dag", "a.dag", load("JOB other x.sub\n"))])
    read_logs(ensemble, [Log("b.dag.nodes.log", LogRole.NODES, "b.dag").pre_skip(NODE)])
    ensemble.set_dags([*ensemble.dags.values(), Dag("b.dag", "b.dag", load(B_DAG))])
    assert EnsembleReading(ensemble).node(NODE, "b.dag") is State.SKIPPED


def two_logs() -> list[Log]:
    """The job's own log, and the nodes.log with the events that DAGMan requests."""
    own = Log().submit(77, NODE, at="10:00:00").transfer(77, "started input", at="10:01:00")
    own.transfer(77, "finished input", at="10:02:00").execute(77, gpus=2, at="10:02:01")
    own.image(77, 9000, at="10:05:00").disconnect(77, at="11:00:00").reconnect(77, at="11:01:00")
    own.evict(77, 1004, sent=5, received=6, at="12:00:00").execute(77, gpus=1, at="13:00:00")
    own.terminate(77, 0, run=(7, 8), total=(12, 14), at="14:00:00")
    nodes = Log("run.dag.nodes.log", LogRole.NODES, "run.dag")
    nodes.submit(77, NODE, at="10:00:00").execute(77, gpus=2, at="10:02:01")
    nodes.evict(77, 1004, sent=5, received=6, at="12:00:00").execute(77, gpus=1, at="13:00:00")
    nodes.terminate(77, 0, run=(7, 8), total=(12, 14), at="14:00:00")
    return [own, nodes]


@pytest.mark.parametrize("order", list(itertools.permutations(range(2))))
def test_event_in_two_logs_counts_once(order: tuple[int, ...]) -> None:
    logs = two_logs()
    result = read_ensemble(A_DAG, *(logs[i] for i in order))
    job = result.job(77)
    assert [e.gpu_hours for e in job.executions] == [(2 * (2 * 3600 - 121)) / 3600, 1.0]
    assert (job.bytes_sent, job.bytes_received) == (12, 14)
    assert [t.outcome for t in job.transfers] == ["ok"]
    view = result.builder().job_view(77, 0)
    assert [e.number for e in view.events] == [0, 40, 40, 1, 22, 23, 4, 1, 5]


def test_submissions_of_dags_with_equal_node_names() -> None:
    """One log holds nine submissions of several DAGs with the same node names."""
    log = Log()
    log.submit(77, NODE, at="10:00:00", older=True).submit(78, NODE, at="12:00:00", older=True)
    log.submit(79, NODE, at="14:00:00", older=True)
    a = Log("a.dag.dagman.log", LogRole.DAGMAN, "a.dag")
    a.submit(900, at="09:00:00").terminate(900, 1, at="11:00:00")
    a.submit(902, at="13:00:00")
    b = dagman_log("b.dag", 901, "11:30:00", end="12:30:00")
    result = read_ensemble(BOTH, log, a, b)
    assert [belongs(result, cluster) for cluster in (77, 78, 79)] == ["a.dag", "b.dag", "a.dag"]
    states = {row.file: row.state for row in result.builder().status().dags}
    assert states == {"a.dag": DagState.RUNNING, "b.dag": DagState.FAILED}
