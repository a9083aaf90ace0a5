"""Evaluations beside their epochs, by the DAG's edges, and distinct from failed epochs."""

from __future__ import annotations

from metlmon.cli.status_text import print_status
from metlmon.health.build import make_health
from metlmon.jobfiles.records import Point, TrainingOutput
from metlmon.live.feed import StatsInput
from metlmon.model.states import State
from metlmon.snapshot.records import RunView
from metlmon.stats.curves import EvaluationResult
from metlmon.stats.estimates import make_forecast
from metlmon.text.record_json import json_of
from tests.support.builder_feed import BuilderFeed
from tests.support.commands import Captured
from tests.support.event_logs import Log, read_ensemble
from tests.support.node_graphs import evaluated, evaluated_log
from tests.support.screen_view import WIDE, opened

KEY = "0aaa1111"


def view_of(dag: str, log: Log) -> RunView:
    view = read_ensemble({"run.dag": dag}, log).builder().run_view(KEY)
    assert view is not None
    return view


def test_evaluation_of_another_run_is_separate() -> None:
    dag = evaluated() + "PARENT run0-train_epoch0 CHILD run1-eval_epoch4\n"
    view = view_of(dag, Log())
    assert [row.node for row in view.epochs[0].evaluations] == ["run0-eval_epoch1"]


def test_join_node_does_not_separate_evaluation_and_epoch() -> None:
    dag = evaluated(1, 2).replace("PARENT run0-train_epoch0 CHILD run0-eval_epoch1\n", "")
    dag += "JOB x a.sub\nPARENT run0-train_epoch0 x CHILD run0-eval_epoch1 run0-eval_epoch2\n"
    view = view_of(dag, Log())
    paired = [[row.node for row in epoch.evaluations] for epoch in view.epochs]
    assert paired == [["run0-eval_epoch1"], ["run0-eval_epoch2"]]


def test_passed_failed_evaluation_is_reported_as_such() -> None:
    builder = read_ensemble({"run.dag": evaluated()}, evaluated_log()).builder()
    view = builder.run_view(KEY)
    failed = view.epochs[1].evaluations[0]
    assert (failed.state, failed.job_state, failed.job_return) == (
        *(State.COMPLETED, State.FAILED),
        1,
    )
    assert failed.overruled
    assert not view.epochs[0].evaluations[0].overruled
    side = builder.status().side_nodes
    assert (side.total, side.done, side.failed, side.overruled) == (8, 2, 0, 1)
    assert builder.status().dags[0].nodes_failed == 0
    assert [[row.node for row in epoch.evaluations] for epoch in view.epochs] == [
        [f"run0-eval_epoch{n + 1}"] for n in range(4)
    ]
    assert view.other_side_nodes == ()
    side_node = json_of(view.side[1])
    assert (side_node["state"], side_node["job_state"]) == ("completed", "failed")


def printed(dag: str, log: Log, capsys: Captured) -> list[str]:
    builder = read_ensemble({"run.dag": dag}, log).builder()
    status = builder.status()
    stats = StatsInput(status, builder.ledger())
    print_status(stats, make_forecast(stats), make_health(stats))
    return capsys.readouterr().out.splitlines()


def test_text_status_has_held_and_running_evaluations(capsys: Captured) -> None:
    """As in the overview: no count of epochs includes them."""
    dag = "JOB run0-train_epoch0 a.sub\nJOB run0-eval_epoch1 e.sub\nJOB run0-eval_epoch2 e.sub\n"
    dag += "PARENT run0-train_epoch0 CHILD run0-eval_epoch1 run0-eval_epoch2\n"
    log = Log().submit(1, "run0-train_epoch0").execute(1).terminate(1)
    lines = printed(dag, log.submit(2, "run0-eval_epoch1").execute(2).hold(2), capsys)
    assert "Other nodes:  ■ 1 held" in lines
    lines = printed(dag, log.submit(3, "run0-eval_epoch2").execute(3), capsys)
    assert "Other nodes:  ▶ 1 running  ■ 1 held" in lines
    # Each is named once.
    lines = printed(evaluated(), evaluated_log().submit(22, "run0-eval_epoch3"), capsys)
    [text] = [line for line in lines if line.startswith("Other nodes:")]
    assert "PROVISIONER machines ▶ running" in text
    assert text.endswith("  ◦ 1 idle")


def feed() -> BuilderFeed:
    return BuilderFeed(read_ensemble({"run.dag": evaluated()}, evaluated_log()).builder())


async def test_evaluations_are_counted_and_shown_beside_epochs() -> None:
    async with opened(feed(), size=WIDE) as seen:
        assert "1 evaluation failed (POST script passed)" in seen.text, "and that is not an alarm"
        await seen.press("enter")
        assert "✗ job failed" in seen.line(" ✓ completed   ✗")
        assert "run0-eval_epoch2: return value 1; its POST script succeeded" in seen.text
        assert "side nodes" not in seen.text
        await seen.press("v")
        assert "✓ job failed" in seen.line("eval_epoch2  ")
        assert "EVAL" not in seen.text


async def test_values_of_an_evaluation_are_beside_its_epoch() -> None:
    shown = feed()
    points = {"eval_loss": (Point(0, 0.2308, 1, "a"),), "eval/pearson_a": (Point(0, 9.5, 1, "a"),)}
    shown.written = {
        KEY: TrainingOutput(KEY, points | {"val_loss": (Point(1, 7.5, 2, "b"),)}, {}, {})
    }
    async with opened(shown, size=WIDE) as seen:
        await seen.press("enter")
        assert "EVAL_LOSS" in seen.text
        assert "✓ 0.2308" in seen.line("  1  ✓ completed")
        assert "✗ job failed" in seen.line("  2  ✓ completed")
        assert "9.5" not in seen.text


def test_values_are_paired_by_version() -> None:
    view = view_of(evaluated(), evaluated_log())
    first, second = view.epochs[:2]
    by_version = EvaluationResult("eval_loss", {2: 0.5}, {0: 0.7})
    assert by_version.value(first.evaluations[0], first) is None
    assert by_version.value(second.evaluations[0], second) == 0.5
    by_epoch = EvaluationResult("eval_loss", {}, {0: 0.7})
    assert by_epoch.value(first.evaluations[0], first) == 0.7
