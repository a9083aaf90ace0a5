"""The plan of an ensemble: demand from its estimates, supply from the profiles of its pools.

Epochs left and the end of the running epoch are those of the estimates
(:mod:`metlmon.stats.estimates`), hours and losses those of the profiles
(:mod:`metlmon.stats.pool_profiles`). The end without a plan is that of the estimates; a plan
changes it by what the profiles say (:mod:`metlmon.placement.gain`). Balances are those of
``[advisor]`` less what the ledger shows was used since. A plan is made again when something
happened that it depends on, or it is old.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.config.settings import AllocationSettings, Settings
from metlmon.live.feed import StatsInput
from metlmon.model.sites import ANY_SITE_TARGETS, normalize_name
from metlmon.model.states import DONE, Outcome
from metlmon.placement.chains import pool_names, solve_chains
from metlmon.placement.elastic import ElasticAdvice, elastic_advice
from metlmon.placement.gain import Openings, end_hours, gain_of_plan, planned_openings
from metlmon.placement.supplies import (
    Supplies,
    find_supplies,
    gpu_hours_since,
    slots_with_free_gpus,
)
from metlmon.placement.types import (
    ABSENT,
    Annex,
    AnnexState,
    PlacementPlan,
    PoolSupply,
    RunDemand,
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
    PoolProfile,
    ResourcePool,
    learn_profiles,
    observations_of,
    pool_of,
)
from metlmon.text.formatting import count, duration, plain
from metlmon.text.site_lists import site_list

GPU_VARIABLE: Final = "gpumodel"
"""The VAR, in lower case, that keeps a run on one GPU model (policy ``gpu-pin``)."""


class PlanInput(Struct, frozen=True, kw_only=True):
    """All that a plan depends on, at ``as_of``.

    ``runs_excluded``: keys of runs that have epochs left but do not continue, with the reason.
    ``estimate``: as of a plan. ``as_is``: where the DAG sends the epochs of each run. ``offers``:
    of the starts of jobs that are sent to a pool, those that go there.
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
        """The names of all pools, as short as tells them apart."""
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
    missing = {
        run.run: run.missing_reason
        for run in forecast.runs
        if run.missing_reason not in (None, NO_EPOCH)
    }
    continuing = [run for run in forecast.runs if run.epochs_left and run.run not in missing]
    executing = {
        entry.run
        for entry in ledger.executions
        if entry.training and entry.outcome is Outcome.IN_FLIGHT
    }
    models = _pinned_models(stats_input)
    demands = tuple(
        _demand(run, run.run in executing, models.get(run.run), supplies.profiles)
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
        runs_excluded=tuple(LeftOut(*each) for each in missing.items()),
        estimate=forecast.remaining,
        as_is=_as_is(ledger, demands, targets),
        offers=_offers(ledger),
    )


def _target_pools(
    ledger: Ledger, pools: Iterable[ResourcePool]
) -> Mapping[str | None, frozenset[ResourcePool]]:
    """The pools where the DAG sends epochs with each target; empty: anywhere."""
    ran_at: defaultdict[str | None, set[ResourcePool]] = defaultdict(set)
    for target, pool in _starts(ledger):
        ran_at[target].add(pool)
    own: dict[str | None, frozenset[ResourcePool]] = {}
    for target in {*ran_at, *(epoch.target for epoch in ledger.epochs)}:
        sites = {normalize_name(site) for site in site_list(target or "")}
        named = {pool for pool in pools if normalize_name(pool.site) in sites}
        is_anywhere = not sites or sites & ANY_SITE_TARGETS
        # One execution that strayed says nothing of the others: where they ran counts only for
        # targets that name their sites otherwise than the logs do.
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
    """Where the DAG sends the epochs that each run has left."""
    epochs, openings = counted_epochs(ledger), {}
    for demand in demands:
        own = [targets[each.target] for each in epochs[demand.run] if each.state not in DONE]
        sent = own[max(0, len(own) - demand.epochs_left) :]
        sent += [frozenset()] * (demand.epochs_left - len(sent))
        openings[demand.run] = Counter(
            (pools & demand.pools) or demand.pools or pools for pools in sent
        )
    return openings


def _offers(ledger: Ledger) -> dict[ResourcePool, float]:
    """Of the starts of jobs with one target those at a pool; by the target that goes there most."""
    starts = Counter(_starts(ledger))
    of_target = Counter(target for target, _ in starts.elements())
    offers: defaultdict[ResourcePool, float] = defaultdict(float)
    for (target, pool), went in starts.items():
        offers[pool] = max(offers[pool], went / of_target[target])
    return offers


def _free_by_pool(
    free_gpus: Sequence[FreeGpus], ledger: Ledger, settings: Settings
) -> dict[ResourcePool, int]:
    """The GPUs of each pool that are free at as-of: less those that were taken since the answer."""
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
        plan = replace(plan, hours=planned_hours(values, plan, supplies.usable) or plan.hours)
        if values.estimate is not None:
            gain = gain_of_plan(
                values.estimate.median / HOUR,
                values.demands,
                [*supplies.usable, *supplies.avoided],
                values.as_is,
                planned_openings(plan, values.demands),
                values.offers,
                supplies.profiles,
            )
            plan = replace(plan, gain=gain)
    return _with_probes(plan, values)


def planned_hours(
    values: PlanInput, plan: PlacementPlan, supplies: Sequence[PoolSupply]
) -> float | None:
    """Hours until the last run is done by a plan with these supplies; None without a slot.

    What the profiles change of the estimate; without an estimate what they say.
    """
    demands, offers = values.demands, values.offers
    everywhere = [*values.supplies.usable, *values.supplies.avoided]
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
    """Allocations that limit nothing, probably by a mistake in a site's name, or everything."""
    sites = {pool.site for pool in values.names()}
    for allocation in values.allocations:
        name = plain(allocation.name)
        if unseen := sorted(set(allocation.sites) - sites):
            yield f"allocation {name}: nothing has run at {plain(', '.join(unseen))}"
        if not allocation.balance:
            yield f"allocation {name}: its balance is used up"


def balance_left(allocation: AllocationSettings, ledger: Ledger) -> AllocationSettings:
    """The balance at as-of: less what the executions at its sites have taken since its date."""
    used = allocation.charge * gpu_hours_since(ledger, allocation.as_of, allocation.sites)
    return replace(allocation, balance=max(0.0, allocation.balance - used))


def _demand(
    run: RunForecast,
    is_executing: bool,
    model: str | None,
    pools: Iterable[ResourcePool],
) -> RunDemand:
    """The epochs that can still be sent somewhere: not the one that executes."""
    ready_in = 0.0
    if is_executing and run.epoch_remaining is not None:
        ready_in = run.epoch_remaining.median / HOUR
    allowed: frozenset[ResourcePool] = frozenset()
    if model is not None:
        allowed = frozenset(pool for pool in pools if pool.gpu.lower() == model.lower())
        # An empty set would allow any pool.
        allowed = allowed or frozenset([ResourcePool("", model)])
    return RunDemand(
        run=run.run,
        epochs_left=run.epochs_left - is_executing,
        ready_in=ready_in,
        pools=allowed,
    )


def _pinned_models(stats_input: StatsInput) -> dict[str, str]:
    """The GPU models, as counted, of runs that their DAG keeps on one."""
    aliases = dict(stats_input.settings.gpu_aliases)
    return {
        node.run: aliases.get(value, value)
        for node in stats_input.load_description().nodes.all
        if node.run is not None and node.training
        for name, value in node.node.vars.items()
        if name.lower() == GPU_VARIABLE
    }


def _with_probes(plan: PlacementPlan, values: PlanInput) -> PlacementPlan:
    """The plan, with each pool to be tried again among the pools of one run.

    It is the run with the fewest epochs left that may go there: a lost epoch delays it least.
    """
    probes = sorted(values.supplies.probes)
    candidates = sorted(values.demands, key=lambda demand: demand.epochs_left)
    names = values.names()
    runs = {run.run: run for run in plan.runs}
    for pool in probes:
        for demand in candidates:
            run = runs.get(demand.run)
            if run is not None and (not demand.pools or pool in demand.pools):
                runs[demand.run] = replace(
                    run,
                    pools=(*run.pools, pool),
                    epochs=(*run.epochs, 0.0),
                    reason=f"{run.reason}; one epoch may try {names[pool]} again",
                )
                candidates.remove(demand)
                break
    return replace(plan, runs=tuple(runs[run.run] for run in plan.runs))


# --- when to plan again -----------------------------------------------------------------------


MOST_HOURS: Final = 12.0
"""A plan of this age is made again, whatever happened."""


class PlanState(Struct, frozen=True, kw_only=True):
    """What a plan depends on, counted: a change of it is a reason for a new plan.

    ``lost``: executions that ended otherwise than well, holds apart; ``annexes``: (name, site,
    state), sorted.
    """

    as_of: datetime | None
    epochs: int
    lost: int
    holds: int
    dags: frozenset[str]
    annexes: tuple[tuple[str, str, AnnexState], ...] = ()
    allocations: tuple[AllocationSettings, ...] = ()


def plan_state(stats_input: StatsInput, annexes: Sequence[Annex] = ()) -> PlanState:
    """The state that a plan made now depends on."""
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
    """Why a plan made at ``before`` is to be made again, None if it is not."""
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
        if age >= MOST_HOURS * HOUR:
            yield f"the plan is {duration(age)} old"


_NEWS: Final = {
    AnnexState.UP: "is up",
    AnnexState.EXPIRING: "is about to expire",
    AnnexState.GONE: "is gone",
}


def _annex_reasons(before: PlanState, after: PlanState) -> Iterator[str]:
    earlier = Counter(before.annexes)
    for name, _, state in (Counter(after.annexes) - earlier).elements():
        if state in _NEWS:
            yield f"annex {plain(name)} {_NEWS[state]}"
    remaining = {(name, site) for name, site, _ in after.annexes}
    for name, site, state in before.annexes:
        if (name, site) not in remaining and state not in ABSENT:
            yield f"annex {plain(name)} is gone"


# --- all advice -------------------------------------------------------------------------------


class Advice(Struct, frozen=True, kw_only=True):
    """A plan with what it was made of; ``run_names``: by key."""

    values: PlanInput
    plan: PlacementPlan
    elastic: tuple[ElasticAdvice, ...]
    state: PlanState
    run_names: dict[str, str]

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
        run_names={run.key: run.name for run in stats_input.status.runs},
    )
