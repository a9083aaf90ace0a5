"""Submit descriptions: their values for a node, and what is never kept of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.dagman.submit_description import parse_description, submission
from tests.support.dag_texts import load, report_of


def says(text, before=None, **after):
    return submission(parse_description(text.split("\n")), before or {}, after)


@pytest.mark.parametrize(
    ("text", "log"),
    [
        ("log = metl.log", "metl.log"),
        ("LOG=metl.log", "metl.log"),
        ("log = a.log\nlog = b.log", "b.log"),
        ("log = $(name).log\nname = late", "late.log"),
        ("log = $(NAME:none).log", "none.log"),
        ("log = $(gone).log", ".log"),
        ("log = $(a:$(b)).log\nb = deep", "deep.log"),
        ("name = x\nname = $(name)y\nname = $(Name)z\nlog = $(name)", "xyz"),
        ("log = job_$(ClusterId).$(PROCID).log", "job_$(Cluster).$(Process).log"),
        ("log = $(RETRY)/$Fn(file).log", "$(RETRY)/$Fn(file).log"),
        ("log = $ENV(HOME)/$$(Name)", "$ENV(HOME)/$$(Name)"),
        ("log = cost$(DOLLAR)5", "cost$5"),
        ("+Site = a\nlog = $(My.Site).log", "a.log"),
        ("log = a.\\\n  log", "a.log"),
        ("# log = no.log\nlog = yes.log # not a comment", "yes.log # not a comment"),
        ("initialdir = run1\nlog = a.log", "run1/a.log"),
        ("initialdir = run1\nlog = /tmp/a.log", "/tmp/a.log"),
        ("log =", None),
        ("", None),
        ("log = $(a)\na = $(b)\nb = $(a)", None),
        ("queue\nlog = after.log", None),
    ],
)
def test_log_is_expanded(text, log):
    assert says(text).log == log


@pytest.mark.parametrize(
    ("condition", "log"),
    [
        ("defined checkpoint", "then"),
        ("defined gone", "else"),
        ("! defined gone", "then"),
        ("!defined checkpoint", "else"),
        ("Defined $(which)", "then"),
        ("true", "then"),
        ("$(flag)", "else"),
        ("3", "then"),
        ("0", "else"),
        ("version >= 8.1.6", "then"),
        ("version < 8.1.6", "else"),
        ("nonsense", "else"),
    ],
)
def test_if_selects_a_branch(condition, log):
    text = f"which = checkpoint\nflag = false\nIF {condition}\nlog = then\nelse\nlog = else\nendif"
    assert says(text, {"Checkpoint": "1"}).log == log


def test_first_true_branch_of_nested_ifs_counts():
    text = """
        if defined a
          log = a
        elif true
          if false
            log = never
          else
            log = inner
          endif
        elif true
          log = too late
        endif
    """
    assert says(text).log == "inner"
    assert says(text, {"a": "1"}).log == "a"


@pytest.mark.parametrize("text", ["endif", "else\nlog=x", "if", "elif true", "if true\nlog=x"])
def test_unbalanced_conditions_are_ignored(text):
    assert says(f"{text}\n").submission.queue_count == 1


@pytest.mark.parametrize(
    ("queue", "count"),
    [
        ("", 1),
        ("queue", 1),
        ("Queue 3", 3),
        ("queue $(n)", 4),
        ("queue x in (a, b c)", 3),
        ("queue 2 x in (a b)", 4),
        ("queue x, y from (\n a 1\n b 2\n)", 2),
        ("queue in (a b)", 2),
        ("queue x from list.txt", None),
        ("queue matching *.dat", None),
        ("queue x in [1:] (a b)", None),
        ("queue many", None),
        ("if true\nqueue 2\nendif\nqueue 5", 2),
        ("if false\nqueue 2\nendif\nqueue 5", 5),
    ],
)
def test_queue_gives_the_number_of_jobs(queue, count):
    assert says(f"n = 4\n{queue}").submission.queue_count == count


def test_item_of_a_queue_stays_unexpanded():
    assert says("output = $(seed)_$(Item)_$(gone).out\nqueue seed in (1 2)").output == (
        "$(seed)_$(Item)_.out"
    )


@pytest.mark.parametrize(
    ("value", "lease"), [("2", 2), ("$(n)", 3), ("0", 0), ("1 + 1", None), ("-1", None), ("", None)]
)
def test_job_lease_duration_is_read(value, lease):
    assert says(f"n = 3\njob_lease_duration = {value}").submission.lease == lease


def test_vars_precede_the_description_and_appended_ones_follow():
    flow = load(
        "JOB A a.sub\nVARS A name=before\nJOB B a.sub\nVARS B APPEND name=behind\n"
        "JOB C a.sub\nVARS C APPEND name=1\nVARS C PREPEND name=2\n",
        a_sub="if ! defined name\nname = none\nendif\nname = $(name)+own\nlog = $(name)",
    )
    assert [node.log for node in flow.nodes.values()] == ["before+own", "behind", "2+own"]


def test_vars_may_refer_to_each_other_and_the_job():
    flow = load('JOB A a.sub\nVARS A tag="$(JOB)_$(seed)" seed=7', a_sub="log = $(TAG).log")
    assert flow.nodes["A"].log == "A_7.log"
    assert flow.nodes["A"].vars["tag"] == "$(JOB)_$(seed)"


def test_submit_file_may_include_another():
    flow = load(
        "JOB A sub/a.sub",
        sub__a_sub="include : common.sub\ninclude ifexist : gone.sub\noutput = $(name).out",
        sub__common_sub="name = shared\nlog = $(name).log\ninclude : common.sub",
    )
    assert report_of(flow) == []
    assert (flow.nodes["A"].log, flow.nodes["A"].output) == ("shared.log", "shared.out")


def test_include_is_looked_for_in_dagmans_directory():
    flow = load("JOB A sub/a.sub", sub__a_sub="include : b.inc", b_inc="log = b.log")
    assert flow.nodes["A"].log == "b.log"


def test_recursive_includes_end():
    flow = load("JOB A a.sub", a_sub="include : a.sub\n" * 20 + "log = a.log")
    assert flow.nodes["A"].log == "a.log"


@pytest.mark.parametrize(
    "line",
    [
        'environment = "KEY=sesame"',
        "Environment=KEY=sesame",
        "env = KEY=sesame",
        '+Environment = "sesame"',
        'MY.Env = "sesame"',
        'environment = "A=1 \\\n KEY=sesame"',
        "environment @=end\nKEY=sesame\n@end",
    ],
)
def test_environment_is_never_kept(line):
    flow = load("JOB A a.sub", a_sub=f"{line}\nlog = $(environment)$(my.env)x.log")
    assert "sesame" not in repr(flow)
    assert flow.nodes["A"].log == "x.log"


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"a{i} = $(a{i + 1})$(a{i + 1})" for i in range(80)) + "\na80 = x\nlog = $(a0)",
        "log = " + "$(a:" * 10_000,
        "log = x\n" + "log = $(log)$(log)\n" * 1_000 + "log = $(log)$(none)",
    ],
)
def test_growth_of_macros_is_limited(text):
    log = says(text).log
    assert log is None or len(log) < 50_000


STATEMENTS = st.sampled_from(
    [
        *("log = m.log", "log = $(run)/$(log)", "log = \0" + "1\0", "userlog = u"),
        *("initialdir = $(a)", "initialdir = /d", "run = $(x)", "output = $(item)/$(x)"),
        *("output = $(run)/$(epoch)_$(ClusterId).out", "error = $(b:x$(a)) 100%s", "out = $(JOB)"),
        *("request_gpus = $(a)", "request_gpus = 2", "queue $(a)", "queue 3", "queue x in (1 2)"),
        *("a = $(a)$(a)", "a = $(b)", "b = $(a)", "if defined a", "if $(a)", "elif defined b"),
        *("if version > 9", "else", "endif", "c = $($(c))", "error = $(c)$$(a)$(dollar)"),
    ]
)
NAMES = st.sampled_from(["a", "A", "b", "run", "epoch", "x", "JOB", "log", "cluster"])
VALUES = st.sampled_from(
    ["", " ", "1", "7", "/abs", "r1/", "$(b)", "$", "%s", "\0" + "0\0", "x" * 5000]
)
VARS = st.dictionaries(NAMES, VALUES, max_size=4)


@given(st.lists(STATEMENTS, max_size=8), VARS, VARS)
def test_true_condition_changes_nothing(statements, before, after):
    plain = parse_description(statements)
    conditional = parse_description(["if true", "endif", *statements])
    expected = replace(submission(plain, before, after), work=0)
    assert replace(submission(conditional, before, after), work=0) == expected
