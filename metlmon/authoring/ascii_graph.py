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
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct, field

from metlmon.authoring.graph import Graph, GraphNode, NodeRole
from metlmon.dagman import NodeKind
from metlmon.dagman.graph import APART
from metlmon.text.formatting import count, plain

NARROWEST: Final = 24
"""Minimum width in cells; names cannot be told apart below it."""

MOST_BLOCKS: Final = 12
"""Maximum blocks, or rows of a block; enough for the variety of a planned ensemble."""

MOST_HANGING: Final = 3
"""Maximum lines beneath a node."""

LONGEST_PERIOD: Final = 32
"""Maximum period of a repeating chain: an evaluation after every tenth epoch fits."""

LONGEST_NAME: Final = 200

_APART_TEXTS: Final = {
    NodeKind.PROVISIONER: "PROVISIONER, before all others",
    NodeKind.SERVICE: "SERVICE, beside all others",
    NodeKind.FINAL: "FINAL, when all others have ended",
}


ARROW: Final = "▶"
LINE: Final = "─"
REST: Final = "…"
HANGS: Final = "└ "
DOWN: Final = "▼"


class CanvasCell(Struct, frozen=True):
    """A node in a row, and the lines beneath it."""

    text: str
    hanging: tuple[str, ...] = ()


def draw_graph(graph: Graph, width: int) -> list[str]:
    """Draw the graph as lines of at most ``width`` cells (at least NARROWEST).

    "(no nodes)" for an empty graph.
    """
    canvas = _GraphDrawing(max(width, NARROWEST))
    return [line.rstrip() for line in canvas.lines(graph)] or ["(no nodes)"]


class _GraphDrawing:
    """Draws graphs at a given width; sub-DAGs on a nested canvas."""

    def __init__(self, width: int, depth: int = 0) -> None:
        self.width = width
        self.depth = depth

    def lines(self, graph: Graph) -> Iterator[str]:
        summary = summarize(graph, self.depth)
        first = [node for node in summary.unconnected if node.kind is not NodeKind.FINAL]
        last = [node for node in summary.unconnected if node.kind is NodeKind.FINAL]
        yield from self._unconnected(first)
        if any(isinstance(unit, RunGroup) for layer in summary.layers for unit in layer):
            yield from self._blocks(summary)
        else:
            yield from self._families(summary)
        if summary.cyclic:
            yield self._truncate(f"{self._names_text(summary.cyclic)}: these wait for each other")
        yield from self._unconnected(last)

    def _unconnected(self, nodes: Sequence[GraphNode]) -> Iterator[str]:
        for node in nodes[:MOST_BLOCKS]:
            yield self._truncate(f"{self._name(node.name)}  {_APART_TEXTS[node.kind]}")
        if len(nodes) > MOST_BLOCKS:
            yield self._truncate(f"{REST} {len(nodes) - MOST_BLOCKS} more of these")

    # --- blocks, one beneath the other ------------------------------------------------------

    def _blocks(self, summary: GraphSummary) -> Iterator[str]:
        layers = summary.layers
        single = layers[0][0] if len(layers) == len(layers[0]) == 1 else None
        if self.depth and isinstance(single, RunGroup) and len(single.names) == 1:
            # The name of the only run of a sub-DAG has been printed already.
            yield from self._run(single)
            return
        block_count = 0
        for number, layer in enumerate(layers):
            if number:
                yield f"  {DOWN}"
            for unit in layer:
                block_count += 1
                if block_count > MOST_BLOCKS:
                    more = sum(map(len, layers[number:])) - layer.index(unit)
                    yield self._truncate(f"{REST} {more} more groups of nodes")
                    return
                if isinstance(unit, NodeGroup):
                    yield self._truncate(self._names_text(unit.names))
                else:
                    yield from self._bundle(unit)

    def _bundle(self, bundle: RunGroup) -> Iterator[str]:
        yield self._truncate(self._title(bundle))
        canvas = _GraphDrawing(self.width - 2, self.depth + 1)
        if bundle.inner is not None and self.depth < DEEPEST:
            lines = canvas.lines(bundle.inner)
        else:
            lines = canvas._run(bundle)
        yield from (f"  {line}" for line in lines)

    def _title(self, bundle: RunGroup) -> str:
        span = self._first_and_last(bundle.names)
        number = len(bundle.names)
        suffix = ", a sub-DAG" if bundle.inner is not None else ""
        if number == 1:
            return f"{span}{suffix}"
        each_suffix = ", each a sub-DAG" if suffix else ""
        return f"{span}  {count(number, 'run')} like this{each_suffix}"

    # --- one run ------------------------------------------------------------------------------

    def _run(self, bundle: RunGroup) -> Iterator[str]:
        """A chain with the nodes beneath it; any other graph by layers."""
        chain = _chain(bundle)
        if chain is None:
            graph = Graph(tuple(GraphNode(name, "") for name in bundle.nodes), edges=bundle.edges)
            yield from self._families(summarize(graph))
            return
        spine, hanging = chain
        cells, kinds, last_stage = [], [], ""
        for name in spine:
            stage = bundle.stages.get(name, last_stage)
            first = f"{self._name(stage)}: " if stage != last_stage else ""
            cell = CanvasCell(first + self._name(name), self._hanging_labels(hanging.get(name, ())))
            cells.append(cell)
            kinds.append(name_pattern("/".join((stage, name, *cell.hanging))))
            last_stage = stage
        yield from self._row(cells, kinds)

    def _hanging_labels(self, names: Sequence[str]) -> tuple[str, ...]:
        """The lines beneath a node, similar names combined."""
        families: dict[str, list[str]] = {}
        for name in names:
            families.setdefault(name_pattern(name), []).append(name)
        lines = [self._names_text(members) for members in families.values()]
        if len(lines) > MOST_HANGING:
            lines[MOST_HANGING - 1 :] = [f"{REST} {len(lines) - MOST_HANGING + 1} more"]
        return tuple(HANGS + line for line in lines)

    # --- rows of arrows -------------------------------------------------------------------------

    def _families(self, summary: GraphSummary) -> Iterator[str]:
        """``A ─▶ B0 … B2 (3) ─▶ C``: one cell per layer."""
        texts, kinds = [], []
        for layer in summary.layers:
            spans = [self._names_text(unit.names) for unit in layer if isinstance(unit, NodeGroup)]
            if len(spans) > MOST_HANGING:
                nodes = sum(len(unit.names) for unit in layer if isinstance(unit, NodeGroup))
                spans = [f"{spans[0]} + {count(nodes - 1, 'other')}"]
            texts.append(" + ".join(spans))
            kinds.append(" + ".join(name_pattern(span) for span in spans))
        yield from self._row([CanvasCell(text) for text in texts], kinds)

    def _row(self, cells: Sequence[CanvasCell], kinds: Sequence[str]) -> Iterator[str]:
        """The cells with arrows between them; repetitions are dropped as far as necessary."""
        if not cells:
            return
        ellipsis = CanvasCell(REST)
        for repetitions in (None, 2, 1):
            shown = (
                list(cells)
                if repetitions is None
                else _abbreviate(cells, kinds, repetitions, ellipsis)
            )
            last = max(map(len, (shown[-1].text, *shown[-1].hanging)))
            if sum(map(self._cell_width, shown[:-1])) + last <= self.width:
                yield from self._cell_lines(shown)
                return
        yield from self._wrapped_rows(_abbreviate(cells, kinds, 1, ellipsis))

    def _cell_width(self, cell: CanvasCell) -> int:
        """Distance to the next cell; its arrow may be above the lines beneath this one."""
        hanging_width = max((len(line) for line in cell.hanging), default=0)
        return max(len(cell.text) + 4, hanging_width + 1)

    def _cell_lines(self, cells: Sequence[CanvasCell]) -> Iterator[str]:
        top_line = ""
        depth = max((len(cell.hanging) for cell in cells), default=0)
        lower_lines = [""] * depth
        for number, cell in enumerate(cells):
            start = len(top_line)
            for line in range(min(depth, len(cell.hanging))):
                lower_lines[line] = lower_lines[line].ljust(start) + cell.hanging[line]
            top_line += cell.text
            if number < len(cells) - 1:
                arrow_length = self._cell_width(cell) - len(cell.text) - 3
                top_line += f" {LINE * arrow_length}{ARROW} "
        yield top_line
        yield from lower_lines

    def _wrapped_rows(self, cells: Sequence[CanvasCell]) -> Iterator[str]:
        """Rows that are too long, wrapped after an arrow."""
        width = self.width - 4
        cells = [
            CanvasCell(
                plain(cell.text, width),
                tuple(self._fit_hanging(line) for line in cell.hanging),
            )
            for cell in cells
        ]
        rows: list[list[CanvasCell]] = [[]]
        used_width = 0
        for cell in cells:
            cell_width = self._cell_width(cell)
            if rows[-1] and used_width + cell_width > self.width:
                rows.append([])
                used_width = 3
            rows[-1].append(cell)
            used_width += cell_width
        if len(rows) > MOST_BLOCKS:
            skipped = sum(map(len, rows[MOST_BLOCKS - 2 : -1]))
            rows[MOST_BLOCKS - 2 : -1] = [[CanvasCell(f"{REST} {skipped} more")]]
        for number, row in enumerate(rows):
            first = f"{LINE}{ARROW} " if number else ""
            for line, text in enumerate(self._cell_lines(row)):
                yield (first if not line else " " * len(first)) + text

    # --- names ----------------------------------------------------------------------------------

    def _names_text(self, names: Sequence[str]) -> str:
        """``shard000 … shard099 (100)``; one or two names in full."""
        if len(names) == 1:
            return self._name(names[0])
        if len(names) == 2:
            return ", ".join(map(self._name, names))
        return f"{self._first_and_last(names)} ({len(names)})"

    def _first_and_last(self, names: Sequence[str]) -> str:
        first, last = self._name(names[0]), self._name(names[-1])
        if len(names) < 3:
            return first if len(names) == 1 else f"{first}, {last}"
        return f"{first} {REST} {last}"

    def _name(self, name: str) -> str:
        return plain(name, LONGEST_NAME)

    def _fit_hanging(self, text: str) -> str:
        width = self.width - 4 - len(HANGS)
        label = text.removeprefix(HANGS)
        return HANGS + plain(label, width)

    def _truncate(self, line: str) -> str:
        if len(line) <= self.width:
            return line
        return line[: self.width - len(REST)] + REST


def _chain(bundle: RunGroup) -> tuple[list[str], dict[str, list[str]]] | None:
    """The longest chain of a run, and the leaf nodes beneath its nodes.

    None if the run has any other structure. Edges that only skip part of the chain are ignored.
    """
    nodes, pairs = bundle.nodes, bundle.edges
    depths, cyclic_count = depths_of(nodes, pairs)
    if cyclic_count or not nodes:
        return None
    parents_of: dict[str, list[str]] = {}
    has_children = set()
    for parent, child in pairs:
        parents_of.setdefault(child, []).append(parent)
        has_children.add(parent)
    # The evaluation of the last epoch is a leaf, unless epochs wait for their evaluations.
    awaited = {name_pattern(name) for name in has_children & bundle.sides}
    ends = [name for name in nodes if name not in bundle.sides or name_pattern(name) in awaited]
    spine = [max(ends or nodes, key=lambda name: depths[name])]
    while parents := parents_of.get(spine[-1]):
        spine.append(max(parents, key=lambda name: (depths[name], name in has_children)))
    spine.reverse()
    position = {name: number for number, name in enumerate(spine)}
    hanging: dict[str, list[str]] = {}
    for name in nodes:
        if name in position:
            continue
        if (
            name in has_children
            or len(parents_of.get(name, ())) != 1
            or parents_of[name][0] not in position
        ):
            return None
        hanging.setdefault(parents_of[name][0], []).append(name)
    return spine, hanging


def _abbreviate(
    cells: Sequence[CanvasCell], kinds: Sequence[str], repetitions: int, ellipsis: CanvasCell
) -> list[CanvasCell]:
    """Reduce repeating parts to their first ``repetitions`` and their last occurrence."""
    shown: list[CanvasCell] = []
    index = 0
    while index < len(cells):
        period, times = _repetition(kinds, index)
        end = index + period * times
        if times > repetitions + 2:
            for start in (*range(index, index + period * repetitions, period), end - period):
                part = slice(start, start + period)
                shown += [ellipsis] if start == end - period else []
                shown += _abbreviate(cells[part], kinds[part], repetitions, ellipsis)
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


STAGE: Final = "stage"
"""The variable with the stage of a node."""

DEEPEST: Final = 4
"""Maximum nesting of sub-DAGs that are summarised."""

_Key = TypeVar("_Key", bound=Hashable)

_DIGITS: Final = re.compile(r"[0-9]+")


class RunGroup(Struct, frozen=True):
    """Runs of equal structure.

    ``names``: of the runs, in the order of the file. ``nodes`` and ``edges``: of the first run, by
    names within the run. ``sides``: nodes that evaluate. ``stages``: the stage of the other nodes,
    if they have one. ``inner``: content of the sub-DAG, if the run is one.
    """

    names: tuple[str, ...]
    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    sides: frozenset[str] = frozenset()
    stages: Mapping[str, str] = field(default_factory=dict)
    inner: Graph | None = None


class NodeGroup(Struct, frozen=True):
    """Nodes with similar names in the same position: ``shard000`` to ``shard099``."""

    names: tuple[str, ...]


class GraphSummary(Struct, frozen=True):
    """The summary of a graph.

    ``layers``: groups of runs and of nodes, by depth. ``unconnected``: nodes outside of the graph.
    ``cyclic``: nodes in a cycle, which DAGMan cannot start.
    """

    layers: tuple[tuple[RunGroup | NodeGroup, ...], ...]
    unconnected: tuple[GraphNode, ...] = ()
    cyclic: tuple[str, ...] = field(default=())


def summarize(graph: Graph, depth: int = 0) -> GraphSummary:
    """Summarise a graph.

    If runs depend on each other in a cycle, nodes are summarised without regard to runs.
    """
    nodes = [node for node in graph.nodes if node.kind not in APART]
    apart = tuple(node for node in graph.nodes if node.kind in APART)
    bundles = _bundles(graph, nodes, depth)
    bundle_by_run: dict[str, RunGroup] = {}
    for bundle in bundles:
        bundle_by_run.update(dict.fromkeys(bundle.names, bundle))
    runs = {node.name: run for node in nodes if (run := run_of(node)) is not None}
    bundle_index = (
        {name: bundles.index(bundle_by_run[run]) for name, run in runs.items()} if bundles else {}
    )
    return _layered(graph, nodes, bundles=bundles, bundle_index=bundle_index, apart=apart)


def run_of(node: GraphNode) -> str | None:
    """The run of a node; a sub-DAG is a run of its own."""
    return node.run or (node.name if node.kind is NodeKind.SUBDAG else None)


def name_pattern(name: str) -> str:
    """A name with its numbers replaced, the same for similar names."""
    return _DIGITS.sub("#", name)


def name_in_run(name: str, run: str) -> str:
    """The name of a node within its run."""
    return name.removeprefix(f"{run}-") or name


# --- runs of equal structure ----------------------------------------------------------------


def _bundles(graph: Graph, nodes: Sequence[GraphNode], depth: int) -> list[RunGroup]:
    nodes_by_run: dict[str, list[GraphNode]] = {}
    for node in nodes:
        run = run_of(node)
        if run is not None:
            nodes_by_run.setdefault(run, []).append(node)
    run_by_node = {node.name: run for run, members in nodes_by_run.items() for node in members}
    inner_edges: dict[str, list[tuple[str, str]]] = {run: [] for run in nodes_by_run}
    outer_edges: dict[str, list[tuple[str, str]]] = {run: [] for run in nodes_by_run}
    for parent, child in graph.edges:
        parent_run, child_run = run_by_node.get(parent), run_by_node.get(child)
        if parent_run is not None and parent_run == child_run:
            inner_edges[parent_run].append(
                (name_in_run(parent, parent_run), name_in_run(child, parent_run))
            )
            continue
        if parent_run is not None:
            outer_edges[parent_run].append((name_in_run(parent, parent_run), f"> {child}"))
        if child_run is not None:
            outer_edges[child_run].append((f"< {parent}", name_in_run(child, child_run)))
    runs_by_form: dict[object, list[str]] = {}
    for run, members in nodes_by_run.items():
        names = tuple(_node_form(node, run) for node in members)
        form = (
            names,
            tuple(inner_edges[run]),
            tuple(outer_edges[run]),
            _inner_form(graph, members, depth),
        )
        runs_by_form.setdefault(form, []).append(run)
    bundles = []
    for runs in runs_by_form.values():
        first = runs[0]
        bundles.append(
            RunGroup(
                names=tuple(runs),
                nodes=tuple(name_in_run(node.name, first) for node in nodes_by_run[first]),
                edges=tuple(inner_edges[first]),
                sides=frozenset(
                    name_in_run(node.name, first)
                    for node in nodes_by_run[first]
                    if node.role is NodeRole.EVALUATE
                ),
                stages={
                    name_in_run(node.name, first): stage
                    for node in nodes_by_run[first]
                    if (stage := _stage(node)) is not None
                },
                inner=_inner_graph(graph, nodes_by_run[first], depth),
            )
        )
    return bundles


def _node_form(node: GraphNode, run: str) -> tuple[str, bool, str | None]:
    name = "" if node.name == run else name_in_run(node.name, run)
    return name, node.role is NodeRole.EVALUATE, _stage(node)


def _stage(node: GraphNode) -> str | None:
    """The stage of a training node, by its variables."""
    if node.role is not NodeRole.TRAIN:
        return None
    return next((variable.value for variable in node.variables if variable.name == STAGE), None)


def _inner_graph(graph: Graph, members: Sequence[GraphNode], depth: int) -> Graph | None:
    if len(members) == 1 and members[0].kind is NodeKind.SUBDAG and depth < DEEPEST:
        return graph.subdags.get(members[0].submit)
    return None


def _inner_form(graph: Graph, members: Sequence[GraphNode], depth: int) -> object:
    inner = _inner_graph(graph, members, depth)
    if inner is None:
        return None
    names = tuple(name_in_run(node.name, node.run or "") for node in inner.nodes)
    index = {node.name: number for number, node in enumerate(inner.nodes)}
    return names, tuple((index.get(parent), index.get(child)) for parent, child in inner.edges)


# --- layers -----------------------------------------------------------------------------------


def _layered(
    graph: Graph,
    nodes: Sequence[GraphNode],
    bundles: Sequence[RunGroup],
    bundle_index: Mapping[str, int],
    apart: tuple[GraphNode, ...],
) -> GraphSummary:
    keys: dict[int | str, None] = {}
    key_of: dict[str, int | str] = {}
    for node in nodes:
        key = bundle_index.get(node.name, node.name)
        key_of[node.name] = key
        keys.setdefault(key)
    pairs = {
        (key_of[parent], key_of[child]): None
        for parent, child in graph.edges
        if parent in key_of and child in key_of and key_of[parent] != key_of[child]
    }
    depths, cyclic_count = depths_of(keys, pairs)
    if cyclic_count and bundles:
        return _layered(graph, nodes, bundles=(), bundle_index={}, apart=apart)
    layers: list[list[int | str]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for key, depth in depths.items():
        layers[depth].append(key)
    cyclic = tuple(str(key) for key in keys if key not in depths)
    return GraphSummary(tuple(_layer_units(layer, bundles) for layer in layers), apart, cyclic)


def _layer_units(
    layer: Iterable[int | str], bundles: Sequence[RunGroup]
) -> tuple[RunGroup | NodeGroup, ...]:
    units: list[RunGroup | NodeGroup] = []
    families: dict[str, list[str]] = {}
    for key in layer:
        if isinstance(key, int):
            units.append(bundles[key])
        else:
            families.setdefault(name_pattern(key), []).append(key)
    return (*units, *(NodeGroup(tuple(names)) for names in families.values()))


def depths_of(
    keys: Iterable[_Key], pairs: Iterable[tuple[_Key, _Key]]
) -> tuple[dict[_Key, int], int]:
    """The depth of each key (its longest path from a root), in the order of ``keys``.

    Also the number of keys in cycles, which have no depth.
    """
    order = list(keys)
    children: dict[_Key, list[_Key]] = {key: [] for key in order}
    waiting_for = dict.fromkeys(order, 0)
    for parent, child in pairs:
        children[parent].append(child)
        waiting_for[child] += 1
    depths = {key: 0 for key in order if not waiting_for[key]}
    ready = list(depths)
    for key in ready:
        for child in children[key]:
            depths[child] = max(depths.get(child, 0), depths[key] + 1)
            waiting_for[child] -= 1
            if not waiting_for[child]:
                ready.append(child)
    done = {key: depths[key] for key in order if not waiting_for[key]}
    return done, len(order) - len(done)
