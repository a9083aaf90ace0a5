"""Single commands, with the recorded answers of HTCondor 25.14.1's own parser."""

from __future__ import annotations

from itertools import product

import pytest

from metlmon.dagman import commands
from metlmon.dagman.parser import DagFile, parse_dag
from tests.support.dag_texts import official_verdict

SUB_KEYWORDS = {
    "UNLESS_EXIT": "RETRY A 3 {} 2",
    "FAIL_FAST": "TOLERANCE A 5 {}",
    "ALWAYS_UPDATE": "NODE_STATUS_FILE f 30 {}",
    "DONT_UPDATE": "DOT f {}",
    "DONT_OVERWRITE": "DOT f {}",
    "OVERWRITE": "DOT f {}",
    "UPDATE": "DOT f {}",
    "INCLUDE": "DOT f {} head",
    "WAIT": "TOLERANCE A 5 % {}",
    "RETURN": "ABORT-DAG-ON A 3 {} 1",
    "EXTERNAL": "SUBDAG {} A f",
    "NOOP": "JOB A a.sub {}",
    "DONE": "JOB A a.sub {}",
    "DIR": "JOB A a.sub {} d",
    "DEFER": "SCRIPT {} 1 2 PRE A s",
    "DEBUG": "SCRIPT {} f ALL PRE A s",
    "STDOUT": "SCRIPT DEBUG f {} PRE A s",
    "POST": "SCRIPT {} A s",
    "PREPEND": "VARS A {} x=1",
    "APPEND": "VARS A {} x=1",
    "CHILD": "PARENT A {} B",
    "PARENT": "WEAK {} A CHILD B",
    "SET": "ENV {} A=1",
    "GET": "ENV {} A",
}


def read(text: str) -> DagFile:
    return parse_dag(f"{text}\n".encode(), "run.dag")


def spellings(word: str) -> set[str]:
    """A word in several cases, with each of its ``_`` as ``_`` and as ``-``."""
    cased = {word, word.lower(), word.title(), word.swapcase(), word[0].lower() + word[1:]}
    parts = [each.split("_") for each in cased]
    return {
        "".join(part + sign for part, sign in zip(each, [*signs, ""], strict=True))
        for each in parts
        for signs in product("-_", repeat=len(each) - 1)
    }


@pytest.mark.parametrize("word", SUB_KEYWORDS)
def test_sub_keyword_is_known_in_every_spelling(word):
    for spelling in spellings(word):
        parsed = read(SUB_KEYWORDS[word].format(spelling))
        assert parsed.problems == (), spelling
        assert len(parsed.commands) == 1


@pytest.mark.parametrize("word", SUB_KEYWORDS)
def test_sub_keyword_in_quotes_is_a_name(word):
    for spelling in (f'"{word}"', f"{word}_", word.replace("_", ".") + "."):
        assert not official_verdict(read(SUB_KEYWORDS[word].format(spelling)).problems), spelling


ANSWERS = {
    "TOLERANCE A 15 % FAIL-FAST": None,
    "TOLERANCE A 15% WAIT": None,
    "TOLERANCE A 101%": None,
    "TOLERANCE A 5%%": None,
    "TOLERANCE A 15x": None,
    "TOLERANCE A -1": "Invalid tolerance value '-1'",
    "TOLERANCE A -1%": "Invalid tolerance value '-1'",
    "TOLERANCE A %": "Empty percentage specified for failure tolerance",
    "TOLERANCE A": "Missing failure tolerance value",
    "TOLERANCE A 5 FAIL-FAST WAIT": "Unexpected token 'WAIT'",
    "TOLERANCE A 5 WAIT %": "Unexpected token '%'",
    "TOLERANCE A 5% %": "Unexpected token '%'",
    "TOLERANCE A 5 %%": "Unexpected token '%%'",
    "SAVE_POINT_FILE ALL_NODES": "ALL_NODES cannot be used for save point file command",
    "SAVE_POINT_FILE all-nodes f": "ALL_NODES cannot be used for save point file command",
    "JOB all-nodes a.sub": None,
    "SPLICE ALL_NODES f": None,
    'RETRY A "3"': "Invalid max retry value '\"3\"' (Must be positive integer)",
    'PARENT A "CHILD" B': "Missing CHILD specifier",
    'JOB A ""': "No submit description provided",
    "JOB A it's.sub": "Invalid quoting: no ending quote found",
    'JOB A a\\"b.sub': "Invalid quoting: no ending quote found",
    'NODE_STATUS_FILE f ""': "Unexpected token '\"\"'",
    "VARS A x": "Key value pair missing operator and value",
    "VARS A x y=1": "Key value pair missing value: Failed to locate operator",
    "VARS A x=": "Key value pair missing value: No value specified",
    "VARS A x==1": "Key value pair missing value: Double operator",
    "VARS A x= = 1": "Key value pair missing value: Double operator",
    "VARS A =1": "Key value pair missing key",
    "VARS A PREPEND =1": "Key value pair missing key",
    "VARS A 'x'=1": "Key contains quotation mark",
    'VARS A x="1" "2"': "Key contains quotation mark",
    "VARS A APPEND": "No key=value pairs specified",
    "VARS A APPEND PREPEND x=1": "Key value pair missing value: Failed to locate operator",
    "VARS A queue=1": "Illegal variable name 'queue': name can not begin with 'queue'",
    "VARS A +queue=1": None,
    "VARS A x-y=1": None,
    "VARS A PREPEND=1": None,
    'VARS A x=""': None,
    "VARS A x=''": None,
    "JOB A+B {\nRETRY C 1\n}": "Node name 'A+B' contains the illegal character +",
}
"""Command → what the official parser complains of, None where it takes the line."""


@pytest.mark.parametrize("line", ANSWERS)
def test_answer_to_a_command_is_the_official_one(line):
    parsed = read(line)
    if ANSWERS[line] is None:
        assert parsed.problems == ()
    else:
        assert parsed.problems[0].text.split(": ", 1)[1] == ANSWERS[line]


def test_quotes_are_part_of_node_names_but_not_of_files():
    parsed = read(
        'JOB "A b" a"b c".sub DIR \'d e\'\nSPLICE \'S\' "f g"\nINCLUDE "x\\"y"\n'
        'NODE_STATUS_FILE "" s\nPARENT "A b" CHILD \'C\'\nRETRY "A b" 3\nCONNECT S "T U"'
    )
    assert parsed.problems == ()
    node, splice, include, status, edge, retry, connect = parsed.commands
    assert isinstance(node, commands.NodeCommand)
    assert (node.name, node.submit, node.dir) == ('"A b"', "ab c.sub", "d e")
    assert isinstance(splice, commands.SpliceCommand)
    assert (splice.name, splice.file) == ("'S'", "f g")
    assert isinstance(include, commands.IncludeCommand)
    assert include.file == 'x"y'
    assert isinstance(status, commands.StatusFileCommand)
    assert status.file == "s"
    assert isinstance(edge, commands.EdgeCommand)
    assert (edge.parents, edge.children) == (('"A b"',), ("'C'",))
    assert isinstance(retry, commands.NodeModifier)
    assert retry.node == '"A b"'
    assert isinstance(connect, commands.ConnectCommand)
    assert (connect.parent, connect.child) == ("S", '"T U"')


VALUES = {
    'x="1 2"': "1 2",
    "x = '1 2'": "1 2",
    'x=a"b c"d': 'a"b c"d',
    "x='a\"b'": 'a"b',
    r'x="a\"b"': 'a"b',
    r'x="a\\b"': r"a\b",
    r'x="a\nb"': "anb",
    r"x=a\b": r"a\b",
    'x="1"y="2"': '1"y="2',
    "x=''y": "'",
    "x=y=z": "y=z",
    'x="1"=2': '1"=',
    "x= y=1": "y=1",
}
"""A pair of VARS → the value of x."""


@pytest.mark.parametrize("pair", VALUES)
def test_value_of_a_pair_is_unquoted(pair):
    [command] = read(f"VARS A {pair}").commands
    assert isinstance(command, commands.VarsCommand)
    assert command.pairs == (("x", VALUES[pair]),)


def test_continued_line_is_joined_by_a_blank():
    [command] = read('JOB A "a \\\n   b"').commands
    assert isinstance(command, commands.NodeCommand)
    assert command.submit == "a  b"
    parsed = read("JOB A a.sub\nRETRY \\\n\n# A\nA \\\nmany\nJOB B \\\nb.sub {\nFOO \\\nx")
    assert [problem.line for problem in parsed.problems] == [6, 8, 10]
