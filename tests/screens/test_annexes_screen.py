"""The Annexes screen: warnings first, the table, and the command that is copied."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from metlmon.model.queue import QueueJob
from metlmon.pool.annex_ads import AnnexAnswer, AnnexGeneration
from metlmon.snapshot.records import Ledger
from screens.app import AppOptions
from tests.placement.test_annexes import COLLECTOR, NOW, RUNS, TARGETED, node, request
from tests.support.fake_pool import FakePool
from tests.support.run_histories import basis
from tests.support.sample_snapshots import FakeFeed, update
from tests.support.screen_view import NARROW, Eager, Seen, opened

STATS = basis(RUNS)
ANSWER = AnnexAnswer(
    requests=(request(), request("next-annex", 2)),
    ads=tuple(node(busy=2, stops_at=NOW + 1200)),
    jobs=(*TARGETED, QueueJob(9, 0, 1, annex="gone-annex")),
    collectors=(COLLECTOR,),
    queried_at=NOW,
    generation=AnnexGeneration.NEW,
)


class AnnexPool(FakePool):
    """A pool with these annexes."""

    def __init__(self, answer: AnnexAnswer) -> None:
        super().__init__()
        self.annex_answer = answer
        self.queries = 0

    def query_annexes_soon(self) -> None:
        self.queries += 1


class AtNoon(Eager):
    """The time at which the annexes were asked."""

    copied = ""

    def now(self) -> float:
        return NOW

    def copy_to_clipboard(self, text: str) -> None:
        self.copied = text


class LedgerFeed(FakeFeed):
    """An ensemble with epochs that run in an annex."""

    def __init__(self) -> None:
        super().__init__(update(STATS.status))

    def ledger(self) -> Ledger:
        return STATS.ledger


@asynccontextmanager
async def annexes(
    answer: AnnexAnswer, size: tuple[int, int] = NARROW
) -> AsyncIterator[tuple[Seen, AnnexPool]]:
    """The screen with this answer."""
    pool = AnnexPool(answer)
    options = AppOptions(pool_actions=pool)  # type: ignore[arg-type]
    async with opened(LedgerFeed(), size, options, AtNoon) as seen:
        await seen.press("3", "3")
        yield seen, pool


async def test_warnings_come_first_then_the_annexes() -> None:
    async with annexes(ANSWER) as (seen, pool):
        assert pool.queries == 1
        assert "3 annexes, 1 up" in seen.lines[0]
        assert "gpu-annex expires in 20m00s, before run0 epoch 5 ends" in seen.text
        assert "1 job waits for gone-annex, which was never seen" in seen.text
        row = seen.line("▌")
        assert row.split()[:2] == ["▌", "gpu-annex"]
        assert "expiring" in row
        assert "2/4" in row
        assert "12:20  20m00s" in row


async def test_the_command_is_copied_and_not_run() -> None:
    async with annexes(ANSWER) as (seen, pool):
        assert "another one: htcondor annex add gpu-annex" in seen.text
        await seen.press("Y")
        assert seen.app.copied.startswith("htcondor annex add gpu-annex")  # type: ignore[attr-defined]
        assert "copied: htcondor annex" in seen.text
        assert pool.orders == []


async def test_an_empty_screen_says_what_an_annex_is() -> None:
    empty = AnnexAnswer(queried_at=NOW, generation=AnnexGeneration.NEW)
    async with annexes(empty) as (seen, _):
        assert "No annex is known here." in seen.text
        assert "request one: htcondor annex create NAME   Y copies" in seen.text


async def test_asking_again() -> None:
    async with annexes(ANSWER) as (seen, pool):
        await seen.press("ctrl+n")
        assert pool.queries == 2
        assert "asking the schedd and the collectors" in seen.text


async def test_without_a_schedd_nothing_is_copied() -> None:
    silent = AnnexAnswer(error="no schedd answers here")
    async with annexes(silent) as (seen, _):
        assert "! no schedd answers here" in seen.text
        await seen.press("Y")
        assert seen.app.copied == ""  # type: ignore[attr-defined]
        assert "the command of this access point is not known" in seen.text
