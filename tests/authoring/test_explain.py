"""The origin of each variable of a node, and the values that it hides."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from metlmon.authoring.graph import Precedence, explain
from metlmon.authoring.request import Request
from metlmon.authoring.runs import build_graph
from tests.support.commands import Captured, json_output, text_output
from tests.support.sample_requests import nap

DESCRIPTION = """\
template = "own/nap.sub"
runs = 2
epochs = 3
[variables]
project = "METL"
[region.late]
epochs = "1 to 2"
variables = { project = "late", ResourceName = "B" }
[region.last]
epochs = 2
runs = ["run1"]
variables = { project = "last" }
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nap(tmp_path / "own")
    Path("mine.toml").write_text(DESCRIPTION)


def new_text(capsys: Captured, words: str) -> str:
    return text_output("new", capsys, *shlex.split(words))


def explanations(capsys: Captured, words: str) -> list[dict[str, Any]]:
    return json_output("new", capsys, *shlex.split(words))["explained"]


def variables(node: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in node["variables"]}


def given(variable: dict[str, Any]) -> tuple[str, str, str]:
    return variable["value"], variable["level"], variable["where"]


def test_nearest_value_wins_and_lists_hidden_ones(capsys: Captured) -> None:
    (node,) = explanations(capsys, "mine.toml --explain run1-train_epoch2")
    found = variables(node)
    project = found["project"]
    assert given(project) == ("last", "region", "mine.toml:9")
    assert [given(each) for each in project["hides"]] == [
        ("late", "region", "mine.toml:6"),
        ("METL", "all", "mine.toml:5: variables.project"),
    ]
    assert (found["ResourceName"]["value"], found["ResourceName"]["level"]) == ("B", "region")
    assert (found["epochs"]["where"], found["epochs"]["level"]) == ("mine.toml:3: epochs", "all")
    assert (found["epoch"]["value"], found["epoch"]["level"]) == ("3", "node")
    text = new_text(capsys, "mine.toml --explain run1-train_epoch2")
    line = next(line for line in text.splitlines() if line.strip().startswith("project"))
    assert line.split() == ["project", '"last"', "region", "mine.toml:9"]
    assert '      hides "late" (region: mine.toml:6)\n      hides "METL" (all nodes: mine' in text
    (other,) = explanations(capsys, "mine.toml --explain run0-train_epoch0")
    assert variables(other)["project"]["value"] == "METL"
    assert variables(other)["project"]["hides"] == []


SWEPT = "GEN SUBDAG g t.subdag a from\n 1,2\n"
CHAIN = "PARENT {run}-train_epoch0 CHILD {run}-train_epoch1\n"


def sweep_file(workflow: str = "", template: str = CHAIN) -> None:
    """Write s.dag, two runs of two epochs; ``workflow`` from line 3 on."""
    Path("s.dag").write_text(SWEPT + workflow)
    Path("t.subdag").write_text(template)


@pytest.mark.parametrize(
    ("words", "node", "variable", "value", "where"),
    [
        ("mine.toml --epochs 4", "run0-train_epoch0", "epochs", "4", "--epochs"),
        ("mine.toml --var project=x", "run0-train_epoch0", "project", "x", "--var project"),
        ("stages.toml", "run0-train_epoch0", "epochs", "1", "stages.toml:2: stage"),
        ("seeds.toml", "run0-train_epoch0", "random_seed", "7", "seeds.toml:4: seeds"),
        ("seeds.toml --seeds 3,4", "run0-train_epoch0", "random_seed", "3", "--seeds"),
        ("s.dag --seeds 3,4", "g1-train_epoch0", "random_seed", "4", "--seeds"),
    ],
)
def test_origin_of_a_value_is_given(
    capsys: Captured, words: str, node: str, variable: str, value: str, where: str
) -> None:
    head = 'template = "own/nap.sub"\n'
    Path("stages.toml").write_text(f'{head}[[stage]]\nname = "one"\nepochs = 1\n')
    Path("seeds.toml").write_text(f'{head}runs = 2\n\nseeds = "7-8"\n')
    sweep_file()
    (explained,) = explanations(capsys, f"{words} --explain {node}")
    found = variables(explained)[variable]
    assert (found["value"], found["where"]) == (value, where)


def test_appended_values_are_marked(capsys: Captured) -> None:
    sweep_file("VARS g APPEND b=7 a=9\n", CHAIN + 'VARS ALL_NODES APPEND a="99"\n')
    (node,) = explanations(capsys, "s.dag --explain g0-train_epoch0")
    found = variables(node)
    assert [(found[n]["value"], found[n]["where"], found[n]["append"]) for n in "ab"] == [
        ("9", "s.dag:3", True),
        ("7", "s.dag:3", True),
    ]
    assert [each["value"] for each in found["a"]["hides"]] == ["1", "99"]
    text = new_text(capsys, "s.dag --explain g0-train_epoch0")
    assert "s.dag:3, APPEND: before the submit file\n" in text


def test_weak_parents_and_splices_are_listed(capsys: Captured) -> None:
    sweep_file(
        "JOB tidy tidy.sub\nSPLICE more more.dag\nWEAK PARENT g CHILD tidy\n"
        "PARENT more CHILD g\nPARENT tidy CHILD more\n"
    )
    (node,) = explanations(capsys, "s.dag --explain tidy")
    assert node["parents"] == node["weak_parents"] == ["g0-train_epoch1", "g1-train_epoch1"]
    assert node["children"] == ["more"]
    (node,) = explanations(capsys, "s.dag --explain g1-train_epoch0")
    assert (node["parents"], node["weak_parents"]) == (["more"], [])
    text = new_text(capsys, "s.dag --explain tidy")
    assert "  after     g0-train_epoch1 (weak: also if it fails), g1-" in text


def test_all_commands_of_a_node_are_listed(capsys: Captured) -> None:
    sweep_file(
        "SCRIPT HOLD g0 h.sh\nSCRIPT DEBUG d ALL POST g0 p.sh\nRETRY g0 5 UNLESS-EXIT 3\n"
        "PRIORITY g0 7\nCATEGORY ALL_NODES c\n"
    )
    (node,) = explanations(capsys, "s.dag --explain g0-train_epoch0")
    assert (node["hold"], node["options"]) == (
        "h.sh",
        [{"script": "POST", "options": "DEBUG d ALL"}],
    )
    assert (node["retries"], node["unless_exit"]) == (5, 3)
    assert node["commands"] == ["PRIORITY g0-train_epoch0 7", "CATEGORY ALL_NODES c"]
    text = new_text(capsys, "s.dag --explain g0-train_epoch0")
    for result in (
        "  HOLD      h.sh",
        "  POST      p.sh  (DEBUG d ALL)",
        "  retries   5, unless it exits with 3",
        "  says      PRIORITY g0-train_epoch0 7",
    ):
        assert f"{result}\n" in text


def test_neighbours_script_and_submit_file_are_listed(capsys: Captured) -> None:
    (node,) = explanations(capsys, "mine.toml --explain run0-train_epoch1")
    assert (node["parents"], node["children"]) == (["run0-train_epoch0"], ["run0-train_epoch2"])
    assert (node["submit"], node["file"], node["role"]) == ("mine.sub", "mine.dag", "train")
    assert node["pre"].startswith("gate.py mine.gate.json ")
    assert (node["defer"], node["skip_code"]) == ([75, 60], 42)
    text = new_text(capsys, "mine.toml --explain run0-train_epoch1")
    assert "  after     run0-train_epoch0\n  before    run0-train_epoch2\n" in text
    assert "(exit 75: asked again after 60s; 42: done without a job)" in text


def test_several_nodes_are_explained(capsys: Captured) -> None:
    found = explanations(capsys, "mine.toml --explain 'run0-*'")
    assert [each["name"] for each in found] == [f"run0-train_epoch{epoch}" for epoch in range(3)]


def test_nodes_of_sub_dags_are_explained(tmp_path: Path) -> None:
    request = Request(str(tmp_path / "own" / "nap.sub"), Path("x"), runs=2, epochs=2, subdags=True)
    graph = build_graph(request)
    assert len({node.name for node in graph.all_nodes}) == 2 + 4
    (found,) = explain(graph, "run1-train_epoch1", "x.dag")
    assert found.file in graph.subdags
    assert found.parents == ("run1-train_epoch0",)
    assert {each.level for each in found.node.variables} >= {
        Precedence.ALL,
        Precedence.RUN,
        Precedence.NODE,
    }
