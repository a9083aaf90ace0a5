"""The gate as DAGMan runs it: its decisions, its files, and that no input makes it fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metlmon.trainer import gate
from tests.support.gated_dagdir import GO, PATIENT, SKIP, UUID, WAIT, GatedDagdir

OTHERS = ("bbbb", "cccc", "dddd")


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> GatedDagdir:
    """Gates without rules."""
    return GatedDagdir(tmp_path, {})


def test_epoch_trains_without_requests_and_rules(dagdir: GatedDagdir) -> None:
    assert dagdir.asks_in_a_process(0) == GO
    assert sorted(os.listdir(dagdir.path)) == ["ensemble.gate.json"]


def test_gate_finds_its_files_from_another_directory(tmp_path: Path) -> None:
    dagdir = GatedDagdir(tmp_path / "there", {})
    dagdir.ask_for("stop")
    words = dagdir.command(3)
    words[4] = str(dagdir.path / "ensemble.gate.json")
    assert subprocess.run(words, cwd=tmp_path).returncode == SKIP
    assert dagdir.stopped()["epoch"] == 3


# --- stop, pause, retarget ----------------------------------------------------------------


def test_stop_file_stops_the_run_once(dagdir: GatedDagdir) -> None:
    dagdir.ask_for("stop", "it overfits\nand more\n")
    assert dagdir.asks_in_a_process(4) == SKIP
    result = dagdir.stopped()
    assert {name: result[name] for name in ("schema", "run", "uuid", "node", "epoch", "rule")} == {
        **{"schema": 1, "run": "run0", "uuid": UUID},
        **{"node": "run0-train_epoch4", "epoch": 4, "rule": "file"},
    }
    assert result["reason"] == "asked to stop: it overfits"
    before = dagdir.file("stopped").read_bytes()
    assert dagdir.asks_in_a_process(5) == SKIP
    assert dagdir.file("stopped").read_bytes() == before


def test_only_evaluations_of_trained_epochs_run(dagdir: GatedDagdir) -> None:
    dagdir.ask_for("stop")
    assert dagdir.asks(3, what="evaluate") == GO, "no gate has answered the request yet"
    assert dagdir.asks(4) == SKIP
    codes = [dagdir.asks(epoch, what="evaluate") for epoch in (2, 3, 4, 5)]
    assert codes == [GO, GO, SKIP, SKIP]


def test_pause_is_recorded_until_the_run_resumes(dagdir: GatedDagdir) -> None:
    dagdir.ask_for("pause")
    assert dagdir.asks_in_a_process(2) == WAIT
    first = dagdir.file("paused").read_bytes()
    assert json.loads(first)["node"] == "run0-train_epoch2"
    assert dagdir.asks_in_a_process(2) == WAIT
    assert dagdir.file("paused").read_bytes() == first, "it waits since the first time"
    dagdir.file("pause").unlink()
    assert dagdir.asks_in_a_process(2) == GO
    assert not dagdir.file("paused").exists()


def test_paused_run_can_be_stopped(dagdir: GatedDagdir) -> None:
    dagdir.ask_for("pause")
    assert dagdir.asks(2) == WAIT
    dagdir.ask_for("stop")
    assert dagdir.asks(2) == SKIP
    assert not dagdir.file("paused").exists()


@pytest.mark.parametrize("site", ["CHTC-Spark-CE1", "Delta-GPU|SDSC PRP"])
def test_next_epochs_are_sent_to_the_requested_site(dagdir: GatedDagdir, site: str) -> None:
    dagdir.ask_for("target", f"{site}\n")
    assert dagdir.asks(2) == GO
    placed = dagdir.path / "placement" / "ensemble" / "run0-train_epoch2.inc"
    assert placed.read_text() == f"ResourceName = {site}\n"
    dagdir.file("target").unlink()
    assert dagdir.asks(3) == GO
    assert os.listdir(placed.parent) == [placed.name], "what is there stays, and nothing new comes"


@pytest.mark.parametrize("edited", [None, "ResourceName = Delta-GPU\n"])
def test_retry_follows_a_withdrawn_request_or_an_edit(
    dagdir: GatedDagdir, edited: str | None
) -> None:
    dagdir.ask_for("target", "CHTC-Spark-CE1\n")
    assert dagdir.asks(2) == GO
    placed = dagdir.path / "placement" / "ensemble" / "run0-train_epoch2.inc"
    assert placed.exists()
    if edited is not None:
        placed.write_text(edited)
    dagdir.file("target").unlink()
    assert dagdir.asks(2) == GO
    assert (placed.read_text() if placed.exists() else None) == edited
    assert not dagdir.file("sent").exists()


@pytest.mark.parametrize(
    "site",
    [
        *("", " ", 'a"b', "a'b", "a$(x)b", "a\nqueue 100", "a\\b", "a\0b", "\x1b[31m", "x" * 201),
        *('a"', "a'", "a$", "a\\", '"', "a\r\nb", "a\u2028b", "é\udcff"),
    ],
)
def test_target_with_line_ends_is_refused(dagdir: GatedDagdir, site: str) -> None:
    dagdir.state.mkdir(parents=True)
    dagdir.file("target").write_bytes(site.encode("utf-8", "surrogateescape"))
    assert dagdir.asks(2) == GO
    assert not (dagdir.path / "placement").exists()
    assert "names no site" in dagdir.log[-1]


# --- rules --------------------------------------------------------------------------------


NAN, INF = float("nan"), float("inf")
DIVERGENCE = {"metric": "val_loss", "divergence": 10}
MOST = {"metric": "val_loss", "goal": "max"}


@pytest.mark.parametrize(
    ("rules", "losses", "codes", "reason"),
    [
        (
            {**PATIENT, "patience": 3},
            [0.9, 0.5, 0.4213, 0.4212, 0.44, 0.4209],
            {5: GO, 6: SKIP},
            "val_loss has not improved by more than 0.001 for 3 epochs; best 0.4209 at epoch 6",
        ),
        # A retry of epoch 3 finds the metrics of its first start.
        ({**PATIENT, "patience": 2}, [0.5, 0.4, 0.6, 0.7], {3: GO, 4: SKIP}, "val_loss has not"),
        (
            {**MOST, "patience": 2, "min_delta": 0.01},
            [0.1, 0.5, 0.505, 0.4],
            {3: GO, 4: SKIP},
            "val_loss has not improved by more than 0.01 for 2 epochs; best 0.505 at epoch 3",
        ),
        (DIVERGENCE, [0.5, NAN], {1: GO, 2: SKIP}, "val_loss is NaN at epoch 2"),
        (DIVERGENCE, [0.5, INF], {1: GO, 2: SKIP}, "val_loss is inf at epoch 2"),
        (
            DIVERGENCE,
            [0.5, 0.4, 4.1],
            {2: GO, 3: SKIP},
            "val_loss is 4.1 at epoch 3, more than 10 times its best (0.4 at epoch",
        ),
        # A multiple of a negative loss is meaningless.
        (DIVERGENCE, [-0.5, -0.4, 3.0], {3: GO}, ""),
        ({**MOST, "divergence": 3}, [0.6, 0.21], {2: GO}, ""),
        (
            {**MOST, "divergence": 3},
            [0.6, 0.19],
            {2: SKIP},
            "val_loss is 0.19 at epoch 2, below its best (0.6 at epoch 1) divided by 3",
        ),
        ({**MOST, "divergence": 3}, [0.6, -0.3], {2: SKIP}, "val_loss is -0.3 at epoch 2, below"),
        ({**MOST, "divergence": 3}, [-0.1, -0.5], {2: GO}, ""),
    ],
)
def test_rules_stop_a_run(
    tmp_path: Path, rules: dict[str, Any], losses: list[float], codes: dict[int, int], reason: str
) -> None:
    dagdir = GatedDagdir(tmp_path, rules)
    dagdir.trained(losses)
    assert {epoch: dagdir.asks(epoch) for epoch in codes} == codes
    assert dagdir.file("stopped").exists() == bool(reason)
    if reason:
        result = dagdir.stopped()
        assert result["rule"] == ("divergence" if "divergence" in rules else "patience")
        assert result["epoch"] == max(codes)
        assert result["reason"].startswith(reason)


def test_epochs_before_since_are_only_a_baseline(tmp_path: Path) -> None:
    """A continued run is not stopped again at once."""
    dagdir = GatedDagdir(tmp_path, PATIENT)
    run = {"name": "run0", "metrics": f"output/training_logs/{UUID}", "since": 4}
    dagdir.rules({"schema": 1, "rules": PATIENT, "runs": {UUID: run}})
    dagdir.trained([0.5, 0.4, 0.6, 0.6, 0.6, 0.6])
    assert [dagdir.asks(epoch) for epoch in (4, 5, 6)] == [GO, GO, SKIP]


def test_median_rule_compares_with_the_ensemble(tmp_path: Path) -> None:
    dagdir = GatedDagdir(tmp_path, {"metric": "val_loss", "median_after": 2}, UUID, *OTHERS)
    dagdir.trained([0.9, 0.8, 0.7])
    dagdir.trained([0.5, 0.9], "bbbb")
    assert dagdir.asks(2) == GO, "one other run says nothing of the middle"
    dagdir.trained([0.5, 0.4], "cccc")
    dagdir.trained([0.5], "dddd")
    assert dagdir.asks(1) == GO, "too early"
    assert dagdir.asks(3) == GO, "no other run has that epoch yet"
    assert dagdir.asks(2) == GO, "0.8 is the middle of 0.4, 0.8 and 0.9"
    dagdir.trained([0.5, 0.3], "dddd")
    assert dagdir.asks(2) == SKIP
    assert dagdir.stopped()["reason"] == (
        "val_loss 0.8 at epoch 2 is worse than the median of 4 runs, 0.6"
    )


def test_median_rule_with_a_maximised_metric(tmp_path: Path) -> None:
    rules = {"metric": "val_loss", "goal": "max", "median_after": 1}
    dagdir = GatedDagdir(tmp_path, rules, UUID, *OTHERS)
    for uuid, value in zip((UUID, *OTHERS), (0.3, 0.5, 0.4, float("nan")), strict=True):
        dagdir.trained([value], uuid)
    assert dagdir.asks(1, OTHERS[0]) == GO
    assert dagdir.asks(1, OTHERS[2]) == SKIP, "NaN is worse than any"
    assert dagdir.asks(1) == SKIP
    assert dagdir.stopped()["reason"] == (
        "val_loss 0.3 at epoch 1 is worse than the median of 4 runs, 0.35"
    )


def test_invalid_goal_lets_the_epoch_train(tmp_path: Path) -> None:
    dagdir = GatedDagdir(tmp_path, {**PATIENT, "goal": "most"})
    dagdir.trained([0.5, 0.6, 0.7, 0.8])
    assert dagdir.asks(4) == GO
    assert "goal must be min or max" in dagdir.log[-1]


def test_last_row_of_the_last_version_counts(tmp_path: Path) -> None:
    dagdir = GatedDagdir(tmp_path, {**PATIENT, "patience": 1})
    dagdir.metrics(0, "val_loss,epoch,step\n0.5,0,9\n0.4,0,9\n")
    dagdir.metrics(9, "epoch,step,val_loss\n1,9,9.0\n")
    dagdir.metrics(10, "step,val_loss,epoch\n9,0.2,1\n\n9,,1\n,0.1,\n9,0.39,1.0\nepoch,val_loss\n")
    (tmp_path / f"output/training_logs/{UUID}/version_99x").mkdir()
    assert dagdir.asks(2) == GO, "0.39 of version 10 is better than 0.4"
    dagdir.metrics(11, "epoch,val_loss\n1,0.41\n1,0.1")
    assert dagdir.asks(2) == SKIP, "the torn last row does not count"


def test_only_the_end_of_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,val_loss\n0,0.5\n" + "0,\n" * 5000 + "1,0.4\n")
    monkeypatch.setattr(gate, "LONGEST_TABLE", 100)
    lines = list(gate.lines_of(str(path)))
    assert (lines[0], lines[-1]) == ("epoch,val_loss\n", "1,0.4\n")
    assert len(lines) < 50


# --- robustness -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [os.mkdir, partial(os.symlink, "/etc/hostname"), os.mkfifo])
@pytest.mark.parametrize("kind", ["stop", "stopped", "pause", "target"])
def test_special_files_are_reported_and_the_epoch_trains(
    dagdir: GatedDagdir, kind: str, make: Any
) -> None:
    dagdir.state.mkdir(parents=True)
    make(dagdir.file(kind))
    assert dagdir.asks_in_a_process(2) == GO
    assert f"{UUID}.{kind} is not a file" in dagdir.log[0]
    assert not (dagdir.path / "placement").exists()


@pytest.mark.parametrize(
    "content",
    [
        *(b"\x00\xff\xfe" * 1000, b"", b"\n\n", b"no,such,column\n1,2,3\n", b"\x1f\x8b\x08\x00"),
        b'epoch,val_loss\n"' + b"x" * 200_000 + b"\n",
        b"epoch,val_loss\n" + b"1" * 400 + b",0.5\n-1,0.5\n0.5,0.5\n1e9,0.5\nnan,1\n",
    ],
)
def test_invalid_metrics_let_the_epoch_train(tmp_path: Path, content: bytes) -> None:
    dagdir = GatedDagdir(tmp_path, {**PATIENT, "divergence": 2, "median_after": 1}, UUID, *OTHERS)
    for uuid in (UUID, *OTHERS):
        dagdir.metrics(0, content, uuid)
    assert dagdir.asks(2) == GO
    assert not dagdir.file("stopped").exists()


def test_damaged_version_disables_no_rule(tmp_path: Path) -> None:
    dagdir = GatedDagdir(tmp_path, PATIENT)
    dagdir.trained([0.5, 0.6, 0.7, 0.8])
    dagdir.metrics(2, "no,such,column\n1,2,3\n")
    assert dagdir.asks(4) == SKIP
    assert "version_2/metrics.csv has no column called epoch" in dagdir.log[-1]


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "null", "{", '{"rules": []}', '{"rules": {"patience": 1}}', "[" * 5000),
        '{"rules": {"patience": -1, "metric": "val_loss"}, "runs": {"%s": {"metrics": "m"}}}',
        '{"rules": {"patience": 1, "metric": 7}, "runs": {"%s": {"metrics": "m"}}}',
        '{"rules": {"patience": 1, "metric": "val_loss"}, "runs": {"%s": {"metrics": 7}}}',
        '{"rules": {"patience": NaN, "metric": "val_loss"}, "runs": {"%s": {"metrics": "m"}}}',
    ],
)
def test_invalid_rules_let_the_epoch_train(dagdir: GatedDagdir, content: str) -> None:
    dagdir.metrics(0, "epoch,val_loss\n0,1\n")
    os.rename(dagdir.path / "output/training_logs" / UUID, dagdir.path / "m")
    (dagdir.path / "ensemble.gate.json").write_text(content.replace("%s", UUID))
    assert dagdir.asks(2) == GO
    dagdir.ask_for("stop")
    assert dagdir.asks(2) == SKIP, "what a person asks for needs no rules"
    assert dagdir.stopped()["run"] == "run0"


def test_missing_rules_let_the_epoch_train(dagdir: GatedDagdir) -> None:
    (dagdir.path / "ensemble.gate.json").unlink()
    assert dagdir.asks(2) == GO
    assert "ensemble.gate.json cannot be read" in dagdir.log[-1]


def test_gate_never_writes_through_links(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    dagdir = GatedDagdir(tmp_path / "dagdir", PATIENT)
    dagdir.trained([0.5, 0.6, 0.7, 0.8])
    (dagdir.path / "gate").symlink_to(elsewhere)
    assert dagdir.asks(4) == GO
    (dagdir.path / "gate").unlink()
    dagdir.ask_for("target", "delta")
    (dagdir.path / "placement").mkdir()
    (dagdir.path / "placement/ensemble").symlink_to(elsewhere)
    dagdir.file("paused").symlink_to(elsewhere / "paused")
    (dagdir.state / "gate.log").symlink_to(elsewhere / "gate.log")
    assert dagdir.asks(1) == GO
    dagdir.ask_for("pause")
    assert dagdir.asks(2) in (GO, WAIT)
    assert os.listdir(elsewhere) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_full_disk_lets_the_epoch_train(tmp_path: Path) -> None:
    """A full file system of one page; without the right to mount one, a limit on the size of
    files."""
    dagdir = GatedDagdir(tmp_path, PATIENT)
    dagdir.trained([0.5, 0.6, 0.7, 0.8])
    code = "import resource, os, signal, sys\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\nos.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-c", code, *dagdir.command(4)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True)
    assert done.returncode == GO
    assert not dagdir.file("stopped").exists(), "half a file would be one that stays"
    assert [name for name in os.listdir(dagdir.state) if name.endswith(".tmp")] == []
    dagdir.ask_for("stop")
    assert subprocess.run(words, cwd=tmp_path, capture_output=True).returncode == SKIP


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_unwritable_folder_lets_the_epoch_train(tmp_path: Path) -> None:
    dagdir = GatedDagdir(tmp_path, PATIENT)
    dagdir.trained([0.5, 0.6, 0.7, 0.8])
    dagdir.state.mkdir(parents=True)
    dagdir.state.chmod(0o500)
    try:
        assert dagdir.asks(4) == GO
    finally:
        dagdir.state.chmod(0o700)


@pytest.mark.parametrize(
    "words",
    [
        *([], ["ensemble.gate.json"], ["ensemble.gate.json", UUID, "x", "train", "n"]),
        *(["ensemble.gate.json", "../../x", "1", "train", "n"], ["ensemble.gate.json", UUID]),
        *(["ensemble.gate.json", UUID, "1", "train", "../n"], ["", UUID, "1", "train", "n"]),
        *(["no/such/x.gate.json", UUID, "1", "train", "n"], ["x.gate.json", UUID, "1", "fly", "n"]),
    ],
)
def test_invalid_arguments_let_the_epoch_train(tmp_path: Path, words: list[str]) -> None:
    GatedDagdir(tmp_path / "in", {})
    with chdir(tmp_path / "in"):
        assert gate.main(words) == GO
    assert os.listdir(tmp_path) == ["in"]


def test_log_of_the_gate_is_bounded(dagdir: GatedDagdir) -> None:
    dagdir.ask_for("target", "a b$(c)")
    (dagdir.state / "gate.log").write_bytes(b"x" * (gate.LONGEST_LOG + 1))
    assert dagdir.asks(2) == GO
    assert (dagdir.state / "gate.log").stat().st_size == gate.LONGEST_LOG + 1


def test_twenty_gates_agree(tmp_path: Path) -> None:
    """As many as DAGMan starts: one complete answer is written, and all return it."""
    dagdir = GatedDagdir(tmp_path, PATIENT)
    dagdir.trained([0.5, 0.6, 0.7, 0.8])
    dagdir.ask_for("target", "delta", uuid="other")
    running = [subprocess.Popen(dagdir.command(4), cwd=tmp_path) for _ in range(20)]
    assert {each.wait(60) for each in running} == {SKIP}
    assert dagdir.stopped()["epoch"] == 4
    assert sorted(os.listdir(dagdir.state)) == sorted([f"{UUID}.stopped", "other.target"])


@given(
    files=st.dictionaries(
        st.sampled_from(["stop", "pause", "target", "stopped", "paused"]), st.binary(max_size=60)
    ),
    rules=st.one_of(st.just(b"{}"), st.binary(max_size=80)),
    table=st.binary(max_size=200),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_gate_answers_with_any_files(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], rules: bytes, table: bytes
) -> None:
    dagdir = GatedDagdir(tmp_path_factory.mktemp("gate"), {})
    if rules != b"{}":
        (dagdir.path / "ensemble.gate.json").write_bytes(rules)
    dagdir.metrics(0, table)
    dagdir.state.mkdir(parents=True)
    for kind, content in files.items():
        dagdir.file(kind).write_bytes(content)
    words = [str(dagdir.path / "ensemble.gate.json"), UUID, "3", "train", "run0-train_epoch3"]
    code = gate.main(words)
    wanted = SKIP if {"stop", "stopped"} & files.keys() else WAIT if "pause" in files else GO
    assert code == wanted
