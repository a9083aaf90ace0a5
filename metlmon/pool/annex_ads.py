"""Ads of annexes as records: the requests of the schedd, and the slots of a collector.

Also the free GPUs of all other slots.

Runs in the worker process (:mod:`metlmon.pool.worker`). Attributes of a request are what
``htcondor_cli/annex_create.py`` submits; most of its numbers are strings.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from metlmon.pool.annex_types import (
    AnnexAd,
    AnnexGeneration,
    AnnexRequest,
    AnnexSlotType,
    FreeGpus,
)
from metlmon.pool.protocol import encodable

NEW_SINCE: Final = (25, 14)
"""The first version whose ``htcondor annex create`` is of the new generation."""

LONGEST_NAME: Final = 200

COLLECTOR_PORT: Final = 9618
CONNECTION_SECONDS: Final = 3.0

REQUESTS: Final = (
    "hpc_annex_name isnt undefined",
    [
        *("ClusterId", "ProcId", "JobStatus", "Owner", "QDate", "GlobalJobId"),
        *("hpc_annex_name", "hpc_annex_request_id", "hpc_annex_start_time", "hpc_annex_collector"),
        *("hpc_annex_lifetime", "hpc_annex_nodes", "hpc_annex_cpus", "hpc_annex_mem_mb"),
        *("hpc_annex_queue_name", "hpc_annex_allocation", "hpc_annex_PID", "hpc_annex_JOB_ID"),
    ],
)
"""The query for requests: constraint and attributes."""

SLOT_ATTRIBUTES: Final = [
    *("AnnexName", "hpc_annex_request_id", "Name", "Machine", "SlotType", "State", "Activity"),
    *("DaemonStartTime", "DaemonStopTime", "LastHeardFrom", "AuthenticatedIdentity"),
    *("Cpus", "TotalSlotCpus", "GPUs", "TotalSlotGPUs", "GPUs_DeviceName", "AvailableGPUs"),
    "GLIDEIN_ResourceName",
]
"""The attributes that are requested of a slot."""

GPU_SLOTS: Final = (
    "GLIDEIN_ResourceName isnt undefined && AnnexName is undefined"
    ' && TotalSlotGPUs > 0 && SlotType =!= "Dynamic"',
    ["GLIDEIN_ResourceName", "GPUs_DeviceName", "GPUs", "State"],
)
"""The query for slots with GPUs outside annexes: constraint and attributes.

Not for dynamic slots: GPUs that they return are those of their partitionable slot again.
"""


def generation_here(version: str, use_old: bool) -> AnnexGeneration:
    """What ``htcondor annex create`` makes: by CondorVersion and ANNEX_USE_OLD_CREATE."""
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
        # It is the expression "GlobalJobID".
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
        host=_text(ad, "Machine"),
        request_id=_text(ad, "hpc_annex_request_id"),
        started_at=_number(ad, "DaemonStartTime"),
        stops_at=_number(ad, "DaemonStopTime"),
        heard_at=_number(ad, "LastHeardFrom"),
        state=_text(ad, "State"),
        activity=_text(ad, "Activity"),
        cpus=_count(ad, f"{total}Cpus"),
        gpus=_count(ad, f"{total}GPUs"),
        gpu=encodable((gpu_model(ad) or "")[:LONGEST_NAME]),
        site=_text(ad, "GLIDEIN_ResourceName"),
        identity=_text(ad, "AuthenticatedIdentity"),
    )


def free_gpus(ads: Iterable[Any], now: float) -> list[FreeGpus]:
    """The GPUs, free at ``now``, of slots that :data:`GPU_SLOTS` selects, by site and model.

    ``GPUs`` of a partitionable slot are those that no dynamic slot has; only what is Unclaimed is
    available (manual: "Machine ClassAd Attributes"). Slots whose GPUs are of several models have no
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
    """Why no connection to a collector is possible, None if it accepts one."""
    found = re.match(r"<?([^:?<>]+)(?::(\d{1,5}))?", collector)
    if found is None:
        return "no address"
    try:
        socket.create_connection(
            (found[1], int(found[2] or COLLECTOR_PORT)), CONNECTION_SECONDS
        ).close()
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


def gpu_model(ad: Any) -> str | None:
    """The model of a slot's GPUs, None if it has none."""
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
    """A number, also one in quotes."""
    value = ad.get(attribute)
    if isinstance(value, str) and re.fullmatch(r"\d{1,15}", value, re.ASCII):
        return float(value)
    return float(value) if type(value) in (int, float) and abs(value) < 2**53 else None


def _count(ad: Any, attribute: str) -> int | None:
    value = _number(ad, attribute)
    return None if value is None else int(value)
