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

from collections.abc import Iterator, Sequence
from typing import Final

from metlmon.authoring.graph import Graph, GraphNode
from metlmon.authoring.graph_summary import (
    DEEPEST,
    Bundle,
    Family,
    Outline,
    depths_of,
    family,
    outline,
)
from metlmon.dagman import NodeKind
from metlmon.frozen import frozen
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

APART: Final = {
    NodeKind.PROVISIONER: "PROVISIONER, before all others",
    NodeKind.SERVICE: "SERVICE, beside all others",
    NodeKind.FINAL: "FINAL, when all others have ended",
}


ARROW: Final = "▶"
LINE: Final = "─"
REST: Final = "…"
HANGS: Final = "└ "
DOWN: Final = "▼"


@frozen
class CanvasCell:
    """A node in a row, and the lines beneath it."""

    text: str
    hanging: tuple[str, ...] = ()


def picture(graph: Graph, width: int) -> list[str]:
    """Draw the graph as lines of at most ``width`` cells (at least NARROWEST).

    "(no nodes)" for an empty graph.
    """
    canvas = _Canvas(max(width, NARROWEST))
    return [line.rstrip() for line in canvas.lines(graph)] or ["(no nodes)"]


class _Canvas:
    """Draws graphs at a given width; sub-DAGs on a nested canvas."""

    def __init__(self, width: int, depth: int = 0) -> None:
        self.width = width
        self.depth = depth

    def lines(self, graph: Graph) -> Iterator[str]:
        summary = outline(graph, self.depth)
        first = [node for node in summary.apart if node.kind is not NodeKind.FINAL]
        last = [node for node in summary.apart if node.kind is NodeKind.FINAL]
        yield from self._unconnected(first)
        if any(isinstance(unit, Bundle) for layer in summary.layers for unit in layer):
            yield from self._blocks(summary)
        else:
            yield from self._families(summary)
        if summary.cyclic:
            yield self._truncate(f"{self._names_text(summary.cyclic)}: these wait for each other")
        yield from self._unconnected(last)

    def _unconnected(self, nodes: Sequence[GraphNode]) -> Iterator[str]:
        for node in nodes[:MOST_BLOCKS]:
            yield self._truncate(f"{self._name(node.name)}  {APART[node.kind]}")
        if len(nodes) > MOST_BLOCKS:
            yield self._truncate(f"{REST} {len(nodes) - MOST_BLOCKS} more of these")

    # --- blocks, one beneath the other ------------------------------------------------------

    def _blocks(self, summary: Outline) -> Iterator[str]:
        layers = summary.layers
        single = layers[0][0] if len(layers) == len(layers[0]) == 1 else None
        if self.depth and isinstance(single, Bundle) and len(single.names) == 1:
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
                if isinstance(unit, Family):
                    yield self._truncate(self._names_text(unit.names))
                else:
                    yield from self._bundle(unit)

    def _bundle(self, bundle: Bundle) -> Iterator[str]:
        yield self._truncate(self._title(bundle))
        canvas = _Canvas(self.width - 2, self.depth + 1)
        if bundle.inner is not None and self.depth < DEEPEST:
            lines = canvas.lines(bundle.inner)
        else:
            lines = canvas._run(bundle)
        yield from (f"  {line}" for line in lines)

    def _title(self, bundle: Bundle) -> str:
        span = self._first_and_last(bundle.names)
        number = len(bundle.names)
        suffix = ", a sub-DAG" if bundle.inner is not None else ""
        if number == 1:
            return f"{span}{suffix}"
        each_suffix = ", each a sub-DAG" if suffix else ""
        return f"{span}  {count(number, 'run')} like this{each_suffix}"

    # --- one run ------------------------------------------------------------------------------

    def _run(self, bundle: Bundle) -> Iterator[str]:
        """A chain with the nodes beneath it; any other graph by layers."""
        chain = _chain(bundle)
        if chain is None:
            graph = Graph(tuple(GraphNode(name, "") for name in bundle.nodes), edges=bundle.edges)
            yield from self._families(outline(graph))
            return
        spine, hanging = chain
        cells, kinds, last_stage = [], [], ""
        for name in spine:
            stage = bundle.stages.get(name, last_stage)
            first = f"{self._name(stage)}: " if stage != last_stage else ""
            cell = CanvasCell(first + self._name(name), self._hanging_labels(hanging.get(name, ())))
            cells.append(cell)
            kinds.append(family("/".join((stage, name, *cell.hanging))))
            last_stage = stage
        yield from self._row(cells, kinds)

    def _hanging_labels(self, names: Sequence[str]) -> tuple[str, ...]:
        """The lines beneath a node, similar names combined."""
        families: dict[str, list[str]] = {}
        for name in names:
            families.setdefault(family(name), []).append(name)
        lines = [self._names_text(members) for members in families.values()]
        if len(lines) > MOST_HANGING:
            lines[MOST_HANGING - 1 :] = [f"{REST} {len(lines) - MOST_HANGING + 1} more"]
        return tuple(HANGS + line for line in lines)

    # --- rows of arrows -------------------------------------------------------------------------

    def _families(self, summary: Outline) -> Iterator[str]:
        """``A ─▶ B0 … B2 (3) ─▶ C``: one cell per layer."""
        texts, kinds = [], []
        for layer in summary.layers:
            spans = [self._names_text(unit.names) for unit in layer if isinstance(unit, Family)]
            if len(spans) > MOST_HANGING:
                nodes = sum(len(unit.names) for unit in layer if isinstance(unit, Family))
                spans = [f"{spans[0]} + {count(nodes - 1, 'other')}"]
            texts.append(" + ".join(spans))
            kinds.append(" + ".join(family(span) for span in spans))
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


def _chain(bundle: Bundle) -> tuple[list[str], dict[str, list[str]]] | None:
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
    awaited = {family(name) for name in has_children & bundle.sides}
    ends = [name for name in nodes if name not in bundle.sides or family(name) in awaited]
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
