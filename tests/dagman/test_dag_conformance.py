"""HTCondor's own DAG files, with the verdicts and counts of the official tools."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metlmon.dagman.loader import load_workflow
from metlmon.dagman.parser import parse_dag
from metlmon.redact import hide_value, visible
from tests.support.conformance import INDEX, cases
from tests.support.dag_texts import edges, graph_shape, load, official_verdict

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
def test_verdict_and_counts_agree_with_the_official_ones(case):
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
    # The checker recognises join nodes by a prefix, and takes those in splices
    # (S+_condor_join_node1) for ordinary nodes: only the sum can be compared.
    joins = official.get("NumJoinNodes", 0)
    assert shape.nodes + shape.joins == official.get("NumNodes", 0) + joins
    assert (shape.arcs, list(shape.widths)) == (arcs, widths)


def test_exceptions_are_all_in_use():
    if not INDEX.exists():
        pytest.skip("no conformance files beside this checkout")
    names = {Path(case["file"]).name for case in json.loads(INDEX.read_text())}
    assert {*SHAPE_EXCEPTIONS, *USE_EXCEPTIONS} <= names


def test_experiment_of_five_runs_of_thirty_epochs(shared):
    path = shared("examples/metl-aws/global_pretraining_in_aws.dag")
    flow = load_workflow([path], Path.read_bytes)
    nodes = list(flow.nodes.values())
    shape = graph_shape(flow.nodes)
    assert flow.problems == []
    assert (len(nodes), shape.arcs, shape.height, shape.width) == (150, 145, 30, 5)
    assert Counter(node.vars["run_uuid"] for node in nodes).most_common()[-1][1] == 30
    assert len({node.vars["run_uuid"] for node in nodes}) == 5
    assert {node.retries for node in nodes} == {3}
    assert {node.log for node in nodes} == {"metl.log"}
    assert {node.submission.queue_count for node in nodes} == {1}
    assert {node.vars["ResourceName"] for node in nodes} == {"aws"}
    assert all("pre_request_annex.sh" in node.pre.command for node in nodes if node.pre)
    assert any(node.pre for node in nodes)
    assert flow.node_status_file == "nodes.dag.status"
    second = flow.nodes["run0-train_epoch1"]
    assert second.vars["epoch"] == "2"
    assert second.output == f"{second.vars['run_uuid']}/2_$(Cluster).out"
    assert second.parents == ("run0-train_epoch0",)


NAMES = st.text("abXY019_.-", min_size=1, max_size=8)
KEYS = st.from_regex(r"[a-z][A-Za-z0-9_]{0,6}", fullmatch=True).filter(
    lambda key: not key.lower().startswith(("queue", "env"))
)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), min_size=1).filter(
    lambda value: not value.endswith("\\") and value.strip(" \t\n\v\f\r") == value
)


@st.composite
def dags(draw):
    """Node names, edges from earlier to later nodes, and VARS by node."""
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    drawn = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    macros = {name: draw(st.dictionaries(KEYS, VALUES, max_size=3)) for name in names}
    return names, drawn, macros


def quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def written(dag) -> list[list[str]]:
    """One list of words per command."""
    names, drawn, macros = dag
    lines = [["JOB", name, "x", "NOOP"] for name in names]
    lines += [["PARENT", a, "CHILD", b] for a, b in drawn]
    for name, held in macros.items():
        if held:
            lines.append(["VARS", name, *(f"{key}={quoted(v)}" for key, v in held.items())])
    return lines


def facts(flow):
    return (
        list(flow.nodes),
        edges(flow),
        {name: node.vars for name, node in flow.nodes.items()},
        [problem.kind for problem in flow.problems],
    )


@given(dags())
def test_written_dag_is_read_back(dag):
    names, drawn, macros = dag
    flow = load("\n".join(" ".join(line) for line in written(dag)))
    shown = {
        name: {key: visible(hide_value(key, value)) for key, value in held.items()}
        for name, held in macros.items()
    }
    assert facts(flow) == (names, set(drawn), shown, [])


@settings(max_examples=60)
@given(dags(), st.data())
def test_blanks_comments_continuations_and_case_are_ignored(dag, data):
    plain = load("\n".join(" ".join(line) for line in written(dag)))
    noise = st.sampled_from(["", "\n", "# note \\\n", "  // note\n", " \t\n"])
    gap = st.sampled_from([" ", "\t", "  \t ", " \\\n", "\\\n   ", " \\\n# between\n\n\t"])
    end = st.sampled_from(["\n", "\r\n", "  \n"])
    case = st.sampled_from([str.upper, str.lower, str.title])
    text = ""
    for words in written(dag):
        words = [
            data.draw(case)(w) if w in {"JOB", "PARENT", "CHILD", "VARS"} else w for w in words
        ]
        line = words[0] + "".join(data.draw(gap) + word for word in words[1:])
        text += data.draw(noise) + data.draw(st.sampled_from(["", "  "])) + line + data.draw(end)
    assert facts(load(text)) == facts(plain)
