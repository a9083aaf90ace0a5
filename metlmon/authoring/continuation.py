"""A DAG that goes on with runs of another one: from their checkpoints, same uuids, epochs counting
on.

Skipped nodes are done for ever in a rescue, and so is a node that another one takes for its own; so
what was stopped, or was left unfinished, goes on in a DAG of its own beside the old one. Everything
in it is as the old DAG file says of the same epoch, or of the run's last one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from metlmon.authoring import gate_config
from metlmon.authoring.checkpoints import VARIABLE, Checkpoints
from metlmon.authoring.continuation_dag import (
    ContinuationBuilder,
    ContinuedRun,
    ContinuedRunPlan,
    SourceNode,
)
from metlmon.authoring.request import Plan, PlanError
from metlmon.authoring.target_directory import in_the_way, is_locked, leftovers
from metlmon.frozen import frozen
from metlmon.model.dag import Dag
from metlmon.model.run import Run, variable
from metlmon.model.states import ALIVE, DagState, State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.gate_text import gate_told
from metlmon.text.formatting import STATES, count

_NUMBERED: Final = re.compile(r"(.+?)-(\d{1,4})")


@frozen
class ExcludedRun:
    """A run that does not go on, and why, in words."""

    run: str
    uuid: str | None
    why: str


@frozen
class Continuation:
    """What would be written. ``plan`` None: no run goes on. ``of``: the DAG files that it goes on
    with. ``remarks``: what of the old DAG could not be gone on with, in sentences."""

    plan: Plan | None
    of: tuple[str, ...]
    runs: tuple[ContinuedRun, ...]
    left_out: tuple[ExcludedRun, ...]
    remarks: tuple[str, ...] = ()


def continuation(
    painter: SnapshotBuilder,
    directory: Path,
    wanted: Sequence[str] = (),
    epochs: int | None = None,
    of: str | None = None,
) -> Continuation:
    """What goes on with the runs that ``wanted`` names (by name or uuid; empty: all that are not
    complete). ``epochs``: how many each run is to have in the end, None: as many as it was to
    have. ``of``: only runs of this DAG file; ``painter`` knows all DAGs of ``directory``, for each
    of them may have trained epochs of these. Nothing is written. Raises PlanError where nothing
    can go on."""
    runs = _asked_for(painter, wanted, of)
    checkpoints = Checkpoints(directory, painter.ensemble.settings)
    found: list[ContinuedRunPlan] = []
    left_out: list[ExcludedRun] = []
    for run in runs:
        going = _going(painter, checkpoints, run, epochs, of)
        if isinstance(going, ContinuedRunPlan):
            found.append(going)
        elif going is not None or wanted:
            why = going or "it has all its epochs; --epochs N gives it more"
            left_out.append(ExcludedRun(run.names[painter.home(run)], run.uuid, why))
    dags = list(dict.fromkeys(each.dag.key for each in found))
    base = _base(painter, dags)
    told = tuple(each.told for each in found)
    files = tuple(painter.dags[key].file for key in dags)
    if not found:
        return Continuation(None, files, (), tuple(left_out))
    _refuse_while_held(painter, found)
    writing = ContinuationBuilder(painter, directory, _free_name(painter, directory, base), found)
    return Continuation(writing.plan(), files, told, tuple(left_out), tuple(writing.remarks))


# --- which runs -----------------------------------------------------------------------------


def _asked_for(painter: SnapshotBuilder, wanted: Sequence[str], of: str | None) -> list[Run]:
    those = {run.key: run for run in painter.runs.by_key.values() if of is None or _is_of(run, of)}
    if not those and of is not None:
        raise PlanError(f"{of}: no DAG of this name was submitted here; give the directory")
    if not wanted:
        return [run for run in those.values() if run.epochs]
    found: dict[str, Run] = {}
    for each in wanted:
        rows = [row for row in painter.find_runs(each) if row.key in those]
        if len(rows) != 1:
            what = f"{len(rows)} runs are meant by it; give a uuid" if rows else "no such run"
            raise PlanError(f"{each}: {what}")
        found[rows[0].key] = those[rows[0].key]
    return list(found.values())


def _is_of(run: Run, file: str) -> bool:
    """Has the DAG file, whose key is its name, a node of the run?"""
    return any(key == file for key, _ in run.nodes())


def _going(
    painter: SnapshotBuilder, checkpoints: Checkpoints, run: Run, epochs: int | None, of: str | None
) -> ContinuedRunPlan | str | None:
    """The run as it goes on; else why it does not; None where it is complete."""
    stands = painter.standings[run.key]
    home = painter.home(run)
    dag = painter.dags[home[0]]
    nodes = _nodes(painter, run, dag)
    last = max(run.epochs, default=-1) if epochs is None else epochs - 1
    states = {number: painter.states[key] for number, key in stands.epochs.items()}
    over = {n: s.inferred for n, s in states.items() if s.state is State.COMPLETED}
    sure = max((n for n, inferred in over.items() if not inferred), default=None)
    if last < min(run.epochs, default=0) or (sure is not None and last <= sure):
        return _more_than(epochs, sure)
    if run.uuid is None:
        return "its nodes have no VAR run_uuid"
    if dag.top != dag.key and dag.file != of:
        return f"it is in a sub-DAG: continue that one, {dag.file}"
    told = gate_told(painter.run_row(run, painter.in_flight().runs))
    why = told[0] if told else STATES[stands.state].word
    checkpoint = checkpoints.of(run.uuid, {n: (old.dag, old.node) for n, old in nodes.items()})
    # An epoch whose job no log knows is done as far as its output is here.
    done = sure if checkpoint.epoch < 0 else max(over, default=None)
    first = min(run.epochs) if done is None else done + 1
    # Where the first epoch that is known here needs a checkpoint, a DAG that is gone left that.
    if done is None and not (first and variable(nodes[first].node, VARIABLE)):
        begun = ContinuedRun(run.names[home], run.uuid, why, None, first, last, None)
        return ContinuedRunPlan(begun, run, dag, nodes, checkpoint.value)
    if checkpoint.missing is not None:
        return checkpoint.missing
    # What came back last is what there is to go on from.
    done = first - 1 if checkpoint.epoch < 0 else min(first - 1, checkpoint.epoch)
    first = done + 1
    if first > last:
        return _more_than(epochs, done)
    told_of = ContinuedRun(run.names[home], run.uuid, why, done, first, last, checkpoint.folder)
    return ContinuedRunPlan(told_of, run, dag, nodes, checkpoint.value)


def _more_than(epochs: int | None, done: int | None) -> str | None:
    """What is said where fewer epochs are asked for than are done."""
    if epochs is None or done is None or epochs > done:
        return None
    return f"it has {count(done + 1, 'epoch')} already, more than the {epochs} asked for"


def _nodes(painter: SnapshotBuilder, run: Run, home: Dag) -> dict[int, SourceNode]:
    """The node of each epoch: where several DAGs have it, that of the one in which the run went
    on last, else of the last one that has it."""
    found = {}
    for number, keys in run.epochs.items():
        key = next((each for each in keys if each[0] == home.key), keys[-1])
        dag = painter.dags[key[0]]
        found[number] = SourceNode(dag, dag.workflow.nodes[key[1]])
    return found


# --- may it -----------------------------------------------------------------------------------


def _base(painter: SnapshotBuilder, dags: Sequence[str]) -> str:
    """The name that all of them have but for the number: ``ensemble`` of ``ensemble-2.dag``."""
    bases = {_base_of(painter, painter.dags[key]) for key in dags}
    if len(bases) > 1:
        files = ", ".join(sorted(Path(painter.dags[key].file).name for key in dags))
        raise PlanError(
            f"the runs are of several DAGs ({files}): name those of one, or give its DAG file"
        )
    return next(iter(bases), "")


def _base_of(painter: SnapshotBuilder, dag: Dag) -> str:
    """A DAG's name, without the number where it goes on with one that lies there."""
    name = Path(dag.file).name.removesuffix(".dag")
    numbered = _NUMBERED.fullmatch(name)
    if numbered is None:
        return name
    both = {dag.key, str(Path(dag.file).with_name(f"{numbered.group(1)}.dag"))}
    every = ({key for key, _ in run.nodes()} for run in painter.runs.by_key.values())
    return numbered.group(1) if any(both <= dags for dags in every) else name


def _refuse_while_held(painter: SnapshotBuilder, found: Sequence[ContinuedRunPlan]) -> None:
    """Not only where a run went on last: a DAG that has come to none of its nodes yet has it,
    too, and a sub-DAG that did not end well may be started again by the one around it."""
    for key in dict.fromkeys(key for each in found for key, _ in each.run.nodes()):
        dag = painter.dags[key]
        _refuse_if_it_runs(painter, dag)
        if dag.top != key and painter.ensemble.dag_state(key)[0] is not DagState.DONE:
            _refuse_if_it_runs(painter, painter.dags[dag.top])


def _refuse_if_it_runs(painter: SnapshotBuilder, dag: Dag) -> None:
    state, _ = painter.ensemble.dag_state(dag.key)
    path = dag.workflow.path
    try:
        locked = is_locked(leftovers(path.parent, path.name.removesuffix(".dag")), path.stem)
    except OSError:
        locked = False
    if state in ALIVE and (painter.live or locked):
        raise PlanError(
            f"{dag.file} still runs: two DAGMans would train the same runs. Wait for its end, or "
            "end it (metlmon act remove-dag), then say this again"
        )
    if locked:
        raise PlanError(
            f"{dag.file}.lock is there: a DAGMan runs, or was killed. If condor_q has none, take "
            "the lock away, then say this again"
        )
    if state is DagState.NOT_SUBMITTED:
        raise PlanError(f"{dag.file} was not submitted yet: submit it, or take it away")


def _free_name(painter: SnapshotBuilder, directory: Path, base: str) -> str:
    for dag in painter.dags.values():
        mine = dag.is_top and _base_of(painter, dag) == base
        if mine and painter.ensemble.dag_state(dag.key)[0] is DagState.NOT_SUBMITTED:
            raise PlanError(f"{dag.file} was not submitted yet: submit it, or take it away")
    for number in itertools.count(2):
        name = f"{base}-{number}"
        ours = (f"{name}.dag", gate_config.rules_file(name), f"gate/{name}")
        if not any(in_the_way(directory / each) for each in ours) and not leftovers(
            directory, name
        ):
            return name
    raise AssertionError("numbers do not end")
