"""Answers of gates and requests of people in rows, JSON and text; and the targets of nodes that
were retargeted."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.jobfiles.gate_files import Stopped
from metlmon.live import gate_files
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import StatsInput
from metlmon.model.run import GateStatus, gate_name
from metlmon.model.states import State
from metlmon.remote.paths import NoAnswer
from metlmon.snapshot import row_text
from metlmon.snapshot.records import Epoch, GpuHours, Run
from metlmon.snapshot.row_text import PAUSED, STOPPED, gate_sentences, gate_symbol
from metlmon.stats.estimates import make_forecast
from metlmon.stats.timeline import build_timeline
from metlmon.stats.totals import break_down
from metlmon.tables import epochs as epochs_table
from metlmon.tables.estimates import epochs_text, remaining_text, run_remaining_text
from metlmon.tables.runs import columns, cursor_detail, state_counts
from metlmon.text.spans import text
from tests.support.commands import Captured, text_output
from tests.support.dag_texts import load
from tests.support.dagdir_builder import Dagdir, again
from tests.support.event_logs import Log, Out
from tests.support.gated_dagdir import gated_dag
from tests.support.records import blank

UUID = "aaaa1111-0000"
OTHER = "bbbb2222-0000"
RUNS = (UUID, OTHER)
EPOCHS = 4


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    found = Dagdir(tmp_path / "ensemble", "")
    found.write("e.dag", gated_dag(RUNS))
    found.write("e.sub", "log = metl.log\nexecutable = train.py\nqueue\n")
    found.write("e.dag.dagman.out", Out().start("10:00:00").data)
    log = Log().submit(1, "run0-train_epoch0").execute(1, site="delta").terminate(1)
    found.write("metl.log", log.submit(2, "run0-train_epoch1").execute(2, site="delta").data)
    return found


def say(dagdir: Dagdir, kind: str, content: Any = "", uuid: str = UUID) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    path = dagdir.path / "gate" / "e" / f"{uuid}.{kind}"
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(".new")
    beside.write_text(text)
    os.replace(beside, path)


STOPPING = {
    **{"schema": 1, "run": "run0", "uuid": UUID, "node": "run0-train_epoch2", "epoch": 2},
    **{"rule": "patience", "reason": "it stands still", "time": "2026-05-04T11:00:00"},
}


def rows(reader: DagdirReader) -> dict[str, Run]:
    return {row.run: row for row in again(reader).runs}


def test_requests_and_answers_follow_their_files(dagdir: Dagdir) -> None:
    reader = dagdir.reader(live=True)
    say(dagdir, "pause")
    gate = rows(reader)["run0"].gate
    assert gate.pause_requested is not None
    say(dagdir, "paused", {"node": "run0-train_epoch2", "epoch": 2, "time": "2026-05-04T11:00:00"})
    row = rows(reader)["run0"]
    assert row.gate.paused == datetime(2026, 5, 4, 11)
    for kind in ("pause", "paused"):
        (dagdir.path / "gate/e" / f"{UUID}.{kind}").unlink()
    assert rows(reader)["run0"].gate == GateStatus()
    say(dagdir, "stop")
    say(dagdir, "target", "expanse\n", OTHER)
    found = rows(reader)
    assert found["run0"].gate.stop_requested is not None
    assert found["run1"].gate == GateStatus(target="expanse")
    say(dagdir, "stopped", STOPPING)
    gate = rows(reader)["run0"].gate
    assert gate is not None
    when = datetime(2026, 5, 4, 11)
    assert gate.stopped == Stopped(
        rule="patience", epoch=2, reason="it stands still", time=when, node="run0-train_epoch2"
    )


def test_stopped_run_keeps_its_trained_epochs(dagdir: Dagdir) -> None:
    say(dagdir, "stopped", STOPPING)
    log = Log()
    log.clock = datetime(2026, 5, 4, 10, 30)
    dagdir.append("metl.log", log.terminate(2).data)
    nodes = Log().raw(34, (0, 0), "PRE_SKIP node", "    DAG Node: run0-train_epoch2\n", "11:00:00")
    nodes.raw(34, (0, 0), "PRE_SKIP node", "    DAG Node: run0-train_epoch3\n", "11:00:09")
    dagdir.write("e.dag.nodes.log", nodes.data)
    row = rows(dagdir.reader(live=True))["run0"]
    result = (row.epochs_done, row.epochs_skipped, row.epochs_total, row.hours.running)
    assert result == (2, 2, 4, 0.0)
    assert gate_symbol(row) is STOPPED
    assert row.latest.epoch == 1


def test_no_run_is_paused_without_a_dagman(dagdir: Dagdir) -> None:
    say(dagdir, "paused", {"node": "run0-train_epoch2", "epoch": 2, "time": "2026-05-04T11:00:00"})
    dagdir.append("e.dag.dagman.out", Out().exit(1, "12:00:00").data)
    gate = rows(dagdir.reader())["run0"].gate
    assert gate.paused is None


def test_invalid_files_are_warnings(dagdir: Dagdir) -> None:
    say(dagdir, "stopped", "\x1b[31mnothing")
    say(dagdir, "target", "x" * 70_000, OTHER)
    log = dagdir.path / "gate/e/gate.log"
    log.write_text("2026-05-04T11:00:00 run0-train_epoch2: x\n2026-05-04T11:01:00 n: disk full\n")
    found = [each for each in again(dagdir.reader()).warnings if each.kind == "gate"]
    assert [each.file for each in found] == [
        *(f"gate/e/{UUID}.stopped", f"gate/e/{OTHER}.target", "gate/e/gate.log")
    ]
    assert found[1].text.startswith("it is larger than")
    assert "disk full (2 lines in all)" in found[-1].text


@pytest.mark.parametrize("few", [500, 1])
def test_links_are_not_requests(dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """The gate follows none, also among many files."""
    monkeypatch.setattr(gate_files, "MAX_STATUSES", few)
    say(dagdir, "stop", uuid=OTHER)
    say(dagdir, "target", "delta", uuid=OTHER)
    (dagdir.path / "gate/e" / f"{UUID}.pause").symlink_to("/etc/hostname")
    found = rows(dagdir.reader(live=True))
    assert found["run0"].gate == GateStatus()
    assert found["run1"].gate.target == "delta"


def place(dagdir: Dagdir, node: str, site: str) -> None:
    folder = dagdir.path / "placement" / "e"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".new").write_text(f"ResourceName = {site}\n")
    os.replace(folder / ".new", folder / f"{node}.inc")


def test_node_has_its_requested_target(dagdir: Dagdir) -> None:
    reader = dagdir.reader(live=True)
    before = rows(reader)["run0"].latest
    assert (before.target, before.off_target) == ("any", False)
    place(dagdir, "run0-train_epoch1", "expanse")
    place(dagdir, "run0-train_epoch3", "anvil")
    status = again(reader)
    latest = next(row for row in status.runs if row.run == "run0").latest
    assert (latest.target, latest.site, latest.off_target) == ("expanse", "delta", True)
    view = reader.snapshot_builder().run_view(UUID)
    targets = ["any", "expanse", "any", "anvil"]
    assert [epoch.target for epoch in view.epochs] == targets
    jobs = {job.cluster: job.target for job in reader.snapshot_builder().job_rows()}
    assert jobs == {1: "any", 2: "expanse"}
    ledger = reader.snapshot_builder().ledger()
    sites = break_down(ledger).sites
    assert [(site.site, site.target) for site in sites] == [("delta", ("any", "expanse"))]
    assert [each.target for each in ledger.epochs if each.key == UUID] == targets
    place(dagdir, "run0-train_epoch1", "delta")
    again(reader)
    (site,) = break_down(reader.snapshot_builder().ledger()).sites
    assert site.target == ("any", "delta")


@pytest.mark.parametrize("few", [500, 1])
def test_placements_are_read_only_when_they_change(
    dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(gate_files, "MAX_STATUSES", few)
    for epoch in range(EPOCHS):
        place(dagdir, f"run1-train_epoch{epoch}", "expanse")
    read: list[str] = []
    plain = gate_files.read_file

    def content_of(path: str, most: int) -> bytes:
        read.append(os.path.basename(path))
        return plain(path, most)

    monkeypatch.setattr(gate_files, "read_file", content_of)
    reader = dagdir.reader(live=True)
    assert len(read) == EPOCHS
    for _ in range(3):
        reader.check()
    assert len(read) == EPOCHS
    place(dagdir, "run1-train_epoch2", "delta")
    reader.check()
    assert read[EPOCHS:] == ["run1-train_epoch2.inc"]


# --- texts ----------------------------------------------------------------------------------


def row_of(gate: GateStatus, state: State = State.RUNNING) -> Run:
    latest = blank(Epoch, epoch=1, epoch_var=2, node="run0-train_epoch1", state=state)
    row = Run("k", "run0", UUID, "e.dag", 4, 1, 0, 0, state, latest, GpuHours())
    return replace(row, gate=gate)


NOW = datetime(2026, 5, 4, 11)


@pytest.mark.parametrize(
    ("gate", "state", "report_of"),
    [
        (GateStatus(), State.RUNNING, []),
        (GateStatus(NOW), State.RUNNING, ["stops before epoch 3, when epoch 2 has ended"]),
        (GateStatus(NOW), State.COMPLETED, ["stops before epoch 3"]),
        (GateStatus(None, NOW), State.HELD, ["pauses before epoch 3, when epoch 2 has ended"]),
        (
            GateStatus(None, NOW, NOW),
            State.COMPLETED,
            ["paused before epoch 3 since 4 May 2026 11:00"],
        ),
        (GateStatus(target="Delta"), State.RUNNING, ["sends its next epochs to Delta"]),
        (
            GateStatus(stopped=Stopped("divergence", 2, "val_loss is NaN", NOW)),
            State.COMPLETED,
            ["stopped by divergence before epoch 3 at 4 May 2026 11:00: val_loss is NaN"],
        ),
        (GateStatus(stopped=Stopped("file", None, "", None)), State.COMPLETED, ["stopped"]),
    ],
)
def test_sentences_of_gates(gate: GateStatus, state: State, report_of: list[str]) -> None:
    assert gate_sentences(row_of(gate, state)) == report_of


def test_complete_run_has_no_request() -> None:
    row = row_of(GateStatus(NOW, NOW, target="a"), State.COMPLETED)
    assert row.has_open_request
    complete = replace(row, epochs_done=row.epochs_total)
    assert not complete.has_open_request
    assert gate_sentences(complete) == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("gate.py e.gate.json u 0 train $JOB", "e"),
        ("/usr/bin/python3 ./gate.py sub/my.e-2.gate.json u 0 train $JOB", "my.e-2"),
        ("true", None),
        ("x.gate.jsonx", None),
        (".gate.json", None),
    ],
)
def test_gate_is_named_by_its_command(command: str, name: str | None) -> None:
    workflow = load(f"JOB n n.sub\nSCRIPT PRE n {command}\n")
    assert gate_name(workflow.nodes["n"]) == name


def test_skipped_epochs_are_not_waited_for(dagdir: Dagdir) -> None:
    """Neither before its nodes are skipped, nor while an epoch of it ends."""

    def left() -> dict[str, tuple[int, str | None]]:
        builder = dagdir.reader(live=True, now="2026-05-04 10:30:00").snapshot_builder()
        basis = StatsInput(builder.status(), builder.ledger(), Settings())
        return {run.run: (run.epochs_left, run.missing_reason) for run in make_forecast(basis).runs}

    assert left()["run0"] == (3, None)
    say(dagdir, "stop")
    assert left()["run0"] == (1, None), "epoch 1 runs, and is the last one"
    say(dagdir, "stopped", {**STOPPING, "time": "2026-05-04T10:20:00"})
    assert left()["run0"] == (1, None)
    say(dagdir, "paused", {"epoch": 0, "time": "2026-05-04T10:10:00"}, OTHER)
    assert left()["run1"] == (4, "paused at its gate")


def test_request_is_shown_beside_the_state() -> None:
    running = row_of(GateStatus(target="anvil"))
    assert running.has_open_request
    (state,) = [spec for spec in columns([running]) if spec.name == "state"]
    assert "".join(piece for piece, _ in state.draw(running, None)) == "▶ running ◇"
    assert not row_of(GateStatus(None, NOW, NOW), State.COMPLETED).has_open_request, (
        "its sign tells it"
    )


@pytest.mark.parametrize("cells", [80, 200])
def test_reason_is_shown_for_the_selected_run(cells: int) -> None:
    stopped = GateStatus(stopped=Stopped("median", 2, "val_loss 0.8 is worse", NOW))
    result = cursor_detail(row_of(stopped, State.COMPLETED), set(), cells)
    text = " ".join("".join(piece for piece, _ in each).strip() for each in result)
    assert text.startswith("□ run0 stopped by the median before epoch 3 at 4 May 2026 11:00")
    assert text.endswith("val_loss 0.8 is worse")
    assert max(sum(len(piece) for piece, _ in each) for each in result) <= cells
    running = row_of(GateStatus())
    assert cursor_detail(running, {column.name for column in columns([running])}, 200) == [()]


def test_gate_keeps_its_last_state_during_a_stall(
    dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = dagdir.reader(live=True)
    say(dagdir, "pause")
    place(dagdir, "run0-train_epoch1", "expanse")
    plain = gate_files.call_with_timeout

    def ask(call: Any, path: Path, *more: Any) -> Any:
        if path.parent.name == "placement":
            raise NoAnswer("no answer", 0.0, path)
        return plain(call, path, *more)

    with monkeypatch.context() as patched:
        patched.setattr(gate_files, "call_with_timeout", ask)
        assert rows(reader)["run0"].latest is not None
    row = rows(reader)["run0"]
    assert row.latest.target == "expanse"
    assert row.gate.pause_requested is not None


def test_stopped_run_is_separate_in_estimates_and_lanes(dagdir: Dagdir) -> None:
    log = Log().submit(1, "run0-train_epoch0").execute(1, site="delta").terminate(1)
    dagdir.write("metl.log", log.data)
    say(dagdir, "stopped", {**STOPPING, "epoch": 1})
    say(dagdir, "paused", {"epoch": 0, "time": "2026-05-04T10:10:00"}, OTHER)
    builder = dagdir.reader(live=True, now="2026-05-04 10:30:00").snapshot_builder()
    basis = StatsInput(builder.status(), builder.ledger(), Settings())
    made = make_forecast(basis)
    assert [run_remaining_text(run).split()[0] for run in made.runs] == ["stopped", "paused"]
    assert remaining_text(made) == "paused: run1"
    assert epochs_text(made) == "1 of 8 epochs done"
    assert epochs_text(replace(made, epochs_skipped=3)) == "1 of 8 epochs done, 3 skipped"
    assert epochs_text(replace(made, epochs_unknown=2)) == "≥1 of 8 epochs done"
    assert [lane.symbol for lane in build_timeline(basis.ledger).lanes] == [STOPPED, PAUSED]


def test_epochs_held_at_a_gate_count_as_paused() -> None:
    states = {State.COMPLETED: 3, State.PRE: 3, State.WAITING: 4}

    def report_of(paused: int) -> str:
        return "".join(text for text, _ in state_counts(states, 80, paused))

    assert "◔ 3 pre script" in report_of(0)
    assert "◔ 1 pre script" in report_of(2)
    assert "◧ 2 paused" in report_of(2)
    assert "pre script" not in report_of(3)
    assert "◧ 3 paused" in report_of(5)


def test_epochs_have_gate_and_target(dagdir: Dagdir, capsys: Captured) -> None:
    say(dagdir, "pause")
    say(dagdir, "paused", {"node": "run0-train_epoch2", "epoch": 2, "time": "2026-05-04T11:00:00"})
    say(dagdir, "target", "expanse\n")
    waiting = Out().start("10:00:00").say("Running PRE script of Node run0-train_epoch2...")
    dagdir.write("e.dag.dagman.out", waiting.data)
    log = Log().submit(1, "run0-train_epoch0").execute(1, site="delta").terminate(1)
    log.submit(2, "run0-train_epoch1").execute(2, site="delta").terminate(2)
    dagdir.write("metl.log", log.data)
    reader = dagdir.reader()
    row = rows(reader)["run0"]
    view = reader.snapshot_builder().run_view(row.key)
    assert view is not None
    shown = {
        spec.name: [text(spec.draw(epoch, None)) for epoch in view.epochs]
        for spec in epochs_table.columns(view)
    }
    assert shown["state"][2:] == ["◧ paused", "· waiting"]
    assert shown["site"] == ["delta", "delta", "→ expanse", "→ expanse"]
    result = text(epochs_table.detail_line(view.epochs[2], 60, view.row))
    assert result == "waits at the gate since 4 May 2026 11:00"
    assert epochs_table.detail_line(view.epochs[3], 60, view.row) == ()
    printed = text_output("run", capsys, "run0", dagdir.path).splitlines()
    assert "waits at the gate since 4 May 2026 11:00" in printed
    assert any("◧ paused" in line and "expanse" in line for line in printed)
    lines = text_output("status", capsys, dagdir.path).splitlines()
    counts = next(line for line in lines if "8 epochs:" in line)
    assert "◧ 1 paused" in counts
    assert "pre script" not in counts


def test_node_skipped_by_its_gate_is_marked(dagdir: Dagdir) -> None:
    node = "run0-train_epoch2"
    log = Log().submit(1, "run0-train_epoch0").execute(1, site="delta").terminate(1)
    dagdir.write("metl.log", log.pre_skip(node).data)
    row = dagdir.reader().snapshot_builder().node_row(("e.dag", node))
    assert row is not None
    assert row_text.state_reason(row) == "its PRE script ended it without a job"
    say(dagdir, "stopped", STOPPING)
    reader = dagdir.reader()
    again(reader)
    row = reader.snapshot_builder().node_row(("e.dag", node))
    assert row.state is State.SKIPPED
    assert row_text.state_reason(row) == "skipped: the run was stopped (patience)"
