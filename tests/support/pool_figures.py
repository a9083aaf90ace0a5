"""Profiles of pools with given figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from metlmon.placement.types import RunDemand
from metlmon.stats.pool_profiles import PoolProfile, ProfileFigure, ResourcePool

A100 = "NVIDIA A100-SXM4-40GB"
DELTA = ResourcePool("delta", A100)
EXPANSE = ResourcePool("expanse", "Tesla V100-SXM2-32GB")


def figure(value: float) -> ProfileFigure:
    return ProfileFigure(value, value * 0.9, value * 1.1, 20)


def profile(
    pool: ResourcePool,
    hours: float,
    *,
    wait: float = 0.0,
    transfer: float = 0.0,
    loss: float = 0.0,
    lost_hours: float = 0.0,
    gpus: float = 1.0,
    slots: int = 4,
    excluded: str = "",
) -> PoolProfile:
    """The profile of a pool where 20 epochs took ``hours`` each."""
    return PoolProfile(
        pool=pool,
        hours_per_epoch=figure(hours),
        wait_hours=figure(wait),
        transfer_hours=figure(transfer),
        loss=figure(loss),
        lost_hours=lost_hours,
        gpus=gpus,
        executions=25,
        epochs=20,
        running=0,
        slots=slots,
        excluded=excluded,
    )


def runs(*epochs_left: int, **values: Any) -> list[RunDemand]:
    """Runs with so many epochs left: run0, run1 and so on."""
    return [
        RunDemand(key=f"run{number}", run=f"run{number}", epochs_left=left, **values)
        for number, left in enumerate(epochs_left)
    ]


def by_pool(profiles: Iterable[PoolProfile]) -> Mapping[ResourcePool, PoolProfile]:
    return {each.pool: each for each in profiles}
