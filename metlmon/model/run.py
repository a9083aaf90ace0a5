"""Runs: the nodes that train one model, over one DAG or several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

from metlmon.dagman import Node, NodeKind
from metlmon.frozen import frozen
from metlmon.model.dag import Dag
from metlmon.model.gates import gate_name
from metlmon.model.job_events import NodeKey
from metlmon.model.node import NodeState
from metlmon.model.settings import Settings
from metlmon.model.states import ACTIVE, DONE, State

LONGEST_NAME: Final = 2000
"""Characters of a node's name in which a run and an epoch are looked for."""

MOST_DIGITS: Final = 9
"""Of an epoch's number: more is an identifier, or a date with its time."""


LEFT_UNDONE: Final = frozenset(
    {State.WAITING, State.SKIPPED, State.FAILED, State.REMOVED, State.FUTILE}
)
"""What a later DAG may do instead."""

FAILED: Final = frozenset({State.FAILED, State.REMOVED})

AT_WORK: Final = ACTIVE | {State.PRE, State.POST, State.RETRYING}
"""What a node may be in that can still run, whatever its DAGMan does."""

NOT_BEGUN: Final = frozenset({State.WAITING, State.UNKNOWN})
"""What a node may be in that can still run while its DAGMan is alive."""

BY_PRE: Final = frozenset({State.PRE, State.SKIPPED, State.FAILED, State.RETRYING})
"""What a node may be in that was never submitted, and DAGMan has come to."""


@frozen
class RunPart:
    """What a node is to its run. ``epoch`` is the number in its name, for a training node;
    ``epoch_var`` VAR ``epoch``."""

    run: str
    uuid: str | None
    training: bool
    epoch: int | None
    epoch_var: int | None


def variable(node: Node, name: str) -> str | None:
    """A VAR of the node, None where it is not set or set to nothing; macro names know no case
    (manual: "Submit File Macros")."""
    value = node.vars.get(name)
    if value is None:
        lowered = name.lower()
        value = next((v for k, v in node.vars.items() if k.lower() == lowered), None)
    return value or None


def part_of_run(node: Node, settings: Settings, around: str | None = None) -> RunPart | None:
    """What ``node`` is to which run; None for a node of no run. ``around`` is the name of
    the SUBDAG node it lies in, which names the run where its own name does not."""
    if node.kind is NodeKind.SUBDAG:
        return None
    uuid = variable(node, "run_uuid") or None
    var = variable(node, "epoch")
    epoch_var = _number(var)
    # Patterns are judged by how long they take for a text of bounded length.
    name = node.name if len(node.name) <= LONGEST_NAME else ""
    for training, pattern in ((True, settings.train_node), (False, settings.side_node)):
        match = pattern.match(name)
        epoch = _number(match.group("epoch")) if match else None
        if match and epoch is not None:
            run = match.group("run") or around or uuid or node.name
            return RunPart(run, uuid, training, epoch, epoch_var)
    if uuid is None:
        return None
    return RunPart(around or uuid, uuid, False, None, epoch_var)


def is_epoch(name: str, settings: Settings) -> bool:
    """Is a node of this name one that trains an epoch?"""
    return len(name) <= LONGEST_NAME and settings.train_node.match(name) is not None


def _number(text: str | None) -> int | None:
    """An epoch's number; a pattern of the settings may find anything in its place."""
    digits = text.strip() if text is not None else ""
    return int(digits) if digits.isdecimal() and len(digits) <= MOST_DIGITS else None


@dataclass(slots=True)
class Run:
    """``epochs`` maps an epoch's number to its nodes, one per DAG that has it; ``side``
    are nodes that train nothing. ``gated``: DAGs in which a gate stands before its nodes."""

    key: str
    uuid: str | None
    names: dict[NodeKey, str] = field(default_factory=dict)
    epochs: dict[int, list[NodeKey]] = field(default_factory=dict)
    side: list[NodeKey] = field(default_factory=list)
    gated: list[str] = field(default_factory=list)

    def nodes(self) -> list[NodeKey]:
        return [key for keys in self.epochs.values() for key in keys] + self.side


class Runs:
    """All runs of an ensemble, and each node's part in them."""

    def __init__(self, dags: Mapping[str, Dag], settings: Settings) -> None:
        self.by_key: dict[str, Run] = {}
        self.parts: dict[NodeKey, RunPart] = {}
        self.of_node: dict[NodeKey, Run] = {}
        self.again: dict[str, set[str]] = {}
        """By DAG the keys of the runs of which it has epochs that another has, too."""
        around = {
            (sub.path, dag.top): node.name
            for dag in dags.values()
            for node in dag.workflow.nodes.values()
            if node.subdag is not None and (sub := dag.workflow.subdags[node.subdag]) is not None
        }
        for dag in dags.values():
            self._add_dag(dag, settings, around.get((dag.workflow.path, dag.top)))
        self._leave_out_runs_without_epochs()
        for run in self.by_key.values():
            for keys in run.epochs.values():
                if len(keys) > 1:
                    for dag_key, _ in keys:
                        self.again.setdefault(dag_key, set()).add(run.key)

    def _add_dag(self, dag: Dag, settings: Settings, around: str | None) -> None:
        found = [
            (name, part)
            for name, node in dag.workflow.nodes.items()
            if (part := part_of_run(node, settings, around)) is not None
        ]
        uuids: dict[str, set[str]] = {}
        for _, part in found:
            if part.uuid:
                uuids.setdefault(part.run, set()).add(part.uuid)
        for name, part in found:
            uuid = part.uuid
            if uuid is None and len(uuids.get(part.run, ())) == 1:
                uuid = next(iter(uuids[part.run]))
            run = self._add_node((dag.key, name), part, uuid)
            if dag.key not in run.gated[-1:] and gate_name(dag.workflow.nodes[name]) is not None:
                run.gated.append(dag.key)

    def _leave_out_runs_without_epochs(self) -> None:
        """A node that names a run of which no node trains is a node of no run."""
        for key, run in list(self.by_key.items()):
            if not run.epochs:
                del self.by_key[key]
                for node in run.side:
                    del self.parts[node], self.of_node[node]

    def _add_node(self, key: NodeKey, part: RunPart, uuid: str | None) -> Run:
        run_key = uuid if uuid is not None else f"{key[0]}:{part.run}"
        run = self.by_key.setdefault(run_key, Run(run_key, uuid))
        run.names[key] = part.run
        if part.training and part.epoch is not None:
            run.epochs.setdefault(part.epoch, []).append(key)
        else:
            run.side.append(key)
        self.parts[key] = part
        self.of_node[key] = run
        return run


@frozen
class RunState:
    """Where a run stands. ``epochs``: the node that counts for each epoch, by number;
    ``states``: how many of these are in each state. ``failed``: of a run that failed or was
    removed, the epoch that did."""

    epochs: dict[int, NodeKey]
    latest: NodeKey | None
    state: State
    done: int
    inferred: int
    skipped: int
    states: Mapping[State, int]
    failed: NodeKey | None = None


@frozen
class SubmittedEpoch:
    """When the last DAGMan of a DAG began, and whether it runs."""

    since: datetime
    runs: bool


def standing(
    run: Run,
    states: Mapping[NodeKey, NodeState],
    dag_order: Mapping[str, int],
    begun: Mapping[str, SubmittedEpoch] = MappingProxyType({}),
    alive: Container[str] = (),
) -> RunState:
    """The node that counts for each epoch, the latest epoch, and the run's state.

    Where several DAGs have an epoch, the DAG that this run was submitted in last is the one
    that counts: it continues the run, or begins it again. What that one left undone a later one
    is to do, before it comes to it. ``dag_order``, each DAG's place among all, breaks ties;
    ``begun``: of DAGs that have epochs of others; ``alive``: DAGs whose DAGMan has not ended.
    """
    rank = _dag_ranks(run, states, dag_order)

    def counting(keys: list[NodeKey]) -> NodeKey:
        found = max(keys, key=lambda key: rank[key[0]])
        if len(keys) == 1 or states[found].state not in LEFT_UNDONE:
            return found
        skipped, since = states[found].state is State.SKIPPED, rank[found[0]][0]
        # What a DAG that is over did not come to, it did not take from one that failed at it.
        later = [
            (told.since, dag_order[key[0]], key)
            for key in keys
            if (told := begun.get(key[0])) and told.since > since and (told.runs or skipped)
        ]
        return max(later)[2] if later else found

    epochs = {number: counting(keys) for number, keys in sorted(run.epochs.items())}
    own = {number: states[key] for number, key in epochs.items()}
    counts = Counter(s.state for s in own.values())
    done, skipped = counts[State.COMPLETED], counts[State.SKIPPED]
    inferred = sum(s.inferred for s in own.values())
    submitted = [n for n, s in own.items() if s.submitted is not None and not s.superseded]
    finished = bool(own) and all(s.state in DONE for s in own.values())
    latest = epochs[max(submitted)] if submitted else None
    if finished and not skipped and latest is not None:
        latest = epochs[max(epochs)]
    broken = [n for n, s in own.items() if s.state in FAILED]
    failed = None
    if finished:
        state = State.COMPLETED if done else State.SKIPPED
    elif broken and not _goes_on([*epochs.values(), *run.side], states, alive):
        failed = epochs[max(broken)]
        state = states[failed].state
    else:
        state = states[latest].state if latest else State.WAITING
        if counts[State.UNKNOWN] and (latest is None or state in DONE):
            state = State.UNKNOWN
        failed = latest if state in FAILED else None
    return RunState(epochs, latest, state, done, inferred, skipped, dict(counts), failed)


def _goes_on(
    nodes: Iterable[NodeKey], states: Mapping[NodeKey, NodeState], alive: Container[str]
) -> bool:
    """Can any of these nodes still run?"""
    for key in nodes:
        state = states[key].state
        if state in AT_WORK or (state in NOT_BEGUN and key[0] in alive):
            return True
    return False


def _dag_ranks(
    run: Run, states: Mapping[NodeKey, NodeState], dag_order: Mapping[str, int]
) -> dict[str, tuple[datetime, int, int]]:
    ranks: dict[str, tuple[datetime, int, int]] = {}
    for key in run.nodes():
        state = states[key]
        # What a PRE script skips or fails is not submitted: DAGMan's word on it is what it did
        # with the run last.
        judged = state.since if state.state in BY_PRE else None
        begun = state.submitted or judged or datetime.min
        marked = int(state.state in DONE)
        rank = (begun, marked, dag_order[key[0]])
        ranks[key[0]] = max(ranks.get(key[0], rank), rank)
    return ranks
