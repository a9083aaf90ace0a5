"""Plans a DAG that continues runs from their checkpoints, with the same uuids.

The nodes of a stopped or unfinished run cannot be run again by a rescue DAG: skipped nodes count as
done. They are therefore continued in a separate DAG beside the old one, which repeats what the old
DAG file specifies for the same epoch or, for further epochs, for the run's last one.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from metlmon.authoring import gate_config
from metlmon.authoring.continuation_dag import (
    ContinuationBuilder,
    ContinuedRun,
    ContinuedRunPlan,
    SourceDags,
    SourceNode,
)
from metlmon.authoring.request import Plan, PlanError
from metlmon.authoring.runs import CHECKPOINT_VARIABLE
from metlmon.authoring.write_files import is_locked, leftovers, path_exists
from metlmon.dagman.records import Node
from metlmon.dagman.submit_description import command_values
from metlmon.jobfiles.training_files import read_metrics_csv
from metlmon.live.file_access import UnreadableFile, read_file
from metlmon.model.dag import Dag
from metlmon.model.run import RunNodes, variable
from metlmon.model.states import ALIVE, DagState, State
from metlmon.redact import redact_secrets
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.row_text import gate_sentences
from metlmon.text.formatting import STATES, count

LARGEST: Final = 64 << 20
"""Maximum bytes of a ``metrics.csv``."""

_COMMANDS: Final = ("transfer_input_files", "transferinputfiles", "initialdir", "initial_dir")
_FLAGS: Final = frozenset({"true", "t", "yes", "y", "on", "1", "false", "f", "no", "n", "off", "0"})
_VERSION: Final = re.compile(r"version_(\d{1,9})")
_NUMBERED: Final = re.compile(r"(.+?)-(\d{1,4})")


class ExcludedRun(Struct, frozen=True):
    """A run that is not continued, and the reason as text."""

    run: str
    uuid: str | None
    reason: str


class Continuation(Struct, frozen=True):
    """The planned continuation.

    ``plan`` None: no run is continued. ``source_files``: the DAG files that are continued.
    ``notes``: parts of the old DAG that could not be continued, as sentences.
    """

    plan: Plan | None
    source_files: tuple[str, ...]
    runs: tuple[ContinuedRun, ...]
    excluded: tuple[ExcludedRun, ...]
    notes: tuple[str, ...] = ()


def continuation(
    builder: SnapshotBuilder,
    directory: Path,
    wanted: Sequence[str] = (),
    epochs: int | None = None,
    dag_file: str | None = None,
) -> Continuation:
    """Plan the continuation of the ``wanted`` runs. Writes nothing.

    ``wanted``: names or uuids; empty: all incomplete runs. ``epochs``: total number of epochs of
    each run; None: as in the old DAG. ``dag_file``: only runs of this DAG file. ``builder`` must
    know all DAGs of ``directory``, as each of them may have trained epochs of these runs. Raises
    PlanError if nothing can be continued.
    """
    sources = SourceDags()
    checkpoints = CheckpointFinder(directory, sources)
    plans: list[ContinuedRunPlan] = []
    excluded: list[ExcludedRun] = []
    for run in _select_runs(builder, wanted, dag_file):
        plan = _continued_run(builder, checkpoints, run, epochs=epochs, dag_file=dag_file)
        if isinstance(plan, ContinuedRunPlan):
            plans.append(plan)
        elif plan is not None or wanted:
            reason = plan or "it has all its epochs; --epochs N gives it more"
            excluded.append(
                ExcludedRun(run.names[builder.derivation.naming_node(run)], run.uuid, reason)
            )
    dags = list(dict.fromkeys(plan.dag.key for plan in plans))
    bases = {_base_name_of_dag(builder, builder.dags[key]) for key in dags}
    if len(bases) > 1:
        names = ", ".join(sorted(Path(builder.dags[key].file).name for key in dags))
        raise PlanError(
            f"the runs are of several DAGs ({names}): name those of one, or give its DAG file"
        )
    files = tuple(builder.dags[key].file for key in dags)
    if not plans:
        return Continuation(None, files, (), tuple(excluded))
    _refuse_active_dags(builder, plans)
    name = _free_name(builder, directory, bases.pop())
    dag_builder = ContinuationBuilder(builder, directory, name, plans, sources=sources)
    return Continuation(
        plan=dag_builder.plan(),
        source_files=files,
        runs=tuple(plan.continued for plan in plans),
        excluded=tuple(excluded),
        notes=tuple(dag_builder.notes),
    )


# --- checkpoints ------------------------------------------------------------------------------


class RunCheckpoint(Struct, frozen=True):
    """The checkpoint of a run.

    ``folder``: the directory with ``checkpoints/`` and ``version_*/``, relative to the DAG's
    directory; the expected one if none exists. ``value``: of ``continue_from_checkpoint`` for a
    node without it. ``epoch``: the last epoch that the metrics prove complete, -1 for none.
    ``missing``: why the run cannot be continued, as text; else None.
    """

    folder: str
    value: str
    epoch: int
    missing: str | None = None


class CheckpointFinder:
    """Finds checkpoints of the runs of ``directory``.

    A job that continues from a checkpoint transfers it: it is in ``transfer_input_files`` of the
    submit description, whatever the value of the VAR ``continue_from_checkpoint`` (METL sets it to
    ``true`` and tests ``if defined``; the bundled templates set it to the path).
    """

    def __init__(self, directory: Path, sources: SourceDags) -> None:
        self._directory, self._sources = directory, sources

    def find(self, uuid: str, nodes: Mapping[int, tuple[Dag, Node]]) -> RunCheckpoint:
        """The checkpoint of the run ``uuid`` with the training ``nodes`` by epoch.

        Raises PlanError if a DAG file names a path outside of the directory.
        """
        newest_first = [nodes[number] for number in sorted(nodes, reverse=True)]
        with_value = (pair for pair in newest_first if variable(pair[1], CHECKPOINT_VARIABLE))
        dag, node = next(with_value, newest_first[0])
        value = variable(node, CHECKPOINT_VARIABLE)
        default_path = f"output/training_logs/{uuid}"
        paths = self._candidates(dag, node, uuid, value or default_path) or [default_path]
        value = value if value is not None and value.lower() in _FLAGS else None
        local = [path for path in paths if "://" not in path]
        if not local:
            text = f"its checkpoint is {redact_secrets(paths[0])}, which metlmon cannot look at"
            return RunCheckpoint(paths[0], value or default_path, -1, text)
        folders = [_run_directory(self._directory, _checked_path(path), uuid) for path in local]
        found = [
            folder
            for folder in folders
            if any(map(Path.is_file, (self._directory / folder / "checkpoints").glob("*.ckpt")))
        ]
        if not found:
            text = f"there is no checkpoint in {folders[0]}"
            return RunCheckpoint(folders[0], value or folders[0], -1, text)
        epoch = _last_epoch(self._directory / found[0])
        return RunCheckpoint(found[0], value or found[0], epoch)

    def _candidates(self, dag: Dag, node: Node, uuid: str, value: str) -> list[str]:
        """Possible paths of the checkpoint, by the node's description or its variable."""
        others = {
            name: text for name, text in node.vars.items() if name.lower() != CHECKPOINT_VARIABLE
        }
        without_variable = self._transferred(dag, node, others)
        transferred = self._transferred(dag, node, {**others, CHECKPOINT_VARIABLE: value})
        if added_paths := [path for path in transferred if path not in without_variable]:
            return added_paths
        if value.lower() not in _FLAGS:
            value = re.sub(r"\$\(\s*run_uuid\s*\)", lambda _: uuid, value, flags=re.IGNORECASE)
            return [value] if "$" not in value else []
        # The description always transfers the run's directory.
        return [path for path in transferred if uuid in path]

    def _transferred(self, dag: Dag, node: Node, variables: Mapping[str, str]) -> list[str]:
        """``transfer_input_files`` of a node with these VARS, from the DAG's directory."""
        description = self._sources.description(dag, node.name)
        if description is None:
            return []
        values = command_values(description, {"JOB": node.name, **variables}, {}, _COMMANDS)
        files, files_alias, directory, directory_alias = (values[name] or "" for name in _COMMANDS)
        initial_directory = directory.strip() or directory_alias.strip()
        names = map(str.strip, (files.strip() or files_alias).split(","))
        return [
            name if "://" in name else posixpath.join(initial_directory, name)
            for name in names
            if name and "$" not in f"{initial_directory}{name}"
        ]


def _checked_path(path: str) -> str:
    """``path`` without a trailing slash.

    Raises PlanError unless it is relative to, and below, the DAG's directory.
    """
    relative = PurePosixPath(path)
    is_below = not relative.is_absolute() and ".." not in relative.parts
    if not is_below or any(ord(character) < 32 for character in path):
        text = f"{redact_secrets(path)!r}: a run's checkpoints must lie below the DAG's directory"
        raise PlanError(text)
    return str(relative)


def _run_directory(directory: Path, path: str, uuid: str) -> str:
    """The directory that contains ``checkpoints/``.

    ``path`` may be a checkpoint file, its directory, or the directory above those of all runs.
    """
    relative = PurePosixPath(path)
    if relative.suffix == ".ckpt":
        relative = relative.parent
    if relative.name == "checkpoints":
        relative = relative.parent
    run_path = relative / uuid
    nested = not os.path.isdir(directory / relative / "checkpoints")
    return str(run_path if nested and os.path.isdir(directory / run_path) else relative)


def _last_epoch(folder: Path) -> int:
    """The last epoch with a validation value in any ``version_*/metrics.csv``, or -1."""
    last = -1
    with suppress(OSError):
        for name in filter(_VERSION.fullmatch, os.listdir(folder)):
            with suppress(UnreadableFile):
                path = os.path.realpath(folder / name / "metrics.csv")
                text = read_file(path, LARGEST).decode("utf-8", "replace")
                values = read_metrics_csv(StringIO(text, newline="")).values
                validated = (key for key in values if key.startswith("val"))
                last = max(last, *(epoch for key in validated for epoch in values[key]), -1)
    return last


# --- which runs -----------------------------------------------------------------------------


def _select_runs(
    builder: SnapshotBuilder, wanted: Sequence[str], dag_file: str | None
) -> list[RunNodes]:
    candidates = {
        run.key: run
        for run in builder.runs.by_key.values()
        if dag_file is None or any(key == dag_file for key, _ in run.nodes())
    }
    if not candidates and dag_file is not None:
        raise PlanError(f"{dag_file}: no DAG of this name was submitted here; give the directory")
    if not wanted:
        return [run for run in candidates.values() if run.epochs]
    selected: dict[str, RunNodes] = {}
    for name in wanted:
        rows = [row for row in builder.find_runs(name) if row.key in candidates]
        if len(rows) != 1:
            reason = f"ambiguous ({len(rows)} matches); give a uuid" if rows else "no such run"
            raise PlanError(f"{name}: {reason}")
        selected[rows[0].key] = candidates[rows[0].key]
    return list(selected.values())


def _continued_run(
    builder: SnapshotBuilder,
    checkpoints: CheckpointFinder,
    run: RunNodes,
    epochs: int | None,
    dag_file: str | None,
) -> ContinuedRunPlan | str | None:
    """How the run is continued; a reason if it cannot be; None if it is complete."""
    run_state = builder.run_states[run.key]
    home = builder.derivation.naming_node(run)
    dag = builder.dags[home[0]]
    nodes = _source_nodes(builder, run, dag)
    first_epoch = min(run.epochs, default=0)
    last = max(run.epochs, default=-1) if epochs is None else epochs - 1
    completed: list[int] = []
    logged: list[int] = []
    for number, key in run_state.epochs.items():
        state = builder.states[key]
        if state.state is State.COMPLETED:
            completed.append(number)
            logged += [] if state.inferred else [number]
    last_logged = max(logged, default=None)
    if last < first_epoch or (last_logged is not None and last <= last_logged):
        return _too_few_epochs(epochs, last_logged)
    if run.uuid is None:
        return "its nodes have no VAR run_uuid"
    if dag.top != dag.key and dag.file != dag_file:
        return f"it is in a sub-DAG: continue that one, {dag.file}"
    gate_notes = gate_sentences(builder.run_row(run))
    reason = gate_notes[0] if gate_notes else STATES[run_state.state].word
    sources = {number: (source.dag, source.node) for number, source in nodes.items()}
    checkpoint = checkpoints.find(run.uuid, sources)
    # An epoch without a job in any log counts as done if its output is here.
    done = last_logged if checkpoint.epoch < 0 else max(completed, default=None)
    first = first_epoch if done is None else done + 1
    folder = None
    # If the first epoch here needs a checkpoint, it is from a DAG that no longer exists.
    if done is not None or (first and variable(nodes[first].node, CHECKPOINT_VARIABLE)):
        if checkpoint.missing is not None:
            return checkpoint.missing
        # The run can only continue from an epoch whose checkpoint was transferred back.
        done = first - 1 if checkpoint.epoch < 0 else min(first - 1, checkpoint.epoch)
        first, folder = done + 1, checkpoint.folder
        if first > last:
            return _too_few_epochs(epochs, done)
    continued = ContinuedRun(
        run=run.names[home],
        uuid=run.uuid,
        reason=reason,
        done=done,
        first=first,
        last=last,
        checkpoint=folder,
    )
    return ContinuedRunPlan(continued, run, dag, nodes, checkpoint=checkpoint.value)


def _too_few_epochs(epochs: int | None, done: int | None) -> str | None:
    """The reason if fewer epochs are requested than are done."""
    if epochs is None or done is None or epochs > done:
        return None
    return f"it has {count(done + 1, 'epoch')} already, more than the {epochs} asked for"


def _source_nodes(builder: SnapshotBuilder, run: RunNodes, home: Dag) -> dict[int, SourceNode]:
    """The node of each epoch.

    If several DAGs have one: that of the DAG that continued the run last, else of the last DAG.
    """
    nodes = {}
    for number, keys in run.epochs.items():
        key = next((key for key in keys if key[0] == home.key), keys[-1])
        dag = builder.dags[key[0]]
        nodes[number] = SourceNode(dag, dag.workflow.nodes[key[1]])
    return nodes


# --- preconditions ----------------------------------------------------------------------------


def _base_name_of_dag(builder: SnapshotBuilder, dag: Dag) -> str:
    """A DAG's name without its number: ``ensemble`` if ``ensemble-2.dag`` continues."""
    name = Path(dag.file).name.removesuffix(".dag")
    numbered = _NUMBERED.fullmatch(name)
    if numbered is None:
        return name
    pair = {dag.key, str(Path(dag.file).with_name(f"{numbered[1]}.dag"))}
    run_dags = ({key for key, _ in run.nodes()} for run in builder.runs.by_key.values())
    return numbered[1] if any(pair <= dags for dags in run_dags) else name


def _refuse_active_dags(builder: SnapshotBuilder, plans: Sequence[ContinuedRunPlan]) -> None:
    """Raise PlanError if any DAG with nodes of these runs may still run them.

    This includes DAGs that have not reached these nodes yet, and the parent of a sub-DAG that
    failed, which may start it again.
    """
    for key in dict.fromkeys(key for plan in plans for key, _ in plan.run.nodes()):
        dag = builder.dags[key]
        _refuse_if_running(builder, dag)
        if dag.top != key and builder.ensemble.dag_state(key)[0] is not DagState.DONE:
            _refuse_if_running(builder, builder.dags[dag.top])


def _refuse_if_running(builder: SnapshotBuilder, dag: Dag) -> None:
    state, _ = builder.ensemble.dag_state(dag.key)
    path = dag.workflow.path
    try:
        locked = is_locked(leftovers(path.parent, path.name.removesuffix(".dag")), path.stem)
    except OSError:
        locked = False
    if state in ALIVE and (builder.live or locked):
        raise PlanError(
            f"{dag.file} still runs: two DAGMans would train the same runs. Wait for its end, or "
            "end it (metlmon act remove-dag), then run this again"
        )
    if locked:
        raise PlanError(
            f"{dag.file}.lock is there: a DAGMan runs, or was killed. If condor_q has none, take "
            "the lock away, then run this again"
        )
    if state is DagState.NOT_SUBMITTED:
        raise PlanError(f"{dag.file} was not submitted yet: submit it, or take it away")


def _free_name(builder: SnapshotBuilder, directory: Path, base: str) -> str:
    for dag in builder.dags.values():
        same_base = dag.is_top and _base_name_of_dag(builder, dag) == base
        if same_base and builder.ensemble.dag_state(dag.key)[0] is DagState.NOT_SUBMITTED:
            raise PlanError(f"{dag.file} was not submitted yet: submit it, or take it away")
    for number in itertools.count(2):
        name = f"{base}-{number}"
        files = (f"{name}.dag", gate_config.rules_file(name), f"gate/{name}")
        if not leftovers(directory, name) and not any(path_exists(directory / f) for f in files):
            return name
    raise AssertionError  # The numbers do not end.
