"""Faults of a real pool under a running screen: what it shows during a fault, and that every state
and number agrees with the queue, DAGMan and the log afterwards."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import faults
import pytest
import recount
import trouble
import truth
from pools import Pool, until
from terminals import Terminal
from watching import Watched, without_figures

from tests.pool import gated_dag

if find_spec("htcondor2") is None:
    pytest.skip("HTCondor's own reader is not here", allow_module_level=True)

RUNS, EPOCHS = 4, 2
LEASE_SECONDS = 30
"""For so long a job's machine may be out of reach: a schedd that was killed is back in 2 s."""

LONG = 150.0
"""Generous: a lease, a daemon's restart, and the schedd's own pauses."""

REFUSED = 6
ACTIVE = set().union(*truth.IN_QUEUE.values())
SILENT = r"no answer from the schedd since \d\d:\d\d:\d\d"

ROW = re.compile(r"^[▌ ] (run\d) .*?(\d/\d) +(\d+)  (\S+ [a-z][a-z ]*?)  ", re.M)
"""Of a run in the overview: its name, epochs done, the epoch it is at, and its state."""


KEY = "0123456789abcdef0123456789abcdef01234567"
"""Forty hexadecimal digits, as a tracking service gives them out."""

TITLE, RED, TURNED = "\x1b]0;pwned\x07", "\x1b[31mred [bold]x[/]", "\u202eabc"
REASON = f"{TURNED} WANDB_API_KEY={KEY}"
HOSTILE = f"{TITLE}{RED} {REASON}"

JOB = f"""\
#!/bin/sh
# Says what no terminal may get, and the key; then does as gated_dag.sh does.
mkdir -p output
echo "$2" > "output/$2"
printf '{HOSTILE}\\r\\n50%%|#####     | 5/10 epoch 0 loss=1 %s\\n' "$WANDB_API_KEY"
printf '{HOSTILE} %s\\n' "$WANDB_API_KEY" >&2
while [ ! -s "$1/$2" ]; do sleep 0.5; done
exit "$(cat "$1/$2")"
"""

HELD_AT_ITS_END = (
    f'environment = "WANDB_API_KEY={KEY}"',
    "on_exit_hold = ExitCode == 7",
    f'on_exit_hold_reason = "\\033]0;pwned\\007\\033[31mred [bold]x[/] {REASON}"',
)

SCREENS = ("2", "3", "4", "5", "8")
"""Keys from the overview to the others."""

COMMANDS = (
    *(("status",), ("status", "--json", "--queue"), ("jobs",), ("jobs", "--json"), ("check",)),
    *(("run", "run0"), ("sites",), ("timeline",), ("report", "--md", "-")),
)


@dataclass(frozen=True, slots=True)
class FaultedEnsemble:
    """The ensemble of all faults, watched on a terminal and in a session."""

    pool: Pool
    dag: gated_dag.GatedDag
    dagman: int
    screen: Terminal
    watched: Watched

    @property
    def directory(self) -> Path:
        return self.dag.directory

    @property
    def of_dag(self) -> str:
        return f"DAGManJobId == {self.dagman}"

    def job_of(self, run: int) -> dict[str, Any]:
        """The newest job of a run, from ``metlmon jobs``."""
        jobs = truth.jobs_of(self.pool, self.directory)
        return max((j for j in jobs if j["run"] == f"run{run}"), key=lambda j: j["cluster"])

    def executions(self) -> dict[int, int]:
        """The number of executions of each job, by cluster."""
        jobs = truth.jobs_of(self.pool, self.directory)
        return {job["cluster"]: len(job["executions"]) for job in jobs}

    def rows(self) -> list[tuple[str, ...]]:
        return rows(self.screen)

    def until_rows(self, state: str, *runs: int) -> None:
        """Wait until these runs (or all) are in this state on the screen."""
        names = {f"run{run}" for run in runs or range(RUNS)}

        def seen(text: str) -> bool:
            there = {row[0] for row in ROW.findall(text) if row[3].endswith(state)}
            return names <= there

        self.screen.until_text(seen, f"{sorted(names)} {state}", LONG)

    def agrees_with_the_queue(self) -> None:
        """Wait until metlmon's state of each job is the queue's: the log may lag for a moment."""

        def look() -> bool:
            before = states_in_queue(self)
            result = {
                (job["cluster"], job["proc"]): job["state"]
                for job in truth.jobs_of(self.pool, self.directory)
            }
            active = {job for job, state in result.items() if state in ACTIVE}
            same = all(result.get(job) in truth.IN_QUEUE.get(n, ()) for job, n in before.items())
            return same and active == before.keys() and before == states_in_queue(self)

        until(look, lambda: f"the queue has {states_in_queue(self)}", LONG)
        active = truth.IN_QUEUE.values()
        result = [
            j
            for j in truth.jobs_of(self.pool, self.directory)
            if j["state"] in set().union(*active)
        ]
        assert len(result) == len(states_in_queue(self)), "each reported job is in the queue"


def states_in_queue(faulted: FaultedEnsemble) -> dict[tuple[int, int], int]:
    ads = faulted.pool.queue(faulted.of_dag)
    return {(ad["ClusterId"], ad["ProcId"]): ad["JobStatus"] for ad in ads}


def rows(screen: Terminal) -> list[tuple[str, ...]]:
    return ROW.findall(screen.text)


def differing(pool: Pool, directory: Path) -> list[str]:
    """Where metlmon's final state differs from the log or from HTCondor."""
    status, jobs = truth.status_of(pool, directory), truth.jobs_of(pool, directory)
    found = recount.differences(directory / "metl.log", status, jobs, LEASE_SECONDS)
    ours = truth.of_dagmans(truth.dagmans(pool, directory))
    ended = {(ad["ClusterId"], ad["ProcId"]): ad for ad in pool.history(ours)}
    for job in jobs:
        ad = ended.get((job["cluster"], job["proc"]))
        if ad is None or truth.state_at_end(ad) != job["state"]:
            found.append(f"{job['cluster']} is {job['state']}, the schedd has it otherwise: {ad}")
    if len(ended) != len(jobs):
        found.append(f"{len(jobs)} jobs, the schedd knew {len(ended)}")
    totals, (dag,) = truth.totals(directory), status["dags"]
    if totals.exit_code != truth.REMOVED_EXIT:
        result = (dag["nodes_total"], dag["nodes_done"], dag["nodes_failed"])
        if result != (totals.nodes, totals.done, totals.failed):
            found.append(f"nodes are {result}, DAGMan {totals}")
    return found


def until_recovered(pool: Pool, directory: Path, times: int) -> None:
    """Wait until the schedd has restarted DAGMan the given number of times."""

    def recoveries() -> int:
        count: int = truth.status_of(pool, directory)["dags"][0]["recoveries"]
        return count

    until(lambda: recoveries() == times, f"DAGMan is recovered {times}×", LONG)


@pytest.fixture(scope="module")
def faulted(breakable_pool: Pool) -> Iterator[FaultedEnsemble]:
    """Runs at one site each, watched since before their first job."""
    more = [f"job_lease_duration = {LEASE_SECONDS}"]
    sites = list(breakable_pool.sites.values())
    dag = gated_dag.write(
        breakable_pool, "faulted", RUNS, EPOCHS, sites, retries=3, gpus=1, more=more
    )
    with breakable_pool.terminal(trouble.WATCH, dag.directory) as screen:
        watched = Watched.begin(dag.directory)
        try:
            dagman = dag.submit()
            made = FaultedEnsemble(breakable_pool, dag, dagman, screen, watched)
            made.until_rows("running")
            yield made
        finally:
            watched.session.stop()


def test_killed_dagman_recovers_without_double_counting(faulted: FaultedEnsemble) -> None:
    screen = faulted.screen
    faults.kill_dagman(faulted.pool, faulted.dagman)
    until_recovered(faulted.pool, faulted.directory, 1)
    trouble.by_keys(screen, "run1", "H")
    faulted.until_rows("held", 1)
    faults.kill_dagman(faulted.pool, faulted.dagman)
    until_recovered(faulted.pool, faulted.directory, 2)
    faulted.until_rows("held", 1)
    faulted.until_rows("running", 0, 2, 3)
    faulted.agrees_with_the_queue()
    trouble.by_keys(screen, "run1", "R")
    faulted.until_rows("running")
    assert len(faulted.executions()) == RUNS, "no job is submitted again"


def test_stopped_schedd_is_reported_and_actions_are_refused(faulted: FaultedEnsemble) -> None:
    pool, screen = faulted.pool, faulted.screen
    before = states_in_queue(faulted)
    until(lambda: trouble.asked(screen, "H"), "the question comes", LONG)
    with faults.without(pool, "schedd"):
        screen.press("y")
        screen.wait_for_match("schedd does not answer|no schedd on this host", seconds=LONG)
        screen.press("escape")
        screen.wait_for_match(SILENT, seconds=LONG)
        assert [row[0] for row in faulted.rows()] == [f"run{run}" for run in range(RUNS)]
        argv = ["metlmon", "act", "hold", ".", "run2", "--yes", "--json"]
        answered = json.loads(pool.run(argv, faulted.directory, expect=REFUSED).stdout)
        assert answered["refused"], "it says why"
        assert truth.status_of(pool, faulted.directory)["live"]
    faulted.until_rows("running")
    faulted.agrees_with_the_queue()
    after = states_in_queue(faulted)
    assert after.keys() == before.keys()
    assert truth.HELD not in after.values(), "what was refused is not done later"


def test_job_is_disconnected_when_its_machine_dies(faulted: FaultedEnsemble) -> None:
    site = faulted.job_of(0)["site"]
    (name,) = (name for name, each in faulted.pool.sites.items() if each == site)
    # Equal events of one second count once, and the last event may be of this second.
    last = max(event["time"] for event in recount.events(faulted.directory / "metl.log"))
    until(lambda: time.time() > last + 1, "the next second comes")
    faults.kill(faulted.pool, "condor_startd", name)
    faulted.until_rows("disconnected", 0)


@pytest.mark.parametrize("way", ["removed", "emptied"])
def test_dagman_without_its_log_is_explained(breakable_pool: Pool, way: str) -> None:
    dag = gated_dag.write(breakable_pool, f"log-{way}", runs=2)
    log, received = dag.directory / "ens.dag.nodes.log", dag.directory / "ens.jobstate.log"
    with breakable_pool.terminal(trouble.WATCH, dag.directory) as screen:
        breakable_pool.running(2, f"DAGManJobId == {dag.submit()}")
        until(lambda: received.read_text().count(" EXECUTE ") == 2, "DAGMan has read of both")
        if way == "removed":
            log.unlink()
            # The schedd restarts DAGMan, which finds no log and submits the running jobs again.
            until_recovered(breakable_pool, dag.directory, 1)
            warned(screen, "has been deleted", "run0-train_epoch0 has jobs of 2 submissions")
        else:
            log.write_bytes(b"")
            screen.wait_for_match("✗ failed", seconds=LONG)
            warned(screen, "has shrunk")
        dag.open_all()
        truth.until_gone(breakable_pool, dag.directory)
        screen.wait_for_match("✓ done" if way == "removed" else "✗ failed", seconds=LONG)
    status, jobs = (
        truth.status_of(breakable_pool, dag.directory),
        truth.jobs_of(breakable_pool, dag.directory),
    )
    assert recount.differences(dag.directory / "metl.log", status, jobs) == []
    assert len(jobs) == (4 if way == "removed" else 2)


def test_hostile_texts_of_jobs_and_holds_reach_no_output(breakable_pool: Pool) -> None:
    dag, result = (
        gated_dag.write(breakable_pool, "hostile", runs=2, more=HELD_AT_ITS_END),
        breakable_pool.directory("told"),
    )
    files = [("report", "--html", f"{result}/report.html"), ("export", "--out", f"{result}/tables")]
    breakable_pool.place(dag.directory / "gated.sh", JOB, 0o755)
    printed = b""
    with breakable_pool.terminal(trouble.WATCH, dag.directory) as screen:
        of_dag = f"DAGManJobId == {dag.submit()}"
        first, _ = breakable_pool.running(2, of_dag)
        breakable_pool.run(["condor_hold", "-reason", HOSTILE, str(first["ClusterId"])])
        dag.open("run1-train_epoch0", code=7)
        for run in ("run0", "run1"):
            screen.wait_for_match(rf"{run} .*held", seconds=LONG)
        for keys in (*SCREENS, ("enter",), ("enter", "enter")):
            screen.press(*keys)
            screen.settle()
            screen.press(*["escape"] * len(keys))
            screen.settle()
        screen.wait_for_match("PROGRESS")
        for argv in (*COMMANDS, *files):
            done = breakable_pool.run(["metlmon", *argv], dag.directory, expect=None)
            printed += done.stdout.encode() + done.stderr.encode()
        screen.press("Q")
        assert screen.end() == 0
        printed += screen.bytes
    assert b"red [bold]x" in printed, "it is shown, visibly"
    assert f"WANDB_API_KEY={KEY}" in dag.dag.read_text(), "there was one to be found"
    for text in (TITLE, RED, TURNED[0], KEY):
        assert text.encode() not in printed
    # No OSC but 22, by which Textual sets the shape of the pointer.
    assert set(re.findall(rb"\x1b\](\d*)", printed)) <= {b"22"}
    assert [path for path in written_by_metlmon(breakable_pool, result) if holds(path)] == []


def test_job_restarts_after_its_machine_dies(faulted: FaultedEnsemble) -> None:
    screen = faulted.screen
    faulted.until_rows("running")
    screen.wait_for_match("PROGRESS", gone=SILENT, seconds=LONG)
    outcomes = [each["outcome"] for each in faulted.job_of(0)["executions"]]
    assert outcomes[-2:] == ["reconnect-failed", "in-flight"]
    faulted.agrees_with_the_queue()


def test_running_and_new_screens_agree_after_a_killed_schedd(faulted: FaultedEnsemble) -> None:
    log = faulted.directory / "metl.log"
    before = lost(log)
    faults.kill(faulted.pool, "condor_schedd")
    with faulted.pool.terminal(trouble.WATCH, faulted.directory) as late:
        late.wait_for_match("run3 .*running")
        until(lambda: len(lost(log)) > len(before), "jobs were out of reach", LONG)
        # On a busy machine a lease may expire meanwhile; then the job restarts.
        faulted.until_rows("running")
        until(lambda: faults.answers(faulted.pool), "the schedd answers", LONG)
        faulted.agrees_with_the_queue()
        agree(faulted.screen, late)
        trouble.by_keys(faulted.screen, "run2", "H")
        late.wait_for_match("run2 .*held", seconds=LONG)
        agree(faulted.screen, late)
        trouble.by_keys(faulted.screen, "run2", "R")
        faulted.until_rows("running")
        agree(faulted.screen, late)


def test_states_follow_the_files_without_collector_and_negotiator(faulted: FaultedEnsemble) -> None:
    pool = faulted.pool
    with faults.without(pool, "negotiator"), faults.without(pool, "collector"):
        faulted.dag.open("run3-train_epoch0")
        faulted.until_rows("idle", 3)
        assert ("run3", "1/2") in [row[:2] for row in faulted.rows()]
        with pool.terminal(["metlmon", "submit"], pool.base) as pane:
            pane.wait_for_match("Submit a new ensemble")
            pane.wait_for_match("collector does not answer", seconds=LONG)
    faulted.until_rows("running")
    faulted.agrees_with_the_queue()


def test_all_jobs_restart_after_a_pool_restart(faulted: FaultedEnsemble) -> None:
    log, before = faulted.directory / "metl.log", faulted.executions()
    out_of_reach = len(lost(log))
    faults.restart(faulted.pool)
    until(lambda: len(lost(log)) >= out_of_reach + RUNS, "all are out of reach", LONG)
    again = sum(before.values()) + RUNS
    until(lambda: sum(faulted.executions().values()) == again, "each begins anew", LONG)
    faulted.until_rows("running")
    faulted.agrees_with_the_queue()
    assert before.keys() == faulted.executions().keys(), "no job is submitted again"


def test_final_states_agree_everywhere(faulted: FaultedEnsemble) -> None:
    pool, directory = faulted.pool, faulted.directory
    faulted.dag.open_all()
    faulted.screen.wait_for_match("✓ done", seconds=LONG)
    truth.until_gone(pool, directory)
    expected = truth.totals(directory)
    assert (expected.nodes, expected.done, expected.exit_code) == (RUNS * EPOCHS, RUNS * EPOCHS, 0)
    assert differing(pool, directory) == []
    until(lambda: faulted.watched.last()["dags"][0]["state"] == "done", "the session has read it")
    live, later = faulted.watched.last(), truth.status_of(pool, directory)
    for status in (live, later):
        status["runs"] = without_figures(status)
    assert live == {name: later[name] for name in live}, "who watched, and who comes"
    kinds = {entry["kind"] for entry in later["health"]}
    assert "log-damage" not in kinds, "DAGMan repeats in its own log what it reads after a restart"
    assert faulted.watched.pictures > RUNS
    assert faulted.watched.wrong == []
    # A finished ensemble has no column for the current epoch.
    done = re.findall(r"^[▌ ][ ★](run\d) .*?(\d/\d)  ✓ completed", faulted.screen.text, re.M)
    assert sorted(done) == [(f"run{run}", f"{EPOCHS}/{EPOCHS}") for run in range(RUNS)]
    faulted.screen.press("Q")
    assert faulted.screen.end() == 0


def agree(one: Terminal, other: Terminal) -> None:
    """Wait until both screens show the same runs."""

    def same() -> bool:
        one.pump(0.1)
        other.pump(0.1)
        return bool(rows(one)) and rows(one) == rows(other)

    until(same, lambda: f"the same:\n{one.text}\n{other.text}", LONG)


def lost(log: Path) -> list[str]:
    """The events 022: disconnected jobs."""
    return re.findall(r"^022 .*", log.read_text(), re.M)


def warned(screen: Terminal, *sentences: str) -> None:
    """Check that the header counts warnings, and that Inputs shows these sentences."""
    screen.wait_for_match(r"\d warnings? \[8\]", seconds=LONG)
    screen.press("8")
    for words in sentences:
        tight = words.replace(" ", "")
        screen.until_text(lambda text, tight=tight: tight in re.sub(r"\s+", "", text), words, LONG)
    screen.press("escape")
    screen.wait_for_match("PROGRESS")


def written_by_metlmon(pool: Pool, directory: Path) -> list[Path]:
    """The files in metlmon's cache, and the reports in ``directory``."""
    cache = pool.script.HOMES / str(pool.users[0]) / ".cache" / "metlmon"
    found = [path for path in cache.rglob("*") if path.is_file()]
    made = [path for path in directory.rglob("*") if path.is_file()]
    assert len(made) > 1
    return [*found, *made]


def holds(path: Path) -> bool:
    return KEY.encode() in path.read_bytes()
