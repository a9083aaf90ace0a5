"""From files to one workflow: splices, includes, sub-DAGs, ALL_NODES, edges, refusals."""

from __future__ import annotations

import gc
from itertools import pairwise
from pathlib import Path

import pytest

from metlmon.dagman.graph import cycle
from metlmon.dagman.loader import load_workflow
from metlmon.dagman.records import NodeKind
from tests.support.dag_texts import HOME, edges, graph_shape, load, report_of

PAIR = "JOB A x NOOP\nJOB B x NOOP\n"


def test_commands_may_precede_their_nodes():
    flow = load("PARENT A CHILD B\nRETRY B 2\nVARS B x=1\n" + PAIR)
    assert flow.problems == []
    assert edges(flow) == {("A", "B")}
    assert (flow.nodes["B"].retries, flow.nodes["B"].vars) == (2, {"x": "1"})
    assert flow.nodes["B"].parents == ("A",)


def test_weak_edge_is_marked():
    flow = load(PAIR + "JOB C x NOOP\nWEAK PARENT A CHILD B\nPARENT A CHILD C")
    assert flow.nodes["B"].weak_parents == {"A"}
    assert flow.nodes["C"].weak_parents == set()
    assert edges(flow) == {("A", "B"), ("A", "C")}


def test_many_parents_of_many_children_get_a_join_node():
    jobs = "".join(f"JOB {n} x NOOP\n" for n in "ABCD")
    flow = load(jobs + "PARENT A B CHILD C D\nPARENT A B CHILD C\nWEAK PARENT A B CHILD C D")
    first, second = "_condor_join_node1", "_condor_join_node2"
    assert list(flow.nodes) == ["A", "B", "C", "D", first, second]
    assert flow.nodes[first].kind is NodeKind.JOIN
    assert flow.nodes[first].noop
    assert set(flow.nodes["C"].parents) == {"A", "B", first, second}
    assert set(flow.nodes["D"].parents) == {first, second}
    assert flow.nodes[second].weak_parents == {"A", "B"}
    assert flow.nodes["D"].weak_parents == set()
    # A repeated node is one parent.
    assert first not in load(PAIR + "JOB C x NOOP\nPARENT A A CHILD B C").nodes


def test_all_nodes_means_earlier_own_nodes_but_not_final():
    flow = load(
        PAIR + "SPLICE S s.dag\nFINAL F x NOOP\nRETRY all_nodes 3\nINCLUDE more.dag\n"
        "PRIORITY ALL_NODES 7\n",
        s_dag="JOB inner x NOOP",
        more_dag="JOB late x NOOP",
    )
    assert {n.name: n.retries for n in flow.nodes.values() if n.retries} == {"A": 3, "B": 3}
    assert {n.name for n in flow.nodes.values() if n.priority} == {"A", "B", "late"}


def test_nested_splices_join_their_names():
    flow = load(
        "JOB first x NOOP\nSPLICE X x.dag\nSPLICE Y x.dag\nPARENT first CHILD X\n"
        "PARENT X CHILD Y\nVARS X+P+inner2 v=1\n",
        x_dag="SPLICE P p.dag\nJOB last x NOOP\nPARENT P CHILD last",
        p_dag="JOB inner1 x NOOP DONE\nJOB inner2 x NOOP\n",
    )
    assert [(p.kind, p.line, p.error) for p in flow.problems] == [("splice-node", 6, False)]
    assert not flow.nodes["X+P+inner1"].done
    assert set(flow.nodes) == {
        "first",
        *(f"{s}+{n}" for s in "XY" for n in ("last", "P+inner1", "P+inner2")),
    }
    assert flow.nodes["first"].children == ("X+P+inner1", "X+P+inner2")
    assert flow.nodes["X+last"].children == ("Y+P+inner1", "Y+P+inner2")
    assert flow.nodes["X+P+inner2"].vars == {"v": "1"}
    assert flow.files == [HOME / n for n in ("run.dag", "x.dag", "p.dag")]
    assert flow.references == {HOME / "x.dag", HOME / "p.dag"}


def test_join_node_in_a_splice_has_its_prefix_and_number():
    flow = load(
        PAIR + "SPLICE S s.dag\nSPLICE T s.dag\nPARENT A B CHILD S",
        s_dag=PAIR + "JOB C x NOOP\nJOB D x NOOP\nPARENT A B CHILD C D",
    )
    joins = [node.name for node in flow.nodes.values() if node.kind is NodeKind.JOIN]
    assert joins == ["_condor_join_node3", "S+_condor_join_node1", "T+_condor_join_node2"]


def test_edges_do_not_change_the_ends_of_a_splice():
    flow = load(PAIR + "SPLICE S s.dag\nPARENT S CHILD A\nPARENT S CHILD B", s_dag="JOB s x NOOP")
    assert edges(flow) == {("S+s", "A"), ("S+s", "B")}


def test_directory_of_a_splice_precedes_its_paths():
    flow = load(
        "SPLICE S s.dag DIR part",
        part__s_dag="JOB A a.sub DIR deep",
        part__deep__a_sub="initialdir = run\nlog = a.log\noutput = /tmp/a.out\nqueue",
    )
    node = flow.nodes["S+A"]
    assert report_of(flow) == []
    assert (node.dir, node.log, node.output) == ("part/deep", "part/deep/run/a.log", "/tmp/a.out")
    assert flow.files[-1] == HOME / "part/deep/a.sub"


def test_pins_connect_splices():
    flow = load(
        "SPLICE S s.dag\nSPLICE T t.dag\nCONNECT S T",
        s_dag=PAIR + "PIN_OUT A 1\nPIN_OUT B 2",
        t_dag=PAIR + "PIN_IN A 2\nPIN_IN B 1\nPIN_IN B 2",
    )
    assert edges(flow) == {("S+A", "T+B"), ("S+B", "T+A"), ("S+B", "T+B")}


@pytest.mark.parametrize(
    ("outgoing", "incoming", "complaint"),
    [
        ("", "PIN_IN A 1\nPIN_IN B 1", "do not match"),
        ("PIN_OUT A 1", "", "do not match"),
        ("PIN_OUT A 1\nPIN_OUT B 2", "PIN_IN A 1\nPIN_IN B 1", "do not match"),
        ("PIN_OUT A 2", "PIN_IN A 2\nPIN_IN B 2", "do not match"),
        ("PIN_OUT A 1", "PIN_IN A 1", "node T+B has no parent: add PIN_IN or PARENT"),
    ],
)
def test_mismatched_pins_are_refused(outgoing, incoming, complaint):
    flow = load(
        "SPLICE S s.dag\nSPLICE T t.dag\nCONNECT S T", s_dag=PAIR + outgoing, t_dag=PAIR + incoming
    )
    [problem] = flow.problems
    assert (problem.kind, problem.line, problem.error) == ("pins", 3, True)
    assert complaint in problem.text


def test_nodes_of_an_include_exist_from_its_line_on():
    include = "JOB C x NOOP\nPARENT A CHILD C"
    assert report_of(load(PAIR + "INCLUDE i.dag\nPARENT C CHILD B", i_dag=include)) == []
    early = load(PAIR + "PARENT C CHILD B\nINCLUDE i.dag", i_dag=include)
    assert report_of(early) == ["run.dag:3: unknown parent C"]
    assert edges(early) == {("A", "C")}


def test_problems_name_their_file():
    flow = load(
        "INCLUDE sub/i.dag\nSPLICE S sub/s.dag", sub__i_dag="\nRETRY A x", sub__s_dag="JOB A"
    )
    assert [text.split(" ")[0] for text in report_of(flow)] == ["sub/s.dag:1:", "sub/i.dag:2:"]


def test_external_sub_dags_are_separate_workflows():
    flow = load(
        "SUBDAG EXTERNAL one inner.dag DIR part\nSUBDAG EXTERNAL two gone.dag\n"
        "PARENT one CHILD two\nRETRY one 2",
        part__inner_dag="JOB A a.sub\nSPLICE S s.dag",
        part__s_dag="JOB B x NOOP",
        part__a_sub="log = a.log",
    )
    one, two = flow.nodes["one"], flow.nodes["two"]
    assert (one.kind, one.submit) == (NodeKind.SUBDAG, "inner.dag")
    assert (one.dir, one.retries) == ("part", 2)
    inner = flow.subdags[one.subdag]
    assert set(inner.nodes) == {"A", "S+B"}
    assert inner.nodes["A"].log == "a.log"
    assert flow.subdags[two.subdag] is None
    assert flow.used
    assert report_of(flow) == [
        "run.dag:2: sub-DAG gone.dag cannot be read: its nodes are not shown"
    ]
    assert flow.references == {HOME / "part/inner.dag", HOME / "gone.dag"}
    assert inner.references == {HOME / "part/s.dag"}


def test_recursive_sub_dags_are_refused():
    flow = load("SUBDAG EXTERNAL in b.dag", b_dag="JOB A x NOOP\nSUBDAG EXTERNAL back run.dag")
    inner = flow.subdags[0]
    assert "A" in inner.nodes
    assert inner.subdags == [None]
    assert [problem.kind for problem in inner.problems] == ["subdag-recursion"]


@pytest.mark.parametrize("command", ["SPLICE S s.dag", "INCLUDE s.dag"])
def test_recursive_files_are_refused(command):
    flow = load(command, s_dag=f"JOB A x NOOP\n{command.replace('s.dag', 'run.dag')}")
    assert [(p.kind, p.file, p.line, p.error) for p in flow.problems] == [
        ("recursion", "s.dag", 2, True)
    ]


def test_nodes_of_several_dags_are_numbered():
    flow = load(
        "JOB A x NOOP\nJOB B x NOOP\nPARENT A CHILD B\n",
        "JOB A x NOOP\nRETRY A 2\nSPLICE S s.dag\nPARENT A CHILD S",
        s_dag="JOB A x NOOP",
    )
    assert report_of(flow) == []
    assert edges(flow) == {("0.A", "0.B"), ("1.A", "1.S+1.A")}
    assert flow.nodes["1.A"].retries == 2
    assert flow.path == HOME / "run.dag"
    assert flow.files[:2] == [HOME / "run.dag", HOME / "run1.dag"]


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("JOB A x NOOP\nJOB A y NOOP", "duplicate-node", "run.dag:2: A is already defined"),
        ("JOB A x NOOP\nSPLICE A s.dag", "duplicate-node", "run.dag:2: A is already defined"),
        ("FINAL A x\nFINAL B x", "duplicate-node", "run.dag:2: there is already a FINAL node"),
        ("SPLICE S final.dag", "duplicate-node", "final.dag:1: a spliced DAG cannot have a FINAL"),
        (PAIR + "PARENT A CHILD C", "unknown-node", "run.dag:3: unknown child C"),
        (PAIR + "PARENT C D CHILD A", "unknown-node", "run.dag:3: unknown parent C, D"),
        ("RETRY C 1", "unknown-node", "run.dag:1: unknown node C"),
        ("PIN_IN C 1", "unknown-node", "run.dag:1: unknown node C"),
        ("CONNECT S T", "unknown-node", "run.dag:1: there is no splice S"),
        ("DONE ALL_NODES", "unknown-node", "run.dag:1: ALL_NODES cannot be used with DONE"),
        (
            "JOB A x NOOP\nSERVICE S x NOOP\nPARENT A CHILD S",
            "dependency",
            "run.dag:3: SERVICE node S cannot have dependencies",
        ),
        (PAIR + "REJECT", "reject", "run.dag:3: the DAG is marked with REJECT"),
        ("SPLICE S gone.dag", "missing-file", "run.dag:1: splice S: file gone.dag cannot be read"),
        ("INCLUDE gone.dag", "missing-file", "run.dag:1: include file gone.dag cannot be read"),
        (
            PAIR + "PARENT A CHILD B\nPARENT B CHILD A",
            "cycle",
            "run.dag: nodes wait for each other in a circle: A → B → A",
        ),
    ],
)
def test_errors_of_dagman_have_their_place(text, kind, sentence):
    flow = load(text, final_dag="FINAL F x NOOP", s_dag="")
    [problem] = [problem for problem in flow.problems if problem.error]
    assert problem.kind == kind
    assert str(problem).startswith(sentence)
    assert not flow.used


def test_inapplicable_command_is_ignored_with_a_warning():
    flow = load("FINAL F x NOOP\nRETRY F 2\nABORT-DAG-ON F 1\nDONE F")
    assert {problem.kind for problem in flow.problems} == {"node-kind"}
    assert [problem.line for problem in flow.problems] == [2, 3, 4]
    assert (flow.nodes["F"].retries, flow.nodes["F"].done) == (0, False)


def test_missing_dag_file_is_reported_not_raised():
    flow = load_workflow([HOME / "gone.dag"], Path.read_bytes)
    assert report_of(flow) == ["gone.dag: the DAG file cannot be read"]
    assert not flow.used


def test_missing_submit_file_leaves_the_dag_usable():
    flow = load("JOB A gone.sub\nJOB B gone.sub\nJOB C gone.sub NOOP")
    assert report_of(flow) == [
        "run.dag:1: submit file gone.sub cannot be read: its log is not known"
    ]
    assert flow.used
    assert (flow.nodes["A"].log, flow.nodes["A"].submit) == (None, "gone.sub")


def test_submit_file_missing_in_several_splices_is_reported_once():
    flow = load("SPLICE S s.dag\nSPLICE T t.dag", s_dag="JOB A gone.sub", t_dag="JOB A gone.sub")
    assert report_of(flow) == ["s.dag:1: submit file gone.sub cannot be read: its log is not known"]


def test_nodes_share_equal_collections():
    """Large DAGs are chains: otherwise each node would have three collections of its own."""
    jobs = "".join(f'JOB {name} x.sub\nVARS {name} v="value"\n' for name in "ABC")
    flow = load(f"{jobs}PARENT A CHILD B\nPARENT B CHILD C\n")
    first, second, third = flow.nodes.values()
    assert first.children is third.parents
    assert first.parents is third.children
    assert first.weak_parents is second.weak_parents
    assert first.attributes is second.attributes
    assert first.vars["v"] is third.vars["v"]
    assert next(iter(first.children)) is second.name


def test_nodes_share_the_parts_of_names_of_output_files():
    """Whatever the VARS are, also secret ones, the names are those that HTCondor uses."""
    text = "output = out1/$(run)/$(epoch)_$(Cluster).out\nerror = $(JOB)$(password).err\nqueue"
    runs = {"A": ("1", "1"), "B": ("run1", "run"), "C": ("r", "5"), "D": ("", ""), "E": ("x", "7")}
    vars_ = "".join(
        f'VARS {name} run="{run}" epoch="{epoch}" password="hunter{name}"\n'
        for name, (run, epoch) in runs.items()
    )
    flow = load("".join(f"JOB {name} x.sub\n" for name in runs) + vars_, x_sub=text)
    for name, (run, epoch) in runs.items():
        node = flow.nodes[name]
        assert node.output == f"out1/{run}/{epoch}_$(Cluster).out"
        assert node.error == f"{name}hunter{name}.err"
        assert "hunter" not in node.vars["password"]
    assert flow.nodes["C"].output_parts is flow.nodes["E"].output_parts


def test_files_of_a_copied_dag_are_found_beside_it():
    flow = load(
        "JOB A /home/someone/jobs/a.sub\nSPLICE S ../elsewhere/s.dag\n"
        "SUBDAG EXTERNAL D /home/someone/d.dag",
        a_sub="log = a.log",
        s_dag="JOB B x NOOP",
        d_dag="JOB C x NOOP",
    )
    assert report_of(flow) == []
    assert flow.nodes["A"].log == "a.log"
    assert "S+B" in flow.nodes
    assert flow.subdags[0].path == HOME / "d.dag"


def test_files_of_a_splice_are_relative_to_dagmans_directory():
    flow = load(
        "SPLICE S part/s.dag", part__s_dag="JOB A a.sub", a_sub="log = home.log", part__a_sub=""
    )
    assert flow.nodes["S+A"].log == "home.log"


def test_few_lines_cannot_exhaust_memory():
    ten = "JOB A x NOOP\n" + "".join(f"SPLICE S{i} {{next}}.dag\n" for i in range(10))
    files = {f"s{n}_dag": ten.format(next=f"s{n + 1}") for n in range(8)}
    flow = load(ten.format(next="s0"), **files, s8_dag="JOB A x NOOP")
    assert [problem.kind for problem in flow.problems] == ["too-large"]
    assert len(flow.nodes) < 100_000


def test_thousand_parents_of_a_thousand_children_stay_small():
    names = [f"{side}{i}" for side in "PC" for i in range(1000)]
    jobs = "".join(f"JOB {name} x NOOP\n" for name in names)
    flow = load(f"{jobs}PARENT {' '.join(names[:1000])} CHILD {' '.join(names[1000:])}")
    assert len(edges(flow)) == 2000


def test_too_deeply_nested_splices_are_refused():
    files = {f"s{n}_dag": f"JOB A x NOOP\nSPLICE S s{n + 1}.dag" for n in range(60)}
    [problem] = load("SPLICE S s0.dag", **files).problems
    assert (problem.kind, problem.text.endswith("is nested too deep")) == ("too-large", True)


def test_loading_leaves_no_cycles():
    """A reference cycle keeps all commands of a large DAG in memory while its logs are read."""
    text = "".join(f'JOB N{i} a.sub\nVARS N{i} x="{i}"\n' for i in range(50))
    gc.collect()
    gc.disable()
    try:
        load(text + "SPLICE S s.dag\n", s_dag="JOB A a.sub\n", a_sub="log = $(x).log\n")
        assert gc.collect() < 50
    finally:
        gc.enable()


def flow_of(lines: str, names: str):
    return load("".join(f"JOB {name} x NOOP\n" for name in names) + lines)


def test_cycle_is_reported_without_its_descendants():
    lines = "PARENT A CHILD B\nPARENT B CHILD C\nPARENT C CHILD B\nPARENT C CHILD D"
    nodes = flow_of(lines, "ABCD").nodes
    names = cycle(nodes)
    assert names[0] == names[-1]
    assert set(names) == {"B", "C"}
    assert all(b in nodes[a].children for a, b in pairwise(names))
    assert graph_shape(nodes).widths == ()
    assert graph_shape(nodes).arcs == 4
    assert cycle(flow_of("PARENT A CHILD A", "A").nodes) == ["A", "A"]


def test_chain_of_thousands_needs_no_recursion():
    count = 5000
    jobs = "".join(f"JOB A{i} x NOOP\n" for i in range(count))
    chain = "".join(f"PARENT A{i} CHILD A{i + 1}\n" for i in range(count - 1))
    assert graph_shape(load(jobs + chain).nodes).height == count
