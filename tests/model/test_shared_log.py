"""One job event log of the DAGs of two directories with equal node names."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from metlmon.dagman.dagman_out import OutState, read_dagman_out
from metlmon.model.model_state import LogRole
from metlmon.model.states import State
from metlmon.stats.totals import break_down
from tests.conftest import Shared
from tests.support.event_logs import EnsembleReading, Log, Out, moment, read_ensemble
from tests.support.recordings import writable_copy
from tests.support.records import read_dagdir

NODE = "run0-train_epoch0"
CHAIN = f"JOB {NODE} t.sub\nJOB run0-train_epoch1 t.sub\nPARENT {NODE} CHILD run0-train_epoch1\n"
OURS, THEIRS = 70, 77


def shared(batch: str = "") -> Log:
    log = Log()
    log.batch_name = batch
    log.submit(OURS, NODE, at="10:00:00", older=not batch)
    return log.submit(THEIRS, NODE, at="10:05:00", older=not batch)


def dagman_log(cluster: int, begin: str, end: str = "") -> Log:
    log = Log("run.dag.dagman.log", LogRole.DAGMAN, "run.dag")
    log.submit(cluster, at=begin).execute(cluster, gpus=None, at=begin)
    return log.terminate(cluster, 1, at=end) if end else log


def quiet(*clusters: tuple[str, int, str]) -> Log:
    """Our DAGMan's nodes.log: its jobs run for hours without further events."""
    log = Log("run.dag.nodes.log", LogRole.NODES, "run.dag")
    for node, cluster, at in clusters:
        log.submit(cluster, node, at=at, older=True)
    return log


def nodes_log() -> Log:
    return quiet((NODE, OURS, "10:00:00")).execute(OURS, at="10:30:00")


def clusters(report_of: EnsembleReading) -> list[int]:
    return [job.cluster for job in report_of.builder().job_rows()]


def out_of(*submitted: tuple[str, int, str]) -> Out:
    """A ``.dagman.out`` that begins before our job and has these submissions."""
    out = Out().start("09:59:00")
    for node, cluster, at in submitted:
        when = moment(at)
        text = f"Event: ULOG_SUBMIT for HTCondor Node {node} ({cluster}.0.0)"
        out.say(f"{text} {{{when:%m/%d/%y %H:%M:%S}}}", at)
    return out


def append_submissions(report_of: EnsembleReading, *submitted: tuple[str, int, str]) -> None:
    lines = b"".join(out_of(*submitted).lines[2:])
    report_of.ensemble.apply_dagman_messages("run.dag", read_dagman_out(lines, OutState())[0])


MINE = (NODE, OURS, "10:00:01")
LATER = ("run0-train_epoch1", 78, "10:07:00")


# --- the snapshots ------------------------------------------------------------------------


def jobs_in(nodes_log: Path) -> set[int]:
    return {int(line[5:8]) for line in nodes_log.read_text().splitlines() if line[:5] == "000 ("}


@pytest.fixture(name="dagdirs")
def _dagdirs(shared: Shared, tmp_path: Path) -> tuple[Path, Path]:
    for name in ("f1", "f2"):
        found = shared(f"examples/pool-failures/shared-absolute-log/{name}")
        writable_copy(found, tmp_path / name)
    shutil.copyfile(tmp_path / "f1" / "all.log", tmp_path / "f2" / "all.log")
    return tmp_path / "f1", tmp_path / "f2"


def test_each_directory_shows_its_own_jobs(dagdirs: tuple[Path, Path]) -> None:
    for dagdir, done in zip(dagdirs, (4, 1), strict=True):
        ours = jobs_in(dagdir / "one.dag.nodes.log")
        builder = read_dagdir(dagdir)
        status = builder.status()
        assert [dag.nodes_done for dag in status.dags] == [done]
        rows = builder.job_rows()
        assert {row.cluster for row in rows if row.node} == ours
        # Submitted in the last two seconds of the snapshot, not yet in DAGMan's files.
        assert {row.cluster for row in rows if not row.node} <= {251, 252}
        assert all(row.candidates == ("one.dag",) for row in rows if not row.node)
        assert "shared-log" in {warning.kind for warning in status.warnings}
        result = " ".join(warning.text for warning in status.warnings)
        assert "condor_rm" not in result
    second = read_dagdir(dagdirs[1]).status().runs
    assert [(run.run, run.state, run.epochs_done) for run in second] == [
        ("run0", State.HELD, 0),
        ("run1", State.IDLE, 1),
    ]


def test_dagmans_own_logs_suffice(dagdirs: tuple[Path, Path]) -> None:
    (dagdirs[1] / "one.dag.dagman.out").unlink()
    builder = read_dagdir(dagdirs[1])
    assert [dag.nodes_done for dag in builder.status().dags] == [1]
    nodes = {row.cluster for row in builder.job_rows() if row.node}
    assert nodes == jobs_in(dagdirs[1] / "one.dag.nodes.log")


def test_shared_log_without_dagmans_files(dagdirs: tuple[Path, Path]) -> None:
    for file in dagdirs[0].glob("one.dag.*"):
        file.unlink()
    rows = read_dagdir(dagdirs[0]).job_rows()
    assert len(rows) == 9
    assert {row.dag for row in rows} == {"one.dag"}


# --- evidence, each alone -----------------------------------------------------------------


def one_after_another() -> Log:
    """Our job ends before theirs is submitted, as before a retry."""
    log = Log().submit(OURS, NODE, at="10:00:00", older=True)
    log.terminate(OURS, 1, at="10:04:00")
    return log.submit(THEIRS, NODE, at="10:05:00", older=True)


def test_dagman_out_without_the_submission_refutes_it() -> None:
    result = read_ensemble(CHAIN, one_after_another(), out=out_of(MINE))
    assert clusters(result) == [OURS, THEIRS], "the time after it is not known yet"
    append_submissions(result, LATER)
    for each in (result, read_ensemble(CHAIN, one_after_another(), out=out_of(MINE, LATER))):
        assert clusters(each) == [OURS]
        assert each.node_state(NODE).job is each.ensemble.jobs[OURS, 0, 0]
        assert [notice.kind for notice in each.builder(live=True).notices()] == ["shared-log"]


def test_refuted_job_adds_no_hours() -> None:
    log = shared().execute(THEIRS, gpus=2, at="10:10:00").terminate(THEIRS, at="11:10:00")
    assert read_ensemble(CHAIN, log).builder().status().hours.total == 2
    result = read_ensemble(CHAIN, log, nodes_log().release(OURS, at="12:00:00"))
    assert result.builder().status().hours.total == 1.5, "our own"
    ledger = result.builder().ledger()
    assert [site.executions for site in break_down(ledger).sites] == [1]
    assert {entry.job for entry in ledger.executions} == {(OURS, 0)}
    assert [job.job for job in ledger.jobs] == [(OURS, 0)]


def test_nodes_log_without_the_job_refutes_it() -> None:
    assert clusters(read_ensemble(CHAIN, shared(), nodes_log())) == [OURS]
    assert clusters(read_ensemble(CHAIN, nodes_log(), shared())) == [OURS], (
        "whichever is read first"
    )


def test_jobstate_log_without_the_job_refutes_it() -> None:
    # 10:00:00 was 1777888800 there.
    jobstate = (
        b"1777888740 INTERNAL *** DAGMAN_STARTED 900.0 ***\n"
        b"1777888800 run0-train_epoch0 SUBMIT 70.0 - - 1\n"
        b"1777890000 run0-train_epoch0 EXECUTE 70.0 - - 1\n"
    )
    assert clusters(read_ensemble(CHAIN, shared(), jobstate=jobstate)) == [OURS]


def test_unready_node_in_the_status_file_refutes_it() -> None:
    status = (
        b'[\n  Type = "DagStatus";\n  DagFiles = { "run.dag" };\n'
        b'  Timestamp = 1777892400; /* "Mon May  4 11:00:00 2026" */\n  DagStatus = 3;\n]\n'
        b'[\n  Type = "NodeStatus";\n  Node = "run0-train_epoch1";\n  NodeStatus = 0;\n]\n'
    )
    log = Log().submit(THEIRS, "run0-train_epoch1", at="10:05:00", older=True)
    out = Out().start("09:59:00")
    assert clusters(read_ensemble(CHAIN, log, out=out, status=status)) == []
    assert clusters(read_ensemble(CHAIN, log, status=status)) == [THEIRS], (
        "of another life, perhaps"
    )


@pytest.mark.parametrize("older", [901, 899])
def test_job_that_names_another_dagman(older: int) -> None:
    reason = f"The system macro says: DAGManJobId =?= {older} is TRUE"
    for log in (
        shared().remove(THEIRS, reason, at="10:20:00"),
        shared().raw(28, THEIRS, "Job ad information event triggered.", f"DAGManJobId = {older}\n"),
    ):
        result = read_ensemble(CHAIN, log, dagman_log(900, "09:00:00", end="12:00:00"))
        assert clusters(result) == [OURS]
        assert not result.ensemble.attributions[OURS, 0, 0].proven


def test_job_whose_batch_name_names_another_dagman() -> None:
    log = shared("run.dag+899")
    result = read_ensemble(CHAIN, log, dagman_log(900, "09:00:00", end="12:00:00"))
    assert clusters(result) == []
    # A name that the user chose, or that a later DAGMan of ours may have.
    for name in ("5+5b", "run.dag+901"):
        result = read_ensemble(CHAIN, shared(name), dagman_log(900, "09:00:00"))
        assert clusters(result) == [OURS, THEIRS]


def test_job_submitted_between_two_lives() -> None:
    lives = dagman_log(900, "09:00:00", end="10:02:00")
    # The log of DAGMan's own job may be older than the other.
    assert clusters(read_ensemble(CHAIN, shared(), lives)) == [OURS, THEIRS]
    lives.submit(901, at="11:00:00")
    assert clusters(read_ensemble(CHAIN, shared(), lives)) == [OURS]


# --- neither proven nor refuted -----------------------------------------------------------


def test_unproven_job_in_a_shared_log_is_ambiguous() -> None:
    log = one_after_another().submit(80, NODE, at="10:30:00", older=True)
    result = read_ensemble(CHAIN, log, out=out_of(MINE, LATER))
    assert clusters(result) == [OURS, 80]
    job = result.job(80)
    assert (job.dag, job.candidates) == (None, ("run.dag",))
    notices = {notice.kind: notice.text for notice in result.builder().notices()}
    assert notices["ambiguous-dag"].startswith("1 job (80.0) may belong to run.dag, or to the DAG")
    # DAGMan's file goes on, with or without it.
    append_submissions(result, (NODE, 80, "10:30:01"))
    assert result.job(80).dag == "run.dag"
    result = read_ensemble(CHAIN, log, out=out_of(MINE, LATER))
    append_submissions(result, (NODE, 81, "10:40:00"))
    assert clusters(result) == [OURS]


def test_log_is_not_shared_once_its_jobs_are_proven_ours() -> None:
    log = one_after_another().terminate(THEIRS, 1, at="10:29:00")
    log.submit(80, NODE, at="10:30:00", older=True)
    result = read_ensemble(CHAIN, log, out=out_of(MINE, LATER))
    append_submissions(result, (NODE, THEIRS, "10:08:00"))
    assert [result.job(cluster).dag for cluster in (OURS, THEIRS, 80)] == ["run.dag"] * 3


def test_advice_on_doubled_jobs_names_proven_ones_only() -> None:
    (notice,) = read_ensemble(CHAIN, shared()).builder(live=True).notices()
    assert notice.kind == "doubled-node"
    assert "condor_rm" not in notice.text
    assert str(THEIRS) not in notice.text
    both = nodes_log().submit(THEIRS, NODE, at="10:31:00", older=True)
    (notice,) = read_ensemble(CHAIN, both).builder(live=True).notices()
    assert f"{OURS}, {THEIRS}: DAGMan heeds the newest alone" in notice.text
    assert "condor_rm them" in notice.text


def test_post_script_result_of_another_directory_is_ignored() -> None:
    log = shared().terminate(THEIRS, at="10:20:00").post(THEIRS, NODE, 1, at="10:20:01")
    dag = CHAIN + f"SCRIPT POST {NODE} check.sh\n"
    result = read_ensemble(dag, log, nodes_log())
    assert result.node(NODE) is State.RUNNING


def test_job_before_our_first_dagman_is_not_ours() -> None:
    log = shared()
    log.file = "../other/metl.log"
    out = out_of((NODE, THEIRS, "10:05:00"))
    out.lines = [line.replace(b"09:59:00", b"10:02:00") for line in out.lines]
    result = read_ensemble(CHAIN, log, out=out)
    assert clusters(result) == [THEIRS]
    here = shared()
    assert clusters(read_ensemble(CHAIN, here, out=out)) == [OURS, THEIRS], (
        "perhaps of an older life"
    )


# --- before DAGMan's files have later times ------------------------------------------------


@pytest.mark.parametrize("ours_first", [True, False])
def test_dagman_has_one_job_of_a_node_at_a_time(ours_first: bool) -> None:
    at = "10:00:00"
    log = Log().submit(OURS, NODE, at=at, older=True).submit(THEIRS, NODE, at=at, older=True)
    log.submit(79, "run0-train_epoch1", at="10:09:00", older=True)
    logs = [quiet((NODE, OURS, at)), log] if ours_first else [log, quiet((NODE, OURS, at))]
    result = read_ensemble(CHAIN, *logs)
    assert clusters(result) == [OURS], "theirs, and a child of a node that still runs, are not ours"


def test_unproven_retry_is_ours() -> None:
    at = "10:00:00"
    log = Log().submit(OURS, NODE, at=at, older=True).execute(OURS, at="10:01:00")
    log.terminate(OURS, 1, at="10:30:00").submit(80, NODE, at="10:31:00", older=True)
    assert clusters(read_ensemble(CHAIN, quiet((NODE, OURS, at)), log)) == [OURS, 80]


def pieces_that_show_an_end() -> list[Log]:
    """Only nodes.log has our job's end before its retry (80) was submitted."""
    jobs = Log().submit(OURS, NODE, at="10:00:00", older=True)
    end = Log("run.dag.nodes.log", LogRole.NODES, "run.dag").terminate(OURS, 1, at="10:30:00")
    retry = jobs.submit(80, NODE, at="10:31:00", older=True)
    return [quiet((NODE, OURS, "10:00:00")), retry, end]


def pieces_that_show_an_overlap() -> list[Log]:
    """Another directory's job (80) is still in the queue after ours was submitted."""
    other = Log("other.log").submit(80, NODE, at="10:00:00", older=True)
    rest = Log("other.log").submit(90, at="10:20:00").terminate(90, at="10:21:00")
    ours = Log().submit(OURS, NODE, at="10:05:00", older=True)
    return [other, rest, ours, quiet((NODE, OURS, "10:05:00"))]


def pieces_that_show_a_second_shared_log() -> list[Log]:
    """Another directory's job is in two logs, so both are shared, and 80 may be its job."""
    first = Log().submit(THEIRS, NODE, at="10:05:00", older=True)
    second = Log("other.log").submit(THEIRS, NODE, at="10:05:00", older=True)
    unproven = Log("other.log").submit(80, NODE, at="10:50:00", older=True)
    ours = quiet((NODE, OURS, "10:00:00")).terminate(OURS, 1, at="10:30:00")
    return [first, second, unproven, ours]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (pieces_that_show_an_end, ("run.dag", ())),
        (pieces_that_show_an_overlap, (None, ())),
        (pieces_that_show_a_second_shared_log, (None, ("run.dag",))),
    ],
)
def test_dag_of_a_job_is_independent_of_reading_order(
    pieces: Callable[[], list[Log]], expected: tuple[str | None, tuple[str, ...]]
) -> None:
    for logs in itertools.permutations(pieces()):
        attribution = read_ensemble(CHAIN, *logs).ensemble.attributions[80, 0, 0]
        order = [(log.file, len(log.events)) for log in logs]
        assert (attribution.dag, attribution.candidates) == expected, order
