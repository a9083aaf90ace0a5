"""DAGs written in tests: file name → text, read as if they were in one directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from metlmon.dagman.graph import cycle, roots
from metlmon.dagman.loader import load_workflow
from metlmon.dagman.records import Node, NodeKind, Problem, Workflow

HOME = Path("/ap/home/ensemble")


def load(text: str | bytes, *more_dags: str, **files: str) -> Workflow:
    """The workflow of ``text`` (the file ``run.dag``), of ``more_dags`` on the same command
    line (``run1.dag``, …) and of the files they name: ``a__b_dag`` stands for ``a/b.dag``."""
    lying = {HOME / "run.dag": text}
    lying |= {HOME / f"run{i}.dag": dag for i, dag in enumerate(more_dags, start=1)}
    tops = list(lying)
    for name, content in files.items():
        stem, _, suffix = name.replace("__", "/").rpartition("_")
        lying[HOME / f"{stem}.{suffix}"] = content

    def read(path: Path) -> bytes:
        if path not in lying:
            raise FileNotFoundError(path)
        content = lying[path]
        return content if isinstance(content, bytes) else content.encode()

    return load_workflow(tops, read)


def report_of(workflow: Workflow) -> list[str]:
    """Its problems as text."""
    return [str(problem) for problem in workflow.problems]


def edges(workflow: Workflow) -> set[tuple[str, str]]:
    return {(node.name, child) for node in workflow.nodes.values() for child in node.children}


def official_verdict(problems: Iterable[Problem]) -> bool:
    """Whether HTCondor's parser accepts the text with these problems.

    It also rejects an unknown command, which this parser skips.
    """
    return not any(problem.kind in ("syntax", "unknown-command") for problem in problems)


@dataclass(frozen=True)
class GraphShape:
    """The statistics that ``condor_dag_checker`` reports.

    ``nodes`` are JOBs. ``widths``: the numbers of nodes by the depth at which a traversal from the
    roots first reaches them; empty when there is a cycle or no graph.
    """

    nodes: int
    total: int
    joins: int
    arcs: int
    widths: tuple[int, ...]

    @property
    def height(self) -> int:
        return len(self.widths)

    @property
    def width(self) -> int:
        return max(self.widths, default=0)


def graph_shape(nodes: Mapping[str, Node]) -> GraphShape:
    """Compute the shape of a workflow's graph from ``Workflow.nodes``."""
    widths = [] if cycle(nodes) else _widths(nodes)
    kinds = [node.kind for node in nodes.values()]
    return GraphShape(
        nodes=kinds.count(NodeKind.JOB),
        total=len(kinds),
        joins=kinds.count(NodeKind.JOIN),
        arcs=sum(len(node.children) for node in nodes.values()),
        widths=tuple(widths),
    )


def _widths(nodes: Mapping[str, Node]) -> list[int]:
    """Traverse depth-first in the order of the nodes, like the official checker."""
    order = {name: index for index, name in enumerate(nodes)}
    widths: list[int] = []
    seen: set[str] = set()
    # An explicit stack, the next node last: long chains would exceed the recursion limit.
    stack = [(root.name, 0) for root in reversed(roots(nodes.values()))]
    while stack:
        name, depth = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        if depth == len(widths):
            widths.append(0)
        widths[depth] += 1
        children = sorted(nodes[name].children, key=order.__getitem__, reverse=True)
        stack += [(child, depth + 1) for child in children if child not in seen]
    return widths
