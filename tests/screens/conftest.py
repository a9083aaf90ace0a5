"""What the tests of the screens share."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from screens.app import AppOptions
from tests.support.sample_snapshots import FakeFeed, update
from tests.support.screen_view import MIDDLE, Seen, Show, opened


@pytest.fixture
def show() -> Show:
    """Opens the application on a feed: ``async with show(size=(80, 24)) as seen``."""

    def shown(
        feed: FakeFeed | None = None,
        size: tuple[int, int] = MIDDLE,
        options: AppOptions | None = None,
    ) -> AbstractAsyncContextManager[Seen]:
        return opened(feed or FakeFeed(update()), size, options)

    return shown
