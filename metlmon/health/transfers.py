"""Transfers that stalled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from statistics import median
from typing import Final

from metlmon.health.facts import HealthFacts
from metlmon.health.groups import make_entry
from metlmon.health.logs import SILENT_SECONDS, LogGap
from metlmon.health.losses import group_by_time
from metlmon.health.types import HealthEntry
from metlmon.model.job_events import JobKey, NodeKey
from metlmon.snapshot.records import Transfer, job_key
from metlmon.stats.totals import TRANSFER_SECONDS, group_by
from metlmon.text.formatting import age, count

DAY: Final = 86400.0
"""Stalls at a site that follow each other within a day are one entry while one is open."""

STALL_SECONDS: Final = 900.0
STALL_TIMES: Final = 5.0
"""A transfer stalled if it exceeds 15 minutes and five times the median of its site."""

MIN_TRANSFERS: Final = 3
"""Minimum transfers for a site's own median; with fewer, the median of all sites is used."""


def stalled_transfers(facts: HealthFacts, gaps: list[LogGap]) -> Iterator[HealthEntry]:
    """Transfers that took much longer than the median of their site.

    Where none has succeeded yet, those of at least half an hour (:data:`TRANSFER_SECONDS`).
    """
    long = [t for t in facts.ledger.transfers if (t.seconds or 0.0) >= STALL_SECONDS]
    if not long:
        return
    ok = [t for t in facts.ledger.transfers if t.outcome == "ok" and t.seconds is not None]
    overall = group_by(ok, lambda t: t.direction)
    by_site = group_by(ok, lambda t: (t.direction, t.site))

    @lru_cache
    def usual_seconds(direction: str, site: str | None) -> float | None:
        group = by_site.get((direction, site), [])
        if len(group) < MIN_TRANSFERS:
            group = overall.get(direction, [])
        return median(t.seconds or 0.0 for t in group) if group else None

    def has_stalled(transfer: Transfer) -> bool:
        usual = usual_seconds(transfer.direction, transfer.site)
        limit = TRANSFER_SECONDS if usual is None else STALL_TIMES * usual
        return transfer.start is not None and (transfer.seconds or 0.0) >= limit

    # A transfer that ends in a gap of the log may have ended much earlier.
    holes = [gap for gap in gaps if gap.seconds >= SILENT_SECONDS]
    as_of = facts.as_of
    stalls = [
        t
        for t in long
        if has_stalled(t)
        and not any(
            gap.since <= (t.end or as_of or gap.since) and start_of(t) <= gap.until for gap in holes
        )
    ]
    nodes = {job_key(job): job.node_key for job in facts.ledger.jobs} if stalls else {}

    over: defaultdict[str, list[Transfer]] = defaultdict(list)
    for (direction, site), transfers in group_by(stalls, lambda t: (t.direction, t.site)).items():
        for group in group_by_time(transfers, start_of, DAY):
            if any(t.outcome == "in-flight" for t in group):
                yield _entry(group, usual_seconds(direction, site), nodes)
            else:
                over[direction] += group
    for direction, group in over.items():
        usual = {usual_seconds(direction, t.site) for t in group}
        yield _entry(sorted(group, key=start_of), usual.pop() if len(usual) == 1 else None, nodes)


def _entry(
    group: list[Transfer], usual: float | None, nodes: Mapping[JobKey, NodeKey | None]
) -> HealthEntry:
    """An entry on stalled transfers of one direction; ``usual``: seconds that others took there."""
    ongoing = any(t.outcome == "in-flight" for t in group)
    longest = max(t.seconds or 0.0 for t in group)
    failed = sum(t.outcome in ("unfinished", "aborted") for t in group)
    several = len(group) > 1
    took = f"{'have' if several else 'has'} taken" if ongoing else "took"
    direction, site = group[0].direction, group[0].site
    sites = len({t.site for t in group})
    where = f" at {site}" if site else ""
    where = f" at {count(sites, 'site')}" if sites > 1 else where
    text = (
        f"{count(len(group), f'{direction} transfer')}{where} "
        f"{took} {'up to ' if several else ''}{age(longest)}"
    )
    text += f"; usual is {age(usual)}" if usual is not None else ""
    if failed == len(group):
        text += f", and no job started from {'it' if failed == 1 else 'them'}"
    elif failed:
        text += f"; {failed} of them failed"
    ends = [t.end for t in group if t.end is not None]
    keys = tuple(dict.fromkeys(found for t in group if (found := nodes.get(job_key(t)))))
    step = (
        "Wait, or vacate the job (V): it tries again, perhaps elsewhere"
        if ongoing
        else "See whether other jobs transfer there now; if not, leave the site out"
    )
    return make_entry(
        kind="transfer-stalled",
        text=text,
        steps=(step,),
        act="vacate" if ongoing else None,
        is_open=ongoing,
        entries=group,
        key=f"{group[0].start} {direction} {site}",
        since=group[0].start,
        until=None if ongoing else max(ends, default=None),
        nodes=len(keys),
        node_keys=keys,
    )


def start_of(transfer: Transfer) -> datetime:
    """When a transfer started, as far as known."""
    return transfer.start or datetime.min
