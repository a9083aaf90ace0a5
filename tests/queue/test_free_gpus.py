"""The free GPUs of a collector: which slots are asked for, how they are counted, and when."""

from __future__ import annotations

from typing import Any

import pytest

from metlmon.pool import annex_ads
from metlmon.pool.annex_ads import AnnexQueue, FreeGpus
from metlmon.pool.connection import PoolUnreachable
from metlmon.pool.types import LONGEST_PAUSE, PoolError
from tests.queue.test_annex_poller import Annexes

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
NO_GPU = {
    name: value
    for name, value in PARTITIONABLE.items()
    if "GPUs" not in name and name != "GLIDEIN_ResourceName"
} | {"GLIDEIN_ResourceName": "UChicago"}
NO_SITE = {key: PARTITIONABLE[key] for key in PARTITIONABLE if key != "GLIDEIN_ResourceName"}
SEVERAL_MODELS = {key: FULL[key] for key in FULL if key != "GPUs_DeviceName"} | {"GPUs": 3}


def selected(*ads: dict[str, Any]) -> list[dict[str, Any]]:
    """The ads of these that a collector answers with."""
    classad = pytest.importorskip("classad2")
    constraint, attributes = annex_ads.GPU_SLOTS
    found = []
    for values in ads:
        ad = classad.ClassAd(values)
        ad["Selected"] = classad.ExprTree(constraint)
        if ad.eval("Selected") is True:
            found.append({name: values[name] for name in attributes if name in values})
    return found


def test_free_are_what_is_left_of_partitionable_slots_and_unclaimed_static_ones() -> None:
    ads = (PARTITIONABLE, DYNAMIC, FULL, STATIC, CLAIMED, ANNEX, NO_GPU, NO_SITE, SEVERAL_MODELS)
    assert annex_ads.free_gpus(selected(*ads), NOW) == [
        FreeGpus("Delta-GPU", A100, 1, NOW),
        FreeGpus("Expanse-GPU", V100, 1, NOW),
    ]


@pytest.mark.parametrize("state", ["Owner", "Drained", "Matched", "Claimed"])
def test_a_slot_that_takes_no_job_now_has_no_free_gpu(state: str) -> None:
    ads = selected(PARTITIONABLE | {"State": state})
    assert annex_ads.free_gpus(ads, NOW) == [FreeGpus("Delta-GPU", A100, 0, NOW)]


@pytest.mark.parametrize("extra", [DYNAMIC, ANNEX, NO_GPU, NO_SITE])
def test_a_collector_is_not_asked_for_other_slots(extra: dict[str, Any]) -> None:
    assert selected(extra) == []


# --- when ---------------------------------------------------------------------------------


class Pool(Annexes):
    """The pool's collector besides: it answers ``free``."""

    free: tuple[FreeGpus, ...] | PoolError = (FreeGpus("Delta-GPU", A100, 3, NOW),)
    questions = 0

    def free_gpus(self) -> tuple[FreeGpus, ...]:
        self.questions += 1
        if isinstance(self.free, PoolError):
            raise self.free
        return self.free


def test_a_collector_is_asked_for_free_gpus_only_for_a_plan_and_every_ten_minutes() -> None:
    pool = Pool(AnnexQueue())
    assert (pool.poller.query().free_gpus, pool.questions) == ((), 0)
    for seconds, questions in ((0.0, 1), (LONGEST_PAUSE - 1, 1), (2.0, 2)):
        pool.now += seconds
        pool.poller.query_gpus_soon()
        assert (pool.poller.query().free_gpus, pool.questions) == (pool.free, questions)
    assert (pool.poller.query().free_gpus, pool.questions) == (pool.free, 2)


def test_a_silent_collector_shows_no_free_gpus_and_is_no_error() -> None:
    pool = Pool(AnnexQueue())
    pool.poller.query_gpus_soon()
    assert pool.poller.query().free_gpus
    pool.now += LONGEST_PAUSE
    pool.free = PoolUnreachable("the collector gave no answer in 10 s")
    pool.poller.query_gpus_soon()
    answer = pool.poller.query()
    assert (answer.free_gpus, answer.errors) == ((), ())


def test_a_silent_schedd_is_answer_enough() -> None:
    pool = Pool(schedd_error="the schedd does not answer")
    pool.poller.query_gpus_soon()
    assert (pool.poller.query().free_gpus, pool.questions) == ((), 0)
