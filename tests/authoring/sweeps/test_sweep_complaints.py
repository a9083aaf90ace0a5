"""Errors of a sweep file are one sentence each: file, line, and what to write."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.authoring.request import PlanError, StopRules
from metlmon.authoring.sweeps.expand import expand
from metlmon.authoring.write_dag import dag_text
from metlmon.dagman.parser import parse_dag
from tests.authoring.sweeps.sweepfiles import (
    CHAIN,
    REPORTED,
    REPORTED_TEMPLATE,
    TWO,
    complaint,
    request_for,
)
from tests.support.dag_texts import official_verdict

IN_THE_WORKFLOW = [
    (
        "GEN SUBDAG g t.subdag a, b from\n 1 to 10 by 1\n 1 to 9 by 1\n",
        "w.dag:1: a has 10 values (w.dag:2) and b has 9 (w.dag:3); say 'product' for each with "
        "each (90 runs), or give equally many, to be taken one of each ('zip')",
    ),
    (
        TWO + "PARENT init CHILD g\n",
        "w.dag:3: init is named, but no line says what it runs; add 'JOB init init.sub', with NOOP "
        "behind it if it only stands between others",
    ),
    (TWO + "PARENT g CHILD g00\n", "w.dag:3: g00 is named, but no line says what it runs; is g0 "),
    (TWO + "VARS init x=1\n", "add 'JOB init init.sub'"),
    ("GEN SUBDAG g t.subdag a, b from\n 1, 2\n", "w.dag:1: GEN names a, b, but the values of b"),
    ("GEN SUBDAG g t.subdag a, b from\n 1, 2\nPARENT g CHILD g\n", "the values of b are missing"),
    ("GEN SUBDAG g t.subdag a from\n job a, done b\nRETRY g 1\n", "quote a value that looks like"),
    ("GEN SUBDAG g t.subdag a from\n\n #abc, #def\nRETRY g 1\n", "the values of a are missing"),
    (TWO + " 3, 4\n", "w.dag:3: a line of values more than GEN names variables"),
    (TWO + "FOO g\n", "w.dag:3: 'FOO' is not a command of a DAG file"),
    (TWO + "PARNT g CHILD g\n", "is PARENT meant?"),
    (
        "GEN SPLICE g t.subdag a from\n 1\n",
        "w.dag:1: write 'GEN SUBDAG group file.subdag a, b from'",
    ),
    ("GEN SUBDAG g t.subdag a\n 1\n", "w.dag:1: write 'GEN SUBDAG group"),
    ("GEN SUBDAG g t.subdag from\n", "w.dag:1: write 'GEN SUBDAG group"),
    ("GEN SUBDAG g t.subdag a from both\n 1\n", "(or 'from zip', 'from product')"),
    ("GEN SUBDAG g t.subdag a, a from\n 1\n 2\n", "a is swept twice"),
    (
        "GEN SUBDAG g t.subdag a, A from\n 1\n 2\n",
        "w.dag:1: a is swept twice (as A, too: names know no upper and lower case); name each",
    ),
    ("GEN SUBDAG g t.subdag Environment from\n 1\n", "w.dag:1: Environment means something to"),
    ("GEN SUBDAG g t.subdag request_memory from\n 1\n", "request_memory means something to HTC"),
    ("GEN SUBDAG g t.subdag queue_x from\n 1\n", "w.dag:1: queue_x means something to HTCondor"),
    ("GEN SUBDAG g t.subdag run from\n 1\n", "w.dag:1: run is given by metlmon itself"),
    ("GEN SUBDAG g t.subdag Epoch from\n 1\n", "w.dag:1: Epoch is given by metlmon itself"),
    ("GEN SUBDAG g/h t.subdag a from\n 1\n", "'g/h' cannot be a group's name"),
    ("GEN SUBDAG g no.subdag a from\n 1\n", "w.dag:1: no.subdag in "),
    ("GEN SUBDAG g . a from\n 1\n", "w.dag:1: . in "),
    ("GEN SUBDAG g t.subdag a from\n 0 to 1 by 0\n", "w.dag:2: a: 0 to 1 by 0 never gets anywhere"),
    ("GEN SUBDAG g t.subdag a from\n 1 as x, 1 as y\n", "w.dag:2: a: 1 has two labels"),
    (
        "GEN SUBDAG g t.subdag a from\n 1 to 60000 by 1\n",
        "w.dag:1: 60000 runs of 2 nodes: with them the DAG has 120000 nodes, more than the 100000",
    ),
    (
        "GEN SUBDAG g t.subdag a, b from product\n 1 to 1000 by 1\n 1 to 1000 by 1\n",
        "w.dag:1: a has 1000 values (w.dag:2) and b has 1000 (w.dag:3): that makes 1000000 runs",
    ),
    (TWO + TWO, "w.dag:3: g would be a group, and is a group (w.dag:1) already"),
    (TWO + "JOB g0 x.sub\n", "w.dag:3: g0 would be a node, and is a run of g (w.dag:1) already"),
    (TWO + "JOB x x.sub\nJOB x y.sub\n", "w.dag:4: x is declared already (w.dag:3)"),
    (TWO + "FINAL x x.sub\nFINAL y y.sub\n", "w.dag:4: a DAG has one FINAL node"),
    (TWO + "FINAL x x.sub\nPARENT g CHILD x\n", "x is a FINAL node (w.dag:3), outside"),
    (TWO + "FINAL g0-train_epoch0 x.sub\n", "w.dag:3: g0-train_epoch0 is a node of the run g0"),
    (TWO + "PARENT g CHILD g\n", "w.dag:3: nodes wait for each other in a circle: g"),
    (TWO + "JOB x x.sub\nPARENT g CHILD x\nPARENT x CHILD g0\n", "w.dag:5: nodes wait"),
    (TWO + "PARENT {run}-x CHILD g\n", "{run} and the like in a template only"),
    (TWO + "PARENT g\n", "w.dag:3: PARENT: Missing CHILD specifier"),
    (TWO + "REGION r {g0}\n", "w.dag:3: r: write 'REGION name { node node }'"),
    (TWO + "REGION r { g0\n", "w.dag:3: r: write 'REGION name"),
    (TWO + "REGION r { g0\nVARS r x=1\n}\n", "w.dag:4: a command within the region r"),
    (TWO + "REGION r { }\n", "w.dag:3: r: write 'REGION name"),
    (TWO + "REGION r { nope* }\n", "w.dag:3: no node has a name like 'nope*'"),
    (TWO + "REGION r { g }\nPARENT r CHILD g\n", "w.dag:4: r has no first and last nodes"),
    (TWO + "VARS g environment=X=1\n", "set it in the submit file"),
    (TWO + "VARS g queue=1\n", "'queue' cannot be a variable's name"),
    (TWO + "VARS g x=\n", "w.dag:3: VARS: Key value pair missing value: No value specified"),
    (TWO + "VARS g x=''\n", "w.dag:3: x is empty"),
    (TWO + "VARS g x={c}\n", "w.dag:3: nothing is called {c}"),
    (
        TWO + "SUBMIT-DESCRIPTION d {\n arguments = {run}\n}\n",
        "w.dag:3: {run} in the description d, which all runs share; use $(run), which VARS give",
    ),
    (TWO + "SCRIPT POST g x.sh {c}\n", "w.dag:3: nothing is called {c}"),
    (TWO + "JOB x x.sub\nVARS x y={a}\n", "there are such names for nodes of runs only"),
    (TWO + "VARS g x='1\n", "w.dag:3: VARS: Invalid quoting: no ending quote found"),
    (
        TWO + "JOB x {\n executable = y\n}\n",
        "w.dag:3: write 'JOB name file', where the file is a submit file",
    ),
    (TWO + "JOB x x.sub DIR y\n", "and no DIR (initialdir in the submit file does that)"),
    (TWO + "JOB x+y x.sub\n", "'x+y' cannot be a node's name; use letters"),
    (TWO + "JOB x\n", "w.dag:3: write 'JOB name file'"),
    (TWO + "RETRY g often\n", "w.dag:3: RETRY: Invalid max retry value 'often'"),
    (TWO + "SCRIPT BEFORE g x.sh\n", "w.dag:3: SCRIPT: Missing script type"),
    (TWO + "DONE ALL_NODES\n", "w.dag:3: ALL_NODES cannot be DONE"),
    (TWO + "INCLUDE w.dag\n", "w.dag:3: w.dag leads back to itself"),
    (TWO + "VARS g x=1 \\\n", "w.dag:3: the last line is continued, but nothing follows"),
    (TWO + "VARS g x=\x07\n", "w.dag:3: a control character"),
    ("JOB x x.sub\n", "w.dag: no line of it begins with GEN SUBDAG"),
    ("", "w.dag: no line of it begins with GEN SUBDAG"),
]

IN_THE_TEMPLATE = [
    ("VARS {run}-train_epoch0 x={b}\n", "t.subdag:1: nothing is called {b}; there are {a}"),
    ("VARS {run}-train_epoch0 x={rnu}\n", "t.subdag:1: nothing is called {rnu}; is {run} meant?"),
    (
        CHAIN + "VARS {run}-train_epoch7 x=1\n",
        "t.subdag:3: {run}-train_epoch7 is named, but no line says what it runs",
    ),
    (
        CHAIN + "PARENT {run}-train_epoch1 CHILD {run}-pack\n",
        "t.subdag:3: {run}-pack is named, but no line says what it runs, and its name is not one "
        "of a node that trains (…train_epoch0) or evaluates (…eval_epoch1); add 'JOB {run}-pack "
        "file.sub'",
    ),
    (CHAIN + "JOB pack x.sub\n", "t.subdag:3: pack would be a node of g, and is a node of g"),
    (CHAIN + "PARENT other CHILD {run}-train_epoch0\n", "t.subdag:3: other is named, but no line"),
    (CHAIN + "PARENT {run}-train_epoch1 CHILD {run}-train_epoch0\n", "wait for each other in a ci"),
    (CHAIN + "FINAL {run}-end x.sub\n", "t.subdag:3: a DAG has one FINAL node, and g0-end is one"),
    (CHAIN + "SPLICE {run}-x x.dag\n", "t.subdag:3: a template (w.dag:1) cannot hold SPLICE"),
    (CHAIN + "GEN SUBDAG h t.subdag a from\n 1\n", "a template (w.dag:1) cannot hold GEN"),
    (CHAIN + "NODE_STATUS_FILE {run}.status\n", "t.subdag:3: a DAG has one NODE_STATUS_FILE"),
    (CHAIN + "RETRY {run}-train_epoch0 {run}\n", "t.subdag:3: RETRY: Invalid max retry value 'g0'"),
    (
        "VARS {run}-a_train_epoch0 x=1\nVARS {run}-b_train_epoch0 x=2\n",
        "t.subdag:2: {run}-b_train_epoch0 trains the same epoch of a run as {run}-a_train_epoch0",
    ),
    ("VARS {run} x=1\n", "w.dag:1: t.subdag has no node"),
    ("JOB {run}-eval_epoch1 x.sub\n", "t.subdag:1: {run}-eval_epoch1 evaluates, but no training"),
    ("VARS {run}-train_epoch0 run_uuid=same\n", "t.subdag:1: g1 and g0 have the same run_uuid"),
    (
        "VARS {run}-train_epoch0 APPEND run_uuid=same\n",
        "t.subdag:1: g1 and g0 have the same run_uuid",
    ),
    (
        CHAIN + "SUBMIT-DESCRIPTION d {\n executable = x\n arguments = {a}\n}\n",
        "t.subdag:3: {a} in the description d, which all runs share; use $(a), which VARS give",
    ),
    (
        CHAIN + "SUBMIT-DESCRIPTION d {\n arguments = {foo}\n}\n",
        "t.subdag:3: nothing is called {foo}",
    ),
    (
        CHAIN + "SUBMIT-DESCRIPTION d @=end\n executable = x\n queue 3\n@end\n",
        "t.subdag:3: 'queue 3' in the description d, which HTCondor before 24.11 refuses there",
    ),
    (CHAIN + "VARS {run} APPEND epoch=9\n", "trains the same epoch of a run as"),
    (
        'VARS {run}-train_epoch0 ResourceName="a\\" || true || \\""\n',
        "t.subdag:1: 'a\" || true || \"' cannot be a site's name",
    ),
    ("VARS {run}-train_epoch0 run_uuid=../{run}\n", "run_uuid of g0-train_epoch0 names"),
]


@pytest.mark.parametrize(("workflow", "output_of"), IN_THE_WORKFLOW)
def test_invalid_workflow_is_refused(tmp_path: Path, workflow: str, output_of: str) -> None:
    sentence = complaint(tmp_path, workflow)
    assert output_of in sentence
    assert "\n" not in sentence
    assert sentence.isprintable()


@pytest.mark.parametrize(("template", "output_of"), IN_THE_TEMPLATE)
def test_invalid_template_is_refused(tmp_path: Path, template: str, output_of: str) -> None:
    sentence = complaint(tmp_path, TWO, template)
    assert output_of in sentence
    assert sentence.isprintable()


def test_number_of_seeds_must_fit_the_runs(tmp_path: Path) -> None:
    assert "3 seeds for 2 runs" in complaint(tmp_path, TWO, seeds=(1, 2, 3))


def test_gate_excludes_pre_scripts_and_needs_a_retry(tmp_path: Path) -> None:
    own = complaint(tmp_path, TWO + "SCRIPT PRE g x.sh\n", gate=StopRules())
    assert own.startswith("w.dag:3: g0-train_epoch0 has a PRE script of its own")
    for options in ("DEBUG d ALL", "DEBUG d ALL DEFER 4 60"):
        own = complaint(tmp_path, TWO + f"SCRIPT {options} PRE g1 x.sh\n", gate=StopRules())
        assert own.startswith("w.dag:3: g1-train_epoch0 has a PRE script of its own")
    never = complaint(tmp_path, TWO, gate=StopRules(), retries=0)
    assert "give it a RETRY of 1 or more" in never
    named = complaint(tmp_path, TWO + "VARS g node=x\n", gate=StopRules())
    assert named.startswith("w.dag:3: metlmon sets node for the nodes of a run")
    named = complaint(tmp_path, TWO + "VARS g metlmon_dag=x\n", gate=StopRules())
    assert named.startswith("w.dag:3: metlmon sets metlmon_dag for the nodes of a run")


def test_nodes_of_a_sub_dag_cannot_be_referred_to(tmp_path: Path) -> None:
    workflow = TWO + "JOB x x.sub\nPARENT g0-train_epoch1 CHILD x\n"
    sentence = complaint(tmp_path, workflow, subdags=True)
    assert sentence.startswith("w.dag:4: g0-train_epoch1 lies in the sub-DAG of g0")
    template = CHAIN + "PARENT x CHILD {run}-train_epoch0\n"
    sentence = complaint(tmp_path, TWO + "JOB x x.sub\n", template, subdags=True)
    assert sentence.startswith("t.subdag:3: x lies outside the run's own DAG")


def test_sweep_file_is_not_overwritten(tmp_path: Path) -> None:
    request = replace(request_for(tmp_path, TWO), directory=tmp_path, name="w")
    with pytest.raises(PlanError, match="would be written over"):
        expand(request)


def test_secret_in_a_line_is_not_quoted(tmp_path: Path) -> None:
    sentence = complaint(tmp_path, TWO + "VARS g wandb_api_key=0123456789abcdef0123 'x\n")
    assert sentence.startswith("w.dag:3: ")
    assert "0123456789abcdef" not in sentence


SNIPPETS = [
    *TWO.split("\n"),
    *CHAIN.split("\n"),
    *REPORTED.split("\n"),
    *REPORTED_TEMPLATE.split("\n"),
    *("JOB x x.sub", "REGION r { g0 }", "VARS r y={a}", "PARENT x CHILD g", "RETRY ALL_NODES 3"),
    *("SCRIPT DEFER 1 2 PRE g x", "SUBMIT-DESCRIPTION d {", "}", "SPLICE s t.subdag", "\\", '"'),
    *("INCLUDE t.subdag", "{run}", "{uuid}-train_epoch0", "GEN SUBDAG g t.subdag a from product"),
]
lines = st.lists(
    st.one_of(
        st.sampled_from(SNIPPETS),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
        st.lists(st.sampled_from(" ".join(SNIPPETS).split()), max_size=8).map(" ".join),
    ),
    max_size=10,
).map("\n".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(lines, lines, st.booleans(), st.booleans())
def test_any_text_is_expanded_or_refused_in_one_sentence(
    tmp_path: Path, workflow: str, template: str, subdags: bool, good: bool
) -> None:
    request = request_for(tmp_path, TWO + workflow, t=CHAIN if good else template)
    request = replace(request, subdags=subdags)
    text = sentence = ""
    try:
        text = dag_text(expand(request).graph, "x", "all")
    except PlanError as error:
        sentence = str(error)
    assert bool(text) != bool(sentence)
    assert "\n" not in sentence
    assert official_verdict(parse_dag(text.encode(), "x.dag").problems)
