"""A request becomes a DAG that HTCondor's grammar accepts, the same one every time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import (
    EnsembleShape,
    Evaluation,
    Policy,
    Request,
    StageRequest,
    StopRules,
)
from metlmon.authoring.runs import requirements
from metlmon.authoring.validate import validate
from tests.support.sample_requests import NAP, a_request, read_plan, text_of

# --- uuids --------------------------------------------------------------------------------


def uuids(request: Request) -> list[str]:
    return [run.uuid for run in make_plan(request).runs]


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": (8, 9)},
        {"epochs": 4},
        {"gpus": 2},
        {"name": "another"},
        {"values": {"seconds": "2"}},
        {"shape": EnsembleShape.STAGES, "stages": (StageRequest("a", 1), StageRequest("b", 2))},
        {"shape": EnsembleShape.STAGES, "stages": (StageRequest("a", 2), StageRequest("b", 1))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_different_models_have_different_uuids(tmp_path: Path, change: dict[str, object]) -> None:
    request = a_request(tmp_path)
    stages = (StageRequest("a", 1), StageRequest("b", 1))
    staged = replace(request, shape=EnsembleShape.STAGES, stages=stages)
    for known in (request, staged):
        assert not set(uuids(known)) & set(uuids(replace(request, **change)))


def test_later_parameter_changes_the_uuid_once_given(tmp_path: Path) -> None:
    request = bundled(tmp_path, "trainer")
    given_now = replace(request, values={"learning_rate": "0.1"})
    assert not set(uuids(request)) & set(uuids(given_now))


@pytest.mark.parametrize(
    "change",
    [
        {"memory_mb": 4096},
        {"retries": 9},
        {"gpu_memory_mb": 40_000},
        {"sites": ("A", "B"), "policy": Policy.PIN},
        {"gpu_models": ("NVIDIA A40",), "policy": Policy.GPU_PIN},
        {"values": {"seconds": "1"}},  # the default, given explicitly
        {"evaluation": Evaluation()},
        {"gate": StopRules()},
        {"subdags": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_uuid_ignores_sites_and_resources(tmp_path: Path, change: dict[str, object]) -> None:
    request = a_request(tmp_path)
    assert uuids(request) == uuids(replace(request, **change))


# --- sites --------------------------------------------------------------------------------

FOUR = ("A", "B", "C", "D")


def places(tmp_path: Path, policy: Policy, runs: int, epochs: int) -> list[tuple[str, ...]]:
    request = a_request(tmp_path, sites=FOUR, policy=policy, runs=runs, epochs=epochs)
    return [run.targets for run in make_plan(request).runs]


def test_permute_takes_each_site_once_before_repeating(tmp_path: Path) -> None:
    for targets in places(tmp_path, Policy.PERMUTE, runs=9, epochs=11):
        for start in range(0, 11, 4):
            part = targets[start : start + 4]
            assert len(set(part)) == len(part)


def test_permute_spreads_the_runs_over_the_sites_at_every_epoch(tmp_path: Path) -> None:
    runs = places(tmp_path, Policy.PERMUTE, runs=8, epochs=6)
    for epoch in range(6):
        assert set(Counter(targets[epoch] for targets in runs).values()) == {2}
    assert len(set(runs[:4])) == 4


def test_pin_keeps_each_run_at_its_site(tmp_path: Path) -> None:
    found = places(tmp_path, Policy.PIN, runs=5, epochs=3)
    assert found == [(site,) * 3 for site in ("A", "B", "C", "D", "A")]


def test_any_allows_all_given_sites(tmp_path: Path) -> None:
    assert places(tmp_path, Policy.ANY, runs=2, epochs=2) == [("any", "any")] * 2
    assert requirements(()) == (
        '("$(ResourceName)" == "any" || TARGET.GLIDEIN_ResourceName =?= "$(ResourceName)")'
    )
    assert requirements(("A", "B")) == (
        '(("$(ResourceName)" == "any" && (TARGET.GLIDEIN_ResourceName =?= "A" || '
        'TARGET.GLIDEIN_ResourceName =?= "B")) || '
        'TARGET.GLIDEIN_ResourceName =?= "$(ResourceName)")'
    )


# --- GPU models ---------------------------------------------------------------------------


def bundled(tmp_path: Path, template: str, **changes: Any) -> Request:
    """Two runs of three epochs of a bundled template."""
    return Request(template, tmp_path / "new", **{"runs": 2, "epochs": 3, **changes})


@pytest.mark.parametrize("template", ["trainer", "metl"])
def test_control_cohort_stays_on_its_gpu_model(tmp_path: Path, template: str) -> None:
    values = {"data": "gb1.tsv", "container": "osdf:///x.sif"} if template == "metl" else {}
    request = bundled(
        tmp_path,
        template,
        values=values,
        runs=3,
        sites=("A", "B"),
        policy=Policy.GPU_PIN,
        gpu_models=("NVIDIA A40", "NVIDIA L40S"),
        gpu_memory_mb=40_000,
    )
    assert not {each.field for each in validate(request).problems} & {"gpu_models", "policy"}
    plan = make_plan(request)
    on = ("NVIDIA A40", "NVIDIA L40S", "NVIDIA A40")
    assert tuple(run.gpu for run in plan.runs) == on, "runs take them in turn"
    assert {run.targets for run in plan.runs} == {("any",) * request.epochs}, "wherever they are"
    for name, node in read_plan(plan).nodes.items():
        assert node.vars["GpuModel"] == on[int(name.removeprefix("run").split("-")[0])]
    submit = text_of(plan, "ensemble.sub")
    assert '\nrequire_gpus = DeviceName == "$(GpuModel)"\n' in submit
    assert "\ngpus_minimum_memory = 40000\n" in submit, "HTCondor asks for both"
    anywhere = make_plan(replace(request, policy=Policy.ANY, gpu_models=()))
    assert all(b"GpuModel" not in file.data for file in anywhere.files)


# --- the submit description -----------------------------------------------------------------


NOTES = """\
if version >= 25.11
    My.RunUuid = "$(run_uuid)"
    My.RunName = "$(run)"
    My.RunEpoch = $(epoch)
    submit_event_notes_attrs = RunUuid, RunName, RunEpoch
endif
"""


@pytest.mark.parametrize("template", ["trainer", "metl"])
def test_submit_event_notes_have_run_and_epoch(tmp_path: Path, template: str) -> None:
    values = {"data": "gb1.tsv", "container": "osdf:///x.sif"} if template == "metl" else {}
    plan = make_plan(bundled(tmp_path, template, values=values))
    assert NOTES in text_of(plan, "ensemble.sub")
    for node in read_plan(plan).nodes.values():
        assert {"run", "run_uuid", "epoch"} <= node.vars.keys()


def test_submit_event_notes_of_shards_have_no_run(tmp_path: Path) -> None:
    plan = make_plan(bundled(tmp_path, "infer", shape=EnsembleShape.BAG, shards=4))
    assert "RunUuid" not in text_of(plan, "ensemble.sub")


def test_notes_are_used_by_htcondor_from_25_11(tmp_path: Path) -> None:
    """The bindings read the submit language like condor_submit of their version."""
    htcondor2 = pytest.importorskip("htcondor2", reason="HTCondor's bindings are not installed")
    version = tuple(int(part) for part in htcondor2.version().split()[1].split("."))
    submit = htcondor2.Submit(text_of(make_plan(a_request(tmp_path)), "ensemble.sub"))
    asked = "submit_event_notes_attrs" in submit
    assert asked == (version >= (25, 11, 0))


def test_missing_queue_is_added_and_existing_counted(tmp_path: Path) -> None:
    plan = make_plan(a_request(tmp_path))
    assert text_of(plan, "ensemble.sub").count("queue\n") == 1
    assert plan.jobs == 6
    plan = make_plan(a_request(tmp_path, text=NAP + "queue 3\n"))
    assert text_of(plan, "ensemble.sub").count("queue") == 1
    assert (plan.nodes, plan.jobs) == (6, 18)
