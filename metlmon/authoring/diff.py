"""What a plan would change of a DAG that is there already, and whether it may.

Nodes that have run are not disturbed: their variables tell what was trained where, and DAGMan
goes on from a rescue file that names them. Which have run, DAGMan's files and the jobs' logs tell.
Source followed: HTCondor manual, "The Rescue DAG" (a rescue file names nodes of the DAG file; one
that this does not have is an error).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from metlmon.authoring import gate_config
from metlmon.authoring.already_run import NodeKey, RunHistory, epoch_of, history
from metlmon.authoring.manifest import content_digest, recorded
from metlmon.authoring.request import Plan, PlanError
from metlmon.authoring.target_directory import answers, in_the_way, is_locked, leftovers, same_place
from metlmon.dagman import Node, NodeKind, Workflow, load_workflow
from metlmon.frozen import frozen
from metlmon.live.errors import InputError
from metlmon.model.gates import gate_name
from metlmon.model.run import variable
from metlmon.redact import hide_value

LARGEST: Final = 256 << 20
"""Bytes of a DAG file, as for watching it."""

_SHOWN: Final = 3
"""Nodes that a sentence lists."""


class FileChangeKind(StrEnum):
    """How far the DAG that is there has come."""

    NEW = "new"
    """There is none."""
    WRITTEN = "written"
    """It was never submitted, or nothing of it has run."""
    RUNNING = "running"
    """A DAGMan has it, or was killed."""
    ENDED = "ended"
    """Some of it has run, and no DAGMan has it now."""


@frozen
class VariableDiff:
    """One thing that a node would have otherwise: a variable, or "submit file", "parents"…
    None: it does not have it."""

    name: str
    old: str | None
    new: str | None


@frozen
class NodeChange:
    """``how``: added, removed or changed. ``ran``: it has run, so it must stay as it is."""

    dag: str
    node: str
    how: str
    differences: tuple[VariableDiff, ...] = ()
    ran: bool = False


@frozen
class FileChange:
    """``how``: added, changed, unused (written before, not needed any more). ``foreign``: it
    was changed by hand, or metlmon never wrote it."""

    name: str
    how: str
    foreign: bool = False


@frozen
class PlanDiff:
    """What would change. ``refusal``: why it may not, and what to do instead. ``rescue``: the
    file that the next DAGMan goes on from. ``ran``: how many nodes have. ``force``: what was
    changed by hand may go. ``left``: what lay there of an earlier DAGMan and of its gate;
    ``remarks``: what is to be known before it is written, in sentences."""

    stand: FileChangeKind
    nodes: tuple[NodeChange, ...] = ()
    files: tuple[FileChange, ...] = ()
    runs_added: tuple[str, ...] = ()
    runs_removed: tuple[str, ...] = ()
    ran: int = 0
    rescue: str | None = None
    left: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    refusal: str | None = None
    force: bool = False

    @property
    def same(self) -> bool:
        """There is nothing to write or to take away."""
        written = (each for each in self.files if each.how != "unused")
        return not self.drops and all(each.name in self.keeps for each in written)

    @property
    def keeps(self) -> tuple[str, ...]:
        """Files that stay as they are, since they were changed by hand."""
        if self.force:
            return ()
        return tuple(f.name for f in self.files if f.foreign and f.how == "changed")

    @property
    def drops(self) -> tuple[str, ...]:
        """Files that metlmon wrote and that are of no use any more; as long as nothing has run
        they are taken away, for DAG files among them would be taken for others."""
        if self.stand is not FileChangeKind.WRITTEN:
            return ()
        return tuple(f.name for f in self.files if f.how == "unused" and not f.foreign)

    def number(self, how: str) -> int:
        return sum(each.how == how for each in self.nodes)


def plan_diff(plan: Plan, source: Path | None = None, force: bool = False) -> PlanDiff:
    """What writing ``plan`` would change of its directory. ``source``: the description that the
    plan is from: its own changes are meant. ``force``: what was changed by hand may go. Reads
    the directory, and of a DAG that ran its logs. Raises PlanError when it cannot be read."""
    directory, dag_file = plan.request.directory, plan.dag_file
    files = tuple(_files(plan, source))
    if not in_the_way(directory / dag_file):
        return PlanDiff(FileChangeKind.NEW, files=files, force=force)
    old = new = dict[NodeKey, Node]()
    if any(file.name.endswith(".dag") for file in files):
        old, new = _nodes(_present(directory, dag_file)), _nodes(_planned(plan))
    left, past = _past(plan)
    nodes = tuple(_changes(old, new, past.ran))
    stand = FileChangeKind.WRITTEN
    if past.running or is_locked(left, plan.request.name):
        stand = FileChangeKind.RUNNING
    elif past.ran or past.rescue:
        stand = FileChangeKind.ENDED
    before, after = _runs(old), _runs(new)
    found = PlanDiff(
        stand,
        nodes,
        files,
        tuple(run for run in after if run not in before),
        tuple(run for run in before if run not in after),
        len(past.ran),
        past.rescue,
        left=left,
        remarks=tuple(_reasons_lost(plan, old)) if stand is FileChangeKind.ENDED else (),
        force=force,
    )
    if stand is FileChangeKind.WRITTEN and (answered := answers(left)):
        return replace(found, refusal=_answered(plan, answered))
    if found.same and not _by_hand(found):
        return found
    refusal = _disturbed(plan, found, past) or _shared(plan, found, past)
    return replace(found, refusal=refusal or _lost(plan, found))


def _past(plan: Plan) -> tuple[tuple[str, ...], RunHistory]:
    """What lies there of an earlier DAGMan or gate, and what has run: asked also where DAGMan's
    own files are gone, for the jobs' log may tell of it."""
    directory = plan.request.directory
    left: tuple[str, ...] = ()
    try:
        left = leftovers(directory, plan.request.name)
        return left, history(directory, plan.dag_file)
    except (OSError, InputError) as error:
        if isinstance(error, InputError) and not left:
            return left, RunHistory()  # No DAGMan can have taken it.
        raise PlanError(f"{directory}: cannot be read: {error}") from None


# --- what may not be ------------------------------------------------------------------------


def _answered(plan: Plan, answered: Sequence[str]) -> str:
    """The DAG has not run, and its gate would find what one said of another."""
    where = plan.request.directory / plan.dag_file
    return (
        f"{where}: was never submitted, and {answered[0]} is left of a DAG of this name: its "
        "gate would leave out what was stopped then; move it away, or choose another name or "
        "directory"
    )


def _disturbed(plan: Plan, found: PlanDiff, past: RunHistory) -> str | None:
    """Why the DAG that is there may not be changed so."""
    where = plan.request.directory / plan.dag_file
    if found.stand is FileChangeKind.RUNNING:
        lock = f"{plan.dag_file}.lock"
        by = lock if lock in found.left else f"{plan.dag_file}.dagman.log tells of no end"
        return (
            f"{where}: a DAGMan has this DAG ({by}), and reads its file no more; "
            "wait for its end or remove it first (metlmon act remove-dag), or write to a new "
            "directory"
        )
    if found.stand is not FileChangeKind.ENDED:
        return None
    elsewhere = "write to a new directory, or go on with metlmon continue"
    if touched := [each for each in found.nodes if each.ran]:
        first = touched[0]
        what = "would be taken away"
        if first.how == "changed":
            what = "would change: " + "; ".join(map(told, first.differences[:_SHOWN]))
        names = ", ".join(each.node for each in touched[:_SHOWN])
        more = f" and {len(touched) - _SHOWN} more" if len(touched) > _SHOWN else ""
        has = "has" if len(touched) == 1 else "have"
        said = f"{names}{more} {has} run and may not be changed; {first.node} {what}"
        return f"{where}: {said}; {elsewhere}"
    if forgotten := [node for node in sorted(past.ran) if node not in past.done]:
        if found.rescue is not None:
            # They did not end well: the next DAGMan starts them again, as it should.
            return None
        return (
            f"{where}: {len(forgotten)} nodes have run and no rescue file says so: the next "
            f"DAGMan would run them all again; {elsewhere}"
        )
    return None


def _reasons_lost(plan: Plan, old: Mapping[NodeKey, Node]) -> Iterator[str]:
    """Runs whose gate goes: with it goes what it said of them."""
    if plan.request.gate is not None or not any(map(gate_name, old.values())):
        return
    folder = Path("gate", plan.request.name)
    try:
        names = os.listdir(plan.request.directory / folder)
    except OSError:
        return
    if stopped := sum(name.endswith(".stopped") for name in names):
        runs = "1 run" if stopped == 1 else f"{stopped} runs"
        yield (
            f"{plan.request.directory / plan.dag_file}: without a gate no command tells any more "
            f"why it stopped {runs} ({folder}); keep it (gate = true) to see that"
        )


def _shared(plan: Plan, found: PlanDiff, past: RunHistory) -> str | None:
    """What another DAG of the directory would suffer, or has done already."""
    where = plan.request.directory / plan.dag_file
    changed = {each.name for each in found.files if each.how == "changed"}
    for name in sorted((changed - set(found.keeps)) | set(found.drops)):
        if (file := past.used.get(name)) is not None:
            return (
                f"{where}: {name} would change, and {file}, which runs, needs it for its coming "
                "nodes; wait for the end of that, or write to a new directory"
            )
    again: dict[str, list[int]] = {}
    by: dict[str, str] = {}
    for node in _to_run(plan, past):
        epoch = epoch_of(node, past.settings)
        if epoch is not None and (file := past.elsewhere.get(epoch)) is not None:
            run = variable(node, "run") or epoch[0]
            again.setdefault(run, []).append(epoch[1])
            by.setdefault(run, file)
    for run, epochs in again.items():
        some = ", ".join(map(str, epochs[:_SHOWN])) + (", …" if len(epochs) > _SHOWN else "")
        more = f" (and {len(again) - 1} more runs)" if len(again) > 1 else ""
        each = "epoch" if len(epochs) == 1 else "epochs"
        return (
            f"{where}: {by[run]} has {each} {some} of {run}{more}, and the next DAGMan of "
            f"{plan.dag_file} would train them again; go on with metlmon continue, or write to a "
            "new directory"
        )
    return None


def _to_run(plan: Plan, past: RunHistory) -> Iterator[Node]:
    """The nodes that the next DAGMan would run."""
    if past.elsewhere:
        for key, node in _nodes(_planned(plan)).items():
            if key not in past.done:
                yield node


def _by_hand(found: PlanDiff) -> list[str]:
    """DAG files that were changed by hand, or that metlmon never wrote, and that would go."""
    return [name for name in found.keeps if name.endswith(".dag")]


def _lost(plan: Plan, found: PlanDiff) -> str | None:
    if not (lost := _by_hand(found)):
        return None
    path = plan.request.directory / lost[0]
    return (
        f"{path}: was changed by hand since, or metlmon did not write it; choose another directory "
        "or name, or say that it may go (--force)"
    )


def told(each: VariableDiff) -> str:
    """``epochs from '3' to '5'``; nothing that looks like a secret is quoted."""
    old = None if each.old is None else hide_value(each.name, each.old)
    new = None if each.new is None else hide_value(each.name, each.new)
    if old is None:
        return f"{each.name} would be {new!r}"
    if new is None:
        return f"{each.name} would no longer be {old!r}"
    return f"{each.name} from {old!r} to {new!r}"


# --- files ------------------------------------------------------------------------------------


def _files(plan: Plan, source: Path | None) -> Iterator[FileChange]:
    directory = plan.request.directory
    known = recorded(directory, plan.request.name)
    for file in plan.files:
        path = directory / file.name
        if not in_the_way(path):
            yield FileChange(file.name, "added")
            continue
        data = _bytes(path)
        if data == file.data and _as_executable(path, file.executable):
            continue
        own = data is not None and known.get(file.name) == content_digest(file.name, data)
        meant = source is not None and same_place(path, source)
        yield FileChange(file.name, "changed", foreign=not own and not meant)
    planned = {file.name for file in plan.files}
    for name in known:
        if name not in planned and "/" not in name and in_the_way(directory / name):
            own = known[name] == content_digest(name, _bytes(directory / name) or b"")
            yield FileChange(name, "unused", foreign=not own)


def _as_executable(path: Path, wanted: bool) -> bool:
    return not wanted or bool(path.stat().st_mode & stat.S_IXUSR)


def _bytes(path: Path) -> bytes | None:
    """What a regular file holds; None of anything else, links included."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            return None
        return path.read_bytes()
    except OSError:
        return None


# --- nodes ------------------------------------------------------------------------------------


def _present(directory: Path, dag_file: str) -> Workflow:
    path = directory / dag_file
    if _bytes(path) is None:
        raise PlanError(f"{path}: is no file that can be read; choose another name or directory")
    return load_workflow([path], _read)


def _planned(plan: Plan) -> Workflow:
    directory = Path(os.path.normpath(plan.request.directory))
    dags = [file for file in plan.files if file.name.endswith(".dag")]
    files = {directory / file.name: file.data for file in dags}
    return load_workflow(
        [directory / plan.dag_file], lambda path: files[path] if path in files else _read(path)
    )


def _read(path: Path) -> bytes:
    """What DAG files hold. What jobs are like is not compared node by node, and reading that for
    each takes most of the time."""
    data = None if path.suffix == ".sub" else _bytes(path)
    if data is None:
        raise FileNotFoundError(path)
    return data


def _nodes(workflow: Workflow) -> dict[NodeKey, Node]:
    """The nodes of a DAG and of its sub-DAGs; without those that only join others."""
    name = workflow.path.name
    nodes = workflow.nodes.values()
    found = {(name, node.name): node for node in nodes if node.kind is not NodeKind.JOIN}
    for inner in workflow.subdags:
        if inner is not None:
            found |= _nodes(inner)
    return found


def _changes(
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
    """What a node would have otherwise. Of one that has run: what tells what it did."""
    for name in dict.fromkeys((*old.vars, *new.vars)):
        one, other = old.vars.get(name), new.vars.get(name)
        if has_run and name in gate_config.OF_A_NODE:  # It may be given to runs that have begun.
            continue
        if one != other:
            yield VariableDiff(name, one, other)
    pairs: list[tuple[str, object, object]] = [
        ("kind", old.kind.value, new.kind.value),
        ("submit file", old.submit, new.submit),
        ("parents", ", ".join(sorted(old.parents)), ", ".join(sorted(new.parents))),
    ]
    if not has_run:
        pairs += [
            ("retries", old.retries, new.retries),
            ("PRE script", _command(old, "pre"), _command(new, "pre")),
            ("POST script", _command(old, "post"), _command(new, "post")),
            ("PRE_SKIP", old.pre_skip, new.pre_skip),
            ("NOOP", old.noop, new.noop),
        ]
    for name, one_, other_ in pairs:
        if one_ != other_:
            yield VariableDiff(name, _said(one_), _said(other_))


def _command(node: Node, which: str) -> str | None:
    script = node.pre if which == "pre" else node.post
    return None if script is None else script.command


def _said(value: object) -> str | None:
    return None if value in (None, "") else str(value)


def _runs(nodes: Mapping[NodeKey, Node]) -> dict[str, None]:
    """The runs of a DAG: what its nodes' ``run`` says."""
    return dict.fromkeys(node.vars["run"] for node in nodes.values() if "run" in node.vars)
