"""Every DAG file of HTCondor's own: the tree of it has every node once, and no file is too odd."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from metlmon.dagman import NodeKind, load_workflow
from metlmon.model.dag import Dag
from metlmon.model.ensemble import Ensemble
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.node_tree import NodeTree, fold_state
from metlmon.snapshot.row_text import state_reason
from tests.support.event_logs import EnsembleReading


def _painter(path: Path) -> SnapshotBuilder:
    """What is known of a DAG file; also of one that DAGMan refuses, which no command shows."""
    ensemble = Ensemble()
    ensemble.set_dags([Dag("it.dag", "it.dag", load_workflow([path], Path.read_bytes))])
    return EnsembleReading(ensemble).painter()


def test_the_tree_has_every_node(shared: Callable[[str], Path]) -> None:
    index = shared("conformance/dags_index.json")
    for case in json.loads(index.read_text()):
        painter = _painter(index.parent / case["file"])
        dags = painter.dag_nodes()
        drawn = NodeTree(dags)
        rows = [row for row in drawn.rows(fold_state(drawn, True)) if row.node is not None]
        real = [
            (dag.key, name)
            for dag in dags
            for name, node in dag.nodes.items()
            if node.kind is not NodeKind.JOIN
        ]
        assert Counter(row.node for row in rows) == Counter(real), case["file"]
        for row in rows:
            node = painter.node_row(row.node) if row.node else None
            assert node is not None, case["file"]
            state_reason(node)
