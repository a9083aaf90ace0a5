"""Runs of one ensemble stopped by a rule, by key and at once, or paused: the others finish, DAGMan
succeeds, and metlmon's account of each agrees with HTCondor's files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest
import recount
import trouble
import truth
from pools import SLOT_SECONDS, Pool, until
from terminals import Terminal

from tests.pool import new_ensemble

EPOCHS = 6
CUT_OFF = 1
FINISHES, STANDS_STILL, DIVERGES, BY_KEY, WAITS, AT_ONCE, ALSO = (f"run{n}" for n in range(7))

DESCRIPTION = f"""\
name = "steered"
runs = 7
epochs = {EPOCHS}
memory = 256
values = {{ slow_factor = 1 }}

[evaluation]
template = "broken.sub"
every = 3

[stop]
patience = 1
divergence = 1e6
poll = 5

[region.stands-still]
runs = ["{STANDS_STILL}"]
variables = {{ diverge_at = 4 }}

[region.diverges]
runs = ["{DIVERGES}"]
variables = {{ diverge_at = 1 }}

[region.is-cut-off]
runs = ["{AT_ONCE}"]
epochs = {CUT_OFF}
variables = {{ slow_factor = 600 }}
"""
"""A loss rises in the epoch that diverge_at names (from 1), a thousandfold, and is NaN afterwards:
the gate hears of the first before epoch 4, of the second before epoch 2. What is to be cut off
would not end by itself."""

BROKEN = """\
# template: An evaluation that fails
# role: evaluate
universe = vanilla
executable = /bin/false
transfer_executable = false
should_transfer_files = YES
request_memory = {memory_mb}MB
request_disk = 1MB
ulog_execute_attrs = GLIDEIN_ResourceName
log = metl.log
queue
"""


@dataclass(frozen=True, slots=True)
class SteeredEnsemble:
    """The finished ensemble. ``status`` and ``screen``: at the end; ``waiting``: its status while a
    run was paused; ``stopping``: the screen after a run was stopped."""

    written: new_ensemble.NewEnsemble
    status: dict[str, Any]
    screen: str
    waiting: dict[str, Any]
    stopping: str

    def run(self, name: str) -> dict[str, Any]:
        return self.written.run(name, self.status)


@pytest.fixture(scope="module")
def steered(pool: Pool) -> SteeredEnsemble:
    ensemble = new_ensemble.write(
        pool, "steered", DESCRIPTION, "--submit", files={"broken.sub": BROKEN}
    )
    ensemble.act("pause", WAITS)
    with pool.terminal(trouble.WATCH, ensemble.directory) as screen:
        screen.wait_for_match("PROGRESS")
        stopping = stop_by_key(screen, BY_KEY)
        stop_at_once(ensemble, AT_ONCE)
        waiting = until(lambda: while_it_waits(ensemble), f"{WAITS} waits, {FINISHES} does not")
        ensemble.act("resume-run", WAITS)
        screen.wait_for_match("✓ done", seconds=new_ensemble.END_SECONDS)
        last = screen.settle()
        screen.press("Q")
        assert screen.end() == 0
    return SteeredEnsemble(ensemble, ensemble.end(), last, waiting, stopping)


def select(screen: Terminal, run: str) -> None:
    """Put the cursor on a run of the overview."""
    screen.press("home")
    screen.settle()
    for _ in range(20):
        if re.search(rf"▌[ ★]{run}\b", screen.text):
            return
        screen.press("down")
        screen.settle()
    raise AssertionError(f"the cursor does not come to {run}:\n{screen.text}")


def stop_by_key(screen: Terminal, run: str) -> str:
    """Press T and y once an epoch of the run is done; return the screen after the stop."""
    screen.wait_for_match(rf"{run} .*[1-9]/{EPOCHS} ", seconds=SLOT_SECONDS)
    select(screen, run)
    screen.press("a")
    screen.wait_for_match("Act on")
    screen.press("T")
    screen.wait_for_match("y does it")
    screen.press("y")
    screen.wait_for_match(r"✓ 1 done")
    screen.press("escape")
    screen.wait_for_match("PROGRESS")
    return screen.wait_for_match(rf"{run} .*□ stopped")


def stop_at_once(ensemble: new_ensemble.NewEnsemble, run: str) -> None:
    """Stop it during an epoch that does not end by itself."""
    node = f"{run}-train_epoch{CUT_OFF}"
    until(lambda: any(ad["JobStatus"] == truth.RUNNING for ad in ensemble.queued(node)), "it runs")
    answered = ensemble.act("stop-now", run)
    assert {each["reply"] for each in answered["answers"]} == {"done"}, answered


def while_it_waits(ensemble: new_ensemble.NewEnsemble) -> dict[str, Any] | None:
    """The status once the other runs have advanced; None before."""
    status = ensemble.status()
    waits = ensemble.run(WAITS, status)["gate"]["paused"]
    others = ensemble.run(FINISHES, status)["epochs_done"] > EPOCHS // 2
    return status if waits and others else None


def test_dagman_succeeds_and_agrees_with_metlmon(steered: SteeredEnsemble) -> None:
    expected = steered.written.as_htcondor_says(steered.status)
    assert expected.totals == truth.Totals(expected.totals.nodes, expected.totals.nodes, 0, 0)
    assert [dag["state"] for dag in steered.status["dags"]] == ["done"]


def test_each_run_has_its_stop_and_epochs(steered: SteeredEnsemble) -> None:
    for name in (FINISHES, ALSO, WAITS):
        run = steered.run(name)
        assert (run["epochs_done"], run["epochs_skipped"]) == (EPOCHS, 0), name
        assert run["gate"]["stopped"] is None
    for name, rule, epoch, reason in (
        (STANDS_STILL, "patience", 5, "has not improved for 1 epoch"),
        (DIVERGES, "divergence", 3, "val_loss is NaN at epoch 2"),
        (BY_KEY, "file", None, f"by {steered.written.pool.users[0]}"),
        (AT_ONCE, "file", CUT_OFF + 1, "asked to stop"),
    ):
        run = steered.run(name)
        stopped = run["gate"]["stopped"]
        assert stopped["rule"] == rule, name
        assert reason in stopped["reason"], name
        assert epoch in (None, stopped["epoch"]), name
        assert run["epochs_done"] == stopped["epoch"] - 1 < EPOCHS, name
        assert run["epochs_skipped"] == EPOCHS - stopped["epoch"] + 1, name


def test_skipped_epochs_are_those_of_dagman(steered: SteeredEnsemble) -> None:
    skipped = steered.written.preskipped()
    assert len(skipped) == len(set(skipped))
    for run in steered.status["runs"]:
        trainings = [node for node in skipped if node.startswith(f"{run['run']}-train_")]
        assert run["epochs_skipped"] == len(trainings), run["run"]
        stopped = run["gate"]["stopped"]
        evaluations = [node for node in skipped if node.startswith(f"{run['run']}-eval_")]
        if stopped is None:
            assert evaluations == []
        else:
            # Those after epochs 2 and 5 that were not trained.
            assert len(evaluations) == sum(epoch >= stopped["epoch"] for epoch in (3, 6))


def test_no_run_trains_after_its_stop(steered: SteeredEnsemble) -> None:
    jobs = recount.recount(steered.written.directory / "metl.log")
    assert (
        recount.differences(
            steered.written.directory / "metl.log",
            steered.status,
            truth.jobs_of(steered.written.pool, steered.written.directory),
        )
        == []
    )
    for run in steered.status["runs"]:
        stopped = run["gate"]["stopped"]
        if stopped is None:
            continue
        at = truth.seconds(stopped["time"])
        own = [job for job in jobs.values() if job.node.startswith(f"{run['run']}-train_")]
        ran = [each for job in own for each in job.executions]
        assert ran, f"{run['run']} trained before"
        assert [each for each in ran if each.start >= at] == []
        after = sum(max(0.0, (each.end or at) - at) * each.gpus for each in ran)
        assert after <= truth.CLOCK_SECONDS, "GPU-seconds after the stop"


def test_run_stopped_at_once_loses_one_epoch(steered: SteeredEnsemble) -> None:
    node = f"{AT_ONCE}-train_epoch{CUT_OFF}"
    jobs = truth.jobs_of(steered.written.pool, steered.written.directory)
    (job,) = (job for job in jobs if job["node"] == node)
    assert job["state"] == "removed"
    assert node in steered.written.preskipped()
    lost = steered.run(AT_ONCE)["hours"]["badput"]
    assert lost == pytest.approx(steered.status["hours"]["badput"]), "nothing else was lost"


def test_paused_run_resumes(steered: SteeredEnsemble) -> None:
    waited = steered.written.run(WAITS, steered.waiting)
    assert waited["gate"]["pause_requested"]
    assert waited["gate"]["stopped"] is None
    assert waited["epochs_done"] < EPOCHS
    assert waited["epochs_skipped"] == 0
    jobs = recount.recount(steered.written.directory / "metl.log")
    since = truth.seconds(waited["gate"]["paused"])
    until = truth.seconds(steered.waiting["as_of"])
    assert until > since
    own = [job for job in jobs.values() if job.node.startswith(f"{WAITS}-train_")]
    begun = [each.start for job in own for each in job.executions]
    assert not any(since < start < until for start in begun), "nothing began meanwhile"
    gate = steered.run(WAITS)["gate"]
    assert (gate["paused"], gate["pause_requested"]) == (None, None), "forgotten when it goes on"


def test_failed_evaluations_fail_no_run(steered: SteeredEnsemble) -> None:
    jobs = truth.jobs_of(steered.written.pool, steered.written.directory)
    evaluations = [job for job in jobs if "-eval_" in job["node"]]
    assert len(evaluations) >= 2 * 3, "of those that finish at least"
    assert {job["state"] for job in evaluations} == {"failed"}
    assert len({job["node"] for job in evaluations}) == len(evaluations), "each is tried once"


def test_screen_shows_stopped_and_completed_runs(steered: SteeredEnsemble) -> None:
    assert re.search(rf"{BY_KEY} .*□ stopped", steered.stopping)
    for name in (STANDS_STILL, DIVERGES, BY_KEY, AT_ONCE):
        assert re.search(rf"{name} .*□ stopped", steered.screen), name
    for name in (FINISHES, WAITS, ALSO):
        assert re.search(rf"{name} .*{EPOCHS}/{EPOCHS} .*✓ completed", steered.screen), name
    skipped = sum(run["epochs_skipped"] for run in steered.status["runs"])
    assert f"{skipped} skipped" in steered.screen
    assert "evaluations failed" in steered.screen


def test_ensemble_passes_the_check(steered: SteeredEnsemble) -> None:
    done = steered.written.pool.run(["metlmon", "check", "--strict"], steered.written.directory)
    assert "nothing found" in done.stdout


# --- continuing a stopped run: last, since it writes into the directory of the others ---------


@pytest.fixture(scope="module")
def continued(steered: SteeredEnsemble) -> dict[str, Any]:
    """The output of ``metlmon continue --json`` for the run stopped by key, which has ended."""
    pool, directory = steered.written.pool, steered.written.directory
    argv = ["metlmon", "continue", ".", BY_KEY, "--json"]
    output: dict[str, Any] = json.loads(pool.run(argv, directory).stdout)
    pool.run(["condor_submit_dag", output["plan"]["dag_file"]], directory)
    with pool.terminal(trouble.WATCH, directory) as screen:
        screen.wait_for_match("PROGRESS")
        screen.wait_for_match(
            rf"{BY_KEY} .*{EPOCHS}/{EPOCHS} .*completed", seconds=new_ensemble.END_SECONDS
        )
        assert len(re.findall(rf"^[▌ ] {BY_KEY} ", screen.text, re.M)) == 1, screen.text
    return output


def test_stopped_run_continues_at_its_first_untrained_epoch(
    steered: SteeredEnsemble, continued: dict[str, Any]
) -> None:
    stopped = steered.run(BY_KEY)["gate"]["stopped"]
    (result,) = continued["runs"]
    assert (result["first_epoch"], result["last_epoch"]) == (stopped["epoch"], EPOCHS)
    run = steered.written.run(BY_KEY, steered.written.end())
    assert run["uuid"] == result["uuid"] == steered.written.uuid(BY_KEY)
    assert (run["epochs_done"], run["epochs_total"]) == (EPOCHS, EPOCHS)
    assert (run["epochs_skipped"], run["state"]) == (0, "completed")
    assert run["gate"]["stopped"] is None
    last = steered.written.directory / result["checkpoint"] / "checkpoints/last.ckpt"
    assert json.loads(last.read_bytes().splitlines()[1])["epochs"] == EPOCHS


def test_watch_shows_one_run_and_both_of_its_dags(
    steered: SteeredEnsemble, continued: dict[str, Any]
) -> None:
    status = steered.written.end()
    assert sorted(run["run"] for run in status["runs"]) == [f"run{n}" for n in range(7)]
    files = {dag["file"]: dag["state"] for dag in status["dags"]}
    assert files == {steered.written.dag.name: "done", continued["plan"]["dag_file"]: "done"}
    steered.written.as_htcondor_says(status)
