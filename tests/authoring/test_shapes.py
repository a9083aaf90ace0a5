"""Every shape: its nodes, their variables, and its DAG file."""

from __future__ import annotations

import json
import re
import string
import tempfile
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.authoring.graph import Graph, GraphNode, NodeRole, Precedence, VariableValue
from metlmon.authoring.lint.run import check
from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import (
    EnsembleShape,
    Evaluation,
    MetricGoal,
    Plan,
    PlanError,
    Policy,
    Region,
    Request,
    StageRequest,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
)
from metlmon.authoring.validate import validate
from metlmon.authoring.write_dag import dag_text
from metlmon.config.settings import Settings
from metlmon.dagman.parser import parse_dag
from metlmon.dagman.records import NodeKind
from metlmon.model.run import parse_run_part
from tests.support.dag_texts import official_verdict
from tests.support.sample_requests import node_of, read_plan, text_of

NOWHERE = Path(tempfile.gettempdir()) / "planned-and-never-made"


def a_plan(template: str = "trainer", **changes: Any) -> Plan:
    result = {"directory": NOWHERE, "runs": 2, "epochs": 3, **changes}
    return make_plan(Request(template=template, **result))


def output_of(plan: Plan, node: str) -> dict[str, str]:
    found = node_of(plan.graph, node)
    return {each.name: each.value for each in found.variables}


def lines(plan: Plan, beginning: str, file: str = "ensemble.dag") -> list[str]:
    return [line for line in text_of(plan, file).split("\n") if line.startswith(beginning)]


def test_plain_chain_is_written_as_before() -> None:
    plan = a_plan(runs=1, epochs=2)
    uuid = "f04f4feb-72ea-5aac-9833-12779a60764e"
    common = f'run="run0" run_uuid="{uuid}"'
    assert text_of(plan, "ensemble.dag") == "\n".join(
        [
            "# ensemble.dag: runs 1, epochs of each 2, template trainer.",
            "# Submit it with: condor_submit_dag ensemble.dag",
            "",
            "JOB run0-train_epoch0 ensemble.sub",
            "JOB run0-train_epoch1 ensemble.sub",
            f'VARS run0-train_epoch0 {common} epoch="1" epochs="2" random_seed="1" '
            'ResourceName="any"',
            f'VARS run0-train_epoch1 {common} epoch="2" epochs="2" random_seed="1" '
            f'ResourceName="any" continue_from_checkpoint="output/training_logs/{uuid}"',
            "PARENT run0-train_epoch0 CHILD run0-train_epoch1",
            "",
            "RETRY ALL_NODES 3",
            "NODE_STATUS_FILE ensemble.dag.status 30",
            "JOBSTATE_LOG ensemble.jobstate.log",
            "",
        ]
    )


def test_evaluation_follows_its_epoch_and_fails_no_run() -> None:
    plan = a_plan(runs=1, epochs=4, evaluation=Evaluation(every=2))
    sides = [node.name for node in plan.graph.nodes if node.role is NodeRole.EVALUATE]
    assert sides == ["run0-eval_epoch2", "run0-eval_epoch4"]
    assert ("run0-train_epoch1", "run0-eval_epoch2") in plan.graph.edges
    flow = read_plan(plan)
    assert flow.nodes["run0-eval_epoch2"].children == ()
    assert lines(plan, "SCRIPT POST") == [
        "SCRIPT POST run0-eval_epoch2 /bin/true",
        "SCRIPT POST run0-eval_epoch4 /bin/true",
    ]
    result = output_of(plan, "run0-eval_epoch2")
    assert result["epoch"] == "2"
    assert result["continue_from_checkpoint"] == f"output/training_logs/{plan.runs[0].uuid}"
    assert (plan.nodes, plan.jobs) == (6, 6)


def test_awaited_evaluation_can_fail_the_run() -> None:
    plan = a_plan(runs=1, epochs=2, evaluation=Evaluation(gates=True))
    assert ("run0-eval_epoch1", "run0-train_epoch1") in plan.graph.edges
    # No node waits for the last one.
    assert lines(plan, "SCRIPT POST") == ["SCRIPT POST run0-eval_epoch2 /bin/true"]


def test_gate_precedes_every_node_of_a_run() -> None:
    gate = StopRules(patience=2, poll=7)
    plan = a_plan(runs=1, epochs=2, evaluation=Evaluation(every=2), gate=gate, retries=1)
    uuid = plan.runs[0].uuid
    assert lines(plan, "SCRIPT DEFER") == [
        f"SCRIPT DEFER 75 7 PRE run0-train_epoch0 gate.py ensemble.gate.json {uuid} 0 train $JOB",
        f"SCRIPT DEFER 75 7 PRE run0-train_epoch1 gate.py ensemble.gate.json {uuid} 1 train $JOB",
        f"SCRIPT DEFER 75 7 PRE run0-eval_epoch2 gate.py ensemble.gate.json {uuid} 1 evaluate $JOB",
    ]
    assert lines(plan, "PRE_SKIP") == ["PRE_SKIP ALL_NODES 42"]
    assert all(line.split()[2] == "PREPEND" for line in lines(plan, "VARS"))
    assert output_of(plan, "run0-train_epoch1")["node"] == "run0-train_epoch1"
    assert json.loads(text_of(plan, "ensemble.gate.json")) == {
        "schema": 1,
        "dag": "ensemble",
        "rules": {
            "metric": "val_loss",
            "goal": "min",
            "patience": 2,
            "min_delta": 0.0,
            "divergence": None,
            "median_after": None,
        },
        "runs": {uuid: {"name": "run0", "metrics": f"output/training_logs/{uuid}"}},
    }
    script = next(file for file in plan.files if file.name == "gate.py")
    assert script.executable
    assert script.data.startswith(b"#!/bin/sh\n")


@pytest.mark.parametrize(
    ("rules", "goal"),
    [
        (StopRules("val/pearson_total_score"), "max"),
        (StopRules("val_acc"), "max"),
        (StopRules("val_pearson_loss"), "min"),
        (StopRules("val_rmse"), "min"),
        (StopRules("reward", goal=MetricGoal.MAX), "max"),
        (StopRules("val_acc", goal=MetricGoal.MIN), "min"),
    ],
)
def test_gate_rules_have_the_goal_of_the_metric(rules: StopRules, goal: str) -> None:
    """Minimising a metric that should be maximised would stop the best runs."""
    output = json.loads(text_of(a_plan(gate=rules), "ensemble.gate.json"))
    assert output["rules"]["goal"] == goal


def test_gated_job_runs_at_the_site_of_its_ad() -> None:
    text = text_of(a_plan(gate=StopRules(), sites=("A", "B")), "ensemble.sub")
    include, place, wanted = (
        text.index(
            "\ninclude command : grep -shm1 ^ResourceName placement/$(metlmon_dag)/$(node).inc\n"
        ),
        text.index('\nMy.MetlSite = "$(ResourceName)"\n'),
        text.index("\nrequirements = "),
    )
    assert include < place < wanted
    dag = text_of(a_plan(gate=StopRules()), "ensemble.dag")
    assert ' node="run0-train_epoch1" metlmon_dag="ensemble"' in dag
    assert (
        '\nrequirements = ((((MY.MetlSite == "any" || '
        'stringListIMember(MY.MetlSite, MY.MetlExcluded, "|")) && '
        '(TARGET.GLIDEIN_ResourceName =?= "A" || TARGET.GLIDEIN_ResourceName =?= "B")) || '
        'stringListIMember(TARGET.GLIDEIN_ResourceName, MY.MetlSite, "|")) && '
        'stringListIMember(TARGET.GLIDEIN_ResourceName, MY.MetlExcluded, "|") =!= true && '
        'stringListIMember(TARGET.Machine, MY.MetlExcluded, "|") =!= true)\n'
    ) in text
    listed = "\ninclude command : grep -shm1 ^metlmon_excluded placement/$(metlmon_dag).excluded\n"
    assert include < text.index(listed) < text.index('\nMy.MetlExcluded = "$(metlmon_excluded)"\n')


def test_every_point_is_trained_with_every_seed() -> None:
    rate = SweptVariable("learning_rate", ("0.1", "0.2"), "x.toml:3")
    sweep = {"shape": EnsembleShape.SWEEP, "sweep": SweepRequest("s", (rate,)), "epochs": 1}
    plan = a_plan(**sweep, seeds=(7, 8, 9))
    found = [
        (output_of(plan, f"{run.name}-train_epoch0")["learning_rate"], run.seed)
        for run in plan.runs
    ]
    assert found == [("0.1", 7), ("0.1", 8), ("0.1", 9), ("0.2", 7), ("0.2", 8), ("0.2", 9)]
    assert len({run.uuid for run in plan.runs}) == 6
    assert "--learning-rate $(learning_rate)\n" in text_of(plan, "ensemble.sub")
    assert [run.seed for run in a_plan(**sweep).runs] == [1, 2]
    assert [run.seed for run in a_plan(**sweep, seeds=(5,)).runs] == [5, 5]


def test_epochs_are_numbered_across_stages() -> None:
    finetune = StageRequest("finetune", 1, values={"learning_rate": "0.05"})
    stages = (StageRequest("pretrain", 2), finetune)
    plan = a_plan(runs=1, shape=EnsembleShape.STAGES, stages=stages)
    assert [(node.name, node.submit) for node in plan.graph.nodes] == [
        ("run0-train_epoch0", "ensemble-pretrain.sub"),
        ("run0-train_epoch1", "ensemble-pretrain.sub"),
        ("run0-train_epoch2", "ensemble-finetune.sub"),
    ]
    result = output_of(plan, "run0-train_epoch2")
    assert result["stage"] == "finetune"
    assert result["stage_epoch"] == result["stage_epochs"] == "1"
    assert (result["epoch"], result["epochs"]) == ("3", "3")
    assert result["continue_from_checkpoint"] == f"output/training_logs/{plan.runs[0].uuid}"
    assert "--schedule-from 2\n" in text_of(plan, "ensemble-finetune.sub")
    assert "--learning-rate 0.05\n" in text_of(plan, "ensemble-finetune.sub")
    assert "--schedule-from" not in text_of(plan, "ensemble-pretrain.sub")


def test_bag_has_shards_and_a_gather_node() -> None:
    plan = a_plan("infer", shape=EnsembleShape.BAG, shards=3, gather="gather")
    shards = ["shard000", "shard001", "shard002"]
    assert [node.name for node in plan.graph.nodes] == [*shards, "gather"]
    assert plan.graph.edges == tuple((f"shard00{i}", "gather") for i in range(3))
    assert output_of(plan, "shard002") == {"shard": "2", "shards": "3", "ResourceName": "any"}
    assert plan.runs == ()
    assert (plan.nodes, plan.jobs) == (4, 4)
    alone = a_plan("infer", shape=EnsembleShape.BAG, shards=3)
    assert (alone.nodes, alone.graph.edges) == (3, ())
    plan = a_plan("infer", shape=EnsembleShape.BAG, shards=3, sites=("A", "B"), policy=Policy.PIN)
    sites = [output_of(plan, f"shard00{i}")["ResourceName"] for i in range(3)]
    assert sites == ["A", "B", "A"], "they take them in turn"


def test_sub_dags_keep_nodes_and_uuids() -> None:
    flat, apart = a_plan(gate=StopRules()), a_plan(gate=StopRules(), subdags=True)
    assert lines(apart, "SUBDAG")[1] == "SUBDAG EXTERNAL run1 ensemble-run1.dag"
    assert (apart.runs, apart.nodes, apart.jobs) == (flat.runs, flat.nodes, flat.jobs)
    status = "NODE_STATUS_FILE ensemble-run0.dag.status 30"
    assert lines(apart, "NODE_STATUS_FILE", "ensemble-run0.dag") == [status]


def test_policy_overrides_the_site_of_a_region() -> None:
    region = Region("late", {"ResourceName": "C"}, (2, 2))
    for policy, level in ((Policy.PIN, Precedence.RUN), (Policy.PERMUTE, Precedence.NODE)):
        plan = a_plan(sites=("A", "B"), policy=policy, regions=(region,))
        node = node_of(plan.graph, "run0-train_epoch2")
        (place,) = (each for each in node.variables if each.name == "ResourceName")
        assert place.level is level
        assert place.value in ("A", "B")
        assert [each.value for each in place.hides] == ["C"]


def test_parameter_of_a_region_keeps_its_default_elsewhere() -> None:
    region = Region("late", {"slow_factor": "5"}, (2, 2))
    text = text_of(a_plan(regions=(region,), values={"slow_factor": "2"}), "ensemble.sub")
    assert "--slow-factor $(slow_factor:2) " in text


def text(**node: Any) -> str:
    result = {"name": "n", "submit": "n.sub", **node}
    return dag_text(Graph((GraphNode(**result),)), "x", "one")


def given_(name: str, value: str) -> tuple[VariableValue, ...]:
    return (VariableValue(name, value, Precedence.ALL, "x.toml:7"),)


def test_quotes_and_backslashes_are_escaped() -> None:
    file = text(variables=given_("a", 'say "so" \\ it\'s'))
    assert r'VARS n a="say \"so\" \\ it' in file
    (command,) = [c for c in parse_dag(file.encode(), "x.dag").commands if hasattr(c, "pairs")]
    assert command.pairs == (("a", 'say "so" \\ it\'s'),)


WORDS = ("", "a b", "a+b", "PARENT", "all_nodes", 'a"b', "a\nb", "#a")
VALUES = ("", "a\nRETRY n 9", "a\rb", "a\x00b", "a\u2028b")


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        *(({"variables": given_("a", value)}, "x.toml:7: ") for value in VALUES),
        *(
            ({"variables": given_(name, "1")}, "cannot be a variable's name")
            for name in ("", "a b", "a=1", 'a"', "7up", "a\nb")
        ),
        *(({"name": word}, "cannot stand in a DAG file as a name") for word in WORDS),
        *(({"submit": word}, "cannot stand in a DAG file as a name") for word in WORDS),
        ({"pre": "gate.py\nJOB evil evil.sub"}, "more than one line"),
    ],
)
def test_no_value_leaves_its_line(node: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanError, match=re.escape(sentence)):
        text(**node)


WORD = st.text(string.ascii_letters, min_size=1, max_size=6)
SITES = st.lists(st.sampled_from("ABCD"), max_size=3, unique=True).map(tuple)
RATES = st.lists(st.sampled_from(["0.1", "0.2", "0.5"]), min_size=1, max_size=3, unique=True)
SIZES = st.lists(st.sampled_from(["8", "16", "32"]), min_size=1, max_size=3, unique=True)


OF_SITES = (Policy.ANY, Policy.PERMUTE, Policy.PIN)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Any ensemble of any shape."""
    shape = draw(st.sampled_from(EnsembleShape))
    sites = draw(SITES)
    bag, many = shape is EnsembleShape.BAG, shape is EnsembleShape.MULTI_NODE
    epochs = draw(st.integers(1, 4))
    result: dict[str, Any] = {
        "template": {EnsembleShape.BAG: "infer", EnsembleShape.MULTI_NODE: "multinode"}.get(
            shape, "trainer"
        ),
        "directory": NOWHERE,
        "shape": shape,
        "runs": draw(st.integers(1, 3)),
        "epochs": epochs,
        "sites": sites,
        "policy": draw(st.sampled_from(OF_SITES if sites else [Policy.ANY])),
        "retries": draw(st.integers(1, 9)),
        "subdags": draw(st.booleans()) and not bag and not many,
    }
    if shape is EnsembleShape.SWEEP:
        rates = SweptVariable("learning_rate", tuple(draw(RATES)), "x:1")
        sizes = SweptVariable("batch_size", tuple(draw(SIZES)), "x:2")
        result["sweep"] = SweepRequest(draw(WORD), (rates, sizes), SweepMode.PRODUCT)
        result["seeds"] = tuple(range(draw(st.integers(0, 2))))
    if shape is EnsembleShape.STAGES:
        lengths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        result["stages"] = tuple(StageRequest(f"part{i}", n) for i, n in enumerate(lengths))
        epochs = sum(lengths)
    if bag:
        result |= {
            "shards": draw(st.integers(1, 30)),
            "gather": draw(st.sampled_from([None, "gather"])),
        }
    else:
        every = draw(st.integers(1, epochs))
        evaluations = st.builds(Evaluation, every=st.just(every), gates=st.booleans())
        result["evaluation"] = draw(st.none() | evaluations)
        result["gate"] = draw(st.none() | st.just(StopRules(patience=3)))
    if many:
        result["machines"] = draw(st.integers(2, 8))
    if not bag and draw(st.booleans()):
        first = draw(st.integers(0, epochs - 1))
        region = Region("late", {"slow_factor": "3"}, (first, epochs - 1), (), "x:9")
        result["regions"] = (region,)
    return Request(**result)


def counted(request: Request) -> tuple[int, int]:
    """Numbers of nodes and jobs, computed independently of the shapes."""
    if request.shape is EnsembleShape.BAG:
        nodes = request.shards + (1 if request.gather else 0)
        return nodes, nodes
    runs, epochs = request.runs, request.epochs
    if request.sweep is not None:
        runs = max(1, len(request.seeds))
        for each in request.sweep.variables:
            runs *= len(each.values)
    if request.stages:
        epochs = sum(stage.epochs for stage in request.stages)
    every = request.evaluation.every if request.evaluation else 0
    sides = runs * len(range(every, epochs + 1, every)) if every else 0
    trains = runs * epochs
    if request.shape is EnsembleShape.MULTI_NODE:
        return trains + sides + 1, trains * request.machines + sides + 1
    return trains + sides, trains + sides


@settings(max_examples=50, deadline=None)
@given(request=requests())
def test_dag_of_every_shape_agrees_with_its_graph(request: Request) -> None:
    assert not [each for each in validate(request).problems if each.fatal]
    plan = make_plan(request)
    flow = read_plan(plan)
    assert flow.problems == []
    files = {file.name: file.data for file in plan.files}
    dags = {plan.dag_file: plan.graph, **plan.graph.subdags}
    assert (plan.nodes, plan.jobs) == counted(request)
    every = list(plan.graph.all_nodes)
    assert len({node.name for node in every}) == len(every)
    for file, graph in dags.items():
        parsed = parse_dag(files[file], file)
        assert official_verdict(parsed.problems)
        order: TopologicalSorter[str] = TopologicalSorter()
        for parent, child in graph.edges:
            order.add(child, parent)
        # Raises CycleError for a cycle.
        assert set(order.static_order()) <= {n.name for n in graph.nodes}
    result = dict(flow.nodes)
    for inner in flow.subdags:
        result |= inner.nodes if inner is not None else {}
    for node in every:
        found = result[node.name]
        assert dict(found.vars) == {each.name: each.value for each in node.variables}
        assert found.kind is node.kind
        assert (found.pre.command if found.pre else None) == node.pre
        assert (found.post.command if found.post else None) == node.post
        assert node.skip_code is None or found.pre_skip == node.skip_code
        assert not [each for each in node.variables if not each.where]
        assert '=""' not in " ".join(found.vars.values())
        if node.role is NodeRole.TRAIN:
            assert found.vars["epoch"] == str((node.epoch or 0) + 1)
            assert found.retries == request.retries
            assert ("continue_from_checkpoint" in found.vars) == bool(node.epoch)
        if node.run is not None and node.kind is not NodeKind.SUBDAG:
            part = parse_run_part(found, Settings())
            assert (part.run, part.training) == (node.run, node.role is NodeRole.TRAIN)
            assert part.epoch == (node.epoch if part.training else (node.epoch or 0) + 1)
    elsewhere = replace(request, directory=NOWHERE.with_name("planned-elsewhere"))
    assert make_plan(elsewhere).files == plan.files, "always the same bytes"
    assert make_plan(elsewhere).runs == plan.runs
    edges = {edge for graph in dags.values() for edge in graph.edges}
    assert {(node.name, child) for node in result.values() for child in node.children} == edges


@settings(max_examples=25, deadline=None)
@given(request=requests())
def test_written_files_have_no_finding(request: Request) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "new"
        plan = make_plan(replace(request, directory=directory))
        directory.mkdir()
        for file in plan.files:
            path = directory / file.name
            path.write_bytes(file.data)
            path.chmod(0o755 if file.executable else 0o644)
        found = [each for each in check(directory, Settings()).findings if each.kind != "in-tmp"]
    assert found == []
