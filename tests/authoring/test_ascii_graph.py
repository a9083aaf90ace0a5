"""The graph in characters: every shape, at several widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from string import ascii_letters

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.authoring.ascii_graph import NARROWEST, draw_graph
from metlmon.authoring.graph import Graph, GraphNode
from metlmon.authoring.request import EnsembleShape, Evaluation, Request, StageRequest
from metlmon.authoring.runs import build_graph
from metlmon.dagman.records import NodeKind
from metlmon.text.spans import to_ascii
from tests.support.sample_requests import nap


@pytest.fixture(name="own", scope="module")
def _own(tmp_path_factory: pytest.TempPathFactory) -> str:
    return nap(tmp_path_factory.mktemp("own"))


def drawn(graph: Graph, cells: int) -> str:
    lines = draw_graph(graph, cells)
    assert max(map(len, lines)) <= cells
    return "\n".join(lines) + "\n"


def make_graph(
    edges: Sequence[tuple[str, str]],
    apart: Mapping[str, NodeKind] | None = None,
    runs: Sequence[str] = (),
) -> Graph:
    """A graph of these edges; nodes whose names begin with a run's belong to it."""
    names = dict.fromkeys(name for edge in edges for name in edge)
    nodes = [
        GraphNode(name, "x.sub", run=next((r for r in runs if name.startswith(f"{r}-")), None))
        for name in names
    ]
    nodes += [GraphNode(name, "x.sub", kind=kind) for name, kind in (apart or {}).items()]
    return Graph(tuple(nodes), tuple(edges))


# --- chains and their branches --------------------------------------------------------------------


def test_a_chain(own: str) -> None:
    graph = build_graph(Request(own, Path("x"), runs=4, epochs=30))
    assert drawn(graph, 40) == (
        "run0 … run3  4 runs like this\n"
        "  train_epoch0 ─▶ … ─▶ train_epoch29\n"
    )  # fmt: skip
    wide = (
        "run0 … run3  4 runs like this\n"
        "  train_epoch0 ─▶ train_epoch1 ─▶ … ─▶ train_epoch29\n"
    )  # fmt: skip
    assert drawn(graph, 80) == wide
    assert drawn(graph, 200) == wide
    assert to_ascii(drawn(graph, 80)) == (
        "run0 ~ run3  4 runs like this\n"
        "  train_epoch0 -> train_epoch1 -> ~ -> train_epoch29\n"
    )  # fmt: skip


def test_evaluations_are_listed_below_the_chain(own: str) -> None:
    graph = build_graph(Request(own, Path("x"), runs=10, epochs=30, evaluation=Evaluation(own)))
    assert drawn(graph, 40) == (
        "run0 … run9  10 runs like this\n"
        "  train_epoch0 ─▶ … ─▶ train_epoch29\n"
        "  └ eval_epoch1 … eval_epoch30 (30)\n"
    )
    assert to_ascii(drawn(graph, 80)) == (
        "run0 ~ run9  10 runs like this\n"
        "  train_epoch0 -> train_epoch1 -> ~ -> train_epoch29\n"
        "  + eval_epoch1 ~ eval_epoch30 (30)\n"
    )


def test_awaited_evaluations_are_in_the_chain(own: str) -> None:
    evaluation = Evaluation(own, gates=True)
    graph = build_graph(Request(own, Path("x"), runs=2, epochs=30, evaluation=evaluation))
    assert drawn(graph, 80) == (
        "run0, run1  2 runs like this\n"
        "  train_epoch0 ─▶ eval_epoch1 ─▶ … ─▶ train_epoch29\n"
        "  └ eval_epoch30\n"
    )


# --- the other shapes -----------------------------------------------------------------------------


def test_stages(own: str) -> None:
    stages = (StageRequest("pre", 20), StageRequest("fine", 10))
    graph = build_graph(Request(own, Path("x"), shape=EnsembleShape.STAGES, stages=stages, runs=3))
    assert drawn(graph, 80) == (
        "run0 … run2  3 runs like this\n"
        "  pre: train_epoch0 ─▶ train_epoch1 ─▶ … ─▶ train_epoch19\n"
        "  ─▶ fine: train_epoch20 ─▶ train_epoch21 ─▶ … ─▶ train_epoch29\n"
    )


def test_sub_dags(own: str) -> None:
    graph = build_graph(Request(own, Path("x"), runs=3, epochs=3, subdags=True))
    assert drawn(graph, 80) == (
        "run0 … run2  3 runs like this, each a sub-DAG\n"
        "  train_epoch0 ─▶ train_epoch1 ─▶ train_epoch2\n"
    )


def test_nodes_before_and_after_all_runs() -> None:
    runs = [f"run{number}" for number in range(10)]
    edges = [(f"{run}-train_epoch0", f"{run}-train_epoch1") for run in runs]
    edges += [("init", f"{run}-train_epoch0") for run in runs]
    edges += [(f"{run}-train_epoch1", "gather") for run in runs]
    assert drawn(make_graph(edges, runs=runs), 80) == (
        "init\n"
        "  ▼\n"
        "run0 … run9  10 runs like this\n"
        "  train_epoch0 ─▶ train_epoch1\n"
        "  ▼\n"
        "gather\n"
    )  # fmt: skip


def test_any_graph_is_drawn_in_layers() -> None:
    edges = [("A", "B0"), ("A", "B1"), ("A", "B2"), ("B0", "C"), ("B1", "C"), ("B2", "C")]
    apart = {"make": NodeKind.PROVISIONER, "beside": NodeKind.SERVICE, "last": NodeKind.FINAL}
    assert drawn(make_graph([*edges, ("A", "D")], apart), 40) == (
        "make  PROVISIONER, before all others\n"
        "beside  SERVICE, beside all others\n"
        "A ─▶ B0 … B2 (3) + D ─▶ C\n"
        "last  FINAL, when all others have ended\n"
    )


def test_runs_of_different_forms_are_drawn_apart() -> None:
    runs = ["run0", "run1", "run2"]
    edges = [(f"{run}-a0", f"{run}-a1") for run in runs] + [("run1-a1", "run1-a2")]
    assert drawn(make_graph(edges, runs=runs), 80) == (
        "run0, run2  2 runs like this\n"
        "  a0 ─▶ a1\n"
        "run1\n"
        "  a0 ─▶ a1 ─▶ a2\n"
    )  # fmt: skip


def test_runs_with_edges_between_them_cycle_and_empty_graph() -> None:
    edges = [("p-1", "q-1"), ("q-1", "p-2")]
    assert drawn(make_graph(edges, runs=["p", "q"]), 80) == "p-1 ─▶ q-1 ─▶ p-2\n"
    circle = make_graph([("a", "b"), ("b", "a")])
    assert drawn(circle, 80) == "a, b: these wait for each other\n"
    assert drawn(Graph(), 80) == "(no nodes)\n"


def test_control_characters_in_names_are_escaped() -> None:
    text = drawn(make_graph([("a\x1b[2J", "b\u202e")]), 80)
    assert "\x1b" not in text
    assert "\u202e" not in text


# --- any size -------------------------------------------------------------------------------------


@given(st.data())
def test_drawing_keeps_within_width_and_height(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.text("ab0123-", min_size=1, max_size=30), unique=True))
    count = len(names)
    pairs = st.tuples(st.integers(0, max(0, count - 1)), st.integers(0, max(0, count - 1)))
    chosen = data.draw(st.lists(pairs, max_size=40)) if count > 1 else []
    edges = tuple(
        dict.fromkeys((names[min(pair)], names[max(pair)]) for pair in chosen if len(set(pair)) > 1)
    )
    run = st.sampled_from([None, "a", "b"])
    nodes = tuple(GraphNode(name, "x.sub", run=data.draw(run)) for name in names)
    cells = data.draw(st.integers(1, 200))
    lines = draw_graph(Graph(nodes, edges), cells)
    assert max(map(len, lines)) <= max(cells, NARROWEST)
    assert 0 < len(lines) < 300


def test_large_graph_has_a_small_drawing() -> None:
    names = [f"run{run}-train_epoch{epoch}" for run in range(100) for epoch in range(500)]
    nodes = tuple(GraphNode(name, "x.sub", run=name.split("-")[0]) for name in names)
    edges = tuple(
        (one, other) for one, other in pairwise(names) if one.split("-")[0] == other.split("-")[0]
    )
    assert len(draw_graph(Graph(nodes, edges), 80)) == 2
    # As many kinds of nodes as nodes: no part repeats.
    odd = [f"{'abc'[number % 3] * (number + 1)}" for number in range(300)]
    edges = tuple(pairwise(odd))
    assert len(draw_graph(make_graph(edges), 80)) < 40
    # Families of nodes are drawn as one block each.
    layers = pairwise(ascii_letters[:15])
    steps = [(f"{one}{n}", f"{other}{n}") for one, other in layers for n in "12"]
    graph = make_graph([("r-a", "r-b"), *steps], runs=["r"])
    assert draw_graph(graph, 80)[-1] == "… 4 more groups of nodes"
