"""Stopping, pausing and sending runs from the keyboard, and choosing an idle job's site."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.jobfiles.gate_files import Stopped
from metlmon.model.run import GateStatus
from metlmon.pool.types import PoolAction, PoolError
from metlmon.snapshot.records import Run
from screens.pool_actions import DAG_DEFAULT, ConfirmScreen, MenuScreen, ResultsScreen
from tests.support.acting_app import ActingView, opened_to_act
from tests.support.fake_pool import WORD, FakePool, QueuedFeed
from tests.support.queue_rows import dagman
from tests.support.sample_snapshots import RUNS, status, update

THEN = datetime(2025, 11, 14, 8, 0)
GATE = GateStatus()
RUN3, RUN8 = RUNS[3], RUNS[8]


@asynccontextmanager
async def steer(
    gates: dict[str, GateStatus | None] | None = None, pool: FakePool | None = None
) -> AsyncIterator[ActingView]:
    """The application on runs that all have a gate, unless given otherwise."""
    rows = tuple(replace(row, gate=(gates or {}).get(row.run, GATE)) for row in RUNS)
    feed = QueuedFeed(update(status(rows)), Path("/nowhere/global_pretraining"))
    async with opened_to_act(pool, feed=feed) as seen:
        yield seen


def file(row: Run, what: str) -> str:
    return f"gate/global_pretraining/{row.uuid}.{what}"


def asked(seen: ActingView) -> list[tuple[PoolAction, list[str], str | None]]:
    orders = seen.pool.orders
    return [(order.act, [each.run for each in order.runs], order.site) for order in orders]


TO_RUN3 = ("down",) * 3
TO_RUN8 = ("down",) * 8


async def test_stop_asks_first_and_names_its_file() -> None:
    async with steer() as seen:
        await seen.press(*TO_RUN8, "a", "T")
        assert isinstance(seen.app.screen, ConfirmScreen)
        assert "Stop run8 after the current epoch?" in seen.text
        assert "To undo: resume-run" in seen.text
        assert "It writes 1 file in gate/global_pretraining" in seen.text
        assert Path(file(RUN8, "stop")).name in seen.text
        await seen.press("n")
        assert isinstance(seen.app.screen, MenuScreen)
        assert asked(seen) == []
        await seen.press("T", "y")
        await seen.until(lambda: "1 done" in seen.text)
        assert isinstance(seen.app.screen, ResultsScreen)
        assert asked(seen) == [(PoolAction.STOP, ["run8"], None)]
        assert seen.pool.orders[0].runs[0].files == (file(RUN8, "stop"),)


async def test_stop_now_lists_the_job_that_it_removes() -> None:
    pool = FakePool()
    pool.queue_snapshot = replace(WORD, dagmans=(dagman(),))
    async with steer(pool=pool) as seen:
        await seen.press(*TO_RUN8, "K")
        job = f"{RUN8.latest.cluster}.0"
        assert "Stop run8 now?" in seen.text
        assert "It removes 1 job" in seen.text
        assert seen.text.count(job) == 2, "in the sentence, and in the list"
        assert "Cannot be undone" in seen.text
        await seen.press("y")
        await seen.until(lambda: "2 done" in seen.text)
        (order,) = seen.pool.orders
        assert [each.id for each in order.touched] == [RUN8.uuid, job]
        assert "2 of 2 answered" in seen.text


@pytest.mark.parametrize(
    ("gate", "key", "why"),
    [
        (None, "T", "needs metlmon's gate"),
        (GateStatus(stopped=Stopped("patience", 9, "no better", THEN)), "E", "metlmon continue"),
    ],
)
async def test_refused_request_has_a_reason(gate: GateStatus | None, key: str, why: str) -> None:
    async with steer({"run8": gate}) as seen:
        await seen.press(*TO_RUN8, "a", key)
        assert isinstance(seen.app.screen, MenuScreen)
        assert why in " ".join(seen.text.split())
        await seen.press("enter", "y", key)
        assert asked(seen) == []


# --- a site ---------------------------------------------------------------------------------


async def test_site_is_chosen_among_known_ones() -> None:
    async with steer() as seen:
        await seen.press(*TO_RUN8, "a", "E")
        await seen.until(lambda: "Delta-GPU" in seen.text)
        assert DAG_DEFAULT in seen.text
        assert "4 slots, NVIDIA A40" in seen.text
        assert "y do it" not in seen.lines[-1], "there is nothing to say yes to yet"
        await seen.press(*"exp", "down", "enter")
        assert "Send the next epochs of run8 to Expanse-GPU?" in seen.text
        await seen.press("y")
        await seen.until(lambda: "1 done" in seen.text)
        assert asked(seen) == [(PoolAction.SEND, ["run8"], "Expanse-GPU")]
        assert "Send the next epochs of run8 to Expanse-GPU" in seen.text


async def test_up_and_down_wrap_around() -> None:
    async with steer() as seen:
        await seen.press(*TO_RUN3, "a", "O")
        await seen.until(lambda: "Delta-GPU" in seen.text)
        await seen.press(*"-gpu", "up")
        assert "▌Delta-GPU" in seen.text
        await seen.press("down")
        assert "▌Expanse-GPU" in seen.text
        await seen.press("tab", "enter", "y")
        await seen.until(lambda: "1 done" in seen.text)
        (order,) = seen.pool.orders
        assert (order.act, order.site) == (PoolAction.RETARGET, "Delta-GPU")
        assert [each.cluster for each in order.targets] == [RUN3.latest.cluster]


async def test_invalid_site_gets_no_question() -> None:
    async with steer(pool=FakePool(sites=())) as seen:
        await seen.press(*TO_RUN3, "a", "O")
        for typed in ((), ("quotation_mark",), ("$", "left_parenthesis"), ("a", "backslash")):
            await seen.press(*typed, "enter")
            assert "a site's name, without quotes, $ and backslash, is needed here" in seen.text
            await seen.press("y")
            assert isinstance(seen.app.screen, ConfirmScreen)
            assert seen.pool.orders == []
            await seen.press("ctrl+u")


async def test_silent_collector_leaves_the_sites_of_the_dag() -> None:
    pool = FakePool(sites=PoolError("the collector does not answer: does CONDOR_HOST name it?"))
    async with steer(pool=pool) as seen:
        await seen.press(*TO_RUN3, "a", "O")
        await seen.until(lambda: "the collector does not answer" in seen.text)
        assert "named in the DAG" in seen.text
