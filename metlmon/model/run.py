"""Runs: the nodes that train one model, in one or several DAGs, and their gates.

A gate (``metlmon/trainer/gate.py``) is a PRE script with the argument ``<name>.gate.json``; its
own files and users' requests are in ``gate/<name>/``. Jobs of no DAG are grouped into runs, too.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from sys import intern
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.dagman.records import Node, NodeKind, Workflow
from metlmon.jobfiles.gate_files import RunGate, Stopped
from metlmon.model.clock import Clock
from metlmon.model.dag import Dag
from metlmon.model.job_events import NO_DAG, JobId, LoggedJob, NodeKey
from metlmon.model.node import WORST_FIRST, NodeRecord, NodeState
from metlmon.model.states import CAN_RUN, DONE, FAILED_JOB, State

MAX_COMMAND_LENGTH: Final = 4000
"""Characters of a script's command line that are searched for a gate."""

_GATE: Final = re.compile(r"(?:^|[\s/'\"])([^\s/'\"]{1,200})\.gate\.json(?=$|[\s'\"])")

MAX_NAME_LENGTH: Final = 2000
"""Maximum length of a node name that is matched for a run and an epoch."""

MAX_EPOCH_DIGITS: Final = 9
"""Digits of an epoch number: more are an identifier, or a date with time."""


NOT_DONE: Final = frozenset(
    {State.WAITING, State.SKIPPED, State.FAILED, State.REMOVED, State.FUTILE}
)
"""States of a node that a later DAG may run instead."""

CAN_RUN_IF_ALIVE: Final = frozenset({State.WAITING, State.UNKNOWN})
"""States of a node that can still run while its DAGMan is alive."""

STATES_WITHOUT_SUBMISSION: Final = frozenset(
    {State.PRE, State.SKIPPED, State.FAILED, State.RETRYING}
)
"""States of a node that DAGMan reached without submitting a job."""


class RunPart(Struct, frozen=True, gc=False):
    """The place of a node in its run.

    ``epoch``: the number in the node's name, less one in a run that is named from 1.
    ``epoch_var``: VAR ``epoch``. ``group``: the key of the run, empty until it is known.
    ``position``: the order of jobs of no DAG without an epoch.
    """

    run: str
    uuid: str | None
    training: bool
    epoch: int | None
    epoch_var: int | None
    group: str = ""
    position: int = 0

    @property
    def number(self) -> int:
        """The epoch, or the position of a job without one; a run's parts are ordered by it."""
        return self.epoch if self.epoch is not None else self.position


def variable(node: Node, name: str) -> str | None:
    """A VAR of the node, in any case (manual: "Submit File Macros"); None if empty."""
    value = node.vars.get(name)
    if value is None:
        lower_name = name.lower()
        value = next((other for key, other in node.vars.items() if key.lower() == lower_name), None)
    return value or None


def parse_run_part(
    node: Node, settings: Settings, subdag_node: str | None = None
) -> RunPart | None:
    """The run of ``node`` and its part in it; None for a node of no run.

    ``subdag_node``: the name of the SUBDAG node that contains it, which names the run if its
    own name does not.
    """
    if node.kind is NodeKind.SUBDAG:
        return None
    uuid = variable(node, "run_uuid") or None
    var = variable(node, "epoch")
    epoch_var = _epoch_number(var)
    # Patterns of the settings are checked for their run time on texts of bounded length.
    name = node.name if len(node.name) <= MAX_NAME_LENGTH else ""
    for training, pattern in ((True, settings.train_node), (False, settings.side_node)):
        match = pattern.match(name)
        epoch = _epoch_number(match.group("epoch")) if match else None
        if match and epoch is not None:
            run = intern(match.group("run") or "") or subdag_node or uuid or node.name
            return RunPart(run, uuid, training, epoch, epoch_var)
    if uuid is None:
        return None
    return RunPart(subdag_node or uuid, uuid, False, None, epoch_var)


def is_epoch(name: str, settings: Settings) -> bool:
    """Whether a node of this name trains an epoch."""
    return len(name) <= MAX_NAME_LENGTH and settings.train_node.match(name) is not None


def _epoch_number(text: str | None) -> int | None:
    """An epoch number; None for other text, which a pattern of the settings may match."""
    digits = text.strip() if text is not None else ""
    return int(digits) if digits.isdecimal() and len(digits) <= MAX_EPOCH_DIGITS else None


_RANKS: Final = {
    state: WORST_FIRST.index(state) if state in WORST_FIRST else len(WORST_FIRST) for state in State
}
"""The job with the lowest rank determines the state of a run of jobs."""


class RunNodes(Struct):
    """The nodes of a run.

    ``epochs``: nodes by epoch number, one per DAG that has the epoch. ``side_nodes``: nodes that do
    not train. ``gated_dags``: DAGs in which its nodes have a gate. ``item``: what its parts are,
    "epoch" or, in a run of jobs without epochs, "job"; jobs have no order. ``position``: its place
    among the runs of no DAG, by its first cluster. ``named_from``: the number in the name of its
    first epoch, 0 or 1.
    """

    key: str
    uuid: str | None
    epochs: dict[int, tuple[NodeKey, ...]] = field(default_factory=dict)
    side_nodes: list[NodeKey] = field(default_factory=list)
    gated_dags: list[str] = field(default_factory=list)
    item: str = "epoch"
    position: int = -1
    named_from: int = 0

    def nodes(self) -> list[NodeKey]:
        """The nodes of all epochs and the side nodes."""
        return [key for keys in self.epochs.values() for key in keys] + self.side_nodes


class Runs:
    """All runs of an ensemble, and the parts of the nodes in them."""

    def __init__(
        self, dags: Mapping[str, Dag], nodes: Mapping[NodeKey, NodeRecord], settings: Settings
    ) -> None:
        self.by_key: dict[str, RunNodes] = {}
        self.parts: dict[NodeKey, RunPart] = {}
        self.shared_epochs: dict[str, set[str]] = {}
        """The keys of runs with epochs that are also in another DAG, by DAG."""
        subdag_nodes = {
            (subdag.path, dag.top): node.name
            for dag in dags.values()
            for node in dag.workflow.nodes.values()
            if node.subdag is not None and (subdag := dag.workflow.subdags[node.subdag]) is not None
        }
        records: defaultdict[str, list[NodeRecord]] = defaultdict(list)
        for (dag_key, _), record in nodes.items():
            records[dag_key].append(record)
        for dag in dags.values():
            if dag.key != NO_DAG:
                subdag_node = subdag_nodes.get((dag.workflow.path, dag.top))
                self._add_dag(records[dag.key], settings, subdag_node)
        for key, run in list(self.by_key.items()):
            if not run.epochs:
                del self.by_key[key]
                for node in run.side_nodes:
                    del self.parts[node]
        for run in self.by_key.values():
            self._count_from_zero(run)
            for keys in run.epochs.values():
                if len(keys) > 1:
                    for dag_key, _ in keys:
                        self.shared_epochs.setdefault(dag_key, set()).add(run.key)

    def add_job(self, key: NodeKey, part: RunPart) -> None:
        """Add a job of no DAG to its run."""
        run = self._add_node(key, part, part.uuid)
        run.item = "job" if part.epoch is None else "epoch"
        run.position = part.position if run.position < 0 else min(run.position, part.position)

    def run_of(self, key: NodeKey) -> RunNodes | None:
        """The run of a node; None for a node of no run."""
        part = self.parts.get(key)
        return self.by_key[part.group] if part is not None else None

    def in_order(self) -> list[RunNodes]:
        """All runs: those of the DAGs in their order, then those of no DAG."""
        return sorted(self.by_key.values(), key=lambda run: run.position)

    def _add_dag(
        self, records: Iterable[NodeRecord], settings: Settings, subdag_node: str | None
    ) -> None:
        parts = [
            (record, part)
            for record in records
            if (part := parse_run_part(record.node, settings, subdag_node)) is not None
        ]
        uuids: dict[str, set[str]] = {}
        for _, part in parts:
            if part.uuid:
                uuids.setdefault(part.run, set()).add(part.uuid)
        for record, part in parts:
            uuid, dag_key = part.uuid, record.key[0]
            if uuid is None and len(uuids.get(part.run, ())) == 1:
                uuid = next(iter(uuids[part.run]))
            run = self._add_node(record.key, part, uuid)
            if dag_key not in run.gated_dags[-1:] and gate_name(record.node) is not None:
                run.gated_dags.append(dag_key)

    def _count_from_zero(self, run: RunNodes) -> None:
        """Renumber the epochs of a run whose names count from 1, to count from 0 as METL does.

        METL has a VAR ``epoch`` from 1. Without the first epochs or that VAR, a run counts from 0.
        """
        parts = {key: self.parts[key] for key in run.nodes()}
        of_epochs = [part for part in parts.values() if part.training]
        least = min(part.number for part in of_epochs)
        differences = {p.epoch_var - p.number for p in of_epochs if p.epoch_var is not None}
        if least > 0 and (differences == {0} if differences else least == 1):
            run.named_from = 1
            run.epochs = {number - 1: keys for number, keys in run.epochs.items()}
            for key, part in parts.items():
                if part.epoch is not None:
                    self.parts[key] = replace(part, epoch=part.epoch - 1)

    def _add_node(self, key: NodeKey, part: RunPart, uuid: str | None) -> RunNodes:
        run_key = part.group or (uuid if uuid is not None else f"{key[0]}:{part.run}")
        run = self.by_key.get(run_key)
        if run is None:
            run = self.by_key[run_key] = RunNodes(run_key, uuid)
        if part.training:
            run.epochs[part.number] = (*run.epochs.get(part.number, ()), key)
        else:
            run.side_nodes.append(key)
        self.parts[key] = replace(part, group=run.key)
        return run


class DagAbort(Struct, frozen=True):
    """The end of a DAG by ABORT-DAG-ON, for the value of a node.

    ``on_purpose``: with RETURN 0, so that the DAG has succeeded. Manual: "DAGMan Workflows >
    Special Nodes & Controls" (ABORT-DAG-ON).
    """

    node: NodeKey
    value: int | None
    on_purpose: bool
    since: datetime | None

    @property
    def text(self) -> str:
        """``r1-train_epoch3 returned 42``."""
        value = self.value or 0
        how = f"returned {value}" if value >= 0 else f"died on signal {-value}"
        return f"{self.node[1]} {how}"

    def ended(self, key: NodeKey, state: NodeState) -> bool:
        """Whether a node in this state ended, or is futile, because of it.

        Older versions of DAGMan give no reason for the removal of the jobs.
        """
        if key == self.node:
            return self.on_purpose
        if state.state is State.FUTILE:
            behind = state.failed_ancestor == self.node
            return self.on_purpose if behind else self.precedes(state.since)
        if state.state is not State.REMOVED:
            return False
        with_dag = state.job is not None and state.job.removed_with_dag
        return with_dag or self.precedes(state.since)

    def precedes(self, time: datetime | None) -> bool:
        return time is not None and self.since is not None and self.since <= time


class RunState(Struct, frozen=True):
    """The state of a run.

    ``epochs``: the effective node of each epoch, by number. ``states``: number of these by
    state. ``failed``: the failed or removed epoch of a run in that state. ``abort``: what ended
    the run on purpose, before epoch ``ends_before``.
    """

    epochs: dict[int, NodeKey]
    latest: NodeKey | None
    state: State
    inferred: int
    states: Counter[State]
    failed: NodeKey | None = None
    abort: DagAbort | None = None
    ends_before: int | None = None


class DagSubmission(Struct, frozen=True):
    """Start of the last DAGMan run of a DAG, and whether it is alive."""

    since: datetime
    alive: bool


def resolve_run(
    run: RunNodes,
    states: Mapping[NodeKey, NodeState],
    dag_order: Mapping[str, int],
    submitted_dags: Mapping[str, DagSubmission],
    alive: Container[str],
    aborts: Mapping[str, DagAbort],
) -> RunState:
    """The effective node of each epoch, the latest epoch, and the run's state.

    If several DAGs have an epoch, the DAG in which this run was submitted last is effective:
    it continues the run or starts it again. For nodes that it did not complete, a DAG started
    later is effective, and for those that it only marks DONE, the DAG that trained them.
    ``dag_order``: index of each DAG, breaks ties. ``submitted_dags``: starts of
    DAGs that share epochs with others. ``alive``: DAGs whose DAGMan has not ended. ``aborts``:
    what ended DAGs.
    """
    ranks = _dag_ranks(run, states, dag_order)

    def effective_node(keys: tuple[NodeKey, ...]) -> NodeKey:
        newest = max(keys, key=lambda key: ranks[key[0]])
        state = states[newest]
        is_completed = state.state is State.COMPLETED
        if len(keys) > 1 and is_completed and state.submitted is None and state.since is None:
            # It is only marked DONE.
            trained = [key for key in keys if states[key].state is State.COMPLETED]
            trained = [key for key in trained if states[key].submitted is not None]
            newest = max(trained, key=lambda key: ranks[key[0]], default=newest)
        if len(keys) == 1 or states[newest].state not in NOT_DONE:
            return newest
        skipped, since = states[newest].state is State.SKIPPED, ranks[newest[0]][0]
        # An ended DAG that did not reach a failed node did not run it instead.
        later = [
            (start.since, dag_order[key[0]], key)
            for key in keys
            if (start := submitted_dags.get(key[0]))
            and start.since > since
            and (start.alive or skipped)
        ]
        return max(later)[2] if later else newest

    epochs = {number: effective_node(keys) for number, keys in sorted(run.epochs.items())}
    node_states = {number: states[key] for number, key in epochs.items()}
    counts = Counter(node_state.state for node_state in node_states.values())
    done, skipped = counts[State.COMPLETED], counts[State.SKIPPED]
    inferred = sum(node_state.inferred for node_state in node_states.values())
    submitted = [
        number
        for number, node_state in node_states.items()
        if node_state.submitted is not None and not node_state.superseded
    ]
    finished = bool(counts) and all(state in DONE for state in counts)
    latest = epochs[max(submitted)] if submitted else None
    if submitted and run.item == "job":
        # Jobs have no order: as for several procs of a node, the worst one in the queue counts.
        latest = epochs[min(submitted, key=lambda n: (_RANKS[node_states[n].state], -n))]
    elif finished and not skipped and latest is not None:
        latest = epochs[max(epochs)]
    failed_epochs = [
        number for number, node_state in node_states.items() if node_state.state in FAILED_JOB
    ]
    can_continue = _can_continue([*epochs.values(), *run.side_nodes], states, alive)
    failed, abort = None, _abort_of(epochs.values(), states, aborts)
    if finished or abort is not None:
        state = State.COMPLETED if done else State.SKIPPED
    elif failed_epochs and not can_continue:
        failed = epochs[max(failed_epochs)]
        if run.item == "job":
            failed = latest or failed
        state = states[failed].state
    else:
        state = states[latest].state if latest else State.WAITING
        if counts[State.UNKNOWN] and (latest is None or state in DONE):
            state = State.UNKNOWN
        if counts[State.FUTILE] and not can_continue:
            state = State.FUTILE
        failed = latest if state in FAILED_JOB else None
    return RunState(
        epochs=epochs,
        latest=latest,
        state=state,
        inferred=inferred,
        states=counts,
        failed=failed,
        abort=abort,
        ends_before=next((n for n, s in node_states.items() if s.state not in DONE), None)
        if abort is not None
        else None,
    )


def _abort_of(
    epochs: Iterable[NodeKey],
    states: Mapping[NodeKey, NodeState],
    aborts: Mapping[str, DagAbort],
) -> DagAbort | None:
    """The abort that ended all unfinished epochs on purpose; None if one ended otherwise."""
    found = None
    for key in epochs if aborts else ():
        state = states[key]
        if state.state in DONE:
            continue
        abort = aborts.get(key[0])
        waits = state.state in CAN_RUN_IF_ALIVE
        if abort is None or not abort.on_purpose or not (waits or abort.ended(key, state)):
            return None
        found = abort
    return found


def _can_continue(
    nodes: Iterable[NodeKey], states: Mapping[NodeKey, NodeState], alive: Container[str]
) -> bool:
    """Whether any of these nodes can still run."""
    for key in nodes:
        state = states[key].state
        if state in CAN_RUN or (state in CAN_RUN_IF_ALIVE and key[0] in alive):
            return True
    return False


def _dag_ranks(
    run: RunNodes, states: Mapping[NodeKey, NodeState], dag_order: Mapping[str, int]
) -> dict[str, tuple[datetime, int, int]]:
    ranks: dict[str, tuple[datetime, int, int]] = {}
    for key in run.nodes():
        state = states[key]
        # A node that its PRE script skips or fails has no submission: use DAGMan's report.
        reached = state.since if state.state in STATES_WITHOUT_SUBMISSION else None
        time = state.submitted or reached or datetime.min
        is_done = int(state.state in DONE)
        rank = (time, is_done, dag_order[key[0]])
        ranks[key[0]] = max(ranks.get(key[0], rank), rank)
    return ranks


def gate_name(node: Node) -> str | None:
    """The ``<name>`` of the node's gate, None without one."""
    gate = gate_command(node)
    return gate[1] if gate is not None else None


def gate_command(node: Node) -> tuple[str, str] | None:
    """The command of the node's gate up to its file, and the file's ``<name>``."""
    if node.pre is None or ".gate.json" not in node.pre.command:
        return None
    command = node.pre.command[:MAX_COMMAND_LENGTH]
    match = _GATE.search(command)
    return (command[: match.start(1)], match.group(1)) if match is not None else None


def gate_status(
    files: RunGate | None, clock: Clock, cut: datetime | None, alive: bool
) -> GateStatus:
    """The status of a run's gate at ``cut``; ``alive``: its DAGMan is running."""
    if files is None:
        return GateStatus()

    def moment(epoch: float | None) -> datetime | None:
        local = None if epoch is None else clock.local_or_machine_time(epoch)
        time = local and local.replace(microsecond=0)
        return time if time is None or cut is None or time <= cut else None

    stopped, paused = files.stopped, files.paused
    if stopped is not None and cut is not None and stopped.time and stopped.time > cut:
        stopped = None
    since = paused.time if paused is not None else None
    if not alive or (since is not None and cut is not None and since > cut):
        since = None
    requested = moment(files.stop)
    if requested is not None and stopped is not None and stopped.time is not None:
        requested = min(requested, stopped.time)
    return GateStatus(requested, moment(files.pause), since, files.target, stopped)


class GateStatus(Struct, frozen=True):
    """Requests to the gate of a running DAG, and what the gate did about them.

    ``stop_requested``, ``pause_requested``: time of the request file. ``paused``: since when a
    node waits for that reason. ``target``: the target of the next epochs; None: as in the DAG file.
    """

    stop_requested: datetime | None = None
    pause_requested: datetime | None = None
    paused: datetime | None = None
    target: str | None = None
    stopped: Stopped | None = None


# --- jobs of no DAG (``metlmon/README.md``, "Jobs of no DAG") -------------------------------------

RUN_ARGUMENT: Final = re.compile(
    r"\brun_?(?:uuid|id)[\"']?(?:\s*[=:]\s*|\s+)[\"']?([0-9A-Za-z][\w.-]{3,63})", re.IGNORECASE
)
"""Matches ``--run_uuid=X``, ``run_uuid: X`` or ``RunId = "X"`` in notes and attributes of a job."""

BATCH_IN_AD: Final = re.compile(r'^\s*JobBatchName = "((?:[^"\\\n]|\\.){1,200})"', re.MULTILINE)
"""Matches the batch in a job's ClassAd (event 028)."""

MAX_PROCS: Final = 1 << 32
"""More than the number of procs in any cluster."""


class JobOutputs:
    """Output and error files whose names end in a job id: ``x_12.out``, ``12.3.err``."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[tuple[str, ...], str] = {}
        for name in names:
            stem, _, suffix = name.rpartition(".")
            numbers = _NUMBERS.findall(stem)
            for count in (1, 2):
                if len(numbers) >= count and stem.endswith(numbers[-1]):
                    self._names.setdefault((*numbers[-count:], suffix), name)

    def name_of(self, job: JobId, suffix: str) -> str | None:
        """The file of a job with this suffix; None without one."""
        cluster, proc = map(str, job)
        of_cluster = self._names.get((cluster, suffix)) if job[1] == 0 else None
        return self._names.get((cluster, proc, suffix)) or of_cluster


_NUMBERS: Final = re.compile(r"\d+")


class JobGroups:
    """The jobs of no DAG, grouped into runs.

    ``dag`` has no file and no edges; each of its nodes is a job, or all jobs with the same DAG node
    name in the log. ``parts``: the part of each node in its run, in the order in which they were
    added. ``emptied``: nodes that may have lost their last job. ``outputs``: files that the jobs
    seem to write.
    """

    def __init__(self, settings: Settings) -> None:
        self.dag = Dag(NO_DAG, "", Workflow(Path(), Path()), NO_DAG)
        self.parts: dict[str, RunPart] = {}
        self.emptied: set[str] = set()
        self.outputs = JobOutputs()
        self._settings = settings
        self._names: dict[tuple[str, str], str] = {}
        self._runs: dict[str, str] = {}

    def place(self, job: LoggedJob) -> str:
        """The name of the node for ``job``, which is added if it is new."""
        part = run_part_of_job(job, self._settings)
        item = job.node_name or f"{job.cluster}.{job.proc}" + (f".{job.key[2]}" * bool(job.key[2]))
        if job.node_name is None and part.epoch is not None:
            item = f"{part.run}-train_epoch{part.epoch}"
        name = self._names.get((part.group, item))
        if name is None:
            name = item if item not in self.parts else f"{item} ({part.group})"
            self._names[part.group, item] = name
            self.dag.workflow.nodes[name] = Node(name, NodeKind.JOB, "", 0)
            self.parts[name] = replace(part, run=self._run_name(part))
        return name

    def _run_name(self, part: RunPart) -> str:
        """The name of a run, with its batch or uuid if an earlier run has the same name."""
        group = part.group
        if self._runs.setdefault(part.run, group) == group:
            return part.run
        return f"{part.run} ({group.strip(':').partition(':')[0]})"

    def remove_emptied(self, nodes: dict[NodeKey, NodeRecord]) -> list[str]:
        """Remove the nodes that have lost their last job, also from ``nodes``; return them."""
        names = [name for name in self.emptied if not nodes[NO_DAG, name].jobs]
        for name in names:
            del nodes[NO_DAG, name], self.dag.workflow.nodes[name], self.parts[name]
        if names:
            self._names = {key: name for key, name in self._names.items() if name in self.parts}
        self.emptied.clear()
        return names


def read_group(job: LoggedJob, text: str) -> bool:
    """Read a job's run and batch from its notes or its ClassAd; return whether any is new."""
    run = RUN_ARGUMENT.search(text) if job.run_uuid is None else None
    batch = BATCH_IN_AD.search(text) if job.batch_name is None else None
    if run is not None:
        job.run_uuid = run[1]
    if batch is not None:
        job.note_batch_name(batch[1])
    return bool(run or batch)


def run_part_of_job(job: LoggedJob, settings: Settings) -> RunPart:
    """The run of a job of no DAG, and its part in it.

    A run is, in this order: the jobs with one RunUuid, or RunName, in their 000; with one
    ``run_uuid`` argument; those whose DAG nodes are named as epochs of one run; a submit batch; a
    DAG node; a cluster. Its name is RunName, the epoch's number RunEpoch, which counts from 1, else
    that in the node's name.
    """
    position = job.cluster * MAX_PROCS + job.proc
    uuid, name, batch = job.run_uuid, job.node_name, job.batch_name
    if batch is not None:
        # DAGMan's default is "file+cluster": a DAG that is submitted again has another cluster.
        file, plus, cluster = batch.rpartition("+")
        batch = file if plus and cluster.isdecimal() else batch
    node = Node(name or "", NodeKind.JOB, "", 0, vars={"run_uuid": uuid} if uuid else {})
    part = parse_run_part(node, settings)
    number = job.run_epoch
    if part is not None and part.epoch is not None:
        run, training, epoch = job.run_name or part.run, part.training, part.epoch
        if training and number is not None:
            epoch = number - 1
    elif number is not None and (job.run_name or uuid):
        run, training, epoch = job.run_name or uuid or "", True, number - 1
    else:
        run = job.run_name or uuid or batch or name or str(job.cluster)
        return RunPart(run, uuid, True, None, None, uuid or f"{NO_DAG}:{run}", position)
    group = uuid or f"{NO_DAG}:{batch or ''}:{run}"
    return RunPart(run, uuid, training, epoch, number, group, position)
