"""What happened that a person should know of: pure functions over one picture.

An incident is rarer than a problem: a lost execution is a problem, and retried; that a disk is
full, that a log has a hole, that a whole site let go of its jobs is an incident. Each kind has
its rule below, with the numbers it goes by; none is struck by what DAGMan retries on its own.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias, TypeVar

from metlmon.frozen import frozen
from metlmon.model.job_events import JobId
from metlmon.model.reasons import fold_reason
from metlmon.model.states import DagState, Outcome, State
from metlmon.snapshot.builder import ANYWHERE, POOLS
from metlmon.snapshot.ledger import HOUR, ExecutionEntry, RunEntry, TransferEntry
from metlmon.snapshot.types import FailedEpoch
from metlmon.stats.epoch_times import USER_VACATE_CODES, elapsed, naive_time
from metlmon.stats.quantiles import median
from metlmon.stats.worker import StatsInput
from metlmon.text.formatting import age, count, hours

T = TypeVar("T")

TOGETHER_SECONDS: Final = 300.0
"""Evictions within five minutes have one cause: a glidein's or a site's end is logged within
that. Of trainings that take minutes, a quarter of one."""

MANY: Final = 3
"""So many runs that lose their jobs together at one site are no coincidence."""

DAY: Final = 86400.0
"""A full disk's complaints, or a site's stalls, within a day are one incident."""

STALL_SECONDS: Final = 900.0
STALL_TIMES: Final = 5.0
"""A transfer is stalled when it takes longer than a quarter of an hour, and five times as long
as its site's usual one."""

HABIT: Final = 3
"""Transfers that a site needs to have a habit; of fewer, all sites' is taken."""

SILENT_SECONDS: Final = 3600.0
SILENT_TIMES: Final = 20.0
"""A live log is silent for too long after an hour, and twenty times its mean pause, while jobs
run: they log their memory's size every few minutes."""

UNSERVED_SECONDS: Final = 3 * 3600.0
UNSERVED_TIMES: Final = 5.0
"""A target that never took a job while others did is suspicious after three hours, and five
times what others usually wait."""

RECENT_SECONDS: Final = 3 * DAY
"""What was over longer ago than this is not told in the header any more."""

FULL_DISK: Final = re.compile(r"disk quota exceeded|no space left on device|\bENOSPC\b", re.I)


class IncidentSeverity(IntEnum):
    """How bad: nothing to do; costs time or truth; a run stands still until a person acts."""

    NOTE = 1
    WARNING = 2
    ALARM = 3


@frozen
class Incident:
    """One incident. ``until`` None with ``still``: it lasts. ``text``: what happened, one
    sentence; ``advice``: what to do next. ``runs`` are run keys; ``site`` where it is one
    site's. ``brief``: the text without the runs' names. Names in the text are as logged: they
    are made plain where they are drawn."""

    key: str
    kind: str
    severity: IncidentSeverity
    since: datetime | None
    until: datetime | None
    still: bool
    text: str
    advice: str
    runs: tuple[str, ...] = ()
    jobs: tuple[JobId, ...] = ()
    site: str | None = None
    brief: str = ""

    @property
    def headline(self) -> str:
        """As the header tells it, below which the runs' names stand anyway."""
        return self.brief or self.text


def incidents(basis: StatsInput) -> tuple[Incident, ...]:
    """All of them: what lasts first, then the newest first."""
    every = [each for rule in RULES for each in rule(basis)]
    every.sort(key=lambda each: (each.still, _when(each), each.severity), reverse=True)
    return tuple(every)


def pressing(basis: StatsInput, all_of_them: Sequence[Incident]) -> list[Incident]:
    """Those that the header tells of, the worst first: what lasts or was lately, and is more
    than a note. What befell only runs that are done is over for them."""
    now = basis.ledger.as_of
    done = {run.run for run in basis.ledger.runs if run.state is State.COMPLETED}
    kept = [
        each
        for each in all_of_them
        if each.severity > IncidentSeverity.NOTE
        and (each.still or not each.runs or not done.issuperset(each.runs))
        and (
            each.still
            or now is None
            or each.until is None
            or elapsed(basis.ledger, each.until, now) <= RECENT_SECONDS
        )
    ]
    kept.sort(key=lambda each: (each.severity, each.still, _when(each)), reverse=True)
    return kept


@frozen
class IncidentList:
    """All incidents, those that matter now (the worst first), how long each lasted in seconds
    (by key; where both ends are known), and what the runs are called."""

    incidents: tuple[Incident, ...]
    pressing: tuple[Incident, ...]
    seconds: Mapping[str, float]
    names: Mapping[str, str]


def found(basis: StatsInput) -> IncidentList:
    """The incidents as a screen shows them."""
    every = incidents(basis)
    lasted = {
        each.key: elapsed(basis.ledger, each.since, each.until)
        for each in every
        if each.since is not None and each.until is not None
    }
    names = {run.run: run.run_name for run in basis.ledger.runs}
    return IncidentList(every, tuple(pressing(basis, every)), lasted, names)


def names_of(incident: Incident, told: IncidentList) -> tuple[str, ...]:
    """The names of the runs that it concerns."""
    return tuple(told.names.get(run, run) for run in incident.runs)


def _when(incident: Incident) -> datetime:
    return naive_time(incident.since or incident.until or datetime.min)


# --- the log, the disk ----------------------------------------------------------------------


@frozen
class _Hole:
    """Between two moments nothing was logged; ``lost`` are the executions whose ends are."""

    since: datetime
    until: datetime
    seconds: float
    lost: list[ExecutionEntry]


def _holes(basis: StatsInput) -> list[_Hole]:
    """Around each group of ends that were not logged: since an execution began or ended before."""
    ledger = basis.ledger
    lost = [e for e in ledger.executions if e.uncertain and e.end is not None and not e.dagman]
    if not lost:
        return []
    signs = sorted(
        naive_time(time) for e in ledger.executions for time in (e.start, e.end) if time is not None
    )
    holes = []
    for group in _together(lost, lambda e: e.end or e.start, TOGETHER_SECONDS):
        until = max((e.end for e in group if e.end is not None), key=naive_time)
        at = bisect_left(signs, naive_time(until) - timedelta(seconds=60))
        since = signs[at - 1].replace(tzinfo=until.tzinfo) if at else group[0].start
        holes.append(_Hole(since, until, elapsed(ledger, since, until), group))
    return holes


def _silent(basis: StatsInput) -> float:
    """Seconds without an event from which on a log is silent longer than it is its way."""
    pauses = [
        elapsed(basis.ledger, log.first, log.last) / max(1, log.events)
        for log in basis.status.logs
        if log.first is not None and log.last is not None
    ]
    return max(SILENT_SECONDS, SILENT_TIMES * min(pauses, default=0.0))


def log_gaps(basis: StatsInput) -> Iterator[Incident]:
    """Executions whose end was not logged: the log has a hole while jobs ran, where it is silent
    for longer than is its way. And a log that is damaged without such a loss; and one that has
    fallen silent."""
    ledger = basis.ledger
    glued = [notice for notice in basis.status.warnings if notice.kind == "glued-header"]
    where = ", ".join(f"{each.file}:{each.line}" for each in glued[:3])
    holes, silent = _holes(basis), _silent(basis)
    for hole in holes:
        if hole.seconds < silent:
            yield _lost_ends(hole.lost, hole.since, hole.until)
            continue
        ran = sum(
            not e.dagman
            and naive_time(e.start) < naive_time(hole.until)
            and (e.end is None or naive_time(e.end) > naive_time(hole.since))
            for e in ledger.executions
        )
        damaged = f" ({where} is damaged)" if where else ""
        ends = "the true end of one" if len(hole.lost) == 1 else f"the ends of {len(hole.lost)}"
        text = (
            f"The log lacks {age(hole.seconds)} in which {count(ran, 'job')} ran{damaged}: "
            f"{ends} {'is' if len(hole.lost) == 1 else 'are'} not known"
        )
        advice = (
            "Look for a full disk or quota then, where the log is written; the hours are counted "
            "up to the moment that proves the end"
        )
        yield _incident(
            "log-gap",
            IncidentSeverity.WARNING,
            hole.since,
            hole.until,
            False,
            text,
            advice,
            hole.lost,
        )
    if glued and not holes:
        text = f"The log was cut in the middle of an event ({where}): what it said is lost"
        advice = "Look for a full disk or quota at that time where the log is written"
        yield Incident(
            f"log-damage {where}",
            "log-damage",
            IncidentSeverity.NOTE,
            None,
            None,
            False,
            text,
            advice,
        )
    yield from _silence(basis)


def _lost_ends(group: Sequence[ExecutionEntry], since: datetime, until: datetime) -> Incident:
    """The log went on for others, and lacks what became of these."""
    text = f"The log does not say how {count(len(group), 'execution')} of {_names(group)} ended"
    advice = "Nothing to do: the hours are counted up to the moment that proves it was over"
    return _incident(
        "log-damage", IncidentSeverity.NOTE, since, until, False, text, advice, group, "end"
    )


def _silence(basis: StatsInput) -> Iterator[Incident]:
    status, ledger = basis.status, basis.ledger
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
    habit = elapsed(ledger, newest.first, newest.last) / max(1, newest.events)
    if silent < max(SILENT_SECONDS, SILENT_TIMES * habit):
        return
    text = (
        f"Nothing has been logged for {age(silent)} although {count(len(running), 'job')} ran "
        "when the log fell silent"
    )
    advice = "Ask the queue (condor_q); see whether the log's disk is full, or was unmounted"
    yield _incident(
        "log-gap", IncidentSeverity.ALARM, newest.last, None, True, text, advice, running, "silence"
    )


def full_disk(basis: StatsInput) -> Iterator[Incident]:
    """Executions and holds whose reason is that a disk or a quota is full."""
    ended = [e for e in basis.ledger.executions if e.end is not None and e.kind == "bad"]
    hurt = [e for e in ended if e.reason and _tells_of_a_full_disk(e.reason)]
    if not hurt:
        return
    # A full disk cuts the log, too: with the reason of one that ended in the same moment.
    hurt += [e for e in ended if not e.reason and e.code is not None and _beside(e, hurt)]
    for group in _together(hurt, lambda e: e.end or e.start, DAY):
        first, last = _ends(group)
        text = (
            f"The disk was full, or over its quota: "
            f"{count(len(group), 'execution')} of {_names(group)} ended for it, "
            f"{_lost(group)} lost"
        )
        advice = "Free space or raise the quota (quota -s, df), then release what is held"
        held = {r.key for r in basis.status.runs if r.state is State.HELD and _full(r.latest)}
        still = bool(held & {e.run for e in group})
        severity = IncidentSeverity.ALARM if still else IncidentSeverity.WARNING
        until = None if still else last
        yield _incident("disk-quota", severity, first, until, still, text, advice, group)


def _beside(e: ExecutionEntry, others: Sequence[ExecutionEntry]) -> bool:
    return any(
        e.code == other.code
        and abs(
            (naive_time(e.end or e.start) - naive_time(other.end or other.start)).total_seconds()
        )
        < 60
        for other in others
    )


@lru_cache(maxsize=4096)
def _tells_of_a_full_disk(reason: str) -> bool:
    return FULL_DISK.search(reason) is not None


def _full(latest: object) -> bool:
    reason = getattr(latest, "hold_reason", None)
    return bool(reason and FULL_DISK.search(reason))


# --- what the pool did, what a person did -----------------------------------------------------


_LET_GO: Final = frozenset({Outcome.EVICTED, Outcome.SHADOW_EXCEPTION, Outcome.RECONNECT_FAILED})


def mass_evictions(basis: StatsInput) -> Iterator[Incident]:
    """Many runs that lose their jobs together at one site, not by a person's doing."""
    entries = basis.ledger.executions
    usual = median([e.seconds for e in entries if e.final] or [4 * TOGETHER_SECONDS])
    window = min(TOGETHER_SECONDS, usual / 4)
    sites: dict[str | None, list[ExecutionEntry]] = {}
    for e in entries:
        let_go = e.outcome in _LET_GO and e.code not in USER_VACATE_CODES and not e.dagman
        if let_go and not (e.reason and _tells_of_a_full_disk(e.reason)):
            sites.setdefault(e.site, []).append(e)
    for site, lost in sites.items():
        for group in _together(lost, lambda e: e.end or e.start, window):
            runs = {e.run for e in group if e.run is not None}
            if len(runs) < MANY:
                continue
            first, last = _ends(group)
            why = next((e.cause for e in group if e.cause), None)
            text = (
                f"{count(len(group), 'job')} of {len(runs)} runs lost "
                f"{'their machines' if site is None else f'their machines at {site}'} within "
                f"{age(elapsed(basis.ledger, first, last))}, {_lost(group)} lost"
            )
            text += f": {why}" if why else ""
            advice = (
                "They are queued again by themselves; if it comes again, ask the site what ended "
                "there, or leave it out"
            )
            yield _incident(
                "evictions",
                IncidentSeverity.WARNING,
                first,
                last,
                False,
                text,
                advice,
                group,
                site or "",
            )


def removals(basis: StatsInput) -> Iterator[Incident]:
    """That a person removed a DAG, or the jobs of many runs, while they ran: told for what it
    cost."""
    ended = [
        e
        for e in basis.ledger.executions
        if not e.dagman
        and not e.uncertain
        and e.end is not None
        and (e.outcome is Outcome.REMOVED or e.code in USER_VACATE_CODES)
    ]
    for group in _together(ended, lambda e: e.end or e.start, TOGETHER_SECONDS):
        dag = any("DAG Removed" in (e.reason or "") for e in group)
        if not dag and len({e.run for e in group}) < MANY:
            continue
        first, last = _ends(group)
        text = (
            f"A person removed the {'DAG' if dag else 'jobs'} while "
            f"{count(len(group), 'job')} ran: {_lost(group)} lost"
        )
        advice = "Nothing to do. Halting the DAG (Z) lets the epochs that run end first"
        yield _incident("removed", IncidentSeverity.NOTE, first, last, False, text, advice, group)


# --- transfers ------------------------------------------------------------------------------


def stalled_transfers(basis: StatsInput) -> Iterator[Incident]:
    """Transfers that took much longer than is usual at their site."""
    ledger = basis.ledger
    long = [span for span in ledger.transfers if (span.seconds or 0.0) >= STALL_SECONDS]
    if not long:
        return
    usual = _habits(ledger.transfers)
    gaps: list[tuple[datetime, datetime]] | None = None
    stalls: dict[tuple[str, str | None], list[TransferEntry]] = {}
    for span in long:
        if span.seconds is None or span.start is None:
            continue
        habit = usual(span.direction, span.site)
        if habit is None or span.seconds < max(STALL_SECONDS, STALL_TIMES * habit):
            continue
        # What was in a hole of the log may have ended well before.
        if gaps is None:
            gaps = [(h.since, h.until) for h in _holes(basis) if h.seconds >= SILENT_SECONDS]
        end = naive_time(span.end or ledger.as_of or span.start)
        if any(naive_time(a) <= end and naive_time(span.start) <= naive_time(b) for a, b in gaps):
            continue
        stalls.setdefault((span.direction, span.site), []).append(span)
    for (direction, site), spans in stalls.items():
        for group in _together(spans, lambda span: span.start or datetime.min, DAY):
            still = any(span.outcome == "in-flight" for span in group)
            longest = max(span.seconds or 0.0 for span in group)
            failed = sum(span.outcome in ("unfinished", "aborted") for span in group)
            habit = usual(direction, site) or 0.0
            at, up_to = f" at {site}" if site else "", "up to " if len(group) > 1 else ""
            text = (
                f"{count(len(group), direction + ' transfer')}{at} took {up_to}{age(longest)}; "
                f"usual is {age(habit)}"
            )
            if failed == len(group):
                text += ", and no job started from " + ("it" if failed == 1 else "them")
            elif failed:
                text += f"; {failed} of them failed"
            advice = "See whether other jobs transfer there now; if not, leave the site out"
            if still:
                advice = "Wait, or vacate the job (V): it tries again, perhaps elsewhere"
            starts = [span.start for span in group if span.start is not None]
            ends = [span.end for span in group if span.end is not None]
            yield Incident(
                f"stall {direction} {site} {starts[0]}",
                "stalled-transfer",
                IncidentSeverity.WARNING,
                min(starts, key=naive_time),
                None if still else max(ends, key=naive_time, default=None),
                still,
                text,
                advice,
                _unique(span.run for span in group),
                _unique(span.job for span in group),
                site,
            )


def _habits(
    transfers: Iterable[TransferEntry],
) -> Callable[[str, str | None], float | None]:
    by_site: dict[tuple[str, str | None], list[float]] = {}
    overall: dict[str, list[float]] = {}
    for span in transfers:
        if span.outcome == "ok" and span.seconds is not None:
            by_site.setdefault((span.direction, span.site), []).append(span.seconds)
            overall.setdefault(span.direction, []).append(span.seconds)
    habits = {key: median(times) for key, times in by_site.items() if len(times) >= HABIT}
    general = {key: median(times) for key, times in overall.items()}

    def usual(direction: str, site: str | None) -> float | None:
        return habits.get((direction, site), general.get(direction))

    return usual


# --- runs that stand still ------------------------------------------------------------------


def held_runs(basis: StatsInput) -> Iterator[Incident]:
    """Runs that are held, by reason."""
    reasons: dict[str, list[RunEntry]] = {}
    for run in basis.ledger.runs:
        if run.state is State.HELD and run.latest is not None:
            reasons.setdefault(fold_reason(run.latest.hold_reason or ""), []).append(run)
    for reason, runs in reasons.items():
        latest = [run.latest for run in runs if run.latest is not None]
        since = min(
            (at.since for at in latest if at.since is not None), key=naive_time, default=None
        )
        told = next((at.hold_reason for at in latest if at.hold_reason), None)
        one = len(runs) == 1
        held = f"{'is' if one else 'are'} held"
        held += f": {told}" if told else ", and the log gives no reason"
        text = f"{_listed([run.run_name for run in runs])} {held}"
        advice = "Remove the cause, then release it (R); or remove the job (X) to have it retried"
        yield Incident(
            f"held {reason} {runs[0].run}",
            "held",
            IncidentSeverity.ALARM,
            since,
            None,
            True,
            text,
            advice,
            tuple(run.run for run in runs),
            tuple((at.cluster, at.proc or 0) for at in latest if at.cluster is not None),
            brief=f"{'a run' if one else count(len(runs), 'run')} {held}",
        )


def exhausted(basis: StatsInput) -> Iterator[Incident]:
    """Runs that stopped because an epoch failed as often as it may."""
    dags = {dag.file: dag.state for dag in basis.status.dags}
    for run in basis.ledger.runs:
        if run.state is not State.FAILED or dags.get(run.dag) is DagState.REMOVED:
            continue
        if run.failed is not None and run.failed.what in WITHOUT_JOB:
            yield _without_job(run, run.failed)
            continue
        latest = run.latest
        if latest is None:
            continue
        epoch = f"epoch {latest.epoch}" if latest.epoch is not None else latest.node
        told = f"stands still: {epoch} failed, and is not tried again"
        if latest.attempt > 1:
            tries = count(latest.attempt, "try", "tries")
            told = f"stands still: {epoch} failed after {tries}, its retries are used up"
        advice = (
            "See in the job's output why; remove the cause, then submit the DAG again (U): it "
            "goes on from there"
        )
        yield Incident(
            f"exhausted {run.run} {latest.node}",
            "exhausted",
            IncidentSeverity.ALARM,
            latest.since,
            None,
            True,
            f"{run.run_name} {told}",
            advice,
            (run.run,),
            () if latest.cluster is None else ((latest.cluster, latest.proc or 0),),
            brief=f"a run {told}",
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
"""By what of a node failed that has no job to ask: the incident's kind, and what to do."""


def _without_job(run: RunEntry, failed: FailedEpoch) -> Incident:
    kind, advice = WITHOUT_JOB[failed.what or "pre"]
    epoch = f"epoch {failed.epoch}" if failed.epoch is not None else failed.node
    told = f"stands still: {epoch} failed without a job: {failed.reason}"
    return Incident(
        f"{kind} {run.run} {failed.node}",
        kind,
        IncidentSeverity.ALARM,
        failed.since,
        None,
        True,
        f"{run.run_name} {told}",
        advice,
        (run.run,),
        (),
        brief=f"a run {told}",
    )


# --- targets --------------------------------------------------------------------------------


_Target: TypeAlias = tuple[str | None, str]
"""A top-level DAG's file, and where its node wants to go: what other DAGs in the directory want
says nothing of it."""


def targets(basis: StatsInput) -> Iterator[Incident]:
    """Targets that are missed again and again, and those that never took a job."""
    entries = [e for e in basis.ledger.executions if e.target and e.training and not e.dagman]
    wanted: dict[_Target, list[ExecutionEntry]] = {}
    for e in entries:
        if e.target is not None:
            wanted.setdefault((e.dag, e.target), []).append(e)
    targets_of: dict[str | None, set[str]] = {}
    for each in basis.ledger.epochs:
        if each.target is not None:
            targets_of.setdefault(each.dag, set()).add(_squash(each.target))
    for (dag, target), served in wanted.items():
        known = frozenset(targets_of.get(dag, ()))
        wrong = {site for site in {e.site for e in served} if _elsewhere(target, site, known)}
        missed = [e for e in served if e.site in wrong]
        if len(missed) == len(served):
            # A name of its own for a site is no wrong way: only another target's site is one.
            missed = [e for e in missed if _of_another(target, e.site, known)]
        if len(missed) >= MANY and 2 * len(missed) > len(served):
            sites = sorted({e.site for e in missed if e.site})
            text = (
                f"{len(missed)} of {count(len(served), 'execution')} that wanted {target} ran "
                f"at {_listed(sites)}"
            )
            advice = "Check the requirements of the submit description: they do not keep to it"
            still = any(e.end is None for e in missed)
            first, last = missed[0].start, _ends(missed)[1]
            yield _incident(
                "misdirected",
                IncidentSeverity.WARNING,
                first,
                None if still else last,
                still,
                text,
                advice,
                missed,
                f"{dag} {target}",
            )
    yield from _unserved(basis, wanted)


def _unserved(
    basis: StatsInput, served: Mapping[_Target, Sequence[ExecutionEntry]]
) -> Iterator[Incident]:
    ledger, now = basis.ledger, basis.ledger.as_of
    waits = [e.wait for each in served.values() for e in each if e.wait is not None]
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
        since = min((each[0] for each in jobs), key=naive_time)
        waited = elapsed(ledger, since, now)
        if waited < limit:
            continue
        yield Incident(
            f"unserved {dag} {target}",
            "unserved",
            IncidentSeverity.WARNING,
            since,
            None,
            True,
            f"{count(len(jobs), 'job')} for {target} waited {age(waited)}, and none of its jobs "
            "ever started, while other targets' did",
            "See whether the name is the site's, and what it offers; or give the epochs another",
            _unique(each[2] for each in jobs),
            tuple(each[1] for each in jobs),
        )


@lru_cache(maxsize=1024)
def _squash(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _of_another(target: str, site: str | None, known: frozenset[str]) -> bool:
    """Whether a site bears the name of another target."""
    got = _squash(site or "")
    return any(name in got for name in known - ANYWHERE - POOLS - {_squash(target)})


def _elsewhere(target: str, site: str | None, known: frozenset[str]) -> bool:
    """As the picture judges it: a pool-wide target is missed only at another target's site."""
    if not site:
        return False
    wanted, got = _squash(target), _squash(site)
    if wanted in ANYWHERE or wanted in got or got in wanted:
        return False
    return wanted not in POOLS or _of_another(target, site, known)


# --- configuration --------------------------------------------------------------------------


PLACES: Final = re.compile(
    r"path|dir|file|ckpt|checkpoint|output|log|version|uuid|host|resume|wandb|name|^id$|_id$"
    r"|gpus|devices|workers|nodes|slow_factor"
)
"""Arguments that say where and on what it runs, which must differ: never what is trained."""


def configurations(basis: StatsInput) -> Iterator[Incident]:
    """Arguments that differ between the epochs of one run."""
    names = {run.run: (run.run_name, run.state) for run in basis.ledger.runs}
    for key, training in basis.trainings.items():
        if key not in names:
            continue
        name, state = names[key]
        versions = sorted(training.arguments)
        changed = list(_changes(versions, training.arguments))
        if not changed:
            continue
        told = "; ".join(
            f"{argument}: {before} in version {old}, {after} in version {new}"
            for argument, old, before, new, after in changed[:3]
        )
        more = f", and {len(changed) - 3} more" if len(changed) > 3 else ""
        yield Incident(
            f"configuration {key}",
            "configuration",
            IncidentSeverity.WARNING,
            None,
            None,
            state not in (State.COMPLETED, State.FAILED, State.REMOVED),
            f"{name} changed {told}{more}",
            "If that was not meant, compare the args.txt of these versions: epochs trained "
            "otherwise are not of the same model",
            (key,),
        )


def _changes(
    versions: Sequence[int], arguments: Mapping[int, Mapping[str, str]]
) -> Iterator[tuple[str, int, str, int, str]]:
    """For each argument that changes: the last version with its first value, that value, the
    first version with another, and that one."""
    every = sorted({name for version in versions for name in arguments[version]})
    for name in every:
        plain = name.lstrip("-").lower()
        told = [(v, arguments[v].get(name, "")) for v in versions]
        if PLACES.search(plain) or any("/" in value for _, value in told):
            continue
        if len({value for _, value in told}) < 2 or _counts_up(plain, told):
            continue
        first = told[0][1]
        at = next(i for i, (_, value) in enumerate(told) if value != first)
        before = told[at - 1][0]
        yield plain, before, first or "not given", told[at][0], told[at][1] or "not given"


def _counts_up(name: str, told: Sequence[tuple[int, str]]) -> bool:
    """Whether it tells the epoch, and so grows with the version: by one for each at most."""
    if "epoch" not in name and "seed" not in name:
        return False
    try:
        values = [(version, int(value)) for version, value in told]
    except ValueError:
        return False
    return all(0 <= b - a <= new - old for (old, a), (new, b) in pairwise(values))


# --- shared ---------------------------------------------------------------------------------


RULES: Final[tuple[Callable[[StatsInput], Iterable[Incident]], ...]] = (
    held_runs,
    exhausted,
    log_gaps,
    full_disk,
    mass_evictions,
    stalled_transfers,
    targets,
    configurations,
    removals,
)


def _incident(
    kind: str,
    severity: IncidentSeverity,
    since: datetime | None,
    until: datetime | None,
    still: bool,
    text: str,
    advice: str,
    of: Sequence[ExecutionEntry],
    more: str = "",
) -> Incident:
    """An incident of some executions."""
    sites = {e.site for e in of}
    return Incident(
        f"{kind} {since} {more}".rstrip(),
        kind,
        severity,
        since,
        until,
        still,
        text,
        advice,
        _unique(e.run for e in of),
        _unique(e.job for e in of),
        next(iter(sites)) if len(sites) == 1 else None,
    )


def _together(
    things: Iterable[T], when: Callable[[T], datetime], seconds: float
) -> Iterator[list[T]]:
    """Groups of things of which each came within so many seconds of the one before."""
    group: list[T] = []
    for thing in sorted(things, key=lambda each: naive_time(when(each))):
        if group:
            pause = naive_time(when(thing)) - naive_time(when(group[-1]))
            if pause.total_seconds() > seconds:
                yield group
                group = []
        group.append(thing)
    if group:
        yield group


def _ends(group: Sequence[ExecutionEntry]) -> tuple[datetime, datetime]:
    ends = [e.end or e.start for e in group]
    return min(ends, key=naive_time), max(ends, key=naive_time)


def _lost(group: Iterable[ExecutionEntry]) -> str:
    return f"{hours(sum(e.gpu_seconds or 0.0 for e in group) / HOUR)} GPU-hours"


def _names(group: Iterable[ExecutionEntry]) -> str:
    names = _unique(e.run_name for e in group)
    return _listed(names) if names else "no run"


def _listed(names: Sequence[str], most: int = 4) -> str:
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _unique(values: Iterable[T | None]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(value for value in values if value is not None))
