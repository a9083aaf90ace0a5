"""The text of a DAG file: the meaning of each command, and the message about a bad one."""

from __future__ import annotations

import pytest

from metlmon.dagman.parser import parse_dag
from tests.support.dag_texts import load, official_verdict, report_of

ONE = "JOB A a.sub NOOP\n"


def test_line_of_a_node_is_the_start_of_its_command():
    flow = load("# head\n\nJOB A \\\n a.sub\nJOB B b.sub NOOP")
    assert (flow.nodes["A"].line, flow.nodes["B"].line) == (3, 5)


@pytest.mark.parametrize(
    ("opens", "ends"), [("{", "}"), ("@=END", "@END"), ("@=}", "@}"), ("{ ignored", "}")]
)
def test_inline_description_may_be_a_block_or_a_here_document(opens, ends):
    flow = load(f"JOB A {opens}\n  log = $(JOB).log\n\n  # note\n  queue 3\n{ends} NOOP DIR d\n")
    node = flow.nodes["A"]
    assert (node.submit, node.log, node.submission.queue_count) == (None, "d/A.log", 3)
    assert node.noop
    assert flow.problems == []


def test_first_of_two_named_descriptions_counts():
    flow = load(
        "JOB A train.sub\nSUBMIT-DESCRIPTION train.sub {\nlog = one.log\n}\n"
        "submit_description train.sub @=x\nlog = two.log\n@x\nJOB B train.sub\n"
    )
    assert [node.log for node in flow.nodes.values()] == ["one.log", "one.log"]


def test_command_continued_to_the_end_of_the_file_is_dropped():
    flow = load(ONE + "RETRY A \\\n 3 \\")
    assert flow.nodes["A"].retries == 0
    assert flow.problems == []


def test_vars_with_plus_or_my_are_job_attributes():
    node = load(ONE + 'VARS A +Batch="\\"b\\"" My.Site=delta my.Late=1 plain=2').nodes["A"]
    assert node.attributes == {"Batch": '"b"', "Site": "delta", "Late": "1"}
    assert node.vars == {"plain": "2"}


def test_environment_in_vars_is_never_kept():
    node = load(ONE + 'VARS A environment="KEY=sesame" +Env="sesame" My.Environment=sesame x=1')
    assert "sesame" not in repr(node)
    assert node.nodes["A"].vars == {"x": "1"}


def test_options_of_scripts_are_read():
    flow = load(
        ONE
        + "SCRIPT DEFER 4 3600 PRE A pre.sh $JOB 'a  b'\n"
        + "SCRIPT DEBUG out.txt ALL defer 1 2 post A post.sh $RETURN\n"
        + "script Hold A hold.sh"
    )
    node = flow.nodes["A"]
    assert flow.problems == []
    assert node.pre.command == "pre.sh $JOB 'a  b'"
    assert node.post.command == "post.sh $RETURN"
    assert node.hold.command == "hold.sh"


def test_modifiers_of_a_node_are_read():
    node = load(
        ONE + "RETRY A 3 UNLESS-EXIT 85\nABORT-DAG-ON A 124 RETURN 0\nPRIORITY A -5\n"
        "PRE_SKIP A 1\nCATEGORY A big\nDONE A\nTOLERANCE A 10% WAIT\nSAVE_POINT_FILE A a.save\n"
    ).nodes["A"]
    assert (node.retries, node.unless_exit) == (3, 85)
    assert (node.abort_on, node.abort_return) == (124, 0)
    assert (node.priority, node.pre_skip, node.category, node.done) == (-5, 1, "big", True)


def test_files_of_the_whole_dag_are_read():
    flow = load(
        "NODE_STATUS_FILE nodes.status 30 ALWAYS-UPDATE\nJOBSTATE_LOG run.jobstate.log\n"
        "NODE_STATUS_FILE other.status\nJOBSTATE-LOG other.log\nCONFIG dag.config\n"
        'DOT d.dot UPDATE DONT-OVERWRITE INCLUDE head.dot\nSET_JOB_ATTR Project = "x"\n'
        "ENV SET A=1;B=2\nENV GET HOME\nMAXJOBS big 3\n"
    )
    assert (flow.node_status_file, flow.jobstate_log) == ("nodes.status", "run.jobstate.log")
    assert flow.problems == []
    assert flow.commands == 10


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("JOB", "Missing node name"),
        ("JOB B", "No submit description provided"),
        ("JOB B b.sub DIR", "No directory path provided for DIR subcommand"),
        ("JOB B b.sub QUICK", "Unexpected token 'QUICK'"),
        ("JOB B+C b.sub", "Node name 'B+C' contains the illegal character +"),
        ("JOB parent b.sub", "Node name 'parent' is a reserved word"),
        ("JOB B {", "Missing inline description closing token: }"),
        ("JOB B @=", "No inline description closing token specified (@=TOKEN)"),
        ("SUBMIT-DESCRIPTION d file.sub", "No inline description provided"),
        ("SUBDAG B b.dag", "Missing EXTERNAL keyword"),
        ("SPLICE S", "Missing DAG file"),
        ("SPLICE S s.dag NOOP", "Unexpected token 'NOOP'"),
        ("INCLUDE", "No include file specified"),
        ("PARENT A", "Missing CHILD specifier"),
        ("PARENT CHILD A", "No parent node(s) specified"),
        ("PARENT A CHILD", "No children node(s) specified"),
        ("WEAK A CHILD B", "WEAK dependency missing PARENT keyword"),
        ("SCRIPT A pre.sh", "Missing script type (PRE, POST, HOLD)"),
        ("SCRIPT PRE A", "No script specified"),
        ("SCRIPT DEFER x 1 PRE A s", "Invalid DEFER status value 'x'"),
        ("SCRIPT DEBUG f LOUD PRE A s", "Unknown DEBUG output stream type 'LOUD'"),
        ("RETRY A", "Missing max retry value"),
        ("RETRY A -1", "Invalid max retry value '-1'"),
        ("RETRY A 99999999999", "Invalid max retry value '99999999999'"),
        ("RETRY A 1 UNLESS 2", "Unexpected token 'UNLESS'"),
        ("ABORT-DAG-ON A 1 RETURN 256", "Invalid RETURN code '256'"),
        ('VARS A x="open', "Invalid quoting: no ending quote found"),
        ("VARS A +=1", "Variable name must contain at least one alphanumeric character"),
        ("PRIORITY A high", "Invalid priority value 'high'"),
        ("PRE_SKIP A x", "Invalid exit code 'x'"),
        ("DONE", "No node name specified"),
        ("DONE A B", "Unexpected token 'B'"),
        ("CATEGORY A", "No category name specified"),
        ("MAXJOBS c -1", "Invalid throttle limit '-1'"),
        ("DOT d.dot SOMETIMES", "Unexpected token 'SOMETIMES'"),
        ("NODE_STATUS_FILE f often", "Unexpected token 'often'"),
        ("JOBSTATE_LOG a b", "Unexpected token 'b'"),
        ("SET_JOB_ATTR", "No attribute line (key = value) provided"),
        ("ENV PUT A=1", "Unexpected token 'PUT'"),
        ("ENV SET", "No environment variables provided"),
        ("REJECT now", "Unexpected token 'now'"),
        ("CONNECT S", "Missing splice(s) to connect"),
        ("PIN_IN A 0", "Invalid pin number '0'"),
    ],
)
def test_bad_command_is_reported_and_the_rest_is_used(line, complaint):
    flow = load(f"# head\n{ONE}{line}")
    [problem] = flow.problems
    assert str(problem).startswith("run.dag:3: Failed to parse ")
    assert complaint in problem.text
    assert (problem.kind, problem.error) == ("syntax", True)
    assert not flow.used
    assert "A" in flow.nodes
    assert not official_verdict(flow.problems)


@pytest.mark.parametrize("word", ["DATA", "NODE", "...", "\ufeffJOB"])
def test_unknown_command_is_a_warning(word):
    flow = load(f"{ONE}{word} E e.dap\nRETRY A 2")
    [problem] = flow.problems
    assert (problem.kind, problem.line, problem.error) == ("unknown-command", 2, False)
    assert problem.text.endswith("is not a DAG command; the line is skipped")
    assert flow.used
    assert flow.nodes["A"].retries == 2
    assert not official_verdict(flow.problems)


@pytest.mark.parametrize(
    "line",
    [
        'environment="WANDB_API_KEY=sesame"',
        'JOB B b.sub environment="KEY=sesame"',
        "ENV KEY=sesame",
        'VARS A environment="KEY=sesame',
        "JOB B {\nenvironment = KEY=sesame",
    ],
)
def test_problem_never_quotes_an_environment(line):
    flow = load(ONE + line)
    assert flow.problems
    assert "sesame" not in repr(flow)


def test_problem_never_has_a_terminal_escape():
    assert "\x1b" not in report_of(load("JOB A a.sub \x1b[31mred"))[0]


def test_verdict_ignores_missing_files():
    flow = load("JOB A a.sub\nPARENT A CHILD missing\nREJECT")
    assert not flow.used
    assert official_verdict(flow.problems)
    assert official_verdict(parse_dag(b"", "empty.dag").problems)
