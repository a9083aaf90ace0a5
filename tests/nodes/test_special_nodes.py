"""PROVISIONER, SERVICE and FINAL nodes, and those of no run: on the overview and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import State
from metlmon.snapshot.derive import MOST_SPECIAL
from metlmon.snapshot.row_text import counted_states, state_reason
from metlmon.text.spans import text, width
from screens.overview.header import special_nodes
from tests.support.event_logs import Log, read_ensemble
from tests.support.json_writer import JsonWriter
from tests.support.node_graphs import PainterFeed, evaluated, evaluated_log, fan, fan_log
from tests.support.screen_view import NARROW, WIDE, Show


def test_they_are_reported_in_the_order_dagman_comes_to_them() -> None:
    status = read_ensemble({"run.dag": evaluated()}, evaluated_log()).painter().status()
    assert [(row.kind, row.node, row.state) for row in status.special_nodes] == [
        ("provisioner", "machines", State.RUNNING),
        ("service", "monitor", State.RUNNING),
        ("job", "init", State.COMPLETED),
        ("final", "report", State.WAITING),
    ]
    result = JsonWriter(lambda when: when).status(status)
    assert result["special_nodes"][0]["jobs"] == ["1.0"]
    assert result["special_nodes"][0]["kind"] == "provisioner"
    counts = {"total": 8, "done": 2, "failed": 0, "overruled": 1, "removed": 0}
    assert result["side_nodes"] == counts


def test_where_nothing_trains_only_those_outside_the_graph_are() -> None:
    status = read_ensemble({"run.dag": fan()}, fan_log()).painter().status()
    assert [row.node for row in status.special_nodes] == ["machines", "report"]


def test_an_ensemble_of_runs_alone_has_none() -> None:
    dag = "JOB run0-train_epoch0 a.sub\n"
    assert read_ensemble({"run.dag": dag}, Log()).painter().status().special_nodes == ()


def test_of_very_many_only_some_are_drawn_with_every_picture() -> None:
    dag = "JOB run0-train_epoch0 a.sub\n" + "".join(f"JOB n{n} a.sub\n" for n in range(200))
    status = read_ensemble({"run.dag": dag + "FINAL report a.sub\n"}, Log()).painter().status()
    assert len(status.special_nodes) == MOST_SPECIAL
    assert status.special_nodes[-1].node == "report"


def test_the_line_has_room_for_what_moves_and_what_is_in_trouble() -> None:
    painter = read_ensemble({"run.dag": evaluated()}, evaluated_log()).painter()
    rows = painter.status().special_nodes
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
def test_a_service_that_ends_with_its_dag_is_no_trouble(reason: str) -> None:
    dag = "JOB work a.sub\nSERVICE monitor m.sub\n"
    log = Log().submit(1, "monitor").execute(1).submit(2, "work").execute(2).terminate(2)
    painter = read_ensemble({"run.dag": dag}, log.remove(1, reason=reason)).painter()
    row = painter.node_row(("run.dag", "monitor"))
    assert row is not None
    assert row.state is State.COMPLETED
    assert state_reason(row) == "ended with its DAG"
    assert not row.overruled
    assert text(special_nodes([row], 80)) == "SERVICE monitor ✓ completed"
    status = painter.status()
    assert (status.dags[0].nodes_done, status.dags[0].nodes_total) == (1, 1)
    assert sum(counted_states(status).values()) == 1


def test_a_service_that_somebody_removed_is_removed() -> None:
    dag = "JOB work a.sub\nSERVICE monitor m.sub\n"
    log = Log().submit(1, "monitor").execute(1).submit(2, "work")
    painter = read_ensemble(
        {"run.dag": dag}, log.remove(1, reason="via condor_rm (by user anna)")
    ).painter()
    row = painter.node_row(("run.dag", "monitor"))
    assert row is not None
    assert row.state is State.REMOVED
    assert state_reason(row) == "its job was removed"


def test_a_real_recording(shared: Callable[[str], Path]) -> None:
    """fixtures/scripts: recorded on a real pool with every kind of node."""
    reader = DagdirReader(Path(__file__).resolve().parents[2] / "fixtures" / "scripts")
    reader.open()
    reader.read_all()
    painter = reader.snapshot_builder()
    found = {row.node: (row.kind, row.state) for row in painter.status().special_nodes}
    assert found == {
        "provision": ("provisioner", State.COMPLETED),
        "monitor": ("service", State.COMPLETED),
        "prepare": ("job", State.COMPLETED),
        "shards": ("job", State.COMPLETED),
        "badshards": ("job", State.FAILED),
        "extra": ("subdag", State.COMPLETED),
        "summary": ("final", State.COMPLETED),
    }
    overruled = painter.node_row(("ens.dag", "run4-train_epoch0"))
    assert overruled is not None
    assert overruled.overruled
    assert overruled.job_return == 3


async def test_the_overview_names_them(show: Show) -> None:
    feed = PainterFeed(read_ensemble({"run.dag": evaluated()}, evaluated_log()).painter())
    async with show(feed, size=WIDE) as seen:
        line = seen.line("PROVISIONER machines ▶ running")
        assert "SERVICE monitor ▶ running" in line
        assert "FINAL report · waiting" in line
    async with show(feed, size=NARROW) as seen:
        await seen.press("6", "slash", *"machines", "enter")
        assert "machines" in seen.under_cursor
        assert "running" in seen.under_cursor
