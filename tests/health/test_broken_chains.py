"""Broken chains of checkpoints in Health."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.health.build import make_health
from metlmon.health.types import CALM, Health, Severity
from tests.health.ensembles import EventLog, chains, health_of, kinds, only, write
from tests.stats.test_lineage import hidden_compute, record, trained
from tests.support.commands import Captured, json_output, text_output
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir, stats_input

FIXTURE = FIXTURES / "lineage"


def going_on(path: Path, *parents: str | None) -> Dagdir:
    """Three epochs are completed, and the fourth runs; ``parents``: those of aaa, bbb and ccc."""
    log = EventLog()
    for epoch in range(3):
        log.train(f"run0-train_epoch{epoch}")
    log.execute(log.submit("run0-train_epoch3"))
    dagdir = write(path, chains({"run0": 5}), log)
    for epoch, parent in enumerate(parents):
        record(dagdir, epoch, 3 * "abc"[epoch], parent)
    return dagdir


def test_epoch_that_does_not_continue_its_predecessor(tmp_path: Path) -> None:
    entry = only(health_of(going_on(tmp_path, None, "aaa", "aaa")), "lineage-broken")
    assert entry.text == "epoch 3 continues the checkpoint of epoch 1, not that of epoch 2"
    assert "lacks the training of epoch 2" in entry.advice
    assert (entry.severity, entry.act) == (Severity.COSTLY, None)
    assert entry.runs == ("run0aaaa-0000",)
    assert entry.node_keys == (("run.dag", "run0-train_epoch2"),)
    assert entry.jobs == ((103, 0),)
    assert entry.since is not None


def test_several_breaks_of_a_run_are_one_entry(tmp_path: Path) -> None:
    entry = only(health_of(going_on(tmp_path, None, None, "eee")), "lineage-broken")
    assert entry.text == (
        "epoch 2 was trained from scratch, not from the checkpoint of epoch 1, and 1 more break"
    )
    assert entry.nodes == 2


def test_epoch_that_continues_another_run(tmp_path: Path) -> None:
    dagdir = trained(tmp_path, epochs=2)
    record(dagdir, 0, "aaa", None)
    record(dagdir, 1, "bbb", "ccc")
    record(dagdir, 0, "ccc", None, run="run1")
    entry = only(health_of(dagdir), "lineage-broken", is_open=False)
    assert entry.text == "epoch 2 continues a checkpoint of run1, not that of epoch 1"


def test_checkpoint_of_the_completing_job_was_not_continued(tmp_path: Path) -> None:
    dagdir, used, credited = hidden_compute(tmp_path)
    record(dagdir, 0, "aaa", None, hostname="gpu1")
    record(dagdir, 0, "bbb", None, name="last.ckpt", hostname="gpu8")
    record(dagdir, 1, "ccc", "aaa")
    entry = only(health_of(dagdir), "lineage-broken", is_open=False)
    assert entry.text == (
        f"epoch 2 continues what job {used}.0 made of epoch 1, not what job {credited}.0 made, "
        "which completed it"
    )


def test_unrecorded_checkpoints_are_a_note(tmp_path: Path) -> None:
    dagdir = going_on(tmp_path, None)
    record(dagdir, 2, "ccc", "eee")
    entry = only(health_of(dagdir), "lineage-gap")
    assert entry.severity is Severity.NOTE
    assert entry.text == (
        "nothing is recorded of 1 checkpoint that later epochs continue, the first of epoch 2"
    )
    assert "lineage-broken" not in kinds(health_of(dagdir))


def test_intact_chain_has_no_entry(tmp_path: Path) -> None:
    assert kinds(health_of(going_on(tmp_path, None, "aaa", "bbb"))) == []


def recorded() -> Health:
    return make_health(stats_input(read_dagdir(FIXTURE), FIXTURE))


def test_recorded_ensemble_has_one_broken_chain() -> None:
    entry = only(recorded(), "lineage-broken", is_open=False)
    assert entry.runs[0].startswith("73c58470")
    assert entry.text == "epoch 3 continues an unrecorded checkpoint, not that of epoch 2"
    assert entry.jobs == ((13, 0),)
    assert recorded().headline.line == f"{CALM} · 1 model doubtful: checkpoint chain broken"


def test_last_epoch_that_its_post_script_let_pass_is_in_the_headline(tmp_path: Path) -> None:
    log = Log().submit(77, NODE).execute(77).terminate(77, 1).post(77, NODE, 0)
    dagdir = Dagdir(tmp_path, f"JOB {NODE} a.sub\nSCRIPT POST {NODE} post.sh\n")
    dagdir.write("metl.log", log.data)
    assert f"{CALM} · 1 model doubtful: job of last epoch failed" in health_of(dagdir).headline.line


@pytest.mark.parametrize("second", [14, 16])
def test_broken_chain_is_open_between_two_epochs(second: int, capsys: Captured) -> None:
    """Its third epoch is done, and the fourth not submitted yet; then it runs."""
    moment = f"2026-11-28T10:21:{second}"
    entries = json_output("health", capsys, FIXTURE, "--as-of", moment)["entries"]
    assert [each["open"] for each in entries if each["kind"] == "lineage-broken"] == [True]


def test_run_names_the_job_of_each_checkpoint(capsys: Captured) -> None:
    text = text_output("run", capsys, "run1", FIXTURE)
    assert "MADE BY" in text
    assert "epoch 2: ⇄ job 12.0 at CHTC-Spark-CE1 made the checkpoint (recorded)" in text
    epochs = json_output("run", capsys, "run1", FIXTURE)["epochs"]
    found = [epoch["checkpoint"] for epoch in epochs]
    assert [(each["source"], each["job"], each["completed_by"]) for each in found] == [
        ("recorded", "7.0", "7.0"),
        ("recorded", "12.0", "15.0"),
        ("recorded", "17.0", "17.0"),
        ("recorded", "18.0", "18.0"),
    ]
    assert [each["parent_epoch"] for each in found] == [None, 1, 2, 3]
    assert [each["parent_sha256"] for each in found[1:]] == [each["sha256"] for each in found[:-1]]
    assert found[1]["site"] == "CHTC-Spark-CE1"
    assert {each["broken"] for each in found} == {None}


def test_run_shows_where_its_chain_is_broken(capsys: Captured) -> None:
    line = "epoch 3: does not continue the checkpoint of the epoch before; see Health"
    assert line in text_output("run", capsys, "run2", FIXTURE)
    epochs = json_output("run", capsys, "run2", FIXTURE)["epochs"]
    assert [epoch["checkpoint"]["broken"] for epoch in epochs] == [None, None, "unknown", None]


def test_run_without_provenance_has_no_column_for_it(capsys: Captured) -> None:
    trainer = FIXTURE.parent / "trainer"
    assert "MADE BY" not in text_output("run", capsys, "run2", trainer)
    epochs = json_output("run", capsys, "run2", trainer)["epochs"]
    assert {epoch["checkpoint"]["source"] for epoch in epochs} == {"inferred"}
    assert {epoch["checkpoint"]["sha256"] for epoch in epochs} == {None}
