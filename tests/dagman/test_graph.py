"""The shape of a graph, and the circle in one that is no DAG."""

from __future__ import annotations

from itertools import pairwise

from metlmon.dagman.graph import cycle
from tests.support.dag_texts import graph_shape, weave


def flow_of(lines: str, names: str):
    return weave("".join(f"JOB {name} x NOOP\n" for name in names) + lines)


def test_the_circle_is_reported_and_what_hangs_on_it_is_not():
    lines = "PARENT A CHILD B\nPARENT B CHILD C\nPARENT C CHILD B\nPARENT C CHILD D"
    nodes = flow_of(lines, "ABCD").nodes
    names = cycle(nodes)
    assert names[0] == names[-1]
    assert set(names) == {"B", "C"}
    assert all(b in nodes[a].children for a, b in pairwise(names))
    assert graph_shape(nodes).widths == ()
    assert graph_shape(nodes).arcs == 4


def test_a_node_that_waits_for_itself():
    assert cycle(flow_of("PARENT A CHILD A", "A").nodes) == ["A", "A"]


def test_a_chain_of_thousands_is_no_matter_of_recursion():
    count = 5000
    jobs = "".join(f"JOB A{i} x NOOP\n" for i in range(count))
    chain = "".join(f"PARENT A{i} CHILD A{i + 1}\n" for i in range(count - 1))
    assert graph_shape(weave(jobs + chain).nodes).height == count
