"""Sites and hosts: black holes, wrong sites, targets without a match."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Final

from metlmon.health.facts import HealthFacts
from metlmon.health.groups import make_entry
from metlmon.health.types import HealthEntry
from metlmon.model.sites import misses_target, names_other_target, normalize_name
from metlmon.model.states import Outcome
from metlmon.snapshot.records import Execution, Job
from metlmon.stats.black_holes import HOST_PRIOR, SITE_PRIOR, expected_loss, is_black_hole
from metlmon.stats.causes import is_of_place
from metlmon.stats.totals import group_by
from metlmon.text.formatting import age, count, hours, listed, number, share

MIN_RUNS: Final = 3
"""Minimum executions at other sites: fewer may be a coincidence."""

UNSERVED_SECONDS: Final = 3 * 3600.0
UNSERVED_TIMES: Final = 5.0
"""A target without any execution, while others have some, is reported after three hours and five
times the median wait of the others."""

NEVER_SERVED_SECONDS: Final = 86400.0
"""Idle time after which it is reported that no job of the ensemble has started."""


# --- black holes ------------------------------------------------------------------------------


class _Tally:
    """Executions at one site or host.

    ``lost``: all lost executions, as tables of sites count them. ``evidence``: how many of these
    may be due to the place.
    """

    __slots__ = ("evidence", "good", "lost", "starts")

    def __init__(self) -> None:
        self.starts = self.good = self.evidence = 0
        self.lost: list[Execution] = []


def black_holes(facts: HealthFacts) -> Iterator[HealthEntry]:
    """Sites, and hosts of other sites, that accept executions and finish none."""
    sites: dict[str, _Tally] = {}
    hosts: dict[tuple[str | None, str], _Tally] = {}
    for entry in facts.executions:
        good, lost = entry.delivered, entry.cause is not None
        evidence = lost and is_of_place(entry)
        tallies = []
        if entry.site is not None:
            tallies.append(sites.setdefault(entry.site, _Tally()))
        if entry.host is not None:
            tallies.append(hosts.setdefault((entry.site, entry.host), _Tally()))
        for tally in tallies:
            tally.starts += 1
            tally.good += good
            tally.evidence += evidence
            if lost:
                tally.lost.append(entry)
    total = facts.hours(facts.bad)
    found: set[str | None] = set()
    for name, tally in sites.items():
        elsewhere = [other for at, other in sites.items() if at != name]
        if _is_hole(tally, elsewhere, SITE_PRIOR):
            found.add(name)
            yield _black_hole(facts, name, name, tally, total)
    by_site = group_by(hosts.items(), lambda item: item[0][0])
    for site, items in by_site.items():
        if site in found:
            continue
        for (_, host), tally in items:
            elsewhere = [other for (_, at), other in items if at != host]
            if _is_hole(tally, elsewhere, HOST_PRIOR):
                yield _black_hole(facts, host, site, tally, total)


def _is_hole(tally: _Tally, elsewhere: Iterable[_Tally], prior: float) -> bool:
    if tally.good:
        return False
    others = list(elsewhere)
    good, lost = sum(other.good for other in others), sum(other.evidence for other in others)
    return is_black_hole(tally.evidence, expected_loss(good, lost), prior)


def _black_hole(
    facts: HealthFacts, name: str, site: str | None, tally: _Tally, total: float
) -> HealthEntry:
    lost, is_open = facts.hours(tally.lost), facts.blocked.any_left
    unit = facts.ledger.measure.short
    starts = count(tally.starts, "start")
    cost = f", {hours(lost)} {unit} badput ({share(lost, total)})" if lost else ""
    where = "site" if name == site else "host"
    return make_entry(
        kind="black-hole",
        text=f"{name}: {starts}, 0 {'epochs' if facts.has_runs else 'completed'}{cost}",
        steps=(f"Exclude this {where}: other places finish what fails here",),
        act=f"exclude-{where}",
        is_open=is_open,
        entries=tally.lost,
        key=name,
        since=min(entry.start for entry in tally.lost),
        until=None if is_open else max(entry.end or entry.start for entry in tally.lost),
        gpu_hours=lost,
        site=site,
        host=name if where == "host" else None,
        reason=_usual_reason(tally.lost),
    )


def _usual_reason(lost: list[Execution]) -> str | None:
    """The reason of the most frequent cause among these executions."""
    by_cause = group_by(lost, lambda entry: entry.cause)
    most = max(by_cause.values(), key=len)
    return next((entry.reason for entry in most if entry.reason), most[0].cause)


# --- targets --------------------------------------------------------------------------------


def wrong_sites(facts: HealthFacts) -> Iterator[HealthEntry]:
    """Targets that are missed repeatedly; those of several DAGs are independent."""
    served_targets = _served_targets(facts)
    if not served_targets:
        return
    known: defaultdict[str, set[str]] = defaultdict(set)
    for epoch in facts.ledger.epochs:
        if epoch.target:
            known[epoch.dag].add(epoch.target)
    for (dag, target), served in served_targets.items():
        names = frozenset(map(normalize_name, known.get(dag or "", ())))
        by_site = group_by(served, lambda e: e.site)
        sites = {site for site in by_site if misses_target(target, site, names)}
        if sites == by_site.keys():
            # The site may just have another name: count only the sites of other targets.
            sites = {site for site in sites if names_other_target(target, site, names)}
        missed = [e for e in served if e.site in sites]
        if len(missed) < MIN_RUNS or 2 * len(missed) <= len(served):
            continue
        ongoing = any(e.end is None for e in missed)
        elsewhere = sorted({e.site for e in missed if e.site})
        yield make_entry(
            kind="wrong-site",
            text=f"{number(len(missed))} of {count(len(served), 'execution')} that requested "
            f"{target} ran at {listed(elsewhere, 3)}",
            steps=("Check the requirements of the submit description: they allow other sites",),
            is_open=ongoing,
            entries=missed,
            key=f"{dag} {target}",
            dag=dag,
            since=missed[0].start,
            until=None if ongoing else max(e.end or e.start for e in missed),
        )


def unmatched_jobs(facts: HealthFacts) -> Iterator[HealthEntry]:
    """Targets without any execution, while others have some; ensembles where no job starts."""
    ledger = facts.ledger
    waiting = [job for job in facts.idle if job.submitted]
    if ledger.as_of is None or not waiting:
        return
    yield from _jobs_without_annex(facts, [job for job in waiting if job.target_annex is not None])
    idle = [job for job in waiting if job.target_annex is None]
    if not idle:
        return
    if not ledger.executions:
        since = min(job.submitted for job in idle if job.submitted)
        waited = ledger.seconds_between(since, ledger.as_of)
        if waited >= NEVER_SERVED_SECONDS:
            yield make_entry(
                kind="unmatched",
                text=f"{count(len(idle), 'job')} idle for {age(waited)}: no job has started yet",
                steps=("Ask condor_q -better-analyze which requirement no machine meets",),
                is_open=True,
                entries=idle,
                key="all",
                since=since,
            )
        return
    served = _served_targets(facts)
    waits = [e.wait for entries in served.values() for e in entries if e.wait is not None]
    if not waits:
        return
    limit = max(UNSERVED_SECONDS, UNSERVED_TIMES * median(waits))
    wanting = [job for job in idle if job.target]
    for (dag, target), jobs in group_by(wanting, lambda job: (job.dag, job.target or "")).items():
        since = min(job.submitted for job in jobs if job.submitted)
        waited = ledger.seconds_between(since, ledger.as_of)
        if (dag, target) in served or waited < limit:
            continue
        yield make_entry(
            kind="unmatched",
            text=f"{count(len(jobs), 'job')} for {target} idle for {age(waited)}: no job "
            "of this target has started, jobs of other targets have",
            steps=(
                "See whether the name is the site's, and what it offers; or give the epochs "
                "another",
            ),
            act="retarget",
            is_open=True,
            entries=jobs,
            key=f"{dag} {target}",
            dag=dag,
            since=since,
        )


def _jobs_without_annex(facts: HealthFacts, waiting: Iterable[Job]) -> Iterator[HealthEntry]:
    """Annexes in which no job runs although jobs wait for them."""
    ledger = facts.ledger
    # As logged, else the only one in which an execution may run.
    by_annex = group_by(facts.executions, lambda e: (e.annex or e.target_annex or "").casefold())
    for name, jobs in group_by(waiting, lambda job: (job.target_annex or "").casefold()).items():
        there = by_annex.get(name, [])
        if any(entry.outcome is Outcome.IN_FLIGHT for entry in there):
            continue
        times = [entry.end for entry in there if entry.end is not None]
        since = max([*times, min(job.submitted for job in jobs if job.submitted is not None)])
        waited = ledger.seconds_between(since, ledger.as_of) if ledger.as_of is not None else 0.0
        if waited < UNSERVED_SECONDS:
            continue
        annex = jobs[0].target_annex or ""
        seen = "is gone" if there else "was never seen"
        yield make_entry(
            kind="unmatched",
            text=f"{count(len(jobs), 'job')} idle for {age(waited)}: for annex {annex} alone, "
            f"which {seen}",
            steps=(
                f"Request it: htcondor annex create {shlex.quote(annex)} … (metlmon annexes), "
                "or give the epochs another target",
            ),
            is_open=True,
            entries=jobs,
            key=f"annex {name}",
            since=since,
        )


def disconnected_jobs(facts: HealthFacts) -> Iterator[HealthEntry]:
    """Jobs whose machine has not been reachable for more than half of their lease.

    When the lease ends the job is queued again and its work is lost (manual: "Job ClassAd
    Attributes", JobLeaseDuration).
    """
    as_of = facts.ledger.as_of
    found: list[tuple[float, Job]] = []
    for job in facts.disconnected:
        if job.states and as_of is not None:
            seconds = facts.ledger.seconds_between(job.states[-1][0], as_of)
            if seconds > job.lease_seconds / 2:
                found.append((seconds, job))
    if not found:
        return
    seconds, first = max(found, key=lambda item: item[0])
    lease = float(first.lease_seconds)
    left = (
        f"of a lease of {age(lease)}" if seconds < lease else f"the lease of {age(lease)} is over"
    )
    yield make_entry(
        kind="disconnected",
        text=f"{count(len(found), 'job')} disconnected for {age(seconds)}, {left}",
        steps=(
            "See whether the machine, or the network to it, is down; at the end of its lease "
            "HTCondor queues a job again, and what it did is lost",
        ),
        is_open=True,
        entries=[job for _, job in found],
        key="lease",
        since=first.states[-1][0],
    )


def _served_targets(facts: HealthFacts) -> dict[tuple[str | None, str], list[Execution]]:
    """The executions of trainings by top-level DAG and requested target."""
    entries = (e for e in facts.executions if e.target and e.training)
    return group_by(entries, lambda e: (e.dag, e.target or ""))
