"""Incidents that a person should know of, as pure functions of one snapshot.

An incident is rarer than a problem: a lost execution is a problem, and retried; a full disk, a gap
in a log, or the eviction of many jobs at a site is an incident. Each kind has a rule below, with
its thresholds; no rule matches what DAGMan merely retries.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import Final, TypeAlias, TypeVar

from metlmon.frozen import frozen
from metlmon.model.job_events import JobId
from metlmon.model.reasons import fold_reason
from metlmon.model.states import DagState, Outcome, State
from metlmon.snapshot.ledger import HOUR, ExecutionEntry, RunEntry, TransferEntry
from metlmon.snapshot.lookups import ANY_SITE_TARGETS, POOL_TARGETS
from metlmon.snapshot.types import FailedEpoch
from metlmon.stats.epoch_times import USER_VACATE_CODES, elapsed, naive_time
from metlmon.stats.inputs import StatsInput
from metlmon.text.formatting import age, count, hours

T = TypeVar("T")

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

UNSERVED_SECONDS: Final = 3 * 3600.0
UNSERVED_TIMES: Final = 5.0
"""A target without any execution, while others have some, is reported after three hours and five
times the median wait of the others."""

RECENT_SECONDS: Final = 3 * DAY
"""Incidents that ended longer ago are not shown in the header."""

FULL_DISK: Final = re.compile(r"disk quota exceeded|no space left on device|\bENOSPC\b", re.I)


class IncidentSeverity(IntEnum):
    """Severity: nothing to do; time or accuracy lost; a run stopped until an action."""

    NOTE = 1
    WARNING = 2
    ALARM = 3


@frozen
class Incident:
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


def incidents(stats_input: StatsInput) -> tuple[Incident, ...]:
    """All incidents: the ongoing ones first, then the newest first."""
    matches = [incident for rule in RULES for incident in rule(stats_input)]
    matches.sort(key=lambda match: (match.ongoing, _sort_time(match), match.severity), reverse=True)
    return tuple(matches)


def urgent_incidents(stats_input: StatsInput, all_incidents: Sequence[Incident]) -> list[Incident]:
    """The incidents for the header, most severe first: ongoing or recent, no notes.

    Past incidents of completed runs only are excluded.
    """
    now = stats_input.ledger.as_of
    done = {run.run for run in stats_input.ledger.runs if run.state is State.COMPLETED}
    selected = [
        incident
        for incident in all_incidents
        if incident.severity > IncidentSeverity.NOTE
        and (incident.ongoing or not incident.runs or not done.issuperset(incident.runs))
        and (
            incident.ongoing
            or now is None
            or incident.until is None
            or elapsed(stats_input.ledger, incident.until, now) <= RECENT_SECONDS
        )
    ]
    selected.sort(
        key=lambda incident: (incident.severity, incident.ongoing, _sort_time(incident)),
        reverse=True,
    )
    return selected


@frozen
class IncidentList:
    """All incidents, with those for the header, the most severe first (``urgent``).

    ``seconds``: durations by key, where both ends are known; ``names``: run names by run key.
    """

    incidents: tuple[Incident, ...]
    urgent: tuple[Incident, ...]
    seconds: Mapping[str, float]
    names: Mapping[str, str]


def incident_list(stats_input: StatsInput) -> IncidentList:
    """The statistic of the incidents screen."""
    all_incidents = incidents(stats_input)
    durations = {
        incident.key: elapsed(stats_input.ledger, incident.since, incident.until)
        for incident in all_incidents
        if incident.since is not None and incident.until is not None
    }
    names = {run.run: run.run_name for run in stats_input.ledger.runs}
    return IncidentList(
        incidents=all_incidents,
        urgent=tuple(urgent_incidents(stats_input, all_incidents)),
        seconds=durations,
        names=names,
    )


def run_names(incident: Incident, incident_list: IncidentList) -> tuple[str, ...]:
    """The names of the runs of an incident."""
    return tuple(incident_list.names.get(run, run) for run in incident.runs)


def _sort_time(incident: Incident) -> datetime:
    return naive_time(incident.since or incident.until or datetime.min)


# --- the log, the disk ----------------------------------------------------------------------


@frozen
class _LogGap:
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
        naive_time(time) for e in ledger.executions for time in (e.start, e.end) if time is not None
    )
    gaps = []
    for group in _group_by_time(lost, lambda e: e.end or e.start, TOGETHER_SECONDS):
        until = max((e.end for e in group if e.end is not None), key=naive_time)
        index = bisect_left(logged_times, naive_time(until) - timedelta(seconds=60))
        since = logged_times[index - 1].replace(tzinfo=until.tzinfo) if index else group[0].start
        gaps.append(_LogGap(since, until, elapsed(ledger, since, until), group))
    return gaps


def _silence_limit(stats_input: StatsInput) -> float:
    """Seconds without an event beyond which a log counts as silent."""
    pauses = [
        elapsed(stats_input.ledger, log.first, log.last) / max(1, log.events)
        for log in stats_input.status.logs
        if log.first is not None and log.last is not None
    ]
    return max(SILENT_SECONDS, SILENT_TIMES * min(pauses, default=0.0))


def log_gaps(stats_input: StatsInput) -> Iterator[Incident]:
    """Gaps in the log while jobs ran, other damage, and logs that fell silent."""
    ledger = stats_input.ledger
    glued = [notice for notice in stats_input.status.warnings if notice.kind == "glued-header"]
    where = ", ".join(f"{notice.file}:{notice.line}" for notice in glued[:3])
    gaps, silent = _log_gaps(stats_input), _silence_limit(stats_input)
    for gap in gaps:
        if gap.seconds < silent:
            yield _missing_ends(gap.lost, gap.since, gap.until)
            continue
        ran = sum(
            not e.dagman
            and naive_time(e.start) < naive_time(gap.until)
            and (e.end is None or naive_time(e.end) > naive_time(gap.since))
            for e in ledger.executions
        )
        damaged = f" ({where} is damaged)" if where else ""
        ends = "the true end of one" if len(gap.lost) == 1 else f"the ends of {len(gap.lost)}"
        text = (
            f"The log lacks {age(gap.seconds)} in which {count(ran, 'job')} ran{damaged}: "
            f"{ends} {'is' if len(gap.lost) == 1 else 'are'} not known"
        )
        advice = (
            "Look for a full disk or quota then, where the log is written; the hours are counted "
            "up to the moment that proves the end"
        )
        yield _incident(
            kind="log-gap",
            severity=IncidentSeverity.WARNING,
            since=gap.since,
            until=gap.until,
            ongoing=False,
            text=text,
            advice=advice,
            executions=gap.lost,
        )
    if glued and not gaps:
        text = f"The log was cut in the middle of an event ({where}): what it said is lost"
        advice = "Look for a full disk or quota at that time where the log is written"
        yield Incident(
            key=f"log-damage {where}",
            kind="log-damage",
            severity=IncidentSeverity.NOTE,
            since=None,
            until=None,
            ongoing=False,
            text=text,
            advice=advice,
        )
    yield from _silent_logs(stats_input)


def _missing_ends(group: Sequence[ExecutionEntry], since: datetime, until: datetime) -> Incident:
    """An incident for ends missing from a log that continued for other jobs."""
    text = f"The log does not say how {count(len(group), 'execution')} of {_run_names(group)} ended"
    advice = "Nothing to do: the hours are counted up to the moment that proves it was over"
    return _incident(
        kind="log-damage",
        severity=IncidentSeverity.NOTE,
        since=since,
        until=until,
        ongoing=False,
        text=text,
        advice=advice,
        executions=group,
        key_suffix="end",
    )


def _silent_logs(stats_input: StatsInput) -> Iterator[Incident]:
    status, ledger = stats_input.status, stats_input.ledger
    if not status.live or status.as_of is None:
        return
    running = [e for e in ledger.executions if e.end is None and not e.dagman]
    logs = [log for log in status.logs if log.last is not None and log.first is not None]
    if not running or not logs:
        return
    newest = max(logs, key=lambda log: naive_time(log.last or datetime.min))
    if newest.last is None or newest.first is None:
        return
    silent = elapsed(ledger, newest.last, status.as_of)
    mean_interval = elapsed(ledger, newest.first, newest.last) / max(1, newest.events)
    if silent < max(SILENT_SECONDS, SILENT_TIMES * mean_interval):
        return
    text = (
        f"Nothing has been logged for {age(silent)} although {count(len(running), 'job')} ran "
        "when the log fell silent"
    )
    advice = "Ask the queue (condor_q); see whether the log's disk is full, or was unmounted"
    yield _incident(
        kind="log-gap",
        severity=IncidentSeverity.ALARM,
        since=newest.last,
        until=None,
        ongoing=True,
        text=text,
        advice=advice,
        executions=running,
        key_suffix="silence",
    )


def full_disk(stats_input: StatsInput) -> Iterator[Incident]:
    """Executions and holds caused by a full disk or quota."""
    ended = [e for e in stats_input.ledger.executions if e.end is not None and e.kind == "bad"]
    affected = [e for e in ended if e.reason and _mentions_full_disk(e.reason)]
    if not affected:
        return
    # A full disk truncates the log, too: a missing reason is that of simultaneous ends.
    affected += [
        e for e in ended if not e.reason and e.code is not None and _simultaneous(e, affected)
    ]
    for group in _group_by_time(affected, lambda e: e.end or e.start, DAY):
        first, last = _end_range(group)
        text = (
            f"The disk was full, or over its quota: "
            f"{count(len(group), 'execution')} of {_run_names(group)} ended for it, "
            f"{_lost_hours(group)} lost"
        )
        advice = "Free space or raise the quota (quota -s, df), then release what is held"
        held = {
            r.key
            for r in stats_input.status.runs
            if r.state is State.HELD and _held_by_full_disk(r.latest)
        }
        still = bool(held & {e.run for e in group})
        severity = IncidentSeverity.ALARM if still else IncidentSeverity.WARNING
        until = None if still else last
        yield _incident(
            kind="disk-quota",
            severity=severity,
            since=first,
            until=until,
            ongoing=still,
            text=text,
            advice=advice,
            executions=group,
        )


def _simultaneous(e: ExecutionEntry, others: Sequence[ExecutionEntry]) -> bool:
    return any(
        e.code == other.code
        and abs(
            (naive_time(e.end or e.start) - naive_time(other.end or other.start)).total_seconds()
        )
        < 60
        for other in others
    )


@lru_cache(maxsize=4096)
def _mentions_full_disk(reason: str) -> bool:
    return FULL_DISK.search(reason) is not None


def _held_by_full_disk(latest: object) -> bool:
    reason = getattr(latest, "hold_reason", None)
    return bool(reason and FULL_DISK.search(reason))


# --- actions of the pool and of users ---------------------------------------------------------


_EVICTION_OUTCOMES: Final = frozenset(
    {Outcome.EVICTED, Outcome.SHADOW_EXCEPTION, Outcome.RECONNECT_FAILED}
)


def mass_evictions(stats_input: StatsInput) -> Iterator[Incident]:
    """Many runs that lost their jobs together at one site, without a user action."""
    entries = stats_input.ledger.executions
    usual = median([e.seconds for e in entries if e.final] or [4 * TOGETHER_SECONDS])
    window = min(TOGETHER_SECONDS, usual / 4)
    sites: dict[str | None, list[ExecutionEntry]] = {}
    for e in entries:
        evicted = (
            e.outcome in _EVICTION_OUTCOMES and e.code not in USER_VACATE_CODES and not e.dagman
        )
        if evicted and not (e.reason and _mentions_full_disk(e.reason)):
            sites.setdefault(e.site, []).append(e)
    for site, lost in sites.items():
        for group in _group_by_time(lost, lambda e: e.end or e.start, window):
            runs = {e.run for e in group if e.run is not None}
            if len(runs) < MIN_RUNS:
                continue
            first, last = _end_range(group)
            why = next((e.cause for e in group if e.cause), None)
            text = (
                f"{count(len(group), 'job')} of {len(runs)} runs lost "
                f"{'their machines' if site is None else f'their machines at {site}'} within "
                f"{age(elapsed(stats_input.ledger, first, last))}, {_lost_hours(group)} lost"
            )
            text += f": {why}" if why else ""
            advice = (
                "They are queued again by themselves; if it comes again, ask the site what ended "
                "there, or leave it out"
            )
            yield _incident(
                kind="evictions",
                severity=IncidentSeverity.WARNING,
                since=first,
                until=last,
                ongoing=False,
                text=text,
                advice=advice,
                executions=group,
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
    for group in _group_by_time(ended, lambda e: e.end or e.start, TOGETHER_SECONDS):
        dag = any("DAG Removed" in (e.reason or "") for e in group)
        if not dag and len({e.run for e in group}) < MIN_RUNS:
            continue
        first, last = _end_range(group)
        text = (
            f"A person removed the {'DAG' if dag else 'jobs'} while "
            f"{count(len(group), 'job')} ran: {_lost_hours(group)} lost"
        )
        advice = "Nothing to do. Halting the DAG (Z) lets the epochs that run end first"
        yield _incident(
            kind="removed",
            severity=IncidentSeverity.NOTE,
            since=first,
            until=last,
            ongoing=False,
            text=text,
            advice=advice,
            executions=group,
        )


# --- transfers ------------------------------------------------------------------------------


def stalled_transfers(stats_input: StatsInput) -> Iterator[Incident]:
    """Transfers that took much longer than the median of their site."""
    ledger = stats_input.ledger
    long_transfers = [
        transfer for transfer in ledger.transfers if (transfer.seconds or 0.0) >= STALL_SECONDS
    ]
    if not long_transfers:
        return
    usual_of = _usual_seconds(ledger.transfers)
    gaps: list[tuple[datetime, datetime]] | None = None
    stalls: dict[tuple[str, str | None], list[TransferEntry]] = {}
    for transfer in long_transfers:
        if transfer.seconds is None or transfer.start is None:
            continue
        usual_seconds = usual_of(transfer.direction, transfer.site)
        if usual_seconds is None or transfer.seconds < max(
            STALL_SECONDS, STALL_TIMES * usual_seconds
        ):
            continue
        # A transfer within a gap of the log may have ended much earlier.
        if gaps is None:
            gaps = [
                (h.since, h.until) for h in _log_gaps(stats_input) if h.seconds >= SILENT_SECONDS
            ]
        end = naive_time(transfer.end or ledger.as_of or transfer.start)
        if any(
            naive_time(a) <= end and naive_time(transfer.start) <= naive_time(b) for a, b in gaps
        ):
            continue
        stalls.setdefault((transfer.direction, transfer.site), []).append(transfer)
    for (direction, site), transfers in stalls.items():
        for group in _group_by_time(
            transfers, lambda transfer: transfer.start or datetime.min, DAY
        ):
            still = any(transfer.outcome == "in-flight" for transfer in group)
            longest = max(transfer.seconds or 0.0 for transfer in group)
            failed = sum(transfer.outcome in ("unfinished", "aborted") for transfer in group)
            usual_seconds = usual_of(direction, site) or 0.0
            location, up_to = f" at {site}" if site else "", "up to " if len(group) > 1 else ""
            text = (
                f"{count(len(group), direction + ' transfer')}{location} took {up_to}{age(longest)}"
                f"; usual is {age(usual_seconds)}"
            )
            if failed == len(group):
                text += ", and no job started from " + ("it" if failed == 1 else "them")
            elif failed:
                text += f"; {failed} of them failed"
            advice = "See whether other jobs transfer there now; if not, leave the site out"
            if still:
                advice = "Wait, or vacate the job (V): it tries again, perhaps elsewhere"
            starts = [transfer.start for transfer in group if transfer.start is not None]
            ends = [transfer.end for transfer in group if transfer.end is not None]
            yield Incident(
                key=f"stall {direction} {site} {starts[0]}",
                kind="stalled-transfer",
                severity=IncidentSeverity.WARNING,
                since=min(starts, key=naive_time),
                until=None if still else max(ends, key=naive_time, default=None),
                ongoing=still,
                text=text,
                advice=advice,
                runs=_unique(transfer.run for transfer in group),
                jobs=_unique(transfer.job for transfer in group),
                site=site,
            )


def _usual_seconds(
    transfers: Iterable[TransferEntry],
) -> Callable[[str, str | None], float | None]:
    by_site: dict[tuple[str, str | None], list[float]] = {}
    overall: dict[str, list[float]] = {}
    for transfer in transfers:
        if transfer.outcome == "ok" and transfer.seconds is not None:
            by_site.setdefault((transfer.direction, transfer.site), []).append(transfer.seconds)
            overall.setdefault(transfer.direction, []).append(transfer.seconds)
    site_medians = {
        key: median(times) for key, times in by_site.items() if len(times) >= MIN_TRANSFERS
    }
    medians = {key: median(times) for key, times in overall.items()}

    def usual(direction: str, site: str | None) -> float | None:
        return site_medians.get((direction, site), medians.get(direction))

    return usual


# --- stopped runs ---------------------------------------------------------------------------


def held_runs(stats_input: StatsInput) -> Iterator[Incident]:
    """Held runs, by reason."""
    reasons: dict[str, list[RunEntry]] = {}
    for run in stats_input.ledger.runs:
        if run.state is State.HELD and run.latest is not None:
            reasons.setdefault(fold_reason(run.latest.hold_reason or ""), []).append(run)
    for reason, runs in reasons.items():
        latest = [run.latest for run in runs if run.latest is not None]
        since = min(
            (row.since for row in latest if row.since is not None), key=naive_time, default=None
        )
        hold_reason = next((row.hold_reason for row in latest if row.hold_reason), None)
        one = len(runs) == 1
        held = f"{'is' if one else 'are'} held"
        held += f": {hold_reason}" if hold_reason else ", and the log gives no reason"
        text = f"{_listed([run.run_name for run in runs])} {held}"
        advice = "Remove the cause, then release it (R); or remove the job (X) to have it retried"
        yield Incident(
            key=f"held {reason} {runs[0].run}",
            kind="held",
            severity=IncidentSeverity.ALARM,
            since=since,
            until=None,
            ongoing=True,
            text=text,
            advice=advice,
            runs=tuple(run.run for run in runs),
            jobs=tuple((row.cluster, row.proc or 0) for row in latest if row.cluster is not None),
            short_text=f"{'a run' if one else count(len(runs), 'run')} {held}",
        )


def exhausted_retries(stats_input: StatsInput) -> Iterator[Incident]:
    """Runs that stopped because an epoch failed and has no retries left."""
    dags = {dag.file: dag.state for dag in stats_input.status.dags}
    for run in stats_input.ledger.runs:
        if run.state is not State.FAILED or dags.get(run.dag) is DagState.REMOVED:
            continue
        if run.failed is not None and run.failed.part in WITHOUT_JOB:
            yield _without_job(run, run.failed)
            continue
        latest = run.latest
        if latest is None:
            continue
        epoch = f"epoch {latest.epoch}" if latest.epoch is not None else latest.node
        text = f"stands still: {epoch} failed, and is not tried again"
        if latest.attempt > 1:
            tries = count(latest.attempt, "try", "tries")
            text = f"stands still: {epoch} failed after {tries}, its retries are used up"
        advice = (
            "See in the job's output why; remove the cause, then submit the DAG again (U): it "
            "goes on from there"
        )
        yield Incident(
            key=f"exhausted {run.run} {latest.node}",
            kind="exhausted",
            severity=IncidentSeverity.ALARM,
            since=latest.since,
            until=None,
            ongoing=True,
            text=f"{run.run_name} {text}",
            advice=advice,
            runs=(run.run,),
            jobs=() if latest.cluster is None else ((latest.cluster, latest.proc or 0),),
            short_text=f"a run {text}",
        )


WITHOUT_JOB: Final = {
    "pre": (
        "script-failed",
        "See in the submit directory why its PRE script failed; remove the cause, then submit "
        "the DAG again (U): it goes on from there",
    ),
    "submit": (
        "submit-failed",
        "See its submit description (metlmon check), and DAGMan's .dagman.out, which has the "
        "error; then submit the DAG again (U): it goes on from there",
    ),
}
"""The kind of incident and the advice, by the part of a node that failed without a job."""


def _without_job(run: RunEntry, failed: FailedEpoch) -> Incident:
    kind, advice = WITHOUT_JOB[failed.part or "pre"]
    epoch = f"epoch {failed.epoch}" if failed.epoch is not None else failed.node
    text = f"stands still: {epoch} failed without a job: {failed.reason}"
    return Incident(
        key=f"{kind} {run.run} {failed.node}",
        kind=kind,
        severity=IncidentSeverity.ALARM,
        since=failed.since,
        until=None,
        ongoing=True,
        text=f"{run.run_name} {text}",
        advice=advice,
        runs=(run.run,),
        jobs=(),
        short_text=f"a run {text}",
    )


# --- targets --------------------------------------------------------------------------------


_Target: TypeAlias = tuple[str | None, str]
"""A top-level DAG's file, and the target of its node; other DAGs' targets are unrelated."""


def misdirected_targets(stats_input: StatsInput) -> Iterator[Incident]:
    """Targets that are missed repeatedly, and targets without any execution."""
    entries = [e for e in stats_input.ledger.executions if e.target and e.training and not e.dagman]
    wanted: dict[_Target, list[ExecutionEntry]] = {}
    for e in entries:
        if e.target is not None:
            wanted.setdefault((e.dag, e.target), []).append(e)
    targets_of: dict[str | None, set[str]] = {}
    for epoch in stats_input.ledger.epochs:
        if epoch.target is not None:
            targets_of.setdefault(epoch.dag, set()).add(_normalized(epoch.target))
    for (dag, target), served in wanted.items():
        known = frozenset(targets_of.get(dag, ()))
        wrong = {site for site in {e.site for e in served} if _misses_target(target, site, known)}
        missed = [e for e in served if e.site in wrong]
        if len(missed) == len(served):
            # The site may just be named differently: count only other targets' sites.
            missed = [e for e in missed if _names_other_target(target, e.site, known)]
        if len(missed) >= MIN_RUNS and 2 * len(missed) > len(served):
            sites = sorted({e.site for e in missed if e.site})
            text = (
                f"{len(missed)} of {count(len(served), 'execution')} that wanted {target} ran "
                f"at {_listed(sites)}"
            )
            advice = "Check the requirements of the submit description: they do not keep to it"
            still = any(e.end is None for e in missed)
            first, last = missed[0].start, _end_range(missed)[1]
            yield _incident(
                kind="misdirected",
                severity=IncidentSeverity.WARNING,
                since=first,
                until=None if still else last,
                ongoing=still,
                text=text,
                advice=advice,
                executions=missed,
                key_suffix=f"{dag} {target}",
            )
    yield from _unserved_targets(stats_input, wanted)


def _unserved_targets(
    stats_input: StatsInput, served: Mapping[_Target, Sequence[ExecutionEntry]]
) -> Iterator[Incident]:
    ledger, now = stats_input.ledger, stats_input.ledger.as_of
    waits = [e.wait for entries in served.values() for e in entries if e.wait is not None]
    if now is None or not waits:
        return
    limit = max(UNSERVED_SECONDS, UNSERVED_TIMES * median(waits))
    waiting: dict[_Target, list[tuple[datetime, JobId, str | None]]] = {}
    for job in ledger.jobs:
        if job.state is State.IDLE and job.target and job.submitted:
            wanted = job.dag, job.target
            if wanted not in served:
                waiting.setdefault(wanted, []).append((job.submitted, job.job, job.run))
    for (dag, target), jobs in waiting.items():
        since = min((submitted for submitted, _, _ in jobs), key=naive_time)
        waited = elapsed(ledger, since, now)
        if waited < limit:
            continue
        yield Incident(
            key=f"unserved {dag} {target}",
            kind="unserved",
            severity=IncidentSeverity.WARNING,
            since=since,
            until=None,
            ongoing=True,
            text=f"{count(len(jobs), 'job')} for {target} waited {age(waited)}, and none of its "
            "jobs ever started, while other targets' did",
            advice="See whether the name is the site's, and what it offers; or give the epochs "
            "another",
            runs=_unique(run for _, _, run in jobs),
            jobs=tuple(job for _, job, _ in jobs),
        )


@lru_cache(maxsize=1024)
def _normalized(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _names_other_target(target: str, site: str | None, known: frozenset[str]) -> bool:
    """Does the site's name contain the name of another target?"""
    site_name = _normalized(site or "")
    return any(
        name in site_name
        for name in known - ANY_SITE_TARGETS - POOL_TARGETS - {_normalized(target)}
    )


def _misses_target(target: str, site: str | None, known: frozenset[str]) -> bool:
    """Did a job miss its target? A pool-wide one only at another target's site.

    The rule is that of the snapshot builder.
    """
    if not site:
        return False
    wanted, site_name = _normalized(target), _normalized(site)
    if wanted in ANY_SITE_TARGETS or wanted in site_name or site_name in wanted:
        return False
    return wanted not in POOL_TARGETS or _names_other_target(target, site, known)


# --- configuration --------------------------------------------------------------------------


LOCATION_ARGUMENTS: Final = re.compile(
    r"path|dir|file|ckpt|checkpoint|output|log|version|uuid|host|resume|wandb|name|^id$|_id$"
    r"|gpus|devices|workers|nodes|slow_factor"
)
"""Arguments about where a training runs, which may differ; they do not affect the model."""


def configuration_changes(stats_input: StatsInput) -> Iterator[Incident]:
    """Arguments that changed between the epochs of one run."""
    names = {run.run: (run.run_name, run.state) for run in stats_input.ledger.runs}
    for key, training in stats_input.trainings.items():
        if key not in names:
            continue
        name, state = names[key]
        versions = sorted(training.arguments)
        changed = list(_changes(versions, training.arguments))
        if not changed:
            continue
        listed = "; ".join(
            f"{argument}: {before} in version {old}, {after} in version {new}"
            for argument, old, before, new, after in changed[:3]
        )
        more = f", and {len(changed) - 3} more" if len(changed) > 3 else ""
        yield Incident(
            key=f"configuration {key}",
            kind="configuration",
            severity=IncidentSeverity.WARNING,
            since=None,
            until=None,
            ongoing=state not in (State.COMPLETED, State.FAILED, State.REMOVED),
            text=f"{name} changed {listed}{more}",
            advice="If that was not meant, compare the args.txt of these versions: epochs trained "
            "otherwise are not of the same model",
            runs=(key,),
        )


def _changes(
    versions: Sequence[int], arguments: Mapping[int, Mapping[str, str]]
) -> Iterator[tuple[str, int, str, int, str]]:
    """The changed arguments, with versions and values before and after the change.

    Name, last version with the first value, that value, first other version, its value.
    """
    names = sorted({name for version in versions for name in arguments[version]})
    for name in names:
        plain = name.lstrip("-").lower()
        values = [(v, arguments[v].get(name, "")) for v in versions]
        if LOCATION_ARGUMENTS.search(plain) or any("/" in value for _, value in values):
            continue
        if len({value for _, value in values}) < 2 or _counts_up(plain, values):
            continue
        first = values[0][1]
        index = next(i for i, (_, value) in enumerate(values) if value != first)
        before = values[index - 1][0]
        version, value = values[index]
        yield plain, before, first or "not given", version, value or "not given"


def _counts_up(name: str, texts: Sequence[tuple[int, str]]) -> bool:
    """Is the argument an epoch counter, growing by at most one per version?"""
    if "epoch" not in name and "seed" not in name:
        return False
    try:
        values = [(version, int(text)) for version, text in texts]
    except ValueError:
        return False
    return all(0 <= b - a <= new - old for (old, a), (new, b) in pairwise(values))


# --- shared ---------------------------------------------------------------------------------


RULES: Final[tuple[Callable[[StatsInput], Iterable[Incident]], ...]] = (
    held_runs,
    exhausted_retries,
    log_gaps,
    full_disk,
    mass_evictions,
    stalled_transfers,
    misdirected_targets,
    configuration_changes,
    removals,
)


def _incident(
    kind: str,
    severity: IncidentSeverity,
    since: datetime | None,
    until: datetime | None,
    ongoing: bool,
    text: str,
    advice: str,
    executions: Sequence[ExecutionEntry],
    key_suffix: str = "",
) -> Incident:
    """Build an incident from its executions."""
    sites = {e.site for e in executions}
    return Incident(
        key=f"{kind} {since} {key_suffix}".rstrip(),
        kind=kind,
        severity=severity,
        since=since,
        until=until,
        ongoing=ongoing,
        text=text,
        advice=advice,
        runs=_unique(e.run for e in executions),
        jobs=_unique(e.job for e in executions),
        site=next(iter(sites)) if len(sites) == 1 else None,
    )


def _group_by_time(
    items: Iterable[T], when: Callable[[T], datetime], seconds: float
) -> Iterator[list[T]]:
    """Group items by time, each within ``seconds`` of the previous one."""
    group: list[T] = []
    for item in sorted(items, key=lambda item: naive_time(when(item))):
        if group:
            pause = naive_time(when(item)) - naive_time(when(group[-1]))
            if pause.total_seconds() > seconds:
                yield group
                group = []
        group.append(item)
    if group:
        yield group


def _end_range(group: Sequence[ExecutionEntry]) -> tuple[datetime, datetime]:
    ends = [e.end or e.start for e in group]
    return min(ends, key=naive_time), max(ends, key=naive_time)


def _lost_hours(group: Iterable[ExecutionEntry]) -> str:
    return f"{hours(sum(e.gpu_seconds or 0.0 for e in group) / HOUR)} GPU-hours"


def _run_names(group: Iterable[ExecutionEntry]) -> str:
    names = _unique(e.run_name for e in group)
    return _listed(names) if names else "no run"


def _listed(names: Sequence[str], most: int = 4) -> str:
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _unique(values: Iterable[T | None]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(value for value in values if value is not None))
