"""Bags: groups of equal, independent nodes (the shards of a large inference).

A bag is a group of nodes of one DAG, of no run, with the same submit file, whose names differ in
one number only, and none of which depends on another. The DAG files alone determine it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from msgspec import Struct

from metlmon.dagman import NodeKind
from metlmon.model.job_events import NodeKey
from metlmon.model.run import MAX_NAME_LENGTH
from metlmon.snapshot.records import DescribedNode, Nodes
from metlmon.stats.totals import group_by

MIN_NODES: Final = 4
"""Minimum nodes of a bag: three similar nodes are an ordinary small workflow."""


class BagNodes(Struct, frozen=True):
    """The nodes of a bag.

    ``dag``: the file of the top-level DAG; ``in_dag``: that of the DAG with the nodes, which may
    be a sub-DAG; ``name_pattern``: the common part of their names, with ``*`` for the number;
    ``submit``: their submit description; ``nodes``: in order of the number.
    """

    dag: str
    in_dag: str
    name_pattern: str
    submit: str
    nodes: tuple[DescribedNode, ...]


_NUMBER: Final = re.compile(r"\d+")

MAX_DIGITS: Final = 18
"""Maximum digits of a shard's number: longer ones are identifiers."""

Family: TypeAlias = tuple[str, str, str, str]
"""DAG, submit description, and the parts of the name before and after the number."""


@lru_cache(4)
def find_bags(nodes: Nodes) -> tuple[BagNodes, ...]:
    """Find the bags among the nodes, in the order of their first nodes."""
    members = [(node, list(_family_choices(node))) for node in nodes.all if _is_candidate(node)]
    sizes = Counter(family for _, choices in members for family, _ in choices)
    # A name with several numbers belongs to its largest family; on a tie the last number is the
    # index, the others denote a kind.
    numbered = [
        (*max(reversed(choices), key=lambda choice: sizes[choice[0]]), node)
        for node, choices in members
        if choices
    ]
    graph = {node.key: node for node in nodes.all}
    bags = []
    for (in_dag, submit, prefix, suffix), group in group_by(numbered, lambda m: m[0]).items():
        shards = tuple(node for _, _, node in sorted(group, key=lambda member: member[1]))
        if len(shards) >= MIN_NODES and _independent(shards, graph):
            bags.append(BagNodes(shards[0].dag, in_dag, f"{prefix}*{suffix}", submit, shards))
    return tuple(bags)


def _is_candidate(node: DescribedNode) -> bool:
    dag_node = node.node
    return (
        node.run is None
        and dag_node.kind is NodeKind.JOB
        and not dag_node.noop
        and dag_node.submit is not None
        and len(dag_node.name) <= MAX_NAME_LENGTH
    )


def _family_choices(node: DescribedNode) -> Iterable[tuple[Family, int]]:
    """The family and number for each possible choice of the index in the name."""
    name, submit = node.node.name, node.node.submit or ""
    for match in _NUMBER.finditer(name):
        if len(match[0]) <= MAX_DIGITS:
            family = node.key[0], submit, name[: match.start()], name[match.end() :]
            yield family, int(match[0])


def _independent(members: Sequence[DescribedNode], graph: Mapping[NodeKey, DescribedNode]) -> bool:
    """Whether no member depends on another, directly or indirectly."""
    own_keys = {node.key for node in members}
    seen: set[NodeKey] = set()
    pending = [(node.key[0], child) for node in members for child in node.node.children]
    while pending:
        key = pending.pop()
        if key in own_keys:
            return False
        if key not in seen and key in graph:
            seen.add(key)
            pending += [(key[0], child) for child in graph[key].node.children]
    return True
