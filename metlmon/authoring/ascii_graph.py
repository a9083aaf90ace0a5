"""Draws a graph with characters: chains as rows of arrows, equal parts once.

::

    run0 … run9  10 runs like this
      train_epoch0 ─▶ train_epoch1 ─▶ … ─▶ train_epoch29
      └ eval_epoch1   └ eval_epoch2        └ eval_epoch30
      ▼
    gather

The number of lines is bounded and the time linear in the graph, so that a form can redraw it at
each key.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from metlmon.authoring.graph import Graph, GraphNode, NodeRole
from metlmon.dagman.graph import APART
from metlmon.dagman.records import NodeKind
from metlmon.text.formatting import count, plain

NARROWEST: Final = 24
"""Minimum width in cells; names cannot be distinguished below it."""

MOST_BLOCKS: Final = 12
"""Maximum blocks, or rows of a block; enough for the variety of a planned ensemble."""

MOST_HANGING: Final = 3
"""Maximum lines beneath a node."""

LONGEST_PERIOD: Final = 32
"""Maximum period of a repeating chain: an evaluation after every tenth epoch fits."""

LONGEST_NAME: Final = 200

STAGE: Final = "stage"
"""The variable with the stage of a node."""

ARROW: Final = "▶"
LINE: Final = "─"
REST: Final = "…"
HANGS: Final = "└ "
DOWN: Final = "▼"

_APART_TEXTS: Final = {
    NodeKind.PROVISIONER: "PROVISIONER, before all others",
    NodeKind.SERVICE: "SERVICE, beside all others",
    NodeKind.FINAL: "FINAL, when all others have ended",
}
_DIGITS: Final = re.compile(r"[0-9]+")
_Key = TypeVar("_Key", bound=Hashable)


def draw_graph(graph: Graph, width: int) -> list[str]:
    """Draw the graph as lines of at most ``width`` cells (at least NARROWEST)."""
    drawing = _GraphDrawing(max(width, NARROWEST))
    return [line.rstrip() for line in drawing.lines(graph)] or ["(no nodes)"]


# --- runs of equal structure ----------------------------------------------------------------


class _RunGroup(Struct, frozen=True):
    """Runs of equal structure.

    ``names``: of the runs, in the order of the file. ``nodes`` and ``edges``: of the first run, by
    names within the run. ``sides``: nodes that evaluate. ``stages``: the stage of the other nodes,
    if they have one. ``inner``: content of the sub-DAG, if the run is one.
    """

    names: list[str]
    nodes: list[str]
    edges: list[tuple[str, str]]
    sides: set[str] = set()
    stages: dict[str, str] = {}
    inner: Graph | None = None


_Unit = _RunGroup | list[str]
"""Runs, or the names of similar nodes in the same position: ``shard000`` to ``shard099``."""


_Summary = tuple[list[list[_Unit]], list[str]]
"""Groups of runs and of nodes, by depth; and the nodes in a cycle."""


def _summarize(graph: Graph) -> _Summary:
    """Summarise a graph; without runs, if these depend on each other in a cycle."""
    names = [node.name for node in graph.nodes if node.kind not in APART]
    groups = _run_groups(graph)
    index_by_run = {run: index for index, group in enumerate(groups) for run in group.names}
    runs = {node.name: index_by_run[run] for node in graph.nodes if (run := _run_of(node))}
    summary = _layered(graph, names, groups, runs)
    return _layered(graph, names, groups, {}) if summary[1] and groups else summary


def _run_of(node: GraphNode) -> str | None:
    """The run of a node; a sub-DAG is a run of its own."""
    if node.kind in APART:
        return None
    return node.run or (node.name if node.kind is NodeKind.SUBDAG else None)


def _name_pattern(name: str) -> str:
    """A name with its numbers replaced, the same for similar names."""
    return _DIGITS.sub("#", name)


def _name_in_run(name: str, run: str) -> str:
    """The name of a node within its run."""
    return name.removeprefix(f"{run}-") or name


def _run_groups(graph: Graph) -> list[_RunGroup]:
    nodes_by_run: dict[str, list[GraphNode]] = defaultdict(list)
    for node in graph.nodes:
        if run := _run_of(node):
            nodes_by_run[run].append(node)
    run_by_node = {node.name: run for run, nodes in nodes_by_run.items() for node in nodes}
    inner_edges: dict[str, list[tuple[str, str]]] = defaultdict(list)
    outer_edges: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for parent, child in graph.edges:
        parent_run, child_run = run_by_node.get(parent), run_by_node.get(child)
        if parent_run is not None and parent_run == child_run:
            edge = (_name_in_run(parent, parent_run), _name_in_run(child, parent_run))
            inner_edges[parent_run].append(edge)
            continue
        if parent_run is not None:
            outer_edges[parent_run].append((_name_in_run(parent, parent_run), f"> {child}"))
        if child_run is not None:
            outer_edges[child_run].append((f"< {parent}", _name_in_run(child, child_run)))
    groups: dict[object, _RunGroup] = {}
    for run, nodes in nodes_by_run.items():
        names = [_name_in_run(node.name, run) for node in nodes]
        sides = {
            name for name, node in zip(names, nodes, strict=True) if node.role is NodeRole.EVALUATE
        }
        stages = {
            name: variable.value
            for name, node in zip(names, nodes, strict=True)
            for variable in node.variables
            if variable.name == STAGE and node.role is NodeRole.TRAIN
        }
        inner = None
        if len(nodes) == 1 and nodes[0].kind is NodeKind.SUBDAG:
            inner = graph.subdags.get(nodes[0].submit)
        form = (
            tuple(
                "" if node.name == run else name for name, node in zip(names, nodes, strict=True)
            ),
            frozenset(sides),
            tuple(stages.items()),
            tuple(inner_edges[run]),
            tuple(outer_edges[run]),
            None if inner is None else _inner_form(inner),
        )
        group = _RunGroup([], names, inner_edges[run], sides, stages=stages, inner=inner)
        groups.setdefault(form, group).names.append(run)
    return list(groups.values())


def _inner_form(graph: Graph) -> object:
    """What sub-DAGs of equal structure have in common."""
    names = tuple(_name_in_run(node.name, node.run or "") for node in graph.nodes)
    index = {node.name: number for number, node in enumerate(graph.nodes)}
    return names, tuple((index.get(parent), index.get(child)) for parent, child in graph.edges)


def _layered(
    graph: Graph, names: Iterable[str], groups: Sequence[_RunGroup], group_of: Mapping[str, int]
) -> _Summary:
    """``group_of``: the index of the group of each node that is in one."""
    keys: dict[str, int | str] = {name: group_of.get(name, name) for name in names}
    pairs = {
        (keys[parent], keys[child]): None
        for parent, child in graph.edges
        if parent in keys and child in keys and keys[parent] != keys[child]
    }
    unique = list(dict.fromkeys(keys.values()))
    depths = _depths_of(unique, pairs)
    units: list[list[_Unit]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    families: list[dict[str, list[str]]] = [defaultdict(list) for _ in units]
    for key, depth in depths.items():
        if isinstance(key, int):
            units[depth].append(groups[key])
        else:
            families[depth][_name_pattern(key)].append(key)
    layers = [[*units[depth], *families[depth].values()] for depth in range(len(units))]
    return layers, [str(key) for key in unique if key not in depths]


def _depths_of(keys: Iterable[_Key], pairs: Iterable[tuple[_Key, _Key]]) -> dict[_Key, int]:
    """The depth of each key (its longest path from a root); none for keys in cycles."""
    children: dict[_Key, list[_Key]] = {key: [] for key in keys}
    waiting_for = dict.fromkeys(children, 0)
    for parent, child in pairs:
        children[parent].append(child)
        waiting_for[child] += 1
    depths = {key: 0 for key in children if not waiting_for[key]}
    ready = list(depths)
    for key in ready:
        for child in children[key]:
            depths[child] = max(depths.get(child, 0), depths[key] + 1)
            waiting_for[child] -= 1
            if not waiting_for[child]:
                ready.append(child)
    return {key: depths[key] for key in children if not waiting_for[key]}


# --- the drawing ------------------------------------------------------------------------------


class _Cell(NamedTuple):
    """A node in a row, and the lines beneath it."""

    text: str
    hanging: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Distance to the next cell; its arrow may be above the lines beneath this one."""
        hanging_width = max(map(len, self.hanging), default=0)
        return max(len(self.text) + 4, hanging_width + 1)


_ELLIPSIS: Final = _Cell(REST)


class _GraphDrawing:
    """Draws a graph at a given width; ``is_subdag``: that of a run, below the run's name."""

    def __init__(self, width: int, is_subdag: bool = False) -> None:
        self.width = width
        self.is_subdag = is_subdag

    def lines(self, graph: Graph) -> Iterator[str]:
        layers, cyclic = _summarize(graph)
        apart = [node for node in graph.nodes if node.kind in APART]
        yield from self._unconnected([node for node in apart if node.kind is not NodeKind.FINAL])
        if any(isinstance(unit, _RunGroup) for layer in layers for unit in layer):
            yield from self._blocks(layers)
        else:
            yield from self._families(layers)
        if cyclic:
            yield self._truncate(f"{_names_text(cyclic)}: these wait for each other")
        yield from self._unconnected([node for node in apart if node.kind is NodeKind.FINAL])

    def _unconnected(self, nodes: Sequence[GraphNode]) -> Iterator[str]:
        for node in nodes[:MOST_BLOCKS]:
            yield self._truncate(f"{_shown(node.name)}  {_APART_TEXTS[node.kind]}")
        if len(nodes) > MOST_BLOCKS:
            yield self._truncate(f"{REST} {len(nodes) - MOST_BLOCKS} more of these")

    # --- blocks, one beneath the other ------------------------------------------------------

    def _blocks(self, layers: list[list[_Unit]]) -> Iterator[str]:
        single = layers[0][0] if len(layers) == len(layers[0]) == 1 else None
        if self.is_subdag and isinstance(single, _RunGroup) and len(single.names) == 1:
            # The name of the only run of a sub-DAG has been printed already.
            yield from self._run(single)
            return
        blocks_left = MOST_BLOCKS
        for number, layer in enumerate(layers):
            if number:
                yield f"  {DOWN}"
            for position, unit in enumerate(layer):
                if not blocks_left:
                    more = sum(map(len, layers[number:])) - position
                    yield self._truncate(f"{REST} {more} more groups of nodes")
                    return
                blocks_left -= 1
                if isinstance(unit, _RunGroup):
                    yield from self._group(unit)
                else:
                    yield self._truncate(_names_text(unit))

    def _group(self, group: _RunGroup) -> Iterator[str]:
        span, number = _first_and_last(group.names), len(group.names)
        suffix = "" if group.inner is None else ", a sub-DAG"
        if number > 1:
            suffix = f"  {count(number, 'run')} like this{suffix.replace(' a ', ' each a ')}"
        yield self._truncate(f"{span}{suffix}")
        drawing = _GraphDrawing(self.width - 2, is_subdag=True)
        lines = drawing._run(group) if group.inner is None else drawing.lines(group.inner)
        yield from (f"  {line}" for line in lines)

    def _run(self, group: _RunGroup) -> Iterator[str]:
        """A chain with the nodes beneath it; any other graph by layers."""
        chain = _chain(group)
        if chain is None:
            nodes = tuple(GraphNode(name, "") for name in group.nodes)
            yield from self._families(_summarize(Graph(nodes, edges=tuple(group.edges)))[0])
            return
        spine, hanging = chain
        cells, kinds, last_stage = [], [], ""
        for name in spine:
            stage = group.stages.get(name, last_stage)
            first = f"{_shown(stage)}: " if stage != last_stage else ""
            cell = _Cell(first + _shown(name), _hanging_labels(hanging.get(name, ())))
            cells.append(cell)
            kinds.append(_name_pattern("/".join((stage, name, *cell.hanging))))
            last_stage = stage
        yield from self._row(cells, kinds)

    # --- rows of arrows -------------------------------------------------------------------------

    def _families(self, layers: list[list[_Unit]]) -> Iterator[str]:
        """``A ─▶ B0 … B2 (3) ─▶ C``: one cell per layer."""
        texts, kinds = [], []
        for layer in layers:
            families = [unit for unit in layer if isinstance(unit, list)]
            spans = [_names_text(names) for names in families]
            if len(spans) > MOST_HANGING:
                spans = [f"{spans[0]} + {count(sum(map(len, families)) - 1, 'other')}"]
            texts.append(" + ".join(spans))
            kinds.append(" + ".join(map(_name_pattern, spans)))
        yield from self._row([_Cell(text) for text in texts], kinds)

    def _row(self, cells: Sequence[_Cell], kinds: Sequence[str]) -> Iterator[str]:
        """The cells with arrows between them; repetitions are dropped as far as necessary."""
        if not cells:
            return
        abbreviated = _abbreviate(cells, kinds, 1)
        for shown in (list(cells), _abbreviate(cells, kinds, 2), abbreviated):
            last = max(map(len, (shown[-1].text, *shown[-1].hanging)))
            if sum(cell.width for cell in shown[:-1]) + last <= self.width:
                yield from _cell_lines(shown)
                return
        yield from self._wrapped_rows(abbreviated)

    def _wrapped_rows(self, cells: Sequence[_Cell]) -> Iterator[str]:
        """Rows that are too long, wrapped after an arrow."""
        width = self.width - 4
        rows: list[list[_Cell]] = [[]]
        used_width = 0
        for text, hanging in cells:
            labels = (plain(line.removeprefix(HANGS), width - len(HANGS)) for line in hanging)
            cell = _Cell(plain(text, width), tuple(HANGS + label for label in labels))
            if rows[-1] and used_width + cell.width > self.width:
                rows.append([])
                used_width = 3
            rows[-1].append(cell)
            used_width += cell.width
        if len(rows) > MOST_BLOCKS:
            skipped = sum(map(len, rows[MOST_BLOCKS - 2 : -1]))
            rows[MOST_BLOCKS - 2 : -1] = [[_Cell(f"{REST} {skipped} more")]]
        for number, row in enumerate(rows):
            first = f"{LINE}{ARROW} " if number else ""
            for line, text in enumerate(_cell_lines(row)):
                yield (first if not line else " " * len(first)) + text

    def _truncate(self, line: str) -> str:
        if len(line) <= self.width:
            return line
        return line[: self.width - len(REST)] + REST


def _cell_lines(cells: Sequence[_Cell]) -> Iterator[str]:
    """A row of cells with arrows, and the lines beneath it."""
    top_line = ""
    lower_lines = [""] * max((len(cell.hanging) for cell in cells), default=0)
    for number, cell in enumerate(cells):
        start = len(top_line)
        for line, text in enumerate(cell.hanging):
            lower_lines[line] = lower_lines[line].ljust(start) + text
        top_line += cell.text
        if number < len(cells) - 1:
            top_line += f" {LINE * (cell.width - len(cell.text) - 3)}{ARROW} "
    yield top_line
    yield from lower_lines


def _hanging_labels(names: Sequence[str]) -> tuple[str, ...]:
    """The lines beneath a node, similar names combined."""
    families: dict[str, list[str]] = defaultdict(list)
    for name in names:
        families[_name_pattern(name)].append(name)
    lines = [_names_text(members) for members in families.values()]
    if len(lines) > MOST_HANGING:
        lines[MOST_HANGING - 1 :] = [f"{REST} {len(lines) - MOST_HANGING + 1} more"]
    return tuple(HANGS + line for line in lines)


def _chain(group: _RunGroup) -> tuple[list[str], dict[str, list[str]]] | None:
    """The longest chain of a run, and the leaf nodes beneath its nodes.

    None if the run has any other structure. Edges that only skip part of the chain are ignored.
    """
    nodes, depths = group.nodes, _depths_of(group.nodes, group.edges)
    if len(depths) < len(nodes) or not nodes:
        return None
    parents_of: dict[str, list[str]] = defaultdict(list)
    for parent, child in group.edges:
        parents_of[child].append(parent)
    has_children = {parent for parent, _ in group.edges}
    # The evaluation of the last epoch is a leaf, unless epochs wait for their evaluations.
    awaited = {_name_pattern(name) for name in has_children & group.sides}
    ends = [name for name in nodes if name not in group.sides or _name_pattern(name) in awaited]
    spine = [max(ends or nodes, key=lambda name: depths[name])]
    while parents := parents_of.get(spine[-1]):
        spine.append(max(parents, key=lambda name: (depths[name], name in has_children)))
    spine.reverse()
    hanging: dict[str, list[str]] = defaultdict(list)
    in_spine = set(spine)
    for name in nodes:
        if name not in in_spine:
            parents = parents_of.get(name, [])
            if name in has_children or len(parents) != 1 or parents[0] not in in_spine:
                return None
            hanging[parents[0]].append(name)
    return spine, hanging


def _abbreviate(cells: Sequence[_Cell], kinds: Sequence[str], repetitions: int) -> list[_Cell]:
    """Reduce repeating parts to their first ``repetitions`` and their last occurrence."""
    shown: list[_Cell] = []
    index = 0
    while index < len(cells):
        period, times = _repetition(kinds, index)
        end = index + period * times
        if times > repetitions + 2:
            for start in (*range(index, index + period * repetitions, period), end - period):
                part = slice(start, start + period)
                shown += [_ELLIPSIS] if start == end - period else []
                shown += _abbreviate(cells[part], kinds[part], repetitions)
        else:
            shown += cells[index:end]
        index = end
    return shown


def _repetition(kinds: Sequence[str], start: int) -> tuple[int, int]:
    """The shortest period of the kinds from ``start``, and the number of repetitions."""
    for period in range(1, LONGEST_PERIOD + 1):
        index = start + period
        while index < len(kinds) and kinds[index] == kinds[index - period]:
            index += 1
        times = (index - start) // period
        if times > 2:
            return period, times
    return 1, 1


# --- names ------------------------------------------------------------------------------------


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
