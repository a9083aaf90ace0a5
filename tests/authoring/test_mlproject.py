"""``metlmon new --mlproject``: parameters, files, and the script that needs no HTCondor."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.authoring.description import example, read_description
from metlmon.authoring.mlproject import (
    CONFIGURATION,
    project_parameters,
    with_configuration,
    with_parameters,
)
from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import (
    EnsembleShape,
    Evaluation,
    PlanError,
    Policy,
    Request,
    SweepRequest,
    SweptVariable,
)
from metlmon.authoring.templates import template_for
from metlmon.authoring.write_files import write_plan
from metlmon.cli import Exit
from tests.support.commands import Captured, run_command
from tests.support.sample_requests import NAP, a_request, text_of

FILES = ["MLproject", "python_env.yaml", "ensemble.local.sh", "gateway_config.json"]

RECORDING = NAP.replace("executable = nap.sh", "executable = nap.sh\ntransfer_output_files = out")
RECORD = b'#!/bin/sh\nmkdir -p out\necho "$@" >> out/epochs\n'
"""A job that records its arguments."""


def request_of(shape: EnsembleShape, tmp_path: Path) -> Request:
    """The example of a shape, with other values."""
    path = tmp_path / "ensemble.toml"
    path.write_text(example(shape, template_for(shape)) + '[values]\ndisk = "7GB"\n')
    return read_description(path, tmp_path / "new")


# --- parameters ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", EnsembleShape)
def test_defaults_of_parameters_are_the_ensemble(shape: EnsembleShape, tmp_path: Path) -> None:
    request = request_of(shape, tmp_path)
    defaults = {each.name: each.default for each in project_parameters(request)}
    assert defaults["disk"] == "7GB"
    assert not defaults.keys() & CONFIGURATION.keys()
    changed = with_parameters(request, defaults)
    plan, again = make_plan(request), make_plan(changed)
    assert again.runs == plan.runs
    for name in ("ensemble.dag", *(["ensemble.sub"] * (shape is not EnsembleShape.STAGES))):
        assert text_of(again, name) == text_of(plan, name)


def test_each_shape_has_its_parameters(tmp_path: Path) -> None:
    numbers = {
        shape.value: [each.name for each in project_parameters(request_of(shape, tmp_path))
                      if each.is_count]
        for shape in EnsembleShape
    }  # fmt: skip
    assert numbers == {
        "chain": ["runs", "epochs"],
        "sweep": ["epochs"],
        "stages": ["runs"],
        "bag": ["shards"],
        "multi-node": ["runs", "epochs", "machines"],
    }


def test_parameters_change_the_ensemble(tmp_path: Path) -> None:
    request = request_of(EnsembleShape.CHAIN, tmp_path)
    changed = with_parameters(request, {"runs": "6", "epochs": " 9 ", "learning_rate": "0.5"})
    assert (changed.runs, changed.epochs) == (6, 9)
    assert changed.values["learning_rate"] == "0.5"
    assert changed.values["disk"] == "7GB"
    # Seeds give the number of runs.
    changed = with_parameters(request, {"seeds": "11-15"})
    assert (changed.seeds, changed.runs) == ((11, 12, 13, 14, 15), 5)
    assert with_parameters(request, {"seeds": "3,4", "runs": "7"}).runs == 7


def test_swept_variables_are_parameters(tmp_path: Path) -> None:
    request = request_of(EnsembleShape.SWEEP, tmp_path)
    changed = with_parameters(request, {"learning_rate": "0.1 to 0.3 by 0.1"})
    values = {each.name: each.values for each in changed.sweep.variables}
    assert values == {"learning_rate": ("0.1", "0.2", "0.3"), "batch_size": ("16", "32")}
    assert len(make_plan(changed).runs) == 6


def test_swept_texts_are_unchanged(tmp_path: Path) -> None:
    odd = ("a, b", 'say "c"', "it's", "back\\slash", " blank ")
    sweep = SweepRequest("run", (SweptVariable("text", odd, ""),))
    request = Request("trainer", tmp_path, shape=EnsembleShape.SWEEP, sweep=sweep)
    (parameter,) = (each for each in project_parameters(request) if each.name == "text")
    changed = with_parameters(request, {"text": parameter.default})
    assert changed.sweep.variables[0].values == odd


def test_secrets_are_not_parameters(tmp_path: Path) -> None:
    request = a_request(tmp_path, NAP.replace("seconds", "api_token"))
    assert [each.name for each in project_parameters(request)] == ["runs", "epochs", "seeds"]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("runz", "6", "-P runz: there is none; did you mean runs? the parameters of this project"),
        ("name", "x", "-P name: there is none; "),
        ("runs", "six", "-P runs: 'six' must be a whole number, such as 4"),
        ("runs", "1.5", "-P runs: '1.5' must be a whole number, such as 4"),
        ("epochs", "9" * 30, "-P epochs: '999"),
        ("seeds", "4-1", "-P seeds: '4-1' must be ranges from the smaller"),
        ("site", ["A"], "--backend-config site: there is none; did you mean sites? "),
        ("sites", [1], "--backend-config sites: [1] must be a list of texts"),
        ("policy", "pinned", "--backend-config policy: 'pinned' must be one of any, permute, pin"),
        ("memory", "much", "--backend-config memory: 'much' must be a size"),
    ],
)
def test_wrong_name_or_value_is_named(
    name: str, value: object, sentence: str, tmp_path: Path
) -> None:
    change = with_parameters if sentence.startswith("-P ") else with_configuration
    with pytest.raises(PlanError) as raised:
        change(request_of(EnsembleShape.CHAIN, tmp_path), {name: value})
    assert str(raised.value).startswith(sentence)


def test_configuration_sets_sites_and_requests(tmp_path: Path) -> None:
    request = with_configuration(
        request_of(EnsembleShape.CHAIN, tmp_path),
        {
            "sites": ["Delta-GPU", "Expanse-GPU"],
            "policy": "pin",
            "gpus": 2,
            "gpu_memory": "40 GB",
            "gpu_models": "NVIDIA A40, NVIDIA A100",
            "memory": 4096,
            "retries": 1,
        },
    )
    assert request.sites == ("Delta-GPU", "Expanse-GPU")
    assert request.policy is Policy.PIN
    assert (request.gpus, request.gpu_memory_mb, request.memory_mb) == (2, 40960, 4096)
    assert request.gpu_models == ("NVIDIA A40", "NVIDIA A100")
    assert request.retries == 1


# --- files --------------------------------------------------------------------------------


@pytest.fixture(name="here")
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_are_shown_written_and_in_the_manifest(here: Path, capsys: Captured) -> None:
    code, out, _ = run_command("new", capsys, "ensemble", "--mlproject", "--dry-run")
    assert code == Exit.OK
    assert all(f"  {name} " in out for name in FILES)
    assert not (here / "ensemble").exists()
    assert run_command("new", capsys, "ensemble", "--mlproject")[0] == Exit.OK
    description = (here / "ensemble/ensemble.toml").read_text()
    assert "mlproject = true" in description
    assert all(f"  {name}\n" in description for name in FILES)
    assert os.access(here / "ensemble/ensemble.local.sh", os.X_OK)


def test_existing_dag_becomes_a_project(here: Path, capsys: Captured) -> None:
    run_command("new", capsys, "ensemble")
    assert "mlproject" not in (here / "ensemble/ensemble.toml").read_text()
    before = (here / "ensemble/ensemble.dag").read_bytes()
    code, out, _ = run_command("new", capsys, "ensemble", "--mlproject")
    assert code == Exit.OK
    assert all(f"  {name}: added\n" in out for name in FILES)
    assert set(FILES) <= set(os.listdir(here / "ensemble"))
    assert (here / "ensemble/ensemble.dag").read_bytes() == before
    # Other values are in the project, too.
    assert run_command("new", capsys, "ensemble", "--runs", "2")[0] == Exit.OK
    assert "runs: {type: float, default: 2}" in (here / "ensemble/MLproject").read_text()
    assert "runs=2 |" in (here / "ensemble/ensemble.local.sh").read_text()


def test_values_of_a_sweep_file_are_not_parameters(here: Path, capsys: Captured) -> None:
    (here / "flow.dag").write_text(
        "GEN SUBDAG flow train.subdag learning_rate from\n  0.1 to 0.2 by 0.1\n"
    )
    (here / "train.subdag").write_text("VARS {run}-train_epoch0 learning_rate={learning_rate}\n")
    code, _, err = run_command("new", capsys, "flow.dag", "new", "--mlproject")
    assert code == Exit.OK, err
    project = (here / "new/MLproject").read_text()
    assert "slow_factor: {" in project
    assert "runs" not in project.replace("# mlflow run", "").replace("mlflow run", "")


def test_gateway_job_has_the_same_requests(tmp_path: Path) -> None:
    text = NAP + "request_cpus = 6\n"
    plan = make_plan(a_request(tmp_path, text, mlproject=True, gpus=2, memory_mb=3000))
    assert json.loads(text_of(plan, "gateway_config.json")) == {
        "job_name": "ensemble",
        "nodes": 1,
        "cpus-per-task": 6,
        "mem": "3000",
        "gres": "gpu:2",
    }


# --- the script ---------------------------------------------------------------------------


def run_script(request: Request, *words: str) -> subprocess.CompletedProcess[str]:
    """Write the ensemble, and execute its script from another directory."""
    if not request.directory.exists():
        write_plan(make_plan(request))
    script = request.directory / f"{request.name}.local.sh"
    environment = {"PATH": os.environ["PATH"]}
    return subprocess.run(
        ["sh", str(script), *words], env=environment, capture_output=True, text=True, timeout=60
    )


def recording(
    tmp_path: Path, text: str = RECORDING, record: bytes = RECORD, **more: object
) -> Request:
    """A request of jobs that record their arguments, with a project."""
    request = a_request(tmp_path, text, mlproject=True, **more)
    (tmp_path / "own/nap.sh").write_bytes(record)
    return request


def test_script_executes_run_by_run(tmp_path: Path) -> None:
    request = recording(tmp_path)
    done = run_script(request, "runs=2", "epochs=3", "seconds=1")
    assert done.returncode == 0, done.stderr
    epochs = [f"run{run} {epoch} 1" for run in range(2) for epoch in range(1, 4)]
    assert (request.directory / "out/epochs").read_text().splitlines() == epochs
    nodes = [f"== run{run}-train_epoch{epoch}" for run in range(2) for epoch in range(3)]
    assert [line for line in done.stdout.splitlines() if line.startswith("==")] == nodes


def test_script_stops_a_run_at_a_failed_epoch(tmp_path: Path) -> None:
    request = recording(tmp_path, record=RECORD + b'[ "$2" != 2 ] || exit 3\n')
    done = run_script(request)
    assert done.returncode == 3
    assert (request.directory / "out/epochs").read_text().splitlines() == ["run0 1 1", "run0 2 1"]


def test_failed_evaluation_stops_nothing(tmp_path: Path) -> None:
    failing = NAP.replace("arguments = ", "arguments = failing ")
    evaluation = tmp_path / "own/failing.sub"
    request = recording(tmp_path, record=RECORD + b'[ "$1" != failing ] || exit 3\n',
                        evaluation=Evaluation(str(evaluation), every=3))  # fmt: skip
    evaluation.write_text(failing + "# a second template\n")
    done = run_script(request)
    assert done.returncode == 0, done.stderr
    recorded = (request.directory / "out/epochs").read_text().splitlines()
    assert [line for line in recorded if line.startswith("failing")] == [
        "failing run0 3 1",
        "failing run1 3 1",
    ]
    assert len(recorded) == 8


def test_other_values_are_refused(tmp_path: Path) -> None:
    request = recording(tmp_path)
    done = run_script(request, "runs=2", "epochs=4")
    assert done.returncode == 2
    assert "ensemble.local.sh: epochs=4: this was written for another value" in done.stderr
    assert not (request.directory / "out").exists()


def test_values_are_not_interpreted_by_the_shell(tmp_path: Path) -> None:
    value = "*;`touch`|y'z&"
    request = recording(tmp_path, values={"seconds": value})
    assert run_script(request, "seconds=anything").returncode == 2
    assert run_script(request, f"seconds={value}").returncode == 0
    assert (request.directory / "out/epochs").read_text().splitlines()[0] == f"run0 1 {value}"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("environment = TOKEN=secret\n", "ensemble.sub sets an environment"),
        ("getenv = true\n", "ensemble.sub sets an environment"),
        ("universe = container\ncontainer_image = a.sif\n", "ensemble.sub runs in a container"),
        ("container_image = a.sif\n", "ensemble.sub runs in a container"),
        ("arguments = $(Cluster)\n", "ensemble.sub has macros that are known to HTCondor alone"),
        ("transfer_input_files = osdf:///data.zip\n", "ensemble.sub transfers a URL"),
        ("initialdir = elsewhere\n", "ensemble.sub sets initialdir or input"),
        ("transfer_input_files = data/a.csv\n", "ensemble.sub transfers files of other"),
        ("queue 2\n", "ensemble.sub queues several jobs"),
    ],
)
def test_parts_that_need_htcondor_are_reported(change: str, reason: str, tmp_path: Path) -> None:
    request = recording(tmp_path, RECORDING + change, gate=None)
    (tmp_path / "own/data").mkdir()
    (tmp_path / "own/data/a.csv").write_text("")
    plan = make_plan(request)
    (about,) = (file.about for file in plan.files if file.name == "ensemble.local.sh")
    assert about.startswith(f"refuses: {reason}")
    script = text_of(plan, "ensemble.local.sh")
    assert "secret" not in script
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert reason in done.stderr


def test_several_machines_need_htcondor(tmp_path: Path) -> None:
    request = request_of(EnsembleShape.MULTI_NODE, tmp_path)
    plan = make_plan(replace(request, mlproject=True))
    assert "several machines train together" in text_of(plan, "ensemble.local.sh")


def test_runs_in_sub_dags_are_executed(tmp_path: Path) -> None:
    request = recording(tmp_path, subdags=True)
    assert run_script(request).returncode == 0
    assert len((request.directory / "out/epochs").read_text().splitlines()) == 6


def test_bundled_trainer_trains(tmp_path: Path) -> None:
    request = Request("trainer", tmp_path / "new", runs=1, epochs=2, mlproject=True)
    done = run_script(request)
    assert done.returncode == 0, done.stderr
    (metrics,) = request.directory.rglob("version_1/metrics.csv")
    assert metrics.stat().st_size > 0
