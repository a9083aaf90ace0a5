"""Records of demand and supply, from which plans are made, of plans, and of annexes."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple

from msgspec import Struct

from metlmon.model.job_events import JobId
from metlmon.stats.estimates import Interval, LeftOut
from metlmon.stats.pool_profiles import ResourcePool
from metlmon.text.record_json import Flat


class RunDemand(Struct, frozen=True, kw_only=True):
    """The epochs that a run still needs.

    ``ready_in``: hours until its next epoch can start, that is until a running one ends.
    ``pools``: where its next epochs may go; empty: anywhere.
    """

    key: str
    run: str
    epochs_left: int
    ready_in: float = 0.0
    pools: frozenset[ResourcePool] = frozenset()


class PoolSupply(Struct, frozen=True, kw_only=True):
    """What a pool offers to one epoch.

    ``hours``: those from ready to done, with wait, transfers and repeats after losses;
    ``occupancy``: slot-hours that it takes; ``gpu_hours``: GPU-hours that it takes. ``slots``: the
    number of epochs at once. ``hours_left``: those until the annex expires, None without an end.
    ``loss``: probability that an execution is lost. ``wait``: the part of ``hours`` for which a job
    is idle before its first start.
    """

    pool: ResourcePool
    hours: float
    occupancy: float
    gpu_hours: float
    slots: float
    hours_left: float | None = None
    loss: float = 0.0
    wait: float = 0.0


class PoolShare(Struct, frozen=True):
    """The ``epochs`` of a run, or of a class of runs, that a plan places at one pool.

    ``delay``: hours by which each further epoch that starts there at once would delay the end;
    negative if that is better than waiting. ``delay_per_hour``: hours by which each hour that a run
    waits would delay the end.
    """

    supply: PoolSupply
    epochs: float
    delay: float
    delay_per_hour: float


class RunPlacement(Struct, frozen=True, kw_only=True):
    """The pools where the next epochs of a run may go; HTCondor chooses a free one.

    ``epochs``: the number of epochs that the plan places at each pool, in the same order, averaged
    over runs with about as many left; 0 if it needs none there, but the next one may go there
    without delaying the end. ``reason``: one sentence.
    """

    json_properties: ClassVar = ("sites",)

    key: str
    run: str
    pools: tuple[ResourcePool, ...]
    epochs: tuple[float, ...]
    reason: str

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites of these pools, as a request names them."""
        return tuple(sorted({pool.site for pool in self.pools if pool.site}))


NOTABLE: Final = 0.005
"""Smaller gains, as a share of the time left, do not count."""

WORTH: Final = 0.05
"""Share of the time left below which a gain is too small for the rough profiles of pools."""


class PlanGain(Struct, frozen=True, kw_only=True):
    """Hours by which all runs end sooner with a plan, and their 80 % interval.

    ``share``: the gain as a share of the time left.
    """

    json_properties: ClassVar = ("is_worth_it",)

    hours: float
    low: float
    high: float
    share: float

    @property
    def is_worth_it(self) -> bool:
        """Whether the gain is larger than its error."""
        return self.low > 0 and self.share >= WORTH


class ExcludedPool(NamedTuple):
    """A pool that gets no epoch, and why."""

    pool: Flat[ResourcePool]
    why: str


class AvoidedPool(NamedTuple):
    """A pool that takes jobs, and the gain if the DAG just sends no more epochs there."""

    pool: Flat[ResourcePool]
    gain: PlanGain


class PlacementPlan(Struct, frozen=True, kw_only=True):
    """The plan for all runs at ``as_of``.

    ``hours``: those until the last run is done; ``gpu_hours``: those that it takes. ``excluded``:
    pools that get no epoch, with the reason; ``avoided``: those of them whose avoidance has a known
    gain. ``inferred``: made from logs alone. ``epochs_unplaced``: epochs for which annexes and
    balances do not suffice; the others are planned. ``runs_excluded``: runs that have epochs left
    but do not continue, with the reason. ``remarks``: what a user should check, such as a site of
    an allocation where nothing ran. ``estimate``: the time until the last run is done without the
    plan (:mod:`metlmon.stats.estimates`). ``gain``: that of the plan relative to it, None without
    an estimate, or if an epoch has no place.
    """

    json_omits: ClassVar = frozenset({"as_of"})

    as_of: datetime | None
    hours: float
    gpu_hours: float
    runs: tuple[RunPlacement, ...]
    excluded: tuple[ExcludedPool, ...] = ()
    avoided: tuple[AvoidedPool, ...] = ()
    inferred: bool = True
    epochs_unplaced: float = 0.0
    runs_excluded: tuple[LeftOut, ...] = ()
    remarks: tuple[str, ...] = ()
    estimate: Interval | None = None
    gain: PlanGain | None = None


class WhatIf(Struct, frozen=True, kw_only=True):
    """A question ("without Delta-GPU"), and the hours and GPU-hours of the plan in that case."""

    question: str
    hours: float | None
    gpu_hours: float | None
    remark: str = ""


class AnnexState(StrEnum):
    """States of an annex, in the order of its life.

    ``EXPIRING``: the next epoch does not fit. ``NEVER_SEEN``: only jobs name it. ``UNKNOWN``:
    nothing answers, and no log shows whether it is up.
    """

    REQUESTED = "requested"
    PENDING = "pending"
    UP = "up"
    EXPIRING = "expiring"
    GONE = "gone"
    NEVER_SEEN = "never-seen"
    UNKNOWN = "unknown"


ABSENT: Final = (AnnexState.GONE, AnnexState.NEVER_SEEN)
"""States of annexes that have no nodes, nor a request for any."""


class AnnexEpoch(Struct, frozen=True, kw_only=True):
    """An epoch that runs in an annex.

    ``seconds_left``: those until it ends, the median of its estimate; ``fits``: whether that is
    before the annex expires. Both are None if unknown.
    """

    key: str
    run: str
    epoch: int | None
    job: JobId
    gpus: int | None = None
    seconds_left: float | None = None
    fits: bool | None = None


class Annex(Struct, frozen=True, kw_only=True):
    """One annex, by schedd, collector or logs.

    ``alive_until``: local time at which its first node leaves, None if unknown; ``inferred``:
    known from logs alone. ``gpu``: the model of its GPUs, empty if unknown. ``request_id``:
    distinguishes annexes of one name. ``nodes``, ``gpus``, ``gpus_busy``, ``slots_busy``: current
    numbers; ``nodes_requested``, ``requested``: number and time in its request. ``started``: start
    of its first node. ``epochs``: those that run there. ``epoch_seconds``: those that the next one
    takes there, with its input transfer; ``next_fits``: whether it would end in time if it started
    now. ``jobs_idle``: number of jobs that wait for it alone; None without a queue.
    ``jobs_started``: number of jobs that target one that was never seen, and started. ``pressure``:
    (ready + expected before expiry) x GPU-hours per epoch / GPU-hours left. ``balance``: what is
    left of its allocation. ``answered_at``: when its collector last answered. ``first_start``,
    ``last_start``: those of this ensemble's jobs there; ``expiries``: times at which jobs there
    were evicted because it expired. ``warnings``: one sentence each. ``command``: requests another
    one like it, quoted for a shell; ``site_command``: starts it at the site, if the user has to do
    that (new generation).
    """

    json_properties: ClassVar = ("epochs_fit",)

    name: str
    site: str
    state: AnnexState
    gpu: str = ""
    nodes: int | None = None
    gpus: int | None = None
    gpus_busy: int | None = None
    slots_busy: int | None = None
    alive_until: datetime | None = None
    inferred: bool = False
    request_id: str = ""
    nodes_requested: int | None = None
    requested: datetime | None = None
    started: datetime | None = None
    seconds_left: float | None = None
    epochs: tuple[AnnexEpoch, ...] = ()
    epoch_seconds: float | None = None
    next_fits: bool | None = None
    jobs_idle: int | None = None
    jobs_started: int = 0
    pressure: float | None = None
    allocation: str = ""
    balance: float | None = None
    answered_at: datetime | None = None
    first_start: datetime | None = None
    last_start: datetime | None = None
    expiries: tuple[datetime, ...] = ()
    warnings: tuple[str, ...] = ()
    command: str = ""
    site_command: str = ""

    @property
    def epochs_fit(self) -> bool | None:
        """Whether all epochs that run there end in time; None if unknown for any."""
        fits = [epoch.fits for epoch in self.epochs]
        if False in fits:
            return False
        return None if None in fits or not fits else True


class SiteLife(Struct, frozen=True, kw_only=True):
    """When jobs ran at a site, or in an annex there, by the logs.

    ``first_start``, ``last_start``, ``last_end``: those of executions; ``running``: number of
    executions in flight. ``expiries``: likely ends of an annex, inferred from evictions.
    """

    site: str
    annex: str
    first_start: datetime
    last_start: datetime
    last_end: datetime | None
    executions: int
    running: int
    expiries: tuple[datetime, ...]


class AnnexReport(Struct, frozen=True, kw_only=True):
    """All annexes, those with warnings first.

    ``sites``: what the logs alone show. ``annex_warnings``: those of all annexes, and why something
    is missing. ``asked``: whether the schedd has answered; if not, everything is inferred.
    ``generation``: that of this access point's ``htcondor annex``, empty if unknown. ``command``:
    requests an annex like the last one; empty if nothing was queried. ``site_command``: as in
    :class:`Annex`.
    """

    json_omits: ClassVar = frozenset({"as_of"})

    as_of: datetime | None
    annexes: tuple[Annex, ...]
    sites: tuple[SiteLife, ...]
    annex_warnings: tuple[str, ...]
    asked: bool
    generation: str = ""
    command: str = ""
    site_command: str = ""
