"""What is wrong with sweeps, stages, regions and gates is told field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.authoring import PlanError, Request, make_plan, validate
from metlmon.authoring.request import (
    EnsembleShape,
    Evaluation,
    Region,
    StageRequest,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
)
from metlmon.authoring.variables import OWN_VARIABLES, RESERVED_NAMES
from tests.authoring.written import NAP, a_request


def told(tmp_path: Path, fatal: bool = True, **changes: Any) -> dict[str, str]:
    """Field → sentence of what is wrong with a request of the bundled templates."""
    asked = {"directory": tmp_path / "new", "runs": 2, "epochs": 3, "template": "trainer"}
    return {
        each.field: each.text
        for each in validate(Request(**{**asked, **changes}))
        if each.fatal == fatal
    }


def sweep(
    *variables: SweptVariable, group: str = "s", how: SweepMode | None = None
) -> dict[str, Any]:
    return {"shape": EnsembleShape.SWEEP, "sweep": SweepRequest(group, variables, how)}


RATE = SweptVariable("learning_rate", ("0.1", "0.2"), "x.toml:3")


def test_nothing_is_wrong_with_the_usual(tmp_path: Path) -> None:
    for changes in (
        sweep(RATE),
        {"shape": EnsembleShape.STAGES, "stages": (StageRequest("one", 2), StageRequest("two", 1))},
        {"shape": EnsembleShape.BAG, "template": "infer", "shards": 3, "gather": "gather"},
        {"shape": EnsembleShape.MULTI_NODE, "template": "multinode", "machines": 2},
        {"evaluation": Evaluation(), "gate": StopRules(patience=2, divergence=3.0)},
        {"variables": {"slow_factor": "1"}, "regions": (Region("r", {"ResourceName": "A"}),)},
    ):
        assert told(tmp_path, **changes) == told(tmp_path, fatal=False, **changes) == {}


def test_a_refused_plan_names_the_field(tmp_path: Path) -> None:
    request = Request("trainer", tmp_path / "new", shape=EnsembleShape.BAG, shards=0)
    with pytest.raises(PlanError, match=r"^shards: 0 shards: give a number from 1"):
        make_plan(request)


# --- sweeps -------------------------------------------------------------------------------------


def test_unequal_lengths_without_a_word_tell_both(tmp_path: Path) -> None:
    size = SweptVariable("batch_size", ("8", "16", "32"), "x.toml:4")
    said = told(tmp_path, **sweep(RATE, size))["sweep"]
    assert "learning_rate has 2 values (x.toml:3)" in said
    assert "batch_size has 3 (x.toml:4)" in said
    assert "'product'" in said
    assert told(tmp_path, **sweep(RATE, size, how=SweepMode.PRODUCT)) == {}


def test_what_is_swept_is_used_by_somebody(tmp_path: Path) -> None:
    said = told(tmp_path, **sweep(SweptVariable("lerning_rate", ("1",), "x.toml:3")))["sweep"]
    assert said.startswith("x.toml:3: no template has a parameter 'lerning_rate'")
    own = NAP.replace("arguments = ", "arguments = $(thing) ")
    request = a_request(tmp_path, text=own, **sweep(SweptVariable("thing", ("1",), "")))
    assert not [each for each in validate(request) if each.fatal]


def test_a_swept_value_is_one_that_the_template_allows(tmp_path: Path) -> None:
    said = told(tmp_path, **sweep(SweptVariable("batch_size", ("8", "many"), "x.toml:3")))["sweep"]
    assert said == "x.toml:3: batch_size is 'many'; give a whole number from 1 to 4096"


def test_a_name_is_swept_once_and_its_values_are_not_empty(tmp_path: Path) -> None:
    again = SweptVariable("LEARNING_RATE", ("0.1", "0.2"), "")
    assert "swept twice" in told(tmp_path, **sweep(RATE, again))["sweep"]
    assert "is empty" in told(tmp_path, **sweep(SweptVariable("data", ("",), "")))["sweep"]
    assert "no values" in told(tmp_path, **sweep(SweptVariable("data", (), "")))["sweep"]
    assert "sweeps nothing" in told(tmp_path, **sweep())["sweep"]


def test_values_that_come_twice_train_the_same_model(tmp_path: Path) -> None:
    twice = SweptVariable("learning_rate", ("0.1", "0.1"), "")
    assert "more than once" in told(tmp_path, fatal=False, **sweep(twice))["sweep"]


def test_a_group_is_a_part_of_names(tmp_path: Path) -> None:
    for group in ("", "a b", "a+b", "é", "a/b", "x" * 65):
        assert "cannot be the name of runs" in told(tmp_path, **sweep(RATE, group=group))["sweep"]


def test_a_sweep_and_its_shape_go_together(tmp_path: Path) -> None:
    assert "sweep" in told(tmp_path, shape=EnsembleShape.SWEEP)
    assert "sweep" in told(tmp_path, sweep=SweepRequest("s", (RATE,)))


def test_more_nodes_than_a_dag_may_have(tmp_path: Path) -> None:
    many = SweptVariable("learning_rate", tuple(f"0.{n:05}" for n in range(1, 30_002)), "")
    assert "120004 nodes" in told(tmp_path, epochs=4, **sweep(many))["sweep"]
    assert (
        "100000"
        in told(tmp_path, shape=EnsembleShape.BAG, template="infer", shards=100_001)["shards"]
    )
    nodes = told(tmp_path, runs=500, epochs=150, evaluation=Evaluation())["epochs"]
    assert "150000 nodes" in nodes


# --- stages, evaluation, bags, machines ----------------------------------------------------------


def test_stages_have_names_and_epochs(tmp_path: Path) -> None:
    assert "stages" in told(tmp_path, shape=EnsembleShape.STAGES)
    assert "stages" in told(tmp_path, stages=(StageRequest("one", 1),))
    found = told(
        tmp_path,
        shape=EnsembleShape.STAGES,
        stages=(StageRequest("one", 0), StageRequest("two", 1)),
    )
    assert found["stages.one.epochs"] == (
        "0 epochs of the stage one: give a number from 1 to 10000"
    )
    twice = told(
        tmp_path,
        shape=EnsembleShape.STAGES,
        stages=(StageRequest("one", 1), StageRequest("one", 1)),
    )
    assert "two stages are called one" in twice["stages"]
    odd = told(tmp_path, shape=EnsembleShape.STAGES, stages=(StageRequest("a/b", 1),))
    assert "cannot be a stage's name" in odd["stages"]


def test_values_are_told_where_they_stand(tmp_path: Path) -> None:
    stages = (
        StageRequest("one", 1),
        StageRequest("two", 1, values={"hiden": "4", "batch_size": "0"}),
    )
    found = told(tmp_path, shape=EnsembleShape.STAGES, stages=stages)
    assert "has no parameter 'hiden'" in found["stages.two.values.hiden"]
    assert "give a whole number" in found["stages.two.values.batch_size"]
    found = told(tmp_path, evaluation=Evaluation(values={"nothing": "1"}))
    assert "the template evaluate has no parameter" in found["evaluation.values.nothing"]


def test_templates_that_are_not_there(tmp_path: Path) -> None:
    assert "evaluation.template" in told(tmp_path, evaluation=Evaluation(template="evaluat"))
    stages = (StageRequest("one", 1), StageRequest("two", 1, template="gone"))
    assert "stages.two.template" in told(tmp_path, shape=EnsembleShape.STAGES, stages=stages)
    bag = {"shape": EnsembleShape.BAG, "template": "infer", "shards": 2}
    assert "gather" in told(tmp_path, **bag, gather="gone")


def test_a_template_does_what_it_is_taken_for(tmp_path: Path) -> None:
    said = told(tmp_path, template="evaluate")["template"]
    assert said == "the template evaluate is there to evaluate, not to train; choose another"
    assert "evaluation.template" in told(tmp_path, evaluation=Evaluation(template="trainer"))
    assert "template" in told(tmp_path, shape=EnsembleShape.BAG, shards=2)


@pytest.mark.parametrize("every", [0, -1, 4])
def test_an_evaluation_comes_at_least_once(tmp_path: Path, every: int) -> None:
    assert "evaluation.every" in told(tmp_path, evaluation=Evaluation(every=every))


def test_a_bag_has_no_epochs(tmp_path: Path) -> None:
    bag = {"shape": EnsembleShape.BAG, "template": "infer", "shards": 2}
    asked = told(tmp_path, **bag, evaluation=Evaluation(), gate=StopRules(), subdags=True)
    assert {"evaluation", "gate", "subdags"} <= set(asked)
    assert "regions" in told(tmp_path, **bag, regions=(Region("r", {"slow_factor": "1"}, (0, 0)),))
    assert "gather" in told(tmp_path, gather="gather")


def test_machines(tmp_path: Path) -> None:
    several = {"shape": EnsembleShape.MULTI_NODE, "template": "multinode"}
    assert "machines" in told(tmp_path, **several)
    assert "machines" in told(tmp_path, **several, machines=65)
    assert "machines" in told(tmp_path, machines=2)
    assert "subdags" in told(tmp_path, **several, machines=2, subdags=True)
    one = {**several, "template": "trainer", "machines": 2}
    assert "queue {machines}" in told(tmp_path, fatal=False, **one)["machines"]


# --- the gate ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "rules"),
    [
        ("gate.poll", StopRules(poll=4)),
        ("gate.poll", StopRules(poll=86_401)),
        ("gate.patience", StopRules(patience=0)),
        ("gate.median_after", StopRules(median_after=0)),
        ("gate.min_delta", StopRules(min_delta=-0.1)),
        ("gate.min_delta", StopRules(min_delta=float("nan"))),
        ("gate.divergence", StopRules(divergence=1.0)),
        ("gate.divergence", StopRules(divergence=float("inf"))),
        ("gate.metric", StopRules(metric=" ")),
        ("gate.metric", StopRules(metric="a\nb")),
    ],
)
def test_rules_of_a_gate(tmp_path: Path, field: str, rules: StopRules) -> None:
    assert set(told(tmp_path, gate=rules)) == {field}


def test_a_gate_needs_a_retry(tmp_path: Path) -> None:
    assert "1 retry at least" in told(tmp_path, gate=StopRules(), retries=0)["retries"]


def test_a_template_without_requirements_cannot_be_sent_elsewhere(tmp_path: Path) -> None:
    text = NAP.replace("requirements = {requirements}\n", "")
    found = validate(a_request(tmp_path, text=text, gate=StopRules()))
    assert [(each.field, each.fatal) for each in found] == [("gate", False)]


# --- variables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "7up", "a b", "a-b", 'a"', "a\nb", "My.x", "+x", "é"])
def test_names_of_variables(tmp_path: Path, name: str) -> None:
    for changes in _everywhere(name, "1"):
        (text,) = told(tmp_path, **changes).values()
        assert "cannot be a variable's name" in text


@pytest.mark.parametrize(
    "name", [*sorted(OWN_VARIABLES), "Run_UUID", *sorted(RESERVED_NAMES), "Arguments"]
)
def test_names_that_mean_something_else(tmp_path: Path, name: str) -> None:
    for changes in _everywhere(name, "1"):
        (text,) = told(tmp_path, **changes).values()
        assert "choose another name" in text


@pytest.mark.parametrize(
    "value", ["", " ", 'a"b', "a\\b", "a\nRETRY x 9", "a\x1bb", "$(x)", "$ENV(HOME)", "$$(x)"]
)
def test_values_of_variables(tmp_path: Path, value: str) -> None:
    for changes in _everywhere("data", value):
        (text,) = told(tmp_path, **changes).values()
        assert "data" in text
        assert "\n" not in text


def _everywhere(name: str, value: str) -> list[dict[str, Any]]:
    return [
        {"variables": {name: value}},
        {"regions": (Region("r", {name: value}),)},
        sweep(SweptVariable(name, (value,), "")),
    ]


def test_a_variable_that_nobody_uses_is_only_told(tmp_path: Path) -> None:
    assert "has no effect" in told(tmp_path, fatal=False, variables={"x": "1"})["variables"]
    region = Region("r", {"x": "1"}, None, (), "x.toml:7")
    said = told(tmp_path, fatal=False, regions=(region,))["regions"]
    assert said.startswith("x.toml:7: ")


@pytest.mark.parametrize("epochs", [(0, 3), (2, 1), (-1, 0), (3, 3)])
def test_a_region_lies_within_the_runs(tmp_path: Path, epochs: tuple[int, int]) -> None:
    region = Region("late", {"slow_factor": "1"}, epochs, (), "x.toml:7")
    said = told(tmp_path, regions=(region,))["regions"]
    assert said.startswith("x.toml:7: the region late has epochs ")
    assert said.endswith("they count from 0 to 2")


def test_a_region_is_of_runs_that_there_are(tmp_path: Path) -> None:
    region = Region("first", {"slow_factor": "1"}, None, ("run0", "run7"), "x.toml:7")
    said = told(tmp_path, regions=(region,))["regions"]
    assert said.startswith("x.toml:7: the region first names the run 'run7', which there is not")
    assert said.endswith("they are called run0, run1")
    bag = {"shape": EnsembleShape.BAG, "template": "infer", "shards": 2}
    region = Region("first", {"slow_factor": "1"}, None, ("shard001",))
    assert told(tmp_path, **bag, regions=(region,)) == {}


def test_an_option_that_only_some_epochs_have_needs_a_value_for_the_others(tmp_path: Path) -> None:
    # "--learning-rate" without a number would fail every other epoch.
    region = Region("late", {"learning_rate": "0.1"}, (2, 2))
    asked = Request("trainer", tmp_path / "new", regions=(region,))
    with pytest.raises(PlanError, match=r"regions\.late: only some .* of learning_rate"):
        make_plan(asked)
    assert make_plan(replace(asked, values={"learning_rate": "0.2"})).nodes == 12
    late = (Region("late", {"project": "b"}, (2, 2)),)
    with pytest.raises(PlanError, match=r"regions\.late: .* project, .* holds a '\)'"):
        make_plan(replace(asked, regions=late, values={"project": "a)b"}))


def test_two_regions_of_one_name(tmp_path: Path) -> None:
    region = Region("late", {"slow_factor": "1"})
    assert "two regions are called 'late'" in told(tmp_path, regions=(region, region))["regions"]
