"""What of a graph is alike: runs of one form, families of nodes, layers. For its picture.

All is linear in nodes and edges, but for sorting.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeVar

from metlmon.authoring.graph import Graph, GraphNode, NodeRole
from metlmon.dagman import NodeKind
from metlmon.frozen import frozen

APART: Final = frozenset({NodeKind.PROVISIONER, NodeKind.SERVICE, NodeKind.FINAL})
"""Nodes that have neither parents nor children."""

STAGE: Final = "stage"
"""The variable that says to which part of its run a node belongs."""

DEEPEST: Final = 4
"""Sub-DAGs within sub-DAGs that are looked into."""

_Key = TypeVar("_Key", bound=Hashable)

_DIGITS: Final = re.compile(r"[0-9]+")


@frozen
class Bundle:
    """Runs of one form. ``names`` in the order of the file; ``nodes`` and ``edges`` of the first
    one, by their names within the run; ``sides``: those that evaluate; ``stages``: which part of
    the run the others belong to, where it has parts; ``inner``: what is in its sub-DAG, where it
    is one."""

    names: tuple[str, ...]
    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    sides: frozenset[str] = frozenset()
    stages: Mapping[str, str] = field(default_factory=dict)
    inner: Graph | None = None


@frozen
class Family:
    """Nodes that are called alike and stand in the same place: ``shard000`` to ``shard099``."""

    names: tuple[str, ...]


@frozen
class Outline:
    """``layers``: bundles and families by how many come before them at most. ``apart``: nodes
    outside the graph; ``cyclic``: nodes that wait for each other, which no DAGMan starts."""

    layers: tuple[tuple[Bundle | Family, ...], ...]
    apart: tuple[GraphNode, ...] = ()
    cyclic: tuple[str, ...] = field(default=())


def outline(graph: Graph, depth: int = 0) -> Outline:
    """The outline of a graph; of one whose runs wait for each other's nodes in turn, that of its
    nodes alone."""
    nodes = [node for node in graph.nodes if node.kind not in APART]
    apart = tuple(node for node in graph.nodes if node.kind in APART)
    bundles = _bundles(graph, nodes, depth)
    unit_of: dict[str, Bundle] = {}
    for each in bundles:
        unit_of.update(dict.fromkeys(each.names, each))
    runs = {node.name: run for node in nodes if (run := run_of(node)) is not None}
    owner = {name: bundles.index(unit_of[run]) for name, run in runs.items()} if bundles else {}
    return _layered(graph, nodes, bundles, owner, apart)


def run_of(node: GraphNode) -> str | None:
    """The run of a node; a sub-DAG is one of its own."""
    return node.run or (node.name if node.kind is NodeKind.SUBDAG else None)


def family(name: str) -> str:
    """A name without its numbers: what nodes that are called alike share."""
    return _DIGITS.sub("#", name)


def local(name: str, run: str) -> str:
    """What a node is called within its run."""
    return name.removeprefix(f"{run}-") or name


# --- runs of one form -----------------------------------------------------------------------


def _bundles(graph: Graph, nodes: Sequence[GraphNode], depth: int) -> list[Bundle]:
    own: dict[str, list[GraphNode]] = {}
    for node in nodes:
        run = run_of(node)
        if run is not None:
            own.setdefault(run, []).append(node)
    home = {node.name: run for run, members in own.items() for node in members}
    inside: dict[str, list[tuple[str, str]]] = {run: [] for run in own}
    outside: dict[str, list[tuple[str, str]]] = {run: [] for run in own}
    for parent, child in graph.edges:
        one, other = home.get(parent), home.get(child)
        if one is not None and one == other:
            inside[one].append((local(parent, one), local(child, one)))
            continue
        if one is not None:
            outside[one].append((local(parent, one), f"> {child}"))
        if other is not None:
            outside[other].append((f"< {parent}", local(child, other)))
    alike: dict[object, list[str]] = {}
    for run, members in own.items():
        names = tuple(_form(node, run) for node in members)
        form = (names, tuple(inside[run]), tuple(outside[run]), _inner_form(graph, members, depth))
        alike.setdefault(form, []).append(run)
    found = []
    for runs in alike.values():
        first = runs[0]
        found.append(
            Bundle(
                tuple(runs),
                tuple(local(node.name, first) for node in own[first]),
                tuple(inside[first]),
                frozenset(local(n.name, first) for n in own[first] if n.role is NodeRole.EVALUATE),
                {
                    local(node.name, first): stage
                    for node in own[first]
                    if (stage := _stage(node)) is not None
                },
                _inner(graph, own[first], depth),
            )
        )
    return found


def _form(node: GraphNode, run: str) -> tuple[str, bool, str | None]:
    name = "" if node.name == run else local(node.name, run)
    return name, node.role is NodeRole.EVALUATE, _stage(node)


def _stage(node: GraphNode) -> str | None:
    """The stage that a training node belongs to, as its variables tell."""
    if node.role is not NodeRole.TRAIN:
        return None
    return next((each.value for each in node.variables if each.name == STAGE), None)


def _inner(graph: Graph, members: Sequence[GraphNode], depth: int) -> Graph | None:
    if len(members) == 1 and members[0].kind is NodeKind.SUBDAG and depth < DEEPEST:
        return graph.subdags.get(members[0].submit)
    return None


def _inner_form(graph: Graph, members: Sequence[GraphNode], depth: int) -> object:
    inner = _inner(graph, members, depth)
    if inner is None:
        return None
    names = tuple(local(node.name, node.run or "") for node in inner.nodes)
    place = {node.name: number for number, node in enumerate(inner.nodes)}
    return names, tuple((place.get(one), place.get(other)) for one, other in inner.edges)


# --- layers -----------------------------------------------------------------------------------


def _layered(
    graph: Graph,
    nodes: Sequence[GraphNode],
    bundles: Sequence[Bundle],
    owner: Mapping[str, int],
    apart: tuple[GraphNode, ...],
) -> Outline:
    keys: dict[int | str, None] = {}
    key_of: dict[str, int | str] = {}
    for node in nodes:
        key = owner.get(node.name, node.name)
        key_of[node.name] = key
        keys.setdefault(key)
    pairs = {
        (key_of[one], key_of[other]): None
        for one, other in graph.edges
        if one in key_of and other in key_of and key_of[one] != key_of[other]
    }
    depths, left = depths_of(keys, pairs)
    if left and bundles:
        return _layered(graph, nodes, (), {}, apart)
    layers: list[list[int | str]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for key, deep in depths.items():
        layers[deep].append(key)
    cyclic = tuple(str(key) for key in keys if key not in depths)
    return Outline(tuple(_units(layer, bundles) for layer in layers), apart, cyclic)


def _units(layer: Iterable[int | str], bundles: Sequence[Bundle]) -> tuple[Bundle | Family, ...]:
    units: list[Bundle | Family] = []
    families: dict[str, list[str]] = {}
    for key in layer:
        if isinstance(key, int):
            units.append(bundles[key])
        else:
            families.setdefault(family(key), []).append(key)
    return (*units, *(Family(tuple(names)) for names in families.values()))


def depths_of(
    keys: Iterable[_Key], pairs: Iterable[tuple[_Key, _Key]]
) -> tuple[dict[_Key, int], int]:
    """How many keys come before each at most, in the order of ``keys``; and how many of them
    wait for each other in a circle, and have no depth."""
    order = list(keys)
    children: dict[_Key, list[_Key]] = {key: [] for key in order}
    waits = dict.fromkeys(order, 0)
    for one, other in pairs:
        children[one].append(other)
        waits[other] += 1
    deep = {key: 0 for key in order if not waits[key]}
    ready = list(deep)
    for key in ready:
        for child in children[key]:
            deep[child] = max(deep.get(child, 0), deep[key] + 1)
            waits[child] -= 1
            if not waits[child]:
                ready.append(child)
    done = {key: deep[key] for key in order if not waits[key]}
    return done, len(order) - len(done)
