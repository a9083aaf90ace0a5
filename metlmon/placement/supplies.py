"""What each pool offers to one epoch: from its profile, its slots, and the end of its annex."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.placement.types import ABSENT, Annex, AnnexState, ExcludedPool, PoolSupply
from metlmon.snapshot.records import HOUR, Ledger
from metlmon.stats.pool_profiles import PoolProfile, ResourcePool
from metlmon.stats.totals import group_by
from metlmon.text.formatting import count, plain

MOST_LOSS: Final = 0.95
"""Limit of the chance that an execution is lost: a pool never has more than 19 repeats."""

SECOND: Final = 1 / 3600
"""Hours of an epoch at least: stamps of event logs have whole seconds."""

USABLE: Final = (AnnexState.UP, AnnexState.EXPIRING, AnnexState.UNKNOWN)
"""States of annexes that may run jobs. Logs alone show those where none runs now as unknown."""


class Supplies(Struct, frozen=True, kw_only=True):
    """The pools to plan with, and the others.

    ``avoided``: pools that take jobs, but should have none by their profile; ``excluded``: these
    and pools of annexes that run no jobs, with the reason; ``probes``: avoided pools of which one
    epoch should find out whether they work again. ``profiles``: of all pools in ``usable`` and
    ``avoided``, with the slots of these. ``inferred``: slots and annexes are known from logs alone.
    """

    usable: tuple[PoolSupply, ...]
    avoided: tuple[PoolSupply, ...]
    excluded: tuple[ExcludedPool, ...]
    probes: frozenset[ResourcePool]
    profiles: Mapping[ResourcePool, PoolProfile]
    inferred: bool


def find_supplies(
    profiles: Mapping[ResourcePool, PoolProfile],
    ledger: Ledger,
    annexes: Sequence[Annex] = (),
    slots: Mapping[ResourcePool, int] | None = None,
) -> Supplies:
    """The supplies at the ledger's as-of.

    ``slots``: of the pools that a collector knows; of others the most that ran at once. A pool that
    has run nothing yet has the profile of its GPU model, if possible at its site, or else of the
    pool with the most epochs.
    """
    slots = slots or {}
    # Ads of annexes name them: what a collector shows without a name is no slot of an annex.
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
        if (borrowed := _borrowed(pool, profiles.values())) is not None:
            known[pool] = borrowed
    for pool, profile in tuple(known.items()):
        owner = None if pool in outside_annexes else _annex_of(pool, annexes, known)
        if owner is not None and owner.state not in USABLE:
            excluded.append((pool, f"annex {plain(owner.name)} is {owner.state}"))
            continue
        if profile.hours is None:
            excluded.append((pool, "no epoch has completed anywhere yet"))
            continue
        supply = pool_supply(profile, _slots(profile, owner, slots), _hours_left(owner, ledger))
        known[pool] = replace(profile, slots=int(supply.slots))
        if not profile.excluded and not profile.doubtful:
            usable.append(supply)
            continue
        avoided.append(supply)
        excluded.append((pool, profile.excluded or _doubt(profile)))
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

    The most that ran at once, or those of what runs now and what is free. Of pools that have run
    nothing yet only those with a GPU model that has completed epochs: nothing is known of the hours
    with another one.
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
        if pool.gpu in models and (similar := _borrowed(pool, profiles.values())) is not None:
            slots[pool] = _epochs_on(free, similar)
    return {pool: number for pool, number in slots.items() if number}


def _epochs_on(gpus: int, profile: PoolProfile) -> int:
    return int(gpus // max(1.0, profile.gpus))


def _doubt(profile: PoolProfile) -> str:
    lost = count(profile.loss.samples, "execution")
    return f"it has lost all {lost} that ended there; one epoch at a time tries it"


def pool_supply(profile: PoolProfile, slots: float, hours_left: float | None = None) -> PoolSupply:
    """What an epoch takes at a pool in the mean, repeated until one execution completes it."""
    loss = min(profile.loss.value, MOST_LOSS)
    losses = loss / (1 - loss)
    lost_hours = losses * profile.lost_hours
    own_hours = profile.hours.value if profile.hours else 0.0
    training = max(SECOND, own_hours + lost_hours)
    # The slot is claimed during the transfer already; GPU-hours are counted from the start.
    transfers = (1 + losses) * (profile.transfer.value if profile.transfer else 0.0)
    wait = profile.wait.value if profile.wait else 0.0
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

    Logs rarely name annexes: where they name none at its site, all slots of its GPU model are.
    """
    at_site = [pool for pool in profiles if pool.site == annex.site]
    named = [pool for pool in at_site if pool.annex]
    if named:
        return [pool for pool in named if pool.annex == annex.name]
    return [pool for pool in at_site if not (pool.gpu and annex.gpu) or pool.gpu == annex.gpu]


def _annex_of(
    pool: ResourcePool, annexes: Iterable[Annex], profiles: Iterable[ResourcePool]
) -> Annex | None:
    """The annex of a pool; of several the one that runs jobs, and longest."""
    found = [
        annex for annex in annexes if pool == _own_pool(annex) or pool in _pools_of(annex, profiles)
    ]
    return max(
        found,
        key=lambda annex: (annex.state in USABLE, annex.alive_until or datetime.max),
        default=None,
    )


def _borrowed(pool: ResourcePool, profiles: Iterable[PoolProfile]) -> PoolProfile | None:
    """The profile of the pool most similar to one that has run nothing yet."""
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
    return None if similar is None else replace(similar, pool=pool, starts=0, epochs=0, running=0)


def _slots(profile: PoolProfile, annex: Annex | None, slots: Mapping[ResourcePool, int]) -> float:
    """The slots for epochs: by a collector, by the annex's GPUs, or the most that ran at once."""
    if profile.pool in slots:
        return slots[profile.pool]
    if annex is not None and annex.gpus is not None:
        return _epochs_on(annex.gpus, profile)
    return profile.slots


def _hours_left(annex: Annex | None, ledger: Ledger) -> float | None:
    if annex is None or annex.alive_until is None or ledger.as_of is None:
        return None
    return ledger.seconds_between(ledger.as_of, annex.alive_until) / HOUR


def gpu_hours_since(ledger: Ledger, since: datetime | None, sites: Iterable[str]) -> float:
    """GPU-hours of this ensemble at some sites since a time; None: nothing since now."""
    if since is None:
        return 0.0
    names, total = frozenset(sites), 0.0
    for entry in ledger.executions:
        end = entry.end or ledger.as_of
        if entry.site in names and end is not None and end > since:
            seconds = ledger.seconds_between(max(entry.start, since), end)
            total += seconds * (entry.gpus or 0) / HOUR
    return total
