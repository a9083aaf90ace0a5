"""Runs of a request: names, seeds, uuids, and where each epoch is meant to go.

Everything here is a function of the request alone, so that writing it again, elsewhere or
next year, gives the same ensemble.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from metlmon.authoring.jobs import JobTemplate
from metlmon.authoring.request import EnsembleShape, Policy, Request, RunPlan, SweptVariable
from metlmon.frozen import frozen

ANYWHERE: Final = "any"
"""The target that means: at any of the sites named, or at any at all."""

PLACE: Final = "ResourceName"
"""The variable that holds the target: it says where, not what."""

GPU: Final = "GpuModel"
"""The variable that holds the GPU model that a run stays on."""

WHEREABOUTS: Final = frozenset({PLACE.lower(), GPU.lower()})
"""Variables that leave the model as it is."""


@frozen
class SweptRun:
    """A run of the request. ``point``: its swept values by name, each with what swept it."""

    plan: RunPlan
    point: Mapping[str, tuple[str, SweptVariable]]


def epochs_of(request: Request) -> int:
    """Epochs of each run, all stages together."""
    if request.shape is EnsembleShape.STAGES:
        return sum(stage.epochs for stage in request.stages)
    return request.epochs


def gpus_of(request: Request) -> int | None:
    """GPUs of an epoch, on all its machines; None where a sweep file says it all."""
    return request.gpus * request.machines if request.source is None else None


def runs_of(request: Request, jobs: Sequence[JobTemplate]) -> tuple[SweptRun, ...]:
    """The runs. ``jobs``: what they are made of. Raises PlanError when a sweep makes none."""
    made_of = what_makes_a_run(request, jobs)
    if request.shape is not EnsembleShape.SWEEP or request.sweep is None:
        seeds = request.seeds or tuple(range(1, request.runs + 1))
        return tuple(
            SweptRun(_plan(request, index, f"run{index}", seed, made_of), {})
            for index, seed in enumerate(seeds)
        )
    from metlmon.authoring.sweeps import points  # Most ensembles sweep nothing.

    sweep = request.sweep
    by_name = {each.name: each for each in sweep.variables}
    # Every point with every seed; without seeds each run has one of its own.
    every = [(point, seed) for point in points(sweep) for seed in request.seeds or (None,)]
    width = len(str(max(0, len(every) - 1)))
    found = []
    for index, (point, seed) in enumerate(every):
        name = f"{sweep.group}{index:0{width}}"
        values = {each: (value, by_name[each]) for each, value in point.items()}
        swept = ["sweep", sorted(point.items())]
        of_it = index + 1 if seed is None else seed
        found.append(SweptRun(_plan(request, index, name, of_it, [*made_of, swept]), values))
    return tuple(found)


def _plan(request: Request, index: int, name: str, seed: int, made_of: Sequence[object]) -> RunPlan:
    uuid = run_uuid([name, seed, *made_of])
    return RunPlan(name, uuid, seed, targets(request, index), gpu_model(request, index))


def what_makes_a_run(request: Request, jobs: Sequence[JobTemplate]) -> list[object]:
    """What every run is made of beside its name, seed and swept values. What came to metlmon
    later is in it only where it is asked for: uuids that are known stay as they are."""
    main = jobs[0]
    found: list[object] = [
        request.name,
        main.template.name,
        epochs_of(request),
        request.gpus,
        _values(main),
    ]
    if request.shape is EnsembleShape.STAGES:
        found.append(["stages", [_stage(request, at, job) for at, job in enumerate(_of(jobs))]])
    if request.shape is EnsembleShape.MULTI_NODE:
        found.append(["machines", request.machines])
    if variables := _telling(request.variables):
        found.append(["variables", variables])
    regions = [
        [each.epochs, sorted(each.runs), told]
        for each in request.regions
        if (told := _telling(each.variables))
    ]
    if regions:
        found.append(["regions", regions])
    return found


def _of(jobs: Sequence[JobTemplate]) -> list[JobTemplate]:
    return [job for job in jobs if job.stage is not None]


def _stage(request: Request, at: int, job: JobTemplate) -> list[object]:
    return [job.stage, request.stages[at].epochs, job.template.name, _values(job)]


def _values(job: JobTemplate) -> list[tuple[str, str]]:
    """Parameters that a template got later count only where they are given."""
    later = {each.name: each.default for each in job.template.parameters if each.later}
    return sorted((n, v) for n, v in job.values.items() if later.get(n) != v)


def _telling(variables: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted((n, v) for n, v in variables.items() if n.lower() not in WHEREABOUTS)


def run_uuid(made_of: list[object]) -> str:
    """A uuid of what makes this model: the run's name and seed, the DAG's name, the template
    and its parameters, epochs and GPUs. Where it trains, with how much memory and how often
    it is tried again leaves the model as it is, and so the uuid."""
    digest = hashlib.sha256(json.dumps(made_of, ensure_ascii=True).encode()).digest()
    # Version 5 is the uuid that is made of a hash (RFC 9562; there it is SHA-1's).
    return str(UUID(bytes=digest[:16], version=5))


def targets(request: Request, index: int) -> tuple[str, ...]:
    """The target of every epoch of the run with this number."""
    sites, epochs = request.sites, epochs_of(request)
    if request.policy in (Policy.ANY, Policy.GPU_PIN) or not sites:
        return (ANYWHERE,) * epochs
    if request.policy is Policy.PIN:
        return (sites[index % len(sites)],) * epochs
    return tuple(_permuted(request, index, epoch) for epoch in range(epochs))


def gpu_model(request: Request, index: int) -> str | None:
    """The GPU model that the run with this number stays on; None where any will do."""
    models = request.gpu_models if request.policy is Policy.GPU_PIN else ()
    return models[index % len(models)] if models else None


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


def requirements(sites: tuple[str, ...], gated: bool = False) -> str:
    """The expression that keeps a job at its target, for ``requirements =``.

    It is one for all nodes: the target comes from the node's VARS, and may be changed there;
    ``gated``: from the job's own MetlSite, which can be edited while it is idle.
    """
    wanted = "MY.MetlSite" if gated else f'"$({PLACE})"'
    here = f"TARGET.GLIDEIN_ResourceName =?= {wanted}"
    anywhere = f'{wanted} == "{ANYWHERE}"'
    if not sites:
        return f"({anywhere} || {here})"
    listed = " || ".join(f'TARGET.GLIDEIN_ResourceName =?= "{site}"' for site in sites)
    return f"(({anywhere} && ({listed})) || {here})"


def require_gpus(request: Request) -> str:
    """The expression that keeps a job on its GPU model, for ``require_gpus =``; "" where any will
    do. HTCondor asks it of each GPU and joins it with what ``gpus_minimum_memory`` asks (manual,
    "condor_submit": require_gpus); strings are compared without regard to case."""
    pinned = request.policy is Policy.GPU_PIN and request.gpu_models and request.gpus
    return f'DeviceName == "$({GPU})"' if pinned else ""
