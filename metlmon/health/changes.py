"""What has changed in an ensemble since a moment, or since its user last looked at it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Final

from msgspec import Struct

from metlmon.config.user_state import read_state, state_path
from metlmon.health.facts import HealthFacts
from metlmon.health.groups import hold_text, short_cause
from metlmon.health.removals import removal_of
from metlmon.health.sites import black_holes
from metlmon.live.feed import StatsInput
from metlmon.model.job_events import JobId
from metlmon.model.states import State
from metlmon.snapshot.records import Job, Status, job_key
from metlmon.stats.curves import curves
from metlmon.text.formatting import count, epoch_number, moment
from metlmon.text.formatting import metric as format_metric

PURPOSE: Final = "seen"


class ChangeKind(StrEnum):
    """What has happened, in the order in which it is listed: trouble first."""

    FAILED = "failed"
    REMOVED = "removed"
    HELD = "held"
    DAGMAN_ENDED = "dagman-ended"
    BAD_SITE = "bad-site"
    RELEASED = "released"
    DAGMAN_STARTED = "dagman-started"
    BEST = "new-best"
    FINISHED = "finished"
    DONE = "done"
    JOB_DONE = "job-done"
    SUBMITTED = "submitted"


RANKS: Final = {kind: rank for rank, kind in enumerate(ChangeKind)}

_COUNTED: Final[Mapping[ChangeKind, tuple[str, str]]] = {
    ChangeKind.FAILED: ("failure", "failures"),
    ChangeKind.REMOVED: ("removal", "removals"),
    ChangeKind.HELD: ("hold", "holds"),
    ChangeKind.DAGMAN_ENDED: ("end of DAGMan", "ends of DAGMan"),
    ChangeKind.BAD_SITE: ("bad site", "bad sites"),
    ChangeKind.RELEASED: ("release", "releases"),
    ChangeKind.DAGMAN_STARTED: ("start of DAGMan", "starts of DAGMan"),
    ChangeKind.BEST: ("new best", "new bests"),
    ChangeKind.FINISHED: ("run finished", "runs finished"),
    ChangeKind.JOB_DONE: ("other job done", "other jobs done"),
    ChangeKind.SUBMITTED: ("submission", "submissions"),
}


class Change(Struct, frozen=True, kw_only=True):
    """What happened ``number`` times from ``first`` to ``last``, for one reason.

    ``text``: the reason, or a description. ``runs``: names by run key. ``first_epoch`` and
    ``last_epoch``: the range of the epochs done in a run; for FINISHED, in the completed run.
    ``number`` counts epochs for DONE and FINISHED, failed jobs and nodes with a failed script or
    submission for FAILED, events for HELD, RELEASED and SUBMITTED, and jobs that do not train for
    JOB_DONE.
    """

    kind: ChangeKind
    first: datetime
    last: datetime
    number: int
    text: str
    runs: Mapping[str, str] = {}
    first_epoch: int | None = None
    last_epoch: int | None = None
    jobs: tuple[JobId, ...] = ()
    dag: str | None = None
    site: str | None = None

    @property
    def key(self) -> str:
        """Identifies the change among those since the same moment."""
        return "\n".join((self.kind, self.text, self.dag or "", *self.runs, str(self.first)))


class Changes(Struct, frozen=True):
    """What has changed from ``since`` to ``as_of``, by kind, the newest first within each.

    ``item``: "epoch" or "job".
    """

    since: datetime
    as_of: datetime | None
    item: str
    changes: tuple[Change, ...]

    @property
    def summary(self) -> str:
        """``2 failures, 7 holds, 1 run finished, 12 epochs done``; empty if nothing changed."""
        totals = {kind: [c for c in self.changes if c.kind is kind] for kind in ChangeKind}
        totals[ChangeKind.DONE] += totals[ChangeKind.FINISHED]
        parts = []
        for kind, found in totals.items():
            finished = kind is ChangeKind.FINISHED
            total = len(found) if finished else sum(change.number for change in found)
            words = _COUNTED.get(kind, (f"{self.item} done", f"{self.item}s done"))
            parts += [count(total, *words)] if total else []
        return ", ".join(parts)


def changes_since(stats_input: StatsInput, since: datetime) -> Changes:
    """What has changed since a moment."""
    facts = HealthFacts(stats_input)
    groups = _Groups(since)
    for job in facts.ledger.jobs:
        _add_job(groups, job, facts)
    _add_nodes(groups, facts)
    _add_epochs(groups, facts)
    _add_dagmans(groups, facts)
    found = [*groups.changes(), *_bad_sites(since, facts), *_best(since, stats_input)]
    found.sort(key=lambda change: (change.last, change.key), reverse=True)
    found.sort(key=lambda change: RANKS[change.kind])
    return Changes(since, facts.ledger.as_of, facts.ledger.item, tuple(found))


class _Group:
    """Equal changes: their times, jobs, runs and epochs."""

    def __init__(self, kind: ChangeKind, text: str, dag: str | None) -> None:
        self.kind, self.text, self.dag = kind, text, dag
        self.times: list[datetime] = []
        self.jobs: dict[JobId, None] = {}
        self.runs: dict[str, str] = {}
        self.epochs: list[int] = []


class _Groups:
    """Changes after a moment, grouped by kind and reason."""

    def __init__(self, since: datetime) -> None:
        self._since = since
        self._groups: dict[Hashable, _Group] = {}

    def add(
        self,
        kind: ChangeKind,
        time: datetime | None,
        text: str,
        of: Job | None = None,
        dag: str | None = None,
        same: Hashable = None,
    ) -> _Group | None:
        """Add a change to those with the same text, or ``same``; None if it is too old."""
        if time is None or time <= self._since:
            return None
        group = self._groups.setdefault((kind, dag, same or text), _Group(kind, text, dag))
        group.times.append(time)
        if of is not None:
            group.jobs[of.job] = None
            if of.key is not None:
                group.runs[of.key] = of.run or of.key
        return group

    def changes(self) -> Iterator[Change]:
        for group in self._groups.values():
            yield Change(
                kind=group.kind,
                first=min(group.times),
                last=max(group.times),
                number=len(group.times),
                text=group.text,
                runs=group.runs,
                first_epoch=min(group.epochs, default=None),
                last_epoch=max(group.epochs, default=None),
                jobs=tuple(group.jobs),
                dag=group.dag,
            )


def _add_job(groups: _Groups, job: Job, facts: HealthFacts) -> None:
    """Add submission, holds, releases, and the end of a job unless it is that of an epoch."""
    groups.add(ChangeKind.SUBMITTED, job.submitted, "", job, job.dag)
    for hold in job.holds:
        groups.add(ChangeKind.HELD, hold.start, hold_text(hold), job)
    for (_, state), (time, after) in pairwise(job.states):
        if state is State.HELD and after is not State.REMOVED:
            held = [hold for hold in job.holds if hold.end == time]
            groups.add(ChangeKind.RELEASED, time, hold_text(held[-1]) if held else "", job)
    if job.state is State.FAILED:
        groups.add(ChangeKind.FAILED, job.ended, _failure(job, facts), job)
    elif job.state is State.REMOVED:
        row = facts.dags.get(job.dag or "")
        removal = removal_of(job.removal, row.removal if row else None, facts.exited)
        groups.add(ChangeKind.REMOVED, job.ended, removal.remover, job)
    elif job.state is State.COMPLETED and not job.training and not job.dagman:
        groups.add(ChangeKind.JOB_DONE, job.ended, "", job, job.dag)


def _failure(job: Job, facts: HealthFacts) -> str:
    last, error = job.last_execution, facts.stats_input.job_files.errors.jobs.get(job_key(job))
    cause = "" if last is None else last.cause or "failed"
    if error is None or error.line is None:
        return cause
    return error.explain(cause if last is None else short_cause(last, cause))


def _add_nodes(groups: _Groups, facts: HealthFacts) -> None:
    """Add nodes that failed and still are, without a failed job: scripts and submissions."""
    names = {run.key: run.run for run in facts.ledger.runs}
    for fault in facts.faults.values():
        if fault.state is State.FAILED and fault.part in ("pre", "submit", "post"):
            text = fault.error or fault.reason or "failed"
            script = facts.stats_input.job_files.errors.scripts.get(fault.node_key)
            text = script.explain(text) if script is not None else text
            group = groups.add(ChangeKind.FAILED, fault.since, text, dag=fault.dag)
            if group is not None and fault.key is not None:
                group.runs[fault.key] = names.get(fault.key, fault.key)


def _add_epochs(groups: _Groups, facts: HealthFacts) -> None:
    """Add the epochs that are done, by run."""
    complete = {run.key for run in facts.ledger.runs if not run.epochs_left}
    for epoch in facts.ledger.epochs:
        if epoch.counts and epoch.state is State.COMPLETED:
            kind = ChangeKind.FINISHED if epoch.key in complete else ChangeKind.DONE
            group = groups.add(kind, epoch.completed, "", same=epoch.key)
            if group is not None:
                group.runs[epoch.key] = epoch.run
                group.jobs.update(dict.fromkeys(epoch.jobs[-1:]))
                group.epochs += [] if epoch.epoch is None else [epoch.epoch]


def _add_dagmans(groups: _Groups, facts: HealthFacts) -> None:
    """Add starts and ends of DAGMan, its restarts, holds and releases, each separately."""
    for life in facts.ledger.dagmans:
        job = f" (job {life.cluster})" if life.cluster is not None else ""
        began = f"from {life.rescue}" if life.rescue else "from the beginning"
        text = "another DAGMan was running" if life.refused else began
        kind, ended = ChangeKind.DAGMAN_STARTED, ChangeKind.DAGMAN_ENDED
        groups.add(kind, life.start, f"{text}{job}", dag=life.dag, same=life)
        for time in life.restarts:
            groups.add(kind, time, f"in recovery mode{job}", dag=life.dag, same=(life, time))
        if life.end is not None and not life.refused:
            state = life.state.value if life.state is not None else "ended"
            wrote = f", wrote {life.wrote}" if life.wrote else ""
            groups.add(ended, life.end, f"{state}{wrote}{job}", dag=life.dag, same=life)
        for hold, released in life.holds:
            text = f"DAGMan itself: {hold.reason or 'no reason logged'}"
            groups.add(ChangeKind.HELD, hold.time, text, dag=life.dag)
            groups.add(ChangeKind.RELEASED, released, text, dag=life.dag)


def _bad_sites(since: datetime, facts: HealthFacts) -> Iterator[Change]:
    """Sites and hosts that began to lose jobs that others finish."""
    for entry in black_holes(facts):
        if entry.since is not None and entry.since > since:
            yield Change(
                kind=ChangeKind.BAD_SITE,
                first=entry.since,
                last=entry.until or entry.since,
                number=1,
                text=entry.text,
                jobs=entry.jobs,
                site=entry.site,
            )


def _best(since: datetime, stats_input: StatsInput) -> Iterator[Change]:
    """A new best value of the primary metric, by the time at which its epoch was done."""
    known = curves(stats_input)
    best = known.best
    if known.goal is None or best is None or best.best is None:
        return
    times = {(e.key, e.epoch): e.completed for e in stats_input.ledger.epochs if e.counts}
    time = times.get((best.key, best.best.epoch))
    if time is None or time <= since:
        return
    earlier = [
        (point.value, curve.run, point.epoch)
        for curve in known.runs
        for point in curve.points
        if (done := times.get((curve.key, point.epoch))) is not None
        and done <= since
        and point.odd is None
    ]
    text = f"{known.metric} {format_metric(best.best.value)}"
    if earlier:
        value, name, epoch = (max if known.goal == "max" else min)(earlier)
        text += f", was {format_metric(value)} ({name} epoch {epoch_number(epoch)})"
    yield Change(
        kind=ChangeKind.BEST,
        first=time,
        last=time,
        number=1,
        text=text,
        runs={best.key: best.run},
        first_epoch=best.best.epoch,
        last_epoch=best.best.epoch,
    )


# --- since the user last looked ---------------------------------------------------------------


class LastSeen(Struct, frozen=True):
    """How far the user has seen an ensemble: ``until``, in the time of its logs."""

    until: datetime


def seen(status: Status) -> LastSeen | None:
    """What a user who sees this snapshot has seen; None if it shows no event."""
    ends = (dag.ended for dag in status.dags)
    times = [time for time in (status.as_of, *ends) if time is not None]
    return LastSeen(max(times)) if times else None


def load_last_seen(dagdir: Path) -> LastSeen | None:
    """How far the user has seen a dagdir; None if unknown. Reads one small file."""
    return read_state(state_path(PURPOSE, dagdir), LastSeen)


def since_seen(changes: Changes | None) -> str:
    """``since 14 Nov 08:14: 3 holds, 12 epochs done``; empty if nothing has changed."""
    if changes is None or not changes.summary:
        return ""
    year = None if changes.as_of is None else changes.as_of.year
    return f"since {moment(changes.since, year)}: {changes.summary}"
