"""A graph in characters: chains as rows of arrows, what is alike told once.

::

    run0 … run9  10 runs like this
      train_epoch0 ─▶ train_epoch1 ─▶ … ─▶ train_epoch29
      └ eval_epoch1   └ eval_epoch2        └ eval_epoch30
      ▼
    gather

It has a bounded number of lines and takes a time linear in the graph, so that a form can draw it
anew at each key.
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
"""Cells: with fewer, no name can be told from another."""

MOST_BLOCKS: Final = 12
"""Blocks, or rows of one, that are drawn: enough for what differs in a planned ensemble."""

MOST_HANGING: Final = 3
"""Lines beneath one node."""

LONGEST_PERIOD: Final = 32
"""Nodes after which a chain may begin to repeat: an evaluation after each tenth epoch."""

LONGEST_NAME: Final = 200

APART: Final = {
    NodeKind.PROVISIONER: "PROVISIONER, before all others",
    NodeKind.SERVICE: "SERVICE, beside all others",
    NodeKind.FINAL: "FINAL, when all others have ended",
}


@frozen
class LineCharacters:
    """The characters that are not letters."""

    arrow: str
    line: str
    rest: str
    hangs: str
    down: str


UNICODE: Final = LineCharacters("▶", "─", "…", "└ ", "▼")
ASCII: Final = LineCharacters(">", "-", "...", "+ ", "v")


@frozen
class CanvasCell:
    """A node in a row, and what hangs beneath it."""

    text: str
    hanging: tuple[str, ...] = ()


def picture(graph: Graph, cells: int, ascii: bool) -> list[str]:
    """The lines, none wider than ``cells`` (and than NARROWEST); "(no nodes)" of an empty graph.
    ``ascii``: characters below 0x80 only."""
    pen = _Canvas(max(cells, NARROWEST), ascii)
    return [line.rstrip() for line in pen.whole(graph)] or ["(no nodes)"]


class _Canvas:
    def __init__(self, cells: int, ascii: bool, depth: int = 0) -> None:
        self.cells = cells
        self.ascii = ascii
        self.depth = depth
        self.signs = ASCII if ascii else UNICODE

    def whole(self, graph: Graph) -> Iterator[str]:
        found = outline(graph, self.depth)
        first = [node for node in found.apart if node.kind is not NodeKind.FINAL]
        last = [node for node in found.apart if node.kind is NodeKind.FINAL]
        yield from self._apart(first)
        if any(isinstance(unit, Bundle) for layer in found.layers for unit in layer):
            yield from self._blocks(found)
        else:
            yield from self._families(found)
        if found.cyclic:
            yield self._cut(f"{self._span(found.cyclic)}: these wait for each other")
        yield from self._apart(last)

    def _apart(self, nodes: Sequence[GraphNode]) -> Iterator[str]:
        for node in nodes[:MOST_BLOCKS]:
            yield self._cut(f"{self._name(node.name)}  {APART[node.kind]}")
        if len(nodes) > MOST_BLOCKS:
            yield self._cut(f"{self.signs.rest} {len(nodes) - MOST_BLOCKS} more of these")

    # --- blocks, one beneath the other ------------------------------------------------------

    def _blocks(self, found: Outline) -> Iterator[str]:
        layers = found.layers
        only = layers[0][0] if len(layers) == len(layers[0]) == 1 else None
        if self.depth and isinstance(only, Bundle) and len(only.names) == 1:
            # Of a sub-DAG with one run the run's name is told already.
            yield from self._run(only)
            return
        drawn = 0
        for number, layer in enumerate(layers):
            if number:
                yield f"  {self.signs.down}"
            for unit in layer:
                drawn += 1
                if drawn > MOST_BLOCKS:
                    more = sum(map(len, layers[number:])) - layer.index(unit)
                    yield self._cut(f"{self.signs.rest} {more} more groups of nodes")
                    return
                if isinstance(unit, Family):
                    yield self._cut(self._span(unit.names))
                else:
                    yield from self._bundle(unit)

    def _bundle(self, bundle: Bundle) -> Iterator[str]:
        yield self._cut(self._title(bundle))
        pen = _Canvas(self.cells - 2, self.ascii, self.depth + 1)
        if bundle.inner is not None and self.depth < DEEPEST:
            lines = pen.whole(bundle.inner)
        else:
            lines = pen._run(bundle)
        yield from (f"  {line}" for line in lines)

    def _title(self, bundle: Bundle) -> str:
        span = self._ends(bundle.names)
        how_many = len(bundle.names)
        said = ", a sub-DAG" if bundle.inner is not None else ""
        if how_many == 1:
            return f"{span}{said}"
        each = ", each a sub-DAG" if said else ""
        return f"{span}  {count(how_many, 'run', ascii=self.ascii)} like this{each}"

    # --- one run ------------------------------------------------------------------------------

    def _run(self, bundle: Bundle) -> Iterator[str]:
        """A chain with what hangs from it; any other graph by its layers."""
        chain = _chain(bundle)
        if chain is None:
            graph = Graph(tuple(GraphNode(name, "") for name in bundle.nodes), edges=bundle.edges)
            yield from self._families(outline(graph))
            return
        spine, hanging = chain
        cells, kinds, before = [], [], ""
        for name in spine:
            stage = bundle.stages.get(name, before)
            first = f"{self._name(stage)}: " if stage != before else ""
            cell = CanvasCell(first + self._name(name), self._beneath(hanging.get(name, ())))
            cells.append(cell)
            kinds.append(family("/".join((stage, name, *cell.hanging))))
            before = stage
        yield from self._row(cells, kinds)

    def _beneath(self, names: Sequence[str]) -> tuple[str, ...]:
        """What hangs from one node, alike names folded."""
        alike: dict[str, list[str]] = {}
        for name in names:
            alike.setdefault(family(name), []).append(name)
        lines = [self._span(each) for each in alike.values()]
        if len(lines) > MOST_HANGING:
            lines[MOST_HANGING - 1 :] = [f"{self.signs.rest} {len(lines) - MOST_HANGING + 1} more"]
        return tuple(self.signs.hangs + line for line in lines)

    # --- rows of arrows -------------------------------------------------------------------------

    def _families(self, found: Outline) -> Iterator[str]:
        """``A ─▶ B0 … B2 (3) ─▶ C``: a layer in one cell."""
        texts, kinds = [], []
        for layer in found.layers:
            spans = [self._span(unit.names) for unit in layer if isinstance(unit, Family)]
            if len(spans) > MOST_HANGING:
                nodes = sum(len(unit.names) for unit in layer if isinstance(unit, Family))
                spans = [f"{spans[0]} + {count(nodes - 1, 'other', ascii=self.ascii)}"]
            texts.append(" + ".join(spans))
            kinds.append(" + ".join(family(span) for span in spans))
        yield from self._row([CanvasCell(text) for text in texts], kinds)

    def _row(self, cells: Sequence[CanvasCell], kinds: Sequence[str]) -> Iterator[str]:
        """The cells with arrows between; what repeats is left out as far as the line needs it."""
        if not cells:
            return
        rest = CanvasCell(self.signs.rest)
        for keep in (None, 2, 1):
            shown = list(cells) if keep is None else _shortened(cells, kinds, keep, rest)
            last = max(map(len, (shown[-1].text, *shown[-1].hanging)))
            if sum(map(self._wide, shown[:-1])) + last <= self.cells:
                yield from self._lines(shown)
                return
        yield from self._wrapped(_shortened(cells, kinds, 1, rest))

    def _wide(self, cell: CanvasCell) -> int:
        """Cells up to where the next one begins: an arrow may stand above what hangs."""
        beneath = max((len(each) for each in cell.hanging), default=0)
        return max(len(cell.text) + 4, beneath + 1)

    def _lines(self, cells: Sequence[CanvasCell]) -> Iterator[str]:
        above = ""
        deep = max((len(cell.hanging) for cell in cells), default=0)
        below = [""] * deep
        for number, cell in enumerate(cells):
            start = len(above)
            for line in range(min(deep, len(cell.hanging))):
                below[line] = below[line].ljust(start) + cell.hanging[line]
            above += cell.text
            if number < len(cells) - 1:
                long = self._wide(cell) - len(cell.text) - 3
                above += f" {self.signs.line * long}{self.signs.arrow} "
        yield above
        yield from below

    def _wrapped(self, cells: Sequence[CanvasCell]) -> Iterator[str]:
        """Rows that are too long, broken behind an arrow."""
        room = self.cells - 4
        cells = [
            CanvasCell(
                plain(each.text, room, self.ascii), tuple(self._short(h) for h in each.hanging)
            )
            for each in cells
        ]
        rows: list[list[CanvasCell]] = [[]]
        used = 0
        for cell in cells:
            wide = self._wide(cell)
            if rows[-1] and used + wide > self.cells:
                rows.append([])
                used = 3
            rows[-1].append(cell)
            used += wide
        if len(rows) > MOST_BLOCKS:
            skipped = sum(map(len, rows[MOST_BLOCKS - 2 : -1]))
            rows[MOST_BLOCKS - 2 : -1] = [[CanvasCell(f"{self.signs.rest} {skipped} more")]]
        for number, row in enumerate(rows):
            first = f"{self.signs.line}{self.signs.arrow} " if number else ""
            for line, text in enumerate(self._lines(row)):
                yield (first if not line else " " * len(first)) + text

    # --- names ----------------------------------------------------------------------------------

    def _span(self, names: Sequence[str]) -> str:
        """``shard000 … shard099 (100)``; one or two names as they are."""
        if len(names) == 1:
            return self._name(names[0])
        if len(names) == 2:
            return ", ".join(map(self._name, names))
        return f"{self._ends(names)} ({len(names)})"

    def _ends(self, names: Sequence[str]) -> str:
        first, last = self._name(names[0]), self._name(names[-1])
        if len(names) < 3:
            return first if len(names) == 1 else f"{first}, {last}"
        return f"{first} {self.signs.rest} {last}"

    def _name(self, name: str) -> str:
        return plain(name, LONGEST_NAME, self.ascii)

    def _short(self, text: str) -> str:
        room = self.cells - 4 - len(self.signs.hangs)
        bare = text.removeprefix(self.signs.hangs)
        return self.signs.hangs + plain(bare, room, self.ascii)

    def _cut(self, line: str) -> str:
        if len(line) <= self.cells:
            return line
        return line[: self.cells - len(self.signs.rest)] + self.signs.rest


def _chain(bundle: Bundle) -> tuple[list[str], dict[str, list[str]]] | None:
    """The longest chain of a run, and what hangs from its nodes without leading on; None when
    there is more to it than that. An edge that only shortens the way along the chain is none."""
    nodes, pairs = bundle.nodes, bundle.edges
    depths, left = depths_of(nodes, pairs)
    if left or not nodes:
        return None
    before: dict[str, list[str]] = {}
    leads_on = set()
    for one, other in pairs:
        before.setdefault(other, []).append(one)
        leads_on.add(one)
    # An evaluation hangs from the last epoch, too, unless the epochs before waited for theirs.
    awaited = {family(name) for name in leads_on & bundle.sides}
    may_end = [name for name in nodes if name not in bundle.sides or family(name) in awaited]
    spine = [max(may_end or nodes, key=lambda name: depths[name])]
    while parents := before.get(spine[-1]):
        spine.append(max(parents, key=lambda name: (depths[name], name in leads_on)))
    spine.reverse()
    place = {name: number for number, name in enumerate(spine)}
    hanging: dict[str, list[str]] = {}
    for name in nodes:
        if name in place:
            continue
        if name in leads_on or len(before.get(name, ())) != 1 or before[name][0] not in place:
            return None
        hanging.setdefault(before[name][0], []).append(name)
    return spine, hanging


def _shortened(
    cells: Sequence[CanvasCell], kinds: Sequence[str], keep: int, rest: CanvasCell
) -> list[CanvasCell]:
    """Repeating parts reduced to their first ``keep`` and their last repetition."""
    shown: list[CanvasCell] = []
    place = 0
    while place < len(cells):
        period, times = _repeats(kinds, place)
        end = place + period * times
        if times > keep + 2:
            for first in (*range(place, place + period * keep, period), end - period):
                part = slice(first, first + period)
                shown += [rest] if first == end - period else []
                shown += _shortened(cells[part], kinds[part], keep, rest)
        else:
            shown += cells[place:end]
        place = end
    return shown


def _repeats(kinds: Sequence[str], start: int) -> tuple[int, int]:
    """The shortest period with which the kinds repeat from here, and how often they do."""
    for period in range(1, LONGEST_PERIOD + 1):
        place = start + period
        while place < len(kinds) and kinds[place] == kinds[place - period]:
            place += 1
        times = (place - start) // period
        if times > 2:
            return period, times
    return 1, 1
