"""Compares a plan with an existing DAG and checks whether it may be changed.

Nodes that have run must not change: their variables record what was trained where, and DAGMan
continues from a rescue file that names them. DAGMan's files and the job logs show which nodes have
run. Source followed: HTCondor manual, "The Rescue DAG" (a rescue file names nodes of the DAG file;
a name that the DAG file lacks is an error).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring import gate_config
from metlmon.authoring.description import content_digest, recorded_digests
from metlmon.authoring.request import Plan, PlanError
from metlmon.authoring.write_files import (
    gate_leftovers,
    has_content,
    is_locked,
    is_same_file,
    leftovers,
    move_into_place,
    path_exists,
)
from metlmon.config.loader import load_settings
from metlmon.dagman.loader import load_workflow
from metlmon.dagman.records import Node, NodeKind, Workflow
from metlmon.dagman.reports import newest_rescue, read_rescue
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.file_access import content_of, read_regular_file
from metlmon.model.states import ALIVE, State
from metlmon.redact import hide_value

NodeKey = tuple[str, str]
"""DAG file and node; sub-DAGs may use the same node names."""

LARGEST: Final = 256 << 20
"""Maximum size of a DAG file in bytes, as for monitoring."""

_SHOWN: Final = 3
"""Maximum number of nodes in one message."""


# --- what has run ----------------------------------------------------------------------------


class RunHistory(Struct, frozen=True):
    """What has run of a DAG, and of its runs in other DAGs of the directory.

    - ``ran``: nodes of the DAG that have run (with a job, done, or skipped).
    - ``rescue``: its newest rescue file; ``done``: the nodes that are done according to it.
    - ``running``: a DAGMan runs it, or is about to start.
    - ``elsewhere``: uuids of runs that another DAG has trained or will train, with its file.
    """

    ran: frozenset[NodeKey] = frozenset()
    rescue: str | None = None
    done: frozenset[NodeKey] = frozenset()
    running: bool = False
    elsewhere: Mapping[str, str] = {}


def history(directory: Path, dag_file: str) -> RunHistory:
    """Read what has run from DAGMan's files and job logs. Raises InputError, OSError."""
    reader = DagdirReader(directory, load_settings(directory))
    reader.open()
    reader.read_all()
    dags = reader.ensemble.dags
    if dag_file not in dags:
        raise InputError(f"{directory / dag_file}: DAGMan would refuse it; see metlmon check")
    own_dags = {key: dag for key, dag in dags.items() if dag.top == dag_file}
    ran: set[NodeKey] = set()
    for key, dag in own_dags.items():
        states = reader.ensemble.node_states(key)
        name = dag.workflow.path.name
        ran |= {(name, node) for node, state in states.items() if state.state is not State.WAITING}
    rescue, done = newest_rescue(os.listdir(directory), dag_file), set[NodeKey]()
    if rescue is not None:
        path = directory / rescue
        done = {(dag_file, node) for node in read_rescue(path, read_regular_file(path))[0].done}
    builder = reader.snapshot_builder()
    active = {key for key in dags if builder.ensemble.dag_state(key)[0] in ALIVE}
    elsewhere = {
        run.uuid: dags[dag].file
        for run in builder.runs.by_key.values()
        for dag, node in run.nodes()
        if run.uuid is not None and dag not in own_dags
        if dag in active or builder.states[dag, node].state is State.COMPLETED
    }
    return RunHistory(
        ran=frozenset(ran | done),
        rescue=rescue,
        done=frozenset(done),
        running=dag_file in active,
        elsewhere=elsewhere,
    )


# --- the changes ------------------------------------------------------------------------------


class DagProgress(StrEnum):
    """The progress of the existing DAG."""

    NEW = "new"
    """There is no DAG."""
    WRITTEN = "written"
    """It was never submitted, or none of its nodes has run."""
    RUNNING = "running"
    """A DAGMan runs it, or was killed."""
    ENDED = "ended"
    """Some nodes have run, and no DAGMan runs it now."""


class VariableDiff(Struct, frozen=True):
    """A difference in a node: a variable, or "submit file", "parents" and the like.

    None: absent on that side. Values that look like secrets are hidden.
    """

    name: str
    old: str | None
    new: str | None


class NodeChange(Struct, frozen=True):
    """A changed node. ``kind``: added, removed, changed. ``ran``: must not change."""

    dag: str
    node: str
    kind: str
    differences: tuple[VariableDiff, ...] = ()
    ran: bool = False


class FileChange(Struct, frozen=True):
    """A changed file.

    ``kind``: added, changed, or unused (written before, no longer needed). ``edited``: it was
    edited by hand, or metlmon never wrote it.
    """

    name: str
    kind: str
    edited: bool = False


class PlanDiff(Struct, frozen=True):
    """The changes that writing a plan would make.

    - ``refusal``: why the plan must not be written, and what to do instead.
    - ``rescue``: the file that the next DAGMan continues from.
    - ``ran``: number of nodes that have run.
    - ``force``: files edited by hand may be overwritten.
    - ``leftover_files``: files left by an earlier DAGMan and its gate.
    """

    json_properties: ClassVar = ("unchanged", "protected_files", "obsolete_files")

    progress: DagProgress
    nodes: tuple[NodeChange, ...] = ()
    files: tuple[FileChange, ...] = ()
    runs_added: tuple[str, ...] = ()
    runs_removed: tuple[str, ...] = ()
    ran: int = 0
    rescue: str | None = None
    leftover_files: tuple[str, ...] = ()
    refusal: str | None = None
    force: bool = False

    @property
    def unchanged(self) -> bool:
        """Whether there is nothing to write or to remove."""
        written = (change for change in self.files if change.kind != "unused")
        return not self.obsolete_files and all(
            change.name in self.protected_files for change in written
        )

    @property
    def protected_files(self) -> tuple[str, ...]:
        """Files that are not overwritten because they were edited by hand."""
        if self.force:
            return ()
        return tuple(file.name for file in self.files if file.edited and file.kind == "changed")

    @property
    def obsolete_files(self) -> tuple[str, ...]:
        """Files written by metlmon that are no longer needed.

        They are removed only if no node has run; leftover DAG files would be read as further DAGs.
        """
        if self.progress is not DagProgress.WRITTEN:
            return ()
        return tuple(file.name for file in self.files if file.kind == "unused" and not file.edited)


def plan_diff(plan: Plan, source: Path | None = None, force: bool = False) -> PlanDiff:
    """Return what writing ``plan`` would change in its directory.

    ``source``: the description that the plan was made from; changes of it are intended. ``force``:
    files edited by hand may be overwritten. Reads the directory, and the logs if the DAG has run.
    Raises PlanError if these cannot be read.
    """
    directory, dag_file = plan.request.directory, plan.dag_file
    files = tuple(_file_changes(plan, source))
    if not path_exists(directory / dag_file):
        return PlanDiff(DagProgress.NEW, files=files, force=force)
    old, new = dict[NodeKey, Node](), dict[NodeKey, Node]()
    if any(file.name.endswith(".dag") for file in files):
        path = directory / dag_file
        if content_of(path, LARGEST) is None:
            text = "is not a file that can be read; choose another name or directory"
            raise PlanError(f"{path}: {text}")
        old = _nodes_by_key(load_workflow([path], _read_dag))
        new = _nodes_by_key(_planned_workflow(plan))
    leftover_files: tuple[str, ...] = ()
    run_history = RunHistory()
    try:
        leftover_files = leftovers(directory, plan.request.name)
        # The job logs are read even if DAGMan's own files are gone.
        run_history = history(directory, plan.dag_file)
    except (OSError, InputError) as error:
        # Without leftover files no DAGMan can have run it.
        if isinstance(error, OSError) or leftover_files:
            raise PlanError(f"{directory}: cannot be read: {error}") from None
    progress = DagProgress.WRITTEN
    if run_history.running or is_locked(leftover_files, plan.request.name):
        progress = DagProgress.RUNNING
    elif run_history.ran or run_history.rescue:
        progress = DagProgress.ENDED
    # The runs of a DAG, by the variable ``run`` of its nodes.
    old_runs, new_runs = (
        dict.fromkeys(node.vars["run"] for node in nodes.values() if "run" in node.vars)
        for nodes in (old, new)
    )
    diff = PlanDiff(
        progress=progress,
        nodes=tuple(_node_changes(old, new, run_history.ran)),
        files=files,
        runs_added=tuple(run for run in new_runs if run not in old_runs),
        runs_removed=tuple(run for run in old_runs if run not in new_runs),
        ran=len(run_history.ran),
        rescue=run_history.rescue,
        leftover_files=leftover_files,
        force=force,
    )
    return replace(diff, refusal=_refusal(plan, diff, run_history))


def amend_plan(plan: Plan, diff: PlanDiff) -> tuple[Path, ...]:
    """Write the files that ``diff`` reports as added or changed; return their paths.

    ``diff``: the diff of this plan. Files that were edited by hand are replaced only if ``diff``
    was made with ``force``. Raises PlanError, and writes nothing, if ``diff`` has a refusal or if a
    DAGMan has started or ended since. Otherwise as
    :func:`metlmon.authoring.write_files.write_plan`, which is for a directory without a DAG of this
    name.
    """
    directory, name = plan.request.directory, plan.request.name
    if diff.refusal is not None:
        raise PlanError(diff.refusal)
    leftover_files = leftovers(directory, name)
    if is_locked(leftover_files, name) or leftover_files != diff.leftover_files:
        text = f"a DAGMan has taken {plan.dag_file} meanwhile, or left it; look at it again"
        raise PlanError(f"{directory / plan.dag_file}: {text}")
    to_write = {change.name for change in diff.files if change.kind in ("added", "changed")}
    to_write -= set(diff.protected_files)
    files = [file for file in plan.files if file.name in to_write]
    move_into_place(plan, files, overwrite=True)
    for unused in diff.obsolete_files:
        (directory / unused).unlink(missing_ok=True)
    return tuple(directory / file.name for file in files)


# --- refusals -------------------------------------------------------------------------------


def _refusal(plan: Plan, diff: PlanDiff, run_history: RunHistory) -> str | None:
    """The file that must not be changed, and the reason with the remedy."""
    path, gate_files = plan.directory / plan.dag_file, gate_leftovers(diff.leftover_files)
    if diff.progress is DagProgress.WRITTEN and gate_files:
        # The DAG has not run, but its gate would find files of another one.
        text = f"was never submitted, and {gate_files[0]} is left of a DAG of this name: its gate"
        text += " would leave out what was stopped then; move it away, or choose another name or"
        return f"{path}: {text} directory"
    # DAG files edited by hand, or not written by metlmon, that would be overwritten.
    edited_dags = [name for name in diff.protected_files if name.endswith(".dag")]
    if diff.unchanged and not edited_dags:
        return None
    if reason := _refusal_for_progress(plan, diff, run_history):
        return f"{path}: {reason}"
    other = next(filter(None, (run_history.elsewhere.get(run.uuid) for run in plan.runs)), None)
    if other is not None:
        text = f"{other} goes on with its runs, and the next DAGMan would train them again"
        return f"{path}: {text}; go on with metlmon continue, or write to a new directory"
    if edited_dags:
        text = "was changed by hand since, or metlmon did not write it; choose another directory"
        return f"{plan.directory / edited_dags[0]}: {text} or name, or say that it may go (--force)"
    return None


def _refusal_for_progress(plan: Plan, diff: PlanDiff, run_history: RunHistory) -> str | None:
    """The reason if the existing DAG has progressed too far for this change."""
    if diff.progress is DagProgress.RUNNING:
        lock = f"{plan.dag_file}.lock"
        no_end = f"{plan.dag_file}.dagman.log tells of no end"
        evidence = lock if lock in diff.leftover_files else no_end
        return (
            f"a DAGMan has this DAG ({evidence}), and reads its file no more; wait for its end or "
            "remove it first (metlmon act remove-dag), or write to a new directory"
        )
    if diff.progress is not DagProgress.ENDED:
        return None
    remedy = "write to a new directory, or go on with metlmon continue"
    if affected := [node for node in diff.nodes if node.ran]:
        first = affected[0]
        differences = "; ".join(map(describe_difference, first.differences[:_SHOWN]))
        effect = f"change: {differences}" if first.kind == "changed" else "be taken away"
        names = ", ".join(node.node for node in affected[:_SHOWN])
        more = f" and {len(affected) - _SHOWN} more" if len(affected) > _SHOWN else ""
        has = "has" if len(affected) == 1 else "have"
        text = f"{names}{more} {has} run and may not be changed; {first.node} would {effect}"
        return f"{text}; {remedy}"
    # Those that failed are run again as intended, if a rescue file says so.
    rerun = run_history.ran - run_history.done
    if rerun and diff.rescue is None:
        text = f"{len(rerun)} nodes have run and no rescue file says so: the next DAGMan would run"
        return f"{text} them all again; {remedy}"
    return None


def describe_difference(difference: VariableDiff) -> str:
    """``epochs from '3' to '5'``."""
    name, old, new = difference.name, difference.old, difference.new
    if old is None:
        return f"{name} would be {new!r}"
    return (
        f"{name} would no longer be {old!r}" if new is None else f"{name} from {old!r} to {new!r}"
    )


# --- files ------------------------------------------------------------------------------------


def _file_changes(plan: Plan, source: Path | None) -> Iterator[FileChange]:
    directory = plan.request.directory
    digests = recorded_digests(directory, plan.request.name)

    def is_written(name: str, data: bytes | None) -> bool:
        """Whether the content is as metlmon wrote it."""
        return data is not None and digests.get(name) == content_digest(name, data)

    for file in plan.files:
        path = directory / file.name
        if not path_exists(path):
            yield FileChange(file.name, "added")
        elif not has_content(path, file.data, file.executable):
            intended = source is not None and is_same_file(path, source)
            edited = not intended and not is_written(file.name, content_of(path, LARGEST))
            yield FileChange(file.name, "changed", edited)
    planned = {file.name for file in plan.files}
    for name in digests:
        if name not in planned and "/" not in name and path_exists(directory / name):
            edited = not is_written(name, content_of(directory / name, LARGEST))
            yield FileChange(name, "unused", edited)


# --- nodes ------------------------------------------------------------------------------------


def _planned_workflow(plan: Plan) -> Workflow:
    directory = Path(os.path.normpath(plan.request.directory))
    dags = [file for file in plan.files if file.name.endswith(".dag")]
    files = {directory / file.name: file.data for file in dags}
    return load_workflow(
        [directory / plan.dag_file], lambda path: files[path] if path in files else _read_dag(path)
    )


def _read_dag(path: Path) -> bytes:
    """Content of a DAG file.

    Submit files are not compared node by node: reading them per node takes most of the time.
    """
    data = None if path.suffix == ".sub" else content_of(path, LARGEST)
    if data is None:
        raise FileNotFoundError(path)
    return data


def _nodes_by_key(workflow: Workflow) -> dict[NodeKey, Node]:
    """The nodes of a DAG and its sub-DAGs, without JOIN nodes."""
    name = workflow.path.name
    nodes = workflow.nodes.values()
    result = {(name, node.name): node for node in nodes if node.kind is not NodeKind.JOIN}
    for inner in workflow.subdags:
        if inner is not None:
            result |= _nodes_by_key(inner)
    return result


def _node_changes(
    old: Mapping[NodeKey, Node], new: Mapping[NodeKey, Node], ran: frozenset[NodeKey]
) -> Iterator[NodeChange]:
    for key in (*new, *(key for key in old if key not in new)):
        has_run = key in ran
        if key not in old:
            yield NodeChange(*key, "added")
        elif key not in new:
            yield NodeChange(*key, "removed", ran=has_run)
        elif differences := tuple(_differences(old[key], new[key], has_run)):
            yield NodeChange(*key, "changed", differences, has_run)


def _differences(old: Node, new: Node, has_run: bool) -> Iterator[VariableDiff]:
    """The differences of a node; if it has run, only those that record what it did."""
    for name in dict.fromkeys((*old.vars, *new.vars)):
        old_value, new_value = old.vars.get(name), new.vars.get(name)
        if has_run and name in gate_config.GATE_VARIABLES:  # May be added after a run has started.
            continue
        if old_value != new_value:
            yield _difference(name, old_value, new_value)
    pairs: list[tuple[str, object, object]] = [
        ("kind", old.kind.value, new.kind.value),
        ("submit file", old.submit, new.submit),
        ("parents", ", ".join(sorted(old.parents)), ", ".join(sorted(new.parents))),
    ]
    if not has_run:
        pairs += [
            ("retries", old.retries, new.retries),
            ("PRE script", old.pre and old.pre.command, new.pre and new.pre.command),
            ("POST script", old.post and old.post.command, new.post and new.post.command),
            ("PRE_SKIP", old.pre_skip, new.pre_skip),
            ("NOOP", old.noop, new.noop),
        ]
    for name, old_field, new_field in pairs:
        if old_field != new_field:
            texts = (
                None if field in (None, "") else str(field) for field in (old_field, new_field)
            )
            yield _difference(name, *texts)


def _difference(name: str, old: str | None, new: str | None) -> VariableDiff:
    sides = (None if side is None else hide_value(name, side) for side in (old, new))
    return VariableDiff(name, *sides)
