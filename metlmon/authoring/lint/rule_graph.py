"""Rules for the graph: cycles, isolated nodes, throttles and exit codes."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.dagman import NodeKind
from metlmon.dagman.commands import CategoryCommand, EdgeCommand, MaxJobsCommand, PreSkipCommand
from metlmon.dagman.graph import APART, JOIN_NAME, cycle
from metlmon.dagman.lexer import shown

MAX_ISOLATED: Final = 3
"""More isolated nodes than this are taken as intended: a bag beside a graph."""

EXIT_CODES: Final = range(256)

CYCLE_NAMES_SHOWN: Final = 12
"""Most names of a cycle that are listed, half from each end."""


def check(context: LintContext) -> None:
    """Check cycles, isolated nodes, throttles, nested DAGs and PRE_SKIP codes."""
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
            elif entry.command.code not in EXIT_CODES:
                context.report("pre-skip-range", entry, message)


def _check_cycle(context: LintContext) -> None:
    names = cycle(context.workflow.nodes)
    if not names:
        return
    edges = set(pairwise(names))
    nodes = [name for name in names if not name.rsplit("+", 1)[-1].startswith(JOIN_NAME)]
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
