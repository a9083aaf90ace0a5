"""Gaps in logs, silent and damaged logs, missing rescue files, DAG files that have changed."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.health.advice import PUT_RESCUE_BACK, RUN_THE_REST
from metlmon.health.facts import HealthFacts
from metlmon.health.groups import make_entry
from metlmon.health.losses import TOGETHER_SECONDS, end_of, group_by_time
from metlmon.health.types import KINDS, HealthEntry, Severity
from metlmon.model.job import END_NOT_LOGGED
from metlmon.model.states import DagState
from metlmon.snapshot.records import Execution, job_key
from metlmon.text.formatting import age, count

SILENT_SECONDS: Final = 3600.0
SILENT_TIMES: Final = 20.0
"""A live log is silent after an hour and twenty times its mean interval, while jobs run: these
log their image size every few minutes."""


class LogGap(Struct, frozen=True):
    """A gap in the log; ``lost``: the executions whose ends are missing."""

    since: datetime
    until: datetime
    seconds: float
    lost: list[Execution]


def find_gaps(facts: HealthFacts) -> list[LogGap]:
    """The gap before each group of missing ends, since the last logged time."""
    executions = facts.executions
    lost = [
        e for e in executions if e.uncertain and e.end is not None and _restart_of(facts, e) is None
    ]
    if not lost:
        return []
    logged_times = sorted(
        time for e in facts.ledger.executions for time in (e.start, e.end) if time is not None
    )
    gaps = []
    for group in group_by_time(lost, end_of, TOGETHER_SECONDS):
        until = max(map(end_of, group))
        index = bisect_left(logged_times, until - timedelta(seconds=60))
        since = logged_times[index - 1] if index else group[0].start
        gaps.append(LogGap(since, until, facts.seconds_between(since, until), group))
    return gaps


def restarts(facts: HealthFacts) -> Iterator[HealthEntry]:
    """Executions whose ends are missing because the access point was down.

    The schedd logs no end of jobs whose lease ended meanwhile; it runs them again.
    """
    by_restart: defaultdict[datetime, list[Execution]] = defaultdict(list)
    for execution in facts.executions:
        restart = _restart_of(facts, execution)
        if restart is not None:
            by_restart[restart].append(execution)
    for restart, lost in by_restart.items():
        yield make_entry(
            kind="evicted",
            text=f"the access point was restarted: {count(len(lost), 'execution')} ended with it",
            steps=(
                "Nothing to do: HTCondor queued the jobs again; their hours are counted up to "
                "the moment that proves the end",
            ),
            is_open=False,
            since=restart,
            until=max(map(end_of, lost)),
            entries=lost,
            gpu_hours=facts.hours(e for e in lost if id(e) in facts.uncertain),
            key=f"{restart} restart",
        )


def _restart_of(facts: HealthFacts, execution: Execution) -> datetime | None:
    """The restart of the access point that ended an execution without logging its end."""
    if not execution.uncertain or execution.end is None:
        return None
    index = bisect_left(facts.ledger.restarts, execution.start)
    first = facts.ledger.restarts[index : index + 1]
    return first[0] if first and first[0] <= execution.end else None


def log_gaps(facts: HealthFacts, gaps: list[LogGap]) -> Iterator[HealthEntry]:
    """Gaps in the log while jobs ran, and other damage."""
    glued = [notice for notice in facts.status.warnings if notice.kind == "glued-header"]
    where = ", ".join(f"{notice.file}:{notice.line}" for notice in glued[:3])
    damaged = f" ({where} is damaged)" if where else ""
    intervals = [
        facts.seconds_between(log.first, log.last) / max(1, log.events)
        for log in facts.status.logs
        if log.first is not None and log.last is not None
    ]
    silence_limit = max(SILENT_SECONDS, SILENT_TIMES * min(intervals, default=0.0))
    for gap in gaps:
        lost = len(gap.lost)
        hours = facts.hours(e for e in gap.lost if id(e) in facts.uncertain)
        if gap.seconds < silence_limit:
            # Ends are missing from a log that continued for other jobs.
            yield make_entry(
                kind="log-damage",
                text=f"the log{damaged} does not say how {count(lost, 'execution')} ended",
                steps=(
                    "Nothing to do: the hours are counted up to the moment that proves it was over",
                ),
                is_open=False,
                since=gap.since,
                until=gap.until,
                entries=gap.lost,
                gpu_hours=hours,
                key=f"{gap.since} end",
            )
            continue
        since, until = gap.since, gap.until
        ran = sum(e.start < until and (e.end is None or e.end > since) for e in facts.executions)
        was = "was" if ran == 1 else "were"
        ends = "the true end of one is" if lost == 1 else f"the ends of {lost} are"
        yield make_entry(
            kind="log-gap",
            text=f"{age(gap.seconds)} gap in the log while {count(ran, 'job')} {was} running"
            f"{damaged}: {ends} unknown",
            steps=(
                "Look for a full disk or quota at that time where the log is written; hours are "
                "counted up to the moment that proves the end",
            ),
            is_open=False,
            since=since,
            until=until,
            entries=gap.lost,
            gpu_hours=hours,
        )
    if glued and not gaps:
        yield make_entry(
            kind="log-damage",
            text=f"the log was cut in the middle of an event ({where}): the rest of it is missing",
            steps=("Look for a full disk or quota at that time where the log is written",),
            is_open=False,
            key=where,
        )


def unwritable_logs(facts: HealthFacts) -> Iterator[HealthEntry]:
    """Jobs that are queued again because the end of their last execution could not be logged."""
    idle = {job_key(job) for job in facts.idle if not facts.is_over(job.dag)}
    last = {key: each for each in facts.executions if (key := job_key(each)) in idle}
    lost = [each for each in last.values() if END_NOT_LOGGED.search(each.reason or "")]
    if lost:
        yield make_entry(
            kind="log-damage",
            text=f"the log could not be written: HTCondor queued {count(len(lost), 'job')} again",
            steps=("Free space or raise the quota where the logs are (df, quota -s)",),
            severity=Severity.BLOCKED,
            is_open=True,
            since=min(map(end_of, lost)),
            entries=lost,
            reason=lost[0].reason,
            key="unwritable",
        )


def silent_logs(facts: HealthFacts) -> Iterator[HealthEntry]:
    """A live log that fell silent while jobs run."""
    status = facts.status
    logs = [
        (log.first, log.last, log.events)
        for log in status.logs
        if log.first is not None and log.last is not None
    ]
    if not status.live or status.as_of is None or not logs:
        return
    first, last, events = max(logs, key=lambda log: log[1])
    silent = facts.seconds_between(last, status.as_of)
    if silent < max(
        SILENT_SECONDS, SILENT_TIMES * facts.seconds_between(first, last) / max(1, events)
    ):
        return
    running = [e for e in facts.executions if e.end is None]
    if not running:
        return
    yield make_entry(
        kind="log-silent",
        text=f"nothing has been logged for {age(silent)} although {count(len(running), 'job')} ran "
        "at the last event",
        steps=("Ask the queue (condor_q); see whether the log's disk is full, or was unmounted",),
        is_open=True,
        since=last,
        entries=running,
        key="silence",
    )


MISSING_FILES: Final = {
    "missing-rescue": (
        "rescue-missing",
        (
            "Put the rescue file beside the DAG file before the DAG is submitted again: without it "
            "all starts from the beginning",
        ),
    ),
    "dag-file-changed": (
        "dag-file-changed",
        ("Put the DAG file that ran beside its logs; or submit this one as a new DAG",),
    ),
}
"""The kind of entry and what to do, by the kind of notice."""


def missing_files(facts: HealthFacts) -> Iterator[HealthEntry]:
    """Missing rescue files, and DAG files that differ from those that ran."""
    done = {row.file: row for row in facts.status.dags if row.state is DagState.DONE}
    for notice in facts.status.warnings:
        if notice.kind not in MISSING_FILES:
            continue
        kind, steps = MISSING_FILES[notice.kind]
        file = notice.file or ""
        text = f"{file}: {notice.text}" if file else notice.text
        dag = done.get(file) if kind == "dag-file-changed" else None
        runs, blocked = facts.blocked.take_dag(file) if dag is not None else ([], 0)
        if dag is not None and blocked:
            nodes = count(dag.nodes_total - dag.nodes_done, "node")
            text = f"{file} was changed after it was submitted: DAGMan is done, {nodes} did not run"
            steps = (RUN_THE_REST,)
        yield make_entry(
            kind=kind,
            text=text,
            steps=steps,
            severity=Severity.STOPPED if blocked else KINDS[kind].severity,
            is_open=facts.blocked.any_left,
            key=file,
            dag=file if dag is not None else None,
            runs=tuple(runs),
            epochs_blocked=blocked,
            reason=notice.text,
        )


def with_lost_rescue(entry: HealthEntry, entries: Sequence[HealthEntry]) -> HealthEntry:
    """The entry; where it says to submit the DAG again, with restoring the rescue file first."""
    lost = next((e for e in entries if e.kind == "rescue-missing" and e.open), None)
    if lost is None or entry.act != "resubmit" or not entry.open:
        return entry
    return replace(entry, steps=(PUT_RESCUE_BACK, *entry.steps))
