"""The DAG that goes on with runs: its nodes, by what the old DAG files say of them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from metlmon.authoring import gate_config, write_dag
from metlmon.authoring.checkpoints import VARIABLE
from metlmon.authoring.epoch_pattern import next_site, period
from metlmon.authoring.graph import Graph, GraphNode, NodeRole, Precedence, VariableValue
from metlmon.authoring.request import Plan, PlanError, PlannedFile, Request
from metlmon.authoring.runs import PLACE
from metlmon.dagman import Node, node_commands
from metlmon.dagman.commands import ALL_NODES, IncludeCommand, NodeModifier
from metlmon.dagman.parser import parse_dag
from metlmon.frozen import frozen
from metlmon.live.safe_glob import content_of
from metlmon.live.tail import NotRead
from metlmon.model.dag import Dag
from metlmon.model.gates import gate_called
from metlmon.model.run import Run, variable
from metlmon.redact import HIDDEN
from metlmon.snapshot.builder import SnapshotBuilder

POLL: Final = 60
"""Seconds after which a paused node asks again, where the old DAG file does not say."""

LARGEST: Final = 64 << 20
"""Bytes of a DAG file, and of a gate's rules."""

_KEPT_LINES: Final = re.compile(r"\s*(?:CONFIG|MAXJOBS|ENV|SET[_-]JOB[_-]ATTR)\s", re.IGNORECASE)
_DESCRIPTION: Final = re.compile(r"\s*SUBMIT[_-]DESCRIPTION\s+(\S+)\s+(\{|@=(\S+))", re.IGNORECASE)


@frozen
class ContinuedRun:
    """A run that goes on. ``done``: its last epoch that is complete, as in its node's name, None
    where none is; ``first`` and ``last``: of the epochs that are to be trained; ``why``: how it
    ended before; ``checkpoint``: where it goes on from, as seen from the DAG file."""

    run: str
    uuid: str
    why: str
    done: int | None
    first: int
    last: int
    checkpoint: str | None


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A node of an old DAG."""

    dag: Dag
    node: Node


@dataclass(frozen=True, slots=True)
class ContinuedRunPlan:
    """A run that goes on, with the nodes that tell how: of every epoch one, of any DAG. ``dag``:
    in which it went on last; ``checkpoint``: what ``continue_from_checkpoint`` is in a node that
    has none in the old DAG."""

    told: ContinuedRun
    run: Run
    dag: Dag
    nodes: Mapping[int, SourceNode]
    checkpoint: str


_Like = tuple[SourceNode, int]
"""A node that another one is like, and by how many epochs that comes later."""


@dataclass(frozen=True, slots=True)
class _NewNode:
    """A node that is to be. ``of``: which it is like, ``shift``: by how many epochs it comes later;
    ``sites``: where each epoch of its run is to go."""

    going: ContinuedRunPlan
    of: SourceNode
    shift: int
    epoch: int
    role: NodeRole
    sites: Mapping[int, str]


class ContinuationBuilder:
    """The DAG ``name``, of these runs."""

    def __init__(
        self, painter: SnapshotBuilder, directory: Path, name: str, runs: Sequence[ContinuedRunPlan]
    ) -> None:
        self._painter, self._directory, self._name, self._runs = painter, directory, name, runs
        self._texts: dict[str, list[str]] = {}
        self._said: dict[str, dict[str, list[tuple[int, NodeModifier]]]] = {}
        self._used: dict[str, Dag] = {}
        self.remarks: list[str] = []
        self._lines: dict[str, None] = {}
        self._about: list[str] = []
        self._gates: dict[str, str] = {}
        self._retries: dict[str, int] = {}

    def plan(self) -> Plan:
        nodes: list[GraphNode] = []
        edges: list[tuple[str, str]] = []
        for going in self._runs:
            for node, parents in self._nodes_of(going):
                nodes.append(node)
                edges += [(parent, node.name) for parent in parents]
        names = [node.name for node in nodes]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise PlanError(f"two of the runs have a node {twice}: continue them one by one")
        self._keep_lines(nodes)
        different = set(self._retries.values())
        retries = different.pop() if len(different) == 1 else 0
        if not retries:
            nodes = [replace(node, retries=self._retries[node.name] or None) for node in nodes]
        graph = Graph(tuple(nodes), tuple(edges), retries, (*self._lines, *self._about))
        dag_file = f"{self._name}.dag"
        about = f"goes on with {', '.join(dict.fromkeys(each.dag.file for each in self._runs))}"
        text = write_dag.dag_text(graph, self._name, about)
        of_dag = f"the DAG: {len(nodes)} nodes"
        files = [PlannedFile(dag_file, text.encode(), False, of_dag)]
        if self._gates:
            rules = self._rules().encode()
            what = "the rules of its gate"
            files.append(PlannedFile(gate_config.rules_file(self._name), rules, False, what))
        request = Request("", self._directory, self._name, runs=len(self._runs))
        return Plan(request, dag_file, tuple(files), (), len(nodes), len(nodes), graph)

    def _nodes_of(self, going: ContinuedRunPlan) -> Iterator[tuple[GraphNode, list[str]]]:
        """The nodes of one run, each with the names of those before it."""
        sites, kinds = self._sites_of(going), self._kinds_of(going)
        before: list[str] = []
        for epoch in range(going.told.first, going.told.last + 1):
            old, shift = self._like(going, epoch)
            train = self._node(_NewNode(going, old, shift, epoch, NodeRole.TRAIN, sites))
            yield train, before
            before = [train.name]
            following = going.nodes.get(epoch + 1)
            if shift:
                sides = [
                    each for kind in kinds.values() for each in self._added(going, kind, epoch)
                ]
            else:
                sides = [(each, 0) for each in self._after(going, old)]
            for side, later in sides:
                node = self._node(_NewNode(going, side, later, epoch, NodeRole.EVALUATE, sites))
                yield node, [train.name]
                if following is not None and following.node.name in side.node.children:
                    before.append(node.name)

    def _sites_of(self, going: ContinuedRunPlan) -> dict[int, str]:
        """Where each epoch is to go, as far as the DAG file says it: the old ones, and those that
        are added."""
        told = {number: variable(old.node, PLACE) for number, old in going.nodes.items()}
        sites = {number: site for number, site in told.items() if site is not None}
        if len(sites) < len(told):
            return {}
        last, end = max(sites), going.told.last
        for epoch in range(last + 1, end + 1):
            site = next_site(sites, epoch)
            if site is None:
                some = f"epoch {end}" if end == last + 1 else f"epochs {last + 1} to {end}"
                text = f"its sites follow no pattern: {some} go to that of epoch {last}"
                self.remarks.append(f"{going.told.run}: {text}, {sites[last]}")
                break
            sites[epoch] = site
        return sites

    def _like(self, going: ContinuedRunPlan, epoch: int) -> _Like:
        """The node that the epoch had in an old DAG, or would have had: then by how many epochs
        it comes later than the nearest one before it. Raises PlanError where there is none."""
        if epoch in going.nodes:
            return going.nodes[epoch], 0
        before = max((number for number in going.nodes if number < epoch), default=None)
        if before is None:
            text = f"no DAG file here has epoch {epoch} of {going.told.run}, nor one before it"
            raise PlanError(f"{going.dag.file}: {text}; put the DAG file that has it beside this")
        return going.nodes[before], epoch - before

    def _kinds_of(self, going: ContinuedRunPlan) -> dict[tuple[str, str], dict[int, SourceNode]]:
        """The side nodes of a run by epoch, those together whose names differ by its number
        alone; none where no epoch is added."""
        kinds: dict[tuple[str, str], dict[int, SourceNode]] = {}
        if all(epoch in going.nodes for epoch in range(going.told.first, going.told.last + 1)):
            return kinds
        for number, old in going.nodes.items():
            for side in self._after(going, old):
                kinds.setdefault(self._around(side), {})[number] = side
        for kind, sides in kinds.items():
            if period(going.nodes, sides) is None:
                text = "follows no pattern: it comes after added epochs as after the last one"
                self.remarks.append(f"{going.told.run}: {'N'.join(kind)} {text}")
        return kinds

    def _added(
        self, going: ContinuedRunPlan, sides: Mapping[int, SourceNode], epoch: int
    ) -> Iterator[_Like]:
        """What of one kind of side nodes an added epoch has."""
        regular = period(going.nodes, sides)
        of = going.nodes if regular is None else sides
        like = max((number for number in of if number < epoch), default=None)
        n, rest = regular or (1, 0)
        if like is not None and like in sides and epoch % n == rest:
            yield sides[like], epoch - like

    def _after(self, going: ContinuedRunPlan, old: SourceNode) -> list[SourceNode]:
        """The side nodes directly behind a node, in the order of the file."""
        side = {name for dag, name in going.run.side if dag == old.dag.key}
        nodes = [old.dag.workflow.nodes[name] for name in old.node.children if name in side]
        return [SourceNode(old.dag, each) for each in sorted(nodes, key=lambda node: node.line)]

    def _node(self, new: _NewNode) -> GraphNode:
        old, dag = new.of.node, new.of.dag
        if old.dir is not None or old.submit is None:
            what = "its submit description" if old.submit is None else "a directory of its own"
            raise PlanError(
                f"{old.file}:{old.line}: {old.name} has {what} in the DAG file, which is not "
                "carried over: put it into a submit file"
            )
        name, submit = self._counted_on(new), old.submit
        old = self._as_written(new.of)
        self._used[dag.key] = dag
        self._retries[name] = old.retries
        if old.priority:
            self._about.append(f"PRIORITY {name} {old.priority}")
        if old.category:
            self._about.append(f"CATEGORY {name} {old.category}")
        pre, defer, skip = self._script(new, old)
        return GraphNode(
            name,
            submit,
            role=new.role,
            run=new.going.told.run,
            epoch=new.epoch,
            variables=tuple(self._variables(new, old, name)),
            pre=pre,
            defer=defer,
            skip=skip,
            post=self._post(name, old),
            noop=old.noop,
            where=f"{old.file}:{old.line}",
        )

    def _as_written(self, of: SourceNode) -> Node:
        """The node with what was hidden of it when it was read, for it would be lost. Raises
        PlanError where the DAG file itself does not say it."""
        old = of.node
        if not _is_hidden(old):
            return old
        whole = replace(old, vars={}, attributes={}, pre=None, post=None)
        commands = self._commands(of.dag)
        about = [*commands.get(ALL_NODES, ()), *commands.get(old.name, ())]
        for _, command in sorted(about, key=itemgetter(0)):
            if node_commands.applies(command, whole):
                node_commands.apply(command, whole)
        said = [{*each.vars, *each.attributes} for each in (old, whole)]
        if said[0] != said[1] or _is_hidden(whole):
            text = f"what looks like a secret of {old.name} stands in a file that this one includes"
            raise PlanError(f"{old.file}:{old.line}: {text}; write it here, or into a file of jobs")
        return replace(
            old, vars=whole.vars, attributes=whole.attributes, pre=whole.pre, post=whole.post
        )

    def _commands(self, dag: Dag) -> Mapping[str, list[tuple[int, NodeModifier]]]:
        """What the DAG file says of each node, as it is written there, and at which place."""
        key = dag.key
        if key not in self._said:
            text = "\n".join(self._text(dag)).encode("utf-8", "surrogateescape")
            found = self._said[key] = {}
            for at, each in enumerate(parse_dag(text, key).commands):
                if isinstance(each, NodeModifier):
                    name = ALL_NODES if each.node.upper() == ALL_NODES else each.node
                    found.setdefault(name, []).append((at, each))
        return self._said[key]

    def _text(self, dag: Dag) -> list[str]:
        """The lines of a DAG file."""
        if dag.key not in self._texts:
            self._texts[dag.key] = _lines_of(dag.workflow.path)
        return self._texts[dag.key]

    def _texts_of(self, dag: Dag) -> Iterator[list[str]]:
        """The lines of a DAG file, and of each that it includes."""
        ahead, seen = [dag.workflow.path], set()
        while ahead:
            path = ahead.pop(0)
            lines = self._text(dag) if path == dag.workflow.path else _lines_of(path)
            seen.add(path)
            yield lines
            text = "\n".join(lines).encode("utf-8", "surrogateescape")
            named = {
                Path(each.file).name
                for each in parse_dag(text, path.name).commands
                if isinstance(each, IncludeCommand)
            }
            files = dag.workflow.files
            ahead += [each for each in files if each.name in named and each not in seen]

    def _counted_on(self, new: _NewNode) -> str:
        if not new.shift:
            return new.of.node.name
        before, number, behind = self._numbered(new.of)
        return f"{before}{int(number) + new.shift}{behind}"

    def _around(self, of: SourceNode) -> tuple[str, str]:
        """A node's name without its epoch's number."""
        before, _, behind = self._numbered(of)
        return before, behind

    def _numbered(self, of: SourceNode) -> tuple[str, str, str]:
        """The epoch's number in a node's name, and what is around it."""
        old = of.node
        part = self._painter.runs.parts[of.dag.key, old.name]
        numbers = list(re.finditer(r"\d+", old.name))
        settings = self._painter.ensemble.settings
        pattern = settings.train_node if part.training else settings.side_node
        match = pattern.match(old.name)
        span = match.span("epoch") if match is not None else (-1, -1)
        if span == (-1, -1) and numbers:
            span = numbers[-1].span()
        if span == (-1, -1):
            raise PlanError(f"{old.name}: no epoch's number is in its name: it cannot count on")
        begin, end = span
        return old.name[:begin], old.name[begin:end], old.name[end:]

    def _variables(self, new: _NewNode, old: Node, name: str) -> Iterator[VariableValue]:
        where = f"{old.file}:{old.line}"
        going, epoch, shift, sites = new.going, new.epoch, new.shift, new.sites
        before = 1 + max(
            number
            for number, keys in going.run.epochs.items()
            if any(key == new.of.dag.key for key, _ in keys)
        )
        total = going.told.last + 1
        seen = set()
        attributes = [(f"My.{key}", value) for key, value in old.attributes.items()]
        for key, value in [*old.vars.items(), *attributes]:
            lowered = key.lower()
            seen.add(lowered)
            if lowered == gate_config.NODE and value == old.name:
                value = name
            elif lowered == gate_config.DAG:
                value = self._name
            elif lowered == "epoch" and value.isdecimal():
                value = str(int(value) + shift)
            elif lowered == PLACE.lower() and value == sites.get(epoch - shift):
                value = sites.get(epoch, value)
            elif lowered == "epochs" and value == str(before):
                value = str(total)
            if "\ufffd" in value:
                text = f"the value of {key} is no UTF-8 text, and would become another one"
                raise PlanError(f"{where}: {text}; write that otherwise")
            if value:
                yield VariableValue(key, value, Precedence.NODE, where)
        if epoch and new.role is NodeRole.TRAIN and VARIABLE not in seen:
            yield VariableValue(VARIABLE, going.checkpoint, Precedence.NODE, "it goes on")

    def _script(
        self, new: _NewNode, old: Node
    ) -> tuple[str | None, tuple[int, int] | None, int | None]:
        if old.pre is None:
            return None, None, None
        asks, called = old.pre.defer, gate_called(old)
        if called is None:
            return old.pre.command, asks, old.pre_skip
        script, gate = called
        uuid = new.going.told.uuid
        if new.of.dag.key == new.going.dag.key or uuid not in self._gates:
            self._gates[uuid] = gate
        quote = script[-1:] if script.endswith(("'", '"')) else ""
        word = "train" if new.role is NodeRole.TRAIN else "evaluate"
        said = f"{gate_config.rules_file(self._name)}{quote} {uuid} {new.epoch} {word} $JOB"
        return f"{script}{said}", asks or (gate_config.LATER, POLL), gate_config.SKIP

    def _post(self, name: str, old: Node) -> str | None:
        if old.post is None or old.post.defer is None:
            return old.post.command if old.post is not None else None
        asks = "{} {}".format(*old.post.defer)
        self._about.append(f"SCRIPT DEFER {asks} POST {name} {old.post.command}")
        return None

    def _keep_lines(self, nodes: Sequence[GraphNode]) -> None:
        """Commands of the old DAG files that are of all nodes, and what describes these."""
        wanted = {node.submit for node in nodes}
        for lines in chain.from_iterable(map(self._texts_of, self._used.values())):
            described = set()
            for description, text, place in _descriptions(lines):
                described |= set(place)
                if description in wanted:
                    self._lines[text] = None
            commands = (line for at, line in enumerate(lines) if at not in described)
            for line in filter(_KEPT_LINES.match, commands):
                self._lines[line.strip()] = None

    def _rules(self) -> str:
        """The old gates' rules; epochs that are done are what later ones are compared with, no
        more, or what ended the run would end it again at once."""
        files = {gate: gate_config.rules_file(gate) for gate in self._gates.values()}
        said = {gate: _object(self._directory / file) for gate, file in files.items()}
        first, *others = said
        for other in others:
            if _rules_of(said[other]) != _rules_of(said[first]):
                text = f"the rules of {files[first]} and of {files[other]} are not the same"
                raise PlanError(f"{text}: continue the runs one by one")
        runs: dict[str, Any] = {}
        for each in said.values():
            runs = {**each.get("runs", {}), **runs}
        for going in self._runs:
            uuid = going.told.uuid
            if uuid not in self._gates:
                continue
            if not isinstance(runs.get(uuid), dict):
                file = files[self._gates[uuid]]
                raise PlanError(f"{file} does not name the run {uuid}; add it there")
            runs[uuid] = {**runs[uuid], "since": going.told.first}
        return json.dumps({**said[first], "dag": self._name, "runs": runs}, indent=1) + "\n"


def _is_hidden(node: Node) -> bool:
    """Whether something of the node was not told when it was read."""
    scripts = [script.command for script in (node.pre, node.post) if script is not None]
    return any(
        HIDDEN in text for text in (*node.vars.values(), *node.attributes.values(), *scripts)
    )


def _lines_of(path: Path) -> list[str]:
    text = _read(path).decode("utf-8", "surrogateescape")
    # Not at all that Unicode takes for a line's end: DAGMan does not.
    return [line.removesuffix("\r") for line in text.split("\n")]


def _read(path: Path) -> bytes:
    try:
        return content_of(os.path.realpath(path), LARGEST)
    except NotRead as error:
        raise PlanError(f"{path}: {error}; mend that, then say this again") from None


def _descriptions(lines: Sequence[str]) -> Iterator[tuple[str, str, range]]:
    """The submit descriptions that stand in a DAG file: name, all lines, and where these are."""
    at = 0
    while at < len(lines):
        match = _DESCRIPTION.match(lines[at])
        end = at
        if match is not None:
            closing = "}" if match.group(2) == "{" else f"@{match.group(3)}"
            while end + 1 < len(lines) and lines[end].strip() != closing:
                end += 1
            yield match.group(1), "\n".join(lines[at : end + 1]), range(at, end + 1)
        at = end + 1


def _rules_of(said: Mapping[str, Any]) -> Any:
    """The rules in a gate's file, with the goal that they have where they do not say it."""
    rules = said.get("rules")
    return {"goal": "min", **rules} if isinstance(rules, dict) else rules


def _object(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(_read(path))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("runs", {}), dict):
        raise PlanError(f"{path}: these are no rules of a gate: a JSON object is expected; mend it")
    return said
