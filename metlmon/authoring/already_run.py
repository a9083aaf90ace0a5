"""What has run in the directory that a DAG is to be written to anew: of this DAG, and of those that
lie beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from metlmon.authoring.submit_text import assignments, input_files
from metlmon.config.files import load_settings
from metlmon.dagman import Node, Workflow, read_rescue, rescue_number
from metlmon.frozen import frozen
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.discovery import read_regular
from metlmon.live.errors import InputError
from metlmon.model.dag import Dag
from metlmon.model.run import part_of_run
from metlmon.model.settings import Settings
from metlmon.model.states import ALIVE, State
from metlmon.snapshot.builder import SnapshotBuilder

NodeKey = tuple[str, str]
"""DAG file and node: sub-DAGs may use the same names."""

Epoch = tuple[str, int]
"""A run's uuid, and the number of an epoch as in its node's name."""

UNKNOWN: Final = Settings()


@frozen
class RunHistory:
    """``ran``: nodes of the DAG that have run (with a job, done, or skipped); ``rescue``: its
    newest rescue file, ``done``: the nodes that this says are done; ``running``: a DAGMan has it,
    or is to begin. ``used``: files that another DAG's DAGMan may yet read, by name, and
    ``elsewhere``: epochs that another DAG has trained or is to train, each with that DAG's file."""

    ran: frozenset[NodeKey] = frozenset()
    rescue: str | None = None
    done: frozenset[NodeKey] = frozenset()
    running: bool = False
    used: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[Epoch, str] = field(default_factory=dict)
    settings: Settings = UNKNOWN


def history(directory: Path, dag_file: str) -> RunHistory:
    """What DAGMan's files and the jobs' logs tell of the DAG files of ``directory``. Raises
    InputError, also where this one cannot be read, and OSError."""
    reader = DagdirReader(directory, load_settings(directory))
    reader.open()
    reader.read_all()
    dags = reader.ensemble.dags
    if dag_file not in dags:
        raise InputError(f"{directory / dag_file}: DAGMan would refuse it; metlmon check says why")
    paths = set(_paths(dags[dag_file].workflow))
    own = {key: dag for key, dag in dags.items() if dag.workflow.path in paths}
    ran: set[NodeKey] = set()
    for key, dag in own.items():
        states = reader.ensemble.node_states(key)
        name = dag.workflow.path.name
        ran |= {(name, node) for node, each in states.items() if each.state is not State.WAITING}
    rescue, done = _rescue(directory, dag_file)
    others = [dag for key, dag in dags.items() if key not in own]
    painter = reader.painter()
    running = [each for each in others if _runs(painter, each)]
    return RunHistory(
        frozenset(ran | done),
        rescue,
        frozenset(done),
        _runs(painter, dags[dag_file]),
        {name: dag.file for dag in running for name in _named_by(dag)},
        _elsewhere(painter, others),
        reader.ensemble.settings,
    )


def epoch_of(node: Node, settings: Settings) -> Epoch | None:
    """Which epoch of which run a node trains; None of any other."""
    part = part_of_run(node, settings)
    if part is None or not part.training or part.uuid is None or part.epoch is None:
        return None
    return part.uuid, part.epoch


def _paths(workflow: Workflow) -> Iterator[Path]:
    yield workflow.path
    for inner in workflow.subdags:
        if inner is not None:
            yield from _paths(inner)


def _runs(painter: SnapshotBuilder, dag: Dag) -> bool:
    return painter.ensemble.dag_state(dag.key)[0] in ALIVE


def _rescue(directory: Path, dag_file: str) -> tuple[str | None, set[NodeKey]]:
    rescues = {number: n for n in os.listdir(directory) if (number := rescue_number(n, dag_file))}
    if not rescues:
        return None, set()
    newest = rescues[max(rescues)]
    path = directory / newest
    said, _ = read_rescue(path, read_regular(path))
    return newest, {(dag_file, node) for node in said.done}


def _named_by(dag: Dag) -> Iterator[str]:
    """Files beside the DAG file that its coming nodes need: their submit files with what these
    send along, and what stands in the command lines of scripts."""
    home = dag.workflow.path.parent
    for path in dag.workflow.files:
        yield path.name
        if path.suffix == ".sub" and path.parent == home:
            try:
                text = read_regular(path).decode("utf-8", "replace")
            except OSError:
                continue
            yield from input_files(assignments(text))
    commands = {
        script.command
        for node in dag.workflow.nodes.values()
        for script in (node.pre, node.post, node.hold)
        if script is not None
    }
    for command in commands:
        yield from command.split()


def _elsewhere(painter: SnapshotBuilder, others: list[Dag]) -> dict[Epoch, str]:
    found: dict[Epoch, str] = {}
    files = {dag.key: (dag.file, _runs(painter, dag)) for dag in others}
    for run in painter.runs.by_key.values():
        for number, keys in run.epochs.items():
            for key in keys:
                file, runs = files.get(key[0], ("", False))
                trained = painter.states[key].state is State.COMPLETED
                if file and run.uuid is not None and (runs or trained):
                    found[run.uuid, number] = file
    return found
