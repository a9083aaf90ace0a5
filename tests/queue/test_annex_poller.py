"""When schedd and collectors are queried about annexes and free GPUs, and the results."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from metlmon.pool import annex_ads, worker
from metlmon.pool.annex_ads import (
    AnnexAd,
    AnnexGeneration,
    AnnexQueue,
    AnnexRequest,
    AnnexSlotType,
    FreeGpus,
)
from metlmon.pool.annex_poller import AnnexPoller
from metlmon.pool.connection import PoolUnreachable
from metlmon.pool.poller import LONGEST_PAUSE, QUERY_SECONDS, QueueFeed, QueuePoller
from metlmon.pool.types import PoolError, QueueJob, QueueSnapshot
from tests.support.patience import PATIENCE
from tests.support.queue_rows import Logs, Schedd, dag, dagman, job, row

CONFIGURED, OURS, THEIRS, POOL = "cm.annex", "cm.ours", "cm.theirs", "cm.pool"


def request(cluster: int, name: str, owner: str = "anna", collector: str = "") -> AnnexRequest:
    return AnnexRequest(
        cluster=cluster,
        proc=0,
        name=name,
        request_id=f"ap#{cluster}.0#1",
        status=2,
        generation=AnnexGeneration.NEW,
        owner=owner,
        collector=collector,
    )


def slot(annex: str, node: str = "gpua001") -> AnnexAd:
    return AnnexAd(annex=annex, slot="slot1", node=node, slot_type=AnnexSlotType.PARTITIONABLE)


@dataclass
class Annexes:
    """A poller with a queue, a schedd and collectors whose answers the test sets."""

    queue: AnnexQueue = field(default_factory=AnnexQueue)
    jobs: tuple[QueueJob, ...] = ()
    slots: dict[str, list[AnnexAd] | PoolError] = field(default_factory=dict)
    user: str | None = "anna@ap.example.org"
    queue_error: str | None = None
    schedd_error: str | None = None
    now: float = 1000.0
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    schedd_queries: int = 0

    def __post_init__(self) -> None:
        snapshot: Callable[[], QueueSnapshot] = lambda: QueueSnapshot(  # noqa: E731
            user=self.user, jobs=self.jobs, error=self.queue_error
        )
        self.poller = AnnexPoller(snapshot, self, self, lambda: self.now)  # type: ignore[arg-type]

    def annex_queue(self) -> AnnexQueue:
        self.schedd_queries += 1
        if self.schedd_error is not None:
            raise PoolError(self.schedd_error)
        return self.queue

    def annex_ads(self, collector: str, names: Sequence[str]) -> tuple[AnnexAd, ...]:
        self.asked.append((collector, tuple(names)))
        found = self.slots.get(collector, [])
        if isinstance(found, PoolError):
            raise found
        return tuple(found)

    def close(self) -> None:
        pass


# --- whose annexes ------------------------------------------------------------------------


def test_requests_of_us_and_of_targeting_jobs_are_kept() -> None:
    requests = (
        request(1, "ours"),
        request(2, "of-the-owner", owner="bert"),
        request(3, "Targeted", owner="carl"),
        request(4, "elsewhere", owner="carl"),
    )
    jobs = (job(9, annex="targeted", owner="bert"),)
    answer = Annexes(AnnexQueue(requests=requests), jobs).poller.query()
    assert [each.name for each in answer.requests] == ["ours", "of-the-owner", "Targeted"]
    assert answer.jobs == jobs


def test_request_without_an_owner_is_not_ours() -> None:
    there = Annexes(AnnexQueue(requests=(request(1, "x", owner=""),)), user=None)
    assert there.poller.query().requests == ()


# --- which collectors ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "jobs", "asked"),
    [
        # The configured one and those of our requests; the pool's if no other is known.
        (
            AnnexQueue(
                requests=(
                    request(1, "delta", collector=OURS),
                    request(2, "spark", owner="carl", collector=THEIRS),
                ),
                collector=CONFIGURED,
                pool_collector=POOL,
            ),
            (job(9, annex="spark"),),
            [(CONFIGURED, ("delta", "spark")), (OURS, ("delta", "spark"))],
        ),
        (AnnexQueue(pool_collector=POOL), (job(9, annex="delta"),), [(POOL, ("delta",))]),
        # None without requests and targets.
        (AnnexQueue(collector=CONFIGURED, pool_collector=POOL), (job(9),), []),
    ],
)
def test_collectors_to_query(
    queue: AnnexQueue, jobs: tuple[QueueJob, ...], asked: list[tuple[str, tuple[str, ...]]]
) -> None:
    there = Annexes(queue, jobs)
    answer = there.poller.query()
    assert (there.asked, answer.errors) == (asked, ())
    assert answer.configured_collector == queue.collector


def test_slot_of_a_collector_with_two_addresses_counts_once() -> None:
    queue = AnnexQueue(requests=(request(1, "delta", collector=OURS),), collector=CONFIGURED)
    there = Annexes(queue, slots={OURS: [slot("delta")], CONFIGURED: [slot("delta")]})
    assert there.poller.query().ads == (slot("delta"),)


# --- missing answers ----------------------------------------------------------------------


def test_silent_collector_keeps_its_slots_with_a_warning() -> None:
    there = Annexes(
        AnnexQueue(requests=(request(1, "delta"),), collector=CONFIGURED),
        slots={CONFIGURED: [slot("delta")]},
    )
    there.poller.query()
    there.now += 60
    there.slots[CONFIGURED] = PoolUnreachable("the annex collector gave no answer in 10 s")
    answer = there.poller.query()
    assert answer.ads == (slot("delta"),)
    assert answer.errors == (f"the annex collector gave no answer in 10 s ({CONFIGURED})",)
    (collector,) = answer.collectors
    assert (collector.answered_at, answer.queried_at) == (1000.0, 1060.0)
    there.slots[CONFIGURED] = []
    assert there.poller.query().ads == (), "an answer replaces its earlier slots"


def test_silent_schedd_keeps_its_requests() -> None:
    there = Annexes(AnnexQueue(requests=(request(1, "delta"),), collector=CONFIGURED))
    there.poller.query()
    there.schedd_error = "the schedd does not answer"
    answer = there.poller.query()
    assert [each.name for each in answer.requests] == ["delta"]
    assert answer.errors == ("the schedd does not answer",)
    assert len(there.asked) == 2


def test_unresponsive_schedd_is_not_queried_again() -> None:
    there = Annexes(queue_error="the schedd gave no answer in 40 s")
    answer = there.poller.query()
    assert there.schedd_queries == 0
    assert answer.error == "the schedd gave no answer in 40 s"
    assert answer.generation is None
    there.queue_error = None
    there.now += QUERY_SECONDS
    assert there.poller.is_due(), "with the next query of the queue"


# --- when ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "pause"), [((request(1, "delta"),), QUERY_SECONDS), ((), LONGEST_PAUSE)]
)
def test_queries_are_rare_without_annexes(requests: tuple[AnnexRequest, ...], pause: float) -> None:
    there = Annexes(AnnexQueue(requests=requests))
    assert there.poller.is_due()
    there.poller.query()
    there.now += pause - 0.1
    assert not there.poller.is_due()
    there.now += 0.2
    assert there.poller.is_due()


def test_first_job_with_a_target_causes_a_query() -> None:
    there = Annexes(AnnexQueue(pool_collector=POOL))
    there.poller.query()
    assert not there.poller.is_due()
    there.jobs = (job(9, annex="delta"),)
    assert there.poller.is_due()
    there.poller.query()
    assert not there.poller.is_due()


def test_silent_collector_delays_neither_queue_nor_exit() -> None:
    entered, closed = threading.Event(), threading.Event()

    class SilentCollector:
        def annex_ads(self, collector: str, names: Sequence[str]) -> tuple[AnnexAd, ...]:
            entered.set()
            assert closed.wait(PATIENCE)
            raise PoolError("the connection to the pool is closed")

        def close(self) -> None:
            closed.set()

    class WithAnnexes(Schedd):
        def annex_queue(self) -> AnnexQueue:
            return AnnexQueue(requests=(request(1, "delta"),), collector=CONFIGURED)

    logs, schedd = Logs(row(1), dags=[dag()]), WithAnnexes(job(1), dagman())
    queue = QueuePoller(logs, schedd)  # type: ignore[arg-type]
    annexes = AnnexPoller(lambda: queue.snapshot, schedd, SilentCollector())  # type: ignore[arg-type]
    feed = QueueFeed(logs, queue, annexes)
    feed.start(lambda snapshot: None)
    try:
        assert entered.wait(PATIENCE), "the queue's first answer is followed by the annexes"
        assert queue.query().error is None
    finally:
        feed.stop()
    assert closed.is_set()
    assert not [each for each in threading.enumerate() if each.name == "metlmon-annexes"]


# --- ads of annexes ---------------------------------------------------------------------------


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
    """An attribute that is not a literal."""


def test_request_has_its_numbers() -> None:
    request = annex_ads.annex_request({**JOB, "hpc_annex_request_id": Expression()})
    assert (request.name, request.owner, request.status) == ("delta-b", "anna", 2)
    assert request.request_id == "ap#1329.0#1795484901"
    assert request.generation is AnnexGeneration.NEW
    assert (request.started_at, request.lifetime, request.nodes) == (None, None, None)
    old = annex_ads.annex_request({**JOB, **OLD})
    assert old.generation is AnnexGeneration.OLD
    assert (old.lifetime, old.nodes, old.queue) == (7200.0, 2, "gpuA100x4")
    assert (old.allocation, old.batch_job, old.cpus) == ("abc123", "815", None)
    for identity in ("ClusterId", "ProcId", "JobStatus", "hpc_annex_name"):
        assert annex_ads.annex_request({**JOB, identity: Expression()}) is None


def test_partitionable_slot_has_the_gpus_of_the_node() -> None:
    slot = annex_ads.annex_slot(SLOT)
    assert (slot.slot_type, slot.gpus, slot.busy) == (AnnexSlotType.PARTITIONABLE, 4, False)
    assert (slot.started_at, slot.stops_at) == (1795484910.0, 1795492110.0)
    name = "slot1_1@gpua001.delta.ncsa.illinois.edu"
    own = {"Name": name, "SlotType": "Dynamic", "State": "Claimed", "Activity": "Busy"}
    dynamic = annex_ads.annex_slot({**SLOT, **own})
    assert (dynamic.gpus, dynamic.busy, dynamic.node) == (1, True, slot.node)
    # Unknown, not 0.
    missing = ("GPUs", "TotalSlotGPUs", "GPUs_DeviceName", "DaemonStopTime")
    bare = annex_ads.annex_slot({key: SLOT[key] for key in SLOT if key not in missing})
    assert (bare.gpus, bare.gpu, bare.stops_at) == (None, "", None)


def test_addresses_of_collectors_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[object] = []
    monkeypatch.setattr(
        socket, "create_connection", lambda to, _: connected.append(to) or socket.socket()
    )
    for text in ("<10.0.0.1:77?alias=cm>", "<[fd00::1]:77?alias=cm>", "cm.example.org"):
        assert annex_ads.connection_error(text) is None
    assert connected == [("10.0.0.1", 77), ("fd00::1", 77), ("cm.example.org", 9618)]


@pytest.mark.parametrize(
    ("version", "use_old", "expected"),
    [
        ("$CondorVersion: 23.9.6 2024-08-08 $", False, AnnexGeneration.OLD),
        ("$CondorVersion: 25.13.2 2026-08-01 $", False, AnnexGeneration.OLD),
        ("$CondorVersion: 25.14.1 2026-09-01 $", False, AnnexGeneration.NEW),
        ("$CondorVersion: 25.14.1 2026-09-01 $", True, AnnexGeneration.OLD),
    ],
)
def test_generation_follows_from_version_and_configuration(
    version: str, use_old: bool, expected: AnnexGeneration
) -> None:
    assert annex_ads.generation_here(version, use_old) is expected


def test_no_secret_attribute_is_queried() -> None:
    asked = " ".join([*annex_ads.REQUESTS[1], *annex_ads.SLOT_ATTRIBUTES]).lower()
    for word in ("token", "password", "env", "arguments", "script_dir", "pilot_dir", "args"):
        assert word not in asked


def test_name_stays_within_its_quotes_in_a_constraint() -> None:
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


# --- the free GPUs of a collector -------------------------------------------------------------


A100, V100 = "NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-32GB"
NOW = 1795489026.0

PARTITIONABLE: dict[str, Any] = {
    "Activity": "Idle",
    "GLIDEIN_ResourceName": "Delta-GPU",
    "GPUs": 1,
    "GPUs_DeviceName": A100,
    "Name": "slot1@delta@localhost",
    "SlotType": "Partitionable",
    "State": "Unclaimed",
    "TotalGPUs": 2,
    "TotalSlotGPUs": 2,
}
"""As HTCondor 23.9 advertises it while one of its two GPUs is in a dynamic slot."""
DYNAMIC = PARTITIONABLE | {
    "Activity": "Busy",
    "Name": "slot1_1@delta@localhost",
    "SlotType": "Dynamic",
    "State": "Claimed",
    "TotalSlotGPUs": 1,
}
FULL = PARTITIONABLE | {"GPUs": 0, "Name": "slot1@delta2@localhost"}
STATIC = PARTITIONABLE | {
    "GLIDEIN_ResourceName": "Expanse-GPU",
    "GPUs_DeviceName": V100,
    "Name": "slot2@expanse@localhost",
    "SlotType": "Static",
    "TotalSlotGPUs": 1,
}
CLAIMED = STATIC | {"Activity": "Busy", "Name": "slot1@expanse@localhost", "State": "Claimed"}
ANNEX = PARTITIONABLE | {"AnnexName": "gz", "Name": "slot1@annex-gz.9177@localhost"}
NO_GPU = {key: value for key, value in PARTITIONABLE.items() if "GPUs" not in key} | {
    "GLIDEIN_ResourceName": "UChicago"
}
NO_SITE = {key: PARTITIONABLE[key] for key in PARTITIONABLE if key != "GLIDEIN_ResourceName"}
SEVERAL_MODELS = {key: FULL[key] for key in FULL if key != "GPUs_DeviceName"} | {"GPUs": 3}


def selected(*ads: dict[str, Any]) -> list[dict[str, Any]]:
    """The ads that a collector would answer with."""
    classad = pytest.importorskip("classad2")
    constraint, attributes = annex_ads.GPU_SLOTS
    found = []
    for values in ads:
        ad = classad.ClassAd(values)
        ad["Selected"] = classad.ExprTree(constraint)
        if ad.eval("Selected") is True:
            found.append({name: values[name] for name in attributes if name in values})
    return found


def test_free_gpus_are_those_of_unclaimed_slots() -> None:
    assert selected(DYNAMIC, ANNEX, NO_GPU, NO_SITE) == [], "these are not asked for"
    ads = selected(PARTITIONABLE, FULL, STATIC, CLAIMED, SEVERAL_MODELS)
    assert annex_ads.free_gpus(ads, NOW) == [
        FreeGpus("Delta-GPU", A100, 1, NOW),
        FreeGpus("Expanse-GPU", V100, 1, NOW),
    ]


@pytest.mark.parametrize("state", ["Owner", "Drained", "Matched", "Claimed"])
def test_slot_that_takes_no_job_has_no_free_gpu(state: str) -> None:
    ads = selected(PARTITIONABLE | {"State": state})
    assert annex_ads.free_gpus(ads, NOW) == [FreeGpus("Delta-GPU", A100, 0, NOW)]


# --- when ---------------------------------------------------------------------------------


class Pool(Annexes):
    """A pool whose collector answers ``free``."""

    free: tuple[FreeGpus, ...] | PoolError = (FreeGpus("Delta-GPU", A100, 3, NOW),)
    questions = 0

    def free_gpus(self) -> tuple[FreeGpus, ...]:
        self.questions += 1
        if isinstance(self.free, PoolError):
            raise self.free
        return self.free


def test_free_gpus_are_queried_for_plans_every_ten_minutes() -> None:
    pool = Pool(AnnexQueue())
    assert (pool.poller.query().free_gpus, pool.questions) == ((), 0)
    for seconds, questions in ((0.0, 1), (LONGEST_PAUSE - 1, 1), (2.0, 2)):
        pool.now += seconds
        pool.poller.query_gpus_soon()
        assert (pool.poller.query().free_gpus, pool.questions) == (pool.free, questions)
    assert (pool.poller.query().free_gpus, pool.questions) == (pool.free, 2)


def test_silent_collector_gives_no_free_gpus() -> None:
    pool = Pool(AnnexQueue())
    pool.poller.query_gpus_soon()
    assert pool.poller.query().free_gpus
    pool.now += LONGEST_PAUSE
    pool.free = PoolUnreachable("the collector gave no answer in 10 s")
    pool.poller.query_gpus_soon()
    answer = pool.poller.query()
    assert (answer.free_gpus, answer.errors) == ((), ())


def test_silent_schedd_ends_the_query() -> None:
    pool = Pool(schedd_error="the schedd does not answer")
    pool.poller.query_gpus_soon()
    assert (pool.poller.query().free_gpus, pool.questions) == ((), 0)
