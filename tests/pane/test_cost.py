"""What an ensemble would cost, by what epochs of another one did."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from metlmon.authoring.records import Request
from metlmon.cli.main import main
from metlmon.live.reader import Reader
from metlmon.live.settings import load_settings
from metlmon.stats.cost import cost, past, told
from metlmon.stats.study import Basis
from screens.ink import text
from screens.submitform import Draft
from screens.submitplan import judged
from screens.submitpreview import preview

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def basis_of(directory: Path) -> Basis:
    reader = Reader(directory, load_settings(directory))
    reader.open()
    reader.read_all()
    painter = reader.painter()
    return Basis(painter.status(), painter.ledger())


@pytest.fixture(scope="module")
def first_round() -> Basis:
    return basis_of(FIXTURES / "first-round")


def test_past_epochs_are_those_that_were_completed_with_all_their_tries(
    first_round: Basis,
) -> None:
    """Added up a second way, execution by execution."""
    made = past(first_round)
    assert made is not None
    hours: dict[tuple[str, int | None], float] = {}
    completed: set[tuple[str, int | None]] = set()
    lost = 0.0
    for each in first_round.ledger.executions:
        if each.training and each.run is not None:
            key = (each.run, each.epoch)
            hours[key] = hours.get(key, 0.0) + (each.gpu_seconds or 0.0) / 3600
            if each.final:
                completed.add(key)
    lost = sum(
        (each.gpu_seconds or 0.0) / 3600
        for each in first_round.ledger.executions
        if (each.run, each.epoch) in completed and each.kind == "bad"
    )
    spent = [hours[key] for key in completed]
    assert made.epochs == len(spent) == 630
    assert made.hours == pytest.approx(fmean(spent))
    assert made.lost == pytest.approx(lost / sum(spent))
    assert made.lower < made.hours < made.upper
    assert sum(value <= made.lower for value in spent) / len(spent) == pytest.approx(0.25, abs=0.01)


def test_the_cost_is_so_many_times_that_of_an_epoch(first_round: Basis) -> None:
    known = past(first_round)
    assert known is not None
    assert known.cycle is not None
    made = cost(known, 600, 30)
    assert made is not None
    assert made.hours == pytest.approx(600 * known.hours)
    assert (made.lower, made.upper) == pytest.approx((600 * known.lower, 600 * known.upper))
    assert made.seconds == pytest.approx(30 * known.cycle)
    words = list(told(made, "it"))
    assert words[0].startswith("about ")
    assert "GPU-hours" in words[0]
    assert "630 epochs" in words[-1]


def test_nothing_is_told_where_too_few_epochs_tell(tmp_path: Path) -> None:
    (tmp_path / "ens.dag").write_text("JOB run0-train_epoch0 ens.sub\n")
    assert past(basis_of(tmp_path)) is None
    assert cost(None, 600, 30) is None


def test_what_has_no_epochs_costs_no_epochs(first_round: Basis) -> None:
    assert cost(past(first_round), 0, 0) is None


def test_the_form_tells_the_cost_by_the_ensemble_on_the_screen(
    first_round: Basis, tmp_path: Path
) -> None:
    known = past(first_round)
    made = cost(known, 600, 30)
    assert made is not None
    request = Request("trainer", tmp_path / "ens", runs=20, epochs=30)
    verdict = judged(Draft.of(request))
    lines = [text(each) for each in preview(verdict, 100, False, known)[:6]]
    assert next(iter(told(made, "it"))) in "\n".join(lines)
    assert "train_epoch0 ─▶" in "\n".join(text(each) for each in preview(verdict, 100, False)[:8])
    bare = "\n".join(text(each) for each in preview(verdict, 100, False)[:6])
    assert "GPU-hours" not in bare, "nothing is known of the past"


def test_the_command_tells_the_cost_and_what_a_sweep_file_may_say(
    first_round: Basis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ["new", str(tmp_path / "ens"), "--runs", "20", "--epochs", "30", "--dry-run"]
    assert main([*said, "--past", str(FIXTURES / "first-round"), "--json"]) == 0
    told_so = json.loads(capsys.readouterr().out)["cost"]
    made = cost(past(first_round), 600, 30)
    assert made is not None
    assert told_so["gpu_hours"] == pytest.approx(made.hours)
    assert told_so["past"]["epochs"] == 630
    assert main([*said, "--past", str(tmp_path)]) == 2, "there is no DAG in it"
    assert "no DAG file here" in capsys.readouterr().err
    assert main(["new", "--example", "sweep-file"]) == 0
    assert "GEN SUBDAG" in capsys.readouterr().out
