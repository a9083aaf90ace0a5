"""Figures that an independent reading of the raw logs contradicted: each must agree with the log,
and its text with the count."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from metlmon.cli.status_text import hours_line
from metlmon.health.build import make_health
from metlmon.model.model_state import LogRole
from metlmon.model.states import State
from metlmon.report.build import build_report
from metlmon.report.document import Report, ReportTable, Row, Totals, percent
from metlmon.report.usage import ReportUsage
from metlmon.snapshot.records import HOUR, Transfer
from metlmon.snapshot.row_text import state_reason
from metlmon.stats.usage import usage_in_window
from metlmon.stats.windows import ALL, TimeWindow
from metlmon.tables.runs import columns
from metlmon.text.spans import text, to_ascii
from tests.support.event_logs import Log, Out, read_ensemble
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir, stats_input
from tests.support.run_histories import recorded

NODE, NEXT = "run0-train_epoch0", "run0-train_epoch1"
DAG = f"JOB {NODE} t.sub\nJOB {NEXT} t.sub\nPARENT {NODE} CHILD {NEXT}\n"


def note(of: Report, key: str) -> str:
    return of.definitions[key]


def facts(of: Report) -> Row:
    return next(block.row for block in of.blocks() if isinstance(block, Totals))


def table(of: Report, key: str) -> ReportTable:
    tables = (block for block in of.blocks() if isinstance(block, ReportTable))
    return next(block for block in tables if block.key == key)


def reported(log: Log, window: TimeWindow = ALL) -> Report:
    return build_report(stats_input(read_ensemble(DAG, log).builder()), None, window)


def test_transfer_cut_by_a_window_keeps_its_length() -> None:
    """The report and the table of sites agree: a stall of an hour is one of an hour, however little
    of it is in the window. Only its hours are divided."""
    ledger = read_dagdir(FIXTURES / "first-round").ledger()

    def stalled(span: Transfer) -> bool:
        return span.outcome == "unfinished" and (span.seconds or 0.0) > HOUR

    span = next(filter(stalled, ledger.transfers))
    assert span.start is not None
    assert span.end is not None
    since = span.start + timedelta(minutes=55)
    window = TimeWindow(since, span.end + timedelta(seconds=1))
    moved = ReportUsage(ledger, window).transfer_groups
    (lost,) = (each for each in moved if each.outcome == "unfinished")
    assert (lost.count, lost.median, lost.longest) == (1, span.seconds, span.seconds)
    assert lost.seconds == (span.end - since).total_seconds()
    assert usage_in_window(ledger, window).total.input.stalled_seconds == span.seconds


def two_epochs() -> Log:
    """The first is done at the second try; the second runs, and for longer than that try took."""
    log = Log().submit(77, NODE, at="09:00:00").execute(77, gpus=2, at="10:00:00")
    log.evict(77, at="11:00:00").execute(77, gpus=2, at="11:30:00").terminate(77, at="13:30:00")
    log.submit(78, NEXT, at="13:40:00").execute(78, gpus=2, at="14:00:00")
    return log.image(78, 100, at="19:00:00")


def test_cost_of_an_epoch_agrees_with_the_sites() -> None:
    """One name, one number: ended hours per completed epoch, without the running epoch and without
    a job of no DAG."""
    log = two_epochs().submit(90, at="09:00:00").execute(90, gpus=4, at="10:00:00")
    log.terminate(90, at="15:00:00")
    found = read_ensemble(DAG, log).builder().ledger()
    total = usage_in_window(found).total
    assert total.totals.hours_per_epoch == 3 * 2
    assert total.totals.hours.total == 3 * 2 + 5 * 2 + 5 * 4
    assert facts(reported(log))["gpu_hours_per_epoch"] == 6
    per_epoch = "(goodput and badput), for each epoch that an execution in the logs completed: 6.0"
    assert per_epoch in note(reported(log), "per_epoch")
    assert "of longest executions 2h00m (n = 1)" in note(reported(log), "epoch_time")


RESCUED = f"# Rescue DAG file, created after running\n\nDONE {NODE}\nDONE {NEXT}\n"
THIRD = "run0-train_epoch2"
CHAIN = f"{DAG}JOB {THIRD} t.sub\nPARENT {NEXT} CHILD {THIRD}\n"


@pytest.mark.parametrize("rescue", [RESCUED, ""], ids=["marked done", "inferred"])
def test_epochs_without_a_known_end_are_in_no_window(rescue: str) -> None:
    """The log begins with the third epoch: the two before it were done at an unknown time."""
    log = Log().submit(79, THIRD, at="09:00:00").execute(79, gpus=2, at="10:00:00")
    log.terminate(79, at="12:00:00")
    found = read_ensemble(CHAIN, log, rescue=rescue).builder()
    ledger = found.ledger()
    ended = datetime(2026, 5, 4, 12)
    assert [e.completed for e in ledger.epochs] == [None, None, ended]
    assert [e.inferred for e in ledger.epochs] == [not rescue, not rescue, False]
    made = build_report(stats_input(found), None)
    assert facts(made)["epochs"] == 3
    assert facts(made)["gpu_hours_per_epoch"] == 4
    by_day = table(made, "periods")
    rows = [(row["period"], row["epochs"]) for row in by_day.rows]
    assert rows == [("2026-05-04", 1), ("at no known time", 2)]
    for window in (
        TimeWindow(None, ended + timedelta(days=1)),
        TimeWindow(datetime(2026, 5, 1), None),
    ):
        inside = build_report(stats_input(found), None, window)
        assert facts(inside)["epochs"] == 1
        assert any("2 completed epochs ended is not known" in each for each in inside.limitations)
    # No longest execution without executions.
    shares = [
        (row["site"], row["epochs"], row["epochs_by_longest"]) for row in table(made, "sites").rows
    ]
    assert shares == [("aws", 1, 1), ("no successful execution", 2, 2)]


def test_gpu_hours_of_a_late_log_are_a_lower_bound() -> None:
    log = Log().submit(79, THIRD, at="09:00:00").execute(79, gpus=2, at="10:00:00")
    log.terminate(79, at="12:00:00")
    found = read_ensemble(CHAIN, log, rescue=RESCUED).builder()
    status = found.status()
    assert status.nodes_unlogged == found.ledger().nodes_unlogged == 2
    assert usage_in_window(found.ledger()).nodes_unlogged == 2
    assert hours_line(status.hours, nodes_unlogged=status.nodes_unlogged) == (
        "GPU-hours: at least 4.00 = 4.00 goodput + 0 badput + 0 running; "
        "2 nodes without GPU-hours in the logs"
    )
    made = build_report(stats_input(found), None)
    assert "with at least 4.000 GPU-hours" in made.headline
    assert any("Of 2 nodes that ran the logs lack hours" in each for each in made.limitations)
    (view,) = (found.run_view(run.key) for run in found.ledger().runs)
    assert view.row.nodes_unlogged == 2


def test_gpu_hours_note_submissions_missing_from_the_log() -> None:
    out = Out().start("08:59:00").submitted(NODE, 77, "09:00:05")
    assert read_ensemble(DAG, out=out).builder(live=True).status().nodes_unlogged == 1
    log = Log().submit(77, NODE, at="09:00:00")
    queued = read_ensemble(DAG, log, out=out).builder(live=True).status()
    assert queued.nodes_unlogged == 0, "what is in the queue has spent nothing"
    log.execute(77, at="10:00:00").terminate(77, at="12:00:00")
    assert read_ensemble(DAG, log, out=out).builder(live=True).status().nodes_unlogged == 0


def test_gpu_hours_exclude_jobs_known_from_dagmans_log_only(tmp_path: Path) -> None:
    """The log of the first epoch is lost: DAGMan's has its duration, but not its GPUs."""
    out = Out().start("08:59:00").submitted(NODE, 77, "09:00:00")
    for event, time in (("EXECUTE", "09:00:05"), ("JOB_TERMINATED", "10:00:00")):
        stamp = f"{{05/04/26 {time}}}"
        out.say(f"Event: ULOG_{event} for HTCondor Node {NODE} (77.0.0) {stamp}", time)
    out.say(f"Node {NODE} job proc (77.0.0) completed successfully.", "10:00:00")
    log = Log().submit(79, THIRD, at="11:00:00").execute(79, gpus=2, at="11:00:10")
    log.terminate(79, at="12:00:10")
    (tmp_path / "run.dag").write_text(CHAIN)
    (tmp_path / "t.sub").write_text("log = metl.log\n")
    (tmp_path / "run.dag.dagman.out").write_bytes(out.data)
    (tmp_path / "metl.log").write_bytes(log.data)
    found = read_dagdir(tmp_path)
    status = found.status()
    assert (status.hours.goodput, status.nodes_unlogged) == (2.0, 2)
    (view,) = (found.run_view(run.key) for run in found.ledger().runs)
    assert [epoch.lacks_hours for epoch in view.epochs] == [True, False, False]


@pytest.mark.parametrize("value", [0, 1])
def test_hours_of_an_epoch_are_known_where_its_post_script_is_not(value: int) -> None:
    """Whether a node is done whose job succeeded, the 016 would say that nodes.log lacks."""
    log = Log("run.dag.nodes.log", LogRole.NODES, "run.dag")
    log = Log() if value else log
    log.submit(77, NODE, at="09:00:00").execute(77, gpus=2, at="10:00:00")
    log.terminate(77, value, at="11:00:00")
    scripted = f"JOB {NODE} t.sub\nSCRIPT POST {NODE} check.sh\n"
    builder = read_ensemble(scripted, log).builder()
    (run,) = builder.status().runs
    assert (run.epochs_done, run.epochs_unknown) == (0, 1)
    drawn = {each.name: text(each.draw(run)) for each in columns([run])}
    hours = drawn["good"], drawn["lost"].split()[0]
    assert hours == (("0", "2.0") if value else ("2.0", "0"))
    row = builder.node_row(("run.dag", NODE))
    assert row is not None
    assert "POST script" in state_reason(row)


def test_gpu_hours_exclude_an_execution_with_a_cut_001(tmp_path: Path) -> None:
    """The list of its slot ends before its GPUs: whether it had any is unknown."""
    log = Log().submit(77, NODE, at="09:00:00")
    log.raw(1, 77, "Job executing on host: <10.1.2.3:9618>", "\tCpus = 4\n")
    log.events[-1] = log.events[-1].removesuffix(b"...\n")
    log.terminate(77, at="10:00:00").submit(78, NEXT).execute(78, gpus=2, at="11:00:00")
    (tmp_path / "run.dag").write_text(DAG)
    (tmp_path / "t.sub").write_text("log = metl.log\n")
    (tmp_path / "metl.log").write_bytes(log.terminate(78, at="12:00:00").data)
    status = read_dagdir(tmp_path).status()
    assert (status.hours.goodput, status.nodes_unlogged) == (2.0, 1)
    (run,) = status.runs
    drawn = {each.name: text(each.draw(run)) for each in columns([run])}
    assert (drawn["good"], drawn["hours"], drawn["lost"].split()[0]) == ("≥2.0", "≥2.0", "≥0")


def test_status_file_gives_no_end_of_an_epoch() -> None:
    """It has the state of each node when the file was written."""
    then = b'Timestamp = 1777906800; /* "Mon May  4 11:00:00 2026" */'
    status = b'[\n  Type = "DagStatus";\n  DagFiles = {\n    "run.dag"\n  };\n  %b\n]\n' % then
    for node in (NODE, NEXT):
        status += (
            b'[\n  Type = "NodeStatus";\n  Node = "%b";\n  NodeStatus = 5; /* "STATUS_DONE" */\n'
            b'  StatusDetails = "";\n  RetryCount = 0;\n]\n' % node.encode()
        )
    epochs = read_ensemble(DAG, status=status).builder().ledger().epochs
    assert [(e.state, e.completed) for e in epochs] == [(State.COMPLETED, None)] * 2


def test_waits_of_a_window_are_those_that_ended_in_it() -> None:
    log = Log().submit(77, NODE, at="09:00:00").execute(77, at="10:00:00")
    log.terminate(77, at="12:00:00")
    whole = note(reported(log), "wait")
    assert "Of 1 execution; mean" in whole
    day = datetime(2025, 1, 1)
    assert "ended in the window" in note(reported(log, TimeWindow(day)), "wait")


def test_epoch_passed_by_its_post_script_has_its_execution() -> None:
    """Its job returned 3, which the POST script accepted. No GPU has the epoch, but the logs have
    its execution."""
    log = Log().submit(77, NODE, at="09:00:00").execute(77, at="10:00:00")
    log.terminate(77, 3, at="12:00:00").post(77, NODE, 0, at="12:00:10")
    made = reported(log)
    last = table(made, "gpus").rows[-1]
    assert (last["gpu"], last["epochs"]) == ("no successful execution", 1)
    assert "saved by a POST script" in note(made, "epochs")


def test_bytes_of_a_job_without_a_start_are_at_no_site() -> None:
    """Its 001 is not in the log; its resumption after a suspension, and its end, are. The sites'
    table has its bytes, as the report has."""
    log = Log().submit(77, NODE, at="09:00:00").suspend(77, at="10:00:00")
    log.resume(77, at="10:30:00")
    log.terminate(77, at="12:00:01", total=(877, 13209))
    ledger = read_ensemble(DAG, log).builder().ledger()
    assert ledger.executions == ()
    of = usage_in_window(ledger)
    assert (of.total.input.sent, of.total.input.received) == (877, 13209)
    assert [(place.name, place.input.sent) for place in of.sites] == [(None, 877)]
    moved = ReportUsage(ledger).total.input
    assert (moved.sent, moved.received) == (877, 13209)


def test_periods_include_epochs_done_by_dagman_only() -> None:
    """The jobs' log breaks off in the first epoch, while DAGMan writes on: both belong to the day
    of DAGMan's entry."""
    log = Log().submit(77, NODE, at="09:00:00").execute(77, at="10:00:00")
    out = Out().start("08:59:00").submitted(NODE, 77, "09:00:05")
    out.say(f"Node {NODE} job proc (77.0.0) completed successfully.", "12:00:00")
    out.submitted(NEXT, 78, "12:00:05")
    out.say(f"Node {NEXT} job proc (78.0.0) completed successfully.", "05-05 12:00:00")
    books = ReportUsage(read_ensemble(DAG, log, out=out).builder().ledger())
    assert {f"{window.since:%d}": group.longest.epochs for window, group in books.periods} == {
        "04": 1,
        "05": 1,
    }
    assert sum(books.series.epochs) == books.epochs == 2
    assert books.undated == 0


def test_shares_round_to_0_and_100_only_if_exact() -> None:
    shown = [to_ascii(percent(value)) for value in (0.0, 0.0004, 0.0005, 0.9994, 0.9996, 1.0)]
    assert shown == ["0.0 %", "<0.1 %", "0.1 %", "99.9 %", ">99.9 %", "100.0 %"]


def test_usual_silence_of_a_log_is_not_a_gap() -> None:
    """The first round lacks only the ends of three executions. Its log has an event in twenty
    minutes: two hours without one are not unusual."""
    made = recorded(FIXTURES / "first-round")
    kinds = [each.kind for each in make_health(made).entries]
    assert kinds.count("log-damage") == 3
    assert "log-gap" not in kinds


def test_nodes_that_never_run_lack_no_hours_of_their_run() -> None:
    """As for the whole ensemble: DONE in the DAG file, as in one that continues another."""
    log = Log().submit(77, "run0-train_epoch1").execute(77, gpus=1).terminate(77)
    dag = "JOB run0-train_epoch0 a.sub DONE\nJOB run0-train_epoch1 a.sub\n"
    builder = read_ensemble(dag, log).builder()
    (run,) = builder.status().runs
    view = builder.run_view(run.key)
    assert view is not None
    assert (view.row.epochs_done, view.row.nodes_unlogged) == (2, 0)
    assert builder.status().nodes_unlogged == 0
