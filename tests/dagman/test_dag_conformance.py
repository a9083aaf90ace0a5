"""HTCondor's own DAG files get the official parser's verdict and the official checker's counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metlmon.dagman import load_workflow
from metlmon.dagman.parser import parse_dag
from tests.support.conformance import INDEX, cases
from tests.support.dag_texts import graph_shape, official_verdict

CONNECT = "the checker does not carry out CONNECT; DAGMan draws the edges between the pins"
SHAPE_EXCEPTIONS = {
    "job_dagman_splice_connect-A.dag": (CONNECT, 6, [3, 3, 3]),
    "job_dagman_splice_connect-B-2.dag": (CONNECT, 18, [2, 6, 6, 2]),
    "job_dagman_splice_connect-B.dag": (CONNECT, 22, [2, 2, 6, 6, 2, 2]),
    "job_dagman_splice_connect-C.dag": (CONNECT, 27, [1, 6, 4, 1]),
    "job_dagman_splice_connect-E.dag": (CONNECT, 2, [3, 2]),
    "job_dagman_splice_connect-G-1upper.dag": (CONNECT, 3, [3, 3]),
    "job_dagman_splice_connect-G-2upper.dag": (CONNECT, 3, [3, 3]),
}
"""File → why its arcs and widths are not the checker's, and what they are instead."""

PINS = "its test says that DAGMan must refuse it; the checker does not look at pins"
OUTSIDE = "a part of another DAG: the nodes or splices it names are not in it"
TEMPLATE = "a syntax template of the manual: its node does not exist; the checker overlooks it"
UNKNOWN = "an unknown command is skipped with a warning here, the rest is used"
CONFIG = "the file that CONFIG names is DAGMan's own affair and is not looked for"
USE_EXCEPTIONS = {
    "job_dagman_splice_connect-A-inc1.dag": (OUTSIDE, False),
    "job_dagman_splice_connect-A-inc2.dag": (OUTSIDE, False),
    "job_dagman_splice_connect-D.dag": (PINS, False),
    "job_dagman_splice_connect-E.dag": (PINS, False),
    "job_dagman_splice_connect-F.dag": (PINS, False),
    "dagman-completion_L460.dag": (TEMPLATE, False),
    "dagman-reference_L235.dag": (TEMPLATE, False),
    "dagman-completion_L504.dag": (UNKNOWN, True),
    "dagman-interaction_L419.dag": (UNKNOWN, True),
    "dagman-interaction_L454.dag": (UNKNOWN, True),
    "dagman-introduction_L139.dag": (UNKNOWN, True),
    "dagman-reference_L31.dag": (UNKNOWN, True),
    "bagman-exit-at-percent-done_L92.dag": (UNKNOWN, True),
    "dagman-advance-functionality_L829.dag": (CONFIG, True),
    "dagman-reference_L179.dag": (CONFIG, True),
}
"""File → why ``used`` is not what the checker's errors say, and what it is."""


@pytest.mark.parametrize("case", cases())
def test_the_official_verdict_counts_and_use(case):
    path = INDEX.parent / case["file"]
    assert_verdict(path, case["oracle_syntax"])
    flow = load_workflow([path], Path.read_bytes)
    assert_counts(path, graph_shape(flow.nodes), case["oracle_check"])
    official = case["oracle_check"]
    used = not official.get("Errors") and not official.get("IsCyclic")
    if path.name in USE_EXCEPTIONS:
        assert used != USE_EXCEPTIONS[path.name][1], "no exception any more"
        used = not used
    assert flow.used == used, [str(problem) for problem in flow.problems]


def assert_verdict(path, official):
    parsed = parse_dag(path.read_bytes(), path.name)
    assert official_verdict(parsed.problems) == official.startswith("OK")
    if official.startswith("OK"):
        assert official == f"OK ({len(parsed.commands)} commands)"
    else:
        assert official.startswith(f"FAIL: ERR {parsed.problems[0].line} ")


def assert_counts(path, shape, official):
    arcs, widths = official.get("NumArcs", 0), official.get("WidthByDepth", [])
    if path.name in SHAPE_EXCEPTIONS:
        _, arcs, widths = SHAPE_EXCEPTIONS[path.name]
    else:
        assert shape.height == official.get("GraphHeight", 0)
        assert shape.width == official.get("GraphWidth", 0)
    assert shape.total == official["TotalNodes"]
    # The checker knows a join node by how its name begins, and so takes those in splices
    # (S+_condor_join_node1) for ordinary nodes: only the sum can be compared.
    joins = official.get("NumJoinNodes", 0)
    assert shape.nodes + shape.joins == official.get("NumNodes", 0) + joins
    assert (shape.arcs, list(shape.widths)) == (arcs, widths)


def test_no_exception_is_left_over():
    if not INDEX.exists():
        pytest.skip("no conformance files beside this checkout")
    names = {Path(case["file"]).name for case in json.loads(INDEX.read_text())}
    assert {*SHAPE_EXCEPTIONS, *USE_EXCEPTIONS} <= names
