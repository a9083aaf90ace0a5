"""The job queue of the schedd as of the last query: facts of jobs that no log has.

A process of its own queries it (:mod:`metlmon.pool.worker`); nothing here imports HTCondor.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import ClassVar, Final

from msgspec import Struct

HELD: Final = 5
"""JobStatus of a job on hold."""


class QueueJob(Struct, frozen=True):
    """One job in the queue (attributes of its ClassAd in brackets).

    ``status`` [JobStatus]: 1 idle, 2 running, 3 removed, 4 completed, 5 held, 6 transferring
    output, 7 suspended. ``position``: rank among this ensemble's idle jobs by priority, then age,
    from 1; None if not idle. ``waiting``: the number of these idle jobs. ``rejection``
    [LastRejMatchReason], ``rejected_at``: None if the job was matched since. ``nodes_log``
    [DAGManNodesLog], ``dagman`` [DAGManJobId], ``universe`` [JobUniverse; 7 is DAGMan's],
    ``arguments`` [Arguments]. ``site``: the requested site [MetlSite]; ``by_site``: whether its
    Requirements refer to MetlSite; ``by_site_list``: as a list of sites. ``excluded``: the sites
    and hosts that metlmon excluded; ``by_list``: whether its Requirements refer to MetlExcluded, a
    list of these; ``hosts_by_list``: for hosts, too. ``removal_policy`` [PeriodicRemove]. ``annex``
    [TargetAnnexName]: the only annex that it may run in. ``slot`` [RemoteHost]: where it runs.
    ``differs``: the queue's state, as text, if it persistently differs from the log's.
    ``request_memory`` [RequestMemory, MB], ``request_disk`` [RequestDisk, kB]: None if it is an
    expression.
    """

    cluster: int
    proc: int
    status: int
    owner: str = ""
    priority: int = 0
    matches: int = 0
    position: int | None = None
    waiting: int = 0
    rejection: str | None = None
    rejected_at: float | None = None
    submitted_at: float | None = None
    node: str | None = None
    directory: str | None = None
    log: str | None = None
    hold_reason: str | None = None
    hold_code: int | None = None
    transferring: str | None = None
    nodes_log: str | None = None
    dagman: int | None = None
    universe: int | None = None
    arguments: str | None = None
    site: str | None = None
    by_site: bool = False
    by_site_list: bool = False
    removal_policy: str | None = None
    excluded: tuple[str, ...] = ()
    by_list: bool = False
    hosts_by_list: bool = False
    annex: str | None = None
    slot: str | None = None
    differs: str | None = None
    request_memory: int | None = None
    request_disk: int | None = None


class QueueSnapshot(Struct, frozen=True, dict=True):
    """The schedd's queue as of ``queried_at`` (seconds since the epoch).

    ``error``: why current data is missing (no HTCondor here, the schedd does not respond), else
    None. ``is_pending``: the first query is still pending. ``jobs`` are sorted by (cluster, proc).
    ``user``: our identity at the schedd. ``next_try``: time of the next query after an error.
    ``dagmans``: DAGMan's own jobs for the top-level DAGs. ``foreign_jobs``: those of our job ids
    that belong to jobs of another directory (the logs are a copy, or another machine's).
    """

    json_omits: ClassVar = frozenset(
        {"queried_at", "jobs", "is_pending", "next_try", "dagmans", "foreign_jobs"}
    )
    json_properties: ClassVar = ("asked",)

    schedd: str | None = None
    version: str | None = None
    user: str | None = None
    queried_at: float | None = None
    jobs: tuple[QueueJob, ...] = ()
    error: str | None = None
    is_pending: bool = False
    next_try: float | None = None
    dagmans: tuple[QueueJob, ...] = ()
    foreign_jobs: tuple[tuple[int, int], ...] = ()

    @property
    def asked(self) -> str | None:
        """The time of ``queried_at`` in UTC."""
        return utc_time(self.queried_at)

    @cached_property
    def by_id(self) -> Mapping[tuple[int, int], QueueJob]:
        """The jobs by (cluster, proc)."""
        return {(job.cluster, job.proc): job for job in self.jobs}

    def job(self, cluster: int, proc: int) -> QueueJob | None:
        """The job with this id, or None if the queue does not have it."""
        return self.by_id.get((cluster, proc))


def utc_time(seconds_since_1970: float | None) -> str | None:
    """A time of the queue as text; None if it is out of range."""
    if seconds_since_1970 is None:
        return None
    try:
        return datetime.fromtimestamp(int(seconds_since_1970), UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return None
