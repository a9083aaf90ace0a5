"""Every kind of trouble in files of HTCondor and DAGMan: its entry, and no other."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.health.advice import HOLD_ADVICE, hold_advice
from metlmon.health.build import make_health
from metlmon.health.types import CALM, KINDS, Health, Severity
from metlmon.model.queue import HELD, QueueJob, QueueSnapshot
from metlmon.model.reasons import code_name, code_text
from metlmon.placement.annexes import make_annexes
from metlmon.placement.types import AnnexState
from metlmon.pool.types import DAG_ACTS, RUN_ACTS, PoolAction
from tests.conftest import Shared
from tests.health.ensembles import EventLog, chains, health_of, input_of, kinds, only, write
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log, Out
from tests.support.records import read_dagdir, stats_input

NODE = "run0-train_epoch0"
TWO_RUNS = chains({"run0": 3, "run1": 3})


def of_log(path: Path, log: EventLog, dag: str = TWO_RUNS) -> Health:
    return health_of(write(path, dag, log))


POLICY = "expression 'ImageSize > 9' evaluated to TRUE"
NOT_EXECUTED = "Error from slot1@c1: Failed to execute '/d/run.py' with arguments x:"


# --- holds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "subcode", "reason", "text"),
    [
        (1, 0, "new data (by user anna)", "held by anna: new data"),
        (
            3,
            0,
            f"The job attribute PeriodicHold {POLICY}",
            "held by the job's policy: ImageSize > 9",
        ),
        (
            13,
            2,
            "Error from slot1@c1: STARTER at 10.0.0.2 failed to send file(s) to <10.0.0.1:9618>: "
            "error reading from output: (errno 2); SHADOW failed to receive file(s)",
            "output file missing",
        ),
        (
            6,
            8,
            f"{NOT_EXECUTED} (errno=8: 'Exec format error')",
            "executable not a program or script",
        ),
        (12, 2, "Transfer input files failure at ap40. Details: (errno 2)", "input file missing"),
        (12, 21, "sending d/wandb/latest-run", "link latest-run of W&B not transferred"),
        (12, 122, "failed to write", "disk quota at the access point"),
        (13, 99, "failed to send file(s)", "input transfer failed"),
        (
            26,
            0,
            f"The system macro SYSTEM_PERIODIC_HOLD {POLICY}",
            "held by the access point's policy: ImageSize > 9",
        ),
        (34, 0, "Job has gone over cgroup memory limit", "memory limit reached"),
        (46, 0, "… allowed job duration of 1+12:00:00", "allowed job duration of 1d12h reached"),
        (9999, 0, "something new", "held"),
    ],
)
def test_held_job_is_found(tmp_path: Path, code: int, subcode: int, reason: str, text: str) -> None:
    log = EventLog()
    cluster = log.submit(NODE)
    log.execute(cluster)
    log.hold(cluster, reason, code, subcode)
    entry = only(of_log(tmp_path, log), "quota" if subcode == 122 else "held")
    assert (entry.text, entry.code, entry.reason) == (f"{text} (hold {code})", code, reason)
    # The other code in older versions, where a failure to send is one of output.
    meant = {"output file missing": 12, "input file missing": 13}.get(text.split(" (")[0], code)
    assert code_text(code, subcode, reason) == f"{code}/{subcode} {code_name(meant)}".rstrip()
    act = "raise-memory" if code == 34 else "release"
    assert (entry.severity, entry.act) == (Severity.BLOCKED, act)
    # The job itself, and the two later epochs.
    assert (entry.epochs_blocked, entry.gpu_hours) == (3, 2.0)


_PLUGIN = (
    "Transfer {0} files failure at execution point slot1_3@c1 using protocol {1}. Details: {2} "
    "( URL file = {1}://host/a.sif )|"
)

_PELICAN = "Pelican Client Error: Attempt #2: from cache.example.org:8443: {} (Version: 7.27.0)"


@pytest.mark.parametrize(
    ("protocol", "direction", "details", "title"),
    [
        ("http", "input", "The requested URL returned error: 404", "input file missing"),
        ("https", "input", "HTTP response code said error (HTTP 410)", "input file missing"),
        ("https", "input", "The requested URL returned error: 403 Forbidden", "input not readable"),
        ("https", "input", "The requested URL returned error: 503", "input transfer failed"),
        ("https", "input", "Operation timed out after 30404 ms with 404 bytes", "input transfer f"),
        ("https", "output", "The requested URL returned error: 401", "output not writable"),
        ("http", "output", "The requested URL returned error: 404", "output destination missing"),
        ("file", "input", "Couldn't open file /staging/a.sif", "input file missing"),
        ("ftp", "input", "FTP: The file does not exist", "input file missing"),
        ("s3", "input", "<Code>NoSuchKey</Code>", "input file missing"),
        ("s3", "input", "<Code>SignatureDoesNotMatch</Code>", "input not readable"),
        ("box", "input", "OSError: [Errno 2] File not found in Box: 'a'", "input file missing"),
        ("gdrive", "input", "OSError: [Errno 2] Object not found: 'a'", "input file missing"),
        ("box", "input", "OSError: [Errno 2] Token file not found: 'a'", "input not readable"),
        (
            "gdrive",
            "output",
            "HTTPError: 403 Client Error: Forbidden for url: https://www.googleapis.com/404",
            "output not writable",
        ),
        (
            "stash",
            "input",
            "failed to get namespace information for remote URL osdf:///a/b: 404: No namespace "
            "found for path. Either it doesn't exist, or the Director is experiencing problems",
            "input file missing",
        ),
        ("osdf", "input", "no origins have the object osdf:///a/b", "input file missing"),
        ("pelican", "input", _PELICAN.format("Transfer.TimedOut Error"), "input transfer failed"),
        ("osdf", "output", _PELICAN.format("Contact.Cache Error"), "output transfer failed"),
        ("osdf", "input", _PELICAN.format("Resolution.Timeout Error"), "input transfer failed"),
        ("osdf", "input", _PELICAN.format("Resolution Error"), "input URL refused"),
        ("osdf", "output", _PELICAN.format("Authorization Error"), "output not writable"),
        ("osdf", "input", _PELICAN.format("Authorization.TokenNotFound Error"), "input not read"),
        ("osdf", "output", _PELICAN.format("Specification.FileNotCreated Error"), "output URL ref"),
        ("osdf", "output", _PELICAN.format("Parameter.FileNotFound Error"), "output file missing"),
        (
            "osdf",
            "output",
            "Pelican Client Error: remote object already exists, upload aborted",
            "output exists already",
        ),
        (
            "osdf",
            "input",
            _PELICAN.format("Specification.FileNotFound Error: Error code 5011")
            + "; Attempt #1: Transfer.TimedOut Error",
            "input file missing",
        ),
    ],
)
def test_failed_transfer_is_named_by_its_reason(
    tmp_path: Path, protocol: str, direction: str, details: str, title: str
) -> None:
    log = EventLog()
    cluster = log.submit(NODE)
    code = 13 if direction == "input" else 12
    log.hold(cluster, _PLUGIN.format(direction, protocol, details), code, 256)
    entry = only(of_log(tmp_path, log), "held")
    assert entry.text.startswith(title)
    assert ("Usually passes" in entry.advice) == ("transfer f" in title)
    # The user needs the URL.
    assert f"{protocol}://host/a.sif" in entry.text


_404 = "; |Error: status code 404 ( URL file = s3://b/k )|"


@pytest.mark.parametrize(
    ("code", "reason", "title"),
    [
        (12, f"STARTER at 10.0.0.2 failed to receive file(s) from <10.0.0.1:5>{_404}", "in"),
        (13, f"SHADOW at 10.0.0.1 failed to receive file(s) from <10.0.0.2:5>{_404}", "out"),
        (
            12,
            "Transfer output files failure at access point ap while receiving files from execution "
            "point slot1@c1. Details: writing to file /eos/a: (errno 2) No such file or directory",
            "output directory missing (hold 12)",
        ),
    ],
)
def test_failed_transfer_has_its_direction(
    tmp_path: Path, code: int, reason: str, title: str
) -> None:
    log = EventLog()
    log.hold(log.submit(NODE), reason, code, 2 if "errno 2" in reason else 0)
    assert only(of_log(tmp_path, log), "held").text.startswith(title)


def test_missing_files_and_transient_faults_are_separate(tmp_path: Path) -> None:
    log = EventLog()
    for run, url, status in (("run0", "a", 404), ("run1", "b", 404), ("run2", "c", 503)):
        reason = f"Transfer input files failure: HTTP status {status} ( URL file = s3://x/{url} )|"
        log.hold(log.submit(f"{run}-train_epoch0"), reason, 13, 256)
    health = of_log(tmp_path, log, chains({"run0": 2, "run1": 2, "run2": 2}))
    assert sorted(entry.text for entry in health.open_entries) == [
        "input file missing (hold 13): s3://x/a and 1 other URL",
        "input transfer failed (hold 13): s3://x/c",
    ]


def test_missing_object_of_the_osdf(shared: Shared) -> None:
    path = shared("cases/file-not-found-in-osdf-is-no-passing-fault")
    (entry,) = make_health(stats_input(read_dagdir(path))).open_entries
    assert entry.text.startswith("input file missing")
    assert "osdf:///chtc/staging/alice/images/pytorch.sif" in entry.text
    assert "Correct the URL" in entry.advice


def test_released_job_is_closed(tmp_path: Path) -> None:
    log = EventLog()
    cluster = log.submit(NODE)
    log.hold(cluster, "via condor_hold (by user anna)", 1)
    log.release(cluster)
    log.execute(cluster)
    health = of_log(tmp_path, log)
    assert not health.open_entries
    assert only(health, "held", is_open=False).until == log.time - timedelta(hours=0.1)
    assert health.headline.line == CALM


# --- failures ---------------------------------------------------------------------------------


def failed(log: EventLog, node: str, value: int = 1) -> None:
    cluster = log.submit(node)
    log.execute(cluster)
    log.end(cluster, value)


def test_failed_evaluation_stops_nothing(tmp_path: Path) -> None:
    check = f"JOB run0-eval_epoch0 eval\nPARENT {NODE} CHILD run0-eval_epoch0"
    log = EventLog()
    log.train(NODE)
    failed(log, "run0-eval_epoch0")
    log.execute(log.submit("run0-train_epoch1"))
    health = of_log(tmp_path, log, chains({"run0": 2}, extra=check))
    entry = only(health, "node-failed")
    assert (entry.severity, entry.epochs_blocked, health.runs_stopped) == (Severity.COSTLY, 0, 0)


def test_failed_node_before_all_runs(tmp_path: Path) -> None:
    parents = "JOB prepare p.sub\nPARENT prepare CHILD run0-train_epoch0 run1-train_epoch0"
    log = EventLog()
    failed(log, "prepare", 2)
    health = of_log(tmp_path, log, chains({"run0": 3, "run1": 3}, extra=parents))
    assert kinds(health) == ["node-failed"]
    entry = only(health, "node-failed")
    assert (entry.text, entry.epochs_blocked) == ("prepare: exited with return value 2", 6)
    assert (entry.severity, health.runs_stopped) == (Severity.STOPPED, 2)


def test_halted_dag(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path, TWO_RUNS)
    dagdir.write("run.dag.dagman.out", Out().start("09:00:00").submitted(NODE, 77).data)
    dagdir.write("metl.log", Log().submit(77, NODE).execute(77).data)
    dagdir.write("run.dag.halt", b"")
    entry = only(health_of(dagdir), "dag-halted")
    assert (entry.act, entry.severity) == ("resume", Severity.BLOCKED)


@pytest.mark.parametrize(
    ("dag", "value", "status", "kind", "blocked"),
    [
        (TWO_RUNS, 0, 2, "dag-stopped", 5),
        (TWO_RUNS, 0, 1, "dag-failed", 5),
        (chains({"run0": 3}), 1, 1, "run-failed", 3),
    ],
    ids=["removed between two epochs", "failed for no node", "failed for a node"],
)
def test_end_of_a_dag_is_one_entry(
    tmp_path: Path, dag: str, value: int, status: int, kind: str, blocked: int
) -> None:
    log = Log().submit(77, NODE).execute(77).terminate(77, value)
    out = Out().start("09:00:00").submitted(NODE, 77)
    if status == 2:
        out.say("Received SIGUSR1", "23:00:00")
    dagdir = Dagdir(tmp_path, dag)
    dagdir.write("metl.log", log.data)
    dagdir.write("run.dag.dagman.out", out.exit(status, at="23:00:01").data)
    health = health_of(dagdir)
    assert kinds(health) == [kind]
    assert only(health, kind).epochs_blocked == health.epochs_left == blocked
    assert health.runs_stopped == health.runs_total


def test_failed_final_node_is_named_after_the_cause(tmp_path: Path) -> None:
    dag = "JOB a a.sub\nFINAL z a.sub\nSCRIPT POST z end.sh $DAG_STATUS $FAILED_COUNT\n"
    log = Log().submit(78, "z").terminate(78, 0).post(78, "z", 1)
    dagdir = Dagdir(tmp_path, dag)
    dagdir.write("a.log", Log().submit(77, "a").terminate(77, 1).data + log.data)
    dagdir.write("run.dag.dagman.out", Out().start("09:00:00").exit(1, at="23:00:01").data)
    first, last = health_of(dagdir).open_entries
    assert (first.severity, last.severity) == (Severity.STOPPED, Severity.COSTLY)
    assert last.steps[0] == "Run it by hand to see why: ./end.sh 2 1"


# --- sites --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "good", "bad_elsewhere"),
    [(4, 20, 0), (6, 3, 9), (34, 0, 4)],
    ids=["few", "as elsewhere", "no site finishes any"],
)
def test_chance_losses_are_not_a_black_hole(
    tmp_path: Path, lost: int, good: int, bad_elsewhere: int
) -> None:
    """Executions lost at RAILS; ``good`` epochs and ``bad_elsewhere`` evictions at Anvil."""
    log = EventLog()
    cluster = log.submit("run0-train_epoch0")
    for site, number in (("RAILS", lost), ("Anvil", bad_elsewhere)):
        for _ in range(number):
            log.execute(cluster, site)
            log.evict(cluster, 1005, "Unspecified job interruption")
    for epoch in range(good):
        log.train(f"run1-train_epoch{epoch}")
    health = of_log(tmp_path, log, chains({"run0": 3, "run1": good + 1}))
    assert "black-hole" not in kinds(health)


def test_host_that_loses_every_job(tmp_path: Path) -> None:
    log = EventLog()
    cluster = log.submit("run0-train_epoch0")
    for _ in range(9):
        log.execute(cluster, host="broken")
        log.evict(cluster, 1007, "Error from slot1@broken: cannot start")
    for epoch in range(9):
        log.train(f"run1-train_epoch{epoch}")
    entry = only(of_log(tmp_path, log, chains({"run0": 2, "run1": 10})), "black-hole")
    assert entry.text.startswith("broken.anvil.example.org: 9 starts, 0 epochs")
    assert (entry.site, entry.act) == ("Anvil", "exclude-host")
    assert entry.host == "broken.anvil.example.org"


@pytest.mark.parametrize(
    ("hours", "more", "is_open"), [(0.01, 0, True), (0.01, 1, False), (0.1, 0, False)]
)
def test_job_that_ends_at_once_again_and_again(
    tmp_path: Path, hours: float, more: int, *, is_open: bool
) -> None:
    """Unless it runs for longer now."""
    log = EventLog()
    cluster = log.submit(NODE)
    for _ in range(6):
        log.execute(cluster)
        log.add("007", cluster, "Shadow exception!\n\tError from slot1@c1: no program", hours)
    if more:
        log.execute(cluster)
        log.submit("run1-train_epoch0", more)
    entry = only(of_log(tmp_path, log), "evicted", is_open=is_open)
    assert entry.text.startswith("starts and ends at once, again and again: ") == is_open
    assert KINDS[entry.kind].condition == "stalled"


def test_hours_of_a_black_hole_include_other_entries(tmp_path: Path) -> None:
    log = EventLog()
    for epoch in range(9):
        log.train(f"run1-train_epoch{epoch}", "Delta")
    cluster = log.submit("run0-train_epoch0")
    for _ in range(7):
        log.execute(cluster, "Mars")
        log.evict(cluster, 1007, "starter error", 1.0)
    for _ in range(2):
        log.execute(cluster, "Mars")
        log.hold(cluster, "out of memory", 34, 102, 1.0)
        log.release(cluster)
    health = of_log(tmp_path, log, chains({"run0": 2, "run1": 10}))
    hole, held = only(health, "black-hole"), only(health, "held", is_open=False)
    assert (hole.gpu_hours, held.gpu_hours) == (9.0, 2.0)
    assert hole.text.endswith("; 2.0 GPU-h of these also in other entries")


@pytest.mark.parametrize(
    ("submit", "variables"),
    [
        ('MY.TargetAnnexName = "delta_annex"', ""),
        ('+targetannexname = "$(annex)"', 'annex="delta_annex"'),
        ("", '+TargetAnnexName="\\"delta_annex\\""'),
        ('requirements = (TARGET.AnnexName =?= "delta_annex") && HasGPU', ""),
    ],
)
def test_jobs_waiting_for_an_annex(tmp_path: Path, submit: str, variables: str) -> None:
    dag = chains({"run0": 1, "run1": 1})
    dag += f"\nSUBMIT-DESCRIPTION annex {{\n executable = x\n log = metl.log\n {submit}\n}}\n"
    dag += "JOB run2-train_epoch0 annex\n"
    dag += f"VARS run2-train_epoch0 {variables}\n" if variables else ""
    log = EventLog()
    log.submit("run2-train_epoch0")
    dagdir = write(tmp_path, dag, log)
    begun = log.time
    entry = only(health_of(dagdir, begun + timedelta(hours=30)), "unmatched")
    assert entry.text == "1 job idle for 1d: for annex delta_annex alone, which was never seen"
    assert "htcondor annex create delta_annex" in entry.advice
    assert not health_of(dagdir, begun + timedelta(hours=2)).entries


def test_annex_is_gone_or_serves_others(tmp_path: Path) -> None:
    dag = chains({"run0": 1, "run1": 1}).replace(
        "log = metl.log", 'log = metl.log\n+TargetAnnexName = "gz"'
    )
    assert "gz" in dag
    log = EventLog()
    first = log.submit("run0-train_epoch0")
    log.submit("run1-train_epoch0")
    log.execute(first)
    running = health_of(write(tmp_path / "a", dag, log), log.time + timedelta(hours=9))
    assert "unmatched" not in kinds(running)
    log.evict(first, 1013, "Startd was shutdown")
    gone = health_of(write(tmp_path / "b", dag, log), log.time + timedelta(hours=4))
    text = "2 jobs idle for 4h: for annex gz alone, which is gone"
    assert only(gone, "unmatched").text == text


def test_annex_was_never_seen(shared: Shared) -> None:
    path = shared("cases/unmatched-annex")
    as_of = datetime(2026, 6, 20, 21, 20)
    stats = stats_input(read_dagdir(path, as_of=as_of, live=True))
    entry = only(make_health(stats), "unmatched")
    assert entry.text == "1 job idle for 2d: for annex delta_annex alone, which was never seen"
    (row,) = make_annexes(stats).annexes
    assert (row.name, row.state, row.jobs_idle) == ("delta_annex", AnnexState.NEVER_SEEN, 1)
    assert "never seen" in row.warnings[0]


@pytest.mark.parametrize(
    ("lease", "minutes", "text"),
    [
        (None, 19, None),
        (None, 21, "1 job disconnected for 21m, of a lease of 40m"),
        (None, 50, "1 job disconnected for 50m, the lease of 40m is over"),
        ("job_lease_duration = 7200", 50, None),
        ("+JobLeaseDuration = 7200", 70, "1 job disconnected for 1h, of a lease of 2h"),
        ("job_lease_duration = 60 * 60", 21, "1 job disconnected for 21m, of a lease of 40m"),
    ],
)
def test_disconnected_job_is_reported_after_half_its_lease(
    tmp_path: Path, lease: str | None, minutes: int, text: str | None
) -> None:
    log = EventLog()
    cluster = log.submit(NODE)
    log.execute(cluster)
    log.add("022", cluster, "Job disconnected, attempting to reconnect\n    Socket closed", 1.0)
    dag = TWO_RUNS.replace("log = metl.log", f"log = metl.log\n    {lease or ''}")
    dagdir = write(tmp_path, dag, log)
    health = health_of(dagdir, log.time + timedelta(minutes=minutes))
    assert [e.text for e in health.entries if e.kind == "disconnected"] == ([text] if text else [])
    log.add("023", cluster, "Job reconnected to slot1@c1", minutes / 60)
    dagdir.write("metl.log", log.bytes())
    assert "disconnected" not in kinds(health_of(dagdir, log.time + timedelta(hours=1)))


def test_job_held_in_the_queue_only(tmp_path: Path) -> None:
    """HTCondor logs no hold of a job that is submitted on hold."""
    log = EventLog()
    cluster = log.submit(NODE)
    dagdir = write(tmp_path, TWO_RUNS, log)
    by_log = input_of(dagdir, log.time + timedelta(hours=30))
    assert kinds(make_health(by_log)) == ["unmatched"]
    reason = "submitted on hold at user's request"
    held = QueueJob(cluster, 0, HELD, hold_code=15, hold_reason=reason)
    health = make_health(replace(by_log, queue=QueueSnapshot(jobs=(held,))))
    entry = only(health, "held")
    assert (entry.text, entry.act) == ("submitted on hold (hold 15)", "release")
    assert entry.jobs == ((cluster, 0),)
    # A running job is held before its machine has let it go: only then follows the 012.
    log.execute(cluster)
    dagdir.write("metl.log", log.bytes())
    running = replace(input_of(dagdir, log.time), queue=QueueSnapshot(jobs=(held,)))
    assert kinds(health) == kinds(make_health(running)) == ["held"]


# --- the tables -----------------------------------------------------------------------------------


def test_every_code_has_advice() -> None:
    assert hold_advice(None, None, f"{NOT_EXECUTED} (errno=2: '…')") == HOLD_ADVICE[6, 2]
    for code, _ in HOLD_ADVICE:
        assert code_name(code)
    for advice in HOLD_ADVICE.values():
        assert advice.title
        assert advice.steps
    documented = {*range(1, 28), *range(32, 49)} - {2}
    assert {code for code, subcode in HOLD_ADVICE if subcode is None} == documented


def test_offered_actions_exist() -> None:
    acts = {str(act) for act in (*PoolAction, *DAG_ACTS, *RUN_ACTS)}
    offered = {advice.act for advice in HOLD_ADVICE.values()} - {None}
    assert offered <= acts


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            "The job attribute PeriodicRemove expression 'NumJobStarts > 9' evaluated to TRUE",
            "removed by the job's policy",
        ),
        (
            "Job removed by SYSTEM_PERIODIC_REMOVE due to disk usage exceeded allowed max",
            "removed by the access point's policy: Job removed by SYSTEM_PERIODIC_REMOVE due to "
            "disk usage exceeded allowed max",
        ),
    ],
)
def test_policy_that_removes_jobs_not_held(tmp_path: Path, reason: str, text: str) -> None:
    log = EventLog()
    log.remove(log.submit("run0-train_epoch0"), reason)
    entry = only(health_of(write(tmp_path, chains({"run0": 2}), log)), "removed-by-policy")
    assert (entry.text, entry.heading, entry.epochs_blocked) == (text, None, 2)
    assert entry.reason == reason


@pytest.mark.parametrize("reason", ["via metlmon (by user anna)", "wrong data (by user anna)"])
def test_execution_that_a_removal_ends_is_no_eviction(tmp_path: Path, reason: str) -> None:
    """Before HTCondor 24.3 the 004 of a removed job has neither code nor reason."""
    log = Log().submit(7, "run0-train_epoch0", at="10:00:00").execute(7, at="10:00:00")
    log.evict(7, code=None, at="12:00:00").remove(7, reason, at="12:00:00")
    dagdir = Dagdir(tmp_path, TWO_RUNS)
    dagdir.write("metl.log", log.data)
    health = health_of(dagdir)
    assert [(entry.kind, entry.gpu_hours) for entry in health.entries] == [("removed-by-user", 2)]


def with_policy(cluster: int, policy: str) -> QueueSnapshot:
    return QueueSnapshot(jobs=(QueueJob(cluster, 0, HELD, removal_policy=policy),))


def test_policy_in_the_queue_gives_the_removal_time(tmp_path: Path) -> None:
    log = EventLog()
    cluster = log.submit("run0-train_epoch0")
    log.hold(cluster, "via condor_hold (by user anna)", 1)
    dagdir = write(tmp_path, chains({"run0": 2}), log)
    policy = "(JobStatus == 5) && (time() - EnteredCurrentStatus > 7200)"
    of_queue = replace(input_of(dagdir), queue=with_policy(cluster, policy))
    entry = only(make_health(of_queue), "held")
    assert entry.removal_at == log.time + timedelta(hours=2)
    # A policy that depends on more than the hold gives no time of removal.
    more = f"{policy} && NumHolds > 3"
    unsure = replace(of_queue, queue=with_policy(cluster, more))
    assert only(make_health(unsure), "held").removal_at is None
