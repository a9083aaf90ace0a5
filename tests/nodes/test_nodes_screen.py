"""The screen of nodes: folding, opening, filtering; and the overview of a DAG without training."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.model.states import State
from metlmon.snapshot.records import Progress
from metlmon.snapshot.row_text import state_reason
from metlmon.text.record_json import json_of
from metlmon.text.spans import text, width
from screens.overview import special_nodes
from tests.support.acting_app import opened_to_act
from tests.support.builder_feed import BuilderFeed
from tests.support.commands import Captured, text_output
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log, Out, read_ensemble
from tests.support.node_graphs import evaluated, evaluated_log, fan, fan_log
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir
from tests.support.screen_view import NARROW, WIDE, opened


def feed(width: int = 40, log: Log | None = None) -> BuilderFeed:
    return BuilderFeed(read_ensemble({"run.dag": fan(width)}, log or fan_log()).builder())


async def test_trouble_is_first_and_rows_fold_and_unfold() -> None:
    async with opened(feed(), size=WIDE) as seen:
        await seen.press("6")
        rows = [line for line in seen.lines if "work_" in line]
        assert "■ held" in rows[0]
        assert "✗ failed" in rows[1]
        assert "8 × work_016 … 023" in rows[2]
        assert "waits for work_003" in seen.line("gather")
        await seen.press("down", "down", "down")
        assert "8 × work_016" in seen.under_cursor
        await seen.press("right")
        assert "work_019" in seen.text
        await seen.press("down", "left")
        assert "8 × work_016" in seen.under_cursor
        await seen.press("left")
        assert "work_019" not in seen.text
        await seen.press("enter")
        assert "work_019" in seen.text
        await seen.press("minus")
        assert "   work_003" not in seen.text
        await seen.press("plus")
        assert "work_019" in seen.text


async def test_enter_opens_the_latest_job_or_explains_its_absence() -> None:
    async with opened(feed(), size=WIDE) as seen:
        await seen.press("6", "down", "enter")
        assert "13.0" in seen.text
        await seen.press("escape", "G", "enter")
        assert "it has no job to open: waits for the end of all others" in seen.text
        await seen.press("slash", *"gather", "enter", "enter")
        assert "no job to open: waits for work_003, work_007, work_016" in seen.text
        part = seen.feed.latest
        assert part is not None
        await seen.publish(replace(part, progress=Progress(1, 2)))
        await seen.press("enter")
        assert "still being read" in seen.text
        assert "no job to open" not in seen.text


async def test_narrow_reason_begins_with_what_is_wrong() -> None:
    builder = read_dagdir(FIXTURES / "health/submit-failed")
    async with opened(BuilderFeed(builder), NARROW) as seen:
        await seen.press("6")
        assert " on Line 0 of train" in seen.line("run0-train_epoch0  ✗")


async def test_filter_and_faults_show_only_nodes() -> None:
    async with opened(feed(), size=WIDE) as seen:
        await seen.press("6", "slash", *"idle", "enter")
        assert "6 of 44 nodes" in seen.text
        await seen.press("escape", "f")
        assert "2 of 44 nodes" in seen.text
        assert "gather" not in "".join(seen.lines[3:])
        await seen.press("f")
        assert "gather" in seen.text
        await seen.press("slash", *"nothing like it", "enter")
        assert "No node has this in any column." in seen.text


async def test_overview_shows_nodes_of_a_dag_without_training() -> None:
    async with opened(feed(), size=(80, 32)) as seen:
        assert "44 nodes" in seen.text
        assert "■ held" in seen.line("work_003")
        assert "PROVISIONER machines · waiting" in seen.text
        await seen.press("down", "enter")
        assert "13.0" in seen.text
        await seen.press("escape", "minus")
        assert "   work_003" not in seen.text
        await seen.press("6")
        assert " Nodes  44" in seen.text


@pytest.mark.parametrize("keys", [(), ("6",)], ids=["overview", "nodes"])
async def test_marked_node_is_acted_on_though_filtered_out(keys: tuple[str, ...]) -> None:
    async with opened_to_act(feed=feed(), size=WIDE) as seen:
        await seen.press(*keys, "slash", *"held", "enter", "space")
        await seen.press("escape", "slash", *"failed", "enter", "a")
        assert "Act on work_003" in seen.text
        assert "job 13.0" in seen.line("release")
        await seen.press("escape", "escape", "escape", "ctrl+a")
        assert " marked, [esc] clears" in seen.text, "nothing compares nodes"
        await seen.press("ctrl+a", "home")
        while "8 × work" not in seen.under_cursor:
            await seen.press("down")
        await seen.press("space")
        assert "a mark is for one node" in seen.text
        assert "marked" not in seen.text


async def test_cursor_stays_on_its_node() -> None:
    shown = feed()
    async with opened(shown, size=WIDE) as seen:
        await seen.press("6", "down", "down")
        assert "work_007" in seen.under_cursor
        log = fan_log().release(13).execute(13).terminate(13)
        later = feed(log=log)
        shown.builder = later.builder
        assert later.latest is not None
        await seen.publish(later.latest)
        assert "work_007" in seen.under_cursor
        assert "■ held" not in seen.text


# --- ``metlmon nodes``: as a table, by state, and as JSON -------------------------------------


@pytest.fixture
def dagdir(tmp_path: Path) -> str:
    (tmp_path / "fan.dag").write_text(fan())
    for name in "agpr":
        (tmp_path / f"{name}.sub").write_text("executable = /bin/true\nlog = metl.log\nqueue\n")
    (tmp_path / "metl.log").write_bytes(fan_log().data)
    return str(tmp_path)


def test_nodes_in_trouble_come_first(dagdir: str, capsys: Captured) -> None:
    lines = text_output("nodes", capsys, dagdir).splitlines()
    assert lines[0] == "44 nodes"
    assert lines[2].split()[1] == "init"
    assert "work_003" in lines[3]
    assert "memory usage exceeded request_memory" in lines[3]
    assert "return value 3, 2 retries left" in lines[4]
    assert any("8 × work_016 … 023" in line and "▶ running" in line for line in lines)
    gather = next(line for line in lines if " gather " in line)
    assert "waits for work_003, work_007, work_016 and 23 more" in gather


# --- PROVISIONER, SERVICE and FINAL nodes, and those of no run --------------------------------


def test_special_nodes_are_in_dagmans_order() -> None:
    status = read_ensemble({"run.dag": evaluated()}, evaluated_log()).builder().status()
    assert [(row.kind, row.node, row.state) for row in status.special_nodes] == [
        ("provisioner", "machines", State.RUNNING),
        ("service", "monitor", State.RUNNING),
        ("job", "init", State.COMPLETED),
        ("final", "report", State.WAITING),
    ]
    result = json_of(status)
    assert result["special_nodes"][0]["jobs"] == ["1.0"]
    assert result["special_nodes"][0]["kind"] == "provisioner"
    counts = {"total": 8, "done": 2, "failed": 0, "overruled": 1, "removed": 0}
    assert result["side_nodes"] == counts


def test_line_has_room_for_active_and_failed_nodes() -> None:
    builder = read_ensemble({"run.dag": evaluated()}, evaluated_log()).builder()
    rows = builder.status().special_nodes
    whole = text(special_nodes(rows, 200))
    assert whole.startswith("PROVISIONER machines ▶ running 21m00s")
    assert whole.endswith("FINAL report · waiting")
    for cells in range(20, 200):
        made = special_nodes(rows, cells)
        assert width(made) <= cells
    assert "machines" in text(special_nodes(rows, 60))
    assert "more [6]" in text(special_nodes(rows, 60))


SWEPT = "removed because <OtherJobRemoveRequirements = DAGManJobId =?= 9> fired when job (9.0)"


@pytest.mark.parametrize("reason", [SWEPT, "Removed by DAGMan (by user anna)"])
def test_service_that_ends_with_its_dag_is_no_trouble(reason: str) -> None:
    dag = "JOB work a.sub\nSERVICE monitor m.sub\n"
    log = Log().submit(1, "monitor").execute(1).submit(2, "work").execute(2).terminate(2)
    builder = read_ensemble({"run.dag": dag}, log.remove(1, reason=reason)).builder()
    row = builder.node_row(("run.dag", "monitor"))
    assert row.state is State.COMPLETED
    assert state_reason(row) == "ended with its DAG"
    assert not row.overruled
    assert text(special_nodes([row], 80)) == "SERVICE monitor ✓ completed"
    status = builder.status()
    assert (status.dags[0].nodes_done, status.dags[0].nodes_total) == (1, 1)
    assert sum(status.counted_states.values()) == 1


def test_service_that_was_not_submitted_before_the_end_is_not_awaited(tmp_path: Path) -> None:
    dagdir, out = Dagdir(tmp_path, "JOB work a.sub\nSERVICE monitor m.sub\n"), Out().start()
    for reason in ("not submitted yet", "its DAG ended before it was submitted"):
        dagdir.write("run.dag.dagman.out", out.data)
        row = dagdir.reader().snapshot_builder().node_row(("run.dag", "monitor"))
        assert (row.state, state_reason(row)) == (State.WAITING, reason)
        out.exit()


POLICY = "The job attribute PeriodicRemove expression 'n > 9' evaluated to TRUE"
REMOVERS = {"via condor_rm (by user anna)": "", POLICY: " by the job's policy"}


@pytest.mark.parametrize("reason", REMOVERS)
def test_removed_service_is_removed_by_whom_the_log_names(reason: str) -> None:
    log = Log().submit(1, "monitor").execute(1).submit(2, "work").remove(1, reason=reason)
    dag = "JOB work a.sub\nSERVICE monitor m.sub\n"
    row = read_ensemble({"run.dag": dag}, log).builder().node_row(("run.dag", "monitor"))
    assert row.state is State.REMOVED
    assert state_reason(row) == f"its job was removed{REMOVERS[reason]}"


async def test_overview_names_special_nodes() -> None:
    feed = BuilderFeed(read_ensemble({"run.dag": evaluated()}, evaluated_log()).builder())
    async with opened(feed, size=WIDE) as seen:
        line = seen.line("PROVISIONER machines ▶ running")
        assert "SERVICE monitor ▶ running" in line
        assert "FINAL report · waiting" in line
    async with opened(feed, size=NARROW) as seen:
        await seen.press("6", "slash", *"machines", "enter")
        assert "machines" in seen.under_cursor
        assert "running" in seen.under_cursor
