"""Draws a graph with characters: a row for its layers, runs of equal structure only once.

::

    run0 … run9  10 runs like this
      train_epoch0 ─▶ train_epoch1 ─▶ … ─▶ train_epoch29
      └ eval_epoch1 … eval_epoch30 (30)
      ▼
    gather

The number of lines is bounded and the time linear in the graph, so that a form can redraw it at
each key.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from metlmon.authoring.graph import Graph, GraphNode, NodeRole
from metlmon.dagman.graph import APART
from metlmon.dagman.records import NodeKind
from metlmon.text.formatting import count, plain

NARROWEST: Final = 24
"""Minimum width in cells; names cannot be distinguished below it."""

MAX_BLOCKS: Final = 12
"""Maximum number of blocks, and of lines per block; enough for any planned ensemble."""

LONGEST_NAME: Final = 200

STAGE: Final = "stage"
"""The variable with the stage of a node."""

ARROW: Final = " ─▶ "
BESIDE: Final = "└ "
DOWN: Final = "  ▼"
REST: Final = "…"

_APART_TEXTS: Final = {
    NodeKind.PROVISIONER: "PROVISIONER, before all others",
    NodeKind.SERVICE: "SERVICE, beside all others",
    NodeKind.FINAL: "FINAL, when all others have ended",
}

Edges = Iterable[tuple[str, str]]


def draw_graph(graph: Graph, width: int) -> list[str]:
    """Draw the graph as lines of at most ``width`` cells (at least NARROWEST)."""
    width = max(width, NARROWEST)
    return [
        line if len(line) <= width else line[: width - 1] + REST for line in _lines(graph, width)
    ] or ["(no nodes)"]


def _lines(graph: Graph, width: int) -> Iterator[str]:
    apart = [node for node in graph.nodes if node.kind in APART]
    nodes = [node for node in graph.nodes if node.kind not in APART]
    yield from _apart_lines(node for node in apart if node.kind is not NodeKind.FINAL)
    groups = _run_groups(graph, nodes)
    runs = {run: first for first, names in groups.items() for run in names}
    with_runs = {node.name: runs.get(_run_of(node) or "", node.name) for node in nodes}
    layers, circle = _layers(with_runs, graph.edges)
    if groups and not circle:
        yield from _blocks(graph, layers, groups, width)
    else:  # Runs that wait for each other's nodes are drawn as any other nodes.
        layers, circle = _layers({node.name: node.name for node in nodes}, graph.edges)
        yield from _row([_layer_text(layer) for layer in layers], width)
    if circle:
        yield f"{_names_text(circle)}: these wait for each other"
    yield from _apart_lines(node for node in apart if node.kind is NodeKind.FINAL)


def _apart_lines(nodes: Iterable[GraphNode]) -> Iterator[str]:
    texts = [f"{_shown(node.name)}  {_APART_TEXTS[node.kind]}" for node in nodes]
    yield from texts[:MAX_BLOCKS]
    if len(texts) > MAX_BLOCKS:
        yield f"{REST} {len(texts) - MAX_BLOCKS} more of these"


# --- runs, each form once -------------------------------------------------------------------


def _run_of(node: GraphNode) -> str | None:
    """The run of a node; a sub-DAG is a run of its own."""
    return node.run or (node.name if node.kind is NodeKind.SUBDAG else None)


def _run_groups(graph: Graph, nodes: Iterable[GraphNode]) -> dict[str, list[str]]:
    """Runs with the same structure, by the first of them: their nodes, and all edges of these."""
    run_of = {node.name: run for node in nodes if (run := _run_of(node))}
    edges: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for edge in graph.edges:
        for run in {run_of[name] for name in edge if name in run_of}:
            ends = (_within(name, run) if run_of.get(name) == run else name for name in edge)
            edges[run].append((next(ends), next(ends)))
    parts: dict[str, list[GraphNode]] = defaultdict(list)
    for node in nodes:
        if node.name in run_of:
            parts[run_of[node.name]].append(node)
    forms: dict[object, list[str]] = {}
    for run, own in parts.items():
        inner = _subdag(graph, own)
        inner_edges = () if inner is None else inner.edges
        key = (
            inner is None,
            tuple(
                (_within(node.name, run), node.role, _stage(node))
                for node in (own if inner is None else inner.nodes)
            ),
            tuple((_within(one, run), _within(other, run)) for one, other in inner_edges),
            tuple(edges[run]),
        )
        forms.setdefault(key, []).append(run)
    return {names[0]: names for names in forms.values()}


def _subdag(graph: Graph, nodes: Sequence[GraphNode]) -> Graph | None:
    """The sub-DAG that represents a run; None if its nodes are in the graph."""
    return graph.subdags.get(nodes[0].submit) if nodes[0].kind is NodeKind.SUBDAG else None


def _blocks(
    graph: Graph, layers: Sequence[Sequence[str]], groups: dict[str, list[str]], width: int
) -> Iterator[str]:
    """Runs and other nodes, one layer below the other."""
    nodes: dict[str, list[GraphNode]] = defaultdict(list)
    for node in graph.nodes:
        nodes[_run_of(node) or node.name].append(node)
    rows = [
        [
            *(name for name in layer if name in groups),
            *_families(name for name in layer if name not in groups),
        ]
        for layer in layers
    ]
    blocks_left = sum(map(len, rows))
    last_left = blocks_left - MAX_BLOCKS
    for number, blocks in enumerate(rows):
        if number:
            yield DOWN
        for block in blocks:
            if blocks_left == last_left:
                yield f"{REST} {count(blocks_left, 'more group')} of nodes"
                return
            blocks_left -= 1
            if isinstance(block, str):
                yield from _run_lines(groups[block], nodes[block], graph, width)
            else:
                yield _names_text(block)


def _run_lines(
    runs: Sequence[str], nodes: Sequence[GraphNode], graph: Graph, width: int
) -> Iterator[str]:
    """The names of runs, and the layers of the first of them, in one row per stage."""
    inner = _subdag(graph, nodes)
    like_this = f"  {count(len(runs), 'run')} like this" if len(runs) > 1 else ""
    each = " each" if len(runs) > 1 else ""
    yield _first_and_last(runs) + like_this + (f",{each} a sub-DAG" if inner is not None else "")
    edges = graph.edges if inner is None else inner.edges
    awaited = {parent for parent, _ in edges}
    chain, beside = {}, []
    for node in nodes if inner is None else inner.nodes:
        if node.role is NodeRole.EVALUATE and node.name not in awaited:
            beside.append(_within(node.name, runs[0]))
        else:
            chain[node.name] = node
    layers, _ = _layers({name: name for name in chain}, edges)
    stages: list[str] = []
    for layer in layers:
        known = (_stage(chain[name]) for name in layer)
        stages.append(next(filter(None, known), stages[-1] if stages else ""))
    start = ""
    for stage, part in groupby(zip(stages, layers, strict=True), key=lambda pair: pair[0]):
        texts = [_layer_text([_within(name, runs[0]) for name in layer]) for _, layer in part]
        texts[0] = f"{_shown(stage)}: {texts[0]}" if stage else texts[0]
        yield from (f"  {start}{line}" for line in _row(texts, width - 2 - len(start)))
        start = ARROW.lstrip()
    yield from (f"  {BESIDE}{_names_text(names)}" for names in _families(beside)[:MAX_BLOCKS])


def _stage(node: GraphNode) -> str:
    if node.role is not NodeRole.TRAIN:
        return ""
    return next((each.value for each in node.variables if each.name == STAGE), "")


# --- layers and rows ------------------------------------------------------------------------


def _layers(block_of: dict[str, str], edges: Edges) -> tuple[list[list[str]], list[str]]:
    """The blocks by depth (the longest path from a root), and those on a cycle."""
    children: dict[str, list[str]] = {block: [] for block in block_of.values()}
    waiting_for = dict.fromkeys(children, 0)
    for parent, child in edges:
        one, other = block_of.get(parent), block_of.get(child)
        if one is not None and other is not None and one != other:
            children[one].append(other)
            waiting_for[other] += 1
    depths = {block: 0 for block in children if not waiting_for[block]}
    ready = list(depths)
    for block in ready:
        for child in children[block]:
            depths[child] = max(depths.get(child, 0), depths[block] + 1)
            waiting_for[child] -= 1
            if not waiting_for[child]:
                ready.append(child)
    layers: list[list[str]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    circle = []
    for block in children:
        if waiting_for[block]:
            circle.append(block)
        else:
            layers[depths[block]].append(block)
    return layers, circle


def _row(texts: Sequence[str], width: int) -> Iterator[str]:
    """``A ─▶ B0 … B2 (3) ─▶ C``; if that does not fit, parts in the middle are omitted."""
    if not texts:
        return
    shortened = [[*texts[:first], REST, texts[-1]] for first in (2, 1) if first < len(texts) - 1]
    rows = [ARROW.join(each) for each in (texts, *shortened)]
    yield next((row for row in rows if len(row) <= width), rows[-1])


def _layer_text(names: Iterable[str]) -> str:
    return " + ".join(map(_names_text, _families(names)))


def _families(names: Iterable[str]) -> list[list[str]]:
    """Groups of names that differ only in numbers."""
    families: dict[str, list[str]] = defaultdict(list)
    for name in names:
        families[re.sub(r"[0-9]+", "#", name)].append(name)
    return list(families.values())


def _within(name: str, run: str) -> str:
    """The name of a node within its run."""
    return name.removeprefix(f"{run}-") or name


def _names_text(names: Sequence[str]) -> str:
    """``shard000 … shard099 (100)``; one or two names in full."""
    return _first_and_last(names) + (f" ({len(names)})" if len(names) > 2 else "")


def _first_and_last(names: Sequence[str]) -> str:
    first, last = _shown(names[0]), _shown(names[-1])
    if len(names) < 3:
        return first if len(names) == 1 else f"{first}, {last}"
    return f"{first} {REST} {last}"


def _shown(name: str) -> str:
    return plain(name, LONGEST_NAME)
