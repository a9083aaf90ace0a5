"""The application with a pool that records its requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from metlmon.pool.types import PoolAction
from tests.support.fake_pool import NOW, FakePool, QueuedFeed
from tests.support.sample_snapshots import FakeFeed, update
from tests.support.screen_view import NARROW, EagerApp, RunningApp


class PunctualApp(EagerApp):
    """A queue answer from twelve seconds ago, whenever the tests run."""

    def now(self) -> float:
        return NOW


class ActingView(RunningApp):
    """The screen, and the requests to the pool."""

    pool: FakePool

    @property
    def touched(self) -> list[tuple[PoolAction, list[str]]]:
        return [(order.act, [each.id for each in order.targets]) for order in self.pool.orders]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for the effect of another thread."""
        for _ in range(2000):
            if holds():
                return
            await self.pilot.pause(0.005)
        raise AssertionError(f"it did not come:\n{self.text}")


@asynccontextmanager
async def opened_to_act(
    pool: FakePool | None = None,
    size: tuple[int, int] = NARROW,
    feed: FakeFeed | None = None,
    **opened: object,
) -> AsyncIterator[ActingView]:
    """The application with a pool: ``async with opened_to_act(size=(80, 24)) as seen``."""
    pool = pool or FakePool()
    feed = feed or QueuedFeed(update(), Path("/nowhere/global_pretraining"))
    app = PunctualApp(feed, **{"pool": pool, **opened})
    async with app.run_test(size=size) as pilot:
        seen = ActingView(app, feed, pilot)
        seen.pool = pool
        await seen.settle()
        yield seen
