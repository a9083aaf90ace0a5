"""Profiles of pools: what an epoch costs there, how long it waits, how often it is lost.

A pool is a site with one GPU model, and an annex where there is one. Profiles are learned from
observations alone, so that logs, simulations and recorded decisions use the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct


class ResourcePool(Struct, frozen=True, order=True):
    """A site with one GPU model, and the annex that its slots belong to; empty: unknown, none."""

    site: str
    gpu: str = ""
    annex: str = ""


class Observation(Struct, frozen=True, kw_only=True):
    """One execution of an epoch, or one wait that has not ended.

    ``wait``, ``transfer``: hours before the start. ``hours``: from the start to the end, or to
    ``seen`` where it goes on. ``finished``: did the epoch complete? None where it goes on, or ended
    in a way that says nothing about the pool (removed by its user). ``started``: False for a wait
    that had not ended at ``seen``: then ``wait`` is a lower bound. ``gpus``: of the execution.
    """

    pool: ResourcePool
    run: str
    seen: datetime
    hours: float = 0.0
    wait: float | None = None
    transfer: float | None = None
    finished: bool | None = None
    started: bool = True
    gpus: int = 1


class ProfileFigure(Struct, frozen=True):
    """A figure of a pool: its expected value, and the interval that holds it in 80 % of cases.

    ``samples``: observations at this pool; ``censored``: those that give a lower bound alone.
    ``borrowed``: what the value was shrunk to ("NVIDIA A100-SXM4-40GB elsewhere", "all pools");
    empty where the samples suffice.
    """

    value: float
    low: float
    high: float
    samples: int
    censored: int = 0
    borrowed: str = ""


class PoolProfile(Struct, frozen=True, kw_only=True):
    """What is known of a pool at ``as_of``: hours, hours, hours, and the chance of a loss.

    ``hours``: of an epoch that completes; ``lost_hours``: of an execution that does not.
    ``loss``: probability that an execution does not complete. ``slots``: how many may run at once,
    the most seen. ``excluded``: why no epoch should go there, empty if one may; ``probe_at``: when
    one epoch should try again.
    """

    pool: ResourcePool
    hours: ProfileFigure
    wait: ProfileFigure
    transfer: ProfileFigure
    loss: ProfileFigure
    lost_hours: float
    gpus: float
    starts: int
    epochs: int
    running: int
    slots: int
    excluded: str = ""
    probe_at: datetime | None = None


def learn_profiles(
    observations: Iterable[Observation], as_of: datetime
) -> Mapping[ResourcePool, PoolProfile]:
    """The profiles of all pools observed, from what was seen up to ``as_of``."""
    raise NotImplementedError
