"""``export --to optuna``: studies loaded by Optuna agree with ``grid --json``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from metlmon.cli import Exit
from metlmon.stats.sweep import Variable
from metlmon.tracking.optuna_journal import distribution_of, typed_value
from tests.generated import sweeps
from tests.support.commands import Captured, json_output, run_command, usage_error
from tests.support.recordings import FIXTURES
from tests.support.shared_readers import shared_readers

ZONE: Final = ("--tz", "America/Chicago")
SWEEPS: Final = ("gated", "trainer", "generated", "scripts")


@pytest.fixture(autouse=True, scope="module")
def _read_once() -> Iterator[None]:
    """Each sweep is read once, in one zone."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with shared_readers(lambda path: True):
        yield


@pytest.fixture(name="generated", scope="module")
def _generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A running sweep: some of its runs are done, held, unsubmitted, or have a NaN."""
    path = tmp_path_factory.mktemp("sweep")
    sweeps.write(path)
    return path


@pytest.fixture(name="dagdir", params=SWEEPS)
def _dagdir(request: pytest.FixtureRequest, generated: Path) -> Path:
    return generated if request.param == "generated" else FIXTURES / str(request.param)


def written(capsys: Captured, dagdir: Path, file: Path, *options: str) -> Path:
    words = (dagdir, "--out", file, *ZONE, *options)
    code, out, err = run_command("export --to optuna", capsys, *words)
    assert (code, out) == (Exit.OK, "")
    assert f"{file} written" in err
    return file


def load(file: Path) -> optuna.Study:
    return optuna.load_study(study_name=None, storage=JournalStorage(JournalFileBackend(str(file))))


@pytest.fixture(name="study")
def _study(dagdir: Path, capsys: Captured, tmp_path: Path) -> optuna.Study:
    return load(written(capsys, dagdir, tmp_path / "study.journal"))


def _typed(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _state(run: dict[str, Any]) -> TrialState:
    """Optuna's state for a run of ``grid --json``."""
    if run["stopped"]:
        return TrialState.PRUNED
    if run["epochs_done"] + run["epochs_skipped"] >= run["epochs_total"]:
        return TrialState.COMPLETE if run["reached"] is not None else TrialState.FAIL
    if run["state"] in ("failed", "removed", "futile"):
        return TrialState.FAIL
    begun = run["epochs_done"] or run["state"] != "waiting"
    return TrialState.RUNNING if begun else TrialState.WAITING


def test_trials_agree_with_the_grid(dagdir: Path, study: optuna.Study, capsys: Captured) -> None:
    cells = json_output("grid", capsys, dagdir, *ZONE)["cells"]
    runs = {run["run"]: run for cell in cells for run in cell["runs"]}
    rows = json_output("status", capsys, dagdir, *ZONE)["runs"]
    assert [trial.user_attrs["run"] for trial in study.trials] == [row["run"] for row in rows]
    for trial, row in zip(study.trials, rows, strict=True):
        run = runs[row["run"]]
        assert trial.state is _state(run), row["run"]
        ranked = trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        assert trial.value == (run["reached"]["value"] if ranked else None)
        swept = {name: text for name, text in row["swept"].items() if text is not None}
        assert trial.params == {name: _typed(text) for name, text in swept.items()}
        attributes = trial.user_attrs
        assert (attributes["uuid"], attributes["state"]) == (row["uuid"], run["state"])
        assert attributes["stopped"] == run["stopped"]
        assert attributes["goodput_gpu_hours"] == pytest.approx(row["hours"]["goodput"], abs=1e-6)
        assert attributes["badput_gpu_hours"] == pytest.approx(row["hours"]["badput"], abs=1e-6)
    if dagdir.name == "gated":
        assert [trial.state.name for trial in study.trials].count("PRUNED") == 3


def test_study_agrees_with_its_generator(generated: Path, capsys: Captured, tmp_path: Path) -> None:
    """Its losses are a function of the parameters and the epoch."""
    study = load(written(capsys, generated, tmp_path / "study.journal"))
    points = [(rate, width) for rate in sweeps.RATES for width in sweeps.WIDTHS]
    assert len(study.trials) == len(points)
    for index, (trial, (rate, width)) in enumerate(zip(study.trials, points, strict=True)):
        assert trial.params == {"lr": float(rate), "width": int(width)}
        losses = [
            round(sweeps.loss(rate, width, epoch), 5) for epoch in range(sweeps.reached(index))
        ]
        intermediate = dict(enumerate(losses))
        assert trial.intermediate_values == pytest.approx(intermediate, nan_ok=True, abs=0)
        if trial.state is TrialState.COMPLETE:
            assert len(losses) == sweeps.EPOCHS
            assert trial.value == min(loss for loss in losses if math.isfinite(loss))
        else:
            assert trial.state is (TrialState.RUNNING if losses else TrialState.WAITING)
    complete = [trial for trial in study.trials if trial.state is TrialState.COMPLETE]
    assert study.best_value == min(trial.value for trial in complete if trial.value is not None)


def test_optuna_continues_the_study(capsys: Captured, tmp_path: Path) -> None:
    study = load(written(capsys, FIXTURES / "trainer", tmp_path / "study.journal"))
    before = len(study.trials)
    trial = study.ask(study.best_trial.distributions)
    study.tell(trial, 0.1)
    again = load(tmp_path / "study.journal")
    assert len(again.trials) == before + 1
    assert again.best_trial.number == trial.number == before


def test_maximised_metric(capsys: Captured, tmp_path: Path) -> None:
    metrics = json_output("grid", capsys, FIXTURES / "trainer", *ZONE)["metrics"]
    assert len(metrics) > 1
    goals = set()
    for number, name in enumerate(metrics):
        sweep = json_output("grid", capsys, FIXTURES / "trainer", *ZONE, "--metric", name)
        goals.add(sweep["goal"])
        file = tmp_path / str(number)
        if sweep["goal"] is None:
            words = ("--out", file, *ZONE, "--metric", name)
            error = usage_error("export --to optuna", capsys, FIXTURES / "trainer", *words)
            assert "--metric" in error
            continue
        study = load(written(capsys, FIXTURES / "trainer", file, "--metric", name))
        assert study.metric_names == [name]
        assert study.direction.name == {"min": "MINIMIZE", "max": "MAXIMIZE"}[sweep["goal"]]
        assert study.best_value == sweep["best"]["runs"][0]["reached"]["value"]
    assert {"min", "max"} <= goals


def test_ensemble_without_a_sweep_is_one_sentence(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "x.journal"
    demo = FIXTURES / "demo"
    assert "No sweep here" in usage_error("export --to optuna", capsys, demo, "--out", file)
    assert not file.exists()
    inside = usage_error("export --to optuna", capsys, demo, "--out", demo / "x.journal")
    assert "in the dagdir" in inside
    assert "no run has it" in usage_error(
        "export --to optuna", capsys, FIXTURES / "trainer", "--out", file, "--metric", "nothing"
    )


@pytest.mark.parametrize(
    ("values", "kind", "typed"),
    [
        (("32", "64", "1024"), "Int", (32, 64, 1024)),
        (("-1", "+3", None), "Int", (-1, 3)),
        (("1e-4", "0.001", ".5", "2."), "Float", (1e-4, 0.001, 0.5, 2.0)),
        (("1", "2.5"), "Float", (1.0, 2.5)),
        (("relu", "gelu"), "Categorical", ("relu", "gelu")),
        (("1", "many"), "Categorical", ("1", "many")),
        (("nan", "inf", "1_000"), "Categorical", ("nan", "inf", "1_000")),
        (("1e999", "1"), "Categorical", ("1e999", "1")),
        (("9007199254740993", "1"), "Float", (9007199254740993.0, 1.0)),
        (("", 'a"\n'), "Categorical", ("", 'a"\n')),
    ],
)
def test_distributions_are_valid_in_optuna(
    values: tuple[str | None, ...], kind: str, typed: tuple[Any, ...]
) -> None:
    distribution = distribution_of(Variable("x", values))
    assert type(distribution).__name__ == f"{kind}Distribution"
    made = tuple(typed_value(distribution, value) for value in values if value is not None)
    assert made == typed
    # A journal has floats.
    stored = map(distribution.to_internal_repr, made)
    assert tuple(map(distribution.to_external_repr, stored)) == typed
