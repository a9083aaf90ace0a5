"""A request becomes a DAG that HTCondor's grammar takes, the same one every time."""

from __future__ import annotations

import re
import string
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.authoring import Plan, PlanError, Policy, Request, make_plan, validate
from metlmon.authoring.runs import requirements
from metlmon.dagman import Node
from metlmon.dagman.parser import official_verdict, parse_dag
from tests.authoring.written import NAP, a_request, nap, text_of, woven

MACROS = {"run", "run_uuid", "epoch", "epochs", "random_seed", "ResourceName"}
"""What a submit description may rely on in every node."""

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True).filter(
    lambda name: not name.endswith(".dag")
)
SITE = st.text(string.ascii_letters + string.digits + "-_. @", min_size=1, max_size=12)
SITES = st.lists(
    SITE.map(lambda name: f"S{name}E"), max_size=4, unique_by=lambda name: name.lower()
)


OF_SITES = (Policy.ANY, Policy.PERMUTE, Policy.PIN)


@pytest.fixture(name="own", scope="module")
def _own(tmp_path_factory: pytest.TempPathFactory) -> str:
    return nap(tmp_path_factory.mktemp("own"))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Any request that nothing is wrong with, but for its template."""
    runs = draw(st.integers(1, 6))
    sites = tuple(draw(SITES))
    seeds = draw(st.lists(st.integers(0, 2**32 - 1), min_size=runs, max_size=runs, unique=True))
    return Request(
        template="",
        directory=Path(tempfile.gettempdir()) / "planned-and-never-made",
        name=draw(NAMES),
        runs=runs,
        epochs=draw(st.integers(1, 9)),
        seeds=tuple(seeds) if draw(st.booleans()) else (),
        sites=sites,
        policy=draw(st.sampled_from(OF_SITES if sites else [Policy.ANY])),
        gpus=draw(st.integers(0, 64)),
        gpu_memory_mb=draw(st.none() | st.integers(1, 80_000)),
        memory_mb=draw(st.integers(16, 500_000)),
        retries=draw(st.integers(0, 100)),
        values=draw(st.fixed_dictionaries({}, optional={"seconds": st.just("2")})),
    )


def chain(plan: Plan, nodes: dict[str, Node], run: str) -> list[str]:
    """The nodes of a run in the order DAGMan starts them; each has one parent and one child."""
    own = [node for name, node in nodes.items() if name.startswith(f"{run}-")]
    first = [node for node in own if not node.parents]
    assert len(first) == 1
    found = [first[0].name]
    while children := nodes[found[-1]].children:
        assert len(children) == 1
        (child,) = children
        assert nodes[child].parents == {found[-1]}
        found.append(child)
    assert len(found) == len(own)
    return found


@settings(max_examples=60, deadline=None)
@given(request=requests())
def test_every_plan_is_a_dag_as_it_was_asked_for(own: str, request: Request) -> None:
    request = replace(request, template=own)
    plan = make_plan(request)
    flow = woven(plan)
    assert flow.problems == []
    assert official_verdict(parse_dag(plan.files[0].data, plan.dag_file).problems)
    assert len(flow.nodes) == plan.nodes == plan.jobs == request.runs * request.epochs
    assert len(plan.runs) == request.runs
    for index, run in enumerate(plan.runs):
        names = chain(plan, flow.nodes, run.name)
        assert names == [f"run{index}-train_epoch{e}" for e in range(request.epochs)]
        for epoch, name in enumerate(names):
            node = flow.nodes[name]
            given_always = {k: v for k, v in node.vars.items() if k in MACROS}
            assert given_always == {
                "run": run.name,
                "run_uuid": run.uuid,
                "epoch": str(epoch + 1),
                "epochs": str(request.epochs),
                "random_seed": str(request.seeds[index] if request.seeds else index + 1),
                "ResourceName": run.targets[epoch],
            }
            rest = {k: v for k, v in node.vars.items() if k not in MACROS}
            came_before = f"output/training_logs/{run.uuid}"
            assert rest == ({"continue_from_checkpoint": came_before} if epoch else {})
            assert node.retries == request.retries
            assert node.submit == f"{request.name}.sub"
            assert node.request_gpus == (request.gpus or None)
            assert node.log == f"{request.name}.log"
    assert flow.node_status_file == f"{plan.dag_file}.status"
    assert flow.jobstate_log == f"{request.name}.jobstate.log"


@settings(max_examples=30, deadline=None)
@given(request=requests())
def test_the_same_request_gives_the_same_bytes(own: str, request: Request) -> None:
    request = replace(request, template=own)
    elsewhere = replace(request, directory=request.directory.with_name("planned-elsewhere"))
    assert make_plan(request).files == make_plan(elsewhere).files
    assert make_plan(request).runs == make_plan(elsewhere).runs


def test_no_value_in_the_dag_is_empty(tmp_path: Path) -> None:
    # HTCondor before 25.5 takes x="", later ones refuse the whole DAG for it.
    assert '=""' not in text_of(make_plan(a_request(tmp_path)), "ensemble.dag")


# --- uuids --------------------------------------------------------------------------------


def uuids(request: Request) -> list[str]:
    return [run.uuid for run in make_plan(request).runs]


def test_a_uuid_is_known_in_advance(tmp_path: Path) -> None:
    # Written down: a change of this value gives everybody's ensembles other names.
    found = uuids(a_request(tmp_path))
    assert found == [
        "49c6f17a-a11d-590c-b9eb-7166e81d601c",
        "4d8f5dd9-8576-5bbd-ad03-360f53d60515",
    ]
    shape = r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert all(re.fullmatch(shape, each) for each in found)


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": (8, 9)},
        {"epochs": 4},
        {"gpus": 2},
        {"name": "another"},
        {"values": {"seconds": "2"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_model_has_another_uuid(tmp_path: Path, change: dict[str, object]) -> None:
    request = a_request(tmp_path)
    assert not set(uuids(request)) & set(uuids(replace(request, **change)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"memory_mb": 4096},
        {"retries": 9},
        {"gpu_memory_mb": 40_000},
        {"sites": ("A", "B"), "policy": Policy.PIN},
        {"gpu_models": ("NVIDIA A40",), "policy": Policy.GPU_PIN},
        {"values": {"seconds": "1"}},  # the default, said aloud
    ],
    ids=lambda change: next(iter(change)),
)
def test_where_and_how_it_trains_leaves_the_uuid(tmp_path: Path, change: dict[str, object]) -> None:
    request = a_request(tmp_path)
    assert uuids(request) == uuids(replace(request, **change))  # type: ignore[arg-type]


def test_more_runs_leave_the_first_ones_as_they_are(tmp_path: Path) -> None:
    request = a_request(tmp_path)
    assert uuids(replace(request, runs=5))[:2] == uuids(request)


# --- sites --------------------------------------------------------------------------------

FOUR = ("A", "B", "C", "D")


def places(tmp_path: Path, policy: Policy, runs: int, epochs: int) -> list[tuple[str, ...]]:
    request = a_request(tmp_path, sites=FOUR, policy=policy, runs=runs, epochs=epochs)
    return [run.targets for run in make_plan(request).runs]


def test_permute_takes_each_site_once_before_one_repeats(tmp_path: Path) -> None:
    for targets in places(tmp_path, Policy.PERMUTE, runs=9, epochs=11):
        for start in range(0, 11, 4):
            part = targets[start : start + 4]
            assert len(set(part)) == len(part)


def test_permute_spreads_the_runs_over_the_sites_at_every_epoch(tmp_path: Path) -> None:
    runs = places(tmp_path, Policy.PERMUTE, runs=8, epochs=6)
    for epoch in range(6):
        assert set(Counter(targets[epoch] for targets in runs).values()) == {2}
    assert len(set(runs[:4])) == 4


def test_pin_stays(tmp_path: Path) -> None:
    found = places(tmp_path, Policy.PIN, runs=5, epochs=3)
    assert found == [(site,) * 3 for site in ("A", "B", "C", "D", "A")]


def test_any_goes_anywhere_among_the_sites(tmp_path: Path) -> None:
    assert places(tmp_path, Policy.ANY, runs=2, epochs=2) == [("any", "any")] * 2
    assert "|| TARGET" in requirements(("A", "B"))
    assert requirements(()) == (
        '("$(ResourceName)" == "any" || TARGET.GLIDEIN_ResourceName =?= "$(ResourceName)")'
    )
    assert requirements(("A", "B")) == (
        '(("$(ResourceName)" == "any" && (TARGET.GLIDEIN_ResourceName =?= "A" || '
        'TARGET.GLIDEIN_ResourceName =?= "B")) || '
        'TARGET.GLIDEIN_ResourceName =?= "$(ResourceName)")'
    )


# --- GPU models ---------------------------------------------------------------------------

PINNED = 'require_gpus = DeviceName == "$(GpuModel)"'


def bundled(tmp_path: Path, template: str, **changes: Any) -> Request:
    """Two runs of three epochs of a template that comes along."""
    return Request(template, tmp_path / "new", **{"runs": 2, "epochs": 3, **changes})


@pytest.mark.parametrize("template", ["trainer", "metl"])
def test_a_control_cohort_stays_on_its_gpu_model(tmp_path: Path, template: str) -> None:
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
    assert [each for each in validate(request) if each.field in ("gpu_models", "policy")] == []
    plan = make_plan(request)
    on = ("NVIDIA A40", "NVIDIA L40S", "NVIDIA A40")
    assert tuple(run.gpu for run in plan.runs) == on, "runs take them in turn"
    assert {run.targets for run in plan.runs} == {("any",) * request.epochs}, "wherever they are"
    for name, node in woven(plan).nodes.items():
        assert node.vars["GpuModel"] == on[int(name.removeprefix("run").split("-")[0])]
    submit = text_of(plan, "ensemble.sub")
    assert f"\n{PINNED}\n" in submit
    assert "\ngpus_minimum_memory = 40000\n" in submit, "HTCondor asks for both"
    anywhere = make_plan(replace(request, policy=Policy.ANY, gpu_models=()))
    assert all(b"GpuModel" not in file.data for file in anywhere.files)


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"policy": Policy.GPU_PIN}, "gpu_models", "'gpu-pin' needs GPU models"),
        ({"gpu_models": ("NVIDIA A40",)}, "gpu_models", "only the policy 'gpu-pin'"),
        (
            {"policy": Policy.GPU_PIN, "gpu_models": ("NVIDIA A40",), "gpus": 0},
            "gpus",
            "needs jobs that ask for a GPU",
        ),
        (
            {"policy": Policy.GPU_PIN, "gpu_models": ("NVIDIA A40", "nvidia a40")},
            "gpu_models",
            "named twice",
        ),
        (
            {"policy": Policy.GPU_PIN, "gpu_models": ('A40" || true || "',)},
            "gpu_models",
            "cannot be a GPU model",
        ),
    ],
)
def test_what_pins_nothing_is_refused(
    tmp_path: Path, changes: dict[str, object], field: str, sentence: str
) -> None:
    request = bundled(tmp_path, "trainer", **changes)
    (said,) = [each for each in validate(request) if each.fatal]
    assert said.field == field
    assert sentence in said.text


def test_a_model_that_the_collector_does_not_know_is_told_of(tmp_path: Path) -> None:
    models = ("NVIDIA A40", "NVIDIA L40")
    request = bundled(tmp_path, "trainer", policy=Policy.GPU_PIN, gpu_models=models)
    (said,) = validate(request, gpus=("nvidia a40", "NVIDIA L40S"))
    assert (said.field, said.fatal) == ("gpu_models", False)
    assert said.text == "the collector knows no NVIDIA L40 now; did you mean NVIDIA L40S?"


def test_a_template_that_asks_for_no_model_cannot_pin_one(tmp_path: Path) -> None:
    request = a_request(tmp_path, policy=Policy.GPU_PIN, gpu_models=("NVIDIA A40",))
    said = [each for each in validate(request) if each.field == "gpu_models"]
    assert ["?require_gpus = {require_gpus}" in each.text for each in said] == [True]


HOSTILE = [
    'A" || true || "',
    "A\nqueue 1000",
    "$(x)",
    "$ENV(HOME)",
    "A\\",
    "\x1b[2J",
    "É",
    "",
    " A",
    "A ",
    "A" * 200,
]


@pytest.mark.parametrize("site", HOSTILE, ids=repr)
def test_a_site_is_a_name_and_nothing_else(tmp_path: Path, site: str) -> None:
    request = a_request(tmp_path, sites=(site,), policy=Policy.PIN)
    assert [c.field for c in validate(request) if c.fatal] == ["sites"]
    with pytest.raises(PlanError, match="sites"):
        make_plan(request)


# --- the submit description -----------------------------------------------------------------


def test_what_is_not_asked_for_is_left_out(tmp_path: Path) -> None:
    submit = text_of(make_plan(a_request(tmp_path, gpus=0)), "ensemble.sub")
    assert "request_gpus" not in submit
    assert "gpus_minimum_memory" not in submit
    submit = text_of(make_plan(a_request(tmp_path, gpu_memory_mb=40_000)), "ensemble.sub")
    assert "\nrequest_gpus = 1\n" in submit
    assert "\ngpus_minimum_memory = 40000\n" in submit


def test_queue_is_added_where_it_lacks_and_counted_where_it_is(tmp_path: Path) -> None:
    plan = make_plan(a_request(tmp_path))
    assert text_of(plan, "ensemble.sub").count("queue\n") == 1
    assert plan.jobs == 6
    plan = make_plan(a_request(tmp_path, text=NAP + "queue 3\n"))
    assert text_of(plan, "ensemble.sub").count("queue") == 1
    assert (plan.nodes, plan.jobs) == (6, 18)


def test_what_is_shipped_goes_along_as_it_is(tmp_path: Path) -> None:
    plan = make_plan(a_request(tmp_path))
    assert [(file.name, file.executable) for file in plan.files] == [
        ("ensemble.dag", False),
        ("ensemble.sub", False),
        ("nap.sh", True),
        ("nap.template", False),
        ("ensemble.toml", False),
    ]
