"""Usual lines and usual nodes are read in a shorter way, which must come to the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.dagman.parser import parse_dag
from metlmon.dagman.submit_description import QueueStatements, parse_description, submission

WORDS = st.sampled_from(
    [
        *("JOB", "VARS", "PARENT", "CHILD", "child", "RETRY", "SCRIPT", "PRE", "POST", "DEFER"),
        *("A", "B", "S+A", "ALL_NODES", "parent", "x.sub", "{", "@=E", "}", "@E", "DIR", "NOOP"),
        *('a="1"', 'b="2 3"', 'c=""', 'd="x"e="y"', 'f="\\""', "g='1'", "h=1", '+i="j"', '+="k"'),
        *('queue_me="1"', 'environment="sesame"', 'MY.env="s"', "PREPEND", "APPEND", 'APPEND="1"'),
        *(
            "3",
            "99999999999",
            "-1",
            "1x",
            "٣",
            "post.sh",
            '"two words"',
            "\\",
            "é",
            "\x0b",
            "#",
            "//",
        ),
    ]
)
LINES = st.lists(st.lists(WORDS, min_size=1, max_size=7), max_size=6)


@given(LINES, st.sampled_from([" ", "\t", "  "]), st.sampled_from(["\n", "\r\n", " \n", ""]))
def test_usual_lines_mean_what_they_mean_when_written_unusually(lines, gap, end):
    """A blank before a command is unusual, and means nothing."""
    written = [gap.join(words) for words in lines]
    text = "\n".join(written) + end
    indented = "\n".join(f" {line}" for line in written) + end
    assert parse_dag(text.encode(), "run.dag") == parse_dag(indented.encode(), "run.dag")


@pytest.mark.parametrize(
    "line",
    [
        *("JOB parent x.sub", "JOB S+A x.sub", "JOB A {", "JOB A @=E", "JOB A x.sub DONE", "JOB A"),
        *("PARENT CHILD CHILD B", "PARENT A CHILD child", "PARENT child CHILD B", "PARENT A CHILD"),
        *('VARS A queue="1"', 'VARS A env="k"', 'VARS A +="1"', 'VARS A a=""', 'VARS A a="b"c="d"'),
        *(
            'VARS A PREPEND="1"',
            'VARS A APPEND a="1"',
            "VARS A PREPEND",
            'VARS A PREPEND = "1"',
            'VARS A PREPENDED="1"',
            'VARS PREPEND a="1"',
            'VARS A a="\\""',
            'VARS A a="1" b',
            "VARS A",
        ),
        *(
            "RETRY A 99999999999",
            "RETRY A ٣",
            "RETRY A -1",
            "RETRY A 1 UNLESS-EXIT 2",
            "RETRY A 1x",
        ),
        *("SCRIPT POST A", "SCRIPT POST A x y ", "SCRIPT POST A x \\", "SCRIPT DEFER 1 2 PRE A x"),
        *("SCRIPT DEFER 1 PRE A x", "SCRIPT DEFER 1x 2 PRE A x", "SCRIPT DEFER 1 2 DEFER A x"),
        *(
            'SCRIPT POST "A" x',
            "SCRIPT HOLD A x\v",
            "SCRIPT POST A #x",
            "JOB A x\v",
            "JOB A x\u2003y",
        ),
    ],
)
def test_what_only_looks_usual_is_read_with_care(line):
    """The second line shows whether one line too few or too many was taken."""
    text, indented = f"{line}\nJOB B b.sub\n", f" {line}\n JOB B b.sub\n"
    assert parse_dag(text.encode(), "run.dag") == parse_dag(indented.encode(), "run.dag")


def test_all_forms_of_usual_lines_are_read():
    lines = [
        "JOB A a.sub",
        'VARS A epoch="1" seed="2"',
        "PARENT A CHILD B",
        "RETRY A 3",
        "SCRIPT POST A check.sh $RETURN",
        'VARS A PREPEND epoch="1" seed="2"',
        "SCRIPT DEFER 75 60 PRE A gate.py e.gate.json u 0 train $JOB",
    ]
    parsed = parse_dag("\n".join([*lines, ""]).encode(), "run.dag")
    assert parsed.problems == ()
    assert [command.line for command in parsed.commands] == [1, 2, 3, 4, 5, 6, 7]
    again = parse_dag("\n".join(f"\t{line}" for line in lines).encode(), "run.dag")
    assert again.commands == parsed.commands


STATEMENTS = st.sampled_from(
    [
        *(
            "log = m.log",
            "log = $(run)/$(log)",
            "userlog = u",
            "initialdir = $(a)",
            "initialdir = /d",
        ),
        *("output = $(run)/$(epoch)_$(ClusterId).out", "error = $(b:x$(a)) 100%s", "out = $(JOB)"),
        *("request_gpus = $(a)", "request_gpus = 2", "queue $(a)", "queue 3", "queue x in (1 2)"),
        *("a = $(a)$(a)", "a = $(b)", "b = $(a)", "if defined a", "if $(a)", "elif defined b"),
        *(
            "if version > 9",
            "else",
            "endif",
            "run = $(x)",
            "output = $(item)/$(x)",
            "log = \0" + "1\0",
        ),
        *("c = $($(c))", "error = $(c)$$(a)$(dollar)"),
    ]
)
NAMES = st.sampled_from(["a", "A", "b", "run", "epoch", "x", "JOB", "log", "cluster"])
VALUES = st.sampled_from(
    ["", " ", "1", "7", "/abs", "r1/", "$(b)", "$", "%s", "\0" + "0\0", "x" * 5000]
)
VARS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=4)


@given(st.lists(STATEMENTS, max_size=8), VARS, VARS)
def test_many_nodes_of_a_description_say_what_each_would_alone(statements, before, after):
    description = parse_description(statements)
    many = QueueStatements(description)
    for first, last in [*zip(before, after, strict=False), (before[-1], {})]:
        for values in (first, {name: f"{value}1" for name, value in first.items()}):
            assert many.of(values, last) == submission(description, values, last)


def test_nodes_that_differ_in_their_macros_are_told_apart():
    description = parse_description(["log = m.log", "output = $(run)/$(epoch).out"])
    many = QueueStatements(description)
    outputs = [many.of({"run": "r", "epoch": epoch}, {}).output for epoch in "123"]
    assert outputs == ["r/1.out", "r/2.out", "r/3.out"]
