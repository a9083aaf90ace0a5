"""The text of DAG files: what DAGMan's parser refuses, and what older or newer ones do."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.authoring.lint.expressions import unfinished
from metlmon.authoring.lint.rules import KINDS
from metlmon.authoring.lint.source_map import ends_unfinished
from metlmon.dagman.commands import Placement, VarsCommand
from metlmon.dagman.lexer import Tokens, shown
from metlmon.dagman.node_commands import attribute_name

_MARK: Final = "\ufeff"
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r"\w[\w.]*[ \t]*=(.*)", re.ASCII | re.DOTALL)

#: Told by a rule of its own, which knows more.
_ELSEWHERE: Final = frozenset({"cycle", "missing-submit-file"})


def check(look: LintContext) -> None:
    """Problems that the parser has found, then what only shows in the bytes."""
    marked = {
        (name, told[0].line)
        for name, told in look.commands.items()
        if told and told[0].keyword.startswith(_MARK)
    }
    for problem in look.flow.problems:
        if problem.kind == "unknown-command" and (problem.file, problem.line) in marked:
            text = "the file begins with a byte order mark, which DAGMan takes for a command"
            look.found.add("byte-order-mark", problem.file, problem.line, text)
        elif problem.kind not in _ELSEWHERE:
            kind = problem.kind if problem.kind in KINDS else "syntax"
            text = problem.text.replace("; the line is skipped", "")
            look.found.add(kind, problem.file, problem.line, text)
    for name in look.commands:
        _bytes(look, name, look.shelf.get(look.names[name]) or b"")
        _variables(look, name)
        _attributes(look, name)


def _bytes(look: LintContext, name: str, data: bytes) -> None:
    if b"\r\n" in data:
        line = data[: data.index(b"\r\n")].count(b"\n") + 1
        look.found.add("crlf", name, line, "the lines end as on Windows, in CR LF")
    try:
        codecs.utf_8_decode(data, "strict", True)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        look.found.add("not-utf8", name, line, "there are bytes that are not UTF-8")
    if (line_cut := ends_unfinished(data)) is not None:
        text = "the file ends in a backslash: DAGMan drops this command without a word"
        look.found.add("unfinished-line", name, line_cut, text)
    for each in look.commands[name]:
        for line_ in each.block:
            if line_.text.lower().split(None, 1)[:1] == ["queue"]:
                text = "a description in the DAG file has a queue line"
                look.found.add("queue-in-description", name, line_.number, text)


def _variables(look: LintContext, name: str) -> None:
    for each in look.commands[name]:
        if not isinstance(each.command, VarsCommand):
            continue
        node = shown(each.command.node)
        for key, raw in _raw_pairs(each.rest):
            if kind := _value_kind(raw):
                text = f"VARS {shown(key)} of {node} {_SAID_OF_VALUES[kind]}"
                look.found.add(kind, name, each.line, text)
            if attribute_name(key) is None and not _NAME.fullmatch(key):
                text = f"the name of VARS {shown(key)} cannot be used as $({shown(key)})"
                look.found.add("vars-name", name, each.line, text)


_SAID_OF_VALUES: Final = {
    "unquoted-value": "stands without double quotes",
    "value-goes-on": "goes on behind its closing quote",
    "vars-escape": "has a backslash before a character that needs none",
}


def _raw_pairs(rest: str) -> Iterator[tuple[str, str]]:
    """The pairs of a VARS command that has been read, each value with its quotes."""
    tokens = Tokens(rest)
    tokens.next()
    tokens.take_keyword(Placement.__members__)
    while True:
        start = tokens.position
        if (pair := tokens.pair()) is None:
            return
        yield pair[0], rest[start : tokens.position].partition("=")[2].strip(" \t")


def _value_kind(raw: str) -> str | None:
    """What HTCondor before 25.5 refuses a value for."""
    if (quoted := _QUOTED.match(raw)) is None:
        return "unquoted-value"
    if quoted.end() < len(raw):
        return "value-goes-on"
    if any(character not in '"\\' for character in _ESCAPE.findall(quoted[0])):
        return "vars-escape"
    return None


def _attributes(look: LintContext, name: str) -> None:
    """SET_JOB_ATTR: condor_submit_dag writes it into DAGMan's own submit file as it is."""
    for each in look.commands[name]:
        if each.keyword != "SET_JOB_ATTR" or each.command is None:
            continue
        found = _ATTRIBUTE.fullmatch(each.rest)
        if found is None:
            text = f"SET_JOB_ATTR {shown(each.rest)} is not an assignment to an attribute"
            look.found.add("job-attribute", name, each.line, text)
        elif why := unfinished(found[1]):
            text = f"the value of SET_JOB_ATTR {shown(each.rest)} {why}"
            look.found.add("job-attribute", name, each.line, text)
