"""The tree of nodes: places, groups and order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from metlmon.dagman.records import NodeKind
from metlmon.model.states import State
from metlmon.snapshot.node_tree import NodeTree, file_order, fold_state
from tests.support.node_graphs import dag_of, nodes_of, tree, words

DONE, HELD, RUNNING, WAITING = State.COMPLETED, State.HELD, State.RUNNING, State.WAITING


def test_join_is_beside_the_branches_that_it_ends() -> None:
    edges = [("init", "b"), ("init", "c"), ("b", "gather"), ("c", "gather"), ("gather", "plot")]
    nodes = nodes_of(["init", "b", "c", "gather", "plot"], edges)
    assert words(tree(nodes).rows()) == ["-init", "   b", "   c", " gather", " plot"]


def test_chain_keeps_its_depth_above_its_side_nodes() -> None:
    names = [f"train{n}" for n in range(4)] + [f"judge{n}" for n in range(4)]
    edges = [(f"train{n}", f"train{n + 1}") for n in range(3)]
    edges += [(f"train{n}", f"judge{n}") for n in range(4)]
    shown = words(tree(nodes_of(names, edges)).rows())
    assert shown == [
        *("-train0", "   judge0", "-train1", "   judge1"),
        *("-train2", "   judge2", "-train3", "   judge3"),
    ]


def test_order_is_trouble_then_running_then_waiting() -> None:
    nodes = nodes_of("abcdef")
    states = dict(zip("abcdef", (DONE, WAITING, RUNNING, HELD, State.IDLE, State.FAILED),
                      strict=True))  # fmt: skip
    drawn = tree(nodes, states)
    assert words(drawn.rows()) == [" d", " f", " c", " e", " b", " a"]
    assert words(drawn.rows(order=file_order)) == [f" {name}" for name in "abcdef"]
    assert words(drawn.rows(backwards=True)) == [" a", " b", " e", " c", " f", " d"]


def test_equal_siblings_are_one_row_unless_in_trouble() -> None:
    names = [f"shard{n:03}" for n in range(100)]
    states = {name: DONE if n < 30 else WAITING for n, name in enumerate(names)}
    states |= {"shard007": HELD, "shard050": RUNNING}
    drawn = tree(nodes_of(names), states)
    assert words(drawn.rows()) == [
        " shard007",
        " shard050",
        "+69 x shard030..shard099",
        "+29 x shard000..shard029",
    ]
    key = drawn.rows()[-1].key
    assert len(drawn.rows({key: True})) == 4 + 29
    # An opened row stays the same when one more of its nodes is done.
    more = tree(nodes_of(names), states | {"shard030": DONE})
    assert len(more.rows({key: True})) == 4 + 30


def test_most_urgent_rows_are_unfolded_while_they_fit() -> None:
    edges = [(f"{run}{n}", f"{run}{n + 1}") for run in "abc" for n in range(3)]
    nodes = nodes_of([f"{run}{n}" for run in "abc" for n in range(4)], edges)
    states = {"b2": State.FAILED, "b1": RUNNING} | {f"a{n}": DONE for n in range(4)}
    drawn = tree(nodes, states)
    folded = ["+b0..b3 (4)", "+c0..c3 (4)", "+a0..a3 (4)"]
    unfolded = ["-b0..b3 (4)", *(f"   b{n}" for n in range(4))]
    assert words(drawn.rows(room=6)) == folded
    assert words(drawn.rows(room=7)) == [*unfolded, *folded[1:]]
    assert len(drawn.rows(room=15)) == 15
    closed = drawn.rows()[0].key
    assert words(drawn.rows({closed: False}, room=7))[0] == "+b0..b3 (4)"
    assert [row.worst for row in drawn.rows(room=0)] == [("a.dag", "b2"), None, None]


def test_splice_contains_its_nodes() -> None:
    names = ["first", "inner+a", "inner+deep+b", "last"]
    edges = [("first", "inner+a"), ("inner+a", "inner+deep+b"), ("inner+deep+b", "last")]
    assert words(tree(nodes_of(names, edges)).rows()) == [
        " first",
        "-inner",
        "   inner+a",
        "  -inner+deep",
        "     inner+deep+b",
        " last",
    ]


def test_sub_dag_is_below_the_first_node_that_runs_it() -> None:
    outer = nodes_of(["x", "y"], kinds={"x": NodeKind.SUBDAG, "y": NodeKind.SUBDAG})
    inner = nodes_of(["in0", "in1"], [("in0", "in1")])
    dags = [
        dag_of(outer, inside={"x": "in.dag", "y": "in.dag"}, key="out.dag"),
        dag_of(inner, key="in.dag"),
    ]
    assert words(NodeTree(dags).rows()) == ["-x", "   in0", "   in1", " y"]


def test_implicit_join_node_is_hidden() -> None:
    names = ["a", "b", "_condor_join_node1", "c", "d"]
    edges = [(p, names[2]) for p in "ab"] + [(names[2], c) for c in "cd"]
    nodes = nodes_of(names, edges, {names[2]: NodeKind.JOIN})
    drawn = tree(nodes)
    assert drawn.total == 4
    assert sorted(row.title for row in drawn.rows()) == ["a", "b", "c", "d"]
    assert {
        name: after for (_, name), (after, _) in drawn.node_positions().items()
    } == dict.fromkeys("abcd")


def test_long_and_deep_graphs_need_no_recursion() -> None:
    names = [f"n{i}" for i in range(30_000)]
    edges = list(pairwise(names))
    assert len(tree(nodes_of(names, edges)).rows()) == 30_000
    half = 3000
    onion = [(f"a{i}", f"a{i + 1}") for i in range(half)]
    onion += [(f"b{i + 1}", f"b{i}") for i in range(half)]
    onion += [(f"a{i}", f"b{i}") for i in range(half)]
    made = tree(nodes_of([f"{s}{i}" for s in "ab" for i in range(half + 1)], onion))
    assert nodes_in(made) == Counter((f"{s}{i}", 1)[0] for s in "ab" for i in range(half + 1))


def nodes_in(drawn: NodeTree) -> Counter[str]:
    """The names of all nodes shown when everything is unfolded."""
    return Counter(row.node[1] for row in drawn.rows(fold_state(drawn, True)) if row.node)


# --- any graph ------------------------------------------------------------------------------------

NAMES = st.lists(st.text("ab+1", min_size=1, max_size=6), min_size=1, max_size=24, unique=True)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, object], dict[str, State]]:
    """Any nodes, edges (also cycles) and states, in splices or not."""
    names = draw(NAMES)
    pairs = st.tuples(st.sampled_from(names), st.sampled_from(names))
    edges = draw(st.lists(pairs, max_size=40))
    kinds = dict.fromkeys(draw(st.lists(st.sampled_from(names), max_size=2)), NodeKind.JOIN)
    states = {name: draw(st.sampled_from(list(State))) for name in names}
    return nodes_of(names, edges, kinds), states  # type: ignore[return-value]


@given(graphs())
def test_every_node_is_shown_exactly_once(graph) -> None:  # type: ignore[no-untyped-def]
    nodes, states = graph
    drawn = tree(nodes, states)
    real = [name for name, node in nodes.items() if node.kind is not NodeKind.JOIN]
    assert nodes_in(drawn) == Counter(real)
    assert drawn.total == len(real)
    keys = [row.key for row in drawn.rows(fold_state(drawn, True))]
    assert len(keys) == len(set(keys))
    assert {name for _, name in drawn.node_positions()} == set(real)


@given(graphs(), st.booleans())
def test_counts_of_folded_rows_add_up(graph, open_all: bool) -> None:  # type: ignore[no-untyped-def]
    nodes, states = graph
    drawn = tree(nodes, states)
    rows = drawn.rows(fold_state(drawn, True) if open_all else fold_state(drawn, False))
    result: Counter[State] = Counter()
    deepest_open = -1
    for row in rows:
        if row.depth <= deepest_open:
            deepest_open = -1
        if row.open is not True:
            for state, count in row.counts:
                result[state] += count
        elif row.node is not None:
            result[states[row.node[1]]] += 1
    real = (name for name, node in nodes.items() if node.kind is not NodeKind.JOIN)
    assert result == Counter(states[name] for name in real)


@given(graphs())
def test_parent_row_is_a_dominator(graph) -> None:  # type: ignore[no-untyped-def]
    """Checked independently: without that node it cannot be reached from any root."""
    nodes, _ = graph
    flat = {name.replace("+", "_"): node for name, node in nodes.items()}
    if len(flat) != len(nodes):
        return
    named = {name: name.replace("+", "_") for name in nodes}
    edges = [(named[p], named[n]) for n, node in nodes.items() for p in node.parents if p != n]
    plain = nodes_of(flat, edges)
    drawn = tree(plain)
    order = set(_reachable(plain, None))
    for (_, name), (after, _) in drawn.node_positions().items():
        if after is not None and name in order and _acyclic(plain):
            assert name not in _reachable(plain, after)


def _acyclic(nodes) -> bool:  # type: ignore[no-untyped-def]
    left = {name: len(node.parents) for name, node in nodes.items()}
    ready = [name for name, count in left.items() if not count]
    for name in ready:
        for child in nodes[name].children:
            left[child] -= 1
            if not left[child]:
                ready.append(child)
    return len(ready) == len(nodes)


def _reachable(nodes, without: str | None) -> set[str]:  # type: ignore[no-untyped-def]
    ahead = [name for name, node in nodes.items() if not node.parents and name != without]
    seen = set(ahead)
    while ahead:
        for child in nodes[ahead.pop()].children:
            if child not in seen and child != without:
                seen.add(child)
                ahead.append(child)
    return seen
