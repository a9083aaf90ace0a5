"""Plans a DAG that continues runs from their checkpoints, with the same uuids.

The nodes of a stopped or unfinished run cannot be run again by a rescue DAG: skipped nodes count as
done. They are therefore continued in a separate DAG beside the old one, which repeats what the old
DAG file specifies for the same epoch or, for further epochs, for the run's last one.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring import gate_config, write_dag
from metlmon.authoring.graph import (
    Graph,
    GraphNode,
    NodeRole,
    Precedence,
    VariableValue,
    script_options,
)
from metlmon.authoring.request import Plan, PlanError, PlannedFile, Request, StopRules
from metlmon.authoring.runs import CHECKPOINT_VARIABLE, SITE_VARIABLE, checkpoint_directory
from metlmon.authoring.write_files import is_locked, leftovers, path_exists
from metlmon.dagman.commands import (
    DescriptionCommand,
    IncludeCommand,
    SavePointCommand,
    ScriptKind,
)
from metlmon.dagman.loader import load_workflow
from metlmon.dagman.parser import SourceCommand, read_commands
from metlmon.dagman.records import Node, Workflow
from metlmon.dagman.submit_description import FALSE_WORDS, TRUE_WORDS
from metlmon.jobfiles.training_files import read_metrics_csv
from metlmon.live.file_access import UnreadableFile, read_file, read_regular_file
from metlmon.model.dag import Dag
from metlmon.model.run import RunNodes, gate_command, variable
from metlmon.model.states import ALIVE, DagState, State
from metlmon.redact import redact_secrets
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.row_text import format_run_list, gate_sentences
from metlmon.text.formatting import STATES, count
from metlmon.text.record_json import json_object

LARGEST: Final = 64 << 20
"""Maximum bytes of a DAG file, of a gate's rules and of a ``metrics.csv``."""

_FLAGS: Final = TRUE_WORDS | FALSE_WORDS | {"on", "off"}
_VERSION: Final = re.compile(r"version_(\d{1,9})")
_NUMBERED: Final = re.compile(r"(.+?)-(\d{1,4})")


class SourceNode(NamedTuple):
    """A node of an old DAG."""

    dag: Dag
    node: Node


class ContinuedRun(Struct, frozen=True):
    """A run that is continued.

    ``done_epoch``: its last complete epoch, as in the node's name; None if there is none.
    ``first_epoch``, ``last_epoch``: the epochs to train. ``reason``: how the run ended before.
    ``checkpoint``: the checkpoint to start from, relative to the DAG file.
    """

    json_omits: ClassVar = frozenset({"dag", "nodes", "old_run", "checkpoint_value"})

    run: str
    uuid: str
    reason: str
    done_epoch: int | None
    first_epoch: int
    last_epoch: int
    checkpoint: str | None
    dag: Dag
    """The old DAG that continued it last."""
    nodes: Mapping[int, SourceNode]
    """A source node for each old epoch, from any DAG."""
    old_run: RunNodes
    """Its nodes in all old DAGs."""
    checkpoint_value: str
    """The value of ``continue_from_checkpoint`` for nodes that lack it in the old DAG."""

    @property
    def epochs(self) -> range:
        """The epochs to train."""
        return range(self.first_epoch, self.last_epoch + 1)


class ExcludedRun(Struct, frozen=True):
    """A run that is not continued, and the reason as text."""

    run: str
    uuid: str | None
    reason: str


class Continuation(Struct, frozen=True):
    """The planned continuation.

    ``plan`` None: no run is continued. ``source_files``: the DAG files that are continued.
    """

    plan: Plan | None
    source_files: tuple[str, ...]
    runs: tuple[ContinuedRun, ...]
    excluded: tuple[ExcludedRun, ...]


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
    runs: list[ContinuedRun] = []
    excluded: list[ExcludedRun] = []
    for old_run in _select_runs(builder, wanted, dag_file):
        run = _continued_run(builder, directory, old_run, epochs=epochs, dag_file=dag_file)
        if isinstance(run, ContinuedRun):
            runs.append(run)
        elif run is not None or wanted:
            reason = run or "it has all its epochs; --epochs N gives it more"
            excluded.append(
                ExcludedRun(builder.derivation.run_names[old_run.key][0], old_run.uuid, reason)
            )
    dags = {run.dag.key: run.dag for run in runs}
    bases = {_base_name_of_dag(builder, dag) for dag in dags.values()}
    if len(bases) > 1:
        names = ", ".join(sorted(Path(dag.file).name for dag in dags.values()))
        raise PlanError(
            f"the runs are of several DAGs ({names}): name those of one, or give its DAG file"
        )
    if not runs:
        return Continuation(None, (), (), tuple(excluded))
    _refuse_active_dags(builder, runs)
    name = _free_name(builder, directory, bases.pop())
    return Continuation(
        plan=ContinuationBuilder(builder, directory, name, runs).plan(),
        source_files=tuple(dag.file for dag in dags.values()),
        runs=tuple(runs),
        excluded=tuple(excluded),
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


def find_checkpoint(directory: Path, uuid: str, nodes: Mapping[int, SourceNode]) -> RunCheckpoint:
    """The checkpoint of the run ``uuid`` with these ``nodes``. Raises PlanError.

    It is where the VAR ``continue_from_checkpoint`` says, as bundled templates set it. METL sets it
    to ``true``, and names a directory after the uuid in its submit description.
    """
    newest_first = (nodes[number].node for number in sorted(nodes, reverse=True))
    value = next(filter(None, (variable(node, CHECKPOINT_VARIABLE) for node in newest_first)), None)
    flag = value if value is not None and value.lower() in _FLAGS else None
    folder, path = _checked_path(checkpoint_directory(uuid)), None
    if value is not None and flag is None:
        path = re.sub(r"\$\(\s*run_uuid\s*\)", lambda _: uuid, value, flags=re.IGNORECASE)
    if path is not None and "$" not in path:
        folder = _run_directory(directory, _checked_path(path), uuid)
    elif not _has_checkpoint(directory / folder):
        # Below the DAG's directory, up to three directories deep.
        above = ("*/" * depth for depth in range(4))
        patterns = (f"{each}*{glob.escape(uuid)}*/checkpoints" for each in above)
        places = (place.parent for each in patterns for place in sorted(directory.glob(each)))
        place = next(filter(_has_checkpoint, places), directory / folder)
        folder = str(place.relative_to(directory))
    missing = None
    if not _has_checkpoint(directory / folder):
        missing = f"no checkpoint in {redact_secrets(folder)}"
    epoch = -1 if missing is not None else _last_epoch(directory / folder)
    return RunCheckpoint(folder, flag or folder, epoch, missing)


def _has_checkpoint(folder: Path) -> bool:
    return any(map(Path.is_file, (folder / "checkpoints").glob("*.ckpt")))


def _checked_path(path: str) -> str:
    """``path`` without a trailing slash. Raises PlanError if it leaves the directory."""
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
            known = format_run_list(builder.status().runs)
            reason = f"ambiguous ({len(rows)} matches)" if rows else "no such run"
            raise PlanError(f"{name}: {reason}; {known}")
        selected[rows[0].key] = candidates[rows[0].key]
    return list(selected.values())


def _continued_run(
    builder: SnapshotBuilder,
    directory: Path,
    run: RunNodes,
    epochs: int | None,
    dag_file: str | None,
) -> ContinuedRun | str | None:
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
    gate_notes = gate_sentences(builder.run(run))
    reason = gate_notes[0] if gate_notes else STATES[run_state.state].word
    checkpoint = find_checkpoint(directory, run.uuid, nodes)
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
    return ContinuedRun(
        run=builder.runs.parts[home].run,
        uuid=run.uuid,
        reason=reason,
        done_epoch=done,
        first_epoch=first,
        last_epoch=last,
        checkpoint=folder,
        dag=dag,
        nodes=nodes,
        old_run=run,
        checkpoint_value=checkpoint.value,
    )


def _too_few_epochs(epochs: int | None, done: int | None) -> str | None:
    """The reason if fewer epochs are requested than are done."""
    if epochs is None or done is None or epochs > done:
        return None
    return f"it has {count(done + 1, 'epoch')} already, more than the {epochs} asked for"


def _source_nodes(builder: SnapshotBuilder, run: RunNodes, home: Dag) -> dict[int, SourceNode]:
    """The node of each epoch; of several DAGs, of the one that continued the run last."""
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


def _refuse_active_dags(builder: SnapshotBuilder, runs: Sequence[ContinuedRun]) -> None:
    """Raise PlanError if any DAG with nodes of these runs may still run them.

    This includes DAGs that have not reached these nodes yet, and the parent of a sub-DAG that
    failed, which may start it again.
    """
    for key in dict.fromkeys(key for run in runs for key, _ in run.old_run.nodes()):
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


# --- the DAG, from the nodes of the old DAG files ----------------------------------------------


class ContinuationBuilder:
    """Builds the DAG ``name`` that continues these runs."""

    def __init__(
        self, builder: SnapshotBuilder, directory: Path, name: str, runs: Sequence[ContinuedRun]
    ) -> None:
        self._builder, self._directory, self._name, self._runs = builder, directory, name, runs
        self._source_dags: dict[str, tuple[Dag, Workflow]] = {}
        self._node_lines: list[str] = []
        self._gate_by_run: dict[str, str] = {}
        self._sites: Mapping[int, str] = {}

    def plan(self) -> Plan:
        """Return the plan of the DAG. Raises PlanError."""
        nodes: dict[str, GraphNode] = {}
        edges: list[tuple[str, str]] = []
        for run in self._runs:
            for node, parents in self._run_nodes(run):
                if node.name in nodes:
                    text = f"two of the runs have a node {node.name}: continue them one by one"
                    raise PlanError(text)
                nodes[node.name] = node
                edges += [(parent, node.name) for parent in parents]
        lines = (*self._copied_lines(nodes), *self._node_lines)
        # The most common retries would need no line each; only those of all nodes are shared.
        numbers = {(node.retries or 0, node.unless_exit) for node in nodes.values()}
        retries, unless_exit = numbers.pop() if len(numbers) == 1 else (0, None)
        graph_nodes = tuple(
            replace(node, retries=None if retries else node.retries) for node in nodes.values()
        )
        graph = Graph(graph_nodes, tuple(edges), retries, lines, unless_exit)
        dag_file = f"{self._name}.dag"
        sources = ", ".join(dict.fromkeys(run.dag.file for run in self._runs))
        text = write_dag.dag_text(graph, self._name, f"goes on with {sources}")
        if "\ufffd" in text:
            number = text[: text.index("\ufffd")].count("\n") + 1
            reason = "it would contain text that is not UTF-8; write that otherwise"
            raise PlanError(f"{dag_file}:{number}: {reason}")
        files = [PlannedFile(dag_file, text.encode(), False, f"the DAG: {len(nodes)} nodes")]
        if self._gate_by_run:
            file = gate_config.rules_file(self._name)
            files.append(PlannedFile(file, self._rules().encode(), False, "the rules of its gate"))
        return Plan(
            request=Request("", self._directory, self._name, runs=len(self._runs)),
            dag_file=dag_file,
            files=tuple(files),
            runs=(),
            nodes=len(nodes),
            jobs=len(nodes),
            graph=graph,
        )

    # --- the nodes of a run -------------------------------------------------------------------

    def _run_nodes(self, run: ContinuedRun) -> Iterator[tuple[GraphNode, list[str]]]:
        """The nodes of one run, each with the names of its parents."""
        self._sites = self._planned_sites(run)
        kinds = self._evaluation_kinds(run)
        before: list[str] = []
        for epoch in run.epochs:
            nearest = max((number for number in run.nodes if number <= epoch), default=None)
            if nearest is None:
                text = f"no DAG file here has epoch {epoch + 1} of {run.run}, nor one before"
                remedy = "put the DAG file that has it beside this"
                raise PlanError(f"{run.dag.file}: {text}; {remedy}")
            source, shift = run.nodes[nearest], epoch - nearest
            training = self._new_node(run, source, epoch, shift, role=NodeRole.TRAIN)
            yield training, before
            before = [training.name]
            next_source = run.nodes.get(epoch + 1)
            evaluations = [(evaluation, 0) for evaluation in self._evaluations(run, source)]
            if shift:
                evaluations = [
                    (kind[max(kind)], epoch - max(kind))
                    for kind in kinds.values()
                    if _is_evaluated(kind, epoch)
                ]
            for evaluation, shift in evaluations:
                role = NodeRole.EVALUATE
                node = self._new_node(run, evaluation, epoch, shift, role=role)
                yield node, [training.name]
                if next_source is not None and next_source.node.name in evaluation.node.children:
                    before.append(node.name)

    def _planned_sites(self, run: ContinuedRun) -> dict[int, str]:
        """The site of each old and added epoch, as far as the DAG files specify it.

        An added epoch has the site that the run has not used for the longest time.
        """
        sites: dict[int, str] = {}
        for number, source in sorted(run.nodes.items()):
            if (site := variable(source.node, SITE_VARIABLE)) is None:
                return {}
            sites[number] = site
        for epoch in range(max(sites) + 1, run.last_epoch + 1):
            last_epoch_at = {site: number for number, site in sites.items()}
            sites[epoch] = min(last_epoch_at, key=last_epoch_at.__getitem__)
        return sites

    def _evaluation_kinds(self, run: ContinuedRun) -> dict[tuple[str, str], dict[int, SourceNode]]:
        """The side nodes of a run by epoch, by their name without the number."""
        kinds: dict[tuple[str, str], dict[int, SourceNode]] = {}
        if run.nodes.keys() >= set(run.epochs):
            return kinds
        for number, source in run.nodes.items():
            for evaluation in self._evaluations(run, source):
                before, _, behind = self._split_name(evaluation)
                kinds.setdefault((before, behind), {})[number] = evaluation
        return kinds

    def _evaluations(self, run: ContinuedRun, source: SourceNode) -> list[SourceNode]:
        """The side nodes that are children of a node, in the order of the file."""
        side_names = {name for dag, name in run.old_run.side_nodes if dag == source.dag.key}
        nodes = [
            source.dag.workflow.nodes[name] for name in source.node.children if name in side_names
        ]
        return [SourceNode(source.dag, node) for node in sorted(nodes, key=lambda node: node.line)]

    def _new_node(
        self, run: ContinuedRun, source: SourceNode, epoch: int, shift: int, role: NodeRole
    ) -> GraphNode:
        """The node of an epoch, copied from one of an old DAG that is ``shift`` epochs earlier."""
        dag, node = source
        if node.dir is not None or node.submit is None:
            reason = "its submit description" if node.submit is None else "a directory of its own"
            raise PlanError(
                f"{node.file}:{node.line}: {node.name} has {reason} in the DAG file, which is not "
                "carried over: put it into a submit file"
            )
        name, submit = node.name, node.submit
        if shift:
            before, number, behind = self._split_name(source)
            name = f"{before}{int(number) + shift}{behind}"
        node = self._node_as_written(source)
        if node.priority:
            self._node_lines.append(f"PRIORITY {name} {node.priority}")
        if node.category:
            self._node_lines.append(f"CATEGORY {name} {node.category}")
        if node.abort_on is not None:
            returns = "" if node.abort_return is None else f" RETURN {node.abort_return}"
            self._node_lines.append(f"ABORT-DAG-ON {name} {node.abort_on}{returns}")
        scripts = ((kind, getattr(node, kind.value)) for kind in ScriptKind)
        options = [script_options(kind, script) for kind, script in scripts if script is not None]
        graph_node = GraphNode(
            name,
            submit,
            role=role,
            run=run.run,
            epoch=epoch,
            post=node.post.command if node.post is not None else None,
            hold=node.hold.command if node.hold is not None else None,
            options=tuple(itertools.chain(*options)),
            retries=node.retries or None,
            unless_exit=node.unless_exit,
            noop=node.noop,
            where=f"{node.file}:{node.line}",
        )
        variables = tuple(self._variables(graph_node, node, run, dag, shift=shift))
        graph_node = replace(graph_node, variables=variables)
        return self._with_pre_script(graph_node, node, run, dag)

    def _node_as_written(self, source: SourceNode) -> Node:
        """The node as in the file, while the model's lacks its secrets. Raises PlanError."""
        dag, name = source.dag, source.node.name
        if dag.key not in self._source_dags:
            workflow = load_workflow([dag.workflow.path], read_regular_file, redact=False)
            self._source_dags[dag.key] = dag, workflow
        node = self._source_dags[dag.key][1].nodes.get(name)
        if node is None:
            raise PlanError(f"{dag.file}: {name} is in it no more; run this again")
        return node

    def _with_pre_script(
        self, graph_node: GraphNode, node: Node, run: ContinuedRun, dag: Dag
    ) -> GraphNode:
        """The node with its PRE script; a gate's script gets the new DAG's rules."""
        if node.pre is None:
            return graph_node
        defer, called = node.pre.defer, gate_command(node)
        if called is None:
            return replace(graph_node, pre=node.pre.command, defer=defer, skip_code=node.pre_skip)
        script, gate = called
        uuid = run.uuid
        if dag.key == run.dag.key or uuid not in self._gate_by_run:
            self._gate_by_run[uuid] = gate
        rules = gate_config.rules_file(self._name)
        quote = script[-1:] if script.endswith(("'", '"')) else ""
        arguments = f"{rules}{quote} {uuid} {graph_node.epoch} {graph_node.role} $JOB"
        return replace(
            graph_node,
            pre=f"{script}{arguments}",
            defer=defer or (gate_config.DEFER_CODE, StopRules().poll),
            skip_code=gate_config.SKIP_CODE,
        )

    def _split_name(self, source: SourceNode) -> tuple[str, str, str]:
        """A node's name before its epoch number, that number, and the rest."""
        node = source.node
        part = self._builder.runs.parts[source.dag.key, node.name]
        settings = self._builder.ensemble.settings
        match = (settings.train_node if part.training else settings.side_node).match(node.name)
        start, end = match.span("epoch") if match is not None else (-1, -1)
        if start < 0:
            numbers = list(re.finditer(r"\d+", node.name))
            if not numbers:
                raise PlanError(
                    f"{node.name}: no epoch's number is in its name: it cannot count on"
                )
            start, end = numbers[-1].span()
        return node.name[:start], node.name[start:end], node.name[end:]

    def _variables(
        self, new: GraphNode, node: Node, run: ContinuedRun, dag: Dag, shift: int
    ) -> Iterator[VariableValue]:
        assert new.epoch is not None
        sites, old_site = self._sites, self._sites.get(new.epoch - shift)
        epochs = run.old_run.epochs.items()
        old_epochs = 1 + max(n for n, keys in epochs if any(key == dag.key for key, _ in keys))
        attributes = {f"My.{key}": value for key, value in node.attributes.items()}
        names = set()
        for key, value in [*node.vars.items(), *attributes.items()]:
            lowered = key.lower()
            names.add(lowered)
            if lowered == gate_config.NODE_VARIABLE and value == node.name:
                value = new.name
            elif lowered == gate_config.DAG_VARIABLE:
                value = self._name
            elif lowered == "epoch" and value.isdecimal():
                value = str(int(value) + shift)
            elif lowered == SITE_VARIABLE.lower() and value == old_site:
                value = sites.get(new.epoch, value)
            elif lowered == "epochs" and value == str(old_epochs):
                value = str(run.last_epoch + 1)
            if value:
                yield VariableValue(key, value, Precedence.NODE, new.where)
        if new.epoch and new.role is NodeRole.TRAIN and CHECKPOINT_VARIABLE not in names:
            path, where = run.checkpoint_value, "it goes on"
            yield VariableValue(CHECKPOINT_VARIABLE, path, Precedence.NODE, where)

    # --- lines and rules ----------------------------------------------------------------------

    def _copied_lines(self, nodes: Mapping[str, GraphNode]) -> list[str]:
        """The old DAGs' global commands, and inline descriptions and save points of these nodes."""
        copied: dict[str, None] = {}
        submits = {node.submit for node in nodes.values()}
        for dag, _ in self._source_dags.values():
            for source, text in _commands(dag):
                command = source.command
                is_used = isinstance(command, DescriptionCommand) and command.name in submits
                is_used |= isinstance(command, SavePointCommand) and command.node in nodes
                if is_used or source.keyword in ("CONFIG", "MAXJOBS", "ENV", "SET_JOB_ATTR"):
                    copied[text] = None
        return list(copied)

    def _rules(self) -> str:
        """The merged rules of the old gates, with ``since`` for each continued run.

        Epochs before ``since`` serve for comparison only; otherwise the rule that stopped a run
        would immediately stop it again.
        """
        files = {gate: gate_config.rules_file(gate) for gate in self._gate_by_run.values()}
        contents = {gate: _read_json_object(self._directory / file) for gate, file in files.items()}
        first, *others = contents
        for other in others:
            if _stop_rules(contents[other]) != _stop_rules(contents[first]):
                text = f"the rules of {files[first]} and of {files[other]} are not the same"
                raise PlanError(f"{text}: continue the runs one by one")
        runs: dict[str, Any] = {}
        for content in contents.values():
            runs = {**content.get("runs", {}), **runs}
        for run in self._runs:
            uuid = run.uuid
            if uuid not in self._gate_by_run:
                continue
            if not isinstance(runs.get(uuid), dict):
                file = files[self._gate_by_run[uuid]]
                raise PlanError(f"{file} does not name the run {uuid}; add it there")
            runs[uuid] = {**runs[uuid], "since": run.first_epoch}
        return json.dumps({**contents[first], "dag": self._name, "runs": runs}, indent=1) + "\n"


def _commands(dag: Dag) -> Iterator[tuple[SourceCommand, str]]:
    """The commands of a DAG file and of those it includes, with their text as written."""
    paths = [dag.workflow.path]
    for path in paths:
        data = _read_bytes(path)
        lines = data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
        commands = list(read_commands(data, path.name))
        ends = [*(command.line - 1 for command in commands[1:]), len(lines)]
        for source, end in zip(commands, ends, strict=True):
            text = lines[source.line - 1 : end]
            while not text[-1].strip() or text[-1].lstrip().startswith(("#", "//")):
                text.pop()
            yield source, "\n".join(text).strip()
            if isinstance(source.command, IncludeCommand):
                name = Path(source.command.file).name
                paths += [
                    file for file in dag.workflow.files if file.name == name and file not in paths
                ]


def _read_bytes(path: Path) -> bytes:
    try:
        return read_file(os.path.realpath(path), LARGEST)
    except UnreadableFile as error:
        raise PlanError(f"{path}: {error}; mend that, then run this again") from None


def _stop_rules(content: Mapping[str, Any]) -> Any:
    """The rules in a gate's file, with the default goal if it has none."""
    rules = content.get("rules")
    return {"goal": "min", **rules} if isinstance(rules, dict) else rules


def _read_json_object(path: Path) -> dict[str, Any]:
    content = json_object(_read_bytes(path))
    if content is None or not isinstance(content.get("runs", {}), dict):
        raise PlanError(f"{path}: not the rules of a gate: a JSON object is expected; correct it")
    return content


def _is_evaluated(evaluations: Collection[int], epoch: int) -> bool:
    """Whether an added epoch has a side node, if the last two of these epochs are a pattern."""
    *_, before, last = sorted({-1, *evaluations})
    return (epoch - last) % (last - before) == 0
