"""Snapshots of failures: HTCondor's account beside metlmon's, field by field.

HTCondor's side is read from its own files by code that shares nothing with metlmon: DAGMan's table
of node counts and the ids it was given (``.dagman.out``), the node status file, and the last event
of DAGMan's own job (``.dagman.log``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Captured, json_output

SNAPSHOTS = Path(__file__).resolve().parents[3] / "shared/examples/pool-failures"

DIRECTORIES = (
    *("c1-dagman-held", "m1-node-failed-without-job", "h3-usedagdir-two-dags/sub1"),
    *("shared-absolute-log/f1", "shared-absolute-log/f2", "o1-shared-subdag"),
)

COUNTS = re.compile(r"Of (\d+) nodes total:\n.*\n.*\n\S+ \S+ +((?:\d+ +){7}\d+)")
IDS = re.compile(r"assigned HTCondor ID \((\d+)\.")
COMPLETED = re.compile(r"^005 .*\n\t\(1\) Normal termination \(return value 0\)", re.M)
LAST_EVENT = re.compile(r"^(\d{3}) \(", re.M)
NODE = re.compile(r'Node = "([^"]+)";\s*NodeStatus = (\d)')

NODE_WORDS = {
    *((0, "waiting"), (1, "waiting"), (2, "pre"), (4, "post"), (5, "completed")),
    *((6, "failed"), (7, "futile"), (3, "idle"), (3, "running"), (3, "held")),
}
"""NodeStatus, and what metlmon may call the node then."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: HTCondor's value and metlmon's."""

    directory: str
    name: str
    htcondor: Any
    metlmon: Any


def fields(name: str, capsys: Captured) -> list[Field]:
    """All fields of one snapshot."""
    directory = SNAPSHOTS / name
    top = [path for path in sorted(directory.rglob("*.dagman.out")) if not parent_of(path)]
    (out,) = top
    # Total, and Done Pre Queued Post Ready Un-Ready Failed Futile.
    table = " ".join(COUNTS.findall(out.read_text())[-1])
    total, *counts = map(int, table.split())
    state, live = dagman_state(out)
    # Whatever the date is now: whether DAGMan was in the queue when this was taken.
    when = ("--live",) if live else ()
    status, jobs, nodes = (
        json_output(command, capsys, *when, directory) for command in ("status", "jobs", "nodes")
    )
    (dag,) = [row for row in status["dags"] if row["dagmans"]]
    if state == "held":
        # Its jobs ran on without DAGMan: the job log counts.
        counts[0] = len(COMPLETED.findall((directory / "all.log").read_text()))
    found = [
        ("DAG state", state, dag["state"]),
        ("live", live, status["live"]),
        ("nodes", total, dag["nodes_total"]),
        ("done", counts[0], dag["nodes_done"]),
        ("failed", counts[6], dag["nodes_failed"]),
    ]
    if len(status["dags"]) == 1:
        found.append(("futile", counts[7], status["node_states"]["futile"]))
    outs = directory.rglob("*.dagman.out")
    ids = {int(each) for path in outs for each in IDS.findall(path.read_text())}
    ours = {job["cluster"] for job in jobs["jobs"] if job["dag"] is not None}
    found.append(("jobs of ours", sorted(ids), sorted(ours)))
    result = {node["node"]: node["state"] for node in nodes["nodes"]}
    for path in directory.glob("*.status"):
        for node, number in NODE.findall(path.read_text()):
            words = sorted(word for status, word in NODE_WORDS if status == int(number))
            if state == "held" and number == "3":
                words.append("completed")
            fits = result[node] if result[node] in words else " or ".join(words)
            found.append(
                (node, f"NodeStatus {number}: {fits}", f"NodeStatus {number}: {result[node]}")
            )
    return [Field(name, *each) for each in found]


def parent_of(out: Path) -> str:
    """The cluster of the DAGMan that submitted this one; empty for a top-level DAG."""
    metrics = out.with_name(out.name.replace(".dagman.out", ".metrics"))
    return str(json.loads(metrics.read_text())["parent_dagman_id"]) if metrics.exists() else ""


def dagman_state(out: Path) -> tuple[str, bool]:
    """The DAG's state by the last event of DAGMan's job, and whether that is in the queue."""
    text = out.with_name(out.name.replace(".dagman.out", ".dagman.log")).read_text()
    last = LAST_EVENT.findall(text)[-1]
    if last == "005":
        ok = "(return value 0)" in text.rsplit("\n005 ", 1)[1]
        return ("done" if ok else "failed"), False
    return {"001": "running", "012": "held"}[last], True


@pytest.mark.parametrize("name", DIRECTORIES)
def test_snapshots_agree_with_htcondor(name: str, capsys: Captured) -> None:
    if not (SNAPSHOTS / name).is_dir():
        pytest.skip(f"{name} is not beside this checkout")
    differing = [each for each in fields(name, capsys) if each.htcondor != each.metlmon]
    assert differing == []
