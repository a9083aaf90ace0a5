"""The command that requests an annex, to be copied: metlmon never runs it.

Options of ``htcondor annex create`` in HTCondor 23.9 (old generation) and 25.14 (new). Names of
annexes and sites come from ads of jobs and nodes: a text that a shell or the command could read as
something else gives no command.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from metlmon.pool.annex_types import AnnexGeneration, AnnexRequest

SYSTEMS: Final = (
    "anvil",
    "bridges2",
    "delta",
    "expanse",
    "path-facility",
    "perlmutter",
    "spark",
)
"""The systems that ``htcondor annex systems`` lists."""

QUEUE, SYSTEM = "QUEUE", "SYSTEM"
"""What the user replaces where it is not known."""


class AnnexShape(Struct, frozen=True, kw_only=True):
    """What is requested of a site for an annex.

    ``site``: as in the logs; ``queue``: of its batch system. ``lifetime`` in seconds, ``gpus`` per
    node, ``memory`` in MB, ``collector``: an address, empty for the configured one. None and
    empty texts: the site's default.
    """

    name: str
    site: str = ""
    queue: str = ""
    nodes: int | None = None
    lifetime: float | None = None
    gpus: int | None = None
    cpus: int | None = None
    memory: int | None = None
    allocation: str = ""
    collector: str = ""


def shape_of(request: AnnexRequest, site: str = "", configured: str = "") -> AnnexShape:
    """The shape of an earlier request; GPUs per node are only in its nodes' ads.

    ``configured``: the collector that need not be named [ANNEX_COLLECTOR].
    """
    return AnnexShape(
        name=request.name,
        site=site,
        queue=request.queue,
        nodes=request.nodes,
        lifetime=request.lifetime,
        cpus=request.cpus,
        memory=request.memory,
        allocation=request.allocation,
        collector="" if request.collector == configured else request.collector,
    )


def annex_command(
    shape: AnnexShape, generation: AnnexGeneration, names: Iterable[str] = ()
) -> str | None:
    """The command for the access point, quoted for a shell.

    ``names``: of the annexes that have a request in the queue; one of these is added to. None if
    a text of the shape is not fit for a command.
    """
    is_known = shape.name.casefold() in {name.casefold() for name in names}
    verb = "add" if is_known else "create"
    words = ["htcondor", "annex", verb, shape.name]
    if generation is AnnexGeneration.OLD:
        words += [f"{shape.queue or QUEUE}@{system_of(shape.site) or SYSTEM}"]
        words += _options(
            ("--nodes", shape.nodes),
            ("--lifetime", shape.lifetime),
            ("--project", shape.allocation),
            ("--gpus", shape.gpus),
            ("--cpus", shape.cpus),
            ("--mem_mb", shape.memory),
        )
    words += _options(("--pool", shape.collector))
    return _quoted(words, shape)


def site_command(shape: AnnexShape) -> str | None:
    """The command for the site after a request of the new generation, quoted for a shell.

    It submits the script that ``annex-setup.sh`` wrote; options of ``sbatch`` come before those
    in the script. None as for :func:`annex_command`.
    """
    minutes = None if shape.lifetime is None else -(-int(shape.lifetime) // 60)
    options = _options(
        ("--partition", shape.queue),
        ("--nodes", shape.nodes),
        ("--time", minutes),
        ("--account", shape.allocation),
        ("--gpus-per-node", shape.gpus),
        ("--cpus-per-task", shape.cpus),
        ("--mem", shape.memory),
    )
    return _quoted(["sbatch", *options, "hpc.slurm"], shape)


def system_of(site: str) -> str:
    """The system of a site ("Delta-GPU": delta), empty if it is none of HTCondor's."""
    name = site.casefold()
    return next((system for system in SYSTEMS if system in name), "")


def _options(*options: tuple[str, float | str | None]) -> list[str]:
    """The options that have a value, each with it."""
    words: list[str] = []
    for option, value in options:
        if value is not None and value != "":
            words += [option, value if isinstance(value, str) else f"{value:.0f}"]
    return words


def _quoted(words: Iterable[str], shape: AnnexShape) -> str | None:
    texts = (shape.name, shape.queue, shape.allocation, shape.collector)
    is_fit = shape.name and all(text.isprintable() and not text.startswith("-") for text in texts)
    return shlex.join(words) if is_fit else None
