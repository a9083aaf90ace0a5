"""Sweep files for tests, and their expansions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.authoring.graph import Graph, GraphNode
from metlmon.authoring.request import PlanError, Request
from metlmon.authoring.sweeps.expand import Expansion, expand

REPORTED_TEMPLATE = """\
    PARENT {run}-train_epoch0 CHILD {run}-train_epoch1
    PARENT {run}-train_epoch0 CHILD {run}-eval_epoch1
    PARENT {run}-train_epoch1 CHILD {run}-train_epoch2
    PARENT {run}-train_epoch1 CHILD {run}-eval_epoch2
    VARS {run}-train_epoch0 epoch=1 a={a} b={b}
    VARS {run}-train_epoch1 epoch=2 a={a} b={b}
    VARS {run}-train_epoch2 epoch=3 a={a} b={b}
"""
"""As the report on METL's experiment has it."""

REPORTED = """\
    GEN SUBDAG train_flow train.subdag a, b from
      0.01 to 0.1 by 0.01
      0.5 to 5 by 0.5
    PARENT init CHILD train_flow
"""

TWO = "GEN SUBDAG g t.subdag a from\n  1, 2\n"
"""Two runs, g0 and g1."""

CHAIN = "PARENT {run}-train_epoch0 CHILD {run}-train_epoch1\nVARS {run}-train_epoch0 a={a}\n"


def request_for(folder: Path, workflow: str, **files: str) -> Request:
    """A request for ``workflow``, a file in ``folder`` beside ``files`` (``t`` is t.subdag)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "w.dag").write_text(workflow)
    for name, text in {"t": CHAIN, **files}.items():
        (folder / f"{name}.subdag").write_text(text)
    return Request(template="trainer", directory=folder / "new", source=folder / "w.dag")


def expanded(folder: Path, workflow: str, /, template: str = CHAIN, **asked: Any) -> Expansion:
    """The expansion of a workflow and its template."""
    return expand(replace(request_for(folder, workflow, t=template), **asked))


def complaint(folder: Path, workflow: str, /, template: str = CHAIN, **asked: Any) -> str:
    """The message about an impossible sweep."""
    with pytest.raises(PlanError) as error:
        expanded(folder, workflow, template, **asked)
    return str(error.value)


def report_of(node: GraphNode | None) -> dict[str, str]:
    """The variables of a node."""
    return {each.name: each.value for each in node.variables}


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]
