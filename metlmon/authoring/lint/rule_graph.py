"""The graph: cycles, nodes that hang on nothing, throttles and codes that do nothing."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.dagman import NodeKind
from metlmon.dagman.commands import CategoryCommand, EdgeCommand, PreSkipCommand
from metlmon.dagman.graph import APART, JOIN_NAME, cycle
from metlmon.dagman.lexer import Tokens, integer, shown

FEW_ALONE: Final = 3
"""More nodes without an edge than this are meant so: a bag of jobs beside a graph."""

EXIT_CODES: Final = range(256)

CYCLE_SHOWN: Final = 12
"""Names of a cycle that are told, from each end half of them."""


def check(look: LintContext) -> None:
    _cycle(look)
    _alone(look)
    _throttles(look)
    for node in look.jobs():
        if (node.submit or "").endswith(".condor.sub"):
            text = f"{shown(node.name)} submits a DAG of its own with JOB"
            look.found.add("nested-as-job", node.file, node.line, text)
    for name, told in look.commands.items():
        for each in told:
            if isinstance(each.command, PreSkipCommand):
                text = f"PRE_SKIP of {shown(each.command.node)} is {each.command.code}"
                if each.command.code == 0:
                    look.found.add("pre-skip-zero", name, each.line, text)
                elif each.command.code not in EXIT_CODES:
                    look.found.add("pre-skip-range", name, each.line, text)


def _cycle(look: LintContext) -> None:
    names = cycle(look.flow.nodes)
    if not names:
        return
    edges = set(pairwise(names))
    plain = [name for name in names if not name.rsplit("+", 1)[-1].startswith(JOIN_NAME)]
    file, line = _closing(look, edges)
    half = CYCLE_SHOWN // 2
    told = [shown(name) for name in plain]
    if len(told) > CYCLE_SHOWN:
        told = [*told[:half], f"({len(told) - CYCLE_SHOWN} more)", *told[-half:]]
    text = f"nodes wait for each other in a circle: {' → '.join(told)}"
    look.found.add("cycle", file, line, text)


def _closing(look: LintContext, edges: set[tuple[str, str]]) -> tuple[str, int | None]:
    """The last line that draws an edge of the cycle: likely the one too many."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for parent, child in edges:
        wanted[_bare(parent)].add(_bare(child))
    for name, told in look.commands.items():
        for each in reversed(told):
            edge = each.command
            if isinstance(edge, EdgeCommand) and any(
                not wanted[_bare(parent)].isdisjoint(_bare(child) for child in edge.children)
                for parent in edge.parents
                if _bare(parent) in wanted
            ):
                return name, each.line
    return look.name, None


def _bare(name: str) -> str:
    return name.rsplit("+", 1)[-1]


def _alone(look: LintContext) -> None:
    graph = [node for node in look.flow.nodes.values() if node.kind not in APART]
    alone = [node for node in graph if not node.parents and not node.children]
    if not 0 < len(alone) <= FEW_ALONE or len(graph) - len(alone) <= len(alone):
        return
    for node in alone:
        if node.kind is NodeKind.JOB and node.name not in look.parts:
            text = f"{shown(node.name)} waits for no node, and none waits for it"
            look.found.add("lone-node", node.file, node.line, text)


def _throttles(look: LintContext) -> None:
    """MAXJOBS of a category that no node has. Categories of splices may be set above them."""
    if any(problem.kind == "missing-file" for problem in look.flow.problems):
        return  # It may well be in there.
    used = {
        _bare(each.command.category)
        for told in look.commands.values()
        for each in told
        if isinstance(each.command, CategoryCommand)
    }
    for name, told in look.commands.items():
        for each in told:
            if each.keyword == "MAXJOBS" and each.command is not None:
                category = Tokens(each.rest).next()
                if (
                    _bare(category) in used
                    and integer(Tokens(each.rest.split(None, 1)[1]).next()) == 0
                ):
                    text = f"MAXJOBS lets no node of the category {shown(category)} start"
                    look.found.add("throttle-zero", name, each.line, text)
                if _bare(category) not in used:
                    text = f"MAXJOBS names the category {shown(category)}, which no node has"
                    look.found.add("unused-throttle", name, each.line, text)
