"""Rules of health on single histories: each kind is found, and none in normal ones."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.health.build import make_health
from metlmon.health.types import CALM as ALL_WELL
from metlmon.health.types import HealthEntry, Severity
from metlmon.jobfiles.records import TrainingOutput
from metlmon.live.feed import JobFiles, StatsInput
from metlmon.model.model_state import Notice
from metlmon.model.reasons import ANNEX_EXPIRED, ANNEX_EXPIRED_INFERRED
from metlmon.model.states import Outcome, State
from metlmon.snapshot.records import Job, LogRow, NodeFault, Transfer
from metlmon.tables.health import health_lines as health_text
from metlmon.tables.health import mark
from metlmon.text.spans import text as text_of
from screens.overview import health_lines
from tests.conftest import Shared
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir, stats_input
from tests.support.run_histories import NOON, Past, basis, lost, recorded, with_executions

HOUR = 3600.0
GOING = Past((HOUR,) * 5, 600.0)
CALM = {f"run{n}": GOING for n in range(4)}


def ago(hours: float) -> datetime:
    return NOON - timedelta(hours=hours)


def entries(of: StatsInput) -> tuple[HealthEntry, ...]:
    return make_health(of).entries


def kinds(of: StatsInput) -> list[str]:
    return sorted({each.kind for each in entries(of)})


def only(of: StatsInput, kind: str) -> HealthEntry:
    every = [each for each in entries(of) if each.kind == kind]
    assert len(every) == 1, entries(of)
    return every[0]


# --- normal histories ---------------------------------------------------------------------------


def test_single_evictions_are_no_entry() -> None:
    made = basis(CALM)
    one_by_one = [lost(f"run{n}", ago(n + 1), job=(9000 + n, 0)) for n in range(4)]
    (entry,) = entries(with_executions(made, *one_by_one))
    assert (entry.kind, entry.open, len(entry.jobs)) == ("evicted", False, 4)


def test_numbers_are_named_if_all_of_an_entry_have_them() -> None:
    found = make_health(recorded(FIXTURES / "first-round")).closed_entries
    (lock,) = (each for each in found if "FileLock" in each.text)
    assert lock.text == "Error from <slot>: FileLock::obtain(1) failed - errno 5"


@pytest.mark.parametrize("name", ["rescue", "holds", "shared-log"])
def test_healthy_recordings_have_no_open_entry(name: str) -> None:
    """Evictions, released holds, a resubmitted DAG: all retried."""
    health = make_health(recorded(FIXTURES / name))
    assert not health.open_entries
    assert health.closed_entries
    assert health.headline.line.startswith(ALL_WELL)
    if name == "shared-log":
        named = {health.label_of(run) for entry in health.entries for run in entry.runs}
        assert named == {"run1 (a.dag)", "run1 (b.dag)"}


def test_calm_headline_has_high_badput_and_its_cause(shared: Shared) -> None:
    health = make_health(read := recorded(shared("examples/metl-aws")))
    line = health.headline.line
    removed = sum(e.gpu_hours for e in health.closed_entries if e.kind == "removed-by-user")
    had = "had 42 % badput: mostly removed by a user"
    assert line == f"{ALL_WELL} now · {had} ({removed:.0f} GPU-h)"
    (narrow,) = health_lines(health, read.status, 78, roomy=False)
    assert f"{ALL_WELL} · had 42 % badput: removed by a user" in text_of(narrow)
    assert make_health(basis(CALM)).headline.line == ALL_WELL
    for room in range(60, 100):
        (cut,) = health_lines(health, read.status, room, roomy=False)
        assert "…" not in text_of(cut)


def test_error_output_is_the_cause_of_a_failure() -> None:
    demo = FIXTURES / "demo"
    health = make_health(stats_input(read_dagdir(demo), demo))
    (entry,) = [each for each in health.open_entries if each.severity is Severity.STOPPED]
    assert entry.text == "epoch 5: CUDA out of memory (exit 3, 3 of 3 tries used)"
    assert entry.error_file == "df298ac7_5_501.err"
    assert (entry.evidence or "") in f"{entry.error_file}: {(demo / entry.error_file).read_text()}"
    assert "V100-32" in entry.advice
    assert "gpus_minimum_memory" in entry.advice
    retried = [each for each in health.closed_entries if "CUDA out of memory" in each.text]
    assert [len(each.runs) for each in retried] == [3]


def test_failure_without_an_error_file_says_how_to_get_one(tmp_path: Path) -> None:
    dag = "JOB a a.sub\n"
    log = Log().submit(7, "a", at="10:00:00").execute(7).terminate(7, 3, at="11:00:00")
    dagdir = Dagdir(tmp_path / "ens", dag)
    dagdir.write("a.log", log.data)
    for error, advised in (("", True), ("error = a.err\n", False)):
        dagdir.write("a.sub", f"executable = a.sh\nlog = a.log\n{error}queue\n")
        health = make_health(stats_input(read_dagdir(dagdir.path), dagdir.path))
        (entry,) = health.open_entries
        assert ("names no error file" in entry.advice) is advised
    dagdir.write("a.err", "Traceback (most recent call last):\nKeyError: 'ddg'\n")
    (entry,) = make_health(stats_input(read_dagdir(dagdir.path), dagdir.path)).open_entries
    assert (entry.text, entry.error_file) == ("a: KeyError: 'ddg' (exit 3)", "a.err")


def test_unknown_submit_description_is_not_said_to_lack_an_error_file(tmp_path: Path) -> None:
    log = Log().submit(7, "a", at="10:00:00").execute(7).terminate(7, 3, at="11:00:00")
    of_dag, of_no_dag = Dagdir(tmp_path / "dag", "JOB a a.sub\n"), Dagdir(tmp_path / "logs", "")
    of_dag.write("run.dag.nodes.log", log.data)
    of_no_dag.write("a.log", Log().submit(7).execute(7).terminate(7, 3).data)
    for path in (of_dag.path, of_no_dag.path):
        (entry,) = make_health(stats_input(read_dagdir(path), path)).open_entries
        assert "exited with return value 3" in entry.text
        assert "error file" not in entry.advice


def test_holds_that_differ_in_slots_and_amounts_are_one_entry(tmp_path: Path) -> None:
    log = Log()
    for job in range(3):
        reason = f"Error from slot1_{job}@n{job}: memory exceeded: requested 10MB, used 1{job}MB."
        log.submit(job, at="10:00:00").execute(job).hold(job, 21, reason, at="11:00:00")
    (tmp_path / "a.log").write_bytes(log.data)
    (entry,) = make_health(stats_input(read_dagdir(tmp_path), tmp_path)).open_entries
    assert len(entry.jobs) == 3
    common = "Error from <slot>: memory exceeded: requested 10MB, used NMB."
    assert entry.text == f"held by the machine's policy: {common} (hold 21)"


@pytest.mark.parametrize(
    ("command", "said"),
    [("ABORT-DAG-ON a 3", "ABORT-DAG-ON"), ("RETRY a 2 UNLESS-EXIT 3", "UNLESS-EXIT 3")],
)
def test_error_output_does_not_hide_why_it_was_not_retried(
    command: str, said: str, tmp_path: Path
) -> None:
    dagdir = Dagdir(tmp_path / "ens", f"JOB a a.sub\n{command}\n")
    log = Log().submit(7, "a", at="10:00:00").execute(7).terminate(7, 3, at="11:00:00")
    dagdir.write("a.log", log.data)
    dagdir.write("a.sub", "executable = a.sh\nlog = a.log\nerror = a.err\nqueue\n")
    dagdir.write("a.err", "KeyError: 'ddg'\n")
    health = make_health(stats_input(read_dagdir(dagdir.path), dagdir.path))
    (text,) = [e.text for e in health.open_entries if "KeyError: 'ddg' (exit 3" in e.text]
    assert said in text
    assert "tries used" not in text


# --- the real ensemble --------------------------------------------------------------------------


def test_passed_failure_is_not_a_rerun() -> None:
    (passed,) = (e for e in entries(recorded(FIXTURES / "scripts")) if e.kind == "job-failed")
    assert not passed.open
    assert "POST script" in passed.text
    assert not any("ran again" in step for step in passed.steps)
    (retried, *_) = (e for e in entries(recorded(FIXTURES / "demo")) if e.kind == "job-failed")
    assert "POST script" not in retried.text
    assert any("ran again" in step for step in retried.steps)


def test_closed_entries_have_the_symbols_of_the_screen() -> None:
    health = make_health(recorded(FIXTURES / "demo"))
    lines = [text_of(line).strip() for line in health_text(health, None, None)]
    closed = lines[lines.index(f"closed ({len(health.closed_entries)})") + 1 :]
    assert [line[0] for line in closed] == [mark(entry)[0] for entry in health.closed_entries]
    assert {"■", "⌫"} <= {line[0] for line in closed}


def test_ensemble_on_aws(shared: Shared) -> None:
    """The log is cut at line 20863 after "Disk quota exceeded"; the DAG was removed at 15:38:14,
    and later events are unknown. Both transfers that were given up took an hour."""
    made = recorded(shared("examples/metl-aws"))
    health = make_health(made)
    assert [entry.kind for entry in health.open_entries] == ["over-requested"]
    gap = only(made, "log-gap")
    assert (gap.since, gap.until) == (
        datetime(2025, 11, 13, 5, 9, 55),
        datetime(2025, 11, 13, 15, 38, 14),
    )
    assert gap.jobs == ((12713941, 0),)
    assert "metl.log:20863" in gap.text
    full = only(made, "quota")
    assert full.since == datetime(2025, 11, 13, 4, 38, 46)
    assert set(full.jobs) == {(12713934, 0), (12713939, 0), (12713942, 0)}
    stalled = only(made, "transfer-stalled")
    assert set(stalled.jobs) == {(12713645, 0), (12713647, 0)}
    expired = only(made, "annex-expired")
    assert expired.since == datetime(2025, 11, 5, 21, 2, 13)
    assert len(expired.runs) == 4
    assert expired.text == (
        "annex at aws expired (inferred): 4 jobs of 4 runs evicted, 44.5 GPU-h badput"
    )
    removed = [each for each in entries(made) if each.kind == "removed-by-user"]
    days = [each.since.day for each in removed if each.since is not None]
    assert sorted(days) == [4, 5, 11, 12, 13]
    assert {each.severity for each in removed} == {Severity.NOTE}
    assert sum(each.gpu_hours for each in removed) == pytest.approx(247.68, abs=0.01)


@pytest.mark.parametrize("name", ["first-round", "demo", "scripts", "holds", "trainer", "gated"])
def test_each_lost_hour_is_in_one_entry(name: str) -> None:
    made = recorded(FIXTURES / name)
    assert made.status.hours.badput
    counted = sum(entry.gpu_hours for entry in entries(made))
    assert counted == pytest.approx(made.status.hours.badput)


def test_keys_are_unique(shared: Shared) -> None:
    for place in (shared("examples/metl-aws"), FIXTURES / "demo", FIXTURES / "first-round"):
        keys = [each.key for each in entries(recorded(place))]
        assert len(keys) == len(set(keys))


# --- each kind ----------------------------------------------------------------------------------


def test_mass_eviction_at_one_site() -> None:
    at_once = [
        lost(f"run{n}", ago(2) + timedelta(seconds=20 * n), job=(9000 + n, 0)) for n in range(4)
    ]
    each = only(with_executions(basis(CALM), *at_once), "evictions")
    assert len(each.runs) == 4
    assert each.site == "delta"
    assert "4 jobs of 4 runs evicted at delta within 1m, 4.0 GPU-h badput" in each.text
    assert not each.open


def test_expired_annex() -> None:
    at_once = [
        replace(lost(f"run{n}", ago(2), job=(9000 + n, 0)), cause=cause, annex="gpu-annex")
        for n, cause in enumerate((ANNEX_EXPIRED, ANNEX_EXPIRED_INFERRED))
    ]
    each = only(with_executions(basis(CALM), *at_once), "annex-expired")
    assert each.text == (
        "annex gpu-annex at delta expired: 2 jobs of 2 runs evicted, 2.0 GPU-h badput"
    )
    assert (each.site, each.open) == ("delta", False)


def test_annex_that_expires_daily_is_one_entry() -> None:
    evicted = [
        replace(lost("run0", ago(24 * n), job=(9000 + n, 0)), cause=ANNEX_EXPIRED_INFERRED)
        for n in range(1, 6)
    ]
    each = only(with_executions(basis(CALM), *evicted), "annex-expired")
    assert each.text.startswith("annex at delta expired (inferred) 5 times: 5 jobs of 1 run ")


def test_evictions_at_several_sites_are_not_a_mass_eviction() -> None:
    sites = ("delta", "expanse", "anvil", "chtc")
    at_once = [lost(f"run{n}", ago(2), job=(9000 + n, 0), site=sites[n]) for n in range(4)]
    assert kinds(with_executions(basis(CALM), *at_once)) == ["evicted"]


def test_gap_in_the_log() -> None:
    made = basis({"run0": Past((HOUR,) * 5, 12 * HOUR, running=False)})
    end = lost("run0", ago(1), seconds=10 * HOUR, outcome=Outcome.REMOVED, uncertain=True)
    glued = Notice("glued-header", "metl.log", 77, "cut here")
    made = with_executions(made, end)
    made = replace(made, status=replace(made.status, warnings=(glued,)))
    each = only(made, "log-gap")
    assert each.until == ago(1)
    assert "metl.log:77" in each.text
    assert each.since == ago(11)


def test_log_damage_without_loss_is_a_note() -> None:
    made = basis(CALM)
    glued = Notice("glued-header", "metl.log", 77, "cut here")
    made = replace(made, status=replace(made.status, warnings=(glued,)))
    assert only(made, "log-damage").severity is Severity.NOTE


@pytest.mark.parametrize(("silent", "found_"), [(0.5, False), (5.0, True)])
def test_live_log_without_new_events(silent: float, found_: bool) -> None:
    made = basis(CALM)
    log = LogRow("metl.log", 1, 1000, ago(60), ago(silent))
    made = replace(made, status=replace(made.status, logs=(log,)))
    assert kinds(made) == (["log-silent"] if found_ else [])
    if found_:
        assert only(made, "log-silent").open


def transfer(seconds: float, outcome: str = "ok", site: str = "delta", n: int = 0) -> Transfer:
    start = ago(30 - n)
    end = None if outcome == "in-flight" else start + timedelta(seconds=seconds)
    return Transfer(
        (9000 + n, 0), "run0", 0, "input", start, end, seconds, outcome, None, site, None
    )


def test_transfers_slower_than_usual_at_the_site() -> None:
    usual = [transfer(240.0, n=n) for n in range(5)]
    slow_site = [transfer(1500.0, site="far", n=n) for n in range(5, 10)]
    made = basis(CALM)

    def having(*more: Transfer) -> StatsInput:
        transfers = (*usual, *slow_site, *more)
        return replace(made, ledger=replace(made.ledger, transfers=transfers))

    assert kinds(having()) == []
    each = only(having(transfer(3600.0, "unfinished", n=12)), "transfer-stalled")
    assert each.site == "delta"
    assert "took 1h; usual is 4m" in each.text
    # An hour is not much where twenty-five minutes are usual.
    assert kinds(having(transfer(3600.0, "unfinished", site="far", n=12))) == []
    assert only(having(transfer(3600.0, "in-flight", n=12)), "transfer-stalled").open
    sites = ((3600.0, "delta"), (10800.0, "far"))
    ended = (transfer(seconds, "unfinished", site=site, n=12) for seconds, site in sites)
    each = only(having(*ended), "transfer-stalled")
    assert each.site is None
    assert each.text.startswith("2 input transfers at 2 sites took up to 3h, and no job started")


def test_closed_entries_are_ranked_by_hours() -> None:
    health = make_health(recorded(FIXTURES / "first-round"))
    hours = [each.gpu_hours for each in health.closed_entries]
    assert hours == sorted(hours, reverse=True)


def test_site_of_another_dags_target_is_not_wrong() -> None:
    runs = {"run0": replace(GOING, target="expanse"), "run1": replace(GOING, target="delta")}
    made = basis(runs)
    assert kinds(made) == ["wrong-site"]
    ledger = made.ledger
    other = [replace(e, dag="b.dag") if e.key == "run1" else e for e in ledger.executions]
    epochs = [replace(e, dag="b.dag") if e.key == "run1" else e for e in ledger.epochs]
    ledger = replace(ledger, executions=tuple(other), epochs=tuple(epochs))
    assert kinds(replace(made, ledger=ledger)) == []


def test_alias_of_the_target_is_not_a_wrong_site() -> None:
    runs = {"run0": replace(GOING, target="expanse", site="SDSC-PRP-CE1"), "run1": GOING}
    assert kinds(basis(runs)) == []


def arguments(*versions: dict[str, str]) -> StatsInput:
    made = basis(CALM)
    training = TrainingOutput("run0", {}, {}, dict(enumerate(versions)))
    return replace(made, job_files=JobFiles({"run0": training}))


def test_changed_arguments_between_epochs() -> None:
    same = {"learning_rate": "0.001", "stop_after_epoch": "1", "ckpt_path": "/a/last.ckpt"}
    later_ = {**same, "stop_after_epoch": "2", "ckpt_path": "/b/last.ckpt"}
    assert kinds(arguments(same, later_)) == []
    each = only(arguments(same, later_, {**later_, "learning_rate": "0.1"}), "configuration")
    assert each.text == "arguments changed: learning_rate: 0.001 in version 1, 0.1 in version 2"
    assert each.runs == ("run0",)


def test_argument_that_follows_the_epoch_is_not_a_change() -> None:
    assert kinds(arguments({"max_epochs": "1"}, {"max_epochs": "2"}, {"max_epochs": "3"})) == []
    assert kinds(arguments({"max_epochs": "30"}, {"max_epochs": "40"})) == ["configuration"]


def test_futile_nodes_without_an_explanation() -> None:
    made = basis({**CALM, "run8": replace(GOING, state=State.FUTILE)})
    fault = NodeFault(
        node_key=("ens.dag", "run8-train_epoch5"),
        dag="ens.dag",
        state=State.FUTILE,
        key="run8",
        since=ago(1),
        failed_ancestor=("ens.dag", "gone"),
    )
    made = replace(made, ledger=replace(made.ledger, faults=(fault,)))
    each = only(made, "futile")
    assert (each.text, each.epochs_blocked) == ("1 node will not run: a node before them failed", 1)
    submitted_again = replace(made.status.dags[0], submissions=(ago(0),))
    assert kinds(replace(made, status=replace(made.status, dags=(submitted_again,)))) == []


# --- any history --------------------------------------------------------------------------------


@given(
    st.lists(
        st.builds(
            lost,
            st.sampled_from(["run0", "run1", "run2", "run3", "other"]),
            st.integers(0, 10**6).map(lambda s: NOON - timedelta(seconds=s)),
            outcome=st.sampled_from(list(Outcome)),
            code=st.sampled_from([None, 12, 1005, 1007, 1023]),
            reason=st.sampled_from([None, "", "x", "Disk quota exceeded", "\x1b[31m\u202e"]),
            site=st.sampled_from([None, "delta", "expanse"]),
            uncertain=st.booleans(),
            target=st.sampled_from([None, "delta", "", "?"]),
        ),
        max_size=30,
    )
)
def test_any_history_raises_nothing(more: list[object]) -> None:
    made = with_executions(basis(CALM), *more)  # type: ignore[arg-type]
    every = entries(made)
    assert len({each.key for each in every}) == len(every)
    for each in every:
        assert each.text
        assert each.advice
        assert not (each.open and each.until is not None)


def test_no_entry_without_an_as_of() -> None:
    made = basis({})
    assert entries(replace(made, ledger=replace(made.ledger, as_of=None))) == ()


def test_idle_jobs_are_no_entry() -> None:
    made = basis(CALM)
    jobs: tuple[Job, ...] = tuple(
        replace(job, state=State.IDLE, target=None) for job in made.ledger.jobs
    )
    assert kinds(replace(made, ledger=replace(made.ledger, jobs=jobs))) == []


def test_jobs_beside_a_dag_have_causes_names_and_advice_of_their_own(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path, "JOB A a.sub\n")
    dagdir.write("failed.log", Log().submit(7).execute(7).terminate(7, 3).data)
    dagdir.write("removed.log", Log().submit(8).remove(8).data)
    of = stats_input(read_dagdir(tmp_path))
    assert of.status.special_nodes == (), "no run of its DAG is beside A"
    failed, removal = entries(of)
    assert (failed.kind, failed.open, failed.act) == ("run-failed", True, None)
    assert failed.text == "7.0: exited with return value 3"
    assert failed.severity is Severity.COSTLY, "it blocks nothing of the DAG"
    assert failed.steps[-1] == "Submit the jobs again"
    # A job of no DAG is removed on purpose.
    assert (removal.kind, removal.open) == ("removed-by-user", False)
    lines = [text_of(line).strip() for line in health_text(make_health(of), None, None)]
    assert any(line.startswith("7 ·") for line in lines), lines
