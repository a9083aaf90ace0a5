"""What the tests of the screens share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from ensemble_pictures import FakeFeed, update
from eyes import MIDDLE, Eager, Seen, Show

from screens.app import AppOptions


@pytest.fixture
def show() -> Show:
    """Opens the application on a feed: ``async with show(size=(80, 24)) as seen``."""

    @asynccontextmanager
    async def opened(
        feed: FakeFeed | None = None,
        size: tuple[int, int] = MIDDLE,
        options: AppOptions | None = None,
    ) -> AsyncIterator[Seen]:
        feed = feed or FakeFeed(update())
        app = Eager(feed, options)
        async with app.run_test(size=size) as pilot:
            seen = Seen(app, feed, pilot)
            await seen.settle()
            yield seen

    return opened
