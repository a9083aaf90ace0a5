"""Rules for DAG files: text that versions of DAGMan refuse, and the graph."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Final

from metlmon.authoring.lint.rule_submit import unfinished
from metlmon.authoring.lint.rules import KINDS, LintContext
from metlmon.dagman.commands import (
    CategoryCommand,
    DescriptionCommand,
    DoneCommand,
    EdgeCommand,
    MaxJobsCommand,
    NodeCommand,
    PreSkipCommand,
    VarsCommand,
    VarsPlacement,
    attribute_name,
)
from metlmon.dagman.graph import APART, JOIN_NAME, cycle
from metlmon.dagman.lexer import LogicalLines, Tokens, shown
from metlmon.dagman.parser import SourceCommand
from metlmon.dagman.records import NodeKind
from metlmon.dagman.submit_description import Description
from metlmon.model.dagman_runs import is_restart_status

_NAME: Final = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r"\w[\w.]*[ \t]*=(.*)", re.ASCII | re.DOTALL)

_VALUE_PROBLEMS: Final = {
    "unquoted-value": "stands without double quotes",
    "value-goes-on": "goes on behind its closing quote",
    "vars-escape": "has a backslash before a character that needs none",
}


def check(context: LintContext) -> None:
    """Report the parser's problems, then those visible only in the bytes."""
    marked = {
        (name, entries[0].line)
        for name, entries in context.commands.items()
        if entries and entries[0].keyword.startswith("\ufeff")
    }
    # The manual, "Sub-DAGs": a node or script before it may write the sub-DAG's file.
    written_later = {
        (node.file, node.line)
        for node in context.workflow.nodes.values()
        if node.kind is NodeKind.SUBDAG and (node.parents or node.pre is not None)
    }
    for problem in context.workflow.problems:
        if problem.kind == "missing-subdag" and (problem.file, problem.line) in written_later:
            context.report("missing-later-subdag", problem, problem.text)
        elif problem.kind == "unknown-command" and (problem.file, problem.line) in marked:
            message = "the file begins with a byte order mark, which DAGMan takes for a command"
            context.report("byte-order-mark", problem, message)
        elif problem.kind == "unknown-command" and context.has_run:
            context.report("newer-command", problem, problem.text)
        elif problem.kind not in ("cycle", "missing-submit-file"):
            # Other rules report those in more detail.
            kind = problem.kind if problem.kind in KINDS else "syntax"
            message = problem.text.replace("; the line is skipped", "")
            context.report(kind, problem, message)
    for name in context.commands:
        _check_bytes(context, name, context.files.get(context.names[name]) or b"")
    for entry in context.all_commands():
        match entry.command:
            case VarsCommand(node=node):
                _check_variables(context, entry, shown(node))
            case NodeCommand(inline=Description() as inline):
                _check_queue(context, inline)
            case DescriptionCommand(description=inline):
                _check_queue(context, inline)
            case _ if entry.keyword == "SET_JOB_ATTR" and entry.command is not None:
                _check_attribute(context, entry)
            case _:
                pass
    _check_graph(context)


def _check_bytes(context: LintContext, name: str, data: bytes) -> None:
    """Line ends, encoding, and a cut-off last line."""

    def report(kind: str, line: int, message: str) -> None:
        context.findings.add(kind, name, line, message)

    if b"\r\n" in data:
        line = data[: data.index(b"\r\n")].count(b"\n") + 1
        report("crlf", line, "the lines end as on Windows, in CR LF")
    try:
        codecs.utf_8_decode(data, "strict", True)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        report("not-utf8", line, "there are bytes that are not UTF-8")
    lines, start = LogicalLines(data), 0
    while (physical := lines.physical()) is not None:
        start = (start or physical.number) if physical.text.endswith("\\") else 0
    if start:
        message = "the file ends in a backslash: DAGMan drops this command without a word"
        report("unfinished-line", start, message)


def _check_queue(context: LintContext, inline: Description) -> None:
    for statement in inline.statements:
        if statement.directive and statement.key == "queue":
            message = "a description in the DAG file has a queue line"
            context.report("queue-in-description", statement, message)


def _check_variables(context: LintContext, entry: SourceCommand, node: str) -> None:
    for key, raw in _raw_pairs(entry.rest):
        if kind := _value_kind(raw):
            message = f"VARS {shown(key)} of {node} {_VALUE_PROBLEMS[kind]}"
            context.report(kind, entry, message)
        if attribute_name(key) is None and not _NAME.fullmatch(key):
            message = f"the name of VARS {shown(key)} cannot be used as $({shown(key)})"
            context.report("vars-name", entry, message)


def _raw_pairs(rest: str) -> Iterator[tuple[str, str]]:
    """The pairs of a VARS command that was parsed, each value with its quotes."""
    tokens = Tokens(rest)
    tokens.next()
    tokens.take_keyword(VarsPlacement.__members__)
    start = tokens.position
    while (pair := tokens.pair()) is not None:
        yield pair[0], rest[start : tokens.position].partition("=")[2].strip(" \t")
        start = tokens.position


def _value_kind(raw: str) -> str | None:
    """The kind of finding for a value that HTCondor before 25.5 refuses, or None."""
    if (quoted := _QUOTED.match(raw)) is None:
        return "unquoted-value"
    if quoted.end() < len(raw):
        return "value-goes-on"
    if any(character not in '"\\' for character in _ESCAPE.findall(quoted[0])):
        return "vars-escape"
    return None


def _check_attribute(context: LintContext, entry: SourceCommand) -> None:
    """SET_JOB_ATTR, which condor_submit_dag copies into DAGMan's submit file as is."""
    match = _ATTRIBUTE.fullmatch(entry.rest)
    if match is None:
        message = f"SET_JOB_ATTR {shown(entry.rest)} is not an assignment to an attribute"
        context.report("job-attribute", entry, message)
    elif problem := unfinished(match[1]):
        message = f"the value of SET_JOB_ATTR {shown(entry.rest)} {problem}"
        context.report("job-attribute", entry, message)


# --- the graph: cycles, isolated nodes, throttles and exit codes ------------------------------

MAX_ISOLATED: Final = 3
"""More isolated nodes than this are considered intended: a bag beside a graph."""

CYCLE_NAMES_SHOWN: Final = 12
"""Maximum number of listed names of a cycle, half of them from each end."""


def _check_graph(context: LintContext) -> None:
    _check_cycle(context)
    _check_isolated(context)
    _check_throttles(context)
    for node in context.jobs():
        if (node.submit or "").endswith(".condor.sub"):
            message = f"{shown(node.name)} submits a DAG of its own with JOB"
            context.report("nested-as-job", node, message)
    for entry in context.all_commands():
        if isinstance(entry.command, PreSkipCommand):
            message = f"PRE_SKIP of {shown(entry.command.node)} is {entry.command.code}"
            if entry.command.code == 0:
                context.report("pre-skip-zero", entry, message)
            elif entry.command.code not in range(256):
                context.report("pre-skip-range", entry, message)
    _check_done(context)
    _check_aborts(context)


def _check_done(context: LintContext) -> None:
    """DONE where DAGMan 23.9.6 ended with an assertion, or ran the node all the same."""
    marked = set()
    for entry in context.all_commands():
        if isinstance(entry.command, DoneCommand):
            message = f"DONE of {shown(entry.command.node)} stands in a line of its own"
            context.report("done-line", entry, message)
        elif isinstance(entry.command, NodeCommand) and entry.command.done:
            marked.add((entry.file, entry.line))
    for node in context.workflow.nodes.values():
        if "+" in node.name and (node.file, node.line) in marked:
            context.report("done-in-splice", node, f"{shown(node.name)} runs although it is DONE")


def _check_aborts(context: LintContext) -> None:
    """Exit statuses of ABORT-DAG-ON that do not end DAGMan's job; a FINAL node has its own."""
    nodes = context.workflow.nodes.values()
    if any(node.kind is NodeKind.FINAL for node in nodes):
        return
    for node in nodes:
        status = node.abort_on if node.abort_return is None else node.abort_return
        if node.abort_on is not None and is_restart_status(status):
            message = f"ABORT-DAG-ON {shown(node.name)} ends DAGMan with exit status {status}"
            context.report("abort-restarts", node, message)


def _check_cycle(context: LintContext) -> None:
    names = cycle(context.workflow.nodes)
    if not names:
        return
    edges = set(pairwise(names))
    nodes = [name for name in names if not _local_name(name).startswith(JOIN_NAME)]
    file, line = _cycle_position(context, edges)
    half = CYCLE_NAMES_SHOWN // 2
    listed = [shown(name) for name in nodes]
    if len(listed) > CYCLE_NAMES_SHOWN:
        listed = [*listed[:half], f"({len(listed) - CYCLE_NAMES_SHOWN} more)", *listed[-half:]]
    message = f"nodes wait for each other in a circle: {' → '.join(listed)}"
    context.findings.add("cycle", file, line, message)


def _cycle_position(context: LintContext, edges: set[tuple[str, str]]) -> tuple[str, int | None]:
    """The last line with an edge of the cycle: likely the wrong one."""
    local_edges = {(_local_name(parent), _local_name(child)) for parent, child in edges}
    parents = {parent for parent, _ in local_edges}
    for name, entries in context.commands.items():
        for entry in reversed(entries):
            if isinstance(entry.command, EdgeCommand):
                own_parents = parents.intersection(map(_local_name, entry.command.parents))
                children = set(map(_local_name, entry.command.children)) if own_parents else set()
                if not local_edges.isdisjoint(product(own_parents, children)):
                    return name, entry.line
    return context.name, None


def _local_name(name: str) -> str:
    """A node or category name without the prefixes of splices."""
    return name.rsplit("+", 1)[-1]


def _check_isolated(context: LintContext) -> None:
    nodes = [node for node in context.workflow.nodes.values() if node.kind not in APART]
    isolated = [node for node in nodes if not node.parents and not node.children]
    if not 0 < len(isolated) <= MAX_ISOLATED or len(nodes) - len(isolated) <= len(isolated):
        return
    for node in isolated:
        if node.kind is NodeKind.JOB and node.name not in context.parts:
            message = f"{shown(node.name)} waits for no node, and none waits for it"
            context.report("lone-node", node, message)


def _check_throttles(context: LintContext) -> None:
    """MAXJOBS with 0, or of a category that no node has.

    Categories of splices may be throttled in the DAG above them.
    """
    if any(problem.kind == "missing-file" for problem in context.workflow.problems):
        return  # The missing file may define the category.
    used_categories = {
        _local_name(entry.command.category)
        for entry in context.all_commands()
        if isinstance(entry.command, CategoryCommand)
    }
    for entry in context.all_commands():
        if not isinstance(entry.command, MaxJobsCommand):
            continue
        category = entry.command.category
        if _local_name(category) not in used_categories:
            message = f"MAXJOBS names the category {shown(category)}, which no node has"
            context.report("unused-throttle", entry, message)
        elif entry.command.limit == 0:
            message = f"MAXJOBS lets no node of the category {shown(category)} start"
            context.report("throttle-zero", entry, message)
