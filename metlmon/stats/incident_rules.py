"""Incidents of logs, disks, machines and transfers; their record and its helpers."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from statistics import median
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from metlmon.live.feed import StatsInput
from metlmon.model.job_events import JobId
from metlmon.model.states import Outcome, State
from metlmon.snapshot.ledger import HOUR, ExecutionEntry, JobEntry, TransferEntry
from metlmon.stats.epoch_times import USER_VACATE_CODES
from metlmon.stats.totals import group_by
from metlmon.text.formatting import age, count, hours

T = TypeVar("T")
Entry: TypeAlias = ExecutionEntry | TransferEntry | JobEntry

TOGETHER_SECONDS: Final = 300.0
"""Evictions within five minutes have one cause, such as the end of a glidein or a site. For
trainings of minutes, the limit is a quarter of their duration."""

MIN_RUNS: Final = 3
"""Minimum runs that lose their jobs together at one site: fewer may be a coincidence."""

DAY: Final = 86400.0
"""Errors of a full disk, or stalls at a site, within a day are one incident."""

STALL_SECONDS: Final = 900.0
STALL_TIMES: Final = 5.0
"""A transfer stalled if it exceeds 15 minutes and five times the median of its site."""

MIN_TRANSFERS: Final = 3
"""Minimum transfers for a site's own median; with fewer, the median of all sites is used."""

SILENT_SECONDS: Final = 3600.0
SILENT_TIMES: Final = 20.0
"""A live log is silent after an hour and twenty times its mean interval, while jobs run: they log
their image size every few minutes."""

FULL_DISK: Final = re.compile(r"disk quota exceeded|no space left on device|\bENOSPC\b", re.I)

EVICTION_OUTCOMES: Final = frozenset(
    {Outcome.EVICTED, Outcome.SHADOW_EXCEPTION, Outcome.RECONNECT_FAILED}
)


class IncidentSeverity(IntEnum):
    """Severity: nothing to do; time or accuracy lost; a run stopped until an action."""

    NOTE = 1
    WARNING = 2
    ALARM = 3


NOTE, WARNING, ALARM = IncidentSeverity


class Incident(Struct, frozen=True):
    """One incident.

    ``until`` is None if it is ongoing (``ongoing``). ``text``: what happened, in one sentence;
    ``advice``: the next step. ``runs``: run keys; ``site``: the site, if there is only one.
    ``short_text``: the text without the runs' names. Names are as logged: screens sanitise them.
    """

    key: str
    kind: str
    severity: IncidentSeverity
    since: datetime | None
    until: datetime | None
    ongoing: bool
    text: str
    advice: str
    runs: tuple[str, ...] = ()
    jobs: tuple[JobId, ...] = ()
    site: str | None = None
    short_text: str = ""

    @property
    def headline(self) -> str:
        """The text for the header, which shows the runs' names itself."""
        return self.short_text or self.text


# --- the log, the disk ----------------------------------------------------------------------


class _LogGap(Struct, frozen=True):
    """A gap in the log; ``lost``: the executions whose ends are missing."""

    since: datetime
    until: datetime
    seconds: float
    lost: list[ExecutionEntry]


def _log_gaps(stats_input: StatsInput) -> list[_LogGap]:
    """The gap before each group of missing ends, since the last logged time."""
    ledger = stats_input.ledger
    lost = [e for e in ledger.executions if e.uncertain and e.end is not None and not e.dagman]
    if not lost:
        return []
    logged_times = sorted(
        time for e in ledger.executions for time in (e.start, e.end) if time is not None
    )
    gaps = []
    for group in _group_by_time(lost, _end, TOGETHER_SECONDS):
        until = end_range(group)[1]
        index = bisect_left(logged_times, until - timedelta(seconds=60))
        since = logged_times[index - 1] if index else group[0].start
        gaps.append(_LogGap(since, until, ledger.seconds_between(since, until), group))
    return gaps


def log_gaps(stats_input: StatsInput) -> Iterator[Incident]:
    """Gaps in the log while jobs ran, and other damage."""
    ledger, logs = stats_input.ledger, stats_input.status.logs
    glued = [notice for notice in stats_input.status.warnings if notice.kind == "glued-header"]
    where = ", ".join(f"{notice.file}:{notice.line}" for notice in glued[:3])
    intervals = [
        ledger.seconds_between(log.first, log.last) / max(1, log.events)
        for log in logs
        if log.first is not None and log.last is not None
    ]
    silence_limit = max(SILENT_SECONDS, SILENT_TIMES * min(intervals, default=0.0))
    gaps = _log_gaps(stats_input)
    for gap in gaps:
        lost = len(gap.lost)
        if gap.seconds < silence_limit:
            # Ends are missing from a log that continued for other jobs.
            yield build_incident(
                kind="log-damage",
                severity=NOTE,
                text=f"The log does not say how {count(lost, 'execution')} of "
                f"{names_of(gap.lost)} ended",
                advice="Nothing to do: the hours are counted up to the moment that proves it was "
                "over",
                since=gap.since,
                until=gap.until,
                entries=gap.lost,
                key_suffix="end",
            )
            continue
        since, until = gap.since, gap.until
        ran = sum(
            not e.dagman and e.start < until and (e.end is None or e.end > since)
            for e in ledger.executions
        )
        damaged = f" ({where} is damaged)" if where else ""
        was = "was" if ran == 1 else "were"
        ends = "the true end of one is" if lost == 1 else f"the ends of {lost} are"
        yield build_incident(
            kind="log-gap",
            severity=WARNING,
            text=f"{age(gap.seconds)} gap in the log while {count(ran, 'job')} {was} running"
            f"{damaged}: {ends} unknown",
            advice="Look for a full disk or quota at that time where the log is written; hours are "
            "counted up to the moment that proves the end",
            since=gap.since,
            until=gap.until,
            entries=gap.lost,
        )
    if glued and not gaps:
        yield build_incident(
            kind="log-damage",
            severity=NOTE,
            text=f"The log was cut in the middle of an event ({where}): the rest of it is missing",
            advice="Look for a full disk or quota at that time where the log is written",
            key_suffix=where,
        )


def silent_logs(stats_input: StatsInput) -> Iterator[Incident]:
    """A live log that fell silent while jobs run."""
    status, ledger = stats_input.status, stats_input.ledger
    running = [e for e in ledger.executions if e.end is None and not e.dagman]
    logs = [
        (log.first, log.last, log.events)
        for log in status.logs
        if log.first is not None and log.last is not None
    ]
    if not status.live or status.as_of is None or not running or not logs:
        return
    first, last, events = max(logs, key=lambda log: log[1])
    silent = ledger.seconds_between(last, status.as_of)
    if silent < max(
        SILENT_SECONDS, SILENT_TIMES * ledger.seconds_between(first, last) / max(1, events)
    ):
        return
    yield build_incident(
        kind="log-gap",
        severity=ALARM,
        text=f"Nothing has been logged for {age(silent)} although {count(len(running), 'job')} ran "
        "at the last event",
        advice="Ask the queue (condor_q); see whether the log's disk is full, or was unmounted",
        since=last,
        ongoing=True,
        entries=running,
        key_suffix="silence",
    )


def full_disk(stats_input: StatsInput) -> Iterator[Incident]:
    """Executions and holds caused by a full disk or quota."""
    ended = [e for e in stats_input.ledger.executions if e.end is not None and e.kind == "bad"]
    affected = [e for e in ended if e.reason and _mentions_full_disk(e.reason)]
    # A full disk truncates the log, too: a missing reason is that of simultaneous ends.
    affected += [
        e
        for e in ended
        if not e.reason
        and e.code is not None
        and any(
            e.code == other.code and abs(_end(e) - _end(other)) < timedelta(minutes=1)
            for other in affected
        )
    ]
    held = {
        row.key
        for row in stats_input.status.runs
        if row.state is State.HELD
        and row.latest is not None
        and _mentions_full_disk(row.latest.hold_reason or "")
    }
    for group in _group_by_time(affected, _end, DAY):
        first, last = end_range(group)
        ongoing = not held.isdisjoint(e.run for e in group)
        yield build_incident(
            kind="disk-quota",
            severity=ALARM if ongoing else WARNING,
            text=f"Disk full or over quota: {count(len(group), 'execution')} of "
            f"{names_of(group)} ended by it, {_lost_hours(group)} of badput",
            advice="Free space or raise the quota (quota -s, df), then release what is held",
            since=first,
            until=None if ongoing else last,
            ongoing=ongoing,
            entries=group,
        )


@lru_cache(maxsize=4096)
def _mentions_full_disk(reason: str) -> bool:
    return FULL_DISK.search(reason) is not None


# --- actions of the pool and of users ---------------------------------------------------------


def mass_evictions(stats_input: StatsInput) -> Iterator[Incident]:
    """Many runs that lost their jobs together at one site, without a user action."""
    entries = stats_input.ledger.executions
    usual = median([e.seconds for e in entries if e.final] or [4 * TOGETHER_SECONDS])
    evicted = [
        e
        for e in entries
        if e.outcome in EVICTION_OUTCOMES
        and e.code not in USER_VACATE_CODES
        and not e.dagman
        and not _mentions_full_disk(e.reason or "")
    ]
    for site, lost in group_by(evicted, lambda e: e.site).items():
        for group in _group_by_time(lost, _end, min(TOGETHER_SECONDS, usual / 4)):
            runs = {e.run for e in group if e.run is not None}
            if len(runs) < MIN_RUNS:
                continue
            first, last = end_range(group)
            seconds = stats_input.ledger.seconds_between(first, last)
            cause = next((f": {e.cause}" for e in group if e.cause), "")
            yield build_incident(
                kind="evictions",
                severity=WARNING,
                text=f"{count(len(group), 'job')} of {len(runs)} runs were evicted"
                f"{'' if site is None else f' at {site}'} within "
                f"{age(seconds)}, {_lost_hours(group)} of badput"
                f"{cause}",
                advice="HTCondor queues them again; if it happens again, ask the site what "
                "ended there, or leave it out",
                since=first,
                until=last,
                entries=group,
                key_suffix=site or "",
            )


def removals(stats_input: StatsInput) -> Iterator[Incident]:
    """Removals of a DAG, or of the jobs of many runs, by a user while they ran."""
    ended = [
        e
        for e in stats_input.ledger.executions
        if not e.dagman
        and not e.uncertain
        and e.end is not None
        and (e.outcome is Outcome.REMOVED or e.code in USER_VACATE_CODES)
    ]
    for group in _group_by_time(ended, _end, TOGETHER_SECONDS):
        dag = any("DAG Removed" in (e.reason or "") for e in group)
        if not dag and len({e.run for e in group}) < MIN_RUNS:
            continue
        first, last = end_range(group)
        yield build_incident(
            kind="removed",
            severity=NOTE,
            text=f"The {'DAG was' if dag else 'jobs were'} removed by a user (condor_rm) while "
            f"{count(len(group), 'job')} ran: {_lost_hours(group)} of badput",
            advice="Nothing to do. Halting the DAG (Z) lets the epochs that run end first",
            since=first,
            until=last,
            entries=group,
        )


# --- transfers ------------------------------------------------------------------------------


def stalled_transfers(stats_input: StatsInput) -> Iterator[Incident]:
    """Transfers that took much longer than the median of their site."""
    ledger = stats_input.ledger
    ok = [t for t in ledger.transfers if t.outcome == "ok" and t.seconds is not None]
    overall = group_by(ok, lambda t: t.direction)
    by_site = group_by(ok, lambda t: (t.direction, t.site))

    @lru_cache
    def usual_seconds(direction: str, site: str | None) -> float | None:
        group = by_site.get((direction, site), [])
        if len(group) < MIN_TRANSFERS:
            group = overall.get(direction, [])
        return median(t.seconds or 0.0 for t in group) if group else None

    stalls = [
        t
        for t in ledger.transfers
        if t.start is not None
        and (t.seconds or 0.0) >= STALL_SECONDS
        and (usual := usual_seconds(t.direction, t.site)) is not None
        and (t.seconds or 0.0) >= STALL_TIMES * usual
    ]
    if stalls:
        # A transfer within a gap of the log may have ended much earlier.
        gaps = [gap for gap in _log_gaps(stats_input) if gap.seconds >= SILENT_SECONDS]
        stalls = [
            t
            for t in stalls
            if not any(
                gap.since <= (t.end or ledger.as_of or gap.since) and _start(t) <= gap.until
                for gap in gaps
            )
        ]
    for (direction, site), transfers in group_by(stalls, lambda t: (t.direction, t.site)).items():
        for group in _group_by_time(transfers, _start, DAY):
            ongoing = any(t.outcome == "in-flight" for t in group)
            longest = max(t.seconds or 0.0 for t in group)
            failed = sum(t.outcome in ("unfinished", "aborted") for t in group)
            text = (
                f"{count(len(group), f'{direction} transfer')}{f' at {site}' if site else ''} took "
                f"{'up to ' if len(group) > 1 else ''}{age(longest)}; usual is "
                f"{age(usual_seconds(direction, site) or 0.0)}"
            )
            if failed == len(group):
                text += f", and no job started from {'it' if failed == 1 else 'them'}"
            elif failed:
                text += f"; {failed} of them failed"
            ends = [t.end for t in group if t.end is not None]
            yield build_incident(
                kind="stalled-transfer",
                severity=WARNING,
                text=text,
                advice="Wait, or vacate the job (V): it tries again, perhaps elsewhere"
                if ongoing
                else "See whether other jobs transfer there now; if not, leave the site out",
                since=group[0].start,
                until=None if ongoing else max(ends, default=None),
                ongoing=ongoing,
                entries=group,
                key_suffix=f"{direction} {site}",
            )


# --- for all rules -------------------------------------------------------------------------


def build_incident(
    *,
    kind: str,
    severity: IncidentSeverity,
    text: str,
    advice: str,
    since: datetime | None = None,
    until: datetime | None = None,
    ongoing: bool = False,
    entries: Sequence[Entry] = (),
    runs: Iterable[str] = (),
    jobs: Iterable[JobId | None] = (),
    short_text: str = "",
    key_suffix: str = "",
) -> Incident:
    """Build an incident; ``entries``: those of its jobs, else ``runs`` and ``jobs``."""
    sites = {None if isinstance(entry, JobEntry) else entry.site for entry in entries}
    return Incident(
        key=f"{kind} {since} {key_suffix}".rstrip(),
        kind=kind,
        severity=severity,
        since=since,
        until=until,
        ongoing=ongoing,
        text=text,
        advice=advice,
        runs=_unique([*runs, *(entry.run for entry in entries)]),
        jobs=_unique([*jobs, *(entry.job for entry in entries)]),
        site=next(iter(sites)) if len(sites) == 1 else None,
        short_text=short_text,
    )


def _end(execution: ExecutionEntry) -> datetime:
    return execution.end or execution.start


def _start(transfer: TransferEntry) -> datetime:
    return transfer.start or datetime.min


def _group_by_time(
    items: Iterable[T], when: Callable[[T], datetime], seconds: float
) -> list[list[T]]:
    """Group items by time, each within ``seconds`` of the previous one."""
    groups: list[list[T]] = []
    for item in sorted(items, key=when):
        if groups and (when(item) - when(groups[-1][-1])).total_seconds() <= seconds:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def end_range(group: Sequence[ExecutionEntry]) -> tuple[datetime, datetime]:
    ends = [e.end or e.start for e in group]
    return min(ends), max(ends)


def _lost_hours(group: Iterable[ExecutionEntry]) -> str:
    return f"{hours(sum(e.gpu_seconds or 0.0 for e in group) / HOUR)} GPU-hours"


def names_of(group: Iterable[ExecutionEntry]) -> str:
    return listed(_unique(e.run_name for e in group)) or "no run"


def listed(names: Sequence[str], most: int = 4) -> str:
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _unique(values: Iterable[T | None]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(value for value in values if value is not None))
