"""Nodes that failed, nodes that are futile, and DAGs that cannot continue.

Manual: "DAGMan Workflows" (Node Success/Failure, Retrying Failed Nodes, The Rescue DAG). DAGMan
neither uses nor logs the result of a HOLD script (``Dag::HoldScriptReaper``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from metlmon.dagman.dagman_out import HALTED
from metlmon.health.advice import KIND_ADVICE, RESUBMIT, hold_advice, start_step
from metlmon.health.facts import HealthFacts
from metlmon.health.groups import Group, hold_text, make_entry, short_cause, shorten
from metlmon.health.removals import Removals, removal_of
from metlmon.health.types import HealthEntry, Severity
from metlmon.jobfiles.error_lines import ErrorLine
from metlmon.model.job_events import JobKey, NodeKey
from metlmon.model.reasons import cause_of
from metlmon.model.run import DagAbort
from metlmon.model.states import CAN_RUN, DagState, State
from metlmon.snapshot.records import DagRow, Execution, Hold, NodeFault, job_key
from metlmon.text.formatting import count, epoch_number, gpu_short, number

FailureCause: TypeAlias = tuple[str, str]
"""The kind of entry, and the cause in words."""

_RETRIED: Final = "retries-exhausted"
_NO_FILE: Final = re.compile(r"No such file or directory")
NO_ERROR_FILE: Final = "Its submit description names no error file: add error = …"
MISSING_INPUT: Final = ("Put the file where the reason names it", RESUBMIT)
RESCUE_LINE: Final = (
    "Give the node back its name in the DAG file, or remove the line of the rescue file",
    RESUBMIT,
)
PROVISIONER_IS_DONE: Final = "DAGMan ran nothing: the rescue file marks its PROVISIONER DONE"
PROVISIONER_LINE: Final = ("Remove the DONE line of the PROVISIONER from the rescue file", RESUBMIT)
_NOTHING_RAN: Final = "DAG finished but not all nodes are complete"
_OF_RESCUE_FILE: Final = re.compile(r"\.rescue\d{3,} \(line \d+\)")

PARTS: Final = {"pre": "script-failed", "post": "script-failed", "submit": "submit-failed"}


class Failures:
    """The groups of failed nodes."""

    def __init__(self, facts: HealthFacts) -> None:
        self._facts = facts
        self._groups: dict[FailureCause, Group] = {}
        self.by_node: dict[NodeKey, Group] = {}
        self._by_job: dict[JobKey, Group] = {}
        """For jobs of no DAG, which name no node in a directory with DAGs."""
        last_bad = {job_key(each): each for each in facts.bad}
        self._removed: dict[JobKey | None, str | None] = {
            job_key(job): job.removal for job in facts.removed
        }
        in_subdags = {fault.node_key[0] for fault in facts.faults.values()}
        for fault in facts.faults.values():
            if fault.state is not State.FAILED or facts.runs_again(fault):
                continue
            if fault.subdag is not None and fault.subdag in in_subdags:
                # The nodes of the sub-DAG say why.
                continue
            self._add(fault, last_bad.get(fault.job) if fault.job is not None else None)
        self._early = [
            self._early_end(abort)
            for abort in {abort.node: abort for abort in facts.ledger.aborts.values()}.values()
            if abort.on_purpose
        ]

    def _early_end(self, abort: DagAbort) -> Group:
        """A DAG that ABORT-DAG-ON ended with RETURN 0, and its runs that had epochs left."""
        text = shorten(f"ended by ABORT-DAG-ON (return 0): {abort.text}")
        steps = KIND_ADVICE["ended-early"][0]
        group = Group("ended-early", "/".join(abort.node), is_open=False, text=text, steps=steps)
        group.severity = Severity.NOTE
        group.add_node(abort.node, abort.since)
        group.add_runs(run.key for run in self._facts.runs.values() if run.abort == abort)
        self.by_node[abort.node] = group
        return group

    @property
    def groups(self) -> list[Group]:
        return list(self._groups.values())

    def _add(self, fault: NodeFault, end: Execution | None) -> None:
        """Add a failed node; ``end``: the last bad execution of the job that made it fail."""
        abort = self._facts.ledger.aborts.get(fault.node_key[0])
        errors = self._facts.stats_input.job_files.errors
        error = errors.of_node(fault.node_key, fault.job, fault.reason)
        line = error.line if error is not None else None
        kind, cause = _cause(fault, end, brief=line is not None)
        is_removed = fault.reason is None and end is None and fault.job in self._removed
        if is_removed:
            # Its POST script ran, and failed as well.
            cause = removal_of(self._removed.get(fault.job)).remover
        if abort is not None and abort.node == fault.node_key:
            # It ended the DAG at once, whatever its RETRY.
            kind = ("run-failed" if fault.training else "node-failed") if kind == _RETRIED else kind
            cause = f"{cause} (ABORT-DAG-ON)"
        key = kind, cause if line is None else f"{cause}: {line.title}"
        group = self._groups.get(key)
        if group is None:
            steps, act = KIND_ADVICE[kind]
            reason = fault.reason or (end.reason if end is not None else None)
            if fault.error:
                reason = fault.error
                steps = MISSING_INPUT if _NO_FILE.search(fault.error) else steps
            elif is_removed:
                steps = (RESUBMIT,)
            elif step := start_step(fault.reason):
                steps = (step, RESUBMIT)
            elif fault.script is not None:
                purpose = " to see why" if line is None else ""
                steps = (f"Run it by hand{purpose}: {fault.script}", RESUBMIT)
            group = self._groups[key] = Group(
                kind, key[1], is_open=True, steps=steps, act=act, reason=reason, text=cause
            )
            if line is not None and error is not None:
                group.title = line.title
                group.fields |= {"reason": line.text, "error_file": error.file}
                if fault.script is None:
                    group.fields["steps"] = _error_steps(line, end) or steps
            elif error is not None and error.file is None:
                group.fields["steps"] = (NO_ERROR_FILE, *steps)
        group.add_fault(fault)
        self.by_node[fault.node_key] = group
        if fault.job is not None:
            self._by_job[fault.job] = group

    def of(self, entry: Execution) -> Group | None:
        """The group of the node, or of the job of no DAG, of an execution."""
        if entry.node_key is None:
            return self._by_job.get(job_key(entry))
        return self.by_node.get(entry.node_key)

    def count_blocked(self) -> None:
        """Count the epochs that the failures block.

        A failed node that is not an epoch and blocks nothing, such as an evaluation, stops nothing;
        nor does a job of no DAG beside DAGs, or a FINAL node beside other failures.
        """
        blocked, has_runs = self._facts.blocked, self._facts.has_runs
        special = self._facts.status.special_nodes
        last = {node.node_key for node in special if node.kind == "final"}
        for group in self._groups.values():
            before = len(blocked.explained)
            group.blocked = sum(blocked.take(fault) for fault in group.faults)
            stops = group.blocked or len(blocked.explained) > before
            of_no_dag = bool(self._facts.dags) and not any(fault.dag for fault in group.faults)
            trains = any(fault.training for fault in group.faults)
            # A FINAL node runs after all others, and often fails because one of them did.
            follows = len(self._groups) > 1 and all(f.node_key in last for f in group.faults)
            if of_no_dag or follows or (has_runs and not stops and not trains):
                group.severity = Severity.COSTLY

    def entries(self) -> Iterator[HealthEntry]:
        for group in self._groups.values():
            yield group.entry(text=shorten(_text(group)))
        for group in self._early:
            yield group.entry()


def _cause(fault: NodeFault, end: Execution | None, *, brief: bool) -> FailureCause:
    """The cause of a failure; ``brief`` if it follows what the job wrote."""
    if fault.part in PARTS and fault.reason is not None:
        if fault.part == "submit":
            error = fault.error or fault.reason
            return PARTS[fault.part], f"submission failed: {error}"
        return PARTS[fault.part], fault.reason
    if end is not None:
        outcome = end.outcome
        cause = cause_of(outcome, end.code, end.reason, end.return_value, end.signal)
        cause = short_cause(end, cause) if brief else cause
    else:
        cause = fault.reason or ("the POST script failed" if fault.part == "post" else "failed")
    if fault.part == "post":
        return "script-failed", cause
    if fault.unless_exit is not None:
        cause += f" (UNLESS-EXIT {fault.unless_exit}: not retried)"
    elif 0 < fault.retries < fault.tries:
        return _RETRIED, cause
    return ("run-failed" if fault.training else "node-failed"), cause


def _error_steps(line: ErrorLine, end: Execution | None) -> tuple[str, ...] | None:
    """The steps for a known error, which may depend on the GPU that the job had."""
    if line.advice is None:
        return None
    gpu = (
        gpu_short(end.gpu) if end is not None and end.gpu and "gpu" in line.advice.lower() else None
    )
    ran_on = f"; it ran on {gpu}" if gpu else ""
    return f"{line.advice}{ran_on}", RESUBMIT


def _text(group: Group) -> str:
    """The cause, the number of tries, and the epoch or node if only one is concerned."""
    faults, cause = group.faults, group.fields["text"]
    tries = {(fault.tries, fault.retries + 1) for fault in faults}
    suffix = ""
    if all(1 < used >= allowed > 1 for used, allowed in tries):
        used, allowed = map(number, max(tries))
        suffix = f", {used} of {allowed} tries used" if len(tries) == 1 else ", all tries used"
    if "node retries)" in cause:
        suffix = ""
    text = f"{cause}{suffix}" if group.title is None else f"{group.title} ({cause}{suffix})"
    if len(faults) > 1:
        return text
    fault = faults[0]
    where = f"epoch {epoch_number(fault.epoch)}" if fault.epoch is not None else fault.node_key[1]
    return f"{where}: {text}"


# --- futile nodes ---------------------------------------------------------------------------


def futile_nodes(facts: HealthFacts) -> Iterator[HealthEntry]:
    """Futile nodes that no other entry explains."""
    group: Group | None = None
    for fault in facts.faults.values():
        is_explained = fault.node_key in facts.blocked.explained or facts.runs_again(fault)
        if fault.state is not State.FUTILE or is_explained:
            continue
        if group is None:
            steps, act = KIND_ADVICE["futile"]
            group = Group("futile", "", is_open=True, steps=steps, act=act)
        group.add_fault(fault)
        group.blocked += facts.blocked.take(fault)
    if group is not None:
        nodes = count(len(group.faults), "node")
        yield group.entry(text=f"{nodes} will not run: a node before them failed")


# --- DAGs -----------------------------------------------------------------------------------


def dag_entries(
    facts: HealthFacts, removals: Removals, failures: Failures, faulty_dags: set[str]
) -> Iterator[HealthEntry]:
    """DAGs that are held or halted, and those that ended without all nodes done.

    ``faulty_dags``: DAGs with a node whose entry explains their end. Epochs of runs that ended
    with their DAG are counted in the entry on its removal, if one exists.
    """
    for row in facts.status.dags:
        if row.crashes is not None:
            yield _crashing_dag(facts, row)
        elif row.state is DagState.HELD:
            yield _held_dag(facts, row)
        elif row.halted and facts.is_alive(row.file):
            yield _dag_entry(
                facts,
                row,
                "dag-halted",
                f"{row.file} is halted: no further node is submitted",
                blocked=facts.blocked.waiting_in(row.file),
            )
        elif row.state in (DagState.FAILED, DagState.REMOVED, DagState.DONE):
            explained = row.file in faulty_dags
            yield from _ended_dag(facts, row, removals, failures, explained=explained)
        elif row.state is DagState.RUNNING:
            yield from _stuck_dag(facts, row)


def _crashing_dag(facts: HealthFacts, row: DagRow) -> HealthEntry:
    loop = row.crashes
    assert loop is not None
    runs, blocked = facts.blocked.take_dag(row.file)
    return _dag_entry(
        facts,
        row,
        "dag-crashes",
        f"DAGMan crashed {loop.number} times: {loop.message}",
        blocked=blocked,
        runs=tuple(runs),
        since=loop.since,
        reason=loop.message,
    )


STUCK_SECONDS: Final = 600.0
"""Time without an event after which DAGMan itself lists the nodes that it waits for."""


def _stuck_dag(facts: HealthFacts, row: DagRow) -> Iterator[HealthEntry]:
    """A DAGMan that waits for jobs that are not in the queue, or for events that it cannot read."""
    lost = [
        fault
        for fault in facts.faults.values()
        if fault.part == "lost" and fault.dag == row.file and fault.state is State.UNKNOWN
    ]
    if lost:
        steps, act = KIND_ADVICE["dag-stuck"]
        group = Group("dag-stuck", row.file, is_open=True, steps=steps, act=act)
        for fault in lost:
            group.add_fault(fault)
            group.blocked += facts.blocked.take(fault)
        one = (lost[0].reason or "").removeprefix("DAGMan has not read ")
        ends = one if len(lost) == 1 else f"the ends of {count(len(lost), 'job')}"
        text = f"DAGMan has not read {ends} and keeps waiting"
        yield group.entry(text=text, dag=row.file, reason=lost[0].reason)
        return
    states = facts.status.node_states
    if any(states.get(state) for state in CAN_RUN) or not states.get(State.WAITING):
        return
    times = [log.last for log in facts.status.logs if log.last is not None]
    since = max([*times, *row.submissions], default=None)
    as_of = facts.as_of
    if since is None or as_of is None or facts.seconds_between(since, as_of) < STUCK_SECONDS:
        return
    yield _dag_entry(
        facts,
        row,
        "dag-stuck",
        f"DAGMan waits, and no job of {row.file} is queued: "
        f"{count(states[State.WAITING], 'node')} not submitted",
        blocked=facts.blocked.waiting_in(row.file),
        since=since,
    )


def _held_dag(facts: HealthFacts, row: DagRow) -> HealthEntry:
    hold = row.hold
    text, steps = "DAGMan is held", KIND_ADVICE["dag-held"][0]
    if hold is not None:
        reason = hold.reason
        entry = Hold(
            hold.time, code=hold.code, subcode=hold.subcode, cause=reason or "", reason=reason
        )
        cause = hold_text(entry)
        text = f"DAGMan {cause}" if cause.startswith("held") else f"DAGMan is held: {cause}"
        if hold.code not in (None, 1):
            steps = hold_advice(hold.code, hold.subcode, hold.reason).steps
    return _dag_entry(
        facts,
        row,
        "dag-held",
        text,
        blocked=facts.blocked.waiting_in(row.file),
        steps=steps,
        since=hold.time if hold is not None else None,
        code=hold.code if hold is not None else None,
        subcode=hold.subcode if hold is not None else None,
        reason=hold.reason if hold is not None else None,
    )


def _ended_dag(
    facts: HealthFacts, row: DagRow, removals: Removals, failures: Failures, *, explained: bool
) -> Iterator[HealthEntry]:
    runs, blocked = facts.blocked.take_dag(row.file)
    if row.abort is not None and row.abort.on_purpose:
        return
    cause = failures.by_node.get(row.abort.node) if row.abort is not None else None
    if cause is not None:
        cause.blocked += blocked
        cause.add_runs(runs)
        return
    if row.state is DagState.REMOVED:
        group = removals.of_dag(row.file)
        if group is not None:
            group.blocked += blocked
            group.add_runs(runs)
            return
    undone = row.nodes_total - row.nodes_done - row.nodes_unknown
    error = _dagman_error(facts, row.file) if row.state is DagState.FAILED else None
    special = {(node.dag, node.kind) for node in facts.status.special_nodes}
    provisioned = (row.file, "provisioner") in special
    if error is not None and error.startswith(_NOTHING_RAN) and provisioned:
        # Seen with HTCondor 23.9.6: what failed before was not tried again.
        yield _dag_entry(
            facts,
            row,
            "dag-failed",
            PROVISIONER_IS_DONE,
            blocked=blocked,
            runs=tuple(runs),
            steps=PROVISIONER_LINE,
            reason=error,
        )
        return
    if not blocked and (explained or undone <= 0 or row.state is DagState.DONE):
        return
    if row.state is DagState.DONE and facts.has_runs and not blocked:
        return
    nodes = f"{count(undone, 'node')} not done"
    if row.state is DagState.FAILED:
        text = error or f"{row.file} failed: {nodes}"
        if row.abort is not None:
            text = f"{row.file} failed: {row.abort.text} (ABORT-DAG-ON), {nodes}"
        fields: dict[str, Any] = {"steps": RESCUE_LINE} if _OF_RESCUE_FILE.search(text) else {}
        if error == HALTED:
            fields = {"steps": (RESUBMIT,)}
        yield _dag_entry(
            facts,
            row,
            "dag-failed",
            text,
            blocked=blocked,
            runs=tuple(runs),
            reason=error,
            **fields,
        )
        return
    removal = removal_of(row.removal) if row.removal else None
    if removal is not None and removal.kind != "run-removed":
        text = removal.remover.replace("(condor_rm)", "(condor_rm of the DAG)")
        kind, policy = removal.kind, removal.policy
    else:
        words = "was removed" if row.state is DagState.REMOVED else "ended"
        kind, text, policy = "dag-stopped", f"{row.file} {words}: {nodes}", None
    if not facts.has_runs or blocked:
        yield _dag_entry(
            facts,
            row,
            kind,
            text,
            blocked=blocked,
            runs=tuple(runs),
            reason=row.removal,
            policy=policy,
        )


def _dagman_error(facts: HealthFacts, file: str) -> str | None:
    """The newest error in the ``.dagman.out`` of a DAG."""
    name = f"{file}.dagman.out"
    errors = (n.text for n in facts.status.warnings if n.kind == "dagman-error" and n.file == name)
    return next((text.removeprefix("DAGMan: ") for text in errors), None)


def _dag_entry(
    facts: HealthFacts, row: DagRow, kind: str, text: str, *, blocked: int, **fields: Any
) -> HealthEntry:
    steps, act = KIND_ADVICE[kind]
    values: dict[str, Any] = {"steps": steps, "since": row.ended}
    return make_entry(
        kind=kind,
        text=shorten(text),
        act=act,
        is_open=True,
        key=row.file,
        dag=row.file,
        epochs_blocked=blocked,
        **(values | fields),
    )
