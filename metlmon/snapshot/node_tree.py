"""The nodes of DAGs as a tree, sorted by urgency.

A DAG is not a tree. A node is placed after its immediate dominator: the last node that all paths
to it pass through. The join of a fork is thus placed beside the branches, not below one of them.
A sequence of nodes is a line: of the nodes placed after another one at most one continues its
line at the same depth; the others are branches. Splices and external sub-DAGs contain their nodes.

The position of a node depends on the DAG file only, and is computed once (:func:`tree_positions`);
order and grouping depend on the states (:class:`NodeTree`). Nothing here recurses: a chain may
have a hundred thousand nodes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from metlmon.dagman.graph import topological_order
from metlmon.dagman.records import Node, NodeKind
from metlmon.model.job_events import NodeKey
from metlmon.model.node import NodeState
from metlmon.model.states import DONE, URGENCY, State

# --- positions, by the DAG file ----------------------------------------------------------------

SPLICE: Final = "+"
"""Separates a splice's name from that of a node in it (``Splice+node``)."""


SCOPE: Final = "\n"
"""Suffix of splice names among node names; no token of a DAG file contains it."""


_NUMBERS: Final = re.compile(r"\d+")
"""The difference between ``shard017`` and ``shard018``."""


Line: TypeAlias = list[str]
"""Items in sequence: names of nodes, and of splices followed by :data:`SCOPE`."""


class TreePositions(Struct):
    """The positions of the nodes of one DAG.

    ``top``: its lines. ``branches``: by item, the lines that branch off after it.
    ``splice_lines``: by splice, the lines in it. ``order``: all items, each after the one that it
    is placed below or after. ``rank``: an item's position in the DAG file. ``pattern``: its name
    without numbers.
    """

    top: list[Line] = []
    branches: dict[str, list[Line]] = {}
    splice_lines: dict[str, list[Line]] = {}
    order: list[str] = []
    rank: dict[str, int] = {}
    pattern: dict[str, str] = {}


def tree_positions(nodes: Mapping[str, Node]) -> TreePositions:
    """Compute the positions of the nodes of one DAG, by name as DAGMan logs it."""
    positions = TreePositions()
    members, parents = _splice_members(nodes, positions.rank)
    for scope, items in members.items():
        lines = positions.top if not scope else positions.splice_lines.setdefault(scope, [])
        _build_lines(items, parents, positions, lines)
    _set_order(positions)
    positions.pattern = {item: _NUMBERS.sub("#", item) for item in positions.order}
    return positions


def _splice_members(
    nodes: Mapping[str, Node], rank: dict[str, int]
) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """The items of each splice (of the DAG itself: ""), and the parents of each item."""
    members: dict[str, list[str]] = {"": []}
    paths: dict[str, tuple[str, ...]] = {}
    for position, name in enumerate(nodes):
        path = paths[name] = _path(name)
        for depth, item in enumerate(path):
            if item not in rank:
                rank[item] = position
                members.setdefault(path[depth - 1] if depth else "", []).append(item)
    parents: dict[str, set[str]] = {}
    for name, node in nodes.items():
        own_path = paths[name]
        for parent in node.parents:
            parent_path = paths.get(parent)
            if parent_path is None or parent == name:
                continue
            common = 0
            while own_path[common] == parent_path[common]:
                common += 1
            parents.setdefault(own_path[common], set()).add(parent_path[common])
    return members, parents


def _path(name: str) -> tuple[str, ...]:
    """The splices that contain a node, outermost first, and the node."""
    if SPLICE not in name:
        return (name,)
    parts = name.split(SPLICE)
    splices = (SPLICE.join(parts[:depth]) + SCOPE for depth in range(1, len(parts)))
    return (*splices, name)


def _build_lines(
    items: Sequence[str], parents: Mapping[str, set[str]], positions: TreePositions, top: list[Line]
) -> None:
    """Arrange the items of one splice in lines."""
    order = topological_order({item: parents.get(item, ()) for item in items})
    level: dict[str, int] = {}
    dominators = _dominators(order, parents, level)
    # Items of a cycle have no dominator: DAGMan rejects them.
    for item in items:
        level.setdefault(item, 0)
    followers: dict[str, list[str]] = {}
    for item in items:
        if dominators.get(item) is not None:
            followers.setdefault(dominators[item] or "", []).append(item)
    reach = dict(level)
    for item in reversed(order):
        dominator = dominators[item]
        if dominator is not None:
            reach[dominator] = max(reach[dominator], reach[item])
    continuations = {
        item: _continuation(item, next_items, level, reach, parents)
        for item, next_items in followers.items()
    }
    continued = {item for item in continuations.values() if item is not None}
    for item in items:
        if item in continued:
            continue
        line = [item]
        while (next_item := continuations.get(line[-1])) is not None:
            line.append(next_item)
        dominator = dominators.get(item)
        (top if dominator is None else positions.branches.setdefault(dominator, [])).append(line)
    for line in [*top, *(line for item in items for line in positions.branches.get(item, ()))]:
        _split_side_nodes(line, positions)


def _split_side_nodes(line: Line, positions: TreePositions) -> None:
    """Move the side node at the end of a chain to the branches.

    The side node of the last node has no sibling. It is recognised by its name, which resembles
    those of the earlier side nodes.
    """
    side_patterns = {
        _NUMBERS.sub("#", branch[0])
        for item in line[:-1]
        for branch in positions.branches.get(item, ())
    }
    if not side_patterns:
        return
    for index in range(1, len(line)):
        if _NUMBERS.sub("#", line[index]) in side_patterns:
            positions.branches.setdefault(line[index - 1], []).append(line[index:])
            del line[index:]
            return


def _dominators(
    order: Sequence[str], parents: Mapping[str, set[str]], level: dict[str, int]
) -> dict[str, str | None]:
    """The immediate dominator of each item, None for an item without one.

    ``level`` is filled with the length of the longest path. Every node also has a pointer further
    up (Myers' skew-binary jumps), so that a common ancestor is found in logarithmic time.
    """
    dominator: dict[str, str | None] = {}
    jump: dict[str, str | None] = {}
    depth: dict[str | None, int] = {None: -1}

    def common(a: str | None, b: str | None) -> str | None:
        if depth[a] < depth[b]:
            a, b = b, a
        while a is not None and depth[a] > depth[b]:
            further_up = jump[a]
            a = further_up if depth[further_up] >= depth[b] else dominator[a]
        while a is not None and b is not None and a != b:
            a, b = (dominator[a], dominator[b]) if jump[a] == jump[b] else (jump[a], jump[b])
        return a if a == b else None

    for item in order:
        own_parents = iter(parents.get(item, ()))
        first = next(own_parents, None)
        level[item] = 0 if first is None else level[first] + 1
        for parent in own_parents:
            first = common(first, parent)
            level[item] = max(level[item], level[parent] + 1)
        dominator[item] = first
        further_up = None if first is None else jump[first]
        furthest_up = None if further_up is None else jump[further_up]
        equal_jumps = (
            first is not None
            and depth[first] - depth[further_up] == depth[further_up] - depth[furthest_up]
        )
        jump[item] = furthest_up if equal_jumps else first
        depth[item] = depth[first] + 1
    return dominator


def _continuation(
    item: str,
    following: Sequence[str],
    level: Mapping[str, int],
    reach: Mapping[str, int],
    parents: Mapping[str, set[str]],
) -> str | None:
    """The item of ``following`` that continues the line of ``item``; None if none does.

    It is the only item; else one that joins the others; else the only one with followers, or one
    whose paths are much longer than those of the others.
    """
    if len(following) == 1:
        return following[0]
    last = max(following, key=level.__getitem__)
    other_reach = max(reach[other] for other in following if other != last)
    if level[last] > other_reach and len(parents[last]) > 1:
        return last
    furthest, second = sorted(following, key=lambda other: -reach[other])[:2]
    if reach[furthest] > level[furthest] and all(
        reach[other] == level[other] for other in following if other != furthest
    ):
        return furthest
    if reach[furthest] - level[item] >= 2 * (reach[second] - level[item]) + 2:
        return furthest
    return None


def _set_order(positions: TreePositions) -> None:
    pending = [item for line in reversed(positions.top) for item in reversed(line)]
    while pending:
        item = pending.pop()
        positions.order.append(item)
        for lines in (positions.branches.get(item, ()), positions.splice_lines.get(item, ())):
            pending += [branch_item for line in reversed(lines) for branch_item in reversed(line)]


MIN_GROUP: Final = 4
"""Minimum number of branches of the same shape and state that are shown as a group: three are
quicker to read than to unfold."""

MIN_LINE: Final = 3
"""Minimum number of nodes of a line that has a row of its own, which folds it."""

MAX_UNFOLDED_NODES: Final = 60
"""DAGs of at most this size together are shown unfolded if the height of the screen is unknown."""

# --- by state -----------------------------------------------------------------------------------


class DagNodes(Struct, frozen=True):
    """One DAG: its nodes, and their states at one moment.

    ``subdags``: by the name of a SUBDAG node, the key of the DAG that it runs. ``overruled``: names
    of completed nodes whose job failed, but whose POST script succeeded.
    """

    key: str
    file: str
    nodes: Mapping[str, Node]
    states: Mapping[str, NodeState]
    subdags: Mapping[str, str]
    overruled: frozenset[str] = frozenset()

    def state(self, name: str) -> State:
        """The state of a node; waiting if unknown."""
        state = self.states.get(name)
        return State.WAITING if state is None else state.state


class TreeRow(Struct, frozen=True):
    """One row of the tree.

    ``node``: the node of the row; None for a row that contains others, which has a ``title``
    instead (``kind``: dag, splice, line, alike). ``counts``: the number of contained nodes by
    state. ``depth``: level of indentation. ``open``: whether the rows below it are shown; None
    without such rows. ``first`` and ``last``: names of nodes in a line or group. ``worst``: for a
    row without a node, the most urgent node in it, unless all are done or waiting.
    """

    key: str
    depth: int
    kind: str
    title: str = ""
    node: NodeKey | None = None
    open: bool | None = None
    counts: tuple[tuple[State, int], ...] = ()
    first: str = ""
    last: str = ""
    worst: NodeKey | None = None

    @property
    def size(self) -> int:
        """Number of nodes in it, itself included."""
        return sum(count for _, count in self.counts)


Order: TypeAlias = Callable[["NodeTree", str, Line], tuple[object, ...]]

FoldState: TypeAlias = Mapping[str, bool]
"""Whether a row is open, by its key, if a user has changed that."""


class NodeTree:
    """The nodes of some DAGs at one moment, as a tree.

    ``known``: positions of the nodes of these DAGs, by their keys, as far as computed before.
    """

    def __init__(
        self, dags: Sequence[DagNodes], known: Mapping[str, TreePositions] | None = None
    ) -> None:
        self.dags = {dag.key: dag for dag in dags}
        known = known or {}
        self.positions = {dag.key: known.get(dag.key) or tree_positions(dag.nodes) for dag in dags}
        self._host = self._hosts()
        self.total = sum(
            node.kind is not NodeKind.JOIN for dag in dags for node in dag.nodes.values()
        )
        self._counts: dict[tuple[str, str], Counter[State]] = {}
        self._shape_numbers: dict[tuple[object, ...], int] = {}
        self._shape_of: dict[tuple[str, str], int] = {}
        for key in self._innermost_first():
            self._count_and_shape(key)

    def _hosts(self) -> dict[str, NodeKey]:
        """The node below which each sub-DAG is shown, the first that runs it, by sub-DAG."""
        hosts: dict[str, NodeKey] = {}
        for dag in self.dags.values():
            for name, inner in dag.subdags.items():
                if inner in self.dags and inner != dag.key:
                    hosts.setdefault(inner, (dag.key, name))
        # Break cycles: sub-DAGs that run each other would not be shown at all.
        for key in list(hosts):
            seen = {key}
            host = hosts.get(key)
            while host is not None and host[0] not in seen:
                seen.add(host[0])
                host = hosts.get(host[0])
            if host is not None:
                del hosts[key]
        return hosts

    def _innermost_first(self) -> list[str]:
        order, pending = [], self.top_dags()
        below: dict[str, list[str]] = {}
        for inner, (outer, _) in self._host.items():
            below.setdefault(outer, []).append(inner)
        while pending:
            key = pending.pop()
            order.append(key)
            pending += below.get(key, ())
        return order[::-1]

    def subdag_below(self, dag: str, item: str) -> str | None:
        """The DAG that is shown below an item."""
        subdag = self.dags[dag].subdags.get(item)
        return subdag if subdag is not None and self._host.get(subdag) == (dag, item) else None

    def lines_below(self, dag: str, item: str) -> list[tuple[str, Sequence[Line]]]:
        """The lines that branch off after an item, those in its splice, and those in its sub-DAG.

        Each with their DAG.
        """
        positions, subdag = self.positions[dag], self.subdag_below(dag, item)
        in_subdag = self.positions[subdag].top if subdag is not None else []
        return [
            (dag, positions.branches.get(item, ())),
            (dag, positions.splice_lines.get(item, ())),
            (subdag or dag, in_subdag),
        ]

    def _count_and_shape(self, dag: str) -> None:
        """Count the nodes in each item and assign a number to its shape, innermost first."""
        dag_nodes, positions = self.dags[dag], self.positions[dag]
        counts, shape = self._counts, self._shape_of
        for item in reversed(positions.order):
            node = dag_nodes.nodes.get(item)
            total: Counter[State] = Counter()
            if node is not None and node.kind is not NodeKind.JOIN:
                total[dag_nodes.state(item)] = 1
            shapes: list[object] = []
            for key, lines in self.lines_below(dag, item):
                shapes.append(tuple(sorted(self.shape(key, line) for line in lines)))
                for line in lines:
                    for line_item in line:
                        total += counts[key, line_item]
            kind = None if node is None else node.kind
            shape[dag, item] = self._shape_number((kind, positions.pattern[item], *shapes))
            counts[dag, item] = total

    def _shape_number(self, shape: tuple[object, ...]) -> int:
        return self._shape_numbers.setdefault(shape, len(self._shape_numbers))

    def shape(self, dag: str, line: Line) -> int:
        """The number of a line's shape: equal for lines with equal patterns and contents."""
        if len(line) == 1:
            return self._shape_of[dag, line[0]]
        return self._shape_number(("line", *(self._shape_of[dag, item] for item in line)))

    def counts(self, dag: str, line: Iterable[str]) -> Counter[State]:
        """The number of nodes in a line, nested ones included, by state."""
        total: Counter[State] = Counter()
        for item in line:
            total += self._counts[dag, item]
        return total

    # --- rows -----------------------------------------------------------------------------

    def rows(
        self,
        opened: FoldState | None = None,
        order: Order | None = None,
        backwards: bool = False,
        room: int | None = None,
    ) -> list[TreeRow]:
        """The visible rows, with the rows in ``opened`` folded or unfolded.

        ``order``: sort key of lines beside each other (None: :func:`urgency`). ``room``: the number
        of rows that fit; other rows are unfolded, from the first on, as long as all fit.
        """
        chosen = dict(opened or {})
        unfold_all = room is None and self.total <= MAX_UNFOLDED_NODES
        while True:
            drawn = _TreeRows(self, chosen, order or urgency, backwards, unfold_all)
            rows = list(_flatten(drawn.dags()))
            free = 0 if room is None else room - len(rows)
            before = len(chosen)
            for row in rows:
                if row.open is False and row.key not in chosen:
                    free -= row.size
                    if free < 0:
                        break
                    chosen[row.key] = True
            if len(chosen) == before:
                return rows

    def worst(self, dag: str, lines: Iterable[Line]) -> NodeKey | None:
        """The most urgent node in these lines; None if all nodes are done or waiting."""
        items = [(dag, item) for line in lines for item in line]
        states = {state for item in items for state in self._counts[item]}
        state = min(states, key=URGENCY.__getitem__, default=State.WAITING)
        if state in (*DONE, State.WAITING):
            return None
        while True:
            key, item = next(item for item in items if state in self._counts[item])
            is_node = item in self.dags[key].nodes and not self.is_join(key, item)
            if is_node and self.dags[key].state(item) is state:
                return key, item
            below = self.lines_below(key, item)
            items = [(inner, each) for inner, lines in below for line in lines for each in line]

    def top_dags(self) -> list[str]:
        """The keys of the DAGs that are below no node."""
        return [key for key in self.dags if key not in self._host]

    def uniform_state(self, dag: str, line: Line) -> str | None:
        """The common state of all nodes of a line; None for several states, or no node."""
        counts = self.counts(dag, line)
        if len(counts) != 1:
            return None
        overruled = self.dags[dag].overruled
        passed = bool(overruled) and any(item in overruled for item in line)
        return f"{next(iter(counts)).value}{'!' if passed else ''}"

    def is_join(self, dag: str, item: str) -> bool:
        """Whether an item is a join node, which has no row."""
        node = self.dags[dag].nodes.get(item)
        return node is not None and node.kind is NodeKind.JOIN

    def node_positions(self) -> dict[NodeKey, tuple[str | None, str | None]]:
        """The position of every node: the node that it is placed after, and its container."""
        after: dict[NodeKey, str | None] = {}
        below: dict[NodeKey, str | None] = {}
        for dag, positions in self.positions.items():
            host = self._host.get(dag)
            outer = None if host is None else host[1]
            pending: list[tuple[str | None, str | None, Line]] = [
                (None, outer, x) for x in positions.top
            ]
            while pending:
                predecessor, container, line = pending.pop()
                for item in line:
                    after[dag, item], below[dag, item] = predecessor, container
                    predecessor = predecessor if self.is_join(dag, item) else item
                    pending += [
                        (predecessor, container, branch)
                        for branch in positions.branches.get(item, ())
                    ]
                    splice = item.removesuffix(SCOPE)
                    pending += [
                        (None, splice, branch) for branch in positions.splice_lines.get(item, ())
                    ]
        return {
            (dag.key, name): (
                (after[dag.key, name] or "").removesuffix(SCOPE) or None,
                below[dag.key, name],
            )
            for dag in self.dags.values()
            for name, node in dag.nodes.items()
            if node.kind is not NodeKind.JOIN
        }

    # --- without the tree -----------------------------------------------------------------

    def flat_rows(self, wanted: Callable[[DagNodes, str], bool]) -> list[TreeRow]:
        """A row for every wanted node, the most urgent first."""
        keys = [
            (URGENCY[dag.state(name)], dag_position, rank, dag.key, name)
            for dag_position, dag in enumerate(self.dags.values())
            for rank, (name, node) in enumerate(dag.nodes.items())
            if node.kind is not NodeKind.JOIN and wanted(dag, name)
        ]
        return [
            TreeRow(
                key=SCOPE.join((key, name)),
                depth=0,
                kind="node",
                title=name,
                node=(key, name),
                open=None,
                counts=((self.dags[key].state(name), 1),),
            )
            for _, _, _, key, name in sorted(keys)
        ]


_NestedRows: TypeAlias = "Iterator[TreeRow | _NestedRows]"
"""Rows, and iterators that stand for the rows they yield."""


class _TreeRows:
    """The visible rows of a tree, with the fold state and the order of a view."""

    def __init__(
        self,
        tree: NodeTree,
        opened: FoldState,
        order: Order,
        backwards: bool,
        unfold_all: bool,
    ) -> None:
        self._tree = tree
        self._opened = opened
        self._order = order
        self._backwards = backwards
        self._unfold_all = unfold_all

    def dags(self) -> _NestedRows:
        """The rows of all DAGs; a single one has no row of its own."""
        tree, tops = self._tree, self._tree.top_dags()
        for dag in tops:
            top = tree.positions[dag].top
            if len(tops) == 1:
                yield self._lines(dag, top, 0)
                continue
            key = f"dag{SCOPE}{dag}"
            is_open = self._opened.get(key, self._unfold_all)
            yield TreeRow(
                key=key,
                depth=0,
                kind="dag",
                title=tree.dags[dag].file,
                open=is_open,
                counts=self._counts(dag, top),
                worst=tree.worst(dag, top),
            )
            if is_open:
                yield self._lines(dag, top, 1)

    def _counts(self, dag: str, lines: Iterable[Line]) -> tuple[tuple[State, int], ...]:
        counts = self._tree.counts(dag, [item for line in lines for item in line])
        return tuple(sorted(counts.items(), key=lambda entry: URGENCY[entry[0]]))

    def _lines(self, dag: str, lines: Sequence[Line], depth: int) -> _NestedRows:
        """The rows of lines beside each other: sorted, with equal ones grouped."""
        groups: dict[tuple[object, ...], list[Line]] = {}
        first_of: dict[int, str] = {}
        for line in lines:
            shape, state = self._tree.shape(dag, line), self._tree.uniform_state(dag, line)
            first = first_of.setdefault(shape, line[0])
            group = ("alike", dag, first, state) if state is not None else (line[0],)
            groups.setdefault(group, []).append(line)
        parts: list[tuple[tuple[object, ...], str, list[Line]]] = []
        for names, group_lines in groups.items():
            if len(group_lines) >= MIN_GROUP:
                key = SCOPE.join(map(str, names))
                parts.append((self._order(self._tree, dag, group_lines[0]), key, group_lines))
            else:
                parts += [(self._order(self._tree, dag, line), "", [line]) for line in group_lines]
        parts.sort(key=lambda part: part[0], reverse=self._backwards)
        for _, key, group_lines in parts:
            if key:
                yield self._group(dag, key, group_lines, depth)
            else:
                open_by_default = None if len(lines) == 1 else self._unfold_all
                yield self._line(dag, group_lines[0], depth, open_by_default)

    def _group(self, dag: str, key: str, lines: list[Line], depth: int) -> _NestedRows:
        is_open = self._opened.get(key, False)
        yield TreeRow(
            key=key,
            depth=depth,
            kind="alike",
            title=str(len(lines)),
            open=is_open,
            counts=self._counts(dag, lines),
            first=lines[0][0].removesuffix(SCOPE),
            last=lines[-1][0].removesuffix(SCOPE),
            worst=self._tree.worst(dag, lines),
        )
        if is_open:
            for line in lines:
                yield self._line(dag, line, depth + 1, open_by_default=False)

    def _line(self, dag: str, line: Line, depth: int, open_by_default: bool | None) -> _NestedRows:
        """The rows of a line. ``open_by_default`` None: it has no row of its own."""
        nodes = [item for item in line if not self._tree.is_join(dag, item)]
        if open_by_default is not None and len(nodes) >= MIN_LINE:
            key = SCOPE.join(("line", dag, line[0]))
            is_open = self._opened.get(key, open_by_default)
            yield TreeRow(
                key=key,
                depth=depth,
                kind="line",
                title=str(len(nodes)),
                open=is_open,
                counts=self._counts(dag, [line]),
                first=nodes[0].removesuffix(SCOPE),
                last=nodes[-1].removesuffix(SCOPE),
                worst=self._tree.worst(dag, [line]),
            )
            if not is_open:
                return
            depth += 1
        for item in line:
            yield self._item(dag, item, depth)

    def _item(self, dag: str, item: str, depth: int) -> _NestedRows:
        """The rows of a node or a splice, and of its contents."""
        branches, *contents = self._tree.lines_below(dag, item)
        below = [(key, lines) for key, lines in (*contents, branches) if lines]
        is_container = any(lines for _, lines in contents)
        if not self._tree.is_join(dag, item):
            key = SCOPE.join((dag, item))
            is_open = self._opened.get(key, self._unfold_all or not is_container)
            is_node = item in self._tree.dags[dag].nodes
            yield TreeRow(
                key=key,
                depth=depth,
                kind="node" if is_node else "splice",
                title=item.removesuffix(SCOPE),
                node=(dag, item) if is_node else None,
                open=is_open if below else None,
                counts=self._counts(dag, [[item]]),
                worst=None if is_node else self._tree.worst(dag, [[item]]),
            )
            if not is_open:
                return
        for key, lines in below:
            yield self._lines(key, lines, depth + 1)


def _flatten(rows: _NestedRows) -> Iterator[TreeRow]:
    stack = [rows]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
        elif isinstance(entry, TreeRow):
            yield entry
        else:
            stack.append(entry)


def urgency(tree: NodeTree, dag: str, line: Line) -> tuple[object, ...]:
    """Sort key: the most urgent first, then in order of the DAG file."""
    counts = tree.counts(dag, line)
    worst = min((URGENCY[state] for state in counts), default=len(URGENCY))
    return worst, tree.positions[dag].rank[line[0]]


def file_order(tree: NodeTree, dag: str, line: Line) -> tuple[object, ...]:
    """Sort key: in order of the DAG file."""
    return (tree.positions[dag].rank[line[0]],)


def fold_state(tree: NodeTree, is_open: bool) -> dict[str, bool]:
    """A fold state with all rows open, or all closed."""
    opened: dict[str, bool] = {}
    previous_size = -1
    while len(opened) != previous_size:
        previous_size = len(opened)
        for row in tree.rows(opened):
            if row.open is not None:
                opened[row.key] = is_open
        if not is_open:
            break
    return opened
