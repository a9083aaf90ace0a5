"""What plans are made of: demand, supply and allocations; and plans themselves."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from metlmon.stats.pool_profiles import ResourcePool


class RunDemand(Struct, frozen=True, kw_only=True):
    """The epochs that a run still needs.

    ``ready_in``: hours until its next epoch can start (that of the running one to end).
    ``pools``: where its next epochs may go; empty: anywhere.
    """

    run: str
    epochs_left: int
    ready_in: float = 0.0
    pools: frozenset[ResourcePool] = frozenset()


class PoolSupply(Struct, frozen=True, kw_only=True):
    """What a pool offers to one epoch.

    ``hours``: from ready to done, with wait, transfers and repeats after losses; ``occupancy``:
    slot-hours that it takes; ``gpu_hours``: GPU-hours. ``slots``: at once. ``hours_left``: until
    the annex expires, None without an end.
    """

    pool: ResourcePool
    hours: float
    occupancy: float
    gpu_hours: float
    slots: float
    hours_left: float | None = None


class Allocation(Struct, frozen=True, kw_only=True):
    """A balance of GPU-hours (or the facility's unit) at some sites: ``[advisor]`` of settings."""

    name: str
    balance: float
    charge: float = 1.0
    sites: tuple[str, ...] = ()


class RunPlacement(Struct, frozen=True, kw_only=True):
    """Where the next epochs of a run may go: a set, of which HTCondor matches what is free.

    ``epochs``: how many epochs the plan does at each pool, in the same order; ``reason``: one
    sentence.
    """

    run: str
    pools: tuple[ResourcePool, ...]
    epochs: tuple[float, ...]
    reason: str


class PlacementPlan(Struct, frozen=True, kw_only=True):
    """The plan for all runs at ``as_of``.

    ``hours``: until the last run is done; ``gpu_hours``: that it takes. ``excluded``: pools that
    get no epoch, with the reason. ``inferred``: made from logs alone. ``epochs_unplaced``: epochs
    for which annexes and balances do not suffice; the others are planned. ``runs_excluded``: keys
    of runs that have epochs left but do not continue, with the reason.
    """

    as_of: datetime | None
    hours: float
    gpu_hours: float
    runs: tuple[RunPlacement, ...]
    excluded: tuple[tuple[ResourcePool, str], ...] = ()
    inferred: bool = True
    epochs_unplaced: float = 0.0
    runs_excluded: tuple[tuple[str, str], ...] = ()


class WhatIf(Struct, frozen=True, kw_only=True):
    """A question ("without Delta-GPU"), and the hours and GPU-hours of the plan then."""

    question: str
    hours: float | None
    gpu_hours: float | None
    remark: str = ""


class AnnexState(StrEnum):
    """States of an annex, in the order of its life."""

    REQUESTED = "requested"
    PENDING = "pending"
    UP = "up"
    EXPIRING = "expiring"
    GONE = "gone"


class Annex(Struct, frozen=True, kw_only=True):
    """One annex: what is known of it, from schedd, collector or logs.

    ``alive_until``: local time of its end, None if unknown; ``inferred``: from logs alone.
    ``gpu``: the model of its GPUs, empty if unknown.
    """

    name: str
    site: str
    state: AnnexState
    gpu: str = ""
    nodes: int | None = None
    gpus: int | None = None
    gpus_busy: int | None = None
    alive_until: datetime | None = None
    inferred: bool = False
