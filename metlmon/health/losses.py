"""Executions that were lost: to full disks, in annexes that expired, in mass evictions, by cause.

Each lost execution is counted in one entry: that of its hold, its removal or its node's failure,
of a black hole, a full disk, an annex or a mass eviction, else that of its cause. A black hole
lists everything that was lost there, and says what is in other entries, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from statistics import median
from typing import Final, TypeVar

from msgspec.structs import replace

from metlmon.health.advice import (
    KIND_ADVICE,
    QUOTA,
    REMOVE_CAUSE,
    RESUBMIT_JOBS,
    SEE_OUTPUT,
    VACATE_STEPS,
)
from metlmon.health.facts import HealthFacts
from metlmon.health.groups import Group, make_entry, short_cause, shorten
from metlmon.health.holds import Holds
from metlmon.health.nodes import Failures
from metlmon.health.removals import BY_DAGMAN, Removals
from metlmon.health.types import HealthEntry, Severity
from metlmon.model.job_events import JobKey
from metlmon.model.reasons import ANNEX_EXPIRED, is_expiry, with_common_numbers
from metlmon.model.states import ACTIVE, EVICTIONS, Outcome
from metlmon.snapshot.records import HOUR, Execution, job_key
from metlmon.stats.causes import QUOTA_REASON, USER_VACATE_CODES
from metlmon.stats.totals import group_by
from metlmon.text.formatting import age, count, hours

T = TypeVar("T")

TOGETHER_SECONDS: Final = 300.0
"""Evictions within five minutes have one cause, such as the end of a glidein or a site. For
trainings of minutes, the limit is a quarter of their duration."""

MIN_RUNS: Final = 3
"""Minimum runs that lose their jobs together at one site: fewer may be a coincidence."""

MIN_QUICK_ENDS: Final = 5
"""Executions in a row that HTCondor ended early for one reason: the next ones will end likewise."""

QUICK_SECONDS: Final = 60.0
"""Duration of an execution that ended before it could do anything."""

MAX_EVICTIONS: Final = 3
"""Mass evictions at one site that get entries of their own; more become one entry."""


def lost_executions(
    facts: HealthFacts,
    holds: Holds,
    removals: Removals,
    failures: Failures,
    black_holes: Iterable[HealthEntry],
) -> Iterator[HealthEntry]:
    """Add the lost executions to the groups that explain them; yield entries on the others.

    The hours of a black hole include those that are in other entries, too.
    """
    holes = {(hole.site, hole.text.split(":", 1)[0]): hole for hole in black_holes}
    shared = dict.fromkeys(holes, 0.0)
    rest: list[Execution] = []
    for entry in facts.bad:
        group = _explains(entry, holds, removals, failures)
        places = ((entry.site, entry.site), (entry.site, entry.host))
        hole = next((place for place in places if place in holes), None)
        if group is not None:
            group.seconds += facts.seconds_of(entry)
            if hole is not None:
                shared[hole] += facts.seconds_of(entry)
        elif hole is not None:
            continue
        elif entry.uncertain:
            facts.uncertain.add(id(entry))
        else:
            rest.append(entry)
    for place, found in holes.items():
        also = hours(shared[place] / HOUR)
        unit = facts.ledger.measure.short
        text = f"{found.text}; {also} {unit} of these also in other entries"
        yield replace(found, text=text) if shared[place] else found
    rest, full = _split_full_disk(rest)
    if full:
        past = next((g for g in holds.groups if g.kind == "quota" and not g.open), None)
        group = past or Group("quota", "", is_open=False, steps=QUOTA.steps)
        group.fields |= {"text": "disk full or over disk quota", "reason": full[0].reason}
        for entry in full:
            group.add_execution(entry, facts.seconds_of(entry))
        if past is None:
            yield group.entry()
    yield from _expiries(facts, [entry for entry in rest if is_expiry(entry.cause)])
    rest = [entry for entry in rest if not is_expiry(entry.cause)]
    together, rest = _mass_evictions(facts, rest)
    yield from together
    yield from _by_cause(facts, rest)


def _explains(
    entry: Execution, holds: Holds, removals: Removals, failures: Failures
) -> Group | None:
    """The group of the hold, removal or failure that ended an execution."""
    cause = entry.held_cause or (entry.cause if entry.outcome is Outcome.HELD else None)
    if cause is not None:
        group = holds.by_job.get((job_key(entry), cause))
        if group is not None:
            return group
    if entry.outcome is Outcome.FAILED:
        return failures.of(entry)
    if entry.outcome is Outcome.REMOVED or entry.code in USER_VACATE_CODES:
        return removals.by_job.get(job_key(entry))
    why = entry.cause or ""
    removed = "OtherJobRemoveRe" in why or "condor_rm" in why or why.startswith(BY_DAGMAN)
    if not (removals.ended(entry) or removed):
        return None
    return failures.of(entry) or removals.by_job.get(job_key(entry))


@lru_cache(maxsize=4096)
def _names_full_disk(cause: str) -> bool:
    return QUOTA_REASON.search(cause) is not None


# --- full disks -------------------------------------------------------------------------------


def _split_full_disk(
    ended: Sequence[Execution],
) -> tuple[list[Execution], list[Execution]]:
    """The executions that did not end by a full disk, and those that did."""
    affected = [e for e in ended if _names_full_disk(e.cause or "")]
    if not affected:
        return list(ended), []
    # A full disk truncates the log, too: ends at the same time without a reason belong to it.
    affected += [
        e
        for e in ended
        if not e.reason
        and e.code is not None
        and any(
            e.code == other.code and abs(end_of(e) - end_of(other)) < timedelta(minutes=1)
            for other in affected
        )
    ]
    found = {id(e) for e in affected}
    return [e for e in ended if id(e) not in found], affected


# --- annexes that expired, and mass evictions -------------------------------------------------


def _eviction_entry(
    facts: HealthFacts,
    kind: str,
    evicted: Sequence[Execution],
    what: str,
    steps: tuple[str, ...],
    *,
    key: str,
    cause: str = "",
) -> HealthEntry:
    """An entry on executions that ended together; ``what`` happened, with ``cause`` at the end."""
    lost = facts.hours(evicted)
    return make_entry(
        kind=kind,
        text=shorten(f"{what}, {hours(lost)} {facts.ledger.measure.short} badput{cause}"),
        steps=steps,
        is_open=False,
        entries=evicted,
        key=key,
        since=min(map(end_of, evicted)),
        until=max(map(end_of, evicted)),
        gpu_hours=lost,
        reason=next((e.reason for e in evicted if e.reason), None),
    )


def _runs_of(executions: Iterable[Execution]) -> int:
    """The number of runs of these executions."""
    return len({e.key for e in executions if e.key is not None})


def _expiries(facts: HealthFacts, evicted: Iterable[Execution]) -> Iterator[HealthEntry]:
    """One entry for each annex that expired; one for all if there are many at one place."""
    for (site, annex), lost in group_by(evicted, lambda e: (e.site, e.annex)).items():
        groups = group_by_time(lost, end_of, TOGETHER_SECONDS)
        often = f" {len(groups)} times" if len(groups) > MAX_EVICTIONS else ""
        for group in [lost] if often else groups:
            inferred = "" if any(e.cause == ANNEX_EXPIRED for e in group) else " (inferred)"
            yield _eviction_entry(
                facts,
                "annex-expired",
                group,
                f"{f'annex {annex}' if annex else 'annex'}{_at(site)} expired{inferred}{often}: "
                f"{count(len(group), 'job')} of {count(_runs_of(group), 'run')} evicted",
                KIND_ADVICE["annex-expired"][0],
                key=f"{min(map(end_of, group))} {site} {annex}",
            )


def _at(site: str | None) -> str:
    return "" if site is None else f" at {site}"


def _mass_evictions(
    facts: HealthFacts, ended: Sequence[Execution]
) -> tuple[list[HealthEntry], list[Execution]]:
    """Entries on evictions of many runs at once at one site, and the other executions."""
    evicted = [e for e in ended if e.outcome in EVICTIONS]
    if len(evicted) < MIN_RUNS:
        return [], list(ended)
    usual = median([e.seconds for e in facts.executions if e.final] or [4 * TOGETHER_SECONDS])
    entries: list[HealthEntry] = []
    found: set[int] = set()
    for site, lost in group_by(evicted, lambda e: e.site).items():
        groups = group_by_time(lost, end_of, min(TOGETHER_SECONDS, usual / 4))
        together = [group for group in groups if _runs_of(group) >= MIN_RUNS]
        found.update(id(e) for group in together for e in group)
        if len(together) > MAX_EVICTIONS:
            of_site = [e for group in together for e in group]
            entries.append(
                _eviction_entry(
                    facts,
                    "evictions",
                    of_site,
                    f"{count(len(together), 'mass eviction')}{_at(site)} of "
                    f"{count(len(of_site), 'job')}",
                    ("If they happen again, ask the site what ends there, or leave it out",),
                    key=str(site),
                )
            )
        else:
            entries += [_mass_eviction(facts, site, group) for group in together]
    return entries, [e for e in ended if id(e) not in found]


def _mass_eviction(facts: HealthFacts, site: str | None, group: list[Execution]) -> HealthEntry:
    first, last = min(map(end_of, group)), max(map(end_of, group))
    return _eviction_entry(
        facts,
        "evictions",
        group,
        f"{count(len(group), 'job')} of {count(_runs_of(group), 'run')} evicted{_at(site)} within "
        f"{age(facts.seconds_between(first, last))}",
        (
            "HTCondor queues them again; if it happens again, ask the site what ended there, or "
            "leave it out",
        ),
        key=f"{first} {site}",
        cause=next((f": {e.cause}" for e in group if e.cause), ""),
    )


# --- by cause ---------------------------------------------------------------------------------


def _by_cause(facts: HealthFacts, ended: Sequence[Execution]) -> Iterator[HealthEntry]:
    """Executions lost and run again, or lost and accepted by a POST script, by cause."""
    groups: dict[tuple[str, str, int | None, bool], Group] = {}
    reasons: dict[str, set[str | None]] = defaultdict(set)
    passed = {job_key(n.job) for n in facts.ledger.epochs if ended and n.job and n.overruled}
    strays = {job_key(job) for job in facts.strays_failed if facts.is_last_of_run(job)}
    repeated = _ended_repeatedly(facts)
    errors = facts.stats_input.job_files.errors.jobs
    for entry in ended:
        kind = "job-failed" if entry.outcome is Outcome.FAILED else "evicted"
        is_repeated = (job_key(entry), entry.cause) in repeated
        cause, is_open = entry.cause or "", job_key(entry) in strays or is_repeated
        error = errors.get(job_key(entry)) if entry.outcome is Outcome.FAILED else None
        line = error.line if error is not None else None
        if error is not None and line is not None:
            cause = error.explain(short_cause(entry, cause))
        is_passed = job_key(entry) in passed
        if is_passed:
            cause += ": its POST script succeeded"
        group = groups.get((kind, cause, entry.code, is_open))
        if group is None:
            step = VACATE_STEPS.get(entry.code) if entry.code is not None else None
            steps = (step,) if step is not None else KIND_ADVICE[kind][0]
            if is_passed:
                steps = (SEE_OUTPUT,)
            if is_repeated:
                steps = (REMOVE_CAUSE,)
            elif is_open:
                cure = line.advice if line is not None else None
                steps = (cure or SEE_OUTPUT, RESUBMIT_JOBS)
            group = groups[kind, cause, entry.code, is_open] = Group(
                kind,
                f"{cause} {entry.code}",
                is_open=is_open,
                steps=steps,
                code=entry.code,
                subcode=entry.subcode,
                reason=entry.reason if line is None else line.text,
                error_file=error.file if error is not None and line is not None else None,
            )
            group.severity = Severity.BLOCKED if is_repeated else None
        group.add_execution(entry, facts.seconds_of(entry))
        reasons[cause].add(entry.reason)
    for (_, cause, _, _), group in groups.items():
        text = with_common_numbers(cause, reasons[cause]) or "no reason logged"
        again = "starts and ends at once, again and again: " if group.severity else ""
        yield group.entry(text=shorten(f"{again}{text}"))


def _ended_repeatedly(facts: HealthFacts) -> set[tuple[JobKey, str | None]]:
    """The jobs in the queue whose last executions all ended at once, with their common cause."""
    found = set()
    for job in facts.ledger.jobs:
        if len(job.executions) < MIN_QUICK_ENDS or job.state not in ACTIVE:
            continue
        if job.executions[-1].seconds >= QUICK_SECONDS or facts.is_over(job.dag):
            continue
        newest = [e for e in job.executions if e.end is not None][-MIN_QUICK_ENDS:]
        is_quick = all(e.outcome in EVICTIONS and e.seconds < QUICK_SECONDS for e in newest)
        if is_quick and len({e.cause for e in newest}) == 1:
            found.add((job_key(job), newest[-1].cause))
    return found


def end_of(execution: Execution) -> datetime:
    """When an execution ended; for one in flight, its start."""
    return execution.end or execution.start


def group_by_time(
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
