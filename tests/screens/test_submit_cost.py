"""The expected cost of an ensemble, from the epochs of another one."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from statistics import fmean

import pytest
from msgspec.structs import replace

from metlmon.authoring.request import Request
from metlmon.cli.main import main
from metlmon.live.feed import StatsInput
from metlmon.stats.cost import CostHistory, cost_estimate_lines, cost_history, estimate_cost
from metlmon.text.spans import text
from screens.submit import FormState, build_preview, validate_form
from tests.support.commands import Captured, text_output
from tests.support.event_logs import Log
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir, stats_input


@pytest.fixture(scope="module")
def first_round() -> StatsInput:
    return stats_input(read_dagdir(FIXTURES / "first-round"))


def test_past_epochs_are_completed_ones_with_all_tries(first_round: StatsInput) -> None:
    """Counted independently, execution by execution."""
    made = cost_history(first_round)
    assert made is not None
    hours: dict[tuple[str, int | None], float] = {}
    completed: set[tuple[str, int | None]] = set()
    lost = 0.0
    for each in first_round.ledger.executions:
        if each.training and each.key is not None:
            key = (each.key, each.epoch)
            hours[key] = hours.get(key, 0.0) + (each.gpu_seconds or 0.0) / 3600
            if each.final:
                completed.add(key)
    lost = sum(
        (each.gpu_seconds or 0.0) / 3600
        for each in first_round.ledger.executions
        if (each.key, each.epoch) in completed and each.kind == "badput"
    )
    spent = [hours[key] for key in completed]
    assert made.epochs == len(spent) == 630
    assert made.gpu_hours == pytest.approx(fmean(spent))
    assert made.lost_share == pytest.approx(lost / sum(spent))
    assert made.lower < made.gpu_hours < made.upper
    assert sum(value <= made.lower for value in spent) / len(spent) == pytest.approx(0.25, abs=0.01)


def test_interval_of_the_sum_holds_in_four_of_five_cases() -> None:
    """Ensembles whose runs differ, and in them epochs; the past one and the one to come are of the
    same kind, and of another size."""
    dice, inside = Random(7), 0

    def runs(number: int, epochs: int) -> list[list[float]]:
        means = [dice.lognormvariate(0, 0.3) for _ in range(number)]
        return [[mean * dice.lognormvariate(0, 0.5) for _ in range(epochs)] for mean in means]

    for _ in range(400):
        made = estimate_cost(CostHistory.from_runs(runs(6, 12)), 4 * 8, 8)
        assert made.lower <= made.gpu_hours <= made.upper
        inside += made.lower <= sum(map(sum, runs(4, 8))) <= made.upper
    assert 0.76 <= inside / 400 <= 0.9


def test_cost_has_its_number_of_gpus(first_round: StatsInput) -> None:
    known = cost_history(first_round)
    assert known is not None
    gpus = {each.gpus for each in first_round.ledger.epochs if each.gpus is not None}
    assert known.gpus == (min(gpus), max(gpus)) == (1, 4)
    made = estimate_cost(known, 600, 30, 8, evaluations=True)
    assert made is not None
    first, *more = cost_estimate_lines(made, "it")
    assert first.endswith(", evaluations not in it")
    assert "GPU-hours each on 1–4 GPUs" in more[-2]
    assert more[-1] == "these ask for 8 GPUs each: epochs that take as long cost in proportion"
    alike = estimate_cost(replace(known, gpus=(2, 2)), 600, 30, 2)
    assert alike is not None
    assert not any("these ask" in each for each in cost_estimate_lines(alike, "it"))


def test_all_machines_of_an_epoch_are_counted(tmp_path: Path) -> None:
    log, dag = Log(), ""
    for n in range(3):
        node = f"run{n}-train_epoch0"
        dag += f"JOB {node} train.sub\n"
        for proc in range(2):
            log.submit((100 + n, proc), node)
        for proc in range(2):
            log.execute((100 + n, proc), gpus=4)
        for proc in range(2):
            log.terminate((100 + n, proc))
    (tmp_path / "x.dag").write_text(dag)
    (tmp_path / "train.sub").write_text("executable = a.sh\nlog = metl.log\nqueue 2\n")
    (tmp_path / "metl.log").write_bytes(log.data)
    known = cost_history(stats_input(read_dagdir(tmp_path)))
    assert known.gpus == (8, 8)
    # Two machines of four GPUs, two minutes each.
    assert known.gpu_hours == pytest.approx(8 * 2 / 60)


def test_too_few_epochs_give_no_cost(first_round: StatsInput, tmp_path: Path) -> None:
    (tmp_path / "ens.dag").write_text("JOB run0-train_epoch0 ens.sub\n")
    assert cost_history(stats_input(read_dagdir(tmp_path))) is None
    assert estimate_cost(None, 600, 30) is None
    assert estimate_cost(cost_history(first_round), 0, 0) is None


def test_form_shows_the_cost(first_round: StatsInput, tmp_path: Path) -> None:
    known = cost_history(first_round)
    made = estimate_cost(known, 600, 30, 1)
    assert made is not None
    request = Request("trainer", tmp_path / "ens", runs=20, epochs=30)
    verdict = validate_form(FormState.from_request(request))
    lines = [text(each) for each in build_preview(verdict, 100, known).lines[:6]]
    assert next(iter(cost_estimate_lines(made, "it"))) in "\n".join(lines)
    unknown = [text(each) for each in build_preview(verdict, 100).lines]
    assert "train_epoch0 ─▶" in "\n".join(unknown[:8])
    bare = "\n".join(unknown[:6])
    assert "GPU-hours" not in bare, "nothing is known of the past"


def test_command_prints_the_cost(first_round: StatsInput, tmp_path: Path, capsys: Captured) -> None:
    result = ["new", str(tmp_path / "ens"), "--runs", "20", "--epochs", "30", "--dry-run"]
    assert main([*result, "--past", str(FIXTURES / "first-round"), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)["cost"]
    made = estimate_cost(cost_history(first_round), 600, 30)
    assert reported["gpu_hours"] == pytest.approx(made.gpu_hours)
    assert reported["history"]["epochs"] == 630
    assert main([*result, "--past", str(tmp_path)]) == 2, "there is no DAG in it"
    assert "no DAG file here" in capsys.readouterr().err
    assert "GEN SUBDAG" in text_output("new", capsys, "--example", "sweep-file")
