"""A DAG that goes on with runs of another one: from their checkpoints, same uuids, epochs counting
on.

Skipped nodes are done for ever in a rescue, and so is a node that another one takes for its own; so
what was stopped, or was left unfinished, goes on in a DAG of its own beside the old one. Everything
in it is as the old DAG file says of the same epoch, or of the run's last one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from metlmon.authoring import dagtext, gating
from metlmon.authoring.graph import Given, Graph, GraphNode, Level, Role
from metlmon.authoring.place import in_the_way, is_locked, leftovers
from metlmon.authoring.records import Plan, PlanError, PlannedFile, Request
from metlmon.dagman import Node, modify
from metlmon.dagman.commands import ALL_NODES, NodeModifier
from metlmon.dagman.dagfile import parse_dag
from metlmon.ensemble.dag import Dag
from metlmon.ensemble.gates import gate_name
from metlmon.ensemble.gatewords import gate_told
from metlmon.ensemble.picture import Painter
from metlmon.ensemble.runs import Run, variable
from metlmon.ensemble.states import DagState, State
from metlmon.ensemble.wording import STATES
from metlmon.frozen import frozen
from metlmon.secret import HIDDEN
from metlmon.training.metricscsv import read_metrics_csv

POLL: Final = 60
"""Seconds after which a paused node asks again, where the old DAG file does not say."""

LARGEST: Final = 64 << 20
"""Bytes of a DAG file, and of a gate's rules."""

_NUMBERED: Final = re.compile(r"(.+?)-(\d{1,4})")
_KEPT_LINES: Final = re.compile(r"\s*(?:CONFIG|MAXJOBS|ENV|SET[_-]JOB[_-]ATTR)\s", re.IGNORECASE)
_DESCRIPTION: Final = re.compile(r"\s*SUBMIT[_-]DESCRIPTION\s+(\S+)\s+(\{|@=(\S+))", re.IGNORECASE)
_DEFER: Final = re.compile(
    r"\s*SCRIPT\s+DEFER\s+(\d{1,3})\s+(\d{1,7})\s+PRE\s+(\S+)", re.IGNORECASE
)
_VERSION: Final = re.compile(r"version_(\d{1,9})")


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


@frozen
class LeftOut:
    """A run that does not go on, and why, in words."""

    run: str
    uuid: str | None
    why: str


@frozen
class Continuation:
    """What would be written. ``plan`` None: no run goes on. ``of``: the DAG files that it goes on
    with."""

    plan: Plan | None
    of: tuple[str, ...]
    runs: tuple[ContinuedRun, ...]
    left_out: tuple[LeftOut, ...]


def continuation(
    painter: Painter, directory: Path, wanted: Sequence[str] = (), epochs: int | None = None
) -> Continuation:
    """What goes on with the runs that ``wanted`` names (by name or uuid; empty: all that are not
    complete). ``epochs``: how many each run is to have in the end, None: as many as it was to
    have. Nothing is written. Raises PlanError where nothing can go on."""
    runs = _asked_for(painter, wanted)
    found: list[_Going] = []
    left_out: list[LeftOut] = []
    for run in runs:
        going = _going(painter, directory, run, epochs)
        if isinstance(going, _Going):
            found.append(going)
        elif going is not None or wanted:
            why = going or "it has all its epochs; --epochs N gives it more"
            left_out.append(LeftOut(run.names[painter.home(run)], run.uuid, why))
    dags = list(dict.fromkeys(each.dag.key for each in found))
    base = _base(painter, dags)
    told = tuple(each.told for each in found)
    files = tuple(painter.dags[key].file for key in dags)
    if not found:
        return Continuation(None, files, (), tuple(left_out))
    # Not only where it went on last: a DAG that has come to none of its nodes yet has it, too.
    for key in dict.fromkeys(key for each in found for key, _ in each.run.nodes()):
        _refuse_if_it_runs(painter, painter.dags[key])
    plan = _Writing(painter, directory, _free_name(painter, directory, base), found).plan()
    return Continuation(plan, files, told, tuple(left_out))


# --- which runs -----------------------------------------------------------------------------


def _asked_for(painter: Painter, wanted: Sequence[str]) -> list[Run]:
    if not wanted:
        return [run for run in painter.runs.by_key.values() if run.epochs]
    found: dict[str, Run] = {}
    for each in wanted:
        rows = painter.find_runs(each)
        if len(rows) != 1:
            what = f"{len(rows)} runs are meant by it; give a uuid" if rows else "no such run"
            raise PlanError(f"{each}: {what}")
        found[rows[0].key] = painter.runs.by_key[rows[0].key]
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Going:
    """A run that goes on, with the nodes that tell how."""

    told: ContinuedRun
    run: Run
    dag: Dag
    nodes: Mapping[int, Node]


def _going(painter: Painter, directory: Path, run: Run, epochs: int | None) -> _Going | str | None:
    """The run as it goes on; else why it does not; None where it is complete."""
    stands = painter.standings[run.key]
    home = painter.home(run)
    dag = painter.dags[home[0]]
    nodes = {
        number: dag.workflow.nodes[key[1]]
        for number, keys in run.epochs.items()
        for key in keys
        if key[0] == dag.key
    }
    last = max(run.epochs, default=-1) if epochs is None else epochs - 1
    states = {number: painter.states[key] for number, key in stands.epochs.items()}
    over = [n for n, s in states.items() if s.state is State.COMPLETED and not s.inferred]
    done = max(over, default=None)
    first = 0 if done is None else done + 1
    if first > last:
        return None
    if run.uuid is None:
        return "its nodes have no VAR run_uuid"
    if dag.top != dag.key:
        return "it is in a sub-DAG: continue that one"
    told = gate_told(painter.run_row(run, painter.in_flight().runs))
    why = told[0] if told else STATES[stands.state].word
    if done is None:
        begun = ContinuedRun(run.names[home], run.uuid, why, None, 0, last, None)
        return _Going(begun, run, dag, nodes)
    folder = _checkpoint(run.uuid, nodes)
    written = _written(directory / folder)
    if written is None:
        return f"there is no checkpoint in {folder}"
    if 0 <= written < done:
        # What came back last is what there is to go on from.
        done, first = written, written + 1
    told_of = ContinuedRun(run.names[home], run.uuid, why, done, first, last, folder)
    return _Going(told_of, run, dag, nodes)


def _checkpoint(uuid: str, nodes: Mapping[int, Node]) -> str:
    """Where checkpoints are, as the DAG file says it, else as METL has it."""
    said = [variable(nodes[n], "continue_from_checkpoint") for n in sorted(nodes, reverse=True)]
    folder = next((each for each in said if each), None)
    if folder is not None:
        folder = re.sub(r"\$\(\s*run_uuid\s*\)", lambda _: uuid, folder, flags=re.I)
    if folder is None or "$" in folder:
        folder = f"output/training_logs/{uuid}"
    parts = Path(folder).parts
    if Path(folder).is_absolute() or ".." in parts or any(ord(c) < 32 for c in folder):
        raise PlanError(f"{folder!r}: a run's checkpoints must lie below the DAG's directory")
    return folder


def _written(folder: Path) -> int | None:
    """The last epoch of which the files tell that it is complete; -1 where they tell of none, and
    None where there is no checkpoint to go on from."""
    try:
        if not any(_is_checkpoint(name) for name in os.listdir(folder / "checkpoints")):
            return None
        versions = sorted(
            (int(match.group(1)), name)
            for name in os.listdir(folder)
            if (match := _VERSION.fullmatch(name))
        )
    except (OSError, ValueError):
        return None
    last = -1
    for _, name in versions:
        last = max(last, _last_epoch(folder / name / "metrics.csv"))
    return last


def _is_checkpoint(name: str) -> bool:
    return name.endswith(".ckpt")


def _last_epoch(path: Path) -> int:
    try:
        if path.stat().st_size > LARGEST:
            return -1
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            values = read_metrics_csv(file).values
    except OSError:
        return -1
    judged = [max(each) for name, each in values.items() if name.startswith("val") and each]
    return max(judged, default=-1)


# --- may it -----------------------------------------------------------------------------------


def _base(painter: Painter, dags: Sequence[str]) -> str:
    """The name that all of them have but for the number: ``ensemble`` of ``ensemble-2.dag``."""
    files = {key: Path(painter.dags[key].file).name for key in dags}
    bases = {_base_of(name.removesuffix(".dag")) for name in files.values()}
    if len(bases) > 1:
        raise PlanError(
            f"the runs are of several DAGs ({', '.join(sorted(files.values()))}): name those of "
            "one, or give its DAG file"
        )
    return next(iter(bases), "")


def _base_of(name: str) -> str:
    numbered = _NUMBERED.fullmatch(name)
    return numbered.group(1) if numbered else name


def _refuse_if_it_runs(painter: Painter, dag: Dag) -> None:
    state, _ = painter.ensemble.dag_state(dag.key)
    path = dag.workflow.path
    try:
        locked = is_locked(leftovers(path.parent, path.name.removesuffix(".dag")), path.stem)
    except OSError:
        locked = False
    if state is DagState.RUNNING and (painter.live or locked):
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


def _free_name(painter: Painter, directory: Path, base: str) -> str:
    for dag in painter.dags.values():
        name = Path(dag.file).name.removesuffix(".dag")
        mine = dag.is_top and _base_of(name) == base
        if mine and painter.ensemble.dag_state(dag.key)[0] is DagState.NOT_SUBMITTED:
            raise PlanError(f"{dag.file} was not submitted yet: submit it, or take it away")
    for number in count(2):
        name = f"{base}-{number}"
        ours = (f"{name}.dag", gating.rules_file(name), f"gate/{name}")
        if not any(in_the_way(directory / each) for each in ours) and not leftovers(
            directory, name
        ):
            return name
    raise AssertionError("numbers do not end")


# --- the DAG ----------------------------------------------------------------------------------


class _Writing:
    """The DAG ``name``, of these runs."""

    def __init__(
        self, painter: Painter, directory: Path, name: str, runs: Sequence[_Going]
    ) -> None:
        self._painter, self._directory, self._name, self._runs = painter, directory, name, runs
        self._texts = {each.dag.key: _lines_of(each.dag) for each in runs}
        self._deferred = {
            key: {m[3]: (int(m[1]), int(m[2])) for m in map(_DEFER.match, lines) if m}
            for key, lines in self._texts.items()
        }
        self._said: dict[str, dict[str, list[tuple[int, NodeModifier]]]] = {}
        self._lines: dict[str, None] = {}
        self._gates: dict[str, None] = {}
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
        for going in self._runs:
            self._keep_lines(going, nodes)
        different = set(self._retries.values())
        retries = different.pop() if len(different) == 1 else 0
        if not retries:
            nodes = [replace(node, retries=self._retries[node.name] or None) for node in nodes]
        graph = Graph(tuple(nodes), tuple(edges), retries, tuple(self._lines))
        dag_file = f"{self._name}.dag"
        about = f"goes on with {', '.join(dict.fromkeys(each.dag.file for each in self._runs))}"
        text = dagtext.dag_text(graph, self._name, about)
        of_dag = f"the DAG: {len(nodes)} nodes"
        files = [PlannedFile(dag_file, text.encode(), False, of_dag)]
        if self._gates:
            rules = self._rules().encode()
            what = "the rules of its gate"
            files.append(PlannedFile(gating.rules_file(self._name), rules, False, what))
        request = Request("", self._directory, self._name, runs=len(self._runs))
        return Plan(request, dag_file, tuple(files), (), len(nodes), len(nodes), graph)

    def _nodes_of(self, going: _Going) -> Iterator[tuple[GraphNode, list[str]]]:
        """The nodes of one run, each with the names of those before it."""
        before: list[str] = []
        for epoch in range(going.told.first, going.told.last + 1):
            old, shift = self._like(going, epoch)
            train = self._node(going, old, epoch, shift, Role.TRAIN)
            yield train, before
            before = [train.name]
            following = going.nodes.get(epoch - shift + 1)
            for side in self._after(going, old):
                node = self._node(going, side, epoch, shift, Role.EVALUATE)
                yield node, [train.name]
                if following is not None and following.name in side.children:
                    before.append(node.name)

    def _like(self, going: _Going, epoch: int) -> tuple[Node, int]:
        """The node that the epoch had in the old DAG, or would have had: then by how many epochs
        it comes later than the last one."""
        if epoch in going.nodes:
            return going.nodes[epoch], 0
        last = max(going.nodes)
        return going.nodes[last], epoch - last

    def _after(self, going: _Going, node: Node) -> list[Node]:
        nodes = going.dag.workflow.nodes
        side = {name for dag, name in going.run.side if dag == going.dag.key}
        return [each for name, each in nodes.items() if name in side and name in node.children]

    def _node(self, going: _Going, old: Node, epoch: int, shift: int, role: Role) -> GraphNode:
        if old.dir is not None or old.submit is None:
            what = "its submit description" if old.submit is None else "a directory of its own"
            raise PlanError(
                f"{old.file}:{old.line}: {old.name} has {what} in the DAG file, which is not "
                "carried over: put it into a submit file"
            )
        name, submit = self._counted_on(going, old, shift), old.submit
        old = self._as_written(going, old)
        self._retries[name] = old.retries
        pre, defer, skip = self._script(going, old, epoch, role)
        return GraphNode(
            name,
            submit,
            role=role,
            run=going.told.run,
            epoch=epoch,
            variables=tuple(self._variables(going, old, name, epoch, shift, role)),
            pre=pre,
            defer=defer,
            skip=skip,
            post=old.post.command if old.post is not None else None,
            noop=old.noop,
            where=f"{old.file}:{old.line}",
        )

    def _as_written(self, going: _Going, old: Node) -> Node:
        """The node with what was hidden of it when it was read, for it would be lost. Raises
        PlanError where the DAG file itself does not say it."""
        if not _is_hidden(old):
            return old
        whole = replace(old, vars={}, attributes={}, pre=None, post=None)
        commands = self._commands(going.dag.key)
        about = [*commands.get(ALL_NODES, ()), *commands.get(old.name, ())]
        for _, command in sorted(about, key=itemgetter(0)):
            if modify.applies(command, whole):
                modify.apply(command, whole)
        said = [{*each.vars, *each.attributes} for each in (old, whole)]
        if said[0] != said[1] or _is_hidden(whole):
            text = f"what looks like a secret of {old.name} stands in a file that this one includes"
            raise PlanError(f"{old.file}:{old.line}: {text}; write it here, or into a file of jobs")
        return replace(
            old, vars=whole.vars, attributes=whole.attributes, pre=whole.pre, post=whole.post
        )

    def _commands(self, key: str) -> Mapping[str, list[tuple[int, NodeModifier]]]:
        """What the DAG file says of each node, as it is written there, and at which place."""
        if key not in self._said:
            text = "\n".join(self._texts[key]).encode("utf-8", "surrogateescape")
            found = self._said[key] = {}
            for at, each in enumerate(parse_dag(text, key).commands):
                if isinstance(each, NodeModifier):
                    name = ALL_NODES if each.node.upper() == ALL_NODES else each.node
                    found.setdefault(name, []).append((at, each))
        return self._said[key]

    def _counted_on(self, going: _Going, old: Node, shift: int) -> str:
        if not shift:
            return old.name
        part = self._painter.runs.parts[going.dag.key, old.name]
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
        return f"{old.name[:begin]}{int(old.name[begin:end]) + shift}{old.name[end:]}"

    def _variables(
        self, going: _Going, old: Node, name: str, epoch: int, shift: int, role: Role
    ) -> Iterator[Given]:
        where = f"{old.file}:{old.line}"
        before = max(going.nodes) + 1
        total = going.told.last + 1
        seen = set()
        attributes = [(f"My.{key}", value) for key, value in old.attributes.items()]
        for key, value in [*old.vars.items(), *attributes]:
            lowered = key.lower()
            seen.add(lowered)
            if lowered == "node" and value == old.name:
                value = name
            elif lowered == "epoch" and value.isdecimal():
                value = str(int(value) + shift)
            elif lowered == "epochs" and value == str(before):
                value = str(total)
            if "\ufffd" in value:
                text = f"the value of {key} is no UTF-8 text, and would become another one"
                raise PlanError(f"{where}: {text}; write that otherwise")
            if value:
                yield Given(key, value, Level.NODE, where)
        if epoch and role is Role.TRAIN and "continue_from_checkpoint" not in seen:
            folder = going.told.checkpoint or _checkpoint(going.told.uuid, going.nodes)
            yield Given("continue_from_checkpoint", folder, Level.NODE, "it goes on")

    def _script(
        self, going: _Going, old: Node, epoch: int, role: Role
    ) -> tuple[str | None, tuple[int, int] | None, int | None]:
        if old.pre is None:
            return None, None, None
        gate = gate_name(old)
        asks = self._deferred[going.dag.key].get(old.name)
        if gate is None:
            return old.pre.command, asks, old.pre_skip
        self._gates[gate] = None
        word = "train" if role is Role.TRAIN else "evaluate"
        said = f"{gating.rules_file(self._name)} {going.told.uuid} {epoch} {word} $JOB"
        script = old.pre.command.split()[0]
        return f"{script} {said}", asks or (gating.LATER, POLL), gating.SKIP

    def _keep_lines(self, going: _Going, nodes: Iterable[GraphNode]) -> None:
        """Commands of the old DAG file that are of all nodes, and what describes these."""
        lines = self._texts[going.dag.key]
        wanted = {node.submit for node in nodes}
        described = set()
        for description, text, place in _descriptions(lines):
            described |= set(place)
            if description in wanted:
                self._lines[text] = None
        commands = (line for at, line in enumerate(lines) if at not in described)
        for line in filter(_KEPT_LINES.match, commands):
            self._lines[line.strip()] = None
        old = going.dag.workflow.nodes
        for node in nodes:
            known = old.get(node.name)
            if known is not None and node.run == going.told.run:
                if known.priority:
                    self._lines[f"PRIORITY {node.name} {known.priority}"] = None
                if known.category:
                    self._lines[f"CATEGORY {node.name} {known.category}"] = None

    def _rules(self) -> str:
        """The old gates' rules; epochs that are done are what later ones are compared with, no
        more, or what ended the run would end it again at once."""
        rules: dict[str, Any] = {}
        for gate in self._gates:
            said = _object(self._directory / gating.rules_file(gate))
            runs = {**said.get("runs", {}), **rules.get("runs", {})}
            rules = {**said, **rules, "dag": self._name, "runs": runs}
        for going in self._runs:
            known = rules["runs"].get(going.told.uuid)
            if not isinstance(known, dict):
                file = gating.rules_file(next(iter(self._gates)))
                raise PlanError(f"{file} does not name the run {going.told.uuid}; add it there")
            rules["runs"][going.told.uuid] = {**known, "since": going.told.first}
        return json.dumps(rules, indent=1) + "\n"


def _is_hidden(node: Node) -> bool:
    """Whether something of the node was not told when it was read."""
    scripts = [script.command for script in (node.pre, node.post) if script is not None]
    return any(
        HIDDEN in text for text in (*node.vars.values(), *node.attributes.values(), *scripts)
    )


def _lines_of(dag: Dag) -> list[str]:
    path = dag.workflow.path
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from None
    # Not at all that Unicode takes for a line's end: DAGMan does not.
    return [line.removesuffix("\r") for line in text.split("\n")]


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


def _object(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            said = json.loads(file.read(LARGEST))
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise PlanError(f"{path}: cannot be read: {why}") from None
    if not isinstance(said, dict) or not isinstance(said.get("runs", {}), dict):
        raise PlanError(f"{path}: these are no rules of a gate")
    return said
