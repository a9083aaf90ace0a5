"""Jobs on hold, and holds that are over.

Manual: "Job ClassAd Attributes" (HoldReason, HoldReasonCode, HoldReasonSubCode).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from metlmon.health.advice import hold_advice
from metlmon.health.facts import HealthFacts
from metlmon.health.groups import Group, HoldCause, failed_urls, hold_cause, hold_text
from metlmon.health.removals import Removals, last_hold
from metlmon.model.job_events import JobKey
from metlmon.model.reasons import find_policy, removal_limit
from metlmon.model.states import State
from metlmon.snapshot.records import Hold, Job, job_key
from metlmon.stats.causes import is_quota


class Holds:
    """The groups of held jobs, and of holds that are over."""

    def __init__(self, facts: HealthFacts, removals: Removals) -> None:
        self._facts = facts
        self._clock = RemovalClock(facts)
        self._groups: dict[tuple[HoldCause, bool, bool], Group] = {}
        self._urls: dict[Group, dict[str, None]] = {}
        self.by_job: dict[tuple[JobKey, str], Group] = {}
        """By job and cause of the hold, for the executions that it ended."""
        for job in facts.held:
            self._add_held(job)
        for job, queued in facts.held_in_queue:
            logged = job.states[-1][0] if job.states else job.submitted
            # The 012 of a running job follows when its machine has let it go.
            since = logged if job.state is State.IDLE else facts.as_of
            if since is not None:
                reason = queued.hold_reason
                hold = Hold(since, code=queued.hold_code, cause=reason or "", reason=reason)
                self._group(hold, is_open=True, dagman=job.dagman).add_job(job, since)
        for job in facts.held_before:
            before_removal, removal = last_hold(job), removals.by_job.get(job_key(job))
            for hold in job.holds:
                if hold is before_removal and removal is not None:
                    # One entry with the removal.
                    self.by_job[job_key(job), hold.cause] = removal
                else:
                    self._add_past(job, hold)

    @property
    def groups(self) -> list[Group]:
        return list(self._groups.values())

    def count_blocked(self) -> None:
        """Count the epochs that the held jobs block."""
        for group in self._groups.values():
            group.blocked = sum(self._facts.blocked.take(fault) for fault in group.faults)

    def _add_held(self, job: Job) -> None:
        for hold in job.holds[:-1]:
            self._add_past(job, hold)
        if not job.holds:
            return
        hold = job.holds[-1]
        group = self._group(hold, is_open=True, dagman=job.dagman)
        group.add_job(job, hold.start)
        fault = self._facts.faults.get(job.node_key) if job.node_key is not None else None
        if fault is not None and fault.job == job_key(job):
            group.faults.append(fault)
        removal = self._clock.removal_at(job, hold)
        if removal is not None:
            times = group.fields["removal_times"]
            times[job.job] = removal
            group.fields["removal_at"] = min(times.values())
        self.by_job[job_key(job), hold.cause] = group

    def _add_past(self, job: Job, hold: Hold) -> None:
        group = self._group(hold, is_open=False, dagman=job.dagman)
        group.add_job(job, hold.start, hold.end)
        self.by_job[job_key(job), hold.cause] = group

    def _group(self, hold: Hold, *, is_open: bool, dagman: bool) -> Group:
        """``dagman``: the job is the DAGMan of a sub-DAG."""
        cause = hold_cause(hold)
        group = self._groups.get((cause, is_open, dagman))
        if group is None:
            kind = "quota" if is_quota(hold.code, hold.subcode, hold.reason) else "held"
            advice = hold_advice(hold.code, hold.subcode, hold.reason)
            policy = find_policy(hold.reason)
            group = self._groups[cause, is_open, dagman] = Group(
                "dag-held" if dagman else kind,
                " ".join(map(str, cause)),
                is_open=is_open,
                text=hold_text(hold),
                steps=advice.steps,
                act=advice.act if is_open else None,
                code=hold.code,
                subcode=hold.subcode,
                reason=hold.reason,
                policy=policy.expression if policy is not None else None,
                removal_at=None,
                removal_times={},
            )
        group.add_hold(hold)
        urls = self._urls.setdefault(group, {})
        new = [url for url in failed_urls(hold) if url not in urls]
        if new:
            urls.update(dict.fromkeys(new))
            group.fields["text"] = hold_text(hold, urls)
        return group


class RemovalClock:
    """When policies will remove jobs that are on hold.

    Policies are the PeriodicRemove of jobs in the queue, where it is known, and those that have
    removed jobs of this ensemble.
    """

    def __init__(self, facts: HealthFacts) -> None:
        self._queue = facts.queue
        policies = [policy for job in facts.removed if (policy := find_policy(job.removal))]
        limits = [removal_limit(policy.expression) for policy in policies]
        self._seen = min((limit for limit in limits if limit is not None), default=None)

    def removal_at(self, job: Job, hold: Hold) -> datetime | None:
        """When the job will be removed; None if no policy is known."""
        queued = self._queue.get(job.job)
        own = removal_limit(queued.removal_policy) if queued and queued.removal_policy else None
        limits = [limit for limit in (own, self._seen) if limit is not None]
        return hold.start + timedelta(seconds=min(limits)) if limits else None
