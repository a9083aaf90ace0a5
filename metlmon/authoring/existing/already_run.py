"""Determines what has run of the DAGs in the target directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from metlmon.authoring.write_submit import assignments, input_files
from metlmon.config.loader import load_settings
from metlmon.config.settings import Settings
from metlmon.dagman import Node, Workflow, read_rescue, rescue_number
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.errors import InputError
from metlmon.live.regular_files import read_regular_file
from metlmon.model.dag import Dag
from metlmon.model.run import parse_run_part
from metlmon.model.states import ALIVE, State
from metlmon.snapshot.builder import SnapshotBuilder

NodeKey = tuple[str, str]
"""DAG file and node; sub-DAGs may use the same node names."""

Epoch = tuple[str, int]
"""A run's uuid and the number of an epoch, as in the node's name."""

UNKNOWN: Final = Settings()


class RunHistory(Struct, frozen=True):
    """What has run of a DAG, and what other DAGs of the directory need.

    - ``ran``: nodes of the DAG that have run (with a job, done, or skipped).
    - ``rescue``: its newest rescue file; ``done``: the nodes that are done according to it.
    - ``running``: a DAGMan runs it, or is about to start.
    - ``used``: files that another DAG's DAGMan may still read, by name, with that DAG's file.
    - ``elsewhere``: epochs that another DAG has trained or will train, with that DAG's file.
    """

    ran: frozenset[NodeKey] = frozenset()
    rescue: str | None = None
    done: frozenset[NodeKey] = frozenset()
    running: bool = False
    used: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[Epoch, str] = field(default_factory=dict)
    settings: Settings = UNKNOWN


def history(directory: Path, dag_file: str) -> RunHistory:
    """Read what has run from DAGMan's files and the job logs of ``directory``.

    Raises InputError, also if this DAG cannot be read, and OSError.
    """
    reader = DagdirReader(directory, load_settings(directory))
    reader.open()
    reader.read_all()
    dags = reader.ensemble.dags
    if dag_file not in dags:
        raise InputError(f"{directory / dag_file}: DAGMan would refuse it; see metlmon check")
    paths = set(_dag_paths(dags[dag_file].workflow))
    own_dags = {key: dag for key, dag in dags.items() if dag.workflow.path in paths}
    ran: set[NodeKey] = set()
    for key, dag in own_dags.items():
        states = reader.ensemble.node_states(key)
        name = dag.workflow.path.name
        ran |= {(name, node) for node, state in states.items() if state.state is not State.WAITING}
    rescue, done = _newest_rescue(directory, dag_file)
    other_dags = [dag for key, dag in dags.items() if key not in own_dags]
    builder = reader.snapshot_builder()
    active_dags = [dag for dag in other_dags if _is_active(builder, dag)]
    return RunHistory(
        ran=frozenset(ran | done),
        rescue=rescue,
        done=frozenset(done),
        running=_is_active(builder, dags[dag_file]),
        used={name: dag.file for dag in active_dags for name in _referenced_files(dag)},
        elsewhere=_epochs_elsewhere(builder, other_dags),
        settings=reader.ensemble.settings,
    )


def epoch_of(node: Node, settings: Settings) -> Epoch | None:
    """The epoch that a node trains; None for other nodes."""
    part = parse_run_part(node, settings)
    if part is None or not part.training or part.uuid is None or part.epoch is None:
        return None
    return part.uuid, part.epoch


def _dag_paths(workflow: Workflow) -> Iterator[Path]:
    yield workflow.path
    for inner in workflow.subdags:
        if inner is not None:
            yield from _dag_paths(inner)


def _is_active(builder: SnapshotBuilder, dag: Dag) -> bool:
    return builder.ensemble.dag_state(dag.key)[0] in ALIVE


def _newest_rescue(directory: Path, dag_file: str) -> tuple[str | None, set[NodeKey]]:
    files = os.listdir(directory)
    rescues = {number: file for file in files if (number := rescue_number(file, dag_file))}
    if not rescues:
        return None, set()
    path = directory / rescues[max(rescues)]
    rescue, _ = read_rescue(path, read_regular_file(path))
    return path.name, {(dag_file, node) for node in rescue.done}


def _referenced_files(dag: Dag) -> Iterator[str]:
    """Files beside the DAG that its remaining nodes need.

    Its submit files, their input files, and words of the scripts' command lines.
    """
    home = dag.workflow.path.parent
    for path in dag.workflow.files:
        yield path.name
        if path.suffix == ".sub" and path.parent == home:
            try:
                text = read_regular_file(path).decode("utf-8", "replace")
            except OSError:
                continue
            yield from input_files(assignments(text))
    for node in dag.workflow.nodes.values():
        for script in (node.pre, node.post, node.hold):
            if script is not None:
                yield from script.command.split()


def _epochs_elsewhere(builder: SnapshotBuilder, other_dags: list[Dag]) -> dict[Epoch, str]:
    result: dict[Epoch, str] = {}
    files = {dag.key: (dag.file, _is_active(builder, dag)) for dag in other_dags}
    for run in builder.runs.by_key.values():
        for number, keys in run.epochs.items():
            for key in keys:
                file, active = files.get(key[0], ("", False))
                trained = builder.states[key].state is State.COMPLETED
                if file and run.uuid is not None and (active or trained):
                    result[run.uuid, number] = file
    return result
