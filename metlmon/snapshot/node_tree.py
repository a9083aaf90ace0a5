"""The nodes of DAGs as a tree: what comes after what, and what needs a person first.

A DAG is no tree. A node stands after the last node that all its ways come through (its immediate
dominator): of a fork and its join the join stands beside the branches, not below one of them.
Where it went on is a line: of the nodes that stand after another one at most one goes on at the
same depth, the others are branches. Splices and external sub-DAGs hold their nodes.

Where a node stands depends on the DAG file alone, and is found once (:func:`places`); in what
order, and what is folded together, depends on the states (:class:`NodeTree`). Nothing here
recurses: a chain may have a hundred thousand nodes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from metlmon.dagman import Node, NodeKind
from metlmon.frozen import frozen
from metlmon.model.job_events import NodeKey
from metlmon.model.node import NodeState
from metlmon.model.states import State

SPLICE: Final = "+"
"""Between a splice's name and that of a node in it (``Splice+node``)."""

SCOPE: Final = "\n"
"""Ends the name of a splice where it stands among nodes': no token of a DAG file has one."""

ALIKE: Final = 4
"""Branches of the same shape and state that are told as one, from so many on: three are sooner
read than unfolded."""

LINE: Final = 3
"""Nodes of a line that has a row of its own, by which it is folded."""

OPEN_NODES: Final = 60
"""A DAG of no more nodes is shown unfolded: two screens."""

URGENCY: Final[Mapping[State, int]] = {
    state: rank
    for rank, state in enumerate(
        (
            State.HELD,
            State.FAILED,
            State.REMOVED,
            State.DISCONNECTED,
            State.SUSPENDED,
            State.RETRYING,
            State.RUNNING,
            State.TRANSFERRING_OUTPUT,
            State.POST,
            State.STARTING,
            State.TRANSFERRING_INPUT,
            State.PRE,
            State.IDLE,
            State.UNKNOWN,
            State.FUTILE,
            State.WAITING,
            State.SKIPPED,
            State.COMPLETED,
        )
    )
}
"""What needs a person first, then what is at work, what is in the queue, what waits, what is
done."""

_NUMBERS: Final = re.compile(r"\d+")
"""What tells ``shard017`` from ``shard018``."""

Line: TypeAlias = list[str]
"""Items one after the other: names of nodes, and of splices with :data:`SCOPE` behind."""


class TreePositions:
    """Where the nodes of one DAG stand. ``top``: its lines. ``branches``: by item, the lines that
    begin after it beside its own. ``within``: by splice, the lines in it. ``order``: every item
    once, none before what it stands below or after; ``rank``: an item's place in the DAG file;
    ``like``: its name without what tells it from its likes."""

    __slots__ = ("branches", "like", "order", "rank", "top", "within")

    def __init__(self) -> None:
        self.top: list[Line] = []
        self.branches: dict[str, list[Line]] = {}
        self.within: dict[str, list[Line]] = {}
        self.order: list[str] = []
        self.rank: dict[str, int] = {}
        self.like: dict[str, str] = {}


def places(nodes: Mapping[str, Node]) -> TreePositions:
    """Where the nodes of one DAG stand; names of ``nodes`` are as DAGMan logs them."""
    made = TreePositions()
    members, parents = _scopes(nodes, made.rank)
    for scope, items in members.items():
        lines = made.top if not scope else made.within.setdefault(scope, [])
        _lay(items, parents, made, lines)
    _put_in_order(made)
    made.like = {item: _NUMBERS.sub("#", item) for item in made.order}
    return made


def _scopes(
    nodes: Mapping[str, Node], rank: dict[str, int]
) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """The items of each splice (of the DAG itself: ""), and which items of the same splice each
    one comes after."""
    members: dict[str, list[str]] = {"": []}
    path_of: dict[str, tuple[str, ...]] = {}
    for at, name in enumerate(nodes):
        path = path_of[name] = _path(name)
        for depth, item in enumerate(path):
            if item not in rank:
                rank[item] = at
                members.setdefault(path[depth - 1] if depth else "", []).append(item)
    after: dict[str, set[str]] = {}
    for name, node in nodes.items():
        mine = path_of[name]
        for parent in node.parents:
            theirs = path_of.get(parent)
            if theirs is None or parent == name:
                continue
            common = 0
            while mine[common] == theirs[common]:
                common += 1
            after.setdefault(mine[common], set()).add(theirs[common])
    return members, after


def _path(name: str) -> tuple[str, ...]:
    """The splices around a node, outermost first, and the node."""
    if SPLICE not in name:
        return (name,)
    parts = name.split(SPLICE)
    around = (SPLICE.join(parts[:depth]) + SCOPE for depth in range(1, len(parts)))
    return (*around, name)


def _lay(
    items: Sequence[str], parents: Mapping[str, set[str]], made: TreePositions, top: list[Line]
) -> None:
    """Lay the items of one splice into lines."""
    order = _sorted(items, parents)
    level: dict[str, int] = {}
    after = _dominators(order, parents, level)
    # Those of a cycle come after nothing: DAGMan refuses them.
    for item in items:
        level.setdefault(item, 0)
    following: dict[str, list[str]] = {}
    for item in items:
        if after.get(item) is not None:
            following.setdefault(after[item] or "", []).append(item)
    reach = dict(level)
    for item in reversed(order):
        before = after[item]
        if before is not None:
            reach[before] = max(reach[before], reach[item])
    goes_on = {
        item: _going_on(item, next_ones, level, reach, parents)
        for item, next_ones in following.items()
    }
    continued = {item for item in goes_on.values() if item is not None}
    for item in items:
        if item in continued:
            continue
        line = [item]
        while (more := goes_on.get(line[-1])) is not None:
            line.append(more)
        before = after.get(item)
        (top if before is None else made.branches.setdefault(before, [])).append(line)
    for line in [*top, *(line for item in items for line in made.branches.get(item, ()))]:
        _side_node_at_the_end(line, made)


def _side_node_at_the_end(line: Line, made: TreePositions) -> None:
    """The side node of a chain's last node has nobody beside it: it stands where those of the
    nodes before stand, by its name."""
    beside = {
        _NUMBERS.sub("#", branch[0]) for item in line[:-1] for branch in made.branches.get(item, ())
    }
    if not beside:
        return
    for at in range(1, len(line)):
        if _NUMBERS.sub("#", line[at]) in beside:
            made.branches.setdefault(line[at - 1], []).append(line[at:])
            del line[at:]
            return


def _sorted(items: Sequence[str], parents: Mapping[str, set[str]]) -> list[str]:
    """The items, parents before children; those of a cycle, and after it, are left out."""
    missing = {item: len(parents.get(item, ())) for item in items}
    children: dict[str, list[str]] = {}
    for item in items:
        for parent in parents.get(item, ()):
            children.setdefault(parent, []).append(item)
    order = [item for item in items if not missing[item]]
    for item in order:
        for child in children.get(item, ()):
            missing[child] -= 1
            if not missing[child]:
                order.append(child)
    return order


def _dominators(
    order: Sequence[str], parents: Mapping[str, set[str]], level: dict[str, int]
) -> dict[str, str | None]:
    """By item the last one that all ways to it come through, None where there is none; ``level``
    is filled with the length of the longest way.

    Every node also knows one further up (Myers' skew-binary jumps): the common ancestor of two
    is found in the logarithm of their depth.
    """
    up: dict[str, str | None] = {}
    jump: dict[str, str | None] = {}
    depth: dict[str | None, int] = {None: -1}

    def common(a: str | None, b: str | None) -> str | None:
        if depth[a] < depth[b]:
            a, b = b, a
        while a is not None and depth[a] > depth[b]:
            far = jump[a]
            a = far if depth[far] >= depth[b] else up[a]
        while a is not None and b is not None and a != b:
            a, b = (up[a], up[b]) if jump[a] == jump[b] else (jump[a], jump[b])
        return a if a == b else None

    for item in order:
        mine = iter(parents.get(item, ()))
        first = next(mine, None)
        level[item] = 0 if first is None else level[first] + 1
        for parent in mine:
            first = common(first, parent)
            level[item] = max(level[item], level[parent] + 1)
        up[item] = first
        far = None if first is None else jump[first]
        further = None if far is None else jump[far]
        even = first is not None and depth[first] - depth[far] == depth[far] - depth[further]
        jump[item] = further if even else first
        depth[item] = depth[first] + 1
    return up


def _going_on(
    item: str,
    following: Sequence[str],
    level: Mapping[str, int],
    reach: Mapping[str, int],
    parents: Mapping[str, set[str]],
) -> str | None:
    """Which of the items after ``item`` goes on with its line: the only one; else one that ends
    what the others began; else the only one that anything comes after, or one that goes much
    further than the others."""
    if len(following) == 1:
        return following[0]
    last = max(following, key=level.__getitem__)
    others = max(reach[each] for each in following if each != last)
    if level[last] > others and len(parents[last]) > 1:
        return last
    far, second = sorted(following, key=lambda each: -reach[each])[:2]
    if reach[far] > level[far] and all(reach[e] == level[e] for e in following if e != far):
        return far
    if reach[far] - level[item] >= 2 * (reach[second] - level[item]) + 2:
        return far
    return None


def _put_in_order(made: TreePositions) -> None:
    ahead = [item for line in reversed(made.top) for item in reversed(line)]
    while ahead:
        item = ahead.pop()
        made.order.append(item)
        for lines in (made.branches.get(item, ()), made.within.get(item, ())):
            ahead += [each for line in reversed(lines) for each in reversed(line)]


# --- by their states ----------------------------------------------------------------------------


@frozen
class DagNodes:
    """One DAG to be shown: its nodes, and their states at one moment. ``inside``: by the name of a
    SUBDAG node, the key of the DAG that it runs. ``overruled``: names of completed nodes whose job
    failed, and a POST script let it pass."""

    key: str
    file: str
    nodes: Mapping[str, Node]
    states: Mapping[str, NodeState]
    inside: Mapping[str, str]
    overruled: frozenset[str] = frozenset()

    def state(self, name: str) -> State:
        """What a node is at; waiting where nothing is known of it."""
        known = self.states.get(name)
        return State.WAITING if known is None else known.state


@frozen
class TreeRow:
    """One row of the tree. ``node``: the node that it is; None for a row that holds others:
    ``title`` then tells which (``kind``: dag, splice, line, alike), ``counts`` how many of them
    are at what. ``depth``: how far in it stands. ``open``: are the rows below it shown; None: there
    are none. ``first`` and ``last``: of a line or of what is alike, names of nodes in it."""

    key: str
    depth: int
    kind: str
    title: str = ""
    node: NodeKey | None = None
    open: bool | None = None
    counts: tuple[tuple[State, int], ...] = ()
    first: str = ""
    last: str = ""

    @property
    def size(self) -> int:
        """Nodes that it holds, itself included."""
        return sum(count for _, count in self.counts)


Order: TypeAlias = Callable[["NodeTree", str, Line], tuple[object, ...]]

_Part: TypeAlias = TreeRow | tuple[str, list[Line], int, bool]
"""A row, or what is still to be laid out: lines of a DAG beside each other, how far in, and
whether they are those of a row that tells of them as alike."""

Opened: TypeAlias = Mapping[str, bool]
"""What somebody folded or unfolded, by the key of its row."""


class NodeTree:
    """The nodes of some DAGs, as they stand at one moment.

    ``known``: where the nodes of these DAGs stand, by their keys, as far as it was found before.
    """

    def __init__(
        self, dags: Sequence[DagNodes], known: Mapping[str, TreePositions] | None = None
    ) -> None:
        self.dags = {dag.key: dag for dag in dags}
        known = known or {}
        self.places = {dag.key: known.get(dag.key) or places(dag.nodes) for dag in dags}
        self._host = self._hosts()
        self.total = sum(
            node.kind is not NodeKind.JOIN for dag in dags for node in dag.nodes.values()
        )
        self._counts: dict[tuple[str, str], Counter[State]] = {}
        self._shapes: dict[tuple[object, ...], int] = {}
        self._shape: dict[tuple[str, str], int] = {}
        for key in self._inner_first():
            self._weigh(key)

    def _hosts(self) -> dict[str, NodeKey]:
        """By sub-DAG the node below which it is shown: the first that runs it."""
        hosts: dict[str, NodeKey] = {}
        for dag in self.dags.values():
            for name, inner in dag.inside.items():
                if inner in self.dags and inner != dag.key:
                    hosts.setdefault(inner, (dag.key, name))
        # Sub-DAGs that run each other would be below nothing.
        for key in list(hosts):
            seen = {key}
            at = hosts.get(key)
            while at is not None and at[0] not in seen:
                seen.add(at[0])
                at = hosts.get(at[0])
            if at is not None:
                del hosts[key]
        return hosts

    def _inner_first(self) -> list[str]:
        order, ahead = [], [key for key in self.dags if key not in self._host]
        below: dict[str, list[str]] = {}
        for inner, (outer, _) in self._host.items():
            below.setdefault(outer, []).append(inner)
        while ahead:
            key = ahead.pop()
            order.append(key)
            ahead += below.get(key, ())
        return order[::-1]

    def _inner(self, dag: str, item: str) -> str | None:
        """The DAG that is shown below an item."""
        inner = self.dags[dag].inside.get(item)
        return inner if inner is not None and self._host.get(inner) == (dag, item) else None

    def _weigh(self, dag: str) -> None:
        """Count what each item holds, and tell shapes apart, from the innermost outwards."""
        facts, made = self.dags[dag], self.places[dag]
        counts, shape = self._counts, self._shape
        for item in reversed(made.order):
            node = facts.nodes.get(item)
            total: Counter[State] = Counter()
            if node is not None and node.kind is not NodeKind.JOIN:
                total[facts.state(item)] = 1
            shapes: list[object] = []
            inner = self._inner(dag, item)
            held = [(dag, made.branches.get(item, ())), (dag, made.within.get(item, ()))]
            if inner is not None:
                held.append((inner, self.places[inner].top))
            for key, lines in held:
                shapes.append(tuple(sorted(self.shape(key, line) for line in lines)))
                for line in lines:
                    for each in line:
                        total += counts[key, each]
            kind = None if node is None else node.kind
            shape[dag, item] = self._numbered((kind, made.like[item], *shapes))
            counts[dag, item] = total

    def _numbered(self, what: tuple[object, ...]) -> int:
        return self._shapes.setdefault(what, len(self._shapes))

    def shape(self, dag: str, line: Line) -> int:
        """The same number for lines of nodes that are named alike and hold the same."""
        if len(line) == 1:
            return self._shape[dag, line[0]]
        return self._numbered(("line", *(self._shape[dag, item] for item in line)))

    def counts(self, dag: str, line: Iterable[str]) -> Counter[State]:
        """How many nodes in a line, and in what it holds, are at what."""
        total: Counter[State] = Counter()
        for item in line:
            total += self._counts[dag, item]
        return total

    # --- rows -----------------------------------------------------------------------------

    def rows(
        self, opened: Opened | None = None, order: Order | None = None, backwards: bool = False
    ) -> list[TreeRow]:
        """The rows that are shown, where this is folded or unfolded. ``order``: a key by which
        lines beside each other are sorted (None: :func:`urgency`)."""
        return list(self._rows(opened or {}, order or urgency, backwards))

    def _rows(self, opened: Opened, order: Order, backwards: bool) -> Iterator[TreeRow]:
        roomy = self.total <= OPEN_NODES
        tops = [key for key in self.dags if key not in self._host]
        ahead: list[_Part] = []
        if len(tops) == 1:
            ahead.append((tops[0], self.places[tops[0]].top, 0, False))
        else:
            for key in reversed(tops):
                top = self.places[key].top
                counts = self.counts(key, [item for line in top for item in line])
                is_open = opened.get(f"dag{SCOPE}{key}", roomy)
                if is_open:
                    ahead.append((key, top, 1, False))
                file = self.dags[key].file
                ahead.append(
                    TreeRow(f"dag{SCOPE}{key}", 0, "dag", file, None, is_open, told(counts))
                )
        while ahead:
            each = ahead.pop()
            if isinstance(each, TreeRow):
                yield each
            else:
                ahead += reversed(self._laid(*each, opened, order, backwards))

    def _laid(
        self,
        dag: str,
        lines: list[Line],
        depth: int,
        alike_ones: bool,
        opened: Opened,
        order: Order,
        backwards: bool,
    ) -> list[_Part]:
        """The lines beside each other at one place: in order, those alike together."""
        out: list[_Part] = []
        if alike_ones:
            for line in lines:
                out += self._line(dag, line, depth, opened, False if len(lines) > 1 else None)
            return out
        groups: dict[tuple[object, ...], list[Line]] = {}
        first_of: dict[int, str] = {}
        for line in lines:
            shape = self.shape(dag, line)
            first_of.setdefault(shape, line[0])
            states = self._uniform(dag, line)
            single = (shape, states) if states is not None else (line[0],)
            groups.setdefault(single, []).append(line)
        parts: list[tuple[tuple[object, ...], tuple[object, ...], list[Line]]] = []
        for kind, alike in groups.items():
            if len(alike) >= ALIKE:
                parts.append((order(self, dag, alike[0]), kind, alike))
            else:
                parts += [(order(self, dag, line), (), [line]) for line in alike]
        parts.sort(key=lambda part: part[0], reverse=backwards)
        for _, kind, alike in parts:
            if kind:
                shape_number, state = kind
                assert isinstance(shape_number, int)
                key = SCOPE.join(("alike", dag, first_of[shape_number], str(state)))
                out += self._alike(dag, key, alike, depth, opened)
            else:
                alone = None if len(lines) == 1 else self.total <= OPEN_NODES
                out += self._line(dag, alike[0], depth, opened, alone)
        return out

    def _uniform(self, dag: str, line: Line) -> str | None:
        """The one state that all of a line is in; None where there are several, or none."""
        counts = self.counts(dag, line)
        if len(counts) != 1:
            return None
        overruled = self.dags[dag].overruled
        passed = bool(overruled) and any(item in overruled for item in line)
        return f"{next(iter(counts)).value}{'!' if passed else ''}"

    def _alike(
        self, dag: str, key: str, lines: list[Line], depth: int, opened: Opened
    ) -> list[_Part]:
        counts: Counter[State] = Counter()
        for line in lines:
            counts += self.counts(dag, line)
        is_open = opened.get(key, False)
        row = TreeRow(
            key,
            depth,
            "alike",
            str(len(lines)),
            None,
            is_open,
            told(counts),
            self._named(lines[0]),
            self._named(lines[-1]),
        )
        return [row, (dag, lines, depth + 1, True)] if is_open else [row]

    def _named(self, line: Line) -> str:
        return next((item for item in line), "").removesuffix(SCOPE)

    def _line(
        self, dag: str, line: Line, depth: int, opened: Opened, open_at_first: bool | None
    ) -> list[_Part]:
        """The rows of a line. ``open_at_first`` None: it has no row of its own."""
        out: list[_Part] = []
        nodes = [item for item in line if not self._is_join(dag, item)]
        if open_at_first is not None and len(nodes) >= LINE:
            key = SCOPE.join(("line", dag, line[0]))
            is_open = opened.get(key, open_at_first)
            counts = told(self.counts(dag, line))
            first, last = nodes[0].removesuffix(SCOPE), nodes[-1].removesuffix(SCOPE)
            row = TreeRow(key, depth, "line", str(len(nodes)), None, is_open, counts, first, last)
            out.append(row)
            if not is_open:
                return out
            depth += 1
        for item in line:
            out += self._item(dag, item, depth, opened)
        return out

    def _is_join(self, dag: str, item: str) -> bool:
        node = self.dags[dag].nodes.get(item)
        return node is not None and node.kind is NodeKind.JOIN

    def _item(self, dag: str, item: str, depth: int, opened: Opened) -> list[_Part]:
        """A node, or a splice, and what it holds."""
        made = self.places[dag]
        inner = self._inner(dag, item)
        below: list[_Part] = []
        if item in made.within:
            below.append((dag, made.within[item], depth + 1, False))
        if inner is not None:
            below.append((inner, self.places[inner].top, depth + 1, False))
        if item in made.branches:
            below.append((dag, made.branches[item], depth + 1, False))
        if self._is_join(dag, item):
            return below
        key = SCOPE.join((dag, item))
        holds = item in made.within or inner is not None
        roomy = self.total <= OPEN_NODES or not holds
        is_open = opened.get(key, roomy) if below else None
        counts = told(self._counts[dag, item])
        row = (
            TreeRow(key, depth, "node", item, (dag, item), is_open, counts)
            if item in self.dags[dag].nodes
            else TreeRow(key, depth, "splice", item.removesuffix(SCOPE), None, is_open, counts)
        )
        return [row, *below] if is_open else [row]

    def standing(self) -> dict[NodeKey, tuple[str | None, str | None]]:
        """Of every node, as the DAG files name them, which node it stands after, and which splice
        or SUBDAG node holds it."""
        after: dict[NodeKey, str | None] = {}
        below: dict[NodeKey, str | None] = {}
        for dag, made in self.places.items():
            host = self._host.get(dag)
            outer = None if host is None else host[1]
            ahead: list[tuple[str | None, str | None, Line]] = [(None, outer, x) for x in made.top]
            while ahead:
                before, around, line = ahead.pop()
                for item in line:
                    after[dag, item], below[dag, item] = before, around
                    before = before if self._is_join(dag, item) else item
                    ahead += [(before, around, each) for each in made.branches.get(item, ())]
                    held = item.removesuffix(SCOPE)
                    ahead += [(None, held, each) for each in made.within.get(item, ())]
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

    def flat(self, wanted: Callable[[DagNodes, str], bool]) -> list[TreeRow]:
        """Every node that is wanted, as a row of its own: what needs a person first."""
        found = [
            (URGENCY[dag.state(name)], place, rank, dag.key, name)
            for place, dag in enumerate(self.dags.values())
            for rank, (name, node) in enumerate(dag.nodes.items())
            if node.kind is not NodeKind.JOIN and wanted(dag, name)
        ]
        return [
            TreeRow(
                SCOPE.join((key, name)),
                0,
                "node",
                name,
                (key, name),
                None,
                ((self.dags[key].state(name), 1),),
            )
            for _, _, _, key, name in sorted(found)
        ]


def told(counts: Mapping[State, int]) -> tuple[tuple[State, int], ...]:
    """How many are at what, what needs a person first."""
    return tuple(sorted(counts.items(), key=lambda each: URGENCY[each[0]]))


def urgency(tree: NodeTree, dag: str, line: Line) -> tuple[object, ...]:
    """What needs a person first, then as the DAG names them."""
    counts = tree.counts(dag, line)
    worst = min((URGENCY[state] for state in counts), default=len(URGENCY))
    return worst, tree.places[dag].rank[line[0]]


def by_file(tree: NodeTree, dag: str, line: Line) -> tuple[object, ...]:
    """As the DAG file names them."""
    return (tree.places[dag].rank[line[0]],)


def unfolded(tree: NodeTree, is_open: bool) -> dict[str, bool]:
    """Everything unfolded, or everything folded."""
    opened: dict[str, bool] = {}
    before = -1
    while len(opened) != before:
        before = len(opened)
        for row in tree.rows(opened):
            if row.open is not None:
                opened[row.key] = is_open
        if not is_open:
            break
    return opened
