"""The screens of annexes and of advice: what they say first, and what is copied or applied."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from metlmon.model.queue import QueueJob
from metlmon.pool.annex_ads import AnnexAnswer, AnnexGeneration, FreeGpus
from metlmon.pool.client import PoolClient
from metlmon.pool.connection import PoolConnection
from metlmon.snapshot.records import Ledger
from screens.advice import AdviceScreen, ApplyScreen
from tests.placement.test_annexes import COLLECTOR, NOW, TARGETED, node, request
from tests.placement.test_annexes import RUNS as ANNEX_RUNS
from tests.support.advised_dagdir import BROKEN, FAST, RUNS, SLOW, advised
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log
from tests.support.fake_pool import FakePool
from tests.support.gate_rows import queued
from tests.support.queue_rows import Schedd, dagman
from tests.support.run_histories import A40, basis
from tests.support.sample_snapshots import FakeFeed, update
from tests.support.screen_view import NARROW, WIDE, EagerApp, RunningApp, opened
from tests.support.static_sessions import session

STATS = basis(ANNEX_RUNS)
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
        self.queries = self.gpu_queries = 0

    def query_annexes_soon(self) -> None:
        self.queries += 1

    def query_gpus_soon(self) -> None:
        self.gpu_queries += 1


class NoonApp(EagerApp):
    """The time of the query of annexes."""

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
) -> AsyncIterator[tuple[RunningApp, AnnexPool]]:
    """The screen with this answer."""
    pool = AnnexPool(answer)
    async with opened(LedgerFeed(), size, app_type=NoonApp, pool=pool) as seen:
        await seen.press("3", "3")
        yield seen, pool


async def test_warnings_come_before_the_annexes() -> None:
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
        assert "another one: htcondor annex add gpu-annex" in seen.text
        await seen.press("Y")
        assert seen.app.copied.startswith("htcondor annex add gpu-annex")  # type: ignore[attr-defined]
        assert "copied: htcondor annex" in seen.text
        assert pool.orders == [], "it is copied, and not run"
        await seen.press("ctrl+n")
        assert pool.queries == 2
        assert "asking the schedd and the collectors" in seen.text


async def test_empty_screen_explains_annexes() -> None:
    empty = AnnexAnswer(queried_at=NOW, generation=AnnexGeneration.NEW)
    async with annexes(empty) as (seen, _):
        assert "No annex is known here." in seen.text
        assert "request one: htcondor annex create NAME   Y copies" in seen.text


async def test_no_command_is_copied_without_a_schedd() -> None:
    silent = AnnexAnswer(error="no schedd answers here")
    async with annexes(silent) as (seen, _):
        assert "! no schedd answers here" in seen.text
        await seen.press("Y")
        assert seen.app.copied == ""  # type: ignore[attr-defined]
        assert "the command of this access point is not known" in seen.text


# --- the Advice screen: the plan first, and the acts that apply it and take it back -----------


@asynccontextmanager
async def advice_of(dagdir: Dagdir, size: tuple[int, int] = NARROW) -> AsyncIterator[RunningApp]:
    """The Advice screen of a dagdir, with a schedd in memory in which run 2 waits."""
    feed = session(dagdir.path)
    place: dict[str, Any] = {"site": "any", "by_site_list": True, "directory": dagdir.path}
    waiting = queued(103, "run2-train_epoch2", status=1, **place)
    schedd = Schedd(waiting, dagman(directory=dagdir.path))
    pool = PoolClient(feed, cast(PoolConnection, schedd))
    async with opened(feed, size, pool=pool) as seen:
        await seen.press("7", "7")
        assert isinstance(seen.app.screen, AdviceScreen)
        yield seen


def targets(dagdir: Dagdir) -> list[str | None]:
    files = [dagdir.path / f"gate/ens/{uuid}.target" for uuid in RUNS]
    return [file.read_text() if file.exists() else None for file in files]


async def test_plan_comes_first_then_what_if_then_pools(tmp_path: Path) -> None:
    async with advice_of(advised(tmp_path / "e")) as seen:
        assert seen.lines[0].startswith(" Advice   ETA ")
        assert "This plan gains" in seen.lines[1]
        assert f"{FAST}, {SLOW}" in seen.line("run2")
        places = [seen.text.index(each) for each in ("NEXT EPOCHS", "What would", "What is known")]
        assert places == sorted(places)
        assert "its last 12 executions were lost" in seen.line(f"avoid {BROKEN}")
        assert "later" in seen.line(f"without {FAST}")


async def test_narrow_screen_has_all_of_what_the_plan_gains(tmp_path: Path) -> None:
    async with advice_of(advised(tmp_path / "e"), size=(40, 24)) as seen:
        answer = " ".join(line.strip() for line in seen.lines[:6])
        assert re.search(r"This plan gains [^…]*80 % interval: [^…]*\)\.", answer)


async def test_plan_is_applied_after_a_question_and_undone(tmp_path: Path) -> None:
    dagdir = advised(tmp_path / "e")
    async with advice_of(dagdir) as seen:
        await seen.press("a")
        await seen.until(lambda: "Send the next epochs of 3 runs" in seen.text)
        assert targets(dagdir) == [None, None, None]
        await seen.press("y")
        await seen.until(lambda: "done; esc goes back" in seen.text)
        assert targets(dagdir) == [f"{FAST}\n", f"{FAST}\n", f"{FAST}|{SLOW}\n"]
        assert seen.text.count("done") >= 3
        await seen.press("y", "escape", "a")
        await seen.until(lambda: "tab" in seen.text)
        for words in ("Retarget 1 idle job", f"Exclude the site {BROKEN}", "Restore what was"):
            await seen.press("tab")
            assert words in seen.text
        await seen.press("y")
        await seen.until(lambda: "done; esc goes back" in seen.text)
        assert targets(dagdir) == [None, None, None]


async def test_plan_is_applied_fully_after_closing_the_screen(tmp_path: Path) -> None:
    dagdir = advised(tmp_path / "e")
    async with advice_of(dagdir) as seen:
        await seen.press("a")
        await seen.until(lambda: "Send the next epochs of 3 runs" in seen.text)
        screen = seen.app.screen
        assert isinstance(screen, ApplyScreen)
        await seen.press("escape")
        # In the thread that outlives the screen.
        await asyncio.get_running_loop().run_in_executor(None, screen._perform)
        assert seen.app.pending_task == ""
    assert targets(dagdir) == [f"{FAST}\n", f"{FAST}\n", f"{FAST}|{SLOW}\n"]


async def test_submit_line_is_shown_without_a_gate(tmp_path: Path) -> None:
    async with advice_of(advised(tmp_path / "e", gated=False), WIDE) as seen:
        assert "requirements = ($(requirements:true)) && stringListIMember(" in seen.text
        await seen.press("a")
        await seen.until(lambda: isinstance(seen.app.screen, ApplyScreen) and "tab" in seen.text)
        assert "left out: run0, run1, run2: " in seen.text
        await seen.press("y")
        assert "What came of it" not in seen.text


async def test_missing_data_is_reported(tmp_path: Path) -> None:
    dagdir = advised(tmp_path / "e")
    dagdir.write("metl.log", Log().submit(1, "run0-train_epoch0").execute(1, site=FAST).data)
    async with advice_of(dagdir) as seen:
        assert "No plan yet: no epoch has completed yet." in seen.lines[0]
    nodes = [f"run{run}-train_epoch{epoch}" for run in range(3) for epoch in range(6)]
    dagdir.write("ens.dag.rescue001", "".join(f"DONE {node}\n" for node in nodes))
    dagdir.write("metl.log", b"")
    async with advice_of(dagdir) as seen:
        assert "Nothing to plan: no run has epochs left." in seen.text


@pytest.mark.parametrize("live", [True, False])
async def test_free_gpus_count_while_the_ensemble_is_live(live: bool) -> None:
    answer = AnnexAnswer(free_gpus=(FreeGpus("anvil", A40, 8, NOW),))
    pool, feed = AnnexPool(answer), LedgerFeed()
    async with opened(feed, WIDE, app_type=NoonApp, pool=pool) as seen:
        shown = feed.latest
        feed.publish(replace(shown, status=replace(shown.status, live=live)))
        await seen.press("7", "7")
        await seen.until(lambda: "What is known" in seen.text)
        assert ("anvil" in seen.text, pool.gpu_queries > 0) == (live, live)
        assert ("inferred from logs" in seen.text) is not live
