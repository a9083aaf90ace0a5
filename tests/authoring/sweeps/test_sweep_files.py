"""Sweep files: the report's own example, and what each line of such a file means."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.authoring.description import sweep_copy_name
from metlmon.authoring.graph import NodeRole, Precedence
from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import Policy, Region, Request, StopRules
from metlmon.authoring.runs import run_plans
from metlmon.authoring.sweeps import SYNTAX
from metlmon.authoring.sweeps.expand import expand
from metlmon.authoring.validate import validate
from metlmon.dagman.records import NodeKind
from tests.authoring.sweeps.sweepfiles import (
    CHAIN,
    REPORTED,
    REPORTED_TEMPLATE,
    TWO,
    expanded,
    names,
    report_of,
    request_for,
)
from tests.support.sample_requests import node_of, read_plan

INIT = "    JOB init init.sub\n"


def written(request: Request) -> str:
    """The text of the DAG."""
    return make_plan(request).files[0].data.decode()


# --- the report's own example -----------------------------------------------------------------


def test_reported_example_zips_ten_runs(tmp_path: Path) -> None:
    request = request_for(tmp_path, INIT + REPORTED, train=REPORTED_TEMPLATE)
    (tmp_path / "init.sub").write_text("executable = /bin/true\nqueue\n")
    plan = make_plan(request)
    runs = [f"train_flow{index}" for index in range(10)]
    assert [run.name for run in plan.runs] == runs
    assert (plan.nodes, plan.jobs) == (51, 51)
    first = [report_of(node_of(plan.graph, f"{run}-train_epoch0")) for run in runs]
    assert [Fraction(each["a"]) for each in first] == [Fraction(k, 100) for k in range(1, 11)]
    assert [Fraction(each["b"]) for each in first] == [Fraction(k, 2) for k in range(1, 11)]
    assert [each["a"] for each in first][-2:] == ["0.09", "0.10"]
    within = {
        ("train_epoch0", "train_epoch1"),
        ("train_epoch0", "eval_epoch1"),
        ("train_epoch1", "train_epoch2"),
        ("train_epoch1", "eval_epoch2"),
    }
    expected = {(f"{run}-{one}", f"{run}-{other}") for run in runs for one, other in within}
    expected |= {("init", f"{run}-train_epoch0") for run in runs}
    assert sorted(plan.graph.edges) == sorted(expected)
    epochs = {
        node.name.removeprefix("train_flow3-"): (node.role, node.epoch, report_of(node)["epoch"])
        for node in plan.graph.nodes
        if node.run == "train_flow3"
    }
    # The evaluation of train_epoch0, whose epoch is 1, is called eval_epoch1.
    assert epochs == {
        "train_epoch0": (NodeRole.TRAIN, 0, "1"),
        "train_epoch1": (NodeRole.TRAIN, 1, "2"),
        "eval_epoch1": (NodeRole.EVALUATE, 0, "1"),
        "train_epoch2": (NodeRole.TRAIN, 2, "3"),
        "eval_epoch2": (NodeRole.EVALUATE, 1, "2"),
    }
    files = {file.name: file.data for file in plan.files}
    assert files["init.sub"] == b"executable = /bin/true\nqueue\n"
    assert files["w.sweep"] == (tmp_path / "w.dag").read_bytes()
    assert files["train.subdag"] == REPORTED_TEMPLATE.encode()
    assert {"ensemble.sub", "ensemble-evaluate.sub", "train.py"} <= files.keys()


def test_missing_submit_file_is_reported(tmp_path: Path) -> None:
    request = request_for(tmp_path, TWO + "JOB init init.sub\nJOB none none.sub NOOP\n")
    (result,) = [each for each in validate(request).problems if "init.sub" in each.text]
    assert result.text.startswith("w.dag:3: init.sub: no such file in ")
    assert not result.fatal
    (tmp_path / "init.sub").write_text("queue\n")
    assert [each for each in validate(request).problems if "init.sub" in each.text] == []
    wrong = replace(request_for(tmp_path, TWO + "PARENT x CHILD g\n"))
    (result,) = [each for each in validate(wrong).problems if each.fatal]
    assert (result.field, result.text[:24]) == ("source", "w.dag:3: x is named, but")


@pytest.mark.parametrize("named", ["t.subdag", "more/deep.subdag", "more/deep.dag"])
def test_plan_is_reproduced_from_the_written_copies(tmp_path: Path, named: str) -> None:
    request = request_for(tmp_path, TWO.replace("t.subdag", named))
    (tmp_path / "more").mkdir()
    (tmp_path / "t.subdag").rename(tmp_path / named)
    plan = make_plan(request)
    assert [file.name for file in plan.files if file.name.endswith(".dag")] == ["ensemble.dag"]
    again = tmp_path / "again"
    again.mkdir()
    for file in plan.files:
        (again / file.name).write_bytes(file.data)
    copied = make_plan(replace(request, source=again / sweep_copy_name(request.source)))
    assert copied.runs == plan.runs
    same = {file.name: file.data for file in plan.files}
    assert {file.name: file.data for file in copied.files} == same


# --- uuids, seeds, targets ----------------------------------------------------------------------


def test_uuids_depend_on_the_model_only(tmp_path: Path) -> None:
    def uuids(folder: str, workflow: str = TWO, **asked: object) -> list[str]:
        made = expanded(tmp_path / folder, workflow, **asked)
        return [run.uuid for run in run_plans(made.graph)]

    plain = uuids("one")
    assert uuids("two") == plain
    assert uuids("retried", retries=7) == plain
    placed = uuids("placed", TWO + "VARS ALL_NODES ResourceName=here\n")
    assert placed == plain
    assert uuids("other", TWO.replace("1, 2", "1, 3"))[0] == plain[0]
    assert uuids("other", TWO.replace("1, 2", "1, 3"))[1] != plain[1]
    assert not set(uuids("told", TWO + "VARS g decay=0.1\n")) & set(plain)
    assert not set(uuids("named", name="second")) & set(plain)


def test_each_run_has_its_own_seed_unless_given(tmp_path: Path) -> None:
    def seeds(name: str, workflow: str = TWO, **asked: object) -> list[int]:
        return [run.seed for run in run_plans(expanded(tmp_path / name, workflow, **asked).graph)]

    assert seeds("plain") == [1, 2]
    assert seeds("given", seeds=(7, 9)) == [7, 9]
    assert seeds("one", seeds=(7,)) == [7, 7]
    assert seeds("swept", TWO.replace(" a ", " a, random_seed ") + "  11, 12\n") == [11, 12]
    assert seeds("told", TWO + "VARS g1 random_seed=5\n") == [1, 5]


def test_policy_assigns_sites_to_epochs(tmp_path: Path) -> None:
    asked = {"sites": ("x", "y"), "policy": Policy.PIN}
    made = expanded(tmp_path, TWO, **asked)
    assert [run.targets for run in run_plans(made.graph)] == [("x", "x"), ("y", "y")]
    assert [run.targets for run in run_plans(expanded(tmp_path, TWO).graph)] == [("any", "any")] * 2


# --- what trains and evaluates --------------------------------------------------------------


def test_missing_variables_are_added(tmp_path: Path) -> None:
    made = expanded(tmp_path, TWO)
    first, second = (report_of(node_of(made.graph, f"g0-train_epoch{epoch}")) for epoch in (0, 1))
    uuid = run_plans(made.graph)[0].uuid
    added = {"run": "g0", "run_uuid": uuid, "epoch": "1", "epochs": "2", "random_seed": "1"}
    assert first == {**added, "ResourceName": "any", "a": "1"}
    checkpoint = {"continue_from_checkpoint": f"output/training_logs/{uuid}"}
    assert second == {**first, "epoch": "2", **checkpoint}


def test_given_variables_are_not_repeated(tmp_path: Path) -> None:
    template = (
        "VARS {run}-train_epoch4 EPOCH=5 run_uuid={run}-{a} epochs=30\n"
        "VARS {run} random_seed=8{index}\n"
    )
    made = expanded(tmp_path, TWO, template)
    found = report_of(node_of(made.graph, "g1-train_epoch4"))
    assert found["EPOCH"] == "5"
    assert "epoch" not in found
    assert (found["run_uuid"], found["epochs"], found["random_seed"]) == ("g1-2", "30", "81")
    assert run_plans(made.graph)[1].uuid == "g1-2"
    assert node_of(made.graph, "g1-train_epoch4").epoch == 4


def test_name_may_contain_uuid_and_values(tmp_path: Path) -> None:
    template = "PARENT {uuid}-train_epoch0 CHILD {uuid}_{a}-eval_epoch1\n"
    made = expanded(tmp_path, TWO + "REGION r { *-eval* }\nVARS r x={uuid}\n", template)
    first, second = (run.uuid for run in run_plans(made.graph))
    assert made.graph.edges == (
        (f"{first}-train_epoch0", f"{first}_1-eval_epoch1"),
        (f"{second}-train_epoch0", f"{second}_2-eval_epoch1"),
    )
    found = report_of(node_of(made.graph, f"{second}_2-eval_epoch1"))
    assert (found["x"], found["run_uuid"], found["run"]) == (second, second, "g1")


def test_evaluation_belongs_to_its_parent_training(tmp_path: Path) -> None:
    template = (
        "PARENT {run}-train_epoch0 CHILD {run}-train_epoch1\n"
        "PARENT {run}-train_epoch1 CHILD {run}-rest\n"
        "PARENT {run}-rest CHILD {run}-eval_epoch9\n"
        "JOB {run}-rest rest.sub NOOP\n"
    )
    made = expanded(tmp_path, TWO, template)
    node = node_of(made.graph, "g0-eval_epoch9")
    assert (node.epoch, report_of(node)["epoch"], node.post) == (1, "2", "/bin/true")
    rest = node_of(made.graph, "g0-rest")
    assert (rest.noop, rest.variables, rest.role) == (True, (), NodeRole.PLAIN)


def test_gate_precedes_training_and_evaluation(tmp_path: Path) -> None:
    template = CHAIN + "PARENT {run}-train_epoch0 CHILD {run}-eval_epoch1\n"
    made = expanded(tmp_path, TWO + "JOB x x.sub\n", template, gate=StopRules(poll=9))
    uuid = run_plans(made.graph)[1].uuid
    node = node_of(made.graph, "g1-eval_epoch1")
    assert node.pre == f"gate.py ensemble.gate.json {uuid} 0 evaluate $JOB"
    assert (node.defer, node.skip_code, report_of(node)["node"]) == ((75, 9), 42, "g1-eval_epoch1")
    assert node_of(made.graph, "x").pre is None


# --- precedence of variables --------------------------------------------------------------------


def test_variables_of_node_run_region_and_all_take_precedence(tmp_path: Path) -> None:
    workflow = (
        TWO
        + "VARS g0-train_epoch1 v=node\n"
        + "VARS g v=run w=run\n"
        + "REGION late { *-train_epoch1 }\n"
        + "VARS late v=region w=region x=region\n"
        + "VARS ALL_NODES v=all w=all x=all y=all z={run}\n"
    )
    made = expanded(tmp_path, workflow)
    found = report_of(node_of(made.graph, "g0-train_epoch1"))
    assert [found[name] for name in "vwxyz"] == ["node", "run", "region", "all", "g0"]
    found = report_of(node_of(made.graph, "g1-train_epoch1"))
    assert [found[name] for name in "vwxy"] == ["run", "run", "region", "all"]
    found = report_of(node_of(made.graph, "g1-train_epoch0"))
    assert [found[name] for name in "vwxy"] == ["run", "run", "all", "all"]
    node = node_of(made.graph, "g0-train_epoch1")
    given = next(each for each in node.variables if each.name == "v")
    assert (given.level, given.where) == (Precedence.NODE, "w.dag:3")
    assert [(each.value, each.level, each.where) for each in given.hides] == [
        ("run", Precedence.RUN, "w.dag:4"),
        ("region", Precedence.REGION, "w.dag:6"),
        ("all", Precedence.ALL, "w.dag:7"),
    ]


def test_appended_variables_keep_their_level(tmp_path: Path) -> None:
    template = CHAIN + 'VARS ALL_NODES APPEND a="99" b="say \\"it\\""\nVARS {run} b={a} c=1\n'
    workflow = TWO + "VARS g0-train_epoch0 APPEND C={run}\n"
    request = request_for(tmp_path, workflow, t=template)
    first, second, *_ = expand(request).graph.nodes
    a, b, c = (next(v for v in first.variables if v.name.lower() == name) for name in "abc")
    assert (a.value, a.level, a.append) == ("1", Precedence.NODE, False)
    assert [(each.value, each.append) for each in a.hides] == [("1", False), ("99", True)]
    assert (b.value, b.append, c.value, c.level, c.append) == (
        "1",
        False,
        "g0",
        Precedence.NODE,
        True,
    )
    dag = written(request)
    result = [line for line in dag.split("\n") if line.startswith(f"VARS {first.name} ")]
    assert [line.count("APPEND") for line in result] == [0, 1]
    assert result[1] == 'VARS g0-train_epoch0 APPEND C="g0"'
    assert 'b="2" c="1"' in dag
    assert "99" not in dag
    assert {each.name: each.value for each in second.variables}["a"] == "1"
    assert read_plan(make_plan(request)).nodes[first.name].vars["C"] == "g0"


@pytest.mark.parametrize("name", ["prepended", "APPEND_x"])
def test_variable_may_begin_with_a_keyword(tmp_path: Path, name: str) -> None:
    """DAGMan before 25.5 takes the beginning of such a name for the keyword."""
    request = request_for(tmp_path, TWO + f"JOB x x.sub\nVARS x {name}=1\n")
    assert f'VARS x PREPEND {name}="1"\n' in written(request)


def test_variables_and_regions_of_the_request_count(tmp_path: Path) -> None:
    asked = {
        "variables": {"v": "asked", "w": "asked"},
        "regions": (Region("late", {"w": "late"}, epochs=(1, 9)),),
    }
    made = expanded(tmp_path, TWO + "JOB init init.sub\nVARS ALL_NODES v=file\n", **asked)
    assert report_of(node_of(made.graph, "g0-train_epoch1"))["w"] == "late"
    assert report_of(node_of(made.graph, "g0-train_epoch0"))["w"] == "asked"
    assert report_of(node_of(made.graph, "init")) == {"v": "file", "w": "asked"}


def test_labels_and_indices_are_filled_in(tmp_path: Path) -> None:
    workflow = 'GEN SUBDAG g t.subdag a from\n 0.1 as low, "x, y"\n'
    template = "VARS {run}-train_epoch0 t={a_label}-{index} u=$(epoch){{a}}{uuid} v='{a}'\n"
    made = expanded(tmp_path, workflow, template)
    found = [report_of(node) for node in made.graph.nodes]
    assert [each["t"] for each in found] == ["low-0", "x, y-1"]
    assert [each["v"] for each in found] == ["0.1", "x, y"]
    assert found[1]["u"] == "$(epoch){a}" + run_plans(made.graph)[1].uuid


# --- groups and all other commands --------------------------------------------------------------


def test_edges_connect_the_ends_of_groups_runs_and_nodes(tmp_path: Path) -> None:
    template = CHAIN + "PARENT {run}-train_epoch0 CHILD {run}-eval_epoch1\n"
    workflow = (
        "GEN SUBDAG one t.subdag a from\n 1, 2\n"
        "gen subdag two t.subdag a from\n 3\n"
        "JOB report report.sub\n"
        "PARENT one CHILD two report\n"
        "Parent two0-train_epoch0 \\\n  child report\n"
    )
    made = expanded(tmp_path, workflow, template)
    lasts = [f"one{index}-{end}" for index in (0, 1) for end in ("train_epoch1", "eval_epoch1")]
    across = [edge for edge in made.graph.edges if edge[0][:4] != edge[1][:4]]
    expected = [(last, end) for last in lasts for end in ("two0-train_epoch0", "report")]
    assert across == [*expected, ("two0-train_epoch0", "report")]


def test_template_may_name_a_node_of_the_workflow(tmp_path: Path) -> None:
    template = CHAIN + "PARENT init CHILD {run}-train_epoch1\n"
    made = expanded(tmp_path, TWO + "JOB init init.sub\n", template)
    assert ("init", "g1-train_epoch1") in made.graph.edges


def test_dagman_commands_are_passed_on(tmp_path: Path) -> None:
    template = (
        CHAIN + "RETRY {run}-train_epoch0 5\nSCRIPT POST {run}-train_epoch1 tidy.sh {a} $JOB\n"
        "SCRIPT DEFER 4 60 PRE {run}-train_epoch0 look.sh\nCATEGORY ALL_NODES c{index}\n"
        "MAXJOBS c{index} 2\nPRE_SKIP {run}-train_epoch0 9\n"
    )
    workflow = (
        TWO + "# a comment\nFINAL end end.sub\nPROVISIONER p p.sub\nSERVICE s s.sub\n"
        "RETRY ALL_NODES 2\nRETRY g1 7\nCONFIG dag.conf\nNODE_STATUS_FILE my.status 10\n"
        "ABORT-DAG-ON g0-train_epoch0 3 RETURN 1\nSET_JOB_ATTR x = {y}\nDONE g0-train_epoch0\n"
        'VARS g0 APPEND q="it\'s {a}"\n'
    )
    made = expanded(tmp_path, workflow, template, retries=4)
    graph = made.graph
    first, last = node_of(graph, "g0-train_epoch0"), node_of(graph, "g1-train_epoch1")
    assert graph.retries == 2
    # From that line on every node has two retries, but for the lines below it.
    assert (first.retries, last.retries) == (None, 7)
    assert (first.pre, first.defer, first.skip_code) == ("look.sh", (4, 60), 9)
    assert last.post == "tidy.sh 2 $JOB"
    kinds = {node.name: node.kind for node in graph.nodes if node.run is None}
    assert kinds == {"end": NodeKind.FINAL, "p": NodeKind.PROVISIONER, "s": NodeKind.SERVICE}
    assert set(graph.lines) == {
        *(f"CATEGORY g{run}-train_epoch{e} c{run}" for run in (0, 1) for e in (0, 1)),
        *("MAXJOBS c0 2", "MAXJOBS c1 2", "CONFIG dag.conf", "NODE_STATUS_FILE my.status 10"),
        *("ABORT-DAG-ON g0-train_epoch0 3 RETURN 1", "SET_JOB_ATTR x = {y}"),
        "DONE g0-train_epoch0",
    }
    appended = next(each for each in first.variables if each.name == "q")
    assert (appended.value, appended.append) == ("it's 1", True)
    assert {"tidy.sh", "look.sh", "dag.conf", "end.sub"} <= {file.name for file in made.files}


def test_retry_of_one_node_overrides_that_of_all(tmp_path: Path) -> None:
    template = CHAIN + "RETRY {run}-train_epoch0 5 UNLESS-EXIT 4\n"
    dag = written(request_for(tmp_path / "one", TWO, t=template))
    assert "RETRY g0-train_epoch0 5 UNLESS-EXIT 4" in dag
    # DAGMan takes the last line of the file.
    assert dag.index("RETRY ALL_NODES 3\n") < dag.index("RETRY g0-train_epoch0 5")
    wide = TWO + "RETRY ALL_NODES 2 UNLESS-EXIT 9\n"
    made = expanded(tmp_path / "all", wide, template)
    node = node_of(made.graph, "g0-train_epoch0")
    assert (made.graph.retries, made.graph.unless_exit, node.retries) == (2, 9, None)
    assert "RETRY ALL_NODES 2 UNLESS-EXIT 9\n" in written(request_for(tmp_path / "all", wide))


def test_retry_with_unless_exit_suits_a_gate(tmp_path: Path) -> None:
    workflow = TWO + "RETRY g 2 UNLESS-EXIT 9\n"
    made = expanded(tmp_path, workflow, gate=StopRules(), retries=0)
    node = node_of(made.graph, "g0-train_epoch0")
    assert (node.retries, node.unless_exit) == (2, 9)


@pytest.mark.parametrize("beside", ["", "PROVISIONER p p.sub\n"])
def test_all_nodes_excludes_service_nodes(tmp_path: Path, beside: str) -> None:
    """DAGMan before 25.5 refuses the whole DAG, even for ALL_NODES."""
    workflow = TWO + beside + "SERVICE s s.sub\nPRIORITY ALL_NODES 5\nCATEGORY ALL_NODES c\n"
    request = request_for(tmp_path, workflow)
    dag = written(request)
    assert not [line for line in dag.split("\n") if line.endswith(("ALL_NODES 3", "ALL_NODES c"))]
    nodes = [f"g{run}-train_epoch{epoch}" for run in (0, 1) for epoch in (0, 1)]
    for command, value in (("RETRY", 3), ("PRIORITY", 5), ("CATEGORY", "c")):
        result = [line for line in dag.split("\n") if line.startswith(f"{command} ")]
        assert result == [f"{command} {node} {value}" for node in nodes]
    assert not [p for p in read_plan(make_plan(request)).problems if p.kind == "node-kind"]


@pytest.mark.parametrize("options", ["DEBUG d ALL DEFER 4 60", "DEFER 4 60 DEBUG d ALL"])
def test_options_of_scripts_may_have_any_order(tmp_path: Path, options: str) -> None:
    workflow = TWO + "".join(
        f"SCRIPT {options} {kind} g0-train_epoch0 {kind}.sh\n" for kind in ("PRE", "POST", "HOLD")
    )
    request = request_for(tmp_path, workflow)
    (node, *_) = expand(request).graph.nodes
    assert (node.pre, node.defer, node.post, node.hold) == ("PRE.sh", (4, 60), "POST.sh", "HOLD.sh")
    dag = written(request)
    for kind in ("PRE", "POST", "HOLD"):
        assert f"\nSCRIPT DEFER 4 60 DEBUG d ALL {kind} g0-train_epoch0 {kind}.sh\n" in dag


def test_last_script_of_a_kind_counts(tmp_path: Path) -> None:
    template = CHAIN + "PARENT {run}-train_epoch1 CHILD {run}-eval_epoch2\n"
    scripts = "SCRIPT DEBUG d ALL PRE g0 one.sh\nSCRIPT PRE g0 two.sh\n"
    workflow = TWO + scripts + "SCRIPT DEBUG d ALL POST g0-eval_epoch2 own.sh\n"
    dag = written(request_for(tmp_path, workflow, t=template))
    assert "one.sh" not in dag
    assert dag.count(" POST g0-eval_epoch2 ") == 1


def test_scripts_receive_the_swept_values(tmp_path: Path) -> None:
    workflow = (
        TWO + "SCRIPT POST g post.sh {a} {run} $JOB\nSCRIPT DEBUG {run}.out ALL HOLD g0 hold.sh\n"
        "CATEGORY ALL_NODES c{a}\nSCRIPT PRE ALL_NODES {{a}}.sh\n"
    )
    request = request_for(tmp_path, workflow)
    made = expand(request)
    nodes = {node.name: node for node in made.graph.nodes}
    assert nodes["g0-train_epoch0"].post == "post.sh 1 g0 $JOB"
    assert nodes["g1-train_epoch1"].post == "post.sh 2 g1 $JOB"
    assert nodes["g1-train_epoch1"].pre == "{a}.sh"
    assert "CATEGORY g1-train_epoch0 c2" in made.graph.lines
    assert "\nSCRIPT DEBUG g0.out ALL HOLD g0-train_epoch1 hold.sh\n" in written(request)


def test_files_of_jobs_are_copied(tmp_path: Path) -> None:
    workflow = TWO + "JOB init my.sub\nSPLICE side side.inc\nSUBDAG EXTERNAL far far.inc\n"
    request = request_for(tmp_path, workflow)
    described = (
        "executable = run.sh\ntransfer_input_files = data.csv, in/x.csv, no.csv, /etc/hosts\n"
    )
    (tmp_path / "in").mkdir()
    for name, text in {
        "my.sub": described,
        "run.sh": "#!/bin/sh\n",
        "in/x.csv": "2",
        "side.inc": "JOB a a.sub\n",
        "far.inc": "JOB f f.sub\n",
        **dict.fromkeys(("a.sub", "f.sub"), "executable = /bin/true\nqueue\n"),
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "data.csv").symlink_to("in/x.csv")
    files = {file.name: file for file in make_plan(request).files}
    assert {"my.sub", "run.sh", "data.csv", "side.inc", "far.inc"} <= files.keys()
    assert not {"a.sub", "f.sub"} & files.keys()
    assert [name for name in ("run.sh", "data.csv") if files[name].executable] == ["run.sh"]
    result = [each.text for each in validate(request).problems if each.text.startswith("my.sub:")]
    new, later = tmp_path / "new", ", unless an earlier job brings it"
    assert result == [
        f"my.sub:2: in/x.csv lies in {tmp_path}, but is needed in {new}; copy it there{later}",
        f"my.sub:2: no.csv: no such file in {new}; put it there before submitting{later}",
    ]


def test_initialdir_is_where_files_are_looked_for(tmp_path: Path) -> None:
    request = request_for(tmp_path, TWO + "JOB init my.sub\n")
    text = "initialdir = work\nexecutable = run.sh\ntransfer_input_files = train.py\n"
    (tmp_path / "my.sub").write_text(text)
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    assert "run.sh" not in {file.name for file in make_plan(request).files}
    result = [each.text for each in validate(request).problems if each.text.startswith("my.sub:")]
    assert ["work/run.sh" in result[0], "work/train.py" in result[1]] == [True, True]
    (tmp_path / "my.sub").write_text(text.partition("\n")[2])
    # The trainer's template ships a train.py.
    assert not [each for each in validate(request).problems if each.text.startswith("my.sub:")]


def test_inline_description_of_a_template_is_valid_in_dagman(tmp_path: Path) -> None:
    described = "SUBMIT-DESCRIPTION d {\n executable = x\n x = {{a}}\n queue\n queue_x = 1\n}\n"
    made = expanded(tmp_path, TWO, CHAIN + described + "JOB {run}-more d\n")
    assert made.graph.lines[0] == (
        "SUBMIT-DESCRIPTION d {\n  executable = x\n  x = {a}\n  queue_x = 1\n}"
    )


# --- variables without effect -------------------------------------------------------------------


def without_effect(request: Request) -> list[str]:
    found = [each for each in validate(request).problems if "has no effect" in each.text]
    assert not any(each.fatal for each in found)
    return [each.text for each in found]


def test_swept_variable_without_effect_is_reported(tmp_path: Path) -> None:
    request = request_for(tmp_path, INIT + REPORTED, train=REPORTED_TEMPLATE)
    first, second = without_effect(request)
    assert first.startswith(
        "w.dag:3: a has no effect on the jobs: no template has a parameter 'a', and no submit file "
        "says $(a); say it there, or give it to a parameter: VARS {run} parameter={a}"
    )
    assert second.startswith("w.dag:4: b has no effect")


@pytest.mark.parametrize(
    "template",
    [
        CHAIN + "VARS {run} learning_rate={a}\n",
        CHAIN + "VARS {run}-train_epoch0 +Group=x{a}\n",
        CHAIN + "VARS {run} My.Group={a_label}\n",
        CHAIN + "VARS ALL_NODES APPEND request_memory={a}\n",
        CHAIN + "VARS {run} ResourceName={a}\n",
        CHAIN + "VARS {run} x={a} learning_rate=0.$(x)\n",
        CHAIN + "SCRIPT POST {run}-train_epoch1 x.sh {a}\n",
        CHAIN + "CATEGORY {run}-train_epoch1 c{a}\n",
        CHAIN + "SET_JOB_ATTR x = {a}\n",
        "VARS {run}-{a}-train_epoch0 x=1\n",
        CHAIN + "JOB {run}-train_epoch1 own{a}.sub\n",
        CHAIN + "JOB {run}-train_epoch1 says.sub\n",
        CHAIN + "JOB {run}-train_epoch1 asks.sub\n",
        CHAIN + "JOB {run}-train_epoch1 not-here.sub\n",
        CHAIN + "JOB {run}-train_epoch1 includes.sub\n",
        CHAIN + "JOB {run}-train_epoch1 d\nSUBMIT-DESCRIPTION d {\n arguments = $(A)\n}\n",
    ],
)
def test_swept_variable_with_effect_is_not_reported(tmp_path: Path, template: str) -> None:
    workflow = TWO.replace("1, 2", "1 as one, 2 as two")
    request = request_for(tmp_path, workflow, t=template)
    (tmp_path / "says.sub").write_text("# $(b)\narguments = $INT(A,%d)\nqueue\n")
    (tmp_path / "asks.sub").write_text("if defined a\narguments = x\nendif\nqueue\n")
    (tmp_path / "includes.sub").write_text("include : more.inc\nqueue\n")
    assert without_effect(request) == []


def test_workflow_line_can_give_a_variable_effect(tmp_path: Path) -> None:
    for line in ("VARS g learning_rate={a}", "SCRIPT PRE g x.sh {a}", "PRIORITY ALL_NODES {a}"):
        assert without_effect(request_for(tmp_path, f"{TWO}{line}\n")) == []


def test_comments_and_machine_attributes_have_no_effect(tmp_path: Path) -> None:
    template = CHAIN + "JOB {run}-train_epoch0 x.sub\nJOB {run}-train_epoch1 x.sub\n"
    request = request_for(tmp_path, TWO, t=template)
    (tmp_path / "x.sub").write_text("# $(a)\narguments = $$(a)\nqueue\n")
    assert len(without_effect(request)) == 1


def test_variables_of_the_request_without_effect_are_reported(tmp_path: Path) -> None:
    request = request_for(tmp_path, TWO.replace(" a ", " learning_rate "))
    region = Region("late", {"y": "1", "ResourceName": "B"}, where="e.toml:4")
    asked = replace(request, variables={"x": "1", "project": "2"}, regions=(region,))
    (tmp_path / "t.subdag").write_text(CHAIN.split("\n")[0] + "\n")
    assert without_effect(asked) == [
        "no template has a parameter 'x' and no submit file says $(x), so it has no effect; "
        "correct the name",
        "e.toml:4: no template has a parameter 'y' and no submit file says $(y), so it has no "
        "effect; correct the name",
    ]


def test_descriptions_splices_and_includes_are_kept(tmp_path: Path) -> None:
    workflow = (
        TWO + "INCLUDE more.subdag\nSPLICE side side.dag\nPARENT g CHILD side\n"
        "JOB d note\nSUBMIT-DESCRIPTION note {\n  executable = /bin/true\n}\n"
    )
    request = request_for(tmp_path, workflow, more="JOB init init.sub\nPARENT init CHILD g\n")
    made = expand(request)
    assert ("init", "g0-train_epoch0") in made.graph.edges
    assert "PARENT g0-train_epoch1 g1-train_epoch1 CHILD side" in made.graph.lines
    assert made.graph.lines[0] == "SUBMIT-DESCRIPTION note {\n  executable = /bin/true\n}"
    plan = make_plan(request)
    text = plan.files[0].data.decode()
    # DAGMan 23.9 looks for a file of this name where the description comes later.
    assert text.index("SUBMIT-DESCRIPTION note") < text.index("JOB d note")
    # Only the splice's file is missing beside the sweep.
    problems = [p for p in read_plan(plan).problems if p.error]
    assert [p.kind for p in problems] == ["missing-file", "unknown-node"]
    assert all("side" in p.text for p in problems)


def test_job_line_sets_the_submit_file(tmp_path: Path) -> None:
    template = CHAIN + "JOB {run}-train_epoch0 first{a}.sub\n"
    made = expanded(tmp_path, TWO + "JOB g1-train_epoch1 last.sub DONE\n", template)
    assert {node.name: node.submit for node in made.graph.nodes} == {
        "g0-train_epoch0": "first1.sub",
        "g0-train_epoch1": "ensemble.sub",
        "g1-train_epoch0": "first2.sub",
        "g1-train_epoch1": "last.sub",
    }
    assert node_of(made.graph, "g1-train_epoch1").role is NodeRole.TRAIN
    assert made.graph.lines == ("DONE g1-train_epoch1",)


def test_runs_may_be_sub_dags(tmp_path: Path) -> None:
    template = CHAIN + "PRIORITY {run}-train_epoch0 {a}\nFINAL {run}-end end.sub\n"
    workflow = TWO + "JOB init init.sub\nPARENT init CHILD g\nVARS g1 v=1\nRETRY g0 6\n"
    flat = expanded(tmp_path / "flat", workflow, template.replace("FINAL", "JOB"))
    made = expanded(tmp_path / "apart", workflow, template, subdags=True)
    graph = made.graph
    assert [(n.name, n.kind, n.submit) for n in graph.nodes] == [
        ("g0", NodeKind.SUBDAG, "ensemble-g0.dag"),
        ("g1", NodeKind.SUBDAG, "ensemble-g1.dag"),
        ("init", NodeKind.JOB, "init.sub"),
    ]
    assert graph.edges == (("init", "g0"), ("init", "g1"))
    # A whole run is not retried; the workflow's own node has the usual retries.
    assert (graph.retries, node_of(graph, "init").retries) == (0, 3)
    inner = graph.subdags["ensemble-g1.dag"]
    assert names(inner) == ["g1-train_epoch0", "g1-train_epoch1", "g1-end"]
    assert inner.edges == (("g1-train_epoch0", "g1-train_epoch1"),)
    assert (inner.retries, inner.lines) == (3, ("PRIORITY g1-train_epoch0 2",))
    assert [run.uuid for run in run_plans(made.graph)] == [
        run.uuid for run in run_plans(flat.graph)
    ]
    assert run_plans(graph) == run_plans(made.graph)
    assert report_of(node_of(graph, "g1-train_epoch0"))["v"] == "1"


@pytest.mark.parametrize("subdags", [False, True])
def test_printed_syntax_is_valid(tmp_path: Path, subdags: bool) -> None:
    blocks = [
        "\n".join(line[4:] for line in part.split("\n"))
        for part in SYNTAX.split("\n\n")
        if part.startswith("    #")
    ]
    workflow, template = blocks
    request = request_for(tmp_path, workflow, train=template)
    graph = expand(replace(request, subdags=subdags)).graph
    assert node_of(graph, "flow2-pack") is not None
    assert report_of(node_of(graph, "flow1-train_epoch0"))["rate"] == "0.02"
    assert report_of(node_of(graph, "flow0-train_epoch0"))["lr"] == "0.01"
    assert ("init", "flow1" if subdags else "flow1-train_epoch0") in graph.edges
    assert SYNTAX.count("\n") < 30


def test_plan_uses_the_validated_expansion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expanding a large sweep takes time, so it is done once."""
    request = request_for(tmp_path, TWO)
    expected = make_plan(request)
    validation = validate(request)
    monkeypatch.setattr("metlmon.authoring.sweeps.expand.expand", None)
    plan = make_plan(request, validation)
    assert [file.data for file in plan.files] == [file.data for file in expected.files]
