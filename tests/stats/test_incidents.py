"""Incidents: each kind is found where it happened, and nothing where nothing did."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.jobfiles.records import TrainingOutput
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import StatsInput
from metlmon.live.session import Session
from metlmon.model.model_state import Notice
from metlmon.model.states import DagState, Outcome, State
from metlmon.snapshot.ledger import JobEntry, TransferEntry
from metlmon.snapshot.types import LogRow
from metlmon.stats.incident_rules import Incident, IncidentSeverity
from metlmon.stats.incidents import headline, incident_list, incidents, urgent_incidents
from tests.support.run_histories import FIXTURES, NOON, Past, basis, lost, recorded, with_executions

HOUR = 3600.0
GOING = Past((HOUR,) * 5, 600.0)
CALM = {f"run{n}": GOING for n in range(4)}


def ago(hours: float) -> datetime:
    return NOON - timedelta(hours=hours)


def kinds(of: StatsInput) -> list[str]:
    return sorted({each.kind for each in incidents(of)})


def only(of: StatsInput, kind: str) -> Incident:
    every = [each for each in incidents(of) if each.kind == kind]
    assert len(every) == 1, incidents(of)
    return every[0]


# --- nothing out of the ordinary ----------------------------------------------------------------


def test_a_calm_ensemble_has_none() -> None:
    assert incidents(basis(CALM)) == ()
    assert headline(basis(CALM)).worst_incident is None


def test_evictions_one_by_one_are_none() -> None:
    made = basis(CALM)
    one_by_one = [lost(f"run{n}", ago(n + 1), job=(9000 + n, 0)) for n in range(4)]
    assert kinds(with_executions(made, *one_by_one)) == []


@pytest.mark.parametrize("name", ["rescue", "holds", "shared-log"])
def test_healthy_recordings_have_none(name: str) -> None:
    """Evictions, holds that were released, a DAG that was submitted again: all retried."""
    assert incidents(recorded(FIXTURES / name)) == ()


@pytest.mark.parametrize(("name", "run"), [("demo", "run4"), ("scripts", "run2")])
def test_recordings_in_which_a_run_gave_up(name: str, run: str) -> None:
    made = recorded(FIXTURES / name)
    assert only(made, "exhausted").text.startswith(f"{run} failed")


def test_a_recording_in_which_a_pre_script_failed() -> None:
    made = recorded(FIXTURES / "scripts")
    assert kinds(made) == ["exhausted", "script-failed"]
    assert only(made, "script-failed").text == (
        "run3 failed: epoch 1 without a job: PRE Script failed with status 1 (after 2 node retries)"
    )


# --- the real ensemble --------------------------------------------------------------------------


def test_the_ensemble_on_aws(shared: Callable[[str], Path]) -> None:
    """The log is cut at line 20863 after "Disk quota exceeded"; at 15:38:14 the DAG was removed,
    and what had run since is not known. Both transfers that were given up took an hour."""
    made = recorded(shared("examples/metl-aws"))
    gap = only(made, "log-gap")
    assert (gap.since, gap.until) == (
        datetime(2025, 11, 13, 5, 9, 55),
        datetime(2025, 11, 13, 15, 38, 14),
    )
    assert gap.jobs == ((12713941, 0),)
    assert "metl.log:20863" in gap.text
    full = only(made, "disk-quota")
    assert (full.since, full.until) == (
        datetime(2025, 11, 13, 4, 38, 46),
        datetime(2025, 11, 13, 5, 9, 55),
    )
    assert set(full.jobs) == {(12713934, 0), (12713939, 0), (12713942, 0)}
    stalled = only(made, "stalled-transfer")
    assert set(stalled.jobs) == {(12713645, 0), (12713647, 0)}
    evicted = only(made, "evictions")
    assert evicted.since == datetime(2025, 11, 5, 21, 2, 13)
    assert len(evicted.runs) == 4
    removed = [each for each in incidents(made) if each.kind == "removed"]
    assert {each.severity for each in removed} == {IncidentSeverity.NOTE}
    assert all("The DAG was removed by a user" in each.text for each in removed)
    seen = headline(made)
    assert seen.worst_incident == gap
    assert seen.other_incidents == 1


def test_keys_are_of_one_incident_each(shared: Callable[[str], Path]) -> None:
    for place in (shared("examples/metl-aws"), FIXTURES / "demo"):
        keys = [each.key for each in incidents(recorded(place))]
        assert len(keys) == len(set(keys))


# --- each kind ----------------------------------------------------------------------------------


def test_many_evictions_at_once_at_one_site() -> None:
    at_once = [
        lost(f"run{n}", ago(2) + timedelta(seconds=20 * n), job=(9000 + n, 0)) for n in range(4)
    ]
    each = only(with_executions(basis(CALM), *at_once), "evictions")
    assert len(each.runs) == 4
    assert each.site == "delta"
    assert "4 jobs of 4 runs were evicted at delta within 1m, 4.0 GPU-hours" in each.text
    assert not each.ongoing


def test_evictions_at_several_sites_are_no_mass() -> None:
    sites = ("delta", "expanse", "anvil", "chtc")
    at_once = [lost(f"run{n}", ago(2), job=(9000 + n, 0), site=sites[n]) for n in range(4)]
    assert kinds(with_executions(basis(CALM), *at_once)) == []


def test_what_a_person_removed_is_reported_as_such() -> None:
    reason = "DAG Removed: User removed scheduler job from queue. (by user anna)"
    at_once = [
        lost(f"run{n}", ago(2), job=(9000 + n, 0), code=1023, reason=reason) for n in range(4)
    ]
    made = with_executions(basis(CALM), *at_once)
    assert kinds(made) == ["removed"]
    assert only(made, "removed").severity is IncidentSeverity.NOTE
    assert urgent_incidents(made, incidents(made)) == []


def test_a_full_disk() -> None:
    reason = "writing to file /home/anna/out: (errno 122) Disk quota exceeded"
    made = with_executions(
        basis(CALM),
        lost("run1", ago(3), code=12, reason=reason, job=(9001, 0)),
        lost("run2", ago(2), code=1007, reason="couldn't write: No space left on device"),
    )
    each = only(made, "disk-quota")
    assert (each.since, each.until) == (ago(3), ago(2))
    assert "run1 and run2" in each.text


def test_a_hole_in_the_log() -> None:
    made = basis({"run0": Past((HOUR,) * 5, 12 * HOUR, running=False)})
    end = lost("run0", ago(1), seconds=10 * HOUR, outcome=Outcome.REMOVED, uncertain=True)
    glued = Notice("glued-header", "metl.log", 77, "cut here")
    made = with_executions(made, end)
    made = replace(made, status=replace(made.status, warnings=(glued,)))
    each = only(made, "log-gap")
    assert each.until == ago(1)
    assert "metl.log:77" in each.text
    assert each.since == ago(11)


def test_a_log_that_is_damaged_without_a_loss_is_a_note() -> None:
    made = basis(CALM)
    glued = Notice("glued-header", "metl.log", 77, "cut here")
    made = replace(made, status=replace(made.status, warnings=(glued,)))
    assert only(made, "log-damage").severity is IncidentSeverity.NOTE


@pytest.mark.parametrize(("silent", "found_"), [(0.5, False), (5.0, True)])
def test_a_live_log_that_falls_silent(silent: float, found_: bool) -> None:
    made = basis(CALM)
    log = LogRow("metl.log", 1, 1000, ago(60), ago(silent))
    made = replace(made, status=replace(made.status, logs=(log,)))
    assert kinds(made) == (["log-gap"] if found_ else [])
    if found_:
        assert only(made, "log-gap").ongoing


def transfer(seconds: float, outcome: str = "ok", site: str = "delta", n: int = 0) -> TransferEntry:
    start = ago(30 - n)
    end = None if outcome == "in-flight" else start + timedelta(seconds=seconds)
    return TransferEntry(
        (9000 + n, 0), "run0", 0, "input", start, end, seconds, outcome, None, site, None
    )


def test_transfers_stalled_beyond_the_sites_habit() -> None:
    usual = [transfer(240.0, n=n) for n in range(5)]
    slow_site = [transfer(1500.0, site="far", n=n) for n in range(5, 10)]
    made = basis(CALM)

    def having(*more: TransferEntry) -> StatsInput:
        transfers = (*usual, *slow_site, *more)
        return replace(made, ledger=replace(made.ledger, transfers=transfers))

    assert kinds(having()) == []
    each = only(having(transfer(3600.0, "unfinished", n=12)), "stalled-transfer")
    assert each.site == "delta"
    assert "took 1h; usual is 4m" in each.text
    # An hour is not much where twenty-five minutes are usual.
    assert kinds(having(transfer(3600.0, "unfinished", site="far", n=12))) == []
    assert only(having(transfer(3600.0, "in-flight", n=12)), "stalled-transfer").ongoing


def test_runs_that_are_held() -> None:
    made = basis({**CALM, "run8": replace(GOING, state=State.HELD)})
    each = only(made, "held")
    assert each.text == "run8 is held: memory usage exceeded"
    assert each.headline == "a run is held: memory usage exceeded"
    assert each.ongoing
    assert each.severity is IncidentSeverity.ALARM
    assert headline(made).worst_incident == each


def test_a_run_whose_retries_are_used_up() -> None:
    made = basis({**CALM, "run8": replace(GOING, state=State.FAILED)})
    assert only(made, "exhausted").text == ("run8 failed: epoch 6, 3 of 3 tries used")
    assert kinds(replace(made, status=basis(CALM, DagState.REMOVED).status)) == []


def test_a_target_that_is_missed_again_and_again() -> None:
    runs = {"run0": replace(GOING, target="expanse"), "run1": replace(GOING, target="delta")}
    # Both run at delta.
    each = only(basis(runs), "misdirected")
    assert each.text == "6 of 6 executions that requested expanse ran at delta"


def test_what_another_dag_wants_is_no_other_targets_site() -> None:
    runs = {"run0": replace(GOING, target="expanse"), "run1": replace(GOING, target="delta")}
    made = basis(runs)
    assert kinds(made) == ["misdirected"]
    ledger = made.ledger
    other = [replace(e, dag="b.dag") if e.run == "run1" else e for e in ledger.executions]
    epochs = [replace(e, dag="b.dag") if e.run == "run1" else e for e in ledger.epochs]
    ledger = replace(ledger, executions=tuple(other), epochs=tuple(epochs))
    assert kinds(replace(made, ledger=ledger)) == []


def test_a_site_by_another_name_is_no_wrong_way() -> None:
    runs = {"run0": replace(GOING, target="expanse", site="SDSC-PRP-CE1"), "run1": GOING}
    assert kinds(basis(runs)) == []


def test_a_target_that_never_took_a_job() -> None:
    waiting = Past((), 20 * HOUR, running=False, target="anvil")
    runs = {"run0": replace(GOING, target="delta"), "run1": waiting}
    each = only(basis(runs), "unserved")
    assert each.text.startswith("1 job for anvil idle for 20h")
    soon = {**runs, "run1": replace(waiting, age=HOUR)}
    assert kinds(basis(soon)) == []


def arguments(*versions: dict[str, str]) -> StatsInput:
    made = basis(CALM)
    training = TrainingOutput("run0", {}, {}, dict(enumerate(versions)))
    return replace(made, trainings={"run0": training})


def test_arguments_that_change_between_epochs() -> None:
    same = {"learning_rate": "0.001", "stop_after_epoch": "1", "ckpt_path": "/a/last.ckpt"}
    later_ = {**same, "stop_after_epoch": "2", "ckpt_path": "/b/last.ckpt"}
    assert kinds(arguments(same, later_)) == []
    each = only(arguments(same, later_, {**later_, "learning_rate": "0.1"}), "configuration")
    assert each.text == "run0 changed learning_rate: 0.001 in version 1, 0.1 in version 2"
    assert each.runs == ("run0",)


def test_a_horizon_that_grows_with_the_epoch_is_no_change() -> None:
    assert kinds(arguments({"max_epochs": "1"}, {"max_epochs": "2"}, {"max_epochs": "3"})) == []
    assert kinds(arguments({"max_epochs": "30"}, {"max_epochs": "40"})) == ["configuration"]


def test_the_trainers_own_files() -> None:
    """Some versions of this recording were made to fail, and say so in their arguments."""
    reader = DagdirReader(FIXTURES / "trainer")
    reader.open()
    reader.read_all()
    trainings = Session(reader).training_outputs()
    made = replace(recorded(FIXTURES / "trainer"), trainings=trainings)
    result = [each.text for each in incidents(made)]
    assert {each.kind for each in incidents(made)} == {"configuration"}
    assert all("fail_rate" in text or "evict_after" in text for text in result)


# --- what comes first ---------------------------------------------------------------------------


def test_what_is_long_over_is_not_pressing() -> None:
    def having(hours: float) -> StatsInput:
        return with_executions(
            basis(CALM), *(lost(f"run{n}", ago(hours), job=(9000 + n, 0)) for n in range(4))
        )

    recent, old = having(5), having(24 * 10)
    assert [each.kind for each in urgent_incidents(recent, incidents(recent))] == ["evictions"]
    assert urgent_incidents(old, incidents(old)) == []
    assert len(incident_list(old).incidents) == 1


def test_what_lasts_comes_first() -> None:
    made = basis({**CALM, "run8": replace(GOING, state=State.HELD, age=30 * HOUR)})
    made = with_executions(made, *(lost(f"run{n}", ago(5), job=(9000 + n, 0)) for n in range(4)))
    assert [each.kind for each in incidents(made)] == ["held", "evictions"]


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
def test_no_history_breaks_it(more: list[object]) -> None:
    made = with_executions(basis(CALM), *more)  # type: ignore[arg-type]
    every = incidents(made)
    assert len({each.key for each in every}) == len(every)
    for each in every:
        assert each.text
        assert each.advice
        assert not (each.ongoing and each.until is not None)


def test_nothing_to_look_at() -> None:
    made = basis({})
    assert incidents(replace(made, ledger=replace(made.ledger, as_of=None))) == ()


def test_idle_jobs_alone_are_none() -> None:
    made = basis(CALM)
    jobs: tuple[JobEntry, ...] = tuple(
        replace(job, state=State.IDLE, target=None) for job in made.ledger.jobs
    )
    assert kinds(replace(made, ledger=replace(made.ledger, jobs=jobs))) == []
