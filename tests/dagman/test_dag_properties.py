"""Properties of the DAG reader over generated DAGs and arbitrary bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from metlmon.dagman.parser import parse_dag
from tests.support.dag_texts import edges, weave

NAMES = st.text("abXY019_.-", min_size=1, max_size=8)
KEYS = st.from_regex(r"[a-z][A-Za-z0-9_]{0,6}", fullmatch=True).filter(
    lambda key: not key.lower().startswith(("queue", "env"))
)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), min_size=1).filter(
    lambda value: not value.endswith("\\") and value.strip(" \t\n\v\f\r") == value
)


@st.composite
def dags(draw):
    """Node names, edges from earlier to later ones, and VARS per node."""
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
def test_a_written_dag_is_read_as_it_was_meant(dag):
    names, drawn, macros = dag
    flow = weave("\n".join(" ".join(line) for line in written(dag)))
    assert facts(flow) == (names, set(drawn), macros, [])


@settings(max_examples=60)
@given(dags(), st.data())
def test_blanks_comments_continuations_and_case_change_nothing(dag, data):
    plain = weave("\n".join(" ".join(line) for line in written(dag)))
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
    assert facts(weave(text)) == facts(plain)


@given(
    st.lists(st.sampled_from(["SUBMIT-DESCRIPTION", "submit_description", "Submit-Description"]))
)
def test_hyphen_and_underscore_are_the_same_in_keywords(words):
    text = "".join(f"{word} d{i} {{\nlog = {i}\n}}\n" for i, word in enumerate(words))
    parsed = parse_dag(text.encode(), "run.dag")
    assert (len(parsed.commands), parsed.problems) == (len(words), ())


GRAMMAR = """
    JOB SPLICE INCLUDE SUBDAG EXTERNAL PARENT CHILD WEAK VARS RETRY ALL_NODES FINAL DIR S run.dag
    s.dag A B x=1 { } @=E @E CONNECT PIN_IN PIN_OUT 1 DONE S+A if queue log=$(JOB) " PRE SCRIPT
    SUBMIT-DESCRIPTION environment=sesame
"""
WORDS = st.sampled_from([*GRAMMAR.split(), "\n", "\\\n"])


@given(st.lists(WORDS, max_size=40), st.lists(WORDS, max_size=20))
def test_words_of_the_grammar_in_any_order_never_raise(top, spliced):
    flow = weave(" ".join(top), s_dag=" ".join(spliced))
    for parent, child in edges(flow):
        assert parent in flow.nodes[child].parents
