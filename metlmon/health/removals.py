"""Jobs that were removed: by a policy, by a user, or with their DAG.

Reasons are those that the schedd and DAGMan log with event 009 (``UserPolicy::FiringReason``,
``condor_rm``, OtherJobRemoveRequirements). Manual: "Job ClassAd Attributes" (RemoveReason,
PeriodicRemove).
"""

from __future__ import annotations

import re
from collections.abc import Container
from datetime import datetime
from typing import Final, NamedTuple

from metlmon.health.advice import KIND_ADVICE, RESUBMIT, hold_advice
from metlmon.health.facts import HealthFacts
from metlmon.health.groups import BY_USER, Group, HoldCause, hold_cause, hold_text, shorten
from metlmon.health.types import Severity
from metlmon.model.job_events import JobKey, NodeKey
from metlmon.model.node import SERVICE_REMOVAL_REASON
from metlmon.model.reasons import find_policy
from metlmon.model.states import DagState, State
from metlmon.snapshot.records import Execution, Hold, Job, NodeFault, job_key, submission_key
from metlmon.snapshot.row_text import policy_remover, policy_words

_WITH_DAG: Final = re.compile(
    r"DAG Removed:|OtherJobRemoveRequirements = DAGManJobId(?: =\?= (\d{1,12}))?"
)

BY_DAGMAN: Final = ("Node Error:", "DAG Error:", "DAG Abort:", "DAG Limit:")
"""Beginnings of the reasons with which DAGMan itself removes jobs, in the name of the user."""


class Removal(NamedTuple):
    """Who removed a job: the kind of entry, the wording, and the expression of a policy."""

    kind: str
    remover: str
    policy: str | None = None
    with_dag: bool = False


WITH_DAG: Final = Removal("removed-by-user", "removed with its DAG", with_dag=True)
AFTER_DAG: Final = Removal("ended-early", "removed when its DAG had ended")


def removal_of(
    reason: str | None, dag_reason: str | None = None, exited: Container[int] = ()
) -> Removal:
    """Who removed a job, according to the logged reason.

    ``dag_reason``: the reason for which its DAGMan was removed. ``exited``: clusters of DAGMan's
    own jobs that ended by themselves; the schedd removes what they left, such as SERVICE nodes.
    """
    text = " ".join((reason or "").split())
    with_dag = _WITH_DAG.search(text[:2000])
    if text.startswith(SERVICE_REMOVAL_REASON) or (
        with_dag and with_dag[1] and int(with_dag[1]) in exited
    ):
        return AFTER_DAG
    if with_dag:
        policy = find_policy(dag_reason)
        if policy is not None:
            who = policy_words(policy)
            return Removal("removed-by-policy", f"{who}, with its DAG", policy.expression, True)
        if (dag_reason or "").startswith(BY_DAGMAN):
            return removal_of(dag_reason)
        user = BY_USER.search(text) or BY_USER.search(dag_reason or "")
        who = user[1] if user else "a user"
        return Removal("removed-by-user", f"removed by {who} (condor_rm of the DAG)", None, True)
    if remover := policy_remover(text):
        policy = find_policy(text)
        expression = policy.expression if policy is not None and policy.removes else None
        return Removal("removed-by-policy", remover, expression)
    user = BY_USER.search(text)
    if user is not None and not text.startswith(BY_DAGMAN):
        return Removal("removed-by-user", f"removed by {user[1]} (condor_rm)")
    if text.startswith(BY_DAGMAN):
        detail = BY_USER.sub("", text).strip()
        if detail.startswith(BY_DAGMAN[0]):
            detail = "another job of the node failed"
        return Removal("run-removed", f"removed by DAGMan: {detail}")
    return Removal("run-removed", f"removed: {text}" if text else "removed, no reason logged")


def last_hold(job: Job) -> Hold | None:
    """The hold during which a job was removed; None if it was not on hold."""
    if job.state is not State.REMOVED or len(job.states) < 2:
        return None
    if job.states[-2][1] is not State.HELD:
        return None
    return job.holds[-1] if job.holds else None


def _task(job: Job) -> tuple[str | None, str | None]:
    """The node of a job, in any DAG of its run; of a node without a run in its own DAG."""
    return job.key or job.in_dag, job.node


class Removals:
    """The groups of removed jobs: open ones, and those whose nodes went on."""

    def __init__(self, facts: HealthFacts) -> None:
        self._facts = facts
        self._groups: dict[tuple[Removal, HoldCause | None, str, bool], Group] = {}
        self.by_job: dict[JobKey, Group] = {}
        self._reasons = {job_key(job): job.removal for job in facts.removed}
        tasks = set(map(_task, facts.removed))
        jobs = [job for job in facts.ledger.jobs if _task(job) in tasks]
        jobs.sort(key=lambda job: job.submitted or datetime.min)
        self._latest = {_task(job): submission_key(job) for job in jobs}
        """The latest submission of each node with a removed job, also by a later DAG."""
        special = facts.status.special_nodes
        self._services = {row.node_key for row in special if row.kind == "service"}
        self._why_closed: dict[Group, dict[str, None]] = {}
        self.handled: set[NodeKey] = set()
        """Nodes whose removal has an entry."""
        for job in facts.removed:
            self._add(job)
        for fault in facts.faults.values():
            # A removed job of no DAG, which names no node, has its entry by now.
            is_known = fault.node_key in self.handled or fault.job in self._reasons
            if fault.state is State.REMOVED and not is_known:
                self._add_fault(fault)

    @property
    def groups(self) -> list[Group]:
        return list(self._groups.values())

    def ended(self, entry: Execution) -> bool:
        """Whether the removal of its job ended an execution: the reasons are the same."""
        reason = self._reasons.get(job_key(entry))
        return reason is not None and entry.reason == reason

    def of_dag(self, dag: str) -> Group | None:
        """The open group of the jobs that were removed with a DAG."""
        for (removal, _, of_dag, is_open), group in self._groups.items():
            if is_open and removal.with_dag and of_dag == f"{dag} ":
                return group
        return None

    def _add(self, job: Job) -> None:
        fault = self._facts.faults.get(job.node_key) if job.node_key is not None else None
        determines = fault is not None and fault.job == job_key(job)
        is_open = determines and fault is not None and fault.state is State.REMOVED
        if is_open and fault is not None and self._facts.runs_again(fault):
            is_open = False
            self.handled.add(fault.node_key)
        row = self._facts.dags.get(job.dag or "")
        dag_reason = row.removal if row is not None else None
        removal = removal_of(job.removal, dag_reason, self._facts.exited)
        has_no_end = not job.removal and row is not None and job.ended == row.ended
        if has_no_end and row is not None and row.state is DagState.REMOVED:
            # No log has its end: it left the queue with its DAGMan, at the latest.
            removal = WITH_DAG if dag_reason is None else removal_of("DAG Removed:", dag_reason)
        abort = self._facts.ledger.aborts.get(job.in_dag or "")
        if abort is not None and (removal.with_dag or abort.precedes(job.ended)):
            removal = Removal("ended-early", f"removed by DAGMan: ABORT-DAG-ON of {abort.node[1]}")
        if job.node_key in self._services and (job.removal or "").startswith(BY_DAGMAN):
            # DAGMan removes what is left as it writes a rescue file.
            removal = AFTER_DAG
        if removal == AFTER_DAG and not is_open and job_key(job) not in self._facts.lost:
            # For example the job of a SERVICE node.
            return
        if job.node_key is None:
            # A user who removes a job outside of any DAG means to.
            is_open = removal.kind == "removed-by-policy" and self._facts.is_last_of_run(job)
        group = self._group(job, removal, last_hold(job), is_open=is_open)
        hold = last_hold(job)
        group.add_job(job, hold.start if hold is not None else job.ended, job.ended)
        self.by_job[job_key(job)] = group
        if not is_open and removal.kind != "ended-early":
            whys = self._why_closed.setdefault(group, {})
            whys[self._why_nothing_waits(job)] = None
            group.fields["steps"] = (f"Nothing to do: {' or '.join(whys)}",)
        if is_open and fault is not None:
            group.faults.append(fault)
            self.handled.add(fault.node_key)

    def _add_fault(self, fault: NodeFault) -> None:
        """Add a removed node whose job is in no log here."""
        removal = removal_of(fault.reason)
        key = (removal, None, "", True)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._new_group(removal, None, None, is_open=True)
        group.add_fault(fault)
        self.handled.add(fault.node_key)

    def _group(self, job: Job, removal: Removal, hold: Hold | None, *, is_open: bool) -> Group:
        cause = hold_cause(hold) if hold is not None else None
        same = removal
        if removal.with_dag and removal.policy is None:
            # Only some of the reasons name the user.
            same = Removal(removal.kind, "", None, True)
        # A DAG that was removed on several days has an entry for each.
        day = "" if is_open or job.ended is None else f"{job.ended:%Y-%m-%d}"
        which = f"{job.dag} {day}" if removal.with_dag else ""
        key = (same, cause, which, is_open)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._new_group(removal, hold, job, is_open=is_open)
            group.key += f" {day}" if removal.with_dag and day else ""
        elif hold is not None and hold.reason and group.fields["reason"] == job.removal:
            # The log of the first job lost the reason of its hold.
            group.fields["reason"] = hold.reason
        elif hold is None and "by a user" in group.fields["text"]:
            group.fields["text"] = shorten(removal.remover)
        if hold is not None:
            group.add_hold(hold)
        return group

    def _new_group(
        self, removal: Removal, hold: Hold | None, job: Job | None, *, is_open: bool
    ) -> Group:
        steps, act = KIND_ADVICE[removal.kind]
        text, heading, reason = removal.remover, None, job.removal if job is not None else None
        if hold is not None:
            text, heading = hold_text(hold), f"held, then {removal.remover}"
            reason = hold.reason or reason
            # The job is gone and cannot be released.
            cure = hold_advice(hold.code, hold.subcode, hold.reason).steps
            steps = (*cure[:-1], RESUBMIT)
        code, subcode = (hold.code, hold.subcode) if hold is not None else (None, None)
        dag = job.dag if job is not None and removal.with_dag else None
        group = Group(
            removal.kind,
            f"{heading or ''} {'DAG' if removal.with_dag else text} {dag or ''}",
            is_open=is_open,
            text=shorten(text),
            steps=steps,
            act=act if is_open else None,
            heading=heading,
            reason=reason,
            policy=removal.policy,
            code=code,
            subcode=subcode,
            dag=dag,
        )
        if not is_open:
            group.severity = Severity.NOTE
        return group

    def _why_nothing_waits(self, job: Job) -> str:
        """Why nothing waits for a removed job."""
        if job.node_key is None:
            return "it belongs to no DAG"
        # The gate may have skipped the retry, or a POST script may have succeeded.
        again = job.node_key in self.handled or self._latest[_task(job)] != submission_key(job)
        return "submitted again since" if again else "its node has ended"

    def count_blocked(self) -> None:
        """Count the epochs that the removals block; other nodes stop nothing."""
        blocked = self._facts.blocked
        for group in self._groups.values():
            group.blocked = sum(blocked.take(fault) for fault in group.faults)
