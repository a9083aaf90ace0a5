"""A changed description: differences are reported, and nodes that have run stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.authoring.diff import DagProgress, PlanDiff, amend_plan, plan_diff
from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import Plan, PlanError, Policy, Request, StopRules
from metlmon.authoring.validate import validate
from metlmon.authoring.write_files import write_plan
from tests.support.event_logs import Log, Out
from tests.support.finished_ensembles import listing, ran, running
from tests.support.sample_requests import a_request


@pytest.fixture(name="request_")
def _request(tmp_path: Path) -> Request:
    """Two runs of three epochs, written."""
    request = a_request(tmp_path, gate=StopRules())
    write_plan(make_plan(request))
    return request


def amended_plan(request: Request) -> Plan:
    return make_plan(request, validate(request, amending=True))


def amended(request: Request, force: bool = False, **changes: Any) -> PlanDiff:
    plan = amended_plan(replace(request, **changes))
    return plan_diff(plan, force=force)


def carried_out(request: Request, force: bool = False, **changes: Any) -> list[str]:
    plan = amended_plan(replace(request, **changes))
    return sorted(path.name for path in amend_plan(plan, plan_diff(plan, force=force)))


def report_of(change: PlanDiff) -> list[tuple[str, str]]:
    return [(each.node, each.kind) for each in change.nodes]


FIRST = ["run0-train_epoch0", "run1-train_epoch0"]
ALL = [f"run{run}-train_epoch{epoch}" for run in range(2) for epoch in range(3)]


# --- before submission ------------------------------------------------------------------------


def test_unsubmitted_dag_is_replaced(request_: Request) -> None:
    change = amended(request_, runs=3, epochs=2, retries=5)
    assert change.refusal is None
    assert (change.runs_added, change.runs_removed) == (("run2",), ())
    assert ("run2-train_epoch0", "added") in report_of(change)
    assert ("run1-train_epoch2", "removed") in report_of(change)
    first = next(each for each in change.nodes if each.node == "run0-train_epoch0")
    differences = {each.name: (each.old, each.new) for each in first.differences}
    assert differences["epochs"] == ("3", "2")
    assert differences["retries"] == ("3", "5")
    assert "random_seed" not in differences
    names = carried_out(request_, runs=3, epochs=2, retries=5)
    assert {"ensemble.dag", "ensemble.toml"} <= set(names)
    assert "nap.sh" not in names
    plan = amended_plan(replace(request_, runs=3, epochs=2, retries=5))
    there = {file.name: (request_.directory / file.name).read_bytes() for file in plan.files}
    assert there == {file.name: file.data for file in plan.files}
    assert plan_diff(plan).unchanged


@pytest.mark.parametrize("name", ["ensemble.sub", "nap.sh"])
def test_files_edited_by_hand_are_kept(request_: Request, name: str) -> None:
    path = request_.directory / name
    path.write_text(path.read_text() + "# by hand\n")
    change = amended(request_)
    assert change.protected_files == (name,)
    assert change.unchanged
    assert name not in carried_out(request_, runs=3)
    assert path.read_text().endswith("# by hand\n")
    # It is still recognised, and may be replaced on request.
    assert amended(request_, runs=3).protected_files == (name,)
    assert name in carried_out(request_, force=True, runs=3)
    assert not path.read_text().endswith("# by hand\n")


def test_dag_edited_by_hand_is_not_replaced(request_: Request) -> None:
    path = request_.directory / "ensemble.dag"
    path.write_text(path.read_text() + "PRIORITY run0-train_epoch0 5\n")
    before = listing(request_.directory)
    for changes in ({}, {"runs": 3}):
        change = amended(request_, **changes)
        assert f"{path}: was changed by hand" in change.refusal
        assert "--force" in change.refusal
        with pytest.raises(PlanError, match="changed by hand"):
            carried_out(request_, **changes)
    assert listing(request_.directory) == before
    carried_out(request_, force=True)
    assert "PRIORITY" not in path.read_text()


def test_edited_description_may_be_given(request_: Request) -> None:
    path = request_.directory / "ensemble.toml"
    path.write_text(path.read_text().replace("runs = 2", "runs = 3"))
    plan = amended_plan(replace(request_, runs=3))
    assert plan_diff(plan).protected_files == ("ensemble.toml",)
    assert plan_diff(plan, source=path).protected_files == ()


def test_foreign_dag_is_not_replaced(request_: Request) -> None:
    (request_.directory / "ensemble.toml").unlink()
    change = amended(request_, runs=3)
    assert "metlmon did not write it" in change.refusal


def test_obsolete_sub_dags_are_deleted(request_: Request) -> None:
    request = replace(request_, subdags=True)
    carried_out(request)
    inner = sorted(path.name for path in request.directory.glob("*run*.dag"))
    assert len(inner) == 2
    change = amended(request, runs=1)
    assert change.obsolete_files == (inner[1],)
    carried_out(request, runs=1)
    assert not (request.directory / inner[1]).exists()


# --- during and after a DAGMan ----------------------------------------------------------------


def test_running_dag_is_not_changed(request_: Request) -> None:
    running(request_.directory)
    before = listing(request_.directory)
    change = amended(request_, runs=3)
    assert change.progress is DagProgress.RUNNING
    assert "a DAGMan has this DAG (ensemble.dag.lock)" in change.refusal
    for force in (False, True):
        with pytest.raises(PlanError, match="a DAGMan has this DAG"):
            carried_out(request_, force=force, runs=3)
    assert listing(request_.directory) == before
    assert amended(request_).unchanged


def test_nodes_may_be_added_after_a_rescue(request_: Request) -> None:
    ran(request_.directory, done=FIRST, removed=["run0-train_epoch1"])
    change = amended(request_, runs=3)
    assert (change.progress, change.ran) == (DagProgress.ENDED, 3)
    assert change.rescue == "ensemble.dag.rescue001"
    assert change.refusal is None
    assert {how for _, how in report_of(change)} == {"added"}
    assert "ensemble.dag" in carried_out(request_, runs=3)
    assert b"run2-train_epoch0" in (request_.directory / "ensemble.dag").read_bytes()
    assert (request_.directory / "ensemble.dag.rescue001").exists()
    assert amended(request_, memory_mb=4096).refusal is None


def test_nodes_that_have_not_run_may_change(tmp_path: Path) -> None:
    sites = a_request(tmp_path, sites=("A", "B"), policy=Policy.PIN, gate=StopRules())
    write_plan(make_plan(sites))
    # All of run0 has run; a third site changes neither its nodes nor run1's.
    ran(sites.directory, done=[node for node in ALL if node.startswith("run0")])
    change = amended(sites, sites=("A", "C"))
    assert change.refusal is None
    assert {(node, how) for node, how in report_of(change)} == {
        (f"run1-train_epoch{epoch}", "changed") for epoch in range(3)
    }
    assert {d.name for each in change.nodes for d in each.differences} == {"ResourceName"}
    carried_out(sites, sites=("A", "C"))
    assert 'ResourceName="C"' in (sites.directory / "ensemble.dag").read_text()


@pytest.mark.parametrize("gate", [None, StopRules(patience=2)])
def test_gate_may_come_or_go_after_a_rescue(request_: Request, gate: StopRules | None) -> None:
    ran(request_.directory, done=FIRST)
    change = amended(request_, gate=gate)
    assert change.refusal is None
    assert not [each for each in change.nodes if each.ran]
    assert not change.unchanged


@pytest.mark.parametrize(
    ("changes", "node", "what"),
    [
        ({"epochs": 4}, "run0-train_epoch0", "epochs from '3' to '4'"),
        ({"seeds": (1, 9)}, "run1-train_epoch0", "random_seed from '2' to '9'"),
        ({"runs": 1}, "run1-train_epoch0", "would be taken away"),
        ({"variables": {"x": "1"}}, "run0-train_epoch0", "x would be '1'"),
    ],
    ids=["epochs", "seeds", "runs", "variables"],
)
def test_nodes_that_have_run_may_not_change(
    request_: Request, changes: dict[str, Any], node: str, what: str
) -> None:
    ran(request_.directory, done=FIRST)
    before = listing(request_.directory)
    for force in (False, True):
        change = amended(request_, force=force, **changes)
        assert node in change.refusal
        assert what in change.refusal
        assert "metlmon continue" in change.refusal
        with pytest.raises(PlanError, match=r"(have|has) run"):
            carried_out(request_, force=force, **changes)
    assert listing(request_.directory) == before


def test_change_without_a_rescue_file_is_refused(request_: Request) -> None:
    ran(request_.directory, done=ALL, rescue=False)
    change = amended(request_, runs=3)
    assert "6 nodes have run and no rescue file says so" in change.refusal
    assert "metlmon continue" in change.refusal
    assert amended(request_).unchanged


def test_dagman_started_meanwhile_keeps_its_dag(request_: Request) -> None:
    plan = amended_plan(replace(request_, runs=3))
    change = plan_diff(plan)
    running(request_.directory)
    before = listing(request_.directory)
    with pytest.raises(PlanError, match="a DAGMan has taken"):
        amend_plan(plan, change)
    assert listing(request_.directory) == before


def test_idle_dagman_keeps_its_dag(request_: Request) -> None:
    """It has no lock yet; its own log has its submission and no end. Without, submission failed."""
    directory = request_.directory
    (directory / "ensemble.dag.condor.sub").write_text("")
    failed = amended(request_, epochs=4)
    assert (failed.progress, failed.refusal) == (DagProgress.WRITTEN, None)
    log = "000 (100.000.000) 2026-01-02 09:59:00 Job submitted from host: <10.0.0.1:9618>\n...\n"
    (directory / "ensemble.dag.dagman.log").write_text(log)
    change = amended(request_, runs=3)
    assert change.progress is DagProgress.RUNNING
    assert "a DAGMan has this DAG (ensemble.dag.dagman.log tells of no end)" in change.refusal


def test_job_log_proves_a_submission_without_dagman_files(request_: Request) -> None:
    ran(request_.directory, done=ALL, rescue=False)
    for path in request_.directory.glob("ensemble.dag.*"):
        path.unlink()
    change = amended(request_, seeds=(1, 9))
    assert (change.progress, change.ran) == (DagProgress.ENDED, 6)
    assert "run1-train_epoch0" in change.refusal


# --- answers of a gate ------------------------------------------------------------------------


def answered(request: Request, folder: str = "gate/ensemble") -> None:
    """Write what a gate leaves about one run; ``folder`` may be that of placements."""
    (uuid, _) = (run.uuid for run in amended_plan(request).runs)
    kind = "stopped" if folder.startswith("gate") else "inc"
    path = request.directory / folder / f"{uuid}.{kind}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"epoch": 0}\n')


@pytest.mark.parametrize("folder", ["gate/ensemble", "placement/ensemble"])
def test_new_dag_beside_answers_of_an_old_gate_is_refused(tmp_path: Path, folder: str) -> None:
    """The same runs have the same uuids: the gate would skip them at once."""
    request = a_request(tmp_path, gate=StopRules())
    answered(request, folder)
    (complaint,) = (each for each in validate(request).problems if each.fatal)
    assert complaint.text.startswith(
        f"ensemble.dag was submitted from here before and left {folder}"
    )
    assert "move them away" in complaint.text
    plan = amended_plan(request)
    with pytest.raises(PlanError, match=f"left {folder}: a new DAGMan would go on"):
        write_plan(plan)
    (request.directory / folder).rename(request.directory / "elsewhere")
    write_plan(plan)


def test_gate_answers_need_a_dag_that_ran(request_: Request) -> None:
    answered(request_)
    for changes in ({}, {"runs": 3}):
        change = amended(request_, **changes)
        assert "was never submitted, and gate/ensemble is left" in change.refusal
        assert "move it away" in change.refusal
    ran(request_.directory, done=FIRST)
    assert amended(request_, runs=3).refusal is None


# --- another DAG beside it --------------------------------------------------------------------


def continued(request: Request, *nodes: str, runs: bool = False) -> None:
    """``ensemble-2.dag`` continues run1, and has trained ``nodes``; ``runs``: it is running."""
    directory = request.directory
    uuid = amended_plan(request).runs[1].uuid
    text = ""
    for epoch in (1, 2):
        node = f"run1-train_epoch{epoch}"
        text += f'JOB {node} ensemble.sub\nVARS {node} run_uuid="{uuid}" epoch="{epoch + 1}"\n'
    (directory / "ensemble-2.dag").write_text(text)
    out, log = Out().start("12:00:00"), Log()
    for number, node in enumerate(nodes, start=500):
        out.submitted(node, number)
        log.submit(number, node, "12:01:00").execute(number).terminate(number)
    with (directory / "ensemble.log").open("ab") as file:
        file.write(log.data)
    data = out.data if runs else out.exit(0, "15:00:00").data
    (directory / "ensemble-2.dag.dagman.out").write_bytes(data)


def test_dag_whose_runs_another_dag_trains_is_not_changed(request_: Request) -> None:
    ran(request_.directory, done=FIRST)
    continued(request_, "run1-train_epoch1", "run1-train_epoch2")
    change = amended(request_, runs=3)
    assert "ensemble-2.dag goes on with its runs, and the next DAGMan" in change.refusal
    assert "metlmon continue" in change.refusal


def test_files_of_a_running_dag_are_not_changed(request_: Request) -> None:
    ran(request_.directory, done=ALL)
    continued(request_, runs=True)
    change = amended(request_, memory_mb=4096)
    assert "ensemble-2.dag goes on with its runs" in change.refusal


def test_refusal_quotes_no_secret(request_: Request) -> None:
    ran(request_.directory, done=FIRST)
    key = "0123456789abcdef0123456789abcdef01234567"
    change = amended(request_, variables={"WANDB_API_KEY": key})
    assert "WANDB_API_KEY would be" in change.refusal
    assert key not in change.refusal
