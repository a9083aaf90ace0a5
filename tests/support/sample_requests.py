"""Templates and requests for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metlmon.authoring.graph import Graph, GraphNode
from metlmon.authoring.request import Plan, Request
from metlmon.dagman.loader import load_workflow
from metlmon.dagman.records import Workflow

NAP = """\
# template: A nap
# about: Sleeps instead of training.
# parameter: seconds = 1 | how long an epoch takes
# ship: nap.sh executable
executable = nap.sh
arguments = $(run) $(epoch) {seconds}
requirements = {requirements}
?request_gpus = {gpus}
?gpus_minimum_memory = {gpu_memory_mb}
request_memory = {memory_mb}
ulog_execute_attrs = GLIDEIN_ResourceName
log = {name}.log
"""

NAP_SH = b'#!/bin/sh\nsleep "$3"\n'


def nap(folder: Path, text: str = NAP) -> str:
    """A template in ``folder``, with the files that it ships; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nap.sh").write_bytes(NAP_SH)
    path = folder / "nap.sub"
    path.write_text(text)
    return str(path)


def a_request(tmp_path: Path, text: str = NAP, **changes: Any) -> Request:
    """Two runs of three epochs, for a directory that does not exist yet."""
    result: dict[str, Any] = {"directory": tmp_path / "new", "runs": 2, "epochs": 3, **changes}
    return Request(template=nap(tmp_path / "own", text), **result)


def node_of(graph: Graph, name: str) -> GraphNode | None:
    """The node of this name."""
    return next((node for node in graph.all_nodes if node.name == name), None)


def text_of(plan: Plan, name: str) -> str:
    return next(file.data for file in plan.files if file.name == name).decode()


def read_plan(plan: Plan) -> Workflow:
    """The workflow read from a plan, without writing it."""
    directory = Path("/planned")
    files = {directory / file.name: file.data for file in plan.files}

    def read(path: Path) -> bytes:
        try:
            return files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    return load_workflow([directory / plan.dag_file], read)
