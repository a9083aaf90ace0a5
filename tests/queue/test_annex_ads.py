"""What the worker makes of the ads of annexes."""

from __future__ import annotations

from typing import Any

import pytest

from metlmon.pool import annex_ads, worker
from metlmon.pool.annex_types import AnnexGeneration, AnnexSlotType

JOB: dict[str, Any] = {
    "ClusterId": 1329,
    "ProcId": 0,
    "JobStatus": 2,
    "Owner": "anna",
    "QDate": 1795484901,
    "GlobalJobId": "ap#1329.0#1795484901",
    "hpc_annex_name": "delta-b",
    "hpc_annex_collector": "cm.example.org",
}
"""A request of the new generation, before its first node."""

OLD: dict[str, Any] = {
    "hpc_annex_lifetime": "7200",
    "hpc_annex_nodes": "2",
    "hpc_annex_queue_name": "gpuA100x4",
    "hpc_annex_allocation": "abc123",
    "hpc_annex_JOB_ID": "815",
}
"""What a request of the old generation has besides: strings."""

SLOT: dict[str, Any] = {
    "AnnexName": "delta-b",
    "Name": "slot1@gpua001.delta.ncsa.illinois.edu",
    "Machine": "gpua001.delta.ncsa.illinois.edu",
    "SlotType": "Partitionable",
    "State": "Unclaimed",
    "Activity": "Idle",
    "Cpus": 14,
    "TotalSlotCpus": 16,
    "GPUs": 1,
    "TotalSlotGPUs": 4,
    "GPUs_DeviceName": "NVIDIA A100-SXM4-40GB",
    "DaemonStartTime": 1795484910,
    "DaemonStopTime": 1795492110,
    "hpc_annex_request_id": "ap#1329.0#1795484901",
}
"""Of a node with four GPUs, three of which are in dynamic slots."""


class Expression:
    """An attribute that is no literal."""


def test_a_request_says_its_name_id_and_owner() -> None:
    request = annex_ads.annex_request({**JOB, "hpc_annex_request_id": Expression()})
    assert request is not None
    assert (request.name, request.owner, request.status) == ("delta-b", "anna", 2)
    assert request.request_id == "ap#1329.0#1795484901"
    assert request.generation is AnnexGeneration.NEW
    assert (request.started_at, request.lifetime, request.nodes) == (None, None, None)


def test_a_request_of_the_old_generation_says_what_was_requested() -> None:
    request = annex_ads.annex_request({**JOB, **OLD})
    assert request is not None
    assert request.generation is AnnexGeneration.OLD
    assert (request.lifetime, request.nodes, request.queue) == (7200.0, 2, "gpuA100x4")
    assert (request.allocation, request.batch_job, request.cpus) == ("abc123", "815", None)


@pytest.mark.parametrize("missing", ["ClusterId", "ProcId", "JobStatus", "hpc_annex_name"])
def test_a_job_that_lacks_its_identity_is_no_request(missing: str) -> None:
    assert annex_ads.annex_request({**JOB, missing: Expression()}) is None


def test_a_partitionable_slot_has_the_gpus_of_the_node() -> None:
    slot = annex_ads.annex_slot(SLOT)
    assert slot is not None
    assert (slot.slot_type, slot.gpus, slot.cpus) == (AnnexSlotType.PARTITIONABLE, 4, 16)
    assert not slot.busy
    assert (slot.started_at, slot.stops_at) == (1795484910.0, 1795492110.0)


def test_a_dynamic_slot_has_its_own_gpus_and_the_same_node() -> None:
    name = "slot1_1@gpua001.delta.ncsa.illinois.edu"
    own = {"Name": name, "SlotType": "Dynamic", "State": "Claimed", "Activity": "Busy"}
    slot, parent = annex_ads.annex_slot({**SLOT, **own}), annex_ads.annex_slot(SLOT)
    assert slot is not None
    assert parent is not None
    assert (slot.gpus, slot.busy, slot.node) == (1, True, parent.node)


def test_a_slot_without_gpus_or_stop_time_does_not_have_0_of_them() -> None:
    missing = ("GPUs", "TotalSlotGPUs", "GPUs_DeviceName", "DaemonStopTime")
    slot = annex_ads.annex_slot({key: SLOT[key] for key in SLOT if key not in missing})
    assert slot is not None
    assert (slot.gpus, slot.gpu, slot.stops_at) == (None, "", None)


@pytest.mark.parametrize(
    ("version", "use_old", "expected"),
    [
        ("$CondorVersion: 23.9.6 2024-08-08 $", False, AnnexGeneration.OLD),
        ("$CondorVersion: 25.13.2 2026-08-01 $", False, AnnexGeneration.OLD),
        ("$CondorVersion: 25.14.1 2026-09-01 $", False, AnnexGeneration.NEW),
        ("$CondorVersion: 25.14.1 2026-09-01 $", True, AnnexGeneration.OLD),
    ],
)
def test_the_generation_follows_from_version_and_configuration(
    version: str, use_old: bool, expected: AnnexGeneration
) -> None:
    assert annex_ads.generation_here(version, use_old) is expected


def test_no_token_password_or_environment_is_asked_for() -> None:
    asked = " ".join([*annex_ads.REQUESTS[1], *annex_ads.SLOT_ATTRIBUTES]).lower()
    for word in ("token", "password", "env", "arguments", "script_dir", "pilot_dir", "args"):
        assert word not in asked


def test_a_name_cannot_leave_its_quotes_in_a_constraint() -> None:
    pytest.importorskip("htcondor2")
    asked: list[str] = []

    class Api:
        HTCondorException = OSError

        class AdType:
            Startd = 1

        class Collector:
            def __init__(self, address: str) -> None:
                assert address == "cm"

            def query(self, kind: int, constraint: str, projection: list[str]) -> list[Any]:
                asked.append(constraint)
                return [SLOT]

    pool = worker.Pool.__new__(worker.Pool)
    pool._api, pool._location = Api(), {}
    (slot,) = pool.annex_ads("cm", ['a" || true || "', "b\\"])
    assert slot.annex == "delta-b"
    assert asked == [r'AnnexName == "a\" || true || \"" || AnnexName == "b\\"']
