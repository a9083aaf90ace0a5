"""The plan of an ensemble: demand from its estimates, supply from the profiles of its pools.

Epochs left and the end of the running epoch are those of the estimates
(:mod:`metlmon.stats.estimates`), hours and losses those of the profiles
(:mod:`metlmon.stats.pool_profiles`). Balances are those of ``[advisor]`` less what the ledger shows
was used since. A plan is made again when something that it depends on has changed, or it is old.

The end is always that of the estimates. The profiles of the pools only give the hours of an epoch
at one set of pools relative to another: where the DAG sends it, and where the plan does. Each pool
offers starts at a rate, by the starts and waits of the jobs that could go there; of several pools a
job gets the first offer. Logs of jobs that name one site do not show whether offers of several
sites add up for one job, or are shared: the wait for a set is between the two, and the interval of
the gain includes both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import exp, inf, log, sqrt
from random import Random
from types import MappingProxyType
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from metlmon.config.settings import AllocationSettings, Settings
from metlmon.errors import InputError
from metlmon.live.feed import StatsInput
from metlmon.model.sites import ANY_SITE_TARGETS, normalize_name
from metlmon.model.states import DONE, Outcome
from metlmon.placement.chains import pool_names, solve_chains
from metlmon.placement.elastic import ElasticAdvice, elastic_advice
from metlmon.placement.types import (
    ABSENT,
    Annex,
    AnnexState,
    AvoidedPool,
    ExcludedPool,
    PlacementPlan,
    PlanGain,
    PoolSupply,
    RunDemand,
    WhatIf,
)
from metlmon.pool.annex_ads import FreeGpus
from metlmon.snapshot.records import HOUR, Ledger
from metlmon.stats.estimates import (
    NO_EPOCH,
    Interval,
    LeftOut,
    RunForecast,
    counted_epochs,
    make_forecast,
)
from metlmon.stats.pool_profiles import (
    Z_80,
    PoolProfile,
    ProfileFigure,
    ResourcePool,
    learn_profiles,
    observations_of,
    pool_of,
)
from metlmon.stats.totals import group_by
from metlmon.text.formatting import count, duration, plain, site_list

# --- what each pool offers -----------------------------------------------------------------


MAX_LOSS: Final = 0.95
"""Limit of the probability of losing an execution: no pool has more than 19 expected repeats."""

SECOND: Final = 1 / 3600
"""Minimum hours of an epoch: timestamps of event logs are in whole seconds."""

USABLE: Final = (AnnexState.UP, AnnexState.EXPIRING, AnnexState.UNKNOWN)
"""States of annexes that may run jobs; by logs alone, those without a running job are unknown."""


class Supplies(Struct, frozen=True, kw_only=True):
    """The pools to plan with, and the others.

    ``avoided``: pools that take jobs, but should get none according to their profile; ``excluded``:
    these and pools of annexes that run no jobs, with the reason; ``probes``: avoided pools to be
    tried by one epoch. ``profiles``: those of all pools in ``usable`` and ``avoided``, with their
    slots. ``inferred``: slots and annexes are known from logs alone.
    """

    usable: tuple[PoolSupply, ...]
    avoided: tuple[PoolSupply, ...]
    excluded: tuple[ExcludedPool, ...]
    probes: frozenset[ResourcePool]
    profiles: Mapping[ResourcePool, PoolProfile]
    inferred: bool

    @property
    def taking(self) -> Sequence[PoolSupply]:
        """All pools that take jobs, including those to be avoided."""
        return *self.usable, *self.avoided


def find_supplies(
    profiles: Mapping[ResourcePool, PoolProfile],
    ledger: Ledger,
    annexes: Sequence[Annex] = (),
    slots: Mapping[ResourcePool, int] | None = None,
) -> Supplies:
    """The supplies at the ledger's as-of.

    ``slots``: those of the pools that a collector knows; other pools have as many as ran at once. A
    pool that has run nothing yet borrows the profile of a pool with its GPU model, if possible at
    its site, else of the one with the most epochs.
    """
    slots = slots or {}
    # Slots of annexes advertise its name: slots without a name belong to no annex.
    outside_annexes = {pool for pool in slots if not pool.annex and pool not in profiles}
    usable, avoided, excluded, probes = [], [], [], set()
    known = dict(profiles)
    new = [pool for pool in slots if pool not in profiles]
    for annex in annexes:
        if annex.state not in ABSENT and not _pools_of(
            annex, (*profiles, *(slots.keys() - outside_annexes))
        ):
            if annex.state in USABLE:
                new.append(_own_pool(annex))
            else:
                excluded.append((_own_pool(annex), f"the annex is {annex.state}"))
    for pool in new:
        if (borrowed := _borrow(pool, profiles.values())) is not None:
            known[pool] = borrowed
    for pool, profile in tuple(known.items()):
        owner = None if pool in outside_annexes else _annex_of(pool, annexes, known)
        if owner is not None and owner.state not in USABLE:
            excluded.append((pool, f"annex {plain(owner.name)} is {owner.state}"))
            continue
        if profile.hours_per_epoch is None:
            excluded.append((pool, "no epoch has completed anywhere yet"))
            continue
        left = None
        if owner is not None and owner.alive_until is not None and ledger.as_of is not None:
            left = ledger.seconds_between(ledger.as_of, owner.alive_until) / HOUR
        supply = pool_supply(profile, _slots(profile, owner, slots), left)
        known[pool] = replace(profile, slots=int(supply.slots))
        if not profile.excluded and not profile.doubtful:
            usable.append(supply)
            continue
        avoided.append(supply)
        lost = count(profile.loss.samples, "execution")
        doubt = f"it has lost all {lost} that ended there; one epoch at a time tries it"
        excluded.append((pool, profile.excluded or doubt))
        if profile.probe_at and ledger.as_of is not None and profile.probe_at <= ledger.as_of:
            probes.add(pool)
    return Supplies(
        usable=tuple(usable),
        avoided=tuple(avoided),
        excluded=tuple(ExcludedPool(*each) for each in excluded),
        probes=frozenset(probes),
        profiles=known,
        inferred=not slots and all(annex.inferred for annex in annexes),
    )


def slots_with_free_gpus(
    free_gpus: Mapping[ResourcePool, int], profiles: Mapping[ResourcePool, PoolProfile]
) -> dict[ResourcePool, int]:
    """The slots for epochs of the pools whose free GPUs a collector shows.

    The most that ran at once, or those running now plus the free ones, if more. Pools that have run
    nothing yet are included only if their GPU model has completed epochs, since the hours with
    another one are unknown.
    """
    models = {
        profile.pool.gpu for profile in profiles.values() if profile.epochs and not profile.excluded
    }
    slots = {}
    known = group_by(profiles.values(), lambda profile: profile.pool.place)
    for pool, free in free_gpus.items():
        for profile in known.get(pool, ()):
            slots[profile.pool] = max(profile.slots, profile.running + _epochs_on(free, profile))
        if pool in known:
            continue
        if pool.gpu in models and (similar := _borrow(pool, profiles.values())) is not None:
            slots[pool] = _epochs_on(free, similar)
    return {pool: number for pool, number in slots.items() if number}


def _epochs_on(gpus: int, profile: PoolProfile) -> int:
    return int(gpus // max(1.0, profile.gpus))


def pool_supply(profile: PoolProfile, slots: float, hours_left: float | None = None) -> PoolSupply:
    """The mean cost of an epoch at a pool, repeated until one execution completes it."""
    loss = min(profile.loss.value, MAX_LOSS)
    losses = loss / (1 - loss)
    lost_hours = losses * profile.lost_hours
    own_hours = profile.hours_per_epoch.value if profile.hours_per_epoch else 0.0
    training = max(SECOND, own_hours + lost_hours)
    # The slot is claimed during the transfer; GPU-hours only count from the start.
    transfers = (1 + losses) * (profile.transfer_hours.value if profile.transfer_hours else 0.0)
    wait = profile.wait_hours.value if profile.wait_hours else 0.0
    return PoolSupply(
        pool=profile.pool,
        hours=(1 + losses) * wait + transfers + training,
        occupancy=transfers + training,
        gpu_hours=profile.gpus * training,
        slots=slots,
        hours_left=hours_left,
        loss=loss,
        wait=wait,
    )


def _own_pool(annex: Annex) -> ResourcePool:
    return ResourcePool(annex.site, annex.gpu, annex.name)


def _pools_of(annex: Annex, profiles: Iterable[ResourcePool]) -> list[ResourcePool]:
    """The pools that are slots of an annex.

    Logs rarely name annexes: if they name none at its site, these are all slots of its GPU model.
    """
    at_site = [pool for pool in profiles if pool.site == annex.site]
    named = [pool for pool in at_site if pool.annex]
    if named:
        return [pool for pool in named if pool.annex == annex.name]
    return [pool for pool in at_site if not (pool.gpu and annex.gpu) or pool.gpu == annex.gpu]


def _annex_of(
    pool: ResourcePool, annexes: Iterable[Annex], profiles: Iterable[ResourcePool]
) -> Annex | None:
    """The annex of a pool; of several, the one that runs jobs for the longest time."""
    found = [
        annex for annex in annexes if pool == _own_pool(annex) or pool in _pools_of(annex, profiles)
    ]
    return max(
        found,
        key=lambda annex: (annex.state in USABLE, annex.alive_until or datetime.max),
        default=None,
    )


def _borrow(pool: ResourcePool, profiles: Iterable[PoolProfile]) -> PoolProfile | None:
    """The profile of the pool that is most similar to one that has run nothing yet."""
    candidates = [profile for profile in profiles if profile.epochs and not profile.excluded]
    similar = max(
        candidates,
        key=lambda each: (
            each.pool.gpu == pool.gpu or not pool.gpu,
            each.pool.site == pool.site,
            each.epochs,
        ),
        default=None,
    )
    return (
        None if similar is None else replace(similar, pool=pool, executions=0, epochs=0, running=0)
    )


def _slots(profile: PoolProfile, annex: Annex | None, slots: Mapping[ResourcePool, int]) -> float:
    """The slots for epochs: by a collector, by the annex's GPUs, or the most used so far."""
    if profile.pool in slots:
        return slots[profile.pool]
    if annex is not None and annex.gpus is not None:
        return _epochs_on(annex.gpus, profile)
    return profile.slots


def charged_hours(allocation: AllocationSettings, ledger: Ledger) -> float:
    """The charges of this ensemble at an allocation's sites since the date of its balance.

    0 if the balance has no date.
    """
    since = allocation.as_of
    if since is None:
        return 0.0
    sites, total = frozenset(allocation.sites), 0.0
    for entry in ledger.executions:
        end = entry.end or ledger.as_of
        if entry.site in sites and end is not None and end > since:
            seconds = ledger.seconds_between(max(entry.start, since), end)
            total += seconds * (entry.gpus or 0) / HOUR
    return allocation.charge * total


# --- what a plan gains ---------------------------------------------------------------------


PoolSet: TypeAlias = frozenset[ResourcePool]
"""Pools that are open to an epoch; empty: all."""

Openings: TypeAlias = Mapping[str, Mapping[PoolSet, int]]
"""Numbers of each run's remaining epochs by the pools open to them. A run without any may go
anywhere."""

Luck: TypeAlias = Mapping[str, float]
"""Standard deviations by which the epochs of each run take longer than on average."""

NO_LUCK: Final[Luck] = MappingProxyType({})


EpochHours: TypeAlias = tuple[float, float]
"""Hours from the end of an epoch to that of the next one: mean and variance."""

MINUTE: Final = 1 / 60
"""Minimum hours that a job waits, for a negotiation cycle."""

TRIALS: Final = 60
"""Number of Monte Carlo trials for the interval of a gain."""

HALF_SHARED: Final = 0.5
"""How far offers of several pools add up, from 0 (they are shared) to 1; unknown, hence half."""

MIN_SHARE: Final = 1e-9
"""Share of the epochs below which none counts as left."""


def planned_openings(plan: PlacementPlan, demands: Iterable[RunDemand]) -> Openings:
    """Where the plan lets the epochs of each run go."""
    pools = {run.key: frozenset(run.pools) for run in plan.runs}
    return {each.key: {pools.get(each.key, frozenset()): each.epochs_left} for each in demands}


def end_hours(
    demands: Sequence[RunDemand],
    supplies: Sequence[PoolSupply],
    openings: Openings,
    offers: Mapping[ResourcePool, float],
    added: float = HALF_SHARED,
    luck: Luck = NO_LUCK,
) -> float | None:
    """Hours until the last run is done; None if all annexes end before.

    ``offers``: the share of the jobs sent to a pool that start there. Between two ends of annexes
    all runs progress at one rate. If none of its pools is left, a run may go anywhere.
    """
    ends = {
        supply: inf if supply.hours_left is None else supply.hours_left
        for supply in supplies
        if supply.slots > 0
    }
    left, now = 1.0, 0.0
    for end in sorted({end for end in ends.values() if end > 0}):
        present = {supply.pool: supply for supply in ends if ends[supply] >= end}
        hours = _hours_of_all(demands, present, openings, offers, added, luck)
        part = min(left, (end - now) / hours) if hours else left
        left, now = left - part, now + part * hours
        if left <= MIN_SHARE:
            return now
    return None


def _hours_of_all(
    demands: Sequence[RunDemand],
    supplies: Mapping[ResourcePool, PoolSupply],
    openings: Openings,
    offers: Mapping[ResourcePool, float],
    added: float,
    luck: Luck,
) -> float:
    """Hours for all epochs, if these pools stay.

    These are at least the hours of the longest chain, and those that the slots of any set of pools
    need for the epochs that may go nowhere else.
    """
    anywhere, chain = frozenset(supplies), 0.0
    to_do: Counter[PoolSet] = Counter()
    per_set: dict[PoolSet, tuple[PoolSet, EpochHours]] = {}
    for demand in demands:
        hours, variance = demand.ready_in, 0.0
        for pools, epochs in openings.get(demand.key, {anywhere: demand.epochs_left}).items():
            if pools not in per_set:
                there = (pools & anywhere) or anywhere
                # In one order, that of the supplies: sums of equal sets are equal.
                usable = [supply for pool, supply in supplies.items() if pool in there]
                per_set[pools] = there, _epoch_hours(usable, offers, added)
            there, (mean, varies) = per_set[pools]
            hours += epochs * mean
            variance += epochs * varies
            to_do[there] += epochs
        chain = max(chain, hours + luck.get(demand.key, 0.0) * sqrt(variance))
    busy = (
        sum(epochs for within, epochs in to_do.items() if within <= pools)
        / sum(each.slots / each.occupancy for pool, each in supplies.items() if pool in pools)
        for pools in to_do
    )
    return max(chain, *busy) if to_do else chain


def _epoch_hours(
    supplies: Sequence[PoolSupply], offers: Mapping[ResourcePool, float], added: float
) -> EpochHours:
    """Hours of an epoch that goes to the pool with the first offer, again after each loss.

    They vary by the pool, by the wait, which is memoryless, and by the number of losses.
    """
    rates = [offers.get(each.pool, 1.0) / max(MINUTE, each.wait) for each in supplies]
    total = sum(rates)
    shares = [rate / total for rate in rates]
    pairs = list(zip(shares, supplies, strict=True))
    wait = sum(share * max(MINUTE, each.wait) for share, each in pairs)
    wait *= (1 / total / wait) ** added
    attempt = sum(share * each.occupancy * (1 - each.loss) for share, each in pairs)
    success = sum(share * (1 - each.loss) for share, each in pairs)
    once = wait + attempt
    squares = sum(share * (each.occupancy * (1 - each.loss)) ** 2 for share, each in pairs)
    variance = wait**2 + squares - attempt**2
    return once / success, variance / success + once**2 * (1 - success) / success**2


def gain_of_plan(
    estimate: float,
    demands: Sequence[RunDemand],
    supplies: Sequence[PoolSupply],
    as_is: Openings,
    planned: Openings,
    offers: Mapping[ResourcePool, float],
    profiles: Mapping[ResourcePool, PoolProfile],
    avoided: Collection[ResourcePool] = (),
) -> PlanGain | None:
    """The hours by which a plan ends sooner than ``estimate``; None if epochs have no place.

    ``supplies``: all to which the DAG sends epochs; the plan sends none to the ``avoided`` pools.
    The interval includes the errors of the pools' hours and waits, how far offers add up, and the
    variation of epochs: if the longest run is sped up, another run may become the last.
    """

    def gain(supplies: Sequence[PoolSupply], added: float, luck: Luck = NO_LUCK) -> float | None:
        before = end_hours(demands, supplies, as_is, offers, added, luck)
        open_supplies = [each for each in supplies if each.pool not in avoided]
        after = end_hours(demands, open_supplies, planned, offers, added, luck)
        return None if not before or after is None else estimate * (1 - after / before)

    middle = gain(supplies, HALF_SHARED)
    if middle is None:
        return None
    random, trials = Random(0), []
    for trial in range(TRIALS):
        drawn = [_sample_supply(each, profiles.get(each.pool), random) for each in supplies]
        luck = {demand.key: random.gauss(0, 1) for demand in demands}
        value = gain(drawn, (trial + 0.5) / TRIALS, luck)
        trials.append(middle if value is None else value)
    trials.sort()
    # Luck biases the trials to one side; the interval must include the gain without it, too.
    low, high = min(middle, trials[TRIALS // 10]), max(middle, trials[-1 - TRIALS // 10])
    return PlanGain(hours=middle, low=low, high=high, share=middle / estimate if estimate else 0.0)


def _sample_supply(supply: PoolSupply, profile: PoolProfile | None, random: Random) -> PoolSupply:
    """The supply with hours and a wait drawn at random according to their errors."""
    figures = (profile.hours_per_epoch, profile.wait_hours) if profile is not None else ()
    hours, wait = (exp(_log_sigma(each) * random.gauss(0, 1)) for each in figures or (None, None))
    idle = supply.wait / (1 - supply.loss)
    return replace(
        supply,
        hours=supply.hours + idle * (wait - 1) + supply.occupancy * (hours - 1),
        occupancy=supply.occupancy * hours,
        wait=supply.wait * wait,
    )


def _log_sigma(figure: ProfileFigure | None) -> float:
    if figure is None or figure.low <= 0 or figure.high <= 0:
        return 0.0
    return log(figure.high / figure.low) / (2 * Z_80)


# --- the plan ---------------------------------------------------------------------------------


GPU_VARIABLE: Final = "gpumodel"
"""The VAR, in lower case, that keeps a run on one GPU model (policy ``gpu-pin``)."""


class PlanInput(Struct, frozen=True, kw_only=True):
    """All that a plan depends on, at ``as_of``.

    ``runs_excluded``: runs that have epochs left but do not continue, with the reason.
    ``estimate``: as in :class:`PlacementPlan`. ``as_is``: where the DAG sends the epochs of each
    run. ``offers``: the share of the jobs sent to a pool that start there.
    """

    as_of: datetime | None
    demands: tuple[RunDemand, ...]
    supplies: Supplies
    allocations: tuple[AllocationSettings, ...]
    runs_excluded: tuple[LeftOut, ...]
    estimate: Interval | None = None
    as_is: Openings = {}
    offers: Mapping[ResourcePool, float] = {}

    def names(self) -> Mapping[ResourcePool, str]:
        """The names of all pools, as short as they can be while distinct."""
        return pool_names(
            {*self.supplies.profiles, *(supply.pool for supply in self.supplies.usable)}
        )


def plan_input(
    stats_input: StatsInput,
    annexes: Sequence[Annex] = (),
    free_gpus: Iterable[FreeGpus] = (),
) -> PlanInput:
    """What a plan depends on. Loads DAG files: not for the UI thread."""
    ledger = stats_input.ledger
    profiles: Mapping[ResourcePool, PoolProfile] = {}
    if ledger.as_of is not None:
        profiles = learn_profiles(observations_of(ledger), ledger.as_of)
    free = _free_by_pool(tuple(free_gpus), ledger, stats_input.settings)
    supplies = find_supplies(profiles, ledger, annexes, slots_with_free_gpus(free, profiles))
    forecast = make_forecast(stats_input)
    missing = [run for run in forecast.runs if run.missing_reason not in (None, NO_EPOCH)]
    continuing = [run for run in forecast.runs if run.epochs_left and run not in missing]
    executing = {
        entry.key
        for entry in ledger.executions
        if entry.training and entry.outcome is Outcome.IN_FLIGHT
    }
    models = _pinned_models(stats_input)
    demands = tuple(
        _demand(run, run.key in executing, models.get(run.key), supplies.profiles)
        for run in continuing
    )
    targets = _target_pools(ledger, supplies.profiles)
    return PlanInput(
        as_of=ledger.as_of,
        demands=demands,
        supplies=supplies,
        allocations=tuple(
            balance_left(allocation, ledger) for allocation in stats_input.settings.advisor
        ),
        runs_excluded=tuple(LeftOut(run.run, run.missing_reason or "") for run in missing),
        estimate=forecast.remaining,
        as_is=_as_is(ledger, demands, targets),
        offers=_offers(ledger),
    )


def _target_pools(
    ledger: Ledger, pools: Iterable[ResourcePool]
) -> Mapping[str | None, frozenset[ResourcePool]]:
    """The pools to which the DAG sends epochs with each target; empty: anywhere."""
    ran_at: defaultdict[str | None, set[ResourcePool]] = defaultdict(set)
    for target, pool in _starts(ledger):
        ran_at[target].add(pool)
    own: dict[str | None, frozenset[ResourcePool]] = {}
    for target in {*ran_at, *(epoch.target for epoch in ledger.epochs)}:
        sites = {normalize_name(site) for site in site_list(target or "")}
        named = {pool for pool in pools if normalize_name(pool.site) in sites}
        is_anywhere = not sites or sites & ANY_SITE_TARGETS
        # Single executions may have strayed: the pools where they ran count only for targets that
        # name sites differently from the logs.
        own[target] = frozenset() if is_anywhere else frozenset(named or ran_at[target])
    return own


def _starts(ledger: Ledger) -> Iterator[tuple[str | None, ResourcePool]]:
    """Target and pool of each execution of an epoch."""
    for entry in ledger.executions:
        if entry.training and not entry.dagman:
            yield entry.target, pool_of(entry)


def _as_is(
    ledger: Ledger,
    demands: Iterable[RunDemand],
    targets: Mapping[str | None, frozenset[ResourcePool]],
) -> Openings:
    """Where the DAG sends the remaining epochs of each run."""
    epochs, openings = counted_epochs(ledger), {}
    for demand in demands:
        own = [targets[each.target] for each in epochs[demand.key] if each.state not in DONE]
        sent = own[max(0, len(own) - demand.epochs_left) :]
        sent += [frozenset()] * (demand.epochs_left - len(sent))
        openings[demand.key] = Counter(
            (pools & demand.pools) or demand.pools or pools for pools in sent
        )
    return openings


def _offers(ledger: Ledger) -> dict[ResourcePool, float]:
    """The share of each pool in the starts with one target, that of the largest share."""
    starts = Counter(_starts(ledger))
    of_target = Counter(target for target, _ in starts.elements())
    offers: defaultdict[ResourcePool, float] = defaultdict(float)
    for (target, pool), went in starts.items():
        offers[pool] = max(offers[pool], went / of_target[target])
    return offers


def _free_by_pool(
    free_gpus: Sequence[FreeGpus], ledger: Ledger, settings: Settings
) -> dict[ResourcePool, int]:
    """The free GPUs of each pool at as-of: those of the answer, less those taken since."""
    if not free_gpus:
        return {}
    sites, models = dict(settings.site_aliases), dict(settings.gpu_aliases)
    counts: Counter[ResourcePool] = Counter()
    for each in free_gpus:
        pool = ResourcePool(sites.get(each.site, each.site), models.get(each.gpu, each.gpu))
        counts[pool] += each.count
    seconds = min(each.seen_at for each in free_gpus)
    seen = datetime.fromtimestamp(seconds, settings.zone).replace(tzinfo=None)
    for entry in ledger.executions:
        pool = pool_of(entry).place
        if pool in counts:
            had_gpus = entry.start <= seen and (entry.end is None or entry.end > seen)
            counts[pool] += (had_gpus - (entry.end is None)) * (entry.gpus or 0)
    return {pool: max(0, count) for pool, count in counts.items()}


def plan_of(values: PlanInput) -> PlacementPlan:
    """The plan for these values."""
    supplies = values.supplies
    plan = solve_chains(values.demands, supplies.usable, values.allocations, names=values.names())
    plan = replace(
        plan,
        as_of=values.as_of,
        inferred=supplies.inferred,
        excluded=(*plan.excluded, *supplies.excluded),
        runs_excluded=values.runs_excluded,
        estimate=values.estimate,
        remarks=tuple(_allocation_remarks(values)),
    )
    if not round(plan.epochs_unplaced):
        openings = planned_openings(plan, values.demands)
        plan = replace(
            plan,
            hours=planned_hours(values, plan, supplies.usable) or plan.hours,
            gain=_gain(values, openings, [each.pool for each in supplies.avoided]),
            avoided=tuple(_avoided(plan, values)),
        )
    return _with_probes(plan, values)


def _gain(
    values: PlanInput, openings: Openings, avoided: Collection[ResourcePool]
) -> PlanGain | None:
    """The gain of these openings over the estimate, without the ``avoided`` pools."""
    if values.estimate is None:
        return None
    return gain_of_plan(
        values.estimate.median / HOUR,
        values.demands,
        values.supplies.taking,
        values.as_is,
        openings,
        values.offers,
        values.supplies.profiles,
        avoided,
    )


def _avoided(plan: PlacementPlan, values: PlanInput) -> Iterator[AvoidedPool]:
    """The pools that take jobs, but get no epoch, each with the gain from avoiding it alone."""
    taking = {each.pool for each in values.supplies.taking if each.slots}
    for pool, _ in plan.excluded if len(taking) > 1 else ():
        openings = {
            run: {pools - {pool}: epochs for pools, epochs in of_run.items()}
            for run, of_run in values.as_is.items()
        }
        gain = _gain(values, openings, [pool]) if pool in taking else None
        if gain is not None:
            yield AvoidedPool(pool, gain)


def planned_hours(
    values: PlanInput, plan: PlacementPlan, supplies: Sequence[PoolSupply]
) -> float | None:
    """Hours until the last run is done by a plan with these supplies; None without a slot.

    The estimate, scaled by the profiles' hours with and without the plan; without an estimate, the
    profiles' hours.
    """
    demands, offers = values.demands, values.offers
    everywhere = values.supplies.taking
    slots = {each.pool: each.slots for each in everywhere if each.slots}
    # A pool with twice as many slots offers twice as many starts.
    then = {
        each.pool: offers.get(each.pool, 1.0) * each.slots / slots.get(each.pool, each.slots or 1.0)
        for each in supplies
    }
    planned = end_hours(demands, supplies, planned_openings(plan, demands), then)
    if planned is None or values.estimate is None:
        return planned
    as_is = end_hours(demands, everywhere, values.as_is, offers)
    return values.estimate.median / HOUR * planned / as_is if as_is else None


def _allocation_remarks(values: PlanInput) -> Iterator[str]:
    """Remarks on allocations that limit everything or, by a misspelt site perhaps, nothing."""
    sites = {pool.site for pool in values.names()}
    for allocation in values.allocations:
        name = plain(allocation.name)
        if unseen := sorted(set(allocation.sites) - sites):
            yield f"allocation {name}: nothing has run at {plain(', '.join(unseen))}"
        if not allocation.balance:
            yield f"allocation {name}: its balance is used up"


def balance_left(allocation: AllocationSettings, ledger: Ledger) -> AllocationSettings:
    """The balance at as-of: less the charges of executions at its sites since its date."""
    left = allocation.balance - charged_hours(allocation, ledger)
    return replace(allocation, balance=max(0.0, left))


def _demand(
    run: RunForecast,
    is_executing: bool,
    model: str | None,
    pools: Iterable[ResourcePool],
) -> RunDemand:
    """The epochs that can still be sent somewhere, without the one that is executing."""
    ready_in = 0.0
    if is_executing and run.epoch_remaining is not None:
        ready_in = run.epoch_remaining.median / HOUR
    allowed: frozenset[ResourcePool] = frozenset()
    if model is not None:
        allowed = frozenset(pool for pool in pools if pool.gpu.lower() == model.lower())
        # An empty set would allow any pool.
        allowed = allowed or frozenset([ResourcePool("", model)])
    return RunDemand(
        key=run.key,
        run=run.run,
        epochs_left=run.epochs_left - is_executing,
        ready_in=ready_in,
        pools=allowed,
    )


def _pinned_models(stats_input: StatsInput) -> dict[str, str]:
    """The GPU models, with aliases applied, of runs that their DAG keeps on one model."""
    aliases = dict(stats_input.settings.gpu_aliases)
    return {
        node.key: aliases.get(value, value)
        for node in stats_input.load_description().nodes.all
        if node.key is not None and node.training
        for name, value in node.node.vars.items()
        if name.lower() == GPU_VARIABLE
    }


def _with_probes(plan: PlacementPlan, values: PlanInput) -> PlacementPlan:
    """The plan, with each pool to be tried again added to the pools of one run.

    Of the runs that may go there, it is the one with the fewest epochs left, which a lost epoch
    delays least.
    """
    probes = sorted(values.supplies.probes)
    candidates = sorted(values.demands, key=lambda demand: demand.epochs_left)
    names = values.names()
    runs = {run.key: run for run in plan.runs}
    for pool in probes:
        for demand in candidates:
            run = runs.get(demand.key)
            if run is not None and (not demand.pools or pool in demand.pools):
                runs[demand.key] = replace(
                    run,
                    pools=(*run.pools, pool),
                    epochs=(*run.epochs, 0.0),
                    reason=f"{run.reason}; one epoch may try {names[pool]} again",
                )
                candidates.remove(demand)
                break
    return replace(plan, runs=tuple(runs[run.key] for run in plan.runs))


# --- when to plan again -----------------------------------------------------------------------


MAX_PLAN_HOURS: Final = 12.0
"""Age at which a plan is made again in any case."""


class PlanState(Struct, frozen=True, kw_only=True):
    """The counts that a plan depends on: any change is a reason for a new plan.

    ``lost``: number of executions that did not end well, except for holds; ``annexes``: (name,
    site, state), sorted.
    """

    as_of: datetime | None
    epochs: int
    lost: int
    holds: int
    dags: frozenset[str]
    annexes: tuple[tuple[str, str, AnnexState], ...] = ()
    allocations: tuple[AllocationSettings, ...] = ()


def plan_state(stats_input: StatsInput, annexes: Sequence[Annex] = ()) -> PlanState:
    """The state on which a plan made now depends."""
    ledger = stats_input.ledger
    well = (Outcome.GOOD, Outcome.IN_FLIGHT, Outcome.HELD)
    return PlanState(
        as_of=ledger.as_of,
        epochs=sum(run.epochs_done for run in ledger.runs),
        lost=sum(
            entry.training and not entry.delivered and entry.outcome not in well
            for entry in ledger.executions
        ),
        holds=sum(len(job.holds) for job in ledger.jobs if job.training),
        dags=frozenset(dag.file for dag in stats_input.status.dags),
        annexes=tuple(sorted((annex.name, annex.site, annex.state) for annex in annexes)),
        allocations=stats_input.settings.advisor,
    )


def must_replan(before: PlanState | None, after: PlanState) -> str | None:
    """Why a plan made at ``before`` must be made again; None if it need not be."""
    return "the first plan" if before is None else next(_reasons(before, after), None)


def _reasons(before: PlanState, after: PlanState) -> Iterator[str]:
    if added := sorted(after.dags - before.dags):
        yield f"{plain(added[0])} was added" if len(added) == 1 else f"{len(added)} DAGs were added"
    yield from _annex_reasons(before, after)
    if before.allocations != after.allocations:
        yield "a balance changed"
    if (holds := after.holds - before.holds) > 0:
        yield count(holds, "hold")
    if (lost := after.lost - before.lost) > 0:
        yield f"{count(lost, 'execution')} did not complete"
    if (epochs := after.epochs - before.epochs) > 0:
        yield f"{count(epochs, 'epoch')} ended"
    if before.as_of is not None and after.as_of is not None:
        age = (after.as_of - before.as_of).total_seconds()
        if age >= MAX_PLAN_HOURS * HOUR:
            yield f"the plan is {duration(age)} old"


_STATE_CHANGES: Final = {
    AnnexState.UP: "is up",
    AnnexState.EXPIRING: "is about to expire",
    AnnexState.GONE: "is gone",
}


def _annex_reasons(before: PlanState, after: PlanState) -> Iterator[str]:
    earlier = Counter(before.annexes)
    for name, _, state in (Counter(after.annexes) - earlier).elements():
        if state in _STATE_CHANGES:
            yield f"annex {plain(name)} {_STATE_CHANGES[state]}"
    remaining = {(name, site) for name, site, _ in after.annexes}
    for name, site, state in before.annexes:
        if (name, site) not in remaining and state not in ABSENT:
            yield f"annex {plain(name)} is gone"


# --- what if -------------------------------------------------------------------------------


MORE_SLOTS: Final = 2
MORE_HOURS: Final = 12.0
"""Changes that are tried: additional slots at a pool, additional hours of an annex."""

NOTABLE: Final = 0.02
"""Smaller relative changes of the end are left out."""


def what_if_table(values: PlanInput, plan: PlacementPlan) -> tuple[WhatIf, ...]:
    """The rows for a plan that was made from ``values``, the largest changes first.

    ``hours`` and ``gpu_hours`` are those of the changed plan; None, with a remark, if epochs have
    no place in it. Empty if epochs have no place even now.
    """
    if not values.supplies.usable or not any(demand.epochs_left for demand in values.demands):
        return ()
    rows = [
        row
        for row in _changes(values, plan, values.supplies.usable)
        if row.hours is None or abs(row.hours - plan.hours) >= NOTABLE * plan.hours
    ]
    changes = {
        row.question: abs((inf if row.hours is None else row.hours) - plan.hours) for row in rows
    }
    # Equal changes are sorted by question: sums over sets of pools differ in their last digits.
    return tuple(sorted(rows, key=lambda row: (-round(changes[row.question], 9), row.question)))


def _changes(
    values: PlanInput, plan: PlacementPlan, about: Sequence[PoolSupply]
) -> Iterator[WhatIf]:
    """All rows about these pools that may differ; only pools that the plan uses can."""
    used = {pool for run in plan.runs for pool in run.pools}
    supplies = values.supplies.usable
    names = values.names()
    for supply in about:
        name = names[supply.pool]
        if supply.pool in used:
            others = tuple(each for each in supplies if each is not supply)
            if others:
                yield what_if_row(f"without {name}", values, plan, others)
            more = replace(supply, slots=supply.slots + MORE_SLOTS)
            yield what_if_row(f"{MORE_SLOTS} more slots at {name}", values, plan, (*others, more))
        if supply.hours_left is not None:
            longer = replace(supply, hours_left=supply.hours_left + MORE_HOURS)
            others = tuple(each for each in supplies if each is not supply)
            yield what_if_row(f"{name} {MORE_HOURS:g} h longer", values, plan, (*others, longer))


def what_if_row(
    question: str, values: PlanInput, plan: PlacementPlan, supplies: Sequence[PoolSupply]
) -> WhatIf:
    """The end and the GPU-hours of the plan with other supplies than those of ``values``."""
    changed = solve_chains(values.demands, supplies, values.allocations)
    unplaced = round(changed.epochs_unplaced)
    # The pools of the current plan are open then, too.
    ends = [planned_hours(values, each, supplies) for each in (changed, plan)]
    hours = min((end for end in ends if end is not None), default=None)
    if hours is not None and not unplaced:
        return WhatIf(question=question, hours=hours, gpu_hours=changed.gpu_hours)
    epochs = "1 epoch has" if unplaced == 1 else f"{unplaced} epochs have"
    remark = f"{epochs} no place" if unplaced else "no slot is left before all epochs are done"
    return WhatIf(question=question, hours=None, gpu_hours=None, remark=remark)


def what_if_at(values: PlanInput, plan: PlacementPlan, name: str) -> tuple[WhatIf, ...]:
    """All rows about one pool, site or annex. Raises InputError."""
    supplies = values.supplies.usable
    names = values.names()
    wanted = normalize_name(name)
    found = [
        each
        for each in supplies
        if wanted in map(normalize_name, (names[each.pool], each.pool.site, each.pool.annex))
    ]
    if not found or not wanted:
        known = ", ".join(sorted(names[each.pool] for each in supplies)) or "none"
        raise InputError(f"--what-if: the plan has no pool {name}; it has {known}")
    return tuple(_changes(values, plan, found))


# --- all advice -------------------------------------------------------------------------------


class Advice(Struct, frozen=True, kw_only=True):
    """A plan, and what it was made from."""

    values: PlanInput
    plan: PlacementPlan
    elastic: tuple[ElasticAdvice, ...]
    state: PlanState

    @property
    def profiles(self) -> list[PoolProfile]:
        """The profiles of all pools, those with the most epochs first."""
        profiles = self.values.supplies.profiles.values()
        return sorted(profiles, key=lambda each: (bool(each.excluded), -each.epochs, each.pool))


def make_advice(
    stats_input: StatsInput,
    annexes: Sequence[Annex] = (),
    free_gpus: Iterable[FreeGpus] = (),
) -> Advice:
    """The advice for an ensemble as of its ledger. Reads DAG files: not for the UI thread."""
    values = plan_input(stats_input, annexes, free_gpus)
    return Advice(
        values=values,
        plan=plan_of(values),
        elastic=elastic_advice(stats_input, annexes),
        state=plan_state(stats_input, annexes),
    )
