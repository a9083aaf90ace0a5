"""The text of DAG files: what DAGMan's parser refuses, and what older or newer ones do."""

from __future__ import annotations

import codecs
import re
from typing import Final

from metlmon.authoring.checking.kinds import KINDS
from metlmon.authoring.checking.look import Look
from metlmon.authoring.checking.sources import ends_unfinished
from metlmon.dagman.commands import VarsCommand
from metlmon.dagman.dagtext import shown
from metlmon.dagman.modify import attribute_name

_MARK: Final = "\ufeff"
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")
_PAIRS: Final = re.compile(
    r"""(?<!\S)[^\s="']++[ \t]*+=[ \t]*+(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?P<bare>[^\s"']))"""
)

#: Told by a rule of its own, which knows more.
_ELSEWHERE: Final = frozenset({"cycle", "missing-submit-file"})


def check(look: Look) -> None:
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


def _bytes(look: Look, name: str, data: bytes) -> None:
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


def _variables(look: Look, name: str) -> None:
    for each in look.commands[name]:
        if not isinstance(each.command, VarsCommand):
            continue
        for key, value in each.command.pairs:
            if not value:
                text = f"VARS {shown(key)} of {shown(each.command.node)} is empty"
                look.found.add("empty-value", name, each.line, text)
            if attribute_name(key) is None and not _NAME.fullmatch(key):
                text = f"the name of VARS {shown(key)} cannot be used as $({shown(key)})"
                look.found.add("vars-name", name, each.line, text)
        if _has_bare_value(each.rest):
            text = f"a value in VARS of {shown(each.command.node)} stands without double quotes"
            look.found.add("unquoted-value", name, each.line, text)


def _has_bare_value(rest: str) -> bool:
    return any(found["bare"] is not None for found in _PAIRS.finditer(rest))
