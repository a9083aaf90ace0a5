"""What HTCondor does to a DAG without an error of the jobs themselves: at each quiet moment the
DAG and its nodes have the states that condor_q and DAGMan's node status file give them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faults
import pytest
import truth
from pools import Pool, until

from tests.pool import gated_dag, new_ensemble

ACTIVE = frozenset().union(*truth.IN_QUEUE.values())
LONG = 90.0

NODE_STATUS = {
    0: {"waiting", "unknown"},
    1: {"waiting", "idle"},
    2: {"pre"},
    3: ACTIVE,
    4: {"post"},
    5: {"completed", "skipped"},
    6: {"failed"},
    7: {"futile"},
}
"""NodeStatus of DAGMan's node status file, and what metlmon may call the node then. Source:
``DagmanUtils`` and ``Node::status_t`` of HTCondor's DAGMan."""

EXIT_FAILED, EXIT_HELD, EXIT_TIMEOUT = 3, 4, 5


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of the pool's user, and metlmon's view of it."""

    pool: Pool
    path: Path

    def dag(self) -> dict[str, Any]:
        """The only DAG of ``metlmon status --json``, with ``live`` of the whole."""
        status = truth.status_of(self.pool, self.path)
        (dag,) = status["dags"]
        return {**dag, "live": status["live"]}

    def nodes(self) -> dict[str, dict[str, Any]]:
        done = self.pool.run(["metlmon", "nodes", ".", "--json"], self.path)
        return {node["node"]: node for node in json.loads(done.stdout)["nodes"]}

    def text(self) -> str:
        return self.pool.run(["metlmon", "status", "."], self.path).stdout

    def exits_on(self, what: str) -> int:
        argv = ["metlmon", "status", ".", "--exit-on", what, "--timeout", "2"]
        return self.pool.run(argv, self.path, expect=None).returncode

    def until_dag(self, state: str) -> dict[str, Any]:
        return until(
            lambda: dag if (dag := self.dag())["state"] == state else None,
            lambda: f"the DAG is {state}; it is {self.dag()}",
            LONG,
        )

    def until_as_dagman_says(self) -> dict[str, str]:
        """Wait until each node has the state in the node status file, which lags by a second;
        return DAGMan's details of each node."""
        found = until(
            lambda: None if self.node_differences() else self.dagmans_nodes(),
            lambda: "\n".join(self.node_differences()),
            LONG,
        )
        return {name: details for name, (_, details) in found.items()}

    def dagmans_nodes(self) -> dict[str, tuple[int, str]]:
        """The last NodeStatus and StatusDetails of each node that DAGMan wrote."""
        (path,) = self.path.glob("*.status")
        ads = re.findall(
            r'Node = "([^"]+)";\s*NodeStatus = (\d);[^\n]*\s*StatusDetails = "([^"]*)";',
            path.read_text(),
        )
        return {name: (int(status), details) for name, status, details in ads}

    def node_differences(self) -> list[str]:
        ours = self.nodes()
        return [
            f"{name} is {ours[name]['state']}, by DAGMan NodeStatus {status} ({details})"
            for name, (status, details) in self.dagmans_nodes().items()
            if ours[name]["state"] not in NODE_STATUS[status]
        ]

    def check_final_states(self) -> None:
        truth.until_gone(self.pool, self.path, LONG)
        expected = truth.at_the_end(self.pool, self.path)
        status = truth.status_of(self.pool, self.path)
        assert truth.differences(expected, status, truth.jobs_of(self.pool, self.path)) == []


def submit(pool: Pool, directory: Path, *argv: str) -> int:
    """Submit by ``condor_submit_dag`` or ``condor_submit``; return the cluster."""
    done = pool.run(argv, directory)
    found = re.search(r"submitted to cluster (\d+)", done.stdout)
    assert found is not None, done.stdout
    return int(found[1])


def place_dag(pool: Pool, name: str, dag: str, **files: str) -> Directory:
    """A directory with ``ens.dag`` and the job of :mod:`gated_dag` beside it."""
    directory = pool.directory(name)
    gates = directory / "gates"
    gates.mkdir()
    pool.give(gates)
    pool.place(directory / "gated.sh", gated_dag.JOB, 0o755)
    requirements = "true"
    description = gated_dag.SUBMIT.format(gates=gates, gpus=0, requirements=requirements, more="")
    pool.place(directory / "ens.dag", description + dag + "NODE_STATUS_FILE nodes.dag.status 1\n")
    for each, text in files.items():
        mode = 0o755 if text.startswith("#!") else 0o644
        pool.place(directory / each.replace("_", "."), text, mode)
    return Directory(pool, directory)


def node(name: str) -> str:
    return f'JOB {name} wait\nVARS {name} node="{name}"\n'


def open_gates(found: Directory, *nodes: str, code: int = 0) -> None:
    for each in nodes:
        found.pool.place(found.path / "gates" / each, f"{code}\n")


# --- DAGMan itself --------------------------------------------------------------------------


def test_jobs_of_a_held_dagman_keep_running(pool: Pool) -> None:
    dag = gated_dag.write(pool, "dagman-held", runs=2, epochs=2)
    found = Directory(pool, dag.directory)
    dagman = dag.submit()
    pool.running(2, f"DAGManJobId == {dagman}")
    pool.run(["condor_hold", str(dagman)])
    result = found.until_dag("held")
    assert result["live"]
    assert "DAGMan held" in found.text()
    assert "via condor_hold" in found.text(), "the reason as logged"
    assert truth.quiet_moment(pool, dag.directory) == ["running"] * 2
    assert found.exits_on("failed") == EXIT_TIMEOUT
    assert found.exits_on("held") == EXIT_HELD
    pool.run(["condor_release", str(dagman)])
    found.until_dag("running")
    assert truth.quiet_moment(pool, dag.directory) == ["running"] * 2
    dag.open_all()
    found.until_dag("done")
    found.check_final_states()


def test_dag_restarts_after_a_schedd_shutdown(breakable_pool: Pool) -> None:
    dag = gated_dag.write(breakable_pool, "schedd-off", runs=2, epochs=2)
    found = Directory(breakable_pool, dag.directory)
    dagman = dag.submit()
    breakable_pool.running(2, f"DAGManJobId == {dagman}")
    with faults.without(breakable_pool, "schedd", fast=False):
        result = found.until_dag("restarting")
        assert result["live"]
        assert "DAGMan not running (restarts)" in found.text()
        assert found.exits_on("failed") == EXIT_TIMEOUT
    found.until_dag("running")
    truth.quiet_moment(breakable_pool, dag.directory, LONG)
    dag.open_all()
    assert found.until_dag("done")["dagmans"] == 1, "one cluster, one life"
    found.check_final_states()


def test_second_submission_is_refused(pool: Pool) -> None:
    dag = gated_dag.write(pool, "twice", runs=2, epochs=2)
    found = Directory(pool, dag.directory)
    dagman = dag.submit()
    pool.running(2, f"DAGManJobId == {dagman}")
    second = submit(pool, dag.directory, "condor_submit", "ens.dag.condor.sub")
    (ad,) = until(lambda: pool.history(f"ClusterId == {second}"), "the second one ends", LONG)
    assert ad["ExitCode"] == 1, "the lock file is the first one's"
    result = found.until_dag("running")
    assert result["live"]
    assert (len(result["submissions"]), result["refused"]) == (1, 1)
    assert "refused" in found.text()
    assert found.exits_on("failed") == EXIT_TIMEOUT
    assert truth.quiet_moment(pool, dag.directory) == ["running"] * 2
    dag.open_all()
    found.until_dag("done")
    truth.until_gone(pool, found.path, LONG)
    status = truth.status_of(pool, dag.directory)
    assert status["dags"][0]["nodes_done"] == 4


# --- nodes that fail without a job ------------------------------------------------------------


def test_nodes_fail_without_a_job(pool: Pool) -> None:
    runs = [[f"run{run}-train_epoch{epoch}" for epoch in range(3)] for run in range(3)]
    text = "".join(node(each) for run in runs for each in run)
    text = text.replace("JOB run2-train_epoch1 wait", "JOB run2-train_epoch1 bad.sub")
    text += "".join(f"PARENT {a} CHILD {b}\nPARENT {b} CHILD {c}\n" for a, b, c in runs)
    text += "SCRIPT PRE run1-train_epoch1 no.sh\n"
    bad = "executable = /bin/true\nrequest_cpus = 1 +\nlog = metl.log\nqueue nonsense from\n"
    found = place_dag(pool, "no-job", text, bad_sub=bad, no_sh="#!/bin/sh\nexit 9\n")
    dagman = submit(pool, found.path, "condor_submit_dag", "ens.dag")
    open_gates(found, *(run[0] for run in runs))
    until(
        lambda: (
            [each for each, (n, _) in found.dagmans_nodes().items() if n == 7] or None
            if (found.path / "nodes.dag.status").exists()
            else None
        ),
        "DAGMan finds nodes futile",
        LONG,
    )
    until(lambda: sum(n == 6 for n, _ in found.dagmans_nodes().values()) == 2, "two failed", LONG)
    pool.running(1, f"DAGManJobId == {dagman}", 'DAGNodeName == "run0-train_epoch1"')
    details = found.until_as_dagman_says()
    result = found.nodes()
    assert details["run1-train_epoch1"] == "PRE Script failed with status 9"
    assert "PRE" in result["run1-train_epoch1"]["why"]
    assert "9" in result["run1-train_epoch1"]["why"]
    assert details["run2-train_epoch1"] == "Job submit failed"
    assert "submit" in result["run2-train_epoch1"]["why"].lower()
    states = {run["run"]: run["state"] for run in truth.status_of(pool, found.path)["runs"]}
    assert [states[name] for name in sorted(states)] == ["running", "failed", "failed"]
    open_gates(found, *(each for run in runs for each in run))
    found.until_dag("failed")
    found.check_final_states()


def test_aborted_dag_runs_its_final_node(pool: Pool) -> None:
    text = "".join(node(f"run0-train_epoch{epoch}") for epoch in range(2)) + node("other")
    text += "PARENT run0-train_epoch0 CHILD run0-train_epoch1\n"
    text += "RETRY ALL_NODES 5\nABORT-DAG-ON run0-train_epoch0 3\n"
    text += 'FINAL last wait\nVARS last node="last"\n'
    found = place_dag(pool, "aborted", text)
    dagman = submit(pool, found.path, "condor_submit_dag", "ens.dag")
    pool.running(2, f"DAGManJobId == {dagman}")
    open_gates(found, "run0-train_epoch0", code=3)
    pool.running(1, f"DAGManJobId == {dagman}", 'DAGNodeName == "last"')
    result = found.nodes()
    assert result["run0-train_epoch0"]["state"] == "failed"
    assert not result["run0-train_epoch0"]["retries_left"]
    assert truth.quiet_moment(pool, found.path) == ["running"]
    open_gates(found, "last")
    truth.until_gone(pool, found.path, LONG)
    totals = truth.totals(found.path)
    dag = found.dag()
    assert (dag["nodes_failed"], dag["nodes_done"]) == (totals.failed, totals.done)
    assert list(found.path.glob("ens.dag.rescue001")), "DAGMan left a rescue file"
    assert dag["state"] != "done"
    offered = pool.run(["metlmon", "act", "resubmit", ".", "--dry-run"], found.path, expect=None)
    assert offered.returncode == 0, offered.stdout + offered.stderr


# --- two directories ------------------------------------------------------------------------


def test_two_directories_share_one_log(pool: Pool) -> None:
    first = gated_dag.write(pool, "one-log-1", runs=2, epochs=2)
    second = gated_dag.write(pool, "one-log-2", runs=2, epochs=2)
    log = first.directory / "metl.log"
    text = second.dag.read_text().replace("log = metl.log", f"log = {log}")
    pool.place(second.dag, text)
    dagmans = [first.submit(), second.submit()]
    for dagman in dagmans:
        pool.running(2, f"DAGManJobId == {dagman}")
    first.open_all()
    Directory(pool, first.directory).until_dag("done")
    for dag, dagman, state in zip((first, second), dagmans, ("completed", "running"), strict=True):
        jobs = truth.jobs_of(pool, dag.directory)
        queue = pool.queue(f"DAGManJobId == {dagman}")
        history = pool.history(f"DAGManJobId == {dagman}")
        assert {job["cluster"] for job in jobs} == {ad["ClusterId"] for ad in [*queue, *history]}
        assert {job["state"] for job in jobs} == {state}
    assert Directory(pool, second.directory).dag()["nodes_done"] == 0
    second.open_all()
    for dag in (first, second):
        found = Directory(pool, dag.directory)
        found.until_dag("done")
        found.check_final_states()


# --- the gate -------------------------------------------------------------------------------

GATED = """\
name = "halted"
runs = 2
epochs = 4
memory = 256
retries = 3
values = { slow_factor = 1 }

[stop]
patience = 9
poll = 5

[region.is-cut-off]
runs = ["run1"]
epochs = 1
variables = { slow_factor = 600 }
"""


def test_epoch_cut_by_stop_now_is_not_completed_on_resubmission(pool: Pool) -> None:
    ensemble = new_ensemble.write(pool, "halted", GATED, "--submit")
    # Otherwise the DAG may be done before it is removed.
    ensemble.act("pause", "run0")
    cut = "run1-train_epoch1"
    until(
        lambda: any(ad["JobStatus"] == truth.RUNNING for ad in ensemble.queued(cut)),
        f"{cut} runs",
        LONG,
    )
    ensemble.act("stop-now", "run1")
    until(lambda: cut in ensemble.preskipped(), "DAGMan skips it", LONG)
    ensemble.act("remove-dag")
    truth.until_gone(pool, ensemble.directory)
    ensemble.act("resubmit")
    ensemble.act("resume-run", "run0")
    status = ensemble.end()
    run = ensemble.run("run1", status)
    assert (run["epochs_done"], run["epochs_skipped"]) == (1, 3)
    ended = Directory(pool, ensemble.directory).nodes()
    assert ended[cut]["state"] == "skipped"
    argv = ["metlmon", "continue", ".", "run1", "--dry-run", "--json"]
    continued = json.loads(pool.run(argv, ensemble.directory).stdout)
    assert [(each["first_epoch"], each["last_epoch"]) for each in continued["runs"]] == [(2, 4)]


@pytest.fixture
def no_python(breakable_pool: Pool) -> Iterator[None]:
    """An access point whose scripts find no python3. The execute machines are the same machine, so
    no training may need one meanwhile."""
    python = breakable_pool.script.ROOT / "usr/bin/python3"
    hidden = python.with_name("python3.hidden")
    python.rename(hidden)
    try:
        yield
    finally:
        hidden.rename(python)


def test_gate_without_python_lets_its_epoch_train(breakable_pool: Pool, no_python: None) -> None:
    ensemble = new_ensemble.write(breakable_pool, "no-python", GATED.replace("halted", "no-python"))
    for path in ensemble.directory.glob("*.sub"):
        # The training needs no Python either.
        text = re.sub(r"(?m)^executable *=.*", "executable = /bin/true", path.read_text())
        text = re.sub(r"(?m)^(transfer_output_files|transfer_checkpoint_files) *=.*\n", "", text)
        breakable_pool.place(path, text)
    ensemble.submit()
    found = Directory(breakable_pool, ensemble.directory)
    until(lambda: truth.jobs_of(breakable_pool, ensemble.directory), "a job is submitted", LONG)
    nodes = found.nodes()
    assert not [each for each in nodes.values() if each["state"] in ("failed", "futile")]
    assert "python3" in found.text(), "the failure of the gate is in the status"
    breakable_pool.remove_everything_below(ensemble.directory)
