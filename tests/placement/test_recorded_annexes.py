"""Annexes from ads as condor_status and condor_q of HTCondor 23.9.6 print them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.placement.annexes import make_annexes
from metlmon.placement.types import Annex, AnnexState
from metlmon.pool import annex_ads
from metlmon.pool.annex_types import AnnexAnswer, AnnexCollector, AnnexGeneration, AnnexJob
from tests.support.run_histories import basis

STARTED = 1795488094
ID = f"localhost#9177.0#{STARTED}"
WHOLE: dict[str, Any] = {
    "Activity": "Idle",
    "AnnexName": "gz",
    "Cpus": 7,
    "DaemonStartTime": STARTED,
    "GLIDEIN_ResourceName": "Expanse-GPU",
    "GPUs": 1,
    "GPUs_DeviceName": "Tesla V100-SXM2-32GB",
    "hpc_annex_request_id": ID,
    "IsAnnex": True,
    "LastHeardFrom": STARTED + 12,
    "Machine": "localhost",
    "MyType": "Machine",
    "Name": "slot1@annex-gz.9177@localhost",
    "SlotType": "Partitionable",
    "State": "Unclaimed",
    "TotalSlotCpus": 8,
    "TotalSlotGPUs": 2,
}
ONE = WHOLE | {
    "Activity": "Busy",
    "Cpus": 1,
    "Name": "slot1_1@annex-gz.9177@localhost",
    "SlotType": "Dynamic",
    "State": "Claimed",
    "TotalSlotCpus": 1,
    "TotalSlotGPUs": 1,
}
OLD_REQUEST: dict[str, Any] = {
    "ClusterId": 9177,
    "GlobalJobId": ID,
    "hpc_annex_allocation": "abc123",
    "hpc_annex_collector": "127.0.0.1:9618",
    "hpc_annex_JOB_ID": "815",
    "hpc_annex_lifetime": "40",
    "hpc_annex_name": "gz",
    "hpc_annex_nodes": "1",
    "hpc_annex_PID": "4711",
    "hpc_annex_queue_name": "gpu",
    "hpc_annex_request_id": ID,
    "hpc_annex_start_time": STARTED + 2,
    "JobBatchName": "gz [HPC Annex]",
    "JobStatus": 2,
    "JobUniverse": 12,
    "Owner": "researcher",
    "ProcId": 0,
    "QDate": STARTED,
}
NEW_SLOT = WHOLE | {"DaemonStopTime": STARTED + 3600}
NEW_REQUEST = {
    name: value
    for name, value in OLD_REQUEST.items()
    if not name.startswith("hpc_annex_") or name[10:] in ("name", "request_id", "collector")
}


def seen(request: dict[str, Any] | None, *slots: dict[str, Any], at: float) -> Annex:
    """The annex of these ads, ``at`` seconds after its node started."""
    requests = [annex_ads.annex_request(ad) for ad in (request,) if ad is not None]
    ads = [annex_ads.annex_slot(ad) for ad in slots]
    now = STARTED + at
    answer = AnnexAnswer(
        requests=tuple(each for each in requests if each is not None),
        ads=tuple(ad for ad in ads if ad is not None),
        jobs=(AnnexJob(9178, 0, "GZ", 2),),
        collectors=(AnnexCollector(address="127.0.0.1:9618", answered_at=now),),
        queried_at=now,
        generation=AnnexGeneration.OLD,
    )
    stats = replace(basis({}), settings=Settings(zone=UTC))
    (row,) = make_annexes(stats, answer, now).annexes
    return row


def local(seconds: float) -> datetime:
    return datetime.fromtimestamp(STARTED, UTC).replace(tzinfo=None) + timedelta(seconds=seconds)


def test_an_old_one_with_a_job() -> None:
    row = seen(OLD_REQUEST, WHOLE, ONE, at=12)
    assert (row.name, row.site, row.gpu) == ("gz", "Expanse-GPU", "Tesla V100-SXM2-32GB")
    assert (row.nodes, row.nodes_requested, row.gpus, row.gpus_busy) == (1, 1, 2, 1)
    assert (row.alive_until, row.seconds_left) == (local(40), 28)
    assert row.state is AnnexState.EXPIRING


def test_an_old_one_after_its_lifetime() -> None:
    row = seen(OLD_REQUEST, at=45)
    assert (row.state, row.nodes) == (AnnexState.GONE, 0)


def test_an_old_one_whose_batch_job_waits() -> None:
    waiting = {name: ad for name, ad in OLD_REQUEST.items() if name != "hpc_annex_start_time"}
    assert seen(waiting, at=-60).state is AnnexState.PENDING


def test_a_new_one_from_its_request_to_its_end() -> None:
    assert seen(NEW_REQUEST, at=-60).state is AnnexState.REQUESTED
    up = seen(NEW_REQUEST, NEW_SLOT, at=60)
    assert (up.state, up.alive_until) == (AnnexState.UP, local(3600))
    assert seen(NEW_REQUEST, NEW_SLOT, at=3300).state is AnnexState.EXPIRING
    noticed = NEW_REQUEST | {"hpc_annex_start_time": STARTED + 200, "JobStatus": 1}
    assert seen(noticed, NEW_SLOT, at=300).state is AnnexState.UP
    assert seen(noticed, at=3610).state is AnnexState.GONE
