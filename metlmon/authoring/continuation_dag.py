"""Builds a continuation DAG from the nodes of the old DAG files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring import gate_config, write_dag
from metlmon.authoring.graph import Graph, GraphNode, NodeRole, Precedence, VariableValue
from metlmon.authoring.request import Plan, PlanError, PlannedFile, Request
from metlmon.authoring.runs import CHECKPOINT_VARIABLE, SITE_VARIABLE
from metlmon.dagman.commands import DescriptionCommand, IncludeCommand
from metlmon.dagman.loader import load_workflow
from metlmon.dagman.parser import SourceCommand, read_commands
from metlmon.dagman.records import Node, Workflow
from metlmon.dagman.submit_description import Description
from metlmon.live.file_access import UnreadableFile, read_file, read_regular_file
from metlmon.model.dag import Dag
from metlmon.model.run import RunNodes, gate_command, variable
from metlmon.snapshot.builder import SnapshotBuilder

POLL: Final = 60
"""Seconds between the checks of a paused node, if the old DAG file does not specify it."""

LARGEST: Final = 64 << 20
"""Maximum size in bytes of a DAG file and of a gate's rules."""

_COPIED_COMMANDS: Final = frozenset({"CONFIG", "MAXJOBS", "ENV", "SET_JOB_ATTR"})


class ContinuedRun(
    Struct,
    frozen=True,
    rename={"done": "done_epoch", "first": "first_epoch", "last": "last_epoch"},
):
    """A run that is continued.

    ``done``: its last complete epoch, as in the node's name; None if there is none. ``first``,
    ``last``: the epochs to train. ``reason``: how the run ended before. ``checkpoint``: the
    checkpoint to start from, relative to the DAG file.
    """

    run: str
    uuid: str
    reason: str
    done: int | None
    first: int
    last: int
    checkpoint: str | None


class SourceNode(NamedTuple):
    """A node of an old DAG."""

    dag: Dag
    node: Node


class ContinuedRunPlan(NamedTuple):
    """A run that is continued, with one source node per epoch, from any DAG.

    ``dag``: the DAG that continued the run last. ``checkpoint``: value of
    ``continue_from_checkpoint`` for nodes that lack it in the old DAG.
    """

    continued: ContinuedRun
    run: RunNodes
    dag: Dag
    nodes: Mapping[int, SourceNode]
    checkpoint: str


class _NewNode(NamedTuple):
    """A node to write.

    ``source``: the node that it is derived from; ``shift``: by how many epochs it comes later;
    ``sites``: the site of each epoch of its run.
    """

    run_plan: ContinuedRunPlan
    source: SourceNode
    shift: int
    epoch: int
    role: NodeRole
    sites: Mapping[int, str]


class SourceDags:
    """The old DAGs as written, with secrets and descriptions; each is loaded once."""

    def __init__(self) -> None:
        self._workflows: dict[str, Workflow] = {}

    def _workflow(self, dag: Dag) -> Workflow:
        if dag.key not in self._workflows:
            self._workflows[dag.key] = load_workflow(
                [dag.workflow.path], read_regular_file, keep_descriptions=True, redact=False
            )
        return self._workflows[dag.key]

    def node(self, dag: Dag, name: str) -> Node:
        """The node as written; the model's is without its secrets. Raises PlanError."""
        node = self._workflow(dag).nodes.get(name)
        if node is None:
            raise PlanError(f"{dag.file}: {name} is in it no more; run this again")
        return node

    def description(self, dag: Dag, name: str) -> Description | None:
        """The submit description of a node; None if it cannot be read."""
        return self._workflow(dag).descriptions.get(name)


class ContinuationBuilder:
    """Builds the DAG ``name`` that continues these runs."""

    def __init__(
        self,
        builder: SnapshotBuilder,
        directory: Path,
        name: str,
        runs: Sequence[ContinuedRunPlan],
        sources: SourceDags,
    ) -> None:
        self._sources = sources
        self._builder, self._directory, self._name, self._runs = builder, directory, name, runs
        self.notes: list[str] = []
        self._source_dags: dict[str, Dag] = {}
        self._node_lines: list[str] = []
        self._gate_by_run: dict[str, str] = {}
        self._retries: dict[str, int] = {}

    def plan(self) -> Plan:
        """Return the plan of the DAG. Raises PlanError."""
        nodes: dict[str, GraphNode] = {}
        edges: list[tuple[str, str]] = []
        for run_plan in self._runs:
            for node, parents in self._run_nodes(run_plan):
                if node.name in nodes:
                    text = f"two of the runs have a node {node.name}: continue them one by one"
                    raise PlanError(text)
                nodes[node.name] = node
                edges += [(parent, node.name) for parent in parents]
        lines = (*self._copied_lines({node.submit for node in nodes.values()}), *self._node_lines)
        # The most common retries would need no line each; only those of all nodes are shared.
        common = set(self._retries.values())
        retries = common.pop() if len(common) == 1 else 0
        graph_nodes = tuple(
            node if retries else replace(node, retries=self._retries[name] or None)
            for name, node in nodes.items()
        )
        graph = Graph(graph_nodes, tuple(edges), retries, lines)
        dag_file = f"{self._name}.dag"
        sources = ", ".join(dict.fromkeys(run_plan.dag.file for run_plan in self._runs))
        text = write_dag.dag_text(graph, self._name, f"goes on with {sources}")
        if "\ufffd" in text:
            number = text[: text.index("\ufffd")].count("\n") + 1
            reason = "it would hold what is no UTF-8 text; write that otherwise"
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

    def _run_nodes(self, run_plan: ContinuedRunPlan) -> Iterator[tuple[GraphNode, list[str]]]:
        """The nodes of one run, each with the names of its parents."""
        continued, old_nodes = run_plan.continued, run_plan.nodes
        sites, kinds = self._planned_sites(run_plan), self._evaluation_kinds(run_plan)
        before: list[str] = []
        for epoch in range(continued.first, continued.last + 1):
            nearest = max((number for number in old_nodes if number <= epoch), default=None)
            if nearest is None:
                text = f"no DAG file here has epoch {epoch + 1} of {continued.run}, nor one before"
                remedy = "put the DAG file that has it beside this"
                raise PlanError(f"{run_plan.dag.file}: {text}; {remedy}")
            source, shift = old_nodes[nearest], epoch - nearest
            training = self._new_node(
                _NewNode(run_plan, source, shift, epoch, role=NodeRole.TRAIN, sites=sites)
            )
            yield training, before
            before = [training.name]
            next_source = old_nodes.get(epoch + 1)
            evaluations = [(evaluation, 0) for evaluation in self._evaluations(run_plan, source)]
            if shift:
                added = (_added_evaluation(old_nodes, kind, epoch) for kind in kinds.values())
                evaluations = [evaluation for evaluation in added if evaluation is not None]
            for evaluation, shift in evaluations:
                node = self._new_node(
                    _NewNode(
                        run_plan, evaluation, shift, epoch, role=NodeRole.EVALUATE, sites=sites
                    )
                )
                yield node, [training.name]
                if next_source is not None and next_source.node.name in evaluation.node.children:
                    before.append(node.name)

    def _planned_sites(self, run_plan: ContinuedRunPlan) -> dict[int, str]:
        """The site of each old and added epoch, as far as the DAG files specify it."""
        sites: dict[int, str] = {}
        for number, source in run_plan.nodes.items():
            if (site := variable(source.node, SITE_VARIABLE)) is None:
                return {}
            sites[number] = site
        last_known, last_epoch = max(sites), run_plan.continued.last
        for epoch in range(last_known + 1, last_epoch + 1):
            site = next_site(sites, epoch)
            if site is None:
                which = f"epochs {last_known + 2} to {last_epoch + 1}"
                if last_epoch == last_known + 1:
                    which = f"epoch {last_epoch + 1}"
                text = f"its sites follow no pattern: {which} go to that of epoch {last_known + 1}"
                self.notes.append(f"{run_plan.continued.run}: {text}, {sites[last_known]}")
                break
            sites[epoch] = site
        return sites

    def _evaluation_kinds(
        self, run_plan: ContinuedRunPlan
    ) -> dict[tuple[str, str], dict[int, SourceNode]]:
        """The side nodes of a run by epoch, by their name without the number.

        Empty if no epoch is added.
        """
        kinds: dict[tuple[str, str], dict[int, SourceNode]] = {}
        continued = run_plan.continued
        if run_plan.nodes.keys() >= set(range(continued.first, continued.last + 1)):
            return kinds
        for number, source in run_plan.nodes.items():
            for evaluation in self._evaluations(run_plan, source):
                before, _, behind = self._split_name(evaluation)
                kinds.setdefault((before, behind), {})[number] = evaluation
        for kind, evaluations in kinds.items():
            if period(run_plan.nodes, evaluations) is None:
                text = "follows no pattern: it comes after added epochs as after the last one"
                self.notes.append(f"{continued.run}: {'N'.join(kind)} {text}")
        return kinds

    def _evaluations(self, run_plan: ContinuedRunPlan, source: SourceNode) -> list[SourceNode]:
        """The side nodes that are children of a node, in the order of the file."""
        side_names = {name for dag, name in run_plan.run.side_nodes if dag == source.dag.key}
        nodes = [
            source.dag.workflow.nodes[name] for name in source.node.children if name in side_names
        ]
        return [SourceNode(source.dag, node) for node in sorted(nodes, key=lambda node: node.line)]

    def _new_node(self, new: _NewNode) -> GraphNode:
        node, dag = new.source.node, new.source.dag
        if node.dir is not None or node.submit is None:
            reason = "its submit description" if node.submit is None else "a directory of its own"
            raise PlanError(
                f"{node.file}:{node.line}: {node.name} has {reason} in the DAG file, which is not "
                "carried over: put it into a submit file"
            )
        name, submit = node.name, node.submit
        if new.shift:
            before, number, behind = self._split_name(new.source)
            name = f"{before}{int(number) + new.shift}{behind}"
        node = self._sources.node(dag, node.name)
        self._source_dags[dag.key] = dag
        self._retries[name] = node.retries
        if node.priority:
            self._node_lines.append(f"PRIORITY {name} {node.priority}")
        if node.category:
            self._node_lines.append(f"CATEGORY {name} {node.category}")
        post = node.post.command if node.post is not None else None
        if node.post is not None and node.post.defer is not None:
            defer = "{} {}".format(*node.post.defer)
            self._node_lines.append(f"SCRIPT DEFER {defer} POST {name} {post}")
            post = None
        graph_node = GraphNode(
            name,
            submit,
            role=new.role,
            run=new.run_plan.continued.run,
            epoch=new.epoch,
            variables=tuple(self._variables(new, node, name)),
            post=post,
            noop=node.noop,
            where=f"{node.file}:{node.line}",
        )
        return self._with_pre_script(graph_node, new, node)

    def _with_pre_script(self, graph_node: GraphNode, new: _NewNode, node: Node) -> GraphNode:
        """The node with its PRE script; that of a gate with the new DAG's rules."""
        if node.pre is None:
            return graph_node
        defer, called = node.pre.defer, gate_command(node)
        if called is None:
            skip = node.pre_skip
            return replace(graph_node, pre=node.pre.command, defer=defer, skip_code=skip)
        script, gate = called
        uuid = new.run_plan.continued.uuid
        if new.source.dag.key == new.run_plan.dag.key or uuid not in self._gate_by_run:
            self._gate_by_run[uuid] = gate
        quote = script[-1:] if script.endswith(("'", '"')) else ""
        role = "train" if new.role is NodeRole.TRAIN else "evaluate"
        arguments = f"{gate_config.rules_file(self._name)}{quote} {uuid} {new.epoch} {role} $JOB"
        return replace(
            graph_node,
            pre=f"{script}{arguments}",
            defer=defer or (gate_config.DEFER_CODE, POLL),
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

    def _variables(self, new: _NewNode, node: Node, name: str) -> Iterator[VariableValue]:
        where = f"{node.file}:{node.line}"
        run_plan, epoch, shift, sites = new.run_plan, new.epoch, new.shift, new.sites
        dag_key = new.source.dag.key
        dags_by_epoch = run_plan.run.epochs.items()
        old_epochs = 1 + max(
            n for n, keys in dags_by_epoch if any(key == dag_key for key, _ in keys)
        )
        attributes = {f"My.{key}": value for key, value in node.attributes.items()}
        names = set()
        for key, value in [*node.vars.items(), *attributes.items()]:
            lowered = key.lower()
            names.add(lowered)
            if lowered == gate_config.NODE_VARIABLE and value == node.name:
                value = name
            elif lowered == gate_config.DAG_VARIABLE:
                value = self._name
            elif lowered == "epoch" and value.isdecimal():
                value = str(int(value) + shift)
            elif lowered == SITE_VARIABLE.lower() and value == sites.get(epoch - shift):
                value = sites.get(epoch, value)
            elif lowered == "epochs" and value == str(old_epochs):
                value = str(run_plan.continued.last + 1)
            if value:
                yield VariableValue(key, value, Precedence.NODE, where)
        if epoch and new.role is NodeRole.TRAIN and CHECKPOINT_VARIABLE not in names:
            yield VariableValue(
                CHECKPOINT_VARIABLE, run_plan.checkpoint, Precedence.NODE, "it goes on"
            )

    # --- lines and rules ----------------------------------------------------------------------

    def _copied_lines(self, submits: Collection[str]) -> list[str]:
        """The old DAGs' global commands, and inline descriptions named in ``submits``."""
        copied: dict[str, None] = {}
        for dag in self._source_dags.values():
            for source, text in _commands(dag):
                command = source.command
                is_used = isinstance(command, DescriptionCommand) and command.name in submits
                if is_used or source.keyword in _COPIED_COMMANDS:
                    copied[text] = None
        return list(copied)

    def _rules(self) -> str:
        """The merged rules of the old gates, with ``since`` for each continued run.

        Epochs before ``since`` serve for comparison only; otherwise the rule that stopped a run
        would stop it again at once.
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
        for run_plan in self._runs:
            uuid = run_plan.continued.uuid
            if uuid not in self._gate_by_run:
                continue
            if not isinstance(runs.get(uuid), dict):
                file = files[self._gate_by_run[uuid]]
                raise PlanError(f"{file} does not name the run {uuid}; add it there")
            runs[uuid] = {**runs[uuid], "since": run_plan.continued.first}
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
    try:
        content = json.loads(_read_bytes(path))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("runs", {}), dict):
        raise PlanError(f"{path}: these are no rules of a gate: a JSON object is expected; mend it")
    return content


# --- patterns of epochs ---------------------------------------------------------------------------


def _added_evaluation(
    epochs: Collection[int], evaluations: Mapping[int, SourceNode], epoch: int
) -> tuple[SourceNode, int] | None:
    """The side node of one kind that an added epoch has, and its shift, or None."""
    regular = period(epochs, evaluations)
    candidates = epochs if regular is None else evaluations
    nearest = max((number for number in candidates if number < epoch), default=None)
    step, remainder = regular or (1, 0)
    if nearest is None or nearest not in evaluations or epoch % step != remainder:
        return None
    return evaluations[nearest], epoch - nearest


def period(epochs: Collection[int], selected: Collection[int]) -> tuple[int, int] | None:
    """(n, r) such that ``selected`` are those ``epochs`` that leave r modulo n.

    The least n; None if there is none, or if it would be longer than the observed epochs.
    """
    last = max(selected)
    for n in range(1, last + 2):
        if {epoch for epoch in epochs if epoch % n == last % n} == set(selected):
            return n, last % n
    return None


def next_site(sites: Mapping[int, str], epoch: int) -> str | None:
    """The site of ``epoch``, given the ``sites`` of earlier epochs.

    The common site; or, if each site occurs once per round, the one of the remaining sites that was
    used least recently. None if there is no such pattern.
    """
    names = set(sites.values())
    if len(names) == 1:
        return next(iter(names))
    rounds: dict[int, set[str]] = {}
    last_epoch_at: dict[str, int] = {}
    for past_epoch in sorted(sites):
        used_sites = rounds.setdefault(past_epoch // len(names), set())
        if sites[past_epoch] in used_sites:
            return None
        used_sites.add(sites[past_epoch])
        last_epoch_at[sites[past_epoch]] = past_epoch
    remaining = names - rounds.get(epoch // len(names), set())
    return min(remaining, key=lambda site: last_epoch_at[site], default=None)
