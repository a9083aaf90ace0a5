"""Records of HPC annexes and of free GPUs, made from ads of the schedd and of collectors.

An annex's ``htcondor annex create`` submits a local-universe job that represents the request;
the execute nodes advertise the annex's name to a collector. Attributes in brackets; most numbers
of a request are strings. Manual: "HPC annexes"; source: ``htcondor_cli/annex_create.py`` of
HTCondor 23 and 25. Nothing here refers to tokens, passwords, or the setup archive.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from math import inf
from typing import Any, Final

from msgspec import Struct

from metlmon.pool.protocol import QueueJob, encodable


class AnnexGeneration(StrEnum):
    """The generation of ``htcondor annex create`` that made a request.

    OLD (HTCondor 23, or ANNEX_USE_OLD_CREATE) submits to the site's batch system itself and knows
    nodes and lifetime; NEW only writes an archive for the user to copy there.
    """

    OLD = "old"
    NEW = "new"


class AnnexShape(Struct, frozen=True, kw_only=True):
    """The resources that an annex requests from a site.

    ``site``: as in the logs; ``queue``: that of its batch system. ``lifetime`` in seconds, ``gpus``
    per node, ``memory`` in MB, ``collector``: an address, empty for the configured one. None and
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


class AnnexRequest(AnnexShape, frozen=True, kw_only=True):
    """An annex's job in the schedd: one request; several may have one ``name``.

    ``request_id`` [hpc_annex_request_id]: its nodes advertise it, too. ``status`` [JobStatus]: as
    in the queue. ``submitted_at``, ``started_at`` [QDate, hpc_annex_start_time]: seconds since
    1970; the latter is when the job, which checks every five minutes, noticed the first node.
    Only the nodes' ads have ``site`` and ``gpus``; the old generation sets the rest of the shape,
    the new one only the collector. ``lifetime`` counts from the start of the site's batch job.
    ``pid``, ``batch_job`` [hpc_annex_PID, hpc_annex_JOB_ID]: of the site's script and job.
    """

    cluster: int
    proc: int
    request_id: str
    status: int
    generation: AnnexGeneration
    owner: str = ""
    submitted_at: float | None = None
    started_at: float | None = None
    pid: str = ""
    batch_job: str = ""


class AnnexSlotType(StrEnum):
    """Types of slots [SlotType]."""

    PARTITIONABLE = "Partitionable"
    DYNAMIC = "Dynamic"
    STATIC = "Static"


class AnnexAd(Struct, frozen=True, kw_only=True):
    """The ad of a slot that belongs to an annex.

    ``annex`` [AnnexName]: names of annexes are compared without case. ``request_id``: empty if it
    advertises none. ``slot``, ``node`` [Name, before and after "@"]: the latter identifies its
    startd. ``started_at``, ``stops_at`` [DaemonStartTime, DaemonStopTime]: seconds since the epoch.
    ``gpus``: for a partitionable slot all of the node [TotalSlotGPUs], for others those of the slot
    itself; None if it advertises none. The GPUs of an annex are those of its partitionable and
    static slots; those of its dynamic and static slots with ``busy`` are busy. ``gpu``: their
    model. ``site`` [GLIDEIN_ResourceName].
    """

    annex: str
    slot: str
    node: str
    slot_type: AnnexSlotType
    request_id: str = ""
    started_at: float | None = None
    stops_at: float | None = None
    state: str = ""
    activity: str = ""
    gpus: int | None = None
    gpu: str = ""
    site: str = ""

    @property
    def busy(self) -> bool:
        """Whether a job runs in the slot."""
        return self.state == "Claimed" and self.activity == "Busy"


class AnnexCollector(Struct, frozen=True, kw_only=True):
    """A collector that was queried for annexes.

    ``answered_at``: when it last answered, seconds since the epoch, None if never. ``error``: why
    the last query failed, one sentence, None if it succeeded.
    """

    address: str
    answered_at: float | None = None
    error: str | None = None


class AnnexQueue(Struct, frozen=True, kw_only=True):
    """The annexes by the schedd and the local configuration.

    ``requests``: those of all users. ``collector`` [ANNEX_COLLECTOR]: empty if not configured;
    ``pool_collector``: the pool's own. ``generation``: that of this access point's ``htcondor annex
    create``.
    """

    requests: tuple[AnnexRequest, ...] = ()
    collector: str = ""
    pool_collector: str = ""
    generation: AnnexGeneration = AnnexGeneration.NEW


class FreeGpus(Struct, frozen=True):
    """The GPUs of one model that are free at a site, without those in annexes.

    ``site`` [GLIDEIN_ResourceName], ``gpu`` [GPUs_DeviceName]. ``count``: 0 if all are in use.
    ``seen_at``: when the collector answered, seconds since the epoch.
    """

    site: str
    gpu: str
    count: int
    seen_at: float


class AnnexAnswer(Struct, frozen=True, kw_only=True):
    """The last answers of schedd and collectors about the annexes of an ensemble.

    ``requests`` are our own, those of the owners of its jobs, and those that its ``jobs`` target;
    ``ads`` are those of these annexes. ``queried_at``: when the schedd answered (seconds since the
    epoch), None if it never did; ``error``: why it did not answer the last time, one sentence.
    ``generation``: that of this access point's ``htcondor annex create``, None if unknown;
    ``configured_collector`` [ANNEX_COLLECTOR]: the collector to which its annexes report.
    ``is_pending``: nothing has been queried yet. ``free_gpus``: those of the pool's other slots, if
    requested; empty if its collector did not answer.
    """

    requests: tuple[AnnexRequest, ...] = ()
    ads: tuple[AnnexAd, ...] = ()
    jobs: tuple[QueueJob, ...] = ()
    collectors: tuple[AnnexCollector, ...] = ()
    queried_at: float | None = None
    error: str | None = None
    generation: AnnexGeneration | None = None
    configured_collector: str = ""
    is_pending: bool = False
    free_gpus: tuple[FreeGpus, ...] = ()

    @property
    def errors(self) -> tuple[str, ...]:
        """Why something is missing: one sentence each, that of the schedd first."""
        found = [self.error, *(collector.error for collector in self.collectors)]
        return tuple(error for error in found if error)

    @property
    def ends(self) -> dict[str, frozenset[float]]:
        """The known ends of annexes, seconds since the epoch, by name in lower case."""
        found: dict[str, set[float]] = {}
        starts: dict[str, float] = {}
        for ad in self.ads:
            if ad.stops_at is not None:
                found.setdefault(ad.annex.casefold(), set()).add(ad.stops_at)
            if ad.started_at is not None and ad.request_id:
                starts[ad.request_id] = min(ad.started_at, starts.get(ad.request_id, inf))
        for request in self.requests:
            start = starts.get(request.request_id, request.started_at)
            if request.lifetime is not None and start is not None:
                found.setdefault(request.name.casefold(), set()).add(start + request.lifetime)
        return {name: frozenset(ends) for name, ends in found.items()}


# --- ads as records ----------------------------------------------------------------------------


NEW_SINCE: Final = (25, 14)
"""The first version with the new generation of ``htcondor annex create``."""

LONGEST_NAME: Final = 200

COLLECTOR_PORT: Final = 9618
CONNECTION_SECONDS: Final = 3.0

REQUESTS: Final = (
    "hpc_annex_name isnt undefined",
    """
    ClusterId ProcId JobStatus Owner QDate GlobalJobId hpc_annex_name hpc_annex_request_id
    hpc_annex_start_time hpc_annex_collector hpc_annex_lifetime hpc_annex_nodes hpc_annex_cpus
    hpc_annex_mem_mb hpc_annex_queue_name hpc_annex_allocation hpc_annex_PID hpc_annex_JOB_ID
    """.split(),
)
"""The query for requests: constraint and attributes."""

SLOT_ATTRIBUTES: Final = """
    AnnexName hpc_annex_request_id Name SlotType State Activity DaemonStartTime DaemonStopTime GPUs
    TotalSlotGPUs GPUs_DeviceName AvailableGPUs GLIDEIN_ResourceName
    """.split()
"""The attributes that are requested of a slot."""

GPU_SLOTS: Final = (
    "GLIDEIN_ResourceName isnt undefined && AnnexName is undefined"
    ' && TotalSlotGPUs > 0 && SlotType =!= "Dynamic"',
    ["GLIDEIN_ResourceName", "GPUs_DeviceName", "GPUs", "State"],
)
"""The query for slots with GPUs outside annexes: constraint and attributes. Without dynamic slots,
whose GPUs return to their partitionable slot."""


def generation_here(version: str, use_old: bool) -> AnnexGeneration:
    """The generation of ``htcondor annex create``, by CondorVersion and ANNEX_USE_OLD_CREATE."""
    found = re.search(r"(\d+)\.(\d+)\.\d+", version)
    is_new = found is None or (int(found[1]), int(found[2])) >= NEW_SINCE
    return AnnexGeneration.NEW if is_new and not use_old else AnnexGeneration.OLD


def annex_request(ad: Any) -> AnnexRequest | None:
    """A request's job as a record, or None if it lacks an id, the status or a name."""
    cluster, proc = _count(ad, "ClusterId"), _count(ad, "ProcId")
    status, name = _count(ad, "JobStatus"), _text(ad, "hpc_annex_name")
    if not name or cluster is None or proc is None or status is None:
        return None
    lifetime = _number(ad, "hpc_annex_lifetime")
    return AnnexRequest(
        cluster=cluster,
        proc=proc,
        name=name,
        # The attribute is the expression "GlobalJobID".
        request_id=_text(ad, "hpc_annex_request_id") or _text(ad, "GlobalJobId"),
        status=status,
        generation=AnnexGeneration.NEW if lifetime is None else AnnexGeneration.OLD,
        owner=_text(ad, "Owner"),
        collector=_text(ad, "hpc_annex_collector"),
        submitted_at=_number(ad, "QDate"),
        started_at=_number(ad, "hpc_annex_start_time"),
        lifetime=lifetime,
        nodes=_count(ad, "hpc_annex_nodes"),
        cpus=_count(ad, "hpc_annex_cpus"),
        memory=_count(ad, "hpc_annex_mem_mb"),
        queue=_text(ad, "hpc_annex_queue_name"),
        allocation=_text(ad, "hpc_annex_allocation"),
        pid=_text(ad, "hpc_annex_PID"),
        batch_job=_text(ad, "hpc_annex_JOB_ID"),
    )


def annex_slot(ad: Any) -> AnnexAd | None:
    """A slot's ad as a record, or None if it lacks the annex's name or a type."""
    annex = _text(ad, "AnnexName")
    slot, _, node = _text(ad, "Name").partition("@")
    try:
        slot_type = AnnexSlotType(_text(ad, "SlotType"))
    except ValueError:
        return None
    if not annex or not slot:
        return None
    total = "TotalSlot" if slot_type is AnnexSlotType.PARTITIONABLE else ""
    return AnnexAd(
        annex=annex,
        slot=slot,
        node=node,
        slot_type=slot_type,
        request_id=_text(ad, "hpc_annex_request_id"),
        started_at=_number(ad, "DaemonStartTime"),
        stops_at=_number(ad, "DaemonStopTime"),
        state=_text(ad, "State"),
        activity=_text(ad, "Activity"),
        gpus=_count(ad, f"{total}GPUs"),
        gpu=encodable((gpu_model(ad) or "")[:LONGEST_NAME]),
        site=_text(ad, "GLIDEIN_ResourceName"),
    )


def free_gpus(ads: Iterable[Any], now: float) -> list[FreeGpus]:
    """The GPUs, free at ``now``, of slots that :data:`GPU_SLOTS` selects, by site and model.

    ``GPUs`` of a partitionable slot are those that no dynamic slot has; only Unclaimed ones are
    available (manual: "Machine ClassAd Attributes"). Slots with GPUs of several models have no
    GPUs_DeviceName, and are left out.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for ad in ads:
        site, gpu = _text(ad, "GLIDEIN_ResourceName"), _text(ad, "GPUs_DeviceName")
        if site and gpu:
            is_free = _text(ad, "State") == "Unclaimed"
            counts[site, gpu] += (_count(ad, "GPUs") or 0) if is_free else 0
    return [FreeGpus(site, gpu, count, now) for (site, gpu), count in sorted(counts.items())]


def connection_error(collector: str) -> str | None:
    """Why a collector cannot be connected to; None if it can."""
    found = re.match(r"<?(?:\[([^]]+)\]|([^:?<>]+))(?::(\d{1,5}))?", collector)
    if found is None:
        return "no address"
    try:
        address = found[1] or found[2], int(found[3] or COLLECTOR_PORT)
        socket.create_connection(address, CONNECTION_SECONDS).close()
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


def gpu_model(ad: Any) -> str | None:
    """The model of a slot's GPUs; None without GPUs."""
    gpu = ad.get("GPUs_DeviceName")
    if isinstance(gpu, str):
        return gpu
    # A partitionable slot with several models describes each GPU in a nested ad.
    for key, value in ad.items():
        if str(key).startswith("GPUs_") and hasattr(value, "get"):
            model = value.get("DeviceName")
            if isinstance(model, str):
                return model
    return None


def _text(ad: Any, attribute: str) -> str:
    value = ad.get(attribute)
    return encodable(value[:LONGEST_NAME]) if isinstance(value, str) else ""


def _number(ad: Any, attribute: str) -> float | None:
    """A number, even one in quotes."""
    value = ad.get(attribute)
    if isinstance(value, str) and re.fullmatch(r"\d{1,15}", value, re.ASCII):
        return float(value)
    return float(value) if type(value) in (int, float) and abs(value) < 2**53 else None


def _count(ad: Any, attribute: str) -> int | None:
    value = _number(ad, attribute)
    return None if value is None else int(value)
