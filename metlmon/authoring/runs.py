"""Runs of a request: names, seeds, uuids, and where each epoch is meant to go.

Everything here is a function of the request alone, so that writing it again, elsewhere or
next year, gives the same ensemble.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from metlmon.authoring.records import Policy, Request, RunPlan

ANYWHERE: Final = "any"
"""The target that means: at any of the sites named, or at any at all."""


def run_plans(request: Request, template: str, values: Mapping[str, str]) -> tuple[RunPlan, ...]:
    """The runs. ``template``: its name; ``values``: its parameters, defaults included."""
    made_of = [request.name, template, request.epochs, request.gpus, sorted(values.items())]
    seeds = request.seeds or tuple(range(1, request.runs + 1))
    plans = []
    for index, seed in enumerate(seeds):
        name = f"run{index}"
        plans.append(
            RunPlan(
                name=name,
                uuid=run_uuid([name, seed, *made_of]),
                seed=seed,
                targets=targets(request, index),
            )
        )
    return tuple(plans)


def run_uuid(made_of: list[object]) -> str:
    """A uuid of what makes this model: the run's name and seed, the DAG's name, the template
    and its parameters, epochs and GPUs. Where it trains, with how much memory and how often
    it is tried again leaves the model as it is, and so the uuid."""
    digest = hashlib.sha256(json.dumps(made_of, ensure_ascii=True).encode()).digest()
    # Version 5 is the uuid that is made of a hash (RFC 9562; there it is SHA-1's).
    return str(UUID(bytes=digest[:16], version=5))


def targets(request: Request, index: int) -> tuple[str, ...]:
    """The target of every epoch of the run with this number."""
    sites = request.sites
    if request.policy is Policy.ANY or not sites:
        return (ANYWHERE,) * request.epochs
    if request.policy is Policy.PIN:
        return (sites[index % len(sites)],) * request.epochs
    return tuple(_permuted(request, index, epoch) for epoch in range(request.epochs))


def _permuted(request: Request, index: int, epoch: int) -> str:
    """Rounds of all sites. Runs of one group take one shuffled order, each beginning one site
    later, so that at no epoch two of them want the same site."""
    sites = request.sites
    group, place = divmod(index, len(sites))
    round_, step = divmod(epoch, len(sites))
    order = _shuffled(sites, f"{request.name}/{group}/{round_}")
    return order[(step + place) % len(sites)]


def _shuffled(sites: tuple[str, ...], word: str) -> list[str]:
    """An order by hash: unlike a random generator's it is the same in every Python."""
    return sorted(sites, key=lambda site: hashlib.sha256(f"{word}/{site}".encode()).digest())


def requirements(sites: tuple[str, ...]) -> str:
    """The expression that keeps a job at its target, for ``requirements =``.

    It is one for all nodes: the target comes from the node's VARS, and may be changed there.
    """
    here = 'TARGET.GLIDEIN_ResourceName =?= "$(ResourceName)"'
    anywhere = f'"$(ResourceName)" == "{ANYWHERE}"'
    if not sites:
        return f"({anywhere} || {here})"
    listed = " || ".join(f'TARGET.GLIDEIN_ResourceName =?= "{site}"' for site in sites)
    return f"(({anywhere} && ({listed})) || {here})"
